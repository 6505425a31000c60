/* layout.c: in which order the dimensions of intermediate tensors lie in memory.
 *
 * A sum of products whose constant operand alone moves along an axis (the output channels of a
 * convolution) is computed for many values of that axis at once, as vectors. Its results are stored
 * with that axis last, so that vectors are stored as they are; what is computed from them element
 * by element, or copied, keeps that order, and so do branches whose arms agree. Only names of
 * dimensions change: each load states its indices in the new order, and a view of a tensor whose
 * dimension goes last has it last, too. Tensors that the caller, a loop, a function or a
 * hand-written body sees keep the order of the model. */
#include "scheduler/cost/decide.h"
#include "scheduler/kernel/sparse.h"
#include "scheduler/passes.h"
#include "utask/product.h"
#include "utask/walk.h"

#define FEWEST 8         /* values along an axis that are worth a vector */
#define RESULTS 32       /* of each element, that are worth its transposition */
#define GROUP_RESULTS 64 /* … of groups of channels: they fill a tile of vectors */

typedef struct Layout {
    Cx *c;
    bool *fixed;      /* by tensor id: keeps its order */
    int *last;        /* by tensor id: 1 + the dimension that goes last; 0: no wish */
    bool *few, *many; /* by tensor id: read by sums of few results; by anything else */
    VEC(Tensor *) te;
    VEC(Tensor *) view; /* of such, of three and more dimensions: they move with their base */
    VEC(Stmt *) branch;
    const Stmt *at; /* at hand */
    int lanes;      /* of a vector; 0: there are none */
    Map *sparse;    /* id of a constant -> 1: it is not sparse, 2: it is */
} Layout;

/* Products with it are computed element by element of it, with positions over lanes (sparse.h):
 * they want no order. */
static bool is_sparse(const Layout *y, const Tensor *t) {
    const uint64_t id = (uint64_t)t->id + 1;
    if (!y->lanes) return false;
    uintptr_t known = (uintptr_t)map_geti(y->sparse, id);
    if (!known) {
        known = sparse_density(t->data) < SPARSE_WORTH ? 2 : 1;
        map_seti(y->sparse, id, (void *)known);
    }
    return known == 2;
}

static void fix(Layout *y, const Tensor *t) {
    if (!t) return;
    y->fixed[t->id] = true;
    if (t->kind == TK_VIEW) fix(y, t->base);
}
static void fix_load(void *user, Expr *e) { fix(user, e->t); }
static void body_load(void *user, Expr *e) {
    Layout *y = user;
    Tensor *t = e->t;
    if (e->kind || (t->kind == TK_VIEW && (t->base->kind != TK_TE || t->rank < 3))) fix(y, t);
    if (t->kind != TK_VIEW || y->fixed[t->id]) return;
    for (int i = 0; i < y->view.n; i++)
        if (y->view.p[i] == t) return;
    vec_push(y->c->a, &y->view, t);
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
    for (int k = 0; s->kind == S_BRANCH && k < s->br.joins.n; k++)
        for (int i = 0; i < 2; i++) {
            const Tensor *t = s->br.joins.p[k].arm[i];
            if (t && t->kind == TK_VIEW) fix(y, t);
        }
    y->at = s;
    stmt_slots(s, scan_slot, y);
}

static bool movable(const Layout *y, const Tensor *t) {
    return (t->kind == TK_TE || t->kind == TK_JOIN) && !y->fixed[t->id];
}

/* The dimension of view v that is dimension d of its base; -1: there is none. */
static int view_dim(const Layout *y, const Tensor *v, int d) {
    Expr *outer = e_int(y->c, 1), *before = outer;
    for (int i = 0; i < d; i++) outer = e_mul(y->c, outer, v->base->dim[i]);
    for (int i = 0; i < v->rank; i++) {
        if (before == outer && v->dim[i] == v->base->dim[d]) return i;
        before = e_mul(y->c, before, v->dim[i]);
    }
    return -1;
}

/* Lets dimension `last` - 1 of t go last, where its views can follow. */
static bool set_last(Layout *y, const Tensor *t, int last) {
    for (int i = 0; i < y->view.n; i++) {
        const Tensor *v = y->view.p[i];
        if (v->base != t || (!y->fixed[v->id] && view_dim(y, v, last - 1) >= 0)) continue;
        y->fixed[t->id] = true;
        return false;
    }
    for (int i = 0; i < y->view.n; i++)
        if (y->view.p[i]->base == t)
            y->last[y->view.p[i]->id] = 1 + view_dim(y, y->view.p[i], last - 1);
    y->last[t->id] = last;
    return true;
}

static bool has_view(const Layout *y, const Tensor *t) {
    for (int i = 0; i < y->view.n; i++)
        if (y->view.p[i]->base == t) return true;
    return false;
}

/* ---- what reads what ------------------------------------------------------------------------- */
/* Whether t is read by nothing but sums of few results for an element. */
static bool few_only(const Layout *y, const Tensor *t) { return y->few[t->id] && !y->many[t->id]; }

typedef struct ReadNotes {
    Layout *y;
    const Tensor *t;
    bool copies; /* to such sums, as it is read */
} ReadNotes;

