/* distribute.c: which unit owns which part of every group.
 *
 * A group is split along one axis of its domain: unit u owns a contiguous range of it, in grains.
 * Two groups that split equal extents hand values over without a barrier where the reader's
 * position along the split dimension is its own split axis. So the axis is chosen that makes most
 * reads of freshly computed tensors private; among equals the one with more work to share. Loop
 * bodies are visited twice, so that a carried value's reader sees how its writer is split. */
#include "scheduler/plan/distribute.h"
#include "scheduler/plan/parts.h"
#include "scheduler/plan/windowed.h"
#include "scheduler/cost/cost.h"
#include "scheduler/cost/decide.h"
#include "scheduler/passes.h"
#include "utask/softmax_sum.h"
#include "utask/product.h"
#include "utask/walk.h"

#include <math.h>

#if BRAID_TINY /* small tensors belong to several units, too */
#define TINY_GRAIN 1
#else
#define TINY_GRAIN 0
#endif

#define COPY_NS 9      /* of a GPU's thread for an element */
#define SECOND_MOST 64 /* groups that may be shared along two axes */
#define MANY_PARTS 16  /* more do not share better */
#define FEW_GRAINS 4   /* for each unit: one more or less would matter */

typedef struct Owner { /* how a tensor's memory is written */
    bool known;
    Part part;
} Owner;

typedef struct Pieces { /* of n positions along dimension dim; n = 0: any */
    int dim, n;
} Pieces;

typedef struct Dist {
    Program *p;
    Cx *c;
    Owner *owner; /* by tensor id */
    uint32_t
        *friendly;  /* by tensor id: dims along which every reader moves with an axis of its own */
    Pieces *pieces; /* by tensor id: in which a reader wants it */
    uint32_t *windowed;   /* windowed_dims(); NULL: not known */
    const Expr *favoured; /* extent of the axes to split where there is a choice */
    int crossings;        /* groups that read what other units wrote */
    Level level;          /* of the units that share what is here… */
    int unit;             /* … and the first of them */
    int grain;            /* of long axes */
    bool fine;            /* what is run in parts is shared, also where one unit runs, row by row */
    bool settled;      /* groups are split already: only owners and crossings are looked for… */
    int fewest, tried; /* … without second axes; groups for which one was tried */
    Map *wanted; /* group -> dimensions to split, a bit each, where more than scores is known; else
                    0 */
} Dist;

typedef struct Columns {
    const Axis *x;
    bool found;
} Columns;

static bool has_columns(void *user, Expr *e) {
    Columns *k = user;
    SumProduct p;
    if (!product_of_bytes(e, &p) && !product_of(e, &p)) return false;
    for (int i = 0; i < 2; i++)
        k->found |= p.load[i] && p.load[i]->t->kind == TK_CONST && e_uses_axis(p.factor[i], k->x) &&
                    !e_uses_axis(p.factor[!i], k->x);
    return k->found;
}

/* Whether the group has sums of products with constants that alone move along axis x: kernels lay
 * it over vector lanes. */
static bool is_columns(const Dist *d, const Stmt *s, const Axis *x) {
    Columns k = {x, false};
    Map *seen = map_new(d->c->a);
    for (int i = 0; i < s->op.n && !k.found; i++)
        find_reduction(seen, s->op.t[i]->body, false, has_columns, &k);
    return k.found;
}

/* Contiguous axes are split by cache lines, so that units do not write to one line, and long ones
 * by whole vectors, and so are those that kernels lay over lanes; others of which units have few
 * grains each, or of which only the run knows how many there are, element by element. For blocks of
 * threads neither matters: they have what others read piece by piece in whole pieces. */
static int grain_of(const Dist *d, const Stmt *s, int dim, const Expr *extent) {
    const bool last = dim == s->op.t[0]->rank - 1;
    const int64_t grain = d->grain, units = schedule_units(d->p->schedule, s->level);
    int64_t n;
    for (int i = 0; i < s->op.n; i++) {
        const Pieces *k = &d->pieces[s->op.t[i]->id];
        if (k->n && k->dim == dim && extent == s->op.t[0]->dim[dim]) return k->n;
    }
    if (TINY_GRAIN || device_is_gpu(d->p->schedule->device)) return 1;
    if (d->fine && !last) return 1;
    if (!e_is_int(extent, &n)) return last ? (int)grain : 1;
    if (n < 16 ||
        (!last && n < FEW_GRAINS * grain * units && !is_columns(d, s, s->op.t[0]->axis[dim])))
        return 1;
    return n < 2 * grain || n < grain * units ? 16 : (int)grain;
}

