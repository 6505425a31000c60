/* coded.h: float32 constants that are numbers of few bits times a scale: (code - zero) * scale.
 *
 * The importer computes constants while it lowers, so weights of 2, 4 or 8 bits become float32. A
 * tensor remembers what it was computed from (Tensor.folded); from that, what a product needs in
 * order to read the codes themselves is found again. */
#ifndef BRAID_CODED_H
#define BRAID_CODED_H

#include "utask/utask.h"

typedef struct Coded {
    int bits;           /* of a code: 2, 4 or 8 */
    int dim;            /* of the tensor, along which each `block` elements share scale and zero */
    int64_t block;      /* a divisor of its size */
    const Const *codes; /* laid out as the tensor: uint8, or int8 where bits is 8 */
    /* float32 constants with size / block elements along dim; zero may be NULL: it is `middle` for
     * all */
    Tensor *scale, *zero;
    float middle;
} Coded;

/* Whether constant t has this form along dimension `dim`; NULL: it has not. */
const Coded *coded_find(Cx *c, const Tensor *t, int dim);

#endif
