/* test_extern.c: the hand-written bodies, called as the interpreter calls them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "utask/extern.h"

#include "codegen/text/extern/seq.inc"

enum { F32 = 1, I8 = 3, I32 = 6, I64 = 7, BOOL = 9, F16 = 10, U64 = 13 };

static bx_tensor tensor(int dtype, const void *data, int rank, ...) {
    bx_tensor t = {(void *)(uintptr_t)data, dtype, rank, {0}};
    va_list ap;
    va_start(ap, rank);
    for (int i = 0; i < rank; i++) t.dim[i] = va_arg(ap, int);
    va_end(ap);
    return t;
}
static const bx_tensor absent = {NULL, 0, -1, {0}};

/* One call: plan, then allocation as told, then run. Free with done(). */
typedef struct Call {
    const ExternRow *row;
    bx_tensor in[6], out[4];
    int64_t param[5], sym[16], bytes[8];
    int nout;
    void *scratch;
} Call;

static int plan(Call *c, const char *name) {
    c->row = extern_find(name);
    assert_non_null(c->row);
    return c->row->plan ? c->row->plan(c->in, c->param, c->sym, c->bytes) : 0;
}
static int run(Call *c) {
    for (int i = 0; i < c->nout; i++) {
        int64_t n = c->bytes[i] ? c->bytes[i] : bx_count(&c->out[i]) * bx_size(c->out[i].dtype);
        c->out[i].data = aligned_alloc(64, (size_t)bx_seq_round(n + 1));
    }
    c->scratch = malloc((size_t)c->bytes[c->nout] + 1);
    return c->row->run(c->in, c->param, c->out, c->scratch);
}
static void done(Call *c) {
    for (int i = 0; i < c->nout; i++) free(c->out[i].data);
    free(c->scratch);
}

static void said(const void *at, int64_t a, int64_t b, int64_t c, int64_t d) {
    const int64_t want[BX_SAYS] = {a, b, c, d};
    assert_memory_equal(at, want, sizeof want);
}

#define SAME(T, t, ...)                                                                            \
    do {                                                                                           \
        const T want_[] = {__VA_ARGS__};                                                           \
        assert_int_equal(bx_count(&(t)), sizeof want_ / sizeof *want_);                            \
        for (size_t i_ = 0; i_ < sizeof want_ / sizeof *want_; i_++)                               \
            assert_true(((const T *)(t).data)[i_] == want_[i_]);                                   \
    } while (0)

static void topk_orders_ties_and_nan(void **state) {
    (void)state;
    const float x[] = {1, NAN, 3, 3, -0.0f, 0.0f};
    Call c = {.nout = 2, .in = {tensor(F32, x, 1, 6)}, .param = {4, 0, 1}};
    c.out[0] = tensor(F32, NULL, 1, 4), c.out[1] = tensor(I64, NULL, 1, 4);
    assert_int_equal(plan(&c, "topk"), 0);
    assert_int_equal(run(&c), 0);
    SAME(int64_t, c.out[1], 1, 2, 3, 0);
    done(&c);
    c.param[2] = 0;
    assert_int_equal(run(&c), 0);
    SAME(int64_t, c.out[1], 4, 5, 0, 2);
    done(&c);
}

static void topk_along_a_middle_axis(void **state) {
    (void)state;
    const int64_t x[] = {1, 6, 5, 2, 3, 4, /**/ -1, 0, -9, 7, -5, 8};
    Call c = {.nout = 2, .in = {tensor(I64, x, 3, 2, 3, 2)}, .param = {2, 1, 1}};
    c.out[0] = tensor(I64, NULL, 3, 2, 2, 2), c.out[1] = c.out[0];
    assert_int_equal(plan(&c, "topk"), 0);
    assert_int_equal(run(&c), 0);
    SAME(int64_t, c.out[0], 5, 6, 3, 4, -1, 8, -5, 7);
    SAME(int64_t, c.out[1], 1, 0, 2, 2, 0, 2, 2, 1);
    done(&c);
}

