/* test_product.c: sums of products as utask/product.h sees them: what becomes of operators of small
 * ONNX files, and random sums whose axes have roles by construction. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>
#include "codegen/compile.h"
#include "tests/unit/onnx_write.h"
#include "utask/product.h"
#include <cmocka.h>

typedef struct Run {
    Diag d;
    Arena *a;
    Cx *c;
} Run;

static Run *fresh(void) {
    Run *r = calloc(1, sizeof *r);
    assert_non_null(r);
    r->a = arena_new(&r->d);
    r->c = cx_new(r->a, &r->d);
    return r;
}

static void done(Run *r) {
    arena_free(r->a);
    free(r);
}

/* ---- products as text ------------------------------------------------------------------------ */
/* "x * w: M N | K": the tensors of the factors in the order of their names, then constants last,
 * "const" before constants and the type before others than float32, "?" for what is no load; the
 * roles of the axes of the domain, of the first factor's rows and the second one's columns; for
 * each axis of the sum K, with the number of the domain's axis along which it is a window of the
 * first factor. */
typedef struct Text {
    Run *r;
    Sb s;
    const Tensor *t;
    Map *seen;
} Text;

static const char *name_of(const Expr *load) {
    return !load ? "?" : load->t->name ? load->t->name : "unnamed";
}

static void put_factor(Text *x, const Expr *load) {
    if (load && load->t->kind == TK_CONST) sb_puts(&x->s, "const ");
    if (load && load->dtype != DT_F32) sb_printf(&x->s, "%s ", dtype_name(load->dtype));
    sb_puts(&x->s, name_of(load));
}

static bool put_product(void *user, Expr *e) {
    static const char *const role[] = {"-", "M", "N", "B", "K"};
    Text *x = user;
    SumProduct p;
    if (!product_of(e, &p)) return false;
    int order = strcmp(name_of(p.load[0]), name_of(p.load[1]));
    int first = order > 0 || (order == 0 && p.load[0] && p.load[0]->t->kind == TK_CONST);
    if (x->s.n) sb_puts(&x->s, "; ");
    put_factor(x, p.load[first]);
    sb_puts(&x->s, " * ");
    put_factor(x, p.load[!first]);
    sb_puts(&x->s, ":");
    for (int i = 0; i < x->t->rank; i++) {
        AxisRole k = product_role(&p, x->t->axis[i]);
        if (first && (k == ROLE_M || k == ROLE_N)) k = ROLE_M + ROLE_N - k;
        sb_printf(&x->s, " %s", role[k]);
    }
    sb_puts(&x->s, " |");
    bool affine = product_affine(x->r->c, &p, x->t->rank, x->t->axis);
    for (int i = 0; i < e->naxis; i++) {
        assert_int_equal(product_role(&p, e->raxis[i]), ROLE_K);
        sb_puts(&x->s, " K");
        const Axis *over =
            affine ? product_window(x->r->c, p.flat[first], e->raxis[i], x->t->rank, x->t->axis)
                   : NULL;
        for (int d = 0; over && d < x->t->rank; d++)
            if (over == x->t->axis[d]) sb_printf(&x->s, "%d", d);
    }
    if (!affine) sb_puts(&x->s, " not affine");
    return false;
}

static void put_seq(Text *x, const Seq *q) {
    for (int i = 0; i < q->s.n; i++) {
        const Stmt *s = q->s.p[i];
        if (s->kind == S_LOOP) put_seq(x, s->loop.body);
        for (int k = 0; s->kind == S_OP && k < s->op.n; k++) {
            x->t = s->op.t[k];
            find_reduction(x->seen, x->t->body, false, put_product, x);
        }
    }
}

