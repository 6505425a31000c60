/* interp_lanes.c: the interpreter's inner loops. Each is plain, so that the C compiler vectorizes
 * it. */
#include "utask/interp.h"
#include <limits.h>
#include <math.h>

#define BK_INLINE static inline
#include "codegen/text/draw.inc"

#define EACH for (int l = 0; l < n; l++)

void lanes_round(DType t, int n, float *d) {
    if (t == DT_F16) EACH d[l] = f16_to_f32(f32_to_f16(d[l]));
    if (t == DT_BF16) EACH d[l] = bf16_to_f32(f32_to_bf16(d[l]));
}

static void wrap(DType t, int n, int64_t *d) {
    switch (t) {
    case DT_U8: EACH d[l] = (uint8_t)d[l]; break;
    case DT_I8: EACH d[l] = (int8_t)(uint8_t)d[l]; break;
    case DT_U16: EACH d[l] = (uint16_t)d[l]; break;
    case DT_I16: EACH d[l] = (int16_t)(uint16_t)d[l]; break;
    case DT_U32: EACH d[l] = (uint32_t)d[l]; break;
    case DT_I32: EACH d[l] = (int32_t)(uint32_t)d[l]; break;
    default: break;
    }
}

/* ---- unary -------------------------------------------------------------------------------- */
static float sigmoid_f(float x) {
    if (x >= 0) return 1 / (1 + expf(-x));
    float e = expf(x);
    return e / (1 + e);
}
static double sigmoid_d(double x) {
    if (x >= 0) return 1 / (1 + exp(-x));
    double e = exp(x);
    return e / (1 + e);
}

#define UN(OP, E)                                                                                  \
    case E_##OP:                                                                                   \
        EACH {                                                                                     \
            __typeof__(*d) x = a[l];                                                               \
            d[l] = E;                                                                              \
        }                                                                                          \
        break;
