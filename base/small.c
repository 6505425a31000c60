/* small.c: element types below one byte and 8-bit floats: what codes mean, and how files pack them.
 *
 * Follows ONNX 1.23: TensorProto, and docs/technical/float4, float6, float8, int2, int4.
 */
#include "base/base.h"
#include <math.h>

static const Small types[] = {
    [DT_F8E4M3FN] = {8, true, 3, 7, false, 0x7e, -1, 0x7f},
    [DT_F8E4M3FNUZ] = {8, true, 3, 8, true, 0x7f, -1, 0x80},
    [DT_F8E5M2] = {8, true, 2, 15, false, 0x7b, 0x7c, 0x7e},
    [DT_F8E5M2FNUZ] = {8, true, 2, 16, true, 0x7f, -1, 0x80},
    [DT_U4] = {4, false, 0, 0, false, 15, -1, -1},
    [DT_I4] = {4, false, 0, 0, false, 7, -1, -1},
    [DT_F4E2M1] = {4, true, 1, 1, false, 7, -1, -1},
    [DT_F8E8M0] = {8, true, 0, 127, false, 0xfe, -1, 0xff},
    [DT_U2] = {2, false, 0, 0, false, 3, -1, -1},
    [DT_I2] = {2, false, 0, 0, false, 1, -1, -1},
    [DT_F6E2M3] = {6, true, 3, 1, false, 0x1f, -1, -1},
    [DT_F6E3M2] = {6, true, 2, 3, false, 0x1f, -1, -1},
};

const Small *dtype_small(DType t) {
    return (size_t)t < COUNT(types) && types[t].bits ? &types[t] : NULL;
}

double small_value(DType t, unsigned code) {
    const Small *s = dtype_small(t);
    unsigned sign = dtype_is_signed(t) ? 1u << (s->bits - 1) : 0;
    code &= small_mask(s);
    unsigned mag = code & ~sign;
    if (!s->is_float) return code & sign ? (double)mag - sign : mag;
    if (s->nan >= 0 && code == (unsigned)s->nan) return NAN;
    if (mag > s->top && (int)mag != s->inf) return NAN;
    int exponent = (int)(mag >> s->mantissa);
    double v = mag & ((1u << s->mantissa) - 1);
    if (t == DT_F8E8M0)
        v = ldexp(1, exponent - s->bias);
    else if ((int)mag == s->inf)
        v = INFINITY;
    else if (exponent)
        v = ldexp(v + (1 << s->mantissa), exponent - s->bias - s->mantissa);
    else
        v = ldexp(v, 1 - s->bias - s->mantissa);
    return code & sign ? -v : v;
}

/* ---- packing: a stream of bits, each byte filled from its lowest bit up ---------------------- */
size_t small_packed(DType t, int64_t n) { return ((size_t)n * dtype_small(t)->bits + 7) / 8; }

void small_pack(DType t, int64_t n, const uint8_t *code, uint8_t *to) {
    const Small *s = dtype_small(t);
    unsigned held = 0, have = 0;
    for (int64_t i = 0; i < n; i++) {
        held |= (code[i] & small_mask(s)) << have;
        have += s->bits;
        if (have < 8) continue;
        *to++ = (uint8_t)held;
        held >>= 8;
        have -= 8;
    }
    if (have) *to = (uint8_t)held;
}

void small_unpack(DType t, int64_t n, const uint8_t *from, uint8_t *code) {
    const Small *s = dtype_small(t);
    unsigned held = 0, have = 0;
    for (int64_t i = 0; i < n; i++) {
        if (have < s->bits) {
            held |= (unsigned)*from++ << have;
            have += 8;
        }
        code[i] = (uint8_t)(held & small_mask(s));
        held >>= s->bits;
        have -= s->bits;
    }
}
