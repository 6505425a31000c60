/* utask.h: the uTask tree: tensors, statements, programs.
 *
 * A Program is a tree of statements over tensors and uniform values (Sym). Tensors are in SSA form:
 * one definition each. Lowering appends one OP per tensor expression; passes then decide which of
 * them are computed into memory and which are substituted into their users.
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
    TK_VIEW,   /* the row-major elements of `base` with other dims (same count and dtype) */
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
    /* a sequence in packed form (codegen/text/extern/seq.inc): rank 1, bytes */
    bool blob;
    /* float32 whose elements all are numbers of this narrower type (scheduler/transform/widen.c);
     * DT_NONE: any */
    DType values;
    int rank;                 /* -1: known only at run time; dims beyond the rank are then 1 */
    Expr *dim[MAX_RANK];      /* int64, always `pure`: loads are bound by LET first */
    Expr *rank_e;             /* rank == -1: the rank, an int64 symbol */
    uint32_t rank_mask;       /* rank == -1: bit r set when rank r can occur */
    Expr **alt[MAX_RANK + 1]; /* rank == -1: dims when the rank is r (NULL: dim[] applies) */
    const char *name, *path;  /* ONNX value name; node path */
    Axis *axis[MAX_RANK];     /* TK_TE */
    Expr *body;               /* TK_TE: of dtype `dtype` */
    int terms;                /* TK_TE: 1 + the terms of an element (tree.c); 0: not known yet */
    /* TK_VIEW; TK_TE: this value is extended in place (see grow); else NULL */
    Tensor *base;
    struct Grow *grow; /* a growing buffer, shared with other values of a loop, or NULL */
    const Const *data; /* TK_CONST */
    Expr *folded;      /* TK_CONST: what lowering computed it from, over axis[]; or NULL */
    /* TK_CONST: how kernels may store it in fewer bits (utask/coded.h); or NULL */
    const struct Coded *coded;
    const struct Fourier *fourier; /* TK_TE: the transform that its body computes; or NULL */
    Expr **elem;                   /* uniform values of all elements in row-major order, or NULL */
    int index;                     /* TK_INPUT */
    Seq *seq;                      /* where it is defined */
    bool owned; /* is a LoopCarry.next, a LoopScan.elem or (part of) a function's result */
    int ret;    /* > 0: it is written where the function's caller wants result ret - 1 */
    /* TK_TE: its elements are those of this loop-carried value, which the loop fills row by row
     * (LoopCarry.rows), from row `row` on; or NULL */
    Tensor *table;
    Expr *row;   /* pure */
    bool placed; /* the host knows its place: static, or a slot of its own */
    bool fused;  /* set by fusion: substituted into every user, without storage */
    void *plan;  /* its storage, set by memory planning */
};

/* ---- statements ------------------------------------------------------------------------------ */
/* Who waits at a BARRIER: all units for all; one unit (Stmt.unit) for all; all for that unit. */
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
    int depth; /* number of enclosing loops */
};

/* A hand-written body: see codegen/text/extern/extern.inc for the calling convention. */
typedef struct ExternRow ExternRow;

typedef struct LoopSym {
    Sym *sym;
    Expr *init, *next;
} LoopSym; /* uniform carried value */
/* A discrete Fourier transform of float32 rows of n elements, along `axis` of x, whose last axis
 * holds real and imaginary parts (or real ones only). */
typedef struct Fourier {
    Tensor *x, *window; /* window: factors of the elements, or NULL */
    int axis;
    int64_t n;
    bool inverse, half; /* half: x is one half of the spectrum of real rows */
    Expr *step;         /* between frames of n elements that are the rows; 0: there are none */
    int site;
} Fourier;

/* A carried value that grows along one axis, in a buffer with spare capacity. Tensor.grow marks the
 * phi and the values between it and next: each begins (front: ends) with the previous one. After
 * the loop the phi is dense. */
