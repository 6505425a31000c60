/* import_types.c: turns TypeProtos into VTypes. */
#include <strings.h>

#include "frontend/import.h"

/* Whether a dimension's name is one that exporters and people write for "not known". Such a name
 * may be on dimensions of different sizes. If the sizes are equal after all, only a check is
 * missed. */
static bool says_nothing(const char *name) {
    static const char *const words[] = {"",     "?",       "*",   "-1",     "None",
                                        "null", "unknown", "any", "dynamic"};
    for (size_t i = 0; i < COUNT(words); i++)
        if (!strcasecmp(name, words[i])) return true;
    return false;
}

static void shape_import(Import *im, VType *v, const Onnx__TensorShapeProto *s, const char *where) {
    if (s->n_dim > MAX_RANK)
        err(im->d, ST_UNSUPPORTED, NULL, "%s: rank %zu is above the limit of %d", where, s->n_dim,
            MAX_RANK);
    v->has_shape = true;
    v->rank = (int)s->n_dim;
    int64_t count = 1;
    for (int i = 0; i < v->rank; i++) {
        const Onnx__TensorShapeProto__Dimension *dim = s->dim[i];
        v->dim[i] = -1;
        if (dim->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_PARAM) {
            if (!says_nothing(dim->dim_param)) v->param[i] = dim->dim_param;
        } else if (dim->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE &&
                   dim->dim_value != -1) { /* some exporters write -1 for an unknown size */
            if (dim->dim_value < 0)
                err(im->d, im->bad, NULL, "%s: negative dimension %lld", where,
                    (long long)dim->dim_value);
            v->dim[i] = dim->dim_value;
            if (dim->dim_value && !mul_size(count, dim->dim_value, &count))
                err(im->d, im->bad, NULL, "%s: the tensor is too large", where);
        }
    }
}

static const VType *import(Import *im, const Onnx__TypeProto *t, const char *where, int depth) {
    VType *v = NEW(im->a, VType);
    const Onnx__TypeProto *elem = NULL;
    switch (t->value_case) {
    case ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE: {
        int e = t->tensor_type->elem_type;
        if (e && !dtype_supported(e))
            err(im->d, ST_UNSUPPORTED, NULL, "%s: element type %s is not supported", where,
                dtype_name(e));
        v->dtype = (DType)e;
        if (t->tensor_type->shape) shape_import(im, v, t->tensor_type->shape, where);
        return v;
    }
    case ONNX__TYPE_PROTO__VALUE_SEQUENCE_TYPE:
        v->kind = VT_SEQUENCE;
        elem = t->sequence_type->elem_type;
        break;
    case ONNX__TYPE_PROTO__VALUE_OPTIONAL_TYPE:
        v->kind = VT_OPTIONAL;
        elem = t->optional_type->elem_type;
        break;
    case ONNX__TYPE_PROTO__VALUE_MAP_TYPE:
        err(im->d, ST_UNSUPPORTED, NULL, "%s: type map is not supported", where);
    case ONNX__TYPE_PROTO__VALUE_SPARSE_TENSOR_TYPE:
        err(im->d, ST_UNSUPPORTED, NULL, "%s: type sparse_tensor is not supported", where);
    case ONNX__TYPE_PROTO__VALUE_OPAQUE_TYPE:
        err(im->d, ST_UNSUPPORTED, NULL, "%s: type opaque is not supported", where);
    default: return NULL;
    }
    /* Sequences hold tensors; optionals hold tensors or sequences. */
    if (depth == 2) err(im->d, ST_UNSUPPORTED, NULL, "%s: the type is nested too deep", where);
    const VType *inner = elem ? import(im, elem, where, depth + 1) : NULL;
    if (inner && (inner->kind == VT_OPTIONAL || v->kind == inner->kind))
        err(im->d, ST_UNSUPPORTED, NULL, "%s: a %s of %s is not supported", where,
            v->kind == VT_SEQUENCE ? "sequence" : "optional",
            inner->kind == VT_SEQUENCE ? "sequences" : "optionals");
    v->elem = inner ? arena_memdup(im->a, inner, sizeof *inner) : NEW(im->a, VType);
    return v;
}

const VType *type_import(Import *im, const Onnx__TypeProto *t, const char *where) {
    return t ? import(im, t, where, 0) : NULL;
}

const VType *type_made(Import *im, const Onnx__TypeProto *t, const char *where) {
    bool sequence = t && t->value_case == ONNX__TYPE_PROTO__VALUE_SEQUENCE_TYPE;
    const Onnx__TypeProto *elem = sequence ? t->sequence_type->elem_type : NULL;
    if (elem && elem->value_case == ONNX__TYPE_PROTO__VALUE_MAP_TYPE) return NULL;
    return type_import(im, t, where);
}
