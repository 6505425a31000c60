/* within.c: which loops are one function with the time inside (within.h). */
#include "scheduler/plan/within.h"
#include "scheduler/cost/cost.h"
#include "scheduler/cost/decide.h"
#include "scheduler/kernel/threads.h"
#include "scheduler/plan/memory.h"
#include "utask/walk.h"
#include <math.h>

#define LANES_MOST 32     /* positions along the lanes' axis */
#define LANES_LEAST 4     /* for which sums of several iterations are exchanged together */
#define TERMS_MOST 32     /* of a sum that one thread makes */
#define STEPS 8           /* iterations whose loads are on their way together */
#define REGISTERS 128     /* for them, of a thread */
#define MEMBERS_MOST 64   /* of all groups */
#define CHUNK 64          /* iterations whose loads are copied together */
#define STAGE_BYTES 32768 /* of a block's memory for them */

typedef struct Look {
    Program *p;
    Cx *c;
    const Stmt *loop;
    Within *w;
    Map *seen;
    bool legal, lanes; /* lanes: there is a lanes' axis */
    int late;          /* it looks at late members */
    bool both;         /* one of their sums is also another member's */
} Look;

static int nlong(const Tensor *t) {
    int n = 0;
    for (int d = 0; d < t->rank; d++) n += !e_is_ival(t->dim[d], 1);
    return n;
}

/* ---- what the loop defines ------------------------------------------------------------------- */
static int member_of(const Within *w, const Tensor *t) {
    for (int i = 0; i < w->k->n; i++)
        if (w->k->t[i] == t) return i;
    return -1;
}

static int carry_of(const Stmt *loop, const Tensor *t) {
    for (int i = 0; i < loop->loop.carry.n; i++)
        if (loop->loop.carry.p[i].phi == t) return i;
    return -1;
}

static bool is_inside(const Look *x, const Tensor *t) {
    const Tensor *root = tensor_root(t);
    return member_of(x->w, root) >= 0 || carry_of(x->loop, root) >= 0;
}

typedef struct InsideLoads {
    const Look *x;
    bool any;
} InsideLoads;
static void inside_load(void *user, Expr *load) {
    InsideLoads *k = user;
    k->any |= is_inside(k->x, load->t);
}
static bool reads_inside(const Look *x, Expr *e) {
    InsideLoads k = {x, false};
    if (e->flags & EF_LOAD) e_each_load(x->c, e, inside_load, &k);
    return k.any;
}

/* The position of t along the axes of the loop's members; `last`: along the last one. */
static void own_position(const Look *x, const Tensor *t, Expr *last, Expr **idx) {
    const Kernel *k = x->w->k;
    for (int d = 0, j = 0; d < t->rank; d++) {
        if (e_is_ival(t->dim[d], 1)) {
            idx[d] = e_int(x->c, 0);
            continue;
        }
        idx[d] = j == k->naxis - 1 && last ? last : e_axis(x->c, k->axis[j]);
        j++;
    }
}

/* Whether t has the extents of the axes; *row: all but the last one. */
static bool has_axes(const Kernel *k, const Tensor *t, bool *row) {
    const int n = nlong(t);
    if (t->rank < 0 || n > k->naxis || n < k->naxis - 1) return false;
    *row = n < k->naxis;
    for (int d = 0, j = 0; d < t->rank; d++)
        if (!e_is_ival(t->dim[d], 1) && t->dim[d] != k->axis[j++]->extent) return false;
    return true;
}

/* ---- what members read ----------------------------------------------------------------------- */
static void note(Look *x, ExprVec *v, Expr *e) {
    for (int i = 0; i < v->n; i++)
        if (v->p[i] == e) return;
    vec_push(x->c->a, v, e);
}

static void look(Look *x, Expr *e, bool always, ExprVec *fetch);

