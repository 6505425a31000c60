/* ms_gates.c: com.microsoft's gates and mixtures of branches, as ONNX Runtime's documentation
 * (ContribOperators.md) defines them. They are computed in float32 unless that says otherwise. */
#include <string.h>

#include "utask/ops/elementwise.h"
#include "utask/ops/matmul.h"
#include "utask/ops/nn.h"
#include "utask/ops/size.h"

/* v rounded to t, in v's type */
static Expr *rounded(Cx *c, DType t, Expr *v) {
    DType w = (DType)v->dtype;
    return e_cast(c, w, e_cast(c, t, v));
}

static void same_shape(Lower *L, const Tensor *t, const Tensor *x, const char *what) {
    const char *fmt = arena_printf(L->a, "%s must have the shape of the input (axis %%d)", what);
    check_shape(L, t, x->rank, x->dim, what, fmt);
}

/* z sigmoid(z), z = scale x, each step rounded */
void lower_ScaledSiLU(Lower *L) {
    Cx *c = L->cx;
    Tensor *x = in(L, 0), *scale = in(L, 1);
    DType w = wide_float(x->dtype);
    Expr *v, *s = e_num(c, w, attr_f(L, "alpha", 1)), *one = e_int(c, 1);
    Tensor *y = te_like(L, x->dtype, x, &v);
    if (scale) {
        check_eq(L, count(L, scale), one, "scale must have one element");
        s = e_cast(c, w, ld(L, t_reshape(L, scale, 0, NULL), NULL));
    }
    Expr *z = rounded(c, x->dtype, e_mul(c, e_cast(c, w, v), s));
    Expr *gate = rounded(c, x->dtype, e_un(c, E_SIGMOID, z));
    out(L, 0, te_end(L, y, e_cast(c, x->dtype, e_mul(c, z, gate))));
}

/* scale act(gate) x, x divided by its root mean square over groups of the length of scale */
void lower_GatedRMSNorm(Lower *L) {
    Cx *c = L->cx;
    Tensor *x = in(L, 0), *scale = in(L, 1), *gate = in(L, 2);
    if (x->rank < 1) fail(L, "the input is a scalar");
    check_rank(L, scale, 1, "scale");
    same_shape(L, gate, x, "gate");
    DType w = wide_float(x->dtype);
    Expr *n = scale->dim[0], *dim[MAX_RANK];
    if (x->rank == MAX_RANK) fail(L, "the input must have a rank below %d", MAX_RANK);
    memcpy(dim, x->dim, sizeof dim);
    int last = x->rank - 1;
    dim[last] = divided_dim(L, x->dim[last], n, "last axis");
    dim[last + 1] = n;
    Tensor *f = t_reshape(L, t_cast(L, w, x), x->rank + 1, dim);
    f = t_rms_normalized(L, f, 1u << (last + 1), attr_f(L, "epsilon", 1e-5), NULL);
    f = t_reshape(L, t_bin(L, E_MUL, f, t_cast(L, w, scale)), x->rank, x->dim);
    Act act = strcmp(attr_s(L, "activation", "silu"), "sigmoid") ? ACT_SWISH : ACT_SIGMOID;
    Expr *g, *idx[MAX_RANK];
    Tensor *y = te_like(L, x->dtype, gate, &g);
    all_axes(L, y, idx);
    Expr *v = e_mul(c, ld(L, f, idx), act_expr(c, act, e_cast(c, w, g), 1, 0));
    out(L, 0, te_end(L, y, e_cast(c, x->dtype, v)));
}

