/* import_tensor.c: turns TensorProtos and SparseTensorProtos into Consts. */
#define _XOPEN_SOURCE 700
#include "frontend/import.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define ALIGN ((uintptr_t)64)

/* Checks dims and fills rank, dim, count. */
static void set_dims(Import *im, Const *c, const int64_t *dim, size_t n, const char *where) {
    if (n > MAX_RANK)
        err(im->d, ST_UNSUPPORTED, NULL, "%s: rank %zu is above the limit of %d", where, n,
            MAX_RANK);
    c->rank = (int)n;
    c->count = 1;
    int64_t bytes = (int64_t)dtype_size(c->dtype);
    bool empty = false;
    for (size_t i = 0; i < n; i++) {
        if (dim[i] < 0)
            err(im->d, im->bad, NULL, "%s: negative dimension %lld", where, (long long)dim[i]);
        c->dim[i] = dim[i];
        if (dim[i] == 0)
            empty = true;
        else if (!mul_size(c->count, dim[i], &c->count) || !mul_size(bytes, dim[i], &bytes))
            err(im->d, im->bad, NULL, "%s: the tensor is too large", where);
    }
    if (empty) c->count = 0;
}

Const *const_new(Import *im, DType t, int rank, const int64_t *dim, int64_t count) {
    Const *c = NEW(im->a, Const);
    c->dtype = t;
    c->rank = rank;
    for (int i = 0; i < rank; i++) c->dim[i] = dim[i];
    c->count = count;
    size_t bytes = (size_t)count * dtype_size(t);
    c->data = arena_alloc(im->a, bytes < ALIGN ? ALIGN : bytes);
    return c;
}

/* ---- data in another file ------------------------------------------------------------------- */

static int64_t parse_size(Import *im, const char *s, const char *what, const char *where) {
    char *end;
    errno = 0;
    long long v = strtoll(s, &end, 10);
    if (errno || end == s || *end || v < 0)
        err(im->d, im->bad, NULL, "%s: bad %s '%s' of external data", where, what, s);
    return v;
}

/* The real path of `location`. It must lie in the model's folder, also after following links. */
static const char *external_path(Import *im, const char *location, const char *where) {
    if (!im->dir)
        err(im->d, ST_UNSUPPORTED, NULL,
            "%s: external data lies in the model's folder, but the model in memory has no path",
            where);
    bool outside = location[0] == '/' || !location[0];
    for (const char *p = location; *p; p++)
        if ((p == location || p[-1] == '/') && p[0] == '.' && p[1] == '.' && (!p[2] || p[2] == '/'))
            outside = true;
    if (outside)
        err(im->d, im->bad, NULL, "%s: external data '%s' is not in the model's folder", where,
            location);
    char root[PATH_MAX], file[PATH_MAX];
    if (!realpath(im->dir, root))
        err(im->d, ST_IO, NULL, "%s: %s: %s", where, im->dir, strerror(errno));
    const char *joined = arena_printf(im->a, "%s/%s", root, location);
    if (!realpath(joined, file))
        err(im->d, ST_IO, NULL, "%s: %s: %s", where, joined, strerror(errno));
    size_t n = strcmp(root, "/") ? strlen(root) : 0;
    if (strncmp(file, root, n) || file[n] != '/')
        err(im->d, im->bad, NULL, "%s: external data '%s' leads out of the model's folder", where,
            location);
    return arena_strdup(im->a, file);
}

