/* cast.c: conversions between element types. */
#include "utask/ops/elementwise.h"
#include "utask/ops/ops.h"

static DType target(Lower *L) {
    if (!attr_has(L, "to")) fail(L, "attribute 'to' is missing");
    int64_t to = attr_i(L, "to", 0);
    if (to <= 0 || to > INT32_MAX || !dtype_supported((int)to))
        unsupported(L, "conversion to %s (type number %lld)",
                    to > 0 && to < 64 ? dtype_name((int)to) : "an unknown type", (long long)to);
    return (DType)to;
}

static Tensor *nonzero(Lower *L, Tensor *x) {
    Expr *v;
    Tensor *y = te_like(L, DT_BOOL, x, &v);
    return te_end(L, y, e_nonzero(L->cx, v));
}

static void convert(Lower *L, DType to) {
    Tensor *x = in_needed(L, 0);
    out(L, 0, to == DT_BOOL && x->dtype != DT_BOOL ? nonzero(L, x) : t_cast(L, to, x));
}

/* `saturate` and `round_mode` are about 8-bit float targets only. */
void lower_Cast(Lower *L) { convert(L, target(L)); }

void lower_CastLike(Lower *L) { convert(L, in_needed(L, 1)->dtype); }

void lower_BitCast(Lower *L) {
    DType to = target(L);
    Tensor *x = in_needed(L, 0);
    if (dtype_size(to) != dtype_size(x->dtype))
        fail(L, "%s and %s differ in size", dtype_name(x->dtype), dtype_name(to));
    /* A bool is 0 or 1 in memory, and stays so. */
    if (to == x->dtype || to == DT_BOOL || x->dtype == DT_BOOL) {
        convert(L, to);
        return;
    }
    Expr *v;
    Tensor *y = te_like(L, to, x, &v);
    out(L, 0, te_end(L, y, e_bitcast(L->cx, to, v)));
}
