/* data.h: files that hold one value, as in ONNX test data: TensorProto, SequenceProto,
 * OptionalProto.
 *
 * Nothing in the file says which of them it is: the declared kind decides. */
#ifndef BRAID_DATA_H
#define BRAID_DATA_H

#include "frontend/graph.h"

typedef struct DataValue {
    VKind kind;  /* as declared */
    VKind elem;  /* VT_OPTIONAL: VT_TENSOR or VT_SEQUENCE is inside; else the same as kind */
    bool absent; /* an empty VT_OPTIONAL; then n is 0 */
    int n;       /* length of t: 1 for a tensor, else the items of the sequence */
    const Const **t;
    const char *name; /* as in the file; may be "" */
} DataValue;

/* Reads `bytes` as a value of kind `kind`. Messages begin with `what` (the file's name). Raises
 * ST_INPUT, or ST_UNSUPPORTED for an element type. Payloads are 64-byte aligned, in the arena. */
DataValue data_read(Arena *a, Diag *d, const void *bytes, size_t n, VKind kind, const char *what);

/* Appends v in the file format. */
void data_write(Sb *out, const DataValue *v);

#endif
