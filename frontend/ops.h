/* ops.h: the operator table, made from ops.def, the only list of operators. */
#ifndef BRAID_OPS_H
#define BRAID_OPS_H

#include "base/base.h"

/* Opsets of the default domain that Braid reads. */
#define OPSET_MIN 1
#define OPSET_MAX 28

struct OpRow {
    const char *name;
    const char *domain;                       /* "" is ai.onnx */
    int since;                                /* the opset that introduced the operator */
    int nin_min, nin_max, nout_min, nout_max; /* max -1: variadic */
    const char *types;                        /* see ops.def */
    const char *attrs;                        /* see ops.def */
    const char *doc;                          /* one line: the meaning */
};
typedef struct OpRow OpRow;

const OpRow *op_find(const char *domain, const char *name); /* NULL: not supported */
/* Whether it is accepted in files of opsets before `since`. */
bool op_comes_early(const OpRow *op);
bool op_draws(const OpRow *op); /* whether it may draw random numbers */
int op_count(void);
const OpRow *op_at(int i);
/* Position in the table; utask/ keeps its lowerings by this index. */
int op_index(const OpRow *op);
/* The attributes, as in ops.def, of an operator that import turns into another one; NULL: none. */
const char *op_old_attrs(const char *domain, const char *name);
/* The newest opset of `domain` that Braid knows; 0: the domain is not known. */
int domain_version(const char *domain);
/* Whether the type rule of `op` allows dtype `t` at input `i`. DT_NONE (not known) is allowed. */
bool op_type_ok(const OpRow *op, int i, DType t);
/* Whether inputs i and j must have the same type (one type variable). */
bool op_type_same(const OpRow *op, int i, int j);
/* What the ranks of inputs and outputs say of each other, by ops_ranks.def; NULL: nothing. Walks
 * that table: for once per operator. */
const char *op_ranks(const OpRow *op);
/* The type rule as `braid ops` prints it. */
const char *op_types_text(const OpRow *op);

#endif
