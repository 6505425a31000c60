/* onchip.c: see onchip.h.
 *
 * A block's memory holds, one after another: what is there all the time (MemPlan.shared); where
 * residents, and inputs that are read several times, are; what groups need while they run, one at a
 * time; and in the rest, the residents that are read most often. A run with fewer blocks than
 * planned has larger parts, for which there is some room more; those that do not fit there are read
 * from memory, the ones read least often first. */
#include "scheduler/plan/onchip.h"
#include "scheduler/cost/cost.h"
#include "scheduler/cost/decide.h"
#include "scheduler/kernel/dots.h"
#include "scheduler/passes.h"
#include "scheduler/plan/memory.h"
#include "scheduler/plan/within.h"
#include "utask/walk.h"
#include <stdlib.h>

#define MORE 6           /* a run with so many in so many + 1 of the blocks keeps all residents */
#define AHEAD_BYTES 1024 /* of a unit's part, that are worth the instructions */

typedef struct OnchipWalk {
    Program *p;
    OnChip *o;
    int products;  /* at host level, so far; -1: there is one launch */
    double *reads; /* of each input, in a run */
    double runs;   /* of the group at hand */
} OnchipWalk;

/* ---- residents ------------------------------------------------------------------------------- */
/* How often a run executes what is in q; 0: it cannot reach there what the kernel keeps on chip.
 * *unit: the first of the units that execute it. */
static double uses_of(const Seq *q, int *unit) {
    double n = 1;
    *unit = 0;
    for (; q && q->owner; q = q->parent) {
        const Stmt *s = q->owner;
        if (s->kind == S_CALL || s->level == LEVEL_CORE) return 0;
        *unit += s->unit;
        if (s->kind == S_LOOP) n *= cost_size(s->loop.trips);
    }
    return n;
}

static bool same(const Resident *a, const Resident *b) {
    const OwnPart *x = &a->part, *y = &b->part;
    return x->packed == y->packed && x->whole == y->whole && x->pieces == y->pieces &&
           x->n == y->n && x->grain == y->grain && x->words == y->words && a->level == b->level &&
           a->unit == b->unit;
}

/* The resident that part of group s is; NULL: keeping it on chip would gain nothing. */
static const Resident *resident(OnchipWalk *w, const Stmt *s, const OwnPart *part) {
    Arena *a = w->p->cx->a;
    Resident r = {.part = *part,
                  .number = w->o->residents.n,
                  .level = s->level,
                  .phase = w->products < 0 ? -1 : 2 * w->products};
    r.uses = uses_of(s->op.t[0]->seq, &r.unit) / (double)part->choice;
    if (r.uses <= 1 || s->op.inner) return NULL;
    for (int i = 0; i < w->o->residents.n; i++) {
        Resident *old = w->o->residents.p[i];
        if (!same(old, &r)) continue;
        old->uses += r.uses;
        if (old->phase != r.phase) old->phase = -1;
        return old;
    }
    const int units = schedule_units(w->p->schedule, r.level);
    int64_t most = ((part->n + part->grain - 1) / part->grain + units - 1) / units * part->grain;
    if (part->whole || most > part->n) most = part->n;
    r.bytes = part->pieces * most * part->words * 4;
    vec_push(a, &w->o->residents, arena_memdup(a, &r, sizeof r));
    return w->o->residents.p[r.number];
}

static void input_load(void *user, Expr *e) {
    OnchipWalk *w = user;
    const Tensor *t = tensor_root(e->t);
    if (t->kind == TK_INPUT && !t->blob) w->reads[t->index] += w->runs;
}

static void find_inputs(void *user, Stmt *s) {
    OnchipWalk *w = user;
    int unit;
    if (s->kind != S_OP || s->level == LEVEL_HOST) return;
    w->runs = uses_of(s->op.t[0]->seq, &unit);
    stmt_loads(w->p->cx, s, input_load, w);
}

static void find_residents(void *user, Stmt *s) {
    OnchipWalk *w = user;
    if (s->level == LEVEL_HOST) w->products++;
    if (s->kind == S_LOOP && s->loop.within && s->loop.within->k->scratch > w->o->scratch_most)
        w->o->scratch_most = s->loop.within->k->scratch;
    if (s->kind != S_OP) return;
    Kernel *k = s->op.kernel;
    for (int j = 0; j < k->nown; j++) k->own[j].resident = resident(w, s, &k->own[j]);
    const Device *d = w->p->schedule->device;
    int64_t most = k->scratch;
    if (s->op.team) {
        const int64_t room = round_up(div_up(k->scratch * d->warp, s->op.team), 128);
        if (room > w->o->room) w->o->room = room;
        most = w->o->room * (d->threads / d->warp);
    }
    if (most > w->o->scratch_most) w->o->scratch_most = most;
}

