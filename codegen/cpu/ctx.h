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
#include <time.h>
#ifdef __linux__
#include <linux/futex.h>
#include <limits.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

enum { BK_OK = 0, BK_GROW = 1, BK_FAULT = 2 };

/* Two cache lines: processors fetch them in pairs. */
#define BK_LINE 128
/* Rounds of a barrier of the largest team. */
#define BK_ROUNDS 8

/* Looks at a word, in a row, at the beginning of a wait. */
#define BK_LOOKS 64

/* A word that one thread posts turns to and others wait on:
 * turn << 3 | state << 1 | whether someone may sleep on it. */
typedef _Atomic uint32_t bk_word;
#define BK_TURN(word) ((word) >> 3)
#define BK_TURN_MASK 0x1fffffffu

/* A unit's own part of the team. */
typedef struct bk_unit {
    _Alignas(BK_LINE) uint32_t turn; /* barriers passed in this session */
    int64_t spin, idle; /* ns before a wait inside a run or between runs becomes a sleep */
    /* What other units post to this one, by round of the barrier, of even and of odd turns. */
    struct {
        _Alignas(BK_LINE) bk_word word[2];
    } in[BK_ROUNDS];
} bk_unit;

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
    uint64_t seed;             /* of the run's random numbers */
    int64_t stack_depth;       /* of activations of recursive functions inside each other */
    int64_t depth_cap; /* >= stack_depth; more only while a run measures its depth: one unit does */
    int64_t depth_budget; /* activations beyond stack_depth that it may still begin */
    char *stack_low;      /* its C stack may not go below */
    _Atomic int deep;     /* site + 1 of the first function that went beyond stack_depth, 0: none */
    _Atomic int64_t deepest; /* how far one went */
    _Atomic int capped;      /* it would have gone on */
    _Atomic int fault;       /* site + 1 of the first fault, 0: none */
    _Atomic int wants;       /* site + 1 of the first that there was no memory for, 0: none */
    int64_t said[4];         /* its values; BK_UNSAID: not known */
    _Atomic int state;       /* what the run has come to, as far as this unit can see */
    int nunit;
    int crowded; /* more units than CPUs: the others run when this one does not */
    bk_unit *unit;
    int64_t spin_most;                /* ns: no wait spins longer than this */
    void (*stalled)(struct bk_ctx *); /* NULL, or called by unit 0 before it sleeps */
} bk_ctx;

