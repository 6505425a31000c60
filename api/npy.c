/* npy.c: reads and writes NumPy's .npy files, versions 1.0 to 3.0.
 *
 * A file is "\x93NUMPY", a version, the header's length (2 bytes in version 1, 4 bytes later), the
 * header (a Python dictionary with 'descr', 'fortran_order', 'shape'), and the elements. The file
 * is not trusted: everything is checked against the file's length before it is used.
 */
#include <stdlib.h>

#include "api/runtime.h"

typedef struct Cursor {
    const char *p, *end;
} Cursor;

typedef struct Header {
    char descr[16];
    bool fortran, seen[3]; /* seen: descr, fortran_order, shape */
    int rank;
    int64_t dim[MAX_RANK];
} Header;

static void skip_space(Cursor *c) {
    while (c->p < c->end && (*c->p == ' ' || *c->p == '\t' || *c->p == '\n' || *c->p == '\r'))
        c->p++;
}
static bool eat(Cursor *c, char ch) {
    skip_space(c);
    if (c->p == c->end || *c->p != ch) return false;
    c->p++;
    return true;
}
static bool eat_word(Cursor *c, const char *word) {
    size_t n = strlen(word);
    skip_space(c);
    if ((size_t)(c->end - c->p) < n || memcmp(c->p, word, n) != 0) return false;
    c->p += n;
    return true;
}
/* Reads a quoted string without escapes, cut to the buffer's size: all known names are shorter. */
static bool eat_string(Cursor *c, char *out, size_t size) {
    char quote = eat(c, '\'') ? '\'' : eat(c, '"') ? '"' : 0;
    if (!quote) return false;
    size_t n = 0;
    for (; c->p < c->end && *c->p != quote; c->p++)
        if (n + 1 < size) out[n++] = *c->p;
    out[n] = 0;
    return eat(c, quote);
}
static bool eat_number(Cursor *c, int64_t *v) {
    skip_space(c);
    const char *start = c->p;
    for (*v = 0; c->p < c->end && *c->p >= '0' && *c->p <= '9'; c->p++) {
        if (*v > (INT64_MAX - 9) / 10) return false;
        *v = *v * 10 + (*c->p - '0');
    }
    eat(c, 'L'); /* Python 2 wrote long integers with an L */
    return c->p > start;
}

static braid_status parse_header(Cursor *c, Header *h, braid_error *e) {
    char key[32];
    if (!eat(c, '{')) return rt_fail(e, BRAID_INPUT, "its .npy header is not a dictionary");
    while (!eat(c, '}')) {
        bool good = eat_string(c, key, sizeof key) && eat(c, ':');
        if (good && strcmp(key, "descr") == 0) {
            good = !h->seen[0] && eat_string(c, h->descr, sizeof h->descr);
            if (!good)
                return rt_fail(e, BRAID_INPUT, "its element type is a record, or unreadable");
            h->seen[0] = true;
        } else if (good && strcmp(key, "fortran_order") == 0) {
            h->fortran = eat_word(c, "True");
            good = !h->seen[1] && (h->fortran || eat_word(c, "False"));
            h->seen[1] = true;
        } else if (good && strcmp(key, "shape") == 0) {
            good = !h->seen[2] && eat(c, '(');
            h->seen[2] = true;
            while (good && !eat(c, ')')) {
                if (h->rank == MAX_RANK)
                    return rt_fail(e, BRAID_INPUT, "it has more than %d axes", MAX_RANK);
                good = eat_number(c, &h->dim[h->rank++]);
                if (good && !eat(c, ',')) {
                    good = eat(c, ')');
                    break;
                }
            }
        } else
            good = false;
        if (!good) return rt_fail(e, BRAID_INPUT, "its .npy header is malformed");
        if (!eat(c, ',')) {
            if (eat(c, '}')) break;
            return rt_fail(e, BRAID_INPUT, "its .npy header is malformed");
        }
    }
    if (!h->seen[0] || !h->seen[1] || !h->seen[2])
        return rt_fail(e, BRAID_INPUT, "its .npy header lacks an entry");
    return BRAID_OK;
}

static const struct {
    char code[4];
    braid_dtype dtype;
} npy_types[] = {{"f4", BRAID_FLOAT32}, {"f8", BRAID_FLOAT64}, {"f2", BRAID_FLOAT16},
                 {"i1", BRAID_INT8},    {"i2", BRAID_INT16},   {"i4", BRAID_INT32},
                 {"i8", BRAID_INT64},   {"u1", BRAID_UINT8},   {"u2", BRAID_UINT16},
                 {"u4", BRAID_UINT32},  {"u8", BRAID_UINT64},  {"b1", BRAID_BOOL},
                 {"V2", BRAID_BFLOAT16}};

/* Sets *t to the declared small type if the elements are bytes. */
static bool parse_small(const char *s, braid_dtype declared, braid_dtype *t) {
    static const char *const names[] = {"V1", "u1", "i1", "f1"};
    if (*s && strchr("<>|=", *s)) s++;
    if (!dtype_small((DType)declared)) return false;
    for (size_t i = 0; i < COUNT(names); i++)
        if (!strcmp(s, names[i])) {
            *t = declared;
            return true;
        }
    return false;
}

