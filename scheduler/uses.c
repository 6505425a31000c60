/* uses.c: see uses.h. */
#include "scheduler/uses.h"

typedef struct Each {
    void (*f)(void *user, Expr *e);
    void (*t)(void *user, Tensor *t);
    void *user;
} Each;

static void expr(const Each *k, Expr *e) {
    if (e && k->f) k->f(k->user, e);
}
static void tensor(const Each *k, Tensor *t) {
    if (t && k->t) k->t(k->user, t);
}
static void dims(const Each *k, const Tensor *t) {
    for (int i = 0; i < (t->rank < 0 ? MAX_RANK : t->rank); i++) expr(k, t->dim[i]);
}

static void each(const Each *k, const Stmt *s);
static void each_seq(const Each *k, const Seq *q) {
    for (int i = 0; i < q->s.n; i++) each(k, q->s.p[i]);
}

static void each(const Each *k, const Stmt *s) {
    switch (s->kind) {
    case S_LET: expr(k, s->let.e); break;
    case S_CHECK: expr(k, s->check.cond); break;
    case S_OP:
        for (int i = 0; i < s->op.n; i++) {
            expr(k, s->op.t[i]->body);
            dims(k, s->op.t[i]);
        }
        for (int i = 0; s->op.at && i < MAX_RANK; i++) expr(k, s->op.at[i]);
        break;
    case S_EXTERN:
        for (int i = 0; i < s->ext.nin; i++) tensor(k, s->ext.in[i]);
        for (int i = 0; i < s->ext.nparam; i++) expr(k, s->ext.param[i]);
        for (int i = 0; i < s->ext.nout; i++) dims(k, s->ext.out[i]);
        break;
    case S_LOOP:
        expr(k, s->loop.trips);
        expr(k, s->loop.cond0);
        expr(k, s->loop.cond_next);
        for (int i = 0; i < s->loop.syms.n; i++) {
            expr(k, s->loop.syms.p[i].init);
            expr(k, s->loop.syms.p[i].next);
        }
        for (int i = 0; i < s->loop.carry.n; i++) {
            tensor(k, s->loop.carry.p[i].init);
            tensor(k, s->loop.carry.p[i].next);
            dims(k, s->loop.carry.p[i].phi);
        }
        for (int i = 0; i < s->loop.scan.n; i++) dims(k, s->loop.scan.p[i].out);
        each_seq(k, s->loop.body);
        break;
    case S_BRANCH:
        expr(k, s->br.cond);
        for (int m = 0; m < 2; m++) {
            for (int i = 0; i < s->br.syms.n; i++) expr(k, s->br.syms.p[i].arm[m]);
            for (int i = 0; i < s->br.joins.n; i++) tensor(k, s->br.joins.p[i].arm[m]);
            each_seq(k, s->br.arm[m]);
        }
        break;
    case S_CALL:
        for (int i = 0; i < s->call.f->nsym; i++) expr(k, s->call.sym[i]);
        for (int i = 0; i < s->call.f->narg; i++) tensor(k, s->call.arg[i]);
        for (int i = 0; i < s->call.f->nout; i++) dims(k, s->call.out[i]);
        for (int i = 0; i < s->call.nfunc; i++) each_seq(k, s->call.func[i]->body);
        break;
    default: break;
    }
}

void stmt_each_expr(const Stmt *s, void (*f)(void *user, Expr *e), void (*t)(void *user, Tensor *t), void *user) {
    Each k = {f, t, user};
    each(&k, s);
}

/* ---- definitions ------------------------------------------------------------------------------------------------- */
static bool defines_tensor(const Stmt *s, const Tensor *t) {
    while (t->kind == TK_VIEW) t = t->base;
    switch (s->kind) {
    case S_OP:
        for (int i = 0; i < s->op.n; i++)
            if (s->op.t[i] == t) return true;
        return false;
    case S_EXTERN:
        for (int i = 0; i < s->ext.nout; i++)
            if (s->ext.out[i] == t) return true;
        return false;
    case S_LOOP:
        for (int i = 0; i < s->loop.carry.n; i++)
            if (s->loop.carry.p[i].phi == t) return true;
        for (int i = 0; i < s->loop.scan.n; i++)
            if (s->loop.scan.p[i].out == t) return true;
        return false;
    case S_BRANCH:
        for (int i = 0; i < s->br.joins.n; i++)
            if (s->br.joins.p[i].out == t) return true;
        return false;
    case S_CALL:
        for (int i = 0; i < s->call.f->nout; i++)
            if (s->call.out[i] == t) return true;
        return false;
    default: return false;
    }
}

static bool defines_symbol(const Stmt *s, const Sym *y) {
    switch (s->kind) {
    case S_LET: return s->let.sym == y;
    case S_EXTERN:
        for (int i = 0; i < s->ext.nsym; i++)
            if (s->ext.sym[i] == y) return true;
        return false;
    case S_LOOP:
        for (int i = 0; i < s->loop.syms.n; i++)
            if (s->loop.syms.p[i].sym == y) return true;
        return s->loop.iter == y;
    case S_BRANCH:
        for (int i = 0; i < s->br.syms.n; i++)
            if (s->br.syms.p[i].sym == y) return true;
        return false;
    case S_CALL:
        for (int i = 0; i < s->call.f->nret; i++)
            if (s->call.ret[i] == y) return true;
        return false;
    default: return false;
    }
}

typedef struct Uses {
    Cx *c;
    const Stmt *maker;
    Map *seen;
    bool any;
} Uses;

static void uses_tensor(void *user, Tensor *t) {
    Uses *k = user;
    k->any = k->any || defines_tensor(k->maker, t);
}

static void uses_expr(void *user, Expr *e) {
    Uses *k = user;
    if (k->any || !(e->flags & (EF_LOAD | EF_SYM)) || map_geti(k->seen, (uint64_t)e->id + 1)) return;
    map_seti(k->seen, (uint64_t)e->id + 1, e);
    if (e->op == E_LOAD) {
        k->any = defines_tensor(k->maker, e->t);
        for (int i = 0; i < e->t->rank && !k->any; i++) uses_expr(user, e->t->dim[i]); /* in addresses */
    }
    if (e->op == E_SYM) k->any = defines_symbol(k->maker, e->sym);
    for (int i = 0; e->op == E_REDUCE && i < e->naxis; i++) uses_expr(user, e->raxis[i]->extent);
    for (int i = 0; i < e->n; i++) uses_expr(user, e->a[i]);
}

bool stmt_uses(Cx *c, const Stmt *reader, const Stmt *maker) {
    Uses k = {c, maker, map_new(c->a), false};
    stmt_each_expr(reader, uses_expr, uses_tensor, &k);
    return k.any;
}
