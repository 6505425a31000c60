/* emit_linearize.c: prints a linearizer: a function that opens a node, one that fills in the
 * columns, and the statement that runs them, or the host's text that does so before the kernel
 * begins. codegen/text/linearize.inc has what they share. */
#include "codegen/embed.h"
#include "codegen/emit/emit_tree.h"
#include "stack/structure.h"
#include "utask/walk.h"

/* What the host's part of a GPU program needs to run linearizers. */
static const char *const plan_texts[] = {"c.inc",    "gpu/host.inc",  "scalar.inc",
                                         "math.inc", "linearize.inc", NULL};

typedef struct Opener {
    Emit *em;
    Fn f;
    const Structure *k;
    int id;
    bool in_loop; /* over children */
} Opener;

/* ---- names ----------------------------------------------------------------------------------- */
static const char *walk_tensor(Fn *f, Tensor *t) {
    return arena_printf(f->a, "from->t%d", tensor_root(t)->id);
}
static const char *walk_symbol(Fn *f, Sym *s) {
    const Opener *x = f->user;
    if (x->k->sym[s->id]) return arena_printf(f->a, "s%d_%s", s->id, c_name(f->a, s->name, 16));
    return arena_printf(f->a, "((%s)from->s%d)", c_type(s->dtype), s->id);
}

static const char *text_of(Opener *x, Expr *e) { return fn_uniform(&x->f, e); }
static const char *name_of(Opener *x, Sym *s) { return walk_symbol(&x->f, s); }

static Fn walk_fn(Opener *x, Sb *out) {
    return (Fn){.em = x->em,
                .c = x->em->c,
                .a = x->em->a,
                .out = out,
                .indent = 1,
                .uses = map_new(x->em->a),
                .tensor = walk_tensor,
                .symbol = walk_symbol,
                .user = x};
}

/* ---- opening a node -------------------------------------------------------------------------- */
static void put_value(Opener *x, Sym *s) {
    if (x->k->column[s->id]) fn_line(&x->f, "bk_value(s, (int64_t)%s);", name_of(x, s));
}

static void put_child(Opener *x, const Stmt *s) {
    Fn *f = &x->f;
    const Func *g = s->call.f;
    const Scope here = fn_open(f, "{ /* %s */", emit_comment(x->em, s->path));
    Sb key = {.a = f->a};
    for (int i = 0; i < g->nsym; i++)
        sb_printf(&key, "%s(int64_t)%s", i ? ", " : "", text_of(x, s->call.sym[i]));
    fn_line(f, "const int64_t key[] = {%s};", g->nsym ? key.p : "0");
    fn_line(f, "bk_child(s, %d, %d, key);", structure_func(x->k, g), g->nsym);
    fn_close(f, here);
}

static void put_check(Opener *x, const Stmt *s) {
    Fn *f = &x->f;
    const Scope here = fn_open(f, "if (!%s) {", text_of(x, s->check.cond));
    fn_line(f, "%s;", fn_fault(f, s->check.site, s->check.cond));
    fn_line(f, "return false;");
    fn_close(f, here);
}

static void put_let(Opener *x, const Stmt *s) {
    if (!x->k->sym[s->let.sym->id]) return;
    const char *v = text_of(x, s->let.e);
    fn_line(&x->f, "const %s %s = %s;", c_type(s->let.sym->dtype), name_of(x, s->let.sym), v);
    fn_line(&x->f, "(void)%s;", name_of(x, s->let.sym));
    put_value(x, s->let.sym);
}

