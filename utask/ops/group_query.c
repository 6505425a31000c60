/* group_query.c: com.microsoft's GroupQueryAttention: several query heads share a key-value head,
 * and each sample fills its own part of a cache of keys and values.
 *
 * With S new positions and a total of T = seqlens_k + 1 positions in a sample, P = T - min(S, T)
 * are from the past (T - query_seqlens if that is given). The cache holds the past below P and the
 * new positions in [P, T); the rest is ignored. */
#include "utask/ops/attention.h"
#include "utask/ops/elementwise.h"
#include "utask/ops/size.h"

typedef struct Gqa {
    Attn a;
    Expr *batch, *length; /* of the queries */
    Expr *total, *room;   /* total_sequence_length; positions of the cache */
    int64_t window;       /* local_window_size, -1: none */
    bool sliding;
    int64_t bits;          /* of a quantized cache; 0: not quantized */
    Tensor *filled, *past; /* [batch] int64: T and P of each sample */
} Gqa;

static Expr *at_sample(Lower *L, Tensor *t, Expr *b) { return ld(L, t, (Expr *[]){b}); }

void check_lengths(Lower *L, Tensor *t, Expr *most, const char *what) {
    Cx *c = L->cx;
    Tensor *lo = t_reduce(L, R_MIN, t, 1, false), *hi = t_reduce(L, R_MAX, t, 1, false);
    Expr *zero = e_int(c, 0), *none = e_eq(c, t->dim[0], zero);
    Expr *ok = e_and(c, e_le(c, zero, uni_i64(L, lo, 0)), e_le(c, uni_i64(L, hi, 0), most));
    check(L, e_or(c, none, ok), "%s", what);
}

/* Input i, one integer per sample, as int64 + plus. */
static Tensor *per_sample(Lower *L, const Gqa *g, int i, int64_t plus, const char *what) {
    Tensor *x = in_needed(L, i);
    Expr *n = g->batch;
    if (x->rank > 2) fail(L, "%s must have rank 1, not %d", what, x->rank);
    check_eq(L, count(L, x), n, "%s must have one element per sample", what);
    if (x->rank != 1) x = t_reshape(L, x, 1, &n);
    Tensor *t = te_begin(L, DT_I64, 1, &n);
    Expr *v = e_cast(L->cx, DT_I64, ld(L, x, (Expr *[]){ax(L, t, 0)}));
    return te_end(L, t, e_addi(L->cx, v, plus));
}

/* Fills filled and past. */
static void lengths(Lower *L, Gqa *g) {
    g->filled = per_sample(L, g, 5, 1, "seqlens_k");
    check_lengths(L, g->filled, g->sliding ? g->total : g->room,
                  "seqlens_k + 1 must not be negative or more than the cache has room for");
    Tensor *fresh = has_in(L, 16) ? per_sample(L, g, 16, 0, "query_seqlens") : NULL;
    if (fresh)
        check_lengths(L, fresh, g->length,
                      "query_seqlens must not be negative or more than the query has");
    Tensor *t = te_begin(L, DT_I64, 1, &g->batch);
    Expr *b = ax(L, t, 0), *T = at_sample(L, g->filled, b);
    Expr *n = e_min(L->cx, fresh ? at_sample(L, fresh, b) : g->length, T);
    g->past = te_end(L, t, e_sub(L->cx, T, n));
}

/* x with its heads divided by their root mean square, times weight; x itself for NULL. */
static Tensor *normalized(Lower *L, Tensor *x, Tensor *weight, const char *epsilon) {
    if (!weight) return x;
    check_shape(L, weight, 1, &x->dim[3], "a norm weight",
                "a norm weight must have one element per head element");
    double eps = attr_f(L, epsilon, attr_f(L, "qk_norm_epsilon", 1e-6));
    if (!(eps > 0 && eps < 1e30)) fail(L, "%s must be positive and finite, not %g", epsilon, eps);
    DType w = wide_float(x->dtype);
    Tensor *y = t_rms_normalized(L, t_cast(L, w, x), 1u << 3, eps, NULL);
    y = t_bin(L, E_MUL, y, t_cast(L, w, weight));
    return t_cast(L, x->dtype, y);
}