/* Notes how e, part of t, reads tensors. A sum of products with a constant that moves along no long
 * axis of t has few results for an element: if it goes over windows, an axis of positions goes over
 * lanes. */
static void note_reads(const ReadNotes *r, Map *seen, Expr *e) {
    Layout *y = r->y;
    SumProduct p;
    if (!(e->flags & EF_LOAD) || !map_add(seen, (uint64_t)e->id + 1)) return;
    if (e->op == E_LOAD) (r->copies ? y->few : y->many)[e->t->id] = true;
    if (product_of(e, &p) && product_plain(&p)) {
        const bool constant = p.load[0]->t->kind == TK_CONST;
        bool few = e->naxis > 1 && constant != (p.load[1]->t->kind == TK_CONST);
        for (int d = 0; d < r->t->rank; d++)
            few = few && (axis_size(r->t->axis[d], FEWEST) < FEWEST ||
                          !e_uses_axis(p.factor[!constant], r->t->axis[d]));
        if (few) {
            y->few[p.load[constant]->t->id] = true;
            return;
        }
    }
    for (int i = 0; i < e->n; i++) note_reads(r, seen, e->a[i]);
}

static void all_reads(Layout *y) {
    for (int i = y->te.n - 1; i >= 0; i--) {
        const Tensor *t = y->te.p[i];
        const ReadNotes r = {y, t, few_only(y, t) && !(t->body->flags & EF_REDUCE)};
        note_reads(&r, map_new(y->c->a), t->body);
    }
}

/* ---- wishes ---------------------------------------------------------------------------------- */
/* 1 + the dimension of t that only the constant operand of a sum of products below e moves along.
 */
static int constant_axis(const Layout *y, const Tensor *t, Expr *e) {
    if (!(e->flags & EF_REDUCE)) return 0;
    if (e->op == E_REDUCE) {
        SumProduct p;
        if (!product_of_bytes(e, &p) && (!product_of(e, &p) || !product_plain(&p))) return 0;
        bool constant = p.load[0]->t->kind == TK_CONST;
        if (constant == (p.load[1]->t->kind == TK_CONST)) return 0;
        if (is_sparse(y, p.load[!constant]->t)) return 0;
        int best = 0;
        for (int d = t->rank - 1; d >= 0; d--)
            if (axis_size(t->axis[d], 0) >= (best ? axis_size(t->axis[best - 1], 0) + 1 : FEWEST) &&
                product_role(&p, t->axis[d]) == (constant ? ROLE_M : ROLE_N))
                best = d + 1;
        for (int d = t->rank - 1; d >= 0 && !best && p.reduce->dtype == DT_I32; d--)
            if (axis_size(t->axis[d], 0) >= FEWEST && product_role(&p, t->axis[d]) == ROLE_BATCH)
                best = d + 1; /* channels of their own */
        return best;
    }
    for (int i = 0; i < e->n; i++) {
        int d = constant_axis(y, t, e->a[i]);
        if (d) return d;
    }
    return 0;
}

/* Whether index goes over channels by r, next to each other: alone, or of the groups that p's two
 * factors both move along. */
static bool is_channel(const Layout *y, const Tensor *t, const SumProduct *p, Expr *index,
                       Axis *r) {
    if (!e_by_one(y->c, index, r)) return false;
    for (int i = 0; i < p->reduce->naxis; i++)
        if (p->reduce->raxis[i] != r && e_uses_axis(index, p->reduce->raxis[i])) return false;
    for (int d = 0; d < t->rank; d++)
        if (e_uses_axis(index, t->axis[d]) && product_role(p, t->axis[d]) != ROLE_BATCH)
            return false;
    return true;
}

/* Groups of channels, each with weights of its own. */
static int64_t groups_of(const Tensor *t, const SumProduct *p) {
    int64_t n = 1;
    for (int d = 0; d < t->rank; d++)
        if (product_role(p, t->axis[d]) == ROLE_BATCH) n *= axis_size(t->axis[d], 1);
    return n;
}

/* Whether n neighbours leave more than a tenth of the lanes of their vectors empty. */
static bool wastes(const Layout *y, int64_t n) { return n * 10 < round_up(n, y->lanes) * 9; }

/* Whether x is read over windows that are computed best where channels lie together: of 3 x 3
 * neighbours, by Winograd's products (winograd.c); and where positions, next to each other in a row
 * of x, fill vectors worse than the results of one position do. */
static bool is_window(const Layout *y, const Tensor *t, const SumProduct *p, const Expr *x) {
    int windows = 0, near = 0;
    for (int i = 0; i < p->reduce->naxis; i++) {
        Axis *r = p->reduce->raxis[i];
        for (int d = 0; d < x->n; d++) {
            const bool window = e_uses_axis(x->a[d], r) && !is_channel(y, t, p, x->a[d], r);
            windows += window;
            near += window && e_by_one(y->c, x->a[d], r) && e_is_ival(r->extent, 3);
        }
    }
    if (windows != p->reduce->naxis - 1 || windows < 2) return false;
    if (near == 2 && windows == 2 && groups_of(t, p) == 1) return true;
    bool row = false, results = false;
    for (int d = 0; d < t->rank; d++) {
        const int64_t n = axis_size(t->axis[d], 0);
        if (n > 1 && !e_uses_axis(x, t->axis[d])) results |= !wastes(y, n);
        if (n > 1 && e_by_one(y->c, x->a[x->n - 1], t->axis[d])) row |= wastes(y, n);
    }
    return row && results;
}

