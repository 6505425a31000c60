/* data.h: values in files of their own, as ONNX test data has them: TensorProto, SequenceProto and
 * OptionalProto, told apart by the declared kind only. */
#ifndef BRAID_DATA_H
#define BRAID_DATA_H

#include "frontend/graph.h"

typedef struct DataValue {
    VKind kind;  /* as declared */
    VKind elem;  /* VT_OPTIONAL: VT_TENSOR or VT_SEQUENCE is inside; else the same as kind */
    bool absent; /* VT_OPTIONAL without element; then n is 0 */
    int n;       /* one tensor, or the elements of the sequence */
    const Const **t;
    const char *name; /* as in the file, maybe "" */
} DataValue;

/* Reads `bytes` as a value of kind `kind`; `what` (a file's name) begins messages. Raises ST_INPUT,
 * or ST_UNSUPPORTED for element types. Payloads are 64-byte aligned in the arena. */
DataValue data_read(Arena *a, Diag *d, const void *bytes, size_t n, VKind kind, const char *what);

/* Appends the file form of v. */
void data_write(Sb *out, const DataValue *v);

#endif
