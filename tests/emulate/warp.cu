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

// The matrix units: small integers, so that sums are exact.
static __device__ int left_at(int line, int k) { return (line * 3 + k * 5) % 7 + 1; }
static __device__ int right_at(int line, int k) { return (line * 2 + k * 3) % 5 + 1; }
static __device__ unsigned bits_f16(int n) {
    const int e = 31 - __clz(n);
    return (unsigned)((15 + e) << 10 | (n << (10 - e) & 1023));
}
static __device__ unsigned bits_tf32(int n) { return __float_as_uint((float)n); }
static __device__ unsigned bits_bf16(int n) { return bits_tf32(n) >> 16; }
// Which line and step element i of a lane is, and the lines of its sum i, as the vendors say: by
// groups of four lanes, or by sixteens.
#if BK_WARP == 32
#define LINE_A(i, per) ((int)LANE / 4 + (i) / (per) % 2 * 8)
#define STEP_A(i, per, each) ((int)LANE % 4 * (per) + (i) % (per) + (i) / (per) / 2 * 4 * (per))
#define LINE_B ((int)LANE / 4)
#define STEP_B(i, per, each) ((int)LANE % 4 * (per) + (i) % (per) + (i) / (per) * 4 * (per))
#define SUM_A(i) ((int)LANE / 4 + (i) / 2 * 8)
#define SUM_B(i) ((int)LANE % 4 * 2 + (i) % 2)
#else
#define LINE_A(i, per) ((int)LANE % 16)
#define STEP_A(i, per, each) ((int)LANE / 16 * (each) + (i))
#define LINE_B ((int)LANE % 16)
#define STEP_B(i, per, each) ((int)LANE / 16 * (each) + (i))
#define SUM_A(i) ((int)LANE / 16 * 4 + (i))
#define SUM_B(i) ((int)LANE % 16)
#endif
#define MATRIX(NAME, TYPE, STEPS, PER, EACH_A, EACH_B, MULTIPLY)                                   \
    KERNEL NAME(Data *d) {                                                                         \
        unsigned a[4] = {0}, b[4] = {0};                                                           \
        for (int i = 0; i < EACH_A; i++)                                                           \
            a[i / PER] |= bits_##TYPE(left_at(LINE_A(i, PER), STEP_A(i, PER, EACH_A)))             \
                          << i % PER * 16;                                                         \
        for (int i = 0; i < EACH_B; i++)                                                           \
            b[i / PER] |= bits_##TYPE(right_at(LINE_B, STEP_B(i, PER, EACH_B))) << i % PER * 16;   \
        float c[4] = {1, 2, 3, 4};                                                                 \
        MULTIPLY;                                                                                  \
        int ok = 1;                                                                                \
        for (int i = 0; i < 4; i++) {                                                              \
            int sum = i + 1;                                                                       \
            for (int k = 0; k < STEPS; k++) sum += left_at(SUM_A(i), k) * right_at(SUM_B(i), k);   \
            ok &= c[i] == (float)sum;                                                              \
        }                                                                                          \
        d->out[threadIdx.x] = ok;                                                                  \
    }
#if BK_WARP == 32
#define MMA(TYPE) emu_mma_##TYPE(c, a[0], a[1], a[2], a[3], b[0], b[1])
MATRIX(matrix_f16, f16, 16, 2, 8, 4, MMA(f16))
MATRIX(matrix_bf16, bf16, 16, 2, 8, 4, MMA(bf16))
MATRIX(matrix_other, tf32, 8, 1, 4, 2, MMA(tf32))
#else
#define MFMA(NAME, WORDS)                                                                          \
    WORDS x, y;                                                                                    \
    emu_sums sum;                                                                                  \
    memcpy(&x, a, sizeof x);                                                                       \
    memcpy(&y, b, sizeof y);                                                                       \
    memcpy(&sum, c, sizeof sum);                                                                   \
    sum = __builtin_amdgcn_mfma_f32_##NAME(x, y, sum, 0, 0, 0);                                    \
    memcpy(c, &sum, sizeof sum)
MATRIX(matrix_f16, f16, 16, 2, 4, 4, MFMA(16x16x16f16, emu_half_4))
MATRIX(matrix_bf16, bf16, 16, 2, 4, 4, MFMA(16x16x16bf16_1k, emu_half_4))
MATRIX(matrix_other, bf16, 8, 2, 2, 2, MFMA(16x16x8bf16, emu_half_2))
#endif
// test matrix_f16 1 128 0: ok sum=128
// test matrix_bf16 1 128 0: ok sum=128
// test matrix_other 1 128 0: ok sum=128

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
#if BK_WARP == 32
    float c[4] = {0};
    if (LANE < 16) emu_mma_f16(c, 0, 0, 0, 0, 0, 0); // <- half_matrix
#else
    emu_half_4 a = {0};
    emu_sums sum = {0};
    if (LANE < 16) sum = __builtin_amdgcn_mfma_f32_16x16x16f16(a, a, sum, 0, 0, 0); // <- half_matrix
#endif
    __syncthreads();
    d->out[threadIdx.x] = 1;
}

// test half_warp_sync 1 64 0: divergent __syncwarp
KERNEL half_warp_sync(Data *d) {
    if (LANE < 7) __syncwarp(); // <- half_warp_sync
    __syncthreads();
    d->out[threadIdx.x] = 1;
}
