/* prelude.h: the dialect on CPUs: vectors and copies.
 *
 * Pasted after ctx.h and before scalar.h. BK_VEC is the number of float lanes of a vector and is
 * defined by the emitter, which packs weights for it.
 */
#include <math.h>
#include <stdbool.h>
#include <string.h>

#define BK_INLINE static inline __attribute__((always_inline))
/* Products may contract to fused multiply-adds in micro-kernels only. */
#ifdef __clang__
#define BK_KERNEL static __attribute__((noinline))
#define BK_CONTRACT _Pragma("clang fp contract(fast)")
#else
#define BK_KERNEL static __attribute__((noinline, optimize("fp-contract=fast")))
#define BK_CONTRACT
#endif
#define BK_SIMD _Pragma("omp simd")
#define BK_RESTRICT restrict

typedef float bk_vf __attribute__((vector_size(BK_VEC * 4)));
typedef float bk_vfu __attribute__((vector_size(BK_VEC * 4), aligned(4)));

BK_INLINE bk_vf bk_loadv(const float *p) { return *(const bk_vfu *)p; }
BK_INLINE void bk_storev(float *p, bk_vf v) { *(bk_vfu *)p = v; }
/* The first n lanes (n may be below 0 or above the width); the others are 0 and are not read. */
BK_INLINE bk_vf bk_loadn(const float *p, int64_t n) {
#if defined __AVX512F__ && BK_VEC == 16
    const int64_t m = n < 0 ? 0 : n < 16 ? n : 16;
    return (bk_vf)__builtin_ia32_loadups512_mask(p, (bk_vf){0}, (uint16_t)((1u << m) - 1));
#else
    float b[BK_VEC] __attribute__((aligned(BK_VEC * 4))) = {0};
    if (n >= BK_VEC) return bk_loadv(p);
    for (int i = 0; i < BK_VEC; i++)
        if (i < n) b[i] = p[i];
    return *(bk_vf *)b;
#endif
}
/* Lane l of the result of BK_PAIRn: sums of neighbouring runs of n lanes, of a where l / n is even,
 * else of b. With n = 1, 2, 4, … over pairs of results, the sums of a vector's width of vectors. */
#if BK_VEC == 16
#define BK_PAIR1(a, b)                                                                             \
    (__builtin_shufflevector(a, b, 0, 16, 2, 18, 4, 20, 6, 22, 8, 24, 10, 26, 12, 28, 14, 30) +    \
     __builtin_shufflevector(a, b, 1, 17, 3, 19, 5, 21, 7, 23, 9, 25, 11, 27, 13, 29, 15, 31))
#define BK_PAIR2(a, b)                                                                             \
    (__builtin_shufflevector(a, b, 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29) +     \
     __builtin_shufflevector(a, b, 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31))
#define BK_PAIR4(a, b)                                                                             \
    (__builtin_shufflevector(a, b, 0, 1, 2, 3, 16, 17, 18, 19, 8, 9, 10, 11, 24, 25, 26, 27) +     \
     __builtin_shufflevector(a, b, 4, 5, 6, 7, 20, 21, 22, 23, 12, 13, 14, 15, 28, 29, 30, 31))
#define BK_PAIR8(a, b)                                                                             \
    (__builtin_shufflevector(a, b, 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23) +       \
     __builtin_shufflevector(a, b, 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31))
#elif BK_VEC == 8
#define BK_PAIR1(a, b)                                                                             \
    (__builtin_shufflevector(a, b, 0, 8, 2, 10, 4, 12, 6, 14) +                                    \
     __builtin_shufflevector(a, b, 1, 9, 3, 11, 5, 13, 7, 15))
#define BK_PAIR2(a, b)                                                                             \
    (__builtin_shufflevector(a, b, 0, 1, 8, 9, 4, 5, 12, 13) +                                     \
     __builtin_shufflevector(a, b, 2, 3, 10, 11, 6, 7, 14, 15))
#define BK_PAIR4(a, b)                                                                             \
    (__builtin_shufflevector(a, b, 0, 1, 2, 3, 8, 9, 10, 11) +                                     \
     __builtin_shufflevector(a, b, 4, 5, 6, 7, 12, 13, 14, 15))
#else
#define BK_PAIR1(a, b)                                                                             \
    (__builtin_shufflevector(a, b, 0, 4, 2, 6) + __builtin_shufflevector(a, b, 1, 5, 3, 7))
#define BK_PAIR2(a, b)                                                                             \
    (__builtin_shufflevector(a, b, 0, 1, 4, 5) + __builtin_shufflevector(a, b, 2, 3, 6, 7))
#endif
BK_INLINE bk_vf bk_splat(float x) { return x - (bk_vf){0}; }

/* ---- copies ---------------------------------------------------------------------------------- */
/* This unit's share of a copy. */
BK_INLINE void bk_copy(void *to, const void *from, int64_t bytes, int unit, int nunit) {
    int64_t part = (bytes / 64 + nunit) / nunit * 64, lo = part * unit,
            n = bytes - lo < part ? bytes - lo : part;
    if (n > 0) memcpy((char *)to + lo, (const char *)from + lo, (size_t)n);
}
/* The same of n rows of so many bytes, `pitch` bytes apart at their destination. */
BK_INLINE void bk_copy_rows(void *to, const void *from, int64_t n, int64_t bytes, int64_t pitch,
                            int unit, int nunit) {
    for (int64_t i = n * unit / nunit; bytes > 0 && i < n * (unit + 1) / nunit; i++)
        memcpy((char *)to + i * pitch, (const char *)from + i * bytes, (size_t)bytes);
}
/* Moves n rows of so many bytes, `pitch` bytes apart, together. */
BK_INLINE void bk_close_rows(void *at, int64_t n, int64_t bytes, int64_t pitch) {
    for (int64_t i = 1; bytes > 0 && i < n; i++)
        memmove((char *)at + i * bytes, (char *)at + i * pitch, (size_t)bytes);
}
