/* The divisions of codegen/text/math.inc without a slow path, for targets that have an approximate
 * reciprocal: they give the rounded quotient for all arguments that occur, whichever of the
 * numbers within one unit in the last place the target's reciprocal is. Every argument is tried;
 * where the processor has no fused multiply-add, every 509th one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "include/braid_model.h"
#include "codegen/text/cpu/ctx.inc"
#define BK_VEC 4
#include "codegen/text/c.inc"
#include "codegen/text/cpu/prelude.inc"
#include "codegen/text/scalar.inc"

static int off; /* of the reciprocal, in units in the last place */
#define BK_RCP
static inline float bk_rcpf(float b) { return bk_asf(bk_asu(1.0f / b) + (uint32_t)off); }
#undef BK_FMA
#define BK_FMA(a, b, c) __builtin_fmaf(a, b, c)
#include "codegen/text/math.inc"

#if defined(__FMA__) || defined(__aarch64__)
#define STRIDE 1
#else
#define STRIDE 509
#endif
#define BLOCK 4096

/* How many of a block's quotients are not what they should be. */
static int wrong_inverses(uint32_t first) {
    int wrong = 0;
    for (int i = 0; i < BLOCK; i++) {
        const float b = bk_asf(first + (uint32_t)i * STRIDE);
        wrong += bk_asu(bk_inversef(b)) != bk_asu(1.0f / b);
    }
    return wrong;
}
static int wrong_parts(uint32_t first) {
    int wrong = 0;
    for (int i = 0; i < BLOCK; i++) {
        const float m = bk_asf(first + (uint32_t)i * STRIDE);
        wrong += bk_asu(bk_partf(m)) != bk_asu(m / (m + 2.0f));
    }
    return wrong;
}

static void check(const char *what, int (*wrong)(uint32_t), float from, float to) {
    for (off = -1; off <= 1; off++)
        for (uint32_t u = bk_asu(from); u < bk_asu(to); u += BLOCK * STRIDE) {
            const int n = wrong(u);
            if (n) fail_msg("%s: %d wrong from %a on, %d off", what, n, (double)bk_asf(u), off);
        }
    off = 0;
}

/* Powers of two change nothing but the exponent: a range for each end. */
static void test_inverse(void **state) {
    (void)state;
    check("1 / b", wrong_inverses, 1.0f, 2.0f);
    check("1 / b", wrong_inverses, 0x1p125f, 0x1p126f);
}

/* Below 2^-25 m + 2 is 2: some of the normal numbers, and all that are denormal. */
static void test_part(void **state) {
    (void)state;
    check("m / (m + 2)", wrong_parts, 0.0f, 0x1p-125f);
    check("m / (m + 2)", wrong_parts, 0x1p-26f, 0x1p28f);
}

/* What bk_sigmoidf and bk_tanhf divide lies in these ranges. */
static void test_ranges(void **state) {
    (void)state;
    float most = 0, least = 2;
    for (uint32_t u = 0; u <= bk_asu(87.3365402f); u += 61)
        for (int sign = 0; sign < 2; sign++) {
            float c = sign ? -bk_asf(u) : bk_asf(u), k, s, b;
            c = c < -87.0f ? -87.0f : c;
            k = bk_split(c), s = bk_two_to(k), b = BK_FMA(bk_exp_part(c, k), s, s) + 1.0f;
            most = b > most ? b : most;
            least = b < least ? b : least;
        }
    const float k = bk_split(87.3365402f), s = bk_two_to(k);
    assert_true(least >= 1 && most < 0x1p126f);
    assert_true(BK_FMA(bk_exp_part(87.3365402f, k), s, s) < 0x1p126f);
    most = 0, least = 1;
    for (uint32_t u = 0; u <= bk_asu(19.0f); u++) {
        const float c = bk_asf(u), n = bk_split(c), t = bk_two_to(n),
                    m = BK_FMA(bk_exp_part(c, n), t, t - 1.0f);
        most = m > most ? m : most;
        least = m < least ? m : least;
    }
    assert_true(least >= 0 && most <= 0x1p28f);
    off = 1;
    assert_true(bk_sigmoidf(BK_NAN) != bk_sigmoidf(BK_NAN));
    assert_true(bk_sigmoidf(-BK_NAN) != bk_sigmoidf(-BK_NAN));
    assert_true(bk_tanhf(BK_NAN) != bk_tanhf(BK_NAN) && bk_tanhf(-BK_INF) == -1);
    assert_true(bk_sigmoidf(BK_INF) == 1 && bk_sigmoidf(-BK_INF) == 0 && bk_sigmoidf(0) == 0.5f);
    off = 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_inverse), cmocka_unit_test(test_part),
                                       cmocka_unit_test(test_ranges)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
