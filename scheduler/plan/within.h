/* within.h: a loop whose iterations never cross units, with the time inside of one function.
 *
 *     for each position of the unit's part:                  (a thread, or a row of lanes)
 *         the carried values into registers
 *         for each iteration: all members of all groups      (registers, exchanges between lanes)
 *         the carried values into memory
 *
 * All groups of the body lie along the same axes. Where some lack the last one, or sum over it, it
 * is the lanes' axis: neighbouring lanes of a warp take its positions, sums are exchanges between
 * them, and members without that axis are computed by all lanes of the row. What is loaded from
 * outside by the number of the iteration is copied into the block's memory by all its threads,
 * `chunk` iterations at a time, while those before are computed; or else fetched into registers,
 * for `steps` iterations at once. Sums that no later iteration waits for are `late`: those of as
 * many iterations as a row has lanes are exchanged together, after which each lane has one
 * iteration's. */
#ifndef BRAID_WITHIN_H
#define BRAID_WITHIN_H

#include "scheduler/kernel/kernel.h"

typedef struct WithinMember { /* a member of a group of the body */
    bool row;                 /* it lacks the lanes' axis */
    bool late;                /* computed after `steps` iterations; a row */
    const LoopScan *scan;     /* NULL: it is not stacked */
    int carry;                /* of the loop, whose next value it is; -1: of none */
} WithinMember;

typedef struct WithinSum { /* over the lanes' axis */
    Expr *e, *term;        /* the reduction; what a lane has of it */
    bool late;
} WithinSum;

typedef struct WithinOwn { /* what an iteration begins with, at the thread's position */
    Expr *load;
    int carry;
} WithinOwn;

typedef struct WithinStage { /* a load whose values are copied */
    Expr *load;
    int rows, lanes; /* values of an iteration: of so many rows, and positions of the lanes' axis */
    int at;          /* of the first of two buffers in the scratch memory, in words */
} WithinStage;

typedef VEC(Expr *) ExprVec;
typedef struct Within {
    Kernel *k; /* the members in order, over axes of their own */
    WithinMember *m;
    Axis *lane; /* the last axis of k, or NULL */
    int width;  /* lanes of a row: a power of two; 1: there is no lanes' axis */
    int rows;   /* that a block computes at the same time */
    int chunk;  /* a multiple of steps; 0: nothing is copied */
    int steps;  /* iterations for which loads are on their way together */
    bool batch; /* there are late members; then steps == width */
    VEC(WithinSum) sum;
    VEC(WithinOwn) own;
    VEC(WithinStage) stage;
    ExprVec fixed; /* loads from outside that are the same in all iterations */
    ExprVec fetch; /* those that are not; of them `ahead`, of late members */
    ExprVec ahead;
    int *next; /* by carry: the member */
} Within;

/* Whether s is such a loop whose function begins with a block barrier, before it loads anything. */
static inline bool within_meets(const Stmt *s) {
    return s->kind == S_LOOP && s->loop.within && s->loop.within->chunk;
}

/* Sets Stmt.loop.within of each loop that may be such a function and is to be one. Requires
 * kernels, memory, and where units synchronize, but not yet where threads do. */
void loops_within(Program *p);

/* The stage of a load; NULL: it has none. */
const WithinStage *within_stage(const Within *w, const Expr *load);

#endif
