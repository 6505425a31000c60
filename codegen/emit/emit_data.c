/* emit_data.c: names, constants, and texts that a program has once: functions, hand-written bodies. */
#include "codegen/emit/emit.h"
#include "codegen/embed.h"
#include <ctype.h>

const char *c_name(Arena *a, const char *name, int max) {
    char *s = arena_alloc(a, (size_t)max + 2);
    int n = 0;
    /* The tail of a path says most. */
    size_t len = name ? strlen(name) : 0;
    if (name && len > (size_t)max) name += len - (size_t)max;
    for (; name && *name && n < max; name++) {
        char c = isalnum((unsigned char)*name) ? *name : '_';
        if (c == '_' && (!n || s[n - 1] == '_')) continue;
        s[n++] = c;
    }
    while (n && s[n - 1] == '_') s[--n] = 0;
    return n ? s : "x";
}

/* Text inside a C comment. */
static const char *comment_text(Arena *a, const char *s) {
    char *r = arena_strdup(a, s ? s : "");
    for (char *p = r; *p; p++)
        if ((unsigned char)*p < 32 || (unsigned char)*p > 126 || (*p == '*' && p[1] == '/') ||
            *p == '\\')
            *p = '_';
    return r;
}

const char *emit_data(Emit *em, DType t, const void *data, int64_t count, const char *comment) {
    static const char zero[64] = {0};
    size_t bytes = (size_t)count * dtype_size(t);
    if (em->weights.n % 64) sb_write(&em->weights, zero, 64 - em->weights.n % 64);
    const char *name =
        arena_printf(em->a, "weights%d_%s", em->nconst++, c_name(em->a, comment, 32));
    sb_printf(&em->consts, "#define %s ((const %s *)(bk_weights + %zu)) /* %s */\n", name,
              c_store(t), em->weights.n, comment_text(em->a, comment));
    ConstFacts fact = {comment ? comment : "", NULL, t, count, (int64_t)em->weights.n, true};
    vec_push(em->a, &em->facts->constants, fact);
    sb_write(&em->weights, data, bytes);
    sb_write(&em->weights, zero, 64); /* room behind for whole-vector reads */
    return name;
}

const char *emit_const(Emit *em, const Tensor *t) {
    uint64_t key = (uint64_t)(uintptr_t)t->data->data;
    const char *s = map_geti(em->const_name, key);
    if (s) return s;
    s = emit_data(em, t->dtype, t->data->data, t->data->count, t->name ? t->name : t->path);
    ConstFacts *fact = &em->facts->constants.p[em->facts->constants.n - 1];
    fact->data = t->data->data;
    fact->packed = false;
    map_seti(em->const_name, key, (void *)(uintptr_t)s);
    return s;
}

int64_t emit_const_offset(Emit *em, const Tensor *t) {
    emit_const(em, t);
    const ConstFacts *fact = em->facts->constants.p;
    while (fact->data != t->data->data) fact++;
    return fact->offset;
}

const char *emit_function(Emit *em, const char *stem, const char *qualifier, const char *params,
                          const char *body) {
    char *key = arena_printf(em->a, "%s(%s)%s", qualifier, params, body);
    const char *name = map_get(em->function_name, key);
    if (name) return name;
    name = arena_printf(em->a, "f%d_%s", em->nfunction++, c_name(em->a, stem, 32));
    map_set(em->function_name, key, (void *)(uintptr_t)name);
    sb_printf(&em->functions, "%s %s(%s) {\n%s}\n\n", qualifier, name, params, body);
    return name;
}

void extern_text(Emit *em, const char *file) {
    if (map_get(em->extern_files, file)) return;
    map_set(em->extern_files, file, em);
    if (!map_get(em->extern_files, "extern")) {
        map_set(em->extern_files, "extern", em);
        extern_text(em, "extern");
        sb_puts(&em->functions, embedded_text("extern/extern.inc"));
    }
    if (strcmp(file, "extern"))
        sb_puts(&em->functions, embedded_text(arena_printf(em->a, "extern/%s.inc", file)));
}

const char *emit_comment(Emit *em, const char *s) { return comment_text(em->a, s); }
