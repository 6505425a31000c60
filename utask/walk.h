/* walk.h: the fields of statements, and walks over trees of them.
 *
 * stmt_slots is the only list of the fields of statements. Whatever searches for uses or
 * definitions, copies, replaces or checks uses it, and looks at the statement's kind only where one
 * kind needs special treatment. */
#ifndef BRAID_WALK_H
#define BRAID_WALK_H

#include "utask/utask.h"

/* ---- one statement --------------------------------------------------------------------------- */
typedef enum {
    SLOT_EXPR,   /* an expression that has one value for all units */
    SLOT_BODY,   /* the body of a group's member, over its axes */
    SLOT_READ,   /* a tensor that is read, or passed on, as a whole */
    SLOT_TENSOR, /* a tensor that is defined */
    SLOT_SYM,    /* a symbol that is defined */
    SLOT_SEQ     /* a Seq of the statement's own */
} SlotKind;

typedef struct Slot {
    SlotKind kind;
    /* used at the end of this Seq of the statement, or defined for it (parameters of a function);
     * NULL: in the statement's own Seq */
    Seq *in;
    bool loads;      /* SLOT_EXPR: it may load, at uniform indices; else it is pure */
    bool fresh;      /* SLOT_READ: a value made only for this use */
    bool more;       /* SLOT_TENSOR: another slot defines it (LoopScan.more) */
    int dtype;       /* SLOT_EXPR; DT_NONE: any */
    TensorKind made; /* SLOT_TENSOR: the kind of tensor that is defined */
    union {
        Expr **e;
        Tensor **t;
        Sym **sym;
        Seq **q;
    };
} Slot;

static inline bool slot_is_expr(const Slot *k) {
    return k->kind == SLOT_EXPR || k->kind == SLOT_BODY;
}

/* Calls f for every field of s that is not NULL, in order of evaluation. It does not enter the Seqs
 * of s: their statements belong between the SLOT_SEQ and the slots `in` it. f may write to the
 * fields if it may change the statement. */
void stmt_slots(const Stmt *s, void (*f)(void *user, const Slot *k), void *user);

/* The Seqs directly below s. */
static inline int stmt_nseq(const Stmt *s) {
    return s->kind == S_LOOP ? 1 : s->kind == S_BRANCH ? 2 : s->kind == S_CALL ? s->call.nfunc : 0;
}
static inline Seq *stmt_seq(const Stmt *s, int i) {
    return s->kind == S_LOOP     ? s->loop.body
           : s->kind == S_BRANCH ? s->br.arm[i]
                                 : s->call.func[i]->body;
}

/* The tensors and symbols that s defines in its own Seq, visible after s. */
void stmt_defines(const Stmt *s, void (*tensor)(void *, Tensor *), void (*sym)(void *, Sym *),
                  void *user);
/* Moves s, with everything of Seq `from` that it uses or defines, to `to`. */
void stmt_move(Cx *c, const Stmt *s, const Seq *from, Seq *to);
/* Whether `reader` uses a tensor or a symbol that `maker` defines for later statements. */
bool stmt_uses(Cx *c, const Stmt *reader, const Stmt *maker);

/* ---- statements below ------------------------------------------------------------------------ */
typedef bool StmtTest(void *user, const Stmt *s);

/* Whether `is` holds for a statement of q or below; each statement is tested before those in it. */
bool seq_any(const Seq *q, StmtTest *is, void *user);
bool stmt_any(const Stmt *s, StmtTest *is, void *user); /* s or one below it */
/* Calls f for all statements of q and below. */
void seq_each(const Seq *q, void (*f)(void *user, Stmt *s), void *user);
/* The same except for statements in bodies of functions: those of the current activation. */
void seq_each_here(const Seq *q, void (*f)(void *user, Stmt *s), void *user);
/* Calls f for all statements, inner ones first, so that it can change the Seq. The current one is
 * statement *at of q; f sets *at to the last one that replaces it. */
void seq_rewrite(Seq *q, void (*f)(void *user, Seq *q, int *at), void *user);
/* Calls f for all slots of all statements except SLOT_SEQ, in the order of stmt_slots. */
void seq_slots(const Seq *q, void (*f)(void *user, const Slot *k), void *user);
void stmt_all_slots(const Stmt *s, void (*f)(void *user, const Slot *k), void *user);
/* Calls f for each expression of s and of the statements in it, so that it can be replaced. */
void stmt_exprs(const Stmt *s, void (*f)(void *user, Expr **e), void *user);
/* Calls f for the distinct loads of each of these expressions. */
void stmt_loads(Cx *c, const Stmt *s, void (*f)(void *user, Expr *load), void *user);

bool stmt_is_call(void *user, const Stmt *s); /* StmtTests */
bool stmt_is_data(void *user, const Stmt *s); /* it computes tensors */
int seq_size(const Seq *q);                   /* statements in q and below */

/* ---- things used ----------------------------------------------------------------------------- */
/* Each tensor and symbol is reported once in the lifetime of the Visit, with a view's base and
 * whatever its dims use. */
typedef struct Visit {
    Cx *c;
    Map *seen;
    const Seq *skip; /* this Seq is not visited */
    void (*tensor)(void *user, Tensor *t);
    void (*sym)(void *user, Sym *s);
    void *user;
} Visit;

Visit visit_new(Cx *c, void (*tensor)(void *, Tensor *), void (*sym)(void *, Sym *), void *user);
void visit_expr(Visit *u, const Expr *e);
void visit_tensor(Visit *u, Tensor *t);
/* Visits everything that s uses or defines, inner statements included. */
void visit_stmt(Visit *u, const Stmt *s);
void visit_seq(Visit *u, const Seq *q);
/* Visits what is used at the end of q: by its owner, or as outputs of p. */
void visit_end(Visit *u, const Program *p, const Seq *q);

#endif
