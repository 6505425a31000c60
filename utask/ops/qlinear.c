/* qlinear.c: com.microsoft's operators on 8-bit tensors that each have a scale and a zero point
 * (QLinear…), as ONNX Runtime's documentation defines them.
 *
 * Each computes on dequantized float32 values and quantizes the result. Like ONNX Runtime, some add
 * the zero point before rounding, which matters for values halfway between two integers. Its tables
 * and vector code may compute such a value slightly to one side. */
#include "utask/ops/elementwise.h"
#include "utask/ops/nn.h"
#include "utask/ops/pool.h"
#include "utask/ops/quantize.h"
#include "utask/ops/size.h"
#include "utask/ops/window.h"

/* ---- two operands ---------------------------------------------------------------------------- */

static void binary(Lower *L, bool product) {
    Cx *c = L->cx;
    Tensor *a = byte_in(L, 0), *b = byte_in(L, 3);
    Quant qa = quant_in(L, 1, 2), qb = quant_in(L, 4, 5), qy = quant_in(L, 6, 7);
    Expr *dim[MAX_RANK], *idx[MAX_RANK];
    int rank = bcast_dims(L, a->rank, a->dim, b->rank, b->dim, dim);
    Tensor *y = te_indexed(L, a->dtype, rank, dim, idx);
    Expr *va = e_sub(c, e_cast(c, DT_F32, ld_bcast(L, a, rank, idx, dim)), qa.zero);
    Expr *vb = e_sub(c, e_cast(c, DT_F32, ld_bcast(L, b, rank, idx, dim)), qb.zero), *v;
    if (product) {
        Expr *scale = e_div(c, e_mul(c, qa.scale, qb.scale), qy.scale);
        v = e_mul(c, e_mul(c, va, vb), scale);
    } else {
        v = e_add(c, e_mul(c, va, e_div(c, qa.scale, qy.scale)),
                  e_mul(c, vb, e_div(c, qb.scale, qy.scale)));
    }
    out(L, 0, te_end(L, y, quantized(L, a->dtype, e_add(c, v, qy.zero), NULL)));
}

void lower_QLinearAdd(Lower *L) { binary(L, false); }
void lower_QLinearMul(Lower *L) { binary(L, true); }

/* ---- activations ----------------------------------------------------------------------------- */

static void activation(Lower *L, Act act, double alpha) {
    Tensor *x = byte_in(L, 0);
    Quant qx = quant_in(L, 1, 2), qy = quant_in(L, 3, 4);
    Expr *v;
    Tensor *y = te_like(L, x->dtype, x, &v);
    v = act_expr(L->cx, act, dequantized(L, qx, v), alpha, 0);
    out(L, 0, te_end(L, y, quantized(L, x->dtype, e_div(L->cx, v, qy.scale), qy.zero)));
}

void lower_QLinearSigmoid(Lower *L) { activation(L, ACT_SIGMOID, 0); }
void lower_QLinearLeakyRelu(Lower *L) { activation(L, ACT_LEAKYRELU, attr_f(L, "alpha", 0.01f)); }

/* With `opset` 13 softmax is along the axis; with older ones over all axes from there on. As in
 * ONNX Runtime, the result's scale is replaced by a whole number of steps below 1. */
void lower_QLinearSoftmax(Lower *L) {
    Cx *c = L->cx;
    Tensor *x = byte_in(L, 0);
    Quant qx = quant_in(L, 1, 2), qy = quant_in(L, 3, 4);
    if (!attr_has(L, "opset")) fail(L, "the attribute opset is missing");
    int axis = norm_axis(L, attr_i(L, "axis", -1), x->rank);
    uint32_t mask = attr_i(L, "opset", 0) < 13 ? axes_from(axis, x->rank) : 1u << axis;
    Tensor *most = t_cast(L, DT_I32, t_reduce(L, R_MAX, x, mask, true));
    Tensor *below = t_bin(L, E_SUB, t_cast(L, DT_I32, x), most);
    Expr *v;
    Tensor *e = te_like(L, DT_F32, below, &v);
    e = te_end(L, e, e_un(c, E_EXP, e_mul(c, e_cast(c, DT_F32, v), qx.scale)));
    Tensor *sum = t_reduce(L, R_SUM, e, mask, true);

    Expr *idx[MAX_RANK];
    Tensor *y = te_like(L, x->dtype, e, &v);
    all_axes(L, y, idx);
    Expr *steps = e_un(c, E_FLOOR, e_div(c, e_num(c, DT_F32, 1), qy.scale));
    v = e_div(c, e_mul(c, v, steps), ld_bcast(L, sum, x->rank, idx, x->dim));
    out(L, 0, te_end(L, y, quantized(L, x->dtype, v, qy.zero)));
}

/* ---- movement -------------------------------------------------------------------------------- */

