/* loss.c: negative log likelihood and cross entropy. */
#include <string.h>

#include "utask/ops/nn.h"

/* A loss per sample, and its weight in a mean (NULL: 1 each). */
typedef struct Loss {
    Tensor *value, *weight;
} Loss;

/* -weight[class] * logp[n, class, …] for each sample; 0 for the ignored class. All tensors have one
 * float type; `weight` may be NULL. */
static Loss sample_loss(Lower *L, Tensor *logp, Tensor *target, Tensor *weight) {
    Cx *c = L->cx;
    int rank = logp->rank - 1;
    if (rank < 1) fail(L, "the scores must have at least rank 2, not %d", logp->rank);
    if (target->rank != rank)
        fail(L, "labels of rank %d for scores of rank %d", target->rank, logp->rank);
    for (int i = 0; i < rank; i++)
        check_eq(L, target->dim[i], logp->dim[i ? i + 1 : 0],
                 "the labels do not fit the scores (axis %d)", i);
    if (weight)
        check_shape(L, weight, 1, &logp->dim[1], "the weights",
                    "there must be one weight per class");
    bool has_ignore = attr_has(L, "ignore_index");
    Expr *ignore = e_int(c, attr_i(L, "ignore_index", -1)), *zero = e_num(c, logp->dtype, 0);
    Loss r = {0};
    for (int pass = 0; pass < 2; pass++) {
        if (pass == 0 && !weight && !has_ignore) continue;
        Tensor *t = te_begin(L, logp->dtype, rank, target->dim);
        Expr *at[MAX_RANK], *idx[MAX_RANK];
        for (int i = 0; i < rank; i++) at[i] = idx[i ? i + 1 : 0] = ax(L, t, i);
        Expr *label = e_cast(c, DT_I64, ld(L, target, at));
        Expr *class = idx[1] = index_checked(L, label, logp->dim[1], false,
                                             "a label as class: axis 1 of %s", in_text(L, 0));
        Expr *w = weight ? ld(L, weight, &class) : e_num(c, logp->dtype, 1), *v = w;
        if (pass) v = e_un(c, E_NEG, ld(L, logp, idx));
        if (pass && weight) v = e_mul(c, v, w);
        if (has_ignore) v = e_sel(c, e_eq(c, label, ignore), zero, v);
        *(pass ? &r.value : &r.weight) = te_end(L, t, v);
    }
    return r;
}

static Tensor *sum_all(Lower *L, Tensor *t) {
    return t_reduce(L, R_SUM, t, axes_from(0, t->rank), false);
}

/* The loss reduced as the `reduction` attribute says. */
static Tensor *reduced_loss(Lower *L, Loss loss) {
    enum { MEAN, SUM, NONE };
    static const char *const ways[] = {"mean", "sum", "none"};
    int how = attr_choice(L, "reduction", COUNT(ways), ways);
    if (how == NONE) return loss.value;
    Tensor *sum = sum_all(L, loss.value);
    if (how == SUM) return sum;
    DType t = sum->dtype;
    Tensor *n = loss.weight ? sum_all(L, loss.weight)
                            : t_uniform(L, e_cast(L->cx, t, count(L, loss.value)));
    return t_bin(L, E_DIV, sum, n);
}

static Tensor *loss_of(Lower *L, Tensor *logp) {
    Tensor *weight = in(L, 2);
    if (weight) weight = t_cast(L, logp->dtype, weight);
    return reduced_loss(L, sample_loss(L, logp, in(L, 1), weight));
}

void lower_NegativeLogLikelihoodLoss(Lower *L) {
    Tensor *x = in(L, 0);
    out(L, 0, t_cast(L, x->dtype, loss_of(L, t_cast(L, wide_float(x->dtype), x))));
}

void lower_SoftmaxCrossEntropyLoss(Lower *L) {
    Tensor *x = in(L, 0);
    if (x->rank < 2) fail(L, "the scores must have at least rank 2, not %d", x->rank);
    Tensor *logp = t_softmax(L, t_cast(L, wide_float(x->dtype), x), 1, true);
    out(L, 0, t_cast(L, x->dtype, loss_of(L, logp)));
    if (wants_out(L, 1)) out(L, 1, t_cast(L, x->dtype, logp));
}
