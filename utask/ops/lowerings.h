/* lowerings.h: declares the lowering of every row of the operator table. */
#ifndef BRAID_UTASK_OPS_H
#define BRAID_UTASK_OPS_H

#include "utask/lower.h"

#define OP_AS(id, ...) void lower_##id(Lower *L);
#include "frontend/ops.def"

/* The only output, of the type and shape of `like`, of the hand-written body `name`. */
Tensor *ext_like(Lower *L, const char *name, int nin, Tensor *const *ins, int nparam,
                 Expr *const *param, Tensor *like, const char *fault);

#endif
