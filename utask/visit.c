/* visit.c: see visit.h. */
#include "utask/visit.h"

enum { SEEN_EXPR, SEEN_TENSOR, SEEN_SYM, SEEN_KINDS };

Visit visit_new(Cx *c, void (*tensor)(void *, Tensor *), void (*sym)(void *, Sym *), void *user) {
    return (Visit){c, map_new(c->a), NULL, tensor, sym, user};
}

static bool first_time(Visit *u, int kind, int id) {
    uint64_t key = (uint64_t)id * SEEN_KINDS + (uint64_t)kind + 1;
    if (map_geti(u->seen, key)) return false;
    map_seti(u->seen, key, u->c);
    return true;
}

static void see_sym(Visit *u, Sym *s) {
    if (s && u->sym && first_time(u, SEEN_SYM, s->id)) u->sym(u->user, s);
}

void visit_expr(Visit *u, const Expr *e) {
    if (!e || !(e->flags & (EF_SYM | EF_LOAD | EF_AXIS | EF_REDUCE)) ||
        !first_time(u, SEEN_EXPR, e->id))
        return;
    if (e->op == E_SYM) see_sym(u, e->sym);
    if (e->op == E_LOAD) visit_tensor(u, e->t);
    if (e->op == E_REDUCE)
        for (int i = 0; i < e->naxis; i++) visit_expr(u, e->raxis[i]->extent);
    for (int i = 0; i < e->n; i++) visit_expr(u, e->a[i]);
}

void visit_tensor(Visit *u, Tensor *t) {
    if (!t || !first_time(u, SEEN_TENSOR, t->id)) return;
    if (u->tensor) u->tensor(u->user, t);
    if (t->kind == TK_VIEW) visit_tensor(u, t->base);
    if (t->blob) return;
    visit_expr(u, t->rank_e);
    for (int i = 0; i < MAX_RANK; i++) visit_expr(u, t->dim[i]);
    for (int r = 0; t->rank < 0 && r <= MAX_RANK; r++)
        for (int i = 0; t->alt[r] && i < r; i++) visit_expr(u, t->alt[r][i]);
}

void visit_stmt(Visit *u, const Stmt *s) {
    switch (s->kind) {
    case S_LET:
        see_sym(u, s->let.sym);
        visit_expr(u, s->let.e);
        break;
    case S_OP:
        for (int i = 0; i < s->op.n; i++) {
            visit_tensor(u, s->op.t[i]);
            visit_expr(u, s->op.t[i]->body);
        }
        for (int i = 0; s->op.at && i < s->op.t[0]->rank; i++) visit_expr(u, s->op.at[i]);
        break;
    case S_EXTERN:
        for (int i = 0; i < s->ext.nin; i++) visit_tensor(u, s->ext.in[i]);
        for (int i = 0; i < s->ext.nparam; i++) visit_expr(u, s->ext.param[i]);
        for (int i = 0; i < s->ext.nout; i++) visit_tensor(u, s->ext.out[i]);
        for (int i = 0; i < s->ext.nsym; i++) see_sym(u, s->ext.sym[i]);
        break;
    case S_CHECK: visit_expr(u, s->check.cond); break;
    case S_LOOP:
        visit_expr(u, s->loop.trips);
        visit_expr(u, s->loop.cond0);
        see_sym(u, s->loop.iter);
        for (int i = 0; i < s->loop.syms.n; i++) {
            see_sym(u, s->loop.syms.p[i].sym);
            visit_expr(u, s->loop.syms.p[i].init);
            if (u->skip != s->loop.body) visit_expr(u, s->loop.syms.p[i].next);
        }
        for (int i = 0; i < s->loop.carry.n; i++) {
            visit_tensor(u, s->loop.carry.p[i].phi);
            visit_tensor(u, s->loop.carry.p[i].init);
            if (u->skip != s->loop.body) visit_tensor(u, s->loop.carry.p[i].next);
        }
        for (int i = 0; i < s->loop.scan.n; i++) {
            visit_tensor(u, s->loop.scan.p[i].out);
            if (u->skip == s->loop.body) continue;
            visit_tensor(u, s->loop.scan.p[i].elem);
            visit_expr(u, s->loop.scan.p[i].at);
        }
        if (u->skip != s->loop.body) {
            visit_expr(u, s->loop.cond_next);
            visit_expr(u, s->loop.made);
        }
        visit_seq(u, s->loop.body);
        break;
    case S_BRANCH:
        visit_expr(u, s->br.cond);
        for (int k = 0; k < 2; k++) visit_seq(u, s->br.arm[k]);
        for (int i = 0; i < s->br.syms.n; i++) {
            see_sym(u, s->br.syms.p[i].sym);
            for (int k = 0; k < 2; k++) visit_expr(u, s->br.syms.p[i].arm[k]);
        }
        for (int i = 0; i < s->br.joins.n; i++) {
            visit_tensor(u, s->br.joins.p[i].out);
            for (int k = 0; k < 2; k++) visit_tensor(u, s->br.joins.p[i].arm[k]);
        }
        break;
    case S_CALL: {
        const Func *f = s->call.f;
        for (int i = 0; i < f->nsym; i++) visit_expr(u, s->call.sym[i]);
        for (int i = 0; i < f->narg; i++) visit_tensor(u, s->call.arg[i]);
        for (int i = 0; i < f->nout; i++) visit_tensor(u, s->call.out[i]);
        for (int i = 0; i < f->nret; i++) see_sym(u, s->call.ret[i]);
        for (int k = 0; k < s->call.nfunc; k++) {
            const Func *g = s->call.func[k];
            for (int i = 0; i < g->nsym; i++) see_sym(u, g->sym[i]);
            for (int i = 0; i < g->narg; i++) visit_tensor(u, g->arg[i]);
            visit_seq(u, g->body);
            for (int i = 0; i < g->nout; i++) visit_tensor(u, g->out[i]);
            for (int i = 0; i < g->nret; i++) visit_expr(u, g->ret[i]);
        }
        break;
    }
    default: break;
    }
}

