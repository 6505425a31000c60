/* arena.c: the compiler's memory, in blocks that are freed together. */
#include "base/base.h"
#include <stdlib.h>

typedef struct Block {
    struct Block *next;
    size_t size, used;
} Block;

struct Arena {
    Block *block;
    Diag *diag;
    size_t bytes;
};

#if BRAID_TINY /* each allocation is a block, and vectors start with one element */
#define BLOCK_MIN ((size_t)64)
#define VEC_MIN 1
#else
#define BLOCK_MIN ((size_t)256 * 1024)
#define VEC_MIN 8
#endif
#define HEADER ((size_t)64)

Arena *arena_new(Diag *d) {
    Arena *a = calloc(1, sizeof *a);
    if (!a) err(d, ST_MEMORY, NULL, "out of memory");
    a->diag = d;
    return a;
}

void arena_free(Arena *a) {
    if (!a) return;
    for (Block *b = a->block, *n; b; b = n) {
        n = b->next;
        free(b);
    }
    free(a);
}

void *arena_alloc(Arena *a, size_t n) {
    size_t align = n >= 64 ? 64 : 16;
    Block *b = a->block;
    if (b) {
        size_t at = (b->used + align - 1) & ~(align - 1);
        if (at <= b->size && n <= b->size - at) {
            b->used = at + n;
            return memset((char *)b + at, 0, n);
        }
    }
    if (n > SIZE_MAX / 2) err(a->diag, ST_MEMORY, NULL, "out of memory");
    size_t size = n + HEADER > BLOCK_MIN ? n + HEADER : BLOCK_MIN;
    size = (size + 63) & ~(size_t)63;
    progress_tick(a->diag);
    b = aligned_alloc(64, size);
    if (!b) err(a->diag, ST_MEMORY, NULL, "out of memory: %zu bytes more were needed", n);
    b->size = size;
    b->used = HEADER + n;
    /* A large block goes into the list after the current one, which may still have room. */
    if (a->block && size > BLOCK_MIN) {
        b->next = a->block->next;
        a->block->next = b;
    } else {
        b->next = a->block;
        a->block = b;
    }
    a->bytes += size;
    return memset((char *)b + HEADER, 0, n);
}

size_t arena_bytes(const Arena *a) { return a->bytes; }

char *arena_strndup(Arena *a, const char *s, size_t n) {
    char *p = arena_alloc(a, n + 1);
    memcpy(p, s, n);
    return p;
}

char *arena_strdup(Arena *a, const char *s) { return arena_strndup(a, s, strlen(s)); }

void *arena_memdup(Arena *a, const void *p, size_t n) {
    void *q = arena_alloc(a, n);
    if (n) memcpy(q, p, n);
    return q;
}

char *arena_printf(Arena *a, const char *fmt, ...) {
    va_list ap, ap2;
    va_start(ap, fmt);
    va_copy(ap2, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    ASSERT(n >= 0);
    char *p = arena_alloc(a, (size_t)n + 1);
    vsnprintf(p, (size_t)n + 1, fmt, ap2);
    va_end(ap2);
    return p;
}

void *vec_grow_(Arena *a, void *p, int n, int *cap, size_t elem) {
    ASSERT(n < INT32_MAX / 2);
    int c = *cap ? *cap * 2 : VEC_MIN;
    void *q = arena_alloc(a, (size_t)c * elem);
    if (n) memcpy(q, p, (size_t)n * elem);
    *cap = c;
    return q;
}
