/* parts.h: loops that every unit runs part by part.
 *
 *     for each part of the unit's rows:           instead of      loop:
 *         loop:                                                       all of the unit's rows
 *             the part's rows
 *
 * Units that do not synchronize in a loop may run it at any pace, one behind the other as well. So
 * a unit can run it several times, each time as one of several times as many units: what a part has
 * written is still near when its next iteration reads it. The unit's range of a split axis is that
 * of its parts together, so nothing changes for what stands before and behind the loop. */
#ifndef BRAID_PARTS_H
#define BRAID_PARTS_H

#include "utask/utask.h"

/* Whether the units may run the loop in parts, by what is in it: groups and uniform values, shared
 * by all units; and whether what it touches is more than stays near, and takes longer to read than
 * all else, or parts are forced. */
bool parts_possible(const Program *p, const Stmt *loop);
/* How many parts: requires that the body is distributed and that no unit reads what others write in
 * it. */
int parts_choose(Program *p, const Stmt *loop);
/* After synchronization: takes back what a loop in which units meet cannot have. */
void parts_settle(Stmt *loop);

#endif
