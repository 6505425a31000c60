/* proto.c: values as ONNX protobuf messages, which frontend/data.h reads and writes. */
#include <stdlib.h>

#include "frontend/data.h"
#include "api/runtime.h"

static Const as_const(const braid_value *v) {
    Const k = {.dtype = (DType)v->dtype, .rank = v->rank, .count = v->count, .data = v->data};
    memcpy(k.dim, v->dim, sizeof k.dim);
    return k;
}

void proto_print(Sb *s, const braid_value *v) {
    const braid_value *in = v->kind == BRAID_OPTIONAL ? braid_value_item(v, 0) : v;
    int n = !in ? 0 : in->kind == BRAID_SEQUENCE ? in->nitem : 1;
    Const *k = calloc((size_t)n + 1, sizeof *k);
    const Const **t = calloc((size_t)n + 1, sizeof *t);
    if (!k || !t) {
        sb_fail(s);
        n = 0;
    }
    for (int i = 0; i < n; i++) {
        k[i] = as_const(in->kind == BRAID_SEQUENCE ? in->item[i] : in);
        t[i] = &k[i];
    }
    VKind elem = in && in->kind == BRAID_SEQUENCE ? VT_SEQUENCE : VT_TENSOR;
    DataValue d = {.kind = v->kind == BRAID_OPTIONAL ? VT_OPTIONAL : elem,
                   .elem = elem,
                   .absent = !in,
                   .n = n,
                   .t = t,
                   .name = ""};
    if (k && t) data_write(s, &d);
    free(k);
    free((void *)t);
}

/* ---- reading ---- */
static braid_status from_const(const Const *k, braid_value **v, braid_error *e) {
    return braid_value_new_tensor((braid_dtype)k->dtype, k->rank, k->dim, k->data, v, e);
}

static braid_status from_data(const DataValue *d, braid_dtype dtype, braid_value **value,
                              braid_error *e) {
    braid_value *v = NULL, *item;
    braid_status st = BRAID_OK;
    VKind elem = d->kind == VT_OPTIONAL ? d->elem : d->kind;
    if (d->absent) return braid_value_new_optional(NULL, value, e);
    if (elem == VT_TENSOR)
        st = from_const(d->t[0], &v, e);
    else {
        st = braid_value_new_sequence(d->n ? (braid_dtype)d->t[0]->dtype : dtype, &v, e);
        for (int i = 0; !st && i < d->n; i++) {
            st = from_const(d->t[i], &item, e);
            if (!st && (st = braid_value_append(v, item, e))) {
                braid_value_free(item);
                if (st == BRAID_USAGE)
                    st = rt_fail(e, BRAID_INPUT, "the sequence's items differ in element type");
            }
        }
    }
    if (!st && d->kind == VT_OPTIONAL && !(st = braid_value_new_optional(v, &item, e))) v = item;
    if (st)
        braid_value_free(v);
    else
        *value = v;
    return st;
}

typedef struct Reading {
    Diag d;
    Arena *arena;
    DataValue data;
} Reading;

/* Everything that changes is in *r: longjmp leaves changed local variables undefined. */
static bool read_message(Reading *r, const void *bytes, size_t n, braid_kind kind) {
    jmp_buf jb;
    r->d.top = &jb;
    if (setjmp(jb) == 0) {
        r->arena = arena_new(&r->d);
        r->data = data_read(r->arena, &r->d, bytes, n,
                            kind == BRAID_OPTIONAL   ? VT_OPTIONAL
                            : kind == BRAID_SEQUENCE ? VT_SEQUENCE
                                                     : VT_TENSOR,
                            "content");
    }
    r->d.top = NULL;
    return r->d.status == ST_OK;
}

braid_status proto_parse(const void *bytes, size_t n, const braid_io *io, braid_value **v,
                         braid_error *e) {
    Reading r = {0};
    braid_status st = read_message(&r, bytes, n, io->kind) ? from_data(&r.data, io->dtype, v, e)
                                                           : rt_fail_diag(e, &r.d);
    arena_free(r.arena);
    return st;
}
