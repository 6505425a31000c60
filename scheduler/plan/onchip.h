/* onchip.h: what lies in the own memory of each block of threads, on GPUs, and which constants are
 * fetched ahead of barriers. */
#ifndef BRAID_ONCHIP_H
#define BRAID_ONCHIP_H

#include "scheduler/kernel/kernel.h"

/* A packed constant of which every unit reads its own part again and again: for the whole run the
 * part stays in the unit's memory, where there is room. */
typedef struct Resident {
    OwnPart part;    /* as the first of the groups that read it has it */
    int number;      /* among all, in order of first use */
    int64_t most;    /* positions of a unit, as planned */
    int64_t bytes;   /* of its part */
    int64_t at;      /* in the block's memory; 0: it does not stay */
    double uses;     /* in a run */
    int level, unit; /* of the units that share it; the first of them */
    int phase;       /* in which it is read (scheduler/plan/phases.h); -1: in several, or all */
} Resident;

typedef struct OnChip {   /* Program.onchip */
    int64_t bytes;        /* of a block's memory, all of it */
    int64_t table;        /* where the addresses of the residents lie */
    int64_t scratch;      /* where what groups need while they run begins, */
    int64_t scratch_most; /* and the most that one of them needs, */
    int64_t room;         /* and a warp's part where several compute side by side */
    VEC(Resident *) residents;
    Resident **by_uses; /* the same, those read most often first */
} OnChip;

#endif
