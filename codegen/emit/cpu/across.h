/* across.h: members that lie along another axis than they are computed along: by tiles. */
#ifndef BRAID_EMIT_ACROSS_H
#define BRAID_EMIT_ACROSS_H

#include "codegen/emit/emit.h"

/* Members are computed for lanes v0 to v0 + lanes of v, a position im of m after the other, and lie
 * together along m. Positions mb to me are collected in a tile of each member. */
typedef struct Across {
    uint32_t members; /* which: a bit each; the others are stored as they are computed */
    Axis *v, *m;
    int vt; /* lanes of a tile's row */
} Across;

/* Declares the tiles, of so many rows. */
void across_tiles(Group *g, const Across *x, int64_t rows);
/* Stores the members in lanes [0, to) of row im. */
void across_members(Group *g, const Across *x, const char *to);
/* Moves the tiles to where they belong. */
void across_store(Group *g, const Across *x);

#endif
