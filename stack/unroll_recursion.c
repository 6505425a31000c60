/* unroll_recursion.c: merges several levels of a recursive function into one.
 *
 *     f(n): if leaf(n) … else g(f(left n), f(right n))
 *
 * becomes, with L = 1, the following, where only the calls one level further down remain:
 *
 *     f(n): if leaf(n) … else a = { m = left n:  if leaf(m) … else g(f(left m), f(right m)) }
 *                             b = { m = right n: if leaf(m) … else g(f(left m), f(right m)) }
 *                             g(a, b)
 *
 * L + 1 levels need one frame and one call, inner arguments and results pass through no parameters,
 * and passes can optimize across the former calls. All functions of the recursion are unrolled
 * together, from their original bodies. Depth is counted as before: S_ENTER marks where an inner
 * activation begins, and Func.inside says how many levels further down the remaining calls are. */
#include "scheduler/cost/cost.h"
#include "scheduler/cost/decide.h"
#include "stack/batch.h"
#include "utask/clone.h"
#include "utask/walk.h"

#define BODY_MAX 256 /* statements of a body, inlined bodies included */
#define LEVELS_MAX 7
#define CALL_NS 3.0
#define RECORD_NS 1.0
/* Cost per activation of a copied statement: larger code fits the instruction caches less well. */
#define COPY_NS 0.015
#define COPY_GROUP_NS 0.4

typedef struct UnrollCalls {
    Program *p;
    Cx *c;
    int levels; /* of inlined bodies, the outermost one not counted */
    int level;  /* of the body being copied */
} UnrollCalls;

/* ---- copies ---------------------------------------------------------------------------------- */
/* Marks t as a function's result, or no longer one. */
static void hand_over(Tensor *t, bool owned, int ret) {
    const Join *j = t->kind == TK_JOIN ? tensor_join(t) : NULL;
    t->owned = owned;
    t->ret = ret;
    for (int m = 0; j && m < 2; m++)
        if (j->arm[m]) hand_over(j->arm[m], owned, ret);
}

static void copy_call(Clone *k, const Stmt *s, Seq *to) {
    UnrollCalls *u = k->user;
    const Func *f = s->call.f;
    if (u->level == u->levels) { /* a remaining call, in the innermost body */
        const Stmt *n = clone_stmt(k, s, to);
        for (int i = 0; i < f->nout; i++)
            hand_over(n->call.out[i], s->call.out[i]->owned, s->call.out[i]->ret);
        return;
    }
    Clone in = clone_new(u->c);
    in.call = copy_call;
    in.user = u;
    for (int i = 0; i < f->nsym; i++) clone_map_sym(&in, f->sym[i], clone_expr(k, s->call.sym[i]));
    for (int i = 0; i < f->narg; i++)
        clone_map_tensor(&in, f->arg[i], clone_tensor(k, s->call.arg[i]));
    Stmt *enter = stmt_new(u->c, S_ENTER, s->path);
    enter->enter.below = ++u->level;
    enter->enter.site = f->site;
    vec_push(u->c->a, &to->s, enter);
    clone_seq(&in, f->body, to);
    u->level--;
    for (int i = 0; i < f->nret; i++) clone_map_sym(k, s->call.ret[i], clone_expr(&in, f->ret[i]));
    for (int i = 0; i < f->nout; i++) {
        Tensor *t = clone_tensor(&in, f->out[i]);
        hand_over(t, s->call.out[i]->owned, s->call.out[i]->ret);
        clone_map_tensor(k, s->call.out[i], t);
    }
}

/* The unrolled version of f. All bodies are copied before any is replaced. */
static Func unrolled(UnrollCalls *u, const Func *f) {
    Cx *c = u->c;
    Func g = *f;
    g.inside = u->levels;
    Clone k = clone_new(c);
    k.call = copy_call;
    k.user = u;
    g.body = seq_new(c, f->body->parent, f->start, true);
    g.sym = NEWN(c->a, Sym *, f->nsym + 1);
    g.arg = NEWN(c->a, Tensor *, f->narg + 1);
    g.out = NEWN(c->a, Tensor *, f->nout + 1);
    g.ret = NEWN(c->a, Expr *, f->nret + 1);
    for (int i = 0; i < f->nsym; i++) g.sym[i] = clone_sym(&k, f->sym[i], g.body);
    for (int i = 0; i < f->narg; i++) g.arg[i] = clone_like(&k, f->arg[i], g.body);
    clone_seq(&k, f->body, g.body);
    for (int i = 0; i < f->nret; i++) g.ret[i] = clone_expr(&k, f->ret[i]);
    for (int i = 0; i < f->nout; i++) {
        g.out[i] = clone_tensor(&k, f->out[i]);
        hand_over(g.out[i], true, f->out[i]->ret);
    }
    return g;
}

