/* unroll.c: several iterations of a counted loop in one.
 *
 *     for i < n: body(i)    becomes    for j < n / U: body(U·j) … body(U·j + U - 1)
 *                                      for j < n mod U: body(n - n mod U + j)
 *
 * What one copy of the body carries to the next is no state of the loop, so fusion may substitute
 * it: chains of element operations run over several iterations without memory between them. Where n
 * is known the second loop may be empty, and of few iterations there is one loop of one trip. */
#include "scheduler/cost/cost.h"
#include "scheduler/cost/decide.h"
#include "scheduler/passes.h"
#include "utask/clone.h"
#include "utask/walk.h"

#define COPIES_MAX 8
#define BODY_MAX 64 /* statements of a body that is copied */
#define TRIP_NS 2.0 /* a trip around nothing */
/* The first run of a copied statement, whose instructions are not at hand yet: a call of a group,
 * or a few instructions more of one. */
#define COPY_CALL_NS 50.0
#define COPY_CHAIN_NS 1.0
/* Of the body's time: copies that are no chain have orders and tiles of their own, which are not
 * better than those of one body, and may be worse. */
#define COPY_SHARE 0.01

/* ---- legality -------------------------------------------------------------------------------- */
/* A part of the carried value is replaced: the loop keeps it in one buffer as it is (inplace.c). */
static bool updates(const LoopCarry *k) {
    const Expr *e = k->next->kind == TK_TE ? k->next->body : NULL;
    return e && e->op == E_SELECT && k->phi->rank == k->next->rank &&
           load_is_own(e->a[2], k->phi, k->next);
}

static bool can_unroll(const Stmt *s) {
    if (!loop_counted(s) || !clone_can(s->loop.body, false) || seq_size(s->loop.body) > BODY_MAX)
        return false;
    for (int i = 0; i < s->loop.carry.n; i++)
        if (!loop_keeps_dims(s, s->loop.carry.p[i].phi) || updates(&s->loop.carry.p[i]))
            return false;
    for (int i = 0; i < s->loop.scan.n; i++)
        if (!loop_keeps_dims(s, s->loop.scan.p[i].elem) ||
            !loop_keeps_dims(s, s->loop.scan.p[i].out))
            return false;
    return true;
}

/* ---- copies ---------------------------------------------------------------------------------- */
typedef struct LoopPart {
    int copies;
    Expr *first, *trips; /* iterations first, first + 1, … first + trips · copies - 1 of the loop */
    const Stmt *before; /* goes on after this part; NULL: it is the first one */
    bool last;          /* what is defined after the loop is defined by this part */
} LoopPart;

/* A symbol for e at the end of q: values of the copies in turn. */
static Expr *bind(Program *p, Seq *q, const Sym *like, Expr *e) {
    if (e->op == E_CONST || e->op == E_SYM) return e;
    return seq_let(p->cx, q, sym_like(p->cx, like, q), e, q->owner->path);
}

static Stmt *loop_part(Program *p, const Stmt *s, const LoopPart *part) {
    Cx *c = p->cx;
    Seq *outer = s->loop.body->parent;
    Stmt *n = stmt_new(c, S_LOOP, s->path);
    Clone k = clone_new(c);
    int64_t trips = 0;
    bool once = e_is_ival(part->trips, 1);
    n->loop.trips = part->trips;
    n->loop.cap_site = s->loop.cap_site;
    n->loop.body = seq_new(c, outer, n, true);
    n->loop.iter = sym_new(c, DT_I64, s->loop.iter->name, 0);
    n->loop.iter->scope = outer;
    if (e_is_int(part->trips, &trips)) n->loop.iter->hi = trips > 0 ? trips - 1 : 0;
    for (int i = 0; i < s->loop.syms.n; i++) {
        const LoopSym *x = &s->loop.syms.p[i];
        LoopSym y = {.init = part->before ? e_sym(c, part->before->loop.syms.p[i].sym) : x->init};
        y.sym = part->last ? x->sym : clone_sym(&k, x->sym, outer);
        clone_map_sym(&k, x->sym, once ? y.init : e_sym(c, y.sym));
        vec_push(p->cx->a, &n->loop.syms, y);
    }
    for (int i = 0; i < s->loop.carry.n; i++) {
        const LoopCarry *x = &s->loop.carry.p[i];
        LoopCarry y = {.init = part->before ? part->before->loop.carry.p[i].phi : x->init};
        y.phi = part->last ? x->phi : clone_like(&k, x->phi, outer);
        clone_map_tensor(&k, x->phi, once ? y.init : y.phi);
        vec_push(p->cx->a, &n->loop.carry, y);
    }
    Expr *at = e_add(c, part->first, e_muli(c, e_sym(c, n->loop.iter), part->copies));
    n->loop.made = e_addi(c, at, part->copies - 1);
    Expr **value = NEWN(p->cx->a, Expr *, s->loop.syms.n + 1);
    Tensor **next = NEWN(p->cx->a, Tensor *, s->loop.carry.n + 1);
    for (int j = 0; j < part->copies; j++) {
        bool end = j == part->copies - 1;
        clone_again(&k);
        clone_map_sym(&k, s->loop.iter, e_addi(c, at, j));
        clone_seq(&k, s->loop.body, n->loop.body);
        for (int i = 0; i < s->loop.syms.n; i++) value[i] = clone_expr(&k, s->loop.syms.p[i].next);
        for (int i = 0; i < s->loop.carry.n; i++)
            next[i] = clone_tensor(&k, s->loop.carry.p[i].next);
        for (int i = 0; i < s->loop.scan.n; i++) {
            const LoopScan *x = &s->loop.scan.p[i];
            LoopScan y = {clone_tensor(&k, x->elem), x->out, e_addi(c, at, j),
                          part->before || j > 0};
            vec_push(p->cx->a, &n->loop.scan, y);
        }
        for (int i = 0; i < s->loop.syms.n; i++) {
            if (end)
                n->loop.syms.p[i].next = value[i];
            else
                clone_map_sym(&k, s->loop.syms.p[i].sym,
                              bind(p, n->loop.body, s->loop.syms.p[i].sym, value[i]));
        }
        for (int i = 0; i < s->loop.carry.n; i++) {
            if (end)
                n->loop.carry.p[i].next = next[i];
            else
                next[i]->owned = false;
            clone_map_tensor(&k, s->loop.carry.p[i].phi, next[i]);
        }
    }
    return n;
}