/* ---- operators ------------------------------------------------------------------------------- */
/* Adds an input of type t, or a constant of zeros. */
static void has(Sb *g, bool constant, const char *name, DType t, int rank, const int64_t *dim) {
    Sb k = {0}, shape = {0}, type = {0};
    int64_t n = (int64_t)dtype_size(t);
    for (int i = 0; i < rank; i++) {
        Sb d = {0};
        pb_int(&k, 1, dim[i]);
        pb_int(&d, 1, dim[i]);
        pb_msg(&shape, 1, d);
        n *= dim[i];
    }
    if (constant) {
        void *zeros = calloc(1, (size_t)n);
        assert_non_null(zeros);
        pb_int(&k, 2, t);
        pb_str(&k, 8, name);
        pb_bytes(&k, 9, zeros, (size_t)n);
        free(zeros);
        g_init(g, k);
        sb_free(&shape);
        return;
    }
    sb_free(&k);
    pb_int(&type, 1, t);
    pb_msg(&type, 2, shape);
    Sb tensor = {0};
    pb_msg(&tensor, 1, type);
    pb_msg(g, 11, value_info(name, tensor));
}
#define DIMS(...)                                                                                  \
    (int)(sizeof((int64_t[]){__VA_ARGS__}) / 8), (int64_t[]) { __VA_ARGS__ }
#define IN(name, t, ...) has(&g, false, name, t, DIMS(__VA_ARGS__))
#define WEIGHT(name, t, ...) has(&g, true, name, t, DIMS(__VA_ARGS__))

/* The products of the graph whose last node is n. */
static void expect(Sb g, Sb n, const char *text) {
    Run *r = fresh();
    g_node(&g, n);
    g_out(&g, "y");
    pb_str(&g, 2, "test");
    Sb m = model(g, 17);
    jmp_buf jb;
    r->d.top = &jb;
    if (setjmp(jb)) {
        print_error("%s\n", r->d.message);
        fail();
    }
    char path[] = "/tmp/braid-product-XXXXXX";
    int file = mkstemp(path);
    assert_true(file >= 0 && write(file, m.p, m.n) == (ssize_t)m.n);
    close(file);
    const Program *p = compile_program(r->a, &r->d, path, &(CompileOptions){.target = "interp"});
    r->c = p->cx;
    unlink(path);
    Text x = {.r = r, .s = {.a = r->a}, .seen = map_new(r->a)};
    put_seq(&x, p->top);
    r->d.top = NULL;
    assert_string_equal(x.s.n ? x.s.p : "", text);
    sb_free(&m);
    done(r);
}

static void matmul(void **state) {
    (void)state;
    Sb g = {0};
    IN("x", DT_F32, 5, 16);
    WEIGHT("w", DT_F32, 16, 32);
    expect(g, node("n", "MatMul", "x,w", "y"), "const w * x: N M | K");

    g = (Sb){0}; /* one matrix for all, and one for each */
    IN("a", DT_F32, 3, 5, 16);
    IN("b", DT_F32, 16, 32);
    expect(g, node("n", "MatMul", "a,b", "y"), "a * b: M M N | K");
    g = (Sb){0};
    IN("a", DT_F32, 3, 5, 16);
    IN("b", DT_F32, 3, 16, 32);
    expect(g, node("n", "MatMul", "a,b", "y"), "a * b: B M N | K");

    g = (Sb){0};
    IN("a", DT_F16, 5, 16);
    WEIGHT("b", DT_F16, 16, 32);
    expect(g, node("n", "MatMul", "a,b", "y"), "float16 a * const float16 b: M N | K");
    g = (Sb){0};
    IN("a", DT_F32, 16, 5);
    WEIGHT("b", DT_F32, 32, 16);
    expect(g, with_int(with_int(node("n", "Gemm", "a,b", "y"), "transB", 1), "transA", 1),
           "a * const b: M N | K");
}

