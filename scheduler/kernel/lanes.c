/* lanes.c: see lanes.h. */
#include "scheduler/kernel/lanes.h"
#include "scheduler/cost/cost.h"
#include "scheduler/cost/decide.h"
#include "utask/product.h"

/* Whether e can be evaluated for neighbouring values of v as vectors: loads move by one element or
 * none, and no condition depends on v. */
static bool contiguous(LanesKernel *k, Map *seen, Expr *e, bool *moves) {
    Cx *c = k->g->c;
    if (!e_uses_axis(e, k->v) || !map_add(seen, (uint64_t)e->id + 1)) return true;
    if (e->op == E_LOAD) {
        Expr *flat = flat_of(c, e), *coef;
        if (flat->flags & EF_GUARD) return false;
        coef = e_coef(c, flat, k->v); /* where it is loaded, it is the same for all values of v */
        return *moves = coef && e_is_ival(coef, 1);
    }
    if (e->op == E_REDUCE || e->op == E_GUARD || e->op == E_AXIS ||
        (e->op == E_SELECT && e_uses_axis(e->a[0], k->v)))
        return false;
    for (int i = 0; i < e->n; i++)
        if (!contiguous(k, seen, e->a[i], moves)) return false;
    return true;
}

/* Takes a reduction, which can be computed so. */
static bool take(void *user, Expr *e) {
    LanesKernel *k = user;
    bool moves = false;
    if ((e->kind >= R_ARGMAX && axis_size(e->raxis[0], INT32_MAX) >= INT32_MAX) ||
        e->a[0]->dtype == DT_F16 || e->a[0]->dtype == DT_BF16 || e->dtype == DT_F16 ||
        e->dtype == DT_BF16 || k->n == LANES_REDUCES || e->a[0]->flags & (EF_REDUCE | EF_GUARD) ||
        !contiguous(k, map_new(k->g->a), e->a[0], &moves))
        return false;
    k->reduce[k->n++] = e;
    return moves;
}

bool kernel_lanes(Kernel *g) {
    LanesKernel *k = NEW(g->a, LanesKernel);
    int64_t n;
    if (!g->naxis) return false;
    k->g = g;
    k->v = g->axis[g->naxis - 1];
    if (e_is_int(k->v->extent, &n) && n * 2 < g->lanes) return false;
    Map *seen = map_new(g->a);
    for (int i = 0; i < g->n; i++)
        if (!all_reductions(seen, g->value[i], take, k)) return false;
    if (!k->n) return false;
    double ns = cost_group_ns(g->p, g->s, g->p->schedule->units);
    if (!decide_value(g->p, X_LANES, g->s, 2, (Way[]){{1, ns}, {0, ns}})) return false;
    g->kind = KERNEL_LANES;
    g->by_lanes = k;
    return true;
}
