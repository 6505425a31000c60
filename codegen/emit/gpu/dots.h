/* dots.h: shared by the files that print sums of products by blocks of threads. */
#ifndef BRAID_EMIT_DOTS_H
#define BRAID_EMIT_DOTS_H

#include "codegen/emit/emit.h"
#include "scheduler/kernel/dots.h"

/* What a part's weights may stay on chip as, or NULL. */
static inline const Resident *dots_kept(const DotsPart *q) {
    return q->own ? q->own->resident : NULL;
}

/* ---- dots.c ---- */
/* Gives variables NAME0, NAME1, … to the axes at their flat position `at`, which is of `type`, as
 * are the REST1, … that outer ones divide. */
void dots_bind(Group *g, int n, Axis *const *axis, char name, const char *rest, const char *type,
               const char *at);
/* The same for the row axes: virtual row `at`. */
void dots_bind_rows(Group *g, const DotsKernel *k, const char *at);

/* ---- dots_micro.c ---- */
/* Copies sca (or vec) of steps [at, at + chunk) of the current rows (columns) into the block's
 * memory, its buffer `buffer`; maybe they come only by bk_copied(). */
void dots_copy(Group *g, const DotsKernel *k, int part, bool vec, const char *at,
               const char *buffer);
/* Adds what the copies give to the workers' sums `acc`; `at`: the first of their steps. */
void dots_step(Group *g, const DotsKernel *k, int part, const char *at, const char *buffer);
/* The same for all steps of a direct part. */
void dots_direct(Group *g, const DotsKernel *k, int part);
/* Puts the sums into the tile. */
void dots_finish(Group *g, const DotsKernel *k, int part);

#endif
