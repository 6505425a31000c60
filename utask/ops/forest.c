/* forest.c: see forest.h.
 *
 * Nodes lie in arrays; all trees of a row are walked side by side, so many steps as the deepest tree
 * has, and a leaf is its own successor: no branches, and lanes that never part. Every question is
 * made one of an interval, and what a question about one value does with NaN may take two nodes. */
#include "utask/ops/forest.h"
#include "utask/ops/nn.h"
#include <math.h>

#define NODES_MAX (1 << 28)
#define WEIGHTS_MAX ((int64_t)1 << 28) /* of all leaves and targets */
#define STEPS 16                       /* in one expression; beyond, a loop of such */

/* ---- making nodes ---------------------------------------------------------------------------- */
void forest_nodes(Lower *L, Forest *f, int n) {
    if (n > NODES_MAX - f->node.n) unsupported(L, "more than %d nodes", NODES_MAX);
    for (int i = 0; i < n; i++) vec_push(L->a, &f->node, ((ForestNode){.leaf = -1}));
}

void forest_leaf(Forest *f, int id) {
    ForestNode *n = &f->node.p[id];
    *n = (ForestNode){.child = {id, id}, .lo = -INFINITY, .hi = INFINITY, .leaf = f->nleaf++};
}

/* The neighbours of v; beyond an infinity NaN, which nothing is at least or at most. */
static double above(const Forest *f, double v) {
    if (v == INFINITY) return NAN;
    return f->t == DT_F64 ? nextafter(v, INFINITY) : (double)nextafterf((float)v, INFINITY);
}
static double below(const Forest *f, double v) {
    if (v == -INFINITY) return NAN;
    return f->t == DT_F64 ? nextafter(v, -INFINITY) : (double)nextafterf((float)v, -INFINITY);
}

static void interval(Forest *f, int id, int feature, double lo, double hi, int in, int out) {
    f->node.p[id] = (ForestNode){
        .feature = feature, .child = {out, in}, .lo = lo, .hi = hi, .leaf = -1};
}

static void one_value(Lower *L, Forest *f, int id, int x, Ask ask, double v, bool missing, int yes,
                      int no) {
    const double inf = INFINITY;
    int also;
    switch (ask) { /* where NaN is to go to `yes`, the interval is where the answer is no */
    case ASK_LEQ:
        if (missing)
            interval(f, id, x, above(f, v), inf, no, yes);
        else
            interval(f, id, x, -inf, v, yes, no);
        break;
    case ASK_LT:
        if (missing)
            interval(f, id, x, v, inf, no, yes);
        else
            interval(f, id, x, -inf, below(f, v), yes, no);
        break;
    case ASK_GTE:
        if (missing)
            interval(f, id, x, -inf, below(f, v), no, yes);
        else
            interval(f, id, x, v, inf, yes, no);
        break;
    case ASK_GT:
        if (missing)
            interval(f, id, x, -inf, v, no, yes);
        else
            interval(f, id, x, above(f, v), inf, yes, no);
        break;
    case ASK_EQ:
        if (!missing) {
            interval(f, id, x, v, v, yes, no);
            break;
        }
        also = f->node.n;
        forest_nodes(L, f, 1);
        interval(f, id, x, above(f, v), inf, no, also);
        interval(f, also, x, -inf, below(f, v), no, yes);
        break;
    default: interval(f, id, x, v, v, no, yes);
    }
}

void forest_branch(Lower *L, Forest *f, int id, int64_t feature, Ask ask, int n,
                   const double *value, bool missing, int yes, int no) {
    if (feature < 0 || feature > INT32_MAX / 2)
        fail(L, "node %d asks for feature %lld", id, (long long)feature);
    if (feature >= f->nfeature) f->nfeature = (int)feature + 1;
    for (int i = 0; i < n; i++)
        if (isnan(value[i])) unsupported(L, "node %d compares with NaN", id);
    int x = (int)feature;
    if (n == 0) interval(f, id, x, NAN, NAN, yes, no);
    /* A set: one value after the other. */
    for (int i = 0, at = id; i < n; i++) {
        int next = i + 1 < n ? f->node.n : no;
        if (i + 1 < n) forest_nodes(L, f, 1);
        one_value(L, f, at, x, ask == ASK_MEMBER ? ASK_EQ : ask, value[i], missing && i == 0, yes,
                  next);
        at = next;
    }
}

