/* narrow.c: float32 weights stored in fewer bits, where the caller allows it
 * (braid_options.weights).
 *
 * Constant factors of sums of products are rounded to float16 or bfloat16, or to 8-bit integers
 * with one scale for each column of the sum (symmetric: the largest number of a column is 127
 * scales). It is done where the cost model sees a gain: where a run waits for the weights, not for
 * arithmetic; of sums over rows of which the run knows the number, for one row and for many
 * (cost_over_sizes). This is the only pass that changes results beyond the order of sums. */
#include <math.h>

#include "scheduler/cost/cost.h"
#include "scheduler/cost/decide.h"
#include "scheduler/passes.h"
#include "utask/coded.h"
#include "utask/product.h"
#include "utask/walk.h"

typedef struct Narrow {
    Program *p;
    Cx *c;
    DType to;
    Map *made;  /* tensor id -> the narrow one */
    Map *taken; /* the same, of those that the statement at hand takes */
} Narrow;

static Tensor *find(Map *m, const Tensor *t) { return map_geti(m, (uint64_t)t->id + 1); }

/* A constant like t with elements of its own, which are still to be set. */
static Tensor *constant_like(Cx *c, const Tensor *t, int rank, Expr *const *dim) {
    Tensor *x = tensor_like(c, TK_CONST, t, rank, dim, t->seq);
    Const *k = NEW(c->a, Const);
    *k = (Const){.dtype = DT_F32, .rank = rank, .count = 1};
    for (int d = 0; d < rank; d++) {
        e_is_int(dim[d], &k->dim[d]);
        k->count *= k->dim[d];
    }
    k->data = NEWN(c->a, float, k->count + 1);
    x->data = k;
    return x;
}

static float *elements(Tensor *t) { return (float *)(uintptr_t)t->data->data; }

/* ---- 16 bits --------------------------------------------------------------------------------- */
static Tensor *rounded(const Narrow *w, const Tensor *t) {
    Tensor *x = constant_like(w->c, t, t->rank, t->dim);
    const float *from = t->data->data;
    float *to = elements(x);
    x->values = w->to;
    for (int64_t i = 0; i < t->data->count; i++) {
        to[i] =
            w->to == DT_F16 ? f16_to_f32(f32_to_f16(from[i])) : bf16_to_f32(f32_to_bf16(from[i]));
        if (isinf(to[i])) return NULL; /* out of range, or infinite: it stays as it is */
    }
    return x;
}

/* ---- 8 bits ---------------------------------------------------------------------------------- */
/* One scale along dimension `dim`. */
static Tensor *quantized(const Narrow *w, const Tensor *t, int dim) {
    Cx *c = w->c;
    Expr *size[MAX_RANK];
    Coded *k = NEW(c->a, Coded);
    Const *codes = NEW(c->a, Const);
    const float *from = t->data->data;
    memcpy(size, t->dim, sizeof size);
    size[dim] = e_int(c, 1);
    Tensor *x = constant_like(c, t, t->rank, t->dim);
    *k = (Coded){.bits = 8,
                 .dim = dim,
                 .block = t->data->dim[dim],
                 .codes = codes,
                 .scale = constant_like(c, t, t->rank, size)};
    *codes = *x->data;
    codes->dtype = DT_I8;
    int8_t *code = arena_alloc(c->a, (size_t)codes->count + 1);
    codes->data = code;
    int64_t inner = 1, n = k->block;
    for (int d = dim + 1; d < t->rank; d++) inner *= t->data->dim[d];
    for (int64_t i = 0; i < k->scale->data->count; i++) {
        const int64_t at = i / inner * n * inner + i % inner;
        float most = 0;
        for (int64_t r = 0; r < n; r++) most = fmaxf(most, fabsf(from[at + r * inner]));
        const float scale = most > 0 ? most / 127 : 1;
        if (!isfinite(scale) || scale < 0x1p-120f) return NULL;
        elements(k->scale)[i] = scale;
        for (int64_t r = 0; r < n; r++) {
            const int64_t e = at + r * inner;
            if (isnan(from[e])) return NULL;
            code[e] = (int8_t)rintf(from[e] / scale);
            elements(x)[e] = (float)code[e] * scale;
        }
    }
    x->coded = k;
    return x;
}

/* ---- statements ------------------------------------------------------------------------------ */
static bool factors(void *user, Expr *e) {
    Narrow *w = user;
    SumProduct p;
    if (e->dtype != DT_F32 || !product_of(e, &p) || !product_plain(&p)) return false;
    for (int i = 0; i < 2; i++) {
        const Expr *x = p.load[i];
        const Tensor *t = x->t;
        if (t->kind != TK_CONST || p.load[!i]->t->kind == TK_CONST || t->values || t->coded ||
            t->elem || !t->data->count)
            continue;
        Tensor *y = find(w->made, t);
        if (!y && w->to != DT_I8) y = rounded(w, t);
        if (!y && w->to == DT_I8 && e->naxis == 1 && !x->kind) {
            int dim = product_dim(x, e->raxis[0]);
            if (dim >= 0) y = quantized(w, t, dim);
        }
        if (!y) continue;
        map_seti(w->made, (uint64_t)t->id + 1, y);
        map_seti(w->taken, (uint64_t)t->id + 1, y);
    }
    return false;
}

static Expr *narrow_load(void *user, Expr *e) {
    const Narrow *w = user;
    Tensor *x = find(w->taken, e->t);
    return !x ? NULL : e->kind ? e_loadf(w->c, x, e->a[0]) : e_load(w->c, x, e->a);
}

typedef struct NarrowWay {
    const Program *p;
    const Stmt *s;
} NarrowWay;

static double way_ns(void *user, double unknown) {
    const NarrowWay *x = user;
    return cost_group_at_ns(x->p, x->s, x->p->schedule->units, unknown);
}

static void narrow(void *user, Stmt *s) {
    Narrow *w = user;
    if (s->kind != S_OP) return;
    Tensor *t = s->op.t[0];
    w->taken = map_new(w->c->a);
    find_reduction(map_new(w->c->a), t->body, false, factors, w);
    Expr *plain = t->body, *body = e_subst(w->c, plain, 0, NULL, NULL, narrow_load, w);
    if (body == plain) return;
    NarrowWay x = {w->p, s};
    const double plain_ns = cost_over_sizes(way_ns, &x);
    t->body = body;
    if (!decide(w->p, X_NARROW, s, plain_ns, cost_over_sizes(way_ns, &x))) t->body = plain;
}

void pass_narrow(Program *p) {
    Narrow w = {.p = p, .c = p->cx, .to = p->schedule->weights, .made = map_new(p->cx->a)};
    if (w.to && p->schedule->lanes > 1) seq_each(p->top, narrow, &w);
}
