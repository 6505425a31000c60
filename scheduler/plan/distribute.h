/* distribute.h: parts of tensors, and which unit touches which. */
#ifndef BRAID_DISTRIBUTE_H
#define BRAID_DISTRIBUTE_H

#include "utask/utask.h"

typedef enum {
    PART_WHOLE, /* any unit may touch any element */
    PART_SOLO,  /* unit `dim` touches all of it; groups at core level are unit 0's */
    PART_SPLIT  /* a unit touches its range of dimension `dim`, of size `extent`: unit u of n owns
                   grains [parts·u/n, parts·(u+1)/n), parts = extent / grain rounded up, counted from
                   position `edge`; what lies in front of and behind that is the first and the last
                   one's;  n: the units of level `level` */
} PartKind;
typedef struct Part {
    PartKind kind;
    int dim;
    int grain, level;
    const Expr *extent;
    int64_t edge;
} Part;

extern const Part part_whole, part_solo;
Part part_of_unit(int unit); /* PART_SOLO */
/* Both touch the same elements in each unit: no barrier is needed between them. */
bool part_same(Part a, Part b);
/* On GPUs: the dimension of load e that a group over lead's axes reads piece by piece, *n > 1
 * positions for each of one of them, so that units may have whole pieces; -1: none, or several, as
 * of images' windows, or fewer pieces than would keep the units busy. */
int part_pieces(const Program *p, const Expr *e, const Tensor *lead, int64_t *n);
/* What a group writes of its members, and reads of tensor t (a tensor with storage). */
Part part_written(const Stmt *s);
Part part_read(Cx *c, const Stmt *s, const Tensor *t);

/* Requires grouped OPs. Sets Stmt.op.split, grain, inner and edge. */
void pass_distribute(Program *p);

#endif
