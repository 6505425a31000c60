/* index.c: data-dependent selection and order, mostly by hand-written bodies. */
#include <stdlib.h>

#include "utask/ops/size.h"

#define TOPK_KNOWN 8 /* the most elements that are sorted as uniform values */

Tensor *ext_like(Lower *L, const char *name, int nin, Tensor *const *ins, int nparam,
                 Expr *const *param, Tensor *like, const char *fault) {
    Stmt *s = ext_begin(L, name, nin, ins, nparam, param);
    ext_out(L, s, like->dtype, like->rank, like->dim);
    ext_end(L, s, fault);
    return ext_result(L, s, 0);
}

/* The single element of input i as a uniform int64. */
static Expr *scalar_in(Lower *L, int i, const char *what) {
    return e_cast(L->cx, DT_I64, scalar_uni(L, i, what));
}

/* The first n elements along axis 0. */
static Tensor *head(Lower *L, Tensor *t, Expr *n) {
    return t_slice(L, t, 0, e_int(L->cx, 0), e_int(L->cx, 1), n);
}

/* TopK of a few tracked elements: before one come those that are better, or equal and earlier. */
static void topk_known(Lower *L, Tensor *x, int64_t n, int64_t k, bool largest) {
    Cx *c = L->cx;
    Expr *place[TOPK_KNOWN], *value[TOPK_KNOWN], *index[TOPK_KNOWN];
    for (int64_t i = 0; i < n; i++) {
        place[i] = e_int(c, 0); /* bound by a LET, so that expressions do not grow exponentially */
        for (int64_t j = 0; j < n; j++) {
            Expr *a = largest ? x->elem[i] : x->elem[j], *b = largest ? x->elem[j] : x->elem[i];
            if (j == i) continue;
            Expr *before = e_or(c, e_lt(c, a, b), e_and(c, e_bool(c, j < i), e_eq(c, a, b)));
            place[i] = e_add(c, place[i], e_cast(c, DT_I64, before));
        }
        place[i] = let(L, "place", place[i], 0);
    }
    for (int64_t p = 0; p < k; p++) {
        value[p] = x->elem[n - 1];
        index[p] = e_int(c, n - 1);
        for (int64_t i = n - 2; i >= 0; i--) {
            Expr *here = e_eq(c, place[i], e_int(c, p));
            value[p] = e_sel(c, here, x->elem[i], value[p]);
            index[p] = e_sel(c, here, e_int(c, i), index[p]);
        }
        value[p] = let(L, "value", value[p], INT64_MIN);
        index[p] = let(L, "index", index[p], 0);
    }
    Expr *dim = e_int(c, k);
    out(L, 0, t_from_uniform(L, x->dtype, 1, &dim, value));
    out(L, 1, t_from_uniform(L, DT_I64, 1, &dim, index));
}

void lower_TopK(Lower *L) {
    Cx *c = L->cx;
    Tensor *x = in(L, 0);
    int axis = norm_axis(L, attr_i(L, "axis", -1), x->rank);
    Expr *k = scalar_in(L, 1, "K");
    check(L, e_and(c, e_le(c, e_int(c, 0), k), e_le(c, k, x->dim[axis])),
          "K = %s is outside [0, %s], the size of axis %d", said(L, k), said(L, x->dim[axis]),
          axis);
    int64_t want, n = count_const(x);
    bool largest = attr_i(L, "largest", 1) != 0, few = n > 0 && n <= TOPK_KNOWN && x->rank == 1;
    if (few && x->elem && !dtype_is_float(x->dtype) && e_is_int(k, &want)) {
        topk_known(L, x, n, want, largest);
        return;
    }
    k = let(L, "k", k, 0);
    /* sorted = 0 allows any order, including the sorted one */
    Expr *param[] = {k, e_int(c, axis), e_int(c, largest)};
    Expr *dim[MAX_RANK];
    memcpy(dim, x->dim, sizeof dim);
    dim[axis] = k;
    Stmt *s = ext_begin(L, "topk", 1, &x, 3, param);
    ext_out(L, s, x->dtype, x->rank, dim);
    ext_out(L, s, DT_I64, x->rank, dim);
    ext_end(L, s, "K is out of range");
    out(L, 0, ext_result(L, s, 0));
    out(L, 1, ext_result(L, s, 1));
}

