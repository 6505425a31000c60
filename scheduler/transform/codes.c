/* codes.c: weights of few bits stay as they are in the model.
 *
 * A factor of a product that lowering computed as (code - zero) * scale, with scales that blocks
 * along the sum share, is marked as such (Tensor.coded): the kernel of the product reads its codes.
 * The expression stays what it is, so any other kernel reads the float32 numbers. */
#include "scheduler/cost/decide.h"
#include "scheduler/passes.h"
#include "utask/coded.h"
#include "utask/product.h"
#include "utask/walk.h"

typedef struct Codes {
    Cx *c;
    Map *seen; /* tensors */
} Codes;

static bool factors(void *user, Expr *e) {
    Codes *k = user;
    SumProduct p;
    if (!product_of(e, &p) || e->naxis != 1) return false;
    for (int i = 0; i < 2; i++) {
        const Expr *x = p.load[i];
        if (!x || x != p.factor[i] || x->kind || x->t->kind != TK_CONST || !x->t->folded) continue;
        int dim = product_dim(x, e->raxis[0]);
        if (dim >= 0 && map_add(k->seen, (uint64_t)x->t->id + 1))
            x->t->coded = coded_find(k->c, x->t, dim);
    }
    return false;
}

static void stmt(void *user, Stmt *s) {
    const Codes *k = user;
    if (s->kind == S_OP) find_reduction(map_new(k->c->a), s->op.t[0]->body, false, factors, user);
}

void pass_codes(Program *p) {
    Codes k = {p->cx, map_new(p->cx->a)};
    if (p->schedule->lanes > 1) seq_each(p->top, stmt, &k);
}
