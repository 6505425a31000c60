/* wavefront.c: consecutive loops over one range become one loop.
 *
 * Counted loops of equal trip count are members of one loop when a later one reads of an earlier
 * one only, in its iteration t, what that made in its iteration t: layers of a recurrent network
 * over time. What lies between them (a projection of the whole sequence) is then computed in
 * slices, one in each iteration.
 *
 * Fused, iteration s runs iteration s of every member, one after the other. Skewed, a member that
 * reads another one runs at least one iteration later, s = t + offset: a diagonal holds work of all
 * members that does not depend on each other, so that units synchronize once for all of them. The
 * value that crosses is carried to the next diagonal. On a diagonal where a member has no
 * iteration, it computes something from clamped positions, and its carried values stay as they are.
 * Only bodies that cannot fault then are skewed. */
#include "scheduler/cost/cost.h"
#include "scheduler/cost/decide.h"
#include "scheduler/passes.h"
#include "scheduler/transform/wavefront.h"
#include <math.h>

/* ---- which loops ----------------------------------------------------------------------------- */
bool wave_after(const Wave *w, const Tensor *t) {
    t = tensor_root(t);
    if (w->chosen && t->kind == TK_PHI) return false; /* a member reads its own ones alone */
    return t->id < w->ntensor && w->after[t->id];
}

static void hit_tensor(void *user, Tensor *t) {
    Wave *w = user;
    w->hit |= wave_after(w, t);
}
static void hit_sym(void *user, Sym *s) {
    Wave *w = user;
    w->hit |= w->after_sym[s->id];
}
static void mark_tensor(void *user, Tensor *t) { ((Wave *)user)->after[t->id] = true; }
static void mark_sym(void *user, Sym *s) { ((Wave *)user)->after_sym[s->id] = true; }

static bool depends(Wave *w, const Stmt *s) {
    Visit u = visit_new(w->c, hit_tensor, hit_sym, w);
    w->hit = false;
    visit_stmt(&u, s);
    return w->hit;
}

static bool takes(Wave *w, Tensor *t, int dim);

static void take_load(void *user, Expr *e) {
    Wave *w = user;
    if (!w->ok || !wave_after(w, e->t)) return;
    bool found = false;
    for (int d = 0; d < e->t->rank && !e->kind && !found; d++)
        found = e->a[d] == w->at && takes(w, e->t, d);
    w->ok = found;
}

/* The dimension of v's base that is dimension `dim` of the view, or -1. */
static int view_dim(Cx *c, const Tensor *v, int dim) {
    const Tensor *b = v->base;
    if (v->rank < 0 || b->rank < 0) return -1;
    Expr *want = e_int(c, 1), *have = e_int(c, 1);
    for (int i = 0; i < dim; i++) want = e_mul(c, want, v->dim[i]);
    for (int i = 0; i < b->rank; i++) {
        if (have == want && b->dim[i] == v->dim[dim]) return i;
        have = e_mul(c, have, b->dim[i]);
    }
    return -1;
}

/* Whether position p along `dim` of t, which w->cur reads, is made of values of iteration p alone.
 */
static bool takes(Wave *w, Tensor *t, int dim) {
    Member *m = w->cur;
    uintptr_t known = (uintptr_t)map_geti(m->dim, (uint64_t)t->id + 1);
    if (known) return known == (uintptr_t)dim + 1;
    bool good = false;
    if (t->kind == TK_SCAN) {
        for (int j = 0; w->m + j < m; j++)
            for (int i = 0; i < w->m[j].s->loop.scan.n; i++)
                if (w->m[j].s->loop.scan.p[i].out == t) {
                    good = dim == 0 && !w->m[j].s->loop.scan.p[i].elem->blob;
                    m->reads |= (uint32_t)1 << j;
                }
    } else if (t->kind == TK_VIEW) {
        int d = view_dim(w->c, t, dim);
        good = d >= 0 && takes(w, t->base, d);
    } else if (t->kind == TK_TE && w->def[t->id] && w->def[t->id]->op.n == 1 && t->rank >= 0) {
        const Expr *at = w->at;
        w->at = e_axis(w->c, t->axis[dim]);
        e_each_load(w->c, t->body, take_load, w);
        w->at = at;
        good = w->ok;
        w->ok = true;
    }
    if (good) map_seti(m->dim, (uint64_t)t->id + 1, (void *)((uintptr_t)dim + 1));
    return good;
}

/* Whole tensors cannot be sliced. */
static void plain_use(void *user, const Slot *k) {
    Wave *w = user;
    if (k->kind == SLOT_READ && wave_after(w, *k->t)) w->ok = false;
}

