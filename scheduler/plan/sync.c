/* sync.c: where units must synchronize.
 *
 * Requires the distribution (which unit touches which part) and the memory plan (which tensors
 * share memory). Walks the tree in order of execution and remembers what was touched since the last
 * barrier. A BARRIER goes before a statement that touches memory in conflict with that: one of the
 * two accesses writes, and a unit may touch what another one touched. At the end of a loop body the
 * same question is asked about the next iteration; a carried value's two buffers make the overwrite
 * safe, so one crossing costs at most one barrier an iteration. Where a unit is a block of
 * threads, the same walk is made again for the threads of a unit, any of which may touch any
 * element of its part: barriers of units serve them as well; where there is none, a block barrier
 * is put in. Leaves BARRIER statements in the tree: at team level for all units, at cluster level
 * for those of one, at core level for the threads of a block. Where units synchronize within a
 * statement, the statement says so: Stmt.apart, Stmt.ext.barrier, LoopCarry.closes, and copies,
 * barrier and block_barrier of a loop. Code generation adds no barriers except those inside a
 * group's own function and for the records of the stack. */
#include "utask/extern.h"
#include "scheduler/cost/decide.h"
#include "scheduler/kernel/kernel.h"
#include "scheduler/plan/access.h"
#include "scheduler/plan/beside.h"
#include "scheduler/plan/distribute.h"
#include "scheduler/plan/memory.h"
#include "scheduler/plan/parts.h"
#include "scheduler/plan/strips.h"
#include "scheduler/plan/within.h"
#include "scheduler/passes.h"
#include "utask/walk.h"

typedef struct Alias { /* t may be `of`'s memory */
    Tensor *t, *of;
} Alias;

typedef struct Flag {
    int past; /* 1 + the unit that waits, or is waited for; 0: none */
    int from; /* the first access in the log behind it */
} Flag;

typedef struct LoopState {
    Stmt *s;
    struct LoopState *up;
    int first;    /* of its accesses in the log */
    int until;    /* accesses before the first barrier that every iteration passes; -1: none yet */
    int branches; /* branches around its body's statements */
    bool moving;  /* arena addresses differ between iterations */
    Flag gather, release; /* the first that every iteration passes */
} LoopState;

typedef struct Sync {
    Program *p;
    Cx *c;
    Arena *a;
    AccessVec pending, now, log;
    VEC(Alias) alias;
    AccessVec by_alias; /* joins and phis that the present access has reached */
    LoopState *loop;
    int branches;
    bool threads, teams;        /* the walk for the threads of a unit, some of which work apart */
    Level level;                /* of the units that share what is here… */
    int unit;                   /* … and the first of them */
    struct ResultPart **result; /* by function id: of each result */
} Sync;

/* No other unit is involved: one unit runs what is here. */
static bool alone(const Sync *x) { return !x->threads && x->level == LEVEL_CORE; }

static Sync sync_new(Program *p, bool threads, struct ResultPart **result) {
    return (Sync){.p = p,
                  .c = p->cx,
                  .a = p->cx->a,
                  .threads = threads,
                  .level = LEVEL_TEAM,
                  .result = result};
}

/* ---- accesses -------------------------------------------------------------------------------- */
/* How the units that run what is here make an access by parts: the first of them is unit 0. */
static Part part_here(const Sync *x, Part part) {
    if (x->threads) return part_whole;
    if (x->level == LEVEL_CORE) return part_of_unit(x->unit);
    if (part.kind == PART_SOLO) part.dim += x->unit;
    return part;
}

/* An access to memory of no tensor, by the statement whose accesses are in x->now. */
static void touch_own(Sync *x, AccessKind kind, bool write, Part part) {
    vec_push(x->a, &x->now, ((Access){.kind = kind, .write = write, .part = part}));
}

/* Whether the present access reaches t in this way for the first time. A join may be reached
 * through each of its arms, and the joins after it through each of these. */
static bool is_new(Sync *x, Tensor *t, Part part, Tensor *elem) {
    const Access a = {.t = t, .elem = elem, .part = part};
    if (access_in(&x->by_alias, &a)) return false;
    vec_push(x->a, &x->by_alias, a);
    return true;
}

