/* move.c: operators that move whole blocks: transpose, concatenate, slice, pad, repeat. */
#include "utask/ops/size.h"

void lower_Transpose(Lower *L) {
    Tensor *a = in(L, 0);
    int n, perm[MAX_RANK], r = a->rank;
    const int64_t *p = attr_ints(L, "perm", &n);
    uint32_t seen = 0;
    if (p && n != r) fail(L, "perm has %d entries for a tensor of rank %d", n, r);
    for (int i = 0; i < r; i++) {
        perm[i] = p ? norm_axis(L, p[i], r) : r - 1 - i;
        seen |= 1u << perm[i];
    }
    if (seen != (1u << r) - 1) fail(L, "perm is not a permutation");
    out(L, 0, t_transpose(L, a, perm));
}

Tensor *t_join(Lower *L, int n, Tensor *const *t, int64_t along) {
    Tensor **part = NEWN(L->a, Tensor *, n);
    int used = 0, r = t[0]->rank, axis = norm_axis(L, along, r);
    for (int i = 0; i < n; i++) {
        if (t[i]->rank != r) fail(L, "tensor %d has rank %d, the first has %d", i, t[i]->rank, r);
        for (int j = 0; j < r; j++)
            if (j != axis)
                check_eq(L, t[0]->dim[j], t[i]->dim[j], "inputs 0 and %d differ on axis %d", i, j);
        if (!e_is_ival(t[i]->dim[axis], 0)) part[used++] = t[i];
    }
    return used == 0 ? t[0] : used == 1 ? part[0] : t_concat(L, used, part, axis);
}

void lower_Concat(Lower *L) {
    int n = L->node->nin;
    Tensor **t = NEWN(L->a, Tensor *, n);
    if (!node_attr(L->node, "axis")) fail(L, "the attribute axis is missing");
    for (int i = 0; i < n; i++) t[i] = in_needed(L, i);
    out(L, 0, t_join(L, n, t, attr_i(L, "axis", 0)));
}

void lower_Split(Lower *L) {
    Cx *c = L->cx;
    Tensor *a = in(L, 0);
    int axis = norm_axis(L, attr_i(L, "axis", 0), a->rank), nout = L->node->nout;
    Expr *dim = a->dim[axis], *zero = e_int(c, 0), *at = zero;
    Expr **size = NEWN(L->a, Expr *, nout + 1);
    if (has_in(L, 1)) {
        if (vec_in(L, 1, nout, nout, "split").n != nout)
            fail(L, "the split input must have one size for each of the %d outputs", nout);
        Expr *sum = zero;
        for (int i = 0; i < nout; i++) {
            size[i] = size_uni(L, "split", uni_i64(L, in(L, 1), i));
            sum = e_add(c, sum, size[i]);
        }
        Sb pieces = {.a = L->a};
        L->nsaid = 0;
        const char *whole = said(L, dim);
        for (int i = 0; i < nout && i < 12; i++)
            sb_printf(&pieces, i ? " + %s" : "%s", i == 11 ? "..." : said(L, size[i]));
        check_eq(L, sum, dim, "cannot split axis %d of size %s into pieces of %s", axis, whole,
                 pieces.p);
    } else {
        int64_t n = attr_i(L, "num_outputs", nout);
        if (n < nout || n > (1 << 30))
            fail(L, "num_outputs is %lld for %d outputs", (long long)n, nout);
        Expr *rest = e_bin(c, E_MOD, dim, e_int(c, n));
        if (e_is_ival(rest, 0) || !attr_has(L, "num_outputs")) {
            check(L, e_eq(c, rest, zero), "cannot split axis %d of size %s into %lld equal parts",
                  axis, said(L, dim), (long long)n);
            Expr *each = size_uni(L, "split", e_div(c, dim, e_int(c, n)));
            for (int i = 0; i < nout; i++) size[i] = each;
        } else { /* equal parts, except that the last ones get the remainder */
            Expr *each = size_uni(L, "split", e_div(c, e_addi(c, dim, n - 1), e_int(c, n)));
            for (int i = 0; i < nout; i++) {
                Expr *left = kmax(c, e_sub(c, dim, e_muli(c, each, i)), zero);
                size[i] = size_uni(L, "split", kmin(c, each, left));
            }
        }
    }
    for (int i = 0; i < nout; i++) {
        if (wants_out(L, i)) out(L, i, t_slice(L, a, axis, at, e_int(c, 1), size[i]));
        at = e_add(c, at, size[i]);
    }
}