static void conv(void **state) {
    (void)state;
    Sb g = {0};
    IN("a", DT_F32, 2, 3, 20);
    WEIGHT("b", DT_F32, 8, 3, 5);
    expect(g, node("n", "Conv", "a,b", "y"), "a * const b: M N M | K K2");
    g = (Sb){0};
    IN("a", DT_F32, 2, 3, 9, 9);
    WEIGHT("b", DT_F32, 8, 3, 3, 3);
    expect(g, node("n", "Conv", "a,b", "y"), "a * const b: M N M M | K K2 K3");
    g = (Sb){0}; /* no step of a window is one of the positions */
    IN("a", DT_F32, 2, 3, 9, 9);
    WEIGHT("b", DT_F32, 8, 3, 3, 3);
    expect(g, with_ints(node("n", "Conv", "a,b", "y"), "strides", 2, (int64_t[]){2, 2}),
           "a * const b: M N M M | K K K");
    g = (Sb){0}; /* groups, then a channel each */
    IN("a", DT_F32, 2, 6, 9, 9);
    WEIGHT("b", DT_F32, 8, 3, 3, 3);
    expect(g, with_int(node("n", "Conv", "a,b", "y"), "group", 2),
           "a * const b: M B N M M | K K3 K4");
    g = (Sb){0};
    IN("a", DT_F32, 2, 6, 9, 9);
    WEIGHT("b", DT_F32, 6, 1, 3, 3);
    expect(g, with_int(node("n", "Conv", "a,b", "y"), "group", 6), "a * const b: M B M M | K2 K3");
    g = (Sb){0};
    IN("a", DT_F16, 2, 3, 20);
    WEIGHT("b", DT_F16, 8, 3, 5);
    expect(g, node("n", "Conv", "a,b", "y"), "float16 a * const float16 b: M N M | K K2");
}

static void einsum(void **state) {
    (void)state;
    static const struct {
        const char *equation, *text;
        int na, nb;
    } some[] = {
        {"ik,kj->ij", "a * b: M N | K", 2, 2},      {"ki,jk->ji", "a * b: N M | K", 2, 2},
        {"bik,bkj->ijb", "a * b: M N B | K", 3, 3}, {"bik,bkj->ij", "a * b: M N | K K", 3, 3},
        {"ikl,lkj->ij", "a * b: M N | K K", 3, 3},  {"ik,kj->i", "a * unnamed: M | K", 2, 2},
        {"ik,ik->i", "a * b: B | K", 2, 2},         {"i,j->ij", "", 1, 1},
    };
    for (size_t i = 0; i < COUNT(some); i++) {
        Sb g = {0};
        static const int64_t dim[] = {4, 4, 4};
        has(&g, false, "a", DT_F32, some[i].na, dim);
        has(&g, false, "b", DT_F32, some[i].nb, dim);
        expect(g, with_string(node("n", "Einsum", "a,b", "y"), "equation", some[i].equation),
               some[i].text);
    }
}

static void others(void **state) {
    (void)state;
    Sb g = {0}; /* the gates: of all steps before the loop, and of the state in it */
    IN("a", DT_F32, 7, 2, 10);
    WEIGHT("b", DT_F32, 1, 32, 10);
    WEIGHT("c", DT_F32, 1, 32, 8);
    expect(g, with_int(node("n", "LSTM", "a,b,c", "y"), "hidden_size", 8),
           "a * const b: M M N | K; const c * unnamed: N M | K");
    g = (Sb){0}; /* a square, and sums that are no products */
    IN("x", DT_F32, 5, 16);
    expect(g, with_string(node("n", "Einsum", "x,x", "y"), "equation", "ij,ij->"), "x * x: | K K");
    g = (Sb){0};
    IN("x", DT_F32, 5, 16);
    expect(g, node("n", "ReduceMax", "x", "y"), "");
    g = (Sb){0};
    IN("x", DT_F32, 2, 3, 9, 9);
    expect(g, node("n", "GlobalAveragePool", "x", "y"), "");
    g = (Sb){0}; /* whole numbers, less their zero points */
    IN("a", DT_U8, 5, 16);
    WEIGHT("b", DT_U8, 16, 32);
    expect(g, node("n", "MatMulInteger", "a,b", "y"), "uint8 a * const uint8 b: M N | K");
}

