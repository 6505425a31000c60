/* dtype.c: element types: names, sizes, conversions. */
#include "base/base.h"
#include <math.h>

static const struct {
    const char *name;
    uint8_t size;  /* 0: not supported */
    uint8_t flags; /* 1 float, 2 integer, 4 signed */
} types[] = {
    [DT_NONE] = {"undefined", 0, 0},
    [DT_F32] = {"float32", 4, 5},
    [DT_U8] = {"uint8", 1, 2},
    [DT_I8] = {"int8", 1, 6},
    [DT_U16] = {"uint16", 2, 2},
    [DT_I16] = {"int16", 2, 6},
    [DT_I32] = {"int32", 4, 6},
    [DT_I64] = {"int64", 8, 6},
    [8] = {"string", 0, 0},
    [DT_BOOL] = {"bool", 1, 0},
    [DT_F16] = {"float16", 2, 5},
    [DT_F64] = {"float64", 8, 5},
    [DT_U32] = {"uint32", 4, 2},
    [DT_U64] = {"uint64", 8, 2},
    [14] = {"complex64", 0, 0},
    [15] = {"complex128", 0, 0},
    [DT_BF16] = {"bfloat16", 2, 5},
    [DT_F8E4M3FN] = {"float8e4m3fn", 1, 4},
    [DT_F8E4M3FNUZ] = {"float8e4m3fnuz", 1, 4},
    [DT_F8E5M2] = {"float8e5m2", 1, 4},
    [DT_F8E5M2FNUZ] = {"float8e5m2fnuz", 1, 4},
    [DT_U4] = {"uint4", 1, 0},
    [DT_I4] = {"int4", 1, 4},
    [DT_F4E2M1] = {"float4e2m1", 1, 4},
    [DT_F8E8M0] = {"float8e8m0", 1, 0},
    [DT_U2] = {"uint2", 1, 0},
    [DT_I2] = {"int2", 1, 4},
    [DT_F6E2M3] = {"float6e2m3", 1, 4},
    [DT_F6E3M2] = {"float6e3m2", 1, 4},
};

bool dtype_supported(int t) { return t > 0 && t < (int)COUNT(types) && types[t].size; }
size_t dtype_size(DType t) {
    ASSERT(dtype_supported((int)t));
    return types[t].size;
}
const char *dtype_name(int t) {
    return t >= 0 && t < (int)COUNT(types) && types[t].name ? types[t].name : "unknown type";
}
bool dtype_is_float(DType t) { return types[t].flags & 1; }
bool dtype_is_int(DType t) { return types[t].flags & 2; }
bool dtype_is_signed(DType t) { return types[t].flags & 4; }

float f16_to_f32(uint16_t h) {
    uint32_t s = (uint32_t)(h & 0x8000u) << 16, e = (h >> 10) & 31u, m = h & 1023u, u;
    float f;
    if (e == 0) {
        f = (float)m * 0x1p-24f;
        return s ? -f : f;
    }
    u = e == 31u ? s | 0x7f800000u | m << 13 : s | (e + 112u) << 23 | m << 13;
    memcpy(&f, &u, 4);
    return f;
}

uint16_t f32_to_f16(float f) {
    uint32_t u, s;
    memcpy(&u, &f, 4);
    s = u >> 16 & 0x8000u;
    u &= 0x7fffffffu;
    if (u > 0x7f800000u) return (uint16_t)(s | 0x7e00u | (u >> 13 & 0x3ffu));
    if (u >= 0x477ff000u) return (uint16_t)(s | 0x7c00u); /* rounds to infinity */
    if (u < 0x38800000u) { /* subnormal: adding 0.5f rounds the mantissa half to even */
        float g;
        memcpy(&g, &u, 4);
        g += 0.5f;
        memcpy(&u, &g, 4);
        return (uint16_t)(s | (u - 0x3f000000u));
    }
    u += 0xfffu + (u >> 13 & 1u);
    return (uint16_t)(s | ((u - 0x38000000u) >> 13));
}

float bf16_to_f32(uint16_t h) {
    uint32_t u = (uint32_t)h << 16;
    float f;
    memcpy(&f, &u, 4);
    return f;
}

uint16_t f32_to_bf16(float f) {
    uint32_t u;
    memcpy(&u, &f, 4);
    if ((u & 0x7fffffffu) > 0x7f800000u) return (uint16_t)(u >> 16 | 0x40u);
    return (uint16_t)((u + 0x7fffu + (u >> 16 & 1u)) >> 16);
}

