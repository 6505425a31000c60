/* Plans that the host makes before it launches the kernel (codegen/text/gpu/plan.inc), with a
 * driver that stands in for CUDA's, HIP's or the emulator's (gpu_driver.c): when they are made and
 * copied, growth and faults without a launch, and a failure of every call. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "include/braid_model.h"
#include "codegen/emulate/driver.inc"
#include "codegen/text/gpu/ctx.inc"
#include "tests/unit/gpu_driver.h"

/* y = x times the sum of tree, as two plans have it: of tree's elements, and of their negatives.
 * An element -1 is a fault, -2 a recursion that is too deep. From MANY elements on, the first plan
 * needs more room than it is given at first. Where x is 7, the kernel finds a fault; and once,
 * where the slots are as small as they can be, that the arena is too small. */
#define MANY 5000
#define MOST 9000
#define BK_NAME "plans"
#define BK_NIN 2
#define BK_NOUT 1
#define BK_ARENA ((size_t)4096)
#define BK_NSLOT 3
#define BK_SLOT_BYTES 64
#define BK_NSITE 4
#define BK_THREADS 64
#define BK_SHARED_BYTES 1024
#define BK_CLUSTER 1
#define BK_UNITS 0
#define BK_WEIGHTS_SIZE 0
#define BK_BACKEND GPU_NAMES
#define BK_TARGET (GPU_NAMES == 0 ? "cuda:sm_90" : GPU_NAMES == 1 ? "hip:gfx90a" : "emulate:cuda")
#define BK_FIXED 0
#define BK_STAYS 0
static const unsigned char bk_weights[64];
static const char *const bk_sites[] = {"element \1 is negative", "tree: the recursion needs depth",
                                       "x is 7", "tree: the run needs"};
static const braid_io_v1 bk_inputs[] = {{"tree", BRAID_IO_TENSOR, 7, 1, {-1}, {0}},
                                        {"x", BRAID_IO_TENSOR, 1, 0, {0}, {0}}};
static const braid_io_v1 bk_outputs[] = {{"y", BRAID_IO_TENSOR, 1, 0, {0}, {0}}};

#include "codegen/text/seed.inc"
#include "codegen/text/memory.inc"
#include "codegen/text/fault.inc"
#include "codegen/text/entry.inc"
#include "codegen/text/gpu/calls.inc"
#include "codegen/text/gpu/driver.inc"
#include "codegen/text/gpu/device.inc"
#include "codegen/text/c.inc"
#include "codegen/text/gpu/host.inc"
#include "codegen/text/scalar.inc"
#include "codegen/text/linearize.inc"

static int made[2], launched, grows;

static int64_t make(bk_ctx *k, int64_t *word, int64_t room, int64_t *used, int sign) {
    const int64_t n = k->in[0].dim[0], *tree = k->in[0].data;
    made[sign < 0]++;
    if (2 * n + 2 > room) return 2 * room + 17;
    word[BK_LIN_NODES] = n;
    for (int64_t i = 0; i < n; i++) {
        if (tree[i] == -1) bk_fault_said(k, 0, tree[i], BK_UNSAID, BK_UNSAID, BK_UNSAID);
        if (tree[i] == -2) bk_too_deep(k, k->stack_depth + 5, 1);
        if (bk_state(k) == BK_FAULT) return 0;
        word[2 + i] = sign * tree[i];
    }
    *used = n + 2;
    return 0;
}
static int64_t plan0(bk_ctx *k, int64_t *word, int64_t room, int64_t *used) {
    return make(k, word, room, used, 1);
}
static int64_t plan1(bk_ctx *k, int64_t *word, int64_t room, int64_t *used) {
    return make(k, word, room, used, -1);
}
#define BK_NPLAN 2
#define BK_PLANS                                                                                   \
    {2, 3, plan0}, { 0, 3, plan1 }
#define BK_PLAN_READS 1, 0
#include "codegen/text/gpu/plan.inc"
#include "codegen/text/gpu/run.inc"
#include "codegen/text/gpu/entry.inc"

static int64_t sum_of(const int64_t *word) {
    int64_t sum = 0;
    for (int64_t i = 0; i < word[BK_LIN_NODES]; i++) sum += word[2 + i];
    return sum;
}

static int kernel(void *argument, int grid) {
    bk_ctx *k = argument;
    const float x = *(const float *)k->in[1].data;
    const int64_t n = k->in[0].dim[0];
    float *y = (float *)k->arena;
    (void)grid;
    launched++;
    for (int i = 0; i < 3; i += 2)
        if (!gpu_driver_memory(k->slot[i], (size_t)n * 8 + 16)) {
            gpu_driver.bad++;
            return 1;
        }
    const int64_t sum = sum_of((int64_t *)k->slot[2]);
    if (sum + sum_of((int64_t *)k->slot[0]) || ((int64_t *)k->slot[0])[BK_LIN_NODES] != n)
        gpu_driver.bad++;
    if (x == 7) {
        k->fault = 3;
        k->state = BK_FAULT;
    } else if (x == 8 && k->arena_size < 1 << 20) {
        k->arena_need = 1 << 20;
        k->cap_need[1] = 1 << 20;
        k->state = BK_GROW;
        grows++;
    }
    *y = x * (float)sum;
    k->out[0] = (braid_tensor_v1){y, 1, 0, {0}};
    return 0;
}

