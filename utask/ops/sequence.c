/* sequence.c: sequences, packed as blobs (codegen/text/extern/seq.inc), and optionals. */
#include "utask/ops/sequence.h"

#include "utask/ops/size.h"

/* The highest rank considered for unknown items, as for inputs without a shape. */
#define UNKNOWN_RANK_MAX 6

/* The longest sequence whose elements are tracked. */
#define ITEMS_MAX 32

/* ---- building blocks ------------------------------------------------------------------------- */
/* The number of elements if they are known, else -1. */
static int items(const Val *v) {
    int64_t n;
    return v->item && e_is_int(v->len, &n) ? (int)n : -1;
}

/* The index of position pos among n elements and `more` positions after them; -1: unknown. */
static int item_at(Expr *pos, int n, int more) {
    int64_t k;
    if (!e_is_int(pos, &k)) return -1;
    if (k < 0) k += n;
    return k >= 0 && k < n + more ? (int)k : -1;
}

/* Checks that a position is in [-n, n], or in [-n, n) if `item`. */
static void check_pos(Lower *L, Expr *pos, Expr *n, bool item) {
    Cx *c = L->cx;
    Expr *low = e_le(c, e_un(c, E_NEG, n), pos);
    check(L, e_and(c, low, item ? e_lt(c, pos, n) : e_le(c, pos, n)),
          "position %s is outside [-%s, %s%c of the sequence", said(L, pos), said(L, n), said(L, n),
          item ? ')' : ']');
}

Val *seq_insert(Lower *L, const Val *seq, Tensor *t, Expr *pos) {
    if (seq->elem_dtype != DT_NONE && seq->elem_dtype != t->dtype)
        fail(L, "a %s tensor does not belong in a sequence of %s", dtype_name(t->dtype),
             dtype_name(seq->elem_dtype));
    check_pos(L, pos, seq->len, false);
    Tensor *ins[] = {seq->t, t};
    Tensor *blob = seq_body(L, "seq_insert", 2, ins, 1, &pos, "the position is out of range");
    Val item = seq_elems_of(t), *v = seq_val(L, t->dtype, blob, e_addi(L->cx, seq->len, 1));
    seq_join_elems(v, seq, &item);
    int n = items(seq), at = n < 0 || n >= ITEMS_MAX ? -1 : item_at(pos, n, 1);
    if (at < 0) return v;
    v->item = NEWN(L->a, Tensor *, n + 1);
    for (int i = 0; i <= n; i++)
        v->item[i] = i < at ? seq->item[i] : i == at ? t : seq->item[i - 1];
    return v;
}

/* Adds to s the symbols that bx_seq_report fills, and an output of the element type. Its dims are
 * `known` where not NULL, else those symbols; with rank -1 its rank is known only at run time. */
static void reported_out(Lower *L, Stmt *s, DType t, int rank, Expr *const *known, uint32_t ranks) {
    Expr *dim[MAX_RANK], *rank_e = NULL;
    for (int i = 0; i < (rank < 0 ? MAX_RANK : rank); i++) {
        dim[i] = ext_sym(L, s, "dim");
        if (rank >= 0 && known[i]) dim[i] = known[i];
    }
    if (rank < 0) rank_e = ext_sym(L, s, "rank");
    Tensor *o = ext_out(L, s, t, rank < 0 ? MAX_RANK : rank, dim);
    if (rank >= 0) return;
    o->rank = -1;
    o->rank_e = rank_e;
    o->rank_mask = ranks ? ranks : (UINT32_C(2) << UNKNOWN_RANK_MAX) - 1;
}

/* Appends s, whose output 0 comes from reported_out. */
static Tensor *reported_end(Lower *L, Stmt *s, const char *fault) {
    ext_end(L, s, fault);
    Tensor *t = ext_result(L, s, 0);
    if (t->rank < 0 && !(t->rank_mask >> (UNKNOWN_RANK_MAX + 1)))
        check_le(L, t->rank_e, e_int(L->cx, UNKNOWN_RANK_MAX),
                 "an item of undeclared rank has more than %d dimensions", UNKNOWN_RANK_MAX);
    return t;
}

Tensor *seq_at(Lower *L, const Val *seq, Expr *pos, int want) {
    Expr *const none[MAX_RANK] = {0};
    bool known = seq->elem_rank >= 0;
    int rank = known ? seq->elem_rank : want;
    uint32_t ranks = seq_elem_ranks(seq);
    if (seq->elem_dtype == DT_NONE) fail(L, "the element type of the sequence is not known");
    Expr *param[] = {pos, e_int(L->cx, rank)};
    check_pos(L, pos, seq->len, true);
    Tensor *blob = seq->t;
    int n = items(seq), at = n < 0 ? -1 : item_at(pos, n, 0);
    if (at >= 0) return seq->item[at];
    Stmt *s = ext_begin(L, "seq_at", 1, &blob, 2, param);
    reported_out(L, s, seq->elem_dtype, rank, known ? seq->elem_dim : none, ranks);
    return reported_end(L, s, "the item is not of the declared type");
}

