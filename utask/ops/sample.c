/* sample.c: operators that read at fractional positions: GridSample, RoiAlign, DeformConv. */
#include "utask/ops/lowerings.h"
#include "utask/ops/window.h"

#include <math.h>

typedef enum { SAMPLE_LINEAR, SAMPLE_NEAREST, SAMPLE_CUBIC } SampleMode;
typedef enum { OUT_ZEROS, OUT_BORDER, OUT_REFLECT } OutMode;

/* A read of x at given leading indices and a fractional position in its last n axes. */
typedef struct Sample {
    Tensor *x;
    int lead, n;
    Expr *idx[MAX_RANK]; /* the first `lead` are set */
    SampleMode mode;
    OutMode outside;
    bool align; /* borders are at the outer elements' centres, not at their edges */
    DType type; /* of weights and result */
} Sample;

/* Moves an element index into [0, n) by the rule for outside positions. */
static Expr *wrap_index(Lower *L, const Sample *s, Expr *i, Expr *n) {
    Cx *c = L->cx;
    Expr *zero = e_int(c, 0), *last = e_addi(c, n, -1);
    if (s->outside == OUT_ZEROS) return i;
    if (s->outside == OUT_BORDER) return e_max(c, e_min(c, i, last), zero);
    /* reflection has period 2 (n - 1), or 2 n about the edges */
    Expr *period = s->align ? e_max(c, e_muli(c, last, 2), e_int(c, 1)) : e_muli(c, n, 2);
    Expr *m = e_bin(c, E_MOD, i, period);
    Expr *back = e_sub(c, s->align ? e_muli(c, last, 2) : e_addi(c, period, -1), m);
    return e_min(c, m, e_max(c, back, zero));
}

/* The element at s->idx, zero unless `inside` (which OUT_ZEROS uses). */
static Expr *element(Lower *L, Sample *s, Expr *inside) {
    Cx *c = L->cx;
    Expr *v = e_cast(c, s->type, ld(L, s->x, s->idx));
    return e_sel(c, inside, v, e_num(c, s->type, 0));
}

static void weights(Lower *L, const Sample *s, Expr *f, Expr **w) {
    Cx *c = L->cx;
    DType t = f->dtype;
    Expr *one = e_num(c, t, 1), *g = e_sub(c, one, f);
    if (s->mode == SAMPLE_LINEAR) {
        w[0] = g;
        w[1] = f;
        return;
    }
    const double a = -0.75;
    Expr *x[4] = {e_add(c, f, one), f, g, e_add(c, g, one)};
    for (int i = 0; i < 4; i++) {
        Expr *k = e_num(c, t, i == 0 || i == 3 ? a : a + 2);
        Expr *v = e_mul(c, k, x[i]);
        if (i == 0 || i == 3) {
            v = e_mul(c, e_sub(c, v, e_num(c, t, 5 * a)), x[i]);
            v = e_mul(c, e_add(c, v, e_num(c, t, 8 * a)), x[i]);
            w[i] = e_sub(c, v, e_num(c, t, 4 * a));
        } else {
            v = e_mul(c, e_sub(c, v, e_num(c, t, a + 3)), x[i]);
            w[i] = e_add(c, e_mul(c, v, x[i]), one);
        }
    }
}

/* Interpolates over axes j and later of the position. s->idx has the element indices of earlier
 * axes, `inside` whether these are in range. */