static void unroll(UnrollCalls *u, Stmt *start) {
    int n = start->call.nfunc;
    Func *g = NEWN(u->c->a, Func, n);
    for (int i = 0; i < n; i++) g[i] = unrolled(u, start->call.func[i]);
    for (int i = 0; i < n; i++) *start->call.func[i] = g[i];
}

/* ---- whether it pays ------------------------------------------------------------------------- */
typedef struct Size {
    int statements, groups, calls;
    bool siblings; /* calls in one Seq */
} Size;

/* The size of q with `levels` levels of bodies inlined. */
static void measure(const Seq *q, int levels, Size *z) {
    int calls = 0;
    for (int i = 0; i < q->s.n && z->statements <= BODY_MAX; i++) {
        const Stmt *s = q->s.p[i];
        z->statements++;
        z->groups += s->kind == S_OP;
        for (int k = 0; s->kind != S_CALL && k < stmt_nseq(s); k++)
            measure(stmt_seq(s, k), levels, z);
        if (s->kind != S_CALL) continue;
        calls++;
        if (levels) measure(s->call.f->body, levels - 1, z);
    }
    z->siblings |= calls > 1;
}

/* The overhead of a call. Without a hardware stack the threads of a block synchronize around a
 * record of everything that the body has defined. */
static double call_ns(const Device *d, const Size *z) {
    return device_is_gpu(d) ? 3 * d->level[LEVEL_CORE].barrier_ns + RECORD_NS * z->statements
                            : CALL_NS;
}

/* The change of an activation's time with `levels` levels inlined. Only one activation in levels +
 * 1 is then a call, or fewer where an activation makes several calls. */
static double change_ns(const UnrollCalls *u, const Func *f, int levels, bool *fits) {
    const Device *d = u->p->schedule->device;
    Size one = {0}, all = {0};
    measure(f->body, 0, &one);
    measure(f->body, levels, &all);
    *fits &= all.statements <= BODY_MAX;
    int groups = all.groups - one.groups, others = all.statements - one.statements - groups;
    double ns = call_ns(d, &all) / (levels + 1) - call_ns(d, &one) + COPY_GROUP_NS * groups +
                COPY_NS * others;
    /* Siblings could have run on different units; now only the remaining calls can. */
    if (one.siblings && u->p->schedule->units > 1 && !device_is_gpu(d))
        ns += d->level[LEVEL_TEAM].barrier_ns / COST_UNKNOWN;
    return ns;
}

/* Unrolls the recursion that statement *at starts, if it pays. */
static void try_call(void *user, Seq *q, int *at) {
    UnrollCalls *u = user;
    Stmt *s = q->s.p[*at];
    if (s->kind != S_CALL || !s->call.nfunc) return;
    double plain = 0, changed = 0;
    int best = 0;
    for (int i = 0; i < s->call.nfunc; i++) {
        const Func *f = s->call.func[i];
        if (f->rows || !clone_can(f->body, true)) return; /* batched calls are split by row count */
        plain += cost_seq_ns(u->p, f->body, u->p->schedule->units);
    }
    for (int levels = 1; levels <= LEVELS_MAX; levels++) {
        double ns = plain;
        bool fits = true;
        for (int i = 0; i < s->call.nfunc && fits; i++)
            ns += change_ns(u, s->call.func[i], levels, &fits);
        if (!fits) break;
        if (!best || ns < changed) best = levels, changed = ns;
    }
    if (!best || !decide(u->p, X_UNROLL_RECURSION, s, plain, changed)) return;
    u->levels = best;
    unroll(u, s);
}

void pass_unroll_recursion(Program *p) {
    UnrollCalls u = {.p = p, .c = p->cx};
    if (p->nfunc) seq_rewrite(p->top, try_call, &u);
}
