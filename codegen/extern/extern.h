/* extern.h: hand-written bodies, in C11 that is C++17 too and needs nothing else.
 *
 * The same text is compiled into the compiler (for the interpreter) and pasted into emitted
 * programs, also those of devices, so it includes only standard headers. A body runs on one thread,
 * never allocates and never touches global state.
 *
 * For a body NAME:
 *   static int bx_NAME_plan(const bx_tensor *in, const int64_t *param, int64_t *sym, int64_t
 * *bytes); fills sym[] (results that output dims depend on) and bytes[o] for outputs that are
 * blobs; bytes[nout] is the scratch size. Both arrays come zeroed. static int bx_NAME(const
 * bx_tensor *in, const int64_t *param, bx_tensor *out, void *scratch); fills the outputs. out[].dim
 * is set before the call. Both return 0, or 1 when the inputs are at fault, or BX_SAID: then a
 * plan has put BX_SAYS values for the message at the beginning of sym, which has room for them, a
 * body at the beginning of scratch, whose size its plan has made BX_SAY_BYTES or more. An absent
 * optional input has data NULL and rank -1 … dtype 0. Data of a tensor with no elements may be NULL
 * or not: test the count.
 */
#ifndef BX_EXTERN_H
#define BX_EXTERN_H
#include <math.h>
#include <stdint.h>
#include <string.h>
#ifndef BX_FN /* qualifier of a function */
#define BX_FN static inline
#endif
#define BX_RANK 12
#define BX_SAID 2
#define BX_SAYS 4
#define BX_SAY_BYTES (BX_SAYS * (int64_t)sizeof(int64_t))
typedef struct bx_tensor {
    void *data;
    int32_t dtype; /* ONNX numbers */
    int32_t rank;
    int64_t dim[BX_RANK];
} bx_tensor;

BX_FN int64_t bx_count(const bx_tensor *t) {
    int64_t n = 1;
    for (int i = 0; i < t->rank; i++) n *= t->dim[i];
    return n;
}
BX_FN int bx_said(int64_t *to, int64_t a, int64_t b, int64_t c, int64_t d) {
    to[0] = a, to[1] = b, to[2] = c, to[3] = d;
    return BX_SAID;
}
BX_FN int bx_size(int dtype) {
    switch (dtype) {
    case 2:
    case 3:
    case 9: return 1;
    case 4:
    case 5:
    case 10:
    case 16: return 2;
    case 7:
    case 11:
    case 13: return 8;
    default: return dtype >= 17 ? 1 : 4; /* a code */
    }
}
BX_FN float bx_half(uint16_t h) { /* IEEE binary16 to float */
    uint32_t s = (uint32_t)(h & 0x8000u) << 16, e = (h >> 10) & 31u, m = h & 1023u, u;
    float f;
    if (e == 31u)
        u = s | 0x7f800000u | m << 13;
    else if (e)
        u = s | (e + 112u) << 23 | m << 13;
    else {
        f = (float)m * 0x1p-24f;
        return s ? -f : f;
    }
    memcpy(&f, &u, 4);
    return f;
}
BX_FN float bx_bf16(uint16_t h) {
    uint32_t u = (uint32_t)h << 16;
    float f;
    memcpy(&f, &u, 4);
    return f;
}
BX_FN uint16_t bx_to_bf16(float f) {
    uint32_t u;
    memcpy(&u, &f, 4);
    if ((u & 0x7fffffffu) > 0x7f800000u) return (uint16_t)(u >> 16 | 0x40u);
    return (uint16_t)((u + 0x7fffu + (u >> 16 & 1u)) >> 16);
}
BX_FN uint16_t bx_to_half(float f) {
    uint32_t u, s;
    memcpy(&u, &f, 4);
    s = u >> 16 & 0x8000u;
    u &= 0x7fffffffu;
    if (u > 0x7f800000u) return (uint16_t)(s | 0x7e00u | (u >> 13 & 0x3ffu));
    if (u >= 0x477ff000u) return (uint16_t)(s | 0x7c00u);
    if (u < 0x38800000u) { /* subnormal or zero: the addition rounds to even */
        float g;
        memcpy(&g, &u, 4);
        g += 0.5f;
        memcpy(&u, &g, 4);
        return (uint16_t)(s | (u - 0x3f000000u));
    }
    u += 0xfffu + (u >> 13 & 1u);
    return (uint16_t)(s | ((u - 0x38000000u) >> 13));
}
/* Element access by run-time dtype. Integers through int64 (uint64 bits for dtype 13), floats
 * through double. */
