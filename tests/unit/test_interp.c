/* test_interp.c: small programs made by hand, run by the interpreter. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "utask/utask.h"

/* ---- building programs -------------------------------------------------------------------- */
typedef struct T {
    Arena *a;
    Diag d;
    Cx *c;
    Program p;
    Io in[4], out[4];
    RtValue got[4], given[4];
} T;

static T *fresh(void) {
    T *t = calloc(1, sizeof *t);
    t->a = arena_new(&t->d);
    t->c = cx_new(t->a, &t->d);
    t->p = (Program){.cx = t->c, .name = "test", .in = t->in, .out = t->out};
    t->p.top = seq_new(t->c, NULL, NULL, false);
    return t;
}

static void drop_outputs(T *t) {
    for (int i = 0; i < t->p.nout; i++) {
        free(t->got[i].data);
        t->got[i].data = NULL;
    }
}

static void done(T *t) {
    drop_outputs(t);
    arena_free(t->a);
    free(t);
}

static void dims_of(T *t, Expr **dim, int rank, const int64_t *d) {
    for (int i = 0; i < rank; i++) dim[i] = e_int(t->c, d[i]);
}

static Tensor *input(T *t, DType dt, int rank, const int64_t *d, const void *data) {
    Expr *dim[MAX_RANK] = {0};
    dims_of(t, dim, rank, d);
    Tensor *x = tensor_new(t->c, TK_INPUT, dt, rank, dim);
    int i = x->index = t->p.nin++;
    t->in[i] = (Io){.name = "in", .t = x};
    RtValue *v = &t->given[i];
    v->dtype = dt;
    v->rank = rank;
    v->present = true;
    v->bytes = dtype_size(dt);
    for (int k = 0; k < rank; k++) v->bytes *= (size_t)(v->dim[k] = d[k]);
    v->data = (void *)(uintptr_t)data;
    return x;
}

static Tensor *konst(T *t, DType dt, int rank, const int64_t *d, const void *data) {
    Expr *dim[MAX_RANK] = {0};
    dims_of(t, dim, rank, d);
    Tensor *x = tensor_new(t->c, TK_CONST, dt, rank, dim);
    Const *k = NEW(t->a, Const);
    k->dtype = dt;
    k->rank = rank;
    k->count = 1;
    for (int i = 0; i < rank; i++) k->count *= k->dim[i] = d[i];
    k->data = data;
    x->data = k;
    return x;
}

static Tensor *te_dims(T *t, DType dt, int rank, Expr **dim) {
    Tensor *x = tensor_new(t->c, TK_TE, dt, rank, dim);
    for (int i = 0; i < rank; i++) x->axis[i] = axis_new(t->c, dim[i]);
    return x;
}

static Tensor *te(T *t, DType dt, int rank, const int64_t *d) {
    Expr *dim[MAX_RANK] = {0};
    dims_of(t, dim, rank, d);
    return te_dims(t, dt, rank, dim);
}

static Expr *ax(T *t, Tensor *x, int i) { return e_axis(t->c, x->axis[i]); }
static Expr *at1(T *t, Tensor *x, Expr *i) { return e_load(t->c, x, &i); }
static Expr *at2(T *t, Tensor *x, Expr *i, Expr *j) { return e_load(t->c, x, (Expr *[]){i, j}); }
static Expr *at3(T *t, Tensor *x, Expr *i, Expr *j, Expr *k) {
    return e_load(t->c, x, (Expr *[]){i, j, k});
}

static Stmt *append(T *t, Seq *q, StmtKind k) {
    Stmt *s = stmt_new(t->c, k, "node");
    vec_push(t->a, &q->s, s);
    return s;
}

static Tensor *op(T *t, Seq *q, Tensor *x, Expr *body) {
    Stmt *s = append(t, q, S_OP);
    x->body = body;
    x->seq = q;
    s->op.n = 1;
    s->op.t = NEW(t->a, Tensor *);
    s->op.t[0] = x;
    return x;
}

static Sym *let(T *t, Seq *q, Expr *e) {
    Stmt *s = append(t, q, S_LET);
    s->let.sym = sym_new(t->c, e->dtype, "n", INT64_MIN);
    s->let.sym->scope = q;
    s->let.e = e;
    return s->let.sym;
}

static void output(T *t, Tensor *x) { t->out[t->p.nout++] = (Io){.name = "out", .t = x}; }

static Status run_capped(T *t, int64_t cap) {
    drop_outputs(t);
    utask_verify(&t->p);
    Interp *it = interp_new(&t->p);
    assert_non_null(it);
    InterpConfig cfg = {.max_iterations = cap};
    Status st = interp_run(it, &cfg, t->given, t->got, &t->d);
    interp_free(it);
    return st;
}
static Status run(T *t) { return run_capped(t, 0); }

static const float *f32_out(T *t, int i) {
    assert_int_equal(t->got[i].dtype, DT_F32);
    return t->got[i].data;
}
static const int64_t *i64_out(T *t, int i) {
    assert_int_equal(t->got[i].dtype, DT_I64);
    return t->got[i].data;
}

