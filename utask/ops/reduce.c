/* reduce.c: reductions over axes, positions of extremes, the softmax family. */
#include <math.h>

#include "utask/ops/nn.h"
#include "utask/ops/size.h"

/* The axes of a reduction: a mask if they are known at compile time, else a condition for each. */
typedef struct Reduction {
    int rank;
    bool keep;    /* the operator's keepdims */
    bool dynamic; /* on[] is valid instead of mask */
    uint32_t mask;
    Expr *on[MAX_RANK]; /* bool, uniform: axis i is reduced */
    int left;           /* rank of the result without the reduced axes; -1: see len */
    Expr *len;          /* the number of axes, between least and most */
    int least, most;
} Reduction;

/* Makes the conditions from run-time axes, whose number may also be unknown. */
static void red_dynamic(Lower *L, Reduction *r, const Vec *v) {
    Cx *c = L->cx;
    Expr *any[MAX_RANK], *zero = e_int(c, 0), *none = e_eq(c, v->len, zero);
    for (int i = 0; i < r->rank; i++) any[i] = e_bool(c, false);
    for (int k = 0; k < v->most; k++) {
        Expr *given, *a = vec_axis(L, v, k, r->rank, &given);
        for (int i = 0; i < r->rank; i++)
            any[i] = e_or(c, any[i], e_and(c, given, e_eq(c, a, e_int(c, i))));
    }
    /* No axes at all: every axis, or with noop_with_empty_axes none. */
    bool all = attr_i(L, "noop_with_empty_axes", 0) == 0;
    for (int i = 0; i < r->rank && all; i++) any[i] = e_or(c, any[i], none);
    Expr *on = zero;
    for (int i = 0; i < r->rank; i++) {
        r->on[i] = let(L, "reduced", any[i], 0);
        on = e_add(c, on, e_sel(c, r->on[i], e_int(c, 1), zero));
    }
    r->len = v->len;
    r->least = v->least;
    r->most = v->most;
    if (all && v->least == 0) {
        r->len = let(L, "axes", e_sel(c, none, e_int(c, r->rank), v->len), 0);
        r->most = r->rank;
        if (r->least < 1 && r->rank > 0) r->least = 1;
    }
    if (!r->keep) check_eq(L, on, r->len, "an axis is given twice");
    r->left = r->least == r->most ? r->rank - r->most : -1;
}

static Reduction red_axes(Lower *L, const Tensor *x) {
    Reduction r = {.rank = x->rank, .keep = attr_i(L, "keepdims", 1) != 0};
    int want = out_rank(L, 0);
    Vec axes = {.n = 0};
    if (has_in(L, 1)) {
        /* If all axes are reduced, the list may also be empty. */
        bool some = !r.keep && want > 0 && want < r.rank;
        axes = vec_in(L, 1, some ? r.rank - want : -1, r.rank, "axes");
    }
    if (axes.n == 0) {
        if (attr_i(L, "noop_with_empty_axes", 0) == 0) r.mask = axes_from(0, r.rank);
        r.left = r.mask ? 0 : r.rank;
        return r;
    }
    bool known = axes.n > 0;
    for (int k = 0; k < axes.n && known; k++) {
        int64_t v;
        known = const_elem(axes.t, k, &v);
        if (!known) break;
        uint32_t bit = 1u << norm_axis(L, v, r.rank);
        if (r.mask & bit) fail(L, "axis %lld is given twice", (long long)v);
        r.mask |= bit;
    }
    r.left = r.rank - axes.n;
    if (!known) {
        r.dynamic = true;
        red_dynamic(L, &r, &axes);
    }
    return r;
}

static bool red_none(const Reduction *r) { return !r->dynamic && !r->mask; }

/* Turns a result with kept dims into the form that the operator asks for. */
static Tensor *red_finish(Lower *L, const Reduction *r, Tensor *t) {
    if (r->keep) return t;
    if (!r->dynamic) {
        for (int i = r->rank - 1; i >= 0; i--)
            if (r->mask >> i & 1) t = t_squeeze(L, t, i);
        return t;
    }
    Expr *dim[MAX_RANK];
    Expr *rank = dims_kept(L, t, r->on, dim);
    if (r->left >= 0) return t_reshape(L, t, r->left, dim);
    uint32_t ranks = rank_range(r->rank - r->most, r->rank - r->least);
    return t_of_rank(L, t, rank, ranks, dim, NULL);
}

