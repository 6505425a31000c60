/* math.c: arithmetic, comparison, logic and bits, element by element. */
#include "utask/ops/elementwise.h"
#include "utask/ops/lowerings.h"

#include <float.h>
#include <math.h>

/* ---- unary ----------------------------------------------------------------------------------- */
#define UNARY(name, op)                                                                            \
    void lower_##name(Lower *L) { out(L, 0, t_un(L, op, in_needed(L, 0))); }
UNARY(Neg, E_NEG)
UNARY(Sign, E_SIGN)
UNARY(Sqrt, E_SQRT)
UNARY(Exp, E_EXP)
UNARY(Log, E_LOG)
UNARY(Sin, E_SIN)
UNARY(Cos, E_COS)
UNARY(Tan, E_TAN)
UNARY(Asin, E_ASIN)
UNARY(Acos, E_ACOS)
UNARY(Atan, E_ATAN)
UNARY(Sinh, E_SINH)
UNARY(Cosh, E_COSH)
UNARY(Tanh, E_TANH)
UNARY(Asinh, E_ASINH)
UNARY(Acosh, E_ACOSH)
UNARY(Atanh, E_ATANH)
UNARY(Erf, E_ERF)
UNARY(Sigmoid, E_SIGMOID)
UNARY(Floor, E_FLOOR)
UNARY(Ceil, E_CEIL)
UNARY(Round, E_ROUND)
UNARY(Not, E_NOT)
UNARY(BitwiseNot, E_BITNOT)

void lower_Abs(Lower *L) {
    Tensor *x = in_needed(L, 0);
    out(L, 0, dtype_is_signed(x->dtype) ? t_un(L, E_ABS, x) : x);
}

void lower_Reciprocal(Lower *L) {
    Expr *v;
    Tensor *x = in_needed(L, 0), *y = te_like(L, x->dtype, x, &v);
    out(L, 0, te_end(L, y, e_div(L->cx, e_num(L->cx, x->dtype, 1), v)));
}

void lower_IsNaN(Lower *L) {
    Expr *v;
    Tensor *x = in_needed(L, 0), *y = te_like(L, DT_BOOL, x, &v);
    if (dtype_small(x->dtype)) v = small_decode(L->cx, v);
    out(L, 0, te_end(L, y, e_un(L->cx, E_ISNAN, v)));
}

void lower_IsInf(Lower *L) {
    bool neg = attr_i(L, "detect_negative", 1) != 0, pos = attr_i(L, "detect_positive", 1) != 0;
    Cx *c = L->cx;
    Expr *v, *r;
    Tensor *x = in_needed(L, 0), *y = te_like(L, DT_BOOL, x, &v);
    if (dtype_small(x->dtype)) v = small_decode(c, v);
    DType t = v->dtype;
    if (neg && pos)
        r = e_eq(c, e_un(c, E_ABS, v), e_num(c, t, INFINITY));
    else if (neg || pos)
        r = e_eq(c, v, e_num(c, t, pos ? INFINITY : -INFINITY));
    else
        r = e_bool(c, false);
    out(L, 0, te_end(L, y, r));
}

void lower_Identity(Lower *L) { out_val(L, 0, in_val(L, 0)); }

/* ---- binary ---------------------------------------------------------------------------------- */
#define BINARY(name, op)                                                                           \
    void lower_##name(Lower *L) { out(L, 0, t_bin(L, op, in_needed(L, 0), in_needed(L, 1))); }
BINARY(Add, E_ADD)
BINARY(Sub, E_SUB)
BINARY(Mul, E_MUL)
BINARY(And, E_AND)
BINARY(Or, E_OR)
BINARY(Xor, E_XOR)
BINARY(BitwiseAnd, E_AND)
BINARY(BitwiseOr, E_OR)
BINARY(BitwiseXor, E_XOR)
BINARY(Equal, E_EQ)
BINARY(Less, E_LT)
BINARY(LessOrEqual, E_LE)

void lower_Greater(Lower *L) { out(L, 0, t_bin(L, E_LT, in_needed(L, 1), in_needed(L, 0))); }
void lower_GreaterOrEqual(Lower *L) { out(L, 0, t_bin(L, E_LE, in_needed(L, 1), in_needed(L, 0))); }

/* A constant without a zero element: no run-time check is needed to divide by it. */
static bool never_zero(const Tensor *t) {
    if (t->kind != TK_CONST) return false;
    for (int64_t i = 0; i < t->data->count; i++)
        if (elem_get_i(t->dtype, t->data->data, i) == 0) return false;
    return true;
}

/* op(a, b) of integers; a fault where b is zero. */
static Tensor *int_divide(Lower *L, int op, Tensor *a, Tensor *b) {
    if (never_zero(b)) return t_bin(L, op, a, b);
    Cx *c = L->cx;
    Expr *dim[MAX_RANK], *idx[MAX_RANK];
    int rank = bcast_dims(L, a->rank, a->dim, b->rank, b->dim, dim);
    Tensor *y = te_indexed(L, a->dtype, rank, dim, idx);
    Expr *n = ld_bcast(L, a, rank, idx, dim), *d = ld_bcast(L, b, rank, idx, dim);
    Expr *ok = e_nonzero(c, d), *q = e_bin(c, op, n, d);
    return te_end(
        L, y,
        guarded(L, ok, q, e_ci(c, a->dtype, 0), "integer division by zero (input 1 of the node)"));
}

