/* test_scalar.c: every row of utask/scalar.def, of every type that it has: what the interpreter
 * computes is what the text in emitted programs does, on pairs of special values.
 *
 * All texts become functions of one program, built with the options of emitted programs. Text for
 * GPUs, where only signed overflow is written otherwise, is tested here too. */
#include <dlfcn.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "codegen/compile.h"
#include "codegen/emit/emit.h"
#include "codegen/embed.h"
#include "utask/expr_internal.h"
#include "utask/interp.h"

/* ---- the cases ------------------------------------------------------------------------------- */
typedef enum { PLAIN, STRICT, NATURAL, BY_CONST, WAYS } Variant;
static const char *const variant_name[] = {"", ", signed overflow undefined",
                                           ", known to be positive", ", by a constant"};
enum { SHIFT = 3 };
typedef struct Case {
    int op;
    DType t;
    Variant way;
} Case;
static Case cases[4000];
static int ncase;

static bool has(int op, DType t, Variant way) {
    const ExprRow *o = &expr_row[op];
    bool flt = dtype_is_float(t), sign = dtype_is_signed(t);
    if (op == E_NOT && t != DT_BOOL) return false;
    if (flt ? !o->floats : !o->ints && !(o->u64 && t == DT_U64)) return false;
    switch (way) {
    case STRICT: return o->wraps && (t == DT_I32 || t == DT_I64);
    case NATURAL: return o->natural && t == DT_I64;
    case BY_CONST: return o->by_const && !flt && !sign && t != DT_BOOL;
    default: return true;
    }
}

static void list_cases(void) {
    static const DType types[] = {DT_F32, DT_F64, DT_F16, DT_BF16, DT_BOOL, DT_U8, DT_I8,
                                  DT_U16, DT_I16, DT_U32, DT_I32,  DT_U64,  DT_I64};
    for (int op = 0; op < E_COUNT; op++)
        for (size_t i = 0; i < COUNT(types) && expr_row[op].operands; i++)
            for (int way = 0; way < WAYS; way++)
                if (has(op, types[i], way)) {
                    assert_true(ncase < (int)COUNT(cases));
                    cases[ncase++] = (Case){op, types[i], way};
                }
}

/* ---- the program ----------------------------------------------------------------------------- */
static const char *symbol(Fn *f, Sym *s) {
    (void)f;
    return s->name;
}

static void function(Cx *c, Sb *out, int number, Case k) {
    const Target strict = {.strict = true};
    Emit em = {.target = &strict};
    Fn f = {.em = k.way == STRICT ? &em : NULL,
            .c = c,
            .a = c->a,
            .out = out,
            .indent = 2,
            .uses = map_new(c->a),
            .symbol = symbol};
    int64_t lo = k.way == NATURAL ? 1 : INT64_MIN;
    Expr *x = e_sym(c, sym_new(c, k.t, "x", lo)), *y = e_sym(c, sym_new(c, k.t, "y", lo));
    if (k.way == BY_CONST) y = e_ci(c, k.t, SHIFT);
    const ExprRow *o = &expr_row[k.op];
    Expr *e = expr_raw(c, k.op, o->truth ? DT_BOOL : k.t, o->operands, (Expr *[]){x, y});
    const char *from = k.t == DT_F16    ? "bk_h2f"
                       : k.t == DT_BF16 ? "bk_b2f"
                                        : "",
               *in = c_store(k.t);
    sb_printf(out, "static void f%d(int n, %s *d, const %s *a, const %s *b) {\n", number,
              c_store(e->dtype), in, in);
    sb_puts(out, "    for (int i = 0; i < n; i++) {\n");
    sb_printf(out, "        const %s x = %s(a[i]), y = %s(b[i]);\n", c_type(k.t), from, from);
    fn_count(&f, e);
    const char *text = fn_expr(&f, e);
    sb_printf(out, "        d[i] = %s;\n    }\n}\n", fn_store(&f, e->dtype, text));
}

typedef void OneText(int n, void *d, const void *a, const void *b);
static OneText *const *functions;

