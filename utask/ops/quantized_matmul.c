/* quantized_matmul.c: com.microsoft's products of quantized matrices, as ONNX Runtime's
 * documentation defines them. Sums are in int32, or use float weights that are unpacked where they
 * are read; scales, biases and requantization are outside of the sum. */
#include "utask/ops/elementwise.h"
#include "utask/ops/matmul.h"
#include "utask/ops/nn.h"
#include "utask/ops/quantize.h"

/* A parameter that holds one number, in a form that adds no axes to the other operand. */
static Tensor *plain(Lower *L, Tensor *t) {
    return t && t->rank && count_const(t) == 1 ? t_reshape(L, t, 0, NULL) : t;
}

/* A parameter per tensor. */
static Tensor *number(Lower *L, Tensor *t, const char *what) {
    if (!t || t->rank == 0) return t;
    Tensor *y = te_begin(L, t->dtype, 0, NULL);
    return te_end(L, y, only_element(L, t, what));
}

/* product * a_scale * b_scale + bias, in float32. */
static Tensor *to_float(Lower *L, Tensor *product, Tensor *a_scale, Tensor *b_scale, Tensor *bias) {
    Tensor *bs = plain(L, t_cast(L, DT_F32, b_scale));
    broadcasts_to(L, bs, product, "the scale of B");
    Tensor *scale = t_bin(L, E_MUL, t_cast(L, DT_F32, a_scale), bs);
    Tensor *y = t_bin(L, E_MUL, t_cast(L, DT_F32, product), scale);
    if (!bias) return y;
    if (bias->rank != 1) fail(L, "the bias has rank %d, not 1", bias->rank);
    bias = plain(L, t_cast(L, DT_F32, bias));
    broadcasts_to(L, bias, product, "the bias");
    return t_bin(L, E_ADD, y, bias);
}

void lower_DynamicQuantizeMatMul(Lower *L) {
    Tensor *scale, *zero, *a = t_dynamic_quantize(L, in_needed(L, 0), false, &scale, &zero);
    Tensor *p = integer_product(L, a, zero, in_needed(L, 1), plain(L, in(L, 3)));
    out(L, 0, to_float(L, p, scale, in_needed(L, 2), in(L, 4)));
}

void lower_MatMulIntegerToFloat(Lower *L) {
    Tensor *a_scale = number(L, in_needed(L, 2), "the scale of A");
    Tensor *a_zero = number(L, in(L, 4), "the zero point of A");
    Tensor *p = integer_product(L, in_needed(L, 0), a_zero, in_needed(L, 1), plain(L, in(L, 5)));
    Tensor *y = to_float(L, p, a_scale, in_needed(L, 3), in(L, 6));
    out(L, 0, t_cast(L, a_scale->dtype, y));
}

/* (A' B' + C) scaled, and quantized if the result has a scale and a zero point. */
void lower_QGemm(Lower *L) {
    Tensor *a = in_needed(L, 0), *b = in_needed(L, 3), *bias = in(L, 6), *y_zero = in(L, 8);
    if (a->rank != 2 || b->rank != 2)
        fail(L, "A and B must have rank 2, not %d and %d", a->rank, b->rank);
    if (attr_i(L, "transA", 0)) a = t_swap_last(L, a);
    if (attr_i(L, "transB", 0)) b = t_swap_last(L, b);
    if (has_in(L, 7) != (y_zero != NULL))
        fail(L, "y_scale and y_zero_point must both be there, or neither");
    Tensor *a_zero = number(L, in_needed(L, 2), "the zero point of A");
    Tensor *sum = integer_product(L, a, a_zero, b, plain(L, in_needed(L, 5)));
    if (bias) {
        broadcasts_to(L, bias, sum, "C");
        sum = t_bin(L, E_ADD, sum, bias);
    }
    Tensor *a_scale = number(L, in_needed(L, 1), "the scale of A");
    Tensor *scale = t_scaled(L, a_scale, attr_f(L, "alpha", 1));
    Tensor *b_scale = plain(L, in_needed(L, 4));
    broadcasts_to(L, b_scale, sum, "the scale of B");
    scale = t_bin(L, E_MUL, scale, b_scale);
    if (has_in(L, 7))
        scale = t_bin(L, E_DIV, scale, number(L, in(L, 7), "the scale of the result"));
    Tensor *y = t_bin(L, E_MUL, t_cast(L, DT_F32, sum), scale);
    if (y_zero) {
        Expr *v, *z = e_cast(L->cx, DT_F32, only_element(L, byte_in(L, 8), "y_zero_point"));
        Tensor *q = te_like(L, y_zero->dtype, y, &v);
        y = te_end(L, q, quantized(L, y_zero->dtype, v, z));
    }
    out(L, 0, y);
}

