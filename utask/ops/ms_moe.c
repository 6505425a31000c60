/* ms_moe.c: com.microsoft's MoE: each row of the input goes only through the feed-forward networks
 * of the experts with the row's highest router scores. */
#include <math.h>

#include "utask/ops/elementwise.h"
#include "utask/ops/nn.h"
#include "utask/ops/size.h"

/* One layer of all experts: weights [experts, outputs, inputs] and a bias [experts, outputs] or
 * NULL. With `bits`, weights are (code - zero point) scale, 8 / bits codes in a byte, the first one
 * in its low bits; scales are [experts, outputs] or, with blocks of inputs, [experts, outputs,
 * inputs / block]; zero points have the shape of the scales and are packed like the weights, or are
 * all 2^(bits - 1). */
typedef struct Layer {
    Tensor *w, *bias, *scale, *zero;
    int64_t bits;
    const char *what;
} Layer;

typedef struct Moe {
    Tensor *x, *route;             /* [rows, size]; [rows, experts] */
    Tensor *expert, *share;        /* [rows, k]: the chosen experts and their shares */
    Expr *rows, *size, *inner, *k; /* inner: width of the hidden layer after its activation */
    Layer layer[3];                /* the third one has NULL weights if it is absent */
    int64_t block;                 /* inputs that share a scale; 0: all */
    DType w;
} Moe;

/* The experts of each row and their shares: from `shares` or, if that is NULL, the softmax of the
 * scores over the chosen experts or all. */
static void choose(Lower *L, Moe *m, Tensor *shares) {
    Cx *c = L->cx;
    int64_t k = attr_positive(L, "k", 1);
    m->k = e_int(c, k);
    check_le(L, m->k, m->route->dim[1], "k (%lld) is more than the number of experts",
             (long long)k);
    Tensor *scores = t_cast(L, m->w, m->route);
    Expr *param[] = {m->k, e_int(c, 1), e_int(c, 1)}, *dim[2] = {m->rows, m->k};
    Stmt *s = ext_begin(L, "topk", 1, &scores, 3, param);
    ext_out(L, s, m->w, 2, dim);
    ext_out(L, s, DT_I64, 2, dim);
    ext_end(L, s, "k is out of range");
    m->expert = ext_result(L, s, 1);
    bool normal = attr_i(L, "normalize_routing_weights", 0) != 0;
    if (normal && !shares) {
        m->share = t_softmax(L, ext_result(L, s, 0), 1, false);
        return;
    }
    Tensor *all = shares ? t_cast(L, m->w, shares) : t_softmax(L, scores, 1, false);
    Tensor *t = te_begin(L, m->w, 2, dim);
    Expr *at[2] = {ax(L, t, 0), ax(L, t, 1)}, *e = ld(L, m->expert, at);
    m->share = te_end(L, t, ld(L, all, (Expr *[]){at[0], e}));
    if (normal) m->share = t_bin(L, E_DIV, m->share, t_reduce(L, R_SUM, m->share, 1u << 1, true));
}

/* The number of bytes of n codes. */
static Expr *bytes_of(Lower *L, const Layer *y, Expr *n) {
    return e_bin(L->cx, E_FDIV, e_addi(L->cx, e_muli(L->cx, n, y->bits), 7), e_int(L->cx, 8));
}

static void check_part(Lower *L, const Layer *y, const Tensor *t, int rank, Expr **dim,
                       const char *part) {
    const char *what = arena_printf(L->a, "%s_%s", y->what, part);
    check_shape(L, t, rank, dim, what, arena_printf(L->a, "%s has a wrong size (axis %%d)", what));
}

static void check_layer(Lower *L, const Moe *m, const Layer *y, Expr *outputs, Expr *inputs) {
    Cx *c = L->cx;
    Expr *dim[3] = {m->route->dim[1], outputs, inputs};
    if (y->bias) check_part(L, y, y->bias, 2, dim, "experts_bias");
    if (y->bits) {
        if (y->w->dtype != DT_U8)
            fail(L, "%s_experts_weights must be uint8, not %s", y->what, dtype_name(y->w->dtype));
        check_eq(L, e_bin(c, E_MOD, inputs, e_int(c, 8 / y->bits)), e_int(c, 0),
                 "%s_experts_weights of %lld bits do not fill their bytes", y->what,
                 (long long)y->bits);
        dim[2] = bytes_of(L, y, inputs);
    }
    check_part(L, y, y->w, 3, dim, "experts_weights");
    if (!y->bits) return;
    if (!y->scale) fail(L, "%s_scales are missing", y->what);
    int rank = m->block ? 3 : 2;
    if (m->block) dim[2] = divided_dim(L, inputs, e_int(c, m->block), "input of a layer");
    check_part(L, y, y->scale, rank, dim, "scales");
    if (!y->zero) return;
    if (y->zero->dtype != DT_U8) fail(L, "%s_zero_points must be uint8", y->what);
    dim[rank - 1] = bytes_of(L, y, dim[rank - 1]);
    check_part(L, y, y->zero, rank, dim, "zero_points");
}

