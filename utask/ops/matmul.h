/* matmul.h: matrix products that several operators share. */
#ifndef BRAID_OPS_MATMUL_H
#define BRAID_OPS_MATMUL_H

#include "utask/lower.h"

/* alpha A' B' + beta C with the node's attributes; C may be NULL. */
Tensor *t_gemm(Lower *L, Tensor *a, Tensor *b, Tensor *bias);
/* t times an attribute's value; integers multiply in float64. */
Tensor *t_scaled(Lower *L, Tensor *t, double factor);
/* a with its last two axes swapped; a itself when it has fewer. */
Tensor *t_swap_last(Lower *L, Tensor *a);

/* The product of int8 or uint8 matrices minus their zero points in int32. Zero points may be NULL;
 * a's is one number or one per row, b's one number or one per column. */
Tensor *integer_product(Lower *L, Tensor *a, Tensor *azero, Tensor *b, Tensor *bzero);

#endif