const Part part_whole = {PART_WHOLE, 0, 0, 0, NULL, 0}, part_solo = {PART_SOLO, 0, 0, 0, NULL, 0};

bool part_same(Part a, Part b) {
    return a.kind == b.kind && a.kind != PART_WHOLE && a.dim == b.dim && a.extent == b.extent &&
           a.edge == b.edge && a.grain == b.grain && a.level == b.level;
}

Part part_of_unit(int unit) { return (Part){PART_SOLO, unit, 0, 0, NULL, 0}; }

/* The part of dimension dim that the units have who compute the group, `shift` positions further
 * on. */
static Part part_split(const Stmt *s, int dim, int64_t shift) {
    return (Part){PART_SPLIT,
                  dim,
                  s->op.grain,
                  s->level,
                  s->op.inner ? s->op.inner : s->op.split->extent,
                  s->op.edge + shift};
}

/* The dimension of t that the member's split axis runs along: members are written at their own
 * axes. */
Part part_written(const Stmt *s) {
    const Tensor *lead = s->op.t[0];
    if (!s->op.split) return part_solo;
    if (s->op.band || s->op.second) return part_whole; /* a unit's part is of no grains */
    for (int d = 0; d < lead->rank; d++)
        if (lead->axis[d] == s->op.split) return part_split(s, d, 0);
    return part_whole;
}

typedef struct ReadScan {
    Cx *c;
    const Tensor *t;
    Axis *split;
    int dim; /* -2: nothing seen, -1: whole */
    int64_t shift;
    int64_t piece;      /* of so many positions for each of the split axis */
    const Expr *extent; /* piece > 1: of which */
} ReadScan;

/* idx = x + shift, shift a constant. */
static bool is_shifted(Cx *c, Expr *idx, Axis *x, int64_t *shift) {
    return e_uses_axis(idx, x) && e_is_int(e_sub(c, idx, e_axis(c, x)), shift);
}

/* Whether idx goes through piece number x of an extent that is cut into pieces of *n > 1 positions:
 * n x + r where 0 <= r < n; the last piece may be shorter, then idx may stay at the last position.
 */
static bool is_piece(Cx *c, Expr *idx, Axis *x, const Expr *extent, int64_t *n) {
    int64_t all, parts, last, lo, hi;
    Expr *coef, *rest;
    if (!e_uses_axis(idx, x) || !e_is_int(extent, &all) || !e_is_int(x->extent, &parts))
        return false;
    for (int i = 0; idx->op == E_MIN && i < 2; i++)
        if (e_is_int(idx->a[i], &last) && last == all - 1) idx = idx->a[1 - i];
    return e_affine(c, idx, x, &coef, &rest) && e_is_int(coef, n) && *n > 1 && *n <= INT32_MAX &&
           e_range(rest, &lo, &hi) && lo >= 0 && hi < *n && parts == div_up(all, *n);
}

int part_pieces(const Program *p, const Expr *e, const Tensor *lead, int64_t *n) {
    const Schedule *plan = p->schedule;
    int dim = -1, cut = 0;
    int64_t size;
    if (!device_is_gpu(plan->device) || e->kind) return -1;
    for (int d = 0; d < e->n; d++)
        for (int i = 0; i < lead->rank; i++) {
            if (!is_piece(p->cx, e->a[d], lead->axis[i], e->t->dim[d], &size)) continue;
            if (3 * axis_size(lead->axis[i], 0) >= 2 * plan->units) dim = d, *n = size;
            cut++;
        }
    return cut == 1 ? dim : -1;
}

