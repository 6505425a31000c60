/* signal.c: DFT, STFT, window functions, MelWeightMatrix.
 *
 * A transform is a contraction with a matrix of cosines and sines: a tensor, folded to a constant,
 * if its size is known and moderate; else its elements are read from one period of a cosine. The
 * tensor says what it is, so that a pass can transform long rows by the factors of their length.
 */
#include "utask/ops/lowerings.h"
#include "utask/ops/window.h"

#define PI 3.14159265358979323846
#define MATRIX_MAX (INT64_C(1) << 21) /* the most elements of a transform matrix */

static DType acc_type(DType t) { return t == DT_F64 ? DT_F64 : DT_F32; }

/* ---- the transform matrix -------------------------------------------------------------------- */

/* Part `ci` (0 real, 1 imaginary) of input n contributes to part `co` of output k with the factor
 * cos(s * 2 pi k n / N + (co - ci) * pi / 2), where s = 1 forward and -1 inverse. Angles are
 * counted in steps of 1 / (4 N) turn, so that they are reduced exactly. */
typedef struct Basis {
    Expr *size;            /* N */
    bool inverse, half_in; /* half_in: inputs are the first N / 2 + 1 bins of a real signal */
    DType type;
    Tensor *window; /* factors of the inputs, or NULL */
    Tensor *matrix; /* [n, ci, k, co], or NULL */
    Tensor *period; /* cos over 4 N steps, when there is no matrix */
} Basis;

static Expr *angle_step(Lower *L, const Basis *b, Expr *n, Expr *ci, Expr *k, Expr *co) {
    Cx *c = L->cx;
    Expr *turn = e_muli(c, b->size, 4);
    Expr *j = e_muli(c, e_mul(c, n, k), b->inverse ? -4 : 4);
    j = e_add(c, j, e_mul(c, b->size, e_sub(c, co, ci)));
    return e_bin(c, E_MOD, j, turn);
}

/* cos of j steps of 1 / (4 N) turn, float64. */
static Expr *cosine(Lower *L, const Basis *b, Expr *j) {
    Cx *c = L->cx;
    Expr *turn = f64(L, e_muli(c, b->size, 4)), *odd = e_bin(c, E_MOD, j, e_muli(c, b->size, 2));
    Expr *v = e_un(c, E_COS, e_div(c, e_mul(c, num(L, 2 * PI), f64(L, j)), turn));
    return e_sel(c, e_eq(c, odd, b->size), num(L, 0), v); /* exactly 0 at right angles */
}

/* All other factors: 1 / N of the inverse, mirrored bins, the window. NULL: 1. */
static Expr *factor(Lower *L, const Basis *b, Expr *n, DType t) {
    Cx *c = L->cx;
    Expr *f = NULL;
    if (b->inverse) f = e_div(c, num(L, 1), f64(L, b->size));
    if (b->half_in) {
        Expr *once = e_or(c, e_eq(c, n, e_int(c, 0)), e_eq(c, e_muli(c, n, 2), b->size));
        f = e_mul(c, f, e_sel(c, once, num(L, 1), num(L, 2)));
    }
    if (f) f = e_cast(c, t, f);
    if (!b->window) return f;
    Expr *w = e_cast(c, t, ld(L, b->window, &n));
    return f ? e_mul(c, f, w) : w;
}

/* Makes the basis for nin inputs of `parts` numbers, nout outputs; a matrix if `use_matrix`. */
static void basis_make(Lower *L, Basis *b, Expr *nin, Expr *parts, Expr *nout, bool use_matrix) {
    Cx *c = L->cx;
    int64_t i, p, o;
    b->matrix = b->period = NULL;
    if (use_matrix && e_is_int(nin, &i) && e_is_int(parts, &p) && e_is_int(nout, &o) &&
        i <= MATRIX_MAX && o <= MATRIX_MAX && i * o * p * 2 <= MATRIX_MAX) {
        Expr *dim[4] = {nin, parts, nout, e_int(c, b->half_in ? 1 : 2)};
        Tensor *t = te_begin(L, b->type, 4, dim);
        Expr *n = ax(L, t, 0);
        Expr *j = angle_step(L, b, n, ax(L, t, 1), ax(L, t, 2), ax(L, t, 3));
        Expr *e = cosine(L, b, j), *f = factor(L, b, n, DT_F64);
        if (f) e = e_mul(c, e, f);
        b->matrix = table_end(L, t, e_cast(c, b->type, e));
        return;
    }
    Expr *turn = e_muli(c, b->size, 4);
    Tensor *t = te_begin(L, b->type, 1, &turn);
    b->period = table_end(L, t, e_cast(c, b->type, cosine(L, b, ax(L, t, 0))));
}

