/* ops.c: the operator table (from ops.def) and its type rules. */
#include "frontend/ops.h"

static const OpRow table[] = {
#define OP_AS(id, name, domain, since, imin, imax, omin, omax, types, attrs, doc)                  \
    {name, domain, since, imin, imax, omin, omax, types, attrs, doc},
#include "frontend/ops.def"
};

static const struct {
    const char *name, *domain, *attrs;
} old[] = {
#define OP_OLD(name, domain, attrs) {#name, domain, attrs},
#include "frontend/ops.def"
};

static const struct {
    const char *domain;
    int newest;
} domains[] = {
    {"", OPSET_MAX},      {"ai.onnx.ml", 5}, {"ai.onnx.preview", 1},
    {"com.microsoft", 1}, {"ai.braid", 1},
};

int domain_version(const char *domain) {
    for (size_t i = 0; i < COUNT(domains); i++)
        if (!strcmp(domains[i].domain, domain)) return domains[i].newest;
    return 0;
}

const char *op_old_attrs(const char *domain, const char *name) {
    for (size_t i = 0; i < COUNT(old); i++)
        if (!strcmp(old[i].name, name) && !strcmp(old[i].domain, domain)) return old[i].attrs;
    return NULL;
}

const OpRow *op_find(const char *domain, const char *name) {
    if (!strcmp(domain, "ai.onnx")) domain = "";
    for (size_t i = 0; i < COUNT(table); i++)
        if (!strcmp(table[i].name, name) && !strcmp(table[i].domain, domain)) return &table[i];
    return NULL;
}

/* Operators that optimizers write into files of opsets that do not have them yet, in the form that
 * a later opset introduced. */
static const char *const early[] = {"LayerNormalization"};

bool op_comes_early(const OpRow *op) {
    for (size_t i = 0; i < COUNT(early); i++)
        if (!op->domain[0] && !strcmp(op->name, early[i])) return true;
    return false;
}

/* Operators that draw random numbers. */
static const char *const drawing[] = {"Bernoulli",        "Dropout",          "Multinomial",
                                      "RandomNormal",     "RandomNormalLike", "RandomUniform",
                                      "RandomUniformLike"};

bool op_draws(const OpRow *op) {
    for (size_t i = 0; i < COUNT(drawing); i++)
        if (!strcmp(op->name, drawing[i])) return true;
    return false;
}

int op_count(void) { return COUNT(table); }
int op_index(const OpRow *op) { return (int)(op - table); }

const OpRow *op_at(int i) {
    ASSERT(i >= 0 && i < op_count());
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

/* The type rule's letter for input i (the last letter repeats); 0: the rule is empty. */
static char letter(const OpRow *op, int i) {
    const char *end = strchr(op->types, ':');
    int n = (int)(end ? end - op->types : (ptrdiff_t)strlen(op->types));
    if (n == 0) return 0;
    return op->types[i < n ? i : n - 1];
}

static bool is_variable(char c) { return c >= 'A' && c <= 'Z' && c != 'S' && c != 'O'; }

/* Whether t is in the class whose name is the first n characters of cls. */
static bool in_class(const char *cls, size_t n, DType t) {
    static const char *const names[] = {"num", "flt", "int", "any", "all", "f8", "low", "exp"};
    size_t i = 0;
    while (i < COUNT(names) && (strlen(names[i]) != n || strncmp(names[i], cls, n))) i++;
    bool small = dtype_small(t) != NULL;
    switch (i) {
    case 0: return !small && t != DT_BOOL;
    case 1: return dtype_is_float(t);
    case 2: return dtype_is_int(t);
    case 3: return !small;
    case 4: return true;
    case 5: return t >= DT_F8E4M3FN && t <= DT_F8E5M2FNUZ;
    case 6: return small && t != DT_F8E8M0;
    case 7: return t == DT_F8E8M0;
    default: die("no class '%.*s' of types", (int)n, cls);
    }
}

/* Whether t is in one of the classes of a rule such as "flt+exp". */
static bool in_classes(const char *cls, DType t) {
    for (;; cls++) {
        size_t n = strcspn(cls, "+,:");
        if (in_class(cls, n, t)) return true;
        cls += n;
        if (*cls != '+') return false;
    }
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
        if (rule[0] == c && rule[1] == '=') return in_classes(rule + 2, t);
    return in_classes("any", t);
}

bool op_type_same(const OpRow *op, int i, int j) {
    char c = letter(op, i);
    return is_variable(c) && letter(op, j) == c;
}

const char *op_types_text(const OpRow *op) { return op->types; }
