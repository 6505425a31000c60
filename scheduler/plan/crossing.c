/* crossing.c: see crossing.h. */
#include "scheduler/plan/crossing.h"
#include "scheduler/plan/distribute.h"
#include "utask/walk.h"

typedef struct Crossing {
    const Program *p;
    Map *fresh;
    const Stmt *s;
    const Stmt *reader; /* a group; NULL: every unit reads any element */
    bool any;
} Crossing;

/* A unit can be given the part of the reader's domain that it wrote itself, along some dimension.
 */
static bool moves_along(const Program *p, const Expr *e, const Tensor *t, const Tensor *lead) {
    int64_t n;
    if (e->kind || e->t != t) return false;
    for (int d = 0; d < t->rank; d++)
        for (int i = 0; i < lead->rank; i++)
            if (e->a[d]->op == E_AXIS && e->a[d]->axis == lead->axis[i] &&
                t->dim[d] == lead->dim[i] && !e_is_ival(t->dim[d], 1))
                return true;
    return part_pieces(p, e, lead, &n) >= 0;
}

static void cross_load(void *user, Expr *e) {
    Crossing *k = user;
    const Tensor *t = tensor_root(e->t);
    if (!map_geti(k->fresh, (uint64_t)t->id + 1)) return;
    if (k->reader)
        for (int i = 0; i < k->reader->op.n; i++)
            if (k->reader->op.t[i] == t) return; /* members are read at their own positions */
    if (!k->reader || !moves_along(k->p, e, t, k->reader->op.t[0])) k->any = true;
}

bool tensor_crosses(Map *fresh, const Tensor *t) {
    return map_geti(fresh, (uint64_t)tensor_root(t)->id + 1);
}

bool expr_crosses(Cx *c, Map *fresh, Expr *e) {
    Crossing k = {.fresh = fresh};
    if (e) e_each_load(c, e, cross_load, &k);
    return k.any;
}

/* What s itself reads where it begins. */
static void cross_slot(void *user, const Slot *x) {
    Crossing *k = user;
    if (x->in) return;
    if (slot_is_expr(x)) e_each_load(k->p->cx, *x->e, cross_load, k);
    if (x->kind == SLOT_READ && k->s->kind == S_EXTERN) k->any |= tensor_crosses(k->fresh, *x->t);
}

bool stmt_crosses(const Program *p, Map *fresh, const Stmt *s, bool any) {
    Crossing k = {.p = p, .fresh = fresh, .s = s};
    if (s->kind == S_CALL) return true;
    if (s->kind == S_OP && !any && !s->each) k.reader = s;
    stmt_slots(s, cross_slot, &k);
    for (int i = 0; s->kind == S_LOOP && i < s->loop.carry.n; i++) {
        const LoopCarry *x = &s->loop.carry.p[i]; /* the first iteration reads init as the phi */
        if (x->init && tensor_crosses(fresh, x->init)) fresh_add(fresh, x->phi);
    }
    for (int m = 0; m < stmt_nseq(s) && !k.any; m++) {
        const Seq *q = stmt_seq(s, m);
        for (int i = 0; i < q->s.n && !k.any; i++) k.any = stmt_crosses(p, fresh, q->s.p[i], any);
    }
    return k.any;
}

void fresh_add(Map *fresh, Tensor *t) {
    if (t) map_seti(fresh, (uint64_t)t->id + 1, t);
}

static void write_tensor(void *user, Tensor *t) {
    fresh_add(user, t);
    fresh_add(user, t->table);
}

void stmt_writes(Map *fresh, const Stmt *s) {
    if (!s->each && !(s->kind == S_EXTERN && s->ext.host))
        stmt_defines(s, write_tensor, NULL, fresh);
}
