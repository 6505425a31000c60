/* cost.c: see cost.h. */
#include "scheduler/cost/cost.h"
#include "scheduler/cost/decide.h"
#include "utask/coded.h"
#include "utask/product.h"
#include "utask/softmax_sum.h"
#include "utask/windows.h"

#include <math.h>

#define BYTES_AT_ONCE 4 /* products of 8-bit integers in the time of one of float32 */

static double value_or(const Expr *e, double unknown) {
    int64_t v;
    return !e || !e_is_int(e, &v) ? unknown : v > 0 ? (double)v : 0;
}

double cost_size(const Expr *e) { return value_or(e, COST_UNKNOWN); }

double cost_over_sizes(double (*ns)(void *user, double unknown), void *user) {
    return sqrt(ns(user, 1) * ns(user, COST_UNKNOWN));
}

/* ---- work of a group ---- */
typedef struct WorkCount {
    Cx *c;
    double unknown; /* a size that is not known */
    Map *seen;      /* expression id -> already counted in this scope */
    Map *buffers;   /* tensor id -> bytes of it that are counted, double * */
    const Tensor *t;
    bool padded; /* sums of products with zeros around an operand have a kernel, too */
    bool rows;   /* in rows that a kernel computes: their positions are found once for each row */
    Work w;
} WorkCount;

/* Bytes of an element: constants are packed as narrow as their values allow. */
static double element_bytes(const Tensor *t) {
    if (t->coded) return t->coded->bits / 8.0 + 4.0 / (double)t->coded->block;
    return (double)dtype_size(t->kind == TK_CONST ? tensor_values(t) : t->dtype);
}

/* Operations, as those of products are counted, that make a number of what is packed narrower. */
static double opening(const Tensor *t) {
    if (t->kind != TK_CONST) return 0;
    return t->coded ? 3 : t->values ? 2 : 0;
}

static double bytes_of(const Tensor *t, double unknown) {
    double n = element_bytes(t);
    for (int i = 0; i < t->rank; i++) n *= value_or(t->dim[i], unknown);
    return n;
}
double cost_bytes(const Tensor *t) { return bytes_of(t, COST_UNKNOWN); }

static void walk(WorkCount *k, const Expr *e, double times, bool index);

/* The factors of a sum of products with so many terms. Of a factor that the kernel computes, each
 * element is evaluated once, for all columns. */
static void walk_factors(WorkCount *k, const Expr *e, double terms, bool index) {
    SumProduct p;
    Axis *columns;
    int built = -1;
    if (product_of((Expr *)e, &p))
        built = product_built(k->c, &p, k->t->rank, k->t->axis, &columns);
    const bool bytes = product_of_bytes((Expr *)e, &p); /* factors are converted as they are read */
    for (int i = 0; i < 2; i++) {
        const Expr *x = bytes ? p.load[i] : p.factor[i];
        if (i != built || (x->op == E_LOAD && !(flat_of(k->c, x)->flags & (EF_LOAD | EF_GUARD)))) {
            walk(k, x, terms, index);
            continue;
        }
        k->rows = true;
        walk(k, x, terms / value_or(columns->extent, k->unknown), index);
        k->rows = false;
    }
}

/* The same where there are zeros around one: only elements that are copied ask where they are. */
static void walk_padded(WorkCount *k, const Expr *e, double terms) {
    SumProduct p;
    Expr *inside;
    for (int i = 0; product_of((Expr *)(uintptr_t)e, &p) && i < 2; i++) {
        k->rows = true;
        walk(k, padded_load(k->c, p.factor[i], &inside), terms, false);
        k->rows = false;
    }
}

/* A softmax-weighted sum with so many terms: each score, with its exponential, is computed once for
 * all lanes, along which only the values move. */
