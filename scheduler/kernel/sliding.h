/* sliding.h: reductions over windows that move along the last axis.
 *
 * Pooling of channels-first images, in one to four dimensions. Neighbouring elements along the last
 * axis of the domain, v, have windows `stride` elements apart, of `taps` elements `apart` from each
 * other; windows may reach over the edges of what they are of. For many neighbours at once the rows
 * of the windows (one for each position of the other reduced axes) are joined, as vectors, into one
 * line, and then its columns. Several lines are made before their columns are joined: loads that
 * span several stores wait for these. */
#ifndef BRAID_KERNEL_SLIDING_H
#define BRAID_KERNEL_SLIDING_H

#include "scheduler/kernel/kernel.h"

#define SLIDING_TILE 256  /* windows at a time */
#define SLIDING_ROWS 256  /* at most of one window */
#define SLIDING_LINE 2048 /* elements of a line */
#define SLIDING_LINES 8   /* at a time */
#define SLIDING_BOUNDS 4

typedef struct SlidingKernel {
    Kernel *g;
    Axis *v, *along; /* the reduced axis that moves as v does */
    Axis *u;         /* of the lines: the axis before v, or NULL */
    Expr *reduce;
    Tensor *of;
    int64_t stride, taps, apart;
    Expr *at;     /* of a row's first element in `of`, for v: flat */
    Expr *inside; /* bool: the row is to be counted */
    /* Elements q of a row, low <= q < high, that are there, counted from where v is 0. */
    Expr *low[SLIDING_BOUNDS], *high[SLIDING_BOUNDS];
    int nlow, nhigh;
    int64_t rows;              /* of a window, at most */
    int64_t tile, lines, line; /* windows and lines at a time; elements of a line with what vectors
                                  read beyond */
} SlidingKernel;

/* Makes k such a kernel, where it can be and is worth it; false: it is as it was. Requires
 * kernel_collapse. */
bool kernel_sliding(Kernel *k);

#endif
