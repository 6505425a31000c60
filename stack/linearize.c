/* linearize.c: runs a recursion height by height.
 *
 *     call f(root)                 linearize -> nodes           (run by one unit, emitted as C)
 *       function f(n)              loop h < heights
 *         if leaf(n)        =>       group: the leaves of height h                 -> table[rows]
 *           ...                      group: the others of height h, table[child]   -> table[rows]
 *         else f(left(n)) ...      result = table[row of root]
 *
 * The linearizer numbers the activations before any of them computes something (structure.h): for
 * that, control may depend on integers only. Each class of nodes becomes a group of rows in an
 * ordinary loop over heights; calls become loads of rows of a table, in which each row is written
 * once. Roots are those of all iterations of the loops around the call. Products that need no child
 * stand before the loop, for all nodes of a class. */
#include "scheduler/cost/cost.h"
#include "scheduler/cost/decide.h"
#include "stack/batch.h"
#include "stack/rows.h"
#include "stack/structure.h"
#include "utask/extern.h"
#include "utask/product.h"
#include "utask/walk.h"

static const ExternRow linearizer = {.name = "linearize", .file = "linearize"};

typedef struct Tables { /* the results of a function, a row for each node */
    Expr *n;
    Tensor **phi, **next;
} Tables;

typedef struct Ways { /* a class of nodes */
    const Class *c;
    List *all, *now; /* its nodes; those of the present height */
    Expr *n, *first, *columns, *starts;
    Expr *row;         /* of the present height's first node in the tables */
    Tensor **part;     /* its rows of each result */
    Def *sym, *tensor; /* what its nodes know */
    bool *early;       /* by tensor id: computed before the loop over heights */
} Ways;

typedef struct Line {
    Rows r;
    Structure *k;
    Tensor *plan;
    Seq *outer, *body;
    Expr *h;                            /* the present height */
    Tables *tables;                     /* by function */
    Ways *ways;                         /* by class */
    Ways *w;                            /* at hand */
    const Children *in;                 /* the loop over children at hand, or NULL */
    Expr *trip, *loop_n, *loop_columns; /* its iteration number, its words of the plan */
    int column;                         /* next column, of the loop or of the class */
    int nloop;                          /* loops passed */
    bool *early;                        /* of the class at hand */
    bool *tensor_from, *sym_from;       /* by id: depends on the results of calls */
} Line;

/* ---- reading the plan ------------------------------------------------------------------------ */
static Expr *at_plan(Line *x, Expr *at) { return e_load(x->r.c, x->plan, &at); }

/* A word of the plan, in a symbol. */
static Expr *word_at(Line *x, Expr *at, const char *name) {
    Sym *s = sym_new(x->r.c, DT_I64, name, 0);
    s->scope = x->r.seq;
    return seq_let(x->r.c, x->r.seq, s, at_plan(x, at), x->k->path);
}
static Expr *word(Line *x, int at, const char *name) { return word_at(x, e_int(x->r.c, at), name); }

/* Column i of the class, at row r of all its nodes. */
static Expr *column_at(Line *x, const Ways *w, int i, Expr *r) {
    Cx *c = x->r.c;
    return at_plan(x, e_add(c, e_add(c, w->columns, e_muli(c, w->n, i)), r));
}

typedef struct Column {
    Line *x;
    const Ways *w;
    const Children *in;
    Expr *trip, *columns, *n; /* of in */
    int i;
    DType dtype;
    bool negated; /* of a condition: where it does not hold */
} Column;

/* What the column says of row r; 0 where the node makes no such iteration. */
static Expr *column_word(const Column *k, Expr *r) {
    Line *x = k->x;
    Cx *c = x->r.c;
    if (!k->in) return column_at(x, k->w, k->i, r);
    Expr *at = e_add(c, column_at(x, k->w, k->in->count + 1, r), k->trip);
    at = e_add(c, e_add(c, k->columns, e_muli(c, k->n, k->i)), at);
    Expr *some = e_lt(c, k->trip, column_at(x, k->w, k->in->count, r));
    return e_sel(c, some, at_plan(x, at), e_int(c, 0));
}
static Expr *column_value(Rows *b, const Def *d, Expr *r) {
    const Column *k = d->user;
    return e_cast(b->c, k->dtype, column_word(k, r));
}
static Expr *column_index(Rows *b, const Def *d, Expr *r) {
    (void)b;
    return column_word(d->user, r);
}

