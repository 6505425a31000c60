/* lower_internal.h: shared by the files of the lowering driver. */
#ifndef BRAID_LOWER_INTERNAL_H
#define BRAID_LOWER_INTERNAL_H
#include "codegen/extern/table.h"
#include "utask/lower.h"

/* What is known of a loop-carried value: starts as "never changes" and is given up part by part
 * until a pass over the body confirms it (control.c). */
typedef struct CarryPlan {
    bool dim_vary[MAX_RANK];
    bool rank_vary, len_vary, has_vary;
    uint32_t rank_mask;
    bool no_elem;    /* elements are not followed: the value lives in memory */
    bool *elem_vary; /* per element, nelem of them */
    int64_t nelem;
    struct CarryPlan *inner; /* optional */
    Val *elem;               /* sequence: what is known of its elements so far */
} CarryPlan;

typedef struct Refine { /* a tensor of unknown rank, and its view in the arm where the rank is known
                         */
    Tensor *from, *to;
} Refine;

typedef struct LowerState {
    Val **env;      /* by Value id */
    Map *loop_plan; /* Node address -> CarryPlan array */
    VEC(Refine) refine;
    int split_depth;             /* nested continuations duplicated for unknown ranks */
    int64_t nodes;               /* lowered so far: bounds duplication */
    struct Recursion *recursion; /* innermost one being lowered (stack/call.c) */
    Map *call_plan; /* Node address of an Invoke -> what is known of its functions' parameters */
    int nfunction;  /* of the Graph */
    int call_depth; /* calls in place and recursions around here */
    bool trap;      /* the error being raised is a call whose result is not known yet */
    bool unmet;     /* ... is a check that cannot be passed: an error only where it is reached */
} LowerState;

/* build.c */
void op_append(Lower *L, Tensor *t); /* the OP that computes t */
Tensor *const_tensor(Lower *L, const Const *k);
Tensor *view_new(Lower *L, Tensor *a, int rank, Expr *const *dim);

/* lower.c */
Val *val_of(Lower *L, const Value *v);
Expr *sym_scoped(Lower *L, Sym **out, DType t, const char *name, int64_t lo, Seq *scope);
Tensor *rank_view(Lower *L, Tensor *t, int rank); /* a tensor of unknown rank seen at one rank */
Expr *rank_expr(Lower *L, Tensor *t);

/* ranks.c */
/* What inputs without a declared rank can be, found by lowering for each. */
typedef struct RankChoices {
    Graph *g;
    OpenRanks open;
    const char **why; /* of each combination: what is wrong with it, NULL: nothing */
} RankChoices;
/* The region r, the top of the graph, for each combination of ranks that works. */
void lower_choices(Lower *L, const Region *r, const RankChoices *k, Val **param, Val **result);
/* lower.c: the Graph as it is (ranks NULL: all are declared); *st is zero, and says how far it came
 * when this raises. */
Program *lower_with(Cx *cx, Graph *g, LowerState *st, const RankChoices *ranks);

/* control.c */
Tensor *copy_tensor(Lower *L,
                    Tensor *t); /* in memory of its own, computed here; never folded away */
Stmt *loop_stmt(Lower *L, Expr *trips);
Tensor *own_tensor(Lower *L, Tensor *t); /* a TE of this Seq that nobody else uses as state */

/* fork.c */
/* What lowering changes on its way and an error leaves as it was there. */
typedef struct Place {
    const Node *node;
    Val **out;
    Seq *seq;
    int nrefine, depth, calls;
    struct Recursion *recursion;
} Place;
Place place_of(const Lower *L);
/* After an error that is not one: lowering goes on, in the present Seq. */
void return_to(Lower *L, const Place *p);
/* What is known to fail when it is reached with !cond, with the message that lowering raised. */
void fault_unless(Lower *L, Expr *cond, const char *message);
/* Element i of n of t as a uniform value in q: known, or read when t is tiny and not float. NULL:
 * no. */
Expr *elem_in(Lower *L, Seq *q, Tensor *t, int64_t i, int64_t n);
uint32_t rank_set(const Tensor *t); /* bit r: t may have rank r */
typedef struct Fork {
    Stmt *s;
    Seq *outer;
    bool by_rank; /* the arms are ranks of one value: what is not supported in one may never be
                     reached */
} Fork;
Fork fork_begin(Lower *L, Expr *cond);
/* Runs body(user, arm) for both arms; an arm whose lowering fails with ST_MODEL (by_rank: or with
 * ST_UNSUPPORTED) becomes a run-time fault, and its results NULL. Then joins nresult values. */
void fork_run(Lower *L, Fork *f, void (*body)(Lower *L, void *user, int arm, Val **result),
              void *user, int nresult, Val **result);

#endif