static void read_load(void *user, Expr *e) {
    ReadScan *r = user;
    if (e->t != r->t || r->dim == -1) {
        if (e->t->kind == TK_VIEW && e->t->base == r->t) r->dim = -1;
        return;
    }
    int dim = -1;
    int64_t shift = 0, piece = 1, by;
    for (int d = 0; d < e->t->rank && !e->kind; d++)
        if (is_shifted(r->c, e->a[d], r->split, &by) && (by || e->t->dim[d] == r->split->extent))
            dim = d, shift = by, piece = 1;
        else if (is_piece(r->c, e->a[d], r->split, e->t->dim[d], &by))
            dim = d, shift = 0, piece = by, r->extent = e->t->dim[d];
    r->dim = r->dim == -2 || (r->dim == dim && r->shift == shift && r->piece == piece) ? dim : -1;
    r->shift = shift;
    r->piece = piece;
}

Part part_read(Cx *c, const Stmt *s, const Tensor *t) {
    if (!s->op.split) return part_solo;
    if (s->op.band || s->op.second) return part_whole;
    ReadScan r = {c, t, s->op.split, -2, 0, 1, NULL};
    stmt_loads(c, s, read_load, &r);
    if (r.dim < 0 || (r.piece > 1 && s->op.inner)) return part_whole;
    Part p = part_split(s, r.dim, r.shift);
    if (r.piece > 1) {
        p.grain *= (int)r.piece;
        p.extent = r.extent;
    }
    return p;
}

/* ---- choosing -------------------------------------------------------------------------------- */
typedef struct Fresh {
    Dist *d;
    VEC(const Tensor *) t;
} Fresh;

static void fresh_load(void *user, Expr *e) {
    Fresh *f = user;
    const Tensor *t = tensor_root(e->t);
    if (!f->d->owner[t->id].known) return;
    for (int i = 0; i < f->t.n; i++)
        if (f->t.p[i] == t) return;
    vec_push(f->d->c->a, &f->t, t);
}

/* A tensor that the group reads shifted along axis x, as one that is padded is: its size along it,
 * and where it begins. */
typedef struct Inner {
    Cx *c;
    Axis *x;
    Expr *extent;
    int64_t edge;
} Inner;
static void inner_load(void *user, Expr *e) {
    Inner *k = user;
    int64_t shift, n, all;
    if (e->kind || k->extent || !e_is_int(k->x->extent, &all)) return;
    for (int d = 0; d < e->t->rank; d++)
        if (is_shifted(k->c, e->a[d], k->x, &shift) && shift < 0 && e_is_int(e->t->dim[d], &n) &&
            n - shift <= all) {
            k->extent = e->t->dim[d];
            k->edge = -shift;
        }
}

/* How good it is to split along dimension k as s says. */
static int64_t split_score(Dist *d, const Stmt *s, int k, const Tensor *const *fresh, int nfresh) {
    const Tensor *lead = s->op.t[0];
    const Expr *extent = s->op.inner ? s->op.inner : s->op.split->extent;
    int64_t n = 0, score = 0;
    bool known = e_is_int(extent, &n), last = k == lead->rank - 1, sums = false;
    int64_t parts = (n + s->op.grain - 1) / s->op.grain;
    if (known && parts < 2) return -1;
    if (!known && d->windowed && d->windowed[lead->id] >> k & 1) known = true, parts = MANY_PARTS;
    for (int i = 0; i < s->op.n; i++) sums |= lead->rank > 2 && s->op.t[i]->body->flags & EF_REDUCE;
    for (int i = 0; i < s->op.n; i++) score += d->friendly[s->op.t[i]->id] >> k & 1 ? 20 : 0;
    for (int i = 0; i < nfresh; i++)
        if (part_same(part_read(d->c, s, fresh[i]), d->owner[fresh[i]->id].part)) score += 1000;
    /* More parts share better. */
    if (extent == d->favoured) score += 100;
    const Schedule *plan = d->p->schedule;
    const int units = schedule_units(plan, s->level);
    if (device_is_gpu(plan->device))
        score += 40 * (parts < units ? parts : units) / units;
    else
        score += parts >= MANY_PARTS ? 9 : parts >= 8 ? 8 : parts >= 4 ? 6 : parts >= 2 ? 3 : 1;
    /* Sums for neighbours along the last axis are computed together: parts of it should be long. */
    if (last && sums && n < 256 && !device_is_gpu(plan->device))
        score = score > 30 ? score - 30 : 1;
    /* It may be 1: then nothing would be shared. Of an image the first one, the batch, often is. */
    if (!known) score = lead->rank > 3 && k == 0 ? 3 : 4;
    if (s->op.at && s->op.at[k]) score -= 3; /* no reader has the same part */
    /* Parts that fill no vector are computed without any. */
    if (known && n && n < plan->lanes && is_columns(d, s, lead->axis[k])) score = 2;
    return score;
}

