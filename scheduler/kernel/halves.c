/* halves.c: see halves.h. */
#include "scheduler/kernel/halves.h"
#include "scheduler/cost/cost.h"
#include "scheduler/cost/decide.h"

static bool is_member(const Kernel *g, const Tensor *t) {
    for (int i = 0; i < g->n; i++)
        if (g->t[i] == t) return true;
    return false;
}

/* Finds the loads below e that every element does; false: there are too many. */
static bool find(HalvesKernel *k, Map *seen, Expr *e, bool always) {
    Cx *c = k->g->c;
    if (!(e->flags & EF_LOAD) || !map_add(seen, (uint64_t)e->id * 2 + always + 1)) return true;
    if (e->op == E_LOAD) {
        if (e->t->dtype != DT_F16 || !always || is_member(k->g, e->t)) return true;
        Expr *flat = flat_of(c, e), *step = e_coef(c, flat, k->v);
        if (flat->flags & (EF_LOAD | EF_GUARD) || !step || !e_is_ival(step, 1)) return true;
        for (int i = 0; i < k->nload; i++)
            if (k->load[i] == e) return true;
        if (k->nload == HALVES_LOADS) return false;
        k->flat[k->nload] = flat;
        k->load[k->nload++] = e;
        return true;
    }
    for (int i = 0; i < e->n; i++)
        if (!find(k, seen, e->a[i], always && i < e_always(e))) return false;
    return true;
}

bool kernel_halves(Kernel *g) {
    Cx *c = g->c;
    HalvesKernel *k = NEW(g->a, HalvesKernel);
    Map *seen = map_new(g->a);
    bool stores = false;
    if (!g->naxis) return false;
    k->g = g;
    k->v = g->axis[g->naxis - 1];
    if (axis_size(k->v, g->lanes) < g->lanes) return false;
    for (int i = 0; i < g->n; i++) {
        Expr *step = e_coef(c, g->position[i], k->v);
        if (g->value[i]->flags & (EF_REDUCE | EF_GUARD) || !step || !e_is_ival(step, 1) ||
            !find(k, seen, g->value[i], true))
            return false;
        stores |= g->t[i]->dtype == DT_F16;
    }
    /* What is only moved stays as it is. */
    if ((!k->nload && !stores) || (g->n == 1 && g->value[0]->op == E_LOAD)) return false;
    double ns = cost_group_ns(g->p, g->s, g->p->schedule->units);
    if (!decide_value(g->p, X_HALVES, g->s, 2, (Way[]){{1, ns}, {0, 3 * ns}})) return false;
    g->kind = KERNEL_HALVES;
    g->halves = k;
    return true;
}
