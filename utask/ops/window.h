/* window.h: sliding windows and tables, for convolution, pooling, resizing and signals. */
#ifndef BRAID_WINDOW_H
#define BRAID_WINDOW_H

#include "utask/lower.h"

typedef enum { PAD_NOTSET, PAD_VALID, PAD_SAME_UPPER, PAD_SAME_LOWER } AutoPad;

/* Spatial axis i: windows of k[i] elements, `dil` apart, start every `stride` elements of the
 * input, which is padded by lo[i] elements before and hi[i] after. */
typedef struct Window {
    int n;
    AutoPad mode;
    int64_t stride[MAX_RANK], dil[MAX_RANK];
    Expr *k[MAX_RANK];
    Expr *span[MAX_RANK]; /* (k - 1) * dil + 1 */
    Expr *in[MAX_RANK];
    Expr *lo[MAX_RANK], *hi[MAX_RANK];
    Expr *out[MAX_RANK]; /* number of windows */
} Window;

/* Reads strides, dilations, pads and auto_pad for n spatial axes; lo and hi are those of `pads`. */
void window_read(Lower *L, Window *w, int n, Expr *const *in, Expr *const *k);
/* The same for x [N, C, spatial axes…] and weights [M, C, kernel…], of which the attribute
 * kernel_shape must say the same. */
void window_of_weights(Lower *L, Window *w, const Tensor *x, const Tensor *weights);
/* Fills lo and hi for auto_pad, and out; checks that windows fit. */
void window_place(Lower *L, Window *w, bool ceil_mode);
/* Splits a total padding by w->mode. */
void window_split(Lower *L, Window *w, int i, Expr *total);
/* Whether some window reaches outside of the input on axis i. */
bool window_overhangs(Lower *L, const Window *w, int i);
/* Attribute of n integers in [min, max], dflt when absent. */
void window_ints(Lower *L, const char *name, int n, int64_t dflt, int64_t min, int64_t *v);

/* [N, spatial axes…, C] as [N, C, spatial axes…], and back. */
Tensor *t_channels_first(Lower *L, Tensor *x);
Tensor *t_channels_last(Lower *L, Tensor *x);

/* te_end for a table of positions or weights: a constant if its values are known, even if nothing
 * is loaded (te_end leaves such tensors to be computed where they are used). */
Tensor *table_end(Lower *L, Tensor *t, Expr *body);

/* One more of the *n axes of a sum, as an expression; 0 where it has one element. */
Expr *sum_axis(Lower *L, Expr *extent, Axis **axis, int *n);
/* The type in which values of type t are mixed. */
DType mix_type(Lower *L, DType t);
/* Checks images x [N, C, H, W], regions [n, 4] and the image of each region [n]. */
void check_regions(Lower *L, const Tensor *x, const Tensor *rois, const Tensor *batch);

/* Arithmetic on int64 expressions. */
Expr *win_fdiv(Lower *L, Expr *a, int64_t b); /* floor(a / b), b > 0 */
Expr *win_cdiv(Lower *L, Expr *a, int64_t b); /* ceil(a / b) */
Expr *win_inside(Lower *L, Expr *i, Expr *n); /* 0 <= i < n */

/* Positions and angles are computed in float64. */
static inline Expr *num(Lower *L, double v) { return e_num(L->cx, DT_F64, v); }
static inline Expr *f64(Lower *L, Expr *e) { return e_cast(L->cx, DT_F64, e); }

#endif
