/* emulate.h: makes CUDA C++ valid host C++; a kernel's text is compiled with -include emulate.h.
 *
 * Needs g++ 12 or clang++ 14 or newer, -std=gnu++17 and -fsanitize=thread --param
 * tsan-distinguish-volatile=1 (clang: -mllvm -tsan-distinguish-volatile). Linked without
 * -fsanitize=thread: the emulator has the functions that the compiler calls at every access
 * (tsan.cc). The header is small because hundreds of texts include it. The functions of the
 * execution model are not inline, so that the emulator knows the line of each call.
 */
#ifndef BRAID_EMULATE_H
#define BRAID_EMULATE_H
#undef _FORTIFY_SOURCE
/* Use the C library's <math.h> and <stdlib.h>, because libstdc++'s are large. */
#define _GLIBCXX_INCLUDE_NEXT_C_HEADERS 1
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#ifndef EMU_RUNTIME
extern "C" {
void *emu_memcpy(void *to, const void *from, size_t n);
void *emu_memmove(void *to, const void *from, size_t n);
void *emu_memset(void *to, int value, size_t n);
}
/* For calls that the compiler adds, and for those in the text, which it would otherwise expand. */
asm("memcpy = emu_memcpy\nmemmove = emu_memmove\nmemset = emu_memset");
#define memcpy(to, from, n) emu_memcpy((to), (from), (n))
#define memmove(to, from, n) emu_memmove((to), (from), (n))
#define memset(to, value, n) emu_memset((to), (value), (n))
#endif
#undef isnan
#undef isinf
#undef isfinite
#undef signbit
static inline bool isnan(float x) { return __builtin_isnan(x); }
static inline bool isnan(double x) { return __builtin_isnan(x); }
static inline bool isinf(float x) { return __builtin_isinf(x); }
static inline bool isinf(double x) { return __builtin_isinf(x); }
static inline bool isfinite(float x) { return __builtin_isfinite(x); }
static inline bool isfinite(double x) { return __builtin_isfinite(x); }
static inline bool signbit(float x) { return __builtin_signbit(x); }
static inline bool signbit(double x) { return __builtin_signbit(x); }

#define BRAID_EMULATED 1
#define EMU_PASTE_(a, b) a##b
#define EMU_PASTE(a, b) EMU_PASTE_(a, b)
#define EMU_STRING_(a) #a
#define EMU_STRING(a) EMU_STRING_(a)

#define __global__ __attribute__((visibility("default"), used))
#define __device__
#define __host__
#define __constant__
#define __shared__
#define __forceinline__ inline
#define __noinline__ /* the C++ library's headers have it in attributes */
#define __align__(n) __attribute__((aligned(n)))
/* The section's name tells the emulator the warp width, which the text defines only later. */
#define __launch_bounds__(...) __attribute__((section(EMU_STRING(EMU_PASTE(emu_warp_, BK_WARP)))))

/* With this, `extern __shared__ char bk_shared_bytes[]` declares a function that returns a pointer
 * to the array, and `return bk_shared_bytes` calls it. */
#define bk_shared_bytes (*emu_shared_array())

struct emu_index {
    unsigned x, y, z;
};
typedef emu_index dim3;
typedef emu_index uint3;

#pragma GCC visibility push(hidden)
extern char (*emu_shared_array())[];
emu_index emu_thread_index();
emu_index emu_block_index();
emu_index emu_block_size();
emu_index emu_grid_size();
#define threadIdx emu_thread_index()
#define blockIdx emu_block_index()
#define blockDim emu_block_size()
#define gridDim emu_grid_size()
#define warpSize BK_WARP

struct __align__(8) float2 {
    float x, y;
};
struct __align__(16) float4 {
    float x, y, z, w;
};
struct __align__(8) int2 {
    int x, y;
};
struct __align__(16) int4 {
    int x, y, z, w;
};
struct __align__(8) uint2 {
    unsigned x, y;
};
struct __align__(16) uint4 {
    unsigned x, y, z, w;
};
/* Macros, because gcc does not instrument the store of a struct that a function returns. */
#define make_float2(x, y) (float2{(x), (y)})
#define make_float4(x, y, z, w) (float4{(x), (y), (z), (w)})
#define make_int2(x, y) (int2{(x), (y)})
#define make_int4(x, y, z, w) (int4{(x), (y), (z), (w)})
#define make_uint2(x, y) (uint2{(x), (y)})
#define make_uint4(x, y, z, w) (uint4{(x), (y), (z), (w)})

void __syncthreads();
int __syncthreads_or(int value);
int __syncthreads_and(int value);
int __syncthreads_count(int value);
void __threadfence();
void __threadfence_block();
void __threadfence_system();
void __nanosleep(unsigned ns);
long long clock64();
long long emu_globaltimer(); /* ns */
[[noreturn]] void __trap();

