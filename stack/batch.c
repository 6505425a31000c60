/* batch.c: runs many activations of a recursive function at once.
 *
 * A function that calls itself several times before it uses any of the results (a cell of a tree)
 * is turned into a function of n activations: parameters become vectors of n elements, tensors get
 * one more leading axis, and sibling calls become one call for all their activations. So all
 * activations of one depth run together: weights are read once for all of them, products of vectors
 * become products of matrices, and units synchronize once per level.
 *
 * A branch splits the activations into two lists, one per arm; an arm that no activation takes has
 * no rows. A value of an enclosing list is read through the inner list. One check covers all rows.
 * Faults still occur; with several, another one may be reported. */
#include "stack/batch.h"
#include "stack/rows.h"
#include "utask/extern.h"
#include "utask/product.h"
#include "scheduler/cost/cost.h"
#include "scheduler/cost/decide.h"
#include "scheduler/passes.h"
#include "utask/expr_internal.h"
#include "utask/walk.h"

typedef struct Early { /* an arm */
    const Seq *q;
    List *at;
} Early;

typedef struct Batch {
    Rows r;
    Early early;
    int *nsym_of,
        *narg_of; /* by function id: parameters in registers and in memory, as they were */
} Batch;

/* ---- what can be batched --------------------------------------------------------------------- */
static bool outside(const Func *f, const Expr *e) { return expr_visible(e, f->body->parent); }

static bool tensor_fits(const Func *f, const Tensor *t) {
    if (!t || t->blob || t->rank < 0 || t->rank + 1 > MAX_RANK) return false;
    for (int d = 0; d < t->rank; d++)
        if (!outside(f, t->dim[d])) return false;
    return true;
}

typedef struct Fits {
    Arena *a;
    const Func *f; /* any function of the group */
    bool ok;
} Fits;

static void fits_slot(void *user, const Slot *k) {
    Fits *x = user;
    if (k->kind == SLOT_TENSOR) x->ok &= tensor_fits(x->f, *k->t);
    if (slot_is_expr(k)) x->ok &= rows_extents_visible(x->a, *k->e, x->f->body->parent);
}

static bool misfits(void *user, const Stmt *s) {
    Fits *x = user;
    x->ok = s->kind == S_OP     ? s->op.n == 1
            : s->kind == S_CALL ? !s->call.nfunc && s->call.f->start == x->f->start
                                : s->kind == S_LET || s->kind == S_CHECK || s->kind == S_BRANCH;
    if (x->ok) stmt_slots(s, fits_slot, x);
    return !x->ok;
}

/* Whether the function takes scalars and tensors and returns tensors, with sizes that are the same
 * for all activations. */
static bool fits(Arena *a, const Func *f) {
    if (f->nret || !f->nout) return false;
    for (int i = 0; i < f->narg; i++)
        if (!tensor_fits(f, f->arg[i])) return false;
    for (int i = 0; i < f->nout; i++)
        if (!f->room[i] || !tensor_fits(f, f->out[i])) return false;
    return !seq_any(f->body, misfits, &(Fits){a, f, true});
}

/* ---- dependences between statements of a Seq ------------------------------------------------- */
typedef struct Taint { /* what depends on the results of calls */
    Batch *b;
    bool *sym, *tensor; /* by id */
    bool hit;
} Taint;

static bool tainted_tensor(const Taint *k, const Tensor *t) {
    return k->tensor[tensor_root(t)->id];
}
static void taint_load(void *user, Expr *e) {
    Taint *k = user;
    k->hit |= tainted_tensor(k, e->t);
}
static bool tainted_sym(const void *user, const Sym *s) {
    const Taint *k = user;
    return k->sym[s->id];
}
static bool tainted(Taint *k, Expr *e) {
    k->hit = any_sym(e, tainted_sym, k);
    e_each_load(k->b->r.c, e, taint_load, k);
    return k->hit;
}

static Taint taint_new(Batch *b) {
    return (Taint){.b = b,
                   .sym = NEWN(b->r.a, bool, b->r.nsym + 1),
                   .tensor = NEWN(b->r.a, bool, b->r.ntensor + 1)};
}

