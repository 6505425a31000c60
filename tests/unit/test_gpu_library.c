/* Products by the vendor's library between launches of the kernel (codegen/text/gpu/library.inc),
 * with a driver and a library that stand in for CUDA's, HIP's or the emulator's (gpu_driver.c,
 * gpu_blas.c), and without the library: values, graphs, faults in between, and a failure of every
 * call. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "include/braid_model.h"
#include "codegen/emulate/driver.inc"
#include "codegen/text/gpu/ctx.inc"
#include "tests/unit/gpu_driver.h"

/* h = x w (x: 2 matrices of m x 3, w: 3 x 5), r = max(h, 0) + mode, y = r of the first matrix by v
 * transposed (v: 2 x 5), these two of bfloat16. Mode 3 faults between the products. m is 4; or,
 * without GPU_FIXED, the size of an input: then h is in a slot. */
#define B 2
#define M 4
#define K 3
#define J 5
#define N 2
#define MOST 9 /* of m */
#define BK_NAME "products"
#define BK_NIN 2
#define BK_NOUT 1
#define BK_ARENA ((size_t)4096)
#define BK_NSITE 1
#define BK_THREADS 64
#define BK_SHARED_BYTES 1024
#define BK_CLUSTER 1
#define BK_UNITS 0
#define BK_WEIGHTS_SIZE (K * J * 4 + N * J * 2)
#define BK_BACKEND GPU_NAMES
#define BK_TARGET (GPU_NAMES == 0 ? "cuda:sm_90" : GPU_NAMES == 1 ? "hip:gfx90a" : "emulate:cuda")
#define R_AT 512
#define Y_AT 1024
#define BK_NPRODUCT 2
#define BK_FIXED GPU_FIXED
#define BK_STAYS GPU_FIXED
#if GPU_FIXED
#define ROWS M
#define BK_NSLOT 0
#define H_FROM BK_IN_ARENA
#define BK_SIZES
#else
#define ROWS -1
#define BK_NSLOT 1
#define H_FROM BK_IN_SLOT(0)
#define BK_SIZES                                                                                   \
    p[0].n = p[1].n = in[0].dim[1];                                                                \
    p[0].next[1] = bk_multiply(K, in[0].dim[1]);                                                   \
    p[0].next[2] = bk_multiply(J, in[0].dim[1]);                                                   \
    need[0] = bk_multiply(B * J * 4, in[0].dim[1]);
#endif
#define BK_PRODUCTS                                                                                \
    {.m = J,                                                                                       \
     .n = M,                                                                                       \
     .k = K,                                                                                       \
     .batch = B,                                                                                   \
     .ld = {J, K, J},                                                                              \
     .next = {0, M * K, M * J},                                                                    \
     .from = {BK_IN_WEIGHTS, 0, H_FROM}},                                                          \
    {                                                                                              \
        .m = N, .n = M, .k = J, .batch = 1, .turned = {1, 0}, .ld = {J, J, N},                     \
        .type = {BK_BF16, BK_F32}, .at = {K * J * 2},                                              \
        .from = {BK_IN_WEIGHTS, BK_IN_ARENA, BK_IN_ARENA}, .base = {                               \
            0,                                                                                     \
            R_AT,                                                                                  \
            Y_AT                                                                                   \
        }                                                                                          \
    }
#define BK_IDLE 1, 0, 0, 0, 0
static const struct {
    float w[K * J];
    uint16_t v[N * J];
} bk_weights[] = {{{1, -2, 3, 4, -5, 6, 7, -8, 9, 10, -1, 2, 3, -4, 5},
                   {0x4000, 0x3f80, 0xbf80, 0x4040, 0x3f80,    /* 2, 1, -1, 3, 1 */
                    0x3f80, 0xc000, 0x4000, 0x3f80, 0x3f80}}}; /* 1, -2, 2, 1, 1 */
static const char *const bk_sites[] = {"a fault between products"};
static const braid_io_v1 bk_inputs[] = {{"x", BRAID_IO_TENSOR, 1, 3, {B, ROWS, K}, {0}},
                                        {"mode", BRAID_IO_TENSOR, 7, 0, {0}, {0}}};
static const braid_io_v1 bk_outputs[] = {{"y", BRAID_IO_TENSOR, 1, 2, {ROWS, N}, {0}}};

