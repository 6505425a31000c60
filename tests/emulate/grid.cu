// grid.cu: what never ends, what does not fit, and clusters.
#include "tests/emulate/kernel.h"

static __device__ void all_come(Data *d, unsigned n) {
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence();
        atomicAdd(&d->flag[0], 1u);
        while (*(volatile unsigned *)&d->flag[0] != n) {} // <- too_many
        __threadfence();
    }
    __syncthreads(); // <- too_many
}

// test fitting 8 128 0: ok sum=8
KERNEL fitting(Data *d) {
    all_come(d, gridDim.x);
    if (threadIdx.x == 0) d->out[blockIdx.x] = 1;
}

// test refused 9 128 0: refused
KERNEL refused(Data *d) { all_come(d, gridDim.x); }

// test too_many 9 128 0 waves: deadlock
KERNEL too_many(Data *d) { all_come(d, gridDim.x); }

// test in_waves 100 64 64 waves: ok sum=6400
KERNEL in_waves(Data *d) {
    int *s = (int *)bk_shared();
    if (threadIdx.x == 0) *s = 1;
    __syncthreads();
    atomicAdd(&d->out[blockIdx.x], *s);
}

// Blocks that have never run at the same time are not ordered either.
// test between_waves 20 64 64 waves: race
KERNEL between_waves(Data *d) {
    if (threadIdx.x == 0) d->out[blockIdx.x / 2]++; // <- between_waves
}

// test never_set 2 32 0: deadlock
KERNEL never_set(Data *d) {
    if (threadIdx.x == 0 && blockIdx.x == 1)
        while (*(volatile unsigned *)&d->flag[1] == 0) __nanosleep(50); // <- never_set
    d->out[threadIdx.x + blockIdx.x * 32] = 1;
}

// test never_set_any 2 32 0: deadlock
KERNEL never_set_any(Data *d) {
    volatile unsigned *f = d->flag;
    if (threadIdx.x == 0)
        while (f[0] == 0 && f[32] == 0 && f[64] == 0) {} // <- never_set_any
}

// test lock_kept 2 1 0: deadlock
KERNEL lock_kept(Data *d) {
    while (atomicCAS(&d->flag[0], 0u, 1u) != 0) {} // <- lock_kept
}

// Each waits for the other.
// test crossed 2 1 0: deadlock
KERNEL crossed(Data *d) {
    volatile unsigned *f = d->flag;
    while (f[1 - blockIdx.x] == 0) {} // <- crossed
    f[blockIdx.x] = 1;
}

// Within a warp a lane may wait for another.
// test lanes 1 32 0: ok sum=496
KERNEL lanes(Data *d) {
    volatile unsigned *f = d->flag;
    if (threadIdx.x) {
        while (f[threadIdx.x - 1] == 0) {}
        __threadfence();
        d->out[threadIdx.x] = d->raw[threadIdx.x - 1];
    }
    d->raw[threadIdx.x] = threadIdx.x ? d->raw[threadIdx.x - 1] + 1 : 1;
    __threadfence();
    f[threadIdx.x] = 1;
}

static __device__ void cluster_barrier(void) {
    __cluster_barrier_arrive();
    __cluster_barrier_wait();
}

// test cluster_turn 8 64 256 cluster=4: ok sum=16128
KERNEL cluster_turn(Data *d) {
    int *s = (int *)bk_shared(), i = (int)threadIdx.x;
    unsigned rank = __clusterRelativeBlockRank(), n = __clusterSizeInBlocks();
    s[i] = i;
    cluster_barrier();
    int *t = (int *)__cluster_map_shared_rank(s, (rank + 1) % n);
    int v = t[63 - i];
    cluster_barrier();
    d->out[blockIdx.x * 64 + i] = v;
    s[i] = 0;
    cluster_barrier();
    if (t[i]) d->out[0] = -1;
    cluster_barrier();
}

// Between arriving and waiting a thread may do what concerns nobody else.
// test cluster_split 2 64 256 cluster=2: ok sum=8064
KERNEL cluster_split(Data *d) {
    int *s = (int *)bk_shared(), i = (int)threadIdx.x;
    s[i] = i;
    __cluster_barrier_arrive();
    d->raw[blockIdx.x * 64 + i] = i;
    __cluster_barrier_wait();
    int *t = (int *)__cluster_map_shared_rank(s, 1 - blockIdx.x);
    d->out[blockIdx.x * 64 + i] = t[i] + d->raw[blockIdx.x * 64 + i];
    __cluster_barrier_arrive();
    __cluster_barrier_wait();
}

