/* shape.c: operators that read or change shapes without moving elements. */
#include "utask/lower_internal.h"
#include "utask/ops/size.h"

static int64_t clamp_axis(int64_t v, int rank) {
    if (v < 0) v = v < -rank ? 0 : v + rank;
    return v > rank ? rank : v;
}

void lower_Shape(Lower *L) {
    Tensor *a = in(L, 0);
    int64_t start = clamp_axis(attr_i(L, "start", 0), a->rank);
    int64_t end = clamp_axis(attr_i(L, "end", a->rank), a->rank);
    int64_t n = end > start ? end - start : 0;
    Expr *dim = e_int(L->cx, n);
    out(L, 0, t_from_uniform(L, DT_I64, 1, &dim, a->dim + (n ? start : 0)));
}

void lower_Size(Lower *L) {
    Expr *n = count(L, in(L, 0));
    out(L, 0, t_from_uniform(L, DT_I64, 0, NULL, &n));
}

/* ---- Reshape --------------------------------------------------------------------------------- */

/* A factored product of sizes: k * f[0] * f[1] * … */
typedef struct Factors {
    int64_t k;
    VEC(Expr *) f;
    bool overflow; /* k is out of range, so the product cannot be factored */
} Factors;

static void factors_add(Lower *L, Factors *p, Expr *e) {
    int64_t v;
    if (e_is_int(e, &v)) {
        if (v < 0 || !mul_size(p->k, v, &p->k)) p->overflow = true;
    } else if (e->op == E_MUL) {
        factors_add(L, p, e->a[0]);
        factors_add(L, p, e->a[1]);
    } else {
        vec_push(L->a, &p->f, e);
    }
}

static Expr *factors_product(Cx *c, const Factors *p) {
    Expr *e = e_int(c, p->k);
    for (int i = 0; i < p->f.n; i++) e = e_mul(c, e, p->f.p[i]);
    return e;
}

static int64_t gcd(int64_t a, int64_t b) {
    while (b) {
        int64_t t = a % b;
        a = b;
        b = t;
    }
    return a;
}

/* Removes entries of num[] whose product is e, at best a single one; false if there are none. */
static bool remove_product(Cx *c, int *n, Expr **num, Expr *e) {
    int64_t v;
    for (int j = 0; j < *n; j++)
        if (num[j] == e) {
            num[j] = num[--*n];
            return true;
        }
    if (*n > 8 || e_is_int(e, &v)) return false;
    for (uint32_t set = 3; set < 1u << *n; set++) {
        Expr *p = e_int(c, 1);
        for (int j = 0; j < *n; j++)
            if (set >> j & 1) p = e_mul(c, p, num[j]);
        if (p != e) continue;
        for (int j = *n - 1; j >= 0; j--)
            if (set >> j & 1) num[j] = num[--*n];
        return true;
    }
    return false;
}

/* Product of num / product of den, overwriting both. Equal factors are cancelled first, so that a
 * size that is zero at run time on both sides does no harm. The caller checks exactness. */
static Expr *quotient(Lower *L, int nn, Expr **num, int nd, Expr **den) {
    Cx *c = L->cx;
    Factors a = {.k = 1}, b = {.k = 1};
    for (int i = 0; i < nd; i++)
        if (remove_product(c, &nn, num, den[i])) den[i--] = den[--nd];
    for (int j = 0; j < nn; j++)
        if (remove_product(c, &nd, den, num[j])) num[j--] = num[--nn];
    for (int i = 0; i < nd; i++) factors_add(L, &b, den[i]);
    for (int j = 0; j < nn; j++) factors_add(L, &a, num[j]);
    if (a.overflow || b.overflow) unsupported(L, "the tensor is too large");
    if (b.k == 0) fail(L, "the size for -1 cannot be inferred beside a size of 0");
    for (int i = 0; i < b.f.n; i++)
        for (int j = 0; j < a.f.n; j++)
            if (a.f.p[j] == b.f.p[i]) {
                a.f.p[j] = a.f.p[--a.f.n];
                b.f.p[i--] = b.f.p[--b.f.n];
                break;
            }
    int64_t g = gcd(a.k, b.k);
    a.k /= g;
    b.k /= g;
    return e_div(c, factors_product(c, &a), factors_product(c, &b));
}

