/* contraction.h: shared by the files that print contractions (contraction*.c). */
#ifndef BRAID_EMIT_CONTRACTION_H
#define BRAID_EMIT_CONTRACTION_H

#include "codegen/emit/emit.h"
#include "scheduler/kernel/contraction.h"

/* ---- contraction_micro.c --------------------------------------------------------------------- */
/* Emits the call of the micro-kernel of one set for `rows` rows; writes the kernel where it is new.
 * In the group's function the axes v and m are bound to the tile's first lane and row. tail:
 * `lanes` tells how many lanes of operands that are not packed may be read. For a panel of which
 * lines are fetched it takes a pointer, "next", and a distance, "by". */
void call_micro(Group *g, const Contraction *k, int set, int rows, bool tail);

typedef struct Micro { /* a micro-kernel while it is written */
    Group *g;
    const Contraction *k;
    int set, rows;
    bool tail;
    Sb params, args, body;
    int nvalue;
    Map *known; /* expression id -> parameter name */
    const Product *q[MAX_PRODUCTS];
    int nq;
    const Product *sca[MAX_PRODUCTS]; /* first ones with another scalar operand */
    int nsca;
    int sca_of[MAX_PRODUCTS];   /* by product: its number in the list above */
    int panel_of[MAX_PRODUCTS]; /* by panel: number within the kernel */
} Micro;
Micro micro_new(Group *g, const Contraction *k, int set);
/* Emits the micro-kernel under a name with `stem`, frees the Sbs of u, and returns the text of the
 * call. */
const char *micro_end(Micro *u, const char *stem);
/* An int64 value inside the micro-kernel: a literal, or a parameter. */
const char *micro_value(Micro *u, Expr *e);
/* Address of a load with all loop axes of the set, and rows and lanes of the tile, at 0. */
const char *micro_base(Micro *u, Expr *load, Expr *flat);

/* ---- contraction_dot.c ----------------------------------------------------------------------- */
/* The same for a set of dot products, for `rows` rows and `hi` lanes as the group's function has
 * them. */
void call_dot(Group *g, const Contraction *k, int set);

#endif