typedef struct Grow {
    Tensor *phi;
    int axis;
    bool front; /* new elements come first */
    /* dimensions outside of the axis have the capacity as stride */
    bool spaced;
    bool planned; /* the capacity is `most`, known at compile time */
    int64_t most;
    Expr *first; /* size along the axis when the loop begins */
    /* the most that an iteration adds, known when the loop begins; NULL: the capacity may not
     * suffice */
    Expr *rows;
    /* capacity along the axis; after the loop, the size of phi. NULL: most */
    Sym *room;
    Expr *extent; /* spaced: the axis's extent in memory */
} Grow;
typedef struct LoopCarry { /* tensor carried value */
    Tensor *phi, *init, *next;
    bool inplace; /* next updates part of phi's buffer: Stmt.op.at. It may grow: phi->grow */
    /* in place: each iteration writes some rows, once and for all, before any reads them. They are
     * tensors of their own (Tensor.table), next is empty, and init is NULL: undefined */
    bool rows;
    bool push; /* a sequence that grows in its buffer; the first iteration copies init there */
    /* after the loop phi is made dense if the capacity exceeds its size; this needs a barrier
     * before and after it */
    bool closes;
} LoopCarry;
typedef struct LoopScan { /* elem of each iteration, stacked */
    Tensor *elem, *out;
    Expr *at;  /* position of elem on out's first axis, pure; NULL: the iteration number */
    bool more; /* another LoopScan defines out; the two fill it together */
} LoopScan;
typedef struct JoinSym {
    Sym *sym;
    Expr *arm[2];
} JoinSym;
typedef struct Join {
    Tensor *out, *arm[2]; /* arm NULL: no value, because the arm ends in a fault */
    /* … or because nothing reads it when that arm is taken (scheduler/transform/recluster.c) */
    bool half;
} Join;

/* A recursive function. Its body belongs to the call from outside that starts the recursion, and
 * may use everything that is visible there. So one ONNX function called from two places becomes two
 * Funcs. Arguments that every inner call passes on unchanged are not parameters. */
typedef struct Func {
    int id;
    const char *name;
    Stmt *start; /* the call that it belongs to */
    Seq *body;
    int nsym, narg, nout, nret;
    /* sym[0] if the function runs that many activations at once: dimension 0 of all parameters and
     * results. A caller may split a call into several. Else NULL. */
    Sym *rows;
    Sym **sym;    /* parameters in registers */
    Tensor **arg; /* parameters in memory: TK_PARAM */
    Tensor **out; /* results in memory: TK_TE, TK_CALL, or TK_JOIN of such, owned */
    /* the caller provides memory for out[i], whose size it knows; else the callee allocates it */
    bool *room;
    Expr **ret; /* uniform results, including sizes that only the callee knows */
    int site;   /* fault when the recursion is too deep */
    /* levels of deeper activations inlined in `body` (S_ENTER); the remaining calls are below the
     * last one */
    int inside;
    int64_t frame; /* bytes of an activation's tensors, after memory planning */
    int vars;      /* number of its variables without parameters (scheduler/plan/variables.c) */
    bool parts;    /* units run different statements somewhere in its recursion */
    /* the next activation may reuse an activation's frame without a barrier, because the same unit
     * touches the same places */
    bool lends;
} Func;

/* For loops, branches or calls side by side, each run by a part of the units, which synchronize
 * after them. It is attached to the first of them. */
typedef struct Apart {
    int words; /* int64_t words that pass uniform results to the other units */
    /* place in the arena, and bytes of one of the two copies used in turn; calls allocate on
     * demand */
    int64_t at, bytes;
} Apart;

/* Why units synchronize at a place: two accesses to the same memory, at least one of which writes.
 */
typedef struct Conflict {
    const Tensor *before, *after; /* accessed before and after it; NULL: the reason is another */
    bool wrote, writes;           /* whether that access writes */
} Conflict;

