/* activation.c: activation functions; those of 16-bit floats are computed in float32. */
#include "utask/ops/elementwise.h"
#include "utask/ops/lowerings.h"

static Expr *softplus(Cx *c, Expr *x) { /* does not overflow for any x */
    Expr *zero = e_num(c, (DType)x->dtype, 0);
    Expr *small = e_un(c, E_EXP, e_un(c, E_NEG, e_un(c, E_ABS, x)));
    return e_add(c, e_max(c, x, zero), e_un(c, E_LOG1P, small));
}

static Expr *expm1_scaled(Cx *c, Expr *x, Expr *alpha) {
    return e_mul(c, alpha, e_sub(c, e_un(c, E_EXP, x), e_num(c, (DType)x->dtype, 1)));
}

static Expr *clamp01(Cx *c, Expr *x) {
    DType t = (DType)x->dtype;
    return e_max(c, e_num(c, t, 0), e_min(c, e_num(c, t, 1), x));
}

Expr *act_expr(Cx *c, Act act, Expr *x, double alpha, double beta) {
    DType t = (DType)x->dtype;
    Expr *a = e_num(c, t, alpha), *b = e_num(c, t, beta);
    Expr *zero = e_num(c, t, 0), *half = e_num(c, t, 0.5), *one = e_num(c, t, 1);
    switch (act) {
    case ACT_RELU: return e_max(c, x, zero);
    case ACT_TANH: return e_un(c, E_TANH, x);
    case ACT_SIGMOID: return e_un(c, E_SIGMOID, x);
    case ACT_AFFINE: return e_add(c, e_mul(c, a, x), b);
    case ACT_LEAKYRELU: return e_sel(c, e_lt(c, x, zero), e_mul(c, a, x), x);
    case ACT_THRESHOLD: return e_sel(c, e_lt(c, a, x), x, zero);
    case ACT_THRESHOLD_GE: return e_sel(c, e_le(c, a, x), x, zero);
    case ACT_SCALEDTANH: return e_mul(c, a, e_un(c, E_TANH, e_mul(c, b, x)));
    case ACT_HARDSIGMOID: return clamp01(c, e_add(c, e_mul(c, a, x), b));
    case ACT_HARDSWISH:
        return e_mul(c, x, clamp01(c, e_add(c, e_mul(c, e_num(c, t, 1.0 / 6), x), half)));
    case ACT_ELU: return e_sel(c, e_lt(c, x, zero), expm1_scaled(c, x, a), x);
    case ACT_SELU: return e_mul(c, b, e_sel(c, e_lt(c, x, zero), expm1_scaled(c, x, a), x));
    case ACT_CELU:
        return e_add(c, e_max(c, x, zero), e_min(c, expm1_scaled(c, e_div(c, x, a), a), zero));
    case ACT_SOFTSIGN: return e_div(c, x, e_add(c, one, e_un(c, E_ABS, x)));
    case ACT_SOFTPLUS: return softplus(c, x);
    case ACT_SWISH: return e_mul(c, x, e_un(c, E_SIGMOID, e_mul(c, a, x)));
    case ACT_MISH: return e_mul(c, x, e_un(c, E_TANH, softplus(c, x)));
    case ACT_GELU: {
        Expr *e = e_un(c, E_ERF, e_mul(c, x, e_num(c, t, 0.70710678118654752440)));
        return e_mul(c, e_mul(c, half, x), e_add(c, one, e));
    }
    case ACT_GELU_TANH: {
        Expr *cube = e_mul(c, e_mul(c, x, x), x);
        Expr *u = e_add(c, x, e_mul(c, e_num(c, t, 0.044715), cube));
        Expr *e = e_un(c, E_TANH, e_mul(c, e_num(c, t, 0.79788456080286535588), u));
        return e_mul(c, e_mul(c, half, x), e_add(c, one, e));
    }
    case ACT_CLIP: return e_min(c, e_max(c, x, a), b);
    case ACT_SHRINK: {
        Expr *low = e_lt(c, x, e_num(c, t, -alpha)), *high = e_lt(c, a, x);
        return e_sel(c, low, e_add(c, x, b), e_sel(c, high, e_sub(c, x, b), zero));
    }
    }
    die("activation %d", (int)act);
}

const ActName *act_named(const char *name, NamedBy by) {
    static const ActName names[] = {
        {"Relu", ACT_RELU, NAMED_RECURRENT | NAMED_FUSED, 0, 0, 0},
        {"Tanh", ACT_TANH, NAMED_RECURRENT | NAMED_FUSED, 0, 0, 0},
        {"Sigmoid", ACT_SIGMOID, NAMED_RECURRENT | NAMED_FUSED, 0, 0, 0},
        {"Softplus", ACT_SOFTPLUS, NAMED_RECURRENT | NAMED_FUSED, 0, 0, 0},
        {"Softsign", ACT_SOFTSIGN, NAMED_RECURRENT | NAMED_FUSED, 0, 0, 0},
        {"LeakyRelu", ACT_LEAKYRELU, NAMED_RECURRENT | NAMED_FUSED, 1, 0.01f, 0},
        {"ThresholdedRelu", ACT_THRESHOLD_GE, NAMED_RECURRENT, 1, 1, 0},
        {"ThresholdedRelu", ACT_THRESHOLD, NAMED_FUSED, 1, 1, 0},
        {"Elu", ACT_ELU, NAMED_RECURRENT | NAMED_FUSED, 1, 1, 0},
        {"Celu", ACT_CELU, NAMED_FUSED, 1, 1, 0},
        {"Affine", ACT_AFFINE, NAMED_RECURRENT, 2, 1, 0},
        {"HardSigmoid", ACT_HARDSIGMOID, NAMED_RECURRENT | NAMED_FUSED, 2, 0.2f, 0.5f},
        {"ScaledTanh", ACT_SCALEDTANH, NAMED_RECURRENT | NAMED_FUSED, 2, 1, 1},
        {"Selu", ACT_SELU, NAMED_FUSED, 2, 1.67326319217681884765625f, 1.05070102214813232421875f},
        {"Clip", ACT_CLIP, NAMED_FUSED, 2, 0, 0},
    };
    for (size_t i = 0; i < COUNT(names); i++)
        if (names[i].by & by && !(by == NAMED_FUSED ? strcmp : strcasecmp)(name, names[i].name))
            return &names[i];
    return NULL;
}

