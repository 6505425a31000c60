/* windows.c: see windows.h. */
#include "utask/windows.h"

Expr *padded_load(Cx *c, Expr *x, Expr **inside) {
    *inside = NULL;
    if (x->op == E_SELECT && x->a[2] == e_num(c, x->dtype, 0)) {
        *inside = x->a[0];
        x = x->a[1];
    }
    return x->op == E_LOAD && x->dtype == DT_F32 ? x : NULL;
}

bool padding_bounds(Cx *c, const Expr *inside, PaddingBound *bound, void *user) {
    Expr *const *a = inside->a;
    switch (inside->op) {
    case E_AND: return padding_bounds(c, a[0], bound, user) && padding_bounds(c, a[1], bound, user);
    case E_LE: return a[0]->dtype == DT_I64 && bound(c, user, a[0], a[1], 0);
    case E_LT: return a[0]->dtype == DT_I64 && bound(c, user, a[0], a[1], 1);
    default: return false;
    }
}

bool padded_product(Cx *c, Expr *e) {
    SumProduct p;
    Expr *inside;
    bool is = product_of(e, &p);
    for (int i = 0; is && i < 2; i++) is = padded_load(c, p.factor[i], &inside);
    return is;
}

/* The bound  slack <= second - first  as one on the steps of an axis of the sum. */
static bool bound(Cx *c, void *user, Expr *first, Expr *second, int64_t slack) {
    Windows *s = user;
    Expr *room = e_addi(c, e_sub(c, second, first), -slack), *rest = room, *coef;
    int at = -1;
    int64_t step = 0, along;
    for (int i = 0; i < s->n; i++) {
        if (!e_uses_axis(room, s->axis[i])) continue;
        if (at >= 0 || !e_affine(c, room, s->axis[i], &coef, &rest) || !e_is_int(coef, &step))
            return false;
        at = i;
    }
    if (at < 0 || rest->flags & (EF_LOAD | EF_GUARD) || e_uses_axis(rest, s->v)) return false;
    /* steps r with step * r + rest >= 0 */
    Expr *zero = e_int(c, 0), *size = s->axis[at]->extent;
    if (!s->first[at]) {
        s->first[at] = zero;
        s->end[at] = size;
    }
    const bool low = step > 0;
    if (low)
        s->first[at] =
            e_max(c, s->first[at],
                  e_bin(c, E_FDIV, e_addi(c, e_sub(c, zero, rest), step - 1), e_int(c, step)));
    else
        s->end[at] = e_min(c, s->end[at], e_addi(c, e_bin(c, E_FDIV, rest, e_int(c, -step)), 1));
    if (!e_uses_axis(rest, s->m)) return at < s->n - 1;
    Expr *m_rest;
    if (at != s->n - 1 || !e_affine(c, rest, s->m, &coef, &m_rest) || !e_is_int(coef, &along) ||
        (along > 0) != low || !along)
        return false;
    /* positions of which step 0, or the last one, is inside */
    if (low)
        s->from =
            e_max(c, s->from,
                  e_bin(c, E_FDIV, e_addi(c, e_sub(c, zero, m_rest), along - 1), e_int(c, along)));
    else
        s->to = e_min(c, s->to,
                      e_addi(c,
                             e_bin(c, E_FDIV, e_addi(c, m_rest, step * (s->extent[at] - 1)),
                                   e_int(c, -along)),
                             1));
    return true;
}

/* Sets v, the only axis that w moves along, and m. */
static bool find_axes(Cx *c, Windows *s, int n, Axis *const *domain, Expr **rest) {
    int64_t along[MAX_RANK];
    if (!e_strides(c, s->w_flat, n, domain, along, rest)) return false;
    for (int i = 0; i < n; i++) {
        if (along[i] && s->v) return false;
        if (along[i]) {
            s->v = domain[i];
            s->v_stride = along[i];
        }
    }
    for (int i = 0; i < n; i++)
        if (domain[i] != s->v && !e_is_ival(domain[i]->extent, 1)) s->m = domain[i];
    return s->v && s->m;
}

/* x is affine in all axes, and lies together along v. */
static bool elements(Cx *c, const Windows *s, int n, Axis *const *domain) {
    Expr *rest = s->x_flat, *coef;
    for (int i = 0; i < n + s->n; i++) {
        Axis *x = i < n ? domain[i] : s->axis[i - n];
        if (!e_affine(c, rest, x, &coef, &rest) || coef->flags & (EF_AXIS | EF_LOAD)) return false;
        if (x == s->v && !e_is_ival(coef, 1)) return false;
    }
    return !(rest->flags & (EF_AXIS | EF_LOAD | EF_GUARD | EF_REDUCE));
}

/* Puts the axis of m's windows last: the one along which x moves least. */
static bool order(Cx *c, Windows *s) {
    int last = -1;
    if (!e_is_int(e_coef(c, s->x_flat, s->m), &s->m_step)) return false;
    for (int i = 0; i < s->n; i++) {
        int64_t step;
        if (!e_is_int(e_coef(c, s->x_flat, s->axis[i]), &step) || step < 1) continue;
        if (last >= 0 && step >= s->step) continue;
        last = i;
        s->step = step;
    }
    if (last < 0) return false;
    Axis *x = s->axis[last];
    memmove(s->axis + last, s->axis + last + 1, sizeof x * (size_t)(s->n - last - 1));
    s->axis[s->n - 1] = x;
    return true;
}

/* Sets the extents, and what lies inside. */
static bool settle(Cx *c, Windows *s, Expr *inside) {
    s->length = 1;
    for (int i = 0; i < s->n; i++) {
        s->extent[i] = axis_size(s->axis[i], 0);
        if (s->extent[i] < 1) return false;
        s->length *= s->extent[i];
        s->first[i] = s->end[i] = NULL;
    }
    s->from = e_int(c, 0);
    s->to = s->m->extent;
    return !inside || padding_bounds(c, inside, bound, s);
}

bool windows_of(Cx *c, Expr *e, int n, Axis *const *domain, int lanes, Windows *s) {
    SumProduct p;
    Expr *inside[2], *load[2], *rest;
    if (e->dtype != DT_F32 || n > MAX_RANK || e->naxis > WINDOW_AXES || !product_of(e, &p))
        return false;
    for (int i = 0; i < 2; i++) load[i] = padded_load(c, p.factor[i], &inside[i]);
    if (!load[0] || !load[1]) return false;
    const int w = load[1]->t->kind == TK_CONST;
    if (load[w]->t->kind != TK_CONST || load[!w]->t->kind == TK_CONST || inside[w]) return false;
    *s = (Windows){.reduce = e,
                   .x = load[!w],
                   .w = load[w],
                   .x_flat = flat_of(c, load[!w]),
                   .w_flat = flat_of(c, load[w]),
                   .n = e->naxis};
    memcpy(s->axis, e->raxis, sizeof *s->axis * (size_t)s->n);
    if (!find_axes(c, s, n, domain, &rest) || axis_size(s->v, 0) * 2 < lanes ||
        !elements(c, s, n, domain) || !order(c, s) ||
        !e_strides(c, rest, s->n, s->axis, s->stride, &rest) || !e_is_int(rest, &s->base))
        return false;
    if (settle(c, s, inside[!w])) return true;
    /* No step of the last axis lies outside because of m: one with a single step goes last. */
    if (s->n == WINDOW_AXES) return false;
    s->axis[s->n] = axis_new(c, e_int(c, 1));
    s->stride[s->n] = s->step = 0;
    s->n++;
    return settle(c, s, inside[!w]);
}