/* One unit computes everything, in the order in which it is stored. */
static bool is_one(const Schedule *k) { return k->units == 1 && !device_is_gpu(k->device); }

/* What s reads at its own positions along dimension k may have been shared in larger grains. */
static int grain_read(const Dist *d, const Stmt *s, int k, const Tensor *const *fresh, int n) {
    const Tensor *lead = s->op.t[0];
    for (int i = 0; i < n && device_is_gpu(d->p->schedule->device) && !s->op.inner; i++) {
        const Part *p = &d->owner[fresh[i]->id].part;
        if (p->kind == PART_SPLIT && p->grain > 1 && p->extent == lead->dim[k] &&
            part_read(d->c, s, fresh[i]).extent == p->extent)
            return p->grain;
    }
    return s->op.grain;
}

/* Notes who writes what s computes, and whether it reads what others wrote. */
static void own_group(Dist *d, const Stmt *s, const Fresh *f) {
    bool crossing = false;
    for (int i = 0; i < f->t.n; i++)
        crossing |= !part_same(part_read(d->c, s, f->t.p[i]), d->owner[f->t.p[i]->id].part);
    d->crossings += crossing;
    for (int i = 0; i < s->op.n; i++) d->owner[s->op.t[i]->id] = (Owner){true, part_written(s)};
}

static void choose(Dist *d, Stmt *s) {
    Tensor *lead = s->op.t[0];
    if (!d->settled) s->op.inner = NULL, s->op.edge = 0;
    if (s->each) {
        s->op.split = NULL;
        return;
    }
    const Schedule *plan = d->p->schedule;
    if (d->level == LEVEL_CORE || s->level == LEVEL_CORE ||
        (is_one(plan) && !d->fine)) { /* nothing is shared */
        s->op.split = NULL;
        for (int i = 0; i < s->op.n; i++)
            d->owner[s->op.t[i]->id] = (Owner){true, part_of_unit(d->unit)};
        return;
    }
    Fresh f = {.d = d};
    stmt_loads(d->c, s, fresh_load, &f);
    if (d->settled) {
        own_group(d, s, &f);
        return;
    }
    Inner best = {0};
    int64_t best_score = 0;
    int grain = 1;
    const uint32_t wanted = (uint32_t)(uintptr_t)map_geti(d->wanted, (uint64_t)(uintptr_t)s);
    for (int k = 0; k < lead->rank; k++) {
        if (wanted && !(wanted >> k & 1)) continue;
        Axis *x = lead->axis[k];
        bool last = k == lead->rank - 1;
        Inner inner = {.c = d->c, .x = x};
        if (!s->op.at) stmt_loads(d->c, s, inner_load, &inner);
        for (int whole = 0; whole < 2; whole++) {
            if (!whole && !inner.extent) continue;
            s->op.split = x;
            s->op.inner = whole ? NULL : inner.extent;
            s->op.edge = whole ? 0 : inner.edge;
            s->op.grain = grain_of(d, s, k, whole ? x->extent : inner.extent);
            s->op.grain = grain_read(d, s, k, f.t.p, f.t.n);
            int64_t score = split_score(d, s, k, f.t.p, f.t.n);
            if (score < 0 || !(last && whole ? score >= best_score : score > best_score)) continue;
            best = whole ? (Inner){.x = x} : inner;
            best_score = score;
            grain = s->op.grain;
        }
    }
    s->op.split = best.x;
    s->op.grain = grain;
    s->op.inner = best.extent;
    s->op.edge = best.edge;
    own_group(d, s, &f);
}

static void walk(Dist *d, Seq *q);

/* Leaves in d->crossings those of the loop, added to what was counted before. */
static void walk_loop(Dist *d, Stmt *s) {
    int before = d->crossings;
    /* A second time, now that the owners of the carried values are known; not in deep nests, where
     * that would multiply. */
    for (int pass = s->loop.body->depth <= 4 ? 0 : 1; pass < 2; pass++) {
        d->crossings = before;
        walk(d, s->loop.body);
        for (int k = 0; k < s->loop.carry.n; k++)
            d->owner[s->loop.carry.p[k].phi->id] = d->owner[s->loop.carry.p[k].next->id];
    }
}

