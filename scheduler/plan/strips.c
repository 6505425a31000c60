/* strips.c: see strips.h. */
#include "scheduler/plan/strips.h"
#include "scheduler/cost/cost.h"
#include "scheduler/cost/decide.h"
#include "scheduler/kernel/kernel.h"
#include "scheduler/passes.h"
#include "utask/product.h"
#include "utask/walk.h"

typedef struct Run { /* of groups that may be computed strip by strip */
    Program *p;
    Cx *c;
    int n;
    Stmt *s[STRIP_GROUPS];
    int dim[STRIP_GROUPS]; /* of the groups' domains, along which strips go */
    /* Of the group that is looked at. */
    Stmt *next;
    int at; /* the dimension; -1: not known yet */
    bool bad, related;
} Run;

/* What only this group and later ones touch, or nobody before the group. */
static bool is_own(const Tensor *t) {
    return t->kind == TK_TE && !t->owned && !t->base && !t->table && !t->ret && !t->grow;
}

/* A sum of products with constants: its kernel has blocks of its own. */
static bool by_constants(void *user, Expr *e) {
    SumProduct p;
    (void)user;
    if (!product_of(e, &p)) return false;
    for (int i = 0; i < 2; i++)
        if (p.load[i] && p.load[i]->t->kind == TK_CONST) return true;
    return false;
}

bool strip_may_run(const Program *p, const Stmt *s) {
    if (s->kind != S_OP || s->each || s->op.at || s->level == LEVEL_HOST || op_is_empty(s) ||
        p->nfunc)
        return false;
    for (int i = 0; i < s->op.n; i++)
        if (!is_own(s->op.t[i]) || s->op.t[i]->rank < 1) return false;
    return true;
}

static bool may_run(const Program *p, const Stmt *s) {
    if (!strip_may_run(p, s) || s->op.inner) return false;
    for (int i = 0; i < s->op.n; i++)
        if (find_reduction(map_new(p->cx->a), s->op.t[i]->body, false, by_constants, NULL))
            return false;
    return true;
}

/* The dimension of the domain that an index is the position of; -1: of none. */
static int dim_of(const Stmt *s, const Expr *index) {
    const Tensor *lead = s->op.t[0];
    for (int d = 0; d < lead->rank && index->op == E_AXIS; d++)
        if (lead->axis[d] == index->axis) return d;
    return -1;
}

static void own_load(void *user, Expr *e) {
    Run *r = user;
    const Tensor *root = tensor_root(e->t);
    for (int i = 0; i < r->n; i++)
        for (int k = 0; k < r->s[i]->op.n; k++) {
            if (r->s[i]->op.t[k] != root) continue;
            const int d = e->t == root && !e->kind ? dim_of(r->next, e->a[r->dim[i]]) : -1;
            if (d < 0 || (r->at >= 0 && d != r->at) ||
                r->next->op.t[0]->dim[d] != r->s[i]->op.t[0]->dim[r->dim[i]])
                r->bad = true;
            r->at = d;
            r->related = true;
        }
}

static int split_dim(const Stmt *s) {
    for (int d = 0; s->op.split && d < s->op.t[0]->rank; d++)
        if (s->op.t[0]->axis[d] == s->op.split) return d;
    return -1;
}

bool strip_has_lanes(const Stmt *s, int d) {
    const Tensor *t = s->op.t[0];
    bool others = false;
    for (int i = d + 1; i < t->rank; i++)
        if (!e_is_ival(t->dim[i], 1)) return false;
    for (int i = 0; i < d; i++) others |= !e_is_ival(t->dim[i], 1);
    return others;
}

/* Whether s goes on with what the run has; then it becomes part of it. */
static bool join(Run *r, Stmt *s) {
    const Stmt *first = r->s[0];
    if (r->n == STRIP_GROUPS || !may_run(r->p, s) || s->level != first->level ||
        !s->op.split != !first->op.split || (s->op.split && s->op.grain != first->op.grain))
        return false;
    r->next = s;
    r->at = split_dim(s);
    r->bad = r->related = false;
    stmt_loads(r->c, s, own_load, r);
    if (r->bad || !r->related || strip_has_lanes(s, r->at)) return false;
    r->dim[r->n] = r->at;
    r->s[r->n++] = s;
    return true;
}

/* The groups from q->s.p[from] on that can be computed in strips along dimension d of the first. */
static void find(Run *r, const Seq *q, int from, int d) {
    r->n = 1;
    r->s[0] = q->s.p[from];
    r->dim[0] = d;
    for (int i = from + 1; i < q->s.n && join(r, q->s.p[i]); i++) {}
}

typedef struct RunBytes {
    const Run *r;
    const Stmt *s;
    const Axis *strip;
    Map *seen;
    double bytes; /* of one position */
} RunBytes;

static double row_bytes(const Tensor *t, double positions) {
    double n = (double)dtype_size(t->dtype) / positions;
    for (int d = 0; d < t->rank; d++) n *= cost_size(t->dim[d]);
    return n;
}

