/* wavefront_cost.c: the order of statements in the loop that members become, and what it costs. */
#include <math.h>

#include "scheduler/cost/cost.h"
#include "scheduler/cost/decide.h"
#include "scheduler/transform/wavefront.h"

static void at_least(Levels *l, Map *m, int id, int more) {
    int have = (int)(uintptr_t)map_geti(m, (uint64_t)id + 1);
    if (have && have - 1 + more > l->level) l->level = have - 1 + more;
}

/* What is read in t's place; the reader may be of another member than the present one. */
static Tensor *in_its_place(const Wave *w, Tensor *t) {
    if (!wave_after(w, t)) return t;
    Tensor *r = map_geti(w->cur->slice, (uint64_t)t->id + 1);
    for (int k = 0; k < w->n && !r; k++) r = map_geti(w->m[k].slice, (uint64_t)t->id + 1);
    return r;
}

static void level_expr(Levels *l, const Expr *e, bool reduce) {
    if (!e || !(e->flags & (EF_LOAD | EF_SYM))) return;
    uint64_t key = (uint64_t)e->id * 2 + reduce + 1;
    if (!map_add(l->seen, key)) return;
    if (e->op == E_SYM) at_least(l, l->sym, e->sym->id, 0);
    if (e->op == E_LOAD) {
        Tensor *t = tensor_root(in_its_place(l->w, e->t));
        bool made = map_geti(l->tensor, (uint64_t)t->id + 1);
        if (made && t->kind == TK_TE &&
            t->body->op == E_LOAD) /* will be read where it comes from */
            level_expr(l, t->body, reduce);
        else if (made)
            at_least(l, l->tensor, t->id, reduce);
        l->carried |= reduce && t->kind == TK_PHI;
    }
    for (int i = 0; i < e->n; i++) level_expr(l, e->a[i], reduce || e->op == E_REDUCE);
}

static void level_tensor(void *user, Tensor *t) {
    Levels *l = user;
    t = in_its_place(l->w, t);
    if (t) at_least(l, l->tensor, t->id, 1);
}
static void level_sym(void *user, Sym *s) {
    Levels *l = user;
    at_least(l, l->sym, s->id, 0);
}
static void made_tensor(void *user, Tensor *t) {
    Levels *l = user;
    map_seti(l->tensor, (uint64_t)t->id + 1, (void *)((uintptr_t)l->level + 1));
}
static void made_sym(void *user, Sym *s) {
    Levels *l = user;
    map_seti(l->sym, (uint64_t)s->id + 1, (void *)((uintptr_t)l->level + 1));
}

Levels levels_new(Wave *w) {
    return (Levels){.w = w, .tensor = map_new(w->a), .sym = map_new(w->a)};
}

int level_of(Levels *l, const Stmt *s) {
    l->level = 0;
    l->seen = map_new(l->w->a);
    if (s->kind == S_OP)
        for (int i = 0; i < s->op.n; i++) {
            level_expr(l, s->op.t[i]->body, false);
            for (int d = 0; d < s->op.t[i]->rank; d++) level_expr(l, s->op.t[i]->dim[d], false);
        }
    else {
        Visit u = visit_new(l->w->c, level_tensor, level_sym, l);
        visit_stmt(&u, s);
    }
    stmt_defines(s, made_tensor, made_sym, l);
    if (l->level > l->top) l->top = l->level;
    return l->level;
}

#define LEVELS 64

typedef struct Load { /* of one iteration */
    int units;
    double unknown; /* what sizes that are not known are taken to be */
    Work w;
    double other; /* ns of what is no group */
    int groups;
    /* On GPUs, by level: groups that may run side by side, the ns of all by whole blocks, and of
     * the longest by a warp of each. */
    int n[LEVELS];
    double whole[LEVELS], warp[LEVELS];
    uint64_t levels; /* of the member's, that have one: what nothing has to be waited for in between
                        is one group */
} Load;

static void add_group(const Wave *w, Load *k, const Stmt *s, int level) {
    const Device *d = w->p->schedule->device;
    k->groups++;
    if (!device_is_gpu(d)) return;
    Stmt by_warp = *s;
    by_warp.op.team = d->warp;
    k->n[level]++;
    k->whole[level] += cost_group_at_ns(w->p, s, k->units, k->unknown);
    k->warp[level] = fmax(k->warp[level], cost_group_at_ns(w->p, &by_warp, k->units, k->unknown));
}

