/* layout.c: blocks and pixels, sampling grids, rotary embedding. */
#include "utask/ops/size.h"

/* dim / k where k must divide it. */
static Expr *divided(Lower *L, Expr *dim, Expr *k, const char *what) {
    Cx *c = L->cx;
    check(L, e_eq(c, e_bin(c, E_MOD, dim, k), e_int(c, 0)),
          "the size of the %s, %s, is no multiple of %s", what, said(L, dim), said(L, k));
    return size_uni(L, "part", e_div(c, dim, k));
}

static int64_t blocksize(Lower *L, Tensor *a) {
    int64_t b = attr_i(L, "blocksize", 0);
    if (a->rank != 4) fail(L, "the input has rank %d, it must have rank 4", a->rank);
    if (b < 1 || b > (1 << 15)) fail(L, "blocksize is %lld", (long long)b);
    return b;
}

/* Both are one transposition over split axes: as a tensor of rank 6 with affine indices whose last
 * step, merging neighbouring axes, is a reshape that costs nothing. */
void lower_DepthToSpace(Lower *L) {
    Cx *c = L->cx;
    Tensor *a = in(L, 0);
    int64_t b = blocksize(L, a);
    const char *mode = attr_s(L, "mode", "DCR");
    bool crd = !strcmp(mode, "CRD");
    if (!crd && strcmp(mode, "DCR")) fail(L, "unknown mode \"%s\"", mode);
    Expr *n = a->dim[0], *h = a->dim[2], *w = a->dim[3], *eb = e_int(c, b);
    Expr *ch = divided(L, a->dim[1], e_int(c, b * b), "channels");
    Expr *dim[6] = {n, ch, h, eb, w, eb}, *idx[6];
    Tensor *o = te_begin(L, a->dtype, 6, dim);
    all_axes(L, o, idx);
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
    Expr *h = divided(L, a->dim[2], eb, "height"), *w = divided(L, a->dim[3], eb, "width");
    Expr *dim[6] = {n, eb, eb, ch, h, w}, *i[6];
    Tensor *o = te_begin(L, a->dtype, 6, dim);
    all_axes(L, o, i);
    Expr *y = e_add(c, e_muli(c, i[4], b), i[1]), *x = e_add(c, e_muli(c, i[5], b), i[2]);
    o = te_end(L, o, ld(L, a, (Expr *[]){i[0], i[3], y, x}));
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

/* Each pixel gathers its share of every block position that covers it. */
void lower_Col2Im(Lower *L) {
    Cx *c = L->cx;
    Tensor *a = in(L, 0);
    int n = param_len(L, 1, MAX_RANK - 2, "image_shape");
    int64_t stride[MAX_RANK], dil[MAX_RANK], pad[2 * MAX_RANK];
    if (a->rank != 3) fail(L, "the input has rank %d, it must have rank 3", a->rank);
    if (param_len(L, 2, n, "block_shape") != n)
        fail(L, "image_shape and block_shape differ in length");
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
    dim[1] = divided(L, a->dim[1], nk, "channels");
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
    out(L, 0, te_end(L, o, e_reduce(c, R_SUM, n, k, v)));
}

/* ---- AffineGrid ------------------------------------------------------------------------------ */

void lower_AffineGrid(Lower *L) {
    Cx *c = L->cx;
    Tensor *theta = in(L, 0);
    int n = param_len(L, 1, 5, "size") - 2;
    bool corners = attr_i(L, "align_corners", 0) != 0;
    if (n != 2 && n != 3) fail(L, "size must have 4 or 5 elements");
    if (theta->rank != 3) fail(L, "theta has rank %d, it must have rank 3", theta->rank);
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
    for (int i = 0; i < n; i++) { /* column i of theta goes with the i-th axis from the end */
        Expr *pos = ax(L, o, n - i), *len = dim[n - i], *x;
        if (corners) /* -1 … 1 at the centres; a single pixel lies at -1 */
            x = e_div(c, e_cast(c, work, e_muli(c, pos, 2)),
                      e_cast(c, work, kmax(c, e_addi(c, len, -1), e_int(c, 1))));
        else
            x = e_div(c, e_cast(c, work, e_addi(c, e_muli(c, pos, 2), 1)), e_cast(c, work, len));
        at[2] = e_int(c, i);
        sum = e_add(c, sum, e_mul(c, e_cast(c, work, ld(L, theta, at)), e_sub(c, x, one)));
    }
    out(L, 0, te_end(L, o, e_cast(c, dt, sum)));
}

/* ---- RotaryEmbedding ------------------------------------------------------------------------- */

/* cos or sin of the rotation of pair p at (batch, position). */
static Expr *cache_at(Lower *L, Tensor *cache, Tensor *ids, Expr *batch, Expr *pos, Expr *p) {
    if (!ids) return ld(L, cache, (Expr *[]){batch, pos, p});
    Expr *id = e_cast(L->cx, DT_I64, ld(L, ids, (Expr *[]){batch, pos}));
    return ld(
        L, cache,
        (Expr *[]){
            index_checked(L, id, cache->dim[0], false, "axis 0 of the caches (position_ids)"), p});
}

void lower_RotaryEmbedding(Lower *L) {
    Cx *c = L->cx;
    Tensor *x = in(L, 0), *ids = in(L, 3), *cache[2] = {in(L, 1), in(L, 2)}, *part[3];
    int64_t heads = attr_i(L, "num_heads", 0), rd = attr_i(L, "rotary_embedding_dim", 0);
    bool inter = attr_i(L, "interleaved", 0) != 0, flat = x->rank == 3;
    Expr *whole[3], *dim[4], *idx[4];
    if (x->rank != 3 && x->rank != 4)
        fail(L, "the input has rank %d, it must have rank 3 or 4", x->rank);
    if (flat) { /* [batch, position, heads * size] */
        if (heads < 1 || heads > (1 << 30)) fail(L, "num_heads is %lld", (long long)heads);
        memcpy(whole, x->dim, sizeof whole);
        Expr *size = divided(L, x->dim[2], e_int(c, heads), "last axis");
        x = t_reshape(L, x, 4, (Expr *[]){x->dim[0], x->dim[1], e_int(c, heads), size});
    }
    int sa = flat ? 1 : 2; /* the axis of positions */
    Expr *size = x->dim[3];
    if (rd < 0 || rd > (1 << 30) || rd % 2) fail(L, "rotary_embedding_dim is %lld", (long long)rd);
    Expr *rot = rd ? e_int(c, rd) : size;
    if (rd) check_le(L, rot, size, "rotary_embedding_dim is larger than a head");
    Expr *half = divided(L, rot, e_int(c, 2), "head");
    for (int i = 0; i < 2; i++) {
        Tensor *t = cache[i];
        if (t->rank != (ids ? 2 : 3)) fail(L, "a cache has rank %d", t->rank);
        check_eq(L, t->dim[t->rank - 1], half, "a cache does not fit the rotated size");
        if (ids) continue;
        check_eq(L, t->dim[0], x->dim[0], "a cache does not fit the batch");
        check_eq(L, t->dim[1], x->dim[sa], "a cache does not fit the positions");
    }
    if (ids) {
        if (ids->rank != 2) fail(L, "position_ids has rank %d, it must have rank 2", ids->rank);
        check_eq(L, ids->dim[0], x->dim[0], "position_ids does not fit the batch");
        check_eq(L, ids->dim[1], x->dim[sa], "position_ids does not fit the positions");
    }
    memcpy(dim, x->dim, sizeof dim);
    dim[3] = half;
    for (int i = 0; i < 2; i++) { /* real and imaginary parts */
        Tensor *o = te_begin(L, x->dtype, 4, dim);
        all_axes(L, o, idx);
        Expr *p = idx[3], *cs = cache_at(L, cache[0], ids, idx[0], idx[sa], p);
        Expr *sn = cache_at(L, cache[1], ids, idx[0], idx[sa], p);
        idx[3] = inter ? e_muli(c, p, 2) : p;
        Expr *x1 = ld(L, x, idx);
        idx[3] = inter ? e_addi(c, idx[3], 1) : e_add(c, p, half);
        Expr *x2 = ld(L, x, idx);
        part[i] = te_end(L, o,
                         i == 0 ? e_sub(c, e_mul(c, cs, x1), e_mul(c, sn, x2))
                                : e_add(c, e_mul(c, sn, x1), e_mul(c, cs, x2)));
    }
    Tensor *y;
    if (inter) {
        for (int i = 0; i < 2; i++) part[i] = t_unsqueeze(L, part[i], 4);
        dim[3] = rot;
        y = t_reshape(L, t_concat(L, 2, part, 4), 4, dim);
    } else {
        y = t_concat(L, 2, part, 3);
    }
    if (rot != size) {
        Expr *rest = size_uni(L, "rest", e_sub(c, size, rot));
        part[0] = y;
        part[1] = t_slice(L, x, 3, rot, e_int(c, 1), rest);
        y = t_concat(L, 2, part, 3);
    }
    out(L, 0, flat ? t_reshape(L, y, 3, whole) : y);
}
