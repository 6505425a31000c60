/* import_attr.c: turns AttributeProtos into Attrs, and Constant nodes into Consts. */
#include "frontend/import.h"

#define AT(x) ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__##x

const Onnx__AttributeProto *attr_resolve(Import *im, const Onnx__AttributeProto *ap, Scope **s,
                                         const char *path) {
    int want = (int)ap->type;
    while (ap && ap->ref_attr_name[0]) {
        const Call *c = (*s)->call;
        const char *name = ap->ref_attr_name;
        if (!c)
            err(im->d, ST_MODEL, path, "attribute '%s' refers to '%s' outside a function", ap->name,
                name);
        ap = NULL;
        for (size_t i = 0; i < c->node->n_attribute && !ap; i++)
            if (!strcmp(c->node->attribute[i]->name, name)) ap = c->node->attribute[i];
        if (ap) {
            *s = c->caller;
            continue;
        }
        /* A default must not refer to another attribute, so its scope does not matter. */
        for (size_t i = 0; i < c->f->n_attribute_proto && !ap; i++)
            if (!strcmp(c->f->attribute_proto[i]->name, name)) ap = c->f->attribute_proto[i];
        if (ap && ap->ref_attr_name[0])
            err(im->d, ST_MODEL, path, "the default of attribute '%s' refers to another", name);
    }
    if (ap && want && want != attr_type(ap, NULL, 0))
        err(im->d, ST_MODEL, path, "attribute '%s' of the function call has the wrong type",
            ap->name);
    return ap;
}

static const char *bytes_to_string(Import *im, const ProtobufCBinaryData *b, const char *path) {
    count_copied(im, b->len + 1, path);
    return arena_strndup(im->a, b->len ? (const char *)b->data : "", b->len);
}

/* A list's length, as an int: a longer list cannot be meant. */
static int list_length(Raw *n, size_t len, const char *name) {
    if (len > INT32_MAX) err(n->im->d, ST_MODEL, n->path, "attribute '%s' is too long", name);
    return (int)len;
}

static Attr attr_import(Raw *n, Scope *s, const Onnx__AttributeProto *ap, const char *name,
                        const char *attrs) {
    Import *im = n->im;
    Attr a = {.name = name};
    int type = attr_type(ap, attrs, n->opset);
    switch (type) {
    case AT(INT): a.kind = AT_INT, a.i = ap->i; break;
    case AT(FLOAT): a.kind = AT_FLOAT, a.f = ap->f; break;
    case AT(STRING): a.kind = AT_STRING, a.s = bytes_to_string(im, &ap->s, n->path); break;
    case AT(INTS):
        a.kind = AT_INTS, a.n = list_length(n, ap->n_ints, name), a.ints = ap->ints;
        break;
    case AT(FLOATS):
        a.kind = AT_FLOATS, a.n = list_length(n, ap->n_floats, name), a.floats = ap->floats;
        break;
    case AT(STRINGS):
        a.kind = AT_STRINGS;
        a.n = list_length(n, ap->n_strings, name);
        count_copied(im, sizeof *a.strings * ap->n_strings, n->path);
        a.strings = NEWN(im->a, const char *, a.n);
        for (int i = 0; i < a.n; i++) a.strings[i] = bytes_to_string(im, &ap->strings[i], n->path);
        break;
    case AT(TENSOR):
        if (!ap->t) err(im->d, ST_MODEL, n->path, "attribute '%s' has no tensor", name);
        a.kind = AT_TENSOR;
        a.t =
            tensor_import(im, ap->t, arena_printf(im->a, "%s: attribute '%.100s'", n->path, name));
        break;
    case AT(GRAPH):
        if (!ap->g) err(im->d, ST_MODEL, n->path, "attribute '%s' has no graph", name);
        a.kind = AT_GRAPH;
        a.g = region_import(im, ap->g, s, n->b->r,
                            path_join(im, path_join(im, s->prefix, n->name), name));
        break;
    case AT(TYPE_PROTO):
        a.kind = AT_TYPE;
        a.type =
            type_import(im, ap->tp, arena_printf(im->a, "%s: attribute '%.100s'", n->path, name));
        if (!a.type) err(im->d, ST_MODEL, n->path, "attribute '%s' has no type", name);
        break;
    default:
        err(im->d, ST_UNSUPPORTED, n->path, "the kind of attribute '%s' (%d) is not supported",
            name, type);
    }
    return a;
}

void attrs_import(Raw *n, Scope *s, const Onnx__NodeProto *np) {
    const OpRow *row = op_find(n->domain, n->op);
    const char *attrs = row ? row->attrs : op_old_attrs(n->domain, n->op);
    for (size_t i = 0; i < np->n_attribute; i++) {
        const Onnx__AttributeProto *ap = np->attribute[i];
        const char *name = ap->name;
        if (!name[0]) err(n->im->d, ST_MODEL, n->path, "an attribute has no name");
        if (raw_attr(n, name))
            err(n->im->d, ST_MODEL, n->path, "attribute '%s' is given twice", name);
        Scope *from = s;
        ap = attr_resolve(n->im, ap, &from, n->path);
        if (!ap) continue;
        Attr a = attr_import(n, from, ap, name, attrs);
        if (attrs) attr_check(n, attrs, &a); /* NULL: the operator is refused later */
        vec_push(n->im->a, &n->attr, a);
    }
}

const Const *constant_import(Import *im, Scope *s, const Onnx__NodeProto *np, const char *path) {
    const Onnx__AttributeProto *ap = NULL;
    const char *name = NULL;
    for (size_t i = 0; i < np->n_attribute; i++) {
        Scope *from = s;
        const Onnx__AttributeProto *x = attr_resolve(im, np->attribute[i], &from, path);
        if (!x) continue;
        if (ap) err(im->d, ST_MODEL, path, "a Constant must have one value");
        ap = x;
        name = np->attribute[i]->name;
    }
    if (!ap) err(im->d, ST_MODEL, path, "a Constant must have one value");
    int type = attr_type(ap, NULL, 0);
    int64_t n = 1;
    DType t = DT_F32;
    const void *from = &ap->f;
    if (!strcmp(name, "value") && type == AT(TENSOR) && ap->t)
        return tensor_import(im, ap->t, path);
    if (!strcmp(name, "sparse_value") && type == AT(SPARSE_TENSOR) && ap->sparse_tensor)
        return sparse_import(im, ap->sparse_tensor, path);
    if (!strcmp(name, "value_int") && type == AT(INT)) {
        t = DT_I64, from = &ap->i;
    } else if (!strcmp(name, "value_ints") && type == AT(INTS)) {
        t = DT_I64, from = ap->ints, n = (int64_t)ap->n_ints;
    } else if (!strcmp(name, "value_floats") && type == AT(FLOATS)) {
        from = ap->floats, n = (int64_t)ap->n_floats;
    } else if (!strcmp(name, "value_string") || !strcmp(name, "value_strings")) {
        err(im->d, ST_UNSUPPORTED, path, "element type string is not supported");
    } else if (strcmp(name, "value_float") || type != AT(FLOAT)) {
        err(im->d, ST_MODEL, path, "attribute '%s' is not a value of a Constant", name);
    }
    Const *known = map_geti(im->tensor, (uintptr_t)ap);
    if (known) return known;
    bool list = type == AT(INTS) || type == AT(FLOATS);
    Const *c = const_new(im, t, list, &n, n);
    if (n) memcpy((void *)(uintptr_t)c->data, from, (size_t)n * dtype_size(t));
    map_seti(im->tensor, (uintptr_t)ap, c);
    return c;
}
