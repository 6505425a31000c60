/* softmax_sum.h: softmax-weighted sums  Σ_j softmax_j(S[i, j]) · V[j, d],  where the scores S are
 * made of a sum of products: the form of attention, when everything between its two products stands
 * in one expression. The pass that puts it there, the cost model and the kernel recognize it here.
 */
#ifndef BRAID_SOFTMAX_SUM_H
#define BRAID_SOFTMAX_SUM_H

#include "utask/product.h"

typedef struct SoftmaxSum {
    Expr *reduce;     /* the weighted sum, of float32, over one axis: */
    Axis *key;        /* that of the keys */
    Expr *value;      /* V: what is weighted */
    Expr *score;      /* S over rows and keys, of float32; it contains one sum: */
    SumProduct dot;   /* of products, over one axis */
    int query;        /* the number of the factor of `dot` that does not move along the keys */
    Expr *sum;        /* Σ_j exp(S - max_j S) of a row */
    Expr *divisor;    /* by which weights are divided: `sum`, or what guards it */
    bool nan_to_zero; /* rows whose weights are NaN give 0 */
} SoftmaxSum;

/* Whether e is such a sum. If so, fills *a. */
bool softmax_sum_of(Cx *c, Expr *e, SoftmaxSum *a);
/* The first such sum in e, if it is evaluated for every element; false: there is none. */
bool softmax_sum_find(Cx *c, Expr *e, SoftmaxSum *a);

#endif
