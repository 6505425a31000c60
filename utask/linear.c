/* linear.c: linear normal form, ranges and affine decomposition of int64 expressions.
 *
 * A sum is kept as k0 + k1*t1 + k2*t2 … with the terms sorted by id; a term is a product of factors
 * sorted by id, or any other expression. Wrap-around arithmetic is a ring, so this is exact. */
#include "utask/expr_internal.h"

#define TERMS 24

typedef struct Lin {
    int n;
    int64_t k0;
    int64_t k[TERMS];
    Expr *t[TERMS];
} Lin;

static int64_t wadd(int64_t a, int64_t b) { return (int64_t)((uint64_t)a + (uint64_t)b); }
static int64_t wmul(int64_t a, int64_t b) { return (int64_t)((uint64_t)a * (uint64_t)b); }

static Expr *raw(Cx *c, int op, Expr *a, Expr *b) {
    return expr_raw(c, op, DT_I64, 2, (Expr *[]){a, b});
}

static bool lin_term(Lin *l, Expr *t, int64_t k) {
    int i = 0;
    while (i < l->n && l->t[i]->id < t->id) i++;
    if (i < l->n && l->t[i] == t) {
        l->k[i] = wadd(l->k[i], k);
        if (!l->k[i]) {
            l->n--;
            memmove(l->k + i, l->k + i + 1, sizeof *l->k * (size_t)(l->n - i));
            memmove(l->t + i, l->t + i + 1, sizeof *l->t * (size_t)(l->n - i));
        }
        return true;
    }
    if (l->n == TERMS) return false;
    memmove(l->k + i + 1, l->k + i, sizeof *l->k * (size_t)(l->n - i));
    memmove(l->t + i + 1, l->t + i, sizeof *l->t * (size_t)(l->n - i));
    l->k[i] = k;
    l->t[i] = t;
    l->n++;
    return true;
}

/* l += k * e; false when it would become too long. */
static bool lin_add(Lin *l, Expr *e, int64_t k) {
    if (!k) return true;
    if (e->op == E_CONST) {
        l->k0 = wadd(l->k0, wmul(e->i, k));
        return true;
    }
    if (e->op == E_ADD) return lin_add(l, e->a[0], k) && lin_add(l, e->a[1], k);
    if (e->op == E_MUL && e->a[0]->op == E_CONST) return lin_add(l, e->a[1], wmul(k, e->a[0]->i));
    return lin_term(l, e, k);
}

/* Canonical expression: MUL(const, term) and left-leaning ADD, the constant last. */
static Expr *lin_expr(Cx *c, const Lin *l) {
    Expr *r = NULL;
    for (int i = 0; i < l->n; i++) {
        Expr *t = l->t[i];
        if (l->k[i] != 1) t = raw(c, E_MUL, e_int(c, l->k[i]), t);
        r = r ? raw(c, E_ADD, r, t) : t;
    }
    if (!r) return e_int(c, l->k0);
    return l->k0 ? raw(c, E_ADD, r, e_int(c, l->k0)) : r;
}

/* ---- products: factors sorted by id ---------------------------------------------------------- */
static int factors(Expr *t, Expr **f, int n, int max) {
    if (t->op == E_MUL && t->a[0]->op != E_CONST) {
        n = factors(t->a[0], f, n, max);
        return n < 0 ? n : factors(t->a[1], f, n, max);
    }
    if (n == max) return -1;
    int i = n;
    while (i > 0 && f[i - 1]->id > t->id) {
        f[i] = f[i - 1];
        i--;
    }
    f[i] = t;
    return n + 1;
}

static Expr *product(Cx *c, Expr **f, int n) {
    Expr *r = f[0];
    for (int i = 1; i < n; i++) r = raw(c, E_MUL, r, f[i]);
    return r;
}

static Expr *term_mul(Cx *c, Expr *a, Expr *b) {
    Expr *f[16];
    int n = factors(a, f, 0, 16);
    if (n > 0) n = factors(b, f, n, 16);
    return n < 0 ? raw(c, E_MUL, a, b) : product(c, f, n);
}

