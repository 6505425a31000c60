/* recursion.c: recursion on a simulated stack, for targets whose own stack is too small.
 *
 * The functions of one recursion become one function of the target. A call saves the caller's
 * variables as a record on the stack, sets the callee's parameters and jumps to its label. When an
 * activation ends, it loads the caller's record and jumps to the label after the call. All threads
 * of a unit share one record, which one thread writes: in the block's own memory, and when that is
 * full, in a growable buffer. Labels are cases of one switch around all bodies, so that a call may
 * be inside a loop or a branch; so between the switch and a label no declaration may initialize,
 * except inside its own braces. */
#include "codegen/emit/emit_tree.h"
#include "scheduler/plan/variables.h"

typedef struct Stack {
    int id;
    int nlabel; /* labels: of functions, then of calls */
    const Stmt *start;
} Stack;

static int label_of(const Stack *k, const Func *g) {
    for (int i = 0; i < k->start->call.nfunc; i++)
        if (k->start->call.func[i] == g) return i;
    die("a call of a function of another recursion");
}

static const char *returned(Tree *x, const Func *g, int i) {
    return arena_printf(x->em->a, "y%d_%d", g->id, i);
}

static const char *record_at(Tree *x, const Func *g) {
    const Stack *k = x->stack;
    return arena_printf(x->em->a, "(record%d *)BK_RECORD%d(level)", g->id, k->id);
}

void emit_jump(Tree *x, Stmt *s, const char *at, const char *rows) {
    Fn *f = &x->f;
    Emit *em = x->em;
    Stack *k = x->stack;
    const Func *g = s->call.f, *own = x->func;
    int label = k->nlabel++, n = 0;
    fn_open(f, "{ /* %s */", emit_comment(em, s->path));
    fn_line(f, "record%d *const kept = %s;", own->id, record_at(x, own));
    fn_line(f, "if (!kept) %s", want_else(x, s->path, "return BK_GROW;"));
    if (at) fn_line(f, "bk_block();"); /* all have read the record of the previous rows */
    fn_line(f, "if (bk_lead(0)) {");
    fn_line(f, "    kept->label = %d;", label);
    fn_line(f, "    BK_SAVE%d(kept);", own->id);
    fn_line(f, "}");
    /* Compute all parameters before setting any: the callee may be the caller. */
    Sb set = {.a = em->a};
    for (int i = 0; i < g->nsym; i++) {
        const char *value = i == 0 && rows ? rows : tree_expr(x, s->call.sym[i]);
        fn_line(f, "const %s n%d = %s;", c_type(g->sym[i]->dtype), n, value);
        sb_printf(&set, " %s = n%d;", f->symbol(f, g->sym[i]), n++);
    }
    for (int i = 0; i < g->narg; i++) {
        const char *type = c_store(g->arg[i]->dtype);
        fn_line(f, "%s *const n%d = (%s *)(uintptr_t)%s%s;", type, n, type,
                f->tensor(f, s->call.arg[i]), call_row_offset(x, at, s->call.arg[i]));
        sb_printf(&set, " %s = n%d;", f->tensor(f, g->arg[i]), n++);
    }
    for (int i = 0; i < g->nout; i++) {
        if (!g->room[i]) continue;
        fn_line(f, "%s *const n%d = %s%s;", c_store(g->out[i]->dtype), n,
                f->tensor(f, s->call.out[i]), call_row_offset(x, at, s->call.out[i]));
        sb_printf(&set, " %s = n%d;", call_result(x, g, i), n++);
    }
    fn_line(f, "level++, depth += %d, label = %d;%s", 1 + own->inside, label_of(k, g),
            set.n ? set.p : "");
    fn_line(f, "goto run;");
    fn_end(f);
    fn_open(f, "case %d: {", label);
    fn_line(f, "const record%d *const kept = %s;", own->id, record_at(x, own));
    fn_line(f, "BK_LOAD%d(kept);", own->id);
    fn_line(f, "depth -= %d;", 1 + own->inside);
    if (g->lends) fn_line(f, "top = kept->top;"); /* else the callee's memory stays taken */
    for (int i = 0; i < g->nout; i++)
        if (!g->room[i]) fn_line(f, "%s = %s;", f->tensor(f, s->call.out[i]), call_result(x, g, i));
    for (int i = 0; i < g->nret; i++)
        fn_line(f, "%s = %s;", f->symbol(f, s->call.ret[i]), returned(x, g, i));
    fn_end(f);
}

