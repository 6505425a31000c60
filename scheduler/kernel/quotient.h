/* quotient.h: divisions that multiply instead.
 *
 * Vectors divide several times slower than they multiply. By what a row of a Softmax is divided,
 * the sum of e^(x - max x), is at least 1 and no more than there are elements, or NaN: its
 * reciprocal is in range, and computed once for a row. */
#ifndef BRAID_KERNEL_QUOTIENT_H
#define BRAID_KERNEL_QUOTIENT_H

#include "scheduler/kernel/kernel.h"

/* Changes the members' values; requires tensors as fusion left them. */
void kernel_quotients(Kernel *k);

#endif
