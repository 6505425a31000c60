/* sliding.c: see sliding.h. */
#include "scheduler/kernel/sliding.h"
#include "scheduler/cost/cost.h"
#include "scheduler/cost/decide.h"
#include "utask/product.h"

static bool take(void *user, Expr *e) {
    SlidingKernel *k = user;
    const bool first = !k->reduce || k->reduce == e;
    k->reduce = e;
    return first;
}

/* What the types are that vectors compute, or the compiler's own. */
static bool type_fits(const Expr *e) {
    if (e->kind == R_SUM) return e->dtype == DT_F32;
    return (e->kind == R_MAX || e->kind == R_MIN) &&
           (e->dtype == DT_F32 || e->dtype == DT_I8 || e->dtype == DT_U8);
}

/* A constant coefficient of x. */
static bool coefficient(Cx *c, Expr *e, Axis *x, int64_t *n) {
    Expr *k = e_coef(c, e, x);
    return k && e_is_int(k, n);
}

/* Adds the bound second - first >= slack of a row's elements; false: it is none. */
static bool bound(SlidingKernel *k, Expr *first, Expr *second, int64_t slack) {
    Cx *c = k->g->c;
    int64_t v, x;
    if (first->dtype != DT_I64) return false;
    Expr *room = e_sub(c, second, first), *rest, *coef;
    if (!coefficient(c, room, k->v, &v) || !coefficient(c, room, k->along, &x)) return false;
    const bool up = v > 0 || x > 0;
    if (v != (up ? k->stride : -k->stride) || x != (up ? k->apart : -k->apart)) return false;
    if (!e_affine(c, room, k->v, &coef, &rest) || !e_affine(c, rest, k->along, &coef, &rest))
        return false;
    for (int i = 0; i < k->reduce->naxis; i++)
        if (e_uses_axis(rest, k->reduce->raxis[i])) return false;
    if (rest->flags & (EF_LOAD | EF_GUARD)) return false;
    if (up && k->nlow < SLIDING_BOUNDS)
        k->low[k->nlow++] = e_sub(c, e_int(c, slack), rest);
    else if (!up && k->nhigh < SLIDING_BOUNDS)
        k->high[k->nhigh++] = e_addi(c, rest, 1 - slack);
    else
        return false;
    return true;
}

static bool condition(SlidingKernel *k, Expr *e) {
    Cx *c = k->g->c;
    if (e->op == E_AND) return condition(k, e->a[0]) && condition(k, e->a[1]);
    if (!e_uses_axis(e, k->v) && !e_uses_axis(e, k->along)) {
        k->inside = e_and(c, k->inside, e);
        return !(e->flags & (EF_LOAD | EF_GUARD | EF_REDUCE));
    }
    return e->op == E_LE   ? bound(k, e->a[0], e->a[1], 0)
           : e->op == E_LT ? bound(k, e->a[0], e->a[1], 1)
                           : false;
}

/* The reduced axis that moves as v does: v and it have constant steps, and its is the shorter. */
static bool find_along(SlidingKernel *k, Expr *flat) {
    Cx *c = k->g->c;
    Expr *e = k->reduce;
    int64_t rows = 1, n, step;
    if (!coefficient(c, flat, k->v, &k->stride) || k->stride < 1) return false;
    for (int i = 0; i < e->naxis; i++) {
        if (!e_is_int(e->raxis[i]->extent, &n) || n < 1 || n > SLIDING_ROWS) return false;
        if (!k->along && i == e->naxis - 1) {
            k->along = e->raxis[i];
            if (!coefficient(c, flat, k->along, &step) || step < 1) return false;
            k->apart = step;
            k->taps = n;
        } else
            rows *= n;
        if (rows > SLIDING_ROWS) return false;
    }
    /* Of elements far from each other the row would be mostly what no window has. */
    if (!k->along || k->taps > 64 || k->stride > 2 * k->taps || k->apart > 8) return false;
    k->rows = rows;
    return true;
}

static bool plan(SlidingKernel *k) {
    Cx *c = k->g->c;
    Expr *e = k->reduce, *load = e->a[0], *zero = e_int(c, 0);
    if (load->op == E_SELECT) {
        if (load->a[2] != e_identity(c, (ReduceKind)e->kind, e->dtype)) return false;
        load = load->a[1];
    }
    if (load->op != E_LOAD || load->dtype != e->dtype) return false;
    Expr *flat = flat_of(c, load);
    if (flat->flags & (EF_LOAD | EF_GUARD) || !find_along(k, flat)) return false;
    k->of = load->t;
    k->at = e_subst(c, flat, 1, &k->along, &zero, NULL, NULL);
    k->inside = e_bool(c, true);
    if (e->a[0]->op == E_SELECT && !condition(k, e->a[0]->a[0])) return false;
    k->tile = axis_size(k->v, SLIDING_TILE);
    if (k->tile > SLIDING_TILE) k->tile = SLIDING_TILE;
    k->line =
        (k->tile - 1 + k->g->lanes) * k->stride + (k->taps - 1) * k->apart + 1 + 2 * k->g->lanes;
    k->lines = k->u ? SLIDING_LINES : 1;
    while (k->lines > 1 && k->lines * k->line > 2 * SLIDING_LINE) k->lines /= 2;
    return k->line <= SLIDING_LINE;
}

bool kernel_sliding(Kernel *g) {
    if (!g->naxis) return false;
    SlidingKernel *k = NEW(g->a, SlidingKernel);
    int64_t n;
    k->g = g;
    k->v = g->axis[g->naxis - 1];
    k->u = g->naxis > 1 ? g->axis[g->naxis - 2] : NULL;
    if (e_is_int(k->v->extent, &n) && n < 4) return false;
    Map *seen = map_new(g->a);
    for (int i = 0; i < g->n; i++)
        if (!all_reductions(seen, g->value[i], take, k)) return false;
    if (!k->reduce || !type_fits(k->reduce) || !plan(k)) return false;
    double ns = cost_group_ns(g->p, g->s, g->p->schedule->units);
    if (!decide_value(g->p, X_SLIDING, g->s, 2, (Way[]){{1, ns}, {0, ns}})) return false;
    g->kind = KERNEL_SLIDING;
    g->sliding = k;
    return true;
}
