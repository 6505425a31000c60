/* emit_tree.h: state of the walk over the tree. */
#ifndef BRAID_EMIT_TREE_H
#define BRAID_EMIT_TREE_H

#include "codegen/emit.h"
#include "codegen/extern/table.h"

typedef struct Loop {
    Stmt *s;
    struct Loop *up;
    const char *counter;
} Loop;

typedef struct Tree {
    Emit *em;
    Fn f;              /* writes em->body */
    Sb decl;           /* declarations at the top of the kernel */
    Loop *loop;        /* innermost */
    int next_id;
} Tree;

/* Writes the kernel's body: declarations and statements, outputs. */
void emit_tree(Emit *em);

#endif