typedef struct Extents { /* distinct ones of axes */
    const Expr *e[8];
    int n;
} Extents;

static void note_extents(void *user, Stmt *s) {
    Extents *x = user;
    for (int k = 0; s->kind == S_OP && k < s->op.t[0]->rank; k++) {
        const Expr *e = s->op.t[0]->dim[k];
        int64_t v;
        int j = 0;
        if (e_is_int(e, &v) && v < 2) continue;
        while (j < x->n && x->e[j] != e) j++;
        if (j == x->n && x->n < (int)COUNT(x->e)) x->e[x->n++] = e;
    }
}

/* Tries each extent as the favoured one for the whole of an outermost loop and keeps the one with
 * the fewest crossings. */
static void best_for_loop(Dist *d, Stmt *s) {
    Extents x = {.n = 0};
    int before = d->crossings, best = -1, fewest = INT32_MAX;
    seq_each_here(s->loop.body, note_extents, &x);
    for (int i = -1; i < x.n; i++) {
        d->favoured = i < 0 ? NULL : x.e[i];
        d->crossings = 0;
        walk_loop(d, s);
        if (d->crossings < fewest) fewest = d->crossings, best = i;
    }
    d->favoured = best < 0 ? NULL : x.e[best];
    d->crossings = before;
    walk_loop(d, s);
    d->favoured = NULL;
}

/* ---- loops in parts -------------------------------------------------------------------------- */
typedef struct LoopReads {
    Dist *d;
    const Stmt *loop, *s; /* s: at hand */
    bool crosses;
} LoopReads;

static void own_load(void *user, Expr *e) {
    LoopReads *k = user;
    const Tensor *t = tensor_root(e->t);
    if (!seq_inside(t->seq, k->loop->loop.body)) return;
    for (int i = 0; k->s->kind == S_OP && i < k->s->op.n; i++)
        if (k->s->op.t[i] == t) return; /* members are read at their own positions */
    const Owner *o = &k->d->owner[t->id];
    if (k->s->kind != S_OP || !o->known || !part_same(part_read(k->d->c, k->s, t), o->part))
        k->crosses = true;
}

static void own_slot(void *user, const Slot *x) {
    LoopReads *k = user;
    if (slot_is_expr(x)) e_each_load(k->d->c, *x->e, own_load, k);
}

static void own_stmt(void *user, Stmt *s) {
    LoopReads *k = user;
    k->s = s;
    if (s->kind == S_OP) {
        k->crosses |= !s->op.split && !op_is_empty(s);
        stmt_loads(k->d->c, s, own_load, k);
    } else
        stmt_slots(s, own_slot, k);
}

/* Whether what a unit reads in the loop, of what is written there, is its own. */
static bool is_own(Dist *d, Stmt *s) {
    LoopReads k = {.d = d, .loop = s};
    seq_each_here(s->loop.body, own_stmt, &k);
    own_stmt(&k, s);
    return !k.crosses;
}

/* An outermost loop: in parts where that pays. */
static void share_loop(Dist *d, Stmt *s) {
    s->loop.parts = 1;
    if (parts_possible(d->p, s)) {
        const size_t n = sizeof *d->owner * ((size_t)d->p->cx->next_tensor + 1);
        Owner *before = arena_memdup(d->c->a, d->owner, n);
        d->fine = true;
        best_for_loop(d, s);
        if (is_own(d, s)) s->loop.parts = parts_choose(d->p, s);
        d->fine = false;
        if (s->loop.parts > 1) return;
        memcpy(d->owner, before, n);
    }
    best_for_loop(d, s);
}

/* Of a branch's result: what both arms agree on. A call that is not known yet agrees with anything.
 */
static Owner joined(const Dist *d, const Join *j) {
    Owner r = {0};
    for (int k = 0; k < 2; k++) {
        if (!j->arm[k] || j->arm[k]->kind == TK_VIEW) continue;
        Owner o = d->owner[j->arm[k]->id];
        if (!o.known && j->arm[k]->kind == TK_CALL) continue;
        if (!o.known || (r.known && !part_same(r.part, o.part)))
            return d->settled && (o.known || r.known) ? (Owner){true, part_whole} : (Owner){0};
        r = o;
    }
    return r;
}