/* Whether s can run before the calls seen so far. If not, what it defines becomes tainted. */
static bool independent(Taint *k, const Stmt *s) {
    bool free = true;
    switch (s->kind) {
    case S_LET:
        free = !tainted(k, s->let.e);
        k->sym[s->let.sym->id] = !free;
        return free;
    case S_CHECK: return !tainted(k, s->check.cond);
    case S_OP:
        free = !tainted(k, s->op.t[0]->body);
        k->tensor[s->op.t[0]->id] = !free;
        return free;
    case S_BRANCH:
        for (int i = 0; i < s->br.joins.n; i++) k->tensor[s->br.joins.p[i].out->id] = true;
        for (int i = 0; i < s->br.syms.n; i++) k->sym[s->br.syms.p[i].sym->id] = true;
        return false;
    default:
        for (int i = 0; i < k->b->nsym_of[s->call.f->id]; i++) free &= !tainted(k, s->call.sym[i]);
        for (int i = 0; i < k->b->narg_of[s->call.f->id]; i++)
            free &= !tainted_tensor(k, s->call.arg[i]);
        for (int i = 0; i < s->call.f->nout; i++) k->tensor[s->call.out[i]->id] = true;
        return free;
    }
}

/* The largest number of calls of one function in a Seq that do not need each other's results. */
static int siblings(Batch *b, const Seq *q) {
    Taint k = taint_new(b);
    const Func *f = NULL;
    int n = 0, most = 0;
    for (int i = 0; i < q->s.n; i++) {
        const Stmt *s = q->s.p[i];
        bool free = independent(&k, s);
        if (s->kind == S_CALL && !f) f = s->call.f;
        n += s->kind == S_CALL && s->call.f == f && free;
        for (int m = 0; s->kind == S_BRANCH && m < 2; m++) {
            int inner = siblings(b, s->br.arm[m]);
            if (inner > most) most = inner;
        }
    }
    return n > most ? n : most;
}

/* ---- statements ------------------------------------------------------------------------------ */
static Tensor *vector(Batch *b, List *at, DType t, Expr *e, const Stmt *s, const char *name) {
    Tensor *x = rows_vector(&b->r, t, at->n, name);
    rows_compute(&b->r, x, rows_lift(&b->r, at, e_axis(b->r.c, x->axis[0]), s, e), s->path);
    return x;
}

static void run(Batch *b, const Seq *q, List *at);

/* An arm's value for a row of the enclosing list; `mine` is that row in the arm's own list. */
static Expr *arm_value(Batch *b, List *arm, Expr *mine, Expr *row, const Stmt *s, Expr *e) {
    arm->known = row;
    e = rows_lift(&b->r, arm, mine, s, e);
    arm->known = NULL;
    return e;
}

/* Emits the statements that were held back until the next call's arguments are known, so that units
 * synchronize once for both. */
static void run_early(Batch *b) {
    Early e = b->early;
    b->early = (Early){NULL, NULL};
    if (e.q) run(b, e.q, e.at);
}

