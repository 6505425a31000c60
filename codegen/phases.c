/* phases.c: the kernel's text where the program has statements at host level: in phases, a launch each.
 *
 * Statement number i at host level is phase 2 i + 1, what stands between it and the one before is phase 2 i, and the
 * last phase ends the run. The vendor's library does the odd phases; the kernel has them, too, for machines without
 * one. Uniform values and pointers that a later phase uses are left in words of the arena; what a launch has come to
 * is in the run record, and the next one's first barrier ends it when that is no good. */
#include "codegen/emit_tree.h"
#include "scheduler/library.h"
#include "scheduler/passes.h"

typedef struct Used { /* a variable */
    const Tensor *t; /* whose pointer it is, or NULL */
    int first, last; /* phases */
} Used;

static bool at_host(const Seq *q) {
    for (int i = 0; i < q->s.n; i++)
        if (q->s.p[i]->level == LEVEL_HOST) return true;
    return false;
}

void phases_begin(Tree *x) {
    Emit *em = x->em;
    if (!at_host(em->p->top)) return;
    em->phases = NEW(em->a, Phases);
    em->phases->used = map_new(em->a);
    em->phases->products.a = em->a;
    x->f.indent = 2;
}

void phases_note(Tree *x, const char *name, const Tensor *t) {
    Phases *k = x->em->phases;
    if (!k) return;
    Used *u = map_get(k->used, name);
    if (u) u->last = k->text.n;
    else {
        u = NEW(x->em->a, Used);
        *u = (Used){t, k->text.n, k->text.n};
        map_set(k->used, name, u);
    }
}

/* Whether some blocks may be through with statements [from, to) before others have begun the launch, after turns of
 * the barrier's words, which the next launch counts on. */
static bool parts(const Seq *q, int from, int to) {
    bool turns = false;
    for (int i = from; i < to; i++) {
        const Stmt *s = q->s.p[i];
        if (stmt_apart(s, LEVEL_TEAM) || (s->kind == S_BARRIER && s->level == LEVEL_TEAM && s->meet == MEET_ALL)) return false;
        turns = turns || (s->kind == S_BARRIER && s->level == LEVEL_TEAM) ||
                (s->kind != S_LET && s->kind != S_CHECK && s->kind != S_OP && s->kind != S_BARRIER);
    }
    return turns;
}

static void end_phase(Tree *x) {
    Emit *em = x->em;
    const char *text = x->f.out->n ? x->f.out->p : "";
    vec_push(em->a, &em->phases->text, text);
    *x->f.out = (Sb){.a = em->a};
}

/* ---- products ------------------------------------------------------------------------------------------------ */
/* Where an operand or the result begins: of which input, or of what else; and bytes from there. */
static void place(Emit *em, const LibraryProduct *p, int i, const char **from, int64_t *at) {
    Tensor *t = p->t[i];
    *at = p->at[i] * 4;
    if (t->kind == TK_INPUT) *from = arena_printf(em->a, "%d", t->index);
    else if (t->kind == TK_CONST) {
        *from = "BK_IN_WEIGHTS";
        *at += emit_const_offset(em, t);
    } else {
        const Mem *m = mem_of(t);
        if (m->kind == M_SHARED) m = mem_of(m->via);
        ASSERT(m->kind == M_STATIC && !m->frame);
        *from = "BK_IN_ARENA";
        *at += m->off[0];
    }
}

static void put_three(Sb *s, const char *name, const int64_t *v) {
    sb_printf(s, ", .%s = {%lld, %lld, %lld}", name, (long long)v[0], (long long)v[1], (long long)v[2]);
}

void phases_product(Tree *x, Stmt *s) {
    Emit *em = x->em;
    Sb *row = &em->phases->products;
    Tensor *t = s->op.t[0];
    LibraryProduct p;
    bool is = library_product(em->c, t, &p);
    ASSERT(is);
    const Seq *q = em->p->top;
    int at_all = 0, from_all;
    while (q->s.p[at_all] != s) at_all++;
    for (from_all = at_all; from_all > 0 && q->s.p[from_all - 1]->level != LEVEL_HOST;) from_all--;
    if (parts(q, from_all, at_all)) {
        fn_line(&x->f, "if ((st = bk_barrier(k, unit)) != BK_OK) return st;");
        em->facts->barriers++;
    }
    end_phase(x);
    tree_place(x, t, tree_bytes(x, t));
    emit_group(em, &x->f, &x->decl, s, false);
    end_phase(x);
    const char *from[3];
    int64_t at[3];
    for (int i = 0; i < 3; i++) place(em, &p, i, &from[i], &at[i]);
    sb_printf(row, "%s    {.m = %lld, .n = %lld, .k = %lld, .batch = %lld, .turned = {%d, %d}", em->phases->n++ ? ", \\\n" : "",
              (long long)p.m, (long long)p.n, (long long)p.k, (long long)p.batch, p.turned[0], p.turned[1]);
    put_three(row, "ld", p.ld);
    put_three(row, "next", p.next);
    sb_printf(row, ", .from = {%s, %s, %s}", from[0], from[1], from[2]);
    put_three(row, "at", at);
    sb_puts(row, "}");
}

