/* lower_build.c: building blocks of lowerings (lower.h): tensor expressions and whole-tensor
 * helpers.
 */
#include "utask/lower_internal.h"

/* ---- building -------------------------------------------------------------------------------- */
/* Element values are tracked through tensors of at most this many elements. */
#define ELEM_MAX 64
#define ELEM_MAX_FLOAT 4
#define ELEM_TREE 200 /* nodes of an element's expression, counted as a tree */

void op_append(Lower *L, Tensor *t) { lower_append(L, stmt_op(L->cx, t, t->path)); }

int64_t count_const(Tensor *t) {
    int64_t n = 1, v;
    if (t->rank < 0) return -1;
    for (int i = 0; i < t->rank; i++)
        if (!e_is_int(t->dim[i], &v) || !mul_size(n, v, &n)) return -1;
    return n;
}

Expr *count(Lower *L, Tensor *t) { return tensor_count(L->cx, t); }

/* Dimensions as a tensor has them: pure, and none that is known to be negative. */
static void settle_dims(Lower *L, int rank, Expr *const *dim, Expr **d) {
    if (rank > MAX_RANK)
        unsupported(L, "a tensor of rank %d; the highest supported is %d", rank, MAX_RANK);
    for (int i = 0; i < rank; i++) {
        int64_t v;
        d[i] = dim[i];
        if (e_is_int(d[i], &v) && v < 0) fail(L, "a dimension is negative (%lld)", (long long)v);
        if (d[i]->op == E_GUARD || d[i]->op == E_SELECT || !d[i]->pure) d[i] = let(L, "d", d[i], 0);
    }
}

Tensor *te_begin(Lower *L, DType t, int rank, Expr *const *dim) {
    Expr *d[MAX_RANK] = {0};
    settle_dims(L, rank, dim, d);
    size_check(L, t, rank, d);
    Tensor *x = tensor_new(L->cx, TK_TE, t, rank, d);
    x->path = L->node ? L->node->path : "";
    for (int i = 0; i < rank; i++) x->axis[i] = axis_new(L->cx, x->dim[i]);
    return x;
}

Expr *ax(Lower *L, Tensor *t, int i) { return e_axis(L->cx, t->axis[i]); }

void all_axes(Lower *L, Tensor *t, Expr **idx) {
    for (int i = 0; i < t->rank; i++) idx[i] = ax(L, t, i);
}

Tensor *te_indexed(Lower *L, DType t, int rank, Expr *const *dim, Expr **idx) {
    Tensor *x = te_begin(L, t, rank, dim);
    all_axes(L, x, idx);
    return x;
}

Tensor *te_like(Lower *L, DType t, Tensor *x, Expr **elem) {
    Expr *idx[MAX_RANK];
    Tensor *y = te_indexed(L, t, x->rank, x->dim, idx);
    *elem = ld(L, x, idx);
    return y;
}

Tensor *const_tensor(Lower *L, const Const *k) {
    Expr *dim[MAX_RANK];
    for (int i = 0; i < k->rank; i++) dim[i] = e_int(L->cx, k->dim[i]);
    Tensor *t = tensor_new(L->cx, TK_CONST, k->dtype, k->rank, dim);
    t->data = k;
    t->seq = L->p->top;
    return t;
}

/* A constant from elements that are all CONST expressions. */
static Tensor *const_of_elems(Lower *L, Tensor *t, int64_t n) {
    int64_t dim[MAX_RANK];
    for (int i = 0; i < t->rank; i++) e_is_int(t->dim[i], &dim[i]);
    void *data = arena_alloc(L->a, (size_t)(n ? n : 1) * dtype_size(t->dtype));
    for (int64_t i = 0; i < n; i++) e_store(t->elem[i], data, i);
    Tensor *c = t_const(L, t->dtype, t->rank, dim, data);
    c->path = t->path;
    return c;
}

/* n minus the number of nodes of e as a tree, but at least 0. */
static int tree_left(const Expr *e, int n) {
    n--;
    for (int i = 0; i < e->n && n > 0; i++) n = tree_left(e->a[i], n);
    return n < 0 ? 0 : n;
}

