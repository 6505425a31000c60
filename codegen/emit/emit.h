/* emit.h: shared by the files of the emitter. */
#ifndef BRAID_EMIT_H
#define BRAID_EMIT_H

#include "codegen/compile.h"
#include "scheduler/cost/decide.h"
#include "scheduler/kernel/kernel.h"
#include "scheduler/kernel/packed.h"
#include "scheduler/plan/memory.h"
#include "scheduler/plan/onchip.h"

struct Emit;
struct Group;
struct Tree;
struct Captured;

/* A family of targets: the strings of its dialect, and how it prints what differs by more. */
typedef struct Target {
    const char *function;  /* qualifier of a group's function */
    const char *outlined;  /* the same when it must not become part of its caller */
    const char *recursive; /* qualifier of a recursive function */
    const char *kernel;    /* qualifier of a micro-kernel */
    const char *main;      /* and of the function that is all of the control flow */
    bool strict; /* its compiler takes for granted that signed integers do not overflow */
    void (*group[KERNEL_KINDS])(struct Group *g); /* NULL: it has no kernels of that kind */
    /* The functions that hang on call s, in front of the function around it. */
    struct Captured *(*recursion)(struct Tree *x, Stmt *s);
    /* A call of one of them out of another; NULL: as it is from outside. at, rows: the first row,
     * and how many, where a call of many rows is cut; NULL: it is not. */
    void (*call)(struct Tree *x, Stmt *s, const char *at, const char *rows);
    /* All is emitted: the texts. */
    void (*program)(struct Emit *em, Texts *to);
} Target;

/* The families (cpu/target.c, gpu/target.c, plain/target.c). */
extern const Target cpu_target, gpu_target, plain_target;

/* Text: whether this unit is of the cluster (`is`: ==) that begins with unit `first`, or not (!=).
 */
const char *unit_cluster(const struct Emit *em, int first, const char *is);
/* The kernel's text in phases, a launch each, where the program has statements at host level
 * (phases.c). */
typedef struct Phases {
    VEC(const char *)
    text;               /* of the phases that are complete; "" where the kernel has nothing to do */
    Sb products, sizes; /* the host's table, and what fills in the rest of it */
    Map *slots;         /* in which products' tensors lie */
    int n;              /* products */
} Phases;

typedef struct Emit {
    Program *p;
    Cx *c;
    Arena *a;
    const Target *target;
    Sb functions;      /* and types, in front of the kernel */
    Sb body;           /* the kernel's body */
    Sb weights;        /* constants as they are planned (scheduler/plan/weights.h) */
    Map *function_name; /* by text */
    Map *extern_files; /* texts of hand-written bodies already used */
    Map *const_name;   /* Const data pointer -> name of its array */
    const char **packed_name; /* by number */
    Sb consts;         /* declarations of constants */
    int nfunction, nturn;
    int *tensor_declared; /* by id */
    size_t frame_bytes;   /* a bound on the C stack of an activation of a recursive function */
    const char **resident_name; /* by number, NULL: it has not been named */
    Phases *phases;             /* NULL: there is one launch */
} Emit;

/* A unit is a block of threads. */
static inline bool emit_is_gpu(const Emit *em) { return device_is_gpu(em->p->schedule->device); }

/* Threads that compute together: their number in it, how many they are, prefix of their exchanges,
 * and among the teams of a block, how many of which there are. */
typedef struct Team {
    const char *self, *size, *exchange, *at, *all;
} Team;

/* ---- scalar code inside one function (emit_expr.c) ------------------------------------------- */
typedef struct Bound {
    Expr *e;
    const char *text;
} Bound;
typedef struct Fn {
    Emit *em;
    Cx *c;
    Arena *a;
    Sb *out;
    int indent, ntemp;
    VEC(Bound) bound; /* expressions already in a variable, innermost scope last */
    Map *uses;        /* expression id -> number of parents, of the bodies being emitted */
    bool jumps;       /* jumps may pass declarations: none initializes */
    const struct Team
        *team; /* reductions are shared by these threads, all of which are here; NULL: not shared */
    /* How the surroundings name things. */
    const char *(*tensor)(struct Fn *f, Tensor *t); /* pointer to its elements */
    const char *(*symbol)(struct Fn *f, Sym *s);
    const char *(*load)(struct Fn *f, Expr *e); /* NULL, or NULL result: an ordinary load */
    void *user;
} Fn;

