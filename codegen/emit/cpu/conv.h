/* conv.h: shared by the ways in which sums of products with constants over domains of two and more
 * dimensions are computed (conv.c, winograd.c). */
#ifndef BRAID_CONV_H
#define BRAID_CONV_H

#include "codegen/emit/emit.h"

#define CONV_SUMS 4
#define CONV_REDUCE 6

typedef struct Sum {
    Expr *reduce;
    Expr *vec, *sca; /* loads */
    Expr *vec_flat, *sca_flat;
    int n; /* reduction axes, outermost first: */
    Axis *axis[CONV_REDUCE];
    int64_t extent[CONV_REDUCE],
        stride[CONV_REDUCE];        /* stride: of the packed operand in the model's order */
    int64_t v_stride, base, length; /* length: of the whole reduction */
    int cut; /* this axis goes in chunks, those before it one by one, those behind it whole */
    int64_t chunk;
    const char *weights; /* parameter with the packed operand */
} Sum;

typedef struct Conv {
    Group *g;
    int n;
    Sum s[CONV_SUMS];
    Axis *v, *m, *b;  /* lanes; the innermost axis of positions; the next one, or NULL */
    int64_t nlane;    /* extent of v */
    int nv, vt, rows; /* vectors and lanes of a tile; most positions of a micro-kernel */
    bool kept;        /* sums are kept between blocks of the reduction */
    int64_t block;    /* positions of a block, at most */
    int64_t m_block;  /* of them along m */
    int64_t even;     /* > 0: every run along m has this many positions */
} Conv;

/* Fills k when all reductions of the group are sums of products with constants, of which only the
 * constant moves along the last axis of the domain. Where there is nothing else to lay over lanes,
 * another axis of the domain becomes the last. */
bool conv_recognize(Conv *k);
Expr *conv_coef(Cx *c, Expr *flat, Axis *x);
/* Sets the axes and the shape of a tile. */
void conv_tile(Conv *k);
/* Vectors of a packed operand, with enough behind for a tile to start at any of them. */
int64_t conv_vectors(const Conv *k);
/* The name by which the group's function knows packed data. */
const char *conv_weights(Conv *k, const char *data);

/* How a micro-kernel walks over the scalar operand. */
typedef struct Walk {
    int levels; /* loops, outermost first */
    Expr *count[CONV_REDUCE], *stride[CONV_REDUCE];
    bool partial;   /* the outermost makes `count` steps, and sums go on when `more` */
    Expr *row;      /* from one position to the next */
    const char *at; /* text of the address of the first element */
    int64_t stream; /* floats from one vector of the packed operand to the next */
} Walk;
/* Emits the call of the micro-kernel for `rows` positions: their sums go to `out`, the packed
 * operand's part is at `in`. */
void conv_micro(Conv *k, int rows, const char *out, const char *in, const Walk *w);

/* Sizes of tiles for runs of `even` positions (0: any number), the largest first; returns how many.
 */
int conv_sizes(const Conv *k, int64_t even, int *sizes);
/* Emits the head of a loop over tiles, at `pos` with `rows` positions, of the run [lo, hi), and
 * what picks the size; `tile` emits what is done for a size, or is NULL. The caller closes the
 * loop. */
void conv_run(Conv *k, int64_t even, const char *lo, const char *hi,
              void (*tile)(Conv *k, int rows, void *user), void *user);
/* In such a loop: fetches `share` more vectors of each stream of the packed operand from `next` on.
 */
void conv_fetch(Conv *k, int64_t stream);
/* The members of `rows` positions from m = pos on; sum i of lane l is s<i>[row * vt + l]. */
void conv_epilogue(Conv *k);

#endif