/* Fills t->elem when every element is a pure uniform value; returns whether all are constants. */
static bool find_elems(Lower *L, Tensor *t, int64_t n) {
    Cx *c = L->cx;
    Expr **el = NEWN(L->a, Expr *, n ? n : 1);
    bool all_const = true;
    for (int64_t k = 0; k < n; k++) {
        Expr *idx[MAX_RANK];
        unflatten(L, t->rank, t->dim, e_int(c, k), idx);
        el[k] = tensor_at(c, t, idx);
        if (!el[k]->pure || (el[k]->flags & EF_GUARD)) return false;
        all_const &= el[k]->op == E_CONST;
    }
    /* An element that each step uses twice doubles in size each time, so large ones are bound. */
    for (int64_t k = 0; k < n; k++)
        if (!tree_left(el[k], ELEM_TREE)) el[k] = let(L, "u", el[k], INT64_MIN);
    t->elem = el;
    return all_const;
}

Tensor *te_end(Lower *L, Tensor *t, Expr *body) {
    ASSERT((DType)body->dtype == t->dtype);
    t->body = body;
    t->seq = L->seq;
    int64_t n = count_const(t);
    const Sources s = tensor_sources(L->cx, t);
    bool is_float = dtype_is_float(t->dtype);
    if (n >= 0 && n <= (is_float ? ELEM_MAX_FLOAT : ELEM_MAX) && s.known && s.elements <= 4096 &&
        find_elems(L, t, n))
        return const_of_elems(L, t, n);
    /* What opens codes may be a product's factor, whose kernel reads the codes (pass_constants). */
    const Const *k = s.codes && dtype_size(t->dtype) > 1 ? NULL : tensor_fold(L->cx, t, &s);
    if (k) {
        Tensor *r = const_tensor(L, k);
        r->path = t->path;
        r->folded = body;
        memcpy(r->axis, t->axis, sizeof r->axis);
        return r;
    }
    op_append(L, t);
    return t;
}

Expr *ld(Lower *L, Tensor *t, Expr **idx) { return e_load(L->cx, t, idx); }

Expr *flat_index(Lower *L, int rank, Expr **dim, Expr **idx) {
    Expr *f = e_int(L->cx, 0);
    for (int i = 0; i < rank; i++) f = e_add(L->cx, e_mul(L->cx, f, dim[i]), idx[i]);
    return f;
}

void unflatten(Lower *L, int rank, Expr **dim, Expr *flat, Expr **idx) {
    Cx *c = L->cx;
    for (int i = rank - 1; i >= 0; i--) {
        idx[i] = i ? e_bin(c, E_MOD, flat, dim[i]) : flat;
        flat = e_bin(c, E_FDIV, flat, dim[i]);
    }
}

/* ---- broadcasting ---------------------------------------------------------------------------- */
int bcast_dims(Lower *L, int ra, Expr **a, int rb, Expr **b, Expr **dim) {
    Cx *c = L->cx;
    int r = ra > rb ? ra : rb;
    Expr *one = e_int(c, 1), *res[MAX_RANK];
    for (int i = 0; i < r; i++) {
        Expr *x = i - (r - ra) >= 0 ? a[i - (r - ra)] : one;
        Expr *y = i - (r - rb) >= 0 ? b[i - (r - rb)] : one;
        if (x == y || e_is_ival(y, 1))
            res[i] = x;
        else if (e_is_ival(x, 1))
            res[i] = y;
        else {
            Expr *x1 = e_eq(c, x, one), *y1 = e_eq(c, y, one);
            int64_t vx, vy;
            if (e_is_int(x, &vx) && e_is_int(y, &vy))
                fail(L, "sizes %lld and %lld do not broadcast (axis %d of the result)",
                     (long long)vx, (long long)vy, i);
            check(L, e_or(c, e_eq(c, x, y), e_or(c, x1, y1)),
                  "sizes %s and %s do not broadcast (axis %d of the result)", said(L, x),
                  said(L, y), i);
            /* A constant other than 1 wins; otherwise the one that is not 1. */
            if (e_is_int(x, &vx))
                res[i] = x;
            else if (e_is_int(y, &vy))
                res[i] = y;
            else
                res[i] = let(L, "d", e_sel(c, x1, y, x), 0);
        }
    }
    memcpy(dim, res, sizeof *res * (size_t)r);
    return r;
}

