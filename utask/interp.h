/* interp.h: the interpreter's internals.
 *
 * A tensor body, or a few uniform expressions, is compiled once to a Code: register instructions
 * that work on up to LANES output elements at a time. What a register holds is known only at run
 * time: one value for all lanes (RK_UNI), an arithmetic progression (RK_LIN) or an array (RK_VEC).
 * So index arithmetic costs one scalar operation per chunk wherever the lanes run along a row, and
 * contiguous loads are pointers into the tensor.
 */
#ifndef BRAID_INTERP_H
#define BRAID_INTERP_H

#include <stdatomic.h>

#include "utask/extern.h"
#include "utask/utask.h"

#if BRAID_TINY
enum { LANES = 8 };
#else
enum { LANES = 256 };
#endif

/* How the lanes of a dtype are stored: float (also 16-bit floats, rounded after each operation),
 * double, int64 (wrapped to the dtype), or int32 0 or 1 for bool. */
typedef enum { CL_F, CL_D, CL_I, CL_B } LaneClass;
static inline LaneClass lane_class(DType t) {
    switch (t) {
    case DT_F32:
    case DT_F16:
    case DT_BF16: return CL_F;
    case DT_F64: return CL_D;
    case DT_BOOL: return CL_B;
    default: return CL_I;
    }
}
static inline size_t lane_size(LaneClass c) { return c == CL_D || c == CL_I ? 8 : 4; }

/* ---- lane kernels (interp_lanes.c) ----------------------------------------------------------- */
/* They work on n lanes; d never overlaps an operand; an operand's stride is 1, or 0 when all lanes
 * share one value. */
/* A scalar operator on operands of type t; unary: the operand twice. */
void lanes_scalar(int op, DType t, int n, void *d, const void *a, int sa, const void *b, int sb);
void lanes_select(LaneClass c, int n, void *d, const int32_t *m, const void *a, int sa,
                  const void *b, int sb);
void lanes_cast(DType to, DType from, int n, void *d, const void *a);
void lanes_bitcast(DType to, DType from, int n, void *d, const void *a);
void lanes_round(DType t, int n, float *d); /* to float16 or bfloat16; nothing for float32 */
/* Load elements base + step * l of packed data; load elements base + idx[l], where count >= 0 makes
 * those outside [0, count) zero; store to out[0..n). */
void lanes_load(DType t, int n, void *d, const void *data, int64_t base, int64_t step);
void lanes_gather(DType t, int n, void *d, const void *data, int64_t base, const int64_t *idx,
                  int64_t count);
void lanes_store(DType t, int n, void *out, const void *a, int sa);
/* One step of a reduction: acc[l] = acc[l] op v[l] (times w[l] when w). For ARG…, idx[l] becomes k
 * when v[l] is taken. `fold`: all n values go in order into the single accumulator at acc, with k,
 * k + 1, … */
typedef struct AccStep {
    ReduceKind kind;
    LaneClass cls; /* of v and acc */
    DType t;
    void *acc;
    int64_t *idx;
    const void *v, *w;
    int sv, sw;
    int64_t k;
} AccStep;
void lanes_acc(const AccStep *s, int n, bool fold);
void lanes_acc_init(ReduceKind k, DType t, int n, void *acc, int64_t *idx);

/* ---- code (interp_expr.c) -------------------------------------------------------------------- */
typedef enum { RK_UNI, RK_LIN, RK_VEC } RegKind;
typedef union RegVal {
    int64_t i;
    double d;
    float f;
    int32_t b;
} RegVal;
RegVal lane_of(DType t, const Expr *konst); /* as lanes of type t (scalar.c) */
typedef struct Reg {
    uint8_t k;     /* RegKind */
    uint8_t c;     /* LaneClass; never changes */
    bool mm;       /* lo, hi bound p[0..n) (int64 only) */
    RegVal v;      /* UNI: the value. LIN, and VEC of int64: added to each lane */
    int64_t step;  /* LIN: lane l is v.i + step * l */
    const void *p; /* VEC */
    int64_t lo, hi;
} Reg;

typedef struct Inst Inst;
typedef VEC(Inst) Block;

