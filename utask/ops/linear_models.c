/* linear_models.c: LinearRegressor, LinearClassifier, SVMRegressor, SVMClassifier. */
#include "utask/ops/ml.h"
#include "utask/ops/nn.h"
#include <math.h>

#define PAIR_WEIGHTS_MAX ((int64_t)1 << 26) /* of pairs of classes and support vectors */
#define ROUNDS 100                          /* of the fit of probabilities */

/* The *n floats of a required attribute. */
static const float *floats(Lower *L, const char *name, int *n) {
    const float *v = attr_floats(L, name, n);
    if (*n < 1) fail(L, "attribute %s is missing", name);
    return v;
}

/* a [rows, k] times the transposed matrix of `rows` rows of k numbers. */
static Tensor *times_rows(Lower *L, Tensor *a, const float *v, int64_t rows, int64_t k) {
    Tensor *b = t_const(L, DT_F32, 2, (int64_t[]){rows, k}, v);
    return t_matmul(L, a, t_transpose(L, b, (int[]){1, 0}));
}

static void check_features(Lower *L, const Tensor *x, int64_t n) {
    check(L, e_eq(L->cx, x->dim[1], e_int(L->cx, n)), "the model is for %lld features",
          (long long)n);
}

static Tensor *add_floats(Lower *L, Tensor *a, const float *v, int64_t n) {
    return t_bin(L, E_ADD, a, t_list(L, DT_F32, n, v));
}

void lower_LinearRegressor(Lower *L) {
    int n, m;
    int64_t targets = attr_i(L, "targets", 1);
    const float *w = floats(L, "coefficients", &n), *b = attr_floats(L, "intercepts", &m);
    if (targets < 1 || n % targets)
        fail(L, "%d coefficients do not fit %lld targets", n, (long long)targets);
    if (m > 0 && m != targets)
        fail(L, "%d intercepts do not fit %lld targets", m, (long long)targets);
    Tensor *x = t_cast(L, DT_F32, feature_rows(L, 0));
    check_features(L, x, n / targets);
    Tensor *s = times_rows(L, x, w, targets, n / targets);
    if (m > 0) s = add_floats(L, s, b, m);
    out(L, 0, post_targets(L, post_attr(L), s, targets));
}

void lower_LinearClassifier(Lower *L) {
    int n, m;
    int64_t nlabel, features, classes;
    const int64_t *label = int_labels(L, "classlabels_ints", &nlabel), plain[] = {0, 1};
    const float *w = floats(L, "coefficients", &n), *b = attr_floats(L, "intercepts", &m);
    Tensor *x = t_cast(L, DT_F32, feature_rows(L, 0));
    classes = m > 0 ? m : e_is_int(x->dim[1], &features) && features ? n / features : nlabel;
    if (classes < 1 || n % classes)
        fail(L, "%d coefficients do not fit %lld classes", n, (long long)classes);
    if (classes > 1 && nlabel < classes)
        fail(L, "there are %lld labels for %lld classes", (long long)nlabel, (long long)classes);
    check_features(L, x, n / classes);
    Tensor *s = times_rows(L, x, w, classes, n / classes);
    if (m > 0) s = add_floats(L, s, b, m);
    if (classes > 1) {
        out(L, 0, labels_at(L, label, nlabel, best_class(L, s)));
        out(L, 1, post_scores(L, post_attr(L), s));
        return;
    }
    out(L, 0, labels_above(L, nlabel == 2 ? label : plain, t_column(L, s, 0), 0));
    Post post = post_attr(L);
    out(L, 1,
        nlabel == 2 ? two_scores(L, t_column(L, s, 0), false, post) : post_targets(L, post, s, 1));
}

