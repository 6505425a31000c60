/* winograd.c: sums over windows of 3 x 3 neighbours and many channels, by Winograd's F(2 x 2, 3 x
 * 3): 16 products instead of 36 for four neighbouring sums.
 *
 * A window is recognized by its strides: the reduction has an axis of three steps along each of the
 * two innermost axes of positions, and one along channels that lie together. For each block of
 * tiles, four sums each, the elements are transformed, 16 products of matrices (tiles x channels
 * with the transformed, packed weights) follow, and the results are transformed back on the way to
 * the epilogue. That pays while the transformed weights stay in the second-level cache. Larger ones
 * are read once, one product after the other for as many tiles as have room; each product is taken
 * into the sums at once. */
#include "codegen/emit/cpu/conv.h"
#include "scheduler/cost/cost.h"
#include "scheduler/cost/decide.h"
#include <stdlib.h>

#define NEAR_WEIGHTS (96 * 96) /* channels x lanes: such weights stay in the cache */
#define FAR_WEIGHTS (384 * 384)
#define FEWEST_TILES 40   /* that are worth reading far weights, of which there are 16 for 9 */
#define TILE_FLOATS 32768 /* of transformed elements, and of products, in a block */
#define SUM_FLOATS 57344  /* of sums of far weights, in a block */
#define NEAR_FLOATS 8704  /* of weights beside the elements in the first-level cache */

typedef struct Window {
    Conv k;
    int y, x, c;             /* axes of the sum */
    int64_t channels, tiles; /* tiles: of a block */
    bool far;
    int64_t chunk; /* far: of channels */
    int64_t element_step,
        sum_step; /* floats from one product's matrix to the next: no multiple of a page */
} Window;

/* Lanes of all tiles. */
static int64_t sum_lanes(const Conv *k) { return (k->nlane + k->vt - 1) / k->vt * k->vt; }

static bool recognize(Window *w) {
    Conv *k = &w->k;
    Group *g = k->g;
    Cx *c = g->em->c;
    if (!conv_recognize(k) || k->n != 1 || k->s[0].n != 3 || g->k->naxis < 3) return false;
    const Sum *s = &k->s[0];
    conv_tile(k);
    int64_t nb, nm;
    if (!e_is_int(k->b->extent, &nb) || !e_is_int(k->m->extent, &nm) || nb < 4 || nm < 4)
        return false;
    Expr *along_b = conv_coef(c, s->sca_flat, k->b), *along_m = conv_coef(c, s->sca_flat, k->m);
    if (along_b == along_m) return false;
    w->y = w->x = w->c = -1;
    for (int i = 0; i < 3; i++) {
        Expr *step = conv_coef(c, s->sca_flat, s->axis[i]);
        if (s->extent[i] == 3 && step == along_b)
            w->y = i;
        else if (s->extent[i] == 3 && step == along_m)
            w->x = i;
        else if (e_is_ival(step, 1))
            w->c = i;
    }
    if (w->y < 0 || w->x < 0 || w->c < 0) return false;
    w->channels = s->extent[w->c];
    if (w->channels % g->em->vec || w->channels * k->nlane > FAR_WEIGHTS) return false;
    if (w->channels * k->nlane > NEAR_WEIGHTS) {
        int64_t all = (nb + 1) / 2 * ((nm + 1) / 2), most = SUM_FLOATS / (4 * sum_lanes(k));
        if (most < FEWEST_TILES || all < FEWEST_TILES) return false;
        int64_t blocks = (all + most - 1) / most, near = NEAR_FLOATS / k->vt,
                chunks = (w->channels + near - 1) / near;
        w->tiles = (all + blocks - 1) / blocks;
        w->chunk = (w->channels + chunks - 1) / chunks;
        w->far = true;
        return w->tiles >= FEWEST_TILES;
    }
    int64_t wide = w->channels > k->vt ? w->channels : k->vt;
    w->tiles = TILE_FLOATS / 16 / wide;
    w->element_step = w->tiles * w->channels + 16;
    w->sum_step = w->tiles * k->vt + 16;
    return w->tiles >= k->rows;
}

