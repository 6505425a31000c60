/* interchange_nest.c: a nest of loops, steps around layers, as layers around steps.
 *
 *     for t < T: v = x(t)
 *                for l < L: v = f(l, v, s[l]); s[l] = g(v)
 *                y[t] = z(v)
 *
 * becomes
 *
 *     for t < T: v[t] = x(t)
 *     for l < L: r = s[l]
 *                for t < T: v[t] = f(l, v[t], r); r = g(v[t])
 *                s[l] = r
 *     for t < T: y[t] = z(v[t])
 *
 * Layer l of step t needs what layer l - 1 made in step t and what layer l made in step t - 1, so
 * either order is right; here what a layer reads in every step (its weights) stays near for all
 * steps, and the products in it that need v alone can leave the loop (hoist.c). What stands before
 * the layers and behind them becomes loops of their own, which carry nothing (interchange.c). A
 * carried value that no iteration reads is computed for the last one alone. */
#include "scheduler/cost/cost.h"
#include "scheduler/cost/decide.h"
#include "scheduler/passes.h"
#include "scheduler/transform/wavefront.h"
#include "utask/clone.h"
#include "utask/walk.h"

#define STACK_BYTES ((double)(1 << 28)) /* most memory that the values of all steps may take */

typedef enum Use {
    USE_STATE, /* carried by the outer loop: element l is the layer's own */
    USE_CHAIN, /* carried by the inner loop */
    USE_BEFORE /* made before the inner loop */
} Use;

/* A tensor that comes from outside of a layer's body, and what stands for it. */
typedef struct NestTensor {
    Use use;
    bool read;
    Tensor *was, *t;
} NestTensor;

typedef struct Nested {
    Program *p;
    Cx *c;
    Arena *a;
    Seq *q;
    const Stmt *outer, *inner;
    int at;        /* of the inner loop in the outer body */
    int *scan;     /* of each outer carry: the inner scan that makes it; -1: nothing reads it */
    Map *crossing; /* tensor id -> NestTensor */
    VEC(NestTensor *) before; /* USE_BEFORE */
    Expr *step;               /* of the expressions that are rewritten */
    bool ok;
} Nested;

static uint64_t key(const Tensor *t) { return (uint64_t)t->id + 1; }

static NestTensor *crossing(const Nested *x, const Tensor *t) {
    return map_geti(x->crossing, key(t));
}

static NestTensor *add_crossing(Nested *x, Tensor *t, Use use) {
    NestTensor *k = NEW(x->a, NestTensor);
    *k = (NestTensor){use, false, t, NULL};
    map_seti(x->crossing, key(t), k);
    return k;
}

/* ---- which nests ---------------------------------------------------------------------------- */
static bool single(const Stmt *s) {
    return s->kind == S_LET ||
           (s->kind == S_OP && s->op.n == 1 && s->op.t[0]->rank >= 0 && !s->op.t[0]->blob);
}

/* The same dims in all iterations of both loops. */
static bool fixed(const Nested *x, const Tensor *t) {
    return loop_keeps_dims(x->outer, t) && t->rank < MAX_RANK;
}

/* A load in the body of a layer. */
static void inner_load(void *user, Expr *e) {
    Nested *x = user;
    Tensor *t = tensor_root(e->t);
    NestTensor *k = crossing(x, t);
    if (!k && t->seq == x->outer->loop.body) {
        k = add_crossing(x, t, USE_BEFORE);
        vec_push(x->a, &x->before, k);
        x->ok &= t->kind == TK_TE && fixed(x, t);
    }
    if (!k) return;
    k->read = true;
    x->ok &= e->t == t && !e->kind;
    if (x->ok && k->use == USE_STATE) x->ok = e->a[0] == e_sym(x->c, x->inner->loop.iter);
}

/* A load beside the inner loop; after it, of what it carried last. */
static void outer_load(void *user, Expr *e) {
    Nested *x = user;
    const Tensor *t = tensor_root(e->t);
    const NestTensor *k = crossing(x, t);
    for (int i = 0; i < x->inner->loop.scan.n; i++) x->ok &= x->inner->loop.scan.p[i].out != t;
    for (int i = 0; i < x->outer->loop.carry.n; i++)
        x->ok &= x->scan[i] < 0 || x->outer->loop.carry.p[i].next != t;
    if (k && k->use != USE_BEFORE) x->ok &= k->use == USE_CHAIN && e->t == t && !e->kind;
}

static void no_outer_sym(void *user, Sym *s) {
    Nested *x = user;
    if (s->scope == x->outer->loop.body && s != x->inner->loop.iter) x->ok = false;
}

