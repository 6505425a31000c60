/* test_import.c: the importer, on models written byte by byte: what becomes of names, regions,
 * functions, old operator forms; what a folded loop looks like; and what hostile files get. */
#define _XOPEN_SOURCE 700
#include "frontend/data.h"
#include "frontend/graph.h"
#include "frontend/ops.h"
#include <setjmp.h>
#include <stdlib.h>
#include <unistd.h>
#include <cmocka.h>
#include "tests/unit/onnx_write.h"

/* ---- importing ------------------------------------------------------------------------------ */

typedef struct Run {
    Diag *d;
    Arena *a;
    Graph *g; /* NULL when the import failed */
} Run;

static void done(Run r) {
    arena_free(r.a);
    free(r.d);
}

static Run import_bytes(const void *p, size_t n, const char *path) {
    Diag *d = calloc(1, sizeof *d);
    assert_non_null(d);
    Arena *a = arena_new(d);
    Graph *volatile g = NULL;
    jmp_buf jb;
    d->top = &jb;
    if (setjmp(jb) == 0) g = graph_import_memory(a, d, p, n, path);
    d->top = NULL;
    return (Run){d, a, g};
}

static Run import(Sb m) {
    Run r = import_bytes(m.p, m.n, NULL);
    sb_free(&m);
    return r;
}

static Graph *good(Run *r) {
    if (!r->g) print_error("%s\n", r->d->message);
    assert_int_equal(r->d->status, ST_OK);
    return r->g;
}

/* The import fails with this status and a message that contains `text`. */
static void bad(Run r, Status st, const char *text) {
    if (r.d->status != st || !strstr(r.d->message, text))
        print_error("status %d, message: %s\nexpected %d: %s\n", (int)r.d->status, r.d->message,
                    (int)st, text);
    assert_int_equal(r.d->status, st);
    assert_non_null(strstr(r.d->message, text));
    done(r);
}

/* What must hold of every Graph: see graph.h. */
static void verify(const Region *r, const Region *parent, int depth) {
    assert_ptr_equal(r->parent, parent);
    assert_int_equal(r->depth, depth);
    for (int i = 0; i < r->nparam; i++) {
        assert_ptr_equal(r->param[i]->region, r);
        assert_null(r->param[i]->def);
    }
    for (int i = 0; i < r->nnode; i++) {
        const Node *n = r->node[i];
        assert_ptr_equal(n->region, r);
        assert_non_null(n->name);
        for (int k = 0; k < n->nin; k++) {
            const Value *v = n->in[k];
            if (!v) continue;
            const Region *q = r;
            while (q && q != v->region) q = q->parent;
            assert_non_null(q);
            if (v->data) assert_int_equal((uintptr_t)v->data->data & 63, 0);
            if (!v->def || v->region != r) continue;
            int j = 0;
            while (j < i && r->node[j] != v->def) j++;
            assert_true(j < i);
        }
        for (int k = 0; k < n->nout; k++)
            if (n->out[k]) assert_ptr_equal(n->out[k]->def, n);
        for (int k = 0; k < n->nattr; k++) {
            if (!n->attr[k].g) continue;
            assert_ptr_equal(n->attr[k].g->owner, n);
            verify(n->attr[k].g, r, depth + 1);
        }
    }
    for (int i = 0; i < r->nresult; i++) assert_non_null(r->result[i]);
}

static const Node *find(const Region *r, const char *op) {
    for (int i = 0; i < r->nnode; i++)
        if (!strcmp(r->node[i]->op->name, op)) return r->node[i];
    fail_msg("no %s node", op);
    return NULL;
}

static int64_t as_int(const Value *v, int64_t i) {
    assert_non_null(v);
    assert_non_null(v->data);
    assert_true(i < v->data->count);
    return elem_get_i(v->data->dtype, v->data->data, i);
}

/* A model x -> y of one node. */
static Sb one(Sb n, int version) {
    Sb g = {0};
    g_in(&g, "x");
    g_node(&g, n);
    g_out(&g, "y");
    return model(g, version);
}

/* ---- graphs and names ----------------------------------------------------------------------- */

static void test_plain(void **state) {
    (void)state;
    Sb g = {0};
    pb_str(&g, 2, "main");
    g_in(&g, "x,w");
    int64_t dim[] = {2}, w[] = {5, 6};
    g_init(&g, tensor_i64("w", 1, dim, 2, w));
    g_node(&g, node("second", "Mul", "t,x", "y"));
    g_node(&g, node(NULL, "Add", "x,x", "t")); /* out of order */
    pb_msg(&g, 13, value_info("t", tensor_type(DT_F32, 1)));
    g_out(&g, "y,w,x");
    Run r = import(model(g, 18));
    Graph *m = good(&r);
    verify(m->top, NULL, 0);
    assert_string_equal(m->name, "main");
    assert_int_equal(m->opset, 18);
    assert_int_equal(m->top->nparam, 1); /* w has an initializer */
    assert_int_equal(m->top->param[0]->type->rank, 2);
    assert_string_equal(m->top->param[0]->type->param[0], "N");
    assert_string_equal(m->top->node[0]->path, "t (Add)");
    assert_string_equal(m->top->node[1]->path, "second (Mul)");
    assert_int_equal(m->top->node[0]->out[0]->type->rank, 1);
    assert_int_equal(as_int(m->top->result[1], 1), 6);
    assert_ptr_equal(m->top->result[2], m->top->param[0]);
    done(r);
}

/* If inside a Loop: captures from every level, a body input that shadows an outer name, an outer
 * value as a result, an initializer inside, absent M and condition, outputs named "" or left off.
 */