/* Instructions besides the operators of expr.h. */
enum {
    I_NORM = E_COUNT, /* dst = a; a bool whose lanes are all equal becomes uniform */
    I_COND,           /* runs block unless a is uniform false; then dst (if >= 0) is 0 */
    I_REDUCE
};

typedef struct RedAxis {
    int axis, extent; /* registers; axis -1: not used */
    Block block;
    /* outer registers that the block uses, except constants and symbols */
    int ncap, *cap;
} RedAxis;
enum { RED_MEMO = 8 };
typedef struct Red {
    ReduceKind kind;
    DType t; /* of the values */
    int naxis;
    RedAxis *ax;   /* outermost first */
    int val, val2; /* val2 >= 0: the value is a product */
    int acc;       /* ARG…: register of the extreme value */
    int index;     /* of this reduction in its Code */
} Red;

typedef struct Told { /* registers of the values in a guard's message */
    int n, reg[SAID_MAX];
} Told;

struct Inst {
    uint8_t op, dt, sdt; /* sdt: dtype of operand a */
    int dst, a, b, c, m; /* -1: none; m: lane mask of a GUARD */
    int imm;             /* LOAD: tensor slot; GUARD: site */
    union {
        Block *block; /* I_COND */
        Red *red;     /* I_REDUCE */
        Told *told;   /* GUARD; NULL: its message has no values */
    };
};

typedef struct CodeSym {
    int reg, sym;
} CodeSym;
typedef struct CodeIndim {
    int reg, input, axis; /* input -1: the limit on iterations */
} CodeIndim;
typedef struct Code {
    /* d: dims and other uniform results; u: other uniform code; l: code run for each chunk */
    Block d, u, l;
    int nreg, nred;
    Reg *init; /* nreg initial registers, with constants set */
    VEC(CodeSym) sym;
    VEC(CodeIndim) indim;
    VEC(const Tensor *) slot; /* tensors loaded */
    int nout;
    int *out;                 /* uniform results */
    int rank, axis[MAX_RANK]; /* of a tensor body: out[0..rank) are its dims; axis -1: not used */
    int result;               /* register; -1: only uniform results */
    DType t;
} Code;

/* Compiles uniform results e[0..n) (NULL entries give int64 0) and, when t is not NULL, the body of
 * tensor t, whose dims are the results before these. `tmp` is not needed afterwards. */
Code *code_compile(Arena *a, Arena *tmp, const Tensor *t, int n, Expr *const *e);

/* ---- the prepared program (interp_prepare.c) ------------------------------------------------- */
typedef struct Step Step;
typedef struct StepSeq {
    int n;
    Step *p;
    /* tensors defined here; released when the enclosing loop or branch ends */
    VEC(const Tensor *) own;
} StepSeq;

struct Step {
    const Stmt *s;
    Code *pre, *post; /* uniform values before and after the statement's work */
    Code **op;        /* S_OP: one for each tensor, NULL for fused ones */
    Code *arm[2];     /* S_BRANCH: join symbols */
    StepSeq body[2];
    VEC(const Tensor *) free; /* no longer needed after this statement */
};

/* A recursive function. */
typedef struct IFunc {
    const Func *f;
    StepSeq body;
    Code *ret;
    VEC(const Tensor *) t; /* tensors that its body defines: an activation's own values */
    VEC(const Sym *) s;
    /* activations of its recursion may be equal: one makes several calls, and only numbers are
     * passed down */
    bool repeats;
} IFunc;

struct Interp {
    Arena *a;
    const Program *p;
    StepSeq top;
    Code *out;
    int nsym, ntensor;
    IFunc **func; /* by id */
    int nesting;  /* the deepest nesting of Seqs in a function */
};

typedef struct Memo Memo; /* interp_memo.c */

/* ---- execution (interp_exec.c) --------------------------------------------------------------- */
typedef struct Buf {
    int refs;
    DType dtype;
    int64_t count;
    void *data;
    bool borrowed;
    int64_t *taken; /* where its bytes are counted, or NULL */
} Buf;