/* The numbers of the new positions, [batch, length]; padding has 0. For a first prompt,
 * position_ids has only the first one. */
static Tensor *places(Lower *L, const Gqa *g) {
    Cx *c = L->cx;
    Tensor *ids = in(L, 9), *t = te_begin(L, DT_I64, 2, (Expr *[]){g->batch, g->length});
    Expr *b = ax(L, t, 0), *s = ax(L, t, 1), *T = at_sample(L, g->filled, b);
    Expr *at = e_add(c, at_sample(L, g->past, b), s), *v = at;
    if (ids) {
        Expr *first = e_eq(c, g->length, g->total), *zero = e_int(c, 0);
        check_rank(L, ids, 2, "position_ids");
        for (int i = 0; i < 2; i++)
            check(L,
                  e_or(c, e_and(c, first, e_le(c, e_int(c, 1), ids->dim[i])),
                       e_eq(c, ids->dim[i], i ? g->length : g->batch)),
                  "position_ids must be [batch, length of the query]");
        Expr *one = e_add(c, ld(L, ids, (Expr *[]){zero, zero}), s);
        v = e_sel(c, first, one, ld(L, ids, (Expr *[]){b, s}));
    }
    return te_end(L, t, e_sel(c, e_lt(c, at, T), v, e_int(c, 0)));
}

/* The cache with the new positions written, [batch, heads, room, size]. */
static Tensor *cached(Lower *L, const Gqa *g, Tensor *past, Tensor *fresh) {
    Cx *c = L->cx;
    Expr *dim[4] = {g->batch, fresh->dim[1], g->room, fresh->dim[3]}, *idx[4];
    Expr *old = e_num(c, fresh->dtype, 0);
    Tensor *t = te_indexed(L, fresh->dtype, 4, dim, idx);
    Expr *j = idx[2];
    if (past) {
        attn_check_past(L, past, fresh, "kv_num_heads");
        old = e_sel(c, e_lt(c, j, past->dim[2]), ld(L, past, idx), old);
    }
    Expr *T = at_sample(L, g->filled, idx[0]), *here;
    if (e_is_ival(g->length, 1) && !has_in(L, 16)) { /* the form that can be computed in place */
        here = e_eq(c, j, e_addi(c, T, -1));
        idx[2] = e_int(c, 0);
    } else {
        Expr *P = at_sample(L, g->past, idx[0]);
        here = e_and(c, e_le(c, P, j), e_lt(c, j, T));
        idx[2] = e_sub(c, j, P);
    }
    return te_end(L, t, e_sel(c, here, ld(L, fresh, idx), old));
}

/* ---- a sliding cache ------------------------------------------------------------------------- */

/* L(T): how many of T positions a cache with `room` holds. */
static Expr *kept(Lower *L, const Gqa *g, Expr *T) {
    Cx *c = L->cx;
    Expr *portion = e_addi(c, g->room, 1 - g->window), *over = e_sub(c, T, g->room);
    Expr *portions = e_bin(c, E_FDIV, e_addi(c, e_add(c, over, portion), -1), portion);
    Expr *less = e_sub(c, T, e_mul(c, portion, portions));
    return e_sel(c, e_le(c, over, e_int(c, 0)), T, less);
}

/* The position of key j of sample b; *there: whether it exists. */
static Expr *position(Lower *L, const Gqa *g, Expr *b, Expr *j, Expr **there) {
    Cx *c = L->cx;
    Expr *T = at_sample(L, g->filled, b);
    if (!g->sliding) {
        *there = e_lt(c, j, T);
        return j;
    }
    Expr *P = at_sample(L, g->past, b), *n = kept(L, g, P), *old = e_lt(c, j, g->room);
    Expr *fresh = e_add(c, P, e_sub(c, j, g->room));
    *there = e_sel(c, old, e_lt(c, j, n), e_lt(c, fresh, T));
    return e_sel(c, old, e_add(c, e_sub(c, P, n), j), fresh);
}