static Column *column_next(Line *x, DType t) {
    Column *k = NEW(x->r.a, Column);
    *k = (Column){.x = x, .w = x->w, .in = x->in, .trip = x->trip, .i = x->column++, .dtype = t};
    k->n = x->loop_n;
    k->columns = x->loop_columns;
    return k;
}

/* The linearizer leaves s in the next column, if anything on tensors needs it. */
static void define_column(Line *x, const Sym *s) {
    if (!x->k->column[s->id]) return;
    x->r.sym[s->id] =
        (Def){.list = x->w->all, .find = column_value, .user = column_next(x, s->dtype)};
}

/* ---- statements of a class ------------------------------------------------------------------- */
typedef struct From {
    Line *x;
    bool hit;
} From;
static void from_load(void *user, Expr *e) {
    From *k = user;
    k->hit |= k->x->tensor_from[tensor_root(e->t)->id];
}
static bool from_sym(const void *user, const Sym *s) {
    const Line *x = user;
    return s->id < x->r.nsym && x->sym_from[s->id];
}
/* Whether e depends on the results of calls. */
static bool depends(Line *x, Expr *e) {
    From k = {x, false};
    e_each_load(x->r.c, e, from_load, &k);
    return k.hit || any_sym(e, from_sym, x);
}

static void note_in_loop(void *user, Stmt *s) {
    Line *x = user;
    if (s->kind == S_OP) x->tensor_from[s->op.t[0]->id] = true;
    for (int i = 0; s->kind == S_BRANCH && i < s->br.joins.n; i++)
        x->tensor_from[s->br.joins.p[i].out->id] = true;
    for (int i = 0; s->kind == S_CALL && i < s->call.f->nout; i++)
        x->tensor_from[s->call.out[i]->id] = true;
}

/* Notes what depends on the results of calls; what a loop over children makes is taken to do so. */
static void note_from(void *user, Stmt *s, int arm) {
    Line *x = user;
    switch (s->kind) {
    case S_LET: x->sym_from[s->let.sym->id] = depends(x, s->let.e); break;
    case S_OP: x->tensor_from[s->op.t[0]->id] = depends(x, s->op.t[0]->body); break;
    case S_CALL:
        for (int i = 0; i < s->call.f->nout; i++) x->tensor_from[s->call.out[i]->id] = true;
        break;
    case S_LOOP:
        for (int i = 0; i < s->loop.carry.n; i++) x->tensor_from[s->loop.carry.p[i].phi->id] = true;
        seq_each(s->loop.body, note_in_loop, x);
        break;
    case S_BRANCH:
        for (int i = 0; i < s->br.joins.n; i++) {
            const Tensor *t = s->br.joins.p[i].arm[arm];
            x->tensor_from[s->br.joins.p[i].out->id] = t && x->tensor_from[tensor_root(t)->id];
        }
        for (int i = 0; i < s->br.syms.n; i++)
            x->sym_from[s->br.syms.p[i].sym->id] = depends(x, s->br.syms.p[i].arm[arm]);
        break;
    default: break;
    }
}

/* Whether t is made outside of the recursion. */
static bool outside(const Line *x, const Tensor *t) {
    t = tensor_root(t);
    return t->kind == TK_CONST || t->kind == TK_INPUT || seq_inside(x->outer, t->seq);
}

static bool has_product(void *user, Expr *e) {
    (void)user;
    return is_sum_of_products(e);
}
/* What is not a number of the linearizer's. */
static bool is_late(const void *user, const Sym *s) {
    const Line *x = user;
    return s->id < x->r.nsym && !x->k->sym[s->id] && s->scope && !seq_inside(x->outer, s->scope);
}

typedef struct EarlyScan {
    Line *x;
    bool ok, mark;
} EarlyScan;
static void early_tensor(EarlyScan *k, Tensor *t);
static void early_load(void *user, Expr *e) { early_tensor(user, e->t); }

/* Looks at all that t is made of, whether it can be computed before the loop; or marks it. */
static void early_tensor(EarlyScan *k, Tensor *t) {
    Line *x = k->x;
    t = tensor_root(t);
    if (!k->ok || outside(x, t) || x->early[t->id]) return;
    const Join *j = t->kind == TK_JOIN ? tensor_join(t) : NULL;
    k->ok &= !x->tensor_from[t->id] && (j || t->kind == TK_TE);
    if (!k->ok) return;
    if (k->mark) x->early[t->id] = true;
    for (int i = 0; j && i < 2; i++)
        if (j->arm[i]) early_tensor(k, j->arm[i]);
    if (j) return;
    k->ok &= !any_sym(t->body, is_late, x);
    e_each_load(x->r.c, t->body, early_load, k);
}

