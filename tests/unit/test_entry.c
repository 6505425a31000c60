/* The surroundings of emitted kernels (codegen/text/cpu/ctx.inc, entry.c) around a kernel written
 * by hand: several units, growth, faults, the checks of inputs. Made to run under the sanitizers,
 * too. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <sys/wait.h>
#include <cmocka.h>

#include "include/braid_model.h"
#include "codegen/text/cpu/ctx.inc"

/* y[i] = sum of x after `steps` rounds, each of which needs a barrier. mode: 1 wants more arena,
 * 2 a bigger slot, 3 faults in the last unit, 4 faults in all, 5 grows without end. */
#define BK_NAME "sums"
#define BK_NIN 3
#define BK_NOUT 1
#define BK_ARENA ((size_t)4096)
#define BK_NSLOT 1
#define BK_NSITE 2
static const char *const bk_sites[] = {
    "first fault", "/loop/gather (Gather): index \1 is outside [\2, \3), \4 of \1"};
static const braid_io_v1 bk_inputs[] = {{"x", BRAID_IO_TENSOR, 1, 2, {-1, 4}, {"n"}},
                                        {"mode", BRAID_IO_TENSOR, 7, 0, {0}, {0}},
                                        {"steps", BRAID_IO_OPTIONAL_TENSOR, 7, 0, {0}, {0}}};
static const braid_io_v1 bk_outputs[] = {{"y", BRAID_IO_TENSOR, 1, 1, {-1}, {0}}};

static int braid_kernel(bk_ctx *k, int unit, int nunit) {
    const float *x = k->in[0].data;
    int64_t n = k->in[0].dim[0] * 4, mode = *(const int64_t *)k->in[1].data;
    int64_t steps = k->in[2].rank < 0 ? 1 : *(const int64_t *)k->in[2].data;
    if (steps > k->max_iterations) {
        bk_fault(k, 0);
        return BK_FAULT;
    }
    size_t need = (size_t)n * 2 * sizeof(float) * (mode == 1 ? 100 : 1);
    if (mode == 5) need = (size_t)1 << 41;
    if (!bk_hold_arena(k, need)) {
        bk_need_arena(k, need);
        return BK_GROW;
    }
    float *a = (float *)k->arena, *b = a + n;
    for (int64_t i = unit; i < n; i += nunit) a[i] = x[i];
    int code = bk_barrier(k, unit);
    for (int64_t s = 0; s < steps && code == BK_OK; s++) {
        for (int64_t i = unit; i < n; i += nunit) b[i] = a[i] + a[(i + 1) % n];
        if (mode == 2 && s * 100000 > k->cap[0] && unit == nunit - 1)
            bk_need_slot(k, 0, s * 100000);
        if (mode == 3 && s == steps - 1 && unit == nunit - 1) bk_fault(k, 1);
        if (mode == 4) bk_fault_said(k, 1, -9, INT64_MAX, 0, BK_UNSAID);
        float *t = a;
        a = b, b = t;
        code = bk_barrier(k, unit);
    }
    if (code != BK_OK) return code;
    if (mode == 2 && unit == 0) memset(k->slot[0], 1, (size_t)k->cap[0]);
    if (unit == 0) k->out[0] = (braid_tensor_v1){a, 1, 1, {n}};
    return BK_OK;
}

#include "codegen/text/seed.inc"
#include "codegen/text/memory.inc"
#include "codegen/text/fault.inc"
#include "codegen/text/entry.inc"
#include "codegen/text/cpu/processor.inc"
#include "codegen/text/cpu/session.inc"
#include "codegen/text/cpu/team.inc"
#include "codegen/text/cpu/entry.inc"

#define N 6
typedef struct Case {
    float x[N * 4];
    int64_t mode, steps;
    braid_tensor_v1 in[3], out[1];
    char message[200];
} Case;

