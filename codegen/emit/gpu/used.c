/* used.c: leaves out of a device's text the functions, types and macros that nothing in it uses.
 *
 * The pasted texts have everything that a program may call; a program calls little of it, and the
 * rest would only be read and compiled. A text is a list of pieces: a declaration from the first
 * column on to the end of its braces, a line of the preprocessor, an empty line, each with the
 * comment before it. Pieces that define names are kept when an item that is kept has one of them as
 * a word outside of comments; all others are kept. */
#include "codegen/emit/gpu/shorter.h"
#include <ctype.h>

typedef struct TextPiece {
    const char *at, *code, *end; /* with its comment; without */
    bool defines, kept;
} TextPiece;

/* The items that define a name. */
typedef struct Definers {
    VEC(int) item;
} Definers;

typedef struct UsedText {
    Arena *a;
    VEC(TextPiece) item;
    Map *by_name;  /* -> Definers */
    VEC(int) todo; /* kept, but not read */
} UsedText;

static bool is_word(char c) { return isalnum((unsigned char)c) || c == '_'; }
static bool begins(const char *p, const char *with) { return !strncmp(p, with, strlen(with)); }
static const char *line_end(const char *p) {
    p += strcspn(p, "\n");
    return *p ? p + 1 : p;
}

/* The end of the comment, string or character at p; p where there is none. */
static const char *skip(const char *p) {
    if (begins(p, "/*")) {
        const char *end = strstr(p + 2, "*/");
        return end ? end + 2 : p + strlen(p);
    }
    if (*p != '"' && *p != '\'') return p;
    const char quote = *p++;
    for (; *p && *p != quote && *p != '\n'; p++)
        if (*p == '\\' && p[1]) p++;
    return *p ? p + 1 : p;
}

static const char *directive_end(const char *p) {
    for (;; p = line_end(p)) {
        const char *end = line_end(p);
        if (end - p < 2 || end[-1] != '\n' || end[-2] != '\\') return end;
    }
}

/* The end of the declaration at p: of the line where its braces are closed after ';', '}' or, of a
 * macro's, ')'. */
static const char *declaration_end(const char *p) {
    const bool macro = isupper((unsigned char)*p);
    char last = 0;
    for (int depth = 0; *p;) {
        const char *next = skip(p);
        if (next > p) {
            p = next;
            continue;
        }
        if (*p == '{') depth++;
        if (*p == '}') depth--;
        if (*p == '\n' && depth == 0 && (last == ';' || last == '}' || (macro && last == ')')))
            return p + 1;
        if (!isspace((unsigned char)*p)) last = *p;
        p++;
    }
    return p;
}

static void define(UsedText *x, int item, const char *p, size_t n) {
    const char *name = arena_strndup(x->a, p, n);
    Definers *d = map_get(x->by_name, name);
    if (!d) map_set(x->by_name, name, d = NEW(x->a, Definers));
    vec_push(x->a, &d->item, item);
    x->item.p[item].defines = true;
}

/* The word before p. */
static void define_before(UsedText *x, int item, const char *begin, const char *p) {
    const char *first = p;
    while (first > begin && is_word(first[-1])) first--;
    if (first < p) define(x, item, first, (size_t)(p - first));
}

/* Enumerators: all words in the braces. */
static void define_all(UsedText *x, int item, const char *p, const char *end) {
    while (p < end) {
        const char *next = skip(p);
        if (next > p) {
            p = next;
            continue;
        }
        const char *first = p;
        while (p < end && is_word(*p)) p++;
        if (p > first && !isdigit((unsigned char)*first))
            define(x, item, first, (size_t)(p - first));
        if (p == first) p++;
    }
}

/* The function's name, or the struct's of a template: the first word before a parenthesis that the
 * compiler does not own; none where something else comes first. */
static void define_function(UsedText *x, int item, const char *p, const char *end) {
    if (begins(p, "template")) {
        const char *close = strchr(p, '>');
        if (!close || close > end) return;
        p = close + 1 + strspn(close + 1, " \n");
        if (begins(p, "struct ")) {
            p += strlen("struct ");
            define(x, item, p, strcspn(p, " {;"));
            return;
        }
    }
    for (; p < end && !strchr("={;", *p); p++) {
        if (*p != '(') continue;
        const char *first = p;
        while (is_word(first[-1])) first--;
        if (!begins(first, "__")) {
            define_before(x, item, first, p);
            return;
        }
        p += strcspn(p, ")");
    }
}

