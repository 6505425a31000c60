/* calibrate.h: the row of this machine in the table of devices. */
#ifndef BRAID_CALIBRATE_H
#define BRAID_CALIBRATE_H

#include "codegen/compile.h"
#include "scheduler/cost/store.h"

/* Names this machine and build in a Store, for the options that matter (malloc'd); NULL when the
 * device is not this machine (o->cpu names another processor), which has no measured numbers. */
char *device_key(const CompileOptions *o);

/* The device of o->target: from the store, where a GPU's numbers are under the name of its target;
 * else, on the CPU, measured now (about half a second) and kept, if `measure`; else the table's
 * row. False when there is no such target. Failures to measure are not errors: the row stays. Shows
 * on a terminal what takes the time. */
bool device_calibrated(const CompileOptions *o, Store *s, bool measure, Device *device);

#endif
