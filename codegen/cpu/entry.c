/* entry.c: the end of every emitted program: sessions, their threads and memory, and braid_model().
 *
 * Pasted after braid_model.h, ctx.h, the kernel and entry.h. Beside what entry.h asks for, the text
 * before it may define BK_FRAME_BYTES     a bound on the C stack of one activation of a recursive
 * function BK_UNITS           units of a session that does not say how many (else: all CPUs)
 */
#include <pthread.h>
#include <unistd.h>
#include <sys/mman.h>
#ifdef BK_FRAME_BYTES
#include <ucontext.h>
#endif

#define BK_MAX_UNITS 256
#define BK_STACK_BYTES ((size_t)8 << 20)
/* How far a recursion that was too deep is followed to tell how deep it is. */
#define BK_MEASURED_DEPTH ((int64_t)1 << 20)
#define BK_MEASURED_BYTES ((size_t)1 << 28) /* of stack, and of working memory */

/* A wait spins about as long as it takes to be woken up. */
#define BK_SPIN_NS 50000

typedef struct bk_worker {
    struct bk_session *session;
    pthread_t thread;
    char *stack; /* NULL: the thread library's */
    int unit;
    int cpu;                        /* that it is bound to, when the team is */
    _Alignas(BK_LINE) bk_word done; /* the last run that it has finished */
} bk_worker;

typedef struct bk_session {
    bk_ctx k;
    braid_tensor_v1 out[BK_NOUT + 1];
    char *slot[BK_NSLOT + 1];
    int64_t cap[BK_NSLOT + 1];
    _Atomic int64_t cap_need[BK_NSLOT + 1];
    _Atomic int busy;
    bk_seed seed;
    int64_t most;               /* bytes that it may take */
    int64_t restarts, barriers; /* of the last run */
    /* Workers wait for the next turn of `start`, run the kernel and post the turn as done. */
    uint32_t turn;
    _Atomic int quit;
    int nworker; /* threads that were started */
    char
        *forked; /* a word that a fork leaves 0 in the child, which has no workers; NULL: unknown */
    int cpus;    /* that there were at the start */
    int bound;   /* every worker has a CPU of its own */
    int own;     /* and this is where unit 0 was last seen */
#ifdef BK_FRAME_BYTES
    char *stack; /* of unit 0 */
    size_t stack_bytes;
    ucontext_t back;
    int code;
#endif
    _Alignas(BK_LINE) bk_word start;
    bk_worker *worker; /* room for all but unit 0 */
} bk_session;

/* `bytes` of 64-byte aligned memory, NULL when there is none. */
static char *bk_alloc(size_t bytes) {
    if (bytes > BK_MAX_BYTES) return NULL;
    return aligned_alloc(64, bytes ? (bytes + 63) & ~(size_t)63 : 64);
}

/* The same, zeroed, and with cache lines of its own. */
static void *bk_lines(size_t bytes) {
    size_t n = bytes ? (bytes + BK_LINE - 1) / BK_LINE * BK_LINE : BK_LINE;
    void *p = aligned_alloc(BK_LINE, n);
    return p ? memset(p, 0, n) : NULL;
}

/* Memory in place of what is there, whose content is not needed: the two never exist side by side.
 */
static int bk_renew(char **p, size_t bytes) {
    free(*p);
    return (*p = bk_alloc(bytes)) != NULL;
}

/* Takes the memory that the run before asked for, and an arena of `need` bytes; a status. */
static int bk_take(bk_session *s, size_t need, char *message, size_t size) {
    int64_t slot_need[BK_NSLOT + 1];
    const int wants = atomic_load(&s->k.wants);
    size_t had = s->k.arena_size;
    for (int i = 0; i < BK_NSLOT; i++) slot_need[i] = atomic_load(&s->cap_need[i]);
    const bk_wish w = bk_wish_for(had, need, s->cap, slot_need, s->most);
    int ok = w.sum <= s->most;
    if (ok && (!s->k.arena || w.arena > had)) {
        s->k.arena_size = 0;
        if ((ok = bk_renew(&s->k.arena, w.arena))) s->k.arena_size = w.arena;
    }
    for (int i = 0; ok && i < BK_NSLOT; i++) {
        if (s->slot[i] && w.slot[i] <= s->cap[i]) continue;
        s->cap[i] = 0;
        if ((ok = bk_renew(&s->slot[i], (size_t)w.slot[i]))) s->cap[i] = w.slot[i];
    }
    for (int i = 0; i < BK_NSLOT && !ok; i++) /* the next run asks for itself */
        atomic_store(&s->cap_need[i], 0);
    if (ok) return BK_ST_OK;
    return w.sum > s->most ? bk_say_limit(wants, w.sum, s->most, message, size)
                           : bk_say_memory(wants, had, message, size);
}

