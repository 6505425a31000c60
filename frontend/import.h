/* import.h: what the files of the importer share. Not for other folders.
 *
 * An ONNX file goes through: wire.c (bytes to messages), import.c (graphs to regions),
 * import_names.c (names to values), functions.c (calls of local functions), sort.c (order of
 * nodes), import_tensor.c, import_types.c, import_attr.c (messages to Const, VType, Attr),
 * normalize*.c (old operator forms to the newest one, by raw.c).
 */
#ifndef BRAID_IMPORT_H
#define BRAID_IMPORT_H

#include "frontend/graph.h"
#include "frontend/ops.h"
#include "onnx.pb-c.h"

#define IR_MIN 3
#define IR_MAX 14

/* Limits on hostile input: subgraphs and function calls inside each other; messages inside each
 * other (three for each subgraph); nodes, inputs, initializers and such with all functions inlined;
 * bytes that sparse tensors have when dense, and attributes in all inlined copies; entries of short
 * lists. */
#define MAX_NESTING 100
#define MAX_MESSAGES 320
#define MAX_THINGS 1000000
#define MAX_COPIED ((size_t)1 << 29)
#define MAX_SHORT_LIST 1000

typedef VEC(const char *) Names;

typedef struct Import {
    Arena *a;
    Diag *d;
    Status bad;      /* what a malformed tensor is: ST_MODEL, or ST_INPUT in a data file */
    const char *dir; /* folder of external data, or NULL */
    Graph *g;
    const Onnx__ModelProto *model;
    Map *function; /* key of function_key to FunctionProto */
    Map *tensor;   /* address of a TensorProto, SparseTensorProto or AttributeProto to its Const:
                      shared   by all inlined copies */
    Map *free;     /* GraphProto address to Names: what its nodes take from outside */
    size_t things, copied;   /* counted up to the limits above */
    int depth;               /* subgraphs and calls around here */
    struct Invoked *invoked; /* functions that are Invoked (functions.c) */
    Function *inside;        /* the one being imported, NULL: the model's graph */
} Import;

/* A list of nodes that grows: the region under construction. */
typedef struct Builder {
    Region *r;
    VEC(Node *) node;
} Builder;

/* A call of a local function being inlined. */
typedef struct Call {
    const Onnx__FunctionProto *f;
    const Onnx__NodeProto *node;
    struct Scope *caller;
    struct Call *up; /* the call around this one */
} Call;

/* Names visible to a node: those of its graph, then of the graphs around it up to the function's.
 */
typedef struct Scope {
    struct Scope *up;
    Map *name;          /* to Value; &value_absent for an optional input that the call left out */
    Map *type;          /* to TypeProto: declared types of this graph; NULL in functions */
    Builder *b;         /* where nodes go */
    Call *call;         /* NULL outside functions */
    const char *prefix; /* way into this graph, for paths: "" or "loop1/body/" */
} Scope;

/* A node on its way from the file to the Graph; normalization edits it. */
typedef struct Raw {
    Import *im;
    Builder *b;
    const char *domain, *op;
    int opset; /* that applies to op */
    const char *name, *path;
    VEC(Value *) in;
    VEC(Value *) out; /* made, not yet bound to a node */
    VEC(Attr) attr;
    VEC(Node *) post;       /* nodes that go after this one */
    const Function *callee; /* of an Invoke */
} Raw;

/* wire.c: checks the wire format of `bytes` (nesting too), then unpacks into the arena. */
ProtobufCMessage *wire_unpack(Import *im, const ProtobufCMessageDescriptor *type, const void *bytes,
                              size_t n, const char *what);

/* import_tensor.c; where: "initializer 'w'" for messages. */
const Const *tensor_import(Import *im, const Onnx__TensorProto *t, const char *where);
const Const *sparse_import(Import *im, const Onnx__SparseTensorProto *t, const char *where);
Const *const_new(Import *im, DType t, int rank, const int64_t *dim, int64_t count); /* zeros */

/* import_types.c: NULL when nothing is declared. */
const VType *type_import(Import *im, const Onnx__TypeProto *t, const char *where);
/* The same of what the model computes: a sequence of maps is a tensor here (ZipMap), of which the
 * declaration says nothing. */
const VType *type_made(Import *im, const Onnx__TypeProto *t, const char *where);

/* import_attr.c: the attribute that `ap`, written in scope *s, stands for: itself, or through
 * ref_attr_name what the call (in its own scope, put in *s) or the function's default gives; NULL
 * for none. */
const Onnx__AttributeProto *attr_resolve(Import *im, const Onnx__AttributeProto *ap, Scope **s,
                                         const char *path);
void attrs_import(Raw *n, Scope *s, const Onnx__NodeProto *np);
const Const *constant_import(Import *im, Scope *s, const Onnx__NodeProto *np, const char *path);

