/* structure.h: what is left of a recursive function when only its control is looked at.
 *
 * If the arguments of its calls and its conditions depend on integers that are known before the
 * first call (Cortex, P.1 to P.3), the activations of a recursion can be numbered before any of
 * them computes something: that is what the linearizer does at run time. An activation is a node;
 * nodes with equal parameters are one; the height of a node is one more than that of its highest
 * child; its class is the function and the arms that it takes. */
#ifndef BRAID_STRUCTURE_H
#define BRAID_STRUCTURE_H

#include "utask/utask.h"

#define CLASSES_MAX 32  /* of all functions of a recursion */
#define BRANCHES_MAX 16 /* on the way through a function */

/* The vector that a linearizer writes begins with these words; then come, for each function, the
 * number of its nodes, and for each class and loop over children what the functions below name. */
enum {
    LIN_KEY,   /* 0, or a hash of the inputs that the rest was made of */
    LIN_NODES, /* of all functions */
    LIN_LEVELS,
    LIN_ROOTS, /* where the rows of the roots are */
    LIN_HEAD
};
/* Words of a class: number of its nodes; its first row in the results of its function; where its
 * columns are (each as long as it has nodes); where its first node of height 0 is (that of the next
 * height, or the end, follows after as many words as there are classes). */
enum { CLASS_N, CLASS_FIRST, CLASS_COLUMNS, CLASS_STARTS, CLASS_WORDS };
/* Words of a loop over children: the number of its iterations in all nodes of the class; where its
 * columns are; where the most iterations that a node of each height makes are. */
enum { CHILDREN_N, CHILDREN_COLUMNS, CHILDREN_MOST, CHILDREN_WORDS };

/* A loop that a class passes through. A branch in it has columns for its condition, then for what
 * is in both arms: of the arm that an iteration does not take, zeros, and no children. */
typedef struct Children {
    const Stmt *s;
    int id;    /* number among all of the Structure */
    int count; /* column of the class that holds a node's number of iterations; the next one holds
                  its first iteration among those of all nodes */
    int columns, nchild; /* in each iteration; of these, children */
} Children;

/* A way through a function. */
typedef struct Class {
    int id, func;  /* numbers in the Structure */
    uint32_t code; /* 1, then the arms as binary digits */
    bool ends;     /* it ends in a fault: there are no such nodes */
    int columns, nchild;
    int nloop;
    Children *loop;
    bool calls; /* it has children, or may have */
} Class;

typedef struct Structure {
    const char *path;
    Stmt *root; /* the call from outside */
    int nfunc;
    Func **func;
    int nclass, nloop;
    Class *cls[CLASSES_MAX];
    /* Loops around the root call, outermost first, that the roots are counted along, and what
     * stands in each before the next one or the call: copies, for passes change these statements.
     */
    int naround;
    Stmt **around;
    StmtVec *before;
    Stmt *call;   /* a copy of `root` */
    bool *sym;    /* by id: the linearizer computes it */
    bool *column; /* by id: … and leaves it in a column, for what is computed on tensors */
    int nid;      /* ids are below */
    /* What the walk reads from outside, as it is named in the functions' bodies: inputs and
     * parameters of the statement, in this order. */
    VEC(Tensor *) tensor;
    VEC(Sym *) captured;
    Map *checks;    /* the CHECKs that the linearizer makes */
    int depth_site; /* of the first function */
} Structure;

/* The structure of the recursion that s, statement of q, starts; NULL if it has none, and *why
 * says why. */
Structure *structure_of(Program *p, Seq *q, Stmt *s, const char **why);
static inline bool structure_checks(const Structure *k, const Stmt *s) {
    return map_geti(k->checks, (uint64_t)(uintptr_t)s) != NULL;
}
/* The number of one of its functions. */
static inline int structure_func(const Structure *k, const Func *f) {
    int i = 0;
    while (k->func[i] != f) i++;
    return i;
}
/* The words before the columns. */
static inline int structure_class(const Structure *k, int cls) {
    return LIN_HEAD + k->nfunc + cls * CLASS_WORDS;
}
static inline int structure_loop(const Structure *k, int loop) {
    return structure_class(k, k->nclass) + loop * CHILDREN_WORDS;
}

/* Calls f for what a node of class c passes through, in order: statements, loops over children as
 * one, and each branch (arm >= 0) after the arm. */
void structure_walk(const Structure *k, const Class *c, void (*f)(void *user, Stmt *s, int arm),
                    void *user);

#endif
