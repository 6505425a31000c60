/* prelude.h: the dialect on GPUs: blocks, the grid barrier, faults, copies.
 *
 * CUDA C++, pasted after ctx.h and before scalar.h and math.h. The text in front defines BK_THREADS
 * (threads of a block), BK_WARP (of a warp) and BK_CLUSTER (blocks of a cluster; 1: there are
 * none). A unit is a block. All threads of all blocks run the whole control flow with the same
 * uniform values; the functions here are called by all threads of a block unless they say
 * otherwise. The kernel is
 *
 *     extern "C" __global__ void __launch_bounds__(BK_THREADS) braid_kernel(bk_ctx *run) {
 *         bk_ctx *k = bk_begin(run);
 *         if (braid_main(k, blockIdx.x, gridDim.x) == BK_OK) bk_deliver(k, blockIdx.x, gridDim.x);
 *         bk_end();
 *     }
 *
 * with all blocks running at once, and gets BK_SHARED_OWN + what the program takes of dynamic
 * shared memory.
 *
 * Words that threads write at different times without a barrier between them (states, faults, turns
 * that other blocks post) are touched by atomics and through BK_LOOK alone.
 */
#ifndef __CUDACC_RTC__
#include <math.h>
#include <stdbool.h>
#include <string.h>
#endif

#define BK_INLINE static __device__ __forceinline__
#define BX_FN static __device__
#define restrict __restrict__
#define BK_RESTRICT __restrict__
#define BK_SIMD
#define BK_CONTRACT
#define BK_KERNEL static __device__ __noinline__
#define BK_FMA(a, b, c) __fmaf_rn(a, b, c)
/* x op y for signed integers of type T, where it may overflow. */
#define BK_WRAP(T, x, op, y) ((T)((u##T)(x)op(u##T)(y)))
/* p leads to memory of the whole device: what loads and stores there need not find out. */
#if defined BRAID_EMULATED
#define BK_GLOBAL(p) emu_assume_global(p)
#elif defined __HIP__
#define BK_GLOBAL(p) ((void)0) /* its compiler makes nothing of it */
#else
#define BK_GLOBAL(p) __builtin_assume(__isGlobal(p))
#endif
/* A word as it is in memory now. */
#define BK_LOOK(type, p) (*(volatile type *)(p))

/* ---- the block ------------------------------------------------------------------------------- */
BK_INLINE int bk_thread(void) { return (int)threadIdx.x; }
BK_INLINE int bk_threads(void) { return BK_THREADS; }
BK_INLINE bool bk_lead(void) { return threadIdx.x == 0; }
/* The thread that does what one of all units, or of a team of one, has to do. */
BK_INLINE bool bk_lead(int unit) { return unit == 0 && threadIdx.x == 0; }
BK_INLINE void bk_block(void) { __syncthreads(); }
/* The block's dynamic shared memory; the program's part begins BK_SHARED_OWN bytes behind. */
BK_INLINE char *bk_shared(void) {
    extern __shared__ __align__(128) char bk_shared_bytes[];
    return bk_shared_bytes;
}

/* The first of the BK_SHARED_OWN bytes. A barrier of the grid empties the caches of a
 * multiprocessor: what all need behind each is here. */
typedef struct bk_own {
    unsigned turn,
        first; /* barriers and flags passed before now; before this launch. Written by thread 0 */
    unsigned met; /* turn behind the last barrier of this launch; `first` when there was none */
    int state;    /* the worst that a thread of this block recorded */
    int result;   /* the state that the block last agreed on */
    int passed;   /* barriers of the cluster, by their parity… */
    int heard[2]; /* … the worst that came from a block of the cluster, itself included */
    bk_ctx *run;  /* the launch's */
    int *record;  /* in it, what the run has come to */
    bk_ctx k;     /* the part of it that does not change: this is what functions get */
} bk_own;
static_assert(sizeof(bk_own) <= BK_SHARED_TEAM, "");
BK_INLINE bk_own *bk_owned(void) { return (bk_own *)bk_shared(); }