void lower_Reshape(Lower *L) {
    Cx *c = L->cx;
    Tensor *a = in(L, 0);
    bool allowzero = attr_i(L, "allowzero", 0) != 0;
    Vec s = vec_in(L, 1, out_rank(L, 0), MAX_RANK, "shape");
    int n = s.most, infer = -1; /* sizes beyond the length of s are 1 */
    Expr *dim[MAX_RANK] = {0}, *one = e_int(c, 1), *zero = e_int(c, 0), *minus = e_int(c, -1);
    bool free_[MAX_RANK] = {false}, any = false, has_zero = false; /* free_: its sign is unknown */
    for (int i = 0; i < n; i++) {
        int64_t v;
        Expr *e = dim[i] = vec_at(L, &s, i, one);
        if (e_is_int(e, &v)) {
            if (v < -1) fail(L, "the shape has the size %lld", (long long)v);
            if (v == -1) {
                if (infer >= 0) fail(L, "the shape has more than one -1");
                infer = i;
            } else if (v == 0 && !allowzero) {
                if (i >= a->rank)
                    fail(L, "the shape copies axis %d of a tensor of rank %d", i, a->rank);
                dim[i] = a->dim[i];
            } else if (v == 0) {
                has_zero = true;
            }
        } else if (ge_const(e, 0)) {
            /* A size of another tensor. If it is 0, so is the number of elements; copying a nonzero
             * size here could only make the counts differ. */
            dim[i] = size_uni(L, "dim", e);
        } else {
            free_[i] = any = true;
        }
    }
    if (infer >= 0 && has_zero) fail(L, "the shape has both 0 and -1, and allowzero is set");
    if (any) {
        /* From data: each may be -1, 0 or a size. */
        Expr *rest = one, *nminus = zero;
        for (int i = 0; i < n; i++) {
            if (i == infer) continue;
            if (free_[i]) {
                Expr *is_minus = e_eq(c, dim[i], minus), *is_zero = e_eq(c, dim[i], zero);
                check_le(L, infer >= 0 ? zero : minus, dim[i], "the shape has a size below -1%s",
                         infer >= 0 ? " or a second -1" : "");
                if (!allowzero && i < a->rank)
                    dim[i] = e_sel(c, is_zero, a->dim[i], dim[i]);
                else if (!allowzero)
                    check(L, e_not(c, is_zero), "the shape copies axis %d of a tensor of rank %d",
                          i, a->rank);
                dim[i] = let(L, "dim", dim[i], infer >= 0 ? 0 : -1);
                if (infer < 0) {
                    nminus = e_add(c, nminus, e_cast(c, DT_I64, is_minus));
                    rest = e_mul(c, rest, e_sel(c, is_minus, one, dim[i]));
                    continue;
                }
            }
            rest = e_mul(c, rest, dim[i]);
        }
        if (infer < 0) {
            check_le(L, nminus, one, "the shape has more than one -1");
            Expr *q = let(L, "inferred", e_div(c, count(L, a), rest), 0);
            for (int i = 0; i < n; i++)
                if (free_[i]) dim[i] = let(L, "dim", e_sel(c, e_lt(c, dim[i], zero), q, dim[i]), 0);
        }
    }
    if (infer >= 0) {
        Expr *den[MAX_RANK], *num[MAX_RANK];
        int nd = 0;
        memcpy(num, a->dim, sizeof num);
        for (int i = 0; i < n; i++)
            if (i != infer) den[nd++] = dim[i];
        Expr *given = e_int(c, 1), *all = e_int(c, 1);
        for (int i = 0; i < nd; i++) given = e_mul(c, given, den[i]);
        dim[infer] = size_uni(L, "inferred", quotient(L, a->rank, num, nd, den));
        for (int i = 0; i < n; i++) all = e_mul(c, all, dim[i]);
        check(L, e_eq(c, all, count(L, a)),
              "%s elements cannot be divided by %s, the other sizes, for the -1 of the shape",
              said(L, count(L, a)), said(L, given));
    }
    out(L, 0, t_of_rank(L, t_reshape(L, a, n, dim), s.len, vec_ranks(&s), dim, NULL));
}

void lower_Flatten(Lower *L) {
    Tensor *a = in(L, 0);
    int64_t axis = attr_i(L, "axis", 1);
    if (axis < -a->rank || axis > a->rank)
        fail(L, "axis %lld is outside of the rank %d", (long long)axis, a->rank);
    if (axis < 0) axis += a->rank;
    Expr *dim[2] = {e_int(L->cx, 1), e_int(L->cx, 1)};
    for (int i = 0; i < a->rank; i++) dim[i >= axis] = e_mul(L->cx, dim[i >= axis], a->dim[i]);
    out(L, 0, t_reshape(L, a, 2, dim));
}

/* ---- Squeeze, Unsqueeze ---------------------------------------------------------------------- */

/* The axes as expressions for a tensor of this rank, checked to be distinct. given: whether entry i
 * exists. Sets *mask and returns true if all are known at compile time. */
