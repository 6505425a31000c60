/* inplace.c: updates of a carried tensor that change a known part of it.
 *
 * A next value of the form  select(i_a == u, new, phi[own position])  with u the same for all
 * elements differs from the carried value only where i_a is u. When nothing else in the loop reads
 * the old value, the loop keeps one buffer and the group computes only that part of it, instead of
 * copying the tensor in each iteration. A sequence into which each iteration inserts is kept in one
 * buffer, too, and so is a value that only grows (grow.c). */
#include "utask/extern.h"
#include "scheduler/passes.h"

typedef struct Count {
    const Tensor *t;
    int n;
} Count;

static void count_load(void *user, Expr *e) {
    Count *k = user;
    if (e->t == k->t || (e->t->kind == TK_VIEW && e->t->base == k->t)) k->n++;
}

/* Uses of t in q other than as the phi of `loop`. */
static int uses_in(Cx *c, const Seq *q, const Tensor *t) {
    Count k = {t, 0};
    for (int i = 0; i < q->s.n; i++) {
        const Stmt *s = q->s.p[i];
        switch (s->kind) {
        case S_LET: e_each_load(c, s->let.e, count_load, &k); break;
        case S_OP:
            for (int m = 0; m < s->op.n; m++) e_each_load(c, s->op.t[m]->body, count_load, &k);
            break;
        case S_EXTERN:
            for (int m = 0; m < s->ext.nin; m++) k.n += s->ext.in[m] == t;
            break;
        case S_LOOP:
            for (int m = 0; m < s->loop.carry.n; m++) k.n += s->loop.carry.p[m].init == t;
            if (s->loop.cond_next) e_each_load(c, s->loop.cond_next, count_load, &k);
            k.n += uses_in(c, s->loop.body, t);
            break;
        case S_BRANCH:
            for (int m = 0; m < s->br.joins.n; m++)
                k.n += s->br.joins.p[m].arm[0] == t || s->br.joins.p[m].arm[1] == t;
            k.n += uses_in(c, s->br.arm[0], t) + uses_in(c, s->br.arm[1], t);
            break;
        case S_CALL: k.n++; break; /* a function may have captured it */
        default: break;
        }
    }
    return k.n;
}

/* Splits a conjunction of axis == value; false when cond is anything else. */
static bool fixed_axes(const Tensor *t, Expr *cond, Expr **at) {
    if (cond->op == E_AND) return fixed_axes(t, cond->a[0], at) && fixed_axes(t, cond->a[1], at);
    if (cond->op != E_EQ || cond->a[0]->dtype != DT_I64) return false;
    for (int side = 0; side < 2; side++) {
        Expr *x = cond->a[side], *u = cond->a[!side];
        if (x->op != E_AXIS || (u->flags & EF_AXIS)) continue;
        for (int d = 0; d < t->rank; d++) {
            if (t->axis[d] != x->axis || at[d]) continue;
            at[d] = u;
            return true;
        }
    }
    return false;
}

static Stmt *statement_of(const Seq *q, const Tensor *t) {
    for (int i = 0; i < q->s.n; i++)
        if (q->s.p[i]->kind == S_OP && q->s.p[i]->op.n == 1 && q->s.p[i]->op.t[0] == t)
            return q->s.p[i];
    return NULL;
}

static void try_carry(Program *p, Stmt *loop, LoopCarry *k) {
    Cx *c = p->cx;
    Tensor *t = k->next, *phi = k->phi;
    if (t->kind != TK_TE || t->body->op != E_SELECT || phi->rank < 0) return;
    for (int d = 0; d < phi->rank; d++)
        if (loop_varies(loop, phi->dim[d]) || phi->dim[d] != t->dim[d]) return;
    Expr *at[MAX_RANK] = {NULL}, *to[MAX_RANK];
    if (!load_is_own(t->body->a[2], phi, t) || !fixed_axes(t, t->body->a[0], at)) return;
    Stmt *s = statement_of(loop->loop.body, t);
    if (!s || uses_in(c, loop->loop.body, phi) != 1) return;
    for (int i = 0; i < loop->loop.carry.n; i++)
        if (loop->loop.carry.p[i].next == phi || (loop->loop.carry.p[i].init == phi)) return;
    for (int d = 0; d < t->rank; d++) to[d] = at[d] ? at[d] : e_axis(c, t->axis[d]);
    t->body = e_subst(c, t->body->a[1], t->rank, t->axis, to, NULL, NULL);
    for (int d = 0; d < t->rank; d++)
        if (at[d]) t->axis[d] = axis_new(c, e_int(c, 1));
    s->op.at = arena_memdup(c->a, at, sizeof at);
    k->inplace = true;
}

/* The value of a loop that each iteration inserts into, and does not look at afterwards. */
static void try_push(Program *p, Stmt *loop, LoopCarry *k) {
    const Seq *q = loop->loop.body;
    for (int i = 0; i < q->s.n; i++) {
        Stmt *s = q->s.p[i];
        if (s->kind != S_EXTERN || s->ext.out[0] != k->next) continue;
        if (!s->ext.row->in_place || s->ext.in[0] != k->phi) return;
        Seq rest = *q;
        rest.s.p += i + 1;
        rest.s.n -= i + 1;
        if (uses_in(p->cx, &rest, k->phi)) return;
        for (int j = 0; j < loop->loop.carry.n; j++)
            if (loop->loop.carry.p[j].next == k->phi || loop->loop.carry.p[j].init == k->phi)
                return;
        s->ext.row = extern_find(s->ext.row->in_place);
        k->push = true;
        return;
    }
}

static void walk(Program *p, Seq *q) {
    for (int i = 0; i < q->s.n; i++) {
        Stmt *s = q->s.p[i];
        if (s->kind == S_BRANCH)
            for (int k = 0; k < 2; k++) walk(p, s->br.arm[k]);
        if (s->kind == S_CALL)
            for (int k = 0; k < s->call.nfunc; k++) walk(p, s->call.func[k]->body);
        if (s->kind != S_LOOP) continue;
        walk(p, s->loop.body);
        for (int k = 0; k < s->loop.carry.n; k++) {
            LoopCarry *c = &s->loop.carry.p[k];
            if (c->phi->blob)
                try_push(p, s, c);
            else if (!grow_in_place(p, s, c))
                try_carry(p, s, c);
        }
    }
}

void pass_inplace(Program *p) {
    walk(p, p->top);
    p->nsym = p->cx->next_sym;
}
