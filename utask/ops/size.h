/* size.h: sizes, axes and clamps that come from data; shared by the shape and movement lowerings.
 */
#ifndef BRAID_UTASK_OPS_SIZE_H
#define BRAID_UTASK_OPS_SIZE_H

#include "utask/ops/lowerings.h"

/* A 1-D parameter input (shape, axes, pads…) whose length may be known at run time only. */
typedef struct Vec {
    Tensor *t;
    const char *what;
    int n;     /* its length, or -1 */
    int least; /* n, or bounds of the length: it is checked to be within */
    int most;
    Expr *len; /* int64, uniform */
} Vec;
/* Input `i`, of at most `max` elements. `want` ≥ 0: the length that the other inputs or a declared
 * type ask for; one known at run time only is checked to be it. One that is known at compile time
 * is returned as it is, for the caller to compare. */
Vec vec_in(Lower *L, int i, int want, int max, const char *what);
Vec vec_of(Lower *L, Tensor *t, int want, int max, const char *what); /* the same of a tensor */
uint32_t vec_ranks(const Vec *v); /* bit k: the length may be k, MAX_RANK at most */
/* Element j < v->most as a uniform int64; dflt where the vector is shorter (NULL: never read). */
Expr *vec_at(Lower *L, const Vec *v, int j, Expr *dflt);
Expr *vec_from_end(Lower *L, const Vec *v, int j,
                   Expr *dflt); /* the same for element len - 1 - j */
/* Element j of a vector of axes for a tensor of this rank, checked and made non-negative; *given:
 * the vector is so long. */
Expr *vec_axis(Lower *L, const Vec *v, int j, int rank, Expr **given);
/* The same with a rank known at run time only. */
Expr *vec_axis_of(Lower *L, const Vec *v, int j, Expr *rank, Expr **given);
/* The rank that the model declares for output i of the node, or -1. A declared scalar says nothing:
 * exporters write it for values of any shape. */
int declared_rank(const Value *v);
int out_rank(Lower *L, int i);
/* The elements of t, in its order, as a tensor of rank `rank`, one of those in the mask `ranks`:
 * dims dim[0..MAX_RANK), which are 1 from the rank on. alt (may be NULL): dims where the rank is
 * known to be r, alt[r] (may be NULL). */
Tensor *t_of_rank(Lower *L, Tensor *t, Expr *rank, uint32_t ranks, Expr *const *dim,
                  Expr **const *alt);
/* Dims of t (MAX_RANK, 1 beyond its rank) without those for which drop[i] holds, moved together;
 * returns how many are left, a uniform value. */
Expr *dims_kept(Lower *L, const Tensor *t, Expr *const *drop, Expr **dim);
/* Lowers body(user, v) for each value v of e in [least, most], outside of which it is a fault:
 * under Branches where it is not known. Gives what the bodies give, joined. */
typedef Tensor *SizeBody(Lower *L, void *user, int v);
Tensor *for_each_size(Lower *L, Expr *e, int least, int most, SizeBody *body, void *user,
                      const char *what);
/* The only element of input i, checked to be one, in its own type. */
Expr *scalar_uni(Lower *L, int i, const char *what);
/* A size from data: checked to be ≥ 0 unless proven; bound by a LET when it is not simple. */
Expr *size_uni(Lower *L, const char *name, Expr *e);
/* Constants, symbols and short sums and products of them. */
bool is_simple(const Expr *e);
bool known(const Expr *cond);        /* true at compile time */
Expr *kmin(Cx *c, Expr *a, Expr *b); /* MIN, MAX that look at proven bounds first */
Expr *kmax(Cx *c, Expr *a, Expr *b);
Expr *clamp_i(Cx *c, Expr *e, int64_t lo, int64_t hi);
bool ge_const(const Expr *e, int64_t v); /* int64: proven to be ≥ v */
/* dim / k where k must divide it: checked. */
Expr *divided_dim(Lower *L, Expr *dim, Expr *k, const char *what);
/* Of two sizes that are equal, the one that says more. */
Expr *better_dim(Expr *a, Expr *b);
/* n tensors of one rank one after the other along an axis (negative: from the end); their other
 * sizes are checked. */
Tensor *t_join(Lower *L, int n, Tensor *const *t, int64_t along);

#endif
