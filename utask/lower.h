/* lower.h: helpers by which lowerings turn Graph nodes into tensors and statements.
 *
 * One function per row of frontend/ops.def, `void lower_NAME(Lower *L)`, in utask/ops/. It reads
 * inputs and attributes of the current node, and works out shapes and dtypes while it builds the
 * tensors, so a shape function cannot disagree with the code. Inputs have been checked against the
 * row's type rule and have static rank (the driver splits on unknown ranks). Errors: `fail` for an
 * invalid model, `unsupported` for what Braid does not support, `check` for what is known only at
 * run time.
 *
 * Composite operators are written with the t_… helpers (whole tensors), primitive ones with
 * te_begin and e_… (element expressions). Intermediate tensors are free: fusion substitutes them.
 */
#ifndef BRAID_LOWER_H
#define BRAID_LOWER_H

#include "frontend/ops.h"
#include "utask/utask.h"

typedef struct Lower Lower;
typedef void LowerFn(Lower *L);

/* A value of the Graph during lowering. */
typedef struct Val {
    VKind kind;
    Tensor *t; /* VT_TENSOR; VT_SEQUENCE: the blob */
    /* VT_SEQUENCE: what is known about the elements */
    DType elem_dtype;
    int elem_rank;            /* -1: differs or unknown */
    Expr *elem_dim[MAX_RANK]; /* NULL: differs or unknown */
    Expr *len;                /* number of elements, int64 uniform */
    /* VT_OPTIONAL */
    Expr *has;         /* bool uniform */
    struct Val *inner; /* NULL: never has an element */
    /* VT_SEQUENCE, elem_rank == -1: bit r is set when an element of rank r can occur; 0: unknown */
    uint32_t elem_mask;
    bool elem_none; /* VT_SEQUENCE: there is no element yet, whatever elem_rank says */
    /* VT_SEQUENCE: its elements if `len` is constant and they are known, or NULL: read the blob */
    struct Tensor **item;
} Val;

struct Lower {
    Cx *cx;
    Arena *a;
    Diag *d;
    Program *p;
    Seq *seq;         /* where statements go */
    const Node *node; /* current node */
    Val **out;        /* outputs of the current node, node->nout entries */
    int nsaid;        /* values of the message under construction */
    Expr *said[SAID_MAX];
    struct LowerState *st; /* driver's own */
};

/* ---- inputs, outputs, attributes ------------------------------------------------------------- */
bool has_in(Lower *L, int i);
Val *in_val(Lower *L, int i);         /* any kind; NULL when absent */
const char *in_text(Lower *L, int i); /* "input 0 'x'", for messages */
Tensor *in(Lower *L, int i);          /* a tensor; NULL when absent; `fail`s when not a tensor */
Tensor *in_needed(Lower *L, int i);   /* the same, which must be there */
bool wants_out(Lower *L, int i);      /* output i exists and is named */
void out(Lower *L, int i, Tensor *t); /* sets output i, if it is wanted, and names t */
void out_val(Lower *L, int i, Val *v);
Val *val_tensor(Lower *L, Tensor *t);

int64_t attr_i(Lower *L, const char *name, int64_t dflt);
int64_t attr_positive(Lower *L, const char *name, int64_t dflt); /* in [1, 2^31), else `fail` */
double attr_f(Lower *L, const char *name, double dflt);
const char *attr_s(Lower *L, const char *name, const char *dflt);
/* Which of the n values that the operator table allows it is; the first one when absent. */
int attr_choice(Lower *L, const char *name, int n, const char *const *values);
/* n = -1 when absent (returns NULL) */
const int64_t *attr_ints(Lower *L, const char *name, int *n);
const float *attr_floats(Lower *L, const char *name, int *n);
bool attr_has(Lower *L, const char *name);
int norm_axis(Lower *L, int64_t axis, int rank); /* negative from the end; `fail`s outside */

_Noreturn void fail(Lower *L, const char *fmt, ...) PRINTF(2, 3);        /* ST_MODEL */
_Noreturn void unsupported(Lower *L, const char *fmt, ...) PRINTF(2, 3); /* ST_UNSUPPORTED */
/* cond false at compile time: fail; true: nothing; else a run-time check. */
void check(Lower *L, Expr *cond, const char *fmt, ...) PRINTF(3, 4);
/* Text for the value e (int64) in the next message of check, guarded, fail or unsupported; pass it
 * as argument of a %s. It shows the number if known, else the run-time value (fail: the name of
 * what it depends on). A message can hold at most SAID_MAX different unknown values. */