/* ---- stacks: recursion uses the C stack, so that stack_depth activations must fit ------------ */
#ifdef BK_FRAME_BYTES
#define BK_GUARD ((size_t)65536)
/* Memory that is used only as far as it is touched; what lies below it cannot be touched. */
static char *bk_stack_new(size_t bytes) {
    int flags = MAP_PRIVATE | MAP_ANONYMOUS;
#ifdef MAP_NORESERVE
    flags |= MAP_NORESERVE;
#endif
    char *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (p == MAP_FAILED) return NULL;
    if (mprotect(p, BK_GUARD, PROT_NONE) == 0) return p;
    munmap(p, bytes);
    return NULL;
}
static void bk_unit_0(unsigned high, unsigned low) {
    bk_session *s = (bk_session *)(((uintptr_t)high << 16 << 16) | low);
    s->code = braid_kernel(&s->k, 0, s->k.nunit);
}
static int bk_run_unit_0(bk_session *s, char *stack, size_t stack_bytes) {
    ucontext_t own;
    uint64_t at = (uintptr_t)s;
    getcontext(&own);
    own.uc_stack.ss_sp = stack + BK_GUARD;
    own.uc_stack.ss_size = stack_bytes - BK_GUARD;
    own.uc_link = &s->back;
    makecontext(&own, (void (*)(void))bk_unit_0, 2, (unsigned)(at >> 32), (unsigned)at);
    swapcontext(&s->back, &own);
    return s->code;
}
#endif

/* ---- the team -------------------------------------------------------------------------------- */
static void *bk_work(void *arg) {
    bk_worker *w = arg;
    bk_session *s = w->session;
    for (uint32_t turn = BK_TURN(w->done);;) {
        turn = (turn + 1) & BK_TURN_MASK;
        bk_await(&s->k, w->unit, &s->start, turn, &s->k.unit[w->unit].idle);
        if (atomic_load(&s->quit)) return NULL;
        braid_kernel(&s->k, w->unit, s->k.nunit);
        bk_post(&w->done, turn, BK_OK);
    }
}

/* CPUs that this process may use: of its affinity mask, and of its control group's share of time (a
 * thread more than that would wait for the others to be let run). */
static int bk_cpus(void) {
    long n = sysconf(_SC_NPROCESSORS_ONLN);
#ifdef __linux__
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0) n = CPU_COUNT(&set);
    FILE *f = fopen("/sys/fs/cgroup/cpu.max", "re");
    long quota, period;
    if (f && fscanf(f, "%ld %ld", &quota, &period) == 2 && period > 0 && quota / period < n)
        n = quota / period;
    if (f) fclose(f);
#endif
    return n > 0 ? (int)n : 1;
}

#ifdef __linux__
static void bk_bind(bk_worker *w, int cpu) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    w->cpu = cpu;
    /* Where this is not allowed the thread stays where it was. */
    pthread_setaffinity_np(w->thread, sizeof set, &set);
}

/* The first CPU of the core that `cpu` is a thread of. */
static int bk_core(int cpu) {
    char path[80];
    int first = cpu;
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", cpu);
    FILE *f = fopen(path, "re");
    if (f && fscanf(f, "%d", &first) != 1) first = cpu;
    if (f) fclose(f);
    return first;
}

/* Gives every worker a CPU of its own, from the one behind the caller's on, so that teams of
 * callers on different CPUs take different ones. Second threads of a core come last. */
static void bk_bind_team(bk_session *s) {
    cpu_set_t mask, taken, core;
    int own = sched_getcpu(), n = 0;
    if (own < 0 || own >= CPU_SETSIZE || sched_getaffinity(0, sizeof mask, &mask) ||
        !CPU_ISSET(own, &mask))
        return;
    CPU_ZERO(&taken);
    CPU_ZERO(&core);
    CPU_SET(own, &taken);
    CPU_SET(bk_core(own), &core);
    for (int second = 0; second < 2; second++)
        for (int i = 1; i < CPU_SETSIZE && n < s->nworker; i++) {
            int cpu = (own + i) % CPU_SETSIZE;
            if (!CPU_ISSET(cpu, &mask) || CPU_ISSET(cpu, &taken)) continue;
            int first = bk_core(cpu);
            if (!second && CPU_ISSET(first, &core)) continue;
            CPU_SET(cpu, &taken);
            CPU_SET(first, &core);
            bk_bind(&s->worker[n++], cpu);
        }
    s->own = own;
    s->bound = 1;
}

