/* probes.c: numbers the parts of a program for a profile, and decides how often each is timed.
 *
 * Requires the complete tree; changes nothing but Program.probes. */
#include "scheduler/plan/probes.h"
#include "scheduler/cost/cost.h"
#include "scheduler/cost/decide.h"
#include "scheduler/passes.h"
#include "utask/extern.h"
#include "utask/walk.h"

/* What timing one execution of a part costs, in ns: two looks at the clock, sums and an event. */
#define PROBE_NS 30.0
/* The share of its time that a Seq's execution may take longer by being measured. */
#define PROBE_SHARE 0.01
#define EVERY_MOST 4096

typedef struct ProbeWalk {
    const Program *p;
    Probes *k;
    int statement;   /* number of the next statement */
    bool function;   /* inside a recursive function */
    const Stmt *top; /* the call that starts it */
} ProbeWalk;

static int add(ProbeWalk *w, const void *place, Probe probe) {
    const int number = w->k->all.n;
    vec_push(w->p->cx->a, &w->k->all, probe);
    if (place) map_seti(w->k->part_of, (uintptr_t)place, (void *)(uintptr_t)(number + 1));
    return number;
}

/* A barrier inside or after part `like`. */
static void add_barrier(ProbeWalk *w, const void *place, int parent, const Stmt *s, int statement,
                        Level level, int in, const char *why) {
    add(w, place,
        (Probe){.kind = PROBE_BARRIER,
                .parent = parent,
                .stmt = s,
                .statement = statement,
                .level = level,
                .name = why,
                .in = in,
                .seq = -1,
                .own = true,
                .timed = true});
}

/* The level of the units that wait when units of `level` do: a core's threads need no part. */
static bool waits(Level level) { return level >= LEVEL_CLUSTER; }

static int walk(ProbeWalk *w, const Seq *q, int parent, Level level, bool repeats);

/* The model's iterations of one trip: the step of `made` (scheduler/transform/unroll.c). */
static int step_of(Cx *c, const Stmt *s) {
    int64_t step;
    if (!s->loop.made) return 1;
    Expr *iter = e_sym(c, s->loop.iter);
    Expr *next = e_replace(c, s->loop.made, iter, e_addi(c, iter, 1));
    return e_is_int(e_sub(c, next, s->loop.made), &step) && step > 0 ? (int)step : 1;
}

static void add_loop(ProbeWalk *w, const Stmt *s, int number, int in, Level level) {
    const int at = w->statement - 1;
    if (s->loop.copies && waits(level))
        add_barrier(w, &s->loop.copies, number, s, at, level, in, "begin");
    const int body = walk(w, s->loop.body, number, level, true);
    w->k->all.p[number].seq = body;
    w->k->all.p[number].step = step_of(w->p->cx, s);
    if (s->loop.barrier && waits(level))
        add_barrier(w, &s->loop.barrier, number, s, at, level, body, "iteration");
    for (int i = 0; i < s->loop.carry.n; i++) {
        const char *closes = (const char *)&s->loop.carry.p[i].closes;
        for (int k = 0; k < 2 && s->loop.carry.p[i].closes && waits(level); k++)
            add_barrier(w, closes + k, number, s, at, level, in, "grown");
    }
}

static void add_below(ProbeWalk *w, const Stmt *s, int number, Level level, bool repeats) {
    const bool outside = !w->function;
    for (int i = 0; i < stmt_nseq(s); i++) {
        const Seq *q = stmt_seq(s, i);
        const bool arm = s->kind == S_BRANCH;
        const Probe probe = {.kind = arm ? PROBE_ARM : PROBE_FUNCTION,
                             .parent = number,
                             .stmt = s,
                             .statement = w->k->all.p[number].statement,
                             .level = level,
                             .name = !arm ? s->call.func[i]->name
                                     : i  ? "else"
                                          : "then",
                             .in = -1};
        const int part = add(w, q, probe);
        w->function |= !arm;
        const int seq = walk(w, q, part, level, repeats || !arm);
        w->k->all.p[part].seq = w->k->all.p[part].in = seq;
    }
    if (outside) w->function = false;
}

static ProbeKind kind_of(const Stmt *s) {
    switch (s->kind) {
    case S_LOOP: return PROBE_LOOP;
    case S_BRANCH: return PROBE_BRANCH;
    case S_CALL: return PROBE_CALL;
    case S_ENTER: return PROBE_ACTIVATION;
    case S_OP: return s->level == LEVEL_HOST ? PROBE_PRODUCT : PROBE_GROUP;
    case S_EXTERN: return PROBE_BODY;
    default: return PROBE_BARRIER;
    }
}

