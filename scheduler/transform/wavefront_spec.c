/* wavefront_spec.c: what a member does outside of its iterations. It computes from values that mean
 * nothing ("wild"), so these may decide about nothing that can fault or not end: no index, no trip
 * count, no check. */
#include "scheduler/transform/wavefront.h"

static bool is_wild(const Wave *w, int kind, int id) {
    return map_geti(w->wild, (uint64_t)id * 2 + (uint64_t)kind + 1) != NULL;
}
static void set_wild(Wave *w, int kind, int id) {
    map_seti(w->wild, (uint64_t)id * 2 + (uint64_t)kind + 1, w);
}
static void wild_tensor(void *user, Tensor *t) { set_wild(user, 0, t->id); }
static void wild_sym(void *user, Sym *s) { set_wild(user, 1, s->id); }

enum { TAME = 1, WILD = 2 };

/* Whether e is meaningless; w->ok ends when that could fault. */
static bool expr_wild(Wave *w, Map *seen, const Expr *e) {
    if (!(e->flags & (EF_SYM | EF_LOAD))) return false;
    uintptr_t known = (uintptr_t)map_geti(seen, (uint64_t)e->id + 1);
    if (known) return known == WILD;
    bool wild = e->op == E_SYM && is_wild(w, 1, e->sym->id);
    for (int i = 0; i < e->n; i++) {
        bool part = expr_wild(w, seen, e->a[i]);
        if (part && (e->op == E_LOAD || (e->op == E_GUARD && i == 0))) w->ok = false;
        wild |= part;
    }
    for (int i = 0; e->op == E_REDUCE && i < e->naxis; i++)
        if (expr_wild(w, seen, e->raxis[i]->extent)) w->ok = false;
    if (e->op == E_LOAD) wild |= wave_after(w, e->t) || is_wild(w, 0, tensor_root(e->t)->id);
    map_seti(seen, (uint64_t)e->id + 1, (void *)(uintptr_t)(wild ? WILD : TAME));
    return wild;
}

static bool wild(Wave *w, const Expr *e) { return e && expr_wild(w, map_new(w->a), e); }

static void tame_dims(Wave *w, const Tensor *t) {
    if (t->blob || t->rank < 0) w->ok = false;
    for (int i = 0; i < t->rank; i++)
        if (wild(w, t->dim[i])) w->ok = false;
}

static void spec_seq(Wave *w, const Seq *q) {
    for (int i = 0; i < q->s.n && w->ok; i++) {
        const Stmt *s = q->s.p[i];
        switch (s->kind) {
        case S_LET:
            if (wild(w, s->let.e)) wild_sym(w, s->let.sym);
            break;
        case S_OP:
            for (int k = 0; k < s->op.n; k++) {
                tame_dims(w, s->op.t[k]);
                if (wild(w, s->op.t[k]->body)) wild_tensor(w, s->op.t[k]);
            }
            break;
        case S_CHECK:
            if (wild(w, s->check.cond)) w->ok = false;
            break;
        case S_BRANCH:
            wild(w, s->br.cond);
            for (int k = 0; k < 2; k++) spec_seq(w, s->br.arm[k]);
            for (int k = 0; k < s->br.joins.n; k++) {
                tame_dims(w, s->br.joins.p[k].out);
                if (!s->br.joins.p[k].arm[0] || !s->br.joins.p[k].arm[1]) w->ok = false;
            }
            stmt_defines(s, wild_tensor, wild_sym, w);
            break;
        case S_LOOP:
            if (!wave_counted(s) || wild(w, s->loop.trips)) w->ok = false;
            for (int k = 0; k < s->loop.syms.n; k++) wild_sym(w, s->loop.syms.p[k].sym);
            for (int k = 0; k < s->loop.carry.n; k++) {
                tame_dims(w, s->loop.carry.p[k].phi);
                wild_tensor(w, s->loop.carry.p[k].phi);
            }
            for (int k = 0; k < s->loop.scan.n; k++) {
                tame_dims(w, s->loop.scan.p[k].out);
                wild_tensor(w, s->loop.scan.p[k].out);
            }
            spec_seq(w, s->loop.body);
            break;
        default: w->ok = false; break; /* hand-written bodies and calls may do anything */
        }
    }
}

/* The same dims in all iterations, those of `like`. */
static bool steady(const Stmt *loop, const Tensor *t, Expr *const *like) {
    if (t->kind != TK_TE) return false;
    for (int i = 0; i < t->rank; i++)
        if (t->dim[i] != like[i]) return false;
    return loop_keeps_dims(loop, t);
}

/* Whether the member may run iterations that it does not have. */
bool wave_speculates(Wave *w, const Member *m) {
    const Stmt *s = m->s;
    w->wild = map_new(w->a);
    w->ok = true;
    for (int i = 0; i < s->loop.syms.n; i++) wild_sym(w, s->loop.syms.p[i].sym);
    for (int i = 0; i < s->loop.carry.n; i++) {
        const LoopCarry *k = &s->loop.carry.p[i];
        if (!steady(s, k->next, k->phi->dim)) return false;
        /* A change of one part will be made in place, which a copy of the whole would undo. */
        if (k->next->body->op == E_SELECT && load_is_own(k->next->body->a[2], k->phi, k->next))
            return false;
        wild_tensor(w, k->phi);
    }
    for (int i = 0; i < s->loop.scan.n; i++)
        if (!steady(s, s->loop.scan.p[i].elem, s->loop.scan.p[i].out->dim + 1)) return false;
    for (int i = w->first; i <= w->last; i++) { /* what is sliced */
        const Stmt *o = w->q->s.p[i];
        if (o->kind != S_OP || !map_geti(m->dim, (uint64_t)o->op.t[0]->id + 1)) continue;
        tame_dims(w, o->op.t[0]);
        wild(w, o->op.t[0]->body);
    }
    spec_seq(w, s->loop.body);
    for (int i = 0; i < s->loop.syms.n; i++) wild(w, s->loop.syms.p[i].next);
    return w->ok;
}
