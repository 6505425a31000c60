/* import.c: builds a Graph from an ONNX file: regions, names, nodes. */
#define _XOPEN_SOURCE 700
#include "frontend/import.h"
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static void check_short(Import *im, size_t n, const char *path, const char *what) {
    if (n > MAX_SHORT_LIST) err(im->d, ST_MODEL, path, "%zu %s are too many", n, what);
}

/* ---- nodes ---------------------------------------------------------------------------------- */

static void trim(Raw *n, int min) {
    while (n->in.n > min && !n->in.p[n->in.n - 1]) n->in.n--;
}

static void check_arity(Raw *n, const OpRow *row) {
    Import *im = n->im;
    /* A Loop has two optional inputs before its variadic ones. */
    bool loop = !n->domain[0] && !strcmp(n->op, "Loop");
    int need = loop ? 0 : row->nin_min;
    while (loop && n->in.n < 2) vec_push(im->a, &n->in, NULL);
    trim(n, loop ? 2 : need);
    if (row->nin_max >= 0 && n->in.n > row->nin_max)
        err(im->d, ST_MODEL, n->path, "takes at most %d inputs, has %d", row->nin_max, n->in.n);
    if (n->in.n < need)
        err(im->d, ST_MODEL, n->path, "needs at least %d inputs, has %d", need, n->in.n);
    for (int i = loop ? 2 : 0; i < n->in.n; i++)
        if (!n->in.p[i] && (i < need || row->nin_max < 0))
            err(im->d, ST_MODEL, n->path, "input %d is missing", i);
    if (row->nout_max >= 0 && n->out.n > row->nout_max)
        err(im->d, ST_MODEL, n->path, "has at most %d outputs, %d are named", row->nout_max,
            n->out.n);
    if (n->out.n < row->nout_min)
        err(im->d, ST_MODEL, n->path, "needs at least %d outputs, has %d", row->nout_min, n->out.n);
}

static Region *need_graph(Raw *n, const char *name, int nparam) {
    const Attr *a = raw_attr(n, name);
    if (!a) err(n->im->d, ST_MODEL, n->path, "the subgraph '%s' is missing", name);
    if (nparam >= 0 && a->g->nparam != nparam)
        err(n->im->d, ST_MODEL, n->path, "the subgraph '%s' has %d inputs, %d are needed", name,
            a->g->nparam, nparam);
    return a->g;
}

static void check_subgraphs(Raw *n) {
    Import *im = n->im;
    if (n->domain[0]) return;
    if (!strcmp(n->op, "If")) {
        const Region *a = need_graph(n, "then_branch", 0), *b = need_graph(n, "else_branch", 0);
        if (a->nresult != b->nresult)
            err(im->d, ST_MODEL, n->path, "then_branch has %d outputs, else_branch %d", a->nresult,
                b->nresult);
        if (n->out.n != a->nresult)
            err(im->d, ST_MODEL, n->path, "has %d outputs, its branches give %d", n->out.n,
                a->nresult);
    } else if (!strcmp(n->op, "Loop")) {
        const Region *b = need_graph(n, "body", n->in.n);
        if (b->nresult < n->in.n - 1)
            err(im->d, ST_MODEL, n->path, "the body has %d outputs, at least %d are needed",
                b->nresult, n->in.n - 1);
        fit_outputs(n, "body", b->nresult - 1);
    } else if (!strcmp(n->op, "Scan")) {
        const Attr *k = raw_attr(n, "num_scan_inputs");
        if (!k || k->i < 1 || k->i > n->in.n)
            err(im->d, ST_MODEL, n->path, "attribute 'num_scan_inputs' is missing or out of range");
        const Region *b = need_graph(n, "body", n->in.n);
        if (b->nresult < n->in.n - (int)k->i)
            err(im->d, ST_MODEL, n->path, "the body has %d outputs, at least %d are needed",
                b->nresult, n->in.n - (int)k->i);
        fit_outputs(n, "body", b->nresult);
    } else if (!strcmp(n->op, "SequenceMap")) {
        fit_outputs(n, "body", need_graph(n, "body", n->in.n)->nresult);
    }
}

