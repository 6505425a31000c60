/* declare.c: adds a caller's input shapes to those that the file declares. */
#include "frontend/graph.h"

const VType *graph_open_type(const VType *t) {
    if (t && t->kind == VT_OPTIONAL) t = t->elem;
    return t && t->kind == VT_TENSOR && !t->has_shape ? t : NULL;
}

static Value *find_input(Graph *g, const char *name) {
    for (int i = 0; i < g->top->nparam; i++)
        if (!strcmp(g->top->param[i]->name, name)) return g->top->param[i];
    err(g->diag, ST_USAGE, NULL, "a shape is given for '%.300s', but there is no such input", name);
}

/* A copy of tensor type t with the shape s. */
static VType *with_shape(Graph *g, const VType *t, const InputShape *s) {
    VType *v = arena_memdup(g->arena, t, sizeof *t);
    int64_t count = 1;
    if (t->has_shape && t->rank != s->rank)
        err(g->diag, ST_USAGE, NULL, "input '%.300s' is declared of rank %d, not %d", s->name,
            t->rank, s->rank);
    v->has_shape = true;
    v->rank = s->rank;
    for (int i = 0; i < s->rank; i++) {
        int64_t d = t->has_shape ? t->dim[i] : -1;
        if (d >= 0 && s->dim[i] >= 0 && d != s->dim[i])
            err(g->diag, ST_USAGE, NULL,
                "input '%.300s': axis %d is declared of size %lld, not %lld", s->name, i,
                (long long)d, (long long)s->dim[i]);
        v->dim[i] = s->dim[i] >= 0 ? s->dim[i] : d;
        if (v->dim[i] >= 0) v->param[i] = NULL;
        if (v->dim[i] > 0 && !mul_size(count, v->dim[i], &count))
            err(g->diag, ST_USAGE, NULL, "input '%.300s': the shape that is given is too large",
                s->name);
    }
    return v;
}

void graph_declare_input(Graph *g, const InputShape *s) {
    Value *in = find_input(g, s->name);
    const VType *t = in->type;
    bool optional = t && t->kind == VT_OPTIONAL;
    if (optional) t = t->elem;
    if (!t || t->kind != VT_TENSOR)
        err(g->diag, ST_USAGE, NULL, "a shape is given for input '%.300s', which is no tensor",
            s->name);
    VType *v = with_shape(g, t, s);
    if (optional) {
        VType *o = arena_memdup(g->arena, in->type, sizeof *o);
        o->elem = v;
        v = o;
    }
    in->type = v;
}

void graph_ignore_dim_names(Graph *g) {
    Map *seen = map_new(g->arena);
    for (int i = 0; i < g->top->nparam; i++) {
        Value *in = g->top->param[i];
        const VType *t = in->type;
        if (!t || t->kind != VT_TENSOR || !t->has_shape) continue;
        VType *v = arena_memdup(g->arena, t, sizeof *t);
        for (int k = 0; k < t->rank; k++) {
            const char *name = t->dim[k] < 0 ? t->param[k] : NULL;
            if (!name) continue;
            if (map_get(seen, name)) v->param[k] = NULL;
            map_set(seen, name, v);
        }
        in->type = v;
    }
}