typedef struct Case {
    int64_t tree[MOST];
    float x;
    braid_tensor_v1 in[2], out[1];
    char message[300];
} Case;

static void case_init(Case *c, int64_t n, int seed, float x) {
    for (int64_t i = 0; i < n; i++) c->tree[i] = (i * 7 + seed * 5) % 11;
    c->x = x;
    c->in[0] = (braid_tensor_v1){c->tree, 7, 1, {n}};
    c->in[1] = (braid_tensor_v1){&c->x, 1, 0, {0}};
    c->out[0].rank = -7;
    made[0] = made[1] = launched = 0;
    gpu_driver.copies = 0;
}
static float want(const Case *c) {
    int64_t sum = 0;
    for (int64_t i = 0; i < c->in[0].dim[0]; i++) sum += c->tree[i];
    return c->x * (float)sum;
}
static int run(void *s, Case *c) {
    return braid_model()->run(s, c->in, c->out, c->message, sizeof c->message);
}
static void check_run(void *s, Case *c) {
    assert_int_equal(run(s, c), 0);
    assert_true(*(const float *)c->out[0].data == want(c));
}
static void *session(int64_t depth, int64_t memory) {
    braid_session_config_v1 cfg = {
        .struct_size = sizeof cfg, .stack_depth = depth, .max_memory = memory};
    void *s = NULL;
    assert_int_equal(braid_model()->session_new(&cfg, &s), 0);
    return s;
}
static void end(void *s) {
    braid_model()->session_free(s);
    assert_int_equal(gpu_driver.alive, 0);
    assert_int_equal(gpu_driver.bad, 0);
}

/* Equal structures are neither walked nor copied again, whatever else changes. */
static void test_equal(void **state) {
    (void)state;
    static Case c;
    void *s = session(0, 0);
    for (int i = 0; i < 6; i++) {
        case_init(&c, 40 + i / 3, 1, (float)i);
        check_run(s, &c);
        assert_int_equal(made[0], i % 3 == 0);
        assert_int_equal(made[1], i % 3 == 0);
        assert_int_equal(launched, 1);
        const int again = gpu_driver.copies;
        case_init(&c, 40 + i / 3, 1, (float)i + 1);
        check_run(s, &c);
        if (i % 3 == 0) assert_true(again >= gpu_driver.copies + 2);
    }
    case_init(&c, 41, 2, 1); /* another value */
    check_run(s, &c);
    assert_int_equal(made[0], 1);
    assert_int_equal(braid_model()->stat(s, BRAID_STAT_NODES), 2 * 41);
    for (int i = 0; i < 2; i++) {
        if (!i) braid_model()->renumber(s);
        case_init(&c, 41, 2, 1);
        check_run(s, &c);
        assert_int_equal(made[0], !i);
        assert_true((braid_model()->stat(s, BRAID_STAT_NUMBERING_NS) > 0) == !i);
    }
    end(s);
}

/* A plan that needs more room is made again, without a launch; it stays where other slots grow. */
static void test_growth(void **state) {
    (void)state;
    static Case c;
    void *s = session(0, 0);
    static const int64_t n[] = {3, MANY, 3, MOST, 0, MOST};
    for (int i = 0; i < 6; i++) {
        case_init(&c, n[i], i, 2);
        check_run(s, &c);
        assert_int_equal(launched, 1);
        assert_int_equal(braid_model()->stat(s, BRAID_STAT_RESTARTS), 0);
        assert_int_equal(made[0], i == 1 || i == 3 ? 3 - i / 3 : 1);
    }
    grows = 0;
    case_init(&c, 12, 3, 8);
    check_run(s, &c);
    assert_int_equal(grows, 1);
    assert_int_equal(launched, 2);
    assert_int_equal(made[0], 1);
    end(s);
}

