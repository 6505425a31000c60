/* resize.c: Resize.
 *
 * Axes are resampled one after the other. For each axis, a small table over output positions has
 * the source indices and another the weights, so the tensor itself is read by plain sums of
 * products. With constant sizes the tables are constants. Positions are computed in float64.
 */
#include "utask/ops/lowerings.h"
#include "utask/ops/window.h"

typedef enum { RESIZE_NEAREST, RESIZE_LINEAR, RESIZE_CUBIC } ResizeMode;
typedef enum { NEAR_DOWN, NEAR_UP, NEAR_FLOOR, NEAR_CEIL } NearMode;
typedef enum {
    CT_HALF_PIXEL,
    CT_HALF_PIXEL_SYMMETRIC,
    CT_PYTORCH_HALF_PIXEL,
    CT_ALIGN_CORNERS,
    CT_ASYMMETRIC,
    CT_TF_CROP
} CoordMode;

typedef struct Resize {
    ResizeMode mode;
    NearMode near;
    CoordMode coord;
    bool antialias, exclude_outside;
    double cubic_a, extrapolation;
} Resize;

/* How one axis is resized; uniform values, float64 unless noted. */
typedef struct ResizeAxis {
    int axis;
    Expr *out; /* int64 */
    Expr *scale;
    Expr *width;       /* length of the result; may be fractional */
    int64_t times;     /* the size, so many times, is the result's; 0: not a whole number */
    Expr *start, *end; /* region of interest (tf_crop_and_resize; float32 or float64), else NULL */
} ResizeAxis;

static Expr *i64(Lower *L, Expr *e) { return e_cast(L->cx, DT_I64, e); }

static void resize_read(Lower *L, Resize *r) {
    static const char *const modes[] = {"nearest", "linear", "cubic"};
    static const char *const nears[] = {"round_prefer_floor", "round_prefer_ceil", "floor", "ceil"};
    static const char *const coords[] = {"half_pixel",         "half_pixel_symmetric",
                                         "pytorch_half_pixel", "align_corners",
                                         "asymmetric",         "tf_crop_and_resize"};
    r->mode = (ResizeMode)attr_choice(L, "mode", COUNT(modes), modes);
    r->near = (NearMode)attr_choice(L, "nearest_mode", COUNT(nears), nears);
    r->coord = (CoordMode)attr_choice(L, "coordinate_transformation_mode", COUNT(coords), coords);
    r->antialias = attr_i(L, "antialias", 0) != 0;
    r->exclude_outside = attr_i(L, "exclude_outside", 0) != 0;
    r->cubic_a = attr_f(L, "cubic_coeff_a", -0.75);
    r->extrapolation = attr_f(L, "extrapolation_value", 0);
    if (r->antialias && r->mode == RESIZE_NEAREST) fail(L, "antialias needs mode linear or cubic");
}

/* ---- positions ------------------------------------------------------------------------------- */

/* Source position (float64) of output position o of an axis of `in` elements. */
static Expr *source(Lower *L, const Resize *r, const ResizeAxis *a, Expr *in, Expr *o) {
    Cx *c = L->cx;
    Expr *x = f64(L, o), *last = e_sub(c, f64(L, in), num(L, 1)), *half = num(L, 0.5);
    Expr *single = e_eq(c, a->width, num(L, 1)), *rest = e_sub(c, a->width, num(L, 1));
    Expr *centre = e_sub(c, e_div(c, e_add(c, x, half), a->scale), half);
    switch (r->coord) {
    case CT_HALF_PIXEL: return centre;
    case CT_PYTORCH_HALF_PIXEL: return e_sel(c, e_le(c, a->width, num(L, 1)), num(L, 0), centre);
    case CT_HALF_PIXEL_SYMMETRIC: {
        Expr *adjust = e_div(c, f64(L, a->out), a->width), *mid = e_mul(c, f64(L, in), half);
        return e_add(c, e_mul(c, mid, e_sub(c, num(L, 1), adjust)), centre);
    }
    case CT_ALIGN_CORNERS: return e_sel(c, single, num(L, 0), e_div(c, e_mul(c, x, last), rest));
    case CT_ASYMMETRIC: return e_div(c, x, a->scale);
    case CT_TF_CROP: { /* constant parts are computed in the type of roi */
        DType t = a->start->dtype;
        Expr *span = e_sub(c, e_cast(c, t, in), e_num(c, t, 1)), *len = e_sub(c, a->end, a->start);
        Expr *one = f64(L, e_mul(c, e_mul(c, len, span), e_num(c, t, 0.5)));
        Expr *many = e_div(c, e_mul(c, e_mul(c, x, f64(L, len)), last), rest);
        return e_add(c, e_sel(c, single, one, many), f64(L, e_mul(c, a->start, span)));
    }
    }
    ASSERT(false);
    return NULL;
}

