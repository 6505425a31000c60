/* facts.c: see facts.h. Requires the tree as the last pass leaves it; changes nothing. */
#include "scheduler/plan/facts.h"
#include "scheduler/cost/decide.h"
#include "scheduler/passes.h"
#include "scheduler/plan/memory.h"
#include "scheduler/plan/onchip.h"
#include "scheduler/plan/weights.h"
#include "scheduler/plan/phases.h"
#include "utask/walk.h"

typedef struct FactWalk {
    const Program *p;
    Facts *f;
} FactWalk;

static void note_seq(FactWalk *w, const Seq *q);

static void note_loop(FactWalk *w, Stmt *s) {
    Facts *f = w->f;
    const Seq *body = s->loop.body;
    LoopFacts l = {.loop = s,
                   .path = s->path,
                   .depth = body->depth - 1,
                   .barriers = sync_count(body, LEVEL_TEAM),
                   .cluster_barriers = sync_count(body, LEVEL_CLUSTER),
                   .flags = sync_flags(body)};
    memory_constants(w->p->cx, s, schedule_units(w->p->schedule, s->level), &l.constants, &l.share);
    f->barriers += l.barriers;
    f->cluster_barriers += l.cluster_barriers;
    f->flags += l.flags;
    vec_push(w->p->cx->a, &f->loops, l);
}

static void note_function(FactWalk *w, const Func *g) {
    Facts *f = w->f;
    FuncFacts k = {g->name, sync_count(g->body, LEVEL_TEAM), sync_flags(g->body), g->frame};
    note_seq(w, g->body);
    f->barriers += k.barriers;
    f->flags += k.flags;
    vec_push(w->p->cx->a, &f->recursive, k);
}

static void note_seq(FactWalk *w, const Seq *q) {
    for (int i = 0; i < q->s.n; i++) {
        Stmt *s = q->s.p[i];
        if (s->kind == S_LOOP) note_loop(w, s);
        for (int k = 0; k < stmt_nseq(s); k++)
            if (s->kind == S_CALL)
                note_function(w, s->call.func[k]);
            else
                note_seq(w, stmt_seq(s, k));
    }
}

Facts plan_facts(const Program *p) {
    const MemPlan *m = p->mem;
    Facts f = {.arena_bytes = m->arena,
               .live_bytes = m->live_max,
               .distributed_bytes = m->distributed,
               .slots = m->nslot,
               .weights_bytes = p->weights->bytes,
               .barriers = sync_count(p->top, LEVEL_TEAM),
               .cluster_barriers = sync_count(p->top, LEVEL_CLUSTER),
               .flags = sync_flags(p->top),
               .shared_bytes = p->onchip->bytes};
    FactWalk w = {p, &f};
    note_seq(&w, p->top);
    if (p->phases) {
        f.launches = p->phases->launches;
        f.products = p->phases->n;
    }
    for (int i = 0; i < p->onchip->residents.n; i++) {
        const Resident *r = p->onchip->by_uses[i];
        ResidentFacts k = {r->part.packed->what, r->bytes, r->kept};
        vec_push(p->cx->a, &f.residents, k);
    }
    return f;
}
