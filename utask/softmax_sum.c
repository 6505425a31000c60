/* softmax_sum.c: recognizes softmax-weighted sums, as softmax_sum.h describes.
 *
 * Expressions are hash-consed: the scores in the maximum, in the sum and in the weights are equal
 * when they are one node, once they are over the same axis. */
#include "utask/softmax_sum.h"

#include <math.h>

/* e without conversions from one float type to another. */
static Expr *converted(Expr *e) {
    while (e->op == E_CAST && dtype_is_float(e->dtype) && dtype_is_float(e->a[0]->dtype))
        e = e->a[0];
    return e;
}

static bool is_value(const Expr *e, double v) { return e->op == E_CONST && e->f == v; }

/* x where `guard` is x, or gives `other` where x is `is` and else x; NULL: it is neither. */
static Expr *guarded(Expr *guard, ReduceKind kind, double is, double other) {
    Expr *x = guard;
    if (guard->op == E_SELECT && guard->dtype == DT_F32 && is_value(guard->a[1], other)) {
        const Expr *cond = guard->a[0];
        x = guard->a[2];
        if (cond->op != E_EQ || !((cond->a[0] == x && is_value(cond->a[1], is)) ||
                                  (cond->a[1] == x && is_value(cond->a[0], is))))
            return NULL;
    }
    return x->op == E_REDUCE && x->kind == kind && x->naxis == 1 && x->dtype == DT_F32 ? x : NULL;
}

/* Whether r reduces `of`, taken along axis key. */
static bool reduces(Cx *c, const Expr *r, Axis *key, const Expr *of) {
    Expr *at = e_axis(c, key);
    return r->raxis[0]->extent == key->extent &&
           e_subst(c, r->a[0], 1, r->raxis, &at, NULL, NULL) == of;
}

typedef struct ScoreSums {
    Map *seen;
    Expr *first;
    int n;
} ScoreSums;

static void count_sums(ScoreSums *s, Expr *e) {
    if (!(e->flags & EF_REDUCE) || !map_add(s->seen, (uint64_t)e->id + 1)) return;
    if (e->op == E_REDUCE && s->n++ == 0) s->first = e;
    for (int i = 0; i < e->n; i++) count_sums(s, e->a[i]);
}

/* Sets the sum of products that the scores contain. */
static bool scores(Cx *c, SoftmaxSum *a) {
    ScoreSums s = {.seen = map_new(c->a)};
    count_sums(&s, a->score);
    if (s.n != 1 || s.first->dtype != DT_F32 || s.first->naxis != 1 ||
        !product_of(s.first, &a->dot))
        return false;
    a->query = e_uses_axis(a->dot.factor[0], a->key);
    return !e_uses_axis(a->dot.factor[a->query], a->key) &&
           e_uses_axis(a->dot.factor[!a->query], a->key);
}

static bool weights(Cx *c, SoftmaxSum *a, Expr *w) {
    if (w->op == E_SELECT && w->a[0]->op == E_ISNAN && w->a[0]->a[0] == w->a[2] &&
        is_value(w->a[1], 0)) {
        a->nan_to_zero = true;
        w = w->a[2];
    }
    w = converted(w);
    if (w->op != E_DIV || w->dtype != DT_F32) return false;
    const Expr *power = w->a[0];
    if (power->op != E_EXP || power->a[0]->op != E_SUB) return false;
    a->score = power->a[0]->a[0];
    a->divisor = w->a[1];
    a->sum = guarded(a->divisor, R_SUM, 0, 1);
    const Expr *most = guarded(power->a[0]->a[1], R_MAX, -INFINITY, 0);
    return a->sum && most && reduces(c, a->sum, a->key, power) &&
           reduces(c, most, a->key, a->score) && scores(c, a);
}

bool softmax_sum_of(Cx *c, Expr *e, SoftmaxSum *a) {
    if (!is_sum_of_products(e) || e->dtype != DT_F32 || e->naxis != 1) return false;
    for (int i = 0; i < 2; i++) {
        Expr *value = e->a[0]->a[!i];
        *a = (SoftmaxSum){.reduce = e, .key = e->raxis[0], .value = value};
        if (!(value->flags & EF_REDUCE) && weights(c, a, converted(e->a[0]->a[i]))) return true;
    }
    return false;
}

typedef struct SumSearch {
    Cx *c;
    SoftmaxSum *a;
} SumSearch;
static bool is_softmax_sum(void *user, Expr *e) {
    const SumSearch *f = user;
    return softmax_sum_of(f->c, e, f->a);
}

bool softmax_sum_find(Cx *c, Expr *e, SoftmaxSum *a) {
    SumSearch f = {c, a};
    return find_reduction(map_new(c->a), e, true, is_softmax_sum, &f) != NULL;
}
