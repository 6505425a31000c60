/* wire.c: turns bytes into protobuf messages, safely.
 *
 * protobuf-c recurses and allocates as the bytes tell it. So this file first walks the wire format
 * with the same descriptors, to bound the depth and to report damage with a clear message.
 * Unpacking then allocates from the arena, up to a limit in proportion to the input.
 */
#include "frontend/import.h"

typedef struct Wire {
    Import *im;
    const char *what;
    size_t left; /* bytes that unpacking may still allocate */
} Wire;

static _Noreturn void damaged(const Wire *w) {
    err(w->im->d, w->im->bad, NULL, "%s: not a valid protobuf message (damaged or cut off)",
        w->what);
}

static uint64_t varint(const Wire *w, const uint8_t **p, const uint8_t *end) {
    uint64_t v = 0;
    for (int shift = 0; shift < 64; shift += 7) {
        if (*p == end) damaged(w);
        uint8_t b = *(*p)++;
        v |= (uint64_t)(b & 127) << shift;
        if (b < 128) return v;
    }
    damaged(w);
}

static void walk(const Wire *w, const ProtobufCMessageDescriptor *m, const uint8_t *p,
                 const uint8_t *end, int depth) {
    if (depth > MAX_MESSAGES)
        err(w->im->d, ST_UNSUPPORTED, NULL, "%s: subgraphs are nested deeper than %d", w->what,
            MAX_NESTING);
    while (p < end) {
        uint64_t key = varint(w, &p, end);
        if (key >> 32) damaged(w);
        size_t n;
        switch (key & 7) {
        case 0: varint(w, &p, end); continue;
        case 1: n = 8; break;
        case 5: n = 4; break;
        case 2: {
            uint64_t len = varint(w, &p, end);
            if (len > (uint64_t)(end - p)) damaged(w);
            n = (size_t)len;
            const ProtobufCFieldDescriptor *f =
                protobuf_c_message_descriptor_get_field(m, (unsigned)(key >> 3));
            if (f && f->type == PROTOBUF_C_TYPE_MESSAGE)
                walk(w, f->descriptor, p, p + n, depth + 1);
            break;
        }
        default: damaged(w);
        }
        if (n > (size_t)(end - p)) damaged(w);
        p += n;
    }
}

static void *wire_alloc(void *user, size_t n) {
    Wire *w = user;
    if (n > w->left)
        err(w->im->d, ST_UNSUPPORTED, NULL, "%s: needs far more memory than its size allows",
            w->what);
    w->left -= n;
    return arena_alloc(w->im->a, n);
}

static void wire_free(void *user, void *p) { (void)user, (void)p; }

ProtobufCMessage *wire_unpack(Import *im, const ProtobufCMessageDescriptor *type, const void *bytes,
                              size_t n, const char *what) {
    Wire w = {im, what, ((size_t)64 << 20) + n * 32};
    walk(&w, type, bytes, (const uint8_t *)bytes + n, 0);
    ProtobufCAllocator alloc = {wire_alloc, wire_free, &w};
    ProtobufCMessage *m = protobuf_c_message_unpack(type, &alloc, n, bytes);
    if (!m) damaged(&w);
    return m;
}
