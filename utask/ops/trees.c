/* trees.c: ai.onnx.ml's TreeEnsemble (opset 5), TreeEnsembleRegressor, TreeEnsembleClassifier. */
#include "utask/ops/forest.h"
#include "utask/ops/ml.h"
#include "utask/ops/nn.h"
#include <math.h>

typedef enum { AGG_AVERAGE, AGG_SUM, AGG_MIN, AGG_MAX } Aggregate;

static double absent_of(Aggregate a) {
    return a == AGG_MIN ? INFINITY : a == AGG_MAX ? -INFINITY : 0;
}

static void give_weight(const Forest *f, Aggregate a, int leaf, int64_t target, double w) {
    double *to = &f->weight[(int64_t)leaf * f->ntarget + target];
    if (a == AGG_MIN)
        *to = w < *to ? w : *to;
    else if (a == AGG_MAX)
        *to = w > *to ? w : *to;
    else
        *to += w;
}

/* Scores of a forest with the given aggregate; a target without any weight has 0. */
static Tensor *aggregated(Lower *L, Forest *f, Aggregate a, Tensor *x) {
    Cx *c = L->cx;
    ReduceKind how = a == AGG_MIN ? R_MIN : a == AGG_MAX ? R_MAX : R_SUM;
    Tensor *s = forest_scores(L, f, how, x);
    if (a == AGG_AVERAGE) return t_bin(L, E_DIV, s, t_scalar(L, f->t, f->root.n));
    if (a == AGG_SUM) return s;
    Expr *v;
    Tensor *y = te_like(L, f->t, s, &v);
    Expr *none = e_eq(c, v, e_num(c, f->t, absent_of(a)));
    return te_end(L, y, e_sel(c, none, e_num(c, f->t, 0), v));
}

/* ---- the form of opsets 1 and 3 -------------------------------------------------------------- */
/* Nodes given by (tree, node) pairs, in any order. */
typedef struct Listed {
    int64_t n;
    const int64_t *tree, *node;
    int64_t *sorted; /* of the pairs */
} Listed;

static int compare(const Listed *l, int64_t tree, int64_t node, int64_t i) {
    if (tree != l->tree[i]) return tree < l->tree[i] ? -1 : 1;
    return node < l->node[i] ? -1 : node > l->node[i];
}

static bool pair_less(const void *pairs, int64_t i, int64_t j) {
    const Listed *l = pairs;
    return compare(l, l->tree[i], l->node[i], j) < 0;
}

static void sort_pairs(Lower *L, Listed *l) {
    int64_t *k = l->sorted = NEWN(L->a, int64_t, l->n);
    for (int64_t i = 0; i < l->n; i++) k[i] = i;
    sort_stable(L, l->n, k, pair_less, l);
    for (int64_t i = 1; i < l->n; i++)
        if (!pair_less(l, k[i - 1], k[i]))
            fail(L, "node %lld of tree %lld is given twice", (long long)l->node[k[i]],
                 (long long)l->tree[k[i]]);
}

static int find_node(Lower *L, const Listed *l, int64_t tree, int64_t node, const char *what) {
    int64_t lo = 0, hi = l->n - 1;
    while (lo <= hi) {
        int64_t m = (lo + hi) / 2;
        int k = compare(l, tree, node, l->sorted[m]);
        if (!k) return (int)l->sorted[m];
        if (k < 0)
            hi = m - 1;
        else
            lo = m + 1;
    }
    fail(L, "%s names node %lld of tree %lld, which does not exist", what, (long long)node,
         (long long)tree);
}

static Ask ask_of(Lower *L, const char *mode) {
    static const char *const name[] = {"BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE",
                                       "BRANCH_GT",  "BRANCH_EQ", "BRANCH_NEQ"};
    for (int i = 0; i < (int)COUNT(name); i++)
        if (!strcmp(mode, name[i])) return (Ask)i;
    if (!strcmp(mode, "LEAF")) return ASK_COUNT;
    fail(L, "nodes_modes has '%.100s'", mode);
}