/* ---- sequence operators ---------------------------------------------------------------------- */
Val *seq_in(Lower *L, int i) {
    Val *v = in_val(L, i);
    if (!v || v->kind != VT_SEQUENCE) fail(L, "input %d is not a sequence", i);
    return v;
}

/* Input i as a position; dflt when it is absent. */
static Expr *pos_in(Lower *L, int i, Expr *dflt) {
    if (!has_in(L, i) && dflt) return dflt;
    Tensor *t = in_needed(L, i);
    check_eq(L, count(L, t), e_int(L->cx, 1), "the position must have one element");
    return uni_i64(L, t, 0);
}

void lower_SequenceEmpty(Lower *L) {
    int64_t t = attr_i(L, "dtype", DT_F32);
    if (t < 0 || t > INT32_MAX || !dtype_supported((int)t))
        unsupported(L, "sequences of %s", dtype_name((int)t));
    out_val(L, 0, seq_empty(L, (DType)t));
}

void lower_SequenceConstruct(Lower *L) {
    int n = L->node->nin;
    Tensor **x = NEWN(L->a, Tensor *, n);
    for (int i = 0; i < n; i++) {
        x[i] = in_needed(L, i);
        if (x[i]->dtype != x[0]->dtype)
            fail(L, "inputs are of different types, %s and %s", dtype_name(x[0]->dtype),
                 dtype_name(x[i]->dtype));
    }
    DType t = x[0]->dtype;
    Val *v = seq_val(L, t, seq_construct(L, t, n, x), e_int(L->cx, n));
    for (int i = 0; i < n; i++) {
        Val item = seq_elems_of(x[i]);
        if (i == 0)
            seq_copy_elems(v, &item);
        else
            seq_join_elems(v, v, &item);
    }
    if (n <= ITEMS_MAX) v->item = x;
    out_val(L, 0, v);
}

void lower_SequenceInsert(Lower *L) {
    Val *v = seq_in(L, 0);
    out_val(L, 0, seq_insert(L, v, in_needed(L, 1), pos_in(L, 2, v->len)));
}

void lower_SequenceErase(Lower *L) {
    Val *v = seq_in(L, 0);
    Expr *pos = pos_in(L, 1, e_int(L->cx, -1));
    check_pos(L, pos, v->len, true);
    Tensor *blob = seq_body(L, "seq_erase", 1, &v->t, 1, &pos, "the position is out of range");
    Val *r = seq_val(L, v->elem_dtype, blob, e_addi(L->cx, v->len, -1));
    seq_copy_elems(r, v);
    int n = items(v), at = n < 0 ? -1 : item_at(pos, n, 0);
    if (at >= 0) {
        r->item = NEWN(L->a, Tensor *, n);
        for (int i = 0; i < n - 1; i++) r->item[i] = v->item[i < at ? i : i + 1];
    }
    out_val(L, 0, r);
}

void lower_SequenceAt(Lower *L) {
    Val *v = seq_in(L, 0);
    out(L, 0, seq_at(L, v, pos_in(L, 1, NULL), declared_rank(L->node->out[0])));
}

void lower_SequenceLength(Lower *L) {
    Val *v = seq_in(L, 0);
    out(L, 0, t_from_uniform(L, DT_I64, 0, NULL, &v->len));
}

/* Whether all elements of t, even an unknown number, are known to be the same integer. */
static bool all_equal(Tensor *t, int64_t *v) {
    int64_t n = count_const(t), x;
    t = tensor_root(t);
    if (t->kind == TK_TE && t->body->op == E_CONST) return e_is_int(t->body, v);
    if (n < 1 || !const_elem(t, 0, v)) return false;
    for (int64_t i = 1; i < n; i++)
        if (!const_elem(t, i, &x) || x != *v) return false;
    return true;
}

/* The `len` parts of x along axis, with the sizes in `split` or of `chunk` elements; NULL if their
 * number is unknown or too large. drop: remove the axis. */
static Tensor **pieces(Lower *L, Tensor *x, int axis, Tensor *split, Expr *chunk, Expr *len,
                       bool drop) {
    Cx *c = L->cx;
    int64_t n;
    Expr *extent = x->dim[axis], *from = e_int(c, 0), *one = e_int(c, 1);
    if (!e_is_int(len, &n) || n > ITEMS_MAX) return NULL;
    Tensor **item = NEWN(L->a, Tensor *, n ? n : 1);
    for (int i = 0; i < n; i++) {
        Expr *size = split ? size_uni(L, "split", uni_i64(L, split, i))
                           : kmin(c, chunk, e_sub(c, extent, from));
        item[i] = t_slice(L, x, axis, from, one, size);
        if (drop) item[i] = t_squeeze(L, item[i], axis);
        from = e_add(c, from, size);
    }
    if (split) check_eq(L, from, extent, "split does not add up to the size of the axis");
    return item;
}

