/* attention.c: scaled dot-product attention.
 *
 * Both products are plain sums of products with affine indices. To keep indices affine when several
 * query heads share a key-value head, the head axis is then split in two (group, member).
 */
#include <math.h>

#include "utask/ops/attention.h"

Expr *attn_head_size(Lower *L, Tensor *x, Expr *heads, const char *what) {
    Cx *c = L->cx;
    Expr *size = e_bin(c, E_FDIV, x->dim[2], heads);
    check(L, e_eq(c, e_mul(c, size, heads), x->dim[2]),
          "%s heads do not divide the last axis of %s, of size %s", said(L, heads), what,
          said(L, x->dim[2]));
    return size;
}

/* [batch, length, heads * size] as [batch, heads, length, size]; `what` is for the message. */
static Tensor *split_heads(Lower *L, Tensor *x, int64_t heads, const char *what) {
    Expr *n = e_int(L->cx, heads), *size = attn_head_size(L, x, n, what);
    return attn_heads_at(L, x, n, size, e_int(L->cx, 0), NULL, NULL);
}

void attn_sizes(Lower *L, Attn *A) {
    Cx *c = L->cx;
    Tensor *q = A->q, *k = A->k, *v = A->v;
    A->batch = q->dim[0];
    A->heads = q->dim[1];
    A->qlen = q->dim[2];
    A->size = q->dim[3];
    A->groups = k->dim[1];
    A->kvlen = k->dim[2];
    A->vsize = v->dim[3];
    check(L, e_and(c, e_eq(c, k->dim[0], A->batch), e_eq(c, v->dim[0], A->batch)),
          "query, key and value must have one batch size (%s, %s, %s)", said(L, A->batch),
          said(L, k->dim[0]), said(L, v->dim[0]));
    check_eq(L, k->dim[3], A->size, "query and key must have one head size");
    check_eq(L, v->dim[1], A->groups, "key and value must have the same number of heads");
    check_eq(L, v->dim[2], A->kvlen, "key and value must have one length");
    A->members = e_bin(c, E_FDIV, A->heads, A->groups);
    check(L, e_eq(c, e_mul(c, A->members, A->groups), A->heads),
          "the number of query heads must be a multiple of the number of key heads (%s and %s)",
          said(L, A->heads), said(L, A->groups));
    A->grouped = !e_is_ival(A->members, 1);
    A->io = q->dtype;
    A->w = wide_float(q->dtype);
    int64_t soft = attr_i(L, "softmax_precision", A->w);
    if (!dtype_supported((int)soft) || !dtype_is_float((DType)soft))
        fail(L, "softmax_precision must be a floating-point type, not %s", dtype_name((int)soft));
    A->soft = wide_float((DType)soft);
}

/* Dims [batch, heads…] + rest, with the head axis split when grouped; returns the rank. */
static int head_dims(const Attn *A, Expr *x, Expr *y, Expr **dim) {
    int n = 0;
    dim[n++] = A->batch;
    dim[n++] = A->grouped ? A->groups : A->heads;
    if (A->grouped) dim[n++] = A->members;
    dim[n++] = x;
    dim[n++] = y;
    return n;
}

Expr *attn_query_head(Lower *L, const Attn *A, Tensor *t, int at) {
    if (!A->grouped) return ax(L, t, at);
    return e_add(L->cx, e_mul(L->cx, ax(L, t, at), A->members), ax(L, t, at + 1));
}

/* [batch, groups, members, x, y] as [batch, heads, x, y]; t itself when not grouped. */
Tensor *attn_merged_heads(Lower *L, const Attn *A, Tensor *t) {
    if (!A->grouped) return t;
    Expr *dim[4] = {A->batch, A->heads, t->dim[3], t->dim[4]};
    return t_reshape(L, t, 4, dim);
}

static Tensor *regrouped_heads(Lower *L, const Attn *A, Tensor *t) {
    if (!A->grouped) return t;
    Expr *dim[MAX_RANK];
    int rank = head_dims(A, t->dim[2], t->dim[3], dim);
    return t_reshape(L, t, rank, dim);
}

static Expr *load_as(Lower *L, DType t, Tensor *x, Expr **idx) {
    return e_cast(L->cx, t, ld(L, x, idx));
}