/* Opens loop s, which makes as many iterations as the model's. */
static Scope loop_open(Opener *x, const Stmt *s, const char *times) {
    Fn *f = &x->f;
    for (int i = 0; i < s->loop.syms.n; i++) {
        const LoopSym *y = &s->loop.syms.p[i];
        if (!x->k->sym[y->sym->id]) continue; /* of a loop around the call: nothing reads it */
        const char *v = text_of(x, y->init);
        fn_line(f, "%s %s = %s;", c_type(y->sym->dtype), name_of(x, y->sym), v);
    }
    const char *i = name_of(x, s->loop.iter);
    fn_line(f, "int64_t %s = 0;", i);
    const Scope here =
        fn_open(f, "for (; %s < %s; %s++) { /* %s */", i, times, i, emit_comment(x->em, s->path));
    fn_open(f, "if (%s >= k->max_iterations || s->full) {", i);
    fn_line(
        f,
        "if (!s->full) bk_fault_said(k, %d, k->max_iterations, BK_UNSAID, BK_UNSAID, BK_UNSAID);",
        s->loop.cap_site);
    fn_line(f, "return false;");
    fn_end(f);
    return here;
}
static void loop_close(Opener *x, const Stmt *s, Scope here) {
    Fn *f = &x->f;
    for (int i = 0; i < s->loop.syms.n; i++) {
        const LoopSym *y = &s->loop.syms.p[i];
        if (!x->k->sym[y->sym->id]) continue; /* of a loop around the call: nothing reads it */
        const char *v = text_of(x, y->next);
        fn_line(f, "const %s next%d = %s;", c_type(y->sym->dtype), y->sym->id, v);
    }
    for (int i = 0; i < s->loop.syms.n; i++) {
        const Sym *y = s->loop.syms.p[i].sym;
        if (x->k->sym[y->id]) fn_line(f, "%s = next%d;", name_of(x, s->loop.syms.p[i].sym), y->id);
    }
    fn_close(f, here);
}

static void put_seq(Opener *x, const Seq *q);

static void put_loop(Opener *x, const Stmt *s) {
    Fn *f = &x->f;
    const char *times = arena_printf(f->a, "n%d", s->loop.iter->id);
    fn_line(f, "const int64_t %s = bk_maxi(%s, 0);", times, text_of(x, s->loop.trips));
    fn_line(f, "bk_value(s, %s);", times);
    const Scope here = loop_open(x, s, times);
    x->in_loop = true;
    put_seq(x, s->loop.body);
    x->in_loop = false;
    loop_close(x, s, here);
}

/* What stands in the columns of an arm in a loop that is not taken. */
static void put_none(Opener *x, const Seq *q) {
    for (int i = 0; i < q->s.n; i++) {
        const Stmt *s = q->s.p[i];
        if (s->kind == S_LET && x->k->column[s->let.sym->id]) fn_line(&x->f, "bk_value(s, 0);");
        if (s->kind == S_CALL) fn_line(&x->f, "bk_no_child(s);");
        if (s->kind != S_BRANCH) continue;
        fn_line(&x->f, "bk_value(s, 0);");
        for (int k = 0; k < 2; k++) put_none(x, s->br.arm[k]);
        for (int k = 0; k < s->br.syms.n; k++)
            if (x->k->column[s->br.syms.p[k].sym->id]) fn_line(&x->f, "bk_value(s, 0);");
    }
}

static void put_branch(Opener *x, const Stmt *s) {
    Fn *f = &x->f;
    const char *cond = text_of(x, s->br.cond);
    for (int i = 0; i < s->br.syms.n; i++) {
        const JoinSym *j = &s->br.syms.p[i];
        if (x->k->sym[j->sym->id])
            fn_line(f, "%s %s = 0;", c_type(j->sym->dtype), name_of(x, j->sym));
    }
    const Scope here = fn_open(f, "if (%s) { /* %s */", cond, emit_comment(x->em, s->path));
    for (int k = 0; k < 2; k++) {
        if (k) fn_else(f, here, "} else {");
        if (x->in_loop)
            fn_line(f, "bk_value(s, %d);", !k);
        else
            fn_line(f, "way = way << 1%s;", k ? " | 1" : "");
        if (x->in_loop && k) put_none(x, s->br.arm[0]);
        put_seq(x, s->br.arm[k]);
        if (x->in_loop && !k) put_none(x, s->br.arm[1]);
        for (int i = 0; i < s->br.syms.n; i++) {
            const JoinSym *j = &s->br.syms.p[i];
            if (x->k->sym[j->sym->id])
                fn_line(f, "%s = %s;", name_of(x, j->sym), text_of(x, j->arm[k]));
        }
    }
    fn_close(f, here);
    for (int i = 0; i < s->br.syms.n; i++) put_value(x, s->br.syms.p[i].sym);
}

