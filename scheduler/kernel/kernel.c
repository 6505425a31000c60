/* kernel.c: chooses the kernel of every group.
 *
 * Requires the distribution: which axis units share, and the levels. Changes nothing of the groups:
 * a kernel has the members' expressions over axes of its own. Leaves Stmt.op.kernel of each group.
 * Groups are visited in the order in which the program's text has them, functions of a recursion in
 * front of the call that they hang on, so that what is shared by several is the first one's. */
#include "scheduler/kernel/kernel.h"
#include "scheduler/kernel/attend.h"
#include "scheduler/kernel/convolution.h"
#include "scheduler/kernel/depthwise.h"
#include "scheduler/kernel/dots.h"
#include "scheduler/kernel/frame.h"
#include "scheduler/kernel/halves.h"
#include "scheduler/kernel/integer.h"
#include "scheduler/kernel/lanes.h"
#include "scheduler/kernel/pieces.h"
#include "scheduler/kernel/planes.h"
#include "scheduler/kernel/sparse.h"
#include "scheduler/kernel/threads.h"
#include "scheduler/kernel/transpose.h"
#include "scheduler/kernel/quotient.h"
#include "scheduler/kernel/sliding.h"
#include "scheduler/cost/cost.h"
#include "scheduler/cost/decide.h"
#include "scheduler/kernel/contraction.h"
#include "scheduler/passes.h"
#include "utask/product.h"
#include "utask/walk.h"

#define STEP_MOST 8 /* elements side by side */

/* ---- collapsing axes ------------------------------------------------------------------------- */
static bool contiguous(Cx *c, Expr *flat, Axis *a, Axis *b) {
    Expr *ka, *kb, *rest;
    if (!e_affine(c, flat, a, &ka, &rest) || !e_affine(c, rest, b, &kb, &rest)) return false;
    if (e_uses_axis(ka, b) || e_uses_axis(kb, a)) return false;
    return ka == e_mul(c, kb, b->extent);
}

static bool collapsible(Cx *c, Map *seen, Expr *e, Axis *a, Axis *b) {
    if (!(e->flags & EF_AXIS) || !map_add(seen, (uint64_t)e->id + 1)) return true;
    if (e->op == E_AXIS) return e->axis != a && e->axis != b;
    if (e->op == E_LOAD && (e_uses_axis(e, a) || e_uses_axis(e, b))) {
        for (int i = 0; i < e->n; i++)
            if (e->a[i]->flags & (EF_LOAD | EF_GUARD)) return false;
        return contiguous(c, flat_of(c, e), a, b);
    }
    for (int i = 0; i < e->n; i++)
        if (!collapsible(c, seen, e->a[i], a, b)) return false;
    return true;
}

int64_t tile_vectors(const Kernel *k, const Axis *v, int64_t lanes, int nv) {
    const int64_t n = div_up(lanes, k->lanes);
    int64_t grain;
    const bool whole =
        v != k->strip && (v != k->split || (!k->s->op.inner && e_is_int(k->grain, &grain) &&
                                            grain % (nv * k->lanes) == 0));
    return whole ? round_up(n, nv) : n + nv - 1;
}

void kernel_collapse(Kernel *k) {
    Cx *c = k->c;
    for (int d = k->naxis - 2; d >= 0; d--) {
        Axis *a = k->axis[d], *b = k->axis[d + 1];
        bool ok = b != k->split && b != k->strip && a != k->second && b != k->second &&
                  (a != k->strip || d + 2 < k->naxis) && /* lanes are for all of it */
                  (a != k->split || !k->s->op.inner);    /* the units' ranges stay contiguous */
        for (int i = 0; i < k->n && ok; i++)
            ok = collapsible(c, map_new(k->a), k->value[i], a, b) &&
                 (contiguous(c, k->position[i], a, b) ||
                  (k->frame && k->value[i]->flags & EF_REDUCE));
        /* Rows inside of a frame are stored apart, position by position. */
        const bool apart = ok && k->frame && !contiguous(c, k->position[0], a, b);
        if (!ok || (apart && (d + 2 == k->naxis || axis_size(b, 0) < 1))) continue;
        Axis *both = axis_new(c, e_mul(c, a->extent, b->extent));
        if (k->frame && (a == k->split || a == k->strip))
            k->frame->each = e_mul(c, k->frame->each, b->extent);
        if (a == k->split) {
            k->split = both;
            k->grain = e_mul(c, k->grain, b->extent);
        }
        if (a == k->strip) {
            k->strip = both;
            k->apiece = e_mul(c, k->apiece, b->extent);
        }
        Axis *from[2] = {a, b};
        Expr *at = e_axis(c, both), *to[2] = {e_int(c, 0), at};
        Expr *rows[2] = {e_bin(c, E_FDIV, at, b->extent), e_bin(c, E_MOD, at, b->extent)};
        for (int i = 0; i < k->n; i++) {
            k->value[i] = e_subst(c, k->value[i], 2, from, to, NULL, NULL);
            k->position[i] = e_subst(c, k->position[i], 2, from, apart ? rows : to, NULL, NULL);
        }
        k->axis[d] = both;
        memmove(k->axis + d + 1, k->axis + d + 2, sizeof *k->axis * (size_t)(k->naxis - d - 2));
        k->naxis--;
    }
}

