/* recursion.c: recursion on the C stack: a Func is a C function that calls itself. The tensors of
 * known size of an activation are one frame in the arena. */
#include "codegen/emit/emit_tree.h"

/* The parameters of a function after the context and the units, and their names: the arguments with
 * which the two forms of a function (Func.parts) call its common body. */
typedef struct ParamLists {
    Sb params, names;
} ParamLists;

static void add_param(ParamLists *to, const char *type, const char *name) {
    sb_printf(&to->params, ", %s%s", type, name);
    sb_printf(&to->names, ", %s", name);
}

static ParamLists params_of(Tree *x, const Func *g) {
    Fn *f = &x->f;
    Arena *a = x->em->a;
    ParamLists to = {.params = {.a = a}, .names = {.a = a}};
    sb_printf(&to.params, "int64_t depth, size_t *end, captured%d *outer", x->captured->id);
    sb_puts(&to.names, "depth, end, outer");
    for (int i = 0; i < g->nsym; i++)
        add_param(&to, arena_printf(a, "%s ", c_type(g->sym[i]->dtype)), f->symbol(f, g->sym[i]));
    for (int i = 0; i < g->narg; i++)
        add_param(&to, tree_pointer_type(x, g->arg[i]->dtype), f->tensor(f, g->arg[i]));
    for (int i = 0; i < g->nout; i++)
        add_param(&to, arena_printf(a, "%s *%s", c_store(g->out[i]->dtype), g->room[i] ? "" : "*"),
                  call_result(x, g, i));
    for (int i = 0; i < g->nret; i++)
        add_param(&to, arena_printf(a, "%s *", c_type(g->ret[i]->dtype)),
                  arena_printf(a, "y%d", i));
    return to;
}

/* Whether no callee takes memory for its results. */
static bool all_room(const Func *g) {
    for (int i = 0; i < g->start->call.nfunc; i++)
        for (int k = 0; k < g->start->call.func[i]->nout; k++)
            if (!g->start->call.func[i]->room[k]) return false;
    return true;
}

/* Writes the body of g to *body, declarations first. Adds what it captures to x->captured. */
static void func_body(Tree *x, const Func *g, Sb *body) {
    Sb text = {.a = x->em->a};
    Fn *f = &x->f;
    x->f = tree_fn(x, &text);
    probe_seq_begin(x, g->body);
    probe_activation(x, g->body, "depth");
    emit_seq(x, g->body);
    ASSERT(x->var.n == g->vars);
    for (int i = 0; i < g->nret; i++) fn_line(f, "*y%d = %s;", i, tree_expr(x, g->ret[i]));
    for (int i = 0; i < g->nout; i++)
        if (!g->room[i]) fn_line(f, "*%s = %s;", call_result(x, g, i), f->tensor(f, g->out[i]));
    if (g->parts && all_room(g))
        fn_line(f, "if (!alone) *end = top;"); /* alone: no other unit uses that memory */
    else if (!g->lends)
        fn_line(f, "*end = top;");
    fn_line(f, "return BK_OK;");
    x->f.out = body;
    tree_print_vars(x, body);
    if (x->decl.n) sb_puts(body, x->decl.p);
    if (text.n) sb_puts(body, text.p);
}

static void func_head(Tree *x, const Func *g, Sb *s) {
    Emit *em = x->em;
    sb_puts(s, "    int st;\n    size_t top = *end, low;\n");
    if (em->p->mem->parts) sb_puts(s, "    const bk_span span = outer->span;\n    (void)span;\n");
    if (em->p->probes) sb_puts(s, "    bk_profile *const prof = outer->prof;\n");
    sb_printf(s, "    if (depth > k->stack_depth && !bk_deeper(k, depth, %d)) return BK_FAULT;\n",
              g->site);
    sb_puts(s, "    if ((st = bk_loop_state(k, unit, nunit)) != BK_OK) return st;\n");
    if (g->frame) {
        sb_printf(s, "    char *frame = bk_claim%s&top, %lld);\n", tree_arena(x),
                  (long long)g->frame);
        sb_printf(s, "    if (!frame) %s\n", want_else(x, g->start->path, "return BK_GROW;"));
    }
    sb_puts(s, "    low = top;\n    (void)st, (void)low;\n");
    if (g->lends) sb_puts(s, "    if (top > outer->high) outer->high = top;\n");
}

Captured *emit_functions(Tree *x, Stmt *s) {
    Emit *em = x->em;
    Captured *c = NEW(em->a, Captured);
    c->id = s->call.func[0]->id;
    int n = s->call.nfunc;
    Sb *body = NEWN(em->a, Sb, n), out = {.a = em->a};
    ParamLists *list = NEWN(em->a, ParamLists, n);
    /* If units run calls alone, a function has two forms: for all units, and for one alone. Most
     * activations are of the second form, whose C stack frame is smaller. */
    bool two = s->call.func[0]->parts;
    static const char *const form[2] = {"(bk_ctx *k, int unit, int nunit", "_alone(bk_ctx *k"};
    for (int i = 0; i < n; i++) {
        const Func *g = s->call.func[i];
        Tree in = {.em = em, .level = LEVEL_TEAM, .decl = {.a = em->a}, .func = g, .captured = c};
        body[i].a = em->a;
        func_body(&in, g, &body[i]);
        list[i] = params_of(&in, g);
    }
    /* All captured values are known now. */
    call_captured_type(x, c, &out);
    for (int i = 0; i < n; i++)
        for (int k = 0; k < (two ? 2 : 1); k++)
            sb_printf(&out, "%s %s%s, %s);\n", em->target->recursive, call_name(x, s->call.func[i]),
                      form[k], list[i].params.p);
    for (int i = 0; i < n; i++) {
        const Func *g = s->call.func[i];
        size_t before = out.n;
        sb_printf(&out, "/* function %s */\n", emit_comment(em, g->name));
        if (two)
            sb_printf(&out, "BK_INLINE int %s_both(const bool alone, %s, %s) {\n", call_name(x, g),
                      form[0] + 1, list[i].params.p);
        else
            sb_printf(&out, "%s %s%s, %s) {\n", em->target->recursive, call_name(x, g), form[0],
                      list[i].params.p);
        func_head(x, g, &out);
        call_captured(x, c, &out, true);
        sb_puts(&out, body[i].p);
        sb_puts(&out, "}\n\n");
        for (int k = 0; k < 2 && two; k++)
            sb_printf(&out, "%s %s%s, %s) {\n    return %s_both(%s, k, %s, %s);\n}\n\n",
                      em->target->recursive, call_name(x, g), form[k], list[i].params.p,
                      call_name(x, g), k ? "true" : "false", k ? "0, 1" : "unit, nunit",
                      list[i].names.p);
        /* An upper bound: a variable has more text than it can take stack, even the large ones of
         * hand-written bodies. */
        size_t bytes = (4096 + 4 * (out.n - before)) / (size_t)(g->inside + 1);
        if (bytes > em->frame_bytes) em->frame_bytes = bytes;
    }
    sb_puts(&em->functions, out.p);
    return c;
}
