/* one_pass.c: what stands between the two products of attention becomes part of the second one.
 *
 * sum_j softmax_j(S[i, j]) V[j, d]: as lowered, the scores S, their maximum, the exponentials,
 * their sum and the weights are tensors, each as large as queries times keys or a part of it. Where
 * nothing else reads them, their expressions are substituted into the sum over the values, which a
 * kernel then computes in one pass over blocks of keys (scheduler/kernel/attend.h).
 *
 * Groups are final here: what this pass sees is what the kernel gets. Before fusion the sum could
 * still be put into a group that no kernel computes in one pass, and one without the kernel would
 * compute each score many times. */
#include "scheduler/cost/cost.h"
#include "scheduler/cost/decide.h"
#include "scheduler/kernel/attend.h"
#include "scheduler/passes.h"
#include "utask/walk.h"

#define CHAIN_MAX 24 /* tensors between the products */

typedef struct OnePass {
    Program *p;
    Cx *c;
    int *uses; /* by tensor id: loads of it or of its views, in all bodies; others count OTHER */
    int8_t *leads; /* by tensor id: 1 + whether it is made from a sum of products; 0: not known */
    const Seq *seq;
    Tensor *chain[CHAIN_MAX]; /* what was substituted */
    int n, depth;
    bool failed;
} OnePass;
#define OTHER 1000000

/* ---- uses ------------------------------------------------------------------------------------ */
static void use_load(void *user, Expr *e) { ((OnePass *)user)->uses[tensor_root(e->t)->id]++; }
static void use_slot(void *user, const Slot *k) {
    OnePass *u = user;
    if (k->kind == SLOT_READ && *k->t) u->uses[tensor_root(*k->t)->id] += OTHER;
    if (slot_is_expr(k)) e_each_load(u->c, *k->e, use_load, u);
}

/* ---- what lies between the products ---------------------------------------------------------- */
static bool has_product(void *user, Expr *e) {
    (void)user;
    return is_sum_of_products(e) && e->dtype == DT_F32;
}

static bool leads(OnePass *u, Tensor *t);
typedef struct Leads {
    OnePass *u;
    bool found;
} Leads;
static void leads_load(void *user, Expr *e) {
    Leads *k = user;
    k->found |= leads(k->u, tensor_root(e->t));
}

/* Whether t is a part of such a chain: a sum of products, or made from one. */
static bool leads(OnePass *u, Tensor *t) {
    if (t->kind != TK_TE || !t->body || t->owned || t->ret || t->rank < 0 || t->seq != u->seq)
        return false;
    if (u->leads[t->id]) return u->leads[t->id] == 2;
    if (u->depth == CHAIN_MAX) return false;
    u->leads[t->id] = 1;
    u->depth++;
    Leads k = {u, find_reduction(map_new(u->c->a), t->body, false, has_product, NULL) != NULL};
    if (!k.found) e_each_load(u->c, t->body, leads_load, &k);
    u->depth--;
    u->leads[t->id] = (int8_t)(1 + k.found);
    return k.found;
}

/* The element of a view's base at the position of the load. */
static Expr *base_load(Cx *c, const Expr *load) {
    Tensor *t = tensor_root(load->t);
    Expr *idx[MAX_RANK], *at = flat_of(c, load);
    for (int i = t->rank - 1; i >= 0; i--) {
        idx[i] = i ? e_bin(c, E_MOD, at, t->dim[i]) : at;
        at = e_bin(c, E_FDIV, at, t->dim[i]);
    }
    return e_load(c, t, idx);
}

