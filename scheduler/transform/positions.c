/* positions.c: constants that are functions of their position become expressions.
 *
 * A tensor all of whose elements are equal, a range, a range times a stride along each axis, a row
 * or a matrix with two values that change where an axis is at a position, or at another axis's
 * (one-hot rows, identities, masks), or before it (triangles), is not read: other passes see where
 * its values change, and no memory is. A write of a cache row where a range equals the iteration
 * number is so known to be a row (inplace.c), in whatever form its indices come.
 *
 * A constant that is a product's factor stays: products pack it. So does one of floats with two
 * values that fits the first cache: reading it is cheaper than comparing positions.
 *
 * Requires loads of constants as lowering leaves them. Changes no values. */
#include <math.h>

#include "scheduler/passes.h"
#include "utask/product.h"
#include "utask/walk.h"

#define KEEP_BYTES (32 << 10) /* of floats with two values, which are kept */

typedef enum { FORM_NONE, FORM_EQUAL, FORM_LINEAR, FORM_TWO } FormKind;

typedef struct Form {
    FormKind kind;
    double base, step[MAX_RANK]; /* FORM_LINEAR */
    /* FORM_TWO: element `yes` where the position along `a`, less that along `b` (-1: 0), equals
     * `at`, or is at most `at`; else `no` */
    int64_t yes, no, at;
    int a, b;
    bool below;
} Form;

typedef struct Positions {
    Cx *c;
    Map *kept, *forms, *seen; /* by tensor id */
} Positions;

/* ---- what a constant is ---------------------------------------------------------------------- */
static bool same(const Const *k, int64_t i, int64_t j) {
    const size_t size = dtype_size(k->dtype);
    const char *data = k->data;
    return memcmp(data + (size_t)i * size, data + (size_t)j * size, size) == 0;
}

static bool all_equal(const Const *k) {
    for (int64_t i = 1; i < k->count; i++)
        if (!same(k, 0, i)) return false;
    return true;
}

/* The next position, the last axis fastest. */
static void advance(const Const *k, int64_t *idx) {
    for (int d = k->rank - 1; d >= 0 && ++idx[d] == k->dim[d]; d--) idx[d] = 0;
}

/* base + sum of step * position, in whole numbers that the type holds. */
static bool linear(const Const *k, Form *f) {
    const double most = dtype_is_int(k->dtype) ? 0x1p52 : k->dtype == DT_F64 ? 0x1p52 : 0x1p24;
    if (!dtype_is_int(k->dtype) && k->dtype != DT_F32 && k->dtype != DT_F64) return false;
    f->base = elem_get_f(k->dtype, k->data, 0);
    int64_t stride = 1, idx[MAX_RANK] = {0};
    for (int d = k->rank - 1; d >= 0; stride *= k->dim[d--])
        f->step[d] = k->dim[d] > 1 ? elem_get_f(k->dtype, k->data, stride) - f->base : 0;
    for (int64_t i = 0; i < k->count; i++, advance(k, idx)) {
        double want = f->base, x = elem_get_f(k->dtype, k->data, i);
        for (int d = 0; d < k->rank; d++) want += f->step[d] * (double)idx[d];
        if (x != want || x != floor(x) || fabs(x) > most || (x == 0 && signbit(x))) return false;
    }
    return true;
}

/* Whether the elements are as f says. */
static bool is_two(const Const *k, const Form *f) {
    int64_t idx[MAX_RANK] = {0};
    for (int64_t i = 0; i < k->count; i++, advance(k, idx)) {
        const int64_t x = idx[f->a] - (f->b >= 0 ? idx[f->b] : 0);
        const bool yes = f->below ? x <= f->at : x == f->at;
        if (!same(k, i, yes ? f->yes : f->no)) return false;
    }
    return true;
}

/* Along axis a, at position 0 of all others, the first change: an element there and one behind it
 * say what f must be. */
static bool try_two(const Const *k, int a, int b, Form *f) {
    int64_t stride = 1, across = 1, change = 1;
    for (int d = k->rank - 1; d > a; d--) stride *= k->dim[d];
    for (int d = k->rank - 1; d > b && b >= 0; d--) across *= k->dim[d];
    *f = (Form){.kind = FORM_TWO, .a = a, .b = b};
    while (change < k->dim[a] && same(k, 0, change * stride)) change++;
    if (change == k->dim[a]) { /* only the others have changes: where b is so far */
        if (b < 0) return false;
        const int64_t last = (k->dim[a] - 1) * stride;
        int64_t far = 1;
        while (far < k->dim[b] && same(k, last, last + far * across)) far++;
        if (far == k->dim[b]) return false;
        f->below = true;
        f->at = k->dim[a] - 1 - far;
        f->yes = last + far * across;
        return is_two(k, f);
    }
    /* The first `change` elements are alike: all before it, or the one at 0. */
    f->below = true;
    f->at = change - 1;
    f->no = change * stride;
    if (is_two(k, f)) return true;
    f->below = false;
    f->at = change == 1 ? 0 : change;
    f->yes = change == 1 ? 0 : change * stride;
    f->no = change == 1 ? stride : 0;
    if (is_two(k, f)) return true;
    f->at = change;
    f->yes = change * stride;
    f->no = 0;
    return is_two(k, f);
}

