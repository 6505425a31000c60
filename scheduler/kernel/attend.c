/* attend.c: the roles of axes and the sizes of blocks of softmax-weighted sums. */
#include "scheduler/kernel/attend.h"
#include "scheduler/cost/cost.h"
#include "scheduler/cost/decide.h"
#include "scheduler/kernel/products.h"

#include <math.h>

#define SCRATCH 49152 /* floats of a tile: they lie on the stack */

/* Whether factor f can be read in place: float32, at a position that is affine along the keys and
 * along its own axis. */
static bool in_place(Cx *c, AttentionFactor *f, Axis *key, Axis *own) {
    if (f->e->op != E_LOAD || f->e->dtype != DT_F32) return false;
    Expr *flat = flat_of(c, f->e), *rest;
    if (flat->flags & (EF_LOAD | EF_GUARD | EF_REDUCE) ||
        !e_affine(c, flat, key, &f->by_key, &rest) || !e_affine(c, rest, own, &f->by_own, &rest) ||
        (f->by_key->flags | f->by_own->flags) & EF_AXIS)
        return false;
    f->flat = flat;
    return true;
}

/* Finds the uniform factor of the scores' products: d · x, or d / x. */
static void choose_factor(Cx *c, AttentionKernel *k, Map *seen, Expr *e) {
    Expr *d = k->sum.dot.reduce, *x = NULL;
    if (!(e->flags & EF_REDUCE) || e == d || !map_add(seen, (uint64_t)e->id + 1)) return;
    if (e->op == E_MUL) x = e->a[0] == d ? e->a[1] : e->a[1] == d ? e->a[0] : NULL;
    if (e->op == E_DIV && e->a[0] == d) x = e_div(c, e_num(c, DT_F32, 1), e->a[1]);
    if (x && x->pure) {
        k->factor = x;
        k->product = e;
    }
    for (int i = 0; i < e->n; i++) choose_factor(c, k, seen, e->a[i]);
}

/* Adds the bounds of the keys for which cond can be true. */
static void choose_ends(Cx *c, AttentionKernel *k, Expr *cond) {
    Expr *coef, *rest, *row;
    if (cond->op == E_AND) {
        choose_ends(c, k, cond->a[0]);
        choose_ends(c, k, cond->a[1]);
        return;
    }
    if ((cond->op != E_LT && cond->op != E_LE) || cond->a[0]->dtype != DT_I64 ||
        k->nend == ATTENTION_ENDS || cond->flags & (EF_GUARD | EF_REDUCE) ||
        !e_affine(c, e_sub(c, cond->a[1], cond->a[0]), k->sum.key, &coef, &rest) ||
        !e_is_ival(coef, -1) || e_uses_axis(rest, k->sum.key))
        return;
    int64_t by = 0;
    if (k->m && (!e_affine(c, rest, k->m, &row, &(Expr *){NULL}) || !e_is_int(row, &by))) return;
    if (by >= 0) k->end[k->nend++] = e_addi(c, rest, cond->op == E_LE);
}

static bool choose_axes(AttentionKernel *k, int n, Axis *const *axis) {
    const SoftmaxSum *a = &k->sum;
    int64_t most = 0;
    for (int i = 0; i < n; i++) {
        Axis *x = axis[i];
        if (e_uses_axis(k->values.e, x) && !e_uses_axis(a->score, x)) {
            if (k->v) return false;
            k->v = x;
        }
        if (e_uses_axis(k->values.e, x) || e_uses_axis(k->keys.e, x)) continue;
        int64_t size = axis_size(x, 1 << 20);
        if (size >= most) k->m = x, most = size; /* of unknown ones the inner */
    }
    return k->v != NULL;
}

