/* conv.c: Conv, ConvTranspose, ConvInteger, QLinearConv.
 *
 * Each is one plain contraction: the sum over input channels and kernel positions of a product of
 * two loads with affine indices, of 8-bit integers less their zero points. Padding is a tensor of
 * its own: the product contains no select.
 */
#include "utask/ops/conv.h"
#include "utask/ops/elementwise.h"
#include "utask/ops/lowerings.h"
#include "utask/ops/quantize.h"
#include "utask/ops/size.h"
#include "utask/ops/window.h"

typedef struct Conv {
    Tensor *x, *w, *bias; /* bias may be NULL */
    int64_t group;
    Expr *icg, *ocg; /* channels of a group */
    Expr *oc;
    Window win;
    DType acc, type; /* the sum is computed in acc; the result has `type` */
    /* Of 8-bit integers; NULL: 0. One number; one number or one for each output channel. */
    Tensor *xzero, *wzero;
} Conv;

/* Checks ranks and channels. The weights are [oc, icg, k…], transposed [ic, ocg, k…]. */
static void conv_read(Lower *L, Conv *v, Tensor *x, Tensor *w, Tensor *bias, bool transposed) {
    Cx *c = L->cx;
    if (x->rank < 3) fail(L, "the input has rank %d; at least 3 is needed", x->rank);
    if (w->rank != x->rank)
        fail(L, "the weights have rank %d, the input has rank %d", w->rank, x->rank);
    v->x = x;
    v->w = w;
    v->bias = bias;
    v->type = x->dtype;
    v->acc = wide_float(x->dtype);
    v->group = attr_i(L, "group", 1);
    if (v->group < 1 || v->group > (INT64_C(1) << 31))
        fail(L, "attribute group is %lld", (long long)v->group);

    Expr *whole = transposed ? x->dim[1] : w->dim[0];
    Expr *part = win_fdiv(L, whole, v->group);
    check(L, e_eq(c, e_muli(c, part, v->group), whole),
          "the number of channels, %s, is not a multiple of group, %lld", said(L, whole),
          (long long)v->group);
    if (transposed) {
        check_eq(L, w->dim[0], x->dim[1], "the weights do not have one row per input channel");
        v->icg = part;
        v->ocg = w->dim[1];
        v->oc = e_muli(c, v->ocg, v->group);
    } else {
        v->icg = w->dim[1];
        check_eq(L, x->dim[1], e_muli(c, v->icg, v->group),
                 "the input's channels are not group times those of the weights");
        v->ocg = part;
        v->oc = whole;
    }
    if (bias) {
        if (bias->rank != 1) fail(L, "the bias has rank %d, not 1", bias->rank);
        check_eq(L, bias->dim[0], v->oc, "the bias does not have one value per output channel");
    }

    window_of_weights(L, &v->win, x, w);
}

/* v->x with its spatial axes extended to `dim`, element 0 of it at `lo`; zero elsewhere. */
static Tensor *pad_spatial(Lower *L, const Conv *v, Expr *const *lo, Expr *const *dim) {
    Cx *c = L->cx;
    Tensor *x = v->x;
    Expr *d[MAX_RANK] = {x->dim[0], x->dim[1]}, *idx[MAX_RANK], *ok = e_bool(c, true);
    bool same = true;
    for (int i = 2; i < x->rank; i++) {
        d[i] = dim[i - 2];
        same = same && e_is_ival(lo[i - 2], 0) && d[i] == x->dim[i];
    }
    if (same) return x;
    Tensor *t = te_indexed(L, x->dtype, x->rank, d, idx);
    for (int i = 2; i < x->rank; i++) {
        idx[i] = e_sub(c, idx[i], lo[i - 2]);
        if (!e_is_ival(lo[i - 2], 0)) ok = e_and(c, ok, e_le(c, e_int(c, 0), idx[i]));
        if (d[i] != e_add(c, x->dim[i], lo[i - 2])) ok = e_and(c, ok, e_lt(c, idx[i], x->dim[i]));
    }
    Expr *zero = v->xzero ? only_element(L, v->xzero, "a zero point") : e_num(c, x->dtype, 0);
    return te_end(L, t, e_sel(c, ok, ld(L, x, idx), zero));
}