void lower_SplitToSequence(Lower *L) {
    Cx *c = L->cx;
    Tensor *x = in_needed(L, 0), *ins[] = {x, NULL};
    if (x->rank == 0) fail(L, "a scalar cannot be split");
    int axis = norm_axis(L, attr_i(L, "axis", 0), x->rank);
    Expr *chunk = e_int(c, 1), *extent = x->dim[axis], *len, *piece = NULL;
    bool drop = false;
    if (has_in(L, 1)) {
        Tensor *split = in(L, 1);
        if (split->rank > 1) fail(L, "split has rank %d, not 0 or 1", split->rank);
        if (split->rank == 1)
            ins[1] = split;
        else
            chunk = uni_i64(L, split, 0);
    } else {
        drop = attr_i(L, "keepdims", 1) == 0;
    }
    if (ins[1]) {
        int64_t each;
        len = ins[1]->dim[0];
        if (all_equal(ins[1], &each)) piece = e_int(c, each);
    } else {
        int64_t d, k;
        check_lt(L, e_int(c, 0), chunk, "split must be positive");
        len = let(L, "pieces", e_div(c, e_addi(c, e_add(c, extent, chunk), -1), chunk), 0);
        if (e_is_int(chunk, &k) && (k == 1 || (e_is_int(extent, &d) && d % k == 0))) piece = chunk;
    }
    Expr *param[] = {e_int(c, axis), chunk, e_int(c, drop)};
    Val *v = seq_val(L, x->dtype,
                     seq_body(L, "seq_split", 2, ins, 3, param,
                              "split does not add up to the size of axis \4: piece \2 has length "
                              "\1 and \3 elements are left"),
                     len);
    v->elem_rank = 0;
    for (int i = 0; i < x->rank; i++)
        if (i != axis || !drop) v->elem_dim[v->elem_rank++] = i == axis ? piece : x->dim[i];
    v->item = pieces(L, x, axis, ins[1], chunk, len, drop);
    out_val(L, 0, v);
}

void lower_ConcatFromSequence(Lower *L) {
    Cx *c = L->cx;
    Val *v = seq_in(L, 0);
    int64_t fresh = attr_i(L, "new_axis", 0), axis = attr_i(L, "axis", 0);
    if (!attr_has(L, "axis")) fail(L, "the attribute axis is missing");
    if (fresh != 0 && fresh != 1) fail(L, "new_axis is neither 0 nor 1");
    if (v->elem_dtype == DT_NONE) fail(L, "the element type of the sequence is not known");
    int rank = v->elem_rank >= 0 ? v->elem_rank + (int)fresh : declared_rank(L->node->out[0]);
    uint32_t ranks = seq_elem_ranks(v) << fresh & ((UINT32_C(2) << MAX_RANK) - 1);
    Expr *known[MAX_RANK] = {0};
    if (v->elem_rank >= 0) {
        if (rank > MAX_RANK) unsupported(L, "tensors of rank %d", rank);
        axis = norm_axis(L, axis, rank);
        for (int i = 0; i < rank; i++)
            if (i != axis) known[i] = v->elem_dim[fresh && i > axis ? i - 1 : i];
        if (fresh) known[axis] = v->len;
    }
    int n = items(v);
    if (n > 0 && v->elem_rank >= 0) { /* all have one rank: a Concat of them */
        Tensor **part = NEWN(L->a, Tensor *, n);
        for (int i = 0; i < n; i++)
            part[i] = fresh ? t_unsqueeze(L, v->item[i], (int)axis) : v->item[i];
        out(L, 0, t_concat(L, n, part, (int)axis));
        return;
    }
    Expr *param[] = {e_int(c, axis), e_int(c, fresh), e_int(c, rank)};
    check(L, e_lt(c, e_int(c, 0), v->len), "the sequence has no items to join");
    Stmt *s = ext_begin(L, "seq_concat", 1, &v->t, 3, param);
    reported_out(L, s, v->elem_dtype, rank, known, ranks);
    out(L, 0,
        reported_end(
            L, s,
            "the items do not fit together: item \1 has size \2 and item 0 size \3 (axis \4)"));
}

/* ---- optionals ------------------------------------------------------------------------------- */
void lower_Optional(Lower *L) {
    Val *v = NEW(L->a, Val);
    v->kind = VT_OPTIONAL;
    v->inner = in_val(L, 0);
    if (v->inner && v->inner->kind == VT_OPTIONAL) fail(L, "an optional cannot hold an optional");
    if (!v->inner && !attr_has(L, "type"))
        fail(L, "neither an input nor the attribute type is given");
    v->has = e_bool(L->cx, v->inner != NULL);
    out_val(L, 0, v);
}

void lower_OptionalHasElement(Lower *L) {
    Val *v = in_val(L, 0);
    Expr *has = v && v->kind == VT_OPTIONAL ? v->has : e_bool(L->cx, v != NULL);
    out(L, 0, t_from_uniform(L, DT_BOOL, 0, NULL, &has));
}

void lower_OptionalGetElement(Lower *L) {
    Val *v = in_val(L, 0);
    if (!v) fail(L, "the input is missing");
    if (v->kind == VT_OPTIONAL) {
        check(L, v->has, "the optional has no element");
        if (!v->inner) fail(L, "the optional has no element");
        v = v->inner;
    }
    out_val(L, 0, v);
}
