/* linear_attention.c: attention and convolution with a carried state. */
#include <string.h>

#include "utask/ops/attention.h"
#include "utask/ops/matmul.h"

/* ---- LinearAttention ------------------------------------------------------------------------- */

/* A LinearAttention's sizes and loop step. Packed inputs are [batch, time, heads * size]. */
typedef struct LinAttn {
    Expr *batch, *time, *ksize, *vsize; /* sizes of a key and of a value */
    Expr *groups, *members;             /* value heads; query heads that share one */
    Expr *per_query, *per_key;          /* value heads that share a query or key head */
    Expr *now;                          /* time step of the loop */
} LinAttn;

/* Element (b, now, head * size + i) of a packed input, in float32. */
static Expr *packed_at(Lower *L, const LinAttn *A, Tensor *x, Expr *b, Expr *head, Expr *size,
                       Expr *i) {
    Expr *idx[3] = {b, A->now, e_add(L->cx, e_mul(L->cx, head, size), i)};
    return e_cast(L->cx, DT_F32, ld(L, x, idx));
}

/* The same for the key of value head g. */
static Expr *key_at(Lower *L, const LinAttn *A, Tensor *key, Expr *b, Expr *g, Expr *i) {
    Expr *head = e_is_ival(A->per_key, 1) ? g : e_bin(L->cx, E_FDIV, g, A->per_key);
    return packed_at(L, A, key, b, head, A->ksize, i);
}

/* Checks that x is [batch, time, …]. */
static void packed_input(Lower *L, const LinAttn *A, Tensor *x, const char *what) {
    Cx *c = L->cx;
    check_rank(L, x, 3, what);
    check(L, e_and(c, e_eq(c, x->dim[0], A->batch), e_eq(c, x->dim[1], A->time)),
          "%s must have the batch size and length of the query (%s x %s, not %s x %s)", what,
          said(L, x->dim[0]), said(L, x->dim[1]), said(L, A->batch), said(L, A->time));
}

/* state * exp(decay), the decay per key element or per head */
static Tensor *decayed(Lower *L, const LinAttn *A, Tensor *state, Tensor *decay) {
    Cx *c = L->cx;
    Expr *per_head = e_eq(c, decay->dim[2], A->groups);
    Expr *idx[4];
    Tensor *t = te_indexed(L, DT_F32, 4, state->dim, idx);
    Expr *whole = packed_at(L, A, decay, idx[0], idx[1], e_int(c, 1), e_int(c, 0));
    Expr *each = packed_at(L, A, decay, idx[0], idx[1], A->ksize, idx[2]);
    Expr *g = e_un(c, E_EXP, e_sel(c, per_head, whole, each));
    return te_end(L, t, e_mul(c, ld(L, state, idx), g));
}

/* beta * (value - sum_d state[b,h,d,m] key[d]): the value to be written, [batch, groups, vsize] */
static Tensor *correction(Lower *L, const LinAttn *A, Tensor *state, Tensor *key, Tensor *value,
                          Tensor *beta) {
    Cx *c = L->cx;
    Expr *dim[3] = {A->batch, A->groups, A->vsize}, *at[3];
    Tensor *t = te_indexed(L, DT_F32, 3, dim, at);
    Axis *d = axis_new(c, A->ksize);
    Expr *si[4] = {at[0], at[1], e_axis(c, d), at[2]};
    Expr *k = key_at(L, A, key, at[0], at[1], e_axis(c, d));
    Tensor *seen = te_end(L, t, e_reduce(c, R_SUM, 1, &d, e_mul(c, ld(L, state, si), k)));

    t = te_indexed(L, DT_F32, 3, dim, at);
    Expr *one = e_eq(c, beta->dim[2], e_int(c, 1));
    Expr *bi[3] = {at[0], A->now, e_sel(c, one, e_int(c, 0), at[1])};
    Expr *rate = e_cast(c, DT_F32, ld(L, beta, bi));
    Expr *v = packed_at(L, A, value, at[0], at[1], A->vsize, at[2]);
    return te_end(L, t, e_mul(c, rate, e_sub(c, v, ld(L, seen, at))));
}

