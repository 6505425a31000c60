/* size.h: sizes, axes and clamps that come from data; shared by the shape and movement lowerings.
 */
#ifndef BRAID_UTASK_OPS_SIZE_H
#define BRAID_UTASK_OPS_SIZE_H

#include "utask/ops/ops.h"

/* Length of the 1-D parameter input `i` (shape, axes, pads…): must be static and at most `max`. */
int param_len(Lower *L, int i, int max, const char *what);
/* A size from data: checked to be ≥ 0 unless proven; bound by a LET when it is not simple. */
Expr *size_uni(Lower *L, const char *name, Expr *e);
/* Element i of the axes input t for a tensor of this rank, checked and made non-negative. */
Expr *axis_uni(Lower *L, Tensor *t, int i, int rank);
/* Constants, symbols and short sums and products of them. */
bool is_simple(const Expr *e);
bool known(const Expr *cond);        /* true at compile time */
Expr *kmin(Cx *c, Expr *a, Expr *b); /* MIN, MAX that look at proven bounds first */
Expr *kmax(Cx *c, Expr *a, Expr *b);
Expr *clamp_i(Cx *c, Expr *e, int64_t lo, int64_t hi);
bool ge_const(const Expr *e, int64_t v); /* int64: proven to be ≥ v */
/* Of two sizes that are equal, the one that says more. */
Expr *better_dim(Expr *a, Expr *b);
/* all_axes[i] = axis i of t as an expression, for the whole rank. */
void all_axes(Lower *L, Tensor *t, Expr **idx);

#endif