/* ---- weights of few bits --------------------------------------------------------------------- */

/* The weights of a product: [n, k] numbers of `bits` bits, `block` along k with one scale. */
typedef struct NBits {
    int64_t n, k, bits, block, blocks;
    Tensor *codes;                /* [n, bytes] */
    Tensor *scales;               /* [n, blocks] */
    Tensor *zeros, *packed_zeros; /* [n, blocks] of the scales' type; [n, bytes]; or both NULL */
    Tensor *group;                /* [k or more]: the block of each k; NULL: in order */
} NBits;

static int64_t size_attr(Lower *L, const char *name) {
    if (!attr_has(L, name)) fail(L, "the attribute %s is missing", name);
    int64_t v = attr_i(L, name, 0);
    if (v < 1 || v > INT32_MAX)
        fail(L, "%s must be positive and below 2^31, not %lld", name, (long long)v);
    return v;
}

/* t as [n, each]; it may be flat, or with `each` split in two axes. */
static Tensor *rows_of(Lower *L, Tensor *t, const NBits *w, int64_t each, const char *what) {
    Cx *c = L->cx;
    Expr *dim[2] = {e_int(c, w->n), e_int(c, each)};
    if (t->rank < 1 || t->rank > 3) fail(L, "%s has rank %d", what, t->rank);
    check_eq(L, count(L, t), e_int(c, w->n * each), "%s must have %lld x %lld elements", what,
             (long long)w->n, (long long)each);
    if (t->rank > 1) check_eq(L, t->dim[0], dim[0], "%s must have N rows", what);
    return t_reshape(L, t, 2, dim);
}

/* Element idx, as int32, of numbers packed into bytes along the last axis, from the low bits on. */
static Expr *unpacked(Lower *L, Tensor *t, Expr *const *idx, int64_t bits) {
    Cx *c = L->cx;
    int last = t->rank - 1;
    Expr *at[MAX_RANK], *per = e_int(c, 8 / bits), *i = idx[last];
    for (int k = 0; k < last; k++) at[k] = idx[k];
    at[last] = bits == 8 ? i : e_bin(c, E_FDIV, i, per);
    if (bits == 8) return e_cast(c, DT_I32, ld(L, t, at));
    Expr *shift = e_cast(c, DT_U8, e_muli(c, e_bin(c, E_MOD, i, per), bits));
    Expr *v = e_bin(c, E_SHR, ld(L, t, at), shift);
    return e_cast(c, DT_I32, e_bin(c, E_AND, v, e_ci(c, DT_U8, (1 << bits) - 1)));
}

