/* norm.c: normalizations; those of 16-bit floats are computed in float32 and rounded once. */
#include "utask/ops/nn.h"

/* A parameter [C], reshaped to broadcast along axis 1 of a tensor of rank `rank`. */
static Tensor *per_channel(Lower *L, Tensor *p, int rank, Expr *channels, const char *what) {
    check_rank(L, p, 1, what);
    check_eq(L, p->dim[0], channels, "%s must have one element per channel", what);
    for (int i = 2; i < rank; i++) p = t_unsqueeze(L, p, i - 1);
    return p;
}

void broadcasts_to(Lower *L, const Tensor *t, const Tensor *x, const char *what) {
    Cx *c = L->cx;
    if (t->rank > x->rank) fail(L, "%s has a higher rank than the result", what);
    for (int i = 0; i < t->rank; i++) {
        Expr *d = t->dim[i], *want = x->dim[x->rank - t->rank + i];
        check(L, e_or(c, e_eq(c, d, e_int(c, 1)), e_eq(c, d, want)),
              "%s does not broadcast to the result", what);
    }
}

/* 1 / sqrt(t + eps) */
static Tensor *t_inverse_root(Lower *L, Tensor *t, double eps) {
    Tensor *root = t_un(L, E_SQRT, t_bin(L, E_ADD, t, t_scalar(L, t->dtype, eps)));
    return t_bin(L, E_DIV, t_scalar(L, t->dtype, 1), root);
}

static Tensor *t_square(Lower *L, Tensor *t) { return t_bin(L, E_MUL, t, t); }

Tensor *t_standardized(Lower *L, Tensor *w, uint32_t mask, double eps, Tensor **mean,
                       Tensor **inv) {
    Tensor *m = t_mean(L, w, mask), *d = t_bin(L, E_SUB, w, m);
    Tensor *s = t_inverse_root(L, t_mean(L, t_square(L, d), mask), eps);
    if (mean) *mean = m;
    if (inv) *inv = s;
    return t_bin(L, E_MUL, d, s);
}

static DType stash_type(Lower *L) {
    int64_t t = attr_i(L, "stash_type", DT_F32);
    if (t != DT_F32 && t != DT_BF16)
        fail(L, "stash_type must be float32 or bfloat16, not %s", dtype_name((int)t));
    return (DType)t;
}

Tensor *t_rms_normalized(Lower *L, Tensor *w, uint32_t mask, double eps, Tensor **inv) {
    Tensor *s = t_inverse_root(L, t_mean(L, t_square(L, w), mask), eps);
    if (inv) *inv = s;
    return t_bin(L, E_MUL, w, s);
}

void lower_LayerNormalization(Lower *L) {
    Tensor *x = in(L, 0), *scale = in(L, 1), *bias = in(L, 2), *mean, *inv;
    int axis = norm_axis(L, attr_i(L, "axis", -1), x->rank);
    DType stash = stash_type(L), w = wide_float(x->dtype);
    broadcasts_to(L, scale, x, "Scale");
    Tensor *y = t_standardized(L, t_cast(L, w, x), axes_from(axis, x->rank),
                               attr_f(L, "epsilon", 1e-5), &mean, &inv);
    y = t_bin(L, E_MUL, y, t_cast(L, w, scale));
    if (bias) {
        broadcasts_to(L, bias, x, "B");
        y = t_bin(L, E_ADD, y, t_cast(L, w, bias));
    }
    out(L, 0, t_cast(L, x->dtype, y));
    if (wants_out(L, 1)) out(L, 1, t_cast(L, stash, mean));
    if (wants_out(L, 2)) out(L, 2, t_cast(L, stash, inv));
}

/* x divided by its root mean square; the result has the type of the scale. Output 1, if wanted, is
 * the factor in type `stash`. */
static void rms_norm(Lower *L, DType stash) {
    Tensor *x = in(L, 0), *scale = in(L, 1);
    int axis = norm_axis(L, attr_i(L, "axis", -1), x->rank);
    DType w = wide_float(x->dtype);
    broadcasts_to(L, scale, x, "scale");
    Tensor *inv, *y = t_rms_normalized(L, t_cast(L, w, x), axes_from(axis, x->rank),
                                       attr_f(L, "epsilon", 1e-5), &inv);
    y = t_bin(L, E_MUL, y, t_cast(L, w, scale));
    out(L, 0, t_cast(L, scale->dtype, y));
    if (wants_out(L, 1)) out(L, 1, t_cast(L, stash, inv));
}

