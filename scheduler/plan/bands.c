/* bands.c: strips over windows (strips.h). */
#include "scheduler/cost/cost.h"
#include "scheduler/cost/decide.h"
#include "scheduler/plan/strips.h"
#include "utask/walk.h"

#include <math.h>

#define CACHE_PART 2 /* of the second-level cache, for a strip */

/* The positions of an earlier group that a position x reads: step * x + first to step * x + last;
 * step 0: none. */
typedef struct Reach {
    int64_t step, first, last;
} Reach;

typedef struct Bands {
    Program *p;
    Cx *c;
    int n;
    Stmt *s[STRIP_GROUPS];
    int dim[STRIP_GROUPS];                   /* of the groups' domains, along which strips go */
    Reach reads[STRIP_GROUPS][STRIP_GROUPS]; /* of the second by the first */
    Reach of[STRIP_GROUPS];                  /* by positions of the last group of a run */
    /* Of the group that is looked at. */
    Stmt *next;
    int at; /* its dimension; -1: not known yet */
    bool bad;
} Bands;

/* ---- windows --------------------------------------------------------------------------------- */
/* The least and the greatest value of e, a sum of positions along axes of reductions. */
static bool range_of(const Expr *e, int64_t *low, int64_t *high) {
    int64_t n, a, b;
    if (e_is_int(e, &n)) {
        *low = *high = n;
        return true;
    }
    switch (e->op) {
    case E_AXIS:
        if (!e_is_int(e->axis->extent, &n) || n < 1) return false;
        *low = 0;
        *high = n - 1;
        return true;
    case E_ADD:
        if (!range_of(e->a[0], low, high) || !range_of(e->a[1], &a, &b)) return false;
        *low += a;
        *high += b;
        return true;
    case E_MUL:
        if (!e_is_int(e->a[0], &n) || !range_of(e->a[1], &a, &b)) return false;
        *low = n * (n < 0 ? b : a);
        *high = n * (n < 0 ? a : b);
        return true;
    default: return false;
    }
}

/* The dimension of the group's domain that alone moves the index; -1: there is no such one. */
static int moved_by(const Stmt *s, const Expr *index) {
    const Tensor *lead = s->op.t[0];
    int at = -1;
    for (int d = 0; d < lead->rank; d++) {
        if (!e_uses_axis(index, lead->axis[d])) continue;
        if (at >= 0) return -1;
        at = d;
    }
    return at;
}

static void note_read(Bands *r, int of, Expr *e) {
    Expr *index = e->a[r->dim[of]], *step, *rest;
    Reach x;
    const int d = moved_by(r->next, index);
    r->bad = true;
    if (d < 0 || (r->at >= 0 && d != r->at) ||
        !e_affine(r->c, index, r->next->op.t[0]->axis[d], &step, &rest) ||
        !e_is_int(step, &x.step) || x.step < 1 || !range_of(rest, &x.first, &x.last))
        return;
    Reach *all = &r->reads[r->n][of];
    r->at = d;
    r->bad = all->step && all->step != x.step;
    if (all->step) {
        x.first = all->first < x.first ? all->first : x.first;
        x.last = all->last > x.last ? all->last : x.last;
    }
    *all = x;
}

static void each_load(void *user, Expr *e) {
    Bands *r = user;
    const Tensor *root = tensor_root(e->t);
    for (int i = 0; i < r->n && !r->bad; i++)
        for (int k = 0; k < r->s[i]->op.n && !r->bad; k++) {
            if (r->s[i]->op.t[k] != root) continue;
            if (e->t != root || e->kind)
                r->bad = true;
            else
                note_read(r, i, e);
        }
}

/* ---- runs ------------------------------------------------------------------------------------ */
/* Whether s goes on with what the run has; then it becomes part of it. */
static bool join(Bands *r, Stmt *s) {
    if (r->n == STRIP_GROUPS || !strip_may_run(r->p, s) || s->level != r->s[0]->level) return false;
    r->next = s;
    r->at = -1;
    r->bad = false;
    memset(r->reads[r->n], 0, sizeof r->reads[r->n]);
    stmt_loads(r->c, s, each_load, r);
    if (r->bad || r->at < 0 || strip_has_lanes(s, r->at) || r->at == s->op.t[0]->rank - 1)
        return false;
    r->dim[r->n] = r->at;
    r->s[r->n++] = s;
    return true;
}