static float noise(uint32_t i) {
    i = i * 747796405u + 2891336453u;
    i = ((i >> ((i >> 28) + 4)) ^ i) * 277803737u;
    return (float)((i >> 22) ^ i) / 4294967296.0f - 0.5f;
}
static float *noisy(T *t, int64_t n, uint32_t seed) {
    float *f = NEWN(t->a, float, n + 1);
    for (int64_t i = 0; i < n; i++) f[i] = noise(seed + (uint32_t)i);
    return f;
}

/* ---- tensor expressions ------------------------------------------------------------------- */
/* out[i,j,k] = x[j,k,i] * 2 + i - k, over shapes that cut into chunks in all ways. */
static void permutes_over_many_shapes(void **state) {
    (void)state;
    static const int64_t shapes[][3] = {{1, 1, 1},   {3, 4, 5},    {2, 3, 700}, {700, 2, 3},
                                        {5, 300, 1}, {64, 8, 4},   {1, 513, 1}, {7, 1, 40},
                                        {0, 4, 5},   {130, 3, 33}, {9, 31, 8},  {2, 256, 2}};
    for (size_t s = 0; s < COUNT(shapes); s++) {
        T *t = fresh();
        const int64_t *d = shapes[s], in_dim[] = {d[1], d[2], d[0]};
        float *data = noisy(t, d[0] * d[1] * d[2], (uint32_t)s);
        Tensor *x = input(t, DT_F32, 3, in_dim, data), *y = te(t, DT_F32, 3, d);
        Expr *i = ax(t, y, 0), *j = ax(t, y, 1), *k = ax(t, y, 2);
        Expr *v = e_mul(t->c, at3(t, x, j, k, i), e_num(t->c, DT_F32, 2));
        v = e_add(t->c, v, e_cast(t->c, DT_F32, e_sub(t->c, i, k)));
        output(t, op(t, t->p.top, y, v));
        assert_int_equal(run(t), ST_OK);
        const float *o = f32_out(t, 0);
        for (int64_t a = 0; a < d[0]; a++)
            for (int64_t b = 0; b < d[1]; b++)
                for (int64_t c = 0; c < d[2]; c++)
                    assert_true(o[(a * d[1] + b) * d[2] + c] ==
                                data[(b * d[2] + c) * d[0] + a] * 2 + (float)(a - c));
        done(t);
    }
}

/* Padded, strided convolution along one axis, and a product of matrices; sums in order. */
static void contractions(void **state) {
    (void)state;
    static const int64_t shapes[][4] = {/* out channels, in channels, length, kernel */
                                        {8, 3, 4, 3},  {1, 5, 700, 5}, {128, 16, 4, 3},
                                        {1, 1, 1, 7},  {4, 40, 37, 1}, {3, 2, 300, 9},
                                        {1, 600, 1, 1}};
    for (size_t s = 0; s < COUNT(shapes); s++) {
        T *t = fresh();
        Cx *c = t->c;
        int64_t O = shapes[s][0], I = shapes[s][1], L = shapes[s][2], K = shapes[s][3];
        float *xd = noisy(t, I * L, 1), *wd = noisy(t, O * I * K, 77);
        Tensor *x = input(t, DT_F32, 2, (int64_t[]){I, L}, xd);
        Tensor *w = konst(t, DT_F32, 3, (int64_t[]){O, I, K}, wd);
        Tensor *y = te(t, DT_F32, 2, (int64_t[]){O, L});
        Axis *ri = axis_new(c, e_int(c, I)), *rk = axis_new(c, e_int(c, K));
        Expr *pos = e_addi(c, e_add(c, ax(t, y, 1), e_axis(c, rk)), -(K / 2));
        Expr *ok = e_and(c, e_le(c, e_int(c, 0), pos), e_lt(c, pos, e_int(c, L)));
        Expr *v = e_sel(c, ok, at2(t, x, e_axis(c, ri), pos), e_num(c, DT_F32, 0));
        v = e_mul(c, at3(t, w, ax(t, y, 0), e_axis(c, ri), e_axis(c, rk)), v);
        v = e_reduce(c, R_SUM, 2, (Axis *[]){ri, rk}, v);
        output(t, op(t, t->p.top, y, v));
        assert_int_equal(run(t), ST_OK);
        const float *o = f32_out(t, 0);
        for (int64_t a = 0; a < O; a++)
            for (int64_t b = 0; b < L; b++) {
                volatile float sum = 0;
                for (int64_t i = 0; i < I; i++)
                    for (int64_t k = 0; k < K; k++) {
                        int64_t q = b + k - K / 2;
                        volatile float m =
                            wd[(a * I + i) * K + k] * (q >= 0 && q < L ? xd[i * L + q] : 0);
                        sum = sum + m;
                    }
                assert_true(o[a * L + b] == sum);
            }
        done(t);
    }
}

