/* variables.h: the memory that variables need. */
#ifndef BRAID_VARIABLES_H
#define BRAID_VARIABLES_H

#include "utask/utask.h"

/* What activations of a recursion keep while they call, where there is no stack of the machine's: a
 * record each, as many as have room in the block's own memory, the others in a growable buffer. */
typedef struct Records { /* Stmt.call.records, where the recursion starts */
    int64_t bytes, near; /* of a record; how many are in the block's own memory … */
    int64_t at;          /* … and where, behind what else is there all the time */
    int slot;            /* of the others */
} Records;

/* What an activation on the simulated stack keeps beside variables and parameters: its frame, the
 * end of what it uses, the arena's top. */
#define RECORD_OWN 3

#endif
