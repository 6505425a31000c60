/* latency.c: how long the threads of a block take for their unit's part of a group on a GPU, where
 * they wait and do not compute: round trips of loads that depend on each other, elementary
 * functions one behind the other, iterations of one thread, exchanges and barriers.
 *
 * The rules are those by which codegen/emulate/count.cc counts a launch; the numbers are the
 * device's. Sums of products that their kernel has planned are in Stmt.op.sums_ns; before that
 * their shape is guessed. */
#include "scheduler/cost/cost.h"
#include "scheduler/cost/decide.h"
#include "utask/product.h"
#include "utask/walk.h"
#include "utask/windows.h"

#include <math.h>

#define LONG_SUM 32 /* terms that a team of threads shares (scheduler/kernel/threads.c), */
#define SOME_SUM 8  /* … where there are warps for all positions */
#define FEW 256     /* positions of a unit below which a team takes each */
#define FEW_ROWS 3  /* rows below which all of the block takes each */
#define PRODUCT_LEAST                                                                              \
    8             /* terms of a sum of products that a block shares (scheduler/kernel/dots.c) */
#define COPIES 16 /* floats of a thread's copies that are on their way together */
#define FLIGHT 8  /* loads of an instruction that are on their way together */
#define PARTS 8
#define BEGIN 20 /* cycles in which a function begins and ends */

typedef struct WaitPath { /* of one evaluation */
    double chain;         /* ns of functions that wait for each other */
    double trips;         /* loads that wait for each other */
    double loads;         /* all of them */
    double ns;            /* of sums over terms */
} WaitPath;

typedef struct WaitDepth { /* of an expression */
    double trips, chain;
} WaitDepth;

typedef struct SumsPart { /* sums of products that are computed together */
    uint64_t key;
    double n, terms; /* at each position */
    double turns;    /* positions of axes that both factors use: one after the other */
    double staged;   /* floats that are copied for each */
} SumsPart;

typedef struct PathWalk {
    const Program *p;
    const Device *d;
    const Stmt *s;
    const Axis *split; /* NULL: the longest one */
    double unknown;
    int units, threads;   /* threads of a block that compute it */
    double positions;     /* of a unit */
    double long_sum;      /* terms that a team shares */
    double team;          /* threads that share a sum */
    const Axis *turns;    /* the longest axis that both factors of a sum of products use */
    SumsPart part[PARTS]; /* sums of products by the block */
    int products;
    Map *seen; /* expression id -> WaitDepth */
    WaitPath path;
} PathWalk;

static double size_of(const PathWalk *k, const Expr *e) {
    int64_t v;
    return !e || !e_is_int(e, &v) ? k->unknown : v > 0 ? (double)v : 0;
}

/* The number of the member that e loads; -1: none. */
static int own_of(const PathWalk *k, const Expr *e) {
    for (int i = 0; e->op == E_LOAD && i < k->s->op.n; i++)
        if (k->s->op.t[i] == e->t) return i;
    return -1;
}

static double terms_of(const PathWalk *k, const Expr *reduce) {
    double n = 1;
    for (int i = 0; i < reduce->naxis; i++) n *= size_of(k, reduce->raxis[i]->extent);
    return n;
}

/* By the block, as one matrix product (scheduler/kernel/dots.h). */
static bool is_product(const PathWalk *k, Expr *e) {
    if (k->s->op.kernel && !k->s->op.sums_ns) return false;
    if (!dtype_is_float(e->dtype) || terms_of(k, e) < PRODUCT_LEAST) return false;
    return is_fast_product(e) || (k->s->op.sums_ns && padded_product(k->p->cx, e));
}

static double exchange_ns(const Device *d, double team) {
    const double lanes = fmin(team, d->warp), warps = team / lanes;
    double ns = log2(fmax(lanes, 1)) * d->shuffle_ns;
    if (warps > 1) ns += 2 * d->level[LEVEL_CORE].barrier_ns + (1 + warps / 8) * d->core_load_ns;
    return ns;
}