static int by_uses(const void *a, const void *b) {
    const Resident *x = *(Resident *const *)a, *y = *(Resident *const *)b;
    if (x->uses != y->uses) return x->uses > y->uses ? -1 : 1;
    return x->number < y->number ? -1 : 1;
}

/* Lays out a block's memory after what is there all the time. */
static void place(Program *p) {
    OnChip *o = p->onchip;
    const int n = o->residents.n, addresses = n + o->inputs.n;
    const int64_t room = p->schedule->device->level[LEVEL_CORE].bytes;
    o->table = round_up(p->mem->shared, 8);
    o->scratch = round_up(o->table + 8 * addresses, 128);
    o->bytes =
        o->scratch_most || addresses ? round_up(o->scratch + o->scratch_most, 128) : p->mem->shared;
    o->kept_at = o->bytes;
    o->by_uses = arena_memdup(p->cx->a, o->residents.p, sizeof(Resident *) * (size_t)n);
    qsort(o->by_uses, (size_t)n, sizeof *o->by_uses, by_uses);
    for (int i = 0; i < n; i++) {
        Resident *r = o->by_uses[i];
        r->kept = o->bytes + round_up(r->bytes, 128) <= room;
        if (r->kept) o->bytes += round_up(r->bytes, 128);
    }
    o->bytes += round_up((o->bytes - o->kept_at) / MORE, 128);
    if (o->bytes > room) o->bytes = room;
}

/* Where residents are decides how long the sums that read them take. */
static void look_near(void *user, Stmt *s) {
    (void)user;
    if (s->kind != S_OP || s->op.kernel->kind != KERNEL_DOTS) return;
    Kernel *k = s->op.kernel;
    for (int i = 0; i < k->nown; i++)
        k->own[i].near = k->own[i].resident && k->own[i].resident->kept;
    s->op.sums_ns = dots_ns(k->dots);
}

/* ---- ahead of barriers ----------------------------------------------------------------------- */
/* The barrier that units have just passed when they reach statement i of q: before it, or at the
 * end of the loop that begins with it. */
static Stmt *barrier_before(const Seq *q, int i) {
    for (i--; i >= 0; i--) {
        if (q->s.p[i]->kind == S_BARRIER) return q->s.p[i];
        if (q->s.p[i]->kind != S_LET && q->s.p[i]->kind != S_CHECK) return NULL;
    }
    Stmt *last = q->s.p[q->s.n - 1];
    return q->owner && q->owner->kind == S_LOOP && last->kind == S_BARRIER ? last : NULL;
}

/* A part that is one piece, and is not kept on chip, is fetched while the unit waits. */
static void fetch_ahead(const Program *p, Stmt *barrier, Kernel *k) {
    for (int i = 0; i < k->nown; i++) {
        OwnPart *o = &k->own[i];
        o->ahead = !o->whole && o->pieces == 1 && !(o->resident && o->resident->kept) &&
                   o->n * o->words * 4 >= (int64_t)AHEAD_BYTES * p->schedule->units;
        if (o->ahead) barrier->barrier.ahead = k;
    }
}

/* For what all units share, outside functions. */
static void find_ahead(const Program *p, Seq *q) {
    for (int i = 0; i < q->s.n; i++) {
        Stmt *s = q->s.p[i], *barrier;
        if (s->kind == S_OP && s->op.kernel->nown && (barrier = barrier_before(q, i)) &&
            barrier->level == LEVEL_TEAM && barrier->meet == MEET_ALL)
            fetch_ahead(p, barrier, s->op.kernel);
        if (stmt_apart(s, LEVEL_TEAM)) continue;
        for (int m = 0; s->kind != S_CALL && m < stmt_nseq(s); m++) find_ahead(p, stmt_seq(s, m));
    }
}

void pass_onchip(Program *p) {
    p->onchip = NEW(p->cx->a, OnChip);
    if (!device_is_gpu(p->schedule->device)) return;
    OnchipWalk w = {.p = p, .o = p->onchip, .products = p->phases ? 0 : -1};
    seq_each(p->top, find_residents, &w);
    w.reads = NEWN(p->cx->a, double, p->nin + 1);
    if (!p->nfunc) seq_each(p->top, find_inputs, &w);
    for (int i = 0; i < p->nin; i++)
        if (w.reads[i] > 1) vec_push(p->cx->a, &p->onchip->inputs, i);
    place(p);
    seq_each(p->top, look_near, NULL);
    find_ahead(p, p->top);
}
