/* ops.h: the operator table. ops.def is the only place that lists operators. */
#ifndef BRAID_OPS_H
#define BRAID_OPS_H

#include "base/base.h"

/* Opsets of the default domain that Braid reads. */
#define OPSET_MIN 1
#define OPSET_MAX 28

struct OpRow {
    const char *name;
    const char *domain;                       /* "" is ai.onnx */
    int since;                                /* first opset of the operator as such */
    int nin_min, nin_max, nout_min, nout_max; /* max -1: variadic */
    const char *types;                        /* see ops.def */
    const char *attrs;                        /* see ops.def */
    const char *doc;                          /* one line: the meaning */
};
typedef struct OpRow OpRow;

const OpRow *op_find(const char *domain, const char *name); /* NULL when not supported */
/* May stand in a file of an older opset than the one that it came with. */
bool op_comes_early(const OpRow *op);
bool op_draws(const OpRow *op); /* may give other numbers each time it runs */
int op_count(void);
const OpRow *op_at(int i);
/* Position in the table; utask/ keeps its lowerings by this index. */
int op_index(const OpRow *op);
/* The attributes, as in ops.def, of an operator that import turns into another one; NULL: none. */
const char *op_old_attrs(const char *domain, const char *name);
/* The newest opset of `domain` that Braid knows; 0: it does not know the domain. */
int domain_version(const char *domain);
/* Whether the type rule of `op` allows dtype `t` at input `i` (DT_NONE: unknown is allowed). */
bool op_type_ok(const OpRow *op, int i, DType t);
/* Inputs i and j are bound to one type variable. */
bool op_type_same(const OpRow *op, int i, int j);
/* What the ranks of inputs and outputs say of each other, by ops_ranks.def; NULL: nothing. Walks
 * that table: for once per operator. */
const char *op_ranks(const OpRow *op);
/* Type rule as text for `braid ops`, as in ops.def. */
const char *op_types_text(const OpRow *op);

#endif
