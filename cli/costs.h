/* costs.h: reads a device's measured costs from a file. */
#ifndef BRAID_CLI_COSTS_H
#define BRAID_CLI_COSTS_H

#include "cli/cli.h"
#include "scheduler/cost/device.h"

/* Fills *d with the table's row of `target` (NULL: of the device that the file names), then with
 * the file's numbers. Returns EXIT_DONE, or EXIT_FAULT after a message. */
int cli_costs(const char *path, const char *target, Device *d);

#endif