static void case_init(Case *c, int64_t mode, int64_t steps) {
    memset(c, 0, sizeof *c);
    for (int i = 0; i < N * 4; i++) c->x[i] = (float)(i % 5);
    c->mode = mode;
    c->steps = steps;
    c->in[0] = (braid_tensor_v1){c->x, 1, 2, {N, 4}};
    c->in[1] = (braid_tensor_v1){&c->mode, 7, 0, {0}};
    c->in[2] = (braid_tensor_v1){&c->steps, 7, 0, {0}};
    c->out[0].rank = -7;
}
static void *session(int threads) {
    braid_session_config_v1 cfg = {
        .struct_size = sizeof cfg, .threads = threads, .max_iterations = 1000};
    void *s = NULL;
    assert_int_equal(braid_model()->session_new(&cfg, &s), 0);
    return s;
}
/* A run by all units, also when they sleep. */
static int run(void *s, Case *c) {
    if (s) ((bk_session *)s)->habit.seen = 0;
    return braid_model()->run(s, c->in, c->out, c->message, sizeof c->message);
}
static void check_sums(const Case *c) {
    float a[N * 4], b[N * 4];
    memcpy(a, c->x, sizeof a);
    for (int s = 0; s < c->steps; s++) {
        for (int i = 0; i < N * 4; i++) b[i] = a[i] + a[(i + 1) % (N * 4)];
        memcpy(a, b, sizeof a);
    }
    assert_int_equal(c->out[0].rank, 1);
    assert_memory_equal(c->out[0].data, a, sizeof a);
}

static void test_units(void **state) {
    (void)state;
    const braid_model_v1 *m = braid_model();
    assert_int_equal(m->abi_version, BRAID_ABI_VERSION);
    for (int threads = 1; threads <= 5; threads++) {
        void *s = session(threads);
        assert_int_equal(m->stat(s, BRAID_STAT_THREADS), threads);
        for (int i = 0; i < 50; i++) {
            Case c;
            case_init(&c, 0, i % 12);
            assert_int_equal(run(s, &c), 0);
            check_sums(&c);
            assert_int_equal(m->stat(s, BRAID_STAT_BARRIERS), threads == 1 ? 0 : i % 12 + 1);
        }
        m->session_free(s);
    }
    void *s;
    assert_int_equal(m->session_new(NULL, &s), 0);
    m->session_free(s);
    m->session_free(NULL);
}

static void test_growth(void **state) {
    (void)state;
    for (int threads = 1; threads <= 3; threads++) {
        void *s = session(threads);
        Case c;
        case_init(&c, 1, 3);
        assert_int_equal(run(s, &c), 0);
        check_sums(&c);
        assert_int_equal(braid_model()->stat(s, BRAID_STAT_RESTARTS), 0);
        case_init(&c, 2, 9);
        assert_int_equal(run(s, &c), 0);
        check_sums(&c);
        assert_true(braid_model()->stat(s, BRAID_STAT_ARENA_BYTES) > 800000);
        case_init(&c, 5, 1);
        assert_int_equal(run(s, &c), BK_ST_MEMORY);
        assert_int_equal(c.out[0].rank, -7);
        case_init(&c, 0, 2); /* and the session still works */
        assert_int_equal(run(s, &c), 0);
        check_sums(&c);
        braid_model()->session_free(s);
    }
}

/* A run takes no more than the session may; what grows near the limit gets what is left. */
static void test_limit(void **state) {
    (void)state;
    for (int64_t most = 500000; most <= 2000000; most += 1500000) {
        braid_session_config_v1 cfg = {
            .struct_size = sizeof cfg, .threads = 2, .max_iterations = 1000, .max_memory = most};
        void *s = NULL;
        Case c;
        assert_int_equal(braid_model()->session_new(&cfg, &s), 0);
        case_init(&c, 2, 9);
        assert_int_equal(run(s, &c), most < 800000 ? BK_ST_MEMORY : 0);
        if (most < 800000) {
            assert_non_null(strstr(c.message, "the run needs "));
            assert_non_null(
                strstr(c.message, " KiB of memory; the limit is 488 KiB (--max-memory; "));
        }
        assert_true(braid_model()->stat(s, BRAID_STAT_ARENA_BYTES) <= most);
        case_init(&c, 0, 2); /* and the session still works */
        assert_int_equal(run(s, &c), 0);
        check_sums(&c);
        braid_model()->session_free(s);
    }
    braid_session_config_v1 cfg = {.struct_size = sizeof cfg, .max_memory = 100};
    char message[200];
    void *s = NULL;
    cfg.message = message;
    cfg.message_size = sizeof message;
    assert_int_equal(braid_model()->session_new(&cfg, &s), BK_ST_MEMORY);
    assert_non_null(strstr(message, "the limit is 100 bytes"));
    cfg.max_memory = -1;
    assert_int_equal(braid_model()->session_new(&cfg, &s), BK_ST_USAGE);
    int64_t cap[BK_NSLOT + 1] = {100000}, need[BK_NSLOT + 1] = {150000};
    bk_wish w = bk_wish_for(1000, 1000, cap, need, 1000000);
    assert_int_equal(w.slot[0], 200000);
    w = bk_wish_for(1000, 1000, cap, need, 180000);
    assert_int_equal(w.slot[0], 150000 + (180000 - 151000) / 64 * 64);
    w = bk_wish_for(1000, 1000, cap, need, 150500);
    assert_true(w.sum > 150500);
}

