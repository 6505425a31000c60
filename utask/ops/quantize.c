/* quantize.c: linear quantization: per tensor, per axis and blocked. */
#include "utask/ops/elementwise.h"
#include "utask/ops/ops.h"

typedef struct Grain {
    enum { PER_TENSOR, PER_AXIS, BLOCKED } mode;
    int axis;
    int64_t block;
} Grain;

/* How the elements of scale or zero point `s` belong to those of x. */
static Grain grain(Lower *L, Tensor *x, Tensor *s, const char *what) {
    Cx *c = L->cx;
    Grain g = {PER_TENSOR, 0, attr_i(L, "block_size", 0)};
    if (g.block < 0 || g.block > INT32_MAX)
        fail(L, "block_size must be positive and below 2^31, not %lld", (long long)g.block);
    if (s->rank == 0 || (s->rank == 1 && e_is_ival(s->dim[0], 1) && g.block == 0)) return g;
    g.axis = norm_axis(L, attr_i(L, "axis", 1), x->rank);
    if (g.block == 0) {
        g.mode = PER_AXIS;
        if (s->rank != 1) fail(L, "%s of rank %d without block_size", what, s->rank);
        check_eq(L, s->dim[0], x->dim[g.axis], "%s must have one element for each index of axis %d",
                 what, g.axis);
        return g;
    }
    g.mode = BLOCKED;
    if (s->rank != x->rank)
        fail(L, "%s of rank %d for data of rank %d in blocks", what, s->rank, x->rank);
    for (int i = 0; i < x->rank; i++) {
        Expr *d = x->dim[i];
        if (i == g.axis) d = e_bin(c, E_FDIV, e_addi(c, d, g.block - 1), e_int(c, g.block));
        check_eq(L, s->dim[i], d, "%s has the wrong size on axis %d", what, i);
    }
    return g;
}

/* Element of s for element idx of x. */
static Expr *grain_ld(Lower *L, Grain g, Tensor *s, Expr **idx) {
    Expr *at[MAX_RANK];
    switch (g.mode) {
    case PER_TENSOR:
        for (int i = 0; i < s->rank; i++) at[i] = e_int(L->cx, 0);
        break;
    case PER_AXIS: at[0] = idx[g.axis]; break;
    case BLOCKED:
        for (int i = 0; i < s->rank; i++) at[i] = idx[i];
        at[g.axis] = e_bin(L->cx, E_FDIV, idx[g.axis], e_int(L->cx, g.block));
        break;
    }
    return ld(L, s, at);
}

/* The zero point's grain; its shape must be the scale's. */
static Grain zero_grain(Lower *L, Tensor *x, Tensor *z, Grain scale) {
    Grain g = grain(L, x, z, "zero point");
    if (g.mode != scale.mode) fail(L, "scale and zero point must have the same shape");
    return g;
}

/* An optional type attribute; `dflt` when it is absent or 0. */
static DType type_attr(Lower *L, const char *name, DType dflt) {
    int64_t v = attr_i(L, name, 0);
    if (v == 0) return dflt;
    if (v < 0 || v > INT32_MAX || !dtype_supported((int)v))
        unsupported(L, "%s %s", name, v > 0 && v < 64 ? dtype_name((int)v) : "of unknown type");
    return (DType)v;
}

/* round(v) + z limited to the range of t, an 8- or 16-bit integer; v and z are of one float type.
 */
static Expr *saturate(Lower *L, DType t, Expr *v, Expr *z) {
    Cx *c = L->cx;
    DType w = (DType)v->dtype;
    int bits = 8 * (int)dtype_size(t);
    double lo = dtype_is_signed(t) ? -(double)(1 << (bits - 1)) : 0;
    double hi = lo + (double)((1 << bits) - 1);
    v = e_un(c, E_ROUND, v);
    if (z) v = e_add(c, v, z);
    return e_cast(c, t, e_min(c, e_max(c, v, e_num(c, w, lo)), e_num(c, w, hi)));
}