/* state + key ⊗ value, with `write` as the value if it is not NULL */
static Tensor *written(Lower *L, const LinAttn *A, Tensor *state, Tensor *key, Tensor *value,
                       Tensor *write) {
    Expr *idx[4];
    Tensor *t = te_indexed(L, DT_F32, 4, state->dim, idx);
    Expr *k = key_at(L, A, key, idx[0], idx[1], idx[2]);
    Expr *wi[3] = {idx[0], idx[1], idx[3]};
    Expr *v = write ? ld(L, write, wi) : packed_at(L, A, value, idx[0], idx[1], A->vsize, idx[3]);
    return te_end(L, t, e_add(L->cx, ld(L, state, idx), e_mul(L->cx, k, v)));
}

/* scale * sum_d query[d] state[b,g,d,m], as [batch, groups, members, vsize] */
static Tensor *read_state(Lower *L, const LinAttn *A, Tensor *state, Tensor *query, Expr *scale) {
    Cx *c = L->cx;
    Expr *dim[4] = {A->batch, A->groups, A->members, A->vsize};
    Tensor *t = te_begin(L, DT_F32, 4, dim);
    Axis *d = axis_new(c, A->ksize);
    Expr *b = ax(L, t, 0), *g = ax(L, t, 1), *along = e_axis(c, d);
    Expr *head = e_add(c, e_mul(c, g, A->members), ax(L, t, 2));
    if (!e_is_ival(A->per_query, 1)) head = e_bin(c, E_FDIV, g, A->per_query);
    Expr *si[4] = {b, g, along, ax(L, t, 3)};
    Expr *product = e_mul(c, packed_at(L, A, query, b, head, A->ksize, along), ld(L, state, si));
    return te_end(L, t, e_mul(c, e_reduce(c, R_SUM, 1, &d, product), scale));
}

/* What the update rule takes, as a decay and a beta; others are not looked at (ms), or refused. */
static void rule_inputs(Lower *L, bool ms, Tensor **decay, Tensor **beta) {
    const char *rule = attr_s(L, "update_rule", "gated_delta");
    bool gated = strcmp(rule, "gated") == 0 || strcmp(rule, "gated_delta") == 0;
    bool delta = strcmp(rule, "delta") == 0 || strcmp(rule, "gated_delta") == 0;
    if (!gated && !delta && strcmp(rule, "linear") != 0)
        fail(L, "update_rule '%s' is not one of linear, gated, delta, gated_delta", rule);
    *decay = in(L, 4);
    *beta = in(L, 5);
    if (gated ? !*decay : *decay && !ms)
        fail(L, "update_rule '%s' %s a decay", rule, gated ? "needs" : "does not take");
    if (delta ? !*beta : *beta && !ms)
        fail(L, "update_rule '%s' %s a beta", rule, delta ? "needs" : "does not take");
    if (!gated) *decay = NULL;
    if (!delta) *beta = NULL;
}

/* Fills the sizes of A from the inputs and the numbers of query and key-value heads. Query heads
 * share value heads or, if ms, value heads share query heads and key heads (maybe fewer). */
static void lin_sizes(Lower *L, LinAttn *A, bool ms, int64_t qn, int64_t kn) {
    Cx *c = L->cx;
    Tensor *q = in(L, 0), *k = in(L, 1), *v = in(L, 2);
    check_rank(L, q, 3, "query");
    bool inverse = ms && qn > 0 && kn > qn && kn % qn == 0;
    if (kn < 1 || qn < 1 || qn > INT32_MAX || kn > INT32_MAX || (!inverse && qn % kn))
        fail(L, "q_num_heads (%lld) must be a positive multiple of kv_num_heads (%lld)%s",
             (long long)qn, (long long)kn, ms ? ", or a divisor" : "");
    A->batch = q->dim[0];
    A->time = q->dim[1];
    A->groups = e_int(c, kn);
    A->members = e_int(c, inverse ? 1 : qn / kn);
    A->per_query = e_int(c, inverse ? kn / qn : 1);
    A->per_key = e_int(c, 1);
    packed_input(L, A, k, "key");
    packed_input(L, A, v, "value");
    A->vsize = attn_head_size(L, v, A->groups, "the value");
    if (!ms) {
        A->ksize = attn_head_size(L, k, A->groups, "the key");
        check_eq(L, q->dim[2], e_muli(c, A->ksize, qn), "query and key must have one head size");
        return;
    }
    A->ksize = attn_head_size(L, q, e_int(c, qn), "the query");
    if (k->dim[2] == e_mul(c, A->groups, A->ksize)) return;
    Expr *keys = let(L, "keys", e_bin(c, E_FDIV, k->dim[2], A->ksize), 0);
    check(L, e_and(c, e_lt(c, e_int(c, 0), keys), e_eq(c, e_mul(c, keys, A->ksize), k->dim[2])),
          "query and key must have one head size");
    A->per_key = let(L, "per_key", e_bin(c, E_FDIV, A->groups, keys), 0);
    check_eq(L, e_mul(c, A->per_key, keys), A->groups,
             "the number of key heads must divide kv_num_heads (%lld)", (long long)kn);
}

