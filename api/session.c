/* session.c: runs a model, compiled or interpreted, on values. */
#include <stdlib.h>

#include "codegen/text/extern/extern.inc"
#include "codegen/text/extern/seq.inc"
#include "codegen/text/memory.inc"
#include "api/runtime.h"

/* The compiled model sees a bx_tensor as a braid_tensor_v1: the layouts must be equal. */
_Static_assert(sizeof(braid_tensor_v1) == sizeof(bx_tensor), "tensor layouts differ");
_Static_assert(offsetof(braid_tensor_v1, dim) == offsetof(bx_tensor, dim), "tensor layouts differ");
_Static_assert(BX_RANK == MAX_RANK && BRAID_MAX_RANK == MAX_RANK && BRAID_RANK_LIMIT == MAX_RANK,
               "rank limits differ");

braid_status braid_session_new(struct braid_model *model, const braid_session_options *options,
                               braid_session **session, braid_error *e) {
    braid_session_options o = {0};
    if (!model || !session) return rt_fail(e, BRAID_USAGE, "a null pointer was given");
    if (options) {
        size_t n = options->struct_size;
        if (n < sizeof options->struct_size)
            return rt_fail(e, BRAID_USAGE, "the options' struct_size is not set");
        memcpy(&o, options, n < sizeof o ? n : sizeof o);
    }
    if (o.threads < 0 || o.max_iterations < 0 || o.stack_depth < 0 || o.device < 0 ||
        o.max_memory < 0)
        return rt_fail(
            e, BRAID_USAGE,
            "threads, max_iterations, stack_depth, device and max_memory cannot be negative");
    braid_session *s = calloc(1, sizeof *s);
    if (!s) return rt_fail(e, BRAID_MEMORY, "out of memory");
    s->interp.max_iterations = o.max_iterations ? o.max_iterations : (int64_t)1 << 31;
    s->interp.stack_depth = o.stack_depth;
    s->interp.max_memory = o.max_memory;
    if (!model->lib && !o.max_memory) s->interp.max_memory = bk_memory_share();
    s->options = o;
    s->options.struct_size = sizeof o;
    if (model->lib) {
        char message[sizeof e->message] = "";
        braid_session_config_v1 c = {.struct_size = sizeof c,
                                     .threads = o.threads,
                                     .max_iterations = o.max_iterations,
                                     .stack_depth = o.stack_depth,
                                     .device = o.device,
                                     .message = message,
                                     .message_size = sizeof message,
                                     .max_memory = o.max_memory};
        int st = model->lib->session_new(&c, &s->lib_session);
        if (st) {
            free(s);
            return rt_fail(e, (braid_status)st, "%s",
                           *message ? message : "no memory or threads for a session");
        }
    }
    pthread_mutex_init(&s->lock, NULL);
    rt_model_retain(model);
    s->model = model;
    *session = s;
    return BRAID_OK;
}

void braid_session_free(braid_session *s) {
    if (!s) return;
    if (s->model->lib) s->model->lib->session_free(s->lib_session);
    rt_ranked_free(s->ranked);
    pthread_mutex_destroy(&s->lock);
    braid_model_free(s->model);
    free(s);
}

braid_status braid_session_set_seed(braid_session *s, uint64_t seed, braid_error *e) {
    const braid_model_v1 *lib = s->model->lib;
    if (lib && !lib->set_seed)
        return rt_fail(e, BRAID_USAGE, "the library knows no seed: compile the model again");
    pthread_mutex_lock(&s->lock);
    if (lib)
        lib->set_seed(s->lib_session, seed);
    else
        bk_seed_set(&s->seed, seed);
    pthread_mutex_unlock(&s->lock);
    return BRAID_OK;
}

int64_t braid_session_stat(braid_session *s, braid_stat which) {
    braid_session *last = rt_last_session(s);
    if (last) return braid_session_stat(last, which);
    if (!s->model->lib) return which == BRAID_THREADS ? 1 : -1;
    pthread_mutex_lock(&s->lock);
    int64_t n = s->model->lib->stat(s->lib_session, (int)which);
    pthread_mutex_unlock(&s->lock);
    return n;
}

/* ---- values to tensors ---- */
static const char *kind_name(braid_kind k) {
    return k == BRAID_TENSOR ? "tensor" : k == BRAID_SEQUENCE ? "sequence" : "optional";
}

static void print_type(Sb *s, braid_dtype t, int rank, const int64_t *dim,
                       const char *const *name) {
    sb_puts(s, t ? braid_dtype_name(t) : "any type");
    for (int i = 0; i < rank; i++) {
        sb_puts(s, i ? "," : "[");
        if (dim[i] >= 0)
            sb_printf(s, "%lld", (long long)dim[i]);
        else
            sb_puts(s, name && name[i] ? name[i] : "?");
    }
    if (rank >= 0) sb_puts(s, rank ? "]" : "[]");
}

