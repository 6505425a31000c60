// memory.cu: accesses out of bounds, misaligned, and of memory that nobody has written.
#include "tests/emulate/kernel.h"
static const int table[4] = {1, 2, 3, 4};

// test inside 2 64 128: ok sum=170
KERNEL inside(Data *d) {
    int local[8];
    for (int i = 0; i < 8; i++) local[i] = table[i % 4] + i;
    if (threadIdx.x == 63) {
        bk_shared()[127] = 1;
        d->out[DATA_WORDS - 1 - blockIdx.x] = d->in[0] + bk_shared()[127];
    }
    if (threadIdx.x < 8)
        d->out[blockIdx.x * 8 + threadIdx.x] = local[threadIdx.x] + table[blockIdx.x] + 3;
}

// test past_end 1 64 0: out of bounds
KERNEL past_end(Data *d) {
    d->out[DATA_WORDS - 63 + threadIdx.x] = 1; // <- past_end
}

// test before_begin 1 64 0: out of bounds
KERNEL before_begin(Data *d) {
    d->out[threadIdx.x] = d->in[(int)threadIdx.x - 1]; // <- before_begin
}

// test far 1 1 0: out of bounds
KERNEL far(Data *d) {
    d->out[0] = d->in[1 << 28]; // <- far
}

// test half_inside 1 1 0: out of bounds
KERNEL half_inside(Data *d) {
    float4 *v = (float4 *)(d->byte + DATA_WORDS);
    d->out[0] = (int)v->x; // <- half_inside
}

// test null 1 1 0: out of bounds
KERNEL null(Data *d) {
    int *p = (int *)(d->flag[0] * 8ull);
    *p = 1; // <- null
}

// test constant 1 1 0: out of bounds
KERNEL constant(Data *d) {
    ((int *)table)[d->flag[0]] = 1; // <- constant
}

// test copy_past_end 1 1 0: out of bounds
KERNEL copy_past_end(Data *d) {
    memcpy(d->out, d->in + 24, sizeof(int) * (DATA_WORDS + d->flag[0])); // <- copy_past_end
}

// test shared_past_end 2 64 256: out of bounds
KERNEL shared_past_end(Data *d) {
    ((int *)bk_shared())[threadIdx.x + 1] = d->in[0]; // <- shared_past_end
}

// test other_shared 2 1 256: out of bounds
KERNEL other_shared(Data *d) {
    char *s = bk_shared() + (blockIdx.x ? -384 : 384);
    *s = (char)d->in[0]; // <- other_shared
}

// test stack_of_other 1 2 256: out of bounds
KERNEL stack_of_other(Data *d) {
    int local = d->in[threadIdx.x], **s = (int **)bk_shared();
    if (threadIdx.x == 0) *s = &local;
    __syncthreads();
    if (threadIdx.x == 1) d->out[0] = **s; // <- stack_of_other
    __syncthreads();
}

// test misaligned 1 1 0: misaligned
KERNEL misaligned(Data *d) {
    float4 *v = (float4 *)(d->in + 1);
    d->out[0] = (int)v->y; // the compiler takes 4 bytes, which are aligned
    int *w = (int *)(d->byte + 2);
    d->out[1] = *w; // <- misaligned
}

// test unwritten_shared 1 64 256: uninitialized
KERNEL unwritten_shared(Data *d) {
    int *s = (int *)bk_shared();
    if (threadIdx.x != 7) s[threadIdx.x] = 1;
    d->out[threadIdx.x] = s[threadIdx.x]; // <- unwritten_shared
}

// test unwritten 1 64 0: uninitialized
KERNEL unwritten(Data *d) {
    if (threadIdx.x != 7) d->raw[threadIdx.x] = 1;
    d->out[threadIdx.x] = d->raw[threadIdx.x]; // <- unwritten
}

// test unwritten_byte 1 1 256: uninitialized
KERNEL unwritten_byte(Data *d) {
    char *s = bk_shared();
    s[0] = s[1] = s[3] = 1;
    d->out[0] = s[0] + s[1] + s[3];
    d->out[1] = *(int *)s; // <- unwritten_byte
}

// Copying what is partly unwritten is none of the copy's fault; reading the copy is.
struct Padded {
    char a;
    int b;
    long c[20];
};
// test copied 1 1 512: ok sum=10
KERNEL copied(Data *d) {
    Padded *s = (Padded *)bk_shared(), *t = s + 1;
    s->a = 1;
    s->b = 9;
    *t = *s;
    memcpy(d->raw, s, sizeof *s);
    d->out[0] = t->a + ((Padded *)d->raw)->b;
}
// test copied_unwritten 1 1 512: uninitialized
KERNEL copied_unwritten(Data *d) {
    Padded *s = (Padded *)bk_shared();
    s->a = 1;
    memcpy(d->raw, s, sizeof *s);
    d->out[0] = d->raw[0]; // <- copied_unwritten
}

// Copies that the thread has begun come when it waits for them, and other threads see them behind a
// barrier.
static __device__ void begin_copy(Data *d) {
    emu_copy_async(bk_shared() + threadIdx.x * 16, d->in + threadIdx.x * 4, 16);
}
// test begun 1 64 1024: ok sum=2016
KERNEL begun(Data *d) {
    begin_copy(d);
    emu_copied();
    __syncthreads();
    d->out[threadIdx.x] = ((int *)bk_shared())[threadIdx.x];
}
// test begun_not_come 1 64 1024: uninitialized
KERNEL begun_not_come(Data *d) {
    begin_copy(d);
    __syncthreads();
    d->out[threadIdx.x] = ((int *)bk_shared())[threadIdx.x]; // <- begun_not_come
    emu_copied();
}

// cp.async copies from global memory; a cluster's shared memory is none, whosever it is.
// test begun_near 1 64 2048: not global
KERNEL begun_near(Data *d) {
    int *s = (int *)bk_shared();
    s[threadIdx.x] = d->in[threadIdx.x];
    __syncthreads();
    emu_copy_async(s + 256 + threadIdx.x, s + threadIdx.x, 4); // <- begun_near
    emu_copied();
}
// test begun_remote 2 64 2048 cluster=2: not global
KERNEL begun_remote(Data *d) {
    int *s = (int *)bk_shared();
    s[threadIdx.x] = d->in[threadIdx.x];
    __cluster_barrier_arrive();
    __cluster_barrier_wait();
    const int *far = (const int *)__cluster_map_shared_rank(s, 1 - blockIdx.x);
    emu_copy_async(s + 256 + threadIdx.x, far + threadIdx.x, 4); // <- begun_remote
    emu_copied();
    __cluster_barrier_arrive();
    __cluster_barrier_wait();
}
// test taken_for_global 1 64 2048: not global
KERNEL taken_for_global(Data *d) {
    int *s = (int *)bk_shared();
    emu_assume_global(d->in);
    emu_assume_global(s + threadIdx.x); // <- taken_for_global
}

static __device__ int deep(Data *d, int n) {
    volatile int here[64];
    here[0] = n;
    return n == 0 ? 0 : deep(d, n - 1) + here[0]; // <- overflow
}
// test recursion 1 4 0: ok sum=5050
KERNEL recursion(Data *d) {
    int v = deep(d, 100);
    if (threadIdx.x == 0) d->out[0] = v;
}
// test overflow 1 4 0: stack overflow
KERNEL overflow(Data *d) { d->out[threadIdx.x] = deep(d, 1000000); }
