/* forest.h: decision forests as constants, and the walk through them as a tensor expression. */
#ifndef BRAID_OPS_FOREST_H
#define BRAID_OPS_FOREST_H

#include "utask/lower.h"

/* What a node asks of its feature x; the numbers are those of TreeEnsemble's nodes_modes. */
typedef enum { ASK_LEQ, ASK_LT, ASK_GTE, ASK_GT, ASK_EQ, ASK_NEQ, ASK_MEMBER, ASK_COUNT } Ask;

/* An inner node goes to child[1] where lo <= x <= hi, else, and so for NaN, to child[0]. A leaf is
 * its own child. Nodes are made in two steps: all with their numbers, then what each one is. */
typedef struct ForestNode {
    int feature, child[2];
    double lo, hi;
    int leaf;  /* its row of weights; -1: an inner node */
    int depth; /* steps from here to the farthest leaf; once it is known */
    uint8_t seen;
} ForestNode;

typedef struct Forest {
    DType t; /* in which features are compared and weights added: float32 or float64 */
    VEC(ForestNode) node;
    VEC(int) root;
    int nleaf, ntarget;
    double *weight; /* nleaf rows of ntarget; made by forest_weights */
    double absent;  /* a weight that no leaf gave */
    int nfeature;   /* features asked for are below this */
} Forest;

void forest_nodes(Lower *L, Forest *f, int n); /* n nodes more, unset */
void forest_leaf(Forest *f, int id);
/* value: what x is compared with (ASK_MEMBER: one of n values). missing: NaN goes to `yes` too. */
void forest_branch(Lower *L, Forest *f, int id, int64_t feature, Ask ask, int n,
                   const double *value, bool missing, int yes, int no);
/* Room for the weights of all leaves, which are `absent` as yet. */
void forest_weights(Lower *L, Forest *f, int64_t ntarget, double absent);
/* The walk: a reduction over trees of the weights of the leaves that row r of x [rows, features]
 * comes to: [rows, ntarget] in f's type. `fail`s for nodes that lead to themselves. */
Tensor *forest_scores(Lower *L, Forest *f, ReduceKind how, Tensor *x);

#endif
