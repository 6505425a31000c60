/* halves.c: prints groups of float16 tile by tile (scheduler/kernel/halves.h). */
#include "codegen/emit/emit.h"
#include "scheduler/kernel/halves.h"

static const char *in_tile(Group *g, Expr *e) {
    const HalvesKernel *k = g->k->halves;
    for (int i = 0; i < k->nload; i++)
        if (k->load[i] == e) return arena_printf(g->em->a, "h%d[l]", i);
    return NULL;
}

/* A value whose only use is to be stored as float16, which rounds. */
static Expr *unrounded(Cx *c, Expr *e) {
    if (e->op == E_CAST && e->a[0]->dtype == DT_F32) return e->a[0];
    const ExprRow *row = &expr_row[e->op];
    if (!row->operands || row->truth || row->flags & OP_EXACT || e->a[0]->dtype != DT_F16) return e;
    Expr *x = e_cast(c, DT_F32, e->a[0]);
    return e->n == 1 ? e_un(c, e->op, x) : e_bin(c, e->op, x, e_cast(c, DT_F32, e->a[1]));
}

void group_halves(Group *g) {
    Fn *f = &g->f;
    const HalvesKernel *k = g->k->halves;
    g->loaded = in_tile;
    group_range(g);
    const Scope out = fn_here(f);
    for (int i = 0; i < g->k->naxis - 1; i++)
        group_loop(g, g->k->axis[i], arena_printf(f->a, "i%d", i));
    group_lane_tiles(g, k->v, HALVES_TILE);
    Scope here = fn_here(f);
    fn_bind(f, e_axis(f->c, k->v), "v0");
    for (int i = 0; i < k->nload; i++) {
        const char *at = fn_expr(f, k->flat[i]);
        fn_line(f, "float h%d[%d] __attribute__((aligned(64)));", i, HALVES_TILE);
        fn_line(f, "bk_from_halves(h%d, %s + (%s), lanes);", i, f->tensor(f, k->load[i]->t), at);
    }
    for (int i = 0; i < g->k->n; i++)
        if (g->k->t[i]->dtype == DT_F16)
            fn_line(f, "float w%d[%d] __attribute__((aligned(64)));", i, HALVES_TILE);
    fn_close(f, here);
    for (int i = 0; i < g->k->n; i++) fn_hoist(f, g->k->value[i], 1, &k->v);
    fn_line(f, "BK_SIMD");
    const Scope inner = fn_open(f, "for (int64_t l = 0; l < lanes; l++) {");
    fn_line(f, "const int64_t iv = v0 + l;");
    fn_bind(f, e_axis(f->c, k->v), "iv");
    for (int i = 0; i < g->k->n; i++) {
        const DType type = g->k->t[i]->dtype;
        Expr *value = g->k->value[i];
        if (type == DT_F16 && g->k->n == 1) value = unrounded(f->c, value);
        if (type != DT_F16) {
            group_store_at(g, i, value, g->k->position[i]);
            continue;
        }
        const char *v = fn_expr(f, value);
        fn_line(f, "const float m%d = %s;", i, v);
        fn_line(f, "w%d[l] = m%d;", i, i);
    }
    fn_close(f, inner);
    here = fn_here(f);
    fn_bind(f, e_axis(f->c, k->v), "v0");
    for (int i = 0; i < g->k->n; i++)
        if (g->k->t[i]->dtype == DT_F16) {
            const char *at = fn_expr(f, g->k->position[i]);
            fn_line(f, "bk_to_halves(o%d + (%s), w%d, lanes);", i, at, i);
        }
    fn_close(f, here);
    fn_close(f, out);
}
