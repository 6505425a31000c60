/* lower.c: helpers for lowerings (lower.h): messages and checks; inputs, outputs and attributes of
 * the current node; uniform values. */
#include "utask/lower_internal.h"

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

/* Raises a compile-time message; an unknown value is shown by its name. */
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
/* cond with the values that the message shows; clears the list of those values. */
static Expr *tell(Lower *L, Expr *cond, bool uniform) {
    for (int i = 0; i < L->nsaid; i++)
        if (uniform && !L->said[i]->pure) L->said[i] = let(L, "said", L->said[i], INT64_MIN);
    cond = e_tell(L->cx, cond, L->nsaid, L->said);
    L->nsaid = 0;
    return cond;
}
void fail(Lower *L, const char *fmt, ...) {
    TEXT_OF(text, fmt);
    raise(L, ST_MODEL, text);
}
void unsupported(Lower *L, const char *fmt, ...) {
    TEXT_OF(text, fmt);
    raise(L, ST_UNSUPPORTED, text);
}

int site(Lower *L, const char *fmt, ...) {
    TEXT_OF(text, fmt);
    return cx_site(L->cx, L->node ? L->node->path : NULL, "%s", text);
}

Expr *guarded(Lower *L, Expr *cond, Expr *a, Expr *b, const char *fmt, ...) {
    TEXT_OF(text, fmt);
    int at = e_is_ival(cond, 1) ? 0 : site(L, "%s", text);
    return e_guard(L->cx, tell(L, cond, false), a, b, at);
}

static bool is_checked(const Lower *L, const Expr *cond) {
    for (const Seq *q = L->seq; q; q = q->parent)
        for (int i = 0; i < q->s.n; i++)
            if (q->s.p[i]->kind == S_CHECK && e_told(q->s.p[i]->check.cond) == cond) return true;
    return false;
}

void check(Lower *L, Expr *cond, const char *fmt, ...) {
    TEXT_OF(text, fmt);
    ASSERT(cond->dtype == DT_BOOL);
    if (e_is_ival(cond, 0)) {
        L->st->unmet = true;
        fail(L, "%s", text);
    }
    if (!cond->pure) cond = let(L, "ok", cond, 0);
    if (e_is_ival(cond, 1) || is_checked(L, cond)) {
        L->nsaid = 0;
        return;
    }
    cond = tell(L, cond, true);
    Stmt *s = lower_stmt(L, S_CHECK);
    s->check.cond = cond;
    s->check.site = site(L, "%s", text);
    lower_append(L, s);
}

/* Appends both sizes to the message, as " (3, not 4)" or " (3 and 4)", or the one that the text
 * does not give. */
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

void check_rank(Lower *L, const Tensor *t, int rank, const char *what) {
    if (t->rank != rank) fail(L, "%s must have rank %d, not %d", what, rank, t->rank);
}

void check_dims(Lower *L, int n, Expr *const *a, Expr *const *b, const char *fmt) {
    for (int i = 0; i < n; i++) check_eq(L, a[i], b[i], fmt, i);
}

void check_shape(Lower *L, const Tensor *t, int rank, Expr *const *dim, const char *what,
                 const char *fmt) {
    check_rank(L, t, rank, what);
    check_dims(L, rank, t->dim, dim, fmt);
}

/* ---- values ---------------------------------------------------------------------------------- */
Val *val_tensor(Lower *L, Tensor *t) {
    Val *v = NEW(L->a, Val);
    v->kind = VT_TENSOR;
    v->t = t;
    return v;
}

/* If the rank of one value is known, so is that of all values with the same rank. */
Tensor *refined(Lower *L, Tensor *t) {
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

Tensor *in_needed(Lower *L, int i) {
    Tensor *t = in(L, i);
    if (!t) fail(L, "input %d is missing", i);
    return t;
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

/* The operator table has seen to kinds (frontend/attrs.c). */
static const Attr *attr_of(Lower *L, const char *name, AttrKind kind) {
    const Attr *a = node_attr(L->node, name);
    ASSERT(!a || a->kind == kind);
    return a;
}

int64_t attr_i(Lower *L, const char *name, int64_t dflt) {
    const Attr *a = attr_of(L, name, AT_INT);
    return a ? a->i : dflt;
}
double attr_f(Lower *L, const char *name, double dflt) {
    const Attr *a = attr_of(L, name, AT_FLOAT);
    return a ? a->f : dflt;
}
const char *attr_s(Lower *L, const char *name, const char *dflt) {
    const Attr *a = attr_of(L, name, AT_STRING);
    return a ? a->s : dflt;
}
int attr_choice(Lower *L, const char *name, int n, const char *const *values) {
    const char *s = attr_s(L, name, values[0]);
    for (int i = 0; i < n; i++)
        if (!strcmp(s, values[i])) return i;
    die("attribute %s is '%s'", name, s);
}
int64_t attr_positive(Lower *L, const char *name, int64_t dflt) {
    int64_t n = attr_i(L, name, dflt);
    if (n < 1 || n > INT32_MAX) fail(L, "%s must be positive, not %lld", name, (long long)n);
    return n;
}
const int64_t *attr_ints(Lower *L, const char *name, int *n) {
    const Attr *a = attr_of(L, name, AT_INTS);
    *n = a ? a->n : -1;
    return a ? a->ints : NULL;
}
const float *attr_floats(Lower *L, const char *name, int *n) {
    const Attr *a = attr_of(L, name, AT_FLOATS);
    *n = a ? a->n : -1;
    return a ? a->floats : NULL;
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
    Sym *s;
    sym_scoped(L, &s, e->dtype, name, lo, L->seq);
    /* a larger one comes from a clamp and says nothing */
    if (b > lo && b <= INT32_MAX) s->hi = b;
    return lower_let(L, s, e);
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
    Tensor *v = tensor_like(L->cx, TK_VIEW, t, rank, dim, L->seq);
    v->base = t->kind == TK_VIEW ? t->base : t;
    return v;
}
