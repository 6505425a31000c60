/* The elementary functions and conversions of emitted programs (codegen/text/math.inc, scalar.h)
 * against the C library in double: each within the bound that math.h states, over the whole range
 * of float in steps and densely around every threshold. Built with the options of emitted programs.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "include/braid_model.h"
#include "codegen/text/cpu/ctx.inc"
#if defined(__AVX512F__)
#define BK_VEC 16
#elif defined(__AVX2__)
#define BK_VEC 8
#else
#define BK_VEC 4
#endif
#include "codegen/text/c.inc"
#include "codegen/text/cpu/prelude.inc"
#include "codegen/text/scalar.inc"
#include "codegen/text/math.inc"

#define BLOCK 1024
#define COUNT(a) (sizeof(a) / sizeof(a)[0])

/* ---- the functions under test, as loops that vectorize --------------------------------------- */
#define LOOP(name)                                                                                 \
    static void loop_##name(float *restrict y, const float *restrict x) {                          \
        BK_SIMD for (int i = 0; i < BLOCK; i++) y[i] = bk_##name(x[i]);                            \
    }
LOOP(expf)
LOOP(sigmoidf)
LOOP(tanhf)
LOOP(erff)
LOOP(logf)
LOOP(log1pf)
LOOP(sinf)
LOOP(cosf)

static double sigmoid(double x) { return 1 / (1 + exp(-x)); }

typedef struct Function {
    const char *name;
    void (*loop)(float *restrict, const float *restrict);
    double (*exact)(double);
    double bound;       /* as stated in math.h */
    bool least_is_zero; /* results below the least normal number may be 0 */
} Function;
static const Function functions[] = {
    {"exp", loop_expf, exp, 1.1, false},    {"sigmoid", loop_sigmoidf, sigmoid, 2.8, true},
    {"tanh", loop_tanhf, tanh, 2.8, false}, {"erf", loop_erff, erf, 1.5, false},
    {"log", loop_logf, log, 1, false},      {"log1p", loop_log1pf, log1p, 1.5, false},
    {"sin", loop_sinf, sin, 1.6, false},    {"cos", loop_cosf, cos, 1.6, false},
};

/* The error of y in units in the last place of the float nearest to `exact`; huge where NaN,
 * infinity or the sign of zero are not what they should be. */
static double error_of(float y, double exact, bool least_is_zero) {
    if (y != y || exact != exact) return (y != y) != (exact != exact) ? HUGE_VAL : 0;
    float near = (float)exact;
    if (isinf(y) || isinf(near)) return y == near ? 0 : HUGE_VAL;
    if (near == 0 && (y != 0 || signbit(y) != signbit(near)))
        return signbit(y) != signbit(near) ? HUGE_VAL : fabs((double)y - exact) * 0x1p149;
    if (least_is_zero && fabs(exact) < 0x1p-126) return y >= 0 && y <= 0x1p-126f ? 0 : HUGE_VAL;
    double unit = ldexp(1, fabs(exact) < 0x1p-126 ? -149 : ilogb(exact) - 23);
    return fabs((double)y - exact) / unit;
}

static void check(const Function *f, const float *x, double *worst) {
    float y[BLOCK];
    f->loop(y, x);
    for (int i = 0; i < BLOCK; i++) {
        double exact = f->exact((double)x[i]), e = error_of(y[i], exact, f->least_is_zero);
        if (e > *worst) *worst = e;
        if (!(e <= f->bound))
            fail_msg("%s(%a) = %a, exact %a: %.3f units, allowed %.2f", f->name, (double)x[i],
                     (double)y[i], exact, e, f->bound);
    }
}

/* ---- arguments ------------------------------------------------------------------------------- */
static void test_sweep(void **state) {
    (void)state;
    for (size_t k = 0; k < COUNT(functions); k++) {
        double worst = 0;
        float x[BLOCK];
        for (uint64_t u = 0; u >> 32 == 0;) {
            for (int i = 0; i < BLOCK; i++, u += 257) x[i] = bk_asf((uint32_t)u);
            check(&functions[k], x, &worst);
        }
        print_message("%s: at most %.3f units\n", functions[k].name, worst);
    }
}