/* ---- the text --------------------------------------------------------------------------------------------------- */
/* A pointer that is the same in every run and so needs no word. */
static bool is_static(const Tensor *t) {
    const Mem *m = t ? mem_of(t) : NULL;
    return m && !m->frame && (m->kind == M_SHARED || (m->kind == M_STATIC && t->kind != TK_PHI));
}

/* Leaves or reads, in phase `phase`, the words of all variables that others use behind or set before. */
static void cross(Tree *x, int phase, bool leave) {
    Emit *em = x->em;
    int n = -1;
    for (int i = 0; i < x->var.n; i++) {
        const Var *v = &x->var.p[i];
        const Used *u = map_get(em->phases->used, v->name);
        if (!u || u->first == u->last) continue;
        if (is_static(u->t)) {
            if (leave || u->first >= phase || u->last < phase || mem_of(u->t)->kind == M_SHARED) continue;
            fn_line(&x->f, "%s = (%s)(k->arena + %lld);", v->name, v->type, (long long)mem_of(u->t)->off[0]);
            continue;
        }
        ASSERT(u->first % 2 == 0); /* a library sets no variables */
        if (leave && u->first == phase) tree_write_shared(x, v->type, v->name, &n);
        else if (!leave && u->first < phase && u->last >= phase) tree_read_shared(x, v->type, v->name, &n);
        else n++;
    }
}

/* At the end of a phase, by unit 0. */
static void leave(Tree *x, int phase, int top) {
    Sb *all = x->f.out, words = {.a = x->em->a};
    x->f.out = &words;
    x->f.indent++;
    cross(x, phase, true);
    if (x->em->claims)
        fn_line(&x->f, "if (bk_lead(0)) shared[%d] = (int64_t)%s;", top, x->em->p->nfunc ? "low" : "top");
    x->f.indent--;
    x->f.out = all;
    if (!words.n) return;
    fn_line(&x->f, "if (unit == 0) {");
    sb_puts(all, words.p);
    fn_line(&x->f, "}");
}

const char *phases_join(Tree *x, const char *last) {
    Emit *em = x->em;
    Phases *k = em->phases;
    Sb all = {.a = em->a};
    int top = 0; /* of the words that say where the arena's top is, the last one; 0: this is the first launch */
    int64_t base = (em->plan.arena + 63) / 64 * 64;
    vec_push(em->a, &k->text, last);
    em->plan.arena = base + 8 * (x->var.n + k->n + 1);
    x->f.out = &all;
    x->f.indent = 1;
    fn_line(&x->f, "int64_t *const shared = (int64_t *)(k->arena + %lld);", (long long)base);
    fn_line(&x->f, "(void)shared;");
    for (int i = 0; i < k->text.n; i++) {
        if (!*k->text.p[i]) continue;
        fn_line(&x->f, "if (phase == %d) {", i);
        x->f.indent = 2;
        if (top) fn_line(&x->f, "if ((st = bk_barrier(k, unit)) != BK_OK) return st; /* the launches before */");
        cross(x, i, false);
        if (top && em->claims) fn_line(&x->f, "top = (size_t)shared[%d];", top);
        if (top && em->p->nfunc) fn_line(&x->f, "low = top;");
        sb_puts(&all, k->text.p[i]);
        if (i % 2 == 0) {
            em->facts->barriers += top > 0;
            em->facts->launches++;
            top = x->var.n + i / 2;
            if (i < k->text.n - 1) leave(x, i, top);
        }
        if (i < k->text.n - 1) fn_line(&x->f, "return BK_OK;");
        x->f.indent = 1;
        fn_line(&x->f, "}");
    }
    fn_line(&x->f, "return BK_OK;");
    em->facts->products = k->n;
    return all.p;
}