/* The loop at q->s.p[*at] by `copies`; leaves *at at the last statement that stands for it. */
static void unroll(Program *p, Seq *q, int *at, int copies) {
    Cx *c = p->cx;
    const Stmt *s = q->s.p[*at];
    Expr *all = e_max(c, s->loop.trips, e_int(c, 0)), *turns = e_div(c, all, e_int(c, copies));
    Expr *done = e_muli(c, turns, copies), *rest = e_sub(c, all, done);
    bool whole = e_is_ival(rest, 0);
    LoopPart main = {copies, e_int(c, 0), turns, NULL, whole};
    q->s.p[*at] = loop_part(p, s, &main);
    if (!whole) {
        LoopPart tail = {1, done, rest, q->s.p[*at], true};
        seq_put_at(p->cx, q, *at + 1, loop_part(p, s, &tail));
        ++*at;
    }
    /* After a loop its number is that of the trips made. */
    Stmt *made = stmt_new(c, S_LET, s->path);
    made->let.sym = s->loop.iter;
    made->let.e = all;
    seq_put_at(p->cx, q, ++*at, made);
}

/* ---- whether --------------------------------------------------------------------------------- */
typedef struct OwnReads {
    const Stmt *loop;
    const Tensor *t;
    bool own;
} OwnReads;

static void chain_load(void *user, Expr *e) {
    OwnReads *k = user;
    if (seq_inside(e->t->seq, k->loop->loop.body) || loop_carries(k->loop, e->t))
        k->own &= same_dims(e->t, k->t) && load_is_own(e, e->t, k->t);
}

/* The body is one chain of element operations over one domain: one group for any number of copies.
 */
static bool is_chain(Program *p, const Stmt *s) {
    const Tensor *lead = NULL;
    for (int i = 0; i < s->loop.body->s.n; i++) {
        const Stmt *o = s->loop.body->s.p[i];
        if (o->kind == S_LET || o->kind == S_CHECK) continue;
        if (o->kind != S_OP) return false;
        OwnReads k = {s, o->op.t[0], true};
        if (!lead) lead = k.t;
        if (!same_dims(lead, k.t) || k.t->body->flags & (EF_REDUCE | EF_GUARD)) return false;
        e_each_load(p->cx, k.t->body, chain_load, &k);
        if (!k.own) return false;
    }
    return lead != NULL;
}

/* Times of the whole loop as it is, and by `copies`. Of a chain, a trip is one group, and carried
 * values are read and written once in a trip. */
static void times(Program *p, const Stmt *s, bool chain, int copies, double *plain,
                  double *changed) {
    const Device *d = p->schedule->device;
    int n = s->loop.body->s.n;
    double trips = cost_size(s->loop.trips), each = 0, once = TRIP_NS;
    for (int i = 0; i < n; i++) {
        const Stmt *o = s->loop.body->s.p[i];
        double t = cost_stmt_ns(p, o, p->schedule->units);
        each += chain && o->kind == S_OP ? t - d->group_ns : t;
    }
    if (chain) once += d->group_ns;
    int64_t known;
    double turns = (double)((int64_t)trips / copies), rest = trips - turns * copies;
    if (!e_is_int(s->loop.trips, &known))
        rest = (copies - 1) / 2.0, turns = (trips - rest) / copies;
    *plain = trips * (once + each);
    *changed = turns * once + rest * once + trips * each * (chain ? 1 : 1 + COPY_SHARE) +
               (chain ? COPY_CHAIN_NS : COPY_CALL_NS) * n * copies;
}

/* How many copies are best; 1: none. */
static int best_copies(Program *p, const Stmt *s, double *plain, double *changed) {
    int64_t trips;
    bool known = e_is_int(s->loop.trips, &trips), chain = is_chain(p, s);
    int best = 1;
    for (int n = 2; n <= COPIES_MAX; n++) {
        double once, more;
        if (known ? trips < n || (n & (n - 1) && trips != n) : (n & (n - 1)) != 0) continue;
        times(p, s, chain, n, &once, &more);
        if (best == 1 || more < *changed) best = n, *plain = once, *changed = more;
    }
    return best;
}

static void try_loop(void *user, Seq *q, int *at) {
    Program *p = user;
    Stmt *s = q->s.p[*at];
    double plain = 0, changed = 0;
    if (!can_unroll(s)) return;
    int n = best_copies(p, s, &plain, &changed);
    if (n > 1 && decide(p, X_UNROLL, s, plain, changed)) unroll(p, q, at, n);
}

void pass_unroll(Program *p) { seq_rewrite(p->top, try_loop, p); }