/* The inner scan of which outer carry i is a copy, or -1. */
static int made_by_scan(const Nested *x, int i) {
    const LoopCarry *k = &x->outer->loop.carry.p[i];
    for (int j = 0; j < x->inner->loop.scan.n; j++) {
        const Tensor *out = x->inner->loop.scan.p[j].out;
        bool same = k->next->kind == TK_TE && same_dims(k->next, out);
        for (int m = 0; m < i; m++) same &= x->scan[m] != j;
        if (same && load_is_own(k->next->body, out, k->next)) return j;
    }
    return -1;
}

static bool is_state_copy(const Nested *x, const Stmt *s) {
    for (int i = 0; s->kind == S_OP && i < x->outer->loop.carry.n; i++)
        if (x->scan[i] >= 0 && x->outer->loop.carry.p[i].next == s->op.t[0]) return true;
    return false;
}

static bool is_nest(Nested *x) {
    const Stmt *s = x->outer;
    if (!wave_counted(s) || s->loop.syms.n || !s->loop.trips->pure) return false;
    for (int i = 0; i < s->loop.body->s.n; i++) {
        const Stmt *o = s->loop.body->s.p[i];
        if (wave_counted(o) && !x->inner)
            x->inner = o, x->at = i;
        else if (!single(o))
            return false;
    }
    const Stmt *in = x->inner;
    if (!in || in->loop.syms.n || !in->loop.carry.n || !loop_keeps(s, in->loop.trips)) return false;
    bool state = false;
    int64_t lo, hi;
    x->scan = NEWN(x->a, int, s->loop.carry.n + 1);
    for (int i = 0; i < s->loop.carry.n; i++) {
        const LoopCarry *k = &s->loop.carry.p[i];
        x->scan[i] = made_by_scan(x, i);
        if (!fixed(x, k->phi) || k->next->kind != TK_TE || k->next->rank != k->phi->rank)
            return false;
        if (x->scan[i] < 0 && !(e_range(s->loop.trips, &lo, &hi) && lo >= 1)) return false;
        state |= x->scan[i] >= 0;
        add_crossing(x, k->phi, USE_STATE);
    }
    for (int i = 0; i < in->loop.carry.n; i++) {
        const LoopCarry *k = &in->loop.carry.p[i];
        if (!fixed(x, k->phi) || k->next->kind != TK_TE || crossing(x, tensor_root(k->init)))
            return false;
        add_crossing(x, k->phi, USE_CHAIN);
    }
    for (int i = 0; i < in->loop.scan.n; i++)
        if (in->loop.scan.p[i].elem->kind != TK_TE) return false;
    x->ok = state;
    for (int i = 0; i < in->loop.body->s.n && x->ok; i++) {
        Stmt *o = in->loop.body->s.p[i];
        x->ok = single(o) || o->kind == S_CHECK;
        if (o->kind == S_OP && x->ok) x->ok = fixed(x, o->op.t[0]);
        stmt_loads(x->c, o, inner_load, x);
    }
    Visit v = visit_new(x->c, NULL, no_outer_sym, x);
    visit_seq(&v, in->loop.body);
    for (int i = 0; i < s->loop.body->s.n && x->ok; i++) {
        Stmt *o = s->loop.body->s.p[i];
        if (o != in && !is_state_copy(x, o)) stmt_loads(x->c, o, outer_load, x);
    }
    for (int i = 0; i < s->loop.carry.n && x->ok;
         i++) /* else it is read, and not the layer's own */
        x->ok = x->scan[i] >= 0 || !crossing(x, s->loop.carry.p[i].phi)->read;
    return x->ok;
}

/* ---- the new loops -------------------------------------------------------------------------- */
static Stmt *loop_new(Nested *x, const Stmt *like, Seq *q) {
    Stmt *n = stmt_new(x->c, S_LOOP, like->path);
    n->loop.trips = like->loop.trips;
    n->loop.cap_site = like->loop.cap_site;
    n->loop.body = seq_new(x->c, q, n, true);
    n->loop.iter = sym_like(x->c, like->loop.iter, q);
    return n;
}

/* t with body e at the end of q. */
static Tensor *op_new(Nested *x, Tensor *t, Expr *e, Seq *q, bool owned) {
    Stmt *s = stmt_op(x->c, t, t->path ? t->path : x->outer->path);
    t->body = e;
    t->owned = owned;
    vec_push(x->a, &q->s, s);
    return t;
}