static void put_seq(Opener *x, const Seq *q) {
    for (int i = 0; i < q->s.n; i++) {
        const Stmt *s = q->s.p[i];
        switch (s->kind) {
        case S_LET: put_let(x, s); break;
        case S_CHECK:
            if (structure_checks(x->k, s)) put_check(x, s);
            break;
        case S_LOOP: put_loop(x, s); break;
        case S_BRANCH: put_branch(x, s); break;
        case S_CALL: put_child(x, s); break;
        default: break;
        }
    }
}

/* The calls of the roots, as of a node. */
static void put_roots(Opener *x, int depth) {
    const Structure *k = x->k;
    if (depth == k->naround) {
        put_child(x, k->call);
        return;
    }
    const Stmt *l = k->around[depth];
    const char *times = arena_printf(x->f.a, "n%d", l->loop.iter->id);
    fn_line(&x->f, "const int64_t %s = bk_maxi(%s, 0);", times, text_of(x, l->loop.trips));
    const Scope here = loop_open(x, l, times);
    for (int i = 0; i < k->before[depth].n; i++) {
        const Stmt *s = k->before[depth].p[i];
        if (s->kind == S_LET) put_let(x, s);
        if (s->kind == S_CHECK && structure_checks(k, s)) put_check(x, s);
    }
    put_roots(x, depth + 1);
    loop_close(x, l, here);
}

static void put_func(Opener *x, int i) {
    Fn *f = &x->f;
    const Structure *k = x->k;
    const Func *g = k->func[i];
    const Scope here = fn_open(f, "case %d: { /* %s */", i, emit_comment(x->em, g->name));
    for (int m = 0; m < g->nsym; m++) {
        const char *name = name_of(x, g->sym[m]);
        fn_line(f, "const %s %s = (%s)key[%d];", c_type(g->sym[m]->dtype), name,
                c_type(g->sym[m]->dtype), m);
        fn_line(f, "(void)%s;", name);
        put_value(x, g->sym[m]);
    }
    put_seq(x, g->body);
    for (int m = 0; m < k->nclass; m++)
        if (k->cls[m]->func == i && !k->cls[m]->ends)
            fn_line(f, "if (way == %lluu) cls = %d;", (unsigned long long)k->cls[m]->code, m);
    fn_line(f, "break;");
    fn_close(f, here);
}

static const char *visit_text(Opener *x) {
    Sb out = {.a = x->em->a};
    x->f = walk_fn(x, &out);
    Fn *f = &x->f;
    fn_line(f, "const from%d *from = (const from%d *)given;", x->id, x->id);
    fn_line(f, "unsigned way = 1;");
    fn_line(f, "int32_t cls = 0;");
    fn_line(f, "const int64_t *key = bk_node_key(bk_node_at(s, id));");
    fn_line(f, "(void)from, (void)key;");
    fn_open(f, "switch (bk_node_at(s, id)->func) {");
    for (int i = 0; i < x->k->nfunc; i++) put_func(x, i);
    const Scope here = fn_open(f, "default: { /* the roots */");
    put_roots(x, 0);
    fn_line(f, "break;");
    fn_close(f, here);
    fn_end(f);
    fn_line(f, "bk_node_at(s, id)->cls = cls;");
    fn_line(f, "return bk_state(k) != BK_FAULT;");
    return out.p;
}

/* ---- columns --------------------------------------------------------------------------------- */
typedef enum { ITEM_VALUE, ITEM_CHILD, ITEM_LOOP } ItemKind;
typedef struct Item {
    ItemKind kind;
    const Children *loop;
} Item;
typedef struct Items {
    Opener *x;
    const Class *c;
    int nloop;
    VEC(Item) v;
} Items;

static void item(Items *k, ItemKind kind, const Children *loop) {
    vec_push(k->x->em->a, &k->v, ((Item){kind, loop}));
}
static void item_stmt(void *user, Stmt *s, int arm) {
    Items *k = user;
    const bool *column = k->x->k->column;
    if (s->kind == S_LET && column[s->let.sym->id]) item(k, ITEM_VALUE, NULL);
    if (s->kind == S_CALL) item(k, ITEM_CHILD, NULL);
    if (s->kind == S_LOOP) item(k, ITEM_LOOP, &k->c->loop[k->nloop++]);
    if (s->kind == S_BRANCH && arm < 0) { /* in a loop */
        item(k, ITEM_VALUE, NULL);
        for (int m = 0; m < 2; m++)
            for (int i = 0; i < s->br.arm[m]->s.n; i++) item_stmt(k, s->br.arm[m]->s.p[i], -1);
        arm = 0;
    }
    for (int i = 0; arm >= 0 && i < s->br.syms.n; i++)
        if (column[s->br.syms.p[i].sym->id]) item(k, ITEM_VALUE, NULL);
}

