/* ms_attention.c: com.microsoft's Attention, QAttention, MultiHeadAttention and its decoder's form,
 * as defined by ONNX Runtime's ContribOperators.md and CPU kernels: mask_filter_value is added to
 * masked scores; scores excluded by a causal mask become the lowest number. */
#include "utask/ops/attention.h"
#include "utask/ops/matmul.h"
#include "utask/ops/size.h"

/* ---- parts ----------------------------------------------------------------------------------- */

Tensor *attn_heads_at(Lower *L, Tensor *x, Expr *heads, Expr *size, Expr *from, Tensor *bias,
                      Expr *bias_from) {
    Cx *c = L->cx;
    Expr *dim[4] = {x->dim[0], heads, x->dim[1], size};
    Tensor *t = te_begin(L, x->dtype, 4, dim);
    Expr *at = e_add(c, e_mul(c, ax(L, t, 1), size), ax(L, t, 3));
    Expr *v = ld(L, x, (Expr *[]){ax(L, t, 0), ax(L, t, 2), e_add(c, from, at)});
    if (bias) v = e_add(c, v, ld(L, bias, (Expr *[]){e_add(c, bias_from, at)}));
    return te_end(L, t, v);
}

Tensor *attn_biased(Lower *L, const Attn *A, Tensor *s, Tensor *bias, Expr *width) {
    if (!bias) return s;
    Cx *c = L->cx;
    check_rank(L, bias, 4, "attention_bias");
    Expr *want[4] = {A->batch, A->heads, A->qlen, width}, *idx[MAX_RANK];
    for (int k = 0; k < 4; k++) {
        Expr *d = bias->dim[k], *same = e_eq(c, d, want[k]);
        check(L, k < 2 ? e_or(c, e_eq(c, d, e_int(c, 1)), same) : same,
              "attention_bias does not fit the scores (its axis %d)", k);
    }
    Tensor *t = te_indexed(L, s->dtype, s->rank, s->dim, idx);
    Expr *j = idx[s->rank - 1];
    Expr *at[4] = {idx[0], attn_query_head(L, A, t, 1), idx[s->rank - 2], j};
    Expr *v = e_cast(c, s->dtype, ld_bcast(L, bias, 4, at, want));
    if (width != A->kvlen) v = e_sel(c, e_lt(c, j, width), v, e_num(c, s->dtype, 0));
    return te_end(L, t, e_add(c, ld(L, s, idx), v));
}

void attn_check_past(Lower *L, const Tensor *past, const Tensor *fresh, const char *heads) {
    for (int i = 0; i < past->rank; i++)
        if (i != past->rank - 2)
            check_eq(L, past->dim[i], fresh->dim[i], "past is not [%sbatch, %s, length, head size]",
                     past->rank == 5 ? "2, " : "", heads);
}

/* `fresh` written into the buffer `past` from position `at` of `axis` on: it must fit, checked. */
static Tensor *t_written(Lower *L, Tensor *past, Tensor *fresh, int axis, Expr *at) {
    Cx *c = L->cx;
    Expr *n = fresh->dim[axis], *end = e_add(c, at, n), *idx[MAX_RANK];
    check(L, e_and(c, e_le(c, e_int(c, 0), at), e_le(c, end, past->dim[axis])),
          "what is new does not fit into the buffer of the past");
    Tensor *t = te_indexed(L, past->dtype, past->rank, past->dim, idx);
    Expr *old = ld(L, past, idx), *x = idx[axis], *here;
    if (e_is_ival(n, 1)) { /* the form that can be computed in place */
        here = e_eq(c, x, at);
        idx[axis] = e_int(c, 0);
    } else {
        here = e_and(c, e_le(c, at, x), e_lt(c, x, end));
        idx[axis] = e_sub(c, x, at);
    }
    return te_end(L, t, e_sel(c, here, ld(L, fresh, idx), old));
}

