/* explain.h: declarations that the files of braid explain share. */
#ifndef BRAID_CLI_EXPLAIN_H
#define BRAID_CLI_EXPLAIN_H

#include "cli/cli.h"
#include "codegen/compile.h"

/* Whether a core's part of the loop's constants stays near the core between iterations. */
bool explain_is_resident(const Program *p, const LoopFacts *l);
/* Appends `, "placement": [...]`: where every tensor lives, and the packed weights. Requires that f
 * was filled from p. */
void explain_placement(Sb *s, const Program *p, const Facts *f);

#endif
