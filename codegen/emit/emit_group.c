/* emit_group.c: the function of one group, and its call. The family's printer for the kernel's kind
 * writes the function's body; here is what the kinds share. */
#include "codegen/emit/emit.h"
#include "scheduler/cost/cost.h"
#include "scheduler/kernel/frame.h"
#include <ctype.h>

/* ---- how the function names things ----------------------------------------------------------- */
/* The member that t is or changes; NULL: none. */
static const char *member_name(const Group *g, Tensor *t) {
    for (int i = 0; i < g->k->n; i++)
        if (g->k->t[i] == t || memory_changes(g->k->t[i], t))
            return arena_printf(g->em->a, "o%d", i);
    return NULL;
}

/* The parameter for t from element `first` on; `any`: or from another one. */
static int parameter(Group *g, Tensor *t, int64_t first, bool any) {
    for (int i = 0; i < g->arg_t.n; i++)
        if (g->arg_t.p[i].t == t && (any || g->arg_t.p[i].first == first)) return i;
    GroupArg x = {t, first};
    vec_push(g->em->a, &g->arg_t, x);
    return g->arg_t.n - 1;
}

static const char *group_tensor(Fn *f, Tensor *t) {
    Group *g = f->user;
    const char *o = member_name(g, t);
    return o ? o : arena_printf(f->a, "p%d", parameter(g, t, 0, false));
}

/* The constant part of a position, if it is inside t. */
static int64_t first_element(const Tensor *t, Expr *flat) {
    int64_t n = 1, size, at;
    for (int i = 0; i < t->rank; i++)
        if (!e_is_int(t->dim[i], &size) || !mul_size(n, size, &n)) return 0;
    const Expr *last = flat->op == E_ADD ? flat->a[1] : flat;
    return e_is_int(last, &at) && at > 0 && at < n ? at : 0;
}

static const char *group_around(Fn *f, Tensor *t, Expr **flat) {
    Group *g = f->user;
    const char *o = member_name(g, t);
    if (o) return o;
    const int i = parameter(g, t, first_element(t, *flat), true);
    *flat = e_addi(f->c, *flat, -g->arg_t.p[i].first);
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
    return g->loaded ? g->loaded(g, e) : NULL;
}

static bool group_own(const Fn *f, const Tensor *t) {
    const Group *g = f->user;
    for (int i = 0; i < g->k->n; i++)
        if (g->k->t[i] == t) return true;
    return false;
}

/* ---- loops ----------------------------------------------------------------------------------- */
static void declare_member(Group *g, int i, Expr *value) {
    Fn *f = &g->f;
    const DType type = g->k->t[i]->dtype;
    /* Storing rounds; nobody else needs the rounded number. */
    if (g->k->n == 1 && value->op == E_CAST && value->dtype == type &&
        (type == DT_F16 || type == DT_BF16) && value->a[0]->dtype == DT_F32)
        value = value->a[0];
    const char *v = fn_expr(f, value);
    fn_line(f, "const %s m%d = %s;", c_type(type), i, v);
    if (emit_is_gpu(g->em)) fn_computed(f, g->k->t[i], value);
}

static void store_member(Group *g, int i, Expr *position) {
    Fn *f = &g->f;
    fn_line(f, "o%d[%s] = %s;", i, fn_expr(f, position),
            fn_store(f, g->k->t[i]->dtype, arena_printf(f->a, "m%d", i)));
}

void group_store_at(Group *g, int i, Expr *value, Expr *position) {
    declare_member(g, i, value);
    store_member(g, i, position);
}

void group_store_member(Group *g, int i, Expr *value) {
    group_store_at(g, i, value, g->k->position[i]);
}

/* A thread of a GPU loads nothing over a store: it computes all members, then stores them. */
void group_members(Group *g) {
    const bool gpu = emit_is_gpu(g->em);
    for (int i = 0; i < g->k->n; i++) {
        declare_member(g, i, g->k->value[i]);
        if (!gpu) store_member(g, i, g->k->position[i]);
    }
    for (int i = 0; i < g->k->n && gpu; i++) store_member(g, i, g->k->position[i]);
}