/* [rank of x, number of elements of x that are not zero] */
static Tensor *nonzero(Lower *L, Tensor *x) {
    Stmt *s = ext_begin(L, "nonzero", 1, &x, 0, NULL);
    Expr *dim[] = {e_int(L->cx, x->rank), ext_sym(L, s, "nonzero")};
    if (count_const(x) > 0) s->ext.sym[0]->hi = count_const(x);
    ext_out(L, s, DT_I64, 2, dim);
    ext_end(L, s, "the input cannot be searched");
    return ext_result(L, s, 0);
}

void lower_NonZero(Lower *L) { out(L, 0, nonzero(L, in(L, 0))); }

/* x[.., index[i], ..] along axis; every index is in range. */
static Tensor *take(Lower *L, Tensor *x, int axis, Tensor *index) {
    Expr *dim[MAX_RANK], *idx[MAX_RANK];
    memcpy(dim, x->dim, sizeof dim);
    dim[axis] = index->dim[0];
    Tensor *y = te_indexed(L, x->dtype, x->rank, dim, idx);
    idx[axis] = ld(L, index, (Expr *[]){idx[axis]});
    return te_end(L, y, ld(L, x, idx));
}

void lower_Compress(Lower *L) {
    Tensor *x = in(L, 0), *cond = in(L, 1);
    if (x->rank == 0) fail(L, "the input is a scalar");
    if (cond->rank != 1) fail(L, "the condition has rank %d, not 1", cond->rank);
    int axis = 0;
    if (attr_has(L, "axis")) {
        axis = norm_axis(L, attr_i(L, "axis", 0), x->rank);
    } else {
        x = t_flat(L, x);
    }
    Tensor *found = nonzero(L, head(L, cond, e_min(L->cx, cond->dim[0], x->dim[axis])));
    out(L, 0, take(L, x, axis, t_squeeze(L, found, 0)));
}

/* Distinct elements or slices: their values, the first position of each, which one each element is,
 * and how often each occurs. */
typedef struct Distinct {
    Tensor *values, *first, *inverse, *counts;
} Distinct;

/* Finds the distinct elements of x (flat), or slices along `axis`. */
static Distinct distinct(Lower *L, Tensor *x, bool flat, int axis, bool sorted) {
    Cx *c = L->cx;
    if (flat) x = t_flat(L, x);
    Expr *param[] = {e_int(c, flat ? -1 : axis), e_int(c, sorted)};
    Expr *items = x->dim[axis], *one = e_int(c, 1);
    Stmt *s = ext_begin(L, "unique", 1, &x, 2, param);
    for (int i = 0; i < 3; i++) ext_out(L, s, DT_I64, 1, &items);
    ext_out(L, s, DT_I64, 1, &one);
    ext_end(L, s, "the axis is out of range");
    Expr *n = let(L, "unique", kmin(c, uni(L, ext_result(L, s, 3), 0), items), 0);
    Tensor *first = head(L, ext_result(L, s, 1), n);
    return (Distinct){take(L, x, axis, first), first, ext_result(L, s, 0),
                      head(L, ext_result(L, s, 2), n)};
}

void lower_Unique(Lower *L) {
    Tensor *x = in(L, 0);
    bool flat = !attr_has(L, "axis");
    int axis = flat ? 0 : norm_axis(L, attr_i(L, "axis", 0), x->rank);
    Distinct d = distinct(L, x, flat, axis, attr_i(L, "sorted", 1) != 0);
    out(L, 0, d.values);
    out(L, 1, d.first);
    out(L, 2, d.inverse);
    out(L, 3, d.counts);
}

/* In order of first occurrence. */
void lower_MsUnique(Lower *L) {
    Tensor *x = in(L, 0);
    if (x->rank != 1) fail(L, "the input has rank %d, not 1", x->rank);
    Distinct d = distinct(L, x, true, 0, false);
    out(L, 0, d.values);
    out(L, 1, d.inverse);
    out(L, 2, d.counts);
}

