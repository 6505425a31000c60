/* structure.c: finds the structure of a recursion (structure.h), or why it has none. */
#include "stack/structure.h"
#include "stack/rows.h"
#include "utask/expr_internal.h"
#include "utask/walk.h"

typedef struct Find {
    Program *p;
    Cx *c;
    Arena *a;
    Structure *k;
    Seq *outer;      /* where the kernel's loop will stand */
    const char *why; /* NULL: nothing speaks against it yet */
} Find;

static bool no(Find *x, const Stmt *s, const char *why) {
    if (!x->why)
        x->why = arena_printf(x->a, "%s: %s", s->path && *s->path ? s->path : x->k->path, why);
    return false;
}

/* ---- expressions ----------------------------------------------------------------------------- */
static bool tensor_outside(const Find *x, const Tensor *t) {
    t = tensor_root(t);
    return t->kind == TK_CONST || t->kind == TK_INPUT || (t->seq && seq_inside(x->outer, t->seq));
}

/* Whether the linearizer can compute e: it knows every symbol, and loads from outside only. */
static bool computes_one(const void *user, const Expr *e) {
    const Find *x = user;
    if (e->op == E_DRAW || e->op == E_SEED) return false;
    if (e->op == E_SYM) /* what it is given is handed over as an integer */
        return x->k->sym[e->sym->id] ||
               (expr_visible(e, x->outer) && !dtype_is_float(e->sym->dtype));
    return e->op != E_LOAD || (tensor_outside(x, e->t) && !e->t->blob && e->t->rank >= 0);
}
static bool computes(const Find *x, const Expr *e) { return expr_all(x->a, e, computes_one, x); }

static bool draws_not(const void *user, const Expr *e) {
    (void)user;
    return e->op != E_DRAW && e->op != E_SEED;
}

/* ---- what is legal --------------------------------------------------------------------------- */
static bool outside(const Find *x, const Expr *e) { return expr_visible(e, x->outer); }

static void fits_slot(void *user, const Slot *k) {
    Find *x = user;
    const Tensor *t = k->kind == SLOT_TENSOR ? *k->t : NULL;
    const Stmt none = {.path = x->k->path};
    if (t && (t->blob || t->rank < 0 || t->rank + 1 > MAX_RANK))
        no(x, &none, "a value is a sequence, or of unknown or too high rank");
    for (int d = 0; t && !x->why && d < t->rank; d++)
        if (!outside(x, t->dim[d])) no(x, &none, "a value's size depends on the activation");
    if (!slot_is_expr(k) || x->why) return;
    if (!rows_extents_visible(x->a, *k->e, x->outer))
        no(x, &none, "a sum's length depends on the activation");
    if (!expr_all(x->a, *k->e, draws_not, NULL)) no(x, &none, "it draws random numbers");
}

static bool walk(Find *x, const Seq *q, bool in_loop);

static bool walk_loop(Find *x, const Stmt *s, bool in_loop) {
    if (in_loop) return no(x, s, "a loop in a loop");
    if (!s->loop.trips || s->loop.cond0 || s->loop.cond_next || s->loop.made)
        return no(x, s, "a loop that ends by a condition");
    if (!computes(x, s->loop.trips)) return no(x, s, "a loop's length depends on results");
    if (s->loop.scan.n) return no(x, s, "a loop with scan outputs");
    for (int i = 0; i < s->loop.carry.n; i++)
        if (s->loop.carry.p[i].phi->grow ||
            !same_dims(s->loop.carry.p[i].phi, s->loop.carry.p[i].next))
            return no(x, s, "a loop that carries a value of changing size");
    x->k->sym[s->loop.iter->id] = true;
    bool changed = true;
    for (int i = 0; i < s->loop.syms.n; i++)
        x->k->sym[s->loop.syms.p[i].sym->id] =
            !dtype_is_float(s->loop.syms.p[i].sym->dtype) && computes(x, s->loop.syms.p[i].init);
    while (changed && !x->why) { /* until what is assumed of carried symbols holds */
        changed = false;
        walk(x, s->loop.body, true);
        for (int i = 0; i < s->loop.syms.n; i++) {
            bool *is = &x->k->sym[s->loop.syms.p[i].sym->id];
            if (*is && !computes(x, s->loop.syms.p[i].next)) *is = false, changed = true;
        }
    }
    for (int i = 0; i < s->loop.syms.n; i++)
        if (!x->k->sym[s->loop.syms.p[i].sym->id])
            return no(x, s, "a loop carries a number that depends on results");
    return !x->why;
}