typedef struct Axes {
    int n;
    Expr *axis[MAX_RANK], *given[MAX_RANK];
    uint32_t mask;
} Axes;

static bool axes_input(Lower *L, const Vec *v, Expr *rank, Axes *x) {
    Cx *c = L->cx;
    int64_t r;
    bool all = v->n >= 0;
    x->n = v->most;
    x->mask = 0;
    for (int j = 0; j < v->most; j++) {
        int64_t k;
        x->axis[j] = e_is_int(rank, &r) ? vec_axis(L, v, j, (int)r, &x->given[j])
                                        : vec_axis_of(L, v, j, rank, &x->given[j]);
        if (e_is_int(x->axis[j], &k) && known(x->given[j])) {
            if (x->mask >> k & 1) fail(L, "axis %lld is named twice", (long long)k);
            x->mask |= 1u << k;
        } else {
            all = false;
        }
    }
    if (all) return true;
    for (int j = 0; j < v->most; j++)
        for (int k = 0; k < j; k++)
            check(L, e_or(c, e_not(c, x->given[j]), e_not(c, e_eq(c, x->axis[j], x->axis[k]))),
                  "axis %s is named twice", said(L, x->axis[j]));
    return false;
}

/* Bool expression: p is one of the axes. */
static Expr *is_among(Cx *c, const Axes *x, int p) {
    Expr *e = e_bool(c, false);
    for (int j = 0; j < x->n; j++)
        e = e_or(c, e, e_and(c, x->given[j], e_eq(c, x->axis[j], e_int(c, p))));
    return e;
}

/* Squeeze without axes. The rank depends on sizes that are known only at run time. */
static Tensor *squeeze_all(Lower *L, Tensor *a) {
    Expr *drop[MAX_RANK], *dim[MAX_RANK], **alt[MAX_RANK + 1] = {0};
    int ones = 0, open = 0;
    for (int p = 0; p < a->rank; p++) {
        int64_t v;
        drop[p] = e_eq(L->cx, a->dim[p], e_int(L->cx, 1));
        if (!e_is_int(drop[p], &v))
            open++;
        else if (v)
            ones++;
    }
    int most = a->rank - ones, least = most - open;
    /* If no candidate axis is dropped, or all are, the sizes are those of a. */
    for (int all = 0; all < 2; all++) {
        Expr **d = alt[all ? least : most] = NEWN(L->a, Expr *, MAX_RANK);
        int n = 0;
        for (int p = 0; p < a->rank; p++)
            if (!e_is_ival(drop[p], 1) && (!all || e_is_ival(drop[p], 0))) d[n++] = a->dim[p];
    }
    if (!open) return t_reshape(L, a, most, alt[most]);
    /* A declared rank reflects the sizes that the exporter saw. */
    Expr *rank = dims_kept(L, a, drop, dim);
    return t_of_rank(L, a, rank, rank_range(least, most), dim, alt);
}

void lower_Squeeze(Lower *L) {
    Cx *c = L->cx;
    Tensor *a = in(L, 0);
    if (!has_in(L, 1)) {
        out(L, 0, squeeze_all(L, a));
        return;
    }
    int r = a->rank, want = out_rank(L, 0);
    Axes x;
    Vec v = vec_in(L, 1, want < 0 || want > r ? -1 : r - want, r, "axes");
    if (axes_input(L, &v, e_int(c, r), &x)) {
        for (int i = r - 1; i >= 0; i--)
            if (x.mask >> i & 1) a = t_squeeze(L, a, i);
        out(L, 0, a);
        return;
    }
    Expr *drop[MAX_RANK], *dim[MAX_RANK];
    for (int p = 0; p < r; p++) {
        drop[p] = is_among(c, &x, p);
        check(L, e_or(c, e_not(c, drop[p]), e_eq(c, a->dim[p], e_int(c, 1))),
              "axis %d has size %s, not 1", p, said(L, a->dim[p]));
    }
    dims_kept(L, a, drop, dim);
    uint32_t ranks = rank_range(r - v.most, r - v.least);
    out(L, 0, t_of_rank(L, a, e_sub(c, e_int(c, r), v.len), ranks, dim, NULL));
}

