/* ms_packing.c: com.microsoft's operators on sequences without padding, their rows stored one after
 * the other. token_offset [batch, length] has the position of each row in [batch, length], then
 * those of the padding; cumulated lengths are [batch + 1]. */
#include "utask/ops/attention.h"
#include "utask/ops/size.h"

/* A list of n lengths as int64. */
static Tensor *lengths_in(Lower *L, int i, Expr *n, const char *what) {
    Tensor *t = in(L, i);
    check_shape(L, t, 1, &n, what, "the lengths do not fit the batch");
    return t_cast(L, DT_I64, t);
}

/* the sum of t[k] over the k with a[k] + k * b <= limit */
static Expr *sum_where(Lower *L, Tensor *t, Tensor *a, Expr *b, Expr *limit) {
    Cx *c = L->cx;
    Axis *k = axis_new(c, t->dim[0]);
    Expr *at = e_axis(c, k), *bound = e_add(c, ld(L, a, &at), e_mul(c, at, b));
    Expr *v = e_sel(c, e_le(c, bound, limit), ld(L, t, &at), e_int(c, 0));
    return e_reduce(c, R_SUM, 1, &k, v);
}

/* Exclusive prefix sums of the lengths, and the total: [batch + 1]. */
static Tensor *cumulated(Lower *L, Tensor *len) {
    Cx *c = L->cx;
    Expr *n = e_addi(c, len->dim[0], 1);
    Tensor *t = te_begin(L, DT_I64, 1, &n);
    Axis *k = axis_new(c, len->dim[0]);
    Expr *at = e_axis(c, k);
    Expr *v = e_sel(c, e_lt(c, at, ax(L, t, 0)), ld(L, len, &at), e_int(c, 0));
    return te_end(L, t, e_reduce(c, R_SUM, 1, &k, v));
}

/* a[k] * factor + b */
static Tensor *affine(Lower *L, Tensor *a, int64_t factor, Expr *b) {
    Tensor *t = te_begin(L, DT_I64, 1, a->dim);
    Expr *k = ax(L, t, 0);
    return te_end(L, t, e_add(L->cx, e_muli(L->cx, ld(L, a, &k), factor), b));
}

void lower_RemovePadding(Lower *L) {
    Cx *c = L->cx;
    Tensor *x = in(L, 0);
    check_rank(L, x, 3, "the input");
    Expr *batch = x->dim[0], *length = x->dim[1], *zero = e_int(c, 0), *one = e_int(c, 1);
    Tensor *len = lengths_in(L, 1, batch, "sequence_token_count");
    check_lengths(L, len, length,
                  "sequence_token_count must not be negative or above the length of the sequences");
    Tensor *sums = cumulated(L, len), *before = t_slice(L, sums, 0, zero, one, batch);
    Tensor *after = t_slice(L, sums, 0, one, one, batch);
    Expr *total = let(L, "tokens", ld(L, sums, &batch), 0);

    /* Before row i there is the padding of all sequences that end before it; before padding i, the
     * rows of all sequences whose padding does not begin after it. */
    Tensor *pads = affine(L, len, -1, length), *nothing = affine(L, before, -1, zero);
    Expr *dim[2] = {batch, length};
    Tensor *t = te_begin(L, DT_I64, 2, dim);
    Expr *i = e_add(c, e_mul(c, ax(L, t, 0), length), ax(L, t, 1)), *pad = e_sub(c, i, total);
    Expr *row = e_add(c, i, sum_where(L, pads, after, zero, i));
    Expr *gap = e_add(c, pad, sum_where(L, len, nothing, length, pad));
    Tensor *offset = te_end(L, t, e_sel(c, e_lt(c, i, total), row, gap));

    Tensor *y = te_begin(L, x->dtype, 2, (Expr *[]){total, x->dim[2]});
    i = ax(L, y, 0);
    Expr *at[2] = {e_bin(c, E_FDIV, i, length), e_bin(c, E_MOD, i, length)};
    Expr *from = ld(L, offset, at);
    Expr *b = e_bin(c, E_FDIV, from, length), *s = e_bin(c, E_MOD, from, length);
    out(L, 0, te_end(L, y, ld(L, x, (Expr *[]){b, s, ax(L, y, 1)})));
    DType type = in(L, 1)->dtype;
    out(L, 1, t_cast(L, type, offset));
    out(L, 2, t_cast(L, type, sums));
    Tensor *most = te_begin(L, DT_I64, 1, &one);
    Axis *k = axis_new(c, batch);
    Expr *along = e_axis(c, k), *longest = e_reduce(c, R_MAX, 1, &k, ld(L, len, &along));
    most = te_end(L, most, e_max(c, zero, longest));
    out(L, 3, t_cast(L, type, most));
}

/* ---- with padding ---------------------------------------------------------------------------- */

/* The first n offsets of input i, as int64. */
static Tensor *offsets(Lower *L, Tensor *token_offset, Expr *n) {
    check_rank(L, token_offset, 2, "token_offset");
    Expr *all = count(L, token_offset);
    check_le(L, n, all, "there are more rows than token_offset has places");
    Tensor *flat = t_reshape(L, t_cast(L, DT_I64, token_offset), 1, &all);
    return t_slice(L, flat, 0, e_int(L->cx, 0), e_int(L->cx, 1), n);
}

