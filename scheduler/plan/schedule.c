/* schedule.c: the unit level of every group and construct: the traverse-based policy of Cocktailer
 * (Algorithm 1).
 *
 * Requires the final groups (fusion and in-place updates are done). Bottom up: each statement gets
 * the level at which it is fastest by itself; then it is merged with the run of statements before
 * it as long as one level for both is no slower than two with a synchronization between them; when
 * all of a body is scheduled, its loop or branch is tried at the level of the body and above.
 * Control flow is never at a lower level than its body's data flow. Sets Stmt.level, Schedule.team.
 *
 * At core level unit 0 does the work and no barrier is needed inside; at team level the units share
 * it, and a barrier stands wherever a statement reads what other units wrote. At cluster level,
 * which is between them, the first cluster does a construct as a team of its own, whose barriers
 * cost less. What is at host level was put there before (library.c): the kernel ends before it. */
#include "scheduler/cost/cost.h"
#include "scheduler/plan/crossing.h"
#include "scheduler/cost/decide.h"
#include "scheduler/plan/library.h"
#include "scheduler/passes.h"
#include "utask/walk.h"

typedef struct Scheduler {
    Program *p;
    Cx *c;
    Schedule *k;
    const Device *d;
    Level level; /* of the units that share what is scheduled: the highest one that it can have */
    bool recursive; /* in the body of a recursive function */
    Map *latency;   /* of a loop or branch: Latency */
} Scheduler;

typedef struct Resource { /* of a device at a level */
    int units;
    double barrier_ns;
} Resource;

typedef struct Latency { /* of a statement or a run, in ns, by level of what it consists of */
    double core,
        team;   /* team: of the units of Scheduler.level, what is better at a lower one there */
    bool apart; /* a lower level is possible */
} Latency;

/* A run of statements of one level: the paper's uProgram. */
typedef struct UProgram {
    int first, last;
    bool control; /* it is one loop, branch or call, whose level is settled already */
    Latency ns;
    Map *fresh; /* tensor id -> itself: written since the last barrier, at team level */
} UProgram;

static Resource get_resource(const Scheduler *x, Level level) {
    const int cluster = device_cluster(x->d);
    if (level == LEVEL_CORE) return (Resource){1, 0};
    if (level == LEVEL_CLUSTER || x->k->units == cluster) /* a grid of one cluster */
        return (Resource){cluster, x->d->level[LEVEL_CLUSTER].barrier_ns};
    return (Resource){x->k->units, x->d->level[LEVEL_TEAM].barrier_ns};
}

/* What was decided since there were `n` decisions is without meaning, but for the last: it led to
 * that. */
static void forget_decisions(Schedule *k, int n) {
    k->decisions.p[n] = k->decisions.p[k->decisions.n - 1];
    k->decisions.n = n + 1;
}

/* ---- Algorithm 1 ----------------------------------------------------------------------------- */
static Latency schedule(Scheduler *x, Seq *q);
static void set_resource(Seq *q, Level level);

static void set_stmt(Stmt *s, Level level) {
    if (s->level == LEVEL_HOST) return;
    if (!s->level || s->level > level) s->level = (uint8_t)level;
    for (int i = 0; i < stmt_nseq(s); i++) set_resource(stmt_seq(s, i), level);
}

/* SetResource: nothing is at a higher level than what it is in. */
static void set_resource(Seq *q, Level level) {
    for (int i = 0; i < q->s.n; i++) set_stmt(q->s.p[i], level);
}

/* The body of a loop is run again with what the iteration before has written. */
static double carried_barriers(Scheduler *x, const Stmt *s, double barrier_ns) {
    Map *fresh = map_new(x->c->a);
    for (int i = 0; i < s->loop.carry.n; i++) fresh_add(fresh, s->loop.carry.p[i].phi);
    for (int i = 0; i < s->loop.body->s.n; i++)
        if (stmt_crosses(x->p, fresh, s->loop.body->s.p[i], false)) return barrier_ns;
    return expr_crosses(x->c, fresh, s->loop.cond_next) ? barrier_ns : 0;
}

