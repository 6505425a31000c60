/* rows.h: statements of one activation rewritten for many of them at once.
 *
 * Symbols become vectors and tensors get one more leading axis, the row. batch.c does so for the
 * activations of a depth, linearize.c for the nodes of a height. */
#ifndef BRAID_ROWS_H
#define BRAID_ROWS_H

#include "utask/utask.h"

/* A list of activations: all of a call or of a class, those of an enclosing list that take one arm
 * or have one height. */
typedef struct List {
    struct List *up;
    Expr *n;
    /* row r of this list is row[r + from] of the enclosing list, or r + from if there is no row[]
     */
    Tensor *row;
    Expr *from;
    Expr *known; /* the row of the enclosing list where it is known already */
    int id;
} List;

typedef struct Rows Rows;

/* A value that each activation of a list has. */
typedef struct Def {
    List *list; /* NULL: not seen yet */
    Tensor *t;  /* row r is at index r + from */
    Expr *from;
    Expr *e; /* for a symbol, instead of t: an expression over values visible in the list */
    /* NULL, or gives, instead of that, the value of a symbol in row r, or the index of a tensor */
    Expr *(*find)(Rows *b, const struct Def *d, Expr *r);
    const void *user; /* for find */
    bool same;        /* t has no rows: all have the same value */
} Def;

struct Rows {
    Program *p;
    Cx *c;
    Arena *a;
    Seq *seq;          /* where new statements go */
    Def *sym, *tensor; /* by id, of the old body, whose ids are below: */
    int nsym, ntensor;
    int nlist;
    Map *gathered; /* copies that are made already: a new map for each old body */
};

/* Whether the lengths of all reductions in e are known in `from`. */
bool rows_extents_visible(Arena *a, const Expr *e, const Seq *from);
/* Row r of list `at` as a row of list `in`, which is the same list or encloses it. */
Expr *rows_row_in(Rows *b, const List *at, Expr *r, const List *in);
/* e, of statement s of the old body, for row `row` of a list. */
Expr *rows_lift(Rows *b, List *at, Expr *row, const Stmt *s, Expr *e);
/* The Def of a tensor of the old body; NULL for any other tensor. */
Def *rows_def(Rows *b, Tensor *t);
void rows_append(Rows *b, Stmt *s);
/* A vector over rows. */
Tensor *rows_vector(Rows *b, DType t, Expr *n, const char *name);
/* One like t for n rows: dimension 0 is the row, the others are those of t from number `first` on.
 */
Tensor *rows_of(Rows *b, TensorKind k, const Tensor *t, int first, Expr *n, Seq *q);
/* t's element at the position of x, but for its row. */
Expr *rows_load_rest(Rows *b, Tensor *t, const Tensor *x);
/* Appends the group that computes x. */
void rows_compute(Rows *b, Tensor *x, Expr *body, const char *path);
/* Statement s, an OP of one tensor, for all rows; returns the tensor. */
Tensor *rows_op(Rows *b, const Stmt *s, List *at);
/* Statement s, a CHECK, for all rows. */
void rows_check(Rows *b, const Stmt *s, List *at);

typedef struct RowsCost {
    double one_ns, saved_ns; /* of an activation alone; less for each of several */
} RowsCost;
/* For `rows` activations of f that run at once, and so read what they share once. */
RowsCost rows_cost(const Program *p, const Func *f, int rows);

#endif
