/* emit.h: what the files of the emitter share. */
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

typedef struct Estimate { /* of a run of the function, by the cost model */
    const char *function;
    double ns;
} Estimate;

/* A family of targets: the strings of its dialect, and functions for what strings cannot say. */
typedef struct Target {
    const char *function;  /* qualifier of a group's function */
    const char *outlined;  /* the same, if it must not be inlined */
    const char *apart;     /* the same, compiled beside the kernel; NULL: there is one text */
    const char *recursive; /* qualifier of a recursive function */
    const char *kernel;    /* qualifier of a micro-kernel */
    const char *inside;    /* qualifiers of a function that one thread runs */
    const char *main;      /* qualifier of the function that holds the control flow */
    bool strict;           /* its compiler assumes that signed integers do not overflow */
    void (*group[KERNEL_KINDS])(struct Group *g); /* NULL: it has no kernels of that kind */
    /* Emits the functions that call s starts, before the function that contains s. */
    struct Captured *(*recursion)(struct Tree *x, Stmt *s);
    /* Emits a call of one of them from another; NULL: the same text as from outside. at, rows: the
     * first row and the number of rows, if the call is cut into several; else NULL. */
    void (*call)(struct Tree *x, Stmt *s, const char *at, const char *rows);
    /* Joins what was emitted into the texts. */
    void (*program)(struct Emit *em, Texts *to);
} Target;

/* The families (cpu/target.c, gpu/target.c, plain/target.c). */
extern const Target cpu_target, gpu_target, plain_target;

/* Text: this unit belongs (`is`: "==") or does not belong ("!=") to the cluster of unit `first`. */
const char *unit_cluster(const struct Emit *em, int first, const char *is);
/* The kernel's text in phases, each a launch, if the program has statements at host level
 * (gpu/phases.c). */
typedef struct Phases {
    VEC(const char *) text; /* of complete phases; "": the kernel has nothing to do */
    Sb products, sizes;     /* the host's table; the assignments that complete it before a run */
    Map *slots;             /* the slots that hold tensors of products */
    int n;                  /* products */
} Phases;

/* A function of the text for a GPU: its parts, and where it is in Emit.functions. */
typedef struct TextFunction {
    const char *name, *qualifier, *params, *body;
    size_t at, bytes;
} TextFunction;

typedef struct Emit {
    Program *p;
    Cx *c;
    Arena *a;
    const Target *target;
    Sb bodies;  /* hand-written ones; they precede all functions */
    Sb helpers; /* texts that kernels of some kinds use */
    Sb kernels; /* prototypes of micro-kernels, and of groups that stand apart */
    Sb prototypes;
    Sb functions;               /* and types; they precede the kernel */
    VEC(TextFunction) function; /* of a GPU, the groups' of them */
    VEC(const char *) apart;    /* functions that are compiled beside the kernel */
    Sb body;                    /* the kernel's body */
    Sb *weights; /* of the Texts: the constants' bytes, as planned (scheduler/plan/weights.h) */
    Map *function_name;       /* by text */
    Map *extern_files;        /* hand-written bodies that are pasted already */
    Map *const_name;          /* Const data pointer -> name of its array */
    const char **packed_name; /* by number */
    Sb consts;                /* declarations of constants */
    int nfunction, nturn;
    Map *own;         /* numbers of parts of which the kernel knows those of its unit */
    bool other_units; /* `unit` is not the kernel's: it is one of some, or is alone */
    /* Texts of the positions of its strip that a group computes (Stmt.op.strip); NULL: all. */
    const char *strip_from, *strip_to;
    int *tensor_declared; /* by id */
    size_t frame_bytes;   /* upper bound on the C stack of one activation of a recursive function */
    const char **resident_name; /* by number; NULL: not named yet */
    VEC(Estimate) estimates;    /* of the groups, in the order of the text */
    Phases *phases;             /* NULL: there is one launch */
    Sb plan_functions, plans;   /* for the host: linearizers that it runs, and their table */
    int nplan;
    VEC(int) linearized; /* the slots of those that the kernel runs */
} Emit;

/* A unit is a block of threads. */
static inline bool emit_is_gpu(const Emit *em) { return device_is_gpu(em->p->schedule->device); }

/* Threads that compute together, as texts: a thread's number in its team, the size of a team, the
 * prefix of the functions that exchange values, the team's number in its block, the number of teams
 * in a block. */
