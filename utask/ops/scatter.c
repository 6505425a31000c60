/* scatter.c: data with elements replaced at computed positions. It is an expression if it is known
 * which update may hit a position, else a hand-written body. */
#include "utask/ops/size.h"

#define KNOWN 16                      /* the most elements of data and updates that are tracked */
#define AFFINE_MAX ((int64_t)1 << 20) /* the most elements of a constant that are examined */

/* The attribute `reduction` as the number that scatter.h uses. */
static int reduction(Lower *L) {
    static const char *const names[] = {"none", "add", "mul", "max", "min"};
    int how = attr_choice(L, "reduction", COUNT(names), names);
    DType t = in(L, 0)->dtype;
    if (how && dtype_small(t))
        fail(L, "reduction '%s' of %s, which is only moved", names[how], dtype_name(t));
    return how;
}

/* The new value of an element that an update hits. */
static Expr *reduced(Lower *L, Expr *old, Expr *update) {
    static const uint8_t number[] = {0, E_ADD, E_MUL, E_MAX, E_MIN};
    static const uint8_t truth[] = {0, E_OR, E_AND, E_OR, E_AND};
    int how = reduction(L);
    return how ? e_bin(L->cx, old->dtype == DT_BOOL ? truth[how] : number[how], old, update)
               : update;
}

/* For at most one update per position: there is no order to keep, so the result is an expression,
 * which can fuse. `at` has the index for each axis of data that is indexed, else NULL. */
static void scatter_one(Lower *L, Tensor *data, Expr **at, Tensor *t, Expr *update) {
    Cx *c = L->cx;
    Expr *hit = e_bool(c, true), *idx[MAX_RANK];
    for (int i = 0; i < data->rank; i++) {
        idx[i] = ax(L, t, i);
        if (at[i])
            hit = e_and(c, hit,
                        e_eq(c, idx[i],
                             index_checked(L, at[i], data->dim[i], true, "axis %d of %s", i,
                                           in_text(L, 0))));
    }
    Expr *old = ld(L, data, idx);
    out(L, 0, te_end(L, t, e_sel(c, hit, reduced(L, old, update), old)));
}

/* ---- tracked elements ------------------------------------------------------------------------ */
static bool is_known(Tensor *t) {
    return t->elem || (t->kind == TK_CONST && t->data->count <= KNOWN);
}

static Expr *known_at(Lower *L, Tensor *t, int64_t i) {
    return t->elem ? t->elem[i] : e_elem(L->cx, t->data, i);
}

/* Element i of the indices as a position on an axis of `extent` elements. */
static Expr *known_index(Lower *L, Tensor *indices, int64_t i, int64_t extent) {
    Cx *c = L->cx;
    Expr *v = e_cast(c, DT_I64, known_at(L, indices, i)), *zero = e_int(c, 0),
         *n = e_int(c, extent);
    check(L, e_and(c, e_le(c, e_int(c, -extent), v), e_lt(c, v, n)), "an index is out of range");
    return e_sel(c, e_lt(c, v, zero), e_add(c, v, n), v);
}

/* Of few, tracked elements, so that those of the result are tracked too; else returns false.
 * axis ≥ 0: ScatterElements along it; else ScatterND with tuples of k numbers. */
