/* window_rows.c: see window_rows.h. */
#include "utask/window_rows.h"

/* The only dimension of load x that axis a moves, in which its coefficient is *step; -1: there is
 * none, or a does not move it by a constant step from 1 on. */
static int moved_dim(Cx *c, const Expr *x, Axis *a, int64_t *step) {
    int at = -1;
    for (int d = 0; d < x->n; d++) {
        if (!e_uses_axis(x->a[d], a)) continue;
        Expr *coef = e_coef(c, x->a[d], a);
        if (at >= 0 || !coef || !e_is_int(coef, step) || *step < 1) return -1;
        at = d;
    }
    return at;
}

/* Sets the window along domain axis a: which axis of the sum moves the same dimension of x. */
static int find_window(Cx *c, const Planes *s, Axis *a, PlaneWindow *w) {
    const int dim = moved_dim(c, s->x, a, &w->stride);
    w->axis = a;
    w->taps = 1;
    for (int i = 0; dim >= 0 && i < s->reduce->naxis; i++) {
        Axis *r = s->reduce->raxis[i];
        if (!e_uses_axis(s->x->a[dim], r)) continue;
        if (w->over || moved_dim(c, s->x, r, &w->apart) != dim) return -1;
        w->over = r;
        w->taps = axis_size(r, 0);
        if (w->taps < 1 || w->taps > PLANE_TAPS) return -1;
    }
    return dim;
}

/* No other axis of the domain moves dimension `dim`, so that its elements are the window's. */
static bool alone(const Planes *s, int dim, int n, Axis *const *domain, const Axis *a) {
    for (int i = 0; i < n; i++)
        if (domain[i] != a && e_uses_axis(s->x->a[dim], domain[i])) return false;
    return !(s->x->a[dim]->flags & EF_LOAD);
}

static bool uses_window(const Expr *e, const PlaneWindow *w) {
    return (w->axis && e_uses_axis(e, w->axis)) || (w->over && e_uses_axis(e, w->over));
}

/* The bound  slack <= second - first  as one on the elements of w. */
static bool bound(Cx *c, const Planes *s, PlaneWindow *w, Expr *first, Expr *second,
                  int64_t slack) {
    int64_t along, tap;
    if (first->dtype != DT_I64) return false;
    Expr *room = e_sub(c, second, first), *rest = room, *coef;
    if (!e_affine(c, rest, w->axis, &coef, &rest) || !e_is_int(coef, &along)) return false;
    tap = along / w->stride * w->apart;
    if (w->over && (!e_affine(c, rest, w->over, &coef, &rest) || !e_is_int(coef, &tap)))
        return false;
    const bool low = along > 0;
    if (along != (low ? w->stride : -w->stride) || tap != (low ? w->apart : -w->apart) ||
        rest->flags & (EF_LOAD | EF_GUARD | EF_REDUCE) || uses_window(rest, &s->v) ||
        uses_window(rest, &s->u))
        return false;
    for (int i = 0; i < s->n; i++)
        if (e_uses_axis(rest, s->axis[i])) return false;
    if ((low ? w->nlow : w->nhigh) == PLANE_BOUNDS) return false;
    if (low)
        w->low[w->nlow++] = e_sub(c, e_int(c, slack), rest);
    else
        w->high[w->nhigh++] = e_addi(c, rest, 1 - slack);
    return true;
}

static bool bounds(Cx *c, Planes *s, Expr *e) {
    if (e->op == E_AND) return bounds(c, s, e->a[0]) && bounds(c, s, e->a[1]);
    const bool v = uses_window(e, &s->v), u = uses_window(e, &s->u);
    if (!v && !u) {
        s->inside = e_and(c, s->inside, e);
        return !(e->flags & (EF_LOAD | EF_GUARD | EF_REDUCE));
    }
    if (v && u) return false;
    return e->op == E_LE   ? bound(c, s, v ? &s->v : &s->u, e->a[0], e->a[1], 0)
           : e->op == E_LT ? bound(c, s, v ? &s->v : &s->u, e->a[0], e->a[1], 1)
                           : false;
}

/* Finds the windows, along the innermost axes that do not move the weights. Axes that move the
 * weights move x, too: no element has many sums. */