typedef struct Team {
    const char *self, *size, *exchange, *at, *all;
} Team;

/* The threads that compute a group on a GPU, as texts: a thread's number among them, how many they
 * are, the barrier of all of them, a warp's number among their warps, how many warps they are, and
 * where their part of the block's memory begins. */
typedef struct Crew {
    const char *self, *size, *meet, *warp, *warps, *room;
} Crew;

/* ---- scalar code inside one function (emit_expr.c) ------------------------------------------- */
typedef struct Bound {
    Expr *e;
    const char *text;
} Bound;
typedef struct Late {
    const Tensor *t;
    int depth; /* of elementary functions, one behind the other */
} Late;
typedef struct Fn {
    Emit *em;
    Cx *c;
    Arena *a;
    Sb *out;
    int indent, ntemp;
    VEC(Bound) bound; /* expressions already in a variable, innermost scope last */
    Map *uses;        /* expression id -> number of parents in the bodies being emitted */
    bool jumps;       /* jumps may skip declarations: declarations must not initialize */
    const Team *team; /* all its threads run this, and share each reduction; NULL: not shared */
    /* How the surrounding code names things. */
    const char *(*tensor)(struct Fn *f, Tensor *t); /* pointer to its elements */
    /* The same for elements around position *flat; *flat: the position from there. NULL: as above.
     */
    const char *(*around)(struct Fn *f, Tensor *t, Expr **flat);
    const char *(*symbol)(struct Fn *f, Sym *s);
    const char *(*load)(struct Fn *f, Expr *e); /* NULL, or a NULL result: an ordinary load */
    /* Whether t's element at the position at hand is in a variable already; NULL: none is. */
    bool (*own)(const struct Fn *f, const Tensor *t);
    VEC(Late) late; /* members that come from elementary functions */
    void *user;
} Fn;

const char *c_type(DType t);  /* of a value in a register: float16 is float */
const char *c_store(DType t); /* of an element in memory */
void fn_line(Fn *f, const char *fmt, ...) PRINTF(2, 3);
void fn_count(Fn *f, Expr *e);       /* counts uses below e, before emitting it */
const char *fn_expr(Fn *f, Expr *e); /* C text of e; may write statements first */
/* The same where no variable lives beyond a statement. */
const char *fn_uniform(Fn *f, Expr *e);
const char *fn_temp(Fn *f, Expr *e); /* the same, always a variable, unless constant */
/* The pointer to element *flat of t is the result plus *flat, which may change. */
const char *fn_around(Fn *f, Tensor *t, Expr **flat);
/* The text of a load's place. */
const char *fn_at(Fn *f, Expr *flat);
/* The call that records fault `site`, with the values that cond tells; for where cond is false. */
const char *fn_fault(Fn *f, int site, const Expr *cond);
/* A position in the text: depth of braces, and how many expressions have variables. */
typedef struct Scope {
    int indent, bound;
} Scope;
Scope fn_here(const Fn *f);
/* Writes a line that ends with an opening brace. Returns the position before it. */
Scope fn_open(Fn *f, const char *fmt, ...) PRINTF(2, 3);
/* Closes one brace and keeps its bindings: for blocks that bind nothing, or inside an fn_close. */
void fn_end(Fn *f);
/* Closes all braces opened since `to` and drops the bindings made inside. */
void fn_close(Fn *f, Scope to);
/* The same, but the last line is the given one ("} else {"), which opens a brace again. */
void fn_else(Fn *f, Scope to, const char *fmt, ...) PRINTF(3, 4);
void fn_bind(Fn *f, Expr *e, const char *text);
const char *fn_bound(Fn *f, const Expr *e); /* the text that e is bound to, or NULL */
/* Hoists: puts into variables what does not depend on the axes `inner` and is always evaluated. */
void fn_hoist(Fn *f, Expr *e, int n, Axis *const *inner);
/* Puts into variables what is below the arms of a choice and need not be, on processors with
 * vectors. */
void fn_ahead(Fn *f, Expr *select);
/* Whether e contains a guard that has no variable yet: a loop around it cannot be vectorized. */
bool fn_guarded(Fn *f, Expr *e);
/* Whether e loads an element that is there, whatever conditions around it say. */
bool fn_always_there(const Expr *e);
/* The value that a reduction starts from, and the statement that adds x to its accumulator. Not for
 * ARGMIN and ARGMAX. */
