/* transpose.c: see transpose.h. */
#include "scheduler/kernel/transpose.h"
#include "scheduler/cost/cost.h"
#include "scheduler/cost/decide.h"

#define LEAST 8 /* positions of an axis that are worth blocks */

/* The axis along which what e loads is contiguous, if it is not v and not moved along with v; else
 * NULL. */
static Axis *across(const Kernel *g, Expr *flat, Axis *v) {
    Cx *c = g->c;
    Expr *by_v = e_coef(c, flat, v);
    if (flat->flags & (EF_LOAD | EF_GUARD | EF_REDUCE) || !by_v || e_is_ival(by_v, 0) ||
        e_is_ival(by_v, 1) || by_v->flags & EF_AXIS)
        return NULL;
    for (int d = 0; d < g->naxis - 1; d++) {
        Expr *k = e_coef(c, flat, g->axis[d]);
        if (k && e_is_ival(k, 1) && axis_size(g->axis[d], LEAST) >= LEAST) return g->axis[d];
    }
    return NULL;
}

static bool is_member(const Kernel *g, const Tensor *t) {
    for (int i = 0; i < g->n; i++)
        if (g->t[i] == t) return true;
    return false;
}

/* Finds loads across below e; `always`: e is evaluated for every element. */
static bool find(TransposeKernel *k, Map *seen, Expr *e, bool always) {
    const Kernel *g = k->g;
    if (!(e->flags & EF_LOAD) || !map_add(seen, (uint64_t)e->id * 2 + always + 1)) return true;
    if (e->op == E_LOAD) {
        if (is_member(g, e->t)) return true;
        Expr *flat = flat_of(g->c, e);
        Axis *u = across(g, flat, k->v);
        if (!u || !always) return !u;
        if ((k->u && k->u != u) || k->nload == TRANSPOSE_LOADS) return false;
        k->u = u;
        for (int i = 0; i < k->nload; i++)
            if (k->load[i] == e) return true;
        k->flat[k->nload] = flat;
        k->load[k->nload++] = e;
        return true;
    }
    for (int i = 0; i < e->n; i++)
        if (!find(k, seen, e->a[i], always && i < e_always(e))) return false;
    return true;
}

/* Elements that are converted when they are loaded are not what memory holds. */
static bool as_stored(DType t) { return t != DT_F16 && t != DT_BF16 && t != DT_BOOL; }

bool kernel_transpose(Kernel *g) {
    Cx *c = g->c;
    TransposeKernel *k = NEW(g->a, TransposeKernel);
    Map *seen = map_new(g->a);
    if (g->naxis < 2) return false;
    k->g = g;
    k->v = g->axis[g->naxis - 1];
    if (axis_size(k->v, LEAST) < LEAST) return false;
    for (int i = 0; i < g->n; i++) {
        Expr *step = e_coef(c, g->position[i], k->v);
        if (g->value[i]->flags & (EF_REDUCE | EF_GUARD) || !step || !e_is_ival(step, 1) ||
            !find(k, seen, g->value[i], true))
            return false;
    }
    if (!k->u) return false;
    for (int i = 0; i < g->n; i++) {
        Expr *step = e_coef(c, g->position[i], k->u);
        if (!step || step->flags & EF_AXIS) return false;
    }
    k->copy = g->n == 1 && g->value[0] == k->load[0] && g->t[0]->dtype == k->load[0]->dtype;
    for (int i = 0; i < k->nload; i++)
        if (!k->copy && !as_stored((DType)k->load[i]->dtype)) return false;
    double ns = cost_group_ns(g->p, g->s, g->p->schedule->units);
    if (!decide_value(g->p, X_TRANSPOSE, g->s, 2, (Way[]){{1, ns}, {0, ns}})) return false;
    g->kind = KERNEL_TRANSPOSE;
    g->transpose = k;
    return true;
}
