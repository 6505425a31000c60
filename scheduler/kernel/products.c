/* products.c: sums of products of two loads, as the kinds of kernels that multiply find them. */
#include "scheduler/kernel/products.h"
#include "utask/windows.h"

/* Whether the loads of p's sum are at positions affine in all axes, and of no member. */
static bool is_plain(const Kernel *k, Product *p) {
    if (!product_affine(k->c, &p->sum, k->naxis, k->axis)) return false;
    for (int i = 0; i < k->n; i++)
        if (p->sum.load[0]->t == k->t[i] || p->sum.load[1]->t == k->t[i]) return false;
    return true;
}

bool kernel_product(const Kernel *k, Expr *e, Product *p) {
    *p = (Product){0};
    return product_of_loads(e, &p->sum) && is_plain(k, p);
}

bool kernel_padded(const Kernel *k, Expr *e, Product *p) {
    *p = (Product){0};
    if (e->dtype != DT_F32 || !product_of(e, &p->sum)) return false;
    for (int i = 0; i < 2; i++) {
        Expr **inside = &p->inside[i];
        p->sum.load[i] = padded_load(k->c, p->sum.factor[i], inside);
        if (!p->sum.load[i] || (*inside && (*inside)->flags & (EF_LOAD | EF_GUARD | EF_REDUCE)))
            return false;
    }
    return is_plain(k, p);
}

typedef struct Members {
    const Kernel *k;
    bool read;
} Members;
static void member_load(void *user, Expr *e) {
    Members *m = user;
    for (int i = 0; i < m->k->n; i++) m->read |= e->t == m->k->t[i];
}

bool kernel_reads_member(const Kernel *k, Expr *e) {
    Members m = {k, false};
    e_each_load(k->c, e, member_load, &m);
    return m.read;
}

bool kernel_built(const Kernel *k, Expr *e, Product *p) {
    *p = (Product){0};
    if (!product_of(e, &p->sum)) return false;
    int built = product_built(k->c, &p->sum, k->naxis, k->axis, &p->columns);
    if (built < 0) return false;
    p->vec = p->sum.load[!built];
    p->vec_flat = p->sum.flat[!built];
    p->sca = p->sum.factor[built];
    p->sca_flat = p->sca->op == E_LOAD ? flat_of(k->c, p->sca) : p->sca;
    return !kernel_reads_member(k, p->sca) && packable(k, p, !built);
}

void product_turn(Product *p, int vec) {
    p->vec = p->sum.load[vec];
    p->sca = p->sum.load[!vec];
    p->vec_flat = p->sum.flat[vec];
    p->sca_flat = p->sum.flat[!vec];
    p->vec_inside = p->inside[vec];
    p->sca_inside = p->inside[!vec];
}

bool product_share_axes(Cx *c, Product *p, int n, Axis *const *axis) {
    Axis *const *from = p->sum.reduce->raxis;
    Expr *to[MAX_RANK * 2];
    uint32_t taken = 0;
    if (p->sum.reduce->naxis != n || n > 2 * MAX_RANK) return false;
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
    Expr **part[] = {&p->vec, &p->sca, &p->vec_flat, &p->sca_flat, &p->vec_inside, &p->sca_inside};
    for (size_t i = 0; i < COUNT(part); i++)
        if (*part[i]) *part[i] = e_subst(c, *part[i], n, from, to, NULL, NULL);
    return true;
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

bool packable(const Kernel *k, Product *p, int factor) {
    Cx *c = k->c;
    const Expr *sum = p->sum.reduce;
    Expr *rest = p->sum.flat[factor];
    int64_t along[MAX_RANK * 2], v;
    if (p->sum.load[factor]->t->kind != TK_CONST || k->s->level == LEVEL_HOST)
        return false; /* a library reads it as it is */
    if (!e_strides(c, rest, k->naxis, k->axis, along, &rest)) return false;
    for (int i = 0; i < k->naxis; i++)
        if (along[i] && axis_size(k->axis[i], -1) < 0) return false;
    if (!e_strides(c, rest, sum->naxis, sum->raxis, along, &rest) ||
        axes_size(sum->naxis, sum->raxis, -1) == INT64_MAX)
        return false;
    p->sym = NULL;
    if (e_is_int(rest, &v)) return true;
    int n = 0;
    Expr *s = only_symbol(rest, &n);
    if (!s || n != 1 || s->sym->lo < 0 || s->sym->hi > 1024) return false;
    p->sym = s;
    p->sym_axis = axis_new(c, e_int(c, s->sym->hi + 1));
    rest = e_replace(c, rest, s, e_axis(c, p->sym_axis));
    return e_strides(c, rest, 1, &p->sym_axis, &v, &rest) && e_is_int(rest, &v);
}
