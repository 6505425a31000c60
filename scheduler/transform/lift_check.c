/* lift_check.c: checks of counted loops that can be made before them.
 *
 * A comparison of sums that are linear in the iteration number holds in all iterations when it
 * holds in the first and in the last one. So the bounds of x[i], which each iteration would check,
 * are checked once, and what the check protects may leave the loop, too. */
#include "scheduler/passes.h"
#include "utask/walk.h"

/* Whether cond holds for all x when it does for the least and the greatest. */
static bool is_monotone(Cx *c, const Expr *e, Axis *x) {
    Expr *coef, *rest;
    if (!e_uses_axis(e, x)) return true;
    switch (e->op) {
    case E_AND: return is_monotone(c, e->a[0], x) && is_monotone(c, e->a[1], x);
    case E_OR:
        return (!e_uses_axis(e->a[0], x) && is_monotone(c, e->a[1], x)) ||
               (!e_uses_axis(e->a[1], x) && is_monotone(c, e->a[0], x));
    case E_NOT: return (e->a[0]->op == E_LT || e->a[0]->op == E_LE) && is_monotone(c, e->a[0], x);
    case E_LT:
    case E_LE:
        return e->a[0]->dtype == DT_I64 && e_affine(c, e_sub(c, e->a[1], e->a[0]), x, &coef, &rest);
    default: return false;
    }
}

/* The check before the loop that makes s superfluous; NULL: there is none. */
static Expr *before_loop(Cx *c, const Stmt *loop, const Stmt *s) {
    Expr *iter = e_sym(c, loop->loop.iter), *trips = loop->loop.trips;
    const Seq *outer = loop->loop.body->parent;
    Expr *own = e_told(s->check.cond);
    if (!own->pure || iter->op != E_SYM) return NULL;
    Axis *x = axis_new(c, e_max(c, trips, e_int(c, 0)));
    Expr *cond = e_replace(c, own, iter, e_axis(c, x));
    if (e_is_ival(cond, 1)) return cond;
    if (!is_monotone(c, cond, x)) return NULL;
    Expr *to[2] = {e_int(c, 0), e_addi(c, trips, -1)};
    Expr *first = e_replace(c, own, iter, to[0]), *last = e_replace(c, own, iter, to[1]);
    if (!loop_keeps(loop, first) || !expr_visible(last, outer)) return NULL;
    /* The values of the iteration that fails. */
    Expr *say[SAID_MAX], *tell = s->check.cond;
    int n = tell->op == E_TELL ? tell->n - 1 : 0;
    for (int i = 0; i < n; i++) {
        Expr *v[2];
        for (int k = 0; k < 2; k++) {
            v[k] = e_replace(c, tell->a[1 + i], iter, to[k]);
            if (!v[k]->pure || !loop_keeps(loop, v[k])) v[k] = e_int(c, UNSAID);
        }
        say[i] = e_sel(c, first, v[1], v[0]);
    }
    return e_tell(c, e_or(c, e_le(c, trips, e_int(c, 0)), e_and(c, first, last)), n, say);
}

/* The loop at q->s.p[*at]: its checks go before it. */
static void lift(void *user, Seq *q, int *at) {
    Cx *c = user;
    Stmt *loop = q->s.p[*at];
    if (!loop_counted(loop)) return;
    Seq *body = loop->loop.body;
    int n = 0;
    for (int i = 0; i < body->s.n; i++) {
        Stmt *s = body->s.p[i];
        Expr *cond = s->kind == S_CHECK ? before_loop(c, loop, s) : NULL;
        if (!cond) {
            body->s.p[n++] = s;
            continue;
        }
        if (e_is_ival(cond, 1)) continue;
        s->check.cond = cond;
        seq_put_at(c, q, (*at)++, s);
    }
    body->s.n = n;
}

void pass_lift_check(Program *p) { seq_rewrite(p->top, lift, p->cx); }
