/* clone.h: copies of statements, with tensors, symbols and axes of their own.
 *
 * A Clone maps what stands in the original to what stands for it in the copy; what it does not map
 * is shared. It may be used for several pieces, one after the other: later ones see the copies of
 * earlier ones. */
#ifndef BRAID_CLONE_H
#define BRAID_CLONE_H

#include "utask/utask.h"

typedef struct Clone Clone;
struct Clone {
    Cx *c;
    Map *tensor; /* id -> Tensor */
    Map *sym;    /* id -> Expr */
    Map *expr;   /* id -> Expr: of what has been copied under the present mappings */
    Map *view;   /* id -> Tensor: the same of views */
    void (*call)(Clone *k, const Stmt *s,
                 Seq *to); /* appends what becomes of a call; NULL: there is none */
    void *user;
};

Clone clone_new(Cx *c);
void clone_map_tensor(Clone *k, const Tensor *from, Tensor *to);
void clone_map_sym(Clone *k, const Sym *from, Expr *to);
/* Needed before copying a piece again: mappings may change, and what was copied is copied anew. */
void clone_again(Clone *k);
/* NULL stays NULL. */
Expr *clone_expr(Clone *k, Expr *e);
Tensor *clone_tensor(Clone *k, Tensor *t);
/* Whether q holds only what clone_seq copies: uniform values, checks, expressions of known rank,
 * branches and loops; no hand-written bodies, and inner calls of recursions only if `calls`. */
bool clone_can(const Seq *q, bool calls);
/* Appends copies of all statements of q to `to`. Requires clone_can(q). */
void clone_seq(Clone *k, const Seq *q, Seq *to);
/* The same of one statement; an inner call stays one. */
Stmt *clone_stmt(Clone *k, const Stmt *s, Seq *to);
/* A symbol, a tensor like the given one, defined in `at`; both without definition, and mapped. */
Sym *clone_sym(Clone *k, const Sym *s, Seq *at);
Tensor *clone_like(Clone *k, const Tensor *t, Seq *at);

#endif
