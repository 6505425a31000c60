/* crossing.c: see crossing.h. */
#include "scheduler/plan/crossing.h"
#include "utask/walk.h"

typedef struct Crossing {
    Map *fresh;
    const Stmt *reader; /* a group; NULL: every unit reads any element */
    bool any;
} Crossing;

/* A unit can be given the part of the reader's domain that it wrote itself, along some dimension.
 */
static bool moves_along(const Expr *e, const Tensor *t, const Tensor *lead) {
    if (e->kind || e->t != t) return false;
    for (int d = 0; d < t->rank; d++)
        for (int i = 0; i < lead->rank; i++)
            if (e->a[d]->op == E_AXIS && e->a[d]->axis == lead->axis[i] &&
                t->dim[d] == lead->dim[i] && !e_is_ival(t->dim[d], 1))
                return true;
    return false;
}

static void cross_load(void *user, Expr *e) {
    Crossing *k = user;
    const Tensor *t = tensor_root(e->t);
    if (!map_geti(k->fresh, (uint64_t)t->id + 1)) return;
    if (k->reader)
        for (int i = 0; i < k->reader->op.n; i++)
            if (k->reader->op.t[i] == t) return; /* members are read at their own positions */
    if (!k->reader || !moves_along(e, t, k->reader->op.t[0])) k->any = true;
}

static void cross_expr(Cx *c, Crossing *k, Expr *e) {
    if (e && (e->flags & EF_LOAD)) e_each_load(c, e, cross_load, k);
}
bool tensor_crosses(Map *fresh, const Tensor *t) {
    return map_geti(fresh, (uint64_t)tensor_root(t)->id + 1);
}

static void cross_tensor(Crossing *k, const Tensor *t) {
    if (t && tensor_crosses(k->fresh, t)) k->any = true;
}

bool expr_crosses(Cx *c, Map *fresh, Expr *e) {
    Crossing k = {.fresh = fresh};
    cross_expr(c, &k, e);
    return k.any;
}

bool stmt_crosses(Cx *c, Map *fresh, const Stmt *s, bool any) {
    Crossing k = {.fresh = fresh};
    switch (s->kind) {
    case S_LET: cross_expr(c, &k, s->let.e); break;
    case S_CHECK: cross_expr(c, &k, s->check.cond); break;
    case S_OP:
        k.reader = any || s->each ? NULL : s;
        for (int i = 0; i < s->op.n; i++) cross_expr(c, &k, s->op.t[i]->body);
        break;
    case S_EXTERN:
        for (int i = 0; i < s->ext.nin; i++) cross_tensor(&k, s->ext.in[i]);
        break;
    case S_LOOP:
        cross_expr(c, &k, s->loop.trips);
        cross_expr(c, &k, s->loop.cond0);
        for (int i = 0; i < s->loop.carry.n; i++) { /* the first iteration reads it as the phi */
            const Tensor *t = tensor_root(s->loop.carry.p[i].init);
            if (map_geti(fresh, (uint64_t)t->id + 1))
                map_seti(fresh, (uint64_t)s->loop.carry.p[i].phi->id + 1, s->loop.carry.p[i].phi);
        }
        break;
    case S_BRANCH: cross_expr(c, &k, s->br.cond); break;
    case S_CALL: k.any = true; break;
    default: break;
    }
    for (int m = 0; m < stmt_nseq(s) && !k.any; m++) {
        const Seq *q = stmt_seq(s, m);
        for (int i = 0; i < q->s.n && !k.any; i++) k.any = stmt_crosses(c, fresh, q->s.p[i], any);
    }
    return k.any;
}

void fresh_add(Map *fresh, Tensor *t) {
    if (t) map_seti(fresh, (uint64_t)t->id + 1, t);
}

static void write_tensor(void *user, Tensor *t) { fresh_add(user, t); }

void stmt_writes(Map *fresh, const Stmt *s) {
    if (!s->each) stmt_defines(s, write_tensor, NULL, fresh);
}
