/* device_tensors.c: runs the model on tensors in the memory of a GPU. */
#include <stdlib.h>

#include "api/runtime.h"

#define CALL(call) status_of(call, message, e)
static braid_status status_of(int st, const char *message, braid_error *e) {
    return st ? rt_fail(e, (braid_status)st, "%s", message) : BRAID_OK;
}

/* The session with the device: of an open model, that of its last run. */
static braid_session *session_of(braid_session *s) {
    braid_session *last = s ? rt_last_session(s) : NULL;
    return last ? last : s;
}

int32_t braid_model_device_type(const struct braid_model *m) {
    if (m->open) return rt_open_device_type(m);
    return m->lib ? m->lib->device_type : kDLCPU;
}

/* Whether it is an open model's session for a GPU. */
static bool has_ranked(const braid_session *s) {
    return s && s->model->open && rt_open_device_type(s->model) != kDLCPU;
}

static bool has_device(const braid_session *s) {
    return s && s->model->lib && s->model->lib->run_on;
}
static braid_status no_device(const braid_session *s, braid_error *e) {
    if (!s) return rt_fail(e, BRAID_USAGE, "a null pointer was given");
    if (has_ranked(s))
        return rt_fail(e, BRAID_USAGE,
                       "inputs declare no rank: the session has no device before its first run");
    return rt_fail(e, BRAID_USAGE, "target '%s' has no device", s->model->target);
}

braid_status braid_session_set_stream(braid_session *s, void *stream, braid_error *e) {
    if (has_ranked(s)) return rt_ranked_stream(s, stream, e);
    if (!has_device(s)) return no_device(s, e);
    pthread_mutex_lock(&s->lock);
    s->stream = stream;
    pthread_mutex_unlock(&s->lock);
    return BRAID_OK;
}

braid_status braid_session_finish(braid_session *s, braid_error *e) {
    char message[sizeof e->message] = "";
    if (has_ranked(s)) return rt_ranked_finish(s, e);
    if (!has_device(s)) return no_device(s, e);
    pthread_mutex_lock(&s->lock);
    braid_status st = CALL(s->model->lib->finish(s->lib_session, message, sizeof message));
    pthread_mutex_unlock(&s->lock);
    return st;
}

/* ---- tensors --------------------------------------------------------------------------------- */
static bool in_cpu_memory(const DLTensor *t) {
    return t->device.device_type == kDLCPU || t->device.device_type == kDLCUDAHost ||
           t->device.device_type == kDLROCMHost;
}
static bool is_here(const braid_session *s, const DLTensor *t) {
    return has_device(s) && (int32_t)t->device.device_type == s->model->lib->device_type &&
           t->device.device_id == (int32_t)s->model->lib->stat(s->lib_session, BRAID_STAT_DEVICE);
}

braid_status rt_on_device(braid_session *s, const DLTensor *const *in, bool *on, braid_error *e) {
    const struct braid_model *m = s->model;
    int here = -1, there = -1;
    for (int i = 0; i < m->nin; i++) {
        if (!in[i]) continue;
        if (in_cpu_memory(in[i]))
            here = i;
        else if (is_here(s, in[i]))
            there = i;
        else if (has_device(s))
            return rt_fail(e, BRAID_INPUT, "input '%s' is on another device than the session",
                           m->in[i].name);
        else
            return rt_fail(e, BRAID_INPUT, "input '%s' is not in CPU memory", m->in[i].name);
    }
    *on = there >= 0;
    if (here < 0 || there < 0) return BRAID_OK;
    return rt_fail(
        e, BRAID_INPUT,
        "input '%s' is in CPU memory and input '%s' on the device: all have to be at one place",
        m->in[here].name, m->in[there].name);
}

