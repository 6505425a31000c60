/* sparse.c: prints sums of products with constants that are mostly zero
 * (scheduler/kernel/sparse.h). */
#include "codegen/emit/emit.h"
#include "scheduler/kernel/sparse.h"

static const char *computed(Group *g, Expr *e) {
    const SparseKernel *k = g->k->sparse;
    for (int i = 0; i < k->n; i++)
        if (k->s[i].reduce == e)
            return k->columns ? arena_printf(g->em->a, "h%d[row * %d + l]", i, g->k->lanes)
                              : arena_printf(g->em->a, "g%d[l]", i);
    return NULL;
}

/* ---- micro-kernels --------------------------------------------------------------------------- */
/* The products of element i + e; their sums in registers of their own. */
static void rows_step(Sb *b, const SparseKernel *k, int e, bool tail) {
    const int vec = k->g->lanes;
    sb_printf(b, "        const float *const p%d = x + at[i + %d];\n", e, e);
    sb_printf(b, "        const float w%d = value[i + %d];\n", e, e);
    for (int v = 0; v < k->nv; v++) {
        sb_printf(b, "        c%d += ", e * k->nv + v);
        if (tail)
            sb_printf(b, "bk_loadn(p%d + %d, lanes - %d) * w%d;\n", e, v * vec, v * vec, e);
        else
            sb_printf(b, "bk_loadv(p%d + %d) * w%d;\n", e, v * vec, e);
    }
}

/* Sums of nv vectors of rows by the elements of one list, several elements at a time where there
 * are few vectors: sums side by side do not wait for each other. `tail`: x ends with the last lane.
 */
static const char *rows_kernel(Group *g, const SparseKernel *k, bool tail) {
    Emit *em = g->em;
    Sb b = {.a = em->a};
    const int vec = g->k->lanes, step = SPARSE_CHAINS > k->nv ? SPARSE_CHAINS / k->nv : 1;
    sb_puts(&b, "    BK_CONTRACT\n    bk_vf");
    for (int v = 0; v < k->nv * step; v++) sb_printf(&b, "%s c%d = {0}", v ? "," : "", v);
    sb_puts(&b, ";\n    int32_t i = from;\n");
    if (step > 1) {
        sb_printf(&b, "    for (; i + %d < to; i += %d) {\n", step - 1, step);
        for (int e = 0; e < step; e++) rows_step(&b, k, e, tail);
        sb_puts(&b, "    }\n");
    }
    sb_puts(&b, "    for (; i < to; i++) {\n");
    rows_step(&b, k, 0, tail);
    sb_puts(&b, "    }\n");
    for (int v = k->nv; v < k->nv * step; v++) sb_printf(&b, "    c%d += c%d;\n", v % k->nv, v);
    for (int v = 0; v < k->nv; v++) sb_printf(&b, "    bk_storev(g + %d, c%d);\n", v * vec, v);
    return emit_shared(em, g->k->apart, "sparse", em->target->kernel,
                       arena_printf(em->a,
                                    "float *restrict g, const float *restrict x, const float "
                                    "*restrict value, const int32_t *restrict at, int32_t from, "
                                    "int32_t to%s",
                                    tail ? ", int64_t lanes" : ""),
                       b.p);
}

/* A vector of columns: chunk by chunk, factors are picked from the two vectors of the block. */
static const char *columns_kernel(Group *g) {
    Emit *em = g->em;
    Sb b = {.a = em->a};
    const int vec = g->k->lanes, chunk = SPARSE_SLOTS * vec;
    sb_puts(&b, "    BK_CONTRACT\n    bk_vf c0 = {0}, c1 = {0}, c2 = {0}, c3 = {0};\n"
                "    for (int32_t i = from; i < to; i++) {\n"
                "        const float *const p = x + block[i];\n");
    sb_printf(&b, "        const bk_vf x0 = bk_loadv(p), x1 = bk_loadv(p + %d);\n", vec);
    sb_printf(&b, "        const float *const w = value + (int64_t)i * %d;\n", chunk);
    sb_printf(&b, "        const bk_vi n = bk_loadi(index + (int64_t)i * %d);\n", vec);
    for (int s = 0; s < SPARSE_SLOTS; s++)
        sb_printf(&b, "        c%d += bk_pick(x0, x1, n >> %d) * bk_loadv(w + %d);\n", s, 8 * s,
                  s * vec);
    sb_puts(&b, "    }\n    bk_storev(g, (c0 + c1) + (c2 + c3));\n");
    return emit_shared(em, g->k->apart, "sparse", em->target->kernel,
                       "float *restrict g, const float *restrict x, const float *restrict value, "
                       "const int32_t *restrict index, const int32_t *restrict block, int32_t "
                       "from, int32_t to",
                       b.p);
}

