/* lower_nodes.c: lowers regions of the Graph to statements, node by node.
 *
 * Requires a Graph as frontend/ leaves it (names resolved, opsets normalized, functions inlined).
 * Every operator's lowering works on inputs of known rank: where a value's rank is known only at
 * run time (an If whose branches differ in rank), the rest of the region is lowered once for each
 * possible rank under a Branch on the rank. */
#include "utask/lower_internal.h"

/* Beyond this many nested duplications, or this many nodes, only the node itself is split. */
#define SPLIT_DEPTH 5
#define SPLIT_NODES 20000

/* ---- unknown ranks --------------------------------------------------------------------------- */
static bool rank_agnostic(const OpRow *op) { return strstr(op->types, "anyrank") != NULL; }

static Tensor *unknown_rank_input(Lower *L, const Node *n) {
    if (rank_agnostic(n->op)) return NULL;
    for (int i = 0; i < n->nin; i++) {
        if (!n->in[i]) continue;
        Val *v = val_of(L, n->in[i]);
        if (v->kind == VT_OPTIONAL) v = v->inner;
        if (v && v->kind == VT_TENSOR && v->t->rank < 0)
            return refined(L, v->t) == v->t ? v->t : NULL;
    }
    return NULL;
}

/* Lowers nodes [from, to) of r. `whole`: to the end of r, giving its results; else a single node,
 * giving its outputs. */
static void lower_nodes(Lower *L, const Region *r, int from, int to, bool whole, Val **result);

typedef struct Split {
    Tensor *t;
    uint32_t ranks; /* not handled yet */
    const Region *r;
    int from, to;
    bool whole;
} Split;

static void split_arm(Lower *L, void *user, int arm, Val **result);

/* Lowers nodes [from, to) of r for each rank in s->ranks. */
static void split_ranks(Lower *L, Split *s, int nresult, Val **result) {
    int r = __builtin_ctz(s->ranks);
    if (!(s->ranks & (s->ranks - 1))) { /* the only one left */
        Refine k = {s->t, rank_view(L, s->t, r), false};
        const int before = L->st->refine.n;
        vec_push(L->a, &L->st->refine, k);
        lower_nodes(L, s->r, s->from, s->to, s->whole, result);
        L->st->refine.n = before;
        return;
    }
    Fork f = fork_begin(L, e_eq(L->cx, s->t->rank_e, e_int(L->cx, r)));
    f.by_rank = true;
    fork_run(L, &f, split_arm, s, nresult, result);
}

static void split_arm(Lower *L, void *user, int arm, Val **result) {
    Split *s = user, k = *s;
    uint32_t low = s->ranks & (0u - s->ranks);
    k.ranks = arm == 0 ? low : s->ranks & ~low;
    int n = k.whole ? k.r->nresult : k.r->node[k.from]->nout;
    split_ranks(L, &k, n, result);
}

/* ---- nodes ----------------------------------------------------------------------------------- */
static void check_types(Lower *L) {
    const Node *n = L->node;
    for (int i = 0; i < n->nin; i++) {
        if (!n->in[i]) continue;
        Val *v = val_of(L, n->in[i]);
        if (v->kind != VT_TENSOR) continue;
        if (!op_type_ok(n->op, i, v->t->dtype))
            fail(L, "%s has type %s, which the operator does not take", in_text(L, i),
                 dtype_name(v->t->dtype));
        for (int j = 0; j < i; j++) {
            if (!n->in[j] || !op_type_same(n->op, i, j)) continue;
            Val *w = val_of(L, n->in[j]);
            if (w->kind == VT_TENSOR && w->t->dtype != v->t->dtype)
                fail(L, "%s and %s have different types (%s and %s)", in_text(L, j), in_text(L, i),
                     dtype_name(w->t->dtype), dtype_name(v->t->dtype));
        }
    }
}

static void lower_node(Lower *L, const Node *n) {
    const Node *up = L->node;
    Val **up_out = L->out;
    L->node = n;
    L->out = NEWN(L->a, Val *, n->nout ? n->nout : 1);
    check_types(L);
    L->st->lowering[op_index(n->op)](L);
    for (int i = 0; i < n->nout; i++) {
        if (!n->out[i]) continue;
        if (!L->out[i])
            fail(L, "output %d (%s) is not produced by this operator", i, n->out[i]->name);
        L->st->env[n->out[i]->id] = L->out[i];
    }
    L->node = up;
    L->out = up_out;
}

