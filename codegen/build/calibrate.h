/* calibrate.h: this machine's row in the table of devices, by measuring. */
#ifndef BRAID_CALIBRATE_H
#define BRAID_CALIBRATE_H

#include "codegen/compile.h"
#include "scheduler/cost/store.h"

/* The key of this machine and this version of Braid in a Store (malloc'd). NULL if the program is
 * not for this machine's CPU (another target, or o->cpu names a processor): then there are no
 * measured numbers. */
char *device_key(const CompileOptions *o);

/* Sets *device to the row for o->target: the one in the store, if there is one (a GPU's has the
 * name of its target). Otherwise, for this CPU and if `measure`, it is measured now, which takes
 * about half a second, and stored. Otherwise, and also if measuring fails, it is the table's row.
 * Returns false if there is no such target. */
bool device_calibrated(const CompileOptions *o, Store *s, bool measure, Device *device);

#endif