/* What a node of the class has, in the order in which the walk finds it. */
static Items items_of(Opener *x, const Class *c) {
    Items k = {.x = x, .c = c};
    const Func *f = x->k->func[c->func];
    for (int i = 0; i < f->nsym; i++)
        if (x->k->column[f->sym[i]->id]) item(&k, ITEM_VALUE, NULL);
    structure_walk(x->k, c, item_stmt, &k);
    return k;
}

static const char *item_text(const Item *i) {
    return i->kind == ITEM_VALUE ? "*value++" : "bk_node_row(s, *child++)";
}

/* Takes the columns of a class. */
static void put_class(Opener *x, const Class *c) {
    Fn *f = &x->f;
    const int at = structure_class(x->k, c->id), i = c->id;
    fn_line(f, "const int64_t n%d = w[%d], first%d = w[%d];", i, at + CLASS_N, i, at + CLASS_FIRST);
    fn_line(f, "int64_t *const to%d = bk_words(s, n%d * %d);", i, i, c->columns);
    fn_line(f, "if (!to%d) return false;", i);
    fn_line(f, "w[%d] = to%d - w;", at + CLASS_COLUMNS, i);
}

/* Fills in a node's columns. */
static void put_columns(Opener *x, const Class *c) {
    Fn *f = &x->f;
    Items k = items_of(x, c);
    int column = 0;
    const int id = c->id;
    const Scope here = fn_open(f, "case %d: {", id);
    fn_line(f, "int64_t *const to = to%d + bk_node_place(s, r, first%d);", id, id);
    fn_line(f, "(void)to;");
    for (int i = 0; i < k.v.n; i++) {
        const Item *t = &k.v.p[i];
        if (t->kind != ITEM_LOOP) {
            fn_line(f, "to[%d * n%d] = %s;", column++, id, item_text(t));
            continue;
        }
        const Children *l = t->loop;
        Items in = {.x = x, .c = c};
        for (int m = 0; m < l->s->loop.body->s.n; m++) item_stmt(&in, l->s->loop.body->s.p[m], -1);
        const Scope one = fn_open(f, "{");
        fn_line(f, "const int64_t *const loop = w + %d;", structure_loop(x->k, l->id));
        fn_line(f, "const int64_t all = loop[BK_LOOP_N], times = *value++;");
        fn_line(f, "int64_t *of = w + loop[BK_LOOP_COLUMNS] + passed[%d];", l->id);
        fn_line(f, "(void)all, (void)of;");
        fn_line(f, "to[%d * n%d] = times;", column++, id);
        fn_line(f, "to[%d * n%d] = passed[%d];", column++, id, l->id);
        fn_line(f, "passed[%d] += times;", l->id);
        const Scope each = fn_open(f, "for (int64_t j = 0; j < times; j++, of++) {");
        for (int m = 0; m < in.v.n; m++) fn_line(f, "of[%d * all] = %s;", m, item_text(&in.v.p[m]));
        fn_close(f, each);
        fn_close(f, one);
    }
    fn_line(f, "break;");
    fn_close(f, here);
}

/* Counts the iterations of the loops of a class. */
static void put_counts(Opener *x, const Class *c) {
    Fn *f = &x->f;
    Items k = items_of(x, c);
    int value = 0;
    const Scope here = fn_open(f, "case %d: {", c->id);
    for (int i = 0; i < k.v.n; i++) {
        const Item *t = &k.v.p[i];
        value += t->kind == ITEM_VALUE;
        if (t->kind != ITEM_LOOP) continue;
        const int l = t->loop->id;
        fn_line(f, "value += %d;", value);
        fn_line(f, "w[%d] += *value;", structure_loop(x->k, l) + CHILDREN_N);
        fn_line(f, "int64_t *const most%d = most + %d * levels + r->height;", l, l);
        fn_line(f, "if (*most%d < *value) *most%d = *value;", l, l);
        fn_line(f, "value += 1 + *value * %d;", t->loop->columns - t->loop->nchild);
        value = 0;
    }
    fn_line(f, "break;");
    fn_close(f, here);
}

