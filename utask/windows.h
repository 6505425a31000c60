/* windows.h: recognizes sums over windows,  Σ_r x[…] · w[…],  of which each element has a window of
 * its own along one axis, v: depthwise convolutions. Along v the elements lie together and the
 * constant weights move by a known stride. Around x there may be padding: zeros where its position
 * is outside of bounds. */
#ifndef BRAID_WINDOWS_H
#define BRAID_WINDOWS_H

#include "utask/product.h"

#define WINDOW_AXES 6

typedef struct Windows {
    Expr *reduce;
    Expr *x, *w; /* loads */
    Expr *x_flat, *w_flat;
    Axis *v, *m; /* m: the innermost other axis of the domain */
    int n;
    Axis *axis[WINDOW_AXES]; /* of the sum, outermost first; the last one is that of m's windows */
    int64_t extent[WINDOW_AXES], stride[WINDOW_AXES]; /* stride: of w */
    int64_t v_stride, base, length;                   /* of w; of the whole sum */
    /* The steps of each axis that lie inside: [first, end). Of the last one they depend on m, of
     * the others on axes further out. NULL: all do. */
    Expr *first[WINDOW_AXES], *end[WINDOW_AXES];
    /* Positions along m of which all steps of the last axis lie inside: [from, to). */
    Expr *from, *to;
    int64_t m_step, step; /* of x along m and along the last axis */
} Windows;

/* The load of float32 that x is, and where it is inside (NULL: everywhere): elsewhere x is 0. NULL:
 * x is no such load. */
Expr *padded_load(Cx *c, Expr *x, Expr **inside);
/* Takes the bound  slack <= second - first  of integers; false: it cannot. */
typedef bool PaddingBound(Cx *c, void *user, Expr *first, Expr *second, int64_t slack);
/* Whether `inside` is nothing but bounds, all of which `bound` takes. */
bool padding_bounds(Cx *c, const Expr *inside, PaddingBound *bound, void *user);
/* Whether e is a sum of products of such loads. */
bool padded_product(Cx *c, Expr *e);
/* Whether reduction e is such a sum, over a domain of n axes of which one is laid over `lanes`
 * lanes. Fills *s if so. */
bool windows_of(Cx *c, Expr *e, int n, Axis *const *domain, int lanes, Windows *s);

#endif
