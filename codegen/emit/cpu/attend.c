/* attend.c: prints softmax-weighted sums in one pass over blocks of keys
 * (scheduler/kernel/attend.h). */
#include "codegen/emit/emit.h"
#include "scheduler/kernel/attend.h"

/* What the function has computed: a row's sum of weights; the weighted values. */
static const char *computed(Group *g, Expr *e) {
    const SoftmaxSum *a = &g->k->attention->sum;
    if (e == a->sum) return "total[row]";
    return e == a->reduce ? "out[iv]" : NULL;
}

/* ---- micro-kernels --------------------------------------------------------------------------- */
/* Emits rows x nv vectors of sums, y[row] (+)= Σ_r a[row * am + r * ar] · b[r * br]; returns its
 * name. */
static const char *micro(Group *g, int rows, int nv) {
    Emit *em = g->em;
    Sb b = {.a = em->a};
    const int vec = g->k->lanes;
    sb_puts(&b, "    BK_CONTRACT\n");
    for (int m = 0; m < rows; m++) {
        sb_puts(&b, "    bk_vf");
        for (int v = 0; v < nv; v++) sb_printf(&b, "%s c%d_%d = {0}", v ? "," : "", m, v);
        sb_puts(&b, ";\n");
    }
    sb_puts(&b, "    if (more) {\n");
    for (int m = 0; m < rows; m++)
        for (int v = 0; v < nv; v++)
            sb_printf(&b, "        c%d_%d = bk_loadv(y + %d * pitch + %d);\n", m, v, m, v * vec);
    sb_puts(&b, "    }\n    for (int64_t r = 0; r < n; r++) {\n");
    for (int v = 0; v < nv; v++)
        sb_printf(&b, "        const bk_vf b%d = bk_loadv(b + %d);\n", v, v * vec);
    sb_puts(&b, "        b += br;\n");
    for (int m = 0; m < rows; m++) {
        sb_printf(&b, "        const float a%d = a[%d * am];\n", m, m);
        for (int v = 0; v < nv; v++) sb_printf(&b, "        c%d_%d += b%d * a%d;\n", m, v, v, m);
    }
    sb_puts(&b, "        a += ar;\n    }\n");
    for (int m = 0; m < rows; m++)
        for (int v = 0; v < nv; v++)
            sb_printf(&b, "    bk_storev(y + %d * pitch + %d, c%d_%d);\n", m, v * vec, m, v);
    return emit_shared(em, g->k->apart, "attend", em->target->kernel,
                       "float *restrict y, int64_t pitch, bool more, const float *restrict a, "
                       "int64_t am, int64_t ar, const float *restrict b, int64_t br, int64_t n",
                       b.p);
}

/* A product of so many rows by `width` lanes, printed as calls of micro-kernels. */
typedef struct Multiply {
    const char *y, *pitch, *more, *a, *am, *ar, *b, *br, *n; /* of micro() */
    const char *rows;
    int64_t known; /* the number of rows; -1: it is not */
} Multiply;

static void multiply_rows(Group *g, const Multiply *p, int nv, const char *v) {
    Fn *f = &g->f;
    const int top = nv > ATTENTION_WIDTH ? 1 : ATTENTION_HEIGHT;
    const Scope out = fn_open(f, "{");
    fn_line(f, "int64_t m = 0;");
    for (int h = top; h >= 1; h /= 2) {
        if (p->known >= 0 && !(h == top ? p->known >= h : p->known & h)) continue;
        const char *name = micro(g, h, nv);
        fn_line(f, "%s (; m + %d <= %s; m += %d)", "for", h, p->rows, h);
        fn_line(f, "    %s(%s + m * %s + %s, %s, %s, %s + m * %s, %s, %s, %s + %s, %s, %s);", name,
                p->y, p->pitch, v, p->pitch, p->more, p->a, p->am, p->am, p->ar, p->b, v, p->br,
                p->n);
    }
    fn_close(f, out);
}