static void split_calls(Scheduler *x, Stmt *start, Latency all);

static double best(Latency r) { return r.core < r.team ? r.core : r.team; }

/* The bodies, and what they take. */
static double schedule_bodies(Scheduler *x, Stmt *s) {
    double ns = 0;
    if (s->kind == S_LOOP) {
        double trips = cost_size(s->loop.trips);
        ns = trips * (best(schedule(x, s->loop.body)) +
                      carried_barriers(x, s, get_resource(x, x->level).barrier_ns));
    } else if (s->kind == S_BRANCH) {
        for (int m = 0; m < 2; m++) ns += 0.5 * best(schedule(x, s->br.arm[m]));
    } else {
        bool recursive = x->recursive;
        x->recursive = true;
        double alone = 0;
        for (int i = 0; i < s->call.nfunc; i++) {
            Latency body = schedule(x, s->call.func[i]->body);
            ns += COST_UNKNOWN * best(body);
            alone += COST_UNKNOWN * body.core;
        }
        x->recursive = recursive;
        if (s->call.nfunc) split_calls(x, s, (Latency){alone, ns, false});
    }
    return ns;
}

/* The bodies of s where one cluster runs it. `only_try`: nothing but the time is wanted. */
static double schedule_in_cluster(Scheduler *x, Stmt *s, bool only_try) {
    const int decisions = x->k->decisions.n;
    x->level = LEVEL_CLUSTER;
    double ns = schedule_bodies(x, s);
    x->level = LEVEL_TEAM;
    if (only_try) x->k->decisions.n = decisions;
    return ns;
}

/* ScheduleControlFlow: the bodies first, then the construct at their level or above. */
static Latency schedule_control_flow(Scheduler *x, Stmt *s) {
    const double barrier = get_resource(x, x->level).barrier_ns;
    const int decisions = x->k->decisions.n, cluster = device_cluster(x->d);
    Latency r = {.core = cost_stmt_ns(x->p, s, 1) + barrier};
    r.apart = !x->recursive && stmt_any(s, stmt_is_data, NULL) && !stmt_any(s, stmt_is_call, NULL);
    bool clusters = r.apart && x->level == LEVEL_TEAM && cluster && cluster < x->k->units;
    double in_cluster = clusters ? schedule_in_cluster(x, s, true) + barrier : 0;
    r.team = schedule_bodies(x, s);
    s->level = (uint8_t)x->level;
    s->beside = false;
    s->unit = 0;
    if (clusters && decide(x->p, X_CLUSTER, s, best(r), in_cluster)) {
        forget_decisions(x->k, decisions);
        schedule_in_cluster(x, s, false);
        set_stmt(s, LEVEL_CLUSTER);
        r.team = in_cluster;
    } else if (r.apart && decide(x->p, X_CORE, s, r.team, r.core)) {
        set_stmt(s, LEVEL_CORE);
        r.team = r.core;
    }
    map_seti(x->latency, (uint64_t)(uintptr_t)s, arena_memdup(x->c->a, &r, sizeof r));
    return r;
}

/* ScheduleOperator: one group at each level. */
static Latency schedule_operator(Scheduler *x, Stmt *s) {
    Latency r = {0, 0, true};
    Resource team = get_resource(x, x->level);
    if (s->level == LEVEL_HOST)
        r.core = r.team = library_ns(x->p, s->op.t[0]);
    else if (s->kind == S_OP) {
        r.core = cost_group_ns(x->p, s, 1);
        r.team = cost_group_ns(x->p, s, team.units);
        if (r.team > r.core) r.team = r.core;
    } else
        r.core = r.team = cost_stmt_ns(x->p, s, 1);
    return r;
}

/* ScheduleProgram: a run at the level where it is fastest; the statements of it are of one level
 * from now on. */
