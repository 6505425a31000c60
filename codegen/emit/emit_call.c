/* emit_call.c: recursive functions, and calls of them.
 *
 * On the CPU the C stack is the recursion's stack: a Func is a C function that calls itself. It
 * takes its uniform parameters by value, tensors as pointers, room for its results from the caller,
 * and what it captures through a struct. An activation's tensors of known size are one frame of the
 * arena. */
#include "codegen/emit/emit_tree.h"
#include "scheduler/passes.h"
#include "stack/batch.h"

static const char *func_name(Tree *x, const Func *g) {
    return arena_printf(x->em->a, "rec%d_%s", g->id, c_name(x->em->a, g->name, 24));
}

const char *call_result(Tree *x, const Func *g, int i) {
    return x->stack ? arena_printf(x->em->a, "q%d_%d", g->id, i) : arena_printf(x->em->a, "r%d", i);
}

/* Those behind the context and, but for a unit that is alone, the units. */
static const char *params(Tree *x, const Func *g) {
    Fn *f = &x->f;
    Sb s = {.a = x->em->a};
    sb_printf(&s, "int64_t depth, size_t *end, captured%d *outer", x->captured->id);
    for (int i = 0; i < g->nsym; i++)
        sb_printf(&s, ", %s %s", c_type(g->sym[i]->dtype), f->symbol(f, g->sym[i]));
    for (int i = 0; i < g->narg; i++)
        sb_printf(&s, ", %s *%s", c_store(g->arg[i]->dtype), f->tensor(f, g->arg[i]));
    for (int i = 0; i < g->nout; i++)
        sb_printf(&s, ", %s *%s%s", c_store(g->out[i]->dtype), g->room[i] ? "" : "*",
                  call_result(x, g, i));
    for (int i = 0; i < g->nret; i++) sb_printf(&s, ", %s *y%d", c_type(g->ret[i]->dtype), i);
    return s.p;
}

/* What a form of g (Func.parts) hands to their common text. */
static const char *param_names(Tree *x, const Func *g) {
    Fn *f = &x->f;
    Sb s = {.a = x->em->a};
    sb_puts(&s, "depth, end, outer");
    for (int i = 0; i < g->nsym; i++) sb_printf(&s, ", %s", f->symbol(f, g->sym[i]));
    for (int i = 0; i < g->narg; i++) sb_printf(&s, ", %s", f->tensor(f, g->arg[i]));
    for (int i = 0; i < g->nout; i++) sb_printf(&s, ", %s", call_result(x, g, i));
    for (int i = 0; i < g->nret; i++) sb_printf(&s, ", y%d", i);
    return s.p;
}

/* Callees take no memory for results. */
static bool all_room(const Func *g) {
    for (int i = 0; i < g->start->call.nfunc; i++)
        for (int k = 0; k < g->start->call.func[i]->nout; k++)
            if (!g->start->call.func[i]->room[k]) return false;
    return true;
}

/* The inside of function g, to *body, declarations first. What it captures is added to x->captured.
 */
static void func_body(Tree *x, const Func *g, Sb *body) {
    Sb text = {.a = x->em->a};
    Fn *f = &x->f;
    x->f = tree_fn(x, &text);
    emit_seq(x, g->body);
    ASSERT(x->var.n == g->vars);
    for (int i = 0; i < g->nret; i++) fn_line(f, "*y%d = %s;", i, tree_expr(x, g->ret[i]));
    for (int i = 0; i < g->nout; i++)
        if (!g->room[i]) fn_line(f, "*%s = %s;", call_result(x, g, i), f->tensor(f, g->out[i]));
    if (g->parts && all_room(g))
        fn_line(f, "if (!alone) *end = top;"); /* alone, nobody else may be using it */
    else if (!g->lends)
        fn_line(f, "*end = top;");
    fn_line(f, "return BK_OK;");
    x->f.out = body;
    tree_print_vars(x, body);
    if (x->decl.n) sb_puts(body, x->decl.p);
    if (text.n) sb_puts(body, text.p);
    sb_free(&text);
    sb_free(&x->decl);
}