static Expr *clamp_index(Lower *L, Expr *i, Expr *n) {
    return e_max(L->cx, e_min(L->cx, i, e_addi(L->cx, n, -1)), e_int(L->cx, 0));
}

/* Reads a table over output positions; arithmetic does if it is o, o * k or floor(o / k). */
static Expr *pick(Lower *L, Tensor *table, Expr *o) {
    const Const *k = table->kind == TK_CONST ? table->data : NULL;
    if (!k || k->count < 2) return ld(L, table, &o);
    const int64_t *v = k->data;
    int64_t up = 1, n = k->count;
    while (up < n && v[up] == 0) up++;
    bool down = v[0] == 0, div = v[0] == 0;
    for (int64_t i = 0; i < n; i++) {
        down = down && v[i] == i * v[1];
        div = div && v[i] == i / up;
    }
    if (down) return e_muli(L->cx, o, v[1]);
    if (div) return win_fdiv(L, o, up);
    return ld(L, table, &o);
}

/* ---- nearest --------------------------------------------------------------------------------- */

static Expr *nearest_index(Lower *L, const Resize *r, Expr *x) {
    Cx *c = L->cx;
    Expr *down = e_un(c, E_FLOOR, x), *frac = e_sub(c, x, down), *half = num(L, 0.5);
    Expr *up = e_un(c, E_CEIL, x);
    switch (r->near) {
    case NEAR_FLOOR: return i64(L, down);
    case NEAR_CEIL: return i64(L, up);
    case NEAR_DOWN: return i64(L, e_sel(c, e_le(c, frac, half), down, up));
    case NEAR_UP: return i64(L, e_sel(c, e_lt(c, frac, half), down, up));
    }
    ASSERT(false);
    return NULL;
}

/* Bool table: positions that get the extrapolation value; NULL if there are none. */
static Tensor *outside_table(Lower *L, const Resize *r, const ResizeAxis *a, Expr *in) {
    Cx *c = L->cx;
    if (r->coord != CT_TF_CROP) return NULL;
    Tensor *t = te_begin(L, DT_BOOL, 1, &a->out);
    Expr *x = source(L, r, a, in, ax(L, t, 0)), *last = e_sub(c, f64(L, in), num(L, 1));
    return table_end(L, t, e_or(c, e_lt(c, x, num(L, 0)), e_lt(c, last, x)));
}

/* Whether each element is repeated as often as the axis becomes longer. */
static bool repeats(const Resize *r, const ResizeAxis *a) {
    if (!a->times) return false;
    if (r->coord == CT_ASYMMETRIC) return r->near == NEAR_FLOOR;
    return (r->coord == CT_HALF_PIXEL || r->coord == CT_PYTORCH_HALF_PIXEL) &&
           (r->near == NEAR_DOWN || r->near == NEAR_UP);
}

/* The source index of each output position. */
static Tensor *nearest_table(Lower *L, const Resize *r, const ResizeAxis *a, Expr *in) {
    Tensor *table = te_begin(L, DT_I64, 1, &a->out);
    Expr *pos = source(L, r, a, in, ax(L, table, 0));
    return table_end(L, table, clamp_index(L, nearest_index(L, r, pos), in));
}

/* ---- linear and cubic ------------------------------------------------------------------------ */

/* The filter at distance d (float64). */
static Expr *kernel(Lower *L, const Resize *r, Expr *d) {
    Cx *c = L->cx;
    double a = r->cubic_a;
    d = e_un(c, E_ABS, d);
    Expr *one = num(L, 1), *zero = num(L, 0);
    if (r->mode == RESIZE_LINEAR) return e_max(c, zero, e_sub(c, one, d));
    /* (a + 2) d^3 - (a + 3) d^2 + 1 up to 1, a d^3 - 5 a d^2 + 8 a d - 4 a up to 2 */
    Expr *near = e_sub(c, e_mul(c, num(L, a + 2), d), num(L, a + 3));
    near = e_add(c, e_mul(c, e_mul(c, near, d), d), one);
    Expr *far = e_sub(c, e_mul(c, num(L, a), d), num(L, 5 * a));
    far = e_add(c, e_mul(c, far, d), num(L, 8 * a));
    far = e_sub(c, e_mul(c, far, d), num(L, 4 * a));
    far = e_sel(c, e_lt(c, d, num(L, 2)), far, zero);
    return e_sel(c, e_le(c, d, one), near, far);
}

