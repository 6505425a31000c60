/* emit_expr.c: prints scalar expressions as C.
 *
 * fn_expr returns the text of a value. What is used more than once, or needs statements
 * (reductions, conditional parts), first gets a variable, which lives in the current scope
 * (fn_open, fn_close). Conditional operands are emitted inside the condition, so that an untaken
 * load never happens. */
#include "codegen/emit/emit.h"
#include <float.h>
#include <math.h>
#include <stdlib.h>

/* ---- types and constants --------------------------------------------------------------------- */
const char *c_store(DType t) {
    switch (t) {
    case DT_F32: return "float";
    case DT_F64: return "double";
    case DT_U8:
    case DT_BOOL: return "uint8_t";
    case DT_I8: return "int8_t";
    case DT_U16:
    case DT_F16:
    case DT_BF16: return "uint16_t";
    case DT_I16: return "int16_t";
    case DT_I32: return "int32_t";
    case DT_U32: return "uint32_t";
    case DT_U64: return "uint64_t";
    default: return dtype_small(t) ? "uint8_t" : "int64_t";
    }
}

const char *c_type(DType t) {
    return t == DT_F16 || t == DT_BF16 ? "float" : t == DT_BOOL ? "bool" : c_store(t);
}

static const char *c_const(Arena *a, const Expr *e) {
    if (dtype_is_float(e->dtype)) {
        const char *suffix = e->dtype == DT_F64 ? "" : "f";
        if (e->f != e->f) return arena_printf(a, "__builtin_nan%s(\"\")", suffix);
        if (e->f - e->f != 0)
            return arena_printf(a, "(%s__builtin_inf%s())", e->f < 0 ? "-" : "", suffix);
        char *s = arena_printf(a, "%.17g", e->f);
        if (e->dtype != DT_F64) {
            char *g = arena_printf(a, "%.9g", e->f);
            if ((float)e->f == strtof(g, NULL)) s = g;
        }
        if (!strpbrk(s, ".e")) s = arena_printf(a, "%s.0", s);
        return arena_printf(a, e->f < 0 || (e->f == 0 && *s == '-') ? "(%s%s)" : "%s%s", s, suffix);
    }
    switch (e->dtype) {
    case DT_BOOL: return e->i ? "true" : "false";
    case DT_U64: return arena_printf(a, "%lluull", (unsigned long long)e->i);
    case DT_U32: return arena_printf(a, "%lluu", (unsigned long long)e->i);
    default: break;
    }
    if (e->i == INT64_MIN) return "INT64_MIN";
    const char *ll = e->i > INT32_MAX || e->i < -INT32_MAX ? "ll" : "";
    return arena_printf(a, e->i < 0 ? "(%lld%s)" : "%lld%s", (long long)e->i, ll);
}

/* ---- statements and scopes ------------------------------------------------------------------- */
static void put_line(Fn *f, const char *fmt, va_list ap) {
    va_list again;
    char small[512];
    va_copy(again, ap);
    int n = vsnprintf(small, sizeof small, fmt, ap);
    /* The deep loops of a GPU's functions would be a tenth of their text. */
    for (int i = 0; i < f->indent; i++) sb_puts(f->out, emit_is_gpu(f->em) ? "  " : "    ");
    if (n < (int)sizeof small)
        sb_puts(f->out, small);
    else {
        char *big = arena_alloc(f->a, (size_t)n + 1);
        vsnprintf(big, (size_t)n + 1, fmt, again);
        sb_puts(f->out, big);
    }
    va_end(again);
    sb_puts(f->out, "\n");
}

void fn_line(Fn *f, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    put_line(f, fmt, ap);
    va_end(ap);
}

Scope fn_here(const Fn *f) { return (Scope){f->indent, f->bound.n}; }
Scope fn_open(Fn *f, const char *fmt, ...) {
    const Scope here = fn_here(f);
    va_list ap;
    va_start(ap, fmt);
    put_line(f, fmt, ap);
    va_end(ap);
    f->indent++;
    return here;
}
void fn_end(Fn *f) {
    f->indent--;
    fn_line(f, "}");
}
void fn_close(Fn *f, Scope to) {
    while (f->indent > to.indent) fn_end(f);
    f->bound.n = to.bound;
}
void fn_else(Fn *f, Scope to, const char *fmt, ...) {
    while (f->indent > to.indent + 1) fn_end(f);
    f->indent = to.indent;
    f->bound.n = to.bound;
    va_list ap;
    va_start(ap, fmt);
    put_line(f, fmt, ap);
    va_end(ap);
    f->indent++;
}
void fn_bind(Fn *f, Expr *e, const char *text) {
    Bound b = {e, text};
    vec_push(f->a, &f->bound, b);
}
const char *fn_bound(Fn *f, const Expr *e) {
    for (int i = f->bound.n - 1; i >= 0; i--)
        if (f->bound.p[i].e == e) return f->bound.p[i].text;
    return NULL;
}

