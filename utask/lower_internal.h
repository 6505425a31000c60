/* lower_internal.h: what the files of the lowering driver share. */
#ifndef BRAID_LOWER_INTERNAL_H
#define BRAID_LOWER_INTERNAL_H
#include "utask/extern.h"
#include "utask/lower.h"

/* What is assumed of a loop-carried value. It starts as "never changes" and is weakened part by
 * part until a pass over the body confirms it (control.c). */
typedef struct CarryPlan {
    bool dim_vary[MAX_RANK];
    bool rank_vary, len_vary, has_vary;
    uint32_t rank_mask;
    bool no_elem;    /* elements are not tracked: the value lives in memory */
    bool *elem_vary; /* per element, nelem of them */
    int64_t nelem;
    struct CarryPlan *inner; /* optional */
    Val *elem;               /* sequence: what is known about its elements so far */
} CarryPlan;

/* A tensor of unknown rank, and its view in the arm where the rank is known. */
typedef struct Refine {
    Tensor *from, *to;
    bool row; /* `to` has its elements flattened; the rank stays unknown */
} Refine;

/* The place where random numbers are drawn (draw.c), apart from loops inside `seq`: a call that is
 * inlined, or the body of a recursive function, where each activation is a place of its own. */
typedef struct DrawFrame {
    struct DrawFrame *up;
    Seq *seq;
    const Node *call; /* the inlined call; NULL: a recursive function's body */
    Expr *place;      /* of the activation, uint64; NULL: not requested yet */
    bool *asked;      /* set when it is requested */
} DrawFrame;

typedef struct LowerState {
    LowerFn *const *lowering; /* by op_index; from lower_graph's caller, for lower_nodes.c alone */
    Val **env;                /* by Value id */
    Map *loop_plan;           /* Node address -> CarryPlan array */
    VEC(Refine) refine;
    int split_depth;             /* nested continuations duplicated for unknown ranks */
    int64_t nodes;               /* nodes lowered so far; limits duplication */
    struct Recursion *recursion; /* innermost one being lowered (stack/call.c) */
    DrawFrame *frame;            /* innermost; NULL: outside of functions */
    Map *draw_number;            /* Node address -> its number among those that draw or call */
    intptr_t ndraw;
    Map *call_plan; /* Node address of an Invoke -> what is known about its functions' parameters */
    int nfunction;  /* functions of the Graph */
    int call_depth; /* enclosing inlined calls and recursions */
    bool trap;      /* the error being raised is a call whose result is not known yet */
    bool unmet;     /* … is a check that always fails: an error only if it is reached */
} LowerState;

