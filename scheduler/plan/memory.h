/* memory.h: where every tensor lives. */
#ifndef BRAID_MEMORY_H
#define BRAID_MEMORY_H

#include "utask/utask.h"

#define BLOCK_OWN (-1)

typedef enum {
    M_NONE,   /* no storage of its own: input, constant, view, join, fused */
    M_STATIC, /* at `off` in the arena: size known at compile time, lifetime planned */
    M_BUMP, /* taken from the arena at run time, where it is defined; given back with its iteration
             */
    M_SLOT, /* in growable slot `slot`: size changes from iteration to iteration, or the host
               provides it */
    M_SHARED, /* in place of `via`, which it changes element by element, and which is not used any
                 more */
    M_CARRY,  /* a loop's next value: one of the two buffers of `via`, its phi */
    M_ELEM,   /* an iteration's part of `via`, a scan output */
    M_ROWS,   /* rows of `via`, a carried value that is filled row by row: Tensor.row */
    M_RESULT, /* where the function's caller wants result slot[0] */
    M_CALLEE  /* a call's result in memory that the callee took */
} MemKind;

/* A loop phi has two buffers, [0] and [1], used in turn. */
typedef struct Mem {
    MemKind kind;
    int64_t bytes; /* M_STATIC: of one buffer */
    int64_t off[2];
    int slot[2];
    Tensor *via;
    Expr *at;    /* M_ELEM: LoopScan.at */
    bool each;   /* every unit has one of its own (Stmt.each); M_BUMP, or in each block's memory */
    bool shared; /* another tensor is in its place (M_SHARED) */
    int given; /* 1 + the output whose memory is the caller's in runs that give it; 0: none (set by
                  pass_outputs) */
    bool inplace; /* a phi with one buffer (LoopCarry.inplace, push) */
    int block; /* M_STATIC, > 0: not in the arena but in the own memory of block `block` - 1 of the
                  first cluster; BLOCK_OWN: of each block, every unit has one of its own */
    Func *frame; /* the function that it belongs to: offsets are in its activation's frame, and a
                    slot is a piece of the arena as large as the slot of that number; NULL: none */
    int first, last; /* statement numbers between which it lives */
} Mem;

typedef struct Variable { /* of a tensor's pointer, or of a symbol; else both are NULL */
    const Tensor *t;
    Sym *s;
} Variable;

typedef struct Position { /* what a statement number of Mem.first and last stands for */
    const Stmt *s;
    bool end; /* the end of s, a loop or a call; else its beginning */
} Position;

typedef struct MemPlan { /* Program.mem */
    int64_t arena;       /* bytes of all static storage */
    int64_t distributed; /* of each block's own memory for what lives in the blocks of a cluster, */
    int64_t own;         /* and behind that for what each unit has for itself */
    int nslot;
    int64_t live_max;       /* largest total of static storage alive at once */
    VEC(Position) position; /* number n is position[n - 1]; 0 is before all, the last after all */
    int64_t shared;         /* of each block's own memory: what is there all the time */
    /* By pass_variables: */
    bool claims;    /* arena memory is taken while the program runs */
    int64_t frames; /* of the arena for an activation of each function */
    bool parts; /* the arena is taken from in parts: there are calls by a unit each (stmt_split) */
    bool clusters;          /* there is what one cluster does */
    bool fails;             /* by pass_outputs: runs on inputs that fit may fail */
    VEC(Variable) variable; /* of the kernel, in the order of definition */
} MemPlan;

/* Whether t is in the memory of member m of a group, which changes it in place. */
bool memory_changes(const Tensor *m, const Tensor *t);
/* Requires passes to be done. Sets Program.mem, Func.frame, and Tensor.plan of every tensor with
 * storage; what variables need is added to Program.mem by pass_variables (variables.h). */
void pass_memory(Program *p);
/* Bytes of the constants that groups in the loop read, and the most that one of so many units reads
 * of them. */
void memory_constants(Cx *c, const Stmt *loop, int units, int64_t *all, int64_t *share);
static inline Mem *mem_of(const Tensor *t) { return t->plan; }

#endif
