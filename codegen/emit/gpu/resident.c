/* resident.c: constants that stay in each unit's own memory for the whole run, on GPUs.
 *
 * A packed operand that is read in a loop is asked for while its group's function is written, and
 * is known by the name of a pointer from then on. When all of the program is written it is known
 * what the groups themselves need of a block's memory; what is left goes to those that are read
 * most often. The pointer leads to the unit's own part in any case, on chip or not: a run with
 * fewer blocks than planned has larger parts, which may not fit. The functions that read them begin
 * with a block barrier. */
#include "codegen/emit/emit.h"
#include "scheduler/cost/cost.h"
#include "scheduler/cost/decide.h"
#include "scheduler/passes.h"
#include <stdlib.h>

const char *unit_cluster(const Emit *em, int first, const char *is) {
    return arena_printf(em->a, "unit / BK_CLUSTER %s %d %% (nunit / BK_CLUSTER)", is,
                        first / device_cluster(em->p->schedule->device));
}

/* How often a run comes to what is in q; 0: what is kept on chip by the kernel is out of reach
 * there. *unit: the first of the units that do. */
static double uses_of(const Seq *q, int *unit) {
    double n = 1;
    *unit = 0;
    for (; q && q->owner; q = q->parent) {
        const Stmt *s = q->owner;
        if (s->kind == S_CALL || s->level == LEVEL_CORE) return 0;
        *unit += s->unit;
        if (s->kind == S_LOOP) n *= cost_trips(s->loop.trips);
    }
    return n;
}

const char *resident(Emit *em, const Group *g, Resident r, int64_t choice) {
    r.level = g->k->s->level;
    r.phase = em->phases ? em->phases->text.n : -1;
    r.uses = uses_of(g->k->t[0]->seq, &r.unit) / (double)choice;
    r.grain = 1;
    if (r.uses <= 1 || g->k->s->op.inner || (!r.whole && !e_is_int(g->k->grain, &r.grain))) return NULL;
    for (int i = 0; i < em->residents.n; i++) {
        Resident *old = &em->residents.p[i];
        if (old->weights != r.weights || old->whole != r.whole || old->pieces != r.pieces ||
            old->n != r.n || old->grain != r.grain || old->words != r.words ||
            old->level != r.level || old->unit != r.unit)
            continue;
        old->uses += r.uses;
        if (old->phase != r.phase) old->phase = -1;
        return old->name;
    }
    const int units = schedule_units(em->p->schedule, r.level);
    r.most = ((r.n + r.grain - 1) / r.grain + units - 1) / units * r.grain;
    if (r.whole || r.most > r.n) r.most = r.n;
    r.name = arena_printf(em->a, "kept%d", em->residents.n);
    vec_push(em->a, &em->residents, r);
    return r.name;
}

bool is_resident(const Emit *em, const Tensor *t) {
    const void *name =
        t->kind == TK_CONST ? map_geti(em->const_name, (uint64_t)(uintptr_t)t->data->data) : NULL;
    for (int i = 0; i < em->residents.n; i++)
        if (em->residents.p[i].name == name) return true;
    return false;
}

static int by_uses(const void *a, const void *b) {
    const Resident *x = *(Resident *const *)a, *y = *(Resident *const *)b;
    if (x->uses != y->uses) return x->uses > y->uses ? -1 : 1;
    return x < y ? -1 : 1;
}