static Expr *mul(Cx *c, Expr *a, Expr *b) {
    Lin x = {0}, y = {0}, r = {0};
    bool ok = lin_add(&x, a, 1) && lin_add(&y, b, 1);
    /* Distribute small sums; larger ones stay opaque factors. */
    if (!ok || (x.n + 1) * (y.n + 1) > 16) {
        if (a->op == E_CONST) return raw(c, E_MUL, a, b);
        if (b->op == E_CONST) return raw(c, E_MUL, b, a);
        return term_mul(c, a, b);
    }
    r.k0 = wmul(x.k0, y.k0);
    for (int i = 0; i < x.n; i++)
        if (y.k0) ok = ok && lin_term(&r, x.t[i], wmul(x.k[i], y.k0));
    for (int j = 0; j < y.n; j++)
        if (x.k0) ok = ok && lin_term(&r, y.t[j], wmul(y.k[j], x.k0));
    for (int i = 0; i < x.n; i++)
        for (int j = 0; j < y.n; j++)
            ok = ok && lin_term(&r, term_mul(c, x.t[i], y.t[j]), wmul(x.k[i], y.k[j]));
    return ok ? lin_expr(c, &r) : term_mul(c, a, b);
}

/* ---- division: floor((n*q + r) / n) = q when 0 <= r < n -------------------------------------- */
/* Whether term k*t is a multiple of the divisor d; then sets *q to k*t/d. */
static bool term_divides(Cx *c, int64_t k, Expr *t, Expr *d, Expr **q) {
    int64_t v;
    if (e_is_int(d, &v)) {
        if (v <= 0 || k % v) return false;
        *q = e_muli(c, t, k / v);
        return true;
    }
    int64_t kd = 1;
    Expr *base = d;
    if (d->op == E_MUL && d->a[0]->op == E_CONST) {
        kd = d->a[0]->i;
        base = d->a[1];
    }
    if (base->op == E_ADD || kd <= 0 || k % kd) return false;
    Expr *f[16], *g[16];
    int n = factors(t, f, 0, 16), m = factors(base, g, 0, 16);
    if (n < 0 || m < 0) return false;
    for (int j = 0; j < m; j++) { /* remove each factor of d once */
        int i = 0;
        while (i < n && f[i] != g[j]) i++;
        if (i == n) return false;
        memmove(f + i, f + i + 1, sizeof *f * (size_t)(n - i - 1));
        n--;
    }
    *q = e_muli(c, n ? product(c, f, n) : e_int(c, 1), k / kd);
    return true;
}

/* Whether 0 <= r < d is proven, by ranges or by setting every axis to its last value. */
static bool below(Cx *c, Expr *r, Expr *d) {
    int64_t lo, hi, v;
    if (!e_range(r, &lo, &hi)) {
        /* no finite upper bound: prove the lower bound from non-negative parts */
        Lin l = {0};
        if (!lin_add(&l, r, 1) || l.k0 < 0) return false;
        for (int i = 0; i < l.n; i++) {
            Expr *f[16];
            int n = factors(l.t[i], f, 0, 16);
            if (n < 0 || l.k[i] < 0) return false;
            for (int j = 0; j < n; j++)
                if (!(f[j]->op == E_AXIS || (f[j]->op == E_SYM && f[j]->sym->lo >= 0)))
                    return false;
        }
        lo = 0;
        hi = INT64_MAX;
    }
    if (lo < 0) return false;
    if (e_is_int(d, &v) && hi < v) return true;
    Lin l = {0}, top = {0};
    if (!lin_add(&l, r, 1)) return false;
    top.k0 = l.k0;
    for (int i = 0; i < l.n; i++) {
        Expr *f[16];
        int n = factors(l.t[i], f, 0, 16);
        if (n < 0 || l.k[i] < 0) return false;
        Expr *p = e_int(c, l.k[i]);
        for (int j = 0; j < n; j++)
            p = e_mul(c, p, f[j]->op == E_AXIS ? e_addi(c, f[j]->axis->extent, -1) : f[j]);
        if (!lin_add(&top, p, 1)) return false;
    }
    Expr *gap = e_sub(c, d, lin_expr(c, &top));
    return e_is_int(gap, &v) && v > 0;
}

static Expr *divide(Cx *c, int op, Expr *a, Expr *b) {
    int64_t d;
    bool known = e_is_int(b, &d);
    if (known && d == 1) return op == E_MOD ? e_int(c, 0) : a;
    if (known && d <= 0) return NULL;
    if (a == b && op == E_FDIV && known) return e_int(c, 1);
    Lin l = {0}, rest = {0};
    if (!lin_add(&l, a, 1)) return NULL;
    Expr *quot = e_int(c, 0), *q;
    rest.k0 = l.k0;
    if (known) {
        int64_t fl = l.k0 / d - (l.k0 % d < 0);
        rest.k0 = l.k0 - fl * d;
        quot = e_int(c, fl);
    }
    for (int i = 0; i < l.n; i++) {
        if (term_divides(c, l.k[i], l.t[i], b, &q))
            quot = e_add(c, quot, q);
        else if (!lin_term(&rest, l.t[i], l.k[i]))
            return NULL;
    }
    Expr *r = lin_expr(c, &rest);
    if (below(c, r, b)) return op == E_MOD ? r : quot;
    if (!known || r == a) return NULL;
    r = raw(c, op, r, b);
    return op == E_MOD ? r : e_add(c, quot, r);
}