static bool scatter_known(Lower *L, Tensor *const *t, int axis, int k) {
    Cx *c = L->cx;
    int r = t[0]->rank;
    int64_t n = count_const(t[0]), m = count_const(t[2]), dim[MAX_RANK], step[MAX_RANK];
    if (n < 1 || m < 0 || count_const(t[1]) < 0 || n > KNOWN || m > KNOWN || n * m > KNOWN * 4)
        return false;
    for (int i = 0; i < 3; i++)
        if (!is_known(t[i])) return false;
    Expr **e = NEWN(L->a, Expr *, n);
    for (int64_t i = 0; i < n; i++) e[i] = known_at(L, t[0], i);
    for (int i = r - 1; i >= 0; i--) {
        e_is_int(t[0]->dim[i], &dim[i]);
        step[i] = i == r - 1 ? 1 : step[i + 1] * dim[i + 1];
    }
    int64_t slice = axis >= 0 || k == 0 ? n : step[k - 1]; /* ScatterND: elements of an update */
    for (int64_t u = 0; u < m; u++) {
        int64_t rest = u, at[MAX_RANK] = {0}, d;
        for (int i = r - 1; axis >= 0 && i >= 0; i--) {
            e_is_int(t[1]->dim[i], &d);
            at[i] = rest % d;
            rest /= d;
        }
        for (int64_t i = 0; i < n; i++) {
            Expr *hit = e_bool(c, axis >= 0 || i % slice == u % slice);
            for (int a = 0; a < r; a++) {
                int64_t here = i / step[a] % dim[a];
                if (axis >= 0 && a != axis && here != at[a]) hit = e_bool(c, false);
                if (axis >= 0 ? a != axis : a >= k) continue;
                int64_t from = axis >= 0 ? u : u / slice * k + a;
                Expr *v = known_index(L, t[1], from, dim[a]);
                hit = e_and(c, hit, e_eq(c, v, e_int(c, here)));
            }
            e[i] = e_sel(c, hit, reduced(L, e[i], known_at(L, t[2], u)), e[i]);
        }
    }
    for (int64_t i = 0; i < n; i++)
        if (!is_simple(e[i])) e[i] = let(L, "e", e[i], INT64_MIN);
    out(L, 0, t_from_uniform(L, t[0]->dtype, r, t[0]->dim, e));
    return true;
}

void lower_ScatterElements(Lower *L) {
    Cx *c = L->cx;
    Tensor *t[] = {in(L, 0), in(L, 1), in(L, 2)};
    int rank = t[0]->rank;
    if (t[1]->rank != rank || t[2]->rank != rank)
        fail(L, "data, indices and updates have ranks %d, %d and %d", rank, t[1]->rank, t[2]->rank);
    if (rank == 0) fail(L, "data is a scalar");
    int axis = norm_axis(L, attr_i(L, "axis", 0), rank);
    for (int i = 0; i < rank; i++) {
        check_eq(L, t[1]->dim[i], t[2]->dim[i],
                 "indices and updates have different sizes on axis %d", i);
        if (i != axis)
            check_le(L, t[1]->dim[i], t[0]->dim[i], "indices are larger than data on axis %d", i);
    }
    bool one = e_is_ival(t[1]->dim[axis], 1);
    for (int i = 0; i < rank; i++) one = one && (i == axis || t[1]->dim[i] == t[0]->dim[i]);
    if (one) {
        Tensor *r = te_begin(L, t[0]->dtype, rank, t[0]->dim);
        Expr *at[MAX_RANK] = {NULL}, *idx[MAX_RANK];
        for (int i = 0; i < rank; i++) idx[i] = i == axis ? e_int(c, 0) : ax(L, r, i);
        at[axis] = ld(L, t[1], idx);
        scatter_one(L, t[0], at, r, ld(L, t[2], idx));
        return;
    }
    if (scatter_known(L, t, axis, 0)) return;
    Expr *param[] = {e_int(c, axis), e_int(c, reduction(L))};
    out(L, 0,
        ext_like(L, "scatter_elements", 3, t, 2, param, t[0],
                 arena_printf(L->a, "index \1 is outside [\2, \3), axis \4 of %s", in_text(L, 0))));
}

