/* reuse.c: what an iteration computes again.
 *
 * Two cases. A tensor of the body that depends neither on the iteration nor on what is carried is
 * computed once, before the loop. And a tensor B whose value in iteration i is that of another one,
 * A, in iteration i - 1
 *
 *     A(i) = f(x[i + 1]), B(i) = f(x[i])        A(i) = f(next value), B(i) = f(carried value)
 *
 * is carried instead: it begins as B(0) and goes on as A. Both are found by structure: bodies are
 * written out down to what comes from outside, and A's, one iteration back, is compared with B's.
 */
#include "scheduler/cost/cost.h"
#include "scheduler/cost/decide.h"
#include "scheduler/passes.h"
#include "utask/expr_internal.h"
#include "utask/walk.h"

#define EXPAND_MAX 64 /* tensors written out in one expression */
#define PAIRS_MAX 48  /* tensors of a body that are compared with each other */
#define CARRIES_MAX 8 /* values that are carried for this in one loop */

typedef struct Reuse {
    Program *p;
    Cx *c;
    Arena *a;
    Stmt *loop;
    Map *let;       /* symbol id -> LET directly in the body */
    Map *op;        /* tensor id -> OP directly in the body */
    Map *next;      /* tensor id -> LoopCarry whose next value it is */
    bool invariant; /* of the expression at hand, so far */
} Reuse;

static uint64_t key(int id) { return (uint64_t)id + 1; }

/* ---- expressions written out ----------------------------------------------------------------- */
typedef struct Expand {
    Reuse *u;
    Map *memo;
    int left;  /* tensors that may still be written out */
    bool stop; /* at next values */
    bool ok;
} Expand;

static Expr *expand(Expand *x, Expr *e);

static Expr *expand_load(Expand *x, Expr *e) {
    Reuse *u = x->u;
    if (loop_reads_outside(u->loop, e->t)) return e;
    if (x->stop && map_geti(u->next, key(e->t->id))) return e;
    if (loop_carries(u->loop, e->t)) {
        x->ok &= !x->stop;
        return e;
    }
    if (!map_geti(u->op, key(e->t->id)) || e->kind || --x->left < 0) {
        x->ok = false;
        return e;
    }
    return e_subst(u->c, expand(x, e->t->body), e->t->rank, e->t->axis, e->a, NULL, NULL);
}

static Expr *expand(Expand *x, Expr *e) {
    Cx *c = x->u->c;
    if (!x->ok || !(e->flags & (EF_SYM | EF_LOAD | EF_REDUCE))) return e;
    Expr *r = map_geti(x->memo, key(e->id));
    if (r) return r;
    if (e->op == E_SYM) {
        const Stmt *s = map_geti(x->u->let, key(e->sym->id));
        r = s ? expand(x, s->let.e) : e;
        /* Bound by something else in the body: not known here. */
        x->ok &= s || loop_varies(x->u->loop, e) || expr_visible(e, x->u->loop->loop.body->parent);
    } else {
        for (int i = 0; e->op == E_REDUCE && i < e->naxis; i++)
            x->ok &= loop_keeps(x->u->loop, e->raxis[i]->extent);
        Expr *small[MAX_RANK], **a = e->n <= MAX_RANK ? small : NEWN(c->a, Expr *, e->n);
        for (int i = 0; i < e->n; i++) a[i] = expand(x, e->a[i]);
        r = expr_rebuild(c, e, a);
        if (r->op == E_LOAD) r = expand_load(x, r);
    }
    map_seti(x->memo, key(e->id), r);
    return r;
}

/* t's body written out; NULL when that cannot be done. */
static Expr *written_out(Reuse *u, const Tensor *t, bool stop_at_next) {
    Expand x = {u, map_new(u->a), EXPAND_MAX, stop_at_next, true};
    Expr *e = expand(&x, t->body);
    return x.ok && !(e->flags & EF_GUARD) ? e : NULL;
}

/* ---- equality up to the names of axes -------------------------------------------------------- */
typedef struct Same {
    Map *pair; /* id of an expression of the one -> the one of the other that it equals */
    const Axis *axis[MAX_RANK * 8][2];
    int naxis;
} Same;

