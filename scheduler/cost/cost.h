/* cost.h: the cost model: estimated times from the device's numbers.
 *
 * An element's work is counted on the expression (products, simple and expensive operations, bytes
 * loaded); bytes come from the nearest memory that holds them. Trip counts and sizes that are not
 * known are taken to be COST_UNKNOWN; of a branch, the mean of the arms. */
#ifndef BRAID_COST_H
#define BRAID_COST_H

#include "scheduler/cost/device.h"
#include "utask/utask.h"

#define COST_UNKNOWN 16

typedef struct Work {
    double flops;             /* of sums of products: two for each multiply-add */
    double simple, expensive; /* element operations */
    double read, written;     /* bytes, distinct ones */
    bool scalar;              /* cannot use lanes */
} Work;

/* Value of a size, or number of iterations (NULL: without bound), COST_UNKNOWN when it is not known
 * at compile time. */
double cost_size(const Expr *e);
double cost_bytes(const Tensor *t); /* all of a tensor */
/* Of one run of group s (S_OP), with sizes that are not known taken to be `unknown`. */
Work cost_work(Cx *c, const Stmt *s, double unknown);
/* The element operations of w on one core, without what they read and write. */
double cost_compute_ns(const Device *d, const Work *w);
/* What a GPU's thread waits for an operator, from its operands on. */
double cost_wait_ns(const Device *d, ExprOp op);
/* One run of the group by `units` cores; with more than one the barrier is not included. */
double cost_group_ns(const Program *p, const Stmt *s, int units);
/* On a GPU: how long a block's threads take for a unit's part when nothing else than they
 * themselves holds them up (latency.c). */
double cost_latency_ns(const Program *p, const Stmt *s, int units, double unknown);
/* Of the constants that sums of products read, how much fits into the memory of so many blocks. */
double cost_kept(const Program *p, int units);
/* One run of all of q, of one statement, by `units` cores, the barriers that are there already
 * included. A group that is not distributed yet is shared as far as its domain allows. */
double cost_seq_ns(const Program *p, const Seq *q, int units);
double cost_stmt_ns(const Program *p, const Stmt *s, int units);

/* ns(user, …), once with the sizes that are not known taken to be 1 and once COST_UNKNOWN: the
 * geometric mean, for choices that must not be bad at either, as a batch may be one or many. */
double cost_over_sizes(double (*ns)(void *user, double unknown), void *user);
/* cost_group_ns and cost_stmt_ns with sizes that are not known taken to be `unknown`. */
double cost_group_at_ns(const Program *p, const Stmt *s, int units, double unknown);
double cost_stmt_at_ns(const Program *p, const Stmt *s, int units, double unknown);

#endif
