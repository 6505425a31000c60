/* partial.c: reductions of what units make together begin where it is made.
 *
 *     T[n] = …                           T[n] = …
 *     (all wait for all)                 P[u] = max(r < G: T[u G + r])     u < ⌈n / G⌉
 *     R = max(i < n: T[i])               (all wait for all)
 *     (all wait for R)                   R = max(u < ⌈n / G⌉: P[u])        by every unit
 *
 * A unit reduces its own part of T right away, and behind the barrier as few values are left as
 * there are units: every unit reduces those for itself and waits for nobody. Distribution gives the
 * units whole pieces of G of T (scheduler/plan/distribute.c), so that nothing is between T and P.
 *
 * The place of an extreme and its value are one integer: the value, as an integer of the same order
 * in which NaN beats all numbers and both zeros are equal, above the place, counted backwards where
 * the first one wins. The greatest such integer is the answer.
 *
 * Requires the final groups; comes before unit levels are chosen. On GPUs, where units are many and
 * have memory of their own for R. */
#include "scheduler/cost/cost.h"
#include "scheduler/cost/decide.h"
#include "scheduler/passes.h"
#include "utask/product.h"
#include "utask/walk.h"

#include <math.h>

#define RESULTS_MOST 64 /* that every unit computes for itself */
#define LEAST 64        /* of what is reduced: a warp takes fewer at once */
#define PLACES ((int64_t)1 << 32)
#define LAST_PLACE (((int64_t)1 << 31) - 1)

typedef struct Partial {
    Program *p;
    Cx *c;
    const Seq *q; /* at hand: group s, the number `at` of q */
    int at;
    const Stmt *s;
    const Tensor *t; /* the member that is looked at */
    Axis *x;         /* along which what others make is reduced */
} Partial;

/* ---- finding --------------------------------------------------------------------------------- */
static bool has_places(DType t) {
    switch (t) {
    case DT_F32:
    case DT_F16:
    case DT_BF16:
    case DT_I32:
    case DT_I16:
    case DT_I8:
    case DT_U16:
    case DT_U8: return true;
    default: return false;
    }
}

static bool is_place(const Expr *e) { return e->kind >= R_ARGMAX; }

/* Units share what is reduced, before them in the same list of statements. */
static bool is_made_here(const Partial *k, const Tensor *t) {
    if (t->kind != TK_TE || t->seq != k->q || t->base || t->table) return false;
    for (int i = 0; i < k->at; i++) {
        const Stmt *s = k->q->s.p[i];
        for (int m = 0; s->kind == S_OP && m < s->op.n; m++)
            if (s->op.t[m] == t) return !s->each && !s->op.at && s->level != LEVEL_HOST;
    }
    return false;
}

static void find_axis(void *user, Expr *load) {
    Partial *k = user;
    int64_t n;
    for (int d = 0; !load->kind && d < load->n; d++)
        if (load->a[d]->op == E_AXIS && load->t->dim[d] == load->a[d]->axis->extent &&
            e_is_int(load->t->dim[d], &n) && n >= LEAST && n >= 2 * k->p->schedule->units &&
            n < LAST_PLACE && is_made_here(k, load->t))
            k->x = load->a[d]->axis;
}

static void find_member(void *user, Expr *load) {
    Partial *k = user;
    for (int i = 0; i < k->s->op.n; i++)
        if (load->t == k->s->op.t[i]) k->x = NULL;
}

static bool is_found(void *user, Expr *e) {
    Partial *k = user;
    k->x = NULL;
    if (is_fast_product(e) || e->a[0]->flags & EF_REDUCE || e->naxis > MAX_RANK ||
        (is_place(e) && (e->naxis != 1 || !has_places(e->a[0]->dtype))) ||
        ((e->kind == R_SUM || e->kind == R_PROD) && dtype_size(e->dtype) == 2))
        return false;
    e_each_load(k->c, e, find_axis, k);
    e_each_load(k->c, e, find_member, k); /* is not there before the group */
    for (int i = 0; i < e->naxis; i++)
        if (e->raxis[i] == k->x) return true;
    return false;
}

