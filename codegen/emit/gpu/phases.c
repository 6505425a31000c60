/* phases.c: prints a kernel in phases, each a launch, as scheduler/plan/phases.h plans them.
 *
 * The vendor's library runs the odd phases; the kernel has them, too, for machines without it. The
 * run record holds the status of a launch. If it failed, the next ones end at once. */
#include "codegen/emit/emit_tree.h"
#include "scheduler/plan/phases.h"
#include "scheduler/plan/memory.h"
#include "scheduler/plan/weights.h"

void phases_begin(Tree *x) {
    Emit *em = x->em;
    if (!em->p->phases) return;
    em->phases = NEW(em->a, Phases);
    em->phases->slots = map_new(em->a);
    em->phases->products.a = em->phases->sizes.a = em->a;
    x->f.indent = 2;
}

static void end_phase(Tree *x) {
    Emit *em = x->em;
    const char *text = x->f.out->n ? x->f.out->p : "";
    vec_push(em->a, &em->phases->text, text);
    *x->f.out = (Sb){.a = em->a};
}

/* ---- products ------------------------------------------------------------------------------- */
/* Writes to the host's table; what depends on the inputs' sizes is set before each run. */
static void put_number(Emit *em, const char *name, Expr *e) {
    Phases *k = em->phases;
    int64_t v;
    if (e_is_int(e, &v)) {
        if (v) sb_printf(&k->products, ", .%s = %lld", name, (long long)v);
    } else
        sb_printf(&k->sizes, " \\\n    p[%d].%s = %s;", k->n, name, host_text(em->a, e));
}

/* Where operand i or the result begins: an input or another buffer, and the offset in bytes. */
static void put_place(Emit *em, const LibraryProduct *p, int i) {
    Phases *k = em->phases;
    Tensor *t = p->t[i];
    const char *from = NULL;
    int64_t at = 0;
    if (t->kind == TK_INPUT)
        from = arena_printf(em->a, "%d", t->index);
    else if (t->kind == TK_CONST) {
        from = "BK_IN_WEIGHTS";
        at = weights_find(em->p, t)->offset;
    } else {
        const Mem *m = mem_of(t);
        if (m->kind == M_SHARED) m = mem_of(m->via);
        ASSERT((m->kind == M_STATIC && !m->frame) || (m->kind == M_SLOT && t->placed));
        from =
            m->kind == M_STATIC ? "BK_IN_ARENA" : arena_printf(em->a, "BK_IN_SLOT(%d)", m->slot[0]);
        at = m->kind == M_STATIC ? m->off[0] : 0;
        if (m->kind == M_SLOT && !map_geti(k->slots, (uint64_t)m->slot[0] + 1)) {
            map_seti(k->slots, (uint64_t)m->slot[0] + 1, t);
            Expr *bytes = e_muli(em->c, tensor_count(em->c, t), (int64_t)dtype_size(t->dtype));
            sb_printf(&k->sizes, " \\\n    need[%d] = %s;", m->slot[0],
                      host_text(em->a, library_host_value(em->p, bytes)));
        }
    }
    sb_printf(&k->products, ", .from[%d] = %s, .base[%d] = %lld", i, from, i, (long long)at);
    put_number(em, arena_printf(em->a, "at[%d]", i), p->at[i]);
    put_number(em, arena_printf(em->a, "ld[%d]", i), p->ld[i]);
    put_number(em, arena_printf(em->a, "next[%d]", i), p->next[i]);
}

static const char *blas_type(const Tensor *t) {
    return t->dtype == DT_F16 ? "BK_F16" : t->dtype == DT_BF16 ? "BK_BF16" : "BK_F32";
}

