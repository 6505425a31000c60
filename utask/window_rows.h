/* window_rows.h: recognizes sums over windows,  Σ_r x[…] · w[…],  that move along rows: depthwise
 * convolutions whose channels lie apart. Neighbours along v, the last axis of the domain, have
 * windows next to each other in a row of x, and share their weights w, which are constant; so do
 * those along u, in the rows of one plane. Around x there may be padding: zeros where its position
 * is outside of bounds. */
#ifndef BRAID_WINDOW_ROWS_H
#define BRAID_WINDOW_ROWS_H

#include "utask/windows.h"

#define PLANE_BOUNDS 4
#define PLANE_STRIDE 2 /* the longest step along a row */
#define PLANE_TAPS 64  /* of a window in a row, at most */
#define PLANE_OUTER 8  /* planes of a window, at most */
#define PLANE_SPAN                                                                                 \
    128 /* elements or rows from the first tap to the last, at most, of all planes                 \
         */

/* A window along one axis of the domain: tap k of position i is element  i * stride + k * apart. */
typedef struct PlaneWindow {
    Axis *axis, *over;     /* of the domain, of the sum; over: NULL: there is one tap */
    int64_t stride, apart; /* elements */
    int64_t taps, weight;  /* weight: from one tap's weight to the next */
    /* Elements low <= i < high are inside; the greatest and the least of these. */
    Expr *low[PLANE_BOUNDS], *high[PLANE_BOUNDS];
    int nlow, nhigh;
} PlaneWindow;

typedef struct Planes {
    Expr *reduce;
    Expr *x, *w;   /* loads */
    PlaneWindow v; /* along a row */
    PlaneWindow u; /* from row to row; axis NULL: there is one row */
    Expr *row;     /* elements of x from one row to the next; NULL: there is one row */
    Expr *x_at;    /* position of element 0 of row 0, over other axes of the domain and the sum */
    Expr *w_at;    /* that of the first weight, over axes of the domain */
    Expr *inside;  /* bool, over the same axes as x_at: the plane is not padding */
    int n;         /* other axes of the sum */
    Axis *axis[WINDOW_AXES];
    int64_t extent[WINDOW_AXES], stride[WINDOW_AXES]; /* stride: of w */
    int64_t outer;                                    /* product of the extents */
} Planes;

/* Whether reduction e is such a sum over a domain of n axes, of which the last is laid over `lanes`
 * lanes. Fills *s if so. */
bool planes_of(Cx *c, Expr *e, int n, Axis *const *domain, int lanes, Planes *s);

#endif