int64_t int_wrap(DType t, int64_t v) {
    const Small *small = dtype_small(t);
    if (small) return v & small_mask(small);
    switch (t) {
    case DT_U8: return (uint8_t)v;
    case DT_I8: return (int8_t)(uint8_t)v;
    case DT_U16: return (uint16_t)v;
    case DT_I16: return (int16_t)(uint16_t)v;
    case DT_U32: return (uint32_t)v;
    case DT_I32: return (int32_t)(uint32_t)v;
    case DT_BOOL: return v != 0;
    default: return v;
    }
}

int64_t int_most(DType t) {
    const int bits = t == DT_BOOL ? 1 : (int)dtype_size(t) * 8 - dtype_is_signed(t);
    return (int64_t)(UINT64_MAX >> (64 - bits));
}

int64_t int_least(DType t) { return dtype_is_signed(t) ? -int_most(t) - 1 : 0; }

int64_t float_to_int(DType t, double v) {
    if (t == DT_BOOL) return v != 0;
    if (isnan(v)) v = -INFINITY;
    if (t != DT_I64 && t != DT_U64 && t != DT_U32) /* narrower types convert through int32 */
        return v > -0x1p31 - 1 && v < 0x1p31 ? int_wrap(t, (int64_t)v) : int_wrap(t, INT32_MIN);
    if (t == DT_U64) {
        if (v >= 0x1p64) return -1;
        if (v >= 0x1p63) return (int64_t)((uint64_t)(int64_t)(v - 0x1p63) + ((uint64_t)1 << 63));
    }
    if (v >= 0x1p63 || v < -0x1p63) return int_wrap(t, INT64_MIN);
    return int_wrap(t, (int64_t)v);
}

double elem_get_f(DType t, const void *p, int64_t i) {
    switch (t) {
    case DT_F32: return ((const float *)p)[i];
    case DT_F64: return ((const double *)p)[i];
    case DT_F16: return f16_to_f32(((const uint16_t *)p)[i]);
    case DT_BF16: return bf16_to_f32(((const uint16_t *)p)[i]);
    case DT_U64: return (double)((const uint64_t *)p)[i];
    default:
        if (dtype_small(t)) return small_value(t, ((const uint8_t *)p)[i]);
        return (double)elem_get_i(t, p, i);
    }
}

int64_t elem_get_i(DType t, const void *p, int64_t i) {
    switch (t) {
    case DT_U8: return ((const uint8_t *)p)[i];
    case DT_BOOL: return ((const uint8_t *)p)[i] != 0;
    case DT_I8: return ((const int8_t *)p)[i];
    case DT_U16: return ((const uint16_t *)p)[i];
    case DT_I16: return ((const int16_t *)p)[i];
    case DT_U32: return ((const uint32_t *)p)[i];
    case DT_I32: return ((const int32_t *)p)[i];
    case DT_I64:
    case DT_U64: return ((const int64_t *)p)[i];
    default:
        if (dtype_small(t)) return int_wrap(t, ((const uint8_t *)p)[i]);
        return float_to_int(DT_I64, elem_get_f(t, p, i));
    }
}

void elem_set_f(DType t, void *p, int64_t i, double v) {
    ASSERT(!dtype_small(t));
    switch (t) {
    case DT_F32: ((float *)p)[i] = (float)v; break;
    case DT_F64: ((double *)p)[i] = v; break;
    case DT_F16: ((uint16_t *)p)[i] = f32_to_f16((float)v); break;
    case DT_BF16: ((uint16_t *)p)[i] = f32_to_bf16((float)v); break;
    default: elem_set_i(t, p, i, float_to_int(t, v));
    }
}

void elem_set_i(DType t, void *p, int64_t i, int64_t v) {
    if (t == DT_BOOL) v = v != 0;
    if (dtype_small(t)) v = int_wrap(t, v);
    switch (dtype_size(t)) {
    case 1: ((uint8_t *)p)[i] = (uint8_t)v; break;
    case 2: ((uint16_t *)p)[i] = (uint16_t)v; break;
    case 4: ((uint32_t *)p)[i] = (uint32_t)v; break;
    default: ((int64_t *)p)[i] = v;
    }
}