/* ---- faults and needs: by any thread --------------------------------------------------------- */
BK_INLINE void bk_worse(int state) {
    bk_own *own = bk_owned();
    atomicMax(own->record, state);
    atomicMax(&own->state, state);
}
/* Records a fault and its values; the first one of a run wins. The thread goes on to the next
 * barrier. */
#define BK_UNSAID (-9223372036854775807ll - 1)
BK_INLINE void bk_fault_said(bk_ctx *k, int site, int64_t a, int64_t b, int64_t c, int64_t d) {
    bk_ctx *run = bk_owned()->run;
    (void)k;
    if (BK_LOOK(int, &run->fault) == 0 && atomicCAS(&run->fault, 0, site + 1) == 0) {
        run->said[0] = a;
        run->said[1] = b;
        run->said[2] = c;
        run->said[3] = d;
    }
    bk_worse(BK_FAULT);
}
BK_INLINE void bk_fault(bk_ctx *k, int site) {
    bk_fault_said(k, site, BK_UNSAID, BK_UNSAID, BK_UNSAID, BK_UNSAID);
}
/* An activation beyond stack_depth, by all threads; 0 when it may not begin. */
BK_INLINE int bk_deeper(bk_ctx *k, int64_t depth, int site) {
    bk_ctx *run = bk_owned()->run;
    if (BK_LOOK(int, &run->deep) == 0) atomicCAS(&run->deep, 0, site + 1);
    if (depth <= run->depth_cap) {
        if (threadIdx.x == 0) atomicMax(&run->deepest, (unsigned long long)depth);
        return 1;
    }
    bk_fault(k, site);
    return 0;
}
/* There was no memory for what the site names. */
BK_INLINE void bk_want(bk_ctx *k, int site) {
    bk_ctx *run = bk_owned()->run;
    (void)k;
    if (BK_LOOK(int, &run->wants) == 0) atomicCAS(&run->wants, 0, site + 1);
}
/* Ask for more memory; the run then has to end with BK_GROW. */
BK_INLINE void bk_need_arena(bk_ctx *k, size_t bytes) {
    atomicMax(&bk_owned()->run->arena_need, (unsigned long long)bytes);
    if (bytes > k->arena_size) bk_worse(BK_GROW);
}
BK_INLINE void bk_need_slot(bk_ctx *k, int slot, int64_t bytes) {
    atomicMax(&k->cap_need[slot], (unsigned long long)bytes);
    if (bytes > k->cap[slot]) bk_worse(BK_GROW);
}
/* What the run has come to so far. Threads need not see the same. */
BK_INLINE int bk_state(bk_ctx *k) {
    (void)k;
    return BK_LOOK(int, bk_owned()->record);
}

/* ---- agreement ------------------------------------------------------------------------------- */
/* Orders this thread's accesses before it with those behind it, for all blocks. */
BK_INLINE void bk_fence(void) {
#if defined __CUDA_ARCH__ && __CUDA_ARCH__ >= 700
    asm volatile("fence.acq_rel.gpu;" ::: "memory"); /* __threadfence is sequentially consistent */
#else
    __threadfence();
#endif
}
/* A block barrier at which the block agrees on what its threads recorded: the same value for all of
 * them. */
BK_INLINE int bk_block_state(void) {
    bk_own *own = bk_owned();
    if (!__syncthreads_or(BK_LOOK(int, &own->state) != BK_OK)) return BK_OK;
    if (threadIdx.x == 0) own->result = BK_LOOK(int, &own->state);
    __syncthreads();
    return own->result;
}
/* The same inside of what one block does alone (nunit 1); BK_OK, without a barrier, elsewhere. */
BK_INLINE int bk_loop_state(bk_ctx *k, int nunit) {
    (void)k;
    return nunit == 1 ? bk_block_state() : BK_OK;
}

