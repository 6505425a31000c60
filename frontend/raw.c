/* raw.c: edits a node between the file and the Graph. */
#include "frontend/import.h"

const Attr *raw_attr(const Raw *n, const char *name) {
    for (int i = 0; i < n->attr.n; i++)
        if (!strcmp(n->attr.p[i].name, name)) return &n->attr.p[i];
    return NULL;
}

bool raw_take(Raw *n, const char *name, Attr *out) {
    for (int i = 0; i < n->attr.n; i++) {
        if (strcmp(n->attr.p[i].name, name)) continue;
        *out = n->attr.p[i];
        n->attr.n--;
        memmove(&n->attr.p[i], &n->attr.p[i + 1], sizeof(Attr) * (size_t)(n->attr.n - i));
        return true;
    }
    return false;
}

void raw_put(Raw *n, Attr a) { vec_push(n->im->a, &n->attr, a); }

void raw_input(Raw *n, int i, Value *v) {
    while (n->in.n <= i) vec_push(n->im->a, &n->in, NULL);
    n->in.p[i] = v;
}

Value *raw_need(Raw *n, int i) {
    if (i >= n->in.n || !n->in.p[i]) err(n->im->d, ST_MODEL, n->path, "input %d is missing", i);
    return n->in.p[i];
}

Value *raw_emit(Raw *n, const char *op, int nin, Value **in, int nattr, Attr *attr) {
    Node *k = graph_node(n->im->g, n->b->r, op, n->path, nin, in, 1, nattr, attr);
    k->name = n->name;
    k->out[0]->name = n->name;
    vec_push(n->im->a, &n->b->node, k);
    return k->out[0];
}

Node *raw_post(Raw *n, const char *op, int nin, Value **in, Value *out) {
    Node *k = graph_node(n->im->g, n->b->r, op, n->path, nin, in, 0, 0, NULL);
    k->name = n->name;
    k->nout = 1;
    k->out = NEWN(n->im->a, Value *, 1);
    k->out[0] = out;
    out->def = k;
    vec_push(n->im->a, &n->post, k);
    return k;
}

Value *raw_emit_i64(Raw *n, int rank, int64_t count, const int64_t *v) {
    Value *c = graph_const(n->im->g, n->b->r, DT_I64, rank, &count, v);
    c->name = n->name;
    return c;
}

Value *raw_emit_float(Raw *n, float v) {
    Value *c = graph_const(n->im->g, n->b->r, DT_F32, 0, NULL, &v);
    c->name = n->name;
    return c;
}

Value *raw_emit_cast_like(Raw *n, Value *v, Value *like) {
    return raw_emit(n, "CastLike", 2, (Value *[]){v, like}, 0, NULL);
}

Value *raw_emit_rank(Raw *n, Value *v) {
    Value *shape = raw_emit(n, "Shape", 1, &v, 0, NULL);
    return raw_emit(n, "Size", 1, &shape, 0, NULL);
}

void fit_outputs(Raw *n, const char *name, int count) {
    if (n->out.n > count)
        err(n->im->d, ST_MODEL, n->path, "has %d outputs, its body '%.200s' gives %d", n->out.n,
            name, count);
    while (n->out.n < count) vec_push(n->im->a, &n->out, NULL);
}