/* ---- random sums ----------------------------------------------------------------------------- */
static uint64_t seed;
static int below(int n) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (int)((seed >> 33) % (uint64_t)n);
}

#define DOMAIN_MOST 5
#define SUM_MOST 3
typedef struct Side { /* a factor while it is made */
    Tensor *t;
    Expr *e;
    int n;
    Expr *idx[MAX_RANK], *dim[MAX_RANK];
    /* Which of the indices an axis is in, the domain's first, then the sum's; -1: none; its step
     * there. */
    int in[DOMAIN_MOST + SUM_MOST], step[DOMAIN_MOST + SUM_MOST];
} Side;

typedef struct Random {
    Run *r;
    int n, nsum;
    Axis *axis[DOMAIN_MOST + SUM_MOST]; /* the domain's first */
    bool moves[2][DOMAIN_MOST + SUM_MOST];
    Side side[2];
} Random;

static Expr *any_size(Run *r) {
    if (below(4)) return e_int(r->c, 2 + below(6));
    return e_sym(r->c, sym_new(r->c, DT_I64, "n", 0));
}

/* An index for each axis that moves the factor; some axes of the sum go into the index of one of
 * the domain, as windows do; the indices in any order. */
static void make_side(Random *q, int which) {
    Cx *c = q->r->c;
    Side *s = &q->side[which];
    int all = q->n + q->nsum;
    *s = (Side){0};
    for (int i = 0; i < all; i++) {
        s->in[i] = -1;
        if (!q->moves[which][i]) continue;
        int d = i >= q->n && q->n ? below(q->n) : -1;
        s->step[i] = 1 + below(2);
        if (d >= 0 && s->in[d] >= 0 && below(2)) {
            s->in[i] = s->in[d];
            continue;
        }
        s->in[i] = s->n++;
    }
    int place[MAX_RANK];
    for (int i = 0; i < s->n; i++) {
        int at = below(i + 1);
        place[i] = place[at];
        place[at] = i;
    }
    for (int i = 0; i < s->n; i++) s->idx[i] = e_int(c, below(3)), s->dim[i] = any_size(q->r);
    for (int i = 0; i < all; i++) {
        if (s->in[i] < 0) continue;
        s->in[i] = place[s->in[i]];
        Expr **x = &s->idx[s->in[i]];
        *x = e_add(c, *x, e_muli(c, e_axis(c, q->axis[i]), s->step[i]));
    }
    DType t = below(3) ? DT_F32 : below(2) ? DT_F16 : DT_BF16;
    s->t = tensor_new(c, TK_INPUT, t, s->n, s->dim);
    s->e = e_cast(c, DT_F32, e_load(c, s->t, s->idx));
}

/* How far a step along axis i moves the factor. */
static Expr *step_of(const Random *q, const Side *s, int i) {
    Cx *c = q->r->c;
    Expr *e = e_int(c, s->in[i] < 0 ? 0 : s->step[i]);
    for (int d = s->in[i] + 1; s->in[i] >= 0 && d < s->n; d++) e = e_mul(c, e, s->dim[d]);
    return e;
}

