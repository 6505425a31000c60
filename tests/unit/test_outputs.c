/* Outputs in the caller's memory, and runs that are cancelled: by the public C API and by the table
 * of a compiled library. */
#include <dlfcn.h>
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/base.h"
#include "include/braid.h"
#include "include/braid_model.h"
#include "tests/unit/onnx_write.h"

static char folder[] = "/tmp/braid-outputs.XXXXXX";

/* ---- models ---- */
/* Of elem; dims like "n,4", "" for a scalar. */
static Sb shaped(int elem, const char *dims) {
    Sb t = {0}, shape = {0}, type = {0};
    pb_int(&t, 1, elem);
    for (const char *p = dims; *p; p += strcspn(p, ","), p += *p == ',') {
        Sb dim = {0};
        if (*p >= '0' && *p <= '9')
            pb_int(&dim, 1, atoi(p));
        else
            pb_bytes(&dim, 2, p, strcspn(p, ","));
        pb_msg(&shape, 1, dim);
    }
    pb_msg(&t, 2, shape);
    pb_msg(&type, 1, t);
    return type;
}
static void in(Sb *g, const char *name, int elem, const char *dims) {
    pb_msg(g, 11, value_info(name, shaped(elem, dims)));
}

static char *save(Sb g, Sb *functions, const char *name) {
    Sb m = model(g, 18), path = {0};
    if (functions) {
        pb_msg(&m, 8, opset("my", 1));
        pb_msg(&m, 8, opset("ai.braid", 1));
        m_function(&m, *functions);
    }
    sb_printf(&path, "%s/%s.onnx", folder, name);
    FILE *f = fopen(path.p, "wb");
    assert_non_null(f);
    fwrite(m.p, 1, m.n, f);
    fclose(f);
    sb_free(&m);
    return path.p;
}

/* y = exp(x), z = -y, both large; s = sum(x), a scalar */
static char *elementwise(void) {
    Sb g = {0};
    g_node(&g, node("exp", "Exp", "x", "y"));
    g_node(&g, node("neg", "Neg", "y", "z"));
    g_node(&g, with_int(node("sum", "ReduceSum", "x", "s"), "keepdims", 0));
    in(&g, "x", DT_F32, "n,4");
    g_out(&g, "y,z,s");
    return save(g, NULL, "elementwise");
}
/* s = s0 + sum over t of x[t], o[t] = (the sum so far)^2 */
static char *scan(void) {
    Sb g = {0}, b = {0};
    g_node(&b, node("add", "Add", "c,e", "next"));
    g_node(&b, node("mul", "Mul", "next,next", "o"));
    in(&b, "c", DT_F32, "8");
    in(&b, "e", DT_F32, "8");
    g_out(&b, "next,o");
    g_node(&g, with_int(with_graph(node("scan", "Scan", "s0,x", "s,os"), "body", b),
                        "num_scan_inputs", 1));
    in(&g, "s0", DT_F32, "8");
    in(&g, "x", DT_F32, "t,8");
    g_out(&g, "s,os");
    return save(g, NULL, "scan");
}
static char *lstm(void) {
    Sb g = {0};
    g_node(&g, with_int(node("lstm", "LSTM", "x,w,r", "y,h,c"), "hidden_size", 8));
    in(&g, "x", DT_F32, "t,2,8");
    in(&g, "w", DT_F32, "1,32,8");
    in(&g, "r", DT_F32, "1,32,8");
    g_out(&g, "y,h,c");
    return save(g, NULL, "lstm");
}
/* y = exp(x), g = x[i] */
static char *gather(void) {
    Sb g = {0};
    g_node(&g, node("exp", "Exp", "x", "y"));
    g_node(&g, node("gather", "Gather", "x,i", "g"));
    in(&g, "x", DT_F32, "n,4");
    in(&g, "i", DT_I64, "1");
    g_out(&g, "y,g");
    return save(g, NULL, "gather");
}
/* p = x, q = exp(x) and r = q, seq = [x, q], opt = optional(q) */
static char *kinds(void) {
    Sb g = {0};
    g_node(&g, node("p", "Identity", "x", "p"));
    g_node(&g, node("q", "Exp", "x", "q"));
    g_node(&g, node("r", "Identity", "q", "r"));
    g_node(&g, node("seq", "SequenceConstruct", "x,q", "seq"));
    g_node(&g, node("opt", "Optional", "q", "opt"));
    in(&g, "x", DT_F32, "n,4");
    g_out(&g, "p,q,r,seq,opt");
    return save(g, NULL, "kinds");
}
/* m times v = v / 2 + 1; meets: with the mean of v, whose elements are all equal, so that units
 * meet in each iteration */
