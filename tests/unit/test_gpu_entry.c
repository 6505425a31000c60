/* The host's part of programs for GPUs (codegen/gpu/: driver.h to entry.c) around a kernel written
 * by hand and a driver that stands in for CUDA's, HIP's or the emulator's (gpu_driver.c,
 * GPU_NAMES): what runs come to, growth, faults, streams, devices, and a failure of every call. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "include/braid_model.h"
#include "codegen/emulate/driver.inc"
#include "codegen/text/gpu/ctx.inc"
#include "tests/unit/gpu_driver.h"

/* y[i] = x[i] + w[i % 4] + steps, z = 7. mode: 1 wants more working memory, 2 a bigger buffer, 3
 * faults, 4 goes too deep, 5 grows without end, 6 kills the device, 7 has no z, 8 calls itself
 * without end. */
#define BK_NAME "sums"
#define BK_NIN 3
#define BK_NOUT 2
#define BK_ARENA ((size_t)4096)
#define BK_NSITE 3
#define BK_THREADS 64
#define BK_SHARED_BYTES 1024
#ifndef BK_CLUSTER
#define BK_CLUSTER 1
#endif
#define BK_UNITS 0
#define BK_WEIGHTS_SIZE 16
#define BK_BACKEND GPU_NAMES
#define BK_TARGET (GPU_NAMES == 0 ? "cuda:sm_90" : GPU_NAMES == 1 ? "hip:gfx90a" : "emulate:cuda")
#define BK_INPUT_ALIGN 4
#if GPU_FIXED
#define BK_NSLOT 0
#define BK_FIXED 1
#define BK_STAYS (GPU_FIXED == 1)
#define ROWS 6
#else
#define BK_NSLOT 1
#define BK_FIXED 0
#define BK_STAYS 0
#define ROWS -1
#endif
static const float bk_weights[4] = {1, 2, 3, 4};
static const char *const bk_sites[] = {"first fault",
                                       "/loop/gather (Gather): index \1 is outside [\2, \3)",
                                       "/f (Invoke): function f needs a depth of"};
static const braid_io_v1 bk_inputs[] = {{"x", BRAID_IO_TENSOR, 1, 2, {ROWS, 4}, {"n"}},
                                        {"mode", BRAID_IO_TENSOR, 7, 0, {0}, {0}},
                                        {"steps", BRAID_IO_OPTIONAL_TENSOR, 7, 0, {0}, {0}}};
static const braid_io_v1 bk_outputs[] = {{"y", BRAID_IO_TENSOR, 1, 2, {ROWS, 4}, {0}},
                                         {"x", BRAID_IO_TENSOR, 1, 2, {ROWS, 4}, {0}}};

#include "codegen/text/seed.inc"
#include "codegen/text/memory.inc"
#include "codegen/text/fault.inc"
#include "codegen/text/entry.inc"
#include "codegen/text/gpu/calls.inc"
#include "codegen/text/gpu/driver.inc"
#include "codegen/text/gpu/device.inc"
#include "codegen/text/gpu/run.inc"
#include "codegen/text/gpu/entry.inc"

#define FAULT_1 "/loop/gather (Gather): index 7 is outside [?, 0)"
static int grid_seen;