/* The cache afterwards, [batch, heads, room, size]. */
static Tensor *slid(Lower *L, const Gqa *g, Tensor *past, Tensor *fresh) {
    Cx *c = L->cx;
    Expr *idx[4];
    attn_check_past(L, past, fresh, "kv_num_heads");
    Tensor *t = te_indexed(L, past->dtype, 4, past->dim, idx);
    Expr *P = at_sample(L, g->past, idx[0]), *T = at_sample(L, g->filled, idx[0]);
    Expr *n = kept(L, g, T), *row = idx[2], *at = e_add(c, e_sub(c, T, n), row);
    idx[2] = e_add(c, e_sub(c, at, P), kept(L, g, P));
    Expr *old = ld(L, past, idx);
    idx[2] = e_sub(c, at, P);
    Expr *v = e_sel(c, e_lt(c, at, P), old, ld(L, fresh, idx));
    return te_end(L, t, e_sel(c, e_lt(c, row, n), v, e_num(c, t->dtype, 0)));
}

/* A bias [batch or 1, heads or 1, queries, positions] with a column for each key. */
static Tensor *bias_of_keys(Lower *L, const Gqa *g, Tensor *bias) {
    if (!bias || !g->sliding) return bias;
    Cx *c = L->cx;
    check_rank(L, bias, 4, "attention_bias");
    Expr *one = e_int(c, 1), *rows = bias->dim[0], *idx[4], *there;
    check(L, e_or(c, e_eq(c, rows, one), e_eq(c, rows, g->batch)),
          "attention_bias does not fit the scores (its axis 0)");
    check_eq(L, bias->dim[3], g->total, "attention_bias must have total_sequence_length columns");
    Expr *dim[4] = {g->batch, bias->dim[1], bias->dim[2], g->a.k->dim[2]};
    Tensor *t = te_indexed(L, bias->dtype, 4, dim, idx);
    Expr *at = position(L, g, idx[0], idx[3], &there);
    idx[0] = e_min(c, idx[0], e_addi(c, rows, -1));
    idx[3] = at;
    return te_end(L, t, e_sel(c, there, ld(L, bias, idx), e_num(c, t->dtype, 0)));
}

/* ---- scores ---------------------------------------------------------------------------------- */

/* Whether query i of sample b attends to key j. */
static Expr *looks_at(Lower *L, const Gqa *g, Expr *b, Expr *i, Expr *j) {
    Cx *c = L->cx;
    Expr *there, *at = position(L, g, b, j, &there);
    if (!attr_i(L, "causal", 1)) return there;
    Expr *own = e_add(c, at_sample(L, g->past, b), i);
    Expr *keep = e_and(c, there, e_le(c, at, own));
    return g->window > 0 ? e_and(c, keep, e_lt(c, e_addi(c, own, -g->window), at)) : keep;
}

/* s for keys that queries attend to, `other` elsewhere */
static Tensor *looked_at(Lower *L, const Gqa *g, Tensor *s, double other) {
    Expr *idx[MAX_RANK];
    Tensor *t = te_indexed(L, s->dtype, s->rank, s->dim, idx);
    Expr *keep = looks_at(L, g, idx[0], idx[s->rank - 2], idx[s->rank - 1]);
    return te_end(L, t, e_sel(L->cx, keep, ld(L, s, idx), e_num(L->cx, s->dtype, other)));
}

/* Softmax with exp(sink) added to the denominator; there is a sink per head, or it is 0. */
static Tensor *softmax_with_sink(Lower *L, const Gqa *g, Tensor *s, Tensor *sink) {
    uint32_t last = 1u << (s->rank - 1);
    Tensor *m = t_reduce(L, R_MAX, s, last, true), *at = te_begin(L, s->dtype, m->rank, m->dim);
    Expr *v = e_num(L->cx, s->dtype, 0);
    if (sink) {
        check_shape(L, sink, 1, &g->a.heads, "head_sink",
                    "head_sink must have one element per head");
        Expr *h = attn_query_head(L, &g->a, at, 1);
        v = e_cast(L->cx, s->dtype, ld(L, sink, (Expr *[]){h}));
    }
    at = te_end(L, at, v);
    m = t_bin(L, E_MAX, m, at);
    Tensor *e = t_un(L, E_EXP, t_bin(L, E_SUB, s, m));
    Tensor *rest = t_un(L, E_EXP, t_bin(L, E_SUB, at, m));
    return t_bin(L, E_DIV, e, t_bin(L, E_ADD, t_reduce(L, R_SUM, e, last, true), rest));
}