void phases_product(Tree *x, Stmt *s) {
    Emit *em = x->em;
    Phases *k = em->phases;
    Tensor *t = s->op.t[0];
    const LibraryProduct *p = &em->p->phases->product[k->n];
    if (em->p->phases->idle[k->n]) x->f.out->n = 0;
    end_phase(x);
    tree_place(x, t, tree_bytes(x, t));
    emit_group(em, &x->f, &x->decl, s, false);
    end_phase(x);
    sb_printf(&k->products, "%s    {.turned = {%d, %d}", k->n ? ", \\\n" : "", p->turned[0],
              p->turned[1]);
    sb_printf(&k->products, ", .type = {%s, %s}", blas_type(p->t[0]), blas_type(t));
    put_number(em, "m", p->m);
    put_number(em, "n", p->n);
    put_number(em, "k", p->k);
    put_number(em, "batch", p->batch);
    for (int i = 0; i < 3; i++) put_place(em, p, i);
    sb_puts(&k->products, "}");
    k->n++;
}

/* ---- the text ------------------------------------------------------------------------------- */
/* The value of a variable that every launch can compute at its beginning. */
static const char *known(Tree *x, const Handed *h) {
    if (h->value) return tree_expr(x, h->value);
    const Tensor *t = x->em->p->mem->variable.p[h->variable].t;
    const Mem *m = mem_of(t);
    const char *type = c_store(t->dtype);
    if (m->kind == M_SLOT) return arena_printf(x->em->a, "(%s *)k->slot[%d]", type, m->slot[0]);
    return tree_static(x, m, type);
}

/* Writes or reads, in phase `phase`, what passes between phases. */
static void cross(Tree *x, int phase, bool leave) {
    const PhasePlan *plan = x->em->p->phases;
    for (int i = 0; i < plan->handed.n; i++) {
        const Handed *h = &plan->handed.p[i];
        const Var *v = &x->var.p[h->variable];
        const bool comes = h->span.begin < phase && phase < h->span.end;
        int n = h->word - 1;
        if (leave && h->span.begin == phase && h->word >= 0)
            tree_write_shared(x, v->type, v->name, &n);
        else if (!leave && comes && h->word >= 0)
            tree_read_shared(x, v->type, v->name, &n);
        else if (!leave && comes)
            fn_line(&x->f, "%s = %s;", v->name, known(x, h));
    }
}

/* At the end of a phase, unit 0 writes what the next ones read. */
static void leave(Tree *x, int phase, int top) {
    Sb *all = x->f.out, words = {.a = x->em->a};
    x->f.out = &words;
    x->f.indent++;
    cross(x, phase, true);
    if (x->em->p->mem->claims)
        fn_line(&x->f, "if (bk_lead(0)) shared[%d] = (int64_t)%s;", top,
                x->em->p->nfunc ? "low" : "top");
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
    const PhasePlan *plan = em->p->phases;
    Sb all = {.a = em->a};
    int launches = 0;
    int top = 0; /* the word with the arena's top after the last launch; 0: no launch yet */
    vec_push(em->a, &k->text, last);
    x->f.out = &all;
    x->f.indent = 1;
    fn_line(&x->f, "int64_t *const shared = (int64_t *)(k->arena + %lld);", (long long)plan->at);
    fn_line(&x->f, "(void)shared;");
    for (int i = 0; i < k->text.n; i++) {
        if (i < k->text.n - 1 && i % 2 == 0 && plan->idle[i / 2]) continue;
        fn_line(&x->f, "if (phase == %d) {", i);
        x->f.indent = 2;
        if (top) fn_line(&x->f, "if ((st = bk_after(%d)) != BK_OK) return st;", launches % 2);
        cross(x, i, false);
        if (top && em->p->mem->claims) fn_line(&x->f, "top = (size_t)shared[%d];", top);
        if (top && em->p->nfunc) fn_line(&x->f, "low = top;");
        sb_puts(&all, k->text.p[i]);
        if (i % 2 == 0) {
            launches++;
            top = x->var.n + i / 2 + 1;
            if (i < k->text.n - 1) leave(x, i, top);
        }
        if (i < k->text.n - 1) fn_line(&x->f, "return BK_OK;");
        x->f.indent = 1;
        fn_line(&x->f, "}");
    }
    fn_line(&x->f, "return BK_OK;");
    return all.p;
}
