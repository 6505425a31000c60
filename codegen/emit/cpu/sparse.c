/* sparse.c: prints sums of products with constants that are mostly zero
 * (scheduler/kernel/sparse.h). */
#include "codegen/emit/emit.h"
#include "scheduler/kernel/sparse.h"

static const char *computed(Group *g, Expr *e) {
    const SparseKernel *k = g->k->sparse;
    Arena *a = g->em->a;
    for (int i = 0; i < k->n; i++) {
        if (k->s[i].reduce != e) continue;
        if (k->columns) return arena_printf(a, "h%d[row * %d + l]", i, g->k->lanes);
        return k->u ? arena_printf(a, "sum%d[row * %d + l]", i, k->vt / k->nu)
                    : arena_printf(a, "sum%d[l]", i);
    }
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
    if (k->blocks > 1) {
        sb_puts(&b, "    if (more) {\n");
        for (int v = 0; v < k->nv; v++)
            sb_printf(&b, "        c%d = bk_loadv(g + %d);\n", v, v * vec);
        sb_puts(&b, "    }\n");
    }
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
                                    "int32_t to%s%s",
                                    k->blocks > 1 ? ", bool more" : "",
                                    tail ? ", int64_t lanes" : ""),
                       b.p);
}

/* A vector of columns of so many rows: chunk by chunk, factors are picked from the two vectors of
 * the block. The slots of one row have sums of their own, which so do not wait for each other. */
static const char *columns_kernel(Group *g, int rows) {
    Emit *em = g->em;
    Sb b = {.a = em->a};
    const int vec = g->k->lanes, chunk = SPARSE_SLOTS * vec, sums = rows > 1 ? rows : SPARSE_SLOTS;
    sb_puts(&b, "    BK_CONTRACT\n    bk_vf");
    for (int i = 0; i < sums; i++) sb_printf(&b, "%s c%d = {0}", i ? "," : "", i);
    sb_puts(&b, ";\n    for (int32_t i = from; i < to; i++) {\n"
                "        const float *const p = x + block[i];\n");
    for (int r = 0; r < rows; r++) {
        const char *at = r ? arena_printf(em->a, "p + %d * step", r) : "p";
        sb_printf(&b, "        const bk_vf x%d = bk_loadv(%s), y%d = bk_loadv(%s + %d);\n", r, at,
                  r, at, vec);
    }
    sb_printf(&b, "        const float *const w = value + (int64_t)i * %d;\n", chunk);
    sb_printf(&b, "        const bk_vi n = bk_loadi(index + (int64_t)i * %d);\n", vec);
    for (int s = 0; s < SPARSE_SLOTS; s++) {
        sb_printf(&b, "        const bk_vf w%d = bk_loadv(w + %d);\n", s, s * vec);
        sb_printf(&b, "        const bk_vi n%d = n >> %d;\n", s, 8 * s);
        for (int r = 0; r < rows; r++)
            sb_printf(&b, "        c%d += bk_pick(x%d, y%d, n%d) * w%d;\n", rows > 1 ? r : s, r, r,
                      s, s);
    }
    sb_puts(&b, "    }\n");
    if (rows == 1) sb_puts(&b, "    bk_storev(g, (c0 + c1) + (c2 + c3));\n");
    for (int r = 0; r < rows && rows > 1; r++)
        sb_printf(&b, "    bk_storev(g + %d, c%d);\n", r * vec, r);
    return emit_shared(em, g->k->apart, "sparse", em->target->kernel,
                       arena_printf(em->a,
                                    "float *restrict g, const float *restrict x, const float "
                                    "*restrict value, const int32_t *restrict index, const int32_t "
                                    "*restrict block, int32_t from, int32_t to%s",
                                    rows > 1 ? ", int64_t step" : ""),
                       b.p);
}

/* ---- the group's function -------------------------------------------------------------------- */
/* The first of the sums that read copy c. */
static const SparseSum *copied(const SparseKernel *k, int c) {
    int j = 0;
    while (k->s[j].copy != c) j++;
    return &k->s[j];
}

