/* library.h: matrix products at host level: a library of the GPU's vendor computes them between two
 * launches of the kernel. */
#ifndef BRAID_LIBRARY_H
#define BRAID_LIBRARY_H

#include "scheduler/cost/device.h"
#include "utask/utask.h"

/* `batch` products of matrices as BLAS has them, of float32, or of float16 or bfloat16 and then the
 * result is of these or of float32: the elements of a column lie together, and the result (m x n)
 * is the first operand (m x k) by the second (k x n). All numbers are such that the host can
 * compute them. */
typedef struct LibraryProduct {
    Tensor *t[3];  /* the operands and the result, in their own storage */
    Expr *at[3];   /* elements in front of the first matrix */
    Expr *ld[3];   /* from one column to the next */
    Expr *next[3]; /* from one matrix to the next */
    Expr *m, *n, *k, *batch;
    bool turned[2]; /* the operand's rows lie together instead */
} LibraryProduct;

/* Whether x is such a product, at places that the host knows. */
bool library_product(const Program *p, Tensor *x, LibraryProduct *l);
/* Of such a product, with the two launches that it takes. */
double library_ns(const Program *p, Tensor *x);
/* A uniform value as the host computes it: of constants and of sizes of inputs (E_INDIM) by +, -,
 * *, min and max; NULL: it cannot. */
Expr *library_host_value(const Program *p, Expr *e);

#endif
