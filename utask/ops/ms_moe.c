/* ms_moe.c: com.microsoft's MoE: each row of the input goes through the feed-forward networks of
 * the experts that its router scores are highest for, and only through these. */
#include <math.h>

#include "utask/ops/elementwise.h"
#include "utask/ops/nn.h"
#include "utask/ops/size.h"

typedef struct Moe {
    Tensor *x, *route;             /* [rows, size]; [rows, experts] */
    Tensor *expert, *share;        /* [rows, k]: which expert, and how much of it */
    Expr *rows, *size, *inner, *k; /* inner: width of the hidden layer after its activation */
    DType w;
} Moe;

/* The experts of each row and their shares: softmax of the scores, over the chosen ones or all. */
static void choose(Lower *L, Moe *m) {
    Cx *c = L->cx;
    int64_t k = attr_i(L, "k", 1);
    if (k < 1 || k > INT32_MAX) fail(L, "k must be positive, not %lld", (long long)k);
    m->k = e_int(c, k);
    check(L, e_le(c, m->k, m->route->dim[1]), "k (%lld) is more than the number of experts",
          (long long)k);
    Tensor *scores = t_cast(L, m->w, m->route);
    Expr *param[] = {m->k, e_int(c, 1), e_int(c, 1)}, *dim[2] = {m->rows, m->k};
    Stmt *s = ext_begin(L, "topk", 1, &scores, 3, param);
    ext_out(L, s, m->w, 2, dim);
    ext_out(L, s, DT_I64, 2, dim);
    ext_end(L, s, "k is out of range");
    m->expert = ext_result(L, s, 1);
    if (attr_i(L, "normalize_routing_weights", 0)) {
        m->share = t_softmax(L, ext_result(L, s, 0), 1, false);
        return;
    }
    Tensor *all = t_softmax(L, scores, 1, false), *t = te_begin(L, m->w, 2, dim);
    Expr *at[2] = {ax(L, t, 0), ax(L, t, 1)}, *e = ld(L, m->expert, at);
    m->share = te_end(L, t, ld(L, all, (Expr *[]){at[0], e}));
}

/* Weights [experts, outputs, inputs] and a bias [experts, outputs] or NULL. */
static void check_weights(Lower *L, const Moe *m, Tensor *w, Tensor *b, Expr *outputs, Expr *inputs,
                          const char *what) {
    Cx *c = L->cx;
    if (w->rank != 3) fail(L, "%s_experts_weights must have rank 3, not %d", what, w->rank);
    Expr *fits = e_and(c, e_eq(c, w->dim[0], m->route->dim[1]), e_eq(c, w->dim[2], inputs));
    check(L, e_and(c, fits, e_eq(c, w->dim[1], outputs)),
          "%s_experts_weights must be [experts, outputs, inputs]", what);
    if (!b) return;
    if (b->rank != 2) fail(L, "%s_experts_bias must have rank 2, not %d", what, b->rank);
    check(L, e_and(c, e_eq(c, b->dim[0], w->dim[0]), e_eq(c, b->dim[1], outputs)),
          "%s_experts_bias must be [experts, outputs]", what);
}

/* The chosen experts' products with the input: [rows, k, outputs]. */
static Tensor *layer(Lower *L, const Moe *m, Tensor *w, Tensor *b) {
    Cx *c = L->cx;
    Expr *dim[3] = {m->rows, m->k, w->dim[1]}, *idx[3];
    Tensor *t = te_begin(L, m->w, 3, dim);
    all_axes(L, t, idx);
    Axis *d = axis_new(c, w->dim[2]);
    Expr *e = ld(L, m->expert, idx), *along = e_axis(c, d);
    Expr *x = e_cast(c, m->w, ld(L, m->x, (Expr *[]){idx[0], along}));
    Expr *k = e_cast(c, m->w, ld(L, w, (Expr *[]){e, idx[2], along}));
    t = te_end(L, t, e_reduce(c, R_SUM, 1, &d, e_mul(c, x, k)));
    if (!b) return t;
    Tensor *y = te_begin(L, m->w, 3, dim);
    all_axes(L, y, idx);
    e = ld(L, m->expert, idx);
    Expr *add = e_cast(c, m->w, ld(L, b, (Expr *[]){e, idx[2]}));
    return te_end(L, y, e_add(c, ld(L, t, idx), add));
}

/* gate sigmoid(alpha gate) (linear + beta), both limited where swiglu_limit is given */
static Expr *swiglu(Lower *L, Expr *gate, Expr *linear) {
    Cx *c = L->cx;
    DType t = (DType)gate->dtype;
    if (attr_has(L, "swiglu_limit")) {
        double most = attr_f(L, "swiglu_limit", INFINITY);
        if (!(most >= 0)) fail(L, "swiglu_limit must not be negative, it is %g", most);
        Expr *hi = e_num(c, t, most);
        gate = e_min(c, gate, hi);
        linear = e_max(c, e_num(c, t, -most), e_min(c, linear, hi));
    }
    linear = e_add(c, linear, e_num(c, t, attr_f(L, "activation_beta", 0)));
    return e_mul(c, act_expr(c, ACT_SWISH, gate, attr_f(L, "activation_alpha", 1), 0), linear);
}

static Expr *activated(Lower *L, const char *name, Expr *x) {
    if (!strcmp(name, "identity")) return x;
    if (!strcmp(name, "relu")) return act_expr(L->cx, ACT_RELU, x, 0, 0);
    if (!strcmp(name, "gelu")) return act_expr(L->cx, ACT_GELU_TANH, x, 0, 0);
    return act_expr(L->cx, ACT_SWISH, x, 1, 0); /* silu: the table has no other */
}