/* Writes function g to *to, as a case of the switch. */
static void emit_case(Tree *x, const Func *g, int label, Sb *to) {
    Emit *em = x->em;
    Sb text = {.a = em->a};
    Fn *f = &x->f;
    x->f = tree_fn(x, &text);
    f->indent = 2;
    f->jumps = true;
    probe_seq_begin(x, g->body);
    probe_activation(x, g->body, "depth");
    emit_seq(x, g->body);
    for (int i = 0; i < g->nret; i++)
        fn_line(f, "%s = %s;", returned(x, g, i), tree_expr(x, g->ret[i]));
    for (int i = 0; i < g->nout; i++)
        if (!g->room[i]) fn_line(f, "%s = %s;", call_result(x, g, i), f->tensor(f, g->out[i]));
    sb_printf(to, "    case %d: { /* function %s */\n", label, emit_comment(em, g->name));
    sb_printf(to,
              "        if (depth > k->stack_depth && !bk_deeper(k, depth, %d)) return BK_FAULT;\n",
              g->site);
    if (g->frame) {
        sb_printf(to, "        frame = bk_claim(k, &top, %lld);\n", (long long)g->frame);
        sb_printf(to, "        if (!frame) %s\n", want_else(x, g->start->path, "return BK_GROW;"));
    }
    sb_puts(to, "        low = top;\n");
    if (g->lends) sb_puts(to, "        if (top > outer->high) outer->high = top;\n");
    for (int i = 0; i < x->var.n; i++)
        sb_printf(to, "        %s = %s;\n", x->var.p[i].name, x->var.p[i].init);
    if (text.n) sb_puts(to, text.p);
    sb_puts(to, "        break;\n    }\n");
}

static const char *plain(Arena *a, const char *type) {
    return strncmp(type, "const ", 6) ? type : arena_strdup(a, type + 6);
}
static const char *gap(const char *type) { return strchr(type, '*') ? "" : " "; }

/* Adds to x->var what an activation of g must also save at a call, such as parameters. */
static void kept_by(Tree *x, const Func *g) {
    Fn *f = &x->f;
    Arena *a = x->em->a;
    Var own[] = {{"char *", "frame", NULL}, {"size_t", "low", NULL}, {"size_t", "top", NULL}};
    ASSERT(COUNT(own) == RECORD_OWN);
    for (size_t i = 0; i < COUNT(own); i++) vec_push(a, &x->var, own[i]);
    for (int i = 0; i < g->nsym; i++)
        tree_var(x, c_type(g->sym[i]->dtype), f->symbol(f, g->sym[i]), NULL);
    for (int i = 0; i < g->narg; i++)
        tree_var(x, tree_pointer_type(x, g->arg[i]->dtype), f->tensor(f, g->arg[i]), NULL);
}

/* The type of g's records, and how to save and load them, but for `top`: the callee sets it. */
static void put_record(Tree *x, const Func *g, Sb *s) {
    sb_printf(s, "typedef struct record%d {\n    int label;\n", g->id);
    for (int i = 0; i < x->var.n; i++)
        sb_printf(s, "    %s%s%s;\n", plain(x->em->a, x->var.p[i].type), gap(x->var.p[i].type),
                  x->var.p[i].name);
    for (int load = 0; load < 2; load++) {
        sb_printf(s, "%s%d(r) (",
                  load ? ")\n#define BK_LOAD"
                       : arena_printf(x->em->a, "} record%d;\n#define BK_SAVE", g->id),
                  g->id);
        for (int i = 0, n = 0; i < x->var.n; i++) {
            const char *name = x->var.p[i].name;
            if (load && !strcmp(name, "top")) continue;
            if (n++) sb_puts(s, ", \\\n    ");
            if (load)
                sb_printf(s, "%s = (r)->%s", name, name);
            else
                sb_printf(s, "(r)->%s = %s", name, name);
        }
    }
    sb_puts(s, ")\n");
}

/* Parameters of g: for the entry, parameters of the whole function, which returns values through
 * pointers; for others, variables. */
static void put_parameter(Sb *s, bool entry, bool returned, const char *type, const char *name) {
    if (entry)
        sb_printf(s, ", %s%s%s%s%s", type, gap(type), returned ? "*" : "", name,
                  returned ? "_end" : "");
    else
        sb_printf(s, "    %s%s%s = 0;\n", type, gap(type), name);
}
static void put_parameters(Tree *x, const Func *g, Sb *s, bool entry) {
    Fn *f = &x->f;
    for (int i = 0; i < g->nsym; i++)
        put_parameter(s, entry, false, c_type(g->sym[i]->dtype), f->symbol(f, g->sym[i]));
    for (int i = 0; i < g->narg; i++)
        put_parameter(s, entry, false, tree_pointer_type(x, g->arg[i]->dtype),
                      f->tensor(f, g->arg[i]));
    for (int i = 0; i < g->nout; i++)
        put_parameter(s, entry, !g->room[i], tree_pointer_type(x, g->out[i]->dtype),
                      call_result(x, g, i));
    for (int i = 0; i < g->nret; i++)
        put_parameter(s, entry, true, c_type(g->ret[i]->dtype), returned(x, g, i));
}

