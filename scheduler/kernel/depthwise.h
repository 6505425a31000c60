/* depthwise.h: sums over windows of which each element has one of its own along the lanes
 * (utask/windows.h): depthwise convolutions whose channels lie together.
 *
 * A micro-kernel computes the sums of neighbouring positions along m for a few vectors; positions
 * whose windows overlap load what they share once. Padding is no memory: positions whose windows
 * reach outside along m are computed one by one over what is inside of them, and along the axes
 * further out only the steps inside are made. */
#ifndef BRAID_KERNEL_DEPTHWISE_H
#define BRAID_KERNEL_DEPTHWISE_H

#include "scheduler/kernel/convolution.h"
#include "utask/windows.h"

typedef struct Depthwise {
    Convolution k; /* v, m, nlane and the tile; its sums are not used */
    int n;
    Windows s[CONV_SUMS];
    const Packed *packed[CONV_SUMS]; /* [vector][axes, outermost first][lane] */
    Expr *from, *to;                 /* positions whose windows along m all lie inside */
    int size[4], nsize;              /* positions of a tile between from and to, falling */
    int64_t first;                   /* > 0: so many of the positions are in tiles of size[0] */
    int chunk[CONV_SUMS];            /* steps of the last axis that are written out at once */
} Depthwise;

/* Makes k such a kernel, where it can be; false: it is as it was. */
bool kernel_depthwise(Kernel *k);

#endif