/* Products that depend on no child, and what they need, are computed before the loop. */
static void note_early(void *user, Stmt *s, int arm) {
    Line *x = user;
    (void)arm;
    if (s->kind != S_OP) return;
    Tensor *t = s->op.t[0];
    if (!find_reduction(map_new(x->r.a), t->body, false, has_product, NULL)) return;
    EarlyScan k = {x, true, false};
    early_tensor(&k, t);
    k.mark = true;
    if (k.ok) early_tensor(&k, t);
}

static bool computed_early(const Line *x, const Tensor *t) { return x->early[t->id]; }

/* ---- constants of an arm --------------------------------------------------------------------- */
#define FOLD_MAX 65536 /* elements */

static Expr *folded_load(void *user, Expr *e) {
    Line *x = user;
    const Def *d = rows_def(&x->r, e->t);
    if (!d || !d->same) return NULL;
    return e->kind ? e_loadf(x->r.c, d->t, e->a[0]) : e_load(x->r.c, d->t, e->a);
}
static void only_constants(void *user, Expr *e) {
    *(bool *)user &= tensor_root(e->t)->kind == TK_CONST;
}

/* What is made of constants alone, such as of the zeros that a leaf begins with, is one, too. */
static bool fold(Line *x, const Stmt *s) {
    Cx *c = x->r.c;
    Tensor *old = s->op.t[0], t = *old;
    if (x->r.tensor[old->id].same) return true;
    double n = 1;
    for (int i = 0; i < t.rank; i++) n *= cost_size(t.dim[i]);
    if (t.rank < 0 || n > FOLD_MAX || !(t.body->flags & EF_LOAD)) return false;
    t.body = e_subst(c, t.body, 0, NULL, NULL, folded_load, x);
    bool all = !(t.body->flags & (EF_SYM | EF_INDIM | EF_GUARD));
    e_each_load(c, t.body, only_constants, &all);
    const Const *k = all ? interp_fold(c, &t) : NULL;
    if (!k) return false;
    Tensor *r = tensor_new(c, TK_CONST, k->dtype, k->rank, t.dim);
    r->data = k;
    r->seq = x->r.p->top;
    r->name = old->name;
    r->path = old->path;
    x->r.tensor[old->id] = (Def){.list = x->w->all, .t = r, .same = true};
    return true;
}

/* Symbols, and what is computed before the loop. */
static void run_early(void *user, Stmt *s, int arm) {
    Line *x = user;
    Rows *b = &x->r;
    List *all = x->w->all;
    if (s->kind == S_LET && x->k->sym[s->let.sym->id])
        define_column(x, s->let.sym);
    else if (s->kind == S_LET)
        b->sym[s->let.sym->id] = (Def){.list = all, .e = s->let.e};
    if (s->kind == S_OP && !fold(x, s) && computed_early(x, s->op.t[0])) rows_op(b, s, all);
    if (s->kind == S_CALL) x->column++;
    if (s->kind == S_LOOP) x->column += 2;
    for (int i = 0; arm >= 0 && i < s->br.syms.n; i++) {
        const JoinSym *j = &s->br.syms.p[i];
        if (x->k->sym[j->sym->id])
            define_column(x, j->sym);
        else
            b->sym[j->sym->id] = (Def){.list = all, .e = j->arm[arm]};
    }
    for (int i = 0; arm >= 0 && i < s->br.joins.n; i++) {
        const Join *j = &s->br.joins.p[i];
        const Def *d = j->arm[arm] ? rows_def(b, j->arm[arm]) : NULL;
        if (d)
            b->tensor[j->out->id] = *d;
        else if (j->arm[arm] && outside(x, j->arm[arm]))
            b->tensor[j->out->id] = (Def){.list = all, .t = j->arm[arm], .same = true};
    }
}

static List *list_new(Line *x, List *up, Expr *n, Expr *from) {
    List *l = NEW(x->r.a, List);
    *l = (List){.up = up, .n = n, .from = from, .id = ++x->r.nlist};
    return l;
}

/* t as a tensor over the rows of `at`, computed here. */
static Tensor *rows_copy(Line *x, List *at, Tensor *t, const Stmt *s) {
    Rows *b = &x->r;
    Tensor *r = rows_of(b, TK_TE, t, 0, at->n, b->seq);
    rows_compute(b, r, rows_lift(b, at, e_axis(b->c, r->axis[0]), s, rows_load_rest(b, t, r)),
                 s->path);
    return r;
}

