/* beside.h: independent groups that run at the same time on the warps of each unit.
 *
 * On a GPU all threads of a block compute a group together, and so groups one after the other. Each
 * takes, however small it is, the time in which its operands come, its threads synchronize, and
 * one thread's chain of operations ends. Where neighbouring groups do not depend on each other,
 * each is computed by a team of threads, a warp, instead: they wait at the same time. Teams take
 * further groups when they are done. Of groups side by side, all but the first have Stmt.beside;
 * Stmt.op.team is the number of threads of a team. They are one point in time: no barrier is
 * between them, and what they make lives at the same time. */
#ifndef BRAID_BESIDE_H
#define BRAID_BESIDE_H

#include "utask/utask.h"

/* How many statements, from number `from` on, are groups side by side; 1: there are none. */
static inline int beside_run(const Seq *q, int from) {
    int n = 1;
    while (q->s.p[from]->kind == S_OP && from + n < q->s.n && q->s.p[from + n]->beside &&
           q->s.p[from + n]->kind == S_OP)
        n++;
    return n;
}

#endif
