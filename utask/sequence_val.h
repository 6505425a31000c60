/* sequence_val.h: sequence values during lowering, for control flow and for operators on
 * sequences. */
#ifndef BRAID_SEQUENCE_VAL_H
#define BRAID_SEQUENCE_VAL_H

#include "utask/lower.h"

/* A sequence value over a blob; nothing is known about its elements. */
Val *seq_val(Lower *L, DType t, Tensor *blob, Expr *len);
Val *seq_empty(Lower *L, DType t);
/* Calls a hand-written body whose one result is a sequence; makes a sequence of n tensors. */
Tensor *seq_body(Lower *L, const char *name, int nin, Tensor *const *ins, int nparam,
                 Expr *const *param, const char *fault);
Tensor *seq_construct(Lower *L, DType t, int n, Tensor *const *items);

Val seq_elems_of(const Tensor *t);     /* what is known about a sequence of this one tensor */
uint32_t seq_elem_ranks(const Val *v); /* bit r: an element can have rank r; 0: unknown */
void seq_copy_elems(Val *dst, const Val *src); /* copies what is known about src's elements */
/* dst's elements can be those of a or of b: keeps what holds for both. dst may be a or b. */
void seq_join_elems(Val *dst, const Val *a, const Val *b);
bool seq_same_elems(const Val *a, const Val *b); /* the same is known about both */
/* At the end of a loop body or branch: forgets element dims that use symbols made after the
 * context's first `nsym`. */
void seq_leave_scope(Val *v, int nsym);

#endif
