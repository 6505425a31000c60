/* clone.c: see clone.h. */
#include "utask/clone.h"
#include "utask/expr_internal.h"

Clone clone_new(Cx *c) {
    return (Clone){c, map_new(c->a), map_new(c->a), map_new(c->a), map_new(c->a), NULL, NULL};
}

static uint64_t key(int id) { return (uint64_t)id + 1; }

void clone_map_tensor(Clone *k, const Tensor *from, Tensor *to) {
    map_seti(k->tensor, key(from->id), to);
}

void clone_map_sym(Clone *k, const Sym *from, Expr *to) { map_seti(k->sym, key(from->id), to); }

void clone_again(Clone *k) {
    k->expr = map_new(k->c->a);
    k->view = map_new(k->c->a);
}

/* ---- expressions ----------------------------------------------------------------------------- */
/* Reductions get axes of their own: copies may come to stand inside each other. */
static Expr *clone_reduce(Clone *k, Expr *e) {
    Cx *c = k->c;
    Expr *body = clone_expr(k, e->a[0]), *to[MAX_RANK * 2];
    Axis *axis[MAX_RANK * 2];
    for (int i = 0; i < e->naxis; i++) {
        axis[i] = axis_new(c, clone_expr(k, e->raxis[i]->extent));
        to[i] = e_axis(c, axis[i]);
    }
    body = e_subst(c, body, e->naxis, e->raxis, to, NULL, NULL);
    return e_reduce(c, e->kind, e->naxis, axis, body);
}

Expr *clone_expr(Clone *k, Expr *e) {
    if (!e || !(e->flags & (EF_SYM | EF_LOAD | EF_REDUCE))) return e;
    Expr *r = map_geti(k->expr, key(e->id));
    if (r) return r;
    if (e->op == E_SYM) {
        r = map_geti(k->sym, key(e->sym->id));
        if (!r) r = e;
    } else if (e->op == E_REDUCE) {
        r = clone_reduce(k, e);
    } else {
        Cx *c = k->c;
        Expr *small[MAX_RANK], **a = e->n <= MAX_RANK ? small : NEWN(c->a, Expr *, e->n);
        for (int i = 0; i < e->n; i++) a[i] = clone_expr(k, e->a[i]);
        if (e->op == E_LOAD) {
            Tensor *t = clone_tensor(k, e->t);
            r = e->kind ? e_loadf(c, t, a[0]) : e_load(c, t, a);
        } else {
            r = expr_rebuild(c, e, a);
        }
    }
    map_seti(k->expr, key(e->id), r);
    return r;
}

/* ---- tensors and symbols --------------------------------------------------------------------- */
static Tensor *copy_of(Clone *k, const Tensor *t, Seq *at) {
    Expr *dim[MAX_RANK];
    for (int i = 0; i < MAX_RANK; i++) dim[i] = clone_expr(k, t->dim[i]);
    Tensor *r = tensor_new(k->c, t->kind, t->dtype, t->rank, dim);
    r->rank_e = clone_expr(k, t->rank_e);
    r->rank_mask = t->rank_mask;
    for (int n = 0; t->rank < 0 && n <= MAX_RANK; n++) {
        if (!t->alt[n]) continue;
        r->alt[n] = NEWN(k->c->a, Expr *, MAX_RANK);
        for (int i = 0; i < n; i++) r->alt[n][i] = clone_expr(k, t->alt[n][i]);
    }
    int64_t n;
    if (t->elem && e_is_int(tensor_count(k->c, t), &n)) {
        r->elem = NEWN(k->c->a, Expr *, n + 1);
        for (int64_t i = 0; i < n; i++) r->elem[i] = clone_expr(k, t->elem[i]);
    }
    r->name = t->name;
    r->path = t->path;
    r->seq = at;
    return r;
}

Tensor *clone_like(Clone *k, const Tensor *t, Seq *at) {
    Tensor *r = copy_of(k, t, at);
    clone_map_tensor(k, t, r);
    return r;
}

Tensor *clone_tensor(Clone *k, Tensor *t) {
    if (!t) return NULL;
    Tensor *r = map_geti(k->tensor, key(t->id));
    if (r) return r;
    if (t->kind != TK_VIEW) return t;
    r = map_geti(k->view, key(t->id));
    if (r) return r;
    Tensor *base = clone_tensor(k, t->base);
    bool same = base == t->base;
    if (base->kind == TK_VIEW) base = base->base;
    for (int i = 0; i < MAX_RANK; i++) same &= clone_expr(k, t->dim[i]) == t->dim[i];
    if (same && clone_expr(k, t->rank_e) == t->rank_e) return t;
    r = copy_of(k, t, base->seq);
    r->base = base;
    map_seti(k->view, key(t->id), r);
    return r;
}

Sym *clone_sym(Clone *k, const Sym *s, Seq *at) {
    Sym *r = sym_new(k->c, s->dtype, s->name, s->lo);
    r->hi = s->hi;
    r->scope = at;
    clone_map_sym(k, s, e_sym(k->c, r));
    return r;
}

static Tensor *clone_op(Clone *k, Tensor *t, Seq *to) {
    Cx *c = k->c;
    Tensor *r = clone_like(k, t, to);
    Expr *at[MAX_RANK];
    for (int i = 0; i < t->rank; i++) {
        r->axis[i] = axis_new(c, r->dim[i]);
        at[i] = e_axis(c, r->axis[i]);
    }
    r->body = e_subst(c, clone_expr(k, t->body), t->rank, t->axis, at, NULL, NULL);
    r->owned = t->owned;
    return r;
}

/* ---- statements ------------------------------------------------------------------------------ */
static bool known_rank(const Tensor *t) { return !t || (t->rank >= 0 && !t->blob); }

