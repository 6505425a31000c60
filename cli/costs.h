/* costs.h: measured numbers of a device in a file. */
#ifndef BRAID_CLI_COSTS_H
#define BRAID_CLI_COSTS_H

#include "cli/cli.h"
#include "scheduler/cost/device.h"

/* The table's row of `target` (NULL: of the device that the file names) with the file's numbers in
 * it. Returns an exit code; EXIT_FAULT after a message. */
int cli_costs(const char *path, const char *target, Device *d);

#endif
