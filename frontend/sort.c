/* sort.c: sorts the nodes of a graph or function topologically.
 *
 * Each node comes after the nodes whose outputs it uses, itself or inside its subgraphs. The file's
 * order is kept where possible.
 */
#include "frontend/import.h"

/* Adds `name` unless it is in `seen` (may be NULL), and puts it there. */
static void names_add(Import *im, Names *list, Map *seen, const char *name) {
    if (!name[0] || (seen && map_get(seen, name))) return;
    if (seen) map_set(seen, name, list);
    vec_push(im->a, list, name);
}

static const Names *free_names(Import *im, const Onnx__GraphProto *g);

static void node_uses(Import *im, const Onnx__NodeProto *n, Names *list, Map *seen) {
    for (size_t i = 0; i < n->n_input; i++) names_add(im, list, seen, n->input[i]);
    for (size_t i = 0; i < n->n_attribute; i++) {
        if (!n->attribute[i]->g) continue;
        const Names *inner = free_names(im, n->attribute[i]->g);
        for (int k = 0; k < inner->n; k++) names_add(im, list, seen, inner->p[k]);
    }
}

/* The names that the nodes and results of g use but g does not define. */
static const Names *free_names(Import *im, const Onnx__GraphProto *g) {
    Names *free = map_geti(im->free, (uintptr_t)g);
    if (free) return free;
    free = NEW(im->a, Names);
    Map *own = map_new(im->a);
    for (size_t i = 0; i < g->n_input; i++) map_set(own, g->input[i]->name, own);
    for (size_t i = 0; i < g->n_initializer; i++) map_set(own, g->initializer[i]->name, own);
    for (size_t i = 0; i < g->n_sparse_initializer; i++)
        if (g->sparse_initializer[i]->values)
            map_set(own, g->sparse_initializer[i]->values->name, own);
    for (size_t i = 0; i < g->n_node; i++)
        for (size_t k = 0; k < g->node[i]->n_output; k++) map_set(own, g->node[i]->output[k], own);
    for (size_t i = 0; i < g->n_node; i++) node_uses(im, g->node[i], free, own);
    for (size_t i = 0; i < g->n_output; i++) names_add(im, free, own, g->output[i]->name);
    map_seti(im->free, (uintptr_t)g, free);
    return free;
}

typedef struct Visit {
    int node;
    Names uses;
    int next; /* index in uses */
} Visit;

static _Noreturn void cycle(Import *im, Onnx__NodeProto **node, const Visit *stack, int from, int n,
                            const char *prefix) {
    char text[512] = "";
    size_t at = 0;
    for (int i = from; i < n && at + 80 < sizeof text; i++)
        at += (size_t)snprintf(text + at, sizeof text - at, "%.60s -> ",
                               node_name(node[stack[i].node]));
    err(im->d, ST_MODEL, NULL, "%.300s: nodes form a cycle: %s%.60s", prefix[0] ? prefix : "graph",
        text, node_name(node[stack[from].node]));
}

const int *nodes_order(Import *im, Onnx__NodeProto **node, size_t count, const char *prefix) {
    if (count > MAX_THINGS - im->things)
        err(im->d, ST_UNSUPPORTED, NULL, "%s: more than %d nodes", prefix[0] ? prefix : "graph",
            MAX_THINGS);
    int n = (int)count, done = 0;
    int *order = NEWN(im->a, int, n);
    uint8_t *state = NEWN(im->a, uint8_t, n); /* 1: on the stack, 2: placed */
    int *id = NEWN(im->a, int, n);            /* what the map points into */
    Map *producer = map_new(im->a);
    for (int i = 0; i < n; i++) {
        id[i] = i;
        for (size_t k = 0; k < node[i]->n_output; k++)
            if (node[i]->output[k][0]) map_set(producer, node[i]->output[k], &id[i]);
    }
    VEC(Visit) stack = {0};
    for (int root = 0; root < n; root++) {
        if (state[root]) continue;
        Visit first = {.node = root};
        node_uses(im, node[root], &first.uses, NULL);
        vec_push(im->a, &stack, first);
        state[root] = 1;
        while (stack.n) {
            Visit *v = &stack.p[stack.n - 1];
            if (v->next == v->uses.n) {
                state[v->node] = 2;
                order[done++] = v->node;
                stack.n--;
                continue;
            }
            const int *from = map_get(producer, v->uses.p[v->next++]);
            if (!from || state[*from] == 2) continue;
            if (state[*from] == 1) {
                int at = stack.n - 1;
                while (stack.p[at].node != *from) at--;
                cycle(im, node, stack.p, at, stack.n, prefix);
            }
            Visit next = {.node = *from};
            node_uses(im, node[*from], &next.uses, NULL);
            vec_push(im->a, &stack, next);
            state[*from] = 1;
        }
    }
    ASSERT(done == n);
    return order;
}