static const void *read_external(Import *im, const Onnx__TensorProto *t, size_t bytes,
                                 const char *where) {
    const char *location = NULL;
    int64_t offset = 0, length = -1;
    for (size_t i = 0; i < t->n_external_data; i++) {
        const char *key = t->external_data[i]->key, *value = t->external_data[i]->value;
        if (!strcmp(key, "location")) location = value;
        if (!strcmp(key, "offset")) offset = parse_size(im, value, key, where);
        if (!strcmp(key, "length")) length = parse_size(im, value, key, where);
    }
    if (!location) err(im->d, im->bad, NULL, "%s: external data without a location", where);
    if (length >= 0 && (uint64_t)length != bytes)
        err(im->d, im->bad, NULL, "%s: external data of %lld bytes, the dimensions need %zu", where,
            (long long)length, bytes);
    const char *path = external_path(im, location, where);
    struct stat st;
    if (stat(path, &st)) err(im->d, ST_IO, NULL, "%s: %s: %s", where, path, strerror(errno));
    if (!S_ISREG(st.st_mode)) err(im->d, im->bad, NULL, "%s: %s is not a file", where, path);
    if (offset > st.st_size || (uint64_t)(st.st_size - offset) < bytes)
        err(im->d, im->bad, NULL, "%s: external data '%s' is too short", where, location);
    char *p = arena_alloc(im->a, bytes < ALIGN ? ALIGN : bytes);
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) err(im->d, ST_IO, NULL, "%s: %s: %s", where, path, strerror(errno));
    for (size_t at = 0; at < bytes;) {
        ssize_t k = pread(fd, p + at, bytes - at, (off_t)offset + (off_t)at);
        if (k < 0 && errno == EINTR) continue;
        if (k <= 0) {
            close(fd);
            err(im->d, ST_IO, NULL, "%s: %s cannot be read", where, path);
        }
        at += (size_t)k;
    }
    close(fd);
    return p;
}

/* ---- data in the message -------------------------------------------------------------------- */

/* The typed field of t that holds elements of type dtype: *n elements of *width bytes each. */
static const void *typed_field(const Onnx__TensorProto *t, DType dtype, size_t *n, size_t *width) {
    switch (dtype) {
    case DT_F32: *n = t->n_float_data, *width = 4; return t->float_data;
    case DT_F64: *n = t->n_double_data, *width = 8; return t->double_data;
    case DT_I64: *n = t->n_int64_data, *width = 8; return t->int64_data;
    case DT_U32:
    case DT_U64: *n = t->n_uint64_data, *width = 8; return t->uint64_data;
    default: *n = t->n_int32_data, *width = 4; return t->int32_data;
    }
}

/* Copies n elements of type t from integers of `width` bytes. */
static void narrow(DType t, void *to, const void *from, size_t width, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        uint64_t v;
        if (width == 8) {
            v = ((const uint64_t *)from)[i];
        } else {
            v = ((const uint32_t *)from)[i];
        }
        switch (dtype_size(t)) {
        case 1: ((uint8_t *)to)[i] = (uint8_t)v; break;
        case 2: ((uint16_t *)to)[i] = (uint16_t)v; break;
        default: ((uint32_t *)to)[i] = (uint32_t)v; break;
        }
    }
}

/* `p` itself if it is aligned as payloads must be, else a copy. */
static const void *aligned(Import *im, const void *p, size_t bytes) {
    if (bytes >= ALIGN && ((uintptr_t)p & (ALIGN - 1)) == 0) return p;
    void *q = arena_alloc(im->a, bytes < ALIGN ? ALIGN : bytes);
    if (bytes) memcpy(q, p, bytes);
    return q;
}

static _Noreturn void wrong_length(Import *im, const char *where, size_t have, const char *unit,
                                   int64_t need) {
    err(im->d, im->bad, NULL, "%s: %zu %s of data, the dimensions need %lld", where, have, unit,
        (long long)need);
}

/* Unpacks c's codes of fewer than 8 bits, each into a byte of its own. In int32_data, an entry is a
 * byte of the packed form, or one code of 6 bits. */
static const void *import_codes(Import *im, const Onnx__TensorProto *t, const Const *c,
                                const char *where) {
    size_t n = (size_t)c->count, bytes = small_packed(c->dtype, c->count);
    bool single = dtype_small(c->dtype)->bits == 6, field = false;
    const void *from = t->raw_data.data;
    if (t->data_location == 1) {
        from = read_external(im, t, bytes, where);
    } else if (t->raw_data.len || !t->n_int32_data) {
        if (t->raw_data.len != bytes)
            wrong_length(im, where, t->raw_data.len, "bytes", (int64_t)bytes);
    } else {
        if (t->n_int32_data != (single ? n : bytes))
            wrong_length(im, where, t->n_int32_data, "entries", (int64_t)(single ? n : bytes));
        field = true;
    }
    uint8_t *to = arena_alloc(im->a, n < ALIGN ? ALIGN : n);
    if (field && single) {
        for (size_t i = 0; i < n; i++) to[i] = t->int32_data[i] & 63;
    } else {
        if (field) {
            uint8_t *packed = arena_alloc(im->a, bytes);
            narrow(DT_U8, packed, t->int32_data, 4, (int64_t)bytes);
            from = packed;
        }
        small_unpack(c->dtype, c->count, from, to);
    }
    return to;
}

