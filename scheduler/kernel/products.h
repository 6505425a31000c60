/* products.h: sums of products of two loads: shared by the kinds of kernels that multiply. */
#ifndef BRAID_PRODUCTS_H
#define BRAID_PRODUCTS_H

#include "scheduler/kernel/kernel.h"
#include "utask/product.h"

#define MAX_PRODUCTS 16

typedef struct Product {
    SumProduct sum;
    Expr *vec, *sca; /* loads; of 16 bits only a packed vec, and a sca that does not move along v */
    Expr *vec_flat, *sca_flat;
    Expr *vec_inside, *sca_inside; /* elsewhere the factor is 0; NULL: nowhere */
    Expr *inside[2];               /* the same by factor of the sum */
    Axis
        *columns; /* sca is no load: the kernel computes it, and vec moves along these; else NULL */
    int operand;  /* its number then (contraction.h); sca_flat is a position in it */
    bool packed, both; /* both: sca moves along v too */
    Expr *sym;         /* packed: a uniform symbol that its position depends on, or NULL */
    Axis *sym_axis;    /* stands for it */
    bool dot; /* both are contiguous along the only reduction axis; vec moves along v in steps */
    const struct Coded *coded; /* packed: its codes are (utask/coded.h); NULL: its numbers are */
    int set, slot;             /* slot: index of its scratch tile */
    int panel, place;          /* packed: where its vectors are */
} Product;

/* Whether reduction e is a sum of products of two loads at positions affine in all axes, neither of
 * them of a member of the group; sets p->sum if so. */
bool kernel_product(const Kernel *k, Expr *e, Product *p);
/* The same of factors that may be 0 outside of bounds, as padded images are: sets p->inside, too.
 */
bool kernel_padded(const Kernel *k, Expr *e, Product *p);
/* Whether reduction e is a sum of products one factor of which the kernel can compute for itself
 * (product_built) without members of the group; sets *p if so, with columns, vec and sca. Where sca
 * is no load, sca_flat is sca. */
bool kernel_built(const Kernel *k, Expr *e, Product *p);
/* Whether e loads a member of the group. */
bool kernel_reads_member(const Kernel *k, Expr *e);
/* Makes factor `vec` of the sum the vector operand, and the other one sca. */
void product_turn(Product *p, int vec);
/* Whether p can run in a loop over these axes: it has as many, of the same extents. If so, p goes
 * over them. */
bool product_share_axes(Cx *c, Product *p, int n, Axis *const *axis);
/* This factor of p's sum is constant, and so are all extents that it moves along, and its strides:
 * it can be packed. It may also depend on one bounded symbol: the layer, say, of a loop over
 * layers.
 */
bool packable(const Kernel *k, Product *p, int factor);

#endif
