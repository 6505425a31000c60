/* fold_loop.c: names the model's state, and puts the caller's loop around the model.
 *
 * The old top region becomes the body of a Loop in a new one:
 *
 *     trips = Gather(Shape(x), axis)               x: the first scan input, with its new axis
 *     Loop(trips, -, initial values) { i, cond, carried inputs:
 *         scan input = Gather(x, i, axis)
 *         ...the old nodes...
 *         cond, carried outputs, the other outputs (scan outputs) }
 *
 * Inputs that are neither scanned nor carried move to the new top region; the body captures them.
 * Requires a Graph as the importer makes it. The new Graph's outputs have the old names and order.
 */
#include "frontend/import.h"

static _Noreturn void usage(Graph *g, const char *what, const char *name) {
    err(g->diag, ST_USAGE, NULL, "%s: '%.300s'", what, name);
}

static int find_param(Graph *g, const Region *r, const char *name) {
    for (int i = 0; i < r->nparam; i++)
        if (!strcmp(r->param[i]->name, name)) return i;
    usage(g, "the model has no such input", name);
}

static int find_result(Graph *g, const Region *r, const char *name) {
    for (int i = 0; i < r->nresult; i++)
        if (!strcmp(r->result_name[i], name)) return i;
    usage(g, "the model has no such output", name);
}

/* The declared type t with one more axis at `axis`; NULL: nothing is declared. */
static const VType *with_axis(Graph *g, const VType *t, int axis, const char *name) {
    if (!t) return NULL;
    if (t->kind != VT_TENSOR) usage(g, "only a tensor can be scanned or stacked", name);
    VType *v = arena_memdup(g->arena, t, sizeof *t);
    if (!t->has_shape) return v;
    if (t->rank == MAX_RANK) usage(g, "the rank would be above the limit", name);
    v->rank = t->rank + 1;
    if (axis < 0) axis += v->rank;
    if (axis < 0 || axis >= v->rank) usage(g, "the axis to scan is out of range", name);
    for (int i = t->rank; i > axis; i--) {
        v->dim[i] = v->dim[i - 1];
        v->param[i] = v->param[i - 1];
    }
    v->dim[axis] = -1;
    v->param[axis] = "scan_length";
    return v;
}

static Node *node_add(Graph *g, Builder *b, const char *op, const char *name, int nin, Value **in,
                      int nout, int nattr, Attr *attr) {
    const char *path = arena_printf(g->arena, "%.200s (%s)", name, op);
    Node *n = graph_node(g, b->r, op, path, nin, in, nout, nattr, attr);
    n->name = name;
    vec_push(g->arena, &b->node, n);
    return n;
}

static Value *copy_param(Graph *g, Region *r, const Value *v) {
    Value *c = graph_value(g, r, v->name);
    c->type = v->type;
    return c;
}

/* Puts the path of the new loop before the paths of the body's nodes. */
static void prefix_paths(Graph *g, Region *r) {
    for (int i = 0; i < r->nnode; i++) {
        Node *n = r->node[i];
        n->path = arena_printf(g->arena, "stream/body/%s", n->path);
        for (int k = 0; k < n->nattr; k++)
            if (n->attr[k].g) prefix_paths(g, n->attr[k].g);
    }
}

/* As "float32[2,n]" or "sequence". */
static const char *type_text(Graph *g, const VType *t) {
    Sb s = {.a = g->arena};
    if (t->kind != VT_TENSOR) return t->kind == VT_SEQUENCE ? "a sequence" : "an optional";
    sb_puts(&s, t->dtype ? dtype_name(t->dtype) : "a tensor");
    for (int i = 0; t->has_shape && i < t->rank; i++) {
        sb_puts(&s, i ? "," : "[");
        if (t->dim[i] >= 0)
            sb_printf(&s, "%lld", (long long)t->dim[i]);
        else
            sb_printf(&s, "%.60s", t->param[i] && *t->param[i] ? t->param[i] : "?");
    }
    if (t->has_shape) sb_puts(&s, t->rank ? "]" : "[]");
    return s.p;
}

/* Whether output type `out`, as far as it is declared, fits the next iteration's input type `in`.
 */
static bool fits(const VType *in, const VType *out) {
    if (in->kind != out->kind) return false;
    if (in->kind != VT_TENSOR) return true;
    if (in->dtype && out->dtype && in->dtype != out->dtype) return false;
    if (!in->has_shape || !out->has_shape) return true;
    for (int i = 0; i < in->rank && in->rank == out->rank; i++)
        if (in->dim[i] >= 0 && out->dim[i] >= 0 && in->dim[i] != out->dim[i]) return false;
    return in->rank == out->rank;
}

/* Fills role[] (0: captured; 1 + index: scanned, then carried), and the state of g. */
static void check_spec(Graph *g, const FoldSpec *s, const Region *r, int *role) {
    g->ncarry = s->ncarry;
    g->carry_input = NEWN(g->arena, int, s->ncarry);
    g->carry_output = NEWN(g->arena, int, s->ncarry);
    for (int i = 0; i < s->nscan + s->ncarry; i++) {
        const char *name = i < s->nscan ? s->scan_input[i] : s->carry_input[i - s->nscan];
        int p = find_param(g, r, name);
        if (role[p]) usage(g, "the input is given twice to scan or carry", name);
        role[p] = i + 1;
        if (i >= s->nscan) g->carry_input[i - s->nscan] = p;
    }
    for (int i = 0; i < s->ncarry; i++) {
        int o = g->carry_output[i] = find_result(g, r, s->carry_output[i]);
        const VType *in = r->param[g->carry_input[i]]->type, *out = r->result_type[o];
        if (!in || !out) continue;
        if (fits(in, out)) continue;
        err(g->diag, ST_USAGE, NULL, "carried input '%.200s' is %s, but output '%.200s' is %s",
            s->carry_input[i], type_text(g, in), s->carry_output[i], type_text(g, out));
    }
}

