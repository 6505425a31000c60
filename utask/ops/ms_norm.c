/* ms_norm.c: com.microsoft's activations with biases, normalizations with residuals, embeddings and
 * position biases, as ONNX Runtime's documentation (ContribOperators.md) defines them. Formulas on
 * 16-bit floats are computed in float32 and rounded once. */
#include "utask/ops/elementwise.h"
#include "utask/ops/nn.h"
#include "utask/ops/size.h"

/* ---- activations ----------------------------------------------------------------------------- */

void per_element(Lower *L, const Tensor *t, const Tensor *x, const char *what) {
    if (!t) return;
    if (x->rank < 1) fail(L, "the input is a scalar");
    check_rank(L, t, 1, what);
    check_eq(L, t->dim[0], x->dim[x->rank - 1],
             "%s must have one element for each of the last axis of the input", what);
}

/* act(x + bias); bias may be NULL. */
static void activated(Lower *L, Act act, double alpha, Tensor *bias) {
    Cx *c = L->cx;
    Tensor *x = in_needed(L, 0);
    per_element(L, bias, x, "bias");
    DType w = wide_float(x->dtype);
    Expr *v;
    Tensor *y = te_like(L, x->dtype, x, &v);
    v = e_cast(c, w, v);
    if (bias) v = e_add(c, v, e_cast(c, w, ld(L, bias, (Expr *[]){ax(L, y, y->rank - 1)})));
    out(L, 0, te_end(L, y, e_cast(c, x->dtype, act_expr(c, act, v, alpha, 0))));
}

void lower_MsGelu(Lower *L) { activated(L, ACT_GELU, 0, NULL); }
void lower_BiasGelu(Lower *L) { activated(L, ACT_GELU, 0, in_needed(L, 1)); }
void lower_FastGelu(Lower *L) { activated(L, ACT_GELU_TANH, 0, in(L, 1)); }
void lower_QuickGelu(Lower *L) {
    activated(L, ACT_SWISH, attr_f(L, "alpha", 1.70200002193450927734375), NULL);
}

/* left half of (x + bias) times Gelu of the right half */
void lower_BiasSplitGelu(Lower *L) {
    Cx *c = L->cx;
    Tensor *x = in(L, 0), *bias = in(L, 1);
    check_rank(L, x, 3, "the input");
    per_element(L, bias, x, "bias");
    DType w = wide_float(x->dtype);
    Expr *half = divided_dim(L, x->dim[2], e_int(c, 2), "last axis"), *part[2];
    Tensor *y = te_begin(L, x->dtype, 3, (Expr *[]){x->dim[0], x->dim[1], half});
    for (int i = 0; i < 2; i++) {
        Expr *at = i ? e_add(c, ax(L, y, 2), half) : ax(L, y, 2);
        part[i] = e_cast(c, w, ld(L, x, (Expr *[]){ax(L, y, 0), ax(L, y, 1), at}));
        part[i] = e_add(c, part[i], e_cast(c, w, ld(L, bias, (Expr *[]){at})));
    }
    Expr *v = e_mul(c, part[0], act_expr(c, ACT_GELU, part[1], 0, 0));
    out(L, 0, te_end(L, y, e_cast(c, x->dtype, v)));
}

/* x + bias + skip */
void lower_BiasAdd(Lower *L) {
    Tensor *x = in(L, 0), *bias = in(L, 1), *skip = in(L, 2);
    per_element(L, bias, x, "bias");
    if (skip->rank != x->rank) fail(L, "skip has rank %d, not %d", skip->rank, x->rank);
    check_dims(L, x->rank, skip->dim, x->dim, "skip must have the shape of the input");
    DType w = wide_float(x->dtype);
    Tensor *y = t_bin(L, E_ADD, t_cast(L, w, x), t_cast(L, w, bias));
    out(L, 0, t_cast(L, x->dtype, t_bin(L, E_ADD, y, t_cast(L, w, skip))));
}

/* ---- normalizations of a sum ----------------------------------------------------------------- */

