/* product.h: sums of products  Σ_r A[…] · B[…], the form of matrix products, convolutions and other
 * contractions. Passes and kernels recognize them here; each adds what limits it. */
#ifndef BRAID_PRODUCT_H
#define BRAID_PRODUCT_H

#include "utask/utask.h"

typedef struct SumProduct {
    Expr *reduce;    /* the sum, over reduce->raxis */
    Expr *factor[2]; /* A and B as they stand in it */
    Expr *load[2];   /* the load that a factor is, or is converted from; NULL: it is neither */
    Expr *flat[2];   /* positions of the loads, set by product_affine */
} SumProduct;

static inline bool is_sum_of_products(const Expr *e) {
    return e->op == E_REDUCE && e->kind == R_SUM && e->a[0]->op == E_MUL;
}
/* Whether e is a sum of products, of any type and factors; fills *p if so, all but the positions.
 */
bool product_of(Expr *e, SumProduct *p);
/* Both factors are loads as they are. */
static inline bool product_plain(const SumProduct *p) {
    return p->factor[0] == p->load[0] && p->factor[1] == p->load[1];
}
/* … in float32, whose factors are loads: of float32, or of 16 bits and converted. */
bool product_of_loads(Expr *e, SumProduct *p);
/* Whether both factors are loads at positions affine in all axes of the domain and of the sum, with
 * coefficients (e_coef) that are the same everywhere; sets the positions if so. */
bool product_affine(Cx *c, SumProduct *p, int n, Axis *const *domain);

/* What an axis is to a product that is seen as one of matrices, A (M × K) by B (K × N). */
typedef enum AxisRole {
    ROLE_NONE,  /* an axis of the domain along which neither factor moves */
    ROLE_M,     /* rows: A alone moves */
    ROLE_N,     /* columns: B alone moves */
    ROLE_BATCH, /* both move: each position has matrices of its own */
    ROLE_K      /* the sum runs along it */
} AxisRole;
AxisRole product_role(const SumProduct *p, const Axis *x);
/* The first of the domain's axes that moves position `flat` as far as axis r of the sum does, so
 * that r is a window of neighbours along it; NULL: none does. */
Axis *product_window(Cx *c, Expr *flat, Axis *r, int n, Axis *const *domain);

/* The axes of a reduction: short loops outside, the longest one inside. */
Axis **reduce_order(Arena *a, const Expr *reduce);

/* The first expression with reductions in e, outer ones first, for which `is` holds; NULL: there is
 * none. Nothing in `seen`, where all that is looked at is put, is looked at again. `always`: only
 * of what is evaluated for each element, whatever conditions say, and is in no reduction. */
typedef bool ExprTest(void *user, Expr *e);
Expr *find_reduction(Map *seen, Expr *e, bool always, ExprTest *is, void *user);
/* Whether `is` holds for all reductions in e, the outer ones, and each is evaluated for each
 * element. */
bool all_reductions(Map *seen, Expr *e, ExprTest *is, void *user);

#endif
