/* pick.c: a sum of which one term at most is not zero is that term.
 *
 * sum(r < n: select(r == x, v, 0) * W[r, j]) = select(0 <= x < n, v * W[x, j], 0)
 *
 * A product with one-hot rows reads the rows that they name. W is a constant without infinities and
 * NaN, which times zero would not be zero. */
#include <math.h>

#include "scheduler/passes.h"
#include "utask/product.h"
#include "utask/walk.h"

typedef struct Pick {
    Cx *c;
    Expr *by; /* what a sum becomes */
} Pick;

static bool is_zero(const Expr *e) {
    return e->op == E_CONST && dtype_is_float(e->dtype) && e->f == 0 && !signbit(e->f);
}

/* A load of a tensor that is computed by a condition: its expression. */
static Expr *opened(Cx *c, Expr *e) {
    while (e->op == E_LOAD && !e->kind && e->t->kind == TK_TE && !e->t->owned &&
           (e->t->body->op == E_LOAD || e->t->body->op == E_SELECT || e->t->body->op == E_CAST ||
            e->t->body->op == E_EQ))
        e = e_subst(c, e->t->body, e->t->rank, e->t->axis, e->a, NULL, NULL);
    return e;
}

/* Whether cond is r == *at. */
static bool names(const Expr *cond, const Axis *r, Expr **at) {
    for (int k = 0; k < 2 && cond->op == E_EQ; k++)
        if (cond->a[k]->op == E_AXIS && cond->a[k]->axis == r && !e_uses_axis(cond->a[!k], r)) {
            *at = cond->a[!k];
            return true;
        }
    return false;
}

/* Whether e is *value where r is *at, else 0. */
static bool one_hot(Cx *c, Expr *e, const Axis *r, Expr **at, Expr **value) {
    e = opened(c, e);
    if (e->op == E_CAST && e->a[0]->dtype == DT_BOOL) {
        *value = e_num(c, e->dtype, 1);
        return names(opened(c, e->a[0]), r, at);
    }
    if (e->op != E_SELECT || !is_zero(e->a[2]) || e_uses_axis(e->a[1], r)) return false;
    *value = e->a[1];
    return names(opened(c, e->a[0]), r, at);
}

static bool picked(void *user, Expr *e) {
    Pick *k = user;
    Cx *c = k->c;
    SumProduct p;
    Expr *at, *value;
    if (!product_of(e, &p) || e->dtype != DT_F32 || e->naxis != 1) return false;
    Axis *r = e->raxis[0];
    for (int side = 0; side < 2; side++) {
        const Expr *w = p.factor[!side];
        if (w->op != E_LOAD || !is_finite_constant(w->t) ||
            !one_hot(c, p.factor[side], r, &at, &value))
            continue;
        Expr *inside = e_and(c, e_le(c, e_int(c, 0), at), e_lt(c, at, r->extent));
        Expr *term = e_mul(c, value, e_subst(c, p.factor[!side], 1, &r, &at, NULL, NULL));
        k->by = e_sel(c, inside, term, e_num(c, DT_F32, 0));
        return true;
    }
    return false;
}

static void pick(void *user, Stmt *o) {
    Pick *k = user;
    for (int i = 0; o->kind == S_OP && i < o->op.n; i++) {
        Tensor *t = o->op.t[i];
        Expr *from;
        while ((from = find_reduction(map_new(k->c->a), t->body, false, picked, k)))
            t->body = e_replace(k->c, t->body, from, k->by);
    }
}

void pass_pick(Program *p) {
    Pick k = {.c = p->cx};
    seq_each(p->top, pick, &k);
}
