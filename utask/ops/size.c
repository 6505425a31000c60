/* size.c: sizes, axes and clamps from data, as size.h describes. */
#include "utask/ops/size.h"

#include "utask/lower_internal.h"

/* ---- vectors of parameters ------------------------------------------------------------------- */
Vec vec_in(Lower *L, int i, int want, int max, const char *what) {
    Tensor *t = in(L, i);
    if (!t) fail(L, "the %s input is missing", what);
    return vec_of(L, t, want, max, what);
}

Vec vec_of(Lower *L, Tensor *t, int want, int max, const char *what) {
    Cx *c = L->cx;
    Vec v = {.t = t, .what = what, .n = 1, .least = 1, .most = 1, .len = e_int(c, 1)};
    int64_t n, lo, hi;
    if (v.t->rank == 0) return v;
    if (v.t->rank != 1) fail(L, "the %s input has rank %d, it must have rank 1", what, v.t->rank);
    v.len = v.t->dim[0];
    if (e_is_int(v.len, &n)) {
        if (n > max)
            fail(L, "the %s input has %lld elements, at most %d make sense", what, (long long)n,
                 max);
        v.n = v.least = v.most = (int)n;
        return v;
    }
    if (want >= 0) {
        check_eq(L, v.len, e_int(c, want), "the %s input must have %d elements", what, want);
        v.n = v.least = v.most = want;
        v.len = e_int(c, want);
        return v;
    }
    check_le(L, v.len, e_int(c, max), "the %s input has more than %d elements", what, max);
    bool bounds = e_range(v.len, &lo, &hi);
    v.n = -1;
    v.least = bounds && lo > 0 ? (int)(lo < max ? lo : max) : 0;
    v.most = bounds && hi < max ? (int)(hi > v.least ? hi : v.least) : max;
    if (!is_simple(v.len)) v.len = let(L, "length", v.len, 0);
    return v;
}

uint32_t vec_ranks(const Vec *v) { return rank_range(v->least, v->most); }

Expr *vec_at(Lower *L, const Vec *v, int j, Expr *dflt) {
    Cx *c = L->cx;
    ASSERT(j < v->most);
    if (j < v->least) return uni_i64(L, v->t, j);
    Expr *at = e_int(c, j), *load = e_cast(c, DT_I64, tensor_at(c, v->t, &at));
    return let(L, v->what, e_sel(c, e_lt(c, at, v->len), load, dflt), INT64_MIN);
}

Expr *vec_from_end(Lower *L, const Vec *v, int j, Expr *dflt) {
    Cx *c = L->cx;
    if (v->n >= 0) return j < v->n ? uni_i64(L, v->t, v->n - 1 - j) : dflt;
    if (j >= v->most) return dflt;
    Expr *at = e_addi(c, v->len, -1 - j), *load = e_cast(c, DT_I64, tensor_at(c, v->t, &at));
    if (j >= v->least) load = e_sel(c, e_lt(c, e_int(c, j), v->len), load, dflt);
    return let(L, v->what, load, INT64_MIN);
}

Expr *vec_axis(Lower *L, const Vec *v, int j, int rank, Expr **given) {
    Cx *c = L->cx;
    int64_t k;
    *given = e_bool(c, true);
    if (j < v->least && const_elem(v->t, j, &k)) return e_int(c, norm_axis(L, k, rank));
    Expr *e = vec_axis_of(L, v, j, e_int(c, rank), given);
    return e_is_int(e, &k) ? e_int(c, norm_axis(L, k, rank)) : e;
}

Expr *vec_axis_of(Lower *L, const Vec *v, int j, Expr *rank, Expr **given) {
    Cx *c = L->cx;
    Expr *zero = e_int(c, 0), *e = vec_at(L, v, j, zero);
    *given = j < v->least ? e_bool(c, true) : e_lt(c, e_int(c, j), v->len);
    int64_t k;
    if (e_is_int(e, &k) && e_is_int(rank, &k)) return e;
    Expr *ok = e_and(c, e_le(c, e_sub(c, zero, rank), e), e_lt(c, e, rank));
    check(L, e_or(c, e_not(c, *given), ok), "axis %s is outside [-%s, %s), the rank", said(L, e),
          said(L, rank), said(L, rank));
    return let(L, "axis", e_sel(c, e_lt(c, e, zero), e_add(c, e, rank), e), 0);
}

/* ---- ranks ----------------------------------------------------------------------------------- */
int declared_rank(const Value *v) {
    const VType *t = v ? v->type : NULL;
    return t && t->kind == VT_TENSOR && t->has_shape && t->rank > 0 ? t->rank : -1;
}

int out_rank(Lower *L, int i) { return wants_out(L, i) ? declared_rank(L->node->out[i]) : -1; }

Tensor *t_of_rank(Lower *L, Tensor *t, Expr *rank, uint32_t ranks, Expr *const *dim,
                  Expr **const *alt) {
    int64_t r;
    if (!(ranks & (ranks - 1)) || e_is_int(rank, &r)) {
        if (!e_is_int(rank, &r)) r = __builtin_ctz(ranks);
        return t_reshape(L, t, (int)r, alt && alt[r] ? alt[r] : dim);
    }
    Expr *d[MAX_RANK];
    for (int i = 0; i < MAX_RANK; i++) d[i] = dim[i] ? size_uni(L, "d", dim[i]) : e_int(L->cx, 1);
    Tensor *v = tensor_new(L->cx, TK_VIEW, t->dtype, -1, d);
    v->base = t->kind == TK_VIEW ? t->base : t;
    v->rank_e = is_simple(rank) ? rank : let(L, "rank", rank, 0);
    v->rank_mask = ranks;
    for (int k = 0; alt && k <= MAX_RANK; k++)
        if (ranks >> k & 1) v->alt[k] = alt[k];
    v->seq = L->seq;
    v->path = L->node->path;
    return v;
}