static void test_regions(void **state) {
    (void)state;
    Sb then = {0}, other = {0}, body = {0}, g = {0};
    g_init(&then, scalar_i64("k", 7));
    g_node(&then, node("mul", "Mul", "v,x", "m")); /* v: the loop's, not the graph's */
    g_out(&then, "m");
    g_out(&other, "x");
    g_in(&body, "i,c,v");
    Sb branch = with_graph(node("if", "If", "c", "r"), "then_branch", then);
    g_node(&body, with_graph(branch, "else_branch", other));
    g_out(&body, "c,r,v,i");
    g_in(&g, "x");
    g_node(&g, node("pre", "Add", "x,x", "v"));
    g_node(&g, with_graph(node("loop", "Loop", ",,v", ",s"), "body", body));
    g_out(&g, "s");
    Run r = import(model(g, 16));
    Graph *m = good(&r);
    verify(m->top, NULL, 0);
    const Node *loop = find(m->top, "Loop");
    assert_int_equal(loop->nin, 3);
    assert_null(loop->in[0]);
    assert_null(loop->in[1]);
    assert_int_equal(loop->nout, 3);
    assert_null(loop->out[0]);
    assert_non_null(loop->out[1]);
    assert_null(loop->out[2]);
    const Region *b = node_attr(loop, "body")->g;
    const Node *branch_node = find(b, "If");
    const Region *t = node_attr(branch_node, "then_branch")->g;
    const Node *mul = find(t, "Mul");
    assert_ptr_equal(mul->in[0], b->param[2]);
    assert_ptr_equal(mul->in[1], m->top->param[0]);
    assert_string_equal(mul->path, "loop/body/if/then_branch/mul (Mul)");
    assert_ptr_equal(node_attr(branch_node, "else_branch")->g->result[0], m->top->param[0]);
    done(r);
}

static void test_name_errors(void **state) {
    (void)state;
    bad(import(one(node("n", "Add", "x,nowhere", "y"), 18)), ST_MODEL,
        "n (Add): input 'nowhere' is not defined");
    bad(import(one(node("n", "Add", "x,x", "x"), 18)), ST_MODEL, "the name 'x' is defined twice");
    bad(import(one(node("n", "Add", "x,x", "z"), 18)), ST_MODEL,
        "graph output 'y': it is not defined");
    Sb g = {0};
    g_in(&g, "x");
    g_node(&g, node("a", "Add", "x,q", "p"));
    g_node(&g, node("b", "Add", "p,x", "q"));
    g_out(&g, "p");
    bad(import(model(g, 18)), ST_MODEL, "nodes form a cycle: a -> b -> a");
    Sb then = {0}, other = {0}, h = {0};
    g_node(&then, node("in", "Add", "x,lost", "m"));
    g_out(&then, "m");
    g_out(&other, "x");
    g_in(&h, "x");
    g_node(&h, with_graph(with_graph(node("if", "If", "x", "y"), "then_branch", then),
                          "else_branch", other));
    g_out(&h, "y");
    bad(import(model(h, 18)), ST_MODEL, "if/then_branch/in (Add): input 'lost' is not defined");
}

static void test_constants(void **state) {
    (void)state;
    int64_t dims[] = {2, 3}, at[] = {0, 1, 1, 2}, pairs[] = {2, 2}, two[] = {2}, v[] = {8, 9};
    Sb sparse = {0}, g = {0};
    pb_msg(&sparse, 1, tensor_i64("", 1, two, 2, v));
    pb_msg(&sparse, 2, tensor_i64("", 2, pairs, 4, at));
    for (int i = 0; i < 2; i++) pb_int(&sparse, 3, dims[i]);
    Sb sparse_attr = attr_begin("sparse_value", 11);
    pb_msg(&sparse_attr, 22, sparse);
    Sb floats = attr_begin("value_floats", 6);
    pb_float(&floats, 7, 1.5f);
    g_node(&g, with_tensor(node("a", "Constant", NULL, "a"), "value", scalar_i64("", 4)));
    g_node(&g, with_int(node("b", "Constant", NULL, "b"), "value_int", -3));
    g_node(&g, with_ints(node("c", "Constant", NULL, "c"), "value_ints", 2, v));
    g_node(&g, with_float(node("d", "Constant", NULL, "d"), "value_float", 2.5f));
    g_node(&g, with_attr(node("e", "Constant", NULL, "e"), floats));
    g_node(&g, with_attr(node("f", "Constant", NULL, "f"), sparse_attr));
    g_out(&g, "a,b,c,d,e,f");
    Run r = import(model(g, 18));
    Region *top = good(&r)->top;
    assert_int_equal(top->nnode, 0);
    assert_int_equal(as_int(top->result[0], 0), 4);
    assert_int_equal(as_int(top->result[1], 0), -3);
    assert_int_equal(top->result[1]->data->rank, 0);
    assert_int_equal(as_int(top->result[2], 1), 9);
    assert_true(elem_get_f(DT_F32, top->result[3]->data->data, 0) == 2.5);
    assert_int_equal(top->result[4]->data->rank, 1);
    assert_int_equal(as_int(top->result[5], 1), 8);
    assert_int_equal(as_int(top->result[5], 5), 9);
    assert_int_equal(as_int(top->result[5], 0), 0);
    done(r);
    bad(import(one(with_string(node("s", "Constant", NULL, "y"), "value_string", "q"), 18)),
        ST_UNSUPPORTED, "element type string is not supported");
}

