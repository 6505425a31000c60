/* decide.h: every choice goes through decide() or decide_value(): taken by measurement where there
 * is one, else by the cost model, unless forced; and remembered, so that `braid explain` can show
 * it and the tuner can try the other ways. */
#ifndef BRAID_DECIDE_H
#define BRAID_DECIDE_H

#include "scheduler/cost/device.h"
#include "utask/utask.h"

/* What is chosen. Transformations are passes of their own, without any of which the program is
 * right, too; parameters have a value out of a short list. */
typedef enum Transform {
    X_SPLIT_SUM,        /* products with a concatenation in pieces */
    X_FOLD_PRODUCT,     /* products of constants at positions known at run time become tables */
    X_HOIST,            /* step-invariant products leave their loop */
    X_REUSE,            /* values that the last iteration computed, too, are kept */
    X_UNROLL,           /* several iterations in one */
    X_UNROLL_RECURSION, /* several activations in one */
    X_INTERCHANGE,      /* an inner loop becomes the outer one */
    X_WAVEFRONT,        /* nested or stacked loops along diagonals */
    X_RECLUSTER,        /* a branch becomes consecutive ones by preferred units */
    X_PARALLEL,         /* independent constructs on split units */
    X_APPEND,           /* growing state in place */
    X_BATCH,            /* activations of a recursive function side by side */
    X_REPLICATE,        /* what calls of a recursion need is computed by every unit for itself */
    X_CORE,             /* a group or construct stays on one core */
    X_CLUSTER,          /* a construct is run by one cluster */
    X_TEAM,             /* runs that do not say otherwise use all units */
    X_GRID,             /* … or, of all units, more than one cluster */
    X_RECOMPUTE,        /* a value is computed again at each use instead of stored */
    X_WINOGRAD,         /* windows of 3 x 3 by fewer products */
    X_LANES,            /* the loops of reductions around the one over lanes */
    X_TF32,    /* float32 products by matrix units, factors rounded to 10 bits: only when forced */
    X_LIBRARY, /* a product by the GPU vendor's library, between two launches of the kernel */
    X_TRANSFORMS,
    X_SPLIT = X_TRANSFORMS, /* along which dimension units share a group, from 1 on; 0: by its
                               readers and writers */
    X_GRAIN,                /* elements of a long axis that belong to one unit at least */
    X_TILE,                 /* of a product in registers: 16 x rows + vectors */
    X_PREFETCH, /* floats between what a product reads and what is fetched ahead; 0: nothing is */
    X_NEAR,     /* KiB of a convolution's weights that the first cache keeps */
    X_COUNT
} Transform;

/* A way to do something: what a parameter is set to (of a transformation 0 is without, 1 with it),
 * and the time of one run of the construct, 0 where it is not estimated. */
typedef struct Way {
    int value;
    double ns;
} Way;
#define WAYS_MAX (MAX_RANK + 1)

typedef enum By { BY_MODEL, BY_MEASUREMENT, BY_FORCE } By;

/* What was measured for a choice: the fastest way and the best other one, with times of a run of
 * the model. A table of them is sorted by key. */
typedef struct Measured {
    uint64_t key;
    int value, other;
    double ns, other_ns;
} Measured;

typedef struct Decision {
    Transform x;
    const char *path; /* of the construct */
    uint64_t
        key; /* of the construct's structure and shape class: equal constructs are one choice */
    int n, taken;      /* ways, and the one taken */
    Way way[WAYS_MAX]; /* with estimated times */
    double runs;       /* of the construct in a run of the model, about */
    By by;
    Measured measured; /* by measurement */
} Decision;

#define FORCE_NONE (-1)

typedef struct Schedule { /* Program.schedule */
    const Device *device;
    int units;          /* the team that is scheduled for; of one cluster its blocks */
    int lanes;          /* of float32 in a vector of a core; 1: it runs threads */
    int team;           /* units of runs that do not say otherwise: 1 or `units` */
    double estimate_ns; /* of a run by `units`, by the cost model */
    int force[X_COUNT]; /* a value, or FORCE_NONE */
    const Measured *measured;
    int nmeasured;
    VEC(Decision) decisions; /* in the order in which they were taken */
} Schedule;

/* Units that share what is at a level. */
static inline int schedule_units(const Schedule *k, int level) {
    return level == LEVEL_CORE ? 1 : level == LEVEL_CLUSTER ? device_cluster(k->device) : k->units;
}

const char *transform_name(Transform x); /* "hoist", … */
/* What a way is called: "on", "off", "4", "6x4". The text lies in buf. */
const char *way_name(Transform x, int value, char buf[24]);
/* A schedule for `units` units of a device, with the choices that `forced` names
 * ("NAME=on,NAME=off,NAME=VALUE"; NULL: none). Raises ST_USAGE when it names another. */
Schedule *schedule_new(Cx *c, const Device *device, int units, const char *forced);
/* Whether to transform statement s: times of one run of s without and with it, in ns, as the cost
 * model sees them. The caller has made sure that the transformation is legal. */
bool decide(Program *p, Transform x, const Stmt *s, double plain_ns, double changed_ns);
/* The value of x for statement s, out of n ways (1 to WAYS_MAX), of which way[0] is the one by rule
 * or by the cost model. All are legal. A value that is measured or forced and not among them
 * changes nothing. */
int decide_value(Program *p, Transform x, const Stmt *s, int n, const Way *way);
/* A hash of what s computes, of its domains and of x: equal in different models. Sizes that are not
 * known at compile time are one class. */
uint64_t decision_key(Program *p, Transform x, const Stmt *s);

#endif