static void topk_unsigned_and_limits(void **state) {
    (void)state;
    const uint64_t x[] = {1, UINT64_MAX, 5};
    Call c = {.nout = 2, .in = {tensor(U64, x, 1, 3)}, .param = {3, 0, 1}};
    c.out[0] = tensor(U64, NULL, 1, 3), c.out[1] = tensor(I64, NULL, 1, 3);
    assert_int_equal(plan(&c, "topk"), 0);
    assert_int_equal(run(&c), 0);
    SAME(uint64_t, c.out[0], UINT64_MAX, 5, 1);
    done(&c);
    c.param[0] = 4;
    assert_int_equal(plan(&c, "topk"), 1);
    c.param[0] = -1;
    assert_int_equal(plan(&c, "topk"), 1);
    c.param[0] = 0, c.param[1] = 1;
    assert_int_equal(plan(&c, "topk"), 1);
}

static int by_value(const void *a, const void *b) {
    return (*(const int32_t *)a > *(const int32_t *)b) -
           (*(const int32_t *)a < *(const int32_t *)b);
}
static void topk_agrees_with_a_sort(void **state) {
    (void)state;
    int32_t x[500], sorted[500];
    uint32_t seed = 1;
    for (int i = 0; i < 500; i++)
        x[i] = sorted[i] = (int32_t)((seed = seed * 1664525u + 1013904223u) >> 24) - 128;
    qsort(sorted, 500, sizeof *sorted, by_value);
    for (int64_t k = 0; k <= 500; k += 83) {
        Call c = {.nout = 2, .in = {tensor(I32, x, 1, 500)}, .param = {k, 0, 0}};
        c.out[0] = tensor(I32, NULL, 1, (int)k), c.out[1] = tensor(I64, NULL, 1, (int)k);
        assert_int_equal(plan(&c, "topk"), 0);
        assert_int_equal(run(&c), 0);
        const int64_t *idx = c.out[1].data;
        for (int64_t i = 0; i < k; i++) {
            assert_int_equal(((int32_t *)c.out[0].data)[i], sorted[i]);
            assert_int_equal(x[idx[i]], sorted[i]);
            assert_true(i == 0 || x[idx[i]] > x[idx[i - 1]] || idx[i] > idx[i - 1]);
        }
        done(&c);
    }
}

static void unique_flat(void **state) {
    (void)state;
    const float x[] = {2, 1, 1, 3, 4, 3};
    Call c = {.nout = 4, .in = {tensor(F32, x, 1, 6)}, .param = {-1, 0}};
    for (int i = 0; i < 3; i++) c.out[i] = tensor(I64, NULL, 1, 6);
    c.out[3] = tensor(I64, NULL, 1, 1);
    assert_int_equal(plan(&c, "unique"), 0);
    assert_int_equal(run(&c), 0);
    SAME(int64_t, c.out[0], 0, 1, 1, 2, 3, 2);
    SAME(int64_t, c.out[3], 4);
    c.out[1].dim[0] = c.out[2].dim[0] = 4;
    SAME(int64_t, c.out[1], 0, 1, 3, 4);
    SAME(int64_t, c.out[2], 1, 2, 2, 1);
    done(&c);
    c.param[1] = 1;
    c.out[1].dim[0] = c.out[2].dim[0] = 6;
    assert_int_equal(run(&c), 0);
    SAME(int64_t, c.out[0], 1, 0, 0, 2, 3, 2);
    c.out[1].dim[0] = 4;
    SAME(int64_t, c.out[1], 1, 0, 3, 4);
    done(&c);
}

static void unique_slices(void **state) {
    (void)state;
    const int8_t x[] = {1, 1, 0, 1, 2, 1, 0, 1, /**/ 1, 1, 0, 1, 2, 1, 0, 1};
    Call c = {.nout = 4, .in = {tensor(I8, x, 3, 2, 4, 2)}, .param = {1, 1}};
    for (int i = 0; i < 3; i++) c.out[i] = tensor(I64, NULL, 1, 4);
    c.out[3] = tensor(I64, NULL, 1, 1);
    assert_int_equal(plan(&c, "unique"), 0);
    assert_int_equal(run(&c), 0);
    SAME(int64_t, c.out[0], 1, 0, 2, 0);
    SAME(int64_t, c.out[3], 3);
    done(&c);
}

static void unique_of_nothing(void **state) {
    (void)state;
    Call c = {.nout = 4, .in = {tensor(F32, NULL, 1, 0)}, .param = {-1, 1}};
    for (int i = 0; i < 3; i++) c.out[i] = tensor(I64, NULL, 1, 0);
    c.out[3] = tensor(I64, NULL, 1, 1);
    assert_int_equal(plan(&c, "unique"), 0);
    assert_int_equal(run(&c), 0);
    SAME(int64_t, c.out[3], 0);
    done(&c);
}