/* The index along a dimension d, which is 1 or `want`, for index i along `want`. */
static Expr *bcast_index(Lower *L, Expr *d, Expr *want, Expr *i) {
    Cx *c = L->cx;
    if (d == want) return i;
    Expr *one = e_eq(c, d, e_int(c, 1));
    int64_t v;
    if (e_is_int(one, &v)) return v ? e_int(c, 0) : i;
    return e_mul(c, i, let(L, "b", e_cast(c, DT_I64, e_not(c, one)), 0));
}

Expr *ld_bcast(Lower *L, Tensor *t, int rank, Expr **idx, Expr **dim) {
    Expr *k[MAX_RANK];
    const int more = rank - t->rank;
    ASSERT(more >= 0);
    for (int i = 0; i < t->rank; i++)
        k[i] = bcast_index(L, t->dim[i], dim[more + i], idx[more + i]);
    return ld(L, t, k);
}

Expr *index_checked(Lower *L, Expr *i, Expr *extent, bool neg, const char *fmt, ...) {
    Cx *c = L->cx;
    TEXT_OF(what, fmt);
    if (i->dtype != DT_I64) i = e_cast(c, DT_I64, i);
    Expr *zero = e_int(c, 0), *low = neg ? e_muli(c, extent, -1) : zero;
    Expr *ok = e_and(c, e_le(c, low, i), e_lt(c, i, extent));
    int64_t v;
    if (e_is_int(ok, &v) && !v && i->op == E_CONST)
        fail(L, "index %s is outside [%s, %s), %s", said(L, i), said(L, low), said(L, extent),
             what);
    Expr *j = neg ? e_sel(c, e_lt(c, i, zero), e_add(c, i, extent), i) : i;
    return guarded(L, ok, j, zero, "index %s is outside [%s, %s), %s", said(L, i), said(L, low),
                   said(L, extent), what);
}

/* ---- whole tensors --------------------------------------------------------------------------- */
Tensor *t_const(Lower *L, DType t, int rank, const int64_t *dim, const void *data) {
    Const *k = NEW(L->a, Const);
    k->dtype = t;
    k->rank = rank;
    k->count = 1;
    for (int i = 0; i < rank; i++) {
        k->dim[i] = dim[i];
        if (!mul_size(k->count, dim[i], &k->count)) fail(L, "a tensor is too large");
    }
    k->data = arena_memdup(L->a, data, (size_t)k->count * dtype_size(t));
    return const_tensor(L, k);
}

Tensor *t_list(Lower *L, DType t, int64_t n, const void *data) {
    return t_const(L, t, 1, &n, data);
}

Tensor *t_scalar(Lower *L, DType t, double v) {
    uint64_t buf = 0;
    elem_set_f(t, &buf, 0, v);
    return t_const(L, t, 0, NULL, &buf);
}

Tensor *t_zeros(Lower *L, DType t, int rank, Expr *const *dim) {
    Tensor *x = te_begin(L, t, rank, dim);
    return te_end(L, x, e_num(L->cx, t, 0));
}

/* e_sel over the elements: idx is the row-major position. */
static Expr *choose(Cx *c, Expr **elem, int64_t lo, int64_t hi, Expr *flat) {
    if (hi - lo == 1) return elem[lo];
    int64_t mid = (lo + hi) / 2;
    return e_sel(c, e_lt(c, flat, e_int(c, mid)), choose(c, elem, lo, mid, flat),
                 choose(c, elem, mid, hi, flat));
}