static char *long_loop(const char *name, bool meets) {
    const char *dims = "n";
    Sb g = {0}, b = {0};
    if (meets) {
        g_node(&b, with_int(node("mean", "ReduceMean", "v", "mean"), "keepdims", 0));
        g_node(&b, node("zero", "Sub", "v,v", "zero"));
        g_node(&b, node("all", "Add", "zero,mean", "a"));
    }
    g_node(&b, node("mul", "Mul", meets ? "a,h" : "v,h", "w"));
    g_node(&b, node("add", "Add", "w,o", "next"));
    g_node(&b, node("go", "Identity", "c", "c2"));
    in(&b, "i", DT_I64, "");
    in(&b, "c", DT_BOOL, "");
    in(&b, "v", DT_F32, dims);
    g_out(&b, "c2,next");
    g_node(&g, with_graph(node("loop", "Loop", "m,,x", "y"), "body", b));
    in(&g, "m", DT_I64, "");
    in(&g, "x", DT_F32, dims);
    in(&g, "h", DT_F32, "");
    in(&g, "o", DT_F32, "");
    g_out(&g, "y");
    return save(g, NULL, name);
}
/* y = fib(m), by recursion */
static char *fibonacci(void) {
    static const char *const made[] = {"one", "two"};
    Sb f = function("fib", "n", "r"), then = {0}, other = {0}, g = {0};
    for (int i = 0; i < 2; i++)
        f_node(&f, with_tensor(node(made[i], "Constant", NULL, made[i]), "value",
                               scalar_i64("k", i + 1)));
    g_node(&then, node("same", "Identity", "n", "t"));
    g_out(&then, "t");
    g_node(&other, node("sub1", "Sub", "n,one", "n1"));
    g_node(&other, node("sub2", "Sub", "n,two", "n2"));
    for (int i = 0; i < 2; i++) {
        Sb call =
            with_domain(node(made[i], "Invoke", i ? "n2" : "n1", i ? "f2" : "f1"), "ai.braid");
        g_node(&other, with_string(call, "function", "fib"));
    }
    g_node(&other, node("add", "Add", "f1,f2", "e"));
    g_out(&other, "e");
    f_node(&f, node("less", "Less", "n,two", "small"));
    f_node(&f, with_graph(with_graph(node("if", "If", "small", "r"), "then_branch", then),
                          "else_branch", other));
    Sb call = with_domain(node("fib", "Invoke", "m", "y"), "ai.braid");
    g_node(&g, with_string(call, "function", "fib"));
    pb_msg(&f, 9, opset("ai.braid", 1));
    in(&g, "m", DT_I64, "");
    g_out(&g, "y");
    return save(g, &f, "fibonacci");
}

/* ---- helpers ---- */
static const char *const targets[] = {"interp", "cpu", "plain", "emulate:cuda"};
static size_t ntarget = COUNT(targets); /* that can be made here: the last needs the emulator */

static braid_session *open_session(const char *path, const char *target, int threads) {
    struct braid_model *m = NULL;
    braid_session *s = NULL;
    braid_error e = {0};
    braid_options o = {.struct_size = sizeof o, .target = target, .cache_dir = folder};
    if (strcmp(target, "interp") != 0) o.schedule = "batch=off"; /* recursions stay what they are */
    braid_session_options so = {.struct_size = sizeof so, .threads = threads};
    if (braid_load(path, &o, &m, &e)) fail_msg("%s: %s", path, e.message);
    if (braid_session_new(m, &so, &s, &e)) fail_msg("%s", e.message);
    braid_model_free(m);
    return s;
}
static braid_value *tensor(braid_dtype t, int rank, const int64_t *dim, const void *data) {
    braid_value *v = NULL;
    assert_int_equal(braid_value_new_tensor(t, rank, dim, data, &v, NULL), 0);
    return v;
}
static braid_value *borrowed(int rank, const int64_t *dim, float *data) {
    braid_value *v = NULL;
    assert_int_equal(braid_value_borrow_tensor(BRAID_FLOAT32, rank, dim, data, &v, NULL), 0);
    return v;
}
static braid_value *ramp(int rank, const int64_t *dim) {
    braid_value *v = tensor(BRAID_FLOAT32, rank, dim, NULL);
    for (int64_t i = 0; i < braid_value_count(v); i++)
        ((float *)braid_value_data(v))[i] = (float)(i % 7) / 8 - 0.25f;
    return v;
}
static void free_all(braid_value **v, int n) {
    for (int i = 0; i < n; i++) braid_value_free(v[i]);
}
static const float *floats(const braid_value *v) { return braid_value_data(v); }
static const braid_value *const *inputs(braid_value **v) { return (const braid_value *const *)v; }