static Axis *axis_of(const Bands *r, int i) { return r->s[i]->op.t[0]->axis[r->dim[i]]; }

/* What the first n groups have of each position of the last of them. False: that is not known of
 * all, or windows are all of one position. */
static bool reach(Bands *r, int n) {
    bool windows = false;
    r->of[n - 1] = (Reach){1, 0, 0};
    for (int i = n - 2; i >= 0; i--) {
        Reach all = {0};
        for (int j = i + 1; j < n; j++) {
            const Reach *x = &r->reads[j][i], *y = &r->of[j];
            if (!x->step) continue;
            const Reach one = {x->step * y->step, x->step * y->first + x->first,
                               x->step * y->last + x->last};
            if (all.step && all.step != one.step) return false;
            if (!all.step || one.first < all.first) all.first = one.first;
            if (!all.step || one.last > all.last) all.last = one.last;
            all.step = one.step;
        }
        if (!all.step) return false;
        windows |= all.first != 0 || all.last != 0;
        r->of[i] = all;
    }
    return windows;
}

/* Most positions of the last group that lie between the first that a unit's strip needs of a group
 * and the last. */
static int64_t longest(const Bands *r, int n) {
    int64_t most = 1;
    for (int i = 0; i < n; i++) {
        const Reach *x = &r->of[i];
        const int64_t one = (x->last + 1 - x->first + x->step - 1) / x->step;
        if (one > most) most = one;
    }
    return most;
}

/* ---- what it costs --------------------------------------------------------------------------- */
typedef struct Bytes {
    const Bands *r;
    int n;
    Map *seen;
    double inner, weights; /* read of what the run makes; of constants */
} Bytes;

static void load_bytes(void *user, Expr *e) {
    Bytes *k = user;
    const Tensor *t = tensor_root(e->t);
    if (!map_add(k->seen, (uint64_t)t->id + 1)) return;
    if (t->kind == TK_CONST) k->weights += cost_bytes(t);
    for (int i = 0; i < k->n; i++)
        for (int j = 0; j < k->r->s[i]->op.n; j++)
            if (k->r->s[i]->op.t[j] == t) k->inner += cost_bytes(t);
}

typedef struct BandWay { /* of the first n groups */
    int n;
    int64_t rows, most; /* of a strip; that it can have */
    double plain, ns;
} BandWay;

/* What group i touches when the first n go strip by strip. */
static Bytes bytes_of(const Bands *r, int n, int i, const Work *x) {
    Bytes k = {.r = r, .n = n, .seen = map_new(r->c->a)};
    stmt_loads(r->c, r->s[i], load_bytes, &k);
    k.inner += i < n - 1 ? x->written : 0;
    return k;
}

/* The time of the first n groups one after the other, and strip by strip; false: units would have
 * no share, or one strip would be all. What lies in memory between two groups comes from the
 * second-level cache; constants, which the other groups have driven out of the first one, are read
 * again by each strip. */