/* Cumulative sums or products of tracked elements, so that those of the result are tracked too. */
static Tensor *cumulate_known(Lower *L, Tensor *x, int axis, bool product) {
    Cx *c = L->cx;
    bool back = attr_i(L, "reverse", 0) != 0;
    Expr *idx[MAX_RANK], *one = e_int(c, attr_i(L, "exclusive", 0) != 0);
    Tensor *t = te_begin(L, x->dtype, x->rank, x->dim);
    Axis *along = axis_new(c, x->dim[axis]);
    all_axes(L, t, idx);
    Expr *to = idx[axis], *k = idx[axis] = e_axis(c, along);
    Expr *in_range = back ? e_le(c, e_add(c, to, one), k) : e_le(c, e_add(c, k, one), to);
    Expr *e = e_sel(c, in_range, ld(L, x, idx), e_num(c, x->dtype, product));
    return te_end(L, t, e_reduce(c, product ? R_PROD : R_SUM, 1, &along, e));
}

static void cumulate(Lower *L, bool product) {
    Cx *c = L->cx;
    Tensor *x = in(L, 0);
    Expr *param[] = {scalar_in(L, 1, "the axis"), e_int(c, attr_i(L, "exclusive", 0) != 0),
                     e_int(c, attr_i(L, "reverse", 0) != 0), e_int(c, product)};
    int64_t axis;
    if (e_is_int(param[0], &axis)) {
        axis = norm_axis(L, axis, x->rank);
        if (x->elem && !dtype_is_float(x->dtype)) {
            out(L, 0, cumulate_known(L, x, (int)axis, product));
            return;
        }
        param[0] = e_int(c, axis);
    }
    out(L, 0, ext_like(L, "cumulate", 1, &x, 4, param, x, "the axis is out of range"));
}

void lower_CumSum(Lower *L) { cumulate(L, false); }
void lower_CumProd(Lower *L) { cumulate(L, true); }

void lower_NonMaxSuppression(Lower *L) {
    Cx *c = L->cx;
    Tensor *t[] = {in(L, 0), in(L, 1), NULL, NULL};
    if (t[0]->rank != 3 || t[1]->rank != 3)
        fail(L, "boxes and scores have ranks %d and %d, not 3", t[0]->rank, t[1]->rank);
    check_eq(L, t[0]->dim[2], e_int(c, 4), "the last axis of boxes is not 4");
    check_eq(L, t[0]->dim[0], t[1]->dim[0], "boxes and scores have different batch sizes");
    check_eq(L, t[0]->dim[1], t[1]->dim[2], "boxes and scores differ in the number of boxes");
    int64_t center = attr_i(L, "center_point_box", 0);
    if (center != 0 && center != 1) fail(L, "center_point_box is neither 0 nor 1");
    for (int i = 2; i < 4; i++)
        if (has_in(L, i + 1)) {
            t[i] = in(L, i + 1);
            check_eq(L, count(L, t[i]), e_int(c, 1), "%s_threshold must have one element",
                     i == 2 ? "iou" : "score");
        }
    Expr *most = has_in(L, 2) ? scalar_in(L, 2, "max_output_boxes_per_class") : e_int(c, 0);
    most = e_max(c, e_int(c, 0), e_min(c, most, t[0]->dim[1]));
    Expr *param[] = {let(L, "most", most, 0), e_int(c, center)};
    Expr *lanes = e_mul(c, t[1]->dim[0], t[1]->dim[1]), *one = e_int(c, 1);
    Expr *dim[] = {e_mul(c, lanes, param[0]), e_int(c, 3)};
    Stmt *s = ext_begin(L, "nms", 4, t, 2, param);
    ext_out(L, s, DT_I64, 2, dim);
    ext_out(L, s, DT_I64, 1, &one);
    ext_end(L, s, "the boxes cannot be selected");
    Expr *n = let(L, "selected", uni(L, ext_result(L, s, 1), 0), 0);
    out(L, 0, head(L, ext_result(L, s, 0), n));
}

