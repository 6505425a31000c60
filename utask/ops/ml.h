/* ml.h: shared by the lowerings of ai.onnx.ml. */
#ifndef BRAID_OPS_ML_H
#define BRAID_OPS_ML_H

#include "utask/lower.h"

/* The attribute `name`, or else the tensor NAME_as_tensor, as doubles; *n = -1 when both are
 * absent. *t (may be NULL): float64 if the tensor is. */
const double *attr_numbers(Lower *L, const char *name, int64_t *n, DType *t);
/* The integers of a list attribute; `fail`s unless there are n. */
const int64_t *attr_ints_of(Lower *L, const char *name, int64_t n);
/* The *n integer labels; NULL and *n = 0 if there are none. String labels are refused. */
const int64_t *int_labels(Lower *L, const char *ints, int64_t *n);
/* `unsupported` if the attribute is present, because there are no string tensors. */
void no_strings(Lower *L, const char *name);
/* X as [rows, features]: one row when it has rank 1. */
Tensor *feature_rows(Lower *L, int input);
Tensor *t_floats(Lower *L, DType t, int64_t rows, int64_t cols, const double *v); /* cols -1: 1-d */

/* ---- scores [rows, classes] ------------------------------------------------------------------ */
typedef enum { POST_NONE, POST_SOFTMAX, POST_LOGISTIC, POST_SOFTMAX_ZERO, POST_PROBIT } Post;
#define POSTS "NONE|SOFTMAX|LOGISTIC|SOFTMAX_ZERO|PROBIT"
/* One score s [rows] as the scores of two classes: s is the probability of the second one or, if
 * `mixed`, above 0 for the second class and below 0 for the first. */
Tensor *two_scores(Lower *L, Tensor *s, bool mixed, Post post);
Post post_attr(Lower *L); /* post_transform, a string */
Tensor *post_scores(Lower *L, Post post, Tensor *scores);
/* labels[k] for class numbers k [rows] (int64). */
Tensor *labels_at(Lower *L, const int64_t *labels, int64_t n, Tensor *k);
/* The first position of each row's maximum in [rows, classes]: int64 [rows]. */
Tensor *best_class(Lower *L, Tensor *scores);
Tensor *t_column(Lower *L, Tensor *t, int64_t k);  /* [rows, n] to [rows] */
Tensor *t_columns(Lower *L, Tensor *a, Tensor *b); /* two of [rows] to [rows, 2] */

#endif