Expr *attn_scale(Lower *L, DType t, Expr *size, double given) {
    Cx *c = L->cx;
    if (given != 0) return e_num(c, t, given);
    return e_div(c, e_num(c, t, 1), e_un(c, E_SQRT, e_cast(c, t, size)));
}

Tensor *attn_scores(Lower *L, const Attn *A, Expr *scale) {
    Cx *c = L->cx;
    Expr *dim[MAX_RANK];
    int rank = head_dims(A, A->qlen, A->kvlen, dim);
    Tensor *t = te_begin(L, A->w, rank, dim);
    Axis *d = axis_new(c, A->size);
    Expr *b = ax(L, t, 0), *along = e_axis(c, d);
    Expr *qi[4] = {b, attn_query_head(L, A, t, 1), ax(L, t, rank - 2), along};
    Expr *ki[4] = {b, ax(L, t, 1), ax(L, t, rank - 1), along};
    Expr *product = e_mul(c, load_as(L, A->w, A->q, qi), load_as(L, A->w, A->k, ki));
    Tensor *s = te_end(L, t, e_reduce(c, R_SUM, 1, &d, product));
    return t_bin(L, E_MUL, s, t_uniform(L, scale));
}

Tensor *attn_weighted_values(Lower *L, const Attn *A, Tensor *p, bool packed) {
    Cx *c = L->cx;
    Expr *dim[MAX_RANK];
    int rank = head_dims(A, A->qlen, A->vsize, dim), head = 1, row = rank - 2;
    if (packed) {
        for (int i = rank - 2; i > 1; i--) dim[i] = dim[i - 1];
        dim[1] = A->qlen;
        head = 2;
        row = 1;
    }
    Tensor *t = te_begin(L, A->io, rank, dim);
    Axis *j = axis_new(c, A->kvlen);
    Expr *b = ax(L, t, 0), *pi[MAX_RANK];
    int n = 0;
    pi[n++] = b;
    pi[n++] = ax(L, t, head);
    if (A->grouped) pi[n++] = ax(L, t, head + 1);
    pi[n++] = ax(L, t, row);
    pi[n++] = e_axis(c, j);
    Expr *vi[4] = {b, ax(L, t, head), e_axis(c, j), ax(L, t, rank - 1)};
    Expr *product = e_mul(c, load_as(L, A->w, p, pi), load_as(L, A->w, A->v, vi));
    Tensor *y = te_end(L, t, e_cast(c, A->io, e_reduce(c, R_SUM, 1, &j, product)));
    if (!packed) return attn_merged_heads(L, A, y);
    Expr *flat[3] = {A->batch, A->qlen, e_mul(c, A->heads, A->vsize)};
    return t_reshape(L, y, 3, flat);
}

Tensor *attn_softcapped(Lower *L, Tensor *s, double cap) {
    if (!(cap > 0)) return s;
    Tensor *k = t_scalar(L, s->dtype, cap);
    return t_bin(L, E_MUL, t_un(L, E_TANH, t_bin(L, E_DIV, s, k)), k);
}

/* What excludes keys. */
typedef struct Masks {
    Tensor *mask, *nonpad; /* or NULL */
    Expr *past;            /* length of the past; NULL: none */
    bool causal;
    /* number of keys before and after the query's own that it attends to; -1: all */
    int64_t left, right;
} Masks;

static Masks attn_masks(Lower *L, const Attn *A, Tensor *mask, Tensor *nonpad, Expr *past) {
    Masks m = {mask,
               nonpad,
               past,
               attr_i(L, "is_causal", 0) != 0,
               attr_i(L, "left_window_size", -1),
               attr_i(L, "right_window_size", -1)};
    if (m.left < -1 || m.right < -1)
        fail(L, "%s_window_size must be -1 or more, not %lld", m.left < -1 ? "left" : "right",
             (long long)(m.left < -1 ? m.left : m.right));
    if (!nonpad) return m;
    if (past) fail(L, "nonpad_kv_seqlen and past_key cannot be given together");
    check_shape(L, nonpad, 1, &A->batch, "nonpad_kv_seqlen",
                "nonpad_kv_seqlen must have one element per sample");
    return m;
}

