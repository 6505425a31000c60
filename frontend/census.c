/* census.c: reports all unsupported operators of a file in one message, before the import starts.
 *
 * Counts the nodes of the graph, of its subgraphs, and of the functions that they call (each
 * function once). If only one node is unsupported, the import reports it, with its path.
 */
#include "frontend/import.h"

#define SHOWN 20 /* at most so many operators are named */

typedef struct Missing {
    const char *op; /* with its domain */
    int64_t nodes;
} Missing;

typedef struct Census {
    Import *im;
    VEC(Missing) missing;
    const char *first; /* path of the first node */
    VEC(const Onnx__FunctionProto *) todo;
    Map *seen; /* functions */
    int depth;
} Census;

static bool is_known(const char *domain, const char *op) {
    if (op_find(domain, op)) return true;
    return same_domain(domain, "") && (!strcmp(op, "Constant") || normalize_knows(op));
}

static void add(Census *c, const Onnx__NodeProto *np, const char *prefix) {
    Arena *a = c->im->a;
    bool onnx = same_domain(np->domain, "");
    const char *op = onnx ? np->op_type : arena_printf(a, "%.100s:%.100s", np->domain, np->op_type);
    if (!c->first) c->first = arena_printf(a, "%s%.200s", prefix, node_name(np));
    for (int i = 0; i < c->missing.n; i++)
        if (!strcmp(c->missing.p[i].op, op)) {
            c->missing.p[i].nodes++;
            return;
        }
    Missing m = {op, 1};
    vec_push(a, &c->missing, m);
}

static void call(Census *c, const Onnx__FunctionProto *f) {
    if (map_geti(c->seen, (uint64_t)(uintptr_t)f)) return;
    map_seti(c->seen, (uint64_t)(uintptr_t)f, c);
    vec_push(c->im->a, &c->todo, f);
}

/* Notes the functions that an Invoke names. The import reports a wrong name. */
static void invoke(Census *c, const Onnx__AttributeProto *ap) {
    const Onnx__ModelProto *m = c->im->model;
    if (strcmp(ap->name, "function")) return;
    const char *s = arena_strndup(c->im->a, (const char *)ap->s.data, ap->s.len);
    for (size_t i = 0; i < m->n_functions; i++) {
        const Onnx__FunctionProto *f = m->functions[i];
        const char *full = arena_printf(c->im->a, "%s:%s", f->domain, f->name);
        if (!strcmp(s, f->name) || !strcmp(s, full)) call(c, f);
    }
}

static void nodes(Census *c, Onnx__NodeProto **node, size_t n, const char *prefix) {
    if (++c->depth > MAX_NESTING) n = 0; /* too deep: the import reports it */
    for (size_t i = 0; i < n; i++) {
        const Onnx__NodeProto *np = node[i];
        const Onnx__FunctionProto *f = function_find(c->im, np);
        const bool invokes = !strcmp(np->domain, "ai.braid") && !strcmp(np->op_type, "Invoke");
        if (f)
            call(c, f);
        else if (!is_known(np->domain, np->op_type))
            add(c, np, prefix);
        for (size_t k = 0; k < np->n_attribute; k++) {
            const Onnx__AttributeProto *ap = np->attribute[k];
            if (invokes) invoke(c, ap);
            if (!ap->g) continue;
            const char *way = path_join(c->im, path_join(c->im, prefix, node_name(np)), ap->name);
            nodes(c, ap->g->node, ap->g->n_node, way);
        }
    }
    c->depth--;
}

void census(Import *im) {
    Census c = {.im = im, .seen = map_new(im->a)};
    nodes(&c, im->model->graph->node, im->model->graph->n_node, "");
    for (int i = 0; i < c.todo.n; i++)
        nodes(&c, c.todo.p[i]->node, c.todo.p[i]->n_node, path_join(im, "", c.todo.p[i]->name));
    if (!c.missing.n || (c.missing.n == 1 && c.missing.p[0].nodes == 1)) return;
    Sb s = {.a = im->a};
    for (int i = 0; i < c.missing.n && i < SHOWN; i++)
        sb_printf(&s,
                  i                           ? ", %.60s (%lld)"
                  : c.missing.p[i].nodes == 1 ? "%.60s (%lld node)"
                                              : "%.60s (%lld nodes)",
                  c.missing.p[i].op, (long long)c.missing.p[i].nodes);
    if (c.missing.n > SHOWN) sb_printf(&s, ", and %d more", c.missing.n - SHOWN);
    err(im->d, ST_UNSUPPORTED, NULL, "%d operator%s not supported: %.780s; first at %.150s",
        c.missing.n, c.missing.n == 1 ? " is" : "s are", s.p, c.first);
}