/* The n taps of an axis, from 1 - n / 2 about the base element on, stretched by 1 / shrink. */
typedef struct Taps {
    Expr *n, *first, *shrink;
    Tensor *index, *weight; /* [out, n] */
} Taps;

/* The element left of the position, so that position - base is in (0, 1]. */
static Expr *base_of(Lower *L, Expr *pos) {
    return e_sub(L->cx, e_un(L->cx, E_CEIL, pos), num(L, 1));
}

static void taps_make(Lower *L, const Resize *r, const ResizeAxis *a, Expr *in, DType type,
                      Taps *t) {
    Cx *c = L->cx;
    double radius = r->mode == RESIZE_LINEAR ? 1 : 2;
    t->shrink = num(L, 1);
    if (r->antialias) /* the lower bound is needed for empty results */
        t->shrink = e_max(c, e_min(c, a->scale, num(L, 1)), num(L, 0x1p-24));
    t->first = i64(L, e_un(c, E_FLOOR, e_div(c, num(L, -radius), t->shrink)));
    t->first = e_addi(c, t->first, 1);
    t->n = e_addi(c, e_muli(c, t->first, -2), 2);
    if (!e_is_int(t->n, &(int64_t){0})) t->n = let(L, "taps", t->n, 2);

    Expr *dim[2] = {a->out, t->n};
    Tensor *index = te_begin(L, DT_I64, 2, dim);
    Expr *base = base_of(L, source(L, r, a, in, ax(L, index, 0)));
    Expr *i = e_add(c, i64(L, base), e_add(c, t->first, ax(L, index, 1)));
    t->index = table_end(L, index, clamp_index(L, i, in));

    bool norm = r->antialias || r->exclude_outside;
    Tensor *w = te_begin(L, norm ? DT_F64 : type, 2, dim);
    Expr *pos = source(L, r, a, in, ax(L, w, 0));
    base = base_of(L, pos);
    Expr *k = e_add(c, t->first, ax(L, w, 1));
    Expr *d = e_sub(c, f64(L, k), e_sub(c, pos, base));
    Expr *e = kernel(L, r, e_mul(c, d, t->shrink));
    if (r->exclude_outside)
        e = e_sel(c, win_inside(L, e_add(c, i64(L, base), k), in), e, num(L, 0));
    w = table_end(L, w, e_cast(c, w->dtype, e));
    if (norm) {
        Axis *s = axis_new(c, t->n);
        Tensor *n = te_begin(L, type, 2, dim);
        Expr *all[2] = {ax(L, n, 0), e_axis(c, s)}, *one[2] = {all[0], ax(L, n, 1)};
        Expr *sum = e_reduce(c, R_SUM, 1, &s, ld(L, w, all));
        sum = e_sel(c, e_eq(c, sum, num(L, 0)), num(L, 1), sum);
        w = table_end(L, n, e_cast(c, type, e_div(c, ld(L, w, one), sum)));
    }
    t->weight = w;
}

/* The sum of the taps' elements times their weights, for output position idx[axis]. */
static Expr *filtered(Lower *L, const Taps *taps, Tensor *x, int axis, Expr **idx) {
    Cx *c = L->cx;
    int64_t n;
    bool unroll = e_is_int(taps->n, &n) && n <= 4;
    Axis *k = unroll ? NULL : axis_new(c, taps->n);
    Expr *o = idx[axis], *sum = NULL;
    for (int64_t j = 0; j < (unroll ? n : 1); j++) {
        Expr *at[2] = {o, unroll ? e_int(c, j) : e_axis(c, k)};
        idx[axis] = ld(L, taps->index, at);
        Expr *e = e_mul(c, ld(L, x, idx), ld(L, taps->weight, at));
        sum = sum ? e_add(c, sum, e) : e;
    }
    return unroll ? sum : e_reduce(c, R_SUM, 1, &k, sum);
}

