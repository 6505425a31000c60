/* expr.h: scalar expressions, the one language for tensor bodies, shapes and uniform values.
 *
 * Expressions are immutable and hash-consed: equal expressions are the same pointer. Constructors
 * simplify (constant folding, linear normal form of int64 sums, ranges of axes and symbols), so a
 * comparison of two dims that can be decided at compile time is a constant.
 *
 * Semantics shared by every target:
 *  - integers wrap at their width; DIV truncates, FDIV floors, MOD has the divisor's sign, FMOD the
 *    dividend's; a zero divisor yields 0 (lowerings put a GUARD where ONNX calls it an error);
 *  - float16 and bfloat16 round after every operation; float32 is computed in float32;
 *  - MIN, MAX propagate NaN; comparisons with NaN are false; ROUND is half to even;
 *  - SELECT performs loads and guards only on the side taken: an out-of-range LOAD on the other
 *    side never happens;
 *  - TELL(cond, v…) is the bool cond. When a GUARD or check on it fails, the int64 values v go into
 *    the fault's message; they are computed only then;
 *  - GUARD(cond, a, b; site): a when cond holds; otherwise raises the run-time fault `site` and
 *    gives b;
 *  - SHL and SHR by the width or more give 0 (arithmetic SHR: the sign);
 *  - values of small types (base.h) are codes. They occur only in constants, loads, SELECT, and bit
 *    casts between each other and 8-bit integers. There is no CAST of them: e_cast builds the
 *    conversion from other operators;
 *  - DRAW(key, counter), all uint64: random bits, a pure function of both (codegen/text/draw.inc).
 *    SEED is the key of the run, uint64.
 */
#ifndef BRAID_EXPR_H
#define BRAID_EXPR_H

#include "base/base.h"

typedef struct Expr Expr;
typedef struct Tensor Tensor;
struct Const;

typedef enum {
#define NODE(id, ...) E_##id,
#define SCALAR(id, ...) E_##id,
#include "utask/scalar.def"
    E_COUNT
} ExprOp;

/* Reductions. Over an empty domain: SUM 0, PROD 1, MAX lowest, MIN highest (of the dtype; -inf, inf
 * for floats), AND true, OR false, ARG… 0. SUM and PROD of floats accumulate in axis order; float16
 * and bfloat16 accumulate in float32, rounded once at the end. MAX and MIN propagate NaN. ARGMAX
 * and ARGMIN reduce over exactly one axis, have dtype int64, and give the first extreme;
 * ARGMAX_LAST and ARGMIN_LAST give the last one. */
typedef enum {
    R_SUM,
    R_PROD,
    R_MAX,
    R_MIN,
    R_AND,
    R_OR,
    R_ARGMAX,
    R_ARGMIN,
    R_ARGMAX_LAST,
    R_ARGMIN_LAST
} ReduceKind;

/* A loop variable of a tensor expression or of a reduction: 0 <= axis < extent. */
typedef struct Axis {
    int id;
    Expr *extent; /* int64, uniform */
} Axis;

/* A uniform value: a scalar that every unit computes for itself. `lo` is a proven lower bound (0
 * for dims). */
typedef struct Sym {
    int id;
    DType dtype;
    const char *name;
    int64_t lo, hi;
    struct Seq *scope; /* the Seq in which it is defined and readable; NULL: everywhere */
} Sym;

enum { EF_AXIS = 1, EF_LOAD = 2, EF_REDUCE = 4, EF_GUARD = 8, EF_SYM = 16, EF_INDIM = 32 };

struct Expr {
    uint8_t op;    /* ExprOp */
    uint8_t dtype; /* DType of the result */
    uint8_t kind;  /* REDUCE: ReduceKind. LOAD: 1 when the only index is a flat one */
    uint8_t pure;  /* 1: no AXIS, no LOAD, no REDUCE below: constants, syms and arithmetic only */
    uint8_t flags; /* EF_… of everything below */
    int id;        /* unique, grows with creation: operands have smaller ids */
    int n;         /* operands in a[] */
    int naxis;     /* REDUCE */
    union {
        /* CONST of integer, bool or small dtype (the code); GUARD: site; INDIM: input << 8 | (axis
         * & 255) */
        int64_t i;
        double f; /* CONST of float dtype */
        Sym *sym;
        Axis *axis;
        Tensor *t;    /* LOAD */
        Axis **raxis; /* REDUCE: its axes */
    };
    Expr **a; /* LOAD: indices; REDUCE: body; else operands */
};

/* Compilation context. */
typedef struct Cx {
    Arena *a;
    Diag *d;
    struct ExprTable *table;
    int next_expr, next_axis, next_sym, next_tensor;
    VEC(const char *) site; /* run-time fault texts, index = site */
    struct ExprMemo *memo;  /* scratch of e_subst */
    int nmemo, epoch;
} Cx;

