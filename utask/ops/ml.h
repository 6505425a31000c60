/* ml.h: shared by the lowerings of ai.onnx.ml. */
#ifndef BRAID_OPS_ML_H
#define BRAID_OPS_ML_H

#include "utask/lower.h"

/* The attribute `name`, or else the tensor NAME_as_tensor, as doubles; *n = -1 when both are
 * absent. *t (may be NULL): float64 if the tensor is. */
const double *attr_numbers(Lower *L, const char *name, int64_t *n);
/* The integers of a list attribute; `fail`s unless there are n. */
const int64_t *attr_ints_of(Lower *L, const char *name, int64_t n);
/* The *n integer labels; NULL and *n = 0 if there are none. String labels are refused. */
const int64_t *int_labels(Lower *L, const char *ints, int64_t *n);
/* `unsupported` if the attribute is present, because there are no string tensors. */
void no_strings(Lower *L, const char *name);
/* X as [rows, features]: one row when it has rank 1. */
Tensor *feature_rows(Lower *L, int input);
Tensor *t_floats(Lower *L, DType t, int64_t rows, int64_t cols, const double *v); /* cols -1: 1-d */

/* Sorts the n places by what `less` compares for `user`; equal ones stay in order. */
void sort_stable(Lower *L, int64_t n, int64_t *place,
                 bool less(const void *user, int64_t i, int64_t j), const void *user);

/* ---- scores [rows, classes] ------------------------------------------------------------------ */
typedef enum { POST_NONE, POST_SOFTMAX, POST_LOGISTIC, POST_SOFTMAX_ZERO, POST_PROBIT } Post;
/* One score s [rows] as the scores of two classes: s is the second one's and a probability, or,
 * when it is `mixed`, above 0 for the second and below for the first class. */
Tensor *two_scores(Lower *L, Tensor *s, bool mixed, Post post);
Post post_attr(Lower *L); /* post_transform, a string */
Tensor *post_scores(Lower *L, Post post, Tensor *scores);
/* The same of n targets; one score alone is transformed by PROBIT only. */
Tensor *post_targets(Lower *L, Post post, Tensor *scores, int64_t n);
/* Label k of `labels` where k [rows] are class numbers (int64). */
Tensor *labels_at(Lower *L, const int64_t *labels, int64_t n, Tensor *k);
/* The second of two labels where s [rows] is above the bound, else the first. */
Tensor *labels_above(Lower *L, const int64_t *labels, Tensor *s, double bound);
/* Of [rows, classes] the first place of the greatest, int64 [rows]. */
Tensor *best_class(Lower *L, Tensor *scores);
Tensor *t_column(Lower *L, Tensor *t, int64_t k); /* [rows, n] to [rows] */

#endif