static void walk_softmax_sum(WorkCount *k, const SoftmaxSum *a, double terms) {
    double scores = terms;
    for (int d = 0; d < k->t->rank; d++)
        if (!e_uses_axis(a->score, k->t->axis[d]) && e_uses_axis(a->value, k->t->axis[d]))
            scores /= value_or(k->t->dim[d], k->unknown);
    k->w.flops += 2 * terms;
    k->w.expensive += scores;
    walk(k, a->value, terms, false);
    walk(k, a->score, scores, false);
}

/* Operations of one evaluation of e in a scope of `times` evaluations, its loads' bytes with them.
 */
static void walk(WorkCount *k, const Expr *e, double times, bool index) {
    if (e->pure || e->op == E_AXIS) return;
    if (!map_add(k->seen, (uint64_t)e->id + 1)) return;
    double inner = times;
    SoftmaxSum a;
    switch (e->op) {
    case E_LOAD: {
        /* No more distinct elements than the tensor has, and than are asked for. */
        double left = bytes_of(e->t, k->unknown), asked = times * element_bytes(e->t);
        double *counted = map_geti(k->buffers, (uint64_t)e->t->id + 1);
        if (!counted) map_seti(k->buffers, (uint64_t)e->t->id + 1, counted = NEW(k->c->a, double));
        left -= *counted;
        asked = left < asked ? left : asked;
        *counted += asked;
        k->w.read += asked;
        k->w.flops += opening(e->t) * asked / element_bytes(e->t);
        if (k->rows) return;
        break;
    }
    case E_REDUCE:
        for (int i = 0; i < e->naxis; i++) inner *= value_or(e->raxis[i]->extent, k->unknown);
        if (softmax_sum_of(k->c, (Expr *)(uintptr_t)e, &a)) {
            walk_softmax_sum(k, &a, inner);
            return;
        }
        if (k->padded && padded_product(k->c, (Expr *)(uintptr_t)e)) {
            k->w.flops += 2 * inner;
            walk_padded(k, e, inner);
            return;
        }
        if (is_fast_product((Expr *)e)) {
            k->w.flops += dtype_is_float(e->dtype) ? 2 * inner : 2 * inner / BYTES_AT_ONCE;
            walk_factors(k, e, inner, index);
            return;
        }
        k->w.simple += inner;
        break;
    case E_GUARD: k->w.scalar = true; break;
    case E_TELL: break;
    default: {
        const ExprWork *w = e_work(e->op);
        k->w.simple += times * (index ? w->index_simple : w->simple);
        k->w.expensive += times * (index ? w->index_expensive : w->expensive);
        k->w.scalar |= !w->lanes;
    }
    }
    int n = e->op == E_TELL ? 1 : e->n; /* what it tells is not computed */
    for (int i = 0; i < n; i++) walk(k, e->a[i], inner, index || e->op == E_LOAD);
}

Work cost_work(Cx *c, const Stmt *s, double unknown) {
    WorkCount k = {.c = c, .unknown = unknown, .seen = map_new(c->a), .buffers = map_new(c->a)};
    for (int i = 0; i < s->op.n; i++) {
        const Tensor *t = s->op.t[i];
        double n = 1;
        k.t = t;
        k.padded = s->op.sums_ns > 0;
        for (int d = 0; d < t->rank; d++)
            n *= value_or(s->op.at && s->op.at[d] ? t->axis[d]->extent : t->dim[d], unknown);
        walk(&k, t->body, n, false);
        k.w.written += n * (double)dtype_size(t->dtype);
    }
    return k.w;
}

/* ---- times ---- */
double cost_compute_ns(const Device *d, const Work *w) {
    if (device_is_gpu(d)) /* threads do not need lanes */
        return w->flops / d->gflops + w->simple * d->element_ns + w->expensive * d->function_ns;
    return w->flops / d->gflops + w->simple * (w->scalar ? d->scalar_ns : d->element_ns) +
           w->expensive * (w->scalar ? 10 * d->scalar_ns : d->function_ns);
}

double cost_wait_ns(const Device *d, ExprOp op) { return e_work(op)->cycles / 4.0 * d->depend_ns; }