static void count_sym(void *user, Sym *s) {
    Wave *w = user;
    w->hit |= s == w->counter;
}
/* Whether the counter of a loop is used outside of its body. */
static bool counter_used(Wave *w, const Stmt *loop) {
    Visit u = visit_new(w->c, NULL, count_sym, w);
    w->counter = loop->loop.iter;
    w->hit = false;
    u.skip = loop->loop.body;
    Stmt **s = w->q->s.p;
    for (int i = 0; i < w->q->s.n; i++)
        if (s[i] != loop) visit_stmt(&u, s[i]);
    for (int i = 0; i < loop->loop.scan.n; i++)
        for (int d = 0; d < loop->loop.scan.p[i].out->rank; d++)
            visit_expr(&u, loop->loop.scan.p[i].out->dim[d]);
    visit_end(&u, w->p, w->q);
    return w->hit;
}

bool wave_counted(const Stmt *s) {
    if (!loop_counted(s)) return false;
    for (int i = 0; i < s->loop.scan.n; i++)
        if (s->loop.scan.p[i].at || s->loop.scan.p[i].more) return false;
    return true;
}

/* Whether loop s may be the next member. */
static bool joins(Wave *w, Stmt *s) {
    if (w->n == MEMBERS_MAX || !wave_counted(s) || s->loop.trips != w->trips) return false;
    Visit entry = visit_new(w->c, hit_tensor, hit_sym, w);
    w->hit = false;
    for (int i = 0; i < s->loop.syms.n; i++) visit_expr(&entry, s->loop.syms.p[i].init);
    for (int i = 0; i < s->loop.carry.n; i++) {
        visit_tensor(&entry, s->loop.carry.p[i].phi);
        visit_tensor(&entry, s->loop.carry.p[i].init);
    }
    for (int i = 0; i < s->loop.scan.n; i++) visit_tensor(&entry, s->loop.scan.p[i].out);
    Visit inside = visit_new(w->c, NULL, hit_sym, w);
    visit_stmt(&inside, s);
    if (w->hit || counter_used(w, s)) return false;
    Member *m = w->cur = &w->m[w->n];
    *m = (Member){.s = s, .dim = map_new(w->a)};
    w->ok = true;
    seq_slots(s->loop.body, plain_use, w);
    w->at = e_sym(w->c, s->loop.iter);
    for (int i = 0; i < s->loop.body->s.n; i++)
        stmt_loads(w->c, s->loop.body->s.p[i], take_load, w);
    return w->ok && m->reads; /* independent loops may run side by side as they are */
}

/* ---- slices ---------------------------------------------------------------------------------- */
static bool copies(const Tensor *t, const Tensor *of) {
    return t->kind == TK_TE && load_is_own(t->body, of, t);
}

/* Element `scan` of member j as it was `by` diagonals ago. */
static Tensor *delayed(Wave *w, int j, int scan, int by) {
    const Stmt *s = w->m[j].s;
    Tensor *elem = s->loop.scan.p[scan].elem;
    if (by == 0) return elem;
    if (by == 1) /* the member may carry it already */
        for (int i = 0; i < s->loop.carry.n; i++) {
            const LoopCarry *k = &s->loop.carry.p[i];
            if (copies(elem, k->next) || copies(k->next, elem)) return k->phi;
        }
    for (int i = 0; i < w->delay.n; i++) {
        const Delay *d = &w->delay.p[i];
        if (d->of == j && d->scan == scan && d->by == by) return d->carry.phi;
    }
    Tensor *from = delayed(w, j, scan, by - 1);
    Delay d = {.of = j, .scan = scan, .by = by};
    Tensor *init = tensor_like(w->c, TK_TE, elem, elem->rank, elem->dim, w->q);
    init->body = e_num(w->c, elem->dtype, 0);
    d.init = stmt_op(w->c, init, s->path);
    Tensor *phi = tensor_like(w->c, TK_PHI, elem, elem->rank, elem->dim, w->q);
    Tensor *next = tensor_like(w->c, TK_TE, elem, elem->rank, elem->dim, w->body);
    next->body = load_own(w->c, from, next);
    next->owned = true;
    d.copy = stmt_op(w->c, next, s->path);
    d.carry = (LoopCarry){.phi = phi, .init = init, .next = next};
    vec_push(w->a, &w->delay, d);
    return phi;
}

static Tensor *slice(Wave *w, Member *m, Tensor *t);