static void raw_finish(Raw *n) {
    Import *im = n->im;
    const OpRow *row = op_find(n->domain, n->op);
    if (!row && n->domain[0])
        err(im->d, ST_UNSUPPORTED, n->path, "operator %s:%s is not supported", n->domain, n->op);
    if (!row) err(im->d, ST_UNSUPPORTED, n->path, "operator %s is not supported", n->op);
    check_arity(n, row);
    check_subgraphs(n);
    if (!strcmp(row->name, "Invoke")) invoke_resolve(n);
    Node *node = NEW(im->a, Node);
    *node = (Node){.op = row,
                   .name = n->name,
                   .path = n->path,
                   .nin = n->in.n,
                   .nout = n->out.n,
                   .in = n->in.p,
                   .out = n->out.p,
                   .nattr = n->attr.n,
                   .attr = n->attr.p,
                   .region = n->b->r,
                   .callee = n->callee};
    for (int i = 0; i < node->nout; i++)
        if (node->out[i]) node->out[i]->def = node;
    for (int i = 0; i < node->nattr; i++)
        if (node->attr[i].g) node->attr[i].g->owner = node;
    vec_push(im->a, &n->b->node, node);
    for (int i = 0; i < n->post.n; i++) vec_push(im->a, &n->b->node, n->post.p[i]);
}

static Value *output_value(Import *im, Scope *s, const char *name, const char *path) {
    Value *v = graph_value(im->g, s->b->r, name);
    scope_add(im, s, name, v, path);
    if (s->type) {
        const Onnx__TypeProto *t = map_get(s->type, name);
        v->type = type_made(im, t, arena_printf(im->a, "value '%.200s'", name));
    }
    return v;
}

static void check_opset(Import *im, const OpRow *row, int opset, const char *path) {
    if (opset < OPSET_MIN || opset > OPSET_MAX)
        err(im->d, ST_UNSUPPORTED, path, "opset %d is not supported (%d to %d are)", opset,
            OPSET_MIN, OPSET_MAX);
    if (row && opset < row->since && !op_comes_early(row))
        err(im->d, ST_MODEL, path, "operator %s came with opset %d, opset %d is in use", row->name,
            row->since, opset);
}

static const char *node_path(Import *im, const Scope *s, const Onnx__NodeProto *np) {
    const char *name = node_name(np), *op = np->op_type, *domain = np->domain;
    if (same_domain(domain, ""))
        return arena_printf(im->a, "%s%.200s (%.100s)", s->prefix, name, op);
    return arena_printf(im->a, "%s%.200s (%.100s:%.100s)", s->prefix, name, domain, op);
}

static void node_import(Import *im, Scope *s, const Onnx__NodeProto *np) {
    const char *name = node_name(np), *path = node_path(im, s, np);
    bool onnx = same_domain(np->domain, "");
    count_things(im, 1 + np->n_input + np->n_output + np->n_attribute, path);
    check_short(im, np->n_attribute, path, "attributes");
    const Onnx__FunctionProto *f = function_find(im, np);
    int opset = opset_of(im, s, np->domain);
    if (!opset && (f || onnx))
        err(im->d, ST_MODEL, path, "the %s does not import the opset of domain '%s'",
            s->call ? "function" : "model", np->domain);
    if (f) {
        check_short(im, f->n_attribute_proto, path, "attributes");
        check_short(im, f->n_opset_import, path, "opset imports");
        count_things(im, f->n_input + f->n_output, path);
        call_inline(im, s, np, f, path);
        return;
    }
    if (onnx) check_opset(im, op_find("", np->op_type), opset, path);
    if (onnx && !strcmp(np->op_type, "Constant")) {
        if (np->n_input || np->n_output != 1)
            err(im->d, ST_MODEL, path, "a Constant has no inputs and one output");
        const Const *c = constant_import(im, s, np, path);
        if (!np->output[0][0]) return;
        output_value(im, s, np->output[0], path)->data = c;
        return;
    }
    if (!onnx && !op_find(np->domain, np->op_type))
        err(im->d, ST_UNSUPPORTED, path, "operator %s:%s is not supported", np->domain,
            np->op_type);
    int newest = domain_version(onnx ? "" : np->domain);
    if (!onnx && (opset < 1 || opset > newest)) {
        if (!opset)
            err(im->d, ST_MODEL, path, "the %s does not import the opset of domain '%s'",
                s->call ? "function" : "model", np->domain);
        err(im->d, ST_UNSUPPORTED, path, "version %d of domain '%s' is not supported (%d is)",
            opset, np->domain, newest);
    }
    Raw n = {.im = im,
             .b = s->b,
             .domain = onnx ? "" : np->domain,
             .op = np->op_type,
             .opset = opset,
             .name = name,
             .path = path};
    for (size_t i = 0; i < np->n_input; i++) {
        Value *v = NULL;
        if (np->input[i][0]) {
            v = scope_find(s, np->input[i]);
            if (!v) err(im->d, ST_MODEL, path, "input '%s' is not defined", np->input[i]);
            if (v == &value_absent) v = NULL;
        }
        vec_push(im->a, &n.in, v);
    }
    attrs_import(&n, s, np);
    for (size_t i = 0; i < np->n_output; i++) {
        const char *out = np->output[i];
        vec_push(im->a, &n.out, out[0] ? output_value(im, s, out, path) : NULL);
    }
    normalize(&n);
    raw_finish(&n);
}

