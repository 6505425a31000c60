/* interchange.c: a loop of independent iterations becomes an axis of what is in it.
 *
 * Iterations are independent where a counted loop carries nothing: it only stacks what each
 * iteration computes. Then every tensor of its body gets the iteration as its first axis, and a
 * loop inside stands around all iterations at once: for each item, for each step becomes for each
 * step, for all items. Products with vectors become products with matrices, the units share the
 * items, and there is one group where there was one for each iteration. What does not depend on the
 * iteration is computed once. */
#include "scheduler/cost/cost.h"
#include "scheduler/cost/decide.h"
#include "scheduler/passes.h"
#include "scheduler/transform/wavefront.h"
#include "utask/walk.h"

#define BATCH_BYTES ((int64_t)1 << 28) /* most memory that one tensor may take then */

typedef struct Image { /* what stands for a tensor of the body */
    Tensor *t;
    int at; /* which of its dims is the iteration; -1: it is the same in all of them */
} Image;

typedef struct Interchange {
    Program *p;
    Cx *c;
    Arena *a;
    const Stmt *loop;
    Expr *trips;    /* not negative */
    bool some;      /* there is an iteration for sure */
    Map *image;     /* tensor id -> Image */
    StmtVec let;    /* LETs of what depends on the iteration */
    bool ok;        /* so far */
    Expr *item;     /* for load_image: the iteration */
    VEC(Sym *) sym; /* whose definitions move, and where to */
    VEC(Seq *) scope;
} Interchange;

static uint64_t key(int id) { return (uint64_t)id + 1; }

static Image *image_of(const Interchange *b, const Tensor *t) {
    return map_geti(b->image, key(t->id));
}

/* ---- what depends on the iteration ----------------------------------------------------------- */
static bool varies(Interchange *b, Map *seen, const Expr *e) {
    if (!(e->flags & (EF_SYM | EF_LOAD | EF_REDUCE)) || !map_add(seen, key(e->id))) return false;
    for (int i = 0; e->op == E_SYM && i < b->let.n; i++)
        if (b->let.p[i]->let.sym == e->sym) return true;
    if (e->op == E_SYM) return e->sym == b->loop->loop.iter;
    if (e->op == E_LOAD) {
        const Image *m = image_of(b, e->t);
        if (m && m->at >= 0) return true;
    }
    bool any = false;
    for (int i = 0; e->op == E_REDUCE && i < e->naxis; i++) /* extents are not substituted */
        b->ok &= !varies(b, seen, e->raxis[i]->extent) &&
                 expr_visible(e->raxis[i]->extent, b->loop->loop.body->parent);
    for (int i = 0; i < e->n; i++) any |= varies(b, seen, e->a[i]);
    return any;
}

static bool depends(Interchange *b, const Expr *e) { return varies(b, map_new(b->a), e); }

static bool fixed_dims(Interchange *b, const Tensor *t) {
    int64_t bytes = (int64_t)dtype_size(t->dtype), v;
    if (t->rank < 0 || t->blob || t->rank + 1 > MAX_RANK) return false;
    if (e_is_int(b->trips, &v) && (!mul_size(bytes, v, &bytes) || bytes > BATCH_BYTES))
        return false;
    for (int i = 0; i < t->rank; i++) {
        if (depends(b, t->dim[i]) || !expr_visible(t->dim[i], b->loop->loop.body->parent))
            return false;
        if (e_is_int(t->dim[i], &v) && (!mul_size(bytes, v, &bytes) || bytes > BATCH_BYTES))
            return false;
    }
    return true;
}

static void moves(Interchange *b, Sym *s, Seq *to) {
    vec_push(b->a, &b->sym, s);
    vec_push(b->a, &b->scope, to);
}

/* ---- expressions ----------------------------------------------------------------------------- */
static Expr *load_image(void *user, Expr *e) {
    Interchange *b = user;
    Cx *c = b->c;
    const Image *m = image_of(b, e->t);
    if (!m) return NULL;
    if (e->kind) {
        if (m->at < 0) return e_loadf(c, m->t, e->a[0]);
        if (m->at > 0) b->ok = false;
        return e_loadf(c, m->t, e_add(c, e_mul(c, b->item, tensor_count(c, e->t)), e->a[0]));
    }
    Expr *idx[MAX_RANK];
    int n = 0;
    for (int i = 0; i < m->t->rank; i++) idx[i] = i == m->at ? b->item : e->a[n++];
    return e_load(c, m->t, idx);
}

/* e for iteration `item`. */
static Expr *imaged(Interchange *b, Expr *e, Expr *item) {
    Cx *c = b->c;
    for (int i = b->let.n - 1; i >= 0; i--) /* each uses earlier ones alone */
        if (e->flags & EF_SYM)
            e = e_replace(c, e, e_sym(c, b->let.p[i]->let.sym), b->let.p[i]->let.e);
    Expr *iter = e_sym(c, b->loop->loop.iter);
    if (iter->op == E_SYM) e = e_replace(c, e, iter, item);
    b->item = item;
    return e_subst(c, e, 0, NULL, NULL, load_image, b);
}