#include "codegen/text/seed.inc"
#include "codegen/text/memory.inc"
#include "codegen/text/fault.inc"
#include "codegen/text/entry.inc"
#include "codegen/text/gpu/calls.inc"
#include "codegen/text/gpu/driver.inc"
#include "codegen/text/gpu/device.inc"
#include "codegen/text/gpu/library.inc"
#include "codegen/text/gpu/run.inc"
#include "codegen/text/gpu/entry.inc"

static int there; /* the library */
static int launched[BK_PHASES];

static void first(const float *x, float *h, int64_t m) {
    for (int64_t i = 0; i < B * m; i++)
        for (int j = 0; j < J; j++) {
            h[i * J + j] = 0;
            for (int k = 0; k < K; k++) h[i * J + j] += x[i * K + k] * bk_weights->w[k * J + j];
        }
}
static float of_half(uint16_t h) {
    uint32_t word = (uint32_t)h << 16;
    float f;
    memcpy(&f, &word, sizeof f);
    return f;
}
static void between(const float *h, int64_t mode, uint16_t *r, int64_t m) {
    for (int64_t i = 0; i < m * J; i++) {
        float f = (h[i] > 0 ? h[i] : 0) + (float)mode; /* it has few bits */
        uint32_t word;
        memcpy(&word, &f, sizeof word);
        r[i] = (uint16_t)(word >> 16);
    }
}
static void second(const uint16_t *r, float *y, int64_t m) {
    for (int64_t i = 0; i < m; i++)
        for (int n = 0; n < N; n++) {
            y[i * N + n] = 0;
            for (int j = 0; j < J; j++)
                y[i * N + n] += of_half(r[i * J + j]) * of_half(bk_weights->v[n * J + j]);
        }
}

static int kernel(void *argument, int grid) {
    const int phase = (int)((uintptr_t)argument & 255);
    bk_ctx *k = (bk_ctx *)((char *)argument - phase);
    const int64_t mode = *(const int64_t *)k->in[1].data;
    const int64_t m = k->in[0].dim[1];
    float *h = (float *)(GPU_FIXED ? k->arena : k->slot[0]), *y = (float *)(k->arena + Y_AT);
    uint16_t *r = (uint16_t *)(k->arena + R_AT);
    (void)grid;
    if (phase >= BK_PHASES) {
        gpu_driver.bad++;
        return 1;
    }
    launched[phase]++;
    if (k->state) return 0;
    if (phase == 1) first(k->in[0].data, h, m);
    if (phase == 2) between(h, mode, r, m);
    if (phase == 3) second(r, y, m);
    if (phase == 2 && mode == 3) {
        k->fault = 1;
        k->state = BK_FAULT;
    }
    if (phase == 4) k->out[0] = (braid_tensor_v1){y, 1, 2, {m, N}};
    return 0;
}

typedef struct Case {
    float x[B * MOST * K];
    int64_t mode;
    braid_tensor_v1 in[2], out[1];
    char message[300];
} Case;

static void case_init(Case *c, int seed, int64_t mode) {
    memset(c, 0, sizeof *c);
    for (int i = 0; i < B * MOST * K; i++) c->x[i] = (float)((i * 7 + seed * 5) % 11 - 5);
    c->mode = mode;
    c->in[0] = (braid_tensor_v1){c->x, 1, 3, {B, M, K}};
    c->in[1] = (braid_tensor_v1){&c->mode, 7, 0, {0}};
    c->out[0].rank = -7;
}
static void check_values(const Case *c, const float *y) {
    float h[B * MOST * J], want[MOST * N];
    uint16_t r[MOST * J];
    const int64_t m = c->in[0].dim[1];
    first(c->x, h, m);
    between(h, c->mode, r, m);
    second(r, want, m);
    assert_memory_equal(y, want, (size_t)m * N * sizeof *want);
}
static int run(void *s, Case *c) {
    return braid_model()->run(s, c->in, c->out, c->message, sizeof c->message);
}

static void *session(void) {
    braid_session_config_v1 cfg = {.struct_size = sizeof cfg};
    void *s = NULL;
    assert_int_equal(braid_model()->session_new(&cfg, &s), 0);
    memset(launched, 0, sizeof launched);
    gpu_driver.products = gpu_driver.kept = gpu_driver.graphs = gpu_driver.graph_launches = 0;
    return s;
}
static void end(void *s) {
    braid_model()->session_free(s);
    assert_int_equal(gpu_driver.alive, 0);
    assert_int_equal(gpu_driver.bad, 0);
}