static void around(float at) {
    float x[BLOCK];
    for (size_t k = 0; k < COUNT(functions); k++)
        for (int sign = 0; sign < 2; sign++)
            for (int32_t d = -BLOCK; d < BLOCK; d += BLOCK) {
                double worst = 0;
                for (int i = 0; i < BLOCK; i++)
                    x[i] = bk_asf(bk_asu(sign ? -at : at) + (uint32_t)(d + i));
                check(&functions[k], x, &worst);
            }
}

static void test_thresholds(void **state) {
    (void)state;
    static const float at[] = {
        0,         0x1p-149f,  0x1p-126f,   0x1p-25f,   0x1p-24f,    0x1p-12f,   0.34f,
        0.55f,     0.92f,      0.70710678f, 1,          1.41421356f, 2,          3.9192059f,
        4,         9.010913f,  9.5f,        16.635532f, 87.336545f,  88.722839f, 89,
        103.2789f, 103.97208f, 104,         0x1p22f,    0x1p23f,     0x1p24f,    0x1p31f,
        0x1p50f,   0x1p77f,    0x1p104f,    0x1p126f,   0x1p127f,    BK_INF};
    for (size_t i = 0; i < COUNT(at); i++) around(at[i]);
    /* Halves of log 2, where exp changes its exponent; quarters of pi, where sin and cos change. */
    for (int i = 1; i < 200; i++) {
        around((float)(i * 0.34657359027997265));
        around((float)(i * 0.78539816339744831));
    }
    for (double m = 200; m < 2e38; m = m * 1.37 + 1)
        around((float)(floor(m) * 0.78539816339744831));
}

/* Values that are exact, whatever the bound. */
static void test_values(void **state) {
    (void)state;
    assert_true(bk_expf(88.72283f) <= 0x1.fffffep127f && bk_expf(88.72284f) == BK_INF);
    assert_true(bk_expf(-87.4f) > 0 && bk_expf(-103.9f) == 0x1p-149f && bk_expf(-104.0f) == 0);
    assert_true(bk_expf(0.0f) == 1 && bk_expf(-0.0f) == 1);
    assert_true(bk_sigmoidf(0.0f) == 0.5f && bk_sigmoidf(BK_INF) == 1 && bk_sigmoidf(-BK_INF) == 0);
    assert_true(bk_tanhf(BK_INF) == 1 && bk_tanhf(-20.0f) == -1 && bk_erff(-BK_INF) == -1);
    assert_true(bk_logf(1.0f) == 0 && bk_logf(0.0f) == -BK_INF && bk_logf(-0.0f) == -BK_INF);
    assert_true(bk_log1pf(-1.0f) == -BK_INF && bk_logf(BK_INF) == BK_INF);
    assert_true(bk_cosf(0.0f) == 1 && bk_powf(2.0f, 0.5f) == 0x1.6a09e6p0f);
    for (uint32_t u = 0; u < 0x7f800000u; u += 9973) {
        float x = bk_asf(u);
        assert_true(bk_tanhf(-x) == -bk_tanhf(x) && bk_erff(-x) == -bk_erff(x));
        assert_true(bk_sinf(-x) == -bk_sinf(x) && bk_cosf(-x) == bk_cosf(x));
        assert_true(bk_tanhf(x) <= 1 && bk_erff(x) <= 1 && bk_sigmoidf(x) <= 1);
    }
}

/* ---- power ----------------------------------------------------------------------------------- */
static void loop_powf(float *restrict r, const float *restrict x, const float *restrict y) {
    BK_SIMD for (int i = 0; i < BLOCK; i++) r[i] = bk_powf(x[i], y[i]);
}
static void check_pow(const float *x, const float *y) {
    float r[BLOCK];
    loop_powf(r, x, y);
    for (int i = 0; i < BLOCK; i++) {
        double exact = pow((double)x[i], (double)y[i]), e = error_of(r[i], exact, false);
        if (!(e <= 0.6))
            fail_msg("pow(%a, %a) = %a, exact %a", (double)x[i], (double)y[i], (double)r[i], exact);
    }
}

