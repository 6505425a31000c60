/* lanes.c: prints reductions computed for many elements at once (scheduler/kernel/lanes.h). */
#include "codegen/emit/cpu/across.h"
#include "scheduler/kernel/lanes.h"

static const char *accumulator(Group *g, Expr *e) {
    const LanesKernel *k = g->k->by_lanes;
    for (int i = 0; i < k->n; i++)
        if (k->reduce[i] == e)
            return arena_printf(g->em->a, e->kind < R_ARGMAX ? "g%d[l]" : "((int64_t)at%d[l])", i);
    return NULL;
}

/* The place of an extreme: the first (last) NaN beats all numbers. */
static void step_place(Group *g, const LanesKernel *k, int i, const char *x) {
    Fn *f = &g->f;
    const Expr *e = k->reduce[i];
    const bool last = e->kind >= R_ARGMAX_LAST;
    const char *than = e->kind == R_ARGMAX || e->kind == R_ARGMAX_LAST ? ">" : "<";
    const char *nan = "";
    if (dtype_is_float(e->a[0]->dtype))
        nan = last ? " | (x != x)" : arena_printf(f->a, " | ((x != x) & (g%d[l] == g%d[l]))", i, i);
    fn_line(f, "const %s x = %s;", c_type(e->a[0]->dtype), x);
    fn_line(f, "const bool more = (x %s%s g%d[l])%s;", than, last ? "=" : "", i, nan);
    fn_line(f, "g%d[l] = more ? x : g%d[l];", i, i);
    fn_line(f, "at%d[l] = more ? (int32_t)%s : at%d[l];", i, fn_expr(f, e_axis(f->c, e->raxis[0])),
            i);
}

static void step(Group *g, const LanesKernel *k, int i, Expr *body) {
    Fn *f = &g->f;
    fn_hoist(f, body, 1, &k->v);
    fn_line(f, "BK_SIMD");
    const Scope mark = fn_open(f, "for (int64_t l = 0; l < lanes; l++) {");
    fn_line(f, "const int64_t iv = v0 + l;");
    fn_bind(f, e_axis(f->c, k->v), "iv");
    if (k->reduce[i]->kind >= R_ARGMAX)
        step_place(g, k, i, fn_expr(f, body));
    else
        fn_combine(f, k->reduce[i], arena_printf(f->a, "g%d[l]", i), fn_expr(f, body));
    fn_close(f, mark);
}

static void accumulate(Group *g, const LanesKernel *k, int i) {
    Fn *f = &g->f;
    Expr *e = k->reduce[i], *body = e->a[0];
    const Scope out = fn_here(f);
    Expr from = *e;
    if (e->kind >= R_ARGMAX) { /* what any element beats, or is equal to */
        from.kind = e->kind == R_ARGMAX || e->kind == R_ARGMAX_LAST ? R_MAX : R_MIN;
        from.dtype = body->dtype;
        fn_line(f, "int32_t at%d[%d] __attribute__((aligned(64)));", i, k->tile);
        fn_line(f, "for (int64_t l = 0; l < lanes; l++) at%d[l] = 0;", i);
    }
    fn_line(f, "for (int64_t l = 0; l < lanes; l++) g%d[l] = %s;", i, fn_neutral(f, &from));
    for (int d = 0; d < e->naxis; d++) {
        const char *r = arena_printf(f->a, "r%d", f->ntemp++);
        fn_open(f, "for (int64_t %s = 0; %s < %s; %s++) {", r, r, fn_expr(f, e->raxis[d]->extent),
                r);
        fn_bind(f, e_axis(f->c, e->raxis[d]), r);
    }
    if (body->op == E_SELECT) {
        const Scope inner = fn_open(f, "if (%s) {", fn_expr(f, body->a[0]));
        step(g, k, i, body->a[1]);
        fn_else(f, inner, "} else {");
        step(g, k, i, body->a[2]);
        fn_close(f, inner);
    } else
        step(g, k, i, body);
    fn_close(f, out);
}

/* Accumulators, and what they take. */
static void accumulators(Group *g, const LanesKernel *k) {
    for (int i = 0; i < k->n; i++) {
        fn_line(&g->f, "%s g%d[%d] __attribute__((aligned(64)));",
                c_type(k->reduce[i]->a[0]->dtype), i, k->tile);
        accumulate(g, k, i);
    }
    for (int i = 0; i < g->k->n; i++) fn_hoist(&g->f, g->k->value[i], 1, &k->v);
}

/* A few positions along m at a time, in tiles. */
static void by_tiles(Group *g, const LanesKernel *k) {
    Fn *f = &g->f;
    const Across x = {.members = (1u << g->k->n) - 1, .v = k->v, .m = k->m, .vt = k->tile};
    const char *to = group_to(g, k->m);
    const Scope out = fn_open(f, "for (int64_t mb = %s; mb < %s; mb += %d) {", group_from(g, k->m),
                              to, LANES_ROWS);
    fn_line(f, "const int64_t me = bk_mini(mb + %d, %s);", LANES_ROWS, to);
    across_tiles(g, &x, LANES_ROWS);
    const Scope row = fn_open(f, "for (int64_t im = mb; im < me; im++) {");
    fn_bind(f, e_axis(f->c, k->m), "im");
    accumulators(g, k);
    across_members(g, &x, "lanes");
    fn_close(f, row);
    across_store(g, &x);
    fn_close(f, out);
}

void group_lanes(Group *g) {
    Emit *em = g->em;
    Fn *f = &g->f;
    const LanesKernel *k = g->k->by_lanes;
    g->reduce = accumulator;
    group_range(g);
    const Scope out = fn_here(f);
    for (int i = 0; i < g->k->naxis; i++)
        if (g->k->axis[i] != k->v && g->k->axis[i] != k->m)
            group_loop(g, g->k->axis[i], arena_printf(em->a, "i%d", i));
    group_lane_tiles(g, k->v, k->tile);
    if (k->m)
        by_tiles(g, k);
    else {
        accumulators(g, k);
        group_members_by_lane(g, k->v, "0", "lanes", true);
    }
    fn_close(f, out);
}
