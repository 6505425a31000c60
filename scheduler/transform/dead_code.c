/* dead_code.c: removes what no output, check or control decision depends on.
 *
 * Marks backwards from the outputs. A check inside a loop or branch counts only when that construct
 * is needed at all, so the marking repeats until nothing is added. */
#include "scheduler/passes.h"
#include "utask/walk.h"

typedef struct Dead {
    Stmt **tensor_def, **sym_def; /* by id */
    uint8_t *tensor_live, *sym_live;
    Map *live; /* statements and functions */
    Map *expr_seen;
    bool changed;
    Stmt *at; /* whose definitions are noted */
} Dead;

static void live_expr(Dead *d, Expr *e);
static void live_stmt(Dead *d, Stmt *s);

/* Of a statement or a function. */
static bool is_live(const Dead *d, const void *s) {
    return map_geti(d->live, (uint64_t)(uintptr_t)s) != NULL;
}

static void note_tensor(void *user, Tensor *t) {
    Dead *d = user;
    if (!d->tensor_def[t->id]) d->tensor_def[t->id] = d->at; /* a scan output: the first part */
}
static void note_sym(void *user, Sym *s) { ((Dead *)user)->sym_def[s->id] = ((Dead *)user)->at; }
static void note_defines(void *user, Stmt *s) {
    ((Dead *)user)->at = s;
    stmt_defines(s, note_tensor, note_sym, user);
}

static void live_tensor(Dead *d, Tensor *t) {
    if (!t || d->tensor_live[t->id]) return;
    d->tensor_live[t->id] = 1;
    d->changed = true;
    for (int i = 0; i < MAX_RANK; i++) live_expr(d, t->dim[i]);
    if (t->rank_e) live_expr(d, t->rank_e);
    Stmt *s = d->tensor_def[t->id];
    switch (t->kind) {
    case TK_TE:
        live_expr(d, t->body);
        if (t->row) live_expr(d, t->row);
        break;
    case TK_VIEW: live_tensor(d, t->base); break;
    case TK_PHI:
        for (int k = 0; k < s->loop.carry.n; k++)
            if (s->loop.carry.p[k].phi == t) {
                live_tensor(d, s->loop.carry.p[k].init);
                live_tensor(d, s->loop.carry.p[k].next);
            }
        break;
    case TK_SCAN:
        for (int k = 0; k < s->loop.scan.n; k++)
            if (s->loop.scan.p[k].out == t) live_tensor(d, s->loop.scan.p[k].elem);
        break;
    case TK_JOIN:
        for (int k = 0; k < s->br.joins.n; k++)
            if (s->br.joins.p[k].out == t) {
                live_tensor(d, s->br.joins.p[k].arm[0]);
                live_tensor(d, s->br.joins.p[k].arm[1]);
            }
        break;
    default: break;
    }
    if (s) live_stmt(d, s);
}

static void live_sym(Dead *d, Sym *y) {
    if (d->sym_live[y->id]) return;
    d->sym_live[y->id] = 1;
    d->changed = true;
    Stmt *s = d->sym_def[y->id];
    if (!s) return;
    if (s->kind == S_LET) live_expr(d, s->let.e);
    if (s->kind == S_LOOP)
        for (int k = 0; k < s->loop.syms.n; k++)
            if (s->loop.syms.p[k].sym == y) {
                live_expr(d, s->loop.syms.p[k].init);
                live_expr(d, s->loop.syms.p[k].next);
            }
    if (s->kind == S_BRANCH)
        for (int k = 0; k < s->br.syms.n; k++)
            if (s->br.syms.p[k].sym == y) {
                live_expr(d, s->br.syms.p[k].arm[0]);
                live_expr(d, s->br.syms.p[k].arm[1]);
            }
    live_stmt(d, s);
}

static void live_expr(Dead *d, Expr *e) {
    if (!(e->flags & (EF_SYM | EF_LOAD | EF_AXIS))) return;
    if (!map_add(d->expr_seen, (uint64_t)e->id + 1)) return;
    if (e->op == E_SYM) live_sym(d, e->sym);
    if (e->op == E_LOAD) live_tensor(d, e->t);
    if (e->op == E_REDUCE)
        for (int i = 0; i < e->naxis; i++) live_expr(d, e->raxis[i]->extent);
    for (int i = 0; i < e->n; i++) live_expr(d, e->a[i]);
}