const char *fn_neutral(Fn *f, const Expr *reduce);
void fn_combine(Fn *f, const Expr *reduce, const char *acc, const char *x);
/* Of the cast of a float32 value that is limited to what a small integer has: the value in int32;
 * NULL: e is none. */
const char *fn_clipped(Fn *f, const Expr *e);
/* Loads of t from now on have this value: it may come from elementary functions. */
void fn_computed(Fn *f, const Tensor *t, const Expr *value);
const char *fn_store(Fn *f, DType t, const char *value); /* the bits that memory holds */
const char *fn_loaded(Fn *f, DType t, const char *bits); /* the value that they stand for */

/* ---- groups (emit_group.c, emit_loops.c, cpu/, gpu/) ----------------------------------------- */
/* A tensor that a function takes: the pointer to one of its elements. */
typedef struct GroupArg {
    Tensor *t;
    int64_t
        first; /* the element: equal groups that read other parts of a tensor share a function */
} GroupArg;
/* A group while its function is written. */
typedef struct Group {
    Emit *em;
    Fn f;
    const Kernel *k;
    Crew crew;
    Sb body;
    VEC(GroupArg) arg_t; /* what the function takes, in order of first use */
    VEC(Sym *) arg_s;
    VEC(Expr *) arg_e;    /* conditions that the caller computes */
    double ns;            /* of a run, by the cost model; 0: its statement's */
    int parts;            /* > 0: so many are shared, and the function takes which this unit has */
    bool turns;           /* the function takes `turn`: how often this call ran before */
    bool meets;           /* the function begins with a block barrier */
    const bool *unstored; /* by member: it is not stored, and no parameter; NULL: all are */
    /* Text of a sum that is computed already, or NULL. */
    const char *(*reduce)(struct Group *g, Expr *e);
    /* The same of a load. */
    const char *(*loaded)(struct Group *g, Expr *e);
} Group;

/* Emits the function of an S_OP group, unless an equal one exists, and its call in `kernel`;
 * *decl gets the variables that the call needs. `block`: a block barrier precedes the call. */
void emit_group(Emit *em, Fn *kernel, Sb *decl, Stmt *s, bool block);
/* The same in parts, for what is more than one group: begins the function, of a kernel; ends it and
 * prints its call, with more parameters (", int64_t x") and arguments. */
void group_begin(Group *g, Emit *em, const Kernel *k);
void group_end(Group *g, Fn *kernel, Sb *decl, const char *more, const char *more_args);
/* Binds the first n axes at the unit's position number `at`, of this type (gpu/threads.c). */
void group_place(Group *g, int n, const char *type, const char *at);
/* Stores every member, or `value` as member i, at the current position of the axes. */
void group_members(Group *g);
void group_store_member(Group *g, int i, Expr *value);
void group_store_at(Group *g, int i, Expr *value, Expr *position);
/* The same in a loop over lanes [from, to) of axis v, counted from v0; by vectors if `simd` and no
 * member has a guard. */
void group_members_by_lane(Group *g, Axis *v, const char *from, const char *to, bool simd);
/* Opens the loop over tiles of this unit's range of axis v: v0 is the first of its `lanes`. A
 * single one has constant length, for which compilers find vectors of several sizes. */
void group_lane_tiles(Group *g, Axis *v, int tile);
/* Text of this unit's range of axis x: all of it, unless x is the split axis. */
const char *group_from(const Group *g, const Axis *x);
const char *group_to(Group *g, const Axis *x);
/* Text of the number of positions in this unit's ranges of n axes. */
const char *group_count(Group *g, int n, Axis *const *axis);
/* Whether the number of positions along n axes is known to fit 32 bits. */
bool count_is_small(int n, Axis *const *axis);
/* Begins the function: computes this unit's range [from, to) of the split axis. Without a split
 * axis only unit 0 continues. */
void group_range(Group *g);
/* Fills what of the frame around a group's values is in the unit's range [whole_from, whole_to),
 * and computes that of the values. */
void group_frame(Group *g);
/* Opens the loop over this unit's range of axis x. */
void group_loop(Group *g, Axis *x, const char *name);
/* Printers, one for each kind of kernel. */
void group_loops(Group *g);
void group_contraction(Group *g);
void group_convolution(Group *g);
void group_winograd(Group *g);
void group_sparse(Group *g);
void group_integer(Group *g);
void group_depthwise(Group *g);
void group_attention(Group *g);
void group_lanes(Group *g);
void group_planes(Group *g);
void group_sliding(Group *g);
void group_halves(Group *g);
void group_transpose(Group *g);
void group_dots(Group *g);
void group_threads(Group *g);

