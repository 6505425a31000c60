/* onnx_write.h: ONNX files written byte by byte, for tests. Every Sb made here is owned by the
 * caller until it is put into another message, which frees it.
 */
#ifndef BRAID_TESTS_ONNX_WRITE_H
#define BRAID_TESTS_ONNX_WRITE_H

#include "base/base.h"

/* ---- writing protobuf ----------------------------------------------------------------------- */

static inline void varint(Sb *s, uint64_t v) {
    do {
        char b = (char)((v & 127) | (v > 127 ? 128 : 0));
        sb_write(s, &b, 1);
        v >>= 7;
    } while (v);
}

static inline void pb_int(Sb *s, unsigned field, int64_t v) {
    varint(s, field << 3);
    varint(s, (uint64_t)v);
}

static inline void pb_bytes(Sb *s, unsigned field, const void *p, size_t n) {
    varint(s, field << 3 | 2);
    varint(s, n);
    if (n) sb_write(s, p, n);
}

static inline void pb_str(Sb *s, unsigned field, const char *str) {
    pb_bytes(s, field, str, strlen(str));
}

static inline void pb_float(Sb *s, unsigned field, float f) {
    varint(s, field << 3 | 5);
    sb_write(s, (const char *)&f, 4);
}

/* Appends m as a submessage and frees it. */
static inline void pb_msg(Sb *s, unsigned field, Sb m) {
    pb_bytes(s, field, m.p, m.n);
    sb_free(&m);
}

/* ---- writing ONNX --------------------------------------------------------------------------- */

/* Calls f for each of the comma-separated names ("" for an empty one). */
static inline void pb_names(Sb *s, unsigned field, const char *list) {
    if (!list) return;
    for (const char *p = list;; p++) {
        const char *end = strchr(p, ',');
        size_t n = end ? (size_t)(end - p) : strlen(p);
        pb_bytes(s, field, p, n);
        if (!end) return;
        p = end;
    }
}

/* A node named `name`; inputs and outputs comma-separated or NULL. */
static inline Sb node(const char *name, const char *op, const char *in, const char *out) {
    Sb s = {0};
    pb_names(&s, 1, in);
    pb_names(&s, 2, out);
    if (name) pb_str(&s, 3, name);
    pb_str(&s, 4, op);
    return s;
}

static inline Sb with_domain(Sb n, const char *domain) {
    pb_str(&n, 7, domain);
    return n;
}

static inline Sb attr_begin(const char *name, int type) {
    Sb a = {0};
    pb_str(&a, 1, name);
    pb_int(&a, 20, type);
    return a;
}

static inline Sb with_attr(Sb n, Sb a) {
    pb_msg(&n, 5, a);
    return n;
}

static inline Sb with_int(Sb n, const char *name, int64_t v) {
    Sb a = attr_begin(name, 2);
    pb_int(&a, 3, v);
    return with_attr(n, a);
}

static inline Sb with_float(Sb n, const char *name, float v) {
    Sb a = attr_begin(name, 1);
    pb_float(&a, 2, v);
    return with_attr(n, a);
}

static inline Sb with_string(Sb n, const char *name, const char *v) {
    Sb a = attr_begin(name, 3);
    pb_str(&a, 4, v);
    return with_attr(n, a);
}

static inline Sb with_ints(Sb n, const char *name, int count, const int64_t *v) {
    Sb a = attr_begin(name, 7);
    for (int i = 0; i < count; i++) pb_int(&a, 8, v[i]);
    return with_attr(n, a);
}

static inline Sb with_graph(Sb n, const char *name, Sb g) {
    Sb a = attr_begin(name, 5);
    pb_msg(&a, 6, g);
    return with_attr(n, a);
}

static inline Sb with_ref(Sb n, const char *name, int type, const char *ref) {
    Sb a = attr_begin(name, type);
    pb_str(&a, 21, ref);
    return with_attr(n, a);
}

/* A tensor of int64, given as raw data. */
static inline Sb tensor_i64(const char *name, int rank, const int64_t *dim, int n,
                            const int64_t *v) {
    Sb t = {0};
    for (int i = 0; i < rank; i++) pb_int(&t, 1, dim[i]);
    pb_int(&t, 2, DT_I64);
    pb_str(&t, 8, name);
    pb_bytes(&t, 9, v, (size_t)n * 8);
    return t;
}

static inline Sb scalar_i64(const char *name, int64_t v) {
    return tensor_i64(name, 0, NULL, 1, &v);
}

static inline Sb with_tensor(Sb n, const char *name, Sb t) {
    Sb a = attr_begin(name, 4);
    pb_msg(&a, 5, t);
    return with_attr(n, a);
}

/* Declared type of a tensor; rank -1: no shape; dims all `n`. */
static inline Sb tensor_type(int elem, int rank) {
    Sb t = {0}, shape = {0}, type = {0};
    pb_int(&t, 1, elem);
    for (int i = 0; i < rank; i++) {
        Sb dim = {0};
        if (i == 0)
            pb_str(&dim, 2, "N");
        else
            pb_int(&dim, 1, 3);
        pb_msg(&shape, 1, dim);
    }
    if (rank >= 0)
        pb_msg(&t, 2, shape);
    else
        sb_free(&shape);
    pb_msg(&type, 1, t);
    return type;
}

static inline Sb value_info(const char *name, Sb type) {
    Sb v = {0};
    pb_str(&v, 1, name);
    pb_msg(&v, 2, type);
    return v;
}

/* A graph: parts are appended in any order with these. */
static inline void g_node(Sb *g, Sb n) { pb_msg(g, 1, n); }
static inline void g_init(Sb *g, Sb t) { pb_msg(g, 5, t); }
static inline void g_in(Sb *g, const char *names) {
    for (const char *p = names; p; p = strchr(p, ',') ? strchr(p, ',') + 1 : NULL) {
        char name[64];
        snprintf(name, sizeof name, "%.*s", (int)strcspn(p, ","), p);
        pb_msg(g, 11, value_info(name, tensor_type(DT_F32, 2)));
    }
}
static inline void g_out(Sb *g, const char *names) {
    for (const char *p = names; p; p = strchr(p, ',') ? strchr(p, ',') + 1 : NULL) {
        char name[64];
        snprintf(name, sizeof name, "%.*s", (int)strcspn(p, ","), p);
        Sb v = {0};
        pb_str(&v, 1, name);
        pb_msg(g, 12, v);
    }
}

static inline Sb opset(const char *domain, int64_t version) {
    Sb o = {0};
    pb_str(&o, 1, domain);
    pb_int(&o, 2, version);
    return o;
}

static inline Sb model(Sb graph, int version) {
    Sb m = {0};
    pb_int(&m, 1, 8);
    pb_msg(&m, 7, graph);
    if (version) pb_msg(&m, 8, opset("", version));
    return m;
}

static inline void m_function(Sb *m, Sb f) { pb_msg(m, 25, f); }

/* A function of domain "my" with default-domain opset 18; nodes are appended as field 7. */
static inline Sb function(const char *name, const char *in, const char *out) {
    Sb f = {0};
    pb_str(&f, 1, name);
    pb_names(&f, 4, in);
    pb_names(&f, 5, out);
    pb_str(&f, 10, "my");
    pb_msg(&f, 9, opset("", 18));
    pb_msg(&f, 9, opset("my", 1));
    return f;
}

static inline void f_node(Sb *f, Sb n) { pb_msg(f, 7, n); }

#endif
