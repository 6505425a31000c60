/* scalar.h: what a thread computes for itself, the same on every target: C11 and C++17, for hosts
 * and devices.
 *
 * Pasted after the target's prelude, which includes <math.h>, <stdbool.h>, <stdint.h> and
 * <string.h> and defines BK_INLINE, the qualifier of a function. Branch-free where loops over them
 * should vectorize.
 */

/* ---- memory ---------------------------------------------------------------------------------- */
/* The largest size of anything. */
#define BK_HUGE ((int64_t)1 << 48)
/* a * b > BK_HUGE, for positive a and b. */
BK_INLINE bool bk_beyond(int64_t a, int64_t b) { return (a | b) >> 24 != 0 && a > BK_HUGE / b; }
/* A product of sizes; -1 when there is no such size. */
BK_INLINE int64_t bk_size(int64_t a, int64_t b) {
    if (a == 0 || b == 0) return 0;
    return a < 0 || b < 0 || bk_beyond(a, b) ? -1 : a * b;
}
/* What of the arena may be taken, up to `end`: all of it, or one of so many equal parts of what
 * lies behind `first`, the one that begins at `begin`. */
typedef struct bk_span {
    size_t first, begin, end, parts;
} bk_span;
/* Part i of what is left of `all` behind top. */
BK_INLINE bk_span bk_part(bk_span all, size_t top, size_t i, size_t parts) {
    size_t bytes = (all.end - top) / parts / 64 * 64;
    bk_span r = {top, top + bytes * i, top + bytes * (i + 1), parts};
    return r;
}
/* Bytes from the arena behind *top; NULL when there is no room, and the need is recorded. */
BK_INLINE char *bk_claim_in(bk_ctx *k, bk_span span, size_t *top, int64_t bytes) {
    size_t at = *top, n = ((size_t)bytes + 127) / 64 * 64; /* room behind for whole-vector reads */
    if (bytes < 0 || n > span.end || at > span.end - n) {
        size_t need =
            span.parts == 1 ? at + n : span.first + span.parts * (at + n + 64 - span.begin);
        bk_need_arena(k, bytes < 0 ? SIZE_MAX / 2 : need);
        return NULL;
    }
    *top = at + n;
    return k->arena + at;
}
BK_INLINE char *bk_claim(bk_ctx *k, size_t *top, int64_t bytes) {
    bk_span all = {0, 0, k->arena_size, 1};
    return bk_claim_in(k, all, top, bytes);
}
/* The same for each unit of its own. */
BK_INLINE char *bk_claim_each_in(bk_ctx *k, bk_span span, size_t *top, int64_t bytes, int unit,
                                 int nunit) {
    int64_t own = bytes < 0 ? -1 : (bytes + 127) / 64 * 64;
    char *p = bk_claim_in(k, span, top, bk_size(own, nunit));
    return p ? p + own * unit : NULL;
}
BK_INLINE char *bk_claim_each(bk_ctx *k, size_t *top, int64_t bytes, int unit, int nunit) {
    bk_span all = {0, 0, k->arena_size, 1};
    return bk_claim_each_in(k, all, top, bytes, unit, nunit);
}
/* Rows when each of so many trips adds some; too many for any memory if that overflows. */
BK_INLINE int64_t bk_room(int64_t first, int64_t trips, int64_t rows) {
    if (trips <= 0 || rows <= 0) return first;
    return bk_beyond(trips, rows) ? BK_HUGE : first + trips * rows;
}
/* Growable slot i with room for `bytes`; NULL when it is too small, and the need is recorded. */
BK_INLINE char *bk_slot(bk_ctx *k, int i, int64_t bytes) {
    if (bytes < 0 || bytes + 64 > k->cap[i]) {
        bk_need_slot(k, i, bytes < 0 ? INT64_MAX / 2 : bytes + 64);
        return NULL;
    }
    return k->slot[i];
}
/* The same for a piece of the arena that was taken as large as slot i is. */
BK_INLINE char *bk_piece(bk_ctx *k, int i, char *piece, int64_t bytes) {
    return bk_slot(k, i, bytes) ? piece : NULL;
}

/* ---- integers -------------------------------------------------------------------------------- */
BK_INLINE int64_t bk_div(int64_t a, int64_t b) {
    return b == 0 ? 0 : b == -1 ? (int64_t)(0 - (uint64_t)a) : a / b;
}
BK_INLINE int64_t bk_rem(int64_t a, int64_t b) { return b == 0 || b == -1 ? 0 : a % b; }
BK_INLINE int64_t bk_fdiv(int64_t a, int64_t b) {
    int64_t q = bk_div(a, b), r = bk_rem(a, b);
    return q - (r != 0 && (r < 0) != (b < 0));
}
BK_INLINE int64_t bk_mod(int64_t a, int64_t b) {
    int64_t r = bk_rem(a, b);
    return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}