static bool price(Bands *r, int n, BandWay *w) {
    const Schedule *plan = r->p->schedule;
    const Device *d = plan->device;
    const bool shared = r->s[0]->op.split != NULL;
    const int units = shared ? schedule_units(plan, r->s[0]->level) : 1;
    const double all = cost_size(r->s[n - 1]->op.t[0]->dim[r->dim[n - 1]]);
    const double wait = units > 1 ? d->level[LEVEL_TEAM].barrier_ns : 0;
    const double cache = (double)d->level[LEVEL_CORE].bytes;
    double near = 0, weights = 0;
    if (!reach(r, n)) return false;
    for (int i = 0; i < n; i++) {
        const Work x = cost_work(r->c, r->s[i], COST_UNKNOWN);
        const Bytes k = bytes_of(r, n, i, &x);
        near += (x.read + x.written - k.weights) / all;
        weights += k.weights;
    }
    const int64_t share = (int64_t)(all / units);
    const int64_t rows = (int64_t)((cache / CACHE_PART - fmin(weights, cache / 4)) / near);
    *w = (BandWay){.n = n, .plain = wait * (n - 1), .ns = wait};
    w->most = units == 1 ? share / 2 : share - longest(r, n) + 1;
    w->rows = rows >= 4 ? rows / 4 * 4 : rows >= 2 ? 2 : 1;
    if (w->rows > w->most) w->rows = w->most;
    if (w->rows < 1) return false;
    const double strips = ceil((double)share / (double)w->rows);
    for (int i = 0; i < n; i++) {
        const Work x = cost_work(r->c, r->s[i], COST_UNKNOWN);
        const Bytes k = bytes_of(r, n, i, &x);
        const double outer = x.read + x.written - k.inner;
        const double close = device_gbps(d, near * (double)w->rows + k.weights);
        w->plain += cost_group_ns(r->p, r->s[i], units);
        w->ns += fmax(cost_compute_ns(d, &x) / units,
                      outer / units / device_gbps(d, (x.read + x.written) / units) +
                          k.inner / units / close) +
                 strips * d->group_ns + (strips - 1) * k.weights / close;
    }
    return true;
}

/* Positions of the last group in a strip. */
static int64_t choose_rows(const Bands *r, const BandWay *w) {
    Way way[4] = {{(int)w->rows, w->ns}};
    int n = 1;
    for (int rows = 1; rows <= 4 && rows <= w->most; rows *= 2)
        if (rows != w->rows) way[n++] = (Way){rows, w->ns};
    return decide_value(r->p, X_STRIP_ROWS, r->s[0], n, way);
}

/* Whether the last positions of a unit's band of one of the first n groups need positions of
 * another group behind its band. */
static bool crosses(const Bands *r, int n) {
    for (int j = 0; j < n; j++)
        for (int i = 0; i < j; i++) {
            const Reach *x = &r->reads[j][i];
            if (x->step && x->step * (r->of[j].first - 1) + x->last >= r->of[i].first) return true;
        }
    return false;
}

static void take(const Bands *r, const BandWay *w) {
    const int n = w->n;
    const bool crossing = crosses(r, n);
    const int64_t rows = choose_rows(r, w), least = rows - 1 + longest(r, n);
    for (int i = 0; i < n; i++) {
        Stmt *s = r->s[i];
        Band *b = NEW(r->c->a, Band);
        *b = (Band){.step = r->of[i].step,
                    .first = r->of[i].first,
                    .last = r->of[i].last,
                    .of = axis_of(r, n - 1),
                    .least = least,
                    .crosses = crossing};
        s->op.strip = axis_of(r, i);
        s->op.rows = rows;
        s->op.follows = i > 0;
        s->op.band = b;
        s->op.inner = NULL;
        s->op.edge = 0;
        if (!s->op.split) continue;
        s->op.split = s->op.strip;
        s->op.grain = 1;
    }
}

/* Units do not meet in a loop that they run part by part (parts.h). */
static bool in_parts(const Seq *q) {
    for (; q && q->owner; q = q->parent)
        if (q->owner->kind == S_LOOP && q->owner->loop.parts > 1) return true;
    return false;
}

int bands_take(Program *p, const Seq *q, int from, int most) {
    Stmt *s = q->s.p[from];
    Bands best;
    BandWay way = {.n = 0};
    if (!strip_may_run(p, s) || in_parts(q)) return 0;
    for (int d = 0; d < s->op.t[0]->rank - 1; d++) {
        Bands r = {.p = p, .c = p->cx, .n = 1, .s = {s}, .dim = {d}};
        if (e_is_ival(s->op.t[0]->dim[d], 1) || strip_has_lanes(s, d)) continue;
        for (int i = from + 1; i < q->s.n && join(&r, q->s.p[i]); i++) {}
        for (int n = r.n; n >= 2 && n >= most; n--) {
            BandWay w;
            if (!price(&r, n, &w) || (way.n && w.plain - w.ns <= way.plain - way.ns)) continue;
            way = w;
            best = r;
        }
    }
    if (!way.n || !decide(p, X_STRIPS, s, way.plain, way.ns)) return 0;
    if (!reach(&best, way.n)) return 0;
    take(&best, &way);
    return way.n;
}