/* Transformed weights G g G', as [product][vector][channel][lane]. */
static const char *pack(Window *w) {
    static const double G[4][3] = {{1, 0, 0}, {0.5, 0.5, 0.5}, {0.5, -0.5, 0.5}, {0, 0, 1}};
    Conv *k = &w->k;
    Emit *em = k->g->em;
    const Sum *s = &k->s[0];
    const Const *src = s->vec->t->data;
    int vec = em->vec;
    int64_t vectors = conv_vectors(k), total = 16 * vectors * w->channels * vec;
    char *key = arena_printf(em->a, "winograd %p %lld %lld %lld %lld %lld %lld %lld",
                             (const void *)src->data, (long long)s->base, (long long)s->v_stride,
                             (long long)k->nlane, (long long)vectors, (long long)s->stride[w->y],
                             (long long)s->stride[w->x], (long long)s->stride[w->c]);
    const char *name = map_get(em->functions, key);
    if (name) return name;
    float *data = em->held = malloc((size_t)total * 4);
    if (!data) err(em->c->d, ST_MEMORY, NULL, "out of memory for packing weights");
    for (int64_t v = 0; v < vectors; v++)
        for (int64_t c = 0; c < w->channels; c++)
            for (int l = 0; l < vec; l++) {
                double g[3][3], t[4][3];
                int64_t lane = v * vec + l;
                for (int y = 0; y < 3; y++)
                    for (int x = 0; x < 3; x++) {
                        int64_t at = s->base + lane * s->v_stride + c * s->stride[w->c] +
                                     y * s->stride[w->y] + x * s->stride[w->x];
                        g[y][x] = lane < k->nlane && at >= 0 && at < src->count
                                      ? ((const float *)src->data)[at]
                                      : 0;
                    }
                for (int i = 0; i < 4; i++)
                    for (int x = 0; x < 3; x++)
                        t[i][x] = G[i][0] * g[0][x] + G[i][1] * g[1][x] + G[i][2] * g[2][x];
                for (int i = 0; i < 4; i++)
                    for (int j = 0; j < 4; j++)
                        data[(((i * 4 + j) * vectors + v) * w->channels + c) * vec + l] =
                            (float)(t[i][0] * G[j][0] + t[i][1] * G[j][1] + t[i][2] * G[j][2]);
            }
    name = emit_data(em, DT_F32, data, total, s->vec->t->name ? s->vec->t->name : "packed");
    free(data);
    em->held = NULL;
    map_set(em->functions, key, (void *)(uintptr_t)name);
    return name;
}

static const char *sum_text(Group *g, Expr *e) {
    Window *w = g->user;
    return w->k.s[0].reduce == e ? arena_printf(g->em->a, "sum0[row * %d + l]", w->k.vt) : NULL;
}

/* ---- the group's function -------------------------------------------------------------------- */
static void open(Fn *f, const char *text) {
    fn_line(f, "%s", text);
    f->indent++;
}
static void close(Fn *f) {
    f->indent--;
    fn_line(f, "}");
}

/* Micro-kernels of product i for the tiles at pos. */
static void products(Conv *k, int rows, void *user) {
    Window *w = user;
    Emit *em = k->g->em;
    Cx *c = em->c;
    Walk walk = {.levels = 1,
                 .partial = w->far,
                 .count = {e_int(c, w->channels)},
                 .stride = {e_int(c, 1)},
                 .row = e_int(c, w->channels),
                 .stream = w->channels * em->vec};
    if (w->far) {
        walk.at = arena_printf(em->a, "elements + pos * %lld + q", (long long)w->channels);
        conv_micro(k, rows, arena_printf(em->a, "sums + pos * %d", k->vt), "part", &walk);
        return;
    }
    walk.at = arena_printf(em->a, "elements + i * %lld + pos * %lld", (long long)w->element_step,
                           (long long)w->channels);
    conv_micro(k, rows,
               arena_printf(em->a, "sums + i * %lld + pos * %d", (long long)w->sum_step, k->vt),
               arena_printf(em->a, "weights + (i * %lld + v0 / %d) * %lld",
                            (long long)conv_vectors(k), em->vec, (long long)walk.stream),
               &walk);
}