static void touch_part(Sync *x, Tensor *t, bool write, Part part, Tensor *elem) {
    if (t->kind == TK_VIEW) {
        touch_part(x, t->base, write, part.kind == PART_SOLO ? part : part_whole, elem);
        return;
    }
    Mem *m = mem_of(t);
    if (m && m->each && !x->threads) { /* no other unit touches it where it lies now */
        if (!m->block) touch_own(x, ON_TAKEN, true, part_whole);
        return;
    }
    if (m && m->kind == M_ELEM) { /* dimension 0 of the stacked tensor is the iteration */
        if (part.kind == PART_SPLIT) part.dim++;
        touch_part(x, m->via, write, part, elem ? elem : t);
        return;
    }
    if (m && m->kind == M_SHARED) {
        touch_part(x, m->via, write, part, elem);
        return;
    }
    const bool rows = m && m->kind == M_ROWS;
    bool append = t->kind == TK_TE && (t->base || rows);
    if (rows) elem = t;
    if (append) {
        t = m->via;
        m = mem_of(t);
    }
    bool other = t->kind == TK_JOIN || (t->kind == TK_PHI && !write && !t->grow);
    if (other && is_new(x, t, part, elem))
        for (int i = 0; i < x->alias.n; i++)
            if (x->alias.p[i].t == t && x->alias.p[i].of)
                touch_part(x, x->alias.p[i].of, write, part, elem);
    if (t->kind == TK_JOIN || t->kind == TK_CONST || t->kind == TK_INPUT || !m) return;
    Access a = {ON_TENSOR, t, elem, write, append && write, rows && write, 0, part};
    if (!access_in(&x->now, &a)) vec_push(x->a, &x->now, a);
}

static void touch(Sync *x, Tensor *t, bool write, Part part) {
    x->by_alias.n = 0;
    if (t) touch_part(x, t, write, part_here(x, part), NULL);
}

static Conflict conflict_of(const Access *before, const Access *after) {
    return (Conflict){before->t, after->t, before->write, after->write};
}

/* All units synchronize after the accesses in the log. */
static void met(Sync *x) {
    x->pending.n = 0;
    LoopState *l = x->loop; /* not every iteration of outer loops passes here */
    if (l && l->branches == x->branches && l->until < 0) l->until = x->log.n;
}

static void barrier_at(Sync *x, Seq *q, int *at, Conflict why) {
    Stmt *s = stmt_new(x->c, S_BARRIER, "");
    s->barrier.why = why;
    s->level = x->threads ? LEVEL_CORE : x->level;
    seq_put_at(x->c, q, (*at)++, s);
    met(x);
}

/* A flag in place of a barrier where one unit waits for the others, or they for it (`one`): a unit
 * that does not wait goes on. There are no flags from some units to some others. */
static void flag_at(Sync *x, Seq *q, int *at, Meet meet, int one, Conflict why) {
    Stmt *s = stmt_new(x->c, S_BARRIER, "");
    s->barrier.why = why;
    s->level = LEVEL_TEAM;
    s->meet = (uint8_t)meet;
    s->unit = (uint8_t)one;
    seq_put_at(x->c, q, (*at)++, s);
    int n = 0;
    for (int i = 0; i < x->pending.n; i++) {
        Access *b = &x->pending.p[i];
        if (meet == MEET_GATHER)
            b->past = one + 1;
        else if (access_unit(b) == one || b->past == one + 1)
            continue; /* all are past it */
        x->pending.p[n++] = *b;
    }
    x->pending.n = n;
    LoopState *l = x->loop;
    Flag *f = l && meet == MEET_GATHER ? &l->gather : l ? &l->release : NULL;
    if (f && l->branches == x->branches && !f->past) *f = (Flag){one + 1, x->log.n};
}

static void append(Sync *x, AccessVec *to, const AccessVec *v) {
    for (int i = 0; i < v->n; i++) vec_push(x->a, to, v->p[i]);
}

/* The present accesses are made. */
static void add_now(Sync *x) {
    append(x, &x->pending, &x->now);
    append(x, &x->log, &x->now);
    x->now.n = 0;
}