/* ---- support vectors ------------------------------------------------------------------------- */
/* The kernel of each row of x with each of n vectors: [rows, n]. A LINEAR kernel adds `first`. */
static Tensor *kernel(Lower *L, Tensor *x, const float *v, int64_t n, int64_t k, const char *type,
                      float first) {
    int m;
    const float *p = attr_floats(L, "kernel_params", &m);
    double gamma = 0, coef = 0, degree = 0;
    if (m > 0 && m != 3) fail(L, "kernel_params has %d entries, not gamma, coef0, degree", m);
    if (m == 3) gamma = p[0], coef = p[1], degree = p[2];
    check_features(L, x, k);
    if (!strcmp(type, "RBF")) {
        Cx *c = L->cx;
        Tensor *vec = t_const(L, DT_F32, 2, (int64_t[]){n, k}, v);
        Expr *dim[] = {x->dim[0], e_int(c, n)};
        Tensor *y = te_begin(L, DT_F32, 2, dim);
        Axis *f = axis_new(c, e_int(c, k));
        Expr *a = ld(L, x, (Expr *[]){ax(L, y, 0), e_axis(c, f)});
        Expr *d = e_sub(c, a, ld(L, vec, (Expr *[]){ax(L, y, 1), e_axis(c, f)}));
        Expr *sum = e_reduce(c, R_SUM, 1, &f, e_mul(c, d, d));
        return te_end(L, y, e_un(c, E_EXP, e_mul(c, sum, e_num(c, DT_F32, -gamma))));
    }
    Tensor *s = times_rows(L, x, v, n, k);
    if (!strcmp(type, "LINEAR")) return first != 0 ? add_floats(L, s, &first, 1) : s;
    s = t_bin(L, E_MUL, s, t_scalar(L, DT_F32, gamma));
    s = t_bin(L, E_ADD, s, t_scalar(L, DT_F32, coef));
    if (!strcmp(type, "SIGMOID")) return t_un(L, E_TANH, s);
    return t_bin(L, E_POW, s, t_scalar(L, DT_F32, degree));
}

void lower_SVMRegressor(Lower *L) {
    Cx *c = L->cx;
    int n, m, r;
    int64_t nvec = attr_i(L, "n_supports", 0);
    const float *w = floats(L, "coefficients", &n), *rho = floats(L, "rho", &r);
    const float *v = attr_floats(L, "support_vectors", &m);
    Tensor *x = t_cast(L, DT_F32, feature_rows(L, 0)), *s;
    if (nvec > 0) {
        if (m < 1 || m % nvec)
            fail(L, "support_vectors does not hold %lld vectors", (long long)nvec);
        if (n != nvec) fail(L, "%d coefficients do not fit %lld vectors", n, (long long)nvec);
        s = kernel(L, x, v, nvec, m / nvec, attr_s(L, "kernel_type", "LINEAR"), 0);
        s = add_floats(L, times_rows(L, s, w, 1, n), rho, 1);
    } else
        s = kernel(L, x, w, 1, n, "LINEAR", rho[0]);
    if (attr_i(L, "one_class", 0)) {
        Tensor *y = te_begin(L, DT_F32, 2, s->dim);
        Expr *e = ld(L, s, (Expr *[]){ax(L, y, 0), ax(L, y, 1)}), *zero = e_num(c, DT_F32, 0);
        e = e_sel(c, e_lt(c, zero, e), e_num(c, DT_F32, 1), e_num(c, DT_F32, -1));
        s = te_end(L, y, e);
    }
    out(L, 0, s);
}

typedef struct Svc {
    int64_t classes, vectors, pairs;
    const int64_t *count; /* number of vectors of each class */
    bool proba;
} Svc;

/* One score for each pair of classes i < j; above 0 means class i. */
static Tensor *pair_scores(Lower *L, const Svc *s, Tensor *k, const float *w, const float *rho) {
    int64_t all = s->pairs * s->vectors, p = 0;
    if (s->pairs > PAIR_WEIGHTS_MAX / s->vectors)
        unsupported(L, "%lld classes of %lld support vectors", (long long)s->classes,
                    (long long)s->vectors);
    float *m = NEWN(L->a, float, all);
    for (int64_t i = 0, bi = 0; i < s->classes; bi += s->count[i++])
        for (int64_t j = i + 1, bj = bi + s->count[i]; j < s->classes; bj += s->count[j++], p++) {
            const float *of_i = w + (j - 1) * s->vectors, *of_j = w + i * s->vectors;
            float *to = m + p * s->vectors;
            for (int64_t q = 0; q < s->count[i]; q++) to[bi + q] = of_i[bi + q];
            for (int64_t q = 0; q < s->count[j]; q++) to[bj + q] = of_j[bj + q];
        }
    return add_floats(L, times_rows(L, k, m, s->pairs, s->vectors), rho, s->pairs);
}

