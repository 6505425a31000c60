/* beside.c: prints groups that run side by side on the warps of a block (scheduler/plan/beside.h).
 *
 * A warp takes one group after the other; each group's function is called where a warp has it, so
 * that nothing diverges within a warp. Neighbours that call the same function with arguments that
 * are equally far apart, as the layers of a diagonal do, are one call, whose arguments are computed
 * from the group's number. */
#include "codegen/emit/emit_tree.h"
#include "codegen/emit/gpu/shorter.h"
#include "scheduler/plan/beside.h"
#include "scheduler/plan/weights.h"
#include <stdlib.h>

#define RUN_LEAST 3 /* groups for which one call is worth it */

/* ---- where tensors are ----------------------------------------------------------------------- */
/* Where a value is that the loop around carries: in its initial value's place in the first
 * iteration, and where the one before has put it in all others. NULL: that is not arithmetic. */
static const char *carried_place(Tree *x, const Tensor *t) {
    const Stmt *loop = x->loop ? x->loop->s : NULL;
    const Mem *m = mem_of(t);
    for (int i = 0; loop && i < loop->loop.carry.n; i++) {
        const LoopCarry *c = &loop->loop.carry.p[i];
        if (c->phi != t) continue;
        if (c->inplace || m->kind != M_STATIC || m->inplace || t->grow || !c->init || !c->next)
            return NULL;
        const Tensor *first = c->init;
        while (first->kind == TK_VIEW) first = first->base;
        const Mem *init = mem_of(first), *next = mem_of(c->next);
        if (first->kind != TK_TE || c->next->kind != TK_TE || !init || init->kind != M_STATIC ||
            init->given || next->kind != M_CARRY || next->via != t)
            return NULL;
        const char *base = tree_base(x, m), *counter = x->loop->counter;
        if (strcmp(base, tree_base(x, init))) return NULL;
        return arena_printf(x->em->a, "(%s *)(%s + (%s == 0 ? %lld : (%s & 1) ? %lld : %lld))",
                            c_store(t->dtype), base, counter, (long long)init->off[0], counter,
                            (long long)m->off[0], (long long)m->off[1]);
    }
    return NULL;
}

/* The text of the pointer to t, as arithmetic where that is known, else its variable. */
static const char *place_text(Fn *f, Tensor *t) {
    Tree *x = f->user;
    const char *name = tree_tensor(f, t), *place = NULL, *type;
    while (t->kind == TK_VIEW) t = t->base;
    type = c_store(t->dtype);
    if (t->kind == TK_CONST) {
        if (strncmp(name, "weights", 7)) return name;
        const WeightArray *w = &x->em->p->weights->array.p[atoi(name + 7)];
        return arena_printf(f->a, "BK_AT(%s, %lld)", c_store(w->dtype), (long long)w->offset);
    }
    const Mem *m = mem_of(t), *via = m && m->via ? mem_of(m->via) : NULL;
    if (!m || t->grow || x->stack) return name;
    if (t->kind == TK_TE && m->kind == M_STATIC && !m->given)
        place = tree_static(x, m, type);
    else if (t->kind == TK_TE && m->kind == M_CARRY && via->kind == M_STATIC && !via->inplace)
        place = arena_printf(f->a, "(%s *)(%s + ((%s & 1) ? %lld : %lld))", type, tree_base(x, via),
                             x->loop->counter, (long long)via->off[1], (long long)via->off[0]);
    else if (t->kind == TK_PHI)
        place = carried_place(x, t);
    return place ? place : name;
}

/* ---- calls ----------------------------------------------------------------------------------- */
/* A call, with '#' in place of its numbers, and these. */
typedef struct Call {
    const char *text, *pattern;
    VEC(int) number;
} Call;

/* The text with conditions "from this iteration on" as "… and before the last one's end", as the
 * other groups of a diagonal have them. */
static const char *whole_conditions(Tree *x, const char *text) {
    int64_t trips;
    const Stmt *loop = x->loop ? x->loop->s : NULL;
    if (!loop || !loop->loop.trips || !e_is_int(loop->loop.trips, &trips)) return text;
    Sb to = {.a = x->em->a};
    const char *const end = arena_printf(x->em->a, " <= %s)", x->loop->counter);
    for (const char *p = text; *p;) {
        int value;
        const char *number = p[0] == ' ' && p[1] == '(' ? text_number(text, p + 2, &value) : NULL;
        const size_t n = strlen(end);
        if (number && !strncmp(number, end, n) && strchr(",)", number[n])) {
            sb_printf(&to, " ((%d%s & (%s < %lld))", value, end, x->loop->counter,
                      (long long)trips);
            p = number + n;
        } else
            sb_write(&to, p++, 1);
    }
    return to.p;
}

