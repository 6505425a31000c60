/* matmul.c: matrix products. A product is a plain sum of products of two elements; scales, biases
 * and requantization are outside of the sum and become its epilogue. */
#include "utask/ops/matmul.h"
#include "utask/ops/nn.h"

static void matrix_inputs(Lower *L, Tensor *a, Tensor *b) {
    if (a->rank < 1 || b->rank < 1) fail(L, "a matrix product needs operands of rank 1 or more");
}

void lower_MatMul(Lower *L) {
    Tensor *a = in(L, 0), *b = in(L, 1);
    matrix_inputs(L, a, b);
    out(L, 0, t_matmul(L, a, b));
}

/* ---- Gemm ------------------------------------------------------------------------------------ */

Tensor *t_scaled(Lower *L, Tensor *t, double factor) {
    if (factor == 1) return t;
    DType w = dtype_is_float(t->dtype) ? t->dtype : DT_F64;
    Tensor *p = t_bin(L, E_MUL, t_cast(L, w, t), t_scalar(L, w, factor));
    return t_cast(L, t->dtype, p);
}

Tensor *t_swap_last(Lower *L, Tensor *a) {
    int perm[MAX_RANK], r = a->rank;
    if (r < 2) return a;
    for (int i = 0; i < r; i++) perm[i] = i;
    perm[r - 2] = r - 1;
    perm[r - 1] = r - 2;
    return t_transpose(L, a, perm);
}

Tensor *t_gemm(Lower *L, Tensor *a, Tensor *b, Tensor *bias) {
    Cx *c = L->cx;
    int ta = attr_i(L, "transA", 0) != 0, tb = attr_i(L, "transB", 0) != 0;
    double alpha = attr_f(L, "alpha", 1), beta = attr_f(L, "beta", 1);
    if (a->rank != 2 || b->rank != 2)
        fail(L, "A and B must have rank 2, not %d and %d", a->rank, b->rank);
    check_eq(L, a->dim[!ta], b->dim[tb], "the inner sizes of A (%s) and B (%s) differ",
             in_text(L, 0), in_text(L, 1));
    DType t = a->dtype, w = wide_float(t);
    Expr *dim[2] = {a->dim[ta], b->dim[!tb]};
    Tensor *y = te_begin(L, w, 2, dim);
    Axis *k = axis_new(c, a->dim[!ta]);
    Expr *ia[2], *ib[2];
    ia[ta] = ax(L, y, 0);
    ib[!tb] = ax(L, y, 1);
    ia[!ta] = ib[tb] = e_axis(c, k);
    Expr *product = e_mul(c, e_cast(c, w, ld(L, a, ia)), e_cast(c, w, ld(L, b, ib)));
    y = te_end(L, y, e_reduce(c, R_SUM, 1, &k, product));
    bool add = bias && beta != 0;
    y = t_scaled(L, y, alpha);
    if (add) {
        broadcasts_to(L, bias, y, "C");
        Tensor *extra = t_scaled(L, t_cast(L, w, bias), beta), *sum = te_begin(L, w, 2, y->dim);
        Expr *at[2] = {ax(L, sum, 0), ax(L, sum, 1)};
        y = te_end(L, sum, e_add(c, ld(L, y, at), ld_bcast(L, extra, 2, at, sum->dim)));
    }
    return t_cast(L, t, y);
}

void lower_Gemm(Lower *L) { out(L, 0, t_gemm(L, in(L, 0), in(L, 1), in(L, 2))); }

/* ---- quantized products ---------------------------------------------------------------------- */

/* A scale or zero point per tensor or per row, in a shape that broadcasts to rank `rank`. */
static Tensor *per_row(Lower *L, Tensor *p, int rank) {
    return p->rank == 1 && rank >= 2 ? t_unsqueeze(L, p, 1) : p;
}

static void byte_type(Lower *L, const Tensor *t) {
    if (t->dtype != DT_I8 && t->dtype != DT_U8)
        fail(L, "a quantized matrix must be int8 or uint8, not %s", dtype_name(t->dtype));
}

Tensor *integer_product(Lower *L, Tensor *a, Tensor *azero, Tensor *b, Tensor *bzero) {
    matrix_inputs(L, a, b);
    byte_type(L, a);
    byte_type(L, b);
    if (azero) azero = per_row(L, azero, a->rank);
    if (azero) broadcasts_to(L, azero, a, "a zero point");
    if (bzero) broadcasts_to(L, bzero, b, "a zero point");
    return t_matmul_bytes(L, a, azero, b, bzero);
}

void lower_MatMulInteger(Lower *L) {
    out(L, 0, integer_product(L, in(L, 0), in(L, 2), in(L, 1), in(L, 3)));
}

static bool is_float8(const Tensor *t) { return dtype_small(t->dtype) != NULL; }

/* The float32 product of matrices of which at least one is float8. */
static Tensor *float8_product(Lower *L, Tensor *a, Tensor *azero, Tensor *b, Tensor *bzero) {
    matrix_inputs(L, a, b);
    azero = t_cast(L, DT_F32, per_row(L, azero, a->rank));
    bzero = t_cast(L, DT_F32, bzero);
    return t_matmul(L, t_bin(L, E_SUB, t_cast(L, DT_F32, a), azero),
                    t_bin(L, E_SUB, t_cast(L, DT_F32, b), bzero));
}

/* y = saturate(round(product * (a_scale * b_scale / y_scale)) + y_zero_point), float8 unrounded */
void lower_QLinearMatMul(Lower *L) {
    Tensor *a = in(L, 0), *b = in(L, 3), *yzero = in(L, 7);
    bool float8 = is_float8(a) || is_float8(b);
    Tensor *p = float8 ? float8_product(L, a, in(L, 2), b, in(L, 5))
                       : integer_product(L, a, in(L, 2), b, in(L, 5));
    if (!is_float8(yzero)) byte_type(L, yzero);
    bool is_signed = yzero->dtype == DT_I8;
    double lo = is_signed ? -128 : 0, hi = is_signed ? 127 : 255;

    Tensor *as = per_row(L, t_cast(L, DT_F32, in(L, 1)), a->rank);
    Tensor *bs = t_cast(L, DT_F32, in(L, 4));
    Tensor *ys = per_row(L, t_cast(L, DT_F32, in(L, 6)), p->rank);
    Tensor *yz = per_row(L, t_cast(L, DT_F32, yzero), p->rank);
    Tensor *scale = t_bin(L, E_DIV, t_bin(L, E_MUL, as, bs), ys);
    Tensor *q = t_bin(L, E_MUL, t_cast(L, DT_F32, p), scale);
    if (is_float8(yzero)) {
        out(L, 0, t_cast(L, yzero->dtype, t_bin(L, E_ADD, q, yz)));
        return;
    }
    q = t_bin(L, E_ADD, t_un(L, E_ROUND, q), yz);
    q = t_bin(L, E_MAX, q, t_scalar(L, DT_F32, lo));
    q = t_bin(L, E_MIN, q, t_scalar(L, DT_F32, hi));
    out(L, 0, t_cast(L, yzero->dtype, q));
}