struct Stmt {
    StmtKind kind;
    uint8_t level; /* Level of the units that run it; 0: not scheduled yet */
    /* for a loop, branch or call at a lower level than its surroundings: the first unit that runs
     * it, modulo the number of units */
    uint8_t unit;
    /* … at the same time as the statement before it; for an OP: by other threads of each unit
     * (scheduler/plan/beside.h) */
    bool beside;
    uint8_t meet; /* a BARRIER at team level: Meet */
    bool each;    /* for an OP or EXTERN: every unit computes all of it into memory of its own */
    Apart *apart; /* set on the first of statements side by side, else NULL */
    const char *path;
    union {
        struct {
            Sym *sym;
            Expr *e;
        } let;   /* S_LET: uniform; may LOAD at uniform index */
        struct { /* S_OP: one group: equal domains, in order */
            int n;
            Tensor **t;
            Axis *split; /* axis of t[0] that is split among the units; NULL: unit 0 computes all */
            /* by dimension: compute only elements from this position on, as many as the axis has;
             * the other elements of t[0] keep their carried value (LoopCarry.inplace). NULL
             * entries: all */
            Expr **at;
            int grain; /* elements of the split axis that one unit computes together */
            /* number of positions of the split axis, from `edge` on, that are split among units;
             * the first unit also computes those before, the last unit those after. NULL: all are
             * split */
            Expr *inner;
            int64_t edge;
            /* a further axis of t[0], which `ways` units, those next to each other, share in equal
             * parts where the run has as many for each part of `split`; NULL: there is none */
            Axis *second;
            int ways;
            /* axis of t[0] along which it is computed `rows` positions at a time, between the same
             * ones of its neighbours (scheduler/plan/strips.h); NULL: at once. `follows`: the
             * statement before is the neighbour that comes first */
            Axis *strip;
            int64_t rows;
            bool follows;
            /* where these read windows of their neighbours' positions: which of its own it computes
             * in a strip; NULL: the same ones. `meets`: the first of such neighbours, after whose
             * first strip the units synchronize */
            const struct Band *band;
            bool meets;
            int team; /* threads of a block that compute it beside its neighbours; 0: all */
            struct Kernel *kernel; /* how it is computed (scheduler/kernel/kernel.h) */
            double sums_ns; /* on GPUs, of a unit's sums of products, by the kernel; 0: not known */
        } op;
        struct {
            const ExternRow *row;
            int nin, nparam, nout, nsym;
            Tensor **in;
            Expr **param; /* int64, uniform */
            Tensor **out;
            Sym **sym;    /* int64 results, e.g. a count that out dims use */
            int site;     /* fault when the body reports an error */
            bool barrier; /* all units synchronize between plan and run */
            /* a linearizer: what it walks (stack/structure.h). Its output is a vector in a slot of
             * its own, as long as its symbol says. NULL: a hand-written body */
            struct Structure *structure;
            bool host; /* the host runs it before the kernel begins (scheduler/plan/host.c) */
        } ext;
        struct {
            Expr *cond;
            int site;
        } check; /* S_CHECK: fault unless cond */
        struct {
            /* kernel of the next group; units prefetch its constants before they wait. Or NULL */
            const struct Kernel *ahead;
            Conflict why;
        } barrier;
        struct {
            int below, site;
            /* S_ENTER: the body of an activation follows that is `below` levels deeper than the
             * enclosing function's */
        } enter;
        struct {
            Expr *trips;     /* int64, NULL: unlimited */
            Expr *cond0;     /* bool, NULL: true */
            Expr *cond_next; /* bool, evaluated at the end of the body; NULL: true */
            /* iteration number inside; after the loop, the number of iterations made */
            Sym *iter;
            VEC(LoopSym) syms;
            VEC(LoopCarry) carry;
            VEC(LoopScan) scan;
            Seq *body;
            int cap_site; /* fault when --max-iterations is reached */
            Expr *made;   /* the model's iterations before the current one; NULL: iter */
            /* on entry carried values are copied (LoopCarry.inplace), then all units synchronize */
            bool copies;
            bool barrier;       /* all units synchronize at the end of each iteration */
            bool block_barrier; /* or the threads of each unit do */
            /* the time is inside of one function (scheduler/plan/within.h); or NULL */
            const struct Within *within;
            double step_ns; /* of an iteration there */
            int parts;      /* more than 1: so many times, on a part of a unit's rows each */
            Conflict why;   /* of that barrier */
        } loop;
        struct {
            Expr *cond;
            Seq *arm[2]; /* [0] when cond is true */
            VEC(JoinSym) syms;
            VEC(Join) joins;
        } br;
        struct {
            Func *f;
            Expr **sym; /* pure; lengths of this and the following arrays are those in f */
            Tensor **arg;
            Tensor **out; /* TK_CALL */
            Sym **ret;
            int nfunc; /* functions whose bodies belong to this call; 0: an inner call */
            Func **func;
            /* holds the activations' variables (scheduler/plan/variables.h); NULL: they are on the
             * hardware stack */
            struct Records *records;
        } call;
    };
};