Expr *simplify_i64(Cx *c, int op, Expr *a, Expr *b) {
    Lin l = {0};
    int64_t lo, hi, lo2, hi2;
    switch (op) {
    case E_ADD:
    case E_SUB:
        if (lin_add(&l, a, 1) && lin_add(&l, b, op == E_ADD ? 1 : -1)) return lin_expr(c, &l);
        if (op == E_SUB && b->op != E_CONST)
            return raw(c, E_ADD, a, raw(c, E_MUL, e_int(c, -1), b));
        return NULL;
    case E_MUL:
        if (e_is_ival(a, 0) || e_is_ival(b, 0)) return e_int(c, 0);
        return mul(c, a, b);
    case E_FDIV:
    case E_MOD: return divide(c, op, a, b);
    case E_DIV:
    case E_FMOD:
        if (e_is_ival(b, 1)) return op == E_DIV ? a : e_int(c, 0);
        if (e_range(a, &lo, &hi) && lo >= 0 && e_range(b, &lo2, &hi2) && lo2 > 0)
            return e_bin(c, op == E_DIV ? E_FDIV : E_MOD, a, b);
        return NULL;
    case E_MIN:
    case E_MAX: {
        if (a == b) return a;
        Expr *d = e_sub(c, a, b);
        if (!e_range(d, &lo, &hi)) return NULL;
        if (lo >= 0) return op == E_MAX ? a : b;
        if (hi <= 0) return op == E_MAX ? b : a;
        return NULL;
    }
    default: return NULL;
    }
}

Expr *e_addi(Cx *c, Expr *a, int64_t k) { return e_add(c, a, e_ci(c, a->dtype, k)); }
Expr *e_muli(Cx *c, Expr *a, int64_t k) { return e_mul(c, a, e_ci(c, a->dtype, k)); }

/* ---- ranges ---------------------------------------------------------------------------------- */
/* INT64_MIN and INT64_MAX stand for unknown bounds. */
static int64_t sat_add(int64_t a, int64_t b) {
    int64_t r;
    if (a == INT64_MIN || b == INT64_MIN) return INT64_MIN;
    if (a == INT64_MAX || b == INT64_MAX) return INT64_MAX;
    if (__builtin_add_overflow(a, b, &r)) return a < 0 ? INT64_MIN : INT64_MAX;
    return r;
}
static int64_t sat_mul(int64_t a, int64_t b) {
    int64_t r;
    if (a == 0 || b == 0) return 0;
    if (a == INT64_MIN || a == INT64_MAX || b == INT64_MIN || b == INT64_MAX ||
        __builtin_mul_overflow(a, b, &r))
        return (a < 0) != (b < 0) ? INT64_MIN : INT64_MAX;
    return r;
}

/* Always gives bounds, infinite where nothing is known. Shared nodes are walked once per path, so
 * *steps limits the work. */
