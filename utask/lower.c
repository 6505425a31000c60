/* lower.c: the lowering driver: Graph regions to statements, node by node.
 *
 * Requires a Graph as frontend/ leaves it (names resolved, opsets normalized, functions inlined).
 * Leaves a Program whose invariants are those of utask.h. Every operator's lowering works on inputs
 * of known rank: where a value's rank is known only at run time (an If whose branches differ in
 * rank), the rest of the region is lowered once for each possible rank under a Branch on the rank.
 * Inputs without a declared rank are ranks.c's. */
#include "utask/lower_internal.h"
#include "utask/ops/ops.h"

/* Beyond this many nested duplications, or this many nodes, only the node itself is split. */
#define SPLIT_DEPTH 5
#define SPLIT_NODES 20000

static LowerFn *const lowerings[] = {
#define OP_AS(id, ...) lower_##id,
#include "frontend/ops.def"
};

/* ---- errors ---------------------------------------------------------------------------------- */
const char *said(Lower *L, Expr *e) {
    int64_t v;
    int i = 0;
    ASSERT(e->dtype == DT_I64);
    if (e_is_int(e, &v)) return arena_printf(L->a, "%lld", (long long)v);
    while (i < L->nsaid && L->said[i] != e) i++;
    if (i == SAID_MAX) return "?";
    if (i == L->nsaid) L->said[L->nsaid++] = e;
    return arena_printf(L->a, "%c", SAID_FIRST + i);
}

