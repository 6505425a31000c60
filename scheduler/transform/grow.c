/* grow.c: carried values that only become longer.
 * A next value that is the carried value with something appended (or prepended) along one axis is
 * kept in one buffer with room for more: the group computes only what is added, instead of copying
 * all the rest in each iteration. What leads from the carried value to the next one may be several
 * steps, and pass through branches; the values between share the buffer, for each begins (or ends)
 * with the one before. Dimensions outside of the growing one are as far apart in the buffer as
 * there is room, so inside the loop its elements are addressed with the room as that dimension's
 * extent; after the loop the value is made dense again where it does not fill the buffer. */
#include "scheduler/cost/cost.h"
#include "scheduler/cost/decide.h"
#include "scheduler/passes.h"
#include "utask/walk.h"

/* Bytes of a buffer that is planned for its upper bound, though the loop may end before. */
#define SMALL_BYTES ((int64_t)1 << 18)
/* Beyond that, memory is taken at run time although the size is known. */
#define STATIC_BYTES ((int64_t)1 << 26)

typedef struct Grown { /* one value of the chain */
    Tensor *t, *from;  /* from NULL: t is a join */
    Expr *added; /* the new part's elements, at the axes of t but `at` along the growing one */
    Expr *rows;  /* how many are added */
} Grown;

typedef struct Chain {
    Program *p;
    Cx *c;
    Stmt *loop;
    Tensor *phi;
    int axis; /* -1: none yet */
    int tries;
    bool front, branches;
    VEC(Grown) step;
} Chain;

/* ---- one value from another ------------------------------------------------------------------ */
/* cond is  i < threshold  with i the axis x. */
static Expr *threshold_of(Cx *c, const Expr *cond, Axis *x) {
    if (cond->op != E_LT || cond->a[0]->dtype != DT_I64) return NULL;
    Expr *u = e_add(c, e_sub(c, cond->a[1], cond->a[0]), e_axis(c, x));
    return u->flags & (EF_AXIS | EF_LOAD) ? NULL : u;
}

/* e is a load of t's element at domain's own position, moved by -shift along dimension axis. */
static bool own_load(Cx *c, const Expr *e, const Tensor *domain, int axis, Expr *shift) {
    if (e->op != E_LOAD || e->kind || e->t->rank != domain->rank) return false;
    for (int d = 0; d < domain->rank; d++) {
        if (d != axis && e->t->dim[d] != domain->dim[d]) return false;
        if (d != axis && e_is_ival(domain->dim[d], 1)) continue;
        Expr *own = e_axis(c, domain->axis[d]);
        if (e->a[d] != (d == axis ? e_sub(c, own, shift) : own)) return false;
    }
    return true;
}

/* t as another tensor, *from, with something appended along `axis`, which is the result. NULL: t is
 * not of this form. */
static Expr *behind(Cx *c, const Tensor *t, Expr *e, int axis, Expr *below, Tensor **from) {
    if (e->op != E_SELECT) return NULL;
    Expr *u = threshold_of(c, e->a[0], t->axis[axis]);
    if (!u || (below && !e_at_most(c, u, below))) return NULL;
    const Expr *old = e->a[1];
    if (own_load(c, old, t, axis, e_int(c, 0)) && old->t->dim[axis] == u) {
        *from = old->t;
        return e->a[2];
    }
    Expr *first = behind(c, t, e->a[1], axis, u, from);
    return first ? e_sel(c, e->a[0], first, e->a[2]) : NULL;
}

static Expr *before(Cx *c, const Tensor *t, Expr *e, int axis, Tensor **from) {
    if (e->op != E_SELECT) return NULL;
    Expr *u = threshold_of(c, e->a[0], t->axis[axis]);
    if (!u) return NULL;
    const Expr *old = e->a[2];
    if (own_load(c, old, t, axis, u)) {
        if (e_add(c, u, old->t->dim[axis]) != t->dim[axis]) return NULL;
        *from = old->t;
        return e->a[1];
    }
    Expr *rest = before(c, t, e->a[2], axis, from);
    if (!rest || !e_at_most(c, u, e_sub(c, t->dim[axis], (*from)->dim[axis]))) return NULL;
    return e_sel(c, e->a[0], e->a[1], rest);
}