static void run_branch(Batch *b, const Stmt *s, List *at) {
    Cx *c = b->r.c;
    Tensor *cond = vector(b, at, DT_BOOL, s->br.cond, s, "taken");
    Stmt *cut = stmt_new(c, S_EXTERN, s->path);
    cut->ext.row = extern_find("partition");
    cut->ext.site = cx_site(c, s->path, "the activations are not cut in two");
    cut->ext.nin = cut->ext.nsym = 1;
    cut->ext.nout = 2;
    cut->ext.in = arena_memdup(b->r.a, &cond, sizeof cond);
    cut->ext.out = NEWN(b->r.a, Tensor *, 2);
    cut->ext.sym = NEWN(b->r.a, Sym *, 1);
    cut->ext.sym[0] = sym_new(c, DT_I64, "taken", 0);
    cut->ext.sym[0]->scope = b->r.seq;
    cut->ext.sym[0]->hi = ROWS_MAX;
    for (int i = 0; i < 2; i++) {
        Tensor *x = cut->ext.out[i] = tensor_new(c, TK_EXTERN, DT_I64, 1, &at->n);
        x->seq = b->r.seq;
        x->name = i ? "place" : "row";
        x->path = s->path;
    }
    rows_append(&b->r, cut);
    Tensor *place = cut->ext.out[1];
    Expr *n = e_sym(c, cut->ext.sym[0]);
    List *arm[2];
    for (int k = 0; k < 2; k++) {
        arm[k] = NEW(b->r.a, List);
        *arm[k] = (List){
            at, k ? e_sub(c, at->n, n) : n, cut->ext.out[0], k ? n : NULL, NULL, ++b->r.nlist};
    }
    /* One arm is computed on the way down and the other on the way up, so each arm's weights stay
     * in the caches from level to level. */
    int late = seq_any(s->br.arm[1], stmt_is_call, NULL);
    run_early(b);
    b->early = (Early){s->br.arm[!late], arm[!late]};
    run(b, s->br.arm[late], arm[late]);
    run_early(b);
    for (int i = 0; i < s->br.syms.n; i++) {
        const JoinSym *j = &s->br.syms.p[i];
        Tensor *x = rows_vector(&b->r, j->sym->dtype, at->n, j->sym->name);
        Expr *row = e_axis(c, x->axis[0]), *mine = e_load(c, place, &row), *v[2];
        for (int k = 0; k < 2; k++) v[k] = arm_value(b, arm[k], mine, row, s, j->arm[k]);
        rows_compute(&b->r, x, e_sel(c, e_load(c, cond, &row), v[0], v[1]), s->path);
        b->r.sym[j->sym->id] = (Def){.list = at, .t = x};
    }
    for (int i = 0; i < s->br.joins.n; i++) {
        const Join *j = &s->br.joins.p[i];
        Tensor *x = rows_of(&b->r, TK_TE, j->out, 0, at->n, b->r.seq);
        Expr *row = e_axis(c, x->axis[0]), *mine = e_load(c, place, &row), *v[2] = {NULL, NULL};
        for (int k = 0; k < 2; k++)
            if (j->arm[k])
                v[k] = arm_value(b, arm[k], mine, row, s, rows_load_rest(&b->r, j->arm[k], x));
        rows_compute(&b->r, x,
                     v[0] && v[1] ? e_sel(c, e_load(c, cond, &row), v[0], v[1])
                     : v[0]       ? v[0]
                                  : v[1],
                     s->path);
        b->r.tensor[j->out->id] = (Def){.list = at, .t = x};
    }
}

/* Merges n calls into one; its activations are those of the calls, one call after the other. */
static void run_calls(Batch *b, Stmt *const *s, int n, List *at) {
    Cx *c = b->r.c;
    Func *f = s[0]->call.f; /* its parameters have rows already */
    int nsym = b->nsym_of[f->id];
    Stmt *call = stmt_new(c, S_CALL, s[0]->path);
    Expr *rows = e_muli(c, at->n, n);
    call->call.f = f;
    call->call.sym = arena_memdup(b->r.a, &rows, sizeof rows);
    call->call.arg = NEWN(b->r.a, Tensor *, f->narg + 1);
    call->call.out = NEWN(b->r.a, Tensor *, f->nout + 1);
    call->call.ret = NEWN(b->r.a, Sym *, 1);
    for (int i = 0; i < f->narg; i++) {
        Tensor *x = rows_of(&b->r, TK_TE, f->arg[i], 1, rows, b->r.seq);
        Expr *r = e_axis(c, x->axis[0]), *v = NULL;
        for (int k = n - 1; k >= 0; k--) {
            Expr *first = e_muli(c, at->n, k);
            Expr *arg =
                i < nsym ? s[k]->call.sym[i] : rows_load_rest(&b->r, s[k]->call.arg[i - nsym], x);
            Expr *mine = rows_lift(&b->r, at, e_sub(c, r, first), s[k], arg);
            v = v ? e_sel(c, e_lt(c, r, e_muli(c, at->n, k + 1)), mine, v) : mine;
        }
        rows_compute(&b->r, x, v, s[0]->path);
        call->call.arg[i] = x;
    }
    for (int i = 0; i < f->nout; i++) {
        Tensor *x = rows_of(&b->r, TK_CALL, s[0]->call.out[i], 0, rows, b->r.seq);
        call->call.out[i] = x;
        for (int k = 0; k < n; k++)
            b->r.tensor[s[k]->call.out[i]->id] =
                (Def){.list = at, .t = x, .from = k ? e_muli(c, at->n, k) : NULL};
    }
    run_early(b);
    rows_append(&b->r, call);
}