/* This block's part of x along the sum's first axis, turned in registers. */
static void copy_turned(Group *g, const SparseKernel *k, const SparseSum *s, const char *to) {
    Fn *f = &g->f;
    const Expr *sum = s->reduce;
    Axis *u = sum->raxis[sum->naxis - 1];
    const bool first = sum->naxis == 1;
    const char *n = first ? "steps" : fn_expr(f, u->extent);
    fn_bind(f, e_axis(f->c, u), first ? "q0" : "0");
    fn_bind(f, e_axis(f->c, k->v), "m0");
    const char *from =
        arena_printf(f->a, "%s + (%s)", f->tensor(f, s->x->t), fn_expr(f, flat_of(f->c, s->x)));
    fn_line(f, "float *const columns = x%d + (%s) * %s * %d;", s->copy, to, n, k->vt);
    fn_line(f, "bx_transpose_4(columns, %d, %s, %s, %s, lanes);", k->vt, from,
            fn_expr(f, s->turned), n);
    fn_line(f, "for (int64_t i = 0; i < %s && lanes < %d; i++)", n, k->vt);
    fn_line(f, "    for (int64_t l = lanes; l < %d; l++) columns[i * %d + l] = 0;", k->vt, k->vt);
}

/* A row of the copy's lanes, of which there are `n` in x. */
static void copy_row(Group *g, const SparseKernel *k, const SparseSum *s, const char *n) {
    Fn *f = &g->f;
    const int lanes = k->vt / k->nu;
    if (s->together) {
        fn_bind(f, e_axis(f->c, k->v), "m0");
        fn_line(f, "const float *const from_row = %s + (%s);", f->tensor(f, s->x->t),
                fn_expr(f, flat_of(f->c, s->x)));
        for (int v = 0; v < lanes; v += g->k->lanes)
            fn_line(f, "bk_storev(to_row + %d, bk_loadn(from_row + %d, %s - %d));", v, v, n, v);
        return;
    }
    const Scope in = fn_open(f, "for (int64_t l = 0; l < %s; l++) {", n);
    fn_line(f, "const int64_t im = m0 + l;");
    fn_bind(f, e_axis(f->c, k->v), "im");
    const char *value = fn_expr(f, s->x);
    fn_line(f, "to_row[l] = %s;", value);
    fn_close(f, in);
    fn_line(f, "for (int64_t l = %s; l < %d; l++) to_row[l] = 0;", n, lanes);
}

/* A block of a tile of x: the elements of the sum one after the other, each with its lanes. */
static void copy_tile(Group *g, const SparseKernel *k, const SparseSum *s) {
    Fn *f = &g->f;
    const Expr *sum = s->reduce;
    const Scope out = fn_open(f, "{");
    const char *row = "0";
    fn_count(f, s->x);
    for (int d = 0; d < sum->naxis - (s->turned ? 1 : 0); d++) {
        const char *r = arena_printf(f->a, "r%d", d), *n = fn_expr(f, sum->raxis[d]->extent);
        fn_open(f, "for (int64_t %s = 0; %s < %s; %s++) {", r, r, d ? n : "steps", r);
        fn_bind(f, e_axis(f->c, sum->raxis[d]), d ? r : arena_printf(f->a, "(q0 + %s)", r));
        row = d ? arena_printf(f->a, "(%s) * %s + %s", row, n, r) : r;
    }
    if (s->turned)
        copy_turned(g, k, s, row);
    else if (k->u) {
        fn_open(f, "for (int64_t row = 0; row < %d; row++) {", k->nu);
        fn_line(f, "const int64_t iu = u0 + row, n = row < rows ? lanes : 0;");
        fn_bind(f, e_axis(f->c, k->u), "iu");
        fn_line(f, "float *const to_row = x%d + (%s) * %d + row * %d;", s->copy, row, k->vt,
                k->vt / k->nu);
        copy_row(g, k, s, "n");
    } else {
        fn_line(f, "float *const to_row = x%d + (%s) * %d;", s->copy, row, k->vt);
        copy_row(g, k, s, "lanes");
    }
    fn_close(f, out);
}

/* What tiles of u and v need: copies, and sums; g: one list's, or a vector's length of them; h:
 * these, turned back; kept: all lists'. */
static void declare(Group *g, const SparseKernel *k) {
    Fn *f = &g->f;
    const long long some = k->vt * (k->columns ? g->k->lanes : 1);
    for (int c = 0; c < k->ncopy; c++) {
        const Expr *sum = copied(k, c)->reduce;
        int64_t length = k->blocks > 1 ? k->chunk : axis_size(sum->raxis[0], 0);
        length *= axes_size(sum->naxis - 1, sum->raxis + 1, 0);
        fn_line(f, "float x%d[%lld] __attribute__((aligned(64)));", c, (long long)length * k->vt);
    }
    for (int i = 0; i < k->n; i++) {
        const long long n = k->blocks > 1 ? k->places * k->vt : some;
        fn_line(f, "float g%d[%lld] __attribute__((aligned(64)));", i, n);
        if (k->columns) fn_line(f, "float h%d[%lld] __attribute__((aligned(64)));", i, some);
    }
}

