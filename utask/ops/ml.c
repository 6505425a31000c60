/* ml.c: helpers for ai.onnx.ml, as ml.h describes. */
#include "utask/ops/ml.h"
#include "utask/ops/nn.h"
#include <math.h>

/* ---- attributes ------------------------------------------------------------------------------ */
const double *attr_numbers(Lower *L, const char *name, int64_t *n) {
    const char *other = arena_printf(L->a, "%s_as_tensor", name);
    const Attr *a = node_attr(L->node, name), *b = node_attr(L->node, other);
    if (a && b) fail(L, "both %s and %s are given", name, other);
    *n = -1;
    if (!a && !b) return NULL;
    *n = a ? a->n : b->t->count;
    double *v = NEWN(L->a, double, *n + 1);
    if (b && !dtype_is_float(b->t->dtype))
        fail(L, "attribute %s is %s, not floats", other, dtype_name(b->t->dtype));
    for (int64_t i = 0; i < *n; i++)
        v[i] = a ? (double)a->floats[i] : elem_get_f(b->t->dtype, b->t->data, i);
    return v;
}

const int64_t *attr_ints_of(Lower *L, const char *name, int64_t n) {
    int m;
    const int64_t *v = attr_ints(L, name, &m);
    if (m < 0) m = 0;
    if (m != n) fail(L, "attribute %s has %d entries, %lld are needed", name, m, (long long)n);
    return v;
}

void no_strings(Lower *L, const char *name) {
    const Attr *a = node_attr(L->node, name);
    if (a && (a->kind != AT_STRINGS || a->n > 0))
        unsupported(L, "attribute %s: strings; only numbers are supported", name);
}

const int64_t *int_labels(Lower *L, const char *ints, int64_t *n) {
    int m;
    no_strings(L, "classlabels_strings");
    const int64_t *v = attr_ints(L, ints, &m);
    *n = m < 0 ? 0 : m;
    return v;
}

void sort_stable(Lower *L, int64_t n, int64_t *place,
                 bool less(const void *user, int64_t i, int64_t j), const void *user) {
    int64_t *from = NEWN(L->a, int64_t, n);
    for (int64_t w = 1; w < n; w *= 2) {
        memcpy(from, place, sizeof *from * (size_t)n);
        for (int64_t b = 0; b < n; b += 2 * w) {
            int64_t m = b + w < n ? b + w : n, e = b + 2 * w < n ? b + 2 * w : n, i = b, j = m;
            for (int64_t k = b; k < e; k++)
                place[k] =
                    i < m && (j == e || !less(user, from[j], from[i])) ? from[i++] : from[j++];
        }
    }
}

/* ---- tensors --------------------------------------------------------------------------------- */
Tensor *feature_rows(Lower *L, int input) {
    Tensor *x = in_needed(L, input);
    if (x->rank == 1) return t_unsqueeze(L, x, 0);
    if (x->rank != 2) fail(L, "the input has rank %d, not 1 or 2", x->rank);
    return x;
}

Tensor *t_floats(Lower *L, DType t, int64_t rows, int64_t cols, const double *v) {
    int64_t dim[] = {rows, cols}, n = cols < 0 ? rows : rows * cols;
    if (t == DT_F64) return t_const(L, t, cols < 0 ? 1 : 2, dim, v);
    float *f = NEWN(L->a, float, n + 1);
    for (int64_t i = 0; i < n; i++) f[i] = (float)v[i];
    return t_const(L, DT_F32, cols < 0 ? 1 : 2, dim, f);
}

Tensor *labels_at(Lower *L, const int64_t *labels, int64_t n, Tensor *k) {
    Tensor *all = t_list(L, DT_I64, n, labels), *y = te_begin(L, DT_I64, 1, k->dim);
    Expr *row = ax(L, y, 0), *i = ld(L, k, &row);
    return te_end(L, y, ld(L, all, &i));
}

Tensor *labels_above(Lower *L, const int64_t *labels, Tensor *s, double bound) {
    Cx *c = L->cx;
    Expr *v;
    Tensor *k = te_like(L, DT_I64, s, &v);
    k = te_end(L, k, e_cast(c, DT_I64, e_lt(c, e_num(c, s->dtype, bound), v)));
    return labels_at(L, labels, 2, k);
}

Tensor *best_class(Lower *L, Tensor *scores) {
    return t_squeeze(L, t_reduce(L, R_ARGMAX, scores, 2, true), 1);
}

