/* dlpack.c: runs the model on DLPack tensors. */
#include <stdlib.h>

#include "api/runtime.h"

static const struct {
    uint8_t code, bits;
    braid_dtype dtype;
} dl_types[] = {{kDLFloat, 32, BRAID_FLOAT32},
                {kDLFloat, 64, BRAID_FLOAT64},
                {kDLFloat, 16, BRAID_FLOAT16},
                {kDLBfloat, 16, BRAID_BFLOAT16},
                {kDLInt, 8, BRAID_INT8},
                {kDLInt, 16, BRAID_INT16},
                {kDLInt, 32, BRAID_INT32},
                {kDLInt, 64, BRAID_INT64},
                {kDLUInt, 8, BRAID_UINT8},
                {kDLUInt, 16, BRAID_UINT16},
                {kDLUInt, 32, BRAID_UINT32},
                {kDLUInt, 64, BRAID_UINT64},
                {kDLBool, 8, BRAID_BOOL},
                {kDLInt, 4, BRAID_INT4},
                {kDLUInt, 4, BRAID_UINT4},
                {kDLInt, 2, BRAID_INT2},
                {kDLUInt, 2, BRAID_UINT2},
                {kDLFloat8_e4m3fn, 8, BRAID_FLOAT8E4M3FN},
                {kDLFloat8_e4m3fnuz, 8, BRAID_FLOAT8E4M3FNUZ},
                {kDLFloat8_e5m2, 8, BRAID_FLOAT8E5M2},
                {kDLFloat8_e5m2fnuz, 8, BRAID_FLOAT8E5M2FNUZ},
                {kDLFloat8_e8m0fnu, 8, BRAID_FLOAT8E8M0},
                {kDLFloat6_e2m3fn, 6, BRAID_FLOAT6E2M3},
                {kDLFloat6_e3m2fn, 6, BRAID_FLOAT6E3M2},
                {kDLFloat4_e2m1fn, 4, BRAID_FLOAT4E2M1}};

braid_dtype rt_from_dl(DLDataType t) {
    for (size_t i = 0; i < COUNT(dl_types) && t.lanes == 1; i++)
        if (dl_types[i].code == t.code && dl_types[i].bits == t.bits) return dl_types[i].dtype;
    return BRAID_DTYPE_NONE;
}
DLDataType rt_to_dl(braid_dtype t) {
    for (size_t i = 0; i < COUNT(dl_types); i++)
        if (dl_types[i].dtype == t) return (DLDataType){dl_types[i].code, dl_types[i].bits, 1};
    return (DLDataType){0, 0, 0};
}

bool rt_is_packed(braid_dtype t) {
    const Small *s = dtype_small((DType)t);
    return s && s->bits < 8;
}

bool rt_is_dense(const DLTensor *t) {
    int64_t step = 1;
    for (int i = t->ndim - 1; t->strides && i >= 0; i--) {
        if (t->shape[i] != 1 && t->strides[i] != step) return false;
        step *= t->shape[i];
    }
    return true;
}

/* Copies elements at any strides to row-major order. */
static void gather(const DLTensor *t, const char *from, size_t size, int64_t count, char *to) {
    int64_t idx[MAX_RANK] = {0}, at = 0, dense[MAX_RANK], step = 1;
    const int64_t *stride = t->strides;
    if (!stride) {
        for (int i = t->ndim - 1; i >= 0; step *= t->shape[i--]) dense[i] = step;
        stride = dense;
    }
    for (int64_t n = 0; n < count; n++) {
        memcpy(to + (size_t)n * size, from + at * (int64_t)size, size);
        for (int i = t->ndim - 1; i >= 0; i--) {
            at += stride[i];
            if (++idx[i] < t->shape[i]) break;
            at -= stride[i] * t->shape[i];
            idx[i] = 0;
        }
    }
}

static braid_status take(const braid_io *io, const DLTensor *t, braid_value **v, braid_error *e) {
    braid_dtype dtype = rt_from_dl(t->dtype);
    int64_t bytes = rt_tensor_bytes(dtype, t->ndim, t->shape);
    if (bytes < 0)
        return rt_fail(e, BRAID_INPUT,
                       "input '%s': its element type, rank or shape is not supported", io->name);
    size_t size = braid_dtype_size(dtype);
    char *data = (char *)t->data + t->byte_offset;
    if (rt_is_packed(dtype)) {
        if (!rt_is_dense(t))
            return rt_fail(e, BRAID_INPUT, "input '%s': packed elements have to be dense",
                           io->name);
        braid_status st = braid_value_new_tensor(dtype, t->ndim, t->shape, NULL, v, e);
        if (!st) small_unpack((DType)dtype, (*v)->count, (const uint8_t *)data, (*v)->data);
        return st;
    }
    if (bytes == 0 || (rt_is_dense(t) && (uintptr_t)data % size == 0))
        return braid_value_borrow_tensor(dtype, t->ndim, t->shape, data, v, e);
    braid_status st = braid_value_new_tensor(dtype, t->ndim, t->shape, NULL, v, e);
    if (!st) gather(t, data, size, (*v)->count, (*v)->data);
    return st;
}