static Expr *substitute(void *user, Expr *load) {
    OnePass *u = user;
    Tensor *t = tensor_root(load->t);
    if (!leads(u, t)) return NULL;
    if (load->t != t || load->kind) {
        load = base_load(u->c, load);
        if (load->op != E_LOAD) return load;
    }
    int i = 0;
    while (i < u->n && u->chain[i] != t) i++;
    if (i == CHAIN_MAX) {
        u->failed = true;
        return NULL;
    }
    if (i == u->n) u->chain[u->n++] = t;
    Expr *body = e_subst(u->c, t->body, t->rank, t->axis, load->a, NULL, NULL);
    const bool last = find_reduction(map_new(u->c->a), body, false, has_product, NULL) != NULL;
    return last ? body : e_subst(u->c, body, 0, NULL, NULL, substitute, u);
}

/* ---- one sum --------------------------------------------------------------------------------- */
/* Whether only the chain and `reader` load what is in it, and its groups hold nothing else. */
static bool only_ours(OnePass *u, const Tensor *reader) {
    OnePass own = {.c = u->c};
    own.uses = NEWN(u->c->a, int, u->p->cx->next_tensor + 1);
    e_each_load(u->c, reader->body, use_load, &own);
    for (int i = 0; i < u->n; i++) e_each_load(u->c, u->chain[i]->body, use_load, &own);
    for (int i = 0; i < u->n; i++) {
        const Tensor *t = u->chain[i];
        if (u->uses[t->id] != own.uses[t->id]) return false;
        const Stmt *s = tensor_group(t);
        for (int k = 0; s && k < s->op.n; k++) {
            int j = 0;
            while (j < u->n && u->chain[j] != s->op.t[k]) j++;
            if (j == u->n) return false;
        }
        if (!s) return false;
    }
    return true;
}

/* Time of the groups of the chain, and of the barriers behind them. */
static double chain_ns(const OnePass *u) {
    const Schedule *plan = u->p->schedule;
    const double wait = plan->units > 1 ? plan->device->level[LEVEL_TEAM].barrier_ns : 0;
    double ns = 0;
    for (int i = 0; i < u->n; i++) {
        const Stmt *s = tensor_group(u->chain[i]);
        if (s->op.t[0] == u->chain[i]) ns += cost_group_ns(u->p, s, plan->units) + wait;
    }
    return ns;
}

static void forget(OnePass *u, Seq *q) {
    int to = 0;
    for (int i = 0; i < q->s.n; i++) {
        Stmt *s = q->s.p[i];
        bool gone = false;
        for (int k = 0; k < u->n && s->kind == S_OP; k++) gone |= s->op.t[0] == u->chain[k];
        if (gone)
            for (int k = 0; k < s->op.n; k++) s->op.t[k]->fused = true;
        else
            q->s.p[to++] = s;
    }
    q->s.n = to;
}

typedef struct Candidate {
    OnePass *u;
    Expr *whole; /* the sum with everything in it */
    SoftmaxSum sum;
} Candidate;

/* Whether a check in q or around it makes sure of e. */
static bool is_checked(const Seq *q, const Expr *e) {
    for (; q; q = q->parent)
        for (int i = 0; i < q->s.n; i++)
            if (q->s.p[i]->kind == S_CHECK && e_told(q->s.p[i]->check.cond) == e) return true;
    return false;
}

static bool is_maximum(void *user, Expr *e) {
    (void)user;
    return e->op == E_REDUCE && e->kind == R_MAX && e->naxis == 1;
}

/* The sum e over as many keys as the softmax in it, if they are only known to be as many by a
 * check: keys and values that grow in a loop have a size each. */
static Expr *over_keys(const OnePass *u, Expr *e) {
    Cx *c = u->c;
    const Expr *most = find_reduction(map_new(c->a), e->a[0], false, is_maximum, NULL);
    if (!most || e->naxis != 1) return e;
    Expr *n = e->raxis[0]->extent, *keys = most->raxis[0]->extent;
    if (n == keys || !is_checked(u->seq, e_eq(c, n, keys))) return e;
    Axis *key = axis_new(c, keys);
    Expr *at = e_axis(c, key);
    return e_reduce(c, R_SUM, 1, &key, e_subst(c, e->a[0], 1, e->raxis, &at, NULL, NULL));
}

