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
#include "utask/extern.h"
#include "utask/product.h"
#include "scheduler/cost/cost.h"
#include "scheduler/cost/decide.h"
#include "scheduler/passes.h"
#include "utask/expr_internal.h"
#include "utask/walk.h"

/* A list of activations: all of a call, or those of an enclosing list that take one arm. */
typedef struct List {
    struct List *up;
    Expr *n;
    Tensor *row; /* row r of this list is row[r + from] of the enclosing list */
    Expr *from;
    Expr *known; /* the row of the enclosing list where it is known already */
    int id;
} List;

/* A value that each activation of a list has. */
typedef struct Def {
    List *list; /* NULL: not seen yet */
    Tensor *t;  /* row r is at index r + from */
    Expr *from;
    Expr *e; /* for a symbol, instead of t: an expression over values visible in the list */
} Def;

typedef struct Early { /* an arm */
    const Seq *q;
    List *at;
} Early;

typedef struct Batch {
    Program *p;
    Cx *c;
    Arena *a;
    Seq *seq; /* the new body */
    Def *sym; /* by id */
    Def *tensor;
    int nsym, ntensor;
    int nlist;
    Early early;
    int *nsym_of,
        *narg_of; /* by function id: parameters in registers and in memory, as they were */
    Map *gathered;
} Batch;

/* ---- what can be batched --------------------------------------------------------------------- */
static bool outside(const Func *f, const Expr *e) { return expr_visible(e, f->body->parent); }

static bool extents_outside(const Func *f, const Expr *e) {
    if (!(e->flags & EF_REDUCE)) return true;
    for (int i = 0; e->op == E_REDUCE && i < e->naxis; i++)
        if (!outside(f, e->raxis[i]->extent)) return false;
    for (int i = 0; i < e->n; i++)
        if (!extents_outside(f, e->a[i])) return false;
    return true;
}

static bool tensor_fits(const Func *f, const Tensor *t) {
    if (!t || t->blob || t->rank < 0 || t->rank + 1 > MAX_RANK) return false;
    for (int d = 0; d < t->rank; d++)
        if (!outside(f, t->dim[d])) return false;
    return true;
}

typedef struct Fits {
    const Func *f; /* any function of the group */
    bool ok;
} Fits;

