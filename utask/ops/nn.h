/* nn.h: helpers shared by the lowerings of products, reductions, normalizations and losses. */
#ifndef BRAID_OPS_NN_H
#define BRAID_OPS_NN_H

#include "utask/ops/lowerings.h"

/* Checks that t, named `what`, broadcasts to the shape of `to`, and does not extend it. */
void broadcasts_to(Lower *L, const Tensor *t, const Tensor *to, const char *what);

/* Checks that t, named `what`, or NULL, is [last axis of x]. */
void per_element(Lower *L, const Tensor *t, const Tensor *x, const char *what);

/* A uniform value as a tensor of rank 0. */
static inline Tensor *t_uniform(Lower *L, Expr *e) {
    return t_from_uniform(L, (DType)e->dtype, 0, NULL, &e);
}

/* The mean of t over the axes of `mask` (kept dims); t itself if there are none. */
static inline Tensor *t_mean(Lower *L, Tensor *t, uint32_t mask) {
    if (!mask) return t;
    Expr *n = e_int(L->cx, 1);
    for (int i = 0; i < t->rank; i++)
        if (mask >> i & 1) n = e_bin(L->cx, E_MUL, n, t->dim[i]);
    Tensor *sum = t_reduce(L, R_SUM, t, mask, true);
    return t_bin(L, E_DIV, sum, t_uniform(L, e_cast(L->cx, t->dtype, n)));
}

/* Bit i set for each axis i in [from, rank). */
static inline uint32_t axes_from(int from, int rank) {
    return ((1u << rank) - 1) & ~((1u << from) - 1);
}

/* (w - mean) / sqrt(var + eps) with statistics over the axes of `mask`; *mean and *inv become them,
 * with dims 1 there (either may be NULL). */
Tensor *t_standardized(Lower *L, Tensor *w, uint32_t mask, double eps, Tensor **mean, Tensor **inv);
/* w / sqrt(mean of squares over `mask` + eps); *inv (may be NULL) becomes 1 / that root. */
Tensor *t_rms_normalized(Lower *L, Tensor *w, uint32_t mask, double eps, Tensor **inv);

#endif
