/* widen.c: on processors that compute in float32, values of 16 bits are kept as float32 in memory.
 *
 *     a[i] = float16(...)                          a'[i] = float32(float16(...))
 *     sum(r: float32(a[r]) * float32(w[r]))   →    sum(r: a'[r] * w'[r])
 *
 * Values stay what they are, rounded to 16 bits (Tensor.values says so), but nobody converts them
 * at each read, and sums of products look like any others. Constants that are factors become
 * float32 likewise; kernels pack them in 16 bits again. What is in memory as it is (inputs, carried
 * values, results of hand-written bodies) is copied for products: fusion decides whether the kernel
 * makes the copy for itself, rows by rows. */
#include "scheduler/cost/decide.h"
#include "scheduler/passes.h"
#include "utask/product.h"
#include "utask/walk.h"

#define SMALL 65536 /* elements of a constant that is widened for whoever reads it */

typedef struct Widen {
    Program *p;
    Cx *c;
    bool *fixed; /* by tensor id: others see how it lies in memory */
    Map *wide;   /* tensor id -> what it is in float32 */
    Map *local;  /* the same for the statement at hand; NULL: there is none */
    Stmt *at;
    VEC(Stmt *) copy;
} Widen;

static bool is_half(DType t) { return t == DT_F16 || t == DT_BF16; }

/* ---- what stays as it is --------------------------------------------------------------------- */
static void fix(Widen *w, const Tensor *t) {
    for (; t; t = t->kind == TK_VIEW ? t->base : NULL) w->fixed[t->id] = true;
}
static void fix_load(void *user, Expr *e) { fix(user, e->t); }
static void fix_slot(void *user, const Slot *k) {
    if (k->kind == SLOT_READ) fix(user, *k->t);
}

static bool widens(const Widen *w, const Tensor *t) {
    return t->kind == TK_TE && is_half(t->dtype) && t->rank >= 0 && !w->fixed[t->id] && !t->owned &&
           !t->ret && !t->elem && !t->base && !t->grow && !t->table;
}

/* ---- what it becomes ------------------------------------------------------------------------- */
static Tensor *find(const Widen *w, const Tensor *t) {
    Tensor *x = w->local ? map_geti(w->local, (uint64_t)t->id + 1) : NULL;
    return x ? x : map_geti(w->wide, (uint64_t)t->id + 1);
}

static Tensor *wide_tensor(Widen *w, Map *into, TensorKind kind, const Tensor *t) {
    Tensor *x = tensor_like(w->c, kind, t, t->rank, t->dim, t->seq);
    x->dtype = DT_F32;
    x->values = t->dtype;
    map_seti(into, (uint64_t)t->id + 1, x);
    return x;
}

static Tensor *wide_constant(Widen *w, const Tensor *t) {
    Tensor *x = find(w, t);
    if (x) return x;
    x = wide_tensor(w, w->wide, TK_CONST, t);
    Const *k = arena_memdup(w->c->a, t->data, sizeof *k);
    float *to = NEWN(w->c->a, float, k->count + 1);
    for (int64_t i = 0; i < k->count; i++) to[i] = (float)elem_get_f(t->dtype, t->data->data, i);
    k->dtype = DT_F32;
    k->data = to;
    x->data = k;
    return x;
}

/* A view of what is in float32. */
static Tensor *wide_view(Widen *w, const Tensor *t, Tensor *base) {
    Tensor *x = wide_tensor(w, w->local ? w->local : w->wide, TK_VIEW, t);
    x->base = base;
    return x;
}

/* Loads of t's, in terms of what they are now. */
static Expr *wide_load(void *user, Expr *e) {
    Widen *w = user;
    const Tensor *t = e->t;
    if (!is_half(t->dtype)) return NULL;
    Tensor *x = find(w, t), *root = tensor_root(t);
    if (!x && t->kind == TK_VIEW && find(w, root)) x = wide_view(w, t, find(w, root));
    if (!x && t->kind == TK_CONST && !t->elem && t->data->count <= SMALL) x = wide_constant(w, t);
    if (!x) return NULL;
    return e_cast(w->c, t->dtype, e->kind ? e_loadf(w->c, x, e->a[0]) : e_load(w->c, x, e->a));
}