/* How the output's channel axis is written: one axis, or (group, channel of the group). */
static bool split_channels(const Conv *v) { return v->group > 1 && !e_is_ival(v->ocg, 1); }

/* Sizes of the result's axes in front of the spatial ones; how many there are. */
static int channel_dims(Lower *L, const Conv *v, Expr **dim) {
    dim[0] = v->x->dim[0];
    dim[1] = v->oc;
    if (!split_channels(v)) return 2;
    dim[1] = e_int(L->cx, v->group);
    dim[2] = v->ocg;
    return 3;
}

/* The channel of x that is channel ic of the group in which channel t's axis 1 is. */
static Expr *input_channel(Lower *L, const Conv *v, Tensor *t, Expr *ic) {
    return v->group == 1 ? ic : e_add(L->cx, e_mul(L->cx, ax(L, t, 1), v->icg), ic);
}

/* Element idx of a factor less its zero point, in v->acc. */
static Expr *conv_factor(Lower *L, const Conv *v, Tensor *t, Expr **idx, Expr *zero) {
    Expr *e = e_cast(L->cx, v->acc, e_load(L->cx, t, idx));
    return zero ? e_sub(L->cx, e, e_cast(L->cx, v->acc, zero)) : e;
}

/* sum over (axis) of x[xi] * w[wi], plus the bias of channel oc. */
static Expr *conv_sum(Lower *L, const Conv *v, Tensor *x, Expr **xi, Tensor *w, Expr **wi, int n,
                      Axis **axis, Expr *oc) {
    Cx *c = L->cx;
    Expr *xz = v->xzero ? only_element(L, v->xzero, "a zero point") : NULL, *wz = NULL;
    if (v->wzero) wz = one_or_each(L, v->wzero, oc, v->oc, "a zero point of the weights");
    Expr *y = e_mul(c, conv_factor(L, v, x, xi, xz), conv_factor(L, v, w, wi, wz));
    if (n) y = e_reduce(c, R_SUM, n, axis, y);
    if (v->bias) y = e_add(c, y, e_cast(c, v->acc, ld(L, v->bias, &oc)));
    return e_cast(c, v->type, y);
}

/* Convolution with the windows v->win, after window_place. */
static Tensor *conv_forward(Lower *L, const Conv *v) {
    Cx *c = L->cx;
    const Window *w = &v->win;
    Expr *padded[MAX_RANK], *dim[MAX_RANK];
    Axis *red[MAX_RANK];
    int nred = 0;
    for (int i = 0; i < w->n; i++) padded[i] = e_add(c, w->in[i], e_add(c, w->lo[i], w->hi[i]));
    Tensor *x = pad_spatial(L, v, w->lo, padded);

    bool split = split_channels(v);
    int r = channel_dims(L, v, dim);
    if (r + w->n > MAX_RANK) unsupported(L, "a convolution over %d axes", w->n);
    for (int i = 0; i < w->n; i++) dim[r + i] = w->out[i];

    Tensor *t = te_begin(L, v->type, r + w->n, dim);
    Expr *oc = split ? e_add(c, e_mul(c, ax(L, t, 1), v->ocg), ax(L, t, 2)) : ax(L, t, 1);
    Expr *ic = sum_axis(L, v->icg, red, &nred);
    Expr *xi[MAX_RANK] = {ax(L, t, 0), input_channel(L, v, t, ic)}, *wi[MAX_RANK] = {oc, ic};
    for (int i = 0; i < w->n; i++) {
        Expr *k = sum_axis(L, w->k[i], red, &nred);
        wi[i + 2] = k;
        xi[i + 2] = e_add(c, e_muli(c, ax(L, t, r + i), w->stride[i]), e_muli(c, k, w->dil[i]));
    }
    t = te_end(L, t, conv_sum(L, v, x, xi, v->w, wi, nred, red, oc));
    if (!split) return t;
    dim[1] = v->oc;
    for (int i = 0; i < w->n; i++) dim[i + 2] = w->out[i];
    return t_reshape(L, t, w->n + 2, dim);
}