/* Over `width` lanes, whole vectors; wide: 4 vectors at a time where there are so many. */
static void multiply(Group *g, const Multiply *p, int64_t width, bool wide) {
    Fn *f = &g->f;
    const int vec = g->k->lanes;
    int64_t from = 0;
    for (int nv = wide ? 2 * ATTENTION_WIDTH : ATTENTION_WIDTH; nv >= 1; nv /= 2) {
        const int64_t to = width - (width - from) % (nv * vec);
        if (to == from) continue;
        const Scope out = fn_open(f, "for (int64_t v = %lld; v < %lld; v += %d) {", (long long)from,
                                  (long long)to, nv * vec);
        multiply_rows(g, p, nv, "v");
        fn_close(f, out);
        from = to;
    }
}

/* ---- factors --------------------------------------------------------------------------------- */
static const char *number(Group *g, int64_t n) {
    return arena_printf(g->em->a, "%lld", (long long)n);
}

/* Factor t over the keys from j0 on: its address, and the distance from key to key. A factor that
 * is not read in place is computed first, as `name`[block][pitch]. */
static void factor(Group *g, const AttentionFactor *t, Axis *own, int64_t size, int64_t pitch,
                   const char *name) {
    const AttentionKernel *k = g->k->attention;
    Fn *f = &g->f;
    Axis *axis[2] = {k->sum.key, own};
    if (t->flat) {
        Expr *zero[2] = {e_int(f->c, 0), e_int(f->c, 0)};
        Expr *at = e_subst(f->c, t->flat, 2, axis, zero, NULL, NULL);
        fn_count(f, at);
        const char *text = fn_expr(f, at), *by = fn_expr(f, t->by_key);
        fn_line(f, "const float *const %s = %s + (%s) + j0 * (%s);", name, f->tensor(f, t->e->t),
                text, by);
        return;
    }
    fn_line(f, "float %s[%lld] __attribute__((aligned(64)));", name, (long long)(k->block * pitch));
    const Scope out = fn_open(f, "for (int64_t j = 0; j < keys; j++) {");
    fn_line(f, "const int64_t ij = j0 + j;");
    fn_bind(f, e_axis(f->c, k->sum.key), "ij");
    fn_count(f, t->e);
    fn_hoist(f, t->e, 1, &own);
    if (!fn_guarded(f, t->e)) fn_line(f, "BK_SIMD");
    const Scope lanes = fn_open(f, "for (int64_t c = 0; c < %lld; c++) {", (long long)size);
    fn_bind(f, e_axis(f->c, own), "c");
    const char *value = fn_expr(f, t->e);
    fn_line(f, "%s[j * %lld + c] = %s;", name, (long long)pitch, value);
    fn_close(f, lanes);
    if (pitch > size)
        fn_line(f, "for (int64_t c = %lld; c < %lld; c++) %s[j * %lld + c] = 0;", (long long)size,
                (long long)pitch, name, (long long)pitch);
    fn_close(f, out);
}

static const char *by_key(Group *g, const AttentionFactor *t, int64_t pitch) {
    return t->flat ? fn_expr(&g->f, t->by_key) : number(g, pitch);
}
static const char *by_own(Group *g, const AttentionFactor *t) {
    return t->flat ? fn_expr(&g->f, t->by_own) : "1";
}

/* Opens the loop over blocks of keys, and finds the block's keys and values. `last`: the last of
 * the rows; `rows`: how many there are. */
static void open_keys(Group *g, const char *last, const char *rows) {
    const AttentionKernel *k = g->k->attention;
    Fn *f = &g->f;
    const char *all = fn_expr(f, k->sum.key->extent);
    if (k->nend) {
        const int bound = f->bound.n;
        fn_line(f, "int64_t end = %s;", all);
        if (k->m) fn_bind(f, e_axis(f->c, k->m), last);
        for (int i = 0; i < k->nend; i++) {
            fn_count(f, k->end[i]);
            const char *end = fn_expr(f, k->end[i]);
            fn_line(f, "end = bk_mini(end, bk_maxi(%s, 1));", end);
        }
        f->bound.n = bound;
    }
    fn_open(f, "for (int64_t j0 = 0; j0 < %s; j0 += %d) {", all, k->block);
    if (k->nend)
        fn_line(f, "if (j0 >= end && bx_settled(top, %s, %s)) break;", rows,
                fn_expr(f, e_num(f->c, DT_F32, k->excluded)));
    fn_line(f, "const int64_t keys = bk_mini(%s - j0, %d);", all, k->block);
    factor(g, &k->keys, k->along, k->size, k->size, "kk");
    factor(g, &k->values, k->v, k->width, k->padded, "vv");
}