/* A message's text, in a function that takes it as fmt and what follows. */
#define TEXT_OF(text, fmt)                                                                         \
    char text[512];                                                                                \
    va_list text##_args;                                                                           \
    va_start(text##_args, fmt);                                                                    \
    vsnprintf(text, sizeof text, fmt, text##_args);                                                \
    va_end(text##_args)

/* A statement of the current node, and the end of the current Seq for it. */
static inline Stmt *lower_stmt(Lower *L, StmtKind kind) {
    return stmt_new(L->cx, kind, L->node ? L->node->path : "");
}
static inline void lower_append(Lower *L, Stmt *s) { vec_push(L->a, &L->seq->s, s); }
static inline Expr *lower_let(Lower *L, Sym *s, Expr *e) {
    return seq_let(L->cx, L->seq, s, e, L->node ? L->node->path : "");
}
/* A tensor of the current node, in `seq`, that is what `like` is in another place: of its dtype or
 * a sequence like it, and named like it. */
static inline Tensor *lower_like(Lower *L, TensorKind kind, const Tensor *like, int rank,
                                 Expr *const *dim, Seq *seq) {
    Tensor *t = tensor_like(L->cx, kind, like, rank, dim, seq);
    t->blob = like->blob;
    t->path = L->node->path;
    return t;
}

/* lower_build.c */
void op_append(Lower *L, Tensor *t); /* the OP that computes t */
Tensor *const_tensor(Lower *L, const Const *k);

/* lower_stmt.c */
/* A copy of t in memory of its own, computed here; never folded away. */
Tensor *copy_tensor(Lower *L, Tensor *t);
Stmt *loop_stmt(Lower *L, Expr *trips);
Tensor *own_tensor(Lower *L, Tensor *t); /* a TE of this Seq that no other loop state uses */
/* Stacks elem, of the loop's body, for what follows the loop in `outer`. */
Tensor *scan_tensor(Lower *L, Stmt *loop, Seq *outer, Tensor *elem, Expr *const *dim);

/* sizes.c */
/* Refuses a tensor of these dims, as far as they are known, if no memory could hold it: a check
 * that always fails. */
void size_check(Lower *L, DType t, int rank, Expr *const *dim);
/* Puts checks before tensors whose size is known only at run time and is not bounded by tensors in
 * memory. */
void sizes_check(Program *p);

/* lower.c */
Val *val_of(Lower *L, const Value *v);
Expr *sym_scoped(Lower *L, Sym **out, DType t, const char *name, int64_t lo, Seq *scope);
/* t as seen here: at its known rank, where it is known. */
Tensor *refined(Lower *L, Tensor *t);
Tensor *rank_view(Lower *L, Tensor *t, int rank); /* a tensor of unknown rank seen at one rank */
Expr *rank_expr(Lower *L, Tensor *t);

/* draw.c */
/* A uint64 that distinguishes the current node's execution from all others, and one that
 * distinguishes it only from the node's own other executions. */
Expr *draw_place(Lower *L);
Expr *draw_call_place(Lower *L);

/* lower_ranks.c */
/* The ranks that inputs without a declared rank can have, found by lowering for each. */
typedef struct RankChoices {
    Graph *g;
    OpenRanks open;
    const char **why; /* for each combination: what is wrong with it; NULL: nothing */
} RankChoices;
/* Lowers region r, the top of the graph, for each combination of ranks that works. */
void lower_choices(Lower *L, const Region *r, const RankChoices *k, Val **param, Val **result);
const char *ranks_text(Arena *a, const RankChoices *k, int at); /* describes a combination */

/* control.c */
/* What Loop and Scan have in common. */
typedef struct LoopSpec {
    const Region *body;
    Expr *trips, *cond0; /* NULL: none */
    int ncarry, nscan;
    Val **init;
    bool has_cond;   /* result 0 of the body is the condition */
    int first_param; /* of the carried values among the body's parameters */
    /* makes the other parameters, in the body */
    void (*params)(Lower *L, struct LoopSpec *s, Expr *iter, Val **param);
    void *user;
    Val **result; /* out: carried, then scan outputs stacked on axis 0 */
} LoopSpec;

/* values.c */
/* Lowers a loop of few iterations over a few integers, by which models compute shapes, iteration by
 * iteration, so that the integers and their number stay known. False: it is not such a loop, and
 * nothing was changed. */
bool loop_of_values(Lower *L, LoopSpec *s);

/* ops/elementwise.c */
#define ROW_MAX 16 /* inputs whose rank is not known */
/* Whether the node needs only the flattened elements of its inputs of unknown rank; if so, sets
 * flat[] to these inputs with their flattened views. *same: the outputs have the shape of these
 * inputs, which is the same for all.
 */
bool in_a_row(Lower *L, const Node *n, Refine *flat, int *nflat, bool *same);
Tensor *out_of_row(Lower *L, Tensor *row, const Tensor *like); /* the elements in like's shape */

/* fork.c */
/* Runs body(L, user). False: it ended in an error, which is in L->d (L->st->trap and unmet say
 * which kind); lowering then continues in the same Seq as before, after whatever was appended
 * since. Every error that does not end lowering is caught here. */
bool attempt(Lower *L, void (*body)(Lower *L, void *user), void *user);
/* After a failed attempt: drops the error and returns its message. */
const char *forgive(Lower *L);
/* A fault when !cond, with the message that lowering raised. */
void fault_unless(Lower *L, Expr *cond, const char *message);
/* Element i of n of t as a uniform value in q, if it is known, or can be read because t is tiny and
 * not float; else NULL. */
Expr *elem_in(Lower *L, Seq *q, Tensor *t, int64_t i, int64_t n);
/* e is the rank of a node's output, joined after a split by the ranks in the mask. Whether it
 * equals the rank that was split by. */
bool rank_follows(const Expr *e, uint32_t ranks);
uint32_t rank_set(const Tensor *t); /* bit r: t may have rank r */
typedef struct Fork {
    Stmt *s;
    Seq *outer;
    /* the arms are ranks of one value: something unsupported in one arm may never be reached */
    bool by_rank;
} Fork;
Fork fork_begin(Lower *L, Expr *cond);
/* Runs body(user, arm) for both arms, then joins nresult values. An arm whose lowering fails with
 * ST_MODEL (by_rank: or ST_UNSUPPORTED) becomes a run-time fault, and its results are NULL. */
void fork_run(Lower *L, Fork *f, void (*body)(Lower *L, void *user, int arm, Val **result),
              void *user, int nresult, Val **result);

#endif
