/* contraction.c: prints the group's function of a contraction (scheduler/kernel/contraction.h),
 * which calls the micro-kernels. */
#include "codegen/emit/cpu/contraction.h"
#include "codegen/emit/cpu/across.h"

static const char *scratch(Group *g, Expr *e) {
    const Contraction *k = g->k->contraction;
    for (int j = 0; j < k->n; j++)
        if (k->p[j].sum.reduce == e)
            return arena_printf(g->em->a, "g%d[row * %d + l]", k->p[j].slot, k->vt);
    return NULL;
}

/* ---- loops ----------------------------------------------------------------------------------- */
static void bind_outer(Group *g, const Contraction *k, bool open) {
    for (int i = 0; i < g->k->naxis; i++) {
        Axis *x = g->k->axis[i];
        if (x == k->v || x == k->m) continue;
        const char *name = arena_printf(g->em->a, "i%d", i);
        if (open)
            group_loop(g, x, name);
        else
            fn_bind(&g->f, e_axis(g->em->c, x), name);
    }
}

/* Opens the loop over blocks of rows, whose operands stay in the cache for all tiles. */
static void open_blocks(Group *g, const Contraction *k) {
    Fn *f = &g->f;
    fn_open(f, "for (int64_t first = %s; first < %s; first += %d) {", group_from(g, k->m),
            group_to(g, k->m), k->job);
    fn_line(f, "const int64_t end = bk_mini(first + %d, %s);", k->job, group_to(g, k->m));
}

/* Addresses of the job's rows of operand n as "an". */
static void find_rows(Group *g, const Contraction *k, int n) {
    const Built *o = &k->operand[n];
    Fn *f = &g->f;
    Expr *zero[MAX_RANK * 2];
    for (int i = 0; i < o->nraxis; i++) zero[i] = e_int(f->c, 0);
    Expr *first = e_subst(f->c, flat_of(f->c, o->value), o->nraxis, o->raxis, zero, NULL, NULL);
    fn_count(f, first);
    fn_line(f, "const float *a%d[%d];", n, k->job);
    const Scope out = fn_open(f, "for (int64_t row = first; row < end; row++) {");
    fn_bind(f, e_axis(f->c, k->m), "row");
    const char *at = fn_expr(f, first);
    fn_line(f, "a%d[row - first] = %s + (%s);", n, f->tensor(f, o->value->t), at);
    fn_close(f, out);
}

/* Computes the job's rows of operand n into "an". */
static void build_operand(Group *g, const Contraction *k, int n) {
    const Built *o = &k->operand[n];
    Fn *f = &g->f;
    const Scope out = fn_here(f);
    const char *at = "";
    fn_count(f, o->value);
    fn_line(f, "float a%d[%lld] __attribute__((aligned(64)));", n,
            (long long)(o->length * (o->rows ? k->job : 1)));
    if (o->rows) {
        fn_open(f, "for (int64_t row = first; row < end; row++) {");
        fn_bind(f, e_axis(f->c, k->m), "row");
        at = arena_printf(f->a, "(row - first) * %lld + ", (long long)o->length);
    }
    for (int i = 0; i < o->nraxis; i++) {
        const char *x = arena_printf(f->a, "x%d", i);
        if (!e_uses_axis(o->at, o->raxis[i])) continue;
        fn_hoist(f, o->value, o->nraxis - i, o->raxis + i);
        if (i == o->nraxis - 1 && !fn_guarded(f, o->value)) fn_line(f, "BK_SIMD");
        fn_open(f, "for (int64_t %s = 0; %s < %s; %s++) {", x, x, fn_expr(f, o->raxis[i]->extent),
                x);
        fn_bind(f, e_axis(f->c, o->raxis[i]), x);
    }
    const char *value = fn_expr(f, o->value);
    fn_line(f, "a%d[%s%s] = %s;", n, at, fn_expr(f, o->at), value);
    fn_close(f, out);
}

/* Opens the loop over tiles of this unit's range of lanes. Returns the condition for going
 * backwards, or NULL. */