static Expr *sample_axes(Lower *L, Sample *s, Expr *const *pos, int j, Expr *inside) {
    Cx *c = L->cx;
    if (j == s->n) return element(L, s, inside);
    Expr *n = s->x->dim[s->lead + j], *sum = NULL, *w[4];
    Expr *floor = e_un(c, s->mode == SAMPLE_NEAREST ? E_ROUND : E_FLOOR, pos[j]);
    Expr *base = e_cast(c, DT_I64, floor);
    int taps = s->mode == SAMPLE_NEAREST ? 1 : s->mode == SAMPLE_LINEAR ? 2 : 4;
    if (taps > 1) weights(L, s, e_sub(c, pos[j], floor), w);
    for (int i = 0; i < taps; i++) {
        Expr *at = wrap_index(L, s, e_addi(c, base, taps == 4 ? i - 1 : i), n), *in_j = inside;
        if (s->outside == OUT_ZEROS) in_j = e_and(c, inside, win_inside(L, at, n));
        s->idx[s->lead + j] = at;
        Expr *v = sample_axes(L, s, pos, j + 1, in_j);
        if (taps > 1) v = e_mul(c, e_cast(c, s->type, w[i]), v);
        sum = sum ? e_add(c, sum, v) : v;
    }
    return sum;
}

/* ---- GridSample ------------------------------------------------------------------------------ */

/* Mirrors x between lo and hi. */
static Expr *reflect(Lower *L, Expr *x, Expr *lo, Expr *hi) {
    Cx *c = L->cx;
    DType t = x->dtype;
    Expr *zero = e_num(c, t, 0), *half = e_num(c, t, 0.5), *two = e_num(c, t, 2);
    Expr *range = e_sub(c, hi, lo), *below = e_lt(c, x, lo);
    Expr *d = e_sel(c, below, e_sub(c, lo, x), e_sub(c, x, hi));
    Expr *turns = e_un(c, E_FLOOR, e_div(c, d, range));
    Expr *rest = e_sub(c, d, e_mul(c, turns, range));
    Expr *even = e_eq(c, e_mul(c, e_un(c, E_FLOOR, e_mul(c, turns, half)), two), turns);
    /* after an even number of reflections, measure from the side that x crossed */
    Expr *from_lo = e_eq(c, even, below);
    Expr *r = e_sel(c, from_lo, e_add(c, lo, rest), e_sub(c, hi, rest));
    r = e_sel(c, e_le(c, range, zero), zero, r);
    return e_sel(c, e_or(c, below, e_lt(c, hi, x)), r, x);
}

/* Element position of normalized coordinate g on an axis of n elements. */
static Expr *denormalize(Lower *L, const Sample *s, Expr *g, Expr *n) {
    Cx *c = L->cx;
    DType t = g->dtype;
    Expr *one = e_num(c, t, 1), *half = e_num(c, t, 0.5), *two = e_num(c, t, 2);
    Expr *len = e_cast(c, t, n), *last = e_sub(c, len, one), *up = e_add(c, g, one), *x;
    if (s->align)
        x = e_mul(c, e_div(c, up, two), last);
    else
        x = e_div(c, e_sub(c, e_mul(c, up, len), one), two);
    if (s->mode == SAMPLE_NEAREST) x = e_un(c, E_ROUND, x);
    if (s->outside == OUT_ZEROS) return x;
    Expr *lo = s->align ? e_num(c, t, 0) : e_num(c, t, -0.5);
    Expr *hi = s->align ? last : e_sub(c, len, half);
    if (s->outside == OUT_REFLECT) return reflect(L, x, lo, hi);
    if (s->mode == SAMPLE_CUBIC) return x; /* its elements are clamped individually */
    Expr *zero = e_num(c, t, 0);
    x = e_sel(c, e_lt(c, x, lo), zero, x);
    return e_sel(c, e_lt(c, hi, x), last, x);
}

/* What a position reads, the same in all channels: [batch, tap, position…]. */
typedef struct GridTaps {
    int64_t n;
    Tensor *element, *weight; /* number of the element in a channel, -1: outside; NULL: 1 */
} GridTaps;

