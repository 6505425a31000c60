// count.cu: the critical path of kernels whose path is known (codegen/emulate/count.cc).
#include "tests/emulate/kernel.h"
#define LOOK(p) (*(volatile unsigned *)(p))

// Two words of Data, at once, then a load behind them, and a store: a round trip each.
// test copy 1 32 0: ok path=300-340
KERNEL copy(Data *d) { d->out[threadIdx.x] = d->in[threadIdx.x]; }

// A load whose place is loaded waits for that, and others go on beside it: one round trip more.
static __device__ int place(int at, int loads) {
    emu_behind(loads);
    return at & 31;
}
// test gather 1 32 0: ok path=450-500
KERNEL gather(Data *d) {
    const int *in = d->in, i = (int)threadIdx.x;
    int *out = d->out;
    out[i] = in[place(in[i], 1)] + in[i + 1];
}
// test chain 1 32 0: ok path=600-650
KERNEL chain(Data *d) {
    const int *in = d->in;
    int *out = d->out;
    out[threadIdx.x] = in[place(in[place(in[threadIdx.x], 1)], 2)];
}

// Elementary functions: what the compiler may interleave is there with the longest one, unless
// there are more instructions; what waits for another function is behind it.
static __device__ float bk_tanhf(float x) { return __fmaf_rn(x, x, x); }
static __device__ float then(float x, int depth) {
    emu_then(depth);
    return x;
}
// test apart 1 32 0: ok path=355-395
KERNEL apart(Data *d) {
    const float x = (float)d->in[threadIdx.x];
    d->out[threadIdx.x] = (int)(bk_tanhf(x) + bk_tanhf(x + 1) + bk_tanhf(x + 2));
}
// test behind 1 32 0: ok path=410-450
KERNEL behind(Data *d) {
    const float x = (float)d->in[threadIdx.x];
    d->out[threadIdx.x] = (int)(bk_tanhf(then(bk_tanhf(x) + bk_tanhf(x + 1), 1)) + bk_tanhf(x + 2));
}
// test issued 1 32 0: ok path=410-450
KERNEL issued(Data *d) {
    const float x = (float)d->in[threadIdx.x];
    float sum = 0;
    for (int i = 0; i < 8; i++) sum += bk_tanhf(x + (float)i);
    d->out[threadIdx.x] = (int)sum;
}
// test repeated 1 32 0: ok path=460-500
KERNEL repeated(Data *d) {
    float x = (float)d->in[threadIdx.x];
    for (int i = 0; i < 3; i++) {
        x = bk_tanhf(x);
        emu_then(-1);
    }
    d->out[threadIdx.x] = (int)x;
}

// 64 loads, 8 at a time: eight round trips, which one thread makes while the others wait.
// test alone 1 64 0: ok sum=2016 path=1350-1450 alone=64
KERNEL alone(Data *d) {
    if (threadIdx.x == 0) {
        int sum = 0;
        for (int i = 0; i < 64; i++) sum += d->in[i];
        d->out[0] = sum;
    }
    __syncthreads();
}

// The same by all threads.
// test together 1 64 256: ok sum=2016 path=600-680 alone=0
KERNEL together(Data *d) {
    int *s = (int *)bk_shared(), i = (int)threadIdx.x;
    s[i] = d->in[i];
    __syncthreads();
    for (int far = 32; far; far /= 2) {
        if (i < far) s[i] += s[i + far];
        __syncthreads();
    }
    if (i == 0) d->out[0] = s[0];
}

// A block posts what the other one waits for: a store, a fence that waits for it, the word's way, a
// look at it.
// test post 2 32 0: ok sum=7 path=1000-1200
KERNEL post(Data *d) {
    if (threadIdx.x) return;
    if (blockIdx.x == 0) {
        d->out[1] = 3;
        __threadfence();
        LOOK(&d->flag[0]) = 1;
    } else {
        while (LOOK(&d->flag[0]) == 0) {}
        __threadfence();
        d->out[0] = d->out[1] + 1;
    }
}

// A cluster's blocks read each other's memory, behind a barrier.
// test neighbour 2 32 256 cluster=2: ok path=360-420
KERNEL neighbour(Data *d) {
    int *s = (int *)bk_shared(), i = (int)threadIdx.x;
    s[i] = i;
    __cluster_barrier_arrive();
    __cluster_barrier_wait();
    const int *other = (const int *)__cluster_map_shared_rank(s, 1 - __clusterRelativeBlockRank());
    d->out[blockIdx.x * blockDim.x + i] = other[i];
    __cluster_barrier_arrive();
    __cluster_barrier_wait();
}