/* ---- values and places ----------------------------------------------------------------------- */
static Expr *key_of(Cx *c, const Expr *e, Expr *v, Expr *at) {
    const bool least = e->kind == R_ARGMIN || e->kind == R_ARGMIN_LAST;
    const bool last = e->kind == R_ARGMAX_LAST || e->kind == R_ARGMIN_LAST;
    const bool floats = dtype_is_float(v->dtype);
    Expr *x = e_cast(c, floats ? DT_F32 : DT_I32, v), *value = x;
    if (floats) {
        Expr *zero = e_ci(c, DT_I32, 0), *bits = e_bitcast(c, DT_I32, x);
        bits =
            e_sel(c, e_lt(c, bits, zero), e_bin(c, E_XOR, bits, e_ci(c, DT_I32, INT32_MAX)), bits);
        value = e_sel(c, e_eq(c, x, e_num(c, DT_F32, 0)), zero, bits);
    }
    if (least) value = e_un(c, E_BITNOT, value);
    if (floats) value = e_sel(c, e_un(c, E_ISNAN, x), e_ci(c, DT_I32, INT32_MAX), value);
    Expr *place = last ? at : e_sub(c, e_int(c, LAST_PLACE), at);
    return e_add(c, e_muli(c, e_cast(c, DT_I64, value), PLACES), place);
}

static Expr *place_of(Cx *c, const Expr *e, Expr *key) {
    Expr *place = e_bin(c, E_AND, key, e_int(c, LAST_PLACE));
    const bool last = e->kind == R_ARGMAX_LAST || e->kind == R_ARGMIN_LAST;
    return last ? place : e_sub(c, e_int(c, LAST_PLACE), place);
}

/* ---- the transformation ---------------------------------------------------------------------- */
/* What reduction e of k->t is by pieces of `size` positions; *parts: the tensor of their results.
 */
static Expr *by_pieces(const Partial *k, const Expr *e, int64_t size, Tensor **parts) {
    Cx *c = k->c;
    const Tensor *t = k->t;
    const int64_t all = axis_size(k->x, 0), n = div_up(all, size);
    const ReduceKind kind = is_place(e) ? R_MAX : e->kind;
    Expr *dim[MAX_RANK], *at[MAX_RANK], *to[MAX_RANK * 2];
    Axis *from[MAX_RANK * 2], *axis[MAX_RANK];
    int rank = 0, m;
    for (int i = 0; i < t->rank; i++) {
        if (!e_uses_axis(e, t->axis[i])) continue;
        dim[rank] = t->dim[i];
        from[rank] = t->axis[i];
        at[rank++] = e_axis(c, t->axis[i]);
    }
    dim[rank] = e_int(c, n);
    Tensor *part = tensor_like(c, TK_TE, t, rank + 1, dim, t->seq);
    for (m = 0; m < rank; m++) to[m] = e_axis(c, part->axis[m]);
    for (int i = 0; i < e->naxis; i++) {
        axis[i] = axis_new(c, e->raxis[i] == k->x ? e_int(c, size) : e->raxis[i]->extent);
        from[m] = e->raxis[i];
        to[m++] = e_axis(c, axis[i]);
        if (e->raxis[i] != k->x) continue;
        Expr *place = e_add(c, e_muli(c, e_axis(c, part->axis[rank]), size), to[m - 1]);
        const bool once = kind == R_SUM || kind == R_PROD;
        to[m - 1] = once ? place : e_min(c, place, e_int(c, all - 1)); /* the last one again */
        at[rank] = to[m - 1];
    }
    Expr *v = e_subst(c, e->a[0], m, from, to, NULL, NULL);
    if (is_place(e)) v = key_of(c, e, v, at[rank]);
    if (at[rank]->op != E_MIN && n * size > all) /* the last piece is shorter */
        v = e_sel(c, e_lt(c, at[rank], e_int(c, all)), v, e_identity(c, kind, v->dtype));
    part->dtype = v->dtype;
    part->body =
        e_reduce(c, kind, e->naxis, arena_memdup(c->a, axis, sizeof *axis * (size_t)e->naxis), v);
    Axis *u = axis_new(c, e_int(c, n));
    at[rank] = e_axis(c, u);
    Expr *r = e_reduce(c, kind, 1, arena_memdup(c->a, &u, sizeof(Axis *)), e_load(c, part, at));
    *parts = part;
    return is_place(e) ? place_of(c, e, r) : r;
}