static void walk(Dist *d, Seq *q) {
    const Level level = d->level;
    const int unit = d->unit;
    for (int i = 0; i < q->s.n; i++) {
        Stmt *s = q->s.p[i];
        const bool apart = stmt_apart(s, level);
        d->level = apart ? s->level : level;
        d->unit = apart ? unit + s->unit : unit;
        switch (s->kind) {
        case S_OP: choose(d, s); break;
        case S_EXTERN:
            for (int k = 0; k < s->ext.nout && !s->each && !s->ext.host; k++)
                d->owner[s->ext.out[k]->id] = (Owner){true, part_solo};
            break;
        case S_BRANCH:
            walk(d, s->br.arm[0]);
            walk(d, s->br.arm[1]);
            for (int k = 0; k < s->br.joins.n; k++)
                d->owner[s->br.joins.p[k].out->id] = joined(d, &s->br.joins.p[k]);
            break;
        case S_LOOP:
            if (s->loop.body->depth == 1 && !d->settled)
                share_loop(d, s);
            else
                walk_loop(d, s);
            break;
        case S_CALL:
            /* Twice, so that callers see how results are written. */
            for (int k = 0; k < s->call.nfunc * 2; k++)
                walk(d, s->call.func[k % s->call.nfunc]->body);
            for (int k = 0; k < s->call.f->nout && !stmt_split(s); k++)
                d->owner[s->call.out[k]->id] = d->owner[s->call.f->out[k]->id];
            break;
        default: break;
        }
    }
    d->level = level;
    d->unit = unit;
}

/* ---- what readers would like ----------------------------------------------------------------- */
typedef struct Reader {
    Dist *d;
    const Tensor *lead;
} Reader;

static void reader_load(void *user, Expr *e) {
    Reader *r = user;
    const Tensor *t = tensor_root(e->t);
    uint32_t mask = 0;
    int64_t n;
    for (int k = 0; k < e->t->rank && !e->kind && t == e->t; k++)
        for (int i = 0; i < r->lead->rank; i++)
            if (e->a[k]->op == E_AXIS && e->a[k]->axis == r->lead->axis[i] &&
                t->dim[k] == r->lead->dim[i])
                mask |= 1u << k;
    const int dim = t == e->t ? part_pieces(r->d->p, e, r->lead, &n) : -1;
    if (dim >= 0) {
        r->d->pieces[t->id] = (Pieces){dim, (int)n};
        mask |= 1u << dim;
    }
    r->d->friendly[t->id] &= mask;
}

static void readers(void *user, Stmt *s) {
    Dist *d = user;
    if (s->kind != S_OP) return;
    Reader r = {d, s->op.t[0]};
    stmt_loads(d->c, s, reader_load, &r);
}

/* ---- what is out of the question ------------------------------------------------------------- */
/* Bytes that a unit loads when the parts that units have are positions of axis x. */
typedef struct Traffic {
    const Axis *x;
    double parts, bytes;
} Traffic;

static void traffic_load(void *user, Expr *e) {
    Traffic *k = user;
    double bytes = (double)dtype_size(e->dtype);
    for (int d = 0; d < e->t->rank && !e->kind; d++)
        if (e->a[d]->flags & EF_AXIS) bytes *= cost_size(e->t->dim[d]);
    k->bytes += e_uses_axis(e, k->x) ? bytes / k->parts : bytes;
}

/* What a unit copies to multiply it. The operands of a sum of products are copied for each position
 * and each step, an image's pixel as often as there are windows that it is in. */
typedef struct Copies {
    const Tensor *lead;
    const Axis *x;
    double parts, elements;
} Copies;

static bool count_copies(void *user, Expr *e) {
    Copies *k = user;
    SumProduct p;
    if (!product_of(e, &p)) return false;
    for (int i = 0; i < 2; i++) {
        double n = 1;
        for (int d = 0; d < k->lead->rank; d++)
            if (e_uses_axis(p.factor[i], k->lead->axis[d]))
                n *=
                    cost_size(k->lead->axis[d]->extent) / (k->lead->axis[d] == k->x ? k->parts : 1);
        for (int d = 0; d < e->naxis; d++)
            if (e_uses_axis(p.factor[i], e->raxis[d])) n *= cost_size(e->raxis[d]->extent);
        k->elements += n;
    }
    return false; /* all of them */
}