void forest_weights(Lower *L, Forest *f, int64_t ntarget, double absent) {
    if (ntarget < 1) fail(L, "there are %lld targets", (long long)ntarget);
    if (ntarget > WEIGHTS_MAX / (f->nleaf ? f->nleaf : 1))
        unsupported(L, "weights of %d leaves for %lld targets", f->nleaf, (long long)ntarget);
    f->ntarget = (int)ntarget;
    f->absent = absent;
    int64_t n = (int64_t)f->nleaf * ntarget;
    f->weight = NEWN(L->a, double, n + 1);
    for (int64_t i = 0; i < n; i++) f->weight[i] = absent;
}

/* ---- depth ----------------------------------------------------------------------------------- */
/* Steps from the root to its farthest leaf. */
static int depth_of(Lower *L, Forest *f, int root, int *stack) {
    enum { UNSEEN, OPEN, DONE };
    int n = 0;
    if (f->node.p[root].seen == UNSEEN) stack[n++] = root;
    while (n) {
        ForestNode *x = &f->node.p[stack[n - 1]];
        int wait = -1;
        x->seen = OPEN;
        x->depth = 0;
        for (int k = 0; x->leaf < 0 && k < 2 && wait < 0; k++) {
            const ForestNode *y = &f->node.p[x->child[k]];
            if (y->seen == OPEN)
                fail(L, "the tree's nodes lead back to one that they come from (node %d)",
                     stack[n - 1]);
            if (y->seen == UNSEEN) wait = x->child[k];
            if (y->depth >= x->depth) x->depth = y->depth + 1;
        }
        if (wait >= 0)
            stack[n++] = wait;
        else {
            x->seen = DONE;
            n--;
        }
    }
    return f->node.p[root].depth;
}

static int depth(Lower *L, Forest *f) {
    int *stack = NEWN(L->a, int, f->node.n + 1), most = 0;
    for (int i = 0; i < f->root.n; i++) {
        int d = depth_of(L, f, f->root.p[i], stack);
        if (d > most) most = d;
    }
    return most;
}

/* ---- the walk -------------------------------------------------------------------------------- */
typedef struct Walk {
    Tensor *x, *feature, *child, *lo, *hi; /* lo, hi NULL: no node needs it */
} Walk;

static Tensor *list(Lower *L, DType t, int64_t n, const void *data) {
    return t_const(L, t, 1, &n, data);
}

static Tensor *bounds(Lower *L, const Forest *f, bool upper) {
    int n = f->node.n;
    float *s = NEWN(L->a, float, n);
    double *d = NEWN(L->a, double, n);
    bool used = false;
    for (int i = 0; i < n; i++) {
        const ForestNode *x = &f->node.p[i];
        d[i] = upper ? x->hi : x->lo;
        s[i] = (float)d[i];
        used |= d[i] != (upper ? INFINITY : -INFINITY);
    }
    if (!used) return NULL;
    return list(L, f->t, n, f->t == DT_F64 ? (void *)d : (void *)s);
}

static Walk walk_begin(Lower *L, const Forest *f, Tensor *x) {
    int n = f->node.n;
    int32_t *feature = NEWN(L->a, int32_t, n), *child = NEWN(L->a, int32_t, 2 * (int64_t)n);
    for (int i = 0; i < n; i++) {
        feature[i] = f->node.p[i].feature;
        child[2 * i] = f->node.p[i].child[0];
        child[2 * i + 1] = f->node.p[i].child[1];
    }
    Walk w = {.x = x, .lo = bounds(L, f, false), .hi = bounds(L, f, true)};
    if (!w.lo && !w.hi) w.hi = bounds(L, f, true); /* leaves only: no step is made */
    w.feature = list(L, DT_I32, n, feature);
    w.child = list(L, DT_I32, 2 * (int64_t)n, child);
    return w;
}

static Expr *at(Lower *L, Tensor *t, Expr *i) { return ld(L, t, &i); }
static Expr *at_i64(Lower *L, Tensor *t, Expr *i) { return e_cast(L->cx, DT_I64, at(L, t, i)); }

/* The node that the row comes to from node n (int64) in so many steps. */
static Expr *steps(Lower *L, const Walk *w, Expr *row, Expr *n, int count) {
    Cx *c = L->cx;
    for (int i = 0; i < count; i++) {
        Expr *x = ld(L, w->x, (Expr *[]){row, at_i64(L, w->feature, n)}), *in = NULL;
        if (w->hi) in = e_le(c, x, at(L, w->hi, n));
        if (w->lo) {
            Expr *lo = e_le(c, at(L, w->lo, n), x);
            in = in ? e_and(c, in, lo) : lo;
        }
        Expr *way = e_cast(c, DT_I64, in);
        n = at_i64(L, w->child, e_add(c, e_muli(c, n, 2), way));
    }
    return n;
}