/* Sums over windows below e that want the channels that they read of one position together, in
 * tensors that nothing else has a wish for, such as the padding around an input. They have to be
 * worth the transposition: have many results for each element. True: something changed. */
static bool operand_wishes(Layout *y, const Tensor *t, Expr *e) {
    SumProduct p;
    bool found = false;
    if (!(e->flags & EF_REDUCE)) return false;
    for (int i = 0; i < e->n; i++) found |= operand_wishes(y, t, e->a[i]);
    if (!product_of(e, &p) || !product_plain(&p)) return found;
    const bool constant = p.load[0]->t->kind == TK_CONST;
    const Expr *x = p.load[constant], *w = p.load[!constant];
    if (w->t->kind != TK_CONST || is_sparse(y, w->t) || !movable(y, x->t) || y->last[x->t->id] ||
        x->kind || !is_window(y, t, &p, x))
        return found;
    const int64_t groups = groups_of(t, &p), least = groups > 1 ? GROUP_RESULTS : RESULTS;
    if (w->t->data->count < least * groups * axes_size(e->naxis, e->raxis, 1)) return found;
    for (int d = 0; d < x->n; d++)
        for (int i = 0; i < e->naxis; i++)
            if (axis_size(e->raxis[i], 0) >= FEWEST && is_channel(y, t, &p, x->a[d], e->raxis[i]))
                return set_last(y, x->t, d + 1) || found;
    return found;
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
/* The computed factor of a sum of products of 8-bit integers is read best where the dimension that
 * both factors move along, that of channels, is last. */
static bool factor_wish(void *user, Expr *e) {
    Wish *w = user;
    Layout *y = w->y;
    SumProduct p;
    int64_t most = 1, n;
    int best = 0;
    if (!product_of_bytes(e, &p)) return false;
    const int weights = p.load[1]->t->kind == TK_CONST;
    const Expr *x = p.load[!weights];
    if (p.load[weights]->t->kind != TK_CONST || x->kind || !movable(y, x->t) || y->last[x->t->id])
        return false;
    for (int d = 0; d < x->n; d++) {
        if (x->a[d]->op != E_AXIS || !e_uses_axis(p.load[weights], x->a[d]->axis) ||
            !e_is_int(x->t->dim[d], &n) || n <= most)
            continue;
        best = d + 1;
        most = n;
    }
    if (best) w->last |= set_last(y, x->t, best);
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
        if (e->a[d]->op == E_AXIS && e->a[d]->axis == w->t->axis[last])
            w->last |= set_last(y, e->t, d + 1);
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
        ok = ok && movable(y, t[i]) && !has_view(y, t[i]) && t[i]->rank == j->out->rank &&
             (!w || !want || w == want);
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
    bool again = y->lanes;
    for (bool changed = true; changed || again;) {
        if (!changed) {
            again = false;
            for (int i = 0; i < y->te.n; i++)
                changed |= operand_wishes(y, y->te.p[i], y->te.p[i]->body);
            if (!changed) break;
        }
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
            if (!movable(y, t) || y->last[t->id] || few_only(y, t)) continue;
            Wish w = {y, t, constant_axis(y, t, t->body)};
            if (!w.last) e_each_load(y->c, t->body, wish_load, &w);
            if (w.last) changed |= set_last(y, t, w.last);
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
    Layout y = {.c = p->cx, .lanes = p->schedule->lanes > 1 ? p->schedule->lanes : 0};
    y.fixed = NEWN(p->cx->a, bool, p->cx->next_tensor + 1);
    y.last = NEWN(p->cx->a, int, p->cx->next_tensor + 1);
    y.sparse = map_new(p->cx->a);
    y.many = NEWN(p->cx->a, bool, p->cx->next_tensor + 1);
    y.few = NEWN(p->cx->a, bool, p->cx->next_tensor + 1);
    for (int i = 0; i < p->nout; i++) {
        fix(&y, p->out[i].t);
        if (p->out[i].has) e_each_load(y.c, p->out[i].has, fix_load, &y);
    }
    seq_rewrite(p->top, scan, &y);
    if (y.lanes) all_reads(&y);
    wishes(&y);
    for (int i = 0; i < y.te.n; i++) {
        Tensor *t = y.te.p[i];
        int d = moved_dim(&y, t);
        if (d < 0) continue;
        MOVE_LAST(t->dim, d, t->rank);
        MOVE_LAST(t->axis, d, t->rank);
    }
    for (int i = 0; i < y.view.n; i++) {
        Tensor *t = y.view.p[i];
        int d = moved_dim(&y, t);
        if (d >= 0) MOVE_LAST(t->dim, d, t->rank);
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
