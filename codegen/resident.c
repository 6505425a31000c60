/* resident.c: constants that stay in each unit's own memory for the whole run, on GPUs.
 *
 * A packed operand that is read in a loop is asked for while its group's function is written, and is known by the name
 * of a pointer from then on. When all of the program is written it is known what the groups themselves need of a
 * block's memory; what is left goes to those that are read most often. The pointer leads to the unit's own part in
 * any case, on chip or not: a run with fewer blocks than planned has larger parts, which may not fit. The functions
 * that read them begin with a block barrier. */
#include "codegen/emit.h"
#include "scheduler/cost.h"
#include "scheduler/decide.h"
#include "scheduler/passes.h"
#include <stdlib.h>

/* How often a run comes to what is in q; 0: what is kept on chip by the kernel is out of reach there. */
static double uses_of(const Seq *q) {
    double n = 1;
    for (; q && q->owner; q = q->parent) {
        const Stmt *s = q->owner;
        if (s->kind == S_CALL || s->level == LEVEL_CORE) return 0;
        if (s->kind == S_LOOP) n *= s->loop.trips ? cost_size(s->loop.trips) : COST_UNKNOWN;
    }
    return n;
}

const char *resident(Emit *em, const Group *g, Resident r, int64_t choice) {
    r.level = g->s->level;
    r.phase = em->phases ? em->phases->text.n : -1;
    r.uses = uses_of(g->t[0]->seq) / (double)choice;
    r.grain = 1;
    if (r.uses <= 1 || g->s->op.inner || (!r.whole && !e_is_int(g->grain, &r.grain))) return NULL;
    for (int i = 0; i < em->residents.n; i++) {
        Resident *old = &em->residents.p[i];
        if (old->weights != r.weights || old->whole != r.whole || old->pieces != r.pieces || old->n != r.n ||
            old->grain != r.grain || old->words != r.words || old->level != r.level)
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
    const void *name = t->kind == TK_CONST ? map_geti(em->const_name, (uint64_t)(uintptr_t)t->data->data) : NULL;
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
    if (em->scratch_bytes || n) em->shared_bytes = (em->scratch + em->scratch_bytes + 127) / 128 * 128;
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
        const char *when = r->phase < 0 ? "" : arena_printf(em->a, "phase != %d ? NULL : ", r->phase);
        sb_printf(&em->body, "    const float *const %s = %sbk_keep(%s, %lld, %lld, %lld, %lld, %lld, %lld, %s);\n",
                  r->name, when, r->weights, (long long)r->at, (long long)r->most, (long long)r->pieces, (long long)r->n,
                  (long long)r->grain, (long long)r->words,
                  r->whole                      ? "0, 1"
                  : r->level == LEVEL_CLUSTER ? "unit, BK_CLUSTER"
                                              : "unit, nunit");
    }
}