/* ---- Slice ----------------------------------------------------------------------------------- */

/* Bounds at least this far out mean "to the end" (as does INT32_MAX, by the operator's text);
 * smaller ones can be added to sizes without overflow. */
#define FAR (INT64_C(1) << 60)

/* v counted from the start: negative values count from the end. */
static Expr *from_start(Cx *c, Expr *v, Expr *dim) {
    int64_t lo, hi;
    if (e_range(v, &lo, &hi) && lo >= 0) return v;
    if (e_range(v, &lo, &hi) && hi < 0) return e_add(c, dim, v);
    return e_sel(c, e_lt(c, v, e_int(c, 0)), e_add(c, dim, v), v);
}

static Expr *between(Cx *c, Expr *lo, Expr *v, Expr *hi) { return kmin(c, kmax(c, v, lo), hi); }

/* start : end of an axis of size dim, forward: the effective start; *n becomes the distance. */
static Expr *forward(Cx *c, Expr *dim, Expr *start, Expr *end, Expr **n) {
    Expr *zero = e_int(c, 0), *s, *e;
    int64_t sv, ev;
    bool sc = e_is_int(start, &sv), ec = e_is_int(end, &ev), to_end = false;
    if (ec && (ev == INT32_MAX || ev >= FAR)) {
        e = dim;
        to_end = true;
    } else if (ec) { /* a negative result gives an empty slice, as 0 would */
        e = ev >= 0 ? kmin(c, end, dim) : e_add(c, dim, end);
        to_end = e == dim;
    } else {
        e = between(c, zero, from_start(c, end, dim), dim);
        to_end = end == dim;
    }
    if (sc && sv < 0) {
        s = kmax(c, e_add(c, dim, start), zero);
        if (to_end) { /* the last -sv elements */
            *n = kmin(c, dim, e_int(c, sv < -FAR ? FAR : -sv));
            return s;
        }
    } else if (sc) { /* a start beyond the end gives an empty slice */
        s = start;
    } else {
        s = between(c, zero, from_start(c, start, dim), dim);
    }
    *n = kmax(c, e_sub(c, e, s), zero);
    return s;
}

static Expr *backward(Cx *c, Expr *dim, Expr *start, Expr *end, Expr **n) {
    Expr *zero = e_int(c, 0), *minus = e_int(c, -1), *last = e_addi(c, dim, -1), *s, *e;
    int64_t sv, ev;
    if (e_is_int(start, &sv) && (sv == -1 || sv == INT32_MAX || sv >= FAR))
        s = last;
    else
        s = kmin(c, kmax(c, from_start(c, start, dim), zero), last);
    if (e_is_int(end, &ev) && (ev == INT32_MIN || ev <= -FAR))
        e = minus;
    else if (e_is_int(end, &ev) && ev >= 0) /* beyond the end the slice is empty */
        e = end;
    else
        e = between(c, minus, from_start(c, end, dim), last);
    *n = kmax(c, e_sub(c, s, e), zero);
    return s;
}

/* start : end : step of one axis as first index, step and number of elements. */
typedef struct Cut {
    Expr *start, *step, *len;
} Cut;

static Cut cut_axis(Lower *L, Expr *dim, Expr *start, Expr *end, Expr *step) {
    Cx *c = L->cx;
    Expr *zero = e_int(c, 0), *n;
    Cut r;
    int64_t st, v;
    /* Clamping huge constants changes nothing and keeps arithmetic in range. */
    if (e_is_int(start, &v)) start = clamp_i(c, start, -FAR - 1, FAR);
    if (e_is_int(end, &v)) end = clamp_i(c, end, -FAR - 1, FAR);
    step = clamp_i(c, step, -FAR, FAR);
    if (e_is_int(step, &st)) {
        if (st == 0) fail(L, "a step is 0");
        r.start = st > 0 ? forward(c, dim, start, end, &n) : backward(c, dim, start, end, &n);
        int64_t abs = st > 0 ? st : -st;
        r.len = abs == 1 ? n : e_div(c, e_addi(c, n, abs - 1), e_int(c, abs));
        r.step = step;
    } else {
        check(L, e_not(c, e_eq(c, step, zero)), "a step is 0");
        r.step = step = let(L, "step", step, -FAR);
        Expr *pos = e_lt(c, zero, step), *nf, *nb, *abs;
        Expr *f = forward(c, dim, start, end, &nf), *b = backward(c, dim, start, end, &nb);
        r.start = e_sel(c, pos, f, b);
        abs = e_max(c, e_sel(c, pos, step, e_sub(c, zero, step)), e_int(c, 1));
        n = e_sel(c, pos, nf, nb);
        r.len = e_div(c, e_sub(c, e_add(c, n, abs), e_int(c, 1)), abs);
    }
    r.len = size_uni(L, "length", r.len);
    if (!is_simple(r.start)) r.start = let(L, "start", r.start, -1);
    return r;
}

