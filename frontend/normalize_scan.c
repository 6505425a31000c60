/* normalize_scan.c: rewrites the Scan of opset 8 to two Scans of the newest form.
 *
 * The old Scan had a batch: axis 0 of every operand, with the scan along axis 1. Each batch entry
 * could have its own length. So an outer Scan iterates over the batch (its scan inputs are the
 * states, scan inputs and lengths) and runs the old body in an inner Scan. With lengths, scan
 * inputs are cut to the entry's length before the inner Scan, so that a reversed input starts at
 * its own end; scan outputs are padded with zeros after it.
 */
#include "frontend/import.h"

/* The body of the outer Scan under construction. */
typedef struct Batch {
    Raw *n;
    Builder b;
} Batch;

static Value *body_node(Batch *t, const char *op, int nin, Value **in, int nattr, Attr *attr) {
    Raw inner = *t->n;
    inner.b = &t->b;
    return raw_emit(&inner, op, nin, in, nattr, attr);
}

static Value *body_i64(Batch *t, int rank, int64_t v) {
    return graph_const(t->n->im->g, t->b.r, DT_I64, rank, (int64_t[]){1}, &v);
}

/* The first `len` entries of v along axis 0. `len` is a tensor of one element. */
static Value *cut(Batch *t, Value *v, Value *len) {
    Value *zero = body_i64(t, 1, 0);
    return body_node(t, "Slice", 4, (Value *[]){v, zero, len, zero}, 0, NULL);
}

/* v padded with zeros to `full` entries along axis 0. */
static Value *fill(Batch *t, Value *v, Value *len, Value *full) {
    Value *zero = body_i64(t, 1, 0);
    Attr axis = attr_of_int("axis", 0);
    Value *more = body_node(t, "Sub", 2, (Value *[]){full, len}, 0, NULL);
    Value *pads = body_node(t, "Concat", 2, (Value *[]){zero, more}, 1, &axis);
    return body_node(t, "Pad", 4, (Value *[]){v, pads, NULL, zero}, 0, NULL);
}

static Region *region_new(Import *im, Region *parent, const char *name) {
    Region *r = NEW(im->a, Region);
    r->name = name;
    r->parent = parent;
    r->depth = parent->depth + 1;
    return r;
}

void norm_scan8(Raw *n) {
    Import *im = n->im;
    Attr body, directions, count;
    bool turned = raw_take(n, "directions", &directions);
    if (!raw_take(n, "body", &body))
        err(im->d, ST_MODEL, n->path, "the subgraph 'body' is missing");
    if (!raw_take(n, "num_scan_inputs", &count) || count.i < 1 || count.i > n->in.n - 1)
        err(im->d, ST_MODEL, n->path, "attribute 'num_scan_inputs' is missing or out of range");
    int nall = n->in.n - 1, nscan = (int)count.i, nstate = nall - nscan;
    int nresult = body.g->nresult;
    if (body.g->nparam != nall || nresult < nstate)
        err(im->d, ST_MODEL, n->path, "inputs or outputs of the body do not fit");
    Value *lens = n->in.p[0];
    Region *r = region_new(im, n->b->r, body.g->name);
    Batch t = {.n = n, .b = {.r = r}};

    /* The parameters for one batch entry: in the order of the inputs, then its length. */
    r->nparam = nall + (lens != NULL);
    r->param = NEWN(im->a, Value *, r->nparam);
    Value **in = NEWN(im->a, Value *, nall);
    for (int i = 0; i < nall; i++) {
        if (!n->in.p[i + 1]) err(im->d, ST_MODEL, n->path, "input %d is missing", i + 1);
        in[i] = r->param[i] = graph_value(im->g, r, body.g->param[i]->name);
    }
    Value *len = NULL, *full = NULL;
    if (lens) {
        r->param[nall] = graph_value(im->g, r, lens->name);
        len = body_node(&t, "Reshape", 2, (Value *[]){r->param[nall], body_i64(&t, 1, 1)}, 0, NULL);
        Attr range[] = {attr_of_int("start", 0), attr_of_int("end", 1)};
        full = body_node(&t, "Shape", 1, &in[nstate], 2, range);
        for (int i = nstate; i < nall; i++) in[i] = cut(&t, in[i], len);
    }

    /* The inner Scan, with the old body one level deeper. */
    region_deepen(body.g);
    body.g->parent = r;
    Attr attr[3] = {body, count};
    if (turned) {
        attr[2] = directions;
        attr[2].name = "scan_input_directions";
    }
    Node *scan = graph_node(im->g, r, "Scan", n->path, nall, in, nresult, turned ? 3 : 2, attr);
    scan->name = n->name;
    vec_push(im->a, &t.b.node, scan);
    r->nresult = nresult;
    r->result = NEWN(im->a, Value *, nresult);
    r->result_name = NEWN(im->a, const char *, nresult);
    r->result_type = NEWN(im->a, const VType *, nresult);
    for (int i = 0; i < nresult; i++) {
        r->result[i] = lens && i >= nstate ? fill(&t, scan->out[i], len, full) : scan->out[i];
        r->result_name[i] = body.g->result_name[i];
    }
    r->node = t.b.node.p;
    r->nnode = t.b.node.n;

    /* n becomes the outer Scan. */
    n->in.n = 0;
    Value **old = arena_memdup(im->a, n->in.p, sizeof *old * (size_t)(nall + 1));
    for (int i = 0; i < nall; i++) raw_input(n, i, old[i + 1]);
    if (lens) raw_input(n, nall, lens);
    raw_put(n, attr_of_graph("body", r));
    raw_put(n, attr_of_int("num_scan_inputs", nall + (lens != NULL)));
}
