/* across.c: see across.h. */
#include "codegen/emit/cpu/across.h"

void across_tiles(Group *g, const Across *x, int64_t rows) {
    if (x->members) helper_text(g->em, "extern/transpose.inc");
    for (int i = 0; i < g->k->n; i++)
        if (x->members >> i & 1)
            fn_line(&g->f, "%s tile%d[%lld] __attribute__((aligned(64)));",
                    c_store(g->k->t[i]->dtype), i, (long long)(rows * x->vt));
}

void across_members(Group *g, const Across *x, const char *to) {
    Fn *f = &g->f;
    bool simd = true;
    for (int i = 0; i < g->k->n; i++) simd = simd && !fn_guarded(f, g->k->value[i]);
    if (simd) fn_line(f, "BK_SIMD");
    const Scope out = fn_open(f, "for (int64_t l = 0; l < %s; l++) {", to);
    fn_line(f, "const int64_t iv = v0 + l;");
    fn_bind(f, e_axis(f->c, x->v), "iv");
    for (int i = 0; i < g->k->n; i++) {
        const DType type = g->k->t[i]->dtype;
        if (!(x->members >> i & 1)) {
            group_store_member(g, i, g->k->value[i]);
            continue;
        }
        fn_line(f, "const %s m%d = %s;", c_type(type), i, fn_expr(f, g->k->value[i]));
        fn_line(f, "tile%d[(im - mb) * %d + l] = %s;", i, x->vt,
                fn_store(f, type, arena_printf(f->a, "m%d", i)));
    }
    fn_close(f, out);
}

void across_store(Group *g, const Across *x) {
    Fn *f = &g->f;
    const Scope out = fn_here(f);
    fn_bind(f, e_axis(f->c, x->m), "mb");
    fn_bind(f, e_axis(f->c, x->v), "v0");
    for (int i = 0; i < g->k->n; i++) {
        Expr *at = g->k->position[i];
        if (!(x->members >> i & 1)) continue;
        const char *to = fn_expr(f, at), *step = fn_expr(f, e_coef(f->c, at, x->v));
        if (!e_by_one(f->c, at, x->m)) { /* neighbours, with others in between */
            const char *by = fn_expr(f, e_coef(f->c, at, x->m));
            fn_line(f, "for (int64_t l = 0; l < lanes; l++)");
            fn_line(f, "    for (int64_t m = 0; m < me - mb; m++)");
            fn_line(f, "        o%d[(%s) + (%s) * l + (%s) * m] = tile%d[m * %d + l];", i, to, step,
                    by, i, x->vt);
            continue;
        }
        fn_line(f, "bx_transpose_%d(o%d + (%s), %s, tile%d, %d, lanes, me - mb);",
                (int)dtype_size(g->k->t[i]->dtype), i, to, step, i, x->vt);
    }
    fn_close(f, out);
}