/* Finds the root of each tree: the first node that no other node leads to. */
static void find_roots(Lower *L, Forest *f, const Listed *l, const bool *below) {
    for (int64_t i = 0; i < l->n;) {
        int64_t tree = l->tree[l->sorted[i]];
        int root = -1;
        for (; i < l->n && l->tree[l->sorted[i]] == tree; i++) {
            int k = (int)l->sorted[i];
            if (!below[k] && (root < 0 || k < root)) root = k;
        }
        if (root < 0) fail(L, "tree %lld has no root: its nodes form a cycle", (long long)tree);
        vec_push(L->a, &f->root, root);
    }
}

/* Reads the nodes; node i of the lists is node i of the forest. */
static Listed listed_nodes(Lower *L, Forest *f) {
    int n;
    Listed l = {.tree = attr_ints(L, "nodes_treeids", &n)};
    if (n < 1) fail(L, "nodes_treeids has no entries: there are no trees");
    l.n = n;
    l.node = attr_ints_of(L, "nodes_nodeids", n);
    const int64_t *feature = attr_ints_of(L, "nodes_featureids", n);
    const int64_t *yes = attr_ints_of(L, "nodes_truenodeids", n);
    const int64_t *no = attr_ints_of(L, "nodes_falsenodeids", n), *track = NULL;
    const Attr *modes = node_attr(L->node, "nodes_modes");
    if (!modes || modes->n != n) fail(L, "attribute nodes_modes must have %d entries", n);
    int64_t nvalue;
    const double *value = attr_numbers(L, "nodes_values", &nvalue);
    if (nvalue != n) fail(L, "attribute nodes_values must have %d entries", n);
    if (attr_has(L, "nodes_missing_value_tracks_true")) {
        int m;
        track = attr_ints(L, "nodes_missing_value_tracks_true", &m);
        if (m && m != n) fail(L, "nodes_missing_value_tracks_true must have %d entries", n);
        if (!m) track = NULL;
    }
    sort_pairs(L, &l);
    forest_nodes(L, f, n);
    bool *below = NEWN(L->a, bool, n);
    for (int i = 0; i < n; i++) {
        Ask ask = ask_of(L, modes->strings[i]);
        if (ask == ASK_COUNT) {
            forest_leaf(f, i);
            continue;
        }
        int a = find_node(L, &l, l.tree[i], yes[i], "nodes_truenodeids");
        int b = find_node(L, &l, l.tree[i], no[i], "nodes_falsenodeids");
        below[a] = below[b] = true;
        forest_branch(L, f, i, feature[i], ask, 1, &value[i], track && track[i] == 1, a, b);
    }
    find_roots(L, f, &l, below);
    return l;
}

/* Reads weights of leaves; prefix: "target" or "class". seen[k]: of target k; *negative: any is. */
static void listed_weights(Lower *L, Forest *f, const Listed *l, const char *prefix, Aggregate a,
                           bool *seen, bool *negative) {
    int64_t n;
    const double *w = attr_numbers(L, arena_printf(L->a, "%s_weights", prefix), &n);
    if (n < 0) n = 0;
    const int64_t *tree = attr_ints_of(L, arena_printf(L->a, "%s_treeids", prefix), n);
    const int64_t *node = attr_ints_of(L, arena_printf(L->a, "%s_nodeids", prefix), n);
    const int64_t *id = attr_ints_of(L, arena_printf(L->a, "%s_ids", prefix), n);
    for (int64_t i = 0; i < n; i++) {
        int k = find_node(L, l, tree[i], node[i], arena_printf(L->a, "%s_nodeids", prefix));
        if (id[i] < 0 || id[i] >= f->ntarget)
            fail(L, "%s_ids has %lld, which is not one of %d", prefix, (long long)id[i],
                 f->ntarget);
        seen[id[i]] = true;
        *negative |= w[i] < 0;
        if (f->node.p[k].leaf >= 0) give_weight(f, a, f->node.p[k].leaf, id[i], w[i]);
    }
}

/* The type for tests and for sums of weights: float64 for float64 features, else float32. */
static DType forest_type(const Tensor *x) { return x->dtype == DT_F64 ? DT_F64 : DT_F32; }

