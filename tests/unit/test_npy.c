/* Reading and writing .npy and .pb files, good ones and bad ones. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <unistd.h>
#include <cmocka.h>

#include "api/runtime.h"

/* A .npy file of `version` with this header text and n bytes of data. */
static Sb npy(int version, const char *header, const void *data, size_t n) {
    Sb s = {0};
    size_t length = strlen(header);
    sb_write(&s, "\x93NUMPY", 6);
    sb_write(&s, (char[]){(char)version, 0}, 2);
    sb_write(&s, (char[]){(char)(length & 255), (char)(length >> 8), 0, 0}, version == 1 ? 2 : 4);
    sb_puts(&s, header);
    sb_write(&s, data, n);
    return s;
}

/* The bytes are parsed from a block of exactly their size, so that the sanitizer sees a step too
 * far. */
static braid_status parse(const void *p, size_t n, braid_dtype t, braid_value **v, braid_error *e) {
    void *exact = malloc(n ? n : 1);
    memcpy(exact, p, n);
    braid_status st = npy_parse(exact, n, t, v, e);
    free(exact);
    return st;
}

static void good(Sb s, braid_dtype declared, braid_dtype dtype, int rank, const int64_t *dim,
                 const void *data) {
    braid_value *v = NULL;
    braid_error e = {0};
    if (parse(s.p, s.n, declared, &v, &e)) fail_msg("%s", e.message);
    assert_int_equal(braid_value_dtype(v), dtype);
    assert_int_equal(braid_value_rank(v), rank);
    for (int i = 0; i < rank; i++) assert_int_equal(braid_value_dim(v)[i], dim[i]);
    size_t bytes = (size_t)braid_value_count(v) * braid_dtype_size(dtype);
    if (bytes) assert_memory_equal(braid_value_data(v), data, bytes);
    braid_value_free(v);
    sb_free(&s);
}
static void bad(Sb s, const char *message) {
    braid_value *v = NULL;
    braid_error e = {0};
    assert_int_equal(parse(s.p, s.n, BRAID_FLOAT32, &v, &e), BRAID_INPUT);
    assert_null(v);
    assert_string_equal(e.message, message);
    sb_free(&s);
}

static void test_read(void **state) {
    (void)state;
    float f[6] = {1, 2, 3, 4, 5, 6}, t[6] = {1, 4, 2, 5, 3, 6};
    int64_t d23[] = {2, 3}, d32[] = {3, 2}, d6[] = {6}, d0[] = {0, 5};
    for (int version = 1; version <= 3; version++) {
        good(npy(version, "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }  \n", f, 24),
             0, BRAID_FLOAT32, 2, d23, f);
        good(npy(version, "{'shape':(6,),'fortran_order':True,\"descr\":\"<f4\"}", f, 24), 0,
             BRAID_FLOAT32, 1, d6, f);
    }
    /* column-major (3, 2): t read down the columns */
    good(npy(1, "{'descr': '<f4', 'fortran_order': True, 'shape': (3, 2), }\n", f, 24), 0,
         BRAID_FLOAT32, 2, d32, t);
    good(npy(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (), }\n", f, 4), 0,
         BRAID_FLOAT32, 0, NULL, f);
    good(npy(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (0, 5), }\n", f, 0), 0,
         BRAID_FLOAT32, 2, d0, f);
    good(npy(1, "{'descr': '<f4', 'fortran_order': True, 'shape': (0L, 5L), }\n", f, 0), 0,
         BRAID_FLOAT32, 2, d0, f);
    uint8_t flags[] = {0, 1, 7}, flags01[] = {0, 1, 1};
    int64_t d3[] = {3};
    good(npy(1, "{'descr': '|b1', 'fortran_order': False, 'shape': (3,), }", flags, 3), 0,
         BRAID_BOOL, 1, d3, flags01);
    good(npy(1, "{'descr': '>u1', 'fortran_order': False, 'shape': (3,), }", flags, 3), 0,
         BRAID_UINT8, 1, d3, flags);
    good(npy(1, "{'descr': '<V2', 'fortran_order': False, 'shape': (3,), }", f, 6), BRAID_BFLOAT16,
         BRAID_BFLOAT16, 1, d3, f);
    good(npy(1, "{'descr': 'bfloat16', 'fortran_order': False, 'shape': (3,), }", f, 6), 0,
         BRAID_BFLOAT16, 1, d3, f);
}

