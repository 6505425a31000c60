/* parts.c: see parts.h. */
#include "scheduler/plan/parts.h"
#include "scheduler/cost/cost.h"
#include "scheduler/cost/decide.h"
#include "scheduler/passes.h"
#include "utask/walk.h"

#include <math.h>

#define PARTS_MOST 256
#define ITERATION_NS 2  /* of a loop, beside its groups */
#define STREAM_NS 150.0 /* until the first line of a piece is there, at another place each time */

/* What one iteration touches and takes, all units together. */
typedef struct Iteration {
    const Program *p;
    const Stmt *loop, *s; /* the group that is looked at */
    Map *seen;            /* tensors that are counted */
    double own, shared;   /* bytes that move with the units' parts, and others */
    double stream;        /* of own: another place in each iteration */
    double streams;       /* such tensors */
    double compute, groups;
    double most; /* parts that a group can be cut into: the fewest of all groups */
} Iteration;

static bool moves(const Stmt *loop, const Expr *load) {
    for (int d = 0; d < load->n; d++)
        if (loop_varies(loop, load->a[d])) return true;
    return false;
}

/* Of a value that grows in place: what it may grow to. */
static double extent(const Tensor *t, int d) {
    const Grow *g = t->grow;
    return g && g->planned && d == g->axis ? (double)g->most : cost_size(t->dim[d]);
}

static void count_load(void *user, Expr *e) {
    Iteration *k = user;
    const Tensor *t = tensor_root(e->t);
    for (int i = 0; i < k->s->op.n; i++)
        if (k->s->op.t[i] == t) return;
    if (!map_add(k->seen, (uint64_t)t->id + 1)) return;
    double bytes = (double)dtype_size(e->dtype);
    for (int d = 0; d < e->t->rank; d++)
        if (e->kind || e->a[d]->flags & EF_AXIS) bytes *= extent(e->t, d);
    if (!e_uses_axis(e, k->s->op.split)) {
        k->shared += bytes;
        return;
    }
    k->own += bytes;
    if (seq_inside(t->seq, k->loop->loop.body) || !moves(k->loop, e)) return;
    k->stream += bytes;
    k->streams++;
}

static void count_op(Iteration *k, const Stmt *s) {
    k->s = s;
    stmt_loads(k->p->cx, s, count_load, k);
    for (int i = 0; i < s->op.n && !s->op.at;
         i++) /* what changes in place counts where it is read */
        if (map_add(k->seen, (uint64_t)s->op.t[i]->id + 1)) k->own += cost_bytes(s->op.t[i]);
    const double rows = cost_size(s->op.inner ? s->op.inner : s->op.split->extent) / s->op.grain;
    if (rows < k->most) k->most = rows;
}

/* `times`: of the sequence in one iteration. */
static void count_seq(Iteration *k, const Seq *q, double times) {
    for (int i = 0; i < q->s.n; i++) {
        const Stmt *s = q->s.p[i];
        const double inner = s->kind == S_LOOP ? cost_size(s->loop.trips) : 0.5;
        if (s->kind == S_OP && !op_is_empty(s)) {
            const Work w = cost_work(k->p->cx, s, COST_UNKNOWN);
            k->compute += times * cost_compute_ns(k->p->schedule->device, &w);
            k->groups += times;
            count_op(k, s);
        }
        for (int m = 0; m < stmt_nseq(s); m++) count_seq(k, stmt_seq(s, m), times * inner);
    }
}

/* From where a unit reads what all parts touch again in each iteration. Other data passes through a
 * cache as well: half of it stays. What is near all units is shared by them. */
static double near_gbps(const Iteration *k, double own) {
    const Device *d = k->p->schedule->device;
    const double gbps = device_gbps(d, 2 * (own + k->shared));
    const double all = own * k->p->schedule->units + k->shared;
    return 2 * all > (double)d->level[LEVEL_TEAM].bytes ? d->dram_gbps : gbps;
}