/* The caller's thread runs where it likes, and may have come to a worker's CPU: that worker takes
 * the CPU that the caller left. */
static void bk_move_away(bk_ctx *k) {
    bk_session *s = (bk_session *)k;
    int own = s->bound ? sched_getcpu() : s->own;
    if (own == s->own) return;
    for (int i = 0; i < s->nworker; i++)
        if (s->worker[i].cpu == own) bk_bind(&s->worker[i], s->own);
    s->own = own;
}
#else
static void bk_bind_team(bk_session *s) { s->bound = 0; }
static void bk_move_away(bk_ctx *k) { (void)k; }
#endif

/* A word that is 1 here and 0 in processes forked from this one. */
static char *bk_mark(void) {
    char *p = NULL;
#ifdef MADV_WIPEONFORK
    p = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) return NULL;
    if (madvise(p, 4096, MADV_WIPEONFORK)) {
        munmap(p, 4096);
        return NULL;
    }
    *p = 1;
#endif
    return p;
}

static void bk_team_end(bk_session *s) {
    atomic_store(&s->quit, 1);
    s->turn = (s->turn + 1) & BK_TURN_MASK;
    bk_post(&s->start, s->turn, BK_OK);
    for (int i = 0; i < s->nworker; i++) pthread_join(s->worker[i].thread, NULL);
    atomic_store(&s->quit, 0);
    s->nworker = 0;
}

/* Starts the workers of a new session, or again those that a fork left behind; 0 when it cannot. */
static int bk_team(bk_session *s) {
    pthread_attr_t attr;
    int ok = pthread_attr_init(&attr) == 0;
    if (!ok) return 0;
    pthread_attr_setstacksize(&attr, BK_STACK_BYTES);
    s->nworker = 0;
    for (int i = 1; ok && i < s->k.nunit; i++) {
        bk_worker *w = &s->worker[s->nworker];
        w->session = s;
        w->unit = i;
        w->done = s->turn << 3;
#ifdef BK_FRAME_BYTES
        if (!w->stack) w->stack = bk_stack_new(s->stack_bytes);
        ok = w->stack &&
             !pthread_attr_setstack(&attr, w->stack + BK_GUARD, s->stack_bytes - BK_GUARD);
#endif
        ok = ok && pthread_create(&w->thread, &attr, bk_work, w) == 0;
        s->nworker += ok;
    }
    pthread_attr_destroy(&attr);
    s->bound = 0;
    if (!ok)
        bk_team_end(s);
    else if (s->k.nunit <= s->cpus)
        bk_bind_team(s);
    if (ok && s->forked) *s->forked = 1;
    return ok;
}

static void bk_session_free(void *session) {
    bk_session *s = session;
    if (!s) return;
    if (!s->forked || *s->forked) bk_team_end(s);
#ifdef BK_FRAME_BYTES
    for (int i = 0; s->worker && i < s->k.nunit - 1; i++)
        if (s->worker[i].stack) munmap(s->worker[i].stack, s->stack_bytes);
    if (s->stack) munmap(s->stack, s->stack_bytes);
#endif
    if (s->forked) munmap(s->forked, 4096);
    free(s->k.arena);
    for (int i = 0; i < BK_NSLOT; i++) free(s->slot[i]);
    free(s->worker);
    free(s->k.unit);
    free(s);
}

