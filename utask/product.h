/* product.h: sums of products  Σ_r A[…] · B[…], the form of matrix products, convolutions and other
 * contractions. Passes and kernels recognize them here and add their own restrictions. */
#ifndef BRAID_PRODUCT_H
#define BRAID_PRODUCT_H

#include "utask/utask.h"

typedef struct SumProduct {
    Expr *reduce;    /* the sum, over reduce->raxis */
    Expr *factor[2]; /* A and B as written in the sum */
    Expr *load[2];   /* the load that the factor is, or converts; NULL: neither */
    Expr *zero[2];   /* product_of_bytes: int32, what is subtracted from the load; NULL: nothing */
    Expr *flat[2];   /* positions of the loads, set by product_affine */
} SumProduct;

static inline bool is_sum_of_products(const Expr *e) {
    return e->op == E_REDUCE && e->kind == R_SUM && e->a[0]->op == E_MUL;
}
/* Each element is read once: no kernel of products has anything to gain. */
static inline bool is_sum_of_squares(const Expr *e) {
    return is_sum_of_products(e) && e->a[0]->a[0] == e->a[0]->a[1];
}
/* Whether e is a sum of products, of any type and factors. If so, fills *p except for the
 * positions.
 */
bool product_of(Expr *e, SumProduct *p);
/* Whether both factors are loads without a conversion. */
static inline bool product_plain(const SumProduct *p) {
    return p->factor[0] == p->load[0] && p->factor[1] == p->load[1];
}
/* As product_of, but only in float32, with factors that are loads of float32 or converted loads of
 * 16-bit floats. */
bool product_of_loads(Expr *e, SumProduct *p);
/* As product_of, but only in int32, with factors that are loads of 8-bit integers converted to
 * int32, from which a zero point may be subtracted that the axes of the sum do not move. Then
 * load[i] is that load. */
bool product_of_bytes(Expr *e, SumProduct *p);
/* Whether kernels compute e factor by factor, wherever it stands: a sum of products of floats, or
 * of 8-bit integers. */
bool is_fast_product(Expr *e);
/* Whether both factors are loads at positions affine in all axes of the domain and of the sum, with
 * coefficients (e_coef) that do not depend on axes. If so, sets the positions. */
bool product_affine(Cx *c, SumProduct *p, int n, Axis *const *domain);

/* Whether a kernel can compute a factor of the sum for itself, a few rows of it at a time, before
 * it multiplies. The factor is of float32, without reductions, over extents that are known; the
 * other one is a constant that moves along one axis of the domain, which the factor does not use:
 * the columns. Returns the factor's number and sets *columns and the constant's position; -1:
 * neither.
 */
int product_built(Cx *c, SumProduct *p, int n, Axis *const *domain, Axis **columns);
#define BUILT_MAX 2048 /* elements of a row of such a factor */

/* Whether t is a constant of float32 without infinities and NaN: times zero it is zero. */
bool is_finite_constant(const Tensor *t);

/* The role of an axis in a product seen as a matrix product, A (M × K) by B (K × N). */
typedef enum AxisRole {
    ROLE_NONE,  /* an axis of the domain along which neither factor moves */
    ROLE_M,     /* rows: A alone moves */
    ROLE_N,     /* columns: B alone moves */
    ROLE_BATCH, /* both move: each position has matrices of its own */
    ROLE_K      /* the sum runs along it */
} AxisRole;
AxisRole product_role(const SumProduct *p, const Axis *x);
/* The dimension of a load's tensor that axis r of the sum runs through, from its begin to its end;
 * -1: it is not one alone. */
int product_dim(const Expr *load, const Axis *r);
/* The first domain axis that moves position `flat` as far as the sum's axis r does, so r is a
 * window along it; NULL: none. */
Axis *product_window(Cx *c, Expr *flat, Axis *r, int n, Axis *const *domain);

/* The axes of a reduction in loop order: short loops outside, the longest one innermost. */
Axis **reduce_order(Arena *a, const Expr *reduce);

/* The first expression in e that contains reductions and satisfies `is`, outer ones first; NULL:
 * none. `seen` records visited expressions, which are not visited again. `always`: visit only what
 * is evaluated for every element, whatever conditions say, and is not inside a reduction. */
typedef bool ExprTest(void *user, Expr *e);
Expr *find_reduction(Map *seen, Expr *e, bool always, ExprTest *is, void *user);
/* Whether `is` holds for all outermost reductions in e, and each of them is evaluated for every
 * element. */
bool all_reductions(Map *seen, Expr *e, ExprTest *is, void *user);

#endif