/* Puts a barrier or a flag before statement *at of q if what it touches (x->now) needs one. */
static void order(Sync *x, Seq *q, int *at) {
    bool need = false,
         flags = !x->threads && x->level == LEVEL_TEAM && device_is_gpu(x->p->schedule->device);
    int to = -2, from = -2; /* the one unit that waits, or is waited for; -1: several */
    Conflict why = {0};
    for (int i = 0; i < x->now.n; i++)
        for (int j = 0; j < x->pending.n; j++) {
            const Access *a = &x->now.p[i], *b = &x->pending.p[j];
            if (!access_conflict(a, b) || access_past(a, b)) continue;
            if (!need) why = conflict_of(b, a);
            need = true;
            to = to == -2 || to == access_unit(a) ? access_unit(a) : -1;
            from = from == -2 || from == access_unit(b) ? access_unit(b) : -1;
        }
    if (need && flags && to >= 0)
        flag_at(x, q, at, MEET_GATHER, to, why);
    else if (need && flags && from >= 0)
        flag_at(x, q, at, MEET_RELEASE, from, why);
    else if (need)
        barrier_at(x, q, at, why);
    add_now(x);
}

static void touch_load(void *user, Expr *e) { touch(user, e->t, false, part_whole); }
static void touch_expr(Sync *x, Expr *e) {
    if (e && (e->flags & EF_LOAD)) e_each_load(x->c, e, touch_load, x);
}

typedef struct OpScan {
    Sync *x;
    Stmt *s;
} OpScan;
static void touch_op(void *user, Expr *e) {
    OpScan *k = user;
    for (int i = 0; i < k->s->op.n; i++)
        if (k->s->op.t[i] == e->t) return; /* members are read at their own positions */
    touch(k->x, e->t, false, k->s->each ? part_whole : part_read(k->x->c, k->s, e->t));
}

/* Where the arena address of t is taken anew in each iteration. */
static void note_bump(Sync *x, const Tensor *t) {
    const Mem *m = mem_of(t);
    if (!m || m->kind != M_BUMP) return;
    for (LoopState *l = x->loop; l; l = l->up) {
        if (l->branches != x->branches || t->blob || t->grow) l->moving = true;
        for (int i = 0; i < MAX_RANK; i++) l->moving |= !loop_keeps(l->s, t->dim[i]);
    }
}

/* What a group reads and writes. */
static void touch_group(Sync *x, Stmt *s) {
    OpScan k = {x, s};
    stmt_loads(x->c, s, touch_op, &k);
    for (int m = 0; m < s->op.n; m++) {
        touch(x, s->op.t[m], true, part_written(s));
        note_bump(x, s->op.t[m]);
    }
}

/* The present statement takes arena memory for itself, and uses its part of it; how much is known
 * at run time only. */
static void take(Sync *x, Part part) {
    touch_own(x, ON_TAKEN, true, part_here(x, part));
    for (LoopState *l = x->loop; l; l = l->up) l->moving = true;
}

/* A group by all threads of a unit has used all of its scratch. The next one begins with a block
 * barrier for that, but teams do not. */
static void use_scratch(Sync *x) {
    const Access a = {.kind = ON_SCRATCH, .write = true, .part = part_whole};
    if (!x->teams) return;
    vec_push(x->a, &x->pending, a);
    vec_push(x->a, &x->log, a);
}

/* ---- statements ------------------------------------------------------------------------------ */
static void walk(Sync *x, Seq *q);

/* Whether access `at` of the log comes, in each iteration, behind a flag that orders it after
 * access a of the iteration before. */
static bool flagged(const Sync *x, const LoopState *l, const Access *a, int at) {
    const Flag *to = &l->gather, *from = &l->release;
    const bool waits = to->past && at >= to->from && access_unit(&x->log.p[at]) == to->past - 1;
    return waits || (from->past && at >= from->from &&
                     (access_unit(a) == from->past - 1 || a->past == from->past));
}

/* Whether access b in an iteration must wait for a in an earlier one. */
static bool must_wait(Access a, Access b, const LoopState *l) {
    const bool moved = l->moving && (a.write || b.write) && access_taken(&a, l->s) &&
                       access_taken(&b, l->s) &&
                       (access_unit(&a) < 0 || access_unit(&a) != access_unit(&b));
    b.rows = false;
    return (moved || access_conflict_later(&b, &a, l->s)) && !access_past(&b, &a);
}