/* Lowers a node on the flattened elements of its inputs, if it needs no more. */
static bool lower_in_a_row(Lower *L, const Node *n) {
    Refine flat[ROW_MAX];
    int nflat, before = L->st->refine.n;
    bool same;
    if (!in_a_row(L, n, flat, &nflat, &same)) return false;
    for (int i = 0; i < nflat; i++) vec_push(L->a, &L->st->refine, flat[i]);
    lower_node(L, n);
    L->st->refine.n = before;
    for (int i = 0; same && i < n->nout; i++) {
        if (!n->out[i]) continue;
        Val **v = &L->st->env[n->out[i]->id];
        *v = val_tensor(L, out_of_row(L, (*v)->t, flat[0].from));
    }
    return true;
}

static void lower_nodes(Lower *L, const Region *r, int from, int to, bool whole, Val **result) {
    LowerState *st = L->st;
    for (int i = from; i < to; i++) {
        const Node *n = r->node[i];
        Tensor *t = unknown_rank_input(L, n);
        st->nodes++;
        if (t && lower_in_a_row(L, n)) continue;
        if (!t) {
            lower_node(L, n);
            continue;
        }
        const Node *up = L->node;
        L->node = n;
        /* Lower the rest of the region for each rank; if that was done too often, only this
         * node. */
        bool rest = whole && st->split_depth < SPLIT_DEPTH && st->nodes < SPLIT_NODES &&
                    __builtin_popcount(t->rank_mask) <= 3;
        Split s = {t, t->rank_mask, r, i, rest ? to : i + 1, rest};
        if (rest) {
            st->split_depth++;
            split_ranks(L, &s, r->nresult, result);
            st->split_depth--;
            L->node = up;
            return;
        }
        Val **res = NEWN(L->a, Val *, n->nout ? n->nout : 1);
        split_ranks(L, &s, n->nout, res);
        for (int k = 0; k < n->nout; k++) {
            if (!n->out[k]) continue;
            st->env[n->out[k]->id] = res[k];
            Tensor *o = res[k] && res[k]->kind == VT_TENSOR ? res[k]->t : NULL;
            if (o && o->rank < 0 && rank_follows(o->rank_e, t->rank_mask)) o->rank_e = t->rank_e;
        }
        L->node = up;
    }
    if (whole)
        for (int i = 0; i < r->nresult; i++) result[i] = val_of(L, r->result[i]);
    else /* a single node */
        for (int k = 0; k < r->node[from]->nout; k++)
            result[k] = r->node[from]->out[k] ? st->env[r->node[from]->out[k]->id] : NULL;
}

/* A body's declared types must match the actual ones. Its declared ranks and sizes often do not, so
 * they are not checked. */
static void check_declared(Lower *L, const Region *r, const char *what, const char *name,
                           const VType *ty, const Val *v) {
    if (!ty || ty->kind != VT_TENSOR || ty->dtype == DT_NONE || !v || v->kind != VT_TENSOR) return;
    if (ty->dtype != v->t->dtype)
        fail(L, "%s '%.200s' of the subgraph %.200s is declared %s but is %s", what, name, r->name,
             dtype_name(ty->dtype), dtype_name(v->t->dtype));
}

void lower_region(Lower *L, const Region *r, int nparam, Val **param, int nresult, Val **result) {
    if (nparam != r->nparam)
        fail(L, "the subgraph %s takes %d inputs but gets %d", r->name, r->nparam, nparam);
    if (nresult != r->nresult)
        fail(L, "the subgraph %s gives %d outputs where %d are needed", r->name, r->nresult,
             nresult);
    bool body = r->owner != NULL;
    for (int i = 0; i < nparam; i++) {
        const Value *p = r->param[i];
        if (body) check_declared(L, r, "input", p->name, p->type, param[i]);
        L->st->env[p->id] = param[i];
    }
    lower_nodes(L, r, 0, r->nnode, true, result);
    for (int i = 0; body && i < nresult; i++)
        check_declared(L, r, "output", r->result_name[i], r->result_type[i], result[i]);
}
