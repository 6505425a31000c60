/* walk.h: what statements are made of, and walks over them.
 *
 * stmt_slots is the one list of the fields of statements. What looks for uses or definitions,
 * copies, replaces or checks is made from it; the kinds of statements are told apart only where
 * something particular is done for one of them. */
#ifndef BRAID_WALK_H
#define BRAID_WALK_H

#include "utask/utask.h"

/* ---- one statement --------------------------------------------------------------------------- */
typedef enum {
    SLOT_EXPR,   /* an expression that has one value for all units */
    SLOT_BODY,   /* what a member of a group computes, over its axes */
    SLOT_READ,   /* a tensor that is read, or passed on, as a whole */
    SLOT_TENSOR, /* a tensor that is defined */
    SLOT_SYM,    /* a symbol that is defined */
    SLOT_SEQ     /* a Seq of the statement's own */
} SlotKind;

typedef struct Slot {
    SlotKind kind;
    Seq *in;    /* at the end of this Seq of the statement, or for its statements (parameters of a
                   function); NULL: where the statement stands */
    bool loads; /* SLOT_EXPR: it may load, at uniform indices; else it is pure */
    bool fresh; /* SLOT_READ: a value that is made for this use alone */
    bool more;  /* SLOT_TENSOR: another slot has defined it already (LoopScan.more) */
    int dtype;  /* SLOT_EXPR; DT_NONE: any */
    TensorKind made; /* SLOT_TENSOR: what is defined so */
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

/* Calls f for every field of s that is not NULL, in the order in which s comes to it: what is in a
 * Seq of s, between the slot of that Seq and those `in` it, is left to f. f may write to the fields
 * of a statement that is its own to change. */
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

/* What is visible behind s: the tensors and symbols that it defines in its own Seq. */
void stmt_defines(const Stmt *s, void (*tensor)(void *, Tensor *), void (*sym)(void *, Sym *),
                  void *user);
/* s, with all that it uses or defines of Seq `from`, belongs to `to` from now on. */
void stmt_move(Cx *c, const Stmt *s, const Seq *from, Seq *to);
/* Whether `reader` uses a tensor or a symbol that `maker` defines for what follows it. */
bool stmt_uses(Cx *c, const Stmt *reader, const Stmt *maker);

/* ---- statements below ------------------------------------------------------------------------ */
typedef bool StmtTest(void *user, const Stmt *s);

/* Whether a statement of q or below is one; q's order, a statement before what is in it. */
bool seq_any(const Seq *q, StmtTest *is, void *user);
bool stmt_any(const Stmt *s, StmtTest *is, void *user); /* s or one below it */
/* Calls f for all of them. */
void seq_each(const Seq *q, void (*f)(void *user, Stmt *s), void *user);
/* The same without those in the bodies of functions: what runs in the activation at hand. */
void seq_each_here(const Seq *q, void (*f)(void *user, Stmt *s), void *user);
/* Calls f for all of them, inner ones first, for it to change the Seq: statement *at of q is at
 * hand, and *at is left at the last one of those that stand for it. */
void seq_rewrite(Seq *q, void (*f)(void *user, Seq *q, int *at), void *user);
/* Calls f for all slots of them but SLOT_SEQ, those of a statement without those of the statements
 * in it first. */
void seq_slots(const Seq *q, void (*f)(void *user, const Slot *k), void *user);
void stmt_all_slots(const Stmt *s, void (*f)(void *user, const Slot *k), void *user);
/* Calls f for each expression of s and of the statements in it, so that it can be replaced. */
void stmt_exprs(const Stmt *s, void (*f)(void *user, Expr **e), void *user);

bool stmt_is_call(void *user, const Stmt *s); /* StmtTests */
bool stmt_is_data(void *user, const Stmt *s); /* it computes tensors */
int seq_size(const Seq *q);                   /* statements in q and below */

/* ---- things used ----------------------------------------------------------------------------- */
/* Each tensor and each symbol is reported once in the lifetime of the Visit; a view with its base,
 * a tensor with what its dims use. */
typedef struct Visit {
    Cx *c;
    Map *seen;
    const Seq *skip; /* this Seq is not looked into */
    void (*tensor)(void *user, Tensor *t);
    void (*sym)(void *user, Sym *s);
    void *user;
} Visit;

Visit visit_new(Cx *c, void (*tensor)(void *, Tensor *), void (*sym)(void *, Sym *), void *user);
void visit_expr(Visit *u, const Expr *e);
void visit_tensor(Visit *u, Tensor *t);
/* All that s uses or defines, inner statements included. */
void visit_stmt(Visit *u, const Stmt *s);
void visit_seq(Visit *u, const Seq *q);
/* What is used at the end of q: by what q belongs to, or as outputs of p. */
void visit_end(Visit *u, const Program *p, const Seq *q);

#endif
