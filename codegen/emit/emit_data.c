/* emit_data.c: names, constants, and what a program has once: functions, hand-written bodies. */
#include "codegen/emit/emit.h"
#include "codegen/embed.h"
#include "scheduler/plan/weights.h"
#include <ctype.h>
#include <stdlib.h>

const char *c_name(Arena *a, const char *name, int max) {
    char *s = arena_alloc(a, (size_t)max + 2);
    int n = 0;
    /* The tail of a path is the most informative part. */
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

const char *emit_comment(Emit *em, const char *s) {
    char *r = arena_strdup(em->a, s ? s : "");
    for (char *p = r; *p; p++)
        if ((unsigned char)*p < 32 || (unsigned char)*p > 126 || (*p == '*' && p[1] == '/') ||
            *p == '\\')
            *p = '_';
    return r;
}

void emit_weights(Emit *em) {
    const Weights *w = em->p->weights;
    const size_t bytes = (size_t)w->bytes;
    if (!bytes) return;
    em->weights->p = calloc(bytes + 1, 1);
    if (!em->weights->p) sb_fail(em->weights);
    em->weights->n = bytes;
    em->weights->cap = bytes + 1;
    sb_puts(&em->consts, "#define BK_AT(type, at) ((const type *)(bk_weights + at))\n");
    for (int i = 0; i < w->array.n; i++) {
        const WeightArray *x = &w->array.p[i];
        const char *what = arena_strndup(em->a, x->what, strcspn(x->what, " ")); /* no operator */
        const char *name = arena_printf(em->a, "weights%d_%s", i, c_name(em->a, what, 16));
        sb_printf(&em->consts, "#define %s BK_AT(%s, %lld)\n", name, c_store(x->dtype),
                  (long long)x->offset);
        if (x->packed) {
            packed_fill(x->packed, em->weights->p + x->offset);
            em->packed_name[x->packed->number] = name;
        } else {
            if (x->bytes) memcpy(em->weights->p + x->offset, x->data->data, (size_t)x->bytes);
            map_seti(em->const_name, (uint64_t)(uintptr_t)x->data->data, (void *)(uintptr_t)name);
        }
    }
}

const char *emit_const(Emit *em, const Tensor *t) {
    const char *s = map_geti(em->const_name, (uint64_t)(uintptr_t)t->data->data);
    ASSERT(s);
    return s;
}

/* The name of a function; *found: it exists. */
static const char *function_name(Emit *em, const char *stem, const char *qualifier,
                                 const char *params, const char *body, bool *found) {
    char *key = arena_printf(em->a, "%s(%s)%s", qualifier, params, body);
    const char *name = map_get(em->function_name, key);
    *found = name != NULL;
    if (name) return name;
    name = arena_printf(em->a, "f%d_%s", em->nfunction++, c_name(em->a, stem, 16));
    map_set(em->function_name, key, (void *)(uintptr_t)name);
    return name;
}

const char *emit_function(Emit *em, const char *stem, const char *qualifier, const char *params,
                          const char *body) {
    bool found;
    const char *name = function_name(em, stem, qualifier, params, body, &found);
    if (found) return name;
    const size_t at = em->functions.n;
    sb_printf(&em->functions, "%s %s(%s) {\n%s}\n\n", qualifier, name, params, body);
    if (emit_is_gpu(em) && qualifier == em->target->function)
        vec_push(em->a, &em->function,
                 ((TextFunction){name, qualifier, arena_strdup(em->a, params),
                                 arena_strdup(em->a, body), at, em->functions.n - at}));
    return name;
}

const char *emit_shared(Emit *em, bool apart, const char *stem, const char *qualifier,
                        const char *params, const char *body) {
    bool found;
    if (!em->target->apart) return emit_function(em, stem, qualifier, params, body);
    const char *name = function_name(em, stem, qualifier, params, body, &found);
    if (found) return name;
    sb_printf(qualifier == em->target->kernel ? &em->kernels : &em->prototypes, "%s %s(%s);\n",
              qualifier, name, params);
    const char *text = arena_printf(em->a, "%s %s(%s) {\n%s}\n\n", qualifier, name, params, body);
    if (apart)
        vec_push(em->a, &em->apart, text);
    else
        sb_puts(&em->functions, text);
    return name;
}

void linearize_text(Emit *em) {
    if (map_get(em->extern_files, "linearize")) return;
    map_set(em->extern_files, "linearize", em);
    sb_puts(&em->functions, embedded_text("linearize.inc"));
}

/* Prototypes of what a text defines for others: functions that begin with BX_BODY. */
static void put_prototypes(Sb *to, const char *text) {
    for (const char *p = text; p; p = strchr(p, '\n') ? strchr(p, '\n') + 1 : NULL)
        if (!strncmp(p, "BX_BODY ", 8)) {
            sb_write(to, p, strcspn(p, ")") + 1);
            sb_puts(to, ";\n");
        }
}

static void put_body(Emit *em, const char *file) {
    const char *text = embedded_text(arena_printf(em->a, "extern/%s.inc", file));
    map_set(em->extern_files, file, em);
    sb_puts(&em->bodies, text);
    if (em->target->apart) put_prototypes(&em->kernels, text);
}

void helper_text(Emit *em, const char *name) {
    if (map_get(em->extern_files, name)) return;
    map_set(em->extern_files, name, em);
    sb_puts(&em->helpers, embedded_text(name));
}

void extern_text(Emit *em, const char *file) {
    if (map_get(em->extern_files, file)) return;
    if (!map_get(em->extern_files, "extern")) put_body(em, "extern");
    put_body(em, file);
}