/* The pair of two different classes i and j, in either order (int64); *swap: j < i. */
static Expr *pair_of(Lower *L, const Svc *s, Expr *i, Expr *j, Expr **swap) {
    Cx *c = L->cx;
    Expr *a = e_min(c, i, j), *b = e_max(c, i, j), *two = e_int(c, 2);
    Expr *before = e_bin(c, E_FDIV, e_mul(c, a, e_sub(c, e_int(c, 2 * s->classes - 1), a)), two);
    *swap = e_lt(c, j, i);
    return e_addi(c, e_sub(c, e_add(c, before, b), a), -1);
}

/* The class that wins the most pairs. */
static Tensor *most_votes(Lower *L, const Svc *s, Tensor *pair) {
    Cx *c = L->cx;
    Expr *dim[] = {pair->dim[0], e_int(c, s->classes)}, *swap;
    Tensor *y = te_begin(L, DT_I64, 2, dim);
    Axis *other = axis_new(c, dim[1]);
    Expr *i = ax(L, y, 1), *j = e_axis(c, other), *same = e_eq(c, i, j);
    Expr *p = pair_of(L, s, i, j, &swap);
    p = e_sel(c, same, e_int(c, 0), p);
    Expr *first = e_lt(c, e_num(c, DT_F32, 0), ld(L, pair, (Expr *[]){ax(L, y, 0), p}));
    Expr *won = e_bin(c, E_XOR, first, swap);
    Expr *one = e_sel(c, e_and(c, won, e_not(c, same)), e_int(c, 1), e_int(c, 0));
    return best_class(L, te_end(L, y, e_reduce(c, R_SUM, 1, &other, one)));
}

/* r[row, i, j]: the probability of class i, given that it is i or j. */
static Tensor *pair_probabilities(Lower *L, const Svc *s, Tensor *pair) {
    Cx *c = L->cx;
    int na, nb;
    const float *a = attr_floats(L, "prob_a", &na), *b = attr_floats(L, "prob_b", &nb);
    if (na < s->pairs || nb != na)
        fail(L, "prob_a and prob_b must have %lld entries", (long long)s->pairs);
    Tensor *ta = t_list(L, DT_F32, s->pairs, a), *tb = t_list(L, DT_F32, s->pairs, b);
    Tensor *v = t_un(L, E_NEG, t_bin(L, E_ADD, t_bin(L, E_MUL, pair, ta), tb));
    v = t_un(L, E_SIGMOID, v);
    v = t_bin(L, E_MIN, t_bin(L, E_MAX, v, t_scalar(L, DT_F32, 1e-7)),
              t_scalar(L, DT_F32, 1 - 1e-7));
    Expr *dim[] = {v->dim[0], e_int(c, s->classes), e_int(c, s->classes)}, *swap;
    Tensor *y = te_begin(L, DT_F32, 3, dim);
    Expr *i = ax(L, y, 1), *j = ax(L, y, 2), *same = e_eq(c, i, j);
    Expr *p = e_sel(c, same, e_int(c, 0), pair_of(L, s, i, j, &swap));
    Expr *q = ld(L, v, (Expr *[]){ax(L, y, 0), p}), *one = e_num(c, DT_F32, 1);
    q = e_sel(c, swap, e_sub(c, one, q), q);
    return te_end(L, y, e_sel(c, same, e_num(c, DT_F32, 0), q));
}

/* q[row, i, j] of the quadratic form that the probabilities minimize. With r as above, the diagonal
 * is the sum of r[j, i]^2 over j; other elements are -r[j, i] r[i, j]. */
