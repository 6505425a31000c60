/* window.c: strides, dilations, pads, auto_pad and the number of windows. */
#include "utask/ops/window.h"

#define LIMIT (INT64_C(1) << 31)
#define TABLE_MAX (INT64_C(1) << 22) /* elements of a folded table */

Expr *win_fdiv(Lower *L, Expr *a, int64_t b) {
    return b == 1 ? a : e_bin(L->cx, E_FDIV, a, e_int(L->cx, b));
}

Expr *win_cdiv(Lower *L, Expr *a, int64_t b) { return win_fdiv(L, e_addi(L->cx, a, b - 1), b); }

Expr *win_inside(Lower *L, Expr *i, Expr *n) {
    return e_and(L->cx, e_le(L->cx, e_int(L->cx, 0), i), e_lt(L->cx, i, n));
}

static void note_load(void *known, Expr *load) {
    if (load->t->kind != TK_CONST) *(bool *)known = false;
}

Tensor *table_end(Lower *L, Tensor *t, Expr *body) {
    int64_t n = count_const(t);
    bool known = n >= 0 && n <= TABLE_MAX && !(body->flags & (EF_SYM | EF_INDIM | EF_GUARD));
    e_each_load(L->cx, body, note_load, &known);
    if (!known) return te_end(L, t, body);
    t->body = body;
    t->seq = L->seq;
    const Const *k = interp_fold(L->cx, t);
    return k ? t_const(L, k->dtype, k->rank, k->dim, k->data) : te_end(L, t, body);
}

/* Axis `from` moved to `to`. */
static Tensor *moved(Lower *L, Tensor *x, int from, int to) {
    int perm[MAX_RANK], n = 0;
    if (x->rank < 3) fail(L, "the input has rank %d; at least 3 is needed", x->rank);
    for (int i = 0; i < x->rank; i++)
        if (i != from) perm[n++] = i;
    memmove(perm + to + 1, perm + to, sizeof perm[0] * (size_t)(n - to));
    perm[to] = from;
    return t_transpose(L, x, perm);
}

Tensor *t_channels_first(Lower *L, Tensor *x) { return moved(L, x, x->rank - 1, 1); }
Tensor *t_channels_last(Lower *L, Tensor *x) { return moved(L, x, 1, x->rank - 1); }

void window_ints(Lower *L, const char *name, int n, int64_t dflt, int64_t min, int64_t *v) {
    int have;
    const int64_t *p = attr_ints(L, name, &have);
    if (have >= 0 && have != n) fail(L, "attribute %s has %d values, %d expected", name, have, n);
    for (int i = 0; i < n; i++) {
        v[i] = have >= 0 ? p[i] : dflt;
        if (v[i] < min || v[i] > LIMIT)
            fail(L, "attribute %s has the value %lld", name, (long long)v[i]);
    }
}

Expr *sum_axis(Lower *L, Expr *extent, Axis **axis, int *n) {
    if (e_is_ival(extent, 1)) return e_int(L->cx, 0);
    axis[*n] = axis_new(L->cx, extent);
    return e_axis(L->cx, axis[(*n)++]);
}

DType mix_type(Lower *L, DType t) {
    if (t == DT_BOOL) unsupported(L, "interpolation of bool");
    return t == DT_F64 || (dtype_is_int(t) && dtype_size(t) > 2) ? DT_F64 : DT_F32;
}

void check_regions(Lower *L, const Tensor *x, const Tensor *rois, const Tensor *batch) {
    if (x->rank != 4 || rois->rank != 2 || batch->rank != 1)
        fail(L, "ranks of input, regions and batch_indices are %d, %d, %d; 4, 2, 1 are expected",
             x->rank, rois->rank, batch->rank);
    check_eq(L, rois->dim[1], e_int(L->cx, 4), "a region does not have 4 values");
    check_eq(L, rois->dim[0], batch->dim[0], "regions and batch_indices differ in number");
}