/* Invariants that utask_verify checks (lowering establishes them, passes keep them):
 *  - every LOAD is of a tensor defined earlier in the same Seq or an enclosing one;
 *  - each LoopCarry.next and LoopScan.elem is a TK_TE (or TK_EXTERN blob) defined directly in that
 *    loop's body, and is next or elem only once, so buffers are never shared by accident;
 *  - the same holds for results of functions, in the Seq of the function's body or, below a JOIN
 *    there, in its arms;
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
    /* element type of the tensor or of the sequence's tensors; DT_NONE: unknown */
    DType elem_dtype;
    bool opt_seq; /* VT_OPTIONAL of a sequence: t is a blob */
} Io;

/* The stages of a Program: what holds from a stage on, besides the invariants above. The list of
 * passes (api/compile.c) gives the stage that each pass requires and leaves. */
typedef enum {
    /* an OP is one tensor; fields set by passes are empty, except for the level of what the host
     * runs */
    STAGE_PLAIN,
    /* an OP is a group whose members read each other only at their own position; in-place updates
     * and replicated statements are marked */
    STAGE_GROUPED,
    STAGE_LEVELLED, /* statements have their level, unit and beside */
    STAGE_SHARED,   /* which unit computes which part of a group is decided: op.split */
    STAGE_CHOSEN,   /* groups have their kernels */
    STAGE_PLACED,   /* every tensor with storage has it; functions have their frames */
    STAGE_SYNCED,   /* barriers are placed where units must synchronize */
    STAGE_COMPLETE, /* everything that code generation prints is in the tree */
    STAGE_COUNT
} Stage;

typedef struct Program {
    Cx *cx;
    const char *name;
    Stage stage;
    int nin, nout;
    Io *in, *out;
    Seq *top;
    struct MemPlan *mem;      /* set by memory planning */
    struct OnChip *onchip;    /* use of a block's on-chip memory (scheduler/plan/onchip.h) */
    struct PackedSet *packed; /* constants as kernels read them (scheduler/kernel/packed.h) */
    struct Weights *weights;  /* constants beside the program (scheduler/plan/weights.h) */
    /* launches between which the host computes products (scheduler/plan/phases.h); NULL: one
     * launch */
    struct PhasePlan *phases;
    /* statements that the host runs before the kernel begins, set by pass_host; NULL: none */
    StmtVec *ahead;
    /* what a profile measures (scheduler/plan/probes.h); NULL: there is none */
    struct Probes *probes;
    /* what passes base decisions on (scheduler/cost/decide.h); NULL: the oracle's plain tree */
    struct Schedule *schedule;
    int nfused;      /* number of tensors that fusion substituted into their users */
    int nfunc;       /* number of recursive functions */
    bool calls_only; /* no group is inlined into the control flow (scheduler/kernel/kernel.h) */
    bool draws;      /* results depend on random numbers */
    /* State: output carry_output[i] of one run is input carry_input[i] of the next. */
    int ncarry;
    const int *carry_input, *carry_output;
    const char *torch_name; /* "NAMESPACE::NAME" of PyTorch's operator, or NULL */
} Program;

