/* cast.c: conversions between element types. */
#include "utask/ops/elementwise.h"
#include "utask/ops/lowerings.h"

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
    if (dtype_small(x->dtype)) v = small_decode(L->cx, v);
    return te_end(L, y, e_nonzero(L->cx, v));
}

static SmallCast rounding(Lower *L) {
    static const char *const names[] = {"up", "down", "nearest"};
    SmallRound mode = (SmallRound)attr_choice(L, "round_mode", COUNT(names), names);
    return (SmallCast){attr_i(L, "saturate", 1) != 0, mode};
}

static void convert(Lower *L, DType to) {
    Tensor *x = in_needed(L, 0);
    if (dtype_small(to) && to != x->dtype) {
        Expr *v;
        Tensor *y = te_like(L, to, x, &v);
        out(L, 0, te_end(L, y, small_encode(L->cx, to, v, rounding(L))));
        return;
    }
    out(L, 0, to == DT_BOOL && x->dtype != DT_BOOL ? nonzero(L, x) : t_cast(L, to, x));
}

void lower_Cast(Lower *L) { convert(L, target(L)); }

void lower_CastLike(Lower *L) { convert(L, in_needed(L, 1)->dtype); }

/* Bits of an element by ONNX's count. */
static int width(DType t) { return dtype_small(t) ? dtype_small(t)->bits : 8 * (int)dtype_size(t); }

void lower_BitCast(Lower *L) {
    Cx *c = L->cx;
    DType to = target(L);
    Tensor *x = in_needed(L, 0);
    if (width(to) != width(x->dtype))
        fail(L, "%s and %s differ in size", dtype_name(x->dtype), dtype_name(to));
    Expr *v;
    Tensor *y = te_like(L, to, x, &v);
    /* A bool is stored as 0 or 1; keep these bits. */
    if (x->dtype == DT_BOOL && to != DT_BOOL) v = e_cast(c, DT_U8, v);
    if (to == DT_BOOL && x->dtype != DT_BOOL)
        v = e_nonzero(c, e_bitcast(c, DT_U8, v));
    else
        v = e_bitcast(c, to, v);
    out(L, 0, to == x->dtype ? x : te_end(L, y, v));
}