/* Puts t into the library's form. */
static braid_status as_input(const char *name, const DLTensor *t, braid_tensor_v1 *to,
                             braid_error *e) {
    braid_dtype dtype = rt_from_dl(t->dtype);
    if (rt_tensor_bytes(dtype, t->ndim, t->shape) < 0)
        return rt_fail(e, BRAID_INPUT, "'%s': its element type, rank or shape is not supported",
                       name);
    if (rt_is_packed(dtype))
        return rt_fail(e, BRAID_INPUT, "'%s': packed elements (%s) are taken from CPU memory only",
                       name, braid_dtype_name(dtype));
    if (!rt_is_dense(t))
        return rt_fail(e, BRAID_INPUT, "'%s': a tensor on a device has to be dense", name);
    *to = (braid_tensor_v1){
        .data = (char *)t->data + t->byte_offset, .dtype = (int32_t)dtype, .rank = t->ndim};
    memcpy(to->dim, t->shape, (size_t)t->ndim * sizeof *t->shape);
    return BRAID_OK;
}

typedef struct OnDevice {
    DLManagedTensor m;
    struct braid_model *model; /* its library frees the memory */
    void *memory;
    int64_t dim[MAX_RANK];
} OnDevice;

static void on_device_free(DLManagedTensor *m) {
    OnDevice *own = (OnDevice *)m;
    if (!own) return;
    own->model->lib->memory_free(own->memory);
    braid_model_free(own->model);
    free(own);
}

/* Makes a tensor as t in the device's memory; its elements are undefined. Requires that the session
 * is locked. */
static braid_status new_like(braid_session *s, const braid_tensor_v1 *t, DLManagedTensor **out,
                             braid_error *e) {
    char message[sizeof e->message] = "";
    const braid_model_v1 *lib = s->model->lib;
    size_t bytes = (size_t)rt_tensor_bytes((braid_dtype)t->dtype, t->rank, t->dim);
    void *data;
    OnDevice *own = calloc(1, sizeof *own);
    if (!own) return rt_fail(e, BRAID_MEMORY, "out of memory");
    braid_status st =
        CALL(lib->memory_new(s->lib_session, bytes, &own->memory, &data, message, sizeof message));
    if (st) {
        free(own);
        return st;
    }
    memcpy(own->dim, t->dim, sizeof own->dim);
    rt_model_retain(s->model);
    own->model = s->model;
    own->m.deleter = on_device_free;
    int32_t number = (int32_t)lib->stat(s->lib_session, BRAID_STAT_DEVICE);
    own->m.dl_tensor = (DLTensor){.data = data,
                                  .device = {(DLDeviceType)lib->device_type, number},
                                  .ndim = t->rank,
                                  .dtype = rt_to_dl((braid_dtype)t->dtype),
                                  .shape = own->dim};
    *out = &own->m;
    return BRAID_OK;
}

/* Enqueues a copy of t. Requires that the session is locked. */
static braid_status copy_of(braid_session *s, int direction, const braid_tensor_v1 *t,
                            DLManagedTensor **out, braid_error *e) {
    char message[sizeof e->message] = "";
    DLManagedTensor *to;
    braid_status st = new_like(s, t, &to, e);
    if (st) return st;
    st = CALL(s->model->lib->memory_copy(
        s->lib_session, s->stream, direction, to->dl_tensor.data, t->data,
        (size_t)rt_tensor_bytes((braid_dtype)t->dtype, t->rank, t->dim), message, sizeof message));
    if (st)
        to->deleter(to);
    else
        *out = to;
    return st;
}

braid_status braid_session_to_device(braid_session *s, const DLTensor *host,
                                     DLManagedTensor **device, braid_error *e) {
    braid_tensor_v1 t;
    s = session_of(s);
    if (!has_device(s) || !host || !device) return no_device(host && device ? s : NULL, e);
    if (!in_cpu_memory(host)) return rt_fail(e, BRAID_INPUT, "the tensor is not in CPU memory");
    braid_status st = as_input("tensor", host, &t, e);
    if (st) return st;
    pthread_mutex_lock(&s->lock);
    st = copy_of(s, BRAID_COPY_IN | BRAID_COPY_WAIT, &t, device, e);
    pthread_mutex_unlock(&s->lock);
    return st;
}

