/* pieces.h: reads along the last axis whose positions are in order piece by piece: padding by
 * reflection, by the edge's or by wrapped elements, repeated rows, windows about an edge.
 *
 * Where the position of a load is an absolute value, a least or greatest value, or a choice, the
 * member becomes a choice by position between members of which each reads in order: loops print
 * such choices as a loop for each range (codegen/emit/emit_loops.c). Where it is a remainder, the
 * axis becomes two, of which the inner one is a period. */
#ifndef BRAID_PIECES_H
#define BRAID_PIECES_H

#include "scheduler/kernel/kernel.h"

/* Rewrites the members of k, loops over a domain, where that is so. */
void kernel_pieces(Kernel *k);

#endif
