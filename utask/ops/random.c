/* random.c: operators that draw random numbers. Element i of a node's output depends only on its
 * key and i (utask/draw.c): the same bits on every target. */
#include "utask/lower_internal.h"
#include "utask/ops/elementwise.h"
#include "utask/ops/nn.h"

#define COUNT_MAX ((int64_t)1 << 46) /* limit on elements if the shape is an attribute */

/* ---- numbers --------------------------------------------------------------------------------- */
static Expr *shifted(Lower *L, Expr *bits, int by) {
    return e_bin(L->cx, E_SHR, bits, e_ci(L->cx, DT_U64, by));
}

/* 64 random bits (uint64) for the element of y at its axes. With the attribute seed the numbers are
 * the same in every run, whatever else is in the model. */
static Expr *bits_at(Lower *L, Tensor *y) {
    Cx *c = L->cx;
    Expr *idx[MAX_RANK], *key = e_seed(c), *place;
    const Attr *seed = node_attr(L->node, "seed");
    if (seed) {
        int64_t given = seed->kind == AT_INT ? seed->i : 0;
        if (seed->kind == AT_FLOAT) memcpy(&given, &seed->f, sizeof seed->f);
        key = e_ci(c, DT_U64, given);
        place = draw_call_place(L);
    } else
        place = draw_place(L);
    L->p->draws = true;
    all_axes(L, y, idx);
    Expr *at = flat_index(L, y->rank, y->dim, idx);
    return e_draw(c, e_draw(c, key, place), e_cast(c, DT_U64, at));
}

/* Uniform in [0, 1): the upper 24 (float32) or 53 (float64) of 64 bits. */
static Expr *unit(Lower *L, DType t, Expr *bits) {
    Cx *c = L->cx;
    bool twice = t == DT_F64;
    Expr *n = e_cast(c, twice ? DT_I64 : DT_I32, shifted(L, bits, twice ? 11 : 40));
    return e_mul(c, e_cast(c, t, n), e_num(c, t, twice ? 0x1p-53 : 0x1p-24));
}

/* Standard normal by the Box-Muller transform: radius from the upper, angle from the lower half. */
static Expr *normal(Lower *L, DType t, Expr *bits) {
    Cx *c = L->cx;
    bool twice = t == DT_F64;
    int cut = twice ? 0 : 8; /* bits that do not fit in a float32 */
    DType whole = twice ? DT_I64 : DT_I32;
    Expr *step = e_num(c, t, twice ? 0x1p-32 : 0x1p-24);
    Expr *low = e_bin(c, E_AND, shifted(L, bits, cut), e_ci(c, DT_U64, UINT32_MAX >> cut));
    Expr *u = e_cast(c, t, e_cast(c, whole, shifted(L, bits, 32 + cut)));
    Expr *v = e_cast(c, t, e_cast(c, whole, low));
    u = e_mul(c, e_add(c, u, e_num(c, t, 1)), step); /* in (0, 1] */
    v = e_mul(c, v, e_mul(c, step, e_num(c, t, 6.283185307179586)));
    Expr *radius = e_un(c, E_SQRT, e_mul(c, e_num(c, t, -2), e_un(c, E_LOG, u)));
    return e_mul(c, radius, e_un(c, E_COS, v));
}

/* ---- tensors of random numbers --------------------------------------------------------------- */
static DType dtype_attr(Lower *L, DType dflt) {
    int64_t t = attr_i(L, "dtype", dflt);
    if (t <= 0 || t > INT32_MAX || !dtype_supported((int)t))
        unsupported(L, "dtype %s (type number %lld)",
                    t > 0 && t < 64 ? dtype_name((int)t) : "of an unknown type", (long long)t);
    return (DType)t;
}

static void distribution(Lower *L, DType t, int rank, Expr *const *dim, bool is_normal) {
    Cx *c = L->cx;
    if (!dtype_is_float(t)) fail(L, "dtype is %s, random numbers are floats", dtype_name(t));
    DType w = wide_float(t);
    double first = attr_f(L, is_normal ? "mean" : "low", 0);
    double width = is_normal ? attr_f(L, "scale", 1) : attr_f(L, "high", 1) - first;
    Tensor *y = te_begin(L, t, rank, dim);
    Expr *bits = bits_at(L, y);
    Expr *x = is_normal ? normal(L, w, bits) : unit(L, w, bits);
    x = e_add(c, e_mul(c, x, e_num(c, w, width)), e_num(c, w, first));
    out(L, 0, te_end(L, y, e_cast(c, t, x)));
}

static void by_shape(Lower *L, bool is_normal) {
    Expr *dim[MAX_RANK];
    int n;
    int64_t total = 1;
    const int64_t *shape = attr_ints(L, "shape", &n);
    if (n < 0) fail(L, "attribute 'shape' is missing");
    if (n > MAX_RANK) unsupported(L, "rank %d; %d is the highest", n, MAX_RANK);
    for (int i = 0; i < n; i++) {
        if (shape[i] < 0 || shape[i] > COUNT_MAX || (shape[i] && total > COUNT_MAX / shape[i]))
            fail(L, "attribute 'shape' has the size %lld", (long long)shape[i]);
        if (shape[i]) total *= shape[i];
        dim[i] = e_int(L->cx, shape[i]);
    }
    distribution(L, dtype_attr(L, DT_F32), n, dim, is_normal);
}