static void write_program(Cx *c, Sb *s, const char *path) {
    static const char *const parts[] = {"braid_model.h",   "cpu/ctx.inc", "c.inc",
                                        "cpu/prelude.inc", "arena.inc",   "scalar.inc",
                                        "draw.inc",        "math.inc"};
    sb_puts(s, "#define _GNU_SOURCE\n#define BK_VEC 4\n");
    for (size_t i = 0; i < COUNT(parts); i++) sb_puts(s, embedded_text(parts[i]));
    sb_puts(s, "#define BK_WRAP(T, x, op, y) ((T)((u##T)(x)op(u##T)(y)))\n");
    for (int i = 0; i < ncase; i++) function(c, s, i, cases[i]);
    sb_puts(s, "__attribute__((visibility(\"default\"))) const void *const functions[] = {");
    for (int i = 0; i < ncase; i++) sb_printf(s, "f%d, ", i);
    sb_puts(s, "};\n");
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_int_equal(fwrite(s->p, 1, s->n, f), s->n);
    assert_int_equal(fclose(f), 0);
}

static int make_program(void **state) {
    static Diag d;
    jmp_buf jb;
    char folder[] = "/tmp/braid-scalar.XXXXXX", text[64], so[64];
    (void)state;
    list_cases();
    assert_non_null(mkdtemp(folder));
    snprintf(text, sizeof text, "%s/scalar.c", folder);
    snprintf(so, sizeof so, "%s/scalar.so", folder);
    Arena *a = arena_new(&d);
    d.top = &jb;
    if (setjmp(jb)) fail_msg("%s", d.message);
    Sb s = {.a = a};
    write_program(cx_new(a, &d), &s, text);
    compile_build_cpu(&d, 0, NULL, text, so, &(CompileOptions){0});
    d.top = NULL;
    void *lib = dlopen(so, RTLD_NOW | RTLD_LOCAL);
    if (!lib) fail_msg("%s", dlerror());
    functions = dlsym(lib, "functions");
    assert_non_null(functions);
    arena_free(a);
    remove(text);
    remove(so);
    return remove(folder);
}

/* ---- values ---------------------------------------------------------------------------------- */
static const double floats[] = {0,
                                -0.0,
                                1,
                                -1,
                                0.5,
                                -0.5,
                                1.5,
                                2.5,
                                -2.5,
                                3,
                                -3,
                                -3.7,
                                7,
                                1e-3,
                                -1e-3,
                                0.999,
                                1e10,
                                -1e10,
                                88.5,
                                -88.5,
                                -104,
                                0x1p-14,
                                0x1p-24,
                                0x1p-126,
                                0x1p-149,
                                65504,
                                -65504,
                                0x1p23,
                                8388607.5,
                                0x1.fffffep127,
                                -0x1.fffffep127,
                                INFINITY,
                                -INFINITY,
                                NAN};
static const int64_t ints[] = {
    0,      1,     -1,        2,         -2,         3,         -3,        5,
    7,      -7,    8,         10,        15,         16,        31,        32,
    33,     63,    64,        100,       127,        -128,      255,       32767,
    -32768, 65535, INT32_MAX, INT32_MIN, UINT32_MAX, INT64_MAX, INT64_MIN, INT64_MIN + 1};
enum { VALUES = 40 };

static int values_of(DType t, Variant way, void *to) {
    int n = 0;
    if (dtype_is_float(t))
        for (size_t i = 0; i < COUNT(floats); i++) elem_set_f(t, to, n++, floats[i]);
    else
        for (size_t i = 0; i < COUNT(ints); i++)
            if (way != NATURAL || ints[i] > 0) elem_set_i(t, to, n++, int_wrap(t, ints[i]));
    assert_true(n <= VALUES);
    return n;
}

/* Units in the last place between two floats of a type that has `bits` behind the point. */
static double apart(double x, double y, int bits, int least) {
    if (x == y || (isnan(x) && isnan(y))) return 0;
    if (!isfinite(x) || !isfinite(y)) return HUGE_VAL;
    int e = fabs(y) > 0 ? ilogb(y) : least;
    return fabs(x - y) / ldexp(1, (e < least ? least : e) - bits);
}

/* The interpreter has libm's functions, programs have some of their own for float32 and below. */
static bool agree(Case k, DType t, const void *want, const void *got, int i) {
    size_t size = dtype_size(t);
    if (!memcmp((const char *)want + size * (size_t)i, (const char *)got + size * (size_t)i, size))
        return true;
    if (!dtype_is_float(t)) return false;
    double x = elem_get_f(t, want, i), y = elem_get_f(t, got, i);
    if (isnan(x) && isnan(y)) return true;
    if (!expr_row[k.op].single || t == DT_F64) return false;
    if (k.op == E_SIGMOID && y == 0 && t != DT_F16) return fabs(x) < 0x1p-126; /* math.inc */
    return t == DT_F32   ? apart(x, y, 23, -126) <= 3
           : t == DT_F16 ? apart(x, y, 10, -14) <= 1
                         : apart(x, y, 7, -126) <= 1;
}