void lower_Slice(Lower *L) {
    Cx *c = L->cx;
    Tensor *a = in(L, 0);
    static const char *const what[] = {"", "starts", "ends", "axes", "steps"};
    int r = a->rank, want = -1, set = 0;
    Vec v[5];
    for (int i = 1; i < 5; i++) { /* one known length gives that of the others */
        int64_t len;
        if (has_in(L, i) && in(L, i)->rank == 1 && e_is_int(in(L, i)->dim[0], &len) && len <= r)
            want = (int)len;
    }
    for (int i = 1; i < 5; i++) {
        if (!has_in(L, i)) continue;
        v[i] = vec_in(L, i, want, r, what[i]);
        if (!set) set = i;
        if (v[i].n >= 0 && v[set].n >= 0 && v[i].n != v[set].n)
            fail(L, "%s and %s differ in length", what[set], what[i]);
        check_eq(L, v[i].len, v[set].len, "%s and %s differ in length", what[set], what[i]);
        if (v[i].most < v[set].most) set = i;
    }
    int n = v[set].most;
    /* per axis; NULL: the whole axis */
    Expr *s[MAX_RANK] = {0}, *e[MAX_RANK] = {0}, *t[MAX_RANK] = {0};
    for (int j = 0; j < n; j++) {
        Expr *axis = e_int(c, j), *given = e_lt(c, axis, v[set].len), *zero = e_int(c, 0);
        if (has_in(L, 3)) axis = vec_axis(L, &v[3], j, r, &given);
        Expr *sj = vec_at(L, &v[1], j, zero), *ej = vec_at(L, &v[2], j, zero);
        Expr *tj = has_in(L, 4) ? vec_at(L, &v[4], j, e_int(c, 1)) : e_int(c, 1);
        for (int p = 0; p < r; p++) {
            Expr *here = e_and(c, given, e_eq(c, axis, e_int(c, p)));
            if (e_is_ival(here, 0)) continue;
            s[p] = e_sel(c, here, sj, s[p] ? s[p] : e_int(c, 0));
            e[p] = e_sel(c, here, ej, e[p] ? e[p] : a->dim[p]);
            t[p] = e_sel(c, here, tj, t[p] ? t[p] : e_int(c, 1));
        }
    }
    Cut cut[MAX_RANK];
    Expr *dim[MAX_RANK], *idx[MAX_RANK];
    for (int p = 0; p < r; p++) {
        dim[p] = a->dim[p];
        if (!s[p]) continue;
        if (!is_simple(s[p])) s[p] = let(L, "from", s[p], INT64_MIN);
        if (!is_simple(e[p])) e[p] = let(L, "to", e[p], INT64_MIN);
        cut[p] = cut_axis(L, a->dim[p], s[p], e[p], t[p]);
        dim[p] = cut[p].len;
        if (dim[p] == a->dim[p] && e_is_ival(t[p], 1)) s[p] = NULL;
    }
    Tensor *o = te_indexed(L, a->dtype, r, dim, idx);
    for (int p = 0; p < r; p++)
        if (s[p]) idx[p] = e_add(c, cut[p].start, e_mul(c, idx[p], cut[p].step));
    out(L, 0, te_end(L, o, ld(L, a, idx)));
}

/* ---- Pad ------------------------------------------------------------------------------------- */

typedef enum { PAD_CONSTANT, PAD_REFLECT, PAD_EDGE, PAD_WRAP } PadMode;

