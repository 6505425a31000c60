/* utask.h: the uTask tree: tensors, statements, programs.
 *
 * A Program is a tree of statements over tensors and uniform values (Sym). Tensors are SSA: one
 * definition each. Lowering appends one OP per tensor expression; passes then decide which of them
 * are computed into memory and which are substituted into their users.
 */
#ifndef BRAID_UTASK_H
#define BRAID_UTASK_H

#include "frontend/graph.h"
#include "utask/expr.h"
#include "utask/level.h"

typedef struct Stmt Stmt;
typedef struct Seq Seq;

typedef enum {
    TK_INPUT,  /* graph input number `index` */
    TK_CONST,  /* data known at compile time */
    TK_TE,     /* body over axes, computed by an OP */
    TK_VIEW,   /* the row-major elements of `base` under other dims (same count, same dtype) */
    TK_PHI,    /* loop-carried: the current value inside the loop, the last one after it */
    TK_JOIN,   /* result of a Branch */
    TK_SCAN,   /* stacked scan output of a Loop, dims [trips, …] */
    TK_EXTERN, /* written by a hand-written body */
    TK_PARAM,  /* a function's parameter in memory */
    TK_CALL,   /* a result of a call */
    TK_COUNT
} TensorKind;

struct Tensor {
    int id;
    TensorKind kind;
    DType dtype;
    bool blob; /* a sequence in its packed form (codegen/text/extern/seq.inc); rank 1, bytes */
    int rank;  /* -1: known at run time only; then dims beyond the rank are 1 */
    Expr *dim[MAX_RANK]; /* int64, pure or loads of uniform values bound by LET: always `pure` */
    Expr *rank_e;        /* rank == -1: the rank, an int64 symbol */
    uint32_t rank_mask;  /* rank == -1: bit r set when rank r can occur */
    Expr **alt[MAX_RANK + 1]; /* rank == -1: dims when the rank is r (NULL: dim[] applies) */
    const char *name, *path;  /* ONNX value name; node path */
    Axis *axis[MAX_RANK];     /* TK_TE */
    Expr *body;               /* TK_TE: of dtype `dtype` */
    int terms;    /* TK_TE: 1 + what tree.c finds an element to take; 0: not yet known */
    Tensor *base; /* TK_VIEW; TK_TE: in place behind (or before) this value, see grow; else NULL */
    struct Grow *grow; /* a buffer that grows, shared with other values of a loop, or NULL */
    const Const *data; /* TK_CONST */
    Expr **elem;       /* uniform values of all elements in row-major order, or NULL */
    int index;         /* TK_INPUT */
    Seq *seq;          /* where it is defined */
    bool owned;        /* is a LoopCarry.next, a LoopScan.elem or (part of) a function's result */
    int ret;           /* > 0: goes where the function's caller wants result ret - 1 */
    bool placed;       /* the host knows where it lies: static, or in a slot of its own */
    bool fused;        /* set by fusion: substituted into every user, has no storage */
    void *plan;        /* storage, owned by memory planning and code generation */
};

/* ---- statements ------------------------------------------------------------------------------ */
/* Who waits for whom at a BARRIER: all for all; one unit (Stmt.unit) for all; all for it. */
typedef enum { MEET_ALL, MEET_GATHER, MEET_RELEASE } Meet;

typedef enum {
    S_LET,
    S_OP,
    S_EXTERN,
    S_CHECK,
    S_LOOP,
    S_BRANCH,
    S_BARRIER,
    S_CALL,
    S_ENTER,
    S_COUNT
} StmtKind;

typedef VEC(Stmt *) StmtVec;
struct Seq {
    StmtVec s;
    Stmt *owner; /* LOOP, BRANCH or CALL it belongs to, NULL at the top */
    Seq *parent;
    int depth; /* of loops around it */
};

/* A hand-written body: see codegen/text/extern/extern.inc for the calling convention. */
typedef struct ExternRow ExternRow;

