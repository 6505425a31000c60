/* convolution.h: what convolution.c and winograd.c share (scheduler/kernel/convolution.h). */
#ifndef BRAID_EMIT_CONVOLUTION_H
#define BRAID_EMIT_CONVOLUTION_H

#include "codegen/emit/emit.h"
#include "scheduler/kernel/convolution.h"

/* How a micro-kernel walks along the scalar operand. */
typedef struct ConvWalk {
    const Packed *packed; /* what it multiplies by */
    int levels;           /* loops, outermost first */
    Expr *count[CONV_REDUCE], *stride[CONV_REDUCE];
    bool partial;   /* the outermost loop runs `count` times; `more`: continue earlier sums */
    Expr *row;      /* stride between positions */
    const char *at; /* address of the first element, as text */
    int64_t stream; /* floats from one vector of the packed operand to the next */
} ConvWalk;
/* Emits the call of the micro-kernel for `rows` positions, and the kernel if it is new. Sums go to
 * `out`; the packed operand's part is at `in`. */
void conv_micro(Group *g, const Convolution *k, int rows, const char *out, const char *in,
                const ConvWalk *w);

/* Emits what is done for a tile of `rows` positions. */
typedef void ConvTile(Group *g, int rows, const void *user);
/* Opens a loop over the run [lo, hi) in tiles, each at `pos` with `rows` positions; calls `tile`
 * (unless NULL) once for each size. The caller closes the loop. */
void conv_run(Group *g, const Convolution *k, int64_t even, const char *lo, const char *hi,
              ConvTile *tile, const void *user);
/* In such a loop: prefetches `share` vectors of each stream of the packed operand, from `next`. */
void conv_fetch(Group *g, const Convolution *k, int64_t stream);
/* Stores the members of `rows` positions from `pos` on; lane l of sum i is sum<i>[row * vt + l]. */
void conv_epilogue(Group *g, const Convolution *k);

#endif