static bool two(const Const *k, Form *f) {
    const bool floats = !dtype_is_int(k->dtype) && k->dtype != DT_BOOL;
    if (floats && k->count * (int64_t)dtype_size(k->dtype) < KEEP_BYTES) return false;
    for (int a = 0; a < k->rank; a++)
        for (int b = -1; b < k->rank; b++)
            if (b != a && k->dim[a] > 1 && (b < 0 || k->dim[b] > 1) && try_two(k, a, b, f))
                return true;
    return false;
}

static const Form *form_of(Positions *x, const Tensor *t) {
    Form *f = map_geti(x->forms, (uint64_t)t->id + 1);
    const Const *k = t->data;
    if (f) return f;
    f = NEW(x->c->a, Form);
    if (k->count > 0 && all_equal(k))
        f->kind = FORM_EQUAL;
    else if (k->count > 1 && linear(k, f))
        f->kind = FORM_LINEAR;
    else if (k->count < 2 || !two(k, f))
        f->kind = FORM_NONE;
    map_seti(x->forms, (uint64_t)t->id + 1, f);
    return f;
}

/* ---- loads of it ----------------------------------------------------------------------------- */
static Expr *element(Positions *x, const Form *f, const Const *k, Expr *const *idx) {
    Cx *c = x->c;
    if (f->kind == FORM_EQUAL) return e_elem(c, k, 0);
    if (f->kind == FORM_LINEAR) {
        Expr *v = e_int(c, (int64_t)f->base);
        for (int d = 0; d < k->rank; d++) v = e_add(c, v, e_muli(c, idx[d], (int64_t)f->step[d]));
        return e_cast(c, k->dtype, v);
    }
    Expr *p = idx[f->a], *at = e_int(c, f->at);
    if (f->b >= 0) at = e_add(c, idx[f->b], at);
    Expr *yes = f->below ? e_le(c, p, at) : e_eq(c, p, at);
    if (k->dtype == DT_BOOL) return elem_get_i(DT_BOOL, k->data, f->yes) ? yes : e_not(c, yes);
    return e_sel(c, yes, e_elem(c, k, f->yes), e_elem(c, k, f->no));
}

static Expr *replace(void *user, Expr *e) {
    Positions *x = user;
    if (e->t->kind != TK_CONST || map_geti(x->kept, (uint64_t)e->t->id + 1)) return NULL;
    const Form *f = form_of(x, e->t);
    if (f->kind == FORM_NONE || (e->kind && f->kind != FORM_EQUAL)) return NULL;
    Expr *idx[MAX_RANK];
    for (int d = 0; d < e->n; d++) idx[d] = e_subst(x->c, e->a[d], 0, NULL, NULL, replace, x);
    return element(x, f, e->t->data, idx);
}

/* ---- the factors of products ----------------------------------------------------------------- */
static bool keep_factors(void *user, Expr *e) {
    Positions *x = user;
    SumProduct p;
    for (int i = 0; i < 2 && product_of(e, &p); i++)
        if (p.load[i] && p.load[i]->t->kind == TK_CONST)
            map_seti(x->kept, (uint64_t)p.load[i]->t->id + 1, x);
    return false;
}

static void keep(void *user, const Slot *k) {
    Positions *x = user;
    if (k->kind == SLOT_READ) map_seti(x->kept, (uint64_t)tensor_root(*k->t)->id + 1, x);
    if (slot_is_expr(k)) find_reduction(x->seen, *k->e, false, keep_factors, x);
}

static void rewrite(void *user, const Slot *k) {
    if (slot_is_expr(k))
        *k->e = e_subst(((Positions *)user)->c, *k->e, 0, NULL, NULL, replace, user);
}

void pass_positions(Program *p) {
    Cx *c = p->cx;
    Positions x = {c, map_new(c->a), map_new(c->a), map_new(c->a)};
    seq_slots(p->top, keep, &x);
    seq_slots(p->top, rewrite, &x);
}