/* ---- a quantized cache ----------------------------------------------------------------------- */

static void read_quantization(Lower *L, Gqa *g) {
    bool k = strcmp(attr_s(L, "k_quant_type", "NONE"), "NONE") != 0;
    bool v = strcmp(attr_s(L, "v_quant_type", "NONE"), "NONE") != 0;
    if (k != v) fail(L, "only one of k_quant_type and v_quant_type is NONE");
    if (k != has_in(L, 12) || v != has_in(L, 13))
        fail(L, "k_scale and v_scale must be given if and only if the cache is quantized");
    if (!k) return;
    g->bits = attr_i(L, "kv_cache_bit_width", 0);
    if (g->bits != 8 && g->bits != 4)
        fail(L, "kv_cache_bit_width must be 8 or 4, not %lld", (long long)g->bits);
}

/* The scale of element d of head h, from one scale for all or [1, heads, 1, size]. */
static Expr *scale_at(Lower *L, Tensor *scale, Expr *heads, Expr *size, Expr *h, Expr *d) {
    Cx *c = L->cx;
    Expr *zero = e_int(c, 0), *one = e_int(c, 1), *want[4] = {one, heads, one, size};
    if (scale->rank != 4) {
        check_eq(L, count(L, scale), one,
                 "a scale must have one element, or be [1, kv_num_heads, 1, head size]");
        return e_loadf(c, t_reshape(L, scale, 1, &one), zero);
    }
    Expr *single = e_bool(c, true), *same = single, *at[4] = {zero, h, zero, d};
    for (int i = 0; i < 4; i++) {
        single = e_and(c, single, e_eq(c, scale->dim[i], one));
        same = e_and(c, same, e_eq(c, scale->dim[i], want[i]));
    }
    check(L, e_or(c, single, same),
          "a scale must have one element, or be [1, kv_num_heads, 1, head size]");
    return ld_bcast(L, scale, 4, at, want);
}

/* Element d of x [batch, heads, length, size] at idx, quantized, as int32. */
static Expr *rounded(Lower *L, const Gqa *g, Tensor *x, Tensor *scale, Expr **idx, Expr *d) {
    Cx *c = L->cx;
    Expr *at[4] = {idx[0], idx[1], idx[2], d};
    Expr *s = scale_at(L, scale, x->dim[1], x->dim[3], idx[1], d);
    Expr *v = e_un(c, E_ROUND, e_div(c, e_cast(c, DT_F32, ld(L, x, at)), s));
    double lo = g->bits == 8 ? -128 : -8;
    v = e_min(c, e_max(c, v, e_num(c, DT_F32, lo)), e_num(c, DT_F32, -lo - 1));
    return e_cast(c, DT_I32, v);
}

static Tensor *quantized(Lower *L, const Gqa *g, Tensor *x, Tensor *scale) {
    if (!g->bits) return x;
    Cx *c = L->cx;
    bool pairs = g->bits == 4;
    Expr *size = pairs ? divided_dim(L, x->dim[3], e_int(c, 2), "head") : x->dim[3], *idx[4];
    Expr *dim[4] = {x->dim[0], x->dim[1], x->dim[2], size};
    Tensor *t = te_indexed(L, pairs ? DT_U8 : DT_I8, 4, dim, idx);
    if (!pairs) return te_end(L, t, e_cast(c, DT_I8, rounded(L, g, x, scale, idx, idx[3])));
    Expr *d = e_muli(c, idx[3], 2), *eight = e_ci(c, DT_I32, 8);
    Expr *low = e_add(c, rounded(L, g, x, scale, idx, d), eight);
    Expr *high = e_add(c, rounded(L, g, x, scale, idx, e_addi(c, d, 1)), eight);
    return te_end(L, t, e_cast(c, DT_U8, e_add(c, low, e_mul(c, high, e_ci(c, DT_I32, 16)))));
}