/* Variables for what the entry returns, and the assignments to its caller's pointers. */
static void put_results(Tree *x, const Func *g, Sb *declare, Sb *give) {
    for (int i = 0; i < g->nout; i++) {
        const char *name = call_result(x, g, i);
        if (g->room[i]) continue;
        sb_printf(declare, "    %s *%s = NULL;\n", c_store(g->out[i]->dtype), name);
        sb_printf(give, "        *%s_end = %s;\n", name, name);
    }
    for (int i = 0; i < g->nret; i++) {
        const char *name = returned(x, g, i);
        sb_printf(declare, "    %s %s = 0;\n", c_type(g->ret[i]->dtype), name);
        sb_printf(give, "        *%s_end = %s;\n", name, name);
    }
}

Captured *emit_stack(Tree *x, Stmt *s) {
    Emit *em = x->em;
    Captured *c = NEW(em->a, Captured);
    c->id = s->call.func[0]->id;
    int n = s->call.nfunc;
    const Func *entry = s->call.f;
    Stack k = {.id = c->id, .nlabel = n, .start = s};
    Tree *in = NEWN(em->a, Tree, n);
    Sb cases = {.a = em->a}, out = {.a = em->a}, give = {.a = em->a};
    const Records *r = s->call.records;
    for (int i = 0; i < n; i++) {
        const Func *g = s->call.func[i];
        in[i] = (Tree){.em = em,
                       .level = LEVEL_TEAM,
                       .func = g,
                       .captured = c,
                       .stack = &k,
                       .next_id = i ? in[i - 1].next_id : 0};
        emit_case(&in[i], g, i, &cases);
        ASSERT(in[i].var.n == g->vars);
        kept_by(&in[i], g);
    }
    call_captured_type(x, c, &out);
    for (int i = 0; i < n; i++) put_record(&in[i], s->call.func[i], &out);
    sb_printf(&out,
              "#define BK_RECORD%d(level) bk_record(k, unit, nunit, level, %lld, %lld, %lld, %d)\n",
              k.id, (long long)r->bytes, (long long)r->at, (long long)r->near, r->slot);
    sb_puts(&out,
            "/* A recursion: calls are jumps, what activations keep are records of a stack. */\n");
    sb_printf(&out,
              "%s %s(bk_ctx *k, int unit, int nunit, int64_t depth, size_t *end, captured%d *outer",
              em->target->recursive, call_name(x, entry), c->id);
    for (int i = 0; i < n; i++)
        if (s->call.func[i] == entry) put_parameters(&in[i], entry, &out, true);
    sb_printf(&out, ") {\n    int st = BK_OK, label = %d;\n    int64_t level = 0;\n",
              label_of(&k, entry));
    sb_puts(
        &out,
        "    size_t top = *end, low = top;\n    char *frame = NULL;\n    (void)st, (void)frame;\n");
    if (em->p->probes) sb_puts(&out, "    bk_profile *const prof = outer->prof;\n");
    call_captured(&in[0], c, &out, true);
    for (int i = 0; i < n; i++) {
        const Func *g = s->call.func[i];
        if (g == entry)
            put_results(&in[i], g, &out, &give);
        else
            put_parameters(&in[i], g, &out, false);
        for (int v = 0; v < in[i].var.n; v++) {
            const Var *z = &in[i].var.p[v];
            if (!z->init) continue; /* a parameter */
            sb_printf(&out, "    %s%s%s = 0;\n", plain(em->a, z->type), gap(z->type), z->name);
        }
    }
    sb_puts(&out, "run:\n    switch (label) {\n");
    sb_puts(&out, cases.p);
    sb_puts(&out, "    }\n    if (level == 0) {\n");
    if (!entry->lends) sb_puts(&out, "        *end = top;\n");
    if (give.n) sb_puts(&out, give.p);
    sb_puts(&out, "        return BK_OK;\n    }\n    level--;\n    bk_block(); /* the record was "
                  "written by one thread */\n");
    sb_printf(&out, "    label = *(const int *)BK_RECORD%d(level);\n    goto run;\n}\n\n", k.id);
    sb_puts(&em->functions, out.p);
    return c;
}