static bool walk_call(Find *x, const Stmt *s) {
    const Func *f = s->call.f;
    if (s->call.nfunc || f->start != x->k->root) return no(x, s, "a call of another recursion");
    for (int i = 0; i < f->nsym; i++)
        if (!computes(x, s->call.sym[i]))
            return no(x, s, "an argument of a call depends on results");
    return true;
}

static bool walk(Find *x, const Seq *q, bool in_loop) {
    for (int i = 0; i < q->s.n && !x->why; i++) {
        const Stmt *s = q->s.p[i];
        stmt_slots(s, fits_slot, x);
        switch (s->kind) {
        case S_LET:
            x->k->sym[s->let.sym->id] = !dtype_is_float(s->let.sym->dtype) && computes(x, s->let.e);
            break;
        case S_OP:
            if (s->op.n != 1) no(x, s, "a group");
            break;
        case S_CHECK:
            if (in_loop && !computes(x, s->check.cond))
                return no(x, s, "a check of results in a loop");
            break;
        case S_LOOP: walk_loop(x, s, in_loop); break;
        case S_BRANCH:
            if (!computes(x, s->br.cond)) return no(x, s, "a condition depends on results");
            for (int k = 0; k < 2; k++) walk(x, s->br.arm[k], in_loop);
            for (int k = 0; k < s->br.syms.n; k++) {
                const JoinSym *j = &s->br.syms.p[k];
                x->k->sym[j->sym->id] = !dtype_is_float(j->sym->dtype) && computes(x, j->arm[0]) &&
                                        computes(x, j->arm[1]);
                if (in_loop && !x->k->sym[j->sym->id])
                    return no(x, s, "a number that depends on results in a loop");
            }
            break;
        case S_CALL: walk_call(x, s); break;
        default: return no(x, s, "a hand-written operator");
        }
    }
    return !x->why;
}

static bool func_fits(Find *x, const Func *f) {
    const Stmt none = {.path = x->k->path};
    if (f->nret) return no(x, &none, "it returns numbers");
    if (!f->nout) return no(x, &none, "it returns nothing");
    if (f->narg) return no(x, &none, "tensors are passed down");
    for (int i = 0; i < f->nout; i++)
        if (!f->room[i]) return no(x, &none, "a result's size depends on the activation");
    for (int i = 0; i < f->nsym; i++)
        if (dtype_is_float(f->sym[i]->dtype)) return no(x, &none, "a parameter is no integer");
    for (int i = 0; i < f->nsym; i++) x->k->sym[f->sym[i]->id] = true;
    return walk(x, f->body, false);
}

/* ---- columns --------------------------------------------------------------------------------- */
/* Symbols that expressions over tensors use, directly or by way of symbols that are not the
 * linearizer's. */
static bool need_one(const void *user, const Expr *e) {
    const Structure *k = user;
    if (e->op == E_SYM && e->sym->id < k->nid && k->sym[e->sym->id]) k->column[e->sym->id] = true;
    return true;
}
static void need_expr(const Find *x, const Expr *e) { expr_all(x->a, e, need_one, x->k); }

static void need_stmt(void *user, Stmt *s) {
    Find *x = user;
    Structure *k = x->k;
    if (s->kind == S_OP) need_expr(x, s->op.t[0]->body);
    if (s->kind == S_LET && !k->sym[s->let.sym->id]) need_expr(x, s->let.e);
    if (s->kind == S_CHECK && !computes(x, s->check.cond)) need_expr(x, s->check.cond);
    for (int i = 0; s->kind == S_BRANCH && i < s->br.syms.n; i++)
        for (int m = 0; m < 2 && !k->sym[s->br.syms.p[i].sym->id]; m++)
            need_expr(x, s->br.syms.p[i].arm[m]);
}

/* ---- classes --------------------------------------------------------------------------------- */
typedef struct Path { /* the arms taken, in the order in which branches are met */
    uint32_t arm;
    int n, most;
    bool ends;
    void (*f)(void *user, Stmt *s, int arm);
    void *user;
} Path;

