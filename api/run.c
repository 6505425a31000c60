/* run.c: runs a model, compiled or interpreted, on values. */
#include <stdlib.h>

#include "codegen/text/extern/extern.inc"
#include "codegen/text/extern/seq.inc"
#include "api/runtime.h"

/* The compiled model sees a bx_tensor as a braid_tensor_v1: the layouts must be equal. */
_Static_assert(sizeof(braid_tensor_v1) == sizeof(bx_tensor), "tensor layouts differ");
_Static_assert(offsetof(braid_tensor_v1, dim) == offsetof(bx_tensor, dim), "tensor layouts differ");
_Static_assert(BX_RANK == MAX_RANK && BRAID_MAX_RANK == MAX_RANK && BRAID_RANK_LIMIT == MAX_RANK,
               "rank limits differ");

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

/* *to: the session of an open model for the ranks of the tensors. */
static braid_status find_ranked(braid_session *s, const braid_value *const *in, braid_session **to,
                                braid_error *e) {
    const struct braid_model *m = s->model;
    RtSeen *seen = calloc((size_t)m->nin + 1, sizeof *seen);
    braid_status st = seen ? BRAID_OK : rt_fail(e, BRAID_MEMORY, "out of memory");
    for (int i = 0; !st && i < m->nin; i++) {
        const braid_value *v = content(in[i]);
        seen[i].rank = v && v->kind == BRAID_TENSOR ? v->rank : -1;
        if (seen[i].rank > 0) seen[i].length = v->dim[v->rank - 1];
        st = rt_check_input(&m->in[i], in[i], e);
    }
    if (!st) st = rt_ranked_session(s, seen, to, e);
    free(seen);
    return st;
}

/* ---- outputs ---- */
/* Where a run's outputs go. */
typedef struct Outputs {
    const struct braid_model *m;
    braid_value *const *into; /* the caller's tensors; NULL: a new value */
    bool direct;              /* the run may write there before it has succeeded */
    braid_value **made;       /* new values */
    void **blob;              /* of sequences; malloc'd */
    braid_status st;          /* why there is no memory; its message is in *e */
    braid_error *e;
} Outputs;

static void free_outputs(const Outputs *o) {
    for (int i = 0; i < o->m->nout; i++) {
        braid_value_free(o->made[i]);
        free(o->blob[i]);
    }
}

/* BRAID_USAGE: `to` has another type than output i, which is t. */
static braid_status check_into(const braid_io *io, const braid_value *to, const bx_tensor *t,
                               braid_error *e) {
    bool same = to->kind == BRAID_TENSOR && (!t->dtype || (int32_t)to->dtype == t->dtype);
    if (t->rank >= 0) {
        same = same && to->rank == t->rank;
        for (int k = 0; same && k < t->rank; k++) same = t->dim[k] < 0 || to->dim[k] == t->dim[k];
    }
    if (same) return BRAID_OK;
    Sb want = {0}, got = {0};
    print_type(&want, (braid_dtype)t->dtype, t->rank, t->dim, NULL);
    print_type(&got, to->dtype, to->kind == BRAID_TENSOR ? to->rank : -1, to->dim, NULL);
    braid_status st = rt_fail(e, BRAID_USAGE, "output '%s' is %s, the given memory is %s", io->name,
                              want.p, got.p);
    sb_free(&want);
    sb_free(&got);
    return st;
}

/* What is known before the run. */
static braid_status check_all_into(const struct braid_model *m, braid_value *const *into,
                                   braid_error *e) {
    for (int i = 0; i < m->nout; i++) {
        const braid_io *io = &m->out[i];
        if (!into[i]) continue;
        if (io->kind != BRAID_TENSOR)
            return rt_fail(e, BRAID_USAGE, "output '%s' is no tensor: its memory cannot be given",
                           io->name);
        bx_tensor t = {.dtype = (int32_t)io->dtype, .rank = io->rank};
        if (io->rank > 0) memcpy(t.dim, io->dim, sizeof *io->dim * (size_t)io->rank);
        braid_status st = check_into(io, into[i], &t, e);
        if (st) return st;
    }
    return BRAID_OK;
}

static void *new_blob(size_t bytes) { return aligned_alloc(64, (bytes + 64) / 64 * 64); }

