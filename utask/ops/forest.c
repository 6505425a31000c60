/* forest.c: decision forests, as forest.h describes.
 *
 * Nodes are in arrays. All trees of a row are walked in parallel, for as many steps as the deepest
 * tree has; a leaf is its own successor. So there are no branches, and lanes never diverge. Every
 * test becomes one for an interval; because of NaN, one for a single value may need two nodes.
 */
#include "utask/ops/forest.h"
#include "utask/ops/ml.h"
#include <math.h>

#define NODES_MAX (1 << 28)
#define WEIGHTS_MAX ((int64_t)1 << 28) /* of all leaves and targets */
#define STEPS 8                        /* in one expression; deeper trees use a loop of such */

/* ---- construction of nodes ------------------------------------------------------------------- */
void forest_nodes(Lower *L, Forest *f, int n) {
    if (n > NODES_MAX - f->node.n) unsupported(L, "more than %d nodes", NODES_MAX);
    for (int i = 0; i < n; i++) vec_push(L->a, &f->node, ((ForestNode){.leaf = -1}));
}

void forest_leaf(Forest *f, int id) {
    ForestNode *n = &f->node.p[id];
    *n = (ForestNode){.child = {id, id}, .lo = -INFINITY, .hi = INFINITY, .leaf = f->nleaf++};
}

/* The neighbours of v; beyond an infinity it is NaN, which fails every comparison. */
static double neighbour(const Forest *f, double v, double towards) {
    if (v == towards) return NAN;
    return f->t == DT_F64 ? nextafter(v, towards) : (double)nextafterf((float)v, (float)towards);
}
static double above(const Forest *f, double v) { return neighbour(f, v, INFINITY); }
static double below(const Forest *f, double v) { return neighbour(f, v, -INFINITY); }

static void interval(Forest *f, int id, int feature, double lo, double hi, int in, int out) {
    f->node.p[id] =
        (ForestNode){.feature = feature, .child = {out, in}, .lo = lo, .hi = hi, .leaf = -1};
}

