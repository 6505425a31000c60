/* sink.c: what a loop reads once, at its own position, is computed there.
 *
 * A tensor that is computed for all iterations before the loop, and of which each iteration reads
 * its own part, is no work less than the same part computed where it is read. Where it is larger
 * than what it is made of, an outer product, say, it was hoisted out of the loop to be written and
 * read again for nothing. Sums stay: they are what pass_hoist takes out. Counted loops only, for
 * all of the tensor's elements must be computed; guarded values stay, too.
 *
 * From the last statement to the first, so that what a sunk value was made of can follow it. */
#include <math.h>

#include "scheduler/cost/cost.h"
#include "scheduler/cost/decide.h"
#include "scheduler/passes.h"
#include "utask/walk.h"

typedef VEC(Tensor *) TensorVec;

typedef struct Readers { /* of a tensor */
    bool other;          /* it is used as a whole, or by a statement that computes no tensor */
    TensorVec by;
} Readers;

typedef struct Sink {
    Program *p;
    Cx *c;
    Readers *of; /* by tensor id */
    VEC(Stmt *) order;
    Tensor *user, *sunk;
} Sink;

/* ---- users ----------------------------------------------------------------------------------- */
static void other_use(Sink *k, const Tensor *t) {
    k->of[t->id].other = true;
    if (t->kind == TK_VIEW) other_use(k, t->base);
}
static void other_load(void *user, Expr *e) { other_use(user, e->t); }
static void body_load(void *user, Expr *e) {
    Sink *k = user;
    if (e->t->kind == TK_VIEW) other_use(k, e->t);
    vec_push(k->c->a, &k->of[e->t->id].by, k->user);
}
static void slot(void *user, const Slot *s) {
    Sink *k = user;
    if (s->kind == SLOT_READ) other_use(k, *s->t);
    if (s->kind == SLOT_EXPR) e_each_load(k->c, *s->e, other_load, k);
}
static void scan(void *user, Stmt *s) {
    Sink *k = user;
    stmt_slots(s, slot, k);
    if (s->kind != S_OP) return;
    vec_push(k->c->a, &k->order, s);
    k->user = s->op.t[0];
    if (k->user->body) e_each_load(k->c, k->user->body, body_load, k);
}

/* ---- how often an element is computed -------------------------------------------------------- */
/* Loads of t below e, which may be computed in their place; -1: one of them may not: it is in a
 * sum, or in an index. */
static int places(Map *seen, const Expr *e, const Tensor *t, bool here) {
    if (!(e->flags & EF_LOAD) || !map_add(seen, (uint64_t)e->id * 2 + here + 1)) return 0;
    const bool load = e->op == E_LOAD && e->t == t;
    if (load && (!here || e->kind)) return -1;
    int n = load;
    here = here && e->op != E_LOAD && e->op != E_REDUCE;
    for (int i = 0; i < e->n; i++) {
        const int below = places(seen, e->a[i], t, here);
        if (below < 0) return -1;
        n += below;
    }
    return n;
}

/* How often the statements of `in`, in loops below `out`, are run for one run of `out`, int64;
 * NULL: not known, or there is no loop between. */
static Expr *runs_below(Cx *c, const Seq *in, const Seq *out) {
    Expr *n = NULL;
    for (; in != out; in = in->parent) {
        if (!in || !in->owner || in->owner->kind == S_CALL) return NULL;
        const Stmt *s = in->owner;
        if (s->kind != S_LOOP) continue;
        if (!s->loop.trips || s->loop.cond0 || s->loop.cond_next) return NULL;
        Expr *trips = e_max(c, s->loop.trips, e_int(c, 0));
        n = n ? e_mul(c, n, trips) : trips;
    }
    return n;
}

/* Evaluations of t's elements, were it computed where it is read; NULL: it cannot be. */
static Expr *evaluations(Sink *k, const Tensor *t, Expr **runs) {
    const Readers *u = &k->of[t->id];
    Expr *all = e_int(k->c, 0);
    for (int i = 0; i < u->by.n; i++) {
        const Tensor *x = u->by.p[i];
        Expr *n = runs_below(k->c, x->seq, t->seq);
        const int loads = places(map_new(k->c->a), x->body, t, true);
        if (!n || loads < 0 || (i && n != *runs)) return NULL;
        *runs = n;
        all = e_add(k->c, all, e_muli(k->c, e_mul(k->c, tensor_count(k->c, x), n), loads));
    }
    return u->by.n ? all : NULL;
}

/* ---- what it is made of ---------------------------------------------------------------------- */
typedef struct Source {
    Sink *k;
    Map *seen;
    double bytes;
} Source;