/* Small types: the input says which one bytes are. */
static void test_small(void **state) {
    (void)state;
    uint8_t code[3] = {1, 15, 8}, value[3] = {1, 0xff, 0xf8}, large[3] = {1, 16, 2};
    int64_t d3[] = {3};
    static const char *const text[] = {"{'descr': '<V1', 'fortran_order': False, 'shape': (3,), }",
                                       "{'descr': '|u1', 'fortran_order': True, 'shape': (3,), }",
                                       "{'descr': '<f1', 'fortran_order': False, 'shape': (3,), }"};
    for (size_t i = 0; i < COUNT(text); i++) {
        good(npy(1, text[i], code, 3), BRAID_INT4, BRAID_INT4, 1, d3, code);
        good(npy(1, text[i], value, 3), BRAID_FLOAT8E5M2, BRAID_FLOAT8E5M2, 1, d3, value);
    }
    const char *values = "{'descr': '|i1', 'fortran_order': False, 'shape': (3,), }";
    good(npy(1, values, value, 3), BRAID_INT4, BRAID_INT4, 1, d3, code);
    good(npy(1, values, value, 3), BRAID_FLOAT8E4M3FN, BRAID_FLOAT8E4M3FN, 1, d3, value);
    static const struct {
        const char *text;
        braid_dtype type;
        const char *message;
    } wrong[] = {{"{'descr': '<V1', 'fortran_order': False, 'shape': (3,), }", BRAID_UINT4,
                  "its element 1 is no uint4"},
                 {"{'descr': '|i1', 'fortran_order': False, 'shape': (3,), }", BRAID_INT4,
                  "its element 1 is no int4"},
                 {"{'descr': '|i1', 'fortran_order': False, 'shape': (3,), }", BRAID_INT2,
                  "its element 1 is no int2"},
                 {"{'descr': '<V1', 'fortran_order': False, 'shape': (3,), }", BRAID_FLOAT32,
                  "its element type 'V1' is not supported"},
                 {"{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }", BRAID_INT4,
                  "its shape needs 12 bytes of elements, it has 3"}};
    for (size_t i = 0; i < COUNT(wrong); i++) {
        Sb s = npy(1, wrong[i].text, large, 3);
        braid_value *v = NULL;
        braid_error e = {0};
        assert_int_equal(parse(s.p, s.n, wrong[i].type, &v, &e), BRAID_INPUT);
        assert_null(v);
        assert_string_equal(e.message, wrong[i].message);
        sb_free(&s);
    }
}

static void test_refuse(void **state) {
    (void)state;
    float f[6] = {0};
    bad(npy(1, "{'descr': '>f4', 'fortran_order': False, 'shape': (6,), }", f, 24),
        "its elements are big-endian ('>f4')");
    bad(npy(1, "{'descr': '<c8', 'fortran_order': False, 'shape': (3,), }", f, 24),
        "its element type 'c8' is not supported");
    bad(npy(1, "{'descr': '<V2', 'fortran_order': False, 'shape': (12,), }", f, 24),
        "its element type 'V2' is not supported");
    bad(npy(1, "{'descr': [('x', '<f4')], 'fortran_order': False, 'shape': (6,), }", f, 24),
        "its element type is a record, or unreadable");
    bad(npy(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (7,), }", f, 24),
        "its shape needs 28 bytes of elements, it has 24");
    bad(npy(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (5,), }", f, 24),
        "its shape needs 20 bytes of elements, it has 24");
    bad(npy(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296), }", f,
            24),
        "its shape is out of range");
    bad(npy(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (0, 99999999999999999), }", f, 0),
        "its shape is out of range");
    bad(npy(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,), }", f,
            24),
        "its .npy header is malformed");
    bad(npy(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (-1,), }", f, 24),
        "its .npy header is malformed");
    bad(npy(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1,1,1,1,1,1,1), }",
            f, 4),
        "it has more than 12 axes");
    bad(npy(1, "{'descr': '<f4', 'shape': (6,), }", f, 24), "its .npy header lacks an entry");
    bad(npy(1, "{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (6,)}", f, 24),
        "its element type is a record, or unreadable");
    bad(npy(1, "[]", f, 24), "its .npy header is not a dictionary");
    bad(npy(4, "{}", f, 24), "its .npy version 4 is not supported");
    Sb s = npy(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (6,), }", f, 24);
    for (size_t n = 0; n < s.n; n++) { /* cut anywhere */
        braid_value *v = NULL;
        braid_error e;
        assert_int_equal(parse(s.p, n, 0, &v, &e), BRAID_INPUT);
    }
    for (size_t at = 0; at < s.n - 24; at++) /* and damaged anywhere: never a crash */
        for (int bit = 0; bit < 8; bit++) {
            braid_value *v = NULL;
            s.p[at] ^= (char)(1 << bit);
            parse(s.p, s.n, 0, &v, NULL);
            braid_value_free(v);
            s.p[at] ^= (char)(1 << bit);
        }
    sb_free(&s);
}

static void same(const braid_value *a, const braid_value *b) {
    assert_int_equal(braid_value_kind(a), braid_value_kind(b));
    assert_int_equal(braid_value_dtype(a), braid_value_dtype(b));
    assert_int_equal(braid_value_count(a), braid_value_count(b));
    if (braid_value_kind(a) == BRAID_TENSOR) {
        assert_int_equal(braid_value_rank(a), braid_value_rank(b));
        for (int i = 0; i < braid_value_rank(a); i++)
            assert_int_equal(braid_value_dim(a)[i], braid_value_dim(b)[i]);
        size_t n = (size_t)braid_value_count(a) * braid_dtype_size(braid_value_dtype(a));
        if (n) assert_memory_equal(braid_value_data(a), braid_value_data(b), n);
    } else
        for (int64_t i = 0; i < braid_value_count(a); i++)
            same(braid_value_item(a, i), braid_value_item(b, i));
}

