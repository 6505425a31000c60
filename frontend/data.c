/* data.c: reading and writing TensorProto, SequenceProto and OptionalProto files. */
#include "frontend/data.h"
#include "frontend/import.h"
#include <stdlib.h>

/* ---- reading -------------------------------------------------------------------------------- */

static void read_tensor(Import *im, DataValue *v, const Onnx__TensorProto *t, const char *what) {
    v->n = 1;
    v->t = NEW(im->a, const Const *);
    v->t[0] = tensor_import(im, t, what);
}

static void read_sequence(Import *im, DataValue *v, const Onnx__SequenceProto *s,
                          const char *what) {
    if (s->elem_type > 1 || s->n_tensor_values > INT32_MAX)
        err(im->d, ST_UNSUPPORTED, NULL, "%s: only sequences of tensors are supported", what);
    v->n = (int)s->n_tensor_values;
    v->t = NEWN(im->a, const Const *, v->n);
    for (int i = 0; i < v->n; i++)
        v->t[i] =
            tensor_import(im, s->tensor_values[i], arena_printf(im->a, "%s: element %d", what, i));
}

static void read_optional(Import *im, DataValue *v, const Onnx__OptionalProto *o,
                          const char *what) {
    v->elem = VT_TENSOR;
    if (o->elem_type == 3) {
        v->elem = VT_SEQUENCE;
        if (o->sequence_value) read_sequence(im, v, o->sequence_value, what);
        v->absent = !o->sequence_value;
    } else if (o->elem_type == 0 || o->elem_type == 1) {
        if (o->elem_type == 1 && o->tensor_value) read_tensor(im, v, o->tensor_value, what);
        v->absent = o->elem_type == 0 || !o->tensor_value;
    } else {
        err(im->d, ST_UNSUPPORTED, NULL, "%s: only optional tensors and sequences are supported",
            what);
    }
}

DataValue data_read(Arena *a, Diag *d, const void *bytes, size_t n, VKind kind, const char *what) {
    Import im = {.a = a, .d = d, .bad = ST_INPUT};
    DataValue v = {.kind = kind, .elem = kind};
    if (kind == VT_TENSOR) {
        const Onnx__TensorProto *t =
            (const void *)wire_unpack(&im, &onnx__tensor_proto__descriptor, bytes, n, what);
        v.name = t->name;
        read_tensor(&im, &v, t, what);
    } else if (kind == VT_SEQUENCE) {
        const Onnx__SequenceProto *s =
            (const void *)wire_unpack(&im, &onnx__sequence_proto__descriptor, bytes, n, what);
        v.name = s->name;
        read_sequence(&im, &v, s, what);
    } else {
        const Onnx__OptionalProto *o =
            (const void *)wire_unpack(&im, &onnx__optional_proto__descriptor, bytes, n, what);
        v.name = o->name;
        read_optional(&im, &v, o, what);
    }
    return v;
}

/* ---- writing: field numbers as in onnx.proto ------------------------------------------------- */

static void put_varint(Sb *s, uint64_t v) {
    do {
        char b = (char)((v & 127) | (v > 127 ? 128 : 0));
        sb_write(s, &b, 1);
        v >>= 7;
    } while (v);
}

static void put_int(Sb *s, unsigned field, int64_t v) {
    put_varint(s, field << 3);
    put_varint(s, (uint64_t)v);
}

static void put_bytes(Sb *s, unsigned field, const void *p, size_t n) {
    put_varint(s, field << 3 | 2);
    put_varint(s, n);
    if (n) sb_write(s, p, n);
}

static void put_name(Sb *s, unsigned field, const char *name) {
    if (name && name[0]) put_bytes(s, field, name, strlen(name));
}

static void put_tensor(Sb *s, const Const *t, const char *name) {
    for (int i = 0; i < t->rank; i++) put_int(s, 1, t->dim[i]);
    put_int(s, 2, t->dtype);
    put_name(s, 8, name);
    const Small *small = dtype_small(t->dtype);
    size_t bytes =
        small ? small_packed(t->dtype, t->count) : (size_t)t->count * dtype_size(t->dtype);
    uint8_t *packed = small ? malloc(bytes + 1) : NULL;
    if (packed) small_pack(t->dtype, t->count, t->data, packed);
    if (small && !packed)
        sb_fail(s);
    else
        put_bytes(s, 9, small ? packed : t->data, bytes);
    free(packed);
}

static void put_message(Sb *s, unsigned field, Sb *m) {
    if (m->failed) sb_fail(s);
    put_bytes(s, field, m->p, m->n);
    sb_free(m);
}

static void put_sequence(Sb *s, const DataValue *v, const char *name) {
    put_name(s, 1, name);
    put_int(s, 2, 1);
    for (int i = 0; i < v->n; i++) {
        Sb t = {0};
        put_tensor(&t, v->t[i], NULL);
        put_message(s, 3, &t);
    }
}

void data_write(Sb *out, const DataValue *v) {
    if (v->kind == VT_TENSOR) {
        put_tensor(out, v->t[0], v->name);
    } else if (v->kind == VT_SEQUENCE) {
        put_sequence(out, v, v->name);
    } else {
        put_name(out, 1, v->name);
        if (v->absent) return;
        Sb m = {0};
        put_int(out, 2, v->elem == VT_SEQUENCE ? 3 : 1);
        if (v->elem == VT_SEQUENCE)
            put_sequence(&m, v, NULL);
        else
            put_tensor(&m, v->t[0], NULL);
        put_message(out, v->elem == VT_SEQUENCE ? 5 : 3, &m);
    }
}
