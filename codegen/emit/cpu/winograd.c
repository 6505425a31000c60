/* winograd.c: prints sums over windows of 3 x 3 neighbours by Winograd's F(2 x 2, 3 x 3)
 * (scheduler/kernel/convolution.h). */
#include "codegen/emit/cpu/convolution.h"

static const char *sum_text(Group *g, Expr *e) {
    const Winograd *w = g->k->winograd;
    return w->k.s[0].reduce == e ? arena_printf(g->em->a, "sum0[row * %d + l]", w->k.vt) : NULL;
}

/* ---- the group's function -------------------------------------------------------------------- */
/* The micro-kernel of product i for the tiles at pos. */
static void products(Group *g, int rows, const void *user) {
    const Winograd *w = user;
    const Convolution *k = &w->k;
    Emit *em = g->em;
    Cx *c = em->c;
    ConvWalk walk = {.packed = w->k.s[0].packed,
                     .levels = 1,
                     .partial = w->far,
                     .count = {e_int(c, w->channels)},
                     .stride = {e_int(c, 1)},
                     .row = e_int(c, w->channels),
                     .stream = w->channels * g->k->lanes};
    if (w->far) {
        walk.at = arena_printf(em->a, "elements + pos * %lld + q", (long long)w->channels);
        conv_micro(g, k, rows, arena_printf(em->a, "sums + pos * %d", k->vt), "part", &walk);
        return;
    }
    walk.at = arena_printf(em->a, "elements + i * %lld + pos * %lld", (long long)w->element_step,
                           (long long)w->channels);
    conv_micro(g, k, rows,
               arena_printf(em->a, "sums + i * %lld + pos * %d", (long long)w->sum_step, k->vt),
               arena_printf(em->a, "weights + (i * %lld + v0 / %d) * %lld",
                            (long long)conv_vectors(k), g->k->lanes, (long long)walk.stream),
               &walk);
}

/* This unit's ranges: begin and end of axes b, m and v. */
typedef const char *Range[3][2];

static void lanes_loop(Group *g, const Convolution *k, Range r) {
    Fn *f = &g->f;
    fn_open(f, "for (int64_t v0 = %s; v0 < %s; v0 += %d) {", r[2][0], r[2][1], k->vt);
    fn_line(f, "const int64_t lanes = bk_mini(%s - v0, %d);", r[2][1], k->vt);
}

/* Stores the members of a block's tiles. `sums`: the address of the four sums of tile t. */
static void members(Group *g, const Convolution *k, Range r, const char *before, const char *sums) {
    Fn *f = &g->f;
    const Scope out = fn_open(f, "for (int64_t t = 0; t < tiles; t++) {");
    fn_line(
        f, "const int64_t y = %s + (first + t) / across * 2, pos = %s + (first + t) %% across * 2;",
        r[0][0], r[1][0]);
    fn_line(f, "const int64_t end = bk_mini(y + 2, %s), rows = bk_mini(%s - pos, 2);", r[0][1],
            r[1][1]);
    if (before) fn_line(f, "%s", before);
    fn_open(f, "for (int64_t ib = y; ib < end; ib++) {");
    fn_bind(f, e_axis(f->c, k->b), "ib");
    fn_line(f, "const float *const sum0 = %s + (ib - y) * %d;", sums, 2 * k->vt);
    conv_epilogue(g, k);
    fn_close(f, out);
}

static void near_block(Group *g, const Winograd *w, Range r, const char *steps) {
    const Convolution *k = &w->k;
    Fn *f = &g->f;
    Arena *a = g->em->a;
    fn_line(f, "for (int64_t t = 0; t < tiles; t++)");
    fn_line(f,
            "    bx_winograd_in(elements + t * %lld, %lld, in, %s + (first + t) / across * 2, %s + "
            "(first + t) %% across * 2, %s);",
            (long long)w->channels, (long long)w->element_step, r[0][0], r[1][0], steps);
    lanes_loop(g, k, r);
    fn_open(f, "for (int64_t i = 0; i < 16; i++) {");
    conv_run(g, k, 0, "0", "tiles", products, w);
    fn_end(f);
    fn_end(f);
    members(g, k, r,
            arena_printf(a, "bx_winograd_out(four, sums + t * %d, %lld, %d);", k->vt,
                         (long long)w->sum_step, k->vt),
            "four");
    fn_end(f);
}

