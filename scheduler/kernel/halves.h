/* halves.h: groups whose elements are float16 in memory and float32 where they are computed.
 *
 * Where processors convert whole vectors, compilers do not find the instructions in loops. So a
 * tile of each tensor is widened first, computed with as float32, and narrowed when it is stored.
 */
#ifndef BRAID_KERNEL_HALVES_H
#define BRAID_KERNEL_HALVES_H

#include "scheduler/kernel/kernel.h"

#define HALVES_LOADS 6
#define HALVES_TILE 256 /* positions of v, the last axis */

typedef struct HalvesKernel {
    Kernel *g;
    Axis *v;
    int nload; /* float16, contiguous along v, read by each element */
    Expr *load[HALVES_LOADS];
    Expr *flat[HALVES_LOADS]; /* its position */
} HalvesKernel;

/* Makes k such a kernel, where it can be and is worth it; false: it is as it was. Requires
 * kernel_collapse. */
bool kernel_halves(Kernel *k);

#endif