static void one_value(Lower *L, Forest *f, int id, int x, Ask ask, double v, bool missing, int yes,
                      int no) {
    const double inf = INFINITY;
    int in = yes, out = no;
    if (missing && ask < ASK_EQ) { /* where NaN is to go to `yes`: where the answer is no */
        static const Ask negated[] = {ASK_GT, ASK_GTE, ASK_LT, ASK_LEQ};
        ask = negated[ask];
        in = no;
        out = yes;
    }
    switch (ask) {
    case ASK_LEQ: interval(f, id, x, -inf, v, in, out); break;
    case ASK_LT: interval(f, id, x, -inf, below(f, v), in, out); break;
    case ASK_GTE: interval(f, id, x, v, inf, in, out); break;
    case ASK_GT: interval(f, id, x, above(f, v), inf, in, out); break;
    case ASK_EQ:
        if (missing) { /* it takes two nodes */
            int also = f->node.n;
            forest_nodes(L, f, 1);
            interval(f, id, x, above(f, v), inf, no, also);
            interval(f, also, x, -inf, below(f, v), no, yes);
        } else
            interval(f, id, x, v, v, yes, no);
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
    /* A set: test one value after the other. */
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
    int64_t n = (int64_t)f->nleaf * ntarget;
    f->weight = NEWN(L->a, double, n + 1);
    for (int64_t i = 0; i < n; i++) f->weight[i] = absent;
}

/* ---- depth ----------------------------------------------------------------------------------- */
/* Finds the number of steps from the root to its farthest leaf. */
static void find_depth(Lower *L, Forest *f, int root, int *stack) {
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
}

static int depth(Lower *L, Forest *f) {
    int *stack = NEWN(L->a, int, f->node.n + 1), most = 0;
    for (int i = 0; i < f->node.n; i++) find_depth(L, f, i, stack); /* no node may lead to itself */
    for (int i = 0; i < f->root.n; i++) {
        int d = f->node.p[f->root.p[i]].depth;
        if (d > most) most = d;
    }
    return most;
}

/* ---- records --------------------------------------------------------------------------------- */
/* What the walk reads. A node's two children are adjacent, so its record, an int64, has the
 * position of the first one (bits [0, shift)) and the feature tested (the `ask` bits above). If
 * tests have a single float32 bound and there is space, the bound is the record's upper half; else
 * it is in an array of its own. */
typedef struct ForestWalk {
    Tensor *x, *record, *lo, *hi; /* lo, hi NULL: unused, or in the record */
    int shift, ask;
    bool inside, upper; /* the bound is in the record; it is hi */
    int n, *node;       /* by position; a shared node has several positions */
} ForestWalk;

static int bits_for(int64_t n) { /* bits of numbers below n */
    int b = 1;
    while (((int64_t)1 << b) < n) b++;
    return b;
}

/* Gives every node its place, tree by tree, level by level; root[i]: of tree i. first[k]: where the
 * children of place k begin, itself for a leaf. */
static void lay_out(Lower *L, const Forest *f, ForestWalk *w, int32_t *root, int **first) {
    int most = 2 * f->node.n + f->root.n, *pair = NEWN(L->a, int, f->node.n);
    w->node = NEWN(L->a, int, most);
    *first = NEWN(L->a, int, most);
    for (int i = 0; i < f->node.n; i++) pair[i] = -1;
    for (int t = 0, k = 0; t < f->root.n; t++) {
        root[t] = w->n;
        w->node[w->n++] = f->root.p[t];
        for (; k < w->n; k++) {
            int id = w->node[k];
            const ForestNode *x = &f->node.p[id];
            if (x->leaf < 0 && pair[id] < 0) {
                pair[id] = w->n;
                w->node[w->n++] = x->child[0];
                w->node[w->n++] = x->child[1];
            }
            (*first)[k] = x->leaf < 0 ? pair[id] : k;
        }
    }
}

/* A bound for every position; NaN for a leaf, where the walk stays. NULL: no node needs it. */
static double *bounds(Lower *L, const Forest *f, const ForestWalk *w, bool upper) {
    double *d = NEWN(L->a, double, w->n);
    bool used = false;
    for (int k = 0; k < w->n; k++) {
        const ForestNode *x = &f->node.p[w->node[k]];
        d[k] = x->leaf >= 0 ? NAN : upper ? x->hi : x->lo;
        used |= x->leaf < 0 && d[k] != (upper ? INFINITY : -INFINITY);
    }
    return used ? d : NULL;
}

static ForestWalk walk_begin(Lower *L, const Forest *f, Tensor *x, Tensor **root) {
    ForestWalk w = {.x = x, .shift = 32, .ask = 31};
    int *first;
    int32_t *at = NEWN(L->a, int32_t, f->root.n);
    lay_out(L, f, &w, at, &first);
    *root = t_list(L, DT_I32, f->root.n, at);
    const double *lo = bounds(L, f, &w, false), *hi = bounds(L, f, &w, true);
    int shift = bits_for(w.n), ask = bits_for(f->nfeature);
    w.inside = f->t == DT_F32 && !(lo && hi) && shift + ask <= 32;
    w.upper = !lo;
    if (w.inside) w.shift = shift, w.ask = ask;
    const double *one = w.upper ? hi : lo;
    int64_t *record = NEWN(L->a, int64_t, w.n);
    for (int k = 0; k < w.n; k++) {
        const ForestNode *y = &f->node.p[w.node[k]];
        uint64_t r = (uint64_t)first[k] | (uint64_t)(y->leaf < 0 ? y->feature : 0) << w.shift;
        float bound = one ? (float)one[k] : NAN;
        uint32_t bits;
        memcpy(&bits, &bound, sizeof bits);
        record[k] = (int64_t)(w.inside ? r | (uint64_t)bits << 32 : r);
    }
    w.record = t_list(L, DT_I64, w.n, record);
    if (!w.inside && lo) w.lo = t_floats(L, f->t, w.n, -1, lo);
    if (!w.inside && (hi || !lo))
        w.hi = t_floats(L, f->t, w.n, -1, hi ? hi : bounds(L, f, &w, true));
    return w;
}

static Expr *at(Lower *L, Tensor *t, Expr *i) { return ld(L, t, &i); }
static Expr *at_i64(Lower *L, Tensor *t, Expr *i) { return e_cast(L->cx, DT_I64, at(L, t, i)); }

static Expr *field(Cx *c, Expr *r, int from, int bits) {
    if (from) r = e_bin(c, E_SHR, r, e_int(c, from));
    return e_bin(c, E_AND, r, e_int(c, ((int64_t)1 << bits) - 1));
}

/* The position that the row reaches from position n (int64) in `count` steps. */
static Expr *steps(Lower *L, const ForestWalk *w, Expr *row, Expr *n, int count) {
    Cx *c = L->cx;
    for (int i = 0; i < count; i++) {
        Expr *r = at(L, w->record, n), *in = NULL;
        Expr *x = ld(L, w->x, (Expr *[]){row, field(c, r, w->shift, w->ask)});
        if (w->inside) {
            Expr *bits = e_cast(c, DT_I32, e_bin(c, E_SHR, r, e_int(c, 32)));
            Expr *bound = e_bitcast(c, DT_F32, bits);
            in = w->upper ? e_le(c, x, bound) : e_le(c, bound, x);
        }
        if (w->hi) in = e_le(c, x, at(L, w->hi, n));
        if (w->lo) {
            Expr *lo = e_le(c, at(L, w->lo, n), x);
            in = in ? e_and(c, in, lo) : lo;
        }
        n = e_add(c, field(c, r, 0, w->shift), e_cast(c, DT_I64, in));
    }
    return n;
}

/* Leaves [rows, trees] of deeper trees, by a loop with STEPS steps per iteration. */
static Tensor *walk_far(Lower *L, const ForestWalk *w, Tensor *root, int deep) {
    Cx *c = L->cx;
    Expr *dim[] = {w->x->dim[0], root->dim[0]};
    Tensor *begin = te_begin(L, DT_I32, 2, dim);
    begin = te_end(L, begin, at(L, root, ax(L, begin, 1)));
    int trips = (deep + STEPS - 1) / STEPS, each = (deep + trips - 1) / trips;
    LoopB *b = loop_begin(L, e_int(c, trips));
    Tensor *now = loop_carry(L, b, begin);
    Tensor *next = te_begin(L, DT_I32, 2, dim);
    Expr *row = ax(L, next, 0);
    Expr *from = e_cast(c, DT_I64, ld(L, now, (Expr *[]){row, ax(L, next, 1)}));
    next = te_end(L, next, e_cast(c, DT_I32, steps(L, w, row, from, each)));
    loop_next(L, b, now, next);
    loop_end(L, b);
    return now;
}

/* The position of the leaf that row `row` reaches in tree t; far: those of walk_far, or NULL. */
static Expr *reached(Lower *L, const ForestWalk *w, Tensor *root, Tensor *far, int deep, Expr *row,
                     Expr *t) {
    if (far) return e_cast(L->cx, DT_I64, ld(L, far, (Expr *[]){row, t}));
    return steps(L, w, row, at_i64(L, root, t), deep);
}

/* Weights by position, or by leaf and target. */
static Tensor *weights(Lower *L, const Forest *f, const ForestWalk *w, bool by_place) {
    if (!by_place) return t_floats(L, f->t, f->nleaf, f->ntarget, f->weight);
    double *d = NEWN(L->a, double, w->n);
    for (int k = 0; k < w->n; k++) {
        int leaf = f->node.p[w->node[k]].leaf;
        d[k] = leaf < 0 ? 0 : f->weight[leaf];
    }
    return t_floats(L, f->t, w->n, -1, d);
}

static Tensor *leaf_rows(Lower *L, const Forest *f, const ForestWalk *w) {
    int32_t *r = NEWN(L->a, int32_t, w->n);
    for (int k = 0; k < w->n; k++) {
        int leaf = f->node.p[w->node[k]].leaf;
        r[k] = leaf < 0 ? 0 : leaf;
    }
    return t_list(L, DT_I32, w->n, r);
}

Tensor *forest_scores(Lower *L, Forest *f, ReduceKind how, Tensor *x) {
    Cx *c = L->cx;
    if (!f->root.n) fail(L, "there are no trees");
    if (f->root.n > NODES_MAX) unsupported(L, "more than %d trees", NODES_MAX);
    int deep = depth(L, f);
    check(L, e_le(c, e_int(c, f->nfeature), x->dim[1]),
          "the nodes ask for %d features, the input has less", f->nfeature);
    Tensor *root;
    ForestWalk w = walk_begin(L, f, t_cast(L, f->t, x), &root);
    Tensor *far = deep > STEPS ? walk_far(L, &w, root, deep) : NULL;
    Expr *dim[] = {x->dim[0], root->dim[0]}, *out[] = {x->dim[0], e_int(c, f->ntarget)};
    bool one = f->ntarget == 1;
    Axis *tree = axis_new(c, root->dim[0]);
    Tensor *leaf = NULL, *value = weights(L, f, &w, one);
    if (!one) { /* the row of weights, by row and tree */
        leaf = te_begin(L, DT_I32, 2, dim);
        Expr *n = reached(L, &w, root, far, deep, ax(L, leaf, 0), ax(L, leaf, 1));
        leaf = te_end(L, leaf, at(L, leaf_rows(L, f, &w), n));
    }
    /* A single target has no axis, so that rows are contiguous. */
    Tensor *y = te_begin(L, f->t, one ? 1 : 2, out);
    Expr *row = ax(L, y, 0), *t = e_axis(c, tree), *v;
    if (!one) {
        Expr *k = e_cast(c, DT_I64, ld(L, leaf, (Expr *[]){row, t}));
        v = ld(L, value, (Expr *[]){k, ax(L, y, 1)});
    } else
        v = at(L, value, reached(L, &w, root, far, deep, row, t));
    y = te_end(L, y, e_reduce(c, how, 1, &tree, v));
    return one ? t_unsqueeze(L, y, 1) : y;
}
