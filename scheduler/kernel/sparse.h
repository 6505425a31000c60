/* sparse.h: sums of products with constants of which most elements are zero.
 *
 * Only the others are stored and multiplied, in one of two forms.
 *
 * By rows: along the axis v of the domain, which is laid over lanes, the constant does not move: a
 * batch, time steps, a row of an image. For each list of the constant's elements (a column, an
 * output channel) they are read one after the other, each with the place of the vectors of the
 * other factor that it multiplies. Where that factor is not contiguous along v, or a window, tiles
 * of it are copied first, as much of the sum at a time as the nearest cache holds: then all lists
 * go over this block of the sum, and their sums wait in memory meanwhile. Short rows of images are
 * laid over the lanes several at a time.
 *
 * By columns, where rows are few: neighbouring columns are the lanes, and the sum goes in blocks of
 * two vectors of the other factor, contiguous along it. A chunk is a few slots, each with an
 * element of every column and its place in the block, from where it is picked in registers; of a
 * few rows side by side, where there are several.
 *
 * A zero of the constant is not multiplied: what is infinite or no number in the other factor
 * counts only where it meets an element that is stored. */
#ifndef BRAID_KERNEL_SPARSE_H
#define BRAID_KERNEL_SPARSE_H

#include "scheduler/kernel/kernel.h"
#include "utask/product.h"

#define SPARSE_SUMS 8
#define SPARSE_SLOTS 4          /* of a chunk */
#define SPARSE_CHAINS 4         /* sums that a core goes on with side by side, at least */
#define SPARSE_WORTH 0.3        /* a layout for dense products is not looked for below this */
#define SPARSE_NEAR (32 << 10)  /* bytes of a block's tile, about */
#define SPARSE_COPY (192 << 10) /* bytes of copied tiles, at most */
#define SPARSE_KEPT (512 << 10) /* bytes of sums that wait, at most */

typedef struct SparseSum {
    Expr *reduce, *x; /* the sum; the load of the other factor */
    /* By rows: elements [start[l], start[l + 1]) are list l's, of the first block; then those of
     * the next one. By columns: chunks of tile l. */
    Tensor *start, *value;
    /* int32. By rows: elements from `base`, or in the copy. By columns: for each chunk and column
     * the places of its slots' elements in the block, a byte each, the first one lowest. */
    Tensor *at;
    Tensor *block; /* by columns: int32, where a chunk's block begins */
    Expr *list;    /* number of the list, or of the first tile, over axes but v */
    int64_t lists; /* by rows */
    Expr *step;    /* by columns, with several rows: x's distance between them */
    Expr *base;    /* position of x where the sum's axes are 0 */
    int copy;      /* number of the copy; -1: none */
    bool together; /* the copy's elements lie together along v in x, too */
    Expr *turned;  /* distance of x's rows along v, which the copy has as columns; NULL: others */
} SparseSum;

typedef struct SparseKernel {
    Kernel *g;
    bool rows;
    int n, ncopy;
    SparseSum s[SPARSE_SUMS];
    Axis *v;
    int nv, vt; /* vectors and lanes of a tile */
    /* An axis of which a tile has `nu` positions, each with an equal share of its lanes; NULL: one.
     * By rows around v, by columns innermost. */
    Axis *u;
    int nu;
    /* By rows: steps of the sums' first axis in a block, and blocks. */
    int64_t chunk, blocks;
    Expr *place;    /* with several blocks: where a list's sums wait, over the axes inside v */
    int64_t places; /* such */
    /* By rows: results lie together along this axis, not along v: a vector's length of its lists is
     * summed before they are stored, turned back. NULL: along v. */
    Axis *columns;
    int nouter; /* axes of the domain around the loops over tiles of u and v */
} SparseKernel;

/* The share of k's elements that are not zero. */
double sparse_density(const Const *k);
/* Makes g such a kernel, where it can be and is worth it; false: it is as it was. */
bool kernel_sparse(Kernel *g);

#endif
