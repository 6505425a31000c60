/* import_attr.c: AttributeProto to Attr and Constant nodes to Const. */
#include "frontend/import.h"

#define AT(x) ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__##x

/* Attributes of the default domain by kind; a name means the same kind in every operator, save for
 * those left out here (p, seed) and those that attr_known treats apart. */
static const char *const ints_names[] = {"axes",
                                         "dilations",
                                         "directions",
                                         "ends",
                                         "kernel_shape",
                                         "output_padding",
                                         "output_shape",
                                         "paddings",
                                         "pads",
                                         "perm",
                                         "pooled_shape",
                                         "scan_input_axes",
                                         "scan_input_directions",
                                         "scan_output_axes",
                                         "scan_output_directions",
                                         "shape",
                                         "split",
                                         "starts",
                                         "strides",
                                         "value_ints"};
static const char *const int_names[] = {"align_corners",
                                        "allowzero",
                                        "antialias",
                                        "axis",
                                        "batch_axis",
                                        "batch_dims",
                                        "block_size",
                                        "blocksize",
                                        "broadcast",
                                        "ceil_mode",
                                        "center_point_box",
                                        "chunk_size",
                                        "count_include_pad",
                                        "detect_negative",
                                        "detect_positive",
                                        "dtype",
                                        "end",
                                        "exclude_outside",
                                        "exclusive",
                                        "fmod",
                                        "group",
                                        "hidden_size",
                                        "ignore_index",
                                        "input_forget",
                                        "interleaved",
                                        "inverse",
                                        "is_causal",
                                        "is_test",
                                        "k",
                                        "keepdims",
                                        "kv_num_heads",
                                        "largest",
                                        "layout",
                                        "linear_before_reset",
                                        "new_axis",
                                        "noop_with_empty_axes",
                                        "num_groups",
                                        "num_heads",
                                        "num_outputs",
                                        "num_scan_inputs",
                                        "offset_group",
                                        "onesided",
                                        "output_datatype",
                                        "output_dtype",
                                        "output_height",
                                        "output_sequence",
                                        "output_width",
                                        "periodic",
                                        "precision",
                                        "q_num_heads",
                                        "qk_matmul_output_mode",
                                        "reverse",
                                        "rotary_embedding_dim",
                                        "sample_size",
                                        "sampling_ratio",
                                        "saturate",
                                        "select_last_index",
                                        "size",
                                        "softmax_precision",
                                        "sorted",
                                        "spatial",
                                        "start",
                                        "stash_type",
                                        "storage_order",
                                        "time_axis",
                                        "to",
                                        "training_mode",
                                        "transA",
                                        "transB",
                                        "upper",
                                        "value_int"};
static const char *const float_names[] = {"alpha",
                                          "beta",
                                          "bias",
                                          "clip",
                                          "cubic_coeff_a",
                                          "epsilon",
                                          "extrapolation_value",
                                          "gamma",
                                          "height_scale",
                                          "high",
                                          "lambd",
                                          "low",
                                          "max",
                                          "mean",
                                          "min",
                                          "momentum",
                                          "ratio",
                                          "scale",
                                          "softcap",
                                          "spatial_scale",
                                          "value_float",
                                          "width_scale"};
static const char *const floats_names[] = {"activation_alpha", "activation_beta", "scales",
                                           "value_floats"};
static const char *const string_names[] = {"activation",
                                           "approximate",
                                           "auto_pad",
                                           "coordinate_transformation_mode",
                                           "direction",
                                           "equation",
                                           "keep_aspect_ratio_policy",
                                           "mode",
                                           "nearest_mode",
                                           "padding_mode",
                                           "reduction",
                                           "round_mode"};
static const char *const strings_names[] = {"activations"};
static const char *const graph_names[] = {"body", "else_branch", "then_branch"};
static const char *const tensor_names[] = {"value"};
static const char *const type_names[] = {"type"};

static const struct {
    int type;
    const char *text;
    size_t n;
    const char *const *name;
} kinds[] = {
    {AT(INTS), "a list of integers", COUNT(ints_names), ints_names},
    {AT(INT), "an integer", COUNT(int_names), int_names},
    {AT(FLOAT), "a float", COUNT(float_names), float_names},
    {AT(FLOATS), "a list of floats", COUNT(floats_names), floats_names},
    {AT(STRING), "a string", COUNT(string_names), string_names},
    {AT(STRINGS), "a list of strings", COUNT(strings_names), strings_names},
    {AT(GRAPH), "a graph", COUNT(graph_names), graph_names},
    {AT(TENSOR), "a tensor", COUNT(tensor_names), tensor_names},
    {AT(TYPE_PROTO), "a type", COUNT(type_names), type_names},
};

static void check_known(const Raw *n, const char *name, int type) {
    if (n->domain[0]) return;
    if (n->opset < 11 && !strcmp(n->op, "Pad") && !strcmp(name, "value")) return;
    if (n->opset < 6 && !strcmp(n->op, "Cast")) return;
    for (size_t i = 0; i < COUNT(kinds); i++)
        for (size_t k = 0; k < kinds[i].n; k++)
            if (!strcmp(kinds[i].name[k], name)) {
                if (kinds[i].type != type)
                    err(n->im->d, ST_MODEL, n->path, "attribute '%s' must be %s", name,
                        kinds[i].text);
                return;
            }
}

int attr_type(const Onnx__AttributeProto *ap) {
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
    return AT(INT);
}

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
        /* A default may not refer further, so any scope does. */
        for (size_t i = 0; i < c->f->n_attribute_proto && !ap; i++)
            if (!strcmp(c->f->attribute_proto[i]->name, name)) ap = c->f->attribute_proto[i];
        if (ap && ap->ref_attr_name[0])
            err(im->d, ST_MODEL, path, "the default of attribute '%s' refers to another", name);
    }
    if (ap && want && want != attr_type(ap))
        err(im->d, ST_MODEL, path, "attribute '%s' of the function call has the wrong type",
            ap->name);
    return ap;
}

static const char *bytes_to_string(Import *im, const ProtobufCBinaryData *b, const char *path) {
    count_copied(im, b->len + 1, path);
    return arena_strndup(im->a, b->len ? (const char *)b->data : "", b->len);
}

/* A list longer than an int can count cannot be a real one. */
static int list_length(Raw *n, size_t len, const char *name) {
    if (len > INT32_MAX) err(n->im->d, ST_MODEL, n->path, "attribute '%s' is too long", name);
    return (int)len;
}

static Attr attr_import(Raw *n, Scope *s, const Onnx__AttributeProto *ap, const char *name) {
    Import *im = n->im;
    Attr a = {.name = name};
    int type = attr_type(ap);
    check_known(n, name, type);
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
    for (size_t i = 0; i < np->n_attribute; i++) {
        const Onnx__AttributeProto *ap = np->attribute[i];
        const char *name = ap->name;
        if (!name[0]) err(n->im->d, ST_MODEL, n->path, "an attribute has no name");
        if (raw_attr(n, name))
            err(n->im->d, ST_MODEL, n->path, "attribute '%s' is given twice", name);
        Scope *from = s;
        ap = attr_resolve(n->im, ap, &from, n->path);
        if (!ap) continue;
        vec_push(n->im->a, &n->attr, attr_import(n, from, ap, name));
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
    int type = attr_type(ap);
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
