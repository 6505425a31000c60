/* tail.c: what is made of a loop's stacked results, element by element, is made in the loop.
 *
 *   loop i: … scan y of e                          loop i: … scan t of f(e[j], x[i, j])
 *   t[i, j] = f(y[i, j], x[i, j])        ->
 *
 * It is no more work, and what the loop stacks is not read and written once more behind it. On
 * processors with vectors alone: on GPUs an iteration is as long as its longest chain, and this
 * would be a part of it. Counted loops, whose results nothing else reads and which wait for nothing
 * more than before: x is the model's, or the loop reads it, too. Guards stay. */
#include <math.h>

#include "scheduler/cost/cost.h"
#include "scheduler/cost/decide.h"
#include "scheduler/passes.h"
#include "utask/walk.h"

typedef struct Tails {
    Program *p;
    Cx *c;
    int *uses;   /* by tensor id: bodies that load it; 2 and more if something else uses it */
    Tensor **by; /* the body that does */
    Tensor *user;
    const Stmt *loop;
    /* of what is moved: the old result and its elements, the new ones, what they become */
    Tensor *y, *elem, *x;
    Expr *body;
    bool found;
} Tails;

/* ---- uses ------------------------------------------------------------------------------------ */
static void use(Tails *k, const Tensor *t) { k->uses[tensor_root(t)->id] += 2; }
static void load_use(void *user, Expr *e) { use(user, e->t); }
static void body_load(void *user, Expr *e) {
    Tails *k = user;
    if (e->t->kind == TK_VIEW || e->kind) {
        use(k, e->t);
    } else if (k->by[e->t->id] != k->user) {
        k->by[e->t->id] = k->user;
        k->uses[e->t->id]++;
    }
}
static void slot(void *user, const Slot *s) {
    Tails *k = user;
    if (s->kind == SLOT_READ && *s->t) use(k, *s->t);
    if (s->kind == SLOT_EXPR) e_each_load(k->c, *s->e, load_use, k);
}
static void scan(void *user, Stmt *s) {
    Tails *k = user;
    stmt_slots(s, slot, k);
    if (s->kind != S_OP || !s->op.t[0]->body) return;
    k->user = s->op.t[0];
    e_each_load(k->c, k->user->body, body_load, k);
}

/* ---- what may move --------------------------------------------------------------------------- */
static void defines(void *user, const Slot *s) {
    Tails *k = user;
    if (s->kind == SLOT_TENSOR && *s->t == k->x) k->found = true;
}

/* Whether the tensor is there when statement `at` of q begins, which the user is behind. */
static bool is_there(Tails *k, const Seq *q, int at, Tensor *t) {
    k->x = tensor_root(t);
    k->found = false;
    for (int i = at; i < q->s.n && k->x->seq == q && !k->found; i++)
        stmt_slots(q->s.p[i], defines, k);
    return !k->found;
}

static void reads(void *user, Expr *e) {
    Tails *k = user;
    k->found |= tensor_root(e->t) == k->x;
}
static void read_by(void *user, Stmt *s) {
    Tails *k = user;
    for (int i = 0; s->kind == S_OP && i < s->op.n; i++)
        if (s->op.t[i]->body) e_each_load(k->c, s->op.t[i]->body, reads, k);
}

/* Whether the loop, statement `at` of q, need not wait for the tensor. */
static bool is_known(Tails *k, const Seq *q, int at, Tensor *t) {
    k->x = tensor_root(t);
    k->found = k->x->kind == TK_INPUT || k->x->kind == TK_CONST;
    if (!k->found) seq_each(q->s.p[at]->loop.body, read_by, k);
    return k->found;
}

typedef struct Loads {
    Tails *k;
    const Seq *q;
    int at;
    const Tensor *t;
    Tensor *along; /* which only t loads, and is made behind the loop */
    bool ok;
} Loads;

static bool is_plain(const Tensor *t) {
    return t->kind == TK_TE && t->rank >= 0 && !t->owned && !t->ret && !t->elem &&
           !(t->body->flags & (EF_REDUCE | EF_GUARD | EF_SYM));
}

static void load_ok(void *user, Expr *e) {
    Loads *l = user;
    const Tails *k = l->k;
    if (e->t == k->y)
        l->ok &= load_is_own(e, e->t, l->t) && same_dims(e->t, l->t);
    else if (!is_there(l->k, l->q, l->at, e->t)) {
        l->ok &= !e->kind && is_plain(e->t) && k->uses[e->t->id] == 1;
        l->along = e->t;
    } else
        l->ok &= is_known(l->k, l->q, l->at, e->t);
}

