/* distribute.h: parts of tensors, and which unit touches which. */
#ifndef BRAID_DISTRIBUTE_H
#define BRAID_DISTRIBUTE_H

#include "utask/utask.h"

typedef enum {
    PART_WHOLE, /* any unit may touch any element */
    PART_SOLO,  /* unit 0 touches all of it */
    PART_SPLIT  /* a unit touches its range of dimension `dim`, of size `extent` */
} PartKind;
typedef struct Part {
    PartKind kind;
    int dim;
    const Expr *extent;
} Part;

/* Both touch the same elements in each unit: no barrier is needed between them. */
bool part_same(Part a, Part b);
/* What a group writes of its members, and reads of tensor t (a tensor with storage). */
Part part_written(const Stmt *s);
Part part_read(Cx *c, const Stmt *s, const Tensor *t);

/* Elements of a split axis that stay together; a function of the extent alone, so that all groups that
 * split equal extents agree on who owns what. Unit u of n owns grains [parts·u/n, parts·(u+1)/n). */
int64_t split_grain(const Expr *extent);

/* Requires grouped OPs. Sets Stmt.op.split. */
void pass_distribute(Program *p);

#endif
