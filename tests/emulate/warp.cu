// warp.cu: shuffles, votes and what the lanes of a warp see of each other. Also compiled with a
// warp of 64.
#include "tests/emulate/kernel.h"
#define ALL (~0ull)
#define LANE (threadIdx.x % BK_WARP)

static __device__ float warp_sum(float v) {
    for (int n = BK_WARP / 2; n; n /= 2) v += __shfl_xor_sync(ALL, v, n);
    return v;
}

// test sums 2 128 0: ok sum=520192
KERNEL sums(Data *d) {
    float v = warp_sum((float)threadIdx.x);
    long long wide = __shfl_sync(ALL, (long long)threadIdx.x << 33, 5) >> 33;
    double half = __shfl_down_sync(ALL, (double)threadIdx.x, 0);
    unsigned up = __shfl_up_sync(ALL, threadIdx.x, 0);
    int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    int ok = wide == (long long)(threadIdx.x / BK_WARP * BK_WARP + 5) && half == threadIdx.x &&
             up == threadIdx.x;
    d->out[i] = ok ? (int)v * (32 / (BK_WARP / 2)) / 2 : -1000000;
}

// Segments, and what lies outside of them.
// test segments 1 64 0: ok sum=64
KERNEL segments(Data *d) {
    int x = (int)LANE;
    int ok = __shfl_sync(ALL, x, 3, 8) == (x & ~7) + 3;
    ok &= __shfl_sync(ALL, x, 11, 8) == (x & ~7) + 3;
    ok &= __shfl_down_sync(ALL, x, 2, 8) == (x % 8 < 6 ? x + 2 : x);
    ok &= __shfl_up_sync(ALL, x, 2, 8) == (x % 8 >= 2 ? x - 2 : x);
    ok &= __shfl_xor_sync(ALL, x, 1, 8) == (x ^ 1);
    ok &= __shfl_xor_sync(ALL, x, 8, 8) == (x & 8 ? x ^ 8 : x);
    d->out[threadIdx.x] = ok;
}

// test votes 1 128 0: ok sum=128
KERNEL votes(Data *d) {
    unsigned long long odd = __ballot_sync(ALL, LANE % 2), want = 0;
    for (int i = 1; i < BK_WARP; i += 2) want |= 1ull << i;
    int ok = odd == want && __any_sync(ALL, LANE == 3) && !__any_sync(ALL, 0);
    ok &= __all_sync(ALL, 1) && !__all_sync(ALL, LANE != 9);
    ok &= (__activemask() >> LANE & 1) != 0;
    d->out[threadIdx.x] = ok;
}

// The matrix units. Line i of a is i + 1 all along; line j of b is j + 1 in the first element of
// one of its quarters.
static __device__ unsigned bits_f16(unsigned n) {
    unsigned e = 31 - __clz((int)n);
    return (15 + e) << 10 | (n << (10 - e) & 1023);
}
static __device__ unsigned bits_tf32(unsigned n) { return __float_as_uint((float)n); }
static __device__ unsigned bits_bf16(unsigned n) { return bits_tf32(n) >> 16; }
#define MATRIX(TYPE, HIGH)                                                                         \
    KERNEL matrix_##TYPE(Data *d) {                                                                \
        const unsigned line = BK_WARP == 32 ? LANE / 4 : LANE % 16,                                \
                       part = BK_WARP == 32 ? LANE % 4 : LANE / 16;                                \
        unsigned a[8], b[4] = {part == line % 4 ? bits_##TYPE(line + 1) : 0};                      \
        for (unsigned i = 0; i < 8; i++) {                                                         \
            const unsigned x = bits_##TYPE(line + i / 4 * 8 + 1);                                  \
            a[i] = x | x << HIGH;                                                                  \
        }                                                                                          \
        float c[4] = {1, 1, 1, 1};                                                                 \
        emu_matrix_##TYPE(c, a, BK_WARP == 32 ? 2 : 1, b);                                         \
        int ok = 1;                                                                                \
        for (unsigned i = 0; i < 4; i++) {                                                         \
            const unsigned row = BK_WARP == 32 ? LANE % 4 * 2 + i % 2 : LANE % 16;                 \
            const unsigned column = BK_WARP == 32 ? LANE / 4 + i / 2 * 8 : LANE / 16 * 4 + i;      \
            ok &= c[i] == 1 + (float)((row + 1) * (column + 1));                                   \
        }                                                                                          \
        d->out[threadIdx.x] = ok;                                                                  \
    }
// test matrix_f16 1 128 0: ok sum=128
MATRIX(f16, 16)
// test matrix_bf16 1 128 0: ok sum=128
MATRIX(bf16, 16)
// test matrix_tf32 1 128 0: ok sum=128
MATRIX(tf32, 0)

// Two halves of a warp, each by itself.
// test halves 1 64 0: ok sum=64
KERNEL halves(Data *d) {
    unsigned long long low = (1ull << BK_WARP / 2) - 1, high = low << BK_WARP / 2;
    int v = LANE < BK_WARP / 2 ? __shfl_sync(low, (int)LANE, 1)
                               : __shfl_sync(high, (int)LANE, BK_WARP - 1);
    __syncwarp();
    d->out[threadIdx.x] = v == (LANE < BK_WARP / 2 ? 1 : BK_WARP - 1);
}