/* A mask of rank 1 with batch, 2 batch or 3 batch + 2 elements: lengths; ends, then starts; or
 * lengths, then numbers not needed here. */
static Expr *within(Lower *L, const Attn *A, Tensor *m, Expr *b, Expr *j) {
    Cx *c = L->cx;
    Expr *n = m->dim[0], *twice = e_eq(c, n, e_muli(c, A->batch, 2));
    Expr *known_size = e_or(c, e_eq(c, n, A->batch), twice);
    known_size = e_or(c, known_size, e_eq(c, n, e_addi(c, e_muli(c, A->batch, 3), 2)));
    check(L, known_size, "a mask of rank 1 must have batch, 2 batch or 3 batch + 2 elements");
    Expr *end = e_cast(c, DT_I64, ld(L, m, (Expr *[]){b}));
    Expr *start = e_cast(c, DT_I64, ld(L, m, (Expr *[]){e_add(c, b, A->batch)}));
    Expr *keep = e_lt(c, j, end);
    return e_and(c, keep, e_sel(c, twice, e_le(c, start, j), e_bool(c, true)));
}

/* Whether the mask lets query i of sample b attend to key j. */
static Expr *mask_keeps(Lower *L, const Attn *A, const AttnMask *M, Expr *b, Expr *i, Expr *j) {
    Cx *c = L->cx;
    Tensor *m = M->t;
    Expr *one = e_int(c, 1), *n = m->dim[m->rank ? m->rank - 1 : 0], *v;
    if (m->rank == 1) return within(L, A, m, b, j);
    if (m->rank == 2) { /* a single element for all keys is ignored */
        Expr *rows = e_eq(c, m->dim[0], A->batch), *single = e_eq(c, n, one);
        Expr *whole = e_eq(c, n, A->kvlen), *fits = e_and(c, rows, whole);
        Expr *few = e_or(c, rows, e_eq(c, m->dim[0], one));
        check(L, e_or(c, fits, e_and(c, single, few)),
              "a mask of rank 2 must have a row per sample and an element per key, with those of "
              "the past");
        v = e_lt(c, e_num(c, m->dtype, 0), ld(L, m, (Expr *[]){b, j}));
        return e_sel(c, fits, v, e_bool(c, true));
    }
    check_eq(L, m->dim[0], A->batch, "a mask must have an entry per sample");
    if (m->rank == 4) {
        check(L, e_and(c, e_eq(c, m->dim[1], one), e_eq(c, m->dim[2], n)),
              "a mask of rank 4 must be [batch, 1, n, n]");
        check_le(L, e_add(c, M->past, A->qlen), n, "the mask has too few rows");
        check_le(L, A->kvlen, n, "the mask is shorter than the keys");
        v = ld(L, m, (Expr *[]){b, e_int(c, 0), e_add(c, M->past, i), j});
    } else {
        check(L, e_and(c, e_eq(c, m->dim[1], A->qlen), e_eq(c, n, A->kvlen)),
              "a mask of rank 3 must have a row per query and an element per key, with those of "
              "the past");
        v = ld(L, m, (Expr *[]){b, i, j});
    }
    return e_lt(c, e_num(c, m->dtype, 0), v);
}

static Tensor *masked(Lower *L, const Attn *A, Tensor *s, const AttnMask *M) {
    if (!M->t && !M->causal) return s;
    Cx *c = L->cx;
    if (M->t && (M->t->rank < 1 || M->t->rank > 4))
        fail(L, "a mask must have rank 1 to 4, not %d", M->t->rank);
    Expr *idx[MAX_RANK];
    Tensor *t = te_indexed(L, s->dtype, s->rank, s->dim, idx);
    Expr *i = idx[s->rank - 2], *j = idx[s->rank - 1], *v = ld(L, s, idx);
    if (M->t) {
        Expr *less = e_add(c, v, e_num(c, s->dtype, M->fill));
        v = e_sel(c, mask_keeps(L, A, M, idx[0], i, j), v, less);
    }
    if (M->causal) {
        Expr *seen = e_le(c, j, e_add(c, i, M->past));
        v = e_sel(c, seen, v, e_num(c, s->dtype, ATTN_LOWEST));
    }
    return te_end(L, t, v);
}

