/* library.c: see library.h; which products of the program's own body are put at host level.
 *
 * The rest of an expression around a product becomes a group of its own. The product reads
 * and leaves tensors in memory (fuse.c), and stands as early as it can: between two of them the
 * kernel may then have nothing to do. */
#include "scheduler/plan/library.h"

#include "scheduler/cost/cost.h"
#include "scheduler/cost/decide.h"
#include "scheduler/passes.h"
#include "utask/product.h"
#include "utask/walk.h"

#define TERMS_MAX 4     /* products of one expression */
#define PRODUCTS_MAX 60 /* of a program: each takes two launches */
#define LIBRARY_GAIN                                                                               \
    1.4 /* over what the kernel's own products are expected to reach, of a large one */

/* ---- what the host can compute --------------------------------------------------------------- */
static bool is_host_value(const Program *p, const Expr *e) {
    switch (e->op) {
    case E_CONST: return true;
    case E_INDIM: {
        const Io *io = &p->in[e->i >> 8];
        int axis = (int8_t)(e->i & 255);
        return io->kind == VT_TENSOR && axis >= 0 && axis < io->t->rank;
    }
    case E_ADD:
    case E_SUB:
    case E_MUL:
    case E_MIN:
    case E_MAX: return is_host_value(p, e->a[0]) && is_host_value(p, e->a[1]);
    default: return false;
    }
}

/* A symbol in e, or NULL. */
static Expr *symbol_in(Expr *e) {
    if (!(e->flags & EF_SYM) || e->op == E_SYM) return e->op == E_SYM ? e : NULL;
    Expr *r = NULL;
    for (int i = 0; i < e->n && !r; i++) r = symbol_in(e->a[i]);
    return r;
}

Expr *library_host_value(const Program *p, Expr *e) {
    for (Expr *s; e->pure && (s = symbol_in(e));) {
        Expr *value = NULL;
        for (int i = 0; i < p->top->s.n && !value; i++)
            if (p->top->s.p[i]->kind == S_LET && p->top->s.p[i]->let.sym == s->sym)
                value = p->top->s.p[i]->let.e;
        if (!value || !value->pure) return NULL;
        e = e_replace(p->cx, e, s, value);
    }
    return is_host_value(p, e) && e->dtype == DT_I64 ? e : NULL;
}

/* ---- recognizing ----------------------------------------------------------------------------- */
/* An axis, or neighbouring ones along which all three are walked as along one: its size and how far
 * a step goes in each of them. */
typedef struct StridedAxis {
    Expr *size, *step[3];
} StridedAxis;

/* Appends axis x to w[*n], whose part of flat goes out of it; false when a step is not known. */
static bool take_axis(Cx *c, Expr **flat, int nflat, Axis *x, StridedAxis *w, int *n) {
    StridedAxis a = {x->extent, {e_int(c, 0), e_int(c, 0), e_int(c, 0)}};
    bool joins = *n > 0;
    if (!a.size->pure || e_is_ival(a.size, 0)) return false;
    for (int i = 0; i < nflat; i++) {
        if (!e_affine(c, flat[i], x, &a.step[i], &flat[i]) || !a.step[i]->pure) return false;
        joins = joins && w[*n - 1].step[i] == e_mul(c, a.step[i], a.size);
    }
    if (e_is_ival(a.size, 1)) return true;
    if (joins) a.size = e_mul(c, w[--*n].size, a.size);
    w[(*n)++] = a;
    return true;
}

/* Whether the host can know where t lies. */
static bool is_placed(const Program *p, const Tensor *t) {
    int64_t v;
    bool fixed = t->rank >= 0, known = t->rank >= 0 && !t->blob;
    for (int i = 0; i < t->rank; i++) {
        fixed = fixed && e_is_int(t->dim[i], &v);
        known = known && library_host_value(p, t->dim[i]);
    }
    switch (t->kind) {
    case TK_INPUT:
        return known && p->in[t->index].kind ==
                            VT_TENSOR; /* one that may be absent is not read before the run knows */
    case TK_CONST: return known;
    case TK_TE: return known && !t->base && !t->grow && !t->seq->owner;
    case TK_SCAN: return known && fixed && !t->seq->owner;
    default: return false;
    }
}

