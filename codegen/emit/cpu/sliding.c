/* sliding.c: prints reductions over windows (scheduler/kernel/sliding.h). */
#include "codegen/emit/emit.h"
#include "scheduler/kernel/sliding.h"

static const char *joined(Group *g, Expr *e) { return e == g->k->sliding->reduce ? "g0[l]" : NULL; }

/* Puts the rows of the windows from v0 on that are there into at[]. */
static void list_rows(Group *g, const SlidingKernel *k) {
    Fn *f = &g->f;
    const Expr *e = k->reduce;
    fn_line(f, "int64_t at[%lld], rows = 0;", (long long)k->rows);
    const Scope out = fn_here(f);
    for (int d = 0; d < e->naxis; d++) {
        if (e->raxis[d] == k->along) continue;
        const char *r = arena_printf(f->a, "r%d", f->ntemp++);
        fn_open(f, "for (int64_t %s = 0; %s < %s; %s++) {", r, r, fn_expr(f, e->raxis[d]->extent),
                r);
        fn_bind(f, e_axis(f->c, e->raxis[d]), r);
    }
    fn_bind(f, e_axis(f->c, k->v), "v0");
    if (e_is_ival(k->inside, 1))
        fn_line(f, "at[rows++] = %s;", fn_expr(f, k->at));
    else
        fn_line(f, "if (%s) at[rows++] = %s;", fn_expr(f, k->inside), fn_expr(f, k->at));
    f->bound.n = out.bound;
    fn_close(f, out);
}

/* Fills the line of the windows from v0 on. */
static void rows_call(Group *g, const SlidingKernel *k, const char *stem) {
    Fn *f = &g->f;
    const long long stride = (long long)k->stride;
    list_rows(g, k);
    fn_line(f, "int64_t low = 0, high = INT64_MAX;");
    for (int i = 0; i < k->nlow; i++)
        fn_line(f, "low = bk_maxi(low, %s - v0 * %lld);", fn_expr(f, k->low[i]), stride);
    for (int i = 0; i < k->nhigh; i++)
        fn_line(f, "high = bk_mini(high, %s - v0 * %lld);", fn_expr(f, k->high[i]), stride);
    fn_line(f, "%s_rows(line[iu - u0], %s, at, rows, low, high, %s, (lanes - 1) * %lld + %lld);",
            stem, f->tensor(f, k->of), fn_neutral(f, k->reduce), stride,
            (long long)((k->taps - 1) * k->apart + 1));
}

static void columns_call(Group *g, const SlidingKernel *k, const char *stem) {
    Fn *f = &g->f;
    fn_line(f, "%s g0[%lld] __attribute__((aligned(64)));", c_store(k->reduce->dtype),
            (long long)(k->tile + g->k->lanes));
    fn_line(f, "%s_columns(g0, line[iu - u0], lanes, %lld, %lld, %lld);", stem,
            (long long)k->stride, (long long)k->taps, (long long)k->apart);
    for (int i = 0; i < g->k->n; i++) fn_hoist(f, g->k->value[i], 1, &k->v);
    group_members_by_lane(g, k->v, "0", "lanes", true);
}

void group_sliding(Group *g) {
    Emit *em = g->em;
    Fn *f = &g->f;
    const SlidingKernel *k = g->k->sliding;
    const char *type = c_store(k->reduce->dtype);
    const char *how = k->reduce->kind == R_SUM ? "sum" : k->reduce->kind == R_MAX ? "max" : "min";
    const char *stem = arena_printf(em->a, "bx_sliding_%s_%s", how, type);
    helper_text(em, "extern/sliding.inc");
    g->reduce = joined;
    group_range(g);
    const Scope out = fn_here(f);
    for (int i = 0; i < g->k->naxis - 1 - (k->u != NULL); i++)
        group_loop(g, g->k->axis[i], arena_printf(em->a, "i%d", i));
    group_lane_tiles(g, k->v, (int)k->tile);
    const char *last = k->u ? group_to(g, k->u) : "1";
    fn_open(f, "for (int64_t u0 = %s; u0 < %s; u0 += %lld) {", k->u ? group_from(g, k->u) : "0",
            last, (long long)k->lines);
    fn_line(f, "const int64_t u1 = bk_mini(%s, u0 + %lld);", last, (long long)k->lines);
    fn_line(f, "%s line[%lld][%lld] __attribute__((aligned(64)));", type, (long long)k->lines,
            (long long)round_up(k->line, 64));
    for (int i = 0; i < 2; i++) {
        const Scope lines = fn_open(f, "for (int64_t iu = u0; iu < u1; iu++) {");
        if (k->u) fn_bind(f, e_axis(f->c, k->u), "iu");
        (i ? columns_call : rows_call)(g, k, stem);
        fn_close(f, lines);
    }
    fn_close(f, out);
}