static Tensor *form(Lower *L, Tensor *r) {
    Cx *c = L->cx;
    Tensor *y = te_begin(L, DT_F32, 3, r->dim);
    Expr *row = ax(L, y, 0), *i = ax(L, y, 1), *j = ax(L, y, 2);
    Axis *k = axis_new(c, r->dim[1]);
    Expr *a = ld(L, r, (Expr *[]){row, e_axis(c, k), i});
    Expr *b = e_mul(c, ld(L, r, (Expr *[]){row, j, i}), ld(L, r, (Expr *[]){row, i, j}));
    Expr *sum = e_reduce(c, R_SUM, 1, &k, e_mul(c, a, a));
    return te_end(L, y, e_sel(c, e_eq(c, i, j), sum, e_un(c, E_NEG, b)));
}

/* Row r's element [i] or [i, j]. */
static Expr *el(Lower *L, Tensor *t, Expr *r, Expr *i, Expr *j) {
    return ld(L, t, (Expr *[]){r, i, j});
}

/* Probabilities p of Wu, Lin and Weng, "Probability estimates for multi-class classification by
 * pairwise coupling" (2004), algorithm 2: one class after the other until the error is small. */
static Tensor *coupled(Lower *L, const Svc *s, Tensor *r) {
    Cx *c = L->cx;
    Expr *dim[] = {r->dim[0], r->dim[1]}, *zero = e_int(c, 0);
    Tensor *q = form(L, r), *p = te_begin(L, DT_F32, 2, dim);
    p = te_end(L, p, e_num(c, DT_F32, 1.0 / (double)s->classes));
    LoopB *rounds = loop_begin(L, e_int(c, ROUNDS));
    p = loop_carry(L, rounds, p);
    Tensor *qp = te_begin(L, DT_F32, 2, dim);
    Axis *k = axis_new(c, r->dim[1]);
    Expr *row = ax(L, qp, 0), *at = e_axis(c, k);
    Expr *sum = e_mul(c, el(L, q, row, ax(L, qp, 1), at), ld(L, p, (Expr *[]){row, at}));
    qp = te_end(L, qp, e_reduce(c, R_SUM, 1, &k, sum));
    Tensor *pqp = t_reduce(L, R_SUM, t_bin(L, E_MUL, p, qp), 2, true);
    Tensor *error = t_un(L, E_ABS, t_bin(L, E_SUB, qp, pqp));
    error = t_reduce(L, R_MAX, error, 2, true);
    LoopB *each = loop_begin(L, r->dim[1]);
    Expr *i = loop_iter(each);
    Tensor *p2 = loop_carry(L, each, p), *qp2 = loop_carry(L, each, qp);
    Tensor *pqp2 = loop_carry(L, each, pqp), *next[3];
    for (int n = 0; n < 3; n++) {
        Tensor *was = n == 0 ? p2 : n == 1 ? qp2 : pqp2, *y = te_begin(L, DT_F32, 2, was->dim);
        row = ax(L, y, 0);
        Expr *j = ax(L, y, 1), *one = e_num(c, DT_F32, 1), *own = el(L, q, row, i, i), *v;
        Expr *mine = ld(L, qp2, (Expr *[]){row, i}), *all = ld(L, pqp2, (Expr *[]){row, zero});
        Expr *diff = e_div(c, e_sub(c, all, mine), own), *scale = e_add(c, one, diff);
        if (n == 0)
            v = e_add(c, ld(L, p2, (Expr *[]){row, j}),
                      e_sel(c, e_eq(c, i, j), diff, e_num(c, DT_F32, 0)));
        else if (n == 1)
            v = e_add(c, ld(L, qp2, (Expr *[]){row, j}), e_mul(c, diff, el(L, q, row, i, j)));
        else {
            v = e_add(c, e_mul(c, diff, own), e_mul(c, e_num(c, DT_F32, 2), mine));
            v = e_div(c, e_add(c, all, e_mul(c, diff, v)), scale);
        }
        next[n] = te_end(L, y, e_div(c, v, scale));
    }
    loop_next(L, each, p2, next[0]);
    loop_next(L, each, qp2, next[1]);
    loop_next(L, each, pqp2, next[2]);
    loop_end(L, each);
    Tensor *y = te_begin(L, DT_F32, 2, dim);
    Expr *idx[] = {ax(L, y, 0), ax(L, y, 1)}, *eps = e_num(c, DT_F32, 0.005 / (double)s->classes);
    Expr *good = e_lt(c, ld(L, error, (Expr *[]){idx[0], zero}), eps);
    y = te_end(L, y, e_sel(c, good, ld(L, p, idx), ld(L, p2, idx)));
    loop_next(L, rounds, p, y);
    loop_end(L, rounds);
    return p;
}

