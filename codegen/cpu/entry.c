/* entry.c: the end of every emitted program: sessions, their threads and memory, and braid_model().
 *
 * Pasted after braid_model.h, ctx.h and the kernel. The text before it defines
 *   BK_NAME            the graph's name, a string
 *   BK_NIN, BK_NOUT    counts; bk_inputs[], bk_outputs[]: braid_io_v1, at least one entry each
 *   BK_ARENA           bytes of working memory at the start (size_t)
 *   BK_NSLOT           growable buffers; may be 0
 *   BK_NSITE           fault texts; bk_sites[]: const char *, at least one entry
 *   BK_SLOT_BYTES      optional: of a growable buffer at the start
 *   BK_WEIGHTS_CHECK   optional: bk_weights is NULL when the file of weights is missing
 *   BK_FRAME_BYTES     optional: a bound on the C stack of one activation of a recursive function
 *   BK_UNITS           optional: units of a session that does not say how many (else: all CPUs)
 */
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#ifdef BK_FRAME_BYTES
#include <sys/mman.h>
#include <ucontext.h>
#endif

enum { BK_ST_OK = 0, BK_ST_INPUT = 3, BK_ST_RUNTIME = 4, BK_ST_MEMORY = 5, BK_ST_IO = 6, BK_ST_USAGE = 7 };
#define BK_MAX_UNITS 256
#define BK_MAX_BYTES ((size_t)1 << 40)
#ifndef BK_SLOT_BYTES
#define BK_SLOT_BYTES 65536
#endif
#define BK_STACK_BYTES ((size_t)8 << 20)

typedef struct bk_worker {
    struct bk_session *session;
    pthread_t thread;
    char *stack; /* NULL: the thread library's */
    int unit;
} bk_worker;

typedef struct bk_session {
    bk_ctx k;
    braid_tensor_v1 out[BK_NOUT + 1];
    char *slot[BK_NSLOT + 1];
    int64_t cap[BK_NSLOT + 1];
    _Atomic int64_t cap_need[BK_NSLOT + 1];
    _Atomic int busy;
    int64_t restarts;
    /* Workers wait for `start` to change, run the kernel, and count themselves off in `left`; the
     * last one changes `done`. */
    bk_gate start, done;
    _Atomic int left, quit;
    int nworker; /* threads that were started */
#ifdef BK_FRAME_BYTES
    char *stack; /* of unit 0 */
    size_t stack_bytes;
    ucontext_t back;
    int code;
#endif
    bk_worker worker[BK_MAX_UNITS];
} bk_session;