typedef struct LoopSym {
    Sym *sym;
    Expr *init, *next;
} LoopSym; /* uniform carried value */
/* A carried value that becomes longer along one axis in a buffer with room for more. Tensor.grow
 * marks the phi and the values that lead from it to the next one: each begins (front: ends) with
 * the one before. After the loop the phi is dense. */
typedef struct Grow {
    Tensor *phi;
    int axis;
    bool front;   /* what is new comes first */
    bool spaced;  /* there are dimensions outside of the axis, and they are as far apart as there is
                     room */
    bool planned; /* the room is `most`, known at compile time */
    int64_t most;
    Expr *first; /* size along the axis when the loop begins */
    Expr *rows;  /* what an iteration adds at most, known then; NULL: the room may not suffice */
    Sym *room;   /* size along the axis that the buffer can take; after the loop, that of phi. NULL:
                    most */
    Expr *extent; /* spaced: of the axis in memory */
} Grow;
typedef struct LoopCarry { /* tensor carried value */
    Tensor *phi, *init, *next;
    bool inplace; /* next is phi's buffer, changed in part: Stmt.op.at. It may grow: phi->grow */
    bool push;    /* a sequence that grows in its buffer; the first step copies init there */
    bool closes;  /* phi is made dense behind the loop where there is more room than it needs:
                     between two barriers of all units that share it */
} LoopCarry;
typedef struct LoopScan { /* elem per trip, stacked */
    Tensor *elem, *out;
    Expr *at;  /* place of elem on out's first axis, pure; NULL: the iteration number */
    bool more; /* another LoopScan has defined out: the two fill it together */
} LoopScan;
typedef struct JoinSym {
    Sym *sym;
    Expr *arm[2];
} JoinSym;
typedef struct Join {
    Tensor *out, *arm[2]; /* arm NULL: no value, for the arm ends in a fault */
    bool half;            /* ... or because nobody reads it where that arm was taken
                             (scheduler/transform/recluster.c) */
} Join;

/* A recursive function. Its body hangs on the call from outside that starts the recursion, as if it
 * stood there: it may use everything that is visible there. So one ONNX function called from two
 * places is two Funcs. What every inner call passes on unchanged is not among the parameters. */
typedef struct Func {
    int id;
    const char *name;
    Stmt *start; /* the call that it hangs on */
    Seq *body;
    int nsym, narg, nout, nret;
    Sym *rows; /* sym[0], when the function runs that many activations at once: dimension 0 of all
                  parameters and results; a caller may cut a call in several */
    Sym **sym; /* parameters in registers */
    Tensor **arg; /* parameters in memory: TK_PARAM */
    Tensor **out; /* results in memory: TK_TE, TK_CALL, or TK_JOIN of such, owned */
    bool *room; /* the caller gives memory for out[i], whose size it knows; else the callee takes it
                 */
    Expr **ret; /* uniform results; sizes that only the callee knows are among them */
    int site;   /* fault when the recursion is too deep */
    int inside; /* so many levels of deeper activations have their bodies in `body`, in the place of
                   calls (S_ENTER): the calls that are left are below the last one */
    int64_t frame; /* bytes of an activation's tensors, after memory planning */
    int vars;      /* its variables, parameters apart (scheduler/plan/variables.c) */
    bool parts;    /* units part somewhere in the recursion that it belongs to */
    bool lends; /* an activation's frame is left to the next one: it needs no barrier, so the same
                   unit touches the same places in it */
} Func;

/* Loops, branches or calls beside each other, each run by fewer units than there are around: behind
 * them those meet. On the first of them. */
typedef struct Apart {
    int words;         /* int64_t: through which the others learn what those who ran them found */
    int64_t at, bytes; /* where in the arena, and bytes of one of the two turns; calls take theirs
                          when they need them */
} Apart;