static const char *name_of(const Stmt *s) {
    switch (s->kind) {
    case S_OP: return s->op.t[0]->name;
    case S_EXTERN: return s->ext.row->name;
    case S_CALL: return s->call.f->name;
    case S_BARRIER:
        return s->meet == MEET_GATHER    ? "gather"
               : s->meet == MEET_RELEASE ? "release"
                                         : "statement";
    default: return NULL;
    }
}

/* Statements without a part: uniform ones, groups without elements, barriers of a block. */
static bool has_part(const Stmt *s) {
    if (s->kind == S_LET || s->kind == S_CHECK) return false;
    if (s->kind == S_OP) return !op_is_empty(s);
    return s->kind != S_BARRIER || waits(s->level);
}

static void add_stmt(ProbeWalk *w, const Stmt *s, int parent, int in, Level level, bool repeats) {
    const int statement = w->statement++;
    if (!has_part(s)) return;
    const bool own = stmt_apart(s, level) || s->kind == S_OP || s->kind == S_BARRIER;
    /* A record of a simulated stack holds no time: what has a call in it is counted only. */
    const bool calls = w->function && stmt_any(s, stmt_is_call, NULL);
    Probe probe = {.kind = kind_of(s),
                   .parent = parent,
                   .stmt = s,
                   .statement = statement,
                   .level = own ? (Level)s->level : level,
                   .name = name_of(s),
                   .in = in,
                   .seq = -1,
                   .own = s->kind == S_BARRIER || stmt_apart(s, level) || stmt_split(s),
                   .step = 1};
    probe.timed = !calls && probe.kind != PROBE_PRODUCT && probe.kind != PROBE_ACTIVATION;
    const int number = add(w, s, probe);
    if (s->kind == S_LOOP)
        add_loop(w, s, number, in, probe.level);
    else if (s->kind == S_EXTERN && s->ext.barrier && waits(level))
        add_barrier(w, &s->ext.barrier, number, s, statement, level, in, "body");
    else
        add_below(w, s, number, probe.level, repeats);
}

/* How many parts directly in Seq number `in` are timed. */
static int timed_in(const ProbeWalk *w, int in) {
    int n = 0;
    for (int i = 0; i < w->k->all.n; i++) n += w->k->all.p[i].in == in && w->k->all.p[i].timed;
    return n;
}

/* Adds the parts in q; returns its number. `repeats`: a run may execute it many times. */
static int walk(ProbeWalk *w, const Seq *q, int parent, Level level, bool repeats) {
    const int in = w->k->seq.n;
    vec_push(w->p->cx->a, &w->k->seq, ((ProbeSeq){q, 1}));
    map_seti(w->k->number_of, (uintptr_t)q, (void *)(uintptr_t)(in + 1));
    for (int i = 0, first = 0, at = 0; i < q->s.n; i++) {
        if (!q->s.p[i]->beside) first = i, at = w->statement;
        add_stmt(w, q->s.p[i], parent, in, level, repeats);
        /* Those beside the first one share the barrier that follows the last. */
        const bool last = i + 1 == q->s.n || !q->s.p[i + 1]->beside;
        const Stmt *s = q->s.p[first];
        if (last && s->apart && waits(level))
            add_barrier(w, s->apart, parent, s, at, level, in, "apart");
    }
    if (repeats) {
        const double ns = cost_seq_ns(w->p, q, schedule_units(w->p->schedule, level));
        const double most = timed_in(w, in) * PROBE_NS / PROBE_SHARE;
        int every = 1;
        while (every * ns < most && every < EVERY_MOST) every *= 2;
        w->k->seq.p[in].every = every;
    }
    return in;
}

Probes *probes_of(const Program *p) {
    Arena *a = p->cx->a;
    Probes *k = NEW(a, Probes);
    k->part_of = map_new(a);
    k->number_of = map_new(a);
    ProbeWalk w = {.p = p, .k = k};
    const Probe whole = {.kind = PROBE_PROGRAM,
                         .parent = -1,
                         .statement = -1,
                         .level = LEVEL_TEAM,
                         .in = -1,
                         .timed = true};
    add(&w, p, whole);
    walk(&w, p->top, 0, LEVEL_TEAM, false);
    return k;
}

int probe_find(const Probes *k, const void *place) {
    return (int)(uintptr_t)map_geti(k->part_of, (uintptr_t)place) - 1;
}

int probe_seq(const Probes *k, const Seq *q) {
    return (int)(uintptr_t)map_geti(k->number_of, (uintptr_t)q) - 1;
}

void pass_probes(Program *p) {
    if (p->schedule->profile) p->probes = probes_of(p);
}