/* Row-wise softmax in one body: reductions nested beside each other over one axis. */
static void softmax_in_one_body(void **state) {
    (void)state;
    static const int64_t shapes[][2] = {{3, 5}, {1, 1000}, {300, 7}, {40, 40}, {2, 256}, {1, 1}};
    for (size_t s = 0; s < COUNT(shapes); s++) {
        T *t = fresh();
        Cx *c = t->c;
        int64_t R = shapes[s][0], N = shapes[s][1];
        float *xd = noisy(t, R * N, 5);
        Tensor *x = input(t, DT_F32, 2, (int64_t[]){R, N}, xd),
               *y = te(t, DT_F32, 2, (int64_t[]){R, N});
        Axis *k = axis_new(c, e_int(c, N)), *m = axis_new(c, e_int(c, N));
        Expr *i = ax(t, y, 0);
        Expr *top = e_reduce(c, R_MAX, 1, &m, at2(t, x, i, e_axis(c, m)));
        Expr *e = e_un(c, E_EXP, e_sub(c, at2(t, x, i, e_axis(c, k)), top));
        Expr *v = e_un(c, E_EXP, e_sub(c, at2(t, x, i, ax(t, y, 1)), top));
        v = e_div(c, v, e_reduce(c, R_SUM, 1, &k, e));
        output(t, op(t, t->p.top, y, v));
        assert_int_equal(run(t), ST_OK);
        const float *o = f32_out(t, 0);
        for (int64_t a = 0; a < R; a++) {
            float top_v = -INFINITY;
            volatile float sum = 0;
            for (int64_t b = 0; b < N; b++) top_v = fmaxf(top_v, xd[a * N + b]);
            for (int64_t b = 0; b < N; b++) sum = sum + expf(xd[a * N + b] - top_v);
            for (int64_t b = 0; b < N; b++)
                assert_true(o[a * N + b] == expf(xd[a * N + b] - top_v) / sum);
        }
        done(t);
    }
}

static void reductions(void **state) {
    (void)state;
    T *t = fresh();
    Cx *c = t->c;
    static const float xd[2][5] = {{1, 4, -2, 4, 0}, {3, NAN, 7, 7, -INFINITY}};
    Tensor *x = input(t, DT_F32, 2, (int64_t[]){2, 5}, xd);
    Axis *k = axis_new(c, e_int(c, 5));
    static const ReduceKind kinds[] = {R_SUM, R_PROD, R_MAX, R_MIN};
    Expr *one = NULL;
    Tensor *y = te(t, DT_F32, 2, (int64_t[]){2, 4}), *z = te(t, DT_I64, 2, (int64_t[]){2, 4});
    for (int q = 0; q < 4; q++) {
        Expr *r = e_reduce(c, kinds[q], 1, &k, at2(t, x, ax(t, y, 0), e_axis(c, k)));
        one = one ? e_sel(c, e_eq(c, ax(t, y, 1), e_int(c, q)), r, one) : r;
    }
    output(t, op(t, t->p.top, y, one));
    static const ReduceKind args[] = {R_ARGMAX, R_ARGMIN, R_ARGMAX_LAST, R_ARGMIN_LAST};
    one = NULL;
    for (int q = 0; q < 4; q++) {
        Expr *r = e_reduce(c, args[q], 1, &k, at2(t, x, ax(t, z, 0), e_axis(c, k)));
        one = one ? e_sel(c, e_eq(c, ax(t, z, 1), e_int(c, q)), r, one) : r;
    }
    output(t, op(t, t->p.top, z, one));
    assert_int_equal(run(t), ST_OK);
    const float *o = f32_out(t, 0);
    static const float want[] = {7, -0.0f, 4, -2};
    for (int q = 0; q < 4; q++) assert_true(o[q] == want[q]);
    for (int q = 0; q < 4; q++) assert_true(isnan(o[4 + q]));
    static const int64_t index[] = {1, 2, 3, 2};
    for (int q = 0; q < 4; q++) assert_int_equal(i64_out(t, 1)[q], index[q]);
    done(t);
}

static void empty_reductions(void **state) {
    (void)state;
    static const struct {
        ReduceKind k;
        DType t;
        double want;
    } rows[] = {{R_SUM, DT_F32, 0},        {R_PROD, DT_F32, 1},  {R_MAX, DT_F32, -INFINITY},
                {R_MIN, DT_F64, INFINITY}, {R_MAX, DT_I8, -128}, {R_MIN, DT_U16, 65535},
                {R_MAX, DT_U64, 0},        {R_AND, DT_BOOL, 1},  {R_OR, DT_BOOL, 0},
                {R_ARGMAX, DT_F32, 0}};
    for (size_t i = 0; i < COUNT(rows); i++) {
        T *t = fresh();
        Cx *c = t->c;
        Tensor *x = input(t, rows[i].t, 1, (int64_t[]){0}, NULL);
        DType ot = rows[i].k == R_ARGMAX ? DT_I64 : rows[i].t;
        Tensor *y = te(t, ot, 1, (int64_t[]){3});
        Axis *k = axis_new(c, e_sym(c, let(t, t->p.top, e_indim(c, 0, 0))));
        output(t, op(t, t->p.top, y, e_reduce(c, rows[i].k, 1, &k, at1(t, x, e_axis(c, k)))));
        assert_int_equal(run(t), ST_OK);
        double v = dtype_is_float(ot) ? elem_get_f(ot, t->got[0].data, 2)
                                      : (double)elem_get_i(ot, t->got[0].data, 2);
        assert_true(v == rows[i].want);
        done(t);
    }
}