/* input + skip + bias in a wide type; skip may lack the batch axis or have size 1 there. */
static Tensor *skip_sum(Lower *L, Tensor *bias) {
    Cx *c = L->cx;
    Tensor *x = in(L, 0), *skip = in(L, 1);
    if (x->rank != 2 && x->rank != 3) fail(L, "the input must have rank 2 or 3, not %d", x->rank);
    if (skip->rank != x->rank && skip->rank != 2)
        fail(L, "skip must have rank %d or 2, not %d", x->rank, skip->rank);
    int more = x->rank - skip->rank;
    for (int i = 0; i < skip->rank; i++) {
        Expr *d = skip->dim[i], *same = e_eq(c, d, x->dim[i + more]);
        bool one = i == 0 && skip->rank == 3;
        check(L, one ? e_or(c, same, e_eq(c, d, e_int(c, 1))) : same,
              "skip does not fit the input (its axis %d)", i);
    }
    per_element(L, in(L, 2), x, "gamma");
    per_element(L, bias, x, "bias");
    DType w = wide_float(x->dtype);
    Expr *idx[3];
    Tensor *t = te_indexed(L, w, x->rank, x->dim, idx);
    Expr *v = e_cast(c, w, ld(L, x, idx));
    v = e_add(c, v, e_cast(c, w, ld_bcast(L, skip, x->rank, idx, t->dim)));
    if (bias) v = e_add(c, v, e_cast(c, w, ld(L, bias, idx + x->rank - 1)));
    return te_end(L, t, v);
}

static double epsilon(Lower *L) {
    double eps = attr_f(L, "epsilon", 1e-12f);
    if (!(eps >= 0)) fail(L, "epsilon must not be negative, it is %g", eps);
    return eps;
}

/* Output 0 from standardized values, in the input's type, and outputs 1 to 3 if wanted. */
static void skip_outputs(Lower *L, Tensor *y, Tensor *gamma, Tensor *beta, Tensor *mean,
                         Tensor *inv, Tensor *sum) {
    DType t = in(L, 0)->dtype;
    y = t_bin(L, E_MUL, y, t_cast(L, y->dtype, gamma));
    if (beta) y = t_bin(L, E_ADD, y, t_cast(L, y->dtype, beta));
    out(L, 0, t_cast(L, t, y));
    if (wants_out(L, 1)) out(L, 1, t_cast(L, DT_F32, mean));
    if (wants_out(L, 2)) out(L, 2, t_cast(L, DT_F32, inv));
    if (wants_out(L, 3)) out(L, 3, t_cast(L, t, sum));
}

void lower_SkipLayerNormalization(Lower *L) {
    Tensor *beta = in(L, 3), *mean, *inv, *sum = skip_sum(L, in(L, 4));
    per_element(L, beta, sum, "beta");
    Tensor *y = t_standardized(L, sum, 1u << (sum->rank - 1), epsilon(L), &mean, &inv);
    skip_outputs(L, y, in(L, 2), beta, mean, inv, sum);
}

/* There is no mean, so that output is 0. */
void lower_SkipSimplifiedLayerNormalization(Lower *L) {
    Tensor *sum = skip_sum(L, in(L, 3)), *inv;
    Tensor *y = t_rms_normalized(L, sum, 1u << (sum->rank - 1), epsilon(L), &inv);
    Tensor *none = t_zeros(L, DT_F32, inv->rank, inv->dim);
    skip_outputs(L, y, in(L, 2), NULL, none, inv, sum);
}

/* ---- embeddings ------------------------------------------------------------------------------ */

/* A table [rows, size], with scale and zero point if it is quantized. */
typedef struct Table {
    Tensor *t, *scale, *zero;
    const char *what;
} Table;

static Expr *table_value(Lower *L, const Table *k, DType w, Expr **idx) {
    Cx *c = L->cx;
    Expr *v = ld(L, k->t, idx);
    if (!k->scale) return e_cast(c, w, v);
    Expr *first[1] = {e_int(c, 0)};
    Expr *z = ld(L, k->zero, first), *s = ld(L, k->scale, first);
    v = e_sub(c, e_cast(c, DT_I32, v), e_cast(c, DT_I32, z));
    return e_mul(c, e_cast(c, w, v), e_cast(c, w, s));
}

