/* access.c: which accesses must be in order, as access.h describes. */
#include "scheduler/plan/access.h"

bool access_in(const AccessVec *v, const Access *a) {
    for (int i = 0; i < v->n; i++) {
        const Access *b = &v->p[i];
        if (a->kind == b->kind && a->past == b->past && a->t == b->t && a->elem == b->elem &&
            a->write == b->write && a->append == b->append && a->rows == b->rows &&
            (part_same(a->part, b->part) ||
             (a->part.kind == PART_WHOLE && b->part.kind == PART_WHOLE)))
            return true;
    }
    return false;
}

/* Memory of two tensors may be the same. A next value and its phi are different buffers within an
 * iteration. */
static bool overlap(const Tensor *a, const Tensor *b) {
    if (a == b) return true;
    Mem *x = mem_of(a), *y = mem_of(b);
    if ((x->via == b && !y->inplace) || (y->via == a && !x->inplace)) return false;
    bool turns_a = a->kind == TK_PHI || x->kind == M_CARRY,
         turns_b = b->kind == TK_PHI || y->kind == M_CARRY;
    if (x->kind == M_CARRY) x = mem_of(x->via);
    if (y->kind == M_CARRY) y = mem_of(y->via);
    if (x == y) return true;
    if (x->frame != y->frame || x->block != y->block) return false;
    if (x->kind == M_RESULT && y->kind == M_RESULT) return x->slot[0] == y->slot[0];
    if (x->kind != M_STATIC || y->kind != M_STATIC) return false;
    int nx = turns_a && !x->inplace ? 2 : 1, ny = turns_b && !y->inplace ? 2 : 1;
    for (int i = 0; i < nx; i++)
        for (int j = 0; j < ny; j++)
            if (x->off[i] < y->off[j] + y->bytes && y->off[j] < x->off[i] + x->bytes) return true;
    return false;
}

/* The element around `elem` where that is part of one, or NULL. */
static Tensor *element_around(const Tensor *elem) {
    Tensor *t = mem_of(elem)->via;
    return mem_of(t) && mem_of(t)->kind == M_ELEM ? t : NULL;
}

static const Tensor *outer_element(const Tensor *elem) {
    for (Tensor *t; elem && (t = element_around(elem));) elem = t;
    return elem;
}

/* Whether `elem` is in an element of what the loop stacks. */
static bool stacked_by(const Tensor *elem, const Stmt *loop) {
    for (; elem; elem = element_around(elem))
        for (int i = 0; i < loop->loop.scan.n; i++)
            if (loop->loop.scan.p[i].out == mem_of(elem)->via) return true;
    return false;
}

bool access_conflict(const Access *a, const Access *b) {
    if ((!a->write && !b->write) || a->kind != b->kind || a->kind == ON_TAKEN) return false;
    if (a->kind == ON_RECORD) return true;
    if (a->kind == ON_SCRATCH) return !a->write; /* else it begins with a block barrier */
    if (a->append && a->t == b->t) return false;
    if (b->rows && a->t == b->t && !a->elem) return false;
    if (a->t == b->t && a->elem && b->elem && outer_element(a->elem) != outer_element(b->elem))
        return false;
    if (!overlap(a->t, b->t)) return false;
    return !part_same(a->part, b->part) || (a->t != b->t && a->part.kind != PART_SOLO);
}

int access_unit(const Access *a) { return a->part.kind == PART_SOLO ? a->part.dim : -1; }

bool access_past(const Access *a, const Access *b) {
    return b->past && access_unit(a) == b->past - 1;
}

Access access_carried(Access a, const Stmt *loop) {
    a.rows = false;
    if (a.kind != ON_TENSOR) return a;
    const Mem *m = mem_of(a.t);
    if (m->kind == M_CARRY)
        for (int i = 0; i < loop->loop.carry.n; i++)
            if (loop->loop.carry.p[i].phi == m->via) a.t = m->via;
    return a;
}

Access access_turned(Access a, const Stmt *loop) {
    for (int i = 0; i < loop->loop.carry.n && a.kind == ON_TENSOR; i++) {
        const LoopCarry *k = &loop->loop.carry.p[i];
        const Mem *m = mem_of(k->next);
        if (k->phi == a.t && !mem_of(a.t)->inplace && m && m->kind == M_CARRY && m->via == a.t) {
            a.t = k->next;
            a.rows = false;
            return a;
        }
    }
    return access_carried(a, loop);
}

Access access_in_place(Access a, const Stmt *loop) {
    const Mem *m = a.kind == ON_TENSOR ? mem_of(a.t) : NULL;
    return m && m->kind == M_CARRY && mem_of(m->via)->inplace ? access_carried(a, loop) : a;
}

/* A unit's part is the same memory in every iteration. */
static bool steady(const Access *a, const Stmt *loop) {
    if (a->part.kind != PART_SPLIT) return true;
    if (a->t->rank < 0 || !loop_keeps(loop, a->part.extent)) return false;
    for (int i = a->part.dim; i < a->t->rank; i++)
        if (!loop_keeps(loop, tensor_extent(a->t, i))) return false;
    return true;
}

bool access_conflict_later(const Access *a, const Access *b, const Stmt *loop) {
    if (a->t == b->t && stacked_by(a->elem, loop) && stacked_by(b->elem, loop))
        return false; /* each trip has its own */
    if (access_conflict(a, b)) return true;
    if (a->kind != b->kind || a->kind != ON_TENSOR || (a->append && a->t == b->t)) return false;
    return (a->write || b->write) && overlap(a->t, b->t) && !(steady(a, loop) && steady(b, loop));
}

bool access_taken(const Access *a, const Stmt *loop) {
    if (a->kind != ON_TENSOR) return a->kind == ON_TAKEN;
    const Mem *m = mem_of(a->t);
    if (m->kind == M_CARRY) m = mem_of(m->via);
    bool takes = m->kind == M_BUMP || m->kind == M_CALLEE || (m->kind == M_SLOT && m->frame);
    return takes && seq_inside(a->t->seq, loop->loop.body);
}