static void func_head(Tree *x, const Func *g, Sb *s) {
    Emit *em = x->em;
    sb_puts(s, "    int st;\n    size_t top = *end, low;\n");
    if (em->p->mem->parts) sb_puts(s, "    const bk_span span = outer->span;\n    (void)span;\n");
    sb_printf(s, "    if (depth > k->stack_depth && !bk_deeper(k, depth, %d)) return BK_FAULT;\n",
              g->site);
    if (g->frame) {
        sb_printf(s, "    char *frame = bk_claim%s&top, %lld);\n", tree_arena(x),
                  (long long)g->frame);
        sb_printf(s, "    if (!frame) %s\n", want_else(x, g->start->path, "return BK_GROW;"));
    }
    sb_puts(s, "    low = top;\n    (void)st, (void)low;\n");
    if (g->lends) sb_puts(s, "    if (top > outer->high) outer->high = top;\n");
}

/* Declares in a function, or gives from where the recursion starts, what is captured. */
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
    sb_printf(s, "%s    size_t high;\n} captured%d;\n", x->em->p->mem->parts ? "    bk_span span;\n" : "",
              c->id);
}

/* The functions that hang on call s, before the function around it. */
static Captured *emit_functions(Tree *x, Stmt *s) {
    Emit *em = x->em;
    Captured *c = NEW(em->a, Captured);
    c->id = s->call.func[0]->id;
    int n = s->call.nfunc;
    Sb *body = NEWN(em->a, Sb, n), out = {.a = em->a};
    const char **param = NEWN(em->a, const char *, n), **names = NEWN(em->a, const char *, n);
    /* Where units part, a function is there twice, for all units and for one that is alone: most
     * activations are of the second form, which has nothing of the parting in its stack frame. */
    bool two = s->call.func[0]->parts;
    static const char *const form[2] = {"(bk_ctx *k, int unit, int nunit", "_alone(bk_ctx *k"};
    for (int i = 0; i < n; i++) {
        const Func *g = s->call.func[i];
        Tree in = {.em = em, .level = LEVEL_TEAM, .decl = {.a = em->a}, .func = g, .captured = c};
        body[i].a = em->a;
        func_body(&in, g, &body[i]);
        param[i] = params(&in, g);
        names[i] = param_names(&in, g);
    }
    /* All is known that they capture. */
    call_captured_type(x, c, &out);
    for (int i = 0; i < n; i++)
        for (int k = 0; k < (two ? 2 : 1); k++)
            sb_printf(&out, "%s %s%s, %s);\n", em->target->recursive, func_name(x, s->call.func[i]),
                      form[k], param[i]);
    for (int i = 0; i < n; i++) {
        const Func *g = s->call.func[i];
        size_t before = out.n;
        sb_printf(&out, "/* function %s */\n", emit_comment(em, g->name));
        if (two)
            sb_printf(&out, "BK_INLINE int %s_both(const bool alone, %s, %s) {\n", func_name(x, g),
                      form[0] + 1, param[i]);
        else
            sb_printf(&out, "%s %s%s, %s) {\n", em->target->recursive, func_name(x, g), form[0],
                      param[i]);
        func_head(x, g, &out);
        call_captured(x, c, &out, true);
        sb_puts(&out, body[i].p);
        sb_puts(&out, "}\n\n");
        for (int k = 0; k < 2 && two; k++)
            sb_printf(&out, "%s %s%s, %s) {\n    return %s_both(%s, k, %s, %s);\n}\n\n",
                      em->target->recursive, func_name(x, g), form[k], param[i], func_name(x, g),
                      k ? "true" : "false", k ? "0, 1" : "unit, nunit", names[i]);
        /* A variable takes more text than it can take stack, also the large ones of hand-written
         * bodies. */
        size_t bytes = (4096 + 4 * (out.n - before)) / (size_t)(g->inside + 1);
        if (bytes > em->frame_bytes) em->frame_bytes = bytes;
        sb_free(&body[i]);
    }
    sb_puts(em->text, out.p);
    sb_free(&out);
    return c;
}

/* Where row `at` of t is, behind its name; NULL: the call is not cut. */
const char *call_row_offset(Tree *x, const char *at, const Tensor *t) {
    if (!at) return "";
    Expr *n = e_int(x->em->c, 1);
    for (int i = 1; i < t->rank; i++) n = e_mul(x->em->c, n, t->dim[i]);
    return arena_printf(x->em->a, " + %s * %s", at, tree_expr(x, n));
}

/* The call itself of a function of the target's; of rows [at, at + rows) of all, where that is not
 * NULL. `outer`: the address of what is captured; `fails`: what to do when it did; `alone`: the
 * condition under which the form for one unit is called, or NULL. */
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
    const char *name = func_name(x, g);
    int below = x->func ? 1 + x->func->inside : 1;
    const char *list = arena_printf(f->a, "depth + %d, &top, %s%s", below, outer, a.n ? a.p : "");
    if (alone) fn_line(f, "if (%s) st = %s_alone(k, %s);", alone, name, list);
    fn_line(f, "%sst = %s(k, unit, nunit, %s); /* %s */", alone ? "else " : "", name, list,
            emit_comment(x->em, s->path));
    fn_line(f, "if (st != BK_OK) %s;", fails);
    sb_free(&a);
}

