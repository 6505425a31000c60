/* attention.h: what the attention operators of all domains share. Tensors of queries, keys and
 * values are [batch, heads, length, size]; query heads in groups of A->members share a key-value
 * head. */
#ifndef BRAID_OPS_ATTENTION_H
#define BRAID_OPS_ATTENTION_H

#include "utask/ops/nn.h"

typedef struct Attn {
    Tensor *q, *k, *v; /* [batch, heads, length, size]; k and v with the past */
    DType io, w, soft; /* type of Y; type of the products; type of the softmax */
    bool grouped;      /* head axes are (group, member) */
    Expr *batch, *heads, *groups, *members, *qlen, *kvlen, *size, *vsize;
} Attn;

/* The size of a head in x [batch, length, heads * size], checked to divide; x is `what`. */
Expr *attn_head_size(Lower *L, Tensor *x, Expr *heads, const char *what);
/* Fills the sizes of A from q, k, v and checks them against each other. */
void attn_sizes(Lower *L, Attn *A);
/* Query head of the head axes that start at t's axis `at`. */
Expr *attn_query_head(Lower *L, const Attn *A, Tensor *t, int at);
/* [batch, groups, members, x, y] as [batch, heads, x, y]; t itself when A is not grouped. */
Tensor *attn_merged_heads(Lower *L, const Attn *A, Tensor *t);
/* `given`, or 1 / sqrt(size) if that is 0; of type t. */
Expr *attn_scale(Lower *L, DType t, Expr *size, double given);
/* scale * sum_d q[b,h,i,d] k[b,g,j,d] as [batch, heads, qlen, kvlen], of type A->w; the head axis
 * is split in two when A is grouped. */
Tensor *attn_scores(Lower *L, const Attn *A, Expr *scale);
/* cap * tanh(s / cap); s itself for a cap that is not positive. */
Tensor *attn_softcapped(Lower *L, Tensor *s, double cap);
Tensor *attn_softmax(Lower *L, const Attn *A, Tensor *s);
/* sum_j p[b,h,i,j] v[b,g,j,e], as [batch, heads, qlen, vsize], or packed [batch, qlen, heads *
 * vsize]; p has the form that attn_scores returns. */
Tensor *attn_weighted_values(Lower *L, const Attn *A, Tensor *p, bool packed);

/* ---- the operators of com.microsoft ---------------------------------------------------------- */

/* The score of excluded keys. It is finite, so a row with no other score becomes a mean. */
#define ATTN_LOWEST (-3.40282346638528859812e38)

/* Heads `from`, from + size, … of the last axis of x [batch, length, …] as [batch, heads, length,
 * size], plus bias [bias_from + …] where that is not NULL. The axis must be long enough. */
Tensor *attn_heads_at(Lower *L, Tensor *x, Expr *heads, Expr *size, Expr *from, Tensor *bias,
                      Expr *bias_from);
/* s plus a bias [batch or 1, heads or 1, qlen, width], for keys below width; s itself for NULL. */
Tensor *attn_biased(Lower *L, const Attn *A, Tensor *s, Tensor *bias, Expr *width);
/* Which keys a query attends to, and what happens to the other scores. */
typedef struct AttnMask {
    Tensor *t;   /* lengths or a mask, as Attention's mask_index; NULL: none */
    Expr *past;  /* length of the past */
    double fill; /* added to masked scores */
    bool causal; /* keys after the query get ATTN_LOWEST */
} AttnMask;

/* q, k, v of A from the projection qkv [batch, length, all heads of queries, keys and values], by
 * num_heads and qkv_hidden_sizes. */
void attn_projected_heads(Lower *L, Tensor *qkv, Attn *A);
/* q, k, v of A in all forms that MultiHeadAttention allows for them and for a bias. */
void attn_queries_keys_values(Lower *L, Attn *A, Tensor *q, Tensor *k, Tensor *v, Tensor *bias);
/* Checks that the past, [batch, heads, length, size], maybe with an axis in front, differs from
 * what is new in length only; heads: the attribute that has their number. */
void attn_check_past(Lower *L, const Tensor *past, const Tensor *fresh, const char *heads);
/* Checks that lengths or counts, one per sample, are in [0, most]. */
void check_lengths(Lower *L, Tensor *t, Expr *most, const char *what);
/* Attention over q, k, v of A, which include the past: [batch, queries, heads * value size]. Output
 * `qk` (-1: none) becomes the scores. */
Tensor *attn_attended(Lower *L, Attn *A, AttnMask M, Tensor *bias, int qk);

/* x [batch, heads, length, size], or [batch, length, heads, size] with `at` 1 instead of 2 as the
 * axis of positions, with the first `rot` elements of each head rotated in pairs. cos and sin are
 * [batch, length, rot / 2], or with ids (integers [batch, length], checked) [positions, rot / 2].
 * Pairs are neighbours (inter) or half of rot apart. Shapes are checked. */
Tensor *t_rotary(Lower *L, Tensor *x, int at, Tensor *const cache[2], Tensor *ids, Expr *rot,
                 bool inter);

#endif
