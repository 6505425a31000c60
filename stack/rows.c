/* rows.c: statements of one activation rewritten for many of them at once (rows.h). */
#include "stack/rows.h"
#include "utask/expr_internal.h"

/* ---- values over rows ------------------------------------------------------------------------ */
static bool extent_visible(const void *user, const Expr *e) {
    for (int i = 0; e->op == E_REDUCE && i < e->naxis; i++)
        if (!expr_visible(e->raxis[i]->extent, user)) return false;
    return true;
}
bool rows_extents_visible(Arena *a, const Expr *e, const Seq *from) {
    return !(e->flags & EF_REDUCE) || expr_all(a, e, extent_visible, from);
}

static Expr *add(Rows *b, Expr *r, Expr *from) { return from ? e_add(b->c, r, from) : r; }

/* Row r of list `at` as a row of list `in`, which is the same list or encloses it. */
Expr *rows_row_in(Rows *b, const List *at, Expr *r, const List *in) {
    for (; at != in; at = at->up) {
        Expr *i = add(b, r, at->from);
        r = at->known ? at->known : at->row ? e_load(b->c, at->row, &i) : i;
    }
    return r;
}

void rows_append(Rows *b, Stmt *s) { vec_push(b->a, &b->seq->s, s); }

/* A vector over rows. */
Tensor *rows_vector(Rows *b, DType t, Expr *n, const char *name) {
    Tensor *x = tensor_new(b->c, TK_TE, t, 1, &n);
    x->axis[0] = axis_new(b->c, n);
    x->seq = b->seq;
    x->name = name;
    return x;
}

/* One like t for n rows: dimension 0 is the row, the others are those of t from number `first` on.
 */
Tensor *rows_of(Rows *b, TensorKind k, const Tensor *t, int first, Expr *n, Seq *q) {
    Expr *dim[MAX_RANK] = {n};
    for (int i = first; i < t->rank; i++) dim[i - first + 1] = t->dim[i];
    return tensor_like(b->c, k, t, t->rank - first + 1, dim, q);
}

/* t's element at the position of x, but for its row. */
Expr *rows_load_rest(Rows *b, Tensor *t, const Tensor *x) {
    Expr *idx[MAX_RANK];
    for (int d = 1; d < x->rank; d++) idx[d - 1] = e_axis(b->c, x->axis[d]);
    return e_load(b->c, t, idx);
}

void rows_compute(Rows *b, Tensor *x, Expr *body, const char *path) {
    x->body = body;
    x->path = path;
    rows_append(b, stmt_op(b->c, x, path));
}

typedef struct Lift {
    Rows *b;
    List *at;
    Expr *row;
    const Stmt *s; /* the statement that it is for */
    Map *memo;
} Lift;

static Expr *lift(Lift *k, Expr *e, bool in_reduce);

Expr *rows_lift(Rows *b, List *at, Expr *row, const Stmt *s, Expr *e) {
    Lift k = {b, at, row, s, map_new(b->a)};
    return lift(&k, e, false);
}

static Expr *lift_sym(Lift *k, const Sym *s) {
    Rows *b = k->b;
    const Def *d = s->id < b->nsym ? &b->sym[s->id] : NULL;
    if (!d || !d->list) return NULL;
    Expr *r = rows_row_in(b, k->at, k->row, d->list);
    if (d->e) return rows_lift(b, d->list, r, k->s, d->e);
    if (d->find) return d->find(b, d, r);
    r = add(b, r, d->from);
    return e_load(b->c, d->t, &r);
}

/* The Def of a tensor of the old body; NULL for any other tensor. */
Def *rows_def(Rows *b, Tensor *t) {
    if (t->kind == TK_CONST || t->kind == TK_INPUT || t->id >= b->ntensor) return NULL;
    Def *d = &b->tensor[t->id];
    if (d->list) return d;
    if (t->kind != TK_VIEW) return NULL;
    const Def *base = rows_def(b, t->base);
    if (!base) return NULL;
    *d = *base;
    d->t = base->same ? tensor_like(b->c, TK_VIEW, t, t->rank, t->dim, base->t->seq)
                      : rows_of(b, TK_VIEW, t, 0, base->t->dim[0], base->t->seq);
    d->t->base = base->t;
    return d;
}