void lower_Det(Lower *L) {
    Tensor *x = in(L, 0);
    if (x->rank < 2) fail(L, "the input has rank %d, not 2 or more", x->rank);
    check_eq(L, x->dim[x->rank - 2], x->dim[x->rank - 1], "the matrices are not square");
    Stmt *s = ext_begin(L, "det", 1, &x, 0, NULL);
    ext_out(L, s, x->dtype, x->rank - 2, x->dim);
    ext_end(L, s, "the matrices are not square");
    out(L, 0, ext_result(L, s, 0));
}

void lower_MaxUnpool(Lower *L) {
    Cx *c = L->cx;
    Tensor *x = in(L, 0), *index = in(L, 1);
    int n = x->rank - 2, nk, ns, np;
    if (n < 1) fail(L, "the input has rank %d, not 3 or more", x->rank);
    if (index->rank != x->rank) fail(L, "the indices have rank %d, not %d", index->rank, x->rank);
    check_dims(L, x->rank, x->dim, index->dim, "the indices have a wrong size on axis %d");
    const int64_t *kernel = attr_ints(L, "kernel_shape", &nk);
    const int64_t *stride = attr_ints(L, "strides", &ns), *pad = attr_ints(L, "pads", &np);
    if (nk != n || (stride && ns != n) || (pad && np != 2 * n))
        fail(L, "kernel_shape, strides or pads do not fit %d spatial axes", n);
    Expr *dim[MAX_RANK] = {x->dim[0], x->dim[1]}, *total = e_int(c, 1);
    for (int i = 0; i < n; i++) {
        Expr *d = e_muli(c, e_addi(c, x->dim[i + 2], -1), stride ? stride[i] : 1);
        int64_t pads = pad ? pad[i] + pad[n + i] : 0;
        dim[i + 2] = e_addi(c, d, kernel[i] - pads);
        check_le(L, e_int(c, 0), dim[i + 2], "axis %d of the result is negative", i + 2);
    }
    for (int i = 0; i < x->rank; i++) total = e_mul(c, total, dim[i]);
    Tensor *zero = t_zeros(L, x->dtype, 1, &total);
    Tensor *t[] = {zero, t_flat(L, index), t_flat(L, x)};
    Expr *param[] = {e_int(c, 0), e_int(c, 0)};
    Tensor *y = ext_like(L, "scatter_elements", 3, t, 2, param, zero, "an index is out of range");
    y = t_reshape(L, y, x->rank, dim);
    if (has_in(L, 2)) { /* the indices are for the smaller shape; other elements stay zero */
        Tensor *shape = in(L, 2);
        check_eq(L, count(L, shape), e_int(c, x->rank), "output_shape must have %d elements",
                 x->rank);
        Expr *full[MAX_RANK], *idx[MAX_RANK], *inside = e_bool(c, true);
        for (int i = 0; i < x->rank; i++) {
            full[i] = uni_i64(L, shape, i);
            check_le(L, dim[i], full[i], "output_shape is too small on axis %d", i);
            full[i] = let(L, "size", full[i], 0);
        }
        Tensor *z = te_indexed(L, x->dtype, x->rank, full, idx);
        for (int i = 0; i < x->rank; i++) inside = e_and(c, inside, e_lt(c, idx[i], dim[i]));
        y = te_end(L, z, e_sel(c, inside, ld(L, y, idx), e_num(c, x->dtype, 0)));
    }
    out(L, 0, y);
}

/* ---- TfIdfVectorizer ------------------------------------------------------------------------- */
typedef struct Gram {
    const int64_t *item;
    int64_t length, number; /* position in the pool, counted in n-grams */
} Gram;

static int gram_order(const void *pa, const void *pb) {
    const Gram *a = pa, *b = pb;
    for (int64_t i = 0; i < a->length; i++)
        if (a->item[i] != b->item[i]) return a->item[i] < b->item[i] ? -1 : 1;
    return (a->number > b->number) - (a->number < b->number);
}