Tensor *attn_attended(Lower *L, Attn *A, AttnMask M, Tensor *bias, int qk) {
    attn_sizes(L, A);
    Tensor *s = attn_scores(L, A, attn_scale(L, A->w, A->size, attr_f(L, "scale", 0)));
    s = masked(L, A, attn_biased(L, A, s, bias, A->kvlen), &M);
    if (qk >= 0 && wants_out(L, qk)) out(L, qk, t_cast(L, A->io, attn_merged_heads(L, A, s)));
    return attn_weighted_values(L, A, attn_softmax(L, A, s), true);
}

/* The mask t, with the node's attributes. */
static AttnMask read_mask(Lower *L, Tensor *t) {
    return (AttnMask){.t = t,
                      .past = e_int(L->cx, 0),
                      .fill = attr_f(L, "mask_filter_value", -10000),
                      .causal = attr_i(L, "unidirectional", 0) != 0};
}

/* The only element of input i: the length of the past in a shared buffer. */
static Expr *past_length(Lower *L, int i) {
    Tensor *t = in(L, i);
    if (!t) fail(L, "past_sequence_length must be given with past_present_share_buffer");
    check_eq(L, count(L, t), e_int(L->cx, 1), "past_sequence_length must have one element");
    return let(L, "past", uni_i64(L, t, 0), INT64_MIN);
}

/* The first n positions of a buffer [batch, heads, positions, size]. */
static Tensor *filled_part(Lower *L, Tensor *t, Expr *n) {
    return t_slice(L, t, 2, e_int(L->cx, 0), e_int(L->cx, 1), n);
}

/* ---- Attention, QAttention ------------------------------------------------------------------- */

/* The total sizes of queries, keys and values in a projection of size `width`. */
static void hidden_sizes(Lower *L, Expr *width, int64_t heads, Expr **size) {
    Cx *c = L->cx;
    int n;
    const int64_t *given = attr_ints(L, "qkv_hidden_sizes", &n);
    if (n <= 0) {
        size[0] = size[1] = size[2] = divided_dim(L, width, e_int(c, 3), "projection");
        check_eq(L, e_bin(c, E_MOD, size[0], e_int(c, heads)), e_int(c, 0),
                 "num_heads (%lld) does not divide the hidden size", (long long)heads);
        return;
    }
    if (n != 3) fail(L, "qkv_hidden_sizes must have 3 elements, not %d", n);
    for (int i = 0; i < 3; i++) {
        if (given[i] < 1 || given[i] > INT32_MAX || given[i] % heads)
            fail(L, "qkv_hidden_sizes[%d] (%lld) must be a positive multiple of num_heads (%lld)",
                 i, (long long)given[i], (long long)heads);
        size[i] = e_int(c, given[i]);
    }
    if (given[0] != given[1])
        fail(L, "qkv_hidden_sizes must be the same for queries (%lld) and keys (%lld)",
             (long long)given[0], (long long)given[1]);
    check_eq(L, width, e_int(c, given[0] + given[1] + given[2]),
             "qkv_hidden_sizes do not add up to the size of the projection");
}