void fn_count(Fn *f, Expr *e) {
    uint64_t key = (uint64_t)e->id + 1;
    intptr_t n = (intptr_t)map_geti(f->uses, key);
    map_seti(f->uses, key, (void *)(n + 1));
    if (n) return;
    for (int i = 0; i < e->n; i++) fn_count(f, e->a[i]);
}

static int use_count(Fn *f, const Expr *e) {
    return (int)(intptr_t)map_geti(f->uses, (uint64_t)e->id + 1);
}

static const char *fresh(Fn *f) { return arena_printf(f->a, "t%d", f->ntemp++); }

static void declare(Fn *f, const char *qualifier, const char *type, const char *name,
                    const char *value) {
    if (f->jumps) {
        fn_line(f, "%s %s;", type, name);
        fn_line(f, "%s = %s;", name, value);
    } else
        fn_line(f, "%s%s %s = %s;", qualifier, type, name, value);
}

static const char *temp(Fn *f, Expr *e, const char *text) {
    const char *name = fresh(f);
    declare(f, "const ", c_type(e->dtype), name, text);
    fn_bind(f, e, name);
    return name;
}

/* ---- operators ------------------------------------------------------------------------------- */
typedef enum { C_F32, C_F64, C_HALF, C_INT, C_NARROW, C_U64, C_BOOL } Class;
static Class class_of(DType t) {
    switch (t) {
    case DT_F32: return C_F32;
    case DT_F64: return C_F64;
    case DT_F16:
    case DT_BF16: return C_HALF;
    case DT_BOOL: return C_BOOL;
    case DT_U64: return C_U64;
    case DT_I64:
    case DT_I32:
    case DT_U32: return C_INT;
    default: return C_NARROW;
    }
}

static const char *rounded(Fn *f, DType t, const char *s) {
    if (t == DT_F16) return arena_printf(f->a, "bk_rh(%s)", s);
    if (t == DT_BF16) return arena_printf(f->a, "bk_rb(%s)", s);
    return s;
}

/* Whether arithmetic of signed type t must be written so that it wraps around: true for values that
 * may come from data. Addresses do not overflow, and compilers optimize better if they know it. */
static bool wraps(const Fn *f, const Expr *e, DType t) {
    return f->em && f->em->target->strict && (t == DT_I32 || t == DT_I64) &&
           (e->flags & EF_LOAD || !(e->flags & EF_AXIS));
}

static int width_of(DType t) { return t == DT_BOOL ? 1 : (int)dtype_size(t) * 8; }

/* The text that scalar.def has for e. */
static const char *pattern(const Fn *f, const Expr *e) {
    const ExprRow *o = &expr_row[e->op];
    DType t = e->a[0]->dtype;
    Class k = class_of(t);
    int64_t lo, hi, lo2, hi2;
    if (k == C_F64) return o->dbl ? o->dbl : o->floats;
    if (k < C_INT) return o->single ? o->single : o->floats;
    if (o->wraps && wraps(f, e, t)) return o->wraps;
    if (o->by_const && !dtype_is_signed(t) && e_is_int(e->a[1], &lo) && lo >= 0 && lo < width_of(t))
        return o->by_const;
    if (o->natural && t == DT_I64 && e_range(e->a[0], &lo, &hi) && lo >= 0 &&
        e_range(e->a[1], &lo2, &hi2) && lo2 > 0)
        return o->natural;
    if (o->u64 && k == C_U64) return o->u64;
    if (o->unsign && !dtype_is_signed(t)) return o->unsign;
    if (o->narrow && k == C_NARROW) return o->narrow;
    return o->bools && k == C_BOOL ? o->bools : o->ints;
}

static bool is_function(const Expr *e) { return expr_row[e->op].work == WORK_FUNCTION; }

static int depth_of(Fn *f, Map *seen, const Expr *e) {
    const uint64_t key = (uint64_t)e->id + 1;
    intptr_t most = (intptr_t)map_geti(seen, key);
    if (most) return (int)most - 1;
    for (int i = 0; i < f->late.n && e->op == E_LOAD; i++)
        if (f->late.p[i].t == e->t) return f->late.p[i].depth;
    for (int i = 0; i < e->n; i++) {
        const int n = depth_of(f, seen, e->a[i]);
        if (n > most) most = n;
    }
    most += is_function(e);
    map_seti(seen, key, (void *)(most + 1));
    return (int)most;
}
static int function_depth(Fn *f, const Expr *e) { return depth_of(f, map_new(f->a), e); }

