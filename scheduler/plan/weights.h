/* weights.h: the constants that lie beside a program, as arrays in one file or table. */
#ifndef BRAID_WEIGHTS_H
#define BRAID_WEIGHTS_H

#include "scheduler/kernel/packed.h"

#define WEIGHT_ALIGN 64  /* bytes between which arrays begin */
#define WEIGHT_BEHIND 64 /* zeros behind each, for reads of whole vectors */

typedef struct WeightArray {
    const char *what;     /* the tensor, "" where it has no name */
    const Const *data;    /* as the model has it; NULL: */
    const Packed *packed; /* in the order in which a kernel reads it */
    DType dtype;
    int64_t count, offset, bytes; /* bytes: without those behind it */
} WeightArray;

typedef struct Weights {    /* Program.weights */
    VEC(WeightArray) array; /* in the order in which the program first names them */
    int64_t bytes;          /* of all, those behind the last one included */
    Map *number;            /* of an array, plus 1, by its elements or its Packed */
} Weights;

/* The array of constant t as it is; NULL: none of what runs reads it so. */
const WeightArray *weights_find(const Program *p, const Tensor *t);

#endif
