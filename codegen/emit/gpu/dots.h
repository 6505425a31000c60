/* dots.h: what dots.c and dots_micro.c share. */
#ifndef BRAID_EMIT_DOTS_H
#define BRAID_EMIT_DOTS_H

#include "codegen/emit/emit.h"
#include "scheduler/kernel/dots.h"

/* The constant in on-chip memory that holds a part's weights, or NULL. */
static inline const Resident *dots_kept(const DotsPart *q) {
    return q->own ? q->own->resident : NULL;
}

/* ---- dots.c ---- */
/* Declares NAME0, NAME1, …: positions on the axes, from their flat position `at`. `at` and the
 * intermediate quotients REST1, … have type `type`. */
void dots_bind(Group *g, int n, Axis *const *axis, char name, const char *rest, const char *type,
               const char *at);
/* The same for the row axes, from flat row `at`. */
void dots_bind_rows(Group *g, const DotsKernel *k, const char *at);

/* ---- dots_micro.c ---- */
/* Copies steps [at, at + chunk) of sca (or vec) for the current rows (columns) into buffer `buffer`
 * of the block's memory. They may be complete only after bk_copied(). */
void dots_copy(Group *g, const DotsKernel *k, int part, bool vec, const char *at,
               const char *buffer);
/* Multiplies the copies and adds to the workers' sums `acc`; `at`: the first step. */
void dots_step(Group *g, const DotsKernel *k, int part, const char *at, const char *buffer);
/* Whether the part's sums are computed by a function that other groups call, too, and that call. */
bool dots_called(const DotsPart *q);
void dots_call(Group *g, const DotsKernel *k, int part);
/* dots_step for all steps of a direct part. */
void dots_direct(Group *g, const DotsKernel *k, int part);
/* Stores the sums in the tile. */
void dots_finish(Group *g, const DotsKernel *k, int part);

#endif
