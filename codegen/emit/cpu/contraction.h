/* contraction.h: what the files that print contractions share (contraction*.c). */
#ifndef BRAID_EMIT_CONTRACTION_H
#define BRAID_EMIT_CONTRACTION_H

#include "codegen/emit/emit.h"
#include "scheduler/kernel/contraction.h"

/* ---- contraction_micro.c --------------------------------------------------------------------- */
/* Emits the call of a set's micro-kernel for `rows` rows, and the kernel if it is new. The group's
 * function has bound the axes v and m to the tile's first lane and row. tail: `lanes` limits the
 * lanes read from operands that are not packed. A panel that is prefetched adds a pointer "next"
 * and a distance "by". */
void call_micro(Group *g, const Contraction *k, int set, int rows, bool tail);

/* A micro-kernel while it is written. */
typedef struct Micro {
    Group *g;
    const Contraction *k;
    int set, rows;
    bool tail;
    Sb params, args, body;
    int nvalue;
    Map *known; /* expression id -> parameter name */
    const Product *q[MAX_PRODUCTS];
    int nq;
    const Product *sca[MAX_PRODUCTS]; /* one product for each different scalar operand */
    int nsca;
    int sca_of[MAX_PRODUCTS];   /* by product: number in sca */
    int panel_of[MAX_PRODUCTS]; /* by panel: number within the micro-kernel */
} Micro;
/* k may be NULL for kernels that use only the texts, the counter of values and micro_end. */
Micro micro_new(Group *g, const Contraction *k, int set);
/* Emits the micro-kernel, named by `stem`. Returns its call. */
const char *micro_end(Micro *u, const char *stem);
/* Text of an int64 value in the micro-kernel: a literal, or a parameter, added if needed. */
const char *micro_value(Micro *u, Expr *e);
/* Address of a load at the tile's first row and lane, with all reduction axes of the set at 0. */
const char *micro_base(Micro *u, Expr *load, Expr *flat);

/* ---- contraction_dot.c ----------------------------------------------------------------------- */
/* The same for a set of dot products; `rows` and `hi` (lanes) are the function's variables. */
void call_dot(Group *g, const Contraction *k, int set);

#endif
