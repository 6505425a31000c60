/* pool.c: AveragePool, MaxPool, LpPool, their global forms, MaxRoiPool.
 *
 * A pool is a reduction over the window's axes. A select excludes positions outside of the input,
 * only on axes whose windows can reach outside.
 */
#include "utask/ops/pool.h"
#include "utask/ops/nn.h"
#include "utask/ops/window.h"

#include <math.h>

typedef struct PoolAttrs {
    Tensor *x;
    Window win;
    Expr *dim[MAX_RANK]; /* of the result */
} PoolAttrs;

/* The window of one result element. */
typedef struct PoolVisit {
    int naxis;
    Axis *axis[MAX_RANK];
    Expr *idx[MAX_RANK]; /* element of x */
    Expr *inside;        /* bool: idx is inside x */
} PoolVisit;

static void pool_read(Lower *L, PoolAttrs *p, Tensor *x) {
    p->x = x;
    int have, n = x->rank - 2;
    Expr *k[MAX_RANK];
    int64_t size[MAX_RANK];
    if (n < 1) fail(L, "the input has rank %d; at least 3 is needed", x->rank);
    attr_ints(L, "kernel_shape", &have);
    if (have < 0) fail(L, "attribute kernel_shape is missing");
    window_ints(L, "kernel_shape", n, 1, 1, size);
    int64_t all = 1; /* padding creates windows without any input */
    for (int i = 0; i < n; i++)
        if (!mul_size(all, size[i], &all) || all > INT32_MAX)
            fail(L, "the window has more than 2^31 elements");
    for (int i = 0; i < n; i++) k[i] = e_int(L->cx, size[i]);
    window_read(L, &p->win, n, x->dim + 2, k);
    window_place(L, &p->win, attr_i(L, "ceil_mode", 0) != 0);
    for (int i = 0; i < n; i++) /* else a window would hold no element */
        check(L,
              e_and(L->cx, e_lt(L->cx, p->win.lo[i], p->win.span[i]),
                    e_lt(L->cx, p->win.hi[i], p->win.span[i])),
              "the padding of spatial axis %d is not smaller than the window (%s and %s, %s)", i,
              said(L, p->win.lo[i]), said(L, p->win.hi[i]), said(L, p->win.span[i]));
    p->dim[0] = x->dim[0];
    p->dim[1] = x->dim[1];
    for (int i = 0; i < n; i++) p->dim[i + 2] = p->win.out[i];
}

static void check_spatial(Lower *L, const Tensor *x) {
    if (x->rank < 3) fail(L, "the input has rank %d; at least 3 is needed", x->rank);
}

/* Input position of the first element of window `at` on spatial axis i. */
static Expr *first(Lower *L, const PoolAttrs *p, Expr *at, int i) {
    return e_sub(L->cx, e_muli(L->cx, at, p->win.stride[i]), p->win.lo[i]);
}

/* Begins a tensor of type `type`, with an element for each window: *v. */
static Tensor *pool_begin(Lower *L, const PoolAttrs *p, DType type, PoolVisit *v) {
    Cx *c = L->cx;
    Tensor *t = te_begin(L, type, p->x->rank, p->dim);
    v->naxis = 0;
    v->inside = e_bool(c, true);
    v->idx[0] = ax(L, t, 0);
    v->idx[1] = ax(L, t, 1);
    for (int i = 0; i < p->win.n; i++) {
        Expr *at = first(L, p, ax(L, t, i + 2), i);
        Expr *k = sum_axis(L, p->win.k[i], v->axis, &v->naxis);
        at = e_add(c, at, e_muli(c, k, p->win.dil[i]));
        v->idx[i + 2] = at;
        if (window_overhangs(L, &p->win, i))
            v->inside = e_and(c, v->inside, win_inside(L, at, p->win.in[i]));
    }
    return t;
}

static Expr *visit_reduce(Lower *L, ReduceKind k, PoolVisit *v, Expr *body) {
    return v->naxis ? e_reduce(L->cx, k, v->naxis, v->axis, body) : body;
}

/* ---- average --------------------------------------------------------------------------------- */

/* The number of positions of result element t's window on axis i that are inside the input, or
 * inside the padded input, in type `type`: from a table where it differs. */