/* ---- what stays on chip ---------------------------------------------------------------------- */
typedef struct KeptFactors {
    Cx *c;
    Map *seen;
    double bytes;
} KeptFactors;

static void add_factors(KeptFactors *k, Expr *e) {
    SumProduct p;
    if (!(e->flags & EF_REDUCE) || !map_add(k->seen, (uint64_t)e->id << 1 | 1)) return;
    if (e->op == E_REDUCE && product_of(e, &p)) {
        for (int i = 0; i < 2; i++)
            if (p.load[i] && p.load[i]->t->kind == TK_CONST &&
                map_add(k->seen, (uint64_t)p.load[i]->t->id << 1))
                k->bytes += cost_bytes(p.load[i]->t);
        return;
    }
    for (int i = 0; i < e->n; i++) add_factors(k, e->a[i]);
}

static void add_group(void *user, Stmt *s) {
    for (int i = 0; s->kind == S_OP && i < s->op.n; i++) add_factors(user, s->op.t[i]->body);
}

double cost_kept(const Program *p, int units) {
    Schedule *plan = p->schedule;
    if (plan->weights_bytes < 0) {
        KeptFactors k = {.c = p->cx, .seen = map_new(p->cx->a)};
        seq_each(p->top, add_group, &k);
        plan->weights_bytes = k.bytes;
    }
    const double room = 0.75 * (double)plan->device->level[LEVEL_CORE].bytes * units;
    return plan->weights_bytes > room ? room / plan->weights_bytes : 1;
}

/* ---- sums of products ------------------------------------------------------------------------ */
/* A unit's positions along the axes that the factors use, both of them where `both`. */
static double uses_of(PathWalk *k, const Expr *factor, const Expr *other, bool both) {
    const Tensor *lead = k->s->op.t[0];
    double n = 1, longest = 1;
    int most = -1;
    for (int i = 0; i < lead->rank; i++)
        if (most < 0 || size_of(k, lead->dim[i]) > size_of(k, lead->dim[most])) most = i;
    for (int i = 0; i < lead->rank; i++) {
        if (!e_uses_axis(factor, lead->axis[i]) || e_uses_axis(other, lead->axis[i]) != both)
            continue;
        const bool split = k->split ? lead->axis[i] == k->split : i == most;
        const double size = size_of(k, lead->dim[i]);
        n *= split ? ceil(size / k->units) : size;
        if (!both || size <= longest) continue;
        k->turns = lead->axis[i];
        longest = size;
    }
    return n;
}

/* Elements of a factor that a unit copies to its memory for each turn. */
static double copied(PathWalk *k, const Expr *reduce, const Expr *factor, const Expr *other) {
    if (factor->op == E_LOAD && factor->t->kind == TK_CONST) return 0;
    return terms_of(k, reduce) * uses_of(k, factor, other, false);
}

/* Sums that read the same operand, of those that are copied, are computed together. */
static void add_product(PathWalk *k, Expr *e) {
    SumProduct p;
    const Expr *from = e;
    double staged = 0, turns = 1;
    for (int i = 0; product_of(e, &p) && i < 2; i++) {
        const double n = copied(k, e, p.factor[i], p.factor[!i]);
        if (n > 0) from = p.factor[i];
        staged += n;
        turns = uses_of(k, p.factor[i], p.factor[!i], true);
    }
    const uint64_t key = from->op == E_LOAD ? (uint64_t)from->t->id << 1 | 1 : (uint64_t)e->id << 1;
    int at = 0;
    while (at < k->products && (k->part[at].key != key || k->part[at].terms != terms_of(k, e)))
        at++;
    if (at == PARTS) at--; /* one too many: as if it were with the last */
    if (at == k->products) k->part[k->products++] = (SumsPart){key, 0, terms_of(k, e), 1, 0};
    k->part[at].n++;
    k->part[at].turns = fmax(k->part[at].turns, turns);
    k->part[at].staged = fmax(k->part[at].staged, staged);
}