static void add_stmt(Wave *w, Load *k, Levels *l, const Stmt *s) {
    const int level = level_of(l, s);
    if (s->kind != S_OP) {
        k->other += cost_stmt_at_ns(w->p, s, k->units, k->unknown);
        return;
    }
    Work x = cost_work(w->c, s, k->unknown);
    /* The rest will be computed inside others. */
    const int at = level < LEVELS ? level : LEVELS - 1;
    const uint64_t bit = 1ull << at;
    for (int i = 0; i < s->op.n; i++)
        if ((s->op.t[i]->owned || (s->op.t[i]->body->flags & EF_REDUCE)) && !(k->levels & bit)) {
            k->levels |= bit;
            add_group(w, k, s, at);
        }
    k->w.flops += x.flops;
    k->w.simple += x.simple;
    k->w.expensive += x.expensive;
    k->w.read += x.read;
    k->w.written += x.written;
}

/* Statements that run together share the memory that is near. */
static double load_ns(const Wave *w, const Load *k) {
    const Device *d = w->p->schedule->device;
    double share = (k->w.read + k->w.written) / k->units;
    return fmax(cost_compute_ns(d, &k->w) / k->units, share / device_gbps(d, share)) + k->other;
}

/* What groups take beside their work: on a GPU they wait for each other only from level to level,
 * if blocks have a warp for each (scheduler/plan/beside.h). */
static double groups_ns(const Wave *w, const Load *k) {
    const Device *d = w->p->schedule->device;
    if (!device_is_gpu(d)) return d->group_ns * k->groups;
    double ns = 0;
    for (int l = 0; l < LEVELS; l++)
        ns += fmin(k->whole[l], k->warp[l] * (double)div_up(k->n[l], d->threads / d->warp));
    return ns;
}

/* One iteration of members [from, to), with the barriers. */
static double iteration_ns(Wave *w, int from, int to, bool slices, int units, double unknown) {
    const Device *d = w->p->schedule->device;
    Levels l = levels_new(w);
    Load k = {.units = units, .unknown = unknown};
    for (int i = from; i < to; i++) {
        Member *m = &w->m[i];
        w->cur = m;
        k.levels = 0;
        for (int j = 0; slices && j < m->slices.n; j++) add_stmt(w, &k, &l, m->slices.p[j]);
        for (int j = 0; j < m->s->loop.body->s.n; j++) add_stmt(w, &k, &l, m->s->loop.body->s.p[j]);
    }
    int meet = l.top + l.carried;
    return 2 + load_ns(w, &k) + groups_ns(w, &k) +
           (units > 1 ? meet * d->level[LEVEL_TEAM].barrier_ns : 0);
}

static double plain_ns(Wave *w, int units, double unknown) {
    double t = 0, trips = cost_size(w->trips);
    const Device *d = w->p->schedule->device;
    for (int k = 0; k < w->n; k++) t += trips * iteration_ns(w, k, k + 1, false, units, unknown);
    for (int i = w->first; i <= w->last; i++) {
        const Stmt *s = w->q->s.p[i];
        bool used = false;
        for (int k = 0; s->kind == S_OP && k < w->n; k++)
            used |= map_geti(w->m[k].dim, (uint64_t)s->op.t[0]->id + 1) != NULL;
        if (used)
            t += cost_group_at_ns(w->p, s, units, unknown) +
                 (units > 1 ? d->level[LEVEL_TEAM].barrier_ns : 0);
    }
    return t;
}

static double changed_ns(Wave *w, int units, double unknown) {
    return (cost_size(w->trips) + w->span) * iteration_ns(w, 0, w->n, true, units, unknown);
}

/* Any of them may turn out to be work for one unit. */
double wave_plain_ns(void *wave, double unknown) {
    Wave *w = wave;
    return fmin(plain_ns(w, 1, unknown), plain_ns(w, w->p->schedule->units, unknown));
}
double wave_changed_ns(void *wave, double unknown) {
    Wave *w = wave;
    return fmin(changed_ns(w, 1, unknown), changed_ns(w, w->p->schedule->units, unknown));
}