/* The hidden layer after its activation, [rows, k, inner]. */
static Tensor *hidden(Lower *L, const Moe *m, int64_t fusion) {
    Cx *c = L->cx;
    const char *act = attr_s(L, "activation_type", "relu");
    Tensor *first = layer(L, m, in_needed(L, 2), in(L, 3)), *third = NULL;
    if (has_in(L, 6)) third = layer(L, m, in(L, 6), in(L, 7));
    Expr *idx[3], *gate, *linear = NULL;
    Tensor *t = te_begin(L, m->w, 3, (Expr *[]){m->rows, m->k, m->inner});
    all_axes(L, t, idx);
    if (fusion) {
        Expr *i = idx[2];
        idx[2] = fusion == 1 ? e_muli(c, i, 2) : i;
        gate = ld(L, first, idx);
        idx[2] = fusion == 1 ? e_addi(c, e_muli(c, i, 2), 1) : e_add(c, i, m->inner);
        linear = ld(L, first, idx);
    } else {
        gate = ld(L, first, idx);
        if (third) linear = ld(L, third, idx);
    }
    if (!strcmp(act, "swiglu")) return te_end(L, t, swiglu(L, gate, linear));
    Expr *v = activated(L, act, gate);
    return te_end(L, t, linear ? e_mul(c, v, linear) : v);
}

/* How FC1 holds the two layers of swiglu: 0 apart, 1 in turn, 2 one behind the other. */
static int64_t fused(Lower *L) {
    int64_t fusion = attr_i(L, "swiglu_fusion", 0);
    bool glu = !strcmp(attr_s(L, "activation_type", "relu"), "swiglu");
    if (fusion && !glu) fail(L, "swiglu_fusion %lld without swiglu", (long long)fusion);
    if (fusion && has_in(L, 6)) fail(L, "fc3 weights with swiglu_fusion %lld", (long long)fusion);
    if (glu && !fusion && !has_in(L, 6)) fail(L, "swiglu needs fc3 weights, or swiglu_fusion");
    if (has_in(L, 7) && !has_in(L, 6)) fail(L, "fc3_experts_bias without fc3_experts_weights");
    if (attr_i(L, "use_sparse_mixer", 0)) unsupported(L, "use_sparse_mixer");
    if (attr_i(L, "swiglu_limit_after_activation", 0))
        unsupported(L, "swiglu_limit_after_activation");
    return fusion;
}

void lower_MoE(Lower *L) {
    Cx *c = L->cx;
    Tensor *x = in_needed(L, 0), *w1 = in_needed(L, 2), *w2 = in_needed(L, 4);
    Moe m = {.x = x, .route = in_needed(L, 1), .w = wide_float(x->dtype)};
    int64_t fusion = fused(L);
    if (x->rank != 2 && x->rank != 3) fail(L, "the input must have rank 2 or 3, not %d", x->rank);
    if (m.route->rank != 2) fail(L, "router_probs must have rank 2, not %d", m.route->rank);
    m.size = x->dim[x->rank - 1];
    m.rows = x->rank == 3 ? e_mul(c, x->dim[0], x->dim[1]) : x->dim[0];
    if (x->rank == 3) m.x = t_reshape(L, x, 2, (Expr *[]){m.rows, m.size});
    same_dim(L, m.route->dim[0], m.rows, "router_probs must have a row for each of the input");
    if (w2->rank != 3) fail(L, "fc2_experts_weights must have rank 3, not %d", w2->rank);
    m.inner = w2->dim[2];
    Expr *wide = fusion ? e_muli(c, m.inner, 2) : m.inner;
    check_weights(L, &m, w1, in(L, 3), wide, m.size, "fc1");
    check_weights(L, &m, w2, in(L, 5), m.size, m.inner, "fc2");
    if (has_in(L, 6)) check_weights(L, &m, in(L, 6), in(L, 7), m.inner, m.size, "fc3");
    choose(L, &m);

    Tensor *h = hidden(L, &m, fusion), *bias = in(L, 5);
    Expr *dim[3] = {m.rows, m.k, m.size}, *idx[3];
    Tensor *t = te_begin(L, m.w, 3, dim); /* what each expert makes of it */
    all_axes(L, t, idx);
    Axis *d = axis_new(c, m.inner);
    Expr *e = ld(L, m.expert, idx), *along = e_axis(c, d);
    Expr *k = e_cast(c, m.w, ld(L, w2, (Expr *[]){e, idx[2], along}));
    Expr *v = e_mul(c, ld(L, h, (Expr *[]){idx[0], idx[1], along}), k);
    t = te_end(L, t, e_reduce(c, R_SUM, 1, &d, v));

    Tensor *y = te_begin(L, x->dtype, 2, (Expr *[]){m.rows, m.size});
    Axis *j = axis_new(c, m.k);
    Expr *at[3] = {ax(L, y, 0), e_axis(c, j), ax(L, y, 1)};
    v = ld(L, t, at);
    e = ld(L, m.expert, at);
    if (bias) v = e_add(c, v, e_cast(c, m.w, ld(L, bias, (Expr *[]){e, at[2]})));
    v = e_reduce(c, R_SUM, 1, &j, e_mul(c, ld(L, m.share, at), v));
    y = te_end(L, y, e_cast(c, x->dtype, v));
    out(L, 0, x->rank == 3 ? t_reshape(L, y, 3, x->dim) : y);
}
