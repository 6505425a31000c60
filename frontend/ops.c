/* ops.c: the operator table, from ops.def, and its type rules. */
#include "frontend/ops.h"

enum {
#define OP(name, domain, since, imin, imax, omin, omax, types, doc) INDEX_##name,
#include "frontend/ops.def"
#undef OP
    OP_COUNT
};

static const OpRow table[] = {
#define OP(name, domain, since, imin, imax, omin, omax, types, doc)                                \
    {#name, domain, since, imin, imax, omin, omax, types, doc, INDEX_##name},
#include "frontend/ops.def"
#undef OP
};

const OpRow *op_find(const char *domain, const char *name) {
    if (!strcmp(domain, "ai.onnx")) domain = "";
    for (int i = 0; i < OP_COUNT; i++)
        if (!strcmp(table[i].name, name) && !strcmp(table[i].domain, domain)) return &table[i];
    return NULL;
}

int op_count(void) { return OP_COUNT; }

const OpRow *op_at(int i) {
    ASSERT(i >= 0 && i < OP_COUNT);
    return &table[i];
}

const char *op_ranks(const OpRow *op) {
    static const struct {
        const char *rule, *names;
    } ranks[] = {
#define OP_RANKS(rule, names) {rule, names},
#include "frontend/ops_ranks.def"
#undef OP_RANKS
    };
    size_t n = strlen(op->name);
    if (*op->domain) return NULL;
    for (size_t i = 0; i < COUNT(ranks); i++)
        for (const char *p = ranks[i].names; *p; p += strcspn(p, " "), p += *p == ' ')
            if (strcspn(p, " ") == n && !strncmp(p, op->name, n)) return ranks[i].rule;
    return NULL;
}

/* The rule's letter of input i; the last one repeats. 0 when the rule is empty. */
static char letter(const OpRow *op, int i) {
    const char *end = strchr(op->types, ':');
    int n = (int)(end ? end - op->types : (ptrdiff_t)strlen(op->types));
    if (n == 0) return 0;
    return op->types[i < n ? i : n - 1];
}

static bool is_variable(char c) { return c >= 'A' && c <= 'Z' && c != 'S' && c != 'O'; }

static bool in_class(const char *cls, DType t) {
    if (!strncmp(cls, "num", 3)) return t != DT_BOOL;
    if (!strncmp(cls, "flt", 3)) return dtype_is_float(t);
    if (!strncmp(cls, "int", 3)) return dtype_is_int(t);
    ASSERT(!strncmp(cls, "any", 3));
    return true;
}

bool op_type_ok(const OpRow *op, int i, DType t) {
    if (t == DT_NONE) return true;
    char c = letter(op, i);
    switch (c) {
    case 0:
    case '*': return true;
    case 'b': return t == DT_BOOL;
    case 'l': return t == DT_I64;
    case 'i': return t == DT_I32 || t == DT_I64;
    case 'f': return t == DT_F32;
    case 'S':
    case 'O': return false;
    }
    ASSERT(is_variable(c));
    const char *rule = strchr(op->types, ':');
    for (; rule && *rule; rule++)
        if (rule[0] == c && rule[1] == '=') return in_class(rule + 2, t);
    return true;
}

bool op_type_same(const OpRow *op, int i, int j) {
    char c = letter(op, i);
    return is_variable(c) && letter(op, j) == c;
}

const char *op_types_text(const OpRow *op) { return op->types; }