/* ---- the group's function -------------------------------------------------------------------- */
/* A tile of x, turned: the elements of the sum one after the other, each with its lanes. */
static void copy_tile(Group *g, const SparseKernel *k, const SparseSum *s) {
    Fn *f = &g->f;
    const Expr *sum = s->reduce;
    const Scope out = fn_here(f);
    const char *row = "0";
    fn_count(f, s->x);
    for (int d = 0; d < sum->naxis - (s->turned ? 1 : 0); d++) {
        const char *r = arena_printf(f->a, "r%d", d), *n = fn_expr(f, sum->raxis[d]->extent);
        fn_open(f, "for (int64_t %s = 0; %s < %s; %s++) {", r, r, n, r);
        fn_bind(f, e_axis(f->c, sum->raxis[d]), r);
        row = arena_printf(f->a, "(%s) * %s + %s", row, n, r);
    }
    if (s->turned) {
        Axis *u = sum->raxis[sum->naxis - 1];
        const char *n = fn_expr(f, u->extent);
        fn_bind(f, e_axis(f->c, u), "0");
        fn_bind(f, e_axis(f->c, k->v), "m0");
        const char *from = arena_printf(f->a, "%s + (%s)", f->tensor(f, s->x->t),
                                        fn_expr(f, flat_of(f->c, s->x)));
        fn_line(f, "bx_transpose_4(x%d + (%s) * %s * %d, %d, %s, %s, %s, lanes);", s->copy, row, n,
                k->vt, k->vt, from, fn_expr(f, s->turned), n);
        fn_close(f, out);
        return;
    }
    fn_line(f, "float *const to_row = x%d + (%s) * %d;", s->copy, row, k->vt);
    const Scope in = fn_open(f, "for (int64_t l = 0; l < lanes; l++) {");
    fn_line(f, "const int64_t im = m0 + l;");
    fn_bind(f, e_axis(f->c, k->v), "im");
    const char *value = fn_expr(f, s->x);
    fn_line(f, "to_row[l] = %s;", value);
    fn_close(f, in);
    fn_line(f, "for (int64_t l = lanes; l < %d; l++) to_row[l] = 0;", k->vt);
    fn_close(f, out);
}

static void copies(Group *g, const SparseKernel *k) {
    for (int c = 0; c < k->ncopy; c++) {
        int j = 0;
        while (k->s[j].copy != c) j++;
        int64_t length = axes_size(k->s[j].reduce->naxis, k->s[j].reduce->raxis, 0);
        fn_line(&g->f, "float x%d[%lld] __attribute__((aligned(64)));", c,
                (long long)(length * k->vt));
        copy_tile(g, k, &k->s[j]);
    }
}

static const char *address(Group *g, const SparseSum *s) {
    Fn *f = &g->f;
    if (s->copy >= 0) return arena_printf(f->a, "x%d", s->copy);
    return arena_printf(f->a, "%s + (%s)", f->tensor(f, s->x->t), fn_expr(f, s->base));
}