static void live_stmt(Dead *d, Stmt *s) {
    if (!map_add(d->live, (uint64_t)(uintptr_t)s)) return;
    d->changed = true;
    switch (s->kind) {
    case S_EXTERN:
        for (int i = 0; i < s->ext.nin; i++) live_tensor(d, s->ext.in[i]);
        for (int i = 0; i < s->ext.nparam; i++) live_expr(d, s->ext.param[i]);
        for (int i = 0; i < s->ext.nout; i++) live_tensor(d, s->ext.out[i]);
        break;
    case S_CHECK: live_expr(d, s->check.cond); break;
    case S_LOOP:
        if (s->loop.trips) live_expr(d, s->loop.trips);
        if (s->loop.cond0) live_expr(d, s->loop.cond0);
        if (s->loop.cond_next) live_expr(d, s->loop.cond_next);
        if (s->loop.made) live_expr(d, s->loop.made);
        break;
    case S_BRANCH: live_expr(d, s->br.cond); break;
    case S_CALL: {
        const Func *f = s->call.f;
        for (int i = 0; i < f->nsym; i++) live_expr(d, s->call.sym[i]);
        for (int i = 0; i < f->narg; i++) live_tensor(d, s->call.arg[i]);
        for (int i = 0; i < f->nout; i++) live_tensor(d, s->call.out[i]);
        for (int i = 0; i < f->nret; i++) live_sym(d, s->call.ret[i]);
        if (!map_add(d->live, (uint64_t)(uintptr_t)f)) break;
        for (int i = 0; i < f->nout; i++) live_tensor(d, f->out[i]);
        for (int i = 0; i < f->nret; i++) live_expr(d, f->ret[i]);
        live_stmt(d, f->start);
        break;
    }
    default: break;
    }
}

static bool is_check(const Stmt *s) { return s->kind == S_CHECK || s->kind == S_ENTER; }

/* Checks count when the constructs around them are live; so do further parts of a scan output. */
static void live_checks(Dead *d, Seq *q) {
    for (int i = 0; i < q->s.n; i++) {
        Stmt *s = q->s.p[i];
        if (is_check(s)) live_stmt(d, s);
        for (int k = 0; s->kind == S_LOOP && k < s->loop.scan.n; k++) {
            const LoopScan *x = &s->loop.scan.p[k];
            if (!d->tensor_live[x->out->id]) continue;
            live_stmt(d, s);
            live_tensor(d, x->elem);
            if (x->at) live_expr(d, x->at);
        }
        /* A branch that only decides whether a check fails is needed for that. */
        for (int k = 0; s->kind == S_BRANCH && k < 2; k++)
            for (int j = 0; j < s->br.arm[k]->s.n; j++)
                if (is_check(s->br.arm[k]->s.p[j])) live_stmt(d, s);
        for (int k = 0; k < stmt_nseq(s); k++)
            if (is_live(d, s->kind == S_CALL ? (void *)s->call.func[k] : s))
                live_checks(d, stmt_seq(s, k));
    }
}

/* Keeps the elements whose `field` is live. */
#define SWEEP(v, live, field)                                                                      \
    do {                                                                                           \
        int n_ = 0;                                                                                \
        for (int i_ = 0; i_ < (v).n; i_++)                                                         \
            if ((live)[(v).p[i_].field->id]) (v).p[n_++] = (v).p[i_];                              \
        (v).n = n_;                                                                                \
    } while (0)

static void sweep(Dead *d, Seq *q) {
    int n = 0;
    for (int i = 0; i < q->s.n; i++) {
        Stmt *s = q->s.p[i];
        bool keep = is_live(d, s);
        if (s->kind == S_LET) keep = d->sym_live[s->let.sym->id];
        if (s->kind == S_OP) {
            int m = 0;
            for (int k = 0; k < s->op.n; k++)
                if (d->tensor_live[s->op.t[k]->id]) s->op.t[m++] = s->op.t[k];
            for (int k = 0; k < m; k++) {
                Tensor *t = s->op.t[k];
                if (t->table && !d->tensor_live[t->table->id]) t->table = NULL, t->row = NULL;
            }
            s->op.n = m;
            keep = m > 0;
        }
        if (!keep) continue;
        q->s.p[n++] = s;
        if (s->kind == S_LOOP) {
            SWEEP(s->loop.syms, d->sym_live, sym);
            SWEEP(s->loop.carry, d->tensor_live, phi);
            SWEEP(s->loop.scan, d->tensor_live, out);
        }
        if (s->kind == S_BRANCH) {
            SWEEP(s->br.syms, d->sym_live, sym);
            SWEEP(s->br.joins, d->tensor_live, out);
        }
        if (s->kind == S_CALL) {
            int m = 0;
            for (int k = 0; k < s->call.nfunc; k++)
                if (is_live(d, s->call.func[k])) s->call.func[m++] = s->call.func[k];
            s->call.nfunc = m;
        }
        for (int k = 0; k < stmt_nseq(s); k++) sweep(d, stmt_seq(s, k));
    }
    q->s.n = n;
}

void pass_dead_code(Program *p) {
    Arena *a = p->cx->a;
    Dead d = {0};
    d.tensor_def = NEWN(a, Stmt *, p->cx->next_tensor + 1);
    d.sym_def = NEWN(a, Stmt *, p->cx->next_sym + 1);
    d.tensor_live = NEWN(a, uint8_t, p->cx->next_tensor + 1);
    d.sym_live = NEWN(a, uint8_t, p->cx->next_sym + 1);
    d.live = map_new(a);
    d.expr_seen = map_new(a);
    seq_each(p->top, note_defines, &d);
    for (int i = 0; i < p->nout; i++) {
        live_tensor(&d, p->out[i].t);
        if (p->out[i].has) live_expr(&d, p->out[i].has);
    }
    do {
        d.changed = false;
        live_checks(&d, p->top);
    } while (d.changed);
    sweep(&d, p->top);
}