/* braid_model_v1.run_into's `memory`. */
static void *output_memory(void *user, int i, const braid_tensor_v1 *t, size_t bytes) {
    Outputs *o = user;
    const bx_tensor *x = (const bx_tensor *)t;
    if (o->m->out[i].element == BRAID_SEQUENCE) {
        if (!(o->blob[i] = new_blob(bytes)))
            o->st = rt_fail(o->e, BRAID_MEMORY, "out of memory for %zu bytes", bytes);
        return o->blob[i];
    }
    if (o->into && o->into[i]) {
        o->st = check_into(&o->m->out[i], o->into[i], x, o->e);
        if (o->st || o->direct) return o->st ? NULL : o->into[i]->data;
    }
    o->st = rt_value_new_output((braid_dtype)t->dtype, t->rank, t->dim, &o->made[i], o->e);
    return o->st ? NULL : o->made[i]->data;
}

/* Puts output i, whose data is in memory of a session, where it goes. `own`: it is malloc'd and
 * taken, also on failure. */
static braid_status put_output(Outputs *o, int i, const bx_tensor *t, bool own) {
    if (t->rank < 0) return BRAID_OK;
    const bool sequence = o->m->out[i].element == BRAID_SEQUENCE;
    if (own && sequence) {
        o->blob[i] = t->data;
        return BRAID_OK;
    }
    if (own && !(o->into && o->into[i]))
        return rt_value_take((braid_dtype)t->dtype, t->rank, t->dim, t->data, &o->made[i], o->e);
    const size_t bytes = (size_t)bx_seq_bytes_of(t);
    void *to = output_memory(o, i, (const braid_tensor_v1 *)t, bytes);
    if (!o->st && bytes) memcpy(to, t->data, bytes);
    if (own) free(t->data);
    return o->st;
}

/* Makes the value of a sequence from its blob. */
static braid_status unpack(const braid_io *io, void *blob, braid_value **value, braid_error *e) {
    int dtype = bx_seq_dtype(blob);
    braid_value *item;
    braid_status st =
        braid_value_new_sequence(dtype_supported(dtype) ? (braid_dtype)dtype : io->dtype, value, e);
    for (int64_t i = 0; !st && i < bx_seq_count(blob); i++) {
        bx_tensor x = bx_seq_item(blob, i);
        st = braid_value_new_tensor((braid_dtype)x.dtype, x.rank, x.dim, x.data, &item, e);
        if (!st && (st = braid_value_append(*value, item, e))) braid_value_free(item);
    }
    return st;
}

/* Completes output i after a run: it is in o->made[i], or in o->into[i] if `direct`. */
static braid_status complete(Outputs *o, int i, const bx_tensor *t) {
    const braid_io *io = &o->m->out[i];
    braid_value *optional;
    if (t->rank < 0) {
        if (io->kind == BRAID_OPTIONAL) return braid_value_new_optional(NULL, &o->made[i], o->e);
        return rt_fail(o->e, BRAID_RUNTIME, "output '%s' was not computed", io->name);
    }
    braid_status st = BRAID_OK;
    if (io->element == BRAID_SEQUENCE) st = unpack(io, o->blob[i], &o->made[i], o->e);
    if (st || io->kind != BRAID_OPTIONAL) return st;
    st = braid_value_new_optional(o->made[i], &optional, o->e);
    if (!st) o->made[i] = optional;
    return st;
}

/* ---- running ---- */
static braid_status run_interp(braid_session *s, const bx_tensor *in, bx_tensor *out, Outputs *o) {
    const struct braid_model *m = s->model;
    RtValue *v = calloc((size_t)(m->nin + m->nout) + 1, sizeof *v);
    Diag d = {0};
    if (!v) return rt_fail(o->e, BRAID_MEMORY, "out of memory");
    RtValue *r = v + m->nin;
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
    atomic_store(&s->cancelled, 0);
    Status st = interp_run(m->interp, &s->interp, v, r, &d);
    for (int i = 0; st == ST_OK && i < m->nout; i++) {
        out[i].data = r[i].data;
        out[i].dtype = (int32_t)r[i].dtype;
        out[i].rank = !r[i].present ? -1 : m->out[i].element == BRAID_SEQUENCE ? 1 : r[i].rank;
        memcpy(out[i].dim, r[i].dim, sizeof out[i].dim);
    }
    free(v);
    if (st) return rt_fail_diag(o->e, &d);
    if (atomic_load(&s->cancelled)) o->st = rt_fail(o->e, BRAID_CANCELLED, "the run was cancelled");
    for (int i = 0; i < m->nout; i++)
        if (!o->st)
            o->st = put_output(o, i, &out[i], true);
        else
            free(out[i].data);
    return o->st;
}

