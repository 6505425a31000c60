/* normalize.c: rewrites every operator form since opset 1 to the newest one.
 *
 * The table at the end has one row per operator and change of form; rows apply in order. Attributes
 * that turned into inputs become constants, and defaults that changed are written out. Where the
 * new form cannot express the old one, the node becomes several nodes. Lowerings see only one trace
 * of old forms, an internal attribute: flatten=1 on Softmax, LogSoftmax and Hardmax. They then
 * treat the input as a matrix, whose rows are the axes before `axis`.
 */
#include "frontend/import.h"

/* ---- helpers -------------------------------------------------------------------------------- */

static void at_most(Raw *n, int max) {
    while (n->in.n > max && !n->in.p[n->in.n - 1]) n->in.n--;
    if (n->in.n > max)
        err(n->im->d, ST_MODEL, n->path, "takes at most %d inputs in opset %d, has %d", max,
            n->opset, n->in.n);
}

/* A list of integers becomes input i; false when the attribute is absent. */
static bool ints_to_input(Raw *n, const char *name, int i) {
    Attr a;
    if (!raw_take(n, name, &a)) return false;
    raw_input(n, i, raw_emit_i64(n, 1, a.n, a.ints));
    return true;
}

static void must(Raw *n, bool there, const char *name) {
    if (!there) err(n->im->d, ST_MODEL, n->path, "attribute '%s' is missing", name);
}

/* ---- axes and shapes ------------------------------------------------------------------------ */

static void squeeze(Raw *n) {
    at_most(n, 1);
    ints_to_input(n, "axes", 1);
}

static void unsqueeze(Raw *n) {
    at_most(n, 1);
    must(n, ints_to_input(n, "axes", 1), "axes");
}

/* An empty list meant all axes, as did an absent one. */
static void reduce(Raw *n) {
    at_most(n, 1);
    const Attr *a = raw_attr(n, "axes");
    Attr dropped;
    if (a && a->n == 0)
        raw_take(n, "axes", &dropped);
    else
        ints_to_input(n, "axes", 1);
}

static void split2(Raw *n) {
    if (n->opset >= 2) at_most(n, 1);
    ints_to_input(n, "split", 1);
}

static void slice(Raw *n) {
    at_most(n, 1);
    must(n, ints_to_input(n, "starts", 1), "starts");
    must(n, ints_to_input(n, "ends", 2), "ends");
    ints_to_input(n, "axes", 3);
}

static void pad1(Raw *n) {
    Attr a;
    if (!raw_take(n, "paddings", &a)) return;
    a.name = "pads";
    raw_put(n, a);
}

static void pad2(Raw *n) {
    at_most(n, 1);
    Attr value;
    must(n, ints_to_input(n, "pads", 1), "pads");
    if (raw_take(n, "value", &value) && value.f != 0)
        raw_input(n, 2, raw_emit_cast_like(n, raw_emit_float(n, value.f), raw_need(n, 0)));
}

static void reshape1(Raw *n) {
    at_most(n, 1);
    must(n, ints_to_input(n, "shape", 1), "shape");
}

static void concat1(Raw *n) {
    if (!raw_attr(n, "axis")) raw_put(n, attr_of_int("axis", 1));
}

static void scatter(Raw *n) { n->op = "ScatterElements"; }

/* ---- elements ------------------------------------------------------------------------------- */

static void clip(Raw *n) {
    at_most(n, 1);
    Attr a;
    if (raw_take(n, "min", &a))
        raw_input(n, 1, raw_emit_cast_like(n, raw_emit_float(n, a.f), raw_need(n, 0)));
    if (raw_take(n, "max", &a))
        raw_input(n, 2, raw_emit_cast_like(n, raw_emit_float(n, a.f), raw_need(n, 0)));
}

static void softmax(Raw *n) {
    if (!raw_attr(n, "axis")) raw_put(n, attr_of_int("axis", 1));
    raw_put(n, attr_of_int("flatten", 1));
}

static void topk(Raw *n) {
    at_most(n, 1);
    Attr k;
    must(n, raw_take(n, "k", &k), "k");
    raw_input(n, 1, raw_emit_i64(n, 1, 1, &k.i));
}

static void selu1(Raw *n) {
    if (!raw_attr(n, "alpha")) raw_put(n, (Attr){.name = "alpha", .kind = AT_FLOAT, .f = 1.6732f});
    if (!raw_attr(n, "gamma")) raw_put(n, (Attr){.name = "gamma", .kind = AT_FLOAT, .f = 1.0507f});
}