void fn_computed(Fn *f, const Tensor *t, const Expr *value) {
    const Late late = {t, function_depth(f, value)};
    if (late.depth) vec_push(f->a, &f->late, late);
}

static const char *scalar(Fn *f, Expr *e) {
    const ExprRow *o = &expr_row[e->op];
    DType t = e->a[0]->dtype;
    Class k = class_of(t);
    const char *x = fn_expr(f, e->a[0]), *y = e->n > 1 ? fn_expr(f, e->a[1]) : NULL;
    if (o->flags & OP_TWICE && strlen(x) > 24) x = fn_temp(f, e->a[0]);
    if (k < C_INT && f->em && emit_is_gpu(f->em) && is_function(e)) {
        const int depth = function_depth(f, e) - 1;
        if (depth) x = arena_printf(f->a, "bk_then(%s, %d)", x, depth);
    }
    if (e->op == E_DIV && k < C_INT && k != C_F64 && f->around && emit_is_gpu(f->em))
        return rounded(f, e->dtype, arena_printf(f->a, "bk_dividef(%s, %s)", x, y));
    Sb s = {.a = f->a};
    for (const char *p = pattern(f, e); *p;) {
        int n = (int)strspn(p, "_0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ");
        const char *name = arena_printf(f->a, "%.*s", n, p);
        p += n;
        if (!n)
            sb_write(&s, p++, 1);
        else if (!strcmp(name, "x") || !strcmp(name, "y"))
            sb_puts(&s, *name == 'x' ? x : y);
        else if (!strcmp(name, "n"))
            sb_printf(&s, "%d", (int)e->a[1]->i);
        else if (!strcmp(name, "T"))
            sb_puts(&s, c_type(t));
        else if (!strcmp(name, "bits"))
            sb_printf(&s, "%d", width_of(t));
        else if (!strcmp(name, "F") || !strcmp(name, "BK")) { /* F(name), BK(name) */
            bool libm = *name == 'F';
            n = (int)strcspn(p, ")");
            sb_printf(&s, "%s%.*s%s", libm ? "" : "bk_", n - 1, p + 1,
                      k == C_F64   ? libm ? "" : "d"
                      : k < C_INT  ? "f"
                      : k == C_U64 ? "u"
                                   : "i");
            p += n + 1;
        } else
            sb_puts(&s, name);
    }
    return o->flags & OP_EXACT ? s.p : rounded(f, e->dtype, s.p);
}

static const char *cast(Fn *f, DType t, DType s, const char *x) {
    Arena *a = f->a;
    bool from = dtype_is_float(s), to = dtype_is_float(t);
    if (t == DT_BOOL) return arena_printf(a, "(%s != 0)", x);
    if (from && to) {
        if (t == DT_F64) return arena_printf(a, "((double)%s)", x);
        if (s == DT_F16 && t == DT_F32) return x;
        if (s == DT_BF16 && t == DT_F32) return x;
        return rounded(f, t, s == DT_F64 ? arena_printf(a, "((float)%s)", x) : x);
    }
    if (from) {
        const char *by = t == DT_U64 ? "2u" : t == DT_I64 || t == DT_U32 ? "2i" : "2i32";
        return arena_printf(a, "((%s)bk_%sf%s(%s))", c_type(t), s == DT_F64 ? "" : "f", by, x);
    }
    if (to) return rounded(f, t, arena_printf(a, "((%s)%s)", c_type(t), x));
    return arena_printf(a, "((%s)%s)", c_type(t), x);
}

/* The operand of a minimum or maximum whose other one is a constant, *k. */
static Expr *limited(const Expr *e, int op, double *k) {
    for (int i = 0; i < 2 && e->op == op; i++)
        if (e->a[i]->op == E_CONST) {
            *k = e->a[i]->f;
            return e->a[!i];
        }
    return NULL;
}

#define TABLE_MOST 65536 /* elements of a constant that are looked at */

/* The largest magnitude that a float32 value can have by how it is computed; infinite if that is
 * not known, as where it may be no number. */
