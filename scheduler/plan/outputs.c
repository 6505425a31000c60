/* outputs.c: see outputs.h.
 *
 * The caller's memory has no room behind its end, and is aligned to its elements only, as that of
 * inputs: kernels read and write both alike. A tensor can have its storage there if it is made once
 * in a run, shares its memory with no other, and if its shape follows from those of the inputs:
 * then the host knows it before the run. */
#include "scheduler/plan/outputs.h"

#include "scheduler/passes.h"
#include "scheduler/plan/library.h"
#include "scheduler/plan/memory.h"
#include "utask/walk.h"

/* Not for tensors of the vendor's products (placed): the host looks for those in a run's own
 * memory. */
static bool can_be_given(const Program *p, const Tensor *t) {
    const Mem *m = mem_of(t);
    const bool made = (t->kind == TK_TE && !t->base) || t->kind == TK_SCAN || t->kind == TK_EXTERN;
    if (!made || !m || (m->kind != M_STATIC && m->kind != M_BUMP)) return false;
    return t->seq == p->top && !t->blob && !t->grow && !t->placed && !m->each && !m->frame &&
           !m->block && !m->shared;
}

static void give(Program *p, int i) {
    const Io *io = &p->out[i];
    Tensor *t = io->t;
    if (io->kind != VT_TENSOR || io->has || !t || t->rank < 0 || t->dtype != io->elem_dtype) return;
    for (int d = 0; d < t->rank; d++)
        if (!library_host_value(p, t->dim[d])) return;
    Tensor *root = (Tensor *)(uintptr_t)tensor_root(t);
    if (!can_be_given(p, root)) return;
    for (int k = 0; k < p->nout; k++)
        if (k != i && p->out[k].t && tensor_root(p->out[k].t) == root) return;
    mem_of(root)->given = i + 1;
}

const Tensor *output_given(const Program *p, int i) {
    const Tensor *root = p->out[i].t ? tensor_root(p->out[i].t) : NULL;
    return root && mem_of(root) && mem_of(root)->given == i + 1 ? root : NULL;
}

/* Whether s may end a run with a fault, as long as the session has the limits that it has by
 * default. */
static void note_guard(void *user, Expr **e) {
    if ((*e)->flags & EF_GUARD) *(bool *)user = true;
}
static bool may_fail(void *user, const Stmt *s) {
    bool fails = false;
    int64_t trips;
    (void)user;
    switch (s->kind) {
    case S_CHECK:
    case S_EXTERN:
    case S_CALL:
    case S_ENTER: return true;
    case S_LOOP:
        if (!s->loop.trips || !e_is_int(s->loop.trips, &trips) || trips >= INT32_MAX) return true;
        break;
    default: break;
    }
    stmt_exprs(s, note_guard, &fails);
    return fails;
}

void pass_outputs(Program *p) {
    for (int i = 0; i < p->nout; i++) give(p, i);
    p->mem->fails = seq_any(p->top, may_fail, NULL);
    for (int i = 0; i < p->nout; i++) {
        const Io *io = &p->out[i];
        if (io->has && (io->has->flags & EF_GUARD)) p->mem->fails = true;
        for (int d = 0; io->t && d < io->t->rank; d++)
            if (io->t->dim[d]->flags & EF_GUARD) p->mem->fails = true;
    }
}