static int kernel(void *argument, int grid) {
    bk_ctx *k = argument;
    const float *x = k->in[0].data, *w = (const float *)k->weights;
    int64_t n = k->in[0].dim[0] * 4, mode = *(const int64_t *)k->in[1].data;
    int64_t steps = k->in[2].rank < 0 ? 1 : *(const int64_t *)k->in[2].data;
    grid_seen = grid;
    unsigned *const own = &k->words[BK_WORDS(grid)];
    if (k->words[0] != *own << 2 || k->turn != *own) gpu_driver.bad++; /* out of step */
    if (mode == 6) return 700;
    k->turn += (unsigned)steps + 1;
    *own = k->turn;
    k->words[0] = k->turn << 2;
    if (mode == 3) {
        k->fault = 2;
        k->said[0] = 7;
        k->said[1] = INT64_MIN;
        k->state = BK_FAULT;
        return 0;
    }
    if (mode == 4 || mode == 8) { /* 12000 deep, or without end */
        const int64_t depth = mode == 4 ? 12000 : INT64_MAX;
        if (depth > k->stack_depth) k->deep = 3;
        if (k->deep && k->depth_cap > k->stack_depth)
            k->deepest = (unsigned long long)(k->depth_cap < depth ? k->depth_cap : depth);
        if (depth > k->depth_cap) {
            k->fault = 3;
            k->state = BK_FAULT;
            return 0;
        }
        steps = 1;
    }
    size_t need = (size_t)n * 4 * (mode == 1 ? 1000 : 1);
    if (mode == 5) need = k->arena_size * 2;
    if (k->arena_need < need) k->arena_need = need;
    if (need > k->arena_size) k->state = BK_GROW;
    if (mode == 2) {
        if (k->cap_need[0] < 300000) k->cap_need[0] = 300000;
        if (k->cap[0] < 300000)
            k->state = BK_GROW;
        else
            memset(k->slot[0], 1, 300000);
    }
    if (k->state || k->fault) return 0;
    float *y = (float *)k->arena;
    for (int64_t i = 0; i < n; i++) y[i] = x[i] + w[i % 4] + (float)steps;
    k->out[0] = (braid_tensor_v1){y, 1, 2, {n / 4, 4}};
    k->out[1] = k->in[0];
    if (mode == 7) k->out[1] = (braid_tensor_v1){NULL, 0, -1, {0}};
    for (int i = 0; k->deliver && k->deliver[i].to; i++)
        memcpy(k->deliver[i].to, k->out[i].data, k->deliver[i].bytes);
    return 0;
}

/* The first run on device tensors is not waited for. */
#define KNOWN (BK_FIXED && !BK_STAYS)