static double magnitude(const Expr *e) {
    const double unknown = HUGE_VAL;
    double most = 0, x, y;
    switch (e->op) {
    case E_CONST: return e->f == e->f ? fabs(e->f) : unknown;
    case E_CAST:
        return dtype_is_int(e->a[0]->dtype) && dtype_size(e->a[0]->dtype) <= 4 ? 0x1p32 : unknown;
    case E_ROUND: return magnitude(e->a[0]) + 1;
    case E_MUL:
    case E_ADD:
    case E_SUB:
        x = magnitude(e->a[0]);
        y = x < unknown ? magnitude(e->a[1]) : unknown;
        return y < unknown ? e->op == E_MUL ? x * y : x + y : unknown;
    case E_LOAD:
        if (e->t->kind != TK_CONST || e->dtype != DT_F32 || e->t->data->count > TABLE_MOST)
            return unknown;
        for (int64_t i = 0; i < e->t->data->count; i++) {
            x = fabs(elem_get_f(DT_F32, e->t->data->data, i));
            if (!(x <= most)) most = x == x ? x : unknown;
        }
        return most;
    default: return unknown;
    }
}

const char *fn_clipped(Fn *f, const Expr *e) {
    const Expr *x = e->op == E_CAST ? e->a[0] : e;
    double lo, hi;
    if (e->op != E_CAST || x->dtype != DT_F32 || !dtype_is_int(e->dtype) ||
        dtype_size(e->dtype) > 2)
        return NULL;
    Expr *low = limited(x, E_MIN, &hi), *value = low ? limited(low, E_MAX, &lo) : NULL;
    if (!value || !(lo >= -32768 && lo <= hi && hi <= 65535) || lo != (int)lo || hi != (int)hi)
        return NULL;
    return arena_printf(f->a, "bk_%s2i32(%s, %d, %.1ff)",
                        magnitude(value) < FLT_MAX / 2 ? "limit" : "clip", fn_expr(f, value),
                        (int)lo, hi);
}

const char *fn_store(Fn *f, DType t, const char *value) {
    if (t == DT_F16) return arena_printf(f->a, "bk_f2h(%s)", value);
    if (t == DT_BF16) return arena_printf(f->a, "bk_f2b(%s)", value);
    return value;
}

const char *fn_loaded(Fn *f, DType t, const char *elem) {
    if (t == DT_F16) return arena_printf(f->a, "bk_h2f(%s)", elem);
    if (t == DT_BF16) return arena_printf(f->a, "bk_b2f(%s)", elem);
    if (t == DT_BOOL) return arena_printf(f->a, "(%s != 0)", elem);
    return elem;
}

static const char *bitcast(Fn *f, DType t, DType s, const char *x) {
    const char *from = fn_store(f, s, x);
    if (!strcmp(c_store(t), c_store(s))) return fn_loaded(f, t, from);
    return fn_loaded(f, t, arena_printf(f->a, "BK_BITS(%s, %s, %s)", c_store(t), c_store(s), from));
}

const char *fn_fault(Fn *f, int site, const Expr *cond) {
    const char *said[SAID_MAX];
    if (!cond || cond->op != E_TELL) return arena_printf(f->a, "bk_fault(k, %d)", site);
    for (int i = 0; i < SAID_MAX; i++)
        said[i] = i + 1 < cond->n && !e_is_ival(cond->a[i + 1], UNSAID) ? fn_expr(f, cond->a[i + 1])
                                                                        : "BK_UNSAID";
    return arena_printf(f->a, "bk_fault_said(k, %d, %s, %s, %s, %s)", site, said[0], said[1],
                        said[2], said[3]);
}

/* ---- conditional parts ----------------------------------------------------------------------- */
static const char *conditional(Fn *f, Expr *e) {
    const char *cond = fn_expr(f, e->a[0]), *arm[2];
    fn_ahead(f, e);
    Sb part[2] = {{.a = f->a}, {.a = f->a}}, *out = f->out;
    for (int k = 0; k < 2; k++) {
        f->out = &part[k];
        const Scope here = fn_here(f);
        f->indent++;
        arm[k] = fn_expr(f, e->a[1 + k]);
        if (k && e->op == E_GUARD)
            arm[1] = arena_printf(f->a, "(%s, %s)", fn_fault(f, (int)e->i, e->a[0]), arm[1]);
        f->indent = here.indent;
        f->bound.n = here.bound;
        f->out = out;
    }
    const char *r;
    if (!part[0].n && !part[1].n)
        r = arena_printf(f->a, "(%s ? %s : %s)", cond, arm[0], arm[1]);
    else {
        r = fresh(f);
        fn_line(f, "%s %s;", c_type(e->dtype), r);
        const Scope here = fn_open(f, "if (%s) {", cond);
        for (int k = 0; k < 2; k++) {
            if (k) fn_else(f, here, "} else {");
            if (part[k].n) sb_puts(f->out, part[k].p);
            fn_line(f, "%s = %s;", r, arm[k]);
        }
        fn_close(f, here);
    }
    return r;
}

