/* replicate.c: values that every unit computes for itself.
 *
 * What the activations of a recursion compute on their way down (which arm they take, what they
 * pass on) is little, but a unit that needs all of it would have to wait for those who computed it,
 * several times an activation. Where the cost model finds it no more expensive, each unit computes
 * all of it into memory of its own, and none waits.
 *
 * Requires the final groups; comes before unit levels are chosen. Only what is made of parameters,
 * of values from outside and of others like it qualifies: then units need not synchronize before it
 * either. Its size must be unknown at compile time: what has a known size lies in the activation's
 * frame, which all units share. The same holds for the arguments of the first call. */
#include "scheduler/cost/cost.h"
#include "scheduler/plan/crossing.h"
#include "scheduler/cost/decide.h"
#include "scheduler/passes.h"
#include "utask/extern.h"
#include "utask/walk.h"
#include <math.h>

typedef struct Replicate {
    Program *p;
    Cx *c;
    Map *shared; /* tensor id -> itself: what units compute together in the present body */
} Replicate;

/* Whether s, or a statement in it, needs more of what is in `made` than the part that its unit may
 * have written. */
static bool needs_all(Replicate *x, Map *made, const Stmt *s);

typedef struct Needs {
    Replicate *x;
    Map *made;
    bool call, any;
} Needs;

static void needs_slot(void *user, const Slot *k) {
    Needs *n = user;
    if (k->kind == SLOT_EXPR) n->any |= expr_crosses(n->x->c, n->made, *k->e);
    if (k->kind == SLOT_READ && n->call) n->any |= tensor_crosses(n->made, *k->t);
    for (int i = 0; k->kind == SLOT_SEQ && i < (*k->q)->s.n && !n->any; i++)
        n->any = needs_all(n->x, n->made, (*k->q)->s.p[i]);
}

static bool needs_all(Replicate *x, Map *made, const Stmt *s) {
    Needs n = {x, made, s->kind == S_CALL, s->kind == S_CALL && s->call.nfunc};
    if (!n.call && s->kind != S_BRANCH) return stmt_crosses(x->p, made, s, false);
    if (!n.any) stmt_slots(s, needs_slot, &n);
    return n.any;
}

static bool of_unknown_size(const Tensor *t) {
    int64_t v;
    if (t->rank < 0 || t->blob || t->owned || t->ret || t->base) return false;
    for (int d = 0; d < t->rank; d++)
        if (!e_is_int(t->dim[d], &v)) return true;
    return false;
}

static bool may_be(Replicate *x, const Stmt *s) {
    const bool op = s->kind == S_OP;
    if (op ? s->op.at || op_is_empty(s) : s->kind != S_EXTERN || s->ext.row->changes_input)
        return false;
    for (int i = 0, n = op ? s->op.n : s->ext.nout; i < n; i++)
        if (!of_unknown_size(op ? s->op.t[i] : s->ext.out[i])) return false;
    return !stmt_crosses(x->p, x->shared, s, true);
}

static void replicate(Replicate *x, Seq *q) {
    const Device *d = x->p->schedule->device;
    int units = x->p->schedule->units;
    for (int i = 0; i < q->s.n; i++) {
        Stmt *s = q->s.p[i];
        for (int m = 0; s->kind == S_BRANCH && m < 2; m++) replicate(x, s->br.arm[m]);
        if (may_be(x, s)) {
            Map *made = map_new(x->c->a);
            bool needed = false;
            stmt_writes(made, s);
            for (int k = i + 1; k < q->s.n && !needed; k++) needed = needs_all(x, made, q->s.p[k]);
            double own = cost_stmt_ns(x->p, s, 1);
            double shared = fmin(own, cost_stmt_ns(x->p, s, units));
            s->each = needed &&
                      decide(x->p, X_REPLICATE, s, shared + d->level[LEVEL_TEAM].barrier_ns, own);
        }
        stmt_writes(x->shared, s);
    }
}

static void outside_only(void *user, Expr *e) {
    const Tensor *t = tensor_root(e->t);
    if (t->kind != TK_INPUT && t->kind != TK_CONST) *(bool *)user = false;
}

/* What a recursion of many activations at once starts with: all units would wait for it. */
static void arguments(Replicate *x, Seq *q, const Stmt *start) {
    const Device *d = x->p->schedule->device;
    for (int i = 0; i < q->s.n && q->s.p[i] != start; i++) {
        Stmt *s = q->s.p[i];
        if (s->kind != S_OP || s->op.n != 1 || s->op.at || op_is_empty(s)) continue;
        const Tensor *t = s->op.t[0];
        bool argument = false, free = !t->owned && !t->ret && !t->base && t->rank >= 0 && !t->blob;
        for (int k = 0; k < start->call.f->narg; k++) argument |= start->call.arg[k] == t;
        e_each_load(x->c, t->body, outside_only, &free);
        double own = cost_stmt_ns(x->p, s, 1);
        if (argument && free)
            s->each = decide(x->p, X_REPLICATE, s, own + d->level[LEVEL_TEAM].barrier_ns, own);
    }
}

static void recursion(void *user, Seq *q, int *at) {
    Replicate *x = user;
    const Stmt *s = q->s.p[*at];
    if (s->kind == S_CALL && s->call.nfunc && s->call.f->rows) arguments(x, q, s);
    for (int k = 0; s->kind == S_CALL && k < s->call.nfunc; k++) {
        x->shared = map_new(x->c->a);
        replicate(x, s->call.func[k]->body);
    }
}

void pass_replicate(Program *p) {
    Replicate x = {.p = p, .c = p->cx};
    if (p->schedule->units > 1) seq_rewrite(p->top, recursion, &x);
}