void residents_place(Emit *em) {
    int n = em->residents.n;
    em->scratch = (em->shared_bytes + 127) / 128 * 128;
    if (em->scratch_bytes || n)
        em->shared_bytes = (em->scratch + em->scratch_bytes + 127) / 128 * 128;
    if (!n) return;
    int64_t room = em->p->schedule->device->level[LEVEL_CORE].bytes;
    Resident **order = NEWN(em->a, Resident *, n);
    for (int i = 0; i < n; i++) order[i] = &em->residents.p[i];
    qsort(order, (size_t)n, sizeof *order, by_uses);
    for (int i = 0; i < n; i++) {
        Resident *r = order[i];
        int64_t own = r->pieces * r->most * r->words * 4, bytes = (own + 127) / 128 * 128;
        ResidentFacts fact = {r->what, own, em->shared_bytes + bytes <= room};
        vec_push(em->a, &em->facts->residents, fact);
        if (!fact.kept) continue;
        r->at = em->shared_bytes;
        em->shared_bytes += bytes;
    }
    for (int i = 0; i < n; i++) {
        const Resident *r = &em->residents.p[i];
        const bool cluster = r->level == LEVEL_CLUSTER;
        const char *phase =
            r->phase < 0 ? "" : arena_printf(em->a, "phase != %d ? NULL : ", r->phase);
        const char *own =
            cluster ? arena_printf(em->a, "!(%s) ? NULL : ", unit_cluster(em, r->unit, "==")) : "";
        sb_printf(&em->body,
                  "    const float *const %s = %s%sbk_keep(%s, %lld, %lld, %lld, %lld, %lld, %lld, "
                  "%s);\n",
                  r->name, phase, own, r->weights, (long long)r->at, (long long)r->most,
                  (long long)r->pieces, (long long)r->n, (long long)r->grain, (long long)r->words,
                  r->whole  ? "0, 1"
                  : cluster ? "unit % BK_CLUSTER, BK_CLUSTER"
                            : "unit, nunit");
    }
}

/* ---- ahead of barriers ----------------------------------------------------------------------- */
#define MARK "@ahead %d@\n"
#define AHEAD_BYTES 1024 /* of a unit's part, that are worth the instructions */

/* The barrier that units have just passed when they come to group s: in front of it, or at the end
 * of the loop that begins with it. */
static const Stmt *barrier_before(const Seq *q, const Stmt *s) {
    int i = 0;
    while (i < q->s.n && q->s.p[i] != s) i++;
    for (i--; i >= 0; i--) {
        if (q->s.p[i]->kind == S_BARRIER) return q->s.p[i];
        if (q->s.p[i]->kind != S_LET && q->s.p[i]->kind != S_CHECK) return NULL;
    }
    const Stmt *last = q->s.n ? q->s.p[q->s.n - 1] : NULL;
    return q->owner && q->owner->kind == S_LOOP && last && last->kind == S_BARRIER ? last : NULL;
}

void ahead(Emit *em, const Group *g, Resident r, const char *kept) {
    const Seq *q = g->k->t[0]->seq;
    Ahead a = {.barrier = q ? barrier_before(q, g->k->s) : NULL, .part = r, .kept = kept};
    a.part.grain = 1;
    if (!a.barrier || r.whole || r.pieces > 1 || !e_is_int(g->k->grain, &a.part.grain)) return;
    if (r.n * r.words * 4 >= (int64_t)AHEAD_BYTES * em->p->schedule->units)
        vec_push(em->a, &em->ahead, a);
}

void ahead_mark(Emit *em, Fn *f, const Stmt *barrier) {
    sb_printf(f->out, MARK, em->barriers.n);
    vec_push(em->a, &em->barriers, barrier);
}

static bool on_chip(const Emit *em, const char *name) {
    for (int i = 0; name && i < em->residents.n; i++)
        if (em->residents.p[i].name == name) return em->residents.p[i].at != 0;
    return false;
}

void ahead_place(Emit *em) {
    Sb text = {.a = em->a};
    const char *p = em->body.p;
    for (const char *mark; p && (mark = strstr(p, "@ahead ")); p = strchr(mark, '\n') + 1) {
        sb_write(&text, p, (size_t)(mark - p));
        const Stmt *barrier = em->barriers.p[atoi(mark + 7)];
        for (int i = 0; i < em->ahead.n; i++) {
            const Ahead *a = &em->ahead.p[i];
            if (a->barrier != barrier || on_chip(em, a->kept)) continue;
            sb_printf(&text, "    bk_ahead(%s, %s, %lld, %lld, %lld, unit, nunit);\n",
                      a->kept ? a->kept : a->part.weights, a->kept ? "true" : "false",
                      (long long)a->part.n, (long long)a->part.grain, (long long)a->part.words);
        }
    }
    if (p) sb_puts(&text, p);
    sb_free(&em->body);
    em->body = text;
}
