/* features.c: operators of ai.onnx.ml on features: scaling, encoding, selection. */
#include "utask/ops/elementwise.h"
#include "utask/ops/ml.h"
#include "utask/ops/nn.h"
#include <math.h>

/* The entry of the list for an element of y: the only one, or the one of its feature (checked). */
static Expr *entry(Lower *L, Tensor *y, const char *name, Tensor *list, int64_t n) {
    Cx *c = L->cx;
    if (n == 1 || !y->rank) return ld(L, list, (Expr *[]){e_int(c, 0)});
    check(L, e_eq(c, y->dim[y->rank - 1], e_int(c, n)),
          "%s has %lld entries, the input another number of features", name, (long long)n);
    return ld(L, list, (Expr *[]){ax(L, y, y->rank - 1)});
}

void lower_Scaler(Lower *L) {
    Cx *c = L->cx;
    Tensor *x = in_needed(L, 0);
    Expr *v;
    Tensor *y = te_like(L, DT_F32, x, &v);
    int n, m;
    const float *scale = attr_floats(L, "scale", &n), *offset = attr_floats(L, "offset", &m);
    if (n < 1 || m < 1) fail(L, "scale and offset must have entries");
    v = e_cast(c, DT_F32, v);
    v = e_sub(c, v, entry(L, y, "offset", t_list(L, DT_F32, m, offset), m));
    v = e_mul(c, v, entry(L, y, "scale", t_list(L, DT_F32, n, scale), n));
    out(L, 0, te_end(L, y, v));
}

void lower_Normalizer(Lower *L) {
    Tensor *x = t_cast(L, DT_F32, in_needed(L, 0)), *by;
    if (x->rank < 1 || x->rank > 2) fail(L, "the input has rank %d, not 1 or 2", x->rank);
    const char *norm = attr_s(L, "norm", "MAX");
    uint32_t last = 1u << (x->rank - 1);
    if (!strcmp(norm, "MAX"))
        by = t_reduce(L, R_MAX, x, last, true);
    else if (!strcmp(norm, "L1"))
        by = t_reduce(L, R_SUM, t_un(L, E_ABS, x), last, true);
    else
        by = t_un(L, E_SQRT, t_reduce(L, R_SUM, t_bin(L, E_MUL, x, x), last, true));
    Tensor *is_zero = t_bin(L, E_EQ, by, t_scalar(L, DT_F32, 0));
    by = t_where(L, is_zero, t_scalar(L, DT_F32, 1), by);
    out(L, 0, t_bin(L, E_DIV, x, by));
}

void lower_Imputer(Lower *L) {
    Cx *c = L->cx;
    Tensor *x = in_needed(L, 0);
    Expr *v, *hit;
    Tensor *y = te_like(L, x->dtype, x, &v), *list;
    bool flt = dtype_is_float(x->dtype);
    const char *name = flt ? "imputed_value_floats" : "imputed_value_int64s";
    int n;
    if (flt) {
        const float *f = attr_floats(L, name, &n);
        double old = attr_f(L, "replaced_value_float", 0);
        if (n < 1) fail(L, "attribute %s is missing", name);
        list = t_list(L, DT_F32, n, f);
        hit = isnan(old) ? e_un(c, E_ISNAN, v) : e_eq(c, v, e_num(c, x->dtype, old));
    } else {
        const int64_t *k = attr_ints(L, name, &n);
        if (n < 1) fail(L, "attribute %s is missing", name);
        list = t_list(L, DT_I64, n, k);
        Expr *old = e_int(c, attr_i(L, "replaced_value_int64", 0));
        hit = e_eq(c, e_cast(c, DT_I64, v), old);
    }
    Expr *new = e_cast(c, x->dtype, entry(L, y, name, list, n));
    out(L, 0, te_end(L, y, e_sel(c, hit, new, v)));
}

void lower_Binarizer(Lower *L) {
    Cx *c = L->cx;
    Tensor *x = in_needed(L, 0);
    DType w = dtype_is_float(x->dtype) ? x->dtype : DT_F64;
    Expr *v;
    Tensor *y = te_like(L, x->dtype, x, &v);
    Expr *over = e_lt(c, e_num(c, w, attr_f(L, "threshold", 0)), e_cast(c, w, v));
    out(L, 0, te_end(L, y, e_sel(c, over, e_num(c, x->dtype, 1), e_num(c, x->dtype, 0))));
}

