/* ranks.c: inputs whose rank is not declared.
 *
 * A Program is for certain ranks. When only one combination of ranks is possible, the inputs have
 * it; when there are a few, the whole graph is lowered for each under branches on the ranks, and a
 * run with others is a fault. Each is lowered alone first: what does not work is left out, with its
 * message for a run that has these ranks. (A model that is loaded rather than compiled to a library
 * does not come here: it is compiled for the ranks that a run brings, api/open.c.) */
#include "utask/lower_internal.h"

#define MOST_CHOICES (OPEN_RANK_MAX + 1)
#define MOST_NODES 20000 /* of all choices together, about */

/* "input x of rank 3 and input y of rank 0" */
static const char *describe(Arena *a, const RankChoices *k, int at) {
    const char *s = "";
    for (int i = 0; i < k->open.n; i++)
        s = arena_printf(a, "%s%sinput %.100s of rank %d", s, i ? " and " : "",
                         k->g->top->param[k->open.input[i]]->name, k->open.combo[at][i]);
    return s;
}

/* Declares the ranks of a combination; undeclare gives back the types before. */
static void declare(RankChoices *k, int at, const VType **before) {
    static const int64_t any[MAX_RANK] = {-1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1};
    for (int i = 0; i < k->open.n; i++) {
        Value *v = k->g->top->param[k->open.input[i]];
        before[i] = v->type;
        graph_declare_input(k->g, &(InputShape){v->name, k->open.combo[at][i], any});
    }
}
static void undeclare(RankChoices *k, const VType **before) {
    for (int i = 0; i < k->open.n; i++) k->g->top->param[k->open.input[i]]->type = before[i];
}

/* Lowers for one combination, for nothing but its message; how many nodes that took. */
static int64_t try_choice(Cx *cx, RankChoices *k, int at) {
    Diag d = {0};
    jmp_buf jb;
    const VType **before = NEWN(cx->a, const VType *, k->open.n);
    LowerState *st = NEW(cx->a, LowerState);
    Arena *volatile own = NULL;
    declare(k, at, before);
    d.top = &jb;
    if (setjmp(jb) == 0) {
        own = arena_new(&d);
        lower_with(cx_new(own, &d), k->g, st, NULL);
    }
    undeclare(k, before);
    arena_free(own);
    if (d.status && d.status != ST_MODEL && d.status != ST_UNSUPPORTED)
        err(cx->d, d.status, NULL, "%s", d.message);
    if (d.status) k->why[at] = arena_printf(cx->a, "%s: %s", describe(cx->a, k, at), d.message);
    return st->nodes;
}

/* "input x declares no rank", "inputs x, z, t and 9 more declare no rank" */
static const char *who(Cx *cx, const RankChoices *k) {
    const char *s = k->open.n > 1 ? "inputs" : "input";
    int named = k->open.n > 4 ? 3 : k->open.n;
    for (int i = 0; i < named; i++)
        s = arena_printf(cx->a, "%s%s %.100s", s, i ? "," : "",
                         k->g->top->param[k->open.input[i]]->name);
    if (named < k->open.n) s = arena_printf(cx->a, "%s and %d more", s, k->open.n - named);
    return arena_printf(cx->a, "%s %s no rank", s, k->open.n > 1 ? "declare" : "declares");
}

/* The message of the combination that was lowered furthest. */
static _Noreturn void none_works(Cx *cx, const RankChoices *k, const int64_t *nodes) {
    int best = 0;
    for (int i = 1; i < k->open.ncombo; i++)
        if (nodes[i] > nodes[best]) best = i;
    err(cx->d, ST_MODEL, NULL, "%s, and none was found to work: %s", who(cx, k), k->why[best]);
}

static _Noreturn void too_many(Cx *cx, const RankChoices *k) {
    err(cx->d, ST_MODEL, NULL,
        "%s, and more combinations of ranks are possible than can be compiled: give some with "
        "--input-shape '%.200s=?,?' (as many sizes as it has axes)",
        who(cx, k), k->g->top->param[k->open.input[0]]->name);
}