#if BK_CLUSTER > 1
#define UNIT "cluster"
#else
#define UNIT "block"
#endif
#define N 6
typedef struct Case {
    float x[N * 4];
    int64_t mode, steps;
    braid_tensor_v1 in[3], out[2];
    char message[300];
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
static int run(void *s, Case *c) {
    return braid_model()->run(s, c->in, c->out, c->message, sizeof c->message);
}
static void check_sums(const Case *c, const float *y, const float *x) {
    for (int i = 0; i < N * 4; i++) {
        assert_true(y[i] == c->x[i] + bk_weights[i % 4] + (float)c->steps);
        assert_true(x[i] == c->x[i]);
    }
}
static void check(const Case *c) {
    assert_int_equal(c->out[0].rank, 2);
    assert_int_equal(c->out[0].dim[0], N);
    check_sums(c, c->out[0].data, c->out[1].data);
}
static void *session(int threads) {
    braid_session_config_v1 cfg = {.struct_size = sizeof cfg, .threads = threads};
    void *s = NULL;
    assert_int_equal(braid_model()->session_new(&cfg, &s), 0);
    return s;
}
static void end(void *s) {
    braid_model()->session_free(s);
    assert_int_equal(gpu_driver.alive, 0);
    assert_int_equal(gpu_driver.bad, 0);
}

static void test_runs(void **state) {
    (void)state;
    const braid_model_v1 *m = braid_model();
    for (int threads = 0; threads <= 3; threads++) {
        void *s = session(threads);
        const int units = !threads               ? 8
                          : threads < BK_CLUSTER ? BK_CLUSTER
                                                 : threads / BK_CLUSTER * BK_CLUSTER;
        assert_int_equal(m->stat(s, BRAID_STAT_THREADS), units);
        for (int i = 0; i < 20; i++) {
            Case c;
            case_init(&c, 0, i % 12);
            assert_int_equal(run(s, &c), 0);
            check(&c);
            assert_int_equal(grid_seen, units);
            assert_int_equal(gpu_driver.cluster, BK_CLUSTER > 1 ? BK_CLUSTER : 0);
            assert_int_equal(m->stat(s, BRAID_STAT_BARRIERS), units == 1 ? 0 : i % 12 + 1);
            assert_int_equal(m->stat(s, BRAID_STAT_RESTARTS), 0);
        }
        end(s);
    }
    void *s = session(1000); /* more than fit */
    assert_int_equal(m->stat(s, BRAID_STAT_THREADS), 8);
    end(s);
    m->session_free(NULL);
}

static void test_faults(void **state) {
    (void)state;
    void *s = session(0);
    Case c;
    for (int i = 0; i < 3; i++) {
        case_init(&c, 3, 1);
        assert_int_equal(run(s, &c), BK_ST_RUNTIME);
        assert_string_equal(c.message, FAULT_1);
        assert_int_equal(c.out[0].rank, -7);
        case_init(&c, 4, 1);
        assert_int_equal(run(s, &c), BK_ST_RUNTIME);
        /* The emulator is too slow to find out. */
        assert_non_null(strstr(
            c.message, GPU_NAMES == 2
                           ? "function f needs a depth of more than 10000; the limit is 10000"
                           : "function f needs a depth of 12000; the limit is 10000"));
        case_init(&c, 8, 1);
        assert_int_equal(run(s, &c), BK_ST_RUNTIME);
        assert_non_null(strstr(c.message, "needs a depth of more than "));
        assert_int_equal(c.out[0].rank, -7);
        case_init(&c, 7, 1);
        assert_int_equal(run(s, &c), 0);
        assert_int_equal(c.out[1].rank, -1);
        assert_null(c.out[1].data);
        case_init(&c, 0, 1);
        assert_int_equal(run(s, &c), 0);
        check(&c);
    }
    c.in[0].dim[1] = 3;
    assert_int_equal(run(s, &c), BK_ST_INPUT);
    assert_int_equal(braid_model()->run(s, NULL, c.out, c.message, sizeof c.message), BK_ST_USAGE);
    case_init(&c, 6, 1);
    assert_int_equal(run(s, &c), BK_ST_RUNTIME);
    assert_string_equal(
        c.message,
        "device 0 (First): launching the kernel: an illegal memory access was encountered");
    case_init(&c, 0, 1);
    assert_int_equal(run(s, &c), BK_ST_RUNTIME);
    assert_string_equal(c.message,
                        "device 0 (First) was lost: an illegal memory access was encountered");
    end(s);
}

#if !GPU_FIXED
static void test_growth(void **state) {
    (void)state;
    const braid_model_v1 *m = braid_model();
    void *s = session(2);
    Case c;
    case_init(&c, 1, 3);
    assert_int_equal(run(s, &c), 0);
    check(&c);
    assert_int_equal(m->stat(s, BRAID_STAT_RESTARTS), 1);
    assert_int_equal(m->stat(s, BRAID_STAT_BARRIERS), 4);
    assert_int_equal(run(s, &c), 0);
    assert_int_equal(m->stat(s, BRAID_STAT_RESTARTS), 0);
    case_init(&c, 2, 3);
    assert_int_equal(run(s, &c), 0);
    check(&c);
    assert_int_equal(m->stat(s, BRAID_STAT_RESTARTS), 1);
    assert_true(m->stat(s, BRAID_STAT_ARENA_BYTES) >= 396000);
    case_init(&c, 5, 1);
    assert_int_equal(run(s, &c), BK_ST_MEMORY);
    assert_non_null(strstr(c.message, "out of memory: the run needs more than "));
    assert_int_equal(c.out[0].rank, -7);
    case_init(&c, 0, 2); /* and the session still works */
    assert_int_equal(run(s, &c), 0);
    check(&c);
    end(s);
}
#endif

/* A tensor in the device's memory. */
typedef struct On {
    void *memory;
    braid_tensor_v1 t;
} On;
static On on(void *s, const braid_tensor_v1 *t) {
    On o = {.t = *t};
    assert_int_equal(braid_model()->memory_new(s, bk_bytes(t), &o.memory, &o.t.data, NULL, 0), 0);
    assert_int_equal(
        braid_model()->memory_copy(s, NULL, BRAID_COPY_IN, o.t.data, t->data, bk_bytes(t), NULL, 0),
        0);
    return o;
}
static void check_on(void *s, const Case *c, const braid_tensor_v1 *out) {
    float y[2][N * 4];
    for (int i = 0; i < 2; i++)
        assert_int_equal(braid_model()->memory_copy(s, NULL, BRAID_COPY_OUT, y[i], out[i].data,
                                                    sizeof y[i], NULL, 0),
                         0);
    check_sums(c, y[0], y[1]);
}

static void test_streams(void **state) {
    (void)state;
    const braid_model_v1 *m = braid_model();
    void *s = session(0);
    const bk_session *own = s;
    On x[12], mode[8], steps;
    Case c;
    case_init(&c, 0, 5);
    for (int i = 0; i < 12; i++) x[i] = on(s, &c.in[0]);
    for (c.mode = 0; c.mode < 8; c.mode++) mode[c.mode] = on(s, &c.in[1]);
    steps = on(s, &c.in[2]);
    braid_tensor_v1 in[3] = {x[0].t, mode[0].t, steps.t};
    gpu_driver.waits = gpu_driver.copies = 0;
    assert_int_equal(m->run_on(s, own->stream, in, c.out, c.message, sizeof c.message), 0);
    assert_true(KNOWN || gpu_driver.waits > 0);
    check_on(s, &c, c.out);
    assert_true(KNOWN || c.out[1].data == x[0].t.data); /* no copy */
    for (int i = 0; i < 12; i++) {
        in[0] = x[i].t;
        gpu_driver.waits = gpu_driver.copies = gpu_driver.fills = 0;
        gpu_driver.busy = i % 2;
        assert_int_equal(
            m->run_on(s, i % 3 ? own->stream : NULL, in, c.out, c.message, sizeof c.message), 0);
        check_on(s, &c, c.out);
        assert_true(KNOWN || c.out[1].data == x[i].t.data);
        assert_int_equal(m->stat(s, BRAID_STAT_RESTARTS), 0);
        if (GPU_FIXED && gpu_driver.busy)
            assert_true(gpu_driver.waits <= 1); /* that of a table, which is over */
        assert_int_equal(gpu_driver.fills, 0);
    }
    gpu_driver.busy = 1;
    /* A fault is what the call returns, or the next one, or finish. */
    in[1] = mode[3].t;
    int st = m->run_on(s, NULL, in, c.out, c.message, sizeof c.message);
    assert_int_equal(st, GPU_FIXED ? 0 : BK_ST_RUNTIME);
    if (GPU_FIXED) assert_int_equal(m->finish(s, c.message, sizeof c.message), BK_ST_RUNTIME);
    assert_string_equal(c.message, FAULT_1);
    assert_int_equal(m->finish(s, c.message, sizeof c.message), 0);
    in[1] = mode[0].t;
    assert_int_equal(m->run_on(s, NULL, in, c.out, c.message, sizeof c.message), 0);
    assert_int_equal(m->finish(s, c.message, sizeof c.message), 0);
    check_on(s, &c, c.out);
    in[1] = mode[3].t;
    if (GPU_FIXED) assert_int_equal(m->run_on(s, NULL, in, c.out, c.message, sizeof c.message), 0);
    gpu_driver.busy = 0;
    assert_int_equal(m->run_on(s, NULL, in, c.out, c.message, sizeof c.message), BK_ST_RUNTIME);
    in[1] = mode[3].t;
    if (GPU_FIXED) assert_int_equal(m->run_on(s, NULL, in, c.out, c.message, sizeof c.message), 0);
    Case host; /* nor is it lost when the next run is on the host's tensors */
    case_init(&host, 0, 1);
    if (GPU_FIXED) assert_int_equal(run(s, &host), BK_ST_RUNTIME);
    assert_int_equal(run(s, &host), 0);
    check(&host);
    in[1] = mode[0].t;
    in[0].data = (char *)in[0].data + 2;
    assert_int_equal(m->run_on(s, NULL, in, c.out, c.message, sizeof c.message), BK_ST_INPUT);
    assert_string_equal(c.message, "input 'x': its data is not aligned to 4 bytes");
#if !GPU_FIXED
    in[0] = x[0].t;
    in[1] = mode[1].t;
    assert_int_equal(m->run_on(s, NULL, in, c.out, c.message, sizeof c.message), 0);
    assert_int_equal(m->stat(s, BRAID_STAT_RESTARTS), 1);
    check_on(s, &c, c.out);
#endif
    /* Memory outlives the session. */
    m->session_free(s);
    for (int i = 0; i < 12; i++) m->memory_free(x[i].memory);
    for (int i = 0; i < 8; i++) m->memory_free(mode[i].memory);
    m->memory_free(steps.memory);
    end(NULL);
}

/* The context, or the stream, has fewer multiprocessors than when the session began. */
static void test_fewer(void **state) {
    (void)state;
    const int had = gpu_driver.processors;
    void *s = session(0);
    Case c;
    for (int n = had; n >= 0; n -= 1) {
        gpu_driver.processors = n;
        for (int i = 0; i < 3; i++) {
            case_init(&c, 0, i);
            assert_int_equal(run(s, &c), n ? 0 : BK_ST_RUNTIME);
            if (n) check(&c);
            if (n) assert_int_equal(grid_seen, 2 * n);
        }
        assert_int_equal(braid_model()->stat(s, BRAID_STAT_THREADS), n ? 2 * n : BK_CLUSTER);
    }
    gpu_driver.processors = had;
    assert_int_equal(run(s, &c), 0);
    check(&c);
    end(s);
}

#if GPU_NAMES == 2 /* graphs are called by the driver's own names */
/* Runs that are captured: pure launches, which replays repeat with what is in the inputs then. */
static void test_captured(void **state) {
    (void)state;
    const braid_model_v1 *m = braid_model();
    void *s = session(0), *graph, *exec, *caller;
    On x[2], y[2], mode;
    Case c[2], host;
    static const char cannot[] = "the model cannot run on a stream that is being captured: ";
    for (int i = 0; i < 2; i++) {
        case_init(&c[i], 0, 1);
        for (int j = 0; j < N * 4; j++) c[i].x[j] += (float)(100 * i);
        x[i] = on(s, &c[i].in[0]);
        y[i] = on(s, &c[i].in[2]);
    }
    mode = on(s, &c[0].in[1]);
    braid_tensor_v1 in[2][3] = {{x[0].t, mode.t, y[0].t}, {x[1].t, mode.t, y[1].t}};
    gpu_driver_context(gpu_driver_primary(0));
    assert_int_equal(emu_stream_create(&caller, 1), 0);
    gpu_driver.busy = 1;
    for (int first = 1; first >= 0; first--) { /* before any run, and behind one */
        assert_int_equal(emu_stream_begin_capture(caller, 0), 0);
        const int st = m->run_on(s, caller, in[0], c[0].out, c[0].message, sizeof c[0].message);
        assert_int_equal(emu_stream_end_capture(caller, &graph), 0);
        assert_int_equal(gpu_driver.bad, 0);
        assert_int_equal(st, first || !GPU_FIXED ? BK_ST_USAGE : 0);
        if (st) assert_memory_equal(c[0].message, cannot, sizeof cannot - 1);
        if (st) assert_int_equal(emu_graph_destroy(graph), 0);
        if (first)
            assert_int_equal(
                m->run_on(s, caller, in[0], c[0].out, c[0].message, sizeof c[0].message), 0);
    }
#if GPU_FIXED
    assert_int_equal(emu_graph_instantiate(&exec, graph, 0), 0);
    assert_int_equal(emu_graph_destroy(graph), 0);
    static const float more[N * 4] = {7, 8, 9};
    for (int i = 0; i < 4; i++) {
        memcpy(c[0].x, i % 2 ? more : c[1].x, sizeof c[0].x);
        assert_int_equal(
            m->memory_copy(s, NULL, BRAID_COPY_IN, x[0].t.data, c[0].x, sizeof c[0].x, NULL, 0), 0);
        /* Other runs in between: on other memory, on the host's, with a fault. */
        if (i == 1)
            assert_int_equal(
                m->run_on(s, caller, in[1], c[1].out, c[1].message, sizeof c[1].message), 0);
        if (i == 1) check_on(s, &c[1], c[1].out);
        if (i == 2) case_init(&host, 0, 3);
        if (i == 2) assert_int_equal(run(s, &host), 0);
        if (i == 2) check(&host);
        if (i == 3) case_init(&host, 3, 3);
        if (i == 3) assert_int_equal(run(s, &host), BK_ST_RUNTIME);
        assert_int_equal(emu_graph_launch(exec, caller), 0);
        check_on(s, &c[0], c[0].out);
        assert_int_equal(m->finish(s, c[0].message, sizeof c[0].message), 0);
    }
    c[0].mode = 3; /* a fault in a replay is finish's, and the next one begins anew */
    for (int i = 0; i < 3; i++) {
        assert_int_equal(m->memory_copy(s, NULL, BRAID_COPY_IN, mode.t.data, &c[0].mode,
                                        sizeof c[0].mode, NULL, 0),
                         0);
        assert_int_equal(emu_graph_launch(exec, caller), 0);
        assert_int_equal(m->finish(s, c[0].message, sizeof c[0].message),
                         c[0].mode ? BK_ST_RUNTIME : 0);
        if (c[0].mode) assert_string_equal(c[0].message, FAULT_1);
        c[0].mode = c[0].mode ? 0 : 3;
    }
    assert_int_equal(emu_graph_exec_destroy(exec), 0);
    int st = 0; /* each capture keeps a table, of which there are a few */
    for (int i = 0; i < BK_CAPTURES; i++) {
        assert_int_equal(emu_stream_begin_capture(caller, 0), 0);
        st = m->run_on(s, caller, in[0], c[0].out, c[0].message, sizeof c[0].message);
        assert_int_equal(emu_stream_end_capture(caller, &graph), 0);
        assert_int_equal(emu_graph_destroy(graph), 0);
        assert_int_equal(st, i == BK_CAPTURES - 1 ? BK_ST_USAGE : 0);
    }
    assert_non_null(strstr(c[0].message, "use another session"));
#else
    (void)exec, (void)host;
#endif
    gpu_driver.busy = 0;
    m->session_free(s);
    assert_int_equal(emu_stream_destroy(caller), 0);
    gpu_driver_context(NULL);
    for (int i = 0; i < 2; i++) m->memory_free(x[i].memory), m->memory_free(y[i].memory);
    m->memory_free(mode.memory);
    end(NULL);
}

#endif

static void expect_none(int device, int status, const char *message) {
    char text[300] = "";
    void *s = NULL;
    braid_session_config_v1 cfg = {
        .struct_size = sizeof cfg, .device = device, .message = text, .message_size = sizeof text};
    assert_int_equal(braid_model()->session_new(&cfg, &s), status);
    assert_null(s);
    assert_string_equal(text, message);
    end(NULL);
}

static void test_devices(void **state) {
    (void)state;
    const GpuDriver was = gpu_driver;
    const char *name = bk_backend_now->name;
    char text[300];
    gpu_driver.devices = 0;
    snprintf(text, sizeof text, "no %s device on this machine", name);
    expect_none(0, BK_ST_IO, text);
    gpu_driver = was;
    snprintf(text, sizeof text, "there is no %s device 2 on this machine, which has 2", name);
    expect_none(3, BK_ST_USAGE, text);
    gpu_driver.cooperative = 0;
    expect_none(2, BK_ST_IO, "device 1 (Second) cannot launch cooperative kernels");
    gpu_driver = was;
    gpu_driver.blocks = 0;
    expect_none(
        0, BK_ST_IO,
        "no " UNIT " of the kernel fits on device 0 (First): a block has 64 threads with 40 "
        "registers each and 1024 "
        "bytes of shared memory; the device has 65536 registers and 65536 bytes for a block");
    gpu_driver = was;
    gpu_driver.shared = 1000;
    expect_none(
        0, BK_ST_IO,
        "no " UNIT " of the kernel fits on device 0 (First): a block has 64 threads with 40 "
        "registers each and 1024 "
        "bytes of shared memory; the device has 65536 registers and 1000 bytes for a block");
    gpu_driver = was;
    gpu_driver.room = 100;
    expect_none(0, BK_ST_MEMORY, "device 0 (First): taking memory: out of memory");
    gpu_driver = was;
#if GPU_NAMES == 0
    gpu_driver.capability = 80;
    expect_none(0, BK_ST_IO, "compiled for cuda:sm_90, but device 0 (First) is sm_80");
    gpu_driver.capability = 100;
    expect_none(0, BK_ST_IO, "compiled for cuda:sm_90, but device 0 (First) is sm_100");
#elif GPU_NAMES == 1
    gpu_driver.arch = "gfx90";
    expect_none(0, BK_ST_IO, "compiled for hip:gfx90a, but device 0 (First) is gfx90");
#endif
    gpu_driver = was;
    /* A context that the thread has is used, whether it is a device's own or another. */
    char other;
    void *contexts[] = {gpu_driver_primary(1), &other, gpu_driver_primary(0)};
    int number[] = {1, 1, 0};
    for (int i = 0; i < 3; i++) {
        void *again;
        gpu_driver_context(contexts[i]);
        void *s = session(0), *t = session(0);
        assert_int_equal(braid_model()->stat(s, BRAID_STAT_DEVICE), number[i]);
        assert_ptr_equal(((bk_session *)s)->device->context, contexts[i]);
        assert_ptr_equal(((bk_session *)s)->device, ((bk_session *)t)->device);
        gpu_driver_context(NULL);
        Case c;
        case_init(&c, 0, 1);
        assert_int_equal(run(s, &c), 0);
        check(&c);
        assert_int_equal(bk_driver_open->context_now(&again), 0);
        assert_null(again);
        braid_model()->session_free(s);
        assert_int_equal(run(t, &c), 0);
        check(&c);
        end(t);
    }
    braid_session_config_v1 cfg = {.struct_size = sizeof cfg, .device = 2};
    void *s = NULL;
    assert_int_equal(braid_model()->session_new(&cfg, &s), 0);
    assert_int_equal(braid_model()->stat(s, BRAID_STAT_DEVICE), 1);
    end(s);
    setenv("BRAID_DEVICE", "1", 1);
    s = session(0);
    assert_int_equal(braid_model()->stat(s, BRAID_STAT_DEVICE), 1);
    end(s);
    unsetenv("BRAID_DEVICE");
}

/* What a program does with a session: 0, or the first status that is not. */
static int use(int *stage) {
    braid_session_config_v1 cfg = {.struct_size = sizeof cfg};
    void *s = NULL;
    *stage = 0;
    int st = braid_model()->session_new(&cfg, &s);
    if (st) {
        assert_null(s);
        return st;
    }
    Case c;
    *stage = 1;
    On x = {0}, mode = {0};
    for (int i = 0; i < 3 && !st; i++) {
        case_init(&c, i, 2);
        if (GPU_FIXED) c.mode = 0;
        st = run(s, &c);
        if (st)
            assert_int_equal(c.out[0].rank, -7);
        else
            check(&c);
    }
    c.mode = 0;
    x.t = c.in[0];
    mode.t = c.in[1];
    if (!st) st = braid_model()->memory_new(s, bk_bytes(&x.t), &x.memory, &x.t.data, NULL, 0);
    if (!st)
        st = braid_model()->memory_copy(s, NULL, BRAID_COPY_IN, x.t.data, c.x, sizeof c.x, NULL, 0);
    if (!st)
        st = braid_model()->memory_new(s, bk_bytes(&mode.t), &mode.memory, &mode.t.data, NULL, 0);
    if (!st)
        st = braid_model()->memory_copy(s, NULL, BRAID_COPY_IN, mode.t.data, &c.mode, 8, NULL, 0);
    braid_tensor_v1 in[3] = {x.t, mode.t, {.rank = -1}};
    for (int i = 0; i < 3 && !st; i++)
        st = braid_model()->run_on(s, NULL, in, c.out, c.message, sizeof c.message);
    if (!st) st = braid_model()->finish(s, c.message, sizeof c.message);
    gpu_driver.fail_at = 0; /* what frees has no way to fail */
    braid_model()->memory_free(x.memory);
    braid_model()->memory_free(mode.memory);
    if (st && gpu_driver.fail_with != 700) { /* the session goes on */
        for (int i = 0; i < 3; i++) {
            case_init(&c, 0, 3);
            assert_int_equal(run(s, &c), 0);
            check(&c);
        }
    } else if (st) {
        assert_int_equal(run(s, &c), BK_ST_RUNTIME);
        assert_non_null(strstr(c.message, "was lost"));
    }
    braid_model()->session_free(s);
    return st;
}

/* Every call of the driver fails in turn. */
static void test_failures(void **state) {
    (void)state;
    static const int with[] = {1, 2, 700};
    int stage, seen[2] = {0};
    for (int i = 0; i < 3; i++) {
        gpu_driver.fail_with = with[i];
        gpu_driver.fail_at = 0;
        gpu_driver.calls = 0;
        assert_int_equal(use(&stage), 0);
        int calls = gpu_driver.calls;
        for (int n = 1; n <= calls; n++) {
            gpu_driver.calls = 0;
            gpu_driver.fail_at = n;
            int st = use(&stage);
            assert_true(st >= 0 && st <= BK_ST_USAGE);
            seen[stage] += st != 0;
            gpu_driver.fail_at = 0;
            if (gpu_driver.alive) fail_msg("call %d failing leaves %d things", n, gpu_driver.alive);
            assert_int_equal(gpu_driver.bad, 0);
        }
    }
    assert_true(seen[0] > 50);
    assert_true(seen[1] > 50);
}

int main(void) {
    gpu_driver.kernel = kernel;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_runs),
        cmocka_unit_test(test_faults),
#if !GPU_FIXED
        cmocka_unit_test(test_growth),
#endif
        cmocka_unit_test(test_streams),
        cmocka_unit_test(test_fewer),
#if GPU_NAMES == 2
        cmocka_unit_test(test_captured),
#endif
        cmocka_unit_test(test_devices),
        cmocka_unit_test(test_failures)
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