/* ---- reductions ------------------------------------------------------------------------------ */
const char *fn_neutral(Fn *f, const Expr *e) {
    DType t = e->dtype;
    bool flt = dtype_is_float(t);
    int bits = width_of(t);
    bool sgn = dtype_is_signed(t);
    Cx *c = f->c;
    switch (e->kind) {
    case R_PROD: return c_const(f->a, e_num(c, t, 1));
    case R_AND: return "true";
    case R_OR: return "false";
    case R_MAX:
        return c_const(f->a, flt ? e_num(c, t, -__builtin_inf())
                                 : e_ci(c, t, sgn ? (int64_t)((uint64_t)-1 << (bits - 1)) : 0));
    case R_MIN:
        return c_const(f->a,
                       flt ? e_num(c, t, __builtin_inf())
                           : e_ci(c, t, sgn ? (int64_t)(((uint64_t)1 << (bits - 1)) - 1) : -1));
    default: return c_const(f->a, e_num(c, t, 0));
    }
}

void fn_combine(Fn *f, const Expr *e, const char *acc, const char *x) {
    switch (e->kind) {
    case R_SUM:
    case R_PROD:
        if (wraps(f, e, e->dtype)) {
            fn_line(f, "%s = BK_WRAP(%s, %s, %c, %s);", acc, c_type(e->dtype), acc,
                    e->kind == R_SUM ? '+' : '*', x);
            break;
        }
        fn_line(f, "%s = (%s)(%s %c %s);", acc, c_type(e->dtype), acc, e->kind == R_SUM ? '+' : '*',
                x);
        break;
    case R_MAX:
    case R_MIN: {
        const char *m = e->kind == R_MIN ? "min" : "max";
        const char *s = dtype_is_float(e->dtype) ? (e->dtype == DT_F64 ? "d" : "f")
                        : e->dtype == DT_U64     ? "u"
                                                 : "i";
        const char *run = dtype_is_float(e->dtype) ? "run" : "";
        fn_line(f, "%s = (%s)bk_%s%s%s(%s, %s);", acc, c_type(e->dtype), run, m, s, acc, x);
        break;
    }
    case R_AND: fn_line(f, "%s = %s & %s;", acc, acc, x); break;
    case R_OR: fn_line(f, "%s = %s | %s;", acc, acc, x); break;
    default: break;
    }
}

/* Whether the body can be vectorized along the reduction. */
static bool by_lanes(const Fn *f, const Expr *e) {
    const Expr *body = e->a[0];
    return f->em && f->em->p->schedule->lanes > 1 && !(body->flags & (EF_GUARD | EF_REDUCE)) &&
           class_of(body->dtype) != C_BOOL && body->dtype != DT_F16 && body->dtype != DT_BF16;
}

/* ARGMIN and ARGMAX in two vector loops: first the extreme, then the first (last) place of a value
 * equal to it. A NaN is always the extreme. */
static const char *place_of_extreme(Fn *f, Expr *e) {
    Expr *body = e->a[0], *axis = e_axis(f->c, e->raxis[0]);
    const char *type = c_type(body->dtype), *end = fn_expr(f, e->raxis[0]->extent);
    const char *best = fresh(f), *at = fresh(f), *nan = fresh(f);
    const char *r = arena_printf(f->a, "r%d", f->ntemp++);
    bool max = e->kind == R_ARGMAX || e->kind == R_ARGMAX_LAST, last = e->kind >= R_ARGMAX_LAST;
    bool flt = dtype_is_float(body->dtype);
    Expr extreme = *e;
    extreme.kind = max ? R_MAX : R_MIN;
    extreme.dtype = body->dtype;
    fn_hoist(f, body, 1, e->raxis);
    fn_line(f, "int32_t %s = %s;", at, last ? "0" : "INT32_MAX");
    fn_line(f, "%s %s = %s;", type, best, fn_neutral(f, &extreme));
    if (flt) fn_line(f, "int %s = 0;", nan);
    for (int pass = 0; pass < 2; pass++) {
        if (pass && flt) fn_line(f, "%s = %s ? NAN : %s;", best, nan, best);
        fn_line(f, "#pragma omp simd reduction(%s:%s)%s", (pass ? last : max) ? "max" : "min",
                pass ? at : best, pass || !flt ? "" : arena_printf(f->a, " reduction(|:%s)", nan));
        const Scope mark = fn_open(f, "for (int64_t %s = 0; %s < %s; %s++) {", r, r, end, r);
        fn_bind(f, axis, r);
        const char *x = fn_temp(f, body);
        if (!pass) {
            fn_line(f, "%s = %s %s %s ? %s : %s;", best, x, max ? ">" : "<", best, x, best);
            if (flt) fn_line(f, "%s |= %s != %s;", nan, x, x);
        } else {
            const char *hit =
                arena_printf(f->a, flt ? "((%s == %s) | (%s != %s))" : "%s == %s", x, best, x, x);
            fn_line(f, "%s = %s && (int32_t)%s %s %s ? (int32_t)%s : %s;", at, hit, r,
                    last ? ">" : "<", at, r, at);
        }
        fn_close(f, mark);
    }
    const char *acc = fresh(f);
    fn_line(f, "const int64_t %s = %s;", acc, at);
    fn_bind(f, e, acc);
    return acc;
}