static Expr *sliced(void *user, Expr *e) {
    Wave *w = user;
    if (!wave_after(w, e->t)) return NULL;
    int dim = (int)(uintptr_t)map_geti(w->cur->dim, (uint64_t)e->t->id + 1) - 1;
    ASSERT(dim >= 0 && !e->kind);
    Expr *idx[MAX_RANK];
    for (int i = 0, k = 0; i < e->t->rank; i++)
        if (i != dim) idx[k++] = e->a[i];
    Tensor *t = slice(w, w->cur, e->t);
    return w->uniform ? tensor_at(w->c, t, idx) : e_load(w->c, t, idx);
}

/* What member m reads of t in one iteration. */
static Tensor *slice(Wave *w, Member *m, Tensor *t) {
    Tensor *r = map_geti(m->slice, (uint64_t)t->id + 1);
    if (r) return r;
    int dim = (int)(uintptr_t)map_geti(m->dim, (uint64_t)t->id + 1) - 1;
    Expr *dims[MAX_RANK];
    for (int i = 0, k = 0; i < t->rank; i++)
        if (i != dim) dims[k++] = t->dim[i];
    if (t->kind == TK_SCAN) {
        for (int j = 0; w->m + j < m; j++)
            for (int i = 0; i < w->m[j].s->loop.scan.n; i++)
                if (w->m[j].s->loop.scan.p[i].out == t)
                    r = delayed(w, j, i, m->offset - w->m[j].offset);
    } else if (t->kind == TK_VIEW) {
        r = tensor_like(w->c, TK_VIEW, t, t->rank - 1, dims, w->body);
        r->base = slice(w, m, t->base);
    } else {
        r = tensor_like(w->c, TK_TE, t, t->rank - 1, dims, w->body);
        Expr *to[MAX_RANK];
        for (int i = 0, k = 0; i < t->rank; i++)
            to[i] = i == dim ? e_sym(w->c, m->s->loop.iter) : e_axis(w->c, r->axis[k++]);
        Expr *body = e_subst(w->c, t->body, t->rank, t->axis, to, NULL, NULL);
        r->body = e_subst(w->c, body, 0, NULL, NULL, sliced, w);
        vec_push(w->a, &m->slices, stmt_op(w->c, r, w->def[t->id]->path));
    }
    map_seti(m->slice, (uint64_t)t->id + 1, r);
    return r;
}

static void slice_load(void *user, Expr *e) {
    Wave *w = user;
    if (wave_after(w, e->t)) slice(w, w->cur, e->t);
}

/* Offsets and slices of all members. */
static void plan(Wave *w, bool skew) {
    w->span = 0;
    w->delay.n = 0;
    w->body = seq_new(w->c, w->q, NULL, true);
    for (int k = 0; k < w->n; k++) {
        Member *m = &w->m[k];
        m->offset = 0;
        for (int j = 0; j < k && skew; j++)
            if (m->reads >> j & 1 && m->offset < w->m[j].offset + 1) m->offset = w->m[j].offset + 1;
        if (m->offset > w->span) w->span = m->offset;
        m->slices.n = 0;
        m->slice = map_new(w->a);
        w->cur = m;
        for (int i = 0; i < m->s->loop.body->s.n; i++)
            stmt_loads(w->c, m->s->loop.body->s.p[i], slice_load, w);
    }
}

/* ---- the one loop ---------------------------------------------------------------------------- */

typedef struct Ordered {
    Stmt *s;
    int member;
} Ordered;
typedef VEC(Ordered) OrderedVec;

static void push(Wave *w, OrderedVec *v, Stmt *s, int member) {
    vec_push(w->a, v, ((Ordered){s, member}));
}

static void rewrite(void *user, Expr **e) {
    Wave *w = user;
    w->uniform = !((*e)->flags & EF_AXIS); /* then each unit can compute the element itself */
    *e = e_subst(w->c, *e, 0, NULL, NULL, sliced, w);
    w->uniform = false;
}

/* Member k's iteration number in iteration `at` of the one loop; in `*active` whether it has one.
 */
static Expr *iteration(Wave *w, const Member *m, Expr *at, Expr **active) {
    Cx *c = w->c;
    Expr *t = e_addi(c, at, -m->offset);
    *active = e_bool(c, true);
    if (m->offset > 0) {
        *active = e_le(c, e_int(c, m->offset), at);
        t = e_max(c, t, e_int(c, 0));
    }
    if (m->offset < w->span) {
        *active = e_and(c, *active, e_lt(c, at, e_addi(c, w->trips, m->offset)));
        t = e_min(c, t, e_addi(c, w->trips, -1));
    }
    return t;
}