Tensor *t_from_uniform(Lower *L, DType t, int rank, Expr *const *dim, Expr **elem) {
    Expr *idx[MAX_RANK];
    Tensor *x = te_indexed(L, t, rank, dim, idx);
    int64_t n = count_const(x);
    bool all_const = true;
    x->elem = NEWN(L->a, Expr *, n ? n : 1);
    for (int64_t i = 0; i < n; i++) {
        ASSERT((DType)elem[i]->dtype == t);
        x->elem[i] = elem[i]->pure ? elem[i] : let(L, "u", elem[i], INT64_MIN);
        all_const &= elem[i]->op == E_CONST;
    }
    if (all_const) return const_of_elems(L, x, n);
    x->body =
        n ? choose(L->cx, x->elem, 0, n, flat_index(L, rank, x->dim, idx)) : e_num(L->cx, t, 0);
    x->seq = L->seq;
    op_append(L, x);
    return x;
}

Tensor *t_un(Lower *L, int op, Tensor *a) {
    Expr *x;
    Tensor *r = te_like(L, op == E_ISNAN ? DT_BOOL : a->dtype, a, &x);
    return te_end(L, r, e_un(L->cx, op, x));
}

Tensor *t_bin(Lower *L, int op, Tensor *a, Tensor *b) {
    Expr *idx[MAX_RANK], *dim[MAX_RANK];
    int r = bcast_dims(L, a->rank, a->dim, b->rank, b->dim, dim);
    Tensor *t = te_indexed(L, e_is_compare(op) ? DT_BOOL : a->dtype, r, dim, idx);
    Expr *x = ld_bcast(L, a, r, idx, t->dim), *y = ld_bcast(L, b, r, idx, t->dim);
    return te_end(L, t, e_bin(L->cx, op, x, y));
}

Tensor *t_where(Lower *L, Tensor *c, Tensor *a, Tensor *b) {
    Expr *idx[MAX_RANK], *dim[MAX_RANK];
    int r = bcast_dims(L, a->rank, a->dim, b->rank, b->dim, dim);
    r = bcast_dims(L, c->rank, c->dim, r, dim, dim);
    Tensor *t = te_indexed(L, a->dtype, r, dim, idx);
    Expr *k = ld_bcast(L, c, r, idx, t->dim);
    return te_end(L, t,
                  e_sel(L->cx, k, ld_bcast(L, a, r, idx, t->dim), ld_bcast(L, b, r, idx, t->dim)));
}

Tensor *t_cast(Lower *L, DType t, Tensor *a) {
    if (a->dtype == t) return a;
    Expr *x;
    Tensor *r = te_like(L, t, a, &x);
    return te_end(L, r, e_cast(L->cx, t, x));
}

Tensor *t_reduce(Lower *L, ReduceKind k, Tensor *a, uint32_t axes, bool keep) {
    Expr *dim[MAX_RANK], *idx[MAX_RANK];
    Axis *red[MAX_RANK];
    int r = 0, n = 0, o = 0;
    for (int i = 0; i < a->rank; i++) {
        if (!(axes >> i & 1))
            dim[r++] = a->dim[i];
        else if (keep)
            dim[r++] = e_int(L->cx, 1);
    }
    Tensor *t = te_begin(L, k >= R_ARGMAX ? DT_I64 : a->dtype, r, dim);
    for (int i = 0; i < a->rank; i++) {
        if (axes >> i & 1) {
            red[n] = axis_new(L->cx, a->dim[i]);
            idx[i] = e_axis(L->cx, red[n++]);
            if (keep) o++;
        } else
            idx[i] = ax(L, t, o++);
    }
    Expr *body = ld(L, a, idx);
    if (n)
        body = e_reduce(L->cx, k, n, red, body);
    else if (k >= R_ARGMAX)
        body = e_int(L->cx, 0);
    return te_end(L, t, body);
}