Expr *dims_kept(Lower *L, const Tensor *t, Expr *const *drop, Expr **dim) {
    /* Axis p of t is axis p - (dropped before p) of the result. */
    Cx *c = L->cx;
    Expr *before = e_int(c, 0), *one = e_int(c, 1);
    for (int j = 0; j < MAX_RANK; j++) dim[j] = one;
    for (int p = 0; p < t->rank; p++) {
        for (int j = 0; j <= p; j++) {
            Expr *here = e_and(c, e_not(c, drop[p]), e_eq(c, before, e_int(c, p - j)));
            dim[j] = e_sel(c, here, t->dim[p], dim[j]);
        }
        before = e_add(c, before, e_cast(c, DT_I64, drop[p]));
    }
    for (int j = 0; j < t->rank; j++) dim[j] = size_uni(L, "dim", dim[j]);
    return e_sub(c, e_int(c, t->rank), before);
}

typedef struct SizeCase {
    Expr *e;
    int v, most;
    SizeBody *body;
    void *user;
} SizeCase;

static Tensor *size_case(Lower *L, SizeCase k);

static void size_arm(Lower *L, void *user, int arm, Val **result) {
    SizeCase k = *(SizeCase *)user;
    if (arm == 0)
        k.most = k.v;
    else
        k.v++;
    *result = val_tensor(L, size_case(L, k));
}

static Tensor *size_case(Lower *L, SizeCase k) {
    Val *v;
    if (k.v == k.most) return k.body(L, k.user, k.v);
    Fork f = fork_begin(L, e_eq(L->cx, k.e, e_int(L->cx, k.v)));
    f.by_rank = true;
    fork_run(L, &f, size_arm, &k, 1, &v);
    return v->t;
}

Tensor *for_each_size(Lower *L, Expr *e, int least, int most, SizeBody *body, void *user,
                      const char *what) {
    Cx *c = L->cx;
    int64_t v, lo, hi;
    if (!e_is_int(e, &v)) {
        if (least < most && e_range(e, &lo, &hi)) {
            if (lo > least) least = (int)(lo < most ? lo : most);
            if (hi < most) most = (int)(hi > least ? hi : least);
        }
        Expr *ok = e_and(c, e_le(c, e_int(c, least), e), e_le(c, e, e_int(c, most)));
        check(L, ok, "%s is not in [%d, %d]", what, least, most);
        return size_case(L, (SizeCase){e, least, most, body, user});
    }
    if (v < least || v > most)
        fail(L, "%s is %lld, not in [%d, %d]", what, (long long)v, least, most);
    return body(L, user, (int)v);
}

Expr *scalar_uni(Lower *L, int i, const char *what) {
    Tensor *t = in(L, i);
    if (!t) fail(L, "%s is missing", what);
    check_eq(L, count(L, t), e_int(L->cx, 1), "%s must be one number", what);
    return uni(L, t, 0);
}

/* ---- sizes ----------------------------------------------------------------------------------- */
static bool simple_in(const Expr *e, int depth) {
    if (e->op == E_CONST || e->op == E_SYM || e->op == E_INDIM) return true;
    if (depth == 0 || (e->op != E_ADD && e->op != E_SUB && e->op != E_MUL)) return false;
    return simple_in(e->a[0], depth - 1) && simple_in(e->a[1], depth - 1);
}

bool is_simple(const Expr *e) { return simple_in(e, 4); }

bool known(const Expr *cond) { return e_is_ival(cond, 1); }

bool ge_const(const Expr *e, int64_t v) {
    int64_t lo, hi;
    return e_range(e, &lo, &hi) && lo >= v;
}

Expr *kmin(Cx *c, Expr *a, Expr *b) {
    if (known(e_le(c, a, b))) return a;
    if (known(e_le(c, b, a))) return b;
    return e_min(c, a, b);
}

Expr *kmax(Cx *c, Expr *a, Expr *b) {
    if (known(e_le(c, a, b))) return b;
    if (known(e_le(c, b, a))) return a;
    return e_max(c, a, b);
}

Expr *clamp_i(Cx *c, Expr *e, int64_t lo, int64_t hi) {
    return kmin(c, kmax(c, e, e_int(c, lo)), e_int(c, hi));
}

Expr *size_uni(Lower *L, const char *name, Expr *e) {
    int64_t v;
    if (e_is_int(e, &v)) {
        if (v < 0) fail(L, "the size %lld is negative", (long long)v);
        return e;
    }
    bool ok = ge_const(e, 0);
    if (ok && is_simple(e)) return e;
    if (!ok) check_le(L, e_int(L->cx, 0), e, "a size is negative");
    return let(L, name, e, 0);
}

Expr *better_dim(Expr *a, Expr *b) {
    int64_t v;
    if (a == b || e_is_int(a, &v)) return a;
    if (e_is_int(b, &v)) return b;
    return a->id < b->id ? a : b;
}

Expr *divided_dim(Lower *L, Expr *dim, Expr *k, const char *what) {
    Cx *c = L->cx;
    check(L, e_eq(c, e_bin(c, E_MOD, dim, k), e_int(c, 0)),
          "the size of the %s, %s, is no multiple of %s", what, said(L, dim), said(L, k));
    return size_uni(L, "part", e_div(c, dim, k));
}
