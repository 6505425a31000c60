/* print.h: a Program as text, with what is needed to find a statement, a tensor or a symbol in it.
 */
#ifndef BRAID_PRINT_H
#define BRAID_PRINT_H

#include "utask/utask.h"

typedef struct Numbers { /* by id: number + 1; 0: not printed */
    int *of, next;
} Numbers;

/* From byte `at` on, up to the next mark, the text is about statement s; NULL: about none. */
typedef struct PrintMark {
    const Stmt *s;
    size_t at;
} PrintMark;

typedef struct Printed {
    Sb text; /* as utask_print writes it */
    VEC(PrintMark) mark;
    Numbers tensor, sym; /* numbers of names like t3 and n.3 */
} Printed;

/* Everything lies in the arena. */
void utask_print_marked(Arena *a, const Program *p, Printed *printed);
/* The number of `id`, which gets the next one if it has none. */
int print_number(Numbers *m, int id);

#endif