static void nbits_read(Lower *L, NBits *w) {
    Cx *c = L->cx;
    Tensor *b = in_needed(L, 1), *scales = in_needed(L, 2), *zeros = in(L, 3);
    if (b->dtype != DT_U8) fail(L, "B must be uint8, not %s", dtype_name(b->dtype));
    Expr *dim[] = {e_int(c, w->n), e_int(c, w->blocks), e_int(c, w->block * w->bits / 8)};
    check_shape(L, b, 3, dim, "B",
                "B must have the shape [N, blocks, bytes of a block]: axis %d differs");
    w->codes = rows_of(L, b, w, w->blocks * w->block * w->bits / 8, "B");
    w->scales = rows_of(L, scales, w, w->blocks, "scales");
    if (zeros && zeros->dtype == DT_U8) {
        w->packed_zeros = rows_of(L, zeros, w, (w->blocks * w->bits + 7) / 8, "zero_points");
    } else if (zeros) {
        if (zeros->dtype != scales->dtype)
            fail(L, "zero_points must be uint8 or of the type of scales, not %s",
                 dtype_name(zeros->dtype));
        w->zeros = rows_of(L, zeros, w, w->blocks, "zero_points");
    }
    w->group = in(L, 4);
    if (!w->group) return;
    if (w->group->dtype != DT_I32)
        fail(L, "g_idx must be int32, not %s", dtype_name(w->group->dtype));
    check_rank(L, w->group, 1, "g_idx");
    Expr *len = w->group->dim[0];
    check(L, e_or(c, e_eq(c, len, e_int(c, w->k)), e_eq(c, len, e_int(c, w->blocks * w->block))),
          "g_idx must have an element for each k");
}

/* (code - zero point) * scale, [n, k] in type t; the zero point may be absent: the middle code. */
static Tensor *nbits_weights(Lower *L, const NBits *w, DType t) {
    Cx *c = L->cx;
    Expr *dim[2] = {e_int(c, w->n), e_int(c, w->k)};
    Tensor *y = te_begin(L, t, 2, dim);
    Expr *row = ax(L, y, 0), *k = ax(L, y, 1), *at[2] = {row, NULL};
    at[1] = w->group ? index_checked(L, e_cast(c, DT_I64, ld(L, w->group, &k)), e_int(c, w->blocks),
                                     false, "the blocks (g_idx)")
                     : e_bin(c, E_FDIV, k, e_int(c, w->block));
    Expr *v = unpacked(L, w->codes, (Expr *[]){row, k}, w->bits);
    Expr *scale = e_cast(c, t, ld(L, w->scales, at));
    if (w->zeros) {
        v = e_sub(c, e_cast(c, t, v), e_cast(c, t, ld(L, w->zeros, at)));
    } else {
        Expr *zero = e_ci(c, DT_I32, 1 << (w->bits - 1));
        if (w->packed_zeros) zero = unpacked(L, w->packed_zeros, at, w->bits);
        v = e_cast(c, t, e_sub(c, v, zero));
    }
    return te_end(L, y, e_mul(c, v, scale));
}

/* B with a size of 0 stands for weights that are all zero. */
static bool omitted(const Tensor *b) {
    for (int i = 0; i < b->rank; i++)
        if (e_is_ival(b->dim[i], 0)) return true;
    return false;
}

void lower_MatMulNBits(Lower *L) {
    Cx *c = L->cx;
    Tensor *a = in_needed(L, 0), *bias = in(L, 5), *y;
    NBits w = {.n = size_attr(L, "N"), .k = size_attr(L, "K"), .bits = attr_i(L, "bits", 4)};
    w.block = size_attr(L, "block_size");
    if (w.bits != 2 && w.bits != 4 && w.bits != 8)
        unsupported(L, "weights of %lld bits", (long long)w.bits);
    if (w.block < 16 || (w.block & (w.block - 1)))
        fail(L, "block_size must be a power of 2 and at least 16, not %lld", (long long)w.block);
    w.blocks = (w.k + w.block - 1) / w.block;
    if (a->rank < 1) fail(L, "A must have at least rank 1");
    check_eq(L, a->dim[a->rank - 1], e_int(c, w.k), "the last axis of A must have K elements");
    DType t = wide_float(a->dtype);
    if (omitted(in_needed(L, 1))) {
        Expr *dim[MAX_RANK];
        for (int i = 0; i < a->rank; i++) dim[i] = i < a->rank - 1 ? a->dim[i] : e_int(c, w.n);
        y = t_zeros(L, t, a->rank, dim);
    } else {
        nbits_read(L, &w);
        y = t_matmul(L, t_cast(L, t, a), t_swap_last(L, nbits_weights(L, &w, t)));
    }
    if (bias) {
        if (bias->rank != 1) fail(L, "the bias has rank %d, not 1", bias->rank);
        check_eq(L, bias->dim[0], e_int(c, w.n), "the bias must have N elements");
        y = t_bin(L, E_ADD, y, t_cast(L, t, bias));
    }
    out(L, 0, t_cast(L, a->dtype, y));
}

