/* extern.c: the table of hand-written bodies, for the interpreter and for constant folding. */
#include "codegen/extern/table.h"

#include "codegen/extern/linear.h"
#include "codegen/extern/nms.h"
#include "codegen/extern/scan.h"
#include "codegen/extern/scatter.h"
#include "codegen/extern/select.h"
#include "codegen/extern/seq.h"
#include "codegen/extern/sort.h"
#include "codegen/extern/text.h"

static const ExternRow rows[] = {
#define BX(name, file, plan) {#name, #file, plan, bx_##name},
#include "codegen/extern/extern.def"
#undef BX
};

const ExternRow *extern_find(const char *name) {
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (!strcmp(rows[i].name, name)) return &rows[i];
    return NULL;
}