void visit_seq(Visit *u, const Seq *q) {
    for (int i = 0; q != u->skip && i < q->s.n; i++) visit_stmt(u, q->s.p[i]);
}

void stmt_seqs(const Stmt *s, void (*f)(void *user, Seq *q), void *user) {
    if (s->kind == S_LOOP) f(user, s->loop.body);
    for (int k = 0; s->kind == S_BRANCH && k < 2; k++) f(user, s->br.arm[k]);
    for (int k = 0; s->kind == S_CALL && k < s->call.nfunc; k++) f(user, s->call.func[k]->body);
}

typedef struct LoadExprs {
    void (*f)(void *user, Expr **e);
    void *user;
} LoadExprs;

static void load_exprs_below(void *user, Seq *q) {
    LoadExprs *k = user;
    for (int i = 0; i < q->s.n; i++) stmt_load_exprs(q->s.p[i], k->f, k->user);
}

void stmt_load_exprs(Stmt *s, void (*f)(void *user, Expr **e), void *user) {
    LoadExprs k = {f, user};
    switch (s->kind) {
    case S_LET: f(user, &s->let.e); break;
    case S_OP:
        for (int i = 0; i < s->op.n; i++) f(user, &s->op.t[i]->body);
        break;
    case S_CHECK: f(user, &s->check.cond); break;
    case S_LOOP:
        if (s->loop.cond0) f(user, &s->loop.cond0);
        if (s->loop.cond_next) f(user, &s->loop.cond_next);
        break;
    case S_BRANCH: f(user, &s->br.cond); break;
    default: break;
    }
    stmt_seqs(s, load_exprs_below, &k);
}

void stmt_defines(const Stmt *s, void (*tensor)(void *, Tensor *), void (*sym)(void *, Sym *),
                  void *user) {
    switch (s->kind) {
    case S_LET: sym(user, s->let.sym); break;
    case S_OP:
        for (int i = 0; i < s->op.n; i++) tensor(user, s->op.t[i]);
        break;
    case S_EXTERN:
        for (int i = 0; i < s->ext.nout; i++) tensor(user, s->ext.out[i]);
        for (int i = 0; i < s->ext.nsym; i++) sym(user, s->ext.sym[i]);
        break;
    case S_LOOP:
        sym(user, s->loop.iter);
        for (int i = 0; i < s->loop.syms.n; i++) sym(user, s->loop.syms.p[i].sym);
        for (int i = 0; i < s->loop.carry.n; i++) tensor(user, s->loop.carry.p[i].phi);
        for (int i = 0; i < s->loop.scan.n; i++) tensor(user, s->loop.scan.p[i].out);
        break;
    case S_BRANCH:
        for (int i = 0; i < s->br.syms.n; i++) sym(user, s->br.syms.p[i].sym);
        for (int i = 0; i < s->br.joins.n; i++) tensor(user, s->br.joins.p[i].out);
        break;
    case S_CALL:
        for (int i = 0; i < s->call.f->nout; i++) tensor(user, s->call.out[i]);
        for (int i = 0; i < s->call.f->nret; i++) sym(user, s->call.ret[i]);
        break;
    default: break;
    }
}

/* ---- one statement's use of another ---------------------------------------------------------- */
typedef struct Uses {
    Map *made; /* what the maker defines */
    bool any;
} Uses;

static void made_tensor(void *user, Tensor *t) { map_seti(user, (uint64_t)(uintptr_t)t, t); }
static void made_symbol(void *user, Sym *s) { map_seti(user, (uint64_t)(uintptr_t)s, s); }
static void used_tensor(void *user, Tensor *t) {
    Uses *k = user;
    k->any = k->any || map_geti(k->made, (uint64_t)(uintptr_t)t);
}
static void used_symbol(void *user, Sym *s) {
    Uses *k = user;
    k->any = k->any || map_geti(k->made, (uint64_t)(uintptr_t)s);
}

bool stmt_uses(Cx *c, const Stmt *reader, const Stmt *maker) {
    Uses k = {map_new(c->a), false};
    stmt_defines(maker, made_tensor, made_symbol, k.made);
    Visit v = visit_new(c, used_tensor, used_symbol, &k);
    visit_stmt(&v, reader);
    return k.any;
}

/* ---- statements of another Seq --------------------------------------------------------------- */
typedef struct Move {
    const Seq *from;
    Seq *to;
} Move;

static void move_tensor(void *user, Tensor *t) {
    const Move *k = user;
    if (t->seq == k->from) t->seq = k->to;
}
static void move_sym(void *user, Sym *s) {
    const Move *k = user;
    if (s->scope == k->from) s->scope = k->to;
}
static void move_seq(void *user, Seq *q) {
    const Move *k = user;
    if (q->parent == k->from) q->parent = k->to;
}

void stmt_move(Cx *c, const Stmt *s, const Seq *from, Seq *to) {
    Move k = {from, to};
    Visit v = visit_new(c, move_tensor, move_sym, &k);
    visit_stmt(&v, s);
    stmt_seqs(s, move_seq, &k);
}
