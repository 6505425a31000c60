/* elementwise.c: finds operators that need only the flattened elements of tensors whose rank is
 * known only at run time, so that they need not be lowered for each rank. */
#include "utask/ops/elementwise.h"
#include "utask/lower_internal.h"

/* Of inputs of one shape, and of scalars; all outputs have that shape. */
static bool is_by_element(const OpRow *op) {
    const char *rule = op_ranks(op);
    return rule && (*rule == 'e' || *rule == 'b');
}

/* Whether the node's output depends only on the elements of input 0, not on its shape. */
static bool is_by_count(Lower *L, const Node *n) {
    const char *op = n->op->name;
    const Attr *keep = node_attr(n, "keepdims"), *noop = node_attr(n, "noop_with_empty_axes");
    if (n->op->domain[0]) return false;
    if (!strcmp(op, "Size")) return true;
    if (!strncmp(op, "Reduce", 6))
        return (n->nin < 2 || !n->in[1]) && keep && keep->kind == AT_INT && !keep->i &&
               !(noop && noop->kind == AT_INT && noop->i);
    if (strcmp(op, "Reshape") != 0) return false;
    Val *shape = val_of(L, n->in[1]); /* a 0 in it copies a size */
    if (shape->kind != VT_TENSOR || shape->t->rank != 1) return false;
    int64_t v, len = count_const(shape->t);
    for (int64_t i = 0; i < len && i < MAX_RANK; i++)
        if (!const_elem(shape->t, i, &v) || v == 0) return false;
    return len >= 0 && len <= MAX_RANK;
}

static bool same_shape(const Tensor *a, const Tensor *b) {
    return a->rank_e == b->rank_e && !memcmp(a->dim, b->dim, sizeof a->dim);
}

static void row_view(Lower *L, Refine *k, Tensor *t) {
    k->from = t;
    k->row = true;
    k->to = rank_view(L, t, 1);
    k->to->dim[0] = let(L, "n", tensor_count(L->cx, t), 0);
}

bool in_a_row(Lower *L, const Node *n, Refine *flat, int *nflat, bool *same) {
    const Tensor *like = NULL;
    *nflat = 0;
    *same = is_by_element(n->op);
    if (!*same) {
        Val *v = n->nin > 0 && n->in[0] ? val_of(L, n->in[0]) : NULL;
        if (!v || v->kind != VT_TENSOR || v->t->rank >= 0 || !is_by_count(L, n)) return false;
        row_view(L, &flat[(*nflat)++], v->t);
        return true;
    }
    for (int i = 0; i < n->nin; i++) {
        Val *v = n->in[i] ? val_of(L, n->in[i]) : NULL;
        if (!v) continue;
        if (v->kind != VT_TENSOR) return false;
        if (v->t->rank >= 0) continue;
        if (like && !same_shape(like, v->t)) return false;
        like = v->t;
        if (*nflat == ROW_MAX) return false;
        flat[(*nflat)++].from = v->t;
    }
    if (!like) return false;
    int least = __builtin_ctz(like->rank_mask);
    for (int i = 0; i < n->nin; i++) {
        Tensor *t = n->in[i] ? val_of(L, n->in[i])->t : NULL;
        if (t && t->rank >= 0 && (count_const(t) != 1 || t->rank > 1 || t->rank > least))
            return false;
    }
    for (int i = 0; i < *nflat; i++) row_view(L, &flat[i], flat[i].from);
    return true;
}

Tensor *out_of_row(Lower *L, Tensor *row, const Tensor *like) {
    Tensor *v = tensor_new(L->cx, TK_VIEW, row->dtype, -1, like->dim);
    v->base = row->kind == TK_VIEW ? row->base : row;
    v->rank_e = like->rank_e;
    v->rank_mask = like->rank_mask;
    memcpy(v->alt, like->alt, sizeof v->alt);
    v->name = row->name;
    v->path = row->path;
    v->seq = L->seq;
    return v;
}
