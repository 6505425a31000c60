/* ctx.h: what a kernel on a GPU and the host that launches it share.
 *
 * Pasted after braid_model.h into both texts: C11 on the host, CUDA C++ on the device. The host
 * fills a bk_ctx in device memory in front of each launch and reads it after it. All pointers in it
 * are the device's.
 */
#ifndef BK_GPU_CTX_H
#define BK_GPU_CTX_H
#include <stddef.h>
#include <stdint.h>

enum { BK_OK = 0, BK_GROW = 1, BK_FAULT = 2 };

/* Bytes between two words that different blocks write. */
#define BK_LINE 128
/* Bytes at the beginning of a block's dynamic shared memory that belong to the dialect itself: the
 * barrier's words and a copy of bk_ctx, and from BK_SHARED_TEAM on what the threads of a block
 * exchange when they compute together. */
#define BK_SHARED_OWN 512
#define BK_SHARED_TEAM 256

/* The grid barrier's words, one line each: a block posts its turn and state in its own; block 0
 * posts for all. */
typedef struct bk_word {
    unsigned at; /* turn << 2 | state */
    unsigned pad[BK_LINE / 4 - 1];
} bk_word;

/* Where a run shall leave a copy of an output. */
typedef struct bk_copy_of {
    char *to; /* NULL: no more of them */
    uint64_t bytes;
} bk_copy_of;

typedef struct bk_ctx {
    const braid_tensor_v1 *in; /* validated against the model's inputs; data on the device */
    braid_tensor_v1 *out;      /* filled by the kernel */
    const char *weights;       /* the program's constants */
    char *arena;               /* working memory, 256-byte aligned, content undefined */
    uint64_t arena_size;
    char **slot;                  /* growable buffers outside the arena */
    int64_t *cap;                 /* bytes of each of them */
    unsigned long long *cap_need; /* with BK_GROW: bytes that would have sufficed */
    int64_t max_iterations;       /* of any one loop */
    uint64_t seed;                /* of the run's random numbers */
    int64_t stack_depth;          /* of activations of recursive functions inside each other */
    int64_t depth_cap;            /* >= stack_depth; more only while a run measures its depth */
    const bk_copy_of *deliver;    /* one for each output, and the end; NULL: no copies are wanted */
    bk_word *arrive;              /* one for each block; 0 at the first launch of a session */
    bk_word *go;                  /* one */
    /* All before stays as it is during a launch. */
    unsigned turn; /* barriers passed before this launch; the kernel leaves its own count here */
    /* From here on, and in cap_need, all is 0 when a run begins. */
    int fault; /* site + 1 of the first fault, 0: none */
    int state; /* BK_OK, BK_GROW, BK_FAULT: what the run has come to */
    int later; /* the same in every second launch of a run that has several */
    int wants; /* site + 1 of the first that there was no memory for, 0: none */
    int deep;  /* site + 1 of the first function that went beyond stack_depth, 0: none */
    int64_t said[4]; /* the values of the fault; BK_UNSAID: not known */
    unsigned long long deepest; /* how far one went */
    unsigned long long
        arena_need; /* with BK_GROW: bytes that would have sufficed, as far as known */
} bk_ctx;
#endif
