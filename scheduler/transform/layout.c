/* layout.c: in which order the dimensions of intermediate tensors lie in memory.
 *
 * A sum of products whose constant operand alone moves along an axis (the output channels of a
 * convolution) is computed for many values of that axis at once, as vectors. Its results are stored
 * with that axis last, so that vectors are stored as they are; what is computed from them element
 * by element, or copied, keeps that order, and so do branches whose arms agree. Only names of
 * dimensions change: each load states its indices in the new order. Tensors that the caller, a
 * loop, a function or a hand-written body sees keep the order of the model. */
#include "scheduler/kernel/sparse.h"
#include "scheduler/passes.h"
#include "utask/product.h"
#include "utask/walk.h"

#define FEWEST 8 /* values along an axis that are worth a vector */

typedef struct Layout {
    Cx *c;
    bool *fixed; /* by tensor id: keeps its order */
    int *last;   /* by tensor id: 1 + the dimension that goes last; 0: no wish */
    VEC(Tensor *) te;
    VEC(Stmt *) branch;
    const Stmt *at; /* at hand */
} Layout;

static void fix(Layout *y, const Tensor *t) {
    if (!t) return;
    y->fixed[t->id] = true;
    if (t->kind == TK_VIEW) fix(y, t->base);
}
static void fix_load(void *user, Expr *e) { fix(user, e->t); }
static void body_load(void *user, Expr *e) {
    if (e->kind || e->t->kind == TK_VIEW) fix(user, e->t);
}

/* ---- who sees what --------------------------------------------------------------------------- */
static void scan_slot(void *user, const Slot *k) {
    Layout *y = user;
    if (k->kind == SLOT_READ && y->at->kind != S_BRANCH) fix(y, *k->t);
    if (slot_is_expr(k)) e_each_load(y->c, *k->e, k->kind == SLOT_EXPR ? fix_load : body_load, y);
}

static void scan(void *user, Seq *q, int *at) {
    Layout *y = user;
    Stmt *s = q->s.p[*at];
    for (int k = 0; s->kind == S_OP && k < s->op.n; k++) {
        Tensor *t = s->op.t[k];
        vec_push(y->c->a, &y->te, t);
        if (t->owned || t->ret || t->elem || t->rank < 3) fix(y, t);
    }
    if (s->kind == S_BRANCH) vec_push(y->c->a, &y->branch, s);
    y->at = s;
    stmt_slots(s, scan_slot, y);
}

static bool movable(const Layout *y, const Tensor *t) {
    return (t->kind == TK_TE || t->kind == TK_JOIN) && !y->fixed[t->id];
}

/* ---- wishes ---------------------------------------------------------------------------------- */
/* 1 + the dimension of t that only the constant operand of a sum of products below e moves along.
 */
static int constant_axis(const Tensor *t, Expr *e) {
    if (!(e->flags & EF_REDUCE)) return 0;
    if (e->op == E_REDUCE) {
        SumProduct p;
        if (!product_of_bytes(e, &p) && (!product_of(e, &p) || !product_plain(&p))) return 0;
        bool constant = p.load[0]->t->kind == TK_CONST;
        if (constant == (p.load[1]->t->kind == TK_CONST)) return 0;
        if (sparse_density(p.load[!constant]->t->data) < SPARSE_WORTH) return 0;
        for (int d = t->rank - 1; d >= 0; d--)
            if (axis_size(t->axis[d], 0) >= FEWEST &&
                product_role(&p, t->axis[d]) == (constant ? ROLE_M : ROLE_N))
                return d + 1;
        for (int d = t->rank - 1; d >= 0 && p.reduce->dtype == DT_I32; d--)
            if (axis_size(t->axis[d], 0) >= FEWEST && product_role(&p, t->axis[d]) == ROLE_BATCH)
                return d + 1; /* channels of their own */
        return 0;
    }
    for (int i = 0; i < e->n; i++) {
        int d = constant_axis(t, e->a[i]);
        if (d) return d;
    }
    return 0;
}

typedef struct Wish {
    Layout *y;
    const Tensor *t;
    int last;
} Wish;

static void wish_load(void *user, Expr *e) {
    Wish *w = user;
    int d = w->y->last[e->t->id] - 1;
    if (d < 0 || w->last || e->kind || e->a[d]->op != E_AXIS) return;
    for (int k = 0; k < w->t->rank; k++)
        if (w->t->axis[k] == e->a[d]->axis) w->last = k + 1;
}

/* ---- 8-bit factors --------------------------------------------------------------------------- */
/* Whether w moves along all axes of index e. */
static bool moves_along(Expr *w, const Expr *e) {
    if (e->op == E_AXIS) return e_uses_axis(w, e->axis);
    for (int i = 0; i < e->n; i++)
        if (!moves_along(w, e->a[i])) return false;
    return true;
}

/* The computed factor of a sum of products of 8-bit integers is read best where the dimension that
 * both factors move along, that of channels, is last. */
static bool factor_wish(void *user, Expr *e) {
    Wish *w = user;
    Layout *y = w->y;
    SumProduct p;
    int64_t most = 1, n;
    if (!product_of_bytes(e, &p)) return false;
    const int weights = p.load[1]->t->kind == TK_CONST;
    const Expr *x = p.load[!weights];
    if (p.load[weights]->t->kind != TK_CONST || x->kind || !movable(y, x->t) || y->last[x->t->id])
        return false;
    for (int d = 0; d < x->n; d++) {
        if (!(x->a[d]->flags & EF_AXIS) || !moves_along(p.load[weights], x->a[d]) ||
            !e_is_int(x->t->dim[d], &n) || n <= most)
            continue;
        y->last[x->t->id] = d + 1;
        most = n;
        w->last = 1;
    }
    return false;
}