/* Elements a op b of one dtype, compared after conversion to int64 or as floats. */
static void check_binary(DType dt, int o, int64_t a, int64_t b, int64_t want) {
    T *t = fresh();
    unsigned char ad[8], bd[8];
    elem_set_i(dt, ad, 0, a);
    elem_set_i(dt, bd, 0, b);
    Tensor *x = input(t, dt, 0, NULL, ad), *y = input(t, dt, 0, NULL, bd);
    bool cmp = e_is_compare(o);
    Tensor *z = te(t, cmp ? DT_BOOL : dt, 1, (int64_t[]){300});
    /* One operand varies over the lanes as far as the interpreter knows. */
    Expr *i = e_bin(t->c, E_MIN, ax(t, z, 0), e_int(t->c, 0));
    output(t, op(t, t->p.top, z,
                 e_bin(t->c, o, e_loadf(t->c, x, i), e_loadf(t->c, y, e_int(t->c, 0)))));
    assert_int_equal(run(t), ST_OK);
    int64_t got = elem_get_i(cmp ? DT_BOOL : dt, t->got[0].data, 299);
    if (got != want)
        print_error("%s %s %lld %lld\n", dtype_name((int)dt), expr_row[o].name, (long long)a,
                    (long long)b);
    assert_int_equal(got, want);
    done(t);
}

static void integer_semantics(void **state) {
    (void)state;
    check_binary(DT_I32, E_ADD, INT32_MAX, 1, INT32_MIN);
    check_binary(DT_U8, E_SUB, 3, 5, 254);
    check_binary(DT_I8, E_MUL, 100, 3, 44);
    check_binary(DT_I64, E_MUL, INT64_MAX, 2, -2);
    check_binary(DT_I64, E_DIV, INT64_MIN, -1, INT64_MIN);
    check_binary(DT_I32, E_DIV, INT32_MIN, -1, INT32_MIN);
    check_binary(DT_I64, E_DIV, 7, 0, 0);
    check_binary(DT_I64, E_DIV, -7, 2, -3);
    check_binary(DT_I64, E_FDIV, -7, 2, -4);
    check_binary(DT_I64, E_MOD, -7, 2, 1);
    check_binary(DT_I64, E_MOD, 7, -2, -1);
    check_binary(DT_I64, E_FMOD, -7, 2, -1);
    check_binary(DT_I64, E_MOD, 7, 0, 0);
    check_binary(DT_U64, E_DIV, -1, 2, INT64_MAX);
    check_binary(DT_U64, E_MOD, -1, 10, 5);
    check_binary(DT_U64, E_MAX, -1, 2, -1);
    check_binary(DT_U64, E_LT, -1, 2, 0);
    check_binary(DT_I64, E_LT, -1, 2, 1);
    check_binary(DT_U64, E_SHR, -1, 63, 1);
    check_binary(DT_U64, E_DRAW, 0, 0, (int64_t)0xe169c58d6627e8d5u); /* as published */
    check_binary(DT_U8, E_SHL, 255, 4, 240);
    check_binary(DT_U8, E_SHL, 255, 8, 0);
    check_binary(DT_I8, E_SHR, -128, 9, -1);
    check_binary(DT_I8, E_SHR, -128, 3, -16);
    check_binary(DT_I32, E_POW, 3, 5, 243);
    check_binary(DT_I32, E_POW, 3, -1, 0);
    check_binary(DT_I32, E_POW, -1, -3, -1);
    check_binary(DT_BOOL, E_XOR, 1, 1, 0);
    check_binary(DT_BOOL, E_AND, 1, 0, 0);
}

static Tensor *each(T *t, Tensor *x, DType dt, int64_t n, Expr **elem) {
    Tensor *y = te(t, dt, 1, (int64_t[]){n});
    *elem = at1(t, x, ax(t, y, 0));
    return y;
}

static void float_semantics(void **state) {
    (void)state;
    T *t = fresh();
    Cx *c = t->c;
    static const float xd[] = {0.5f, 1.5f, 2.5f, -0.5f, NAN, -3.7f, 3e9f, -1};
    Expr *e;
    Tensor *x = input(t, DT_F32, 1, (int64_t[]){8}, xd), *y;
    y = each(t, x, DT_F32, 8, &e);
    output(t, op(t, t->p.top, y, e_un(c, E_ROUND, e)));
    y = each(t, x, DT_F32, 8, &e);
    output(t, op(t, t->p.top, y, e_max(c, e, e_num(c, DT_F32, 1))));
    y = each(t, x, DT_I32, 8, &e);
    output(t, op(t, t->p.top, y, e_cast(c, DT_I32, e)));
    y = each(t, x, DT_F32, 8, &e);
    output(t, op(t, t->p.top, y, e_bin(c, E_MOD, e, e_num(c, DT_F32, 2))));
    assert_int_equal(run(t), ST_OK);
    static const float round_want[] = {0, 2, 2, -0.0f, NAN, -4, 3e9f, -1};
    static const float max_want[] = {1, 1.5f, 2.5f, 1, NAN, 1, 3e9f, 1};
    static const float mod_want[] = {0.5f, 1.5f, 0.5f, 1.5f, NAN, 0.3f, 0, 1};
    for (int i = 0; i < 8; i++) {
        assert_true(f32_out(t, 0)[i] == round_want[i] ||
                    (isnan(round_want[i]) && isnan(f32_out(t, 0)[i])));
        assert_true(f32_out(t, 1)[i] == max_want[i] ||
                    (isnan(max_want[i]) && isnan(f32_out(t, 1)[i])));
        assert_true(fabsf(f32_out(t, 3)[i] - mod_want[i]) < 1e-6f ||
                    (i == 4 && isnan(f32_out(t, 3)[i])));
        assert_int_equal(((const int32_t *)t->got[2].data)[i],
                         (int32_t)float_to_int(DT_I32, xd[i]));
    }
    done(t);
}

