/* interp_lanes.c: the interpreter's inner loops. They are plain C loops, so that the compiler
 * vectorizes them. */
#include "utask/interp.h"
#include <limits.h>
#include <math.h>

#define BK_INLINE static inline
#include "codegen/text/scalar.inc"
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

/* ---- scalar operators (scalar.def) ----------------------------------------------------------- */
#define BK_WRAP(T, x, op, y) ((int64_t)((uint64_t)(x)op(uint64_t)(y)))

/* d[l] = (E)TO in x and y, with a loop of its own for a uniform x or y; N operands. */
#define LOOP_OF(TO, E)                                                                             \
    if (N > 1 && !sa && n > 1) {                                                                   \
        x = *a;                                                                                    \
        EACH {                                                                                     \
            y = b[l];                                                                              \
            d[l] = (E)TO;                                                                          \
        }                                                                                          \
    } else if (N > 1 && !sb && n > 1) {                                                            \
        y = *b;                                                                                    \
        EACH {                                                                                     \
            x = a[l];                                                                              \
            d[l] = (E)TO;                                                                          \
        }                                                                                          \
    } else                                                                                         \
        EACH {                                                                                     \
            x = a[l], y = b[l];                                                                    \
            d[l] = (E)TO;                                                                          \
        }
#define LOOP_TO(TO, E) LOOP_OF(TO, E) return true;
#define LOOP(E) LOOP_TO(, E)
/* A case of an operator; `types` is a LOOP where lanes of type T have it. */
#define RESULT_SAME T
#define RESULT_TRUTH int32_t
#define CASE(id, name, operands, work, result, flags, ...)                                         \
    case E_##id: {                                                                                 \
        enum { N = operands };                                                                     \
        RESULT_##result *restrict d = pd;                                                          \
        (void)d;                                                                                   \
        __VA_ARGS__                                                                                \
    } break;
/* lanes_…: false where the type does not have the operator. */
#define LANES_OF(T) int op, int n, void *pd, const T *a, int sa, const T *b, int sb

static bool lanes_f(LANES_OF(float)) {
    typedef float T;
    T x, y;
    switch (op) {
#define F(fn) fn##f
#define BK(fn) bk_##fn##f
#define FLOATS(E) LOOP(E)
#define SCALAR CASE
#include "utask/scalar.def"
    }
    return false;
}

static bool lanes_d(LANES_OF(double)) {
    typedef double T;
    T x, y;
    switch (op) {
#define F(fn) fn
#define BK(fn) bk_##fn##d
#define FLOATS(E) LOOP(E)
#define SCALAR CASE
#include "utask/scalar.def"
    }
    return false;
}

/* Operators that differ for uint64; the others are as for other integers. */
static bool lanes_u(int bits, LANES_OF(uint64_t)) {
    typedef uint64_t T;
    T x, y;
    switch (op) {
#define BK(fn) bk_##fn##u
#define INTS(E) LOOP(E)
#define U64S(E) LOOP(E)
#define UNSIGNED(E) LOOP(E)
#define SCALAR CASE
#include "utask/scalar.def"
    }
    return false;
}

static bool lanes_i(int bits, LANES_OF(int64_t)) {
    typedef int64_t T;
    T x, y;
    switch (op) {
#define BK(fn) bk_##fn##i
#define INTS(E) LOOP(E)
#define WRAPS(E, text) LOOP(E)
#define SCALAR CASE
#include "utask/scalar.def"
    }
    return false;
}

static bool lanes_b(int bits, LANES_OF(int32_t)) {
    typedef int32_t T;
    T x, y;
    switch (op) {
#define BK(fn) bk_##fn##i
#define INTS(E) LOOP_TO(!= 0, E)
#define WRAPS(E, text) LOOP_TO(!= 0, E)
#define SCALAR CASE
#include "utask/scalar.def"
    }
    return false;
}

