// race.cu: data between blocks, by flags and barriers of the whole grid.
#include "tests/emulate/kernel.h"
#define LINE 32 // words between two flags

// The barrier of the grid by flags: block 0 collects and tells. `turn` counts from 1.
static __device__ void grid_barrier(Data *d, unsigned turn) {
    __syncthreads();
    if (blockIdx.x == 0) {
        if (threadIdx.x > 0 && threadIdx.x < gridDim.x)
            while (*(volatile unsigned *)&d->flag[threadIdx.x * LINE] != turn) __nanosleep(20);
        __threadfence();
        __syncthreads();
        if (threadIdx.x == 0) {
            __threadfence();
            *(volatile unsigned *)&d->flag[0] = turn;
        }
    } else if (threadIdx.x == 0) {
        __threadfence();
        *(volatile unsigned *)&d->flag[blockIdx.x * LINE] = turn;
        while (*(volatile unsigned *)&d->flag[0] != turn) __nanosleep(20);
        __threadfence();
    }
    __syncthreads();
}

// test grid 8 64 0: ok sum=262144
KERNEL grid(Data *d) {
    int i = (int)(blockIdx.x * blockDim.x + threadIdx.x), n = (int)(gridDim.x * blockDim.x);
    d->raw[i] = 1;
    for (unsigned turn = 1; turn <= 9; turn++) {
        grid_barrier(d, turn * 2 - 1);
        int v = d->raw[(i * 7 + 1) % n] + d->raw[(i + n / 2) % n];
        grid_barrier(d, turn * 2);
        d->raw[i] = v;
    }
    grid_barrier(d, 19);
    d->out[i] = d->raw[(i + 1) % n];
}

// test grid_missing 8 64 0: race
KERNEL grid_missing(Data *d) {
    int i = (int)(blockIdx.x * blockDim.x + threadIdx.x), n = (int)(gridDim.x * blockDim.x);
    d->out[i] = 1;
    grid_barrier(d, 1);
    int v = d->out[(i + n / 2) % n]; // <- grid_missing
    d->out[i] = v + 1;               // <- grid_missing
    grid_barrier(d, 2);
}

// test block_only 4 64 0: race
KERNEL block_only(Data *d) {
    int i = (int)(blockIdx.x * blockDim.x + threadIdx.x), n = (int)(gridDim.x * blockDim.x);
    d->out[i] = 1; // <- block_only
    __syncthreads();
    d->in[i] = d->out[(i + 64) % n]; // <- block_only
}

// The same value from two threads is a race as well.
// test same_value 2 32 0: race
KERNEL same_value(Data *d) {
    d->out[0] = 7; // <- same_value
}

// test bytes 2 64 0: ok
KERNEL bytes(Data *d) {
    int i = (int)(threadIdx.x * gridDim.x + blockIdx.x);
    d->byte[i] = 1;
    d->byte[i] += 1;
    __syncthreads();
    if (blockIdx.x == 0) d->out[threadIdx.x] = *((unsigned char *)d->byte + i);
}

// test bytes_race 2 64 0: race
KERNEL bytes_race(Data *d) {
    int i = (int)(threadIdx.x * gridDim.x + blockIdx.x);
    d->byte[i] = 1;                                                  // <- bytes_race
    if (blockIdx.x == 1 && threadIdx.x == 0) d->out[0] = d->byte[2]; // <- bytes_race
}

// test word_of_bytes 2 32 0: race
KERNEL word_of_bytes(Data *d) {
    if (threadIdx.x) return;
    if (blockIdx.x == 0)
        d->byte[5] = 1; // <- word_of_bytes
    else
        *(int *)&d->byte[4] = 0; // <- word_of_bytes
}

// Many read, then one writes.
// test read_shared 4 64 0: ok sum=0
KERNEL read_shared(Data *d) {
    int v = d->in[0];
    grid_barrier(d, 1);
    if (blockIdx.x == 1 && threadIdx.x == 33) d->in[0] = v;
}

// test read_then_write 4 64 0: race
KERNEL read_then_write(Data *d) {
    int v = d->in[0]; // <- read_then_write
    __syncthreads();
    if (blockIdx.x == 1 && threadIdx.x == 33) d->in[0] = v + 1; // <- read_then_write
}

// From block 0 to block 1 by a flag, to all of its threads.
// test handed_on 2 64 0: ok sum=2016
KERNEL handed_on(Data *d) {
    volatile unsigned *flag = d->flag;
    if (blockIdx.x == 0) {
        d->raw[threadIdx.x] = (int)threadIdx.x;
        __syncthreads();
        if (threadIdx.x == 0) {
            __threadfence();
            *flag = 1;
        }
    } else {
        if (threadIdx.x == 5) {
            while (*flag == 0) {}
            __threadfence();
        }
        __syncthreads();
        d->out[threadIdx.x] = d->raw[63 - threadIdx.x];
    }
}