static void half_rounds_after_each_operation(void **state) {
    (void)state;
    T *t = fresh();
    Cx *c = t->c;
    uint16_t xd[300];
    for (int i = 0; i < 300; i++) xd[i] = f32_to_f16(1 + (float)i / 1024);
    Expr *e;
    Tensor *x = input(t, DT_F16, 1, (int64_t[]){300}, xd), *y = each(t, x, DT_F16, 300, &e);
    e = e_sub(c, e_mul(c, e, e), e);
    output(t, op(t, t->p.top, y, e));
    Tensor *z = te(t, DT_F16, 0, NULL);
    Axis *k = axis_new(c, e_int(c, 300));
    output(t, op(t, t->p.top, z, e_reduce(c, R_SUM, 1, &k, at1(t, x, e_axis(c, k)))));
    assert_int_equal(run(t), ST_OK);
    float sum = 0;
    for (int i = 0; i < 300; i++) {
        float f = f16_to_f32(xd[i]), sq = f16_to_f32(f32_to_f16(f * f));
        assert_int_equal(((const uint16_t *)t->got[0].data)[i], f32_to_f16(sq - f));
        sum += f;
    }
    assert_int_equal(*(const uint16_t *)t->got[1].data, f32_to_f16(sum));
    done(t);
}

static void bits_and_conversions(void **state) {
    (void)state;
    T *t = fresh();
    Cx *c = t->c;
    static const float xd[] = {1, -2, 0, 1e-40f};
    Expr *e;
    Tensor *x = input(t, DT_F32, 1, (int64_t[]){4}, xd), *y = each(t, x, DT_I32, 4, &e);
    output(t, op(t, t->p.top, y, e_bitcast(c, DT_I32, e)));
    y = each(t, x, DT_BOOL, 4, &e);
    output(t, op(t, t->p.top, y, e_cast(c, DT_BOOL, e)));
    y = each(t, x, DT_U8, 4, &e);
    output(t, op(t, t->p.top, y, e_cast(c, DT_U8, e_cast(c, DT_I64, e))));
    assert_int_equal(run(t), ST_OK);
    static const uint8_t truth[] = {1, 1, 0, 1}, bytes[] = {1, 254, 0, 0};
    assert_memory_equal(t->got[0].data, xd, sizeof xd);
    assert_memory_equal(t->got[1].data, truth, 4);
    assert_memory_equal(t->got[2].data, bytes, 4);
    done(t);
}

/* Row-major reshape [4,6] -> [3,8] through quotients and remainders, and a view of the result. */
static void reshape_by_division(void **state) {
    (void)state;
    static const int64_t shapes[][4] = {
        {4, 6, 3, 8}, {300, 7, 7, 300}, {2, 512, 512, 2}, {1, 30, 5, 6}};
    for (size_t s = 0; s < COUNT(shapes); s++) {
        T *t = fresh();
        Cx *c = t->c;
        const int64_t *d = shapes[s];
        float *xd = noisy(t, d[0] * d[1], 3);
        Tensor *x = input(t, DT_F32, 2, d, xd), *y = te(t, DT_F32, 2, d + 2);
        Expr *flat = e_add(c, e_muli(c, ax(t, y, 0), d[3]), ax(t, y, 1)), *w = e_int(c, d[1]);
        Expr *v = at2(t, x, e_bin(c, E_FDIV, flat, w), e_bin(c, E_MOD, flat, w));
        op(t, t->p.top, y, v);
        Tensor *view = tensor_new(c, TK_VIEW, DT_F32, 1, (Expr *[]){e_int(c, d[0] * d[1])});
        view->base = y;
        output(t, view);
        assert_int_equal(run(t), ST_OK);
        assert_memory_equal(f32_out(t, 0), xd, sizeof(float) * (size_t)(d[0] * d[1]));
        done(t);
    }
}

static void loads_out_of_range_are_zero(void **state) {
    (void)state;
    static const int64_t n = 600;
    T *t = fresh();
    Cx *c = t->c;
    static const int64_t id[] = {-1, 2, 99, INT64_MIN, 0, INT64_MAX};
    static const float xd[] = {1, 2, 3};
    Tensor *x = input(t, DT_F32, 1, (int64_t[]){3}, xd),
           *i = input(t, DT_I64, 1, (int64_t[]){6}, id);
    Tensor *y = te(t, DT_F32, 1, (int64_t[]){n}), *z = te(t, DT_F32, 1, (int64_t[]){6});
    output(t, op(t, t->p.top, y, at1(t, x, e_addi(c, ax(t, y, 0), -4))));
    output(t, op(t, t->p.top, z, at1(t, x, at1(t, i, ax(t, z, 0)))));
    assert_int_equal(run(t), ST_OK);
    for (int64_t k = 0; k < n; k++)
        assert_true(f32_out(t, 0)[k] == (k >= 4 && k < 7 ? xd[k - 4] : 0));
    static const float want[] = {0, 3, 0, 0, 1, 0};
    assert_memory_equal(f32_out(t, 1), want, sizeof want);
    done(t);
}