#if BK_CLUSTER > 1
/* All threads of the cluster meet. */
BK_INLINE void bk_cluster_meet(void) {
    __cluster_barrier_arrive();
    __cluster_barrier_wait();
}
/* The same as bk_barrier (see there) for the threads of a cluster. Who knows of a state that is not
 * BK_OK tells all before it comes, in one of two words, for who has passed may come to the next
 * barrier before others have read. */
static __device__ __noinline__ int bk_cluster_barrier(void) {
    bk_own *own = bk_owned();
    if (threadIdx.x == 0) own->passed++;
    const int bad = __syncthreads_or(BK_LOOK(int, &own->state) != BK_OK);
    int *const heard = &own->heard[own->passed & 1];
    if (bad && threadIdx.x < BK_CLUSTER)
        atomicMax((int *)__cluster_map_shared_rank(heard, threadIdx.x), BK_LOOK(int, &own->state));
    bk_cluster_meet();
    return BK_LOOK(int, heard);
}
/* What the cluster keeps in the memory of its block `rank`, whose program's part begins with that.
 */
BK_INLINE char *bk_block_memory(unsigned rank) {
    return (char *)__cluster_map_shared_rank(bk_shared() + BK_SHARED_OWN, rank);
}
#else
BK_INLINE void bk_cluster_meet(void) { __syncthreads(); }
BK_INLINE int bk_cluster_barrier(void) { return bk_block_state(); }
#endif

/* The rest of a barrier with a state that is not BK_OK, in block 0: the worst of all blocks, by
 * those of its threads that heard of it. */
static __device__ __noinline__ void bk_worst(bk_own *own, int heard) {
    if (heard != BK_OK) atomicMax(&own->state, heard);
    __syncthreads();
    if (threadIdx.x == 0) own->result = BK_LOOK(int, &own->state);
    __syncthreads();
}

#define BK_TURN(word) ((word) >> 2)
#define BK_TURN_MASK 0x3fffffffu
/* `turn` or a later one was posted in a word that is read now. */
BK_INLINE bool bk_reached(unsigned word, unsigned turn) {
    return (int)((BK_TURN(word) - turn) << 2) >= 0;
}
/* The state that was posted with `turn`. Who posted a later one has gone on, so there was nothing
 * wrong. */
BK_INLINE int bk_state_of(unsigned word, unsigned turn) {
    return BK_TURN(word) == turn ? (int)(word & 3) : BK_OK;
}

/* All threads of the grid meet here; what any wrote before, all see after. Returns BK_OK, or
 * BK_FAULT or BK_GROW when a thread recorded a fault or a need before it came: the same value for
 * every thread, which may then leave the kernel with it. In a grid of one block it is a block
 * barrier, in one of one cluster the cluster's.
 *
 * A block posts its turn and state in a line of its own. Block 0's threads watch one line each (or
 * every BK_THREADS-th), and then its thread 0 posts to all: no line is written by two blocks,
 * nothing is counted. */
static __device__ __noinline__ int bk_barrier(bk_ctx *k, int unit) {
    bk_own *own = bk_owned();
    const unsigned nunit = gridDim.x;
    if (threadIdx.x == 0) own->met = ++own->turn;
    if (nunit == BK_CLUSTER) return bk_cluster_barrier();
    int state =
        __syncthreads_or(BK_LOOK(int, &own->state) != BK_OK) ? BK_LOOK(int, &own->state) : BK_OK;
    const unsigned turn = own->turn & BK_TURN_MASK;
    if (unit == 0) {
        for (unsigned b = threadIdx.x ? threadIdx.x : BK_THREADS; b < nunit; b += BK_THREADS) {
            unsigned word;
            while (BK_TURN(word = BK_LOOK(unsigned, &k->arrive[b].at)) != turn) {}
            if (state < (int)(word & 3)) state = (int)(word & 3);
        }
        bk_fence();
        const int any = __syncthreads_or(state != BK_OK);
        if (any) bk_worst(own, state);
        if (threadIdx.x == 0) {
            bk_fence();
            BK_LOOK(unsigned, &k->go->at) = turn << 2 | (unsigned)(any ? own->result : BK_OK);
        }
        return any ? own->result : BK_OK;
    }
    if (threadIdx.x == 0) {
        bk_fence();
        BK_LOOK(unsigned, &k->arrive[unit].at) = turn << 2 | (unsigned)state;
        unsigned word;
        while (!bk_reached(word = BK_LOOK(unsigned, &k->go->at), turn)) __nanosleep(20);
        bk_fence();
        state = bk_state_of(word, turn);
        own->result = state;
    }
    return __syncthreads_or(state != BK_OK) ? own->result : BK_OK;
}