void nodes_import(Import *im, Scope *s, Onnx__NodeProto **node, size_t n, const char *what) {
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < node[i]->n_output; k++)
            if (map_get(s->name, node[i]->output[k]))
                err(im->d, ST_MODEL, node_path(im, s, node[i]), "the name '%s' is defined twice",
                    node[i]->output[k]);
    const int *order = nodes_order(im, node, n, what);
    for (size_t i = 0; i < n; i++) node_import(im, s, node[order[i]]);
}

/* ---- graphs --------------------------------------------------------------------------------- */

static void declare(Scope *s, Onnx__ValueInfoProto **v, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (v[i]->type && v[i]->name[0] && !map_get(s->type, v[i]->name))
            map_set(s->type, v[i]->name, v[i]->type);
}

static void add_const(Import *im, Scope *s, const Const *c, const char *name, const char *where) {
    if (!name[0]) err(im->d, ST_MODEL, where, "it has no name");
    Value *v = graph_value(im->g, s->b->r, name);
    v->data = c;
    scope_add(im, s, name, v, where);
}

/* Whether `name` is an input of the subgraph. An initializer with that name is never used, because
 * the construct around the subgraph always gives the input a value. */
static bool is_param(const Scope *s, const char *name) {
    const Value *v = map_get(s->name, name);
    return v && !v->data;
}

static void initializers_import(Import *im, Scope *s, const Onnx__GraphProto *gp) {
    const char *way = s->prefix;
    for (size_t i = 0; i < gp->n_initializer; i++) {
        const Onnx__TensorProto *t = gp->initializer[i];
        if (is_param(s, t->name)) continue;
        const char *where = arena_printf(im->a, "%sinitializer '%.200s'", way, t->name);
        add_const(im, s, tensor_import(im, t, where), t->name, where);
    }
    for (size_t i = 0; i < gp->n_sparse_initializer; i++) {
        const Onnx__SparseTensorProto *t = gp->sparse_initializer[i];
        const char *name = t->values ? t->values->name : "";
        if (is_param(s, name)) continue;
        const char *where = arena_printf(im->a, "%ssparse initializer '%.200s'", way, name);
        add_const(im, s, sparse_import(im, t, where), name, where);
    }
}

static Value *param_import(Import *im, Scope *s, const Onnx__ValueInfoProto *in) {
    const char *where = arena_printf(im->a, "%sgraph input '%.200s'", s->prefix, in->name);
    if (!in->name[0]) err(im->d, ST_MODEL, where, "it has no name");
    Value *v = graph_value(im->g, s->b->r, in->name);
    v->type = type_import(im, in->type, where);
    scope_add(im, s, in->name, v, where);
    return v;
}

Region *region_import(Import *im, const Onnx__GraphProto *gp, Scope *up, Region *parent,
                      const char *prefix) {
    if (++im->depth > MAX_NESTING)
        err(im->d, ST_UNSUPPORTED, prefix, "subgraphs are nested deeper than %d", MAX_NESTING);
    count_things(im,
                 gp->n_input + gp->n_output + gp->n_value_info + gp->n_initializer +
                     gp->n_sparse_initializer,
                 prefix);
    Region *r = NEW(im->a, Region);
    r->name = gp->name;
    r->parent = parent;
    r->depth = parent ? parent->depth + 1 : 0;
    if (!parent) im->g->top = r;
    Builder b = {.r = r};
    Scope s = {.up = up,
               .name = map_new(im->a),
               .type = map_new(im->a),
               .b = &b,
               .call = up ? up->call : NULL,
               .prefix = prefix};
    declare(&s, gp->input, gp->n_input);
    declare(&s, gp->output, gp->n_output);
    declare(&s, gp->value_info, gp->n_value_info);
    r->param = NEWN(im->a, Value *, gp->n_input);
    if (!parent) initializers_import(im, &s, gp); /* an input with an initializer is a constant */
    for (size_t i = 0; i < gp->n_input; i++) {
        const Value *v = map_get(s.name, gp->input[i]->name);
        if (parent || !v || !v->data) r->param[r->nparam++] = param_import(im, &s, gp->input[i]);
    }
    if (parent) initializers_import(im, &s, gp);
    nodes_import(im, &s, gp->node, gp->n_node, prefix);
    r->nresult = (int)gp->n_output;
    r->result = NEWN(im->a, Value *, r->nresult);
    r->result_name = NEWN(im->a, const char *, r->nresult);
    r->result_type = NEWN(im->a, const VType *, r->nresult);
    for (int i = 0; i < r->nresult; i++) {
        const char *name = gp->output[i]->name;
        const char *where = arena_printf(im->a, "%sgraph output '%.200s'", prefix, name);
        Value *v = scope_find(&s, name);
        if (!v || !name[0]) err(im->d, ST_MODEL, where, "it is not defined");
        if (v == &value_absent)
            err(im->d, ST_MODEL, where, "it is a function's input that the call left out");
        r->result[i] = v;
        r->result_name[i] = name;
        r->result_type[i] = type_made(im, gp->output[i]->type, where);
    }
    r->node = b.node.p;
    r->nnode = b.node.n;
    im->depth--;
    return r;
}