/* Opens a loop over all nodes, children first, and a switch over their classes. */
static Scope node_open(Fn *f) {
    const Scope all = fn_open(f, "for (int64_t i = 0; i < s->done; i++) {");
    fn_line(f, "bk_node *const r = bk_node_at(s, s->order[i]);");
    fn_line(f, "const int32_t *child = s->child + r->child;");
    fn_line(f, "const int64_t *value = s->value + r->value;");
    fn_line(f, "(void)child, (void)value;");
    fn_open(f, "switch (r->cls) {");
    return all;
}

static void put_loops(Opener *x) {
    Fn *f = &x->f;
    const Structure *k = x->k;
    fn_line(f, "const int64_t levels = s->levels;");
    fn_line(f, "int64_t *const most = bk_zeros(s, %d * levels);", k->nloop);
    fn_line(f, "if (!most) return false;");
    const Scope all = node_open(f);
    for (int i = 0; i < k->nclass; i++)
        if (k->cls[i]->nloop && !k->cls[i]->ends) put_counts(x, k->cls[i]);
    fn_line(f, "default: break;");
    fn_close(f, all);
    for (int i = 0; i < k->nclass; i++)
        for (int m = 0; m < k->cls[i]->nloop; m++) {
            const Children *l = &k->cls[i]->loop[m];
            const int at = structure_loop(k, l->id);
            const Scope one = fn_open(f, "{");
            fn_line(f, "const int64_t *of = bk_words(s, w[%d] * %d);", at + CHILDREN_N, l->columns);
            fn_line(f, "if (!of) return false;");
            fn_line(f, "w[%d] = of - w;", at + CHILDREN_COLUMNS);
            fn_line(f, "w[%d] = most + %d * levels - w;", at + CHILDREN_MOST, l->id);
            fn_close(f, one);
        }
    fn_line(f, "int64_t passed[%d] = {0};", k->nloop);
}

static const char *columns_text(Opener *x) {
    Sb out = {.a = x->em->a};
    x->f = walk_fn(x, &out);
    Fn *f = &x->f;
    const Structure *k = x->k;
    fn_line(f, "int64_t *const w = s->word;");
    for (int i = 0; i < k->nclass; i++)
        if (!k->cls[i]->ends) put_class(x, k->cls[i]);
    if (k->nloop) put_loops(x);
    const Scope all = node_open(f);
    for (int i = 0; i < k->nclass; i++)
        if (!k->cls[i]->ends) put_columns(x, k->cls[i]);
    fn_line(f, "default: break;");
    fn_close(f, all);
    fn_line(f, "return true;");
    return out.p;
}

/* ---- the statement --------------------------------------------------------------------------- */
/* Whether tensor i that linearizer s reads is part of its key. Of one that the host runs, the
 * session keeps the key (gpu/plan.inc). */
static bool keyed(const Stmt *s, int i) { return !s->ext.host && s->ext.in[i]->kind != TK_CONST; }
/* Whether it has a key: all that it reads is dense. */
static bool has_key(const Stmt *s) {
    if (s->ext.host) return false;
    for (int i = 0; i < s->ext.nin; i++) {
        const Tensor *t = s->ext.in[i];
        const bool dense = t->kind == TK_TE && !t->grow && !t->table;
        if (t->kind != TK_CONST && t->kind != TK_INPUT && !dense) return false;
    }
    return true;
}
static void put_from(Opener *x, const Stmt *s, Sb *to) {
    const Structure *k = x->k;
    sb_printf(to, "typedef struct from%d { /* what it reads */\n", x->id);
    for (int i = 0; i < k->tensor.n; i++) {
        const Tensor *t = k->tensor.p[i];
        sb_printf(to, "    const %s *t%d;\n", c_store(t->dtype), t->id);
        if (keyed(s, i)) sb_printf(to, "    int64_t n%d; /* bytes */\n", t->id);
    }
    for (int i = 0; i < k->captured.n; i++)
        sb_printf(to, "    int64_t s%d;\n", k->captured.p[i]->id);
    sb_printf(to, "    int none;\n} from%d;\n", x->id);
}