/* Whether there are enough values, along one axis, for two loops. */
static bool many(const Expr *e) {
    int64_t n;
    return e->naxis == 1 && e_is_int(e->raxis[0]->extent, &n) && n >= 16 && n < INT32_MAX;
}

/* The longest reduction axis; an unknown extent counts as long. */
static int longest(const Expr *e) {
    int best = 0;
    int64_t most = -1, n;
    for (int i = 0; i < e->naxis; i++) {
        if (!e_is_int(e->raxis[i]->extent, &n)) n = INT32_MAX;
        if (n >= most) best = i, most = n;
    }
    return best;
}

/* A reduction while it is printed. */
typedef struct Reducing {
    Expr *e;
    const char *acc, *best, *nan; /* NULL: not needed */
    int shared;                   /* the axis that the team shares, SHARES_ALL, or -1 */
} Reducing;

#define SHARES_ALL MAX_RANK * 2 /* all axes as one, because none is long */
#define LONG_AXIS 256           /* enough for every thread of a team */

/* What the threads of a team share. */
static int shared_axis(const Expr *e) {
    const int axis = longest(e);
    int64_t n;
    return e->naxis > 1 && e_is_int(e->raxis[axis]->extent, &n) && n < LONG_AXIS ? SHARES_ALL
                                                                                 : axis;
}

/* The directive before the loop over axis i. */
static void put_pragma(Fn *f, const Reducing *r, int i) {
    const Expr *e = r->e;
    const bool sum = e->kind == R_SUM || e->kind == R_PROD, last = i == e->naxis - 1;
    if (r->nan && last)
        fn_line(f, "#pragma omp simd reduction(%s:%s) reduction(|:%s)",
                e->kind == R_MAX ? "max" : "min", r->acc, r->nan);
    else if (sum && last && by_lanes(f, e) && class_of(e->dtype) != C_BOOL)
        fn_line(f, "#pragma omp simd reduction(%c:%s)", e->kind == R_SUM ? '+' : '*', r->acc);
    else if (sum && dtype_is_float(e->dtype) && f->em && !emit_is_gpu(f->em))
        /* gcc 12 miscompiles the unrolled loop: s += p[1]; s += p[0]; adds p[1] twice */
        fn_line(f, "#pragma GCC unroll 1");
}

/* The loop over all positions of the reduction, of which each thread takes some. */
static void open_shared(Fn *f, const Expr *e, const Team *team) {
    const char *at = arena_printf(f->a, "r%d", f->ntemp++), *count = NULL;
    for (int i = 0; i < e->naxis; i++) {
        const char *n = fn_expr(f, e->raxis[i]->extent);
        count = count ? arena_printf(f->a, "%s * %s", count, n) : n;
    }
    fn_open(f, "for (%s %s = %s; %s < %s; %s += %s) {",
            count_is_small(e->naxis, e->raxis) ? "uint32_t" : "int64_t", at, team->self, at, count,
            at, team->size);
    for (int i = e->naxis - 1; i >= 0; i--) {
        const char *x = arena_printf(f->a, "r%d", f->ntemp++);
        const char *n = fn_expr(f, e->raxis[i]->extent);
        fn_line(f, i ? "const int64_t %s = %s %% %s;" : "const int64_t %s = %s;", x, at, n);
        fn_bind(f, e_axis(f->c, e->raxis[i]), x);
        at = arena_printf(f->a, "%s / %s", at, n);
    }
}

