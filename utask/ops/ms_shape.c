/* ms_shape.c: com.microsoft's operators on shapes and positions, and a few arithmetic ones, as ONNX
 * Runtime's documentation defines them. Those that equal ONNX's are next to their twins. */
#include "utask/ops/elementwise.h"
#include "utask/ops/lowerings.h"
#include "utask/ops/size.h"
#include "utask/ops/window.h"

#include <math.h>

/* Sums 8-bit values in 32 bits of the same signedness. */
void lower_ReduceSumInteger(Lower *L) {
    Tensor *x = in_needed(L, 0);
    int n;
    uint32_t mask = 0;
    const int64_t *axes = attr_ints(L, "axes", &n);
    if (dtype_size(x->dtype) != 1)
        fail(L, "the input must be int8 or uint8, not %s", dtype_name(x->dtype));
    if (n < 0 || !attr_has(L, "keepdims"))
        fail(L, "the attributes axes and keepdims must be given");
    for (int i = 0; i < n; i++) {
        uint32_t bit = 1u << norm_axis(L, axes[i], x->rank);
        if (mask & bit) fail(L, "an axis is given twice");
        mask |= bit;
    }
    Tensor *w = t_cast(L, x->dtype == DT_I8 ? DT_I32 : DT_U32, x);
    out(L, 0, mask ? t_reduce(L, R_SUM, w, mask, attr_i(L, "keepdims", 1) != 0) : w);
}

/* Distances between the rows of A and those of B. */
void lower_CDist(Lower *L) {
    Cx *c = L->cx;
    Tensor *a = in_needed(L, 0), *b = in_needed(L, 1);
    bool root = !strcmp(attr_s(L, "metric", "sqeuclidean"), "euclidean");
    if (a->rank != 2 || b->rank != 2)
        fail(L, "A and B must have rank 2, not %d and %d", a->rank, b->rank);
    check_eq(L, a->dim[1], b->dim[1], "A and B differ in the length of their rows");
    Expr *dim[2] = {a->dim[0], b->dim[0]};
    Tensor *y = te_begin(L, a->dtype, 2, dim);
    Axis *x = axis_new(c, better_dim(a->dim[1], b->dim[1]));
    Expr *k = e_axis(c, x);
    Expr *d = e_sub(c, ld(L, a, (Expr *[]){ax(L, y, 0), k}), ld(L, b, (Expr *[]){ax(L, y, 1), k}));
    Expr *sum = e_reduce(c, R_SUM, 1, &x, e_mul(c, d, d));
    out(L, 0, te_end(L, y, root ? e_un(c, E_SQRT, sum) : sum));
}

/* ---- MurmurHash3 ----------------------------------------------------------------------------- */

static Expr *u32(Lower *L, uint32_t v) { return e_ci(L->cx, DT_U32, v); }

static Expr *rotated(Lower *L, Expr *x, uint32_t by) {
    Cx *c = L->cx;
    return e_bin(c, E_OR, e_bin(c, E_SHL, x, u32(L, by)), e_bin(c, E_SHR, x, u32(L, 32 - by)));
}

/* x ^ (x >> by) */
static Expr *folded(Lower *L, Expr *x, uint32_t by) {
    return e_bin(L->cx, E_XOR, x, e_bin(L->cx, E_SHR, x, u32(L, by)));
}

/* The x86 32-bit variant, over the bytes of each element. */
void lower_MurmurHash3(Lower *L) {
    Cx *c = L->cx;
    Expr *v;
    Tensor *x = in_needed(L, 0);
    int size = (int)dtype_size(x->dtype);
    if (size < 4) fail(L, "elements must have 32 or 64 bits, not %s", dtype_name(x->dtype));
    int64_t seed = attr_i(L, "seed", 0);
    if (seed < 0 || seed > UINT32_MAX)
        fail(L, "seed must be between 0 and 2^32 - 1, not %lld", (long long)seed);
    DType type = attr_i(L, "positive", 1) ? DT_U32 : DT_I32;
    Tensor *y = te_like(L, type, x, &v);
    Expr *word[2] = {NULL, NULL};
    if (size == 8) {
        if (x->dtype != DT_U64) v = e_bitcast(c, DT_U64, v);
        word[0] = e_cast(c, DT_U32, e_bin(c, E_AND, v, e_ci(c, DT_U64, UINT32_MAX)));
        word[1] = e_cast(c, DT_U32, e_bin(c, E_SHR, v, e_ci(c, DT_U64, 32)));
    } else {
        word[0] = x->dtype == DT_U32 ? v : e_bitcast(c, DT_U32, v);
    }
    Expr *h = u32(L, (uint32_t)seed);
    for (int i = 0; i < size / 4; i++) {
        Expr *k = rotated(L, e_mul(c, word[i], u32(L, 0xcc9e2d51)), 15);
        h = rotated(L, e_bin(c, E_XOR, h, e_mul(c, k, u32(L, 0x1b873593))), 13);
        h = e_add(c, e_mul(c, h, u32(L, 5)), u32(L, 0xe6546b64));
    }
    h = folded(L, e_bin(c, E_XOR, h, u32(L, (uint32_t)size)), 16);
    h = folded(L, e_mul(c, h, u32(L, 0x85ebca6b)), 13);
    h = folded(L, e_mul(c, h, u32(L, 0xc2b2ae35)), 16);
    out(L, 0, te_end(L, y, type == DT_U32 ? h : e_bitcast(c, DT_I32, h)));
}