/* Leaves the function where the plan is that of the run before. */
static void put_key(Opener *x, const Stmt *s) {
    Fn *f = &x->f;
    const Structure *k = x->k;
    Sb bytes = {.a = f->a};
    fn_line(f, "uint64_t key = 0;");
    if (!emit_is_gpu(x->em)) fn_line(f, "const int64_t begin = k->numbering < 0 ? 0 : bk_clock();");
    for (int i = 0; i < k->tensor.n; i++)
        if (keyed(s, i)) sb_printf(&bytes, "%sfrom->n%d", bytes.n ? " + " : "", k->tensor.p[i]->id);
    if (has_key(s)) {
        fn_open(f, "if (bk_lin_small(word, room, %s)) {", bytes.n ? bytes.p : "0");
        fn_line(f, "bk_lin_hash h = {{1, 2, 3, 4, 5, 6, 7, 8}};");
        for (int i = 0; i < k->tensor.n; i++) {
            const int id = k->tensor.p[i]->id;
            if (keyed(s, i)) fn_line(f, "bk_lin_read(&h, from->t%d, from->n%d);", id, id);
        }
        Sb number = {.a = f->a};
        for (int i = 0; i < k->captured.n; i++)
            sb_printf(&number, "from->s%d, ", k->captured.p[i]->id);
        fn_line(f, "const int64_t number[] = {%s1};", number.n ? number.p : "");
        fn_line(f, "bk_lin_read(&h, number, sizeof number);");
        fn_line(f, "key = bk_lin_key(&h);");
        fn_end(f);
    }
    const char *given = emit_is_gpu(x->em) ? "key" : "begin ? 0 : key";
    fn_line(f, "if (bk_lin_known(word, room, %s)) return 0;", given);
}

static int most_of(const Structure *k, int (*of)(const Structure *k, const Class *c)) {
    int most = 1;
    for (int i = 0; i < k->nclass; i++)
        if (of(k, k->cls[i]) > most) most = of(k, k->cls[i]);
    return most;
}
/* A loop over children is taken to make four iterations; with more, the buffer grows. */
#define TIMES 4
static int children_of(const Structure *k, const Class *c) {
    int n = c->nchild;
    (void)k;
    for (int i = 0; i < c->nloop; i++) n += TIMES * c->loop[i].nchild;
    return n + 1; /* one more for the roots */
}
static int values_of(const Structure *k, const Class *c) {
    int n = c->columns - c->nchild - c->nloop;
    (void)k;
    for (int i = 0; i < c->nloop; i++) n += TIMES * (c->loop[i].columns - c->loop[i].nchild);
    return n;
}
static int words_of(const Structure *k, const Class *c) {
    int n = c->columns + k->nclass + k->nloop + 1;
    for (int i = 0; i < c->nloop; i++) n += TIMES * c->loop[i].columns;
    return n;
}
static int list_numbers(Sb *s, int n, const int *v) {
    for (int i = 0; i < n; i++) sb_printf(s, "%s%d", i ? ", " : "", v[i]);
    return n;
}