void lower_QuantizeLinear(Lower *L) {
    Cx *c = L->cx;
    Tensor *x = in_needed(L, 0), *s = in_needed(L, 1), *z = in(L, 2);
    DType t = type_attr(L, "output_dtype", z ? z->dtype : DT_U8);
    if (z && z->dtype != t) fail(L, "output_dtype is not the type of the zero point");
    if (!dtype_is_int(t) || dtype_size(t) > 2) unsupported(L, "quantization to %s", dtype_name(t));
    DType p = type_attr(L, "precision", s->dtype);
    if (!dtype_is_float(p)) p = DT_F32;
    Grain gs = grain(L, x, s, "scale"), gz = gs;
    if (z) gz = zero_grain(L, x, z, gs);

    Expr *v, *idx[MAX_RANK];
    Tensor *y = te_like(L, t, x, &v);
    for (int i = 0; i < x->rank; i++) idx[i] = ax(L, y, i);
    DType w = wide_type(p); /* holds quotient, zero point and sum exactly */
    Expr *q = e_div(c, e_cast(c, p, v), e_cast(c, p, grain_ld(L, gs, s, idx)));
    Expr *zero = z ? e_cast(c, w, grain_ld(L, gz, z, idx)) : NULL;
    out(L, 0, te_end(L, y, saturate(L, t, e_cast(c, w, q), zero)));
}

void lower_DequantizeLinear(Lower *L) {
    Cx *c = L->cx;
    Tensor *x = in_needed(L, 0), *s = in_needed(L, 1), *z = in(L, 2);
    DType t = type_attr(L, "output_dtype", s->dtype);
    if (!dtype_is_float(t)) fail(L, "output_dtype must be a float type, not %s", dtype_name(t));
    if (dtype_size(x->dtype) > 4 || x->dtype == DT_U32)
        fail(L, "data of type %s cannot be dequantized", dtype_name(x->dtype));
    Grain gs = grain(L, x, s, "scale"), gz = gs;
    if (z) gz = zero_grain(L, x, z, gs);

    Expr *v, *idx[MAX_RANK];
    Tensor *y = te_like(L, t, x, &v);
    for (int i = 0; i < x->rank; i++) idx[i] = ax(L, y, i);
    DType w = t == DT_F64 ? DT_F64 : DT_F32;
    v = e_cast(c, DT_I32, v);
    if (z) v = e_sub(c, v, e_cast(c, DT_I32, grain_ld(L, gz, z, idx)));
    Expr *scale = e_cast(c, w, grain_ld(L, gs, s, idx));
    out(L, 0, te_end(L, y, e_cast(c, t, e_mul(c, e_cast(c, w, v), scale))));
}

void lower_DynamicQuantizeLinear(Lower *L) {
    Cx *c = L->cx;
    Tensor *x = in_needed(L, 0);
    uint32_t all = (1u << x->rank) - 1;
    Tensor *mn = x->rank ? t_reduce(L, R_MIN, x, all, false) : x;
    Tensor *mx = x->rank ? t_reduce(L, R_MAX, x, all, false) : x;
    Expr *zero = e_num(c, DT_F32, 0);

    /* The range always holds zero; a range of nothing but zero has scale 1. */
    Tensor *st = te_begin(L, DT_F32, 0, NULL);
    Expr *lo = e_min(c, ld(L, mn, NULL), zero), *hi = e_max(c, ld(L, mx, NULL), zero);
    Expr *range = e_div(c, e_sub(c, hi, lo), e_num(c, DT_F32, 255));
    st = te_end(L, st, e_sel(c, e_eq(c, lo, hi), e_num(c, DT_F32, 1), range));

    Tensor *zt = te_begin(L, DT_U8, 0, NULL);
    lo = e_min(c, ld(L, mn, NULL), zero);
    Expr *z = e_sub(c, zero, e_div(c, lo, ld(L, st, NULL)));
    zt = te_end(L, zt, saturate(L, DT_U8, z, NULL));

    Expr *v;
    Tensor *y = te_like(L, DT_U8, x, &v);
    Expr *q = e_div(c, v, ld(L, st, NULL));
    out(L, 0, te_end(L, y, saturate(L, DT_U8, q, e_cast(c, DT_F32, ld(L, zt, NULL)))));
    out(L, 1, st);
    out(L, 2, zt);
}
