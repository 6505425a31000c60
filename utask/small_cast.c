/* small_cast.c: converts from and to small types (base.h) by ordinary expressions.
 * The result is exact on every target and follows the tables of ONNX's Cast (opset 28). Where these
 * leave a value open, NaN becomes -0 in a float type without NaN, and float8e8m0 takes the
 * magnitude of a negative value. */
#include <math.h>

#include "utask/utask.h"

/* ---- shorthands ------------------------------------------------------------------------------ */
static Expr *u32(Cx *c, uint32_t v) { return e_ci(c, DT_U32, v); }
static Expr *shl(Cx *c, Expr *x, int n) { return n ? e_bin(c, E_SHL, x, u32(c, (uint32_t)n)) : x; }
static Expr *shr(Cx *c, Expr *x, int n) { return n ? e_bin(c, E_SHR, x, u32(c, (uint32_t)n)) : x; }
static Expr *bits_of(Cx *c, float f) {
    uint32_t u;
    memcpy(&u, &f, 4);
    return u32(c, u);
}
/* a > b */
static Expr *above(Cx *c, Expr *a, Expr *b) { return e_lt(c, b, a); }

/* cond ? a : b with both computed; unlike SELECT, compilers do not turn it into a branch. */
static Expr *pick(Cx *c, Expr *cond, Expr *a, Expr *b) {
    Expr *mask = e_sub(c, u32(c, 0), e_cast(c, DT_U32, cond));
    return e_bin(c, E_XOR, e_and(c, e_bin(c, E_XOR, a, b), mask), b);
}

/* The code as a number, and back. */
static Expr *code_of(Cx *c, Expr *e) { return e_cast(c, DT_U32, e_bitcast(c, DT_U8, e)); }
static Expr *as_code(Cx *c, DType t, Expr *code) { return e_bitcast(c, t, e_cast(c, DT_U8, code)); }

/* ---- to larger types ------------------------------------------------------------------------- */
static Expr *decode_int(Cx *c, const Small *s, bool is_signed, Expr *code) {
    code = e_cast(c, DT_I32, e_and(c, code, u32(c, small_mask(s))));
    if (!is_signed) return code;
    Expr *sign = e_ci(c, DT_I32, 1 << (s->bits - 1));
    return e_sub(c, e_bin(c, E_XOR, code, sign), sign);
}

/* Powers of two from 2^-127 on, which is a subnormal float32. */
static Expr *decode_scale(Cx *c, Expr *code) {
    Expr *bits = e_sel(c, e_eq(c, code, u32(c, 0)), bits_of(c, 0x1p-127f), shl(c, code, 23));
    bits = e_sel(c, e_eq(c, code, u32(c, 255)), bits_of(c, NAN), bits);
    return e_bitcast(c, DT_F32, bits);
}

static Expr *decode_float(Cx *c, const Small *s, Expr *code) {
    const int m = s->mantissa, width = s->bits - 1;
    Expr *mag = e_and(c, code, u32(c, (1u << width) - 1));
    Expr *sign = shl(c, e_and(c, code, u32(c, 1u << width)), 31 - width);
    Expr *bits = e_add(c, shl(c, mag, 23 - m), u32(c, (uint32_t)(127 - s->bias) << 23));
    Expr *tiny = e_mul(c, e_cast(c, DT_F32, e_cast(c, DT_I32, mag)),
                       e_num(c, DT_F32, ldexp(1, 1 - s->bias - m)));
    bits = pick(c, e_lt(c, mag, u32(c, 1u << m)), e_bitcast(c, DT_U32, tiny), bits);
    if (s->inf >= 0)
        bits = e_sel(c, e_eq(c, mag, u32(c, (uint32_t)s->inf)), bits_of(c, INFINITY), bits);
    if (s->nan >= 0) {
        Expr *nan = s->fnuz ? e_eq(c, code, u32(c, (uint32_t)s->nan))
                            : above(c, mag, u32(c, s->inf < 0 ? s->top : (uint32_t)s->inf));
        bits = e_sel(c, nan, bits_of(c, NAN), bits);
    }
    return e_bitcast(c, DT_F32, e_or(c, bits, sign));
}

Expr *small_decode(Cx *c, Expr *e) {
    DType t = e->dtype;
    const Small *s = dtype_small(t);
    Expr *code = code_of(c, e);
    if (!s->is_float) return decode_int(c, s, dtype_is_signed(t), code);
    return t == DT_F8E8M0 ? decode_scale(c, code) : decode_float(c, s, code);
}

/* ---- to small types -------------------------------------------------------------------------- */
/* x in float32, rounded to odd so that rounding it again gives the same as rounding x directly:
 * towards zero, with the last bit set if anything was lost. Infinity from 2^128 on. */