static void check_gates(Lower *L, const LinAttn *A, Tensor *decay, Tensor *beta) {
    Cx *c = L->cx;
    if (decay) {
        packed_input(L, A, decay, "decay");
        Expr *n = decay->dim[2];
        check(L, e_or(c, e_eq(c, n, A->groups), e_eq(c, n, e_mul(c, A->groups, A->ksize))),
              "decay must have an element per head or per key element (%s for %s heads)",
              said(L, n), said(L, A->groups));
    }
    if (beta) {
        packed_input(L, A, beta, "beta");
        Expr *n = beta->dim[2];
        check(L, e_or(c, e_eq(c, n, A->groups), e_eq(c, n, e_int(c, 1))),
              "beta must have an element per head or one");
    }
}

/* Checks that a state is [dims], or [W, dims] for a window of W states. */
static void check_state(Lower *L, const Tensor *past, int rank, Expr **dim, int64_t window) {
    int more = window > 0;
    if (past->rank != rank + more)
        fail(L, "past_state must have rank %d, not %d", rank + more, past->rank);
    if (more)
        check_eq(L, past->dim[0], e_int(L->cx, window), "past_state must have %lld states",
                 (long long)window);
    for (int i = 0; i < rank; i++)
        check_eq(L, past->dim[i + more], dim[i], "past_state has a wrong size (axis %d)", i + more);
}

/* How many of the last states are kept; 0: one, without an axis for it. */
static int64_t state_window(Lower *L) {
    int64_t w = attr_i(L, "state_window", 0);
    if (w < 0 || w > 8) fail(L, "state_window must be 0 to 8, not %lld", (long long)w);
    return w;
}

/* The window after a step: drops the oldest state and appends `next`. */
static Tensor *window_next(Lower *L, Tensor *window, Tensor *next) {
    Cx *c = L->cx;
    Expr *idx[MAX_RANK];
    Tensor *t = te_indexed(L, window->dtype, window->rank, window->dim, idx);
    Expr *last = e_addi(c, t->dim[0], -1), *i = idx[0], *fresh = ld(L, next, idx + 1);
    idx[0] = e_addi(c, i, 1);
    return te_end(L, t, e_sel(c, e_lt(c, i, last), ld(L, window, idx), fresh));
}

