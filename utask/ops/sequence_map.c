/* sequence_map.c: lowers SequenceMap to a loop over the elements of sequences. */
#include "utask/ops/sequence.h"
#include "utask/ops/size.h"

void lower_SequenceMap(Lower *L) {
    const Node *node = L->node;
    const Attr *body = node_attr(node, "body");
    if (!body || body->kind != AT_GRAPH) fail(L, "the attribute body is missing");
    const Region *r = body->g;
    int nin = node->nin, nout = node->nout;
    if (r->nparam != nin || r->nresult != nout)
        fail(L, "the body has %d inputs and %d outputs, not %d and %d", r->nparam, r->nresult, nin,
             nout);
    int nsym = L->cx->next_sym;
    Val **arg = NEWN(L->a, Val *, nin), **res = NEWN(L->a, Val *, nout);
    Val **acc = NEWN(L->a, Val *, nout);
    Expr *trips = seq_in(L, 0)->len;
    for (int i = 0; i < nout; i++) {
        const VType *t = r->result_type[i];
        bool typed = t && t->kind == VT_TENSOR && dtype_supported(t->dtype);
        acc[i] = seq_empty(L, typed ? t->dtype : DT_NONE);
    }
    Val **const outs = L->out;
    LoopB *b = loop_begin(L, trips);
    Expr *iter = loop_iter(b);
    for (int i = 0; i < nout; i++) {
        Tensor *phi = loop_carry(L, b, acc[i]->t);
        acc[i] = seq_val(L, acc[i]->elem_dtype, phi, iter);
    }
    for (int i = 0; i < nin; i++) {
        arg[i] = in_val(L, i);
        if (!arg[i]) fail(L, "input %d is missing", i);
        if (arg[i]->kind == VT_SEQUENCE)
            arg[i] = val_tensor(L, seq_at(L, arg[i], iter, declared_rank(r->param[i])));
    }
    lower_region(L, r, nin, arg, nout, res);
    L->node = node;
    L->out = outs;
    for (int i = 0; i < nout; i++) {
        if (res[i]->kind != VT_TENSOR) fail(L, "output %d of the body is not a tensor", i);
        Val *grown = seq_insert(L, acc[i], res[i]->t, iter);
        loop_next(L, b, acc[i]->t, grown->t);
        acc[i]->elem_dtype = res[i]->t->dtype;
        Val item = seq_elems_of(res[i]->t);
        seq_copy_elems(acc[i], &item);
        acc[i]->len = trips;
        seq_leave_scope(acc[i], nsym);
    }
    loop_end(L, b);
    for (int i = 0; i < nout; i++) out_val(L, i, acc[i]);
}
