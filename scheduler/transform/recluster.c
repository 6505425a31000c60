/* recluster.c: a branch becomes consecutive branches on the same condition.
 *
 * The parts of an arm may want different numbers of units: a large product wants all of them, a
 * smaller one the blocks of a cluster, a short vector one. Groups of one branch may change over
 * from all to one and back, but only a whole construct is run by a cluster. So each arm is cut
 * where the number that its statements want changes, and matching parts of both arms become one
 * branch (Cocktailer, section 4.1.3): all of that is then for one number of units. (There, each
 * becomes a kernel, and occupancy is what its parts have in common; here all is one kernel of one
 * occupancy.) The condition is evaluated once. A tensor that a later part reads leaves its part as
 * a join without a value in the other arm, where nobody reads it. */
#include <math.h>

#include "scheduler/cost/cost.h"
#include "scheduler/plan/crossing.h"
#include "scheduler/cost/decide.h"
#include "scheduler/passes.h"
#include "utask/walk.h"

#define PARTS_MAX 16

typedef struct Arm {
    Seq *q;
    int n;                             /* parts */
    int end[PARTS_MAX];                /* statement after each part */
    Level want[PARTS_MAX];             /* of the units that it wants */
    double ns[PARTS_MAX][LEVEL_COUNT]; /* by the units of a level, with their barriers */
} Arm;

typedef struct BranchOrder { /* of the branches */
    int n;
    int part[2][2 * PARTS_MAX]; /* of each arm, the number of its part in a branch; -1: none */
} BranchOrder;

typedef struct Recluster {
    Program *p;
    Cx *c;
    Arena *a;
    /* of an arm: what was defined by its statements up to now */
    Map *tensor, *sym; /* id + 1 -> itself */
    bool hit;
    Map *moved; /* tensor id + 1 -> what later parts read instead */
} Recluster;

/* ---- parts of an arm ------------------------------------------------------------------------- */
static bool is_data(const Stmt *s) { return s->kind != S_LET && s->kind != S_CHECK; }

static void note_tensor(void *user, Tensor *t) {
    map_seti(((Recluster *)user)->tensor, (uint64_t)t->id + 1, t);
}
static void note_sym(void *user, Sym *s) {
    map_seti(((Recluster *)user)->sym, (uint64_t)s->id + 1, s);
}
static void hit_sym(void *user, Sym *s) {
    Recluster *x = user;
    x->hit |= map_geti(x->sym, (uint64_t)s->id + 1) != NULL;
}

/* Whether arm k of s can be cut before statement i: no symbol defined before is used after. */
static bool can_cut(Recluster *x, const Stmt *s, int k, int i) {
    const Seq *q = s->br.arm[k];
    x->tensor = map_new(x->a);
    x->sym = map_new(x->a);
    for (int j = 0; j < i; j++) stmt_defines(q->s.p[j], note_tensor, note_sym, x);
    Visit v = visit_new(x->c, NULL, hit_sym, x);
    x->hit = false;
    for (int j = i; j < q->s.n; j++) visit_stmt(&v, q->s.p[j]);
    visit_end(&v, x->p, q);
    return !x->hit;
}

static double barrier_ns(const Recluster *x, Level l) {
    return l == LEVEL_CORE ? 0 : x->p->schedule->device->level[l].barrier_ns;
}

/* With the barrier for all units after it where not all of them run it. `ns`: by level. */
static double handed_ns(const Recluster *x, const double ns[LEVEL_COUNT], Level l) {
    return ns[l] + (l < LEVEL_TEAM ? barrier_ns(x, LEVEL_TEAM) : 0);
}

/* Times of s, by level; the level that it wants. `crosses`: it reads what other units wrote.
 * `forced`: tensors want several units, but for sums. */
static Level times(const Recluster *x, const Stmt *s, bool crosses, bool forced,
                   double ns[LEVEL_COUNT]) {
    const Schedule *k = x->p->schedule;
    const Device *d = k->device;
    const int cluster = device_cluster(d);
    Level best = LEVEL_CORE;
    for (Level l = LEVEL_CORE; l <= LEVEL_TEAM; l++) {
        ns[l] = HUGE_VAL;
        if (l == LEVEL_CLUSTER && (!cluster || cluster >= k->units)) continue;
        ns[l] = cost_stmt_ns(x->p, s, schedule_units(k, l));
        if (ns[l] + barrier_ns(x, l) < ns[best] + barrier_ns(x, best)) best = l;
    }
    for (Level l = LEVEL_CORE; l <= LEVEL_TEAM && crosses; l++) ns[l] += barrier_ns(x, l);
    if (!forced) return best;
    if (s->kind == S_OP && s->op.t[0]->body->flags & EF_REDUCE) return LEVEL_CORE;
    return ns[LEVEL_CLUSTER] < HUGE_VAL ? LEVEL_CLUSTER : LEVEL_TEAM;
}

