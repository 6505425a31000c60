/* scaling.h: how evenly a program shares its work, for `braid explain --units`. */
#ifndef BRAID_SCALING_H
#define BRAID_SCALING_H

#include "utask/utask.h"

/* Of one run by the units that the program is scheduled for, estimated from the device's row. Each
 * core is taken to have the row's bandwidth for itself. */
typedef struct Scaling {
    int units, team; /* team: of runs that do not say otherwise, 1 or all of them */
    double busiest_ns,
        mean_ns;             /* work of the unit that has most of each group, and of a mean one */
    double bytes;            /* that the busiest unit reads and writes in its groups */
    double synchronizations; /* all units wait for each other so many times */
    double estimate_ns;      /* work of the busiest, and the synchronizations */
    const char *worst;       /* the group that loses most time by being shared unevenly, or NULL */
    double lost_ns;          /* by it, in all its runs */
} Scaling;

/* Requires all passes to be done. */
Scaling plan_scaling(const Program *p);

#endif