/* ---- who computes a group (gpu/crew.c) -------------------------------------------------------
 */
/* Those who compute a group of kernel k. */
Crew crew_of(Emit *em, const Kernel *k);

/* ---- constants on chip (gpu/resident.c) ------------------------------------------------------ */
/* Name of the pointer to the unit's part of r. */
const char *resident_name(Emit *em, const Resident *r);
/* Whether t stands for such a part: then it may be in on-chip memory. */
bool is_resident(const Emit *em, const Tensor *t);
/* The address of the input with that number. */
const char *input_name(Emit *em, int input);
/* Declares these pointers. Call it after all groups are emitted. */
void residents_declare(Emit *em, Sb *to);
/* Prefetches the constants of k that are planned to be. */
void emit_ahead(Fn *f, const Kernel *k);

/* ---- constants (emit_data.c) ----------------------------------------------------------------- */
/* Declares and fills all planned constants. Must precede the functions below. */
void emit_weights(Emit *em);
const char *emit_const(Emit *em, const Tensor *t);
const char *emit_packed(const Emit *em, const Packed *p);
/* Writes the elements of p to data. */
void packed_fill(const Packed *p, void *data);
/* Makes the array `name`, of this type, an argument of the group's function and returns the
 * parameter's name: equal layers share one function. */
const char *group_weights(Group *g, DType type, const char *name);
const char *group_packed(Group *g, const Packed *p); /* the same for p's array */
const char *packed_load(const Packed *p); /* loads a vector of it as float32 (cpu/narrow.inc) */
/* Emits a function unless an equal one exists. Returns its name. */
const char *emit_function(Emit *em, const char *stem, const char *qualifier, const char *params,
                          const char *body);
/* The same with a prototype, for any translation unit to call it; `apart`: compiled beside the
 * kernel (Kernel.apart), if the family has that. */
const char *emit_shared(Emit *em, bool apart, const char *stem, const char *qualifier,
                        const char *params, const char *body);
void extern_text(Emit *em, const char *file);      /* pastes codegen/text/extern/FILE once */
void helper_text(Emit *em, const char *name);      /* pastes a text that kernels use once */
void linearize_text(Emit *em);                     /* the same for codegen/text/linearize.inc */
const char *emit_comment(Emit *em, const char *s); /* s, safe inside a C comment */
const char *c_name(Arena *a, const char *name, int max); /* an ONNX name as a C identifier */

/* ---- the program's texts (assemble.c) -------------------------------------------------------- */
/* Up to this many bytes, constants are part of the text. Above it they are a file that the
 * assembler includes; above WEIGHTS_MAPPED, a file beside the library, which maps it. */
#if BRAID_TINY
#define WEIGHTS_INLINE 256
#else
#define WEIGHTS_INLINE 4096
#endif
void put_string(Sb *s, const char *text); /* as a C string literal */
/* A size that the host computes from those of the inputs in[] (library_host_value). */
const char *host_text(Arena *a, const Expr *e);
void put_define(Sb *s, const char *name, long long value);
void put_embedded(Sb *s, const char *const *name); /* ends with NULL */
void put_weights(const Emit *em, Sb *out);
/* All functions, then the kernel. */
void put_kernel(const Emit *em, Sb *text, const char *name);
/* What the entry reads: tables, and declarations of them for another translation unit. */
void put_tables(Emit *em, Sb *text, const char *linkage);
void put_declarations(Emit *em, Sb *text);
void put_numbers(Emit *em, Sb *text); /* as macros */
/* The texts `file` (ends with NULL) and the tables of a program that measures itself; of another,
 * nothing (emit_probe.c). */
void put_probes(const Emit *em, Sb *text, const char *const *file);
void put_probe_tables(const Emit *em, Sb *text);
/* The texts `entry` (ends with NULL), after the one that all families share what reads a profile.
 */
void put_entry(const Emit *em, Sb *text, const char *const *entry);
/* Makes the library an operator of PyTorch, if the program has the name of one: the text's end
 * (torch.c). */
void put_torch(Emit *em, Sb *text);
/* The whole program as one text in C, and as translation units (units.c). */
void put_units(Emit *em, const char *const *preludes, const char *const *entry, Texts *to);

#endif