static void follow(Path *w, const Seq *q) {
    for (int i = 0; i < q->s.n && !w->ends; i++) {
        Stmt *s = q->s.p[i];
        if (s->kind == S_CHECK && e_is_ival(s->check.cond, 0)) w->ends = true;
        if (s->kind != S_BRANCH) {
            if (w->f) w->f(w->user, s, -1);
            continue;
        }
        const int arm = w->n < 32 ? w->arm >> w->n & 1 : 0;
        w->n++;
        follow(w, s->br.arm[arm]);
        if (w->f && !w->ends) w->f(w->user, s, arm);
    }
}

static uint32_t code_of(const Path *w) {
    uint32_t code = 1;
    for (int i = 0; i < w->n; i++) code = code << 1 | (w->arm >> i & 1);
    return code;
}
static uint32_t arms_of(uint32_t code, int *n) {
    uint32_t arm = 0;
    *n = 31 - __builtin_clz(code);
    for (int i = 0; i < *n; i++) arm |= (code >> (*n - 1 - i) & 1) << i;
    return arm;
}

void structure_walk(const Structure *k, const Class *c, void (*f)(void *user, Stmt *s, int arm),
                    void *user) {
    int n;
    Path w = {.arm = arms_of(c->code, &n), .f = f, .user = user};
    follow(&w, k->func[c->func]->body);
}

typedef struct ColumnCount {
    Structure *k;
    Class *c;
    Arena *a;
    Children *in;
} ColumnCount;

static void count_column(const ColumnCount *x, bool child) {
    ++*(x->in ? &x->in->columns : &x->c->columns);
    if (child) {
        ++*(x->in ? &x->in->nchild : &x->c->nchild);
        x->c->calls = true;
    }
}

static void count_stmt(void *user, Stmt *s, int arm) {
    ColumnCount *x = user;
    Class *c = x->c;
    if (s->kind == S_LET && x->k->column[s->let.sym->id]) count_column(x, false);
    if (s->kind == S_CALL) count_column(x, true);
    if (s->kind == S_BRANCH && x->in) { /* in a loop: the condition, and what is in both arms */
        count_column(x, false);
        for (int k = 0; k < 2; k++)
            for (int i = 0; i < s->br.arm[k]->s.n; i++) count_stmt(x, s->br.arm[k]->s.p[i], -1);
        arm = 0;
    }
    for (int i = 0; arm >= 0 && i < s->br.syms.n; i++)
        if (x->k->column[s->br.syms.p[i].sym->id]) count_column(x, false);
    if (s->kind != S_LOOP) return;
    Children *l = &c->loop[c->nloop++];
    *l = (Children){.s = s, .id = x->k->nloop++, .count = c->columns};
    c->columns += 2;
    x->in = l;
    for (int i = 0; i < s->loop.body->s.n; i++) count_stmt(x, s->loop.body->s.p[i], -1);
    x->in = NULL;
}

static bool is_loop(void *user, const Stmt *s) {
    *(int *)user += s->kind == S_LOOP;
    return false;
}

static bool class_new(Find *x, int func, const Path *w) {
    Structure *k = x->k;
    const Stmt none = {.path = k->path};
    if (k->nclass == CLASSES_MAX) return no(x, &none, "there are too many ways through it");
    Class *c = k->cls[k->nclass] = NEW(x->a, Class);
    int loops = 0;
    *c = (Class){.id = k->nclass++, .func = func, .code = code_of(w), .ends = w->ends};
    seq_any(k->func[func]->body, is_loop, &loops);
    c->loop = NEWN(x->a, Children, loops + 1);
    for (int i = 0; i < k->func[func]->nsym; i++)
        c->columns += k->column[k->func[func]->sym[i]->id];
    ColumnCount n = {k, c, x->a, NULL};
    structure_walk(k, c, count_stmt, &n);
    return true;
}

