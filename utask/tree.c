/* tree.c: constructs tensors and statements. */
#include "utask/expr_internal.h"

Tensor *tensor_new(Cx *c, TensorKind k, DType t, int rank, Expr *const *dim) {
    ASSERT(rank >= -1 && rank <= MAX_RANK);
    Tensor *x = NEW(c->a, Tensor);
    x->id = c->next_tensor++;
    x->kind = k;
    x->dtype = t;
    x->rank = rank;
    for (int i = 0; i < MAX_RANK; i++) {
        x->dim[i] = i < rank || (rank < 0 && dim) ? dim[i] : e_int(c, 1);
        ASSERT(x->dim[i]->dtype == DT_I64 && x->dim[i]->pure);
    }
    return x;
}

Stmt *stmt_new(Cx *c, StmtKind k, const char *path) {
    Stmt *s = NEW(c->a, Stmt);
    s->kind = k;
    s->path = path;
    return s;
}

Stmt *stmt_op(Cx *c, Tensor *t, const char *path) {
    Stmt *s = stmt_new(c, S_OP, path);
    s->op.n = 1;
    s->op.t = arena_memdup(c->a, &t, sizeof t);
    return s;
}

void seq_put_at(Cx *c, Seq *q, int at, Stmt *s) {
    vec_push(c->a, &q->s, s); /* grow, then shift */
    memmove(q->s.p + at + 1, q->s.p + at, sizeof *q->s.p * (size_t)(q->s.n - 1 - at));
    q->s.p[at] = s;
}

void seq_replace(Cx *c, Seq *q, int *at, const StmtVec *by) {
    const StmtVec was = q->s;
    q->s = (StmtVec){0};
    for (int i = 0; i < *at; i++) vec_push(c->a, &q->s, was.p[i]);
    for (int i = 0; i < by->n; i++) vec_push(c->a, &q->s, by->p[i]);
    for (int i = *at + 1; i < was.n; i++) vec_push(c->a, &q->s, was.p[i]);
    *at += by->n - 1;
}

Expr *seq_let(Cx *c, Seq *q, Sym *s, Expr *e, const char *path) {
    Stmt *let = stmt_new(c, S_LET, path);
    let->let.sym = s;
    let->let.e = e;
    vec_push(c->a, &q->s, let);
    return e_sym(c, s);
}

Sym *sym_like(Cx *c, const Sym *like, Seq *scope) {
    Sym *s = sym_new(c, like->dtype, like->name, like->lo);
    s->hi = like->hi;
    s->scope = scope;
    return s;
}

Seq *seq_new(Cx *c, Seq *parent, Stmt *owner, bool is_loop) {
    Seq *s = NEW(c->a, Seq);
    s->parent = parent;
    s->owner = owner;
    s->depth = (parent ? parent->depth : 0) + is_loop;
    return s;
}

Expr *tensor_count(Cx *c, const Tensor *t) {
    Expr *n = e_int(c, 1);
    for (int i = 0; i < tensor_ndim(t); i++) n = e_mul(c, n, t->dim[i]);
    return n;
}

Expr *tensor_extent(const Tensor *t, int d) {
    return t->grow && t->grow->spaced && d == t->grow->axis ? t->grow->extent : t->dim[d];
}

Expr *flat_index_of(Cx *c, const Tensor *t, Expr *const *idx) {
    Expr *flat = e_int(c, 0), *stride = e_int(c, 1);
    for (int i = t->rank - 1; i >= 0; i--) {
        flat = e_add(c, flat, e_mul(c, idx[i], stride));
        stride = e_mul(c, stride, tensor_extent(t, i));
    }
    return flat;
}

Expr *flat_of(Cx *c, const Expr *load) {
    return load->kind ? load->a[0] : flat_index_of(c, load->t, load->a);
}

Tensor *tensor_term(Cx *c, const Tensor *t, Expr *r, Expr **load) {
    Expr *dim[MAX_RANK] = {0}, *to[MAX_RANK], *at[MAX_RANK];
    Axis *from[MAX_RANK];
    int n = 0;
    for (int i = 0; i < t->rank; i++) {
        if (!e_uses_axis(r, t->axis[i])) continue;
        dim[n] = t->dim[i];
        from[n] = t->axis[i];
        at[n++] = e_axis(c, t->axis[i]);
    }
    Tensor *x = tensor_like(c, TK_TE, t, n, dim, t->seq);
    x->dtype = r->dtype;
    for (int i = 0; i < n; i++) to[i] = e_axis(c, x->axis[i]);
    x->body = e_subst(c, r, n, from, to, NULL, NULL);
    *load = e_load(c, x, at);
    return x;
}

