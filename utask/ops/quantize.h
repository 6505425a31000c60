/* quantize.h: linear quantization, shared by the lowerings of quantized operators. */
#ifndef BRAID_OPS_QUANTIZE_H
#define BRAID_OPS_QUANTIZE_H

#include "utask/lower.h"

/* A quantized tensor's scale and zero point, one number each, as float32. */
typedef struct Quant {
    Expr *scale, *zero;
} Quant;

/* From two inputs of the node; an absent zero point is 0. */
Quant quant_in(Lower *L, int scale, int zero);
/* (x - zero) scale, float32. */
Expr *dequantized(Lower *L, Quant q, Expr *x);
/* round(v) + z clamped to the range of t, an integer type of 2 to 16 bits. v and z have the same
 * float type; z NULL means 0. Halves round to even. */
Expr *quantized(Lower *L, DType t, Expr *v, Expr *z);
/* round(v / scale + zero) clamped to the range of t. */
Expr *requantized(Lower *L, DType t, Expr *v, Quant q);

/* Whole tensors, element by element: dequantized; quantized(x / scale, zero). */
Tensor *t_dequantize(Lower *L, Tensor *x, Quant q);
Tensor *t_quantize(Lower *L, DType t, Tensor *x, Quant q);

/* Quantizes x (float32) to uint8, with scale (float32) and zero point (uint8) from its range. If
 * `rows`, each index of axis 0 has its own, and they have rank 1; else rank 0. */
Tensor *t_dynamic_quantize(Lower *L, Tensor *x, bool rows, Tensor **scale, Tensor **zero);

/* Input i, which must be present and int8 or uint8. */
Tensor *byte_in(Lower *L, int i);

#endif