// test no_release 2 64 0: race
KERNEL no_release(Data *d) {
    volatile unsigned *flag = d->flag;
    if (blockIdx.x == 0) {
        d->in[threadIdx.x] = (int)threadIdx.x; // <- no_release
        __syncthreads();
        if (threadIdx.x == 0) *flag = 1;
    } else {
        if (threadIdx.x == 5) {
            while (*flag == 0) __nanosleep(10);
            __threadfence();
        }
        __syncthreads();
        d->out[threadIdx.x] = d->in[63 - threadIdx.x]; // <- no_release
    }
}

// test no_acquire 2 64 0: race
KERNEL no_acquire(Data *d) {
    volatile unsigned *flag = d->flag;
    if (blockIdx.x == 0) {
        d->in[threadIdx.x] = (int)threadIdx.x; // <- no_acquire
        __syncthreads();
        if (threadIdx.x == 0) {
            __threadfence();
            *flag = 1;
        }
    } else {
        if (threadIdx.x == 5)
            while (*flag == 0) __nanosleep(10);
        __syncthreads();
        d->out[threadIdx.x] = d->in[63 - threadIdx.x]; // <- no_acquire
    }
}

// test write_after_release 2 1 0: race
KERNEL write_after_release(Data *d) {
    volatile unsigned *flag = d->flag;
    if (blockIdx.x == 0) {
        d->in[0] = 3;
        __threadfence();
        *flag = 1;
        d->in[1] = 4; // <- write_after_release
    } else {
        while (*flag == 0) {}
        __threadfence();
        d->out[0] = d->in[0];
        d->out[1] = d->in[1]; // <- write_after_release
    }
}

// test block_fence 2 1 0: race
KERNEL block_fence(Data *d) {
    volatile unsigned *flag = d->flag;
    if (blockIdx.x == 0) {
        d->in[0] = 3; // <- block_fence
        __threadfence_block();
        *flag = 1;
    } else {
        while (*flag == 0) {}
        __threadfence_block();
        d->out[0] = d->in[0]; // <- block_fence
    }
}

// test block_fence_inside 1 64 0: ok sum=3
KERNEL block_fence_inside(Data *d) {
    volatile unsigned *flag = d->flag;
    if (threadIdx.x == 0) {
        d->in[0] = 3;
        __threadfence_block();
        *flag = 1;
    } else if (threadIdx.x == 40) {
        while (*flag == 0) {}
        __threadfence_block();
        d->out[0] = d->in[0];
    }
}

// A flag is not read or written plainly beside.
// test plain_flag 2 1 0: race
KERNEL plain_flag(Data *d) {
    if (blockIdx.x == 0) {
        d->flag[0] = 1; // <- plain_flag
    } else {
        for (int i = 0; i < 3; i++)
            if (*(volatile unsigned *)d->flag) d->out[0] = 1; // <- plain_flag
    }
}

// A lock of an atomic: exchange takes it and a volatile store gives it back, with fences.
// test lock 4 64 0: ok sum=256
KERNEL lock(Data *d) {
    for (unsigned done = 0; !done;)
        if (atomicCAS(&d->flag[0], 0u, 1u) == 0) {
            __threadfence();
            d->out[0]++;
            __threadfence();
            *(volatile unsigned *)&d->flag[0] = 0;
            done = 1;
        }
}

// test lock_unfenced 4 64 0: race
KERNEL lock_unfenced(Data *d) {
    for (unsigned done = 0; !done;)
        if (atomicCAS(&d->flag[0], 0u, 1u) == 0) {
            __threadfence();
            d->out[0]++; // <- lock_unfenced
            *(volatile unsigned *)&d->flag[0] = 0;
            done = 1;
        }
}

// The last block to come takes the sum.
// test last_block 8 64 0: ok sum=36
KERNEL last_block(Data *d) {
    if (threadIdx.x) return;
    d->raw[blockIdx.x] = (int)blockIdx.x + 1;
    __threadfence();
    if (atomicAdd(&d->flag[0], 1u) != gridDim.x - 1) return;
    __threadfence();
    for (unsigned b = 0; b < gridDim.x; b++) d->out[0] += d->raw[b];
}

// test last_block_unfenced 8 64 0: race
KERNEL last_block_unfenced(Data *d) {
    if (threadIdx.x) return;
    d->in[blockIdx.x] = (int)blockIdx.x + 1; // <- last_block_unfenced
    if (atomicAdd(&d->flag[0], 1u) != gridDim.x - 1) return;
    __threadfence();
    for (unsigned b = 0; b < gridDim.x; b++) d->out[0] += d->in[b]; // <- last_block_unfenced
}

