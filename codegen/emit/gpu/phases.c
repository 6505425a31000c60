/* phases.c: the kernel's text where the program has statements at host level: in phases, a launch
 * each.
 *
 * Statement number i at host level is phase 2 i + 1, what stands between it and the one before is
 * phase 2 i, and the last phase ends the run. The vendor's library does the odd phases; the kernel
 * has them, too, for machines without one. Uniform values and pointers that a later phase uses are
 * left in words of the arena; what a launch has come to is in the run record, and ends the next
 * ones when that is no good. */
#include "codegen/emit/emit_tree.h"
#include "scheduler/plan/library.h"
#include "scheduler/plan/phases.h"
#include "scheduler/passes.h"

typedef struct Used { /* a variable */
    const Tensor *t;  /* whose pointer it is, or NULL */
    Sym *s;           /* then the symbol that it is */
    int first, last;  /* phases */
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
    em->phases->slots = map_new(em->a);
    em->phases->products.a = em->phases->sizes.a = em->a;
    x->f.indent = 2;
}

void phases_note(Tree *x, const char *name, const Tensor *t, Sym *s) {
    Phases *k = x->em->phases;
    if (!k) return;
    Used *u = map_get(k->used, name);
    if (u)
        u->last = k->text.n;
    else {
        u = NEW(x->em->a, Used);
        *u = (Used){t, s, k->text.n, k->text.n};
        map_set(k->used, name, u);
    }
}

static void end_phase(Tree *x) {
    Emit *em = x->em;
    const char *text = x->f.out->n ? x->f.out->p : "";
    vec_push(em->a, &em->phases->text, text);
    *x->f.out = (Sb){.a = em->a};
}

/* ---- products ------------------------------------------------------------------------------- */
/* A number as the host computes it. */
static const char *host_text(Arena *a, const Expr *e) {
    int64_t v;
    if (e_is_int(e, &v)) return arena_printf(a, "%lld", (long long)v);
    if (e->op == E_INDIM)
        return arena_printf(a, "in[%d].dim[%d]", (int)(e->i >> 8), (int)(e->i & 255));
    const char *x = host_text(a, e->a[0]), *y = host_text(a, e->a[1]);
    const char *f = e->op == E_ADD   ? "add"
                    : e->op == E_SUB ? "subtract"
                    : e->op == E_MUL ? "multiply"
                    : e->op == E_MIN ? "least"
                                     : "most";
    return arena_printf(a, "bk_%s(%s, %s)", f, x, y);
}

/* Into the host's table; what depends on the inputs' sizes is set in front of each run. */
static void put_number(Emit *em, const char *name, Expr *e) {
    Phases *k = em->phases;
    int64_t v;
    if (e_is_int(e, &v)) {
        if (v) sb_printf(&k->products, ", .%s = %lld", name, (long long)v);
    } else
        sb_printf(&k->sizes, " \\\n    p[%d].%s = %s;", k->n, name, host_text(em->a, e));
}

/* Where an operand or the result begins: of which input, or of what else; and bytes from there. */
static void put_place(Emit *em, const LibraryProduct *p, int i) {
    Phases *k = em->phases;
    Tensor *t = p->t[i];
    const char *from = NULL;
    int64_t at = 0;
    if (t->kind == TK_INPUT)
        from = arena_printf(em->a, "%d", t->index);
    else if (t->kind == TK_CONST) {
        from = "BK_IN_WEIGHTS";
        at = emit_const_offset(em, t);
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
    const Seq *q = em->p->top;
    Tensor *t = s->op.t[0];
    LibraryProduct p;
    int at = 0;
    bool is = library_product(em->p, t, &p);
    ASSERT(is);
    while (q->s.p[at] != s) at++;
    if (phase_is_idle(em->p, at)) x->f.out->n = 0;
    end_phase(x);
    tree_place(x, t, tree_bytes(x, t));
    emit_group(em, &x->f, &x->decl, s, false);
    end_phase(x);
    sb_printf(&k->products, "%s    {.turned = {%d, %d}", k->n ? ", \\\n" : "", p.turned[0],
              p.turned[1]);
    sb_printf(&k->products, ", .type = {%s, %s}", blas_type(p.t[0]), blas_type(t));
    put_number(em, "m", p.m);
    put_number(em, "n", p.n);
    put_number(em, "k", p.k);
    put_number(em, "batch", p.batch);
    for (int i = 0; i < 3; i++) put_place(em, &p, i);
    sb_puts(&k->products, "}");
    k->n++;
}

/* ---- the text ------------------------------------------------------------------------------- */
/* What u is at the beginning of a run, as text, where that says it: it needs no word. "": it has
 * been said already. */
static const char *known(Tree *x, const Used *u) {
    Arena *a = x->em->a;
    if (u->s) {
        Expr *value =
            u->s->dtype == DT_I64 ? library_host_value(x->em->p, e_sym(x->em->c, u->s)) : NULL;
        return value ? tree_expr(x, value) : NULL;
    }
    const Mem *m = mem_of(u->t);
    const char *type = c_store(u->t->dtype);
    if (!m || m->frame || u->t->kind == TK_PHI) return NULL;
    if (m->kind == M_SHARED) return "";
    if (m->kind == M_STATIC)
        return arena_printf(a, "(%s *)(k->arena + %lld)", type, (long long)m->off[0]);
    return m->kind == M_SLOT && u->t->placed
               ? arena_printf(a, "(%s *)k->slot[%d]", type, m->slot[0])
               : NULL;
}

/* Leaves or reads, in phase `phase`, the words of all variables that others use behind or set
 * before. */
static void cross(Tree *x, int phase, bool leave) {
    Emit *em = x->em;
    int n = -1;
    for (int i = 0; i < x->var.n; i++) {
        const Var *v = &x->var.p[i];
        const Used *u = map_get(em->phases->used, v->name);
        if (!u || u->first == u->last) continue;
        const char *value = known(x, u);
        if (value) {
            if (!leave && *value && u->first < phase && u->last >= phase)
                fn_line(&x->f, "%s = %s;", v->name, value);
            continue;
        }
        ASSERT(u->first % 2 == 0); /* a library sets no variables */
        if (leave && u->first == phase)
            tree_write_shared(x, v->type, v->name, &n);
        else if (!leave && u->first < phase && u->last >= phase)
            tree_read_shared(x, v->type, v->name, &n);
        else
            n++;
    }
}

/* At the end of a phase, by unit 0. */
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
    Sb all = {.a = em->a};
    int launches = 0;
    int top = 0; /* the last word that says where the arena's top is; 0: this is the first launch */
    int64_t base = (em->plan.arena + 63) / 64 * 64;
    vec_push(em->a, &k->text, last);
    em->plan.arena = base + (8 * (x->var.n + k->n + 2) + 63) / 64 * 64;
    x->f.out = &all;
    x->f.indent = 1;
    fn_line(&x->f, "int64_t *const shared = (int64_t *)(k->arena + %lld);", (long long)base);
    fn_line(&x->f, "(void)shared;");
    for (int i = 0; i < k->text.n; i++) {
        if (!*k->text.p[i]) continue;
        fn_line(&x->f, "if (phase == %d) {", i);
        x->f.indent = 2;
        if (top)
            fn_line(&x->f, "if ((st = bk_after(%d)) != BK_OK) return st;", launches % 2);
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