void lower_Unsqueeze(Lower *L) {
    Cx *c = L->cx;
    Tensor *a = in(L, 0);
    Expr *dim[MAX_RANK];
    Axes x;
    int want = out_rank(L, 0);
    Vec v = vec_in(L, 1, want < a->rank ? -1 : want - a->rank, MAX_RANK - a->rank, "axes");
    int r = a->rank + v.most;
    Expr *rank = e_addi(c, v.len, a->rank);
    if (axes_input(L, &v, rank, &x)) {
        for (int i = 0; i < r; i++)
            if (x.mask >> i & 1) a = t_unsqueeze(L, a, i);
        out(L, 0, a);
        return;
    }
    /* Axis p of the result is new, or axis p - (new before p) of the input. */
    Expr *before = e_int(c, 0), *one = e_int(c, 1);
    for (int p = 0; p < MAX_RANK; p++) {
        dim[p] = one;
        if (p >= r) continue;
        Expr *fresh = is_among(c, &x, p);
        for (int j = p - v.most < 0 ? 0 : p - v.most; j <= p && j < a->rank; j++)
            dim[p] = e_sel(c, e_eq(c, before, e_int(c, p - j)), a->dim[j], dim[p]);
        dim[p] = size_uni(L, "dim", e_sel(c, fresh, one, dim[p]));
        before = e_add(c, before, e_cast(c, DT_I64, fresh));
    }
    out(L, 0, t_of_rank(L, a, rank, vec_ranks(&v) << a->rank, dim, NULL));
}

/* ---- shapes that fill ------------------------------------------------------------------------ */

/* The wanted sizes and those of the input are aligned at the last axis. */
void lower_Expand(Lower *L) {
    Cx *c = L->cx;
    Tensor *a = in(L, 0);
    Expr *want[MAX_RANK], *from[MAX_RANK], *dim[MAX_RANK], *one = e_int(c, 1);
    int rank = out_rank(L, 0);
    Vec s = vec_in(L, 1, rank > a->rank ? rank : -1, MAX_RANK, "shape");
    if (s.n >= 0) {
        for (int i = 0; i < s.n; i++) want[i] = size_uni(L, "dim", uni_i64(L, s.t, i));
        int r = bcast_dims(L, a->rank, a->dim, s.n, want, dim);
        out(L, 0, t_expand(L, a, r, dim));
        return;
    }
    int w = s.most > a->rank ? s.most : a->rank;
    for (int i = 0; i < w; i++) {
        want[i] = size_uni(L, "dim", vec_from_end(L, &s, w - 1 - i, one));
        from[i] = i < w - a->rank ? one : a->dim[i - (w - a->rank)];
    }
    bcast_dims(L, w, from, w, want, dim);
    Tensor *t = t_expand(L, a, w, dim);
    /* Missing leading axes have size 1. */
    Expr *left[MAX_RANK], **alt[MAX_RANK + 1] = {0};
    uint32_t ranks = 0;
    for (int k = s.least; k <= s.most; k++) ranks |= 1u << (k > a->rank ? k : a->rank);
    Expr *r = let(L, "rank", kmax(c, s.len, e_int(c, a->rank)), 0);
    for (int i = 0; i < MAX_RANK; i++) left[i] = one;
    for (int k = 0; k <= w; k++) {
        if (!(ranks >> k & 1)) continue;
        alt[k] = NEWN(L->a, Expr *, MAX_RANK);
        for (int i = 0; i < k; i++) {
            alt[k][i] = t->dim[i + w - k];
            left[i] = e_sel(c, e_eq(c, r, e_int(c, k)), alt[k][i], left[i]);
        }
    }
    out(L, 0, t_of_rank(L, t, r, ranks, left, alt));
}

void lower_ConstantOfShape(Lower *L) {
    Cx *c = L->cx;
    const Attr *at = node_attr(L->node, "value");
    Expr *dim[MAX_RANK] = {0}, *value = e_num(c, DT_F32, 0), *one = e_int(c, 1);
    Vec s = vec_in(L, 0, out_rank(L, 0), MAX_RANK, "shape");
    if (at) {
        if (at->kind != AT_TENSOR || at->t->count != 1)
            fail(L, "value must be a tensor of one element");
        value = e_elem(c, at->t, 0);
    }
    for (int i = 0; i < s.most; i++) dim[i] = size_uni(L, "dim", vec_at(L, &s, i, one));
    Tensor *t = te_end(L, te_begin(L, (DType)value->dtype, s.most, dim), value);
    out(L, 0, t_of_rank(L, t, s.len, vec_ranks(&s), dim, NULL));
}