static void linear_attention(Lower *L, bool ms) {
    Cx *c = L->cx;
    Tensor *q = in(L, 0), *k = in(L, 1), *v = in(L, 2), *past = in(L, 3), *decay, *beta;
    int64_t qn = attr_i(L, "q_num_heads", 0), window = state_window(L);
    LinAttn A = {0};
    rule_inputs(L, ms, &decay, &beta);
    lin_sizes(L, &A, ms, qn, attr_i(L, "kv_num_heads", 0));
    check_gates(L, &A, decay, beta);
    Expr *sdim[5] = {e_int(c, window), A.batch, A.groups, A.ksize, A.vsize};
    DType state_type = past ? past->dtype : q->dtype;
    if (past) check_state(L, past, 4, sdim + 1, window);
    if (past && window) past = t_at(L, past, 0, e_int(c, window - 1));
    Expr *scale = attn_scale(L, DT_F32, A.ksize, attr_f(L, "scale", 0));

    Tensor *init = past ? t_cast(L, DT_F32, past) : t_zeros(L, DT_F32, 4, sdim + 1);
    Tensor *none = window ? t_zeros(L, DT_F32, 5, sdim) : NULL;
    LoopB *loop = loop_begin(L, A.time);
    A.now = loop_iter(loop);
    Tensor *state = loop_carry(L, loop, init), *kept = state, *write = NULL, *all = NULL;
    if (window) all = loop_carry(L, loop, none);
    if (decay) kept = decayed(L, &A, kept, decay);
    if (beta) write = correction(L, &A, kept, k, v, beta);
    Tensor *next = written(L, &A, kept, k, v, write);
    Tensor *step = read_state(L, &A, next, q, scale);
    loop_next(L, loop, state, next);
    if (window) loop_next(L, loop, all, window_next(L, all, next));
    Tensor *steps = loop_scan(L, loop, step);
    loop_end(L, loop);

    /* [time, batch, groups, members, vsize] to [batch, time, heads * vsize] */
    static const int perm[5] = {1, 0, 2, 3, 4};
    Expr *width = e_mul(c, e_mul(c, A.groups, A.members), A.vsize);
    Expr *odim[3] = {A.batch, A.time, width};
    Tensor *y = t_reshape(L, t_transpose(L, steps, perm), 3, odim);
    out(L, 0, t_cast(L, q->dtype, y));
    out(L, 1, t_cast(L, state_type, window ? all : state));
}

void lower_LinearAttention(Lower *L) { linear_attention(L, false); }
void lower_MsLinearAttention(Lower *L) { linear_attention(L, true); }

/* ---- CausalConvWithState --------------------------------------------------------------------- */

/* y[b,c,l] = act(bias[c] + sum_k weight[c,0,k] padded[b,c,l + k dilation]), padded = past ++ x;
 * past is [batch, channels, (k - 1) dilation], or NULL for zeros. */
static Tensor *causal_conv(Lower *L, Tensor *padded, Tensor *x, Expr *dilation) {
    Cx *c = L->cx;
    Tensor *weight = in(L, 1), *bias = in(L, 2);
    static const char *const acts[] = {"none", "silu", "swish"};
    bool silu = attr_choice(L, "activation", COUNT(acts), acts) > 0;
    DType w = wide_float(x->dtype);
    Tensor *t = te_begin(L, w, 3, x->dim);
    Axis *tap = axis_new(c, weight->dim[2]);
    Expr *from = e_mul(c, e_axis(c, tap), dilation);
    Expr *xi[3] = {ax(L, t, 0), ax(L, t, 1), e_add(c, ax(L, t, 2), from)};
    Expr *wi[3] = {ax(L, t, 1), e_int(c, 0), e_axis(c, tap)};
    Expr *product = e_mul(c, e_cast(c, w, ld(L, padded, xi)), e_cast(c, w, ld(L, weight, wi)));
    Tensor *y = te_end(L, t, e_reduce(c, R_SUM, 1, &tap, product));
    if (bias) {
        check_shape(L, bias, 1, &x->dim[1], "bias", "bias must have one element per channel");
        y = t_bin(L, E_ADD, y, t_unsqueeze(L, t_cast(L, w, bias), 1));
    }
    if (silu) y = t_bin(L, E_MUL, y, t_un(L, E_SIGMOID, y));
    return t_cast(L, x->dtype, y);
}

/* Dims of the state of x [batch, channels, length]; checks the weights. */
static void conv_state(Lower *L, Tensor *x, Expr *dilation, Expr *dim[3]) {
    Cx *c = L->cx;
    Tensor *weight = in(L, 1);
    check_rank(L, weight, 3, "weight");
    Expr *one = e_int(c, 1), *k = weight->dim[2];
    check(L, e_and(c, e_eq(c, weight->dim[0], x->dim[1]), e_eq(c, weight->dim[1], one)),
          "weight must be [channels, 1, k]");
    check_le(L, one, k, "the kernel is empty");
    dim[0] = x->dim[0];
    dim[1] = x->dim[1];
    dim[2] = e_mul(c, e_max(c, e_addi(c, k, -1), e_int(c, 0)), dilation);
}

