/* beside.c: see beside.h. */
#include "scheduler/plan/beside.h"
#include "scheduler/cost/cost.h"
#include "scheduler/cost/decide.h"
#include "scheduler/passes.h"
#include "utask/walk.h"

#define GROUPS 64 /* most side by side */

typedef struct Beside {
    Program *p;
    Cx *c;
    const Device *d;
} Beside;

/* Nothing of it is in memory that another tensor of its own statement list is in, too. */
static bool may_run(const Beside *x, const Stmt *s) {
    if (s->kind != S_OP || s->each || s->level == LEVEL_HOST || s->op.at || s->op.strip ||
        s->op.second || op_is_empty(s) || x->p->nfunc)
        return false;
    for (int i = 0; i < s->op.n; i++) {
        const Tensor *t = s->op.t[i];
        if (t->kind != TK_TE || t->base || t->table || t->ret || t->grow) return false;
    }
    return true;
}

/* What a group takes by so many threads of each block; 0: all. */
static double work_ns(const Beside *x, Stmt *s, int team) {
    s->op.team = team;
    const double ns = cost_stmt_ns(x->p, s, schedule_units(x->p->schedule, s->level));
    s->op.team = 0;
    return ns;
}

/* Of n groups from number `from` on: each round takes as long as its longest group by a team, and
 * then all meet. */
static double beside_ns(const Beside *x, const Seq *q, int from, int n, int teams) {
    double all = 0;
    for (int i = 0; i < n; i += teams) {
        double most = 0;
        for (int k = i; k < n && k < i + teams; k++) {
            const double ns = work_ns(x, q->s.p[from + k], x->d->warp);
            if (ns > most) most = ns;
        }
        all += most;
    }
    return all + x->d->level[LEVEL_CORE].barrier_ns;
}

static int independent(const Beside *x, const Seq *q, int from) {
    int n = 1;
    for (; from + n < q->s.n && n < GROUPS; n++) {
        const Stmt *s = q->s.p[from + n];
        if (!may_run(x, s) || s->level != q->s.p[from]->level) return n;
        for (int i = 0; i < n; i++)
            if (stmt_uses(x->c, s, q->s.p[from + i])) return n;
    }
    return n;
}

static void visit(void *user, Seq *q, int *at) {
    const Beside *x = user;
    if (!may_run(x, q->s.p[*at])) return;
    const int n = independent(x, q, *at), teams = x->d->threads / x->d->warp;
    double plain = 0;
    for (int i = 0; i < n; i++) plain += work_ns(x, q->s.p[*at + i], 0);
    if (n < 2 || !decide(x->p, X_BESIDE, q->s.p[*at], plain, beside_ns(x, q, *at, n, teams)))
        return;
    for (int i = 0; i < n; i++) {
        q->s.p[*at + i]->op.team = x->d->warp;
        q->s.p[*at + i]->beside = i > 0;
    }
    *at += n - 1;
}

void pass_beside(Program *p) {
    const Device *d = p->schedule->device;
    Beside x = {p, p->cx, d};
    if (device_is_gpu(d) && d->threads > d->warp) seq_rewrite(p->top, visit, &x);
}