typedef struct Managed {
    DLManagedTensor m;
    braid_value *v;
} Managed;

static void managed_free(DLManagedTensor *m) {
    Managed *own = (Managed *)m;
    if (!own) return;
    braid_value_free(own->v);
    free(own);
}

/* Turns v (taken) into a DLPack tensor; an empty optional becomes NULL. */
static braid_status give(braid_value *v, DLManagedTensor **out, braid_error *e) {
    braid_value *t = v->kind == BRAID_OPTIONAL ? braid_value_item(v, 0) : v;
    *out = NULL;
    if (!t) {
        braid_value_free(v);
        return BRAID_OK;
    }
    Managed *m = calloc(1, sizeof *m);
    if (!m) {
        braid_value_free(v);
        return rt_fail(e, BRAID_MEMORY, "out of memory");
    }
    if (rt_is_packed(t->dtype)) small_pack((DType)t->dtype, t->count, t->data, t->data);
    m->v = v;
    m->m.deleter = managed_free;
    m->m.dl_tensor = (DLTensor){.data = t->data,
                                .device = {kDLCPU, 0},
                                .ndim = t->rank,
                                .dtype = rt_to_dl(t->dtype),
                                .shape = t->dim};
    *out = &m->m;
    return BRAID_OK;
}

/* Runs an open model with the session for the ranks of its tensors. */
static braid_status run_ranked(braid_session *s, const DLTensor *const *in, DLManagedTensor **out,
                               braid_error *e) {
    braid_session *to;
    RtSeen *seen = calloc((size_t)s->model->nin + 1, sizeof *seen);
    braid_status st = seen ? BRAID_OK : rt_fail(e, BRAID_MEMORY, "out of memory");
    for (int i = 0; !st && i < s->model->nin; i++) {
        const braid_io *io = &s->model->in[i];
        int rank = seen[i].rank = in[i] ? in[i]->ndim : -1;
        if (!in[i] ? io->kind != BRAID_OPTIONAL : rank < 0 || rank > MAX_RANK)
            st = rt_fail(e, BRAID_INPUT,
                         in[i] ? "input '%s': its rank is not supported" : "input '%s' is missing",
                         io->name);
        else if (rank > 0)
            seen[i].length = in[i]->shape[rank - 1];
    }
    if (!st) st = rt_ranked_session(s, seen, &to, e);
    free(seen);
    return st ? st : braid_session_run_dlpack(to, in, out, e);
}

braid_status braid_session_run_dlpack(braid_session *s, const DLTensor *const *in,
                                      DLManagedTensor **out, braid_error *e) {
    if (!s) return rt_fail(e, BRAID_USAGE, "a null pointer was given");
    const struct braid_model *m = s->model;
    if ((m->nin && !in) || (m->nout && !out))
        return rt_fail(e, BRAID_USAGE, "a null pointer was given");
    for (int i = 0; i < m->nin + m->nout; i++) {
        const braid_io *io = i < m->nin ? &m->in[i] : &m->out[i - m->nin];
        if (io->element == BRAID_SEQUENCE)
            return rt_fail(e, BRAID_USAGE, "'%s' is a sequence, which is no DLPack tensor",
                           io->name);
    }
    if (m->open) return run_ranked(s, in, out, e);
    bool on;
    braid_status placed = rt_on_device(s, in, &on, e);
    if (placed || on) return placed ? placed : rt_run_on_device(s, in, out, e);
    braid_value **v = calloc((size_t)(m->nin + m->nout) + 1, sizeof *v),
                **r = v ? v + m->nin : NULL;
    DLManagedTensor **t = calloc((size_t)m->nout + 1, sizeof *t);
    braid_status st = v && t ? BRAID_OK : rt_fail(e, BRAID_MEMORY, "out of memory");
    for (int i = 0; !st && i < m->nin; i++)
        if (in[i]) st = take(&m->in[i], in[i], &v[i], e);
    if (!st) st = braid_session_run(s, (const braid_value *const *)v, r, e);
    if (!st) {
        for (int i = 0; i < m->nout; i++) {
            if (!st)
                st = give(r[i], &t[i], e);
            else
                braid_value_free(r[i]);
        }
        for (int i = 0; i < m->nout; i++) {
            if (!st)
                out[i] = t[i];
            else if (t[i])
                t[i]->deleter(t[i]);
        }
    }
    for (int i = 0; v && i < m->nin; i++) braid_value_free(v[i]);
    free(v);
    free(t);
    return st;
}
