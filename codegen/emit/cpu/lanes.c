/* lanes.c: reductions computed for many elements at once.
 *
 * Where everything that a reduction loads is contiguous along the last axis of the domain, v, the
 * loops of the reduction go outside and v inside: a tile of accumulators, one for each value of v,
 * takes the elements of one step of the reduction after the other, each as vectors. Pooling over
 * pixels whose channels lie together is of this form, and sums over the first axes of a tensor. */
#include "codegen/emit/emit.h"
#include "scheduler/cost/cost.h"
#include "scheduler/cost/decide.h"

#define MAX_REDUCES 4
#define TILE 256 /* accumulators */

typedef struct Lanes {
    Group *g;
    Axis *v;
    int n;
    Expr *reduce[MAX_REDUCES];
} Lanes;

/* Whether e can be evaluated for neighbouring values of v as vectors: loads move by one element or
 * none, and no condition depends on v. */
static bool contiguous(Lanes *k, Map *seen, Expr *e, bool *moves) {
    Cx *c = k->g->em->c;
    if (!e_uses_axis(e, k->v) || map_geti(seen, (uint64_t)e->id + 1)) return true;
    map_seti(seen, (uint64_t)e->id + 1, e);
    if (e->op == E_LOAD) {
        Expr *coef, *rest, *flat = flat_of(c, e);
        if (flat->flags & (EF_LOAD | EF_GUARD) || !e_affine(c, flat, k->v, &coef, &rest))
            return false;
        if (!e_is_ival(coef, 1)) return false;
        *moves = true;
        return true;
    }
    if (e->op == E_REDUCE || e->op == E_GUARD || e->op == E_AXIS ||
        (e->op == E_SELECT && e_uses_axis(e->a[0], k->v)))
        return false;
    for (int i = 0; i < e->n; i++)
        if (!contiguous(k, seen, e->a[i], moves)) return false;
    return true;
}

static bool find(Lanes *k, Map *seen, Expr *e) {
    if (!(e->flags & EF_REDUCE) || map_geti(seen, (uint64_t)e->id + 1)) return true;
    map_seti(seen, (uint64_t)e->id + 1, e);
    if (e->op == E_REDUCE) {
        bool moves = false;
        if (e->kind >= R_ARGMAX || e->dtype == DT_F16 || e->dtype == DT_BF16 ||
            k->n == MAX_REDUCES || e->a[0]->flags & (EF_REDUCE | EF_GUARD) ||
            !contiguous(k, map_new(k->g->em->a), e->a[0], &moves))
            return false;
        k->reduce[k->n++] = e;
        return moves;
    }
    if (e_always(e) < e->n || e->op == E_LOAD) return false; /* not for every element */
    for (int i = 0; i < e->n; i++)
        if (!find(k, seen, e->a[i])) return false;
    return true;
}

static const char *accumulator(Group *g, Expr *e) {
    Lanes *k = g->user;
    for (int i = 0; i < k->n; i++)
        if (k->reduce[i] == e) return arena_printf(g->em->a, "g%d[l]", i);
    return NULL;
}

static void step(Lanes *k, int i, Expr *body) {
    Fn *f = &k->g->f;
    fn_hoist(f, body, 1, &k->v);
    fn_line(f, "%s", k->g->em->target->simd);
    fn_line(f, "for (int64_t l = 0; l < lanes; l++) {");
    int mark = fn_open(f);
    fn_line(f, "const int64_t iv = v0 + l;");
    fn_bind(f, e_axis(f->c, k->v), "iv");
    fn_combine(f, k->reduce[i], arena_printf(f->a, "g%d[l]", i), fn_expr(f, body));
    fn_close(f, mark);
    fn_line(f, "}");
}

static void accumulate(Lanes *k, int i) {
    Fn *f = &k->g->f;
    Expr *e = k->reduce[i], *body = e->a[0];
    int mark = f->bound.n, indent = f->indent;
    fn_line(f, "for (int64_t l = 0; l < lanes; l++) g%d[l] = %s;", i, fn_neutral(f, e));
    for (int d = 0; d < e->naxis; d++) {
        const char *r = arena_printf(f->a, "r%d", f->ntemp++);
        fn_line(f, "for (int64_t %s = 0; %s < %s; %s++) {", r, r, fn_expr(f, e->raxis[d]->extent),
                r);
        fn_open(f);
        fn_bind(f, e_axis(f->c, e->raxis[d]), r);
    }
    if (body->op == E_SELECT) {
        fn_line(f, "if (%s) {", fn_expr(f, body->a[0]));
        int inner = fn_open(f);
        step(k, i, body->a[1]);
        fn_close(f, inner);
        fn_line(f, "} else {");
        inner = fn_open(f);
        step(k, i, body->a[2]);
        fn_close(f, inner);
        fn_line(f, "}");
    } else
        step(k, i, body);
    while (f->indent > indent) {
        f->indent--;
        fn_line(f, "}");
    }
    f->bound.n = mark;
}

bool group_lanes(Group *g) {
    Emit *em = g->em;
    Fn *f = &g->f;
    Lanes k = {.g = g};
    int64_t n;
    if (!g->k->naxis) return false;
    k.v = g->k->axis[g->k->naxis - 1];
    if (e_is_int(k.v->extent, &n) && n * 2 < em->vec) return false;
    Map *seen = map_new(em->a);
    for (int i = 0; i < g->k->n; i++)
        if (!find(&k, seen, g->k->value[i])) return false;
    if (!k.n) return false;
    const Schedule *plan = em->p->schedule;
    double ns = plan ? cost_group_ns(em->c, plan->device, g->k->s, plan->units) : 0;
    if (!decide_value(em->p, X_LANES, g->k->s, 2, (Way[]){{1, ns}, {0, ns}})) return false;
    g->reduce = accumulator;
    g->user = &k;
    group_range(g);
    int indent = f->indent, mark = f->bound.n;
    for (int i = 0; i < g->k->naxis - 1; i++) group_loop(g, g->k->axis[i], arena_printf(em->a, "i%d", i));
    bool split = k.v == g->k->split;
    const char *to = split ? "to" : fn_expr(f, k.v->extent);
    fn_line(f, "for (int64_t v0 = %s; v0 < %s; v0 += %d) {", split ? "from" : "0", to, TILE);
    fn_open(f);
    fn_line(f, "const int64_t lanes = bk_mini(%s - v0, %d);", to, TILE);
    for (int i = 0; i < k.n; i++) {
        fn_line(f, "%s g%d[%d] __attribute__((aligned(64)));", c_type(k.reduce[i]->dtype), i, TILE);
        accumulate(&k, i);
    }
    for (int i = 0; i < g->k->n; i++) fn_hoist(f, g->k->value[i], 1, &k.v);
    bool plain = true;
    for (int i = 0; i < g->k->n && plain; i++) plain = !fn_guarded(f, g->k->value[i]);
    if (plain) fn_line(f, "%s", em->target->simd);
    fn_line(f, "for (int64_t l = 0; l < lanes; l++) {");
    fn_open(f);
    fn_line(f, "const int64_t iv = v0 + l;");
    fn_bind(f, e_axis(f->c, k.v), "iv");
    group_members(g);
    while (f->indent > indent) {
        f->indent--;
        fn_line(f, "}");
    }
    f->bound.n = mark;
    return true;
}
