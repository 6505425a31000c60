/* clone.h: copies of statements, with tensors, symbols and axes of their own.
 *
 * A Clone maps things of the original to their counterparts in the copy; whatever it does not map
 * is shared. It may be used for several pieces in turn: later pieces see the copies of earlier
 * ones. */
#ifndef BRAID_CLONE_H
#define BRAID_CLONE_H

#include "utask/utask.h"

typedef struct Clone Clone;
struct Clone {
    Cx *c;
    Map *tensor; /* id -> Tensor */
    Map *sym;    /* id -> Expr */
    Map *expr;   /* id -> Expr: expressions copied under the present mappings */
    Map *view;   /* id -> Tensor: views, likewise */
    void (*call)(Clone *k, const Stmt *s,
                 /* appends the copy of a call; NULL: there are no calls */
                 Seq *to);
    void *user;
};

Clone clone_new(Cx *c);
void clone_map_tensor(Clone *k, const Tensor *from, Tensor *to);
void clone_map_sym(Clone *k, const Sym *from, Expr *to);
/* Call this before copying a piece again: mappings may change, and expressions are copied anew. */
void clone_again(Clone *k);
/* NULL stays NULL. */
Expr *clone_expr(Clone *k, Expr *e);
Tensor *clone_tensor(Clone *k, Tensor *t);
/* Whether clone_seq can copy q: it holds only uniform values, checks, expressions of known rank,
 * branches and loops. Hand-written bodies cannot be copied, inner calls of recursions only if
 * `calls`. */
bool clone_can(const Seq *q, bool calls);
/* Appends copies of all statements of q to `to`. Requires clone_can(q). */
void clone_seq(Clone *k, const Seq *q, Seq *to);
/* The same for one statement; an inner call stays one. */
Stmt *clone_stmt(Clone *k, const Stmt *s, Seq *to);
/* A new symbol, or tensor, like the given one and in scope `at`. It is mapped, but nothing defines
 * it yet. */
Sym *clone_sym(Clone *k, const Sym *s, Seq *at);
Tensor *clone_like(Clone *k, const Tensor *t, Seq *at);

#endif