/* Reduces x; the result has kept dims. */
static Tensor *red_kept(Lower *L, const Reduction *r, ReduceKind k, Tensor *x) {
    Cx *c = L->cx;
    if (red_none(r)) return x;
    if (!r->dynamic) return t_reduce(L, k, x, r->mask, true);
    /* Each axis is either kept or reduced: the other of its two loops has a trip count of 1. */
    Expr *dim[MAX_RANK], *idx[MAX_RANK];
    Axis *axis[MAX_RANK];
    for (int i = 0; i < r->rank; i++) {
        dim[i] = let(L, "dim", e_sel(c, r->on[i], e_int(c, 1), x->dim[i]), 0);
        axis[i] = axis_new(c, let(L, "extent", e_sel(c, r->on[i], x->dim[i], e_int(c, 1)), 0));
    }
    Tensor *t = te_begin(L, x->dtype, r->rank, dim);
    for (int i = 0; i < r->rank; i++) idx[i] = e_add(c, ax(L, t, i), e_axis(c, axis[i]));
    return te_end(L, t, e_reduce(c, k, r->rank, axis, ld(L, x, idx)));
}

/* Reduces x. If the number of axes is unknown, dims are kept until red_out. */
static Tensor *red(Lower *L, const Reduction *r, ReduceKind k, Tensor *x) {
    if (!r->dynamic && r->mask) return t_reduce(L, k, x, r->mask, r->keep);
    Tensor *t = red_kept(L, r, k, x);
    return r->left < 0 ? t : red_finish(L, r, t);
}

static void red_out(Lower *L, const Reduction *r, Tensor *t) {
    out(L, 0, r->left < 0 ? red_finish(L, r, t) : t);
}

/* The type for sums of squares, logs and exponentials; integers go through float64. */
static DType wide_any(DType t) { return dtype_is_float(t) ? wide_float(t) : DT_F64; }

/* Input 0 in type w: `before` (E_MUL: squared; 0: nothing), the reduction, `after` (0: nothing). */
static void reduce(Lower *L, ReduceKind how, int before, int after, DType w) {
    Tensor *x = in(L, 0), *t = t_cast(L, w, x);
    Reduction r = red_axes(L, x);
    if (before) t = before == E_MUL ? t_bin(L, E_MUL, t, t) : t_un(L, before, t);
    t = red(L, &r, how, t);
    red_out(L, &r, t_cast(L, x->dtype, after ? t_un(L, after, t) : t));
}

static DType type0(Lower *L) { return in(L, 0)->dtype; }
static bool truth0(Lower *L) { return type0(L) == DT_BOOL; }

void lower_ReduceSum(Lower *L) { reduce(L, R_SUM, 0, 0, type0(L)); }
void lower_ReduceProd(Lower *L) { reduce(L, R_PROD, 0, 0, type0(L)); }
void lower_ReduceMax(Lower *L) { reduce(L, truth0(L) ? R_OR : R_MAX, 0, 0, type0(L)); }
void lower_ReduceMin(Lower *L) { reduce(L, truth0(L) ? R_AND : R_MIN, 0, 0, type0(L)); }
void lower_ReduceL1(Lower *L) { reduce(L, R_SUM, E_ABS, 0, type0(L)); }
void lower_ReduceL2(Lower *L) { reduce(L, R_SUM, E_MUL, E_SQRT, wide_any(type0(L))); }
void lower_ReduceSumSquare(Lower *L) { reduce(L, R_SUM, E_MUL, 0, wide_float(type0(L))); }
void lower_ReduceLogSum(Lower *L) { reduce(L, R_SUM, 0, E_LOG, wide_any(type0(L))); }

/* Integers: the wrapped sum, divided with truncation. The mean of an empty set of floats is NaN. */
void lower_ReduceMean(Lower *L) {
    Cx *c = L->cx;
    Tensor *x = in(L, 0);
    Reduction r = red_axes(L, x);
    if (red_none(&r)) {
        out(L, 0, x);
        return;
    }
    DType t = wide_float(x->dtype);
    Expr *n = e_int(c, 1);
    for (int i = 0; i < r.rank; i++) {
        if (r.dynamic)
            n = e_mul(c, n, e_sel(c, r.on[i], x->dim[i], e_int(c, 1)));
        else if (r.mask >> i & 1)
            n = e_mul(c, n, x->dim[i]);
    }
    if (r.dynamic) n = let(L, "count", n, 0);
    Tensor *sum = red(L, &r, R_SUM, t_cast(L, t, x));
    red_out(L, &r, t_cast(L, x->dtype, t_bin(L, E_DIV, sum, t_uniform(L, e_cast(c, t, n)))));
}