void group_members_by_lane(Group *g, Axis *v, const char *from, const char *to, bool simd) {
    Fn *f = &g->f;
    for (int i = 0; i < g->k->n && simd; i++) simd = !fn_guarded(f, g->k->value[i]);
    if (simd) fn_line(f, "BK_SIMD");
    const Scope inner = fn_open(f, "for (int64_t l = %s; l < %s; l++) {", from, to);
    fn_line(f, "const int64_t iv = v0 + l;");
    fn_bind(f, e_axis(f->c, v), "iv");
    group_members(g);
    fn_close(f, inner);
}

/* Whether the function has a range of x, from `from` to `to`; the second axis is from `low` to
 * `high`.
 */
static bool in_range(const Group *g, const Axis *x) {
    return x == g->k->split || (g->k->s->op.strip && x == g->k->strip);
}

void group_lane_tiles(Group *g, Axis *v, int tile) {
    Fn *f = &g->f;
    const char *to = group_to(g, v);
    int64_t n;
    if (!in_range(g, v) && e_is_int(v->extent, &n) && n <= tile) {
        fn_open(f, "{");
        fn_line(f, "enum { v0 = 0, lanes = %lld };", (long long)n);
        return;
    }
    fn_open(f, "for (int64_t v0 = %s; v0 < %s; v0 += %d) {", group_from(g, v), to, tile);
    fn_line(f, "const int64_t lanes = bk_mini(%s - v0, %d);", to, tile);
}

/* The ranges of a group of so many parts of one position that units share along two axes: in a run
 * of fewer units only along the first. */
static void second_range(Group *g, long long parts, const char *by) {
    Fn *f = &g->f;
    const int ways = g->k->s->op.ways;
    const char *n = fn_expr(f, g->k->second->extent);
    fn_line(f, "const int ways = nunit >= %lld ? %d : 1, sharers = nunit / ways;", parts * ways,
            ways);
    fn_line(f, "const int sharer = (int)bk_mini(unit / ways, sharers);");
    fn_line(f, "const int64_t from = bk_share_at(%lld, sharer, sharers)%s;", parts, by);
    fn_line(
        f,
        "const int64_t to = bk_share_at(%lld, (int)bk_mini(unit / ways + 1, sharers), sharers)%s;",
        parts, by);
    fn_line(
        f, "const int64_t low = %s * (unit %% ways) / ways, high = %s * (unit %% ways + 1) / ways;",
        n, n);
}

/* The parts that units share, where their number is known and needs no more than 16 bits: then the
 * caller computes once for all its calls which of them this unit has. false otherwise. */
static bool known_range(Group *g) {
    const Expr *grain = g->k->grain;
    int64_t n, each;
    if (!emit_is_gpu(g->em) || g->k->s->op.inner || !e_is_int(g->k->split->extent, &n) ||
        !e_is_int(grain, &each) || each < 1 || n < 1 || div_up(n, each) > UINT16_MAX)
        return false;
    const char *by = each == 1 ? "" : arena_printf(g->em->a, " * %lld", (long long)each);
    if (g->k->second) {
        second_range(g, (long long)div_up(n, each), by);
        return true;
    }
    g->parts = (int)div_up(n, each);
    const char *to = arena_printf(g->em->a, "(int64_t)high%s", by);
    fn_line(&g->f, "const int64_t from = (int64_t)low%s, to = %s;", by,
            n % each ? arena_printf(g->em->a, "bk_mini(%s, %lld)", to, (long long)n) : to);
    return true;
}

/* Whether a text has this word. */
static bool has_word(const char *text, const char *word) {
    const size_t n = strlen(word);
    for (const char *p = text; (p = strstr(p, word)); p += n)
        if ((p == text || (!isalnum((unsigned char)p[-1]) && p[-1] != '_')) &&
            !isalnum((unsigned char)p[n]) && p[n] != '_')
            return true;
    return false;
}

/* The first parameters and arguments: which unit this is of how many, or which parts it has. They
 * stay the same in the kernel, except where other units than all of them run. */