/* Of the block for a part's sums at each of a unit's positions. */
static double part_ns(const PathWalk *k, const SumsPart *q) {
    const Device *d = k->d;
    const double meet = d->level[LEVEL_CORE].barrier_ns, busy = fmax(d->threads / d->warp / 4, 1);
    double team = 1, sums = fmax(k->positions / q->turns, 1) * q->n;
    while (team < d->warp && 2 * team * sums <= k->threads) team *= 2;
    const double each = ceil(sums * team / k->threads), steps = ceil(q->terms / 4 / team);
    const double side = floor(sqrt(each)), loads = side + ceil(each / side);
    const double issue = steps * (2 * loads + 4 * each) * d->cycle_ns * busy;
    const double kept = cost_kept(k->p, k->units),
                 load = kept * d->core_load_ns + (1 - kept) * d->load_ns;
    const double rounds = d->async ? 1 : ceil(q->staged / k->threads / COPIES);
    return q->turns *
           (d->load_ns * rounds + 2 * meet + q->staged / k->threads * d->cycle_ns * busy + issue +
            ceil(steps * ceil(each / side) / FLIGHT) * load + log2(team) * d->shuffle_ns + meet);
}

/* ---- expressions ----------------------------------------------------------------------------- */
static WaitDepth walk(PathWalk *k, Expr *e);

static void add_path(PathWalk *k, Expr *e) {
    const WaitDepth x = walk(k, e);
    k->path.trips = fmax(k->path.trips, x.trips);
    k->path.chain = fmax(k->path.chain, x.chain);
}

/* A sum that its thread, or team, computes term by term. The first terms' loads are on their way
 * together with what else a thread loads, whereas a team exchanges before it goes on. */
static WaitDepth walk_terms(PathWalk *k, Expr *e) {
    const double terms = terms_of(k, e), team = terms >= k->long_sum ? k->team : 1;
    const WaitPath around = k->path;
    Map *const seen = k->seen;
    k->path = (WaitPath){0};
    k->seen = map_new(k->p->cx->a);
    add_path(k, e->a[0]);
    const WaitPath x = k->path;
    const double times = ceil(terms / team), waits = ceil(times / FLIGHT) - (team == 1);
    k->path = around;
    k->seen = seen;
    k->path.ns += x.trips * waits * k->d->load_ns +
                  times * (x.loads * k->d->cycle_ns + x.chain + x.ns) +
                  (team > 1 ? exchange_ns(k->d, team) : 0);
    return (WaitDepth){team == 1 ? x.trips : 0, 0};
}

/* Adds the work of e, once; returns how its loads and functions wait for each other. */
static WaitDepth walk(PathWalk *k, Expr *e) {
    if (e->pure || e->op == E_AXIS) return (WaitDepth){0, 0};
    WaitDepth *x = map_geti(k->seen, (uint64_t)e->id + 1);
    if (x) return *x;
    x = NEW(k->p->cx->a, WaitDepth);
    map_seti(k->seen, (uint64_t)e->id + 1, x);
    if (e->op == E_REDUCE) {
        if (!is_product(k, e)) {
            *x = walk_terms(k, e);
            return *x;
        }
        add_product(k, e);
        return *x;
    }
    const int n = e->op == E_TELL ? 1 : e->n;
    for (int i = 0; i < n; i++) {
        const WaitDepth y = walk(k, e->a[i]);
        x->trips = fmax(x->trips, y.trips);
        x->chain = fmax(x->chain, y.chain);
    }
    const int own = own_of(k, e);
    if (own >= 0) { /* a member at the same position: it is in a register */
        *x = walk(k, k->s->op.t[own]->body);
    } else if (e->op == E_LOAD) {
        k->path.loads++;
        x->trips++;
    } else if (dtype_is_float(e->dtype) || e->op != E_DIV)
        x->chain += cost_wait_ns(k->d, e->op);
    return *x;
}

/* ---- groups ---------------------------------------------------------------------------------- */
typedef struct LongSums {
    bool row, every; /* some do not move along the last axis; some do */
    double most;
} LongSums;

