/* gather.c: operators that select elements by indices from data. */
#include "utask/ops/size.h"

/* Element idx of the indices t as a checked position in [0, extent) of an axis; if neg, negative
 * indices count from the end. A single element is read and checked once, as a uniform value. */
static Expr *index_at(Lower *L, Tensor *t, Expr **idx, int axis, Expr *extent, bool neg) {
    Cx *c = L->cx;
    if (count_const(t) != 1)
        return index_checked(L, ld(L, t, idx), extent, neg, "axis %d of %s", axis, in_text(L, 0));
    Expr *i = uni_i64(L, t, 0), *zero = e_int(c, 0);
    Expr *low = neg ? e_muli(c, extent, -1) : zero;
    check(L, e_and(c, e_le(c, low, i), e_lt(c, i, extent)),
          "index %s is outside [%s, %s), axis %d of %s", said(L, i), said(L, low), said(L, extent),
          axis, in_text(L, 0));
    if (neg) i = e_sel(c, e_lt(c, i, zero), e_add(c, i, extent), i);
    return is_simple(i) && ge_const(i, 0) ? i : let(L, "index", i, 0);
}

static void result_rank(Lower *L, int rank) {
    if (rank > MAX_RANK)
        unsupported(L, "the result has rank %d, at most %d is possible", rank, MAX_RANK);
}

void lower_Gather(Lower *L) {
    Tensor *a = in(L, 0), *ix = in(L, 1);
    int axis = norm_axis(L, attr_i(L, "axis", 0), a->rank), r = a->rank + ix->rank - 1, n = 0;
    Expr *dim[2 * MAX_RANK], *at[MAX_RANK], *idx[MAX_RANK];
    result_rank(L, r);
    for (int i = 0; i < axis; i++) dim[n++] = a->dim[i];
    for (int i = 0; i < ix->rank; i++) dim[n++] = ix->dim[i];
    for (int i = axis + 1; i < a->rank; i++) dim[n++] = a->dim[i];
    Tensor *o = te_begin(L, a->dtype, r, dim);
    for (int i = 0; i < ix->rank; i++) at[i] = ax(L, o, axis + i);
    for (int i = 0; i < a->rank; i++)
        idx[i] = i < axis    ? ax(L, o, i)
                 : i == axis ? index_at(L, ix, at, axis, a->dim[axis], true)
                             : ax(L, o, i + ix->rank - 1);
    out(L, 0, te_end(L, o, ld(L, a, idx)));
}

void lower_GatherElements(Lower *L) {
    Tensor *a = in(L, 0), *ix = in(L, 1);
    int r = a->rank, axis = norm_axis(L, attr_i(L, "axis", 0), r);
    Expr *idx[MAX_RANK];
    if (ix->rank != r) fail(L, "the data has rank %d and the indices rank %d", r, ix->rank);
    for (int i = 0; i < r; i++)
        if (i != axis && ix->dim[i] != a->dim[i])
            check_le(L, ix->dim[i], a->dim[i], "the indices are larger than the data along axis %d",
                     i);
    Tensor *o = te_indexed(L, a->dtype, r, ix->dim, idx);
    idx[axis] = index_at(L, ix, idx, axis, a->dim[axis], true);
    out(L, 0, te_end(L, o, ld(L, a, idx)));
}

/* GatherND with index tuples of length k; *user: the number of batch axes. */
static Tensor *gather_tuples(Lower *L, void *user, int k) {
    Tensor *a = in(L, 0), *ix = in(L, 1);
    int r = a->rank, q = ix->rank, n = 0, b = *(const int *)user;
    int tail = b + k; /* first axis of data that is copied whole */
    Expr *dim[2 * MAX_RANK], *at[MAX_RANK], *idx[MAX_RANK];
    result_rank(L, q - 1 + r - tail);
    for (int i = 0; i < q - 1; i++) {
        dim[n++] = ix->dim[i];
        if (i < b) {
            check_eq(L, a->dim[i], ix->dim[i], "the batch sizes differ on axis %d", i);
            dim[i] = better_dim(a->dim[i], ix->dim[i]);
        }
    }
    for (int i = tail; i < r; i++) dim[n++] = a->dim[i];
    Tensor *o = te_begin(L, a->dtype, n, dim);
    for (int i = 0; i < q - 1; i++) at[i] = ax(L, o, i);
    for (int i = 0; i < r; i++) {
        if (i < b) {
            idx[i] = ax(L, o, i);
        } else if (i < tail) {
            at[q - 1] = e_int(L->cx, i - b);
            idx[i] =
                index_checked(L, ld(L, ix, at), a->dim[i], true, "axis %d of %s", i, in_text(L, 0));
        } else {
            idx[i] = ax(L, o, i - tail + q - 1);
        }
    }
    return te_end(L, o, ld(L, a, idx));
}