bool op_is_empty(const Stmt *s) {
    const Tensor *lead = s->op.t[0];
    for (int d = 0; d < lead->rank; d++)
        if (s->op.at && s->op.at[d] && e_is_ival(lead->axis[d]->extent, 0)) return true;
    return false;
}

Tensor *tensor_like(Cx *c, TensorKind k, const Tensor *like, int rank, Expr *const *dim, Seq *q) {
    Tensor *t = tensor_new(c, k, like->dtype, rank, dim);
    for (int i = 0; k == TK_TE && i < rank; i++) t->axis[i] = axis_new(c, dim[i]);
    t->name = like->name;
    t->path = like->path;
    t->seq = q;
    return t;
}

typedef struct Inlined {
    Cx *c;
    const Tensor *t;
} Inlined;

static Expr *inlined_load(void *user, Expr *e) {
    const Inlined *k = user;
    const Tensor *t = k->t;
    return e->t == t ? e_subst(k->c, t->body, t->rank, t->axis, e->a, NULL, NULL) : NULL;
}

Expr *expr_inlined(Cx *c, Expr *e, const Tensor *t) {
    Inlined k = {c, t};
    return e_subst(c, e, 0, NULL, NULL, inlined_load, &k);
}

Expr *expr_over(Cx *c, Expr *e, const Tensor *from, const Tensor *to, int first) {
    Expr *axis[MAX_RANK];
    for (int i = 0; i < from->rank; i++) axis[i] = e_axis(c, to->axis[first + i]);
    return e_subst(c, e, from->rank, from->axis, axis, NULL, NULL);
}

Expr *load_own(Cx *c, Tensor *t, const Tensor *domain) {
    Expr *idx[MAX_RANK];
    for (int i = 0; i < domain->rank; i++) idx[i] = e_axis(c, domain->axis[i]);
    return e_load(c, t, idx);
}

bool load_is_own(const Expr *load, const Tensor *t, const Tensor *domain) {
    if (load->op != E_LOAD || load->t != t || load->kind) return false;
    if (domain->rank >= 0 && load->n != domain->rank) return false;
    for (int d = 0; d < domain->rank; d++) {
        bool own = load->a[d]->op == E_AXIS && load->a[d]->axis == domain->axis[d];
        if (!own && !e_is_ival(domain->dim[d], 1)) return false;
    }
    return true;
}

bool seq_inside(const Seq *q, const Seq *body) {
    for (; q; q = q->parent)
        if (q == body) return true;
    return false;
}

bool any_sym(const Expr *e, bool (*is)(const void *user, const Sym *s), const void *user) {
    if (!(e->flags & EF_SYM)) return false;
    if (e->op == E_SYM) return is(user, e->sym);
    for (int i = 0; i < e->n; i++)
        if (any_sym(e->a[i], is, user)) return true;
    for (int i = 0; e->op == E_REDUCE && i < e->naxis; i++)
        if (any_sym(e->raxis[i]->extent, is, user)) return true;
    return false;
}

static bool is_hidden(const void *from, const Sym *s) {
    return s->scope && !seq_inside(from, s->scope);
}

bool expr_visible(const Expr *e, const Seq *from) { return !any_sym(e, is_hidden, from); }

static bool is_sym(const void *user, const Sym *s) { return s == user; }

bool expr_uses_sym(const Expr *e, const Sym *s) { return any_sym(e, is_sym, s); }

static bool is_loop_sym(const void *user, const Sym *s) {
    const Stmt *loop = user;
    bool is = s == loop->loop.iter;
    for (int i = 0; i < loop->loop.syms.n; i++) is |= loop->loop.syms.p[i].sym == s;
    return is;
}

bool loop_varies(const Stmt *loop, const Expr *e) { return any_sym(e, is_loop_sym, loop); }

bool same_dims(const Tensor *a, const Tensor *b) {
    bool same = a->rank == b->rank;
    for (int i = 0; same && i < a->rank; i++) same = a->dim[i] == b->dim[i];
    return same;
}

bool loop_carries(const Stmt *loop, const Tensor *t) {
    for (int i = 0; i < loop->loop.carry.n; i++)
        if (loop->loop.carry.p[i].phi == t) return true;
    return false;
}

bool loop_reads_outside(const Stmt *loop, const Tensor *t) {
    t = tensor_root(t);
    if (t->kind == TK_CONST || t->kind == TK_INPUT) return true;
    for (int i = 0; i < loop->loop.scan.n; i++)
        if (loop->loop.scan.p[i].out == t) return false;
    return !loop_carries(loop, t) && t->seq && !seq_inside(t->seq, loop->loop.body);
}

bool loop_keeps_dims(const Stmt *loop, const Tensor *t) {
    for (int i = 0; i < t->rank; i++)
        if (!loop_keeps(loop, t->dim[i])) return false;
    return t->rank >= 0 && !t->blob;
}

