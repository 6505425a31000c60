/* split_sum.c: products with a concatenation become sums of products with its pieces.
 *
 * sum(k < K: cat(A, B)[k] * w[k]) = sum(k < C: A[k] * w[k]) + sum(k < K - C: B[k] * w[k + C])
 *
 * So the pieces are read where they are: the concatenation needs neither memory nor, where other
 * units made the pieces, a synchronization of its own. */
#include "scheduler/cost/decide.h"
#include "scheduler/passes.h"
#include "utask/product.h"
#include "utask/walk.h"

#define PIECES_MAX 8
#define PIECE_MIN 8 /* a shorter sum is not worth a product of its own */

typedef struct SplitSum {
    Program *p;
    Cx *c;
    /* the load to replace: of t, at `at` along dim, by body */
    const Tensor *t;
    int dim;
    Expr *at, *body;
    Expr *by; /* what a sum becomes */
} SplitSum;

/* select(axis < C, piece, rest) along dim of t; C is given. */
static bool is_cut(const Tensor *t, const Expr *e, int dim, int64_t *at) {
    if (e->op != E_SELECT || e->a[0]->op != E_LT) return false;
    const Expr *x = e->a[0]->a[0];
    return x->op == E_AXIS && x->axis == t->axis[dim] && e_is_int(e->a[0]->a[1], at);
}

/* Pieces that are plain loads, none of them short, one after the other from `from` on. */
static bool is_concat(const Tensor *t, const Expr *e, int dim, int64_t from, int64_t end,
                      int left) {
    int64_t at;
    if (end - from < PIECE_MIN || left == 0) return false;
    if (e->op == E_LOAD) return true;
    return is_cut(t, e, dim, &at) && at > from && at < end &&
           is_concat(t, e->a[1], dim, from, at, 1) && is_concat(t, e->a[2], dim, at, end, left - 1);
}

/* Whether operand o of a sum over x is a concatenation along it: which dim of the tensor. */
static int concat_dim(const Expr *o, const Axis *x) {
    int64_t n, at;
    if (o->op != E_LOAD || o->kind || o->t->kind != TK_TE || !e_is_int(x->extent, &n)) return -1;
    for (int d = 0; d < o->t->rank; d++)
        if (o->a[d]->op == E_AXIS && o->a[d]->axis == x && o->t->dim[d] == x->extent &&
            is_cut(o->t, o->t->body, d, &at) && is_concat(o->t, o->t->body, d, 0, n, PIECES_MAX))
            return d;
    return -1;
}

static Expr *piece_of(void *user, Expr *e) {
    const SplitSum *s = user;
    if (e->t != s->t || e->kind || e->a[s->dim] != s->at) return NULL;
    return e_subst(s->c, s->body, s->t->rank, s->t->axis, e->a, NULL, NULL);
}

/* The sum r over pieces of concatenation t along x, of which `body` is what is left. */
static Expr *sum_pieces(SplitSum *s, Expr *r, int axis, Expr *body, int64_t from, int64_t end) {
    Cx *c = s->c;
    int64_t at = end;
    bool cut = is_cut(s->t, body, s->dim, &at);
    Axis *x = axis_new(c, e_int(c, at - from)), **axes = NEWN(c->a, Axis *, r->naxis);
    memcpy(axes, r->raxis, sizeof *axes * (size_t)r->naxis);
    axes[axis] = x;
    s->at = e_addi(c, e_axis(c, x), from);
    s->body = cut ? body->a[1] : body;
    Expr *e = e_subst(c, r->a[0], 1, &r->raxis[axis], &s->at, NULL, NULL);
    e = e_subst(c, e, 0, NULL, NULL, piece_of, s);
    e = e_reduce(c, R_SUM, r->naxis, axes, e);
    return cut ? e_add(c, e, sum_pieces(s, r, axis, body->a[2], at, end)) : e;
}

/* Whether r is such a sum; if so, it is made of pieces. */
static bool in_pieces(void *user, Expr *r) {
    SplitSum *s = user;
    SumProduct p;
    if (!product_of(r, &p) || (r->dtype != DT_F32 && r->dtype != DT_F64)) return false;
    for (int i = 0; i < r->naxis; i++)
        for (int side = 0; side < 2; side++) {
            const Expr *o = p.factor[side];
            s->dim = concat_dim(o, r->raxis[i]);
            if (s->dim < 0) continue;
            s->t = o->t;
            s->by = sum_pieces(s, r, i, o->t->body, 0, axis_size(r->raxis[i], 0));
            return true;
        }
    return false;
}

static Expr *find(SplitSum *s, Expr *e) {
    return find_reduction(map_new(s->c->a), e, false, in_pieces, s);
}

static void split(void *user, Stmt *o) {
    SplitSum *s = user;
    const Device *d = s->p->schedule->device;
    for (int k = 0; o->kind == S_OP && k < o->op.n; k++) {
        Tensor *t = o->op.t[k];
        Expr *from;
        if (!find(s, t->body)) continue;
        /* Without it, the concatenation is a group of its own, and where others made the pieces, a
         * barrier. */
        if (!decide(s->p, X_SPLIT_SUM, o, d->group_ns + d->level[LEVEL_TEAM].barrier_ns,
                    d->group_ns))
            continue;
        while ((from = find(s, t->body))) t->body = e_replace(s->c, t->body, from, s->by);
    }
}

void pass_split_sum(Program *p) {
    SplitSum s = {.p = p, .c = p->cx};
    seq_each(p->top, split, &s);
}
