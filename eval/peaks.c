/* peaks.c: measures the peak rates of this machine and prints them as JSON.
 *
 * Multiply-adds, exp, divisions, reads from each cache and from memory, and a barrier of two
 * threads. Each rate of a core is measured with one thread, and with one thread per CPU (at most
 * MAX_THREADS) at the same time. The best of several tries counts. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { MAX_THREADS = 16, TRIES = 7, LANES = 16, CHAINS = 12, BARRIERS = 20000, NEAR = 128 };

typedef float vec __attribute__((vector_size(LANES * sizeof(float)), aligned(64)));
typedef int ivec __attribute__((vector_size(LANES * sizeof(int)), aligned(64)));

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void pin(int n) {
    cpu_set_t all, one;
    CPU_ZERO(&one);
    if (sched_getaffinity(0, sizeof all, &all)) return;
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &all) && n-- == 0) {
            CPU_SET(cpu, &one);
            pthread_setaffinity_np(pthread_self(), sizeof one, &one);
            return;
        }
}

/* A barrier that begins each try. It only spins, so that all threads begin at the same time. */
struct barrier {
    _Alignas(128) atomic_int arrived;
    _Alignas(128) atomic_int round;
    int count;
};

static void wait_all(struct barrier *b) {
    int round = atomic_load_explicit(&b->round, memory_order_relaxed);
    if (atomic_fetch_add(&b->arrived, 1) == b->count - 1) {
        atomic_store_explicit(&b->arrived, 0, memory_order_relaxed);
        atomic_store_explicit(&b->round, round + 1, memory_order_release);
    } else {
        while (atomic_load_explicit(&b->round, memory_order_acquire) == round)
            ;
    }
}

/* The barrier that is measured: each thread has a flag that the other watches. */
static struct { _Alignas(128) atomic_int at; } flags[2];

static void meet(int self, int round) {
    atomic_store_explicit(&flags[self].at, round, memory_order_release);
    while (atomic_load_explicit(&flags[1 - self].at, memory_order_acquire) < round)
        ;
}

enum what { MULTIPLY_ADDS, EXP, DIVISIONS, READ };

struct task {
    struct barrier *begin;
    int self;
    enum what what;
    size_t bytes; /* to read from */
    double best;  /* 10^9 operations, elements or bytes per second */
};

static volatile float sink;

static double multiply_adds(void) {
    vec x[CHAINS], a = (vec){0} + 0.999f, b = (vec){0} + 0.001f;
    for (int i = 0; i < CHAINS; i++) x[i] = (vec){0} + (float)i;
    const long n = 400000;
    double begin = now();
    for (long k = 0; k < n; k++)
        for (int i = 0; i < CHAINS; i++) x[i] = x[i] * a + b;
    double seconds = now() - begin;
    for (int i = 0; i < CHAINS; i++) sink = x[i][0];
    return 2e-9 * CHAINS * LANES * (double)n / seconds;
}

/* exp, to 1.1 ulp where the result is a normal number. The integer part of x / ln 2 goes to the
 * exponent; the rest r, in [-ln 2 / 2, ln 2 / 2], goes through a polynomial of least relative
 * error.
 */
static inline vec exp_of(vec x) {
    const float big = 12582912.0f; /* 1.5 * 2^23: adding it rounds to an integer */
    vec z = x * 1.44269504f + big, k = z - big;
    vec r = x - k * 0.693145752f;
    r = r - k * 1.42860677e-6f;
    vec p = r * 0.00138437f + 0.00837416f;
    p = p * r + 0.041668f;
    p = p * r + 0.16666431f;
    p = p * r + 0.49999994f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    return (vec)((ivec)p + ((ivec)z << 23));
}

/* Defines a function that returns the 10^9 elements per second of `function`, from L1 to L1. */
#define ELEMENTS(name, function)                                                                   \
    static double name(void) {                                                                     \
        static _Thread_local vec from[NEAR], to[NEAR];                                             \
        for (int i = 0; i < NEAR; i++)                                                             \
            for (int k = 0; k < LANES; k++) from[i][k] = 0.01f * (float)(i * LANES + k) - 10.005f; \
        const long n = 20000;                                                                      \
        double begin = now();                                                                      \
        for (long r = 0; r < n; r++) {                                                             \
            for (int i = 0; i < NEAR; i += 4)                                                      \
                for (int k = 0; k < 4; k++) to[i + k] = function(from[i + k]);                     \
            __asm__ volatile("" ::: "memory");                                                     \
        }                                                                                          \
        double seconds = now() - begin;                                                            \
        sink = to[0][0];                                                                           \
        return 1e-9 * NEAR * LANES * (double)n / seconds;                                          \
    }

static inline vec inverse(vec x) { return 1.0f / x; }

ELEMENTS(exps, exp_of)
ELEMENTS(divisions, inverse)

