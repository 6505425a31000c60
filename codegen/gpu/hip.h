/* hip.h: in front of a text that was CUDA's: what HIP has under other names (codegen/hip.c). */
#ifdef BRAID_EMULATED
#define bk_hip_sleep(ns) __nanosleep(ns)
#define bk_hip_sync_warp() __syncwarp()
#else
#include <hip/hip_runtime.h>
static __device__ __forceinline__ void bk_hip_sleep(unsigned ns) {
    (void)ns;
    __builtin_amdgcn_s_sleep(1);
}
/* The lanes of a wave run together: only the order of memory accesses is to be kept. */
static __device__ __forceinline__ void bk_hip_sync_warp() {
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "wavefront");
    __builtin_amdgcn_wave_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "wavefront");
}
#endif
