/* emit_apart.c: loops and branches that one core or one cluster runs while the others wait, and how
 * it passes their results to the others. */
#include "codegen/emit/emit_tree.h"

/* What happens to each variable that is passed: written to `shared`, or read from it. */
typedef void Hand(Tree *x, const char *type, const char *name, int *n);
static void symbol(Tree *x, Sym *s, Hand *each, int *n) {
    each(x, c_type(s->dtype), tree_symbol(&x->f, s), n);
}
static void pointer(Tree *x, Tensor *t, Hand *each, int *n) {
    each(x, tree_pointer_type(x, t->dtype), tree_tensor(&x->f, t), n);
}

/* The results of a loop or branch: uniform values and pointers. */
static void results_of(Tree *x, Stmt *s, Hand *each, int *n) {
    if (s->kind == S_LOOP) {
        symbol(x, s->loop.iter, each, n);
        for (int i = 0; i < s->loop.syms.n; i++) symbol(x, s->loop.syms.p[i].sym, each, n);
        for (int i = 0; i < s->loop.carry.n; i++) {
            Tensor *phi = s->loop.carry.p[i].phi;
            pointer(x, phi, each, n);
            if (phi->grow && phi->grow->room) symbol(x, phi->grow->room, each, n);
        }
        for (int i = 0; i < s->loop.scan.n; i++) pointer(x, s->loop.scan.p[i].out, each, n);
        return;
    }
    for (int i = 0; i < s->br.syms.n; i++) symbol(x, s->br.syms.p[i].sym, each, n);
    for (int i = 0; i < s->br.joins.n; i++) pointer(x, s->br.joins.p[i].out, each, n);
}

/* Text: this unit is (`is`: "==") or is not ("!=") one of those that run s. */
static const char *ran_by(const Tree *x, const Stmt *s, const char *is) {
    return s->level == LEVEL_CLUSTER ? unit_cluster(x->em, s->unit, is)
                                     : arena_printf(x->em->a, "unit %s %d %% nunit", is, s->unit);
}

/* The shared words are a double buffer: the others may still read one half while a unit writes the
 * other. */
void emit_apart(Tree *x, const Seq *q, int *at) {
    Fn *f = &x->f;
    Emit *em = x->em;
    const Level around = x->level;
    const char *const leave = x->leave;
    int id = x->next_id++, n = 0, first = *at;
    bool cluster = q->s.p[first]->level == LEVEL_CLUSTER;
    const Apart *plan = q->s.p[first]->apart;
    while (++*at < q->s.n && q->s.p[*at]->beside)
        ;
    tree_var(x, "size_t", arena_printf(em->a, "half%d", id), "0");
    fn_open(f, "{ /* by one %s */", cluster ? "cluster" : "core");
    fn_line(f, "int64_t *const shared = (int64_t *)(k->arena + %lld + (half%d ^= 1) * %lld);",
            (long long)plan->at, id, (long long)plan->bytes);
    for (int i = first; i < *at; i++) {
        Stmt *s = q->s.p[i];
        fn_open(f, "if (%s) {", ran_by(x, s, "=="));
        if (cluster) fn_line(f, "const int rank = unit %% BK_CLUSTER;");
        fn_open(f, "{");
        fn_line(f, "const int unit = %s, nunit = %s;", cluster ? "rank" : "0",
                cluster ? "BK_CLUSTER" : "1");
        const bool other = em->other_units;
        em->other_units = true;
        x->level = s->level;
        x->leave = arena_printf(em->a, "leave%d", x->next_id++);
        emit_stmt(x, s);
        if (i == first) /* Statements beside the first one take no memory. */
            fn_line(f, "if (bk_lead(unit)) shared[0] = (int64_t)top;");
        results_of(x, s, tree_write_shared, &n);
        fn_end(f);
        fn_line(f, "%s:;", x->leave);
        x->level = around;
        em->other_units = other;
        x->leave = leave;
        fn_end(f);
    }
    if (around == LEVEL_TEAM) {
        probe_begin(x, plan);
        fn_line(f, "if ((st = bk_barrier(k, unit)) != BK_OK) return st; /* after one %s's work */",
                cluster ? "cluster" : "core");
        probe_end(x, plan);
    } else
        tree_barrier(x, plan);
    ASSERT(n + 1 == plan->words);
    fn_line(f, "top = (size_t)shared[0];");
    n = 0;
    for (int i = first; i < *at; i++) {
        fn_open(f, "if (%s) {", ran_by(x, q->s.p[i], "!="));
        results_of(x, q->s.p[i], tree_read_shared, &n);
        fn_end(f);
    }
    fn_end(f);
    (*at)--;
}