static void run_stmt(Batch *b, Stmt *s, List *at) {
    switch (s->kind) {
    case S_LET: b->r.sym[s->let.sym->id] = (Def){.list = at, .e = s->let.e}; break;
    case S_CHECK: rows_check(&b->r, s, at); break;
    case S_OP: rows_op(&b->r, s, at); break;
    case S_BRANCH: run_branch(b, s, at); break;
    default: run_calls(b, &s, 1, at); break;
    }
}

/* Emits the statements of q in order, but moves what does not need a call's results before the
 * call, so that sibling calls become adjacent. */
static void run(Batch *b, const Seq *q, List *at) {
    bool *done = NEWN(b->r.a, bool, q->s.n + 1);
    for (int i = 0; i < q->s.n; i++) {
        if (done[i]) continue;
        if (q->s.p[i]->kind != S_CALL) {
            run_stmt(b, q->s.p[i], at);
            continue;
        }
        Stmt **call = NEWN(b->r.a, Stmt *, q->s.n);
        int n = 0;
        Taint k = taint_new(b);
        for (int j = i; j < q->s.n; j++) {
            Stmt *s = q->s.p[j];
            if (done[j] || !independent(&k, s)) continue;
            if (s->kind == S_CALL && s->call.f != q->s.p[i]->call.f) continue;
            done[j] = true;
            if (s->kind == S_CALL)
                call[n++] = s;
            else
                run_stmt(b, s, at);
        }
        run_calls(b, call, n, at);
    }
}

/* ---- functions ------------------------------------------------------------------------------- */
static void make_params(Batch *b, Func *f, List *all) {
    Sym *rows = sym_new(b->r.c, DT_I64, "rows", 1);
    rows->hi = ROWS_MAX;
    rows->scope = b->r.seq;
    *all = (List){.n = e_sym(b->r.c, rows)};
    Tensor **old = f->arg;
    f->arg = NEWN(b->r.a, Tensor *, f->nsym + f->narg + 1);
    for (int i = 0; i < f->nsym + f->narg; i++) {
        const Tensor *t = i < f->nsym ? NULL : old[i - f->nsym];
        Expr *dim[MAX_RANK] = {all->n};
        for (int d = 0; t && d < t->rank; d++) dim[d + 1] = t->dim[d];
        Tensor *x = f->arg[i] =
            tensor_new(b->r.c, TK_PARAM, t ? t->dtype : f->sym[i]->dtype, t ? t->rank + 1 : 1, dim);
        x->seq = b->r.seq;
        x->name = t ? t->name : f->sym[i]->name;
        *(t ? &b->r.tensor[t->id] : &b->r.sym[f->sym[i]->id]) = (Def){.list = all, .t = x};
    }
    f->narg += f->nsym;
    f->nsym = 1;
    f->sym = NEWN(b->r.a, Sym *, 1);
    f->sym[0] = f->rows = rows;
}

/* The call from outside gets one row. Its former results become copies of that row's results. */
static void start_one(Batch *b, Seq *q, int *at, Stmt *s) {
    Cx *c = b->r.c;
    const Func *f = s->call.f;
    Seq *body = b->r.seq, made = {.parent = q->parent}; /* the call, and what is new around it */
    b->r.seq = &made;
    Expr **value = s->call.sym;
    Tensor **arg = s->call.arg;
    int nsym = b->nsym_of[f->id];
    s->call.sym = NEWN(b->r.a, Expr *, 1);
    s->call.sym[0] = e_int(c, 1);
    s->call.arg = NEWN(b->r.a, Tensor *, f->narg + 1);
    for (int i = 0; i < f->narg; i++) {
        Tensor *x = s->call.arg[i] = rows_of(&b->r, TK_TE, f->arg[i], 1, e_int(c, 1), q);
        rows_compute(&b->r, x, i < nsym ? value[i] : rows_load_rest(&b->r, arg[i - nsym], x),
                     s->path);
    }
    rows_append(&b->r, s);
    for (int i = 0; i < f->nout; i++) {
        Tensor *t = s->call.out[i], *x = rows_of(&b->r, TK_CALL, t, 0, e_int(c, 1), q);
        Expr *idx[MAX_RANK] = {e_int(c, 0)};
        for (int d = 0; d < t->rank; d++)
            idx[d + 1] = e_axis(c, t->axis[d] = axis_new(c, t->dim[d]));
        s->call.out[i] = x;
        t->kind = TK_TE;
        rows_compute(&b->r, t, e_load(c, x, idx), s->path);
    }
    b->r.seq = body;
    seq_replace(c, q, at, &made.s);
}

