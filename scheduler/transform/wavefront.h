/* wavefront.h: parts of pass_wavefront: loops that become one loop (wavefront.c), what that costs
 * (wavefront_cost.c), and which bodies can run iterations that they do not have (wavefront_spec.c).
 */
#ifndef BRAID_WAVEFRONT_H
#define BRAID_WAVEFRONT_H

#include "utask/walk.h"

#define MEMBERS_MAX 16

typedef struct Member {
    Stmt *s;
    int offset;     /* how many iterations later than the first member it runs */
    Map *dim;       /* tensor id + 1 -> 1 + the dimension along which it is sliced */
    uint32_t reads; /* bit j: it reads elements of member j */
    StmtVec slices; /* OPs of the slices */
    Map *slice;     /* tensor id + 1 -> its slice in an iteration of this member */
} Member;

typedef struct Delay { /* a scan element of member `of`, `by` diagonals later */
    int of, scan, by;
    LoopCarry carry;
    Stmt *init, *copy;
} Delay;

typedef struct Wave {
    Program *p;
    Cx *c;
    Arena *a;
    Seq *q;
    int first, last; /* statements of q from the first member to the last one */
    int n;
    Member m[MEMBERS_MAX];
    Member *cur;
    Expr *trips;
    int span; /* largest offset */
    VEC(Delay) delay;
    /* What depends on a member, by id; what has a larger id was made by this pass. */
    bool *after, *after_sym;
    int ntensor, nsym;
    Stmt **def;         /* by tensor id: the OP in q that makes it */
    bool *behind;       /* by position in q: depends on a member, or is one */
    Seq *body;          /* of the one loop */
    bool chosen;        /* the members are known */
    bool uniform;       /* the expression that is rewritten is */
    const Expr *at;     /* the index at which slices are taken */
    const Sym *counter; /* which is looked for */
    bool hit, ok;
    Map *wild; /* ids of tensors and symbols that are meaningless outside a member's iterations */
} Wave;

/* t, or what it views, depends on a member. */
bool wave_after(const Wave *w, const Tensor *t);
/* Whether m may run iterations that it does not have. */
bool wave_speculates(Wave *w, const Member *m);

/* A statement's level is how often units must synchronize before it: it reads under a reduction
 * what others made at the level before. Statements of all members are put in order of their levels.
 */
typedef struct Levels {
    Wave *w;
    Map *tensor, *sym; /* id + 1 -> 1 + level of what is made in the body */
    Map *seen;
    int level, top;
    bool carried; /* a reduction reads a carried value */
} Levels;

Levels levels_new(Wave *w);
/* Of s, a statement of member w->cur, after the statements that make what it reads. */
int level_of(Levels *l, const Stmt *s);

/* All loops of a Wave, by one unit or all, with sizes that are not known taken to be `unknown`: one
 * after the other; as one loop, as planned. Both require a plan. */
double wave_plain_ns(void *wave, double unknown);
double wave_changed_ns(void *wave, double unknown);

/* Whether a loop has no condition. */
bool wave_counted(const Stmt *s);

/* A nest of loops over few layers, in each of which an inner loop runs over a sequence: its
 * iterations one after the other, so that the inner loops are consecutive. */
typedef struct Nest {
    Seq *q;
    StmtVec before; /* statements of q as they were */
    VEC(Tensor *)
    result; /* of the outer loop, which become copies of what the last iteration made */
    VEC(Tensor) was;
    int first; /* of the inner loops, in q */
} Nest;
/* Writes out loop i of q; false when that is no such nest. */
bool nest_expand(Program *p, Seq *q, int i, Nest *n);
void nest_restore(Nest *n);

#endif
