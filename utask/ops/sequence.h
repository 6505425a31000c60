/* sequence.h: sequences during lowering, for control flow too. */
#ifndef BRAID_UTASK_SEQUENCE_H
#define BRAID_UTASK_SEQUENCE_H

#include "utask/lower.h"

/* A sequence value over a blob; nothing is known of its elements. */
Val *seq_val(Lower *L, DType t, Tensor *blob, Expr *len);
/* dst's elements can be those of a or of b: keeps what is known of both. dst may be a or b. */
void seq_join_elems(Val *dst, const Val *a, const Val *b);
bool seq_same_elems(const Val *a, const Val *b); /* the same is known of both */
/* Forgets the element dims that use symbols made later than the first `nsym` of the context: those
 * of a loop body or branch that ends. */
void seq_leave_scope(Lower *L, Val *v, int nsym);

Val *seq_empty(Lower *L, DType t);
/* Positions are int64 uniforms, negative ones count from the end; out of range is a fault. */
Val *seq_insert(Lower *L, const Val *seq, Tensor *t, Expr *pos);
/* The result has rank -1 when neither the sequence nor `want` (-1: no wish) tells the rank. */
Tensor *seq_at(Lower *L, const Val *seq, Expr *pos, int want);

#endif