/* Elements in the typed fields, narrower than the field. */
static void test_typed_data(void **state) {
    (void)state;
    static const DType types[] = {DT_I8, DT_U8, DT_BOOL, DT_F16, DT_I16, DT_I32, DT_U32};
    for (size_t i = 0; i < COUNT(types); i++) {
        Sb t = {0}, g = {0};
        pb_int(&t, 1, 2);
        pb_int(&t, 2, types[i]);
        pb_str(&t, 8, "w");
        pb_int(&t, types[i] == DT_U32 ? 11 : 5, 1);
        pb_int(&t, types[i] == DT_U32 ? 11 : 5, 100);
        g_init(&g, t);
        g_out(&g, "w");
        Run r = import(model(g, 18));
        const Const *c = good(&r)->top->result[0]->data;
        assert_int_equal(c->dtype, types[i]);
        if (types[i] == DT_F16)
            assert_int_equal(((const uint16_t *)c->data)[1], 100);
        else
            assert_int_equal(elem_get_i(types[i], c->data, 1), types[i] == DT_BOOL ? 1 : 100);
        done(r);
    }
}

/* ---- functions ------------------------------------------------------------------------------ */

/* f(a, b?) { t = inner(a); If(..) with an attribute reference inside } calls inner(x) = x + alpha.
 */
static void test_functions(void **state) {
    (void)state;
    Sb inner = function("inner", "x", "y");
    pb_str(&inner, 6, "alpha");
    f_node(&inner, with_ref(node("c", "Constant", NULL, "t"), "value_float", 1, "alpha"));
    f_node(&inner, node("add", "Add", "x,t", "y"));

    Sb then = {0}, other = {0}, f = function("f", "x,b", "t,cl");
    g_node(&then, with_domain(with_ref(node("call", "inner", "x", "y"), "alpha", 1, "beta"), "my"));
    g_out(&then, "y");
    g_out(&other, "x");
    Sb dflt = attr_begin("beta", 1);
    pb_float(&dflt, 2, 4);
    pb_msg(&f, 11, dflt);
    Sb branch = with_graph(node("if", "If", "x", "t"), "then_branch", then);
    f_node(&f, with_graph(branch, "else_branch", other));
    f_node(&f, node("clip", "Clip", "x,b", "cl"));

    Sb g = {0};
    g_in(&g, "x");
    g_node(&g, with_domain(node("one", "f", "x", "t,u"), "my"));
    g_node(&g, with_domain(with_float(node("two", "f", "t,x", "y"), "beta", 9), "my"));
    g_out(&g, "y,u");
    Sb m = model(g, 18);
    pb_msg(&m, 8, opset("my", 1));
    m_function(&m, f);
    m_function(&m, inner);
    Run r = import(m);
    Region *top = good(&r)->top;
    verify(top, NULL, 0);
    assert_int_equal(top->nnode, 4);
    static const float want[] = {4, 9};
    for (int i = 0; i < 2; i++) {
        const Node *n = top->node[2 * i];
        const Region *t = node_attr(n, "then_branch")->g;
        const Node *add = find(t, "Add");
        assert_true(elem_get_f(DT_F32, add->in[1]->data->data, 0) == (double)want[i]);
        assert_string_equal(add->path, i ? "two/if/then_branch/call/add (Add)"
                                         : "one/if/then_branch/call/add (Add)");
        assert_int_equal(top->node[2 * i + 1]->nin,
                         i ? 2 : 1); /* b is left out in the first call */
    }
    assert_ptr_equal(top->result[0], top->node[2]->out[0]);
    assert_ptr_equal(top->result[1], top->node[1]->out[0]);
    done(r);
}

/* A function that has the name of an operator, and uses that operator. */
static void test_function_overrides(void **state) {
    (void)state;
    Sb f = function("Relu", "x", "y");
    f_node(&f, node("n", "Neg", "x", "y"));
    Sb m = one(with_domain(node("r", "Relu", "x", "y"), "my"), 18);
    pb_msg(&m, 8, opset("my", 1));
    m_function(&m, f);
    Run r = import(m);
    assert_string_equal(good(&r)->top->node[0]->op->name, "Neg");
    done(r);
}

static void test_function_errors(void **state) {
    (void)state;
    Sb a = function("a", "x", "y"), b = function("b", "x", "y");
    f_node(&a, with_domain(node("n", "b", "x", "y"), "my"));
    f_node(&b, with_domain(node("n", "a", "x", "y"), "my"));
    Sb m = one(with_domain(node("r", "a", "x", "y"), "my"), 18);
    pb_msg(&m, 8, opset("my", 1));
    m_function(&m, a);
    m_function(&m, b);
    bad(import(m), ST_MODEL, "r/n/n (my:a): function my:a calls itself (through b)");

    m = one(with_domain(node("r", "a", "x", "y"), "my"), 18);
    m_function(&m, function("a", "x", "x"));
    bad(import(m), ST_MODEL, "does not import the opset of domain 'my'");

    m = one(with_domain(node("r", "a", "x,x", "y"), "my"), 18);
    pb_msg(&m, 8, opset("my", 1));
    m_function(&m, function("a", "x", "x"));
    bad(import(m), ST_MODEL, "the function takes 1 inputs, the call gives 2");

    m = one(with_domain(node("r", "Thing", "x", "y"), "other"), 18);
    bad(import(m), ST_UNSUPPORTED, "r (other:Thing): operator other:Thing is not supported");

    /* 2^20 calls of nothing: refused before memory runs out. */
    m = one(with_domain(node("r", "f20", "x", "y"), "my"), 18);
    pb_msg(&m, 8, opset("my", 1));
    m_function(&m, function("f0", "x", "x"));
    for (int i = 1; i <= 20; i++) {
        char name[16], prev[16];
        snprintf(name, sizeof name, "f%d", i);
        snprintf(prev, sizeof prev, "f%d", i - 1);
        Sb f = function(name, "x", "y");
        f_node(&f, with_domain(node("a", prev, "x", "t"), "my"));
        f_node(&f, with_domain(node("b", prev, "t", "y"), "my"));
        m_function(&m, f);
    }
    bad(import(m), ST_UNSUPPORTED, "too large with all functions inlined");
}