/* All ways through function number `func`. */
static bool classes(Find *x, int func) {
    for (uint32_t arm = 0;;) {
        Path w = {.arm = arm};
        const Stmt none = {.path = x->k->path};
        follow(&w, x->k->func[func]->body);
        if (w.n > BRANCHES_MAX) return no(x, &none, "there are too many branches on one way");
        if (!class_new(x, func, &w)) return false;
        int last = w.n - 1; /* the next one turns off at the last branch taken to the left */
        while (last >= 0 && arm >> last & 1) last--;
        if (last < 0) return true;
        arm = (arm & ((1u << last) - 1)) | 1u << last;
    }
}

/* ---- what the walk reads from outside -------------------------------------------------------- */
static void read_sym(void *user, Sym *s) {
    Find *x = user;
    if (!x->k->sym[s->id]) vec_push(x->a, &x->k->captured, s);
}
static void read_tensor(void *user, Tensor *t) {
    Find *x = user;
    if (t->kind != TK_VIEW) vec_push(x->a, &x->k->tensor, t);
}

static void read_check(Find *x, Visit *v, const Stmt *s) {
    if (!computes(x, s->check.cond)) return;
    map_add(x->k->checks, (uint64_t)(uintptr_t)s);
    visit_expr(v, s->check.cond);
}

/* Everything that the emitted walk of q evaluates. */
static void read_seq(Find *x, Visit *v, const Seq *q) {
    for (int i = 0; i < q->s.n; i++) {
        const Stmt *s = q->s.p[i];
        switch (s->kind) {
        case S_LET:
            if (x->k->sym[s->let.sym->id]) visit_expr(v, s->let.e);
            break;
        case S_CHECK: read_check(x, v, s); break;
        case S_LOOP:
            visit_expr(v, s->loop.trips);
            for (int k = 0; k < s->loop.syms.n; k++) {
                visit_expr(v, s->loop.syms.p[k].init);
                visit_expr(v, s->loop.syms.p[k].next);
            }
            read_seq(x, v, s->loop.body);
            break;
        case S_BRANCH:
            visit_expr(v, s->br.cond);
            for (int k = 0; k < 2; k++) read_seq(x, v, s->br.arm[k]);
            for (int k = 0; k < s->br.syms.n; k++)
                for (int m = 0; m < 2 && x->k->sym[s->br.syms.p[k].sym->id]; m++)
                    visit_expr(v, s->br.syms.p[k].arm[m]);
            break;
        case S_CALL:
            for (int k = 0; k < s->call.f->nsym; k++) visit_expr(v, s->call.sym[k]);
            break;
        default: break;
        }
    }
}

/* ---- roots ----------------------------------------------------------------------------------- */
typedef struct Seen { /* whether what functions use from outside is visible in `outer` */
    const Stmt *root;
    const Seq *outer;
    bool ok;
} Seen;

static bool in_functions(const Stmt *root, const Seq *q) {
    for (; q; q = q->parent)
        if (q->owner == root) return true;
    return false;
}
static void seen_from(Seen *k, const Seq *q) {
    if (q && !in_functions(k->root, q)) k->ok &= seq_inside(k->outer, q);
}
static void use_tensor(void *user, Tensor *t) {
    if (t->kind != TK_CONST && t->kind != TK_INPUT) seen_from(user, t->seq);
}
static void use_sym(void *user, Sym *s) { seen_from(user, s->scope); }

static bool visible_from(Cx *c, const Stmt *root, const Seq *outer) {
    Seen k = {root, outer, true};
    Visit v = visit_new(c, use_tensor, use_sym, &k);
    for (int i = 0; i < root->call.nfunc; i++) visit_seq(&v, root->call.func[i]->body);
    return k.ok;
}

static Stmt *loop_copy(Find *x, const Stmt *l) {
    Stmt *s = arena_memdup(x->a, l, sizeof *l);
    s->loop.syms.p =
        arena_memdup(x->a, l->loop.syms.p, sizeof *l->loop.syms.p * (size_t)l->loop.syms.n);
    return s;
}