static void put_unit(const Group *g, Sb *decl, Sb *params, Sb *args, Sb *whole) {
    Emit *em = g->em;
    const bool each = g->k->s->each;
    const char *body = g->body.n ? g->body.p : "";
    if (g->parts && !has_word(body, "unit") && !has_word(body, "nunit")) {
        sb_puts(params, "bk_ctx *k, unsigned low, unsigned high");
        if (each)
            sb_printf(args, "k, 0, %d", g->parts);
        else if (em->other_units || em->p->nfunc)
            sb_printf(args, "k, BK_OWN(%d)", g->parts);
        else {
            sb_printf(args, "k, at%d, to%d", g->parts, g->parts);
            if (map_add(em->own, (uint64_t)g->parts))
                sb_printf(decl,
                          "    const unsigned at%d = bk_share_at(%d, unit, nunit), to%d = "
                          "bk_share_at(%d, unit + 1, nunit);\n",
                          g->parts, g->parts, g->parts, g->parts);
        }
        return;
    }
    sb_puts(params, "bk_ctx *k, int unit, int nunit");
    sb_puts(args, each ? "k, 0, 1" : "k, unit, nunit");
    if (g->parts)
        sb_printf(
            whole,
            "  const unsigned low = bk_share_at(%d, unit, nunit), high = bk_share_at(%d, unit "
            "+ 1, nunit);\n",
            g->parts, g->parts);
}

/* The range of axis x that this unit has, shared in grains: PREFIXfrom to PREFIXto. */
static void units_range(Group *g, const Axis *x, Expr *grains, const char *prefix) {
    Fn *f = &g->f;
    const char *whole = fn_expr(f, x->extent), *grain = fn_expr(f, grains);
    const char *n = g->k->s->op.inner ? fn_expr(f, g->k->s->op.inner) : whole;
    fn_line(f, "const int64_t all = %s, grain = %s, parts = (all + grain - 1) / bk_maxi(grain, 1);",
            n, grain);
    if (!g->k->s->op.inner) {
        fn_line(f, "const int64_t %sfrom = parts * unit / nunit * grain;", prefix);
        fn_line(f, "const int64_t %sto = bk_mini(parts * (unit + 1) / nunit * grain, all);",
                prefix);
        return;
    }
    long long edge = g->k->s->op.edge;
    fn_line(f, "const int64_t %sfrom = unit == 0 ? 0 : parts * unit / nunit * grain + %lld;",
            prefix, edge);
    fn_line(f,
            "const int64_t %sto = unit == nunit - 1 ? %s : bk_mini(parts * (unit + 1) / nunit * "
            "grain, all) + %lld;",
            prefix, whole, edge);
}

/* The unit's range with the frame around it. */
static void whole_range(Group *g) {
    Fn *f = &g->f;
    const Kernel *k = g->k;
    if (k->s->op.strip)
        fn_line(f, "const int64_t whole_from = first, whole_to = end;");
    else if (k->frame->split)
        units_range(g, k->frame->split, e_int(f->c, k->s->op.grain), "whole_");
    else
        fn_line(f, "if (unit != 0) return;");
}

void group_range(Group *g) {
    Fn *f = &g->f;
    for (int i = 0; i < g->k->n; i++) {
        fn_count(f, g->k->value[i]);
        fn_count(f, g->k->position[i]);
    }
    if (g->k->frame) {
        whole_range(g);
        group_frame(g);
        return;
    }
    if (g->k->s->op.strip) { /* a unit without a part has none of a strip */
        const char *apiece = fn_expr(f, g->k->apiece);
        fn_line(f, "const int64_t from = first * %s, to = end * %s;", apiece, apiece);
        return;
    }
    if (!g->k->split) {
        fn_line(f, "if (unit != 0) return;");
        return;
    }
    if (!known_range(g)) units_range(g, g->k->split, g->k->grain, "");
}

static bool in_second(const Group *g, const Axis *x) { return g->k->second && x == g->k->second; }

const char *group_from(const Group *g, const Axis *x) {
    return in_second(g, x) ? "low" : in_range(g, x) ? "from" : "0";
}
const char *group_to(Group *g, const Axis *x) {
    if (in_second(g, x)) return "high";
    return in_range(g, x) ? "to" : fn_expr(&g->f, x->extent);
}

