/* decide.h: every choice goes through decide() or decide_value(): taken by measurement where there
 * is one, else by the cost model, unless forced; and remembered, so that `braid explain` can show
 * it and the tuner can try the other ways. */
#ifndef BRAID_DECIDE_H
#define BRAID_DECIDE_H

#include "scheduler/cost/device.h"
#include "utask/utask.h"

typedef enum Transform {
#define TRANSFORM(id, name) X_##id,
#define PARAMETER(id, name) X_##id,
#include "scheduler/cost/choices.def"
    X_COUNT,
    X_TRANSFORMS = X_SPLIT /* parameters begin */
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
    int dots;           /* products of 8-bit integers that a lane adds at once: 4; 2, which must fit
                           into 16 bits; or 0 */
    DType weights;      /* float32 factors may be rounded to this type; DT_NONE: they stay */
    bool profile;       /* the program measures itself */
    int team;           /* units of runs that do not say otherwise: 1 or `units` */
    double estimate_ns; /* of a run by `units`, by the cost model */
    double weights_bytes; /* of the constants that sums of products read; < 0: not counted yet */
    double speedup;       /* how many times that is what a run by one unit is expected to take */
    int force[X_COUNT];   /* a value, or FORCE_NONE */
    const Measured *measured;
    int nmeasured;
    VEC(Decision) decisions;   /* in the order in which they were taken */
    VEC(const char *) remarks; /* why something was not to be chosen */
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
/* The value of x for statement s, out of n ways (1 to WAYS_MAX); all are legal. way[0] is the
 * choice by rule or by the cost model. A measured or forced value that is not among them is
 * ignored. */
int decide_value(Program *p, Transform x, const Stmt *s, int n, const Way *way);

#endif