static Tensor *copy_new(Nested *x, Tensor *t, Seq *q) {
    Tensor *r = tensor_like(x->c, TK_TE, t, t->rank, t->dim, q);
    return op_new(x, r, load_own(x->c, t, r), q, true);
}

/* One with one more dimension, the first. */
static Tensor *stack_new(Nested *x, TensorKind kind, const Tensor *t, Expr *n, Seq *q) {
    Expr *dim[MAX_RANK] = {e_max(x->c, n, e_int(x->c, 0))};
    memcpy(dim + 1, t->dim, sizeof *dim * (size_t)t->rank);
    return tensor_like(x->c, kind, t, t->rank + 1, dim, q);
}

/* Element `at` of the first dimension of t, in q. */
static Tensor *part_new(Nested *x, Tensor *t, Expr *at, Seq *q) {
    Tensor *r = tensor_like(x->c, TK_TE, t, t->rank - 1, t->dim + 1, q);
    Expr *idx[MAX_RANK] = {at};
    for (int d = 0; d < r->rank; d++) idx[d + 1] = e_axis(x->c, r->axis[d]);
    return op_new(x, r, e_load(x->c, t, idx), q, false);
}

static Expr *crossed(void *user, Expr *e) {
    Nested *x = user;
    const NestTensor *k = crossing(x, e->t);
    if (!k) return NULL;
    if (k->use == USE_STATE) return e_load(x->c, k->t, e->a + 1);
    Expr *idx[MAX_RANK] = {x->step};
    memcpy(idx + 1, e->a, sizeof *idx * (size_t)e->n);
    return e_load(x->c, k->t, idx);
}

static void rewrite(void *user, Expr **e) {
    *e = e_subst(((Nested *)user)->c, *e, 0, NULL, NULL, crossed, user);
}

/* Copies, statements of q from `first` on, read what stands for others; who owns what they make is
 * decided anew. */
static void adapt(Nested *x, Seq *q, int first) {
    for (int i = first; i < q->s.n; i++) {
        stmt_exprs(q->s.p[i], rewrite, x);
        if (q->s.p[i]->kind == S_OP) q->s.p[i]->op.t[0]->owned = false;
    }
}

/* Copies of statements [from, to) of the outer body, but for the inner loop and what it made, to q.
 */
static Clone copies(Nested *x, int from, int to, Expr *step, Seq *q) {
    Clone k = clone_new(x->c);
    Seq part = {.parent = q->parent};
    int first = q->s.n;
    for (int i = from; i < to; i++) {
        Stmt *s = x->outer->loop.body->s.p[i];
        if (i != x->at && !is_state_copy(x, s)) vec_push(x->a, &part.s, s);
    }
    clone_map_sym(&k, x->outer->loop.iter, step);
    clone_map_sym(&k, x->inner->loop.iter, e_max(x->c, x->inner->loop.trips, e_int(x->c, 0)));
    clone_seq(&k, &part, q);
    x->step = step;
    adapt(x, q, first);
    return k;
}

static void scan_new(Nested *x, Stmt *loop, Tensor *elem, Tensor *out) {
    elem->owned = true;
    vec_push(x->a, &loop->loop.scan, ((LoopScan){.elem = elem, .out = out}));
}

/* What all layers of a step begin with, for all steps: what is carried along the layers to init[].
 */
static void put_before(Nested *x, Seq *q, Tensor **init) {
    Stmt *loop = loop_new(x, x->outer, q);
    const Stmt *in = x->inner;
    Clone k = copies(x, 0, x->at, e_sym(x->c, loop->loop.iter), loop->loop.body);
    for (int i = 0; i < in->loop.carry.n + x->before.n; i++) {
        NestTensor *z = i < in->loop.carry.n ? NULL : x->before.p[i - in->loop.carry.n];
        Tensor *t =
            copy_new(x, clone_tensor(&k, z ? z->was : in->loop.carry.p[i].init), loop->loop.body);
        Tensor *out = stack_new(x, TK_SCAN, t, loop->loop.trips, q);
        scan_new(x, loop, t, out);
        if (z)
            z->t = out;
        else
            init[i] = out;
    }
    vec_push(x->a, &q->s, loop);
}