static Tensor *with_base(Lower *L, const Forest *f, Tensor *s) {
    int64_t n;
    const double *base = attr_numbers(L, "base_values", &n);
    if (n <= 0) return s;
    if (n != f->ntarget)
        fail(L, "base_values has %lld entries for %d targets", (long long)n, f->ntarget);
    return t_bin(L, E_ADD, s, t_floats(L, f->t, n, -1, base));
}

void lower_TreeEnsembleRegressor(Lower *L) {
    static const char *const name[] = {"SUM", "AVERAGE", "MIN", "MAX"};
    static const Aggregate way[] = {AGG_SUM, AGG_AVERAGE, AGG_MIN, AGG_MAX};
    Aggregate a = way[attr_choice(L, "aggregate_function", COUNT(name), name)];
    Tensor *x = feature_rows(L, 0);
    Forest f = {.t = forest_type(x)};
    Listed l = listed_nodes(L, &f);
    forest_weights(L, &f, attr_i(L, "n_targets", 1), absent_of(a));
    bool *seen = NEWN(L->a, bool, f.ntarget), negative = false;
    listed_weights(L, &f, &l, "target", a, seen, &negative);
    Tensor *s = with_base(L, &f, aggregated(L, &f, a, x));
    out(L, 0, t_cast(L, DT_F32, post_targets(L, post_attr(L), s, f.ntarget)));
}

/* ---- the classifier -------------------------------------------------------------------------- */
/* For two classes with weights of only one: the second label if score s [rows] is above 0, or above
 * 0.5 if all weights are probabilities. */
static void label_by(Lower *L, Tensor *s, bool negative, const int64_t *label) {
    out(L, 0, labels_above(L, label, s, negative ? 0 : 0.5));
}

/* Whether, of two classes, only the first has weights; they belong to a single score. */
static bool first_alone(Lower *L, int64_t nclass, int64_t nbase) {
    int n;
    const int64_t *id = attr_ints(L, "class_ids", &n);
    bool alone = nclass == 2 && nbase < 2;
    for (int i = 0; i < n; i++) alone = alone && id[i] == 0;
    return alone;
}

void lower_TreeEnsembleClassifier(Lower *L) {
    int64_t n, nbase;
    const int64_t *label = int_labels(L, "classlabels_int64s", &n);
    const double *base = attr_numbers(L, "base_values", &nbase);
    if (n < 1) fail(L, "attribute classlabels_int64s is missing");
    Tensor *x = feature_rows(L, 0);
    Post post = post_attr(L);
    Forest f = {.t = forest_type(x)};
    Listed l = listed_nodes(L, &f);
    bool *seen = NEWN(L->a, bool, n), negative = false, alone = first_alone(L, n, nbase);
    forest_weights(L, &f, alone ? 1 : n, 0);
    listed_weights(L, &f, &l, "class", AGG_SUM, seen, &negative);
    Tensor *s = forest_scores(L, &f, R_SUM, x);
    if (alone) {
        s = t_column(L, s, 0);
        if (nbase == 1) s = t_bin(L, E_ADD, s, t_scalar(L, f.t, base[0]));
        label_by(L, s, negative, label);
        out(L, 1, t_cast(L, DT_F32, two_scores(L, s, negative, post)));
        return;
    }
    s = with_base(L, &f, s);
    if (n == 2 && seen[0] != seen[1])
        label_by(L, t_column(L, s, seen[1]), negative, label);
    else
        out(L, 0, labels_at(L, label, n, best_class(L, s)));
    out(L, 1, t_cast(L, DT_F32, post_scores(L, post, s)));
}

/* ---- the form of opset 5 --------------------------------------------------------------------- */
/* A tensor attribute as doubles. */
static const double *attr_tensor(Lower *L, const char *name, int64_t *n) {
    const Attr *a = node_attr(L->node, name);
    *n = 0;
    if (!a) return NULL;
    *n = a->t->count;
    DType t = a->t->dtype;
    double *v = NEWN(L->a, double, *n + 1);
    for (int64_t i = 0; i < *n; i++)
        v[i] =
            dtype_is_float(t) ? elem_get_f(t, a->t->data, i) : (double)elem_get_i(t, a->t->data, i);
    return v;
}