static bool same(Same *s, const Expr *a, const Expr *b) {
    if (a == b && !(a->flags & (EF_AXIS | EF_REDUCE))) return true;
    if (map_geti(s->pair, key(a->id)) == b) return true;
    if (a->op != b->op || a->dtype != b->dtype || a->kind != b->kind || a->n != b->n ||
        a->naxis != b->naxis)
        return false;
    switch (a->op) {
    case E_AXIS:
        for (int i = 0; i < s->naxis; i++)
            if (s->axis[i][0] == a->axis) return s->axis[i][1] == b->axis;
        return false;
    case E_LOAD:
        if (a->t != b->t) return false;
        break;
    case E_REDUCE:
        if (s->naxis + a->naxis > (int)COUNT(s->axis)) return false;
        for (int i = 0; i < a->naxis; i++) {
            if (a->raxis[i]->extent != b->raxis[i]->extent) return false;
            s->axis[s->naxis][0] = a->raxis[i];
            s->axis[s->naxis++][1] = b->raxis[i];
        }
        break;
    case E_CONST:
    case E_SYM:
    case E_INDIM:
    case E_SEED:
    case E_LIMIT: return a == b;
    case E_GUARD: return false;
    default: break;
    }
    for (int i = 0; i < a->n; i++)
        if (!same(s, a->a[i], b->a[i])) return false;
    map_seti(s->pair, key(a->id), (void *)(uintptr_t)b);
    return true;
}

static bool same_body(Reuse *u, const Tensor *a, const Expr *ea, const Tensor *b, const Expr *eb) {
    Same s = {.pair = map_new(u->a)};
    for (int i = 0; i < a->rank; i++) {
        s.axis[s.naxis][0] = a->axis[i];
        s.axis[s.naxis++][1] = b->axis[i];
    }
    return same(&s, ea, eb);
}

/* ---- reading before the loop ----------------------------------------------------------------- */
static void unsafe_load(void *user, Expr *e) {
    bool *safe = user;
    int64_t lo, hi;
    if (e->kind || e->t->rank < 0) *safe = false;
    for (int i = 0; i < e->n && *safe; i++) {
        const Expr *x = e->a[i];
        if (x->op == E_AXIS && x->axis->extent == e->t->dim[i]) continue;
        int64_t n;
        if (!e_is_int(e->t->dim[i], &n) || !e_range(x, &lo, &hi) || lo < 0 || hi >= n)
            *safe = false;
    }
}

/* All loads are within their tensors, whatever a check in the loop would say. */
static bool is_safe(Cx *c, Expr *e) {
    bool safe = !(e->flags & EF_GUARD);
    e_each_load(c, e, unsafe_load, &safe);
    return safe;
}

/* e, where it may be read: zero when the loop makes no iteration. NULL: that cannot be told. */
static Expr *when_entered(Reuse *u, Expr *e) {
    Cx *c = u->c;
    const Stmt *s = u->loop;
    if (is_safe(c, e)) return e;
    for (int i = 0; i < s->loop.body->s.n; i++)
        if (s->loop.body->s.p[i]->kind == S_CHECK) return NULL; /* it may protect the load */
    if (!s->loop.trips || s->loop.cond0) return NULL;
    return e_sel(c, e_lt(c, e_int(c, 0), s->loop.trips), e, e_num(c, (DType)e->dtype, 0));
}

