/* normalize_nn.c: rewrites old forms of normalization, resizing and broadcasting. */
#include "frontend/import.h"

static bool wanted(const Raw *n, int i) { return i < n->out.n && n->out.p[i]; }

static void drop(Raw *n, const char *name) {
    Attr a;
    raw_take(n, name, &a);
}

/* v with `count` (a scalar) axes of size 1 added at the end. */
static Value *append_ones(Raw *n, Value *v, Value *count) {
    int64_t one = 1;
    Const *fill = const_new(n->im, DT_I64, 1, &one, 1);
    *(int64_t *)(uintptr_t)fill->data = 1;
    Value *len =
        raw_emit(n, "Reshape", 2, (Value *[]){count, raw_emit_i64(n, 1, 1, &one)}, 0, NULL);
    Attr value = {.name = "value", .kind = AT_TENSOR, .t = fill};
    Value *ones = raw_emit(n, "ConstantOfShape", 1, &len, 1, &value);
    Value *shape = raw_emit(n, "Shape", 1, &v, 0, NULL);
    Attr axis = attr_of_int("axis", 0);
    shape = raw_emit(n, "Concat", 2, (Value *[]){shape, ones}, 1, &axis);
    return raw_emit(n, "Reshape", 2, (Value *[]){v, shape}, 0, NULL);
}

/* Before opset 7, `axis` was the axis of the first operand where the second operand's axes begin.
 * Without it, the axes are aligned at the end, as today. */
void norm_legacy_broadcast(Raw *n) {
    Attr broadcast, axis;
    bool on = raw_take(n, "broadcast", &broadcast) && broadcast.i;
    if (!raw_take(n, "axis", &axis) || !on) return;
    Value *a = raw_need(n, 0), *b = raw_need(n, 1);
    Value *from = raw_emit_i64(n, 0, 0, &axis.i);
    Value *rank = raw_emit_rank(n, b);
    Value *count = raw_emit(n, "Add", 2, (Value *[]){rank, from}, 0, NULL);
    if (axis.i >= 0)
        count = raw_emit(n, "Sub", 2, (Value *[]){raw_emit_rank(n, a), count}, 0, NULL);
    else
        count = raw_emit(n, "Neg", 1, &count, 0, NULL);
    raw_input(n, 1, append_ones(n, b, count));
}

/* Before opset 7 the slope had one element, or one per channel (axis 1). */
void norm_legacy_prelu(Raw *n) {
    Value *x = raw_need(n, 0), *slope = raw_need(n, 1);
    int64_t two = 2, zero = 0;
    Value *over = raw_emit(n, "Sub", 2,
                           (Value *[]){raw_emit_rank(n, x), raw_emit_i64(n, 0, 0, &two)}, 0, NULL);
    over = raw_emit(n, "Max", 2, (Value *[]){over, raw_emit_i64(n, 0, 0, &zero)}, 0, NULL);
    raw_input(n, 1, append_ones(n, slope, over));
}

/* Before opset 14, more than one named output meant training. spatial=0 (opsets 7 and 8) meant that
 * scale, bias, mean and variance are per element instead of per channel. */
void norm_batchnorm(Raw *n) {
    Attr spatial;
    bool each = raw_take(n, "spatial", &spatial) && !spatial.i && n->opset < 9;
    drop(n, "is_test");
    if (wanted(n, 3) || wanted(n, 4))
        err(n->im->d, ST_UNSUPPORTED, n->path,
            "outputs saved_mean and saved_var are not supported");
    if (n->out.n > 3) n->out.n = 3;
    bool training = wanted(n, 1) || wanted(n, 2);
    if (!each) {
        if (training) raw_put(n, attr_of_int("training_mode", 1));
        return;
    }
    if (training)
        err(n->im->d, ST_UNSUPPORTED, n->path, "training with spatial=0 is not supported");
    Attr epsilon;
    float e = raw_take(n, "epsilon", &epsilon) ? epsilon.f : 1e-5f;
    drop(n, "momentum");
    Value *x = raw_need(n, 0), *scale = raw_need(n, 1), *bias = raw_need(n, 2),
          *mean = raw_need(n, 3);
    Value *var = raw_need(n, 4);
    Value *eps = raw_emit_cast_like(n, raw_emit_float(n, e), var);
    Value *std = raw_emit(n, "Add", 2, (Value *[]){var, eps}, 0, NULL);
    std = raw_emit(n, "Sqrt", 1, &std, 0, NULL);
    x = raw_emit(n, "Sub", 2, (Value *[]){x, mean}, 0, NULL);
    x = raw_emit(n, "Div", 2, (Value *[]){x, std}, 0, NULL);
    x = raw_emit(n, "Mul", 2, (Value *[]){x, scale}, 0, NULL);
    n->op = "Add";
    n->in.n = 0;
    raw_input(n, 0, x);
    raw_input(n, 1, bias);
    if (n->out.n > 1) n->out.n = 1;
}

