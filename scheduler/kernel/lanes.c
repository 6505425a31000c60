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

/* Whether all reductions can be computed for lanes along v. */
static bool takes_all(LanesKernel *k, Axis *v) {
    const Kernel *g = k->g;
    Map *seen = map_new(g->a);
    int64_t n;
    k->v = v;
    k->n = 0;
    if (e_is_int(v->extent, &n) && n * 2 < g->lanes) return false;
    for (int i = 0; i < g->n; i++)
        if (!all_reductions(seen, g->value[i], take, k)) return false;
    return k->n > 0;
}

/* Whether the members can be moved from tiles of v and the last axis to where they lie. */
static bool can_be_across(const LanesKernel *k) {
    const Kernel *g = k->g;
    for (int i = 0; i < g->n; i++) {
        const Expr *v = e_coef(g->c, g->position[i], k->v), *m = e_coef(g->c, g->position[i], k->m);
        if (g->value[i]->flags & EF_GUARD || !v || v->flags & EF_AXIS || !m || !e_is_ival(m, 1))
            return false;
    }
    return true;
}

bool kernel_lanes(Kernel *g) {
    LanesKernel *k = NEW(g->a, LanesKernel);
    if (!g->naxis) return false;
    k->g = g;
    Axis *last = g->axis[g->naxis - 1];
    k->tile = LANES_TILE;
    bool found = takes_all(k, last);
    for (int i = g->naxis - 2; i >= 0 && !found && axis_size(last, LANES_ROWS) > 1; i--) {
        k->m = last;
        k->tile = LANES_ACROSS;
        found =
            axis_size(g->axis[i], 0) >= g->lanes && takes_all(k, g->axis[i]) && can_be_across(k);
    }
    if (!found) return false;
    double ns = cost_group_ns(g->p, g->s, g->p->schedule->units);
    if (!decide_value(g->p, X_LANES, g->s, 2, (Way[]){{1, ns}, {0, ns}})) return false;
    g->kind = KERNEL_LANES;
    g->by_lanes = k;
    return true;
}