void lower_Div(Lower *L) {
    Tensor *a = in_needed(L, 0), *b = in_needed(L, 1);
    out(L, 0, dtype_is_float(a->dtype) ? t_bin(L, E_DIV, a, b) : int_divide(L, E_DIV, a, b));
}

void lower_Mod(Lower *L) {
    Tensor *a = in_needed(L, 0), *b = in_needed(L, 1);
    bool fmod = attr_i(L, "fmod", 0) != 0, flt = dtype_is_float(a->dtype);
    int op = fmod ? E_FMOD : E_MOD;
    out(L, 0, flt ? t_bin(L, op, a, b) : int_divide(L, op, a, b));
}

void lower_Pow(Lower *L) {
    Tensor *x = in_needed(L, 0), *y = in_needed(L, 1);
    DType t = x->dtype;
    if (y->kind == TK_CONST && y->data->count == 1 && y->rank <= x->rank) {
        double e = elem_get_f(y->dtype, y->data->data, 0);
        if (!dtype_is_float(y->dtype)) e = (double)elem_get_i(y->dtype, y->data->data, 0);
        if (e == 2 || (e == 3 && wide_float(t) == t)) {
            Tensor *square = t_bin(L, E_MUL, x, x);
            out(L, 0, e == 2 ? square : t_bin(L, E_MUL, square, x));
            return;
        }
    }
    /* Integers go through float64, and the result is truncated, as in ONNX Runtime. */
    DType w = !dtype_is_float(t) || t == DT_F64 || y->dtype == DT_F64 ? DT_F64 : DT_F32;
    out(L, 0, t_cast(L, t, t_bin(L, E_POW, t_cast(L, w, x), t_cast(L, w, y))));
}

/* A shift by the type's width or more, or by a negative amount, leaves only the sign (opset 28). */
void lower_BitShift(Lower *L) {
    if (!attr_has(L, "direction")) fail(L, "attribute 'direction' is missing");
    bool left = strcmp(attr_s(L, "direction", ""), "LEFT") == 0;
    out(L, 0, t_bin(L, left ? E_SHL : E_SHR, in_needed(L, 0), in_needed(L, 1)));
}

/* ---- variadic and ternary -------------------------------------------------------------------- */
static Tensor *chain(Lower *L, int op, DType w) {
    Tensor *r = t_cast(L, w, in_needed(L, 0));
    for (int i = 1; i < L->node->nin; i++) r = t_bin(L, op, r, t_cast(L, w, in_needed(L, i)));
    return r;
}

void lower_Max(Lower *L) { out(L, 0, chain(L, E_MAX, in_needed(L, 0)->dtype)); }
void lower_Min(Lower *L) { out(L, 0, chain(L, E_MIN, in_needed(L, 0)->dtype)); }

void lower_Sum(Lower *L) {
    DType t = in_needed(L, 0)->dtype;
    out(L, 0, t_cast(L, t, chain(L, E_ADD, wide_float(t))));
}

void lower_Mean(Lower *L) {
    DType t = in_needed(L, 0)->dtype, w = wide_float(t);
    Tensor *n = t_scalar(L, w, L->node->nin);
    out(L, 0, t_cast(L, t, t_bin(L, E_DIV, chain(L, E_ADD, w), n)));
}

Expr *only_element(Lower *L, Tensor *t, const char *what) {
    Expr *idx[MAX_RANK];
    for (int i = 0; i < t->rank; i++) {
        check_eq(L, t->dim[i], e_int(L->cx, 1), "%s must be one number", what);
        idx[i] = e_int(L->cx, 0);
    }
    return ld(L, t, idx);
}

Expr *one_or_each(Lower *L, Tensor *t, Expr *i, Expr *n, const char *what) {
    Cx *c = L->cx;
    Expr *zero = e_int(c, 0), *one = e_int(c, 1);
    if (t->rank > 1) fail(L, "%s has rank %d, not 0 or 1", what, t->rank);
    if (t->rank == 0 || e_is_ival(t->dim[0], 1)) return ld(L, t, &zero);
    Expr *each = e_eq(c, t->dim[0], n), *single = e_eq(c, t->dim[0], one);
    check(L, e_or(c, each, single), "%s must be one number, or one for each channel", what);
    Expr *at = e_is_ival(each, 1) || e_is_ival(single, 0) ? i : e_sel(c, single, zero, i);
    return ld(L, t, &at);
}

/* Absent bounds are the lowest and highest finite value, so that infinities become finite. */
void lower_Clip(Lower *L) {
    Tensor *x = in_needed(L, 0), *lo = in(L, 1), *hi = in(L, 2);
    Cx *c = L->cx;
    DType t = x->dtype;
    double top = t == DT_F16 ? 65504 : t == DT_BF16 ? 0x1.fep127 : t == DT_F32 ? FLT_MAX : DBL_MAX;
    bool flt = dtype_is_float(t);
    Expr *v;
    Tensor *y = te_like(L, t, x, &v);
    if (lo || flt) v = e_max(c, v, lo ? only_element(L, lo, "min") : e_num(c, t, -top));
    if (hi || flt) v = e_min(c, v, hi ? only_element(L, hi, "max") : e_num(c, t, top));
    out(L, 0, te_end(L, y, v));
}

void lower_Where(Lower *L) {
    out(L, 0, t_where(L, in_needed(L, 0), in_needed(L, 1), in_needed(L, 2)));
}