/* ---- guards ------------------------------------------------------------------------------- */
/* out[i] = i < limit ? x[guarded id[i]] : -1. */
static Status guarded(int64_t limit, bool reduce) {
    T *t = fresh();
    Cx *c = t->c;
    static const int64_t id[] = {0, 2, 7, 1};
    static const float xd[] = {1, 2, 3};
    Tensor *x = input(t, DT_F32, 1, (int64_t[]){3}, xd),
           *i = input(t, DT_I64, 1, (int64_t[]){4}, id);
    Tensor *y = te(t, DT_F32, 1, (int64_t[]){4});
    Expr *e = at1(t, i, ax(t, y, 0));
    Expr *told[] = {e, ax(t, y, 0), e_int(c, UNSAID), i->dim[0]};
    e = e_guard(c, e_tell(c, e_lt(c, e, e_int(c, 3)), 4, told), e, e_int(c, 0),
                cx_site(c, "g", "index \1 at \2, \3 of \4"));
    Expr *v = at1(t, x, e);
    if (reduce) {
        Axis *k = axis_new(c, e_sym(c, let(t, t->p.top, e_indim(c, 0, 0))));
        v = e_reduce(c, R_SUM, 1, &k, e_mul(c, v, at1(t, x, e_axis(c, k))));
    }
    v = e_sel(c, e_lt(c, ax(t, y, 0), e_int(c, limit)), v, e_num(c, DT_F32, -1));
    output(t, op(t, t->p.top, y, v));
    Status st = run(t);
    if (st == ST_OK) {
        for (int k = 0; k < 4; k++) {
            float want = xd[id[k] < 3 ? id[k] : 0] * (reduce ? 6 : 1);
            assert_true(f32_out(t, 0)[k] == (k < limit ? want : -1));
        }
    } else {
        assert_string_equal(t->d.message, "g: index 7 at 2, ? of 4"); /* the lane that fails */
        assert_null(t->got[0].data);
    }
    done(t);
    return st;
}

static void guards_see_only_their_lanes(void **state) {
    (void)state;
    for (int reduce = 0; reduce < 2; reduce++) {
        assert_int_equal(guarded(2, reduce), ST_OK);
        assert_int_equal(guarded(3, reduce), ST_RUNTIME);
        assert_int_equal(guarded(4, reduce), ST_RUNTIME);
    }
}

static void checks_fault(void **state) {
    (void)state;
    for (int64_t n = 3; n < 5; n++) {
        T *t = fresh();
        Cx *c = t->c;
        static const float xd[] = {1, 2, 3, 4};
        Tensor *x = input(t, DT_F32, 1, (int64_t[]){n}, xd);
        Expr *dim = x->dim[0] = e_sym(c, let(t, t->p.top, e_indim(c, 0, 0)));
        Stmt *s = append(t, t->p.top, S_CHECK);
        s->check.cond = e_eq(c, dim, e_int(c, 4));
        s->check.cond = e_tell(c, s->check.cond, 2, s->check.cond->a);
        s->check.site = cx_site(c, "node\1", "%s needs \2 elements, not \1", "x\5");
        Tensor *y = te_dims(t, DT_F32, 1, &dim);
        output(t, op(t, t->p.top, y, e_un(c, E_NEG, at1(t, x, ax(t, y, 0)))));
        assert_int_equal(run(t), n == 4 ? ST_OK : ST_RUNTIME);
        if (n == 4)
            assert_true(f32_out(t, 0)[3] == -4);
        else
            assert_string_equal(t->d.message, "node : x  needs 4 elements, not 3");
        done(t);
    }
}

static void wrong_inputs_are_refused(void **state) {
    (void)state;
    T *t = fresh();
    static const float xd[] = {1};
    Tensor *x = input(t, DT_F32, 1, (int64_t[]){1}, xd);
    output(t, x);
    t->given[0].dtype = DT_I32;
    assert_int_equal(run(t), ST_INPUT);
    t->given[0].dtype = DT_F32;
    t->given[0].rank = 2;
    assert_int_equal(run(t), ST_INPUT);
    t->given[0].rank = 1;
    assert_int_equal(run(t), ST_OK);
    assert_true(f32_out(t, 0)[0] == 1);
    done(t);
}

/* ---- control flow ------------------------------------------------------------------------- */
typedef struct LoopT {
    T *t;
    Stmt *s;
} LoopT;

static Tensor *phi_of(T *t, DType dt, int64_t n, Tensor *init, Stmt *s) {
    Expr *dim = e_int(t->c, n);
    Tensor *p = tensor_new(t->c, TK_PHI, dt, 1, &dim);
    p->seq = t->p.top;
    LoopCarry k = {.phi = p, .init = init};
    vec_push(t->a, &s->loop.carry, k);
    return p;
}

static Tensor *copy(T *t, Seq *q, Tensor *x, int64_t n, Expr *plus) {
    Tensor *y = te(t, x->dtype, 1, &n);
    Expr *e = at1(t, x, ax(t, y, 0));
    return op(t, q, y, plus ? e_add(t->c, e, plus) : e);
}