/* at: positions [batch, position…, axis], in axis order. */
static GridTaps taps_at(Lower *L, const Sample *s, Tensor *at) {
    Cx *c = L->cx;
    const int each = s->mode == SAMPLE_NEAREST ? 1 : s->mode == SAMPLE_LINEAR ? 2 : 4, n = s->n;
    GridTaps taps = {.n = 1};
    Expr *dim[MAX_RANK] = {at->dim[0]}, *idx[MAX_RANK], *inside = e_bool(c, true);
    Expr *element = e_int(c, 0), *weight = NULL;
    for (int j = 0; j < n; j++) {
        dim[j + 2] = at->dim[j + 1];
        taps.n *= each;
    }
    dim[1] = e_int(c, taps.n);
    Tensor *t = te_begin(L, DT_I64, n + 2, dim), *u = te_begin(L, s->type, n + 2, dim);
    for (int table = 0; table < 2; table++) {
        Tensor *own = table ? u : t;
        idx[0] = ax(L, own, 0);
        for (int j = 0; j < n; j++) idx[j + 1] = ax(L, own, j + 2);
        int64_t below = taps.n;
        for (int j = 0; j < n; j++) {
            below /= each;
            idx[n + 1] = e_int(c, j);
            Expr *pos = ld(L, at, idx), *size = s->x->dim[s->lead + j], *w[4], *mine;
            Expr *floor = e_un(c, s->mode == SAMPLE_NEAREST ? E_ROUND : E_FLOOR, pos);
            Expr *tap =
                e_bin(c, E_MOD, e_bin(c, E_FDIV, ax(L, own, 1), e_int(c, below)), e_int(c, each));
            if (table) {
                weights(L, s, e_sub(c, pos, floor), w);
                mine = w[0];
                for (int i = 1; i < each; i++)
                    mine = e_sel(c, e_eq(c, tap, e_int(c, i)), w[i], mine);
                weight = weight ? e_mul(c, weight, mine) : mine;
                continue;
            }
            Expr *i = e_add(c, e_cast(c, DT_I64, floor), each == 4 ? e_addi(c, tap, -1) : tap);
            i = wrap_index(L, s, i, size);
            if (s->outside == OUT_ZEROS) inside = e_and(c, inside, win_inside(L, i, size));
            element = e_add(c, e_mul(c, element, size), i);
        }
        if (each == 1) break;
    }
    taps.element = te_end(L, t, e_sel(c, inside, element, e_int(c, -1)));
    if (each > 1) taps.weight = te_end(L, u, e_cast(c, s->type, weight));
    return taps;
}

/* The sum over the taps at idx ([batch, any, position…]), in a channel of x ([batch, channel,
 * element]). */
static Expr *taps_sum(Lower *L, const Sample *s, Tensor *x, Expr *channel, const GridTaps *taps,
                      Expr **idx) {
    Cx *c = L->cx;
    Expr *sum = NULL, *zero = e_num(c, s->type, 0);
    for (int64_t k = 0; k < taps->n; k++) {
        idx[1] = e_int(c, k);
        Expr *at = ld(L, taps->element, idx), *from[] = {idx[0], channel, at};
        Expr *v = e_cast(c, s->type, ld(L, x, from));
        if (s->outside == OUT_ZEROS) v = e_sel(c, e_le(c, e_int(c, 0), at), v, zero);
        if (taps->weight) v = e_mul(c, ld(L, taps->weight, idx), v);
        sum = sum ? e_add(c, sum, v) : v;
    }
    return sum;
}