/* Checks the invariants; a violation is our fault (die). */
void utask_verify(const Program *p);
/* The tree as text: one statement a line, indented; stable across runs. utask/print.h has more. */
void utask_print(Sb *s, const Program *p);

Tensor *tensor_new(Cx *c, TensorKind k, DType t, int rank, Expr *const *dim);
/* A tensor in q with the dtype and name of `like`. A TK_TE has its axes but no body yet. */
Tensor *tensor_like(Cx *c, TensorKind k, const Tensor *like, int rank, Expr *const *dim, Seq *q);
/* e with the body of t, a TE, in place of every load of it. */
Expr *expr_inlined(Cx *c, Expr *e, const Tensor *t);
/* e, over the axes of `from`, over those of `to` from number `first` on. */
Expr *expr_over(Cx *c, Expr *e, const Tensor *from, const Tensor *to, int first);
/* The element of t at the position of domain's own axes. */
Expr *load_own(Cx *c, Tensor *t, const Tensor *domain);
Stmt *stmt_new(Cx *c, StmtKind k, const char *path);
Stmt *stmt_op(Cx *c, Tensor *t, const char *path); /* a group of only t */
Seq *seq_new(Cx *c, Seq *parent, Stmt *owner, bool is_loop);
void seq_put_at(Cx *c, Seq *q, int at, Stmt *s); /* s becomes statement number `at` */
/* Statement *at gives way to those of `by`; *at is left at the last one of them. */
void seq_replace(Cx *c, Seq *q, int *at, const StmtVec *by);
Expr *seq_let(Cx *c, Seq *q, Sym *s, Expr *e, const char *path); /* appends s = e; gives s */
Sym *sym_like(Cx *c, const Sym *like, Seq *scope); /* a new one of the same type and bounds */
Expr *tensor_count(Cx *c, const Tensor *t);        /* product of dims */
Expr *tensor_extent(const Tensor *t, int d);       /* extent of dimension d in memory */
/* The row-major position of a load, or of an index, as one int64 expression. */
Expr *flat_of(Cx *c, const Expr *load);
Expr *flat_index_of(Cx *c, const Tensor *t, Expr *const *idx);
/* Makes part r of t's body a tensor of its own in t's Seq, over the axes of t that it uses; *load
 * replaces r. */
Tensor *tensor_term(Cx *c, const Tensor *t, Expr *r, Expr **load);
bool op_is_empty(const Stmt *s);                   /* a group without elements */
bool seq_inside(const Seq *q, const Seq *body);    /* q is body or in it */
bool expr_visible(const Expr *e, const Seq *from); /* every symbol is readable in `from` */
/* Whether `is` holds for e and everything below it, lengths of reductions included; what several
 * expressions share is looked at once. */
bool expr_all(Arena *a, const Expr *e, bool (*is)(const void *user, const Expr *e),
              const void *user);