// test atomics 4 64 0: ok sum=1078
KERNEL atomics(Data *d) {
    int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    atomicAdd(&d->out[0], 1);
    atomicMax(&d->out[1], i);
    atomicMin(&d->out[2], -1);
    atomicOr(&d->flag[0], 1u << i % 32);
    atomicAdd((float *)&d->flag[1], 0.5f);
    if (i == 0) {
        atomicExch(&d->out[3], 12);
        atomicAnd(&d->out[3], 8);
        atomicCAS(&d->out[3], 8, 560);
        atomicCAS(&d->out[3], 1, 2);
        unsigned long long *wide = (unsigned long long *)&d->flag[4];
        if (atomicAdd(wide, 1ull << 40) == 0 && atomicAdd(wide, 1ull) == 1ull << 40) d->out[4] = 8;
    }
}

// test atomic_and_plain 2 1 0: race
KERNEL atomic_and_plain(Data *d) {
    if (blockIdx.x == 0)
        atomicAdd(&d->out[0], 1); // <- atomic_and_plain
    else
        d->out[0] = 1; // <- atomic_and_plain
}

// test copies 2 64 0: race
KERNEL copies(Data *d) {
    if (threadIdx.x) return;
    if (blockIdx.x == 0)
        memset(d->out + 100, 0, 4 * 50); // <- copies
    else
        memcpy(d->out + 149, d->in, 4 * DATA_WORDS / 2); // <- copies
}

// test vectors 2 64 0: race
KERNEL vectors(Data *d) {
    if (threadIdx.x) return;
    float4 *v = (float4 *)d->out;
    if (blockIdx.x == 0)
        v[1] = make_float4(1, 2, 3, 4); // <- vectors
    else
        d->out[6] = 1; // <- vectors
}

// A place belongs to the asynchronous copy to it from when it is begun until its thread has waited.
// test copy_handed_on 1 64 1024: ok sum=4032
KERNEL copy_handed_on(Data *d) {
    int *s = (int *)bk_shared();
    for (int turn = 0; turn < 2; turn++) {
        emu_copy_async(s + threadIdx.x, turn ? d->in + threadIdx.x : NULL, 4);
        emu_copied();
        __syncthreads();
        d->out[turn * 64 + threadIdx.x] = s[63 - threadIdx.x];
        d->out[128 + turn * 64 + threadIdx.x] = s[threadIdx.x];
        __syncthreads();
        d->in[threadIdx.x] += 0; // what was copied may change
        __syncthreads();
    }
}

// test copy_twice 1 64 1024: race
KERNEL copy_twice(Data *d) {
    int *s = (int *)bk_shared();
    emu_copy_async(s + threadIdx.x, d->in + threadIdx.x, 4);
    emu_copy_async(s + threadIdx.x, d->in + threadIdx.x + 64, 4); // <- copy_twice
    emu_copied();
}

// test copy_over 2 64 1024: race
KERNEL copy_over(Data *d) {
    char *s = bk_shared();
    emu_copy_async(s + threadIdx.x * 16, d->in + threadIdx.x * 4, 16);
    __syncthreads();
    if (threadIdx.x == 9) emu_copy_async(s + 8, NULL, 8); // <- copy_over
    __syncthreads();
    emu_copied();
}

// test copy_and_store 1 64 1024: race
KERNEL copy_and_store(Data *d) {
    int *s = (int *)bk_shared();
    emu_copy_async(s + threadIdx.x, d->in + threadIdx.x, 4);
    s[threadIdx.x] = 0; // <- copy_and_store
    emu_copied();
}

// The barriers order the store between the beginning and the end of the copy.
// test copy_and_byte 1 64 1024: race
KERNEL copy_and_byte(Data *d) {
    char *s = bk_shared();
    emu_copy_async(s + threadIdx.x * 4, d->in + threadIdx.x, 4);
    __syncthreads();
    if (threadIdx.x == 40) s[27] = 1; // <- copy_and_byte
    __syncthreads();
    emu_copied();
}

// test copy_read_early 1 64 1024: race
KERNEL copy_read_early(Data *d) {
    int *s = (int *)bk_shared();
    s[threadIdx.x] = 1;
    __syncthreads();
    emu_copy_async(s + threadIdx.x, d->in + threadIdx.x, 4);
    d->out[threadIdx.x] = s[threadIdx.x]; // <- copy_read_early
    emu_copied();
}

// test copy_of_what_changes 1 64 1024: race
KERNEL copy_of_what_changes(Data *d) {
    int *s = (int *)bk_shared();
    emu_copy_async(s + threadIdx.x, d->in + threadIdx.x, 4);
    __syncthreads();
    if (threadIdx.x == 0) d->in[7] = 1; // <- copy_of_what_changes
    __syncthreads();
    emu_copied();
}

// It begins before another thread's store to the place is over.
// test copy_begun_early 1 64 1024: race
KERNEL copy_begun_early(Data *d) {
    int *s = (int *)bk_shared();
    s[threadIdx.x] = 1;                                           // <- copy_begun_early
    emu_copy_async(s + 63 - threadIdx.x, d->in + threadIdx.x, 4); // <- copy_begun_early
    __syncthreads();
    emu_copied();
}
