/* constants.c: what is made of constants alone is computed here.
 *
 * Lowering computes most of it, but leaves what opens codes of 8 bits and fewer: passes before this
 * one look for products whose kernels read the codes. Whatever still opens codes now is opened for
 * good. */
#include "scheduler/passes.h"
#include "utask/walk.h"

/* A view of a constant is a constant. */
static void settle_view(void *user, Expr *load) {
    Cx *c = user;
    Tensor *t = load->t;
    const Tensor *base = tensor_root(t);
    int64_t dim[MAX_RANK];
    if (t->kind != TK_VIEW || base->kind != TK_CONST || t->rank < 0) return;
    for (int i = 0; i < t->rank; i++)
        if (!e_is_int(t->dim[i], &dim[i])) return;
    Const *k = arena_memdup(c->a, base->data, sizeof *k);
    k->rank = t->rank;
    memcpy(k->dim, dim, sizeof *dim * (size_t)t->rank);
    t->kind = TK_CONST;
    t->data = k;
}

static void settle(void *user, Seq *q, int *at) {
    const Program *p = user;
    Stmt *s = q->s.p[*at];
    if (s->kind != S_OP || s->level == LEVEL_HOST) return;
    Tensor *t = s->op.t[0];
    e_each_load(p->cx, t->body, settle_view, p->cx);
    if (t->owned || t->ret || t->elem) return;
    const Sources from = tensor_sources(p->cx, t);
    const Const *k = tensor_fold(p->cx, t, &from);
    if (!k) return;
    t->kind = TK_CONST;
    t->data = k;
    t->seq = p->top;
    t->folded = t->body;
    t->body = NULL;
    memmove(q->s.p + *at, q->s.p + *at + 1, sizeof *q->s.p * (size_t)(--q->s.n - *at));
    --*at;
}

void pass_constants(Program *p) { seq_rewrite(p->top, settle, p); }