static void bk_say(char *message, size_t size, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
static void bk_say(char *message, size_t size, const char *fmt, ...) {
    if (!message || size == 0) return;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(message, size, fmt, ap);
    va_end(ap);
}

static const char *bk_dtype_name(int t) {
    static const char *const name[] = {"none",       "float32", "uint8",  "int8",   "uint16",
                                       "int16",      "int32",   "int64",  "string", "bool",
                                       "float16",    "float64", "uint32", "uint64", "complex64",
                                       "complex128", "bfloat16"};
    return t >= 0 && t < (int)(sizeof name / sizeof name[0]) ? name[t] : "unknown";
}
static size_t bk_dtype_size(int t) {
    switch (t) {
    case 2:
    case 3:
    case 9: return 1;
    case 4:
    case 5:
    case 10:
    case 16: return 2;
    case 1:
    case 6:
    case 12: return 4;
    case 7:
    case 11:
    case 13: return 8;
    default: return 0;
    }
}

/* "float32[2,n,?]" into text. */
static void bk_shape_text(char *text, size_t size, int dtype, int rank, const int64_t *dim,
                          const char *const *dim_name) {
    size_t n = (size_t)snprintf(text, size, "%s", dtype ? bk_dtype_name(dtype) : "any type");
    if (rank < 0) return;
    for (int i = 0; i < rank && n < size; i++) {
        const char *sep = i ? "," : "[";
        if (dim[i] >= 0)
            n += (size_t)snprintf(text + n, size - n, "%s%lld", sep, (long long)dim[i]);
        else
            n += (size_t)snprintf(text + n, size - n, "%s%s", sep,
                                  dim_name && dim_name[i] ? dim_name[i] : "?");
    }
    if (n < size) snprintf(text + n, size - n, rank ? "]" : "[]");
}

/* Whether t is what io declares; else says why. */
static int bk_check_input(const braid_io_v1 *io, const braid_tensor_v1 *t, char *message,
                          size_t size) {
    char want[256], got[256];
    if (t->rank == -1 && !t->data) {
        if (io->kind >= BRAID_IO_OPTIONAL_TENSOR) return BK_ST_OK;
        bk_say(message, size, "input '%s' is missing", io->name);
        return BK_ST_INPUT;
    }
    if (t->rank < 0 || t->rank > BRAID_MAX_RANK) {
        bk_say(message, size, "input '%s': rank %d is not between 0 and %d", io->name, (int)t->rank,
               BRAID_MAX_RANK);
        return BK_ST_INPUT;
    }
    if (io->kind == BRAID_IO_SEQUENCE || io->kind == BRAID_IO_OPTIONAL_SEQUENCE) {
        if (t->rank == 1 && t->dtype == 2 && t->data && t->dim[0] > 0) return BK_ST_OK;
        bk_say(message, size, "input '%s': expected a packed sequence", io->name);
        return BK_ST_INPUT;
    }
    size_t bytes = bk_dtype_size(t->dtype), had = bytes;
    int zero = 0, bad = bytes == 0;
    for (int i = 0; i < t->rank; i++) {
        if (t->dim[i] < 0)
            bad = 1;
        else if (t->dim[i] == 0)
            zero = 1;
        else if (bytes > ((size_t)1 << 62) / (size_t)t->dim[i])
            bad = 1;
        else
            bytes *= (size_t)t->dim[i];
        if (bad) break;
    }
    if (bad) {
        bk_say(message, size,
               had ? "input '%s': a dimension is negative or too large"
                   : "input '%s': its element type is not supported",
               io->name);
        return BK_ST_INPUT;
    }
    if (!t->data && !zero) {
        bk_say(message, size, "input '%s' has no data", io->name);
        return BK_ST_INPUT;
    }
    int same = !io->dtype || io->dtype == t->dtype;
    if (io->rank >= 0) {
        same = same && io->rank == t->rank;
        for (int i = 0; same && i < io->rank; i++) same = io->dim[i] < 0 || io->dim[i] == t->dim[i];
    }
    if (same) return BK_ST_OK;
    bk_shape_text(want, sizeof want, io->dtype, io->rank, io->dim, io->dim_name);
    bk_shape_text(got, sizeof got, t->dtype, t->rank, t->dim, NULL);
    bk_say(message, size, "input '%s': expected %s, got %s", io->name, want, got);
    return BK_ST_INPUT;
}

/* `bytes` of 64-byte aligned memory, NULL when there is none. */
static char *bk_alloc(size_t bytes) {
    if (bytes > BK_MAX_BYTES) return NULL;
    return aligned_alloc(64, bytes ? (bytes + 63) & ~(size_t)63 : 64);
}

/* Takes the memory that the session should have; 0 when there is none. */
static int bk_take(bk_session *s, size_t arena) {
    if (!s->k.arena || arena > s->k.arena_size) {
        free(s->k.arena); /* its content is not needed, so the two never exist side by side */
        s->k.arena_size = 0;
        s->k.arena = bk_alloc(arena);
        if (!s->k.arena) return 0;
        s->k.arena_size = arena;
    }
    for (int i = 0; i < BK_NSLOT; i++) {
        int64_t need = atomic_load(&s->cap_need[i]), cap = s->cap[i];
        if (s->slot[i] && need <= cap) continue;
        if (need <= cap)
            need = cap ? cap : BK_SLOT_BYTES;
        else if (need < 2 * cap)
            need = 2 * cap;
        free(s->slot[i]);
        s->cap[i] = 0;
        s->slot[i] = bk_alloc((size_t)need);
        if (!s->slot[i]) return 0;
        s->cap[i] = need;
    }
    return 1;
}

/* ---- stacks: recursion uses the C stack, so that stack_depth activations must fit ------------------- */
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
static int bk_run_unit_0(bk_session *s) {
    ucontext_t own;
    uint64_t at = (uintptr_t)s;
    getcontext(&own);
    own.uc_stack.ss_sp = s->stack + BK_GUARD;
    own.uc_stack.ss_size = s->stack_bytes - BK_GUARD;
    own.uc_link = &s->back;
    makecontext(&own, (void (*)(void))bk_unit_0, 2, (unsigned)(at >> 32), (unsigned)at);
    swapcontext(&s->back, &own);
    return s->code;
}
#else
static int bk_run_unit_0(bk_session *s) { return braid_kernel(&s->k, 0, s->k.nunit); }
#endif

static void *bk_work(void *arg) {
    bk_worker *w = arg;
    bk_session *s = w->session;
    for (uint32_t turn = 0;; turn++) {
        bk_gate_wait(&s->start, turn, s->k.spin);
        if (atomic_load(&s->quit)) return NULL;
        braid_kernel(&s->k, w->unit, s->k.nunit);
        if (atomic_fetch_sub(&s->left, 1) == 1)
            bk_gate_open(&s->done, atomic_load_explicit(&s->done.word, memory_order_relaxed) + 1);
    }
}

static void bk_session_free(void *session) {
    bk_session *s = session;
    if (!s) return;
    atomic_store(&s->quit, 1);
    bk_gate_open(&s->start, atomic_load(&s->start.word) + 1);
    for (int i = 0; i < s->nworker; i++) pthread_join(s->worker[i].thread, NULL);
#ifdef BK_FRAME_BYTES
    for (int i = 0; i <= s->nworker && i < BK_MAX_UNITS; i++)
        if (s->worker[i].stack) munmap(s->worker[i].stack, s->stack_bytes);
    if (s->stack) munmap(s->stack, s->stack_bytes);
#endif
    free(s->k.arena);
    for (int i = 0; i < BK_NSLOT; i++) free(s->slot[i]);
    free(s);
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

static int bk_session_new(const braid_session_config_v1 *config, void **session) {
    braid_session_config_v1 c = {0};
    if (config) {
        size_t first = offsetof(braid_session_config_v1, stack_depth); /* what always was there */
        if (config->struct_size < first) return BK_ST_USAGE;
        memcpy(&c, config, config->struct_size < sizeof c ? first : sizeof c);
    }
    if (c.threads < 0 || c.max_iterations < 0 || c.stack_depth < 0 || !session) return BK_ST_USAGE;
#ifdef BK_WEIGHTS_CHECK
    if (!bk_weights) return BK_ST_IO;
#endif
    bk_session *s = aligned_alloc(_Alignof(bk_session), sizeof(bk_session));
    if (!s) return BK_ST_MEMORY;
    memset(s, 0, sizeof *s);
    int cpus = bk_cpus();
#ifdef BK_UNITS
    int units = BK_UNITS < cpus ? BK_UNITS : cpus;
#else
    int units = cpus;
#endif
    if (c.threads) units = c.threads;
    if (units > BK_MAX_UNITS) units = BK_MAX_UNITS;
    s->k.nunit = units;
    /* Spinning helps only when the others run at this moment. */
    s->k.spin = units <= cpus ? 10000 : 20;
    s->k.max_iterations = c.max_iterations ? c.max_iterations : (int64_t)1 << 31;
    s->k.stack_depth = c.stack_depth ? c.stack_depth : 10000;
    s->k.out = s->out;
    s->k.nslot = BK_NSLOT;
    s->k.slot = s->slot;
    s->k.cap = s->cap;
    s->k.cap_need = s->cap_need;
    pthread_attr_t attr;
    int ok = bk_take(s, BK_ARENA) && pthread_attr_init(&attr) == 0;
#ifdef BK_FRAME_BYTES
    if (ok && s->k.stack_depth > (int64_t)(BK_MAX_BYTES / BK_FRAME_BYTES)) {
        pthread_attr_destroy(&attr);
        ok = 0;
    }
    if (ok) {
        s->stack_bytes = BK_STACK_BYTES + (size_t)s->k.stack_depth * BK_FRAME_BYTES;
        s->stack_bytes = (s->stack_bytes + BK_GUARD - 1) / BK_GUARD * BK_GUARD;
        s->stack = bk_stack_new(s->stack_bytes);
    }
#endif
    if (ok) {
        pthread_attr_setstacksize(&attr, BK_STACK_BYTES);
        for (int i = 1; ok && i < units; i++) {
            bk_worker *w = &s->worker[s->nworker];
            w->session = s;
            w->unit = i;
#ifdef BK_FRAME_BYTES
            w->stack = bk_stack_new(s->stack_bytes);
            if (!w->stack || pthread_attr_setstack(&attr, w->stack + BK_GUARD, s->stack_bytes - BK_GUARD)) {
                ok = 0;
                break;
            }
#endif
            ok = pthread_create(&w->thread, &attr, bk_work, w) == 0;
            s->nworker += ok;
        }
        pthread_attr_destroy(&attr);
    }
#ifdef BK_FRAME_BYTES
    ok = ok && s->stack;
#endif
    if (!ok) {
        bk_session_free(s);
        return BK_ST_MEMORY;
    }
    *session = s;
    return BK_ST_OK;
}

/* One pass of the kernel over all units. */
static int bk_launch(bk_session *s) {
    atomic_store(&s->k.fault, 0);
    atomic_store(&s->k.deep, 0);
    atomic_store(&s->k.arena_need, 0);
    for (int i = 0; i < BK_NSLOT; i++) atomic_store(&s->cap_need[i], 0);
    s->k.barriers = 0;
    uint32_t done = atomic_load(&s->done.word);
    if (s->nworker) {
        atomic_store(&s->left, s->nworker);
        bk_gate_open(&s->start, atomic_load(&s->start.word) + 1);
    }
    int code = bk_run_unit_0(s);
    if (s->nworker) bk_gate_wait(&s->done, done, s->k.spin);
    return code;
}

static int bk_run_locked(bk_session *s, const braid_tensor_v1 *in, braid_tensor_v1 *out,
                         char *message, size_t size) {
    s->restarts = 0;
    for (int i = 0; i < BK_NIN; i++) {
        int st = bk_check_input(&bk_inputs[i], &in[i], message, size);
        if (st) return st;
    }
    s->k.in = in;
    for (size_t arena = s->k.arena_size > BK_ARENA ? s->k.arena_size : BK_ARENA;; s->restarts++) {
        if (!bk_take(s, arena)) {
            bk_say(message, size,
                   "out of memory: the run needs more than %zu bytes of working memory",
                   s->k.arena_size);
            return BK_ST_MEMORY;
        }
        int code = bk_launch(s);
        if (code == BK_OK) {
            if (BK_NOUT) memcpy(out, s->out, BK_NOUT * sizeof *out);
            return BK_ST_OK;
        }
        if (code != BK_GROW) {
            int site = atomic_load(&s->k.fault) - 1;
            const char *text = site >= 0 && site < BK_NSITE ? bk_sites[site] : "the kernel stopped";
            if (atomic_load(&s->k.deep))
                bk_say(message, size, "%s %lld (--stack-depth)", text, (long long)s->k.stack_depth);
            else
                bk_say(message, size, "%s", text);
            return BK_ST_RUNTIME;
        }
        size_t need = atomic_load(&s->k.arena_need);
        if (bk_state(&s->k) != BK_GROW) {
            bk_say(message, size, "the kernel stopped");
            return BK_ST_RUNTIME;
        }
        if (need > arena) arena = need > arena + arena / 2 ? need : arena + arena / 2;
    }
}

static int bk_run(void *session, const braid_tensor_v1 *in, braid_tensor_v1 *out, char *message,
                  size_t size) {
    bk_session *s = session;
    int idle = 0;
    if (message && size) message[0] = 0;
    if (!s || (BK_NIN && !in) || (BK_NOUT && !out)) {
        bk_say(message, size, "a null pointer was given to run");
        return BK_ST_USAGE;
    }
    if (!atomic_compare_exchange_strong(&s->busy, &idle, 1)) {
        bk_say(message, size, "the session is running in another thread");
        return BK_ST_USAGE;
    }
    int st = bk_run_locked(s, in, out, message, size);
    atomic_store(&s->busy, 0);
    return st;
}

static int64_t bk_stat(void *session, int which) {
    const bk_session *s = session;
    int64_t n = 0;
    switch (which) {
    case BRAID_STAT_BARRIERS: return s->k.barriers;
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
                                         bk_stat};
    return &model;
}
