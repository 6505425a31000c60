/* scalar.c: the table of operators (scalar.def), and constant folding by the interpreter's
 * lanes. */
#include "utask/expr_internal.h"
#include "utask/interp.h"

const ExprWork expr_work[WORK_COUNT] = {
#define WORK(name, ...) [WORK_##name] = {__VA_ARGS__},
#include "utask/scalar.def"
};

#define RESULT_SAME false
#define RESULT_TRUTH true
const ExprRow expr_row[E_COUNT] = {
#define NODE(id, text, class, of, has)                                                             \
    [E_##id] = {.name = text, .work = WORK_##class, .mark = of, .flags = has},
#define SCALAR(id, text, n, class, result, has, ...)                                               \
    [E_##id] = {.name = text,                                                                      \
                .operands = n,                                                                     \
                .work = WORK_##class,                                                              \
                .truth = RESULT_##result,                                                          \
                .flags = has,                                                                      \
                __VA_ARGS__},
#define FLOATS(e) .floats = #e,
#define SINGLE(text) .single = text,
#define DOUBLE(text) .dbl = text,
#define INTS(e) .ints = #e,
#define U64S(e) .u64 = #e,
#define UNSIGNED(e) .unsign = #e,
#define WRAPS(e, text) .wraps = #e, .ints = text,
#define NARROW(text) .narrow = text,
#define BOOLS(text) .bools = text,
#define NATURAL(text) .natural = text,
#define BY_CONST(text) .by_const = text,
#define INFIX(n) .level = n,
#define NEUTRAL(n) .neutral = {true, true, n},
#define INT_NEUTRAL(n) .neutral = {true, false, n},
#include "utask/scalar.def"
};

RegVal lane_of(DType t, const Expr *e) {
    RegVal v = {0};
    switch (lane_class(t)) {
    case CL_F:
        v.f = (float)e->f;
        lanes_round(t, 1, &v.f);
        break;
    case CL_D: v.d = e->f; break;
    case CL_I: v.i = e->i; break;
    case CL_B: v.b = e->i != 0; break;
    }
    return v;
}

Expr *scalar_fold(Cx *c, int op, const Expr *a, const Expr *b) {
    const ExprRow *o = &expr_row[op];
    DType t = a->dtype, lanes = dtype_is_float(t) && o->flags & OP_WIDE ? DT_F64 : t;
    RegVal x = lane_of(lanes, a), y = lane_of(lanes, b), v = {0};
    lanes_scalar(op, lanes, 1, &v, &x, 0, &y, 0);
    if (o->truth) return e_bool(c, v.b);
    switch (lane_class(lanes)) {
    case CL_F: return e_num(c, t, (double)v.f);
    case CL_D: return e_num(c, t, v.d);
    case CL_B: return e_bool(c, v.b);
    default: return e_ci(c, t, v.i);
    }
}
