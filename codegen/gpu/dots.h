/* dots.h: parts of sums of products by a block of threads (after team.h). */
#ifndef BK_DOTS_H
#define BK_DOTS_H

#define BK_UNROLL _Pragma("unroll")
#define BK_UNROLL_BY(N) BK_PRAGMA(unroll N)
#define BK_PRAGMA(X) _Pragma(#X)

/* c and the products of four steps. */
static __device__ __forceinline__ float bk_dot4(float4 a, float4 b, float c) {
    return BK_FMA(a.w, b.w, BK_FMA(a.z, b.z, BK_FMA(a.y, b.y, BK_FMA(a.x, b.x, c))));
}

/* Four neighbours, at once where their address allows that. */
static __device__ __forceinline__ float4 bk_load4(const float *p) {
    if (((uintptr_t)p & 15) == 0) return *(const float4 *)p;
    return make_float4(p[0], p[1], p[2], p[3]);
}

static __device__ __forceinline__ uint2 bk_load4(const uint16_t *p) {
    if (((uintptr_t)p & 7) == 0) return *(const uint2 *)p;
    return make_uint2(p[0] | (unsigned)p[1] << 16, p[2] | (unsigned)p[3] << 16);
}

/* Four neighbours, or one, into the block's memory at `to`, or zeros; it and the block's other
 * threads see them behind bk_copied() and a barrier. `aligned`: as four at once need it. */
#if defined BRAID_EMULATED || (defined __CUDA_ARCH__ && __CUDA_ARCH__ >= 800)
#if defined BRAID_EMULATED
#define BK_COPY(to, from, bytes, cache, there)                                                     \
    do {                                                                                           \
        if (there)                                                                                 \
            emu_copy_async((to), (from), bytes);                                                   \
        else                                                                                       \
            memset((to), 0, bytes);                                                                \
    } while (0)
static __device__ __forceinline__ void bk_copied(void) { emu_copied(); }
#else
#define BK_COPY(to, from, bytes, cache, there)                                                     \
    asm volatile("cp.async." cache ".shared.global [%0], [%1], " #bytes ", %2;"                    \
                 :                                                                                 \
                 : "r"((unsigned)__cvta_generic_to_shared(to)), "l"(from),                         \
                   "r"((there) ? bytes : 0)                                                        \
                 : "memory")
static __device__ __forceinline__ void bk_copied(void) {
    asm volatile("cp.async.wait_all;" ::: "memory");
}
#endif
static __device__ __forceinline__ void bk_copy1(float *to, const float *from, bool there) {
    BK_COPY(to, from, 4, "ca", there);
}
static __device__ __forceinline__ void bk_copy4(float4 *to, const float *from, bool there,
                                                bool aligned) {
    if (aligned)
        BK_COPY(to, from, 16, "cg", there);
    else
        for (int i = 0; i < 4; i++) BK_COPY((float *)to + i, from + i, 4, "ca", there);
}
static __device__ __forceinline__ void bk_copy4(uint2 *to, const uint16_t *from, bool there,
                                                bool aligned) {
    if (aligned)
        BK_COPY(to, from, 8, "ca", there);
    else
        *to = there
                  ? make_uint2(from[0] | (unsigned)from[1] << 16, from[2] | (unsigned)from[3] << 16)
                  : make_uint2(0, 0);
}
#else
static __device__ __forceinline__ void bk_copied(void) {}
#endif

/* The sums of two lanes `far` apart come together in the first half of acc: the upper ones in the
 * lane with `high`. */
template <int N> static __device__ __forceinline__ void bk_halve(float *acc, bool high, int far) {
    BK_UNROLL for (int i = 0; i < N / 2; i++) {
        const float keep = high ? acc[i + N / 2] : acc[i], give = high ? acc[i] : acc[i + N / 2];
        acc[i] = keep + __shfl_xor_sync(BK_ALL_LANES, give, far);
    }
}

/* p is in the block's memory. */
static __device__ __forceinline__ bool bk_on_chip(const void *p) {
    return (uintptr_t)p - (uintptr_t)bk_shared() < BK_SHARED_BYTES;
}

/* p, which is there, as compilers know it, too. */
static __device__ __forceinline__ const float *bk_near(const float *p) {
    return (const float *)(bk_shared() + ((const char *)p - bk_shared()));
}

/* This unit's part of n positions of so many words in each of the pieces of w, shared in grains: a
 * copy `at` bytes behind the beginning of the block's memory, its pieces one after the other, where
 * there is room for it, for `most` positions; at 0: there is none. All threads of the block call
 * it; they meet before they read. */
static __device__ __noinline__ const float *bk_keep(const float *w, int at, int64_t most,
                                                    int64_t pieces, int64_t n, int64_t grain,
                                                    int64_t words, int unit, int nunit) {
    const int64_t parts = (n + grain - 1) / grain, from = parts * unit / nunit * grain;
    const int64_t to = bk_mini(parts * (unit + 1) / nunit * grain, n),
                  own = (to - from) * words / 4;
    w += from * words;
    if (at == 0 || to - from > most) return w;
    float4 *const kept = (float4 *)(bk_shared() + at);
    for (int64_t i = 0; i < pieces; i++)
        for (int64_t j = bk_thread(); j < own; j += bk_threads())
            kept[i * own + j] = ((const float4 *)(w + i * n * words))[j];
    return (const float *)kept;
}

/* Before units wait: the beginning of this unit's part of n positions of so many words each comes
 * nearer, to the cache that all units share; `own`: the part begins at w. */
#define BK_AHEAD_BYTES (32 << 10)
static __device__ __noinline__ void bk_ahead(const float *w, bool own, int64_t n, int64_t grain,
                                             int64_t words, int unit, int nunit) {
    const int64_t parts = (n + grain - 1) / grain, from = parts * unit / nunit * grain;
    const int64_t bytes = bk_mini(
        (bk_mini(parts * (unit + 1) / nunit * grain, n) - from) * words * 4, BK_AHEAD_BYTES);
    const char *const p = (const char *)(own ? w : w + from * words);
    for (int64_t i = bk_thread() * 128; i < bytes; i += bk_threads() * 128) {
#if defined __CUDA_ARCH__
        asm volatile("prefetch.global.L2 [%0];" ::"l"(p + i));
#else
        (void)p;
#endif
    }
}
#endif
