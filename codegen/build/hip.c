/* hip.c: translates a CUDA text to HIP.
 *
 * A table lists the names in emitted texts that differ. HIP's warp functions take no mask. Texts
 * that a hipify tool has translated go through the table, too, because tools leave these functions
 * alone. */
#include "codegen/build/build.h"
#include "codegen/embed.h"
#include <ctype.h>

/* A call's arguments in HIP: the same; without the first; none; the single argument 1. */
typedef enum { ARGS_KEEP, ARGS_NO_MASK, ARGS_NONE, ARGS_TRUE } Args;
typedef struct Name {
    const char *cuda, *hip;
    Args args;
} Name;
static const Name names[] = {
    {"__shfl_sync", "__shfl", ARGS_NO_MASK},
    {"__shfl_xor_sync", "__shfl_xor", ARGS_NO_MASK},
    {"__shfl_up_sync", "__shfl_up", ARGS_NO_MASK},
    {"__shfl_down_sync", "__shfl_down", ARGS_NO_MASK},
    {"__ballot_sync", "__ballot", ARGS_NO_MASK},
    {"__any_sync", "__any", ARGS_NO_MASK},
    {"__all_sync", "__all", ARGS_NO_MASK},
    {"__activemask", "__ballot", ARGS_TRUE},
    {"__syncwarp", "bk_hip_sync_warp", ARGS_NONE},
    {"__nanosleep", "bk_hip_sleep", ARGS_KEEP},
    {"__ldcg", "__ldg", ARGS_KEEP},
};

/* The end of the comment or literal that begins at p; p itself if none does. */
static const char *past_quoted(const char *p) {
    if (p[0] == '/' && p[1] == '*') {
        const char *end = strstr(p + 2, "*/");
        return end ? end + 2 : p + strlen(p);
    }
    if (p[0] == '/' && p[1] == '/') return p + strcspn(p, "\n");
    if (*p != '"' && *p != '\'') return p;
    const char *q = p + 1;
    while (*q && *q != *p && *q != '\n') q += *q == '\\' && q[1] ? 2 : 1;
    return *q == *p ? q + 1 : q;
}

/* The end of the first argument, or of all arguments, of a call whose arguments begin at p: the
 * comma or the closing parenthesis. */
static const char *past_arguments(const char *p, bool all) {
    for (int depth = 0; *p;) {
        const char *q = past_quoted(p);
        if (q > p) {
            p = q;
            continue;
        }
        if (depth == 0 && (*p == ')' || (*p == ',' && !all))) return p;
        depth += (*p == '(') - (*p == ')');
        p++;
    }
    return p;
}

/* Drops a piece of text but keeps its line breaks, so that line numbers stay. */
static void drop(Sb *to, const char *from, const char *end) {
    for (; from < end; from++)
        if (*from == '\n') sb_puts(to, "\n");
}

static const Name *name_of(const char *p, size_t n) {
    for (size_t i = 0; i < COUNT(names); i++)
        if (strlen(names[i].cuda) == n && memcmp(names[i].cuda, p, n) == 0) return &names[i];
    return NULL;
}

/* Translates a call of x whose name ends at p; returns where the text goes on. */
static const char *call(Sb *to, const Name *x, const char *p) {
    const char *open = p + strspn(p, " \t\n");
    sb_puts(to, x->hip);
    if (*open != '(' || x->args == ARGS_KEEP) return p;
    sb_puts(to, "(");
    const char *end = past_arguments(open + 1, x->args != ARGS_NO_MASK);
    drop(to, p, end);
    if (x->args == ARGS_TRUE) sb_puts(to, "1");
    if (*end != ',') return end;
    return end + 1 + strspn(end + 1, " ");
}

void hip_text(const char *cuda, Sb *to) {
    const char *p = cuda;
    sb_puts(to, embedded_text("gpu/hip.inc"));
    while (*p) {
        const char *q = past_quoted(p);
        if (q > p) {
            sb_write(to, p, (size_t)(q - p));
            p = q;
        } else if (isalnum((unsigned char)*p) || *p == '_') {
            while (isalnum((unsigned char)*q) || *q == '_') q++;
            const Name *x = name_of(p, (size_t)(q - p));
            if (!x) sb_write(to, p, (size_t)(q - p));
            p = x ? call(to, x, q) : q;
        } else if (*p == '#' && !strncmp(p, "#include", 8) &&
                   !strncmp(p + 8 + strspn(p + 8, " <\""), "hip/hip_runtime.h", 17)) {
            p += strcspn(p, "\n"); /* a tool added it; hip.inc already has it */
        } else
            sb_write(to, p++, 1);
    }
}