void lanes_scalar(int op, DType t, int n, void *d, const void *a, int sa, const void *b, int sb) {
    int bits = t == DT_BOOL ? 1 : (int)dtype_size(t) * 8;
    bool done = false;
    switch (lane_class(t)) {
    case CL_F: done = lanes_f(op, n, d, a, sa, b, sb); break;
    case CL_D: done = lanes_d(op, n, d, a, sa, b, sb); break;
    case CL_I:
        done = (t == DT_U64 && lanes_u(bits, op, n, d, a, sa, b, sb)) ||
               lanes_i(bits, op, n, d, a, sa, b, sb);
        break;
    case CL_B: done = lanes_b(bits, op, n, d, a, sa, b, sb); break;
    }
    if (!done) die("no lanes of %s for %s", expr_row[op].name, dtype_name(t));
    if (expr_row[op].truth) return;
    lanes_round(t, n, d);
    wrap(t, n, d);
}

#define PICK(T)                                                                                    \
    {                                                                                              \
        enum { N = 2 };                                                                            \
        T *restrict d = pd, x, y;                                                                  \
        const T *a = pa, *b = pb;                                                                  \
        if (!sa && !sb) {                                                                          \
            x = *a, y = *b;                                                                        \
            EACH d[l] = m[l] ? x : y;                                                              \
        } else                                                                                     \
            LOOP_OF(, m[l] ? x : y)                                                                \
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

/* ---- conversions ----------------------------------------------------------------------------- */
#define CONVERT_FROM(T, S, E)                                                                      \
    EACH {                                                                                         \
        S x = ((const S *)a)[l];                                                                   \
        d[l] = (T)(E);                                                                             \
    }
#define CONVERT(T, E)                                                                              \
    {                                                                                              \
        T *restrict d = pd;                                                                        \
        switch (lane_class(from)) {                                                                \
        case CL_F: CONVERT_FROM(T, float, E) break;                                                \
        case CL_D: CONVERT_FROM(T, double, E) break;                                               \
        case CL_B: CONVERT_FROM(T, int32_t, E) break;                                              \
        case CL_I:                                                                                 \
            if (from == DT_U64)                                                                    \
                CONVERT_FROM(T, uint64_t, E)                                                       \
            else                                                                                   \
                CONVERT_FROM(T, int64_t, E)                                                        \
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

/* Reads elements as lanes: `i` is the index of lane l's element; OK says whether it may be read. */
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
        READ_ALL((uint64_t)i < (uint64_t)count, BK_WRAP(T, base, +, idx[l]))
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

/* ---- reductions ------------------------------------------------------------------------------ */
static bool is_arg(ReduceKind k) { return k >= R_ARGMAX; }

void lanes_acc_init(ReduceKind k, DType t, int n, void *acc, int64_t *idx) {
    bool is_min = k == R_MIN || k == R_ARGMIN || k == R_ARGMIN_LAST;
    bool is_max = k == R_MAX || k == R_ARGMAX || k == R_ARGMAX_LAST;
    double f = is_max ? -INFINITY : is_min ? INFINITY : k == R_PROD ? 1 : 0;
    int64_t i = k == R_PROD || k == R_AND;
    if (is_max || is_min) i = is_max ? int_least(t) : int_most(t);
    switch (lane_class(t)) {
    case CL_F: EACH((float *)acc)[l] = (float)f; break;
    case CL_D: EACH((double *)acc)[l] = f; break;
    case CL_I: EACH((int64_t *)acc)[l] = i; break;
    case CL_B: EACH((int32_t *)acc)[l] = (int32_t)i; break;
    }
    if (is_arg(k)) EACH idx[l] = 0;
}

/* acc[l] = E of accumulator x and value y; or all values into acc[0]. */
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
/* The same for ARG…: where E holds, takes the value and its index. */
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
        ACC_KINDS(int64_t, BK_WRAP(T, x, +, y), BK_WRAP(T, x, *, y), (y > x), (y < x))
    }
    if (s->cls == CL_I && (s->kind == R_SUM || s->kind == R_PROD)) wrap(s->t, fold ? 1 : n, s->acc);
}
