/* graph.h: the Graph, the compiler's form of an ONNX file.
 *
 * It is in SSA form. A Region has parameters, nodes in topological order, and results. A Node may
 * own Regions (Loop, If, Scan, SequenceMap), whose nodes may use values of every enclosing Region.
 * The importer has
 *  - resolved all names to Value pointers (an inner name shadows an outer one);
 *  - rewritten operators of all opsets to their newest form;
 *  - inlined local functions that are called as operators; those that ai.braid:Invoke calls are
 *    Functions;
 *  - turned Constant nodes into Values with data.
 */
#ifndef BRAID_GRAPH_H
#define BRAID_GRAPH_H

#include "base/base.h"

typedef struct Value Value;
typedef struct Node Node;
typedef struct Region Region;
typedef struct OpRow OpRow;

/* A tensor known at compile time: dense, row-major; element i is at data + i * dtype_size. A bool
 * is one byte, 0 or 1. A rank-0 tensor has one element. The data is 64-byte aligned if it was
 * copied. */
typedef struct Const {
    DType dtype;
    int rank;
    int64_t dim[MAX_RANK];
    int64_t count;    /* product of the dims */
    const void *data; /* count * dtype_size(dtype) bytes */
} Const;

/* A declared type. A dim of -1 is not known: `param` is its name, or NULL when it has none or one
 * that means nothing ("?", "None"). */
typedef enum { VT_TENSOR, VT_SEQUENCE, VT_OPTIONAL } VKind;
typedef struct VType {
    VKind kind;
    DType dtype;    /* VT_TENSOR; DT_NONE: not declared */
    bool has_shape; /* VT_TENSOR: rank and dims are declared */
    int rank;
    int64_t dim[MAX_RANK];
    const char *param[MAX_RANK];
    struct VType *elem; /* VT_SEQUENCE, VT_OPTIONAL */
} VType;

struct Value {
    int id;            /* unique in the Graph, dense from 0 */
    const char *name;  /* the ONNX name (may repeat across regions) */
    Node *def;         /* producer, or NULL for parameters and constants */
    Region *region;    /* where it is defined */
    const Const *data; /* known value, or NULL */
    const VType *type; /* declared type, or NULL */
};

typedef enum {
    AT_INT,
    AT_FLOAT,
    AT_STRING,
    AT_TENSOR,
    AT_INTS,
    AT_FLOATS,
    AT_STRINGS,
    AT_GRAPH,
    AT_TYPE
} AttrKind;

typedef struct Attr {
    const char *name;
    AttrKind kind;
    int64_t i;
    float f;
    const char *s; /* NUL-terminated copy */
    int n;         /* length of ints, floats, strings */
    const int64_t *ints;
    const float *floats;
    const char **strings;
    const Const *t;
    Region *g;
    const VType *type;
} Attr;

struct Node {
    const OpRow *op;
    const char *name; /* ONNX node name, or the first output's name when empty; never NULL */
    const char *path; /* for messages, with the way into subgraphs: "loop1/body/add3 (Add)" */
    int nin, nout;
    Value **in;  /* NULL entries: absent optional inputs */
    Value **out; /* NULL entries: outputs named "" or left off */
    int nattr;
    Attr *attr;
    Region *region;                /* the Region that contains it */
    const struct Function *callee; /* of an ai.braid:Invoke; else NULL */
};

struct Region {
    const char *name;
    Node *owner;    /* NULL for the top */
    Region *parent; /* lexically enclosing region, NULL for the top */
    int depth;      /* 0 at the top */
    int nparam, nnode, nresult;
    Value **param;
    Node **node;               /* topological order */
    Value **result;            /* may be params, outer values or constants, and may repeat */
    const char **result_name;  /* declared output names */
    const VType **result_type; /* declared types, entries may be NULL */
};

/* A model-local function that some node Invokes. Its Region has no parent and uses no values from
 * outside except its parameters. */
typedef struct Function {
    const char *domain, *name;
    Region *region;
    int group;      /* equal for functions that can call each other, directly or not */
    bool recursive; /* can call itself, directly or not */
    int index;      /* in Graph.function */
} Function;

typedef struct Graph {
    Arena *arena;
    Diag *diag;
    Region *top; /* params: graph inputs that have no initializer */
    const char *name;
    int opset; /* of the default domain, as in the file */
    int ir_version;
    int nvalue; /* number of Values: ids are below it */
    /* State: result carry_output[i] of top is its parameter carry_input[i] of the next run. */
    int ncarry, *carry_input, *carry_output;
    int nfunction;
    Function **function; /* functions that are Invoked */
} Graph;

/* Reads the file `path`. External data must lie in the file's own folder. Raises ST_MODEL,
 * ST_UNSUPPORTED or ST_IO on d. All memory is from arena a. */
Graph *graph_import_file(Arena *a, Diag *d, const char *path);
/* The same for a file's bytes in memory, which `path` only names: the file need not exist. NULL: it
 * has no name, and external data is not allowed. */
Graph *graph_import_memory(Arena *a, Diag *d, const void *bytes, size_t n, const char *path);

/* Names the model's state: each carry output is the next run's carry input. If there are scan
 * inputs, also wraps the top region in a Loop: each scan input gets one more axis, over which the
 * loop iterates with that state. */
typedef struct FoldSpec {
    int nscan, ncarry;
    const char **scan_input;
    const int *scan_axis;
    const char **carry_input, **carry_output;
} FoldSpec;
void graph_fold(Graph *g, const FoldSpec *spec);

/* The shape of an input as the caller declares it, in addition to the file. */
typedef struct InputShape {
    const char *name;
    int32_t rank;
    const int64_t *dim; /* rank entries; -1: any size */
} InputShape;
/* Merges s into the input's declared type. ST_USAGE: there is no such input, it is not a tensor or
 * an optional tensor, or the file declares another shape. */
void graph_declare_input(Graph *g, const InputShape *s);
/* The tensor type that t is, or that optional t holds, if its rank is not declared; else NULL. */
const VType *graph_open_type(const VType *t);
/* Declares the rank of each input that the operators allow only one rank. With leave_lists, inputs
 * whose only rank is 1 stay undeclared. */
void graph_settle_ranks(Graph *g, bool leave_lists);
/* The inputs without a declared rank, and at most `most` combinations of ranks that they can have.
 * The operators decide; declared types of inner values count too, unless they contradict. */
#define OPEN_RANK_MAX 8 /* no higher ranks are tried */
typedef struct OpenRanks {
    int n;          /* number of such inputs */
    int *input;     /* their indices among the graph's inputs */
    int ncombo;     /* number of combinations */
    int8_t **combo; /* combo[k][i] is the rank of input[i] */
    bool more;      /* there are more combinations, or too many to search */
} OpenRanks;
OpenRanks graph_open_ranks(Graph *g, int most);

/* From now on, dimensions of inputs with one name need not have equal sizes. */
void graph_ignore_dim_names(Graph *g);

const Attr *node_attr(const Node *n, const char *name); /* NULL: absent */

/* For code that makes new nodes. */
Value *graph_value(Graph *g, Region *r, const char *name);
Value *graph_const(Graph *g, Region *r, DType t, int rank, const int64_t *dim, const void *data);
/* A node of the default domain, with new output values. It is not put into r's list. */
Node *graph_node(Graph *g, Region *r, const char *op, const char *path, int nin, Value **in,
                 int nout, int nattr, Attr *attr);

#endif
