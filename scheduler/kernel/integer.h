/* integer.h: int32 sums of products of 8-bit integers, one factor of which is mostly constant.
 *
 * Sum_r (x[..r..] - zx) (w[..r..] - zw) is computed as
 *     Sum_r x w  -  zx Sum_r (w - zw)  -  zw Sum_r x:
 * the middle sum is a table, made at compile time, and the last one is found once for each
 * position, where zw is not 0. What is left is printed in one of two forms.
 *
 * Products: of the domain only w moves along the last axis, v, which is laid over vector lanes. x
 * lies together along a run of the sum's axes; each step takes four neighbours of it, which all
 * lanes share, and a vector of w's quads. Where x does not lie so, the rows of a block are copied.
 * Where the processor has no sums of four products, and w is not so small that two fit into 16
 * bits, a step takes two neighbours, of rows that have been copied to 16 bits.
 *
 * Channels, of a depthwise convolution: both factors move along v, x by single elements. Each step
 * takes two elements of the sum, in 16 bits.
 *
 * w may also move along other axes of the domain, by whole vectors of its elements along v: those
 * of groups, and of products whose columns are stored apart. Such axes are outermost.
 *
 * The other axes are positions; a micro-kernel computes the sums of up to `rows` neighbours along m
 * for `nv` vectors, and the members' own expressions follow. Around it the loops are, from the
 * outside: axes further out; blocks of positions along b and m, whose rows of x stay in the
 * second-level cache; tiles of v; positions. */
#ifndef BRAID_KERNEL_INTEGER_H
#define BRAID_KERNEL_INTEGER_H

#include "scheduler/kernel/kernel.h"
#include "utask/product.h"

#define INTEGER_SUMS 4
#define INTEGER_AXES 8
#define INTEGER_HEIGHTS 8

typedef struct IntegerSum {
    Expr *reduce;
    Expr *x, *w; /* loads */
    Expr *x_flat, *w_flat;
    Expr *x_zero;    /* int32, the same along v; NULL: 0 */
    Expr *column;    /* of w, in front of those along v: by the outermost axes */
    int64_t columns; /* of w */
    bool channels;
    bool made; /* w is no constant: units pack it for themselves, by blocks along v, whenever outer
                  axes move it */
    Expr *w_zero; /* made: int32, the same along v; NULL: 0 */
    bool copied;  /* x does not lie together, and all of the sum is its run */
    bool pairs;   /* rows of x are copied to 16 bits */
    bool small;   /* sums of two products fit into 16 bits, and the processor needs that */
    /* Channels: the last axis in front of the run is a window along m, each position `every`
     * elements further on, so that neighbours share elements; 0: it is not. */
    int every;
    int n, run; /* axes of the sum, outermost first; the last `run` of them are the run */
    Axis *axis[INTEGER_AXES];
    int64_t extent[INTEGER_AXES];
    int64_t length;       /* of the run */
    int64_t row;          /* elements of a copied row of x */
    int64_t stream;       /* bytes of a vector of packed w's */
    const Packed *packed; /* [vector][axes in front of the run][step][lane][element of a step] */
    const Packed *sums;   /* by column: of w less its zero point */
    const Packed *zeros;  /* by column: zero points of w as it is packed; NULL: all are 0 */
} IntegerSum;

typedef struct Integer {
    Kernel *g;
    int n;
    IntegerSum s[INTEGER_SUMS];
    Axis *v, *m, *b; /* lanes; the innermost axis of positions, and the next one, or NULL */
    int64_t nlane;   /* extent of v */
    int nv, vt;      /* vectors and lanes of a tile */
    int rows;        /* most positions of a micro-kernel */
    int height[INTEGER_HEIGHTS],
        nheight;                     /* that there are micro-kernels for: `rows` first, falling */
    int64_t block, m_block, b_block; /* positions of a block, at most; along m; along b */
    int64_t v_block; /* positions along v that factors which are no constants are packed for at
                        once; 0: there are none */
    uint32_t
        across; /* bit i: member i lies together along m; a block's are stored by transposing */
} Integer;

/* Vectors of packed w's: a tile may start at any of the domain's. */
int64_t integer_vectors(const Integer *k, const IntegerSum *s);

/* Elements of a step, bytes of w's in a lane of it, and steps of a run. */
static inline int integer_step(const IntegerSum *s) { return s->channels || s->pairs ? 2 : 4; }
static inline int integer_bytes(const IntegerSum *s) { return s->pairs ? 2 : 4; }
static inline int64_t integer_steps(const IntegerSum *s) {
    return (s->length + integer_step(s) - 1) / integer_step(s);
}

/* Makes k such a kernel if all reductions of the group are such sums; false: it is as it was, but
 * that another axis may be the last. */
bool kernel_integer(Kernel *k);

#endif
