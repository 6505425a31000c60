/* attend.h: softmax-weighted sums (utask/softmax_sum.h) in one pass, without scores in memory.
 *
 * The domain's axes have roles: v, the lanes, along which only the values move; m, rows that share
 * keys and values; around both, loops over the others. For a tile of rows the keys are gone through
 * in blocks. The scores of a block are computed with rows over vector lanes, from the tile's
 * queries, which are turned once: the factor of the keys is read where it is, in any order. A
 * running maximum and sum of each row make them weights; what was added before is scaled whenever
 * the maximum grows. Then the block's values are added, weighted, with v over lanes. Few rows would
 * leave lanes empty: they go one by one, with keys over lanes. */
#ifndef BRAID_ATTEND_H
#define BRAID_ATTEND_H

#include "scheduler/kernel/kernel.h"
#include "utask/softmax_sum.h"

#define ATTENTION_ENDS 4
#define ATTENTION_HEIGHT                                                                           \
    8                     /* rows of a micro-kernel; smaller ones have half of it, and so on to 1 */
#define ATTENTION_WIDTH 2 /* vectors of its tile; 4 of a single row */

/* A factor that is read where it is, or computed by blocks of keys into memory of the unit. */
typedef struct AttentionFactor {
    Expr *e;               /* over its own axis and the keys' */
    Expr *flat;            /* its position where it is read in place, else NULL */
    Expr *by_key, *by_own; /* distances in memory, then; of a block's copy by_own is 1 */
} AttentionFactor;

typedef struct AttentionKernel {
    SoftmaxSum sum;
    Expr *query;         /* over rows and `along` */
    Expr *factor;        /* uniform: queries are multiplied by it */
    Expr *product;       /* the part of the scores that the products with them are */
    bool turns;          /* queries of neighbouring rows lie side by side in memory */
    Axis *along, *v, *m; /* of the scores' products; lanes; rows, or NULL */
    /* Keys from these on have the score `excluded`: causal ones, and the rest of a buffer. Over
     * rows, along which they do not fall. */
    double excluded;
    Expr *end[ATTENTION_ENDS];
    int nend;
    AttentionFactor keys, values; /* own axes: along, v */
    int64_t size, width;          /* extents of along, v */
    int64_t padded;               /* the latter in whole vectors */
    int tile, block;              /* rows and keys that are computed together */
    int few;                      /* up to so many rows go one by one */
    bool tiles, singles;          /* what may be needed: tiles of rows, rows one by one */
    bool by_keys;                 /* the factor of the keys lies along the keys in memory */
} AttentionKernel;

/* Whether the sum, in a domain of these axes, can be computed so by vectors of so many lanes; then
 * fills *k. */
bool attention_plan(Cx *c, const SoftmaxSum *sum, int n, Axis *const *axis, int lanes,
                    AttentionKernel *k);
/* Time of the sum over all of the domain by one core of the device, without what else its group
 * does. */
double attention_ns(const Program *p, const AttentionKernel *k, int n, Axis *const *axis);

/* Makes k such a kernel where its group has one such sum; false: it is as it was. */
bool kernel_attention(Kernel *k);

#endif