bool clone_can(const Seq *q, bool calls) {
    for (int i = 0; i < q->s.n; i++) {
        const Stmt *s = q->s.p[i];
        switch (s->kind) {
        case S_LET:
        case S_CHECK: break;
        case S_OP:
            if (s->op.split || s->op.at) return false;
            for (int j = 0; j < s->op.n; j++)
                if (!known_rank(s->op.t[j])) return false;
            break;
        case S_BRANCH:
            for (int j = 0; j < s->br.joins.n; j++)
                if (!known_rank(s->br.joins.p[j].out)) return false;
            if (!clone_can(s->br.arm[0], calls) || !clone_can(s->br.arm[1], calls)) return false;
            break;
        case S_LOOP:
            for (int j = 0; j < s->loop.carry.n; j++)
                if (!known_rank(s->loop.carry.p[j].phi)) return false;
            if (!clone_can(s->loop.body, calls)) return false;
            break;
        case S_CALL:
            if (!calls || s->call.nfunc) return false;
            break;
        default: return false;
        }
    }
    return true;
}

static void clone_loop(Clone *k, const Stmt *s, Stmt *n, Seq *to) {
    Cx *c = k->c;
    n->loop.trips = clone_expr(k, s->loop.trips);
    n->loop.cond0 = clone_expr(k, s->loop.cond0);
    n->loop.cap_site = s->loop.cap_site;
    n->loop.body = seq_new(c, to, n, true);
    for (int i = 0; i < s->loop.syms.n; i++) {
        LoopSym x = {.init = clone_expr(k, s->loop.syms.p[i].init)};
        vec_push(c->a, &n->loop.syms, x);
    }
    for (int i = 0; i < s->loop.carry.n; i++) {
        LoopCarry x = {.init = clone_tensor(k, s->loop.carry.p[i].init)};
        vec_push(c->a, &n->loop.carry, x);
    }
    n->loop.iter = clone_sym(k, s->loop.iter, to);
    for (int i = 0; i < s->loop.syms.n; i++)
        n->loop.syms.p[i].sym = clone_sym(k, s->loop.syms.p[i].sym, to);
    for (int i = 0; i < s->loop.carry.n; i++)
        n->loop.carry.p[i].phi = clone_like(k, s->loop.carry.p[i].phi, to);
    clone_seq(k, s->loop.body, n->loop.body);
    for (int i = 0; i < s->loop.syms.n; i++)
        n->loop.syms.p[i].next = clone_expr(k, s->loop.syms.p[i].next);
    for (int i = 0; i < s->loop.carry.n; i++)
        n->loop.carry.p[i].next = clone_tensor(k, s->loop.carry.p[i].next);
    n->loop.cond_next = clone_expr(k, s->loop.cond_next);
    n->loop.made = clone_expr(k, s->loop.made);
    for (int i = 0; i < s->loop.scan.n; i++) {
        const LoopScan *x = &s->loop.scan.p[i];
        Tensor *out = x->more ? clone_tensor(k, x->out) : clone_like(k, x->out, to);
        LoopScan y = {clone_tensor(k, x->elem), out, clone_expr(k, x->at), x->more};
        vec_push(c->a, &n->loop.scan, y);
    }
}

static void clone_branch(Clone *k, const Stmt *s, Stmt *n, Seq *to) {
    Cx *c = k->c;
    n->br.cond = clone_expr(k, s->br.cond);
    for (int i = 0; i < s->br.syms.n; i++) vec_push(c->a, &n->br.syms, ((JoinSym){0}));
    for (int i = 0; i < s->br.joins.n; i++)
        vec_push(c->a, &n->br.joins, ((Join){.half = s->br.joins.p[i].half}));
    for (int m = 0; m < 2; m++) {
        n->br.arm[m] = seq_new(c, to, n, false);
        clone_seq(k, s->br.arm[m], n->br.arm[m]);
        for (int i = 0; i < s->br.syms.n; i++)
            n->br.syms.p[i].arm[m] = clone_expr(k, s->br.syms.p[i].arm[m]);
        for (int i = 0; i < s->br.joins.n; i++)
            n->br.joins.p[i].arm[m] = clone_tensor(k, s->br.joins.p[i].arm[m]);
    }
    for (int i = 0; i < s->br.syms.n; i++)
        n->br.syms.p[i].sym = clone_sym(k, s->br.syms.p[i].sym, to);
    for (int i = 0; i < s->br.joins.n; i++)
        n->br.joins.p[i].out = clone_like(k, s->br.joins.p[i].out, to);
}

void clone_seq(Clone *k, const Seq *q, Seq *to) {
    Cx *c = k->c;
    for (int i = 0; i < q->s.n; i++) {
        const Stmt *s = q->s.p[i];
        if (s->kind == S_CALL) {
            k->call(k, s, to);
            continue;
        }
        Stmt *n = stmt_new(c, s->kind, s->path);
        switch (s->kind) {
        case S_LET:
            n->let.e = clone_expr(k, s->let.e);
            n->let.sym = clone_sym(k, s->let.sym, to);
            break;
        case S_CHECK:
            n->check.cond = clone_expr(k, s->check.cond);
            n->check.site = s->check.site;
            break;
        case S_OP:
            n->op.n = s->op.n;
            n->op.t = NEWN(c->a, Tensor *, s->op.n);
            for (int j = 0; j < s->op.n; j++) n->op.t[j] = clone_op(k, s->op.t[j], to);
            break;
        case S_BRANCH: clone_branch(k, s, n, to); break;
        case S_LOOP: clone_loop(k, s, n, to); break;
        default: die("a statement of kind %d is not copied", s->kind);
        }
        vec_push(c->a, &to->s, n);
    }
}
