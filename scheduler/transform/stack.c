/* stack.c: tensors that are computed alike and then concatenated become one.
 *
 * cat(x[0] · W0, x[1] · W1, …) = (x[h] · W[h] for all h), W the constants W0, W1, … one behind the
 * other
 *
 * So heads that a model writes one by one are one product over one more axis. The
 * expressions of the pieces must be the same but for numbers that advance by the same step, for
 * constants, and for tensors that are alike in the same way and have no other users.
 *
 * Requires single-tensor OPs. */
#include "scheduler/cost/decide.h"
#include "scheduler/passes.h"
#include "utask/expr_internal.h"
#include "utask/walk.h"

#define PIECES_MIN 4 /* for fewer the axis is too short to be worth it */
#define PIECES_MAX 256
#define DEPTH_MAX 200 /* of expressions and tensors that are looked at */

typedef struct Stacking {
    Program *p;
    Cx *c;
    Seq *q;      /* of the statement that concatenates */
    Axis *lane;  /* which piece */
    int n;       /* pieces */
    Map *made;   /* first piece's tensor id -> what stands for all of them */
    Map *gone;   /* tensor ids that it stands for */
    StmtVec out; /* the statements of the new tensors */
    bool sum;    /* one of them has a sum */
} Stacking;

static Expr *alike(Stacking *s, Expr **e, int depth);

/* Numbers, or one number and whole steps: first + lane * step. */
static Expr *steps(Stacking *s, Expr **e) {
    int64_t step, k;
    if (!e_is_int(e_sub(s->c, e[1], e[0]), &step)) return NULL;
    for (int i = 2; i < s->n; i++)
        if (!e_is_int(e_sub(s->c, e[i], e[i - 1]), &k) || k != step) return NULL;
    return e_add(s->c, e[0], e_muli(s->c, e_axis(s->c, s->lane), step));
}

static bool same_shape(const Tensor *a, const Tensor *b) {
    if (a->kind != b->kind || a->dtype != b->dtype || a->rank != b->rank) return false;
    for (int d = 0; d < a->rank; d++)
        if (a->dim[d] != b->dim[d]) return false;
    return true;
}

static Tensor *constant(Stacking *s, const Const *k, Expr *const *dim, const char *name) {
    Tensor *all = tensor_new(s->c, TK_CONST, k->dtype, k->rank, dim);
    all->data = k;
    all->seq = s->p->top;
    all->name = name;
    return all;
}

/* Numbers that are not steps. */
static Expr *numbers(Stacking *s, Expr **e) {
    Cx *c = s->c;
    Const *k = NEW(c->a, Const);
    *k = (Const){.dtype = e[0]->dtype, .rank = 1, .count = s->n, .dim = {s->n}};
    void *data = arena_alloc(c->a, dtype_size(k->dtype) * (size_t)s->n);
    for (int i = 0; i < s->n; i++) e_store(e[i], data, i);
    k->data = data;
    Expr *at = e_axis(c, s->lane);
    return e_load(c, constant(s, k, &s->lane->extent, "numbers"), &at);
}

/* The constants one behind the other. */
static Tensor *constants(Stacking *s, Tensor **t) {
    Expr *dim[MAX_RANK] = {s->lane->extent};
    const Const *first = t[0]->data;
    const size_t bytes = (size_t)first->count * dtype_size(first->dtype);
    Const *k = NEW(s->c->a, Const);
    *k = *first;
    k->rank++;
    k->count *= s->n;
    k->dim[0] = s->n;
    for (int d = 0; d < first->rank; d++) k->dim[d + 1] = first->dim[d];
    memcpy(dim + 1, t[0]->dim, sizeof *dim * (size_t)first->rank);
    char *data = arena_alloc(s->c->a, bytes * (size_t)s->n + 1);
    for (int i = 0; i < s->n; i++) memcpy(data + bytes * (size_t)i, t[i]->data->data, bytes);
    k->data = data;
    return constant(s, k, dim, t[0]->name);
}

