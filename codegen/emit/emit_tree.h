/* emit_tree.h: state of the walk over the tree. */
#ifndef BRAID_EMIT_TREE_H
#define BRAID_EMIT_TREE_H

#include "codegen/emit/emit.h"
#include "utask/extern.h"

typedef struct Loop {
    struct Loop *up;
    const char *counter;
} Loop;

/* What the functions of one recursion take from outside: filled in once, where the recursion
 * starts. */
typedef struct Captured {
    int id;
    VEC(Tensor *) t;
    VEC(Sym *) s;
} Captured;

/* A variable of the kernel or of a function, declared at its top. */
typedef struct Var {
    const char *type, *name, *init;
} Var;

/* The kernel, or a recursive function. */
typedef struct Tree {
    Emit *em;
    Fn f; /* writes em->body */
    VEC(Var) var;
    Sb decl;          /* further declarations behind them */
    Loop *loop;       /* innermost */
    const Func *func; /* NULL: the kernel */
    Captured *captured;
    struct Stack *
        stack; /* of the recursion whose functions are one, with labels (gpu/recursion.c); else NULL */
    Level level;       /* of the units that share what is here (stmt_apart) */
    const char *leave; /* where they go when they cannot go on; NULL: they return */
    int next_id;
} Tree;

/* Declares a variable; `init` is evaluated at the top of the kernel, or where an activation begins.
 */
void tree_var(Tree *x, const char *type, const char *name, const char *init);
void tree_print_vars(const Tree *x, Sb *s);
/* A value that is computed here and used to the end of the scope. */
void tree_local(Tree *x, const char *type, const char *name, const char *value);

/* A call, and in front of the function around it the functions that hang on it (emit_call.c). */
void emit_call(Tree *x, Stmt *s);
/* Statement *at, a call, and those beside it, each run by a unit alone (stmt_split). */
void emit_split(Tree *x, const Seq *q, int *at);
/* Parts of it (emit_call.c), for Target.recursion. */
const char *call_name(Tree *x, const Func *g);
void call_captured(Tree *x, const Captured *c, Sb *s,
                   bool declare); /* declares in a function, or gives, what is captured */
void call_captured_type(Tree *x, const Captured *c, Sb *s);
const char *call_row_offset(Tree *x, const char *at, const Tensor *t);
/* Where a function's result is, or where the function says where it is. */
const char *call_result(Tree *x, const Func *g, int i);
/* Target.recursion: as functions of C (cpu/recursion.c), and as one function, where there is no stack
 * of the machine's (gpu/recursion.c); Target.call for the latter. */
Captured *emit_functions(Tree *x, Stmt *s);
Captured *emit_stack(Tree *x, Stmt *s);
void emit_jump(Tree *x, Stmt *s, const char *at, const char *rows);
/* Statement *at and those beside it, each run by a unit as a team of one, or by a cluster; then all
 * meet (emit_apart.c). */
void emit_apart(Tree *x, const Seq *q, int *at);
void emit_seq(Tree *x, Seq *q);
void emit_stmt(Tree *x, Stmt *s);
/* A barrier of the units that share what is here. */
void tree_barrier(Tree *x);
/* The statement that ends the run, or what fewer than all units do, with status `code`. */
const char *tree_stop(const Tree *x, const char *code);
/* The same where there is no memory for what the node at `path` makes. */
const char *tree_want(const Tree *x, const char *path);
const char *want_else(const Tree *x, const char *path, const char *stop); /* the end being `stop` */
/* Uniform expressions as text; the variables of tensors and symbols. */
const char *tree_expr(Tree *x, Expr *e);
const char *tree_tensor(Fn *f, Tensor *t);
const char *tree_symbol(Fn *f, Sym *s);
const char *tree_pointer_type(Tree *x, DType t);
void tree_declare(Tree *x, Tensor *t, const char *init);
void tree_declare_symbol(Tree *x, Sym *s);
/* Storage (emit_place.c): its size, and making t's pointer valid where t is defined. A carried or
 * scanned value is defined directly in the body of its loop, the innermost one here. */
const char *tree_bytes(Tree *x, Tensor *t);
void tree_place(Tree *x, Tensor *t, const char *bytes);
/* The same of arena memory that is taken while the program runs; behind "bk_claim" or
 * "bk_claim_each": the context and what may be taken. */
void tree_take(Tree *x, const char *path, const char *name, const char *type, const char *bytes);
const char *tree_arena(const Tree *x);
/* Where memory that is planned begins. */
const char *tree_base(const Tree *x, const Mem *m);
/* Takes a growing value's buffer when its loop begins, and puts the initial value there; after the
 * loop the value is dense. */
void tree_grow_begin(Tree *x, const Stmt *s, const LoopCarry *c);
void tree_grow_end(Tree *x, const Tensor *phi);
/* With recursion, the arena's top may be above what is in use, for another unit may still be using
 * what a call took; never after a barrier. `low` is the end of what this activation uses. */
bool tree_recursive(const Tree *x);
Fn tree_fn(Tree *x, Sb *out);
/* A variable's value to a word of `shared`, number ++*n, by one thread of unit 0; and from there.
 */
void tree_write_shared(Tree *x, const char *type, const char *name, int *n);
void tree_read_shared(Tree *x, const char *type, const char *name, int *n);

/* ---- phases (gpu/phases.c) ---- */
/* Before the program's statements: whether there are several launches. */
void phases_begin(Tree *x);
/* s, at host level: ends a phase, is one, and begins another. */
void phases_product(Tree *x, Stmt *s);
/* All of the text; `last` is that of the last phase. */
const char *phases_join(Tree *x, const char *last);

/* Writes the kernel's body: declarations and statements, outputs. */
void emit_body(Emit *em);

#endif