static void run_late(void *user, Stmt *s, int arm);

static void run_iteration(Line *x, const Seq *q, const Column *taken);

/* A tensor over the rows that is v where the condition `taken` holds, else `other`, or 0. */
static Tensor *where_taken(Line *x, Tensor *t, const Column *taken, Expr *v, Expr *other,
                           const char *path) {
    Cx *c = x->r.c;
    Expr *row = rows_row_in(&x->r, x->w->now, e_axis(c, t->axis[0]), x->w->all);
    Expr *cond = e_cast(c, DT_BOOL, column_word(taken, row));
    if (taken->negated) cond = e_not(c, cond);
    rows_compute(&x->r, t, e_sel(c, cond, v, other ? other : e_num(c, t->dtype, 0)), path);
    return t;
}

/* A branch in a loop over children: both arms, for all rows. What an arm reads does not exist for
 * rows that do not take it, so it is 0 there. */
static void run_both(Line *x, const Stmt *s) {
    Rows *b = &x->r;
    List *at = x->w->now;
    Column *cond = column_next(x, DT_BOOL), *arm[2] = {cond, NEW(b->a, Column)};
    *arm[1] = *cond;
    arm[1]->negated = true;
    for (int k = 0; k < 2; k++) run_iteration(x, s->br.arm[k], arm[k]);
    for (int i = 0; i < s->br.syms.n; i++) define_column(x, s->br.syms.p[i].sym);
    for (int i = 0; i < s->br.joins.n; i++) {
        const Join *j = &s->br.joins.p[i];
        Tensor *t = rows_of(b, TK_TE, j->out, 0, at->n, b->seq);
        Expr *v[2] = {NULL, NULL};
        for (int k = 0; k < 2; k++)
            if (j->arm[k])
                v[k] =
                    rows_lift(b, at, e_axis(b->c, t->axis[0]), s, rows_load_rest(b, j->arm[k], t));
        if (v[0])
            where_taken(x, t, cond, v[0], v[1], s->path);
        else
            rows_compute(b, t, v[1], s->path);
        b->tensor[j->out->id] = (Def){.list = at, .t = t};
    }
}

/* What an iteration of a loop over children computes; taken: in an arm, for which rows. */
static void run_iteration(Line *x, const Seq *q, const Column *taken) {
    Rows *b = &x->r;
    List *at = x->w->now;
    for (int i = 0; i < q->s.n; i++) {
        Stmt *s = q->s.p[i];
        if (s->kind == S_LET && x->k->sym[s->let.sym->id])
            define_column(x, s->let.sym);
        else if (s->kind == S_LET)
            b->sym[s->let.sym->id] = (Def){.list = at, .e = s->let.e};
        else if (s->kind == S_BRANCH)
            run_both(x, s);
        else if (s->kind == S_OP && taken && !(s->op.t[0]->body->flags & EF_REDUCE)) {
            Tensor *old = s->op.t[0], *t = rows_of(b, TK_TE, old, 0, at->n, b->seq);
            memcpy(t->axis + 1, old->axis, sizeof *t->axis * (size_t)old->rank);
            Expr *v = rows_lift(b, at, e_axis(b->c, t->axis[0]), s, old->body);
            where_taken(x, t, taken, v, NULL, s->path);
            b->tensor[old->id] = (Def){.list = at, .t = t};
        } else
            run_late(x, s, -1);
        for (int m = 0; s->kind == S_CALL && taken && m < s->call.f->nout; m++) {
            Tensor *old = s->call.out[m], *t = rows_of(b, TK_TE, old, 0, at->n, b->seq);
            Expr *v = rows_lift(b, at, e_axis(b->c, t->axis[0]), s, rows_load_rest(b, old, t));
            where_taken(x, t, taken, v, NULL, s->path);
            b->tensor[old->id] = (Def){.list = at, .t = t};
        }
    }
}

