/* hoist.c: step-invariant products leave their loop.
 *
 * A tensor of a loop body, or a sum inside its expression, is independent when it depends only on
 * values from outside and on the iteration number. An independent sum of products, T matrix-vector
 * products in T iterations, becomes one matrix-matrix product before the loop, with the iteration
 * as one more axis. Only counted loops: otherwise iterations that never happen would be computed.
 * What does not even depend on the iteration number leaves any loop, as it is. */
#include "scheduler/cost/cost.h"
#include "scheduler/cost/decide.h"
#include "scheduler/passes.h"
#include "utask/product.h"
#include "utask/walk.h"

#define MAX_TERMS 256                  /* of one loop */
#define HOIST_BYTES ((int64_t)1 << 28) /* most memory that one hoisted tensor may take */

typedef struct Hoist {
    Program *p;
    Cx *c;
    Arena *a;
    Stmt *loop;
    bool counted; /* the loop makes a known number of trips: its iteration number may be used */
    bool *independent; /* by tensor id, of the loop at hand */
    bool ok;
} Hoist;

static bool from_outside(const Hoist *h, const Tensor *t) {
    return loop_reads_outside(h->loop, t) &&
           !(t->kind == TK_VIEW && seq_inside(t->seq, h->loop->loop.body));
}

static void load_ok(void *user, Expr *e) {
    Hoist *h = user;
    h->ok = h->ok && (from_outside(h, e->t) ||
                      (e->t->kind == TK_TE && h->independent[e->t->id] && !e->kind));
}

/* Symbols: from outside, or the iteration number of a counted loop. */
static bool symbols_ok(const Hoist *h, const Expr *e) {
    for (int i = 0; i < h->loop->loop.syms.n; i++)
        if (expr_uses_sym(e, h->loop->loop.syms.p[i].sym)) return false;
    return (h->counted || !expr_uses_sym(e, h->loop->loop.iter)) &&
           expr_visible(e, h->loop->loop.body->parent);
}

static bool expr_independent(Hoist *h, Expr *e) {
    h->ok = true;
    if (e->flags & EF_GUARD || !symbols_ok(h, e)) return false; /* a guard would fault too early */
    e_each_load(h->c, e, load_ok, h);
    return h->ok;
}

static bool has_product(Expr *e) {
    if (!(e->flags & EF_REDUCE)) return false;
    if (is_fast_product(e)) return axes_size(e->naxis, e->raxis, 64) >= 16;
    for (int i = 0; i < e->n; i++)
        if (has_product(e->a[i])) return true;
    return false;
}

/* Independent tensors of the body are substituted. */
static Expr *inline_independent(void *user, Expr *e) {
    Hoist *h = user;
    Tensor *t = e->t;
    if (t->kind != TK_TE || !h->independent[t->id] || e->kind) return NULL;
    Expr *x = e_subst(h->c, t->body, t->rank, t->axis, e->a, NULL, NULL);
    return e_subst(h->c, x, 0, NULL, NULL, inline_independent, h);
}

/* t for all iterations, or as it is where it is the same in all of them. */
static Tensor *hoisted(Hoist *h, Tensor *t, Expr *trips) {
    Cx *c = h->c;
    Expr *body = e_subst(c, t->body, 0, NULL, NULL, inline_independent, h);
    int more = trips && expr_uses_sym(body, h->loop->loop.iter);
    Expr *dim[MAX_RANK];
    int64_t bytes = 4, v;
    if (t->rank + more > MAX_RANK) return NULL;
    if (more) dim[0] = trips;
    for (int i = 0; i < t->rank; i++) dim[i + more] = t->dim[i];
    for (int i = 0; i < t->rank + more; i++)
        if (e_is_int(dim[i], &v) && (!mul_size(bytes, v, &bytes) || bytes > HOIST_BYTES))
            return NULL;
    Tensor *x = tensor_like(c, TK_TE, t, t->rank + more, dim, h->loop->loop.body->parent);
    body = expr_over(c, body, t, x, more);
    if (more) body = e_replace(c, body, e_sym(c, h->loop->loop.iter), e_axis(c, x->axis[0]));
    x->body = body;
    return x;
}

/* A product that may become a tensor of its own. */
static bool is_term(void *user, Expr *e) {
    return e->op == E_REDUCE && has_product(e) && expr_independent(user, e);
}

/* Makes term r of t a tensor of its own. */
static Tensor *split_term(Hoist *h, Tensor *t, Expr *r) {
    for (int i = 0; i < t->rank; i++)
        if (e_uses_axis(r, t->axis[i]) && !loop_keeps(h->loop, t->dim[i])) return NULL;
    Expr *load;
    Tensor *x = tensor_term(h->c, t, r, &load);
    t->body = e_replace(h->c, t->body, r, load);
    return x;
}

/* Moves the product that op computes before the loop, statement *at of q. */
static void hoist_product(Hoist *h, Seq *q, int *at, Stmt *op, Expr *trips) {
    Cx *c = h->c;
    Tensor *t = op->op.t[0], *x = hoisted(h, t, trips);
    if (!x) return;
    Stmt *n = stmt_op(c, x, op->path);
    double each = cost_group_ns(h->p, op, 1) * cost_size(trips);
    if (!decide(h->p, X_HOIST, op, each, cost_group_ns(h->p, n, 1))) return;
    seq_put_at(c, q, (*at)++, n);
    Expr *idx[MAX_RANK];
    int more = x->rank - t->rank;
    if (more) idx[0] = e_sym(c, h->loop->loop.iter);
    for (int d = 0; d < t->rank; d++) idx[d + more] = e_axis(c, t->axis[d]);
    t->body = e_load(c, x, idx);
}

static void hoist_loop(void *user, Seq *q, int *at) {
    Hoist *h = user;
    Stmt *s = h->loop = q->s.p[*at];
    if (s->kind != S_LOOP) return;
    Cx *c = h->c;
    Seq *body = s->loop.body;
    Expr *trips = NULL;
    h->counted = loop_counted(s);
    if (h->counted) {
        trips = e_max(c, s->loop.trips, e_int(c, 0));
        if (!trips->pure || e_is_ival(trips, 1)) return;
    }
    h->independent = NEWN(h->a, bool, c->next_tensor + 2 * (body->s.n + MAX_TERMS));
    int terms = 0;
    for (int i = 0; i < body->s.n; i++) {
        Stmt *o = body->s.p[i];
        if (o->kind != S_OP) continue;
        Tensor *t = o->op.t[0];
        Expr *r;
        if (t->rank < 0) continue;
        if (loop_keeps_dims(h->loop, t) && expr_independent(h, t->body)) {
            if (has_product(t->body)) hoist_product(h, q, at, o, trips);
            h->independent[t->id] = true;
            continue;
        }
        /* A term becomes a tensor, which may become one of all iterations. */
        while (terms < MAX_TERMS &&
               (r = find_reduction(map_new(h->a), t->body, true, is_term, h))) {
            Tensor *x = split_term(h, t, r);
            if (!x) break;
            terms++;
            Stmt *n = stmt_op(c, x, o->path);
            seq_put_at(c, body, i++, n);
            hoist_product(h, q, at, n, trips);
            h->independent[x->id] = true;
        }
    }
}

void pass_hoist(Program *p) {
    Hoist h = {.p = p, .c = p->cx, .a = p->cx->a};
    seq_rewrite(p->top, hoist_loop, &h); /* inner loops first: what they give up may move on */
}