static Expr *positions(Lower *L, const PoolAttrs *p, Tensor *t, int i, bool padded, DType type) {
    Cx *c = L->cx;
    const Window *w = &p->win;
    Expr *end = w->in[i], *zero = e_int(c, 0), *skipped = zero, *own = ax(L, t, i + 2);
    if (!window_overhangs(L, w, i)) return e_cast(c, type, w->k[i]);
    Tensor *table = te_begin(L, type, 1, &w->out[i]);
    Expr *at = first(L, p, ax(L, table, 0), i);
    if (padded)
        end = e_add(c, end, w->hi[i]);
    else
        skipped = win_cdiv(L, e_max(c, e_sub(c, zero, at), zero), w->dil[i]);
    Expr *upto = e_min(c, w->k[i], win_cdiv(L, e_sub(c, end, at), w->dil[i]));
    Expr *n = e_cast(c, type, e_max(c, e_sub(c, upto, skipped), zero));
    return ld(L, table_end(L, table, n), &own);
}

Tensor *t_average_pool(Lower *L, Tensor *x) {
    Cx *c = L->cx;
    PoolAttrs p;
    PoolVisit v;
    pool_read(L, &p, x);
    bool padded = attr_i(L, "count_include_pad", 0) != 0;
    DType acc = wide_float(p.x->dtype);
    Tensor *t = pool_begin(L, &p, p.x->dtype, &v);
    Expr *e = e_sel(c, v.inside, e_cast(c, acc, ld(L, p.x, v.idx)), e_num(c, acc, 0));
    Expr *sum = visit_reduce(L, R_SUM, &v, e), *n = e_num(c, acc, 1);
    for (int i = 0; i < p.win.n; i++) n = e_mul(c, n, positions(L, &p, t, i, padded, acc));
    return te_end(L, t, e_cast(c, p.x->dtype, e_div(c, sum, n)));
}

void lower_AveragePool(Lower *L) { out(L, 0, t_average_pool(L, in(L, 0))); }

/* ---- maximum --------------------------------------------------------------------------------- */

/* The row-major index into x of the first window element equal to the maximum m. With `columns` the
 * spatial part is column-major. */
static Tensor *max_index(Lower *L, const PoolAttrs *p, Tensor *m, bool columns) {
    Cx *c = L->cx;
    const Window *w = &p->win;
    PoolVisit v;
    Expr *out_idx[MAX_RANK], *spatial[MAX_RANK];
    Tensor *t = pool_begin(L, p, DT_I64, &v);
    all_axes(L, t, out_idx);
    Expr *x = ld(L, p->x, v.idx);
    Expr *hit = e_eq(c, x, ld(L, m, out_idx));
    if (dtype_is_float(p->x->dtype)) hit = e_or(c, hit, e_un(c, E_ISNAN, x));
    Expr *at = flat_index(L, w->n, p->x->dim + 2, v.idx + 2);
    /* window order is row-major order, so the first hit has the smallest index */
    Expr *never = e_int(c, INT64_MAX);
    at = e_sel(c, v.inside, e_sel(c, hit, at, never), never);
    at = visit_reduce(L, R_MIN, &v, at);
    Expr *none = e_eq(c, at, never); /* dilation skipped the whole input */
    Expr *plane = e_int(c, 1), *base = e_add(c, e_mul(c, v.idx[0], p->x->dim[1]), v.idx[1]);
    for (int i = 0; i < w->n; i++) plane = e_mul(c, plane, w->in[i]);
    if (columns) {
        unflatten(L, w->n, p->x->dim + 2, at, spatial);
        Expr *step = e_int(c, 1);
        at = e_int(c, 0);
        for (int i = 0; i < w->n; i++) {
            at = e_add(c, at, e_mul(c, spatial[i], step));
            step = e_mul(c, step, w->in[i]);
        }
    }
    at = e_add(c, e_mul(c, base, plane), at);
    return te_end(L, t, e_sel(c, none, e_int(c, -1), at));
}

/* The maximum of each window of p->x. */
static Tensor *maxima(Lower *L, const PoolAttrs *p) {
    PoolVisit v;
    Tensor *t = pool_begin(L, p, p->x->dtype, &v);
    Expr *e = e_sel(L->cx, v.inside, ld(L, p->x, v.idx), e_identity(L->cx, R_MAX, p->x->dtype));
    return te_end(L, t, visit_reduce(L, R_MAX, &v, e));
}

