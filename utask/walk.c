/* walk.c: walks over statements, as walk.h describes. */
#include "utask/walk.h"

/* ---- one statement --------------------------------------------------------------------------- */
typedef struct Slots {
    void (*f)(void *user, const Slot *k);
    void *user;
    Seq *in;
} Slots;

#define PUT(k, ...) (k)->f((k)->user, &(Slot){.in = (k)->in, __VA_ARGS__})

static void put_expr(const Slots *k, Expr **e, int dtype, bool loads) {
    if (*e) PUT(k, .kind = SLOT_EXPR, .loads = loads, .dtype = dtype, .e = e);
}
static void put_read(const Slots *k, Tensor **t, bool fresh) {
    if (*t) PUT(k, .kind = SLOT_READ, .fresh = fresh, .t = t);
}
static void put_tensor(const Slots *k, Tensor **t, TensorKind made, bool more) {
    PUT(k, .kind = SLOT_TENSOR, .more = more, .made = made, .t = t);
}
static void put_sym(const Slots *k, Sym **s) {
    if (*s) PUT(k, .kind = SLOT_SYM, .sym = s);
}
/* Slots put after it belong to the end of *q, until k->in changes. */
static void put_seq(Slots *k, Seq **q) {
    k->in = NULL;
    PUT(k, .kind = SLOT_SEQ, .q = q);
    k->in = *q;
}

static void op_slots(const Slots *k, Stmt *s) {
    for (int d = 0; s->op.at && d < s->op.t[0]->rank; d++) put_expr(k, &s->op.at[d], DT_I64, true);
    put_expr(k, &s->op.inner, DT_I64, false);
    for (int i = 0; i < s->op.n; i++) {
        if (s->op.t[i]->body) PUT(k, .kind = SLOT_BODY, .e = &s->op.t[i]->body);
        put_expr(k, &s->op.t[i]->row, DT_I64, false);
        put_tensor(k, &s->op.t[i], TK_TE, false);
    }
}

static void loop_slots(Slots *k, Stmt *s) {
    put_expr(k, &s->loop.trips, DT_I64, false);
    put_expr(k, &s->loop.cond0, DT_BOOL, true);
    for (int i = 0; i < s->loop.syms.n; i++)
        put_expr(k, &s->loop.syms.p[i].init, s->loop.syms.p[i].sym->dtype, false);
    for (int i = 0; i < s->loop.carry.n; i++) put_read(k, &s->loop.carry.p[i].init, false);
    put_sym(k, &s->loop.iter);
    for (int i = 0; i < s->loop.syms.n; i++) put_sym(k, &s->loop.syms.p[i].sym);
    for (int i = 0; i < s->loop.carry.n; i++) {
        Grow *g = s->loop.carry.p[i].phi->grow;
        put_tensor(k, &s->loop.carry.p[i].phi, TK_PHI, false);
        if (!g) continue;
        put_expr(k, &g->first, DT_I64, false);
        put_expr(k, &g->rows, DT_I64, false);
        put_sym(k, &g->room);
        put_expr(k, &g->extent, DT_I64, false);
    }
    put_seq(k, &s->loop.body);
    for (int i = 0; i < s->loop.syms.n; i++)
        put_expr(k, &s->loop.syms.p[i].next, s->loop.syms.p[i].sym->dtype, false);
    for (int i = 0; i < s->loop.carry.n; i++) put_read(k, &s->loop.carry.p[i].next, true);
    put_expr(k, &s->loop.cond_next, DT_BOOL, true);
    put_expr(k, &s->loop.made, DT_I64, false);
    for (int i = 0; i < s->loop.scan.n; i++) {
        LoopScan *x = &s->loop.scan.p[i];
        put_read(k, &x->elem, true);
        put_expr(k, &x->at, DT_I64, false);
    }
    k->in = NULL;
    for (int i = 0; i < s->loop.scan.n; i++)
        put_tensor(k, &s->loop.scan.p[i].out, TK_SCAN, s->loop.scan.p[i].more);
}

static void branch_slots(Slots *k, Stmt *s) {
    put_expr(k, &s->br.cond, DT_BOOL, true);
    for (int m = 0; m < 2; m++) {
        put_seq(k, &s->br.arm[m]);
        for (int i = 0; i < s->br.syms.n; i++)
            put_expr(k, &s->br.syms.p[i].arm[m], s->br.syms.p[i].sym->dtype, false);
        for (int i = 0; i < s->br.joins.n; i++) put_read(k, &s->br.joins.p[i].arm[m], false);
    }
    k->in = NULL;
    for (int i = 0; i < s->br.syms.n; i++) put_sym(k, &s->br.syms.p[i].sym);
    for (int i = 0; i < s->br.joins.n; i++) put_tensor(k, &s->br.joins.p[i].out, TK_JOIN, false);
}