/* ---- normalization -------------------------------------------------------------------------- */

static Run import_one(Sb n, int version) { return import(one(n, version)); }

static void test_attrs_to_inputs(void **state) {
    (void)state;
    int64_t axes[] = {0, 2}, pads[] = {1, 0, 0, 2};
    Run r = import_one(with_ints(node("n", "Unsqueeze", "x", "y"), "axes", 2, axes), 11);
    const Node *n = find(good(&r)->top, "Unsqueeze");
    assert_int_equal(n->nin, 2);
    assert_int_equal(n->nattr, 0);
    assert_int_equal(as_int(n->in[1], 1), 2);
    done(r);

    r = import_one(with_float(node("n", "Clip", "x", "y"), "max", 6), 6);
    n = find(good(&r)->top, "Clip");
    assert_int_equal(n->nin, 3);
    assert_null(n->in[1]);
    assert_string_equal(n->in[2]->def->op->name, "CastLike");
    verify(r.g->top, NULL, 0);
    done(r);

    r = import_one(with_float(with_ints(node("n", "Pad", "x", "y"), "pads", 4, pads), "value", 0),
                   2);
    n = find(good(&r)->top, "Pad");
    assert_int_equal(n->nin, 2);
    assert_int_equal(as_int(n->in[1], 3), 2);
    done(r);

    r = import_one(with_int(node("n", "TopK", "x", "y,i"), "k", 3), 9);
    assert_int_equal(as_int(find(good(&r)->top, "TopK")->in[1], 0), 3);
    done(r);

    r = import_one(node("n", "ReduceSum", "x", "y"), 11);
    assert_int_equal(find(good(&r)->top, "ReduceSum")->nin, 1);
    done(r);

    r = import_one(node("n", "Split", "x", "y,z"), 13);
    assert_null(node_attr(find(good(&r)->top, "Split"), "num_outputs")); /* parts are equal */
    done(r);

    r = import_one(node("n", "DFT", "x", "y"), 17);
    assert_int_equal(as_int(find(good(&r)->top, "DFT")->in[2], 0), 1);
    done(r);
}

static void test_old_meanings(void **state) {
    (void)state;
    Run r = import_one(node("n", "Softmax", "x", "y"), 11);
    const Node *n = find(good(&r)->top, "Softmax");
    assert_int_equal(node_attr(n, "axis")->i, 1);
    assert_int_equal(node_attr(n, "flatten")->i, 1);
    done(r);

    r = import_one(node("n", "Softmax", "x", "y"), 13);
    assert_int_equal(find(good(&r)->top, "Softmax")->nattr, 0);
    done(r);

    Sb scales = attr_begin("scales", 6);
    pb_float(&scales, 7, 2);
    pb_float(&scales, 7, 2);
    r = import_one(with_attr(node("n", "Upsample", "x", "y"), scales), 7);
    n = find(good(&r)->top, "Resize");
    assert_null(n->in[1]);
    assert_int_equal(n->in[2]->data->count, 2);
    assert_string_equal(node_attr(n, "coordinate_transformation_mode")->s, "asymmetric");
    assert_string_equal(node_attr(n, "nearest_mode")->s, "floor");
    done(r);

    r = import_one(node("n", "Scatter", "x,x,x", "y"), 9);
    find(good(&r)->top, "ScatterElements");
    done(r);

    r = import_one(with_float(node("n", "Dropout", "x", "y,z"), "ratio", 0.5f), 7);
    n = find(good(&r)->top, "Dropout");
    assert_int_equal(n->nattr, 0);
    assert_string_equal(r.g->top->node[1]->op->name, "CastLike");
    verify(r.g->top, NULL, 0);
    done(r);

    r = import_one(with_int(node("n", "BatchNormalization", "x,x,x,x,x", "y"), "spatial", 0), 7);
    assert_string_equal(good(&r)->top->result[0]->def->op->name, "Add");
    verify(r.g->top, NULL, 0);
    done(r);

    r = import_one(with_int(node("n", "GroupNormalization", "x,x,x", "y"), "num_groups", 2), 18);
    n = find(good(&r)->top, "GroupNormalization");
    assert_string_equal(n->in[1]->def->op->name, "Reshape");
    done(r);

    r = import_one(with_string(node("n", "GridSample", "x,x", "y"), "mode", "bicubic"), 16);
    assert_string_equal(node_attr(find(good(&r)->top, "GridSample"), "mode")->s, "cubic");
    done(r);

    r = import_one(with_int(with_int(node("n", "Add", "x,x", "y"), "broadcast", 1), "axis", 0), 6);
    assert_string_equal(good(&r)->top->result[0]->def->in[1]->def->op->name, "Reshape");
    verify(r.g->top, NULL, 0);
    done(r);
}

static void test_scan8(void **state) {
    (void)state;
    for (int lens = 0; lens < 2; lens++) {
        Sb body = {0};
        g_in(&body, "s,e");
        g_node(&body, node("add", "Add", "s,e", "t"));
        g_out(&body, "t,e");
        Sb n = node("scan", "Scan", lens ? "x,x,x" : ",x,x", "y,z");
        int64_t dirs[] = {1};
        n = with_ints(with_int(with_graph(n, "body", body), "num_scan_inputs", 1), "directions", 1,
                      dirs);
        Run r = import_one(n, 8);
        Region *top = good(&r)->top;
        verify(top, NULL, 0);
        const Node *outer = find(top, "Scan");
        assert_int_equal(outer->nin, 2 + lens);
        assert_int_equal(node_attr(outer, "num_scan_inputs")->i, 2 + lens);
        assert_null(node_attr(outer, "directions"));
        const Region *batch = node_attr(outer, "body")->g;
        const Node *inner = find(batch, "Scan");
        assert_int_equal(node_attr(inner, "scan_input_directions")->ints[0], 1);
        assert_int_equal(node_attr(inner, "body")->g->depth, 2);
        assert_string_equal(batch->result[1]->def->op->name, lens ? "Pad" : "Scan");
        done(r);
    }
}