static const char *open_tiles(Group *g, const Contraction *k) {
    Fn *f = &g->f;
    bool split = k->v == g->k->split;
    const char *from = group_from(g, k->v), *to = group_to(g, k->v);
    const char *block = arena_printf(f->a, "first / %d", k->job), *back = NULL;
    if (k->turn_calls)
        back = k->turn_blocks ? arena_printf(f->a, "(turn + %s) & 1", block) : "turn & 1";
    else if (k->turn_blocks)
        back = arena_printf(f->a, "%s & 1", block);
    g->turns = k->turn_calls;
    fn_line(f, "const int64_t tile0 = %s / %d, tile1 = (%s%s%s + %d) / %d;", k->own ? "0" : from,
            k->vt, to, k->own ? " - " : "", k->own ? from : "", k->vt - 1, k->vt);
    fn_open(f, "for (int64_t step = tile0; step < tile1; step++) {");
    if (back)
        fn_line(f, "const int64_t tile = (%s) ? tile0 + tile1 - 1 - step : step;", back);
    else
        fn_line(f, "const int64_t tile = step;");
    const char *begin = k->own ? "from + " : "";
    if (k->whole) { /* the compiler knows the number of lanes */
        fn_line(f, "const int64_t v0 = %stile * %d, hi = %d;", begin, k->vt, k->vt);
        if (split) fn_line(f, "const int64_t lo = 0;");
        return back;
    }
    fn_line(f, "const int64_t v0 = %stile * %d, hi = bk_mini(%s - v0, %d);", begin, k->vt, to,
            k->vt);
    if (split) fn_line(f, "const int64_t lo = bk_maxi(from - v0, 0);");
    return back;
}

/* Divides the rows that are left into as few blocks as possible, of nearly equal heights. */
static void row_block(Fn *f, const Contraction *k) {
    if (k->nheight == 1) {
        fn_line(f, "rows = %d;", k->mr);
        return;
    }
    fn_line(f, "const int64_t left = end - m0, blocks = (left + %d) / %d;", k->mr - 1, k->mr);
    fn_line(f, "rows = (left + blocks - 1) / blocks;");
}

/* ---- panels and prefetching (past the end it is harmless) ------------------------------------ */
/* Pointers to the tile's part of each panel, and to the next tile's part, which is prefetched. */
static void panel_pointers(Group *g, const Contraction *k, const char *back) {
    Fn *f = &g->f;
    for (int i = 0; i < k->npanel; i++) {
        const Panel *q = &k->panel[i];
        const char *weights = group_packed(g, q->packed);
        fn_line(f, "const %s *const w%d = %s + (%s) * %lld + tile * %lld;",
                c_store(q->packed->dtype), i, weights, fn_expr(f, q->at), (long long)q->stride,
                (long long)q->tile);
        if (!q->scales) continue;
        fn_line(f, "const float *const q%d = %s + ((%s) * %lld + tile) * %lld;", i,
                group_packed(g, q->scales), fn_expr(f, q->at), (long long)(q->stride / q->tile),
                (long long)q->scale_tile);
    }
    for (int i = 0; i < k->npanel; i++) {
        long long tile = k->panel[i].tile;
        const char *type = c_store(k->panel[i].packed->dtype);
        if (!k->panel[i].lines) continue;
        if (back)
            fn_line(f, "const %s *next%d = w%d + ((%s) ? -%lldLL : %lldLL);", type, i, i, back,
                    tile, tile);
        else
            fn_line(f, "const %s *next%d = w%d + %lld;", type, i, i, tile);
        fn_line(f, "const %s *const last%d = next%d + %lld;", type, i, i, tile);
    }
}

/* Prefetches what the epilogue of a block of rows will read. */
static void fetch_operands(Group *g, const Contraction *k) {
    Fn *f = &g->f;
    Cx *c = g->em->c;
    if (!k->nfar) return;
    /* Not worth it for a single row. */
    const Scope mark = fn_open(f, "for (int64_t row = 0; rows > 1 && row < rows; row++) {");
    fn_line(f, "const int64_t im = m0 + row;");
    fn_bind(f, e_axis(c, k->m), "im");
    for (int i = 0; i < k->nfar; i++) {
        const Expr *e = k->far[i];
        const char *base = f->tensor(f, e->t), *at = fn_expr(f, flat_of(c, e));
        int64_t size = (int64_t)dtype_size(e->dtype);
        for (int64_t l = 0; l < k->vt; l += CACHE_LINE / size)
            fn_line(f, "__builtin_prefetch(%s + (%s) + %lld);", base, at, (long long)l);
    }
    fn_close(f, mark);
}

static void fetch_begin(Group *g, const Contraction *k) {
    Fn *f = &g->f;
    fetch_operands(g, k);
    const char *few = k->few ? arena_printf(f->a, " && end - first > %d", k->few) : "";
    for (int i = 0; i < k->npanel; i++)
        if (k->panel[i].lines)
            fn_line(f, "const int64_t by%d = next%d < last%d%s ? %d : 0;", i, i, i, few,
                    CACHE_LINE / (int)dtype_size(k->panel[i].packed->dtype));
}

