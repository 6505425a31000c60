/* team.h: what the threads of a warp or of a block, all of which are here, compute together (after
 * prelude.h).
 *
 * bk_team_sum(x), _prod, _max, _min, _and, _or: over the x of all threads of the warp; the same
 * result in each. bk_all_sum(x), …: the same over the block. */
#ifndef BK_TEAM_H
#define BK_TEAM_H

#define BK_ALL_LANES 0xffffffffu

static __device__ __forceinline__ int bk_lane(void) { return (int)(threadIdx.x % BK_WARP); }
/* This warp among those of its block, and their number. */
static __device__ __forceinline__ uint32_t bk_warp(void) { return threadIdx.x / BK_WARP; }
static __device__ __forceinline__ uint32_t bk_warps(void) { return BK_THREADS / BK_WARP; }

#define BK_TEAM(NAME, TYPE, COMBINE)                                                               \
    static __device__ __forceinline__ TYPE bk_team_##NAME(TYPE x) {                                \
        for (int far = BK_WARP / 2; far; far /= 2) {                                               \
            const TYPE y = __shfl_xor_sync(BK_ALL_LANES, x, far);                                  \
            x = COMBINE;                                                                           \
        }                                                                                          \
        return x;                                                                                  \
    }                                                                                              \
    static __device__ __noinline__ TYPE bk_all_##NAME(TYPE x) {                                    \
        TYPE *const part = (TYPE *)(bk_shared() + BK_SHARED_TEAM);                                 \
        x = bk_team_##NAME(x);                                                                     \
        if (bk_lane() == 0) part[bk_warp()] = x;                                                   \
        bk_block();                                                                                \
        x = part[0];                                                                               \
        for (uint32_t i = 1; i < bk_warps(); i++) {                                                \
            const TYPE y = part[i];                                                                \
            x = COMBINE;                                                                           \
        }                                                                                          \
        bk_block(); /* before the next exchange */                                                 \
        return x;                                                                                  \
    }
#define BK_TEAM_OF(TYPE, MIN, MAX)                                                                 \
    BK_TEAM(sum, TYPE, x + y)                                                                      \
    BK_TEAM(prod, TYPE, x *y)                                                                      \
    BK_TEAM(min, TYPE, MIN(x, y))                                                                  \
    BK_TEAM(max, TYPE, MAX(x, y))
BK_TEAM_OF(float, bk_runminf, bk_runmaxf)
BK_TEAM_OF(double, bk_runmind, bk_runmaxd)
BK_TEAM_OF(int, bk_mini, bk_maxi)
BK_TEAM_OF(unsigned, bk_minu, bk_maxu)
BK_TEAM_OF(long long, bk_mini, bk_maxi)
BK_TEAM_OF(unsigned long long, bk_minu, bk_maxu)
BK_TEAM(and, int, x &y)
BK_TEAM(or, int, x | y)
/* int64_t is another type on some hosts. */
#define BK_TEAM_WIDE(NAME)                                                                         \
    static __device__ __forceinline__ long bk_team_##NAME(long x) {                                \
        return (long)bk_team_##NAME((long long)x);                                                 \
    }                                                                                              \
    static __device__ __forceinline__ unsigned long bk_team_##NAME(unsigned long x) {              \
        return (unsigned long)bk_team_##NAME((unsigned long long)x);                               \
    }                                                                                              \
    static __device__ __forceinline__ long bk_all_##NAME(long x) {                                 \
        return (long)bk_all_##NAME((long long)x);                                                  \
    }                                                                                              \
    static __device__ __forceinline__ unsigned long bk_all_##NAME(unsigned long x) {               \
        return (unsigned long)bk_all_##NAME((unsigned long long)x);                                \
    }
BK_TEAM_WIDE(sum)
BK_TEAM_WIDE(prod)
BK_TEAM_WIDE(min)
BK_TEAM_WIDE(max)
#endif