static void walk_loop(Sync *x, Seq *q, int *at, Stmt *s) {
    if (s->loop.trips) touch_expr(x, s->loop.trips);
    touch_expr(x, s->loop.cond0);
    order(x, q, at);
    for (int i = 0; i < s->loop.scan.n; i++) note_bump(x, s->loop.scan.p[i].out);
    for (int i = 0; i < s->loop.carry.n; i++) {
        LoopCarry *k = &s->loop.carry.p[i];
        const Grow *g = k->phi->grow;
        k->closes = g && g->spaced && g->room;
        vec_push(x->a, &x->alias, ((Alias){k->phi, k->init}));
        note_bump(x, k->phi);
        if (!k->inplace || !k->init) continue;
        touch(x, k->init, false, part_whole);
        touch(x, k->phi, true, part_whole);
        s->loop.copies = true;
    }
    order(x, q, at);
    if (s->loop.copies)
        x->pending.n = 0; /* each unit copies its share of the bytes, then all synchronize */
    AccessVec before = x->pending;
    LoopState l = {.s = s, .up = x->loop, .first = x->log.n, .until = -1, .branches = x->branches};
    x->loop = &l;
    x->pending = (AccessVec){0};
    Seq *body = s->loop.body;
    walk(x, body);
    int end = body->s.n;
    touch_expr(x, s->loop.cond_next);
    for (int i = 0; i < s->loop.syms.n; i++) touch_expr(x, s->loop.syms.p[i].next);
    order(x, body, &end);
    /* What is pending here may conflict with the next iteration's accesses up to its first barrier.
     */
    int until = l.until < 0 ? x->log.n : l.until;
    bool need = false;
    Conflict why = {0};
    for (int i = 0; i < x->pending.n && !need; i++)
        for (int j = l.first; j < until && !need; j++) {
            const Access *a = &x->pending.p[i], *b = &x->log.p[j];
            if (flagged(x, &l, a, j)) continue;
            need = must_wait(access_turned(*a, s), access_in_place(*b, s), &l) ||
                   (l.until < 0 && must_wait(access_carried(*a, s), access_carried(*b, s), &l));
            why = conflict_of(a, b);
        }
    bool agree =
        x->threads &&
        x->level ==
            LEVEL_CORE; /* the threads of one block synchronize there anyway, to agree on faults */
    if (!x->threads)
        s->loop.barrier = need && !alone(x);
    else
        s->loop.block_barrier = need && !s->loop.barrier && !agree;
    if (x->threads ? s->loop.block_barrier : s->loop.barrier) s->loop.why = why;
    if (s->loop.barrier || s->loop.block_barrier || agree) x->pending.n = 0;
    x->loop = l.up;
    if (s->loop.parts > 1) parts_settle(s);
    /* After the loop a phi is what was written last. */
    for (int i = 0; i < x->pending.n; i++) x->pending.p[i] = access_carried(x->pending.p[i], s);
    /* What was pending before the loop: one barrier before it, if the body needs one. */
    bool entry = false;
    for (int i = 0; i < before.n && !entry && !alone(x); i++)
        for (int j = l.first; j < until && !entry; j++)
            if ((entry = access_conflict(&x->log.p[j], &before.p[i])))
                why = conflict_of(&before.p[i], &x->log.p[j]);
    if (entry) {
        AccessVec after = x->pending;
        x->pending = (AccessVec){0};
        barrier_at(x, q, at, why);
        x->pending = after;
    } else
        append(x, &x->pending, &before);
}

/* Of what such a loop's body touches. */
static void touch_within(void *user, Expr *e) {
    OpScan *k = user;
    for (Tensor *t = tensor_root(e->t); t; t = NULL)
        if (t->seq != k->s->loop.body && !loop_carries(k->s, t))
            touch(k->x, e->t, false, part_whole);
}

/* To a unit's threads a loop with the time inside is one function: each touches its own positions
 * of what the loop makes. */