/* modes: the names of those of SampleMode. */
static void grid_sample(Lower *L, const char *const *modes) {
    static const char *const outs[] = {"zeros", "border", "reflection"};
    Cx *c = L->cx;
    Tensor *x = in(L, 0), *grid = in(L, 1);
    int n = x->rank - 2;
    Expr *dim[MAX_RANK] = {x->dim[0], x->dim[1]}, *idx[MAX_RANK];
    if (n < 1 || grid->rank != x->rank)
        fail(L, "the input has rank %d, the grid %d", x->rank, grid->rank);
    check_eq(L, grid->dim[0], x->dim[0], "input and grid differ in batch size");
    check_eq(L, grid->dim[n + 1], e_int(c, n), "a grid position does not have %d values", n);
    Sample s = {.x = x, .lead = 2, .n = n};
    s.mode = (SampleMode)attr_choice(L, "mode", 3, modes);
    s.outside = (OutMode)attr_choice(L, "padding_mode", COUNT(outs), outs);
    s.align = attr_i(L, "align_corners", 0) != 0;
    if (s.mode != SAMPLE_NEAREST && n > 4) unsupported(L, "interpolation over %d axes", n);
    s.type = s.mode == SAMPLE_NEAREST ? x->dtype : mix_type(L, x->dtype);
    for (int i = 0; i < n; i++)
        check_lt(L, e_int(c, 0), x->dim[i + 2], "spatial axis %d of the input is empty", i);

    /* positions, in axis order (the grid has the last axis first) */
    DType pt = grid->dtype == DT_F64 ? DT_F64 : DT_F32;
    Tensor *at = te_begin(L, pt, grid->rank, grid->dim);
    for (int i = 0; i <= n; i++) idx[i] = ax(L, at, i);
    Expr *coord = NULL;
    for (int i = n - 1; i >= 0; i--) {
        idx[n + 1] = e_int(c, n - 1 - i);
        Expr *v = denormalize(L, &s, e_cast(c, pt, ld(L, grid, idx)), x->dim[i + 2]);
        coord = coord ? e_sel(c, e_eq(c, ax(L, at, n + 1), e_int(c, i)), v, coord) : v;
    }
    at = te_end(L, at, coord);

    for (int i = 0; i < n; i++) dim[i + 2] = grid->dim[i + 1];
    GridTaps taps = taps_at(L, &s, at);
    Expr *flat[] = {x->dim[0], x->dim[1], e_int(c, 1)};
    for (int i = 0; i < n; i++) flat[2] = e_mul(c, flat[2], x->dim[i + 2]);
    Tensor *t = te_begin(L, x->dtype, n + 2, dim);
    idx[0] = ax(L, t, 0);
    for (int i = 0; i < n; i++) idx[i + 2] = ax(L, t, i + 2);
    Expr *e = taps_sum(L, &s, t_reshape(L, x, 3, flat), ax(L, t, 1), &taps, idx);
    out(L, 0, te_end(L, t, e_cast(c, x->dtype, e)));
}

void lower_GridSample(Lower *L) {
    static const char *const modes[] = {"linear", "nearest", "cubic"};
    grid_sample(L, modes);
}

void lower_MsGridSample(Lower *L) {
    static const char *const modes[] = {"bilinear", "nearest", "bicubic"};
    if (in(L, 0)->rank != 4) fail(L, "the input has rank %d, not 4", in(L, 0)->rank);
    grid_sample(L, modes);
}

/* ---- RoiAlign -------------------------------------------------------------------------------- */

/* One axis of the regions: x is [N, C, H, W], axis 0 is H. */
typedef struct RoiAxis {
    Expr *start, *bin; /* float32: where the region starts, length of a bin */
    Expr *grid;        /* int64: samples per bin */
} RoiAxis;

static RoiAxis roi_axis(Lower *L, Tensor *rois, Expr *roi, int axis, int64_t bins, double scale,
                        bool half_pixel, int64_t ratio) {
    Cx *c = L->cx;
    RoiAxis r;
    Expr *edge[2], *scale_e = e_num(c, DT_F32, scale);
    Expr *shift = e_num(c, DT_F32, half_pixel ? 0.5 : 0), *n = e_num(c, DT_F32, (double)bins);
    for (int j = 0; j < 2; j++) { /* x1, y1, x2, y2 */
        Expr *idx[2] = {roi, e_int(c, 1 - axis + 2 * j)};
        edge[j] = e_sub(c, e_mul(c, e_cast(c, DT_F32, ld(L, rois, idx)), scale_e), shift);
    }
    Expr *len = e_sub(c, edge[1], edge[0]);
    if (!half_pixel) len = e_max(c, len, e_num(c, DT_F32, 1));
    r.start = edge[0];
    r.bin = e_div(c, len, n);
    if (ratio > 0)
        r.grid = e_int(c, ratio);
    else
        r.grid = e_max(c, e_cast(c, DT_I64, e_un(c, E_CEIL, r.bin)), e_int(c, 0));
    return r;
}