/* Runs with new outputs, and with memory for all of them that is as badly aligned as it may be and
 * has guards around. Compares the values. */
static void same_into(const char *path, const char *target, braid_value **x, int nout) {
    braid_session *s = open_session(path, target, 2);
    braid_value *made[8] = {0}, *into[8] = {0};
    float *room[8];
    braid_error e;
    if (braid_session_run(s, inputs(x), made, &e)) fail_msg("%s: %s", target, e.message);
    for (int i = 0; i < nout; i++) {
        const int64_t n = braid_value_count(made[i]);
        room[i] = malloc((size_t)(n + 3) * sizeof(float));
        assert_non_null(room[i]);
        for (int64_t k = 0; k < n + 3; k++) room[i][k] = -77;
        into[i] = borrowed(braid_value_rank(made[i]), braid_value_dim(made[i]), room[i] + 1);
    }
    for (int turn = 0; turn < 2; turn++) {
        if (braid_session_run_into(s, inputs(x), into, &e)) fail_msg("%s: %s", target, e.message);
        for (int i = 0; i < nout; i++) {
            const int64_t n = braid_value_count(made[i]);
            assert_ptr_equal(braid_value_data(into[i]), room[i] + 1);
            for (int64_t k = 0; k < n; k++)
                if (room[i][k + 1] != floats(made[i])[k])
                    fail_msg("%s: output %d[%d]: %g, not %g", target, i, (int)k, room[i][k + 1],
                             floats(made[i])[k]);
            assert_true(room[i][0] == -77 && room[i][n + 1] == -77 && room[i][n + 2] == -77);
            for (int64_t k = 0; k < n; k++) room[i][k + 1] = -5;
        }
    }
    for (int i = 0; i < nout; i++) free(room[i]);
    free_all(made, nout);
    free_all(into, nout);
    braid_session_free(s);
}

/* ---- outputs ---- */
static void test_values(void **state) {
    (void)state;
    char *path[] = {elementwise(), scan(), lstm()};
    for (size_t k = 0; k < ntarget; k++) {
        for (int64_t n = 0; n < 40; n += n < 4 ? 1 : 33) {
            braid_value *x = ramp(2, (int64_t[]){n, 4});
            same_into(path[0], targets[k], &x, 3);
            braid_value_free(x);
            if (k == 3 && n > 1) continue; /* the emulator is slow */
            braid_value *y[2] = {ramp(1, (int64_t[]){8}), ramp(2, (int64_t[]){n, 8})};
            same_into(path[1], targets[k], y, 2);
            free_all(y, 2);
            braid_value *z[3] = {ramp(3, (int64_t[]){n, 2, 8}), ramp(3, (int64_t[]){1, 32, 8}),
                                 ramp(3, (int64_t[]){1, 32, 8})};
            same_into(path[2], targets[k], z, 3);
            free_all(z, 3);
        }
        braid_value *x = ramp(2, (int64_t[]){k == 3 ? 300 : 100000, 4});
        same_into(path[0], targets[k], &x, 3);
        braid_value_free(x);
    }
    for (int i = 0; i < 3; i++) free(path[i]);
}