Stmt *tensor_group(const Tensor *t) {
    for (int i = 0; t->seq && i < t->seq->s.n; i++) {
        Stmt *s = t->seq->s.p[i];
        for (int k = 0; s->kind == S_OP && k < s->op.n; k++)
            if (s->op.t[k] == t) return s;
    }
    return NULL;
}

static bool all_below(Map *seen, const Expr *e, bool (*is)(const void *, const Expr *),
                      const void *user) {
    if (!map_add(seen, (uint64_t)e->id + 1)) return true;
    if (!is(user, e)) return false;
    for (int i = 0; e->op == E_REDUCE && i < e->naxis; i++)
        if (!all_below(seen, e->raxis[i]->extent, is, user)) return false;
    for (int i = 0; i < e->n; i++)
        if (!all_below(seen, e->a[i], is, user)) return false;
    return true;
}
bool expr_all(Arena *a, const Expr *e, bool (*is)(const void *user, const Expr *e),
              const void *user) {
    return all_below(map_new(a), e, is, user);
}

Join *tensor_join(const Tensor *t) {
    for (int i = 0; t->seq && i < t->seq->s.n; i++) {
        const Stmt *s = t->seq->s.p[i];
        for (int k = 0; s->kind == S_BRANCH && k < s->br.joins.n; k++)
            if (s->br.joins.p[k].out == t) return &s->br.joins.p[k];
    }
    return NULL;
}

/* ---- uniform evaluation ---------------------------------------------------------------------- */
/* Every unit computes an element for itself if that takes at most this many terms of reductions
 * (nested ones multiply). Reductions beyond that are read from memory, innermost first. */
#define UNROLL_MAX 64
#define INLINE_DEPTH 24

typedef struct Inline {
    Cx *c;
    Map *memo; /* load expression id -> its inlined form */
    int depth;
    int64_t times; /* terms of the enclosing reductions */
} Inline;

static Expr *inline_expr(Inline *u, Expr *e);

static int64_t reduce_size(const Expr *e) {
    int64_t n = 1, v;
    for (int i = 0; i < e->naxis; i++) {
        if (!e_is_int(e->raxis[i]->extent, &v) || v > UNROLL_MAX) return -1;
        n *= v;
        if (n > UNROLL_MAX) return -1;
    }
    return n;
}

static int64_t at_most(int64_t n) { return n > UNROLL_MAX ? UNROLL_MAX + 1 : n; }

static int64_t tensor_terms(Cx *c, Tensor *t, int depth);

/* Terms of e inside reductions of `times` terms; expressions in `seen` do not count again. */
static int64_t expr_terms(Cx *c, Map *seen, const Expr *e, int64_t times, int depth) {
    if (!(e->flags & (EF_LOAD | EF_REDUCE)) || !map_add(seen, (uint64_t)e->id + 1)) return 0;
    int64_t n = 0;
    if (e->op == E_REDUCE) {
        n = reduce_size(e);
        if (n < 0 || n * times > UNROLL_MAX) return UNROLL_MAX + 1;
        return at_most(n * (1 + expr_terms(c, map_new(c->a), e->a[0], n * times, depth)));
    }
    for (int i = 0; i < e->n; i++) n = at_most(n + expr_terms(c, seen, e->a[i], times, depth));
    if (e->op != E_LOAD) return n;
    int64_t of = tensor_terms(c, e->t, depth + 1);
    return of * times > UNROLL_MAX ? n : at_most(n + of);
}

/* Terms of one element of t, including loaded elements that are inlined. */
static int64_t tensor_terms(Cx *c, Tensor *t, int depth) {
    t = tensor_root(t);
    if (t->kind != TK_TE || !t->body || depth > INLINE_DEPTH) return 0;
    if (!t->terms) t->terms = 1 + (int)expr_terms(c, map_new(c->a), t->body, 1, depth);
    return t->terms - 1;
}

Expr *e_identity(Cx *c, ReduceKind k, DType t) {
    switch (k) {
    case R_PROD: return e_num(c, t, 1);
    case R_AND: return e_bool(c, true);
    case R_MAX:
    case R_MIN:
        if (dtype_is_float(t)) return e_num(c, t, k == R_MAX ? -__builtin_inf() : __builtin_inf());
        return e_ci(c, t, k == R_MAX ? int_least(t) : int_most(t));
    default: return e_num(c, t, 0);
    }
}