/* What the samples of all regions read along one axis of size n: elements and weights, both
 * [region, bin, sample, 2]. Elements are ROI_OUTSIDE of the image, or of samples that are UNUSED in
 * this region. */
enum { ROI_OUTSIDE = -1, ROI_UNUSED = -2 };
typedef struct RoiReads {
    Tensor *element, *weight;
} RoiReads;

static RoiReads roi_reads(Lower *L, Tensor *rois, int axis, Expr *n, Expr *samples, int64_t bins,
                          double scale, bool half_pixel, int64_t ratio) {
    Cx *c = L->cx;
    Expr *zero = e_num(c, DT_F32, 0), *one = e_num(c, DT_F32, 1), *last = e_addi(c, n, -1);
    Expr *dim[4] = {rois->dim[0], e_int(c, bins), samples, e_int(c, 2)}, *value[2];
    Tensor *t[2];
    for (int k = 0; k < 2; k++) {
        t[k] = te_begin(L, k ? DT_F32 : DT_I64, 4, dim);
        RoiAxis r = roi_axis(L, rois, ax(L, t[k], 0), axis, bins, scale, half_pixel, ratio);
        Expr *sample = ax(L, t[k], 2), *high = e_eq(c, ax(L, t[k], 3), e_int(c, 1));
        Expr *at = e_add(c, e_cast(c, DT_F32, sample), e_num(c, DT_F32, 0.5));
        at = e_div(c, e_mul(c, at, r.bin), e_cast(c, DT_F32, r.grid));
        Expr *pos = e_mul(c, e_cast(c, DT_F32, ax(L, t[k], 1)), r.bin);
        pos = e_add(c, e_add(c, r.start, pos), at);
        Expr *inside =
            e_and(c, e_le(c, e_num(c, DT_F32, -1), pos), e_le(c, pos, e_cast(c, DT_F32, n)));
        pos = e_max(c, pos, zero);
        Expr *low = e_cast(c, DT_I64, pos), *edge = e_le(c, last, low);
        Expr *f = e_sel(c, edge, zero, e_sub(c, pos, e_cast(c, DT_F32, low)));
        Expr *i = e_sel(c, edge, last, e_add(c, low, e_sel(c, high, e_int(c, 1), e_int(c, 0))));
        i = e_sel(c, inside, i, e_int(c, ROI_OUTSIDE));
        i = e_sel(c, e_lt(c, sample, r.grid), i, e_int(c, ROI_UNUSED));
        value[k] = k ? e_sel(c, high, f, e_sub(c, one, f)) : i;
    }
    RoiReads r;
    r.element = te_end(L, t[0], value[0]);
    r.weight = te_end(L, t[1], value[1]);
    return r;
}

