/* quotient.c: see quotient.h. */
#include "scheduler/kernel/quotient.h"

/* The load of t's element at its own position but for dimension `dim`, where the index is `at`
 * (NULL: its own axis, too). */
static bool reads_row(const Expr *e, const Tensor *t, int dim, const Expr *at) {
    if (e->op != E_LOAD || e->kind || e->t->rank != t->rank) return false;
    for (int d = 0; d < t->rank; d++) {
        const Expr *i = e->a[d];
        if (d == dim && at ? i != at : i->op != E_AXIS || i->axis != t->axis[d]) return false;
    }
    return true;
}

/* t reduces all of dimension *dim of what it loads, at its own position of the others. */
static Expr *row_reduction(Cx *c, const Tensor *t, ReduceKind kind, int *dim) {
    Expr *e = t->kind == TK_TE ? t->body : NULL;
    if (!e || e->op != E_REDUCE || e->kind != kind || e->naxis != 1 || e->a[0]->op != E_LOAD)
        return NULL;
    Expr *load = e->a[0], *at = e_axis(c, e->raxis[0]);
    for (*dim = 0; *dim < load->n && load->a[*dim] != at;) ++*dim;
    return *dim < load->n && load->t->dim[*dim] == e->raxis[0]->extent &&
                   reads_row(load, t, *dim, at)
               ? load
               : NULL;
}

/* Whether d is the sum over a row of e^(x - max x). */
static bool is_softmax_sum(Cx *c, const Tensor *d) {
    int dim, other;
    const Expr *terms = row_reduction(c, d, R_SUM, &dim), *e;
    const Tensor *t = terms ? terms->t : NULL;
    if (!t || t->kind != TK_TE || t->body->op != E_EXP) return false;
    e = t->body->a[0];
    if (e->op != E_SUB || !reads_row(e->a[0], t, -1, NULL) ||
        !reads_row(e->a[1], t, dim, e_int(c, 0)))
        return false;
    const Expr *all = row_reduction(c, e->a[1]->t, R_MAX, &other);
    return all && other == dim && all->t == e->a[0]->t;
}

static Expr *find(Cx *c, Map *seen, Expr *e) {
    if (!(e->flags & EF_LOAD) || e->op == E_LOAD || !map_add(seen, (uint64_t)e->id + 1))
        return NULL;
    if (e->op == E_DIV && e->dtype == DT_F32 && e->a[1]->op == E_LOAD &&
        !(e->a[0]->op == E_CONST) && is_softmax_sum(c, e->a[1]->t))
        return e;
    Expr *r = NULL;
    for (int i = 0; i < e->n && !r; i++) r = find(c, seen, e->a[i]);
    return r;
}

void kernel_quotients(Kernel *k) {
    Cx *c = k->c;
    for (int i = 0; i < k->n; i++)
        for (Expr *e; (e = find(c, map_new(k->a), k->value[i]));) {
            Expr *inverse = e_div(c, e_num(c, DT_F32, 1), e->a[1]);
            k->value[i] = e_replace(c, k->value[i], e, e_mul(c, e->a[0], inverse));
        }
}
