/* forest.h: decision forests as constants, and the walk through them as a tensor expression. */
#ifndef BRAID_OPS_FOREST_H
#define BRAID_OPS_FOREST_H

#include "utask/lower.h"

/* How a node tests its feature x, numbered like TreeEnsemble's nodes_modes. */
typedef enum { ASK_LEQ, ASK_LT, ASK_GTE, ASK_GT, ASK_EQ, ASK_NEQ, ASK_MEMBER, ASK_COUNT } Ask;

/* An inner node leads to child[1] if lo <= x <= hi, else (also for NaN) to child[0]. A leaf is its
 * own child. Nodes are made in two steps: first all of them, then the contents of each. */
typedef struct ForestNode {
    int feature, child[2];
    double lo, hi;
    int leaf;  /* row of weights; -1: an inner node */
    int depth; /* steps from here to the farthest leaf, once known */
    uint8_t seen;
} ForestNode;

typedef struct Forest {
    DType t; /* type in which features are compared and weights added: float32 or float64 */
    VEC(ForestNode) node;
    VEC(int) root;
    int nleaf, ntarget;
    double *weight; /* nleaf rows of ntarget; allocated by forest_weights */
    int nfeature;   /* all tested features are below this */
} Forest;

void forest_nodes(Lower *L, Forest *f, int n); /* adds n unset nodes */
void forest_leaf(Forest *f, int id);
/* value: what x is compared with (ASK_MEMBER: n values). missing: NaN also goes to `yes`. */
void forest_branch(Lower *L, Forest *f, int id, int64_t feature, Ask ask, int n,
                   const double *value, bool missing, int yes, int no);
/* Allocates the weights of all leaves, set to `absent`. */
void forest_weights(Lower *L, Forest *f, int64_t ntarget, double absent);
/* The scores [rows, ntarget] in f's type: reduces, over trees, the weights of the leaf that each
 * row of x [rows, features] reaches. `fail`s for cycles of nodes. */
Tensor *forest_scores(Lower *L, Forest *f, ReduceKind how, Tensor *x);

#endif