/* Elements of the last axis at the given positions; a single row becomes a matrix of one row. */
void lower_ArrayFeatureExtractor(Lower *L) {
    Tensor *x = in_needed(L, 0), *at = in_needed(L, 1);
    if (x->rank < 1) fail(L, "the input is a scalar");
    if (x->rank == 1) x = t_unsqueeze(L, x, 0);
    Expr *dim[MAX_RANK], *idx[MAX_RANK];
    int last = x->rank - 1;
    at = t_flat(L, at);
    memcpy(dim, x->dim, sizeof dim);
    dim[last] = at->dim[0];
    Tensor *y = te_indexed(L, x->dtype, x->rank, dim, idx);
    Expr *k = e_cast(L->cx, DT_I64, ld(L, at, &idx[last]));
    idx[last] = index_checked(L, k, x->dim[last], false, "axis %d of input 0", last);
    out(L, 0, te_end(L, y, ld(L, x, idx)));
}

void lower_OneHotEncoder(Lower *L) {
    Cx *c = L->cx;
    Tensor *x = in_needed(L, 0);
    int n;
    no_strings(L, "cats_strings");
    const int64_t *cat = attr_ints(L, "cats_int64s", &n);
    if (n < 1) fail(L, "attribute cats_int64s is missing");
    if (x->rank + 1 > MAX_RANK) unsupported(L, "rank %d", x->rank + 1);
    x = t_cast(L, DT_I64, x);
    Tensor *list = t_list(L, DT_I64, n, cat);
    Expr *dim[MAX_RANK], *idx[MAX_RANK];
    memcpy(dim, x->dim, sizeof dim);
    dim[x->rank] = e_int(c, n);
    Tensor *y = te_indexed(L, DT_F32, x->rank + 1, dim, idx);
    Expr *k = ax(L, y, x->rank), *same = e_eq(c, ld(L, x, idx), ld(L, list, &k));
    y = te_end(L, y, e_sel(c, same, e_num(c, DT_F32, 1), e_num(c, DT_F32, 0)));
    out(L, 0, y);
    if (attr_i(L, "zeros", 1)) return;
    Tensor *found = t_reduce(L, R_MAX, y, 1u << x->rank, false);
    found = t_reduce(L, R_MIN, found, axes_from(0, x->rank), false);
    check(L, e_lt(c, e_num(c, DT_F32, 0), uni(L, found, 0)),
          "an element is none of the categories (zeros=0)");
}

void lower_FeatureVectorizer(Lower *L) {
    int n = L->node->nin, m;
    const int64_t *size = attr_ints(L, "inputdimensions", &m);
    if (m >= 0 && m != n) fail(L, "inputdimensions has %d entries for %d inputs", m, n);
    Tensor **part = NEWN(L->a, Tensor *, n);
    for (int i = 0; i < n; i++) {
        part[i] = t_cast(L, DT_F32, feature_rows(L, i));
        if (m >= 0)
            check(L, e_eq(L->cx, part[i]->dim[1], e_int(L->cx, size[i])),
                  "input %d has another size than inputdimensions says (%lld)", i,
                  (long long)size[i]);
    }
    out(L, 0, n == 1 ? part[0] : t_concat(L, n, part, 1));
}

/* The output maps, for each row, constant labels to the row's values: as a tensor it is X. */
void lower_ZipMap(Lower *L) {
    Tensor *x = feature_rows(L, 0);
    const Attr *a = node_attr(L->node, "classlabels_int64s");
    const Attr *b = node_attr(L->node, "classlabels_strings");
    if (!a == !b) fail(L, "one of classlabels_int64s and classlabels_strings must be given");
    int n = a ? a->n : b->n;
    check(L, e_eq(L->cx, x->dim[1], e_int(L->cx, n)),
          "there are %d labels, X has another number of classes", n);
    out(L, 0, x);
}

/* ---- LabelEncoder ---------------------------------------------------------------------------- */
/* A list of the attributes NAME_int64s, NAME_floats, NAME_tensor. */
static const Const *list_attr(Lower *L, const char *name) {
    const Const *found = NULL;
    static const char *const form[] = {"int64s", "floats", "tensor"};
    no_strings(L, arena_printf(L->a, "%s_strings", name));
    for (int i = 0; i < 3; i++) {
        const Attr *a = node_attr(L->node, arena_printf(L->a, "%s_%s", name, form[i]));
        if (!a) continue;
        if (found) fail(L, "%s are given twice", name);
        if (i == 2) {
            found = a->t;
            continue;
        }
        Const *k = NEW(L->a, Const);
        *k = (Const){.dtype = i ? DT_F32 : DT_I64, .rank = 1, .dim = {a->n}, .count = a->n};
        k->data = i ? (const void *)a->floats : (const void *)a->ints;
        found = k;
    }
    if (!found) fail(L, "there are no %s_int64s, %s_floats or %s_tensor", name, name, name);
    return found;
}