/* The node number of a child: a node, or a leaf, numbered after all nodes. */
static int child_of(Lower *L, int64_t id, int64_t is_leaf, int nnode, int nleaf) {
    if (id < 0 || id >= (is_leaf ? nleaf : nnode))
        fail(L, "a child is %s %lld, which is not one of %d", is_leaf ? "leaf" : "node",
             (long long)id, is_leaf ? nleaf : nnode);
    return (int)id + (is_leaf ? nnode : 0);
}

/* The number of values in the next set, which ends with a NaN. */
static int next_set(const double *v, int64_t n, int64_t *at) {
    int64_t begin = *at;
    while (*at < n && !isnan(v[*at])) ++*at;
    return (int)((*at)++ - begin);
}

static void packed_nodes(Lower *L, Forest *f, int nleaf) {
    int64_t n, nsplit, nmember, nmode, at = 0;
    const double *mode = attr_tensor(L, "nodes_modes", &nmode);
    const double *split = attr_tensor(L, "nodes_splits", &nsplit);
    const double *member = attr_tensor(L, "membership_values", &nmember);
    int m;
    const int64_t *feature = attr_ints(L, "nodes_featureids", &m), *track = NULL;
    if (m < 1) fail(L, "nodes_featureids has no entries: there are no trees");
    n = m;
    const int64_t *yes = attr_ints_of(L, "nodes_truenodeids", n);
    const int64_t *no = attr_ints_of(L, "nodes_falsenodeids", n);
    const int64_t *yes_leaf = attr_ints_of(L, "nodes_trueleafs", n);
    const int64_t *no_leaf = attr_ints_of(L, "nodes_falseleafs", n);
    if (nmode != n || nsplit != n)
        fail(L, "nodes_modes and nodes_splits must have %lld entries", (long long)n);
    if (attr_has(L, "nodes_missing_value_tracks_true"))
        track = attr_ints_of(L, "nodes_missing_value_tracks_true", n);
    forest_nodes(L, f, (int)n);
    forest_nodes(L, f, nleaf);
    for (int i = 0; i < nleaf; i++) forest_leaf(f, (int)n + i);
    for (int i = 0; i < n; i++) {
        if (!(mode[i] >= 0 && mode[i] < ASK_COUNT)) fail(L, "nodes_modes has %g", mode[i]);
        Ask ask = (Ask)mode[i];
        const double *v = &split[i];
        int nv = 1;
        if (ask == ASK_MEMBER) {
            if (at >= nmember) fail(L, "membership_values has fewer sets than the nodes need");
            v = &member[at];
            nv = next_set(member, nmember, &at);
        }
        forest_branch(L, f, i, feature[i], ask, nv, v, track && track[i] == 1,
                      child_of(L, yes[i], yes_leaf[i], (int)n, nleaf),
                      child_of(L, no[i], no_leaf[i], (int)n, nleaf));
    }
    const int64_t *root = attr_ints(L, "tree_roots", &m);
    for (int i = 0; i < m; i++) {
        child_of(L, root[i], 0, (int)n, nleaf);
        vec_push(L->a, &f->root, (int)root[i]);
    }
}

void lower_TreeEnsemble(Lower *L) {
    Tensor *x = feature_rows(L, 0);
    Forest f = {.t = wide_float(x->dtype)};
    int64_t how = attr_i(L, "aggregate_function", 1), post = attr_i(L, "post_transform", 0), nleaf;
    const double *w = attr_tensor(L, "leaf_weights", &nleaf);
    if (nleaf > INT32_MAX / 4) unsupported(L, "%lld leaves", (long long)nleaf);
    const int64_t *target = attr_ints_of(L, "leaf_targetids", nleaf);
    packed_nodes(L, &f, (int)nleaf);
    forest_weights(L, &f, attr_i(L, "n_targets", 1), absent_of((Aggregate)how));
    for (int i = 0; i < nleaf; i++) {
        if (target[i] < 0 || target[i] >= f.ntarget)
            fail(L, "leaf_targetids has %lld, which is not one of %d", (long long)target[i],
                 f.ntarget);
        give_weight(&f, (Aggregate)how, i, target[i], w[i]);
    }
    Tensor *s = aggregated(L, &f, (Aggregate)how, x);
    out(L, 0, t_cast(L, x->dtype, post_targets(L, (Post)post, s, f.ntarget)));
}