static void by_like(Lower *L, bool is_normal) {
    Tensor *x = in_needed(L, 0);
    distribution(L, dtype_attr(L, x->dtype), x->rank, x->dim, is_normal);
}

void lower_RandomNormal(Lower *L) { by_shape(L, true); }
void lower_RandomUniform(Lower *L) { by_shape(L, false); }
void lower_RandomNormalLike(Lower *L) { by_like(L, true); }
void lower_RandomUniformLike(Lower *L) { by_like(L, false); }

/* ---- choices --------------------------------------------------------------------------------- */
void lower_Bernoulli(Lower *L) {
    Cx *c = L->cx;
    Tensor *p = in_needed(L, 0);
    DType t = dtype_attr(L, p->dtype), w = wide_float(p->dtype);
    Expr *v;
    Tensor *y = te_like(L, t, p, &v);
    Expr *one = e_lt(c, unit(L, w, bits_at(L, y)), e_cast(c, w, v));
    out(L, 0, te_end(L, y, e_sel(c, one, e_num(c, t, 1), e_num(c, t, 0))));
}

/* The class whose part of [0, sum) holds a uniform number: the number of classes below it. */
void lower_Multinomial(Lower *L) {
    Cx *c = L->cx;
    Tensor *x = in_needed(L, 0);
    int64_t n = attr_i(L, "sample_size", 1);
    DType t = dtype_attr(L, DT_I32);
    if (x->rank != 2) fail(L, "the input has rank %d, not 2", x->rank);
    if (n < 0 || n > COUNT_MAX) fail(L, "sample_size %lld is out of range", (long long)n);
    if (t != DT_I32 && t != DT_I64) fail(L, "dtype is %s, not int32 or int64", dtype_name(t));
    check(L, e_lt(c, e_int(c, 0), x->dim[1]), "there are no classes");
    DType w = wide_float(x->dtype);
    x = t_cast(L, w, x);
    x = t_un(L, E_EXP, t_bin(L, E_SUB, x, t_reduce(L, R_MAX, x, 2, true)));
    Expr *param[] = {e_int(c, 1), e_int(c, 0), e_int(c, 0), e_int(c, 0)};
    Tensor *sum = ext_like(L, "cumulate", 1, &x, 4, param, x, "the axis is out of range");
    Expr *dim[] = {x->dim[0], e_int(c, n)};
    Tensor *y = te_begin(L, t, 2, dim);
    Expr *row = ax(L, y, 0);
    Expr *total = ld(L, sum, (Expr *[]){row, e_addi(c, x->dim[1], -1)});
    Expr *point = e_mul(c, unit(L, w, bits_at(L, y)), total);
    Axis *k = axis_new(c, x->dim[1]);
    Expr *below = e_le(c, ld(L, sum, (Expr *[]){row, e_axis(c, k)}), point);
    Expr *counted = e_sel(c, below, e_num(c, t, 1), e_num(c, t, 0));
    out(L, 0, te_end(L, y, e_reduce(c, R_SUM, 1, &k, counted)));
}

/* In training an element is kept with probability 1 - ratio, and divided by it. */
void lower_Dropout(Lower *L) {
    Cx *c = L->cx;
    Tensor *x = in_needed(L, 0), *ratio = in(L, 1), *mode = in(L, 2);
    DType w = wide_float(x->dtype);
    Expr *train = e_bool(c, false), *r = e_num(c, w, 0.5);
    if (mode) {
        check(L, e_eq(c, count(L, mode), e_int(c, 1)), "training_mode must be one value");
        train = uni(L, mode, 0);
    }
    if (ratio && !e_is_ival(train, 0)) {
        check(L, e_eq(c, count(L, ratio), e_int(c, 1)), "ratio must be one value");
        r = e_cast(c, w, uni(L, ratio, 0));
        Expr *good = e_and(c, e_le(c, e_num(c, w, 0), r), e_lt(c, r, e_num(c, w, 1)));
        check(L, e_or(c, e_not(c, train), good), "ratio is outside of [0, 1)");
    }
    train = e_and(c, train, e_lt(c, e_num(c, w, 0), r));
    if (e_is_ival(train, 0)) {
        out(L, 0, x);
        if (wants_out(L, 1))
            out(L, 1, te_end(L, te_begin(L, DT_BOOL, x->rank, x->dim), e_bool(c, true)));
        return;
    }
    Expr *v, *idx[MAX_RANK];
    Tensor *mask = te_begin(L, DT_BOOL, x->rank, x->dim);
    Expr *drawn = e_le(c, r, unit(L, w, bits_at(L, mask)));
    mask = te_end(L, mask, e_or(c, e_not(c, train), drawn));
    Tensor *y = te_like(L, x->dtype, x, &v);
    all_axes(L, y, idx);
    Expr *one = e_num(c, w, 1), *scale = e_div(c, one, e_sub(c, one, r));
    scale = e_sel(c, train, scale, one);
    v = e_cast(c, x->dtype, e_mul(c, e_cast(c, w, v), scale));
    out(L, 0, te_end(L, y, e_sel(c, ld(L, mask, idx), v, e_num(c, x->dtype, 0))));
    out(L, 1, mask);
}
