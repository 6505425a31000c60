/* host.c: which linearizers the host runs before the kernel begins.
 *
 * On a GPU a linearizer is one thread's work while all others wait; the host is faster at it, finds
 * faults without a launch, and need not repeat it for the structure of the run before. That is
 * possible where the linearizer reads inputs and constants only, and numbers that the host can
 * compute from these. The checks that stand before it are made on the host, too: they protect what
 * it reads. Sets Stmt.ext.host, and Program.ahead: these checks, what they use, and the
 * linearizers. */
#include "scheduler/cost/device.h"
#include "scheduler/cost/decide.h"
#include "scheduler/passes.h"
#include "utask/walk.h"

typedef struct HostWalk {
    const Program *p;
    Map *known; /* symbols, by id + 1, that the host has computed */
} HostWalk;

/* Whether the host can read t where the caller has it. */
static bool reads(const HostWalk *w, Tensor *t) {
    t = tensor_root(t);
    if (t->blob || t->rank < 0) return false;
    return t->kind == TK_CONST || (t->kind == TK_INPUT && w->p->in[t->index].kind == VT_TENSOR);
}

static bool computes_one(const void *user, const Expr *e) {
    const HostWalk *w = user;
    if (e->op == E_DRAW || e->op == E_SEED) return false;
    if (e->op == E_SYM) return map_geti(w->known, (uint64_t)e->sym->id + 1) != NULL;
    if (e->op == E_LOAD && !reads(w, e->t)) return false;
    if (e->op != E_INDIM) return true;
    const Tensor *t = w->p->in[e->i >> 8].t;
    return t && !t->blob;
}
static bool computes(const HostWalk *w, const Expr *e) {
    return expr_all(w->p->cx->a, e, computes_one, w);
}

static bool runs(const HostWalk *w, const Stmt *s) {
    bool is = s->ext.structure != NULL;
    for (int i = 0; i < s->ext.nin && is; i++) is = reads(w, s->ext.in[i]);
    for (int i = 0; i < s->ext.nparam && is; i++) is = computes(w, s->ext.param[i]);
    return is;
}

void pass_host(Program *p) {
    HostWalk w = {p, map_new(p->cx->a)};
    StmtVec ahead = {0};
    bool any = false;
    if (!device_is_gpu(p->schedule->device)) return;
    for (int i = 0; i < p->top->s.n; i++) {
        Stmt *s = p->top->s.p[i];
        if (s->kind == S_LET && computes(&w, s->let.e))
            map_add(w.known, (uint64_t)s->let.sym->id + 1);
        else if (s->kind == S_EXTERN && runs(&w, s))
            any = s->ext.host = true;
        else if (s->kind == S_CHECK && !computes(&w, s->check.cond))
            break; /* what stands behind it may rely on it */
        else if (s->kind != S_CHECK)
            continue;
        vec_push(p->cx->a, &ahead, s);
    }
    if (any) p->ahead = arena_memdup(p->cx->a, &ahead, sizeof ahead);
}