/* A load of what the loop defines: at the thread's own position, or of its row. */
static bool is_own(Look *x, Expr *e, bool row_reader) {
    Expr *idx[MAX_RANK];
    bool row;
    if (!has_axes(x->w->k, e->t, &row)) return false;
    if (row_reader && !row) return false;
    own_position(x, e->t, NULL, idx);
    if (e->kind) return e->a[0] == flat_index_of(x->c, e->t, idx);
    for (int d = 0; d < e->t->rank; d++)
        if (e->a[d] != idx[d] && !e_is_ival(e->t->dim[d], 1)) return false;
    return true;
}

/* Of a load that is always made: its place among those that are made together. */
static void look_load(Look *x, Expr *e, bool always, ExprVec *fetch) {
    Within *w = x->w;
    const int carry = carry_of(x->loop, e->t);
    if (carry >= 0 || member_of(w, e->t) >= 0) {
        x->legal &= is_own(x, e, false);
        if (carry >= 0) vec_push(x->c->a, &w->own, ((WithinOwn){e, carry}));
        return;
    }
    if (is_inside(x, e->t)) { /* a view */
        x->legal = false;
        return;
    }
    const bool moves = expr_uses_sym(e, x->loop->loop.iter);
    if (always && !(e->flags & (EF_REDUCE | EF_GUARD)) && !reads_inside(x, e))
        note(x, moves ? fetch : &w->fixed, e);
    for (int i = 0; i < e->n; i++) look(x, e->a[i], false, fetch);
}

/* A reduction of what the loop defines: over the lanes' axis. */
static void look_sum(Look *x, Expr *e, bool always) {
    Within *w = x->w;
    const bool known =
        e->kind == R_SUM || e->kind == R_PROD || e->kind == R_MAX || e->kind == R_MIN;
    const bool type =
        e->dtype == DT_F32 || e->dtype == DT_F64 || e->dtype == DT_I32 || e->dtype == DT_I64;
    x->legal &= known && type && always && x->lanes && e->naxis == 1 &&
                e->raxis[0]->extent == w->k->axis[w->k->naxis - 1]->extent &&
                !e_uses_axis(e->a[0], w->k->axis[w->k->naxis - 1]) && !(e->a[0]->flags & EF_REDUCE);
    if (!x->legal) return;
    for (int i = 0; i < w->sum.n; i++)
        if (w->sum.p[i].e == e) {
            x->both |= w->sum.p[i].late != x->late;
            return;
        }
    Axis *from[1] = {e->raxis[0]};
    Expr *to[1] = {e_axis(x->c, w->k->axis[w->k->naxis - 1])};
    Expr *term = e_subst(x->c, e->a[0], 1, from, to, NULL, NULL);
    vec_push(x->c->a, &w->sum, ((WithinSum){e, term, x->late}));
    look(x, term, true, &w->fetch);
}

static void look(Look *x, Expr *e, bool always, ExprVec *fetch) {
    if (!x->legal || !(e->flags & (EF_LOAD | EF_REDUCE)) ||
        !map_add(x->seen, ((uint64_t)e->id + 1) * 2 + always))
        return;
    if (e->op == E_LOAD) {
        look_load(x, e, always, fetch);
        return;
    }
    if (e->op == E_REDUCE && reads_inside(x, e)) {
        look_sum(x, e, always);
        return;
    }
    if (e->op == E_REDUCE) { /* by each thread for itself */
        x->legal &= axes_size(e->naxis, e->raxis, INT32_MAX) <= TERMS_MOST;
        always = false;
    }
    const int last = e_always(e);
    for (int i = 0; i < e->n; i++) look(x, e->a[i], always && i < last, fetch);
}

/* Whether a value without the lanes' axis is the same in all lanes but for its sums. */
static bool is_of_row(Look *x, Map *seen, Expr *e) {
    if (!(e->flags & EF_LOAD) || !map_add(seen, (uint64_t)e->id + 1)) return true;
    if (e->op == E_LOAD && is_inside(x, e->t)) return is_own(x, e, true);
    if (e->op == E_REDUCE && reads_inside(x, e)) return true;
    for (int i = 0; i < e->n; i++)
        if (!is_of_row(x, seen, e->a[i])) return false;
    return true;
}