Tensor *t_conv(Lower *L, Tensor *x, Tensor *w, Tensor *bias) {
    Conv v = {0};
    conv_read(L, &v, x, w, bias, false);
    window_place(L, &v.win, false);
    return conv_forward(L, &v);
}

void lower_Conv(Lower *L) { out(L, 0, t_conv(L, in(L, 0), in(L, 1), in(L, 2))); }

/* ---- transposed ------------------------------------------------------------------------------ */

/* Sets lo and out for a transposed convolution, which spreads `in` inputs over `out` results. */
static void transposed_place(Lower *L, Conv *v) {
    Cx *c = L->cx;
    Window *w = &v->win;
    int n = w->n, have;
    int64_t extra[MAX_RANK], shape[MAX_RANK];
    const int64_t *given = attr_ints(L, "output_shape", &have);
    window_ints(L, "output_padding", n, 0, 0, extra);
    if (have == n + 2) { /* older exporters wrote batch and channels too */
        for (int i = 0; i < n; i++) shape[i] = given[i + 2];
    } else if (have >= 0) {
        window_ints(L, "output_shape", n, 1, 0, shape);
    }
    for (int i = 0; i < n; i++) {
        Expr *full = e_add(c, e_muli(c, e_addi(c, w->in[i], -1), w->stride[i]),
                           e_addi(c, w->span[i], extra[i]));
        check_le(L, e_int(c, 1), w->k[i], "spatial axis %d of the kernel is empty", i);
        if (have >= 0 || w->mode == PAD_SAME_UPPER || w->mode == PAD_SAME_LOWER) {
            w->out[i] = have >= 0 ? e_int(c, shape[i]) : e_muli(c, w->in[i], w->stride[i]);
            if (have >= 0 && (shape[i] < 0 || shape[i] > INT32_MAX))
                fail(L, "attribute output_shape has the value %lld", (long long)shape[i]);
            window_split(L, w, i, e_max(c, e_sub(c, full, w->out[i]), e_int(c, 0)));
            continue;
        }
        int64_t lo, hi;
        if (e_is_int(w->lo[i], &lo) && e_is_int(w->hi[i], &hi) && (lo < 0 || hi < 0))
            fail(L, "pads of a transposed convolution are negative");
        w->out[i] = e_sub(c, full, e_add(c, w->lo[i], w->hi[i]));
        check_le(L, e_int(c, 0), w->out[i], "pads leave nothing of spatial axis %d", i);
    }
}

/* The weights with kernel position p = stride * (taps - 1 - t) + r at [ic, ocg, t…, r…] (r only for
 * axes with a stride), zero where dilation leaves a hole. With stride 1: p = dil * (k - 1 - t). */
static Tensor *transposed_weights(Lower *L, const Conv *v, Expr *const *taps, int *phase) {
    Cx *c = L->cx;
    const Window *w = &v->win;
    Expr *dim[MAX_RANK] = {v->w->dim[0], v->w->dim[1]}, *ok = e_bool(c, true);
    int r = 2 + w->n;
    for (int i = 0; i < w->n; i++) dim[i + 2] = taps[i];
    for (int i = 0; i < w->n; i++) {
        phase[i] = -1;
        if (w->stride[i] == 1) continue;
        if (r >= MAX_RANK) unsupported(L, "a strided transposed convolution over %d axes", w->n);
        phase[i] = r;
        dim[r++] = e_int(c, w->stride[i]);
    }
    Tensor *t = te_begin(L, v->w->dtype, r, dim);
    Expr *wi[MAX_RANK] = {ax(L, t, 0), ax(L, t, 1)};
    for (int i = 0; i < w->n; i++) {
        Expr *back = e_sub(c, e_addi(c, taps[i], -1), ax(L, t, i + 2));
        wi[i + 2] = back;
        if (phase[i] < 0) continue;
        Expr *p = e_add(c, e_muli(c, back, w->stride[i]), ax(L, t, phase[i]));
        Expr *d = e_int(c, w->dil[i]);
        wi[i + 2] = e_bin(c, E_FDIV, p, d);
        ok = e_and(c, ok, e_lt(c, p, w->span[i]));
        ok = e_and(c, ok, e_eq(c, e_bin(c, E_MOD, p, d), e_int(c, 0)));
    }
    return table_end(L, t, e_sel(c, ok, ld(L, v->w, wi), e_num(c, v->w->dtype, 0)));
}