void lower_RoiAlign(Lower *L) {
    static const char *const modes[] = {"avg", "max"};
    static const char *const coords[] = {"half_pixel", "output_half_pixel"};
    Cx *c = L->cx;
    Tensor *x = in(L, 0), *rois = in(L, 1), *batch = in(L, 2);
    int64_t bins[2] = {attr_i(L, "output_height", 1), attr_i(L, "output_width", 1)};
    int64_t ratio = attr_i(L, "sampling_ratio", 0);
    double scale = attr_f(L, "spatial_scale", 1);
    bool max = attr_choice(L, "mode", COUNT(modes), modes) == 1;
    bool half = attr_choice(L, "coordinate_transformation_mode", COUNT(coords), coords) == 0;
    Expr *most[2];
    Axis *axis[2];
    check_regions(L, x, rois, batch);
    for (int i = 0; i < 2; i++) {
        if (bins[i] < 1 || bins[i] > INT32_MAX)
            fail(L, "the output size is %lld", (long long)bins[i]);
        check_lt(L, e_int(c, 0), x->dim[i + 2], "the image is empty");
    }
    if (ratio < 0 || ratio > 4096) fail(L, "attribute sampling_ratio is %lld", (long long)ratio);

    /* samples per bin: the maximum over all regions */
    for (int i = 0; i < 2; i++) {
        most[i] = e_int(c, ratio);
        if (ratio) continue;
        Tensor *t = te_begin(L, DT_I64, 0, NULL);
        Axis *n = axis_new(c, rois->dim[0]);
        Expr *grid = roi_axis(L, rois, e_axis(c, n), i, bins[i], scale, half, 0).grid;
        Expr *top = e_max(c, e_reduce(c, R_MAX, 1, &n, grid), e_int(c, 0));
        most[i] = uni(L, te_end(L, t, top), 0);
        if (!e_is_int(most[i], &(int64_t){0})) most[i] = let(L, "samples", most[i], 0);
    }
    Expr *dim[4] = {rois->dim[0], x->dim[1], e_int(c, bins[0]), e_int(c, bins[1])};
    RoiReads reads[2];
    for (int i = 0; i < 2; i++)
        reads[i] = roi_reads(L, rois, i, x->dim[i + 2], most[i], bins[i], scale, half, ratio);
    /* Channels last, so that all have one vector of positions. What is read through a view stays
     * in memory. */
    Expr *idx[4], *whole[] = {x->dim[0], e_mul(c, x->dim[2], x->dim[3]), x->dim[1]};
    Tensor *xt = te_begin(L, x->dtype, 4, (Expr *[]){x->dim[0], x->dim[2], x->dim[3], x->dim[1]});
    xt =
        te_end(L, xt, ld(L, x, (Expr *[]){ax(L, xt, 0), ax(L, xt, 3), ax(L, xt, 1), ax(L, xt, 2)}));
    xt = t_reshape(L, xt, 3, whole);
    Tensor *image = te_begin(L, DT_I64, 1, dim);
    idx[0] = e_cast(c, DT_I64, ld(L, batch, (Expr *[]){ax(L, image, 0)}));
    image = te_end(
        L, image,
        index_checked(L, idx[0], x->dim[0], false, "axis 0 of %s (batch_indices)", in_text(L, 0)));
    image = t_reshape(L, image, 2, (Expr *[]){dim[0], e_int(c, 1)});

    Tensor *t = te_begin(L, x->dtype, 4, (Expr *[]){dim[0], dim[2], dim[3], dim[1]});
    Expr *roi = ax(L, t, 0), *n = e_int(c, 1), *lowest[2], *zero = e_num(c, DT_F32, 0), *e = NULL;
    Expr *from[3] = {ld(L, image, (Expr *[]){roi, e_int(c, 0)}), NULL, ax(L, t, 3)};
    for (int i = 0; i < 2; i++) {
        axis[i] = axis_new(c, most[i]);
        n = e_mul(c, n, roi_axis(L, rois, roi, i, bins[i], scale, half, ratio).grid);
    }
    for (int k = 0; k < 4; k++) {
        Expr *weight = NULL, *at[2];
        for (int i = 0; i < 2; i++) {
            Expr *of[4] = {roi, ax(L, t, i + 1), e_axis(c, axis[i]), e_int(c, i ? k & 1 : k >> 1)};
            Expr *w = ld(L, reads[i].weight, of);
            at[i] = ld(L, reads[i].element, of);
            weight = weight ? e_mul(c, weight, w) : w;
            if (!k) lowest[i] = at[i];
        }
        from[1] = e_add(c, e_mul(c, at[0], x->dim[3]), at[1]);
        Expr *v = e_mul(c, weight, e_cast(c, DT_F32, ld(L, xt, from)));
        e = !e ? v : max ? e_max(c, e, v) : e_add(c, e, v);
    }
    Expr *least = e_min(c, lowest[0], lowest[1]), *inside = e_le(c, e_int(c, 0), least);
    if (max) {
        Expr *none = e_sel(c, e_eq(c, least, e_int(c, ROI_UNUSED)),
                           e_num(c, DT_F32, -(double)INFINITY), zero);
        e = e_reduce(c, R_MAX, 2, axis, e_sel(c, inside, e, none));
        e = e_sel(c, e_lt(c, e_int(c, 0), n), e, zero);
    } else {
        e = e_reduce(c, R_SUM, 2, axis, e_sel(c, inside, e, zero));
        e = e_div(c, e, e_cast(c, DT_F32, e_max(c, n, e_int(c, 1))));
    }
    t = te_end(L, t, e_cast(c, x->dtype, e));
    t = t_reshape(L, t, 3, (Expr *[]){dim[0], e_mul(c, dim[2], dim[3]), dim[1]});
    Tensor *y = te_begin(L, x->dtype, 4, dim);
    Expr *at = e_add(c, e_mul(c, ax(L, y, 2), dim[3]), ax(L, y, 3));
    out(L, 0, te_end(L, y, ld(L, t, (Expr *[]){ax(L, y, 0), at, ax(L, y, 1)})));
}

