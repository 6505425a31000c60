/* value.c: tensors, sequences and optionals of the public API; error texts and type names. */
#include <math.h>
#include <stdlib.h>

#include "api/runtime.h"

braid_status rt_fail(braid_error *e, braid_status s, const char *fmt, ...) {
    if (!e) return s;
    e->status = s;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(e->message, sizeof e->message, fmt, ap);
    va_end(ap);
    for (char *p = e->message; *p; p++)
        if ((unsigned char)*p < ' ') *p = ' ';
    return s;
}

braid_status rt_fail_diag(braid_error *e, const Diag *d) {
    return rt_fail(e, (braid_status)d->status, "%s", d->message);
}

const char *braid_version(void) { return BRAID_VERSION; }

const char *braid_status_text(braid_status s) {
    switch (s) {
    case BRAID_OK: return "ok";
    case BRAID_MODEL: return "invalid model";
    case BRAID_UNSUPPORTED: return "unsupported";
    case BRAID_INPUT: return "invalid input";
    case BRAID_RUNTIME: return "run-time fault";
    case BRAID_MEMORY: return "out of memory";
    case BRAID_IO: return "input/output error";
    case BRAID_USAGE: return "wrong usage";
    case BRAID_CANCELLED: return "cancelled";
    }
    return "unknown status";
}

const char *braid_dtype_name(braid_dtype t) {
    return dtype_supported(t) ? dtype_name(t) : t == BRAID_DTYPE_NONE ? "undefined" : "unknown";
}

size_t braid_dtype_size(braid_dtype t) { return dtype_supported(t) ? dtype_size((DType)t) : 0; }

char *rt_text(const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    char *s = malloc((size_t)n + 1);
    if (!s) return NULL;
    va_start(ap, fmt);
    vsnprintf(s, (size_t)n + 1, fmt, ap);
    va_end(ap);
    return s;
}

int64_t rt_tensor_bytes(braid_dtype dtype, int rank, const int64_t *dim) {
    int64_t bytes = (int64_t)braid_dtype_size(dtype);
    bool empty = false;
    if (bytes == 0 || rank < 0 || rank > MAX_RANK) return -1;
    /* Even if a zero makes the tensor empty, the product of the other dims must be valid. */
    for (int i = 0; i < rank; i++) {
        if (dim[i] < 0) return -1;
        if (dim[i] == 0)
            empty = true;
        else if (!mul_size(bytes, dim[i], &bytes) || bytes > RT_MAX_BYTES)
            return -1;
    }
    return empty ? 0 : bytes;
}

static braid_status new_value(braid_kind kind, braid_dtype dtype, braid_value **v, braid_error *e) {
    *v = calloc(1, sizeof **v);
    if (!*v) return rt_fail(e, BRAID_MEMORY, "out of memory");
    (*v)->kind = kind;
    (*v)->dtype = dtype;
    return BRAID_OK;
}

static braid_status new_tensor(braid_dtype dtype, int rank, const int64_t *dim, void *data,
                               bool owns, braid_value **value, braid_error *e) {
    braid_value *v;
    const int64_t bytes = rt_tensor_bytes(dtype, rank, dim);
    if (bytes < 0)
        return rt_fail(e, BRAID_USAGE, "not a tensor: element type %d, rank %d, or a dimension",
                       (int)dtype, rank);
    braid_status st = new_value(BRAID_TENSOR, dtype, &v, e);
    if (st) return st;
    v->rank = rank;
    for (int i = 0; i < rank; i++) v->dim[i] = dim[i];
    v->count = bytes / (int64_t)braid_dtype_size(dtype);
    v->data = data;
    v->owns = owns;
    *value = v;
    return BRAID_OK;
}

braid_status braid_value_new_tensor(braid_dtype dtype, int32_t rank, const int64_t *dim,
                                    const void *data, braid_value **value, braid_error *e) {
    if (!value || (rank > 0 && !dim)) return rt_fail(e, BRAID_USAGE, "a null pointer was given");
    braid_value *v;
    braid_status st = rt_value_new_output(dtype, rank, dim, &v, e);
    if (st) return st;
    const size_t bytes = (size_t)rt_tensor_bytes(dtype, rank, dim);
    if (data && bytes)
        memcpy(v->data, data, bytes);
    else
        memset(v->data, 0, bytes);
    *value = v;
    return BRAID_OK;
}

braid_status rt_value_new_output(braid_dtype dtype, int rank, const int64_t *dim, braid_value **v,
                                 braid_error *e) {
    int64_t bytes = rt_tensor_bytes(dtype, rank, dim);
    void *data = aligned_alloc(64, bytes > 0 ? ((size_t)bytes + 63) & ~(size_t)63 : 64);
    if (!data) return rt_fail(e, BRAID_MEMORY, "out of memory for %lld bytes", (long long)bytes);
    return rt_value_take(dtype, rank, dim, data, v, e);
}

braid_status rt_value_take(braid_dtype dtype, int rank, const int64_t *dim, void *data,
                           braid_value **v, braid_error *e) {
    braid_status st = new_tensor(dtype, rank, dim, data, true, v, e);
    if (st) free(data);
    return st;
}