/* ---- statements ------------------------------------------------------------------------------ */
static void index_body(Reuse *u) {
    Seq *q = u->loop->loop.body;
    u->let = map_new(u->a);
    u->op = map_new(u->a);
    u->next = map_new(u->a);
    for (int i = 0; i < q->s.n; i++) {
        Stmt *s = q->s.p[i];
        if (s->kind == S_LET) map_seti(u->let, key(s->let.sym->id), s);
        if (s->kind == S_OP) map_seti(u->op, key(s->op.t[0]->id), s);
    }
    for (int i = 0; i < u->loop->loop.carry.n; i++) {
        LoopCarry *k = &u->loop->loop.carry.p[i];
        map_seti(u->next, key(k->next->id), k);
        /* A next value that is a copy: of this tensor. */
        const Expr *e = k->next->kind == TK_TE ? k->next->body : NULL;
        if (e && e->op == E_LOAD && map_geti(u->op, key(e->t->id)) && same_dims(e->t, k->next) &&
            load_is_own(e, e->t, k->next) && !map_geti(u->next, key(e->t->id)))
            map_seti(u->next, key(e->t->id), k);
    }
}

/* ---- what does not change -------------------------------------------------------------------- */
/* Whether to compute t once, before the loop, and to read or write it `times`, instead of computing
 * `body` in each iteration, as s does. */
static bool worth(Reuse *u, const Stmt *s, Tensor *t, Expr *body, double times) {
    const Device *d = u->p->schedule->device;
    Expr *kept = t->body;
    t->body = body;
    Work w = cost_work(u->c, stmt_op(u->c, t, ""), COST_UNKNOWN);
    t->body = kept;
    double each = cost_compute_ns(d, &w);
    return decide(u->p, X_REUSE, s, each * cost_size(u->loop->loop.trips),
                  d->group_ns + each + w.written / device_gbps(d, w.written) * times);
}

/* e depends neither on the iteration nor on anything carried. */
static void only_outside(void *user, Expr *e) {
    Reuse *u = user;
    u->invariant &= loop_reads_outside(u->loop, e->t);
}
static bool is_invariant(Reuse *u, Expr *e) {
    u->invariant = !loop_varies(u->loop, e);
    e_each_load(u->c, e, only_outside, u);
    return u->invariant;
}

static void move_out(Reuse *u, Seq *q, int *at) {
    Seq *body = u->loop->loop.body;
    for (int i = 0; i < body->s.n; i++) {
        Stmt *s = body->s.p[i];
        if (s->kind != S_OP) continue;
        Tensor *t = s->op.t[0];
        if (t->owned || t->body->op == E_LOAD || !loop_keeps_dims(u->loop, t)) continue;
        Expr *e = written_out(u, t, false);
        if (!e || e->pure || !(e->flags & EF_LOAD) || !is_invariant(u, e) || !is_safe(u->c, e))
            continue;
        if (!worth(u, s, t, e, 1 + cost_size(u->loop->loop.trips))) continue;
        Tensor *x = tensor_like(u->c, TK_TE, t, t->rank, t->dim, body->parent);
        x->body = expr_over(u->c, e, t, x, 0);
        seq_put_at(u->c, q, (*at)++, stmt_op(u->c, x, s->path));
        t->body = load_own(u->c, x, t);
    }
}

/* ---- what the last iteration computed -------------------------------------------------------- */
/* Loads of next values become loads of carried ones. */
static Expr *next_to_phi(void *user, Expr *e) {
    Reuse *u = user;
    const LoopCarry *k = map_geti(u->next, key(e->t->id));
    if (!k || e->kind || k->phi->rank != e->t->rank) return NULL;
    return e_load(u->c, k->phi, e->a);
}

/* What is A's written-out body, one iteration later than it is computed. NULL: not known then. */
static Expr *one_later(Reuse *u, const Tensor *t) {
    Cx *c = u->c;
    Expr *e = written_out(u, t, true);
    if (!e) return NULL;
    for (int i = 0; i < u->loop->loop.syms.n; i++)
        if (expr_uses_sym(e, u->loop->loop.syms.p[i].sym)) return NULL;
    Expr *iter = e_sym(c, u->loop->loop.iter);
    if (iter->op == E_SYM) e = e_replace(c, e, iter, e_addi(c, iter, -1));
    return e_subst(c, e, 0, NULL, NULL, next_to_phi, u);
}

static Expr *phi_to_init(void *user, Expr *e) {
    Reuse *u = user;
    for (int i = 0; i < u->loop->loop.carry.n; i++) {
        const LoopCarry *k = &u->loop->loop.carry.p[i];
        if (k->phi == e->t && !e->kind && k->init->rank == e->t->rank)
            return e_load(u->c, k->init, e->a);
    }
    return NULL;
}