static bool choose_sizes(AttentionKernel *k, int lanes) {
    const int64_t rows = k->m ? axis_size(k->m, -1) : 1;
    const int64_t wide = k->size > k->padded ? k->size : k->padded;
    k->few = lanes / 4;
    k->singles = rows < 0 || rows <= k->few;
    k->tiles = rows < 0 || rows > k->few;
    k->tile = !k->tiles ? k->few : rows >= 0 && rows <= lanes ? lanes : ATTENTION_WIDTH * lanes;
    /* Values and scores of a block come from the caches next to the core. */
    k->block = wide <= 64 ? 128 : wide <= 128 ? 64 : 32;
    const int64_t copies = (k->keys.flat ? 0 : k->size) + (k->values.flat ? 0 : k->padded);
    return k->tile * (k->size + k->padded + k->block) + k->block * copies <= SCRATCH;
}

bool attention_plan(Cx *c, const SoftmaxSum *sum, int n, Axis *const *axis, int lanes,
                    AttentionKernel *k) {
    *k = (AttentionKernel){.sum = *sum, .along = sum->dot.reduce->raxis[0]};
    k->query = sum->dot.factor[sum->query];
    k->keys.e = sum->dot.factor[!sum->query];
    k->values.e = sum->value;
    if (!choose_axes(k, n, axis)) return false;
    k->size = axis_size(k->along, -1);
    k->width = axis_size(k->v, -1);
    if (k->size < 0 || k->width < 0 || k->size > SCRATCH || k->width > SCRATCH) return false;
    k->padded = round_up(k->width, lanes);
    k->factor = e_num(c, DT_F32, 1);
    k->product = sum->dot.reduce;
    choose_factor(c, k, map_new(c->a), sum->score);
    const Expr *score = sum->score;
    if (score->op == E_SELECT && score->a[2]->op == E_CONST) {
        k->excluded = score->a[2]->f;
        choose_ends(c, k, score->a[0]);
    }
    if (k->m) {
        AttentionFactor q = {.e = k->query};
        k->turns = in_place(c, &q, k->m, k->along) && e_is_ival(q.by_own, 1);
    }
    in_place(c, &k->keys, sum->key, k->along);
    if (in_place(c, &k->values, sum->key, k->v) &&
        (!e_is_ival(k->values.by_own, 1) || k->padded != k->width))
        k->values.flat = NULL;
    k->by_keys = k->keys.flat && !e_is_ival(k->keys.by_own, 1) && e_is_ival(k->keys.by_key, 1);
    if (k->keys.flat && !k->by_keys && !e_is_ival(k->keys.by_own, 1)) k->keys.flat = NULL;
    return choose_sizes(k, lanes);
}

double attention_ns(const Program *p, const AttentionKernel *k, int n, Axis *const *axis) {
    const Device *d = p->schedule->device;
    const int lanes = p->schedule->lanes;
    double rows = k->m ? cost_size(k->m->extent) : 1, outer = 1;
    const double keys = cost_size(k->sum.key->extent);
    for (int i = 0; i < n; i++)
        if (axis[i] != k->m && axis[i] != k->v) outer *= cost_size(axis[i]->extent);
    double tiles = (double)round_up((int64_t)rows, k->tile) / k->tile;
    if (rows > k->few) rows = (double)round_up((int64_t)rows, lanes);
    const double copied = (k->keys.flat ? 0 : (double)k->size) +
                          (k->values.flat ? 0 : (double)k->padded),
                 moved = 4.0 * (double)(k->size + k->padded);
    double score =
        2.0 * (double)(k->size + k->padded) / d->gflops + d->function_ns + 4 * d->element_ns;
    double ns = rows * keys * score + tiles * keys * copied * d->element_ns;
    return outer * fmax(ns, keys * moved / device_gbps(d, outer * keys * moved));
}

bool kernel_attention(Kernel *g) {
    SoftmaxSum a, other;
    bool found = false;
    for (int i = 0; i < g->n; i++) {
        if (!softmax_sum_find(g->c, g->value[i], &other)) continue;
        if (found && other.reduce != a.reduce) return false;
        a = other;
        found = true;
    }
    if (!found) return false;
    AttentionKernel *k = NEW(g->a, AttentionKernel);
    if (kernel_reads_member(g, a.reduce) ||
        !attention_plan(g->c, &a, g->naxis, g->axis, g->lanes, k))
        return false;
    g->kind = KERNEL_ATTENTION;
    g->attention = k;
    return true;
}
