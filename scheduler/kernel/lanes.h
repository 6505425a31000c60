/* lanes.h: reductions computed for many elements at once.
 *
 * Where everything that a reduction loads is contiguous along the last axis of the domain, v, the
 * loops of the reduction go outside and v inside: a tile of accumulators, one for each value of v,
 * takes the elements of one step of the reduction after the other, each as vectors. Pooling over
 * pixels whose channels lie together is of this form, and sums over the first axes of a tensor. v
 * may also be another axis than the last one, m, along which the members lie together, as of pixels
 * that are stored by channels: members of a few positions along m are then computed into a small
 * tile, which is moved to where they belong by blocks in registers. */
#ifndef BRAID_KERNEL_LANES_H
#define BRAID_KERNEL_LANES_H

#include "scheduler/kernel/kernel.h"

#define LANES_REDUCES 4
#define LANES_TILE 256  /* accumulators */
#define LANES_ACROSS 64 /* of them where members are stored across, … */
#define LANES_ROWS 16   /* … and positions along m of such a tile */

typedef struct LanesKernel {
    Kernel *g;
    Axis *v, *m; /* m: members are stored across; else NULL */
    int tile;    /* accumulators */
    int n;
    Expr *reduce[LANES_REDUCES];
} LanesKernel;

/* Makes k such a kernel, where it can be and is worth it; false: it is as it was. Requires
 * kernel_collapse. */
bool kernel_lanes(Kernel *k);

#endif
