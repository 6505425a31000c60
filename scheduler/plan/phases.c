/* phases.c: what crosses from one launch of the kernel to the next, where products by the vendor's
 * library stand between them.
 *
 * Requires the variables of the kernel (pass_variables). A variable that a later phase names than
 * the one that sets it is left in a word of the arena, by unit 0 at the end of that launch, unless
 * its value is known at the beginning of each: where a planned tensor lies, what the host can
 * compute. Sets Program.phases, and adds the words to the arena; code generation names nothing
 * outside of the phases that are planned for it. */
#include "scheduler/plan/phases.h"
#include "scheduler/passes.h"
#include "scheduler/plan/memory.h"
#include "utask/walk.h"

typedef struct Naming {
    PhasePlan *k;
    int phase;
} Naming;

static void note(PhaseSpan *x, int phase) {
    if (!x->end) x->begin = phase;
    x->end = phase + 1;
}
static void note_tensor(void *user, Tensor *t) {
    Naming *w = user;
    note(&w->k->tensor[t->id], w->phase);
}
static void note_sym(void *user, Sym *s) {
    Naming *w = user;
    note(&w->k->sym[s->id], w->phase);
}

static bool is_idle(const Program *p, int at) {
    const Seq *q = p->top;
    while (--at >= 0 && q->s.p[at]->level != LEVEL_HOST)
        if (q->s.p[at]->kind != S_LET || !library_host_value(p, q->s.p[at]->let.e)) return false;
    return true;
}

static void name_all(Program *p, PhasePlan *k) {
    Naming w = {k, 0};
    for (int i = 0; i < p->top->s.n; i++) {
        Stmt *s = p->top->s.p[i];
        Visit v = visit_new(p->cx, note_tensor, note_sym, &w);
        w.phase += s->level == LEVEL_HOST;
        visit_stmt(&v, s);
        w.phase += s->level == LEVEL_HOST;
    }
    Visit v = visit_new(p->cx, note_tensor, note_sym, &w);
    visit_end(&v, p, p->top);
}

/* Whether where t lies is known at the beginning of each launch. */
static bool has_place(const Tensor *t) {
    const Mem *m = mem_of(t);
    return m && !m->frame && t->kind != TK_PHI &&
           (m->kind == M_STATIC || (m->kind == M_SLOT && t->placed));
}

static void hand_over(Program *p, PhasePlan *k) {
    int words = 0;
    for (int i = 0; i < p->mem->variable.n; i++) {
        const Variable *v = &p->mem->variable.p[i];
        Handed h = {.variable = i, .word = -1};
        if (v->t)
            h.span = k->tensor[v->t->id];
        else if (v->s)
            h.span = k->sym[v->s->id];
        if (h.span.end - h.span.begin < 2) continue;
        if (v->t && mem_of(v->t) && mem_of(v->t)->kind == M_SHARED)
            continue; /* set where it is declared */
        if (v->s && v->s->dtype == DT_I64) h.value = library_host_value(p, e_sym(p->cx, v->s));
        if (!h.value && !(v->t && has_place(v->t))) {
            ASSERT(h.span.begin % 2 == 0); /* a library sets no variables */
            h.word = words++;
        }
        vec_push(p->cx->a, &k->handed, h);
    }
}

void pass_phases(Program *p) {
    const Seq *q = p->top;
    Arena *a = p->cx->a;
    PhasePlan k = {.launches = 1};
    for (int i = 0; i < q->s.n; i++) k.n += q->s.p[i]->level == LEVEL_HOST;
    if (!k.n) return;
    k.product = NEWN(a, LibraryProduct, k.n);
    k.idle = NEWN(a, bool, k.n);
    k.tensor = NEWN(a, PhaseSpan, p->cx->next_tensor + 1);
    k.sym = NEWN(a, PhaseSpan, p->cx->next_sym + 1);
    for (int i = 0, n = 0; i < q->s.n; i++) {
        if (q->s.p[i]->level != LEVEL_HOST) continue;
        bool is = library_product(p, q->s.p[i]->op.t[0], &k.product[n]);
        ASSERT(is);
        k.idle[n] = is_idle(p, i);
        k.launches += !k.idle[n++];
    }
    name_all(p, &k);
    hand_over(p, &k);
    k.at = round_up(p->mem->arena, 64);
    p->mem->arena = k.at + round_up(8 * (p->mem->variable.n + k.n + 2), 64);
    p->phases = arena_memdup(a, &k, sizeof k);
}
