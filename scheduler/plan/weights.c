/* weights.c: which constants the program reads, in which order, and where they lie (weights.h).
 *
 * The order is that of the program's text: functions of a recursion in front of the call that they
 * hang on, what a loop begins with in front of its body. Of a group: what it has packed, then what
 * its function reads as it is, where loops leave out what does not depend on them. */
#include "scheduler/plan/weights.h"
#include "scheduler/cost/decide.h"
#include "scheduler/kernel/contraction.h"
#include "scheduler/kernel/convolution.h"
#include "scheduler/kernel/depthwise.h"
#include "scheduler/kernel/dots.h"
#include "scheduler/kernel/planes.h"
#include "scheduler/kernel/sparse.h"
#include "scheduler/kernel/integer.h"
#include "scheduler/kernel/threads.h"
#include "scheduler/passes.h"
#include "utask/walk.h"

typedef struct Walk {
    Cx *c;
    bool words; /* packed constants are read as words of 32 bits, whatever is in them */
    Weights *w;
    const Kernel *k; /* whose expressions are read; NULL: uniform ones */
    Map *seen;       /* expressions */
} Walk;

static void add(Walk *k, const void *key, WeightArray x) {
    Weights *w = k->w;
    if (map_geti(w->number, (uint64_t)(uintptr_t)key)) return;
    if (!x.what) x.what = "";
    x.bytes = x.count * (int64_t)dtype_size(x.dtype);
    x.offset = (w->bytes + WEIGHT_ALIGN - 1) / WEIGHT_ALIGN * WEIGHT_ALIGN;
    w->bytes = x.offset + x.bytes + WEIGHT_BEHIND;
    vec_push(k->c->a, &w->array, x);
    map_seti(w->number, (uint64_t)(uintptr_t)key, (void *)(uintptr_t)w->array.n);
}

static void add_tensor(Walk *k, const Tensor *t) {
    if (!t) return;
    t = tensor_root(t);
    if (t->kind != TK_CONST) return;
    add(k, t->data->data,
        (WeightArray){.what = t->name ? t->name : t->path,
                      .data = t->data,
                      .dtype = t->dtype,
                      .count = t->data->count});
}

static void add_packed(Walk *k, const Packed *p) {
    WeightArray x = {.what = p->what, .packed = p, .dtype = p->dtype, .count = p->count};
    if (k->words) {
        x.dtype = DT_F32;
        x.count = p->count * (int64_t)dtype_size(p->dtype) / 4;
    }
    add(k, p, x);
}

/* ---- expressions ----------------------------------------------------------------------------- */
static bool is_member(const Kernel *k, const Tensor *t) {
    for (int i = 0; k && i < k->n; i++)
        if (k->t[i] == t) return true;
    return false;
}

static void read(Walk *k, Expr *e);

/* What a fault's message tells. */
static void read_said(Walk *k, const Expr *cond) {
    for (int i = 1; cond->op == E_TELL && i < cond->n; i++) read(k, cond->a[i]);
}

/* What of e is evaluated in front of the loops over `inner`. */
static void read_outside(Walk *k, Map *seen, Expr *e, int n, Axis *const *inner) {
    bool inside = false;
    if (!(e->flags & EF_LOAD) || !map_add(seen, (uint64_t)e->id + 1)) return;
    for (int i = 0; i < n; i++) inside |= e_uses_axis(e, inner[i]);
    if (!inside && !(e->flags & EF_REDUCE)) read(k, e);
    for (int i = 0, last = e_always(e); inside && e->op != E_REDUCE && i < last; i++)
        read_outside(k, seen, e->a[i], n, inner);
}

static void read(Walk *k, Expr *e) {
    if (!e || !(e->flags & EF_LOAD) || !map_add(k->seen, (uint64_t)e->id + 1)) return;
    switch (e->op) {
    case E_LOAD:
        if (is_member(k->k, e->t)) return; /* at its own position */
        read(k, flat_of(k->c, e));
        add_tensor(k, e->t);
        break;
    case E_REDUCE:
        for (int i = 0; i < e->naxis; i++)
            read_outside(k, map_new(k->c->a), e->a[0], e->naxis - i, e->raxis + i);
        read(k, e->a[0]);
        break;
    case E_TELL: read(k, e->a[0]); break;
    default:
        for (int i = 0; i < e->n; i++) read(k, e->a[i]);
        if (e->op == E_GUARD) read_said(k, e->a[0]);
    }
}

/* ---- groups ---------------------------------------------------------------------------------- */
/* A sum that the kernel computes reads these loads, as they are, and nothing else. */
static void read_sum(Walk *k, const Expr *sum, Expr *vec, Expr *sca) {
    map_add(k->seen, (uint64_t)sum->id + 1);
    read(k, vec);
    read(k, sca);
}

static void contraction(Walk *k, const Contraction *x) {
    for (int i = 0; i < x->npanel; i++) {
        add_packed(k, x->panel[i].packed);
        if (x->panel[i].scales) add_packed(k, x->panel[i].scales);
    }
    for (int j = 0; j < x->n; j++)
        read_sum(k, x->p[j].sum.reduce, x->p[j].packed ? NULL : x->p[j].vec, x->p[j].sca);
}

static void convolution(Walk *k, const Convolution *x) {
    for (int i = 0; i < x->n; i++) add_packed(k, x->s[i].packed);
    for (int i = 0; i < x->n; i++) read_sum(k, x->s[i].reduce, NULL, x->s[i].sca);
}