static void test_faults(void **state) {
    (void)state;
    for (int threads = 1; threads <= 4; threads++) {
        void *s = session(threads);
        for (int mode = 3; mode <= 4; mode++) {
            Case c;
            case_init(&c, mode, 5);
            assert_int_equal(run(s, &c), BK_ST_RUNTIME);
            assert_string_equal(
                c.message,
                mode == 3 ? "/loop/gather (Gather): index ? is outside [?, ?), ? of ?"
                          : "/loop/gather (Gather): index -9 is outside [9223372036854775807, 0), "
                            "? of -9");
            assert_int_equal(c.out[0].rank, -7);
        }
        Case c;
        case_init(&c, 0, 1001);
        assert_int_equal(run(s, &c), BK_ST_RUNTIME);
        assert_string_equal(c.message, bk_sites[0]);
        case_init(&c, 0, 1000);
        c.x[0] = 0;
        assert_int_equal(run(s, &c), 0);
        braid_model()->session_free(s);
    }
}

static void expect_bad(void *s, Case *c, const char *message) {
    assert_int_equal(run(s, c), BK_ST_INPUT);
    assert_string_equal(c->message, message);
    assert_int_equal(c->out[0].rank, -7);
    case_init(c, 0, 2);
}
static void test_inputs(void **state) {
    (void)state;
    void *s = session(2);
    Case c;
    case_init(&c, 0, 1);
    c.in[2] = (braid_tensor_v1){NULL, 0, -1, {0}};
    assert_int_equal(run(s, &c), 0);
    case_init(&c, 0, 2);
    c.in[0].dtype = 11;
    expect_bad(s, &c, "input 'x': expected float32[n,4], got float64[6,4]");
    c.in[0].dim[1] = 3;
    expect_bad(s, &c, "input 'x': expected float32[n,4], got float32[6,3]");
    c.in[0].rank = 1;
    expect_bad(s, &c, "input 'x': expected float32[n,4], got float32[6]");
    c.in[0].rank = 13;
    expect_bad(s, &c, "input 'x': rank 13 is not between 0 and 12");
    c.in[0].data = NULL;
    expect_bad(s, &c, "input 'x' has no data");
    c.in[0].dim[0] = -1;
    expect_bad(s, &c, "input 'x': a dimension is negative or too large");
    c.in[0].dim[0] = INT64_MAX;
    expect_bad(s, &c, "input 'x': a dimension is negative or too large");
    c.in[0].dtype = 8;
    expect_bad(s, &c, "input 'x': its element type is not supported");
    c.in[1] = (braid_tensor_v1){NULL, 0, -1, {0}};
    expect_bad(s, &c, "input 'mode' is missing");
    assert_int_equal(braid_model()->run(s, NULL, c.out, NULL, 0), BK_ST_USAGE);
    braid_session_config_v1 cfg = {.struct_size = sizeof cfg, .threads = -1};
    void *none = NULL;
    assert_int_equal(braid_model()->session_new(&cfg, &none), BK_ST_USAGE);
    assert_null(none);
    braid_model()->session_free(s);
}

/* Two threads with a session each, and two that fight for one. */
static void *run_many(void *arg) {
    for (int i = 0; i < 200; i++) {
        Case c;
        case_init(&c, 0, i % 7);
        int st = braid_model()->run(arg, c.in, c.out, c.message, sizeof c.message);
        assert_true(st == 0 || st == BK_ST_USAGE);
    }
    return NULL;
}
static void test_sessions(void **state) {
    (void)state;
    void *s[2] = {session(2), session(2)};
    pthread_t t[3];
    for (int i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&t[i], NULL, run_many, s[i / 2]), 0);
    for (int i = 0; i < 3; i++) pthread_join(t[i], NULL);
    Case c;
    case_init(&c, 0, 3);
    assert_int_equal(run(s[0], &c), 0);
    check_sums(&c);
    braid_model()->session_free(s[0]);
    braid_model()->session_free(s[1]);
}

