// kernel.h: the beginning of a text of kernels for the emulator.
#ifndef KERNEL_H
#define KERNEL_H
#ifndef BK_WARP
#define BK_WARP 32
#endif
#define BK_THREADS 256
#include "tests/emulate/data.h"
#define KERNEL extern "C" __global__ void __launch_bounds__(BK_THREADS)

static __device__ __forceinline__ char *bk_shared(void) {
    extern __shared__ __align__(128) char bk_shared_bytes[];
    return bk_shared_bytes;
}
#endif