/* A loop over the children of each row: as many iterations as any of the rows makes. */
static void run_loop(Line *x, Stmt *s) {
    Rows *b = &x->r;
    Cx *c = b->c;
    List *at = x->w->now;
    const Children *in = &x->w->c->loop[x->nloop++];
    const int column = x->column + 2;
    Expr *most = word_at(
        x, e_add(c, word(x, structure_loop(x->k, in->id) + CHILDREN_MOST, "most"), x->h), "trips");
    x->loop_n = word(x, structure_loop(x->k, in->id) + CHILDREN_N, "n");
    x->loop_columns = word(x, structure_loop(x->k, in->id) + CHILDREN_COLUMNS, "columns");
    Stmt *l = stmt_new(c, S_LOOP, s->path);
    l->loop.trips = most;
    l->loop.made = e_int(c, 0); /* the linearizer counts iterations */
    l->loop.cap_site = s->loop.cap_site;
    l->loop.iter = sym_new(c, DT_I64, "i", 0);
    l->loop.iter->scope = b->seq;
    for (int i = 0; i < s->loop.carry.n; i++) {
        const LoopCarry *old = &s->loop.carry.p[i];
        Tensor *phi = rows_of(b, TK_PHI, old->phi, 0, at->n, b->seq);
        LoopCarry k = {.phi = phi, .init = rows_copy(x, at, old->init, s)};
        b->tensor[old->phi->id] = (Def){.list = at, .t = phi};
        vec_push(b->a, &l->loop.carry, k);
    }
    Seq *up = b->seq;
    l->loop.body = b->seq = seq_new(c, up, l, true);
    x->in = in;
    x->trip = e_sym(c, l->loop.iter);
    x->column = 0;
    List *all = x->w->all;
    x->w->now = list_new(x, at, at->n, NULL);
    b->sym[s->loop.iter->id] = (Def){.list = all, .e = x->trip};
    run_iteration(x, s->loop.body, NULL);
    for (int i = 0; i < l->loop.carry.n; i++) {
        LoopCarry *k = &l->loop.carry.p[i];
        Tensor *old = s->loop.carry.p[i].next,
               *t = k->next = rows_of(b, TK_TE, old, 0, at->n, b->seq);
        Expr *row = e_axis(c, t->axis[0]);
        Expr *made = column_at(x, x->w, in->count, rows_row_in(b, at, row, all));
        Expr *v = rows_lift(b, x->w->now, row, s, rows_load_rest(b, old, t));
        rows_compute(b, t, e_sel(c, e_lt(c, x->trip, made), v, load_own(c, k->phi, t)), s->path);
        t->owned = true;
    }
    x->in = NULL;
    x->w->now = at;
    x->column = column;
    b->seq = up;
    rows_append(b, l);
    Column *k = NEW(b->a, Column); /* after the loop, the number of iterations made */
    *k = (Column){.x = x, .w = x->w, .i = in->count, .dtype = DT_I64};
    b->sym[s->loop.iter->id] = (Def){.list = all, .find = column_value, .user = k};
}

/* What is computed at each height. */
static void run_late(void *user, Stmt *s, int arm) {
    Line *x = user;
    Rows *b = &x->r;
    List *at = x->w->now;
    switch (s->kind) {
    case S_LET: /* what may use tensors of this height is defined anew */
        x->column += x->k->column[s->let.sym->id];
        if (!x->k->sym[s->let.sym->id]) b->sym[s->let.sym->id] = (Def){.list = at, .e = s->let.e};
        break;
    case S_OP:
        if (!fold(x, s) && !computed_early(x, s->op.t[0])) rows_op(b, s, at);
        break;
    case S_CHECK: /* the linearizer makes those that it can */
        if (!structure_checks(x->k, s)) rows_check(b, s, at);
        break;
    case S_LOOP: run_loop(x, s); break;
    case S_CALL: {
        Column *k = column_next(x, DT_I64);
        const int f = structure_func(x->k, s->call.f);
        for (int i = 0; i < s->call.f->nout; i++)
            b->tensor[s->call.out[i]->id] =
                (Def){.list = x->w->all, .t = x->tables[f].phi[i], .find = column_index, .user = k};
        break;
    }
    case S_BRANCH:
        for (int i = 0; i < s->br.syms.n; i++) {
            const JoinSym *j = &s->br.syms.p[i];
            x->column += x->k->column[j->sym->id];
            if (!x->k->sym[j->sym->id]) b->sym[j->sym->id] = (Def){.list = at, .e = j->arm[arm]};
        }
        for (int i = 0; i < s->br.joins.n; i++) {
            const Join *j = &s->br.joins.p[i];
            const Def *d = j->arm[arm] ? rows_def(b, j->arm[arm]) : NULL;
            if (d) b->tensor[j->out->id] = *d;
        }
        break;
    default: die("statement %d in a recursion by heights", s->kind);
    }
}

