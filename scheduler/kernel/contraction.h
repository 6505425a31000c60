/* contraction.h: sums of products as register-blocked micro-kernels with a fused epilogue.
 *
 * A group's members may contain several sums  Σ_r A[…] · B[…].  One axis of the domain, v, is laid
 * over vector lanes: along it one operand (the vector operand) is contiguous or constant, and the
 * other does not move. Another axis, m, gives rows that reuse the vectors. A micro-kernel computes
 * rows × vectors sums in registers for all products that share their reduction axes, and leaves
 * them in a scratch tile; the epilogue is the members' own expressions over that tile. Constant
 * vector operands are packed at compile time in the order in which the loops read them. */
#ifndef BRAID_CONTRACTION_H
#define BRAID_CONTRACTION_H

#include "scheduler/kernel/packed.h"
#include "scheduler/kernel/products.h"
#include "utask/coded.h"

#define MAX_SETS 4
#define MAX_HEIGHTS 16
#define MAX_FAR 8
#define ROW_BLOCK 64  /* rows of a job, if its operands leave room for so many */
#define CACHE_LINE 64 /* bytes */

/* Packed vector operands of products that run in one loop, as one stream in the order of that loop:
 * [symbol][outer axes that the operands use][tile][reduction axes, outermost first][product][vector
 * of the tile][lane]. So a tile's micro-kernel reads one stream, and the next tile's follows. */
typedef struct Panel {
    int set, n;           /* different operands of its products */
    int lead;             /* index of the first product */
    int64_t tile, stride; /* elements of one tile, of all tiles */
    Expr *at;             /* which strides the symbol and the outer axes choose */
    int ahead;            /* elements between what is read and what is fetched; 0: nothing is */
    int lines; /* of the next tile, fetched in each step of more than one row; 0: none are */
    const Packed *packed;
    /* Of codes: [symbol][outer axes][tile][block] scales, and zero points where codes have them;
     * NULL: these are no codes. */
    const Packed *scales;
    int64_t scale_tile; /* floats of one tile of them */
} Panel;

/* A factor that a unit finds for itself, for the rows of a job at a time, so that no other unit has
 * to be waited for: rows that are read through an index stay where they are, and their addresses
 * are kept; sums of some and the like are computed into memory of the unit, from which
 * micro-kernels read them as they read a tensor. */
typedef struct Built {
    Expr *value; /* float32, over m and these axes */
    Axis **raxis;
    int nraxis;
    bool rows;      /* it moves along m; else it is one row */
    bool in_place;  /* addresses are kept */
    int64_t length; /* of a row */
    Expr *at;       /* position in a row */
} Built;

typedef struct Contraction {
    const Kernel *g;
    int n, nset, npanel;
    Product p[MAX_PRODUCTS];
    Panel panel[MAX_PRODUCTS];
    Axis **raxis[MAX_SETS]; /* per set, outermost first */
    int nraxis[MAX_SETS];
    bool dot[MAX_SETS]; /* the set's products are dot products */
    /* The set's constants are codes of so many bits with one scale for so many steps; NULL: they
     * are not. */
    const struct Coded *coded[MAX_SETS];
    bool others; /* there are reductions that no set computes: the epilogue does */
    Built operand[MAX_PRODUCTS];
    int noperand;
    Axis *v, *m;    /* lanes; rows, or NULL */
    int job;        /* rows whose operands stay near for all tiles */
    int nv, mr, vt; /* vectors and rows of a tile; its lanes */
    int height[MAX_HEIGHTS],
        nheight; /* rows that micro-kernels are written for: mr first, falling */
    bool own;    /* tiles begin at the unit's own lanes */
    bool whole;  /* no tile has lanes beyond the domain, or of another unit */
    bool tails;  /* some have, and read operands that end with the domain */
    /* Tiles are gone through forwards and backwards in turn: from call to call, from one block of
     * rows to the next. */
    bool turn_calls, turn_blocks;
    int few; /* while so few rows are computed there is no time to fetch a tile */
    /* Members that lie along m and not along v, a bit each: the results of a block of rows are
     * turned in a tile. */
    uint32_t across;
    Expr *far[MAX_FAR]; /* loads that the epilogue's rows make from the outer caches */
    int nfar;
} Contraction;

/* Makes k such a kernel where the group has sums of products in a form worth one; false: it is as
 * it was. `streamed`: what contraction_streamed() gives. */
bool kernel_contraction(Kernel *k, int64_t streamed);
/* Bytes of constant factors that a run of the program reads. */
int64_t contraction_streamed(const Program *p);

static inline int64_t panel_bytes(const Panel *q) {
    return q->stride * (int64_t)dtype_size(q->packed->dtype);
}

/* ---- contraction_operand.c ------------------------------------------------------------------- */
/* Sets the operands that the kernel computes, and job. Requires axes and sets. */
void contraction_operands(Contraction *k);

/* ---- contraction_tile.c ---------------------------------------------------------------------- */
/* Sets nv, mr, vt and the heights by a model of the micro-kernel's time. Requires axes, sets and
 * job; `streamed`: what contraction_streamed() gives. */
void contraction_tile(Contraction *k, int64_t streamed);

/* ---- contraction_panel.c --------------------------------------------------------------------- */
/* Sets the panels, and what is fetched ahead: of them, and for the epilogue. Requires the tile. */
void contraction_panels(Contraction *k, int64_t streamed);

#endif
