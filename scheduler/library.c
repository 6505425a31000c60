/* library.c: see library.h; which products of the program's own body are put at host level.
 *
 * The rest of an expression around a product stays behind as a group of its own. The product reads and leaves
 * tensors in memory (fuse.c), and stands as early as it can: between two of them the kernel may then have nothing
 * to do. */
#include "scheduler/library.h"

#include "scheduler/cost.h"
#include "scheduler/decide.h"
#include "scheduler/passes.h"
#include "scheduler/visit.h"

#define TERMS_MAX 4     /* products of one expression */
#define PRODUCTS_MAX 60 /* of a program: each takes two launches */
#define LIBRARY_GAIN 1.4 /* over what the kernel's own products are expected to reach, of a large one */

/* ---- recognizing -------------------------------------------------------------------------------------------- */
/* An axis, or neighbouring ones along which all three are walked as along one: its size and how far a step goes in
 * each of them. */
typedef struct Walk {
    int64_t size, step[3];
} Walk;

/* The part of *flat along axis x, which goes out of it; false: not known. */
static bool take_step(Cx *c, Expr **flat, Axis *x, int64_t *step) {
    Expr *coef;
    return e_affine(c, *flat, x, &coef, flat) && e_is_int(coef, step);
}

/* Appends axis x to w[*n]; false when its size or a step is not known. */
static bool take_axis(Cx *c, Expr **flat, int nflat, Axis *x, Walk *w, int *n) {
    Walk a = {0};
    if (!e_is_int(x->extent, &a.size) || a.size < 1) return false;
    bool joins = *n > 0;
    for (int i = 0; i < nflat; i++) {
        if (!take_step(c, &flat[i], x, &a.step[i])) return false;
        joins = joins && w[*n - 1].step[i] == a.step[i] * a.size;
    }
    if (a.size == 1) return true;
    if (joins) a.size *= w[--*n].size;
    w[(*n)++] = a;
    return true;
}

static Tensor *storage_of(Tensor *t) {
    while (t->kind == TK_VIEW) t = t->base;
    return t;
}

/* Whether t will lie at a place that is known at compile time. */
static bool is_placed(const Tensor *t) {
    int64_t v;
    bool own = t->kind == TK_INPUT || t->kind == TK_CONST ||
               ((t->kind == TK_TE || t->kind == TK_SCAN) && !t->base && !t->grow && !t->seq->owner);
    for (int i = 0; own && i < t->rank; i++) own = e_is_int(t->dim[i], &v);
    return own && t->rank >= 0 && !t->blob;
}

/* An operand: `rows` steps where its column lies together, `columns` where its row does. */
static bool orient(int64_t rows, int64_t columns, int64_t nrow, int64_t ncolumn, bool *turned, int64_t *ld) {
    *turned = rows != 1;
    if (*turned && columns != 1) return false;
    *ld = *turned ? rows : columns;
    return *ld >= (*turned ? ncolumn : nrow) && *ld <= INT32_MAX;
}

bool library_product(Cx *c, Tensor *x, LibraryProduct *p) {
    Expr *r = x->body;
    if (x->dtype != DT_F32 || !is_placed(x) || r->op != E_REDUCE || r->kind != R_SUM || r->a[0]->op != E_MUL) return false;
    Expr *load[2] = {r->a[0]->a[0], r->a[0]->a[1]}, *flat[3], *own[MAX_RANK];
    for (int i = 0; i < 2; i++) {
        if (load[i]->op != E_LOAD || load[i]->dtype != DT_F32 || !is_placed(storage_of(load[i]->t))) return false;
        flat[i] = flat_of(c, load[i]);
    }
    for (int i = 0; i < x->rank; i++) own[i] = e_axis(c, x->axis[i]);
    flat[2] = flat_index_of(c, x, own);
    Walk w[MAX_RANK], sum[MAX_RANK * 2];
    int n = 0, nsum = 0;
    if (r->naxis > MAX_RANK * 2) return false;
    for (int i = 0; i < x->rank; i++)
        if (!take_axis(c, flat, 3, x->axis[i], w, &n)) return false;
    for (int i = 0; i < r->naxis; i++)
        if (!take_axis(c, flat, 2, r->raxis[i], sum, &nsum)) return false;
    if (n == 0 || nsum != 1) return false;
    /* The last axis of the result lies together: it is that of the columns, and of the first operand. */
    const Walk *inner = &w[n - 1], *outer = NULL, *batch = NULL;
    int first = inner->step[0] ? 0 : 1;
    if (inner->step[2] != 1 || !inner->step[first] || inner->step[!first]) return false;
    for (int i = 0; i < n - 1; i++) {
        const Walk **role = !w[i].step[first] && !outer ? &outer : &batch;
        if (*role || w[i].step[first] < 0 || w[i].step[!first] < 0) return false;
        *role = &w[i];
    }
    int64_t at[2];
    if (!e_is_int(flat[0], &at[0]) || !e_is_int(flat[1], &at[1]) || at[0] < 0 || at[1] < 0) return false;
    *p = (LibraryProduct){.t = {storage_of(load[first]->t), storage_of(load[!first]->t), x},
                          .at = {at[first], at[!first], 0},
                          .m = inner->size,
                          .n = outer ? outer->size : 1,
                          .k = sum->size,
                          .batch = batch ? batch->size : 1};
    for (int i = 0; i < 3 && batch; i++) p->next[i] = batch->step[i == 2 ? 2 : i == 0 ? first : !first];
    int64_t down = sum->step[!first], across = outer ? outer->step[!first] : down == 1 ? p->k : 1;
    p->ld[2] = outer ? outer->step[2] : p->m;
    return orient(inner->step[first], sum->step[first], p->m, p->k, &p->turned[0], &p->ld[0]) &&
           orient(down, across, p->k, p->n, &p->turned[1], &p->ld[1]) && p->ld[2] >= p->m && p->ld[2] <= INT32_MAX &&
           p->k <= INT32_MAX && p->batch <= INT32_MAX;
}