static void walk_within(Sync *x, Seq *q, int *at, Stmt *s) {
    OpScan k = {x, s};
    if (s->loop.trips) touch_expr(x, s->loop.trips);
    order(x, q, at);
    for (int i = 0; i < s->loop.carry.n; i++) {
        vec_push(x->a, &x->alias, ((Alias){s->loop.carry.p[i].phi, s->loop.carry.p[i].init}));
        touch(x, s->loop.carry.p[i].init, false, part_whole);
    }
    for (int i = 0; i < s->loop.body->s.n; i++)
        stmt_loads(x->c, s->loop.body->s.p[i], touch_within, &k);
    for (int i = 0; i < s->loop.carry.n; i++) touch(x, s->loop.carry.p[i].next, true, part_whole);
    for (int i = 0; i < s->loop.scan.n; i++) touch(x, s->loop.scan.p[i].elem, true, part_whole);
    order(x, q, at);
    if (s->loop.within->k->scratch) use_scratch(x);
    for (int i = 0; i < x->pending.n; i++) x->pending.p[i] = access_carried(x->pending.p[i], s);
}

static void walk_branch(Sync *x, Seq *q, int *at, Stmt *s) {
    touch_expr(x, s->br.cond);
    order(x, q, at);
    AccessVec before = x->pending, after = {0};
    x->branches++;
    for (int k = 0; k < 2; k++) {
        x->pending = (AccessVec){0};
        append(x, &x->pending, &before);
        walk(x, s->br.arm[k]);
        int end = s->br.arm[k]->s.n;
        for (int i = 0; i < s->br.syms.n; i++) touch_expr(x, s->br.syms.p[i].arm[k]);
        order(x, s->br.arm[k], &end);
        for (int i = 0; i < s->br.joins.n; i++) {
            const Join *j = &s->br.joins.p[i];
            if (j->arm[k]) vec_push(x->a, &x->alias, ((Alias){j->out, j->arm[k]}));
        }
        append(x, &after, &x->pending);
    }
    x->branches--;
    x->pending.n = 0;
    for (int i = 0; i < after.n; i++)
        if (!access_in(&x->pending, &after.p[i])) vec_push(x->a, &x->pending, after.p[i]);
}

/* ---- calls ----------------------------------------------------------------------------------- */
/* What a function does is seen by its caller as: it reads its arguments and what it captures, it
 * writes its results, by parts where all that it does with a result is by the same parts. An
 * activation's own memory is used by nobody else: it lies above the caller's, and the arena's top
 * goes down only at a barrier, or before an iteration that follows a barrier. So nothing that
 * matters is pending when a body starts, and bodies are walked on their own. */
typedef struct Captures {
    Sync *x;
    const Seq *from;
} Captures;

static void capture(Captures *k, const Tensor *t) {
    Tensor *root = tensor_root(t);
    for (const Seq *q = k->from; q; q = q->parent)
        if (q == root->seq) touch(k->x, root, false, part_whole);
}
static void capture_load(void *user, Expr *e) { capture(user, e->t); }

/* What is read from outside. */
static void capture_slot(void *user, const Slot *s) {
    Captures *k = user;
    if (s->kind == SLOT_READ) capture(k, *s->t);
    if (slot_is_expr(s)) e_each_load(k->x->c, *s->e, capture_load, k);
}

typedef struct ResultPart { /* how a function touches one of its results */
    bool set;
    Part part;
} ResultPart;

typedef struct Results {
    Sync *x;
    const Func *f;
    const Stmt *s;    /* at hand */
    ResultPart *part; /* of f */
    bool changed;
} Results;

/* i: a result; -1: none. */
static void meet(Results *r, int i, Part p) {
    if (i < 0) return;
    ResultPart *k = &r->part[i];
    bool plain = p.kind != PART_SPLIT ||
                 expr_visible(p.extent, r->f->body->parent); /* the same in each call */
    if (!plain) p = part_whole;
    if (!k->set)
        *k = (ResultPart){true, p};
    else if (k->part.kind == PART_WHOLE || part_same(k->part, p))
        return;
    else
        k->part = part_whole;
    r->changed = true;
}