static const char *run_text(Opener *x, const Stmt *s) {
    Sb out = {.a = x->em->a}, site = {.a = x->em->a}, func = {.a = x->em->a};
    x->f = walk_fn(x, &out);
    Fn *f = &x->f;
    const Structure *k = x->k;
    int keys = 0, *v = NEWN(x->em->a, int, k->nfunc + k->nclass);
    for (int i = 0; i < k->nfunc; i++) {
        v[i] = k->func[i]->site;
        if (k->func[i]->nsym > keys) keys = k->func[i]->nsym;
    }
    list_numbers(&site, k->nfunc, v);
    for (int i = 0; i < k->nclass; i++) v[i] = k->cls[i]->func;
    list_numbers(&func, k->nclass, v);
    fn_line(f, "const int site[] = {%s}, func_of[] = {%s};", site.p, func.p);
    fn_line(f, "const bk_lin_shape shape = {%d, %d, %d, %d, %d, %d, %d, func_of};", k->nfunc,
            k->nclass, k->nloop, keys, most_of(k, children_of), most_of(k, values_of),
            most_of(k, words_of));
    put_key(x, s);
    fn_line(f, "bk_nodes s;");
    fn_open(f, "if (bk_nodes_begin(&s, &shape, word, room)) {");
    fn_open(f, "if (bk_nodes_walk(k, &s, open%d, from, site)) {", x->id);
    fn_line(f, "bk_nodes_number(&s, &shape);");
    fn_open(f, "if (columns%d(&s) && bk_nodes_roots(&s)) {", x->id);
    fn_line(f, "*used = s.used;");
    fn_line(f, "word[BK_LIN_KEY] = (int64_t)key;");
    if (!emit_is_gpu(x->em)) fn_line(f, "if (begin) k->numbering += bk_clock() - begin;");
    fn_line(f, "return 0;");
    fn_end(f);
    fn_end(f);
    fn_line(f, "if (!s.full) return 0; /* there is a fault */");
    fn_end(f);
    fn_line(f, "return 4 * room + 4096;");
    return out.p;
}

/* The functions of the linearizer: its walk, its columns, and what runs both. */
static void put_functions(Opener *w, const Stmt *s, Sb *to, const char *inside) {
    put_from(w, s, to);
    const char *open = visit_text(w);
    sb_printf(
        to, "BK_INLINE bool open%d(bk_ctx *k, const void *given, bk_nodes *s, int32_t id) {\n%s}\n",
        w->id, open);
    const char *columns = columns_text(w);
    sb_printf(to, "BK_INLINE bool columns%d(bk_nodes *s) {\n%s}\n", w->id, columns);
    sb_printf(to,
              "/* Linearizes %s. Returns 0 and the words *used, or the words that it needs. */\n"
              "%s int64_t linearize%d(bk_ctx *k, const from%d *from, int64_t *word, int64_t room, "
              "int64_t *used) {\n%s}\n",
              emit_comment(w->em, w->k->path), inside, w->id, w->id, run_text(w, s));
}

static void linearize_here(Tree *x, const Stmt *s, int slot) {
    Emit *em = x->em;
    Fn *f = &x->f;
    Opener w = {.em = em, .k = s->ext.structure, .id = em->nfunction++};
    linearize_text(em);
    vec_push(em->a, &em->linearized, slot);
    put_functions(&w, s, &em->functions, em->target->inside);
    fn_open(f, "if (bk_lead(unit)) { /* linearize %s */", emit_comment(em, w.k->path));
    Sb from = {.a = em->a};
    for (int i = 0; i < s->ext.nin; i++) {
        sb_printf(&from, "%s, ", tree_tensor(f, s->ext.in[i]));
        if (keyed(s, i)) sb_printf(&from, "%s, ", tree_bytes(x, s->ext.in[i]));
    }
    for (int i = 0; i < s->ext.nparam; i++) sb_printf(&from, "%s, ", tree_expr(x, s->ext.param[i]));
    fn_line(f, "const from%d from = {%s0};", w.id, from.n ? from.p : "");
    fn_line(f, "int64_t used;");
    fn_line(f, "const int64_t need = linearize%d(k, &from, %s, %s, &used);", w.id,
            tree_tensor(f, s->ext.out[0]), tree_symbol(f, s->ext.sym[0]));
    fn_line(f, "if (need > 0) {");
    fn_line(f, "    bk_want(k, %d);", cx_site(em->c, w.k->path, "the run needs"));
    fn_line(f, "    bk_need_slot(k, %d, bk_size(need, 8) + 64);", slot);
    fn_line(f, "}");
    fn_end(f);
}

/* ---- on the host ----------------------------------------------------------------------------- */
static const char *host_tensor(Fn *f, Tensor *t) {
    t = tensor_root(t);
    if (t->kind == TK_CONST) return emit_const(f->em, t);
    return arena_printf(f->a, "((const %s *)k->in[%d].data)", c_store(t->dtype), t->index);
}
static const char *host_symbol(Fn *f, Sym *s) {
    return arena_printf(f->a, "s%d_%s", s->id, c_name(f->a, s->name, 16));
}