/* Whether a factor is a load of what may be weights: a quotient. */
static bool may_weigh(const Expr *factor) {
    while (factor->op == E_CAST) factor = factor->a[0];
    if (factor->op != E_LOAD) return false;
    const Expr *e = tensor_root(factor->t)->kind == TK_TE ? tensor_root(factor->t)->body : NULL;
    while (e && (e->op == E_CAST || e->op == E_SELECT)) e = e->a[e->n - 1];
    return e && e->op == E_DIV;
}

/* Whether e is a sum over values whose weights lead back to scores. */
static bool is_candidate(void *user, Expr *e) {
    Candidate *k = user;
    OnePass *u = k->u;
    if (!is_sum_of_products(e) || e->dtype != DT_F32) return false;
    for (int i = 0; i < 2; i++) {
        Expr *factor[2] = {e->a[0]->a[0], e->a[0]->a[1]};
        if (!may_weigh(factor[i])) continue;
        u->n = 0;
        u->failed = false;
        factor[i] = e_subst(u->c, factor[i], 0, NULL, NULL, substitute, u);
        Expr *product = e_mul(u->c, factor[0], factor[1]);
        k->whole = over_keys(u, e_reduce(u->c, R_SUM, e->naxis, e->raxis, product));
        if (u->n > 0 && !u->failed && softmax_sum_of(u->c, k->whole, &k->sum)) return true;
    }
    return false;
}

/* Whether member number i of s, at statement *at of q, was changed. */
static bool try_member(OnePass *u, Stmt *s, int i) {
    Cx *c = u->c;
    Program *p = u->p;
    Tensor *t = s->op.t[i], *lead = s->op.t[0];
    Candidate k = {.u = u};
    AttentionKernel plan;
    Axis *axis[MAX_RANK];
    SoftmaxSum other;
    int n = 0;
    Expr *e = find_reduction(map_new(c->a), t->body, true, is_candidate, &k);
    if (!e || !only_ours(u, t)) return false;
    for (int d = 0; d < lead->rank; d++)
        if (!e_is_ival(lead->axis[d]->extent, 1)) axis[n++] = lead->axis[d];
    if (!attention_plan(c, &k.sum, n, axis, p->schedule->lanes, &plan)) return false;
    for (int j = 0; j < s->op.n; j++) /* a kernel computes one */
        if (softmax_sum_find(c, s->op.t[j]->body, &other)) return false;
    const double before = cost_group_ns(p, s, p->schedule->units) + chain_ns(u);
    const double after =
        attention_ns(p, &plan, n, axis) / p->schedule->units + p->schedule->device->group_ns;
    if (!decide(p, X_ATTENTION, s, before, after)) return false;
    t->body = e_replace(c, t->body, e, k.whole);
    return true;
}

static void try_group(void *user, Seq *q, int *at) {
    OnePass *u = user;
    Stmt *s = q->s.p[*at];
    if (s->kind != S_OP || s->level == LEVEL_HOST) return;
    u->seq = q;
    for (int i = 0; i < s->op.n; i++) {
        if (!(s->op.t[i]->body->flags & EF_REDUCE) || !try_member(u, s, i)) continue;
        forget(u, q);
        *at = 0;
        while (q->s.p[*at] != s) ++*at;
        return;
    }
}

void pass_attention(Program *p) {
    Cx *c = p->cx;
    OnePass u = {.p = p, .c = c};
    if (p->schedule->lanes <= 1 || device_is_gpu(p->schedule->device)) return;
    u.uses = NEWN(c->a, int, c->next_tensor + 1);
    u.leads = NEWN(c->a, int8_t, c->next_tensor + 1);
    seq_slots(p->top, use_slot, &u);
    for (int i = 0; i < p->nout; i++) {
        if (p->out[i].t) u.uses[tensor_root(p->out[i].t)->id] += OTHER;
        if (p->out[i].has) e_each_load(c, p->out[i].has, use_load, &u);
    }
    seq_rewrite(p->top, try_group, &u);
}
