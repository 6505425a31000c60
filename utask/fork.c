/* fork.c: lowers branches: each arm in a Seq of its own, then joins their results. An arm that is
 * found to fail while it is lowered becomes a fault at run time. */
#include "utask/lower_internal.h"
#include "utask/sequence_val.h"

Fork fork_begin(Lower *L, Expr *cond) {
    Fork f = {lower_stmt(L, S_BRANCH), L->seq, false};
    f.s->br.cond = cond->pure ? cond : let(L, "cond", cond, 0);
    for (int k = 0; k < 2; k++) f.s->br.arm[k] = seq_new(L->cx, L->seq, f.s, false);
    return f;
}

static bool inside(const Seq *q, const Fork *f) {
    return seq_inside(q, f->s->br.arm[0]) || seq_inside(q, f->s->br.arm[1]);
}

static Expr *join_expr(Lower *L, Fork *f, Expr *a, Expr *b, const char *name, int64_t lo) {
    if (a == b && expr_visible(a, f->outer)) return a;
    if (!a && expr_visible(b, f->outer)) return b;
    if (!b && expr_visible(a, f->outer)) return a;
    DType t = (DType)(a ? a : b)->dtype;
    JoinSym k;
    Expr *r = sym_scoped(L, &k.sym, t, name, lo, f->outer);
    int64_t la, ha, lb, hb;
    if (t == DT_I64 && e_range(a ? a : b, &la, &ha) && e_range(b ? b : a, &lb, &hb)) {
        if (la > lo && lb > lo) k.sym->lo = la < lb ? la : lb;
        if (hb > ha) ha = hb;
        if (ha > k.sym->lo && ha <= INT32_MAX) k.sym->hi = ha;
    }
    k.arm[0] = a ? a : e_num(L->cx, t, 0);
    k.arm[1] = b ? b : e_num(L->cx, t, 0);
    vec_push(L->a, &f->s->br.syms, k);
    return r;
}

#define JOIN_ELEMS 16

Expr *elem_in(Lower *L, Seq *q, Tensor *t, int64_t i, int64_t n) {
    if (t->elem) return t->elem[i];
    if (t->kind == TK_CONST) return e_elem(L->cx, t->data, i);
    if (n > 4) return NULL;
    Seq *up = L->seq;
    L->seq = q;
    Expr *e = uni(L, t, i);
    L->seq = up;
    return e;
}

/* Joins two tiny tensors of the same constant shape element by element; NULL when they do not
 * qualify. */
static Tensor *join_elems(Lower *L, Fork *f, Tensor *a, Tensor *b) {
    Tensor *t = a ? a : b;
    int64_t n = count_const(t);
    if (n < 0 || n > JOIN_ELEMS || (dtype_is_float(t->dtype) && n > 1)) return NULL;
    if (a && b && !same_dims(a, b)) return NULL;
    Expr *ea[JOIN_ELEMS], *eb[JOIN_ELEMS];
    for (int64_t i = 0; i < n; i++) {
        ea[i] = a ? elem_in(L, f->s->br.arm[0], a, i, n) : NULL;
        eb[i] = b ? elem_in(L, f->s->br.arm[1], b, i, n) : NULL;
        if ((a && !ea[i]) || (b && !eb[i])) return NULL;
    }
    for (int64_t i = 0; i < n; i++) ea[i] = join_expr(L, f, ea[i], eb[i], "u", INT64_MIN);
    return t_from_uniform(L, t->dtype, t->rank, t->dim, ea);
}

uint32_t rank_set(const Tensor *t) { return t->rank < 0 ? t->rank_mask : 1u << t->rank; }

/* Known dims when the rank is r, or NULL. */
static Expr *const *dims_at(const Tensor *t, int r) {
    if (t->rank == r) return t->dim;
    return t->rank < 0 && (t->rank_mask >> r & 1) ? (t->alt[r] ? t->alt[r] : t->dim) : NULL;
}

#define NO_RANK (-1) /* of a result of an arm that cannot run */

static Expr *join_rank(Lower *L, Fork *f, Tensor *a, Tensor *b) {
    Expr *ra = a ? rank_expr(L, a) : NULL, *rb = b ? rank_expr(L, b) : NULL;
    if (!ra && !expr_visible(rb, f->outer)) ra = e_int(L->cx, NO_RANK);
    if (!rb && !expr_visible(ra, f->outer)) rb = e_int(L->cx, NO_RANK);
    return join_expr(L, f, ra, rb, "rank", 0);
}