/* Many crossings, on as many CPUs as there are: of teams that fit and teams that do not. */
static void test_crossings(void **state) {
    (void)state;
    for (int threads = 1; threads <= 8; threads++) {
        void *s = session(threads);
        for (int i = 0; i < 4; i++) {
            Case c;
            case_init(&c, 0, threads <= 2 ? 1000 : 250);
            for (int j = 0; j < N * 4; j++) c.x[j] = (float)(j == i); /* sums stay finite */
            assert_int_equal(run(s, &c), 0);
            check_sums(&c);
            assert_int_equal(braid_model()->stat(s, BRAID_STAT_BARRIERS),
                             threads == 1 ? 0 : c.steps + 1);
        }
        braid_model()->session_free(s);
    }
}

/* What the units come to is the same for all, whoever finds it and whenever. */
static void test_agreement(void **state) {
    (void)state;
    for (int threads = 2; threads <= 7; threads++) {
        void *s = session(threads);
        for (int i = 0; i < 30; i++) {
            Case c;
            case_init(&c, i % 3 == 0 ? 3 : i % 3 == 1 ? 0 : 4, i % 4 + 1);
            assert_int_equal(run(s, &c), c.mode ? BK_ST_RUNTIME : 0);
            if (!c.mode) check_sums(&c);
        }
        braid_model()->session_free(s);
    }
}

/* Workers are bound to CPUs of their own, away from the caller's, when there are enough. */
static void test_binding(void **state) {
    (void)state;
#ifdef __linux__
    int cpus = bk_cpus();
    bk_session *s = session(cpus + 1);
    assert_false(s->bound);
    braid_model()->session_free(s);
    s = session(cpus);
    if (s->bound) {
        cpu_set_t seen, one;
        CPU_ZERO(&seen);
        CPU_SET(s->own, &seen);
        for (int i = 0; i < s->nworker; i++) {
            assert_false(CPU_ISSET(s->worker[i].cpu, &seen));
            CPU_SET(s->worker[i].cpu, &seen);
            assert_int_equal(pthread_getaffinity_np(s->worker[i].thread, sizeof one, &one), 0);
            assert_int_equal(CPU_COUNT(&one), 1);
            assert_true(CPU_ISSET(s->worker[i].cpu, &one));
        }
        /* The caller moves to a worker's CPU. */
        cpu_set_t mask;
        assert_int_equal(sched_getaffinity(0, sizeof mask, &mask), 0);
        for (int i = 0; i < s->nworker; i++) {
            Case c;
            int from = s->own, to = s->worker[i].cpu;
            CPU_ZERO(&one);
            CPU_SET(to, &one);
            assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
            case_init(&c, 0, 5);
            assert_int_equal(run(s, &c), 0);
            check_sums(&c);
            assert_int_equal(s->own, to);
            assert_int_equal(s->worker[i].cpu, from);
        }
        assert_int_equal(sched_setaffinity(0, sizeof mask, &mask), 0);
    }
    braid_model()->session_free(s);
#endif
}

/* A session goes on in a process that was forked, and in the one it was forked from. */
static void test_fork(void **state) {
    (void)state;
#if defined(MADV_WIPEONFORK) &&                                                                    \
    !defined(__SANITIZE_THREAD__) /* which has no threads after a fork */
    for (int threads = 1; threads <= 3; threads++) {
        Case c;
        void *s = session(threads), *unused = session(threads);
        case_init(&c, 0, 3);
        assert_int_equal(run(s, &c), 0);
        pid_t child = fork();
        if (child == 0) {
            alarm(60);
            for (int i = 0; i < 3; i++) {
                case_init(&c, 0, 3);
                if (run(s, &c)) _exit(1);
                check_sums(&c);
            }
            braid_model()->session_free(s);
            braid_model()->session_free(unused);
            _exit(0);
        }
        assert_int_equal(run(s, &c), 0);
        check_sums(&c);
        int status = 1;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
        braid_model()->session_free(s);
        braid_model()->session_free(unused);
    }
#endif
}

