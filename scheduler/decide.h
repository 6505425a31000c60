/* decide.h: every choice of the scheduler goes through decide(): taken by measurement where there is one, else
 * by the cost model, unless forced; and remembered, so that `braid explain` can show it and the tuner can
 * try the other way. */
#ifndef BRAID_DECIDE_H
#define BRAID_DECIDE_H

#include "scheduler/device.h"
#include "utask/utask.h"

/* Transformations, each a pass of its own. Without any of them the program is right, too. */
typedef enum Transform {
    X_SPLIT_SUM,   /* products with a concatenation in pieces */
    X_FOLD_PRODUCT, /* products of constants at positions known at run time become tables */
    X_HOIST,       /* step-invariant products leave their loop */
    X_REUSE,       /* values that the last iteration computed, too, are kept */
    X_UNROLL,      /* several iterations in one */
    X_INTERCHANGE, /* an inner loop becomes the outer one */
    X_WAVEFRONT,   /* nested or stacked loops along diagonals */
    X_RECLUSTER,   /* a branch becomes consecutive ones by preferred units */
    X_PARALLEL,    /* independent constructs on split units */
    X_APPEND,      /* growing state in place */
    X_BATCH,       /* activations of a recursive function side by side */
    X_REPLICATE,   /* what calls of a recursion need is computed by every unit for itself */
    X_CORE,        /* a group or construct stays on one core */
    X_TEAM,        /* runs that do not say otherwise use all units */
    X_COUNT
} Transform;

typedef enum By { BY_MODEL, BY_MEASUREMENT, BY_FORCE } By;

typedef struct Decision {
    Transform x;
    const char *path;           /* of the construct */
    uint64_t key;               /* of the construct's structure and shape class: equal constructs are one choice */
    double plain_ns, changed_ns; /* estimated or measured, without and with the transformation */
    bool taken;
    By by;
} Decision;

typedef enum Force { FORCE_NONE, FORCE_OFF, FORCE_ON } Force;

/* A measured choice; a table of them is sorted by key. */
typedef struct Measured {
    uint64_t key;
    double plain_ns, changed_ns;
} Measured;

typedef struct Schedule { /* Program.schedule */
    const Device *device;
    int units;                /* the team that is scheduled for */
    int team;                 /* units of runs that do not say otherwise: 1 or `units` */
    double estimate_ns;       /* of a run by `units`, by the cost model */
    Force force[X_COUNT];
    const Measured *measured;
    int nmeasured;
    VEC(Decision) decisions;  /* in the order in which they were taken */
} Schedule;

const char *transform_name(Transform x); /* "hoist", … */
/* A schedule for `units` units of a device, with the transformations that `forced` names ("NAME=on,NAME=off";
 * NULL: none). Raises ST_USAGE when it names another. */
Schedule *schedule_new(Cx *c, const Device *device, int units, const char *forced);
/* Whether to transform statement s: times of one run of s without and with it, in ns, as the cost model sees
 * them. The caller has made sure that the transformation is legal. */
bool decide(Program *p, Transform x, const Stmt *s, double plain_ns, double changed_ns);
/* A hash of what s computes, of its domains and of x: equal in different models. Sizes that are not known at
 * compile time are one class. */
uint64_t decision_key(Program *p, Transform x, const Stmt *s);

#endif