/* Warps. Width 0 stands for the warp's width. */
typedef unsigned emu_mask_32;
typedef unsigned long long emu_mask_64;
void __syncwarp(unsigned long long mask = ~0ull);
#define EMU_SHUFFLES(T)                                                                            \
    T __shfl_sync(unsigned long long mask, T value, int lane, int width = 0);                      \
    T __shfl_xor_sync(unsigned long long mask, T value, int lanes, int width = 0);                 \
    T __shfl_down_sync(unsigned long long mask, T value, unsigned by, int width = 0);              \
    T __shfl_up_sync(unsigned long long mask, T value, unsigned by, int width = 0);                \
    T __shfl(T value, int lane, int width = 0);                                                    \
    T __shfl_xor(T value, int lanes, int width = 0);                                               \
    T __shfl_down(T value, unsigned by, int width = 0);                                            \
    T __shfl_up(T value, unsigned by, int width = 0);
EMU_SHUFFLES(int)
EMU_SHUFFLES(unsigned)
EMU_SHUFFLES(long)
EMU_SHUFFLES(unsigned long)
EMU_SHUFFLES(long long)
EMU_SHUFFLES(unsigned long long)
EMU_SHUFFLES(float)
EMU_SHUFFLES(double)
#undef EMU_SHUFFLES
/* Instructions of the matrix units. CUDA's mma.sync of m16n8k16, or with tf32 of m16n8k8. */
#define EMU_MMA(TYPE)                                                                              \
    void emu_mma_##TYPE(float *c, unsigned a0, unsigned a1, unsigned a2, unsigned a3, unsigned b0, \
                        unsigned b1);
EMU_MMA(f16)
EMU_MMA(bf16)
EMU_MMA(tf32)
#undef EMU_MMA
/* HIP's. Halves are shorts, because g++ 12 has no _Float16. */
typedef float emu_sums __attribute__((vector_size(16)));
typedef short emu_half_4 __attribute__((vector_size(8)));
typedef short emu_half_2 __attribute__((vector_size(4)));
#define EMU_MFMA(NAME, WORDS) emu_sums NAME(WORDS a, WORDS b, emu_sums c, int, int, int);
EMU_MFMA(__builtin_amdgcn_mfma_f32_16x16x16f16, emu_half_4)
EMU_MFMA(__builtin_amdgcn_mfma_f32_16x16x16bf16_1k, emu_half_4)
EMU_MFMA(__builtin_amdgcn_mfma_f32_16x16x8bf16, emu_half_2)
#undef EMU_MFMA
/* cp.async: the copy is made when the thread waits for it: for all, or for all but the last `left`
 * groups, each of which emu_commit() has ended. from NULL: zeros. */
void emu_copy_async(void *to, const void *from, unsigned bytes);
void emu_commit();
void emu_copied_but(unsigned left);
void emu_copied();
/* The elementary function that follows waits for others, `depth` one behind the other; -1: all that
 * follow wait for all so far. */
void emu_then(int depth);
/* The load that follows waits for others, so many one behind the other. */
void emu_behind(int loads);
int __any_sync(unsigned long long mask, int value);
int __all_sync(unsigned long long mask, int value);
int __any(int value);
int __all(int value);
unsigned long long emu_ballot(unsigned long long mask, int value);
unsigned long long emu_active_mask();
#define __ballot_sync(mask, value) ((EMU_PASTE(emu_mask_, BK_WARP))emu_ballot((mask), (value)))
#define __ballot(value) (emu_ballot(~0ull, (value)))
#define __activemask() ((EMU_PASTE(emu_mask_, BK_WARP))emu_active_mask())

#define EMU_ATOMICS(T)                                                                             \
    T atomicAdd(T *at, T value);                                                                   \
    T atomicMax(T *at, T value);                                                                   \
    T atomicMin(T *at, T value);                                                                   \
    T atomicExch(T *at, T value);                                                                  \
    T atomicOr(T *at, T value);                                                                    \
    T atomicAnd(T *at, T value);                                                                   \
    T atomicCAS(T *at, T expected, T value);
EMU_ATOMICS(int)
EMU_ATOMICS(unsigned)
EMU_ATOMICS(unsigned long long)
#undef EMU_ATOMICS
float atomicAdd(float *at, float value);
float atomicExch(float *at, float value);

#define __ldg(p) (*(p))
#define __ldcg(p) (*(p))

unsigned __float_as_uint(float x);
int __float_as_int(float x);
float __uint_as_float(unsigned x);
float __int_as_float(int x);
long long __double_as_longlong(double x);
double __longlong_as_double(long long x);
static inline float __fmaf_rn(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
static inline int __popc(unsigned x) { return __builtin_popcount(x); }
static inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
static inline int __clz(int x) { return x ? __builtin_clz((unsigned)x) : 32; }
static inline int __clzll(long long x) { return x ? __builtin_clzll((unsigned long long)x) : 64; }
static inline int __ffs(int x) { return __builtin_ffs(x); }
static inline int __ffsll(long long x) { return __builtin_ffsll(x); }

/* Reports if p points to a block's shared memory; the kernel assumes that it does not. */
void emu_assume_global(const void *p);

/* Clusters. */
void __cluster_barrier_arrive();
void __cluster_barrier_wait();
void *__cluster_map_shared_rank(const void *p, unsigned rank);
unsigned __cluster_query_shared_rank(const void *p);
unsigned __clusterRelativeBlockRank();
unsigned __clusterSizeInBlocks();
emu_index emu_cluster_size();
emu_index emu_cluster_index();
#define __clusterDim() emu_cluster_size()
#define __clusterIdx() emu_cluster_index()
#pragma GCC visibility pop
#endif
