/* convolution.h: sums of products with constants over domains of two and more dimensions:
 * convolutions, and products of stacked matrices.
 *
 * The last axis of the domain, v, is laid over vector lanes: only the constant operand, of each
 * group one, moves along it, and is packed at compile time in the order in which the kernels read
 * it. The other axes are positions; a micro-kernel computes, in registers, the sums of up to `rows`
 * neighbours along m, the innermost one (of stacked matrices of unknown sizes the longer one of
 * two), for `nv` vectors. Around it the loops are, from the outside: the axes further out; blocks
 * of positions along b and m, whose operands fit the second-level cache; tiles of v; blocks of the
 * reduction, whose part of the packed operand fits the first-level cache; positions. A sum whose
 * reduction is one block goes from a small tile straight into the epilogue, the members' own
 * expressions; with several blocks the sums of all positions of the block are kept in between. */
#ifndef BRAID_KERNEL_CONVOLUTION_H
#define BRAID_KERNEL_CONVOLUTION_H

#include "scheduler/kernel/kernel.h"
#include "scheduler/kernel/packed.h"
#include "utask/product.h"

#define CONV_SUMS 4
#define CONV_REDUCE 6

typedef struct ConvSum {
    Expr *reduce;
    Expr *vec, *sca; /* loads */
    Expr *vec_flat, *sca_flat;
    int n;
    Axis **axis; /* of the reduction, outermost first */
    int64_t extent[CONV_REDUCE],
        stride[CONV_REDUCE];        /* stride: of the packed operand in the model's order */
    int64_t v_stride, base, length; /* length: of the whole reduction */
    /* Axes of the domain further out than b that have operands of their own: groups of channels. */
    int ngroup;
    Axis *group[MAX_RANK];
    int64_t groups[MAX_RANK], group_stride[MAX_RANK]; /* extents; of the packed operand */
    int cut; /* this axis goes in chunks, those before it one by one, those after it whole */
    int64_t chunk;
    const Packed *packed; /* [groups][vector][reduction axes, outermost first][lane] */
} ConvSum;

typedef struct Convolution {
    Kernel *g;
    int n;
    ConvSum s[CONV_SUMS];
    Axis *v, *m, *b;  /* lanes; the innermost axis of positions; the next one, or NULL */
    int64_t nlane;    /* extent of v */
    int nv, vt, rows; /* vectors and lanes of a tile; most positions of a micro-kernel */
    bool kept;        /* sums are kept between blocks of the reduction */
    int64_t block;    /* positions of a block, at most */
    int64_t m_block;  /* of them along m */
    int64_t even;     /* > 0: every run along m has this many positions */
    /* Members, by bits, that lie together along m and not along v: of a run along m they go into a
     * tile first, from which blocks are transposed. */
    unsigned across;
    /* The same with b and m exchanged, for runs in which b is the longer one; NULL: there is none.
     */
    const struct Convolution *turned;
} Convolution;

/* Computes four neighbouring sums over windows of 3 x 3 by 16 products instead of 36: Winograd's
 * F(2 x 2, 3 x 3). For each block of tiles, four sums each, the elements are transformed, 16
 * products of matrices (tiles x channels with the transformed, packed weights) follow, and the
 * results are transformed back on the way to the epilogue. */
typedef struct Winograd {
    Convolution k;
    int y, x, c;             /* axes of the sum */
    int64_t channels, tiles; /* tiles: of a block */
    /* The transformed weights do not stay in the second-level cache: they are read once, one
     * product after the other for as many tiles as have room, and each product is taken into the
     * sums at once. */
    bool far;
    int64_t chunk; /* far: of channels */
    int64_t element_step,
        sum_step; /* floats from one product's matrix to the next: no multiple of a page */
} Winograd;

/* Vectors of a group's packed operand, padded so that all tiles are whole. */
int64_t conv_vectors(const Convolution *k);
/* Sizes of tiles for runs of `even` positions (0: any number), the largest first; returns how many.
 */
int conv_sizes(const Convolution *k, int64_t even, int *sizes);
/* Lanes of all tiles. */
static inline int64_t winograd_lanes(const Convolution *k) { return round_up(k->nlane, k->vt); }

/* Fills k->g->axis, v and the sums when all reductions of the group are sums of products with
 * constants, of which only the constant moves along the last axis of the domain. Where there is
 * nothing else to lay over lanes, another axis of the domain becomes the last. */
bool conv_recognize(Convolution *k);
/* Sets the axes and the shape of a tile. */
void conv_tile(Convolution *k);

/* Make k such a kernel, where it can be and is worth it; false: it is as it was, but that the last
 * axis may be another. */
bool kernel_convolution(Kernel *k);
bool kernel_winograd(Kernel *k);

#endif