/* Whether `is` holds for a symbol in e. */
bool any_sym(const Expr *e, bool (*is)(const void *user, const Sym *s), const void *user);
bool expr_uses_sym(const Expr *e, const Sym *s);
/* Whether e uses a carried symbol or the loop's iteration number. */
bool loop_varies(const Stmt *loop, const Expr *e);
/* The narrowest type that is known to hold all of its elements. */
static inline DType tensor_values(const Tensor *t) { return t->values ? t->values : t->dtype; }
/* The number of its dims; MAX_RANK while the rank is known only at run time. */
static inline int tensor_ndim(const Tensor *t) { return t->rank < 0 ? MAX_RANK : t->rank; }
/* The base of a view, or the tensor itself. */
static inline Tensor *tensor_root(const Tensor *t) {
    while (t->kind == TK_VIEW) t = t->base;
    return (Tensor *)(uintptr_t)t;
}
/* Whether the trip count is known when the loop begins. */
static inline bool loop_counted(const Stmt *s) {
    return s->kind == S_LOOP && s->loop.trips && !s->loop.cond0 && !s->loop.cond_next &&
           !s->loop.made;
}
bool same_dims(const Tensor *a, const Tensor *b); /* and rank */
/* e is the same in all iterations, and known before the loop. */
static inline bool loop_keeps(const Stmt *loop, const Expr *e) {
    return !loop_varies(loop, e) && expr_visible(e, loop->loop.body->parent);
}
/* t, or what it views, is made before the loop. */
bool loop_reads_outside(const Stmt *loop, const Tensor *t);
bool loop_carries(const Stmt *loop, const Tensor *t); /* t is what an iteration begins with */
/* Whether t's dims are the same in all iterations, and known before the loop. */
bool loop_keeps_dims(const Stmt *loop, const Tensor *t);
/* The statement that defines t in t->seq, if it is a group or a branch; else NULL. */
Stmt *tensor_group(const Tensor *t);
Join *tensor_join(const Tensor *t);
/* Whether the load reads t's element at the position of `domain`'s own axes, and both have equal
 * dims. */
bool load_is_own(const Expr *load, const Tensor *t, const Tensor *domain);
/* The tensor's element at idx, with virtual definitions (elem, constant data, cheap TE bodies)
 * substituted; remaining loads are of tensors with storage. */
Expr *tensor_at(Cx *c, Tensor *t, Expr **idx);

/* ---- interpreter (utask/interp.c) ------------------------------------------------------------ */
/* A tensor value at run time. Sequences: kind VT_SEQUENCE, items; empty optional: present false. */
typedef struct RtValue {
    VKind kind;
    bool present; /* false: an optional without element, or absent */
    DType dtype;
    int rank;
    int64_t dim[MAX_RANK];
    void *data; /* row-major; blob bytes for sequences */
    size_t bytes;
} RtValue;

/* Default limit on nested activations of recursive functions. */
#define STACK_DEPTH 10000
typedef struct InterpConfig {
    int64_t max_iterations;
    int64_t stack_depth; /* 0: STACK_DEPTH */
    uint64_t seed;       /* SEED (utask/expr.h) */
    int64_t max_memory;  /* limit on bytes of values; 0: none */
    /* NULL, or called with the shape of each tensor of known rank that a statement has computed */
    void (*seen)(void *user, const Tensor *t, int rank, const int64_t *dim);
    void *user;
    /* Not 0: the run ends with ST_CANCELLED. NULL: never. */
    const _Atomic int *cancelled;
} InterpConfig;

/* A Program prepared for running. Immutable: several threads may use one Interp at once. p must
 * outlive it. NULL: out of memory. */
typedef struct Interp Interp;
Interp *interp_new(const Program *p);
void interp_free(Interp *it); /* NULL is fine */
/* Runs it on `in` (borrowed). On ST_OK fills out[]; the data is malloc'd, the caller frees it. On a
 * fault returns its status, with the message in d->message and out unchanged. */
Status interp_run(const Interp *it, const InterpConfig *cfg, const RtValue *in, RtValue *out,
                  Diag *d);
/* Evaluates one TK_TE tensor with static dims that loads only constants. The result is in the
 * arena. */
const Const *interp_fold(Cx *c, const Tensor *t);
/* What the body of a TK_TE loads. */
typedef struct Sources {
    int loads;                   /* distinct ones */
    bool constant, known, codes; /* all of constants; … or of known elements; 8 bits and fewer */
    int64_t elements;            /* of the constants */
} Sources;
Sources tensor_sources(Cx *c, const Tensor *t);
/* Its value if it is made of constants alone, and is not much larger than they; else NULL. */
const Const *tensor_fold(Cx *c, const Tensor *t, const Sources *s);
/* Runs an extern on constant inputs and params; false when it faults. */
bool interp_fold_extern(Cx *c, const Stmt *s, const Const **out, int64_t *sym);

#endif
