/* hoist.c: step-invariant products leave their loop.
 *
 * A tensor of a loop body is independent when it depends only on values from outside and on the
 * iteration number. An independent sum of products, T matrix-vector products in T iterations, becomes one
 * matrix-matrix product before the loop, with the iteration as one more axis. Only counted loops:
 * otherwise iterations that never happen would be computed. */
#include "scheduler/cost.h"
#include "scheduler/decide.h"
#include "scheduler/passes.h"

#define HOIST_BYTES ((int64_t)1 << 28) /* most memory that one hoisted tensor may take */

typedef struct Hoist {
    Program *p;
    Cx *c;
    Arena *a;
    Stmt *loop;
    bool *independent; /* by tensor id, of the loop at hand */
    bool ok;
} Hoist;

static bool inside(const Seq *q, const Seq *body) {
    for (; q; q = q->parent)
        if (q == body) return true;
    return false;
}

static bool from_outside(const Hoist *h, const Tensor *t) {
    if (t->kind == TK_VIEW) return from_outside(h, t->base) && !inside(t->seq, h->loop->loop.body);
    for (int i = 0; i < h->loop->loop.carry.n; i++)
        if (h->loop->loop.carry.p[i].phi == t) return false;
    for (int i = 0; i < h->loop->loop.scan.n; i++)
        if (h->loop->loop.scan.p[i].out == t) return false;
    return t->kind == TK_CONST || t->kind == TK_INPUT || (t->seq && !inside(t->seq, h->loop->loop.body));
}

static void load_ok(void *user, Expr *e) {
    Hoist *h = user;
    h->ok = h->ok && (from_outside(h, e->t) || (e->t->kind == TK_TE && h->independent[e->t->id] && !e->kind));
}

/* Symbols: from outside, or the iteration number. */
static bool symbols_ok(const Hoist *h, const Expr *e) {
    if (!(e->flags & EF_SYM)) return true;
    if (e->op == E_SYM) {
        for (int i = 0; i < h->loop->loop.syms.n; i++)
            if (h->loop->loop.syms.p[i].sym == e->sym) return false;
        return e->sym == h->loop->loop.iter || expr_visible(e, h->loop->loop.body->parent);
    }
    for (int i = 0; i < e->n; i++)
        if (!symbols_ok(h, e->a[i])) return false;
    return true;
}

static bool is_independent(Hoist *h, const Tensor *t) {
    h->ok = true;
    for (int i = 0; i < t->rank; i++)
        if (!symbols_ok(h, t->dim[i]) || loop_varies(h->loop, t->dim[i])) return false;
    if (t->body->flags & EF_GUARD) return false; /* would fault before its time */
    if (!symbols_ok(h, t->body)) return false;
    e_each_load(h->c, t->body, load_ok, h);
    return h->ok;
}

static bool has_product(const Expr *e) {
    if (!(e->flags & EF_REDUCE)) return false;
    int64_t n = 1, v;
    if (e->op == E_REDUCE && e->kind == R_SUM && dtype_is_float(e->dtype) && e->a[0]->op == E_MUL) {
        for (int i = 0; i < e->naxis; i++) n *= e_is_int(e->raxis[i]->extent, &v) ? v : 64;
        return n >= 16;
    }
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

static Tensor *hoisted(Hoist *h, Tensor *t, Expr *trips) {
    Cx *c = h->c;
    Expr *dim[MAX_RANK], *to[MAX_RANK];
    int64_t bytes = 4, v;
    if (t->rank + 1 > MAX_RANK) return NULL;
    dim[0] = trips;
    for (int i = 0; i < t->rank; i++) dim[i + 1] = t->dim[i];
    for (int i = 0; i <= t->rank; i++)
        if (e_is_int(dim[i], &v) && (!mul_size(bytes, v, &bytes) || bytes > HOIST_BYTES)) return NULL;
    Tensor *x = tensor_new(c, TK_TE, t->dtype, t->rank + 1, dim);
    for (int i = 0; i <= t->rank; i++) x->axis[i] = axis_new(c, dim[i]);
    for (int i = 0; i < t->rank; i++) to[i] = e_axis(c, x->axis[i + 1]);
    Expr *body = e_subst(c, t->body, 0, NULL, NULL, inline_independent, h);
    body = e_subst(c, body, t->rank, t->axis, to, NULL, NULL);
    if (e_sym(c, h->loop->loop.iter)->op == E_SYM)
        body = e_replace(c, body, e_sym(c, h->loop->loop.iter), e_axis(c, x->axis[0]));
    x->body = body;
    x->name = t->name;
    x->path = t->path;
    x->seq = h->loop->loop.body->parent;
    return x;
}

static void hoist_loop(Hoist *h, Seq *q, int *at) {
    Stmt *s = h->loop;
    Cx *c = h->c;
    if (!s->loop.trips || s->loop.cond_next || s->loop.cond0) return;
    Expr *trips = e_max(c, s->loop.trips, e_int(c, 0));
    if (!trips->pure || e_is_ival(trips, 1)) return;
    h->independent = NEWN(h->a, bool, c->next_tensor + 1);
    for (int i = 0; i < s->loop.body->s.n; i++) {
        Stmt *o = s->loop.body->s.p[i];
        if (o->kind != S_OP) continue;
        Tensor *t = o->op.t[0];
        if (!is_independent(h, t)) continue;
        if (has_product(t->body)) {
            Tensor *x = hoisted(h, t, trips);
            if (!x) continue;
            Stmt *n = stmt_new(c, S_OP, o->path);
            n->op.n = 1;
            n->op.t = NEWN(h->a, Tensor *, 1);
            n->op.t[0] = x;
            const Device *device = h->p->schedule->device;
            double each = cost_group_ns(c, device, o, 1) * cost_size(trips);
            if (!decide(h->p, X_HOIST, o, each, cost_group_ns(c, device, n, 1))) continue;
            vec_push(h->a, &q->s, n);
            memmove(q->s.p + *at + 1, q->s.p + *at, sizeof *q->s.p * (size_t)(q->s.n - 1 - *at));
            q->s.p[(*at)++] = n;
            Expr *idx[MAX_RANK];
            idx[0] = e_sym(c, s->loop.iter);
            for (int d = 0; d < t->rank; d++) idx[d + 1] = e_axis(c, t->axis[d]);
            t->body = e_load(c, x, idx);
        }
        h->independent[t->id] = true;
    }
}

static void walk(Hoist *h, Seq *q) {
    for (int i = 0; i < q->s.n; i++) {
        Stmt *s = q->s.p[i];
        if (s->kind == S_BRANCH) {
            walk(h, s->br.arm[0]);
            walk(h, s->br.arm[1]);
        }
        if (s->kind == S_CALL)
            for (int k = 0; k < s->call.nfunc; k++) walk(h, s->call.func[k]->body);
        if (s->kind == S_LOOP) {
            walk(h, s->loop.body); /* inner loops first: what they give up may move on */
            h->loop = s;
            hoist_loop(h, q, &i);
        }
    }
}

void pass_hoist(Program *p) {
    Hoist h = {.p = p, .c = p->cx, .a = p->cx->a};
    walk(&h, p->top);
    p->nsym = p->cx->next_sym;
    p->ntensor = p->cx->next_tensor;
}