static const char *address(Group *g, const SparseSum *s) {
    Fn *f = &g->f;
    if (s->copy >= 0) return arena_printf(f->a, "x%d", s->copy);
    return arena_printf(f->a, "%s + (%s)", f->tensor(f, s->x->t), fn_expr(f, s->base));
}

/* The calls of the micro-kernels of columns of sum i. */
static void sum_columns(Group *g, const SparseKernel *k, int i, const char *to) {
    Fn *f = &g->f;
    const SparseSum *s = &k->s[i];
    const int vec = g->k->lanes;
    const char *start = f->tensor(f, s->start), *x = address(g, s);
    fn_line(f, "const int64_t n%d = (%s) * %lld + m0 / %d;", i, fn_expr(f, s->list),
            (long long)div_up(axis_size(k->v, 0), vec), vec);
    const char *args =
        arena_printf(f->a, "%s, %s, %s, %s[n%d], %s[n%d + 1]", f->tensor(f, s->value),
                     f->tensor(f, s->at), f->tensor(f, s->block), start, i, start, i);
    const char *one = columns_kernel(g, 1);
    if (!k->u) {
        fn_line(f, "%s(%s, %s, %s);", one, to, x, args);
        return;
    }
    const char *step = fn_expr(f, s->step);
    const Scope in = fn_open(f, "if (rows == %d) {", k->nu);
    fn_line(f, "%s(%s, %s, %s, %s);", columns_kernel(g, k->nu), to, x, args, step);
    fn_else(f, in, "} else {");
    fn_line(f, "for (int64_t row = 0; row < rows; row++)");
    fn_line(f, "    %s(%s + row * %d, %s + row * %s, %s);", one, to, vec, x, step, args);
    fn_close(f, in);
}