static const JoinSym *join_of(const Expr *e) {
    const Seq *q = e->op == E_SYM ? e->sym->scope : NULL;
    for (int i = q ? q->s.n - 1 : -1; i >= 0; i--)
        for (int k = 0; q->s.p[i]->kind == S_BRANCH && k < q->s.p[i]->br.syms.n; k++)
            if (q->s.p[i]->br.syms.p[k].sym == e->sym) return &q->s.p[i]->br.syms.p[k];
    return NULL;
}

bool rank_follows(const Expr *e, uint32_t ranks) {
    for (; ranks & (ranks - 1); ranks &= ranks - 1) {
        const JoinSym *j = join_of(e);
        if (!j || (!e_is_ival(j->arm[0], __builtin_ctz(ranks)) && !e_is_ival(j->arm[0], NO_RANK)))
            return false;
        e = j->arm[1];
    }
    return e_is_ival(e, __builtin_ctz(ranks)) || e_is_ival(e, NO_RANK);
}

static Tensor *join_tensor(Lower *L, Fork *f, Tensor *a, Tensor *b) {
    if (a && b && a->dtype != b->dtype)
        fail(L, "the branches give different types (%s and %s)", dtype_name(a->dtype),
             dtype_name(b->dtype));
    if (a == b && !inside(a->seq, f)) return a;
    Tensor *t = a ? a : b, *o = b ? b : a;
    Expr *dim[MAX_RANK];
    bool dyn = t->rank < 0 || o->rank < 0 || t->rank != o->rank;
    if (!dyn && !t->blob) {
        Tensor *u = join_elems(L, f, a, b);
        if (u) return u;
    }
    for (int i = 0; i < (dyn ? MAX_RANK : t->rank); i++)
        dim[i] = join_expr(L, f, a ? a->dim[i] : NULL, b ? b->dim[i] : NULL, "d", 0);
    Tensor *j = lower_like(L, TK_JOIN, t, dyn ? -1 : t->rank, dim, f->outer);
    if (dyn) {
        j->rank_mask = rank_set(t) | rank_set(o);
        j->rank_e = join_rank(L, f, a, b);
        for (int r = 0; r <= MAX_RANK; r++) {
            Expr *const *x = dims_at(t, r), *const *y = t == o ? NULL : dims_at(o, r);
            if (!x && !y) continue;
            j->alt[r] = NEWN(L->a, Expr *, MAX_RANK);
            for (int i = 0; i < r; i++) {
                Expr *e = x && y ? (x[i] == y[i] ? x[i] : NULL) : x ? x[i] : y[i];
                j->alt[r][i] = e && expr_visible(e, f->outer) ? e : dim[i];
            }
        }
    }
    Join k = {.out = j, .arm = {a, b}};
    vec_push(L->a, &f->s->br.joins, k);
    return j;
}

/* A placeholder for the element of an empty optional. It has the kind and, where possible, the
 * shape of `like`. */
static Val *placeholder(Lower *L, const Fork *f, const Val *like) {
    if (like->kind == VT_SEQUENCE) return seq_empty(L, like->elem_dtype);
    const Tensor *t = like->t;
    int rank = t->rank < 0 ? __builtin_ctz(t->rank_mask) : t->rank;
    Expr *dim[MAX_RANK];
    for (int i = 0; i < rank; i++)
        dim[i] = t->rank >= 0 && expr_visible(t->dim[i], f->outer) ? t->dim[i] : e_int(L->cx, 0);
    return val_tensor(L, t_zeros(L, t->dtype, rank, dim));
}

static Val *join_val(Lower *L, Fork *f, Val *a, Val *b) {
    if (!a && !b) return NULL;
    Val *v = a ? a : b, *w = b ? b : a;
    if (v->kind != w->kind) fail(L, "the branches give different kinds of values");
    Val *r = NEW(L->a, Val);
    r->kind = v->kind;
    if (v->kind == VT_OPTIONAL) {
        r->has = join_expr(L, f, a ? a->has : NULL, b ? b->has : NULL, "has", 0);
        Val *x = a ? a->inner : NULL, *y = b ? b->inner : NULL;
        if (a && b && !x != !y) { /* the arm without an element still needs a value */
            Seq *up = L->seq;
            L->seq = f->s->br.arm[x ? 1 : 0];
            *(x ? &y : &x) = placeholder(L, f, x ? x : y);
            L->seq = up;
        }
        r->inner = join_val(L, f, x, y);
        return r;
    }
    r->t = join_tensor(L, f, a ? a->t : NULL, b ? b->t : NULL);
    if (v->kind == VT_SEQUENCE) {
        if (v->elem_dtype != w->elem_dtype)
            fail(L, "the branches give sequences of different types");
        r->elem_dtype = v->elem_dtype;
        seq_join_elems(r, v, w);
        for (int i = 0; i < r->elem_rank; i++)
            if (r->elem_dim[i] && !expr_visible(r->elem_dim[i], f->outer)) r->elem_dim[i] = NULL;
        r->len = join_expr(L, f, a ? a->len : NULL, b ? b->len : NULL, "len", 0);
        if (a && b && a->t == b->t && a->t == r->t && a->item == b->item) r->item = a->item;
    }
    return r;
}

