/* access.h: accesses of units to memory, and which of them must be in order (sync.c). */
#ifndef BRAID_SCHEDULER_ACCESS_H
#define BRAID_SCHEDULER_ACCESS_H

#include "scheduler/plan/distribute.h"
#include "scheduler/plan/memory.h"

typedef enum {
    ON_TENSOR,
    ON_TAKEN,  /* arena memory that a statement takes for itself, above all that is in use */
    ON_RECORD, /* what an activation saves around a call, by one thread for all (stack/) */
    /* what a group needs while it runs: all of it, or (not `write`) each team its part */
    ON_SCRATCH
} AccessKind;

typedef struct Access {
    AccessKind kind;
    Tensor *t;
    Tensor *elem; /* t is a scan output or filled by rows, and this the part of it that an iteration
                     makes; or NULL */
    bool write;
    bool append; /* a write after all existing elements: it conflicts with no access to them */
    bool rows;   /* a write of rows that this iteration does not read but as `elem` */
    int past;    /* 1 + the unit that is known to be past it; 0: none */
    Part part;
} Access;
typedef VEC(Access) AccessVec;

bool access_in(const AccessVec *v, const Access *a); /* an equal one is */
int access_unit(const Access *a); /* the only one that makes it; -1: several may */
/* Whether the unit that makes a is known to be past b. */
bool access_past(const Access *a, const Access *b);
/* Whether a, the later one, must wait for b; or for b in an iteration before that of a. */
bool access_conflict(const Access *a, const Access *b);
bool access_conflict_later(const Access *a, const Access *b, const Stmt *loop);
/* The same memory as seen by the next iteration: all that is carried is what it reads. */
Access access_carried(Access a, const Stmt *loop);
/* The same memory as the next iteration names it: of the two buffers of a carried value each is in
 * turn what an iteration reads and what it writes. */
Access access_turned(Access a, const Stmt *loop);
/* A value that is carried in place has one buffer, which reads and writes name alike. */
Access access_in_place(Access a, const Stmt *loop);
/* Arena memory that each iteration takes anew, possibly at another address. */
bool access_taken(const Access *a, const Stmt *loop);
#endif