/* Appends k and v to past [2, batch, heads, length, size], as output 1, and reads them from it. */
static void with_past(Lower *L, Attn *A, AttnMask *M, Tensor *past, int length_input) {
    Cx *c = L->cx;
    bool shared = attr_i(L, "past_present_share_buffer", 0) != 0;
    if (!past && !wants_out(L, 1)) return;
    check_eq(L, A->k->dim[3], A->v->dim[3],
             "with past and present, keys and values must have one size");
    Tensor *kv[2] = {t_unsqueeze(L, A->k, 0), t_unsqueeze(L, A->v, 0)};
    Tensor *fresh = t_concat(L, 2, kv, 0), *present = fresh;
    Expr *end = A->k->dim[2];
    if (past) {
        check_rank(L, past, 5, "past");
        attn_check_past(L, past, fresh, "num_heads");
        M->past = shared ? past_length(L, length_input) : past->dim[3];
        end = e_add(c, M->past, end);
        present = shared ? t_written(L, past, fresh, 3, M->past)
                         : t_concat(L, 2, (Tensor *[]){past, fresh}, 3);
        A->k = filled_part(L, t_at(L, present, 0, e_int(c, 0)), end);
        A->v = filled_part(L, t_at(L, present, 0, e_int(c, 1)), end);
    }
    out(L, 1, present);
}

/* Checks x [batch, length, inputs] and w [inputs, width], and the bias [width] or NULL. */
static void check_projection(Lower *L, Tensor *x, Tensor *w, Tensor *bias) {
    check_rank(L, x, 3, "the input");
    check_rank(L, w, 2, "the weights");
    check_eq(L, x->dim[2], w->dim[0], "input and weights do not fit");
    if (bias)
        check_shape(L, bias, 1, &w->dim[1], "bias",
                    "bias must have one element per column of the weights");
}

void attn_projected_heads(Lower *L, Tensor *qkv, Attn *A) {
    Cx *c = L->cx;
    int64_t heads = attr_positive(L, "num_heads", 0);
    Expr *size[3], *from = e_int(c, 0), *n = e_int(c, heads);
    Tensor **part[3] = {&A->q, &A->k, &A->v};
    hidden_sizes(L, qkv->dim[2], heads, size);
    for (int i = 0; i < 3; i++) {
        *part[i] = attn_heads_at(L, qkv, n, e_bin(c, E_FDIV, size[i], n), from, NULL, NULL);
        from = e_add(c, from, size[i]);
    }
}

static void attend_projected(Lower *L, Tensor *qkv, Tensor *mask, Tensor *past, Tensor *bias,
                             int length_input) {
    if (attr_i(L, "do_rotary", 0)) unsupported(L, "do_rotary of Attention");
    Attn A = {0};
    AttnMask M = read_mask(L, mask);
    attn_projected_heads(L, qkv, &A);
    with_past(L, &A, &M, past, length_input);
    out(L, 0, attn_attended(L, &A, M, bias, -1));
}

void lower_MsAttention(Lower *L) {
    Tensor *x = in(L, 0), *w = in(L, 1), *bias = in(L, 2);
    check_projection(L, x, w, bias);
    Tensor *qkv = t_matmul(L, x, w);
    if (bias) qkv = t_bin(L, E_ADD, qkv, bias);
    attend_projected(L, qkv, in(L, 3), in(L, 4), in(L, 5), 6);
}

void lower_QAttention(Lower *L) {
    Cx *c = L->cx;
    Tensor *x = in(L, 0), *w = in(L, 1), *bias = in(L, 2), *xs = in(L, 3), *ws = in(L, 4);
    Tensor *xz = in(L, 6), *wz = in(L, 7);
    check_projection(L, x, w, bias);
    if (attr_i(L, "past_present_share_buffer", 0))
        unsupported(L, "past_present_share_buffer of QAttention, which has no length of the past");
    Expr *one = e_int(c, 1), *columns = w->dim[1];
    check_eq(L, count(L, xs), one, "input_scale must have one element");
    if (xz) check_eq(L, count(L, xz), one, "input_zero_point must have one element");
    for (int i = 0; i < 2; i++) {
        Tensor *t = i ? wz : ws;
        const char *what = i ? "weight_zero_point" : "weight_scale";
        if (!t) continue;
        if (t->rank > 1) fail(L, "%s must have rank 0 or 1", what);
        check(L, e_or(c, e_eq(c, count(L, t), one), e_eq(c, count(L, t), columns)),
              "%s must have one element, or one per column", what);
    }
    if (xz) xz = t_reshape(L, xz, 0, NULL);
    Tensor *scale = t_bin(L, E_MUL, ws, t_reshape(L, xs, 0, NULL));
    Tensor *p = t_cast(L, bias->dtype, integer_product(L, x, xz, w, wz));
    Tensor *qkv = t_bin(L, E_ADD, t_bin(L, E_MUL, p, scale), bias);
    attend_projected(L, qkv, in(L, 5), in(L, 8), NULL, -1);
}