void lower_MaxPool(Lower *L) {
    PoolAttrs p;
    pool_read(L, &p, in(L, 0));
    Tensor *t = maxima(L, &p);
    out(L, 0, t);
    if (wants_out(L, 1)) out(L, 1, max_index(L, &p, t, attr_i(L, "storage_order", 0) == 1));
}

/* ---- p-norm ---------------------------------------------------------------------------------- */

static int64_t norm_order(Lower *L) {
    int64_t p = attr_i(L, "p", 2);
    if (p < 1) fail(L, "attribute p is %lld", (long long)p);
    return p;
}

static Expr *power(Lower *L, Expr *x, int64_t p) {
    Cx *c = L->cx;
    if (p == 2) return e_mul(c, x, x);
    x = e_un(c, E_ABS, x);
    return p == 1 ? x : e_bin(c, E_POW, x, e_num(c, x->dtype, (double)p));
}

static Expr *root(Lower *L, Expr *x, int64_t p) {
    if (p == 1) return x;
    if (p == 2) return e_un(L->cx, E_SQRT, x);
    return e_bin(L->cx, E_POW, x, e_num(L->cx, x->dtype, 1.0 / (double)p));
}

void lower_LpPool(Lower *L) {
    Cx *c = L->cx;
    PoolAttrs p;
    PoolVisit v;
    pool_read(L, &p, in(L, 0));
    int64_t order = norm_order(L);
    DType acc = wide_float(p.x->dtype);
    Tensor *t = pool_begin(L, &p, p.x->dtype, &v);
    Expr *e = power(L, e_cast(c, acc, ld(L, p.x, v.idx)), order);
    e = visit_reduce(L, R_SUM, &v, e_sel(c, v.inside, e, e_num(c, acc, 0)));
    out(L, 0, te_end(L, t, e_cast(c, p.x->dtype, root(L, e, order))));
}

/* ---- global ---------------------------------------------------------------------------------- */

/* The p-norm of each channel, or for p = 0 the mean. */
static Tensor *global_pool(Lower *L, Tensor *x, int64_t p) {
    Cx *c = L->cx;
    Expr *dim[MAX_RANK], *idx[MAX_RANK], *n = e_int(c, 1);
    Axis *axis[MAX_RANK];
    int naxis = 0;
    check_spatial(L, x);
    for (int i = 0; i < x->rank; i++) dim[i] = i < 2 ? x->dim[i] : e_int(c, 1);
    Tensor *t = te_begin(L, x->dtype, x->rank, dim);
    for (int i = 0; i < x->rank; i++) {
        idx[i] = ax(L, t, i);
        if (i < 2) continue;
        n = e_mul(c, n, x->dim[i]);
        axis[naxis] = axis_new(c, x->dim[i]);
        idx[i] = e_axis(c, axis[naxis++]);
    }
    DType acc = wide_float(x->dtype);
    Expr *e = e_cast(c, acc, ld(L, x, idx));
    e = e_reduce(c, R_SUM, naxis, axis, p ? power(L, e, p) : e);
    e = p ? root(L, e, p) : e_div(c, e, e_cast(c, acc, n));
    return te_end(L, t, e_cast(c, x->dtype, e));
}

void lower_GlobalAveragePool(Lower *L) { out(L, 0, global_pool(L, in(L, 0), 0)); }
void lower_GlobalLpPool(Lower *L) { out(L, 0, global_pool(L, in(L, 0), norm_order(L))); }

void lower_GlobalMaxPool(Lower *L) {
    Tensor *x = in(L, 0);
    check_spatial(L, x);
    out(L, 0, t_reduce(L, R_MAX, x, axes_from(2, x->rank), true));
}

/* The tensor has its channels last. */
void lower_NhwcMaxPool(Lower *L) {
    PoolAttrs p;
    pool_read(L, &p, t_channels_first(L, in(L, 0)));
    out(L, 0, t_channels_last(L, maxima(L, &p)));
}

/* ---- regions of interest --------------------------------------------------------------------- */