/* x with n axes resized, each result element one of x. */
static Tensor *chosen(Lower *L, const Resize *r, int n, const ResizeAxis *a, Tensor *x) {
    Cx *c = L->cx;
    Expr *dim[MAX_RANK], *idx[MAX_RANK], *outside = e_bool(c, false);
    Tensor *table[MAX_RANK], *out[MAX_RANK];
    for (int i = 0; i < x->rank; i++) dim[i] = x->dim[i];
    for (int i = 0; i < n; i++) {
        dim[a[i].axis] = a[i].out;
        table[i] = repeats(r, &a[i]) ? NULL : nearest_table(L, r, &a[i], x->dim[a[i].axis]);
        out[i] = outside_table(L, r, &a[i], x->dim[a[i].axis]);
    }
    Tensor *t = te_indexed(L, x->dtype, x->rank, dim, idx);
    for (int i = 0; i < n; i++) {
        Expr *o = idx[a[i].axis];
        idx[a[i].axis] = table[i] ? pick(L, table[i], o) : win_fdiv(L, o, a[i].times);
        if (out[i]) outside = e_or(c, outside, ld(L, out[i], &o));
    }
    return te_end(L, t, e_sel(c, outside, e_num(c, x->dtype, r->extrapolation), ld(L, x, idx)));
}

/* x with one axis resized by a filter. */
static Tensor *resized(Lower *L, const Resize *r, const ResizeAxis *a, Tensor *x) {
    Expr *dim[MAX_RANK], *idx[MAX_RANK], *in = x->dim[a->axis], *e;
    Taps taps = {0};
    taps_make(L, r, a, in, x->dtype, &taps);
    Tensor *outside = outside_table(L, r, a, in);
    for (int i = 0; i < x->rank; i++) dim[i] = i == a->axis ? a->out : x->dim[i];
    Tensor *t = te_indexed(L, x->dtype, x->rank, dim, idx);
    Expr *o = idx[a->axis];
    e = filtered(L, &taps, x, a->axis, idx);
    if (outside) e = e_sel(L->cx, ld(L, outside, &o), e_num(L->cx, x->dtype, r->extrapolation), e);
    return te_end(L, t, e);
}

/* ---- sizes ----------------------------------------------------------------------------------- */

static bool given(Lower *L, int i) {
    Tensor *t = in(L, i);
    return t && !(t->rank == 1 && e_is_ival(t->dim[0], 0));
}

static Tensor *vector(Lower *L, int i, int n, const char *what) {
    Tensor *t = in(L, i);
    if (t->rank != 1) fail(L, "%s has rank %d, not 1", what, t->rank);
    check_eq(L, t->dim[0], e_int(L->cx, n), "%s does not have %d values", what, n);
    return t;
}

/* How often `len` is in `out`, if that is known and more than once; 0: otherwise. */
static int64_t whole_times(Lower *L, const Expr *out, Expr *len) {
    for (int64_t k = 2; k <= 32; k++)
        if (out == e_muli(L->cx, len, k)) return k;
    return 0;
}

static void axes_from_scales(Lower *L, Tensor *x, int n, ResizeAxis *a) {
    Cx *c = L->cx;
    Tensor *s = vector(L, 2, n, "scales");
    for (int i = 0; i < n; i++) {
        Expr *scale = uni(L, s, i), *len = x->dim[a[i].axis];
        check_lt(L, e_num(c, DT_F32, 0), scale, "a scale is not positive");
        Expr *out = e_un(c, E_FLOOR, e_mul(c, e_cast(c, DT_F32, len), scale));
        a[i].scale = f64(L, scale);
        a[i].width = e_mul(c, a[i].scale, f64(L, len));
        a[i].out = e_eq(c, a[i].scale, num(L, 1)) == e_bool(c, true) ? len : i64(L, out);
        const double k = a[i].scale->op == E_CONST ? a[i].scale->f : 0;
        if (k < 2 || k > 32 || k != (double)(int64_t)k) continue;
        a[i].times = (int64_t)k;
        a[i].out = e_muli(c, len, a[i].times);
    }
}

static void axes_from_sizes(Lower *L, Tensor *x, int n, ResizeAxis *a) {
    static const char *const policies[] = {"stretch", "not_larger", "not_smaller"};
    Cx *c = L->cx;
    int policy = attr_choice(L, "keep_aspect_ratio_policy", COUNT(policies), policies);
    Tensor *s = vector(L, 3, n, "sizes");
    Expr *common = NULL;
    for (int i = 0; i < n; i++) {
        Expr *len = x->dim[a[i].axis];
        a[i].out = uni_i64(L, s, i);
        a[i].width = f64(L, a[i].out);
        a[i].times = whole_times(L, a[i].out, len);
        Expr *from = f64(L, e_max(c, len, e_int(c, 1)));
        a[i].scale = a[i].out == len ? num(L, 1) : e_div(c, a[i].width, from);
        common = !common       ? a[i].scale
                 : policy == 1 ? e_min(c, common, a[i].scale)
                               : e_max(c, common, a[i].scale);
    }
    for (int i = 0; policy != 0 && i < n; i++) {
        a[i].times = 0;
        Expr *len = f64(L, x->dim[a[i].axis]);
        a[i].scale = common;
        a[i].width = e_mul(c, common, len);
        a[i].out = i64(L, e_un(c, E_FLOOR, e_add(c, a[i].width, num(L, 0.5))));
    }
}