static double schedule_program(Scheduler *x, Seq *q, UProgram *u) {
    if (u->control) return u->ns.team;
    Stmt *first = NULL;
    for (int i = u->first; i <= u->last && !first; i++)
        if (q->s.p[i]->kind == S_OP) first = q->s.p[i];
    bool core = first && decide(x->p, X_CORE, first, u->ns.team, u->ns.core);
    for (int i = u->first; i <= u->last; i++)
        q->s.p[i]->level = (uint8_t)(core ? LEVEL_CORE : x->level);
    return core ? u->ns.core : u->ns.team;
}

static bool at_core(const UProgram *u) { return u->control ? false : u->ns.core <= u->ns.team; }

/* ---- constructs side by side ----------------------------------------------------------------- */
/* Sizes that only the run knows, for which memory is taken then; hand-written bodies may take more.
 */
static void open_size(void *user, const Slot *k) {
    int64_t v;
    if (k->kind != SLOT_TENSOR || (k->made != TK_TE && k->made != TK_SCAN)) return;
    const Tensor *t = *k->t;
    bool *open = user;
    *open |= t->rank < 0 && k->made == TK_TE;
    for (int d = 0; d < t->rank; d++) *open |= !e_is_int(t->dim[d], &v);
}

static bool takes_memory(void *user, const Stmt *s) {
    (void)user;
    bool open = s->kind == S_EXTERN || s->kind == S_CALL;
    if (!open) stmt_slots(s, open_size, &open);
    return open;
}

static const Latency *apart_latency(const Scheduler *x, Stmt *s) {
    if (s->kind != S_LOOP && s->kind != S_BRANCH) return NULL;
    const Latency *r = map_geti(x->latency, (uint64_t)(uintptr_t)s);
    return r && r->apart && !stmt_any(s, takes_memory, NULL) ? r : NULL;
}

/* The statements from `first` on that can run beside it: what stands between them and does not
 * depend on them is moved in front. Returns how many there are. */
static int gather(Scheduler *x, Seq *q, int first) {
    const int units = get_resource(x, x->level).units;
    int n = 1;
    for (int i = first + 1; i < q->s.n && n < units; i++) {
        Stmt *s = q->s.p[i];
        for (int k = first; k < first + n; k++)
            if (stmt_uses(x->c, s, q->s.p[k])) return n;
        if (apart_latency(x, s)) {
            if (i != first + n) return n;
            n++;
        } else if (s->kind == S_LET || s->kind == S_OP) {
            memmove(q->s.p + first + 1, q->s.p + first, sizeof *q->s.p * (size_t)(i - first));
            q->s.p[first++] = s;
        } else
            return n;
    }
    return n;
}

/* Independent loops and branches, each on a core of its own, or on a cluster where that is what
 * each wants, instead of one after the other on all of them. Returns what that saves. */
static double side_by_side(Scheduler *x, Seq *q) {
    double saved = 0;
    for (int i = 0; i < q->s.n && !x->recursive; i++) {
        if (!apart_latency(x, q->s.p[i])) continue;
        Stmt *head = q->s.p[i];
        int n = gather(x, q, i);
        while (q->s.p[i] != head) i++;
        const int cluster = device_cluster(x->d);
        bool clusters = x->level == LEVEL_TEAM && cluster && n <= x->k->units / cluster;
        for (int k = i; k < i + n; k++) clusters &= q->s.p[k]->level == LEVEL_CLUSTER;
        double plain = 0, beside = 0;
        for (int k = i; k < i + n; k++) {
            const Latency *r = apart_latency(x, q->s.p[k]);
            const double own = clusters ? r->team : r->core;
            plain += best(*r);
            if (own > beside) beside = own;
        }
        if (n > 1 && decide(x->p, X_PARALLEL, head, plain, beside)) {
            for (int k = i; k < i + n; k++) {
                if (!clusters) set_stmt(q->s.p[k], LEVEL_CORE);
                q->s.p[k]->unit = (uint8_t)((k - i) * (clusters ? cluster : 1));
                q->s.p[k]->beside = k > i;
            }
            saved += plain - beside;
        }
        i += n - 1;
    }
    return saved;
}