/* ---- late members ---------------------------------------------------------------------------- */
typedef struct MemberUses { /* the members that a value reads, as bits */
    const Look *x;
    Map *seen;
    uint64_t direct, summed; /* outside and inside of sums over the lanes' axis */
    bool carried;            /* it reads a carried value directly */
} MemberUses;

static void find_uses(MemberUses *u, Expr *e, bool summed) {
    if (!(e->flags & EF_LOAD) || !map_add(u->seen, ((uint64_t)e->id + 1) * 2 + summed)) return;
    if (e->op == E_REDUCE && reads_inside(u->x, e)) summed = true;
    if (e->op == E_LOAD) {
        const int i = member_of(u->x->w, e->t);
        if (i >= 0) *(summed ? &u->summed : &u->direct) |= (uint64_t)1 << i;
        u->carried |= !summed && carry_of(u->x->loop, e->t) >= 0;
    }
    for (int i = 0; i < e->n; i++) find_uses(u, e->a[i], summed);
}

/* Late is what is of a row, and for which neither a later iteration nor a lane's part of a sum
 * waits; it reads sums and late members. */
static void find_late(Look *x) {
    Within *w = x->w;
    const int n = w->k->n;
    MemberUses *u = NEWN(x->c->a, MemberUses, n);
    uint64_t early = 0, before = 1;
    for (int i = 0; i < n; i++) {
        u[i] = (MemberUses){.x = x, .seen = map_new(x->c->a)};
        find_uses(&u[i], w->k->value[i], false);
        early |= u[i].summed;
        if (!w->m[i].row || w->m[i].carry >= 0 || u[i].carried) early |= (uint64_t)1 << i;
    }
    while (early != before) {
        before = early;
        for (int i = 0; i < n; i++)
            if (early >> i & 1)
                early |= u[i].direct;
            else if (early & u[i].direct)
                early |= (uint64_t)1 << i;
    }
    const bool some = early != (n < 64 ? ((uint64_t)1 << n) - 1 : ~(uint64_t)0);
    w->batch = some && w->width >= LANES_LEAST;
    for (int i = 0; i < n; i++) w->m[i].late = w->batch && !(early >> i & 1);
}

static void forget_late(Within *w) {
    for (int i = 0; i < w->k->n; i++) w->m[i].late = false;
    w->batch = false;
}

/* ---- the loop -------------------------------------------------------------------------------- */
/* A group that its thread, or its lanes, can compute with the others. */
static bool plain_group(const Stmt *s) {
    if (s->kind != S_OP || op_is_empty(s) || s->op.at || s->op.inner || s->op.strip || s->op.band ||
        s->each || s->apart ||
        (s->op.kernel->kind != KERNEL_THREADS && s->op.kernel->kind != KERNEL_DOTS) ||
        s->op.kernel->nown)
        return false;
    for (int i = 0; i < s->op.n; i++) {
        const Tensor *t = s->op.t[i];
        if (t->kind != TK_TE || t->rank < 0 || t->blob || t->base || t->grow || t->table ||
            t->ret || dtype_small(t->dtype) || mem_of(t)->kind == M_SHARED || mem_of(t)->shared)
            return false;
    }
    return true;
}

static bool plain_loop(const Stmt *s) {
    if (!loop_counted(s) || s->loop.syms.n || s->loop.barrier || s->loop.copies ||
        s->loop.parts > 1 || !s->loop.body->s.n)
        return false;
    for (int i = 0; i < s->loop.body->s.n; i++)
        if (!plain_group(s->loop.body->s.p[i])) return false;
    for (int i = 0; i < s->loop.carry.n; i++) {
        const LoopCarry *k = &s->loop.carry.p[i];
        const Mem *m = mem_of(k->phi);
        if (k->inplace || k->rows || k->push || k->closes || k->phi->grow || k->phi->blob ||
            !k->init || !k->next || !m || m->inplace || m->block ||
            (m->kind != M_STATIC && m->kind != M_BUMP) || mem_of(k->next)->kind != M_CARRY)
            return false;
    }
    for (int i = 0; i < s->loop.scan.n; i++) {
        const LoopScan *k = &s->loop.scan.p[i];
        const Mem *m = mem_of(k->elem);
        if (k->more || !m || m->kind != M_ELEM || m->via != k->out ||
            (mem_of(k->out)->kind != M_STATIC && mem_of(k->out)->kind != M_BUMP))
            return false;
    }
    return true;
}