static void test_pow(void **state) {
    (void)state;
    static const float special[] = {0,
                                    1,
                                    -1,
                                    0.5f,
                                    -0.5f,
                                    2,
                                    -2,
                                    3,
                                    -3,
                                    4,
                                    0.999f,
                                    1.001f,
                                    1e-3f,
                                    -2.5f,
                                    1e10f,
                                    -1e10f,
                                    0x1p-149f,
                                    0x1p-126f,
                                    0x1p22f,
                                    0x1p23f,
                                    8388607,
                                    8388609,
                                    16777215,
                                    -16777215,
                                    0x1p24f,
                                    -0x1p30f,
                                    0x1.fffffep127f,
                                    4194303.5f,
                                    -0x1p-149f,
                                    -0.0f,
                                    0x1.fffffep-1f,
                                    -1.5f,
                                    BK_INF,
                                    -BK_INF,
                                    BK_NAN,
                                    127,
                                    128,
                                    -149,
                                    -150,
                                    0.25f};
    float x[BLOCK], y[BLOCK];
    int n = 0;
    for (size_t i = 0; i < COUNT(special); i++)
        for (size_t j = 0; j < COUNT(special); j++) {
            x[n] = special[i], y[n] = special[j];
            if (++n == BLOCK) check_pow(x, y), n = 0;
        }
    for (; n < BLOCK; n++) x[n] = y[n] = 1;
    check_pow(x, y);
    /* Results all over the range: y is log r / log x for a random r. */
    uint64_t s = 1;
    for (int b = 0; b < 4000; b++) {
        for (int i = 0; i < BLOCK; i++) {
            s = s * 6364136223846793005u + 1442695040888963407u;
            x[i] = bk_asf((uint32_t)(s >> 33) % 0x7f800000u);
            s = s * 6364136223846793005u + 1442695040888963407u;
            double r = ((double)(s >> 40) * 0x1p-24 - 0.5) * 300;
            y[i] = (float)(r / log2((double)x[i]));
            if (b & 1) x[i] = -x[i], y[i] = rintf(y[i]);
        }
        check_pow(x, y);
    }
}

/* ---- conversions ----------------------------------------------------------------------------- */
static void test_conversions(void **state) {
    (void)state;
    static float x[BLOCK];
    static int64_t l[BLOCK];
    static int32_t w[BLOCK];
    static uint64_t u[BLOCK];
    for (uint64_t at = 0; at >> 32 == 0;) {
        for (int i = 0; i < BLOCK; i++, at += 1021) x[i] = bk_asf((uint32_t)at);
        BK_SIMD for (int i = 0; i < BLOCK; i++) l[i] = bk_ff2i(x[i]);
        BK_SIMD for (int i = 0; i < BLOCK; i++) w[i] = bk_ff2i32(x[i]);
        BK_SIMD for (int i = 0; i < BLOCK; i++) u[i] = bk_ff2u(x[i]);
        for (int i = 0; i < BLOCK; i++)
            if (l[i] != bk_f2i((double)x[i]) || w[i] != bk_f2i32((double)x[i]) ||
                u[i] != bk_f2u((double)x[i]))
                fail_msg("%a becomes %lld, %d, %llu", (double)x[i], (long long)l[i], (int)w[i],
                         (unsigned long long)u[i]);
    }
    static const float at[] = {0x1p31f, 0x1p32f, 0x1p63f, 0x1p64f,
                               BK_INF,  BK_NAN,  0.999f,  16777215};
    for (size_t i = 0; i < COUNT(at); i++)
        for (int d = -2; d <= 2; d++)
            for (int sign = 0; sign < 2; sign++) {
                float v = bk_asf(bk_asu(sign ? -at[i] : at[i]) + (uint32_t)d);
                assert_true(bk_ff2i(v) == bk_f2i((double)v));
                assert_true(bk_ff2i32(v) == bk_f2i32((double)v));
                assert_true(bk_ff2u(v) == bk_f2u((double)v));
            }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values),      cmocka_unit_test(test_thresholds),
        cmocka_unit_test(test_sweep),       cmocka_unit_test(test_pow),
        cmocka_unit_test(test_conversions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