static void test_kinds(void **state) {
    (void)state;
    char *path = kinds();
    for (size_t k = 0; k < ntarget; k++) {
        braid_session *s = open_session(path, targets[k], 2);
        braid_value *x = ramp(2, (int64_t[]){3, 4}), *out[5] = {0}, *given[3];
        braid_error e;
        for (int i = 0; i < 3; i++)
            given[i] = out[i] = tensor(BRAID_FLOAT32, 2, (int64_t[]){3, 4}, NULL);
        if (braid_session_run_into(s, inputs(&x), out, &e)) fail_msg("%s", e.message);
        for (int i = 0; i < 3; i++) assert_ptr_equal(out[i], given[i]);
        assert_int_equal(braid_value_kind(out[3]), BRAID_SEQUENCE);
        assert_int_equal(braid_value_count(out[3]), 2);
        assert_int_equal(braid_value_kind(out[4]), BRAID_OPTIONAL);
        const braid_value *all[] = {
            out[0], braid_value_item(out[3], 0), out[1],
            out[2], braid_value_item(out[3], 1), braid_value_item(out[4], 0)};
        for (int i = 0; i < 12; i++)
            for (int j = 0; j < 6; j++) {
                const float want = j < 2 ? floats(x)[i] : expf(floats(x)[i]);
                assert_true(fabsf(floats(all[j])[i] - want) < 1e-5f);
            }
        /* Memory for what is no tensor. */
        assert_int_equal(braid_session_run_into(s, inputs(&x), out, &e), BRAID_USAGE);
        assert_string_equal(e.message, "output 'seq' is no tensor: its memory cannot be given");
        free_all(out, 5);
        braid_value_free(x);
        braid_session_free(s);
    }
    free(path);
}

static void test_wrong_memory(void **state) {
    (void)state;
    char *path = elementwise();
    for (size_t k = 0; k < ntarget; k++) {
        braid_session *s = open_session(path, targets[k], 2);
        braid_value *x = ramp(2, (int64_t[]){3, 4}), *out[3] = {0};
        braid_error e;
        out[0] = tensor(BRAID_FLOAT64, 2, (int64_t[]){3, 4}, NULL);
        assert_int_equal(braid_session_run_into(s, inputs(&x), out, &e), BRAID_USAGE);
        assert_non_null(strstr(e.message, "output 'y' is float32"));
        assert_non_null(strstr(e.message, "the given memory is float64[3,4]"));
        braid_value_free(out[0]);
        out[0] = tensor(BRAID_FLOAT32, 2, (int64_t[]){2, 4}, NULL);
        assert_int_equal(braid_session_run_into(s, inputs(&x), out, &e), BRAID_USAGE);
        assert_string_equal(e.message,
                            "output 'y' is float32[3,4], the given memory is float32[2,4]");
        assert_null(out[1]);
        assert_int_equal(braid_session_run_into(s, inputs(&x), NULL, &e), BRAID_USAGE);
        braid_value_free(out[0]);
        braid_value_free(x);
        braid_session_free(s);
    }
    free(path);
}

static void test_failing(void **state) {
    (void)state;
    char *path = gather();
    for (size_t k = 0; k < ntarget; k++) {
        braid_session *s = open_session(path, targets[k], 2);
        braid_value *x[2] = {ramp(2, (int64_t[]){3, 4}), NULL}, *out[2] = {0};
        braid_error e;
        for (int64_t i = 1; i < 12; i += 10) {
            float y[12], g[4];
            for (int j = 0; j < 12; j++) y[j] = g[j % 4] = -77;
            x[1] = tensor(BRAID_INT64, 1, (int64_t[]){1}, &i);
            out[0] = borrowed(2, (int64_t[]){3, 4}, y);
            out[1] = borrowed(2, (int64_t[]){1, 4}, g);
            const braid_status st = braid_session_run_into(s, inputs(x), out, &e);
            assert_int_equal(st, i < 3 ? BRAID_OK : BRAID_RUNTIME);
            for (int j = 0; j < 12; j++) assert_true((y[j] == -77) == (st != BRAID_OK));
            for (int j = 0; j < 4; j++) assert_true(g[j] == (st ? -77 : floats(x[0])[4 + j]));
            free_all(out, 2);
            braid_value_free(x[1]);
        }
        braid_value_free(x[0]);
        braid_session_free(s);
    }
    free(path);
}

/* ---- the table ---- */
/* memory() changes an input, so that the outputs tell whether it was called before the kernel ran.
 */
typedef struct Asked {
    float *input;
    void *given[3];
    int calls;
} Asked;
static void *give(void *user, int output, const braid_tensor_v1 *t, size_t bytes) {
    Asked *a = user;
    size_t n = sizeof(float);
    for (int i = 0; i < t->rank; i++) n *= (size_t)t->dim[i];
    assert_int_equal(n, bytes);
    assert_null(a->given[output]);
    a->calls++;
    if (a->input) *a->input = 1;
    return a->given[output] = malloc(bytes + 1);
}

