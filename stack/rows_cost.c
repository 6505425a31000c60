/* rows_cost.c: what it saves to run several activations of a function at once. */
#include "scheduler/cost/cost.h"
#include "scheduler/cost/decide.h"
#include "stack/rows.h"
#include "utask/product.h"
#include "utask/walk.h"

typedef struct Shared { /* what all activations read from the same memory */
    Cx *c;
    const Func *f;
    double bytes;
    Map *seen;
} Shared;

static void shared_load(void *user, Expr *e) {
    Shared *k = user;
    const Tensor *t = tensor_root(e->t);
    bool own = t->kind != TK_CONST && t->kind != TK_INPUT && seq_inside(t->seq, k->f->body);
    if (!own && map_add(k->seen, (uint64_t)t->id + 1)) k->bytes += cost_bytes(t);
}

/* Collects the operands of sums of products in e: each activation reads all of them. */
static void shared_operands(Shared *k, Expr *e) {
    if (!(e->flags & EF_REDUCE)) return;
    if (is_sum_of_products(e)) e_each_load(k->c, e->a[0], shared_load, k);
    for (int i = 0; i < e->n; i++) shared_operands(k, e->a[i]);
}

static void shared_stmt(void *user, Stmt *s) {
    Shared *k = user;
    k->seen = map_new(k->c->a);
    if (s->kind == S_OP) shared_operands(k, s->op.t[0]->body);
}

/* Time saved per activation of q when `rows` activations read their shared operands once. A branch
 * counts as the mean of its arms. */
static double saved_ns(const Program *p, const Func *f, const Seq *q, int rows, double gbps) {
    const Device *d = p->schedule->device;
    int units = p->schedule->units;
    double ns = 0;
    for (int i = 0; i < q->s.n; i++) {
        Stmt *s = q->s.p[i];
        for (int m = 0; s->kind == S_BRANCH && m < 2; m++)
            ns += saved_ns(p, f, s->br.arm[m], rows, gbps) / 2;
        Shared k = {.c = p->cx, .f = f};
        shared_stmt(&k, s);
        if (k.bytes == 0) continue;
        double flops = cost_work(p->cx, s, COST_UNKNOWN).flops / d->gflops / units,
               bytes = k.bytes / gbps / units;
        if (bytes > flops) ns += bytes - (bytes / rows > flops ? bytes / rows : flops);
    }
    return ns;
}

RowsCost rows_cost(const Program *p, const Func *f, int rows) {
    const int units = p->schedule->units;
    Shared k = {.c = p->cx, .f = f};
    seq_each(f->body, shared_stmt, &k);
    const double gbps = device_gbps(p->schedule->device, k.bytes / units);
    return (RowsCost){cost_seq_ns(p, f->body, units), saved_ns(p, f, f->body, rows, gbps)};
}