static int64_t known_keys(const AttentionKernel *k) {
    const int64_t n = axis_size(k->sum.key, -1);
    /* Which remainders there are: of whole blocks none. */
    return n < 0 ? -1 : n < k->block ? n : n % k->block | k->block;
}

/* ---- a tile of rows -------------------------------------------------------------------------- */
/* The tile's queries, turned, as q[c][row]; zeros for rows that are none. */
static void turn_queries(Group *g) {
    const AttentionKernel *k = g->k->attention;
    Fn *f = &g->f;
    fn_line(f, "float q[%lld] __attribute__((aligned(64)));", (long long)(k->size * k->tile));
    const Scope out = fn_here(f);
    const char *by = fn_expr(f, k->factor);
    if (k->turns) {
        Axis *axis[2] = {k->m, k->along};
        Expr *zero[2] = {e_int(f->c, 0), e_int(f->c, 0)}, *flat = flat_of(f->c, k->query);
        const char *at = fn_expr(f, e_subst(f->c, flat, 2, axis, zero, NULL, NULL));
        const char *step = fn_expr(f, e_coef(f->c, flat, k->m));
        fn_line(f, "bx_turn(q, %d, %s + (%s) + first * (%s), %s, rows, %lld, %s);", k->tile,
                f->tensor(f, k->query->t), at, step, step, (long long)k->size, by);
    } else {
        fn_open(f, "for (int64_t row = 0; row < rows; row++) {");
        fn_line(f, "const int64_t im = first + row;");
        fn_bind(f, e_axis(f->c, k->m), "im");
        fn_count(f, k->query);
        fn_hoist(f, k->query, 1, (Axis *const *)&k->along);
        fn_open(f, "for (int64_t c = 0; c < %lld; c++) {", (long long)k->size);
        fn_bind(f, e_axis(f->c, k->along), "c");
        const char *value = fn_expr(f, k->query);
        fn_line(f, "q[c * %d + row] = %s * %s;", k->tile, value, by);
    }
    fn_close(f, out);
    fn_line(f, "for (int64_t c = 0; rows < width && c < %lld; c++)", (long long)k->size);
    fn_line(f, "    for (int64_t row = rows; row < width; row++) q[c * %d + row] = 0;", k->tile);
}

/* Makes scores of the products in s. Lanes without a row repeat the last one, and are not used. */
static void score_tile(Group *g) {
    const AttentionKernel *k = g->k->attention;
    Fn *f = &g->f;
    Expr *score = k->sum.score;
    if (score == k->product) return;
    const Scope out = fn_open(f, "for (int64_t j = 0; j < keys; j++) {");
    fn_line(f, "const int64_t ij = j0 + j;");
    fn_line(f, "float *const x = s + j * %d;", k->tile);
    fn_bind(f, e_axis(f->c, k->sum.key), "ij");
    fn_count(f, score);
    fn_hoist(f, score, 1, (Axis *const *)&k->m);
    if (!fn_guarded(f, score)) fn_line(f, "BK_SIMD");
    fn_open(f, "for (int64_t l = 0; l < width; l++) {");
    fn_line(f, "const int64_t im = first + (l < rows ? l : rows - 1);");
    fn_bind(f, e_axis(f->c, k->m), "im");
    fn_bind(f, k->product, "x[l]");
    const char *value = fn_expr(f, score);
    fn_line(f, "x[l] = %s;", value);
    fn_close(f, out);
}

