/* coded.c: see coded.h. */
#include "utask/coded.h"

#define BLOCK_MOST 4096
#define BLOCK_LEAST 16

/* What t was computed from, over its own axes, through constants that were only moved. */
static Expr *source_of(Cx *c, const Tensor *t) {
    Expr *e = t->folded;
    while (e && e->op == E_LOAD && !e->kind && e->t->kind == TK_CONST && e->t->folded)
        e = e_subst(c, e->t->folded, e->t->rank, e->t->axis, e->a, NULL, NULL);
    return e;
}

/* The parts of e = (code - zero) * scale; zero and scale may be left NULL. */
typedef struct Parts {
    Expr *code, *zero, *scale; /* an integer; float32 */
} Parts;

static bool is_whole(const Expr *e) { return dtype_is_int((DType)e->dtype); }

/* e as a code and a zero point. */
static bool split_zero(Cx *c, Expr *e, Parts *p) {
    if (e->op == E_SUB && e->a[0]->op == E_CAST && is_whole(e->a[0]->a[0])) {
        p->code = e->a[0]->a[0];
        p->zero = e->a[1];
        return true;
    }
    if (e->op != E_CAST || !is_whole(e->a[0])) return false;
    p->code = e->a[0];
    if (p->code->op == E_SUB && !p->code->a[1]->pure) {
        p->zero = e_cast(c, DT_F32, p->code->a[1]);
        p->code = p->code->a[0];
    }
    return true;
}

static bool split(Cx *c, Expr *e, Parts *p) {
    *p = (Parts){0};
    if (e->op != E_MUL) return split_zero(c, e, p);
    for (int i = 0; i < 2; i++) {
        p->scale = e->a[!i];
        if (split_zero(c, e->a[i], p)) return true;
    }
    return false;
}

/* e at position block * b + i of axis x. */
static Expr *in_block(Cx *c, Expr *e, Axis *x, Axis *b, Axis *i, int64_t block) {
    Expr *at = e_add(c, e_muli(c, e_axis(c, b), block), e_axis(c, i));
    return e_subst(c, e, 1, &x, &at, NULL, NULL);
}

/* Whether e is one number for all of a block. */
static bool shared(Cx *c, Expr *e, Axis *x, int64_t n, int64_t block) {
    if (!e || !e_uses_axis(e, x)) return true;
    Axis *b = axis_new(c, e_int(c, n / block)), *i = axis_new(c, e_int(c, block));
    return !e_uses_axis(in_block(c, e, x, b, i, block), i);
}

/* A constant with t's sizes, but n along dim, of e over t's axes; along dim one element of each
 * `block`. NULL: it cannot be computed. */
static Tensor *computed(Cx *c, const Tensor *t, int dim, int64_t n, int64_t block, Expr *e) {
    Expr *size[MAX_RANK], *at[MAX_RANK];
    memcpy(size, t->dim, sizeof size);
    size[dim] = e_int(c, n);
    Tensor *y = tensor_like(c, TK_TE, t, t->rank, size, t->seq);
    y->dtype = (DType)e->dtype;
    for (int d = 0; d < t->rank; d++) at[d] = e_axis(c, y->axis[d]);
    at[dim] = e_muli(c, at[dim], block);
    y->body = e_subst(c, e, t->rank, t->axis, at, NULL, NULL);
    y->data = interp_fold(c, y);
    y->kind = TK_CONST;
    return y->data ? y : NULL;
}

/* Codes from numbers: as few bits as hold all, counted from the least one up; or int8. */
static bool encode(Cx *c, Coded *k, const Const *from) {
    const int16_t *v = from->data;
    int64_t low = INT16_MAX, high = INT16_MIN;
    for (int64_t i = 0; i < from->count; i++) {
        if (v[i] < low) low = v[i];
        if (v[i] > high) high = v[i];
    }
    if (high - low > 255 || !from->count) return false;
    k->bits = high - low < 4 ? 2 : high - low < 16 ? 4 : 8;
    const bool plain = k->bits == 8 && low >= INT8_MIN && high <= INT8_MAX;
    k->middle = plain ? 0 : (float)-low;
    Const *to = arena_memdup(c->a, from, sizeof *from);
    uint8_t *code = arena_alloc(c->a, (size_t)from->count);
    for (int64_t i = 0; i < from->count; i++) code[i] = (uint8_t)(plain ? v[i] : v[i] - low);
    to->dtype = plain ? DT_I8 : DT_U8;
    to->data = code;
    k->codes = to;
    return true;
}

const Coded *coded_find(Cx *c, const Tensor *t, int dim) {
    Parts p;
    int64_t n, block;
    Expr *e = source_of(c, t);
    if (!e || t->dtype != DT_F32 || !split(c, e, &p) || !e_is_int(t->dim[dim], &n) || n < 2)
        return NULL;
    Axis *x = t->axis[dim];
    for (int64_t next = BLOCK_MOST, last = block = n;; block = next, next /= 2) {
        if (block < BLOCK_LEAST && block != n) return NULL;
        if (block > last || n % block) continue;
        if (shared(c, p.zero, x, n, block) && shared(c, p.scale, x, n, block)) break;
    }
    Coded *k = NEW(c->a, Coded);
    k->dim = dim;
    k->block = block;
    const Tensor *codes = computed(c, t, dim, n, 1, e_cast(c, DT_I16, p.code));
    if (!codes || !encode(c, k, codes->data)) return NULL;
    k->scale = computed(c, t, dim, n / block, block, p.scale ? p.scale : e_num(c, DT_F32, 1));
    if (!k->scale) return NULL;
    if (!p.zero) return k;
    Expr *zero = e_add(c, p.zero, e_num(c, DT_F32, k->middle));
    k->zero = computed(c, t, dim, n / block, block, zero);
    return k->zero ? k : NULL;
}
