/* emit_tree.h: state of the walk over the tree. */
#ifndef BRAID_EMIT_TREE_H
#define BRAID_EMIT_TREE_H

#include "codegen/emit.h"
#include "codegen/extern/table.h"

typedef struct Loop {
    struct Loop *up;
    const char *counter;
} Loop;

/* What the functions of one recursion take from outside: filled in once, where the recursion starts. */
typedef struct Captured {
    int id;
    VEC(Tensor *) t;
    VEC(Sym *) s;
} Captured;

/* The kernel, or a recursive function. */
typedef struct Tree {
    Emit *em;
    Fn f;              /* writes em->body */
    Sb decl;           /* declarations at the top of the kernel */
    Loop *loop;        /* innermost */
    const Func *func;  /* NULL: the kernel */
    Captured *captured;
    const char *leave; /* where unit 0 goes that runs a construct alone and cannot go on; NULL: it returns */
    int next_id;
} Tree;

/* A call, and in front of the function around it the functions that hang on it (emit_call.c). */
void emit_call(Tree *x, Stmt *s);
void emit_seq(Tree *x, Seq *q);
/* Uniform expressions as text; storage: its size, its variable, and making it valid where t is defined. */
const char *tree_expr(Tree *x, Expr *e);
const char *tree_bytes(Tree *x, Tensor *t);
void tree_declare(Tree *x, Tensor *t, const char *init);
void tree_declare_symbol(Tree *x, Sym *s);
void tree_place(Tree *x, Tensor *t, const char *bytes);
Fn tree_fn(Tree *x, Sb *out);

/* Writes the kernel's body: declarations and statements, outputs. */
void emit_tree(Emit *em);

#endif