/* A reduction below e of which two neighbouring axes can be one: its number i, and i + 1. */
typedef struct Joint {
    Cx *c;
    int i;
} Joint;
static bool has_joint(void *user, Expr *e) {
    Joint *k = user;
    for (k->i = 0; e->op == E_REDUCE && k->i + 1 < e->naxis; k->i++)
        if (collapsible(k->c, map_new(k->c->a), e->a[0], e->raxis[k->i], e->raxis[k->i + 1]))
            return true;
    return false;
}

/* Joins neighbouring axes of reductions. */
static void collapse_sums(Kernel *k) {
    Cx *c = k->c;
    Joint j = {.c = c};
    for (int i = 0; i < k->n; i++)
        for (Expr *e; (e = find_reduction(map_new(k->a), k->value[i], false, has_joint, &j));) {
            Axis **axis = NEWN(k->a, Axis *, e->naxis);
            Axis *a = e->raxis[j.i], *b = e->raxis[j.i + 1];
            Axis *both = axis_new(c, e_mul(c, a->extent, b->extent)), *from[2] = {a, b};
            Expr *to[2] = {e_int(c, 0), e_axis(c, both)};
            int n = 0;
            for (int d = 0; d < e->naxis; d++)
                if (d != j.i + 1) axis[n++] = d == j.i ? both : e->raxis[d];
            Expr *body = e_subst(c, e->a[0], 2, from, to, NULL, NULL);
            Expr *sum = e_reduce(c, (ReduceKind)e->kind, n, axis, body);
            for (int m = 0; m < k->n; m++) k->value[m] = e_replace(c, k->value[m], e, sum);
        }
}

/* The divisor of quotients of axis v below e, if it is the same in all; 0: there are none, -1: it
 * differs. */
static int divisor_of(Map *seen, const Expr *e, const Axis *v) {
    int64_t n;
    int all = 0;
    if (!e_uses_axis(e, v) || !map_add(seen, (uint64_t)e->id + 1)) return 0;
    if (e->op == E_FDIV || e->op == E_MOD)
        all = e->dtype == DT_I64 && e_is_int(e->a[1], &n) && n <= STEP_MOST ? (int)n : -1;
    for (int i = 0; i < e->n; i++) {
        const int one = divisor_of(seen, e->a[i], v);
        if (one) all = !all || one == all ? one : -1;
    }
    return all;
}

/* Elements along the last axis that read at quotients of their position are computed side by side,
 * as many as have the same ones: then all positions are affine. */
static void choose_step(Kernel *k) {
    Map *seen = map_new(k->a);
    int64_t n, step = 0;
    k->step = 1;
    if (k->kind != KERNEL_LOOPS || !k->naxis) return;
    const Axis *v = k->axis[k->naxis - 1];
    for (int i = 0; i < k->n; i++) {
        const int one = divisor_of(seen, k->value[i], v);
        if (k->value[i]->flags & (EF_REDUCE | EF_GUARD) || k->value[i]->op == E_SELECT) return;
        if (one) step = !step || one == step ? one : -1;
    }
    if (step < 2 || v == k->strip || !e_is_int(v->extent, &n) || n % step) return;
    if (v == k->split && (k->s->op.inner || !e_is_int(k->grain, &n) || n % step)) return;
    k->step = (int)step;
}

