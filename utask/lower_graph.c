/* lower_graph.c: lowers a Graph to a Program with the invariants of utask.h.
 *
 * Inputs whose rank is not declared: a Program is for specific ranks. If only one combination of
 * ranks is possible, it is used. If there are a few, the whole graph is lowered for each
 * (lower_ranks.c), and a run with other ranks is a fault. Each combination is first lowered on its
 * own: one that fails is left out, and its message is kept for a run with these ranks. (A model
 * that is loaded rather than compiled to a library does not need this: api/open.c compiles it for
 * the ranks of each run.) */
#include "utask/lower_internal.h"

/* ---- graph inputs ---------------------------------------------------------------------------- */
typedef struct DimName { /* the first dimension with this name */
    Sym *sym;
    int input, axis;
} DimName;
typedef VEC(DimName) DimNames;

/* `has`: of an optional input, whether it is there; NULL: it always is. An absent one promises
 * nothing about sizes. */
static Expr *input_dim(Lower *L, DimNames *names, const VType *ty, int input, int axis, Expr *has) {
    Cx *c = L->cx;
    Expr *in_dim = e_indim(c, input, axis);
    if (ty->dim[axis] >= 0) return e_int(c, ty->dim[axis]);
    const char *p = ty->param[axis];
    for (int i = 0; p && i < names->n; i++) {
        const DimName *first = &names->p[i];
        if (strcmp(first->sym->name, p)) continue;
        Expr *s = e_sym(c, first->sym);
        Expr *same = e_eq(c, in_dim, s);
        check(L, has ? e_or(c, e_not(c, has), same) : same,
              "input %s: axis %d, named %s, has size %s, but axis %d of input %s has %s; "
              "--ignore-dim-names compiles without this promise",
              L->p->in[input].name, axis, p, said(L, in_dim), first->axis,
              L->p->in[first->input].name, said(L, s));
        return s;
    }
    DimName n = {NULL, input, axis};
    sym_scoped(L, &n.sym, DT_I64, p ? p : "d", 0, L->seq);
    if (p && !has) vec_push(L->a, names, n);
    return lower_let(L, n.sym, in_dim);
}

static Tensor *input_tensor(Lower *L, DimNames *names, const VType *ty, int input, const char *name,
                            Expr *has) {
    Cx *c = L->cx;
    Expr *dim[MAX_RANK];
    Tensor *t;
    if (!ty || ty->dtype == DT_NONE)
        err(L->d, ST_MODEL, NULL, "input %s has no declared element type", name);
    if (ty->has_shape) {
        for (int i = 0; i < ty->rank; i++) dim[i] = input_dim(L, names, ty, input, i, has);
        t = tensor_new(c, TK_INPUT, ty->dtype, ty->rank, dim);
    } else {
        Expr *rank = let(L, "rank", e_indim(c, input, -1), 0);
        for (int i = 0; i < MAX_RANK; i++)
            dim[i] = i < OPEN_RANK_MAX ? let(L, "d", e_indim(c, input, i), 0) : e_int(c, 1);
        t = tensor_new(c, TK_INPUT, ty->dtype, -1, dim);
        t->rank_e = rank;
        t->rank_mask = (2u << OPEN_RANK_MAX) - 1;
    }
    t->index = input;
    t->name = name;
    t->path = "";
    t->seq = L->seq;
    return t;
}

static Val *input_sequence(Lower *L, const VType *ty, int input, const char *name) {
    const VType *el = ty->elem;
    if (!el || el->kind != VT_TENSOR || el->dtype == DT_NONE)
        err(L->d, ST_UNSUPPORTED, NULL, "input %s: only sequences of tensors are supported", name);
    Val *v = NEW(L->a, Val);
    Expr *one[1] = {e_int(L->cx, 0)};
    v->kind = VT_SEQUENCE;
    v->t = tensor_new(L->cx, TK_INPUT, DT_U8, 1, one);
    v->t->blob = true;
    v->t->index = input;
    v->t->name = name;
    v->t->seq = L->seq;
    v->elem_dtype = el->dtype;
    /* Callers do not enforce declared shapes of elements. A rank is checked where an element is
     * read. A declared scalar says nothing, because exporters write it for elements of any
     * shape. */
    v->elem_rank = el->has_shape && el->rank > 0 ? el->rank : -1;
    v->len = let(L, "len", e_indim(L->cx, input, 0), 0);
    return v;
}

static Val *input_val(Lower *L, DimNames *names, const VType *ty, int input, const char *name,
                      Expr *has) {
    if (!ty) err(L->d, ST_MODEL, NULL, "input %s has no declared type", name);
    switch (ty->kind) {
    case VT_TENSOR: return val_tensor(L, input_tensor(L, names, ty, input, name, has));
    case VT_SEQUENCE: return input_sequence(L, ty, input, name);
    default: break;
    }
    Val *v = NEW(L->a, Val);
    v->kind = VT_OPTIONAL;
    v->has = let(L, "has", e_indim(L->cx, input, -2), 0);
    if (!ty->elem || ty->elem->kind == VT_OPTIONAL)
        err(L->d, ST_UNSUPPORTED, NULL,
            "input %s: only optional tensors and sequences are supported", name);
    v->inner = input_val(L, names, ty->elem, input, name, v->has);
    return v;
}