/* ---- where the results are ------------------------------------------------------------------- */
typedef struct ResultUse {
    const Tensor *t;
    bool whole, read, host;
} ResultUse;

static void use_load(void *user, Expr *e) {
    ResultUse *u = user;
    u->read |= e->t == u->t;
    u->whole |= e->t != u->t && tensor_root(e->t) == u->t;
}
static void use_slot(void *user, const Slot *s) {
    ResultUse *u = user;
    if (s->kind == SLOT_READ) u->whole |= tensor_root(*s->t) == u->t;
}
static void use_stmt(void *user, Stmt *s) {
    ResultUse *u = user;
    u->host |= s->level == LEVEL_HOST;
    stmt_slots(s, use_slot, u);
}

/* Calls f for the expressions behind the group that may load what it makes. */
static void behind(const Partial *k, void (*f)(void *user, Expr **e), void *user) {
    const Stmt *owner = k->q->owner;
    for (int i = k->at + 1; i < k->q->s.n; i++) stmt_exprs(k->q->s.p[i], f, user);
    for (int i = 0; owner && owner->kind == S_LOOP && i < owner->loop.syms.n; i++)
        f(user, &owner->loop.syms.p[i].next);
    if (owner && owner->kind == S_LOOP && owner->loop.cond_next)
        f(user, (Expr **)(uintptr_t)&owner->loop.cond_next);
}

typedef struct Behind {
    const Partial *k;
    ResultUse *u;
    Tensor *by; /* what is loaded instead */
} Behind;
static void look_behind(void *user, Expr **e) {
    Behind *b = user;
    e_each_load(b->k->c, *e, use_load, b->u);
}
static Expr *load_other(void *user, Expr *load) {
    const Behind *b = user;
    Cx *c = b->k->c;
    if (load->t != b->u->t) return NULL;
    return load->kind ? e_loadf(c, b->by, load->a[0]) : e_load(c, b->by, load->a);
}
static void read_other(void *user, Expr **e) {
    const Behind *b = user;
    *e = e_subst(b->k->c, *e, 0, NULL, NULL, load_other, user);
}

/* What becomes of t: whether it is loaded behind its group; whether it must be where it is, because
 * something else than a load has to do with it. */
static ResultUse use_of(const Partial *k, const Tensor *t) {
    ResultUse u = {.t = t, .whole = t->owned};
    for (int i = 0; i < k->p->nout; i++) u.whole |= tensor_root(k->p->out[i].t) == t;
    seq_each(k->p->top, use_stmt, &u);
    behind(k, look_behind, &(Behind){.k = k, .u = &u});
    return u;
}

/* Makes s, the group at hand, one that every unit computes for itself. What must be where it was is
 * copied there. */
static void compute_in_each(const Partial *k, Seq *q, Stmt *s) {
    Cx *c = k->c;
    const int n = s->op.n;
    Tensor **was = s->op.t;
    s->each = true;
    s->op.t = arena_memdup(c->a, was, sizeof *was * (size_t)n);
    for (int i = 0; i < n; i++) {
        ResultUse u = use_of(k, was[i]);
        if (!u.whole) continue;
        Tensor *t = s->op.t[i] = tensor_like(c, TK_TE, was[i], was[i]->rank, was[i]->dim, q);
        memcpy(t->axis, was[i]->axis, sizeof t->axis);
        t->body = was[i]->body;
        behind(k, read_other, &(Behind){.k = k, .u = &u, .by = t});
        for (int m = 0; m < n; m++) {
            Behind b = {.k = k, .u = &u, .by = t};
            read_other(&b, &s->op.t[m]->body);
        }
        Expr *at[MAX_RANK];
        for (int d = 0; d < t->rank; d++) {
            was[i]->axis[d] = axis_new(c, t->dim[d]);
            at[d] = e_axis(c, was[i]->axis[d]);
        }
        was[i]->body = e_load(c, t, at);
        was[i]->terms = 0;
        seq_put_at(c, q, k->at + 1, stmt_op(c, was[i], s->path));
    }
}

