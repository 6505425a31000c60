/* lanes.h: reductions computed for many elements at once.
 *
 * Where everything that a reduction loads is contiguous along the last axis of the domain, v, the
 * loops of the reduction go outside and v inside: a tile of accumulators, one for each value of v,
 * takes the elements of one step of the reduction after the other, each as vectors. Pooling over
 * pixels whose channels lie together is of this form, and sums over the first axes of a tensor. */
#ifndef BRAID_KERNEL_LANES_H
#define BRAID_KERNEL_LANES_H

#include "scheduler/kernel/kernel.h"

#define LANES_REDUCES 4
#define LANES_TILE 256 /* accumulators */

typedef struct LanesKernel {
    Kernel *g;
    Axis *v;
    int n;
    Expr *reduce[LANES_REDUCES];
} LanesKernel;

/* Makes k such a kernel, where it can be and is worth it; false: it is as it was. Requires
 * kernel_collapse. */
bool kernel_lanes(Kernel *k);

#endif