/* ---- DeformConv ------------------------------------------------------------------------------ */

/* The values at the kernel's positions, [n, channel, k…, o…], times the mask. */
static Tensor *deform_columns(Lower *L, Tensor *x, Tensor *offset, Tensor *mask, const Window *w,
                              Expr *per_group, DType acc) {
    Cx *c = L->cx;
    int n = w->n;
    Expr *dim[MAX_RANK] = {x->dim[0], x->dim[1]}, *k[MAX_RANK], *pos[MAX_RANK], *idx[MAX_RANK];
    Expr *taps = e_int(c, 1);
    for (int i = 0; i < n; i++) {
        dim[2 + i] = w->k[i];
        dim[2 + n + i] = w->out[i];
        taps = e_mul(c, taps, w->k[i]);
    }
    Tensor *t = te_begin(L, acc, 2 + 2 * n, dim);
    for (int i = 0; i < n; i++) k[i] = ax(L, t, 2 + i);
    Expr *at = flat_index(L, n, dim + 2, k), *group = e_bin(c, E_FDIV, ax(L, t, 1), per_group);
    at = e_add(c, e_mul(c, group, taps), at);
    idx[0] = ax(L, t, 0);
    for (int i = 0; i < n; i++) idx[i + 2] = ax(L, t, 2 + n + i);
    for (int i = 0; i < n; i++) {
        Expr *p = e_add(c, e_muli(c, idx[i + 2], w->stride[i]), e_muli(c, k[i], w->dil[i]));
        idx[1] = e_addi(c, e_muli(c, at, n), i);
        pos[i] =
            e_add(c, e_cast(c, acc, e_sub(c, p, w->lo[i])), e_cast(c, acc, ld(L, offset, idx)));
    }
    Sample s = {
        .x = x, .lead = 2, .n = n, .mode = SAMPLE_LINEAR, .outside = OUT_ZEROS, .type = acc};
    s.idx[0] = ax(L, t, 0);
    s.idx[1] = ax(L, t, 1);
    Expr *e = sample_axes(L, &s, pos, 0, e_bool(c, true));
    if (mask) {
        idx[1] = at;
        e = e_mul(c, e, e_cast(c, acc, ld(L, mask, idx)));
    }
    return te_end(L, t, e);
}

