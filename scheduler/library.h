/* library.h: matrix products at host level: a library of the GPU's vendor computes them between two launches of the
 * kernel. */
#ifndef BRAID_LIBRARY_H
#define BRAID_LIBRARY_H

#include "scheduler/device.h"
#include "utask/utask.h"

/* `batch` products of matrices of float32 as BLAS has them: the elements of a column lie together, and the result
 * (m x n) is the first operand (m x k) by the second (k x n). */
typedef struct LibraryProduct {
    Tensor *t[3];    /* the operands and the result, in their own storage */
    int64_t at[3];   /* elements in front of the first matrix */
    int64_t ld[3];   /* from one column to the next */
    int64_t next[3]; /* from one matrix to the next */
    bool turned[2];  /* the operand's rows lie together instead */
    int64_t m, n, k, batch;
} LibraryProduct;

/* Whether x is such a product, of sizes and at places that are known at compile time. */
bool library_product(Cx *c, Tensor *x, LibraryProduct *p);
/* Of such a product, with the two launches that it takes. */
double library_ns(Cx *c, const Device *d, Tensor *x);

#endif