/* The steps of a layer, in the body of the loop over layers. */
static void put_steps(Nested *x, Stmt *layers) {
    Seq *body = layers->loop.body;
    Stmt *loop = loop_new(x, x->outer, body);
    const Stmt *in = x->inner;
    Clone k = clone_new(x->c);
    for (int i = 0; i < x->outer->loop.carry.n; i++) {
        if (x->scan[i] < 0) continue;
        LoopCarry y = {.init = part_new(x, x->outer->loop.carry.p[i].init,
                                        e_sym(x->c, layers->loop.iter), body)};
        y.phi = tensor_like(x->c, TK_PHI, y.init, y.init->rank, y.init->dim, body);
        crossing(x, x->outer->loop.carry.p[i].phi)->t = y.phi;
        vec_push(x->a, &loop->loop.carry, y);
    }
    x->step = e_sym(x->c, loop->loop.iter);
    clone_map_sym(&k, x->outer->loop.iter, x->step);
    clone_map_sym(&k, in->loop.iter, e_sym(x->c, layers->loop.iter));
    clone_seq(&k, in->loop.body, loop->loop.body);
    adapt(x, loop->loop.body, 0);
    for (int i = 0, n = 0; i < x->outer->loop.carry.n; i++) {
        if (x->scan[i] < 0) continue;
        Tensor *next = clone_tensor(&k, in->loop.scan.p[x->scan[i]].elem);
        next->owned = true;
        loop->loop.carry.p[n++].next = next;
    }
    vec_push(x->a, &body->s, loop);
    for (int i = 0; i < in->loop.carry.n; i++) {
        Tensor *next = clone_tensor(&k, in->loop.carry.p[i].next);
        Tensor *out = stack_new(x, TK_SCAN, next, loop->loop.trips, body);
        scan_new(x, loop, next, out);
        layers->loop.carry.p[i].next = copy_new(x, out, body);
    }
}

static void put_layers(Nested *x, Seq *q, Tensor **init) {
    Stmt *loop = loop_new(x, x->inner, q);
    for (int i = 0; i < x->inner->loop.carry.n; i++) {
        LoopCarry y = {.init = init[i]};
        y.phi = tensor_like(x->c, TK_PHI, init[i], init[i]->rank, init[i]->dim, q);
        crossing(x, x->inner->loop.carry.p[i].phi)->t = y.phi;
        vec_push(x->a, &loop->loop.carry, y);
    }
    put_steps(x, loop);
    for (int i = 0; i < x->outer->loop.carry.n; i++) {
        NestTensor *z = crossing(x, x->outer->loop.carry.p[i].phi);
        if (x->scan[i] < 0) continue;
        Tensor *last = copy_new(x, z->t, loop->loop.body);
        z->t = stack_new(x, TK_SCAN, last, loop->loop.trips, q);
        scan_new(x, loop, last, z->t);
    }
    vec_push(x->a, &q->s, loop);
}

static void put_after(Nested *x, Seq *q) {
    const Stmt *s = x->outer;
    int n = s->loop.body->s.n;
    if (s->loop.scan.n) {
        Stmt *loop = loop_new(x, s, q);
        Clone k = copies(x, 0, n, e_sym(x->c, loop->loop.iter), loop->loop.body);
        for (int i = 0; i < s->loop.scan.n; i++)
            scan_new(x, loop, clone_tensor(&k, s->loop.scan.p[i].elem), s->loop.scan.p[i].out);
        vec_push(x->a, &q->s, loop);
    }
    bool last = false;
    for (int i = 0; i < s->loop.carry.n; i++) last |= x->scan[i] < 0;
    Clone k = copies(x, 0, last ? n : 0, e_addi(x->c, s->loop.trips, -1), q);
    for (int i = 0; i < s->loop.carry.n; i++) { /* what the outer loop defined becomes an OP */
        Tensor *t = s->loop.carry.p[i].phi, *value = crossing(x, t)->t;
        if (x->scan[i] < 0) value = clone_tensor(&k, s->loop.carry.p[i].next);
        t->kind = TK_TE;
        for (int d = 0; d < t->rank; d++) t->axis[d] = axis_new(x->c, t->dim[d]);
        op_new(x, t, load_own(x->c, value, t), q, false);
    }
    seq_let(x->c, q, s->loop.iter, e_max(x->c, s->loop.trips, e_int(x->c, 0)), s->path);
}

/* ---- whether to ----------------------------------------------------------------------------- */
enum { AFTER_STATE = 1, AFTER_CHAIN = 2 };

/* Bytes that an iteration of the inner loop reads, in one order of the loops. */
typedef struct Reads {
    const Nested *x;
    bool changed;      /* layers are outside */
    double trips;      /* of the inner loop */
    Map *seen, *after; /* expressions; tensor id -> what it depends on */
    uintptr_t mask;    /* of the present OP */
    double other, own; /* own: which ones its number says */
} Reads;