/* On one axis, bin b covers start + [floor(b size), ceil((b + 1) size)), clipped to the image. */
static void roi_bin(Lower *L, Expr *start, Expr *size, Expr *b, Expr *extent, Expr **from,
                    Expr **to) {
    Cx *c = L->cx;
    Expr *lo = e_mul(c, e_cast(c, DT_F32, b), size);
    Expr *hi = e_mul(c, e_cast(c, DT_F32, e_addi(c, b, 1)), size), *zero = e_int(c, 0);
    lo = e_add(c, start, e_cast(c, DT_I64, e_un(c, E_FLOOR, lo)));
    hi = e_add(c, start, e_cast(c, DT_I64, e_un(c, E_CEIL, hi)));
    *from = e_min(c, e_max(c, lo, zero), extent);
    *to = e_min(c, e_max(c, hi, zero), extent);
}

/* Rounds half away from zero, as C's round does. */
static Expr *round_away(Lower *L, Expr *x) {
    Cx *c = L->cx;
    Expr *half = e_num(c, DT_F32, 0.5);
    Expr *r = e_un(c, E_FLOOR, e_add(c, e_un(c, E_ABS, x), half));
    return e_cast(c, DT_I64, e_sel(c, e_lt(c, x, e_num(c, DT_F32, 0)), e_un(c, E_NEG, r), r));
}

void lower_MaxRoiPool(Lower *L) {
    Cx *c = L->cx;
    Tensor *x = in(L, 0), *rois = in(L, 1);
    int64_t pooled[2];
    Expr *from[2], *to[2];
    Axis *axis[2];
    if (x->rank != 4 || rois->rank != 2)
        fail(L, "the image has rank %d (4 expected), the regions %d (2 expected)", x->rank,
             rois->rank);
    if (!attr_has(L, "pooled_shape")) fail(L, "attribute pooled_shape is missing");
    window_ints(L, "pooled_shape", 2, 1, 1, pooled);
    check_eq(L, rois->dim[1], e_int(c, 5), "a region does not have 5 values");
    Expr *scale = e_num(c, DT_F32, attr_f(L, "spatial_scale", 1));
    Expr *dim[4] = {rois->dim[0], x->dim[1], e_int(c, pooled[0]), e_int(c, pooled[1])};
    Tensor *t = te_begin(L, x->dtype, 4, dim);
    Expr *at[2] = {ax(L, t, 0), e_int(c, 0)}, *idx[4] = {NULL, ax(L, t, 1)};
    idx[0] = index_checked(L, e_cast(c, DT_I64, ld(L, rois, at)), x->dim[0], false,
                           "a region's image: axis 0 of %s", in_text(L, 0));
    Expr *inside = e_bool(c, true), *some = e_bool(c, true);
    for (int i = 0; i < 2; i++) { /* columns of a region: batch, x1, y1, x2, y2 */
        Expr *edge[2];
        for (int j = 0; j < 2; j++) {
            at[1] = e_int(c, 2 - i + 2 * j);
            edge[j] = round_away(L, e_mul(c, e_cast(c, DT_F32, ld(L, rois, at)), scale));
        }
        Expr *len = e_max(c, e_addi(c, e_sub(c, edge[1], edge[0]), 1), e_int(c, 1));
        Expr *size = e_div(c, e_cast(c, DT_F32, len), e_num(c, DT_F32, (double)pooled[i]));
        roi_bin(L, edge[0], size, ax(L, t, i + 2), x->dim[i + 2], &from[i], &to[i]);
        axis[i] = axis_new(c, x->dim[i + 2]);
        idx[i + 2] = e_axis(c, axis[i]);
        inside = e_and(c, inside, e_le(c, from[i], idx[i + 2]));
        inside = e_and(c, inside, e_lt(c, idx[i + 2], to[i]));
        some = e_and(c, some, e_lt(c, from[i], to[i]));
    }
    Expr *e = e_sel(c, inside, ld(L, x, idx), e_identity(c, R_MAX, x->dtype));
    e = e_reduce(c, R_MAX, 2, axis, e);
    out(L, 0, te_end(L, t, e_sel(c, some, e, e_num(c, x->dtype, 0)))); /* an empty bin gives 0 */
}