static void nonzero_finds_indices(void **state) {
    (void)state;
    const float x[] = {0, -0.0f, NAN, 2, 0, 1e-40f};
    Call c = {.nout = 1, .in = {tensor(F32, x, 2, 2, 3)}};
    assert_int_equal(plan(&c, "nonzero"), 0);
    assert_int_equal(c.sym[0], 3);
    c.out[0] = tensor(I64, NULL, 2, 2, 3);
    assert_int_equal(run(&c), 0);
    SAME(int64_t, c.out[0], 0, 1, 1, 2, 0, 2);
    done(&c);
    const uint8_t b = 1;
    c = (Call){.nout = 1, .in = {tensor(BOOL, &b, 0)}};
    assert_int_equal(plan(&c, "nonzero"), 0);
    assert_int_equal(c.sym[0], 1);
    c.out[0] = tensor(I64, NULL, 2, 0, 1);
    assert_int_equal(run(&c), 0);
    done(&c);
}

static void scatter_elements_reduces_in_order(void **state) {
    (void)state;
    const float data[] = {1, 2, 3, 4, 5}, upd[] = {1.5f, 2.5f, 10};
    const int64_t idx[] = {1, 1, -1};
    Call c = {.nout = 1, .param = {1, 0}};
    c.in[0] = tensor(F32, data, 2, 1, 5), c.in[1] = tensor(I64, idx, 2, 1, 3);
    c.in[2] = tensor(F32, upd, 2, 1, 3);
    static const float want[5][2] = {{2.5f, 10}, {6, 15}, {7.5f, 50}, {2.5f, 10}, {1.5f, 5}};
    for (int how = 0; how < 5; how++) {
        c.param[1] = how;
        c.out[0] = tensor(F32, NULL, 2, 1, 5);
        assert_int_equal(plan(&c, "scatter_elements"), 0);
        assert_int_equal(run(&c), 0);
        SAME(float, c.out[0], 1, want[how][0], 3, 4, want[how][1]);
        done(&c);
    }
}

static void scatter_elements_axes_and_faults(void **state) {
    (void)state;
    const int32_t data[9] = {0}, upd[] = {1, 2, 3, 4, 5, 6}, idx[] = {1, 0, 2, 0, 2, 1};
    Call c = {.nout = 1, .param = {0, 0}, .out = {tensor(I32, NULL, 2, 3, 3)}};
    c.in[0] = tensor(I32, data, 2, 3, 3), c.in[1] = tensor(I32, idx, 2, 2, 3);
    c.in[2] = tensor(I32, upd, 2, 2, 3);
    assert_int_equal(plan(&c, "scatter_elements"), 0);
    assert_int_equal(run(&c), 0);
    SAME(int32_t, c.out[0], 4, 2, 0, 1, 0, 6, 0, 5, 3);
    done(&c);
    const int32_t bad[] = {1, 0, 3, 0, 2, 1};
    c.in[1].data = (void *)(uintptr_t)bad;
    assert_int_equal(run(&c), BX_SAID);
    said(c.scratch, 3, -3, 3, c.param[0]);
    done(&c);
    c.in[1].dim[0] = c.in[2].dim[0] = 0;
    assert_int_equal(run(&c), 0);
    SAME(int32_t, c.out[0], 0, 0, 0, 0, 0, 0, 0, 0, 0);
    done(&c);
}

static void scatter_nan_and_half(void **state) {
    (void)state;
    const float nan_data[] = {NAN, 1}, upd[] = {3, NAN};
    const int64_t idx[] = {0, 1};
    Call c = {.nout = 1, .param = {0, 3}, .out = {tensor(F32, NULL, 1, 2)}};
    c.in[0] = tensor(F32, nan_data, 1, 2), c.in[1] = tensor(I64, idx, 1, 2);
    c.in[2] = tensor(F32, upd, 1, 2);
    assert_int_equal(plan(&c, "scatter_elements"), 0);
    assert_int_equal(run(&c), 0);
    assert_true(isnan(((float *)c.out[0].data)[0]) && isnan(((float *)c.out[0].data)[1]));
    done(&c);
    const uint16_t half[] = {bx_to_half(1), bx_to_half(2)};
    c.in[0] = c.in[2] = tensor(F16, half, 1, 2);
    c.out[0] = tensor(F16, NULL, 1, 2);
    c.param[1] = 1;
    assert_int_equal(run(&c), 0);
    SAME(uint16_t, c.out[0], bx_to_half(2), bx_to_half(4));
    done(&c);
}