/* ---- groups ---------------------------------------------------------------------------------- */
/* The group of what units reduce of their own parts, so far `first`, has `part`, too; or there is
 * another such group. */
static void add_part(const Partial *k, StmtVec *first, Tensor *part, const Stmt *s) {
    Cx *c = k->c;
    Stmt *g = first->n ? first->p[first->n - 1] : NULL;
    if (!g || !same_dims(g->op.t[0], part)) {
        vec_push(c->a, first, stmt_op(c, part, s->path));
        return;
    }
    const Tensor *lead = g->op.t[0];
    Tensor **t = NEWN(c->a, Tensor *, g->op.n + 1);
    memcpy(t, g->op.t, sizeof *t * (size_t)g->op.n);
    part->body = expr_over(c, part->body, part, lead, 0);
    memcpy(part->axis, lead->axis, sizeof part->axis);
    t[g->op.n++] = part;
    g->op.t = t;
}

static bool may_change(const Partial *k, const Stmt *s) {
    int64_t results;
    if (s->kind != S_OP || s->op.at || s->each || s->level == LEVEL_HOST) return false;
    for (int i = 0; i < s->op.n; i++) {
        const Tensor *t = s->op.t[i];
        if (t->rank < 0 || t->rank >= MAX_RANK || t->base || t->table || t->grow || t->ret)
            return false;
    }
    return e_is_int(tensor_count(k->c, s->op.t[0]), &results) && results <= RESULTS_MOST;
}

static void visit(void *user, Seq *q, int *at) {
    Partial *k = user;
    Stmt *s = q->s.p[*at];
    if (!may_change(k, s)) return;
    const int units = k->p->schedule->units;
    const double wait = k->p->schedule->device->level[LEVEL_TEAM].barrier_ns;
    double plain = fmin(cost_group_ns(k->p, s, 1), cost_group_ns(k->p, s, units)), changed = 0;
    StmtVec first = {0};
    Expr **body = NEWN(k->c->a, Expr *, s->op.n), *e;
    bool read = false, host = false;
    k->q = q;
    k->at = *at;
    k->s = s;
    for (int i = 0; i < s->op.n; i++) {
        Tensor *t = s->op.t[i], *part;
        body[i] = t->body;
        k->t = t;
        while ((e = find_reduction(map_new(k->c->a), t->body, true, is_found, k))) {
            const int64_t size = div_up(axis_size(k->x, 0), units);
            t->body = e_replace(k->c, t->body, e, by_pieces(k, e, size, &part));
            t->terms = 0;
            add_part(k, &first, part, s);
        }
        const ResultUse u = use_of(k, t);
        read |= u.read;
        host |= u.host;
    }
    if (!first.n) return;
    for (int i = 0; i < first.n; i++) changed += cost_group_ns(k->p, first.p[i], units);
    plain += read ? wait : 0;
    changed += cost_group_ns(k->p, s, 1) + (read && host ? wait : 0);
    if (!decide(k->p, X_PARTIAL, s, plain, changed)) {
        for (int i = 0; i < s->op.n; i++) s->op.t[i]->body = body[i];
        return;
    }
    if (read && !host) compute_in_each(k, q, s);
    for (int i = 0; i < first.n; i++) seq_put_at(k->c, q, (*at)++, first.p[i]);
}

void pass_partial(Program *p) {
    Partial k = {.p = p, .c = p->cx};
    if (device_is_gpu(p->schedule->device) && p->schedule->units > 1 && !p->nfunc)
        seq_rewrite(p->top, visit, &k);
}
