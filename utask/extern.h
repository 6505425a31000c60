/* extern.h: looks up hand-written bodies by name. */
#ifndef BRAID_EXTERN_TABLE_H
#define BRAID_EXTERN_TABLE_H

#include <stdbool.h>

#include "codegen/text/extern/extern.inc"

typedef struct ExternRow ExternRow;
struct ExternRow {
    const char *name; /* NAME in bx_NAME and bx_NAME_plan */
    const char *file; /* the source it lives in: FILE.inc in codegen/text/extern */
    int (*plan)(const bx_tensor *in, const int64_t *param, int64_t *sym, int64_t *bytes);
    /* plan NULL: no symbols, no blobs, no scratch */
    unsigned plan_reads; /* a bit for each input of which the plan reads elements */
    unsigned
        late; /* of those that are not read, nor any output written, before its threads have met */
    int (*run)(const bx_tensor *in, const int64_t *param, bx_tensor *out, void *scratch);
    const char *in_place; /* the body that does the same in place in input 0; NULL: none */
    bool changes_input;   /* it writes to input 0: units synchronize between plan and run */
    bool team;            /* the threads of a unit run it together */
};

const ExternRow *extern_find(const char *name); /* NULL when there is none */

#endif