static void open_loops(Fn *f, const Reducing *r, const Team *team) {
    Expr *e = r->e, *body = e->a[0];
    if (r->shared == SHARES_ALL) {
        open_shared(f, e, team);
        return;
    }
    for (int i = 0; i < e->naxis; i++) {
        const char *x = arena_printf(f->a, "r%d", f->ntemp++);
        const char *n = fn_expr(f, e->raxis[i]->extent);
        put_pragma(f, r, i);
        if (i == r->shared)
            fn_open(f, "for (int64_t %s = %s; %s < %s; %s += %s) {", x, team->self, x, n, x,
                    team->size);
        else
            fn_open(f, "for (int64_t %s = 0; %s < %s; %s++) {", x, x, n, x);
        fn_bind(f, e_axis(f->c, e->raxis[i]), x);
        if (i < e->naxis - 1) fn_hoist(f, body, e->naxis - 1 - i, e->raxis + i + 1);
    }
}

/* Adds the body's value at the current position to the accumulator. */
static void accumulate(Fn *f, const Reducing *r) {
    Expr *e = r->e, *body = e->a[0];
    const char *x = fn_expr(f, body);
    if (r->best) {
        const char *at = fn_bound(f, e_axis(f->c, e->raxis[e->naxis - 1]));
        const bool max = e->kind == R_ARGMAX || e->kind == R_ARGMAX_LAST;
        const bool last = e->kind >= R_ARGMAX_LAST;
        const char *v = fn_temp(f, body);
        const char *number = ""; /* the first (last) NaN beats all numbers */
        if (dtype_is_float(body->dtype))
            number = last
                         ? arena_printf(f->a, " || %s != %s", v, v)
                         : arena_printf(f->a, " || (%s != %s && %s == %s)", v, v, r->best, r->best);
        fn_line(
            f, "if (%s || %s %s%s %s%s) {",
            arena_printf(f->a, r->shared < 0 ? "%s == 0" : "%s < 0", r->shared < 0 ? at : r->acc),
            v, max ? ">" : "<", last ? "=" : "", r->best, number);
        fn_line(f, "    %s = %s;", r->best, v);
        fn_line(f, "    %s = %s;", r->acc, at);
        fn_line(f, "}");
    } else if (r->nan) {
        x = fn_temp(f, body);
        fn_line(f, "%s = %s %s %s ? %s : %s;", r->acc, x, e->kind == R_MAX ? ">" : "<", r->acc, x,
                r->acc);
        fn_line(f, "%s |= %s != %s;", r->nan, x, x);
    } else
        fn_combine(f, e, r->acc, x);
}

static const char *reduce(Fn *f, Expr *e) {
    static const char *const how[] = {[R_SUM] = "sum", [R_PROD] = "prod", [R_MAX] = "max",
                                      [R_MIN] = "min", [R_AND] = "and",   [R_OR] = "or"};
    static const char *const place[] = {"true, false", "false, false", "true, true", "false, true"};
    const Team *team = f->team;
    const bool arg = e->kind >= R_ARGMAX;
    if (arg && by_lanes(f, e) && many(e)) return place_of_extreme(f, e);
    const char *type = c_type(e->dtype);
    Reducing r = {.e = e, .acc = fresh(f), .shared = team ? shared_axis(e) : -1};
    declare(f, "", type, r.acc, arg ? team ? "(-1)" : "0" : fn_neutral(f, e));
    if ((e->kind == R_MAX || e->kind == R_MIN) && dtype_is_float(e->dtype) && by_lanes(f, e)) {
        r.nan = fresh(f);
        fn_line(f, "int %s = 0;", r.nan);
    }
    if (arg) {
        r.best = fresh(f);
        declare(f, "", c_type(e->a[0]->dtype), r.best, "0");
    }
    fn_hoist(f, e->a[0], e->naxis, e->raxis);
    const Scope out = fn_here(f);
    f->team = NULL;
    open_loops(f, &r, team);
    accumulate(f, &r);
    fn_close(f, out);
    if (team && arg)
        fn_line(f, "%s = %s_place<%s>(%s, %s);", r.acc, team->exchange, place[e->kind - R_ARGMAX],
                r.best, r.acc);
    else if (team)
        fn_line(f, "%s = (%s)%s_%s(%s);", r.acc, type, team->exchange, how[e->kind], r.acc);
    f->team = team;
    if (r.nan) fn_line(f, "%s = %s ? NAN : %s;", r.acc, r.nan, r.acc);
    if (e->dtype == DT_F16 || e->dtype == DT_BF16) {
        const char *whole = r.acc;
        r.acc = fresh(f);
        declare(f, "const ", "float", r.acc, rounded(f, e->dtype, whole));
    }
    fn_bind(f, e, r.acc);
    return r.acc;
}