static void check_product(Random *q, Expr *e) {
    Cx *c = q->r->c;
    SumProduct p;
    assert_true(product_of_loads(e, &p) && product_affine(c, &p, q->n, q->axis));
    int first = p.load[0]->t != q->side[0].t;
    assert_ptr_equal(p.load[first]->t, q->side[0].t);
    assert_ptr_equal(p.load[!first]->t, q->side[1].t);
    assert_int_equal(product_plain(&p), p.load[0]->dtype == DT_F32 && p.load[1]->dtype == DT_F32);
    for (int i = 0; i < q->n + q->nsum; i++) {
        AxisRole a = first ? ROLE_N : ROLE_M, b = first ? ROLE_M : ROLE_N;
        bool ma = q->moves[0][i], mb = q->moves[1][i];
        assert_int_equal(product_role(&p, q->axis[i]), i >= q->n  ? ROLE_K
                                                       : ma && mb ? ROLE_BATCH
                                                       : ma       ? a
                                                       : mb       ? b
                                                                  : ROLE_NONE);
        for (int k = 0; k < 2; k++) {
            const Side *s = &q->side[k];
            Expr *flat = p.flat[k == 0 ? first : !first];
            assert_ptr_equal(e_coef(c, flat, q->axis[i]), step_of(q, s, i));
            if (i < q->n) continue;
            const Axis *over = NULL;
            for (int d = 0; d < q->n && !over && s->in[i] >= 0; d++)
                if (step_of(q, s, d) == step_of(q, s, i)) over = q->axis[d];
            assert_ptr_equal(product_window(c, flat, q->axis[i], q->n, q->axis), over);
        }
    }
}

/* The axes of e in the order in which loops go over them. */
static void check_order(Run *r, const Expr *e) {
    Axis **order = reduce_order(r->a, e);
    for (int i = 0; i < e->naxis; i++) {
        int found = 0;
        for (int k = 0; k < e->naxis; k++) found += order[k] == e->raxis[i];
        assert_int_equal(found, 1);
        assert_true(i == 0 || axis_size(order[i - 1], INT32_MAX) <= axis_size(order[i], INT32_MAX));
    }
}

static void random_sums(void **state) {
    (void)state;
    for (int round = 0; round < 2000; round++) {
        seed = (uint64_t)round * 7919 + 1;
        Run *r = fresh();
        Cx *c = r->c;
        Random q = {.r = r, .n = below(DOMAIN_MOST + 1), .nsum = 1 + below(SUM_MOST)};
        for (int i = 0; i < q.n + q.nsum; i++) {
            int moves = i < q.n ? below(4) : 1 + below(3);
            q.axis[i] = axis_new(c, any_size(r));
            for (int k = 0; k < 2; k++) q.moves[k][i] = moves >> k & 1;
        }
        for (int k = 0; k < 2; k++) make_side(&q, k);
        Axis **sum = q.axis + q.n;
        Expr *a = q.side[0].e, *b = q.side[1].e;
        Expr *e = e_reduce(c, R_SUM, q.nsum, sum, e_mul(c, a, b));
        check_product(&q, e);
        check_order(r, e);

        SumProduct p; /* others are none, or not of this kind */
        Expr *zero = e_num(c, DT_F32, 0), *k = e_axis(c, sum[0]);
        Expr *odd = e_eq(c, e_bin(c, E_MOD, k, e_int(c, 2)), e_int(c, 1));
        assert_false(product_of(e_reduce(c, R_SUM, q.nsum, sum, e_add(c, a, b)), &p));
        assert_false(product_of(e_reduce(c, R_MAX, q.nsum, sum, e_mul(c, a, b)), &p));
        e = e_reduce(c, R_SUM, q.nsum, sum, e_mul(c, e_sel(c, odd, a, zero), b));
        assert_true(product_of(e, &p) && (!p.load[0] || !p.load[1]));
        assert_false(product_of_loads(e, &p) || product_affine(c, &p, q.n, q.axis));
        Expr *square = e_mul(c, k, k);
        Tensor *t = tensor_new(c, TK_INPUT, DT_F32, 1, (Expr *[]){e_int(c, 100)});
        e = e_reduce(c, R_SUM, q.nsum, sum, e_mul(c, e_load(c, t, &square), b));
        assert_true(product_of_loads(e, &p));
        assert_false(product_affine(c, &p, q.n, q.axis));
        done(r);
    }
}

/* ---- factors that kernels compute -------------------------------------------------------------
 */
