/* windowed.c: see windowed.h. */
#include "scheduler/plan/windowed.h"
#include "utask/product.h"
#include "utask/walk.h"

typedef struct Windowed {
    Cx *c;
    uint32_t *dims; /* by tensor id */
    const Tensor *lead;
    const Expr *sum;
    uint32_t mask; /* dimensions of the group at hand */
    bool product;
} Windowed;

/* A load that moves along an axis of the group and one of the sum in one dimension: a window. */
static void window_load(void *user, Expr *e) {
    Windowed *w = user;
    for (int d = 0; d < e->n && !e->kind; d++) {
        bool inside = false;
        for (int i = 0; i < w->sum->naxis; i++) inside |= e_uses_axis(e->a[d], w->sum->raxis[i]);
        for (int i = 0; i < w->lead->rank && inside; i++) {
            if (!e_uses_axis(e->a[d], w->lead->axis[i])) continue;
            w->mask |= 1u << i;
            w->dims[e->t->id] |= 1u << d;
        }
    }
}

static bool window_sum(void *user, Expr *e) {
    Windowed *w = user;
    SumProduct p;
    if (!product_of_bytes(e, &p) && !product_of(e, &p)) return false;
    w->product = true;
    w->sum = e;
    for (int i = 0; i < 2; i++)
        if (p.load[i] && p.load[i]->t->kind == TK_CONST)
            e_each_load(w->c, p.factor[!i], window_load, w);
    return false; /* all of them */
}

static void carried_load(void *user, Expr *e) {
    Windowed *w = user;
    for (int d = 0; d < e->n && !e->kind; d++)
        for (int i = 0; w->dims[e->t->id] >> d & 1 && i < w->lead->rank; i++)
            if (e_uses_axis(e->a[d], w->lead->axis[i])) w->mask |= 1u << i;
}

static void note(void *user, Stmt *s) {
    Windowed *w = user;
    if (s->kind != S_OP) return;
    Map *seen = map_new(w->c->a);
    w->lead = s->op.t[0];
    w->mask = 0;
    w->product = false;
    for (int i = 0; i < s->op.n; i++) find_reduction(seen, s->op.t[i]->body, false, window_sum, w);
    for (int i = 0; i < s->op.n && !w->product; i++)
        e_each_load(w->c, s->op.t[i]->body, carried_load, w);
    for (int i = 0; i < s->op.n; i++) w->dims[s->op.t[i]->id] |= w->mask;
}

uint32_t *windowed_dims(Program *p) {
    Windowed w = {.c = p->cx};
    w.dims = NEWN(p->cx->a, uint32_t, p->cx->next_tensor + 1);
    seq_each(p->top, note, &w);
    return w.dims;
}