/* ---- the pass -------------------------------------------------------------------------------- */
static Kernel *kernel_new(Program *p, Stmt *s) {
    Cx *c = p->cx;
    const Tensor *lead = s->op.t[0];
    Kernel *k = NEW(c->a, Kernel);
    *k = (Kernel){.p = p,
                  .c = c,
                  .a = c->a,
                  .s = s,
                  .lanes = p->schedule->lanes,
                  .nthread = s->op.team ? s->op.team : p->schedule->device->threads,
                  .kind = KERNEL_LOOPS,
                  .n = s->op.n,
                  .t = s->op.t,
                  .split = s->op.split,
                  .second = s->op.second,
                  .strip = s->op.strip,
                  .apiece = e_int(c, 1)};
    if (k->split) k->grain = e_int(c, s->op.grain);
    k->value = NEWN(c->a, Expr *, k->n);
    k->position = NEWN(c->a, Expr *, k->n);
    Expr *own[MAX_RANK];
    for (int d = 0; d < lead->rank; d++) {
        Expr *at = s->op.at ? s->op.at[d] : NULL, *x = e_axis(c, lead->axis[d]);
        own[d] = at ? e_add(c, at, x) : x;
        if (!e_is_ival(lead->axis[d]->extent, 1)) k->axis[k->naxis++] = lead->axis[d];
    }
    for (int i = 0; i < k->n; i++) {
        k->value[i] = k->t[i]->body;
        k->position[i] = flat_index_of(c, k->t[i], own);
    }
    return k;
}

typedef struct KernelChoice {
    Program *p;
    int64_t streamed; /* contraction.h */
    int inlined;
} KernelChoice;

/* A call costs a few nanoseconds: only short groups in loops are inlined, and not many, because
 * compilers take more than twice the time for a function of twice the size. */
#define INLINED_NS 2000
#define INLINED_MAX 64
static bool stands_apart(KernelChoice *x, const Stmt *s) {
    const int units = schedule_units(x->p->schedule, s->level);
    return s->op.t[0]->seq->depth == 0 || cost_group_ns(x->p, s, units) > INLINED_NS ||
           x->inlined++ >= INLINED_MAX;
}

bool kernel_has_strips(const Kernel *k) {
    switch (k->kind) {
    case KERNEL_LOOPS:
    case KERNEL_LANES:
    case KERNEL_SLIDING:
    case KERNEL_TRANSPOSE:
    case KERNEL_HALVES: return true;
    case KERNEL_CONTRACTION: return k->s->op.band && k->contraction->v != k->strip;
    case KERNEL_CONVOLUTION: return k->s->op.band && k->convolution->v != k->strip;
    case KERNEL_WINOGRAD: return k->s->op.band && k->winograd->k.v != k->strip;
    case KERNEL_DEPTHWISE: return k->s->op.band && k->depthwise->k.v != k->strip;
    default: return false;
    }
}

/* What is read across is turned in blocks inside of its frame. Rows that are read as they are
 * stored are best written once, with their padding. */
static bool framed_transpose(Kernel *k) {
    const Kernel plain = *k;
    Expr *value = k->value[0], *position = k->position[0];
    kernel_frame(k);
    if (!k->frame) return false;
    kernel_collapse(k);
    if (kernel_transpose(k)) return true;
    *k = plain;
    k->value[0] = value;
    k->position[0] = position;
    return false;
}

static void choose(KernelChoice *x, Stmt *s) {
    Kernel *k = s->op.kernel = kernel_new(x->p, s);
    k->apart = x->p->nfunc > 0 || stands_apart(x, s);
    if (op_is_empty(s)) {
        k->kind = KERNEL_NONE;
        return;
    }
    const bool vectors = k->lanes > 1;
    if (vectors && k->value[0]->flags & EF_REDUCE) kernel_frame(k);
    if (vectors && (kernel_attention(k) || kernel_integer(k) || kernel_sparse(k) ||
                    kernel_depthwise(k) || kernel_planes(k) || kernel_winograd(k) ||
                    kernel_convolution(k) || kernel_contraction(k, x->streamed)))
        return;
    if (vectors && !k->frame && framed_transpose(k)) return;
    if (vectors) kernel_quotients(k);
    kernel_collapse(k);
    if (vectors) {
        collapse_sums(k);
        if (!kernel_transpose(k) && !kernel_sliding(k) && !kernel_lanes(k) && !kernel_halves(k))
            kernel_pieces(k);
    } else if (device_is_gpu(x->p->schedule->device) && !kernel_dots(k)) {
        k->second = s->op.second = NULL;
        kernel_threads(k);
    }
}

static void visit(void *user, Stmt *s) {
    if (s->kind != S_OP) return;
    choose(user, s);
    choose_step(s->op.kernel);
}

void pass_kernel(Program *p) {
    KernelChoice x = {.p = p, .streamed = contraction_streamed(p)};
    seq_each(p->top, visit, &x);
    p->calls_only = !x.inlined && !p->nfunc;
}