/* The value of a load from a constant whose integers are affine in the varying indices. */
static Expr *affine_load(void *user, Expr *e) {
    Cx *c = user;
    const Const *k = e->t->kind == TK_CONST && e->dtype == DT_I64 && !e->kind ? e->t->data : NULL;
    int64_t at[MAX_RANK], step[MAX_RANK], coef[MAX_RANK] = {0}, s = 1, base = 0, all = 1;
    if (!k || !k->count) return NULL;
    for (int d = k->rank - 1; d >= 0; s *= k->dim[d--]) {
        step[d] = s;
        bool fixed = e_is_int(e->a[d], &at[d]);
        if (fixed && (at[d] < 0 || at[d] >= k->dim[d])) return NULL;
        base += fixed ? at[d] * s : 0;
        at[d] = fixed ? -1 : 0;
        if (!fixed) all *= k->dim[d];
    }
    if (all > AFFINE_MAX) return NULL;
    int64_t first = elem_get_i(DT_I64, k->data, base);
    for (int d = 0; d < k->rank; d++)
        if (at[d] == 0 && k->dim[d] > 1 &&
            __builtin_sub_overflow(elem_get_i(DT_I64, k->data, base + step[d]), first, &coef[d]))
            return NULL;
    for (int64_t i = 0; i < all; i++) {
        int64_t rest = i, from = base, value = first, more;
        for (int d = k->rank - 1; d >= 0; d--) {
            if (at[d] < 0) continue;
            from += rest % k->dim[d] * step[d];
            if (__builtin_mul_overflow(rest % k->dim[d], coef[d], &more) ||
                __builtin_add_overflow(value, more, &value))
                return NULL;
            rest /= k->dim[d];
        }
        if (elem_get_i(DT_I64, k->data, from) != value) return NULL;
    }
    Expr *r = e_int(c, first);
    for (int d = 0; d < k->rank; d++)
        if (at[d] == 0) r = e_add(c, r, e_muli(c, e->a[d], coef[d]));
    return r;
}

/* ScatterND where each of the `last` index axes before the tuple runs along a whole dimension of
 * data of its own. A position is then hit at most once, by a known tuple. k: numbers in a tuple. */
static bool scatter_along(Lower *L, Tensor *const *t, int last, int k) {
    Cx *c = L->cx;
    Axis *u[MAX_RANK];
    Expr *idx[MAX_RANK], *at[MAX_RANK] = {NULL}, *to[MAX_RANK];
    int dim[MAX_RANK];
    for (int j = 0; j < last; j++) idx[j] = e_axis(c, u[j] = axis_new(c, t[1]->dim[j]));
    for (int i = 0; i < k; i++) {
        idx[last] = e_int(c, i);
        at[i] = e_subst(c, tensor_at(c, t[1], idx), 0, NULL, NULL, affine_load, c);
    }
    for (int j = 0; j < last; j++) {
        dim[j] = -1;
        if (e_is_ival(t[1]->dim[j], 1)) continue;
        for (int i = 0; i < k && dim[j] < 0; i++)
            if (at[i] == idx[j] && t[1]->dim[j] == t[0]->dim[i]) dim[j] = i;
        if (dim[j] < 0) return false;
        at[dim[j]] = NULL;
    }
    Tensor *x = te_begin(L, t[0]->dtype, t[0]->rank, t[0]->dim);
    for (int j = 0; j < last; j++) to[j] = idx[j] = dim[j] < 0 ? e_int(c, 0) : ax(L, x, dim[j]);
    for (int i = 0; i < k; i++)
        if (at[i]) at[i] = e_subst(c, at[i], last, u, to, NULL, NULL);
    for (int i = k; i < t[0]->rank; i++) idx[last + i - k] = ax(L, x, i);
    scatter_one(L, t[0], at, x, ld(L, t[2], idx));
    return true;
}

void lower_ScatterND(Lower *L) {
    Tensor *t[] = {in(L, 0), in(L, 1), in(L, 2)};
    int r = t[0]->rank, q = t[1]->rank;
    if (q == 0) fail(L, "indices is a scalar");
    int k = q - 1 + r - t[2]->rank;
    if (k < 0 || k > r)
        fail(L, "data, indices and updates have ranks %d, %d and %d", r, q, t[2]->rank);
    check_eq(L, t[1]->dim[q - 1], e_int(L->cx, k),
             "the last axis of indices does not fit the rank of updates");
    for (int i = 0; i < t[2]->rank; i++)
        check_eq(L, t[2]->dim[i], i < q - 1 ? t[1]->dim[i] : t[0]->dim[i - (q - 1) + k],
                 "updates has a wrong size on axis %d", i);
    if (scatter_along(L, t, q - 1, k) || scatter_known(L, t, -1, k)) return;
    Expr *param[] = {e_int(L->cx, reduction(L))};
    out(L, 0,
        ext_like(L, "scatter_nd", 3, t, 1, param, t[0],
                 arena_printf(L->a, "index \1 is outside [\2, \3), axis \4 of %s", in_text(L, 0))));
}
