/* lower_ranks.c: lowers a graph for several combinations of input ranks, under branches on the
 * ranks. */
#include "utask/lower_internal.h"

const char *ranks_text(Arena *a, const RankChoices *k, int at) {
    const char *s = "";
    for (int i = 0; i < k->open.n; i++)
        s = arena_printf(a, "%s%sinput %.100s of rank %d", s, i ? " and " : "",
                         k->g->top->param[k->open.input[i]]->name, k->open.combo[at][i]);
    return s;
}

typedef struct Arms {
    const RankChoices *k;
    const Region *r;
    Val **param;
    int at; /* the current combination, one that works */
} Arms;

static int next_good(const RankChoices *k, int at) {
    do at++;
    while (at < k->open.ncombo && k->why[at]);
    return at;
}

static Tensor *tensor_of(Val *v) { return v->kind == VT_OPTIONAL ? v->inner->t : v->t; }

/* Whether the inputs have these ranks; an optional without an element matches any. */
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
    L->st->loop_plan = map_new(L->a); /* what holds for one rank need not hold for another */
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
    if (next_good(a.k, a.at) == a.k->open.ncombo) { /* the last one */
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
        known = arena_printf(L->a, "%s%s%s", known, *known ? "; " : "", ranks_text(L->a, k, i));
    fault_unless(L, some, arena_printf(L->a, "these ranks were not compiled, but: %.400s", known));
    Fork f = fork_begin(L, is_choice(L, &a, a.at));
    fork_run(L, &f, lower_arm, &a, r->nresult, result);
    L->node = NULL;
}