/* ---- NGramRepeatBlock ------------------------------------------------------------------------ */

/* Sets the scores of tokens that would repeat an n-gram of input_ids to -inf. */
void lower_NGramRepeatBlock(Lower *L) {
    Cx *c = L->cx;
    Tensor *ids = in_needed(L, 0), *scores = in_needed(L, 1);
    int64_t n = attr_i(L, "ngram_size", 0);
    if (n < 1 || n > INT32_MAX)
        fail(L, "ngram_size must be positive and below 2^31, not %lld", (long long)n);
    if (ids->rank != 2 || scores->rank != 2)
        fail(L, "input_ids and scores must have rank 2, not %d and %d", ids->rank, scores->rank);
    check_eq(L, ids->dim[0], scores->dim[0], "input_ids and scores differ in batch size");
    Expr *len = ids->dim[1], *zero = e_int(c, 0), *one = e_int(c, 1);
    Expr *dim[2] = {ids->dim[0], kmax(c, e_addi(c, len, 1 - n), zero)};

    Tensor *last = te_begin(L, DT_I64, 2, dim); /* the token that ends the n-gram at i; -1: none */
    Expr *b = ax(L, last, 0), *i = ax(L, last, 1), *same = e_bool(c, true);
    if (n > 1) {
        Axis *x = axis_new(c, e_int(c, n - 1));
        Expr *j = e_axis(c, x);
        Expr *here = ld(L, ids, (Expr *[]){b, e_add(c, i, j)});
        Expr *tail = ld(L, ids, (Expr *[]){b, e_add(c, e_addi(c, len, 1 - n), j)});
        same = e_reduce(c, R_AND, 1, &x, e_eq(c, here, tail));
    }
    Expr *token = ld(L, ids, (Expr *[]){b, e_addi(c, i, n - 1)});
    last = te_end(L, last, e_sel(c, same, token, e_int(c, -1)));

    Expr *v;
    Tensor *at = te_like(L, DT_I64, last, &v);
    at = te_end(L, at, e_max(c, v, zero));
    Tensor *most = te_like(L, DT_F32, last, &v);
    Expr *high = e_num(c, DT_F32, INFINITY), *low = e_num(c, DT_F32, -INFINITY);
    most = te_end(L, most, e_sel(c, e_lt(c, v, zero), high, low));
    Tensor *t[] = {scores, at, most};
    Expr *param[] = {one, e_int(c, 4)}; /* the axis; reduction by minimum */
    out(L, 0, ext_like(L, "scatter_elements", 3, t, 2, param, scores, "a token has no score"));
}

/* ---- CropAndResize --------------------------------------------------------------------------- */

/* The image position of element p of `size` in a crop from lo to hi of an axis [0, last]. */
static Expr *crop_position(Lower *L, Expr *p, Expr *size, Expr *lo, Expr *hi, Expr *last) {
    Cx *c = L->cx;
    DType t = (DType)last->dtype;
    Expr *gaps = e_addi(c, size, -1), *end = e_mul(c, hi, last), *start = e_mul(c, lo, last);
    Expr *step = e_div(c, e_mul(c, e_sub(c, hi, lo), last), e_cast(c, t, gaps));
    Expr *at = e_add(c, start, e_mul(c, e_cast(c, t, p), step));
    at = e_sel(c, e_eq(c, p, gaps), end, at);
    Expr *middle = e_mul(c, e_mul(c, e_num(c, t, 0.5), e_add(c, lo, hi)), last);
    return e_sel(c, e_lt(c, e_int(c, 1), size), at, middle);
}

