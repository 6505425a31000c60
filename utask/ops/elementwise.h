/* elementwise.h: shared by the lowerings of elementwise and recurrent operators. */
#ifndef BRAID_OPS_ELEMENTWISE_H
#define BRAID_OPS_ELEMENTWISE_H

#include "utask/lower.h"

/* Activation functions; `a` and `b` in the comments are alpha and beta. */
typedef enum {
    ACT_RELU, /* max(x, 0) */
    ACT_TANH,
    ACT_SIGMOID,
    ACT_AFFINE,       /* a x + b */
    ACT_LEAKYRELU,    /* x < 0 ? a x : x */
    ACT_THRESHOLD,    /* x > a ? x : 0 */
    ACT_THRESHOLD_GE, /* x >= a ? x : 0: the form of the recurrent operators */
    ACT_SCALEDTANH,   /* a tanh(b x) */
    ACT_HARDSIGMOID,  /* max(0, min(1, a x + b)) */
    ACT_HARDSWISH,    /* x max(0, min(1, x / 6 + 1/2)) */
    ACT_ELU,          /* x < 0 ? a (e^x - 1) : x */
    ACT_SELU,         /* b elu(x) */
    ACT_CELU,         /* max(0, x) + min(0, a (e^(x/a) - 1)) */
    ACT_SOFTSIGN,     /* x / (1 + |x|) */
    ACT_SOFTPLUS,     /* log(1 + e^x) */
    ACT_SWISH,        /* x sigmoid(a x) */
    ACT_MISH,         /* x tanh(softplus(x)) */
    ACT_GELU,         /* x/2 (1 + erf(x / sqrt 2)) */
    ACT_GELU_TANH,    /* x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) */
    ACT_SHRINK,       /* x < -a ? x + b : x > a ? x - b : 0 */
    ACT_CLIP          /* min(max(x, a), b) */
} Act;

/* An activation by its name in an attribute of a recurrent operator (in letters of any case) or of
 * com.microsoft's fused ones. */
typedef enum { NAMED_RECURRENT = 1, NAMED_FUSED = 2 } NamedBy;
typedef struct ActName {
    const char *name;
    Act act;
    int by, nparam;    /* NamedBy; how many of alpha, beta it takes */
    float alpha, beta; /* ONNX's defaults */
} ActName;
const ActName *act_named(const char *name, NamedBy by); /* NULL: there is none */

/* act(x), computed in x's type (float32 or float64). */
Expr *act_expr(Cx *c, Act act, Expr *x, double alpha, double beta);

/* The element of a tensor that must hold one number, of whatever rank. */
Expr *only_element(Lower *L, Tensor *t, const char *what);

/* Element i of n from a tensor that holds one number for all (maybe as a scalar) or one for each;
 * which of the two may be known only at run time. */
Expr *one_or_each(Lower *L, Tensor *t, Expr *i, Expr *n, const char *what);

static inline Expr *e_nonzero(Cx *c, Expr *x) {
    return e_not(c, e_eq(c, x, e_num(c, (DType)x->dtype, 0)));
}

#endif