/* Adds the steps from the carried value to t, last ones first. *rows: how many they add at most. */
static bool trace(Chain *k, Tensor *t, Expr **rows) {
    Cx *c = k->c;
    *rows = e_int(c, 0);
    if (t == k->phi) return true;
    if (t->rank != k->phi->rank || t->grow || ++k->tries > 200 || (t->owned && k->step.n))
        return false;
    Grown s = {.t = t};
    if (t->kind == TK_JOIN) {
        const Join *j = tensor_join(t);
        Expr *of[2] = {*rows, *rows};
        vec_push(c->a, &k->step, s);
        k->branches = true;
        for (int m = 0; j && m < 2; m++)
            if (j->arm[m] && !trace(k, j->arm[m], &of[m])) return false;
        *rows = e_bin(c, E_MAX, of[0], of[1]);
        return j != NULL;
    }
    const Stmt *group = tensor_group(t);
    if (t->kind != TK_TE || !group || group->op.at) return false;
    if (own_load(c, t->body, t, 0, e_int(c, 0)) && t->body->t->dim[0] == t->dim[0]) {
        s.from = t->body->t;
        s.rows = *rows;
        s.added = e_num(c, t->dtype, 0); /* nothing is computed */
        vec_push(c->a, &k->step, s);
        return trace(k, s.from, rows);
    }
    for (int d = 0; d < t->rank; d++)
        for (int front = 0; front < 2; front++) {
            if (k->axis >= 0 && (d != k->axis || front != k->front)) continue;
            s.added =
                front ? before(c, t, t->body, d, &s.from) : behind(c, t, t->body, d, NULL, &s.from);
            if (!s.added) continue;
            Chain up = *k;
            s.rows = e_sub(c, t->dim[d], s.from->dim[d]);
            k->axis = d;
            k->front = front;
            vec_push(c->a, &k->step, s);
            if (trace(k, s.from, rows)) {
                *rows = e_add(c, s.rows, *rows);
                return true;
            }
            up.tries = k->tries;
            *k = up;
        }
    return false;
}

/* ---- what else happens to the values --------------------------------------------------------- */
typedef struct ChainUses {
    const Chain *k;
    const Stmt *at; /* at hand */
    bool bad;
} ChainUses;

static bool in_chain(const Chain *k, const Tensor *t) {
    if (t == k->phi) return true;
    for (int i = 0; i < k->step.n; i++)
        if (k->step.p[i].t == t) return true;
    return false;
}

/* Uses t as a dense tensor. */
static void dense(ChainUses *u, const Tensor *t) {
    if (in_chain(u->k, tensor_root(t))) u->bad = true;
}
static void dense_load(void *user, Expr *e) {
    if (e->kind || e->t->kind == TK_VIEW) dense(user, e->t);
}
static void dense_slot(void *user, const Slot *k) {
    ChainUses *u = user;
    if (k->kind == SLOT_READ && u->at->kind != S_BRANCH) dense(u, *k->t);
    if (slot_is_expr(k)) e_each_load(u->k->c, *k->e, dense_load, u);
}

static bool uses_dense(void *user, const Stmt *s) {
    ChainUses *u = user;
    u->at = s;
    if (s->kind == S_CALL) u->bad = true; /* a function may have captured it */
    stmt_slots(s, dense_slot, u);
    for (int i = 0; s->kind == S_BRANCH && i < s->br.joins.n; i++)
        for (int m = 0; m < 2 && !in_chain(u->k, s->br.joins.p[i].out); m++)
            if (s->br.joins.p[i].arm[m]) dense(u, s->br.joins.p[i].arm[m]);
    return u->bad;
}

/* ---- doing it -------------------------------------------------------------------------------- */
/* The statement with member t alone. Those before and after it become groups of their own. */
static Stmt *isolate(Cx *c, Seq *q, Stmt *s, const Tensor *t) {
    int at = 0, m = 0, n = s->op.n;
    while (q->s.p[at] != s) at++;
    while (s->op.t[m] != t) m++;
    Tensor **all = s->op.t;
    if (m > 0) {
        Stmt *first = stmt_new(c, S_OP, s->path);
        first->op.n = m;
        first->op.t = all;
        seq_put_at(c, q, at++, first);
    }
    s->op.n = 1;
    s->op.t = all + m;
    if (m + 1 < n) {
        Stmt *rest = stmt_new(c, S_OP, s->path);
        rest->op.n = n - m - 1;
        rest->op.t = all + m + 1;
        seq_put_at(c, q, at + 1, rest);
    }
    return s;
}