/* The result of r->f that t is part of, or -1. */
static int result_of(const Results *r, const Tensor *t) {
    t = tensor_root(t);
    if (!t->ret) return -1;
    const Seq *q = t->seq;
    while (q && !(q->owner && q->owner->kind == S_CALL)) q = q->parent;
    return q == r->f->body ? t->ret - 1 : -1;
}

static void result_load(void *user, Expr *e) {
    Results *r = user;
    int i = result_of(r, e->t);
    if (i < 0) return;
    const Stmt *group = r->s->kind == S_OP ? r->s : NULL;
    for (int k = 0; group && k < group->op.n; k++)
        if (group->op.t[k] == e->t) return; /* members are read at their own positions */
    meet(r, i,
         group && !group->each && e->t->kind != TK_VIEW ? part_read(r->x->c, group, e->t)
                                                        : part_whole);
}

static void result_parts(Sync *x, const Stmt *s);
static void results_seq(Results *r, const Seq *q);

static void result_slot(void *user, const Slot *k) {
    Results *r = user;
    if (slot_is_expr(k)) e_each_load(r->x->c, *k->e, result_load, r);
    if (k->kind == SLOT_READ && r->s->kind != S_BRANCH) meet(r, result_of(r, *k->t), part_whole);
    if (k->kind == SLOT_SEQ) results_seq(r, *k->q);
}

static void results_seq(Results *r, const Seq *q) {
    const Stmt *around = r->s;
    for (int i = 0; i < q->s.n; i++) {
        const Stmt *s = r->s = q->s.p[i];
        for (int k = 0; s->kind == S_OP && k < s->op.n; k++)
            meet(r, result_of(r, s->op.t[k]), part_written(s));
        if (s->kind == S_CALL && s->call.nfunc && !r->x->result[s->call.f->id])
            result_parts(r->x, s);
        for (int k = 0; s->kind == S_CALL && k < s->call.f->nout; k++) {
            const ResultPart *p = &r->x->result[s->call.f->id][k];
            if (p->set) meet(r, result_of(r, s->call.out[k]), stmt_split(s) ? part_whole : p->part);
        }
        stmt_slots(s, result_slot, r);
    }
    r->s = around;
}

/* Fills in x->result of the functions that hang on s. */
static void result_parts(Sync *x, const Stmt *s) {
    bool changed = true;
    for (int i = 0; i < s->call.nfunc; i++)
        x->result[s->call.func[i]->id] = NEWN(x->a, ResultPart, s->call.func[i]->nout + 1);
    while (changed) {
        changed = false;
        for (int i = 0; i < s->call.nfunc; i++) {
            Results r = {.x = x, .f = s->call.func[i], .part = x->result[s->call.func[i]->id]};
            results_seq(&r, r.f->body);
            changed |= r.changed;
        }
    }
}

/* To its caller. */
static void touch_call(Sync *x, const Seq *q, Stmt *s) {
    const Func *f = s->call.f;
    Captures k = {x, q};
    for (int i = 0; i < f->narg; i++) touch(x, s->call.arg[i], false, part_whole);
    for (int i = 0; i < s->call.nfunc; i++) seq_slots(s->call.func[i]->body, capture_slot, &k);
    for (int i = 0; i < f->nout; i++) {
        const ResultPart *p = &x->result[f->id][i];
        touch(x, s->call.out[i], true,
              f->room[i] && p->set && !stmt_split(s) ? p->part : part_whole);
        note_bump(x, s->call.out[i]);
    }
}

static void walk_call(Sync *x, Seq *q, int *at, Stmt *s) {
    if (s->call.nfunc && !x->result[s->call.f->id]) result_parts(x, s);
    touch_call(x, q, s);
    take(x, part_whole);
    if (x->threads) touch_own(x, ON_RECORD, true, part_whole);
    order(x, q, at);
    if (x->threads && !s->call.nfunc) {
        met(x); /* when the callee returns */
        touch_own(x, ON_RECORD, false, part_whole);
        order(x, q, at);
    }
    for (int i = 0; i < s->call.nfunc; i++) {
        Sync in = sync_new(x->p, x->threads, x->result);
        in.alias = x->alias;
        in.level = x->level;
        walk(&in, s->call.func[i]->body);
        x->alias = in.alias;
    }
}