static void scatter_nd_slices(void **state) {
    (void)state;
    const int64_t data[] = {1, 2, 3, 4, 5, 6}, idx[] = {-1, 0, 2}, upd[] = {9, 8, 7, 6, 1, 1};
    Call c = {.nout = 1, .param = {1}, .out = {tensor(I64, NULL, 2, 3, 2)}};
    c.in[0] = tensor(I64, data, 2, 3, 2), c.in[1] = tensor(I64, idx, 2, 3, 1);
    c.in[2] = tensor(I64, upd, 2, 3, 2);
    assert_int_equal(plan(&c, "scatter_nd"), 0);
    assert_int_equal(run(&c), 0);
    SAME(int64_t, c.out[0], 8, 8, 3, 4, 15, 15);
    done(&c);
    const int64_t pairs[] = {0, 1, 2, -2};
    c.in[1] = tensor(I64, pairs, 2, 2, 2), c.in[2] = tensor(I64, upd, 1, 2);
    c.param[0] = 0;
    assert_int_equal(run(&c), 0);
    SAME(int64_t, c.out[0], 1, 9, 3, 4, 8, 6);
    done(&c);
    const int64_t bad[] = {0, 2};
    c.in[1] = tensor(I64, bad, 2, 1, 2), c.in[2] = tensor(I64, upd, 1, 1);
    assert_int_equal(run(&c), BX_SAID);
    said(c.scratch, 2, -2, 2, 1);
    done(&c);
}

static void cumulate_modes(void **state) {
    (void)state;
    const float x[] = {1, 2, 3, 4, 5, 6};
    static const float want[8][6] = {
        {1, 3, 6, 4, 9, 15}, {1, 2, 6, 4, 20, 120}, {6, 5, 3, 15, 11, 6}, {6, 6, 3, 120, 30, 6},
        {0, 1, 3, 0, 4, 9},  {1, 1, 2, 1, 4, 20},   {5, 3, 0, 11, 6, 0},  {6, 3, 1, 30, 6, 1}};
    for (int m = 0; m < 8; m++) {
        Call c = {
            .nout = 1, .in = {tensor(F32, x, 2, 2, 3)}, .param = {-1, m >> 2, m >> 1 & 1, m & 1}};
        c.out[0] = tensor(F32, NULL, 2, 2, 3);
        assert_int_equal(plan(&c, "cumulate"), 0);
        assert_int_equal(run(&c), 0);
        assert_memory_equal(c.out[0].data, want[m], sizeof want[m]);
        done(&c);
    }
    Call c = {.nout = 1, .in = {tensor(F32, x, 2, 3, 2)}, .param = {0, 1, 1, 0}};
    c.out[0] = tensor(F32, NULL, 2, 3, 2);
    assert_int_equal(plan(&c, "cumulate"), 0);
    assert_int_equal(run(&c), 0);
    SAME(float, c.out[0], 8, 10, 5, 6, 0, 0);
    done(&c);
    c.param[0] = 2;
    assert_int_equal(run(&c), 1);
    done(&c);
}

static void cumulate_wraps(void **state) {
    (void)state;
    const int8_t x[] = {100, 100, 100};
    Call c = {.nout = 1, .in = {tensor(I8, x, 1, 3)}, .out = {tensor(I8, NULL, 1, 3)}};
    assert_int_equal(plan(&c, "cumulate"), 0);
    assert_int_equal(run(&c), 0);
    SAME(int8_t, c.out[0], 100, -56, 44);
    done(&c);
}