static braid_status check_tensor(const braid_io *io, const braid_value *v, braid_error *e) {
    bool same = !io->dtype || io->dtype == v->dtype;
    if (io->rank >= 0) {
        same = same && io->rank == v->rank;
        for (int i = 0; same && i < io->rank; i++) same = io->dim[i] < 0 || io->dim[i] == v->dim[i];
    }
    if (same) return BRAID_OK;
    Sb want = {0}, got = {0};
    print_type(&want, io->dtype, io->rank, io->dim, io->dim_name);
    print_type(&got, v->dtype, v->rank, v->dim, NULL);
    braid_status st =
        rt_fail(e, BRAID_INPUT, "input '%s': expected %s, got %s", io->name, want.p, got.p);
    sb_free(&want);
    sb_free(&got);
    return st;
}

static bx_tensor as_tensor(const braid_value *v) {
    bx_tensor t = {.data = v->data, .dtype = (int32_t)v->dtype, .rank = v->rank};
    memcpy(t.dim, v->dim, sizeof t.dim);
    return t;
}

/* Makes the blob of a sequence; *blob is malloc'd. */
static braid_status pack(const braid_io *io, const braid_value *v, bx_tensor *t, void **blob,
                         braid_error *e) {
    braid_dtype dtype = v->dtype ? v->dtype : io->dtype;
    if (io->dtype && dtype != io->dtype)
        return rt_fail(e, BRAID_INPUT, "input '%s': expected a sequence of %s, got one of %s",
                       io->name, braid_dtype_name(io->dtype), braid_dtype_name(dtype));
    int64_t payload = 0;
    for (int i = 0; i < v->nitem; i++) {
        bx_tensor item = as_tensor(v->item[i]);
        payload += bx_seq_round(bx_seq_bytes_of(&item));
    }
    int64_t bytes = bx_seq_round(bx_seq_size_for(v->nitem, payload));
    *blob = aligned_alloc(64, (size_t)bytes);
    if (!*blob) return rt_fail(e, BRAID_MEMORY, "out of memory");
    bx_seq_init(*blob, (int)dtype, v->nitem);
    for (int i = 0; i < v->nitem; i++) {
        bx_tensor item = as_tensor(v->item[i]);
        bx_seq_append(*blob, &item);
    }
    *t = (bx_tensor){.data = *blob, .dtype = DT_U8, .rank = 1, .dim = {bx_seq_used(*blob)}};
    return BRAID_OK;
}

/* v, or the element of an optional; NULL: there is none. */
static const braid_value *content(const braid_value *v) {
    if (v && v->kind == BRAID_OPTIONAL) return v->nitem ? v->item[0] : NULL;
    return v;
}

braid_status rt_check_input(const braid_io *io, const braid_value *v, braid_error *e) {
    v = content(v);
    if (!v && io->kind == BRAID_OPTIONAL) return BRAID_OK;
    if (!v) return rt_fail(e, BRAID_INPUT, "input '%s' is missing", io->name);
    if (v->kind != io->element)
        return rt_fail(e, BRAID_INPUT, "input '%s': expected a %s, got a %s", io->name,
                       kind_name(io->element), kind_name(v->kind));
    return v->kind == BRAID_TENSOR ? check_tensor(io, v, e) : BRAID_OK;
}

static braid_status take_input(const braid_io *io, const braid_value *v, bx_tensor *t, void **blob,
                               braid_error *e) {
    braid_status st = rt_check_input(io, v, e);
    if (st) return st;
    v = content(v);
    if (v && v->kind == BRAID_SEQUENCE) return pack(io, v, t, blob, e);
    *t = v ? as_tensor(v) : (bx_tensor){.rank = -1};
    return BRAID_OK;
}

/* Runs an open model with the session for the ranks of its tensors. */
static braid_status run_ranked(braid_session *s, const braid_value *const *in, braid_value **out,
                               braid_error *e) {
    const struct braid_model *m = s->model;
    braid_session *to;
    RtSeen *seen = calloc((size_t)m->nin + 1, sizeof *seen);
    braid_status st = seen ? BRAID_OK : rt_fail(e, BRAID_MEMORY, "out of memory");
    for (int i = 0; !st && i < m->nin; i++) {
        const braid_value *v = content(in[i]);
        seen[i].rank = v && v->kind == BRAID_TENSOR ? v->rank : -1;
        if (seen[i].rank > 0) seen[i].length = v->dim[v->rank - 1];
        st = rt_check_input(&m->in[i], in[i], e);
    }
    if (!st) st = rt_ranked_session(s, seen, &to, e);
    free(seen);
    return st ? st : braid_session_run(to, in, out, e);
}

/* ---- tensors to values ---- */
/* Makes an output's value from t. `own`: t's data is malloc'd and taken, also on failure. Else it
 * is copied. */
