/* phases.h: the launches of a kernel between products by the vendor's library.
 *
 * Statement number i at host level is phase 2 i + 1, what stands between it and the one before is
 * phase 2 i, and the last phase ends the run. */
#ifndef BRAID_PHASES_H
#define BRAID_PHASES_H

#include "scheduler/plan/library.h"

typedef struct PhaseSpan { /* phases from the first to the last that name something; {0}: none */
    int begin, end;        /* end: one after the last */
} PhaseSpan;

/* A variable that a later phase uses than the one that sets it. */
typedef struct Handed {
    int variable; /* number in MemPlan.variable */
    int word;     /* in which it is left; -1: it is what is known at the beginning of a launch: */
    Expr *value;  /* of a symbol, as the host computes it; NULL: where the tensor lies */
    PhaseSpan span;
} Handed;

typedef struct PhasePlan { /* Program.phases */
    int n;                 /* products */
    LibraryProduct *product;
    bool *idle;   /* by product: the kernel has nothing to do in the phase before it, for what is
                     there is recomputed where it is used */
    int launches; /* of the kernel, in a run */
    int64_t at;   /* of the words, in the arena */
    VEC(Handed) handed;      /* in the order of the variables */
    PhaseSpan *tensor, *sym; /* by id */
} PhasePlan;

#endif