/* An operand: `rows` steps where its column lies together, `columns` where its row does. */
static bool orient(Cx *c, Expr *rows, Expr *columns, Expr *nrow, Expr *ncolumn, bool *turned,
                   Expr **ld) {
    *turned = !e_is_ival(rows, 1);
    if (*turned && !e_is_ival(columns, 1)) return false;
    *ld = *turned ? rows : columns;
    return e_at_most(c, *turned ? ncolumn : nrow, *ld);
}

static bool is_half(const Expr *e) { return e->dtype == DT_F16 || e->dtype == DT_BF16; }

/* The sum of products that e is, or that is rounded by it; or NULL. */
static Expr *sum_of(Expr *e) {
    Expr *r = e->op == E_CAST && is_half(e) ? e->a[0] : e;
    return is_sum_of_products(r) && r->dtype == DT_F32 ? r : NULL;
}

bool library_product(const Program *p, Tensor *x, LibraryProduct *l) {
    Cx *c = p->cx;
    Expr *r = sum_of(x->body), *zero = e_int(c, 0), *one = e_int(c, 1);
    SumProduct s;
    if (!r || !product_of_loads(r, &s) || !is_placed(p, x)) return false;
    Expr **load = s.load, *flat[3], *own[MAX_RANK];
    for (int i = 0; i < 2; i++) {
        if (!is_placed(p, tensor_root(load[i]->t))) return false;
        flat[i] = flat_of(c, load[i]);
    }
    if (load[0]->dtype != load[1]->dtype || (x->dtype != DT_F32 && x->dtype != load[0]->dtype))
        return false;
    for (int i = 0; i < x->rank; i++) own[i] = e_axis(c, x->axis[i]);
    flat[2] = flat_index_of(c, x, own);
    StridedAxis w[MAX_RANK], sum[MAX_RANK * 2];
    int n = 0, nsum = 0;
    if (r->naxis > MAX_RANK * 2) return false;
    for (int i = 0; i < x->rank; i++)
        if (!take_axis(c, flat, 3, x->axis[i], w, &n)) return false;
    for (int i = 0; i < r->naxis; i++)
        if (!take_axis(c, flat, 2, r->raxis[i], sum, &nsum)) return false;
    if (n == 0 || nsum != 1) return false;
    /* The last axis of the result lies together: it is that of the columns, and of the first
     * operand. */
    const StridedAxis *inner = &w[n - 1], *outer = NULL, *batch = NULL;
    int first = inner->step[0] != zero ? 0 : 1, second = !first;
    if (inner->step[2] != one || inner->step[first] == zero || inner->step[second] != zero)
        return false;
    for (int i = 0; i < n - 1; i++) {
        const StridedAxis **role = w[i].step[first] == zero && !outer ? &outer : &batch;
        if (*role || !e_at_most(c, zero, w[i].step[first]) ||
            !e_at_most(c, zero, w[i].step[second]))
            return false;
        *role = &w[i];
    }
    *l = (LibraryProduct){.t = {tensor_root(load[first]->t), tensor_root(load[second]->t), x},
                          .at = {flat[first], flat[second], flat[2]},
                          .next = {batch ? batch->step[first] : zero,
                                   batch ? batch->step[second] : zero,
                                   batch ? batch->step[2] : zero},
                          .m = inner->size,
                          .n = outer ? outer->size : one,
                          .k = sum->size,
                          .batch = batch ? batch->size : one};
    Expr *down = sum->step[second], *across = outer         ? outer->step[second]
                                              : down == one ? l->k
                                                            : one;
    l->ld[2] = outer ? outer->step[2] : l->m;
    bool is =
        orient(c, inner->step[first], sum->step[first], l->m, l->k, &l->turned[0], &l->ld[0]) &&
        orient(c, down, across, l->k, l->n, &l->turned[1], &l->ld[1]) &&
        e_at_most(c, l->m, l->ld[2]);
    Expr **number[] = {&l->at[0], &l->at[1],   &l->at[2],   &l->ld[0],   &l->ld[1],
                       &l->ld[2], &l->next[0], &l->next[1], &l->next[2], &l->m,
                       &l->n,     &l->k,       &l->batch};
    for (size_t i = 0; i < COUNT(number) && is; i++) {
        *number[i] = library_host_value(p, *number[i]);
        is = *number[i] && (i >= 3 || e_at_most(c, zero, *number[i]));
    }
    return is;
}

