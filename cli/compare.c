/* compare.c: compares an output with what a test expects. */
#include <math.h>

#include "cli/compare.h"

static const char *kind_text(const braid_value *v) {
    static const char *const text[] = {"a tensor", "a sequence", "an optional"};
    return text[braid_value_kind(v)];
}

static void print_index(Sb *s, const braid_value *v, int64_t i) {
    int64_t idx[BRAID_RANK_LIMIT];
    for (int d = braid_value_rank(v) - 1; d >= 0; d--) {
        idx[d] = i % braid_value_dim(v)[d];
        i /= braid_value_dim(v)[d];
    }
    for (int d = 0; d < braid_value_rank(v); d++)
        sb_printf(s, "%s%lld", d ? "," : "[", (long long)idx[d]);
    sb_puts(s, braid_value_rank(v) ? "]" : "[]");
}

static void print_element(Sb *s, DType t, const void *p, int64_t i) {
    if (dtype_is_float(t) || dtype_small(t))
        sb_printf(s, "%.9g", elem_get_f(t, p, i));
    else if (t == DT_U64)
        sb_printf(s, "%llu", (unsigned long long)elem_get_i(t, p, i));
    else
        sb_printf(s, "%lld", (long long)elem_get_i(t, p, i));
}

/* Sums of 16-bit floats are rounded on the way, in an order that is not defined. So two units in
 * the last place are allowed, as in the runner of the ONNX backend tests for bfloat16. */
static double tolerance(DType t, double rtol) {
    double least = t == DT_BF16 ? 0x1p-6 : t == DT_F16 ? 0x1p-9 : 0;
    return rtol > least ? rtol : least;
}

static bool same_element(DType t, const void *a, const void *b, int64_t i, double rtol,
                         double atol) {
    const Small *small = dtype_small(t);
    if (!(small ? small->is_float : dtype_is_float(t)))
        return elem_get_i(t, a, i) == elem_get_i(t, b, i);
    double x = elem_get_f(t, a, i), y = elem_get_f(t, b, i);
    if (isnan(x) || isnan(y)) return isnan(x) && isnan(y);
    if (isinf(x) || isinf(y)) return x == y;
    return fabs(x - y) <= atol + rtol * fabs(y);
}

static bool same_tensor(const braid_value *got, const braid_value *want, double rtol, double atol,
                        Sb *why) {
    DType t = (DType)braid_value_dtype(want);
    bool same = braid_value_dtype(got) == braid_value_dtype(want) &&
                braid_value_rank(got) == braid_value_rank(want);
    for (int d = 0; same && d < braid_value_rank(want); d++)
        same = braid_value_dim(got)[d] == braid_value_dim(want)[d];
    if (!same) {
        sb_puts(why, "is ");
        cli_print_value_type(why, got);
        sb_puts(why, ", expected ");
        cli_print_value_type(why, want);
        return false;
    }
    if (isinf(rtol)) return true;
    int64_t n = braid_value_count(want), differ = 0, first = 0;
    if (rtol > 0) rtol = tolerance(t, rtol); /* rtol 0 asks for equality */
    const void *a = braid_value_data(got), *b = braid_value_data(want);
    for (int64_t i = 0; i < n; i++)
        if (!same_element(t, a, b, i, rtol, atol) && differ++ == 0) first = i;
    if (differ == 0) return true;
    sb_puts(why, "element ");
    print_index(why, want, first);
    sb_puts(why, " is ");
    print_element(why, t, a, first);
    sb_puts(why, ", expected ");
    print_element(why, t, b, first);
    sb_printf(why, " (%lld of %lld differ)", (long long)differ, (long long)n);
    return false;
}

bool cli_same_value(const braid_value *got, const braid_value *want, double rtol, double atol,
                    Sb *why) {
    /* An optional with an element counts as the element: test files hold either of them. */
    if (braid_value_kind(got) == BRAID_OPTIONAL && braid_value_item(got, 0))
        got = braid_value_item(got, 0);
    if (braid_value_kind(want) == BRAID_OPTIONAL && braid_value_item(want, 0))
        want = braid_value_item(want, 0);
    if (braid_value_kind(got) != braid_value_kind(want)) {
        sb_printf(why, "is %s, expected %s", kind_text(got), kind_text(want));
        return false;
    }
    if (braid_value_kind(want) == BRAID_TENSOR) return same_tensor(got, want, rtol, atol, why);
    if (braid_value_count(got) != braid_value_count(want)) {
        sb_printf(why, "has %lld items, expected %lld", (long long)braid_value_count(got),
                  (long long)braid_value_count(want));
        return false;
    }
    for (int64_t i = 0; i < braid_value_count(want); i++) {
        size_t n = why->n;
        sb_printf(why, "item %lld ", (long long)i);
        if (!cli_same_value(braid_value_item(got, i), braid_value_item(want, i), rtol, atol, why))
            return false;
        why->n = n;
    }
    return true;
}
