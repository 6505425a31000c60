/* The public C API on small models, written here as protobuf: both targets, all kinds of values,
 * errors, threads. */
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/base.h"
#include "include/braid.h"

static char folder[] = "/tmp/braid-api.XXXXXX";

/* ---- a small writer of ONNX files ---- */
static void put(Sb *s, int field, const char *p, size_t n) {
    sb_write(s, (char[]){(char)(field << 3 | 2)}, 1);
    for (size_t v = n; sb_write(s, (char[]){(char)(v > 127 ? v | 128 : v)}, 1), v > 127;) v >>= 7;
    sb_write(s, p, n);
}
static void put_text(Sb *s, int field, const char *t) { put(s, field, t, strlen(t)); }
static void put_int(Sb *s, int field, int v) { /* below 128 */
    sb_write(s, (char[]){(char)(field << 3), (char)v}, 2);
}
static void put_part(Sb *s, int field, Sb *part) {
    put(s, field, part->p ? part->p : "", part->n);
    sb_free(part);
}

/* A TypeProto: "tensor", "sequence" or "optional" of dtype; `dims` like "n,4", NULL: no shape. */
static Sb type(const char *kind, int dtype, const char *dims) {
    Sb tensor = {0}, t = {0}, outer = {0};
    put_int(&tensor, 1, dtype);
    if (dims) {
        Sb shape = {0};
        for (const char *p = dims; *p; p += strcspn(p, ","), p += *p == ',') {
            Sb dim = {0};
            if (*p >= '0' && *p <= '9')
                put_int(&dim, 1, atoi(p));
            else
                put(&dim, 2, p, strcspn(p, ","));
            put_part(&shape, 1, &dim);
        }
        put_part(&tensor, 2, &shape);
    }
    put_part(&t, 1, &tensor);
    if (kind[0] == 't') return t;
    Sb elem = {0};
    put_part(&elem, 1, &t);
    put_part(&outer, kind[0] == 's' ? 4 : 9, &elem);
    return outer;
}

typedef struct Onnx {
    Sb graph;
} Onnx;
static void node(Onnx *o, const char *op, const char *name, const char *in0, const char *in1,
                 const char *out) {
    Sb n = {0};
    if (in0) put_text(&n, 1, in0);
    if (in1) put_text(&n, 1, in1);
    put_text(&n, 2, out);
    put_text(&n, 3, name);
    put_text(&n, 4, op);
    put_part(&o->graph, 1, &n);
}
static void value(Onnx *o, int field, const char *name, Sb t) {
    Sb v = {0};
    put_text(&v, 1, name);
    put_part(&v, 2, &t);
    put_part(&o->graph, field, &v);
}
static void input(Onnx *o, const char *name, Sb t) { value(o, 11, name, t); }
static void output(Onnx *o, const char *name, Sb t) { value(o, 12, name, t); }

static char *save(Onnx *o, const char *name) {
    Sb m = {0}, opset = {0}, path = {0};
    put_int(&m, 1, 8); /* ir version */
    put_text(&o->graph, 2, "test");
    put_part(&m, 7, &o->graph);
    put_int(&opset, 2, 18);
    put_part(&m, 8, &opset);
    sb_printf(&path, "%s/%s", folder, name);
    FILE *f = fopen(path.p, "wb");
    assert_non_null(f);
    fwrite(m.p, 1, m.n, f);
    fclose(f);
    sb_free(&m);
    return path.p;
}

/* y = x + x */
static char *twice_model(void) {
    Onnx o = {0};
    node(&o, "Add", "add", "x", "x", "y");
    input(&o, "x", type("tensor", 1, "n,4"));
    output(&o, "y", type("tensor", 1, "n,4"));
    return save(&o, "twice.onnx");
}
/* t = s[i], r = s + [t] */
static char *sequence_model(void) {
    Onnx o = {0};
    node(&o, "SequenceAt", "at", "s", "i", "t");
    node(&o, "SequenceInsert", "insert", "s", "t", "r");
    input(&o, "s", type("sequence", 1, NULL));
    input(&o, "i", type("tensor", 7, ""));
    output(&o, "t", type("tensor", 1, NULL));
    output(&o, "r", type("sequence", 1, NULL));
    return save(&o, "sequence.onnx");
}
static char *optional_model(void) {
    Onnx o = {0};
    node(&o, "OptionalHasElement", "has", "o", NULL, "b");
    input(&o, "o", type("optional", 1, "2"));
    output(&o, "b", type("tensor", 9, ""));
    return save(&o, "optional.onnx");
}

/* ---- helpers ---- */
static const char *const targets[] = {"interp", "cpu", "emulate:cuda"};
static size_t ntarget = COUNT(targets); /* that can be made here: the last needs the emulator */

static struct braid_model *load(const char *path, const char *target) {
    struct braid_model *m = NULL;
    braid_error e = {0};
    braid_options o = {.struct_size = sizeof o, .target = target, .cache_dir = folder};
    if (braid_load(path, &o, &m, &e)) fail_msg("%s: %s", path, e.message);
    return m;
}
static braid_session *session(struct braid_model *m) {
    braid_session *s = NULL;
    braid_error e = {0};
    braid_session_options o = {.struct_size = sizeof o, .threads = 2};
    if (braid_session_new(m, &o, &s, &e)) fail_msg("%s", e.message);
    return s;
}
static braid_value *tensor(braid_dtype t, int rank, const int64_t *dim, const void *data) {
    braid_value *v = NULL;
    assert_int_equal(braid_value_new_tensor(t, rank, dim, data, &v, NULL), 0);
    return v;
}