static void test_form_errors(void **state) {
    (void)state;
    int64_t axes[] = {0};
    bad(import_one(with_ints(node("n", "Unsqueeze", "x", "y"), "axes", 1, axes), 13), ST_MODEL,
        "Unsqueeze has no attribute 'axes' since opset 13");
    bad(import_one(node("n", "Unsqueeze", "x", "y"), 11), ST_MODEL, "attribute 'axes' is missing");
    bad(import_one(node("n", "Add", "x", "y"), 18), ST_MODEL, "needs at least 2 inputs, has 1");
    bad(import_one(node("n", "Add", "x,", "y"), 18), ST_MODEL, "input 1 is missing");
    bad(import_one(node("n", "Add", "x,x,x", "y"), 18), ST_MODEL, "takes at most 2 inputs, has 3");
    bad(import_one(node("n", "Add", "x,x", "y,z"), 18), ST_MODEL,
        "has at most 1 outputs, 2 are named");
    bad(import_one(with_float(node("n", "Softmax", "x", "y"), "axis", 1), 18), ST_MODEL,
        "attribute 'axis' must be an integer");
    bad(import_one(with_int(with_int(node("n", "Softmax", "x", "y"), "axis", 1), "axis", 1), 18),
        ST_MODEL, "attribute 'axis' is given twice");
    bad(import_one(with_int(node("n", "Softmax", "x", "y"), "axsi", 1), 18), ST_MODEL,
        "Softmax has no attribute 'axsi' (it has: axis)");
    bad(import_one(with_int(node("n", "Shape", "x", "y"), "start", 1), 13), ST_UNSUPPORTED,
        "attribute 'start' of Shape came with opset 15, opset 13 is in use");
    bad(import_one(with_int(node("n", "ArgMax", "x", "y"), "keepdims", 2), 18), ST_MODEL,
        "attribute 'keepdims' is 2, it may be 0 or 1");
    bad(import_one(node("n", "If", "x", "y"), 18), ST_MODEL,
        "the subgraph 'then_branch' is missing");
    Sb one = {0}, then = {0}, other = {0};
    g_out(&then, "x,x");
    g_out(&other, "x,x");
    one = with_graph(with_graph(node("n", "If", "x", "y"), "then_branch", then), "else_branch",
                     other);
    bad(import_one(one, 18), ST_MODEL, "has 1 outputs, its branches give 2");
    bad(import_one(node("n", "Loop", ",,x", "y"), 18), ST_MODEL, "the subgraph 'body' is missing");
    Sb body = {0};
    g_in(&body, "i,c");
    g_out(&body, "c");
    bad(import_one(with_graph(node("n", "Loop", ",,x", "y"), "body", body), 18), ST_MODEL,
        "the subgraph 'body' has 2 inputs, 3 are needed");
    bad(import_one(node("n", "Add", "x,x", NULL), 18), ST_MODEL, "needs at least 1 outputs, has 0");
    bad(import_one(with_int(node("n", "BatchNormalization", "x,x,x,x,x", NULL), "spatial", 0), 7),
        ST_MODEL, "needs at least 1 outputs, has 0");
    bad(import_one(node("n", "Frobnicate", "x", "y"), 18), ST_UNSUPPORTED,
        "n (Frobnicate): operator Frobnicate is not supported");
    bad(import_one(with_domain(node("n", "CastMap", "x", "y"), "ai.onnx.ml"), 18), ST_UNSUPPORTED,
        "operator ai.onnx.ml:CastMap is not supported");
    bad(import_one(node("n", "Add", "x,x", "y"), 99), ST_UNSUPPORTED, "opset 99 is not supported");
    bad(import_one(node("n", "Add", "x,x", "y"), 0), ST_MODEL, "does not import the opset");
}

/* ---- folding a loop ------------------------------------------------------------------------- */

/* x, h, w -> h2 = (x + h) * w, y = -h2 */
static Sb step_model(void) {
    Sb g = {0};
    g_in(&g, "x,h,w");
    g_node(&g, node("a", "Add", "x,h", "t"));
    g_node(&g, node("m", "Mul", "t,w", "h2"));
    g_node(&g, node("n", "Neg", "h2", "y"));
    pb_msg(&g, 12, value_info("h2", tensor_type(DT_F32, 2)));
    pb_msg(&g, 12, value_info("y", tensor_type(DT_F32, 2)));
    return model(g, 18);
}

static Run folded(const char *scan, int axis, const char *in, const char *out) {
    Run r = import(step_model());
    good(&r);
    FoldSpec spec = {1, in != NULL, &scan, &axis, &in, &out};
    jmp_buf jb;
    r.d->top = &jb;
    if (setjmp(jb) == 0) graph_fold(r.g, &spec);
    r.d->top = NULL;
    return r;
}

