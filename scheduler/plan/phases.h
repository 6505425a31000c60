/* phases.h: the launches of a kernel between products by the vendor's library. */
#ifndef BRAID_PHASES_H
#define BRAID_PHASES_H

#include "utask/utask.h"

/* Whether the kernel has nothing to do in front of statement `at` of the program's own body, which
 * is at host level, and behind the one before it: what is there is computed anew where it is used.
 */
bool phase_is_idle(const Program *p, int at);
/* How often the kernel is launched in a run, and products by the library between; 0: none, and the
 * kernel is launched once, as a whole. */
void phases_count(const Program *p, int *launches, int *products);

#endif
