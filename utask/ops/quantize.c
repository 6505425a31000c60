/* quantize.c: linear quantization: per tensor, per axis and blocked. */
#include "utask/ops/quantize.h"
#include "utask/ops/elementwise.h"
#include "utask/ops/lowerings.h"

typedef struct Grain {
    enum { PER_TENSOR, PER_AXIS, BLOCKED } mode;
    int axis;
    int64_t block;
    Expr *extent; /* PER_AXIS: of the axis */
} Grain;

/* How the elements of a scale or zero point `s` map to those of x. */
static Grain grain(Lower *L, Tensor *x, Tensor *s, const char *what) {
    Cx *c = L->cx;
    Grain g = {PER_TENSOR, 0, attr_i(L, "block_size", 0), NULL};
    if (g.block < 0 || g.block > INT32_MAX)
        fail(L, "block_size must be positive and below 2^31, not %lld", (long long)g.block);
    if (s->rank == 0 || (s->rank == 1 && e_is_ival(s->dim[0], 1) && g.block == 0)) return g;
    int64_t axis = attr_i(L, "axis", 1), length;
    if (g.block == 0 && s->rank == 1 && !e_is_int(s->dim[0], &length) && axis >= x->rank) {
        only_element(L, s, what);
        return g;
    }
    g.axis = norm_axis(L, axis, x->rank);
    if (g.block == 0) {
        g.mode = PER_AXIS;
        g.extent = x->dim[g.axis];
        if (s->rank != 1) fail(L, "%s of rank %d without block_size", what, s->rank);
        one_or_each(L, s, e_int(c, 0), g.extent, what);
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
    if (g.mode == PER_AXIS)
        return one_or_each(L, s, idx[g.axis], g.extent, "a scale or zero point");
    for (int i = 0; i < s->rank; i++) at[i] = g.mode == BLOCKED ? idx[i] : e_int(L->cx, 0);
    if (g.mode == BLOCKED) at[g.axis] = e_bin(L->cx, E_FDIV, at[g.axis], e_int(L->cx, g.block));
    return ld(L, s, at);
}

/* The zero point's grain; its shape must be that of the scale s, whose grain is `scale`. */
static Grain zero_grain(Lower *L, Tensor *x, Tensor *z, Tensor *s, Grain scale) {
    Grain g = grain(L, x, z, "zero point");
    if (g.mode == scale.mode) return g;
    int64_t length; /* a length of 1 may not be known as such */
    Tensor *longer = g.mode == PER_AXIS ? z : s;
    if (g.mode == BLOCKED || scale.mode == BLOCKED || e_is_int(longer->dim[0], &length))
        fail(L, "scale and zero point must have the same shape");
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

Expr *quantized(Lower *L, DType t, Expr *v, Expr *z) {
    Cx *c = L->cx;
    DType w = (DType)v->dtype;
    int bits = dtype_small(t) ? dtype_small(t)->bits : 8 * (int)dtype_size(t);
    double lo = dtype_is_signed(t) ? -(double)(1 << (bits - 1)) : 0;
    double hi = lo + (double)((1 << bits) - 1);
    v = e_un(c, E_ROUND, v);
    if (z) v = e_add(c, v, z);
    return e_cast(c, t, e_min(c, e_max(c, v, e_num(c, w, lo)), e_num(c, w, hi)));
}

static bool is_small_float(DType t) { return dtype_small(t) && dtype_small(t)->is_float; }

Expr *requantized(Lower *L, DType t, Expr *v, Quant q) {
    return quantized(L, t, e_add(L->cx, e_div(L->cx, v, q.scale), q.zero), NULL);
}

Quant quant_in(Lower *L, int scale, int zero) {
    Cx *c = L->cx;
    Tensor *z = in(L, zero);
    Quant q = {e_cast(c, DT_F32, only_element(L, in_needed(L, scale), "a scale")),
               e_num(c, DT_F32, 0)};
    if (z) q.zero = e_cast(c, DT_F32, only_element(L, z, "a zero point"));
    return q;
}

Expr *dequantized(Lower *L, Quant q, Expr *x) {
    Cx *c = L->cx;
    return e_mul(c, e_sub(c, e_cast(c, DT_F32, x), q.zero), q.scale);
}

Tensor *t_dequantize(Lower *L, Tensor *x, Quant q) {
    Expr *v;
    Tensor *y = te_like(L, DT_F32, x, &v);
    return te_end(L, y, dequantized(L, q, v));
}

Tensor *t_quantize(Lower *L, DType t, Tensor *x, Quant q) {
    Expr *v;
    Tensor *y = te_like(L, t, x, &v);
    return te_end(L, y, quantized(L, t, e_div(L->cx, v, q.scale), q.zero));
}

Tensor *byte_in(Lower *L, int i) {
    Tensor *t = in_needed(L, i);
    if (t->dtype != DT_I8 && t->dtype != DT_U8)
        fail(L, "input %d must be int8 or uint8, not %s", i, dtype_name(t->dtype));
    return t;
}

void lower_QuantizeLinear(Lower *L) {
    Cx *c = L->cx;
    Tensor *x = in_needed(L, 0), *s = in_needed(L, 1), *z = in(L, 2);
    DType t = type_attr(L, "output_dtype", z ? z->dtype : DT_U8);
    if (z && z->dtype != t) fail(L, "output_dtype is not the type of the zero point");
    if (dtype_small(t) ? t == DT_F8E8M0 : !dtype_is_int(t) || dtype_size(t) > 2)
        unsupported(L, "quantization to %s", dtype_name(t));
    DType p = type_attr(L, "precision", s->dtype);
    if (!dtype_is_float(p)) p = DT_F32;
    Grain gs = grain(L, x, s, "scale"), gz = gs;
    if (z) gz = zero_grain(L, x, z, s, gs);

    Expr *v, *idx[MAX_RANK];
    Tensor *y = te_like(L, t, x, &v);
    all_axes(L, y, idx);
    DType w = wide_float(p); /* holds quotient, zero point and sum exactly */
    Expr *q = e_div(c, e_cast(c, p, v), e_cast(c, p, grain_ld(L, gs, s, idx)));
    Expr *zero = z ? e_cast(c, w, grain_ld(L, gz, z, idx)) : NULL;
    q = e_cast(c, w, q);
    if (is_small_float(t)) {
        if (zero) q = e_add(c, q, zero);
        q = small_encode(c, t, q, (SmallCast){.saturate = attr_i(L, "saturate", 1) != 0});
    } else
        q = quantized(L, t, q, zero);
    out(L, 0, te_end(L, y, q));
}

void lower_DequantizeLinear(Lower *L) {
    Cx *c = L->cx;
    Tensor *x = in_needed(L, 0), *s = in_needed(L, 1), *z = in(L, 2);
    DType t = type_attr(L, "output_dtype", s->dtype);
    if (!dtype_is_float(t)) fail(L, "output_dtype must be a float type, not %s", dtype_name(t));
    if (dtype_size(x->dtype) > 4 || x->dtype == DT_U32)
        fail(L, "data of type %s cannot be dequantized", dtype_name(x->dtype));
    Grain gs = grain(L, x, s, "scale"), gz = gs;
    if (z) gz = zero_grain(L, x, z, s, gs);

    Expr *v, *idx[MAX_RANK];
    Tensor *y = te_like(L, t, x, &v);
    all_axes(L, y, idx);
    DType w = t == DT_F64 ? DT_F64 : DT_F32;
    DType diff = is_small_float(x->dtype) ? DT_F32 : DT_I32;
    v = e_cast(c, diff, v);
    if (z) v = e_sub(c, v, e_cast(c, diff, grain_ld(L, gz, z, idx)));
    Expr *scale = e_cast(c, w, grain_ld(L, gs, s, idx));
    out(L, 0, te_end(L, y, e_cast(c, t, e_mul(c, e_cast(c, w, v), scale))));
}

Tensor *t_dynamic_quantize(Lower *L, Tensor *x, bool rows, Tensor **scale, Tensor **zero) {
    Cx *c = L->cx;
    uint32_t axes = ((1u << x->rank) - 1) & ~(uint32_t)rows;
    Tensor *mn = axes ? t_reduce(L, R_MIN, x, axes, false) : x;
    Tensor *mx = axes ? t_reduce(L, R_MAX, x, axes, false) : x;
    Expr *nought = e_num(c, DT_F32, 0), *low, *high, *step, *row = NULL;

    /* The range always includes zero; a range of only zero has scale 1. */
    Tensor *st = te_like(L, DT_F32, mn, &low);
    if (rows) row = ax(L, st, 0);
    high = e_max(c, ld(L, mx, &row), nought);
    low = e_min(c, low, nought);
    Expr *range = e_div(c, e_sub(c, high, low), e_num(c, DT_F32, 255));
    st = te_end(L, st, e_sel(c, e_eq(c, low, high), e_num(c, DT_F32, 1), range));

    Tensor *zt = te_like(L, DT_U8, st, &step);
    if (rows) row = ax(L, zt, 0);
    low = e_min(c, ld(L, mn, &row), nought);
    zt = te_end(L, zt, quantized(L, DT_U8, e_sub(c, nought, e_div(c, low, step)), NULL));

    *scale = st;
    *zero = zt;
    Expr *v;
    Tensor *y = te_like(L, DT_U8, x, &v);
    if (rows) row = ax(L, y, 0);
    Expr *z = e_cast(c, DT_F32, ld(L, zt, &row));
    return te_end(L, y, quantized(L, DT_U8, e_div(c, v, ld(L, st, &row)), z));
}

void lower_DynamicQuantizeLinear(Lower *L) {
    Tensor *scale, *zero;
    out(L, 0, t_dynamic_quantize(L, in_needed(L, 0), false, &scale, &zero));
    out(L, 1, scale);
    out(L, 2, zero);
}