braid_status braid_value_borrow_tensor(braid_dtype dtype, int32_t rank, const int64_t *dim,
                                       void *data, braid_value **value, braid_error *e) {
    if (!value || (rank > 0 && !dim) || (!data && rt_tensor_bytes(dtype, rank, dim) > 0))
        return rt_fail(e, BRAID_USAGE, "a null pointer was given");
    return new_tensor(dtype, rank, dim, data, false, value, e);
}

braid_status braid_value_new_sequence(braid_dtype dtype, braid_value **value, braid_error *e) {
    if (!value) return rt_fail(e, BRAID_USAGE, "a null pointer was given");
    if (dtype != BRAID_DTYPE_NONE && !dtype_supported(dtype))
        return rt_fail(e, BRAID_USAGE, "not an element type: %d", (int)dtype);
    return new_value(BRAID_SEQUENCE, dtype, value, e);
}

static braid_status push(braid_value *v, braid_value *item, braid_error *e) {
    if (v->nitem == v->capacity) {
        int room = v->capacity ? 2 * v->capacity : 4;
        braid_value **p = realloc(v->item, (size_t)room * sizeof *p);
        if (!p) return rt_fail(e, BRAID_MEMORY, "out of memory");
        v->item = p;
        v->capacity = room;
    }
    v->item[v->nitem++] = item;
    return BRAID_OK;
}

braid_status braid_value_new_optional(braid_value *element, braid_value **value, braid_error *e) {
    braid_value *v;
    if (!value) return rt_fail(e, BRAID_USAGE, "a null pointer was given");
    if (element && element->kind == BRAID_OPTIONAL)
        return rt_fail(e, BRAID_USAGE, "an optional cannot hold an optional");
    braid_status st = new_value(BRAID_OPTIONAL, element ? element->dtype : BRAID_DTYPE_NONE, &v, e);
    if (st) return st;
    if (element && (st = push(v, element, e))) {
        free(v);
        return st;
    }
    *value = v;
    return BRAID_OK;
}

braid_status braid_value_append(braid_value *seq, braid_value *t, braid_error *e) {
    if (!seq || !t || seq->kind != BRAID_SEQUENCE || t->kind != BRAID_TENSOR)
        return rt_fail(e, BRAID_USAGE, "append takes a sequence and a tensor");
    if (seq->dtype != BRAID_DTYPE_NONE && seq->dtype != t->dtype)
        return rt_fail(e, BRAID_USAGE, "a %s tensor does not go into a sequence of %s",
                       braid_dtype_name(t->dtype), braid_dtype_name(seq->dtype));
    braid_status st = push(seq, t, e);
    if (st == BRAID_OK) seq->dtype = t->dtype;
    return st;
}

void braid_value_free(braid_value *v) {
    if (!v) return;
    for (int i = 0; i < v->nitem; i++) braid_value_free(v->item[i]);
    free(v->item);
    if (v->owns) free(v->data);
    free(v);
}

braid_kind braid_value_kind(const braid_value *v) { return v->kind; }
braid_dtype braid_value_dtype(const braid_value *v) { return v->dtype; }
int32_t braid_value_rank(const braid_value *v) { return v->rank; }
const int64_t *braid_value_dim(const braid_value *v) { return v->dim; }
void *braid_value_data(const braid_value *v) { return v->data; }
int64_t braid_value_count(const braid_value *v) {
    return v->kind == BRAID_TENSOR ? v->count : v->nitem;
}
braid_value *braid_value_item(const braid_value *v, int64_t i) {
    return i >= 0 && i < v->nitem ? v->item[i] : NULL;
}

braid_status rt_value_random(const braid_io *io, uint64_t *seed, braid_value **v, braid_error *e) {
    int64_t dim[BRAID_RANK_LIMIT];
    *v = NULL;
    if (io->kind == BRAID_OPTIONAL) return BRAID_OK;
    if (io->kind == BRAID_SEQUENCE) return braid_value_new_sequence(io->dtype, v, e);
    if (io->rank < 0)
        return rt_fail(e, BRAID_INPUT,
                       "input '%s' declares no rank: give it (-i), or its shape (--input-shape)",
                       io->name);
    for (int i = 0; i < io->rank; i++) dim[i] = io->dim[i] < 0 ? 1 : io->dim[i];
    braid_dtype t = io->dtype ? io->dtype : BRAID_FLOAT32;
    braid_status st = braid_value_new_tensor(t, io->rank, dim, NULL, v, e);
    const Small *small = dtype_small((DType)t);
    bool floats = small ? small->is_float : dtype_is_float((DType)t);
    for (int64_t i = 0; !st && floats && i < braid_value_count(*v); i++) {
        do {
            *seed = *seed * 6364136223846793005u + 1442695040888963407u;
            if (small)
                elem_set_i((DType)t, braid_value_data(*v), i,
                           t == BRAID_FLOAT8E8M0 ? small->bias : (int64_t)(*seed >> 40));
            else
                elem_set_f((DType)t, braid_value_data(*v), i, (double)(*seed >> 40) * 0x1p-23 - 1);
        } while (!(fabs(elem_get_f((DType)t, braid_value_data(*v), i)) <= 1));
    }
    return st;
}