/* Adds what member k carries and gives; its statements to `body`, those that read its padded
 * results to `behind`. */
static void add_member(Wave *w, Stmt *one, int k, OrderedVec *body, StmtVec *behind) {
    Member *m = &w->m[k];
    Cx *c = w->c;
    Seq *from = m->s->loop.body, *to = one->loop.body;
    Expr *active, *at = iteration(w, m, e_sym(c, one->loop.iter), &active);
    bool always = e_is_ival(active, 1);
    w->cur = m;
    if (m->s->loop.iter != one->loop.iter) {
        Stmt *let = stmt_new(c, S_LET, m->s->path);
        let->let.sym = m->s->loop.iter;
        let->let.sym->scope = to;
        let->let.e = at;
        push(w, body, let, k);
    }
    for (int i = 0; i < m->slices.n; i++) push(w, body, m->slices.p[i], k);
    for (int i = 0; i < from->s.n; i++) {
        stmt_exprs(from->s.p[i], rewrite, w);
        push(w, body, from->s.p[i], k);
    }
    for (int i = 0; i < m->s->loop.syms.n; i++) {
        LoopSym y = m->s->loop.syms.p[i];
        if (!always) y.next = e_sel(c, active, y.next, e_sym(c, y.sym));
        vec_push(w->a, &one->loop.syms, y);
    }
    for (int i = 0; i < m->s->loop.carry.n; i++) {
        LoopCarry y = m->s->loop.carry.p[i];
        if (!always) y.next->body = e_sel(c, active, y.next->body, load_own(c, y.phi, y.next));
        vec_push(w->a, &one->loop.carry, y);
    }
    for (int i = 0; i < m->s->loop.scan.n; i++) {
        LoopScan y = m->s->loop.scan.p[i];
        if (w->span) { /* the elements lie from position `offset` on, and the old result is a copy
                          of those */
            Tensor *out = y.out;
            Expr *dim[MAX_RANK], *idx[MAX_RANK];
            memcpy(dim, out->dim, sizeof dim);
            dim[0] = one->loop.trips;
            y.out = tensor_like(c, TK_SCAN, out, out->rank, dim, w->q);
            out->kind = TK_TE;
            for (int d = 0; d < out->rank; d++)
                idx[d] = e_axis(c, out->axis[d] = axis_new(c, out->dim[d]));
            idx[0] = e_addi(c, idx[0], m->offset);
            out->body = e_load(c, y.out, idx);
            vec_push(w->a, behind, stmt_op(w->c, out, m->s->path));
        }
        vec_push(w->a, &one->loop.scan, y);
    }
    for (int i = 0; i < body->n; i++)
        if (body->p[i].member == k) stmt_move(c, body->p[i].s, from, to);
}

static void build(Wave *w) {
    Cx *c = w->c;
    Stmt *first = w->m[0].s, *one = stmt_new(c, S_LOOP, first->path);
    StmtVec list = {0}, behind = {0};
    OrderedVec body = {0};
    one->loop.body = w->body;
    w->body->owner = one;
    one->loop.cap_site = first->loop.cap_site;
    one->loop.trips = w->trips;
    one->loop.iter = first->loop.iter;
    if (w->span) {
        int64_t n;
        one->loop.trips =
            e_sel(c, e_lt(c, e_int(c, 0), w->trips), e_addi(c, w->trips, w->span), e_int(c, 0));
        one->loop.iter = sym_new(c, DT_I64, "d", 0);
        one->loop.iter->scope = w->q;
        if (e_is_int(one->loop.trips, &n)) one->loop.iter->hi = n;
        one->loop.made = e_addi(c, e_sym(c, one->loop.iter), -w->span);
    }
    for (int k = 0; k < w->n; k++) add_member(w, one, k, &body, &behind);
    for (int i = 0; i < w->delay.n; i++) {
        Delay *d = &w->delay.p[i];
        push(w, &body, d->copy, d->of);
        vec_push(w->a, &one->loop.carry, d->carry);
    }
    Levels l = levels_new(w);
    int *level = NEWN(w->a, int, body.n + 1);
    for (int i = 0; i < body.n; i++) {
        w->cur = &w->m[body.p[i].member];
        level[i] = level_of(&l, body.p[i].s);
    }
    for (int k = 0; k <= l.top; k++)
        for (int i = 0; i < body.n; i++)
            if (level[i] == k) vec_push(w->a, &one->loop.body->s, body.p[i].s);
    /* What does not depend on a member goes before the loop, the rest after it. */
    Seq *q = w->q;
    for (int i = 0; i <= w->last; i++)
        if (!w->behind[i]) vec_push(w->a, &list, q->s.p[i]);
    for (int i = 0; i < w->delay.n; i++) vec_push(w->a, &list, w->delay.p[i].init);
    vec_push(w->a, &list, one);
    for (int i = 0; i < behind.n; i++) vec_push(w->a, &list, behind.p[i]);
    for (int i = w->first; i < q->s.n; i++) {
        bool member = false;
        for (int k = 0; k < w->n; k++) member |= q->s.p[i] == w->m[k].s;
        if ((w->behind[i] || i > w->last) && !member) vec_push(w->a, &list, q->s.p[i]);
    }
    q->s = list;
}

