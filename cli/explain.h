/* explain.h: parts of braid explain. */
#ifndef BRAID_CLI_EXPLAIN_H
#define BRAID_CLI_EXPLAIN_H

#include "cli/cli.h"
#include "codegen/compile.h"

/* What one core reads of a loop's constants stays near it from iteration to iteration. */
bool explain_is_resident(const Program *p, const LoopFacts *l);
/* Appends `, "placement": [...]`: where every tensor lives, and the weights that were packed anew.
 * Requires that f was filled from p. */
void explain_placement(Sb *s, const Program *p, const Facts *f);

#endif
