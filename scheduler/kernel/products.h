/* products.h: sums of products of two loads: shared by the kinds of kernels that multiply. */
#ifndef BRAID_PRODUCTS_H
#define BRAID_PRODUCTS_H

#include "scheduler/kernel/kernel.h"

#define MAX_PRODUCTS 16

typedef struct Product {
    Expr *reduce;
    Expr *vec, *sca; /* loads; of 16 bits only a packed vec, and a sca that does not move along v */
    Expr *vec_flat, *sca_flat;
    bool packed, both; /* both: sca moves along v too */
    Expr *sym;         /* packed: a uniform symbol that its position depends on, or NULL */
    Axis *sym_axis;    /* stands for it */
    bool dot; /* both are contiguous along the only reduction axis; vec moves along v in steps */
    int set, slot;    /* slot: index of its scratch tile */
    int panel, place; /* packed: where its vectors are */
} Product;

/* The load behind a factor of a product: of float32, or of 16 bits and converted; or NULL. */
Expr *contract_factor(Expr *e);
/* Whether reduction e is a sum of products of two loads at positions affine in all axes, neither of
 * them of a member of the group; fills *p if so, its operands in the order in which they stand. */
bool contract_product(const Kernel *k, Expr *e, Product *p);
/* Whether p can run in a loop over these axes: it has as many, of the same extents. If so, p goes
 * over them. */
bool contract_share_axes(Cx *c, Product *p, int n, Axis *const *axis);
/* The axes of a reduction: short loops outside, the longest one inside. */
Axis **contract_order(Arena *a, const Expr *reduce);
Expr *coef_of(Cx *c, Expr *flat, Axis *x); /* of x in flat; NULL: not affine in it */

/* p's operand `load` is constant, and so are all extents that it moves along, and its strides: it
 * can be packed. It may also depend on one bounded symbol: the layer, say, of a loop over layers.
 */
bool packable(const Kernel *k, Product *p, const Expr *load, Expr *flat);

#endif