Tensor *t_view(Lower *L, Tensor *a, int rank, Expr *const *dim) {
    if (a->kind == TK_CONST) {
        Const *k = NEW(L->a, Const);
        *k = *a->data;
        k->rank = rank;
        bool fixed = true;
        for (int i = 0; i < rank; i++) fixed &= e_is_int(dim[i], &k->dim[i]);
        if (fixed) return const_tensor(L, k);
    }
    Tensor *t = tensor_new(L->cx, TK_VIEW, a->dtype, rank, dim);
    t->base = a->kind == TK_VIEW ? a->base : a;
    t->elem = a->elem;
    t->seq = L->seq;
    t->path = L->node ? L->node->path : "";
    return t;
}

Tensor *t_reshape(Lower *L, Tensor *a, int rank, Expr *const *dim_in) {
    Cx *c = L->cx;
    Expr *dim[MAX_RANK], *idx[MAX_RANK], *sidx[MAX_RANK];
    settle_dims(L, rank, dim_in, dim);
    bool same = rank == a->rank;
    Expr *n = e_int(c, 1);
    for (int i = 0; i < rank; i++) {
        n = e_mul(c, n, dim[i]);
        same = same && dim[i] == a->dim[i];
    }
    if (same) return a;
    check(L, e_eq(c, n, count(L, a)), "%s elements cannot take a shape of %s", said(L, count(L, a)),
          said(L, n));
    /* Splitting dims into factors and adding or removing dims of size 1 keeps indices affine;
     * anything else is a view. */
    int64_t total = count_const(a);
    bool tiny = a->elem && total >= 0;
    int i = 0, j = 0;
    Tensor *t = te_indexed(L, a->dtype, rank, dim, idx);
    while (i < a->rank) {
        if (e_is_ival(a->dim[i], 1)) {
            sidx[i++] = e_int(c, 0);
            continue;
        }
        Expr *part = e_int(c, 0), *prod = e_int(c, 1);
        while (j < rank && prod != a->dim[i]) {
            part = e_add(c, e_mul(c, part, dim[j]), idx[j]);
            prod = e_mul(c, prod, dim[j]);
            j++;
        }
        if (prod != a->dim[i]) break;
        sidx[i++] = part;
    }
    while (j < rank && e_is_ival(dim[j], 1)) j++;
    if (i < a->rank || j < rank) return t_view(L, a, rank, dim);
    t = te_end(L, t, ld(L, a, sidx));
    if (tiny) t->elem = a->elem;
    return t;
}

Tensor *t_flat(Lower *L, Tensor *a) {
    Expr *n = count(L, a);
    return t_reshape(L, a, 1, &n);
}

Tensor *t_transpose(Lower *L, Tensor *a, const int *perm) {
    Expr *dim[MAX_RANK], *idx[MAX_RANK];
    bool same = true;
    for (int i = 0; i < a->rank; i++) {
        dim[i] = a->dim[perm[i]];
        same &= perm[i] == i;
    }
    if (same) return a;
    Tensor *t = te_begin(L, a->dtype, a->rank, dim);
    for (int i = 0; i < a->rank; i++) idx[perm[i]] = ax(L, t, i);
    return te_end(L, t, ld(L, a, idx));
}

Tensor *t_expand(Lower *L, Tensor *a, int rank, Expr *const *dim) {
    Expr *idx[MAX_RANK];
    ASSERT(rank >= a->rank);
    for (int i = 0; i < a->rank; i++) {
        Expr *want = dim[rank - a->rank + i];
        check(L, e_or(L->cx, e_eq(L->cx, a->dim[i], want), e_eq(L->cx, a->dim[i], e_int(L->cx, 1))),
              "axis %d has size %s and cannot be expanded to %s", i, said(L, a->dim[i]),
              said(L, want));
    }
    Tensor *t = te_indexed(L, a->dtype, rank, dim, idx);
    return te_end(L, t, ld_bcast(L, a, rank, idx, t->dim));
}