static void check_table(Lower *L, Table *k, int rank, Expr *size) {
    Cx *c = L->cx;
    check_rank(L, k->t, rank, k->what);
    check_eq(L, k->t->dim[rank - 1], size, "tables, gamma and beta must have rows of one size");
    if (!k->scale) return;
    Expr *one = e_int(c, 1);
    if (dtype_size(k->t->dtype) != 1 || dtype_size(k->zero->dtype) != 1)
        fail(L, "%s must be int8 or uint8", k->what);
    check(L, e_and(c, e_eq(c, count(L, k->scale), one), e_eq(c, count(L, k->zero), one)),
          "scale and zero point of %s must have one element", k->what);
    k->scale = t_reshape(L, k->scale, 1, &one);
    k->zero = t_reshape(L, k->zero, 1, &one);
}

/* The row of table k for (b, s): from ids, or s without ids. */
static Expr *row_of(Lower *L, const Table *k, Tensor *ids, Expr *b, Expr *s) {
    Cx *c = L->cx;
    Expr *i = s;
    if (ids) {
        Expr *row = e_is_ival(ids->dim[0], 1) ? e_int(c, 0) : b;
        if (ids->dim[0] != in(L, 0)->dim[0] && !e_is_ival(ids->dim[0], 1))
            row = e_min(c, b, e_addi(c, ids->dim[0], -1)); /* a single row serves all */
        i = e_cast(c, DT_I64, ld(L, ids, (Expr *[]){row, s}));
    }
    return index_checked(L, i, k->t->dim[0], false, "axis 0 of a table");
}

/* The indices of table i are [batch, length], or where `shared` [1, length]. */
static void check_ids(Lower *L, const Tensor *ids, const Tensor *first, bool shared,
                      const char *what) {
    Cx *c = L->cx;
    if (!ids) return;
    check_rank(L, ids, 2, what);
    Expr *same = e_eq(c, ids->dim[0], first->dim[0]);
    if (shared) same = e_or(c, same, e_eq(c, ids->dim[0], e_int(c, 1)));
    check(L, e_and(c, same, e_eq(c, ids->dim[1], first->dim[1])),
          "%s does not fit the input's [batch, length]", what);
}

/* The number of ones in each row of the mask, [batch]; 0 without a mask. */
static Tensor *mask_lengths(Lower *L, Tensor *mask, Tensor *ids) {
    Cx *c = L->cx;
    if (!mask) return t_zeros(L, ids->dtype, 1, ids->dim);
    Tensor *t = te_begin(L, ids->dtype, 1, ids->dim);
    Axis *s = axis_new(c, mask->dim[1]);
    Expr *v = ld(L, mask, (Expr *[]){ax(L, t, 0), e_axis(c, s)});
    Expr *one = e_cast(c, ids->dtype, e_eq(c, v, e_num(c, mask->dtype, 1)));
    return te_end(L, t, e_reduce(c, R_SUM, 1, &s, one));
}

/* Tables of words, positions and segments (which may be absent), gamma and beta. */
static void embedded(Lower *L, Table table[5], DType t, Tensor *mask, Tensor *places) {
    Cx *c = L->cx;
    Tensor *ids[3] = {in(L, 0), places, in(L, 1)};
    check_rank(L, ids[0], 2, "input_ids");
    if (!ids[2] != !table[2].t) fail(L, "segment_ids and segment_embedding must be given together");
    check_ids(L, places, ids[0], true, "position_ids");
    check_ids(L, ids[2], ids[0], false, "segment_ids");
    check_ids(L, mask, ids[0], false, "mask");
    check_rank(L, table[0].t, 2, table[0].what);
    Expr *size = table[0].t->dim[1];
    for (int i = 0; i < 5; i++)
        if (table[i].t) check_table(L, &table[i], i < 3 ? 2 : 1, size);

    DType w = wide_float(t);
    Expr *dim[3] = {ids[0]->dim[0], ids[0]->dim[1], size}, *v = NULL;
    Tensor *sum = te_begin(L, w, 3, dim);
    for (int i = 0; i < 3; i++) {
        if (!table[i].t) continue;
        Expr *row = row_of(L, &table[i], ids[i], ax(L, sum, 0), ax(L, sum, 1));
        Expr *e = table_value(L, &table[i], w, (Expr *[]){row, ax(L, sum, 2)});
        v = v ? e_add(c, v, e) : e;
    }
    sum = te_end(L, sum, v);
    Tensor *x = t_standardized(L, sum, 1u << 2, epsilon(L), NULL, NULL);
    Expr *idx[3];
    Tensor *y = te_indexed(L, t, 3, dim, idx);
    v = e_mul(c, ld(L, x, idx), table_value(L, &table[3], w, idx + 2));
    v = e_add(c, v, table_value(L, &table[4], w, idx + 2));
    out(L, 0, te_end(L, y, e_cast(c, t, v)));
    if (wants_out(L, 1)) out(L, 1, mask_lengths(L, mask, ids[0]));
    if (wants_out(L, 2)) out(L, 2, t_cast(L, t, sum));
}