static void define_names(UsedText *x, int item) {
    static const char *const functions[] = {"static ",    "template ",   "BK_INLINE ",
                                            "BK_CALLED ", "BK_OUTLINE ", NULL};
    const TextPiece *m = &x->item.p[item];
    const char *p = m->code;
    if (begins(p, "#define ") || begins(p, "#undef ")) {
        p += strcspn(p, " ") + 1;
        size_t n = 0;
        while (is_word(p[n])) n++;
        define(x, item, p, n);
    } else if (begins(p, "typedef struct") || begins(p, "typedef union")) {
        const char *last = m->end;
        while (last > p && *last != ';') last--;
        define_before(x, item, p, last);
    } else if (begins(p, "enum {"))
        define_all(x, item, p + strlen("enum {"), m->end);
    else if (begins(p, "const "))
        define_function(x, item, p, m->end);
    else
        for (int i = 0; functions[i]; i++)
            if (begins(p, functions[i])) {
                define_function(x, item, p, m->end);
                return;
            }
}

static void find_items(UsedText *x, const char *text) {
    const char *comment = NULL;
    for (const char *p = text; *p;) {
        if (begins(p, "/*")) {
            const char *end = line_end(skip(p));
            if (comment) vec_push(x->a, &x->item, ((TextPiece){comment, p, p, false, false}));
            comment = p;
            p = end;
            continue;
        }
        const bool alone = strchr("\n {}", *p) || begins(p, "extern \"C\" {");
        const char *end = *p == '#' ? directive_end(p) : alone ? line_end(p) : declaration_end(p);
        if (comment && *p == '\n') {
            vec_push(x->a, &x->item, ((TextPiece){comment, p, p, false, false}));
            comment = NULL;
        }
        vec_push(x->a, &x->item, ((TextPiece){comment ? comment : p, p, end, false, false}));
        define_names(x, x->item.n - 1);
        comment = NULL;
        p = end;
    }
}

static void keep(UsedText *x, int item) {
    if (x->item.p[item].kept) return;
    x->item.p[item].kept = true;
    vec_push(x->a, &x->todo, item);
}

/* Keeps what defines the words of an item. */
static void keep_used(UsedText *x, const TextPiece *m) {
    for (const char *p = m->code; p < m->end;) {
        const char *const first = p;
        if (begins(p, "/*")) {
            p = skip(p);
            continue;
        }
        while (is_word(*p)) p++;
        if (p == first) {
            p++;
            continue;
        }
        const Definers *d = map_get(x->by_name, arena_strndup(x->a, first, (size_t)(p - first)));
        for (int i = 0; d && i < d->item.n; i++) keep(x, d->item.p[i]);
    }
}

/* Leaves out conditions of the preprocessor with nothing between them. */
static void drop_empty(UsedText *x) {
    typedef struct Open {
        int item;
        bool used;
    } Open;
    VEC(Open) open = {0};
    for (int i = 0; i < x->item.n; i++) {
        const char *p = x->item.p[i].code;
        if (begins(p, "#if")) {
            vec_push(x->a, &open, ((Open){i, false}));
        } else if (begins(p, "#endif") && open.n) {
            const Open o = open.p[--open.n];
            for (int j = o.item; j <= i && !o.used; j++) x->item.p[j].kept = false;
            if (o.used && open.n) open.p[open.n - 1].used = true;
        } else if (open.n && x->item.p[i].kept && !begins(p, "#el") && *p != '\n')
            open.p[open.n - 1].used = true;
    }
}

void put_used(Arena *a, Sb *to, const char *text) {
    UsedText x = {.a = a, .by_name = map_new(a)};
    find_items(&x, text);
    for (int i = 0; i < x.item.n; i++)
        if (!x.item.p[i].defines) keep(&x, i);
    while (x.todo.n) {
        const TextPiece m = x.item.p[x.todo.p[--x.todo.n]];
        keep_used(&x, &m);
    }
    drop_empty(&x);
    bool empty = false;
    for (int i = 0; i < x.item.n; i++) {
        const TextPiece *m = &x.item.p[i];
        const bool line = *m->at == '\n';
        if (!m->kept || (line && empty)) continue;
        sb_write(to, m->at, (size_t)(m->end - m->at));
        empty = line;
    }
}
