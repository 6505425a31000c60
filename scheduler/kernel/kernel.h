/* kernel.h: the kernel of a group: how its elements are computed.
 *
 * A group says what its members are over a domain that units share. Its kernel is everything else
 * that the emitter prints: the members' expressions over the axes that loops go over, which of a
 * few kinds it is, and what that kind has chosen (roles of axes, tile, order of packed constants,
 * what stays on chip, memory of a block). Each kind has a file in this folder, which says what it
 * needs and chooses, and one in codegen/emit/cpu or codegen/emit/gpu, which prints it. */
#ifndef BRAID_KERNEL_H
#define BRAID_KERNEL_H

#include "utask/utask.h"

typedef enum KernelKind {
    KERNEL_NONE,        /* there are no elements */
    KERNEL_LOOPS,       /* a loop for each axis, the last one over lanes */
    KERNEL_LANES,       /* the loops of reductions around the one over lanes (lanes.h) */
    KERNEL_CONTRACTION, /* sums of products by micro-kernels (contraction.h) */
    KERNEL_CONVOLUTION, /* sums of products with constants, by blocks (convolution.h) */
    KERNEL_WINOGRAD     /* the same over windows of 3 x 3, by fewer products */
} KernelKind;

typedef struct Kernel {
    Program *p;
    Cx *c;
    Arena *a;
    Stmt *s; /* the group */
    KernelKind kind;
    int lanes; /* of a vector of float32; 1: a unit is a block of threads */
    int n;
    Tensor **t; /* members */
    /* Of each member: what is stored and where, over the axes below. */
    Expr **value, **position;
    int naxis;
    Axis *axis[MAX_RANK]; /* of the loops, outermost first, none of extent 1 */
    Axis *split;          /* shared among the units, in grains; NULL: unit 0 computes all */
    Expr *grain;
    union { /* by kind */
        const struct LanesKernel *by_lanes;
        const struct Contraction *contraction;
        const struct Convolution *convolution;
        const struct Winograd *winograd;
    };
} Kernel;

/* Joins neighbouring axes along which every access is contiguous. */
void kernel_collapse(Kernel *k);

#endif