/* The kernel of all members, over the axes of the group that has most of them; false: they do not
 * lie along the same ones. */
static bool join_groups(Look *x) {
    Within *w = x->w;
    Cx *c = x->c;
    const Seq *q = x->loop->loop.body;
    const Stmt *lead = q->s.p[0];
    int n = 0;
    for (int i = 0; i < q->s.n; i++) {
        n += q->s.p[i]->op.n;
        if (nlong(q->s.p[i]->op.t[0]) > nlong(lead->op.t[0])) lead = q->s.p[i];
    }
    if (n > MEMBERS_MOST || !nlong(lead->op.t[0])) return false;
    Kernel *k = w->k = NEW(c->a, Kernel);
    *k = *lead->op.kernel;
    *k = (Kernel){.p = x->p,
                  .c = c,
                  .a = c->a,
                  .s = k->s,
                  .lanes = 1,
                  .kind = KERNEL_THREADS,
                  .n = n,
                  .apiece = e_int(c, 1)};
    k->t = NEWN(c->a, Tensor *, n);
    k->value = NEWN(c->a, Expr *, n);
    k->position = NEWN(c->a, Expr *, n);
    w->m = NEWN(c->a, WithinMember, n);
    const Tensor *first = lead->op.t[0];
    for (int d = 0; d < first->rank; d++)
        if (!e_is_ival(first->dim[d], 1)) k->axis[k->naxis++] = axis_new(c, first->dim[d]);
    int at = 0;
    for (int i = 0; i < q->s.n; i++) {
        const Stmt *s = q->s.p[i];
        const Tensor *t = s->op.t[0];
        Axis *split = NULL;
        Expr *idx[MAX_RANK];
        bool row;
        if (!has_axes(k, t, &row) || s->level != lead->level) return false;
        own_position(x, t, NULL, idx);
        for (int d = 0, j = 0; d < t->rank; d++) {
            if (e_is_ival(t->dim[d], 1)) continue;
            if (t->axis[d] == s->op.split) split = k->axis[j];
            j++;
        }
        if (!split && s->op.split) return false;
        if (i == 0) {
            k->split = split;
            if (split) k->grain = e_int(c, s->op.grain);
        }
        if (split != k->split || (split && k->grain != e_int(c, s->op.grain))) return false;
        for (int m = 0; m < s->op.n; m++, at++) {
            k->t[at] = s->op.t[m];
            k->value[at] = e_subst(c, s->op.t[m]->body, t->rank, t->axis, idx, NULL, NULL);
            k->position[at] = flat_index_of(c, s->op.t[m], idx);
            w->m[at] = (WithinMember){.row = row, .carry = -1};
            x->lanes |= row;
        }
    }
    return true;
}

/* Which members are carried and stacked; false: one that is is not theirs. */
static bool find_results(Look *x) {
    Within *w = x->w;
    const Stmt *s = x->loop;
    bool row;
    w->next = NEWN(x->c->a, int, s->loop.carry.n + 1);
    for (int i = 0; i < s->loop.carry.n; i++) {
        const int m = w->next[i] = member_of(w, s->loop.carry.p[i].next);
        if (m < 0 || !has_axes(w->k, s->loop.carry.p[i].phi, &row) || row != w->m[m].row)
            return false;
        w->m[m].carry = i;
    }
    for (int i = 0; i < s->loop.scan.n; i++) {
        const int m = member_of(w, s->loop.scan.p[i].elem);
        if (m < 0 || w->m[m].scan) return false;
        w->m[m].scan = &s->loop.scan.p[i];
    }
    return true;
}

static bool has_inside_sum(const Look *x, const Expr *e) {
    if (!(e->flags & EF_REDUCE)) return false;
    if (e->op == E_REDUCE && reads_inside(x, (Expr *)(uintptr_t)e)) return true;
    for (int i = 0; i < e->n; i++)
        if (has_inside_sum(x, e->a[i])) return true;
    return false;
}

