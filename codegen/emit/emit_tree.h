/* emit_tree.h: the state of the walk over the tree, and the functions that print it. */
#ifndef BRAID_EMIT_TREE_H
#define BRAID_EMIT_TREE_H

#include "codegen/emit/emit.h"
#include "utask/extern.h"

typedef struct Loop {
    struct Loop *up;
    const char *counter;
    const Stmt *s;
} Loop;

/* What the functions of one recursion use from outside. A struct holds it at run time; the code
 * that starts the recursion fills it. */
typedef struct Captured {
    int id;
    VEC(Tensor *) t;
    VEC(Sym *) s;
} Captured;

/* A variable that is declared at the top of the kernel or of a function. */
typedef struct Var {
    const char *type, *name, *init;
} Var;

/* The kernel, or a recursive function. */
typedef struct Tree {
    Emit *em;
    Fn f; /* writes em->body */
    VEC(Var) var;
    Sb decl;          /* more declarations, after var */
    Loop *loop;       /* innermost */
    const Func *func; /* NULL: the kernel */
    Captured *captured;
    struct Stack *stack; /* the simulated one (gpu/recursion.c), or NULL */
    Level level;         /* which units run this code together (stmt_apart) */
    const char *leave;   /* label to jump to on an error; NULL: return */
    const char *team; /* names of the unit and the team's size where `unit` is a part's; or NULL */
    int next_id;
} Tree;

/* Declares a variable; `init` is evaluated at the top of the kernel or of each activation. */
void tree_var(Tree *x, const char *type, const char *name, const char *init);
void tree_print_vars(const Tree *x, Sb *s);
/* A variable for a value that is computed here and used until the scope ends. */
void tree_local(Tree *x, const char *type, const char *name, const char *value);

/* A loop with the time inside of one function, whose carried values and scan outputs have their
 * storage (gpu/within.c). */
void emit_within(Tree *x, Stmt *s, int id);

/* A call. If it starts a recursion, also the functions of it (emit_call.c). */
void emit_call(Tree *x, Stmt *s);
/* Statement *at, a call, and the calls beside it, each run by one unit (stmt_split). */
void emit_split(Tree *x, const Seq *q, int *at);
/* Parts of calls, for Target.recursion. */
const char *call_name(Tree *x, const Func *g);
/* What is captured: declarations in a function, or the values where a recursion starts. */
void call_captured(Tree *x, const Captured *c, Sb *s, bool declare);
void call_captured_type(Tree *x, const Captured *c, Sb *s);
/* " + offset" of row `at` of t; "" if at is NULL. */
const char *call_row_offset(Tree *x, const char *at, const Tensor *t);
/* Parameter of result i of g: its storage, or where g writes the pointer to it (Func.room). */
const char *call_result(Tree *x, const Func *g, int i);
/* Target.recursion: as C functions (cpu/recursion.c), or as one function with a simulated stack
 * (gpu/recursion.c), for which emit_jump is Target.call. */
Captured *emit_functions(Tree *x, Stmt *s);
Captured *emit_stack(Tree *x, Stmt *s);
void emit_jump(Tree *x, Stmt *s, const char *at, const char *rows);
/* Groups from number *at of q on that run side by side (scheduler/plan/beside.h). */
void emit_beside(Tree *x, const Seq *q, int *at);
/* Text of a uniform value, which may be the call of a function, called after `name`
 * (gpu/uniform.c). */
const char *emit_uniform(Tree *x, const char *name, Expr *e);
/* Statement *at and those beside it, each run by one unit or one cluster; then a barrier
 * (emit_apart.c). */
void emit_apart(Tree *x, const Seq *q, int *at);
void emit_seq(Tree *x, Seq *q);
void emit_stmt(Tree *x, Stmt *s);
/* A barrier of the units that run this code together; `place` names it (scheduler/plan/probes.h).
 */
void tree_barrier(Tree *x, const void *place);
/* The statement that leaves this code with status `code`. */
const char *tree_stop(const Tree *x, const char *code);
/* The same if memory for the node at `path` is lacking; want_else: `stop` is the statement. */
const char *tree_want(const Tree *x, const char *path);
const char *want_else(const Tree *x, const char *path, const char *stop);
/* Text of uniform expressions; variables of tensors and symbols. */
const char *tree_expr(Tree *x, Expr *e);
const char *tree_tensor(Fn *f, Tensor *t);
const char *tree_symbol(Fn *f, Sym *s);
const char *tree_pointer_type(Tree *x, DType t);
void tree_declare(Tree *x, Tensor *t, const char *init);
void tree_declare_symbol(Tree *x, Sym *s);
/* Storage (emit_place.c): its size in bytes; the code that sets t's pointer where t is defined.
 * Carried values and scan outputs are defined directly in the body of the innermost loop. */
const char *tree_bytes(Tree *x, Tensor *t);
void tree_place(Tree *x, Tensor *t, const char *bytes);
/* Takes arena memory at run time. tree_arena: the first arguments of bk_claim and bk_claim_each,
 * after the function's name. */
void tree_take(Tree *x, const char *path, const char *name, const char *type, const char *bytes);
const char *tree_arena(const Tree *x);
/* Base address of planned memory. */
const char *tree_base(const Tree *x, const Mem *m);
/* The pointer to a tensor at m (M_STATIC): there, or in the caller's memory. */
const char *tree_static(const Tree *x, const Mem *m, const char *type);
/* Before the loop: takes a growing value's buffer and copies the initial value there. After it:
 * makes c->phi dense. */
void tree_grow_begin(Tree *x, const Stmt *s, const LoopCarry *c);
void tree_grow_end(Tree *x, const LoopCarry *c);
/* Whether the program has recursion. Then `low` is the end of what this activation uses; `top` may
 * be higher until the next barrier, since another unit may still use what a call took. */
bool tree_recursive(const Tree *x);
Fn tree_fn(Tree *x, Sb *out);
/* One thread of unit 0 writes a variable to word ++*n of `shared`; every unit reads it back. */
void tree_write_shared(Tree *x, const char *type, const char *name, int *n);
void tree_read_shared(Tree *x, const char *type, const char *name, int *n);

/* A linearizer (emit_linearize.c). */
void emit_linearize(Tree *x, Stmt *s);
/* The host's text of those that it runs (Program.ahead); of others, nothing. */
void put_plans(Emit *em, Sb *host);

/* ---- measuring (emit_probe.c) ---- */
/* Around what stands at `place` (scheduler/plan/probes.h): both in the scope of one Seq. */
void probe_begin(Tree *x, const void *place);
void probe_end(Tree *x, const void *place);
void probe_seq_begin(Tree *x, const Seq *q); /* at the beginning of an arm or a function */
/* At the beginning of an activation at this depth. */
void probe_activation(Tree *x, const void *place, const char *depth);
/* Before a loop, at the beginning of its body, and after it. */
void probe_loop_begin(Tree *x, const Stmt *s);
void probe_loop_body(Tree *x, const Stmt *s, const char *counter);
void probe_loop_end(Tree *x, const Stmt *s, const char *counter);

/* ---- phases (gpu/phases.c) ---- */
/* Call it before the program's statements; without statements at host level it does nothing. */
void phases_begin(Tree *x);
/* s, at host level, ends the phase before it, is a phase of its own, and begins the next. */
void phases_product(Tree *x, Stmt *s);
/* The text of all phases; `last`: text of the last one. */
const char *phases_join(Tree *x, const char *last);

/* Writes the kernel's body: declarations, statements, outputs. */
void emit_body(Emit *em);

#endif