static void fetch_end(Group *g, const Contraction *k) {
    for (int i = 0; i < k->npanel; i++) {
        const Panel *q = &k->panel[i];
        if (q->lines)
            fn_line(&g->f, "next%d += by%d * %lld;", i, i,
                    (long long)(q->lines * q->tile / (q->n * k->vt)));
    }
}

/* ---- a block of rows ------------------------------------------------------------------------- */
static void call_sets(Group *g, const Contraction *k, int rows) {
    Fn *f = &g->f;
    for (int s = 0; s < k->nset; s++) {
        if (k->dot[s]) continue;
        if (!k->tails) {
            call_micro(g, k, s, rows, false);
            continue;
        }
        const Scope mark = fn_open(f, "if (lanes == %d) {", k->vt);
        call_micro(g, k, s, rows, false);
        fn_else(f, mark, "} else {");
        call_micro(g, k, s, rows, true);
        fn_close(f, mark);
    }
}

static void sums(Group *g, const Contraction *k) {
    Fn *f = &g->f;
    const Scope in = fn_here(f);
    for (int i = 0; i < k->nheight; i++) {
        int rows = k->height[i];
        if (k->nheight > 1) {
            if (i == 0)
                fn_open(f, "if (rows >= %d) {", rows);
            else if (i < k->nheight - 1)
                fn_else(f, in, "} else if (rows >= %d) {", rows);
            else
                fn_else(f, in, "} else {");
            fn_line(f, "rows = %d;", rows);
        }
        call_sets(g, k, rows);
    }
    fn_close(f, in);
    for (int s = 0; s < k->nset; s++)
        if (k->dot[s]) call_dot(g, k, s);
}

static void epilogue(Group *g, const Contraction *k) {
    Fn *f = &g->f;
    const Across x = {.members = k->across, .v = k->v, .m = k->m, .vt = k->vt};
    if (k->across) {
        fn_line(f, "const int64_t mb = m0, me = m0 + rows;");
        if (!k->tails) fn_line(f, "const int64_t lanes = hi;");
        across_tiles(g, &x, k->mr);
    }
    const Scope mark = fn_open(f, "for (int64_t row = 0; row < rows; row++) {");
    if (k->m) {
        fn_line(f, "const int64_t im = m0 + row;");
        fn_bind(f, e_axis(g->em->c, k->m), "im");
    }
    for (int i = 0; i < g->k->n; i++) fn_hoist(f, g->k->value[i], 1, &k->v);
    /* Other reductions need loops of their own inside the lane loop. */
    if (k->across)
        across_members(g, &x, "hi");
    else
        group_members_by_lane(g, k->v, k->v == g->k->split ? "lo" : "0", "hi", !k->others);
    fn_close(f, mark);
    if (k->across) across_store(g, &x);
}

void group_contraction(Group *g) {
    const Contraction *k = g->k->contraction;
    Cx *c = g->em->c;
    Fn *f = &g->f;
    g->reduce = scratch;
    group_range(g);
    const Scope out = fn_here(f);
    bind_outer(g, k, true);
    if (k->m) open_blocks(g, k);
    for (int i = 0; i < k->noperand; i++)
        (k->operand[i].in_place ? find_rows : build_operand)(g, k, i);
    const char *back = open_tiles(g, k);
    if (k->tails)
        fn_line(f, "const int64_t lanes = bk_mini(%s - v0, %d);",
                k->own ? "to" : fn_expr(f, k->v->extent), k->vt);
    panel_pointers(g, k, back);
    for (int j = 0; j < k->n; j++)
        fn_line(f, "float g%d[%d] __attribute__((aligned(64)));", k->p[j].slot, k->mr * k->vt);
    if (k->m) {
        fn_open(f, "for (int64_t m0 = first, rows; m0 < end; m0 += rows) {");
        fn_bind(f, e_axis(c, k->m), "m0");
        row_block(f, k);
    } else
        fn_line(f, "const int64_t rows = 1;");
    fn_bind(f, e_axis(c, k->v), "v0");
    fetch_begin(g, k);
    sums(g, k);
    fetch_end(g, k);
    f->bound.n = out.bound;
    bind_outer(g, k, false);
    epilogue(g, k);
    fn_close(f, out);
}
