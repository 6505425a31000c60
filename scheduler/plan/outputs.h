/* outputs.h: outputs that a run can write to the caller's memory. */
#ifndef BRAID_OUTPUTS_H
#define BRAID_OUTPUTS_H

#include "utask/utask.h"

/* The tensor whose storage may be the caller's memory for output i; NULL: it is copied there. */
const Tensor *output_given(const Program *p, int i);

#endif