static void cut(Recluster *x, const Stmt *s, int k, bool forced, Arm *arm) {
    *arm = (Arm){.q = s->br.arm[k]};
    int begin = 0; /* of the uniform values before the present statement */
    Map *fresh = map_new(x->a);
    for (int i = 0; i < arm->q->s.n; i++) {
        const Stmt *o = arm->q->s.p[i];
        if (!is_data(o) && i + 1 < arm->q->s.n) continue;
        double ns[LEVEL_COUNT];
        const bool crosses = stmt_crosses(x->p, fresh, o, false);
        const Level want = times(x, o, crosses, forced, ns);
        if (crosses) fresh = map_new(x->a);
        stmt_writes(fresh, o);
        int last = arm->n - 1;
        bool more = arm->n == 0 || (is_data(o) && want != arm->want[last] && arm->n < PARTS_MAX &&
                                    can_cut(x, s, k, begin));
        if (more) {
            last = arm->n++;
            arm->want[last] = want;
        }
        for (Level l = LEVEL_CORE; l <= LEVEL_TEAM; l++) arm->ns[last][l] += ns[l];
        arm->end[last] = begin = i + 1;
    }
}

/* ---- the branches ---------------------------------------------------------------------------- */
static Tensor *moved(Recluster *x, Tensor *t) {
    if (!t) return NULL;
    Tensor *r = map_geti(x->moved, (uint64_t)t->id + 1);
    if (r || t->kind != TK_VIEW) return r ? r : t;
    Tensor *base = moved(x, t->base);
    if (base == t->base) return t;
    r = arena_memdup(x->a, t, sizeof *t); /* the same view of what replaces its base */
    r->id = x->c->next_tensor++;
    r->base = base;
    map_seti(x->moved, (uint64_t)t->id + 1, r);
    return r;
}

static Expr *moved_load(void *user, Expr *e) {
    Recluster *x = user;
    Tensor *t = moved(x, e->t);
    if (t == e->t) return NULL;
    return e->kind ? e_loadf(x->c, t, e->a[0]) : e_load(x->c, t, e->a);
}

static void moved_slot(void *user, const Slot *k) {
    Recluster *x = user;
    if (k->kind == SLOT_READ) *k->t = moved(x, *k->t);
    if (slot_is_expr(k)) *k->e = e_subst(x->c, *k->e, 0, NULL, NULL, moved_load, x);
}

typedef struct Crossers {
    Recluster *x;
    VEC(Tensor *) t; /* defined in a part, and read later */
} Crossers;
static void crosser(void *user, Tensor *t) {
    Crossers *k = user;
    if (map_geti(k->x->tensor, (uint64_t)t->id + 1)) vec_push(k->x->a, &k->t, t);
}

/* Joins of part `b` of arm k for what statements from `end` on, or the results, use of it. */
static void leave(Recluster *x, Stmt *b, const Stmt *s, int k, const StmtVec *list, int begin,
                  int end) {
    x->tensor = map_new(x->a);
    x->sym = map_new(x->a);
    for (int i = begin; i < end; i++) stmt_defines(list->p[i], note_tensor, note_sym, x);
    Crossers v = {.x = x};
    Visit u = visit_new(x->c, crosser, NULL, &v);
    for (int i = end; i < list->n; i++) visit_stmt(&u, list->p[i]);
    visit_end(&u, x->p, s->br.arm[k]);
    x->moved = map_new(x->a);
    for (int i = 0; i < v.t.n; i++) {
        Tensor *t = v.t.p[i], *out = arena_memdup(x->a, t, sizeof *t);
        out->id = x->c->next_tensor++;
        out->kind = TK_JOIN;
        out->body = NULL;
        out->terms = 0;
        out->owned = false;
        out->grow = NULL;
        out->seq = s->br.arm[k]->parent;
        Join j = {.out = out, .half = true};
        j.arm[k] = t;
        vec_push(x->a, &b->br.joins, j);
        map_seti(x->moved, (uint64_t)t->id + 1, out);
    }
    for (int i = end; i < list->n; i++) stmt_all_slots(list->p[i], moved_slot, x);
    for (int i = 0; i < s->br.joins.n; i++)
        s->br.joins.p[i].arm[k] = moved(x, s->br.joins.p[i].arm[k]);
}

/* The fewest branches that hold the parts of both arms in their order, each for one number of
 * units: a shortest common supersequence, in which what fits together does so as late as possible,
 * for results are those of the last branch. */