const char *group_count(Group *g, int n, Axis *const *axis) {
    const char *all = NULL;
    for (int d = 0; d < n; d++) {
        const char *size = in_second(g, axis[d])  ? "(high - low)"
                           : in_range(g, axis[d]) ? "(to - from)"
                                                  : group_to(g, axis[d]);
        all = all ? arena_printf(g->em->a, "%s * %s", all, size) : size;
    }
    return all ? all : "1";
}

bool count_is_small(int n, Axis *const *axis) {
    int64_t all = 1, size;
    for (int d = 0; d < n; d++)
        if (!e_is_int(axis[d]->extent, &size) || !mul_size(all, size, &all) || all >= INT32_MAX)
            return false;
    return true;
}

void group_loop(Group *g, Axis *x, const char *name) {
    Fn *f = &g->f;
    fn_open(f, "for (int64_t %s = %s; %s < %s; %s++) {", name, group_from(g, x), name,
            group_to(g, x), name);
    fn_bind(f, e_axis(f->c, x), name);
}

/* Of one run by the units that share it. */
static double estimate_ns(const Program *p, const Stmt *s) {
    return cost_stmt_ns(p, s, schedule_units(p->schedule, s->level));
}

/* A divisor in e may be 0 where the group does not evaluate it. */
static bool divides(const Expr *e) {
    bool any = e->op == E_DIV || e->op == E_FDIV || e->op == E_MOD;
    for (int i = 0; i < e->n && !any; i++) any = divides(e->a[i]);
    return any;
}

/* Conditions below e that are the same for all positions are parameters on GPUs: so equal groups
 * that differ in constants alone, as those of a diagonal do in when they begin, share a function.
 */
static void take_conditions(Group *g, Map *seen, Expr *e) {
    if (!(e->flags & EF_SYM) || !map_add(seen, (uint64_t)e->id + 1)) return;
    if (e->dtype == DT_BOOL && !(e->flags & ~EF_SYM) && e->n > 0 && !divides(e)) {
        fn_bind(&g->f, e, arena_printf(g->em->a, "c%d", g->arg_e.n));
        vec_push(g->em->a, &g->arg_e, e);
        return;
    }
    for (int i = 0; i < e->n; i++) take_conditions(g, seen, e->a[i]);
}

void group_begin(Group *g, Emit *em, const Kernel *k) {
    g->em = em;
    g->k = k;
    g->body.a = em->a;
    if (emit_is_gpu(em)) g->crew = crew_of(em, k);
    g->f = (Fn){.em = em,
                .c = em->c,
                .a = em->a,
                .out = &g->body,
                .indent = 1,
                .uses = map_new(em->a),
                .tensor = group_tensor,
                .around = em->target->apart || emit_is_gpu(em) ? group_around : NULL,
                .symbol = group_symbol,
                .load = group_load,
                .own = group_own,
                .user = g};
}

/* Whether each block has t in its own memory. */
static bool in_own_memory(const Tensor *t) {
    const Mem *m = mem_of(t);
    return m && m->block == BLOCK_OWN;
}

/* The path of a node, without its type where its name begins with that. */
static const char *call_comment(Emit *em, const char *path) {
    const char *type = path ? strrchr(path, '(') : NULL, *slash = path ? strrchr(path, '/') : NULL;
    const char *name = slash ? slash + 1 : path;
    const size_t n = type ? strcspn(type + 1, ")") : 0;
    if (!type || type <= name + n || strncmp(name, type + 1, n)) return emit_comment(em, path);
    return emit_comment(em, arena_strndup(em->a, path, (size_t)(type - path) - 1));
}