#define FLOAT_UNARY(S, SIG)                                                                        \
    UN(NEG, -x);                                                                                   \
    UN(ABS, fabs##S(x));                                                                           \
    UN(SIGN, x > 0 ? 1 : x < 0 ? -1 : x);                                                          \
    UN(SQRT, sqrt##S(x));                                                                          \
    UN(EXP, exp##S(x));                                                                            \
    UN(LOG, log##S(x));                                                                            \
    UN(LOG1P, log1p##S(x));                                                                        \
    UN(SIN, sin##S(x));                                                                            \
    UN(COS, cos##S(x));                                                                            \
    UN(TAN, tan##S(x));                                                                            \
    UN(ASIN, asin##S(x));                                                                          \
    UN(ACOS, acos##S(x));                                                                          \
    UN(ATAN, atan##S(x));                                                                          \
    UN(SINH, sinh##S(x));                                                                          \
    UN(COSH, cosh##S(x));                                                                          \
    UN(TANH, tanh##S(x));                                                                          \
    UN(ASINH, asinh##S(x));                                                                        \
    UN(ACOSH, acosh##S(x));                                                                        \
    UN(ATANH, atanh##S(x));                                                                        \
    UN(ERF, erf##S(x));                                                                            \
    UN(SIGMOID, SIG(x));                                                                           \
    UN(FLOOR, floor##S(x));                                                                        \
    UN(CEIL, ceil##S(x));                                                                          \
    UN(ROUND, nearbyint##S(x));                                                                    \
    UN(TRUNC, trunc##S(x));

static void un_f(int op, int n, float *restrict d, const float *restrict a) {
    switch (op) {
        FLOAT_UNARY(f, sigmoid_f);
    default: die("no float lanes of %s", expr_name[op]);
    }
}

static void un_d(int op, int n, double *restrict d, const double *restrict a) {
    switch (op) {
        FLOAT_UNARY(, sigmoid_d);
    default: die("no double lanes of %s", expr_name[op]);
    }
}

static int64_t neg(int64_t x) { return (int64_t)(0 - (uint64_t)x); }

static void un_i(int op, DType t, int n, int64_t *restrict d, const int64_t *restrict a) {
    bool is_signed = dtype_is_signed(t);
    switch (op) {
        UN(NEG, neg(x));
        UN(NOT, x == 0);
        UN(BITNOT, ~x);
        UN(ABS, is_signed && x < 0 ? neg(x) : x);
        UN(SIGN, is_signed ? (x > 0) - (x < 0) : x != 0);
    case E_FLOOR:
    case E_CEIL:
    case E_ROUND:
    case E_TRUNC: EACH d[l] = a[l]; break;
    default: die("no integer lanes of %s", expr_name[op]);
    }
    wrap(t, n, d);
}

void lanes_un(LaneClass c, int op, DType t, int n, void *d, const void *a) {
    switch (c) {
    case CL_F:
        un_f(op, n, d, a);
        lanes_round(t, n, d);
        break;
    case CL_D: un_d(op, n, d, a); break;
    case CL_I: un_i(op, t, n, d, a); break;
    case CL_B: {
        int32_t *r = d;
        const int32_t *x = a;
        if (op == E_NOT || op == E_BITNOT)
            EACH r[l] = x[l] ^ 1;
        else
            EACH r[l] = x[l]; /* NEG, ABS, SIGN of a bool */
    }
    }
}

void lanes_isnan(LaneClass c, int n, int32_t *d, const void *a) {
    if (c == CL_F)
        EACH d[l] = isnan(((const float *)a)[l]) != 0;
    else if (c == CL_D)
        EACH d[l] = isnan(((const double *)a)[l]) != 0;
    else
        EACH d[l] = 0;
}

/* ---- binary ------------------------------------------------------------------------------- */
/* E in x and y, with a loop of its own for a uniform x or y. */
#define VARIANTS(E)                                                                                \
    if (!sa && n > 1) {                                                                            \
        x = *a;                                                                                    \
        EACH {                                                                                     \
            y = b[l];                                                                              \
            d[l] = E;                                                                              \
        }                                                                                          \
    } else if (!sb && n > 1) {                                                                     \
        y = *b;                                                                                    \
        EACH {                                                                                     \
            x = a[l];                                                                              \
            d[l] = E;                                                                              \
        }                                                                                          \
    } else                                                                                         \
        EACH {                                                                                     \
            x = a[l];                                                                              \
            y = b[l];                                                                              \
            d[l] = E;                                                                              \
        }
#define BIN(OP, E)                                                                                 \
    case E_##OP: VARIANTS(E) break;

static float mod_f(float x, float y) {
    float r = fmodf(x, y);
    if (r == 0) return copysignf(r, y);
    return (r < 0) != (y < 0) ? r + y : r;
}
static double mod_d(double x, double y) {
    double r = fmod(x, y);
    if (r == 0) return copysign(r, y);
    return (r < 0) != (y < 0) ? r + y : r;
}

#define FLOAT_BINARY(S)                                                                            \
    BIN(ADD, x + y);                                                                               \
    BIN(SUB, x - y);                                                                               \
    BIN(MUL, x *(y));                                                                              \
    BIN(DIV, x / y);                                                                               \
    BIN(FDIV, floor##S(x / y));                                                                    \
    BIN(FMOD, fmod##S(x, y));                                                                      \
    BIN(POW, pow##S(x, y));                                                                        \
    BIN(MIN, x < y || x != x ? x : y);                                                             \
    BIN(MAX, x > y || x != x ? x : y);

static void bin_f(int op, int n, float *restrict d, const float *a, int sa, const float *b,
                  int sb) {
    float x, y;
    switch (op) {
        FLOAT_BINARY(f);
        BIN(MOD, mod_f(x, y));
    default: die("no float lanes of %s", expr_name[op]);
    }
}

static void bin_d(int op, int n, double *restrict d, const double *a, int sa, const double *b,
                  int sb) {
    double x, y;
    switch (op) {
        FLOAT_BINARY();
        BIN(MOD, mod_d(x, y));
    default: die("no double lanes of %s", expr_name[op]);
    }
}

static int64_t add(int64_t x, int64_t y) { return (int64_t)((uint64_t)x + (uint64_t)y); }
static int64_t sub(int64_t x, int64_t y) { return (int64_t)((uint64_t)x - (uint64_t)y); }
static int64_t mul(int64_t x, int64_t y) { return (int64_t)((uint64_t)x * (uint64_t)y); }
static int64_t quot(int64_t x, int64_t y) { return y == 0 ? 0 : y == -1 ? neg(x) : x / y; }
static int64_t rem(int64_t x, int64_t y) { return y == 0 || y == -1 ? 0 : x % y; }
static int64_t floor_div(int64_t x, int64_t y) {
    return quot(x, y) - (rem(x, y) != 0 && (x < 0) != (y < 0));
}
static int64_t floor_mod(int64_t x, int64_t y) {
    int64_t r = rem(x, y);
    return r != 0 && (r < 0) != (y < 0) ? r + y : r;
}
static int64_t ipow(int64_t x, int64_t y, bool is_signed) {
    if (is_signed && y < 0) return x == 1 ? 1 : x == -1 ? (y & 1 ? -1 : 1) : 0;
    uint64_t r = 1, b = (uint64_t)x, e = (uint64_t)y;
    for (; e; e >>= 1, b *= b)
        if (e & 1) r *= b;
    return (int64_t)r;
}
static int64_t shl(int64_t x, int64_t s, int width) {
    return (uint64_t)s >= (uint64_t)width ? 0 : (int64_t)((uint64_t)x << s);
}
static int64_t shr(int64_t x, int64_t s, int width, bool is_signed) {
    if ((uint64_t)s >= (uint64_t)width) return is_signed && x < 0 ? -1 : 0;
    if (!is_signed || x >= 0) return (int64_t)((uint64_t)x >> s);
    return ~(int64_t)(~(uint64_t)x >> s);
}

/* The operators that uint64 has of its own; false for others. */
static bool bin_u64(int op, int n, uint64_t *restrict d, const uint64_t *a, int sa,
                    const uint64_t *b, int sb) {
    uint64_t x, y;
    switch (op) {
        BIN(DIV, y ? x / y : 0);
        BIN(FDIV, y ? x / y : 0);
        BIN(MOD, y ? x % y : 0);
        BIN(FMOD, y ? x % y : 0);
        BIN(MIN, x < y ? x : y);
        BIN(MAX, x > y ? x : y);
        BIN(DRAW, bk_draw(x, y));
    default: return false;
    }
    return true;
}

static void bin_i(int op, DType t, int n, int64_t *restrict d, const int64_t *a, int sa,
                  const int64_t *b, int sb) {
    int64_t x, y;
    bool is_signed = dtype_is_signed(t);
    int width = (int)dtype_size(t) * 8;
    switch (op) {
        BIN(ADD, add(x, y));
        BIN(SUB, sub(x, y));
        BIN(MUL, mul(x, y));
        BIN(DIV, quot(x, y));
        BIN(FDIV, floor_div(x, y));
        BIN(MOD, floor_mod(x, y));
        BIN(FMOD, rem(x, y));
        BIN(POW, ipow(x, y, is_signed));
        BIN(MIN, x < y ? x : y);
        BIN(MAX, x > y ? x : y);
        BIN(AND, x & y);
        BIN(OR, x | y);
        BIN(XOR, x ^ y);
        BIN(SHL, shl(x, y, width));
        BIN(SHR, shr(x, y, width, is_signed));
    default: die("no integer lanes of %s", expr_name[op]);
    }
    wrap(t, n, d);
}

static void bin_b(int op, int n, int32_t *restrict d, const int32_t *a, int sa, const int32_t *b,
                  int sb) {
    int32_t x, y;
    switch (op) {
        BIN(AND, x & y);
        BIN(MUL, x & y);
        BIN(MIN, x & y);
        BIN(OR, x | y);
        BIN(ADD, x | y);
        BIN(MAX, x | y);
        BIN(XOR, x ^ y);
        BIN(SUB, x ^ y);
    default: die("no bool lanes of %s", expr_name[op]);
    }
}

void lanes_bin(LaneClass c, int op, DType t, int n, void *d, const void *a, int sa, const void *b,
               int sb) {
    switch (c) {
    case CL_F:
        bin_f(op, n, d, a, sa, b, sb);
        lanes_round(t, n, d);
        break;
    case CL_D: bin_d(op, n, d, a, sa, b, sb); break;
    case CL_I:
        if (t != DT_U64 || !bin_u64(op, n, d, a, sa, b, sb)) bin_i(op, t, n, d, a, sa, b, sb);
        break;
    case CL_B: bin_b(op, n, d, a, sa, b, sb);
    }
}

#define COMPARE(T)                                                                                 \
    {                                                                                              \
        const T *a = pa, *b = pb;                                                                  \
        T x, y;                                                                                    \
        switch (op) {                                                                              \
            BIN(LT, x < y);                                                                        \
            BIN(LE, x <= y);                                                                       \
            BIN(EQ, x == y);                                                                       \
        }                                                                                          \
        break;                                                                                     \
    }

void lanes_cmp(LaneClass c, int op, DType t, int n, int32_t *restrict d, const void *pa, int sa,
               const void *pb, int sb) {
    switch (c) {
    case CL_F: COMPARE(float)
    case CL_D: COMPARE(double)
    case CL_B: COMPARE(int32_t)
    case CL_I:
        if (t == DT_U64) COMPARE(uint64_t)
        COMPARE(int64_t)
    }
}

#define PICK(T)                                                                                    \
    {                                                                                              \
        T *restrict d = pd;                                                                        \
        const T *a = pa, *b = pb;                                                                  \
        if (!sa && !sb) {                                                                          \
            T x = *a, y = *b;                                                                      \
            EACH d[l] = m[l] ? x : y;                                                              \
        } else if (!sa) {                                                                          \
            T x = *a;                                                                              \
            EACH {                                                                                 \
                T y = b[l];                                                                        \
                d[l] = m[l] ? x : y;                                                               \
            }                                                                                      \
        } else if (!sb) {                                                                          \
            T y = *b;                                                                              \
            EACH {                                                                                 \
                T x = a[l];                                                                        \
                d[l] = m[l] ? x : y;                                                               \
            }                                                                                      \
        } else                                                                                     \
            EACH {                                                                                 \
                T x = a[l], y = b[l];                                                              \
                d[l] = m[l] ? x : y;                                                               \
            }                                                                                      \
        break;                                                                                     \
    }

void lanes_select(LaneClass c, int n, void *pd, const int32_t *m, const void *pa, int sa,
                  const void *pb, int sb) {
    switch (c) {
    case CL_F: PICK(float)
    case CL_D: PICK(double)
    case CL_I: PICK(int64_t)
    case CL_B: PICK(int32_t)
    }
}

/* ---- conversions -------------------------------------------------------------------------- */
#define CONVERT(T, E)                                                                              \
    {                                                                                              \
        T *restrict d = pd;                                                                        \
        switch (lane_class(from)) {                                                                \
        case CL_F:                                                                                 \
            EACH {                                                                                 \
                float x = ((const float *)a)[l];                                                   \
                d[l] = (T)(E);                                                                     \
            }                                                                                      \
            break;                                                                                 \
        case CL_D:                                                                                 \
            EACH {                                                                                 \
                double x = ((const double *)a)[l];                                                 \
                d[l] = (T)(E);                                                                     \
            }                                                                                      \
            break;                                                                                 \
        case CL_B:                                                                                 \
            EACH {                                                                                 \
                int32_t x = ((const int32_t *)a)[l];                                               \
                d[l] = (T)(E);                                                                     \
            }                                                                                      \
            break;                                                                                 \
        case CL_I:                                                                                 \
            if (from == DT_U64) EACH {                                                             \
                    uint64_t x = ((const uint64_t *)a)[l];                                         \
                    d[l] = (T)(E);                                                                 \
                }                                                                                  \
            else                                                                                   \
                EACH {                                                                             \
                    int64_t x = ((const int64_t *)a)[l];                                           \
                    d[l] = (T)(E);                                                                 \
                }                                                                                  \
        }                                                                                          \
    }

void lanes_cast(DType to, DType from, int n, void *pd, const void *a) {
    switch (lane_class(to)) {
    case CL_F:
        CONVERT(float, x)
        lanes_round(to, n, pd);
        break;
    case CL_D: CONVERT(double, x) break;
    case CL_B: CONVERT(int32_t, x != 0) break;
    case CL_I: {
        int64_t *d = pd;
        switch (lane_class(from)) {
        case CL_F: EACH d[l] = float_to_int(to, ((const float *)a)[l]); break;
        case CL_D: EACH d[l] = float_to_int(to, ((const double *)a)[l]); break;
        case CL_B: EACH d[l] = ((const int32_t *)a)[l]; break;
        case CL_I: memcpy(d, a, sizeof *d * (size_t)n); wrap(to, n, d);
        }
    }
    }
}

/* Reads elements as lanes: `i` is the element of lane l; OK says whether it may be read. */
#define READ(T, L, E, OK, I)                                                                       \
    {                                                                                              \
        L *restrict d = pd;                                                                        \
        const T *s = data;                                                                         \
        EACH {                                                                                     \
            int64_t i = I;                                                                         \
            if (OK) {                                                                              \
                T x = s[i];                                                                        \
                d[l] = E;                                                                          \
            } else                                                                                 \
                d[l] = 0;                                                                          \
        }                                                                                          \
        break;                                                                                     \
    }
#define READ_ALL(OK, I)                                                                            \
    switch (t) {                                                                                   \
    case DT_F32: READ(float, float, x, OK, I)                                                      \
    case DT_F64: READ(double, double, x, OK, I)                                                    \
    case DT_F16: READ(uint16_t, float, f16_to_f32(x), OK, I)                                       \
    case DT_BF16: READ(uint16_t, float, bf16_to_f32(x), OK, I)                                     \
    case DT_BOOL: READ(uint8_t, int32_t, x != 0, OK, I)                                            \
    case DT_U8: READ(uint8_t, int64_t, x, OK, I)                                                   \
    case DT_I8: READ(int8_t, int64_t, x, OK, I)                                                    \
    case DT_U16: READ(uint16_t, int64_t, x, OK, I)                                                 \
    case DT_I16: READ(int16_t, int64_t, x, OK, I)                                                  \
    case DT_U32: READ(uint32_t, int64_t, x, OK, I)                                                 \
    case DT_I32: READ(int32_t, int64_t, x, OK, I)                                                  \
    case DT_U64: READ(uint64_t, int64_t, (int64_t)x, OK, I)                                        \
    case DT_I64: READ(int64_t, int64_t, x, OK, I)                                                  \
    default: READ(uint8_t, int64_t, x, OK, I) /* a code */                                         \
    }

void lanes_load(DType t, int n, void *pd, const void *data, int64_t base, int64_t step) {
    if (step == 1) {
        READ_ALL(true, base + l)
    } else {
        READ_ALL(true, base + l * step)
    }
}

void lanes_gather(DType t, int n, void *pd, const void *data, int64_t base, const int64_t *idx,
                  int64_t count) {
    if (count < 0) {
        READ_ALL(true, base + idx[l])
    } else {
        READ_ALL((uint64_t)i < (uint64_t)count, add(base, idx[l]))
    }
}

/* T is the type of the elements, L that of the lanes. */
#define WRITE(T, L, E)                                                                             \
    {                                                                                              \
        T *d = out;                                                                                \
        const L *s = a;                                                                            \
        if (sa) EACH {                                                                             \
                L x = s[l];                                                                        \
                d[l] = (T)(E);                                                                     \
            }                                                                                      \
        else                                                                                       \
            EACH {                                                                                 \
                L x = s[0];                                                                        \
                d[l] = (T)(E);                                                                     \
            }                                                                                      \
        break;                                                                                     \
    }

void lanes_store(DType t, int n, void *out, const void *a, int sa) {
    switch (t) {
    case DT_F32: WRITE(float, float, x)
    case DT_F64: WRITE(double, double, x)
    case DT_F16: WRITE(uint16_t, float, f32_to_f16(x))
    case DT_BF16: WRITE(uint16_t, float, f32_to_bf16(x))
    case DT_BOOL: WRITE(uint8_t, int32_t, x)
    case DT_U8:
    case DT_I8: WRITE(uint8_t, int64_t, x)
    case DT_U16:
    case DT_I16: WRITE(uint16_t, int64_t, x)
    case DT_U32:
    case DT_I32: WRITE(uint32_t, int64_t, x)
    case DT_U64:
    case DT_I64: WRITE(int64_t, int64_t, x)
    default: WRITE(uint8_t, int64_t, x) /* a code */
    }
}

void lanes_bitcast(DType to, DType from, int n, void *d, const void *a) {
    uint64_t packed[LANES];
    lanes_store(from, n, packed, a, 1);
    lanes_load(to, n, d, packed, 0, 1);
}

/* ---- reductions --------------------------------------------------------------------------- */
static bool is_arg(ReduceKind k) { return k >= R_ARGMAX; }

void lanes_acc_init(ReduceKind k, DType t, int n, void *acc, int64_t *idx) {
    bool is_min = k == R_MIN || k == R_ARGMIN || k == R_ARGMIN_LAST;
    bool is_max = k == R_MAX || k == R_ARGMAX || k == R_ARGMAX_LAST;
    double f = is_max ? -INFINITY : is_min ? INFINITY : k == R_PROD ? 1 : 0;
    int64_t i = k == R_PROD || k == R_AND;
    if (is_max || is_min) {
        switch (t) {
        case DT_I8: i = is_max ? INT8_MIN : INT8_MAX; break;
        case DT_I16: i = is_max ? INT16_MIN : INT16_MAX; break;
        case DT_I32: i = is_max ? INT32_MIN : INT32_MAX; break;
        case DT_I64: i = is_max ? INT64_MIN : INT64_MAX; break;
        case DT_U8: i = is_max ? 0 : UINT8_MAX; break;
        case DT_U16: i = is_max ? 0 : UINT16_MAX; break;
        case DT_U32: i = is_max ? 0 : UINT32_MAX; break;
        case DT_U64: i = is_max ? 0 : -1; break;
        default: i = is_min; break; /* bool */
        }
    }
    switch (lane_class(t)) {
    case CL_F: EACH((float *)acc)[l] = (float)f; break;
    case CL_D: EACH((double *)acc)[l] = f; break;
    case CL_I: EACH((int64_t *)acc)[l] = i; break;
    case CL_B: EACH((int32_t *)acc)[l] = (int32_t)i; break;
    }
    if (is_arg(k)) EACH idx[l] = 0;
}

/* acc[l] = E in acc x and value y; or all values into acc[0]. */
#define ACC(E)                                                                                     \
    if (fold) {                                                                                    \
        x = *acc;                                                                                  \
        EACH {                                                                                     \
            y = v[l * sv];                                                                         \
            x = E;                                                                                 \
        }                                                                                          \
        *acc = x;                                                                                  \
    } else if (!sv) {                                                                              \
        y = *v;                                                                                    \
        EACH {                                                                                     \
            x = acc[l];                                                                            \
            acc[l] = E;                                                                            \
        }                                                                                          \
    } else                                                                                         \
        EACH {                                                                                     \
            x = acc[l];                                                                            \
            y = v[l];                                                                              \
            acc[l] = E;                                                                            \
        }
/* The same, and where E the value and its index are taken. */
#define ARG(E)                                                                                     \
    EACH {                                                                                         \
        T *r = fold ? acc : acc + l;                                                               \
        int64_t *ri = fold ? s->idx : s->idx + l;                                                  \
        x = *r, y = v[l * sv];                                                                     \
        if (E) *r = y, *ri = fold ? s->k + l : s->k;                                               \
    }
#define ACC_KINDS(T_, ADD, MUL, MAXE, MINE)                                                        \
    {                                                                                              \
        typedef T_ T;                                                                              \
        T *restrict acc = s->acc, x, y;                                                            \
        const T *v = s->v;                                                                         \
        switch (s->kind) {                                                                         \
        case R_SUM: ACC(ADD) break;                                                                \
        case R_PROD: ACC(MUL) break;                                                               \
        case R_MAX: ACC(MAXE ? y : x) break;                                                       \
        case R_MIN: ACC(MINE ? y : x) break;                                                       \
        case R_AND: ACC((T)(x != 0 && y != 0)) break;                                              \
        case R_OR: ACC((T)(x != 0 || y != 0)) break;                                               \
        case R_ARGMAX: ARG(MAXE) break;                                                            \
        case R_ARGMIN: ARG(MINE) break;                                                            \
        case R_ARGMAX_LAST: ARG(y >= x || y != y) break;                                           \
        case R_ARGMIN_LAST: ARG(y <= x || y != y) break;                                           \
        }                                                                                          \
        break;                                                                                     \
    }

/* acc += v * w, the product rounded first. */
#define MULADD(T)                                                                                  \
    {                                                                                              \
        T *restrict acc = s->acc;                                                                  \
        const T *v = s->v, *w = s->w;                                                              \
        int sw = s->sw;                                                                            \
        if (fold) {                                                                                \
            T x = *acc;                                                                            \
            if (sv && sw)                                                                          \
                EACH x += v[l] * w[l];                                                             \
            else                                                                                   \
                EACH x += v[l * sv] * w[l * sw];                                                   \
            *acc = x;                                                                              \
        } else if (sv && sw)                                                                       \
            EACH acc[l] += v[l] * w[l];                                                            \
        else if (sv) {                                                                             \
            T y = *w;                                                                              \
            EACH acc[l] += v[l] * y;                                                               \
        } else if (sw) {                                                                           \
            T y = *v;                                                                              \
            EACH acc[l] += y * w[l];                                                               \
        } else {                                                                                   \
            T y = *v * *w;                                                                         \
            EACH acc[l] += y;                                                                      \
        }                                                                                          \
        return;                                                                                    \
    }

void lanes_acc(const AccStep *s, int n, bool fold) {
    int sv = s->sv;
    if (s->w) {
        if (s->cls == CL_F) MULADD(float)
        MULADD(double)
    }
    switch (s->cls) {
    case CL_F:
        ACC_KINDS(float, x + y, x * y, (y > x || (y != y && x == x)), (y < x || (y != y && x == x)))
    case CL_D:
        ACC_KINDS(double, x + y, x * y, (y > x || (y != y && x == x)),
                  (y < x || (y != y && x == x)))
    case CL_B: ACC_KINDS(int32_t, x | y, x & y, (y > x), (y < x))
    case CL_I:
        if (s->t == DT_U64) ACC_KINDS(uint64_t, x + y, x * y, (y > x), (y < x))
        ACC_KINDS(int64_t, add(x, y), mul(x, y), (y > x), (y < x))
    }
    if (s->cls == CL_I && (s->kind == R_SUM || s->kind == R_PROD)) wrap(s->t, fold ? 1 : n, s->acc);
}