static inline void bk_pause(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* Between two looks at a word that is about to change: shorter than a pause, which is 5 to 40 ns,
 * but long enough for the other core to get the line for writing before this one takes it back. */
static inline void bk_space(void) {
#if defined(__x86_64__) || defined(__i386__)
    (void)__builtin_ia32_rdtsc();
#else
    bk_pause();
#endif
}

static int64_t bk_clock(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000ll + t.tv_nsec;
}

/* The state posted with `turn`, when that is what the word holds; else -1. */
static inline int bk_look(bk_word *w, uint32_t turn) {
    uint32_t now = atomic_load_explicit(w, memory_order_acquire);
    return BK_TURN(now) == turn ? (int)(now >> 1 & 3) : -1;
}

/* The rest of bk_await: spins for a while, then sleeps. How long the next wait spins follows from
 * this one: spinning pays for a wait about as long as waking up takes, and is lost on a longer one,
 * as when another process has the other unit's CPU. */
static __attribute__((noinline)) int bk_await_long(bk_ctx *k, int unit, bk_word *w, uint32_t turn,
                                                   int64_t *spin) {
    int64_t start = bk_clock(), now = start;
    int state;
    while (now - start < *spin) {
        for (int i = 0; i < 32; i++) {
            if ((state = bk_look(w, turn)) >= 0) return state;
            if (k->crowded)
                sched_yield();
            else
                bk_pause();
        }
        now = bk_clock();
    }
    if (unit == 0 && k->stalled) k->stalled(k);
    for (;;) {
        uint32_t seen = atomic_load_explicit(w, memory_order_relaxed);
        if ((state = bk_look(w, turn)) >= 0) break;
        if (BK_TURN(seen) == turn) continue;
        /* The bit goes in before the sleep, and whoever posts finds it. */
        if (!(seen & 1) && !atomic_compare_exchange_strong(w, &seen, seen | 1)) continue;
#ifdef __linux__
        syscall(SYS_futex, (uint32_t *)w, FUTEX_WAIT_PRIVATE, seen | 1, NULL, NULL, 0);
#else
        nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
#endif
    }
    *spin = bk_clock() - start < 2 * k->spin_most ? 2 * *spin : *spin / 2;
    if (*spin > k->spin_most) *spin = k->spin_most;
    if (*spin < k->spin_most / 16) *spin = k->spin_most / 16;
    return state;
}

/* Waits until `turn` is posted in w; returns the state posted with it. No other turn than the one
 * before may be there meanwhile. */
static inline int bk_await(bk_ctx *k, int unit, bk_word *w, uint32_t turn, int64_t *spin) {
    int state;
    for (int i = 0; i < (k->crowded ? 1 : BK_LOOKS); i++) {
        if ((state = bk_look(w, turn)) >= 0) return state;
        bk_space();
    }
    return bk_await_long(k, unit, w, turn, spin);
}

static inline void bk_post(bk_word *w, uint32_t turn, int state) {
    uint32_t had =
        atomic_exchange_explicit(w, turn << 3 | (uint32_t)state << 1, memory_order_acq_rel);
#ifdef __linux__
    if (had & 1) syscall(SYS_futex, (uint32_t *)w, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
#else
    (void)had;
#endif
}

/* Records a fault and its values; the first one of a run wins. The unit goes on to its next
 * barrier. */
#define BK_UNSAID INT64_MIN
static __attribute__((noinline, cold, unused)) void bk_fault_said(bk_ctx *k, int site, int64_t a,
                                                                  int64_t b, int64_t c, int64_t d) {
    int none = 0;
    if (atomic_compare_exchange_strong(&k->fault, &none, site + 1))
        k->said[0] = a, k->said[1] = b, k->said[2] = c, k->said[3] = d;
    atomic_store(&k->state, BK_FAULT);
}
static inline void bk_fault(bk_ctx *k, int site) {
    bk_fault_said(k, site, BK_UNSAID, BK_UNSAID, BK_UNSAID, BK_UNSAID);
}

/* An activation beyond stack_depth; 0 when it may not begin. */
static inline int bk_deeper(bk_ctx *k, int64_t depth, int site) {
    int none = 0;
    char here;
    atomic_compare_exchange_strong(&k->deep, &none, site + 1);
    if (depth <= k->depth_cap && k->depth_budget-- > 0 &&
        (uintptr_t)&here > (uintptr_t)k->stack_low) {
        if (atomic_load(&k->deepest) < depth) atomic_store(&k->deepest, depth);
        return 1;
    }
    atomic_store(&k->capped, 1);
    bk_fault(k, site);
    return 0;
}

/* There was no memory for what the site names. */
static inline void bk_want(bk_ctx *k, int site) {
    int none = 0;
    atomic_compare_exchange_strong(&k->wants, &none, site + 1);
}
/* Ask for more memory; the run then has to end with BK_GROW. */
static inline void bk_grow(bk_ctx *k) {
    int none = BK_OK;
    atomic_compare_exchange_strong(&k->state, &none, BK_GROW);
}
static inline void bk_need_arena(bk_ctx *k, size_t bytes) {
    size_t had = atomic_load(&k->arena_need);
    while (had < bytes && !atomic_compare_exchange_weak(&k->arena_need, &had, bytes)) {}
    if (bytes > k->arena_size) bk_grow(k);
}
static inline void bk_need_slot(bk_ctx *k, int slot, int64_t bytes) {
    int64_t had = atomic_load(&k->cap_need[slot]);
    while (had < bytes && !atomic_compare_exchange_weak(&k->cap_need[slot], &had, bytes)) {}
    if (bytes > k->cap[slot]) bk_grow(k);
}

/* What the run has come to so far. Only agreed between units when one of them asks for all. */
static inline int bk_state(bk_ctx *k) {
    return atomic_load_explicit(&k->state, memory_order_relaxed);
}

/* The same at the end of an iteration without a barrier, where one unit alone may stop by itself.
 */
static inline int bk_loop_state(bk_ctx *k, int nunit) { return nunit == 1 ? bk_state(k) : BK_OK; }

/* Who does what one of all units, or one of a team of one, has to do. */
static inline int bk_lead(int unit) { return unit == 0; }

/* Output i, without its dimensions. */
static inline void bk_output(bk_ctx *k, int i, const void *data, int dtype, int rank) {
    k->out[i] = (braid_tensor_v1){(void *)(uintptr_t)data, dtype, rank, {0}};
}

/* All units meet here; what any wrote before, all see after. Returns BK_OK, or BK_FAULT or BK_GROW
 * when some unit recorded a fault or a need before it came: the same value for every unit, which
 * may then leave the kernel with it. With one unit nothing is waited for.
 *
 * In round r a unit posts to the one 2^r further on the worst state that it has heard of, and waits
 * for the one 2^r before it. A word has one writer and one reader, and is used again two turns
 * later, when its reader is known to have read it. */
static inline int bk_barrier(bk_ctx *k, int unit) {
    int state = bk_state(k), nunit = k->nunit;
    bk_unit *u = &k->unit[unit];
    uint32_t turn = u->turn + 1;
    u->turn = turn;
    for (int r = 0, step = 1; step < nunit; r++, step *= 2) {
        int to = unit + step, heard;
        if (to >= nunit) to -= nunit;
        bk_post(&k->unit[to].in[r].word[turn & 1], turn & BK_TURN_MASK, state);
        heard = bk_await(k, unit, &u->in[r].word[turn & 1], turn & BK_TURN_MASK, &u->spin);
        if (state < heard) state = heard;
    }
    return state;
}