static Call call_of(Tree *x, Stmt *s) {
    Arena *a = x->em->a;
    Sb text = {.a = a}, pattern = {.a = a};
    Fn f = x->f;
    f.out = &text;
    f.indent = 0;
    f.tensor = place_text;
    emit_group(x->em, &f, &x->decl, s, false);
    text.p[text.n - 1] = 0; /* the line's end */
    Call c = {whole_conditions(x, text.p), NULL, {0}};
    const char *comment = strstr(c.text, " /*");
    for (const char *p = c.text; *p && p != comment;) {
        int value;
        const char *end = text_number(c.text, p, &value);
        if (end) vec_push(a, &c.number, value);
        if (end)
            sb_puts(&pattern, "#");
        else
            sb_write(&pattern, p, 1);
        p = end ? end : p + 1;
    }
    c.pattern = pattern.p;
    return c;
}

/* How many calls from number `from` on have the same text up to numbers that are equally far
 * apart. */
static int run_of(const Call *call, int from, int n) {
    int to = from + 1;
    for (; to < n && !strcmp(call[to].pattern, call[from].pattern); to++)
        for (int i = 0; i < call[from].number.n; i++)
            if ((int64_t)call[to].number.p[i] - call[to - 1].number.p[i] !=
                (int64_t)call[from + 1].number.p[i] - call[from].number.p[i])
                return to - from;
    return to - from;
}

/* Prints a run's call, for group number `nth` of it. */
static void put_run(Fn *f, const Call *call, int n) {
    Sb line = {.a = f->a};
    int at = 0;
    for (const char *p = call[0].pattern; *p; p++) {
        if (*p != '#') {
            sb_write(&line, p, 1);
            continue;
        }
        const int first = call[0].number.p[at], step = call[1].number.p[at] - first;
        sb_printf(&line, step ? "(%d + %d * nth)" : "%d", first, step);
        at++;
    }
    const char *from = strstr(call[0].text, " /* "), *to = strstr(call[n - 1].text, " /* ");
    sb_printf(&line, "%.*s to %s", (int)(strcspn(from + 4, "*") + 3), from, to + 4);
    fn_line(f, "%s", line.p);
}

void emit_beside(Tree *x, const Seq *q, int *at) {
    Fn *f = &x->f;
    Emit *em = x->em;
    const Device *d = em->p->schedule->device;
    const int first = *at;
    const int n = beside_run(q, first), teams = d->threads / q->s.p[first]->op.team;
    for (int i = first; i < first + n; i++) {
        const Stmt *s = q->s.p[i];
        for (int k = 0; k < s->op.n; k++) tree_place(x, s->op.t[k], tree_bytes(x, s->op.t[k]));
    }
    /* A profile's events follow each other: the first group has the time of all. */
    for (int i = first + 1; i < first + n; i++) {
        probe_begin(x, q->s.p[i]);
        probe_end(x, q->s.p[i]);
    }
    probe_begin(x, q->s.p[first]);
    const Scope out = fn_here(f);
    const char *member = "(int)bk_warp()";
    if (n > teams) {
        fn_open(f, "BK_UNROLL_BY(1) for (int member = %s; member < %d; member += %d) {", member, n,
                teams);
        member = "member";
    }
    fn_open(f, "switch (%s) { /* side by side */", member);
    Call *call = NEWN(em->a, Call, n);
    for (int i = 0; i < n; i++) call[i] = call_of(x, q->s.p[first + i]);
    for (int i = 0, run; i < n; i += run) {
        run = run_of(call, i, n);
        if (run < RUN_LEAST) run = 1;
        for (int k = i; k < i + run - 1; k++) fn_line(f, "case %d:", k);
        const Scope all = fn_open(f, "case %d: {", i + run - 1);
        if (run == 1)
            fn_line(f, "%s", call[i].text);
        else {
            fn_line(f, "const int nth = %s - %d;", member, i);
            put_run(f, &call[i], run);
        }
        fn_line(f, "break;");
        fn_close(f, all);
    }
    fn_close(f, out);
    probe_end(x, q->s.p[first]);
    *at = first + n - 1;
}