/* ---- the file ------------------------------------------------------------------------------- */

static Graph *model_import(Arena *a, Diag *d, const Onnx__ModelProto *m, const char *dir) {
    Import im = {.a = a, .d = d, .bad = ST_MODEL, .dir = dir, .model = m};
    if (!m->graph) err(d, ST_MODEL, NULL, "not an ONNX model: there is no graph");
    if (m->ir_version < IR_MIN || m->ir_version > IR_MAX)
        err(d, ST_UNSUPPORTED, NULL, "IR version %lld is not supported (%d to %d are)",
            (long long)m->ir_version, IR_MIN, IR_MAX);
    Graph *g = im.g = NEW(a, Graph);
    g->arena = a;
    g->diag = d;
    g->name = m->graph->name;
    g->ir_version = (int)m->ir_version;
    check_short(&im, m->n_opset_import, NULL, "opset imports");
    g->opset = opset_of(&im, NULL, "");
    if (g->opset) check_opset(&im, NULL, g->opset, NULL);
    im.tensor = map_new(a);
    im.free = map_new(a);
    functions_index(&im);
    census(&im);
    region_import(&im, m->graph, NULL, NULL, "");
    functions_import(&im);
    return g;
}

static const Onnx__ModelProto *model_unpack(Arena *a, Diag *d, const void *bytes, size_t n,
                                            const char *what) {
    Import im = {.a = a, .d = d, .bad = ST_MODEL};
    if (!n) err(d, ST_MODEL, NULL, "%s: the model is empty", what);
    return (const void *)wire_unpack(&im, &onnx__model_proto__descriptor, bytes, n, what);
}

/* The folder of the file. */
static const char *folder_of(Arena *a, const char *path) {
    const char *slash = strrchr(path, '/');
    if (!slash) return ".";
    return slash == path ? "/" : arena_strndup(a, path, (size_t)(slash - path));
}

Graph *graph_import_memory(Arena *a, Diag *d, const void *bytes, size_t n, const char *path) {
    const Onnx__ModelProto *m = model_unpack(a, d, bytes, n, path ? path : "model");
    return model_import(a, d, m, path ? folder_of(a, path) : NULL);
}

/* The file is mapped, not read: its tensors are copied once, into the arena. */
static const Onnx__ModelProto *file_unpack(Arena *a, Diag *d, const char *path) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat st;
    if (fd < 0 || fstat(fd, &st)) {
        int e = errno;
        if (fd >= 0) close(fd);
        err(d, ST_IO, NULL, "%s: %s", path, strerror(e));
    }
    if (!S_ISREG(st.st_mode)) {
        close(fd);
        err(d, ST_IO, NULL, "%s: not a file", path);
    }
    size_t n = (size_t)st.st_size;
    void *p = n ? mmap(NULL, n, PROT_READ, MAP_PRIVATE, fd, 0) : NULL;
    close(fd);
    if (p == MAP_FAILED) err(d, ST_IO, NULL, "%s: %s", path, strerror(errno));
    jmp_buf jb, *up = d->top;
    const Onnx__ModelProto *m = NULL;
    d->top = &jb;
    if (setjmp(jb) == 0) {
        m = model_unpack(a, d, p, n, path);
        d->top = up;
        if (n) munmap(p, n);
        return m;
    }
    d->top = up;
    if (n) munmap(p, n);
    ASSERT(up);
    longjmp(*up, 1);
}

Graph *graph_import_file(Arena *a, Diag *d, const char *path) {
    const Onnx__ModelProto *m = file_unpack(a, d, path);
    return model_import(a, d, m, folder_of(a, path));
}