void lower_RMSNormalization(Lower *L) { rms_norm(L, DT_F32); }
void lower_SimplifiedLayerNormalization(Lower *L) { rms_norm(L, stash_type(L)); }

void lower_InstanceNormalization(Lower *L) {
    Tensor *x = in(L, 0);
    if (x->rank < 2) fail(L, "the input must have at least rank 2, not %d", x->rank);
    DType w = wide_float(x->dtype);
    Tensor *scale = per_channel(L, in(L, 1), x->rank, x->dim[1], "scale");
    Tensor *bias = per_channel(L, in(L, 2), x->rank, x->dim[1], "B");
    Tensor *y = t_standardized(L, t_cast(L, w, x), axes_from(2, x->rank),
                               attr_f(L, "epsilon", 1e-5), NULL, NULL);
    y = t_bin(L, E_ADD, t_bin(L, E_MUL, y, t_cast(L, w, scale)), t_cast(L, w, bias));
    out(L, 0, t_cast(L, x->dtype, y));
}

/* Each group of neighbouring channels is standardized together with the axes after it. */
void lower_GroupNormalization(Lower *L) {
    Cx *c = L->cx;
    Tensor *x = in(L, 0), *scale = in(L, 1), *bias = in(L, 2);
    if (x->rank < 2) fail(L, "the input must have at least rank 2, not %d", x->rank);
    int64_t ngroup = attr_i(L, "num_groups", 0);
    if (ngroup < 1) fail(L, "num_groups must be positive, not %lld", (long long)ngroup);
    Expr *groups = e_int(c, ngroup), *channels = x->dim[1];
    Expr *size = e_bin(c, E_FDIV, channels, groups);
    check(L, e_eq(c, e_mul(c, size, groups), channels),
          "num_groups (%lld) does not divide the number of channels (%s)", (long long)ngroup,
          said(L, channels));
    DType w = wide_float(x->dtype);
    Expr *inner = size;
    for (int i = 2; i < x->rank; i++) inner = e_mul(c, inner, x->dim[i]);
    Expr *dim[3] = {x->dim[0], groups, inner};
    Tensor *y = t_standardized(L, t_cast(L, w, t_reshape(L, x, 3, dim)), 1u << 2,
                               attr_f(L, "epsilon", 1e-5), NULL, NULL);
    y = t_reshape(L, y, x->rank, x->dim);
    y = t_bin(L, E_MUL, y, t_cast(L, w, per_channel(L, scale, x->rank, channels, "scale")));
    y = t_bin(L, E_ADD, y, t_cast(L, w, per_channel(L, bias, x->rank, channels, "bias")));
    out(L, 0, t_cast(L, x->dtype, y));
}

/* x * factor + addend with both per channel, so that they fold when the parameters are constant. */
void lower_BatchNormalization(Lower *L) {
    Tensor *x = in(L, 0), *mean = in(L, 3), *var = in(L, 4);
    int rank = x->rank;
    if (rank < 1) fail(L, "the input must have at least rank 1");
    double eps = attr_f(L, "epsilon", 1e-5);
    bool training = attr_i(L, "training_mode", 0) != 0;
    DType w = wide_float(x->dtype), stat = mean->dtype;
    Expr *channels = rank > 1 ? x->dim[1] : e_int(L->cx, 1);
    static const char *const what[4] = {"scale", "B", "input_mean", "input_var"};
    Tensor *p[4];
    for (int i = 0; i < 4; i++)
        p[i] = t_cast(L, w, per_channel(L, in(L, i + 1), 1, channels, what[i]));
    Tensor *f = t_cast(L, w, x);
    if (training) {
        uint32_t mask = axes_from(0, rank) & (rank > 1 ? ~2u : ~0u);
        Tensor *m = t_mean(L, f, mask);
        Tensor *v = t_mean(L, t_square(L, t_bin(L, E_SUB, f, m)), mask);
        m = t_reshape(L, m, 1, &channels);
        v = t_reshape(L, v, 1, &channels);
        double keep = attr_f(L, "momentum", 0.9);
        Tensor *old = t_scalar(L, w, keep), *new = t_scalar(L, w, 1 - keep);
        Tensor *rm = t_bin(L, E_ADD, t_bin(L, E_MUL, p[2], old), t_bin(L, E_MUL, m, new));
        Tensor *rv = t_bin(L, E_ADD, t_bin(L, E_MUL, p[3], old), t_bin(L, E_MUL, v, new));
        out(L, 1, t_cast(L, stat, rm));
        out(L, 2, t_cast(L, var->dtype, rv));
        p[2] = m;
        p[3] = v;
    } else if (wants_out(L, 1) || wants_out(L, 2)) {
        fail(L, "running statistics are outputs of training_mode=1 only");
    }
    Tensor *factor = t_bin(L, E_MUL, p[0], t_inverse_root(L, p[3], eps));
    Tensor *addend = t_bin(L, E_SUB, p[1], t_bin(L, E_MUL, p[2], factor));
    factor = per_channel(L, factor, rank, channels, "scale");
    addend = per_channel(L, addend, rank, channels, "B");
    Tensor *y = t_bin(L, E_ADD, t_bin(L, E_MUL, f, factor), addend);
    out(L, 0, t_cast(L, x->dtype, y));
}

