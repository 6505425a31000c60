/* strips.h: neighbouring groups computed strip by strip.
 *
 * Where each of several groups in a row reads of the ones before only what lies around its own
 * position of one axis, they need not be computed one after the other over all of it: a few
 * positions go through all of them while what they have is in a near cache. Everything else about
 * the groups stays as it is: every tensor is in memory as a whole, and only the order in which it
 * is filled is another one.
 *
 * The steps of a Softmax or a normalization over rows read at their own position: then a unit's
 * part is what it was (strips.c). Convolutions and pools read windows (bands.c): a strip is so many
 * positions of the last group, and a group before computes what these need and is not there yet.
 *
 *     positions r of the last group    0     4     8     12    16
 *     of the one before (3 x 3)        0      5     9     13   16
 *     of the one before that           0       6     10    14  16
 *
 * Of every group a unit owns a band of positions, from the first that its own positions of the last
 * group need; what else its last strip needs is of the next unit's first strip. So the units
 * synchronize once, after their first strips, however many groups there are. */
#ifndef BRAID_STRIPS_H
#define BRAID_STRIPS_H

#include "utask/utask.h"

/* Bytes of a strip: of all that its groups touch. */
#define STRIP_BYTES (24 << 10)
#define STRIP_GROUPS 16 /* most of a run */

/* The positions of a group that belong to those of the last one of its run: position r needs those
 * from step * r + first to step * r + last. */
typedef struct Band {
    int64_t step, first, last;
    const Axis *of; /* the last group's */
    int64_t least;  /* positions of it that a unit has at least */
    bool crosses;   /* a unit's last strip needs something of the next unit's first one */
} Band;

/* Whether next, the statement after s, goes on with what s has of a strip. */
static inline bool strip_follows(const Stmt *s, const Stmt *next) {
    return s->kind == S_OP && s->op.strip && next->kind == S_OP && next->op.strip &&
           next->op.follows;
}
/* How many statements, from number `from` on, are computed strip by strip; 1: none. */
int strip_run(const Seq *q, int from);
/* Whether g, a group of a run, could begin or go on with strips: nothing but groups touches what it
 * makes. */
bool strip_may_run(const Program *p, const Stmt *s);
/* Whether dimension d of s is that of its lanes: a few positions of it would be no vectors. */
bool strip_has_lanes(const Stmt *s, int d);
/* The groups from q->s.p[from] on that are computed in strips over windows from now on: how many;
 * 0: none, or fewer than `most`. */
int bands_take(Program *p, const Seq *q, int from, int most);

#endif