void lower_EmbedLayerNormalization(Lower *L) {
    Table table[5] = {{in_needed(L, 2), NULL, NULL, "word_embedding"},
                      {in_needed(L, 3), NULL, NULL, "position_embedding"},
                      {in(L, 4), NULL, NULL, "segment_embedding"},
                      {in_needed(L, 5), NULL, NULL, "gamma"},
                      {in_needed(L, 6), NULL, NULL, "beta"}};
    embedded(L, table, table[0].t->dtype, in(L, 7), in(L, 8));
}

void lower_QEmbedLayerNormalization(Lower *L) {
    Table table[5] = {{in_needed(L, 2), in(L, 8), in(L, 13), "word_embedding_quant"},
                      {in_needed(L, 3), in(L, 9), in(L, 14), "position_embedding_quant"},
                      {in(L, 4), in(L, 10), in(L, 15), "segment_embedding"},
                      {in_needed(L, 5), in(L, 11), in(L, 16), "gamma_quant"},
                      {in_needed(L, 6), in(L, 12), in(L, 17), "beta_quant"}};
    for (int i = 0; i < 5; i++)
        if (!table[i].t != !table[i].scale || !table[i].t != !table[i].zero)
            fail(L, "%s, its scale and its zero point must be given together", table[i].what);
    embedded(L, table, table[0].scale->dtype, in(L, 7), NULL);
}

/* ---- position biases ------------------------------------------------------------------------- */

/* gate_u (gate_r eco_a - 1) + 2 times rel_pos, gates by a product with the queries. */
void lower_GatedRelativePositionBias(Lower *L) {
    Cx *c = L->cx;
    Tensor *q = in(L, 0), *qb = in(L, 1), *rel = in(L, 2), *weight = in(L, 3), *bias = in(L, 4);
    Tensor *eco = in(L, 5);
    int64_t heads = attr_positive(L, "num_heads", 0);
    if (has_in(L, 6)) unsupported(L, "token_offset, queries without padding");
    if (q->rank != 3 || rel->rank != 4 || weight->rank != 2 || eco->rank != 4)
        fail(L, "query_layer, rel_pos, weight and eco_a must have ranks 3, 4, 2 and 4");
    per_element(L, qb, q, "query_bias");
    per_element(L, bias, weight, "bias");
    Expr *n = e_int(c, heads), *size = divided_dim(L, q->dim[2], n, "query"), *one = e_int(c, 1);
    Expr *half = divided_dim(L, weight->dim[1], e_int(c, 2), "gates");
    check_eq(L, weight->dim[0], size, "weight must have a row per element of a head");
    Expr *want[4] = {one, n, q->dim[1], q->dim[1]};
    for (int i = 0; i < 4; i++) {
        check_eq(L, rel->dim[i], want[i], "rel_pos must be [1, num_heads, length, length]");
        check_eq(L, eco->dim[i], i == 1 ? n : one, "eco_a must be [1, num_heads, 1, 1]");
    }

    DType w = wide_float(q->dtype);
    Expr *dim[5] = {q->dim[0], n, q->dim[1], e_int(c, 2), half}, *idx[5];
    Tensor *g = te_indexed(L, w, 5, dim, idx); /* [batch, heads, length, gate, half] */
    Axis *d = axis_new(c, size);
    Expr *at = e_add(c, e_mul(c, idx[1], size), e_axis(c, d));
    Expr *x = e_cast(c, w, ld(L, q, (Expr *[]){idx[0], idx[2], at}));
    x = e_add(c, x, e_cast(c, w, ld(L, qb, (Expr *[]){at})));
    Expr *column = e_add(c, e_mul(c, idx[3], half), idx[4]);
    Expr *k = e_cast(c, w, ld(L, weight, (Expr *[]){e_axis(c, d), column}));
    g = te_end(L, g, e_reduce(c, R_SUM, 1, &d, e_mul(c, x, k)));
    Tensor *b = t_reshape(L, t_cast(L, w, bias), 2, dim + 3);
    Tensor *gate = t_un(L, E_SIGMOID, t_reduce(L, R_SUM, t_bin(L, E_ADD, g, b), 1u << 4, false));

    Tensor *y = te_indexed(L, q->dtype, 4, (Expr *[]){q->dim[0], n, q->dim[1], q->dim[1]}, idx);
    Expr *zero = e_int(c, 0), *u = ld(L, gate, (Expr *[]){idx[0], idx[1], idx[2], zero});
    Expr *r = ld(L, gate, (Expr *[]){idx[0], idx[1], idx[2], one});
    Expr *e = e_cast(c, w, ld(L, eco, (Expr *[]){zero, idx[1], zero, zero}));
    Expr *p = e_cast(c, w, ld(L, rel, (Expr *[]){zero, idx[1], idx[2], idx[3]}));
    u = e_mul(c, u, e_sub(c, e_mul(c, r, e), e_num(c, w, 1)));
    Expr *v = e_mul(c, e_add(c, u, e_num(c, w, 2)), p);
    out(L, 0, te_end(L, y, e_cast(c, q->dtype, v)));
}