void lower_MeanVarianceNormalization(Lower *L) {
    static const int64_t default_axes[3] = {0, 2, 3};
    Tensor *x = in(L, 0);
    int n;
    const int64_t *axes = attr_ints(L, "axes", &n);
    if (n < 0) {
        axes = default_axes;
        n = 3;
    }
    uint32_t mask = 0;
    for (int i = 0; i < n; i++) mask |= 1u << norm_axis(L, axes[i], x->rank);
    if (!mask) mask = axes_from(0, x->rank); /* no axes: all, as in ReduceMean */
    Tensor *f = t_cast(L, wide_float(x->dtype), x);
    Tensor *d = t_bin(L, E_SUB, f, t_mean(L, f, mask));
    Tensor *dev = t_un(L, E_SQRT, t_mean(L, t_square(L, d), mask));
    dev = t_bin(L, E_ADD, dev, t_scalar(L, dev->dtype, 1e-9));
    out(L, 0, t_cast(L, x->dtype, t_bin(L, E_DIV, d, dev)));
}

/* A slice of norm 0 gives 0. */
void lower_LpNormalization(Lower *L) {
    Tensor *x = in(L, 0);
    int axis = norm_axis(L, attr_i(L, "axis", -1), x->rank);
    int64_t p = attr_i(L, "p", 2);
    Tensor *f = t_cast(L, wide_float(x->dtype), x);
    Tensor *term = p == 1 ? t_un(L, E_ABS, f) : t_square(L, f);
    Tensor *norm = t_reduce(L, R_SUM, term, 1u << axis, true);
    if (p == 2) norm = t_un(L, E_SQRT, norm);
    Tensor *zero = t_scalar(L, f->dtype, 0);
    Tensor *y = t_where(L, t_bin(L, E_EQ, norm, zero), zero, t_bin(L, E_DIV, f, norm));
    out(L, 0, t_cast(L, x->dtype, y));
}

/* x / (bias + alpha / size * s)^beta, s: the sum of squares over the `size` channels around. */
void lower_LRN(Lower *L) {
    Cx *c = L->cx;
    Tensor *x = in(L, 0);
    if (x->rank < 2) fail(L, "the input must have at least rank 2, not %d", x->rank);
    int64_t size = attr_i(L, "size", 0);
    if (size < 1 || size > INT32_MAX) fail(L, "size %lld is out of range", (long long)size);
    double alpha = attr_f(L, "alpha", 1e-4), beta = attr_f(L, "beta", 0.75);
    Tensor *f = t_cast(L, wide_float(x->dtype), x);
    Tensor *t = te_begin(L, f->dtype, x->rank, x->dim);
    Axis *window = axis_new(c, e_int(c, size));
    Expr *at = e_addi(c, e_add(c, ax(L, t, 1), e_axis(c, window)), -((size - 1) / 2));
    Expr *idx[MAX_RANK];
    for (int i = 0; i < x->rank; i++) idx[i] = i == 1 ? at : ax(L, t, i);
    Expr *inside = e_and(c, e_le(c, e_int(c, 0), at), e_lt(c, at, x->dim[1]));
    Expr *v = ld(L, f, idx);
    Expr *term = e_sel(c, inside, e_mul(c, v, v), e_num(c, f->dtype, 0));
    Tensor *sum = te_end(L, t, e_reduce(c, R_SUM, 1, &window, term));
    Tensor *base = t_bin(L, E_MUL, sum, t_scalar(L, f->dtype, alpha / (double)size));
    base = t_bin(L, E_ADD, base, t_scalar(L, f->dtype, attr_f(L, "bias", 1)));
    Tensor *y = t_bin(L, E_DIV, f, t_bin(L, E_POW, base, t_scalar(L, f->dtype, beta)));
    out(L, 0, t_cast(L, x->dtype, y));
}
