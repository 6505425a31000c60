/* fourier.c: discrete Fourier transforms by the factors of their length.
 *
 * Lowering makes a product with a matrix of cosines and sines, and says of the tensor what it is.
 * On a core with vectors, where the length has small factors only, a hand-written body transforms
 * as many rows as there are lanes, by steps of one factor each. It is run by one unit: the cost of
 * both decides. */
#include <math.h>

#include "scheduler/cost/cost.h"
#include "scheduler/cost/decide.h"
#include "scheduler/passes.h"
#include "utask/extern.h"
#include "utask/walk.h"

#include "codegen/text/extern/fourier.inc"

#define SHORTEST 32
#define LONGEST ((int64_t)1 << 20)
#define STEP_WORK 10  /* operations on an element by a step of factor 4 or 2 … */
#define FACTOR_WORK 3 /* … and of another factor, for each unit of it */

static double body_ns(const Program *p, const Tensor *t) {
    const Device *d = p->schedule->device;
    const Fourier *f = t->fourier;
    const int last = t->rank - 1, axis = f->axis + !e_is_ival(f->step, 0);
    const double elements = cost_bytes(t) / 4, bins = cost_size(t->dim[axis]);
    const double rows = elements / fmax(bins * cost_size(t->dim[last]), 1);
    const double parts = cost_size(f->x->dim[f->x->rank - 1]);
    double work = 0;
    for (int64_t m = f->n, r; m > 1; m /= r) {
        r = bx_radix_of(m);
        work += r <= 4 ? STEP_WORK : (double)(FACTOR_WORK * r);
    }
    const bool pairs = f->half || (parts < 2 && !f->inverse);
    double groups = ceil(rows / (BX_FFT_LANES * (pairs ? 2 : 1)));
    return d->group_ns + (elements + rows * (double)f->n * parts) * d->scalar_ns / 2 +
           groups * BX_FFT_LANES * (double)f->n * work * d->element_ns;
}

static Tensor *turn_table(Program *p, int64_t n) {
    Cx *c = p->cx;
    const double tau = 6.28318530717958647693;
    Const *k = NEW(c->a, Const);
    *k = (Const){.dtype = DT_F32, .rank = 2, .count = 2 * n, .dim = {n, 2}};
    float *data = NEWN(c->a, float, k->count);
    for (int64_t j = 0; j < n; j++) {
        data[2 * j] = (float)cos(tau * (double)j / (double)n);
        data[2 * j + 1] = (float)sin(tau * (double)j / (double)n);
    }
    k->data = data;
    Tensor *t = tensor_new(c, TK_CONST, DT_F32, 2, (Expr *[]){e_int(c, n), e_int(c, 2)});
    t->data = k;
    t->seq = p->top;
    t->name = "turn";
    return t;
}

static void transform(void *user, Stmt *s) {
    Program *p = user;
    Cx *c = p->cx;
    if (s->kind != S_OP || !s->op.t[0]->fourier) return;
    Tensor *t = s->op.t[0];
    const Fourier *f = t->fourier;
    if (f->n < SHORTEST || f->n > LONGEST || !bx_fft_takes(f->n) || t->owned || t->ret ||
        !decide(p, X_FOURIER, s, cost_group_ns(p, s, p->schedule->units), body_ns(p, t)))
        return;
    Tensor *in[] = {f->x, turn_table(p, f->n), f->window};
    Expr *param[] = {e_int(c, f->axis), e_int(c, f->n), e_int(c, f->inverse), e_int(c, f->half),
                     f->step};
    s->kind = S_EXTERN;
    memset(&s->ext, 0, sizeof s->ext);
    s->ext.row = extern_find("fourier");
    s->ext.nin = COUNT(in);
    s->ext.in = arena_memdup(c->a, in, sizeof in);
    s->ext.nparam = COUNT(param);
    s->ext.param = arena_memdup(c->a, param, sizeof param);
    s->ext.nout = 1;
    s->ext.out = arena_memdup(c->a, &t, sizeof(Tensor *));
    s->ext.site = f->site;
    t->kind = TK_EXTERN;
    t->body = NULL;
}

void pass_fourier(Program *p) {
    if (p->schedule->lanes > 1) seq_each(p->top, transform, p);
}