const char *said(Lower *L, Expr *e);
/* Check a == b, a <= b, a < b, and that `size` is 1 or `want`; the message shows the sizes. */
void check_eq(Lower *L, Expr *a, Expr *b, const char *fmt, ...) PRINTF(4, 5);
void check_le(Lower *L, Expr *a, Expr *b, const char *fmt, ...) PRINTF(4, 5);
void check_lt(Lower *L, Expr *a, Expr *b, const char *fmt, ...) PRINTF(4, 5);
void check_fits(Lower *L, Expr *size, Expr *want, const char *fmt, ...) PRINTF(4, 5);
/* `fail`s unless t, named `what`, has this rank; checks of equal sizes, one by one, and of both:
 * fmt may have a %d, the axis. */
void check_rank(Lower *L, const Tensor *t, int rank, const char *what);
void check_dims(Lower *L, int n, Expr *const *a, Expr *const *b, const char *fmt) PRINTF(5, 0);
void check_shape(Lower *L, const Tensor *t, int rank, Expr *const *dim, const char *what,
                 const char *fmt) PRINTF(6, 0);
/* a where cond holds, else a run-time fault (and b). */
Expr *guarded(Lower *L, Expr *cond, Expr *a, Expr *b, const char *fmt, ...) PRINTF(5, 6);
int site(Lower *L, const char *fmt, ...) PRINTF(2, 3); /* a fault whose message has no values */

/* ---- uniform values -------------------------------------------------------------------------- */
/* Element i (row-major) of t as a pure uniform scalar of t's dtype: known at compile time, or bound
 * by a LET here. */
Expr *uni(Lower *L, Tensor *t, int64_t i);
Expr *uni_i64(Lower *L, Tensor *t, int64_t i);              /* … cast to int64 */
Expr *let(Lower *L, const char *name, Expr *e, int64_t lo); /* binds an impure or long expression */
bool const_elem(Tensor *t, int64_t i, int64_t *v); /* integer element known at compile time */
int64_t count_const(Tensor *t);                    /* element count, -1 when not constant */
Expr *count(Lower *L, Tensor *t);

/* ---- building tensors ------------------------------------------------------------------------ */
/* A new tensor with fresh axes (t->axis[i]) and no body yet; then te_end. dims int64, uniform. */
Tensor *te_begin(Lower *L, DType t, int rank, Expr *const *dim);
Expr *ax(Lower *L, Tensor *t, int i);           /* its axis i as an expression */
void all_axes(Lower *L, Tensor *t, Expr **idx); /* idx[i] becomes axis i, for the whole rank */
/* te_begin, then all_axes. */
Tensor *te_indexed(Lower *L, DType t, int rank, Expr *const *dim, Expr **idx);
/* te_begin with x's dims; *elem becomes x's element at its axes. */
Tensor *te_like(Lower *L, DType t, Tensor *x, Expr **elem);
Tensor *te_end(Lower *L, Tensor *t, Expr *body); /* appends the OP; folds constants; finds elem;
                                                    returns the tensor to use from now on */
Expr *ld(Lower *L, Tensor *t, Expr **idx);       /* element at idx: tensor_at */
/* Element of t under right-aligned broadcasting, for element idx[0..rank) of a result of dims dim.
 */
Expr *ld_bcast(Lower *L, Tensor *t, int rank, Expr **idx, Expr **dim);
Expr *flat_index(Lower *L, int rank, Expr **dim, Expr **idx);
void unflatten(Lower *L, int rank, Expr **dim, Expr *flat, Expr **idx);
/* Broadcast dims of a and b into dim (MAX_RANK entries), with run-time checks; returns the rank. */
int bcast_dims(Lower *L, int ra, Expr **a, int rb, Expr **b, Expr **dim);
/* An index that must be in [0, extent), or [-extent, extent) if neg: checked and made non-negative.
 * fmt: what is indexed, as in "axis 1 of input 0". */
Expr *index_checked(Lower *L, Expr *i, Expr *extent, bool neg, const char *fmt, ...) PRINTF(5, 6);

/* The type in which a composite operator on `t` is computed: 16-bit floats widen, so that they are
 * rounded once, at the end. */
static inline DType wide_float(DType t) { return t == DT_F16 || t == DT_BF16 ? DT_F32 : t; }

