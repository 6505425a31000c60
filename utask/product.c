/* product.c: recognizes sums of products, as product.h describes. */
#include "utask/product.h"

#include <math.h>

#define SIZE_UNKNOWN (1 << 20) /* size of an unknown axis when axes are sorted */

bool product_of(Expr *e, SumProduct *p) {
    if (!is_sum_of_products(e)) return false;
    *p = (SumProduct){.reduce = e};
    for (int i = 0; i < 2; i++) {
        Expr *x = p->factor[i] = e->a[0]->a[i];
        if (x->op == E_CAST) x = x->a[0];
        if (x->op == E_LOAD) p->load[i] = x;
    }
    return true;
}

bool product_of_loads(Expr *e, SumProduct *p) {
    if (e->dtype != DT_F32 || !product_of(e, p)) return false;
    for (int i = 0; i < 2; i++) {
        const Expr *x = p->load[i];
        if (!x || (x->dtype != DT_F32 && x->dtype != DT_F16 && x->dtype != DT_BF16)) return false;
    }
    return true;
}

/* x is load, or load - zero, in int32 and of 8 bits; else NULL. */
static Expr *byte_factor(const Expr *reduce, Expr *x, Expr **zero) {
    *zero = NULL;
    if (x->op == E_SUB) {
        *zero = x->a[1];
        x = x->a[0];
        for (int i = 0; i < reduce->naxis; i++)
            if (e_uses_axis(*zero, reduce->raxis[i])) return NULL;
        if ((*zero)->flags & (EF_REDUCE | EF_GUARD)) return NULL;
    }
    if (x->op != E_CAST || x->a[0]->op != E_LOAD) return NULL;
    x = x->a[0];
    return x->dtype == DT_U8 || x->dtype == DT_I8 ? x : NULL;
}

bool product_of_bytes(Expr *e, SumProduct *p) {
    if (e->dtype != DT_I32 || !product_of(e, p)) return false;
    for (int i = 0; i < 2; i++)
        if (!(p->load[i] = byte_factor(e, p->factor[i], &p->zero[i]))) return false;
    return true;
}

bool is_fast_product(Expr *e) {
    SumProduct p;
    return is_sum_of_products(e) && (dtype_is_float(e->dtype) || product_of_bytes(e, &p));
}

/* Whether *e is affine in the axes; removes them from it. */
static bool affine_in(Cx *c, Expr **e, int n, Axis *const *x) {
    Expr *coef;
    for (int i = 0; i < n; i++)
        if (!e_affine(c, *e, x[i], &coef, e) || coef->flags & EF_AXIS) return false;
    return true;
}

bool product_affine(Cx *c, SumProduct *p, int n, Axis *const *domain) {
    if (!p->load[0] || !p->load[1]) return false;
    for (int i = 0; i < 2; i++) {
        Expr *rest = p->flat[i] = flat_of(c, p->load[i]);
        /* Positions must not be read from memory, which could depend on inner loops. */
        if (rest->flags & (EF_LOAD | EF_GUARD | EF_REDUCE)) return false;
        if (!affine_in(c, &rest, n, domain) ||
            !affine_in(c, &rest, p->reduce->naxis, p->reduce->raxis) || rest->flags & EF_AXIS)
            return false;
    }
    return true;
}

/* The one axis of the domain that the constant load p->load[w] moves along, if it is affine with
 * constant strides and nothing else; NULL: there is none. */
static Axis *columns_of(Cx *c, SumProduct *p, int w, int n, Axis *const *domain) {
    const Expr *load = p->load[w];
    int64_t along[MAX_RANK * 2], base;
    int at = -1;
    if (!load || load->t->kind != TK_CONST || p->reduce->naxis > MAX_RANK * 2 ||
        (load->dtype != DT_F32 && load->dtype != DT_F16 && load->dtype != DT_BF16))
        return NULL;
    Expr *rest = p->flat[w] = flat_of(c, load);
    if (!e_strides(c, rest, p->reduce->naxis, p->reduce->raxis, along, &rest) ||
        !e_strides(c, rest, n, domain, along, &rest) || !e_is_int(rest, &base))
        return NULL;
    for (int d = 0; d < n; d++) {
        if (!along[d]) continue;
        if (at >= 0) return NULL;
        at = d;
    }
    /* Units begin at whole vectors of as many. */
    return at >= 0 && axis_size(domain[at], 0) >= (at == n - 1 ? 16 : 64) ? domain[at] : NULL;
}

