/* emit_probe.c: prints how parts are measured, in programs that measure themselves: around each
 * part a look at the clock, in the executions that scheduler/plan/probes.h says, and what counts
 * trips. In other programs all functions here print nothing. */
#include "codegen/emit/emit_tree.h"
#include "codegen/embed.h"
#include "include/braid_model.h"
#include "scheduler/plan/probes.h"

static const ProbeSeq *seq_plan(const Tree *x, int number) {
    return &x->em->p->probes->seq.p[number];
}

/* Whether the current execution of a list is timed. In a function that jumps enter no variable can
 * say it. */
static const char *on_text(const Tree *x, int number) {
    const int every = seq_plan(x, number)->every;
    if (every == 1) return "1";
    return x->stack ? arena_printf(x->em->a, "bk_on(prof, %d, %d)", number, every - 1)
                    : arena_printf(x->em->a, "on%d", number);
}

void probe_begin(Tree *x, const void *place) {
    const Probes *k = x->em->p->probes;
    const int number = k ? probe_find(k, place) : -1;
    if (number < 0) return;
    const Probe *p = &k->all.p[number];
    if (p->own && p->kind != PROBE_BARRIER) fn_line(&x->f, "bk_count(prof, %d);", number);
    if (!p->timed) return;
    const char *on = on_text(x, p->in);
    fn_open(&x->f, "{");
    if (p->kind == PROBE_BARRIER)
        fn_line(&x->f, "const int64_t t%d = bk_wait_begin(prof, %d, %s, nunit);", number, number,
                on);
    else
        fn_line(&x->f, "const int64_t t%d = bk_probe_begin(%s);", number, on);
}

void probe_end(Tree *x, const void *place) {
    const Probes *k = x->em->p->probes;
    const int number = k ? probe_find(k, place) : -1;
    if (number < 0 || !k->all.p[number].timed) return;
    fn_line(&x->f, "bk_probe_end(prof, %d, t%d);", number, number);
    fn_end(&x->f);
}

/* Declares what on_text names. */
static void declare_on(Tree *x, int number, const char *turn) {
    const int every = seq_plan(x, number)->every;
    fn_line(&x->f, "const int on%d = (%s & %d) == 0;", number, turn, every - 1);
    fn_line(&x->f, "(void)on%d;", number);
}

void probe_seq_begin(Tree *x, const Seq *q) {
    const Probes *k = x->em->p->probes;
    if (!k) return;
    const int number = probe_seq(k, q);
    if (x->stack || seq_plan(x, number)->every == 1)
        fn_line(&x->f, "bk_turn(prof, %d);", number);
    else
        declare_on(x, number, arena_printf(x->em->a, "bk_turn(prof, %d)", number));
}

void probe_activation(Tree *x, const void *place, const char *depth) {
    const Probes *k = x->em->p->probes;
    if (k) fn_line(&x->f, "bk_activation(prof, %d, %s);", probe_find(k, place), depth);
}

void probe_loop_begin(Tree *x, const Stmt *s) {
    const Probes *k = x->em->p->probes;
    if (!k || x->stack) return;
    const int number = probe_seq(k, s->loop.body);
    if (seq_plan(x, number)->every > 1)
        fn_line(&x->f, "const uint64_t from%d = bk_turns(prof, %d);", number, number);
}

void probe_loop_body(Tree *x, const Stmt *s, const char *counter) {
    const Probes *k = x->em->p->probes;
    if (!k) return;
    const int number = probe_seq(k, s->loop.body);
    if (x->stack)
        fn_line(&x->f, "bk_turn(prof, %d);", number);
    else if (seq_plan(x, number)->every > 1)
        declare_on(x, number, arena_printf(x->em->a, "(from%d + (uint64_t)%s)", number, counter));
}

void probe_loop_end(Tree *x, const Stmt *s, const char *counter) {
    const Probes *k = x->em->p->probes;
    if (!k) return;
    const int part = probe_find(k, s);
    if (x->stack)
        fn_line(&x->f, "bk_trip_range(prof, %d, %s);", part, counter);
    else
        fn_line(&x->f, "bk_trips(prof, %d, %d, %s);", part, probe_seq(k, s->loop.body), counter);
}

/* ---- texts and tables ------------------------------------------------------------------------ */
_Static_assert((int)PROBE_BARRIER == (int)BRAID_PART_BARRIER, "kinds of parts differ");
_Static_assert((int)PROBE_FUNCTION == (int)BRAID_PART_FUNCTION, "kinds of parts differ");

void put_probes(const Emit *em, Sb *text, const char *const *file) {
    const Probes *k = em->p->probes;
    if (!k) return;
    put_define(text, "BK_NPART", k->all.n);
    put_define(text, "BK_NSEQ", k->seq.n);
    put_embedded(text, file);
}

static void put_text(Sb *s, const char *text) {
    if (text)
        put_string(s, text);
    else
        sb_puts(s, "0");
    sb_puts(s, ", ");
}

/* The path of a group is that of its last member, as in the comment at its call. */
static const char *path_of(const Probe *p) {
    const Stmt *s = p->stmt;
    if (s && s->kind == S_OP) return s->op.t[s->op.n - 1]->path;
    return s ? s->path : NULL;
}

void put_probe_tables(const Emit *em, Sb *text) {
    const Probes *k = em->p->probes;
    if (!k) return;
    const DeviceLevel *level = em->p->schedule->device->level;
    sb_puts(text, "static const braid_part_v1 bk_parts[BK_NPART] = {\n");
    for (int i = 0; i < k->all.n; i++) {
        const Probe *p = &k->all.p[i];
        const int every = !p->timed ? 0 : p->in < 0 ? 1 : k->seq.p[p->in].every;
        sb_printf(text, "    {%d, %d, %d, %d, %d, ", p->parent, (int)p->kind, p->statement, every,
                  p->step);
        put_text(text, level[p->level].name);
        put_text(text, p->name);
        put_text(text, path_of(p));
        sb_puts(text, "},\n");
    }
    sb_puts(text, "};\nstatic const int bk_part_lists[BK_NPART][2] = {\n");
    for (int i = 0; i < k->all.n; i++)
        sb_printf(text, "%s{%d, %d},%s", i % 10 ? " " : "    ",
                  k->all.p[i].own ? -2 : k->all.p[i].in, k->all.p[i].seq,
                  i % 10 == 9 || i == k->all.n - 1 ? "\n" : "");
    sb_puts(text, "};\n");
}