/* Unit `to` waits until all others are here, and then sees what they wrote before; they go on. A
 * turn of its own, like a barrier's; nobody leaves the kernel here. */
static __device__ __noinline__ void bk_gather(bk_ctx *k, int unit, int to) {
    bk_own *own = bk_owned();
    const unsigned nunit = gridDim.x;
    if (threadIdx.x == 0) own->turn++;
    if (nunit == BK_CLUSTER) {
        bk_cluster_barrier();
        return;
    }
    __syncthreads();
    const unsigned turn = own->turn & BK_TURN_MASK;
    if (unit == to) {
        for (unsigned b = threadIdx.x; b < nunit; b += BK_THREADS)
            while ((int)b != to && !bk_reached(BK_LOOK(unsigned, &k->arrive[b].at), turn)) {}
        bk_fence();
        __syncthreads();
    } else if (threadIdx.x == 0) {
        bk_fence();
        BK_LOOK(unsigned, &k->arrive[unit].at) = turn << 2;
    }
    __syncthreads(); /* the count is not changed before all have read it */
}

/* All wait until unit `from` is here, and then see what it wrote before; it goes on. Returns what
 * the run has come to as far as it knows: the same value for every thread that comes here, or one
 * of them later leaves with that. */
static __device__ __noinline__ int bk_release(bk_ctx *k, int unit, int from) {
    bk_own *own = bk_owned();
    if (gridDim.x == BK_CLUSTER) return bk_cluster_barrier();
    __syncthreads();
    if (threadIdx.x == 0) {
        const unsigned turn = ++own->turn & BK_TURN_MASK;
        unsigned word;
        if (unit == from) {
            own->result = BK_LOOK(int, own->record);
            bk_fence();
            BK_LOOK(unsigned, &k->go->at) = turn << 2 | (unsigned)own->result;
        } else {
            while (!bk_reached(word = BK_LOOK(unsigned, &k->go->at), turn)) __nanosleep(20);
            bk_fence();
            own->result = bk_state_of(word, turn);
        }
    }
    __syncthreads();
    const int state = own->result;
    __syncthreads();
    return state;
}

/* First of the kernel; returns what functions get. */
BK_INLINE bk_ctx *bk_begin(bk_ctx *run) {
    bk_own *own = bk_owned();
    if (threadIdx.x == 0) {
        own->turn = own->first = own->met = run->turn;
        own->state = own->result = own->heard[0] = own->heard[1] = BK_OK;
        own->passed = 0;
        own->run = run;
        own->record = &run->state;
    }
    for (unsigned i = threadIdx.x; i < offsetof(bk_ctx, turn) / sizeof(uint64_t); i += BK_THREADS)
        ((uint64_t *)&own->k)[i] = ((const uint64_t *)run)[i];
    bk_cluster_meet(); /* others may write to this block's memory from now on */
    return &own->k;
}
/* Behind it in a launch that is not the run's first: what the run came to before, the same value
 * for every thread. What it comes to now goes to the other one of two words, `odd`: to k->later. */