/* On GPUs, where units are many: the dimensions of s where a unit does not load so much that
 * barriers around the group would cost less. A bit each. */
static uint32_t fair_splits(const Dist *d, Stmt *s, double ns) {
    const Schedule *plan = d->p->schedule;
    const Tensor *lead = s->op.t[0];
    const int units = schedule_units(plan, s->level);
    double time[MAX_RANK], best = 0, shared = ns - plan->device->group_ns;
    uint32_t fair = 0;
    for (int k = 0; k < lead->rank; k++) {
        int64_t size, grain = grain_of(d, s, k, lead->axis[k]->extent);
        if (!e_is_int(lead->axis[k]->extent, &size)) return UINT32_MAX;
        double parts = (double)((size + grain - 1) / grain);
        if (parts > units) parts = units;
        Traffic t = {.x = lead->axis[k], .parts = parts};
        stmt_loads(d->c, s, traffic_load, &t);
        Copies c = {.lead = lead, .x = lead->axis[k], .parts = parts};
        Map *seen = map_new(d->c->a);
        for (int i = 0; i < s->op.n; i++)
            find_reduction(seen, s->op.t[i]->body, false, count_copies, &c);
        s->op.split = lead->axis[k];
        s->op.grain = (int)grain;
        time[k] = fmax(shared * units / parts, cost_stmt_ns(d->p, s, units)) +
                  t.bytes / plan->device->level[LEVEL_TEAM].read_gbps +
                  c.elements / plan->device->threads * COPY_NS;
        s->op.split = NULL;
        s->op.grain = 0;
        if (k == 0 || time[k] < best) best = time[k];
    }
    for (int k = 0; k < lead->rank; k++)
        if (time[k] <= best + 2 * plan->device->level[s->level].barrier_ns) fair |= 1u << k;
    return fair;
}

/* On CPUs: the dimensions of s along which units share work. Along the lanes of a softmax-weighted
 * sum each unit would compute all scores. */
static uint32_t shared_splits(const Dist *d, const Stmt *s) {
    const Tensor *lead = s->op.t[0];
    SoftmaxSum a;
    uint32_t shared = UINT32_MAX;
    for (int i = 0; i < s->op.n; i++)
        for (int k = 0; softmax_sum_find(d->c, s->op.t[i]->body, &a) && k < lead->rank; k++)
            if (!e_uses_axis(a.score, lead->axis[k])) shared &= ~(1u << k);
    return shared;
}

/* ---- what was measured ----------------------------------------------------------------------- */
/* Groups that can be split along several dimensions: which one is a choice. 0: by scores. */
static void choose_wanted(void *user, Stmt *s) {
    Dist *d = user;
    const Schedule *plan = d->p->schedule;
    if (s->kind != S_OP || s->each || s->level == LEVEL_CORE) return;
    const Tensor *lead = s->op.t[0];
    double ns = cost_group_ns(d->p, s, schedule_units(plan, s->level));
    uint32_t fair = device_is_gpu(plan->device) ? fair_splits(d, s, ns) : shared_splits(d, s);
    if (fair) map_seti(d->wanted, (uint64_t)(uintptr_t)s, (void *)(uintptr_t)fair);
    Way way[WAYS_MAX] = {{0, ns}};
    int n = 1;
    for (int k = 0; k < lead->rank; k++) {
        int64_t size, grain = grain_of(d, s, k, lead->axis[k]->extent);
        if (!(fair >> k & 1) && !device_is_gpu(plan->device)) continue;
        if (!e_is_int(lead->axis[k]->extent, &size) || size > grain) way[n++] = (Way){k + 1, ns};
    }
    if (n == 2) return;
    int dim = decide_value(d->p, X_SPLIT, s, n, way);
    if (dim) map_seti(d->wanted, (uint64_t)(uintptr_t)s, (void *)((uintptr_t)1 << (dim - 1)));
}