/* ---- tests ---- */
static void test_tensors(void **state) {
    (void)state;
    char *path = twice_model();
    float x[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    for (size_t k = 0; k < ntarget; k++) {
        struct braid_model *m = load(path, targets[k]);
        assert_string_equal(braid_model_name(m), "test");
        assert_string_equal(braid_model_target(m), targets[k]);
        assert_int_equal(braid_model_input_count(m), 1);
        assert_int_equal(braid_model_output_count(m), 1);
        assert_null(braid_model_input(m, 1));
        assert_int_equal(braid_model_find_input(m, "x"), 0);
        assert_int_equal(braid_model_find_input(m, "y"), -1);
        const braid_io *io = braid_model_input(m, 0);
        assert_string_equal(io->name, "x");
        assert_int_equal(io->kind, BRAID_TENSOR);
        assert_int_equal(io->dtype, BRAID_FLOAT32);
        assert_int_equal(io->rank, 2);
        assert_int_equal(io->dim[0], -1);
        assert_string_equal(io->dim_name[0], "n");
        assert_int_equal(io->dim[1], 4);
        braid_session *s = session(m);
        braid_model_free(m); /* the session keeps it */
        for (int n = 2; n >= 0; n--) {
            braid_value *in = tensor(BRAID_FLOAT32, 2, (int64_t[]){n, 4}, x), *out = NULL;
            braid_error e = {0};
            if (braid_session_run(s, (const braid_value *const *)&in, &out, &e))
                fail_msg("%s", e.message);
            assert_int_equal(braid_value_rank(out), 2);
            assert_int_equal(braid_value_dim(out)[0], n);
            for (int i = 0; i < 4 * n; i++)
                assert_true(((float *)braid_value_data(out))[i] == 2 * x[i]);
            braid_value_free(in);
            braid_value_free(out);
        }
        braid_session_free(s);
    }
    free(path);
}

static void test_input_errors(void **state) {
    (void)state;
    char *path = twice_model();
    for (size_t k = 0; k < ntarget; k++) {
        struct braid_model *m = load(path, targets[k]);
        braid_session *s = session(m);
        braid_value *out = NULL, *none = NULL;
        braid_error e;
        braid_value *in = tensor(BRAID_FLOAT64, 2, (int64_t[]){1, 4}, NULL);
        assert_int_equal(braid_session_run(s, (const braid_value *const *)&in, &out, &e),
                         BRAID_INPUT);
        assert_string_equal(e.message, "input 'x': expected float32[n,4], got float64[1,4]");
        braid_value_free(in);
        in = tensor(BRAID_FLOAT32, 2, (int64_t[]){4, 1}, NULL);
        assert_int_equal(braid_session_run(s, (const braid_value *const *)&in, &out, &e),
                         BRAID_INPUT);
        assert_string_equal(e.message, "input 'x': expected float32[n,4], got float32[4,1]");
        braid_value_free(in);
        assert_int_equal(braid_session_run(s, (const braid_value *const *)&none, &out, &e),
                         BRAID_INPUT);
        assert_string_equal(e.message, "input 'x' is missing");
        assert_int_equal(braid_value_new_sequence(BRAID_FLOAT32, &in, NULL), 0);
        assert_int_equal(braid_session_run(s, (const braid_value *const *)&in, &out, &e),
                         BRAID_INPUT);
        assert_string_equal(e.message, "input 'x': expected a tensor, got a sequence");
        braid_value_free(in);
        assert_int_equal(braid_session_run(s, NULL, &out, &e), BRAID_USAGE);
        assert_null(out);
        braid_session_free(s);
        braid_model_free(m);
    }
    free(path);
}

static void test_sequences(void **state) {
    (void)state;
    char *path = sequence_model();
    float x[6] = {1, 2, 3, 4, 5, 6};
    for (size_t k = 0; k < ntarget; k++) {
        struct braid_model *m = load(path, targets[k]);
        assert_int_equal(braid_model_input(m, 0)->kind, BRAID_SEQUENCE);
        assert_int_equal(braid_model_input(m, 0)->dtype, BRAID_FLOAT32);
        braid_session *s = session(m);
        braid_value *in[2], *out[2] = {0};
        braid_error e = {0};
        int64_t i = -1;
        assert_int_equal(braid_value_new_sequence(BRAID_FLOAT32, &in[0], NULL), 0);
        for (int n = 1; n <= 3; n++)
            assert_int_equal(
                braid_value_append(in[0], tensor(BRAID_FLOAT32, 2, (int64_t[]){2, n}, x), NULL), 0);
        in[1] = tensor(BRAID_INT64, 0, NULL, &i);
        if (braid_session_run(s, (const braid_value *const *)in, out, &e))
            fail_msg("%s", e.message);
        assert_int_equal(braid_value_dim(out[0])[1], 3);
        assert_memory_equal(braid_value_data(out[0]), x, sizeof x);
        assert_int_equal(braid_value_kind(out[1]), BRAID_SEQUENCE);
        assert_int_equal(braid_value_count(out[1]), 4);
        assert_memory_equal(braid_value_data(braid_value_item(out[1], 3)), x, sizeof x);
        assert_int_equal(braid_value_dim(braid_value_item(out[1], 1))[1], 2);
        braid_value_free(out[0]);
        braid_value_free(out[1]);
        out[0] = out[1] = NULL;
        *(int64_t *)braid_value_data(in[1]) = 3;
        assert_int_equal(braid_session_run(s, (const braid_value *const *)in, out, &e),
                         BRAID_RUNTIME);
        assert_non_null(strstr(e.message, "at")); /* the node's path */
        assert_null(out[0]);
        DLManagedTensor *dl[2];
        const DLTensor *none[2] = {0};
        assert_int_equal(braid_session_run_dlpack(s, none, dl, &e), BRAID_USAGE);
        braid_value_free(in[0]);
        braid_value_free(in[1]);
        braid_session_free(s);
        braid_model_free(m);
    }
    free(path);
}

static void test_optionals(void **state) {
    (void)state;
    char *path = optional_model();
    for (size_t k = 0; k < ntarget; k++) {
        struct braid_model *m = load(path, targets[k]);
        assert_int_equal(braid_model_input(m, 0)->kind, BRAID_OPTIONAL);
        assert_int_equal(braid_model_input(m, 0)->element, BRAID_TENSOR);
        braid_session *s = session(m);
        for (int form = 0; form < 4; form++) { /* absent, empty, element, optional with element */
            braid_value *in = NULL, *out = NULL;
            braid_error e = {0};
            if (form >= 2) in = tensor(BRAID_FLOAT32, 1, (int64_t[]){2}, NULL);
            if (form % 2) assert_int_equal(braid_value_new_optional(in, &in, NULL), 0);
            if (braid_session_run(s, (const braid_value *const *)&in, &out, &e))
                fail_msg("%s", e.message);
            assert_int_equal(*(uint8_t *)braid_value_data(out), form >= 2);
            braid_value_free(in);
            braid_value_free(out);
        }
        braid_session_free(s);
        braid_model_free(m);
    }
    free(path);
}

static void test_dlpack(void **state) {
    (void)state;
    char *path = twice_model();
    float x[4][3] = {{1, 2, 3}, {4, 5, 6}, {7, 8, 9}, {10, 11, 12}};
    for (size_t k = 0; k < ntarget; k++) {
        struct braid_model *m = load(path, targets[k]);
        braid_session *s = session(m);
        int64_t shape[2] = {3, 4}, strides[2] = {1, 3}; /* x transposed */
        DLTensor t = {.data = x,
                      .device = {kDLCPU, 0},
                      .ndim = 2,
                      .dtype = {kDLFloat, 32, 1},
                      .shape = shape,
                      .strides = strides};
        const DLTensor *in = &t;
        DLManagedTensor *out = NULL;
        braid_error e = {0};
        if (braid_session_run_dlpack(s, &in, &out, &e)) fail_msg("%s", e.message);
        assert_int_equal(out->dl_tensor.ndim, 2);
        assert_int_equal(out->dl_tensor.dtype.bits, 32);
        for (int i = 0; i < 12; i++)
            assert_true(((float *)out->dl_tensor.data)[i] == 2 * x[i % 4][i / 4]);
        out->deleter(out);
        out = NULL;
        t.dtype.lanes = 4;
        assert_int_equal(braid_session_run_dlpack(s, &in, &out, &e), BRAID_INPUT);
        t.dtype.lanes = 1;
        t.device.device_type = kDLCUDA;
        assert_int_equal(braid_session_run_dlpack(s, &in, &out, &e), BRAID_INPUT);
        assert_null(out);
        braid_session_free(s);
        braid_model_free(m);
    }
    free(path);
}

/* Elements of less than a byte are packed in DLPack tensors; in the device's memory there are none.
 */
static void test_packed(void **state) {
    (void)state;
    Onnx o = {0};
    node(&o, "Transpose", "turn", "x", NULL, "y");
    input(&o, "x", type("tensor", BRAID_INT4, "n,3"));
    output(&o, "y", type("tensor", BRAID_INT4, "3,n"));
    char *path = save(&o, "packed.onnx");
    for (size_t k = 0; k < ntarget; k++) {
        struct braid_model *m = load(path, targets[k]);
        braid_session *s = session(m);
        uint8_t x[2] = {0x21, 0xf3}; /* 1, 2, 3 */
        int64_t shape[2] = {1, 3}, strides[2] = {6, 2};
        DLTensor t = {
            .data = x, .device = {kDLCPU, 0}, .ndim = 2, .dtype = {kDLInt, 4, 1}, .shape = shape};
        const DLTensor *in = &t;
        DLManagedTensor *out = NULL;
        braid_error e = {0};
        if (braid_session_run_dlpack(s, &in, &out, &e)) fail_msg("%s", e.message);
        assert_int_equal(out->dl_tensor.dtype.code, kDLInt);
        assert_int_equal(out->dl_tensor.dtype.bits, 4);
        assert_int_equal(out->dl_tensor.shape[0], 3);
        assert_memory_equal(out->dl_tensor.data, "\x21\x03", 2);
        out->deleter(out);
        t.strides = strides;
        assert_int_equal(braid_session_run_dlpack(s, &in, &out, &e), BRAID_INPUT);
        assert_string_equal(e.message, "input 'x': packed elements have to be dense");
        t.strides = NULL;
        t.dtype = (DLDataType){kDLFloat8_e5m2, 8, 1};
        assert_int_equal(braid_session_run_dlpack(s, &in, &out, &e), BRAID_INPUT);
        braid_session_free(s);
        braid_model_free(m);
    }
    struct braid_model *m = load(path, "emulate:cuda");
    braid_session *s = session(m);
    int64_t shape[2] = {1, 2};
    DLTensor t = {
        .data = shape, .device = {kDLCPU, 0}, .ndim = 2, .dtype = {kDLUInt, 8, 1}, .shape = shape};
    DLManagedTensor *there = NULL, *out = NULL;
    braid_error e = {0};
    if (braid_session_to_device(s, &t, &there, &e)) fail_msg("%s", e.message);
    const DLTensor *in = &there->dl_tensor;
    assert_int_equal(braid_session_run_dlpack(s, &in, &out, &e), BRAID_USAGE);
    assert_string_equal(e.message,
                        "output 'y': packed elements (int4) are given in CPU memory only");
    t.dtype = (DLDataType){kDLInt, 4, 1};
    assert_int_equal(braid_session_to_device(s, &t, &out, &e), BRAID_INPUT);
    assert_string_equal(e.message,
                        "'tensor': packed elements (int4) are taken from CPU memory only");
    there->deleter(there);
    braid_session_free(s);
    braid_model_free(m);
    free(path);
}

/* y = 2 x on the device, for a shape that is known beforehand and one that is not. */
static void run_there(const char *path, bool known) {
    struct braid_model *m = load(path, "emulate:cuda");
    braid_session *s = session(m);
    braid_error e = {0};
    float x[12] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
    int64_t shape[2] = {3, 4};
    DLTensor t = {
        .data = x, .device = {kDLCPU, 0}, .ndim = 2, .dtype = {kDLFloat, 32, 1}, .shape = shape};
    DLManagedTensor *there = NULL, *out[3] = {NULL};
    if (braid_session_to_device(s, &t, &there, &e)) fail_msg("%s", e.message);
    assert_int_equal(there->dl_tensor.device.device_type, braid_model_device_type(m));
    const DLTensor *in = &there->dl_tensor;
    assert_int_equal(braid_session_set_stream(s, NULL, &e), 0);
    for (int i = 0; i < 3; i++) {
        if (braid_session_run_dlpack(s, &in, &out[i], &e)) fail_msg("%s", e.message);
        in = &out[i]->dl_tensor;
    }
    assert_int_equal(braid_session_finish(s, &e), 0);
    assert_int_equal(braid_session_stat(s, BRAID_DEVICE), 0);
    for (int i = 0; i < 3; i++) {
        braid_value *v = NULL;
        if (braid_session_to_host(s, &out[i]->dl_tensor, &v, &e)) fail_msg("%s", e.message);
        assert_int_equal(braid_value_count(v), 12);
        for (int j = 0; j < 12; j++)
            assert_true(((float *)braid_value_data(v))[j] == (float)(2 << i) * x[j]);
        braid_value_free(v);
    }
    DLManagedTensor *none = NULL;
    DLTensor bad = there->dl_tensor;
    int64_t strides[2] = {1, 3};
    const DLTensor *p = &bad;
    bad.device.device_id = 1;
    assert_int_equal(braid_session_run_dlpack(s, &p, &none, &e), BRAID_INPUT);
    assert_string_equal(e.message, "input 'x' is on another device than the session");
    bad = there->dl_tensor;
    bad.strides = strides;
    assert_int_equal(braid_session_run_dlpack(s, &p, &none, &e), BRAID_INPUT);
    assert_string_equal(e.message, "'x': a tensor on a device has to be dense");
    bad = there->dl_tensor;
    bad.ndim = 1;
    assert_int_equal(braid_session_run_dlpack(s, &p, &none, &e), BRAID_INPUT);
    assert_string_equal(e.message, known ? "input 'x': expected float32[3,4], got float32[3]"
                                         : "input 'x': expected float32[n,4], got float32[3]");
    assert_null(none);
    assert_int_equal(braid_session_to_host(s, &t, NULL, &e), BRAID_USAGE);
    assert_int_equal(braid_session_to_device(s, &bad, &none, &e), BRAID_INPUT);
    /* Tensors outlive the session and the model. */
    braid_session_free(s);
    braid_model_free(m);
    there->deleter(there);
    for (int i = 0; i < 3; i++) out[i]->deleter(out[i]);
}
/* Two inputs at different places. */
static void run_apart(const char *path) {
    struct braid_model *m = load(path, "emulate:cuda");
    braid_session *s = session(m);
    braid_error e = {0};
    float x[4] = {1, 2, 3, 4};
    int64_t shape[1] = {4};
    DLTensor t = {
        .data = x, .device = {kDLCPU, 0}, .ndim = 1, .dtype = {kDLFloat, 32, 1}, .shape = shape};
    DLManagedTensor *there = NULL, *out = NULL;
    assert_int_equal(braid_session_to_device(s, &t, &there, &e), 0);
    const DLTensor *in[2] = {&t, &there->dl_tensor};
    assert_int_equal(braid_session_run_dlpack(s, in, &out, &e), BRAID_INPUT);
    assert_string_equal(
        e.message,
        "input 'a' is in CPU memory and input 'b' on the device: all have to be at one place");
    in[0] = &there->dl_tensor;
    assert_int_equal(braid_session_run_dlpack(s, in, &out, &e), 0);
    out->deleter(out);
    there->deleter(there);
    braid_session_free(s);
    braid_model_free(m);
}
static void test_device(void **state) {
    (void)state;
    braid_error e;
    char *path = twice_model();
    struct braid_model *m = load(path, "cpu");
    braid_session *s = session(m);
    assert_int_equal(braid_model_device_type(m), kDLCPU);
    assert_int_equal(braid_session_set_stream(s, NULL, &e), BRAID_USAGE);
    assert_string_equal(e.message, "target 'cpu' has no device");
    assert_int_equal(braid_session_finish(s, &e), BRAID_USAGE);
    braid_session_free(s);
    braid_model_free(m);
    if (ntarget == COUNT(targets)) {
        Onnx o = {0};
        node(&o, "Add", "add", "x", "x", "y");
        input(&o, "x", type("tensor", 1, "3,4"));
        output(&o, "y", type("tensor", 1, "3,4"));
        char *fixed = save(&o, "fixed.onnx");
        o = (Onnx){0};
        node(&o, "Add", "add", "a", "b", "y");
        input(&o, "a", type("tensor", 1, "4"));
        input(&o, "b", type("tensor", 1, "4"));
        output(&o, "y", type("tensor", 1, "4"));
        char *two = save(&o, "two.onnx");
        run_there(path, false);
        run_there(fixed, true);
        run_apart(two);
        free(fixed);
        free(two);
    }
    free(path);
}

/* Random numbers: without a seed all runs differ, with one all are alike, on all targets and on the
 * device, where runs are enqueued. */
static void draw(braid_session *s, float *y) {
    braid_value *in = tensor(BRAID_FLOAT32, 1, (int64_t[]){4}, NULL), *out = NULL;
    assert_int_equal(braid_session_run(s, (const braid_value *const *)&in, &out, NULL), 0);
    memcpy(y, braid_value_data(out), 4 * sizeof *y);
    braid_value_free(in);
    braid_value_free(out);
}
static void draw_there(braid_session *s, float (*y)[4]) {
    float x[4] = {0};
    DLTensor t = {.data = x,
                  .device = {kDLCPU, 0},
                  .ndim = 1,
                  .dtype = {kDLFloat, 32, 1},
                  .shape = (int64_t[]){4}};
    DLManagedTensor *there = NULL, *out[2] = {NULL, NULL};
    assert_int_equal(braid_session_to_device(s, &t, &there, NULL), 0);
    const DLTensor *in = &there->dl_tensor;
    for (int i = 0; i < 2; i++)
        assert_int_equal(braid_session_run_dlpack(s, &in, &out[i], NULL), 0);
    for (int i = 0; i < 2; i++) {
        braid_value *v = NULL;
        assert_int_equal(braid_session_to_host(s, &out[i]->dl_tensor, &v, NULL), 0);
        memcpy(y[i], braid_value_data(v), sizeof y[i]);
        braid_value_free(v);
        out[i]->deleter(out[i]);
    }
    there->deleter(there);
}
static void test_seeds(void **state) {
    (void)state;
    Onnx o = {0};
    node(&o, "RandomUniformLike", "draw", "x", NULL, "y");
    input(&o, "x", type("tensor", 1, "4"));
    output(&o, "y", type("tensor", 1, "4"));
    char *path = save(&o, "random.onnx"), *twice = twice_model();
    float first[4] = {0}, y[5][4];
    for (size_t k = 0; k < ntarget; k++) {
        struct braid_model *m = load(path, targets[k]), *plain = load(twice, targets[k]);
        bool device = strncmp(targets[k], "emulate", 7) == 0;
        assert_true(braid_model_draws(m));
        assert_false(braid_model_draws(plain));
        braid_session *s = session(m);
        for (int given = 0; given < 2; given++) {
            braid_error e = {0};
            if (given) assert_int_equal(braid_session_set_seed(s, 7, &e), 0);
            for (int i = 0; i < 3; i++) draw(s, y[i]);
            if (device) draw_there(s, y + 3);
            for (int i = 0, n = device ? 5 : 3; i < n; i++)
                for (int j = 0; j < i; j++)
                    assert_int_equal(memcmp(y[i], y[j], sizeof y[i]) == 0, given);
        }
        if (k == 0) memcpy(first, y[0], sizeof first);
        assert_memory_equal(first, y[0], sizeof first);
        braid_session_free(s);
        braid_model_free(m);
        braid_model_free(plain);
    }
    free(path);
    free(twice);
}

/* The runs since the last profile are counted; without braid_options.profile there is none. */
static void test_profile(void **state) {
    (void)state;
    char *path = twice_model(), *json = NULL;
    float x[4] = {1, 2, 3, 4};
    braid_value *in = tensor(BRAID_FLOAT32, 2, (int64_t[]){1, 4}, x), *out = NULL;
    for (size_t k = 0; k < ntarget; k++) {
        struct braid_model *m = load(path, targets[k]), *measured = NULL;
        braid_session *s = session(m);
        braid_error e = {0};
        braid_options o = {
            .struct_size = sizeof o, .target = targets[k], .cache_dir = folder, .profile = true};
        assert_int_equal(braid_session_profile(s, &json, &e), BRAID_USAGE);
        assert_non_null(strstr(e.message, k ? "compiled without a profile" : "the interpreter"));
        assert_int_equal(braid_session_profile(s, NULL, &e), BRAID_USAGE);
        braid_session_free(s);
        braid_model_free(m);
        assert_int_equal(braid_load(path, &o, &measured, &e), k ? BRAID_OK : BRAID_USAGE);
        if (!k) continue;
        s = session(measured);
        assert_int_equal(braid_session_profile(s, &json, &e), BRAID_USAGE);
        assert_string_equal(e.message, "there was no run to profile");
        /* The first run may begin again with more memory, and counts twice then. */
        for (int runs = 0; runs < 3; runs++) {
            for (int i = 0; i < runs + !runs; i++) {
                assert_int_equal(braid_session_run(s, (const braid_value *const *)&in, &out, &e),
                                 0);
                assert_true(((float *)braid_value_data(out))[3] == 8);
                braid_value_free(out);
            }
            assert_int_equal(braid_session_profile(s, &json, &e), BRAID_OK);
            if (runs) assert_non_null(strstr(json, runs == 1 ? "\"runs\": 1," : "\"runs\": 2,"));
            assert_non_null(strstr(json, "\"kind\": \"group\""));
            braid_text_free(json);
        }
        braid_session_free(s);
        braid_model_free(measured);
    }
    braid_value_free(in);
    braid_text_free(NULL);
    free(path);
}

static void *run_many(void *arg) {
    float x[4] = {1, 2, 3, 4};
    for (int i = 0; i < 100; i++) {
        braid_value *in = tensor(BRAID_FLOAT32, 2, (int64_t[]){1, 4}, x), *out = NULL;
        assert_int_equal(braid_session_run(arg, (const braid_value *const *)&in, &out, NULL), 0);
        assert_true(((float *)braid_value_data(out))[3] == 8);
        braid_value_free(in);
        braid_value_free(out);
    }
    return NULL;
}
static void test_threads(void **state) {
    (void)state;
    char *path = twice_model();
    for (size_t k = 0; k < ntarget; k++) {
        struct braid_model *m = load(path, targets[k]);
        braid_session *s[2] = {session(m), session(m)};
        pthread_t t[4];
        for (int i = 0; i < 4; i++)
            assert_int_equal(pthread_create(&t[i], NULL, run_many, s[i / 2]), 0);
        for (int i = 0; i < 4; i++) pthread_join(t[i], NULL);
        braid_session_free(s[0]);
        braid_session_free(s[1]);
        braid_model_free(m);
    }
    free(path);
}

static void expect_load(const char *path, const braid_options *o, braid_status st) {
    struct braid_model *m = NULL;
    braid_error e = {0};
    assert_int_equal(braid_load(path, o, &m, &e), st);
    assert_int_equal(e.status, st);
    assert_true(e.message[0]);
    assert_null(m);
}
static void test_load_errors(void **state) {
    (void)state;
    char *path = twice_model(), junk[64];
    for (size_t k = 0; k < ntarget; k++) {
        braid_options o = {.struct_size = sizeof o, .target = targets[k], .cache_dir = folder};
        expect_load("/nonexistent/model.onnx", &o, BRAID_IO);
        snprintf(junk, sizeof junk, "%s/junk.onnx", folder);
        FILE *f = fopen(junk, "wb");
        fputs("this is not a model", f);
        fclose(f);
        expect_load(junk, &o, BRAID_MODEL);
        Onnx u = {0};
        node(&u, "NoSuchOperator", "odd", "x", NULL, "y");
        input(&u, "x", type("tensor", 1, "4"));
        output(&u, "y", type("tensor", 1, "4"));
        char *unsupported = save(&u, "unsupported.onnx");
        expect_load(unsupported, &o, BRAID_UNSUPPORTED);
        free(unsupported);
        braid_fold fold = {.carry_count = 1,
                           .carry_input = (const char *const[]){"x"},
                           .carry_output = (const char *const[]){"nothing"}};
        o.fold = &fold;
        struct braid_model *m = NULL;
        braid_error e = {0};
        assert_int_not_equal(braid_load(path, &o, &m, &e), BRAID_OK);
    }
    braid_options o = {.struct_size = sizeof o, .target = "abacus"};
    expect_load(path, &o, BRAID_USAGE);
    o.target = "cuda:sm_1";
    expect_load(path, &o, BRAID_USAGE);
    o.struct_size = 0;
    expect_load(path, &o, BRAID_USAGE);
    free(path);
}

static void test_compile(void **state) {
    (void)state;
    char *path = twice_model(), so[64], text[64];
    snprintf(so, sizeof so, "%s/out.so", folder);
    snprintf(text, sizeof text, "%s/out.c", folder);
    braid_error e = {0};
    braid_options o = {.struct_size = sizeof o, .emit_path = text};
    if (braid_compile(path, &o, so, &e)) fail_msg("%s", e.message);
    assert_int_equal(access(text, R_OK), 0);
    struct braid_model *m = load(so, NULL);
    assert_string_equal(braid_model_target(m), "cpu");
    braid_session *s = session(m);
    run_many(s);
    assert_int_equal(braid_session_stat(s, BRAID_THREADS), 2);
    braid_session_free(s);
    braid_model_free(m);
    unlink(so);
    assert_int_equal(braid_compile("/nonexistent.onnx", NULL, so, &e), BRAID_IO);
    assert_int_not_equal(access(so, F_OK), 0);
    o.target = "interp";
    assert_int_equal(braid_compile(path, &o, so, &e), BRAID_USAGE);
    assert_int_equal(braid_compile(path, NULL, "/nonexistent/out.so", &e), BRAID_IO);
    assert_int_equal(braid_compile(path, NULL, NULL, &e), BRAID_USAGE);
    o = (braid_options){.struct_size = sizeof o, .emit_folder = "/nonexistent/c"};
    assert_int_equal(braid_compile(path, &o, so, &e), BRAID_USAGE);
    assert_int_equal(braid_compile(path, &o, NULL, &e), BRAID_IO);
    assert_int_equal(braid_load(path, &o, &m, &e), BRAID_USAGE);
    o.target = "emulate:cuda";
    assert_int_equal(braid_compile(path, &o, NULL, &e), BRAID_USAGE);
    free(path);
}

/* y = x x, x of any rank */
static char *square_model(void) {
    Onnx o = {0};
    node(&o, "MatMul", "square", "x", "x", "y");
    input(&o, "x", type("tensor", 1, NULL));
    output(&o, "y", type("tensor", 1, NULL));
    return save(&o, "square.onnx");
}

/* The square of ones of size 2 along `rank` axes has elements 2. */
static void expect_square(braid_session *s, int rank, bool dlpack) {
    float x[8] = {1, 1, 1, 1, 1, 1, 1, 1};
    int64_t shape[3] = {2, 2, 2};
    braid_error e = {0};
    braid_value *in = tensor(BRAID_FLOAT32, rank, shape, x), *out = NULL;
    DLTensor t = {
        .data = x, .device = {kDLCPU, 0}, .ndim = rank, .dtype = {kDLFloat, 32, 1}, .shape = shape};
    const DLTensor *p = &t;
    DLManagedTensor *r = NULL;
    if (dlpack ? braid_session_run_dlpack(s, &p, &r, &e)
               : braid_session_run(s, (const braid_value *const *)&in, &out, &e))
        fail_msg("rank %d: %s", rank, e.message);
    int want = rank == 1 ? 0 : rank;
    assert_int_equal(dlpack ? r->dl_tensor.ndim : braid_value_rank(out), want);
    const float *y = dlpack ? r->dl_tensor.data : braid_value_data(out);
    for (int i = 0; i < 1 << want; i++) assert_true(y[i] == 2);
    if (r) r->deleter(r);
    braid_value_free(out);
    braid_value_free(in);
}

static void *run_ranks(void *arg) {
    for (int i = 0; i < 12; i++) expect_square(arg, 1 + i % 3, i % 2);
    return NULL;
}

static void test_open_ranks(void **state) {
    (void)state;
    char *path = square_model();
    float x[1] = {3};
    for (size_t k = 0; k < ntarget; k++) {
        struct braid_model *m = load(path, targets[k]);
        assert_int_equal(braid_model_input(m, 0)->rank, -1);
        assert_int_equal(braid_model_input(m, 0)->dtype, BRAID_FLOAT32);
        assert_string_equal(braid_model_output(m, 0)->name, "y");
        assert_string_equal(braid_model_target(m), targets[k]);
        braid_session *s[2] = {session(m), session(m)};
        bool device = braid_model_device_type(m) != kDLCPU;
        braid_error e = {0};
        assert_int_equal(device, k == 2);
        assert_int_equal(braid_session_set_stream(s[0], NULL, &e), device ? 0 : BRAID_USAGE);
        assert_int_equal(braid_session_finish(s[0], &e), device ? 0 : BRAID_USAGE);
        pthread_t t[3];
        for (int i = 0; i < 3; i++)
            assert_int_equal(pthread_create(&t[i], NULL, run_ranks, s[i / 2]), 0);
        for (int i = 0; i < 3; i++) pthread_join(t[i], NULL);
        for (int again = 0; again < 2; again++) {
            braid_value *in = tensor(BRAID_FLOAT32, 0, NULL, x), *out = NULL;
            assert_int_equal(braid_session_run(s[0], (const braid_value *const *)&in, &out, &e),
                             BRAID_INPUT);
            assert_true(strncmp(e.message, "input x of rank 0: square (MatMul): ", 36) == 0);
            assert_null(out);
            braid_value_free(in);
        }
        braid_value *missing = NULL, *out = NULL;
        assert_int_equal(braid_session_run(s[0], (const braid_value *const *)&missing, &out, &e),
                         BRAID_INPUT);
        assert_string_equal(e.message, "input 'x' is missing");
        assert_true(braid_session_stat(s[0], BRAID_THREADS) >= 1);
        assert_int_equal(braid_session_finish(s[0], &e), device ? 0 : BRAID_USAGE);
        braid_model_free(m);
        braid_session_free(s[0]);
        braid_session_free(s[1]);
    }
    free(path);
}

static void test_shapes(void **state) {
    (void)state;
    char *path = square_model(), *twice = twice_model(), so[64];
    for (size_t k = 0; k < ntarget; k++) {
        struct braid_model *m = NULL;
        braid_error e = {0};
        braid_shape shape = {"x", 2, (int64_t[]){2, -1}};
        braid_options o = {.struct_size = sizeof o,
                           .target = targets[k],
                           .cache_dir = folder,
                           .shape_count = 1,
                           .shape = &shape};
        if (braid_load(path, &o, &m, &e)) fail_msg("%s", e.message);
        assert_int_equal(braid_model_input(m, 0)->rank, 2);
        assert_int_equal(braid_model_input(m, 0)->dim[0], 2);
        assert_int_equal(braid_model_input(m, 0)->dim[1], -1);
        braid_session *s = session(m);
        expect_square(s, 2, false);
        braid_session_free(s);
        braid_model_free(m);
        expect_load(twice,
                    &(braid_options){.struct_size = sizeof o,
                                     .target = targets[k],
                                     .cache_dir = folder,
                                     .shape_count = 1,
                                     .shape = &(braid_shape){"x", 3, (int64_t[]){1, 2, 4}}},
                    BRAID_USAGE);
        shape.dim = (int64_t[]){2, -2};
        expect_load(path, &o, BRAID_USAGE);
        shape = (braid_shape){"z", 0, NULL};
        expect_load(path, &o, BRAID_USAGE);
        o.shape = NULL;
        expect_load(path, &o, BRAID_USAGE);
    }
    braid_error e = {0};
    snprintf(so, sizeof so, "%s/square.so", folder);
    if (braid_compile(path, NULL, so, &e)) fail_msg("%s", e.message);
    struct braid_model *m = load(so, NULL);
    braid_session *s = session(m);
    for (int rank = 1; rank <= 3; rank++) expect_square(s, rank, false);
    braid_session_free(s);
    braid_model_free(m);
    expect_load(so,
                &(braid_options){.struct_size = sizeof(braid_options), .ignore_dim_names = true},
                BRAID_USAGE);
    unlink(so);
    free(path);
    free(twice);
}

/* ---- structures: the plan of a recursion is kept from run to run ---- */
#define STRUCTURE_NODES 64
#define STRUCTURE_WIDTH 256
typedef struct Structure {
    int64_t n, k, left[STRUCTURE_NODES], right[STRUCTURE_NODES];
    bool leaf[STRUCTURE_NODES];
} Structure;

static braid_status run_structure(braid_session *s, const Structure *t, float *y, braid_error *e) {
    static float x[STRUCTURE_NODES * STRUCTURE_WIDTH], w[2 * STRUCTURE_WIDTH * STRUCTURE_WIDTH];
    for (int i = 0; i < STRUCTURE_NODES * STRUCTURE_WIDTH; i++) x[i] = (float)(i * 37 % 101) / 101;
    for (int i = 0; i < STRUCTURE_WIDTH; i++) {
        w[i * STRUCTURE_WIDTH + i] = 0.75f;
        w[(STRUCTURE_WIDTH + i) * STRUCTURE_WIDTH + i] = -0.5f;
    }
    braid_value *in[] = {
        tensor(BRAID_INT64, 0, NULL, &t->k),
        tensor(BRAID_FLOAT32, 2, (int64_t[]){t->n, STRUCTURE_WIDTH}, x),
        tensor(BRAID_INT64, 1, &t->n, t->left),
        tensor(BRAID_INT64, 1, &t->n, t->right),
        tensor(BRAID_BOOL, 1, &t->n, t->leaf),
        tensor(BRAID_FLOAT32, 2, (int64_t[]){2 * STRUCTURE_WIDTH, STRUCTURE_WIDTH}, w)};
    braid_value *out = NULL;
    const braid_status st = braid_session_run(s, (const braid_value *const *)in, &out, e);
    if (!st) memcpy(y, braid_value_data(out), STRUCTURE_WIDTH * sizeof *y);
    braid_value_free(out);
    for (size_t i = 0; i < COUNT(in); i++) braid_value_free(in[i]);
    return st;
}

/* Two runs of each structure, which differs from the one before by a single number; some fail. */
static void test_structures(void **state) {
    (void)state;
    static Structure t = {.n = STRUCTURE_NODES, .k = STRUCTURE_NODES - 1};
    struct braid_model *exact = load(BRAID_GOLDEN "/tree.onnx", "interp"), *m = NULL;
    braid_error e = {0};
    braid_options o = {
        .struct_size = sizeof o, .target = "cpu", .cache_dir = folder, .schedule = "linearize=on"};
    if (braid_load(BRAID_GOLDEN "/tree.onnx", &o, &m, &e)) fail_msg("%s", e.message);
    braid_session *s[2] = {session(exact), session(m)};
    uint32_t random = 1;
    for (int i = 0; i < STRUCTURE_NODES; i++) {
        t.leaf[i] = i < 20;
        t.left[i] = i ? (i * 7 + 3) % i : 0;
        t.right[i] = i ? (i * 5 + 1) % i : 0;
    }
    for (int step = 0, failed = 0; step < 60 || !failed; step++) {
        const Structure before = t;
        random = random * 1664525 + 1013904223;
        const int64_t to = random >> 20 & 63;
        int64_t at = t.k; /* a node that is reached */
        for (uint32_t way = random >> 4; way & 1 && !t.leaf[at]; way >>= 2)
            at = way & 2 ? t.left[at] : t.right[at];
        if (step % 5 == 0) t.k = to;
        if (step % 5 == 1) t.leaf[at] = !t.leaf[at];
        if (step % 5 == 2) t.left[at] = at ? to % at : 0;
        if (step % 5 == 3) t.right[at] = step % 4 ? (at ? to % at : 0) : STRUCTURE_NODES + at;
        if (step % 5 == 4) t.n = STRUCTURE_NODES - to % 4;
        float y[2][2][STRUCTURE_WIDTH] = {0};
        for (int again = 0; again < 2; again++) {
            const braid_status st = run_structure(s[0], &t, y[0][again], &e);
            assert_int_equal(run_structure(s[1], &t, y[1][again], &e), st);
            if (again && st) t = before, failed++;
            for (int i = 0; !st && i < STRUCTURE_WIDTH; i++)
                assert_true(fabsf(y[0][again][i] - y[1][again][i]) < 1e-5);
        }
    }
    for (int i = 0; i < 2; i++) braid_session_free(s[i]);
    braid_model_free(exact);
    braid_model_free(m);
}

static int set_up(void **state) {
    (void)state;
    if (!mkdtemp(folder)) return -1;
    char *path = twice_model();
    struct braid_model *m = NULL;
    braid_options o = {
        .struct_size = sizeof o, .target = targets[ntarget - 1], .cache_dir = folder};
    if (braid_load(path, &o, &m, NULL)) ntarget--;
    braid_model_free(m);
    free(path);
    return 0;
}
static int tear_down(void **state) {
    (void)state;
    Sb command = {0};
    sb_printf(&command, "rm -r %s", folder);
    int st = system(command.p);
    sb_free(&command);
    return st;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tensors),     cmocka_unit_test(test_input_errors),
        cmocka_unit_test(test_sequences),   cmocka_unit_test(test_optionals),
        cmocka_unit_test(test_dlpack),      cmocka_unit_test(test_packed),
        cmocka_unit_test(test_device),      cmocka_unit_test(test_threads),
        cmocka_unit_test(test_load_errors), cmocka_unit_test(test_compile),
        cmocka_unit_test(test_open_ranks),  cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_seeds),       cmocka_unit_test(test_profile),
        cmocka_unit_test(test_structures)};
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
