/* pool.h: pools of a tensor [N, C, spatial axes…] by the attributes of the node. */
#ifndef BRAID_OPS_POOL_H
#define BRAID_OPS_POOL_H

#include "utask/lower.h"

Tensor *t_average_pool(Lower *L, Tensor *x);

#endif