/* log(sum(exp(x - m))) + m with m the maximum, or 0 where that is infinite. */
void lower_ReduceLogSumExp(Lower *L) {
    Tensor *x = in(L, 0);
    Reduction r = red_axes(L, x);
    if (red_none(&r)) {
        out(L, 0, x);
        return;
    }
    DType t = wide_any(x->dtype);
    Tensor *w = t_cast(L, t, x);
    Tensor *max = red_kept(L, &r, R_MAX, w);
    Tensor *infinite = t_bin(L, E_EQ, t_un(L, E_ABS, max), t_scalar(L, t, INFINITY));
    Tensor *m = t_where(L, infinite, t_scalar(L, t, 0), max);
    Tensor *sum = red_kept(L, &r, R_SUM, t_un(L, E_EXP, t_bin(L, E_SUB, w, m)));
    Tensor *y = t_bin(L, E_ADD, t_un(L, E_LOG, sum), m);
    out(L, 0, t_cast(L, x->dtype, red_finish(L, &r, y)));
}

/* ---- positions of extremes ------------------------------------------------------------------- */

static void arg_extreme(Lower *L, ReduceKind first, ReduceKind last) {
    Tensor *x = in(L, 0);
    int axis = norm_axis(L, attr_i(L, "axis", 0), x->rank);
    ReduceKind k = attr_i(L, "select_last_index", 0) ? last : first;
    check(L, e_lt(L->cx, e_int(L->cx, 0), x->dim[axis]), "there is no %s along axis %d of size 0",
          first == R_ARGMAX ? "largest element" : "smallest element", axis);
    out(L, 0, t_reduce(L, k, x, 1u << axis, attr_i(L, "keepdims", 1) != 0));
}

void lower_ArgMax(Lower *L) { arg_extreme(L, R_ARGMAX, R_ARGMAX_LAST); }
void lower_ArgMin(Lower *L) { arg_extreme(L, R_ARGMIN, R_ARGMIN_LAST); }

/* ---- softmax family -------------------------------------------------------------------------- */

/* Input 0 and its axis; an old form works on all axes from there on as if they were one. */
static Tensor *softmax_input(Lower *L, int *axis) {
    Tensor *x = in(L, 0);
    bool old = attr_i(L, "flatten", 0) != 0;
    *axis = norm_axis(L, attr_i(L, "axis", old ? 1 : -1), x->rank);
    if (!old || *axis == x->rank - 1) return x;
    Expr *dim[2] = {e_int(L->cx, 1), e_int(L->cx, 1)};
    for (int i = 0; i < x->rank; i++) dim[i >= *axis] = e_mul(L->cx, dim[i >= *axis], x->dim[i]);
    *axis = 1;
    return t_reshape(L, x, 2, dim);
}

static void softmax_output(Lower *L, Tensor *y) {
    Tensor *x = in(L, 0);
    out(L, 0, t_reshape(L, y, x->rank, x->dim));
}

static void softmax(Lower *L, bool log) {
    int axis;
    Tensor *x = softmax_input(L, &axis);
    softmax_output(L, t_softmax(L, x, axis, log));
}

void lower_Softmax(Lower *L) { softmax(L, false); }
void lower_LogSoftmax(Lower *L) { softmax(L, true); }

/* 1 at the first maximum, else 0. */
void lower_Hardmax(Lower *L) {
    Cx *c = L->cx;
    int axis;
    Tensor *x = softmax_input(L, &axis), *arg = t_reduce(L, R_ARGMAX, x, 1u << axis, true);
    Expr *idx[MAX_RANK];
    Tensor *t = te_indexed(L, x->dtype, x->rank, x->dim, idx);
    idx[axis] = e_int(c, 0);
    Expr *hit = e_eq(c, ld(L, arg, idx), ax(L, t, axis));
    softmax_output(L, te_end(L, t, e_sel(c, hit, e_num(c, x->dtype, 1), e_num(c, x->dtype, 0))));
}