/* y[o] = sum of x[i] * w[k] over i * stride + k * dil = o + lo. With u = o + lo = q * stride + r,
 * phase r uses the kernel positions stride * t + r and reads x at q - t: a contraction over t with
 * output axes q and r, which together form u. */
static Tensor *conv_transposed(Lower *L, const Conv *v) {
    Cx *c = L->cx;
    const Window *w = &v->win;
    Expr *taps[MAX_RANK], *step[MAX_RANK], *q[MAX_RANK], *front[MAX_RANK], *xdim[MAX_RANK];
    Expr *dim[MAX_RANK];
    Axis *red[MAX_RANK];
    int nred = 0, phase[MAX_RANK], qaxis[MAX_RANK];
    int64_t lo, hi;
    for (int i = 0; i < w->n; i++) {
        int64_t s = w->stride[i];
        taps[i] = s == 1 ? w->k[i] : win_cdiv(L, w->span[i], s);
        step[i] = e_int(c, s == 1 ? w->dil[i] : 1);
        q[i] = win_cdiv(L, e_add(c, w->lo[i], w->out[i]), s);
        front[i] = e_mul(c, e_addi(c, taps[i], -1), step[i]);
        xdim[i] = e_add(c, q[i], front[i]);
        if (e_is_ival(front[i], 0) && e_range(e_sub(c, q[i], w->in[i]), &lo, &hi) && hi <= 0)
            xdim[i] = w->in[i];
    }
    Tensor *x = pad_spatial(L, v, front, xdim);
    Tensor *wt = transposed_weights(L, v, taps, phase);

    bool split = split_channels(v);
    int r = channel_dims(L, v, dim);
    for (int i = 0; i < w->n; i++) {
        if (r + 1 + (phase[i] >= 0) > MAX_RANK)
            unsupported(L, "a strided transposed convolution over %d axes", w->n);
        qaxis[i] = r;
        dim[r++] = q[i];
        if (phase[i] >= 0) dim[r++] = e_int(c, w->stride[i]);
    }
    Tensor *t = te_begin(L, v->type, r, dim);
    Expr *oc = split ? e_add(c, e_mul(c, ax(L, t, 1), v->ocg), ax(L, t, 2)) : ax(L, t, 1);
    Expr *ic = sum_axis(L, v->icg, red, &nred);
    Expr *xi[MAX_RANK] = {ax(L, t, 0), input_channel(L, v, t, ic)}, *wi[MAX_RANK] = {xi[1]};
    wi[1] = split ? ax(L, t, 2) : v->group == 1 ? oc : e_int(c, 0);
    for (int i = 0; i < w->n; i++) {
        Expr *k = sum_axis(L, taps[i], red, &nred);
        wi[i + 2] = k;
        xi[i + 2] = e_add(c, ax(L, t, qaxis[i]), e_mul(c, k, step[i]));
        if (phase[i] >= 0) wi[phase[i]] = ax(L, t, qaxis[i] + 1);
    }
    t = te_end(L, t, conv_sum(L, v, x, xi, wt, wi, nred, red, oc));

    dim[1] = v->oc;
    for (int i = 0; i < w->n; i++) dim[i + 2] = e_muli(c, q[i], w->stride[i]);
    if (t->rank != w->n + 2) t = t_reshape(L, t, w->n + 2, dim);
    for (int i = 0; i < w->n; i++)
        if (!e_is_ival(w->lo[i], 0) || t->dim[i + 2] != w->out[i])
            t = t_slice(L, t, i + 2, w->lo[i], e_int(c, 1), w->out[i]);
    return t;
}

