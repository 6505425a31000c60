/* probes.h: the parts of a program that a profile tells apart, and how each is measured.
 *
 * Every construct (loop, branch and its arms, call, function), every group, hand-written body and
 * barrier is a part. Reading the clock costs about as much as a small group, so inside loops and
 * functions only some executions of a Seq are timed, all its parts at once; trips are always
 * counted. */
#ifndef BRAID_PROBES_H
#define BRAID_PROBES_H

#include "utask/utask.h"

/* In the order of the enum in include/braid_model.h. */
typedef enum ProbeKind {
    PROBE_PROGRAM,
    PROBE_LOOP,
    PROBE_BRANCH,
    PROBE_ARM,
    PROBE_CALL,
    PROBE_FUNCTION,
    PROBE_ACTIVATION, /* a deeper activation, inlined into a function's body (S_ENTER) */
    PROBE_GROUP,
    PROBE_BODY,    /* hand-written */
    PROBE_PRODUCT, /* by the vendor's library, between launches */
    PROBE_BARRIER,
    PROBE_KINDS
} ProbeKind;

typedef struct Probe {
    ProbeKind kind;
    int parent;       /* number of the part around it; -1: the program */
    const Stmt *stmt; /* NULL: the program */
    int statement;    /* number of stmt in the order of seq_each; -1: the program */
    Level level;      /* of the units that run it, or that wait */
    const char *name; /* what it is called besides its path, or NULL */
    int in;           /* number of the Seq whose executions run it; -1: the program */
    int seq;          /* of a loop's body, an arm or a function: number of its Seq; else -1 */
    bool own;         /* it is not run as often as its Seq, but counts its executions itself */
    bool timed;       /* false: it is only counted */
    int step;         /* of a loop: the model's iterations that one trip makes */
} Probe;

typedef struct ProbeSeq {
    const Seq *q;
    int every; /* a power of two: one execution in so many is timed */
} ProbeSeq;

typedef struct Probes {       /* Program.probes */
    VEC(Probe) all;           /* preorder: a part before those in it; [0] is the program */
    VEC(ProbeSeq) seq;        /* [0] is Program.top */
    Map *part_of, *number_of; /* see probe_find and probe_seq */
} Probes;

/* The parts of a complete program; equal programs have equal ones. */
Probes *probes_of(const Program *p);
/* The number of the part at `place`, -1: there is none. A place is the address of a Stmt, of the
 * Seq of an arm or a function, or of the field that says that units wait: &loop.copies,
 * &loop.barrier, LoopCarry.closes and the byte after it (before and after the copy), &ext.barrier,
 * Stmt.apart. */
int probe_find(const Probes *k, const void *place);
int probe_seq(const Probes *k, const Seq *q); /* the number of q */

#endif