/* e, of 16 bits, in float32; what does not round is computed in float32. */
static Expr *wide_expr(Cx *c, Expr *e) {
    const ExprRow *row = &expr_row[e->op];
    if (e->op == E_SELECT)
        return e_sel(c, e->a[0], wide_expr(c, e->a[1]), wide_expr(c, e->a[2]));
    if (row->flags & OP_EXACT && is_half((DType)e->dtype)) {
        Expr *x = wide_expr(c, e->a[0]);
        return row->operands == 1 ? e_un(c, e->op, x) : e_bin(c, e->op, x, wide_expr(c, e->a[1]));
    }
    return e_cast(c, DT_F32, e);
}

static bool half_reduction(void *user, Expr *e) {
    (void)user;
    return e->op == E_REDUCE && is_half((DType)e->dtype);
}

/* e with its reductions of 16 bits in float32: sums and products are rounded once, at the end. */
static Expr *wide_reductions(Cx *c, Expr *e) {
    Expr *r;
    while ((r = find_reduction(map_new(c->a), e, false, half_reduction, NULL))) {
        Expr *x = e_reduce(c, r->kind, r->naxis, r->raxis, wide_expr(c, r->a[0]));
        e = e_replace(c, e, r, e_cast(c, (DType)r->dtype, x));
    }
    return e;
}

static void rewrite_slot(void *user, const Slot *k) {
    Widen *w = user;
    if (!slot_is_expr(k)) return;
    *k->e = e_subst(w->c, *k->e, 0, NULL, NULL, wide_load, w);
    if (k->kind == SLOT_BODY) *k->e = wide_reductions(w->c, *k->e);
}

static void begin(void *user, Stmt *s) {
    Widen *w = user;
    if (s->kind == S_OP && widens(w, s->op.t[0])) wide_tensor(w, w->wide, TK_TE, s->op.t[0]);
}

static void rewrite(void *user, Stmt *s) {
    Widen *w = user;
    stmt_slots(s, rewrite_slot, w);
    Tensor *t = s->kind == S_OP ? s->op.t[0] : NULL, *x = t ? find(w, t) : NULL;
    if (!x) return;
    x->body = wide_expr(w->c, expr_over(w->c, t->body, t, x, 0));
    s->op.t[0] = x;
}

/* ---- factors --------------------------------------------------------------------------------- */
/* The load of 16 bits that factor i of p converts; NULL: it is another. */
static Expr *narrow(const SumProduct *p, int i) {
    Expr *e = p->load[i];
    return e && e != p->factor[i] && is_half(e->t->dtype) && p->factor[i]->dtype == DT_F32 ? e
                                                                                           : NULL;
}

/* A copy of t in float32, made in front of the statement at hand. */
static void copied(Widen *w, Tensor *t) {
    Tensor *x = wide_tensor(w, w->local, TK_TE, t);
    x->seq = w->at->op.t[0]->seq;
    x->body = e_cast(w->c, DT_F32, load_own(w->c, t, x));
    vec_push(w->c->a, &w->copy, stmt_op(w->c, x, w->at->path));
}

static bool factors(void *user, Expr *e) {
    Widen *w = user;
    SumProduct p;
    if (!product_of(e, &p)) return false;
    for (int i = 0; i < 2; i++) {
        Expr *x = narrow(&p, i);
        if (!x || find(w, x->t)) continue;
        if (x->t->kind == TK_CONST)
            wide_constant(w, x->t);
        else if (!x->kind && x->t->rank >= 0)
            copied(w, x->t);
    }
    return false;
}

static void products(void *user, Seq *q, int *at) {
    Widen *w = user;
    Stmt *s = q->s.p[*at];
    if (s->kind != S_OP) return;
    w->at = s;
    w->copy.n = 0;
    w->local = map_new(w->c->a); /* copies are the statement's own */
    Tensor *t = s->op.t[0];
    find_reduction(map_new(w->c->a), t->body, false, factors, w);
    t->body = e_subst(w->c, t->body, 0, NULL, NULL, wide_load, w);
    for (int i = 0; i < w->copy.n; i++) seq_put_at(w->c, q, (*at)++, w->copy.p[i]);
}

void pass_widen(Program *p) {
    Cx *c = p->cx;
    Widen w = {.p = p, .c = c, .wide = map_new(c->a)};
    if (p->schedule->lanes <= 1) return;
    w.fixed = NEWN(c->a, bool, c->next_tensor + 1);
    for (int i = 0; i < p->nout; i++) {
        fix(&w, p->out[i].t);
        if (p->out[i].has) e_each_load(c, p->out[i].has, fix_load, &w);
    }
    seq_slots(p->top, fix_slot, &w);
    seq_each(p->top, begin, &w);
    seq_each(p->top, rewrite, &w);
    seq_rewrite(p->top, products, &w);
}
