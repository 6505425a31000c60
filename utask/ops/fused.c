/* fused.c: com.microsoft's products and convolutions fused with transposes and activations. */
#include "utask/ops/conv.h"
#include "utask/ops/elementwise.h"
#include "utask/ops/matmul.h"
#include "utask/ops/lowerings.h"
#include "utask/ops/size.h"
#include "utask/ops/window.h"

/* ---- activations ----------------------------------------------------------------------------- */

/* The activation `name` of x, with n given parameters (n < 0: none). name NULL: x itself. */
static Tensor *activated(Lower *L, Tensor *x, const char *name, int n, const float *given) {
    Cx *c = L->cx;
    DType w = wide_float(x->dtype);
    if (!name || !*name) return x;
    const ActName *a = act_named(name, NAMED_FUSED);
    if (!a) unsupported(L, "the activation '%.100s'", name);
    if (n > a->nparam) fail(L, "%d parameters for the activation %s", n, name);
    if (a->act == ACT_CLIP && n != 2) fail(L, "Clip needs two parameters");
    float alpha = n > 0 ? given[0] : a->alpha, beta = n > 1 ? given[1] : a->beta;
    if (a->act == ACT_CELU && alpha == 0) fail(L, "alpha must not be zero");
    Expr *v;
    Tensor *y = te_like(L, x->dtype, x, &v);
    v = act_expr(c, a->act, e_cast(c, w, v), alpha, beta);
    return te_end(L, y, e_cast(c, x->dtype, v));
}

/* The activation given by the attributes activation, activation_alpha, …beta and …gamma. */
static Tensor *activated_by_name(Lower *L, Tensor *x) {
    const char *name = attr_s(L, "activation", NULL);
    bool second = attr_has(L, "activation_beta") || attr_has(L, "activation_gamma");
    int n = second ? 2 : attr_has(L, "activation_alpha") ? 1 : 0;
    if (attr_has(L, "activation_beta") && attr_has(L, "activation_gamma"))
        fail(L, "no activation has both activation_beta and activation_gamma");
    if (second && !attr_has(L, "activation_alpha")) fail(L, "activation_alpha is missing");
    float p[2] = {(float)attr_f(L, "activation_alpha", 0),
                  (float)attr_f(L, "activation_beta", attr_f(L, "activation_gamma", 0))};
    return activated(L, x, name, n, p);
}

/* ---- products -------------------------------------------------------------------------------- */

void lower_FusedGemm(Lower *L) {
    out(L, 0, activated_by_name(L, t_gemm(L, in(L, 0), in(L, 1), in(L, 2))));
}

/* An operand: trans_batch moves its first axis before the last one, trans swaps its last two. */
static Tensor *operand(Lower *L, int i, const char *trans_batch, const char *trans) {
    Tensor *a = in(L, i);
    int perm[MAX_RANK], r = a->rank;
    if (r < 1) fail(L, "a matrix product needs operands of rank 1 or more");
    if (attr_i(L, trans_batch, 0)) {
        if (r < 3 || r != in(L, 1 - i)->rank)
            fail(L, "%s needs operands of one rank, at least 3, not %d and %d", trans_batch, r,
                 in(L, 1 - i)->rank);
        for (int k = 0; k < r; k++) perm[k] = k < r - 2 ? k + 1 : k == r - 2 ? 0 : k;
        a = t_transpose(L, a, perm);
    }
    return attr_i(L, trans, 0) ? t_swap_last(L, a) : a;
}

/* alpha A' B' */
static Tensor *fused_product(Lower *L) {
    Tensor *a = operand(L, 0, "transBatchA", "transA"), *b = operand(L, 1, "transBatchB", "transB");
    DType t = a->dtype, w = wide_float(t);
    double alpha = attr_f(L, "alpha", 1);
    if (alpha == 1) return t_matmul(L, a, b);
    return t_cast(L, t, t_scaled(L, t_matmul(L, t_cast(L, w, a), t_cast(L, w, b)), alpha));
}

void lower_FusedMatMul(Lower *L) { out(L, 0, fused_product(L)); }

void lower_FusedMatMulActivation(Lower *L) {
    if (!attr_has(L, "activation")) fail(L, "the attribute activation is missing");
    out(L, 0, activated_by_name(L, fused_product(L)));
}

/* ---- convolutions ---------------------------------------------------------------------------- */

/* activation(Conv(x, w, b) + z), z of the result's shape. */
static Tensor *fused_conv(Lower *L, Tensor *x, Tensor *z) {
    int n;
    const float *params = attr_floats(L, "activation_params", &n);
    Tensor *y = t_conv(L, x, in(L, 1), in(L, 2));
    if (z) {
        if (z->rank != y->rank) fail(L, "Z has rank %d, the result %d", z->rank, y->rank);
        check_dims(L, y->rank, y->dim, z->dim, "Z does not have the shape of the result");
        y = t_bin(L, E_ADD, y, z);
    }
    return activated(L, y, attr_s(L, "activation", NULL), n, params);
}

void lower_FusedConv(Lower *L) { out(L, 0, fused_conv(L, in(L, 0), in(L, 3))); }

void lower_NhwcConv(Lower *L) {
    Tensor *x = t_channels_first(L, in(L, 0));
    out(L, 0, t_channels_last(L, t_conv(L, x, in(L, 1), in(L, 2))));
}

void lower_NhwcFusedConv(Lower *L) {
    Tensor *z = in(L, 3);
    if (z) z = t_channels_first(L, z);
    out(L, 0, t_channels_last(L, fused_conv(L, t_channels_first(L, in(L, 0)), z)));
}
