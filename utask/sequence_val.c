/* sequence_val.c: sequence values during lowering: what is known about their elements. */
#include "utask/sequence_val.h"

Val *seq_val(Lower *L, DType t, Tensor *blob, Expr *len) {
    Val *v = NEW(L->a, Val);
    v->kind = VT_SEQUENCE;
    v->t = blob;
    v->elem_dtype = t;
    v->elem_rank = -1;
    v->len = len;
    return v;
}

void seq_copy_elems(Val *dst, const Val *src) {
    dst->elem_rank = src->elem_rank;
    dst->elem_mask = src->elem_mask;
    dst->elem_none = src->elem_none;
    memcpy(dst->elem_dim, src->elem_dim, sizeof dst->elem_dim);
}

uint32_t seq_elem_ranks(const Val *v) {
    return v->elem_rank >= 0 ? UINT32_C(1) << v->elem_rank : v->elem_mask;
}

void seq_join_elems(Val *dst, const Val *a, const Val *b) {
    if (a->elem_none) {
        seq_copy_elems(dst, b);
    } else if (b->elem_none) {
        seq_copy_elems(dst, a);
    } else if (a->elem_rank >= 0 && a->elem_rank == b->elem_rank) {
        dst->elem_none = false;
        dst->elem_rank = a->elem_rank;
        for (int i = 0; i < a->elem_rank; i++)
            dst->elem_dim[i] = a->elem_dim[i] == b->elem_dim[i] ? a->elem_dim[i] : NULL;
    } else {
        uint32_t ra = seq_elem_ranks(a), rb = seq_elem_ranks(b);
        dst->elem_none = false;
        dst->elem_rank = -1;
        dst->elem_mask = ra && rb ? ra | rb : 0;
        memset(dst->elem_dim, 0, sizeof dst->elem_dim);
    }
}

bool seq_same_elems(const Val *a, const Val *b) {
    if (a->elem_none || b->elem_none) return a->elem_none == b->elem_none;
    if (a->elem_rank != b->elem_rank || seq_elem_ranks(a) != seq_elem_ranks(b)) return false;
    for (int i = 0; i < a->elem_rank; i++)
        if (a->elem_dim[i] != b->elem_dim[i]) return false;
    return true;
}

Val seq_elems_of(const Tensor *t) {
    Val v = {.kind = VT_SEQUENCE, .elem_dtype = t->dtype, .elem_rank = t->rank};
    v.elem_mask = t->rank < 0 ? t->rank_mask : 0;
    for (int i = 0; i < t->rank; i++) v.elem_dim[i] = t->dim[i];
    return v;
}

static bool is_later(const void *nsym, const Sym *s) { return s->id >= *(const int *)nsym; }

void seq_leave_scope(Val *v, int nsym) {
    for (int i = 0; i < v->elem_rank; i++)
        if (v->elem_dim[i] && any_sym(v->elem_dim[i], is_later, &nsym)) v->elem_dim[i] = NULL;
}

Tensor *seq_body(Lower *L, const char *name, int nin, Tensor *const *ins, int nparam,
                 Expr *const *param, const char *fault) {
    Stmt *s = ext_begin(L, name, nin, ins, nparam, param);
    ext_blob(L, s);
    ext_end(L, s, fault);
    return ext_result(L, s, 0);
}

Tensor *seq_construct(Lower *L, DType t, int n, Tensor *const *items) {
    Expr *param[] = {e_int(L->cx, n), e_int(L->cx, t)};
    return seq_body(L, "seq_construct", n, items, 2, param, "the items do not fit a sequence");
}

Val *seq_empty(Lower *L, DType t) {
    Val *v = seq_val(L, t, seq_construct(L, t, 0, NULL), e_int(L->cx, 0));
    v->elem_none = true;
    v->item = NEWN(L->a, Tensor *, 1);
    return v;
}
