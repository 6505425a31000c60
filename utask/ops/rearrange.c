/* rearrange.c: DepthToSpace, SpaceToDepth, Col2Im, AffineGrid. */
#include "utask/ops/size.h"

static int64_t blocksize(Lower *L, Tensor *a) {
    int64_t b = attr_i(L, "blocksize", 0);
    if (a->rank != 4) fail(L, "the input has rank %d, it must have rank 4", a->rank);
    if (b < 1 || b > (1 << 15)) fail(L, "blocksize %lld is out of range", (long long)b);
    return b;
}

/* Both directions are a transpose over split axes: a tensor of rank 6 with affine indices. The
 * final merge of neighbouring axes is a free reshape. */
void lower_DepthToSpace(Lower *L) {
    Cx *c = L->cx;
    Tensor *a = in(L, 0);
    int64_t b = blocksize(L, a);
    bool crd = !strcmp(attr_s(L, "mode", "DCR"), "CRD");
    Expr *n = a->dim[0], *h = a->dim[2], *w = a->dim[3], *eb = e_int(c, b);
    Expr *ch = divided_dim(L, a->dim[1], e_int(c, b * b), "channels");
    Expr *dim[6] = {n, ch, h, eb, w, eb}, *idx[6];
    Tensor *o = te_indexed(L, a->dtype, 6, dim, idx);
    Expr *block = e_add(c, e_muli(c, idx[3], b), idx[5]);
    Expr *from =
        crd ? e_add(c, e_muli(c, idx[1], b * b), block) : e_add(c, e_mul(c, block, ch), idx[1]);
    o = te_end(L, o, ld(L, a, (Expr *[]){idx[0], from, idx[2], idx[4]}));
    out(L, 0, t_reshape(L, o, 4, (Expr *[]){n, ch, e_muli(c, h, b), e_muli(c, w, b)}));
}

void lower_SpaceToDepth(Lower *L) {
    Cx *c = L->cx;
    Tensor *a = in(L, 0);
    int64_t b = blocksize(L, a);
    Expr *n = a->dim[0], *ch = a->dim[1], *eb = e_int(c, b);
    Expr *h = divided_dim(L, a->dim[2], eb, "height"), *w = divided_dim(L, a->dim[3], eb, "width");
    /* The new channels: block row, block column, channel; with mode CRD the channel comes first. */
    int k = strcmp(attr_s(L, "mode", "DCR"), "CRD") == 0 ? 1 : 3, by = k == 1 ? 2 : 1;
    Expr *dim[6] = {n, eb, eb, eb, h, w}, *i[6];
    dim[k] = ch;
    Tensor *o = te_indexed(L, a->dtype, 6, dim, i);
    Expr *y = e_add(c, e_muli(c, i[4], b), i[by]), *x = e_add(c, e_muli(c, i[5], b), i[by + 1]);
    o = te_end(L, o, ld(L, a, (Expr *[]){i[0], i[k], y, x}));
    out(L, 0, t_reshape(L, o, 4, (Expr *[]){n, e_muli(c, ch, b * b), h, w}));
}

/* ---- Col2Im ---------------------------------------------------------------------------------- */

/* Attribute `name` with n entries (all dflt when absent), none below min. */
static void spatial(Lower *L, const char *name, int n, int64_t dflt, int64_t min, int64_t *v) {
    int k;
    const int64_t *p = attr_ints(L, name, &k);
    if (p && k != n) fail(L, "%s has %d entries instead of %d", name, k, n);
    for (int i = 0; i < n; i++) {
        v[i] = p ? p[i] : dflt;
        if (v[i] < min || v[i] > (INT64_C(1) << 40))
            fail(L, "%s has the entry %lld", name, (long long)v[i]);
    }
}