void lower_EyeLike(Lower *L) {
    Cx *c = L->cx;
    Tensor *a = in(L, 0);
    if (a->rank != 2) fail(L, "the input has rank %d, it must have rank 2", a->rank);
    int64_t k = attr_i(L, "k", 0), dt = attr_i(L, "dtype", a->dtype);
    if (dt < 0 || dt > 255 || !dtype_supported((int)dt) || dtype_small((DType)dt))
        unsupported(L, "dtype %s is not supported", dtype_name(dt < 0 || dt > 255 ? 0 : (int)dt));
    const int64_t far = INT64_C(1) << 61;
    k = k > far ? far : k < -far ? -far : k;
    Tensor *t = te_begin(L, (DType)dt, 2, a->dim);
    Expr *on = e_eq(c, ax(L, t, 1), e_addi(c, ax(L, t, 0), k));
    out(L, 0, te_end(L, t, e_sel(c, on, e_num(c, t->dtype, 1), e_num(c, t->dtype, 0))));
}

void lower_Trilu(Lower *L) {
    Cx *c = L->cx;
    Tensor *a = in(L, 0);
    int r = a->rank;
    if (r < 2) fail(L, "the input has rank %d, it must have at least 2", r);
    Expr *k = has_in(L, 1) ? scalar_uni(L, 1, "k") : e_int(c, 0), *idx[MAX_RANK];
    const int64_t far = INT64_C(1) << 61;
    k = clamp_i(c, k, -far, far);
    if (!is_simple(k)) k = let(L, "k", k, -far);
    Tensor *t = te_indexed(L, a->dtype, r, a->dim, idx);
    Expr *diag = e_add(c, idx[r - 2], k), *col = idx[r - 1];
    Expr *keep = attr_i(L, "upper", 1) ? e_le(c, diag, col) : e_le(c, col, diag);
    out(L, 0, te_end(L, t, e_sel(c, keep, ld(L, a, idx), e_num(c, a->dtype, 0))));
}

/* Range: the number of elements, max(ceil((limit - start) / delta), 0). */
static Expr *range_len(Lower *L, DType t, Expr *start, Expr *limit, Expr *delta) {
    Cx *c = L->cx;
    Expr *zero = e_int(c, 0);
    if (dtype_is_float(t)) {
        Expr *diff = e_cast(c, DT_F64, e_sub(c, limit, start));
        Expr *q = e_un(c, E_CEIL, e_div(c, diff, e_cast(c, DT_F64, delta)));
        /* far beyond every size, but the conversion is still defined */
        q = e_min(c, e_max(c, q, e_num(c, DT_F64, 0)), e_num(c, DT_F64, 0x1p61));
        return kmax(c, e_cast(c, DT_I64, q), zero);
    }
    Expr *s = e_cast(c, DT_I64, start), *l = e_cast(c, DT_I64, limit);
    Expr *d = e_cast(c, DT_I64, delta);
    int64_t v;
    /* (n - 1) fdiv step + 1 is ceil(n / step) for n ≥ 0 */
    Expr *up = kmax(c, e_sub(c, l, s), zero), *down = kmax(c, e_sub(c, s, l), zero);
    if (e_is_int(d, &v)) {
        if (v == 1) return up;
        if (v == -1) return down;
        if (v > 0) return e_addi(c, e_bin(c, E_FDIV, e_addi(c, up, -1), d), 1);
        if (v == INT64_MIN) return kmin(c, down, e_int(c, 1));
        return e_addi(c, e_bin(c, E_FDIV, e_addi(c, down, -1), e_int(c, -v)), 1);
    }
    Expr *pos = e_lt(c, zero, d), *n = e_sel(c, pos, up, down);
    Expr *step = e_sel(c, pos, d, e_sub(c, zero, d));
    return e_addi(c, e_bin(c, E_FDIV, e_addi(c, n, -1), step), 1);
}

void lower_Range(Lower *L) {
    Cx *c = L->cx;
    Expr *v[3];
    DType dt = in(L, 0)->dtype, work = dt;
    static const char *const what[] = {"start", "limit", "delta"};
    v[2] = e_num(c, dt, 1); /* com.microsoft's may omit it */
    for (int i = 0; i < (has_in(L, 2) ? 3 : 2); i++) v[i] = scalar_uni(L, i, what[i]);
    if (dt == DT_F16 || dt == DT_BF16) {
        work = attr_i(L, "stash_type", DT_F32) == DT_F64 ? DT_F64 : DT_F32;
        for (int i = 0; i < 3; i++) v[i] = e_cast(c, work, v[i]);
    }
    check(L, e_not(c, e_eq(c, v[2], e_num(c, work, 0))), "delta is 0");
    Expr *n = size_uni(L, "length", range_len(L, work, v[0], v[1], v[2]));
    Tensor *t = te_begin(L, dt, 1, &n);
    Expr *i = e_cast(c, work, ax(L, t, 0));
    out(L, 0, te_end(L, t, e_cast(c, dt, e_add(c, v[0], e_mul(c, i, v[2])))));
}