/* (a, b) = (b, a + b), both of 2 elements; scans a; a symbol doubles. cond: while b[0] < limit. */
static LoopT fibonacci(int64_t trips, int64_t limit) {
    T *t = fresh();
    Cx *c = t->c;
    static const int64_t start[] = {0, 10}, next[] = {1, 20};
    Tensor *a0 = konst(t, DT_I64, 1, (int64_t[]){2}, start),
           *b0 = konst(t, DT_I64, 1, (int64_t[]){2}, next);
    Stmt *s = append(t, t->p.top, S_LOOP);
    Seq *q = s->loop.body = seq_new(c, t->p.top, s, true);
    s->loop.trips = trips >= 0 ? e_int(c, trips) : NULL;
    s->loop.iter = sym_new(c, DT_I64, "i", 0);
    s->loop.cap_site = cx_site(c, "loop", "too many iterations");
    LoopSym z = {sym_new(c, DT_I64, "z", 1), e_int(c, 1), NULL};
    s->loop.iter->scope = z.sym->scope = t->p.top;
    z.next = e_muli(c, e_sym(c, z.sym), 2);
    vec_push(t->a, &s->loop.syms, z);
    Tensor *a = phi_of(t, DT_I64, 2, a0, s), *b = phi_of(t, DT_I64, 2, b0, s);
    Tensor *n = te(t, DT_I64, 1, (int64_t[]){2});
    Expr *ea = at1(t, a, ax(t, n, 0)), *eb = at1(t, b, ax(t, n, 0));
    op(t, q, n, e_add(c, ea, eb));
    s->loop.carry.p[0].next = copy(t, q, b, 2, NULL);
    s->loop.carry.p[1].next = n;
    LoopScan scan = {.elem = copy(t, q, a, 2, NULL)};
    s->loop.carry.p[0].next->owned = n->owned = scan.elem->owned = true;
    Expr *dim[] = {e_sym(c, s->loop.iter), e_int(c, 2)};
    scan.out = tensor_new(c, TK_SCAN, DT_I64, 2, dim);
    scan.out->seq = t->p.top;
    vec_push(t->a, &s->loop.scan, scan);
    if (limit) s->loop.cond_next = e_lt(c, at1(t, n, e_int(c, 0)), e_int(c, limit));
    output(t, a);
    output(t, b);
    output(t, scan.out);
    Tensor *sum = te(t, DT_I64, 0, NULL);
    output(t, op(t, t->p.top, sum, e_sym(c, z.sym)));
    return (LoopT){.t = t, .s = s};
}

static void loops_carry_in_parallel(void **state) {
    (void)state;
    T *t = fibonacci(10, 0).t;
    assert_int_equal(run(t), ST_OK);
    assert_int_equal(i64_out(t, 0)[0], 55);
    assert_int_equal(i64_out(t, 1)[0], 89);
    assert_int_equal(t->got[2].dim[0], 10);
    static const int64_t fib[] = {0, 1, 1, 2, 3, 5, 8, 13, 21, 34};
    for (int i = 0; i < 10; i++) assert_int_equal(i64_out(t, 2)[2 * i], fib[i]);
    assert_int_equal(i64_out(t, 3)[0], 1024);
    done(t);
}

static void loops_of_no_trips(void **state) {
    (void)state;
    T *t = fibonacci(0, 0).t;
    assert_int_equal(run(t), ST_OK);
    assert_int_equal(i64_out(t, 0)[1], 10);
    assert_int_equal(t->got[2].rank, 2);
    assert_int_equal(t->got[2].dim[0], 0);
    assert_int_equal(t->got[2].dim[1], 2);
    assert_int_equal(i64_out(t, 3)[0], 1);
    done(t);
}

static void loops_end_by_condition(void **state) {
    (void)state;
    T *t = fibonacci(-1, 30).t;
    assert_int_equal(run(t), ST_OK);
    assert_int_equal(i64_out(t, 1)[0], 34);
    assert_int_equal(t->got[2].dim[0], 8);
    done(t);
}

static void loops_are_capped(void **state) {
    (void)state;
    T *t = fibonacci(-1, 0).t;
    assert_int_equal(run_capped(t, 100), ST_RUNTIME);
    assert_string_equal(t->d.message, "loop: too many iterations");
    done(t);
    t = fibonacci(100, 0).t;
    assert_int_equal(run_capped(t, 100), ST_OK);
    done(t);
}

static void scan_shapes_must_agree(void **state) {
    (void)state;
    LoopT l = fibonacci(3, 0);
    T *t = l.t;
    Expr *n = e_addi(t->c, e_sym(t->c, l.s->loop.iter), 1);
    Tensor *y = te_dims(t, DT_I64, 1, &n);
    op(t, l.s->loop.body, y, ax(t, y, 0));
    l.s->loop.scan.p[0].elem = y;
    y->owned = true;
    assert_int_equal(run(t), ST_RUNTIME);
    assert_non_null(strstr(t->d.message, "another shape"));
    done(t);
}