/* Bounds of the axes as the unit computes them: [0] b, [1] m, [2] v. */
typedef const char *Range[3][2];

static void lanes_loop(Conv *k, Range r) {
    Fn *f = &k->g->f;
    fn_line(f, "for (int64_t v0 = %s; v0 < %s; v0 += %d) {", r[2][0], r[2][1], k->vt);
    f->indent++;
    fn_line(f, "const int64_t lanes = bk_mini(%s - v0, %d);", r[2][1], k->vt);
}

/* The members of the tiles of a block, whose four sums are found by `sums`, an address for tile t.
 */
static void members(Conv *k, Range r, const char *before, const char *sums) {
    Fn *f = &k->g->f;
    open(f, "for (int64_t t = 0; t < tiles; t++) {");
    fn_line(
        f, "const int64_t y = %s + (first + t) / across * 2, pos = %s + (first + t) %% across * 2;",
        r[0][0], r[1][0]);
    fn_line(f, "const int64_t end = bk_mini(y + 2, %s), rows = bk_mini(%s - pos, 2);", r[0][1],
            r[1][1]);
    if (before) fn_line(f, "%s", before);
    open(f, "for (int64_t ib = y; ib < end; ib++) {");
    int mark = f->bound.n;
    fn_bind(f, e_axis(f->c, k->b), "ib");
    fn_line(f, "const float *const sum0 = %s + (ib - y) * %d;", sums, 2 * k->vt);
    conv_epilogue(k);
    f->bound.n = mark;
    close(f);
    close(f);
}

static void near_block(Window *w, Range r, const char *steps) {
    Conv *k = &w->k;
    Fn *f = &k->g->f;
    Arena *a = k->g->em->a;
    fn_line(f, "for (int64_t t = 0; t < tiles; t++)");
    fn_line(f,
            "    bx_winograd_in(elements + t * %lld, %lld, in, %s + (first + t) / across * 2, %s + "
            "(first + t) %% across * 2, %s);",
            (long long)w->channels, (long long)w->element_step, r[0][0], r[1][0], steps);
    lanes_loop(k, r);
    open(f, "for (int64_t i = 0; i < 16; i++) {");
    conv_run(k, 0, "0", "tiles", products, w);
    close(f);
    close(f);
    members(k, r,
            arena_printf(a, "bx_winograd_out(four, sums + t * %d, %lld, %d);", k->vt,
                         (long long)w->sum_step, k->vt),
            "four");
    close(f);
}

static void far_block(Window *w, Range r, const char *steps) {
    Conv *k = &w->k;
    Fn *f = &k->g->f;
    Arena *a = k->g->em->a;
    int vec = k->g->em->vec;
    long long stream = w->channels * vec, vectors = conv_vectors(k);
    const char *four =
        arena_printf(a, "four + (v0 - %s) * %lld", r[2][0], (long long)(4 * w->tiles));
    fn_line(f, "memset(four, 0, sizeof four);");
    open(f, "for (int i = 0; i < 16; i++) {");
    fn_line(f, "bx_winograd_in_one(elements, i, in, first, tiles, across, %s, %s, %s);", r[0][0],
            r[1][0], steps);
    lanes_loop(k, r);
    fn_line(f, "const float *part = weights + (i * %lld + v0 / %d) * %lld;", vectors, vec, stream);
    fn_line(f,
            "const float *const then = v0 + %d < %s ? part + %lld : weights + ((i + 1) * %lld + %s "
            "/ %d) * %lld;",
            k->vt, r[2][1], (long long)k->nv * stream, vectors, r[2][0], vec, stream);
    fn_line(f, "int more = 0;");
    fn_line(f, "for (int64_t q = 0; q < %lld; q += %lld) {", (long long)w->channels,
            (long long)w->chunk);
    f->indent++;
    fn_line(f, "const int64_t count = bk_mini(%lld - q, %lld), share = count * %d / tiles + 1;",
            (long long)w->channels, (long long)w->chunk, k->rows);
    fn_line(f, "const float *next = q + count < %lld ? part + count * %d : then;",
            (long long)w->channels, vec);
    conv_run(k, 0, "0", "tiles", products, w);
    conv_fetch(k, stream);
    close(f);
    fn_line(f, "part += count * %d;", vec);
    fn_line(f, "more = 1;");
    close(f);
    fn_line(f, "bx_winograd_add(%s, i, sums, tiles, %d);", four, k->vt);
    close(f);
    close(f);
    lanes_loop(k, r);
    members(k, r, NULL, arena_printf(a, "%s + t * %d", four, 4 * k->vt));
    close(f);
}

