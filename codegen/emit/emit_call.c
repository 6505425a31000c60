/* emit_call.c: calls of recursive functions. The family prints the functions (Target.recursion).
 *
 * A function takes uniform parameters by value, tensors as pointers, storage for results from the
 * caller, and what it captures through a struct. */
#include "codegen/emit/emit_tree.h"
#include "scheduler/passes.h"
#include "stack/batch.h"

const char *call_name(Tree *x, const Func *g) {
    return arena_printf(x->em->a, "rec%d_%s", g->id, c_name(x->em->a, g->name, 24));
}

void call_captured(Tree *x, const Captured *c, Sb *s, bool declare) {
    Fn *f = &x->f;
    for (int i = 0; i < c->t.n; i++) {
        const char *name = f->tensor(f, c->t.p[i]), *ty = c_store(c->t.p[i]->dtype);
        if (declare)
            sb_printf(s, "    %s *%s = outer->%s;\n", ty, name, name);
        else
            sb_printf(s, "%s(%s *)(uintptr_t)%s", i ? ", " : "", ty, name);
    }
    for (int i = 0; i < c->s.n; i++) {
        const char *name = f->symbol(f, c->s.p[i]);
        if (declare)
            sb_printf(s, "    const %s %s = outer->%s;\n", c_type(c->s.p[i]->dtype), name, name);
        else
            sb_printf(s, "%s%s", i || c->t.n ? ", " : "", name);
    }
}

void call_captured_type(Tree *x, const Captured *c, Sb *s) {
    sb_printf(s, "typedef struct captured%d {\n", c->id);
    for (int i = 0; i < c->t.n; i++)
        sb_printf(s, "    %s *%s;\n", c_store(c->t.p[i]->dtype), x->f.tensor(&x->f, c->t.p[i]));
    for (int i = 0; i < c->s.n; i++)
        sb_printf(s, "    %s %s;\n", c_type(c->s.p[i]->dtype), x->f.symbol(&x->f, c->s.p[i]));
    sb_printf(s, "%s%s    size_t high;\n} captured%d;\n",
              x->em->p->mem->parts ? "    bk_span span;\n" : "",
              x->em->p->probes ? "    bk_profile *prof;\n" : "", c->id);
}

const char *call_row_offset(Tree *x, const char *at, const Tensor *t) {
    if (!at) return "";
    Expr *n = e_int(x->em->c, 1);
    for (int i = 1; i < t->rank; i++) n = e_mul(x->em->c, n, t->dim[i]);
    return arena_printf(x->em->a, " + %s * %s", at, tree_expr(x, n));
}

/* The call of a C function; of rows [at, at + rows), unless they are NULL. `outer`: address of what
 * is captured; `fails`: the statement if the call failed; `alone`: when to call the form for one
 * unit, or NULL. */
static void invoke(Tree *x, Stmt *s, const char *outer, const char *at, const char *rows,
                   const char *fails, const char *alone) {
    Fn *f = &x->f;
    const Func *g = s->call.f;
    Sb a = {.a = x->em->a};
    for (int i = 0; i < g->nsym; i++)
        sb_printf(&a, ", %s", i == 0 && rows ? rows : tree_expr(x, s->call.sym[i]));
    for (int i = 0; i < g->narg; i++)
        sb_printf(&a, ", (%s *)(uintptr_t)%s%s", c_store(g->arg[i]->dtype),
                  f->tensor(f, s->call.arg[i]), call_row_offset(x, at, s->call.arg[i]));
    for (int i = 0; i < g->nout; i++)
        sb_printf(&a, ", %s%s%s", g->room[i] ? "" : "&", f->tensor(f, s->call.out[i]),
                  call_row_offset(x, at, s->call.out[i]));
    for (int i = 0; i < g->nret; i++) sb_printf(&a, ", &%s", f->symbol(f, s->call.ret[i]));
    const char *name = call_name(x, g);
    int below = x->func ? 1 + x->func->inside : 1;
    const char *list = arena_printf(f->a, "depth + %d, &top, %s%s", below, outer, a.n ? a.p : "");
    if (alone) fn_line(f, "if (%s) st = %s_alone(k, %s);", alone, name, list);
    fn_line(f, "%sst = %s(k, unit, nunit, %s); /* %s */", alone ? "else " : "", name, list,
            emit_comment(x->em, s->path));
    fn_line(f, "if (st != BK_OK) %s;", fails);
}

/* Places the results; true: the callee provides storage for some. */
static bool place_results(Tree *x, Stmt *s) {
    const Func *g = s->call.f;
    bool taken = false;
    for (int i = 0; i < g->nout; i++) {
        Tensor *t = s->call.out[i];
        tree_place(x, t, g->room[i] ? tree_bytes(x, t) : NULL);
        taken |= !g->room[i];
    }
    for (int i = 0; i < g->nret; i++) tree_declare_symbol(x, s->call.ret[i]);
    return taken;
}