void lower_GatherND(Lower *L) {
    Tensor *a = in(L, 0), *ix = in(L, 1);
    int r = a->rank, q = ix->rank;
    int64_t b = attr_i(L, "batch_dims", 0);
    if (q < 1 || r < 1) fail(L, "data and indices must have rank 1 or more");
    if (b < 0 || b >= q || b >= r) fail(L, "batch_dims %lld is out of range", (long long)b);
    int batch = (int)b, least = 1, most = r - batch, k = q - 1 + most - out_rank(L, 0);
    bool settled = out_rank(L, 0) >= 0 && k >= least && k <= most;
    if (settled && !e_is_int(ix->dim[q - 1], &(int64_t){0})) least = most = k;
    out(L, 0,
        for_each_size(L, ix->dim[q - 1], least, most, gather_tuples, &batch,
                      "the length of the index tuples"));
}

void lower_ReverseSequence(Lower *L) {
    Cx *c = L->cx;
    Tensor *a = in(L, 0), *lens = in(L, 1);
    int64_t time = attr_i(L, "time_axis", 0), batch = attr_i(L, "batch_axis", 1);
    Expr *idx[MAX_RANK];
    if (a->rank < 2) fail(L, "the input has rank %d, it must have at least 2", a->rank);
    if (time < 0 || time > 1 || batch != 1 - time)
        fail(L, "time_axis and batch_axis must be 0 and 1 or 1 and 0");
    if (lens->rank != 1) fail(L, "sequence_lens has rank %d, it must have rank 1", lens->rank);
    check_eq(L, a->dim[batch], lens->dim[0], "sequence_lens does not fit the batch");
    Tensor *o = te_indexed(L, a->dtype, a->rank, a->dim, idx);
    Expr *t = idx[time], *n = e_cast(c, DT_I64, ld(L, lens, &idx[batch]));
    Expr *mirror = index_checked(L, e_sub(c, e_addi(c, n, -1), t), a->dim[time], false,
                                 "axis %d of %s (sequence_lens)", (int)time, in_text(L, 0));
    idx[time] = e_sel(c, e_lt(c, t, n), mirror, t);
    out(L, 0, te_end(L, o, ld(L, a, idx)));
}

void lower_TensorScatter(Lower *L) {
    Cx *c = L->cx;
    Tensor *past = in(L, 0), *upd = in(L, 1), *at = in(L, 2);
    bool circular = !strcmp(attr_s(L, "mode", "linear"), "circular");
    int r = past->rank, axis = norm_axis(L, attr_i(L, "axis", -2), r);
    Expr *idx[MAX_RANK], *into[MAX_RANK], *zero = e_int(c, 0);
    if (axis == 0) fail(L, "axis must not be the batch axis");
    if (upd->rank != r) fail(L, "the cache has rank %d and the update rank %d", r, upd->rank);
    for (int i = 0; i < r; i++)
        if (i != axis) check_eq(L, past->dim[i], upd->dim[i], "the update does not fit the cache");
    Expr *max = past->dim[axis], *len = upd->dim[axis];
    check_le(L, len, max, "the update is longer than the cache");
    if (at && at->rank != 1) fail(L, "write_indices has rank %d, it must have rank 1", at->rank);
    if (at) check_eq(L, past->dim[0], at->dim[0], "write_indices does not fit the batch");
    Tensor *o = te_indexed(L, past->dtype, r, past->dim, idx);
    memcpy(into, idx, sizeof idx[0] * (size_t)r);
    Expr *w = zero;
    if (at && circular)
        w = e_cast(c, DT_I64, ld(L, at, idx));
    else if (at) /* the last position where the update fits is max - len */
        w = index_at(L, at, idx, axis, e_addi(c, e_sub(c, max, len), 1), false);
    Expr *rel = e_sub(c, idx[axis], w), *hit;
    if (circular) rel = e_bin(c, E_MOD, rel, max);
    hit = e_lt(c, rel, len);
    if (!circular) hit = e_and(c, e_le(c, zero, rel), hit);
    into[axis] = rel;
    out(L, 0, te_end(L, o, e_sel(c, hit, ld(L, upd, into), ld(L, past, idx))));
}

void lower_OneHot(Lower *L) {
    Cx *c = L->cx;
    Tensor *ix = in(L, 0), *vals = in(L, 2);
    int r = ix->rank + 1;
    Expr *dim[MAX_RANK], *at[MAX_RANK];
    result_rank(L, r);
    int axis = norm_axis(L, attr_i(L, "axis", -1), r);
    check_eq(L, count(L, vals), e_int(c, 2), "values must be two numbers");
    Expr *depth = size_uni(L, "depth", e_cast(c, DT_I64, scalar_uni(L, 1, "depth")));
    for (int i = 0; i < r; i++) dim[i] = i < axis ? ix->dim[i] : i == axis ? depth : ix->dim[i - 1];
    Tensor *o = te_begin(L, vals->dtype, r, dim);
    for (int i = 0; i < ix->rank; i++) at[i] = ax(L, o, i < axis ? i : i + 1);
    Expr *v = e_cast(c, DT_I64, ld(L, ix, at));
    /* an index out of range matches nothing */
    v = e_sel(c, e_lt(c, v, e_int(c, 0)), e_add(c, v, depth), v);
    Expr *hit = e_eq(c, v, ax(L, o, axis));
    out(L, 0, te_end(L, o, e_sel(c, hit, uni(L, vals, 1), uni(L, vals, 0))));
}