static void *open_library(char *path, const char *target, const braid_model_v1 **lib) {
    braid_error e;
    braid_options o = {.struct_size = sizeof o, .target = target};
    char *library = NULL;
    assert_true(asprintf(&library, "%s.%s.so", path, target) > 0);
    if (braid_compile(path, &o, library, &e)) fail_msg("%s", e.message);
    void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    assert_non_null(handle);
    const braid_model_v1 *(*get)(void);
    *(void **)&get = dlsym(handle, "braid_model");
    *lib = get();
    free(library);
    return handle;
}

/* The kernel writes y itself: the input that changes while memory is asked for is seen. */
static void written_there(char *path, const char *target, const braid_tensor_v1 *x, int changed,
                          int output, int fails) {
    const braid_model_v1 *lib;
    void *handle = open_library(path, target, &lib), *s;
    braid_tensor_v1 out[2][3];
    char message[256];
    Asked a[2] = {{.input = x[changed].data}, {0}};
    assert_int_equal(lib->session_new(NULL, &s), 0);
    assert_int_equal(lib->fails, fails);
    for (int i = 0; i < 2; i++) {
        int st = lib->run_into(s, NULL, x, out[i], give, &a[i], message, sizeof message);
        if (st) fail_msg("%s", message);
        assert_int_equal(a[i].calls, lib->noutput);
        for (int k = 0; k < lib->noutput; k++) assert_ptr_equal(out[i][k].data, a[i].given[k]);
    }
    /* The second run, with what is now the input, gives the same where the first one saw it. */
    size_t bytes = sizeof(float);
    for (int i = 0; i < out[0][output].rank; i++) bytes *= (size_t)out[0][output].dim[i];
    assert_memory_equal(out[0][output].data, out[1][output].data, bytes);
    assert_true(*(float *)x[changed].data == 1);
    for (int i = 0; i < 2; i++)
        for (int k = 0; k < lib->noutput; k++) free(a[i].given[k]);
    lib->session_free(s);
    dlclose(handle);
}

static void test_no_copy(void **state) {
    (void)state;
    static const char *const compiled[] = {"cpu", "plain"};
    char *path[] = {elementwise(), scan(), lstm()};
    for (int i = 0; i < 2; i++) {
        braid_value *v[] = {ramp(2, (int64_t[]){5000, 4}),  ramp(1, (int64_t[]){8}),
                            ramp(2, (int64_t[]){30, 8}),    ramp(3, (int64_t[]){9, 2, 8}),
                            ramp(3, (int64_t[]){1, 32, 8}), ramp(3, (int64_t[]){1, 32, 8})};
        braid_tensor_v1 t[6];
        for (int k = 0; k < 6; k++) {
            t[k] = (braid_tensor_v1){
                .data = braid_value_data(v[k]), .dtype = 1, .rank = braid_value_rank(v[k])};
            memcpy(t[k].dim, braid_value_dim(v[k]), (size_t)t[k].rank * sizeof(int64_t));
        }
        written_there(path[0], compiled[i], t, 0, 0, 0);
        *(float *)t[0].data = -3;
        written_there(path[0], compiled[i], t, 0, 1, 0);
        written_there(path[1], compiled[i], t + 1, 1, 1, 1);
        written_there(path[2], compiled[i], t + 3, 0, 0, 1);
        free_all(v, 6);
    }
    for (int i = 0; i < 3; i++) free(path[i]);
}

/* No memory for one of the outputs. */
static void *refuse(void *user, int output, const braid_tensor_v1 *t, size_t bytes) {
    return output == 1 ? NULL : give(user, output, t, bytes);
}
static void test_refused(void **state) {
    (void)state;
    char *path = elementwise(), message[256];
    const braid_model_v1 *lib;
    void *handle = open_library(path, "cpu", &lib), *s;
    float x[8] = {1};
    braid_tensor_v1 in = {.data = x, .dtype = 1, .rank = 2, .dim = {2, 4}}, out[3];
    Asked a = {0};
    assert_int_equal(lib->session_new(NULL, &s), 0);
    assert_int_equal(lib->run_into(s, NULL, &in, out, refuse, &a, message, sizeof message), 5);
    assert_string_equal(message, "there is no memory for output 'z'");
    assert_int_equal(lib->run(s, &in, out, message, sizeof message), 0);
    assert_true(((float *)out[1].data)[1] == -1);
    for (int i = 0; i < 3; i++) free(a.given[i]);
    lib->session_free(s);
    dlclose(handle);
    free(path);
}