static void range(const Expr *e, int64_t *lo, int64_t *hi, int depth, int *steps) {
    int64_t a, b, c, d;
    const bool all = dtype_is_float(e->dtype) || dtype_small(e->dtype) || e->dtype == DT_U64;
    *lo = all ? INT64_MIN : int_least(e->dtype);
    *hi = all ? INT64_MAX : int_most(e->dtype);
    if (depth > 24 || --*steps < 0) return;
    switch (e->op) {
    case E_CONST:
        if (!dtype_is_float(e->dtype)) *lo = *hi = e->i;
        return;
    case E_SYM:
        if (e->dtype == DT_I64) *lo = e->sym->lo, *hi = e->sym->hi;
        return;
    case E_INDIM: *lo = 0; return;
    case E_LIMIT: *lo = 1; return;
    case E_AXIS:
        range(e->axis->extent, &a, &b, depth + 1, steps);
        *lo = 0;
        *hi = b == INT64_MAX ? b : b > 0 ? b - 1 : 0;
        return;
    case E_ADD:
        if (e->dtype != DT_I64) return;
        range(e->a[0], &a, &b, depth + 1, steps);
        range(e->a[1], &c, &d, depth + 1, steps);
        *lo = sat_add(a, c);
        *hi = sat_add(b, d);
        return;
    case E_MUL: {
        if (e->dtype != DT_I64) return;
        range(e->a[0], &a, &b, depth + 1, steps);
        range(e->a[1], &c, &d, depth + 1, steps);
        int64_t p[4] = {sat_mul(a, c), sat_mul(a, d), sat_mul(b, c), sat_mul(b, d)};
        *lo = *hi = p[0];
        for (int i = 1; i < 4; i++) {
            if (p[i] < *lo) *lo = p[i];
            if (p[i] > *hi) *hi = p[i];
        }
        return;
    }
    case E_FDIV:
        if (e->dtype != DT_I64) return;
        range(e->a[1], &c, &d, depth + 1, steps);
        if (c <= 0) return;
        range(e->a[0], &a, &b, depth + 1, steps);
        if (a >= 0) *lo = d == INT64_MAX ? 0 : a / d, *hi = b == INT64_MAX ? b : b / c;
        return;
    case E_MOD:
        if (e->dtype != DT_I64) return;
        range(e->a[1], &c, &d, depth + 1, steps);
        if (c > 0) *lo = 0, *hi = d == INT64_MAX ? d : d - 1;
        return;
    case E_MIN:
    case E_MAX:
    case E_SELECT:
    case E_GUARD:
        if (dtype_is_float(e->dtype)) return;
        range(e->a[e->n - 2], &a, &b, depth + 1, steps);
        range(e->a[e->n - 1], &c, &d, depth + 1, steps);
        *lo = (a < c) == (e->op != E_MAX) ? a : c;
        *hi = (b < d) == (e->op == E_MIN) ? b : d;
        return;
    case E_CAST: {
        const Expr *x = e->a[0];
        if (dtype_is_float(x->dtype) || dtype_is_float(e->dtype) || x->dtype == DT_U64) return;
        range(x, &a, &b, depth + 1, steps);
        if (a >= *lo && b <= *hi) *lo = a, *hi = b; /* no wrap */
        return;
    }
    case E_REDUCE:
        if (e->kind >= R_ARGMAX) *lo = 0;
        return;
    default: return;
    }
}

bool e_range(const Expr *e, int64_t *lo, int64_t *hi) {
    int steps = 4000;
    range(e, lo, hi, 0, &steps);
    return *lo != INT64_MIN || *hi != INT64_MAX;
}

bool e_at_most(Cx *c, Expr *a, Expr *b) {
    int64_t lo, hi;
    return a == b || (e_range(e_sub(c, b, a), &lo, &hi) && lo >= 0);
}

/* ---- affine ---------------------------------------------------------------------------------- */
bool e_affine(Cx *c, Expr *idx, Axis *x, Expr **coef, Expr **rest) {
    Lin l = {0}, k = {0}, r = {0};
    if (!e_uses_axis(idx, x)) {
        *coef = e_int(c, 0);
        *rest = idx;
        return true;
    }
    if (!lin_add(&l, idx, 1)) return false;
    r.k0 = l.k0;
    for (int i = 0; i < l.n; i++) {
        if (!e_uses_axis(l.t[i], x)) {
            if (!lin_term(&r, l.t[i], l.k[i])) return false;
            continue;
        }
        Expr *f[16];
        int n = factors(l.t[i], f, 0, 16), at = -1;
        if (n < 0) return false;
        for (int j = 0; j < n; j++) {
            if (!e_uses_axis(f[j], x)) continue;
            if (at >= 0 || f[j]->op != E_AXIS) return false;
            at = j;
        }
        memmove(f + at, f + at + 1, sizeof *f * (size_t)(n - at - 1));
        Expr *p = n > 1 ? product(c, f, n - 1) : e_int(c, 1);
        if (!lin_add(&k, p, l.k[i])) return false;
    }
    *coef = lin_expr(c, &k);
    *rest = lin_expr(c, &r);
    return true;
}

Expr *e_coef(Cx *c, Expr *idx, Axis *x) {
    Expr *coef, *rest;
    return e_affine(c, idx, x, &coef, &rest) ? coef : NULL;
}

bool e_by_one(Cx *c, Expr *idx, Axis *x) {
    const Expr *coef = e_coef(c, idx, x);
    return coef && e_is_ival(coef, 1);
}

bool e_strides(Cx *c, Expr *idx, int n, Axis *const *x, int64_t *stride, Expr **rest) {
    Expr *coef;
    *rest = idx;
    for (int i = 0; i < n; i++)
        if (!e_affine(c, *rest, x[i], &coef, rest) || !e_is_int(coef, &stride[i])) return false;
    return true;
}

int64_t axis_size(const Axis *x, int64_t unknown) {
    int64_t v;
    return e_is_int(x->extent, &v) ? v : unknown;
}

int64_t axes_size(int n, Axis *const *x, int64_t unknown) {
    int64_t all = 1;
    for (int i = 0; i < n; i++)
        if (!mul_size(all, axis_size(x[i], unknown), &all)) return INT64_MAX;
    return all;
}