/* Planned by every unit from the inputs, run by unit 0. */
static void walk_extern(Sync *x, Seq *q, int *at, Stmt *s) {
    const ExternRow *row = s->ext.row;
    const unsigned late = x->threads ? row->late : 0;
    for (int turn = 0; turn < 2; turn++) {
        for (int k = 0; k < s->ext.nin; k++)
            if ((int)(late >> k & 1) == turn)
                touch(x, s->ext.in[k], false,
                      row->plan_reads >> k & 1 || s->each ? part_whole : part_solo);
        for (int k = 0; k < s->ext.nout && turn == !!late; k++) {
            touch(x, s->ext.out[k], true, part_solo);
            note_bump(x, s->ext.out[k]);
        }
        if (row->plan && !turn) take(x, s->each ? part_whole : part_solo); /* scratch */
        if (turn)
            add_now(x);
        else
            order(x, q, at);
    }
    s->ext.barrier = row->changes_input; /* which the plans of all units read */
}

/* Statement *at and those beside it: each is run by one unit or one cluster, then all synchronize.
 * What they touch may need a barrier before them. Those beside each other share no memory. */
static void walk_apart(Sync *x, Seq *q, int *at) {
    AccessVec before = x->pending;
    const Level level = x->level;
    const int unit = x->unit;
    int first = x->log.n;
    if (x->threads && x->pending.n)
        /* there is no place for one between constructs beside each other */
        barrier_at(x, q, at, (Conflict){0});
    if (!x->threads) q->s.p[*at]->apart = NEW(x->a, Apart);
    do {
        Stmt *s = q->s.p[*at];
        int own = *at;
        x->pending = (AccessVec){0};
        x->level = s->level;
        x->unit = unit + s->unit;
        if (s->kind == S_LOOP && x->threads && s->loop.within)
            walk_within(x, q, &own, s);
        else if (s->kind == S_LOOP)
            walk_loop(x, q, &own, s);
        else
            walk_branch(x, q, &own, s);
        ASSERT(own == *at);
    } while (++*at < q->s.n && q->s.p[*at]->beside);
    x->level = level;
    x->unit = unit;
    bool need = false;
    Conflict why = {0};
    for (int i = first; i < x->log.n && !need && !x->threads; i++)
        for (int j = 0; j < before.n && !need; j++)
            if ((need = access_conflict(&x->log.p[i], &before.p[j])))
                why = conflict_of(&before.p[j], &x->log.p[i]);
    int front = *at - 1;
    while (q->s.p[front]->beside) front--;
    (*at)--;
    if (need) barrier_at(x, q, &front, why), (*at)++;
    met(x);
}

/* Calls, each by one unit; then all synchronize. */
static void walk_split(Sync *x, Seq *q, int *at) {
    int first = *at;
    if (!x->threads) q->s.p[first]->apart = NEW(x->a, Apart);
    do touch_call(x, q, q->s.p[*at]);
    while (++*at < q->s.n && q->s.p[*at]->beside);
    take(x, part_whole);
    int n = *at - first;
    order(x, q, &first);
    *at = first + n - 1;
    met(x);
}

/* The kernel ends before statement *at, at host level, and is launched again after it. The next
 * launch relies on whose turn it is at the barrier's words: no block may finish with them before
 * all blocks have begun this launch. */
static void end_launch(Sync *x, Seq *q, int *at) {
    bool turns = false, together = false;
    for (int i = *at - 1; i >= 0 && q->s.p[i]->level != LEVEL_HOST; i--) {
        const Stmt *s = q->s.p[i];
        const bool barrier = s->kind == S_BARRIER && s->level == LEVEL_TEAM;
        together |= stmt_apart(s, LEVEL_TEAM) || (barrier && s->meet == MEET_ALL);
        turns |= barrier || (s->kind != S_LET && s->kind != S_CHECK && s->kind != S_OP &&
                             s->kind != S_BARRIER);
    }
    if (!x->threads && turns && !together) barrier_at(x, q, at, (Conflict){0});
    met(x);
}