/* Whether some query may be left without any key. */
static bool may_see_nothing(const Masks *m) {
    return m->mask || m->nonpad || m->left >= 0 || m->right >= 0;
}

/* Adds the mask and writes -inf at excluded positions. */
static Tensor *masked_scores(Lower *L, const Attn *A, Tensor *s, const Masks *m) {
    Cx *c = L->cx;
    Tensor *mask = m->mask;
    if (!may_see_nothing(m) && !m->causal) return s;
    Expr *idx[MAX_RANK];
    Tensor *t = te_indexed(L, s->dtype, s->rank, s->dim, idx);
    Expr *i = idx[s->rank - 2], *j = idx[s->rank - 1];
    Expr *value = ld(L, s, idx), *keep = e_bool(c, true), *at = i; /* the query's own key */
    if (m->past) at = e_add(c, i, m->past);
    if (m->nonpad) { /* the queries are at the end of the keys */
        Expr *b = ax(L, t, 0), *end = load_as(L, DT_I64, m->nonpad, &b);
        at = e_add(c, i, e_sub(c, end, A->qlen));
        keep = e_lt(c, j, end);
    }
    if (m->causal) keep = e_and(c, keep, e_le(c, j, at));
    if (m->left >= 0) keep = e_and(c, keep, e_le(c, e_sub(c, at, j), e_int(c, m->left)));
    if (m->right >= 0) keep = e_and(c, keep, e_le(c, e_sub(c, j, at), e_int(c, m->right)));
    if (mask) {
        if (mask->rank < 1 || mask->rank > 4)
            fail(L, "attn_mask must have rank 1 to 4, not %d", mask->rank);
        /* The last axis of the mask may be shorter: later keys are excluded. */
        Expr *len = mask->dim[mask->rank - 1];
        check_le(L, len, A->kvlen, "attn_mask is longer than the keys");
        Expr *full[4] = {A->batch, A->heads, A->qlen, len};
        Expr *place[4] = {ax(L, t, 0), attn_query_head(L, A, t, 1), i, j};
        for (int k = 0; k < mask->rank - 1; k++) {
            Expr *d = mask->dim[k], *want = full[4 - mask->rank + k];
            check_fits(L, d, want, "attn_mask does not broadcast to the scores (its axis %d)", k);
        }
        Expr *within = e_lt(c, j, len), *x = ld_bcast(L, mask, 4, place, full);
        if (mask->dtype == DT_BOOL) {
            keep = e_and(c, keep, e_sel(c, within, x, e_bool(c, false)));
        } else { /* -inf whatever the score is */
            Expr *none = e_num(c, mask->dtype, -INFINITY);
            keep = e_and(c, keep, e_sel(c, within, e_not(c, e_eq(c, x, none)), e_bool(c, false)));
            value = e_add(c, value, e_cast(c, s->dtype, x));
        }
    }
    return te_end(L, t, e_sel(c, keep, value, e_num(c, s->dtype, -INFINITY)));
}

Tensor *attn_softmax(Lower *L, const Attn *A, Tensor *s) {
    return t_softmax(L, t_cast(L, A->soft, s), s->rank - 1, false);
}

/* Softmax where a row of only -inf gives zeros. */
static Tensor *guarded_softmax(Lower *L, const Attn *A, Tensor *s) {
    Tensor *x = t_cast(L, A->soft, s), *none = t_scalar(L, A->soft, -INFINITY);
    Tensor *zero = t_scalar(L, A->soft, 0), *one = t_scalar(L, A->soft, 1);
    uint32_t last = 1u << (s->rank - 1);
    Tensor *max = t_reduce(L, R_MAX, x, last, true);
    Tensor *e =
        t_un(L, E_EXP, t_bin(L, E_SUB, x, t_where(L, t_bin(L, E_EQ, max, none), zero, max)));
    Tensor *sum = t_reduce(L, R_SUM, e, last, true);
    return t_bin(L, E_DIV, e, t_where(L, t_bin(L, E_EQ, sum, zero), one, sum));
}

/* Here a scale of 0 is one. */
static Expr *own_scale(Lower *L, const Attn *A) {
    if (attr_has(L, "scale")) return e_num(L->cx, A->w, attr_f(L, "scale", 1));
    return attn_scale(L, A->w, A->size, 0);
}