/* What only it is made of follows it, but for sums. */
static void source_load(void *user, Expr *e) {
    Source *x = user;
    const Readers *u = &x->k->of[e->t->id];
    if (!map_add(x->seen, (uint64_t)e->t->id + 1)) return;
    if (e->t->kind == TK_TE && u->by.n == 1 && !u->other && !(e->t->body->flags & EF_REDUCE))
        e_each_load(x->k->c, e->t->body, source_load, x);
    else
        x->bytes += cost_bytes(e->t);
}

static bool grows(Sink *k, const Tensor *t) {
    Source x = {k, map_new(k->c->a), 0};
    e_each_load(k->c, t->body, source_load, &x);
    return 2 * x.bytes <= cost_bytes(t);
}

/* ---- what it costs --------------------------------------------------------------------------- */
typedef struct SinkWays {
    const Sink *k;
    const Stmt *s;
    const Expr *runs;
    bool sunk;
} SinkWays;

/* All of it, written and read again; or its elements where they are read, in vectors as far as an
 * iteration fills them, by all units where that is worth their meeting. */
static double sink_ns(void *user, double unknown) {
    const SinkWays *o = user;
    const Schedule *plan = o->k->p->schedule;
    const Device *d = plan->device;
    const Work w = cost_work(o->k->c, o->s, unknown);
    const double back = w.written / device_gbps(d, w.written);
    int64_t known;
    if (!o->sunk) return cost_group_at_ns(o->k->p, o->s, plan->units, unknown) + back / plan->units;
    const double runs = e_is_int(o->runs, &known) ? (double)known : unknown,
                 size = (double)dtype_size(o->s->op.t[0]->dtype), lanes = plan->lanes,
                 each = w.written / size / (runs > 1 ? runs : 1),
                 filled = each > 0 ? ceil(each / lanes) * lanes / each : 1;
    double ns = filled * cost_compute_ns(d, &w), read = w.read / device_gbps(d, w.read);
    if (ns < read) ns = read;
    return ns > runs * d->level[LEVEL_TEAM].barrier_ns ? ns / plan->units : ns;
}

static bool movable(Sink *k, const Stmt *s, Expr **runs) {
    const Tensor *t = s->op.t[0];
    if (t->kind != TK_TE || t->rank < 0 || t->owned || t->ret || t->elem || k->of[t->id].other ||
        t->body->flags & (EF_REDUCE | EF_GUARD))
        return false;
    Expr *evals = evaluations(k, t, runs);
    return evals && e_at_most(k->c, evals, tensor_count(k->c, t)) && grows(k, t);
}

static bool pays(Sink *k, const Stmt *s, Expr *runs) {
    SinkWays o = {k, s, runs, false};
    const double stored = cost_over_sizes(sink_ns, &o);
    o.sunk = true;
    return decide(k->p, X_SINK, s, stored, cost_over_sizes(sink_ns, &o));
}

/* ---- moving ---------------------------------------------------------------------------------- */
/* What t loads has t's users as users from now on. */
static void hand_over(void *user, Expr *e) {
    Sink *k = user;
    TensorVec *to = &k->of[e->t->id].by;
    const TensorVec *from = &k->of[k->sunk->id].by;
    int n = 0;
    for (int i = 0; i < to->n; i++)
        if (to->p[i] != k->sunk) to->p[n++] = to->p[i];
    to->n = n;
    for (int i = 0; i < from->n; i++) {
        bool known = false;
        for (int j = 0; j < to->n; j++) known |= to->p[j] == from->p[i];
        if (!known) vec_push(k->c->a, to, from->p[i]);
    }
}

static void sink(Sink *k, Tensor *t) {
    const Readers *u = &k->of[t->id];
    k->sunk = t;
    for (int i = 0; i < u->by.n; i++) u->by.p[i]->body = expr_inlined(k->c, u->by.p[i]->body, t);
    e_each_load(k->c, t->body, hand_over, k);
}

void pass_sink(Program *p) {
    Cx *c = p->cx;
    Sink k = {.p = p, .c = c, .of = NEWN(c->a, Readers, c->next_tensor + 1)};
    for (int i = 0; i < p->nout; i++) {
        other_use(&k, p->out[i].t);
        if (p->out[i].has) e_each_load(c, p->out[i].has, other_load, &k);
    }
    seq_each(p->top, scan, &k);
    for (int i = k.order.n - 1; i >= 0; i--) {
        Expr *runs = NULL;
        if (movable(&k, k.order.p[i], &runs) && pays(&k, k.order.p[i], runs))
            sink(&k, k.order.p[i]->op.t[0]);
    }
}