Tensor *t_slice(Lower *L, Tensor *a, int axis, Expr *start, Expr *step, Expr *len) {
    Expr *dim[MAX_RANK], *idx[MAX_RANK];
    if (len == a->dim[axis] && e_is_ival(start, 0) && e_is_ival(step, 1)) return a;
    memcpy(dim, a->dim, sizeof dim);
    dim[axis] = len;
    Tensor *t = te_indexed(L, a->dtype, a->rank, dim, idx);
    idx[axis] = e_add(L->cx, start, e_mul(L->cx, idx[axis], step));
    return te_end(L, t, ld(L, a, idx));
}

Tensor *t_concat(Lower *L, int n, Tensor *const *x, int axis) {
    Cx *c = L->cx;
    if (n == 1) return x[0];
    Expr *dim[MAX_RANK], *idx[MAX_RANK], *end[1 + n];
    end[0] = e_int(c, 0);
    for (int i = 0; i < x[0]->rank; i++) dim[i] = x[0]->dim[i];
    for (int k = 0; k < n; k++) {
        if (x[k]->rank != x[0]->rank || x[k]->dtype != x[0]->dtype)
            fail(L, "inputs 0 and %d of a concatenation are %s of rank %d and %s of rank %d", k,
                 dtype_name(x[0]->dtype), x[0]->rank, dtype_name(x[k]->dtype), x[k]->rank);
        for (int i = 0; i < x[0]->rank; i++) {
            if (i == axis) continue;
            check(L, e_eq(c, x[k]->dim[i], dim[i]),
                  "inputs 0 and %d of a concatenation have sizes %s and %s (axis %d)", k,
                  said(L, dim[i]), said(L, x[k]->dim[i]), i);
            if (e_is_int(x[k]->dim[i], &(int64_t){0})) dim[i] = x[k]->dim[i];
        }
        end[k + 1] = e_add(c, end[k], x[k]->dim[axis]);
    }
    dim[axis] = end[n];
    Tensor *t = te_indexed(L, x[0]->dtype, x[0]->rank, dim, idx);
    Expr *at = idx[axis], *body = NULL;
    for (int k = n - 1; k >= 0; k--) {
        if (e_is_ival(x[k]->dim[axis], 0)) continue;
        idx[axis] = e_sub(c, at, end[k]);
        Expr *v = ld(L, x[k], idx);
        body = body ? e_sel(c, e_lt(c, at, end[k + 1]), v, body) : v;
    }
    return te_end(L, t, body ? body : e_num(c, t->dtype, 0));
}

Tensor *t_unsqueeze(Lower *L, Tensor *a, int axis) {
    Expr *dim[MAX_RANK + 1];
    for (int i = 0, j = 0; i <= a->rank; i++) dim[i] = i == axis ? e_int(L->cx, 1) : a->dim[j++];
    return t_reshape(L, a, a->rank + 1, dim);
}

Tensor *t_squeeze(Lower *L, Tensor *a, int axis) {
    Expr *dim[MAX_RANK];
    check(L, e_eq(L->cx, a->dim[axis], e_int(L->cx, 1)),
          "axis %d is squeezed but its size is %s, not 1", axis, said(L, a->dim[axis]));
    if (!e_is_ival(a->dim[axis], 1))
        return t_at(L, a, axis, e_int(L->cx, 0)); /* the check made it 1 */
    for (int i = 0, j = 0; i < a->rank; i++)
        if (i != axis) dim[j++] = a->dim[i];
    return t_reshape(L, a, a->rank - 1, dim);
}

Tensor *t_at(Lower *L, Tensor *a, int axis, Expr *i) {
    Expr *dim[MAX_RANK], *idx[MAX_RANK];
    for (int k = 0, j = 0; k < a->rank; k++)
        if (k != axis) dim[j++] = a->dim[k];
    Tensor *t = te_begin(L, a->dtype, a->rank - 1, dim);
    for (int k = 0, j = 0; k < a->rank; k++) idx[k] = k == axis ? i : ax(L, t, j++);
    return te_end(L, t, ld(L, a, idx));
}

Tensor *t_flip(Lower *L, Tensor *a, int axis) {
    Cx *c = L->cx;
    return t_slice(L, a, axis, e_addi(c, a->dim[axis], -1), e_int(c, -1), a->dim[axis]);
}

