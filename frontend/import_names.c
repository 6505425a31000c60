/* import_names.c: names for the importer (values in scope, paths, domains and their opsets,
 * functions), and its limits on counts. */
#include "frontend/import.h"

const Value value_absent;

void count_things(Import *im, size_t n, const char *path) {
    if (n > MAX_THINGS - im->things)
        err(im->d, ST_UNSUPPORTED, path, "the model is too large with all functions inlined");
    im->things += n;
}

void count_copied(Import *im, size_t bytes, const char *path) {
    if (bytes > MAX_COPIED - im->copied)
        err(im->d, ST_UNSUPPORTED, path,
            "more than %zu bytes of sparse tensors and inlined attributes", MAX_COPIED);
    im->copied += bytes;
}

/* ---- names ---------------------------------------------------------------------------------- */

Value *scope_find(Scope *s, const char *name) {
    for (; s; s = s->up) {
        Value *v = map_get(s->name, name);
        if (v) return v;
    }
    return NULL;
}

void scope_add(Import *im, Scope *s, const char *name, const Value *v, const char *path) {
    if (map_get(s->name, name)) err(im->d, ST_MODEL, path, "the name '%s' is defined twice", name);
    map_set(s->name, name, (void *)(uintptr_t)v);
}

bool same_domain(const char *a, const char *b) {
    if (!strcmp(a, "ai.onnx")) a = "";
    if (!strcmp(b, "ai.onnx")) b = "";
    return !strcmp(a, b);
}

const char *node_name(const Onnx__NodeProto *np) {
    if (np->name[0]) return np->name;
    for (size_t i = 0; i < np->n_output; i++)
        if (np->output[i][0]) return np->output[i];
    return np->op_type;
}

/* Of a long path only the end is kept. */
const char *path_join(Import *im, const char *prefix, const char *name) {
    size_t n = strlen(prefix);
    if (n > 400) return arena_printf(im->a, "...%s%.200s/", prefix + n - 300, name);
    return arena_printf(im->a, "%s%.200s/", prefix, name);
}

/* The version of `domain` for nodes of scope s; 0: the domain is not imported. */
int opset_of(Import *im, const Scope *s, const char *domain) {
    size_t n = im->model->n_opset_import;
    Onnx__OperatorSetIdProto **p = im->model->opset_import;
    if (s && s->call) {
        n = s->call->f->n_opset_import;
        p = s->call->f->opset_import;
    }
    for (size_t i = 0; i < n; i++) {
        if (!same_domain(p[i]->domain, domain)) continue;
        if (p[i]->version < 1 || p[i]->version > INT32_MAX)
            err(im->d, ST_MODEL, NULL, "bad version %lld of opset '%s'", (long long)p[i]->version,
                p[i]->domain);
        return (int)p[i]->version;
    }
    return 0;
}

/* ---- functions ------------------------------------------------------------------------------ */

const char *function_key(Import *im, const char *domain, const char *name, const char *overload) {
    if (same_domain(domain, "")) domain = "";
    return arena_printf(im->a, "%s\n%s\n%s", domain, name, overload);
}

void functions_index(Import *im) {
    im->function = map_new(im->a);
    for (size_t i = 0; i < im->model->n_functions; i++) {
        Onnx__FunctionProto *f = im->model->functions[i];
        if (!f->name[0]) err(im->d, ST_MODEL, NULL, "a function has no name");
        const char *key = function_key(im, f->domain, f->name, f->overload);
        if (map_get(im->function, key))
            err(im->d, ST_MODEL, NULL, "function %s:%s is defined twice", f->domain, f->name);
        map_set(im->function, key, f);
    }
}

const Onnx__FunctionProto *function_find(Import *im, const Onnx__NodeProto *np) {
    if (!im->model->n_functions) return NULL;
    return map_get(im->function, function_key(im, np->domain, np->op_type, np->overload));
}