static void walk(Sync *x, Seq *q) {
    for (int i = 0; i < q->s.n; i++) {
        Stmt *s = q->s.p[i];
        switch (s->kind) {
        case S_LET:
            touch_expr(x, s->let.e);
            order(x, q, &i);
            break;
        case S_OP: {
            if (s->level == LEVEL_HOST) end_launch(x, q, &i);
            if (op_is_empty(s) || s->level == LEVEL_HOST) break;
            const int n = s->op.band ? strip_run(q, i) : beside_run(q, i);
            for (int k = 0; k < n; k++) touch_group(x, q->s.p[i + k]);
            for (int k = 0; k < n && x->threads && s->op.team; k++)
                if (q->s.p[i + k]->op.kernel->scratch) touch_own(x, ON_SCRATCH, false, part_whole);
            /* A unit's strips read what it wrote, and of the next unit's first one. */
            s->op.meets = n > 1 && s->op.band && s->op.split && s->op.band->crosses && !alone(x);
            order(x, q, &i);
            if (!s->op.team && s->op.kernel->scratch) use_scratch(x);
            i += n - 1;
            break;
        }
        case S_EXTERN:
            if (!s->ext.host) walk_extern(x, q, &i, s);
            break;
        case S_LOOP:
        case S_BRANCH:
            if (stmt_apart(s, x->level))
                walk_apart(x, q, &i);
            else if (s->kind == S_LOOP && x->threads && s->loop.within)
                walk_within(x, q, &i, s);
            else if (s->kind == S_LOOP)
                walk_loop(x, q, &i, s);
            else
                walk_branch(x, q, &i, s);
            break;
        case S_CALL:
            if (stmt_split(s))
                walk_split(x, q, &i);
            else
                walk_call(x, q, &i, s);
            break;
        case S_BARRIER: met(x); break; /* of an earlier walk */
        default: break;
        }
    }
}

static bool by_team(void *user, const Stmt *s) {
    (void)user;
    return s->kind == S_OP && s->op.team;
}

void pass_sync(Program *p) {
    Sync x = sync_new(p, false, NEWN(p->cx->a, ResultPart *, p->nfunc + 1));
    walk(&x, p->top);
    /* The outputs are whole before the kernel ends. */
    int end = p->top->s.n;
    barrier_at(&x, p->top, &end, (Conflict){0});
    if (!device_is_gpu(p->schedule->device)) return;
    loops_within(p);
    Sync threads = sync_new(p, true, x.result);
    threads.teams = seq_any(p->top, by_team, NULL);
    walk(&threads, p->top);
}

Level seq_level(const Seq *q) {
    Level level = LEVEL_TEAM;
    for (; q; q = q->parent)
        if (q->owner && stmt_apart(q->owner, level)) level = q->owner->level;
    return level;
}

/* What s has of them at the level of the units that run it, inner statements apart. */
static int own_barriers(const Stmt *s) {
    int n = (s->kind == S_EXTERN && s->ext.barrier) || (s->kind == S_OP && s->op.meets);
    if (s->kind != S_LOOP) return n;
    n += s->loop.copies;
    for (int i = 0; i < s->loop.carry.n; i++) n += s->loop.carry.p[i].closes ? 2 : 0;
    return n;
}

int sync_count(const Seq *q, Level level) {
    const Level here = seq_level(q);
    int n = here == level && q->owner && q->owner->kind == S_LOOP && q->owner->loop.barrier;
    for (int i = 0; i < q->s.n; i++) {
        const Stmt *s = q->s.p[i];
        n += (s->kind == S_BARRIER && s->level == level && s->meet == MEET_ALL) ||
             (here == level && s->apart);
        if (level == (stmt_apart(s, here) ? s->level : here)) n += own_barriers(s);
        if (s->kind == S_BRANCH)
            n += sync_count(s->br.arm[0], level) + sync_count(s->br.arm[1], level);
    }
    return n;
}

int sync_flags(const Seq *q) {
    int n = 0;
    for (int i = 0; i < q->s.n; i++) {
        const Stmt *s = q->s.p[i];
        n += s->kind == S_BARRIER && s->meet != MEET_ALL;
        if (s->kind == S_BRANCH) n += sync_flags(s->br.arm[0]) + sync_flags(s->br.arm[1]);
    }
    return n;
}