static BranchOrder order_of(const Arm *arm) {
    int fewest[PARTS_MAX + 1][PARTS_MAX + 1]; /* for the first i, j parts */
    for (int i = 0; i <= arm[0].n; i++)
        for (int j = 0; j <= arm[1].n; j++) {
            const bool both = i && j && arm[0].want[i - 1] == arm[1].want[j - 1];
            if (!i || !j)
                fewest[i][j] = i + j;
            else if (both)
                fewest[i][j] = 1 + fewest[i - 1][j - 1];
            else
                fewest[i][j] =
                    1 + (fewest[i - 1][j] < fewest[i][j - 1] ? fewest[i - 1][j] : fewest[i][j - 1]);
        }
    BranchOrder o = {.n = fewest[arm[0].n][arm[1].n]};
    for (int p = o.n - 1, i = arm[0].n, j = arm[1].n; p >= 0; p--) {
        const bool both = i && j && arm[0].want[i - 1] == arm[1].want[j - 1];
        const bool first = both || !j || (i && fewest[i - 1][j] < fewest[i][j - 1]);
        o.part[0][p] = first ? --i : -1;
        o.part[1][p] = both || !first ? --j : -1;
    }
    return o;
}

/* Replaces branch *at of q. */
static void build(Recluster *x, Seq *q, int *at, Arm *arm, const BranchOrder *order) {
    Cx *c = x->c;
    Stmt *s = q->s.p[*at];
    StmtVec rest[2] = {arm[0].q->s, arm[1].q->s};
    Seq made = {0};
    Expr *cond = s->br.cond;
    if (!cond->pure) {
        Sym *once = sym_new(c, DT_BOOL, "c", 0);
        once->scope = q;
        cond = seq_let(c, &made, once, cond, s->path);
    }
    for (int i = 0; i < s->br.joins.n; i++) /* an arm's fault need not be in its last part */
        s->br.joins.p[i].half = true;
    int begin[2] = {0, 0};
    for (int p = 0; p < order->n; p++) {
        Stmt *b = p + 1 < order->n ? stmt_new(c, S_BRANCH, s->path) : s;
        Seq *to[2];
        b->br.cond = cond;
        for (int k = 0; k < 2; k++) {
            const int part = order->part[k][p], end = part < 0 ? begin[k] : arm[k].end[part];
            to[k] = seq_new(c, q, b, false);
            to[k]->depth = q->depth;
            for (int i = begin[k]; i < end; i++) vec_push(x->a, &to[k]->s, rest[k].p[i]);
            if (p + 1 < order->n) leave(x, b, s, k, &rest[k], begin[k], end);
            for (int i = begin[k]; i < end; i++) stmt_move(c, rest[k].p[i], arm[k].q, to[k]);
            begin[k] = end;
        }
        b->br.arm[0] = to[0];
        b->br.arm[1] = to[1];
        vec_push(x->a, &made.s, b);
    }
    seq_replace(c, q, at, &made.s);
}

/* ---- the pass -------------------------------------------------------------------------------- */
static void try_branch(void *user, Seq *q, int *at) {
    Recluster *x = user;
    const Stmt *s = q->s.p[*at];
    if (s->kind != S_BRANCH || stmt_any(s, stmt_is_call, NULL)) return;
    for (int i = 0; i < s->br.joins.n; i++)
        if (s->br.joins.p[i].out->ret) return; /* the result of a function is made in place */
    Arm arm[2];
    BranchOrder order = {0};
    /* Where it is forced, small tensors are cut apart, too. */
    for (int forced = 0; forced <= (x->p->schedule->force[X_RECLUSTER] == 1) && order.n < 2;
         forced++) {
        for (int k = 0; k < 2; k++) cut(x, s, k, forced, &arm[k]);
        order = order_of(arm);
    }
    if (order.n < 2) return;
    for (int k = 0; k < 2; k++) /* the results are those of the last branch */
        if (order.part[k][order.n - 1] < 0 && !can_cut(x, s, k, arm[k].q->s.n)) return;
    double whole[LEVEL_COUNT] = {0}, mixed = 0, cut_ns = 2 * (order.n - 1);
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < arm[k].n; i++) {
            const double *ns = arm[k].ns[i], one = handed_ns(x, ns, LEVEL_CORE),
                         all = handed_ns(x, ns, LEVEL_TEAM);
            for (Level l = LEVEL_CORE; l <= LEVEL_TEAM; l++) whole[l] += 0.5 * ns[l];
            mixed += 0.5 * (one < all ? one : all);
            const bool changes =
                i && arm[k].want[i] < LEVEL_TEAM &&
                arm[k].want[i - 1] == LEVEL_TEAM; /* they synchronize before it, too */
            cut_ns += 0.5 * (handed_ns(x, ns, arm[k].want[i]) +
                             (changes ? barrier_ns(x, LEVEL_TEAM) : 0));
        }
    double plain = mixed;
    for (Level l = LEVEL_CORE; l <= LEVEL_TEAM; l++)
        if (handed_ns(x, whole, l) < plain) plain = handed_ns(x, whole, l);
    if (decide(x->p, X_RECLUSTER, s, plain, cut_ns)) build(x, q, at, arm, &order);
}

void pass_recluster(Program *p) {
    if (p->schedule->units == 1) return;
    Recluster x = {.p = p, .c = p->cx, .a = p->cx->a};
    seq_rewrite(p->top, try_branch, &x);
}