/* No support vectors: a linear model of each class. */
static void linear_svc(Lower *L, Tensor *x, const float *w, int n, const int64_t *label,
                       int64_t classes, bool proba) {
    Cx *c = L->cx;
    int r;
    const float *rho = floats(L, "rho", &r);
    if (n % classes) fail(L, "%d coefficients do not fit %lld classes", n, (long long)classes);
    Tensor *s = kernel(L, x, w, classes, n / classes, "LINEAR", rho[0]), *k = best_class(L, s);
    if (classes == 2 && !proba) { /* the second class if the score is above the bound */
        bool positive = true;
        for (int i = 0; i < n; i++) positive = positive && w[i] >= 0;
        Tensor *most = t_reduce(L, R_MAX, s, 2, false), *y = te_begin(L, DT_I64, 1, k->dim);
        Expr *row = ax(L, y, 0), *m = ld(L, most, &row), *bound = e_num(c, DT_F32, positive / 2.0);
        Expr *over = positive ? e_le(c, bound, m) : e_lt(c, bound, m);
        k = te_end(L, y, e_sel(c, over, e_int(c, 1), ld(L, k, &row)));
    }
    out(L, 0, labels_at(L, label, classes, k));
    out(L, 1, post_targets(L, post_attr(L), s, classes));
}

void lower_SVMClassifier(Lower *L) {
    int n, m, r, nc, na;
    Svc s = {0};
    const int64_t *label = int_labels(L, "classlabels_ints", &s.classes);
    if (s.classes < 1) fail(L, "attribute classlabels_ints is missing");
    const float *w = floats(L, "coefficients", &n), *v = attr_floats(L, "support_vectors", &m);
    Tensor *x = t_cast(L, DT_F32, feature_rows(L, 0));
    attr_floats(L, "prob_a", &na);
    s.proba = na > 0;
    s.count = attr_ints(L, "vectors_per_class", &nc);
    for (int i = 0; i < nc; i++) {
        if (s.count[i] < 0 || s.count[i] > INT32_MAX)
            fail(L, "vectors_per_class has the entry %lld", (long long)s.count[i]);
        s.vectors += s.count[i];
    }
    if (!s.vectors) {
        linear_svc(L, x, w, n, label, s.classes, s.proba);
        return;
    }
    s.pairs = s.classes * (s.classes - 1) / 2;
    if (s.classes < 2 || s.classes > 65535) fail(L, "there are %lld classes", (long long)s.classes);
    if (nc != s.classes) fail(L, "vectors_per_class must have %lld entries", (long long)s.classes);
    if (m < 1 || m % s.vectors)
        fail(L, "support_vectors does not hold %lld vectors", (long long)s.vectors);
    if (n / (s.classes - 1) < s.vectors)
        fail(L, "%d coefficients are too few for %lld classes of %lld vectors", n,
             (long long)s.classes, (long long)s.vectors);
    const float *rho = floats(L, "rho", &r);
    if (r < s.pairs) fail(L, "rho must have %lld entries", (long long)s.pairs);
    Tensor *k = kernel(L, x, v, s.vectors, m / s.vectors, attr_s(L, "kernel_type", "LINEAR"), 0);
    Tensor *pair = pair_scores(L, &s, k, w, rho);
    Post post = post_attr(L);
    out(L, 0, labels_at(L, label, s.classes, most_votes(L, &s, pair)));
    if (s.proba)
        pair = post_scores(L, post, coupled(L, &s, pair_probabilities(L, &s, pair)));
    else
        pair = s.pairs > 1 ? post_scores(L, post, pair)
                           : two_scores(L, t_column(L, pair, 0), post == POST_NONE, post);
    out(L, 1, pair);
}