static void mask_load(void *user, Expr *e) {
    Reads *r = user;
    const NestTensor *k = crossing(r->x, e->t);
    r->mask |= k && k->use == USE_STATE ? AFTER_STATE : k && k->use == USE_CHAIN ? AFTER_CHAIN : 0;
    r->mask |= (uintptr_t)map_geti(r->after, key(e->t));
}

static void count_load(void *user, Expr *e) {
    Reads *r = user;
    const Nested *x = r->x;
    const Tensor *t = tensor_root(e->t);
    if (t->seq == x->inner->loop.body && t->kind == TK_TE && t->body->op == E_LOAD)
        count_load(r, t->body); /* a part of another */
    if (t->seq == x->inner->loop.body || !map_add(r->seen, (uint64_t)e->id + 1)) return;
    const NestTensor *k = crossing(x, e->t);
    double bytes = (double)dtype_size(e->t->dtype);
    bool step = k && k->use != USE_STATE, layer = false;
    for (int d = 0; d < e->n; d++) {
        if (e->a[d]->flags & EF_AXIS) bytes *= cost_size(e->t->dim[d]);
        step |= loop_varies(x->outer, e->a[d]);
        layer |= loop_varies(x->inner, e->a[d]);
    }
    /* What does not depend on the iteration before is computed for all of them at once (hoist.c).
     */
    bool hoisted = !(r->mask & (r->changed ? AFTER_STATE : AFTER_CHAIN));
    if (r->changed ? step : layer)
        r->own += bytes;
    else
        r->other += hoisted ? bytes / r->trips : bytes;
}

static double read_ns(const Nested *x, double bytes, double again) {
    int units = x->p->schedule->units;
    return bytes / units / device_gbps(x->p->schedule->device, again / units);
}

/* What an iteration reads is read again by the next one, but for what its number says: that when
 * the outer loop comes round. */
static double order_ns(const Nested *x, bool changed) {
    Reads r = {.x = x, .changed = changed, .seen = map_new(x->a), .after = map_new(x->a)};
    r.trips = cost_size((changed ? x->outer : x->inner)->loop.trips);
    for (int i = 0; i < x->inner->loop.body->s.n; i++) {
        const Stmt *s = x->inner->loop.body->s.p[i];
        if (s->kind != S_OP) continue;
        r.mask = 0;
        e_each_load(x->c, s->op.t[0]->body, mask_load, &r);
        if (r.mask) map_seti(r.after, key(s->op.t[0]), (void *)r.mask);
        if (s->op.t[0]->body->op != E_LOAD) e_each_load(x->c, s->op.t[0]->body, count_load, &r);
    }
    return read_ns(x, r.other, r.other + r.own) + read_ns(x, r.own, r.own * r.trips);
}

static bool worth(Nested *x) {
    const Device *d = x->p->schedule->device;
    const Stmt *in = x->inner;
    int units = x->p->schedule->units;
    double steps = cost_size(x->outer->loop.trips), layers = cost_size(in->loop.trips), more = 0;
    double once = cost_seq_ns(x->p, in->loop.body, units);
    /* What is carried along the layers is there for all steps: written and read once more. */
    for (int i = 0; i < in->loop.carry.n; i++) {
        const Tensor *t = in->loop.carry.p[i].phi;
        double bytes = cost_bytes(t);
        if (bytes * steps > STACK_BYTES) return false;
        more += read_ns(x, 2 * bytes, bytes * steps) + 2 * d->group_ns / steps;
    }
    double plain = once + order_ns(x, false), changed = once + order_ns(x, true) + more;
    return decide(x->p, X_INTERCHANGE, x->outer, steps * layers * plain, steps * layers * changed);
}

static void try_loop(void *user, Seq *q, int *at) {
    Program *p = user;
    Stmt *s = q->s.p[*at];
    Nested x = {
        .p = p, .c = p->cx, .a = p->cx->a, .q = q, .outer = s, .crossing = map_new(p->cx->a)};
    if (s->kind != S_LOOP || !is_nest(&x) || !worth(&x)) return;
    const StmtVec before = q->s;
    Tensor **init = NEWN(x.a, Tensor *, x.inner->loop.carry.n);
    q->s = (StmtVec){0};
    put_before(&x, q, init);
    put_layers(&x, q, init);
    put_after(&x, q);
    const StmtVec made = q->s;
    q->s = before;
    seq_replace(x.c, q, at, &made);
}

void pass_interchange_nest(Program *p) { seq_rewrite(p->top, try_loop, p); }
