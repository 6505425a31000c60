/* contraction_operand.c: factors that are no loads, which units compute for themselves. */
#include "scheduler/kernel/contraction.h"

#define OPERANDS 32768 /* floats of all operands of a job: they lie on the stack */

/* Whether a and b are one value, and rows of it are laid out alike. */
static bool same_operand(Cx *c, const Built *a, const Built *b) {
    Expr *to[MAX_RANK * 2];
    if (a->nraxis != b->nraxis) return false;
    for (int i = 0; i < a->nraxis; i++) {
        if (a->raxis[i]->extent != b->raxis[i]->extent) return false;
        to[i] = e_axis(c, a->raxis[i]);
    }
    return e_subst(c, b->value, b->nraxis, b->raxis, to, NULL, NULL) == a->value;
}

/* Whether rows of o can stay where they are; then sets the position in them. */
static bool in_place(Cx *c, Built *o) {
    if (!o->rows || o->value->op != E_LOAD || o->value->dtype != DT_F32) return false;
    Expr *flat = flat_of(c, o->value), *at = e_int(c, 0);
    for (int i = 0; i < o->nraxis; i++) {
        Expr *coef = e_coef(c, flat, o->raxis[i]);
        if (!coef || coef->flags & (EF_AXIS | EF_LOAD | EF_GUARD)) return false;
        at = e_add(c, at, e_mul(c, coef, e_axis(c, o->raxis[i])));
    }
    o->at = at;
    return true;
}

void contraction_operands(Contraction *k) {
    Cx *c = k->g->c;
    int64_t all = 0;
    for (int j = 0; j < k->n; j++) {
        Product *p = &k->p[j];
        if (!p->columns) continue;
        Built o = {.value = p->sca,
                   .raxis = k->raxis[p->set],
                   .nraxis = k->nraxis[p->set],
                   .rows = k->m && e_uses_axis(p->sca, k->m),
                   .length = 1,
                   .at = e_int(c, 0)};
        o.in_place = in_place(c, &o);
        for (int i = o.nraxis - 1; i >= 0 && !o.in_place; i--) {
            if (!e_uses_axis(o.value, o.raxis[i])) continue;
            o.at = e_add(c, o.at, e_muli(c, e_axis(c, o.raxis[i]), o.length));
            o.length *= axis_size(o.raxis[i], 1);
        }
        int i = 0;
        while (i < k->noperand && !same_operand(c, &k->operand[i], &o)) i++;
        if (i == k->noperand) {
            k->operand[k->noperand++] = o;
            all += o.in_place ? 0 : o.length;
        }
        p->operand = i;
        p->sca_flat =
            o.rows && !o.in_place ? e_add(c, o.at, e_muli(c, e_axis(c, k->m), o.length)) : o.at;
    }
    k->job = all * ROW_BLOCK > OPERANDS ? (int)(OPERANDS / all) : ROW_BLOCK;
}