static void call_slots(Slots *k, Stmt *s) {
    const Func *f = s->call.f;
    for (int i = 0; i < f->nsym; i++) put_expr(k, &s->call.sym[i], f->sym[i]->dtype, false);
    for (int i = 0; i < f->narg; i++) put_read(k, &s->call.arg[i], false);
    for (int m = 0; m < s->call.nfunc; m++) {
        Func *g = s->call.func[m];
        k->in = g->body;
        for (int i = 0; i < g->nsym; i++) put_sym(k, &g->sym[i]);
        for (int i = 0; i < g->narg; i++) put_tensor(k, &g->arg[i], TK_PARAM, false);
        put_seq(k, &g->body);
        for (int i = 0; i < g->nout; i++) put_read(k, &g->out[i], true);
        for (int i = 0; i < g->nret; i++) put_expr(k, &g->ret[i], DT_NONE, false);
    }
    k->in = NULL;
    for (int i = 0; i < f->nret; i++) put_sym(k, &s->call.ret[i]);
    for (int i = 0; i < f->nout; i++) put_tensor(k, &s->call.out[i], TK_CALL, false);
}

void stmt_slots(const Stmt *of, void (*f)(void *user, const Slot *k), void *user) {
    Stmt *s = (Stmt *)(uintptr_t)of; /* f may change it only if its caller may */
    Slots k = {f, user, NULL};
    switch (s->kind) {
    case S_LET:
        put_expr(&k, &s->let.e, s->let.sym->dtype, true);
        put_sym(&k, &s->let.sym);
        break;
    case S_OP: op_slots(&k, s); break;
    case S_EXTERN:
        for (int i = 0; i < s->ext.nparam; i++) put_expr(&k, &s->ext.param[i], DT_I64, false);
        for (int i = 0; i < s->ext.nin; i++) put_read(&k, &s->ext.in[i], false);
        for (int i = 0; i < s->ext.nsym; i++) put_sym(&k, &s->ext.sym[i]);
        for (int i = 0; i < s->ext.nout; i++) put_tensor(&k, &s->ext.out[i], TK_EXTERN, false);
        break;
    case S_CHECK: put_expr(&k, &s->check.cond, DT_BOOL, true); break;
    case S_LOOP: loop_slots(&k, s); break;
    case S_BRANCH: branch_slots(&k, s); break;
    case S_CALL: call_slots(&k, s); break;
    case S_BARRIER:
    case S_ENTER:
    case S_COUNT: break;
    }
}

typedef struct Defines {
    void (*tensor)(void *, Tensor *);
    void (*sym)(void *, Sym *);
    void *user;
} Defines;

static void defines(void *user, const Slot *k) {
    const Defines *d = user;
    if (k->in) return;
    if (k->kind == SLOT_TENSOR && d->tensor) d->tensor(d->user, *k->t);
    if (k->kind == SLOT_SYM && d->sym) d->sym(d->user, *k->sym);
}

void stmt_defines(const Stmt *s, void (*tensor)(void *, Tensor *), void (*sym)(void *, Sym *),
                  void *user) {
    stmt_slots(s, defines, &(Defines){tensor, sym, user});
}

/* ---- statements below ------------------------------------------------------------------------ */
bool stmt_any(const Stmt *s, StmtTest *is, void *user) {
    if (is(user, s)) return true;
    for (int k = 0; k < stmt_nseq(s); k++)
        if (seq_any(stmt_seq(s, k), is, user)) return true;
    return false;
}

bool seq_any(const Seq *q, StmtTest *is, void *user) {
    for (int i = 0; i < q->s.n; i++)
        if (stmt_any(q->s.p[i], is, user)) return true;
    return false;
}

void seq_each(const Seq *q, void (*f)(void *user, Stmt *s), void *user) {
    for (int i = 0; i < q->s.n; i++) {
        Stmt *s = q->s.p[i];
        f(user, s);
        for (int k = 0; k < stmt_nseq(s); k++) seq_each(stmt_seq(s, k), f, user);
    }
}

void seq_each_here(const Seq *q, void (*f)(void *user, Stmt *s), void *user) {
    for (int i = 0; i < q->s.n; i++) {
        Stmt *s = q->s.p[i];
        f(user, s);
        for (int k = 0; s->kind != S_CALL && k < stmt_nseq(s); k++)
            seq_each_here(stmt_seq(s, k), f, user);
    }
}

void seq_rewrite(Seq *q, void (*f)(void *user, Seq *q, int *at), void *user) {
    for (int i = 0; i < q->s.n; i++) {
        const Stmt *s = q->s.p[i];
        for (int k = 0; k < stmt_nseq(s); k++) seq_rewrite(stmt_seq(s, k), f, user);
        f(user, q, &i);
    }
}

