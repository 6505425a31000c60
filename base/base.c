/* base.c: strings, hash map, diagnostics, checked arithmetic. */
#include "base/base.h"
#include <stdlib.h>

#if BRAID_TINY /* start small, so that tests exercise growth */
#define TEXT_MIN 1
#define MAP_MIN 2
#else
#define TEXT_MIN 1024
#define MAP_MIN 16
#endif

/* ---- string builder -------------------------------------------------------------------------- */
void sb_fail(Sb *s) {
    Diag *d = s->d;
    if (d) err(d, ST_MEMORY, NULL, "out of memory for text");
    if (!s->a && !s->failed) free(s->p);
    *s = (Sb){.p = (char *)(uintptr_t) "", .a = s->a, .failed = true};
}

/* Makes room for n more bytes and the final NUL; false when out of memory. */
static bool sb_room(Sb *s, size_t n) {
    if (s->failed) return false;
    if (s->n + n + 1 <= s->cap) return true;
    size_t cap = s->cap ? s->cap * 2 : TEXT_MIN;
    while (cap < s->n + n + 1) cap *= 2;
    char *p = s->a ? arena_alloc(s->a, cap) : realloc(s->p, cap);
    if (!p) {
        sb_fail(s);
        return false;
    }
    if (s->a && s->n) memcpy(p, s->p, s->n);
    s->p = p;
    s->cap = cap;
    return true;
}

void sb_write(Sb *s, const char *p, size_t n) {
    if (!sb_room(s, n)) return;
    if (n) memcpy(s->p + s->n, p, n);
    s->n += n;
    s->p[s->n] = 0;
}

void sb_puts(Sb *s, const char *str) { sb_write(s, str, strlen(str)); }

void sb_printf(Sb *s, const char *fmt, ...) {
    va_list ap, ap2;
    va_start(ap, fmt);
    va_copy(ap2, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    ASSERT(n >= 0);
    if (sb_room(s, (size_t)n)) {
        vsnprintf(s->p + s->n, (size_t)n + 1, fmt, ap2);
        s->n += (size_t)n;
    }
    va_end(ap2);
}

/* Bytes of the UTF-8 character at p; 0: what is there is none. */
static size_t utf8_bytes(const char *text) {
    const unsigned char *p = (const unsigned char *)text;
    size_t n = *p < 0x80 ? 1 : *p < 0xc2 ? 0 : *p < 0xe0 ? 2 : *p < 0xf0 ? 3 : *p < 0xf5 ? 4 : 0;
    for (size_t i = 1; i < n; i++)
        if ((p[i] & 0xc0) != 0x80) return 0;
    bool longer = (p[0] == 0xe0 && p[1] < 0xa0) || (p[0] == 0xf0 && p[1] < 0x90);
    bool surrogate = p[0] == 0xed && p[1] > 0x9f, beyond = p[0] == 0xf4 && p[1] > 0x8f;
    return longer || surrogate || beyond ? 0 : n;
}

void sb_json(Sb *s, const char *text) {
    sb_puts(s, "\"");
    for (size_t n; *text; text += n ? n : 1) {
        n = utf8_bytes(text);
        if (*text == '"' || *text == '\\')
            sb_printf(s, "\\%c", *text);
        else if (n == 1 && *text < ' ')
            sb_printf(s, "\\u%04x", (unsigned)*text);
        else if (n)
            sb_write(s, text, n);
        else
            sb_puts(s, "\\ufffd");
    }
    sb_puts(s, "\"");
}

void sb_free(Sb *s) {
    if (!s->a && !s->failed) free(s->p);
    *s = (Sb){.a = s->a, .d = s->d};
}

/* ---- hash map: open addressing, keys are strings or integers --------------------------------- */
typedef struct Slot {
    const char *key;
    uint64_t hash;
    void *value;
} Slot;

struct Map {
    Arena *a;
    Slot *slot;
    size_t n, cap;
};

uint64_t hash_bytes(const void *p, size_t n, uint64_t seed) {
    const unsigned char *s = p;
    uint64_t h = seed ^ 0x9e3779b97f4a7c15u;
    for (size_t i = 0; i < n; i++) h = (h ^ s[i]) * 0x100000001b3u;
    h ^= h >> 32;
    h *= 0xd6e8feb86659fd93u;
    return h ^ h >> 32;
}

Map *map_new(Arena *a) {
    Map *m = NEW(a, Map);
    m->a = a;
    m->cap = MAP_MIN;
    m->slot = NEWN(a, Slot, m->cap);
    return m;
}

/* The slot of the key, or the empty slot where it belongs. The slot of a string has `key` set. The
 * slot of an integer has no `key`: `hash` identifies it, which differs for different integers. */
static Slot *map_slot(const Map *m, const char *key, uint64_t hash) {
    for (size_t i = (hash ^ hash >> 29) & (m->cap - 1);; i = (i + 1) & (m->cap - 1)) {
        Slot *s = &m->slot[i];
        if (!s->key && !s->value) return s;
        if (s->hash != hash) continue;
        if (key ? s->key && !strcmp(s->key, key) : !s->key) return s;
    }
}

static void map_put(Map *m, const char *key, uint64_t hash, void *value) {
    ASSERT(value);
    if (m->n * 2 >= m->cap) {
        Slot *old = m->slot;
        size_t n = m->cap;
        m->cap *= 2;
        m->slot = NEWN(m->a, Slot, m->cap);
        for (size_t i = 0; i < n; i++)
            if (old[i].key || old[i].value) *map_slot(m, old[i].key, old[i].hash) = old[i];
    }
    Slot *s = map_slot(m, key, hash);
    if (!s->key && !s->value) {
        m->n++;
        s->key = key ? arena_strdup(m->a, key) : NULL;
        s->hash = hash;
    }
    s->value = value;
}

void *map_get(const Map *m, const char *key) {
    return map_slot(m, key, hash_bytes(key, strlen(key), 0))->value;
}
void map_set(Map *m, const char *key, void *value) {
    map_put(m, key, hash_bytes(key, strlen(key), 0), value);
}
void *map_geti(const Map *m, uint64_t key) {
    return map_slot(m, NULL, key * 0x9e3779b97f4a7c15u)->value;
}
void map_seti(Map *m, uint64_t key, void *value) {
    map_put(m, NULL, key * 0x9e3779b97f4a7c15u, value);
}

bool map_add(Map *m, uint64_t key) {
    if (map_geti(m, key)) return false;
    map_seti(m, key, m);
    return true;
}

/* ---- diagnostics ----------------------------------------------------------------------------- */
void err(Diag *d, Status st, const char *path, const char *fmt, ...) {
    int n = 0;
    if (path) n = snprintf(d->message, sizeof d->message, "%s: ", path);
    if (n < 0 || n >= (int)sizeof d->message) n = 0;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(d->message + n, sizeof d->message - (size_t)n, fmt, ap);
    va_end(ap);
    d->status = st;
    /* Messages are one line, but names from a model may contain any character. */
    for (char *p = d->message; *p; p++)
        if ((unsigned char)*p < 32) *p = ' ';
    err_again(d);
}

void err_again(Diag *d) {
    if (!d->top) die("unhandled error: %s", d->message);
    longjmp(*d->top, 1);
}

void die(const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    fputs("braid: internal error: ", stderr);
    vfprintf(stderr, fmt, ap);
    fputc('\n', stderr);
    va_end(ap);
    abort();
}

bool mul_size(int64_t a, int64_t b, int64_t *r) {
    return a >= 0 && b >= 0 && !__builtin_mul_overflow(a, b, r) && *r <= (int64_t)1 << 62;
}