static void test_fold(void **state) {
    (void)state;
    Run r = folded("x", 1, "h", "h2");
    Region *top = good(&r)->top;
    verify(top, NULL, 0);
    assert_int_equal(top->nparam, 3);
    assert_string_equal(top->param[0]->name, "x");
    assert_int_equal(top->param[0]->type->rank, 3);
    assert_string_equal(top->param[0]->type->param[1], "scan_length");
    assert_int_equal(top->param[1]->type->rank, 2);
    const Node *loop = find(top, "Loop");
    assert_int_equal(loop->nin, 3);
    assert_null(loop->in[1]);
    assert_ptr_equal(loop->in[2], top->param[1]);
    assert_string_equal(top->result_name[0], "h2");
    assert_ptr_equal(top->result[0], loop->out[0]);
    assert_int_equal(top->result_type[0]->rank, 2);
    assert_ptr_equal(top->result[1], loop->out[1]);
    assert_int_equal(top->result_type[1]->rank, 3);
    const Region *b = node_attr(loop, "body")->g;
    assert_int_equal(b->nparam, 3);
    assert_int_equal(b->nresult, 3);
    assert_ptr_equal(b->result[0], b->param[1]);
    const Node *gather = find(b, "Gather");
    assert_int_equal(node_attr(gather, "axis")->i, 1);
    assert_ptr_equal(gather->in[1], b->param[0]);
    const Node *add = find(b, "Add");
    assert_ptr_equal(add->in[0], gather->out[0]);
    assert_ptr_equal(add->in[1], b->param[2]);
    assert_ptr_equal(find(b, "Mul")->in[1], top->param[2]);
    done(r);

    bad(folded("q", 0, NULL, NULL), ST_USAGE, "the model has no such input: 'q'");
    bad(folded("x", 0, "h", "q"), ST_USAGE, "the model has no such output: 'q'");
    bad(folded("x", 0, "x", "h2"), ST_USAGE, "the input is given twice");
    bad(folded("x", 3, NULL, NULL), ST_USAGE, "the axis to scan is out of range");
}

/* ---- data files ----------------------------------------------------------------------------- */

static void test_data(void **state) {
    (void)state;
    Diag d = {0};
    Arena *a = arena_new(&d);
    float f[] = {1, 2, 3};
    uint8_t u[] = {7};
    Const x = {.dtype = DT_F32, .rank = 1, .dim = {3}, .count = 3, .data = f};
    Const y = {.dtype = DT_U8, .rank = 0, .count = 1, .data = u};
    const Const *both[] = {&x, &y};
    const DataValue values[] = {
        {VT_TENSOR, VT_TENSOR, false, 1, both, "t"},
        {VT_SEQUENCE, VT_SEQUENCE, false, 2, both, "s"},
        {VT_SEQUENCE, VT_SEQUENCE, false, 0, both, ""},
        {VT_OPTIONAL, VT_TENSOR, false, 1, both, "o"},
        {VT_OPTIONAL, VT_SEQUENCE, false, 2, both, "o"},
        {VT_OPTIONAL, VT_TENSOR, true, 0, both, ""},
    };
    for (size_t i = 0; i < COUNT(values); i++) {
        const DataValue *v = &values[i];
        Sb s = {0};
        data_write(&s, v);
        DataValue w = data_read(a, &d, s.n ? s.p : "", s.n, v->kind, "file");
        sb_free(&s);
        assert_int_equal(w.elem, v->elem);
        assert_int_equal(w.absent, v->absent);
        assert_int_equal(w.n, v->n);
        assert_string_equal(w.name, v->name);
        for (int k = 0; k < w.n; k++) {
            assert_int_equal(w.t[k]->dtype, v->t[k]->dtype);
            assert_int_equal(w.t[k]->rank, v->t[k]->rank);
            assert_memory_equal(w.t[k]->data, v->t[k]->data,
                                (size_t)v->t[k]->count * dtype_size(v->t[k]->dtype));
        }
    }
    jmp_buf jb;
    d.top = &jb;
    if (setjmp(jb) == 0) {
        data_read(a, &d, "\x0a\x05", 2, VT_TENSOR, "file");
        fail();
    }
    assert_int_equal(d.status, ST_INPUT);
    arena_free(a);
}

/* ---- the operator table --------------------------------------------------------------------- */

static void test_type_rules(void **state) {
    (void)state;
    OpRow op = {.types = "TTlS:T=num"};
    assert_true(op_type_ok(&op, 0, DT_F16));
    assert_false(op_type_ok(&op, 1, DT_BOOL));
    assert_true(op_type_ok(&op, 1, DT_NONE));
    assert_false(op_type_ok(&op, 2, DT_I32));
    assert_false(op_type_ok(&op, 3, DT_F32));
    assert_true(op_type_same(&op, 0, 1));
    assert_false(op_type_same(&op, 0, 2));
    OpRow variadic = {.types = "T"};
    assert_true(op_type_same(&variadic, 0, 5));
    for (int i = 0; i < op_count(); i++) {
        const OpRow *row = op_at(i);
        assert_int_equal(op_index(row), i);
        assert_ptr_equal(op_find(row->domain, row->name), row); /* no operator is listed twice */
    }
}

/* ---- hostile files -------------------------------------------------------------------------- */

static Sb init_model(Sb t) {
    Sb g = {0};
    g_init(&g, t);
    g_out(&g, "w");
    return model(g, 18);
}