/* Index into [0, n) for position j of the padded axis, j counted from the first kept element. */
static Expr *pad_index(Cx *c, PadMode mode, Expr *j, Expr *n, Expr *before, Expr *after) {
    Expr *zero = e_int(c, 0), *last = e_addi(c, n, -1);
    bool lo = !ge_const(j, 0); /* j may be before the first or after the last element */
    bool hi = !known(e_le(c, after, zero));
    if (mode == PAD_EDGE) {
        if (lo) j = e_max(c, j, zero);
        return hi ? e_min(c, j, last) : j;
    }
    if (mode == PAD_REFLECT) {
        /* at most one reflection per side */
        if (known(e_le(c, before, last)) && known(e_le(c, after, last))) {
            if (lo) j = e_un(c, E_ABS, j);
            return hi ? e_sub(c, last, e_un(c, E_ABS, e_sub(c, last, j))) : j;
        }
        j = e_bin(c, E_MOD, j, e_muli(c, last, 2));
        return e_sub(c, last, e_un(c, E_ABS, e_sub(c, last, j)));
    }
    if (known(e_le(c, before, n)) && known(e_le(c, after, n))) {
        if (hi) j = e_sel(c, e_le(c, n, j), e_sub(c, j, n), j);
        return lo ? e_sel(c, e_lt(c, j, zero), e_add(c, j, n), j) : j;
    }
    return e_bin(c, E_MOD, j, n);
}

/* The padding after the axis that entry j of the axes names, when the number of axes is unknown. */
static Expr *pads_after(Lower *L, const Vec *pads, const Vec *axes, int j) {
    Cx *c = L->cx;
    Expr *at = e_addi(c, axes->len, j);
    Expr *load = e_cast(c, DT_I64, tensor_at(c, pads->t, &at));
    Expr *given = e_lt(c, e_int(c, j), axes->len);
    return let(L, pads->what, e_sel(c, given, load, e_int(c, 0)), INT64_MIN);
}

/* Pads by the vector `amounts`. */
static void pad(Lower *L, Tensor *amounts) {
    Cx *c = L->cx;
    Tensor *a = in(L, 0);
    static const char *const modes[] = {"constant", "reflect", "edge", "wrap"};
    PadMode mode = (PadMode)attr_choice(L, "mode", COUNT(modes), modes);
    int r = a->rank, n = r;
    Vec axes = {.n = r}, pads;
    if (has_in(L, 3)) {
        int64_t len;
        bool fixed = amounts->rank == 1 && e_is_int(amounts->dim[0], &len);
        axes = vec_in(L, 3, fixed && len % 2 == 0 && len <= 2 * r ? (int)len / 2 : -1, r, "axes");
        n = axes.most;
    }
    pads = vec_of(L, amounts, axes.n < 0 ? -1 : 2 * n, 2 * MAX_RANK, "pads");
    if (axes.n >= 0 && pads.n != 2 * n) fail(L, "pads must have %d elements", 2 * n);
    if (axes.n < 0)
        check_eq(L, pads.len, e_muli(c, axes.len, 2),
                 "pads does not have two elements for each of the axes");
    Expr *zero = e_int(c, 0), *before[MAX_RANK], *after[MAX_RANK], *dim[MAX_RANK], *idx[MAX_RANK];
    for (int p = 0; p < r; p++) before[p] = after[p] = zero;
    for (int j = 0; j < n; j++) {
        Expr *axis = e_int(c, j), *given = e_bool(c, true);
        if (has_in(L, 3)) axis = vec_axis(L, &axes, j, r, &given);
        /* The second half begins at the number of axes. */
        Expr *bj = j < pads.most ? vec_at(L, &pads, j, zero) : zero;
        Expr *aj = axes.n >= 0 ? vec_at(L, &pads, n + j, zero) : pads_after(L, &pads, &axes, j);
        bj = clamp_i(c, bj, -FAR, FAR);
        aj = clamp_i(c, aj, -FAR, FAR);
        for (int p = 0; p < r; p++) {
            Expr *here = e_and(c, given, e_eq(c, axis, e_int(c, p)));
            before[p] = e_sel(c, here, bj, before[p]);
            after[p] = e_sel(c, here, aj, after[p]);
        }
    }
    for (int p = 0; p < r; p++) {
        if (!is_simple(before[p])) before[p] = let(L, "before", before[p], -FAR);
        if (!is_simple(after[p])) after[p] = let(L, "after", after[p], -FAR);
        dim[p] = size_uni(L, "dim", e_add(c, a->dim[p], e_add(c, before[p], after[p])));
    }
    Expr *value = e_num(c, a->dtype, 0), *inside = e_bool(c, true);
    if (mode == PAD_CONSTANT && has_in(L, 2)) value = scalar_uni(L, 2, "constant_value");
    Tensor *o = te_indexed(L, a->dtype, r, dim, idx);
    for (int p = 0; p < r; p++) {
        if (before[p] == zero && after[p] == zero) continue;
        if (mode == PAD_CONSTANT) {
            idx[p] = e_sub(c, idx[p], before[p]);
            if (!known(e_le(c, before[p], zero))) inside = e_and(c, inside, e_le(c, zero, idx[p]));
            if (!known(e_le(c, after[p], zero)))
                inside = e_and(c, inside, e_lt(c, idx[p], a->dim[p]));
            continue;
        }
        /* Negative pads crop. The others repeat what is left, which must not be empty. */
        Expr *crop = kmax(c, e_sub(c, zero, before[p]), zero), *kept;
        kept = e_sub(c, e_sub(c, a->dim[p], crop), kmax(c, e_sub(c, zero, after[p]), zero));
        check(L, e_or(c, e_lt(c, zero, kept), e_eq(c, dim[p], zero)),
              "axis %d has nothing to pad with: %s elements are left, %s are wanted", p,
              said(L, kept), said(L, dim[p]));
        /* Of an open size a table, so that nothing is divided for each element. */
        Tensor *table = e_is_int(kept, &(int64_t){0}) ? NULL : te_begin(L, DT_I64, 1, &dim[p]);
        Expr *at = table ? ax(L, table, 0) : idx[p], *j = e_sub(c, at, kmax(c, before[p], zero));
        j = e_add(c, crop, pad_index(c, mode, j, kept, before[p], after[p]));
        idx[p] = table ? ld(L, te_end(L, table, j), &idx[p]) : j;
    }
    out(L, 0, te_end(L, o, e_sel(c, inside, ld(L, a, idx), value)));
}

