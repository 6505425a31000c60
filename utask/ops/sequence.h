/* sequence.h: shared by the operators on sequences. */
#ifndef BRAID_UTASK_SEQUENCE_H
#define BRAID_UTASK_SEQUENCE_H

#include "utask/sequence_val.h"

Val *seq_in(Lower *L, int i); /* input i, a sequence */
/* Positions are uniform int64 values, negative ones from the end; out of range is a fault. */
Val *seq_insert(Lower *L, const Val *seq, Tensor *t, Expr *pos);
/* The result has rank -1 if neither the sequence nor `want` (-1: any) gives the rank. */
Tensor *seq_at(Lower *L, const Val *seq, Expr *pos, int want);

#endif
