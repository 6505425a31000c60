/* strips.h: neighbouring groups computed strip by strip.
 *
 * Where each of several groups in a row reads of the ones before only what lies at its own position
 * of one axis, as the steps of a Softmax or a normalization do over rows, they need not be computed
 * one after the other over all of it: a few positions go through all of them while what they have
 * is in the nearest cache. Everything else about the groups stays as it is. */
#ifndef BRAID_STRIPS_H
#define BRAID_STRIPS_H

#include "utask/utask.h"

/* Bytes of a strip: of all that its groups touch. */
#define STRIP_BYTES (24 << 10)

/* Whether next, the statement after s, goes on with what s has of a strip. */
static inline bool strip_follows(const Stmt *s, const Stmt *next) {
    return s->kind == S_OP && s->op.strip && next->kind == S_OP && next->op.strip &&
           next->op.follows;
}

#endif