/* Makes the results of f's body tensors of their own. */
static void make_results(Batch *b, Func *f, List *all, const Stmt *s) {
    for (int i = 0; i < f->nout; i++) {
        Tensor *t = f->out[i], *x;
        const Def *d = rows_def(&b->r, t);
        if (d && d->t->kind == TK_TE && d->list == all && !d->from && !d->t->owned)
            x = d->t;
        else {
            x = rows_of(&b->r, TK_TE, t, 0, all->n, b->r.seq);
            rows_compute(
                &b->r, x,
                rows_lift(&b->r, all, e_axis(b->r.c, x->axis[0]), s, rows_load_rest(&b->r, t, x)),
                s->path);
        }
        x->owned = true;
        x->ret = i + 1;
        f->out[i] = x;
    }
}

static void batch(Batch *b, Seq *q, int *at, Stmt *s) {
    int n = s->call.nfunc;
    List *all = NEWN(b->r.a, List, n);
    Seq **body = NEWN(b->r.a, Seq *, n);
    b->r.sym = NEWN(b->r.a, Def, b->r.nsym + 1);
    b->r.tensor = NEWN(b->r.a, Def, b->r.ntensor + 1);
    b->r.gathered = map_new(b->r.a);
    for (int i = 0; i < n; i++) { /* callers need all results */
        body[i] = b->r.seq = seq_new(b->r.c, q, s, true);
        make_params(b, s->call.func[i], &all[i]);
    }
    for (int i = 0; i < n; i++) {
        Func *f = s->call.func[i];
        b->r.seq = body[i];
        run(b, f->body, &all[i]);
        make_results(b, f, &all[i], s);
        f->body = body[i];
    }
    start_one(b, q, at, s);
}

/* ---- whether it pays ------------------------------------------------------------------------- */
/* Batching reads what the rows of a depth share once instead of once per row. The number of rows
 * per depth is not known: it is taken to be the number of calls that an activation makes. */
static bool worth(Batch *b, const Stmt *s, int rows) {
    const Device *d = b->r.p->schedule->device;
    const Func *f = s->call.f;
    int units = b->r.p->schedule->units;
    const RowsCost k = rows_cost(b->r.p, f, rows);
    /* Units synchronize about three times per depth instead of once per activation; results are
     * copied once more. */
    double more = 4 * d->group_ns / rows +
                  (units > 1 ? (3.0 / rows - 1) * d->level[LEVEL_TEAM].barrier_ns : 0);
    for (int i = 0; i < f->nout; i++)
        more += 2 * cost_bytes(f->out[i]) / d->level[LEVEL_CORE].read_gbps / units;
    return decide(b->r.p, X_BATCH, s, k.one_ns, k.one_ns - k.saved_ns + more);
}

static void try_call(void *user, Seq *q, int *at) {
    Batch *b = user;
    Stmt *s = q->s.p[*at];
    if (s->kind != S_CALL || !s->call.nfunc) return;
    b->r.nsym = b->r.c->next_sym;
    b->r.ntensor = b->r.c->next_tensor;
    bool ok = true;
    int rows = 0;
    for (int k = 0; k < s->call.nfunc; k++) {
        b->nsym_of[s->call.func[k]->id] = s->call.func[k]->nsym;
        b->narg_of[s->call.func[k]->id] = s->call.func[k]->narg;
    }
    for (int k = 0; k < s->call.nfunc && ok; k++) {
        ok = fits(b->r.a, s->call.func[k]);
        int m = ok ? siblings(b, s->call.func[k]->body) : 0;
        if (m > rows) rows = m;
    }
    if (ok && rows > 1 && worth(b, s, rows)) batch(b, q, at, s);
}

void pass_batch(Program *p) {
    Batch b = {.r = {.p = p, .c = p->cx, .a = p->cx->a}};
    b.nsym_of = NEWN(b.r.a, int, p->nfunc + 1);
    b.narg_of = NEWN(b.r.a, int, p->nfunc + 1);
    if (p->nfunc) seq_rewrite(p->top, try_call, &b);
}