static void test_bad_tensors(void **state) {
    (void)state;
    int64_t one_elem[] = {1}, minus[] = {-1}, huge[] = {(int64_t)1 << 40, (int64_t)1 << 40};
    int64_t zero_huge[] = {0, (int64_t)1 << 40, (int64_t)1 << 40}, three[] = {3}, ones[13];
    for (int i = 0; i < 13; i++) ones[i] = 1;
    bad(import(init_model(tensor_i64("w", 1, minus, 1, one_elem))), ST_MODEL,
        "negative dimension -1");
    bad(import(init_model(tensor_i64("w", 2, huge, 1, one_elem))), ST_MODEL, "too large");
    bad(import(init_model(tensor_i64("w", 3, zero_huge, 0, NULL))), ST_MODEL, "too large");
    bad(import(init_model(tensor_i64("w", 1, three, 1, one_elem))), ST_MODEL,
        "8 bytes of data, the dimensions need 24");
    bad(import(init_model(tensor_i64("w", 13, ones, 1, one_elem))), ST_UNSUPPORTED, "rank 13");
    static const int types[] = {8, 14, 15, 29};
    static const char *const names[] = {"string", "complex64", "complex128", "unknown type"};
    for (size_t i = 0; i < COUNT(types); i++) {
        char text[64];
        snprintf(text, sizeof text, "initializer 'w': element type %s is not supported", names[i]);
        Sb t = {0};
        pb_int(&t, 2, types[i]);
        pb_str(&t, 8, "w");
        bad(import(init_model(t)), ST_UNSUPPORTED, text);
        Sb g = {0};
        pb_msg(&g, 11, value_info("w", tensor_type(types[i], 1)));
        g_out(&g, "w");
        snprintf(text, sizeof text, "graph input 'w': element type %s is not supported", names[i]);
        bad(import(model(g, 18)), ST_UNSUPPORTED, text);
    }
    Sb map = {0}, g = {0};
    pb_msg(&map, 5, (Sb){0});
    pb_msg(&g, 11, value_info("w", map));
    bad(import(model(g, 18)), ST_UNSUPPORTED, "graph input 'w': type map is not supported");
}

/* Codes of less than a byte: packed in a file, one a byte in memory. */
static Sb packed(int type, int64_t n, const char *raw, size_t bytes) {
    Sb t = {0};
    pb_int(&t, 1, n);
    pb_int(&t, 2, type);
    pb_str(&t, 8, "w");
    pb_bytes(&t, 9, raw, bytes);
    return init_model(t);
}

static void test_packed(void **state) {
    (void)state;
    static const struct {
        DType type;
        const char *raw;
        int64_t n;
        uint8_t code[5];
    } is[] = {{DT_I4, "\x21\xf3", 3, {1, 2, 3}},
              {DT_F4E2M1, "\x21\x43", 4, {1, 2, 3, 4}},
              {DT_U2, "\x1b\xfe", 5, {3, 2, 1, 0, 2}},
              {DT_F6E2M3, "\xc1\x8f\xfd\x2a", 5, {1, 63, 24, 63, 42}},
              {DT_F8E5M2, "\x01\xff", 2, {1, 255}}};
    for (size_t i = 0; i < COUNT(is); i++) {
        size_t bytes = strlen(is[i].raw);
        Run r = import(packed(is[i].type, is[i].n, is[i].raw, bytes));
        const Const *c = good(&r)->top->result[0]->data;
        assert_int_equal(c->dtype, is[i].type);
        assert_memory_equal(c->data, is[i].code, (size_t)is[i].n);
        done(r);
        bad(import(packed(is[i].type, is[i].n, is[i].raw, bytes - 1)), ST_MODEL, "bytes of data");
        bad(import(packed(is[i].type, (int64_t)1 << 50, is[i].raw, bytes)), ST_MODEL,
            "bytes of data");
    }
}

static Sb external(const char *location, int64_t offset, int64_t length) {
    static const char *const keys[] = {"location", "offset", "length"};
    char number[2][32];
    snprintf(number[0], 32, "%lld", (long long)offset);
    snprintf(number[1], 32, "%lld", (long long)length);
    const char *values[] = {location, number[0], number[1]};
    Sb t = {0};
    pb_int(&t, 1, 2);
    pb_int(&t, 2, DT_I32);
    pb_str(&t, 8, "w");
    for (int i = 0; i < 3; i++) {
        Sb e = {0};
        pb_str(&e, 1, keys[i]);
        pb_str(&e, 2, values[i]);
        pb_msg(&t, 13, e);
    }
    pb_int(&t, 14, 1);
    return init_model(t);
}

static Run import_in(Sb m, const char *dir) {
    char path[4096] = "";
    if (dir) snprintf(path, sizeof path, "%s/model.onnx", dir);
    Run r = import_bytes(m.p, m.n, dir ? path : NULL);
    sb_free(&m);
    return r;
}

static void test_external_data(void **state) {
    (void)state;
    char dir[] = "/tmp/test_import_XXXXXX", path[64], link[64];
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/w.bin", dir);
    snprintf(link, sizeof link, "%s/link", dir);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    int32_t v[] = {1, 2, 3};
    assert_int_equal(fwrite(v, 4, 3, f), 3);
    fclose(f);
    assert_int_equal(symlink("/etc/passwd", link), 0);
    Run r = import_in(external("w.bin", 4, 8), dir);
    assert_int_equal(as_int(good(&r)->top->result[0], 1), 3);
    done(r);
    bad(import_in(external("w.bin", 8, 8), dir), ST_MODEL, "too short");
    bad(import_in(external("w.bin", 0, 12), dir), ST_MODEL, "the dimensions need 8");
    bad(import_in(external("w.bin", -4, 8), dir), ST_MODEL, "bad offset '-4'");
    bad(import_in(external("/etc/passwd", 0, 8), dir), ST_MODEL, "is not in the model's folder");
    bad(import_in(external("../w.bin", 0, 8), dir), ST_MODEL, "is not in the model's folder");
    bad(import_in(external("a/../../w.bin", 0, 8), dir), ST_MODEL, "is not in the model's folder");
    bad(import_in(external("link", 0, 8), dir), ST_MODEL, "leads out of the model's folder");
    bad(import_in(external("gone", 0, 8), dir), ST_IO, "gone");
    bad(import_in(external(".", 0, 8), dir), ST_MODEL, "");
    bad(import_in(external("w.bin", 4, 8), NULL), ST_UNSUPPORTED,
        "the model in memory has no path");
    unlink(path);
    unlink(link);
    rmdir(dir);
}