/* Code i on the last axis of t, with the other indices `at`, as int32. */
static Expr *code_at(Lower *L, const Layer *y, Tensor *t, Expr **at, Expr *i) {
    Cx *c = L->cx;
    Expr *in_byte = e_int(c, 8 / y->bits), *idx[3];
    memcpy(idx, at, sizeof(Expr *) * (size_t)(t->rank - 1));
    idx[t->rank - 1] = y->bits == 8 ? i : e_bin(c, E_FDIV, i, in_byte);
    Expr *v = e_cast(c, DT_I32, ld(L, t, idx));
    if (y->bits == 8) return v;
    Expr *shift = e_muli(c, e_bin(c, E_MOD, i, in_byte), y->bits);
    v = e_bin(c, E_SHR, v, e_cast(c, DT_I32, shift));
    return e_bin(c, E_MOD, v, e_ci(c, DT_I32, (int64_t)1 << y->bits));
}

/* Weight of input i of output `at[1]` of expert at[0]. */
static Expr *weight_at(Lower *L, const Moe *m, const Layer *y, Expr *expert, Expr *n, Expr *i) {
    Cx *c = L->cx;
    Expr *at[3] = {expert, n, i};
    if (!y->bits) return e_cast(c, m->w, ld(L, y->w, at));
    Expr *v = code_at(L, y, y->w, at, i), *zero = e_ci(c, DT_I32, (int64_t)1 << (y->bits - 1));
    if (m->block) at[2] = e_bin(c, E_FDIV, i, e_int(c, m->block));
    if (y->zero) zero = code_at(L, y, y->zero, at, m->block ? at[2] : n);
    v = e_cast(c, m->w, e_sub(c, v, zero));
    return e_mul(c, v, e_cast(c, m->w, ld(L, y->scale, at)));
}

/* The chosen experts' products with x: [rows, k, outputs]. x is [rows, inputs], or [rows, k,
 * inputs] with an input per expert. */
static Tensor *product(Lower *L, const Moe *m, const Layer *y, Tensor *x, Expr *outputs,
                       Expr *inputs) {
    Cx *c = L->cx;
    Expr *dim[3] = {m->rows, m->k, outputs}, *idx[3];
    Tensor *t = te_indexed(L, m->w, 3, dim, idx);
    Axis *d = axis_new(c, inputs);
    Expr *e = ld(L, m->expert, idx), *along = e_axis(c, d), *at[3] = {idx[0], along, NULL};
    if (x->rank == 3) at[1] = idx[1], at[2] = along;
    Expr *v = e_cast(c, m->w, ld(L, x, at));
    v = e_mul(c, v, weight_at(L, m, y, e, idx[2], along));
    t = te_end(L, t, e_reduce(c, R_SUM, 1, &d, v));
    if (!y->bias) return t;
    Tensor *sum = te_indexed(L, m->w, 3, dim, idx);
    e = ld(L, m->expert, idx);
    v = e_cast(c, m->w, ld(L, y->bias, (Expr *[]){e, idx[2]}));
    return te_end(L, sum, e_add(c, ld(L, t, idx), v));
}

/* gate sigmoid(alpha gate) (linear + beta), both clamped if swiglu_limit is given */
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
    return act_expr(L->cx, ACT_SWISH, x, 1, 0); /* silu, the only other one */
}