static void fits_slot(void *user, const Slot *k) {
    Fits *x = user;
    if (k->kind == SLOT_TENSOR) x->ok &= tensor_fits(x->f, *k->t);
    if (slot_is_expr(k)) x->ok &= extents_outside(x->f, *k->e);
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
static bool fits(const Func *f) {
    if (f->nret || !f->nout) return false;
    for (int i = 0; i < f->narg; i++)
        if (!tensor_fits(f, f->arg[i])) return false;
    for (int i = 0; i < f->nout; i++)
        if (!f->room[i] || !tensor_fits(f, f->out[i])) return false;
    return !seq_any(f->body, misfits, &(Fits){f, true});
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
    e_each_load(k->b->c, e, taint_load, k);
    return k->hit;
}

static Taint taint_new(Batch *b) {
    return (Taint){
        .b = b, .sym = NEWN(b->a, bool, b->nsym + 1), .tensor = NEWN(b->a, bool, b->ntensor + 1)};
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

/* ---- values over rows ------------------------------------------------------------------------ */
static Expr *add(Batch *b, Expr *r, Expr *from) { return from ? e_add(b->c, r, from) : r; }

/* Row r of list `at` as a row of list `in`, which is the same list or encloses it. */
static Expr *row_in(Batch *b, const List *at, Expr *r, const List *in) {
    for (; at != in; at = at->up) {
        Expr *i = add(b, r, at->from);
        r = at->known ? at->known : e_load(b->c, at->row, &i);
    }
    return r;
}

static void append(Batch *b, Stmt *s) { vec_push(b->a, &b->seq->s, s); }

/* A vector over rows. */
static Tensor *vector_new(Batch *b, DType t, Expr *n, const char *name) {
    Tensor *x = tensor_new(b->c, TK_TE, t, 1, &n);
    x->axis[0] = axis_new(b->c, n);
    x->seq = b->seq;
    x->name = name;
    return x;
}

/* One like t for n rows: dimension 0 is the row, the others are those of t from number `first` on.
 */
static Tensor *rows_of(Batch *b, TensorKind k, const Tensor *t, int first, Expr *n, Seq *q) {
    Expr *dim[MAX_RANK] = {n};
    for (int i = first; i < t->rank; i++) dim[i - first + 1] = t->dim[i];
    return tensor_like(b->c, k, t, t->rank - first + 1, dim, q);
}

/* t's element at the position of x, but for its row. */
static Expr *load_rest(Batch *b, Tensor *t, const Tensor *x) {
    Expr *idx[MAX_RANK];
    for (int d = 1; d < x->rank; d++) idx[d - 1] = e_axis(b->c, x->axis[d]);
    return e_load(b->c, t, idx);
}

static void compute(Batch *b, Tensor *x, Expr *body, const char *path) {
    x->body = body;
    x->path = path;
    append(b, stmt_op(b->c, x, path));
}

typedef struct Lift {
    Batch *b;
    List *at;
    Expr *row;
    const Stmt *s; /* the statement that it is for */
    Map *memo;
} Lift;

static Expr *lift(Lift *k, Expr *e, bool in_reduce);

static Expr *lift_at(Batch *b, List *at, Expr *row, const Stmt *s, Expr *e) {
    Lift k = {b, at, row, s, map_new(b->a)};
    return lift(&k, e, false);
}

static Expr *lift_sym(Lift *k, const Sym *s) {
    Batch *b = k->b;
    const Def *d = s->id < b->nsym ? &b->sym[s->id] : NULL;
    if (!d || !d->list) return NULL;
    Expr *r = row_in(b, k->at, k->row, d->list);
    if (d->e) return lift_at(b, d->list, r, k->s, d->e);
    r = add(b, r, d->from);
    return e_load(b->c, d->t, &r);
}

/* The Def of a tensor of the old body; NULL for any other tensor. */
static Def *def_of(Batch *b, Tensor *t) {
    if (t->kind == TK_CONST || t->kind == TK_INPUT || t->id >= b->ntensor) return NULL;
    Def *d = &b->tensor[t->id];
    if (d->list) return d;
    if (t->kind != TK_VIEW) return NULL;
    const Def *base = def_of(b, t->base);
    if (!base) return NULL;
    *d = *base;
    d->t = rows_of(b, TK_VIEW, t, 0, base->t->dim[0], b->seq);
    d->t->base = base->t;
    return d;
}

/* The rows of list `at`, copied from a tensor of an enclosing list, so that operands of products
 * are evenly spaced in memory. */
static Tensor *gathered(Lift *k, const Def *d) {
    Batch *b = k->b;
    uint64_t key = (uint64_t)(d - b->tensor) << 32 | (uint64_t)k->at->id;
    Tensor *x = map_geti(b->gathered, key);
    if (x) return x;
    x = rows_of(b, TK_TE, d->t, 1, k->at->n, b->seq);
    Expr *idx[MAX_RANK];
    for (int i = 0; i <= x->rank - 1; i++) idx[i] = e_axis(b->c, x->axis[i]);
    idx[0] = add(b, row_in(b, k->at, idx[0], d->list), d->from);
    compute(b, x, e_load(b->c, d->t, idx), k->s->path);
    map_seti(b->gathered, key, x);
    return x;
}

/* A load of tensor t at the row, with the other indices unchanged. */
static Expr *load_row(Batch *b, Tensor *t, Expr *row, const Expr *e, Expr **a) {
    Expr *idx[MAX_RANK] = {row};
    if (e->kind) {
        Expr *n = e_int(b->c, 1);
        for (int i = 1; i < t->rank; i++) n = e_mul(b->c, n, t->dim[i]);
        return e_loadf(b->c, t, e_add(b->c, e_mul(b->c, row, n), a[0]));
    }
    for (int i = 0; i < e->n; i++) idx[i + 1] = a[i];
    return e_load(b->c, t, idx);
}

/* Rewrites e of the old body for the row. */
static Expr *lift(Lift *k, Expr *e, bool in_reduce) {
    Batch *b = k->b;
    if (!(e->flags & (EF_SYM | EF_LOAD))) return e;
    uint64_t key = (uint64_t)e->id * 2 + in_reduce + 1;
    Expr *r = map_geti(k->memo, key);
    if (r) return r;
    Expr **a = NEWN(b->a, Expr *, e->n + 1);
    if (e->op == E_SYM) r = lift_sym(k, e->sym);
    for (int i = 0; i < e->n; i++) a[i] = lift(k, e->a[i], in_reduce || e->op == E_REDUCE);
    Def *d = e->op == E_LOAD ? def_of(b, e->t) : NULL;
    if (d && in_reduce && d->list != k->at && d->t->rank > 1)
        r = load_row(b, gathered(k, d), k->row, e, a);
    else if (d)
        r = load_row(b, d->t, add(b, row_in(b, k->at, k->row, d->list), d->from), e, a);
    else if (!r)
        r = e->n ? expr_rebuild(b->c, e, a) : e;
    map_seti(k->memo, key, r);
    return r;
}

/* ---- statements ------------------------------------------------------------------------------ */
static Tensor *vector(Batch *b, List *at, DType t, Expr *e, const Stmt *s, const char *name) {
    Tensor *x = vector_new(b, t, at->n, name);
    compute(b, x, lift_at(b, at, e_axis(b->c, x->axis[0]), s, e), s->path);
    return x;
}

static void run(Batch *b, const Seq *q, List *at);

static void run_check(Batch *b, const Stmt *s, List *at) {
    Stmt *n = stmt_new(b->c, S_CHECK, s->path);
    Axis *r = axis_new(b->c, at->n);
    Expr *row = e_axis(b->c, r), *tell = s->check.cond, *say[SAID_MAX];
    Expr *every = e_reduce(b->c, R_AND, 1, &r, lift_at(b, at, row, s, e_told(tell)));
    Sym *all = sym_new(b->c, DT_BOOL, "all", 0);
    all->scope = b->seq;
    every = seq_let(b->c, b->seq, all, every, s->path);
    int nsay = tell->op == E_TELL ? tell->n - 1 : 0;
    /* only values that are the same for all rows can be reported */
    for (int i = 0; i < nsay; i++) {
        say[i] = lift_at(b, at, row, s, tell->a[1 + i]);
        if (!say[i]->pure) say[i] = e_int(b->c, UNSAID);
    }
    n->check.cond = e_tell(b->c, every, nsay, say);
    n->check.site = s->check.site;
    append(b, n);
}

static void run_op(Batch *b, const Stmt *s, List *at) {
    const Tensor *t = s->op.t[0];
    Tensor *x = rows_of(b, TK_TE, t, 0, at->n, b->seq);
    memcpy(x->axis + 1, t->axis, sizeof *x->axis * (size_t)t->rank);
    compute(b, x, lift_at(b, at, e_axis(b->c, x->axis[0]), s, t->body), s->path);
    b->tensor[t->id] = (Def){at, x, NULL, NULL};
}

/* An arm's value for a row of the enclosing list; `mine` is that row in the arm's own list. */
static Expr *arm_value(Batch *b, List *arm, Expr *mine, Expr *row, const Stmt *s, Expr *e) {
    arm->known = row;
    e = lift_at(b, arm, mine, s, e);
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
    Cx *c = b->c;
    Tensor *cond = vector(b, at, DT_BOOL, s->br.cond, s, "taken");
    Stmt *cut = stmt_new(c, S_EXTERN, s->path);
    cut->ext.row = extern_find("partition");
    cut->ext.site = cx_site(c, s->path, "the activations are not cut in two");
    cut->ext.nin = cut->ext.nsym = 1;
    cut->ext.nout = 2;
    cut->ext.in = arena_memdup(b->a, &cond, sizeof cond);
    cut->ext.out = NEWN(b->a, Tensor *, 2);
    cut->ext.sym = NEWN(b->a, Sym *, 1);
    cut->ext.sym[0] = sym_new(c, DT_I64, "taken", 0);
    cut->ext.sym[0]->scope = b->seq;
    cut->ext.sym[0]->hi = ROWS_MAX;
    for (int i = 0; i < 2; i++) {
        Tensor *x = cut->ext.out[i] = tensor_new(c, TK_EXTERN, DT_I64, 1, &at->n);
        x->seq = b->seq;
        x->name = i ? "place" : "row";
        x->path = s->path;
    }
    append(b, cut);
    Tensor *place = cut->ext.out[1];
    Expr *n = e_sym(c, cut->ext.sym[0]);
    List *arm[2];
    for (int k = 0; k < 2; k++) {
        arm[k] = NEW(b->a, List);
        *arm[k] =
            (List){at, k ? e_sub(c, at->n, n) : n, cut->ext.out[0], k ? n : NULL, NULL, ++b->nlist};
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
        Tensor *x = vector_new(b, j->sym->dtype, at->n, j->sym->name);
        Expr *row = e_axis(c, x->axis[0]), *mine = e_load(c, place, &row), *v[2];
        for (int k = 0; k < 2; k++) v[k] = arm_value(b, arm[k], mine, row, s, j->arm[k]);
        compute(b, x, e_sel(c, e_load(c, cond, &row), v[0], v[1]), s->path);
        b->sym[j->sym->id] = (Def){at, x, NULL, NULL};
    }
    for (int i = 0; i < s->br.joins.n; i++) {
        const Join *j = &s->br.joins.p[i];
        Tensor *x = rows_of(b, TK_TE, j->out, 0, at->n, b->seq);
        Expr *row = e_axis(c, x->axis[0]), *mine = e_load(c, place, &row), *v[2] = {NULL, NULL};
        for (int k = 0; k < 2; k++)
            if (j->arm[k]) v[k] = arm_value(b, arm[k], mine, row, s, load_rest(b, j->arm[k], x));
        compute(b, x,
                v[0] && v[1] ? e_sel(c, e_load(c, cond, &row), v[0], v[1])
                : v[0]       ? v[0]
                             : v[1],
                s->path);
        b->tensor[j->out->id] = (Def){at, x, NULL, NULL};
    }
}

/* Merges n calls into one; its activations are those of the calls, one call after the other. */
static void run_calls(Batch *b, Stmt *const *s, int n, List *at) {
    Cx *c = b->c;
    Func *f = s[0]->call.f; /* its parameters have rows already */
    int nsym = b->nsym_of[f->id];
    Stmt *call = stmt_new(c, S_CALL, s[0]->path);
    Expr *rows = e_muli(c, at->n, n);
    call->call.f = f;
    call->call.sym = arena_memdup(b->a, &rows, sizeof rows);
    call->call.arg = NEWN(b->a, Tensor *, f->narg + 1);
    call->call.out = NEWN(b->a, Tensor *, f->nout + 1);
    call->call.ret = NEWN(b->a, Sym *, 1);
    for (int i = 0; i < f->narg; i++) {
        Tensor *x = rows_of(b, TK_TE, f->arg[i], 1, rows, b->seq);
        Expr *r = e_axis(c, x->axis[0]), *v = NULL;
        for (int k = n - 1; k >= 0; k--) {
            Expr *first = e_muli(c, at->n, k);
            Expr *arg = i < nsym ? s[k]->call.sym[i] : load_rest(b, s[k]->call.arg[i - nsym], x);
            Expr *mine = lift_at(b, at, e_sub(c, r, first), s[k], arg);
            v = v ? e_sel(c, e_lt(c, r, e_muli(c, at->n, k + 1)), mine, v) : mine;
        }
        compute(b, x, v, s[0]->path);
        call->call.arg[i] = x;
    }
    for (int i = 0; i < f->nout; i++) {
        Tensor *x = rows_of(b, TK_CALL, s[0]->call.out[i], 0, rows, b->seq);
        call->call.out[i] = x;
        for (int k = 0; k < n; k++)
            b->tensor[s[k]->call.out[i]->id] = (Def){at, x, k ? e_muli(c, at->n, k) : NULL, NULL};
    }
    run_early(b);
    append(b, call);
}

static void run_stmt(Batch *b, Stmt *s, List *at) {
    switch (s->kind) {
    case S_LET: b->sym[s->let.sym->id] = (Def){at, NULL, NULL, s->let.e}; break;
    case S_CHECK: run_check(b, s, at); break;
    case S_OP: run_op(b, s, at); break;
    case S_BRANCH: run_branch(b, s, at); break;
    default: run_calls(b, &s, 1, at); break;
    }
}

/* Emits the statements of q in order, but moves what does not need a call's results before the
 * call, so that sibling calls become adjacent. */
static void run(Batch *b, const Seq *q, List *at) {
    bool *done = NEWN(b->a, bool, q->s.n + 1);
    for (int i = 0; i < q->s.n; i++) {
        if (done[i]) continue;
        if (q->s.p[i]->kind != S_CALL) {
            run_stmt(b, q->s.p[i], at);
            continue;
        }
        Stmt **call = NEWN(b->a, Stmt *, q->s.n);
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
    Sym *rows = sym_new(b->c, DT_I64, "rows", 1);
    rows->hi = ROWS_MAX;
    rows->scope = b->seq;
    *all = (List){.n = e_sym(b->c, rows)};
    Tensor **old = f->arg;
    f->arg = NEWN(b->a, Tensor *, f->nsym + f->narg + 1);
    for (int i = 0; i < f->nsym + f->narg; i++) {
        const Tensor *t = i < f->nsym ? NULL : old[i - f->nsym];
        Expr *dim[MAX_RANK] = {all->n};
        for (int d = 0; t && d < t->rank; d++) dim[d + 1] = t->dim[d];
        Tensor *x = f->arg[i] =
            tensor_new(b->c, TK_PARAM, t ? t->dtype : f->sym[i]->dtype, t ? t->rank + 1 : 1, dim);
        x->seq = b->seq;
        x->name = t ? t->name : f->sym[i]->name;
        *(t ? &b->tensor[t->id] : &b->sym[f->sym[i]->id]) = (Def){all, x, NULL, NULL};
    }
    f->narg += f->nsym;
    f->nsym = 1;
    f->sym = NEWN(b->a, Sym *, 1);
    f->sym[0] = f->rows = rows;
}

/* The call from outside gets one row. Its former results become copies of that row's results. */
static void start_one(Batch *b, Seq *q, int *at, Stmt *s) {
    Cx *c = b->c;
    const Func *f = s->call.f;
    Seq *body = b->seq, made = {.parent = q->parent}; /* the call, and what is new around it */
    b->seq = &made;
    Expr **value = s->call.sym;
    Tensor **arg = s->call.arg;
    int nsym = b->nsym_of[f->id];
    s->call.sym = NEWN(b->a, Expr *, 1);
    s->call.sym[0] = e_int(c, 1);
    s->call.arg = NEWN(b->a, Tensor *, f->narg + 1);
    for (int i = 0; i < f->narg; i++) {
        Tensor *x = s->call.arg[i] = rows_of(b, TK_TE, f->arg[i], 1, e_int(c, 1), q);
        compute(b, x, i < nsym ? value[i] : load_rest(b, arg[i - nsym], x), s->path);
    }
    append(b, s);
    for (int i = 0; i < f->nout; i++) {
        Tensor *t = s->call.out[i], *x = rows_of(b, TK_CALL, t, 0, e_int(c, 1), q);
        Expr *idx[MAX_RANK] = {e_int(c, 0)};
        for (int d = 0; d < t->rank; d++)
            idx[d + 1] = e_axis(c, t->axis[d] = axis_new(c, t->dim[d]));
        s->call.out[i] = x;
        t->kind = TK_TE;
        compute(b, t, e_load(c, x, idx), s->path);
    }
    b->seq = body;
    seq_replace(c, q, at, &made.s);
}

/* Makes the results of f's body tensors of their own. */
static void make_results(Batch *b, Func *f, List *all, const Stmt *s) {
    for (int i = 0; i < f->nout; i++) {
        Tensor *t = f->out[i], *x;
        const Def *d = def_of(b, t);
        if (d && d->t->kind == TK_TE && d->list == all && !d->from && !d->t->owned)
            x = d->t;
        else {
            x = rows_of(b, TK_TE, t, 0, all->n, b->seq);
            compute(b, x, lift_at(b, all, e_axis(b->c, x->axis[0]), s, load_rest(b, t, x)),
                    s->path);
        }
        x->owned = true;
        x->ret = i + 1;
        f->out[i] = x;
    }
}

static void batch(Batch *b, Seq *q, int *at, Stmt *s) {
    int n = s->call.nfunc;
    List *all = NEWN(b->a, List, n);
    Seq **body = NEWN(b->a, Seq *, n);
    b->sym = NEWN(b->a, Def, b->nsym + 1);
    b->tensor = NEWN(b->a, Def, b->ntensor + 1);
    b->gathered = map_new(b->a);
    for (int i = 0; i < n; i++) { /* callers need all results */
        body[i] = b->seq = seq_new(b->c, q, s, true);
        make_params(b, s->call.func[i], &all[i]);
    }
    for (int i = 0; i < n; i++) {
        Func *f = s->call.func[i];
        b->seq = body[i];
        run(b, f->body, &all[i]);
        make_results(b, f, &all[i], s);
        f->body = body[i];
    }
    start_one(b, q, at, s);
}

/* ---- whether it pays ------------------------------------------------------------------------- */
typedef struct Shared { /* what all activations read from the same memory */
    Cx *c;
    const Func *f;
    double bytes;
    Map *seen;
} Shared;

static void shared_load(void *user, Expr *e) {
    Shared *k = user;
    const Tensor *t = tensor_root(e->t);
    bool own = t->kind != TK_CONST && t->kind != TK_INPUT && seq_inside(t->seq, k->f->body);
    if (!own && map_add(k->seen, (uint64_t)t->id + 1)) k->bytes += cost_bytes(t);
}

/* Collects the operands of sums of products in e: each activation reads all of them. */
static void shared_operands(Shared *k, Expr *e) {
    if (!(e->flags & EF_REDUCE)) return;
    if (is_sum_of_products(e)) e_each_load(k->c, e->a[0], shared_load, k);
    for (int i = 0; i < e->n; i++) shared_operands(k, e->a[i]);
}

static void shared_stmt(void *user, Stmt *s) {
    Shared *k = user;
    k->seen = map_new(k->c->a);
    if (s->kind == S_OP) shared_operands(k, s->op.t[0]->body);
}

/* Time saved per activation of q when `rows` activations read their shared operands once. A branch
 * counts as the mean of its arms. */
static double saved_ns(Batch *b, const Func *f, const Seq *q, int rows, double gbps) {
    const Device *d = b->p->schedule->device;
    int units = b->p->schedule->units;
    double ns = 0;
    for (int i = 0; i < q->s.n; i++) {
        Stmt *s = q->s.p[i];
        for (int m = 0; s->kind == S_BRANCH && m < 2; m++)
            ns += saved_ns(b, f, s->br.arm[m], rows, gbps) / 2;
        Shared k = {.c = b->c, .f = f};
        shared_stmt(&k, s);
        if (k.bytes == 0) continue;
        double flops = cost_work(b->c, s, COST_UNKNOWN).flops / d->gflops / units,
               bytes = k.bytes / gbps / units;
        if (bytes > flops) ns += bytes - (bytes / rows > flops ? bytes / rows : flops);
    }
    return ns;
}

/* Batching reads what the rows of a depth share once instead of once per row. The number of rows
 * per depth is not known: it is taken to be the number of calls that an activation makes. */
static bool worth(Batch *b, const Stmt *s, int rows) {
    const Device *d = b->p->schedule->device;
    const Func *f = s->call.f;
    int units = b->p->schedule->units;
    Shared k = {.c = b->c, .f = f};
    seq_each(f->body, shared_stmt, &k);
    double one = cost_seq_ns(b->p, f->body, units), gbps = device_gbps(d, k.bytes / units);
    /* Units synchronize about three times per depth instead of once per activation; results are
     * copied once more. */
    double more = 4 * d->group_ns / rows +
                  (units > 1 ? (3.0 / rows - 1) * d->level[LEVEL_TEAM].barrier_ns : 0);
    for (int i = 0; i < f->nout; i++)
        more += 2 * cost_bytes(f->out[i]) / d->level[LEVEL_CORE].read_gbps / units;
    return decide(b->p, X_BATCH, s, one, one - saved_ns(b, f, f->body, rows, gbps) + more);
}

static void try_call(void *user, Seq *q, int *at) {
    Batch *b = user;
    Stmt *s = q->s.p[*at];
    if (s->kind != S_CALL || !s->call.nfunc) return;
    b->nsym = b->c->next_sym;
    b->ntensor = b->c->next_tensor;
    bool ok = true;
    int rows = 0;
    for (int k = 0; k < s->call.nfunc; k++) {
        b->nsym_of[s->call.func[k]->id] = s->call.func[k]->nsym;
        b->narg_of[s->call.func[k]->id] = s->call.func[k]->narg;
    }
    for (int k = 0; k < s->call.nfunc && ok; k++) {
        ok = fits(s->call.func[k]);
        int m = ok ? siblings(b, s->call.func[k]->body) : 0;
        if (m > rows) rows = m;
    }
    if (ok && rows > 1 && worth(b, s, rows)) batch(b, q, at, s);
}

void pass_batch(Program *p) {
    Batch b = {.p = p, .c = p->cx, .a = p->cx->a};
    b.nsym_of = NEWN(b.a, int, p->nfunc + 1);
    b.narg_of = NEWN(b.a, int, p->nfunc + 1);
    if (p->nfunc) seq_rewrite(p->top, try_call, &b);
}