/* The call, in a loop over parts if it may have too many rows. */
static void call_rows(Tree *x, Stmt *s, const char *outer, const char *fails, const char *alone) {
    Fn *f = &x->f;
    Emit *em = x->em;
    const Func *g = s->call.f;
    const char *at = NULL, *rows = NULL;
    if (g->rows) {
        int id = x->next_id++;
        at = arena_printf(em->a, "at%d", id);
        rows = arena_printf(em->a, "bk_mini(all%d - %s, most%d)", id, at, id);
        tree_local(x, "const int64_t", arena_printf(em->a, "all%d", id),
                   tree_expr(x, s->call.sym[0]));
        tree_local(
            x, "const int64_t", arena_printf(em->a, "most%d", id),
            arena_printf(em->a, "bk_maxi(bk_mini(%d / (depth + 1), %d), 1)", ROWS_DEEP, ROWS_MAX));
        tree_var(x, "int64_t", at, "0");
        fn_open(f, "for (%s = 0; %s < all%d; %s += most%d) {", at, at, id, at, id);
    }
    if (em->target->call && !s->call.nfunc)
        em->target->call(x, s, at, rows);
    else
        invoke(x, s, outer, at, rows, fails, alone);
    if (g->rows) fn_end(f);
}

void emit_call(Tree *x, Stmt *s) {
    Fn *f = &x->f;
    Emit *em = x->em;
    const Func *g = s->call.f;
    const char *outer = "outer", *high = NULL;
    bool braces = x->stack && s->call.nfunc; /* declares: no label may be inside */
    if (braces) fn_line(f, "{");
    if (s->call.nfunc) {
        const Captured *c = em->target->recursion(x, s);
        Sb list = {.a = em->a};
        call_captured(x, c, &list, false);
        outer = arena_printf(em->a, "&outer%d", x->next_id++);
        fn_line(f, "captured%d %s = {%s%s%s%stop};", c->id, outer + 1, list.n ? list.p : "",
                list.n ? ", " : "", em->p->mem->parts ? "span, " : "",
                em->p->probes ? "prof, " : "");
        if (g->lends) high = arena_printf(em->a, "%s.high", outer + 1);
    }
    bool taken = place_results(x, s);
    call_rows(x, s, outer, "return st", !g->parts ? NULL : s->call.nfunc ? "nunit == 1" : "alone");
    if (high) fn_line(f, "if (%s > top) top = %s;", high, high);
    if (taken) fn_line(f, "low = top;"); /* the callee's memory holds results */
    if (braces) fn_line(f, "}");
}

/* ---- calls that units run alone -------------------------------------------------------------- */
/* Each call gets its own part of the arena. Uniform results pass through words of the caller. */
void emit_split(Tree *x, const Seq *q, int *at) {
    Fn *f = &x->f;
    int id = x->next_id++, first = *at, w = 0;
    const int words = q->s.p[first]->apart->words;
    do place_results(x, q->s.p[*at]);
    while (++*at < q->s.n && q->s.p[*at]->beside);
    const Scope in = fn_open(f, "if (!alone && nunit > 1) { /* by a unit each */");
    if (words) {
        fn_line(f, "int64_t *const shared = (int64_t *)bk_claim_in(k, span, &top, %d);", 8 * words);
        fn_line(f, "if (!shared) %s", want_else(x, q->s.p[first]->path, "return BK_GROW;"));
        fn_line(f, "low = top;");
    }
    for (int i = first; i < *at; i++) {
        const char *leave = arena_printf(f->a, "leave%d", x->next_id++);
        Stmt *s = q->s.p[i];
        fn_line(f, "const bk_span part%d_%d = bk_part(span, top, %d, %d);", id, i - first,
                i - first, *at - first);
        fn_open(f, "if (unit == %d %% nunit) {", s->unit);
        fn_line(f, "const int unit = 0, nunit = 1;");
        fn_line(f, "captured%d own = *outer;", x->captured->id);
        fn_line(f, "own.span = part%d_%d;", id, i - first);
        fn_line(f, "size_t top = own.span.begin;");
        probe_begin(x, s);
        call_rows(x, s, "&own", arena_printf(f->a, "goto %s", leave), "true");
        probe_end(x, s);
        for (int k = 0; k < s->call.f->nret; k++)
            fn_line(f, "*(%s *)&shared[%d] = %s;", c_type(s->call.f->ret[k]->dtype), w++,
                    f->symbol(f, s->call.ret[k]));
        fn_line(f, "%s:;", leave);
        fn_end(f);
    }
    probe_begin(x, q->s.p[first]->apart);
    fn_line(f, "if ((st = bk_barrier(k, unit)) != BK_OK) return st;");
    probe_end(x, q->s.p[first]->apart);
    fn_line(f, "top = low;");
    w = 0;
    for (int i = first; i < *at; i++) {
        Stmt *s = q->s.p[i];
        if (!s->call.f->nret) continue;
        fn_open(f, "if (unit != %d %% nunit) {", s->unit);
        for (int k = 0; k < s->call.f->nret; k++)
            fn_line(f, "%s = *(%s *)&shared[%d];", f->symbol(f, s->call.ret[k]),
                    c_type(s->call.f->ret[k]->dtype), w++);
        fn_end(f);
    }
    fn_else(f, in, "} else {");
    for (int i = first; i < *at; i++) {
        probe_begin(x, q->s.p[i]);
        call_rows(x, q->s.p[i], "outer", "return st", "true");
        probe_end(x, q->s.p[i]);
    }
    fn_end(f);
    (*at)--;
}
