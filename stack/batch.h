/* batch.h: transformations of recursion. */
#ifndef BRAID_BATCH_H
#define BRAID_BATCH_H

#include "utask/utask.h"

/* Activations that run at once, at most (more are run in several calls): enough that weights are
 * read seldom. What they take of the arena is there at each depth, so at depth d they are no more
 * than ROWS_DEEP / d. */
#if BRAID_TINY
#define ROWS_MAX 3
#else
#define ROWS_MAX 128
#endif
#define ROWS_DEEP 8192

/* Requires single-tensor OPs. Recursive functions whose calls are siblings run on many activations
 * at once: Func.rows. */
void pass_batch(Program *p);
/* Requires single-tensor OPs. Bodies of recursive functions that do not run on many activations at
 * once are put in the place of their calls, to a few levels. */
void pass_unroll_recursion(Program *p);

#endif