/* Checks the codes of a small type. `values`: the bytes are integer values and become codes. */
static braid_status check_codes(braid_value *v, bool values, braid_error *e) {
    const Small *s = dtype_small((DType)v->dtype);
    uint8_t *code = v->data;
    for (int64_t i = 0; i < v->count; i++) {
        bool good = code[i] <= small_mask(s);
        if (values && !s->is_float) {
            int8_t was = (int8_t)code[i];
            code[i] &= small_mask(s);
            good = small_value((DType)v->dtype, code[i]) == was;
        }
        if (!good)
            return rt_fail(e, BRAID_INPUT, "its element %lld is no %s", (long long)i,
                           braid_dtype_name(v->dtype));
    }
    return BRAID_OK;
}

static braid_status parse_descr(const char *s, braid_dtype declared, braid_dtype *t,
                                braid_error *e) {
    if (parse_small(s, declared, t)) return BRAID_OK;
    if (strcmp(s, "bfloat16") == 0) {
        *t = BRAID_BFLOAT16;
        return BRAID_OK;
    }
    char order = *s && strchr("<>|=", *s) ? *s++ : '=';
    for (size_t i = 0; i < COUNT(npy_types); i++) {
        if (strcmp(s, npy_types[i].code) != 0) continue;
        *t = npy_types[i].dtype;
        if (*t == BRAID_BFLOAT16 && declared != BRAID_BFLOAT16) break;
        if (order == '>' && braid_dtype_size(*t) > 1)
            return rt_fail(e, BRAID_INPUT, "its elements are big-endian ('>%s')", s);
        return BRAID_OK;
    }
    return rt_fail(e, BRAID_INPUT, "its element type '%s' is not supported", s);
}

/* Copies elements from column-major to row-major order. */
static void transpose(const char *from, char *to, size_t size, int rank, const int64_t *dim,
                      int64_t count) {
    int64_t idx[MAX_RANK] = {0}, stride[MAX_RANK], step = 1, at = 0;
    for (int i = 0; i < rank; step *= dim[i++]) stride[i] = step;
    for (int64_t n = 0; n < count; n++) {
        memcpy(to + (size_t)n * size, from + (size_t)at * size, size);
        for (int i = rank - 1; i >= 0; i--) {
            at += stride[i];
            if (++idx[i] < dim[i]) break;
            at -= stride[i] * dim[i];
            idx[i] = 0;
        }
    }
}

braid_status npy_parse(const void *bytes, size_t n, braid_dtype declared, braid_value **value,
                       braid_error *e) {
    const unsigned char *b = bytes;
    if (n < 10 || memcmp(b, "\x93NUMPY", 6) != 0) return rt_fail(e, BRAID_INPUT, "not a .npy file");
    int version = b[6];
    if (version < 1 || version > 3)
        return rt_fail(e, BRAID_INPUT, "its .npy version %d is not supported", version);
    size_t start = version == 1 ? 10 : 12, length = (size_t)b[8] | (size_t)b[9] << 8;
    if (version > 1 && n >= 12) length |= (size_t)b[10] << 16 | (size_t)b[11] << 24;
    if (n < start || length > n - start)
        return rt_fail(e, BRAID_INPUT, "it ends in the middle of its .npy header");
    Header h = {0};
    Cursor c = {(const char *)b + start, (const char *)b + start + length};
    braid_status st = parse_header(&c, &h, e);
    braid_dtype t;
    if (st || (st = parse_descr(h.descr, declared, &t, e))) return st;
    int64_t need = rt_tensor_bytes(t, h.rank, h.dim), have = (int64_t)(n - start - length);
    if (need < 0) return rt_fail(e, BRAID_INPUT, "its shape is out of range");
    if (need != have)
        return rt_fail(e, BRAID_INPUT, "its shape needs %lld bytes of elements, it has %lld",
                       (long long)need, (long long)have);
    const char *data = (const char *)b + start + length;
    braid_value *v;
    if ((st = braid_value_new_tensor(t, h.rank, h.dim, h.fortran ? NULL : data, &v, e))) return st;
    if (h.fortran) transpose(data, v->data, braid_dtype_size(t), h.rank, h.dim, v->count);
    if (t == BRAID_BOOL)
        for (int64_t i = 0; i < v->count; i++)
            ((uint8_t *)v->data)[i] = ((uint8_t *)v->data)[i] != 0;
    if (dtype_small((DType)t) && (st = check_codes(v, strstr(h.descr, "i1") != NULL, e)))
        braid_value_free(v);
    else
        *value = v;
    return st;
}

void npy_print(Sb *s, const braid_value *v) {
    Sb head = {0};
    const char *code = "V1"; /* as NumPy writes arrays of ml_dtypes */
    for (size_t i = 0; i < COUNT(npy_types); i++)
        if (npy_types[i].dtype == v->dtype) code = npy_types[i].code;
    sb_printf(&head, "{'descr': '%c%s', 'fortran_order': False, 'shape': (",
              braid_dtype_size(v->dtype) == 1 ? '|' : '<', code);
    for (int i = 0; i < v->rank; i++)
        sb_printf(&head, "%s%lld", i ? ", " : "", (long long)v->dim[i]);
    sb_puts(&head, v->rank == 1 ? ",), }" : "), }");
    /* The header ends with a line break, and the elements start at a multiple of 64 bytes. */
    size_t pad = 63 - (10 + head.n) % 64;
    size_t length = head.n + pad + 1;
    if (head.failed) sb_fail(s);
    sb_write(s, "\x93NUMPY\x01\x00", 8);
    sb_write(s, (char[]){(char)(length & 255), (char)(length >> 8)}, 2);
    sb_write(s, head.p, head.n);
    for (size_t i = 0; i < pad; i++) sb_write(s, " ", 1);
    sb_write(s, "\n", 1);
    sb_write(s, v->data, (size_t)v->count * braid_dtype_size(v->dtype));
    sb_free(&head);
}