/* Notes what the linearizer computes of the loops around the call, outermost first. */
static bool roots_fit(Find *x) {
    Structure *k = x->k;
    for (int i = 0; i < k->naround; i++) {
        const Stmt *l = k->around[i], *next = i + 1 < k->naround ? k->around[i + 1] : k->root;
        if (!expr_visible(l->loop.trips, x->outer)) return false;
        k->sym[l->loop.iter->id] = true;
        for (int m = 0; l->loop.body->s.p[m] != next; m++) {
            Stmt *s = l->loop.body->s.p[m];
            if (s->kind != S_LET && s->kind != S_CHECK) continue;
            if (s->kind == S_LET)
                k->sym[s->let.sym->id] =
                    !dtype_is_float(s->let.sym->dtype) && computes(x, s->let.e);
            vec_push(x->a, &k->before[i], arena_memdup(x->a, s, sizeof *s));
        }
    }
    for (int i = 0; i < k->naround; i++) k->around[i] = loop_copy(x, k->around[i]);
    for (int i = 0; i < k->root->call.f->nsym; i++)
        if (!computes(x, k->root->call.sym[i])) return false;
    return true;
}

static void read_roots(Find *x, Visit *v) {
    const Structure *k = x->k;
    for (int i = 0; i < k->naround; i++) {
        visit_expr(v, k->around[i]->loop.trips);
        for (int m = 0; m < k->before[i].n; m++) {
            const Stmt *s = k->before[i].p[m];
            if (s->kind == S_LET && k->sym[s->let.sym->id]) visit_expr(v, s->let.e);
            if (s->kind == S_CHECK) read_check(x, v, s);
        }
    }
    for (int i = 0; i < k->root->call.f->nsym; i++) visit_expr(v, k->root->call.sym[i]);
}

/* The loops around q that the roots may be counted along, innermost first. */
static int loops_around(Find *x, const Seq *q, const Stmt *root, Stmt **loop) {
    int n = 0;
    for (; q->owner && q->owner->kind == S_LOOP && n < 8; q = q->parent) {
        Stmt *l = q->owner;
        if (!l->loop.trips || l->loop.cond0 || l->loop.cond_next || l->loop.made) break;
        if (!visible_from(x->c, root, q->parent)) break;
        loop[n++] = l;
    }
    return n;
}

static bool structure_find(Find *x, Seq *q, Stmt *s, int naround, Stmt *const *inner) {
    Structure *k = x->k = NEW(x->a, Structure);
    k->path = s->path;
    k->root = s;
    k->nfunc = s->call.nfunc;
    k->func = s->call.func;
    k->nid = x->c->next_sym;
    k->sym = NEWN(x->a, bool, k->nid + 1);
    k->column = NEWN(x->a, bool, k->nid + 1);
    k->checks = map_new(x->a);
    k->depth_site = s->call.f->site;
    k->naround = naround;
    k->around = NEWN(x->a, Stmt *, naround + 1);
    k->before = arena_alloc(x->a, sizeof *k->before * (size_t)(naround + 1));
    memset(k->before, 0, sizeof *k->before * (size_t)(naround + 1));
    k->call = arena_memdup(x->a, s, sizeof *s);
    k->call->call.sym =
        arena_memdup(x->a, s->call.sym, sizeof *s->call.sym * (size_t)(s->call.f->nsym + 1));
    x->why = NULL;
    x->outer = q;
    for (int i = 0; i < naround; i++) {
        k->around[naround - 1 - i] = inner[i];
        x->outer = x->outer->parent;
    }
    if (!roots_fit(x)) return no(x, s, "what it is called with depends on results");
    for (int i = 0; i < k->nfunc; i++)
        if (!func_fits(x, k->func[i])) return false;
    for (int i = 0; i < k->nfunc; i++) seq_each(k->func[i]->body, need_stmt, x);
    for (int i = 0; i < k->nfunc; i++)
        if (!classes(x, i)) return false;
    Visit v = visit_new(x->c, read_tensor, read_sym, x);
    read_roots(x, &v);
    for (int i = 0; i < k->nfunc; i++) read_seq(x, &v, k->func[i]->body);
    return true;
}

Structure *structure_of(Program *p, Seq *q, Stmt *s, const char **why) {
    Find x = {.p = p, .c = p->cx, .a = p->cx->a};
    Stmt *around[8];
    for (const Seq *up = q; up; up = up->parent)
        if (up->owner && up->owner->kind == S_CALL) {
            *why = "it is inside another recursion";
            return NULL;
        }
    for (int n = loops_around(&x, q, s, around); n >= 0; n--)
        if (structure_find(&x, q, s, n, around)) return x.k;
    *why = x.why;
    return NULL;
}
