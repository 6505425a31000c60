/* uses.h: what statements use of one another. */
#ifndef BRAID_USES_H
#define BRAID_USES_H

#include "utask/utask.h"

/* Calls f for each expression of s and of all statements inside; t for each tensor that it names otherwise
 * (inputs of hand-written bodies, initial and next values, arms' results, arguments). Either may be NULL. */
void stmt_each_expr(const Stmt *s, void (*f)(void *user, Expr *e), void (*t)(void *user, Tensor *t), void *user);
/* Whether `reader` uses a tensor or a uniform value that `maker` defines for what follows it. */
bool stmt_uses(Cx *c, const Stmt *reader, const Stmt *maker);

#endif