void window_read(Lower *L, Window *w, int n, Expr *const *in, Expr *const *k) {
    static const char *const modes[] = {"NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"};
    int64_t pads[2 * MAX_RANK] = {0};
    ASSERT(n > 0 && n <= MAX_RANK);
    w->n = n;
    w->mode = (AutoPad)attr_choice(L, "auto_pad", COUNT(modes), modes);
    window_ints(L, "strides", n, 1, 1, w->stride);
    window_ints(L, "dilations", n, 1, 1, w->dil);
    if (w->mode == PAD_NOTSET) window_ints(L, "pads", 2 * n, 0, -LIMIT, pads);
    for (int i = 0; i < n; i++) {
        w->in[i] = in[i];
        w->k[i] = k[i];
        w->span[i] = e_addi(L->cx, e_muli(L->cx, k[i], w->dil[i]), 1 - w->dil[i]);
        w->lo[i] = e_int(L->cx, pads[i]);
        w->hi[i] = e_int(L->cx, pads[i + n]);
        w->out[i] = NULL;
    }
}

void window_of_weights(Lower *L, Window *w, const Tensor *x, const Tensor *weights) {
    int64_t k[MAX_RANK];
    int n = x->rank - 2;
    window_read(L, w, n, x->dim + 2, weights->dim + 2);
    if (!attr_has(L, "kernel_shape")) return;
    window_ints(L, "kernel_shape", n, 1, 1, k);
    for (int i = 0; i < n; i++)
        check_eq(L, w->k[i], e_int(L->cx, k[i]), "kernel_shape is not that of the weights");
}

void window_split(Lower *L, Window *w, int i, Expr *total) {
    Expr *half = win_fdiv(L, total, 2), *rest = e_sub(L->cx, total, half);
    w->lo[i] = w->mode == PAD_SAME_UPPER ? half : rest;
    w->hi[i] = w->mode == PAD_SAME_UPPER ? rest : half;
}

void window_place(Lower *L, Window *w, bool ceil_mode) {
    Cx *c = L->cx;
    for (int i = 0; i < w->n; i++) {
        int64_t s = w->stride[i];
        check_le(L, e_int(c, 1), w->k[i], "spatial axis %d of the kernel is empty", i);
        if (w->mode == PAD_SAME_UPPER || w->mode == PAD_SAME_LOWER) {
            w->out[i] = win_cdiv(L, w->in[i], s);
            Expr *need =
                e_sub(c, e_add(c, e_muli(c, e_addi(c, w->out[i], -1), s), w->span[i]), w->in[i]);
            window_split(L, w, i, e_max(c, need, e_int(c, 0)));
            continue;
        }
        Expr *padded = e_add(c, w->in[i], e_add(c, w->lo[i], w->hi[i]));
        Expr *room = e_sub(c, padded, w->span[i]);
        check_le(L, e_int(c, 0), room,
                 "the window is larger than the padded input on spatial axis %d", i);
        w->out[i] = e_addi(c, win_fdiv(L, room, s), 1);
        if (ceil_mode) { /* no window may start in the end padding */
            Expr *last = win_fdiv(L, e_addi(c, e_add(c, w->in[i], w->lo[i]), -1), s);
            w->out[i] = e_addi(c, e_min(c, win_cdiv(L, room, s), last), 1);
        }
    }
}

bool window_overhangs(Lower *L, const Window *w, int i) {
    Cx *c = L->cx;
    int64_t lo, hi;
    Expr *end = e_add(c, e_muli(c, e_addi(c, w->out[i], -1), w->stride[i]), w->span[i]);
    Expr *over = e_sub(c, e_sub(c, end, w->lo[i]), w->in[i]);
    if (!e_is_ival(w->lo[i], 0)) return true;
    if (e_range(over, &lo, &hi) && hi <= 0) return false;
    /* floor((in - span) / s) * s + span <= in, which ranges alone cannot prove */
    Expr *fit = e_addi(c, win_fdiv(L, e_sub(c, w->in[i], w->span[i]), w->stride[i]), 1);
    return w->out[i] != fit;
}
