/* transpose.h: groups that read along another axis than they store along.
 *
 * What is stored is contiguous along the last axis, v, what is read along another one, u. A copy is
 * moved by blocks in registers. Where there is more to compute, what is read across is moved so
 * into a small tile, in the order in which it is stored, and then computed with as vectors. */
#ifndef BRAID_KERNEL_TRANSPOSE_H
#define BRAID_KERNEL_TRANSPOSE_H

#include "scheduler/kernel/kernel.h"

#define TRANSPOSE_LOADS 4
#define TRANSPOSE_U 16 /* positions of a tile */
#define TRANSPOSE_V 64

typedef struct TransposeKernel {
    Kernel *g;
    Axis *u, *v;
    bool copy; /* the only member is load[0] */
    int nload; /* what is read across */
    Expr *load[TRANSPOSE_LOADS];
    Expr *flat[TRANSPOSE_LOADS]; /* its position */
} TransposeKernel;

/* Makes k such a kernel, where it can be and is worth it; false: it is as it was. Requires
 * kernel_collapse. */
bool kernel_transpose(Kernel *k);

#endif