/* ---- program --------------------------------------------------------------------------------- */
static void io_of(Io *io, const char *name, const VType *ty, Val *v) {
    io->name = name;
    io->type = ty;
    io->kind = v->kind;
    if (v->kind == VT_OPTIONAL) {
        io->has = v->has;
        io->opt_seq = v->inner && v->inner->kind == VT_SEQUENCE;
        v = v->inner;
    }
    io->t = v ? v->t : NULL;
    if (v) io->elem_dtype = v->kind == VT_SEQUENCE ? v->elem_dtype : v->t->dtype;
}

/* Lowers the Graph (ranks NULL: all are declared). *st is zero except for the table of lowerings;
 * if this raises, it says how far lowering got. */
static Program *lower_with(Cx *cx, Graph *g, LowerState *st, const RankChoices *ranks) {
    Program *p = NEW(cx->a, Program);
    p->cx = cx;
    p->name = g->name;
    p->nin = g->top->nparam;
    p->nout = g->top->nresult;
    p->in = NEWN(cx->a, Io, p->nin + 1);
    p->out = NEWN(cx->a, Io, p->nout + 1);
    p->top = seq_new(cx, NULL, NULL, false);
    st->env = NEWN(cx->a, Val *, g->nvalue + 1);
    st->loop_plan = map_new(cx->a);
    st->call_plan = map_new(cx->a);
    st->nfunction = g->nfunction;
    Lower L = {.cx = cx, .a = cx->a, .d = cx->d, .p = p, .seq = p->top, .st = st};
    DimNames names = {0};
    Val **param = NEWN(cx->a, Val *, p->nin + 1), **result = NEWN(cx->a, Val *, p->nout + 1);
    for (int i = 0; i < p->nin; i++) p->in[i].name = g->top->param[i]->name;
    for (int i = 0; i < p->nin; i++) {
        const Value *v = g->top->param[i];
        param[i] = input_val(&L, &names, v->type, i, v->name, NULL);
        io_of(&p->in[i], v->name, v->type, param[i]);
    }
    if (ranks)
        lower_choices(&L, g->top, ranks, param, result);
    else
        lower_region(&L, g->top, p->nin, param, p->nout, result);
    for (int i = 0; i < p->nout; i++) {
        if (!result[i])
            err(cx->d, ST_MODEL, NULL, "output %s can never be computed", g->top->result_name[i]);
        io_of(&p->out[i], g->top->result_name[i], g->top->result_type[i], result[i]);
        const VType *ty = g->top->result_type[i];
        if (ty && ty->kind == VT_TENSOR && ty->dtype != DT_NONE && result[i]->kind == VT_TENSOR &&
            ty->dtype != result[i]->t->dtype)
            err(cx->d, ST_MODEL, NULL, "output %s is declared %s but computed as %s",
                g->top->result_name[i], dtype_name(ty->dtype), dtype_name(result[i]->t->dtype));
    }
    sizes_check(p);
    return p;
}

/* ---- inputs without a declared rank ---------------------------------------------------------- */
#define MOST_CHOICES (OPEN_RANK_MAX + 1)
#define MOST_NODES 20000 /* about, for all choices together */

/* Declares the ranks of a combination; undeclare restores the former types. */
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

static LowerState *state_new(Cx *cx, LowerFn *const *lowering) {
    LowerState *st = NEW(cx->a, LowerState);
    st->lowering = lowering;
    return st;
}

/* Lowers for one combination, only to get its message. Returns how many nodes were lowered. */
static int64_t try_choice(Cx *cx, LowerFn *const *lowering, RankChoices *k, int at) {
    Diag d = {.progress = cx->d->progress};
    jmp_buf jb;
    const VType **before = NEWN(cx->a, const VType *, k->open.n);
    LowerState *st = state_new(cx, lowering);
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
    if (d.status) k->why[at] = arena_printf(cx->a, "%s: %s", ranks_text(cx->a, k, at), d.message);
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

/* Raises the message of the combination that was lowered furthest. */
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

Program *lower_graph(Cx *cx, Graph *g, LowerFn *const *lowering) {
    RankChoices k = {.g = g, .open = graph_open_ranks(g, MOST_CHOICES)};
    OpenRanks *o = &k.open;
    int good = 0;
    int64_t total = 0, nodes[MOST_CHOICES];
    if (!o->n) return lower_with(cx, g, state_new(cx, lowering), NULL);
    if (o->more) too_many(cx, &k);
    if (!o->ncombo) { /* lowering will report what is wrong */
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
            nodes[i] = try_choice(cx, lowering, &k, i);
            if (k.why[i]) continue;
            good++;
            total += nodes[i];
            only = i;
        }
        if (!good) none_works(cx, &k, nodes);
        if (good > 1 && total > MOST_NODES) too_many(cx, &k);
        if (good > 1) return lower_with(cx, g, state_new(cx, lowering), &k);
    }
    declare(&k, only, NEWN(cx->a, const VType *, o->n));
    return lower_with(cx, g, state_new(cx, lowering), NULL);
}
