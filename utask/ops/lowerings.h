/* lowerings.h: declares the lowering of every row of the operator table. */
#ifndef BRAID_UTASK_OPS_H
#define BRAID_UTASK_OPS_H

#include "utask/lower.h"

#define OP_AS(id, ...) void lower_##id(Lower *L);
#include "frontend/ops.def"

/* The output of the hand-written body `name`, which has one output and no symbols; type and shape
 * are those of `like`. */
Tensor *ext_like(Lower *L, const char *name, int nin, Tensor *const *ins, int nparam,
                 Expr *const *param, Tensor *like, const char *fault);

#endif
