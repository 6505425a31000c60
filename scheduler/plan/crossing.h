/* crossing.h: what crosses units, before it is known how groups are shared.
 *
 * `fresh` holds by tensor id + 1 what units wrote since they last met. */
#ifndef BRAID_CROSSING_H
#define BRAID_CROSSING_H

#include "utask/utask.h"

/* Whether s reads, anywhere inside, what other units may have written since the last barrier.
 * `any`: groups are not shared like what they read. */
bool stmt_crosses(const Program *p, Map *fresh, const Stmt *s, bool any);
/* The same of an expression that every unit computes, and of a tensor that every unit reads. */
bool expr_crosses(Cx *c, Map *fresh, Expr *e);
bool tensor_crosses(Map *fresh, const Tensor *t);
void fresh_add(Map *fresh, Tensor *t);
/* What s wrote becomes fresh. */
void stmt_writes(Map *fresh, const Stmt *s);

#endif