/* After so many runs: each product was made by the library, or by the kernel where there is none.
 */
static void check_counts(int runs, int by_library) {
    assert_int_equal(gpu_driver.products, 2 * by_library);
    assert_int_equal(launched[0], 0);
    assert_int_equal(launched[1], runs - by_library);
    assert_int_equal(launched[2], runs);
    assert_int_equal(launched[3], runs - by_library);
    assert_int_equal(launched[4], runs);
}

static void test_runs(void **state) {
    (void)state;
    void *s = session();
    for (int i = 0; i < 8; i++) {
        Case c;
        case_init(&c, i, i % 3);
        assert_int_equal(run(s, &c), 0);
        check_values(&c, c.out[0].data);
        check_counts(i + 1, there ? i + 1 : 0);
    }
    assert_int_equal(gpu_driver.graphs, 1); /* the host's tensors are copied to one place */
    assert_int_equal(gpu_driver.graph_launches, 8 - BK_GRAPH_AFTER);
    end(s);
}

#if !GPU_FIXED
/* Sizes change from run to run; of nothing the library is not asked for products. */
static void test_sizes(void **state) {
    (void)state;
    static const int64_t rows[] = {4, 9, 1, 0, 4, 4, 4, 7, 0, 9};
    void *s = session();
    int by_library = 0;
    for (int i = 0; i < 10; i++) {
        Case c;
        case_init(&c, i, i % 3);
        c.in[0].dim[1] = rows[i];
        assert_int_equal(run(s, &c), 0);
        assert_int_equal(c.out[0].dim[0], rows[i]);
        check_values(&c, c.out[0].data);
        by_library += there && rows[i];
        check_counts(i + 1, by_library);
    }
    assert_int_equal(gpu_driver.graphs, 1);
    end(s);
}
#endif

/* A tensor in the device's memory. */
typedef struct On {
    void *memory;
    braid_tensor_v1 t;
} On;
static void put(void *s, On *o, const braid_tensor_v1 *t) {
    const braid_model_v1 *m = braid_model();
    if (!o->memory) {
        o->t = *t;
        assert_int_equal(m->memory_new(s, bk_bytes(t), &o->memory, &o->t.data, NULL, 0), 0);
    }
    assert_int_equal(
        m->memory_copy(s, NULL, BRAID_COPY_IN, o->t.data, t->data, bk_bytes(t), NULL, 0), 0);
}
static void run_on(void *s, void *stream, On *x, On *mode, int seed, int64_t how) {
    Case c;
    float y[M * N];
    case_init(&c, seed, how);
    put(s, x, &c.in[0]);
    put(s, mode, &c.in[1]);
    braid_tensor_v1 in[2] = {x->t, mode->t};
    assert_int_equal(braid_model()->run_on(s, stream, in, c.out, c.message, sizeof c.message), 0);
    assert_int_equal(
        braid_model()->memory_copy(s, NULL, BRAID_COPY_OUT, y, c.out[0].data, sizeof y, NULL, 0),
        0);
    check_values(&c, y);
}

/* A sequence that comes again is one graph, on whatever stream; another input's place needs another
 * one. */
static void test_graphs(void **state) {
    (void)state;
    void *s = session();
    On x[2] = {{0}}, mode = {0};
    int runs = 0;
    for (int i = 0; i < 6; i++, runs++)
        run_on(s, i % 2 ? NULL : ((bk_session *)s)->stream, &x[0], &mode, i, i % 3);
    assert_int_equal(gpu_driver.graphs, 1);
    assert_int_equal(gpu_driver.graph_launches, 6 - BK_GRAPH_AFTER);
    int kept = there ? 2 : 0;
    assert_int_equal(gpu_driver.kept, kept);
    for (int i = 0; i < 8; i++, runs++)
        run_on(s, NULL, &x[i % 2], &mode, i, 1); /* never the same twice */
    assert_int_equal(gpu_driver.graphs, 1);
    for (int i = 0; i < 4; i++, runs++) run_on(s, NULL, &x[1], &mode, i, 2);
    assert_int_equal(gpu_driver.graphs, 2);
    assert_int_equal(gpu_driver.kept, 2 * kept);
    check_counts(runs, there ? runs : 0);
    gpu_driver.no_capture = 1;
    for (int i = 0; i < 9; i++, runs++) run_on(s, NULL, &x[i / 4 % 2], &mode, i, 0);
    gpu_driver.no_capture = 0;
    for (int i = 0; i < 9; i++, runs++)
        run_on(s, NULL, &x[0], &mode, i, 0); /* it is not tried again */
    assert_int_equal(gpu_driver.graphs, 2);
    check_counts(runs, there ? runs : 0);
    braid_model()->memory_free(x[0].memory);
    braid_model()->memory_free(x[1].memory);
    braid_model()->memory_free(mode.memory);
    end(s);
}