/* ---- MultiHeadAttention, DecoderMaskedMultiHeadAttention ------------------------------------- */

/* Part `which` of x [batch, length, heads, parts, size] as [batch, heads, length, size]; bias
 * [parts * heads * size] or NULL. */
static Tensor *packed_part(Lower *L, Tensor *x, int which, Tensor *bias) {
    Cx *c = L->cx;
    Expr *dim[4] = {x->dim[0], x->dim[2], x->dim[1], x->dim[4]}, *idx[4];
    Tensor *t = te_indexed(L, x->dtype, 4, dim, idx);
    Expr *v = ld(L, x, (Expr *[]){idx[0], idx[2], idx[1], e_int(c, which), idx[3]});
    if (bias) {
        Expr *row = e_add(c, e_mul(c, e_int(c, which), dim[1]), idx[1]);
        v = e_add(c, v, ld(L, bias, (Expr *[]){e_add(c, e_mul(c, row, dim[3]), idx[3])}));
    }
    return te_end(L, t, v);
}

static void check_packed(Lower *L, Tensor *x, int64_t heads, int parts) {
    Cx *c = L->cx;
    Expr *fits = e_eq(c, x->dim[2], e_int(c, heads));
    check(L, e_and(c, fits, e_eq(c, x->dim[3], e_int(c, parts))),
          "a packed tensor must be [batch, length, %lld, %d, head size]", (long long)heads, parts);
}

static void check_bias(Lower *L, Tensor *bias, Expr *width) {
    if (bias) check_shape(L, bias, 1, &width, "bias", "bias does not fit query, key and value");
}

void attn_queries_keys_values(Lower *L, Attn *A, Tensor *q, Tensor *k, Tensor *v, Tensor *bias) {
    Cx *c = L->cx;
    int64_t heads = attr_positive(L, "num_heads", 0);
    Expr *n = e_int(c, heads), *zero = e_int(c, 0);
    if (!k && v) fail(L, "value without key");
    if (!k && q->rank == 5) {
        check_packed(L, q, heads, 3);
        check_bias(L, bias, e_muli(c, e_mul(c, n, q->dim[4]), 3));
        A->q = packed_part(L, q, 0, bias);
        A->k = packed_part(L, q, 1, bias);
        A->v = packed_part(L, q, 2, bias);
        return;
    }
    check_rank(L, q, 3, "query");
    if (!k) {
        check_bias(L, bias, q->dim[2]);
        Expr *all = divided_dim(L, q->dim[2], e_int(c, 3), "query");
        Expr *size = divided_dim(L, all, n, "query of one kind");
        A->q = attn_heads_at(L, q, n, size, zero, bias, zero);
        A->k = attn_heads_at(L, q, n, size, all, bias, all);
        A->v = attn_heads_at(L, q, n, size, e_muli(c, all, 2), bias, e_muli(c, all, 2));
        return;
    }
    Expr *width = q->dim[2], *size = divided_dim(L, width, n, "query");
    if (k->rank == 5) {
        if (v) fail(L, "value with a packed key");
        if (bias) fail(L, "bias with a packed key");
        check_packed(L, k, heads, 2);
        A->q = attn_heads_at(L, q, n, size, zero, NULL, NULL);
        A->k = packed_part(L, k, 0, NULL);
        A->v = packed_part(L, k, 1, NULL);
        return;
    }
    if (!v) fail(L, "key of rank %d without value", k->rank);
    check_rank(L, v, k->rank, "value");
    if (k->rank == 4) { /* the bias has been added already */
        check(L, e_and(c, e_eq(c, k->dim[1], n), e_eq(c, v->dim[1], n)),
              "key and value of rank 4 must have %lld heads", (long long)heads);
        check_bias(L, bias, e_add(c, e_muli(c, width, 2), e_mul(c, n, v->dim[3])));
        A->q = attn_heads_at(L, q, n, size, zero, bias, zero);
        A->k = k;
        A->v = v;
        return;
    }
    check_rank(L, k, 3, "key");
    check_eq(L, k->dim[2], width, "query and key must have one size");
    Expr *vsize = divided_dim(L, v->dim[2], n, "value");
    check_bias(L, bias, e_add(c, e_muli(c, width, 2), v->dim[2]));
    A->q = attn_heads_at(L, q, n, size, zero, bias, zero);
    A->k = attn_heads_at(L, k, n, size, zero, bias, width);
    A->v = attn_heads_at(L, v, n, vsize, zero, bias, e_muli(c, width, 2));
}