BK_INLINE uint64_t bk_udiv(uint64_t a, uint64_t b) { return b ? a / b : 0; }
BK_INLINE uint64_t bk_urem(uint64_t a, uint64_t b) { return b ? a % b : 0; }
BK_INLINE int64_t bk_mini(int64_t a, int64_t b) { return a < b ? a : b; }
BK_INLINE int64_t bk_maxi(int64_t a, int64_t b) { return a > b ? a : b; }
BK_INLINE uint64_t bk_minu(uint64_t a, uint64_t b) { return a < b ? a : b; }
BK_INLINE uint64_t bk_maxu(uint64_t a, uint64_t b) { return a > b ? a : b; }
BK_INLINE int64_t bk_signi(int64_t a) { return (a > 0) - (a < 0); }
BK_INLINE int64_t bk_shl(int64_t a, int64_t n, int bits) {
    return (uint64_t)n >= (uint64_t)bits ? 0 : (int64_t)((uint64_t)a << n);
}
BK_INLINE int64_t bk_shr(int64_t a, int64_t n, int bits) {
    return (uint64_t)n >= (uint64_t)bits ? (a < 0 ? -1 : 0) : a >> n;
}
BK_INLINE uint64_t bk_shru(uint64_t a, uint64_t n, int bits) {
    return n >= (uint64_t)bits ? 0 : a >> n;
}
BK_INLINE int64_t bk_powi(int64_t b, int64_t n) {
    if (n < 0) return b == 1 ? 1 : b == -1 ? (n & 1 ? -1 : 1) : 0;
    uint64_t r = 1, x = (uint64_t)b;
    for (; n; n >>= 1, x *= x)
        if (n & 1) r *= x;
    return (int64_t)r;
}

/* ---- conversions ----------------------------------------------------------------------------- */
/* The bits of a float and the float of bits. */
BK_INLINE uint32_t bk_asu(float f) {
    uint32_t u;
    memcpy(&u, &f, 4);
    return u;
}
BK_INLINE float bk_asf(uint32_t u) {
    float f;
    memcpy(&f, &u, 4);
    return f;
}
BK_INLINE uint64_t bk_asu64(double f) {
    uint64_t u;
    memcpy(&u, &f, 8);
    return u;
}
BK_INLINE double bk_asd(uint64_t u) {
    double f;
    memcpy(&f, &u, 8);
    return f;
}
/* Choice by a mask of all or no bits: unlike ?:, nothing a compiler turns into a branch. */
#define BK_MASK(cond) (-(uint32_t)(cond))
#define BK_PICK(mask, a, b) (((a) & (mask)) | ((b) & ~(mask)))
BK_INLINE int64_t bk_f2i(double v) { return v >= -0x1p63 && v < 0x1p63 ? (int64_t)v : INT64_MIN; }
BK_INLINE int32_t bk_f2i32(double v) {
    return v > -0x1p31 - 1 && v < 0x1p31 ? (int32_t)v : INT32_MIN;
}
BK_INLINE uint64_t bk_f2u(double v) {
    if (v >= 0x1p64) return UINT64_MAX;
    if (v >= 0x1p63) return (uint64_t)(int64_t)(v - 0x1p63) + ((uint64_t)1 << 63);
    return (uint64_t)bk_f2i(v);
}
/* From float: the same values, in operations that vectorize on every processor. */
BK_INLINE int32_t bk_ff2i32(float v) {
    return v >= -0x1p31f && v < 0x1p31f ? (int32_t)v : INT32_MIN;
}
BK_INLINE int64_t bk_ff2i(float v) {
    float w =
        bk_asf(BK_PICK(BK_MASK((v >= -0x1p63f) & (v < 0x1p63f)), bk_asu(v), bk_asu(-0x1p63f)));
#ifdef __AVX512DQ__
    return (int64_t)w;
#else
    /* In three digits: every product and difference is exact. */
    int32_t a = (int32_t)(w * 0x1p-40f);
    w -= (float)a * 0x1p40f;
    int32_t b = (int32_t)(w * 0x1p-20f);
    w -= (float)b * 0x1p20f;
    return (int64_t)a * ((int64_t)1 << 40) + (int64_t)b * (1 << 20) + (int32_t)w;
#endif
}
BK_INLINE uint64_t bk_ff2u(float v) {
    uint32_t high = BK_MASK(v >= 0x1p63f), over = BK_MASK(v >= 0x1p64f);
    uint64_t r = (uint64_t)bk_ff2i(v - bk_asf(high & bk_asu(0x1p63f)));
    return (r ^ (uint64_t)(int32_t)high << 63) | (uint64_t)(int32_t)over;
}
/* float16: GPUs convert by themselves. */
#if defined __CUDA_ARCH__
BK_INLINE float bk_h2f(uint16_t h) {
    float f;
    asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(h));
    return f;
}
BK_INLINE uint16_t bk_f2h(float f) {
    uint16_t h;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(f));
    return h;
}
#elif defined __AMDGCN__
BK_INLINE float bk_h2f(uint16_t h) {
    _Float16 x;
    memcpy(&x, &h, 2);
    return (float)x;
}
BK_INLINE uint16_t bk_f2h(float f) {
    const _Float16 x = (_Float16)f;
    uint16_t h;
    memcpy(&h, &x, 2);
    return h;
}
#else
BK_INLINE float bk_h2f(uint16_t h) {
    uint32_t s = (uint32_t)(h & 0x8000u) << 16, e = (h >> 10) & 31u, m = h & 1023u, u;
    float f, z = (float)m * 0x1p-24f;
    u = e == 31u ? s | 0x7f800000u | m << 13 : s | (e + 112u) << 23 | m << 13;
    memcpy(&f, &u, 4);
    return e ? f : s ? -z : z;
}
BK_INLINE uint16_t bk_f2h(float f) {
    uint32_t u, s, g;
    float sub;
    memcpy(&u, &f, 4);
    s = u >> 16 & 0x8000u;
    u &= 0x7fffffffu;
    memcpy(&sub, &u, 4);
    sub += 0.5f;
    memcpy(&g, &sub, 4);
    if (u > 0x7f800000u) return (uint16_t)(s | 0x7e00u | (u >> 13 & 0x3ffu));
    if (u >= 0x477ff000u) return (uint16_t)(s | 0x7c00u);
    if (u < 0x38800000u) return (uint16_t)(s | (g - 0x3f000000u));
    u += 0xfffu + (u >> 13 & 1u);
    return (uint16_t)(s | ((u - 0x38000000u) >> 13));
}
#endif
/* The same of one value outside lane loops. */
#if defined __F16C__ && defined __FLT16_MAX__
BK_INLINE float bk_h2f1(uint16_t h) {
    _Float16 x;
    memcpy(&x, &h, 2);
    return (float)x;
}
#else
#define bk_h2f1 bk_h2f
#endif
BK_INLINE float bk_b2f(uint16_t h) {
    uint32_t u = (uint32_t)h << 16;
    float f;
    memcpy(&f, &u, 4);
    return f;
}
BK_INLINE uint16_t bk_f2b(float f) {
    uint32_t u;
    memcpy(&u, &f, 4);
    if ((u & 0x7fffffffu) > 0x7f800000u) return (uint16_t)(u >> 16 | 0x40u);
    return (uint16_t)((u + 0x7fffu + (u >> 16 & 1u)) >> 16);
}
BK_INLINE float bk_rh(float f) { return bk_h2f(bk_f2h(f)); } /* round to float16 */
BK_INLINE float bk_rb(float f) { return bk_b2f(bk_f2b(f)); } /* round to bfloat16 */
/* The T with the bits of x, a U. */
#ifdef __cplusplus
template <typename T, typename U> BK_INLINE T bk_bits(U x) {
    T y;
    memcpy(&y, &x, sizeof y);
    return y;
}
#define BK_BITS(T, U, x) bk_bits<T, U>(x)
#else
#define BK_BITS(T, U, x)                                                                           \
    ({                                                                                             \
        U a_ = (x);                                                                                \
        T b_;                                                                                      \
        memcpy(&b_, &a_, sizeof b_);                                                               \
        b_;                                                                                        \
    })