Cx *cx_new(Arena *a, Diag *d);
int cx_site(Cx *c, const char *path, const char *fmt, ...) PRINTF(3, 4);

/* What scalar.def says about an operator; a text that it does not give is NULL. */
typedef enum {
#define WORK(name, ...) WORK_##name,
#include "utask/scalar.def"
    WORK_COUNT
} WorkClass;
enum {
    OP_COMMUTES = 1,
    OP_INVOLUTION = 2,
    OP_IDEMPOTENT = 4,
    OP_EXACT = 8,
    OP_TWICE = 16,
    OP_WIDE = 32,
    OP_LAZY = 64
};
typedef struct ExprRow {
    const char *name;
    uint8_t operands; /* of a scalar operator; 0: a special node */
    uint8_t work;     /* WorkClass */
    uint8_t mark;     /* EF_… */
    uint8_t level;    /* INFIX; 0: printed as a call */
    bool truth;       /* the result is a bool */
    uint8_t flags;    /* OP_… */
    struct {
        bool ints, floats;
        int v;
    } neutral;
    const char *floats, *single, *dbl;
    const char *ints, *u64, *unsign, *wraps, *narrow, *bools, *natural, *by_const;
} ExprRow;
typedef struct ExprWork {
    double simple, expensive, index_simple, index_expensive;
    bool lanes;
    int weight, cycles;
} ExprWork;
extern const ExprRow expr_row[E_COUNT];
extern const ExprWork expr_work[WORK_COUNT];
static inline bool e_is_unary(int op) { return expr_row[op].operands == 1; }
static inline bool e_is_binary(int op) { return expr_row[op].operands == 2; }
static inline bool e_is_compare(int op) { return expr_row[op].truth && e_is_binary(op); }
static inline const ExprWork *e_work(int op) { return &expr_work[expr_row[op].work]; }

/* ---- constructors ---------------------------------------------------------------------------- */
Expr *e_int(Cx *c, int64_t v); /* int64 */
Expr *e_bool(Cx *c, bool v);
Expr *e_num(Cx *c, DType t, double v); /* constant of any dtype from a double */
Expr *e_ci(Cx *c, DType t, int64_t v); /* constant of integer or bool dtype, or a code */
Expr *e_elem(Cx *c, const struct Const *k, int64_t i);  /* element of a constant */
void e_store(const Expr *konst, void *data, int64_t i); /* as element i of an array of its type */
Expr *e_sym(Cx *c, Sym *s);
Expr *e_axis(Cx *c, Axis *x);
Expr *e_limit(Cx *c); /* iterations that a loop may make: --max-iterations */
Expr *e_seed(Cx *c);  /* uint64, the same throughout a run */
/* The size of an input's axis; axis -1: its rank, -2: whether it has an element. */
Expr *e_indim(Cx *c, int input, int axis);
Expr *e_un(Cx *c, int op, Expr *a);
Expr *e_bin(Cx *c, int op, Expr *a, Expr *b); /* same dtype on both sides (asserted) */
Expr *e_cast(Cx *c, DType t, Expr *a);        /* ONNX Cast: float to int truncates */
/* ONNX Cast to a small type (utask/small_cast.c). Out of range: the largest, or NaN or infinity
 * where not `saturate`. `round`: float8e8m0 only, all others round half to even. */
typedef enum { ROUND_UP, ROUND_DOWN, ROUND_NEAREST } SmallRound;
typedef struct SmallCast {
    bool saturate;
    SmallRound round;
} SmallCast;
Expr *small_encode(Cx *c, DType t, Expr *a, SmallCast how);
/* The value of a small float in float32, of a small integer in int32. */
Expr *small_decode(Cx *c, Expr *a);
Expr *e_bitcast(Cx *c, DType t, Expr *a); /* same element size */
Expr *e_sel(Cx *c, Expr *cond, Expr *a, Expr *b);
Expr *e_guard(Cx *c, Expr *cond, Expr *a, Expr *b, int site);
/* A message shows value i where its text has the character SAID_FIRST + i, and "?" where it has
 * UNSAID. */
enum { SAID_MAX = 4, SAID_FIRST = 1 };
#define UNSAID INT64_MIN
Expr *e_tell(Cx *c, Expr *cond, int n,
             Expr *const *v);                /* n <= SAID_MAX; cond itself where n == 0 */