/* Appends k and v to the past, or writes them into its buffers, as outputs 1 and 2. */
static void with_pasts(Lower *L, Attn *A, AttnMask *M, Tensor *pk, Tensor *pv, bool shared,
                       int length_input) {
    if (!pk != !pv) fail(L, "past_key and past_value must be given together");
    if (pk) {
        check_rank(L, pk, 4, "past_key");
        check_rank(L, pv, 4, "past_value");
        Tensor *kv[2] = {A->k, A->v}, *past[2] = {pk, pv};
        check_eq(L, pk->dim[2], pv->dim[2], "past_key and past_value must have one length");
        for (int i = 0; i < 2; i++) attn_check_past(L, past[i], kv[i], "num_heads");
        M->past = shared ? past_length(L, length_input) : pk->dim[2];
        Expr *end = e_add(L->cx, M->past, A->k->dim[2]);
        for (int i = 0; i < 2; i++) {
            Tensor *both[2] = {past[i], kv[i]};
            Tensor *t = shared ? t_written(L, past[i], kv[i], 2, M->past) : t_concat(L, 2, both, 2);
            out(L, 1 + i, t);
            *(i ? &A->v : &A->k) = shared ? filled_part(L, t, end) : t;
        }
        return;
    }
    out(L, 1, A->k);
    out(L, 2, A->v);
}

/* The numbers of the inputs that differ: mask and bias (the next one), past_key and past_value (the
 * next one), the projections' bias, the length of the past in a shared buffer. */
static void multi_head(Lower *L, int mask, int past, int bias, bool shared, int length) {
    Tensor *k = in(L, 1), *pk = in(L, past);
    if (has_in(L, 9)) unsupported(L, "cache_indirection");
    if (k && k->rank == 4 && pk) fail(L, "past_key with a key of rank 4");
    Attn A = {0};
    AttnMask M = read_mask(L, in(L, mask));
    attn_queries_keys_values(L, &A, in(L, 0), k, in(L, 2), in(L, bias));
    with_pasts(L, &A, &M, pk, in(L, past + 1), shared, length);
    out(L, 0, attn_attended(L, &A, M, in(L, mask + 1), 3));
}

void lower_MultiHeadAttention(Lower *L) { multi_head(L, 4, 6, 3, has_in(L, 8), 8); }

void lower_DecoderMaskedMultiHeadAttention(Lower *L) {
    Tensor *q = in(L, 0);
    check_rank(L, q, 3, "query");
    check_eq(L, q->dim[1], e_int(L->cx, 1), "query must have length 1");
    multi_head(L, 3, 5, 10, has_in(L, 5) && attr_i(L, "past_present_share_buffer", 0), 7);
}