/* Runs a case, as callers do, and says how many barriers it had. */
static int64_t barriers_of(void *s, int64_t steps) {
    Case c;
    case_init(&c, 0, steps);
    assert_int_equal(braid_model()->run(s, c.in, c.out, c.message, sizeof c.message), 0);
    check_sums(&c);
    return braid_model()->stat(s, BRAID_STAT_BARRIERS);
}
/* Until the workers sleep. */
static void wait_for_sleep(const bk_session *s) {
    while (!(atomic_load(&s->start) & 1)) nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

/* Workers that sleep are woken where that gains more than it takes. */
static void test_sleep(void **state) {
    (void)state;
    for (int threads = 2; threads <= 5; threads++) {
        bk_session *s = session(threads);
        assert_int_equal(barriers_of(s, 4), 5); /* the first run is by all */
        for (int i = 0; i < 3; i++) {
            wait_for_sleep(s);
            s->habit = (bk_habit){.alone = 1e3, .wake = 1e9, .least = 1e9, .seen = 9};
            assert_int_equal(barriers_of(s, 5), 0);
            assert_true(s->habit.alone > 0 && s->habit.spent > 0);
            wait_for_sleep(s);
            s->habit = (bk_habit){.alone = 1e9, .wake = 1e3, .least = 1e3, .seen = 9};
            assert_int_equal(barriers_of(s, 3), 4);
            assert_true(s->habit.wake > 0);
        }
        /* Close calls wake it sooner or later. */
        wait_for_sleep(s);
        s->habit = (bk_habit){.alone = 1e3, .wake = 1e9, .least = 2e4, .seen = 9};
        int runs = 0;
        while (runs < 1000000 && barriers_of(s, 2) == 0) {
            s->habit.ended = bk_clock(); /* this thread may have waited for a CPU */
            runs++;
        }
        assert_in_range(runs, 1, 999999);
        braid_model()->session_free(s);
    }
}

/* Where several teams run, each has a part of its units. */
static void test_shares(void **state) {
    (void)state;
    int32_t teams = 0;
    for (int threads = 2; threads <= 5; threads++) {
        bk_session *s = session(threads);
        s->teams = &teams;
        for (int i = 0; i < 40; i++) {
            s->habit.seen = 0;
            s->cpus = threads;
            teams = i % 7;
            const int units =
                teams && threads / (teams + 1) < threads ? threads / (teams + 1) : threads;
            assert_int_equal(barriers_of(s, i % 9), units > 1 ? i % 9 + 1 : 0);
            assert_int_equal(s->k.nunit, units > 1 ? units : 1);
            assert_int_equal(teams, i % 7);
        }
        braid_model()->session_free(s);
    }
}

/* Threads that take turns with one session, each on a CPU of its own choice. */
typedef struct Turns {
    void *session;
    pthread_mutex_t lock;
} Turns;
static void *take_turns(void *arg) {
    Turns *t = arg;
    for (int i = 0; i < 100; i++) {
        Case c;
        case_init(&c, 0, i % 7);
        pthread_mutex_lock(&t->lock);
        int st = run(t->session, &c);
        if (st == 0) check_sums(&c);
        pthread_mutex_unlock(&t->lock);
        assert_int_equal(st, 0);
    }
    return NULL;
}
static void test_turns(void **state) {
    (void)state;
    for (int threads = 2; threads <= 3; threads++) {
        Turns t = {session(threads), PTHREAD_MUTEX_INITIALIZER};
        pthread_t p[4];
        for (int i = 0; i < 4; i++)
            assert_int_equal(pthread_create(&p[i], NULL, take_turns, &t), 0);
        for (int i = 0; i < 4; i++) pthread_join(p[i], NULL);
        braid_model()->session_free(t.session);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_units),     cmocka_unit_test(test_growth),
        cmocka_unit_test(test_limit),     cmocka_unit_test(test_faults),
        cmocka_unit_test(test_inputs),    cmocka_unit_test(test_sessions),
        cmocka_unit_test(test_crossings), cmocka_unit_test(test_agreement),
        cmocka_unit_test(test_binding),   cmocka_unit_test(test_turns),
        cmocka_unit_test(test_fork),      cmocka_unit_test(test_sleep),
        cmocka_unit_test(test_shares)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