/* One operand against all values; that operand comes first, or second, and is one for all lanes or
 * not. */
static void check(Case k, OneText *f, const void *v, int n, int one, bool second, bool uniform) {
    DType r = expr_row[k.op].truth ? DT_BOOL : k.t;
    size_t size = dtype_size(k.t);
    uint64_t same[VALUES], want[VALUES], got[VALUES], a[LANES], b[LANES], d[LANES];
    for (int i = 0; i < n; i++)
        memcpy((char *)same + size * (size_t)i, (const char *)v + size * (size_t)one, size);
    const void *x = second ? v : same, *y = second ? same : v;
    for (int at = 0; at < n; at += LANES) {
        int m = n - at < LANES ? n - at : LANES;
        lanes_load(k.t, m, a, x, at, 1);
        lanes_load(k.t, m, b, y, at, 1);
        int sa = m == 1 || !uniform || second, sb = m == 1 || !uniform || !second;
        bool two = e_is_binary(k.op);
        lanes_scalar(k.op, k.t, m, d, a, two ? sa : 1, two ? b : a, two ? sb : 1);
        lanes_store(r, m, (char *)want + dtype_size(r) * (size_t)at, d, 1);
    }
    f(n, got, x, y);
    for (int i = 0; i < n; i++)
        if (!agree(k, r, want, got, i))
            fail_msg("%s of %s%s, values %d and %d: %.17g in the interpreter, %.17g in a program",
                     expr_row[k.op].name, dtype_name(k.t), variant_name[k.way], second ? i : one,
                     second ? one : i, elem_get_f(r, want, i), elem_get_f(r, got, i));
}

static void rows_agree(void **state) {
    (void)state;
    for (int c = 0; c < ncase; c++) {
        uint64_t v[VALUES];
        Case k = cases[c];
        int n = values_of(k.t, k.way, v);
        if (k.way == BY_CONST) elem_set_i(k.t, v, 0, SHIFT);
        for (int one = 0; one < (k.way == BY_CONST ? 1 : n); one++)
            for (int how = k.way == BY_CONST ? 2 : 0; how < 4; how++)
                check(k, functions[c], v, n, one, how & 2, how & 1);
    }
    print_message("%d functions\n", ncase);
}

/* Constants are folded to what the interpreter computes. */
static void constants_fold(void **state) {
    (void)state;
    Diag diag = {0};
    Arena *arena = arena_new(&diag);
    Cx *cx = cx_new(arena, &diag);
    for (int c = 0; c < ncase; c++) {
        uint64_t v[VALUES], a, b, d, folded, want;
        Case k = cases[c];
        DType r = expr_row[k.op].truth ? DT_BOOL : k.t;
        int n = values_of(k.t, k.way, v);
        if (k.way != PLAIN || expr_row[k.op].flags & OP_WIDE) continue;
        for (int i = 0; i < n * n; i++) {
            Const all = {.dtype = k.t, .count = n, .data = v};
            Expr *x = e_elem(cx, &all, i % n), *y = e_elem(cx, &all, i / n), *e;
            bool two = e_is_binary(k.op);
            e = two ? e_bin(cx, k.op, x, y) : e_un(cx, k.op, x);
            assert_int_equal(e->op, E_CONST);
            assert_int_equal(e->dtype, r);
            lanes_load(k.t, 1, &a, v, i % n, 1);
            lanes_load(k.t, 1, &b, v, i / n, 1);
            lanes_scalar(k.op, k.t, 1, &d, &a, 0, two ? &b : &a, 0);
            lanes_store(r, 1, &want, &d, 1);
            if (dtype_is_float(r))
                elem_set_f(r, &folded, 0, e->f);
            else
                elem_set_i(r, &folded, 0, e->i);
            if (memcmp(&want, &folded, dtype_size(r)) &&
                !(dtype_is_float(r) && isnan(e->f) && isnan(elem_get_f(r, &want, 0))))
                fail_msg("%s of %s, values %d and %d", expr_row[k.op].name, dtype_name(k.t), i % n,
                         i / n);
        }
    }
    arena_free(arena);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_agree),
        cmocka_unit_test(constants_fold),
    };
    return cmocka_run_group_tests(tests, make_program, NULL);
}