static bool find_axes(Cx *c, Planes *s, int n, Axis *const *domain) {
    const Expr *x = s->x;
    int last = n - 1;
    while (last >= 0 && e_is_ival(domain[last]->extent, 1)) last--;
    if (last < 0 || find_window(c, s, domain[last], &s->v) != x->n - 1 ||
        s->v.stride > PLANE_STRIDE || !alone(s, x->n - 1, n, domain, domain[last]) ||
        e_uses_axis(s->w, domain[last]))
        return false;
    for (int i = 0; i < n; i++)
        if (!e_is_ival(domain[i]->extent, 1) && !e_uses_axis(x, domain[i])) return false;
    for (int i = last - 1; i >= 0; i--) {
        PlaneWindow w = {0};
        if (e_is_ival(domain[i]->extent, 1) || e_uses_axis(s->w, domain[i])) continue;
        const int dim = find_window(c, s, domain[i], &w);
        if (dim < 0 || dim == x->n - 1 || !alone(s, dim, n, domain, domain[i])) continue;
        s->u = w;
        s->row = e_int(c, 1);
        for (int d = dim + 1; d < x->n; d++) s->row = e_mul(c, s->row, x->t->dim[d]);
        break;
    }
    return s->v.over || s->u.over;
}

/* The other axes of the sum, the positions, and the steps of the weights. */
static bool find_rest(Cx *c, Planes *s) {
    Axis *window[4];
    Expr *zero[4], *rest;
    int64_t step[2] = {0};
    int nwindow = 0;
    PlaneWindow *both[2] = {&s->u, &s->v};
    s->outer = 1;
    for (int i = 0; i < s->reduce->naxis; i++) {
        Axis *r = s->reduce->raxis[i];
        if (r == s->v.over || r == s->u.over) continue;
        s->extent[s->n] = axis_size(r, 0);
        s->axis[s->n] = r;
        s->outer *= s->extent[s->n++];
        if (s->outer < 1 || s->outer > PLANE_OUTER) return false;
    }
    for (int i = 0; i < 2; i++) {
        if (both[i]->axis) window[nwindow++] = both[i]->axis;
        if (both[i]->over) window[nwindow++] = both[i]->over;
    }
    for (int i = 0; i < nwindow; i++) zero[i] = e_int(c, 0);
    s->x_at = e_subst(c, flat_of(c, s->x), nwindow, window, zero, NULL, NULL);
    rest = flat_of(c, s->w);
    for (int i = 0; i < 2; i++) {
        if (both[i]->over && !e_strides(c, rest, 1, &both[i]->over, &step[i], &rest)) return false;
        both[i]->weight = step[i];
    }
    if (!e_strides(c, rest, s->n, s->axis, s->stride, &s->w_at)) return false;
    return !((s->x_at->flags | s->w_at->flags) & (EF_LOAD | EF_GUARD | EF_REDUCE));
}

/* Whether tiles of all that windows read are small. */
static bool fits(const Planes *s) {
    return (s->v.taps - 1) * s->v.apart <= PLANE_SPAN &&
           s->outer * (s->u.taps - 1) * s->u.apart <= PLANE_SPAN;
}

bool planes_of(Cx *c, Expr *e, int n, Axis *const *domain, int lanes, Planes *s) {
    SumProduct p;
    Expr *inside[2], *load[2];
    if (e->dtype != DT_F32 || n > MAX_RANK || e->naxis > WINDOW_AXES || !product_of(e, &p))
        return false;
    for (int i = 0; i < 2; i++) load[i] = padded_load(c, p.factor[i], &inside[i]);
    if (!load[0] || !load[1]) return false;
    const int w = load[1]->t->kind == TK_CONST;
    if (load[w]->t->kind != TK_CONST || load[!w]->t->kind == TK_CONST || inside[w] ||
        load[w]->t->coded || load[!w]->kind || !load[!w]->n)
        return false;
    *s = (Planes){
        .reduce = e, .x = load[!w], .w = load[w], .u = {.taps = 1}, .inside = e_bool(c, true)};
    return find_axes(c, s, n, domain) && axis_size(s->v.axis, lanes) * 4 >= lanes &&
           find_rest(c, s) && fits(s) && (!inside[!w] || bounds(c, s, inside[!w]));
}
