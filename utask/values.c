/* values.c: lowers loops that compute shapes iteration by iteration.
 * Such loops have few iterations over a few integers, or sequences of them, that are known as
 * uniform values. */
#include "utask/lower_internal.h"

#define TRIPS_MAX 16  /* iterations */
#define NODES_MAX 256 /* nodes of all iterations */
#define ELEMS_MAX 32  /* elements of a value */

/* Number of nodes of r, nested regions included. More than NODES_MAX if there are loops or calls
 * inside, or nodes whose results differ between iterations for the same inputs. */
static int64_t nodes(const Region *r) {
    int64_t n = r->nnode;
    for (int i = 0; i < r->nnode; i++) {
        const Node *k = r->node[i];
        bool arms = !strcmp(k->op->name, "If");
        if (k->callee || op_draws(k->op)) return NODES_MAX + 1;
        for (int a = 0; a < k->nattr; a++)
            if (k->attr[a].g) n += arms ? nodes(k->attr[a].g) : NODES_MAX + 1;
    }
    return n;
}

static bool tensor_known(Tensor *t) {
    int64_t n = t->rank < 0 || t->blob ? -1 : count_const(t);
    return n >= 0 && n <= ELEMS_MAX && !dtype_is_float(t->dtype) &&
           (t->elem || t->kind == TK_CONST);
}

/* Whether all elements are integers known as uniform values. */
static bool val_known(const Val *v) {
    int64_t n;
    if (!v) return false;
    if (v->kind == VT_TENSOR) return tensor_known(v->t);
    if (v->kind != VT_SEQUENCE || !v->item || !e_is_int(v->len, &n)) return false;
    for (int64_t i = 0; i < n; i++)
        if (!tensor_known(v->item[i])) return false;
    return true;
}

/* Stores iteration k's element of scan output t as elements [k, …] of e; false if its shape differs
 * from the first one's. */
static bool stack(Lower *L, Tensor *t, Tensor *like, int64_t k, Expr **e) {
    int64_t n = count_const(t);
    if (t->dtype != like->dtype || !same_dims(t, like)) return false;
    for (int64_t i = 0; i < n; i++) e[k * n + i] = t->elem ? t->elem[i] : e_elem(L->cx, t->data, i);
    return true;
}

/* One iteration: from[] are the carried values, res[] the results of the body. *more: the condition
 * to go on. False: something is not known. */
static bool iteration(Lower *L, LoopSpec *s, int64_t k, Val **from, Val **res, bool *more) {
    const Region *r = s->body;
    int nres = s->has_cond + s->ncarry + s->nscan;
    int64_t v;
    Val **param = NEWN(L->a, Val *, r->nparam + 1);
    for (int i = 0; i < s->ncarry; i++) param[s->first_param + i] = from[i];
    s->params(L, s, e_int(L->cx, k), param);
    lower_region(L, r, r->nparam, param, nres, res);
    for (int i = s->has_cond; i < nres; i++)
        if (!val_known(res[i])) return false;
    *more = true;
    if (!s->has_cond || !s->cond0) return true;
    Val *c = res[0];
    if (!c || c->kind != VT_TENSOR || c->t->dtype != DT_BOOL || count_const(c->t) != 1 ||
        !const_elem(c->t, 0, &v))
        return false;
    *more = v != 0;
    return true;
}

static bool all_iterations(Lower *L, LoopSpec *s, int64_t trips) {
    int nres = s->has_cond + s->ncarry + s->nscan, first = s->has_cond;
    Val **from = NEWN(L->a, Val *, s->ncarry + 1), **res = NEWN(L->a, Val *, nres + 1);
    Tensor **like = NEWN(L->a, Tensor *, s->nscan + 1);
    Expr ***e = NEWN(L->a, Expr **, s->nscan + 1);
    int64_t made = 0;
    bool more = true;
    memcpy(from, s->init, sizeof *from * (size_t)s->ncarry);
    for (; made < trips && more; made++) {
        if (!iteration(L, s, made, from, res, &more)) return false;
        for (int i = 0; i < s->ncarry; i++) {
            Val *v = res[first + i];
            bool same = v->kind == from[i]->kind;
            if (!same || (v->kind == VT_TENSOR && v->t->dtype != from[i]->t->dtype)) return false;
            from[i] = v;
        }
        for (int i = 0; i < s->nscan; i++) {
            const Val *v = res[first + s->ncarry + i];
            if (v->kind != VT_TENSOR || v->t->rank + 1 > MAX_RANK) return false;
            if (!made) {
                like[i] = v->t;
                e[i] = NEWN(L->a, Expr *, trips * count_const(v->t) + 1);
            }
            if (!stack(L, v->t, like[i], made, e[i])) return false;
        }
    }
    for (int i = 0; i < s->ncarry; i++) s->result[i] = from[i];
    for (int i = 0; i < s->nscan; i++) {
        Expr *dim[MAX_RANK] = {e_int(L->cx, made)};
        memcpy(dim + 1, like[i]->dim, sizeof *dim * (size_t)like[i]->rank);
        s->result[s->ncarry + i] =
            val_tensor(L, t_from_uniform(L, like[i]->dtype, like[i]->rank + 1, dim, e[i]));
    }
    check(L, e_le(L->cx, e_int(L->cx, made), e_limit(L->cx)),
          "the loop reached the iteration limit");
    return true;
}

typedef struct Unrolled {
    LoopSpec *s;
    int64_t trips;
    bool done;
} Unrolled;

static void unroll(Lower *L, void *user) {
    Unrolled *u = user;
    u->done = all_iterations(L, u->s, u->trips);
}

bool loop_of_values(Lower *L, LoopSpec *s) {
    int64_t trips;
    if (!s->trips || !e_is_int(s->trips, &trips) || trips < 1 || trips > TRIPS_MAX) return false;
    if (s->cond0 && !e_is_ival(s->cond0, 1)) return false;
    if (nodes(s->body) > NODES_MAX / trips) return false;
    for (int i = 0; i < s->ncarry; i++)
        if (!val_known(s->init[i])) return false;
    for (int i = 0; i < s->nscan; i++) {
        const VType *t = s->body->result_type[s->has_cond + s->ncarry + i];
        if (t && t->kind == VT_TENSOR && t->dtype != DT_NONE && dtype_is_float(t->dtype))
            return false;
    }
    const int mark = L->seq->s.n;
    Unrolled u = {s, trips, false};
    /* Leave errors to the ordinary lowering of the loop, which may find that they are never
     * reached. */
    if (!attempt(L, unroll, &u)) forgive(L);
    if (!u.done) L->seq->s.n = mark;
    return u.done;
}