void lower_CausalConvWithState(Lower *L) {
    Tensor *x = in(L, 0), *past = in(L, 3);
    check_rank(L, x, 3, "the input");
    Expr *sdim[3], *one = e_int(L->cx, 1);
    conv_state(L, x, one, sdim);
    if (past) check_state(L, past, 3, sdim, 0);
    if (!past) past = t_zeros(L, x->dtype, 3, sdim);
    Tensor *both[2] = {past, x}, *padded = t_concat(L, 2, both, 2);
    out(L, 0, causal_conv(L, padded, x, one));
    if (wants_out(L, 1)) out(L, 1, t_slice(L, padded, 2, x->dim[2], one, sdim[2]));
}

static void refuse_extensions(Lower *L) {
    static const char *const name[] = {"state_update_capacity", "state_length",
                                       "input_channel_offset", "input_channels"};
    for (size_t i = 0; i < COUNT(name); i++)
        if (attr_i(L, name[i], 0)) unsupported(L, "%s", name[i]);
    if (attr_i(L, "state_channels_last", -1) != -1) unsupported(L, "state_channels_last");
    if (wants_out(L, 2)) unsupported(L, "state_update");
    int64_t n = attr_i(L, "ndim", 1);
    if (n != 1) unsupported(L, "ndim %lld; only 1 is supported", (long long)n);
}

/* With channels_last everything except the weights is [batch, length, channels…]. A window of
 * states holds the state after each of the last positions. */
void lower_MsCausalConvWithState(Lower *L) {
    Cx *c = L->cx;
    Tensor *x = in(L, 0), *past = in(L, 3);
    bool last = attr_i(L, "channels_last", 0) != 0;
    int64_t window = state_window(L), dil = attr_i(L, "dilation", 1);
    refuse_extensions(L);
    if (dil < 1 || dil > 1 << 20)
        fail(L, "dilation must be 1 to 1048576, not %lld", (long long)dil);
    if (last ? x->rank < 3 || x->rank > MAX_RANK - 1 : x->rank != 3)
        fail(L, "the input must have rank 3%s, not %d", last ? " or more" : "", x->rank);
    Expr *whole[MAX_RANK], *channels = x->dim[2], *one = e_int(c, 1), *state[MAX_RANK], *sdim[3];
    int rank = x->rank;
    memcpy(whole, x->dim, sizeof whole);
    if (last) { /* to [batch, length, channels], then as without channels_last */
        for (int i = 3; i < rank; i++) channels = e_mul(c, channels, x->dim[i]);
        Expr *dim[3] = {x->dim[0], x->dim[1], channels};
        x = t_swap_last(L, t_reshape(L, x, 3, dim));
    }
    conv_state(L, x, e_int(c, dil), sdim);
    memcpy(state + 1, last ? whole : sdim, (last ? (size_t)rank : 3) * sizeof *state);
    if (last) state[2] = sdim[2];
    state[0] = e_int(c, window);
    if (past) {
        check_state(L, past, rank, state + 1, window);
        if (window) past = t_at(L, past, 0, e_int(c, window - 1));
        Expr *dim[3] = {sdim[0], sdim[2], sdim[1]};
        if (last) past = t_swap_last(L, t_reshape(L, past, 3, dim));
    } else {
        past = t_zeros(L, x->dtype, 3, sdim);
    }
    Tensor *both[2] = {past, x}, *padded = t_concat(L, 2, both, 2);
    Tensor *y = causal_conv(L, padded, x, e_int(c, dil));
    out(L, 0, last ? t_reshape(L, t_swap_last(L, y), rank, whole) : y);
    if (!wants_out(L, 1)) return;
    Expr *dim[4] = {e_int(c, window ? window : 1), sdim[0], sdim[1], sdim[2]}, *length = x->dim[2];
    Tensor *t = te_begin(L, x->dtype, 4, dim);
    /* number of positions up to this one */
    Expr *n = e_add(c, e_addi(c, ax(L, t, 0), 1), e_sub(c, length, dim[0]));
    Expr *v = ld(L, padded, (Expr *[]){ax(L, t, 1), ax(L, t, 2), e_add(c, n, ax(L, t, 3))});
    if (window) v = e_sel(c, e_le(c, one, n), v, e_num(c, x->dtype, 0));
    t = te_end(L, t, v);
    static const int perm[4] = {0, 1, 3, 2};
    if (last) t = t_transpose(L, t, perm);
    out(L, 1, t_reshape(L, t, rank + (window > 0), window ? state : state + 1));
}
