/* clone.c: copies statements, as clone.h describes. */
#include "utask/clone.h"
#include "utask/expr_internal.h"
#include "utask/walk.h"

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
/* Reductions get axes of their own, because copies may end up nested in each other. */
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
    Sym *r = sym_like(k->c, s, at);
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
static void has_open_rank(void *user, const Slot *k) {
    if (k->kind == SLOT_TENSOR && ((*k->t)->rank < 0 || (*k->t)->blob)) *(bool *)user = true;
}

static bool cannot(void *user, const Stmt *s) {
    const bool *calls = user;
    bool open = false;
    if (s->kind == S_EXTERN || s->kind == S_BARRIER || s->kind == S_ENTER) return true;
    if (s->kind == S_OP && (s->op.split || s->op.at)) return true;
    if (s->kind == S_CALL && (!*calls || s->call.nfunc)) return true;
    stmt_slots(s, has_open_rank, &open);
    return open;
}

bool clone_can(const Seq *q, bool calls) { return !seq_any(q, cannot, &calls); }

#define OWN(a, p, n) ((p) = arena_memdup(a, p, sizeof *(p) * (size_t)(n)))
#define OWN_VEC(a, v) (OWN(a, (v).p, (v).n), (v).cap = (v).n)

/* A copy of s itself, with lists of its own. */
static Stmt *copy_stmt(Arena *a, const Stmt *s) {
    Stmt *n = arena_memdup(a, s, sizeof *s);
    switch (s->kind) {
    case S_OP: OWN(a, n->op.t, n->op.n); break;
    case S_LOOP:
        OWN_VEC(a, n->loop.syms);
        OWN_VEC(a, n->loop.carry);
        OWN_VEC(a, n->loop.scan);
        break;
    case S_BRANCH:
        OWN_VEC(a, n->br.syms);
        OWN_VEC(a, n->br.joins);
        break;
    case S_CALL:
        OWN(a, n->call.sym, n->call.f->nsym);
        OWN(a, n->call.arg, n->call.f->narg);
        OWN(a, n->call.out, n->call.f->nout);
        OWN(a, n->call.ret, n->call.f->nret);
        break;
    default: break;
    }
    return n;
}

typedef struct Copy {
    Clone *k;
    Stmt *s; /* the copy */
    Seq *to;
} Copy;

/* Replaces a field of the copy, which still holds the original's value. */
static void clone_slot(void *user, const Slot *x) {
    Copy *y = user;
    Seq *from;
    switch (x->kind) {
    case SLOT_EXPR: *x->e = clone_expr(y->k, *x->e); break;
    case SLOT_BODY: break; /* the body of the original's member; its copy gets one of its own */
    case SLOT_READ: *x->t = clone_tensor(y->k, *x->t); break;
    case SLOT_TENSOR:
        *x->t = x->more              ? clone_tensor(y->k, *x->t)
                : y->s->kind == S_OP ? clone_op(y->k, *x->t, y->to)
                                     : clone_like(y->k, *x->t, y->to);
        break;
    case SLOT_SYM: *x->sym = clone_sym(y->k, *x->sym, y->to); break;
    case SLOT_SEQ:
        from = *x->q;
        *x->q = seq_new(y->k->c, y->to, y->s, y->s->kind == S_LOOP);
        clone_seq(y->k, from, *x->q);
        break;
    }
}

Stmt *clone_stmt(Clone *k, const Stmt *s, Seq *to) {
    Stmt *n = copy_stmt(k->c->a, s);
    stmt_slots(n, clone_slot, &(Copy){k, n, to});
    vec_push(k->c->a, &to->s, n);
    return n;
}

void clone_seq(Clone *k, const Seq *q, Seq *to) {
    for (int i = 0; i < q->s.n; i++)
        if (q->s.p[i]->kind == S_CALL)
            k->call(k, q->s.p[i], to);
        else
            clone_stmt(k, q->s.p[i], to);
}
