/* emit_group.c: the function of one group: loops over the domain, shared among the units.
 *
 * Axes that every access walks contiguously are collapsed into one; the last axis is the lane loop.
 * Parts that do not depend on it are computed before it. */
#include "codegen/emit/emit.h"
#include "scheduler/cost/device.h"

/* ---- how the function names things ----------------------------------------------------------- */
static const char *group_tensor(Fn *f, Tensor *t) {
    Group *g = f->user;
    for (int i = 0; i < g->k->n; i++)
        if (g->k->t[i] == t || memory_changes(g->k->t[i], t)) return arena_printf(f->a, "o%d", i);
    int i = 0;
    while (i < g->arg_t.n && g->arg_t.p[i] != t) i++;
    if (i == g->arg_t.n) vec_push(f->a, &g->arg_t, t);
    return arena_printf(f->a, "p%d", i);
}

static const char *group_symbol(Fn *f, Sym *s) {
    Group *g = f->user;
    int i = 0;
    while (i < g->arg_s.n && g->arg_s.p[i] != s) i++;
    if (i == g->arg_s.n) vec_push(f->a, &g->arg_s, s);
    return arena_printf(f->a, "s%d", i);
}

static const char *group_load(Fn *f, Expr *e) {
    Group *g = f->user;
    if (e->op == E_REDUCE) return g->reduce ? g->reduce(g, e) : NULL;
    for (int i = 0; i < g->k->n; i++) /* a member is read at its own position only */
        if (g->k->t[i] == e->t) return arena_printf(f->a, "m%d", i);
    return NULL;
}

/* ---- loops ----------------------------------------------------------------------------------- */
void group_store_member(Group *g, int i, Expr *value) {
    Fn *f = &g->f;
    const DType type = g->k->t[i]->dtype;
    const char *v = fn_expr(f, value);
    fn_line(f, "const %s m%d = %s;", c_type(type), i, v);
    fn_line(f, "o%d[%s] = %s;", i, fn_expr(f, g->k->position[i]),
            fn_store(f, type, arena_printf(f->a, "m%d", i)));
}

void group_members(Group *g) {
    for (int i = 0; i < g->k->n; i++) group_store_member(g, i, g->k->value[i]);
}

void group_members_by_lane(Group *g, Axis *v, const char *from, const char *to) {
    Fn *f = &g->f;
    fn_line(f, "for (int64_t l = %s; l < %s; l++) {", from, to);
    int inner = fn_open(f);
    fn_line(f, "const int64_t iv = v0 + l;");
    fn_bind(f, e_axis(f->c, v), "iv");
    group_members(g);
    fn_close(f, inner);
    fn_line(f, "}");
}

void group_range(Group *g) {
    Fn *f = &g->f;
    for (int i = 0; i < g->k->n; i++) {
        fn_count(f, g->k->value[i]);
        fn_count(f, g->k->position[i]);
    }
    if (!g->k->split) {
        fn_line(f, "if (unit != 0) return;");
        return;
    }
    const char *whole = fn_expr(f, g->k->split->extent), *grain = fn_expr(f, g->k->grain);
    const char *n = g->k->s->op.inner ? fn_expr(f, g->k->s->op.inner) : whole;
    fn_line(f, "const int64_t all = %s, grain = %s, parts = (all + grain - 1) / bk_maxi(grain, 1);",
            n, grain);
    if (!g->k->s->op.inner) {
        fn_line(f, "const int64_t from = parts * unit / nunit * grain;");
        fn_line(f, "const int64_t to = bk_mini(parts * (unit + 1) / nunit * grain, all);");
        return;
    }
    long long edge = g->k->s->op.edge;
    fn_line(f, "const int64_t from = unit == 0 ? 0 : parts * unit / nunit * grain + %lld;", edge);
    fn_line(f,
            "const int64_t to = unit == nunit - 1 ? %s : bk_mini(parts * (unit + 1) / nunit * "
            "grain, all) + %lld;",
            whole, edge);
}

void group_loop(Group *g, Axis *x, const char *name) {
    Fn *f = &g->f;
    bool split = x == g->k->split;
    fn_line(f, "for (int64_t %s = %s; %s < %s; %s++) {", name, split ? "from" : "0", name,
            split ? "to" : fn_expr(f, x->extent), name);
    fn_open(f);
    fn_bind(f, e_axis(f->c, x), name);
}

/* ---- the lane loop --------------------------------------------------------------------------- */
/* A condition as a range of the lane axis: what does not depend on it, and bounds. */
typedef struct LaneCond {
    Axis *x;
    Expr *invariant;        /* bool */
    Expr *low[4], *high[4]; /* low <= lane < high */
    int nlow, nhigh;
} LaneCond;