static void far_block(Group *g, const Winograd *w, Range r, const char *steps) {
    const Convolution *k = &w->k;
    Fn *f = &g->f;
    Arena *a = g->em->a;
    int vec = g->k->lanes;
    long long stream = w->channels * vec, vectors = conv_vectors(k);
    const char *four =
        arena_printf(a, "four + (v0 - %s) * %lld", r[2][0], (long long)(4 * w->tiles));
    fn_line(f, "memset(four, 0, sizeof four);");
    fn_open(f, "for (int i = 0; i < 16; i++) {");
    fn_line(f, "bx_winograd_in_one(elements, i, in, first, tiles, across, %s, %s, %s);", r[0][0],
            r[1][0], steps);
    lanes_loop(g, k, r);
    fn_line(f, "const float *part = weights + (i * %lld + v0 / %d) * %lld;", vectors, vec, stream);
    fn_line(f,
            "const float *const then = v0 + %d < %s ? part + %lld : weights + ((i + 1) * %lld + %s "
            "/ %d) * %lld;",
            k->vt, r[2][1], (long long)k->nv * stream, vectors, r[2][0], vec, stream);
    fn_line(f, "int more = 0;");
    fn_open(f, "for (int64_t q = 0; q < %lld; q += %lld) {", (long long)w->channels,
            (long long)w->chunk);
    fn_line(f, "const int64_t count = bk_mini(%lld - q, %lld), share = count * %d / tiles + 1;",
            (long long)w->channels, (long long)w->chunk, k->rows);
    fn_line(f, "const float *next = q + count < %lld ? part + count * %d : then;",
            (long long)w->channels, vec);
    conv_run(g, k, 0, "0", "tiles", products, w);
    conv_fetch(g, k, stream);
    fn_end(f);
    fn_line(f, "part += count * %d;", vec);
    fn_line(f, "more = 1;");
    fn_end(f);
    fn_line(f, "bx_winograd_add(%s, i, sums, tiles, %d);", four, k->vt);
    fn_end(f);
    fn_end(f);
    lanes_loop(g, k, r);
    members(g, k, r, NULL, arena_printf(a, "%s + t * %d", four, 4 * k->vt));
    fn_end(f);
}

void group_winograd(Group *g) {
    Emit *em = g->em;
    Cx *c = em->c;
    Fn *f = &g->f;
    const Winograd *w = g->k->winograd;
    const Convolution *k = &w->k;
    const ConvSum *s = &k->s[0];
    extern_text(em, "winograd");
    g->reduce = sum_text;
    group_range(g);
    const Scope out = fn_here(f);
    for (int i = 0; i < g->k->naxis - 3; i++)
        group_loop(g, g->k->axis[i], arena_printf(em->a, "i%d", i));
    Range r;
    Axis *x[3] = {k->b, k->m, k->v};
    for (int i = 0; i < 3; i++) {
        r[i][0] = group_from(g, x[i]);
        r[i][1] = group_to(g, x[i]);
    }
    Axis *zeroed[5] = {k->b, k->m, s->axis[0], s->axis[1], s->axis[2]};
    Expr *zero = e_int(c, 0), *zeros[5] = {zero, zero, zero, zero, zero};
    fn_line(f, "const float *const in = %s + (%s);", f->tensor(f, s->sca->t),
            fn_expr(f, e_subst(c, s->sca_flat, 5, zeroed, zeros, NULL, NULL)));
    fn_line(f, "const int64_t across = (%s - %s + 1) / 2, all_tiles = (%s - %s + 1) / 2 * across;",
            r[1][1], r[1][0], r[0][1], r[0][0]);
    fn_line(f, "const float *const weights = %s;", group_packed(g, s->packed));
    const char *steps =
        arena_printf(em->a, "%s + 1, %s + 1, %s, %s, %lld", fn_expr(f, k->b->extent),
                     fn_expr(f, k->m->extent), fn_expr(f, e_coef(c, s->sca_flat, k->b)),
                     fn_expr(f, e_coef(c, s->sca_flat, k->m)), (long long)w->channels);
    fn_line(f, "float elements[%lld] __attribute__((aligned(64)));",
            (long long)(w->far ? w->tiles * w->channels : 16 * w->element_step));
    fn_line(f, "float sums[%lld] __attribute__((aligned(64)));",
            (long long)(w->far ? w->tiles * k->vt : 16 * w->sum_step));
    fn_line(f, "float four[%lld] __attribute__((aligned(64)));",
            (long long)(w->far ? 4 * w->tiles * winograd_lanes(k) : 4 * k->vt));
    fn_open(f, "for (int64_t first = 0; first < all_tiles; first += %lld) {", (long long)w->tiles);
    fn_line(f, "const int64_t tiles = bk_mini(all_tiles - first, %lld);", (long long)w->tiles);
    if (w->far)
        far_block(g, w, r, steps);
    else
        near_block(g, w, r, steps);
    fn_close(f, out);
}