/* Dequantizes heads of `size` elements, in float32. */
static Tensor *dequantized(Lower *L, const Gqa *g, Tensor *x, Tensor *scale, Expr *size) {
    if (!g->bits) return x;
    Cx *c = L->cx;
    Expr *dim[4] = {x->dim[0], x->dim[1], x->dim[2], size}, *idx[4], *two = e_int(c, 2);
    Tensor *t = te_indexed(L, DT_F32, 4, dim, idx);
    Expr *d = idx[3], *v, *s = scale_at(L, scale, x->dim[1], size, idx[1], d);
    if (g->bits == 4) {
        idx[3] = e_bin(c, E_FDIV, d, two);
        v = e_cast(c, DT_I32, ld(L, x, idx));
        Expr *sixteen = e_ci(c, DT_I32, 16), *first = e_eq(c, e_bin(c, E_MOD, d, two), e_int(c, 0));
        v = e_sel(c, first, e_bin(c, E_MOD, v, sixteen), e_div(c, v, sixteen));
        v = e_sub(c, v, e_ci(c, DT_I32, 8));
    } else {
        v = ld(L, x, idx);
    }
    return te_end(L, t, e_mul(c, e_cast(c, DT_F32, v), s));
}

/* ---- the operator ---------------------------------------------------------------------------- */

/* Splits queries, keys and values into heads, from one tensor or three. */
static void split(Lower *L, Gqa *g) {
    Cx *c = L->cx;
    Tensor *q = in(L, 0), *k = in(L, 1), *v = in(L, 2);
    int64_t heads = attr_positive(L, "num_heads", 0), groups = attr_positive(L, "kv_num_heads", 0);
    if (heads % groups)
        fail(L, "num_heads (%lld) must be a multiple of kv_num_heads (%lld)", (long long)heads,
             (long long)groups);
    if (!k != !v) fail(L, "key and value must be given together");
    check_rank(L, q, 3, "query");
    g->batch = q->dim[0];
    g->length = q->dim[1];
    Expr *n = e_int(c, heads), *m = e_int(c, groups), *at = e_int(c, 0);
    if (!k) {
        Expr *size = divided_dim(L, q->dim[2], e_int(c, heads + 2 * groups), "packed query");
        g->a.q = attn_heads_at(L, q, n, size, at, NULL, NULL);
        g->a.k = attn_heads_at(L, q, m, size, at = e_mul(c, n, size), NULL, NULL);
        g->a.v = attn_heads_at(L, q, m, size, e_add(c, at, e_mul(c, m, size)), NULL, NULL);
        return;
    }
    Expr *size = divided_dim(L, q->dim[2], n, "query");
    g->a.q = attn_heads_at(L, q, n, size, at, NULL, NULL);
    for (int i = 0; i < 2; i++) {
        Tensor *t = i ? v : k;
        check_rank(L, t, 3, i ? "value" : "key");
        check(L, e_and(c, e_eq(c, t->dim[0], g->batch), e_eq(c, t->dim[1], g->length)),
              "key and value must have the batch and length of the query");
        check_eq(L, t->dim[2], e_mul(c, m, size),
                 "key and value must have kv_num_heads (%lld) heads of the query's size",
                 (long long)groups);
        *(i ? &g->a.v : &g->a.k) = attn_heads_at(L, t, m, size, at, NULL, NULL);
    }
}

/* Fills total and room. */
static void cache_size(Lower *L, Gqa *g) {
    Cx *c = L->cx;
    Tensor *pk = in(L, 3), *pv = in(L, 4), *total = in_needed(L, 6);
    if (!pk != !pv) fail(L, "past_key and past_value must be given together");
    if (pk) {
        check_rank(L, pk, 4, "past_key");
        check_rank(L, pv, 4, "past_value");
        check_eq(L, pk->dim[2], pv->dim[2], "past_key and past_value must have one length");
    }
    check_eq(L, count(L, total), e_int(c, 1), "total_sequence_length must have one element");
    g->total = size_uni(L, "total", uni_i64(L, total, 0));
    g->room = pk ? size_uni(L, "room", kmax(c, g->total, pk->dim[2])) : g->total;
    if (!g->sliding) return;
    if (!pk) fail(L, "sliding_window_cache without past_key");
    if (g->window < 1) fail(L, "sliding_window_cache without local_window_size");
    if (wants_out(L, 3)) unsupported(L, "output_qk with sliding_window_cache");
    g->room = pk->dim[2];
    check_le(L, e_int(c, g->window), g->room,
             "a cache that slides must have room for local_window_size (%lld) positions",
             (long long)g->window);
}

