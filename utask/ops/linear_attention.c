/* linear_attention.c: attention and convolution with a carried state. */
#include <string.h>

#include "utask/ops/nn.h"

/* ---- LinearAttention ------------------------------------------------------------------------- */

/* Sizes of one LinearAttention and where its loop is. Packed inputs are [batch, time, heads *
 * size]. */
typedef struct Lin {
    Expr *batch, *time, *ksize, *vsize; /* sizes of a key and of a value */
    Expr *groups, *members;             /* key-value heads; query heads that share one */
    Expr *now;                          /* time step of the loop */
} Lin;

/* Element (b, now, head * size + i) of a packed input, in float32. */
static Expr *packed_at(Lower *L, const Lin *A, Tensor *x, Expr *b, Expr *head, Expr *size,
                       Expr *i) {
    Expr *idx[3] = {b, A->now, e_add(L->cx, e_mul(L->cx, head, size), i)};
    return e_cast(L->cx, DT_F32, ld(L, x, idx));
}

/* Checks that x is [batch, time, …]. */
static void packed_input(Lower *L, const Lin *A, Tensor *x, const char *what) {
    Cx *c = L->cx;
    if (x->rank != 3) fail(L, "%s must have rank 3, not %d", what, x->rank);
    check(L, e_and(c, e_eq(c, x->dim[0], A->batch), e_eq(c, x->dim[1], A->time)),
          "%s must have the batch size and length of the query (%s x %s, not %s x %s)", what,
          said(L, x->dim[0]), said(L, x->dim[1]), said(L, A->batch), said(L, A->time));
}

static Expr *head_size(Lower *L, Tensor *x, Expr *heads, const char *what) {
    Cx *c = L->cx;
    Expr *size = e_bin(c, E_FDIV, x->dim[2], heads);
    check(L, e_eq(c, e_mul(c, size, heads), x->dim[2]),
          "%s heads do not divide the last axis of %s, of size %s", said(L, heads), what,
          said(L, x->dim[2]));
    return size;
}

/* state * exp(decay), the decay per key element or per head */
static Tensor *decayed(Lower *L, const Lin *A, Tensor *state, Tensor *decay) {
    Cx *c = L->cx;
    Expr *per_head = e_eq(c, decay->dim[2], A->groups);
    Tensor *t = te_begin(L, DT_F32, 4, state->dim);
    Expr *idx[4];
    for (int i = 0; i < 4; i++) idx[i] = ax(L, t, i);
    Expr *whole = packed_at(L, A, decay, idx[0], idx[1], e_int(c, 1), e_int(c, 0));
    Expr *each = packed_at(L, A, decay, idx[0], idx[1], A->ksize, idx[2]);
    Expr *g = e_un(c, E_EXP, e_sel(c, per_head, whole, each));
    return te_end(L, t, e_mul(c, ld(L, state, idx), g));
}

/* beta * (value - sum_d state[b,h,d,m] key[d]): what is to be written, [batch, groups, vsize] */
static Tensor *correction(Lower *L, const Lin *A, Tensor *state, Tensor *key, Tensor *value,
                          Tensor *beta) {
    Cx *c = L->cx;
    Expr *dim[3] = {A->batch, A->groups, A->vsize};
    Tensor *t = te_begin(L, DT_F32, 3, dim);
    Axis *d = axis_new(c, A->ksize);
    Expr *b = ax(L, t, 0), *h = ax(L, t, 1), *m = ax(L, t, 2);
    Expr *si[4] = {b, h, e_axis(c, d), m};
    Expr *k = packed_at(L, A, key, b, h, A->ksize, e_axis(c, d));
    Tensor *seen = te_end(L, t, e_reduce(c, R_SUM, 1, &d, e_mul(c, ld(L, state, si), k)));

    t = te_begin(L, DT_F32, 3, dim);
    b = ax(L, t, 0);
    h = ax(L, t, 1);
    m = ax(L, t, 2);
    Expr *at[3] = {b, h, m}, *one = e_eq(c, beta->dim[2], e_int(c, 1));
    Expr *bi[3] = {b, A->now, e_sel(c, one, e_int(c, 0), h)};
    Expr *rate = e_cast(c, DT_F32, ld(L, beta, bi));
    Expr *v = packed_at(L, A, value, b, h, A->vsize, m);
    return te_end(L, t, e_mul(c, rate, e_sub(c, v, ld(L, seen, at))));
}