static Expr *basis_at(Lower *L, const Basis *b, Expr *n, Expr *ci, Expr *k, Expr *co) {
    if (b->matrix) {
        Expr *idx[4] = {n, ci, k, co};
        return e_load(L->cx, b->matrix, idx);
    }
    Expr *j = angle_step(L, b, n, ci, k, co), *f = factor(L, b, n, b->type);
    Expr *e = ld(L, b->period, &j);
    return f ? e_mul(L->cx, e, f) : e;
}

static void check_parts(Lower *L, Expr *parts) {
    Cx *c = L->cx;
    check(L, e_and(c, e_le(c, e_int(c, 1), parts), e_le(c, parts, e_int(c, 2))),
          "the last axis must hold a real and optionally an imaginary part (its size is %s)",
          said(L, parts));
}

/* ---- what the transform is ------------------------------------------------------------------- */
/* Tells passes that t is the transform of x: frames `step` apart, or (NULL) rows along `axis`. */
static Tensor *told(Lower *L, Tensor *t, const Basis *b, Tensor *x, int64_t axis, Expr *step) {
    int64_t n;
    if (t->kind != TK_TE || x->dtype != DT_F32 || !e_is_int(b->size, &n) || (step && !step->pure) ||
        (b->window && b->window->dtype != DT_F32))
        return t;
    Fourier *f = NEW(L->a, Fourier);
    *f = (Fourier){.x = x,
                   .window = b->window,
                   .axis = (int)axis,
                   .n = n,
                   .inverse = b->inverse,
                   .half = b->half_in,
                   .step = step ? step : e_int(L->cx, 0),
                   .site = site(L, "the transform fails")};
    t->fourier = f;
    return t;
}

/* ---- DFT ------------------------------------------------------------------------------------- */

/* The transform of x along `axis` (negative: from the end), truncated or zero-padded to `size`
 * (NULL: its length). onesided: returns half the spectrum of a real signal; the inverse takes
 * half. */
static Tensor *transform(Lower *L, Tensor *x, Expr *axis, Expr *size, bool inverse, bool onesided) {
    Cx *c = L->cx;
    int r = x->rank - 1, nred = 0; /* r: the axis of real and imaginary part */
    bool irfft = inverse && onesided;
    int64_t known;
    Expr *dim[MAX_RANK], *idx[MAX_RANK], *len = NULL, *half;
    Axis *red[2];
    if (r < 1) fail(L, "the input has rank %d; at least 2 is needed", x->rank);
    Expr *one = e_int(c, 1), *zero = e_int(c, 0), *parts = x->dim[r];
    check_parts(L, parts);

    /* the axis may be known only at run time: then lengths and indices select among the axes */
    Expr *asked = axis;
    axis = e_sel(c, e_lt(c, axis, zero), e_addi(c, axis, x->rank), axis);
    if (!e_is_int(axis, &known)) axis = let(L, "axis", axis, INT64_MIN);
    check(L, e_and(c, e_le(c, zero, axis), e_lt(c, axis, e_int(c, r))),
          "axis %s is outside [-%d, %d), the axes in front of the last one", said(L, asked),
          x->rank, r);
    bool fixed = e_is_int(axis, &known);
    for (int i = 0; i < r; i++)
        len = len ? e_sel(c, e_eq(c, axis, e_int(c, i)), x->dim[i], len) : x->dim[i];
    if (!size) size = irfft ? e_muli(c, e_addi(c, len, -1), 2) : len;
    check_le(L, one, size, "the length of the transform is not positive");
    half = e_addi(c, win_fdiv(L, size, 2), 1);

    Basis b = {.size = size, .inverse = inverse, .half_in = irfft, .type = acc_type(x->dtype)};
    Expr *nin = e_min(c, len, irfft ? half : size), *nout = onesided && !inverse ? half : size;
    for (int i = 0; i < r; i++) dim[i] = e_sel(c, e_eq(c, axis, e_int(c, i)), nout, x->dim[i]);
    dim[r] = e_int(c, irfft ? 1 : 2);
    basis_make(L, &b, nin, parts, nout, fixed);
    Tensor *t = te_begin(L, x->dtype, x->rank, dim);
    red[nred] = axis_new(c, nin);
    Expr *n = e_axis(c, red[nred++]), *ci = sum_axis(L, parts, red, &nred), *k = NULL;
    for (int i = 0; i < r; i++) {
        Expr *here = e_eq(c, axis, e_int(c, i));
        idx[i] = e_sel(c, here, n, ax(L, t, i));
        k = k ? e_sel(c, here, ax(L, t, i), k) : ax(L, t, i);
    }
    idx[r] = ci;
    Expr *e = e_cast(c, b.type, e_load(c, x, idx));
    e = e_mul(c, e, basis_at(L, &b, n, ci, k, ax(L, t, r)));
    t = te_end(L, t, e_cast(c, x->dtype, e_reduce(c, R_SUM, nred, red, e)));
    return fixed ? told(L, t, &b, x, known, NULL) : t;
}