Program *lower_graph(Cx *cx, Graph *g) {
    RankChoices k = {.g = g, .open = graph_open_ranks(g, MOST_CHOICES)};
    OpenRanks *o = &k.open;
    int good = 0;
    int64_t total = 0, nodes[MOST_CHOICES];
    if (!o->n) return lower_with(cx, g, NEW(cx->a, LowerState), NULL);
    if (o->more) too_many(cx, &k);
    if (!o->ncombo) { /* the lowering will say what is wrong */
        o->ncombo = MOST_CHOICES;
        for (int r = 0; r < MOST_CHOICES; r++) {
            o->combo[r] = NEWN(cx->a, int8_t, o->n);
            memset(o->combo[r], r, (size_t)o->n);
        }
    }
    k.why = NEWN(cx->a, const char *, o->ncombo);
    int only = 0;
    if (o->ncombo > 1) {
        for (int i = 0; i < o->ncombo; i++) {
            nodes[i] = try_choice(cx, &k, i);
            if (k.why[i]) continue;
            good++;
            total += nodes[i];
            only = i;
        }
        if (!good) none_works(cx, &k, nodes);
        if (good > 1 && total > MOST_NODES) too_many(cx, &k);
        if (good > 1) return lower_with(cx, g, NEW(cx->a, LowerState), &k);
    }
    declare(&k, only, NEWN(cx->a, const VType *, o->n));
    return lower_with(cx, g, NEW(cx->a, LowerState), NULL);
}

/* ---- several combinations in one Program ----------------------------------------------------- */
typedef struct Arms {
    const RankChoices *k;
    const Region *r;
    Val **param;
    int at; /* the combination in hand, one that works */
} Arms;

static int next_good(const RankChoices *k, int at) {
    do at++;
    while (at < k->open.ncombo && k->why[at]);
    return at;
}

static Tensor *tensor_of(Val *v) { return v->kind == VT_OPTIONAL ? v->inner->t : v->t; }

/* The inputs have these ranks; an optional one without element has any. */
static Expr *is_choice(Lower *L, const Arms *a, int at) {
    Expr *all = e_bool(L->cx, true);
    for (int i = 0; i < a->k->open.n; i++) {
        Val *v = a->param[a->k->open.input[i]];
        Expr *same = e_eq(L->cx, tensor_of(v)->rank_e, e_int(L->cx, a->k->open.combo[at][i]));
        if (v->kind == VT_OPTIONAL) same = e_or(L->cx, e_not(L->cx, v->has), same);
        all = e_and(L->cx, all, same);
    }
    return all;
}

static void lower_choice(Lower *L, const Arms *a, Val **result) {
    int n = a->r->nparam;
    Val **param = NEWN(L->a, Val *, n + 1);
    memcpy(param, a->param, sizeof *param * (size_t)n);
    for (int i = 0; i < a->k->open.n; i++) {
        int at = a->k->open.input[i];
        Val *v = a->param[at];
        Val *seen = val_tensor(L, rank_view(L, tensor_of(v), a->k->open.combo[a->at][i]));
        param[at] = seen;
        if (v->kind != VT_OPTIONAL) continue;
        param[at] = arena_memdup(L->a, v, sizeof *v);
        param[at]->inner = seen;
    }
    L->st->loop_plan = map_new(L->a); /* what holds for one rank need not for another */
    L->st->call_plan = map_new(L->a);
    L->st->nodes = 0;
    const Node *here = L->node;
    L->node = NULL;
    lower_region(L, a->r, n, param, a->r->nresult, result);
    L->node = here;
}

static void lower_arm(Lower *L, void *user, int arm, Val **result) {
    Arms a = *(Arms *)user;
    if (arm == 0) {
        lower_choice(L, &a, result);
        return;
    }
    a.at = next_good(a.k, a.at);
    if (next_good(a.k, a.at) == a.k->open.ncombo) { /* the last one that is left */
        lower_choice(L, &a, result);
        return;
    }
    Fork f = fork_begin(L, is_choice(L, &a, a.at));
    fork_run(L, &f, lower_arm, &a, a.r->nresult, result);
}

void lower_choices(Lower *L, const Region *r, const RankChoices *k, Val **param, Val **result) {
    static const Node ranks = {.name = "ranks", .path = "ranks of the inputs"};
    Arms a = {k, r, param, next_good(k, -1)};
    Expr *some = e_bool(L->cx, false);
    L->node = &ranks;
    for (int i = 0; i < k->open.ncombo; i++) {
        Expr *here = is_choice(L, &a, i);
        if (k->why[i])
            fault_unless(L, e_not(L->cx, here), k->why[i]);
        else
            some = e_or(L->cx, some, here);
    }
    const char *known = "";
    for (int i = next_good(k, -1); i < k->open.ncombo; i = next_good(k, i))
        known = arena_printf(L->a, "%s%s%s", known, *known ? "; " : "", describe(L->a, k, i));
    fault_unless(L, some, arena_printf(L->a, "these ranks were not compiled, but: %.400s", known));
    Fork f = fork_begin(L, is_choice(L, &a, a.at));
    fork_run(L, &f, lower_arm, &a, r->nresult, result);
    L->node = NULL;
}