static bool lane_bound(Cx *c, LaneCond *k, Expr *first, Expr *second, int64_t slack) {
    /* second - first >= slack */
    Expr *coef, *rest;
    if (first->dtype != DT_I64 || !e_affine(c, e_sub(c, second, first), k->x, &coef, &rest) ||
        e_uses_axis(rest, k->x))
        return false;
    if (e_is_ival(coef, 1) && k->nlow < 4)
        k->low[k->nlow++] = e_sub(c, e_int(c, slack), rest);
    else if (e_is_ival(coef, -1) && k->nhigh < 4)
        k->high[k->nhigh++] = e_addi(c, rest, 1 - slack);
    else
        return false;
    return true;
}

static bool lane_cond(Cx *c, LaneCond *k, Expr *e) {
    if (!e_uses_axis(e, k->x)) {
        k->invariant = e_and(c, k->invariant, e);
        return true;
    }
    switch (e->op) {
    case E_AND: return lane_cond(c, k, e->a[0]) && lane_cond(c, k, e->a[1]);
    case E_LE: return lane_bound(c, k, e->a[0], e->a[1], 0);
    case E_LT: return lane_bound(c, k, e->a[0], e->a[1], 1);
    case E_EQ:
        return lane_bound(c, k, e->a[0], e->a[1], 0) && lane_bound(c, k, e->a[1], e->a[0], 0);
    default: return false;
    }
}

/* Stores `value` of the only member for lanes [lo, hi). A choice by position becomes separate
 * loops, so that padding and concatenation are plain copies. */
static void lane_loop(Group *g, Expr *value, const char *lo, const char *hi, int depth) {
    Fn *f = &g->f;
    Axis *x = g->k->axis[g->k->naxis - 1];
    if (value->op == E_SELECT && depth < 4) {
        LaneCond k = {.x = x, .invariant = e_bool(f->c, true)};
        if (lane_cond(f->c, &k, value->a[0])) {
            int id = f->ntemp++, inner = -1;
            const char *a = arena_printf(f->a, "a%d", id), *b = arena_printf(f->a, "b%d", id);
            uint8_t flags = k.invariant->flags;
            for (int i = 0; i < k.nlow; i++) flags |= k.low[i]->flags;
            for (int i = 0; i < k.nhigh; i++) flags |= k.high[i]->flags;
            if (flags & (EF_LOAD | EF_GUARD)) { /* bounds that hold for these lanes only */
                fn_line(f, "if (%s < %s) {", lo, hi);
                inner = fn_open(f);
            }
            fn_hoist(f, k.invariant, 0, NULL);
            const char *inv = fn_expr(f, k.invariant);
            fn_line(f, "int64_t %s = %s, %s = %s;", a, lo, b, hi);
            for (int i = 0; i < k.nlow; i++)
                fn_line(f, "%s = bk_maxi(%s, %s);", a, a, fn_expr(f, k.low[i]));
            for (int i = 0; i < k.nhigh; i++)
                fn_line(f, "%s = bk_mini(%s, %s);", b, b, fn_expr(f, k.high[i]));
            fn_line(f, "%s = %s ? bk_mini(%s, %s) : %s;", a, inv, a, hi, hi);
            fn_line(f, "%s = bk_maxi(%s, %s);", b, a, b);
            lane_loop(g, value->a[2], lo, a, depth + 1);
            lane_loop(g, value->a[1], a, b, depth + 1);
            lane_loop(g, value->a[2], b, hi, depth + 1);
            if (inner >= 0) {
                fn_close(f, inner);
                fn_line(f, "}");
            }
            return;
        }
    }
    int mark = f->bound.n;
    fn_line(f, "if (%s < %s) {", lo,
            hi); /* what is computed before the loop may be valid inside only */
    fn_open(f);
    fn_hoist(f, value, 1, &x);
    if (!(value->flags & EF_REDUCE) && !fn_guarded(f, value)) fn_line(f, "%s", g->em->target->simd);
    fn_line(f, "for (int64_t i = %s; i < %s; i++) {", lo, hi);
    fn_open(f);
    fn_bind(f, e_axis(f->c, x), "i");
    group_store_member(g, 0, value);
    f->indent--;
    fn_line(f, "}");
    f->indent--;
    fn_line(f, "}");
    f->bound.n = mark;
}