/* Whether the axis is unchanged. */
static bool is_identity(const Resize *r, const ResizeAxis *a, const Expr *in) {
    if (a->out != in || a->scale->op != E_CONST || a->scale->f != 1) return false;
    if (r->coord != CT_TF_CROP) return true;
    return a->start->op == E_CONST && a->start->f == 0 && a->end->op == E_CONST && a->end->f == 1;
}

/* Converts back to type t, rounded and saturated for integers. */
static Tensor *unmix(Lower *L, DType t, Tensor *x) {
    Cx *c = L->cx;
    if (!dtype_is_int(t) || x->dtype == t) return t_cast(L, t, x);
    Expr *idx[MAX_RANK];
    Tensor *y = te_indexed(L, t, x->rank, x->dim, idx);
    int bits = (int)dtype_size(t) * 8 - dtype_is_signed(t);
    double top = 1;
    for (int i = 0; i < bits; i++) top *= 2;
    Expr *lo = e_num(c, x->dtype, dtype_is_signed(t) ? -top : 0);
    Expr *hi = e_num(c, x->dtype, bits > 52 ? top : top - 1);
    Expr *e = e_un(c, E_ROUND, ld(L, x, idx));
    Expr *v = e_cast(c, t, e_max(c, e, lo));
    if (bits > 52) { /* top itself is beyond the type */
        Expr *most = e_ci(c, t, t == DT_I64 ? INT64_MAX : -1);
        return te_end(L, y, e_sel(c, e_lt(c, e, hi), v, most));
    }
    return te_end(L, y, e_cast(c, t, e_min(c, e_max(c, e, lo), hi)));
}

void lower_Resize(Lower *L) {
    Cx *c = L->cx;
    Resize r;
    ResizeAxis a[MAX_RANK] = {0};
    Tensor *x = in(L, 0), *roi = NULL;
    int have, n = x->rank;
    bool seen[MAX_RANK] = {false};
    resize_read(L, &r);
    const int64_t *axes = attr_ints(L, "axes", &have);
    if (have > n) fail(L, "attribute axes has %d values for rank %d", have, n);
    if (have >= 0) n = have;
    for (int i = 0; i < n; i++) {
        a[i].axis = have >= 0 ? norm_axis(L, axes[i], x->rank) : i;
        if (seen[a[i].axis]) fail(L, "attribute axes repeats %d", a[i].axis);
        seen[a[i].axis] = true;
    }
    if (given(L, 2) == given(L, 3)) fail(L, "exactly one of scales and sizes must be given");
    if (given(L, 2))
        axes_from_scales(L, x, n, a);
    else
        axes_from_sizes(L, x, n, a);
    if (r.coord == CT_TF_CROP) {
        if (!has_in(L, 1)) fail(L, "tf_crop_and_resize needs a region of interest");
        roi = vector(L, 1, 2 * n, "roi");
    }
    DType type = x->dtype, mix = r.mode == RESIZE_NEAREST ? type : mix_type(L, type);
    Tensor *y = t_cast(L, mix, x);
    int changed = 0;
    for (int i = 0; i < n; i++) {
        Expr *len = x->dim[a[i].axis];
        int64_t known;
        if (roi) {
            DType t = roi->dtype == DT_F64 ? DT_F64 : DT_F32;
            a[i].start = e_cast(c, t, uni(L, roi, i));
            a[i].end = e_cast(c, t, uni(L, roi, i + n));
        }
        if (is_identity(&r, &a[i], len)) continue;
        Expr *none = e_int(c, 0), *size = a[i].out;
        check(L, e_and(c, e_le(c, none, size), e_le(c, size, e_int(c, INT32_MAX))),
              "the new size %s of axis %d is out of range", said(L, size), a[i].axis);
        check(L, e_or(c, e_lt(c, none, len), e_eq(c, size, none)), "axis %d is empty", a[i].axis);
        if (!a[i].times && !e_is_int(a[i].out, &known)) a[i].out = let(L, "size", a[i].out, 0);
        if (r.mode == RESIZE_NEAREST)
            a[changed++] = a[i];
        else
            y = resized(L, &r, &a[i], y);
    }
    if (changed) y = chosen(L, &r, changed, a, y);
    out(L, 0, unmix(L, type, y));
}