/* ---- calls side by side ---------------------------------------------------------------------- */
/* The room for all results is there before the calls. */
static bool may_split(const Stmt *s, const Stmt *start) {
    if (s->kind != S_CALL || s->call.nfunc || s->call.f->start != start) return false;
    for (int i = 0; i < s->call.f->nout; i++)
        if (!s->call.f->room[i]) return false;
    return true;
}

/* Calls from statement *first on that do not need each other's results, at most one for each unit;
 * what stands between them is moved in front. Returns how many there are. */
static int gather_calls(Scheduler *x, Seq *q, int *first, const Stmt *start) {
    int n = 1;
    for (int i = *first + 1; i < q->s.n && n < x->k->units; i++) {
        Stmt *s = q->s.p[i];
        bool call = may_split(s, start);
        if (!call && s->kind != S_LET && s->kind != S_OP && s->kind != S_CHECK) break;
        bool uses = false;
        for (int k = *first; k < i; k++) uses |= stmt_uses(x->c, s, q->s.p[k]);
        if (uses) { /* may wait, with what uses it */
            if (call) break;
            continue;
        }
        int to = *first + (call ? n : 0);
        memmove(q->s.p + to + 1, q->s.p + to, sizeof *q->s.p * (size_t)(i - to));
        q->s.p[to] = s;
        if (call)
            n++;
        else
            ++*first;
    }
    return n;
}

static int each_split(Scheduler *x, Seq *q, const Stmt *start, bool take) {
    int most = 1;
    for (int i = 0; i < q->s.n; i++) {
        Stmt *s = q->s.p[i];
        for (int m = 0; s->kind != S_CALL && m < stmt_nseq(s); m++) {
            int inner = each_split(x, stmt_seq(s, m), start, take);
            if (inner > most) most = inner;
        }
        if (!may_split(s, start)) continue;
        int n = gather_calls(x, q, &i, start);
        for (int k = 0; k < n && n > 1 && take; k++) {
            q->s.p[i + k]->level = LEVEL_CORE;
            q->s.p[i + k]->unit = (uint8_t)k;
            q->s.p[i + k]->beside = k > 0;
        }
        if (n > most) most = n;
        i += n - 1;
    }
    return most;
}

/* Sibling calls of the outermost activation that has some: each by one unit alone, which does all
 * that is below. `all`: what the recursion takes otherwise. Parts of a tree are not even: of n
 * random parts the largest has on average (1 + 1/2 + … + 1/n) / n of it. */
static void split_calls(Scheduler *x, Stmt *start, Latency all) {
    int n = 1;
    if (device_is_gpu(x->d)) return; /* without a stack of the machine's, all units walk one */
    for (int i = 0; i < start->call.nfunc; i++) {
        int most = each_split(x, start->call.func[i]->body, start, false);
        if (most > n) n = most;
    }
    if (n < 2) return;
    double share = 0;
    for (int i = 1; i <= n; i++) share += 1.0 / i / n;
    if (!decide(x->p, X_PARALLEL, start, all.team,
                all.core * share + get_resource(x, LEVEL_TEAM).barrier_ns))
        return;
    for (int i = 0; i < start->call.nfunc; i++)
        each_split(x, start->call.func[i]->body, start, true);
}

/* Schedule: the statements of q in order, each merged into the run before it where that is faster.
 */