/* The unrolled reduction; its extents are small constants. */
static Expr *unroll(Inline *u, Expr *e, int64_t n) {
    Cx *c = u->c;
    static const uint8_t op[] = {[R_SUM] = E_ADD, [R_PROD] = E_MUL, [R_MAX] = E_MAX,
                                 [R_MIN] = E_MIN, [R_AND] = E_AND,  [R_OR] = E_OR};
    bool half = e->dtype == DT_F16 || e->dtype == DT_BF16;
    bool wide = half && (e->kind == R_SUM || e->kind == R_PROD);
    Expr *acc = NULL, *best = NULL;
    for (int64_t k = 0; k < n; k++) {
        Expr *to[MAX_RANK * 2];
        int64_t rest = k, v = 1;
        for (int i = e->naxis - 1; i >= 0; i--) {
            e_is_int(e->raxis[i]->extent, &v);
            to[i] = e_int(c, rest % v);
            rest /= v;
        }
        Expr *x = inline_expr(u, e_subst(c, e->a[0], e->naxis, e->raxis, to, NULL, NULL));
        if (wide) x = e_cast(c, DT_F32, x);
        if (e->kind < R_ARGMAX) {
            acc = acc ? e_bin(c, op[e->kind], acc, x) : x;
            continue;
        }
        Expr *at = e_int(c, k);
        if (!acc) {
            acc = at;
            best = x;
            continue;
        }
        bool max = e->kind == R_ARGMAX || e->kind == R_ARGMAX_LAST;
        bool last = e->kind >= R_ARGMAX_LAST;
        Expr *better = e_bin(c, last ? E_LE : E_LT, max ? best : x, max ? x : best);
        if (dtype_is_float(x->dtype)) { /* the first (last) NaN wins over all numbers */
            Expr *nan = e_un(c, E_ISNAN, x);
            if (!last) nan = e_and(c, nan, e_not(c, e_un(c, E_ISNAN, best)));
            better = e_or(c, better, nan);
        }
        acc = e_sel(c, better, at, acc);
        best = e_sel(c, better, x, best);
    }
    if (!acc) return e_identity(c, e->kind, e->dtype);
    return wide ? e_cast(c, e->dtype, acc) : acc;
}

static Expr *inline_load(Inline *u, Expr *e) {
    Tensor *t = e->t;
    Cx *c = u->c;
    if (u->depth >= INLINE_DEPTH || t->rank < 0) return e;
    if (t->kind == TK_VIEW && t->base->kind == TK_TE && t->base->rank >= 0 && !e->kind) {
        /* The base has the element at the same row-major position; this pays only if that is
         * constant. */
        int64_t flat = 0, d, v;
        for (int i = 0; i < t->rank; i++) {
            if (!e_is_int(t->dim[i], &d) || !e_is_int(e->a[i], &v)) return e;
            flat = flat * d + v;
        }
        Expr *idx[MAX_RANK];
        for (int i = t->base->rank - 1; i >= 0; i--) {
            if (!e_is_int(t->base->dim[i], &d) || d <= 0) return e;
            idx[i] = e_int(c, flat % d);
            flat /= d;
        }
        Expr *b = e_load(c, t->base, idx);
        return b->op == E_LOAD ? inline_load(u, b) : b;
    }
    if (t->kind != TK_TE || e->kind) return e;
    Expr *r = map_geti(u->memo, (uint64_t)e->id + 1);
    if (r) return r;
    if (u->times * tensor_terms(c, t, 0) > UNROLL_MAX) return e;
    u->depth++;
    r = inline_expr(u, e_subst(c, t->body, t->rank, t->axis, e->a, NULL, NULL));
    u->depth--;
    if (r->flags & EF_REDUCE) r = e;
    map_seti(u->memo, (uint64_t)e->id + 1, r);
    return r;
}

static Expr *inline_expr(Inline *u, Expr *e) {
    if (!(e->flags & (EF_LOAD | EF_REDUCE))) return e;
    if (e->op == E_REDUCE) {
        int64_t n = reduce_size(e), times = u->times;
        if (n < 0 || n * times > UNROLL_MAX) return e;
        if (n) u->times *= n;
        e = unroll(u, e, n);
        u->times = times;
        return e;
    }
    Expr *small[MAX_RANK], **a = e->n <= MAX_RANK ? small : NEWN(u->c->a, Expr *, e->n);
    bool same = true;
    for (int i = 0; i < e->n; i++) same &= (a[i] = inline_expr(u, e->a[i])) == e->a[i];
    if (!same) e = expr_rebuild(u->c, e, a);
    return e->op == E_LOAD ? inline_load(u, e) : e;
}

Expr *tensor_at(Cx *c, Tensor *t, Expr **idx) {
    Expr *e = e_load(c, t, idx);
    if (e->op != E_LOAD) return e;
    Inline u = {c, map_new(c->a), 0, 1};
    return inline_expr(&u, e);
}