static void fold_loop(Graph *g, const FoldSpec *s, const int *role) {
    Arena *a = g->arena;
    Region *body = g->top;
    const int *carry_result = g->carry_output;
    prefix_paths(g, body);

    Region *top = NEW(a, Region);
    Builder outer = {.r = top}, inner = {.r = body};
    top->name = body->name;
    top->nparam = body->nparam;
    top->param = NEWN(a, Value *, top->nparam);
    Value **scanned = NEWN(a, Value *, s->nscan), **elem = NEWN(a, Value *, s->nscan);
    Value **init = NEWN(a, Value *, s->ncarry), **state = NEWN(a, Value *, s->ncarry);
    for (int i = 0; i < body->nparam; i++) {
        Value *v = body->param[i];
        int k = role[i] - 1;
        top->param[i] = role[i] ? copy_param(g, top, v) : v;
        if (!role[i]) {
            v->region = top;
        } else if (k < s->nscan) {
            elem[k] = v;
            scanned[k] = top->param[i];
            scanned[k]->type = with_axis(g, v->type, s->scan_axis[k], v->name);
        } else {
            state[k - s->nscan] = v;
            init[k - s->nscan] = top->param[i];
        }
    }

    /* The body: its new parameters, this iteration's slices of scan inputs, the old nodes. */
    body->nparam = 2 + s->ncarry;
    body->param = NEWN(a, Value *, body->nparam);
    Value *iter = body->param[0] = graph_value(g, body, "stream_index");
    Value *cond = body->param[1] = graph_value(g, body, "stream_cond");
    for (int i = 0; i < s->ncarry; i++) body->param[2 + i] = state[i];
    for (int i = 0; i < s->nscan; i++) {
        Attr axis = attr_of_int("axis", s->scan_axis[i]);
        Node *n = node_add(g, &inner, "Gather", elem[i]->name, 2, (Value *[]){scanned[i], iter}, 1,
                           1, &axis);
        n->path = arena_printf(a, "stream/body/%s", n->path);
        n->out[0] = elem[i];
        elem[i]->def = n;
    }
    for (int i = 0; i < body->nnode; i++) vec_push(a, &inner.node, body->node[i]);
    body->node = inner.node.p;
    body->nnode = inner.node.n;
    region_deepen(body);
    body->parent = top;

    /* Results: the carried outputs first, then the scan outputs in their old order. */
    int nold = body->nresult, *from = NEWN(a, int, nold), nstack = 0;
    for (int i = 0; i < nold; i++) from[i] = -1;
    for (int i = 0; i < s->ncarry; i++) from[carry_result[i]] = i;
    for (int i = 0; i < nold; i++)
        if (from[i] < 0) from[i] = s->ncarry + nstack++;
    int nnew = 1 + s->ncarry + nstack;
    Value **result = NEWN(a, Value *, nnew);
    const char **name = NEWN(a, const char *, nnew);
    const VType **type = NEWN(a, const VType *, nnew);
    result[0] = cond;
    name[0] = cond->name;
    for (int i = 0; i < s->ncarry; i++) {
        result[1 + i] = body->result[carry_result[i]];
        name[1 + i] = body->result_name[carry_result[i]];
        type[1 + i] = body->result_type[carry_result[i]];
    }
    for (int i = 0; i < nold; i++) {
        if (from[i] < s->ncarry) continue;
        result[1 + from[i]] = body->result[i];
        name[1 + from[i]] = body->result_name[i];
        type[1 + from[i]] = body->result_type[i];
    }

    /* The loop around the body. */
    int64_t axis = s->scan_axis[0];
    Node *shape = node_add(g, &outer, "Shape", "stream_shape", 1, &scanned[0], 1, 0, NULL);
    Value *index = graph_const(g, top, DT_I64, 0, NULL, &axis);
    Attr zero = attr_of_int("axis", 0), sub = attr_of_graph("body", body);
    Node *trips = node_add(g, &outer, "Gather", "stream_length", 2,
                           (Value *[]){shape->out[0], index}, 1, 1, &zero);
    Value **in = NEWN(a, Value *, 2 + s->ncarry);
    in[0] = trips->out[0];
    for (int i = 0; i < s->ncarry; i++) in[2 + i] = init[i];
    Node *loop = node_add(g, &outer, "Loop", "stream", 2 + s->ncarry, in, nnew - 1, 1, &sub);
    top->node = outer.node.p;
    top->nnode = outer.node.n;
    top->nresult = nold;
    top->result = NEWN(a, Value *, nold);
    top->result_name = body->result_name;
    top->result_type = NEWN(a, const VType *, nold);
    for (int i = 0; i < nold; i++) {
        const VType *t = body->result_type[i];
        top->result_type[i] = from[i] < s->ncarry ? t : with_axis(g, t, 0, body->result_name[i]);
        top->result[i] = loop->out[from[i]];
        top->result[i]->name = body->result_name[i];
        top->result[i]->type = top->result_type[i];
    }
    body->nresult = nnew;
    body->result = result;
    body->result_name = name;
    body->result_type = type;
    body->name = "stream";
    g->top = top;
}

void graph_fold(Graph *g, const FoldSpec *s) {
    int *role = NEWN(g->arena, int, g->top->nparam);
    check_spec(g, s, g->top, role);
    if (s->nscan) fold_loop(g, s, role);
}