double library_ns(Cx *c, const Device *d, Tensor *x) {
    LibraryProduct p;
    bool is = library_product(c, x, &p);
    ASSERT(is);
    double m = (double)p.m, n = (double)p.n, k = (double)p.k, batch = (double)p.batch, cores = d->units;
    double compute = 2 * m * n * k * batch / (d->gflops * cores * LIBRARY_GAIN);
    double bytes = 4 * (m * k + k * n + m * n) * batch / (d->dram_gbps * cores);
    return (compute > bytes ? compute : bytes) + d->level[LEVEL_HOST].barrier_ns;
}

/* ---- putting at host level ---------------------------------------------------------------------------------- */
typedef struct Library {
    Program *p;
    Cx *c;
    int n; /* products so far */
} Library;

/* What only moves elements is read through. */
static Expr *moved(void *user, Expr *load) {
    Tensor *t = load->t;
    if (t->kind != TK_TE || t->rank < 0 || t->body->op != E_LOAD || load->kind) return NULL;
    return e_subst(user, t->body, t->rank, t->axis, load->a, moved, user);
}

/* Gives x the form in which it is a product; false: it is none. */
static bool make_product(Library *l, Tensor *x) {
    LibraryProduct p;
    Expr *own = x->body;
    x->body = e_subst(l->c, own, 0, NULL, NULL, moved, l->c);
    if (library_product(l->c, x, &p)) return true;
    x->body = own;
    return library_product(l->c, x, &p);
}

/* Whether an operand is an input that may be absent: it is not read before the run knows. */
typedef struct Absent {
    const Program *p;
    bool any;
} Absent;
static void absent_load(void *user, Expr *load) {
    Absent *k = user;
    const Tensor *t = storage_of(load->t);
    k->any |= t->kind == TK_INPUT && k->p->in[t->index].kind != VT_TENSOR;
}

/* The n-th sum of products below e that is computed in any case, or NULL. */
static Expr *find_sum(Map *seen, Expr *e, int *n) {
    if (!(e->flags & EF_REDUCE) || map_geti(seen, (uint64_t)e->id + 1)) return NULL;
    map_seti(seen, (uint64_t)e->id + 1, e);
    if (e->op == E_REDUCE) return e->kind == R_SUM && e->a[0]->op == E_MUL && (*n)-- == 0 ? e : NULL;
    Expr *r = NULL;
    int always = e->op == E_SELECT || e->op == E_GUARD ? 1 : e->op == E_LOAD ? 0 : e->n;
    for (int i = 0; i < always && !r; i++) r = find_sum(seen, e->a[i], n);
    return r;
}

/* Puts statement `at` where nothing in front of it is in its way. */
static void move_up(Library *l, Seq *q, int at) {
    Stmt *s = q->s.p[at];
    while (at > 0 && !stmt_uses(l->c, s, q->s.p[at - 1])) {
        q->s.p[at] = q->s.p[at - 1];
        q->s.p[--at] = s;
    }
}

/* Sum r of statement *at, at host level when that is faster; whether there is anything left of the statement. */
static bool try_sum(Library *l, Seq *q, int *at, Expr *r) {
    Cx *c = l->c;
    Stmt *s = q->s.p[*at], *own = s;
    const Device *d = l->p->schedule->device;
    Tensor *t = s->op.t[0], *x = t;
    Expr *load = NULL, *was = t->body;
    bool whole = r == t->body;
    for (int i = 0; i < t->rank; i++) whole = whole && (e_uses_axis(r, t->axis[i]) || e_is_ival(t->dim[i], 1));
    if (!whole) x = tensor_term(c, t, r, &load);
    if (!make_product(l, x)) return true;
    Absent k = {l->p, false};
    e_each_load(c, x->body, absent_load, &k);
    if (!whole) {
        own = stmt_new(c, S_OP, s->path);
        own->op.n = 1;
        own->op.t = arena_memdup(c->a, &x, sizeof x);
    }
    double rest = whole ? 0 : d->group_ns;
    if (k.any || !decide(l->p, X_LIBRARY, own, cost_group_ns(c, d, s, l->p->schedule->units), library_ns(c, d, x) + rest)) {
        t->body = was;
        return true;
    }
    l->n++;
    own->level = LEVEL_HOST;
    if (!whole) {
        t->body = e_replace(c, t->body, r, load);
        seq_put_at(c, q, (*at)++, own);
    }
    move_up(l, q, whole ? *at : *at - 1);
    return !whole;
}

void pass_library(Program *p) {
    Library l = {p, p->cx, 0};
    Seq *q = p->top;
    if (!p->schedule->device->threads) return;
    for (int i = 0; i < q->s.n; i++) {
        Stmt *s = q->s.p[i];
        if (s->kind != S_OP || s->op.t[0]->rank < 0) continue;
        for (int tried = 0; tried < TERMS_MAX && l.n < PRODUCTS_MAX; tried++) {
            int nth = tried, before = l.n;
            Expr *r = find_sum(map_new(p->cx->a), s->op.t[0]->body, &nth);
            if (!r || !try_sum(&l, q, &i, r)) break;
            if (l.n > before) tried--; /* it is gone */
        }
    }
    p->ntensor = p->cx->next_tensor;
    p->nsym = p->cx->next_sym;
    if (l.n) pass_dead_code(p); /* what was read through */
}