// A last warp with fewer threads.
// test short_warp 1 72 0: ok sum=72
KERNEL short_warp(Data *d) {
    d->out[threadIdx.x] = __shfl_sync(ALL, 1, 0);
    __syncwarp();
}

// test synced 1 128 512: ok sum=8128
KERNEL synced(Data *d) {
    int *s = (int *)bk_shared() + threadIdx.x / BK_WARP * BK_WARP;
    s[LANE] = d->in[threadIdx.x];
    __syncwarp();
    int v = s[BK_WARP - 1 - LANE];
    __syncwarp();
    s[LANE] = v;
    __syncwarp();
    d->out[threadIdx.x] = s[(LANE + 1) % BK_WARP];
}

// test unsynced 1 128 512: race
KERNEL unsynced(Data *d) {
    int *s = (int *)bk_shared() + threadIdx.x / BK_WARP * BK_WARP;
    s[LANE] = d->in[threadIdx.x];
    __syncwarp();
    int v = s[BK_WARP - 1 - LANE]; // <- unsynced
    s[LANE] = v;                   // <- unsynced
}

// A shuffle exchanges values; it orders no memory.
// test shuffled_only 1 128 512: race
KERNEL shuffled_only(Data *d) {
    int *s = (int *)bk_shared() + threadIdx.x / BK_WARP * BK_WARP;
    s[LANE] = 0;
    __syncwarp();
    s[LANE] = d->in[threadIdx.x]; // <- shuffled_only
    int from = __shfl_sync(ALL, (int)LANE, 1);
    d->out[threadIdx.x] = s[from]; // <- shuffled_only
}

// __syncwarp is not for two warps.
// test across_warps 1 128 512: race
KERNEL across_warps(Data *d) {
    int *s = (int *)bk_shared();
    s[threadIdx.x] = 0;
    __syncthreads();
    s[threadIdx.x] = d->in[threadIdx.x]; // <- across_warps
    __syncwarp();
    d->out[threadIdx.x] = s[127 - threadIdx.x]; // <- across_warps
}

// Some lanes meet; the others are not ordered by it.
// test part_synced 1 64 256: ok sum=30
KERNEL part_synced(Data *d) {
    int *s = (int *)bk_shared();
    if (threadIdx.x < 4) {
        s[threadIdx.x] = (int)threadIdx.x + 6;
        __syncwarp(15);
        d->out[threadIdx.x] = s[3 - threadIdx.x];
    }
}
// test part_missing 1 64 256: race
KERNEL part_missing(Data *d) {
    int *s = (int *)bk_shared();
    if (threadIdx.x == 4) s[threadIdx.x] = 1; // <- part_missing
    __syncthreads();
    if (threadIdx.x < 5) {
        s[threadIdx.x] = (int)threadIdx.x; // <- part_missing
        if (threadIdx.x < 4) {
            __syncwarp(15);
            d->out[threadIdx.x] = s[threadIdx.x + 1]; // <- part_missing
        }
    }
}

// test half_shuffle 1 64 0: divergent shuffle
KERNEL half_shuffle(Data *d) {
    int v = 0;
    if (LANE < BK_WARP / 2) v = __shfl_sync(ALL, 1, 0); // <- half_shuffle
    __syncthreads();                                    // <- half_shuffle
    d->out[threadIdx.x] = v;
}

// test other_shuffle 1 64 0: divergent shuffle
KERNEL other_shuffle(Data *d) {
    int v;
    if (LANE % 2)
        v = __shfl_sync(ALL, 1, 0); // <- other_shuffle
    else
        v = __shfl_sync(ALL, 2, 1); // <- other_shuffle
    d->out[threadIdx.x] = v;
}

// test ended_lane 1 64 0: divergent shuffle
KERNEL ended_lane(Data *d) {
    if (LANE == 3) return;
    d->out[threadIdx.x] = __shfl_xor_sync(ALL, 1, 1); // <- ended_lane
}

// test ended_vote 1 64 0: divergent vote
KERNEL ended_vote(Data *d) {
    if (LANE == 3) return;
    d->out[threadIdx.x] = __any_sync(ALL, 1); // <- ended_vote
}

// test not_in_mask 1 64 0: divergent shuffle
KERNEL not_in_mask(Data *d) {
    d->out[threadIdx.x] = __shfl_sync(1, 1, 0); // <- not_in_mask
}

// test reads_unnamed 1 64 0: divergent shuffle
KERNEL reads_unnamed(Data *d) {
    if (LANE < 4) d->out[threadIdx.x] = __shfl_sync(15, 1, 7); // <- reads_unnamed
}

// test half_matrix 1 64 0: divergent matrix product
KERNEL half_matrix(Data *d) {
    unsigned a[8] = {0}, b[4] = {0};
    float c[4] = {0};
    if (LANE < 16) emu_matrix_f16(c, a, BK_WARP == 32 ? 2 : 1, b); // <- half_matrix
    __syncthreads();
    d->out[threadIdx.x] = 1;
}

// test half_warp_sync 1 64 0: divergent __syncwarp
KERNEL half_warp_sync(Data *d) {
    if (LANE < 7) __syncwarp(); // <- half_warp_sync
    __syncthreads();
    d->out[threadIdx.x] = 1;
}