/* x + y gate, the product rounded */
void lower_GatedAdd(Lower *L) {
    Cx *c = L->cx;
    Tensor *x = in(L, 0), *other = in(L, 1), *gate = in(L, 2);
    if (has_in(L, 3)) unsupported(L, "gate_weight");
    if (x->rank < 1) fail(L, "the input is a scalar");
    same_shape(L, other, x, "Y");
    check_rank(L, gate, x->rank, "gate");
    for (int i = 0; i < x->rank; i++)
        check_eq(L, gate->dim[i], i == x->rank - 1 ? e_int(c, 1) : x->dim[i],
                 "gate must have one element per row of the input (axis %d)", i);
    DType w = wide_float(x->dtype);
    Expr *v, *idx[MAX_RANK];
    Tensor *y = te_like(L, x->dtype, x, &v);
    all_axes(L, y, idx);
    Expr *p = e_cast(c, w, ld(L, other, idx));
    idx[x->rank - 1] = e_int(c, 0);
    p = rounded(c, x->dtype, e_mul(c, p, e_cast(c, w, ld(L, gate, idx))));
    out(L, 0, te_end(L, y, e_cast(c, x->dtype, e_add(c, e_cast(c, w, v), p))));
}

/* decay_scale softplus(a + dt_bias), and sigmoid(b) */
void lower_LinearAttentionGate(Lower *L) {
    Cx *c = L->cx;
    Tensor *a = in(L, 0), *bias = in(L, 1), *scale = in(L, 2), *b = in(L, 3);
    check_rank(L, a, 3, "a");
    per_element(L, bias, a, "dt_bias");
    per_element(L, scale, a, "decay_scale");
    Expr *v;
    Tensor *t = te_like(L, a->dtype, a, &v);
    Expr *h = ax(L, t, 2), *x = e_add(c, e_cast(c, DT_F32, v), ld(L, bias, &h));
    x = e_mul(c, ld(L, scale, &h), act_expr(c, ACT_SOFTPLUS, x, 0, 0));
    out(L, 0, te_end(L, t, e_cast(c, a->dtype, x)));
    if (!wants_out(L, 1)) return;
    if (!b) fail(L, "output beta needs input b");
    same_shape(L, b, a, "b");
    t = te_like(L, b->dtype, b, &v);
    v = e_un(c, E_SIGMOID, e_cast(c, DT_F32, v));
    out(L, 1, te_end(L, t, e_cast(c, b->dtype, v)));
}

/* ---- branches -------------------------------------------------------------------------------- */

/* Streams [rows, branches, size] in float32 of x [.., branches, size] or [.., branches * size]. */
typedef struct Streams {
    Tensor *x;
    Expr *rows, *branches, *size;
    int lead; /* number of leading axes */
    bool flat;
} Streams;

static Streams streams(Lower *L, Tensor *x) {
    Cx *c = L->cx;
    Streams s = {0};
    int64_t n = attr_i(L, "num_branches", 0);
    if (n < 0 || n > INT32_MAX)
        fail(L, "num_branches must not be negative, it is %lld", (long long)n);
    s.flat = n > 0;
    s.lead = x->rank - (s.flat ? 1 : 2);
    if (s.lead < 0)
        fail(L, "the input must have at least rank %d, not %d", x->rank - s.lead, x->rank);
    s.branches = s.flat ? e_int(c, n) : x->dim[s.lead];
    s.size = s.flat ? divided_dim(L, x->dim[s.lead], s.branches, "last axis") : x->dim[s.lead + 1];
    s.rows = e_int(c, 1);
    for (int i = 0; i < s.lead; i++) s.rows = e_mul(c, s.rows, x->dim[i]);
    s.x =
        t_reshape(L, t_cast(L, wide_float(x->dtype), x), 3, (Expr *[]){s.rows, s.branches, s.size});
    return s;
}

/* Gates as [rows, branches, 1 or size], from [.., branches], [.., branches, 1 or size] or [..,
 * branches * size]. */
static Tensor *gates(Lower *L, const Streams *s, Tensor *x, Tensor *t, const char *what) {
    Cx *c = L->cx;
    if (t->rank != s->lead + 1 && t->rank != s->lead + 2)
        fail(L, "%s must have rank %d or %d, not %d", what, s->lead + 1, s->lead + 2, t->rank);
    for (int i = 0; i < s->lead; i++)
        check_eq(L, t->dim[i], x->dim[i], "%s does not fit the input (its axis %d)", what, i);
    Expr *n = t->dim[s->lead], *wide = e_int(c, 1);
    if (t->rank == s->lead + 2) {
        wide = t->dim[s->lead + 1];
        check_eq(L, n, s->branches, "%s must have a gate per branch", what);
    } else if (n != s->branches) {
        wide = divided_dim(L, n, s->branches, what);
    }
    check(L, e_or(c, e_eq(c, wide, e_int(c, 1)), e_eq(c, wide, s->size)),
          "%s must have a gate per branch, or per element of one", what);
    return t_reshape(L, t_cast(L, s->x->dtype, t), 3, (Expr *[]){s->rows, s->branches, wide});
}

