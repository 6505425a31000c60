/* compare.h: whether an output is what a test expects. */
#ifndef BRAID_COMPARE_H
#define BRAID_COMPARE_H

#include "cli/cli.h"

/* Types and shapes are equal; floats differ by at most atol + rtol * |want|, where NaN equals NaN
 * and an infinity itself; other elements are equal. Else appends why not. With an infinite rtol
 * elements are not compared. */
bool cli_same_value(const braid_value *got, const braid_value *want, double rtol, double atol,
                    Sb *why);

#endif
