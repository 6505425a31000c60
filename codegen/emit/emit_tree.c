/* emit_tree.c: what printers of statements use: names, variables, uniform expressions, exits,
 * barriers. */
#include "codegen/emit/emit_tree.h"
#include "scheduler/plan/phases.h"

/* ---- recursion: what functions capture ------------------------------------------------------- */
/* Whether q is inside any function of the recursion: a jump also names parameters of other
 * functions (gpu/recursion.c). */
static bool in_recursion(const Tree *x, const Seq *q) {
    for (; q; q = q->parent)
        if (q->owner == x->func->start) return true;
    return false;
}

static void note_tensor(Tree *x, Tensor *t) {
    if (!x->func || in_recursion(x, t->seq)) return;
    for (int i = 0; i < x->captured->t.n; i++)
        if (x->captured->t.p[i] == t) return;
    vec_push(x->em->a, &x->captured->t, t);
}

static void note_symbol(Tree *x, Sym *s) {
    if (!x->func || in_recursion(x, s->scope)) return;
    for (int i = 0; i < x->captured->s.n; i++)
        if (x->captured->s.p[i] == s) return;
    vec_push(x->em->a, &x->captured->s, s);
}

/* Asserts that a variable (the pointer of t, or s) is live in the current phase. */
static void check_phase(const Tree *x, const Tensor *t, const Sym *s) {
    const PhasePlan *plan = x->em->p->phases;
    if (!plan) return;
    const PhaseSpan *span = t ? &plan->tensor[t->id] : &plan->sym[s->id];
    const int phase = x->em->phases->text.n;
    ASSERT(span->begin <= phase && phase < span->end);
}

/* ---- names ----------------------------------------------------------------------------------- */
const char *tree_tensor(Fn *f, Tensor *t) {
    switch (t->kind) {
    case TK_VIEW: return tree_tensor(f, t->base);
    case TK_CONST: return emit_const(f->em, t);
    case TK_INPUT:
        return arena_printf(f->a, "((const %s *)%s)", c_store(t->dtype),
                            input_name(f->em, t->index));
    default:
        note_tensor(f->user, t);
        check_phase(f->user, t, NULL);
        return arena_printf(f->a, "v%d_%s", t->id, c_name(f->a, t->name, 16));
    }
}

const char *tree_symbol(Fn *f, Sym *s) {
    note_symbol(f->user, s);
    check_phase(f->user, NULL, s);
    return arena_printf(f->a, "s%d_%s", s->id, c_name(f->a, s->name, 16));
}

const char *tree_expr(Tree *x, Expr *e) { return fn_uniform(&x->f, e); }

const char *tree_pointer_type(Tree *x, DType t) {
    return arena_printf(x->em->a, "%s *", c_store(t));
}

void tree_var(Tree *x, const char *type, const char *name, const char *init) {
    Var v = {type, name, init};
    vec_push(x->em->a, &x->var, v);
}
#define LINE_MOST 90
/* Variables of one type that follow each other share lines. */
void tree_print_vars(const Tree *x, Sb *s) {
    size_t line = 0;
    for (int i = 0; i < x->var.n; i++) {
        const Var *v = &x->var.p[i], *last = i ? v - 1 : NULL;
        const char *star = strchr(v->type, '*') ? v->type + strlen(v->type) - 1 : "";
        ASSERT(!*star || *star == '*');
        const char *text = arena_printf(x->em->a, "%s%s = %s", star, v->name, v->init);
        if (last && !strcmp(last->type, v->type) && line + strlen(text) < LINE_MOST)
            sb_printf(s, ", %s", text);
        else {
            const int n = (int)(strlen(v->type) - strlen(star));
            sb_printf(s, "%s    %.*s%s%s", i ? ";\n" : "", n, v->type, *star ? "" : " ", text);
            line = (size_t)n + 4;
        }
        line += strlen(text) + 2;
    }
    if (x->var.n) sb_puts(s, ";\n");
}
void tree_local(Tree *x, const char *type, const char *name, const char *value) {
    if (x->stack) {
        tree_var(x, type, name, "0");
        fn_line(&x->f, "%s = %s;", name, value);
    } else
        fn_line(&x->f, "%s %s = %s;", type, name, value);
}

void tree_declare(Tree *x, Tensor *t, const char *init) {
    if (!x->em->tensor_declared[t->id]++)
        tree_var(x, tree_pointer_type(x, t->dtype), tree_tensor(&x->f, t), init);
}
void tree_declare_symbol(Tree *x, Sym *s) {
    tree_var(x, c_type(s->dtype), tree_symbol(&x->f, s), "0");
}

bool tree_recursive(const Tree *x) { return x->em->p->nfunc > 0; }

const char *tree_stop(const Tree *x, const char *code) {
    return x->leave ? arena_printf(x->em->a, "goto %s;", x->leave)
                    : arena_printf(x->em->a, "return %s;", code);
}

const char *want_else(const Tree *x, const char *path, const char *stop) {
    int site = cx_site(x->em->c, path && *path ? path : NULL, "the run needs");
    return arena_printf(x->em->a, "{ bk_want(k, %d); %s }", site, stop);
}
const char *tree_want(const Tree *x, const char *path) {
    return want_else(x, path, tree_stop(x, "BK_GROW"));
}

/* The barrier itself. */
static void barrier(Tree *x) {
    if (x->level == LEVEL_CORE) { /* one unit: its threads synchronize */
        if (emit_is_gpu(x->em)) fn_line(&x->f, "bk_block();");
    } else if (x->level == LEVEL_CLUSTER)
        fn_line(&x->f, "if ((st = bk_cluster_barrier()) != BK_OK) %s", tree_stop(x, "st"));
    if (x->level < LEVEL_TEAM) return;
    if (x->func && x->em->p->mem->parts) /* a unit that runs alone waits for nobody */
        fn_line(&x->f, "if ((nunit > 1 ? (st = bk_barrier(k, unit)) : (st = bk_state(k))) != "
                       "BK_OK) return st;");
    else
        fn_line(&x->f, "if ((st = bk_barrier(k, unit)) != BK_OK) return st;");
}

void tree_barrier(Tree *x, const void *place) {
    probe_begin(x, place);
    barrier(x);
    probe_end(x, place);
    if (x->level >= LEVEL_TEAM && tree_recursive(x)) fn_line(&x->f, "top = low;");
}

const char *call_result(Tree *x, const Func *g, int i) {
    return x->stack ? arena_printf(x->em->a, "q%d_%d", g->id, i) : arena_printf(x->em->a, "r%d", i);
}

void tree_write_shared(Tree *x, const char *type, const char *name, int *n) {
    bool pointer = type[strlen(type) - 1] == '*';
    ++*n;
    if (pointer)
        fn_line(&x->f, "if (bk_lead(unit)) *(%s *)&shared[%d] = (%s)(uintptr_t)%s;", type, *n, type,
                name);
    else
        fn_line(&x->f, "if (bk_lead(unit)) *(%s *)&shared[%d] = %s;", type, *n, name);
}
void tree_read_shared(Tree *x, const char *type, const char *name, int *n) {
    fn_line(&x->f, "%s = *(%s *)&shared[%d];", name, type, ++*n);
}

Fn tree_fn(Tree *x, Sb *out) {
    Emit *em = x->em;
    return (Fn){.em = em,
                .c = em->c,
                .a = em->a,
                .out = out,
                .indent = 1,
                .uses = map_new(em->a),
                .tensor = tree_tensor,
                .symbol = tree_symbol,
                .user = x};
}