void lower_TfIdfVectorizer(Lower *L) {
    Cx *c = L->cx;
    Tensor *x = in(L, 0);
    int npool, ncount, nindex, nweight;
    static const char *const modes[] = {"TF", "IDF", "TFIDF"};
    const int64_t *pool = attr_ints(L, "pool_int64s", &npool);
    const int64_t *start = attr_ints(L, "ngram_counts", &ncount);
    const int64_t *index = attr_ints(L, "ngram_indexes", &nindex);
    const float *weight = attr_floats(L, "weights", &nweight);
    int64_t shortest = attr_i(L, "min_gram_length", 0), longest = attr_i(L, "max_gram_length", 0);
    int64_t skips = attr_i(L, "max_skip_count", -1), m, columns = 0, ngram = 0;
    if (attr_has(L, "pool_strings")) unsupported(L, "n-grams of strings");
    if (!attr_has(L, "mode")) fail(L, "mode is '', not TF, IDF or TFIDF");
    m = attr_choice(L, "mode", COUNT(modes), modes);
    if (x->rank > 2) fail(L, "the input has rank %d, not 1 or 2", x->rank);
    if (!pool || !start || !index || nindex < 1)
        fail(L, "pool_int64s, ngram_counts or ngram_indexes is missing");
    if (shortest < 1 || longest < shortest || longest > ncount)
        fail(L, "min_gram_length and max_gram_length do not fit ngram_counts");
    if (skips < 0 || skips > INT32_MAX) fail(L, "max_skip_count is out of range");
    for (int i = 0; i < nindex; i++) {
        if (index[i] < 0 || index[i] >= INT32_MAX) fail(L, "ngram_indexes[%d] is out of range", i);
        if (index[i] >= columns) columns = index[i] + 1;
    }
    int64_t *sorted = NEWN(L->a, int64_t, npool), *column = NEWN(L->a, int64_t, npool);
    float *gram_weight = NEWN(L->a, float, npool);
    if (weight && nweight != nindex) fail(L, "weights and ngram_indexes have different lengths");
    int64_t *table = NEWN(L->a, int64_t, ncount * 3), items = 0, grams = 0;
    for (int64_t len = 1; len <= ncount; len++) {
        int64_t from = start[len - 1], to = len < ncount ? start[len] : npool;
        if (from < 0 || to < from || to > npool || (to - from) % len)
            fail(L, "ngram_counts does not fit the pool at length %d", (int)len);
        int64_t n = (to - from) / len, *row = table + (len - 1) * 3;
        row[0] = grams, row[1] = items;
        Gram *g = NEWN(L->a, Gram, n);
        for (int64_t i = 0; i < n; i++) g[i] = (Gram){pool + from + i * len, len, ngram++};
        if (ngram > nindex) fail(L, "ngram_indexes has fewer entries than the pool has n-grams");
        if (n) qsort(g, (size_t)n, sizeof *g, gram_order);
        for (int64_t i = 0; i < n; i++) {
            size_t size = (size_t)len * sizeof *sorted;
            if (i + 1 < n && !memcmp(g[i].item, g[i + 1].item, size))
                continue; /* the last counts */
            memcpy(sorted + items, g[i].item, size);
            items += len;
            if (weight) gram_weight[grams] = weight[g[i].number];
            column[grams++] = index[g[i].number];
            row[2]++;
        }
    }
    int64_t table_dim[] = {ncount, 3};
    Tensor *t[] = {x, t_list(L, DT_I64, items, sorted), t_list(L, DT_I64, grams, column),
                   t_const(L, DT_I64, 2, table_dim, table),
                   weight ? t_list(L, DT_F32, grams, gram_weight) : NULL};
    Expr *param[] = {e_int(c, m), e_int(c, skips), e_int(c, shortest), e_int(c, longest)};
    Expr *dim[2] = {x->dim[0], e_int(c, columns)};
    bool rows = x->rank == 2;
    Stmt *s = ext_begin(L, "tfidf", 5, t, 4, param);
    ext_out(L, s, DT_F32, rows ? 2 : 1, rows ? dim : dim + 1);
    ext_end(L, s, "the n-grams cannot be counted");
    out(L, 0, ext_result(L, s, 0));
}
