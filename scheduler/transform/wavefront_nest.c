/* wavefront_nest.c: a nest of loops, layers around time, as consecutive loops. */
#include "scheduler/transform/wavefront.h"
#include "utask/clone.h"
#include "utask/walk.h"

#define LAYERS_MAX 12
#define STATEMENTS_MAX 1024 /* of all layers */

static bool is_nest(const Stmt *s) {
    int64_t n;
    if (!wave_counted(s) || !e_is_int(s->loop.trips, &n) || n < 2 || n > LAYERS_MAX) return false;
    if (!clone_can(s->loop.body, false) || seq_size(s->loop.body) * n > STATEMENTS_MAX)
        return false;
    for (int i = 0; i < s->loop.carry.n; i++)
        if (!loop_keeps_dims(s, s->loop.carry.p[i].phi) ||
            !loop_keeps_dims(s, s->loop.carry.p[i].next))
            return false;
    for (int i = 0; i < s->loop.scan.n; i++)
        if (!loop_keeps_dims(s, s->loop.scan.p[i].elem)) return false;
    for (int i = 0; i < s->loop.body->s.n; i++) {
        const Stmt *o = s->loop.body->s.p[i];
        if (wave_counted(o) && o->loop.scan.n && loop_keeps(s, o->loop.trips)) return true;
    }
    return false;
}

/* t, defined by the loop up to now, becomes a group of its own. */
static void becomes(Program *p, Nest *n, Tensor *t, Expr *body) {
    vec_push(p->cx->a, &n->result, t);
    vec_push(p->cx->a, &n->was, *t);
    t->kind = TK_TE;
    t->body = body;
    vec_push(p->cx->a, &n->q->s, stmt_op(p->cx, t, t->path ? t->path : ""));
}

bool nest_expand(Program *p, Seq *q, int i, Nest *n) {
    Cx *c = p->cx;
    Arena *a = c->a;
    Stmt *s = q->s.p[i];
    if (!is_nest(s)) return false;
    *n = (Nest){.q = q, .before = q->s, .first = -1};
    StmtVec all = {0};
    for (int j = 0; j < i; j++) vec_push(a, &all, q->s.p[j]);
    q->s = all;
    int64_t layers = 0;
    e_is_int(s->loop.trips, &layers);
    Tensor **cur = NEWN(a, Tensor *, s->loop.carry.n + 1),
           **elem = NEWN(a, Tensor *, s->loop.scan.n * layers + 1);
    Expr **value = NEWN(a, Expr *, s->loop.syms.n + 1);
    for (int m = 0; m < s->loop.carry.n; m++) cur[m] = s->loop.carry.p[m].init;
    for (int m = 0; m < s->loop.syms.n; m++) value[m] = s->loop.syms.p[m].init;
    for (int64_t l = 0; l < layers; l++) {
        Clone k = clone_new(c);
        clone_map_sym(&k, s->loop.iter, e_int(c, l));
        for (int m = 0; m < s->loop.carry.n; m++)
            clone_map_tensor(&k, s->loop.carry.p[m].phi, cur[m]);
        for (int m = 0; m < s->loop.syms.n; m++) {
            Sym *y = s->loop.syms.p[m].sym;
            clone_map_sym(&k, y,
                          l ? seq_let(c, q, sym_like(c, y, q), value[m], s->path) : value[m]);
        }
        clone_seq(&k, s->loop.body, q);
        for (int m = 0; m < s->loop.scan.n; m++)
            elem[l * s->loop.scan.n + m] = clone_tensor(&k, s->loop.scan.p[m].elem);
        for (int m = 0; m < s->loop.carry.n; m++)
            cur[m] = clone_tensor(&k, s->loop.carry.p[m].next);
        for (int m = 0; m < s->loop.syms.n; m++) value[m] = clone_expr(&k, s->loop.syms.p[m].next);
    }
    int end = i;
    for (int j = i; j < q->s.n; j++) /* checks of the layer's number are settled */
        if (q->s.p[j]->kind != S_CHECK || !e_is_ival(q->s.p[j]->check.cond, 1))
            q->s.p[end++] = q->s.p[j];
    q->s.n = end;
    for (int j = i; j < q->s.n; j++) {
        Stmt *o = q->s.p[j];
        if (n->first < 0 && wave_counted(o)) n->first = j;
        for (int m = 0; o->kind == S_OP && m < o->op.n; m++) o->op.t[m]->owned = false;
    }
    for (int m = 0; m < s->loop.syms.n; m++)
        seq_let(c, q, s->loop.syms.p[m].sym, value[m], s->path);
    for (int m = 0; m < s->loop.carry.n; m++) {
        Tensor *t = s->loop.carry.p[m].phi;
        for (int d = 0; d < t->rank; d++) t->axis[d] = axis_new(c, t->dim[d]);
        becomes(p, n, t, load_own(c, cur[m], t));
    }
    for (int m = 0; m < s->loop.scan.n; m++) {
        Tensor *t = s->loop.scan.p[m].out;
        Expr *idx[MAX_RANK], *body = NULL;
        for (int d = 0; d < t->rank; d++) idx[d] = e_axis(c, t->axis[d] = axis_new(c, t->dim[d]));
        for (int64_t l = layers - 1; l >= 0; l--) {
            Expr *x = e_load(c, elem[l * s->loop.scan.n + m], idx + 1);
            body = body ? e_sel(c, e_lt(c, idx[0], e_int(c, l + 1)), x, body) : x;
        }
        becomes(p, n, t, body);
    }
    for (int j = i + 1; j < n->before.n; j++) vec_push(a, &q->s, n->before.p[j]);
    return n->first >= 0;
}

void nest_restore(Nest *n) {
    for (int i = 0; i < n->result.n; i++) *n->result.p[i] = n->was.p[i];
    n->q->s = n->before;
}