/* Where a row of the list `at` is in d's tensor. */
static Expr *index_of(Rows *b, const Def *d, const List *at, Expr *row) {
    row = rows_row_in(b, at, row, d->list);
    return d->find ? d->find(b, d, row) : add(b, row, d->from);
}

/* Whether the rows of the list `at` are not one behind the other in d's tensor. */
static bool is_scattered(const Def *d, const List *at) {
    for (; at != d->list; at = at->up)
        if (at->row) return true;
    return d->find != NULL;
}

/* The rows of list `at`, copied from a tensor of an enclosing list, so that operands of products
 * are evenly spaced in memory. */
static Tensor *gathered(Lift *k, const Def *d) {
    Rows *b = k->b;
    uint64_t key = (uint64_t)(d - b->tensor) << 32 | (uint64_t)k->at->id;
    Tensor *x = map_geti(b->gathered, key);
    if (x) return x;
    x = rows_of(b, TK_TE, d->t, 1, k->at->n, b->seq);
    Expr *idx[MAX_RANK];
    for (int i = 0; i <= x->rank - 1; i++) idx[i] = e_axis(b->c, x->axis[i]);
    idx[0] = index_of(b, d, k->at, idx[0]);
    rows_compute(b, x, e_load(b->c, d->t, idx), k->s->path);
    map_seti(b->gathered, key, x);
    return x;
}

/* A load of tensor t at the row, with the other indices unchanged. */
static Expr *load_row(Rows *b, Tensor *t, Expr *row, const Expr *e, Expr **a) {
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
    Rows *b = k->b;
    if (!(e->flags & (EF_SYM | EF_LOAD))) return e;
    uint64_t key = (uint64_t)e->id * 2 + in_reduce + 1;
    Expr *r = map_geti(k->memo, key);
    if (r) return r;
    Expr **a = NEWN(b->a, Expr *, e->n + 1);
    if (e->op == E_SYM) r = lift_sym(k, e->sym);
    for (int i = 0; i < e->n; i++) a[i] = lift(k, e->a[i], in_reduce || e->op == E_REDUCE);
    Def *d = e->op == E_LOAD ? rows_def(b, e->t) : NULL;
    if (d && d->same)
        r = e->kind ? e_loadf(b->c, d->t, a[0]) : e_load(b->c, d->t, a);
    else if (d && in_reduce && d->t->rank > 1 && is_scattered(d, k->at))
        r = load_row(b, gathered(k, d), k->row, e, a);
    else if (d)
        r = load_row(b, d->t, index_of(b, d, k->at, k->row), e, a);
    else if (!r)
        r = e->n ? expr_rebuild(b->c, e, a) : e;
    map_seti(k->memo, key, r);
    return r;
}

/* ---- statements ------------------------------------------------------------------------------ */
void rows_check(Rows *b, const Stmt *s, List *at) {
    Stmt *n = stmt_new(b->c, S_CHECK, s->path);
    Axis *r = axis_new(b->c, at->n);
    Expr *row = e_axis(b->c, r), *tell = s->check.cond, *say[SAID_MAX];
    Expr *every = e_reduce(b->c, R_AND, 1, &r, rows_lift(b, at, row, s, e_told(tell)));
    Sym *all = sym_new(b->c, DT_BOOL, "all", 0);
    all->scope = b->seq;
    every = seq_let(b->c, b->seq, all, every, s->path);
    int nsay = tell->op == E_TELL ? tell->n - 1 : 0;
    /* only values that are the same for all rows can be reported */
    for (int i = 0; i < nsay; i++) {
        say[i] = rows_lift(b, at, row, s, tell->a[1 + i]);
        if (!say[i]->pure) say[i] = e_int(b->c, UNSAID);
    }
    n->check.cond = e_tell(b->c, every, nsay, say);
    n->check.site = s->check.site;
    rows_append(b, n);
}

Tensor *rows_op(Rows *b, const Stmt *s, List *at) {
    const Tensor *t = s->op.t[0];
    Tensor *x = rows_of(b, TK_TE, t, 0, at->n, b->seq);
    memcpy(x->axis + 1, t->axis, sizeof *x->axis * (size_t)t->rank);
    rows_compute(b, x, rows_lift(b, at, e_axis(b->c, x->axis[0]), s, t->body), s->path);
    b->tensor[t->id] = (Def){.list = at, .t = x};
    return x;
}