/* Outputs act of input 0, computed in type w. */
static void activation(Lower *L, DType w, Act act, double alpha, double beta) {
    Cx *c = L->cx;
    Expr *v;
    Tensor *x = in_needed(L, 0), *y = te_like(L, x->dtype, x, &v);
    Expr *r = act_expr(c, act, e_cast(c, w, v), alpha, beta);
    out(L, 0, te_end(L, y, e_cast(c, x->dtype, r)));
}

static DType wide0(Lower *L) { return wide_float(in_needed(L, 0)->dtype); }

#define ACTIVATION(name, act, alpha, beta)                                                         \
    void lower_##name(Lower *L) { activation(L, wide0(L), act, alpha, beta); }
ACTIVATION(HardSigmoid, ACT_HARDSIGMOID, attr_f(L, "alpha", 0.2f), attr_f(L, "beta", 0.5))
ACTIVATION(HardSwish, ACT_HARDSWISH, 0, 0)
ACTIVATION(LeakyRelu, ACT_LEAKYRELU, attr_f(L, "alpha", 0.01f), 0)
ACTIVATION(Elu, ACT_ELU, attr_f(L, "alpha", 1), 0)
ACTIVATION(Selu, ACT_SELU, attr_f(L, "alpha", 1.67326319217681884765625),
           attr_f(L, "gamma", 1.05070102214813232421875))
ACTIVATION(ThresholdedRelu, ACT_THRESHOLD, attr_f(L, "alpha", 1), 0)
ACTIVATION(Softplus, ACT_SOFTPLUS, 0, 0)
ACTIVATION(Softsign, ACT_SOFTSIGN, 0, 0)
ACTIVATION(Swish, ACT_SWISH, attr_f(L, "alpha", 1), 0)
ACTIVATION(Mish, ACT_MISH, 0, 0)

void lower_SwiGLU(Lower *L) {
    Cx *c = L->cx;
    Expr *v, *idx[MAX_RANK];
    Tensor *a = in_needed(L, 0), *b = in_needed(L, 1), *y = te_like(L, a->dtype, a, &v);
    if (a->rank != b->rank)
        fail(L, "A has rank %d and B rank %d, they must be equal", a->rank, b->rank);
    check_dims(L, a->rank, a->dim, b->dim, "A and B differ in the size of axis %d");
    all_axes(L, y, idx);
    DType w = wide_float(a->dtype);
    Expr *gate = act_expr(c, ACT_SWISH, e_cast(c, w, v), attr_f(L, "alpha", 1), 0);
    Expr *r = e_mul(c, gate, e_cast(c, w, ld(L, b, idx)));
    out(L, 0, te_end(L, y, e_cast(c, a->dtype, r)));
}

void lower_Celu(Lower *L) {
    double alpha = attr_f(L, "alpha", 1);
    if (alpha == 0) fail(L, "alpha must not be zero");
    activation(L, wide0(L), ACT_CELU, alpha, 0);
}

void lower_Relu(Lower *L) { /* also for integers */
    activation(L, in_needed(L, 0)->dtype, ACT_RELU, 0, 0);
}

void lower_Shrink(Lower *L) { /* the attributes are floats, also for integer data */
    DType t = in_needed(L, 0)->dtype;
    activation(L, dtype_is_float(t) ? wide_float(t) : DT_F64, ACT_SHRINK, attr_f(L, "lambd", 0.5),
               attr_f(L, "bias", 0));
}

void lower_Gelu(Lower *L) {
    bool tanh = !strcmp(attr_s(L, "approximate", "none"), "tanh");
    activation(L, wide0(L), tanh ? ACT_GELU_TANH : ACT_GELU, 0, 0);
}

/* The slope broadcasts to x, never the other way round. */
void lower_PRelu(Lower *L) {
    Cx *c = L->cx;
    Tensor *x = in_needed(L, 0), *slope = in_needed(L, 1);
    if (slope->rank > x->rank)
        fail(L, "slope of rank %d does not broadcast to x of rank %d", slope->rank, x->rank);
    for (int i = 0; i < slope->rank; i++) {
        Expr *s = slope->dim[i], *d = x->dim[x->rank - slope->rank + i];
        check_fits(L, s, d, "slope does not broadcast to x");
    }
    Expr *v, *idx[MAX_RANK];
    Tensor *y = te_like(L, x->dtype, x, &v);
    all_axes(L, y, idx);
    Expr *k = ld_bcast(L, slope, x->rank, idx, x->dim);
    Expr *neg = e_lt(c, v, e_num(c, x->dtype, 0));
    out(L, 0, te_end(L, y, e_sel(c, neg, e_mul(c, k, v), v)));
}
