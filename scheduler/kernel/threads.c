/* threads.c: whether threads or teams of them take the positions of a group (threads.h). */
#include "scheduler/kernel/threads.h"
#include "scheduler/cost/decide.h"

#define LONG_SUM 32 /* terms that are worth the exchange, */
#define SOME_SUM 8  /* … where there are warps for all positions: they would be idle */
#define FEW 256     /* positions of a unit below which threads would be idle */
#define FEW_ROWS 3  /* rows of a unit below which warps would be idle */

typedef struct Sums {
    const Axis *inner; /* the last axis, or NULL */
    bool outer;        /* a long sum that does not move along it */
    bool every;        /* a long sum at each position */
    int64_t least;     /* terms of a long sum */
    int64_t most;      /* terms of the longest of them */
} Sums;

static int64_t terms(const Expr *reduce) {
    return axes_size(reduce->naxis, reduce->raxis, INT32_MAX);
}

static void find_sums(Sums *k, Map *seen, const Expr *e) {
    if (!(e->flags & EF_REDUCE) || !map_add(seen, (uint64_t)e->id + 1)) return;
    if (e->op == E_REDUCE) {
        if (terms(e) < k->least) return;
        if (terms(e) > k->most) k->most = terms(e);
        if (k->inner && !e_uses_axis(e, k->inner))
            k->outer = true;
        else
            k->every = true;
        return;
    }
    /* What a choice may leave out is left to the thread that chose. */
    int last = e_always(e);
    for (int i = 0; i < last; i++) find_sums(k, seen, e->a[i]);
}

/* How many positions along its first n axes a unit has, if those of unknown extent have `unknown`.
 */
static int64_t positions(const Kernel *g, int n, int64_t unknown) {
    int64_t all = axes_size(n, g->axis, unknown);
    for (int d = 0; d < n; d++)
        if (g->axis[d] == g->split && all < INT32_MAX)
            return div_up(all, schedule_units(g->p->schedule, g->s->level));
    return all;
}

void kernel_threads(Kernel *g) {
    int n = g->naxis;
    const int warps = g->nthread / g->p->schedule->device->warp;
    Sums k = {.inner = n ? g->axis[n - 1] : NULL,
              .least = positions(g, n, INT32_MAX) <= warps ? SOME_SUM : LONG_SUM};
    Map *seen = map_new(g->a);
    for (int i = 0; i < g->n; i++) find_sums(&k, seen, g->value[i]);
    ThreadsKernel *t = NEW(g->a, ThreadsKernel);
    if (k.outer) t->row = g->axis[n - 1];
    if (t->row || (k.every && positions(g, n, 1) < FEW)) {
        bool few = positions(g, n - (t->row != NULL), INT32_MAX) < FEW_ROWS;
        t->team = few && k.most >= g->nthread && !g->s->op.team ? TEAM_BLOCK : TEAM_WARP;
    }
    g->kind = KERNEL_THREADS;
    g->threads = t;
}