static braid_status run_library(braid_session *s, const bx_tensor *in, bx_tensor *out, Outputs *o) {
    const braid_model_v1 *lib = s->model->lib;
    const braid_tensor_v1 *from = (const braid_tensor_v1 *)in;
    braid_tensor_v1 *to = (braid_tensor_v1 *)out;
    char message[sizeof o->e->message] = "";
    int st = lib->run_into ? lib->run_into(s->lib_session, BRAID_IN_CPU_MEMORY, from, to,
                                           output_memory, o, message, sizeof message)
                           : lib->run(s->lib_session, from, to, message, sizeof message);
    if (o->st) return o->st;
    if (st) return rt_fail(o->e, (braid_status)st, "%s", message);
    for (int i = 0; !lib->run_into && !st && i < s->model->nout; i++)
        st = (int)put_output(o, i, &out[i], false);
    return (braid_status)st;
}

static braid_status run_values(braid_session *s, const braid_value *const *in,
                               braid_value *const *into, braid_value **out, braid_error *e) {
    const struct braid_model *m = s->model;
    const size_t nin = (size_t)m->nin, nout = (size_t)m->nout, n = nin + nout;
    bx_tensor *t = calloc(1, n * sizeof *t + (n + nout + 1) * sizeof(void *));
    if (!t) return rt_fail(e, BRAID_MEMORY, "out of memory");
    bx_tensor *r = t + nin;
    void **blob = (void **)(t + n);
    /* With limits of its own, a session's run may fail where the library says that none does. */
    const bool limited = s->options.max_iterations || s->options.stack_depth;
    Outputs o = {.m = m,
                 .into = into,
                 .direct = !m->lib || m->lib->run_on || !(m->lib->fails || limited),
                 .blob = blob + nin,
                 .made = (braid_value **)(blob + n),
                 .e = e};
    braid_status st = into ? check_all_into(m, into, e) : BRAID_OK;
    for (size_t i = 0; !st && i < nin; i++) st = take_input(&m->in[i], in[i], &t[i], &blob[i], e);
    if (!st) {
        pthread_mutex_lock(&s->lock);
        st = m->lib ? run_library(s, t, r, &o) : run_interp(s, t, r, &o);
        pthread_mutex_unlock(&s->lock);
    }
    for (int i = 0; !st && i < m->nout; i++) st = complete(&o, i, &r[i]);
    for (int i = 0; !st && i < m->nout; i++) {
        if (!into || !into[i]) {
            out[i] = o.made[i];
            o.made[i] = NULL;
        } else if (o.made[i] && into[i]->count)
            memcpy(into[i]->data, o.made[i]->data, (size_t)bx_seq_bytes_of(&r[i]));
    }
    free_outputs(&o);
    for (size_t i = 0; i < nin; i++) free(blob[i]);
    free(t);
    return st;
}

static braid_status run(braid_session *s, const braid_value *const *in, bool into,
                        braid_value **out, braid_error *e) {
    if (!s || (s->model->nin && !in) || (s->model->nout && !out))
        return rt_fail(e, BRAID_USAGE, "a null pointer was given");
    if (s->model->open) {
        braid_status st = find_ranked(s, in, &s, e);
        if (st) return st;
    }
    return run_values(s, in, into ? out : NULL, out, e);
}

braid_status braid_session_run(braid_session *s, const braid_value *const *in, braid_value **out,
                               braid_error *e) {
    return run(s, in, false, out, e);
}

braid_status braid_session_run_into(braid_session *s, const braid_value *const *in,
                                    braid_value **out, braid_error *e) {
    return run(s, in, true, out, e);
}
