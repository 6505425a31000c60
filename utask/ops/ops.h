/* ops.h: declares the lowering of every row of the operator table. */
#ifndef BRAID_UTASK_OPS_H
#define BRAID_UTASK_OPS_H

#include "utask/lower.h"

#define OP(name, ...) void lower_##name(Lower *L);
#include "frontend/ops.def"
#undef OP

#endif