/* n spatial axes. Each pixel sums its values from all block positions that cover it. */
static Tensor *col2im(Lower *L, void *user, int n) {
    Cx *c = L->cx;
    Tensor *a = in(L, 0);
    int64_t stride[MAX_RANK], dil[MAX_RANK], pad[2 * MAX_RANK];
    (void)user;
    spatial(L, "strides", n, 1, 1, stride);
    spatial(L, "dilations", n, 1, 1, dil);
    spatial(L, "pads", 2 * n, 0, 0, pad);
    Expr *zero = e_int(c, 0), *nk = e_int(c, 1), *nb = nk, *dim[MAX_RANK], *block[MAX_RANK];
    Expr *cols[MAX_RANK]; /* number of block positions along each axis */
    for (int i = 0; i < n; i++) {
        dim[2 + i] = size_uni(L, "image", uni_i64(L, in(L, 1), i));
        block[i] = size_uni(L, "block", uni_i64(L, in(L, 2), i));
        check_lt(L, zero, block[i], "block_shape has a size of 0");
        Expr *span = e_addi(c, e_muli(c, e_addi(c, block[i], -1), dil[i]), 1);
        Expr *room = e_sub(c, e_addi(c, dim[2 + i], pad[i] + pad[n + i]), span);
        check_le(L, zero, room, "the block does not fit the image");
        cols[i] = size_uni(L, "blocks", e_addi(c, e_div(c, room, e_int(c, stride[i])), 1));
        nk = e_mul(c, nk, block[i]);
        nb = e_mul(c, nb, cols[i]);
    }
    check_eq(L, a->dim[2], nb, "the number of blocks does not fit image_shape and block_shape");
    dim[0] = a->dim[0];
    dim[1] = divided_dim(L, a->dim[1], nk, "channels");
    Tensor *o = te_begin(L, a->dtype, n + 2, dim);
    Axis *k[MAX_RANK];
    Expr *ke[MAX_RANK], *col[MAX_RANK], *hit = e_bool(c, true);
    for (int i = 0; i < n; i++) {
        k[i] = axis_new(c, block[i]);
        ke[i] = e_axis(c, k[i]);
        Expr *pos = e_sub(c, e_addi(c, ax(L, o, 2 + i), pad[i]), e_muli(c, ke[i], dil[i]));
        Expr *st = e_int(c, stride[i]);
        hit = e_and(c, hit, e_le(c, zero, pos));
        if (stride[i] > 1) hit = e_and(c, hit, e_eq(c, e_bin(c, E_MOD, pos, st), zero));
        col[i] = stride[i] > 1 ? e_div(c, pos, st) : pos;
        hit = e_and(c, hit, e_lt(c, col[i], cols[i]));
    }
    Expr *ch = e_add(c, e_mul(c, ax(L, o, 1), nk), flat_index(L, n, block, ke));
    Expr *v = ld(L, a, (Expr *[]){ax(L, o, 0), ch, flat_index(L, n, cols, col)});
    v = e_sel(c, hit, v, e_num(c, a->dtype, 0));
    return te_end(L, o, e_reduce(c, R_SUM, n, k, v));
}

void lower_Col2Im(Lower *L) {
    int want = out_rank(L, 0) - 2, most = MAX_RANK - 2;
    if (in(L, 0)->rank != 3) fail(L, "the input has rank %d, it must have rank 3", in(L, 0)->rank);
    Vec image = vec_in(L, 1, want > most ? -1 : want, most, "image_shape");
    Vec block = vec_in(L, 2, image.n, most, "block_shape");
    check_eq(L, image.len, block.len, "image_shape and block_shape differ in length");
    out(L, 0,
        for_each_size(L, image.n < 0 ? block.len : image.len, 0, most, col2im, NULL,
                      "the length of image_shape"));
}

/* ---- AffineGrid ------------------------------------------------------------------------------ */

static Tensor *affine_grid(Lower *L, void *user, int n) {
    Cx *c = L->cx;
    Tensor *theta = in(L, 0);
    bool corners = attr_i(L, "align_corners", 0) != 0;
    (void)user;
    check_eq(L, theta->dim[1], e_int(c, n), "theta does not fit the number of axes");
    check_eq(L, theta->dim[2], e_int(c, n + 1), "theta does not fit the number of axes");
    Expr *dim[5], *size = size_uni(L, "size", uni_i64(L, in(L, 1), 0));
    check_eq(L, theta->dim[0], size, "theta does not fit the batch");
    dim[0] = better_dim(theta->dim[0], size);
    for (int i = 0; i < n; i++) dim[1 + i] = size_uni(L, "size", uni_i64(L, in(L, 1), 2 + i));
    dim[1 + n] = e_int(c, n);
    DType dt = theta->dtype, work = dt == DT_F64 ? DT_F64 : DT_F32;
    Tensor *o = te_begin(L, dt, n + 2, dim);
    Expr *at[3] = {ax(L, o, 0), ax(L, o, n + 1), e_int(c, n)};
    Expr *sum = e_cast(c, work, ld(L, theta, at)), *one = e_num(c, work, 1);
    for (int i = 0; i < n; i++) { /* column i of theta belongs to the i-th axis from the end */
        Expr *pos = ax(L, o, n - i), *len = dim[n - i], *x;
        if (corners) /* -1 … 1 at the centres; a single pixel is at -1 */
            x = e_div(c, e_cast(c, work, e_muli(c, pos, 2)),
                      e_cast(c, work, kmax(c, e_addi(c, len, -1), e_int(c, 1))));
        else
            x = e_div(c, e_cast(c, work, e_addi(c, e_muli(c, pos, 2), 1)), e_cast(c, work, len));
        at[2] = e_int(c, i);
        sum = e_add(c, sum, e_mul(c, e_cast(c, work, ld(L, theta, at)), e_sub(c, x, one)));
    }
    return te_end(L, o, e_cast(c, dt, sum));
}

void lower_AffineGrid(Lower *L) {
    Tensor *theta = in(L, 0);
    if (theta->rank != 3) fail(L, "theta has rank %d, it must have rank 3", theta->rank);
    Vec size = vec_in(L, 1, -1, 5, "size");
    if (size.n >= 0 && size.n != 4 && size.n != 5) fail(L, "size must have 4 or 5 elements");
    check_eq(L, size.len, e_addi(L->cx, theta->dim[1], 2), "theta does not fit the number of axes");
    out(L, 0,
        for_each_size(L, size.n < 0 ? theta->dim[1] : e_int(L->cx, size.n - 2), 2, 3, affine_grid,
                      NULL, "the number of axes"));
}