double cost_group_at_ns(const Program *p, const Stmt *s, int units, double unknown) {
    const Device *d = p->schedule->device;
    Work w = cost_work(p->cx, s, unknown);
    double n = units > 1 ? units : 1;
    /* Bytes of one core's share come from the memory that holds them. */
    double share = (w.read + w.written) / n;
    if (!device_is_gpu(d))
        return fmax(cost_compute_ns(d, &w) / n, share / device_gbps(d, share)) + d->group_ns;
    /* What does not stay on chip comes from the cache that all share. */
    const double kept = cost_kept(p, (int)n), far = d->level[LEVEL_TEAM].read_gbps;
    const double parts = s->op.team ? (double)d->threads / s->op.team : 1; /* of a block */
    const double bytes_ns = share * (kept / device_gbps(d, share) + (1 - kept) / far);
    return fmax(fmax(cost_compute_ns(d, &w) / n * parts, bytes_ns),
                cost_latency_ns(p, s, units, unknown));
}

/* How many of so many units have a part of group s. Before distribution: as many as its longest
 * axis has positions for. */
static int sharing(const Stmt *s, int units, double unknown) {
    const Tensor *lead = s->op.t[0];
    double most = 1;
    if (s->each || s->level == LEVEL_CORE) return 1;
    if (s->op.split)
        most = value_or(s->op.split->extent, unknown);
    else
        for (int i = 0; i < lead->rank && !s->op.grain; i++)
            most = fmax(most, value_or(lead->dim[i], unknown));
    return most < units ? (int)most : units;
}

static double seq_ns(const Program *p, const Seq *q, int units, double unknown);

double cost_stmt_at_ns(const Program *p, const Stmt *s, int units, double unknown) {
    const Device *d = p->schedule->device;
    double barrier = units > 1 ? d->level[LEVEL_TEAM].barrier_ns : 0, t;
    switch (s->kind) {
    case S_LET:
    case S_CHECK:
    case S_ENTER: return 1;
    case S_OP: return cost_group_at_ns(p, s, sharing(s, units, unknown), unknown);
    case S_EXTERN:
        if (s->ext.host) return 0;
        t = d->group_ns;
        for (int i = 0; i < s->ext.nin; i++)
            if (s->ext.in[i]) t += bytes_of(s->ext.in[i], unknown) * d->scalar_ns;
        return t;
    case S_LOOP:
        if (s->loop.within) /* what the first iterations read is on its way before they begin */
            return d->load_ns + 3 * d->level[LEVEL_CORE].barrier_ns +
                   s->loop.step_ns * cost_size(s->loop.trips);
        t = seq_ns(p, s->loop.body, units, unknown) + (s->loop.barrier ? barrier : 0) + 2;
        return t * cost_size(s->loop.trips);
    case S_BRANCH:
        return 2 + 0.5 * (seq_ns(p, s->br.arm[0], units, unknown) +
                          seq_ns(p, s->br.arm[1], units, unknown));
    case S_BARRIER: return s->level < LEVEL_TEAM ? d->level[s->level].barrier_ns : barrier;
    case S_CALL:
        t = 20;
        for (int i = 0; i < s->call.nfunc; i++)
            t += COST_UNKNOWN * seq_ns(p, s->call.func[i]->body, units, unknown);
        return t;
    default: return 0;
    }
}

static double seq_ns(const Program *p, const Seq *q, int units, double unknown) {
    double t = 0;
    for (int i = 0; i < q->s.n; i++) t += cost_stmt_at_ns(p, q->s.p[i], units, unknown);
    return t;
}

double cost_group_ns(const Program *p, const Stmt *s, int units) {
    return cost_group_at_ns(p, s, units, COST_UNKNOWN);
}
double cost_seq_ns(const Program *p, const Seq *q, int units) {
    return seq_ns(p, q, units, COST_UNKNOWN);
}
double cost_stmt_ns(const Program *p, const Stmt *s, int units) {
    return cost_stmt_at_ns(p, s, units, COST_UNKNOWN);
}