static void nms_drops_overlaps(void **state) {
    (void)state;
    const float boxes[] = {0, 0,  1, 1,  0, 0.1f,  1, 1.1f,  0, -0.1f, 1, 0.9f,
                           0, 10, 1, 11, 0, 10.1f, 1, 11.1f, 0, 100,   1, 101};
    const float scores[] = {0.9f, 0.75f, 0.6f, 0.95f, 0.5f, 0.3f}, iou = 0.5f, floor = 0.4f;
    Call c = {.nout = 2, .param = {6, 0}, .out = {tensor(I64, NULL, 2, 6, 3)}};
    c.in[0] = tensor(F32, boxes, 3, 1, 6, 4), c.in[1] = tensor(F32, scores, 3, 1, 1, 6);
    c.in[2] = tensor(F32, &iou, 1, 1), c.in[3] = absent;
    c.out[1] = tensor(I64, NULL, 1, 1);
    assert_int_equal(plan(&c, "nms"), 0);
    assert_int_equal(run(&c), 0);
    SAME(int64_t, c.out[1], 3);
    c.out[0].dim[0] = 3;
    SAME(int64_t, c.out[0], 0, 0, 3, 0, 0, 0, 0, 0, 5);
    done(&c);
    c.in[3] = tensor(F32, &floor, 1, 1);
    c.out[0].dim[0] = 6;
    assert_int_equal(run(&c), 0);
    SAME(int64_t, c.out[1], 2);
    done(&c);
}

static void det_values(void **state) {
    (void)state;
    const float x[] = {0, 2, 3, 4, /**/ 1, 2, 2, 4};
    Call c = {.nout = 1, .in = {tensor(F32, x, 3, 2, 2, 2)}, .out = {tensor(F32, NULL, 1, 2)}};
    assert_int_equal(plan(&c, "det"), 0);
    assert_int_equal(run(&c), 0);
    SAME(float, c.out[0], -6, 0);
    done(&c);
    c.in[0] = tensor(F32, NULL, 2, 0, 0), c.out[0] = tensor(F32, NULL, 0);
    assert_int_equal(plan(&c, "det"), 0);
    assert_int_equal(run(&c), 0);
    SAME(float, c.out[0], 1);
    done(&c);
}

static void tfidf_counts(void **state) {
    (void)state;
    const int32_t x[] = {1, 1, 3, 3, 3, 7, 8, 6, 7, 5, 6, 8};
    const int64_t pool[] = {2, 3, 4, 5, 5, 6, 6, 7, 7, 8}, column[] = {0, 1, 2, 3, 4, 6, 5};
    const int64_t table[] = {0, 0, 4, 4, 4, 3};
    const float weight[] = {1, 3, 1, 1, 0.5f, 2, 1};
    Call c = {.nout = 1, .param = {0, 5, 1, 2}, .out = {tensor(F32, NULL, 1, 7)}};
    c.in[0] = tensor(I32, x, 1, 12), c.in[1] = tensor(I64, pool, 1, 10);
    c.in[2] = tensor(I64, column, 1, 7), c.in[3] = tensor(I64, table, 2, 2, 3);
    c.in[4] = tensor(F32, weight, 1, 7);
    assert_int_equal(plan(&c, "tfidf"), 0);
    assert_int_equal(run(&c), 0);
    SAME(float, c.out[0], 0, 3, 0, 1, 1, 3, 1);
    done(&c);
    c.param[0] = 1; /* IDF */
    assert_int_equal(run(&c), 0);
    SAME(float, c.out[0], 0, 3, 0, 1, 0.5f, 1, 2);
    done(&c);
    c.param[0] = 2; /* TFIDF */
    assert_int_equal(run(&c), 0);
    SAME(float, c.out[0], 0, 9, 0, 1, 0.5f, 3, 2);
    done(&c);
}

static Call sequence_of_two(void) {
    static const float a[] = {1, 2, 3}, b[] = {4, 5, 6, 7};
    Call c = {.nout = 1, .param = {2, F32}};
    c.in[0] = tensor(F32, a, 1, 3), c.in[1] = tensor(F32, b, 2, 2, 2);
    c.out[0] = tensor(2, NULL, 1, 0);
    assert_int_equal(plan(&c, "seq_construct"), 0);
    assert_int_equal(run(&c), 0);
    return c;
}

static void seq_items_are_aligned(void **state) {
    (void)state;
    Call c = sequence_of_two();
    const void *blob = c.out[0].data;
    assert_int_equal(bx_seq_count(blob), 2);
    assert_int_equal(bx_seq_dtype(blob), F32);
    assert_int_equal(bx_seq_used(blob), c.bytes[0]);
    for (int i = 0; i < 2; i++) assert_int_equal((uintptr_t)bx_seq_item(blob, i).data % 64, 0);
    bx_tensor t = bx_seq_item(blob, 1);
    assert_int_equal(t.rank, 2);
    SAME(float, t, 4, 5, 6, 7);
    done(&c);
    assert_int_equal(bx_seq_count(NULL), 0);
}