/* The rows of the present height in the results of the class. */
static void make_parts(Line *x) {
    Rows *b = &x->r;
    const Func *f = x->k->func[x->w->c->func];
    const Stmt none = {.path = x->k->path};
    x->w->part = NEWN(b->a, Tensor *, f->nout);
    for (int i = 0; i < f->nout; i++) {
        const Def *d = rows_def(b, f->out[i]);
        const bool fresh = d && d->list == x->w->now && !d->same && d->t->kind == TK_TE &&
                           !d->find && !d->from && !d->t->owned && d->t->seq == b->seq;
        Tensor *t = x->w->part[i] = fresh ? d->t : rows_copy(x, x->w->now, f->out[i], &none);
        t->owned = true;
        t->table = x->tables[x->w->c->func].phi[i];
        t->row = x->w->row;
    }
}

/* ---- the whole ------------------------------------------------------------------------------- */
static void linearizer_new(Line *x) {
    Cx *c = x->r.c;
    Arena *a = x->r.a;
    const Structure *k = x->k;
    Stmt *s = stmt_new(c, S_EXTERN, k->path);
    s->ext.row = &linearizer;
    s->ext.structure = x->k;
    s->ext.site = k->depth_site;
    s->ext.nin = k->tensor.n;
    s->ext.in = NEWN(a, Tensor *, k->tensor.n + 1);
    for (int i = 0; i < k->tensor.n; i++) s->ext.in[i] = k->tensor.p[i];
    s->ext.nparam = k->captured.n;
    s->ext.param = NEWN(a, Expr *, k->captured.n + 1);
    for (int i = 0; i < k->captured.n; i++)
        s->ext.param[i] = e_cast(c, DT_I64, e_sym(c, k->captured.p[i]));
    s->ext.nsym = s->ext.nout = 1;
    s->ext.sym = NEWN(a, Sym *, 1);
    s->ext.sym[0] = sym_new(c, DT_I64, "words", 0);
    s->ext.sym[0]->scope = x->outer;
    Expr *words = e_sym(c, s->ext.sym[0]);
    x->plan = tensor_new(c, TK_EXTERN, DT_I64, 1, &words);
    x->plan->seq = x->outer;
    x->plan->name = "nodes";
    x->plan->path = k->path;
    s->ext.out = NEWN(a, Tensor *, 1);
    s->ext.out[0] = x->plan;
    rows_append(&x->r, s);
}

static void tables_new(Line *x, Stmt *loop) {
    Rows *b = &x->r;
    Cx *c = b->c;
    x->tables = NEWN(b->a, Tables, x->k->nfunc);
    for (int i = 0; i < x->k->nfunc; i++) {
        const Func *f = x->k->func[i];
        Tables *t = &x->tables[i];
        t->n = word(x, LIN_HEAD + i, "nodes");
        t->phi = NEWN(b->a, Tensor *, f->nout);
        t->next = NEWN(b->a, Tensor *, f->nout);
        for (int m = 0; m < f->nout; m++) {
            Tensor *init = rows_of(b, TK_TE, f->out[m], 0, t->n, b->seq);
            rows_compute(b, init, e_num(c, init->dtype, 0), x->k->path);
            t->phi[m] = rows_of(b, TK_PHI, f->out[m], 0, t->n, b->seq);
            LoopCarry k = {.phi = t->phi[m], .init = init, .rows = true};
            vec_push(b->a, &loop->loop.carry, k);
        }
    }
}

/* The tables after an iteration: where no class has rows, as before. */
static void tables_next(Line *x, Stmt *loop) {
    Rows *b = &x->r;
    Cx *c = b->c;
    int at = 0;
    for (int i = 0; i < x->k->nfunc; i++)
        for (int m = 0; m < x->k->func[i]->nout; m++) {
            LoopCarry *k = &loop->loop.carry.p[at++];
            Tensor *t = k->next = rows_of(b, TK_TE, k->phi, 1, x->tables[i].n, b->seq);
            Expr *row = e_axis(c, t->axis[0]), *v = load_own(c, k->phi, t), *idx[MAX_RANK];
            for (int d = 1; d < t->rank; d++) idx[d] = e_axis(c, t->axis[d]);
            for (int n = x->k->nclass - 1; n >= 0; n--) {
                const Ways *w = &x->ways[n];
                if (w->c->func != i || w->c->ends) continue;
                idx[0] = e_sub(c, row, w->row);
                Expr *in = e_and(c, e_le(c, w->row, row), e_lt(c, idx[0], w->now->n));
                v = e_sel(c, in, e_load(c, w->part[m], idx), v);
            }
            rows_compute(b, t, v, x->k->path);
            t->owned = true;
        }
}

