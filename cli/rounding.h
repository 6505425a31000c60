/* rounding.h: how far the results of a library with rounded weights (--weights) are from those with
 * float32 weights. */
#ifndef BRAID_ROUNDING_H
#define BRAID_ROUNDING_H

#include "cli/cli.h"

typedef struct Rounding {
    int nin, nout;
    braid_value **in, **out; /* random inputs; what float32 weights make of them */
} Rounding;

/* Runs c's model with float32 weights. Returns an exit code; prints messages. Free *r with
 * rounding_free in any case. */
int rounding_begin(const Cli *c, Rounding *r);
/* Runs the library and prints the largest difference on stderr. */
int rounding_end(const Cli *c, const char *library, const Rounding *r);
void rounding_free(Rounding *r);

#endif