/* Makes room for the results; true: some of it is the callee's. */
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

/* The call, cut in several where it is of too many rows. */
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
        fn_line(f, "for (%s = 0; %s < all%d; %s += most%d) {", at, at, id, at, id);
        f->indent++;
    }
    if (x->stack && !s->call.nfunc)
        emit_jump(x, s, at, rows);
    else
        invoke(x, s, outer, at, rows, fails, alone);
    if (g->rows) {
        f->indent--;
        fn_line(f, "}");
    }
}

void emit_call(Tree *x, Stmt *s) {
    Fn *f = &x->f;
    Emit *em = x->em;
    const Func *g = s->call.f;
    const char *outer = "outer", *high = NULL;
    bool braces = x->stack && s->call.nfunc; /* no label of ours stands inside */
    if (braces) fn_line(f, "{");
    if (s->call.nfunc) {
        const Captured *c =
            em->target->simd ? emit_functions(x, s) : emit_stack(x, s, func_name(x, g));
        Sb list = {.a = em->a};
        call_captured(x, c, &list, false);
        outer = arena_printf(em->a, "&outer%d", x->next_id++);
        fn_line(f, "captured%d %s = {%s%s%stop};", c->id, outer + 1, list.n ? list.p : "",
                list.n ? ", " : "", em->p->mem->parts ? "span, " : "");
        sb_free(&list);
        if (g->lends) high = arena_printf(em->a, "%s.high", outer + 1);
    }
    bool taken = place_results(x, s);
    call_rows(x, s, outer, "return st", !g->parts ? NULL : s->call.nfunc ? "nunit == 1" : "alone");
    if (high) fn_line(f, "if (%s > top) top = %s;", high, high);
    if (taken) fn_line(f, "low = top;"); /* the callee's memory holds results */
    if (braces) fn_line(f, "}");
}

/* ---- calls by a unit each -------------------------------------------------------------------- */
/* Each call has a part of the arena for what is below it. Uniform results are handed over in words
 * of this activation. */
void emit_split(Tree *x, const Seq *q, int *at) {
    Fn *f = &x->f;
    int id = x->next_id++, first = *at, w = 0;
    const int words = q->s.p[first]->apart->words;
    do place_results(x, q->s.p[*at]);
    while (++*at < q->s.n && q->s.p[*at]->beside);
    fn_line(f, "if (!alone && nunit > 1) { /* by a unit each */");
    f->indent++;
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
        fn_line(f, "if (unit == %d %% nunit) {", s->unit);
        f->indent++;
        fn_line(f, "const int unit = 0, nunit = 1;");
        fn_line(f, "captured%d own = *outer;", x->captured->id);
        fn_line(f, "own.span = part%d_%d;", id, i - first);
        fn_line(f, "size_t top = own.span.begin;");
        call_rows(x, s, "&own", arena_printf(f->a, "goto %s", leave), "true");
        for (int k = 0; k < s->call.f->nret; k++)
            fn_line(f, "*(%s *)&shared[%d] = %s;", c_type(s->call.f->ret[k]->dtype), w++,
                    f->symbol(f, s->call.ret[k]));
        fn_line(f, "%s:;", leave);
        f->indent--;
        fn_line(f, "}");
    }
    fn_line(f, "if ((st = bk_barrier(k, unit)) != BK_OK) return st;");
    fn_line(f, "top = low;");
    w = 0;
    for (int i = first; i < *at; i++) {
        Stmt *s = q->s.p[i];
        if (!s->call.f->nret) continue;
        fn_line(f, "if (unit != %d %% nunit) {", s->unit);
        f->indent++;
        for (int k = 0; k < s->call.f->nret; k++)
            fn_line(f, "%s = *(%s *)&shared[%d];", f->symbol(f, s->call.ret[k]),
                    c_type(s->call.f->ret[k]->dtype), w++);
        f->indent--;
        fn_line(f, "}");
    }
    f->indent--;
    fn_line(f, "} else {");
    f->indent++;
    for (int i = first; i < *at; i++) call_rows(x, q->s.p[i], "outer", "return st", "true");
    f->indent--;
    fn_line(f, "}");
    (*at)--;
}