void group_end(Group *g, Fn *kernel, Sb *decl, const char *more, const char *more_args) {
    Emit *em = g->em;
    const Kernel *k = g->k;
    const Stmt *s = k->s;
    /* Parameters are in order of first use, so that equal groups give equal texts. */
    Sb params = {.a = em->a}, args = {.a = em->a}, whole = {.a = em->a};
    put_unit(g, decl, &params, &args, &whole);
    for (int i = 0; i < k->n; i++) {
        if (g->unstored && g->unstored[i]) continue;
        sb_printf(&params, ", %s *BK_RESTRICT o%d", c_store(k->t[i]->dtype), i);
        sb_printf(&args, ", %s", kernel->tensor(kernel, k->t[i]));
    }
    for (int i = 0; i < g->arg_t.n; i++) {
        const GroupArg *x = &g->arg_t.p[i];
        sb_printf(&params, ", const %s *BK_RESTRICT p%d", c_store(x->t->dtype), i);
        sb_printf(&args, ", %s", kernel->tensor(kernel, x->t));
        if (x->first) sb_printf(&args, " + %lld", (long long)x->first);
    }
    for (int i = 0; i < g->arg_s.n; i++) {
        sb_printf(&params, ", %s s%d", c_type(g->arg_s.p[i]->dtype), i);
        sb_printf(&args, ", %s", kernel->symbol(kernel, g->arg_s.p[i]));
    }
    for (int i = 0; i < g->arg_e.n; i++) {
        sb_printf(&params, ", bool c%d", i);
        sb_printf(&args, ", %s", fn_uniform(kernel, g->arg_e.p[i]));
    }
    sb_puts(&params, more);
    sb_puts(&args, more_args);
    if (g->turns) {
        int turn = em->nturn++;
        sb_printf(decl, "    unsigned turn%d = 0;\n", turn);
        sb_puts(&params, ", unsigned turn");
        sb_printf(&args, ", turn%d++", turn);
    }
    if (emit_is_gpu(em) && (s->level == LEVEL_TEAM || !em->p->mem->distributed)) {
        for (int i = 0; i < k->n && !s->each; i++)
            if (!g->unstored || !g->unstored[i]) sb_printf(&whole, "  BK_GLOBAL(o%d);\n", i);
        for (int i = 0; i < g->arg_t.n; i++)
            if (!is_resident(em, g->arg_t.p[i].t) && !in_own_memory(g->arg_t.p[i].t))
                sb_printf(&whole, "  BK_GLOBAL(p%d);\n", i);
    }
    if (g->body.n) sb_puts(&whole, g->body.p);
    const char *stem = k->t[0]->name ? k->t[0]->name : "value";
    const char *body = whole.n ? whole.p : "";
    /* Not inlined into recursive functions: their C stack stays small. */
    const char *qualifier = em->p->nfunc ? em->target->outlined : em->target->function;
    const char *name = k->apart && em->target->apart
                           ? emit_shared(em, true, stem, em->target->apart, params.p, body)
                           : emit_function(em, stem, qualifier, params.p, body);
    if (em->p->schedule->device->backend == BACKEND_EMULATED) /* nobody else is told */
        vec_push(em->a, &em->estimates,
                 ((Estimate){name, g->ns > 0 ? g->ns : estimate_ns(em->p, s)}));
    fn_line(kernel, "%s(%s); /* %s */", name, args.p, call_comment(em, k->t[k->n - 1]->path));
}

void emit_group(Emit *em, Fn *kernel, Sb *decl, Stmt *s, bool block) {
    Cx *c = em->c;
    const Kernel *k = s->op.kernel;
    Tensor *lead = k->t[0];
    Group g = {0};
    group_begin(&g, em, k);
    Map *seen = map_new(em->a);
    for (int i = 0; i < k->n && emit_is_gpu(em) && !em->p->nfunc; i++)
        take_conditions(&g, seen, k->value[i]);
    for (int d = 0; s->op.at && d < lead->rank; d++) { /* stores outside are skipped */
        if (!s->op.at[d]) continue;
        Expr *in = e_and(c, e_le(c, e_int(c, 0), s->op.at[d]), e_lt(c, s->op.at[d], lead->dim[d]));
        if (!e_is_ival(in, 1)) fn_line(&g.f, "if (!%s) return;", fn_temp(&g.f, in));
    }
    ASSERT(em->target->group[k->kind]);
    em->target->group[k->kind](&g);
    if (block && !g.meets) fn_line(kernel, "bk_block();");
    group_end(&g, kernel, decl, s->op.strip ? ", int64_t first, int64_t end" : "",
              s->op.strip ? arena_printf(em->a, ", %s, %s", em->strip_from, em->strip_to) : "");
}
