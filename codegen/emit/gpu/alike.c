/* alike.c: makes one template of functions whose texts differ in numbers alone.
 *
 * Layers that differ in their sizes have functions of the same statements. A template has these
 * once; its parameters are the numbers in which they differ, so that each function is compiled as
 * if it stood there by itself. */
#include "codegen/emit/gpu/shorter.h"
#include <ctype.h>
#include <limits.h>
#include <stdlib.h>

/* A function, with '#' in place of its numbers, and these. */
typedef struct Alike {
    const TextFunction *f;
    const char *pattern;
    VEC(int) number;
} Alike;

typedef VEC(const Alike *) Family;

static bool in_word(char c) { return isalnum((unsigned char)c) || c == '_' || c == '.'; }

const char *text_number(const char *begin, const char *p, int *value) {
    if (!isdigit((unsigned char)*p) || (p > begin && in_word(p[-1]))) return NULL;
    if (p > begin + 1 && (p[-1] == '-' || p[-1] == '+') && (p[-2] == 'e' || p[-2] == 'p'))
        return NULL; /* an exponent */
    char *end;
    const long long x = strtoll(p, &end, 10);
    if (x > INT_MAX || in_word(*end) || (*p == '0' && end - p > 1)) return NULL;
    *value = (int)x;
    return end;
}

/* The end of the string at p; p where there is none. */
static const char *string_end(const char *p) {
    if (*p != '"') return p;
    for (p++; *p && *p != '"'; p++)
        if (*p == '\\' && p[1]) p++;
    return *p ? p + 1 : p;
}

static Alike *member_of(Arena *a, const TextFunction *f) {
    Alike *m = NEW(a, Alike);
    m->f = f;
    Sb b = {.a = a};
    sb_printf(&b, "%s(%s)", f->qualifier, f->params);
    for (const char *p = f->body; *p;) {
        int value;
        const char *string = string_end(p), *end = text_number(f->body, p, &value);
        if (end) vec_push(a, &m->number, value);
        if (end)
            sb_puts(&b, "#");
        else
            sb_write(&b, p, string > p ? (size_t)(string - p) : 1);
        p = end ? end : string > p ? string : p + 1;
    }
    m->pattern = b.p;
    return m;
}

/* Whether a template makes the text shorter. */
static bool is_worth(const Family *y) {
    size_t all = 0, wrappers = 0;
    for (int i = 0; i < y->n; i++) {
        all += strlen(y->p[i]->f->body);
        wrappers += strlen(y->p[i]->f->params) + 200;
    }
    return y->n > 1 && all > strlen(y->p[0]->f->body) + wrappers;
}

/* The template's parameter for number `at` of the members, an earlier one if that has the same
 * values, else a new one; -1 where all have one value. */
static int parameter(const Family *y, int at, int *first, int *n) {
    bool equal = true;
    for (int i = 1; i < y->n; i++) equal = equal && y->p[i]->number.p[at] == y->p[0]->number.p[at];
    if (equal) return -1;
    for (int k = 0; k < *n; k++) {
        bool same = true;
        for (int i = 0; i < y->n; i++)
            same = same && y->p[i]->number.p[at] == y->p[i]->number.p[first[k]];
        if (same) return k;
    }
    first[*n] = at;
    return (*n)++;
}

/* The names of parameters: the last word before each comma. */
static void put_arguments(Sb *to, const char *params) {
    for (const char *p = params; *p;) {
        const char *end = p + strcspn(p, ","), *name = end;
        while (name > p && in_word(name[-1])) name--;
        sb_printf(to, "%s%.*s", p == params ? "" : ", ", (int)(end - name), name);
        p = *end ? end + 1 : end;
    }
}

/* Prints the template; returns its parameters' first numbers in `first`, *n of them. */
static void put_template(Arena *a, Sb *to, const Family *y, const char *name, int *first, int *n) {
    const Alike *m = y->p[0];
    Sb body = {.a = a};
    int at = 0;
    for (const char *p = m->f->body; *p;) {
        int value;
        const char *string = string_end(p), *end = text_number(m->f->body, p, &value);
        const int k = end ? parameter(y, at++, first, n) : -1;
        const char *next = end ? end : string > p ? string : p + 1;
        if (k >= 0)
            sb_printf(&body, "N%d", k);
        else
            sb_write(&body, p, (size_t)(next - p));
        p = next;
    }
    sb_puts(to, "template <");
    for (int k = 0; k < *n; k++) sb_printf(to, "%sint N%d", k ? ", " : "", k);
    sb_printf(to, ">\nstatic __device__ __forceinline__ void %s(%s) {\n%s}\n\n", name, m->f->params,
              body.p);
}

/* Parameters as they are where nobody reads through them. */
static const char *plain_params(Arena *a, const char *params) {
    static const char word[] = "BK_RESTRICT ";
    Sb to = {.a = a};
    for (const char *p = params, *next; *p; p = next) {
        next = strstr(p, word);
        sb_write(&to, p, next ? (size_t)(next - p) : strlen(p));
        next = next ? next + strlen(word) : p + strlen(p);
    }
    return to.p;
}

/* Prints member m: as a call of the template `name`. */
static void put_member(Arena *a, Sb *to, const Alike *m, const char *name, const int *first,
                       int n) {
    sb_printf(to, "%s %s(%s) {\n    %s<", m->f->qualifier, m->f->name,
              plain_params(a, m->f->params), name);
    for (int k = 0; k < n; k++) sb_printf(to, "%s%d", k ? ", " : "", m->number.p[first[k]]);
    sb_puts(to, ">(");
    put_arguments(to, m->f->params);
    sb_puts(to, ");\n}\n\n");
}

/* A family whose template is printed. */
typedef struct Template {
    Family members;
    const char *name; /* NULL: not yet */
    int *first, n;
} Template;

void merge_alike(Emit *em) {
    Arena *a = em->a;
    Map *by_pattern = map_new(a);
    VEC(const Alike *) all = {0};
    for (int i = 0; i < em->function.n; i++) {
        const Alike *m = member_of(a, &em->function.p[i]);
        Template *y = map_get(by_pattern, m->pattern);
        if (!y) map_set(by_pattern, m->pattern, y = NEW(a, Template));
        vec_push(a, &y->members, m);
        vec_push(a, &all, m);
    }
    Sb to = {.a = a};
    size_t at = 0;
    for (int i = 0; i < all.n; i++) {
        const Alike *m = all.p[i];
        Template *y = map_get(by_pattern, m->pattern);
        if (!is_worth(&y->members)) continue;
        sb_write(&to, em->functions.p + at, m->f->at - at);
        at = m->f->at + m->f->bytes;
        if (!y->name) {
            y->name = arena_printf(a, "bk_%s", m->f->name);
            y->first = NEWN(a, int, m->number.n + 1);
            put_template(a, &to, &y->members, y->name, y->first, &y->n);
        }
        put_member(a, &to, m, y->name, y->first, y->n);
    }
    if (!at) return;
    sb_puts(&to, em->functions.p + at);
    em->functions = to;
}