/* Input i, with scale and zero point in the next two inputs, requantized by qy, in type t. */
static Tensor *rescaled(Lower *L, int i, DType t, Quant qy) {
    Tensor *x = byte_in(L, i), *zero = in(L, i + 2);
    if (in_needed(L, i + 1)->dtype != DT_F32)
        fail(L, "input %d, a scale, must be float32, not %s", i + 1,
             dtype_name(in(L, i + 1)->dtype));
    if (x->dtype != t || (zero && zero->dtype != t))
        fail(L, "input %d and its zero point must be %s, the type of the result", i, dtype_name(t));
    return t_quantize(L, t, t_dequantize(L, x, quant_in(L, i + 1, i + 2)), qy);
}

void lower_QLinearConcat(Lower *L) {
    int n = (L->node->nin - 2) / 3;
    if (L->node->nin != 2 + 3 * n)
        fail(L, "the inputs must be a scale, a zero point, and three for each tensor");
    if (!attr_has(L, "axis")) fail(L, "the attribute axis is missing");
    DType t = byte_in(L, 1)->dtype;
    Quant qy = quant_in(L, 0, 1);
    Tensor **part = NEWN(L->a, Tensor *, n);
    for (int i = 0; i < n; i++) part[i] = rescaled(L, 2 + 3 * i, t, qy);
    out(L, 0, t_join(L, n, part, attr_i(L, "axis", 0)));
}

void lower_QLinearWhere(Lower *L) {
    DType t = byte_in(L, 8)->dtype;
    Quant qz = quant_in(L, 7, 8);
    Tensor *x = rescaled(L, 1, t, qz), *y = rescaled(L, 4, t, qz);
    out(L, 0, t_where(L, in_needed(L, 0), x, y));
}

/* ---- means ----------------------------------------------------------------------------------- */

void lower_QLinearAveragePool(Lower *L) {
    bool last = attr_i(L, "channels_last", 0) != 0;
    Tensor *x = byte_in(L, 0);
    DType t = x->dtype;
    Quant qx = quant_in(L, 1, 2), qy = quant_in(L, 3, 4);
    if (last) x = t_channels_first(L, x);
    Tensor *mean = t_average_pool(L, t_dequantize(L, x, qx));
    Expr *v;
    Tensor *y = te_like(L, t, mean, &v);
    y = te_end(L, y, requantized(L, t, v, qy));
    out(L, 0, last ? t_channels_last(L, y) : y);
}

/* y = saturate(round(sum of (x - zero) * x_scale / (y_scale * count)) + zero): The sum is exact. */
static Tensor *quantized_mean(Lower *L, Tensor *x, uint32_t mask) {
    Cx *c = L->cx;
    Quant qx = quant_in(L, 1, 2), qy = quant_in(L, 3, 4);
    Expr *v, *n = e_int(c, 1);
    for (int i = 0; i < x->rank; i++)
        if (mask >> i & 1) n = e_mul(c, n, x->dim[i]);
    Tensor *w = te_like(L, DT_I32, x, &v);
    w = te_end(L, w, e_sub(c, e_cast(c, DT_I32, v), e_cast(c, DT_I32, qx.zero)));
    Tensor *sum = mask ? t_reduce(L, R_SUM, w, mask, true) : w;
    Tensor *y = te_like(L, x->dtype, sum, &v);
    Expr *scale = e_div(c, qx.scale, e_mul(c, qy.scale, e_cast(c, DT_F32, n)));
    return te_end(L, y, quantized(L, x->dtype, e_mul(c, e_cast(c, DT_F32, v), scale), qy.zero));
}

void lower_QLinearReduceMean(Lower *L) {
    Tensor *x = byte_in(L, 0);
    int n;
    uint32_t mask = 0;
    const int64_t *axes = attr_ints(L, "axes", &n);
    if (n < 0 || !attr_has(L, "keepdims"))
        fail(L, "the attributes axes and keepdims must be given");
    for (int i = 0; i < n; i++) mask |= 1u << norm_axis(L, axes[i], x->rank);
    Tensor *y = quantized_mean(L, x, mask);
    for (int i = x->rank - 1; i >= 0 && !attr_i(L, "keepdims", 1); i--)
        if (mask >> i & 1) y = t_squeeze(L, y, i);
    out(L, 0, y);
}

void lower_QLinearGlobalAveragePool(Lower *L) {
    Tensor *x = byte_in(L, 0);
    int first = attr_i(L, "channels_last", 0) ? 1 : 2;
    if (x->rank < 3) fail(L, "the input has rank %d; at least 3 is needed", x->rank);
    uint32_t mask = axes_from(first, x->rank);
    if (first == 1) mask &= ~(1u << (x->rank - 1));
    out(L, 0, quantized_mean(L, x, mask));
}
