/* resident.c: prints constants that stay in on-chip memory for the whole run, and those that are
 * prefetched before barriers (scheduler/plan/onchip.h).
 *
 * A pointer leads to the unit's own part, whether it is on chip or not. The pointers are in the
 * block's memory, too: threads have few registers. */
#include "codegen/emit/emit.h"

const char *unit_cluster(const Emit *em, int first, const char *is) {
    return arena_printf(em->a, "unit / BK_CLUSTER %s %d %% (nunit / BK_CLUSTER)", is,
                        first / device_cluster(em->p->schedule->device));
}

const char *resident_name(Emit *em, const Resident *r) {
    const char **name = &em->resident_name[r->number];
    if (!*name) *name = arena_printf(em->a, "kept[%d]", r->number);
    return *name;
}

bool is_resident(const Emit *em, const Tensor *t) {
    for (int i = 0; t->kind == TK_CONST && i < em->p->onchip->residents.n; i++)
        if (em->resident_name[i] == t->data->data) return true;
    return false;
}

const char *input_name(Emit *em, int input) {
    const OnChip *o = em->p->onchip;
    for (int i = 0; i < o->inputs.n; i++)
        if (o->inputs.p[i] == input) return arena_printf(em->a, "kept[%d]", o->residents.n + i);
    return arena_printf(em->a, "k->in[%d].data", input);
}

/* Those read most often come first: if a unit's parts are larger than planned, they are kept. */
void residents_declare(Emit *em, Sb *to) {
    const OnChip *o = em->p->onchip;
    if (!o->residents.n && !o->inputs.n) return;
    sb_printf(to, "    const float **const kept = (const float **)(bk_shared() + %lld);\n",
              (long long)o->table);
    if (o->residents.n) sb_printf(to, "    int kept_to = %lld;\n", (long long)o->kept_at);
    for (int i = 0; i < o->inputs.n; i++)
        sb_printf(to, "    bk_know(&%s, (const float *)k->in[%d].data);\n",
                  input_name(em, o->inputs.p[i]), o->inputs.p[i]);
    for (int i = 0; i < o->residents.n; i++) {
        const Resident *r = o->by_uses[i];
        const OwnPart *q = &r->part;
        const bool cluster = r->level == LEVEL_CLUSTER;
        const char *phase = r->phase < 0 ? "" : arena_printf(em->a, "if (phase == %d) ", r->phase);
        const char *own =
            cluster ? arena_printf(em->a, "if (%s) ", unit_cluster(em, r->unit, "==")) : "";
        sb_printf(to, "    %s%sbk_know(&%s, bk_keep(%s, %s, %lld, %lld, %lld, %lld, %s));\n", phase,
                  own, resident_name(em, r), emit_packed(em, q->packed),
                  r->kept ? "&kept_to" : "NULL", (long long)q->pieces, (long long)q->n,
                  (long long)q->grain, (long long)q->words,
                  q->whole  ? "0, 1"
                  : cluster ? "unit % BK_CLUSTER, BK_CLUSTER"
                            : "unit, nunit");
    }
    sb_puts(to, "    bk_kept();\n");
}

void emit_ahead(Fn *f, const Kernel *k) {
    Emit *em = f->em;
    for (int i = 0; i < k->nown; i++) {
        const OwnPart *q = &k->own[i];
        const char *name = emit_packed(em, q->packed);
        if (q->resident) name = resident_name(em, q->resident);
        if (q->ahead)
            sb_printf(f->out, "    bk_ahead(%s, %s, %lld, %lld, %lld, unit, nunit);\n", name,
                      q->resident ? "true" : "false", (long long)q->n, (long long)q->grain,
                      (long long)q->words);
    }
}