static void all_slots(void *user, const Slot *k) {
    const Slots *a = user;
    if (k->kind == SLOT_SEQ)
        seq_slots(*k->q, a->f, a->user);
    else
        a->f(a->user, k);
}

void stmt_all_slots(const Stmt *s, void (*f)(void *user, const Slot *k), void *user) {
    stmt_slots(s, all_slots, &(Slots){f, user, NULL});
}

void seq_slots(const Seq *q, void (*f)(void *user, const Slot *k), void *user) {
    for (int i = 0; i < q->s.n; i++) stmt_all_slots(q->s.p[i], f, user);
}

typedef struct ExprVisit {
    void (*f)(void *user, Expr **e);
    void *user;
} ExprVisit;

static void one_expr(void *user, const Slot *k) {
    const ExprVisit *x = user;
    if (slot_is_expr(k)) x->f(x->user, k->e);
}

void stmt_exprs(const Stmt *s, void (*f)(void *user, Expr **e), void *user) {
    stmt_all_slots(s, one_expr, &(ExprVisit){f, user});
}

typedef struct LoadVisit {
    Cx *c;
    void (*f)(void *user, Expr *load);
    void *user;
} LoadVisit;

static void expr_loads(void *user, Expr **e) {
    const LoadVisit *x = user;
    e_each_load(x->c, *e, x->f, x->user);
}

void stmt_loads(Cx *c, const Stmt *s, void (*f)(void *user, Expr *load), void *user) {
    stmt_exprs(s, expr_loads, &(LoadVisit){c, f, user});
}

bool stmt_is_call(void *user, const Stmt *s) {
    (void)user;
    return s->kind == S_CALL;
}

bool stmt_is_data(void *user, const Stmt *s) {
    (void)user;
    return s->kind == S_OP || s->kind == S_EXTERN || s->kind == S_CALL;
}

static bool count_stmt(void *user, const Stmt *s) {
    (void)s;
    ++*(int *)user;
    return false;
}

int seq_size(const Seq *q) {
    int n = 0;
    seq_any(q, count_stmt, &n);
    return n;
}

/* ---- things used ----------------------------------------------------------------------------- */
enum { SEEN_EXPR, SEEN_TENSOR, SEEN_SYM, SEEN_KINDS };

Visit visit_new(Cx *c, void (*tensor)(void *, Tensor *), void (*sym)(void *, Sym *), void *user) {
    return (Visit){c, map_new(c->a), NULL, tensor, sym, user};
}

static bool first_time(Visit *u, int kind, int id) {
    return map_add(u->seen, (uint64_t)id * SEEN_KINDS + (uint64_t)kind + 1);
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

static void visit_slot(void *user, const Slot *k) {
    Visit *u = user;
    if (k->in && k->in == u->skip) return;
    switch (k->kind) {
    case SLOT_EXPR:
    case SLOT_BODY: visit_expr(u, *k->e); break;
    case SLOT_READ:
    case SLOT_TENSOR: visit_tensor(u, *k->t); break;
    case SLOT_SYM: see_sym(u, *k->sym); break;
    case SLOT_SEQ: visit_seq(u, *k->q); break;
    }
}

void visit_stmt(Visit *u, const Stmt *s) { stmt_slots(s, visit_slot, u); }

void visit_seq(Visit *u, const Seq *q) {
    for (int i = 0; q != u->skip && i < q->s.n; i++) visit_stmt(u, q->s.p[i]);
}

typedef struct End {
    Visit *u;
    const Seq *q;
} End;

static void visit_end_slot(void *user, const Slot *k) {
    const End *x = user;
    if (k->in == x->q && (k->kind == SLOT_EXPR || k->kind == SLOT_READ)) visit_slot(x->u, k);
}

void visit_end(Visit *u, const Program *p, const Seq *q) {
    if (q->owner) stmt_slots(q->owner, visit_end_slot, &(End){u, q});
    for (int i = 0; !q->owner && i < p->nout; i++) {
        visit_tensor(u, p->out[i].t);
        visit_expr(u, p->out[i].has);
    }
}

/* ---- whether one statement uses another ------------------------------------------------------ */
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

void stmt_move(Cx *c, const Stmt *s, const Seq *from, Seq *to) {
    Move k = {from, to};
    Visit v = visit_new(c, move_tensor, move_sym, &k);
    visit_stmt(&v, s);
    for (int i = 0; i < stmt_nseq(s); i++)
        if (stmt_seq(s, i)->parent == from) stmt_seq(s, i)->parent = to;
}