static Expr *to_f32(Cx *c, Expr *x) {
    Expr *f = e_cast(c, DT_F32, x);
    if (x->dtype != DT_F64) return f;
    Expr *back = e_cast(c, DT_F64, f), *size = e_un(c, E_ABS, x);
    Expr *bits = e_bitcast(c, DT_U32, f), *away = above(c, e_un(c, E_ABS, back), size);
    Expr *odd = e_or(c, e_sub(c, bits, e_cast(c, DT_U32, away)), u32(c, 1));
    Expr *exact = e_or(c, e_eq(c, back, x), e_le(c, e_num(c, DT_F64, 0x1p128), size));
    return e_bitcast(c, DT_F32, e_sel(c, exact, bits, odd));
}

static Expr *encode_scale(Cx *c, Expr *x, SmallCast how) {
    const uint32_t least = 0x400000, half = 0x400000; /* 2^-127; half of a normal mantissa */
    Expr *mag = e_and(c, x, u32(c, 0x7fffffff));
    Expr *exponent = shr(c, mag, 23), *frac = e_and(c, mag, u32(c, 0x7fffff));
    Expr *normal = above(c, exponent, u32(c, 0)), *up = u32(c, 0);
    if (how.round == ROUND_UP) up = above(c, frac, e_sel(c, normal, u32(c, 0), u32(c, least)));
    if (how.round == ROUND_NEAREST)
        up = e_le(c, e_sel(c, normal, u32(c, half), u32(c, least + least / 2)), frac);
    Expr *code = e_add(c, exponent, e_cast(c, DT_U32, up));
    if (how.saturate)
        code = e_sel(c, above(c, code, u32(c, 254)), u32(c, 254), code);
    else
        code = e_sel(c, e_lt(c, mag, u32(c, least)), u32(c, 255), code);
    Expr *nan = e_sel(c, above(c, mag, bits_of(c, INFINITY)), u32(c, 255), u32(c, 0));
    return e_or(c, code, nan);
}

static Expr *encode_float(Cx *c, const Small *s, Expr *x, SmallCast how) {
    const int m = s->mantissa, drop = 23 - m, width = s->bits - 1;
    const float least = ldexpf(1, 1 - s->bias);     /* the least normal number */
    const float grid = ldexpf(1, 24 - s->bias - m); /* subnormals are multiples of its ulp */
    const bool saturate = how.saturate || s->nan < 0;
    Expr *sign = shl(c, shr(c, x, 31), width), *all = e_and(c, x, u32(c, 0x7fffffff)), *mag = all;
    Expr *is_nan = above(c, all, bits_of(c, INFINITY));
    if (saturate) {
        const uint32_t top = ((uint32_t)s->top << drop) + ((uint32_t)(127 - s->bias) << 23);
        mag = e_sel(c, above(c, all, u32(c, top)), u32(c, top), mag);
    }
    mag = e_sel(c, is_nan, u32(c, 0), mag);
    /* Half to even: in the upper bits of the pattern; by an addition where numbers are evenly
     * spaced. */
    Expr *even = e_and(c, shr(c, mag, drop), u32(c, 1));
    Expr *r = e_add(c, e_add(c, mag, u32(c, (1u << (drop - 1)) - 1)), even);
    Expr *code = e_sub(c, shr(c, r, drop), u32(c, (uint32_t)(127 - s->bias) << m));
    Expr *sum = e_add(c, e_bitcast(c, DT_F32, mag), e_num(c, DT_F32, grid));
    Expr *tiny = e_sub(c, e_bitcast(c, DT_U32, sum), bits_of(c, grid));
    code = pick(c, e_lt(c, mag, bits_of(c, least)), tiny, code);
    if (!saturate) {
        uint32_t over = (uint32_t)(s->inf >= 0 ? s->inf : s->nan);
        code = e_sel(c, above(c, code, u32(c, s->top)), u32(c, over), code);
    }
    if (s->fnuz) sign = e_sel(c, e_eq(c, code, u32(c, 0)), u32(c, 0), sign);
    uint32_t nan = s->nan >= 0 ? (uint32_t)s->nan : 1u << width;
    return e_or(c, e_or(c, code, sign), e_sel(c, is_nan, u32(c, nan), u32(c, 0)));
}

Expr *small_encode(Cx *c, DType t, Expr *x, SmallCast how) {
    const Small *s = dtype_small(t);
    if ((DType)x->dtype == t) return x;
    if (dtype_small(x->dtype)) x = small_decode(c, x);
    if (!s->is_float) {
        Expr *code = e_and(c, e_cast(c, DT_I32, x), e_ci(c, DT_I32, small_mask(s)));
        return as_code(c, t, code);
    }
    Expr *bits = e_bitcast(c, DT_U32, to_f32(c, x));
    Expr *code = t == DT_F8E8M0 ? encode_scale(c, bits, how) : encode_float(c, s, bits, how);
    return as_code(c, t, code);
}