/* ---- tensors --------------------------------------------------------------------------------- */
/* Like t, in q; with `at` >= 0 the iteration is that dim. */
static Tensor *image_new(Interchange *b, const Tensor *t, int at, Seq *q) {
    Expr *dim[MAX_RANK];
    int n = 0, rank = t->rank + (at >= 0);
    for (int i = 0; i < rank; i++) dim[i] = i == at ? b->trips : t->dim[n++];
    Tensor *x = tensor_like(b->c, t->kind, t, rank, dim, q);
    Image *m = NEW(b->a, Image);
    *m = (Image){x, at};
    map_seti(b->image, key(t->id), m);
    return x;
}

static void op_new(Interchange *b, Tensor *t, Seq *q, const char *path) {
    vec_push(b->a, &q->s, stmt_op(b->c, t, path));
}

static void image_op(Interchange *b, const Stmt *s, Tensor *t, Seq *q) {
    if (!fixed_dims(b, t)) {
        b->ok = false;
        return;
    }
    /* A guard must not be asked where there is no iteration. */
    bool batch = depends(b, t->body) || ((t->body->flags & EF_GUARD) && !b->some) || t->owned;
    Tensor *x = image_new(b, t, batch ? 0 : -1, q);
    Expr *item = batch ? e_axis(b->c, x->axis[0]) : NULL;
    x->body = imaged(b, expr_over(b->c, t->body, t, x, batch), item);
    x->owned = t->owned;
    op_new(b, x, q, s->path);
}

/* A view of the same elements in each iteration. */
static bool known_views(Interchange *b, Tensor *t) {
    const Image *m;
    if (t->kind != TK_VIEW || image_of(b, t)) return true;
    if (!known_views(b, t->base)) return false;
    if (!(m = image_of(b, t->base))) return true;
    if (m->at > 0 || !fixed_dims(b, t)) return false;
    Tensor *base = m->t;
    image_new(b, t, m->at, base->seq)->base = base;
    return true;
}

static void view_load(void *user, Expr *e) {
    Interchange *b = user;
    b->ok &= known_views(b, e->t);
}

static void image_seq(Interchange *b, const Seq *q, Seq *to);

/* The value that a loop inside starts from: one for each iteration. */
static Tensor *init_image(Interchange *b, Tensor *t, Seq *q) {
    Expr *idx[MAX_RANK], *dim[MAX_RANK];
    if (!known_views(b, t) || !fixed_dims(b, t)) {
        b->ok = false;
        return t;
    }
    Image *m = image_of(b, t);
    if (m && m->at == 0) return m->t;
    dim[0] = b->trips;
    for (int i = 0; i < t->rank; i++) dim[i + 1] = t->dim[i];
    Tensor *x = tensor_like(b->c, TK_TE, t, t->rank + 1, dim, q);
    for (int i = 0; i < x->rank; i++) idx[i] = e_axis(b->c, x->axis[i]);
    b->item = idx[0];
    x->body = e_subst(b->c, e_load(b->c, t, idx + 1), 0, NULL, NULL, load_image, b);
    op_new(b, x, q, b->loop->path);
    return x;
}

static void image_loop(Interchange *b, const Stmt *s, Seq *to) {
    Cx *c = b->c;
    if (!loop_counted(s) || depends(b, s->loop.trips)) {
        b->ok = false;
        return;
    }
    Stmt *n = stmt_new(c, S_LOOP, s->path);
    n->loop.trips = b->some ? s->loop.trips
                            : e_sel(c, e_lt(c, e_int(c, 0), b->trips), s->loop.trips, e_int(c, 0));
    n->loop.iter = s->loop.iter;
    moves(b, n->loop.iter, to);
    n->loop.cap_site = s->loop.cap_site;
    n->loop.body = seq_new(c, to, n, true);
    for (int i = 0; i < s->loop.syms.n && b->ok; i++) {
        b->ok &= !depends(b, s->loop.syms.p[i].init);
        vec_push(b->a, &n->loop.syms, s->loop.syms.p[i]);
        moves(b, s->loop.syms.p[i].sym, to);
    }
    for (int i = 0; i < s->loop.carry.n && b->ok; i++) {
        const LoopCarry *k = &s->loop.carry.p[i];
        LoopCarry x = {.init = init_image(b, k->init, to)};
        if (!b->ok || !fixed_dims(b, k->phi))
            b->ok = false;
        else
            x.phi = image_new(b, k->phi, 0, to);
        vec_push(b->a, &n->loop.carry, x);
    }
    if (b->ok) image_seq(b, s->loop.body, n->loop.body);
    for (int i = 0; i < s->loop.syms.n && b->ok; i++) b->ok &= !depends(b, s->loop.syms.p[i].next);
    for (int i = 0; i < s->loop.carry.n && b->ok; i++)
        n->loop.carry.p[i].next = image_of(b, s->loop.carry.p[i].next)->t;
    for (int i = 0; i < s->loop.scan.n && b->ok; i++) {
        const LoopScan *k = &s->loop.scan.p[i];
        if (k->at || k->more || !fixed_dims(b, k->out)) {
            b->ok = false;
            break;
        }
        LoopScan x = {.elem = image_of(b, k->elem)->t};
        x.out = image_new(b, k->out, 1, to);
        vec_push(b->a, &n->loop.scan, x);
    }
    vec_push(b->a, &to->s, n);
}