/* ---- the pass -------------------------------------------------------------------------------- */
static void mark(Wave *w, int i) {
    w->behind[i] = true;
    stmt_defines(w->q->s.p[i], mark_tensor, mark_sym, w);
}

/* The members from q's statement i on. */
static void collect(Wave *w, int i) {
    Cx *c = w->c;
    Seq *q = w->q;
    w->ntensor = c->next_tensor;
    w->nsym = c->next_sym;
    w->after = NEWN(w->a, bool, w->ntensor + 1);
    w->after_sym = NEWN(w->a, bool, w->nsym + 1);
    w->def = NEWN(w->a, Stmt *, w->ntensor + 1);
    w->behind = NEWN(w->a, bool, q->s.n + 1);
    for (int j = i; j < q->s.n; j++)
        for (int k = 0; q->s.p[j]->kind == S_OP && k < q->s.p[j]->op.n; k++)
            w->def[q->s.p[j]->op.t[k]->id] = q->s.p[j];
    w->trips = q->s.p[i]->loop.trips;
    w->first = w->last = i;
    w->n = 1;
    w->m[0] = (Member){.s = q->s.p[i], .dim = map_new(w->a)};
    mark(w, i);
    for (int j = i + 1; j < q->s.n; j++) {
        if (joins(w, q->s.p[j])) {
            w->last = j;
            w->n++;
            mark(w, j);
        } else if (depends(w, q->s.p[j]))
            mark(w, j);
    }
    w->chosen = true;
}

/* Whether a later loop of q runs as often as loop i. */
static bool has_partner(const Seq *q, int i) {
    int64_t n;
    const Stmt *s = q->s.p[i];
    if (!wave_counted(s) || (e_is_int(s->loop.trips, &n) && n < 2)) return false;
    for (int j = i + 1; j < q->s.n; j++)
        if (wave_counted(q->s.p[j]) && q->s.p[j]->loop.trips == s->loop.trips) return true;
    return false;
}

/* Makes one loop of loop i of q and those that may join it, if that is decided. `of`: the choice is
 * about. */
static bool join_loops(Program *p, Seq *q, int i, const Stmt *of) {
    if (!has_partner(q, i)) return false;
    Wave w = {.p = p, .c = p->cx, .a = p->cx->a, .q = q};
    collect(&w, i);
    if (w.n < 2 || counter_used(&w, w.m[0].s)) return false;
    plan(&w, false);
    double plain = cost_over_sizes(wave_plain_ns, &w),
           changed = cost_over_sizes(wave_changed_ns, &w);
    bool skew = false, can = true;
    for (int k = 0; k < w.n && can; k++) can = wave_speculates(&w, &w.m[k]);
    if (can) {
        plan(&w, true);
        double skewed = cost_over_sizes(wave_changed_ns, &w);
        skew = skewed < changed;
        changed = skew ? skewed : changed;
    }
    if (!decide(p, X_WAVEFRONT, of, plain, changed)) return false;
    plan(&w, skew);
    build(&w);
    return true;
}

/* Whether anything has changed. */
static bool walk(Program *p, Seq *q) {
    bool changed = false;
    for (int i = 0; i < q->s.n; i++) changed |= join_loops(p, q, i, q->s.p[i]);
    for (int i = 0; i < q->s.n; i++) {
        Stmt *s = q->s.p[i];
        Nest n;
        if (!nest_expand(p, q, i, &n)) continue;
        if (join_loops(p, q, n.first, s))
            changed = true;
        else
            nest_restore(&n);
    }
    for (int i = 0; i < q->s.n; i++)
        for (int k = 0; k < stmt_nseq(q->s.p[i]); k++) changed |= walk(p, stmt_seq(q->s.p[i], k));
    return changed;
}

void pass_wavefront(Program *p) {
    if (walk(p, p->top)) pass_dead_code(p); /* sequences that are read in slices only */
}