/* ---- a second axis --------------------------------------------------------------------------- */
/* Whether s is run once, by all units together. */
static bool runs_once(const Stmt *s) {
    if (s->level != LEVEL_TEAM || s->each || s->op.at || s->op.inner || !s->op.split) return false;
    for (const Seq *q = s->op.t[0]->seq; q && q->owner; q = q->parent)
        if (q->owner->kind == S_LOOP || q->owner->kind == S_CALL || q->owner->level != LEVEL_TEAM ||
            stmt_apart(q->owner, LEVEL_TEAM))
            return false;
    return true;
}

/* The axis of group s that units share who would have nothing to do otherwise: of sums of products
 * the columns where units share rows, else the first one of the rows. */
static Axis *second_axis(const Dist *d, const Stmt *s) {
    const Tensor *lead = s->op.t[0];
    Axis *columns = NULL, *row = NULL;
    for (int k = lead->rank - 1; k >= 0; k--) {
        if (axis_size(lead->axis[k], 0) < 2) continue;
        if (is_columns(d, s, lead->axis[k]))
            columns = lead->axis[k];
        else if (lead->axis[k] != s->op.split)
            row = lead->axis[k];
    }
    return !columns || lead->rank < 3 ? NULL : columns == s->op.split ? row : columns;
}

/* Groups that read what other units wrote, with the axes that units share now. */
static int count_crossings(Dist *d) {
    memset(d->owner, 0, sizeof *d->owner * (size_t)(d->p->cx->next_tensor + 1));
    d->crossings = 0;
    walk(d, d->p->top);
    return d->crossings;
}

/* Where a group has fewer parts than there are units, several share each, along a second axis,
 * unless units would have to wait for each other once more. */
static void choose_second(void *user, Stmt *s) {
    Dist *d = user;
    const Schedule *plan = d->p->schedule;
    if (s->kind != S_OP || !runs_once(s)) return;
    Axis *x = second_axis(d, s);
    const int64_t n = axis_size(s->op.split, 0), size = x ? axis_size(x, 0) : 0;
    if (size < 2 || n < 1 || d->tried == SECOND_MOST) return;
    const int64_t most = plan->units / div_up(n, s->op.grain);
    int64_t ways = most < size ? most : size;
    while (ways > 1 && size % ways) ways--;
    if (ways < 2) return;
    d->tried++;
    s->op.second = x;
    s->op.ways = (int)ways;
    const double ns = cost_group_ns(d->p, s, plan->units), fixed = plan->device->group_ns,
                 shared = fixed + (ns > fixed ? ns - fixed : 0) / (double)ways;
    if (count_crossings(d) == d->fewest &&
        decide_value(d->p, X_SECOND, s, 2, (Way[]){{(int)ways, shared}, {1, ns}}) > 1)
        return;
    s->op.second = NULL;
    s->op.ways = 0;
}

static void choose_seconds(Dist *d) {
    d->settled = true;
    d->fewest = count_crossings(d);
    seq_each(d->p->top, choose_second, d);
    d->settled = false;
}

void pass_distribute(Program *p) {
    Dist d = {.p = p, .c = p->cx, .level = LEVEL_TEAM, .grain = 16, .wanted = map_new(p->cx->a)};
    const size_t n = (size_t)p->cx->next_tensor + 1;
    d.owner = NEWN(p->cx->a, Owner, n);
    d.pieces = NEWN(p->cx->a, Pieces, n);
    d.friendly = NEWN(p->cx->a, uint32_t, n);
    memset(d.friendly, 0xff, sizeof *d.friendly * n);
    seq_each(p->top, readers, &d);
    if (!device_is_gpu(p->schedule->device)) d.windowed = windowed_dims(p);
    double ns = p->schedule->estimate_ns;
    Stmt all = {.kind = S_BRANCH, .path = "", .br = {.arm = {p->top, p->top}}};
    if (!is_one(p->schedule)) {
        d.grain = decide_value(p, X_GRAIN, &all, device_is_gpu(p->schedule->device) ? 1 : 2,
                               (Way[]){{16, ns}, {32, ns}});
        seq_each(p->top, choose_wanted, &d);
    }
    walk(&d, p->top);
    if (device_is_gpu(p->schedule->device) && p->schedule->units > 1) choose_seconds(&d);
}
