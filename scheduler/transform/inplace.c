/* inplace.c: updates of a carried tensor that change a known part of it.
 *
 * A next value of the form  select(i_a == u, new, phi[own position])  with u the same for all
 * elements differs from the carried value only where i_a is u. When nothing else in the loop reads
 * the old value, the loop keeps one buffer and the group computes only that part of it, instead of
 * copying the tensor in each iteration. A sequence into which each iteration inserts is kept in one
 * buffer, too, and so is a value that only grows (grow.c) or that is filled row by row. */
#include "utask/extern.h"
#include "scheduler/passes.h"
#include "utask/walk.h"

typedef struct Count {
    Cx *c;
    const Tensor *t;
    int n;
} Count;

static void count_load(void *user, Expr *e) {
    Count *k = user;
    k->n += tensor_root(e->t) == k->t;
}
static void count_slot(void *user, const Slot *s) {
    Count *k = user;
    k->n += s->kind == SLOT_READ && tensor_root(*s->t) == k->t;
    if (slot_is_expr(s)) e_each_load(k->c, *s->e, count_load, k);
}
static void count_stmt(void *user, Stmt *s) {
    Count *k = user;
    k->n += s->kind == S_CALL; /* a function may have captured it */
    stmt_slots(s, count_slot, k);
}

/* Uses of t, a phi of `loop`, in q and as what the loop carries. */
static int uses_in(Cx *c, const Stmt *loop, const Seq *q, const Tensor *t) {
    Count k = {c, t, 0};
    seq_each(q, count_stmt, &k);
    for (int i = 0; i < loop->loop.carry.n; i++)
        k.n += loop->loop.carry.p[i].next == t || loop->loop.carry.p[i].init == t;
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

static void try_carry(Program *p, Stmt *loop, LoopCarry *k) {
    Cx *c = p->cx;
    Tensor *t = k->next, *phi = k->phi;
    if (t->kind != TK_TE || t->body->op != E_SELECT || phi->rank < 0) return;
    for (int d = 0; d < phi->rank; d++)
        if (loop_varies(loop, phi->dim[d]) || phi->dim[d] != t->dim[d]) return;
    Expr *at[MAX_RANK] = {NULL}, *to[MAX_RANK];
    if (!load_is_own(t->body->a[2], phi, t) || !fixed_axes(t, t->body->a[0], at)) return;
    Stmt *s = tensor_group(t);
    if (!s || s->op.n != 1 || uses_in(c, loop, loop->loop.body, phi) != 1) return;
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
        if (uses_in(p->cx, loop, &rest, k->phi)) return;
        s->ext.row = extern_find(s->ext.row->in_place);
        k->push = true;
        return;
    }
}

/* Takes t out of its group, which is in q. */
static void remove_member(Seq *q, const Tensor *t) {
    for (int i = 0; i < q->s.n; i++) {
        Stmt *s = q->s.p[i];
        int n = 0;
        for (int m = 0; s->kind == S_OP && m < s->op.n; m++)
            if (s->op.t[m] != t) s->op.t[n++] = s->op.t[m];
        if (s->kind != S_OP || n == s->op.n) continue;
        s->op.n = n;
        if (n) return;
        memmove(q->s.p + i, q->s.p + i + 1, sizeof *q->s.p * (size_t)(q->s.n - i - 1));
        q->s.n--;
        return;
    }
}

/* What is filled row by row: its rows lie in it already, so the next value is computed nowhere, and
 * there is nothing to begin with. */
static void fill_rows(Program *p, Stmt *loop, LoopCarry *k) {
    Cx *c = p->cx;
    Tensor *t = k->next;
    remove_member(t->seq, t);
    remove_member(k->init->seq, k->init);
    k->init = NULL;
    k->inplace = true;
    Expr *at[MAX_RANK] = {e_int(c, 0)};
    t->axis[0] = axis_new(c, e_int(c, 0));
    t->body = e_num(c, t->dtype, 0);
    Stmt *s = stmt_op(c, t, loop->path);
    s->op.at = arena_memdup(c->a, at, sizeof at);
    vec_push(c->a, &loop->loop.body->s, s);
}

static void try_loop(void *user, Seq *q, int *at) {
    Program *p = user;
    Stmt *s = q->s.p[*at];
    for (int k = 0; s->kind == S_LOOP && k < s->loop.carry.n; k++) {
        LoopCarry *c = &s->loop.carry.p[k];
        if (c->rows)
            fill_rows(p, s, c);
        else if (c->phi->blob)
            try_push(p, s, c);
        else if (!grow_in_place(p, s, c))
            try_carry(p, s, c);
    }
}

void pass_inplace(Program *p) { seq_rewrite(p->top, try_loop, p); }
