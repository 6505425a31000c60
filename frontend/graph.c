/* graph.c: functions that build and read a Graph. */
#include "frontend/import.h"

const Attr *node_attr(const Node *n, const char *name) {
    for (int i = 0; i < n->nattr; i++)
        if (!strcmp(n->attr[i].name, name)) return &n->attr[i];
    return NULL;
}

Value *graph_value(Graph *g, Region *r, const char *name) {
    Value *v = NEW(g->arena, Value);
    v->id = g->nvalue++;
    v->name = name ? name : "";
    v->region = r;
    return v;
}

Value *graph_const(Graph *g, Region *r, DType t, int rank, const int64_t *dim, const void *data) {
    ASSERT(rank >= 0 && rank <= MAX_RANK);
    Const *c = NEW(g->arena, Const);
    c->dtype = t;
    c->rank = rank;
    c->count = 1;
    for (int i = 0; i < rank; i++) {
        c->dim[i] = dim[i];
        ASSERT(mul_size(c->count, dim[i], &c->count));
    }
    size_t bytes = (size_t)c->count * dtype_size(t);
    void *p = arena_alloc(g->arena, bytes < 64 ? 64 : bytes);
    if (bytes) memcpy(p, data, bytes);
    c->data = p;
    Value *v = graph_value(g, r, "");
    v->data = c;
    return v;
}

Node *graph_node(Graph *g, Region *r, const char *op, const char *path, int nin, Value **in,
                 int nout, int nattr, Attr *attr) {
    Node *n = NEW(g->arena, Node);
    n->op = op_find("", op);
    if (!n->op) err(g->diag, ST_UNSUPPORTED, path, "operator %s is not supported", op);
    n->path = path ? path : op;
    n->name = op;
    n->nin = nin;
    n->in = NEWN(g->arena, Value *, nin);
    for (int i = 0; i < nin; i++) n->in[i] = in[i];
    n->nout = nout;
    n->out = NEWN(g->arena, Value *, nout);
    for (int i = 0; i < nout; i++) {
        n->out[i] = graph_value(g, r, n->name);
        n->out[i]->def = n;
    }
    n->nattr = nattr;
    n->attr = nattr ? arena_memdup(g->arena, attr, sizeof *attr * (size_t)nattr) : NULL;
    n->region = r;
    for (int i = 0; i < nattr; i++)
        if (n->attr[i].g) n->attr[i].g->owner = n;
    return n;
}

void region_deepen(Region *r) {
    r->depth++;
    for (int i = 0; i < r->nnode; i++)
        for (int k = 0; k < r->node[i]->nattr; k++)
            if (r->node[i]->attr[k].g) region_deepen(r->node[i]->attr[k].g);
}