static void sparse(Walk *k, const SparseKernel *x) {
    for (int i = 0; i < x->n; i++) {
        const Tensor *lists[] = {x->s[i].start, x->s[i].value, x->s[i].at, x->s[i].block};
        for (size_t j = 0; j < COUNT(lists); j++) add_tensor(k, lists[j]);
        read_sum(k, x->s[i].reduce, NULL, x->s[i].x);
    }
}

static void integer(Walk *k, const Integer *x) {
    for (int i = 0; i < x->n; i++) {
        const IntegerSum *s = &x->s[i];
        if (!s->made) {
            add_packed(k, s->packed);
            add_packed(k, s->sums);
        }
        if (s->zeros) add_packed(k, s->zeros);
        read_sum(k, s->reduce, s->x_zero, s->x);
        if (s->made) read_sum(k, s->reduce, s->w_zero, s->w);
    }
}

static void depthwise(Walk *k, const Depthwise *x) {
    for (int i = 0; i < x->n; i++) add_packed(k, x->packed[i]);
    for (int i = 0; i < x->n; i++) read_sum(k, x->s[i].reduce, NULL, x->s[i].x);
}

static void planes(Walk *k, const PlanesKernel *x) {
    for (int i = 0; i < x->n; i++) read_sum(k, x->p[i].s.reduce, x->p[i].s.w, x->p[i].s.x);
}

static void dots(Walk *k, const DotsKernel *x) {
    for (int i = 0; i < x->npart; i++)
        if (x->part[i].packed) add_packed(k, x->part[i].weights);
    for (int j = 0; j < x->n; j++) {
        const Product *p = &x->p[j];
        read_sum(k, p->sum.reduce, x->part[p->set].packed ? NULL : p->vec, p->sca);
    }
}

/* Whether something may stand between the loops over the axes in front of axis d and the others. */
static bool has_loop(const Kernel *g, int d) {
    if (d == 0 || g->kind == KERNEL_LOOPS) return true;
    return d == g->naxis - 1 && (g->kind != KERNEL_THREADS || g->threads->row);
}

static void group(Walk *k, const Stmt *s) {
    const Kernel *g = k->k = s->op.kernel;
    if (op_is_empty(s)) return;
    k->seen = map_new(k->c->a);
    for (int d = 0; s->op.at && d < g->t[0]->rank; d++) read(k, s->op.at[d]);
    switch (g->kind) {
    case KERNEL_CONTRACTION: contraction(k, g->contraction); break;
    case KERNEL_CONVOLUTION: convolution(k, g->convolution); break;
    case KERNEL_WINOGRAD: convolution(k, &g->winograd->k); break;
    case KERNEL_SPARSE: sparse(k, g->sparse); break;
    case KERNEL_INTEGER: integer(k, g->integer); break;
    case KERNEL_DEPTHWISE: depthwise(k, g->depthwise); break;
    case KERNEL_PLANES: planes(k, g->planes); break;
    case KERNEL_DOTS: dots(k, g->dots); break;
    default: break;
    }
    for (int d = 0; d < g->naxis; d++)
        for (int i = 0; i < g->n && has_loop(g, d); i++)
            read_outside(k, map_new(k->c->a), g->value[i], g->naxis - d, g->axis + d);
    for (int i = 0; i < g->n; i++) {
        read(k, g->value[i]);
        read(k, g->position[i]);
    }
}

/* ---- statements ------------------------------------------------------------------------------ */
static void walk(Walk *k, const Seq *q);

static void read_uniform(Walk *k, Expr *e) {
    k->k = NULL;
    k->seen = map_new(k->c->a);
    read(k, e);
}

static void slot(void *user, const Slot *x) {
    switch (x->kind) {
    case SLOT_EXPR: read_uniform(user, *x->e); break;
    case SLOT_READ: add_tensor(user, *x->t); break;
    case SLOT_SEQ: walk(user, *x->q); break;
    default: break;
    }
}

static void in_functions(void *user, const Slot *x) {
    if (x->in || x->kind == SLOT_SEQ) slot(user, x);
}
static void at_call(void *user, const Slot *x) {
    if (!x->in && x->kind != SLOT_SEQ) slot(user, x);
}

static void walk(Walk *k, const Seq *q) {
    for (int i = 0; i < q->s.n; i++) {
        const Stmt *s = q->s.p[i];
        switch (s->kind) {
        case S_OP: group(k, s); break;
        case S_CALL:
            stmt_slots(s, in_functions, k);
            stmt_slots(s, at_call, k);
            break;
        case S_BARRIER:
            for (int j = 0; s->barrier.ahead && j < s->barrier.ahead->nown; j++)
                add_packed(k, s->barrier.ahead->own[j].packed);
            break;
        case S_CHECK:
            read_uniform(k, s->check.cond);
            read_said(k, s->check.cond);
            break;
        default: stmt_slots(s, slot, k);
        }
    }
}

void pass_weights(Program *p) {
    Arena *a = p->cx->a;
    p->weights = NEW(a, Weights);
    p->weights->number = map_new(a);
    Walk k = {.c = p->cx, .words = device_is_gpu(p->schedule->device), .w = p->weights};
    walk(&k, p->top);
    for (int i = 0; i < p->nout; i++) {
        read_uniform(&k, p->out[i].has);
        add_tensor(&k, p->out[i].t);
    }
}

const WeightArray *weights_find(const Program *p, const Tensor *t) {
    const intptr_t n = (intptr_t)map_geti(p->weights->number, (uint64_t)(uintptr_t)t->data->data);
    return n ? &p->weights->array.p[n - 1] : NULL;
}