const Const *tensor_import(Import *im, const Onnx__TensorProto *t, const char *where) {
    const Const *known = im->tensor ? map_geti(im->tensor, (uintptr_t)t) : NULL;
    if (known) return known;
    if (t->data_type == 0) err(im->d, im->bad, NULL, "%s: the tensor has no element type", where);
    if (!dtype_supported(t->data_type))
        err(im->d, ST_UNSUPPORTED, NULL, "%s: element type %s is not supported", where,
            dtype_name(t->data_type));
    if (t->segment)
        err(im->d, ST_UNSUPPORTED, NULL, "%s: segmented tensors are not supported", where);
    Const *c = NEW(im->a, Const);
    c->dtype = (DType)t->data_type;
    set_dims(im, c, t->dims, t->n_dims, where);
    size_t bytes = (size_t)c->count * dtype_size(c->dtype), n, width;
    const void *field = typed_field(t, c->dtype, &n, &width);
    const Small *small = dtype_small(c->dtype);
    if (small && small->bits < 8) {
        c->data = import_codes(im, t, c, where);
    } else if (t->data_location == 1) {
        c->data = read_external(im, t, bytes, where);
    } else if (t->raw_data.len || !n) {
        if (t->raw_data.len != bytes)
            wrong_length(im, where, t->raw_data.len, "bytes", (int64_t)bytes);
        c->data = aligned(im, t->raw_data.data, bytes);
    } else {
        if (n != (uint64_t)c->count) wrong_length(im, where, n, "elements", c->count);
        if (width == dtype_size(c->dtype)) {
            c->data = aligned(im, field, bytes);
        } else {
            void *p = arena_alloc(im->a, bytes < ALIGN ? ALIGN : bytes);
            narrow(c->dtype, p, field, width, c->count);
            c->data = p;
        }
    }
    if (c->dtype == DT_BOOL) { /* any byte but 0 is true; this memory is the arena's */
        uint8_t *p = (uint8_t *)(uintptr_t)c->data;
        for (int64_t i = 0; i < c->count; i++) p[i] = p[i] != 0;
    }
    if (im->tensor) map_seti(im->tensor, (uintptr_t)t, c);
    return c;
}

const Const *sparse_import(Import *im, const Onnx__SparseTensorProto *t, const char *where) {
    const Const *known = map_geti(im->tensor, (uintptr_t)t);
    if (known) return known;
    if (!t->values || !t->indices)
        err(im->d, im->bad, NULL, "%s: a sparse tensor needs values and indices", where);
    const Const *val = tensor_import(im, t->values, where);
    const Const *idx = tensor_import(im, t->indices, where);
    Const shape = {.dtype = val->dtype};
    set_dims(im, &shape, t->dims, t->n_dims, where);
    int rank = shape.rank;
    if (val->rank != 1 || idx->dtype != DT_I64 || idx->rank < 1 || idx->rank > 2 ||
        idx->dim[0] != val->count || (idx->rank == 2 && idx->dim[1] != rank))
        err(im->d, im->bad, NULL, "%s: values and indices of the sparse tensor do not fit", where);
    size_t size = dtype_size(val->dtype);
    count_copied(im, (size_t)shape.count * size, where);
    Const *c = const_new(im, val->dtype, rank, shape.dim, shape.count);
    const int64_t *index = idx->data;
    for (int64_t i = 0; i < val->count; i++) {
        int64_t at = 0;
        if (idx->rank == 1) {
            at = index[i];
        } else {
            for (int k = 0; k < rank; k++) {
                int64_t j = index[i * rank + k];
                if (j < 0 || j >= c->dim[k])
                    err(im->d, im->bad, NULL, "%s: index out of range in the sparse tensor", where);
                at = at * c->dim[k] + j;
            }
        }
        if (at < 0 || at >= c->count)
            err(im->d, im->bad, NULL, "%s: index out of range in the sparse tensor", where);
        memcpy((char *)(uintptr_t)c->data + (size_t)at * size,
               (const char *)val->data + (size_t)i * size, size);
    }
    map_seti(im->tensor, (uintptr_t)t, c);
    return c;
}
