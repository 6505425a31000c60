/* conv.h: the convolution that several operators share. */
#ifndef BRAID_OPS_CONV_H
#define BRAID_OPS_CONV_H

#include "utask/lower.h"

/* Convolves x [N, C, spatial axes…] with weights [M, C / group, kernel…] by the node's attributes;
 * the bias may be NULL. */
Tensor *t_conv(Lower *L, Tensor *x, Tensor *w, Tensor *bias);

#endif