static bool less(const void *keys, int64_t i, int64_t j) {
    const Const *k = keys;
    if (dtype_is_float(k->dtype))
        return elem_get_f(k->dtype, k->data, i) < elem_get_f(k->dtype, k->data, j);
    int64_t a = elem_get_i(k->dtype, k->data, i), b = elem_get_i(k->dtype, k->data, j);
    return k->dtype == DT_U64 ? (uint64_t)a < (uint64_t)b : a < b;
}

/* Sorts the indices of the keys that are not NaN; of equal keys only the last remains. Returns
 * their number. *nan: the index of the last NaN key, or -1. */
static int64_t sorted_keys(Lower *L, const Const *k, int64_t **order, int64_t *nan) {
    int64_t n = 0, kept = 0, *place = *order = NEWN(L->a, int64_t, k->count + 1);
    *nan = -1;
    for (int64_t i = 0; i < k->count; i++)
        if (dtype_is_float(k->dtype) && isnan(elem_get_f(k->dtype, k->data, i)))
            *nan = i;
        else
            place[n++] = i;
    sort_stable(L, n, place, less, k);
    for (int64_t i = 0; i < n; i++)
        if (i + 1 == n || less(k, place[i], place[i + 1])) place[kept++] = place[i];
    return kept;
}

static Tensor *picked(Lower *L, const Const *k, const int64_t *order, int64_t n) {
    size_t size = dtype_size(k->dtype);
    char *data = arena_alloc(L->a, (size_t)n * size + 1);
    for (int64_t i = 0; i < n; i++)
        memcpy(data + (size_t)i * size, (const char *)k->data + (size_t)order[i] * size, size);
    return t_list(L, k->dtype, n, data);
}

static Expr *default_value(Lower *L, DType t) {
    Cx *c = L->cx;
    const Attr *a = node_attr(L->node, "default_tensor");
    if (a) {
        if (a->t->count != 1 || a->t->dtype != t)
            fail(L, "default_tensor must be one %s", dtype_name(t));
        return e_elem(c, a->t, 0);
    }
    if (!dtype_is_float(t)) return e_cast(c, t, e_int(c, attr_i(L, "default_int64", -1)));
    return e_num(c, t, attr_f(L, "default_float", -0.0));
}

void lower_LabelEncoder(Lower *L) {
    Cx *c = L->cx;
    Tensor *x = in_needed(L, 0);
    no_strings(L, "classes_strings");
    const Const *key = list_attr(L, "keys"), *value = list_attr(L, "values");
    if (key->count != value->count)
        fail(L, "there are %lld keys and %lld values", (long long)key->count,
             (long long)value->count);
    if (key->dtype != x->dtype)
        fail(L, "the keys are %s, the input %s", dtype_name(key->dtype), dtype_name(x->dtype));
    int64_t *order, nan, n = sorted_keys(L, key, &order, &nan), step = 1;
    Expr *v, *other = default_value(L, value->dtype);
    Tensor *y = te_like(L, value->dtype, x, &v);
    if (n) { /* the number of keys below v, by binary search */
        Tensor *keys = picked(L, key, order, n), *values = picked(L, value, order, n);
        Expr *at = e_int(c, 0), *most = e_int(c, n);
        while (step * 2 <= n) step *= 2;
        for (; step; step /= 2) {
            Expr *to = e_addi(c, at, step), *fits = e_le(c, to, most);
            Expr *before = e_addi(c, e_min(c, to, most), -1);
            at = e_sel(c, e_and(c, fits, e_lt(c, ld(L, keys, &before), v)), to, at);
        }
        at = e_min(c, at, e_int(c, n - 1));
        other = e_sel(c, e_eq(c, ld(L, keys, &at), v), ld(L, values, &at), other);
    }
    if (nan >= 0) other = e_sel(c, e_un(c, E_ISNAN, v), e_elem(c, value, nan), other);
    out(L, 0, te_end(L, y, other));
}