const char *c_type(DType t);  /* of a value in a register: float16 is float */
const char *c_store(DType t); /* of an element in memory */
const char *c_const(Arena *a, const Expr *e);
void fn_line(Fn *f, const char *fmt, ...) PRINTF(2, 3);
void fn_count(Fn *f, Expr *e);       /* counts uses below e, before emitting it */
const char *fn_expr(Fn *f, Expr *e); /* C text of e; may write statements first */
const char *fn_temp(Fn *f, Expr *e); /* the same, always in a variable */
/* The call that records fault `site`, with what cond tells; to be written where cond is false. */
const char *fn_fault(Fn *f, int site, const Expr *cond);
/* Where the text is: how deep in braces, and which expressions have variables. */
typedef struct Scope {
    int indent, bound;
} Scope;
Scope fn_here(const Fn *f);
/* Writes a line that ends with an opening brace; what follows is inside. Returns where it stands. */
Scope fn_open(Fn *f, const char *fmt, ...) PRINTF(2, 3);
/* Closes one; it binds nothing, or a block around it is ended by fn_close. */
void fn_end(Fn *f);
/* Closes all braces that were opened since `to`, and forgets the variables inside. */
void fn_close(Fn *f, Scope to);
/* The same, but the last line is the given one, and what follows is inside of it. */
void fn_else(Fn *f, Scope to, const char *fmt, ...) PRINTF(3, 4);
void fn_bind(Fn *f, Expr *e, const char *text);
/* Gives variables to what does not depend on the axes `inner` and is evaluated in any case. */
void fn_hoist(Fn *f, Expr *e, int n, Axis *const *inner);
/* A guard below e that has no variable yet: loops around it cannot be lane loops. */
bool fn_guarded(Fn *f, const Expr *e);
/* The value that a reduction starts from, and the statement that takes x into its accumulator; not
 * ARG…. */
const char *fn_neutral(Fn *f, const Expr *reduce);
void fn_combine(Fn *f, const Expr *reduce, const char *acc, const char *x);
const char *fn_store(Fn *f, DType t, const char *value); /* value as it is stored */

/* ---- groups (emit_group.c, emit_loops.c, cpu/, gpu/) ------------------------------------------------------- */
/* A group while its function is written. */
typedef struct Group {
    Emit *em;
    Fn f;
    const Kernel *k;
    Sb body;
    VEC(Tensor *) arg_t;  /* tensors that the function takes, in order of use */
    VEC(Sym *) arg_s;
    bool turns; /* the function takes `turn`, how often this call was made before */
    bool meets; /* the function begins with a block barrier, for all */
    const char *(*reduce)(struct Group *g, Expr *e); /* sums that are computed already, or NULL */
} Group;

/* Emits the function of an S_OP group, or finds an equal one, and its call into the kernel;
 * variables of the call are declared in *decl. `block`: the threads of a block meet in front. */
void emit_group(Emit *em, Fn *kernel, Sb *decl, Stmt *s, bool block);
/* Stores every member at the current position of the axes; member i, whose value that is. */
void group_members(Group *g);
void group_store_member(Group *g, int i, Expr *value);
/* The same for lanes [from, to) of axis v behind v0. */
void group_members_by_lane(Group *g, Axis *v, const char *from, const char *to);
/* Begins the function, whose members are final: computes this unit's range [from, to) of the split
 * axis; without one, only unit 0 goes on. */
void group_range(Group *g);
/* Opens the loop over axis x, this unit's range of it where it is the split one. */
void group_loop(Group *g, Axis *x, const char *name);
/* Print a group by its kernel's kind. */
void group_loops(Group *g);
void group_contraction(Group *g);
void group_convolution(Group *g);
void group_winograd(Group *g);
void group_lanes(Group *g);
void group_dots(Group *g);
void group_threads(Group *g);

/* ---- constants on chip (gpu/resident.c) ------------------------------------------------------ */
/* The name of the pointer to the unit's part. */
const char *resident_name(Emit *em, const Resident *r);
/* Whether t stands for such a part, which may lie on chip. */
bool is_resident(const Emit *em, const Tensor *t);
/* Declares these pointers. After all groups. */
void residents_declare(Emit *em, Sb *to);
/* Fetches what of k's constants is to be under way. */
void emit_ahead(Fn *f, const Kernel *k);

/* ---- constants (emit_data.c) ----------------------------------------------------------------- */
/* Fills in and declares all that are planned. Before anything is named: */
void emit_weights(Emit *em);
const char *emit_const(Emit *em, const Tensor *t);
const char *emit_packed(const Emit *em, const Packed *p);
/* Writes the elements of p (emit_packed.c). */
void packed_fill(const Packed *p, void *data);
/* An array's name as an argument of the group's function, so that equal layers share it. */
const char *group_weights(Group *g, const char *name);
const char *emit_function(Emit *em, const char *stem, const char *qualifier, const char *params,
                          const char *body);
void extern_text(Emit *em, const char *file);            /* pastes codegen/extern/FILE.h once */
const char *emit_comment(Emit *em, const char *s);       /* harmless inside a comment */
const char *c_name(Arena *a, const char *name, int max); /* letters, digits, _ of an ONNX name */

/* ---- the program's texts (assemble.c) -------------------------------------------------------- */
/* Constants up to this many bytes in all are part of the text; beyond, a file that the assembler
 * includes; beyond WEIGHTS_MAPPED, a file beside the library that it maps. */
#if BRAID_TINY
#define WEIGHTS_INLINE 256
#else
#define WEIGHTS_INLINE 4096
#endif
void put_string(Sb *s, const char *text); /* as C has it */
/* A number of the surroundings' contract. */
void put_define(Sb *s, const char *name, long long value);
void put_embedded(Sb *s, const char *const *name); /* the last one NULL */
void put_weights(const Emit *em, Sb *out);
/* All functions, and the kernel behind them. */
void put_kernel(const Emit *em, Sb *text, const char *name);
/* Tables and numbers that the entry needs. */
void put_tables(Emit *em, Sb *text);
/* A program that is one unit of C. */
void put_unit(Emit *em, const char *const *preludes, const char *const *entry, Texts *to);

#endif