static Tensor *pads_in(Lower *L) {
    Tensor *t = in(L, 1);
    if (!t) fail(L, "the pads input is missing");
    return t;
}

void lower_Pad(Lower *L) { pad(L, pads_in(L)); }

/* Its pads may also be a matrix of one row. */
void lower_MsPad(Lower *L) {
    Tensor *t = pads_in(L);
    pad(L, t->rank == 2 ? t_squeeze(L, t, 0) : t);
}

void lower_CenterCropPad(Lower *L) {
    Cx *c = L->cx;
    Tensor *a = in(L, 0);
    int r = a->rank, n = r, na;
    const int64_t *axes = attr_ints(L, "axes", &na);
    if (axes) n = na;
    if (n > r || vec_in(L, 1, n, MAX_RANK, "shape").n != n)
        fail(L, "shape must name a size for each of the axes");
    Expr *dim[MAX_RANK], *idx[MAX_RANK], *inside = e_bool(c, true);
    bool touched[MAX_RANK] = {false};
    for (int p = 0; p < r; p++) dim[p] = a->dim[p];
    for (int j = 0; j < n; j++) {
        int p = axes ? norm_axis(L, axes[j], r) : j;
        dim[p] = size_uni(L, "dim", uni_i64(L, in(L, 1), j));
        touched[p] = dim[p] != a->dim[p];
    }
    Tensor *o = te_indexed(L, a->dtype, r, dim, idx);
    for (int p = 0; p < r; p++) {
        if (!touched[p]) continue;
        Expr *skip = e_div(c, e_sub(c, a->dim[p], dim[p]), e_int(c, 2)); /* rounds to zero */
        if (!is_simple(skip)) skip = let(L, "skip", skip, INT64_MIN);
        idx[p] = e_add(c, idx[p], skip);
        if (known(e_le(c, dim[p], a->dim[p]))) continue;
        inside = e_and(c, inside, e_le(c, e_int(c, 0), idx[p]));
        inside = e_and(c, inside, e_lt(c, idx[p], a->dim[p]));
    }
    out(L, 0, te_end(L, o, e_sel(c, inside, ld(L, a, idx), e_num(c, a->dtype, 0))));
}

void lower_Tile(Lower *L) {
    Cx *c = L->cx;
    Tensor *a = in(L, 0);
    int r = a->rank;
    Expr *dim[MAX_RANK], *idx[MAX_RANK];
    if (vec_in(L, 1, r, MAX_RANK, "repeats").n != r) fail(L, "repeats must have %d elements", r);
    for (int p = 0; p < r; p++) {
        Expr *times = size_uni(L, "repeats", uni_i64(L, in(L, 1), p));
        dim[p] = e_mul(c, a->dim[p], times);
    }
    Tensor *o = te_indexed(L, a->dtype, r, dim, idx);
    for (int p = 0; p < r; p++)
        if (dim[p] != a->dim[p])
            idx[p] = e_is_ival(a->dim[p], 1) ? e_int(c, 0) : e_bin(c, E_MOD, idx[p], a->dim[p]);
    out(L, 0, te_end(L, o, ld(L, a, idx)));
}
