/* ctx.h: what an emitted kernel and its surroundings (entry.c) share.
 *
 * Pasted into every emitted program after braid_model.h and before the kernel; the program begins
 * with
 * `#define _GNU_SOURCE`. The kernel is
 *
 *     static int braid_kernel(bk_ctx *k, int unit, int nunit);
 *
 * called once per run by each of nunit threads with unit = 0 … nunit-1. Every unit must return the
 * same of BK_OK, BK_GROW, BK_FAULT, and all units must pass the same bk_barrier calls. The value of
 * bk_barrier is the way to agree: it is the same for every unit, whatever happens meanwhile.
 */
#include <sched.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#ifdef __linux__
#include <linux/futex.h>
#include <limits.h>
#include <sys/syscall.h>
#include <unistd.h>
#else
#include <time.h>
#endif

enum { BK_OK = 0, BK_GROW = 1, BK_FAULT = 2 };

/* A word that threads wait on until it changes. */
typedef struct bk_gate {
    _Atomic uint32_t word;
    _Atomic int sleepers;
} bk_gate;

typedef struct bk_ctx {
    const braid_tensor_v1 *in; /* validated against bk_inputs */
    braid_tensor_v1 *out;      /* BK_NOUT entries for unit 0 to fill */
    char *arena;               /* working memory, 64-byte aligned, content undefined */
    size_t arena_size;
    _Atomic size_t arena_need; /* with BK_GROW: bytes that would have sufficed, as far as known */
    int nslot;
    char **slot;               /* nslot growable buffers outside the arena, 64-byte aligned */
    int64_t *cap;              /* bytes of each of them */
    _Atomic int64_t *cap_need; /* with BK_GROW: bytes that would have sufficed */
    int64_t max_iterations;    /* of any one loop */
    int64_t stack_depth;       /* of activations of recursive functions inside each other */
    _Atomic int deep;          /* the fault is that there were more */
    _Atomic int fault;         /* site + 1 of the first fault, 0: none */
    int64_t barriers;          /* passed in this run (only counted when nunit > 1) */
    int nunit;
    int spin;    /* pauses before a waiting thread sleeps */
    int verdict; /* of the last barrier */
    _Alignas(64) _Atomic int arrived;
    _Alignas(64) bk_gate phase;
} bk_ctx;

static inline void bk_pause(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* Waits until g->word is no longer `old`: spins, then sleeps. */
static void bk_gate_wait(bk_gate *g, uint32_t old, int spin) {
    for (int i = 0; i < spin; i++) {
        if (atomic_load_explicit(&g->word, memory_order_acquire) != old) return;
        bk_pause();
    }
    atomic_fetch_add(&g->sleepers, 1);
    while (atomic_load(&g->word) == old) {
#ifdef __linux__
        syscall(SYS_futex, (uint32_t *)&g->word, FUTEX_WAIT_PRIVATE, old, NULL, NULL, 0);
#else
        nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
#endif
    }
    atomic_fetch_sub(&g->sleepers, 1);
}

/* Gives g->word its next value and wakes whoever waits. A sleeper announces itself before it looks
 * at the word a last time, and the word is written before the sleepers are counted: none is missed.
 */
static void bk_gate_open(bk_gate *g, uint32_t word) {
    atomic_store(&g->word, word);
    if (atomic_load(&g->sleepers) != 0) {
#ifdef __linux__
        syscall(SYS_futex, (uint32_t *)&g->word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
#endif
    }
}

/* Records a fault; the first one of a run wins. The unit goes on to its next barrier. */
static inline void bk_fault(bk_ctx *k, int site) {
    int none = 0;
    atomic_compare_exchange_strong(&k->fault, &none, site + 1);
}

/* Ask for more memory; the run then has to end with BK_GROW. */
static inline void bk_need_arena(bk_ctx *k, size_t bytes) {
    size_t had = atomic_load(&k->arena_need);
    while (had < bytes && !atomic_compare_exchange_weak(&k->arena_need, &had, bytes)) {}
}
static inline void bk_need_slot(bk_ctx *k, int slot, int64_t bytes) {
    int64_t had = atomic_load(&k->cap_need[slot]);
    while (had < bytes && !atomic_compare_exchange_weak(&k->cap_need[slot], &had, bytes)) {}
}

/* What the run has come to so far. Only agreed between units when one of them asks for all. */
static inline int bk_state(bk_ctx *k) {
    if (atomic_load_explicit(&k->fault, memory_order_relaxed)) return BK_FAULT;
    if (atomic_load_explicit(&k->arena_need, memory_order_relaxed) > k->arena_size) return BK_GROW;
    for (int i = 0; i < k->nslot; i++)
        if (atomic_load_explicit(&k->cap_need[i], memory_order_relaxed) > k->cap[i]) return BK_GROW;
    return BK_OK;
}

/* All units meet here; what any wrote before, all see after. Returns BK_OK, or BK_FAULT or BK_GROW
 * when some unit recorded a fault or a need before it came: the same value for every unit, which
 * may then leave the kernel with it. With one unit nothing is waited for. */
static inline int bk_barrier(bk_ctx *k) {
    if (k->nunit == 1) return bk_state(k);
    /* The phase cannot move before this unit has arrived, so it is read first. */
    uint32_t p = atomic_load_explicit(&k->phase.word, memory_order_relaxed);
    if (atomic_fetch_add_explicit(&k->arrived, 1, memory_order_acq_rel) + 1 == k->nunit) {
        k->barriers++;
        k->verdict = bk_state(k);
        atomic_store_explicit(&k->arrived, 0, memory_order_relaxed);
        bk_gate_open(&k->phase, p + 1);
    } else
        bk_gate_wait(&k->phase, p, k->spin);
    return k->verdict;
}