void lower_ConvTranspose(Lower *L) {
    Conv v = {0};
    conv_read(L, &v, in(L, 0), in(L, 1), in(L, 2), true);
    transposed_place(L, &v);
    out(L, 0, conv_transposed(L, &v));
}

/* ConvTranspose with pads that are data. */
void lower_ConvTransposeWithDynamicPads(Lower *L) {
    Conv v = {0};
    conv_read(L, &v, in(L, 0), in(L, 1), in(L, 3), true);
    Window *w = &v.win;
    if (has_in(L, 2)) {
        if (w->mode != PAD_NOTSET) fail(L, "both Pads and auto_pad are given");
        Vec pads = vec_in(L, 2, 2 * w->n, 2 * MAX_RANK, "Pads");
        if (pads.n != 2 * w->n) fail(L, "Pads must have %d elements, not %d", 2 * w->n, pads.n);
        for (int i = 0; i < w->n; i++) {
            w->lo[i] = size_uni(L, "pad", vec_at(L, &pads, i, NULL));
            w->hi[i] = size_uni(L, "pad", vec_at(L, &pads, i + w->n, NULL));
        }
    }
    transposed_place(L, &v);
    out(L, 0, conv_transposed(L, &v));
}

/* ---- integers -------------------------------------------------------------------------------- */

/* The convolution of 8-bit integers x and w less their zero points (NULL: 0), plus a bias, in
 * int32.
 */
static Tensor *conv_bytes(Lower *L, Tensor *x, Tensor *xzero, Tensor *w, Tensor *wzero,
                          Tensor *bias) {
    Conv v = {.xzero = xzero, .wzero = wzero};
    conv_read(L, &v, x, w, bias, false);
    v.acc = v.type = DT_I32;
    window_place(L, &v.win, false);
    return conv_forward(L, &v);
}

void lower_ConvInteger(Lower *L) {
    out(L, 0, conv_bytes(L, in(L, 0), in(L, 2), in(L, 1), in(L, 3), NULL));
}

/* y = saturate(round(sum * (x_scale * w_scale / y_scale)) + y_zero_point) */
static void quantized_conv(Lower *L, bool channels_last) {
    Cx *c = L->cx;
    Tensor *x = in(L, 0), *w = in(L, 3), *yz = in(L, 7);
    Tensor *bias = in(L, 8);
    DType to = yz->dtype;
    if (dtype_size(to) != 1 || to == DT_BOOL) unsupported(L, "an output of %s", dtype_name(to));
    if (channels_last) x = t_channels_first(L, x);
    if (bias) bias = t_cast(L, DT_I32, bias);
    Tensor *sum = conv_bytes(L, x, in(L, 2), w, in(L, 5), bias);

    Expr *idx[MAX_RANK];
    Tensor *t = te_indexed(L, to, sum->rank, sum->dim, idx);
    Expr *xs = only_element(L, in(L, 1), "x_scale"), *ys = only_element(L, in(L, 6), "y_scale");
    Expr *ws = one_or_each(L, in(L, 4), idx[1], w->dim[0], "w_scale");
    Expr *z = e_cast(c, DT_F32, only_element(L, yz, "y_zero_point"));
    Expr *scale = e_div(c, e_mul(c, xs, ws), ys);
    Expr *y = e_mul(c, e_cast(c, DT_F32, ld(L, sum, idx)), scale);
    t = te_end(L, t, quantized(L, to, y, z));
    out(L, 0, channels_last ? t_channels_last(L, t) : t);
}

void lower_QLinearConv(Lower *L) { quantized_conv(L, false); }
void lower_MsQLinearConv(Lower *L) { quantized_conv(L, attr_i(L, "channels_last", 0) != 0); }