int product_built(Cx *c, SumProduct *p, int n, Axis *const *domain, Axis **columns) {
    const Expr *sum = p->reduce;
    if (sum->dtype != DT_F32 || axes_size(sum->naxis, sum->raxis, -1) > BUILT_MAX) return -1;
    for (int i = 0; i < 2; i++) {
        const Expr *x = p->factor[i];
        if (x->flags & EF_REDUCE || !(*columns = columns_of(c, p, !i, n, domain))) continue;
        if (!e_uses_axis(x, *columns)) return i;
    }
    return -1;
}

bool is_finite_constant(const Tensor *t) {
    if (t->kind != TK_CONST || t->dtype != DT_F32) return false;
    const float *x = t->data->data;
    for (int64_t i = 0; i < t->data->count; i++)
        if (!isfinite(x[i])) return false;
    return true;
}

AxisRole product_role(const SumProduct *p, const Axis *x) {
    for (int i = 0; i < p->reduce->naxis; i++)
        if (p->reduce->raxis[i] == x) return ROLE_K;
    bool a = e_uses_axis(p->factor[0], x), b = e_uses_axis(p->factor[1], x);
    return a && b ? ROLE_BATCH : a ? ROLE_M : b ? ROLE_N : ROLE_NONE;
}

int product_dim(const Expr *load, const Axis *r) {
    int dim = -1;
    for (int d = 0; d < load->n; d++) {
        if (!e_uses_axis(load->a[d], r)) continue;
        if (dim >= 0 || load->a[d]->op != E_AXIS || r->extent != load->t->dim[d]) return -1;
        dim = d;
    }
    return dim;
}

Axis *product_window(Cx *c, Expr *flat, Axis *r, int n, Axis *const *domain) {
    for (int i = 0; i < n; i++)
        if (e_uses_axis(flat, r) && e_coef(c, flat, domain[i]) == e_coef(c, flat, r))
            return domain[i];
    return NULL;
}

Axis **reduce_order(Arena *a, const Expr *reduce) {
    int n = reduce->naxis;
    Axis **r = arena_memdup(a, reduce->raxis, sizeof(Axis *) * (size_t)n);
    for (int i = 1; i < n; i++)
        for (int j = i; j > 0; j--) {
            if (axis_size(r[j - 1], SIZE_UNKNOWN) <= axis_size(r[j], SIZE_UNKNOWN)) break;
            Axis *t = r[j];
            r[j] = r[j - 1];
            r[j - 1] = t;
        }
    return r;
}

Expr *find_reduction(Map *seen, Expr *e, bool always, ExprTest *is, void *user) {
    if (!(e->flags & EF_REDUCE) || !map_add(seen, (uint64_t)e->id + 1)) return NULL;
    if (is(user, e)) return e;
    if (always && (e->op == E_REDUCE || e->op == E_LOAD)) return NULL;
    Expr *r = NULL;
    int n = always ? e_always(e) : e->n;
    for (int i = 0; i < n && !r; i++) r = find_reduction(seen, e->a[i], always, is, user);
    return r;
}

bool all_reductions(Map *seen, Expr *e, ExprTest *is, void *user) {
    if (!(e->flags & EF_REDUCE) || !map_add(seen, (uint64_t)e->id + 1)) return true;
    if (e->op == E_REDUCE) return is(user, e);
    if (e_always(e) < e->n || e->op == E_LOAD) return false;
    for (int i = 0; i < e->n; i++)
        if (!all_reductions(seen, e->a[i], is, user)) return false;
    return true;
}
