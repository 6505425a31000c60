/* fold_product.c: a product of two constants, read at positions that only the run knows, becomes a
 * table.
 *
 * sum(r: A[f, r] * B[r, g]) with A and B constant is T[f, g], where T = A · B is computed here: the
 * input product of an embedded word is one row of the table. Only where the table stays small. B
 * may have more rows, of which the sum takes some; A may be read only under a condition, else it is
 * 0. */
#include <inttypes.h>
#include <math.h>

#include "scheduler/cost/cost.h"
#include "scheduler/cost/decide.h"
#include "scheduler/passes.h"
#include "utask/product.h"
#include "utask/walk.h"

#define TABLE_BYTES ((int64_t)1 << 24) /* the largest table */
#define TABLE_GROWTH 4                 /* how many times as large as the two constants it may be */

typedef struct Fold {
    Program *p;
    Cx *c;
    Map *tables; /* key text -> Tensor */
    Expr *by;    /* what a sum becomes */
} Fold;

/* One constant of a product: all its axes but `dim`, along which the sum runs, are free. */
typedef struct Operand {
    Expr *load, *cond; /* cond: when it is read; NULL: always */
    int dim;
    int64_t from; /* position along dim where the sum begins */
    int64_t free, free_dim[MAX_RANK], step, size[MAX_RANK], stride[MAX_RANK];
    Expr *at[MAX_RANK];
    int nfree;
} Operand;

/* A load that is 0 where a condition does not hold. */
static bool is_masked(const Expr *e) {
    return e->op == E_SELECT && e->a[1]->op == E_LOAD && e->a[2]->op == E_CONST &&
           e->a[2]->f == 0 && !signbit(e->a[2]->f);
}

/* For a load of a tensor that is itself a load: the innermost load, and when it counts. */
static Expr *through(Cx *c, Expr *e, Expr **cond) {
    *cond = NULL;
    while (e->op == E_LOAD && !e->kind && e->t->kind == TK_TE && !e->t->owned &&
           (e->t->body->op == E_LOAD || is_masked(e->t->body))) {
        e = e_subst(c, e->t->body, e->t->rank, e->t->axis, e->a, NULL, NULL);
        if (!is_masked(e)) continue;
        *cond = *cond ? e_and(c, *cond, e->a[0]) : e->a[0];
        e = e->a[1];
    }
    return e;
}

/* Whether a sum over n elements along r reads this factor as such; fills *o. */
static bool operand(Cx *c, Operand *o, Expr *e, Axis *r, int64_t n) {
    *o = (Operand){.dim = -1, .free = 1};
    o->load = through(c, e, &o->cond);
    const Expr *l = o->load;
    if (l->op != E_LOAD || l->kind || l->t->kind != TK_CONST || l->t->dtype != DT_F32) return false;
    if (o->cond && e_uses_axis(o->cond, r)) return false;
    const Const *k = l->t->data;
    int64_t stride = 1;
    for (int d = k->rank - 1; d >= 0; d--) {
        Expr *coef, *rest;
        if (e_uses_axis(l->a[d], r)) {
            if (o->dim >= 0 || !e_affine(c, l->a[d], r, &coef, &rest) || !e_is_ival(coef, 1) ||
                !e_is_int(rest, &o->from) || o->from < 0 || o->from > k->dim[d] - n)
                return false;
            o->dim = d;
            o->step = stride;
        }
        o->stride[d] = stride;
        stride *= k->dim[d];
    }
    for (int d = 0; d < k->rank; d++) {
        if (d == o->dim) continue;
        o->at[o->nfree] = l->a[d];
        o->size[o->nfree] = k->dim[d];
        o->free_dim[o->nfree++] = d;
        if (!mul_size(o->free, k->dim[d], &o->free)) return false;
    }
    return o->dim >= 0 && o->free > 0;
}

/* Where the elements of o at the sum's begin are, in row-major order of the free axes. */
static int64_t *offsets(Cx *c, const Operand *o) {
    int64_t *at = NEWN(c->a, int64_t, o->free), index[MAX_RANK] = {0};
    for (int64_t i = 0; i < o->free; i++) {
        at[i] = o->from * o->step;
        for (int d = 0; d < o->nfree; d++) at[i] += index[d] * o->stride[o->free_dim[d]];
        for (int d = o->nfree - 1; d >= 0 && ++index[d] == o->size[d]; d--) index[d] = 0;
    }
    return at;
}