/* state + key ⊗ value, the value from `write` where that is not NULL */
static Tensor *written(Lower *L, const Lin *A, Tensor *state, Tensor *key, Tensor *value,
                       Tensor *write) {
    Cx *c = L->cx;
    Tensor *t = te_begin(L, DT_F32, 4, state->dim);
    Expr *idx[4];
    for (int i = 0; i < 4; i++) idx[i] = ax(L, t, i);
    Expr *k = packed_at(L, A, key, idx[0], idx[1], A->ksize, idx[2]);
    Expr *wi[3] = {idx[0], idx[1], idx[3]};
    Expr *v = write ? ld(L, write, wi) : packed_at(L, A, value, idx[0], idx[1], A->vsize, idx[3]);
    return te_end(L, t, e_add(c, ld(L, state, idx), e_mul(c, k, v)));
}

/* scale * sum_d query[d] state[b,g,d,m], as [batch, groups, members, vsize] */
static Tensor *read_state(Lower *L, const Lin *A, Tensor *state, Tensor *query, Expr *scale) {
    Cx *c = L->cx;
    Expr *dim[4] = {A->batch, A->groups, A->members, A->vsize};
    Tensor *t = te_begin(L, DT_F32, 4, dim);
    Axis *d = axis_new(c, A->ksize);
    Expr *b = ax(L, t, 0), *g = ax(L, t, 1), *along = e_axis(c, d);
    Expr *head = e_add(c, e_mul(c, g, A->members), ax(L, t, 2));
    Expr *si[4] = {b, g, along, ax(L, t, 3)};
    Expr *product = e_mul(c, packed_at(L, A, query, b, head, A->ksize, along), ld(L, state, si));
    return te_end(L, t, e_mul(c, e_reduce(c, R_SUM, 1, &d, product), scale));
}

static Tensor *zeros(Lower *L, DType t, int rank, Expr **dim) {
    Tensor *z = te_begin(L, t, rank, dim);
    return te_end(L, z, e_num(L->cx, t, 0));
}

void lower_LinearAttention(Lower *L) {
    Cx *c = L->cx;
    Tensor *q = in(L, 0), *k = in(L, 1), *v = in(L, 2), *past = in(L, 3);
    Tensor *decay = in(L, 4), *beta = in(L, 5);
    const char *rule = attr_s(L, "update_rule", "gated_delta");
    bool gated = strcmp(rule, "gated") == 0 || strcmp(rule, "gated_delta") == 0;
    bool delta = strcmp(rule, "delta") == 0 || strcmp(rule, "gated_delta") == 0;
    if (!gated && !delta && strcmp(rule, "linear") != 0)
        fail(L, "update_rule '%s' is not one of linear, gated, delta, gated_delta", rule);
    if (gated != (decay != NULL))
        fail(L, "update_rule '%s' %s a decay", rule, gated ? "needs" : "does not take");
    if (delta != (beta != NULL))
        fail(L, "update_rule '%s' %s a beta", rule, delta ? "needs" : "does not take");
    int64_t qn = attr_i(L, "q_num_heads", 0), kn = attr_i(L, "kv_num_heads", 0);
    if (kn < 1 || qn < 1 || qn > INT32_MAX || qn % kn)
        fail(L, "q_num_heads (%lld) must be a positive multiple of kv_num_heads (%lld)",
             (long long)qn, (long long)kn);
    if (q->rank != 3) fail(L, "query must have rank 3, not %d", q->rank);

    Lin A = {.batch = q->dim[0], .time = q->dim[1]};
    A.groups = e_int(c, kn);
    A.members = e_int(c, qn / kn);
    packed_input(L, &A, k, "key");
    packed_input(L, &A, v, "value");
    A.ksize = head_size(L, k, A.groups, "the key");
    A.vsize = head_size(L, v, A.groups, "the value");
    check_eq(L, q->dim[2], e_muli(c, A.ksize, qn), "query and key must have one head size");
    if (decay) {
        packed_input(L, &A, decay, "decay");
        Expr *n = decay->dim[2];
        check(L, e_or(c, e_eq(c, n, A.groups), e_eq(c, n, e_mul(c, A.groups, A.ksize))),
              "decay must have an element per head or per key element (%s for %s heads)",
              said(L, n), said(L, A.groups));
    }
    if (beta) {
        packed_input(L, &A, beta, "beta");
        Expr *n = beta->dim[2];
        check(L, e_or(c, e_eq(c, n, A.groups), e_eq(c, n, e_int(c, 1))),
              "beta must have an element per head or one (%s for %s heads)", said(L, n),
              said(L, A.groups));
    }
    Expr *sdim[4] = {A.batch, A.groups, A.ksize, A.vsize};
    if (past) {
        if (past->rank != 4) fail(L, "past_state must have rank 4, not %d", past->rank);
        for (int i = 0; i < 4; i++)
            check_eq(L, past->dim[i], sdim[i], "past_state has a wrong size (axis %d)", i);
    }
    DType state_type = past ? past->dtype : q->dtype;
    double factor = attr_f(L, "scale", 0);
    Expr *scale = e_num(c, DT_F32, factor);
    if (factor == 0) {
        Expr *root = e_un(c, E_SQRT, e_cast(c, DT_F32, A.ksize));
        scale = e_div(c, e_num(c, DT_F32, 1), root);
    }

    Tensor *init = past ? t_cast(L, DT_F32, past) : zeros(L, DT_F32, 4, sdim);
    LoopB *loop = loop_begin(L, A.time);
    A.now = loop_iter(loop);
    Tensor *state = loop_carry(L, loop, init), *kept = state, *write = NULL;
    if (gated) kept = decayed(L, &A, kept, decay);
    if (delta) write = correction(L, &A, kept, k, v, beta);
    Tensor *next = written(L, &A, kept, k, v, write);
    Tensor *step = read_state(L, &A, next, q, scale);
    loop_next(L, loop, state, next);
    Tensor *steps = loop_scan(L, loop, step);
    loop_end(L, loop);

    /* [time, batch, groups, members, vsize] to [batch, time, heads * vsize] */
    static const int perm[5] = {1, 0, 2, 3, 4};
    Expr *odim[3] = {A.batch, A.time, e_muli(c, A.vsize, qn)};
    Tensor *y = t_reshape(L, t_transpose(L, steps, perm), 3, odim);
    out(L, 0, t_cast(L, q->dtype, y));
    out(L, 1, t_cast(L, state_type, state));
}