struct Stmt {
    StmtKind kind;
    uint8_t level; /* of units that run it (Level); 0: not scheduled yet */
    uint8_t unit;  /* a loop, branch or call at a lower level than what is around: the first unit
                      that runs it, modulo  their number */
    bool beside;   /* … at the same time as the statement in front of it */
    uint8_t meet;  /* a BARRIER at team level: Meet */
    bool each;     /* an OP or EXTERN: every unit computes all of it, into memory of its own */
    Apart *apart;  /* it is the first of such, or NULL */
    const char *path;
    union {
        struct {
            Sym *sym;
            Expr *e;
        } let;   /* S_LET: uniform; may LOAD at uniform index */
        struct { /* S_OP: one group: equal domains, in order */
            int n;
            Tensor **t;
            Axis *split; /* of t[0]: shared among the units; NULL: unit 0 computes all */
            Expr **at; /* by dimension: only elements from this position on are computed, as many as
                          the axis is long; the others of t[0] keep their carried value
                          (LoopCarry.inplace); NULL entries: all */
            int grain; /* elements of the split axis that stay together */
            Expr *inner; /* this many positions of the split axis, from `edge` on, are shared; those
                            in front of and behind them are the first and the last unit's. NULL: all
                            are shared */
            int64_t edge;
            struct Kernel *kernel; /* how it is computed (scheduler/kernel/kernel.h) */
        } op;
        struct {
            const ExternRow *row;
            int nin, nparam, nout, nsym;
            Tensor **in;
            Expr **param; /* int64, uniform */
            Tensor **out;
            Sym **sym;    /* int64 results, e.g. a count that out dims use */
            int site;     /* fault when the body reports an error */
            bool barrier; /* all units meet between its plan and its run */
        } ext;
        struct {
            Expr *cond;
            int site;
        } check; /* S_CHECK: fault unless cond */
        struct {
            const struct Kernel *ahead; /* of the group behind it, whose constants units fetch
                                           before they wait, or NULL */
        } barrier;
        struct {
            int below, site;
        } enter; /* S_ENTER: what follows is the body of an activation that is so
                    much deeper than the one of the function around it */
        struct {
            Expr *trips;     /* int64, NULL: unlimited */
            Expr *cond0;     /* bool, NULL: true */
            Expr *cond_next; /* bool, evaluated at the end of the body; NULL: true */
            Sym *iter;       /* iteration number inside; after the loop the number of trips made */
            VEC(LoopSym) syms;
            VEC(LoopCarry) carry;
            VEC(LoopScan) scan;
            Seq *body;
            int cap_site; /* fault when --max-iterations is reached */
            Expr *made;   /* iterations of the model before the present one; NULL: iter */
            bool copies;  /* on entry carried values are copied (LoopCarry.inplace), then all units
                             meet */
            bool barrier; /* all units meet at the end of each iteration */
            bool block_barrier; /* or the threads of each unit do */
        } loop;
        struct {
            Expr *cond;
            Seq *arm[2]; /* [0] when cond is true */
            VEC(JoinSym) syms;
            VEC(Join) joins;
        } br;
        struct {
            Func *f;
            Expr **sym; /* pure; these and the following have the lengths that f says */
            Tensor **arg;
            Tensor **out; /* TK_CALL */
            Sym **ret;
            int nfunc; /* functions whose bodies hang here; 0: a call from inside the recursion */
            Func **func;
            struct Records *records; /* of their activations (scheduler/plan/variables.h); NULL: the
                                        machine's stack has them */
        } call;
    };
};

/* Invariants that utask_verify checks (lowering establishes them, passes keep them):
 *  - every LOAD is of a tensor defined earlier in the same Seq or an enclosing one;
 *  - a LoopCarry.next and a LoopScan.elem is a TK_TE (or TK_EXTERN blob) defined directly in that
 *    loop's body, and occurs as next or elem once: buffers are never shared by accident;
 *  - results of functions are made likewise, in the Seq of the function's body or, below a JOIN of
 * it, in the arms;
 *  - dims and all uniform expressions are pure except S_LET, conditions and cond_next, whose loads
 *    have uniform indices;
 *  - axes are bound: an AXIS occurs only below the tensor or REDUCE that owns it. */

