/* size.c: see size.h. */
#include "utask/ops/size.h"

int param_len(Lower *L, int i, int max, const char *what) {
    Tensor *t = in(L, i);
    int64_t n;
    if (!t) fail(L, "the %s input is missing", what);
    if (t->rank == 0) return 1;
    if (t->rank != 1) fail(L, "the %s input has rank %d, it must have rank 1", what, t->rank);
    if (!dim_const(t->dim[0], &n))
        unsupported(L, "the length of the %s input is not known at compile time", what);
    if (n > max)
        fail(L, "the %s input has %lld elements, at most %d make sense", what, (long long)n, max);
    return (int)n;
}

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

Expr *axis_uni(Lower *L, Tensor *t, int i, int rank) {
    Cx *c = L->cx;
    int64_t v;
    if (const_elem(t, i, &v)) return e_int(c, norm_axis(L, v, rank));
    Expr *e = uni_i64(L, t, i);
    if (e_is_int(e, &v)) return e_int(c, norm_axis(L, v, rank));
    Expr *ok = e_and(c, e_le(c, e_int(c, -rank), e), e_lt(c, e, e_int(c, rank)));
    check(L, ok, "axis %s is outside [-%d, %d), the rank", said(L, e), rank, rank);
    Expr *r = e_sel(c, e_lt(c, e, e_int(c, 0)), e_addi(c, e, rank), e);
    return let(L, "axis", r, 0);
}

Expr *better_dim(Expr *a, Expr *b) {
    int64_t v;
    if (a == b || dim_const(a, &v)) return a;
    if (dim_const(b, &v)) return b;
    return a->id < b->id ? a : b;
}

void all_axes(Lower *L, Tensor *t, Expr **idx) {
    for (int i = 0; i < t->rank; i++) idx[i] = ax(L, t, i);
}