static Latency schedule(Scheduler *x, Seq *q) {
    Latency total = {0, 0, true};
    double barrier = get_resource(x, x->level).barrier_ns;
    UProgram u = {0, -1, true, {0, 0, true}, map_new(x->c->a)};
    for (int i = 0; i < q->s.n; i++) {
        Stmt *s = q->s.p[i];
        if (s->each) {
            double ns = cost_stmt_ns(x->p, s, 1);
            s->level = (uint8_t)x->level;
            total.core += ns;
            total.team += ns;
            if (!stmt_crosses(x->p, u.fresh, s, true)) continue;
            total.team += schedule_program(x, q, &u) + barrier;
            u = (UProgram){i + 1, i, true, {0, 0, true}, map_new(x->c->a)};
            continue;
        }
        bool host = s->level == LEVEL_HOST,
             control = host || s->kind == S_LOOP || s->kind == S_BRANCH || s->kind == S_CALL;
        Latency op = control && !host ? schedule_control_flow(x, s) : schedule_operator(x, s);
        UProgram v = {i, i, control, op, NULL};
        bool same = !control && !u.control && u.last >= u.first && at_core(&u) == at_core(&v);
        /* Between two levels there is a barrier where the one reads what the other wrote; at core
         * level none. */
        bool cross = stmt_crosses(x->p, u.fresh, s, false);
        bool meet = same ? cross && !at_core(&v) : !host && stmt_crosses(x->p, u.fresh, s, true);
        total.core += op.core;
        if (!control && !u.control && u.last >= u.first) {
            Latency merged = {u.ns.core + op.core, u.ns.team + op.team + (cross ? barrier : 0),
                              true};
            double apart = best(u.ns) + best(op) + (meet ? barrier : 0);
            if (best(merged) < apart || (same && best(merged) <= apart)) {
                u.ns = merged;
                u.last = i;
                if (cross && !at_core(&u)) u.fresh = map_new(x->c->a);
                stmt_writes(u.fresh, s);
                continue;
            }
        }
        total.team += schedule_program(x, q, &u) + (meet ? barrier : 0);
        const bool apart = stmt_apart(s, x->level);
        v.fresh = meet || host || apart ? map_new(x->c->a) : u.fresh;
        u = v;
        if (!host && !apart) stmt_writes(u.fresh, s);
    }
    total.team += schedule_program(x, q, &u);
    total.team -= side_by_side(x, q);
    return total;
}

/* Of all of it by so many units; Schedule.units is theirs from now on. */
static double schedule_for(Scheduler *x, int units) {
    x->k->units = units;
    return schedule(x, x->p->top).team;
}

static bool is_in_cluster(void *user, const Stmt *s) {
    (void)user;
    return s->level == LEVEL_CLUSTER;
}

/* Where there are clusters the chip has fewer units, for all that is planned from now on. The team
 * asks for all the same: some chips have room for more clusters. */
static void plan_clusters(Program *p) {
    Schedule *k = p->schedule;
    if (seq_any(p->top, is_in_cluster, NULL)) k->units = device_clustered(k->device, k->units);
}

void pass_schedule(Program *p) {
    Schedule *k = p->schedule;
    Scheduler x = {p, p->cx, k, k->device, LEVEL_TEAM, false, map_new(p->cx->a)};
    const int units = k->units, cluster = device_cluster(k->device), decisions = k->decisions.n;
    k->team = 1;
    k->estimate_ns = cost_seq_ns(p, p->top, 1);
    if (units == 1) {
        set_resource(p->top, LEVEL_TEAM);
        return;
    }
    double alone = k->estimate_ns;
    Stmt all = {.kind = S_BRANCH, .path = "", .br = {.arm = {p->top, p->top}}};
    if (cluster && cluster < units) {
        double one = schedule_for(&x, cluster);
        k->decisions.n = decisions;
        k->estimate_ns = schedule_for(&x, units);
        if (!decide(p, X_GRID, &all, one, k->estimate_ns)) {
            forget_decisions(k, decisions);
            k->estimate_ns = schedule_for(&x, cluster);
        }
    } else
        k->estimate_ns = schedule_for(&x, units);
    k->speedup = k->estimate_ns < alone ? alone / k->estimate_ns : 1;
    if (decide(p, X_TEAM, &all, alone, k->estimate_ns)) k->team = k->units;
    plan_clusters(p);
}