Expr *e_load(Cx *c, Tensor *t, Expr **idx);  /* rank(t) indices, int64 */
Expr *e_loadf(Cx *c, Tensor *t, Expr *flat); /* row-major flat index */
Expr *e_reduce(Cx *c, ReduceKind k, int n, Axis **axis, Expr *body);
Expr *e_identity(Cx *c, ReduceKind k, DType t); /* what a reduction over an empty domain gives */
Axis *axis_new(Cx *c, Expr *extent);
Sym *sym_new(Cx *c, DType t, const char *name, int64_t lo);

/* Shorthands; e_gt(a,b) is e_lt(b,a) and so on. */
static inline Expr *e_add(Cx *c, Expr *a, Expr *b) { return e_bin(c, E_ADD, a, b); }
static inline Expr *e_sub(Cx *c, Expr *a, Expr *b) { return e_bin(c, E_SUB, a, b); }
static inline Expr *e_mul(Cx *c, Expr *a, Expr *b) { return e_bin(c, E_MUL, a, b); }
static inline Expr *e_div(Cx *c, Expr *a, Expr *b) { return e_bin(c, E_DIV, a, b); }
static inline Expr *e_min(Cx *c, Expr *a, Expr *b) { return e_bin(c, E_MIN, a, b); }
static inline Expr *e_max(Cx *c, Expr *a, Expr *b) { return e_bin(c, E_MAX, a, b); }
static inline Expr *e_lt(Cx *c, Expr *a, Expr *b) { return e_bin(c, E_LT, a, b); }
static inline Expr *e_le(Cx *c, Expr *a, Expr *b) { return e_bin(c, E_LE, a, b); }
static inline Expr *e_eq(Cx *c, Expr *a, Expr *b) { return e_bin(c, E_EQ, a, b); }
static inline Expr *e_and(Cx *c, Expr *a, Expr *b) { return e_bin(c, E_AND, a, b); }
static inline Expr *e_or(Cx *c, Expr *a, Expr *b) { return e_bin(c, E_OR, a, b); }
static inline Expr *e_draw(Cx *c, Expr *key, Expr *counter) {
    return e_bin(c, E_DRAW, key, counter);
}
static inline Expr *e_not(Cx *c, Expr *a) { return e_un(c, E_NOT, a); }
Expr *e_addi(Cx *c, Expr *a, int64_t k);
Expr *e_muli(Cx *c, Expr *a, int64_t k);

/* ---- queries --------------------------------------------------------------------------------- */
/* The number of operands that are always evaluated; whether the others are depends on the first. */
static inline int e_always(const Expr *e) { return expr_row[e->op].flags & OP_LAZY ? 1 : e->n; }
/* The condition of a check or guard without the values that it reports. */
static inline Expr *e_told(Expr *cond) { return cond->op == E_TELL ? cond->a[0] : cond; }
bool e_is_int(const Expr *e, int64_t *v);              /* integer or bool constant */
bool e_is_ival(const Expr *e, int64_t v);              /* … with this value */
bool e_range(const Expr *e, int64_t *lo, int64_t *hi); /* int64: proven bounds (false: none) */
bool e_at_most(Cx *c, Expr *a, Expr *b);               /* a <= b is proven */
/* Splits idx = coef * axis + rest, where coef and rest are free of axis; false when idx is not
 * affine in it. */
bool e_affine(Cx *c, Expr *idx, Axis *x, Expr **coef, Expr **rest);
Expr *e_coef(Cx *c, Expr *idx, Axis *x);  /* that coef; NULL when not affine */
bool e_by_one(Cx *c, Expr *idx, Axis *x); /* that coef is 1 */
/* Splits idx = sum of stride[i] * x[i] + rest, where strides are constant and rest is free of the
 * axes. */
bool e_strides(Cx *c, Expr *idx, int n, Axis *const *x, int64_t *stride, Expr **rest);
/* The constant extent of an axis, else `unknown`. */
int64_t axis_size(const Axis *x, int64_t unknown);
/* The product of axis sizes. INT64_MAX: it overflows, or `unknown` is negative and an extent is
 * unknown. */
int64_t axes_size(int n, Axis *const *x, int64_t unknown);
bool e_uses_axis(const Expr *e, const Axis *x);
/* Replaces axes by expressions, and loads by map(load) when map is not NULL; map returns NULL to
 * keep a load. */
typedef Expr *LoadMap(void *user, Expr *load);
Expr *e_subst(Cx *c, Expr *e, int n, Axis *const *from, Expr *const *to, LoadMap *map, void *user);
/* e with every occurrence of node `from` replaced; `from` must have flags (a symbol, an axis,
 * …). */
Expr *e_replace(Cx *c, Expr *e, Expr *from, Expr *to);
/* Calls f once for each distinct LOAD below e. */
void e_each_load(Cx *c, Expr *e, void (*f)(void *user, Expr *load), void *user);
#endif