BK_INLINE int bk_after(int odd) {
    bk_own *own = bk_owned();
    const int before = BK_LOOK(int, odd ? &own->run->state : &own->run->later);
    if (threadIdx.x == 0) {
        own->record = odd ? &own->run->later : &own->run->state;
        if (before != BK_OK) atomicMax(own->record, before);
    }
    __syncthreads();
    return before;
}
/* And last. A block that has been at a barrier knows that all have read the old count. */
BK_INLINE void bk_end(void) {
    const bk_own *own = bk_owned();
    if (blockIdx.x == 0 && threadIdx.x == 0 && own->met != own->first) own->run->turn = own->turn;
}

/* ---- copies: by the block's threads together ------------------------------------------------- */
/* Moves n bytes, in pieces as large as the addresses allow. The two do not overlap. */
BK_INLINE void bk_move(char *to, const char *from, int64_t n) {
    const uintptr_t bits = (uintptr_t)to | (uintptr_t)from;
    int64_t done = 0;
    if ((bits & 15) == 0) {
        for (int64_t i = threadIdx.x; i < n / 16; i += BK_THREADS)
            ((uint4 *)to)[i] = ((const uint4 *)from)[i];
        done = n / 16 * 16;
    } else if ((bits & 3) == 0) {
        for (int64_t i = threadIdx.x; i < n / 4; i += BK_THREADS)
            ((uint32_t *)to)[i] = ((const uint32_t *)from)[i];
        done = n / 4 * 4;
    }
    for (int64_t i = done + threadIdx.x; i < n; i += BK_THREADS) to[i] = from[i];
}
/* This unit's share of a copy. */
static __device__ __noinline__ void bk_copy(void *to, const void *from, int64_t bytes, int unit,
                                            int nunit) {
    int64_t part = (bytes / 64 + nunit) / nunit * 64, lo = part * unit,
            n = bytes - lo < part ? bytes - lo : part;
    if (n > 0) bk_move((char *)to + lo, (const char *)from + lo, n);
}
/* The same of n rows of so many bytes, `pitch` bytes apart at their destination. */
static __device__ __noinline__ void bk_copy_rows(void *to, const void *from, int64_t n,
                                                 int64_t bytes, int64_t pitch, int unit,
                                                 int nunit) {
    for (int64_t i = n * unit / nunit; bytes > 0 && i < n * (unit + 1) / nunit; i++)
        bk_move((char *)to + i * pitch, (const char *)from + i * bytes, bytes);
}

/* The copies of outputs that are wanted, behind a run that was good. */
static __device__ __noinline__ void bk_deliver(bk_ctx *k, int unit, int nunit) {
    if (!k->deliver || bk_barrier(k, unit) != BK_OK) return;
    for (int i = 0; k->deliver[i].to; i++)
        bk_copy(k->deliver[i].to, k->out[i].data, (int64_t)k->deliver[i].bytes, unit, nunit);
}

/* ---- by one thread --------------------------------------------------------------------------- */
/* Moves n rows of so many bytes, `pitch` bytes apart, together: downwards, first bytes first. */
static __device__ __noinline__ void bk_close_rows(void *at, int64_t n, int64_t bytes,
                                                  int64_t pitch) {
    const bool words = (((uintptr_t)at | (uintptr_t)bytes | (uintptr_t)pitch) & 7) == 0;
    for (int64_t i = 1; i < n; i++) {
        char *to = (char *)at + i * bytes;
        const char *from = (const char *)at + i * pitch;
        for (int64_t j = 0; j < bytes; j += words ? 8 : 1)
            if (words)
                *(uint64_t *)(to + j) = *(const uint64_t *)(from + j);
            else
                to[j] = from[j];
    }
}
/* Output i; its dims are stored behind. */
BK_INLINE void bk_output(bk_ctx *k, int i, const void *data, int dtype, int rank) {
    k->out[i].data = (void *)data;
    k->out[i].dtype = dtype;
    k->out[i].rank = rank;
    for (int d = 0; d < BRAID_MAX_RANK; d++) k->out[i].dim[d] = 0;
}