/* The lanes' axis, if there is one; false: it has too many positions, or units share it. */
static bool choose_lanes(Look *x) {
    Within *w = x->w;
    Kernel *k = w->k;
    int64_t n;
    for (int i = 0; i < k->n && !x->lanes; i++) x->lanes = has_inside_sum(x, k->value[i]);
    w->width = 1;
    if (!x->lanes) return true;
    w->lane = k->axis[k->naxis - 1];
    if (w->lane == k->split || !e_is_int(w->lane->extent, &n) || n < 2 || n > LANES_MOST)
        return false;
    while (w->width < n) w->width *= 2;
    return true;
}

/* Finds sums and loads; false: a late sum is also an early one. */
static bool look_values(Look *x) {
    Within *w = x->w;
    w->sum.n = w->own.n = w->fixed.n = w->fetch.n = w->ahead.n = 0;
    for (x->late = 0; x->late < 2; x->late++) {
        x->seen = map_new(x->c->a);
        for (int i = 0; i < w->k->n; i++)
            if (w->m[i].late == x->late)
                look(x, w->k->value[i], true, x->late ? &w->ahead : &w->fetch);
    }
    return !x->both;
}

/* ---- the block's memory ---------------------------------------------------------------------- */
const WithinStage *within_stage(const Within *w, const Expr *load) {
    for (int i = 0; i < w->stage.n; i++)
        if (w->stage.p[i].load == load) return &w->stage.p[i];
    return NULL;
}

static void add_stage(Look *x, Expr *e) {
    Within *w = x->w;
    const Kernel *k = w->k;
    const int n = k->naxis - (w->lane != NULL);
    if (e->dtype != DT_F32 || e->t->kind == TK_CONST || within_stage(w, e)) return;
    WithinStage s = {.load = e, .rows = 1, .lanes = 1};
    for (int d = 0; d < n; d++)
        if (e_uses_axis(e, k->axis[d])) s.rows = w->rows;
    if (w->lane && e_uses_axis(e, w->lane)) s.lanes = (int)axis_size(w->lane, 1);
    vec_push(x->c->a, &w->stage, s);
}

/* What iterations load in common, where tensors lie in memory that all blocks have. */
static void choose_stages(Look *x) {
    Within *w = x->w;
    const Kernel *k = w->k;
    const Schedule *sc = x->p->schedule;
    const int most = sc->device->threads / w->width, warp = sc->device->warp / w->width;
    int64_t rows = 1, words = 0;
    for (int d = 0; d < k->naxis - (w->lane != NULL); d++)
        if (!mul_size(rows, axis_size(k->axis[d], INT32_MAX), &rows)) rows = INT32_MAX;
    if (k->split) rows = div_up(rows, schedule_units(sc, k->s->level));
    w->rows = rows < most ? (int)round_up(rows, warp) : most;
    if (k->s->level != LEVEL_TEAM && x->p->mem->distributed) return;
    for (int i = 0; i < w->fetch.n; i++) add_stage(x, w->fetch.p[i]);
    for (int i = 0; i < w->ahead.n; i++) add_stage(x, w->ahead.p[i]);
    for (int i = 0; i < w->stage.n; i++) words += 2 * w->stage.p[i].rows * w->stage.p[i].lanes;
    w->chunk = CHUNK;
    while (w->chunk > w->steps && w->chunk * words * 4 > STAGE_BYTES) w->chunk /= 2;
    if (!words || w->chunk * words * 4 > STAGE_BYTES) w->chunk = w->stage.n = 0;
    for (int i = 0, at = 0; i < w->stage.n; i++) {
        w->stage.p[i].at = at;
        at += 2 * w->chunk * w->stage.p[i].rows * w->stage.p[i].lanes;
        w->k->scratch = (int64_t)at * 4;
    }
}

/* Loads of an iteration that are not copied. */
static int in_registers(const Within *w) {
    int n = 0;
    for (int i = 0; i < w->fetch.n; i++) n += !within_stage(w, w->fetch.p[i]);
    return n;
}

