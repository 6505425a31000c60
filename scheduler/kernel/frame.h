/* frame.h: a group whose member has its values inside of a frame, and one constant around them:
 * what a layer stores where the next one reads it with its padding.
 *
 * The kernel is that of the inside alone, stored from an offset on; around it the frame is filled
 * first (codegen/emit/emit_frame.c). So no kernel knows of it, and padding is not copied. */
#ifndef BRAID_FRAME_H
#define BRAID_FRAME_H

#include "scheduler/kernel/kernel.h"

typedef struct Framing {
    int n;
    Axis *axis[MAX_RANK];                 /* of the whole, outermost first */
    Expr *low[MAX_RANK], *high[MAX_RANK]; /* the inside along each; NULL: all of it */
    Expr *inside, *around;                /* the values; the latter is constant */
    Expr *position;                       /* over `axis` */
    Axis *split, *strip; /* Kernel.split and Kernel.strip, where they are axes of the whole */
    /* Positions of the kernel's for each one inside along those. */
    Expr *each;
} Framing;

/* Whether body, over n axes, has a frame; fills all of *w but what a kernel adds. */
bool frame_of(Cx *c, const Expr *body, int n, Axis *const *axis, Framing *w);
/* Gives k a frame where its only member has one: then its axes, value and position are those of the
 * inside. */
void kernel_frame(Kernel *k);
/* The bounds along w's axis that is x; -1: it has none. */
int frame_axis(const Framing *w, const Axis *x);

#endif