/* Gathers slices of packed numbers and unpacks them: (code - zero point) * scale, with one scale
 * for `block` numbers of the last axis. An index out of range gives zeros. */
void lower_GatherBlockQuantized(Lower *L) {
    Cx *c = L->cx;
    Tensor *data = in_needed(L, 0), *ix = in_needed(L, 1), *scales = in_needed(L, 2);
    Tensor *zeros = in(L, 3);
    int64_t bits = attr_i(L, "bits", 4), block = attr_i(L, "block_size", 128), per;
    int r = data->rank, q = ix->rank;
    if (data->dtype != DT_U8) unsupported(L, "data of type %s", dtype_name(data->dtype));
    if (bits != 2 && bits != 4 && bits != 8) unsupported(L, "data of %lld bits", (long long)bits);
    if (block < 16 || block > INT32_MAX || (block & (block - 1)))
        fail(L, "block_size must be a power of 2 and at least 16, not %lld", (long long)block);
    if (r < 2) fail(L, "data has rank %d, not 2 or more", r);
    if (norm_axis(L, attr_i(L, "gather_axis", 0), r) != 0 ||
        norm_axis(L, attr_i(L, "quantize_axis", 1), r) != r - 1)
        fail(L, "for uint8 data, gather_axis must be the first and quantize_axis the last axis");
    if (scales->rank != r || (zeros && zeros->rank != r))
        fail(L, "data, scales and zero_points must have one rank");
    if (r + q - 1 > MAX_RANK) unsupported(L, "the result has rank %d", r + q - 1);
    per = 8 / bits;
    Expr *dim[MAX_RANK], *idx[MAX_RANK], *at[MAX_RANK], *zero = e_int(c, 0);
    Expr *last = e_muli(c, data->dim[r - 1], per);
    Expr *blocks = e_bin(c, E_FDIV, e_addi(c, last, block - 1), e_int(c, block));
    for (int i = 0; i < r; i++) {
        Expr *d = i == r - 1 ? blocks : data->dim[i];
        check_eq(L, scales->dim[i], d, "scales have the wrong size on axis %d", i);
        if (i == r - 1) d = e_bin(c, E_FDIV, e_addi(c, d, per - 1), e_int(c, per));
        if (zeros) check_eq(L, zeros->dim[i], d, "zero_points have the wrong size on axis %d", i);
    }
    for (int i = 0; i < q; i++) dim[i] = ix->dim[i];
    for (int i = 1; i < r; i++) dim[q + i - 1] = i == r - 1 ? last : data->dim[i];
    Tensor *y = te_begin(L, scales->dtype, q + r - 1, dim);
    for (int i = 0; i < q; i++) idx[i] = ax(L, y, i);
    Expr *n = data->dim[0], *row = e_cast(c, DT_I64, ld(L, ix, idx));
    row = e_sel(c, e_lt(c, row, zero), e_add(c, row, n), row);
    Expr *inside = e_and(c, e_le(c, zero, row), e_lt(c, row, n));
    idx[0] = at[0] = e_sel(c, inside, row, zero);
    for (int i = 1; i < r; i++) idx[i] = at[i] = ax(L, y, q + i - 1);
    at[r - 1] = e_bin(c, E_FDIV, idx[r - 1], e_int(c, block));
    DType t = wide_float(scales->dtype);
    Expr *from = zeros ? unpacked(L, zeros, at, bits) : e_ci(c, DT_I32, 1 << (bits - 1));
    Expr *v = e_cast(c, t, e_sub(c, unpacked(L, data, idx, bits), from));
    v = e_sel(c, inside, e_mul(c, v, e_cast(c, t, ld(L, scales, at))), e_num(c, t, 0));
    out(L, 0, te_end(L, y, e_cast(c, scales->dtype, v)));
}