static void tile(Group *g) {
    const AttentionKernel *k = g->k->attention;
    Emit *em = g->em;
    Fn *f = &g->f;
    const int vec = g->k->lanes;
    const Scope out = fn_here(f);
    const char *pitch = number(g, k->tile), *padded = number(g, k->padded);
    fn_line(f, "const int64_t width = (rows + %d) / %d * %d;", vec - 1, vec, vec);
    turn_queries(g);
    fn_line(f, "float s[%d] __attribute__((aligned(64)));", k->block * k->tile);
    fn_line(f,
            "float top[%d] __attribute__((aligned(64))), scale[%d] __attribute__((aligned(64)));",
            k->tile, k->tile);
    fn_line(f, "for (int64_t l = 0; l < width; l++) top[l] = -BK_INF, total[l] = 0;");
    open_keys(g, "(first + rows - 1)", "rows");
    Multiply p = {.y = "s",
                  .pitch = pitch,
                  .more = "false",
                  .a = "kk",
                  .am = by_key(g, &k->keys, k->size),
                  .ar = by_own(g, &k->keys),
                  .b = "q",
                  .br = pitch,
                  .n = number(g, k->size),
                  .rows = "keys",
                  .known = known_keys(k)};
    if (k->tile > vec) {
        const Scope few = fn_open(f, "if (width > %d) {", vec);
        multiply(g, &p, k->tile, false);
        fn_else(f, few, "} else {");
        multiply(g, &p, vec, false);
        fn_close(f, few);
    } else
        multiply(g, &p, vec, false);
    score_tile(g);
    fn_line(f, "bx_attend(s, keys, %d, width, top, total, scale);", k->tile);
    const Scope later = fn_open(f, "for (int64_t row = 0; j0 && row < rows; row++) {");
    fn_line(f, "BK_SIMD");
    fn_line(f, "for (int64_t l = 0; l < %lld; l++) sums[row * %lld + l] *= scale[row];",
            (long long)k->padded, (long long)k->padded);
    fn_close(f, later);
    p = (Multiply){.y = "sums",
                   .pitch = padded,
                   .more = "j0 > 0",
                   .a = "s",
                   .am = "1",
                   .ar = pitch,
                   .b = "vv",
                   .br = by_key(g, &k->values, k->padded),
                   .n = "keys",
                   .rows = "rows",
                   .known = -1};
    multiply(g, &p, k->padded, false);
    fn_close(f, out);
    (void)em;
}

/* ---- rows one by one ------------------------------------------------------------------------- */
static void single_query(Group *g) {
    const AttentionKernel *k = g->k->attention;
    Fn *f = &g->f;
    const int64_t padded = round_up(k->size, g->k->lanes);
    const Scope out = fn_here(f);
    fn_line(f, "float q[%lld] __attribute__((aligned(64)));", (long long)padded);
    fn_count(f, k->query);
    fn_hoist(f, k->query, 1, (Axis *const *)&k->along);
    fn_open(f, "for (int64_t c = 0; c < %lld; c++) {", (long long)k->size);
    fn_bind(f, e_axis(f->c, k->along), "c");
    const char *value = fn_expr(f, k->query);
    fn_line(f, "q[c] = %s * %s;", value, fn_expr(f, k->factor));
    fn_end(f);
    f->bound.n = out.bound;
    if (padded > k->size)
        fn_line(f, "for (int64_t c = %lld; c < %lld; c++) q[c] = 0;", (long long)k->size,
                (long long)padded);
}

static void score_row(Group *g) {
    const AttentionKernel *k = g->k->attention;
    Fn *f = &g->f;
    Expr *score = k->sum.score;
    if (score == k->product) return;
    const Scope out = fn_here(f);
    fn_count(f, score);
    fn_hoist(f, score, 1, (Axis *const *)&k->sum.key);
    if (!fn_guarded(f, score)) fn_line(f, "BK_SIMD");
    fn_open(f, "for (int64_t l = 0; l < keys; l++) {");
    fn_line(f, "const int64_t ij = j0 + l;");
    fn_bind(f, e_axis(f->c, k->sum.key), "ij");
    fn_bind(f, k->product, "x[l]");
    const char *value = fn_expr(f, score);
    fn_line(f, "x[l] = %s;", value);
    fn_close(f, out);
}

/* Opens the loop over the tile's rows. */
static Scope open_rows(Group *g) {
    const AttentionKernel *k = g->k->attention;
    Fn *f = &g->f;
    const Scope out = fn_open(f, "for (int64_t row = 0; row < rows; row++) {");
    if (k->m) {
        fn_line(f, "const int64_t im = first + row;");
        fn_bind(f, e_axis(f->c, k->m), "im");
    }
    return out;
}