/* The call of the micro-kernel of sum i, which goes to `to`. */
static void sum(Group *g, const SparseKernel *k, int i, const char *to) {
    Fn *f = &g->f;
    const SparseSum *s = &k->s[i];
    if (!k->rows) {
        sum_columns(g, k, i, to);
        return;
    }
    const char *start = f->tensor(f, s->start), *value = f->tensor(f, s->value),
               *at = f->tensor(f, s->at), *x = address(g, s), *list = fn_expr(f, s->list);
    if (k->blocks > 1)
        fn_line(f, "const int64_t n%d = block * %lld + %s;", i, (long long)s->lists, list);
    else
        fn_line(f, "const int64_t n%d = %s;", i, list);
    const char *args = arena_printf(f->a, "(%s, %s, %s, %s, %s[n%d], %s[n%d + 1]%s", to, x, value,
                                    at, start, i, start, i, k->blocks > 1 ? ", block > 0" : "");
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

/* The loop over tiles of u. */
static void row_tiles(Group *g, const SparseKernel *k) {
    Fn *f = &g->f;
    const char *to = group_to(g, k->u);
    fn_open(f, "for (int64_t u0 = %s; u0 < %s; u0 += %d) {", group_from(g, k->u), to, k->nu);
    fn_line(f, "const int64_t rows = bk_mini(%s - u0, %d);", to, k->nu);
}

/* Loops over the axes inside v, but `without`. */
static void inner_loops(Group *g, const SparseKernel *k, const Axis *without) {
    for (int i = k->nouter + (k->u ? 2 : 1); i < g->k->naxis; i++)
        if (g->k->axis[i] != without) group_loop(g, g->k->axis[i], arena_printf(g->f.a, "i%d", i));
}

/* The sums of all lists, block by block. */
static void by_blocks(Group *g, const SparseKernel *k) {
    Fn *f = &g->f;
    const Axis *first = k->s[0].reduce->raxis[0];
    const Scope out =
        fn_open(f, "for (int64_t block = 0; block < %lld; block++) {", (long long)k->blocks);
    fn_line(f, "const int64_t q0 = block * %lld, steps = bk_mini(%lld - q0, %lld);",
            (long long)k->chunk, (long long)axis_size(first, 0), (long long)k->chunk);
    for (int c = 0; c < k->ncopy; c++) copy_tile(g, k, copied(k, c));
    inner_loops(g, k, NULL);
    fn_line(f, "const int64_t place = %s;", fn_expr(f, k->place));
    for (int i = 0; i < k->n; i++) sum(g, k, i, arena_printf(f->a, "g%d + place * %d", i, k->vt));
    fn_close(f, out);
}

/* Copies for sums in one block. */
static void copy_whole(Group *g, const SparseKernel *k) {
    Fn *f = &g->f;
    for (int c = 0; c < k->ncopy; c++) {
        const SparseSum *s = copied(k, c);
        const Scope in = fn_open(f, "{");
        fn_line(f, "const int64_t q0 = 0, steps = %s;", fn_expr(f, s->reduce->raxis[0]->extent));
        copy_tile(g, k, s);
        fn_close(f, in);
    }
}

/* A vector's length of lists, and the results of each row. */
static void by_columns(Group *g, const SparseKernel *k) {
    Fn *f = &g->f;
    const int vec = g->k->lanes;
    const char *to = group_to(g, k->columns), *step = arena_printf(f->a, "%d", k->vt);
    const Scope out = fn_open(f, "for (int64_t v0 = %s; v0 < %s; v0 += %d) {",
                              group_from(g, k->columns), to, vec);
    fn_line(f, "const int64_t count = bk_mini(%s - v0, %d);", to, vec);
    fn_bind(f, e_axis(f->c, k->v), "m0");
    Scope in;
    if (k->blocks > 1) {
        in = fn_here(f);
        fn_bind(f, e_axis(f->c, k->columns), "v0");
        fn_line(f, "const int64_t place = %s;", fn_expr(f, k->place));
        step =
            arena_printf(f->a, "(%s) * %d", fn_expr(f, e_coef(f->c, k->place, k->columns)), k->vt);
        f->bound.n = in.bound;
    } else {
        in = fn_open(f, "for (int64_t l = 0; l < count; l++) {");
        fn_line(f, "const int64_t iv = v0 + l;");
        fn_bind(f, e_axis(f->c, k->columns), "iv");
        for (int i = 0; i < k->n; i++) sum(g, k, i, arena_printf(f->a, "g%d + l * %d", i, k->vt));
        fn_close(f, in);
    }
    for (int i = 0; i < k->n; i++)
        fn_line(f, "bx_transpose_4(h%d, %d, g%d%s, %s, lanes, count);", i, vec, i,
                k->blocks > 1 ? arena_printf(f->a, " + place * %d", k->vt) : "", step);
    in = fn_open(f, "for (int64_t row = 0; row < lanes; row++) {");
    fn_line(f, "const int64_t im = m0 + row;");
    fn_bind(f, e_axis(f->c, k->v), "im");
    for (int i = 0; i < g->k->n; i++) fn_hoist(f, g->k->value[i], 1, &k->columns);
    group_members_by_lane(g, k->columns, "0", "count", true);
    fn_close(f, out);
}

/* A list's sums, and its results. */
static void by_lists(Group *g, const SparseKernel *k) {
    Fn *f = &g->f;
    const Scope out = fn_here(f);
    fn_bind(f, e_axis(f->c, k->v), "m0");
    if (k->u) fn_bind(f, e_axis(f->c, k->u), "u0");
    if (k->blocks > 1) fn_line(f, "const int64_t place = %s;", fn_expr(f, k->place));
    for (int i = 0; i < k->n; i++) {
        if (k->blocks == 1) sum(g, k, i, arena_printf(f->a, "g%d", i));
        fn_line(f, "const float *const sum%d = g%d%s;", i, i,
                k->blocks > 1 ? arena_printf(f->a, " + place * %d", k->vt) : "");
    }
    f->bound.n = out.bound;
    fn_line(f, "const int64_t v0 = m0;");
    if (k->u) {
        fn_open(f, "for (int64_t row = 0; row < rows; row++) {");
        fn_line(f, "const int64_t iu = u0 + row;");
        fn_bind(f, e_axis(f->c, k->u), "iu");
    }
    for (int i = 0; i < g->k->n; i++) fn_hoist(f, g->k->value[i], 1, &k->v);
    group_members_by_lane(g, k->v, "0", "lanes", true);
    if (k->u) fn_close(f, out);
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
    if (k->u && k->rows) row_tiles(g, k);
    const int lanes = k->u ? k->vt / k->nu : k->vt;
    fn_open(f, "for (int64_t m0 = %s; m0 < %s; m0 += %d) {", group_from(g, k->v), to, lanes);
    fn_line(f, "const int64_t lanes = bk_mini(%s - m0, %d);", to, lanes);
    declare(g, k);
    if (k->rows && k->blocks > 1)
        by_blocks(g, k);
    else if (k->rows)
        copy_whole(g, k);
    inner_loops(g, k, k->columns);
    if (k->u && !k->rows) row_tiles(g, k);
    if (k->columns)
        by_columns(g, k);
    else
        by_lists(g, k);
    fn_close(f, out);
}
