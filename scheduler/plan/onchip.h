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
    int64_t bytes;   /* of the largest part */
    bool kept;       /* it stays in the block's memory */
    double uses;     /* in a run */
    int level, unit; /* of the units that share it; the first of them */
    int phase;       /* in which it is read (scheduler/plan/phases.h); -1: in several, or all */
} Resident;

typedef struct OnChip {   /* Program.onchip */
    int64_t bytes;        /* of a block's memory, all of it */
    int64_t table;        /* where the addresses of the residents and then of inputs lie */
    int64_t scratch;      /* where what groups need while they run begins, */
    int64_t scratch_most; /* and the most that one of them needs, */
    int64_t room;         /* and a warp's part where several compute side by side */
    int64_t kept_at;      /* where residents begin, up to the end */
    VEC(Resident *) residents;
    VEC(int) inputs;    /* read several times: looking up an address takes as long as a load */
    Resident **by_uses; /* the same, those read most often first */
} OnChip;

#endif