static void loops(Group *g) {
    Fn *f = &g->f;
    int n = g->k->naxis, mark = f->bound.n, indent = f->indent;
    uint8_t flags = 0;
    for (int i = 0; i < g->k->n; i++) flags |= g->k->value[i]->flags;
    group_range(g);
    bool by_lanes = n > 0 && g->k->n == 1 && g->k->value[0]->op == E_SELECT;
    for (int d = 0; d < n - by_lanes; d++) {
        /* What the loops inside do not change. */
        for (int i = 0; i < g->k->n; i++) fn_hoist(f, g->k->value[i], n - d, g->k->axis + d);
        bool lanes = d == n - 1 && !(flags & EF_REDUCE);
        for (int i = 0; i < g->k->n && lanes; i++) lanes = !fn_guarded(f, g->k->value[i]);
        if (g->k->axis[d] != g->k->split)
            fn_expr(f, g->k->axis[d]->extent); /* what it needs stands before the directive */
        if (lanes) fn_line(f, "%s", g->em->target->simd);
        group_loop(g, g->k->axis[d], arena_printf(f->a, "i%d", d));
    }
    if (by_lanes) {
        bool split = g->k->axis[n - 1] == g->k->split;
        lane_loop(g, g->k->value[0], split ? "from" : "0",
                  split ? "to" : fn_expr(f, g->k->axis[n - 1]->extent), 0);
    } else
        group_members(g);
    while (f->indent > indent) {
        f->indent--;
        fn_line(f, "}");
    }
    f->bound.n = mark;
}

static void print(Group *g) {
    switch (g->k->kind) {
    case KERNEL_WINOGRAD: group_winograd(g); break;
    case KERNEL_CONVOLUTION: group_convolution(g); break;
    case KERNEL_CONTRACTION: group_contraction(g); break;
    case KERNEL_LANES: group_lanes(g); break;
    case KERNEL_DOTS: group_dots(g); break;
    case KERNEL_THREADS: group_threads(g); break;
    default: loops(g);
    }
}

void emit_group(Emit *em, Fn *kernel, Sb *decl, Stmt *s, bool block) {
    Cx *c = em->c;
    const Kernel *k = s->op.kernel;
    Tensor *lead = k->t[0];
    Group g = {.em = em, .k = k, .body = {.a = em->a}};
    g.f = (Fn){.em = em,
               .c = c,
               .a = em->a,
               .out = &g.body,
               .indent = 1,
               .uses = map_new(em->a),
               .tensor = group_tensor,
               .symbol = group_symbol,
               .load = group_load,
               .user = &g};
    for (int d = 0; s->op.at && d < lead->rank; d++) { /* a position outside changes nothing */
        if (!s->op.at[d]) continue;
        Expr *in = e_and(c, e_le(c, e_int(c, 0), s->op.at[d]), e_lt(c, s->op.at[d], lead->dim[d]));
        if (!e_is_ival(in, 1)) fn_line(&g.f, "if (!%s) return;", fn_temp(&g.f, in));
    }
    print(&g);
    /* Parameters in order of use, so that equal groups give equal text. */
    Sb params = {.a = em->a}, args = {.a = em->a};
    sb_puts(&params, "bk_ctx *k, int unit, int nunit");
    sb_puts(&args, s->each ? "k, 0, 1" : "k, unit, nunit");
    for (int i = 0; i < k->n; i++) {
        sb_printf(&params, ", %s *BK_RESTRICT o%d", c_store(k->t[i]->dtype), i);
        sb_printf(&args, ", %s", kernel->tensor(kernel, k->t[i]));
    }
    for (int i = 0; i < g.arg_t.n; i++) {
        sb_printf(&params, ", const %s *BK_RESTRICT p%d", c_store(g.arg_t.p[i]->dtype), i);
        sb_printf(&args, ", %s", kernel->tensor(kernel, g.arg_t.p[i]));
    }
    for (int i = 0; i < g.arg_s.n; i++) {
        sb_printf(&params, ", %s s%d", c_type(g.arg_s.p[i]->dtype), i);
        sb_printf(&args, ", %s", kernel->symbol(kernel, g.arg_s.p[i]));
    }
    if (g.turns) {
        int turn = em->nturn++;
        sb_printf(decl, "    unsigned turn%d = 0;\n", turn);
        sb_puts(&params, ", unsigned turn");
        sb_printf(&args, ", turn%d++", turn);
    }
    Sb whole = {.a = em->a};
    if (!em->target->simd && (s->level == LEVEL_TEAM || !em->p->mem->distributed)) {
        for (int i = 0; i < k->n; i++) sb_printf(&whole, "    BK_GLOBAL(o%d);\n", i);
        for (int i = 0; i < g.arg_t.n; i++)
            if (!is_resident(em, g.arg_t.p[i])) sb_printf(&whole, "    BK_GLOBAL(p%d);\n", i);
    }
    if (g.body.n) sb_puts(&whole, g.body.p);
    const char *stem = lead->name ? lead->name : "value";
    const char *name =
        emit_function(em, stem, em->target->function, params.p, whole.n ? whole.p : "");
    if (block && !g.meets) fn_line(kernel, "bk_block();");
    fn_line(kernel, "%s(%s); /* %s */", name, args.p, emit_comment(em, k->t[k->n - 1]->path));
    sb_free(&params);
    sb_free(&args);
    sb_free(&whole);
    sb_free(&g.body);
}