/* How deep a recursion went beyond its limit. */
typedef struct Depth {
    int site; /* of the first function beyond the limit; -1: none */
    int64_t deepest, limit;
    bool capped; /* it stopped at the measuring limit */
} Depth;

typedef struct Exec {
    jmp_buf fail;
    Status status;
    int site;               /* fault text, -1: `text` */
    int64_t said[SAID_MAX]; /* values in the message */
    char text[768];
    const char *where;   /* node of the current statement, or NULL */
    const Program *p;    /* NULL when folding */
    struct IFunc **func; /* by id */
    const RtValue *in;
    Buf **value; /* by tensor id; NULL when folding */
    RegVal *sym; /* by symbol id: int64, or double for floats */
    int64_t max_iterations;
    const _Atomic int *cancelled; /* as in InterpConfig */
    uint64_t seed;
    int64_t taken, most; /* bytes of values: now and the limit; most 0: no limit */
    double budget;       /* lane operations left when folding; < 0: no limit */
    /* for the running code: */
    Reg *reg;
    char *store; /* up to LANES lanes of 8 bytes for each register */
    size_t stride;
    int lanes; /* of a register: at most LANES */
    struct {
        const void *data;
        int64_t count;
        DType t;
    } * slot;
    struct RedMemo {
        bool valid;
        int dst;
        int64_t v[RED_MEMO];
        RegVal r;
    } * memo;
    Buf *pending;         /* being filled: freed on a fault */
    void *scratch, *held; /* held: freed on a fault */
    size_t scratch_size;
    struct LoopRun *loop; /* innermost */
    struct Frame *frame;  /* saved values of the enclosing activations */
    Memo *kept;           /* results of the innermost recursion's activations, or NULL */
    int64_t below;        /* levels of the calls that the current activation has made */
    int64_t depth, stack_depth;
    /* in a run that measures how deep a recursion goes; else stack_depth, 0 */
    int64_t depth_cap, depth_budget;
    Depth *measured;
    const char *stack_low;      /* lowest address that the C stack may reach; NULL: unknown */
    RtValue *out;               /* outputs made so far */
    const InterpConfig *config; /* NULL: the defaults */
    int64_t tmp[3][LANES];
} Exec;

_Noreturn void exec_fault(Exec *x, Status st, int site, const char *fmt, ...) PRINTF(4, 5);
/* Counts memory that is about to be allocated; raises a fault when it exceeds the limit. */
void exec_take(Exec *x, int64_t bytes);
Buf *buf_new(Exec *x, DType t, int64_t count);
void buf_unref(Buf *b);
Buf *exec_value(Exec *x, const Tensor *t); /* borrowed */
/* Runs the uniform part, and reads result i as int64 or double. */
void code_uniform(Exec *x, const Code *k);
RegVal code_out(const Exec *x, const Code *k, int i);
/* Runs a tensor body. Fills `out` if the caller gives memory, else returns a new Buf. */
Buf *code_tensor(Exec *x, const Code *k, void *out);

/* ---- extern bodies (interp_fold.c) ----------------------------------------------------------- */
/* The arrays of one call, in zeroed memory of ext_frame_size bytes; entries of absent inputs are
 * set. */
typedef struct ExtFrame {
    bx_tensor *in, *out;
    int64_t *param, *sym, *bytes;
} ExtFrame;
size_t ext_frame_size(const Stmt *s);
ExtFrame ext_frame(const Stmt *s, void *mem);
bx_tensor bx_of(const Tensor *t, const void *data, int64_t count, int rank, const int64_t *dim);

/* ---- results that are kept (interp_memo.c) --------------------------------------------------- */
Memo *memo_new(Memo *up); /* NULL: out of memory */
Memo *memo_free(Memo *m); /* returns the one around it */
/* The results of f with these parameters and how many levels are below it, if they are kept. They
 * stay the memo's. */
bool memo_find(const Memo *m, const Func *f, const RegVal *key, int64_t *below, RegVal *ret,
               Buf **out);
/* Keeps them, while there is memory. */
void memo_keep(Memo *m, const Func *f, const RegVal *key, int64_t below, const RegVal *ret,
               Buf *const *out);

#endif