void lower_BranchwiseRMSNorm(Lower *L) {
    Cx *c = L->cx;
    Tensor *x = in(L, 0), *scale = in(L, 1);
    Streams s = streams(L, x);
    Tensor *y = t_rms_normalized(L, s.x, 1u << 2, attr_f(L, "epsilon", 1e-5), NULL);
    if (scale) {
        Expr *all = e_mul(c, s.branches, s.size), *n = count(L, scale), *one = e_int(c, 1);
        if (scale->rank != 1 && scale->rank != 2)
            fail(L, "scale must have rank 1 or 2, not %d", scale->rank);
        Expr *whole = e_eq(c, n, all);
        check(L,
              scale->rank == 1 ? e_or(c, whole, e_eq(c, n, s.size))
                               : e_and(c, whole, e_eq(c, scale->dim[0], s.branches)),
              "scale must be [branches, size] or [size]");
        bool each = scale->rank == 2 || n != s.size;
        Expr *rows = each ? size_uni(L, "rows", e_bin(c, E_FDIV, n, e_max(c, s.size, one))) : one;
        Expr *dim[2] = {rows, s.size};
        y = t_bin(L, E_MUL, y, t_reshape(L, t_cast(L, y->dtype, scale), 2, dim));
    }
    out(L, 0, t_reshape(L, t_cast(L, x->dtype, y), x->rank, x->dim));
}

/* reduction_scale sum_c x[c, h] pre_mix[c, h] */
void lower_HyperConnectionPreMix(Lower *L) {
    Tensor *x = in(L, 0);
    Streams s = streams(L, x);
    Tensor *p = t_bin(L, E_MUL, s.x, gates(L, &s, x, in(L, 1), "pre_mix"));
    Tensor *y = t_reduce(L, R_SUM, p, 1u << 1, false);
    y = t_bin(L, E_MUL, y, t_scalar(L, y->dtype, attr_f(L, "reduction_scale", 1)));
    Expr *dim[MAX_RANK];
    memcpy(dim, x->dim, sizeof dim);
    dim[s.lead] = s.size;
    out(L, 0, t_reshape(L, t_cast(L, x->dtype, y), s.lead + 1, dim));
}

/* sum_c stream_mix[c, k] x[c, h] + post_mix[k, h] block_output[h] */
void lower_HyperConnectionPostMix(Lower *L) {
    Tensor *x = in(L, 0), *block = in(L, 1), *mix = in(L, 3);
    Streams s = streams(L, x);
    DType w = s.x->dtype;
    check_rank(L, block, s.lead + 1, "block_output");
    for (int i = 0; i <= s.lead; i++)
        check_eq(L, block->dim[i], i < s.lead ? x->dim[i] : s.size,
                 "block_output does not fit the streams (its axis %d)", i);
    Tensor *y = s.x;
    if (mix) {
        check_rank(L, mix, s.lead + 2, "stream_mix");
        for (int i = 0; i < mix->rank; i++)
            check_eq(L, mix->dim[i], i < s.lead ? x->dim[i] : s.branches,
                     "stream_mix does not fit the streams (its axis %d)", i);
        Expr *dim[3] = {s.rows, s.branches, s.branches};
        y = t_matmul(L, t_swap_last(L, t_reshape(L, t_cast(L, w, mix), 3, dim)), y);
    }
    Tensor *b = t_reshape(L, t_cast(L, w, block), 3, (Expr *[]){s.rows, e_int(L->cx, 1), s.size});
    Tensor *more = t_bin(L, E_MUL, gates(L, &s, x, in(L, 2), "post_mix"), b);
    out(L, 0, t_reshape(L, t_cast(L, x->dtype, t_bin(L, E_ADD, y, more)), x->rank, x->dim));
}