/* Leaves [rows, trees] after STEPS steps and more, in a loop. */
static Tensor *walk_far(Lower *L, const Walk *w, Tensor *root, int deep) {
    Cx *c = L->cx;
    Expr *dim[] = {w->x->dim[0], root->dim[0]};
    Tensor *begin = te_begin(L, DT_I32, 2, dim);
    begin = te_end(L, begin, at(L, root, ax(L, begin, 1)));
    LoopB *b = loop_begin(L, e_int(c, (deep + STEPS - 1) / STEPS));
    Tensor *now = loop_carry(L, b, begin);
    Tensor *next = te_begin(L, DT_I32, 2, dim);
    Expr *row = ax(L, next, 0);
    Expr *from = e_cast(c, DT_I64, ld(L, now, (Expr *[]){row, ax(L, next, 1)}));
    next = te_end(L, next, e_cast(c, DT_I32, steps(L, w, row, from, STEPS)));
    loop_next(L, b, now, next);
    loop_end(L, b);
    return now;
}

/* Weights by node, or by leaf and target. */
static Tensor *weights(Lower *L, const Forest *f, bool by_node) {
    int64_t n = by_node ? f->node.n : (int64_t)f->nleaf * f->ntarget;
    double *d = NEWN(L->a, double, n + 1);
    float *s = NEWN(L->a, float, n + 1);
    for (int64_t i = 0; i < n; i++) {
        int64_t k = by_node ? f->node.p[i].leaf : i;
        d[i] = k < 0 ? 0 : f->weight[k];
        s[i] = (float)d[i];
    }
    void *data = f->t == DT_F64 ? (void *)d : (void *)s;
    return by_node ? list(L, f->t, n, data)
                   : t_const(L, f->t, 2, (int64_t[]){f->nleaf, f->ntarget}, data);
}

static Tensor *roots(Lower *L, const Forest *f) {
    int32_t *r = NEWN(L->a, int32_t, f->root.n);
    for (int i = 0; i < f->root.n; i++) r[i] = f->root.p[i];
    return list(L, DT_I32, f->root.n, r);
}

static Tensor *leaf_rows(Lower *L, const Forest *f) {
    int32_t *r = NEWN(L->a, int32_t, f->node.n);
    for (int i = 0; i < f->node.n; i++) r[i] = f->node.p[i].leaf < 0 ? 0 : f->node.p[i].leaf;
    return list(L, DT_I32, f->node.n, r);
}

Tensor *forest_scores(Lower *L, Forest *f, ReduceKind how, Tensor *x) {
    Cx *c = L->cx;
    if (!f->root.n) fail(L, "there are no trees");
    int deep = depth(L, f);
    check(L, e_le(c, e_int(c, f->nfeature), x->dim[1]),
          "the nodes ask for %d features, the input has less", f->nfeature);
    Walk w = walk_begin(L, f, t_cast(L, f->t, x));
    Tensor *root = roots(L, f), *far = deep > STEPS ? walk_far(L, &w, root, deep) : NULL;
    Expr *dim[] = {x->dim[0], root->dim[0]}, *out[] = {x->dim[0], e_int(c, f->ntarget)};
    bool one = f->ntarget == 1;
    Axis *tree = axis_new(c, root->dim[0]);
    Tensor *leaf = NULL, *value = weights(L, f, one);
    if (!one) { /* which row of weights: by row and tree */
        leaf = te_begin(L, DT_I32, 2, dim);
        Expr *row = ax(L, leaf, 0), *t = ax(L, leaf, 1);
        Expr *n = far ? e_cast(c, DT_I64, ld(L, far, (Expr *[]){row, t}))
                      : steps(L, &w, row, at_i64(L, root, t), deep);
        leaf = te_end(L, leaf, at(L, leaf_rows(L, f), n));
    }
    Tensor *y = te_begin(L, f->t, 2, out);
    Expr *row = ax(L, y, 0), *t = e_axis(c, tree), *v;
    if (!one) {
        Expr *k = e_cast(c, DT_I64, ld(L, leaf, (Expr *[]){row, t}));
        v = ld(L, value, (Expr *[]){k, ax(L, y, 1)});
    } else if (far)
        v = at(L, value, e_cast(c, DT_I64, ld(L, far, (Expr *[]){row, t})));
    else
        v = at(L, value, steps(L, &w, row, at_i64(L, root, t), deep));
    return te_end(L, y, e_reduce(c, how, 1, &tree, v));
}