static void cast1(Raw *n) {
    static const struct {
        const char *name;
        int type;
    } types[] = {{"FLOAT", 1},    {"UINT8", 2},   {"INT8", 3},    {"UINT16", 4},
                 {"INT16", 5},    {"INT32", 6},   {"INT64", 7},   {"BOOL", 9},
                 {"FLOAT16", 10}, {"DOUBLE", 11}, {"UINT32", 12}, {"UINT64", 13}};
    Attr to;
    must(n, raw_take(n, "to", &to), "to");
    for (size_t i = 0; to.kind == AT_STRING && i < COUNT(types); i++)
        if (!strcmp(types[i].name, to.s)) {
            raw_put(n, attr_of_int("to", types[i].type));
            return;
        }
    err(n->im->d, ST_UNSUPPORTED, n->path, "this type to cast to is not supported");
}

static void old_unsupported(Raw *n) {
    err(n->im->d, ST_UNSUPPORTED, n->path, "the form of %s in opset %d is not supported", n->op,
        n->opset);
}

/* ---- others --------------------------------------------------------------------------------- */

static void dft(Raw *n) {
    Attr axis;
    int64_t v = raw_take(n, "axis", &axis) ? axis.i : 1;
    at_most(n, 2);
    raw_input(n, 2, raw_emit_i64(n, 0, 0, &v));
}

static void gridsample(Raw *n) {
    Attr mode;
    if (!raw_take(n, "mode", &mode)) return;
    if (!strcmp(mode.s, "bilinear")) mode.s = "linear";
    if (!strcmp(mode.s, "bicubic")) mode.s = "cubic";
    raw_put(n, mode);
}

static void roialign(Raw *n) {
    if (!raw_attr(n, "coordinate_transformation_mode"))
        raw_put(n, attr_of_string("coordinate_transformation_mode", "output_half_pixel"));
}

/* ---- the table ------------------------------------------------------------------------------ */

/* In opsets below `below`, `fn` rewrites the node. */
typedef struct Rewrite {
    const char *op;
    int below;
    void (*fn)(Raw *n);
} Rewrite;

static const Rewrite rewrites[] = {
    {"Add", 7, norm_legacy_broadcast},
    {"Sub", 7, norm_legacy_broadcast},
    {"Mul", 7, norm_legacy_broadcast},
    {"Div", 7, norm_legacy_broadcast},
    {"And", 7, norm_legacy_broadcast},
    {"Or", 7, norm_legacy_broadcast},
    {"Xor", 7, norm_legacy_broadcast},
    {"Equal", 7, norm_legacy_broadcast},
    {"Greater", 7, norm_legacy_broadcast},
    {"Less", 7, norm_legacy_broadcast},
    {"Pow", 7, norm_legacy_broadcast},
    {"PRelu", 7, norm_legacy_prelu},
    {"BatchNormalization", 14, norm_batchnorm},
    {"Cast", 6, cast1},
    {"Clip", 11, clip},
    {"Concat", 4, concat1},
    {"DFT", 20, dft},
    {"Dropout", 12, norm_dropout},
    {"GlobalLpPool", 2, old_unsupported},
    {"GridSample", 20, gridsample},
    {"GroupNormalization", 21, norm_groupnorm},
    {"GRU", 3, old_unsupported},
    {"Hardmax", 13, softmax},
    {"LogSoftmax", 13, softmax},
    {"LpPool", 2, old_unsupported},
    {"Pad", 2, pad1},
    {"Pad", 11, pad2},
    {"ReduceL1", 18, reduce},
    {"ReduceL2", 18, reduce},
    {"ReduceLogSum", 18, reduce},
    {"ReduceLogSumExp", 18, reduce},
    {"ReduceMax", 18, reduce},
    {"ReduceMean", 18, reduce},
    {"ReduceMin", 18, reduce},
    {"ReduceProd", 18, reduce},
    {"ReduceSum", 13, reduce},
    {"ReduceSumSquare", 18, reduce},
    {"Reshape", 5, reshape1},
    {"Resize", 11, norm_resize10},
    {"Resize", OPSET_MAX + 1, norm_resize},
    {"RoiAlign", 16, roialign},
    {"Scan", 9, norm_scan8},
    {"Scatter", OPSET_MAX + 1, scatter},
    {"Selu", 6, selu1},
    {"Slice", 10, slice},
    {"Softmax", 13, softmax},
    {"Split", 13, split2},
    {"Squeeze", 13, squeeze},
    {"Tile", 6, old_unsupported},
    {"TopK", 10, topk},
    {"Unsqueeze", 13, unsqueeze},
    {"Upsample", 10, norm_upsample},
};

bool normalize_knows(const char *op) {
    for (size_t i = 0; i < COUNT(rewrites); i++)
        if (!strcmp(rewrites[i].op, op)) return true;
    return false;
}

void normalize(Raw *n) {
    if (n->domain[0]) return;
    Attr dropped;
    raw_take(n, "consumed_inputs", &dropped);
    const char *op = n->op; /* a rewrite may change n->op, to an operator in its newest form */
    for (size_t i = 0; i < COUNT(rewrites); i++) {
        const Rewrite *r = &rewrites[i];
        if (!strcmp(r->op, op) && n->opset < r->below) r->fn(n);
    }
    n->attr.p = n->attr.n ? n->attr.p : NULL;
}
