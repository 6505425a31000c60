/* graph.h: the Graph, what an ONNX file becomes.
 *
 * SSA. A Region is a list of parameters, nodes in topological order and results; a Node may own
 * Regions (Loop, If, Scan, SequenceMap), whose nodes may use values of every enclosing Region. All
 * names are resolved to Value pointers at import (an inner name shadows an outer one); opsets are
 * normalized to the newest form; local functions are inlined where they are called as operators,
 * and are Functions where ai.braid:Invoke calls them; Constant nodes are Values with data.
 */
#ifndef BRAID_GRAPH_H
#define BRAID_GRAPH_H

#include "base/base.h"

typedef struct Value Value;
typedef struct Node Node;
typedef struct Region Region;
typedef struct OpRow OpRow;

/* A tensor known at compile time. Row-major, element i at data + i * dtype_size. bool is one byte,
 * 0 or 1. The payload is 64-byte aligned where it was copied; a rank-0 tensor has one element. */
typedef struct Const {
    DType dtype;
    int rank;
    int64_t dim[MAX_RANK];
    int64_t count;    /* product of dims */
    const void *data; /* count * dtype_size(dtype) bytes */
} Const;

/* A declared type. dims: >= 0 known; -1 unknown, with `param` its name, or NULL
 * where there is none or it says nothing ("?", "None"). */
typedef enum { VT_TENSOR, VT_SEQUENCE, VT_OPTIONAL } VKind;
typedef struct VType {
    VKind kind;
    DType dtype;    /* VT_TENSOR; DT_NONE when not declared */
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
    int def_index;     /* which output of def */
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
    const char *path; /* for messages: "loop1/body/add3 (Add)", with the way into subgraphs */
    int nin, nout;
    Value **in;  /* NULL entries: absent optional inputs */
    Value **out; /* NULL entries: outputs named "" or left off */
    int nattr;
    Attr *attr;
    Region *region;                /* the Region it stands in */
    const struct Function *callee; /* ai.braid:Invoke: what it calls; else NULL */
};

struct Region {
    const char *name;
    Node *owner;    /* NULL for the top */
    Region *parent; /* lexically enclosing region, NULL for the top */
    int depth;      /* 0 at the top */
    int nparam, nnode, nresult;
    Value **param;
    Node **node;               /* topological order */
    Value **result;            /* may be a param, an outer value, a constant; repeats are allowed */
    const char **result_name;  /* declared output names */
    const VType **result_type; /* declared types, entries may be NULL */
};

/* A model-local function that some node Invokes: a Region of its own without parent, that sees its
 * parameters only. */
typedef struct Function {
    const char *domain, *name;
    Region *region;
    int group;      /* functions that can reach each other have one number */
    bool recursive; /* can reach itself */
    int index;      /* in Graph.function */
} Function;

typedef struct Graph {
    Arena *arena;
    Diag *diag;
    Region *top; /* params: graph inputs that have no initializer */
    const char *name;
    int opset; /* of the default domain, as in the file */
    int ir_version;
    int nvalue; /* ids given out */
    int nfunction;
    Function **function; /* those that are Invoked */
} Graph;

/* Reads `path`; external data is taken only from the file's own folder. Raises ST_MODEL,
 * ST_UNSUPPORTED or ST_IO on g->diag. All memory is from g->arena. */
Graph *graph_import_file(Arena *a, Diag *d, const char *path);
/* The same for bytes in memory; `dir` is where external data may lie, or NULL to refuse it. */
Graph *graph_import_memory(Arena *a, Diag *d, const void *bytes, size_t n, const char *dir);

/* Wraps the top region in a Loop over one more axis of the inputs in `scan` (name, axis), with
 * state from outputs back to inputs in `carry` (input name, output name): DESIGN section 7. */
typedef struct FoldSpec {
    int nscan, ncarry;
    const char **scan_input;
    const int *scan_axis;
    const char **carry_input, **carry_output;
} FoldSpec;
void graph_fold_loop(Graph *g, const FoldSpec *spec);

/* What the caller says of an input's shape beside what the file declares. */
typedef struct InputShape {
    const char *name;
    int32_t rank;
    const int64_t *dim; /* rank entries; -1: any size */
} InputShape;
/* An input's type becomes what both say. ST_USAGE: there is no such input, it is not a tensor or an
 * optional one, or the file says otherwise. */
void graph_declare_input(Graph *g, const InputShape *s);
/* The tensor that input type t is, or is optionally, when its rank is not declared; else NULL. */
const VType *graph_open_type(const VType *t);
/* Declares the ranks of inputs that leave the operators no choice; leave_lists: but for rank 1. */
void graph_settle_ranks(Graph *g, bool leave_lists);
/* Inputs without a declared rank, and the ranks that they can have together as far as the operators
 * and, where these leave some, the declared types of other values say: at most `most`
 * combinations. */
#define OPEN_RANK_MAX 8 /* the highest rank that is thought of */
typedef struct OpenRanks {
    int n;          /* such inputs */
    int *input;     /* their numbers */
    int ncombo;     /* combinations: n ranks each */
    int8_t **combo; /* that of input[i] is combo[k][i] */
    bool more;      /* there are more, or too many to look for */
} OpenRanks;
OpenRanks graph_open_ranks(Graph *g, int most);

/* A name on more than one dimension of the inputs no longer says that their sizes are equal. */
void graph_ignore_dim_names(Graph *g);

const Attr *node_attr(const Node *n, const char *name); /* NULL when absent */

/* Building blocks, also for passes that write new nodes. */
Value *graph_value(Graph *g, Region *r, const char *name);
Value *graph_const(Graph *g, Region *r, DType t, int rank, const int64_t *dim, const void *data);
Node *graph_node(Graph *g, Region *r, const char *op, const char *path, int nin, Value **in,
                 int nout, int nattr,
                 Attr *attr); /* default domain; out values are created; not linked in */

#endif