void lower_DFT(Lower *L) {
    Expr *size = has_in(L, 1) ? uni_i64(L, in(L, 1), 0) : NULL;
    Expr *axis = has_in(L, 2) ? uni_i64(L, in(L, 2), 0) : e_int(L->cx, -2);
    bool inverse = attr_i(L, "inverse", 0) != 0, onesided = attr_i(L, "onesided", 0) != 0;
    out(L, 0, transform(L, in(L, 0), axis, size, inverse, onesided));
}

/* The first half of the spectrum of the last axis, with the complex parts in a new last axis. */
void lower_Rfft(Lower *L) {
    Tensor *x = in(L, 0);
    if (x->rank < 1) fail(L, "the input is a scalar");
    if (x->rank == MAX_RANK) unsupported(L, "a transform of rank %d", x->rank);
    out(L, 0, transform(L, t_unsqueeze(L, x, x->rank), e_int(L->cx, -2), NULL, false, true));
}

void lower_Irfft(Lower *L) {
    Tensor *x = in(L, 0);
    if (x->rank < 2) fail(L, "the input has rank %d; at least 2 is needed", x->rank);
    check_eq(L, x->dim[x->rank - 1], e_int(L->cx, 2),
             "the last axis must hold a real and an imaginary part");
    Tensor *y = transform(L, x, e_int(L->cx, -2), NULL, true, true);
    out(L, 0, t_squeeze(L, y, y->rank - 1));
}

void lower_STFT(Lower *L) {
    Cx *c = L->cx;
    Tensor *x = in(L, 0), *window = in(L, 2);
    bool onesided = attr_i(L, "onesided", 1) != 0;
    Expr *one = e_int(c, 1);
    Axis *red[2];
    int nred = 0;
    if (x->rank == 2) x = t_unsqueeze(L, x, 2); /* a form that exporters write */
    if (x->rank != 3) fail(L, "the signal has rank %d, not 3 or 2", x->rank);
    if (window && window->rank != 1) fail(L, "the window has rank %d, not 1", window->rank);
    Expr *step = uni_i64(L, in(L, 1), 0), *parts = x->dim[2];
    Expr *size = has_in(L, 3) ? uni_i64(L, in(L, 3), 0) : window ? window->dim[0] : x->dim[1];
    check_parts(L, parts);
    check_le(L, one, step, "frame_step is not positive");
    check_le(L, one, size, "the frame length is not positive");
    check_le(L, size, x->dim[1], "a frame is longer than the signal");

    Basis b = {.size = size, .window = window, .type = acc_type(x->dtype)};
    Expr *nin = window ? e_min(c, window->dim[0], size) : size;
    Expr *nout = onesided ? e_addi(c, win_fdiv(L, size, 2), 1) : size;
    Expr *frames = e_addi(c, e_bin(c, E_FDIV, e_sub(c, x->dim[1], size), step), 1);
    Expr *dim[4] = {x->dim[0], frames, nout, e_int(c, 2)};
    basis_make(L, &b, nin, parts, nout, true);
    Tensor *t = te_begin(L, x->dtype, 4, dim);
    red[nred] = axis_new(c, nin);
    Expr *n = e_axis(c, red[nred++]), *ci = sum_axis(L, parts, red, &nred);
    Expr *idx[3] = {ax(L, t, 0), e_add(c, e_mul(c, ax(L, t, 1), step), n), ci};
    Expr *e = e_cast(c, b.type, e_load(c, x, idx));
    e = e_mul(c, e, basis_at(L, &b, n, ci, ax(L, t, 2), ax(L, t, 3)));
    t = te_end(L, t, e_cast(c, x->dtype, e_reduce(c, R_SUM, nred, red, e)));
    out(L, 0, told(L, t, &b, x, 1, step));
}

/* ---- tables ---------------------------------------------------------------------------------- */

static DType output_datatype(Lower *L) {
    int64_t t = attr_i(L, "output_datatype", DT_F32);
    if (t < 0 || t > 64 || !dtype_supported((int)t) || t == DT_BOOL || dtype_small((DType)t))
        unsupported(L, "output_datatype %lld", (long long)t);
    return (DType)t;
}