static void built(void **state) {
    (void)state;
    Run *r = fresh();
    Cx *c = r->c;
    static float zeros[4096];
    Const data = {.dtype = DT_F32, .count = 4096, .data = zeros};
    Expr *n = e_int(c, 64), *many = e_sym(c, sym_new(c, DT_I64, "rows", 0));
    Tensor *w = tensor_new(c, TK_CONST, DT_F32, 2, (Expr *[]){n, n}),
           *x = tensor_new(c, TK_INPUT, DT_F32, 2, (Expr *[]){many, n}),
           *at = tensor_new(c, TK_INPUT, DT_I64, 1, &many);
    w->data = &data;
    Axis *row = axis_new(c, many), *col = axis_new(c, n), *few = axis_new(c, e_int(c, 8)),
         *k = axis_new(c, n), *open = axis_new(c, many), *columns = NULL;
    Axis *domain[] = {row, col};
    Expr *i = e_axis(c, row), *j = e_axis(c, col), *ik = e_axis(c, k);
    Expr *to = e_load(c, at, &i), *weight = e_load(c, w, (Expr *[]){ik, j});
    Expr *one = e_load(c, x, (Expr *[]){to, ik}), *both = e_add(c, one, e_un(c, E_TANH, one));
    SumProduct p;
    for (int turned = 0; turned < 2; turned++) {
        Expr *a = turned ? weight : both, *b = turned ? both : weight;
        assert_true(product_of(e_reduce(c, R_SUM, 1, &k, e_mul(c, a, b)), &p));
        int f = product_built(c, &p, 2, domain, &columns);
        assert_true(f >= 0 && p.factor[f] == both && columns == col);
    }
#define NONE(n, axes, a, b)                                                                        \
    assert_true(product_of(e_reduce(c, R_SUM, 1, &k, e_mul(c, a, b)), &p));                        \
    assert_int_equal(product_built(c, &p, n, axes, &columns), -1)
    NONE(2, domain, one, e_load(c, x, (Expr *[]){ik, j}));    /* nothing is constant */
    NONE(2, domain, e_load(c, x, (Expr *[]){j, ik}), weight); /* it moves along the columns, too */
    NONE(1, domain, both, weight);                            /* … which are no axis */
    NONE(2, domain, e_reduce(c, R_SUM, 1, &few, e_load(c, x, (Expr *[]){e_axis(c, few), ik})),
         weight);
    Axis *short_[] = {row, few};
    NONE(2, short_, both, e_load(c, w, (Expr *[]){ik, e_axis(c, few)}));
    k = open; /* how long a row is, is not known */
    NONE(2, domain, e_load(c, x, (Expr *[]){to, e_axis(c, k)}),
         e_load(c, w, (Expr *[]){e_axis(c, k), j}));
#undef NONE
    done(r);
}