static Tensor *table_of(Fold *f, const Operand *a, const Operand *b, int64_t n) {
    Cx *c = f->c;
    Sb key = {.a = c->a};
    const Operand *both[2] = {a, b};
    for (int k = 0; k < 2; k++)
        sb_printf(&key, "%d %d %" PRId64 " ", both[k]->load->t->id, both[k]->dim, both[k]->from);
    sb_printf(&key, "%" PRId64, n);
    Tensor *t = map_get(f->tables, key.p);
    if (t) return t;
    Const *k = NEW(c->a, Const);
    *k = (Const){.dtype = DT_F32, .rank = a->nfree + b->nfree, .count = a->free * b->free};
    Expr *dim[MAX_RANK];
    for (int i = 0; i < k->rank; i++) {
        k->dim[i] = i < a->nfree ? a->size[i] : b->size[i - a->nfree];
        dim[i] = e_int(c, k->dim[i]);
    }
    float *out = NEWN(c->a, float, k->count), *rows = NEWN(c->a, float, n * b->free);
    const int64_t *row = offsets(c, a), *column = offsets(c, b);
    const float *x = a->load->t->data->data, *y = b->load->t->data->data;
    for (int64_t r = 0; r < n; r++)
        for (int64_t j = 0; j < b->free; j++) rows[r * b->free + j] = y[column[j] + r * b->step];
    for (int64_t i = 0; i < a->free; i++)
        for (int64_t r = 0; r < n; r++) {
            const float *from = rows + r * b->free, v = x[row[i] + r * a->step];
            float *restrict to = out + i * b->free;
            for (int64_t j = 0; j < b->free; j++) to[j] += v * from[j];
        }
    k->data = out;
    t = tensor_new(c, TK_CONST, DT_F32, k->rank, dim);
    t->data = k;
    t->seq = f->p->top;
    t->name = a->load->t->name;
    map_set(f->tables, key.p, t);
    return t;
}

/* Whether r is such a sum; if so, it becomes an element of its table. */
static bool folded(void *user, Expr *r) {
    Fold *f = user;
    SumProduct p;
    Operand o[2];
    int64_t n, count;
    if (!product_of(r, &p) || r->dtype != DT_F32 || r->naxis != 1) return false;
    if ((n = axis_size(r->raxis[0], 0)) < 1) return false;
    for (int side = 0; side < 2; side++)
        if (!operand(f->c, &o[side], p.factor[side], r->raxis[0], n)) return false;
    for (int side = 0; side < 2; side++)
        if (o[side].cond && !is_finite_constant(o[!side].load->t)) return false;
    if (o[0].nfree + o[1].nfree > MAX_RANK || !mul_size(o[0].free, o[1].free, &count)) return false;
    if (count > TABLE_BYTES / 4 || count > TABLE_GROWTH * n * (o[0].free + o[1].free)) return false;
    Expr *at[MAX_RANK];
    for (int i = 0; i < o[0].nfree; i++) at[i] = o[0].at[i];
    for (int i = 0; i < o[1].nfree; i++) at[o[0].nfree + i] = o[1].at[i];
    f->by = e_load(f->c, table_of(f, &o[0], &o[1], n), at);
    for (int side = 0; side < 2; side++)
        if (o[side].cond) f->by = e_sel(f->c, o[side].cond, f->by, e_num(f->c, DT_F32, 0));
    return true;
}

static void fold(void *user, Stmt *o) {
    Fold *f = user;
    if (o->kind != S_OP) return;
    Tensor *t = o->op.t[0];
    Expr *from, *plain = t->body;
    double plain_ns = 0;
    while ((from = find_reduction(map_new(f->c->a), t->body, false, folded, f))) {
        if (plain == t->body) plain_ns = cost_group_ns(f->p, o, 1);
        t->body = e_replace(f->c, t->body, from, f->by);
    }
    if (plain == t->body) return;
    if (!decide(f->p, X_FOLD_PRODUCT, o, plain_ns, cost_group_ns(f->p, o, 1))) t->body = plain;
}

void pass_fold_product(Program *p) {
    Fold f = {.p = p, .c = p->cx, .tables = map_new(p->cx->a)};
    seq_each(p->top, fold, &f);
}
