/* products.c: sums of products of two loads, as the kinds of kernels that multiply find them. */
#include "scheduler/kernel/products.h"

Expr *contract_factor(Expr *e) {
    Expr *x =
        e->op == E_CAST && (e->a[0]->dtype == DT_F16 || e->a[0]->dtype == DT_BF16) ? e->a[0] : e;
    return e->dtype == DT_F32 && x->op == E_LOAD ? x : NULL;
}

static bool is_product(const Expr *e) {
    if (e->op != E_REDUCE || e->kind != R_SUM || e->dtype != DT_F32) return false;
    const Expr *b = e->a[0];
    return b->op == E_MUL && contract_factor(b->a[0]) && contract_factor(b->a[1]);
}

static bool affine_in_all(const Kernel *k, Expr *flat, const Expr *reduce) {
    Cx *c = k->c;
    Expr *coef, *rest = flat;
    if (flat->flags & (EF_LOAD | EF_GUARD | EF_REDUCE)) {
        /* Positions read from memory must not depend on the loops inside. */
        return false;
    }
    for (int i = 0; i < k->naxis; i++)
        if (!e_affine(c, rest, k->axis[i], &coef, &rest) || (coef->flags & EF_AXIS)) return false;
    for (int i = 0; i < reduce->naxis; i++)
        if (!e_affine(c, rest, reduce->raxis[i], &coef, &rest) || (coef->flags & EF_AXIS))
            return false;
    return !(rest->flags & EF_AXIS);
}

bool contract_product(const Kernel *k, Expr *e, Product *p) {
    Cx *c = k->c;
    if (!is_product(e)) return false;
    Expr *a = contract_factor(e->a[0]->a[0]), *b = contract_factor(e->a[0]->a[1]);
    Expr *fa = flat_of(c, a), *fb = flat_of(c, b);
    if (!affine_in_all(k, fa, e) || !affine_in_all(k, fb, e)) return false;
    for (int i = 0; i < k->n; i++)
        if (a->t == k->t[i] || b->t == k->t[i]) return false;
    *p = (Product){.reduce = e, .vec = a, .sca = b, .vec_flat = fa, .sca_flat = fb};
    return true;
}

Expr *coef_of(Cx *c, Expr *flat, Axis *x) {
    Expr *coef, *rest;
    return e_affine(c, flat, x, &coef, &rest) ? coef : NULL;
}

bool contract_share_axes(Cx *c, Product *p, int n, Axis *const *axis) {
    Axis *const *from = p->reduce->raxis;
    Expr *to[MAX_RANK * 2];
    uint32_t taken = 0;
    if (p->reduce->naxis != n || n > 2 * MAX_RANK) return false;
    for (int i = 0; i < n; i++) {
        int at = -1;
        for (int z = 0; z < n; z++)
            if (!(taken >> z & 1) && axis[z]->extent == from[i]->extent &&
                (at < 0 || axis[z] == from[i]))
                at = z;
        if (at < 0) return false;
        taken |= 1u << at;
        to[i] = e_axis(c, axis[at]);
    }
    Expr **part[] = {&p->vec, &p->sca, &p->vec_flat, &p->sca_flat};
    for (size_t i = 0; i < COUNT(part); i++)
        *part[i] = e_subst(c, *part[i], n, from, to, NULL, NULL);
    return true;
}

Axis **contract_order(Arena *a, const Expr *reduce) {
    int n = reduce->naxis;
    Axis **r = arena_memdup(a, reduce->raxis, sizeof(Axis *) * (size_t)n);
    for (int i = 1; i < n; i++)
        for (int j = i; j > 0 && axis_size(r[j - 1], 1 << 20) > axis_size(r[j], 1 << 20); j--) {
            Axis *t = r[j];
            r[j] = r[j - 1];
            r[j - 1] = t;
        }
    return r;
}

/* The only symbol in e, or NULL; *n counts all. */
static Expr *only_symbol(Expr *e, int *n) {
    if (!(e->flags & EF_SYM)) return NULL;
    if (e->op == E_SYM) {
        (*n)++;
        return e;
    }
    Expr *r = NULL;
    for (int i = 0; i < e->n; i++) {
        Expr *x = only_symbol(e->a[i], n);
        if (x && r && x == r) (*n)--;
        if (x) r = x;
    }
    return r;
}

bool packable(const Kernel *k, Product *p, const Expr *load, Expr *flat) {
    Cx *c = k->c;
    int64_t v;
    Expr *rest = flat, *coef;
    if (load->t->kind != TK_CONST || k->s->level == LEVEL_HOST)
        return false; /* a library reads it as it is */
    for (int i = 0; i < k->naxis; i++) {
        if (!e_affine(c, rest, k->axis[i], &coef, &rest) || !e_is_int(coef, &v)) return false;
        if (v && !e_is_int(k->axis[i]->extent, &v)) return false;
    }
    for (int i = 0; i < p->reduce->naxis; i++) {
        if (!e_affine(c, rest, p->reduce->raxis[i], &coef, &rest) || !e_is_int(coef, &v))
            return false;
        if (!e_is_int(p->reduce->raxis[i]->extent, &v)) return false;
    }
    p->sym = NULL;
    if (e_is_int(rest, &v)) return true;
    int n = 0;
    Expr *s = only_symbol(rest, &n);
    if (!s || n != 1 || s->sym->lo < 0 || s->sym->hi > 1024) return false;
    p->sym = s;
    p->sym_axis = axis_new(c, e_int(c, s->sym->hi + 1));
    return e_affine(c, e_replace(c, rest, s, e_axis(c, p->sym_axis)), p->sym_axis, &coef, &rest) &&
           e_is_int(coef, &v) && e_is_int(rest, &v);
}