static braid_status give_output(const braid_io *io, const bx_tensor *t, bool own,
                                braid_value **value, braid_error *e) {
    braid_value *v = NULL, *item;
    braid_status st = BRAID_OK;
    if (t->rank < 0) {
        if (io->kind != BRAID_OPTIONAL)
            return rt_fail(e, BRAID_RUNTIME, "output '%s' was not computed", io->name);
        return braid_value_new_optional(NULL, value, e);
    }
    if (io->element == BRAID_TENSOR) {
        if (own)
            st = rt_value_take((braid_dtype)t->dtype, t->rank, t->dim, t->data, &v, e);
        else
            st = braid_value_new_tensor((braid_dtype)t->dtype, t->rank, t->dim, t->data, &v, e);
    } else {
        int dtype = bx_seq_dtype(t->data);
        st = braid_value_new_sequence(dtype_supported(dtype) ? (braid_dtype)dtype : io->dtype, &v,
                                      e);
        for (int64_t i = 0; !st && i < bx_seq_count(t->data); i++) {
            bx_tensor x = bx_seq_item(t->data, i);
            st = braid_value_new_tensor((braid_dtype)x.dtype, x.rank, x.dim, x.data, &item, e);
            if (!st && (st = braid_value_append(v, item, e))) braid_value_free(item);
        }
        if (own) free(t->data);
    }
    if (!st && io->kind == BRAID_OPTIONAL) {
        if ((st = braid_value_new_optional(v, &item, e)) == BRAID_OK) v = item;
    }
    if (st)
        braid_value_free(v);
    else
        *value = v;
    return st;
}

/* ---- running ---- */
static braid_status run_interp(braid_session *s, const bx_tensor *in, bx_tensor *out,
                               braid_error *e) {
    const struct braid_model *m = s->model;
    RtValue *v = calloc((size_t)(m->nin + m->nout) + 1, sizeof *v), *r = v + m->nin;
    Diag d = {0};
    if (!v) return rt_fail(e, BRAID_MEMORY, "out of memory");
    for (int i = 0; i < m->nin; i++) {
        const braid_io *io = &m->in[i];
        v[i].kind = io->element == BRAID_SEQUENCE ? VT_SEQUENCE : VT_TENSOR;
        v[i].present = in[i].rank >= 0;
        v[i].dtype = (DType)(io->element == BRAID_SEQUENCE ? io->dtype : (braid_dtype)in[i].dtype);
        v[i].rank = v[i].present ? in[i].rank : 0;
        memcpy(v[i].dim, in[i].dim, sizeof v[i].dim);
        v[i].data = in[i].data;
        v[i].bytes = v[i].present ? (size_t)bx_seq_bytes_of(&in[i]) : 0;
    }
    s->interp.seed = bk_seed_next(&s->seed);
    Status st = interp_run(m->interp, &s->interp, v, r, &d);
    for (int i = 0; st == ST_OK && i < m->nout; i++) {
        out[i].data = r[i].data;
        out[i].dtype = (int32_t)r[i].dtype;
        out[i].rank = !r[i].present ? -1 : m->out[i].element == BRAID_SEQUENCE ? 1 : r[i].rank;
        memcpy(out[i].dim, r[i].dim, sizeof out[i].dim);
    }
    free(v);
    return st == ST_OK ? BRAID_OK : rt_fail_diag(e, &d);
}

static braid_status run_library(braid_session *s, const bx_tensor *in, bx_tensor *out,
                                braid_error *e) {
    char message[sizeof e->message] = "";
    int st = s->model->lib->run(s->lib_session, (const braid_tensor_v1 *)in, (braid_tensor_v1 *)out,
                                message, sizeof message);
    return st ? rt_fail(e, (braid_status)st, "%s", message) : BRAID_OK;
}

braid_status braid_session_run(braid_session *s, const braid_value *const *in, braid_value **out,
                               braid_error *e) {
    if (!s || (s->model->nin && !in) || (s->model->nout && !out))
        return rt_fail(e, BRAID_USAGE, "a null pointer was given");
    const struct braid_model *m = s->model;
    if (m->open) return run_ranked(s, in, out, e);
    size_t nin = (size_t)m->nin, nout = (size_t)m->nout;
    bx_tensor *t = calloc(nin + nout + 1, sizeof *t), *r = t + nin;
    void **blob = calloc(nin + 1, sizeof *blob);
    braid_value **v = calloc(nout + 1, sizeof *v);
    braid_status st = t && blob && v ? BRAID_OK : rt_fail(e, BRAID_MEMORY, "out of memory");
    for (size_t i = 0; !st && i < nin; i++) st = take_input(&m->in[i], in[i], &t[i], &blob[i], e);
    if (!st) {
        pthread_mutex_lock(&s->lock);
        st = m->lib ? run_library(s, t, r, e) : run_interp(s, t, r, e);
        bool own = !m->lib, ran = !st;
        for (size_t i = 0; ran && i < nout; i++) {
            if (!st)
                st = give_output(&m->out[i], &r[i], own, &v[i], e);
            else if (own)
                free(r[i].data);
        }
        pthread_mutex_unlock(&s->lock);
    }
    for (size_t i = 0; v && i < nout; i++) {
        if (st)
            braid_value_free(v[i]);
        else
            out[i] = v[i];
    }
    for (size_t i = 0; blob && i < nin; i++) free(blob[i]);
    free(t);
    free(blob);
    free(v);
    return st;
}