/* e in the first iteration, in terms of what is before the loop. */
static Expr *at_first(Reuse *u, Expr *e) {
    Cx *c = u->c;
    Expr *iter = e_sym(c, u->loop->loop.iter);
    if (iter->op == E_SYM) e = e_replace(c, e, iter, e_int(c, 0));
    for (int i = 0; i < u->loop->loop.syms.n; i++) {
        const LoopSym *k = &u->loop->loop.syms.p[i];
        Expr *y = e_sym(c, k->sym);
        if (y->op == E_SYM) e = e_replace(c, e, y, k->init);
    }
    return e_subst(c, e, 0, NULL, NULL, phi_to_init, u);
}

/* B becomes a carried value whose next is A. */
static bool carry(Reuse *u, Seq *q, int *at, Stmt *b, Expr *eb, Tensor *ta) {
    Seq *body = u->loop->loop.body;
    Tensor *tb = b->op.t[0];
    Expr *first = when_entered(u, at_first(u, eb));
    if (!first || !is_invariant(u, first)) return false;
    if (!worth(u, b, tb, eb, 2 * cost_size(u->loop->loop.trips))) return false;
    Tensor *init = tensor_like(u->c, TK_TE, tb, tb->rank, tb->dim, body->parent);
    init->body = expr_over(u->c, first, tb, init, 0);
    seq_put_at(u->c, q, (*at)++, stmt_op(u->c, init, b->path));
    Tensor *phi = tensor_like(u->c, TK_PHI, tb, tb->rank, tb->dim, body->parent), *next = ta;
    if (ta->owned) {
        next = tensor_like(u->c, TK_TE, tb, tb->rank, tb->dim, body);
        next->body = load_own(u->c, ta, next);
        vec_push(u->a, &body->s, stmt_op(u->c, next, b->path));
    }
    next->owned = true;
    tb->body = load_own(u->c, phi, tb);
    vec_push(u->a, &u->loop->loop.carry, ((LoopCarry){.phi = phi, .init = init, .next = next}));
    return true;
}

/* Finds one such pair; the body has changed then. */
static bool carry_over(Reuse *u, Seq *q, int *at) {
    Seq *body = u->loop->loop.body;
    Stmt *op[PAIRS_MAX];
    Expr *now[PAIRS_MAX], *later[PAIRS_MAX];
    int n = 0;
    for (int i = 0; i < body->s.n && n < PAIRS_MAX; i++) {
        Stmt *s = body->s.p[i];
        if (s->kind != S_OP || !loop_keeps_dims(u->loop, s->op.t[0]) ||
            s->op.t[0]->body->op == E_LOAD)
            continue;
        op[n] = s;
        now[n] = written_out(u, s->op.t[0], false);
        later[n++] = one_later(u, s->op.t[0]);
    }
    for (int b = 0; b < n; b++) {
        Tensor *tb = op[b]->op.t[0];
        if (!now[b] || tb->owned || is_invariant(u, now[b])) continue;
        for (int a = 0; a < n; a++) {
            Tensor *ta = op[a]->op.t[0];
            if (a == b || !later[a] || ta->dtype != tb->dtype || !same_dims(ta, tb)) continue;
            if (!same_body(u, ta, later[a], tb, now[b])) continue;
            if (carry(u, q, at, op[b], now[b], ta)) return true;
        }
    }
    return false;
}

static void try_loop(void *user, Seq *q, int *at) {
    Reuse *u = user;
    u->loop = q->s.p[*at];
    if (u->loop->kind != S_LOOP) return;
    index_body(u);
    move_out(u, q, at);
    for (int k = 0; k < CARRIES_MAX && carry_over(u, q, at); k++) index_body(u);
}

void pass_reuse(Program *p) {
    Reuse u = {.p = p, .c = p->cx, .a = p->cx->a};
    seq_rewrite(p->top, try_loop, &u);
}