static int bk_session_new(const braid_session_config_v1 *config, void **session) {
    braid_session_config_v1 c;
    int st = bk_config(config, session, &c);
    if (st) return st;
    bk_session *s = bk_lines(sizeof(bk_session));
    if (!s) return BK_ST_MEMORY;
    s->cpus = bk_cpus();
#ifdef BK_UNITS
    int units = BK_UNITS < s->cpus ? BK_UNITS : s->cpus;
#else
    int units = s->cpus;
#endif
    if (c.threads) units = c.threads;
    if (units > BK_MAX_UNITS) units = BK_MAX_UNITS;
    s->k.nunit = units;
    s->k.spin_most = BK_SPIN_NS;
    s->k.crowded = units > s->cpus;
    s->k.stalled = bk_move_away;
    s->k.max_iterations = c.max_iterations;
    s->k.stack_depth = c.stack_depth ? c.stack_depth : 10000;
    s->k.depth_cap = s->k.stack_depth;
    s->k.out = s->out;
    s->k.nslot = BK_NSLOT;
    s->k.slot = s->slot;
    s->k.cap = s->cap;
    s->k.cap_need = s->cap_need;
    s->k.unit = bk_lines((size_t)units * sizeof *s->k.unit);
    s->worker = bk_lines((size_t)(units - 1) * sizeof *s->worker);
    s->most = c.max_memory;
    if (!s->most) {
        int64_t share = bk_memory_share();
        s->most = share < INT64_MAX ? share + (int64_t)BK_ARENA : share;
    }
    int ok = s->k.unit && s->worker;
    if (ok && (st = bk_take(s, BK_ARENA, c.message, c.message_size))) {
        bk_session_free(s);
        return st;
    }
    for (int i = 0; ok && i < units; i++) s->k.unit[i].spin = s->k.unit[i].idle = s->k.spin_most;
#ifdef BK_FRAME_BYTES
    ok = ok && s->k.stack_depth <= (int64_t)(BK_MAX_BYTES / BK_FRAME_BYTES);
    if (ok) {
        s->stack_bytes = BK_STACK_BYTES + (size_t)s->k.stack_depth * BK_FRAME_BYTES;
        s->stack_bytes = (s->stack_bytes + BK_GUARD - 1) / BK_GUARD * BK_GUARD;
        s->stack = bk_stack_new(s->stack_bytes);
        ok = s->stack != NULL;
    }
#endif
    if (ok && units > 1) {
        s->forked = bk_mark();
        ok = bk_team(s);
    }
    if (!ok) {
        bk_session_free(s);
        bk_say(c.message, c.message_size, "no memory or threads for a session");
        return BK_ST_MEMORY;
    }
    *session = s;
    return BK_ST_OK;
}

#define BK_SET(p, x)                                                                               \
    (atomic_load_explicit(p, memory_order_relaxed) != (x)                                          \
         ? atomic_store_explicit(p, x, memory_order_relaxed)                                       \
         : (void)0)

/* What the workers read is written only when it changes: it stays in their caches. */
static void bk_reset(bk_session *s) {
    BK_SET(&s->k.fault, 0);
    BK_SET(&s->k.wants, 0);
    BK_SET(&s->k.state, BK_OK);
    BK_SET(&s->k.deep, 0);
    BK_SET(&s->k.deepest, 0);
    BK_SET(&s->k.capped, 0);
    BK_SET(&s->k.arena_need, 0);
    for (int i = 0; i < BK_NSLOT; i++) BK_SET(&s->cap_need[i], 0);
}

/* One pass of the kernel over all units. */
static int bk_launch(bk_session *s) {
    bk_reset(s);
    uint32_t turn = s->k.unit[0].turn;
    if (s->nworker) {
        bk_move_away(&s->k);
        s->turn = (s->turn + 1) & BK_TURN_MASK;
        bk_post(&s->start, s->turn, BK_OK);
    }
#ifdef BK_FRAME_BYTES
    int code = bk_run_unit_0(s, s->stack, s->stack_bytes);
#else
    int code = braid_kernel(&s->k, 0, s->k.nunit);
#endif
    for (int i = 0; i < s->nworker; i++)
        bk_await(&s->k, 0, &s->worker[i].done, s->turn, &s->k.unit[0].spin);
    s->barriers = s->nworker ? s->k.unit[0].turn - turn : 0;
    return code;
}

#ifdef BK_FRAME_BYTES
/* The recursion went too deep: says how deep it wants to go. One unit runs it again on a stack of
 * its own, and what comes out is dropped. */