void lower_CropAndResize(Lower *L) {
    Cx *c = L->cx;
    Tensor *x = in_needed(L, 0), *rois = in_needed(L, 1), *batch = in_needed(L, 2);
    bool nearest = !strcmp(attr_s(L, "mode", "bilinear"), "nearest");
    DType w = wide_float(x->dtype);
    check_regions(L, x, rois, batch);
    Vec size = vec_in(L, 3, 2, 2, "crop_size");
    if (size.n != 2) fail(L, "crop_size must have 2 elements, not %d", size.n);
    Expr *dim[4] = {rois->dim[0], x->dim[1], NULL, NULL};
    for (int i = 0; i < 2; i++) {
        dim[i + 2] = size_uni(L, "crop", vec_at(L, &size, i, NULL));
        check_le(L, e_int(c, 1), dim[i + 2], "crop_size must be positive");
        check_le(L, e_int(c, 1), x->dim[i + 2], "the image is empty");
    }
    Tensor *y = te_begin(L, x->dtype, 4, dim);
    Expr *roi = ax(L, y, 0), *inside = e_bool(c, true), *at[2][2], *part[2];
    Expr *zero = e_num(c, w, 0), *half = e_num(c, w, 0.5);
    for (int i = 0; i < 2; i++) {
        Expr *lo = e_cast(c, w, ld(L, rois, (Expr *[]){roi, e_int(c, i)}));
        Expr *hi = e_cast(c, w, ld(L, rois, (Expr *[]){roi, e_int(c, i + 2)}));
        Expr *last = e_cast(c, w, e_addi(c, x->dim[i + 2], -1));
        Expr *pos = crop_position(L, ax(L, y, i + 2), dim[i + 2], lo, hi, last);
        Expr *ok = e_and(c, e_le(c, zero, pos), e_le(c, pos, last));
        pos = e_sel(c, ok, pos, zero);
        inside = e_and(c, inside, ok);
        Expr *floor = e_un(c, E_FLOOR, nearest ? e_add(c, pos, half) : pos);
        Expr *most = e_addi(c, x->dim[i + 2], -1); /* a float may not represent it */
        at[i][0] = e_min(c, e_cast(c, DT_I64, floor), most);
        at[i][1] = e_min(c, e_cast(c, DT_I64, e_un(c, E_CEIL, pos)), most);
        part[i] = e_sub(c, pos, floor);
    }
    Expr *image = index_checked(L, ld(L, batch, &roi), x->dim[0], false, "axis 0 of input 0"),
         *v[4];
    for (int k = 0; k < (nearest ? 1 : 4); k++) {
        Expr *idx[4] = {image, ax(L, y, 1), at[0][k >> 1], at[1][k & 1]};
        v[k] = e_cast(c, w, ld(L, x, idx));
    }
    if (!nearest) {
        for (int k = 0; k < 4; k += 2)
            v[k] = e_add(c, v[k], e_mul(c, e_sub(c, v[k + 1], v[k]), part[1]));
        v[0] = e_add(c, v[0], e_mul(c, e_sub(c, v[2], v[0]), part[0]));
    }
    Expr *beyond = e_num(c, w, attr_f(L, "extrapolation_value", 0));
    out(L, 0, te_end(L, y, e_cast(c, x->dtype, e_sel(c, inside, v[0], beyond))));
}

/* ---- Inverse --------------------------------------------------------------------------------- */

/* Gauss-Jordan elimination of [A | 1], one column per step, with partial pivoting. */
void lower_Inverse(Lower *L) {
    Cx *c = L->cx;
    Tensor *x = in_needed(L, 0);
    int r = x->rank;
    DType t = wide_float(x->dtype);
    if (r < 2) fail(L, "the input has rank %d, not 2 or more", r);
    check_eq(L, x->dim[r - 2], x->dim[r - 1], "the matrices are not square");
    Expr *n = better_dim(x->dim[r - 2], x->dim[r - 1]), *dim[MAX_RANK], *idx[MAX_RANK];
    for (int i = 0; i < r; i++) dim[i] = i < r - 2 ? x->dim[i] : n;
    dim[r - 1] = e_muli(c, n, 2);
    Tensor *both = te_indexed(L, t, r, dim, idx);
    Expr *row = idx[r - 2], *col = idx[r - 1], *left = e_lt(c, col, n);
    Expr *unit = e_eq(c, e_sub(c, col, n), row), *zero = e_num(c, t, 0), *one = e_num(c, t, 1);
    idx[r - 1] = e_sel(c, left, col, e_int(c, 0));
    Expr *v = e_sel(c, left, e_cast(c, t, ld(L, x, idx)), e_sel(c, unit, one, zero));
    both = te_end(L, both, v);

    LoopB *loop = loop_begin(L, n);
    Expr *k = loop_iter(loop);
    Tensor *state = loop_carry(L, loop, both);

    Tensor *pivot = te_indexed(L, DT_I64, r - 2, dim, idx);
    Axis *down = axis_new(c, n);
    idx[r - 2] = e_axis(c, down);
    idx[r - 1] = k;
    Expr *size = e_un(c, E_ABS, ld(L, state, idx));
    size = e_sel(c, e_le(c, k, idx[r - 2]), size, e_num(c, t, -1));
    pivot = te_end(L, pivot, e_reduce(c, R_ARGMAX, 1, &down, size));

    Tensor *next = te_indexed(L, t, r, dim, idx);
    row = idx[r - 2];
    col = idx[r - 1];
    Expr *p = ld(L, pivot, idx), *is_k = e_eq(c, row, k);
    idx[r - 2] = p;
    Expr *scaled = ld(L, state, idx);
    idx[r - 1] = k;
    scaled = e_div(c, scaled, ld(L, state, idx));
    idx[r - 2] = e_sel(c, e_eq(c, row, p), k, row); /* swap the two rows */
    Expr *factor = ld(L, state, idx);
    idx[r - 1] = col;
    v = e_sub(c, ld(L, state, idx), e_mul(c, factor, scaled));
    next = te_end(L, next, e_sel(c, is_k, scaled, v));
    loop_next(L, loop, state, next);
    loop_end(L, loop);
    Tensor *y = t_slice(L, state, r - 1, n, e_int(c, 1), n);
    out(L, 0, t_cast(L, x->dtype, y));
}