void lower_Attention(Lower *L) {
    Tensor *q = in(L, 0), *k = in(L, 1), *v = in(L, 2), *mask = in(L, 3);
    Tensor *past_k = in(L, 4), *past_v = in(L, 5), *nonpad = in(L, 6);
    bool packed = q->rank == 3;
    if (k->rank != q->rank || v->rank != q->rank || (!packed && q->rank != 4))
        fail(L, "query, key and value must all have rank 3 or all rank 4, not %d, %d and %d",
             q->rank, k->rank, v->rank);
    if (packed) {
        int64_t qn = attr_positive(L, "q_num_heads", 0), kn = attr_positive(L, "kv_num_heads", 0);
        q = split_heads(L, q, qn, "the query");
        k = split_heads(L, k, kn, "the key");
        v = split_heads(L, v, kn, "the value");
    }
    Expr *past = NULL;
    if (!past_k != !past_v) fail(L, "past_key and past_value must be given together");
    if (past_k) {
        if (past_k->rank != 4 || past_v->rank != 4)
            fail(L, "past_key and past_value must have rank 4, not %d and %d", past_k->rank,
                 past_v->rank);
        past = past_k->dim[2];
        Tensor *kk[2] = {past_k, k}, *vv[2] = {past_v, v};
        k = t_concat(L, 2, kk, 2);
        v = t_concat(L, 2, vv, 2);
    }
    Attn A = {.q = q, .k = k, .v = v};
    attn_sizes(L, &A);

    int64_t mode = attr_i(L, "qk_matmul_output_mode", 0);
    if (mode < 0 || mode > 3)
        fail(L, "qk_matmul_output_mode must be 0 to 3, not %lld", (long long)mode);
    const Masks masks = attn_masks(L, &A, mask, nonpad, past);
    Tensor *stage[4];
    stage[0] = attn_scores(L, &A, own_scale(L, &A));
    stage[1] = attn_softcapped(L, stage[0], attr_f(L, "softcap", 0));
    stage[2] = masked_scores(L, &A, stage[1], &masks);
    stage[3] =
        may_see_nothing(&masks) ? guarded_softmax(L, &A, stage[2]) : attn_softmax(L, &A, stage[2]);
    out(L, 0, attn_weighted_values(L, &A, stage[3], packed));
    out(L, 1, k);
    out(L, 2, v);
    if (wants_out(L, 3)) out(L, 3, t_cast(L, A.io, attn_merged_heads(L, &A, stage[mode])));
}

/* ---- FlexAttention --------------------------------------------------------------------------- */

/* Applies the subgraph in attribute `name` to the scores or probabilities of A. */
static Tensor *modified(Lower *L, const Attn *A, Tensor *s, const char *name) {
    const Attr *attr = node_attr(L->node, name);
    if (!attr) return s;
    if (attr->kind != AT_GRAPH || attr->g->nparam != 1 || attr->g->nresult != 1)
        fail(L, "%s must be a graph with one input and one output", name);
    Tensor *whole = attn_merged_heads(L, A, s);
    Val *param = val_tensor(L, whole), *result;
    lower_region(L, attr->g, 1, &param, 1, &result);
    if (result->kind != VT_TENSOR || result->t->dtype != whole->dtype || result->t->rank != 4)
        fail(L, "%s must keep type and shape of its input", name);
    const char *fmt = arena_printf(L->a, "%s must keep the shape of its input (axis %%d)", name);
    check_dims(L, 4, result->t->dim, whole->dim, fmt);
    return regrouped_heads(L, A, result->t);
}

void lower_FlexAttention(Lower *L) {
    Attn A = {.q = in(L, 0), .k = in(L, 1), .v = in(L, 2)};
    if (A.q->rank != 4 || A.k->rank != 4 || A.v->rank != 4)
        fail(L, "query, key and value must have rank 4");
    attn_sizes(L, &A);
    Tensor *s =
        modified(L, &A, t_cast(L, A.soft, attn_scores(L, &A, own_scale(L, &A))), "score_mod");
    Tensor *p = modified(L, &A, attn_softmax(L, &A, s), "prob_mod");
    out(L, 0, attn_weighted_values(L, &A, p, false));
}