static void branches_join(void **state) {
    (void)state;
    for (int64_t flag = 0; flag < 2; flag++) {
        T *t = fresh();
        Cx *c = t->c;
        static const int64_t xd[] = {5, 6, 7};
        Tensor *x = input(t, DT_I64, 1, (int64_t[]){3}, xd), *f = input(t, DT_I64, 0, NULL, &flag);
        Stmt *s = append(t, t->p.top, S_BRANCH);
        s->br.cond = e_eq(c, e_load(c, f, NULL), e_int(c, 1));
        for (int k = 0; k < 2; k++) s->br.arm[k] = seq_new(c, t->p.top, s, false);
        JoinSym n = {sym_new(c, DT_I64, "n", 0), {e_int(c, 2), e_int(c, 3)}};
        n.sym->scope = t->p.top;
        vec_push(t->a, &s->br.syms, n);
        Expr *dim = e_sym(c, n.sym);
        Join j = {.out = tensor_new(c, TK_JOIN, DT_I64, 1, &dim), .arm = {NULL, x}};
        j.out->seq = t->p.top;
        j.arm[0] = copy(t, s->br.arm[0], x, 2, e_int(c, 100));
        vec_push(t->a, &s->br.joins, j);
        output(t, j.out);
        assert_int_equal(run(t), ST_OK);
        assert_int_equal(t->got[0].dim[0], flag ? 2 : 3);
        assert_int_equal(i64_out(t, 0)[1], flag ? 106 : 6);
        done(t);
    }
}

/* ---- folding and text --------------------------------------------------------------------- */
static void folds_constants(void **state) {
    (void)state;
    T *t = fresh();
    Cx *c = t->c;
    static const int32_t xd[] = {1, 2, 3, 4, 5, 6};
    Tensor *x = konst(t, DT_I32, 2, (int64_t[]){2, 3}, xd),
           *y = te(t, DT_I32, 2, (int64_t[]){3, 2});
    y->body = at2(t, x, ax(t, y, 1), ax(t, y, 0));
    const Const *k = interp_fold(c, y);
    static const int32_t want[] = {1, 4, 2, 5, 3, 6};
    assert_non_null(k);
    assert_int_equal(k->count, 6);
    assert_memory_equal(k->data, want, sizeof want);
    y->body =
        e_guard(c, e_lt(c, y->body, e_ci(c, DT_I32, 6)), y->body, y->body, cx_site(c, NULL, "no"));
    assert_null(interp_fold(c, y));
    Tensor *big = te(t, DT_F32, 2, (int64_t[]){4096, 4096});
    Axis *r = axis_new(c, e_int(c, 4096));
    big->body = e_reduce(c, R_SUM, 1, &r, e_cast(c, DT_F32, e_mul(c, ax(t, big, 0), e_axis(c, r))));
    assert_null(interp_fold(c, big));
    Tensor *in = input(t, DT_I32, 0, NULL, xd);
    y->body = e_load(c, in, NULL);
    assert_null(interp_fold(c, y));
    done(t);
}

static void prints_stable_text(void **state) {
    (void)state;
    LoopT l = fibonacci(4, 30);
    axis_new(l.t->c, e_int(l.t->c, 9)); /* must not show in the numbers */
    Sb s = {0};
    utask_print(&s, &l.t->p);
    static const char want[] = "program test\n"
                               "loop i.0 < 4\n"
                               "  carry z.1 from 1\n"
                               "  carry t0 int64[2] from t1\n"
                               "  carry t2 int64[2] from t3\n"
                               "    t4 int64[2] (i0)\n"
                               "        = t0[i0] + t2[i0]\n"
                               "    t5 int64[2] (i1)\n"
                               "        = t2[i1]\n"
                               "    t6 int64[2] (i2)\n"
                               "        = t0[i2]\n"
                               "  next z.1 = 2 * z.1\n"
                               "  next t0 = t5\n"
                               "  next t2 = t4\n"
                               "  scan t7 int64[i.0, 2] of t6\n"
                               "  while t4[0] < 30\n"
                               "t8 int64[] ()\n"
                               "    = z.1\n"
                               "out \"out\" t0 int64[2]\n"
                               "out \"out\" t2 int64[2]\n"
                               "out \"out\" t7 int64[i.0, 2]\n"
                               "out \"out\" t8 int64[]\n"
                               "const t1 int64[2] = {0, 10}\n"
                               "const t3 int64[2] = {1, 20}\n";
    assert_string_equal(s.p, want);
    sb_free(&s);
    done(l.t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(permutes_over_many_shapes),
        cmocka_unit_test(contractions),
        cmocka_unit_test(softmax_in_one_body),
        cmocka_unit_test(reductions),
        cmocka_unit_test(empty_reductions),
        cmocka_unit_test(integer_semantics),
        cmocka_unit_test(float_semantics),
        cmocka_unit_test(half_rounds_after_each_operation),
        cmocka_unit_test(bits_and_conversions),
        cmocka_unit_test(reshape_by_division),
        cmocka_unit_test(loads_out_of_range_are_zero),
        cmocka_unit_test(guards_see_only_their_lanes),
        cmocka_unit_test(checks_fault),
        cmocka_unit_test(wrong_inputs_are_refused),
        cmocka_unit_test(loops_carry_in_parallel),
        cmocka_unit_test(loops_of_no_trips),
        cmocka_unit_test(loops_end_by_condition),
        cmocka_unit_test(loops_are_capped),
        cmocka_unit_test(scan_shapes_must_agree),
        cmocka_unit_test(branches_join),
        cmocka_unit_test(folds_constants),
        cmocka_unit_test(prints_stable_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