/* What stands for the tensors t, with the pieces as axis 0; NULL: they are not alike. */
static Tensor *stacked(Stacking *s, Tensor **t, int depth) {
    Cx *c = s->c;
    Tensor *all = map_geti(s->made, (uint64_t)t[0]->id + 1);
    Expr *dim[MAX_RANK] = {s->lane->extent}, **body = NEWN(c->a, Expr *, s->n);
    if (all) return all;
    for (int i = 0; i < s->n; i++)
        if (!same_shape(t[i], t[0]) || t[i]->rank < 0 || t[i]->rank == MAX_RANK ||
            map_geti(s->gone, (uint64_t)t[i]->id + 1))
            return NULL;
    if (t[0]->kind == TK_CONST) {
        for (int i = 0; i < s->n; i++)
            if (t[i]->blob || t[i]->coded || t[i]->elem) return NULL;
        all = constants(s, t);
        map_seti(s->made, (uint64_t)t[0]->id + 1, all);
        return all;
    }
    for (int i = 0; i < s->n; i++)
        if (t[i]->kind != TK_TE || t[i]->owned || t[i]->seq != s->q || t[i]->table) return NULL;
    memcpy(dim + 1, t[0]->dim, sizeof *dim * (size_t)t[0]->rank);
    all = tensor_new(c, TK_TE, t[0]->dtype, t[0]->rank + 1, dim);
    for (int d = 0; d < all->rank; d++) all->axis[d] = axis_new(c, dim[d]);
    all->seq = s->q;
    all->name = t[0]->name;
    all->path = t[0]->path;
    for (int i = 0; i < s->n; i++) {
        body[i] = expr_over(c, t[i]->body, t[i], all, 1);
        map_seti(s->gone, (uint64_t)t[i]->id + 1, all);
    }
    Expr *e = alike(s, body, depth + 1), *own = e_axis(c, all->axis[0]);
    if (!e) return NULL;
    all->body = e_subst(c, e, 1, &s->lane, &own, NULL, NULL);
    vec_push(c->a, &s->out, stmt_op(c, all, t[0]->path));
    map_seti(s->made, (uint64_t)t[0]->id + 1, all);
    return all;
}

static Expr *alike_loads(Stacking *s, Expr **e, Expr **idx) {
    Tensor **t = NEWN(s->c->a, Tensor *, s->n), *all;
    bool same = true;
    for (int i = 0; i < s->n; i++) {
        t[i] = e[i]->t;
        same &= t[i] == t[0];
    }
    if (same) return e_load(s->c, t[0], idx + 1);
    idx[0] = e_axis(s->c, s->lane);
    return (all = stacked(s, t, 0)) ? e_load(s->c, all, idx) : NULL;
}

static Expr *alike_sums(Stacking *s, Expr **e, int depth) {
    Cx *c = s->c;
    Expr **body = NEWN(c->a, Expr *, s->n), *to[MAX_RANK * 4];
    if (e[0]->naxis > (int)COUNT(to)) return NULL;
    for (int r = 0; r < e[0]->naxis; r++) to[r] = e_axis(c, e[0]->raxis[r]);
    for (int i = 0; i < s->n; i++) {
        for (int r = 0; r < e[0]->naxis; r++)
            if (e[i]->raxis[r]->extent != e[0]->raxis[r]->extent) return NULL;
        body[i] = e_subst(c, e[i]->a[0], e[i]->naxis, e[i]->raxis, to, NULL, NULL);
    }
    Expr *of = alike(s, body, depth + 1);
    s->sum = true;
    return of ? e_reduce(c, e[0]->kind, e[0]->naxis, e[0]->raxis, of) : NULL;
}

/* One expression for those of all pieces; NULL: they are not alike. */
static Expr *alike(Stacking *s, Expr **e, int depth) {
    Cx *c = s->c;
    Expr *a[1 + MAX_RANK], **of = NEWN(c->a, Expr *, s->n), *r;
    bool same = true;
    for (int i = 1; i < s->n; i++) same &= e[i] == e[0];
    if (same) return e[0];
    if (depth > DEPTH_MAX) return NULL;
    if (e[0]->dtype == DT_I64) {
        for (int i = 1; i < s->n; i++)
            if (e[i]->dtype != DT_I64) return NULL;
        if ((r = steps(s, e))) return r;
    }
    bool constant = !dtype_small(e[0]->dtype);
    for (int i = 0; i < s->n; i++) constant &= e[i]->op == E_CONST && e[i]->dtype == e[0]->dtype;
    if (constant) return numbers(s, e);
    const bool load = e[0]->op == E_LOAD;
    for (int i = 0; i < s->n; i++) {
        if (e[i]->op != e[0]->op || e[i]->dtype != e[0]->dtype || e[i]->n != e[0]->n ||
            e[i]->kind != e[0]->kind || e[i]->naxis != e[0]->naxis)
            return NULL;
        if (load ? e[i]->kind != 0 : e[0]->op != E_REDUCE && e[i]->i != e[0]->i) return NULL;
    }
    if (e[0]->op == E_REDUCE) return alike_sums(s, e, depth);
    if (!load && (e[0]->n == 0 || e[0]->n > 3)) return NULL;
    for (int k = 0; k < e[0]->n; k++) {
        for (int i = 0; i < s->n; i++) of[i] = e[i]->a[k];
        if (!(a[k + load] = alike(s, of, depth + 1))) return NULL;
    }
    return load ? alike_loads(s, e, a) : expr_rebuild(c, e[0], a);
}

