/* windowed.h: dimensions along which windows go. */
#ifndef BRAID_PLAN_WINDOWED_H
#define BRAID_PLAN_WINDOWED_H

#include "utask/utask.h"

/* By tensor id, a bit for each dimension that windows of a layer go along: of the results of sums
 * of products over windows, of what these read, and of what is computed from them without products.
 * They are positions of an image or a signal: many, also where only the run knows how many. */
uint32_t *windowed_dims(Program *p);

#endif