static void bk_say_depth(bk_session *s, char *message, size_t size) {
    bk_ctx *k = &s->k;
    int nunit = k->nunit, site = atomic_load(&k->deep) - 1;
    uint32_t turn = k->unit[0].turn;
    int64_t deepest = k->stack_depth;
    int capped = 1;
    char *stack = bk_stack_new(BK_MEASURED_BYTES);
    if (stack) {
        k->nunit = 1;
        k->stack_low = stack + BK_GUARD + BK_STACK_BYTES + BK_FRAME_BYTES;
        k->depth_cap = k->stack_depth > BK_MEASURED_DEPTH ? k->stack_depth : BK_MEASURED_DEPTH;
        for (size_t arena = k->arena_size;;) {
            k->depth_budget = BK_MEASURED_DEPTH;
            bk_reset(s);
            int code = bk_run_unit_0(s, stack, BK_MEASURED_BYTES);
            capped = code != BK_OK;
            /* Something else may have ended it in its deepest activation. */
            int64_t last = atomic_load(&k->deepest) - (capped && !atomic_load(&k->capped));
            if (last > deepest) deepest = last;
            if (code != BK_GROW || bk_state(k) != BK_GROW) break;
            size_t need = atomic_load(&k->arena_need);
            if (need > arena) arena = need > 2 * arena ? need : 2 * arena;
            if (arena > BK_MEASURED_BYTES || bk_take(s, arena, NULL, 0)) break;
        }
        munmap(stack, BK_MEASURED_BYTES);
        k->depth_cap = k->stack_depth;
        k->nunit = nunit;
        k->unit[0].turn = turn; /* the others did not pass its barriers */
        free(k->arena);         /* the next run takes what it needs */
        k->arena = NULL;
        k->arena_size = 0;
    }
    bk_say(message, size, "%s %s%lld; the limit is %lld (--stack-depth)", bk_sites[site],
           capped ? "more than " : "", (long long)deepest, (long long)k->stack_depth);
}
#endif

static int bk_run_locked(bk_session *s, const braid_tensor_v1 *in, braid_tensor_v1 *out,
                         char *message, size_t size) {
    s->restarts = 0;
    if (s->forked && !*s->forked && !bk_team(s)) {
        bk_say(message, size, "the threads of the session cannot be started again after a fork");
        return BK_ST_MEMORY;
    }
    int st = bk_check_inputs(in, message, size);
    if (st) return st;
#ifdef BK_DRAWS
    s->k.seed = bk_seed_next(&s->seed);
#endif
    if (s->k.in != in) s->k.in = in;
    for (size_t need = BK_ARENA;; s->restarts++) {
        if ((st = bk_take(s, need, message, size))) return st;
        int code = bk_launch(s);
        if (code == BK_OK) {
            if (BK_NOUT) memcpy(out, s->out, BK_NOUT * sizeof *out);
            return BK_ST_OK;
        }
        /* A unit that has faulted goes on, and may then ask for memory: the fault was first. */
        if (code != BK_GROW || bk_state(&s->k) != BK_GROW) {
#ifdef BK_FRAME_BYTES
            if (atomic_load(&s->k.deep)) {
                bk_say_depth(s, message, size);
                return BK_ST_RUNTIME;
            }
#endif
            return bk_say_fault(atomic_load(&s->k.fault), s->k.said, message, size);
        }
        need = atomic_load(&s->k.arena_need);
        if (need < BK_ARENA) need = BK_ARENA;
    }
}

static int bk_run(void *session, const braid_tensor_v1 *in, braid_tensor_v1 *out, char *message,
                  size_t size) {
    bk_session *s = session;
    int st = bk_enter(s ? &s->busy : NULL, in, out, message, size);
    if (st) return st;
    st = bk_run_locked(s, in, out, message, size);
    atomic_store(&s->busy, 0);
    return st;
}

static int bk_set_seed(void *session, uint64_t seed) {
    bk_session *s = session;
    if (!s) return BK_ST_USAGE;
    bk_seed_set(&s->seed, seed);
    return BK_ST_OK;
}

static int64_t bk_stat(void *session, int which) {
    const bk_session *s = session;
    int64_t n = 0;
    switch (which) {
    case BRAID_STAT_BARRIERS: return s->barriers;
    case BRAID_STAT_ARENA_BYTES:
        for (int i = 0; i < BK_NSLOT; i++) n += s->cap[i];
        return n + (int64_t)s->k.arena_size;
    case BRAID_STAT_RESTARTS: return s->restarts;
    case BRAID_STAT_THREADS: return s->k.nunit;
    default: return -1;
    }
}

__attribute__((visibility("default"))) const braid_model_v1 *braid_model(void) {
    static const braid_model_v1 model = {BRAID_ABI_VERSION,
                                         sizeof(braid_model_v1),
                                         BK_NAME,
                                         "cpu",
                                         BK_NIN,
                                         BK_NOUT,
                                         bk_inputs,
                                         bk_outputs,
                                         bk_session_new,
                                         bk_session_free,
                                         bk_run,
                                         bk_stat,
                                         BRAID_DEVICE_CPU,
                                         NULL,
                                         NULL,
                                         NULL,
                                         NULL,
                                         NULL,
                                         BK_DRAWN,
                                         bk_set_seed};
    return &model;
}