braid_status braid_session_to_host(braid_session *s, const DLTensor *device, braid_value **host,
                                   braid_error *e) {
    char message[sizeof e->message] = "";
    braid_tensor_v1 t;
    braid_value *v;
    s = session_of(s);
    if (!has_device(s) || !device || !host) return no_device(device && host ? s : NULL, e);
    if (!is_here(s, device))
        return rt_fail(e, BRAID_INPUT, "the tensor is not on the session's device");
    braid_status st = as_input("tensor", device, &t, e);
    if (!st) st = braid_value_new_tensor((braid_dtype)t.dtype, t.rank, t.dim, NULL, &v, e);
    if (st) return st;
    pthread_mutex_lock(&s->lock);
    st = CALL(s->model->lib->memory_copy(
        s->lib_session, s->stream, BRAID_COPY_OUT | BRAID_COPY_WAIT, v->data, t.data,
        (size_t)rt_tensor_bytes((braid_dtype)t.dtype, t.rank, t.dim), message, sizeof message));
    pthread_mutex_unlock(&s->lock);
    if (st)
        braid_value_free(v);
    else
        *host = v;
    return st;
}

/* The new outputs of a run. */
typedef struct DeviceOutputs {
    braid_session *s;
    DLManagedTensor **own;
    braid_status st; /* why there is no memory */
    braid_error *e;
} DeviceOutputs;

static void *output_memory(void *user, int i, const braid_tensor_v1 *t, size_t bytes) {
    DeviceOutputs *o = user;
    (void)bytes;
    o->st = new_like(o->s, t, &o->own[i], o->e);
    return o->st ? NULL : o->own[i]->dl_tensor.data;
}

/* Requires that the session is locked. r[]: room for the outputs. */
static braid_status run_locked(braid_session *s, const braid_tensor_v1 *t, braid_tensor_v1 *r,
                               DLManagedTensor **own, braid_error *e) {
    char message[sizeof e->message] = "";
    const struct braid_model *m = s->model;
    DeviceOutputs o = {.s = s, .own = own, .e = e};
    int st = m->lib->run_into
                 ? m->lib->run_into(s->lib_session, s->stream, t, r, output_memory, &o, message,
                                    sizeof message)
                 : m->lib->run_on(s->lib_session, s->stream, t, r, message, sizeof message);
    if (o.st) return o.st;
    if (st) return rt_fail(e, (braid_status)st, "%s", message);
    for (int i = 0; i < m->nout && !o.st; i++)
        if (r[i].rank < 0 && m->out[i].kind != BRAID_OPTIONAL)
            o.st = rt_fail(e, BRAID_RUNTIME, "output '%s' was not computed", m->out[i].name);
        else if (r[i].rank >= 0 && !m->lib->run_into)
            o.st = copy_of(s, BRAID_COPY_ON, &r[i], &own[i], e);
    return o.st;
}

braid_status rt_run_on_device(braid_session *s, const DLTensor *const *in, DLManagedTensor **out,
                              braid_error *e) {
    const struct braid_model *m = s->model;
    braid_tensor_v1 *t = calloc((size_t)(m->nin + m->nout) + 1, sizeof *t),
                    *r = t ? t + m->nin : NULL;
    DLManagedTensor **own = calloc((size_t)m->nout + 1, sizeof *own);
    braid_status st = t && own ? BRAID_OK : rt_fail(e, BRAID_MEMORY, "out of memory");
    for (int i = 0; !st && i < m->nout; i++)
        if (rt_is_packed(m->out[i].dtype))
            st = rt_fail(e, BRAID_USAGE,
                         "output '%s': packed elements (%s) are given in CPU memory only",
                         m->out[i].name, braid_dtype_name(m->out[i].dtype));
    for (int i = 0; !st && i < m->nin; i++) {
        t[i].rank = -1;
        if (in[i]) st = as_input(m->in[i].name, in[i], &t[i], e);
    }
    if (!st) {
        pthread_mutex_lock(&s->lock);
        st = run_locked(s, t, r, own, e);
        pthread_mutex_unlock(&s->lock);
    }
    for (int i = 0; own && i < m->nout; i++)
        if (!st)
            out[i] = own[i];
        else if (own[i])
            own[i]->deleter(own[i]);
    free(t);
    free(own);
    return st;
}
