/* attrs.c: which attributes an operator has in an opset: reads the attributes column of the
 * operator table (ops.def) and checks nodes against it. */
#include "frontend/import.h"
#include <stdlib.h>

#define AT(x) ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__##x

static const struct {
    char letter;
    AttrKind kind;
    int type;
    const char *text;
} kinds[] = {
    {'i', AT_INT, AT(INT), "an integer"},
    {'b', AT_INT, AT(INT), "an integer"},
    {'f', AT_FLOAT, AT(FLOAT), "a float"},
    {'s', AT_STRING, AT(STRING), "a string"},
    {'I', AT_INTS, AT(INTS), "a list of integers"},
    {'B', AT_INTS, AT(INTS), "a list of integers"},
    {'F', AT_FLOATS, AT(FLOATS), "a list of floats"},
    {'S', AT_STRINGS, AT(STRINGS), "a list of strings"},
    {'t', AT_TENSOR, AT(TENSOR), "a tensor"},
    {'g', AT_GRAPH, AT(GRAPH), "a graph"},
    {'y', AT_TYPE, AT(TYPE_PROTO), "a type"},
};

static size_t kind_at(char letter) {
    for (size_t i = 0; i < COUNT(kinds); i++)
        if (kinds[i].letter == letter) return i;
    die("no kind of attribute '%c'", letter);
}

/* Up to opset 5 every operator could have it. It means nothing for inference. */
static bool of_all(const char *name, int opset) {
    return opset < 6 && !strcmp(name, "consumed_inputs");
}

AttrRule attr_rule(const char *attrs, const char *name, int opset) {
    AttrRule r = {0};
    size_t n = strlen(name);
    if (of_all(name, opset)) return (AttrRule){.kind = 'I'};
    for (const char *p = attrs; *p;) {
        size_t whole = strcspn(p, " ");
        if (whole > n && p[n] == ':' && !strncmp(p, name, n)) {
            const char *q = p + n + 2;
            int first = 1, last = INT32_MAX;
            if (*q == '@') {
                char *end;
                first = (int)strtol(q + 1, &end, 10);
                if (*end == '-') last = (int)strtol(end + 1, &end, 10);
                q = end;
            }
            if (opset >= first && opset <= last)
                return (AttrRule){.kind = p[n + 1], .values = *q == '=' ? q + 1 : NULL};
            if (opset < first && !r.later) r.later = first;
            if (opset > last) r.gone = last + 1;
        }
        p += whole;
        p += strspn(p, " ");
    }
    return r;
}

static bool listed(const char *values, const char *v) {
    size_t n = strlen(v);
    for (const char *p = values;; p++) {
        size_t k = strcspn(p, "| ");
        if (k == n && !strncmp(p, v, n)) return true;
        p += k;
        if (*p != '|') return false;
    }
}

/* Whether an item before `at` has the same name. */
static bool named_before(const char *attrs, const char *at) {
    size_t n = strcspn(at, ":");
    for (const char *p = attrs; p < at; p += strcspn(p, " "), p += strspn(p, " "))
        if (strcspn(p, ":") == n && !strncmp(p, at, n)) return true;
    return false;
}

/* The attribute names that `attrs` has in this opset, for a message. */
static const char *known_names(Import *im, const char *attrs, int opset) {
    Sb s = {0};
    for (const char *p = attrs; *p;) {
        size_t whole = strcspn(p, " "), n = strcspn(p, ":");
        const char *name = arena_strndup(im->a, p, n);
        if (attr_rule(attrs, name, opset).kind && !named_before(attrs, p))
            sb_printf(&s, "%s%s", s.n ? ", " : "", name);
        p += whole;
        p += strspn(p, " ");
    }
    const char *text = s.n ? arena_strdup(im->a, s.p) : "none";
    free(s.p);
    return text;
}

static void check_flag(const Raw *n, const char *name, int64_t v) {
    if (v != 0 && v != 1)
        err(n->im->d, ST_MODEL, n->path, "attribute '%s' is %lld, it may be 0 or 1", name,
            (long long)v);
}

static void check_value(const Raw *n, const AttrRule *r, const Attr *a) {
    if (r->kind == 'b') check_flag(n, a->name, a->i);
    for (int i = 0; r->kind == 'B' && i < a->n; i++) check_flag(n, a->name, a->ints[i]);
    if (!r->values) return;
    char number[24];
    snprintf(number, sizeof number, "%lld", (long long)a->i);
    const char *v = a->kind == AT_STRING ? a->s : number;
    if (!listed(r->values, v))
        err(n->im->d, ST_MODEL, n->path, "attribute '%s' is '%.100s', it may be %.*s", a->name, v,
            (int)strcspn(r->values, " "), r->values);
}

void attr_check(const Raw *n, const char *attrs, const Attr *a) {
    Diag *d = n->im->d;
    AttrRule r = attr_rule(attrs, a->name, n->opset);
    if (!r.kind && r.later)
        err(d, ST_UNSUPPORTED, n->path,
            "attribute '%s' of %s came with opset %d, opset %d is in use", a->name, n->op, r.later,
            n->opset);
    if (!r.kind && r.gone)
        err(d, ST_MODEL, n->path, "%s has no attribute '%s' since opset %d", n->op, a->name,
            r.gone);
    if (!r.kind)
        err(d, ST_MODEL, n->path, "%s has no attribute '%.100s' (it has: %s)", n->op, a->name,
            known_names(n->im, attrs, n->opset));
    size_t k = kind_at(r.kind);
    if (kinds[k].kind != a->kind)
        err(d, ST_MODEL, n->path, "attribute '%s' must be %s", a->name, kinds[k].text);
    check_value(n, &r, a);
}

int attr_type(const Onnx__AttributeProto *ap, const char *attrs, int opset) {
    if (ap->type != AT(UNDEFINED)) return (int)ap->type;
    if (ap->t) return AT(TENSOR);
    if (ap->g) return AT(GRAPH);
    if (ap->tp) return AT(TYPE_PROTO);
    if (ap->sparse_tensor) return AT(SPARSE_TENSOR);
    if (ap->n_ints) return AT(INTS);
    if (ap->n_floats) return AT(FLOATS);
    if (ap->n_strings) return AT(STRINGS);
    if (ap->s.len) return AT(STRING);
    if (ap->f != 0) return AT(FLOAT);
    if (ap->i != 0) return AT(INT);
    AttrRule r =
        attrs ? attr_rule(attrs, ap->name, opset) : (AttrRule){0}; /* a default of proto3 */
    return r.kind ? kinds[kind_at(r.kind)].type : AT(INT);
}