/* Element idx of a factor, less that of its zero point, in type w. */
static Expr *factor(Lower *L, DType w, Tensor *t, Tensor *zero, Expr **idx) {
    Expr *x = e_cast(L->cx, w, ld(L, t, idx));
    return zero ? e_sub(L->cx, x, e_cast(L->cx, w, ld_bcast(L, zero, t->rank, idx, t->dim))) : x;
}

/* The product of factors less their zero points, summed in type w. */
static Tensor *product(Lower *L, DType w, Tensor *a, Tensor *azero, Tensor *b, Tensor *bzero) {
    Cx *c = L->cx;
    if (!a->rank || !b->rank)
        fail(L, "a matrix product needs factors of rank 1 or more, not %d and %d", a->rank,
             b->rank);
    bool va = a->rank == 1, vb = b->rank == 1;
    int ra = va ? 0 : a->rank - 2, rb = vb ? 0 : b->rank - 2;
    Expr *dim[MAX_RANK], *idx[MAX_RANK], *ia[MAX_RANK], *ib[MAX_RANK];
    Expr *ka = a->dim[a->rank - 1], *kb = b->dim[vb ? 0 : b->rank - 2];
    check(L, e_eq(c, ka, kb), "the factors of a matrix product have inner sizes %s and %s",
          said(L, ka), said(L, kb));
    if (!e_is_int(ka, &(int64_t){0})) ka = kb;
    int r = bcast_dims(L, ra, a->dim, rb, b->dim, dim), n = r;
    if (!va) dim[n++] = a->dim[a->rank - 2];
    if (!vb) dim[n++] = b->dim[b->rank - 1];
    DType type = w == DT_I32 ? w : a->dtype;
    Tensor *t = te_indexed(L, type, n, dim, idx);
    Axis *k = axis_new(c, ka);
    /* Batch indices as broadcasting of the leading axes. */
    for (int i = 0; i < ra; i++)
        ia[i] = bcast_index(L, a->dim[i], t->dim[r - ra + i], idx[r - ra + i]);
    for (int i = 0; i < rb; i++)
        ib[i] = bcast_index(L, b->dim[i], t->dim[r - rb + i], idx[r - rb + i]);
    if (!va) ia[ra] = idx[r];
    ia[a->rank - 1] = e_axis(c, k);
    ib[vb ? 0 : b->rank - 2] = e_axis(c, k);
    if (!vb) ib[b->rank - 1] = idx[n - 1];
    Expr *term = e_mul(c, factor(L, w, a, azero, ia), factor(L, w, b, bzero, ib));
    return te_end(L, t, e_cast(c, type, e_reduce(c, R_SUM, 1, &k, term)));
}

Tensor *t_matmul(Lower *L, Tensor *a, Tensor *b) {
    if (a->dtype != b->dtype)
        fail(L, "the factors of a matrix product are %s and %s", dtype_name(a->dtype),
             dtype_name(b->dtype));
    /* Products of 16-bit floats are exact in float32. */
    return product(L, wide_float(a->dtype), a, NULL, b, NULL);
}

Tensor *t_matmul_bytes(Lower *L, Tensor *a, Tensor *azero, Tensor *b, Tensor *bzero) {
    return product(L, DT_I32, a, azero, b, bzero);
}

Tensor *t_softmax(Lower *L, Tensor *a, int axis, bool log) {
    DType t = a->dtype;
    if (t == DT_F16 || t == DT_BF16)
        return t_cast(L, t, t_softmax(L, t_cast(L, DT_F32, a), axis, log));
    Tensor *m = t_reduce(L, R_MAX, a, 1u << axis, true);
    Tensor *x = t_bin(L, E_SUB, a, m);
    Tensor *e = t_un(L, E_EXP, x);
    Tensor *s = t_reduce(L, R_SUM, e, 1u << axis, true);
    return log ? t_bin(L, E_SUB, x, t_un(L, E_LOG, s)) : t_bin(L, E_DIV, e, s);
}