/* A message while compiling: what is not known is named. */
static _Noreturn void raise(Lower *L, Status st, const char *text) {
    Sb s = {.a = L->a};
    for (; *text; text++) {
        int i = *text - SAID_FIRST;
        if (i < 0 || i >= L->nsaid)
            sb_write(&s, text, 1);
        else if (L->said[i]->op == E_SYM && L->said[i]->sym->name)
            sb_puts(&s, L->said[i]->sym->name);
        else
            sb_puts(&s, "?");
    }
    L->nsaid = 0;
    err(L->d, st, L->node ? L->node->path : NULL, "%s", s.n ? s.p : "");
}
/* cond with the values that the message shows, which are taken. */
static Expr *tell(Lower *L, Expr *cond, bool uniform) {
    for (int i = 0; i < L->nsaid; i++)
        if (uniform && !L->said[i]->pure) L->said[i] = let(L, "said", L->said[i], INT64_MIN);
    cond = e_tell(L->cx, cond, L->nsaid, L->said);
    L->nsaid = 0;
    return cond;
}
void fail(Lower *L, const char *fmt, ...) {
    char text[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    raise(L, ST_MODEL, text);
}
void unsupported(Lower *L, const char *fmt, ...) {
    char text[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    raise(L, ST_UNSUPPORTED, text);
}

int site(Lower *L, const char *fmt, ...) {
    char text[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return cx_site(L->cx, L->node ? L->node->path : NULL, "%s", text);
}

Expr *guarded(Lower *L, Expr *cond, Expr *a, Expr *b, const char *fmt, ...) {
    char text[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    int at = e_is_ival(cond, 1) ? 0 : site(L, "%s", text);
    return e_guard(L->cx, tell(L, cond, false), a, b, at);
}

void check(Lower *L, Expr *cond, const char *fmt, ...) {
    char text[512];
    va_list ap;
    int64_t v;
    ASSERT(cond->dtype == DT_BOOL);
    if (e_is_int(cond, &v) && v) {
        L->nsaid = 0;
        return;
    }
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (e_is_int(cond, &v)) {
        L->st->unmet = true;
        fail(L, "%s", text);
    }
    if (!cond->pure) cond = let(L, "ok", cond, 0);
    for (Seq *q = L->seq; q; q = q->parent) /* checked already? */
        for (int i = 0; i < q->s.n; i++)
            if (q->s.p[i]->kind == S_CHECK && e_told(q->s.p[i]->check.cond) == cond) {
                L->nsaid = 0;
                return;
            }
    cond = tell(L, cond, true);
    Stmt *s = stmt_new(L->cx, S_CHECK, L->node ? L->node->path : "");
    s->check.cond = cond;
    s->check.site = site(L, "%s", text);
    vec_push(L->a, &L->seq->s, s);
}

/* " (3, not 4)", " (3 and 4)": both sizes, or the one that is not given. */
static void check_pair(Lower *L, Expr *cond, Expr *a, Expr *b, const char *between, const char *fmt,
                       va_list ap) {
    char text[512];
    vsnprintf(text, sizeof text, fmt, ap);
    if (a->dtype != DT_I64 || e_is_ival(cond, 1))
        check(L, cond, "%s", text);
    else if (a->op == E_CONST && b->op != E_CONST && *between == ' ')
        check(L, cond, "%s (%s)", text, said(L, b));
    else
        check(L, cond, "%s (%s%s%s)", text, said(L, a), between, said(L, b));
}
#define CHECK_PAIR(name, cond, between)                                                            \
    void name(Lower *L, Expr *a, Expr *b, const char *fmt, ...) {                                  \
        va_list ap;                                                                                \
        va_start(ap, fmt);                                                                         \
        check_pair(L, cond, a, b, between, fmt, ap);                                               \
        va_end(ap);                                                                                \
    }
CHECK_PAIR(check_eq, e_eq(L->cx, a, b), b->op == E_CONST ? ", not " : " and ")
CHECK_PAIR(check_le, e_le(L->cx, a, b), " > ")
CHECK_PAIR(check_lt, e_lt(L->cx, a, b), " >= ")
CHECK_PAIR(check_fits, e_or(L->cx, e_eq(L->cx, a, e_int(L->cx, 1)), e_eq(L->cx, a, b)), ", not ")

/* ---- values ---------------------------------------------------------------------------------- */
Val *val_tensor(Lower *L, Tensor *t) {
    Val *v = NEW(L->a, Val);
    v->kind = VT_TENSOR;
    v->t = t;
    return v;
}

/* t as it is seen here. Where the rank of one value is known, that of all with the same rank is. */
static Tensor *refined(Lower *L, Tensor *t) {
    const Tensor *same = NULL;
    for (int i = L->st->refine.n - 1; i >= 0; i--) {
        const Refine *k = &L->st->refine.p[i];
        if (k->from == t) return k->to;
        if (!same && !k->row && k->from->rank_e == t->rank_e) same = k->to;
    }
    if (!same || !(t->rank_mask >> same->rank & 1)) return t;
    Refine k = {t, rank_view(L, t, same->rank), false};
    k.to->seq = seq_inside(t->seq, same->seq) ? t->seq : same->seq;
    vec_push(L->a, &L->st->refine, k);
    return k.to;
}

Val *val_of(Lower *L, const Value *v) {
    Val *x = L->st->env[v->id];
    if (!x && v->data) {
        Tensor *t = const_tensor(L, v->data);
        t->name = v->name;
        x = L->st->env[v->id] = val_tensor(L, t);
    }
    if (!x)
        err(L->d, ST_MODEL, L->node ? L->node->path : NULL,
            "value %s is used where it has no value", v->name);
    if (x->kind == VT_TENSOR && x->t->rank < 0) {
        Tensor *t = refined(L, x->t);
        if (t != x->t) return val_tensor(L, t);
    }
    return x;
}

bool has_in(Lower *L, int i) { return i < L->node->nin && L->node->in[i]; }
Val *in_val(Lower *L, int i) { return has_in(L, i) ? val_of(L, L->node->in[i]) : NULL; }

const char *in_text(Lower *L, int i) {
    const char *name = has_in(L, i) ? L->node->in[i]->name : NULL;
    return name && *name ? arena_printf(L->a, "input %d '%.100s'", i, name)
                         : arena_printf(L->a, "input %d", i);
}

Tensor *in(Lower *L, int i) {
    Val *v = in_val(L, i);
    if (!v) return NULL;
    if (v->kind == VT_OPTIONAL && v->inner && v->inner->kind == VT_TENSOR) {
        check(L, v->has, "the optional %s has no element", in_text(L, i));
        v = v->inner;
    }
    if (v->kind != VT_TENSOR) fail(L, "%s must be a tensor", in_text(L, i));
    return v->t;
}

bool wants_out(Lower *L, int i) { return i < L->node->nout && L->node->out[i]; }

void out_val(Lower *L, int i, Val *v) {
    if (wants_out(L, i)) L->out[i] = v;
}

void out(Lower *L, int i, Tensor *t) {
    if (!wants_out(L, i)) return;
    if (!t->name) t->name = L->node->out[i]->name;
    L->out[i] = val_tensor(L, t);
}

int64_t attr_i(Lower *L, const char *name, int64_t dflt) {
    const Attr *a = node_attr(L->node, name);
    if (!a) return dflt;
    if (a->kind != AT_INT) fail(L, "attribute %s must be an integer", name);
    return a->i;
}
double attr_f(Lower *L, const char *name, double dflt) {
    const Attr *a = node_attr(L->node, name);
    if (!a) return dflt;
    if (a->kind != AT_FLOAT) fail(L, "attribute %s must be a float", name);
    return a->f;
}
const char *attr_s(Lower *L, const char *name, const char *dflt) {
    const Attr *a = node_attr(L->node, name);
    if (!a) return dflt;
    if (a->kind != AT_STRING) fail(L, "attribute %s must be a string", name);
    return a->s;
}
const int64_t *attr_ints(Lower *L, const char *name, int *n) {
    const Attr *a = node_attr(L->node, name);
    *n = -1;
    if (!a) return NULL;
    if (a->kind != AT_INTS) fail(L, "attribute %s must be a list of integers", name);
    *n = a->n;
    return a->ints;
}
const float *attr_floats(Lower *L, const char *name, int *n) {
    const Attr *a = node_attr(L->node, name);
    *n = -1;
    if (!a) return NULL;
    if (a->kind != AT_FLOATS) fail(L, "attribute %s must be a list of floats", name);
    *n = a->n;
    return a->floats;
}
bool attr_has(Lower *L, const char *name) { return node_attr(L->node, name) != NULL; }

int norm_axis(Lower *L, int64_t axis, int rank) {
    if (axis < -rank || axis >= rank)
        fail(L, "axis %lld is outside a tensor of rank %d", (long long)axis, rank);
    return (int)(axis < 0 ? axis + rank : axis);
}

/* ---- uniform values -------------------------------------------------------------------------- */
Expr *sym_scoped(Lower *L, Sym **out, DType t, const char *name, int64_t lo, Seq *scope) {
    Sym *s = sym_new(L->cx, t, name, lo);
    s->scope = scope;
    if (out) *out = s;
    return e_sym(L->cx, s);
}

Expr *let(Lower *L, const char *name, Expr *e, int64_t lo) {
    if (e->op == E_CONST || e->op == E_SYM) return e;
    for (Seq *q = L->seq; q; q = q->parent) /* bound already? */
        for (int i = q->s.n - 1; i >= 0 && i >= q->s.n - 200; i--)
            if (q->s.p[i]->kind == S_LET && q->s.p[i]->let.e == e)
                return e_sym(L->cx, q->s.p[i]->let.sym);
    int64_t a, b = INT64_MAX;
    if (e->dtype == DT_I64 && e_range(e, &a, &b) && a > lo) lo = a;
    Stmt *s = stmt_new(L->cx, S_LET, L->node ? L->node->path : "");
    Expr *r = sym_scoped(L, &s->let.sym, e->dtype, name, lo, L->seq);
    s->let.e = e;
    if (b > lo && b <= INT32_MAX) s->let.sym->hi = b; /* more is a clamp, and says nothing */
    vec_push(L->a, &L->seq->s, s);
    return r;
}

Expr *uni(Lower *L, Tensor *t, int64_t i) {
    Cx *c = L->cx;
    Expr *e;
    if (t->rank < 0)
        e = e_loadf(c, t, e_int(c, i));
    else {
        Expr *idx[MAX_RANK];
        int64_t rest = i, d;
        bool fixed = true;
        for (int k = t->rank - 1; k >= 0; k--) {
            if (!e_is_int(t->dim[k], &d)) {
                fixed = fixed && (k == 0 || rest == 0);
                idx[k] = e_int(c, rest);
                rest = 0;
                continue;
            }
            if (d <= 0)
                fail(L, "%s must have elements, but axis %d has size %lld",
                     t->name ? t->name : "a tensor", k, (long long)d);
            idx[k] = e_int(c, rest % d);
            rest /= d;
        }
        e = fixed ? tensor_at(c, t, idx) : e_loadf(c, t, e_int(c, i));
    }
    return e->pure && !(e->flags & EF_GUARD) ? e : let(L, "u", e, INT64_MIN);
}

Expr *uni_i64(Lower *L, Tensor *t, int64_t i) { return e_cast(L->cx, DT_I64, uni(L, t, i)); }

bool const_elem(Tensor *t, int64_t i, int64_t *v) {
    if (t->kind == TK_CONST) {
        if (i >= t->data->count || !(dtype_is_int(t->dtype) || t->dtype == DT_BOOL)) return false;
        *v = elem_get_i(t->dtype, t->data->data, i);
        return true;
    }
    return t->elem && i < count_const(t) && e_is_int(t->elem[i], v);
}

/* ---- unknown ranks --------------------------------------------------------------------------- */
Expr *rank_expr(Lower *L, Tensor *t) { return t->rank < 0 ? t->rank_e : e_int(L->cx, t->rank); }

Tensor *rank_view(Lower *L, Tensor *t, int rank) {
    Expr *const *dim = t->alt[rank] ? t->alt[rank] : t->dim;
    Tensor *v = tensor_new(L->cx, TK_VIEW, t->dtype, rank, dim);
    v->base = t->kind == TK_VIEW ? t->base : t;
    v->name = t->name;
    v->path = t->path;
    v->seq = L->seq;
    return v;
}

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

/* Nodes [from, to) of r. `whole`: up to the end, for the results of r; else one node, for its
 * outputs. */
static void lower_nodes(Lower *L, const Region *r, int from, int to, bool whole, Val **result);

typedef struct Split {
    Tensor *t;
    uint32_t ranks; /* still to tell apart */
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
    lowerings[n->op->index](L);
    for (int i = 0; i < n->nout; i++) {
        if (!n->out[i]) continue;
        if (!L->out[i])
            fail(L, "output %d (%s) is not produced by this operator", i, n->out[i]->name);
        L->st->env[n->out[i]->id] = L->out[i];
    }
    L->node = up;
    L->out = up_out;
}

/* A node that needs no more of its inputs than their elements in a row. */
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
        /* The rest of the region under each rank; when that was done too often, this node only. */
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

/* What a body declares must be what it gets and gives; its ranks and sizes often are not. */
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

/* ---- graph inputs ---------------------------------------------------------------------------- */
typedef struct DimName { /* the first dimension of its name */
    Sym *sym;
    int input, axis;
} DimName;
typedef struct DimNames {
    VEC(DimName) name;
} DimNames;

static Expr *input_dim(Lower *L, DimNames *names, const VType *ty, int input, int axis) {
    Cx *c = L->cx;
    Expr *in_dim = e_indim(c, input, axis);
    if (ty->dim[axis] >= 0) return e_int(c, ty->dim[axis]);
    const char *p = ty->param[axis];
    for (int i = 0; p && i < names->name.n; i++) {
        const DimName *first = &names->name.p[i];
        if (strcmp(first->sym->name, p)) continue;
        Expr *s = e_sym(c, first->sym);
        check(L, e_eq(c, in_dim, s),
              "input %s: axis %d, named %s, has size %s, but axis %d of input %s has %s; "
              "--ignore-dim-names compiles without this promise",
              L->p->in[input].name, axis, p, said(L, in_dim), first->axis,
              L->p->in[first->input].name, said(L, s));
        return s;
    }
    Stmt *s = stmt_new(c, S_LET, "");
    Expr *r = sym_scoped(L, &s->let.sym, DT_I64, p ? p : "d", 0, L->seq);
    s->let.e = in_dim;
    vec_push(L->a, &L->seq->s, s);
    DimName n = {s->let.sym, input, axis};
    if (p) vec_push(L->a, &names->name, n);
    return r;
}

static Tensor *input_tensor(Lower *L, DimNames *names, const VType *ty, int input,
                            const char *name) {
    Cx *c = L->cx;
    Expr *dim[MAX_RANK];
    Tensor *t;
    if (!ty || ty->dtype == DT_NONE)
        err(L->d, ST_MODEL, NULL, "input %s has no declared element type", name);
    if (ty->has_shape) {
        for (int i = 0; i < ty->rank; i++) dim[i] = input_dim(L, names, ty, input, i);
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
     * taken; a declared scalar says nothing, for exporters write it for elements of any shape. */
    v->elem_rank = el->has_shape && el->rank > 0 ? el->rank : -1;
    v->len = let(L, "len", e_indim(L->cx, input, 0), 0);
    return v;
}

static Val *input_val(Lower *L, DimNames *names, const VType *ty, int input, const char *name) {
    if (!ty) err(L->d, ST_MODEL, NULL, "input %s has no declared type", name);
    switch (ty->kind) {
    case VT_TENSOR: return val_tensor(L, input_tensor(L, names, ty, input, name));
    case VT_SEQUENCE: return input_sequence(L, ty, input, name);
    default: break;
    }
    Val *v = NEW(L->a, Val);
    v->kind = VT_OPTIONAL;
    v->has = let(L, "has", e_indim(L->cx, input, -2), 0);
    if (!ty->elem || ty->elem->kind == VT_OPTIONAL)
        err(L->d, ST_UNSUPPORTED, NULL,
            "input %s: only optional tensors and sequences are supported", name);
    v->inner = input_val(L, names, ty->elem, input, name);
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
    if (v && v->kind == VT_SEQUENCE)
        io->elem_dtype = v->elem_dtype;
    else if (v)
        io->elem_dtype = v->t->dtype;
}

Program *lower_with(Cx *cx, Graph *g, LowerState *st, const RankChoices *ranks) {
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
        param[i] = input_val(&L, &names, v->type, i, v->name);
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
    p->nsym = cx->next_sym;
    p->ntensor = cx->next_tensor;
    return p;
}