void lower_DeformConv(Lower *L) {
    Cx *c = L->cx;
    Tensor *x = in(L, 0), *wt = in(L, 1), *offset = in(L, 2), *bias = in(L, 3), *mask = in(L, 4);
    int n = x->rank - 2, nred = 0, r = 3;
    int64_t group = attr_i(L, "group", 1), og = attr_i(L, "offset_group", 1);
    Window w;
    Expr *taps = e_int(c, 1);
    Axis *red[MAX_RANK];
    if (n < 1 || wt->rank != x->rank || offset->rank != x->rank || (mask && mask->rank != x->rank))
        fail(L, "input, weights, offset and mask differ in rank");
    if (2 + 2 * n > MAX_RANK) unsupported(L, "a deformable convolution over %d axes", n);
    if (group < 1 || og < 1 || group > INT32_MAX || og > INT32_MAX)
        fail(L, "group is %lld, offset_group %lld", (long long)group, (long long)og);
    window_of_weights(L, &w, x, wt);
    window_place(L, &w, false);
    Expr *icg = wt->dim[1], *ocg = win_fdiv(L, wt->dim[0], group);
    Expr *per = win_fdiv(L, x->dim[1], og);
    check_eq(L, x->dim[1], e_muli(c, icg, group), "channels of input and weights differ");
    check_eq(L, wt->dim[0], e_muli(c, ocg, group), "output channels do not divide by group");
    check_eq(L, x->dim[1], e_muli(c, per, og), "channels do not divide by offset_group");
    for (int i = 0; i < n; i++) {
        taps = e_mul(c, taps, w.k[i]);
        check_eq(L, offset->dim[i + 2], w.out[i], "offset does not have the output's size");
        if (mask) check_eq(L, mask->dim[i + 2], w.out[i], "mask does not have the output's size");
    }
    check_eq(L, offset->dim[0], x->dim[0], "input and offset differ in batch size");
    check_eq(L, offset->dim[1], e_muli(c, taps, og * n), "offset has a wrong channel count");
    if (mask) {
        check_eq(L, mask->dim[0], x->dim[0], "input and mask differ in batch size");
        check_eq(L, mask->dim[1], e_muli(c, taps, og), "mask has a wrong channel count");
    }
    if (bias) {
        if (bias->rank != 1) fail(L, "the bias has rank %d, not 1", bias->rank);
        check_eq(L, bias->dim[0], wt->dim[0], "the bias is not one per output channel");
    }
    DType acc = x->dtype == DT_F64 ? DT_F64 : DT_F32;
    Tensor *col = deform_columns(L, x, offset, mask, &w, per, acc);

    Expr *dim[MAX_RANK] = {x->dim[0], e_int(c, group), ocg};
    for (int i = 0; i < n; i++) dim[r++] = w.out[i];
    Tensor *t = te_begin(L, x->dtype, r, dim);
    red[nred++] = axis_new(c, icg);
    Expr *g = ax(L, t, 1), *ic = e_axis(c, red[0]);
    Expr *ci[MAX_RANK] = {ax(L, t, 0), e_add(c, e_mul(c, g, icg), ic)};
    Expr *wi[MAX_RANK] = {e_add(c, e_mul(c, g, ocg), ax(L, t, 2)), ic};
    for (int i = 0; i < n; i++) {
        red[nred] = axis_new(c, w.k[i]);
        ci[2 + i] = wi[2 + i] = e_axis(c, red[nred++]);
        ci[2 + n + i] = ax(L, t, 3 + i);
    }
    Expr *e = e_mul(c, e_load(c, col, ci), e_cast(c, acc, e_load(c, wt, wi)));
    e = e_reduce(c, R_SUM, nred, red, e);
    if (bias) e = e_add(c, e, e_cast(c, acc, ld(L, bias, &wi[0])));
    t = te_end(L, t, e_cast(c, x->dtype, e));
    dim[1] = wt->dim[0];
    for (int i = 0; i < n; i++) dim[i + 2] = w.out[i];
    out(L, 0, t_reshape(L, t, n + 2, dim));
}