Tensor *t_column(Lower *L, Tensor *t, int64_t k) {
    Tensor *y = te_begin(L, t->dtype, 1, t->dim);
    return te_end(L, y, ld(L, t, (Expr *[]){ax(L, y, 0), e_int(L->cx, k)}));
}

/* ---- scores ---------------------------------------------------------------------------------- */
Post post_attr(Lower *L) {
    static const char *const name[] = {"NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT"};
    return (Post)attr_choice(L, "post_transform", COUNT(name), name);
}

/* sqrt(2) times the inverse of the error function at 2 p - 1, by Winitzki's approximation, as other
 * implementations of this operator do. */
static Expr *probit(Cx *c, DType t, Expr *p) {
    Expr *one = e_num(c, t, 1), *x = e_sub(c, e_mul(c, p, e_num(c, t, 2)), one);
    Expr *sign = e_sel(c, e_lt(c, x, e_num(c, t, 0)), e_num(c, t, -1), one);
    Expr *log = e_un(c, E_LOG, e_mul(c, e_sub(c, one, x), e_add(c, one, x)));
    Expr *v = e_add(c, e_num(c, t, 2 / (3.14159f * 0.147f)), e_mul(c, e_num(c, t, 0.5), log));
    Expr *w = e_mul(c, log, e_num(c, t, 1 / 0.147f));
    Expr *r = e_sub(c, e_un(c, E_SQRT, e_sub(c, e_mul(c, v, v), w)), v);
    return e_mul(c, e_num(c, t, 1.41421356f), e_mul(c, sign, e_un(c, E_SQRT, r)));
}

/* Softmax where scores of 0 are left out of the sum. */
static Tensor *softmax_zero(Lower *L, Tensor *s) {
    Cx *c = L->cx;
    DType t = s->dtype;
    Tensor *most = t_reduce(L, R_MAX, s, 2, true), *part[2];
    for (int i = 0; i < 2; i++) {
        Tensor *y = te_begin(L, t, 2, s->dim);
        Expr *idx[] = {ax(L, y, 0), ax(L, y, 1)}, *zero[] = {ax(L, y, 0), e_int(c, 0)};
        Expr *v = ld(L, s, idx), *m = ld(L, most, zero), *tiny = e_num(c, t, 0.0000001f);
        Expr *is_zero = e_not(c, e_or(c, e_lt(c, tiny, v), e_lt(c, v, e_un(c, E_NEG, tiny))));
        Expr *exp = e_un(c, E_EXP, e_sub(c, v, m));
        Expr *left = e_mul(c, v, e_un(c, E_EXP, e_un(c, E_NEG, m)));
        part[i] = te_end(L, y, e_sel(c, is_zero, i ? e_num(c, t, 0) : left, exp));
    }
    return t_bin(L, E_DIV, part[0], t_reduce(L, R_SUM, part[1], 2, true));
}

Tensor *post_scores(Lower *L, Post post, Tensor *s) {
    switch (post) {
    case POST_SOFTMAX: return t_softmax(L, s, 1, false);
    case POST_LOGISTIC: return t_un(L, E_SIGMOID, s);
    case POST_SOFTMAX_ZERO: return softmax_zero(L, s);
    case POST_PROBIT: {
        Expr *v;
        Tensor *y = te_like(L, s->dtype, s, &v);
        return te_end(L, y, probit(L->cx, s->dtype, v));
    }
    default: return s;
    }
}

Tensor *post_targets(Lower *L, Post post, Tensor *s, int64_t n) {
    return n > 1 || post == POST_PROBIT ? post_scores(L, post, s) : s;
}

Tensor *two_scores(Lower *L, Tensor *s, bool mixed, Post post) {
    Cx *c = L->cx;
    DType t = s->dtype;
    Expr *v;
    Tensor *first = te_like(L, t, s, &v);
    Expr *other = e_un(c, E_NEG, v);
    if (post == POST_LOGISTIC) {
        other = e_un(c, E_SIGMOID, other);
        s = t_un(L, E_SIGMOID, s);
    } else if (!mixed)
        other = e_sub(c, e_num(c, t, 1), v);
    Tensor *both[2] = {t_unsqueeze(L, te_end(L, first, other), 1), t_unsqueeze(L, s, 1)};
    return t_concat(L, 2, both, 1);
}