/* In inference the output is the input. Before opset 10 the mask had the data's type. */
void norm_dropout(Raw *n) {
    drop(n, "ratio");
    drop(n, "is_test");
    Value *x = raw_need(n, 0);
    if (n->opset < 10 && wanted(n, 1)) {
        Value *mask = graph_value(n->im->g, n->b->r, n->out.p[1]->name);
        raw_post(n, "CastLike", 2, (Value *[]){mask, x}, n->out.p[1]);
        n->out.p[1] = mask;
    }
}

/* Opset 18 had scale and bias per group; the newest form has them per channel. */
void norm_groupnorm(Raw *n) {
    const Attr *groups = raw_attr(n, "num_groups");
    if (!groups) err(n->im->d, ST_MODEL, n->path, "attribute 'num_groups' is missing");
    int64_t one = 1, all = -1, g = groups->i;
    if (g < 1) err(n->im->d, ST_MODEL, n->path, "attribute 'num_groups' must be positive");
    Value *x = raw_need(n, 0);
    Attr range[] = {attr_of_int("start", 1), attr_of_int("end", 2)}, axis = attr_of_int("axis", 0);
    Value *channels = raw_emit(n, "Shape", 1, &x, 2, range);
    Value *count = raw_emit_i64(n, 1, 1, &g), *ones = raw_emit_i64(n, 1, 1, &one);
    Value *flat = raw_emit_i64(n, 1, 1, &all);
    Value *each = raw_emit(n, "Div", 2, (Value *[]){channels, count}, 0, NULL);
    Value *shape = raw_emit(n, "Concat", 2, (Value *[]){count, each}, 1, &axis);
    for (int i = 1; i <= 2; i++) {
        Value *v = raw_emit(n, "Unsqueeze", 2, (Value *[]){raw_need(n, i), ones}, 0, NULL);
        v = raw_emit(n, "Expand", 2, (Value *[]){v, shape}, 0, NULL);
        raw_input(n, i, raw_emit(n, "Reshape", 2, (Value *[]){v, flat}, 0, NULL));
    }
}

/* Whether a Resize's scales are constants, and none of them enlarges. */
static bool shrinks(const Value *scales) {
    const Const *c = scales ? scales->data : NULL;
    if (!c || c->dtype != DT_F32) return false;
    for (int64_t i = 0; i < c->count; i++)
        if (((const float *)c->data)[i] > 1) return false;
    return true;
}

/* The form (X, scales) of Upsample and of Resize in opset 10. Coordinates are only divided by the
 * scale. As in other runtimes, `nearest` rounds down when enlarging and up when shrinking. */
void norm_resize10(Raw *n) {
    Value *x = raw_need(n, 0), *scales = raw_need(n, 1);
    const Attr *mode = raw_attr(n, "mode");
    bool nearest = !mode || !strcmp(mode->s, "nearest");
    raw_put(n, attr_of_string("coordinate_transformation_mode", "asymmetric"));
    if (nearest) raw_put(n, attr_of_string("nearest_mode", shrinks(scales) ? "ceil" : "floor"));
    n->in.n = 0;
    raw_input(n, 0, x);
    raw_input(n, 2, scales);
}

void norm_upsample(Raw *n) {
    Attr scales, height, width;
    Value *x = raw_need(n, 0);
    if (n->opset < 9) {
        if (raw_take(n, "scales", &scales)) {
            int64_t count = scales.n;
            raw_input(n, 1, graph_const(n->im->g, n->b->r, DT_F32, 1, &count, scales.floats));
        } else if (raw_take(n, "height_scale", &height) && raw_take(n, "width_scale", &width)) {
            int64_t count = 4;
            float v[4] = {1, 1, height.f, width.f};
            raw_input(n, 1, graph_const(n->im->g, n->b->r, DT_F32, 1, &count, v));
        } else {
            err(n->im->d, ST_MODEL, n->path, "attribute 'scales' is missing");
        }
    }
    raw_input(n, 0, x);
    Attr mode;
    if (raw_take(n, "mode", &mode)) { /* opset 1 said bilinear for linear */
        if (!strcmp(mode.s, "bilinear")) mode.s = "linear";
        raw_put(n, mode);
    }
    norm_resize10(n);
    n->op = "Resize";
}

/* An empty constant means that roi, scales or sizes is absent. Opset 11's tf_half_pixel_for_nn is
 * half_pixel without the final -0.5: it becomes half_pixel with another rounding mode. */
void norm_resize(Raw *n) {
    for (int i = 1; i < n->in.n; i++)
        if (n->in.p[i] && n->in.p[i]->data && n->in.p[i]->data->count == 0) n->in.p[i] = NULL;
    const Attr *m = raw_attr(n, "coordinate_transformation_mode");
    if (!m || strcmp(m->s, "tf_half_pixel_for_nn")) return;
    const Attr *mode = raw_attr(n, "mode"), *round = raw_attr(n, "nearest_mode");
    if ((mode && strcmp(mode->s, "nearest")) || !round || strcmp(round->s, "floor"))
        err(n->im->d, ST_UNSUPPORTED, n->path,
            "tf_half_pixel_for_nn is supported with mode nearest and nearest_mode floor only");
    drop(n, "coordinate_transformation_mode");
    drop(n, "nearest_mode");
    raw_put(n, attr_of_string("nearest_mode", "round_prefer_ceil"));
}