/* In the sequence's own memory: the same as seq_insert, and memory grows with the items only. */
static void seq_push_in_place(void **state) {
    (void)state;
    enum { N = 200 };
    float want[N] = {0}, x;
    Call s = {.nout = 1, .param = {0, F32}};
    assert_int_equal(plan(&s, "seq_construct"), 0);
    assert_int_equal(run(&s), 0);
    void *blob = aligned_alloc(64, 1 << 18);
    memcpy(blob, s.out[0].data, (size_t)bx_seq_used(s.out[0].data));
    for (int n = 0; n < N; n++) {
        int at = n % 3 == 0 ? n : n % 3 == 1 ? n / 2 : -n;
        x = (float)n;
        Call c = {.nout = 1, .param = {at}, .in = {{.data = blob}, tensor(F32, &x, 0)}};
        assert_int_equal(plan(&c, "seq_push"), 0);
        assert_true(c.bytes[0] <= 1 << 18);
        c.out[0].data = blob;
        assert_int_equal(c.row->run(c.in, c.param, c.out, NULL), 0);
        if (at < 0) at += n;
        memmove(want + at + 1, want + at, (size_t)(n - at) * sizeof *want);
        want[at] = x;
        assert_true(bx_seq_used(blob) <= c.bytes[0]);
    }
    assert_int_equal(bx_seq_count(blob), N);
    for (int i = 0; i < N; i++) {
        bx_tensor t = bx_seq_item(blob, i);
        assert_true(*(const float *)t.data == want[i]);
    }
    Call c = {.nout = 1, .param = {N + 1}, .in = {{.data = blob}, tensor(F32, &x, 0)}};
    assert_int_equal(plan(&c, "seq_push"), 1);
    free(blob);
    done(&s);
}

static void seq_insert_and_erase(void **state) {
    (void)state;
    Call s = sequence_of_two();
    const float x[] = {8};
    for (int at = -3; at <= 3; at++) {
        Call c = {.nout = 1, .param = {at}, .in = {s.out[0], tensor(F32, x, 0)}};
        assert_int_equal(plan(&c, "seq_insert"), at < -2 || at > 2);
        if (at < -2 || at > 2) continue;
        assert_int_equal(run(&c), 0);
        assert_int_equal(bx_seq_count(c.out[0].data), 3);
        bx_tensor t = bx_seq_item(c.out[0].data, at < 0 ? at + 2 : at);
        SAME(float, t, 8);
        Call e = {.nout = 1, .param = {at < 0 ? at + 2 : at}, .in = {c.out[0]}};
        assert_int_equal(plan(&e, "seq_erase"), 0);
        assert_int_equal(run(&e), 0);
        assert_int_equal(bx_seq_count(e.out[0].data), 2);
        t = bx_seq_item(e.out[0].data, 0);
        SAME(float, t, 1, 2, 3);
        done(&e);
        done(&c);
    }
    Call e = {.nout = 1, .param = {2}, .in = {s.out[0]}};
    assert_int_equal(plan(&e, "seq_erase"), 1);
    Call mixed = {.nout = 1, .param = {0}, .in = {s.out[0], tensor(I64, NULL, 1, 0)}};
    assert_int_equal(plan(&mixed, "seq_insert"), 1);
    done(&s);
}

static void seq_at_reports_shape(void **state) {
    (void)state;
    Call s = sequence_of_two();
    Call c = {.nout = 1, .param = {-1, -1}, .in = {s.out[0]}};
    assert_int_equal(plan(&c, "seq_at"), 0);
    assert_int_equal(c.sym[0], 2);
    assert_int_equal(c.sym[1], 2);
    assert_int_equal(c.sym[2], 1);
    assert_int_equal(c.sym[BX_RANK], 2);
    c.out[0] = tensor(F32, NULL, 2, 2, 2);
    assert_int_equal(run(&c), 0);
    SAME(float, c.out[0], 4, 5, 6, 7);
    done(&c);
    c.out[0] = tensor(F32, NULL, 1, 3);
    assert_int_equal(run(&c), 1); /* another size than the item's */
    done(&c);
    c.param[1] = 1;
    assert_int_equal(plan(&c, "seq_at"), 1);
    c.param[0] = 2, c.param[1] = -1;
    assert_int_equal(plan(&c, "seq_at"), 1);
    done(&s);
}

