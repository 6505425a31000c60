/* threads.h: the kernel of a group where a unit is a block of threads.
 *
 * All positions of the unit's part are numbered in row-major order and dealt out to the threads, so
 * that neighbouring threads store side by side. Where sums do not move along the last axis (a
 * softmax, a normalization), or where each position is a long sum and there are few of them, a team
 * of threads takes a row or a position instead: it computes the sums together, by a share of each
 * and an exchange between its threads, and then shares the row. A team is a warp, or all of the
 * block where there would be too few rows for its warps. */
#ifndef BRAID_THREADS_H
#define BRAID_THREADS_H

#include "scheduler/kernel/kernel.h"

typedef enum ThreadsTeam { TEAM_THREAD, TEAM_WARP, TEAM_BLOCK } ThreadsTeam;

typedef struct ThreadsKernel {
    ThreadsTeam team; /* which takes a position, or a row */
    Axis *row;        /* along which the team shares the row; NULL: it takes positions */
} ThreadsKernel;

/* Makes k such a kernel. Requires kernel_collapse. */
void kernel_threads(Kernel *k);

#endif
