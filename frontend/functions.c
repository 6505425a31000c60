/* functions.c: model-local functions.
 *
 * An ordinary call is inlined: the function's nodes go into the caller's region. The names of the
 * body have a scope of their own, so that they cannot clash. A function that ai.braid:Invoke calls
 * is imported once for all its callers, as a Region without parent.
 */
#include "frontend/import.h"

static void check_recursion(Import *im, const Scope *s, const Onnx__FunctionProto *f,
                            const char *path) {
    for (const Call *c = s->call; c; c = c->up)
        if (c->f == f)
            err(im->d, ST_MODEL, path, "function %.200s:%.200s calls itself (through %.200s)",
                f->domain, f->name, s->call->f->name);
}

void call_inline(Import *im, Scope *s, const Onnx__NodeProto *np, const Onnx__FunctionProto *f,
                 const char *path) {
    check_recursion(im, s, f, path);
    if (++im->depth > MAX_NESTING)
        err(im->d, ST_UNSUPPORTED, path, "function calls are nested deeper than %d", MAX_NESTING);
    size_t nin = np->n_input, nout = np->n_output;
    while (nin > f->n_input && !np->input[nin - 1][0]) nin--;
    if (nin > f->n_input)
        err(im->d, ST_MODEL, path, "the function takes %zu inputs, the call gives %zu", f->n_input,
            nin);
    if (nout > f->n_output)
        err(im->d, ST_MODEL, path, "the function has %zu outputs, the call names %zu", f->n_output,
            nout);
    Call call = {f, np, s, s->call};
    Scope body = {.name = map_new(im->a),
                  .b = s->b,
                  .call = &call,
                  .prefix = path_join(im, s->prefix, node_name(np))};
    for (size_t i = 0; i < f->n_input; i++) {
        if (!f->input[i][0]) err(im->d, ST_MODEL, path, "an input of the function has no name");
        const Value *v = &value_absent;
        if (i < nin && np->input[i][0]) v = scope_find(s, np->input[i]);
        if (!v) err(im->d, ST_MODEL, path, "input '%s' is not defined", np->input[i]);
        scope_add(im, &body, f->input[i], v, path);
    }
    nodes_import(im, &body, f->node, f->n_node, body.prefix);
    for (size_t i = 0; i < nout; i++) {
        if (!np->output[i][0]) continue;
        Value *v = scope_find(&body, f->output[i]);
        if (!v)
            err(im->d, ST_MODEL, path, "output '%s' of the function is not defined", f->output[i]);
        if (v == &value_absent)
            err(im->d, ST_MODEL, path, "output '%s' of the function is an input that is left out",
                f->output[i]);
        scope_add(im, s, np->output[i], v, path);
        if (!v->type && s->type) {
            const Onnx__TypeProto *t = map_get(s->type, np->output[i]);
            v->type = type_made(im, t, arena_printf(im->a, "value '%.200s'", np->output[i]));
        }
    }
    im->depth--;
}

/* ---- Invoke --------------------------------------------------------------------------------- */
typedef VEC(int) Ints;
typedef struct Invoked {
    VEC(Function *) f;
    VEC(const Onnx__FunctionProto *) proto;
    VEC(Ints) calls; /* for each function, the indices of the functions that its body Invokes */
} Invoked;

/* Finds the function `want`: its name, or domain:name. */
static const Onnx__FunctionProto *named(Import *im, const char *want, const char *path) {
    const Onnx__FunctionProto *found = NULL;
    for (size_t i = 0; i < im->model->n_functions; i++) {
        const Onnx__FunctionProto *f = im->model->functions[i];
        size_t n = strlen(f->domain);
        bool full =
            !strncmp(f->domain, want, n) && want[n] == ':' && !strcmp(f->name, want + n + 1);
        if (!full && strcmp(f->name, want)) continue;
        if (found)
            err(im->d, ST_MODEL, path,
                "several functions have the name '%.200s'; write domain:name", want);
        found = f;
    }
    if (!found) err(im->d, ST_MODEL, path, "there is no function '%.200s' in the model", want);
    return found;
}

static Function *invoked(Import *im, const Onnx__FunctionProto *f, const char *path) {
    Invoked *k = im->invoked ? im->invoked : (im->invoked = NEW(im->a, Invoked));
    for (int i = 0; i < k->f.n; i++)
        if (k->proto.p[i] == f) return k->f.p[i];
    if (k->f.n >= MAX_SHORT_LIST)
        err(im->d, ST_UNSUPPORTED, path, "more than %d functions are invoked", MAX_SHORT_LIST);
    Function *r = NEW(im->a, Function);
    *r = (Function){.domain = f->domain, .name = f->name, .index = k->f.n};
    Ints none = {0};
    vec_push(im->a, &k->f, r);
    vec_push(im->a, &k->proto, f);
    vec_push(im->a, &k->calls, none);
    return r;
}