/* ---- 8-bit factors --------------------------------------------------------------------------- */
static void bytes(void **state) {
    (void)state;
    Run *r = fresh();
    Cx *c = r->c;
    Expr *n = e_int(c, 16), *dim[] = {n, n};
    Tensor *x = tensor_new(c, TK_INPUT, DT_U8, 2, dim), *w = tensor_new(c, TK_INPUT, DT_I8, 2, dim),
           *z = tensor_new(c, TK_INPUT, DT_I8, 1, dim),
           *wide = tensor_new(c, TK_INPUT, DT_I32, 2, dim);
    Axis *row = axis_new(c, n), *col = axis_new(c, n), *k = axis_new(c, n);
    Expr *i = e_axis(c, row), *j = e_axis(c, col), *ik = e_axis(c, k);
    Expr *a = e_load(c, x, (Expr *[]){i, ik}), *b = e_load(c, w, (Expr *[]){ik, j});
    Expr *a32 = e_cast(c, DT_I32, a), *b32 = e_cast(c, DT_I32, b), *some = e_ci(c, DT_I32, 3);
    Expr *by_column = e_cast(c, DT_I32, e_load(c, z, &j));
    SumProduct p;
#define SUM(one, two) e_reduce(c, R_SUM, 1, &k, e_mul(c, one, two))
    for (int turned = 0; turned < 2; turned++) {
        Expr *one = e_sub(c, a32, some), *two = e_sub(c, b32, by_column);
        assert_true(product_of_bytes(turned ? SUM(two, one) : SUM(one, two), &p));
        int at = p.load[1] == a; /* operands of a product are in an order of their own */
        assert_true(p.load[at] == a && p.zero[at] == some);
        assert_true(p.load[!at] == b && p.zero[!at] == by_column);
    }
    assert_true(product_of_bytes(SUM(a32, b32), &p) && !p.zero[0] && !p.zero[1]);
    assert_true(is_fast_product(SUM(a32, b32)));
    /* A zero point that moves along the sum, wider factors, other sums. */
    Expr *moving = e_cast(c, DT_I32, e_load(c, z, &ik));
    assert_false(product_of_bytes(SUM(e_sub(c, a32, moving), b32), &p));
    assert_false(product_of_bytes(SUM(a32, e_load(c, wide, (Expr *[]){ik, j})), &p));
    assert_false(product_of_bytes(SUM(e_cast(c, DT_F32, a), e_cast(c, DT_F32, b)), &p));
    assert_false(product_of_bytes(e_reduce(c, R_MAX, 1, &k, e_mul(c, a32, b32)), &p));
    assert_false(is_fast_product(SUM(e_sub(c, a32, moving), b32)));
#undef SUM
    done(r);
}

/* ---- searches -------------------------------------------------------------------------------- */
static bool counted(void *user, Expr *e) {
    *(int *)user += e->op == E_REDUCE;
    return false;
}
static bool any(void *user, Expr *e) {
    (void)user;
    return e->op == E_REDUCE;
}

static int reductions(Run *r, Expr *e, bool always) {
    int n = 0;
    assert_null(find_reduction(map_new(r->a), e, always, counted, &n));
    return n;
}

static void searches(void **state) {
    (void)state;
    Run *r = fresh();
    Cx *c = r->c;
    Tensor *t = tensor_new(c, TK_INPUT, DT_F32, 1, (Expr *[]){e_int(c, 8)});
    Axis *x = axis_new(c, e_int(c, 8)), *y = axis_new(c, e_int(c, 8)),
         *d = axis_new(c, e_int(c, 3));
    Expr *ix = e_axis(c, x), *iy = e_axis(c, y), *id = e_axis(c, d);
    Expr *inner = e_reduce(c, R_SUM, 1, &y, e_mul(c, e_load(c, t, &iy), e_load(c, t, &ix)));
    Expr *sum = e_reduce(c, R_SUM, 1, &x, e_mul(c, inner, e_load(c, t, &ix)));
    Expr *one = e_load(c, t, &id), *chosen = e_sel(c, e_lt(c, one, e_num(c, DT_F32, 0)), sum, one);
    assert_int_equal(reductions(r, sum, false), 2);
    assert_int_equal(reductions(r, sum, true), 1);
    assert_int_equal(reductions(r, e_add(c, sum, e_un(c, E_EXP, sum)), true), 1);
    assert_int_equal(reductions(r, chosen, false), 2);
    assert_int_equal(reductions(r, chosen, true), 0);
    assert_ptr_equal(find_reduction(map_new(r->a), e_un(c, E_NEG, sum), true, any, NULL), sum);
    assert_true(all_reductions(map_new(r->a), e_add(c, sum, one), any, NULL));
    assert_false(all_reductions(map_new(r->a), chosen, any, NULL));
    assert_false(all_reductions(map_new(r->a), sum, counted, &(int){0}));
    done(r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(matmul),   cmocka_unit_test(conv),        cmocka_unit_test(einsum),
        cmocka_unit_test(others),   cmocka_unit_test(random_sums), cmocka_unit_test(built),
        cmocka_unit_test(searches), cmocka_unit_test(bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
