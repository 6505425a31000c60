/* expr_internal.h: what expr.c, scalar.c and linear.c share. */
#ifndef BRAID_EXPR_INTERNAL_H
#define BRAID_EXPR_INTERNAL_H
#include "utask/utask.h"

Expr *expr_intern(Cx *c, Expr *key);                     /* the node equal to *key */
Expr *expr_raw(Cx *c, int op, DType t, int n, Expr **a); /* without simplification */
Expr *expr_rebuild(Cx *c, Expr *e, Expr **a);            /* e with other operands, simplified */
Expr *scalar_fold(Cx *c, int op, const Expr *a, const Expr *b); /* of constants; unary: a twice */
/* int64 arithmetic in linear normal form; NULL when there is nothing to simplify. */
Expr *simplify_i64(Cx *c, int op, Expr *a, Expr *b);

#endif