static void round_trip(const char *file, const braid_value *v, const braid_io *io) {
    braid_error e = {0};
    braid_value *back = NULL;
    if (braid_value_write(v, file, &e)) fail_msg("%s", e.message);
    if (braid_value_read(file, io, &back, &e)) fail_msg("%s", e.message);
    same(v, back);
    braid_value_free(back);
    unlink(file);
}

static void test_files(void **state) {
    (void)state;
    static const braid_dtype types[] = {
        BRAID_FLOAT32,  BRAID_UINT8, BRAID_INT8,    BRAID_UINT16,     BRAID_INT16,     BRAID_INT32,
        BRAID_INT64,    BRAID_BOOL,  BRAID_FLOAT16, BRAID_FLOAT64,    BRAID_UINT32,    BRAID_UINT64,
        BRAID_BFLOAT16, BRAID_INT4,  BRAID_UINT2,   BRAID_FLOAT6E3M2, BRAID_FLOAT8E8M0};
    static const uint8_t bytes[6 * 8] = {0, 1, 1, 0, 1};
    static const int64_t dim[4] = {1, 2, 3, 0};
    char folder[] = "/tmp/braid-npy.XXXXXX", file[2][64];
    braid_io io = {.name = "x"};
    assert_non_null(mkdtemp(folder));
    snprintf(file[0], 64, "%s/x.npy", folder);
    snprintf(file[1], 64, "%s/x.pb", folder);
    for (size_t i = 0; i < COUNT(types); i++)
        for (int rank = 0; rank <= 4; rank++)
            for (int f = 0; f < 2; f++) {
                braid_value *v;
                io.dtype = types[i];
                assert_int_equal(braid_value_new_tensor(types[i], rank, dim, bytes, &v, NULL), 0);
                round_trip(file[f], v, &io);
                braid_value_free(v);
            }
    braid_value *seq, *t, *opt;
    assert_int_equal(braid_value_new_sequence(BRAID_FLOAT32, &seq, NULL), 0);
    io = (braid_io){
        .name = "s", .kind = BRAID_SEQUENCE, .element = BRAID_SEQUENCE, .dtype = BRAID_FLOAT32};
    round_trip(file[1], seq, &io);
    for (int rank = 0; rank < 4; rank++) {
        assert_int_equal(braid_value_new_tensor(BRAID_FLOAT32, rank, dim, bytes, &t, NULL), 0);
        assert_int_equal(braid_value_append(seq, t, NULL), 0);
    }
    assert_int_equal(braid_value_new_tensor(BRAID_INT64, 0, NULL, bytes, &t, NULL), 0);
    assert_int_equal(braid_value_append(seq, t, NULL), BRAID_USAGE);
    braid_value_free(t);
    round_trip(file[1], seq, &io);
    braid_error e;
    assert_int_equal(braid_value_write(seq, file[0], &e), BRAID_USAGE);
    assert_int_equal(braid_value_read(file[0], &io, &t, &e), BRAID_INPUT);
    io.kind = BRAID_OPTIONAL;
    assert_int_equal(braid_value_new_optional(seq, &opt, NULL), 0);
    round_trip(file[1], opt, &io);
    braid_value_free(opt);
    assert_int_equal(braid_value_new_optional(NULL, &opt, NULL), 0);
    round_trip(file[1], opt, &io);
    braid_value_free(opt);
    io = (braid_io){.name = "x"};
    assert_int_equal(braid_value_read("/nonexistent/x.npy", &io, &t, &e), BRAID_IO);
    assert_int_equal(braid_value_read("/tmp", &io, &t, &e), BRAID_INPUT);
    rmdir(folder);
}

static void test_values(void **state) {
    (void)state;
    braid_value *v = NULL;
    int64_t dim[13] = {2, -1};
    assert_int_equal(braid_value_new_tensor(BRAID_FLOAT32, 2, dim, NULL, &v, NULL), BRAID_USAGE);
    assert_int_equal(braid_value_new_tensor(BRAID_FLOAT32, 13, dim, NULL, &v, NULL), BRAID_USAGE);
    assert_int_equal(braid_value_new_tensor(8, 0, NULL, NULL, &v, NULL), BRAID_USAGE);
    assert_int_equal(braid_value_borrow_tensor(BRAID_FLOAT32, 1, dim, NULL, &v, NULL), BRAID_USAGE);
    assert_null(v);
    dim[1] = 3;
    assert_int_equal(braid_value_new_tensor(BRAID_FLOAT32, 2, dim, NULL, &v, NULL), 0);
    assert_int_equal(braid_value_count(v), 6);
    assert_true(((float *)braid_value_data(v))[5] == 0);
    assert_null(braid_value_item(v, 0));
    braid_value_free(v);
    braid_value_free(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_read), cmocka_unit_test(test_small),
                                       cmocka_unit_test(test_refuse), cmocka_unit_test(test_files),
                                       cmocka_unit_test(test_values)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
