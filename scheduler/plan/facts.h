/* facts.h: what a scheduled Program comes to, for `braid explain`. */
#ifndef BRAID_FACTS_H
#define BRAID_FACTS_H

#include "utask/utask.h"

typedef struct LoopFacts {
    const Stmt *loop;
    const char *path;
    int depth;    /* of loops around it */
    int barriers; /* places in its body where all units meet, those of inner loops not counted */
    int cluster_barriers; /* the same for those of one cluster */
    int flags;            /* and places where one unit waits for the others, or they for it */
    int64_t constants,
        share; /* bytes of constants that it reads, and the most of them by one unit */
} LoopFacts;
typedef struct FuncFacts { /* a recursive function */
    const char *name;
    int barriers; /* of an activation that takes the longest way, loops and inner calls left out */
    int flags;    /* the same */
    int64_t frame_bytes; /* of arena for an activation */
} FuncFacts;
typedef struct ResidentFacts { /* a constant read in a loop, on GPUs */
    const char *name;
    int64_t bytes; /* of a unit's part */
    bool kept;     /* on chip for the whole run; else it is read from memory each time */
} ResidentFacts;
typedef struct Facts {
    int64_t arena_bytes;       /* of tensors whose size is known at compile time */
    int64_t live_bytes;        /* most of them at one time */
    int64_t distributed_bytes; /* of them in the own memory of a block of a cluster, at most */
    int slots;                 /* growable buffers */
    int64_t weights_bytes;     /* of constants */
    int barriers;         /* places where all units meet, those in loops and functions included */
    int cluster_barriers; /* where those of one cluster do */
    int flags;            /* and where one unit waits for the others, or they for it */
    int launches;         /* of the kernel, in a run */
    int products;         /* by the vendor's library between them */
    VEC(LoopFacts) loops; /* an outer loop before its inner ones */
    VEC(FuncFacts) recursive;
    VEC(ResidentFacts) residents; /* those read most often first */
    int64_t shared_bytes; /* of a block's own memory, on GPUs, what is kept there included */
} Facts;

/* Requires all passes to be done. Arrays live in p's arena. */
Facts plan_facts(const Program *p);

#endif