/* Begins with class w, whose symbols and early products are computed. */
static void begin_class(Line *x, Ways *w) {
    Rows *b = &x->r;
    Cx *c = b->c;
    const Structure *k = x->k;
    const int at = structure_class(k, w->c->id);
    x->w = w;
    w->n = word(x, at + CLASS_N, "n");
    w->first = word(x, at + CLASS_FIRST, "first");
    w->columns = word(x, at + CLASS_COLUMNS, "columns");
    w->starts = word(x, at + CLASS_STARTS, "starts");
    w->all = list_new(x, NULL, w->n, NULL);
    b->sym = NEWN(b->a, Def, b->nsym + 1);
    b->tensor = NEWN(b->a, Def, b->ntensor + 1);
    w->sym = b->sym;
    w->tensor = b->tensor;
    x->early = w->early = NEWN(b->a, bool, b->ntensor + 1);
    if (w->c->calls) {
        x->tensor_from = NEWN(b->a, bool, c->next_tensor + 1);
        x->sym_from = NEWN(b->a, bool, b->nsym + 1);
        structure_walk(k, w->c, note_from, x);
        structure_walk(k, w->c, note_early, x);
    }
    x->column = 0;
    const Func *f = k->func[w->c->func];
    for (int i = 0; i < f->nsym; i++) define_column(x, f->sym[i]);
    structure_walk(k, w->c, run_early, x);
}

static void run_class(Line *x, Ways *w) {
    Rows *b = &x->r;
    Cx *c = b->c;
    x->w = w;
    b->sym = w->sym;
    b->tensor = w->tensor;
    b->gathered = map_new(b->a);
    x->early = w->early;
    const int classes = x->k->nclass;
    Expr *at = e_add(c, w->starts, e_muli(c, x->h, classes));
    Expr *start = word_at(x, at, "start"),
         *end = word_at(x, e_add(c, at, e_int(c, classes)), "end");
    Sym *rows = sym_new(c, DT_I64, "rows", 0);
    rows->scope = b->seq;
    Expr *n = seq_let(c, b->seq, rows, e_sub(c, end, start), x->k->path);
    w->now = list_new(x, w->all, n, start);
    w->row = e_add(c, w->first, start);
    const Func *f = x->k->func[w->c->func];
    x->column = x->nloop = 0;
    for (int i = 0; i < f->nsym; i++) x->column += x->k->column[f->sym[i]->id];
    structure_walk(x->k, w->c, run_late, x);
    make_parts(x);
}

/* The call's results are rows of the tables. */
static void read_roots(Line *x, Seq *q, Stmt *s, Expr *roots) {
    Cx *c = x->r.c;
    Expr *i = e_int(c, 0);
    for (int m = 0; m < x->k->naround; m++) {
        const Stmt *l = x->k->around[m];
        i = e_add(c, e_mul(c, i, l->loop.trips), e_sym(c, l->loop.iter));
    }
    const int f = structure_func(x->k, s->call.f);
    int at = 0;
    while (q->s.p[at] != s) at++;
    Seq made = {.parent = q->parent};
    Sym *row = sym_new(c, DT_I64, "root", 0);
    row->scope = q;
    Expr *idx[MAX_RANK] = {seq_let(c, &made, row, at_plan(x, e_add(c, roots, i)), s->path)};
    x->r.seq = &made;
    for (int m = 0; m < s->call.f->nout; m++) {
        Tensor *t = s->call.out[m];
        for (int d = 0; d < t->rank; d++)
            idx[d + 1] = e_axis(c, t->axis[d] = axis_new(c, t->dim[d]));
        t->kind = TK_TE;
        t->body = e_load(c, x->tables[f].phi[m], idx);
        rows_append(&x->r, stmt_op(c, t, s->path));
    }
    seq_replace(c, q, &at, &made.s);
}