/* The hidden layer after its activation, [rows, k, inner]. */
static Tensor *hidden(Lower *L, const Moe *m, int64_t fusion) {
    Cx *c = L->cx;
    const char *act = attr_s(L, "activation_type", "relu");
    const Layer *y = m->layer;
    Expr *wide = fusion ? e_muli(L->cx, m->inner, 2) : m->inner;
    Tensor *first = product(L, m, &y[0], m->x, wide, m->size), *third = NULL;
    if (y[2].w) third = product(L, m, &y[2], m->x, m->inner, m->size);
    Expr *idx[3], *gate, *linear = NULL;
    Tensor *t = te_indexed(L, m->w, 3, (Expr *[]){m->rows, m->k, m->inner}, idx);
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

/* How FC1 stores the two layers of swiglu: 0 separately, 1 interleaved, 2 one after the other. */
static int64_t fused(Lower *L, const Moe *m) {
    int64_t fusion = attr_i(L, "swiglu_fusion", 0);
    bool glu = !strcmp(attr_s(L, "activation_type", "relu"), "swiglu"), third = m->layer[2].w;
    if (fusion && !glu) fail(L, "swiglu_fusion %lld without swiglu", (long long)fusion);
    if (fusion && third) fail(L, "fc3 weights with swiglu_fusion %lld", (long long)fusion);
    if (glu && !fusion && !third) fail(L, "swiglu needs fc3 weights, or swiglu_fusion");
    if (m->layer[2].bias && !third) fail(L, "fc3_experts_bias without fc3_experts_weights");
    if (attr_i(L, "use_sparse_mixer", 0)) unsupported(L, "use_sparse_mixer");
    if (attr_i(L, "swiglu_limit_after_activation", 0))
        unsupported(L, "swiglu_limit_after_activation");
    return fusion;
}

/* Outputs the experts' result, once layers and inner are set; `shares` as in choose. */
static void experts(Lower *L, Moe *m, Tensor *shares) {
    Cx *c = L->cx;
    Tensor *x = in_needed(L, 0);
    m->route = in_needed(L, 1);
    m->w = wide_float(x->dtype);
    m->x = x;
    int64_t fusion = fused(L, m);
    if (x->rank != 2 && x->rank != 3) fail(L, "the input must have rank 2 or 3, not %d", x->rank);
    check_rank(L, m->route, 2, "router_probs");
    m->size = x->dim[x->rank - 1];
    m->rows = x->rank == 3 ? e_mul(c, x->dim[0], x->dim[1]) : x->dim[0];
    if (x->rank == 3) m->x = t_reshape(L, x, 2, (Expr *[]){m->rows, m->size});
    check_eq(L, m->route->dim[0], m->rows, "router_probs must have a row for each of the input");
    if (shares)
        check_shape(L, shares, 2, m->route->dim, "router_weights",
                    "router_weights must have the shape of router_probs");
    Expr *wide = fusion ? e_muli(c, m->inner, 2) : m->inner;
    check_layer(L, m, &m->layer[0], wide, m->size);
    check_layer(L, m, &m->layer[1], m->size, m->inner);
    if (m->layer[2].w) check_layer(L, m, &m->layer[2], m->inner, m->size);
    choose(L, m, shares);

    /* each expert's result for a row, then their weighted sum */
    Tensor *h = hidden(L, m, fusion);
    Tensor *t = product(L, m, &m->layer[1], h, m->size, m->inner);
    Tensor *y = te_begin(L, x->dtype, 2, (Expr *[]){m->rows, m->size});
    Axis *j = axis_new(c, m->k);
    Expr *at[3] = {ax(L, y, 0), e_axis(c, j), ax(L, y, 1)};
    Expr *v = e_reduce(c, R_SUM, 1, &j, e_mul(c, ld(L, m->share, at), ld(L, t, at)));
    y = te_end(L, y, e_cast(c, x->dtype, v));
    out(L, 0, x->rank == 3 ? t_reshape(L, y, 3, x->dim) : y);
}

static const char *const layer_name[3] = {"fc1", "fc2", "fc3"};

void lower_MoE(Lower *L) {
    Moe m = {0};
    for (int i = 0; i < 3; i++) {
        Tensor *w = i < 2 ? in_needed(L, 2 + 2 * i) : in(L, 6);
        m.layer[i] = (Layer){.w = w, .bias = in(L, 3 + 2 * i), .what = layer_name[i]};
    }
    check_rank(L, m.layer[1].w, 3, "fc2_experts_weights");
    m.inner = m.layer[1].w->dim[2];
    experts(L, &m, NULL);
}

/* Bits of a weight of layer i. */
static int64_t weight_bits(Lower *L, int i) {
    const char *name = arena_printf(L->a, "%s_expert_weight_bits", layer_name[i]);
    int64_t bits = attr_i(L, name, attr_i(L, "expert_weight_bits", 4));
    if (bits != 2 && bits != 4 && bits != 8)
        unsupported(L, "%s weights of %lld bits; only 2, 4 and 8 are supported", layer_name[i],
                    (long long)bits);
    return bits;
}

void lower_QMoE(Lower *L) {
    Moe m = {.block = attr_i(L, "block_size", 0)};
    if (attr_i(L, "weights_prepacked", -1) == 1) unsupported(L, "weights_prepacked 1");
    for (int i = 15; i < 21; i++)
        if (has_in(L, i)) fail(L, "input %d is for other kinds of quantization", i);
    if (m.block < 0 || m.block > INT32_MAX)
        fail(L, "block_size must not be negative, it is %lld", (long long)m.block);
    for (int i = 0; i < 3; i++) {
        Tensor *w = i < 2 ? in_needed(L, 2 + 3 * i) : in(L, 8);
        m.layer[i] = (Layer){.w = w,
                             .scale = in(L, 3 + 3 * i),
                             .bias = in(L, 4 + 3 * i),
                             .zero = in(L, 11 + i),
                             .bits = weight_bits(L, i),
                             .what = layer_name[i]};
    }
    check_rank(L, m.layer[1].w, 3, "fc2_experts_weights");
    m.inner = e_muli(L->cx, m.layer[1].w->dim[2], 8 / m.layer[1].bits);
    experts(L, &m, in(L, 14));
}