/* The pieces of t, each at one position along dim; 0: it is no such thing. Longer ones would be
 * read at quotients and remainders of positions, which no kernel of products takes. */
static int pieces(Stacking *s, Tensor *t, int dim, Expr **piece) {
    Cx *c = s->c;
    Expr *e = t->body;
    int64_t n, at;
    if (!e_is_int(t->dim[dim], &n) || n < PIECES_MIN || n > PIECES_MAX) return 0;
    for (int i = 0; i < n; i++) {
        const Expr *x = e->op == E_SELECT && e->a[0]->op == E_LT ? e->a[0] : NULL;
        const bool cut = x && x->a[0]->op == E_AXIS && x->a[0]->axis == t->axis[dim] &&
                         e_is_int(x->a[1], &at) && at == i + 1;
        if (cut == (i == n - 1)) return 0;
        Expr *to = e_int(c, i);
        piece[i] = e_subst(c, cut ? e->a[1] : e, 1, &t->axis[dim], &to, NULL, NULL);
        if (cut) e = e->a[2];
    }
    return (int)n;
}

/* Whether nobody but `by` and the tensors that go uses one of these. */
typedef struct Users {
    Stacking *s;
    const Tensor *by;
    bool other, own; /* own: the statement's tensor is by, or goes */
} Users;

static void use_load(void *user, Expr *e) {
    Users *u = user;
    u->other |= !u->own && map_geti(u->s->gone, (uint64_t)tensor_root(e->t)->id + 1) != NULL;
}

static void use_slot(void *user, const Slot *k) {
    Users *u = user;
    if (k->kind == SLOT_READ)
        u->other |= map_geti(u->s->gone, (uint64_t)tensor_root(*k->t)->id + 1) != NULL;
    if (slot_is_expr(k)) e_each_load(u->s->c, *k->e, use_load, u);
}

static void use_stmt(void *user, Stmt *o) {
    Users *u = user;
    u->own = o->kind == S_OP &&
             (o->op.t[0] == u->by || map_geti(u->s->gone, (uint64_t)o->op.t[0]->id + 1));
    stmt_slots(o, use_slot, u);
}

static void stack(void *user, Seq *q, int *at) {
    Program *p = user;
    Cx *c = p->cx;
    Stmt *o = q->s.p[*at];
    if (o->kind != S_OP || o->op.n != 1 || o->op.t[0]->body->op != E_SELECT) return;
    Tensor *t = o->op.t[0];
    Expr *piece[PIECES_MAX];
    for (int d = 0; d < t->rank; d++) {
        Stacking s = {.p = p, .c = c, .q = q, .made = map_new(c->a), .gone = map_new(c->a)};
        if (!(s.n = pieces(&s, t, d, piece))) continue;
        s.lane = axis_new(c, e_int(c, s.n));
        Expr *all = alike(&s, piece, 0);
        if (!all || !s.sum) return;
        Users u = {.s = &s, .by = t};
        seq_each(p->top, use_stmt, &u);
        const double ns = s.out.n * p->schedule->device->group_ns;
        if (u.other || !decide(p, X_STACK, o, ns * s.n, ns)) return;
        Expr *own = e_axis(c, t->axis[d]);
        t->body = e_subst(c, all, 1, &s.lane, &own, NULL, NULL);
        for (int i = 0; i < s.out.n; i++) seq_put_at(c, q, (*at)++, s.out.p[i]);
        return;
    }
}

void pass_stack(Program *p) { seq_rewrite(p->top, stack, p); }