/* A graph input or output as the caller sees it. */
typedef struct Io {
    const char *name;
    VKind kind;
    const VType *type; /* declared type, or NULL */
    Tensor *t;         /* tensor; or the blob of a sequence */
    Expr *has;         /* optional: bool; NULL: not an optional */
    DType
        elem_dtype; /* element type of the tensor, or of the sequence's tensors; DT_NONE unknown */
    bool opt_seq;   /* VT_OPTIONAL of a sequence: t is a blob */
} Io;

/* How far a Program is: what is true of it from a stage on, beside the invariants above. The list
 * of passes (api/compile.c) says which one needs and leaves which. */
typedef enum {
    STAGE_PLAIN,    /* an OP is one tensor; all fields that passes set are empty, but for the level
                       of what is to run on the host */
    STAGE_GROUPED,  /* an OP is a group: members read each other at their own position only; what
                       changes in place is marked, and what every unit computes for itself */
    STAGE_LEVELLED, /* statements have their level, unit and beside */
    STAGE_SHARED,   /* it is settled which unit computes what of a group: op.split */
    STAGE_CHOSEN,   /* groups have their kernels */
    STAGE_PLACED,   /* every tensor with storage has it; functions have their frames */
    STAGE_SYNCED,   /* barriers stand where units must meet */
    STAGE_COMPLETE, /* all that code generation prints is in the tree */
    STAGE_COUNT
} Stage;

typedef struct Program {
    Cx *cx;
    const char *name;
    Stage stage;
    int nin, nout;
    Io *in, *out;
    Seq *top;
    struct MemPlan *mem;       /* after memory planning */
    struct OnChip *onchip;     /* of a block's own memory (scheduler/plan/onchip.h) */
    struct PackedSet *packed;  /* constants as kernels read them (scheduler/kernel/packed.h) */
    struct PhasePlan *phases;  /* launches between which the host does products
                                  (scheduler/plan/phases.h); NULL: the kernel is launched once */
    struct Schedule *schedule; /* what passes decide by (scheduler/cost/decide.h); NULL: the
                                  oracle's plain tree */
    int nfused;                /* tensors that fusion substituted into their users */
    int nfunc;                 /* recursive functions */
    bool draws;                /* results depend on random numbers */
} Program;

/* Checks the invariants; a violation is our fault (die). */
void utask_verify(const Program *p);
/* The tree as text: one statement a line, indented; stable across runs. */
void utask_print(Sb *s, const Program *p);

Tensor *tensor_new(Cx *c, TensorKind k, DType t, int rank, Expr *const *dim);
/* One for the elements of `like`, and named like it, in q. A TK_TE has its axes, and no body yet.
 */
Tensor *tensor_like(Cx *c, TensorKind k, const Tensor *like, int rank, Expr *const *dim, Seq *q);
Expr *load_own(Cx *c, Tensor *t,
               const Tensor *domain); /* t's element at the position of domain's own axes */
Stmt *stmt_new(Cx *c, StmtKind k, const char *path);
Stmt *stmt_op(Cx *c, Tensor *t, const char *path); /* a group of t alone */
Seq *seq_new(Cx *c, Seq *parent, Stmt *owner, bool is_loop);
void seq_put_at(Cx *c, Seq *q, int at, Stmt *s); /* s becomes statement number `at` */
Expr *tensor_count(Cx *c, const Tensor *t);      /* product of dims */
Expr *tensor_extent(const Tensor *t, int d);     /* of dimension d in memory */
/* Row-major position of a load, of an index, as one int64 expression. */
Expr *flat_of(Cx *c, const Expr *load);
Expr *flat_index_of(Cx *c, const Tensor *t, Expr *const *idx);
/* Part r of t's body as a tensor of its own in t's Seq, over those axes of t that it uses; *load is
 * what takes r's place. */