// test cluster_early 2 64 256 cluster=2: race
KERNEL cluster_early(Data *d) {
    int *s = (int *)bk_shared(), i = (int)threadIdx.x;
    s[i] = 0;
    cluster_barrier();
    int *t = (int *)__cluster_map_shared_rank(s, 1 - blockIdx.x);
    __cluster_barrier_arrive();
    s[i] = i; // <- cluster_early
    __cluster_barrier_wait();
    d->out[blockIdx.x * 64 + i] = t[i]; // <- cluster_early
    cluster_barrier();
}

// test cluster_missing 2 64 256 cluster=2: race
KERNEL cluster_missing(Data *d) {
    int *s = (int *)bk_shared(), i = (int)threadIdx.x;
    s[i] = 0;
    cluster_barrier();
    s[i] = i; // <- cluster_missing
    __syncthreads();
    int *t = (int *)__cluster_map_shared_rank(s, 1 - blockIdx.x);
    d->out[blockIdx.x * 64 + i] = t[63 - i]; // <- cluster_missing
    cluster_barrier();
}

// A block ends and its shared memory with it.
// test cluster_ended 2 64 256 cluster=2 seeds: out of bounds
KERNEL cluster_ended(Data *d) {
    int *s = (int *)bk_shared(), i = (int)threadIdx.x;
    s[i] = i;
    cluster_barrier();
    if (blockIdx.x == 1) return;
    for (int k = 0; k < 40; k++) __nanosleep(10);
    int *t = (int *)__cluster_map_shared_rank(s, 1);
    d->out[i] = t[i]; // <- cluster_ended
}

// Whichever block is faster: nothing makes the one wait whose memory is read, or written.
// test cluster_leaves 2 64 256 cluster=2: out of bounds
KERNEL cluster_leaves(Data *d) {
    int *s = (int *)bk_shared(), i = (int)threadIdx.x;
    s[i] = i;
    cluster_barrier();
    const int *t = (const int *)__cluster_map_shared_rank(s, 1 - blockIdx.x);
    d->out[blockIdx.x * 64 + i] = t[i]; // <- cluster_leaves
}
// test cluster_leaves_written 2 64 256 cluster=2: out of bounds
KERNEL cluster_leaves_written(Data *d) {
    int *s = (int *)bk_shared(), i = (int)threadIdx.x;
    s[i] = d->in[i];
    cluster_barrier();
    int *t = (int *)__cluster_map_shared_rank(s + 32, 1);
    if (blockIdx.x == 0 && i == 5) atomicMax(t, 99); // <- cluster_leaves_written
}
// One thread that waits for the readers keeps its block's memory.
// test cluster_stays 2 64 256 cluster=2: ok sum=4032
KERNEL cluster_stays(Data *d) {
    int *s = (int *)bk_shared(), i = (int)threadIdx.x;
    s[i] = i;
    cluster_barrier();
    if (blockIdx.x == 0) {
        const int *t = (const int *)__cluster_map_shared_rank(s, 1);
        d->out[i] = t[i] * 2;
        __syncthreads();
        if (i == 0) {
            __threadfence();
            *(volatile unsigned *)&d->flag[0] = 1;
        }
    } else if (i == 0) {
        while (*(volatile unsigned *)&d->flag[0] == 0) {}
        __threadfence();
    }
}

// test cluster_half 2 64 256 cluster=2: divergent barrier
KERNEL cluster_half(Data *d) {
    if (threadIdx.x == 7 && blockIdx.x == 1) return;
    d->out[blockIdx.x * 64 + threadIdx.x] = 1;
    cluster_barrier(); // <- cluster_half
}

// test cluster_twice 2 64 256 cluster=2: divergent barrier
KERNEL cluster_twice(Data *d) {
    __cluster_barrier_arrive();
    if (threadIdx.x == 1) __cluster_barrier_arrive(); // <- cluster_twice
    __cluster_barrier_wait();
    d->out[blockIdx.x * 64 + threadIdx.x] = 1;
}

// test other_cluster 4 64 256 cluster=2: out of bounds
KERNEL other_cluster(Data *d) {
    int *s = (int *)bk_shared();
    s[threadIdx.x] = 1;
    cluster_barrier();
    int *t = (int *)__cluster_map_shared_rank(s, 2); // <- other_cluster
    d->out[threadIdx.x] = t[threadIdx.x];
}

// Two barriers, of the block and of the cluster, at the same time.
// test mixed 2 64 0 cluster=2: divergent barrier
KERNEL mixed(Data *d) {
    if (threadIdx.x < 32)
        __syncthreads(); // <- mixed
    else
        cluster_barrier(); // <- mixed
    d->out[threadIdx.x] = 1;
}