/* ---- CausalConvWithState --------------------------------------------------------------------- */

/* y[b,c,l] = act(bias[c] + sum_k weight[c,0,k] padded[b,c,l+k]), padded = past_state ++ x */
void lower_CausalConvWithState(Lower *L) {
    Cx *c = L->cx;
    Tensor *x = in(L, 0), *weight = in(L, 1), *bias = in(L, 2), *past = in(L, 3);
    const char *act = attr_s(L, "activation", "none");
    bool silu = strcmp(act, "silu") == 0 || strcmp(act, "swish") == 0;
    if (!silu && strcmp(act, "none") != 0)
        fail(L, "activation '%s' is not one of silu, swish, none", act);
    if (x->rank != 3 || weight->rank != 3) fail(L, "input and weight must have rank 3");
    Expr *one = e_int(c, 1), *k = weight->dim[2];
    check(L, e_and(c, e_eq(c, weight->dim[0], x->dim[1]), e_eq(c, weight->dim[1], one)),
          "weight must be [channels, 1, k] for %s channels (%s x %s)", said(L, x->dim[1]),
          said(L, weight->dim[0]), said(L, weight->dim[1]));
    check_le(L, one, k, "the kernel is empty");
    Expr *sdim[3] = {x->dim[0], x->dim[1], e_max(c, e_addi(c, k, -1), e_int(c, 0))};
    if (past) {
        if (past->rank != 3) fail(L, "past_state must have rank 3, not %d", past->rank);
        for (int i = 0; i < 3; i++)
            check_eq(L, past->dim[i], sdim[i], "past_state has a wrong size (axis %d)", i);
    } else {
        past = zeros(L, x->dtype, 3, sdim);
    }
    Tensor *both[2] = {past, x}, *padded = t_concat(L, 2, both, 2);

    DType w = wide_float(x->dtype);
    Tensor *t = te_begin(L, w, 3, x->dim);
    Axis *tap = axis_new(c, k);
    Expr *xi[3] = {ax(L, t, 0), ax(L, t, 1), e_add(c, ax(L, t, 2), e_axis(c, tap))};
    Expr *wi[3] = {ax(L, t, 1), e_int(c, 0), e_axis(c, tap)};
    Expr *product = e_mul(c, e_cast(c, w, ld(L, padded, xi)), e_cast(c, w, ld(L, weight, wi)));
    Tensor *y = te_end(L, t, e_reduce(c, R_SUM, 1, &tap, product));
    if (bias) {
        if (bias->rank != 1) fail(L, "bias must have rank 1, not %d", bias->rank);
        check_eq(L, bias->dim[0], x->dim[1], "bias must have one element per channel");
        y = t_bin(L, E_ADD, y, t_unsqueeze(L, t_cast(L, w, bias), 1));
    }
    if (silu) y = t_bin(L, E_MUL, y, t_un(L, E_SIGMOID, y));
    out(L, 0, t_cast(L, x->dtype, y));
    if (wants_out(L, 1)) out(L, 1, t_slice(L, padded, 2, x->dim[2], e_int(c, 1), sdim[2]));
}