static void traffic_load(void *user, Expr *e) {
    RunBytes *k = user;
    const double positions = cost_size(k->strip->extent);
    if (e_uses_axis(e, k->strip) && map_add(k->seen, (uint64_t)tensor_root(e->t)->id + 1))
        k->bytes += row_bytes(e->t, positions);
}

/* Bytes that one position of the run touches. */
static double position_bytes(const Run *r) {
    RunBytes k = {.r = r, .seen = map_new(r->c->a)};
    for (int i = 0; i < r->n; i++) {
        const Stmt *s = r->s[i];
        k.strip = s->op.t[0]->axis[r->dim[i]];
        for (int j = 0; j < s->op.n; j++)
            if (map_add(k.seen, (uint64_t)s->op.t[j]->id + 1))
                k.bytes += row_bytes(s->op.t[j], cost_size(k.strip->extent));
        stmt_loads(r->c, s, traffic_load, &k);
    }
    return k.bytes;
}

static void take(const Run *r) {
    const Stmt *first = r->s[0];
    const double bytes = position_bytes(r), n = cost_size(first->op.t[0]->dim[r->dim[0]]);
    if (r->n < 2 || bytes * n < 2 * STRIP_BYTES || n < 2) return;
    double ns = 0;
    for (int i = 0; i < r->n; i++) ns += cost_group_ns(r->p, r->s[i], r->p->schedule->units);
    if (!decide_value(r->p, X_STRIPS, first, 2, (Way[]){{1, ns}, {0, ns}})) return;
    const double rows = STRIP_BYTES / bytes;
    for (int i = 0; i < r->n; i++) {
        r->s[i]->op.strip = r->s[i]->op.t[0]->axis[r->dim[i]];
        r->s[i]->op.rows = rows < 1 ? 1 : rows > n ? (int64_t)n : (int64_t)rows;
        r->s[i]->op.follows = i > 0;
    }
}

int strip_run(const Seq *q, int from) {
    int n = 1;
    while (from + n < q->s.n && strip_follows(q->s.p[from + n - 1], q->s.p[from + n])) n++;
    return n;
}

static void strips(Program *p, const Seq *q) {
    for (int i = 0; i < q->s.n; i++) {
        Stmt *s = q->s.p[i];
        for (int k = 0; k < stmt_nseq(s); k++) strips(p, stmt_seq(s, k));
        if (s->kind != S_OP) continue;
        Run best = {.n = 0};
        for (int d = 0; may_run(p, s) && d < s->op.t[0]->rank; d++) {
            Run r = {.p = p, .c = p->cx};
            if (s->op.split ? d != split_dim(s) : e_is_ival(s->op.t[0]->dim[d], 1)) continue;
            if (d && d == s->op.t[0]->rank - 1) continue; /* a strip's rows lie together */
            if (strip_has_lanes(s, d)) continue;
            find(&r, q, i, d);
            if (r.n > best.n) best = r;
        }
        const int banded = bands_take(p, q, i, best.n + 1);
        i += banded ? banded - 1 : 0;
        if (best.n < 2 || banded) continue;
        take(&best);
        i += best.n - 1;
    }
}

void pass_strips(Program *p) {
    const Schedule *k = p->schedule;
    if (!device_is_gpu(k->device) && k->lanes > 1 && !k->profile) strips(p, p->top);
}

static void leave_strips(Stmt *s) {
    s->op.strip = NULL;
    s->op.band = NULL;
}

/* Leaves strips to groups that have neighbours with which they are computed so. */
static void leave_lone(const Seq *q) {
    for (int i = 0; i < q->s.n; i++) {
        Stmt *s = q->s.p[i];
        for (int k = 0; k < stmt_nseq(s); k++) leave_lone(stmt_seq(s, k));
        const int n = strip_run(q, i);
        if (n < 2 && s->kind == S_OP) leave_strips(s);
        i += n - 1;
    }
}

/* Leaves strips to groups whose kernels can have them. Over windows that is all of a run, or none.
 */
static void settle_strips(const Seq *q) {
    for (int i = 0; i < q->s.n; i++) {
        Stmt *s = q->s.p[i];
        for (int k = 0; k < stmt_nseq(s); k++) settle_strips(stmt_seq(s, k));
        if (s->kind != S_OP || !s->op.strip) continue;
        const int n = s->op.band ? strip_run(q, i) : 1;
        bool all = true;
        for (int k = 0; k < n; k++) all = all && kernel_has_strips(q->s.p[i + k]->op.kernel);
        for (int k = 0; k < n && !all; k++) leave_strips(q->s.p[i + k]);
        i += n - 1;
    }
}

void pass_settle_strips(Program *p) {
    settle_strips(p->top);
    leave_lone(p->top);
}

void pass_lone_strips(Program *p) { leave_lone(p->top); }