/* One iteration of all parts of a unit: memory is read while it computes. */
static double parts_ns(const Iteration *k, int parts) {
    const Device *d = k->p->schedule->device;
    const double units = k->p->schedule->units, rows = fmax(k->most / units, 1);
    const double gbps = near_gbps(k, k->own / units / fmin(parts, rows));
    const double bytes = (k->own - k->stream) / units + parts * k->shared;
    return fmax(k->compute / units, bytes / gbps) +
           parts * (k->groups * d->group_ns + k->streams * STREAM_NS + ITERATION_NS);
}

/* ---- whether it may be ----------------------------------------------------------------------- */
static bool is_other(void *user, const Stmt *s) {
    (void)user;
    if (s->kind == S_LET || s->kind == S_CHECK) return false;
    return s->level != LEVEL_TEAM || s->each ||
           (s->kind != S_OP && s->kind != S_LOOP && s->kind != S_BRANCH);
}

typedef struct Bytes { /* at the most, in one iteration */
    const Program *p;
    Map *seen;
    double n, compute;
} Bytes;

static void add_read(void *user, Expr *e) {
    Bytes *k = user;
    const Tensor *t = tensor_root(e->t);
    double n = (double)dtype_size(t->dtype);
    if (!map_add(k->seen, (uint64_t)t->id + 1)) return;
    for (int d = 0; d < t->rank; d++) n *= extent(t, d);
    k->n += n;
}

static void add_bytes(void *user, Stmt *s) {
    Bytes *k = user;
    if (s->kind != S_OP) return;
    const Work w = cost_work(k->p->cx, s, COST_UNKNOWN);
    k->compute += cost_compute_ns(k->p->schedule->device, &w);
    stmt_loads(k->p->cx, s, add_read, k);
    for (int i = 0; i < s->op.n && !s->op.at; i++) k->n += cost_bytes(s->op.t[i]);
}

bool parts_possible(const Program *p, const Stmt *loop) {
    const Schedule *k = p->schedule;
    if (k->device->backend != BACKEND_C || k->lanes == 1 || k->profile || p->nfunc ||
        loop->level != LEVEL_TEAM || stmt_any(loop, is_other, NULL))
        return false;
    if (k->force[X_PARTS] > 1) return true;
    Bytes bytes = {.p = p, .seen = map_new(p->cx->a)};
    seq_each_here(loop->loop.body, add_bytes, &bytes);
    return 2 * bytes.n > (double)k->device->level[LEVEL_CORE].bytes * k->units &&
           bytes.n / device_gbps(k->device, 2 * bytes.n) > bytes.compute;
}

int parts_choose(Program *p, const Stmt *loop) {
    const int units = p->schedule->units;
    static const int other[] = {1, 2, 3, 4, 5, 8, 16, 64};
    Iteration k = {.p = p, .loop = loop, .seen = map_new(p->cx->a), .most = PARTS_MOST * units};
    count_seq(&k, loop->loop.body, 1);
    if (k.groups == 0) return 1;
    const double trips = cost_size(loop->loop.trips);
    Way way[WAYS_MAX] = {{1, trips * parts_ns(&k, 1)}};
    for (int n = 2; n * units <= k.most; n *= 2) {
        const double ns = trips * parts_ns(&k, n);
        if (ns < way[0].ns) way[0] = (Way){n, ns};
    }
    int n = 1;
    for (size_t i = 0; i < COUNT(other); i++)
        if (other[i] != way[0].value) way[n++] = (Way){other[i], trips * parts_ns(&k, other[i])};
    return decide_value(p, X_PARTS, loop, n, way);
}

static bool meets(void *user, const Stmt *s) {
    bool closes = false;
    for (int i = 0; s->kind == S_LOOP && i < s->loop.carry.n; i++)
        closes |= s->loop.carry.p[i].closes;
    return s->kind == S_BARRIER || s->apart ||
           (s->kind == S_LOOP && (s->loop.barrier || (s != user && (s->loop.copies || closes))));
}

void parts_settle(Stmt *loop) {
    if (stmt_any(loop, meets, loop)) loop->loop.parts = 1;
}