static void apply(Chain *k, Grow *g, Grown *s) {
    Cx *c = k->c;
    Tensor *t = s->t;
    t->grow = g;
    if (!s->from) return;
    Stmt *one = isolate(c, t->seq, tensor_group(t), t);
    Expr *start = g->front ? e_int(c, 0) : s->from->dim[g->axis], *to[MAX_RANK];
    Axis *rows = axis_new(c, s->rows);
    for (int d = 0; d < t->rank; d++) to[d] = e_axis(c, t->axis[d]);
    to[g->axis] = e_add(c, start, e_axis(c, rows));
    t->body = e_subst(c, s->added, t->rank, t->axis, to, NULL, NULL);
    t->axis[g->axis] = rows;
    t->base = s->from;
    one->op.at = NEWN(c->a, Expr *, MAX_RANK);
    one->op.at[g->axis] = start;
}

/* How much room there is: known when the loop starts if its upper bound is. */
static void set_room(Chain *k, Grow *g, Expr *rows) {
    Cx *c = k->c;
    const Stmt *loop = k->loop;
    bool ends_early = loop->loop.cond0 || loop->loop.cond_next;
    int64_t room, bytes = (int64_t)dtype_size(k->phi->dtype), v;
    Expr *stride = NULL;
    if (loop->loop.trips && loop_keeps(loop, rows)) {
        Expr *trips = e_bin(c, E_MAX, loop->loop.trips, e_int(c, 0));
        Expr *most = e_add(c, g->first, e_mul(c, trips, rows));
        bool small = e_is_int(most, &room) && mul_size(bytes, room, &bytes);
        for (int d = 0; small && d < k->phi->rank; d++)
            small = d == g->axis || (e_is_int(k->phi->dim[d], &v) && mul_size(bytes, v, &bytes));
        g->planned = small && bytes <= (ends_early ? SMALL_BYTES : STATIC_BYTES);
        if (g->planned || !ends_early) g->rows = rows;
        if (g->planned) g->most = room;
        if (g->planned && !ends_early && !k->branches)
            stride = most; /* it is full after the loop */
    }
    if (!stride) {
        g->room = sym_new(c, DT_I64, "room", 0);
        g->room->scope = k->phi->seq;
        stride = e_sym(c, g->room);
    }
    if (g->spaced) g->extent = stride;
}

/* Copying all of the value in each iteration, or once when the loop begins and perhaps once after
 * it. */
static bool worthwhile(Chain *k, const Grow *g) {
    const Device *d = k->p->schedule->device;
    double size = (double)dtype_size(k->phi->dtype), trips = cost_size(k->loop->loop.trips);
    for (int i = 0; i < k->phi->rank; i++)
        size *= cost_size(i == g->axis ? g->first : k->phi->dim[i]);
    double copy = 2 * size / d->level[LEVEL_CORE].read_gbps + d->group_ns;
    return decide(k->p, X_APPEND, k->loop, (trips + 1) * copy, (g->spaced ? 2 : 1) * copy);
}

bool grow_in_place(Program *p, Stmt *loop, LoopCarry *carry) {
    Cx *c = p->cx;
    Chain k = {.p = p, .c = c, .loop = loop, .phi = carry->phi, .axis = -1};
    Expr *rows;
    if (carry->phi->rank < 1 || carry->phi->blob || !trace(&k, carry->next, &rows) || k.axis < 0)
        return false;
    const LoopSym *size = NULL;
    for (int i = 0; i < loop->loop.syms.n; i++)
        if (k.phi->dim[k.axis] == e_sym(c, loop->loop.syms.p[i].sym)) size = &loop->loop.syms.p[i];
    if (!size) return false;
    Grow *g = NEW(c->a, Grow);
    g->phi = k.phi;
    g->axis = k.axis;
    g->front = k.front;
    g->first = size->init;
    for (int d = 0; d < k.phi->rank; d++) {
        if (d != k.axis &&
            (loop_varies(loop, k.phi->dim[d]) || k.phi->dim[d] != carry->next->dim[d]))
            return false;
        if (d < k.axis && !e_is_ival(k.phi->dim[d], 1)) g->spaced = true;
    }
    ChainUses u = {.k = &k};
    if (loop->loop.cond_next) e_each_load(c, loop->loop.cond_next, dense_load, &u);
    if (g->spaced && (u.bad || seq_any(loop->loop.body, uses_dense, &u))) return false;
    if (!worthwhile(&k, g)) return false;
    set_room(&k, g, rows);
    k.phi->grow = g;
    for (int i = 0; i < k.step.n; i++) apply(&k, g, &k.step.p[i]);
    carry->inplace = true;
    return true;
}