/* The call of the micro-kernel of sum i. */
static void sum(Group *g, const SparseKernel *k, int i) {
    Fn *f = &g->f;
    const SparseSum *s = &k->s[i];
    const char *start = f->tensor(f, s->start), *value = f->tensor(f, s->value),
               *at = f->tensor(f, s->at), *x = address(g, s), *list = fn_expr(f, s->list),
               *to = k->columns ? arena_printf(f->a, "g%d + l * %d", i, k->vt)
                                : arena_printf(f->a, "g%d", i);
    if (!k->rows) {
        const int64_t per = div_up(axis_size(k->v, 0), g->k->lanes);
        fn_line(f, "const int64_t n%d = (%s) * %lld + m0 / %d;", i, list, (long long)per,
                g->k->lanes);
        fn_line(f, "%s(%s, %s, %s, %s, %s, %s[n%d], %s[n%d + 1]);", columns_kernel(g), to, x, value,
                at, f->tensor(f, s->block), start, i, start, i);
        return;
    }
    fn_line(f, "const int64_t n%d = %s;", i, list);
    const char *args = arena_printf(f->a, "(%s, %s, %s, %s, %s[n%d], %s[n%d + 1]", to, x, value, at,
                                    start, i, start, i);
    if (s->copy >= 0) {
        fn_line(f, "%s%s);", rows_kernel(g, k, false), args);
        return;
    }
    const Scope in = fn_open(f, "if (lanes == %d) {", k->vt);
    fn_line(f, "%s%s);", rows_kernel(g, k, false), args);
    fn_else(f, in, "} else {");
    fn_line(f, "%s%s, lanes);", rows_kernel(g, k, true), args);
    fn_close(f, in);
}

/* A vector's length of lists, and the results of each row. */
static void by_columns(Group *g, const SparseKernel *k) {
    Fn *f = &g->f;
    const char *to = group_to(g, k->columns);
    fn_open(f, "for (int64_t v0 = %s; v0 < %s; v0 += %d) {", group_from(g, k->columns), to,
            g->k->lanes);
    fn_line(f, "const int64_t count = bk_mini(%s - v0, %d);", to, g->k->lanes);
    Scope in = fn_open(f, "for (int64_t l = 0; l < count; l++) {");
    fn_line(f, "const int64_t iv = v0 + l;");
    fn_bind(f, e_axis(f->c, k->columns), "iv");
    fn_bind(f, e_axis(f->c, k->v), "m0");
    for (int i = 0; i < k->n; i++) sum(g, k, i);
    fn_close(f, in);
    for (int i = 0; i < k->n; i++)
        fn_line(f, "bx_transpose_4(h%d, %d, g%d, %d, lanes, count);", i, g->k->lanes, i, k->vt);
    in = fn_open(f, "for (int64_t row = 0; row < lanes; row++) {");
    fn_line(f, "const int64_t im = m0 + row;");
    fn_bind(f, e_axis(f->c, k->v), "im");
    for (int i = 0; i < g->k->n; i++) fn_hoist(f, g->k->value[i], 1, &k->columns);
    group_members_by_lane(g, k->columns, "0", "count", true);
    fn_close(f, in);
}

void group_sparse(Group *g) {
    const SparseKernel *k = g->k->sparse;
    Fn *f = &g->f;
    g->reduce = computed;
    bool turns = k->columns;
    for (int i = 0; i < k->n; i++) turns |= k->s[i].turned != NULL;
    if (turns) helper_text(g->em, "extern/transpose.inc");
    group_range(g);
    const Scope out = fn_here(f);
    for (int i = 0; i < k->nouter; i++) group_loop(g, g->k->axis[i], arena_printf(f->a, "i%d", i));
    const char *to = group_to(g, k->v);
    fn_open(f, "for (int64_t m0 = %s; m0 < %s; m0 += %d) {", group_from(g, k->v), to, k->vt);
    fn_line(f, "const int64_t lanes = bk_mini(%s - m0, %d);", to, k->vt);
    if (k->rows) copies(g, k);
    for (int i = 0; i < k->n; i++)
        for (int h = 0; h < (k->columns ? 2 : 1); h++)
            fn_line(f, "float %s%d[%d] __attribute__((aligned(64)));", h ? "h" : "g", i,
                    k->vt * (k->columns ? g->k->lanes : 1));
    for (int i = k->nouter + 1; i < g->k->naxis; i++)
        if (g->k->axis[i] != k->columns) group_loop(g, g->k->axis[i], arena_printf(f->a, "i%d", i));
    if (k->columns) {
        by_columns(g, k);
        fn_close(f, out);
        return;
    }
    const Scope in = fn_here(f);
    fn_bind(f, e_axis(f->c, k->v), "m0");
    for (int i = 0; i < k->n; i++) sum(g, k, i);
    f->bound.n = in.bound;
    fn_line(f, "const int64_t v0 = m0;");
    for (int i = 0; i < g->k->n; i++) fn_hoist(f, g->k->value[i], 1, &k->v);
    group_members_by_lane(g, k->v, "0", "lanes", true);
    fn_close(f, out);
}