/* ---- statements ------------------------------------------------------------------------------ */
static void image_check(Interchange *b, const Stmt *s, Seq *to) {
    Cx *c = b->c;
    Expr *cond = s->check.cond;
    if (depends(b, cond)) {
        /* Only what is true in every iteration. */
        cond = imaged(b, cond, e_axis(c, axis_new(c, b->trips)));
        b->ok &= e_is_ival(cond, 1);
        return;
    }
    Stmt *n = stmt_new(c, S_CHECK, s->path);
    n->check = s->check;
    n->check.cond = imaged(b, cond, NULL);
    b->ok &=
        b->some || to != b->loop->loop.body->parent; /* a loop inside makes no iteration then */
    vec_push(b->a, &to->s, n);
}

static void image_let(Interchange *b, Stmt *s, Seq *to) {
    if (depends(b, s->let.e)) {
        b->ok &= !(s->let.e->flags & (EF_REDUCE | EF_GUARD));
        vec_push(b->a, &b->let, s);
        return;
    }
    b->ok &=
        !(s->let.e->flags & (EF_GUARD | EF_LOAD)) || b->some || to != b->loop->loop.body->parent;
    moves(b, s->let.sym, to);
    seq_let(b->c, to, s->let.sym, imaged(b, s->let.e, NULL), s->path);
}

static void image_seq(Interchange *b, const Seq *q, Seq *to) {
    for (int i = 0; i < q->s.n && b->ok; i++) {
        Stmt *s = q->s.p[i];
        if (!stmt_nseq(s)) stmt_loads(b->c, s, view_load, b);
        if (!b->ok) return;
        switch (s->kind) {
        case S_LET: image_let(b, s, to); break;
        case S_CHECK: image_check(b, s, to); break;
        case S_OP: image_op(b, s, s->op.t[0], to); break;
        case S_LOOP: image_loop(b, s, to); break;
        default: b->ok = false;
        }
    }
}

/* ---- loops ----------------------------------------------------------------------------------- */
/* No loop counts the iterations any more: their number is checked before them. */
static void limit_trips(Interchange *b, Seq *q) {
    Expr *few = e_le(b->c, b->trips, e_limit(b->c));
    if (e_is_ival(few, 1)) return;
    Stmt *s = stmt_new(b->c, S_CHECK, b->loop->path);
    s->check.cond = e_tell(b->c, few, 1, (Expr *[]){e_limit(b->c)});
    s->check.site = b->loop->loop.cap_site;
    vec_push(b->a, &q->s, s);
}

/* The loop at q->s.p[*at]; leaves *at at the last statement that stands for it. */
static void try_loop(void *user, Seq *q, int *at) {
    Program *p = user;
    Cx *c = p->cx;
    Stmt *s = q->s.p[*at];
    int64_t lo, hi;
    if (!wave_counted(s) || s->loop.carry.n || s->loop.syms.n || !s->loop.scan.n ||
        !s->loop.trips->pure)
        return;
    Interchange b = {.p = p, .c = c, .a = c->a, .loop = s, .image = map_new(c->a), .ok = true};
    b.trips = e_max(c, s->loop.trips, e_int(c, 0));
    b.some = e_range(b.trips, &lo, &hi) && lo >= 1;
    /* The program is changed only when all can be done and is wanted. */
    const StmtVec before = q->s;
    q->s = (StmtVec){0};
    limit_trips(&b, q);
    image_seq(&b, s->loop.body, q);
    if (!b.ok || !decide(p, X_INTERCHANGE, s, cost_stmt_ns(p, s, 1), cost_seq_ns(p, q, 1))) {
        q->s = before;
        return;
    }
    for (int i = 0; i < b.sym.n; i++) b.sym.p[i]->scope = b.scope.p[i];
    for (int i = 0; i < s->loop.scan.n; i++) {
        Tensor *t = s->loop.scan.p[i].out;
        const Image *m = image_of(&b, s->loop.scan.p[i].elem);
        for (int d = 0; d < t->rank; d++) t->axis[d] = axis_new(c, t->dim[d]);
        t->kind = TK_TE;
        t->body = load_own(c, m->t, t);
        m->t->owned = false;
        op_new(&b, t, q, s->path);
    }
    seq_let(c, q, s->loop.iter, b.trips, s->path);
    const StmtVec made = q->s;
    q->s = before;
    seq_replace(c, q, at, &made);
}

void pass_interchange(Program *p) { seq_rewrite(p->top, try_loop, p); }
