/* transpose.c: prints groups that read across (scheduler/kernel/transpose.h). */
#include "codegen/emit/emit.h"
#include "scheduler/kernel/transpose.h"

static const char *in_tile(Group *g, Expr *e) {
    const TransposeKernel *k = g->k->transpose;
    for (int i = 0; i < k->nload && !k->copy; i++)
        if (k->load[i] == e)
            return arena_printf(g->em->a, "b%d[(iu - u0) * %d + l]", i, TRANSPOSE_V);
    return NULL;
}

/* Moves nu x nv elements of what is loaded, from where u and v are `u` and `v`, to `to`. */
static void move(Group *g, const TransposeKernel *k, int i, const char *u, const char *v,
                 const char *to, const char *step, const char *nu, const char *nv) {
    Fn *f = &g->f;
    const Scope here = fn_here(f);
    Tensor *t = k->load[i]->t;
    fn_bind(f, e_axis(f->c, k->u), u);
    fn_bind(f, e_axis(f->c, k->v), v);
    const char *at = fn_expr(f, k->flat[i]);
    fn_line(f, "bx_transpose_%d(%s, %s, %s + (%s), %s, %s, %s);", (int)dtype_size(t->dtype), to,
            step, f->tensor(f, t), at, fn_expr(f, e_coef(f->c, k->flat[i], k->v)), nu, nv);
    fn_close(f, here);
}

static void whole(Group *g, const TransposeKernel *k) {
    Fn *f = &g->f;
    const char *u = group_from(g, k->u), *v = group_from(g, k->v);
    const Scope here = fn_here(f);
    fn_bind(f, e_axis(f->c, k->u), u);
    fn_bind(f, e_axis(f->c, k->v), v);
    const char *to = arena_printf(f->a, "o0 + (%s)", fn_expr(f, g->k->position[0]));
    fn_close(f, here);
    move(g, k, 0, u, v, to, fn_expr(f, e_coef(f->c, g->k->position[0], k->u)),
         arena_printf(f->a, "%s - %s", group_to(g, k->u), u),
         arena_printf(f->a, "%s - %s", group_to(g, k->v), v));
}

static void by_tiles(Group *g, const TransposeKernel *k) {
    Fn *f = &g->f;
    const char *to = group_to(g, k->u);
    group_lane_tiles(g, k->v, TRANSPOSE_V);
    fn_open(f, "for (int64_t u0 = %s; u0 < %s; u0 += %d) {", group_from(g, k->u), to, TRANSPOSE_U);
    fn_line(f, "const int64_t u1 = bk_mini(u0 + %d, %s);", TRANSPOSE_U, to);
    for (int i = 0; i < k->nload; i++) {
        const char *tile = arena_printf(f->a, "b%d", i);
        fn_line(f, "%s %s[%d] __attribute__((aligned(64)));", c_store(k->load[i]->t->dtype), tile,
                TRANSPOSE_U * TRANSPOSE_V);
        move(g, k, i, "u0", "v0", tile, arena_printf(f->a, "%d", TRANSPOSE_V), "u1 - u0", "lanes");
    }
    fn_open(f, "for (int64_t iu = u0; iu < u1; iu++) {");
    fn_bind(f, e_axis(f->c, k->u), "iu");
    for (int i = 0; i < g->k->n; i++) fn_hoist(f, g->k->value[i], 1, &k->v);
    group_members_by_lane(g, k->v, "0", "lanes", true);
}

void group_transpose(Group *g) {
    const TransposeKernel *k = g->k->transpose;
    helper_text(g->em, "extern/transpose.inc");
    g->loaded = in_tile;
    group_range(g);
    const Scope out = fn_here(&g->f);
    for (int i = 0; i < g->k->naxis - 1; i++)
        if (g->k->axis[i] != k->u) group_loop(g, g->k->axis[i], arena_printf(g->em->a, "i%d", i));
    (k->copy ? whole : by_tiles)(g, k);
    fn_close(&g->f, out);
}
