/* expr.c: constructs and simplifies scalar expressions.
 *
 * Every constructor returns a canonical node: int64 sums are kept as sorted linear combinations
 * (linear.c), so equal shapes are equal pointers. */
#include "utask/expr_internal.h"
#include <math.h>

#if BRAID_TINY
#define TABLE_MIN 16
#define MEMO_SPARE 0
#else
#define TABLE_MIN 1024
#define MEMO_SPARE 1024
#endif

struct ExprTable {
    Expr **slot;
    size_t n, cap;
};

Cx *cx_new(Arena *a, Diag *d) {
    Cx *c = NEW(a, Cx);
    c->a = a;
    c->d = d;
    c->table = NEW(a, struct ExprTable);
    c->table->cap = TABLE_MIN;
    c->table->slot = NEWN(a, Expr *, c->table->cap);
    return c;
}

int cx_site(Cx *c, const char *path, const char *fmt, ...) {
    va_list ap, ap2;
    va_start(ap, fmt);
    va_copy(ap2, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    char *text = arena_alloc(c->a, (size_t)n + 1);
    vsnprintf(text, (size_t)n + 1, fmt, ap2);
    va_end(ap2);
    for (char *p = text; *p; p++)
        if ((unsigned char)*p < 32 && (*p < SAID_FIRST || *p >= SAID_FIRST + SAID_MAX)) *p = ' ';
    if (path) {
        text = arena_printf(c->a, "%s: %s", path, text);
        for (size_t i = 0; path[i]; i++)
            if ((unsigned char)text[i] < 32) text[i] = ' ';
    }
    /* A node often asks for the same site several times in a row. */
    for (int i = c->site.n - 1; i >= 0 && i >= c->site.n - 8; i--)
        if (!strcmp(c->site.p[i], text)) return i;
    vec_push(c->a, &c->site, text);
    return c->site.n - 1;
}

/* ---- hash-consing ---------------------------------------------------------------------------- */
static uint64_t node_hash(const Expr *e) {
    uint64_t h = (uint64_t)e->op | (uint64_t)e->dtype << 8 | (uint64_t)e->kind << 16 |
                 (uint64_t)e->n << 24 | (uint64_t)e->naxis << 44;
    h = (h ^ (e->op == E_REDUCE ? 0 : (uint64_t)e->i)) * 0x9e3779b97f4a7c15u;
    if (e->op == E_REDUCE)
        for (int i = 0; i < e->naxis; i++)
            h = (h ^ (uint64_t)e->raxis[i]->id) * 0xd6e8feb86659fd93u;
    for (int i = 0; i < e->n; i++) h = (h ^ h >> 31 ^ (uint64_t)e->a[i]->id) * 0xd6e8feb86659fd93u;
    return h ^ h >> 32;
}

static bool node_same(const Expr *x, const Expr *y) {
    if (x->op != y->op || x->dtype != y->dtype || x->kind != y->kind || x->n != y->n ||
        x->naxis != y->naxis)
        return false;
    if (x->op == E_REDUCE) {
        for (int i = 0; i < x->naxis; i++)
            if (x->raxis[i] != y->raxis[i]) return false;
    } else if (x->i != y->i)
        return false;
    for (int i = 0; i < x->n; i++)
        if (x->a[i] != y->a[i]) return false;
    return true;
}

Expr *expr_intern(Cx *c, Expr *key) {
    struct ExprTable *t = c->table;
    size_t i = node_hash(key) & (t->cap - 1);
    for (; t->slot[i]; i = (i + 1) & (t->cap - 1))
        if (node_same(t->slot[i], key)) return t->slot[i];
    Expr *e = arena_memdup(c->a, key, sizeof *e);
    if (e->n) e->a = arena_memdup(c->a, key->a, sizeof(Expr *) * (size_t)e->n);
    if (e->op == E_REDUCE)
        e->raxis = arena_memdup(c->a, key->raxis, sizeof(Axis *) * (size_t)e->naxis);
    e->id = c->next_expr++;
    e->flags = expr_row[e->op].mark;
    for (int k = 0; k < e->n; k++) e->flags |= e->a[k]->flags;
    /* A sum of a constant, say, has no other symbols than those of its extents. */
    for (int k = 0; e->op == E_REDUCE && k < e->naxis; k++)
        e->flags |= e->raxis[k]->extent->flags & EF_SYM;
    e->pure = !(e->flags & (EF_AXIS | EF_LOAD | EF_REDUCE));
    t->slot[i] = e;
    if (++t->n * 2 > t->cap) {
        Expr **old = t->slot;
        size_t n = t->cap;
        t->cap *= 2;
        t->slot = NEWN(c->a, Expr *, t->cap);
        for (size_t k = 0; k < n; k++) {
            if (!old[k]) continue;
            size_t j = node_hash(old[k]) & (t->cap - 1);
            while (t->slot[j]) j = (j + 1) & (t->cap - 1);
            t->slot[j] = old[k];
        }
    }
    return e;
}

Expr *expr_raw(Cx *c, int op, DType t, int n, Expr **a) {
    return expr_intern(c, &(Expr){.op = (uint8_t)op, .dtype = (uint8_t)t, .n = n, .a = a});
}

/* ---- leaves ---------------------------------------------------------------------------------- */
Expr *e_ci(Cx *c, DType t, int64_t v) {
    if (dtype_is_float(t)) return e_num(c, t, (double)v);
    return expr_intern(c, &(Expr){.op = E_CONST, .dtype = (uint8_t)t, .i = int_wrap(t, v)});
}

Expr *e_num(Cx *c, DType t, double v) {
    if (dtype_small(t)) return e_cast(c, t, e_num(c, DT_F64, v));
    if (!dtype_is_float(t)) return e_ci(c, t, float_to_int(t, v));
    Expr k = {.op = E_CONST, .dtype = (uint8_t)t};
    switch (t) {
    case DT_F32: k.f = (float)v; break;
    case DT_F16: k.f = f16_to_f32(f32_to_f16((float)v)); break;
    case DT_BF16: k.f = bf16_to_f32(f32_to_bf16((float)v)); break;
    default: k.f = v;
    }
    return expr_intern(c, &k);
}

Expr *e_int(Cx *c, int64_t v) { return e_ci(c, DT_I64, v); }
Expr *e_bool(Cx *c, bool v) { return e_ci(c, DT_BOOL, v); }

Expr *e_elem(Cx *c, const Const *k, int64_t i) {
    ASSERT(i >= 0 && i < k->count);
    return dtype_is_float(k->dtype) ? e_num(c, k->dtype, elem_get_f(k->dtype, k->data, i))
                                    : e_ci(c, k->dtype, elem_get_i(k->dtype, k->data, i));
}

Expr *e_sym(Cx *c, Sym *s) {
    if (s->lo == s->hi) return e_ci(c, s->dtype, s->lo);
    return expr_intern(c, &(Expr){.op = E_SYM, .dtype = (uint8_t)s->dtype, .sym = s});
}

Expr *e_axis(Cx *c, Axis *x) {
    if (e_is_ival(x->extent, 1)) return e_int(c, 0);
    return expr_intern(c, &(Expr){.op = E_AXIS, .dtype = DT_I64, .axis = x});
}

Expr *e_indim(Cx *c, int input, int axis) {
    return expr_intern(c, &(Expr){.op = E_INDIM,
                                  .dtype = axis == -2 ? DT_BOOL : DT_I64,
                                  .i = (int64_t)input << 8 | (axis & 255)});
}

Expr *e_limit(Cx *c) { return expr_intern(c, &(Expr){.op = E_LIMIT, .dtype = DT_I64}); }

Expr *e_seed(Cx *c) { return expr_intern(c, &(Expr){.op = E_SEED, .dtype = DT_U64}); }

Axis *axis_new(Cx *c, Expr *extent) {
    ASSERT(extent->dtype == DT_I64 && extent->pure);
    Axis *x = NEW(c->a, Axis);
    x->id = c->next_axis++;
    x->extent = extent;
    return x;
}

Sym *sym_new(Cx *c, DType t, const char *name, int64_t lo) {
    Sym *s = NEW(c->a, Sym);
    s->id = c->next_sym++;
    s->dtype = t;
    s->name = name ? arena_strdup(c->a, name) : "s";
    s->lo = lo;
    s->hi = INT64_MAX;
    if (t == DT_BOOL) s->lo = 0;
    return s;
}

/* ---- operators ------------------------------------------------------------------------------- */
static bool is_const(const Expr *e) { return e->op == E_CONST; }

Expr *e_un(Cx *c, int op, Expr *a) {
    const ExprRow *o = &expr_row[op];
    DType t = a->dtype;
    ASSERT(o->operands == 1 && (op != E_NOT || t == DT_BOOL));
    if (!dtype_is_float(t) && !o->ints) { /* nothing to round, no NaN */
        ASSERT(o->truth || o->flags & OP_IDEMPOTENT);
        return o->truth ? e_bool(c, false) : a;
    }
    if (is_const(a)) return scalar_fold(c, op, a, a);
    if (op == E_NEG && t == DT_I64) return e_muli(c, a, -1);
    if (a->op == op && o->flags & OP_INVOLUTION) return a->a[0];
    if (a->op == op && o->flags & OP_IDEMPOTENT) return a;
    return expr_raw(c, op, o->truth ? DT_BOOL : t, 1, &a);
}

/* For bool operands; NULL when there is nothing to simplify. */
static Expr *simplify_logic(Cx *c, int op, Expr *a, Expr *b) {
    if (op == E_AND || op == E_OR) {
        if (a == b) return a;
        bool absorbing = op == E_OR;
        for (int k = 0; k < 2; k++) {
            Expr *x = k ? a : b, *y = k ? b : a;
            int64_t v;
            if (e_is_int(x, &v)) return (v != 0) == absorbing ? x : y;
            if (x->op == E_NOT && x->a[0] == y) return e_bool(c, absorbing);
        }
    }
    if (op == E_EQ || op == E_XOR) {
        if (a == b) return e_bool(c, op == E_EQ);
        for (int k = 0; k < 2; k++) {
            Expr *x = k ? a : b, *y = k ? b : a;
            int64_t v;
            if (e_is_int(x, &v)) return (v != 0) == (op == E_EQ) ? y : e_not(c, y);
        }
    }
    return NULL;
}

static Expr *simplify_compare(Cx *c, int op, Expr *a, Expr *b) {
    if (a == b && !dtype_is_float(a->dtype)) return e_bool(c, op != E_LT);
    if (a->dtype != DT_I64) return NULL;
    int64_t lo, hi, v;
    Expr *d = e_sub(c, b, a);
    if (e_is_int(d, &v)) return e_bool(c, op == E_LT ? v > 0 : op == E_LE ? v >= 0 : v == 0);
    if (!e_range(d, &lo, &hi)) return NULL;
    if (op == E_LT) return lo > 0 ? e_bool(c, true) : hi <= 0 ? e_bool(c, false) : NULL;
    if (op == E_LE) return lo >= 0 ? e_bool(c, true) : hi < 0 ? e_bool(c, false) : NULL;
    return lo > 0 || hi < 0 ? e_bool(c, false) : NULL;
}

static bool is_neutral(const ExprRow *o, const Expr *e) {
    if (dtype_is_float(e->dtype))
        return o->neutral.floats && is_const(e) && e->f == o->neutral.v && !signbit(e->f);
    return o->neutral.ints && e->dtype != DT_BOOL && e_is_ival(e, o->neutral.v);
}

/* Whether e is 1 + exp(-x); sets x. */
static bool is_logistic_divisor(const Expr *e, Expr **x) {
    for (int k = 0; k < 2 && e->op == E_ADD; k++) {
        const Expr *power = e->a[!k];
        if (!is_const(e->a[k]) || e->a[k]->f != 1 || power->op != E_EXP) continue;
        const Expr *of = power->a[0];
        if (of->op != E_NEG && !(of->op == E_MUL && is_const(of->a[1]) && of->a[1]->f == -1))
            continue;
        *x = of->a[0];
        return true;
    }
    return false;
}

Expr *e_bin(Cx *c, int op, Expr *a, Expr *b) {
    const ExprRow *o = &expr_row[op];
    DType t = a->dtype;
    bool flt = dtype_is_float(t), commutes = o->flags & OP_COMMUTES;
    ASSERT(o->operands == 2 && t == (DType)b->dtype);
    ASSERT(flt ? !!o->floats : o->ints || (o->u64 && t == DT_U64));
    if (is_const(a) && is_const(b)) return scalar_fold(c, op, a, b);
    Expr *r = NULL;
    if (t == DT_I64)
        r = simplify_i64(c, op, a, b);
    else if (t == DT_BOOL)
        r = simplify_logic(c, op, a, b);
    if (r) return r;
    if (e_is_compare(op) && (r = simplify_compare(c, op, a, b))) return r;
    if (is_neutral(o, b)) return a;
    if (commutes && is_neutral(o, a)) return b;
    if (a == b && o->flags & OP_IDEMPOTENT) return a;
    if (op == E_POW && flt && is_const(b)) {
        if (b->f == 1) return a;
        if (b->f == 2) return e_mul(c, a, a);
        if (b->f == 0.5) return e_un(c, E_SQRT, e_add(c, a, e_num(c, t, 0))); /* -0 gives 0 */
        if (b->f == 3) return e_mul(c, e_mul(c, a, a), a);
    }
    /* 1 / (1 + exp(-x)), and x divided by the same. */
    Expr *x;
    if (op == E_DIV && (t == DT_F32 || t == DT_F64) && is_logistic_divisor(b, &x)) {
        if (is_const(a) && a->f == 1) return e_un(c, E_SIGMOID, x);
        if (a == x) return e_mul(c, x, e_un(c, E_SIGMOID, x));
    }
    /* The older operand first, so that a+b and b+a are one node. */
    bool swap = commutes && !flt && a->id > b->id;
    return expr_raw(c, op, o->truth ? DT_BOOL : t, 2, (Expr *[]){swap ? b : a, swap ? a : b});
}

Expr *e_cast(Cx *c, DType t, Expr *a) {
    DType s = a->dtype;
    if (s == t) return a;
    if (dtype_small(t)) return small_encode(c, t, a, (SmallCast){.saturate = true});
    if (dtype_small(s)) return e_cast(c, t, small_decode(c, a));
    if (is_const(a)) {
        if (dtype_is_float(s))
            return dtype_is_float(t) ? e_num(c, t, a->f) : e_ci(c, t, float_to_int(t, a->f));
        if (dtype_is_float(t))
            return e_num(c, t, s == DT_U64 ? (double)(uint64_t)a->i : (double)a->i);
        return e_ci(c, t, t == DT_BOOL ? a->i != 0 : a->i);
    }
    if (a->op == E_CAST) {
        Expr *x = a->a[0];
        /* A float to a wider type and back; what has values of a narrower type, to it and back. */
        if (x->dtype == t && dtype_is_float(s) && dtype_is_float(t) &&
            (dtype_size(s) > dtype_size(t) || (x->op == E_LOAD && x->t->values == s)))
            return x;
        /* bool -> number -> bool, and int64 -> narrower -> int64 of a value that fits. */
        if (t == DT_BOOL && x->dtype == DT_BOOL) return x;
        int64_t lo, hi;
        if (x->dtype == t && t == DT_I64 && dtype_is_int(s) && e_range(x, &lo, &hi) &&
            int_wrap(s, lo) == lo && int_wrap(s, hi) == hi)
            return x;
        if (x->dtype == DT_BOOL && dtype_is_int(s)) return e_cast(c, t, x);
    }
    return expr_raw(c, E_CAST, t, 1, &a);
}

void e_store(const Expr *konst, void *data, int64_t i) {
    if (dtype_is_float(konst->dtype))
        elem_set_f(konst->dtype, data, i, konst->f);
    else
        elem_set_i(konst->dtype, data, i, konst->i);
}

Expr *e_bitcast(Cx *c, DType t, Expr *a) {
    if ((DType)a->dtype == t) return a;
    ASSERT(dtype_size(t) == dtype_size(a->dtype));
    if (a->op == E_BITCAST) return e_bitcast(c, t, a->a[0]);
    if (is_const(a)) {
        uint64_t bits = 0, back = 0;
        e_store(a, &bits, 0);
        Expr *r = e_elem(c, &(Const){.dtype = t, .count = 1, .data = &bits}, 0);
        e_store(r, &back, 0);
        if (back == bits) return r; /* false for a NaN whose payload a double does not hold */
    }
    return expr_raw(c, E_BITCAST, t, 1, &a);
}

Expr *e_sel(Cx *c, Expr *cond, Expr *a, Expr *b) {
    ASSERT(cond->dtype == DT_BOOL && a->dtype == b->dtype);
    int64_t v;
    if (e_is_int(cond, &v)) return v ? a : b;
    if (a == b) return a;
    if (cond->op == E_NOT) return e_sel(c, cond->a[0], b, a);
    if (a->dtype == DT_BOOL) {
        int64_t x, y;
        if (e_is_int(a, &x) && e_is_int(b, &y)) return x ? cond : e_not(c, cond);
    }
    /* x < u ? a : x < u + 1 ? y : a, a row put between those before it and those behind it. */
    if (cond->op == E_LT && b->op == E_SELECT && b->a[2] == a && b->a[0]->op == E_LT &&
        cond->a[0]->dtype == DT_I64 && b->a[0]->a[0] == cond->a[0] &&
        e_is_ival(e_sub(c, b->a[0]->a[1], cond->a[1]), 1))
        return e_sel(c, e_eq(c, cond->a[0], cond->a[1]), b->a[1], a);
    Expr *k[3] = {cond, a, b};
    return expr_raw(c, E_SELECT, a->dtype, 3, k);
}

Expr *e_tell(Cx *c, Expr *cond, int n, Expr *const *v) {
    Expr *k[1 + SAID_MAX] = {cond};
    bool any = false;
    ASSERT(cond->dtype == DT_BOOL && n <= SAID_MAX);
    for (int i = 0; i < n; i++) {
        ASSERT(v[i]->dtype == DT_I64);
        k[1 + i] = v[i];
        any |= !e_is_ival(v[i], UNSAID);
    }
    if (!any || cond->op == E_CONST || cond->op == E_TELL) return cond;
    return expr_raw(c, E_TELL, DT_BOOL, 1 + n, k);
}

Expr *e_guard(Cx *c, Expr *cond, Expr *a, Expr *b, int site) {
    ASSERT(cond->dtype == DT_BOOL && a->dtype == b->dtype);
    if (e_is_ival(cond, 1)) return a;
    Expr *k[3] = {cond, a, b};
    return expr_intern(c, &(Expr){.op = E_GUARD, .dtype = a->dtype, .n = 3, .a = k, .i = site});
}

/* Row-major position of constant indices, -1 when they are not all constant and in range. */
static int64_t const_flat(const Tensor *t, Expr **idx) {
    int64_t flat = 0, v, d;
    for (int i = 0; i < t->rank; i++) {
        if (!e_is_int(idx[i], &v) || !e_is_int(t->dim[i], &d) || v < 0 || v >= d) return -1;
        flat = flat * d + v;
    }
    return flat;
}

static Expr *known_elem(Cx *c, const Tensor *t, int64_t flat) {
    if (flat < 0) return NULL;
    if (t->elem) return t->elem[flat];
    return t->kind == TK_CONST && flat < t->data->count ? e_elem(c, t->data, flat) : NULL;
}

Expr *e_load(Cx *c, Tensor *t, Expr **idx) {
    ASSERT(t->rank >= 0 && !t->blob);
    Expr *e = known_elem(c, t, const_flat(t, idx));
    if (e) return e;
    bool one = true;
    for (int i = 0; i < t->rank; i++) {
        ASSERT(idx[i]->dtype == DT_I64);
        one &= e_is_ival(t->dim[i], 1);
    }
    if (one && (e = known_elem(c, t, 0))) return e;
    return expr_intern(
        c, &(Expr){.op = E_LOAD, .dtype = (uint8_t)t->dtype, .n = t->rank, .a = idx, .t = t});
}

Expr *e_loadf(Cx *c, Tensor *t, Expr *flat) {
    int64_t v, n;
    if (e_is_int(flat, &v) && e_is_int(tensor_count(c, t), &n) && v >= 0 && v < n) {
        Expr *e = known_elem(c, t, v);
        if (e) return e;
    }
    return expr_intern(
        c,
        &(Expr){.op = E_LOAD, .dtype = (uint8_t)t->dtype, .kind = 1, .n = 1, .a = &flat, .t = t});
}

Expr *e_reduce(Cx *c, ReduceKind k, int n, Axis **axis, Expr *body) {
    bool arg = k >= R_ARGMAX;
    ASSERT(!arg || n == 1);
    ASSERT((k != R_AND && k != R_OR) || body->dtype == DT_BOOL);
    /* Axes of extent 1 are the constant 0 already. */
    Axis *keep[MAX_RANK * 2];
    int m = 0;
    ASSERT(n <= (int)COUNT(keep));
    for (int i = 0; i < n; i++)
        if (arg || !e_is_ival(axis[i]->extent, 1)) keep[m++] = axis[i];
    if (!m) return body;
    if (arg && e_is_ival(keep[0]->extent, 1)) return e_int(c, 0);
    if ((k == R_MAX || k == R_MIN) && body->dtype == DT_BOOL) k = k == R_MAX ? R_OR : R_AND;
    return expr_intern(c, &(Expr){.op = E_REDUCE,
                                  .dtype = arg ? DT_I64 : body->dtype,
                                  .kind = (uint8_t)k,
                                  .n = 1,
                                  .a = &body,
                                  .naxis = m,
                                  .raxis = keep});
}

/* ---- queries --------------------------------------------------------------------------------- */
bool e_is_int(const Expr *e, int64_t *v) {
    if (e->op != E_CONST || dtype_is_float(e->dtype)) return false;
    *v = e->i;
    return true;
}

bool e_is_ival(const Expr *e, int64_t v) {
    return e->op == E_CONST && !dtype_is_float(e->dtype) && e->i == v;
}

/* Whether x is free in e. Without `seen` it gives up after `most` steps, because a DAG has far more
 * paths than nodes; `seen` is a cache of expressions without x. */
#define SEEN 256
static bool uses_axis(const Expr *e, const Axis *x, int *most, const Expr **seen) {
    if (!(e->flags & EF_AXIS)) return false;
    if (e->op == E_AXIS) return e->axis == x;
    if (seen && seen[e->id % SEEN] == e) return false;
    if (!seen && --*most < 0) return false;
    if (e->op == E_REDUCE)
        for (int i = 0; i < e->naxis; i++)
            if (e->raxis[i] == x) return false;
    for (int i = 0; i < e->n; i++)
        if (uses_axis(e->a[i], x, most, seen)) return true;
    if (seen) seen[e->id % SEEN] = e;
    return false;
}

bool e_uses_axis(const Expr *e, const Axis *x) {
    const Expr *seen[SEEN];
    int most = 64;
    if (uses_axis(e, x, &most, NULL)) return true;
    if (most >= 0) return false;
    memset(seen, 0, sizeof seen);
    return uses_axis(e, x, &most, seen);
}

/* ---- substitution and walks ------------------------------------------------------------------ */
typedef struct ExprMemo {
    int epoch;
    Expr *e;
} ExprMemo;

static int memo_begin(Cx *c) {
    if (c->nmemo < c->next_expr) {
        int n = c->next_expr * 2 + MEMO_SPARE;
        ExprMemo *m = NEWN(c->a, ExprMemo, n);
        if (c->nmemo) memcpy(m, c->memo, sizeof *m * (size_t)c->nmemo);
        c->memo = m;
        c->nmemo = n;
    }
    return ++c->epoch;
}

Expr *expr_rebuild(Cx *c, Expr *e, Expr **a) {
    switch (e->op) {
    case E_CAST: return e_cast(c, e->dtype, a[0]);
    case E_BITCAST: return e_bitcast(c, e->dtype, a[0]);
    case E_SELECT: return e_sel(c, a[0], a[1], a[2]);
    case E_GUARD: return e_guard(c, a[0], a[1], a[2], (int)e->i);
    case E_TELL: return e_tell(c, a[0], e->n - 1, a + 1);
    case E_LOAD: return e->kind ? e_loadf(c, e->t, a[0]) : e_load(c, e->t, a);
    case E_REDUCE: return e_reduce(c, e->kind, e->naxis, e->raxis, a[0]);
    default: return e_is_unary(e->op) ? e_un(c, e->op, a[0]) : e_bin(c, e->op, a[0], a[1]);
    }
}

typedef struct Subst {
    Cx *c;
    int n, epoch;
    Axis *const *from;
    Expr *const *to;
    LoadMap *map;
    void *user;
    uint8_t flags;   /* nodes without any of these are unchanged */
    Expr *node, *by; /* this node becomes that */
} Subst;

static Expr *subst(Subst *s, Expr *e) {
    if (!(e->flags & s->flags)) return e;
    Cx *c = s->c;
    if (e == s->node) return s->by;
    if (e->op == E_AXIS) {
        for (int i = 0; i < s->n; i++)
            if (s->from[i] == e->axis) return s->to[i];
        return e;
    }
    if (e->id < c->nmemo && c->memo[e->id].epoch == s->epoch) return c->memo[e->id].e;
    Expr *small[MAX_RANK], **a = e->n <= MAX_RANK ? small : NEWN(c->a, Expr *, e->n);
    bool same = true;
    for (int i = 0; i < e->n; i++) same &= (a[i] = subst(s, e->a[i])) == e->a[i];
    Expr *r = same ? e : expr_rebuild(c, e, a);
    if (s->map && r->op == E_LOAD) {
        Expr *m = s->map(s->user, r);
        if (m) r = m;
    }
    if (e->id < c->nmemo) c->memo[e->id] = (ExprMemo){s->epoch, r};
    return r;
}

Expr *e_subst(Cx *c, Expr *e, int n, Axis *const *from, Expr *const *to, LoadMap *map, void *user) {
    Subst s = {c, n, memo_begin(c), from, to, map, user, 0, NULL, NULL};
    s.flags = (uint8_t)((n ? EF_AXIS : 0) | (map ? EF_LOAD : 0));
    return subst(&s, e);
}

Expr *e_replace(Cx *c, Expr *e, Expr *from, Expr *to) {
    Subst s = {c, 0, memo_begin(c), NULL, NULL, NULL, NULL, from->flags, from, to};
    return subst(&s, e);
}

static void walk_loads(Map *seen, Expr *e, void (*f)(void *user, Expr *load), void *user) {
    if (!(e->flags & EF_LOAD) || !map_add(seen, (uint64_t)e->id + 1)) return;
    for (int i = 0; i < e->n; i++) walk_loads(seen, e->a[i], f, user);
    if (e->op == E_LOAD) f(user, e);
}

void e_each_load(Cx *c, Expr *e, void (*f)(void *user, Expr *load), void *user) {
    if (e->flags & EF_LOAD) walk_loads(map_new(c->a), e, f, user);
}
