/* sequence_val.h: sequences as values of lowering, for control flow and for the operators on them.
 */
#ifndef BRAID_SEQUENCE_VAL_H
#define BRAID_SEQUENCE_VAL_H

#include "utask/lower.h"

/* A sequence value over a blob; nothing is known of its elements. */
Val *seq_val(Lower *L, DType t, Tensor *blob, Expr *len);
Val *seq_empty(Lower *L, DType t);
/* A hand-written body whose one result is a sequence, and that which makes one of n tensors. */
Tensor *seq_body(Lower *L, const char *name, int nin, Tensor *const *ins, int nparam,
                 Expr *const *param, const char *fault);
Tensor *seq_construct(Lower *L, DType t, int n, Tensor *const *items);

Val seq_elems_of(const Tensor *t);     /* what a sequence of this one tensor knows */
uint32_t seq_elem_ranks(const Val *v); /* bit r: an element can have rank r; 0: nothing is known */
void seq_copy_elems(Val *dst, const Val *src); /* what is known of src's elements */
/* dst's elements can be those of a or of b: keeps what is known of both. dst may be a or b. */
void seq_join_elems(Val *dst, const Val *a, const Val *b);
bool seq_same_elems(const Val *a, const Val *b); /* the same is known of both */
/* Forgets the element dims that use symbols made later than the first `nsym` of the context: those
 * of a loop body or branch that ends. */
void seq_leave_scope(Lower *L, Val *v, int nsym);

#endif