/* x [rows, size] as [batch, length, size], zeros in between. */
static Tensor *with_padding(Lower *L, Tensor *x, Tensor *token_offset) {
    Cx *c = L->cx;
    Tensor *place = offsets(L, token_offset, x->dim[0]);
    Expr *all = count(L, token_offset), *zero = e_int(c, 0);
    Tensor *none = te_begin(L, DT_I64, 1, &all), *row = te_begin(L, DT_I64, 1, x->dim);
    none = te_end(L, none, e_int(c, -1));
    row = te_end(L, row, ax(L, row, 0));
    Expr *param[] = {zero, zero};
    Tensor *given[] = {none, place, row};
    Tensor *source =
        ext_like(L, "scatter_elements", 3, given, 2, param, none, "token_offset is out of range");
    Expr *dim[3] = {token_offset->dim[0], token_offset->dim[1], x->dim[1]}, *idx[3];
    Tensor *y = te_indexed(L, x->dtype, 3, dim, idx);
    Expr *flat = e_add(c, e_mul(c, idx[0], dim[1]), idx[1]), *from = ld(L, source, &flat);
    Expr *v = ld(L, x, (Expr *[]){from, idx[2]});
    return te_end(L, y, e_sel(c, e_le(c, zero, from), v, e_num(c, x->dtype, 0)));
}

/* Extracts the rows of x [batch, length, size] at the first `rows` offsets. */
static Tensor *without_padding(Lower *L, Tensor *x, Tensor *token_offset, Expr *rows) {
    Cx *c = L->cx;
    Tensor *place = offsets(L, token_offset, rows);
    Expr *all = e_mul(c, x->dim[0], x->dim[1]);
    Tensor *y = te_begin(L, x->dtype, 2, (Expr *[]){rows, x->dim[2]});
    Expr *i = ax(L, y, 0), *at = ld(L, place, &i);
    at = index_checked(L, at, all, false, "the tokens of input 0");
    Expr *b = e_bin(c, E_FDIV, at, x->dim[1]), *s = e_bin(c, E_MOD, at, x->dim[1]);
    return te_end(L, y, ld(L, x, (Expr *[]){b, s, ax(L, y, 1)}));
}

void lower_RestorePadding(Lower *L) {
    Tensor *x = in(L, 0);
    check_rank(L, x, 2, "the input");
    out(L, 0, with_padding(L, x, in(L, 1)));
}

/* ---- attention ------------------------------------------------------------------------------- */

/* A mask of the keys up to each sequence's length; all others are excluded. */
static AttnMask length_mask(Lower *L, int input, Expr *batch) {
    Cx *c = L->cx;
    Tensor *sums = lengths_in(L, input, e_addi(c, batch, 1), "cumulative_sequence_length");
    Tensor *t = te_begin(L, DT_I64, 1, &batch);
    Expr *b = ax(L, t, 0), *next = e_addi(c, b, 1);
    t = te_end(L, t, e_sub(c, ld(L, sums, &next), ld(L, sums, &b)));
    return (AttnMask){.t = t, .past = e_int(c, 0), .fill = ATTN_LOWEST};
}

void lower_PackedAttention(Lower *L) {
    Tensor *x = in(L, 0), *w = in(L, 1), *bias = in(L, 2), *place = in(L, 3);
    if (x->rank != 2 || w->rank != 2 || bias->rank != 1 || place->rank != 2)
        fail(L, "input, weights, bias and token_offset must have ranks 2, 2, 1 and 2");
    check_eq(L, x->dim[1], w->dim[0], "input and weights do not fit");
    check_eq(L, bias->dim[0], w->dim[1], "bias must have one element per column of the weights");
    Tensor *qkv = t_bin(L, E_ADD, t_matmul(L, x, w), bias);
    Attn A = {0};
    attn_projected_heads(L, with_padding(L, qkv, place), &A);
    Tensor *y = attn_attended(L, &A, length_mask(L, 4, place->dim[0]), in(L, 5), -1);
    out(L, 0, without_padding(L, y, place, x->dim[0]));
}

/* [rows, heads, 3, size] as [batch, length, heads, 3, size], or [rows, size] with one more axis */
static Tensor *padded(Lower *L, Tensor *x, Tensor *place) {
    if (!x) return NULL;
    if (x->rank == 2) return with_padding(L, x, place);
    if (x->rank != 4)
        fail(L, "query must have rank 2 or 4, key and value rank 2; one has %d", x->rank);
    Expr *size = e_mul(L->cx, e_mul(L->cx, x->dim[1], x->dim[2]), x->dim[3]);
    Tensor *t = with_padding(L, t_reshape(L, x, 2, (Expr *[]){x->dim[0], size}), place);
    Expr *dim[5] = {t->dim[0], t->dim[1], x->dim[1], x->dim[2], x->dim[3]};
    return t_reshape(L, t, 5, dim);
}

void lower_PackedMultiHeadAttention(Lower *L) {
    Tensor *q = in(L, 0), *k = in(L, 1), *v = in(L, 2), *place = in(L, 4);
    if (!place || !in(L, 5)) fail(L, "token_offset or cumulative_sequence_length is missing");
    check_rank(L, place, 2, "token_offset");
    if (k) check_rank(L, k, 2, "key");
    if (!k && q->rank != 4) fail(L, "query must have rank 4 without key, not %d", q->rank);
    Expr *rows = q->dim[0];
    if (k) check_eq(L, k->dim[0], rows, "query and key must have the same number of rows");
    if (v) check_eq(L, v->dim[0], rows, "query and value must have the same number of rows");
    Attn A = {0};
    attn_queries_keys_values(L, &A, padded(L, q, place), padded(L, k, place), padded(L, v, place),
                             in(L, 3));
    Tensor *y = attn_attended(L, &A, length_mask(L, 5, place->dim[0]), in(L, 6), -1);
    out(L, 0, without_padding(L, y, place, rows));
}