void invoke_resolve(Raw *n) {
    Import *im = n->im;
    const Attr *a = raw_attr(n, "function");
    if (!a || a->kind != AT_STRING)
        err(im->d, ST_MODEL, n->path, "the attribute 'function' must name a function of the model");
    const Onnx__FunctionProto *f = named(im, a->s, n->path);
    if (f->n_attribute || f->n_attribute_proto)
        err(im->d, ST_MODEL, n->path, "function %.200s has attributes, so it cannot be invoked",
            a->s);
    if ((size_t)n->in.n != f->n_input)
        err(im->d, ST_MODEL, n->path, "function %.200s takes %zu inputs, the call gives %d", a->s,
            f->n_input, n->in.n);
    for (int i = 0; i < n->in.n; i++)
        if (!n->in.p[i])
            err(im->d, ST_MODEL, n->path, "input %d of function %.200s is left out", i, a->s);
    fit_outputs(n, a->s, (int)f->n_output);
    Function *callee = invoked(im, f, n->path);
    n->callee = callee;
    if (!im->inside) return;
    Ints *calls = &im->invoked->calls.p[im->inside->index];
    for (int i = 0; i < calls->n; i++)
        if (calls->p[i] == callee->index) return;
    vec_push(im->a, calls, callee->index);
}

static void function_import(Import *im, Function *fn, const Onnx__FunctionProto *f) {
    const char *path = arena_printf(im->a, "function %.200s", fn->name);
    count_things(im, f->n_input + f->n_output, path);
    if (f->n_opset_import > MAX_SHORT_LIST || f->n_output > MAX_SHORT_LIST)
        err(im->d, ST_MODEL, path, "too many opset imports or outputs");
    Region *r = NEW(im->a, Region);
    r->name = fn->name;
    Builder b = {.r = r};
    Onnx__NodeProto *none = NEW(im->a, Onnx__NodeProto);
    onnx__node_proto__init(none);
    Call call = {f, none, NULL, NULL};
    Scope s = {
        .name = map_new(im->a), .b = &b, .call = &call, .prefix = path_join(im, "", fn->name)};
    r->param = NEWN(im->a, Value *, f->n_input + 1);
    for (size_t i = 0; i < f->n_input; i++) {
        if (!f->input[i][0]) err(im->d, ST_MODEL, path, "an input of the function has no name");
        r->param[r->nparam] = graph_value(im->g, r, f->input[i]);
        scope_add(im, &s, f->input[i], r->param[r->nparam++], path);
    }
    nodes_import(im, &s, f->node, f->n_node, s.prefix);
    r->nresult = (int)f->n_output;
    r->result = NEWN(im->a, Value *, r->nresult + 1);
    r->result_name = NEWN(im->a, const char *, r->nresult + 1);
    r->result_type = NEWN(im->a, const VType *, r->nresult + 1);
    for (int i = 0; i < r->nresult; i++) {
        r->result[i] = scope_find(&s, f->output[i]);
        r->result_name[i] = f->output[i];
        if (!r->result[i])
            err(im->d, ST_MODEL, path, "output '%s' of the function is not defined", f->output[i]);
    }
    r->node = b.node.p;
    r->nnode = b.node.n;
    fn->region = r;
}

/* Strongly connected components. Depth of recursion: at most the number of functions. */
typedef struct Tarjan {
    Import *im;
    int *low, *order, *stack, n, depth, next;
    bool *open;
} Tarjan;

static void connect(Tarjan *t, int v) {
    const Invoked *k = t->im->invoked;
    t->low[v] = t->order[v] = ++t->next;
    t->stack[t->depth++] = v;
    t->open[v] = true;
    for (int i = 0; i < k->calls.p[v].n; i++) {
        int w = k->calls.p[v].p[i];
        if (w == v) k->f.p[v]->recursive = true;
        if (!t->order[w]) connect(t, w);
        if (t->open[w] && t->low[w] < t->low[v]) t->low[v] = t->low[w];
    }
    if (t->low[v] != t->order[v]) return;
    bool many = t->stack[t->depth - 1] != v;
    for (int w = -1; w != v;) {
        w = t->stack[--t->depth];
        t->open[w] = false;
        k->f.p[w]->group = v;
        k->f.p[w]->recursive |= many;
    }
}

void functions_import(Import *im) {
    Invoked *k = im->invoked;
    if (!k) return;
    for (int i = 0; i < k->f.n; i++) { /* function_import may add more */
        im->inside = k->f.p[i];
        function_import(im, k->f.p[i], k->proto.p[i]);
    }
    im->inside = NULL;
    int n = k->f.n;
    Tarjan t = {.im = im, .n = n};
    t.low = NEWN(im->a, int, n);
    t.order = NEWN(im->a, int, n);
    t.stack = NEWN(im->a, int, n);
    t.open = NEWN(im->a, bool, n);
    for (int i = 0; i < n; i++)
        if (!t.order[i]) connect(&t, i);
    im->g->nfunction = n;
    im->g->function = k->f.p;
}