/* attrs.c: what the operator table says of the attributes of one operator in one opset. */
typedef struct AttrRule {
    char kind;          /* the letter in ops.def; 0: the operator has no such attribute */
    const char *values; /* those allowed, "this|that" up to a blank or the end; NULL: not listed */
    int later;          /* kind is 0: the opset with which it comes, or 0 */
    int gone;           /* kind is 0: the opset since which it is no more, or 0 */
} AttrRule;
AttrRule attr_rule(const char *attrs, const char *name, int opset);
/* Fails unless a is what its rule in `attrs` (a row's, see ops.def) allows. */
void attr_check(const Raw *n, const char *attrs, const Attr *a);
/* The attribute's type: as written; else what `attrs` says, or NULL: guessed from what is there. */
int attr_type(const Onnx__AttributeProto *ap, const char *attrs, int opset);

/* import_names.c */
void count_things(Import *im, size_t n, const char *path);
void count_copied(Import *im, size_t bytes, const char *path);
extern const Value value_absent;
Value *scope_find(Scope *s, const char *name);
void scope_add(Import *im, Scope *s, const char *name, const Value *v, const char *path);
const char *path_join(Import *im, const char *prefix, const char *name);
const char *node_name(const Onnx__NodeProto *np);
bool same_domain(const char *a, const char *b);
int opset_of(Import *im, const Scope *s, const char *domain); /* 0: not imported */
void functions_index(Import *im);
const char *function_key(Import *im, const char *domain, const char *name, const char *overload);
const Onnx__FunctionProto *function_find(Import *im, const Onnx__NodeProto *np);

/* import.c */
void nodes_import(Import *im, Scope *s, Onnx__NodeProto **node, size_t n, const char *what);
Region *region_import(Import *im, const Onnx__GraphProto *gp, Scope *up, Region *parent,
                      const char *prefix);

/* functions.c */
void call_inline(Import *im, Scope *s, const Onnx__NodeProto *np, const Onnx__FunctionProto *f,
                 const char *path);
/* Finds what the Invoke n calls and checks the call. The function is imported by functions_import.
 */
void invoke_resolve(Raw *n);
/* Imports all functions that are Invoked, and finds which of them recurse. */
void functions_import(Import *im);

/* sort.c: indices of the nodes in an order in which each comes after what it uses. */
const int *nodes_order(Import *im, Onnx__NodeProto **node, size_t n, const char *prefix);

/* census.c: raises when several nodes have operators that are not supported: all of them. */
void census(Import *im);

/* normalize.c, normalize_nn.c, normalize_scan.c */
bool normalize_knows(const char *op); /* of the ONNX domain: has a form that is rewritten */
void normalize(Raw *n);
void norm_legacy_broadcast(Raw *n);
void norm_legacy_prelu(Raw *n);
void norm_batchnorm(Raw *n);
void norm_dropout(Raw *n);
void norm_groupnorm(Raw *n);
void norm_upsample(Raw *n);
void norm_resize10(Raw *n);
void norm_resize(Raw *n);
void norm_scan8(Raw *n);

/* raw.c: raw_emit puts nodes before the one in hand, raw_post after it. */
Value *raw_emit(Raw *n, const char *op, int nin, Value **in, int nattr, Attr *attr);
Value *raw_emit_i64(Raw *n, int rank, int64_t count, const int64_t *v); /* constant, rank 0 or 1 */
Value *raw_emit_float(Raw *n, float v);                                 /* constant of rank 0 */
Value *raw_emit_cast_like(Raw *n, Value *v, Value *like);
Value *raw_emit_rank(Raw *n, Value *v); /* its rank as a scalar */
Node *raw_post(Raw *n, const char *op, int nin, Value **in, Value *out);
void raw_input(Raw *n, int i, Value *v);
Value *raw_need(Raw *n, int i); /* input i, which every form of the operator has */
bool raw_take(Raw *n, const char *name, Attr *out); /* removes the attribute */
const Attr *raw_attr(const Raw *n, const char *name);
void raw_put(Raw *n, Attr a);
/* For a body `name` that gives `count`: outputs left off at the end become absent. */
void fit_outputs(Raw *n, const char *name, int count);

static inline Attr attr_of_int(const char *name, int64_t v) {
    return (Attr){.name = name, .kind = AT_INT, .i = v};
}
static inline Attr attr_of_string(const char *name, const char *s) {
    return (Attr){.name = name, .kind = AT_STRING, .s = s};
}
static inline Attr attr_of_graph(const char *name, Region *r) {
    return (Attr){.name = name, .kind = AT_GRAPH, .g = r};
}

/* graph.c: r moved one level further in. */
void region_deepen(Region *r);

#endif