Tensor *t_const(Lower *L, DType t, int rank, const int64_t *dim, const void *data);
Tensor *t_list(Lower *L, DType t, int64_t n, const void *data); /* a constant of rank 1 */
Tensor *t_scalar(Lower *L, DType t, double v);
Tensor *t_zeros(Lower *L, DType t, int rank, Expr *const *dim);
Tensor *t_from_uniform(Lower *L, DType t, int rank, Expr *const *dim, Expr **elem);
Tensor *t_un(Lower *L, int op, Tensor *a);             /* elementwise */
Tensor *t_bin(Lower *L, int op, Tensor *a, Tensor *b); /* broadcasting; same dtype */
Tensor *t_where(Lower *L, Tensor *c, Tensor *a, Tensor *b);
Tensor *t_cast(Lower *L, DType t, Tensor *a); /* a itself when it has that dtype */
Tensor *t_reduce(Lower *L, ReduceKind k, Tensor *a, uint32_t axes, bool keep); /* bit i: axis i */
/* a with sizes that are known to hold as many elements. */
Tensor *t_view(Lower *L, Tensor *a, int rank, Expr *const *dim);
Tensor *t_reshape(Lower *L, Tensor *a, int rank, Expr *const *dim); /* counts checked */
Tensor *t_flat(Lower *L, Tensor *a);                                /* with its elements in a row */
Tensor *t_transpose(Lower *L, Tensor *a, const int *perm);
Tensor *t_expand(Lower *L, Tensor *a, int rank, Expr *const *dim); /* broadcast to exactly dim */
Tensor *t_slice(Lower *L, Tensor *a, int axis, Expr *start, Expr *step, Expr *len); /* in range */
Tensor *t_concat(Lower *L, int n, Tensor *const *t, int axis);
Tensor *t_unsqueeze(Lower *L, Tensor *a, int axis);
Tensor *t_squeeze(Lower *L, Tensor *a, int axis);     /* dim must be 1: checked */
Tensor *t_at(Lower *L, Tensor *a, int axis, Expr *i); /* drops the axis, at i, which is in range */
Tensor *t_flip(Lower *L, Tensor *a, int axis);
Tensor *t_matmul(Lower *L, Tensor *a, Tensor *b); /* numpy matmul with batch broadcasting; int ok */
/* The same of 8-bit integers less their zero points, which broadcast to them (NULL: 0), in int32.
 */
Tensor *t_matmul_bytes(Lower *L, Tensor *a, Tensor *azero, Tensor *b, Tensor *bzero);
Tensor *t_softmax(Lower *L, Tensor *a, int axis, bool log); /* in float32 for 16-bit floats */

/* ---- hand-written bodies --------------------------------------------------------------------- */
/* Appends an EXTERN named in utask/extern.def. Create its nsym symbols (int64, ≥ 0) with ext_sym
 * first, because output dims may use them, then the output tensors with ext_out. */
Stmt *ext_begin(Lower *L, const char *name, int nin, Tensor *const *ins, int nparam,
                Expr *const *param);
Expr *ext_sym(Lower *L, Stmt *s, const char *name);
Tensor *ext_out(Lower *L, Stmt *s, DType t, int rank, Expr *const *dim);
Tensor *ext_blob(Lower *L, Stmt *s);
/* Appends it. fault: the message when the body reports an error; "\1" to "\4" show the values that
 * the body sets (extern.h). */
void ext_end(Lower *L, Stmt *s, const char *fault);
/* If all inputs are constant, the body runs at compile time and outputs become constants. So use
 * these after ext_end: */
Tensor *ext_result(Lower *L, Stmt *s, int i);

/* ---- loops built by lowerings (RNN, Scan, SequenceMap…) -------------------------------------- */
/* Statements made between loop_begin and loop_end go into the body. Shapes of carried values are
 * fixed. */
typedef struct LoopB LoopB;
LoopB *loop_begin(Lower *L, Expr *trips);
Expr *loop_iter(LoopB *b);                            /* int64 */
Tensor *loop_carry(Lower *L, LoopB *b, Tensor *init); /* the value inside; then loop_next */
void loop_next(Lower *L, LoopB *b, Tensor *phi, Tensor *next);
Tensor *loop_scan(Lower *L, LoopB *b, Tensor *elem); /* [trips, dims of elem], after loop_end */
void loop_end(Lower *L, LoopB *b);                   /* afterwards phis hold the last values */

/* ---- driver ---------------------------------------------------------------------------------- */
/* `lowering` are the lowerings by op_index: those of control flow lower bodies by the driver,
 * which must not depend on them in turn. */
Program *lower_graph(Cx *cx, Graph *g, LowerFn *const *lowering);
/* Lowers the nodes of region r with params bound to v (regions of control-flow operators). */
void lower_region(Lower *L, const Region *r, int nparam, Val **param, int nresult, Val **result);

#endif
