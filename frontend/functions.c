/* functions.c: model-local functions. A call is replaced by the function's nodes, placed in the
 * caller's region: names of the body live in a scope of their own, so that none can clash.
 */
#include "frontend/import.h"

static const char *key_of(Import *im, const char *domain, const char *name, const char *overload) {
    if (same_domain(domain, "")) domain = "";
    return arena_printf(im->a, "%s\n%s\n%s", domain, name, overload);
}

void functions_index(Import *im) {
    im->function = map_new(im->a);
    for (size_t i = 0; i < im->model->n_functions; i++) {
        Onnx__FunctionProto *f = im->model->functions[i];
        if (!f->name[0]) err(im->d, ST_MODEL, NULL, "a function has no name");
        const char *key = key_of(im, f->domain, f->name, f->overload);
        if (map_get(im->function, key))
            err(im->d, ST_MODEL, NULL, "function %s:%s is defined twice", f->domain, f->name);
        map_set(im->function, key, f);
    }
}

const Onnx__FunctionProto *function_find(Import *im, const Onnx__NodeProto *np) {
    if (!im->model->n_functions) return NULL;
    return map_get(im->function, key_of(im, np->domain, np->op_type, np->overload));
}

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
            v->type = type_import(im, t, arena_printf(im->a, "value '%.200s'", np->output[i]));
        }
    }
    im->depth--;
}