/* a - b cos(2 pi n / N) + d cos(4 pi n / N) */
static void cosine_window(Lower *L, double a, double b, double d) {
    Cx *c = L->cx;
    DType type = output_datatype(L);
    Expr *size = uni_i64(L, in(L, 0), 0);
    check_le(L, e_int(c, 0), size, "the size of the window is negative");
    Expr *period = f64(L, attr_i(L, "periodic", 1) ? size : e_addi(c, size, -1));
    Tensor *t = te_begin(L, type, 1, &size);
    Expr *n = f64(L, ax(L, t, 0));
    Expr *x = e_un(c, E_COS, e_div(c, e_mul(c, n, num(L, 2 * PI)), period));
    Expr *e = e_sub(c, num(L, a), e_mul(c, num(L, b), x));
    if (d != 0) {
        Expr *y = e_un(c, E_COS, e_div(c, e_mul(c, n, num(L, 4 * PI)), period));
        e = e_add(c, e, e_mul(c, num(L, d), y));
    }
    out(L, 0, table_end(L, t, e_cast(c, type, e)));
}

void lower_HannWindow(Lower *L) { cosine_window(L, 0.5, 0.5, 0); }
void lower_HammingWindow(Lower *L) { cosine_window(L, 25.0 / 46, 21.0 / 46, 0); }
void lower_BlackmanWindow(Lower *L) { cosine_window(L, 0.42, 0.5, 0.08); }

/* 2595 log10(1 + hz / 700), rounded to float32. */
static Expr *mel(Lower *L, Expr *hz) {
    Cx *c = L->cx;
    Expr *r = e_add(c, e_div(c, e_cast(c, DT_F32, hz), e_num(c, DT_F32, 700)), e_num(c, DT_F32, 1));
    Expr *m = e_mul(c, num(L, 2595 / 2.302585092994045684), e_un(c, E_LOG, f64(L, r)));
    return f64(L, e_cast(c, DT_F32, m));
}

void lower_MelWeightMatrix(Lower *L) {
    Cx *c = L->cx;
    DType type = output_datatype(L);
    Expr *bands = uni_i64(L, in(L, 0), 0), *size = uni_i64(L, in(L, 1), 0), *one = num(L, 1);
    Expr *rate = uni_i64(L, in(L, 2), 0), *zero = e_int(c, 0), *edge[3];
    check_le(L, zero, bands, "num_mel_bins is negative");
    check_le(L, zero, size, "dft_length is negative");
    check_lt(L, zero, rate, "sample_rate is not positive");
    Expr *low = mel(L, uni(L, in(L, 3), 0)), *high = mel(L, uni(L, in(L, 4), 0));
    Expr *step = e_div(c, e_sub(c, high, low), f64(L, e_addi(c, bands, 2)));
    step = f64(L, e_cast(c, DT_F32, step));

    Expr *dim[2] = {e_addi(c, win_fdiv(L, size, 2), 1), bands};
    Tensor *t = te_begin(L, type, 2, dim);
    Expr *j = ax(L, t, 0);
    for (int i = 0; i < 3; i++) { /* spectrum bins of a band's left end, centre, right end */
        Expr *m = e_mul(c, f64(L, e_addi(c, ax(L, t, 1), i)), step);
        m = e_div(c, e_add(c, m, low), num(L, 2595));
        Expr *hz = e_mul(c, num(L, 700), e_sub(c, e_bin(c, E_POW, num(L, 10), m), one));
        Expr *bin = e_div(c, e_mul(c, f64(L, e_addi(c, size, 1)), hz), f64(L, rate));
        edge[i] = e_cast(c, DT_I64, e_un(c, E_FLOOR, bin));
    }
    Expr *up = e_sub(c, edge[1], edge[0]), *down = e_sub(c, edge[2], edge[1]);
    Expr *rise = e_div(c, f64(L, e_sub(c, j, edge[0])), f64(L, up));
    Expr *fall = e_div(c, f64(L, e_sub(c, edge[2], j)), f64(L, down));
    Expr *rising = e_and(c, e_le(c, edge[0], j), e_le(c, j, edge[1]));
    Expr *falling = e_and(c, e_le(c, edge[1], j), e_lt(c, j, edge[2]));
    Expr *spike = e_sel(c, e_eq(c, j, edge[1]), one, num(L, 0));
    Expr *e = e_sel(c, e_eq(c, up, zero), spike, e_sel(c, rising, rise, num(L, 0)));
    e = e_sel(c, falling, fall, e);
    out(L, 0, table_end(L, t, e_cast(c, type, e)));
}