static void test_faults(void **state) {
    (void)state;
    static Case c;
    void *s = session(20, 0);
    for (int i = 0; i < 8; i++) {
        case_init(&c, 30, i / 4, 3);
        if (i % 4 == 1) c.tree[20] = -1;
        if (i % 4 == 2) c.tree[20] = -2;
        if (i % 4 == 3) c.x = 7;
        if (i % 4 == 0)
            check_run(s, &c);
        else {
            assert_int_equal(run(s, &c), BK_ST_RUNTIME);
            assert_int_equal(c.out[0].rank, -7);
            assert_string_equal(c.message, i % 4 == 1 ? "element -1 is negative"
                                           : i % 4 == 2
                                               ? "tree: the recursion needs depth 25; the limit is "
                                                 "20 (--stack-depth)"
                                               : "x is 7");
        }
        assert_int_equal(launched, i % 4 == 0 || i % 4 == 3);
        assert_int_equal(made[1], i % 4 == 0 || i % 4 == 3);
    }
    case_init(&c, 30, 1, 3); /* as the last one that failed */
    check_run(s, &c);
    assert_int_equal(made[0], 0);
    end(s);
}

static void test_limit(void **state) {
    (void)state;
    static Case c;
    void *s = session(0, 90000);
    case_init(&c, 100, 1, 2);
    check_run(s, &c);
    case_init(&c, MOST, 1, 2);
    assert_int_equal(run(s, &c), BK_ST_MEMORY);
    assert_non_null(strstr(c.message, "tree: the run needs"));
    assert_int_equal(launched, 0);
    case_init(&c, 100, 1, 2);
    check_run(s, &c);
    end(s);
}

/* Tensors in the device's memory are copied back first, on the caller's stream. */
static void test_device(void **state) {
    (void)state;
    static Case c;
    const braid_model_v1 *m = braid_model();
    void *s = session(0, 0), *memory[2];
    braid_tensor_v1 in[2];
    float y;
    for (int i = 0; i < 8; i++) {
        case_init(&c, i < 6 ? 50 : MANY, i / 2, 2);
        if (i == 5) c.tree[10] = -1;
        for (int j = 0; j < 2; j++) {
            in[j] = c.in[j];
            assert_int_equal(m->memory_new(s, bk_bytes(&in[j]), &memory[j], &in[j].data, NULL, 0),
                             0);
            assert_int_equal(m->memory_copy(s, NULL, BRAID_COPY_IN, in[j].data, c.in[j].data,
                                            bk_bytes(&in[j]), NULL, 0),
                             0);
        }
        const int st = m->run_on(s, NULL, in, c.out, c.message, sizeof c.message);
        assert_int_equal(st, i == 5 ? BK_ST_RUNTIME : 0);
        assert_int_equal(made[0], i % 2 == 0 || i == 5 ? i == 6 ? 3 : 1 : 0);
        assert_int_equal(launched, i != 5);
        if (!st) {
            assert_int_equal(
                m->memory_copy(s, NULL, BRAID_COPY_OUT, &y, c.out[0].data, sizeof y, NULL, 0), 0);
            assert_true(y == want(&c));
        }
        for (int j = 0; j < 2; j++) m->memory_free(memory[j]);
    }
    end(s);
}

/* What a program does with a session: 0, or the first status that is not. */
static int use(void) {
    static Case c;
    braid_session_config_v1 cfg = {.struct_size = sizeof cfg};
    void *s = NULL;
    int st = braid_model()->session_new(&cfg, &s);
    if (st) {
        assert_null(s);
        return st;
    }
    for (int i = 0; i < 5 && !st; i++) {
        case_init(&c, i == 3 ? MANY : 20, i / 2, i == 2 ? 8 : 1);
        st = run(s, &c);
        assert_true(st ? c.out[0].rank == -7 : *(const float *)c.out[0].data == want(&c));
    }
    gpu_driver.fail_at = 0;
    for (int i = 0; i < 5 && st && gpu_driver.fail_with != 700; i++) { /* the session goes on */
        case_init(&c, i == 3 ? MANY : 20, i / 2, 2);
        check_run(s, &c);
    }
    braid_model()->session_free(s);
    return st;
}

/* Every call of the driver fails in turn. */
static void test_failures(void **state) {
    (void)state;
    static const int with[] = {1, 2, 700};
    int failed = 0;
    for (int i = 0; i < 3; i++) {
        gpu_driver.fail_with = with[i];
        gpu_driver.fail_at = 0;
        gpu_driver.calls = 0;
        assert_int_equal(use(), 0);
        const int calls = gpu_driver.calls;
        for (int n = 1; n <= calls; n++) {
            gpu_driver.calls = 0;
            gpu_driver.fail_at = n;
            const int st = use();
            assert_true(st >= 0 && st <= BK_ST_USAGE);
            failed += st != 0;
            gpu_driver.fail_at = 0;
            if (gpu_driver.alive) fail_msg("call %d failing leaves %d things", n, gpu_driver.alive);
            assert_int_equal(gpu_driver.bad, 0);
        }
    }
    assert_true(failed > 50);
}

int main(void) {
    gpu_driver.kernel = kernel;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_equal),  cmocka_unit_test(test_growth),
        cmocka_unit_test(test_faults), cmocka_unit_test(test_limit),
        cmocka_unit_test(test_device), cmocka_unit_test(test_failures)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