/* ---- the dispatcher -------------------------------------------------------------------------- */
static const char *indim(Fn *f, const Expr *e) {
    int input = (int)(e->i >> 8), axis = (int8_t)(e->i & 255);
    const Io *io = &f->em->p->in[input];
    if (axis == -2) return arena_printf(f->a, "(k->in[%d].rank >= 0)", input);
    if (io->t && io->t->blob) return arena_printf(f->a, "bx_seq_count(k->in[%d].data)", input);
    if (axis == -1) return arena_printf(f->a, "((int64_t)k->in[%d].rank)", input);
    if (io->t && io->t->rank > axis && io->kind == VT_TENSOR)
        return arena_printf(f->a, "k->in[%d].dim[%d]", input, axis);
    return arena_printf(f->a, "(%d < k->in[%d].rank ? k->in[%d].dim[%d] : 1)", axis, input, input,
                        axis);
}

const char *fn_around(Fn *f, Tensor *t, Expr **flat) {
    return f->around ? f->around(f, t, flat) : f->tensor(f, t);
}

/* Loads in e that wait for each other. */
static int loads_deep(Map *seen, const Expr *e) {
    if (!(e->flags & EF_LOAD)) return 0;
    const uint64_t key = (uint64_t)e->id + 1;
    intptr_t most = (intptr_t)map_geti(seen, key);
    if (most) return (int)most - 1;
    for (int i = 0; i < e->n; i++) {
        const int n = loads_deep(seen, e->a[i]);
        if (n > most) most = n;
    }
    most += e->op == E_LOAD;
    map_seti(seen, key, (void *)(most + 1));
    return (int)most;
}

const char *fn_at(Fn *f, Expr *flat) {
    const char *at = fn_expr(f, flat);
    if (!f->around || !emit_is_gpu(f->em) || !(flat->flags & EF_LOAD)) return at;
    return arena_printf(f->a, "bk_behind(%s, %d)", at, loads_deep(map_new(f->a), flat));
}

static const char *element(Fn *f, Expr *e) {
    Expr *at = flat_of(f->c, e);
    const char *p = fn_around(f, e->t, &at);
    return fn_loaded(f, e->dtype, arena_printf(f->a, "%s[%s]", p, fn_at(f, at)));
}

const char *fn_expr(Fn *f, Expr *e) {
    if (e->op == E_CONST) return c_const(f->a, e);
    const char *s = fn_bound(f, e);
    if (s) return s;
    switch (e->op) {
    case E_SYM: return f->symbol(f, e->sym);
    case E_INDIM: return indim(f, e);
    case E_LIMIT: return "k->max_iterations";
    case E_SEED: return "k->seed";
    case E_AXIS: die("an axis without a loop");
    case E_REDUCE:
        if (f->load && (s = f->load(f, e))) return s;
        return reduce(f, e);
    case E_LOAD:
        if (f->load && (s = f->load(f, e))) return s;
        s = element(f, e);
        break;
    case E_CAST:
        s = fn_clipped(f, e);
        if (s) {
            s = arena_printf(f->a, "((%s)%s)", c_type(e->dtype), s);
            break;
        }
        s = fn_expr(f, e->a[0]);
        if (e->a[0]->op != E_LOAD || e->a[0]->t->values != e->dtype) /* else it is rounded */
            s = cast(f, e->dtype, e->a[0]->dtype, s);
        break;
    case E_BITCAST: s = bitcast(f, e->dtype, e->a[0]->dtype, fn_expr(f, e->a[0])); break;
    case E_SELECT:
    case E_GUARD: s = conditional(f, e); break;
    case E_TELL: return fn_expr(f, e->a[0]);
    default: s = scalar(f, e);
    }
    if (use_count(f, e) > 1 || strlen(s) > 300) return temp(f, e, s);
    return s;
}

const char *fn_temp(Fn *f, Expr *e) {
    const char *s = fn_bound(f, e);
    if (s || e->op == E_CONST) return s ? s : c_const(f->a, e);
    s = fn_expr(f, e);
    const char *b = fn_bound(f, e);
    return b ? b : temp(f, e, s);
}

bool fn_guarded(Fn *f, Expr *e) {
    if (!(e->flags & EF_GUARD) || fn_bound(f, e)) return false;
    if (e->op == E_GUARD) return true;
    if (e->op == E_REDUCE && f->load && f->load(f, e)) return false; /* it is computed */
    for (int i = 0; i < e->n; i++)
        if (fn_guarded(f, e->a[i])) return true;
    return false;
}

const char *fn_uniform(Fn *f, Expr *e) {
    /* No variables across statements; within one, what is used more than once is computed once. */
    int mark = f->bound.n;
    if (!e->pure) {
        f->uses = map_new(f->a);
        fn_count(f, e);
    }
    const char *s = fn_expr(f, e);
    f->bound.n = mark;
    return s;
}
