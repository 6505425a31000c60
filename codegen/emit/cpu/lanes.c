/* lanes.c: prints reductions computed for many elements at once (scheduler/kernel/lanes.h). */
#include "codegen/emit/emit.h"
#include "scheduler/kernel/lanes.h"

static const char *accumulator(Group *g, Expr *e) {
    const LanesKernel *k = g->k->by_lanes;
    for (int i = 0; i < k->n; i++)
        if (k->reduce[i] == e) return arena_printf(g->em->a, "g%d[l]", i);
    return NULL;
}

static void step(Group *g, const LanesKernel *k, int i, Expr *body) {
    Fn *f = &g->f;
    fn_hoist(f, body, 1, &k->v);
    fn_line(f, "BK_SIMD");
    const Scope mark = fn_open(f, "for (int64_t l = 0; l < lanes; l++) {");
    fn_line(f, "const int64_t iv = v0 + l;");
    fn_bind(f, e_axis(f->c, k->v), "iv");
    fn_combine(f, k->reduce[i], arena_printf(f->a, "g%d[l]", i), fn_expr(f, body));
    fn_close(f, mark);
}

static void accumulate(Group *g, const LanesKernel *k, int i) {
    Fn *f = &g->f;
    Expr *e = k->reduce[i], *body = e->a[0];
    const Scope out = fn_here(f);
    fn_line(f, "for (int64_t l = 0; l < lanes; l++) g%d[l] = %s;", i, fn_neutral(f, e));
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

void group_lanes(Group *g) {
    Emit *em = g->em;
    Fn *f = &g->f;
    const LanesKernel *k = g->k->by_lanes;
    g->reduce = accumulator;
    group_range(g);
    const Scope out = fn_here(f);
    for (int i = 0; i < g->k->naxis - 1; i++)
        group_loop(g, g->k->axis[i], arena_printf(em->a, "i%d", i));
    group_lane_tiles(g, k->v, LANES_TILE);
    for (int i = 0; i < k->n; i++) {
        fn_line(f, "%s g%d[%d] __attribute__((aligned(64)));", c_type(k->reduce[i]->dtype), i,
                LANES_TILE);
        accumulate(g, k, i);
    }
    for (int i = 0; i < g->k->n; i++) fn_hoist(f, g->k->value[i], 1, &k->v);
    group_members_by_lane(g, k->v, "0", "lanes", true);
    fn_close(f, out);
}