static bool within_plan(Look *x) {
    Within *w = x->w;
    if (!join_groups(x) || !find_results(x) || !choose_lanes(x)) return false;
    for (int i = 0; i < w->k->n; i++)
        if (w->m[i].row && !is_of_row(x, map_new(x->c->a), w->k->value[i])) return false;
    find_late(x);
    if (!look_values(x)) {
        forget_late(w);
        look_values(x);
    }
    if (!x->legal) return false;
    w->steps = w->batch ? w->width : STEPS;
    choose_stages(x);
    if (w->batch && (in_registers(w) + 1) * w->steps > REGISTERS) {
        forget_late(w);
        look_values(x);
        w->steps = STEPS;
    }
    while (w->steps > 1 && in_registers(w) * w->steps > REGISTERS) w->steps /= 2;
    return true;
}

/* ---- time ------------------------------------------------------------------------------------ */
#define LATENCY 4.0 /* cycles until what depends on an instruction begins */

/* What a thread computes for e, as far as not seen yet: one behind the other where it waits for the
 * iteration before; the rest of several iterations goes on side by side. */
static double chain_ns(const Look *x, Map *seen, Expr *e, double together) {
    if (e->pure || e->op == E_AXIS || !map_add(seen, (uint64_t)e->id + 1)) return 0;
    double ns = 0, terms = 1;
    if (e->op != E_LOAD && e->op != E_REDUCE) {
        ns = cost_wait_ns(x->p->schedule->device, e->op);
        if (!reads_inside(x, e)) ns /= fmin(together, LATENCY);
    }
    if (e->op == E_REDUCE)
        for (int i = 0; i < e->naxis; i++) terms *= cost_size(e->raxis[i]->extent);
    for (int i = 0; i < e->n; i++) ns += terms * chain_ns(x, seen, e->a[i], together);
    return ns;
}

/* Of an iteration, by the busiest unit. */
static double step_ns(const Look *x) {
    const Within *w = x->w;
    const Kernel *k = w->k;
    const Schedule *sc = x->p->schedule;
    const Device *d = sc->device;
    Map *seen = map_new(x->c->a);
    /* Iterations that are left over go one by one. */
    const double together = cost_size(x->loop->loop.trips) < w->steps ? 1 : w->steps;
    double ns = 0, rows = 1;
    for (int i = 0; i < w->sum.n; i++) { /* its terms are not computed again by members */
        ns += chain_ns(x, seen, w->sum.p[i].term, together);
        const bool late = w->sum.p[i].late && together > 1;
        ns += d->shuffle_ns * (late ? (w->width - 1) / together : log2(w->width));
        map_add(seen, (uint64_t)w->sum.p[i].e->id + 1);
    }
    for (int i = 0; i < k->n; i++) ns += chain_ns(x, seen, k->value[i], together);
    ns += w->stage.n * (d->cycle_ns + d->core_load_ns / 8);
    ns += in_registers(w) * d->cycle_ns;
    if (in_registers(w)) ns += d->load_ns * ceil(w->steps / 8.0) / w->steps;
    for (int i = 0; i < k->naxis - (w->lane != NULL); i++) rows *= cost_size(k->axis[i]->extent);
    if (k->split) rows = ceil(rows / schedule_units(sc, k->s->level));
    return ns * ceil(rows / w->rows);
}

static void visit(void *user, Stmt *s) {
    Program *p = user;
    if (s->kind != S_LOOP || !plain_loop(s)) return;
    Look x = {.p = p, .c = p->cx, .loop = s, .legal = true, .w = NEW(p->cx->a, Within)};
    if (!within_plan(&x)) return;
    const int units = schedule_units(p->schedule, s->level);
    const double plain = cost_stmt_ns(p, s, units);
    s->loop.within = x.w;
    s->loop.step_ns = step_ns(&x);
    if (!decide(p, X_WITHIN, s, plain, cost_stmt_ns(p, s, units))) s->loop.within = NULL;
}

void loops_within(Program *p) {
    if (p->nfunc || !device_is_gpu(p->schedule->device)) return;
    seq_each(p->top, visit, p);
}
