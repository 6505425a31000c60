/* convolution.h: shared by the files that print sums of products with constants over domains of two
 * and more dimensions (scheduler/kernel/convolution.h). */
#ifndef BRAID_EMIT_CONVOLUTION_H
#define BRAID_EMIT_CONVOLUTION_H

#include "codegen/emit/emit.h"
#include "scheduler/kernel/convolution.h"

/* How a micro-kernel walks over the scalar operand. */
typedef struct ConvWalk {
    int levels; /* loops, outermost first */
    Expr *count[CONV_REDUCE], *stride[CONV_REDUCE];
    bool partial;   /* the outermost makes `count` steps, and sums go on when `more` */
    Expr *row;      /* from one position to the next */
    const char *at; /* text of the address of the first element */
    int64_t stream; /* floats from one vector of the packed operand to the next */
} ConvWalk;
/* Emits the call of the micro-kernel for `rows` positions: their sums go to `out`, the packed
 * operand's part is at `in`. */
void conv_micro(Group *g, const Convolution *k, int rows, const char *out, const char *in,
                const ConvWalk *w);

/* What is done for a tile of `rows` positions. */
typedef void ConvTile(Group *g, int rows, const void *user);
/* Emits the head of a loop over tiles, at `pos` with `rows` positions, of the run [lo, hi), and
 * what picks the size, with what `tile` emits for each; NULL: nothing. The caller closes the loop.
 */
void conv_run(Group *g, const Convolution *k, int64_t even, const char *lo, const char *hi,
              ConvTile *tile, const void *user);
/* In such a loop: fetches `share` more vectors of each stream of the packed operand from `next` on.
 */
void conv_fetch(Group *g, const Convolution *k, int64_t stream);
/* The members of `rows` positions from m = pos on; sum i of lane l is s<i>[row * vt + l]. */
void conv_epilogue(Group *g, const Convolution *k);

#endif