/* The function that runs linearizer `last`, after what stands before it, and its row in the table.
 */
static void linearize_ahead(Emit *em, const Stmt *last) {
    Sb *to = &em->plan_functions;
    Sb out = {.a = em->a}, from = {.a = em->a};
    Opener w = {.em = em, .k = last->ext.structure, .id = em->nfunction++};
    put_functions(&w, last, to, "static");
    w.f = walk_fn(&w, &out);
    Fn *f = &w.f;
    f->tensor = host_tensor;
    f->symbol = host_symbol;
    for (int i = 0; em->p->ahead->p[i] != last; i++) {
        const Stmt *s = em->p->ahead->p[i];
        if (s->kind == S_CHECK) {
            const Scope here = fn_open(f, "if (!%s) {", text_of(&w, s->check.cond));
            fn_line(f, "%s;", fn_fault(f, s->check.site, s->check.cond));
            fn_line(f, "return 0;");
            fn_close(f, here);
        } else if (s->kind == S_LET) {
            const char *v = text_of(&w, s->let.e);
            fn_line(f, "const %s %s = %s;", c_type(s->let.sym->dtype), host_symbol(f, s->let.sym),
                    v);
        }
    }
    for (int i = 0; i < last->ext.nin; i++)
        sb_printf(&from, "%s, ", host_tensor(f, last->ext.in[i]));
    for (int i = 0; i < last->ext.nparam; i++)
        sb_printf(&from, "%s, ", text_of(&w, last->ext.param[i]));
    fn_line(f, "const from%d from = {%s0};", w.id, from.n ? from.p : "");
    fn_line(f, "if (bk_state(k) == BK_FAULT) return 0;");
    fn_line(f, "return linearize%d(k, &from, word, room, used);", w.id);
    sb_printf(to,
              "static int64_t plan%d(bk_ctx *k, int64_t *word, int64_t room, int64_t *used) "
              "{\n%s}\n",
              w.id, out.p);
    sb_printf(&em->plans, "%s{%d, %d, plan%d}", em->nplan++ ? ", " : "",
              mem_of(last->ext.out[0])->slot[0], cx_site(em->c, w.k->path, "the run needs"), w.id);
}

void emit_linearize(Tree *x, Stmt *s) {
    Fn *f = &x->f;
    const int slot = mem_of(s->ext.out[0])->slot[0];
    tree_declare_symbol(x, s->ext.sym[0]);
    tree_declare(x, s->ext.out[0], "NULL");
    fn_line(f, "%s = bk_maxi((k->cap[%d] - 64) / 8, 0);", tree_symbol(f, s->ext.sym[0]), slot);
    fn_line(f, "%s = (int64_t *)k->slot[%d];", tree_tensor(f, s->ext.out[0]), slot);
    if (s->ext.host) {
        linearize_ahead(x->em, s);
        return;
    }
    linearize_here(x, s, slot);
    fn_line(f, "if ((st = bk_loop_state(k, unit, nunit)) != BK_OK) %s", tree_stop(x, "st"));
}

static void note_read(void *user, Tensor *t) {
    bool *reads = user;
    t = tensor_root(t);
    if (t->kind == TK_INPUT) reads[t->index] = true;
}
static void note_nothing(void *user, Sym *s) { (void)user, (void)s; }

void put_plans(Emit *em, Sb *host) {
    if (!em->nplan) return;
    bool *reads = NEWN(em->a, bool, em->p->nin + 1);
    Visit v = visit_new(em->c, note_read, note_nothing, reads);
    for (int i = 0; i < em->p->ahead->n; i++) visit_stmt(&v, em->p->ahead->p[i]);
    put_embedded(host, plan_texts);
    sb_puts(host, em->plan_functions.p);
    put_define(host, "BK_NPLAN", em->nplan);
    sb_printf(host, "#define BK_PLANS %s\n#define BK_PLAN_READS", em->plans.p);
    for (int i = 0; i < em->p->nin; i++) sb_printf(host, "%s %d", i ? "," : "", reads[i]);
    sb_puts(host, em->p->nin ? "\n" : " 0\n");
    sb_puts(host, embedded_text("gpu/plan.inc"));
}