/* ---- cancelling ---- */
static double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
typedef struct Canceller {
    braid_session *s;
    double at;
} Canceller;
static void *cancel_later(void *arg) {
    Canceller *c = arg;
    nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
    c->at = seconds();
    braid_session_cancel(c->s);
    return NULL;
}

/* A run that would take for ever is cancelled; the next one is right. x[0] is the number of
 * iterations. */
static void cancels(const char *path, const char *target, int threads, braid_value **x,
                    int64_t few) {
    braid_session *s = open_session(path, target, threads);
    Canceller c = {.s = s};
    pthread_t thread;
    braid_error e;
    braid_value *out = NULL, *again = NULL;
    int64_t *m = braid_value_data(x[0]), forever = *m;
    for (int turn = 0; turn < 2; turn++) {
        *m = forever;
        assert_int_equal(pthread_create(&thread, NULL, cancel_later, &c), 0);
        const braid_status st = braid_session_run(s, inputs(x), &out, &e);
        const double took = seconds() - c.at;
        pthread_join(thread, NULL);
        if (st != BRAID_CANCELLED) fail_msg("%s: status %d: %s", target, (int)st, e.message);
        assert_string_equal(e.message, "the run was cancelled");
        assert_null(out);
        if (took > 1) fail_msg("%s, %d threads: it took %.3f s", target, threads, took);
        *m = few;
        braid_session_cancel(s); /* between two runs it has no effect */
        if (braid_session_run(s, inputs(x), &again, &e)) fail_msg("%s", e.message);
        if (braid_value_dtype(again) == BRAID_INT64)
            assert_int_equal(*(int64_t *)braid_value_data(again), 55); /* fib(10) */
        else
            for (int64_t i = 0; i < braid_value_count(again); i++)
                assert_true(floats(again)[i] == 1.75f);
        braid_value_free(again);
    }
    *m = forever;
    braid_session_free(s);
}

static void test_cancel(void **state) {
    (void)state;
    char *path[] = {long_loop("short", false), long_loop("wide", true), fibonacci()};
    const float half = 0.5f, one = 1;
    for (int wide = 0; wide < 2; wide++) {
        int64_t m = INT64_C(1) << 30, n = wide ? 40000 : 3;
        braid_value *x[] = {tensor(BRAID_INT64, 0, NULL, &m), tensor(BRAID_FLOAT32, 1, &n, NULL),
                            tensor(BRAID_FLOAT32, 0, NULL, &half),
                            tensor(BRAID_FLOAT32, 0, NULL, &one)};
        for (size_t k = 0; k < ntarget; k++)
            for (int threads = 1; threads < 3 && k < 3 + (size_t)wide; threads++)
                cancels(path[wide], targets[k], threads, x, 3);
        free_all(x, 4);
    }
    int64_t m = 80;
    braid_value *x = tensor(BRAID_INT64, 0, NULL, &m);
    for (size_t k = 1; k < ntarget && k < 3; k++) /* the interpreter computes equal calls once */
        for (int threads = 1; threads < 3; threads++) cancels(path[2], targets[k], threads, &x, 10);
    braid_value_free(x);
    for (int i = 0; i < 3; i++) free(path[i]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values),       cmocka_unit_test(test_kinds),
        cmocka_unit_test(test_wrong_memory), cmocka_unit_test(test_failing),
        cmocka_unit_test(test_no_copy),      cmocka_unit_test(test_refused),
        cmocka_unit_test(test_cancel),
    };
    if (!mkdtemp(folder)) return 1;
    char *first = elementwise();
    struct braid_model *m = NULL;
    braid_options o = {
        .struct_size = sizeof o, .target = targets[ntarget - 1], .cache_dir = folder};
    if (braid_load(first, &o, &m, NULL)) ntarget--;
    braid_model_free(m);
    free(first);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    char command[sizeof folder + 8];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command) || failed;
}