static void find_long(const PathWalk *k, Map *seen, Expr *e, const Axis *inner, LongSums *x) {
    if (!(e->flags & EF_REDUCE) || !map_add(seen, (uint64_t)e->id + 1)) return;
    if (e->op != E_REDUCE) {
        for (int i = 0; i < e->n; i++) find_long(k, seen, e->a[i], inner, x);
        return;
    }
    if (terms_of(k, e) < k->long_sum || is_product(k, e)) return;
    x->most = fmax(x->most, terms_of(k, e));
    if (inner && !e_uses_axis(e, inner))
        x->row = true;
    else
        x->every = true;
}

/* Positions of the busiest of so many units; *last: along the last axis. */
static double positions_of(const PathWalk *k, double *last) {
    const Tensor *lead = k->s->op.t[0];
    double n = 1, longest = 1, at_last = 1;
    for (int i = 0; i < lead->rank; i++) {
        const bool part = k->s->op.at && k->s->op.at[i];
        const double size = size_of(k, part ? lead->axis[i]->extent : lead->dim[i]);
        const bool split = k->split == lead->axis[i];
        n *= size;
        if (split || (!k->split && size > longest)) longest = size;
        at_last = size;
    }
    const double grain = k->s->op.split ? fmax(k->s->op.grain, 1) : 1;
    const double share = k->split || k->units > 1
                             ? fmin(ceil(ceil(longest / grain) / k->units) * grain, longest)
                             : longest;
    const bool inner =
        lead->rank && (k->split ? k->split == lead->axis[lead->rank - 1] : at_last == longest);
    *last = inner ? share : at_last;
    return n / fmax(longest, 1) * share;
}

/* *turns: the longest axis that both factors of a sum of products use. */
static double split_ns(const Program *p, const Stmt *s, const Axis *split, int units,
                       double unknown, const Axis **turns) {
    const Device *d = p->schedule->device;
    const Tensor *lead = s->op.t[0];
    PathWalk k = {p, d, s, split, unknown, units > 1 ? units : 1, .seen = map_new(p->cx->a)};
    k.threads = s->op.team ? s->op.team : d->threads;
    double last, iterations = 1;
    k.positions = positions_of(&k, &last);
    if (k.positions <= 0) return d->cycle_ns * BEGIN;
    k.long_sum = k.positions * d->warp <= k.threads ? SOME_SUM : LONG_SUM;
    LongSums sums = {0};
    Map *seen = map_new(p->cx->a);
    const Axis *inner = lead->rank ? lead->axis[lead->rank - 1] : NULL;
    for (int i = 0; i < s->op.n; i++) find_long(&k, seen, s->op.t[i]->body, inner, &sums);
    const bool team = sums.row || (sums.every && k.positions < FEW);
    const double rows = sums.row ? k.positions / fmax(last, 1) : k.positions;
    k.team = !team ? 1 : rows < FEW_ROWS && sums.most >= k.threads ? k.threads : d->warp;
    const double teams = k.threads / k.team;
    for (int i = 0; i < s->op.n; i++) add_path(&k, s->op.t[i]->body);
    if (sums.row) iterations = ceil(last / k.team);
    /* What sums of products are for is loaded while their operands are. */
    const double trips = k.products ? fmax(k.path.trips - 1, 0) : k.path.trips;
    double ns =
        k.path.ns +
        (trips * d->load_ns + k.path.chain + (k.path.loads + s->op.n) * d->cycle_ns) * iterations;
    ns *= ceil(rows / teams);
    if (k.products) ns += d->core_load_ns + s->op.sums_ns;
    for (int i = 0; i < k.products && !s->op.sums_ns; i++) ns += part_ns(&k, &k.part[i]);
    *turns = k.turns;
    return ns + d->cycle_ns * BEGIN;
}

double cost_latency_ns(const Program *p, const Stmt *s, int units, double unknown) {
    const Axis *turns = NULL, *none;
    const double ns = split_ns(p, s, s->op.split, units, unknown, &turns);
    if (s->op.split || !turns) return ns;
    return fmin(ns, split_ns(p, s, turns, units, unknown, &none));
}
