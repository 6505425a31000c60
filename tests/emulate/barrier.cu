// barrier.cu: barriers of blocks, missing ones, and threads that do not come.
#include "tests/emulate/kernel.h"
static __device__ __forceinline__ void bk_block(void) { __syncthreads(); }

// test turn 4 64 256: ok sum=8064
KERNEL turn(Data *d) {
    int *s = (int *)bk_shared(), i = (int)threadIdx.x;
    s[i] = d->in[i];
    bk_block();
    d->out[blockIdx.x * blockDim.x + i] = s[blockDim.x - 1 - i];
}

// test turn_missing 4 64 256: race
KERNEL turn_missing(Data *d) {
    int *s = (int *)bk_shared(), i = (int)threadIdx.x;
    s[i] = 0;
    bk_block();
    s[i] = d->in[i];                                             // <- turn_missing
    d->out[blockIdx.x * blockDim.x + i] = s[blockDim.x - 1 - i]; // <- turn_missing
}

// test overwrite 1 64 256: race
KERNEL overwrite(Data *d) {
    int *s = (int *)bk_shared(), i = (int)threadIdx.x;
    s[i] = d->in[i];
    for (int k = 0; k < 3; k++) {
        bk_block();
        int v = s[(i + 1) % blockDim.x]; // <- overwrite
        s[i] = v + 1;                    // <- overwrite
    }
}

// test reduce 2 128 512: ok sum=16256
KERNEL reduce(Data *d) {
    int *s = (int *)bk_shared(), i = (int)threadIdx.x;
    s[i] = d->in[i];
    for (int n = (int)blockDim.x / 2; n; n /= 2) {
        bk_block();
        if (i < n) s[i] += s[i + n];
    }
    if (i == 0) d->out[blockIdx.x] = s[0];
}

// test count 2 64 0: ok sum=132
KERNEL count(Data *d) {
    int n = __syncthreads_count(threadIdx.x < 5);
    int any = __syncthreads_or(threadIdx.x == 63 ? 4 : 0), none = __syncthreads_or(0);
    int all = __syncthreads_and(1), not_all = __syncthreads_and(threadIdx.x != 3);
    if (threadIdx.x == 0)
        d->out[blockIdx.x] = n * 12 + (any != 0) * 2 + none + (all != 0) * 4 + not_all;
}

// test half 1 64 0: divergent barrier
KERNEL half(Data *d) {
    if (threadIdx.x < 32)
        bk_block(); // <- half
    else
        bk_block(); // <- half
    d->out[threadIdx.x] = 1;
}

// test kinds 1 64 0: divergent barrier
KERNEL kinds(Data *d) {
    if (threadIdx.x % 2)
        __syncthreads(); // <- kinds
    else
        __syncthreads_or(1); // <- kinds
    d->out[threadIdx.x] = 1;
}

// test early 1 64 0: divergent barrier
KERNEL early(Data *d) {
    if (threadIdx.x == 5) return;
    bk_block(); // <- early
    d->out[threadIdx.x] = 1;
}
