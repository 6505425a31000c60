/* memory.h: where every tensor lives. */
#ifndef BRAID_MEMORY_H
#define BRAID_MEMORY_H

#include "utask/utask.h"

typedef enum {
    M_NONE,   /* no storage of its own: input, constant, view, join, fused */
    M_STATIC, /* at `off` in the arena: size known at compile time, lifetime planned */
    M_BUMP,   /* taken from the arena at run time, where it is defined; given back with its iteration */
    M_SLOT,   /* in growable slot `slot`: size changes from iteration to iteration */
    M_CARRY,  /* a loop's next value: one of the two buffers of `via`, its phi */
    M_ELEM    /* an iteration's part of `via`, a scan output */
} MemKind;

/* A loop phi has two buffers, [0] and [1], used in turn. */
typedef struct Mem {
    MemKind kind;
    int64_t bytes;    /* M_STATIC: of one buffer */
    int64_t off[2];
    int slot[2];
    Tensor *via;
    int first, last;  /* statement numbers between which it lives */
} Mem;

typedef struct MemPlan { /* Program.mem */
    int64_t arena;    /* bytes of all static storage */
    int nslot;
    int64_t live_max; /* largest total of static storage alive at once */
} MemPlan;

/* Requires passes to be done. Sets Program.mem, and Tensor.plan of every tensor with storage. */
void pass_memory(Program *p);
static inline Mem *mem_of(const Tensor *t) { return t->plan; }

#endif
