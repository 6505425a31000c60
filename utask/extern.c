/* extern.c: the table of hand-written bodies, for the interpreter and for constant folding. */
#include "utask/extern.h"

#include "codegen/text/extern/fourier.inc"
#include "codegen/text/extern/linear.inc"
#include "codegen/text/extern/nms.inc"
#include "codegen/text/extern/scan.inc"
#include "codegen/text/extern/scatter.inc"
#include "codegen/text/extern/select.inc"
#include "codegen/text/extern/seq.inc"
#include "codegen/text/extern/sort.inc"
#include "codegen/text/extern/text.inc"

static const ExternRow rows[] = {
#define BX(name, file, plan, reads, late, in_place, changes, team)                                 \
    {#name, #file, plan, reads, late, bx_##name, in_place, changes, team},
#include "utask/extern.def"
#undef BX
};

const ExternRow *extern_find(const char *name) {
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (!strcmp(rows[i].name, name)) return &rows[i];
    return NULL;
}