static double read_all(const vec *data, size_t bytes) {
    vec s[8];
    memset(s, 0, sizeof s);
    size_t n = bytes / sizeof(vec) / 8 * 8, repeats = ((size_t)48 << 20) / bytes + 1;
    double begin = now();
    for (size_t r = 0; r < repeats; r++) {
        for (size_t i = 0; i < n; i += 8)
            for (int k = 0; k < 8; k++) s[k] += data[i + k];
        __asm__ volatile("" ::: "memory");
    }
    double seconds = now() - begin;
    for (int k = 0; k < 8; k++) sink = s[k][0];
    return 1e-9 * (double)(n * sizeof(vec) * repeats) / seconds;
}

static void *work(void *arg) {
    struct task *t = arg;
    pin(t->self);
    vec *data = NULL;
    if (t->bytes) {
        data = aligned_alloc(1 << 21, (t->bytes + (1 << 21) - 1) >> 21 << 21);
        if (!data) exit(1);
        memset(data, 0, t->bytes);
    }
    for (int n = 0; n < TRIES; n++) {
        wait_all(t->begin);
        double v = t->what == READ        ? read_all(data, t->bytes)
                   : t->what == EXP       ? exps()
                   : t->what == DIVISIONS ? divisions()
                                          : multiply_adds();
        t->best = v > t->best ? v : t->best;
    }
    free(data);
    return NULL;
}

/* The rate of each of so many threads: the best try of the slowest one. */
static double measure(int threads, enum what what, size_t bytes) {
    struct barrier begin = {.count = threads};
    struct task task[MAX_THREADS];
    pthread_t id[MAX_THREADS];
    for (int i = 0; i < threads; i++) {
        task[i] = (struct task){&begin, i, what, bytes, 0};
        if (pthread_create(&id[i], NULL, work, &task[i])) exit(1);
    }
    double least = 1e30;
    for (int i = 0; i < threads; i++) {
        pthread_join(id[i], NULL);
        least = task[i].best < least ? task[i].best : least;
    }
    return least;
}

static void *other(void *arg) {
    pin(1);
    for (int i = 1; i <= TRIES * BARRIERS; i++) meet(1, i);
    return arg;
}

/* The ns of a barrier of two threads on two CPUs. */
static double barrier(void) {
    pthread_t id;
    if (pthread_create(&id, NULL, other, NULL)) exit(1);
    pin(0);
    double best = 1e30;
    for (int n = 0, round = 0; n < TRIES; n++) {
        double begin = now();
        for (int i = 0; i < BARRIERS; i++) meet(0, ++round);
        double ns = 1e9 * (now() - begin) / BARRIERS;
        best = ns < best ? ns : best;
    }
    pthread_join(id, NULL);
    return best;
}

/* The bytes of a cache, from Linux, else from the C library, else `otherwise`. */
static size_t cache(int index, int name, size_t otherwise) {
    char path[96];
    unsigned long kib = 0;
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/size", index);
    FILE *f = fopen(path, "r");
    int found = f ? fscanf(f, "%luK", &kib) : 0;
    if (f) fclose(f);
    if (found == 1 && kib) return (size_t)kib << 10;
    long size = sysconf(name);
    return size > 0 ? (size_t)size : otherwise;
}

int main(void) {
    cpu_set_t all;
    int cpus = sched_getaffinity(0, sizeof all, &all) ? 1 : CPU_COUNT(&all);
    cpus = cpus > MAX_THREADS ? MAX_THREADS : cpus;
    size_t l1 = cache(0, _SC_LEVEL1_DCACHE_SIZE, 32 << 10);
    size_t l2 = cache(2, _SC_LEVEL2_CACHE_SIZE, 1 << 20);
    size_t l3 = cache(3, _SC_LEVEL3_CACHE_SIZE, 4 * l2);
    size_t dram = l3 * 4 < (size_t)256 << 20 ? l3 * 4 : (size_t)256 << 20;
    const struct {
        const char *name;
        size_t size, used;
    } level[] = {{"L1", l1, l1 / 2},
                 {"L2", l2, l2 / 2},
                 {"L2_full", l2, l2 / 16 * 15},
                 {"L3", l3, l3 / 4 > 2 * l2 ? l3 / 4 : 2 * l2},
                 {"DRAM", 0, dram}};
    printf("{\"cpus\": %d, \"barrier_ns\": %.0f", cpus, cpus > 1 ? barrier() : 0.0);
    for (int all_cpus = 0; all_cpus < 2; all_cpus++) {
        int threads = all_cpus ? cpus : 1;
        printf(", \"%s\": {\"gflops\": %.0f, \"gexps\": %.2f, \"gdivisions\": %.2f",
               all_cpus ? "side_by_side" : "alone", measure(threads, MULTIPLY_ADDS, 0),
               measure(threads, EXP, 0), measure(threads, DIVISIONS, 0));
        for (int i = 0; i < 5; i++) {
            size_t used = i == 3 ? level[i].used / (size_t)threads : level[i].used;
            used = i == 3 && used < 2 * l2 ? 2 * l2 : used;
            printf(", \"%s_gbs\": %.1f", level[i].name, measure(threads, READ, used));
        }
        printf("}");
    }
    printf(", \"L1\": %zu, \"L2\": %zu, \"L3\": %zu}\n", l1, l2, l3);
    return 0;
}