/* Normalizes and rotates the new queries and keys. */
static void prepare(Lower *L, Gqa *g) {
    g->a.q = normalized(L, g->a.q, in(L, 14), "q_norm_epsilon");
    g->a.k = normalized(L, g->a.k, in(L, 15), "k_norm_epsilon");
    if (!attr_i(L, "do_rotary", 0)) return;
    Tensor *cache[2] = {in(L, 7), in(L, 8)}, *ids = places(L, g);
    if (!cache[0] || !cache[1]) fail(L, "do_rotary needs cos_cache and sin_cache");
    check_rank(L, cache[0], 2, "cos_cache");
    bool inter = attr_i(L, "rotary_interleaved", 0) != 0;
    Expr *rot = e_muli(L->cx, cache[0]->dim[1], 2);
    g->a.q = t_rotary(L, g->a.q, 2, cache, ids, rot, inter);
    g->a.k = t_rotary(L, g->a.k, 2, cache, ids, rot, inter);
}

/* Writes keys and values into the cache (outputs 1 and 2) and sets those to attend to. */
static void update_cache(Lower *L, Gqa *g) {
    Tensor **kv[2] = {&g->a.k, &g->a.v};
    Expr *size = g->a.k->dim[3];
    for (int i = 0; i < 2; i++) {
        Tensor *past = in(L, 3 + i), *scale = in(L, 12 + i);
        Tensor *fresh = quantized(L, g, *kv[i], scale);
        if (past && past->dtype != fresh->dtype)
            fail(L, "%s must be %s here, not %s", i ? "past_value" : "past_key",
                 dtype_name(fresh->dtype), dtype_name(past->dtype));
        Tensor *t = g->sliding ? slid(L, g, past, fresh) : cached(L, g, past, fresh);
        out(L, 1 + i, t);
        if (g->sliding) t = t_concat(L, 2, (Tensor *[]){past, fresh}, 2);
        *kv[i] = dequantized(L, g, t, scale, size);
    }
}

void lower_GroupQueryAttention(Lower *L) {
    Gqa g = {.window = attr_i(L, "local_window_size", -1)};
    int64_t smooth = attr_i(L, "smooth_softmax", 0), what = attr_i(L, "qk_output", 0);
    if (g.window < -1 || g.window == 0 || g.window > INT32_MAX)
        fail(L, "local_window_size must be positive or -1, not %lld", (long long)g.window);
    if (g.window > 0 && !attr_i(L, "causal", 1))
        fail(L, "local_window_size (%lld) must be -1 without causal", (long long)g.window);
    if (!has_in(L, 14) != !has_in(L, 15))
        fail(L, "q_norm_weight and k_norm_weight must be given together");
    if (wants_out(L, 3) && !what) fail(L, "output_qk without qk_output");
    g.sliding = attr_i(L, "sliding_window_cache", 0) != 0;
    read_quantization(L, &g);
    split(L, &g);
    cache_size(L, &g);
    lengths(L, &g);
    prepare(L, &g);
    update_cache(L, &g);
    attn_sizes(L, &g.a);
    Tensor *s = attn_scores(L, &g.a, attn_scale(L, g.a.w, g.a.size, attr_f(L, "scale", 0)));
    s = attn_softcapped(L, s, attr_f(L, "softcap", 0));
    Tensor *bias = bias_of_keys(L, &g, in(L, 10));
    s = attn_biased(L, &g.a, s, bias, g.sliding ? g.a.kvlen : g.total);
    Tensor *all = looked_at(L, &g, s, ATTN_LOWEST);
    bool sinks = smooth == 1 || has_in(L, 11);
    Tensor *p = sinks ? softmax_with_sink(L, &g, all, in(L, 11)) : attn_softmax(L, &g.a, all);
    out(L, 0, attn_weighted_values(L, &g.a, p, true));
    if (!wants_out(L, 3)) return;
    Tensor *qk = attn_merged_heads(L, &g.a, looked_at(L, &g, what == 1 ? s : p, 0));
    if (g.room != g.total) qk = t_slice(L, qk, 3, e_int(L->cx, 0), e_int(L->cx, 1), g.total);
    out(L, 3, t_cast(L, g.a.io, qk));
}