static void seq_split_and_concat(void **state) {
    (void)state;
    const int32_t x[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, lengths[] = {1, 0, 4}, bad[] = {1, 1, 4};
    Call s = {
        .nout = 1, .param = {1, 0, 0}, .in = {tensor(I32, x, 2, 2, 5), tensor(I32, lengths, 1, 3)}};
    assert_int_equal(plan(&s, "seq_split"), 0);
    assert_int_equal(run(&s), 0);
    bx_tensor t = bx_seq_item(s.out[0].data, 2);
    SAME(int32_t, t, 2, 3, 4, 5, 7, 8, 9, 10);
    Call c = {.nout = 1, .param = {-1, 0, 2}, .in = {s.out[0]}};
    assert_int_equal(plan(&c, "seq_concat"), 0);
    assert_int_equal(c.sym[0], 2);
    assert_int_equal(c.sym[1], 5);
    c.out[0] = tensor(I32, NULL, 2, 2, 5);
    assert_int_equal(run(&c), 0);
    assert_memory_equal(c.out[0].data, x, sizeof x);
    done(&c);
    c.param[1] = 1; /* pieces of different sizes cannot be stacked */
    assert_int_equal(plan(&c, "seq_concat"), BX_SAID);
    said(c.sym, 1, 0, 1, 1);
    done(&s);
    s.in[1] = tensor(I32, bad, 1, 3);
    assert_int_equal(plan(&s, "seq_split"), BX_SAID);
    said(s.sym, 4, 2, 3, 1); /* piece 2 is of length 4; 3 elements of axis 1 are left */
    s.in[1] = absent, s.param[1] = 0;
    assert_int_equal(plan(&s, "seq_split"), 1);
    s.param[1] = 2;
    assert_int_equal(plan(&s, "seq_split"), 0);
    assert_int_equal(run(&s), 0);
    assert_int_equal(bx_seq_count(s.out[0].data), 3);
    t = bx_seq_item(s.out[0].data, 2);
    SAME(int32_t, t, 5, 10);
    done(&s);
}

static void seq_stack(void **state) {
    (void)state;
    const int32_t x[] = {1, 2, 3, 4, 5, 6};
    Call s = {.nout = 1, .param = {0, 1, 1}, .in = {tensor(I32, x, 2, 3, 2), absent}};
    assert_int_equal(plan(&s, "seq_split"), 0);
    assert_int_equal(run(&s), 0);
    assert_int_equal(bx_seq_item(s.out[0].data, 0).rank, 1);
    Call c = {.nout = 1, .param = {-1, 1, -1}, .in = {s.out[0]}};
    assert_int_equal(plan(&c, "seq_concat"), 0);
    assert_int_equal(c.sym[BX_RANK], 2);
    c.out[0] = tensor(I32, NULL, 2, (int)c.sym[0], (int)c.sym[1]);
    assert_int_equal(run(&c), 0);
    SAME(int32_t, c.out[0], 1, 3, 5, 2, 4, 6);
    done(&c);
    c.in[0].data = NULL; /* an empty sequence */
    assert_int_equal(plan(&c, "seq_concat"), 1);
    done(&s);
}

static void unknown_names(void **state) {
    (void)state;
    assert_null(extern_find("no such body"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(topk_orders_ties_and_nan),
        cmocka_unit_test(topk_along_a_middle_axis),
        cmocka_unit_test(topk_unsigned_and_limits),
        cmocka_unit_test(topk_agrees_with_a_sort),
        cmocka_unit_test(unique_flat),
        cmocka_unit_test(unique_slices),
        cmocka_unit_test(unique_of_nothing),
        cmocka_unit_test(nonzero_finds_indices),
        cmocka_unit_test(scatter_elements_reduces_in_order),
        cmocka_unit_test(scatter_elements_axes_and_faults),
        cmocka_unit_test(scatter_nan_and_half),
        cmocka_unit_test(scatter_nd_slices),
        cmocka_unit_test(cumulate_modes),
        cmocka_unit_test(cumulate_wraps),
        cmocka_unit_test(nms_drops_overlaps),
        cmocka_unit_test(det_values),
        cmocka_unit_test(tfidf_counts),
        cmocka_unit_test(seq_items_are_aligned),
        cmocka_unit_test(seq_push_in_place),
        cmocka_unit_test(seq_insert_and_erase),
        cmocka_unit_test(seq_at_reports_shape),
        cmocka_unit_test(seq_split_and_concat),
        cmocka_unit_test(seq_stack),
        cmocka_unit_test(unknown_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
