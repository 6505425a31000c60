/* scaling.c: see scaling.h. Requires the tree as the last pass leaves it; changes nothing. */
#include "scheduler/plan/scaling.h"
#include "scheduler/cost/cost.h"
#include "scheduler/cost/decide.h"
#include "utask/walk.h"

#include <math.h>

typedef struct ScalingWalk {
    const Program *p;
    Scaling *r;
} ScalingWalk;

typedef struct Share { /* of a group's bytes, by the unit that has most of it */
    const Stmt *s;
    Map *seen;
    double share, bytes;
} Share;

static void share_load(void *user, Expr *e) {
    Share *k = user;
    if (!map_add(k->seen, (uint64_t)tensor_root(e->t)->id + 1)) return;
    double bytes = (double)dtype_size(e->dtype);
    for (int d = 0; d < e->t->rank; d++)
        if (e->kind || e->a[d]->flags & EF_AXIS) bytes *= cost_size(e->t->dim[d]);
    k->bytes += k->s->op.split && e_uses_axis(e, k->s->op.split) ? bytes * k->share : bytes;
}

/* The part of the group that the busiest of so many units has. */
static double busiest_share(const Stmt *s, int units) {
    if (!s->op.split) return 1;
    const double n = cost_size(s->op.inner ? s->op.inner : s->op.split->extent);
    const double grains = ceil(n / s->op.grain);
    return n > 0 ? fmin(ceil(grains / units) * s->op.grain / n, 1) : 1;
}

static void scale_group(ScalingWalk *w, const Stmt *s, double runs) {
    const Device *d = w->p->schedule->device;
    const int units = schedule_units(w->p->schedule, s->level);
    const Work all = cost_work(w->p->cx, s, COST_UNKNOWN);
    const double share = s->each ? 1 : busiest_share(s, units), ns = cost_compute_ns(d, &all);
    Share k = {.s = s, .seen = map_new(w->p->cx->a), .share = share, .bytes = all.written * share};
    stmt_loads(w->p->cx, s, share_load, &k);
    const double busiest = fmax(ns * share, k.bytes / device_gbps(d, k.bytes)) + d->group_ns;
    const double mean = busiest * (s->each ? 1 : 1 / share / w->r->units);
    w->r->busiest_ns += runs * busiest;
    w->r->mean_ns += runs * mean;
    w->r->bytes += runs * k.bytes;
    if (runs * (busiest - mean) <= w->r->lost_ns) return;
    w->r->lost_ns = runs * (busiest - mean);
    w->r->worst = s->op.t[s->op.n - 1]->path;
}

static void scale_seq(ScalingWalk *w, const Seq *q, double runs) {
    for (int i = 0; i < q->s.n; i++) {
        const Stmt *s = q->s.p[i];
        double inner = runs;
        if (s->kind == S_LOOP) inner *= cost_size(s->loop.trips);
        if (s->kind == S_BRANCH) inner *= 0.5;
        if (s->kind == S_CALL) inner *= COST_UNKNOWN;
        if (s->kind == S_OP && !op_is_empty(s) && s->level != LEVEL_HOST) scale_group(w, s, runs);
        const bool meets = s->kind == S_BARRIER && s->level == LEVEL_TEAM;
        w->r->synchronizations +=
            meets || s->apart || (s->kind == S_EXTERN && s->ext.barrier) ? runs : 0;
        if (s->kind == S_LOOP)
            w->r->synchronizations += (s->loop.copies ? runs : 0) + (s->loop.barrier ? inner : 0);
        for (int m = 0; m < stmt_nseq(s); m++) scale_seq(w, stmt_seq(s, m), inner);
    }
}

Scaling plan_scaling(const Program *p) {
    Scaling r = {.units = p->schedule->units, .team = p->schedule->team};
    ScalingWalk w = {p, &r};
    scale_seq(&w, p->top, 1);
    if (r.units == 1) r.synchronizations = 0;
    r.estimate_ns =
        r.busiest_ns + r.synchronizations * p->schedule->device->level[LEVEL_TEAM].barrier_ns;
    return r;
}