Tensor *tensor_term(Cx *c, const Tensor *t, Expr *r, Expr **load);
bool op_is_empty(const Stmt *s);                   /* a group over no elements */
bool seq_inside(const Seq *q, const Seq *body);    /* q is body or in it */
bool expr_visible(const Expr *e, const Seq *from); /* every symbol is readable in `from` */
bool loop_varies(const Stmt *loop,
                 const Expr *e); /* uses a carried symbol or the counter of the loop */
/* Dims that it has, or may have. */
static inline int tensor_ndim(const Tensor *t) { return t->rank < 0 ? MAX_RANK : t->rank; }
/* What a view is a view of; another tensor itself. */
static inline Tensor *tensor_root(const Tensor *t) {
    while (t->kind == TK_VIEW) t = t->base;
    return (Tensor *)(uintptr_t)t;
}
/* It makes a number of iterations that is known when it begins. */
static inline bool loop_counted(const Stmt *s) {
    return s->kind == S_LOOP && s->loop.trips && !s->loop.cond0 && !s->loop.cond_next &&
           !s->loop.made;
}
bool same_dims(const Tensor *a, const Tensor *b); /* and rank */
/* Its dims are the same in all iterations, and known in front of the loop. */
bool loop_keeps_dims(const Stmt *loop, const Tensor *t);
/* What defines t in t->seq: the group that it is a member of, the branch's result that it is. NULL:
 * something else. */
Stmt *tensor_group(const Tensor *t);
Join *tensor_join(const Tensor *t);
/* The load reads t's element at the position of `domain`'s own axes; the two have equal dims. */
bool load_is_own(const Expr *load, const Tensor *t, const Tensor *domain);
/* The tensor's element at idx, with virtual definitions (elem, const data, cheap TE bodies)
 * substituted: loads that remain are of tensors with storage. */
Expr *tensor_at(Cx *c, Tensor *t, Expr **idx);

/* ---- interpreter (utask/interp.c) ------------------------------------------------------------ */
/* A tensor value at run time. Sequences: kind VT_SEQUENCE, items; empty optional: present false. */
typedef struct RtValue {
    VKind kind;
    bool present; /* false: optional without element (or absent) */
    DType dtype;
    int rank;
    int64_t dim[MAX_RANK];
    void *data; /* row-major; blob bytes for sequences */
    size_t bytes;
} RtValue;

#define STACK_DEPTH                                                                                \
    10000 /* activations of recursive functions inside each other, unless told otherwise */
typedef struct InterpConfig {
    int64_t max_iterations;
    int64_t stack_depth; /* 0: STACK_DEPTH */
    uint64_t seed;       /* SEED (utask/expr.h) */
    int64_t max_memory;  /* bytes of values; 0: no limit */
} InterpConfig;

/* A Program prepared for running. Immutable: several threads may run one Interp at once; p must
 * outlive it. NULL: out of memory. */
typedef struct Interp Interp;
Interp *interp_new(const Program *p);
void interp_free(Interp *it); /* NULL is fine */
/* Runs it on `in` (borrowed). On ST_OK fills out[]; the data is malloc'd, the caller frees it. On a
 * fault: status, message in d->message; out untouched. */
Status interp_run(const Interp *it, const InterpConfig *cfg, const RtValue *in, RtValue *out,
                  Diag *d);
/* Evaluates one TK_TE tensor whose loads are all of constants; static dims. Result in arena. */
const Const *interp_fold(Cx *c, const Tensor *t);
/* Runs an extern on constant inputs and params; NULL when it cannot (it faulted). */
bool interp_fold_extern(Cx *c, const Stmt *s, const Const **out, int64_t *sym);

#endif
