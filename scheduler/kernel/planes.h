/* planes.h: sums over windows along rows (utask/window_rows.h): depthwise convolutions whose
 * channels lie apart.
 *
 * For a block of rows, and of lanes along each, the elements that all its windows read are copied
 * into a tile on the stack, with zeros where they are padding; with a stride, those of each residue
 * lie together, so that what neighbours multiply by one weight is always a vector. A micro-kernel
 * computes, in registers, the sums of a few rows and vectors: rows whose windows overlap load what
 * they share once. */
#ifndef BRAID_KERNEL_PLANES_H
#define BRAID_KERNEL_PLANES_H

#include "scheduler/kernel/convolution.h"
#include "utask/window_rows.h"

typedef struct PlanesSum {
    Planes s;
    int64_t need, phase, line; /* of a residue: elements that are read, and their pitch; of a row */
    int64_t lines;             /* rows of a tile */
    bool rolled;               /* the taps from row to row are a loop */
    bool clean;                /* all tiles have zeros at the same places */
} PlanesSum;

typedef struct PlanesKernel {
    Convolution k; /* v, m (rows; NULL: there is one) and the micro-kernel; its sums are not used */
    int n;
    PlanesSum p[CONV_SUMS];
    int64_t block, even; /* rows of a block; > 0: every block has this many */
    bool rest;           /* a tile may have vectors that are no whole micro-kernel */
} PlanesKernel;

/* Makes k such a kernel, where it can be; false: it is as it was. */
bool kernel_planes(Kernel *k);

#endif