static void single(Group *g) {
    const AttentionKernel *k = g->k->attention;
    Fn *f = &g->f;
    const Scope out = open_rows(g);
    single_query(g);
    fn_line(f, "float *const out = sums + row * %lld;", (long long)k->padded);
    fn_line(f, "float x[%d] __attribute__((aligned(64))), top[1] = {-BK_INF}, scale;", k->block);
    fn_line(f, "total[row] = 0;");
    open_keys(g, "im", "1");
    if (k->by_keys) {
        fn_line(f, "for (int64_t l = 0; l < keys; l++) x[l] = 0;");
        fn_open(f, "for (int64_t c = 0; c < %lld; c++) {", (long long)k->size);
        fn_line(f, "const float *const y = kk + c * (%s);", by_own(g, &k->keys));
        fn_line(f, "BK_SIMD");
        fn_line(f, "for (int64_t l = 0; l < keys; l++) x[l] += q[c] * y[l];");
        fn_end(f);
    } else
        fn_line(f, "bx_attend_dots(x, q, kk, %s, keys, %lld);", by_key(g, &k->keys, k->size),
                (long long)k->size);
    score_row(g);
    fn_line(f, "bx_attend_row(x, keys, top, &total[row], &scale);");
    fn_line(f, "BK_SIMD");
    fn_line(f, "for (int64_t l = 0; l < %lld; l++) out[l] = j0 ? out[l] * scale : 0;",
            (long long)k->padded);
    const Multiply p = {.y = "out",
                        .pitch = "0",
                        .more = "true",
                        .a = "x",
                        .am = "0",
                        .ar = "1",
                        .b = "vv",
                        .br = by_key(g, &k->values, k->padded),
                        .n = "keys",
                        .rows = "1",
                        .known = 1};
    multiply(g, &p, k->padded, true);
    fn_close(f, out);
}

/* ---- the group's function -------------------------------------------------------------------- */
static void epilogue(Group *g) {
    const AttentionKernel *k = g->k->attention;
    Fn *f = &g->f;
    const Scope out = open_rows(g);
    fn_line(f, "float *const out = sums + row * %lld;", (long long)k->padded);
    const char *by = fn_expr(f, k->sum.divisor);
    if (k->sum.nan_to_zero) fn_line(f, "const bool none = !(total[row] > 0);");
    fn_line(f, "BK_SIMD");
    fn_line(f, "for (int64_t l = 0; l < %lld; l++) out[l] = %sout[l] / %s;", (long long)k->padded,
            k->sum.nan_to_zero ? "none ? 0.0f : " : "", by);
    fn_line(f, "const int64_t v0 = 0;");
    bool others = false;
    for (int i = 0; i < g->k->n; i++) {
        fn_hoist(f, g->k->value[i], 1, (Axis *const *)&k->v);
        others |= i > 0 && g->k->value[i]->flags & EF_REDUCE;
    }
    group_members_by_lane(g, k->v, group_from(g, k->v), group_to(g, k->v), !others);
    fn_close(f, out);
}

void group_attention(Group *g) {
    const AttentionKernel *k = g->k->attention;
    Emit *em = g->em;
    Fn *f = &g->f;
    g->reduce = computed;
    helper_text(em, "extern/attend.inc");
    group_range(g);
    const Scope out = fn_here(f);
    for (int i = 0; i < g->k->naxis; i++)
        if (g->k->axis[i] != k->v && g->k->axis[i] != k->m)
            group_loop(g, g->k->axis[i], arena_printf(em->a, "i%d", i));
    if (k->m) {
        fn_open(f, "for (int64_t first = %s; first < %s; first += %d) {", group_from(g, k->m),
                group_to(g, k->m), k->tile);
        fn_line(f, "const int64_t rows = bk_mini(%s - first, %d);", group_to(g, k->m), k->tile);
    } else
        fn_line(f, "const int64_t rows = 1;");
    fn_line(
        f, "float sums[%lld] __attribute__((aligned(64))), total[%d] __attribute__((aligned(64)));",
        (long long)(k->tile * k->padded), k->tile);
    if (k->singles && k->tiles) {
        const Scope few = fn_open(f, "if (rows <= %d) {", k->few);
        single(g);
        fn_else(f, few, "} else {");
        tile(g);
        fn_close(f, few);
    } else
        (k->singles ? single : tile)(g);
    epilogue(g);
    fn_close(f, out);
}