/* The kernel takes over from a library that fails, in a run or while one is captured, for good. */
static void test_taken_over(void **state) {
    (void)state;
    for (int from = 0; from < 6; from++) {
        void *s = session();
        for (int i = 0; i < 8; i++) {
            Case c;
            case_init(&c, i, i % 3);
            gpu_driver.no_product = i == from;
            assert_int_equal(run(s, &c), 0);
            check_values(&c, c.out[0].data);
        }
        /* A run that is captured already does not call it; without it there are no attempts any
         * more. */
        const int captured = BK_GRAPH_AFTER, by_library = from > captured ? 8 : from;
        check_counts(8, there ? by_library : 0);
        assert_int_equal(gpu_driver.graphs, !there || from != captured);
        end(s);
    }
}

static void test_faults(void **state) {
    (void)state;
    void *s = session();
    for (int i = 0; i < 9; i++) {
        Case c;
        case_init(&c, i, i % 2 ? 3 : 1);
        assert_int_equal(run(s, &c), i % 2 ? BK_ST_RUNTIME : 0);
        if (i % 2) {
            assert_string_equal(c.message, bk_sites[0]);
            assert_int_equal(c.out[0].rank, -7);
        } else
            check_values(&c, c.out[0].data);
    }
    end(s);
}

/* What a program does with a session: 0, or the first status that is not. */
static int use(void) {
    braid_session_config_v1 cfg = {.struct_size = sizeof cfg};
    void *s = NULL;
    int st = braid_model()->session_new(&cfg, &s);
    if (st) {
        assert_null(s);
        return st;
    }
    Case c;
    for (int i = 0; i < 5 && !st; i++) {
        case_init(&c, i, 1);
        st = run(s, &c);
        if (st)
            assert_int_equal(c.out[0].rank, -7);
        else
            check_values(&c, c.out[0].data);
    }
    gpu_driver.fail_at = 0;
    for (int i = 0; i < 5 && st && gpu_driver.fail_with != 700; i++) { /* the session goes on */
        case_init(&c, i, 2);
        assert_int_equal(run(s, &c), 0);
        check_values(&c, c.out[0].data);
    }
    braid_model()->session_free(s);
    return st;
}

/* Every call of the driver and of the library fails in turn. */
static void test_failures(void **state) {
    (void)state;
    static const int with[] = {1, 2, 700};
    int failed = 0, survived = 0;
    for (int i = 0; i < 3; i++) {
        gpu_driver.fail_with = with[i];
        gpu_driver.fail_at = 0;
        gpu_driver.calls = 0;
        assert_int_equal(use(), 0);
        int calls = gpu_driver.calls;
        for (int n = 1; n <= calls; n++) {
            gpu_driver.calls = 0;
            gpu_driver.fail_at = n;
            int st = use();
            assert_true(st >= 0 && st <= BK_ST_USAGE);
            failed += st != 0;
            survived += st == 0;
            gpu_driver.fail_at = 0;
            if (gpu_driver.alive) fail_msg("call %d failing leaves %d things", n, gpu_driver.alive);
            assert_int_equal(gpu_driver.bad, 0);
        }
    }
    assert_true(failed > 50);
    assert_true(survived > (there ? 20 : 5)); /* without the library, or without graphs */
}

int main(void) {
    gpu_driver.kernel = kernel;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_runs),
        cmocka_unit_test(test_graphs),
#if !GPU_FIXED
        cmocka_unit_test(test_sizes),
#endif
        cmocka_unit_test(test_taken_over),
        cmocka_unit_test(test_faults),
        cmocka_unit_test(test_failures)
    };
    int failed = 0;
    for (there = 0; there < 2; there++) {
        gpu_driver.no_library = !there;
        failed += cmocka_run_group_tests_name(there ? "with a library" : "without one", tests, NULL,
                                              NULL);
    }
    return failed;
}
