/* size.h: sizes, axes and clamps from data, for lowerings that change shapes or move elements. */
#ifndef BRAID_UTASK_OPS_SIZE_H
#define BRAID_UTASK_OPS_SIZE_H

#include "utask/ops/lowerings.h"

/* A 1-D parameter input (shape, axes, pads…) whose length may be known only at run time. */
typedef struct Vec {
    Tensor *t;
    const char *what;
    int n;     /* its length, or -1 */
    int least; /* n, or checked bounds of the length */
    int most;
    Expr *len; /* int64, uniform */
} Vec;
/* Input `i`, of at most `max` elements. `want` ≥ 0: the length that other inputs or a declared type
 * imply. A length known only at run time is checked to equal it; one known at compile time is left
 * for the caller to compare. */
Vec vec_in(Lower *L, int i, int want, int max, const char *what);
Vec vec_of(Lower *L, Tensor *t, int want, int max, const char *what); /* the same of a tensor */
/* Bits least to most. */
static inline uint32_t rank_range(int least, int most) {
    return ((2u << most) - 1) & ~((1u << least) - 1);
}
uint32_t vec_ranks(const Vec *v); /* bit k: the length may be k <= MAX_RANK */
/* Element j < v->most as a uniform int64; dflt if the vector is shorter (NULL: never read). */
Expr *vec_at(Lower *L, const Vec *v, int j, Expr *dflt);
Expr *vec_from_end(Lower *L, const Vec *v, int j, Expr *dflt); /* of element len - 1 - j */
/* Entry j of a vector of axes for this rank, checked, made non-negative. *given: there is one. */
Expr *vec_axis(Lower *L, const Vec *v, int j, int rank, Expr **given);
/* The same with a rank known only at run time. */
Expr *vec_axis_of(Lower *L, const Vec *v, int j, Expr *rank, Expr **given);
/* The rank that the model declares for output i of the node, or -1. A declared scalar says nothing,
 * because exporters write it for values of any shape. */
int declared_rank(const Value *v);
int out_rank(Lower *L, int i);
/* The elements of t, in order, as a tensor of rank `rank`, which is one of those in the mask
 * `ranks`. Dims are dim[0..MAX_RANK), 1 from the rank on. alt (may be NULL): alt[r] (may be NULL)
 * has the dims for rank r. */
Tensor *t_of_rank(Lower *L, Tensor *t, Expr *rank, uint32_t ranks, Expr *const *dim,
                  Expr **const *alt);
/* Compacts the dims of t (MAX_RANK, 1 beyond its rank), dropping those for which drop[i] holds.
 * Returns how many are left, a uniform value. */
Expr *dims_kept(Lower *L, const Tensor *t, Expr *const *drop, Expr **dim);
/* Lowers body(user, v) for each value v of e in [least, most], under Branches if e is not known.
 * Other values are a fault. Returns the bodies' joined results. */
typedef Tensor *SizeBody(Lower *L, void *user, int v);
Tensor *for_each_size(Lower *L, Expr *e, int least, int most, SizeBody *body, void *user,
                      const char *what);
/* The element of input i, checked to be the only one, in its own type. */
Expr *scalar_uni(Lower *L, int i, const char *what);
/* A size from data: checked to be ≥ 0 unless proven; bound by a LET if it is not simple. */
Expr *size_uni(Lower *L, const char *name, Expr *e);
/* Whether e is a constant, a symbol, or a short sum or product of them. */
bool is_simple(const Expr *e);
bool known(const Expr *cond);        /* true at compile time */
Expr *kmin(Cx *c, Expr *a, Expr *b); /* MIN and MAX that use proven bounds */
Expr *kmax(Cx *c, Expr *a, Expr *b);
Expr *clamp_i(Cx *c, Expr *e, int64_t lo, int64_t hi);
bool ge_const(const Expr *e, int64_t v); /* int64: proven to be ≥ v */
/* dim / k, with a check that k divides it. */
Expr *divided_dim(Lower *L, Expr *dim, Expr *k, const char *what);
/* Of two equal sizes, the one that says more. */
Expr *better_dim(Expr *a, Expr *b);
/* Concatenates n tensors along an axis (negative: from the end); checks ranks and other sizes. */
Tensor *t_join(Lower *L, int n, Tensor *const *t, int64_t along);

#endif