static Expr *one_length(Lower *L, int i, const char *what) {
    Tensor *t = in(L, i);
    check_eq(L, count(L, t), e_int(L->cx, 1), "%s must have one element", what);
    return size_uni(L, "length", uni_i64(L, t, 0));
}

/* The table's entry for the distance between two positions. Buckets get wider with the distance.
 * The table [buckets, heads] is stored column by column. */
void lower_RelativePositionBias(Lower *L) {
    Cx *c = L->cx;
    Tensor *table = in(L, 0);
    bool both = attr_i(L, "is_bidirectional", 0) != 0;
    check_rank(L, table, 2, "bias_table");
    int64_t far = attr_positive(L, "max_distance", 0);
    Expr *buckets = table->dim[0], *two = e_int(c, 2), *zero = e_int(c, 0), *one = e_int(c, 1);
    Expr *side = both ? e_bin(c, E_FDIV, buckets, two) : buckets;
    Expr *exact = e_bin(c, E_FDIV, side, two);
    check_le(L, one, exact, "bias_table has too few buckets");
    check(L, e_lt(c, exact, e_int(c, far)), "max_distance (%lld) is too small for the buckets",
          (long long)far);
    Expr *dim[4] = {one, table->dim[1], one_length(L, 1, "query_length"),
                    one_length(L, 2, "key_length")};
    Tensor *t = te_begin(L, table->dtype, 4, dim);
    Expr *ahead = e_sub(c, ax(L, t, 3), ax(L, t, 2)), *back = e_sub(c, zero, ahead);
    Expr *n = e_max(c, both ? ahead : zero, back), *small = e_cast(c, DT_F32, exact);
    Expr *ratio = e_div(c, e_cast(c, DT_F32, n), small);
    Expr *most = e_div(c, e_num(c, DT_F32, (double)far), small);
    Expr *grown = e_div(c, e_un(c, E_LOG, ratio), e_un(c, E_LOG, most));
    grown = e_mul(c, grown, e_cast(c, DT_F32, e_sub(c, side, exact)));
    Expr *large = e_add(c, exact, e_cast(c, DT_I64, grown));
    large = e_min(c, large, e_addi(c, side, -1));
    Expr *bucket = e_sel(c, e_lt(c, n, exact), n, large);
    if (both) bucket = e_add(c, bucket, e_sel(c, e_lt(c, zero, ahead), side, zero));
    Expr *flat = e_add(c, e_mul(c, ax(L, t, 1), buckets), bucket);
    Expr *row = e_bin(c, E_FDIV, flat, table->dim[1]), *col = e_bin(c, E_MOD, flat, table->dim[1]);
    out(L, 0, te_end(L, t, ld(L, table, (Expr *[]){row, col})));
}