/* Whether what is made of scan s of loop number `at` of q may be made in it: k->body. */
static bool movable(Tails *k, const Seq *q, int at, const LoopScan *s) {
    const Tensor *t = k->uses[s->out->id] == 1 ? k->by[s->out->id] : NULL;
    if (!t || s->at || s->more || s->elem->kind != TK_TE || s->elem->blob || t->seq != q ||
        s->out->seq != q || !is_plain(t) || s->elem->rank != t->rank - 1)
        return false;
    Loads l = {k, q, at, t, NULL, true};
    k->y = s->out;
    k->body = t->body;
    do {
        if (l.along) k->body = expr_inlined(k->c, k->body, l.along);
        l.along = NULL;
        e_each_load(k->c, k->body, load_ok, &l);
    } while (l.ok && l.along);
    return l.ok;
}

/* ---- what it costs --------------------------------------------------------------------------- */
typedef struct TailWays {
    const Tails *k;
    const Stmt *s;
    bool moved;
} TailWays;

/* Behind the loop, by all units; or in it, in vectors as far as an iteration fills them, by all
 * units where that is worth their meeting: without what was stacked. */
static double tail_ns(void *user, double unknown) {
    const TailWays *o = user;
    const Program *p = o->k->p;
    const Device *d = p->schedule->device;
    if (!o->moved) return cost_group_at_ns(p, o->s, p->schedule->units, unknown);
    const Work w = cost_work(o->k->c, o->s, unknown);
    int64_t known;
    const Tensor *t = o->s->op.t[0];
    const double trips = e_is_int(t->dim[0], &known) ? (double)known : unknown,
                 lanes = p->schedule->lanes, n = w.written / (double)dtype_size(t->dtype),
                 each = n / (trips > 1 ? trips : 1),
                 filled = each > 0 ? ceil(each / lanes) * lanes / each : 1,
                 read = w.read - w.written > 0 ? w.read - w.written : 0;
    const double ns = fmax(filled * cost_compute_ns(d, &w), read / device_gbps(d, read));
    return ns > trips * d->level[LEVEL_TEAM].barrier_ns ? ns / p->schedule->units : ns;
}

/* ---- moving ---------------------------------------------------------------------------------- */
static Expr *moved_load(void *user, Expr *e) {
    const Tails *k = user;
    return e->t == k->y ? load_own(k->c, k->elem, k->x) : NULL;
}

/* t, of statement number `at` of q, becomes what the loop stacks. */
static void move(Tails *k, Seq *q, int at, LoopScan *s, Stmt *loop) {
    Cx *c = k->c;
    Stmt *op = q->s.p[at];
    Tensor *t = op->op.t[0], *e = s->elem;
    Tensor *x = tensor_like(c, TK_TE, t, e->rank, e->dim, loop->loop.body);
    Expr *own[MAX_RANK] = {e_sym(c, loop->loop.iter)};
    for (int d = 0; d < x->rank; d++) own[d + 1] = e_axis(c, x->axis[d]);
    k->elem = e;
    k->x = x;
    x->body = e_subst(c, k->body, t->rank, t->axis, own, moved_load, k);
    x->owned = true;
    e->owned = false;
    seq_put_at(c, loop->loop.body, loop->loop.body->s.n, stmt_op(c, x, op->path));
    const StmtVec none = {0};
    seq_replace(c, q, &at, &none);
    t->kind = TK_SCAN;
    t->body = NULL;
    memcpy(t->dim, s->out->dim, sizeof t->dim);
    s->elem = x;
    s->out = t;
}

static void visit(void *user, Seq *q, int *at) {
    Tails *k = user;
    Stmt *s = q->s.p[*at];
    if (!loop_counted(s)) return;
    for (int i = 0; i < s->loop.scan.n; i++)
        while (movable(k, q, *at, &s->loop.scan.p[i])) {
            int behind = *at + 1;
            const Tensor *t = k->by[s->loop.scan.p[i].out->id];
            while (behind < q->s.n &&
                   !(q->s.p[behind]->kind == S_OP && q->s.p[behind]->op.t[0] == t))
                behind++;
            if (behind == q->s.n) break;
            TailWays o = {k, q->s.p[behind], false};
            const double stored = cost_over_sizes(tail_ns, &o);
            o.moved = true;
            if (!decide(k->p, X_SINK, o.s, stored, cost_over_sizes(tail_ns, &o))) break;
            move(k, q, behind, &s->loop.scan.p[i], s);
        }
}

void pass_tail(Program *p) {
    Cx *c = p->cx;
    if (p->schedule->lanes <= 1) return;
    Tails k = {.p = p,
               .c = c,
               .uses = NEWN(c->a, int, c->next_tensor + 1),
               .by = NEWN(c->a, Tensor *, c->next_tensor + 1)};
    for (int i = 0; i < p->nout; i++) {
        use(&k, p->out[i].t);
        if (p->out[i].has) e_each_load(c, p->out[i].has, load_use, &k);
    }
    seq_each(p->top, scan, &k);
    seq_rewrite(p->top, visit, &k);
}
