/* import.h: declarations that the importer's files share, private to frontend/.
 *
 * An ONNX file passes through: wire.c (bytes to messages), import.c (graphs to regions),
 * import_names.c (names to values), functions.c (calls of local functions), sort.c (order of
 * nodes), import_tensor.c, import_types.c, import_attr.c (messages to Const, VType, Attr),
 * normalize*.c (old operator forms to the newest one, with the help of raw.c).
 */
#ifndef BRAID_IMPORT_H
#define BRAID_IMPORT_H

#include "frontend/graph.h"
#include "frontend/ops.h"
#include "onnx.pb-c.h"

#define IR_MIN 3
#define IR_MAX 14

/* Limits against hostile input. */
#define MAX_NESTING 100    /* depth of nested subgraphs and function calls */
#define MAX_MESSAGES 320   /* depth of nested messages; a subgraph takes three */
#define MAX_THINGS 1000000 /* nodes, inputs, initializers, …, with all functions inlined */
#define MAX_COPIED ((size_t)1 << 29) /* bytes of sparse tensors made dense, inlined attributes */
#define MAX_SHORT_LIST 1000          /* entries of a short list */

typedef VEC(const char *) Names;

typedef struct Import {
    Arena *a;
    Diag *d;
    Status bad;      /* status for a malformed tensor: ST_MODEL, or ST_INPUT in a data file */
    const char *dir; /* folder of external data, or NULL */
    Graph *g;
    const Onnx__ModelProto *model;
    Map *function; /* function_key to FunctionProto */
    /* Address of a TensorProto, SparseTensorProto or AttributeProto to its Const, which all inlined
     * copies share. */
    Map *tensor;
    Map *free; /* address of a GraphProto to Names: the values that its nodes use from outside */
    size_t things, copied;   /* counts towards MAX_THINGS and MAX_COPIED */
    int depth;               /* subgraphs and calls around the current one */
    struct Invoked *invoked; /* functions that are Invoked (functions.c) */
    Function *inside;        /* the Invoked function being imported; NULL: the model's graph */
} Import;

/* A region under construction: its growing list of nodes. */
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

/* The names that a node sees: those of its graph, then of enclosing graphs up to the function. */
typedef struct Scope {
    struct Scope *up;
    Map *name;          /* to Value; &value_absent for an optional input that the call omits */
    Map *type;          /* to TypeProto: declared types of this graph; NULL in functions */
    Builder *b;         /* gets the nodes */
    Call *call;         /* NULL outside functions */
    const char *prefix; /* start of the paths of this graph's nodes: "" or "loop1/body/" */
} Scope;

/* A node between the file and the Graph. Normalization edits it. */
typedef struct Raw {
    Import *im;
    Builder *b;
    const char *domain, *op;
    int opset; /* of the operator's domain */
    const char *name, *path;
    VEC(Value *) in;
    VEC(Value *) out; /* not yet bound to a node */
    VEC(Attr) attr;
    VEC(Node *) post;       /* nodes to put after this one */
    const Function *callee; /* of an Invoke */
} Raw;

/* wire.c: checks the wire format of `bytes`, including its nesting, then unpacks into the arena. */
ProtobufCMessage *wire_unpack(Import *im, const ProtobufCMessageDescriptor *type, const void *bytes,
                              size_t n, const char *what);

/* import_tensor.c. `where` is for messages: "initializer 'w'". */
const Const *tensor_import(Import *im, const Onnx__TensorProto *t, const char *where);
const Const *sparse_import(Import *im, const Onnx__SparseTensorProto *t, const char *where);
Const *const_new(Import *im, DType t, int rank, const int64_t *dim, int64_t count); /* zeros */

/* import_types.c; NULL: nothing is declared. */
const VType *type_import(Import *im, const Onnx__TypeProto *t, const char *where);
/* The same for a value that the model computes. A sequence of maps (of ZipMap) is a tensor here, so
 * its declaration gives NULL. */
const VType *type_made(Import *im, const Onnx__TypeProto *t, const char *where);

/* import_attr.c: the attribute that `ap` in scope *s stands for. Without ref_attr_name it is `ap`.
 * Else it is the call's attribute (*s becomes the call's scope), else the function's default, else
 * NULL. */
const Onnx__AttributeProto *attr_resolve(Import *im, const Onnx__AttributeProto *ap, Scope **s,
                                         const char *path);
void attrs_import(Raw *n, Scope *s, const Onnx__NodeProto *np);
const Const *constant_import(Import *im, Scope *s, const Onnx__NodeProto *np, const char *path);

/* attrs.c: the operator table's rule for an attribute of an operator in an opset. */
typedef struct AttrRule {
    char kind;          /* the letter in ops.def; 0: the operator has no such attribute */
    const char *values; /* allowed values, "this|that", ended by a blank or NUL; NULL: any */
    int later;          /* if kind is 0: the later opset that adds the attribute, or 0 */
    int gone;           /* if kind is 0: the opset that removed the attribute, or 0 */
} AttrRule;
AttrRule attr_rule(const char *attrs, const char *name, int opset);
/* Raises unless `attrs` (the column of a row, see ops.def) allows a. */
void attr_check(const Raw *n, const char *attrs, const Attr *a);
/* The attribute's type: as declared; else by the fields that are set; else by the rule in `attrs`
 * (may be NULL); else an integer. */
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
/* Finds the function that the Invoke n calls, and checks the call. functions_import imports it. */
void invoke_resolve(Raw *n);
/* Imports all Invoked functions and finds which of them are recursive. */
void functions_import(Import *im);

/* sort.c: the indices of the nodes in topological order. */
const int *nodes_order(Import *im, Onnx__NodeProto **node, size_t n, const char *prefix);

/* census.c: raises, with a list, when several nodes have operators that are not supported. */
void census(Import *im);

/* normalize.c, normalize_nn.c, normalize_scan.c */
bool normalize_knows(const char *op); /* op, of the ONNX domain, has a form that is rewritten */
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

/* raw.c: raw_emit puts a new node before n, raw_post after it. */
Value *raw_emit(Raw *n, const char *op, int nin, Value **in, int nattr, Attr *attr);
Value *raw_emit_i64(Raw *n, int rank, int64_t count, const int64_t *v); /* constant, rank 0 or 1 */
Value *raw_emit_float(Raw *n, float v);                                 /* constant of rank 0 */
Value *raw_emit_cast_like(Raw *n, Value *v, Value *like);
Value *raw_emit_rank(Raw *n, Value *v); /* its rank as a scalar */
Node *raw_post(Raw *n, const char *op, int nin, Value **in, Value *out);
void raw_input(Raw *n, int i, Value *v);
Value *raw_need(Raw *n, int i); /* the required input i; raises when it is absent */
bool raw_take(Raw *n, const char *name, Attr *out); /* removes the attribute; false: absent */
const Attr *raw_attr(const Raw *n, const char *name);
void raw_put(Raw *n, Attr a);
/* Fits n's outputs to a body `name` that gives `count`: missing ones at the end become absent. */
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

/* graph.c: r and its subgraphs move one level deeper. */
void region_deepen(Region *r);

#endif