/* Ifs inside each other. */
static Sb nested(int levels) {
    Sb g = {0};
    g_node(&g, node("last", "Neg", "x", "r"));
    g_out(&g, "r");
    for (int i = 1; i < levels; i++) {
        Sb other = {0}, up = {0};
        g_out(&other, "x");
        Sb n = with_graph(node("if", "If", "x", "r"), "then_branch", g);
        g_node(&up, with_graph(n, "else_branch", other));
        g_out(&up, "r");
        g = up;
    }
    g_in(&g, "x");
    return model(g, 18);
}

static void test_nesting(void **state) {
    (void)state;
    Run r = import(nested(64));
    verify(good(&r)->top, NULL, 0);
    done(r);
    bad(import(nested(1000)), ST_UNSUPPORTED, "nested deeper than");
    bad(import(nested(105)), ST_UNSUPPORTED, "nested deeper than");
}

static void test_damage(void **state) {
    (void)state;
    bad(import_bytes("", 0, NULL), ST_MODEL, "empty");
    bad(import_bytes("hello world", 11, NULL), ST_MODEL, "not a valid protobuf message");
    bad(import_bytes("\x08\x08", 2, NULL), ST_MODEL, "there is no graph");
    Sb m = {0};
    pb_msg(&m, 7, (Sb){0});
    bad(import(m), ST_UNSUPPORTED, "IR version 0 is not supported");
    /* Every cut of a valid model is refused or imported, never more. */
    m = step_model();
    for (size_t n = 0; n < m.n; n++) {
        char *exact = malloc(n + 1);
        assert_non_null(exact);
        memcpy(exact, m.p, n);
        Run r = import_bytes(exact, n, NULL);
        assert_true(r.g || r.d->status != ST_OK);
        done(r);
        free(exact);
    }
    sb_free(&m);
}

static uint64_t next_random(uint64_t *s) {
    *s ^= *s << 13;
    *s ^= *s >> 7;
    *s ^= *s << 17;
    return *s;
}

/* Models of several kinds with a few bytes changed, always the same way. */
static void test_mutations(void **state) {
    (void)state;
    int64_t pads[] = {1, 0, 0, 2};
    Sb body = {0};
    g_in(&body, "s,e");
    g_node(&body, node("add", "Add", "s,e", "t"));
    g_out(&body, "t,e");
    Sb scan = with_graph(node("scan", "Scan", "x,x,x", "y,z"), "body", body);
    Sb call = one(with_domain(node("r", "f", "x", "y"), "my"), 18), f = function("f", "x", "y");
    f_node(&f, with_ref(node("c", "Constant", NULL, "t"), "value_float", 1, "alpha"));
    f_node(&f, node("add", "Add", "x,x", "y"));
    pb_msg(&call, 8, opset("my", 1));
    m_function(&call, f);
    Sb models[] = {
        step_model(),
        nested(4),
        one(with_float(with_ints(node("n", "Pad", "x", "y"), "pads", 4, pads), "value", 2), 2),
        one(with_int(scan, "num_scan_inputs", 1), 8),
        external("w.bin", 0, 8),
        call,
    };
    uint64_t seed = 88172645463325252u;
    int counts[8] = {0};
    for (size_t i = 0; i < COUNT(models); i++) {
        Sb *m = &models[i];
        for (int k = 0; k < 2000; k++) {
            unsigned char *copy = malloc(m->n);
            assert_non_null(copy);
            memcpy(copy, m->p, m->n);
            for (int left = 1 + (int)(next_random(&seed) % 3); left > 0; left--) {
                uint64_t x = next_random(&seed);
                unsigned char *at = &copy[x % m->n];
                switch (x >> 40 & 3) {
                case 0: *at ^= (unsigned char)(1u << (x >> 50 & 7)); break;
                case 1: *at = (unsigned char)(x >> 48 & 31); break;
                case 2: *at = 255; break;
                default: *at = copy[(x >> 20) % m->n]; break;
                }
            }
            Run r = import_bytes(copy, m->n, "/nonexistent/model.onnx");
            assert_true(r.g ? r.d->status == ST_OK : r.d->status != ST_OK && r.d->message[0]);
            if (r.g) verify(r.g->top, NULL, 0);
            counts[r.d->status]++;
            done(r);
            free(copy);
        }
        sb_free(m);
    }
    assert_true(counts[ST_OK] > 100); /* the changes are small enough to reach the later checks */
    assert_true(counts[ST_MODEL] > 100);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plain),
        cmocka_unit_test(test_regions),
        cmocka_unit_test(test_name_errors),
        cmocka_unit_test(test_constants),
        cmocka_unit_test(test_typed_data),
        cmocka_unit_test(test_functions),
        cmocka_unit_test(test_function_overrides),
        cmocka_unit_test(test_function_errors),
        cmocka_unit_test(test_attrs_to_inputs),
        cmocka_unit_test(test_old_meanings),
        cmocka_unit_test(test_scan8),
        cmocka_unit_test(test_form_errors),
        cmocka_unit_test(test_fold),
        cmocka_unit_test(test_data),
        cmocka_unit_test(test_type_rules),
        cmocka_unit_test(test_bad_tensors),
        cmocka_unit_test(test_packed),
        cmocka_unit_test(test_external_data),
        cmocka_unit_test(test_nesting),
        cmocka_unit_test(test_damage),
        cmocka_unit_test(test_mutations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
