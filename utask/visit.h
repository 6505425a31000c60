/* visit.h: what statements use and define, for passes that move them. */
#ifndef BRAID_VISIT_H
#define BRAID_VISIT_H

#include "utask/utask.h"

/* A walk. Each tensor and each symbol is reported once in the lifetime of the walk; a view with its
 * base. */
typedef struct Visit {
    Cx *c;
    Map *seen;
    const Seq *skip; /* this Seq is not looked into */
    void (*tensor)(void *user, Tensor *t);
    void (*sym)(void *user, Sym *s);
    void *user;
} Visit;

Visit visit_new(Cx *c, void (*tensor)(void *, Tensor *), void (*sym)(void *, Sym *), void *user);
void visit_expr(Visit *u, const Expr *e);
void visit_tensor(Visit *u, Tensor *t);
/* All that s uses or defines, inner statements included. */
void visit_stmt(Visit *u, const Stmt *s);
void visit_seq(Visit *u, const Seq *q);

/* Calls f for the Seqs directly below s. */
void stmt_seqs(const Stmt *s, void (*f)(void *user, Seq *q), void *user);
/* Calls f for each expression of s with loads, so that it can be replaced; inner statements
 * included. */
void stmt_load_exprs(Stmt *s, void (*f)(void *user, Expr **e), void *user);
/* What is visible behind s: the tensors and symbols that it defines in its own Seq. */
void stmt_defines(const Stmt *s, void (*tensor)(void *, Tensor *), void (*sym)(void *, Sym *),
                  void *user);
/* s, with all that it uses or defines of Seq `from`, belongs to `to` from now on. */
void stmt_move(Cx *c, const Stmt *s, const Seq *from, Seq *to);
/* Whether `reader` uses a tensor or a symbol that `maker` defines for what follows it. */
bool stmt_uses(Cx *c, const Stmt *reader, const Stmt *maker);

#endif
