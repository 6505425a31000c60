/* batch.h: transformations of recursion. */
#ifndef BRAID_BATCH_H
#define BRAID_BATCH_H

#include "utask/utask.h"

/* The largest number of activations that run at once; more take several calls. It is large enough
 * that weights are read rarely. Every depth holds their arena memory, so at depth d the limit is
 * ROWS_DEEP / d. */
#if BRAID_TINY
#define ROWS_MAX 3
#else
#define ROWS_MAX 128
#endif
#define ROWS_DEEP 8192

/* Requires single-tensor OPs. Recursions whose control depends on integers that are known before
 * become a loop over heights, where that pays (linearize.c). */
void pass_linearize(Program *p);
/* Requires single-tensor OPs. Afterwards recursive functions with sibling calls run on many
 * activations at once, where that pays: Func.rows. */
void pass_batch(Program *p);
/* Requires single-tensor OPs. Replaces calls in recursive functions by the called bodies, a few
 * levels deep, where that pays; functions with Func.rows are left alone. */
void pass_unroll_recursion(Program *p);

#endif