/* The state of lowering that must be restored after an error. Statements appended before the error
 * stay: each was complete when it was appended. */
typedef struct Place {
    const Node *node;
    Val **out;
    Seq *seq;
    int nrefine, split_depth, call_depth;
    struct Recursion *recursion;
    DrawFrame *frame;
} Place;

static Place place_of(const Lower *L) {
    const LowerState *st = L->st;
    return (Place){L->node,         L->out,         L->seq,        st->refine.n,
                   st->split_depth, st->call_depth, st->recursion, st->frame};
}

static void return_to(Lower *L, const Place *p) {
    LowerState *st = L->st;
    L->node = p->node;
    L->out = p->out;
    L->seq = p->seq;
    st->refine.n = p->nrefine;
    st->split_depth = p->split_depth;
    st->call_depth = p->call_depth;
    st->recursion = p->recursion;
    st->frame = p->frame;
}

bool attempt(Lower *L, void (*body)(Lower *L, void *user), void *user) {
    const Place at = place_of(L);
    jmp_buf jb, *up = L->d->top;
    L->d->top = &jb;
    bool ok = setjmp(jb) == 0;
    if (ok) body(L, user);
    L->d->top = up;
    if (!ok && L->d->status == ST_CANCELLED) err_again(L->d);
    if (!ok) return_to(L, &at);
    return ok;
}

const char *forgive(Lower *L) {
    L->d->status = ST_OK;
    L->st->trap = L->st->unmet = false;
    return arena_strdup(L->a, L->d->message);
}

void fault_unless(Lower *L, Expr *cond, const char *message) {
    if (e_is_ival(cond, 1)) return;
    Stmt *s = lower_stmt(L, S_CHECK);
    s->check.cond = cond->pure ? cond : let(L, "ok", cond, 0);
    s->check.site = cx_site(L->cx, NULL, "%s", message);
    lower_append(L, s);
}

typedef struct ForkArm {
    void (*body)(Lower *L, void *user, int arm, Val **result);
    void *user;
    int arm;
    Val **result;
} ForkArm;

static void fork_arm(Lower *L, void *user) {
    const ForkArm *k = user;
    k->body(L, k->user, k->arm, k->result);
}

void fork_run(Lower *L, Fork *f, void (*body)(Lower *L, void *user, int arm, Val **result),
              void *user, int nresult, Val **result) {
    Val **res[2];
    LowerState *st = L->st;
    const char *first = NULL; /* why an arm cannot run */
    bool ok[2], trapped = false, unmet = true;
    for (int k = 0; k < 2; k++) {
        res[k] = NEWN(L->a, Val *, nresult ? nresult : 1);
        ForkArm arm = {body, user, k, res[k]};
        L->seq = f->s->br.arm[k];
        if ((ok[k] = attempt(L, fork_arm, &arm))) continue;
        bool drop = L->d->status == ST_MODEL || (f->by_rank && L->d->status == ST_UNSUPPORTED);
        if (!drop || first) {
            /* Neither arm can run, as far as is known now. A real fault says more than a call
             * without a result. */
            const char *why =
                drop && st->trap && !trapped ? first : arena_strdup(L->a, L->d->message);
            st->trap = drop && (st->trap || trapped);
            st->unmet = drop && st->unmet && unmet;
            err(L->d, L->d->status, NULL, "%s", why);
        }
        trapped = st->trap;
        unmet = st->unmet;
        /* This arm cannot run: it becomes a fault. */
        first = forgive(L);
        fault_unless(L, e_bool(L->cx, false), first);
        memset(res[k], 0, sizeof *res[k] * (size_t)nresult);
    }
    L->seq = f->outer;
    lower_append(L, f->s);
    for (int i = 0; i < nresult; i++) {
        if ((ok[0] && !res[0][i]) ||
            (ok[1] && !res[1][i])) { /* an absent output of a single node */
            result[i] = NULL;
            continue;
        }
        result[i] = join_val(L, f, res[0][i], res[1][i]);
    }
}