BX_FN double bx_getf(const bx_tensor *t, int64_t i) {
    switch (t->dtype) {
    case 1: return ((const float *)t->data)[i];
    case 11: return ((const double *)t->data)[i];
    case 10: return bx_half(((const uint16_t *)t->data)[i]);
    case 16: return bx_bf16(((const uint16_t *)t->data)[i]);
    case 2:
    case 9: return ((const uint8_t *)t->data)[i];
    case 3: return ((const int8_t *)t->data)[i];
    case 4: return ((const uint16_t *)t->data)[i];
    case 5: return ((const int16_t *)t->data)[i];
    case 6: return ((const int32_t *)t->data)[i];
    case 12: return ((const uint32_t *)t->data)[i];
    case 13: return (double)((const uint64_t *)t->data)[i];
    default: return (double)((const int64_t *)t->data)[i];
    }
}
BX_FN int64_t bx_geti(const bx_tensor *t, int64_t i) {
    switch (t->dtype) {
    case 2:
    case 9: return ((const uint8_t *)t->data)[i];
    case 3: return ((const int8_t *)t->data)[i];
    case 4: return ((const uint16_t *)t->data)[i];
    case 5: return ((const int16_t *)t->data)[i];
    case 6: return ((const int32_t *)t->data)[i];
    case 12: return ((const uint32_t *)t->data)[i];
    case 7:
    case 13: return ((const int64_t *)t->data)[i];
    default: return (int64_t)bx_getf(t, i);
    }
}
BX_FN int bx_is_float(int dtype) { return dtype == 1 || dtype == 10 || dtype == 11 || dtype == 16; }
BX_FN void bx_setf(bx_tensor *t, int64_t i, double v) {
    switch (t->dtype) {
    case 1: ((float *)t->data)[i] = (float)v; break;
    case 11: ((double *)t->data)[i] = v; break;
    case 10: ((uint16_t *)t->data)[i] = bx_to_half((float)v); break;
    case 16: ((uint16_t *)t->data)[i] = bx_to_bf16((float)v); break;
    default: break;
    }
}
BX_FN void bx_seti(bx_tensor *t, int64_t i, int64_t v) {
    switch (bx_size(t->dtype)) {
    case 1: ((uint8_t *)t->data)[i] = (uint8_t)v; break;
    case 2: ((uint16_t *)t->data)[i] = (uint16_t)v; break;
    case 4: ((uint32_t *)t->data)[i] = (uint32_t)v; break;
    default: ((int64_t *)t->data)[i] = v; break;
    }
}
/* Three-way order of two elements of one tensor: -1, 0, 1; NaN is above everything. */
BX_FN int bx_cmp(const bx_tensor *t, int64_t i, int64_t j) {
    if (bx_is_float(t->dtype)) {
        double a = bx_getf(t, i), b = bx_getf(t, j);
        if (isnan(a) || isnan(b)) return (isnan(a) != 0) - (isnan(b) != 0);
        return (a > b) - (a < b);
    }
    int64_t a = bx_geti(t, i), b = bx_geti(t, j);
    if (t->dtype == 13) return ((uint64_t)a > (uint64_t)b) - ((uint64_t)a < (uint64_t)b);
    return (a > b) - (a < b);
}
#endif