bool group_winograd(Group *g) {
    Emit *em = g->em;
    Cx *c = em->c;
    Fn *f = &g->f;
    Window w = {.k = {.g = g}};
    Conv *k = &w.k;
    if (!recognize(&w)) return false;
    const Schedule *plan = em->p->schedule;
    double ns = plan ? cost_group_ns(c, plan->device, g->k->s, plan->units) : 0;
    if (!decide_value(em->p, X_WINOGRAD, g->k->s, 2, (Way[]){{1, ns}, {0, ns}})) return false;
    Sum *s = &k->s[0];
    extern_text(em, "winograd");
    g->reduce = sum_text;
    g->user = &w;
    group_range(g);
    int indent = f->indent, mark = f->bound.n;
    for (int i = 0; i < g->k->naxis - 3; i++) group_loop(g, g->k->axis[i], arena_printf(em->a, "i%d", i));
    Range r;
    Axis *x[3] = {k->b, k->m, k->v};
    for (int i = 0; i < 3; i++) {
        r[i][0] = x[i] == g->k->split ? "from" : "0";
        r[i][1] = x[i] == g->k->split ? "to" : fn_expr(f, x[i]->extent);
    }
    Axis *zeroed[5] = {k->b, k->m, s->axis[0], s->axis[1], s->axis[2]};
    Expr *zero = e_int(c, 0), *zeros[5] = {zero, zero, zero, zero, zero};
    fn_line(f, "const float *const in = %s + (%s);", f->tensor(f, s->sca->t),
            fn_expr(f, e_subst(c, s->sca_flat, 5, zeroed, zeros, NULL, NULL)));
    fn_line(f, "const int64_t across = (%s - %s + 1) / 2, all_tiles = (%s - %s + 1) / 2 * across;",
            r[1][1], r[1][0], r[0][1], r[0][0]);
    fn_line(f, "const float *const weights = %s;", conv_weights(k, pack(&w)));
    const char *steps =
        arena_printf(em->a, "%s + 1, %s + 1, %s, %s, %lld", fn_expr(f, k->b->extent),
                     fn_expr(f, k->m->extent), fn_expr(f, conv_coef(c, s->sca_flat, k->b)),
                     fn_expr(f, conv_coef(c, s->sca_flat, k->m)), (long long)w.channels);
    fn_line(f, "float elements[%lld] __attribute__((aligned(64)));",
            (long long)(w.far ? w.tiles * w.channels : 16 * w.element_step));
    fn_line(f, "float sums[%lld] __attribute__((aligned(64)));",
            (long long)(w.far ? w.tiles * k->vt : 16 * w.sum_step));
    fn_line(f, "float four[%lld] __attribute__((aligned(64)));",
            (long long)(w.far ? 4 * w.tiles * sum_lanes(k) : 4 * k->vt));
    fn_line(f, "for (int64_t first = 0; first < all_tiles; first += %lld) {", (long long)w.tiles);
    fn_open(f);
    fn_line(f, "const int64_t tiles = bk_mini(all_tiles - first, %lld);", (long long)w.tiles);
    if (w.far)
        far_block(&w, r, steps);
    else
        near_block(&w, r, steps);
    while (f->indent > indent) close(f);
    f->bound.n = mark;
    return true;
}
