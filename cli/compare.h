/* compare.h: compares an output with what a test expects. */
#ifndef BRAID_COMPARE_H
#define BRAID_COMPARE_H

#include "cli/cli.h"

/* Whether types, shapes and elements are equal; if not, appends the reason to `why`. Floats may
 * differ by atol + rtol * |want|; NaN equals NaN, and an infinity equals itself. With an infinite
 * rtol, elements are not compared. */
bool cli_same_value(const braid_value *got, const braid_value *want, double rtol, double atol,
                    Sb *why);

#endif