double library_ns(const Program *p, Tensor *x) {
    const Device *d = p->schedule->device;
    LibraryProduct l;
    bool is = library_product(p, x, &l);
    ASSERT(is);
    double m = cost_size(l.m), n = cost_size(l.n), k = cost_size(l.k), batch = cost_size(l.batch),
           cores = d->units;
    double compute = 2 * m * n * k * batch / (d->gflops * cores * LIBRARY_GAIN);
    double bytes = ((double)dtype_size(l.t[0]->dtype) * (m * k + k * n) +
                    (double)dtype_size(x->dtype) * m * n) *
                   batch / (d->dram_gbps * cores);
    return (compute > bytes ? compute : bytes) + d->level[LEVEL_HOST].barrier_ns;
}

/* ---- putting at host level ------------------------------------------------------------------- */
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
    LibraryProduct k;
    Expr *own = x->body;
    x->body = e_subst(l->c, own, 0, NULL, NULL, moved, l->c);
    if (library_product(l->p, x, &k)) return true;
    x->body = own;
    return library_product(l->p, x, &k);
}

/* The n-th sum of products below e that is computed in any case, or NULL. */
static Expr *find_sum(Map *seen, Expr *e, int *n) {
    if (!(e->flags & EF_REDUCE) || !map_add(seen, (uint64_t)e->id + 1)) return NULL;
    if (sum_of(e) && (*n)-- == 0) return e;
    if (e->op == E_REDUCE || sum_of(e)) return NULL;
    Expr *r = NULL;
    int always = e->op == E_LOAD ? 0 : e_always(e);
    for (int i = 0; i < always && !r; i++) r = find_sum(seen, e->a[i], n);
    return r;
}

/* Moves statement `at` up, as far as the definitions that it uses, and checks, which may be about
 * its sizes, allow. */
static void move_up(Library *l, Seq *q, int at) {
    Stmt *s = q->s.p[at];
    while (at > 0 && q->s.p[at - 1]->kind != S_CHECK && !stmt_uses(l->c, s, q->s.p[at - 1])) {
        q->s.p[at] = q->s.p[at - 1];
        q->s.p[--at] = s;
    }
}

/* What the host passes to the library lies where the host knows. */
static void place_load(void *user, Expr *load) {
    (void)user;
    tensor_root(load->t)->placed = true;
}

/* Sum r of statement *at, at host level when that is faster; whether there is anything left of the
 * statement. */
static bool try_sum(Library *l, Seq *q, int *at, Expr *r) {
    Cx *c = l->c;
    Stmt *s = q->s.p[*at], *own = s;
    const Device *d = l->p->schedule->device;
    Tensor *t = s->op.t[0], *x = t;
    Expr *load = NULL, *was = t->body;
    bool whole = r == t->body;
    for (int i = 0; i < t->rank; i++)
        whole = whole && (e_uses_axis(r, t->axis[i]) || e_is_ival(t->dim[i], 1));
    if (!whole) x = tensor_term(c, t, r, &load);
    if (!make_product(l, x)) return true;
    if (!whole) own = stmt_op(c, x, s->path);
    double rest = whole ? 0 : d->group_ns;
    if (!decide(l->p, X_LIBRARY, own, cost_group_ns(l->p, s, l->p->schedule->units),
                library_ns(l->p, x) + rest)) {
        t->body = was;
        return true;
    }
    l->n++;
    own->level = LEVEL_HOST;
    x->placed = true;
    e_each_load(c, x->body, place_load, NULL);
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
    if (!device_is_gpu(p->schedule->device)) return;
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
    if (l.n) pass_dead_code(p); /* what was read through */
}