#endif

/* ---- floats: NaN goes through MIN and MAX; without a branch, so that loops around them stay lane
 * loops ---- */
BK_INLINE float bk_minf(float a, float b) {
    const float m = a < b ? a : b;
    return a != a ? a : m;
}
BK_INLINE float bk_maxf(float a, float b) {
    const float m = a > b ? a : b;
    return a != a ? a : m;
}
BK_INLINE double bk_mind(double a, double b) {
    const double m = a < b ? a : b;
    return a != a ? a : m;
}
BK_INLINE double bk_maxd(double a, double b) {
    const double m = a > b ? a : b;
    return a != a ? a : m;
}
/* Of a running extreme and a further value: one dependent operation on what is running. */
BK_INLINE float bk_runminf(float a, float b) { return a < b || a != a ? a : b; }
BK_INLINE float bk_runmaxf(float a, float b) { return a > b || a != a ? a : b; }
BK_INLINE double bk_runmind(double a, double b) { return a < b || a != a ? a : b; }
BK_INLINE double bk_runmaxd(double a, double b) { return a > b || a != a ? a : b; }
BK_INLINE float bk_signf(float x) { return x > 0 ? 1.0f : x < 0 ? -1.0f : x; }
BK_INLINE double bk_signd(double x) { return x > 0 ? 1.0 : x < 0 ? -1.0 : x; }
BK_INLINE float bk_fmodf(float a, float b) { return fmodf(a, b); }
BK_INLINE double bk_fmodd(double a, double b) { return fmod(a, b); }
BK_INLINE double bk_sigmoidd(double x) {
    double e = exp(x < 0 ? x : -x);
    return x < 0 ? e / (1 + e) : 1 / (1 + e);
}
BK_INLINE double bk_modd(double a, double b) {
    double r = fmod(a, b);
    if (r == 0) return copysign(r, b);
    return (r < 0) != (b < 0) ? r + b : r;
}
BK_INLINE float bk_modf(float a, float b) {
    float r = fmodf(a, b);
    if (r == 0) return copysignf(r, b);
    return (r < 0) != (b < 0) ? r + b : r;
}