/* What such a factor is copied from, padded for one, wants the same. */
static void source_wish(void *user, Expr *e) {
    Wish *w = user;
    Layout *y = w->y;
    const int last = y->last[w->t->id] - 1;
    if (last < 0 || e->kind || dtype_size(e->dtype) != 1 || !movable(y, e->t) || y->last[e->t->id])
        return;
    for (int d = 0; d < e->n; d++)
        if (e->a[d]->op == E_AXIS && e->a[d]->axis == w->t->axis[last]) {
            y->last[e->t->id] = d + 1;
            w->last = 1;
        }
}

/* The three tensors of a branch's result want the same, or keep their order. True: something
 * changed. */
static bool agree(Layout *y, const Join *j) {
    const Tensor *t[3] = {j->out, j->arm[0], j->arm[1]};
    int want = 0;
    bool ok = true, changed = false;
    for (int i = 0; i < 3; i++) {
        if (!t[i]) continue;
        int w = y->last[t[i]->id];
        ok = ok && movable(y, t[i]) && t[i]->rank == j->out->rank && (!w || !want || w == want);
        if (w) want = w;
    }
    if (!want && ok) return false;
    for (int i = 0; i < 3; i++) {
        if (!t[i]) continue;
        changed |= y->last[t[i]->id] != (ok ? want : 0) || (!ok && !y->fixed[t[i]->id]);
        y->last[t[i]->id] = ok ? want : 0;
        if (!ok) y->fixed[t[i]->id] = true;
    }
    return changed;
}

static void wishes(Layout *y) {
    Map *seen = map_new(y->c->a);
    for (bool changed = true; changed;) {
        changed = false;
        for (int i = y->te.n - 1; i >= 0; i--) {
            Tensor *t = y->te.p[i];
            Wish w = {y, t, 0};
            find_reduction(seen, t->body, false, factor_wish, &w);
            if (dtype_size(t->dtype) == 1) e_each_load(y->c, t->body, source_wish, &w);
            changed |= w.last != 0;
        }
        for (int i = 0; i < y->te.n; i++) {
            Tensor *t = y->te.p[i];
            if (!movable(y, t) || y->last[t->id]) continue;
            Wish w = {y, t, constant_axis(t, t->body)};
            if (!w.last) e_each_load(y->c, t->body, wish_load, &w);
            if (!w.last) continue;
            y->last[t->id] = w.last;
            changed = true;
        }
        for (int i = 0; i < y->branch.n; i++)
            for (int k = 0; k < y->branch.p[i]->br.joins.n; k++)
                changed |= agree(y, &y->branch.p[i]->br.joins.p[k]);
    }
}

/* ---- the new order --------------------------------------------------------------------------- */
#define MOVE_LAST(array, d, n)                                                                     \
    do {                                                                                           \
        __typeof__(*(array)) moved = (array)[d];                                                   \
        memmove((array) + (d), (array) + (d) + 1, sizeof *(array) * (size_t)((n) - (d)-1));        \
        (array)[(n)-1] = moved;                                                                    \
    } while (0)

/* The dimension of t that goes last; -1: its order stays. */
static int moved_dim(const Layout *y, const Tensor *t) {
    int d = y->last[t->id] - 1;
    return d < t->rank - 1 ? d : -1;
}

static Expr *reorder_load(void *user, Expr *e) {
    Layout *y = user;
    int d = moved_dim(y, e->t);
    if (d < 0) return NULL;
    Expr *idx[MAX_RANK];
    memcpy(idx, e->a, sizeof *idx * (size_t)e->n);
    MOVE_LAST(idx, d, e->n);
    return e_load(y->c, e->t, idx);
}

void pass_layout(Program *p) {
    Layout y = {.c = p->cx};
    y.fixed = NEWN(p->cx->a, bool, p->cx->next_tensor + 1);
    y.last = NEWN(p->cx->a, int, p->cx->next_tensor + 1);
    for (int i = 0; i < p->nout; i++) {
        fix(&y, p->out[i].t);
        if (p->out[i].has) e_each_load(y.c, p->out[i].has, fix_load, &y);
    }
    seq_rewrite(p->top, scan, &y);
    wishes(&y);
    for (int i = 0; i < y.te.n; i++) {
        Tensor *t = y.te.p[i];
        int d = moved_dim(&y, t);
        if (d < 0) continue;
        MOVE_LAST(t->dim, d, t->rank);
        MOVE_LAST(t->axis, d, t->rank);
    }
    for (int i = 0; i < y.branch.n; i++)
        for (int k = 0; k < y.branch.p[i]->br.joins.n; k++) {
            Tensor *t = y.branch.p[i]->br.joins.p[k].out;
            int d = moved_dim(&y, t);
            if (d >= 0) MOVE_LAST(t->dim, d, t->rank);
        }
    for (int i = 0; i < y.te.n; i++)
        y.te.p[i]->body = e_subst(p->cx, y.te.p[i]->body, 0, NULL, NULL, reorder_load, &y);
}