static void linearize(Program *p, Structure *k, Seq *q, Stmt *s) {
    Line x = {.r = {.p = p, .c = p->cx, .a = p->cx->a}, .k = k, .outer = q};
    Cx *c = p->cx;
    for (int i = 0; i < k->naround; i++) x.outer = x.outer->parent;
    x.r.nsym = c->next_sym;
    x.r.ntensor = c->next_tensor;
    x.r.seq = x.outer;
    StmtVec rest = x.outer->s;
    x.outer->s = (StmtVec){0}; /* new statements go to a list of their own */
    linearizer_new(&x);
    Stmt *loop = stmt_new(c, S_LOOP, k->path);
    loop->loop.trips = word(&x, LIN_LEVELS, "heights");
    loop->loop.made = e_int(c, 0); /* no loop of the model's */
    loop->loop.cap_site = k->depth_site;
    loop->loop.iter = sym_new(c, DT_I64, "height", 0);
    loop->loop.iter->scope = x.outer;
    tables_new(&x, loop);
    Expr *roots = word(&x, LIN_ROOTS, "roots");
    x.ways = NEWN(x.r.a, Ways, k->nclass);
    for (int i = 0; i < k->nclass; i++) {
        x.ways[i].c = k->cls[i];
        if (!k->cls[i]->ends) begin_class(&x, &x.ways[i]);
    }
    loop->loop.body = x.r.seq = x.body = seq_new(c, x.outer, loop, true);
    x.h = e_sym(c, loop->loop.iter);
    for (int i = 0; i < k->nclass; i++)
        if (!k->cls[i]->ends) run_class(&x, &x.ways[i]);
    tables_next(&x, loop);
    x.r.seq = x.outer;
    rows_append(&x.r, loop);
    /* Before the outermost loop around the call, or the call. */
    const Stmt *before = s;
    for (const Seq *up = q; up != x.outer; up = up->parent) before = up->owner;
    StmtVec new = x.outer->s;
    x.outer->s = (StmtVec){0};
    for (int i = 0; i < rest.n; i++) {
        for (int m = 0; rest.p[i] == before && m < new.n; m++)
            vec_push(x.r.a, &x.outer->s, new.p[m]);
        vec_push(x.r.a, &x.outer->s, rest.p[i]);
    }
    read_roots(&x, q, s, roots);
}

typedef struct Calls {
    Arena *a;
    VEC(Seq *) seq;
    StmtVec call;
} Calls;

static void collect(Calls *k, Seq *q) {
    for (int i = 0; i < q->s.n; i++) {
        Stmt *s = q->s.p[i];
        if (s->kind == S_CALL && s->call.nfunc) {
            vec_push(k->a, &k->seq, q);
            vec_push(k->a, &k->call, s);
        } else
            for (int m = 0; m < stmt_nseq(s); m++) collect(k, stmt_seq(s, m));
    }
}

/* The number of rows of a height is not known: it is taken to be twice the number of calls that an
 * activation makes (batches of a depth: once, for leaves of other depths wait), and four times that
 * for several roots. With several calls, equal activations may be reached on several ways, and the
 * plain recursion computes them each time, in the worst case without end: every second one is taken
 * to be such. */
#define LINEARIZED_NS 20 /* of a node, by the linearizer */
#define CALL_NS 5        /* of an activation, besides its body */
static bool worth(Program *p, const Structure *k, const Stmt *s) {
    const Device *d = p->schedule->device;
    int calls = 1;
    for (int i = 0; i < k->nclass; i++) {
        const Class *c = k->cls[i];
        int n = c->nchild;
        for (int m = 0; m < c->nloop; m++) n += 4 * c->loop[m].nchild;
        if (n > calls) calls = n;
    }
    const int rows = (calls > 1 ? 2 * calls : 1) * (k->naround ? 4 : 1);
    const RowsCost one = rows_cost(p, s->call.f, rows);
    const double barrier = p->schedule->units > 1 ? d->level[LEVEL_TEAM].barrier_ns : 0;
    const double plain = one.one_ns + CALL_NS + barrier;
    return decide(p, X_LINEARIZE, s, calls > 1 ? 2 * plain : plain,
                  one.one_ns - one.saved_ns + LINEARIZED_NS + (2 * d->group_ns + barrier) / rows);
}

static void remark(Program *p, const Stmt *s, const char *what, const char *why) {
    vec_push(
        p->cx->a, &p->schedule->remarks,
        arena_printf(p->cx->a, "%s: %s of function %s%s", s->path, what, s->call.f->name, why));
}

void pass_linearize(Program *p) {
    Calls k = {.a = p->cx->a};
    if (p->nfunc) collect(&k, p->top);
    for (int i = 0; i < k.call.n; i++) {
        const char *why = NULL;
        Stmt *s = k.call.p[i];
        Structure *x = structure_of(p, k.seq.p[i], s, &why);
        if (!x)
            remark(p, s, "the activations",
                   arena_printf(k.a, " cannot be numbered ahead (linearize): %s", why));
        else if (worth(p, x, s)) {
            remark(p, s, "activations", " with equal parameters are computed once (linearize)");
            linearize(p, x, k.seq.p[i], s);
        }
    }
}
