/* braid_trees.h: trees and DAGs, from what programs have to the arrays that models over trees take.
 *
 * A braid_forest holds the nodes of all trees in one numbering. Every node has an ordered list of
 * children; where several nodes have the same child, the forest is a DAG. What is here and who owns
 * what follows braid.h, of which it takes the types alone. The functions are in libbraid; their one
 * file, api/forests.c, needs these headers and libc, so it can also be compiled into a program that
 * has only a compiled model. No function recurses, and all take linear time.
 *
 * Besides the statuses that a comment names, functions that make something return BRAID_MEMORY.
 */
#ifndef BRAID_TREES_H
#define BRAID_TREES_H

#include "braid.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A piece of a text that belongs to someone else; not NUL-terminated. text NULL: there is none. */
typedef struct braid_span {
    const char *text;
    int64_t length;
} braid_span;

/* The functions below make it, braid_forest_free frees it and its arrays. It is only read. */
typedef struct braid_forest {
    int64_t nodes, edges, trees;
    const int64_t *child_begin; /* nodes + 1: the children of node n are child[child_begin[n]] to */
    const int64_t *child;       /* before child[child_begin[n + 1]]; edges in all */
    const int64_t *roots;       /* trees: the root of each tree; of a DAG its sinks */
    const braid_span *word;     /* nodes, in the text of braid_forest_from_text; NULL: no text */
    const braid_span *label;    /* the same */
} braid_forest;

/* NULL is fine. */
BRAID_API void braid_forest_free(braid_forest *forest);

/* ---- to a forest -------------------------------------------------------------------------------
 * All of them return BRAID_INPUT when a node is outside [0, nodes), or needs itself (a cycle). */

/* By parent pointers, parent[nodes], -1 for a root. Children have the order of their numbers. */
BRAID_API braid_status braid_forest_from_parents(const int64_t *parent, int64_t nodes,
                                                 braid_forest **forest, braid_error *error);
/* By children in CSR form, as above. `roots` NULL: the nodes that are no node's child; `trees` is
 * then not looked at. */
BRAID_API braid_status braid_forest_from_children(const int64_t *child_begin, const int64_t *child,
                                                  int64_t nodes, const int64_t *roots,
                                                  int64_t trees, braid_forest **forest,
                                                  braid_error *error);
/* A DAG by its edges, edge[2 * edges], pairs u, v: v is computed from u, so that u is a child of v.
 * Children have the order of their edges. */
BRAID_API braid_status braid_forest_from_edges(const int64_t *edge, int64_t edges, int64_t nodes,
                                               braid_forest **forest, braid_error *error);
/* The DAG of a grid with edges to the right and down: node r * columns + c has the children above
 * and to the left of it, in this order. BRAID_INPUT: negative sizes. */
BRAID_API braid_status braid_forest_grid(int64_t rows, int64_t columns, braid_forest **forest,
                                         braid_error *error);
/* Trees by bracketed text of `length` bytes, "(3 (2 It) (4 works)) (2 Fine)": (label word),
 * (label child child ...) or (label word child ...). A token alone is the word of a leaf, the label
 * of an inner node. `labels` false: there are none, and leaves have no brackets, "((a cat)
 * sleeps)". Tokens end at brackets, ASCII spaces and ends of lines; words may contain other spaces.
 * Nodes are numbered in pre-order. `text` must outlive the forest, whose words and labels are parts
 * of it. BRAID_INPUT: brackets or tokens that do not fit, with line and column (in bytes, from 1).
 */
BRAID_API braid_status braid_forest_from_text(const char *text, size_t length, bool labels,
                                              braid_forest **forest, braid_error *error);
/* `count` forests as one, in their order: the nodes of a part are moved by the nodes of all parts
 * before it. The parts stay the caller's. */
BRAID_API braid_status braid_forest_concatenate(const braid_forest *const *parts, int64_t count,
                                                braid_forest **forest, braid_error *error);

/* ---- from a forest: into the caller's arrays, written only on BRAID_OK ----------------------- */

/* left[nodes] and right[nodes], 0 of a leaf, and is_leaf[nodes]. BRAID_INPUT: a node has another
 * number of children than none or two. */
BRAID_API braid_status braid_forest_binary(const braid_forest *forest, int64_t *left,
                                           int64_t *right, bool *is_leaf, braid_error *error);
/* parent[nodes], -1 of a root. BRAID_INPUT: a node has several parents. */
BRAID_API braid_status braid_forest_parents(const braid_forest *forest, int64_t *parent,
                                            braid_error *error);
/* The nodes by height (of a leaf 0, else one more than the highest child's), for batches by hand:
 * those of height k are order[batch_begin[k]] to before order[batch_begin[k + 1]], by their
 * numbers. order[nodes]; batch_begin needs room for nodes + 1, levels + 1 are written. */
BRAID_API braid_status braid_forest_levels(const braid_forest *forest, int64_t *order,
                                           int64_t *batch_begin, int64_t *levels,
                                           braid_error *error);

#ifdef __cplusplus
}
#endif

#endif
