/* rotary.c: rotary position embedding. */
#include "utask/ops/attention.h"
#include "utask/ops/size.h"

/* The cos or sin for pair p at (batch, position). */
static Expr *cache_at(Lower *L, Tensor *cache, Tensor *ids, Expr *batch, Expr *pos, Expr *p) {
    if (!ids) return ld(L, cache, (Expr *[]){batch, pos, p});
    Expr *id = e_cast(L->cx, DT_I64, ld(L, ids, (Expr *[]){batch, pos}));
    id = index_checked(L, id, cache->dim[0], false, "axis 0 of the caches (position_ids)");
    return ld(L, cache, (Expr *[]){id, p});
}

static void check_caches(Lower *L, Tensor *x, int at, Tensor *const cache[2], Tensor *ids,
                         Expr *half) {
    for (int i = 0; i < 2; i++) {
        Tensor *t = cache[i];
        if (t->rank != (ids ? 2 : 3)) fail(L, "a cache has rank %d, not %d", t->rank, ids ? 2 : 3);
        check_eq(L, t->dim[t->rank - 1], half, "a cache does not fit the rotated size");
        if (ids) continue;
        check_eq(L, t->dim[0], x->dim[0], "a cache does not fit the batch");
        check_eq(L, t->dim[1], x->dim[at], "a cache does not fit the positions");
    }
    if (!ids) return;
    check_eq(L, cache[1]->dim[0], cache[0]->dim[0], "the caches have different lengths");
    if (ids->rank != 2) fail(L, "position_ids has rank %d, it must have rank 2", ids->rank);
    check_eq(L, ids->dim[0], x->dim[0], "position_ids does not fit the batch");
    check_eq(L, ids->dim[1], x->dim[at], "position_ids does not fit the positions");
}

Tensor *t_rotary(Lower *L, Tensor *x, int at, Tensor *const cache[2], Tensor *ids, Expr *rot,
                 bool inter) {
    Cx *c = L->cx;
    Tensor *part[2];
    Expr *size = x->dim[3], *dim[4], *idx[4];
    if (rot != size) check_le(L, rot, size, "rotary_embedding_dim is larger than a head");
    Expr *half = divided_dim(L, rot, e_int(c, 2), "head");
    check_caches(L, x, at, cache, ids, half);
    memcpy(dim, x->dim, sizeof dim);
    dim[3] = half;
    for (int i = 0; i < 2; i++) { /* real and imaginary parts */
        Tensor *o = te_indexed(L, x->dtype, 4, dim, idx);
        Expr *p = idx[3], *cs = cache_at(L, cache[0], ids, idx[0], idx[at], p);
        Expr *sn = cache_at(L, cache[1], ids, idx[0], idx[at], p);
        idx[3] = inter ? e_muli(c, p, 2) : p;
        Expr *x1 = ld(L, x, idx);
        idx[3] = inter ? e_addi(c, idx[3], 1) : e_add(c, p, half);
        Expr *x2 = ld(L, x, idx);
        part[i] = te_end(L, o,
                         i == 0 ? e_sub(c, e_mul(c, cs, x1), e_mul(c, sn, x2))
                                : e_add(c, e_mul(c, sn, x1), e_mul(c, cs, x2)));
    }
    Tensor *y;
    if (inter) {
        for (int i = 0; i < 2; i++) part[i] = t_unsqueeze(L, part[i], 4);
        dim[3] = rot;
        y = t_reshape(L, t_concat(L, 2, part, 4), 4, dim);
    } else {
        y = t_concat(L, 2, part, 3);
    }
    if (rot == size) return y;
    part[0] = y;
    part[1] = t_slice(L, x, 3, rot, e_int(c, 1), size_uni(L, "rest", e_sub(c, size, rot)));
    return t_concat(L, 2, part, 3);
}

/* rotary_embedding_dim, which must be even; 0 if the whole head is rotated. */
static int64_t rotated_size(Lower *L) {
    int64_t rd = attr_i(L, "rotary_embedding_dim", 0);
    if (rd < 0 || rd > (1 << 30) || rd % 2)
        fail(L, "rotary_embedding_dim must be even and not negative, not %lld", (long long)rd);
    return rd;
}

/* Input 0 split into heads, as t_rotary takes it. */
typedef struct Heads {
    Tensor *x;
    Expr *rot; /* number of rotated elements of a head */
    int at;    /* axis of positions: 1 if the input has rank 3 */
} Heads;

static Heads begin_heads(Lower *L) {
    Tensor *x = in(L, 0);
    if (x->rank != 3 && x->rank != 4)
        fail(L, "the input has rank %d, it must have rank 3 or 4", x->rank);
    return (Heads){.x = x, .at = x->rank == 3 ? 1 : 2};
}

/* [batch, length, heads * size] as [batch, length, heads, size] */
static Tensor *with_heads(Lower *L, Tensor *x, Expr *heads, Expr *size) {
    return t_reshape(L, x, 4, (Expr *[]){x->dim[0], x->dim[1], heads, size});
}

static void out_rotated(Lower *L, const Heads *h, Tensor *const cache[2], Tensor *ids) {
    bool inter = attr_i(L, "interleaved", 0) != 0;
    Tensor *y = t_rotary(L, h->x, h->at, cache, ids, h->rot, inter);
    out(L, 0, h->at == 1 ? t_reshape(L, y, 3, in(L, 0)->dim) : y);
}

void lower_RotaryEmbedding(Lower *L) {
    Tensor *cache[2] = {in(L, 1), in(L, 2)};
    int64_t heads = attr_i(L, "num_heads", 0), rd = rotated_size(L);
    Heads h = begin_heads(L);
    if (h.at == 1) {
        if (heads < 1 || heads > (1 << 30))
            fail(L, "num_heads must be positive for an input of rank 3, not %lld",
                 (long long)heads);
        Expr *n = e_int(L->cx, heads);
        h.x = with_heads(L, h.x, n, divided_dim(L, h.x->dim[2], n, "last axis"));
    }
    h.rot = rd ? e_int(L->cx, rd) : h.x->dim[3];
    out_rotated(L, &h, cache, in(L, 3));
}

/* ---- of com.microsoft ------------------------------------------------------------------------ */

/* Positions [batch, length], given as such or as a single number, each row's first position. */
static Tensor *positions(Lower *L, Tensor *ids, Expr *batch, Expr *length) {
    if (ids->rank == 2) return ids;
    if (ids->rank > 2) fail(L, "position_ids must have rank 0 to 2, not %d", ids->rank);
    check_eq(L, count(L, ids), e_int(L->cx, 1), "position_ids of rank %d must have one element",
             ids->rank);
    Tensor *t = te_begin(L, DT_I64, 2, (Expr *[]){batch, length});
    return te_end(L, t, e_add(L->cx, ax(L, t, 1), uni_i64(L, ids, 0)));
}

/* Without rotary_embedding_dim, the caches [positions, rot / 2] give the size of a head. */
static Heads read_heads(Lower *L, Tensor *cache) {
    Cx *c = L->cx;
    int64_t heads = attr_i(L, "num_heads", 0), rd = rotated_size(L);
    Heads h = begin_heads(L);
    check_rank(L, cache, 2, "cos_cache");
    if (heads < 0 || heads > (1 << 30))
        fail(L, "num_heads must not be negative, it is %lld", (long long)heads);
    if (attr_f(L, "scale", 1) != 1)
        unsupported(L, "a scale of %g; only 1 is supported", attr_f(L, "scale", 1));
    if (h.at == 1 && rd && !heads) fail(L, "num_heads must be given with rotary_embedding_dim");
    h.rot = rd ? e_int(c, rd) : e_muli(c, cache->dim[1], 2);
    if (h.at == 1) {
        Expr *n = e_int(c, heads), *size = h.rot;
        if (heads) {
            size = divided_dim(L, h.x->dim[2], n, "last axis");
        } else {
            check(L, e_lt(c, e_int(c, 0), size), "the caches are empty");
            n = divided_dim(L, h.x->dim[2], size, "last axis");
        }
        h.x = with_heads(L, h.x, n, size);
    }
    if (!rd) {
        check_eq(L, h.rot, h.x->dim[3], "the caches do not fit the size of a head");
        h.rot = h.x->dim[3];
    }
    return h;
}

void lower_MsRotaryEmbedding(Lower *L) {
    Tensor *cache[2] = {in(L, 2), in(L, 3)};
    Heads h = read_heads(L, cache[0]);
    out_rotated(L, &h, cache, positions(L, in(L, 1), h.x->dim[0], h.x->dim[h.at]));
}

/* Which of the three positions (time, height, width) pair p uses. Sections are one after the other,
 * or interleaved up to a section's length, with time for the rest. */
static Expr *section_of(Lower *L, const int64_t *section, Expr *p) {
    Cx *c = L->cx;
    Expr *stream[3] = {e_int(c, 0), e_int(c, 1), e_int(c, 2)};
    if (!attr_i(L, "mrope_layout", 0)) {
        Expr *behind = e_le(c, e_int(c, section[0] + section[1]), p);
        Expr *first = e_lt(c, p, e_int(c, section[0]));
        return e_sel(c, first, stream[0], e_sel(c, behind, stream[2], stream[1]));
    }
    Expr *turn = e_bin(c, E_MOD, p, e_int(c, 3)), *v = stream[0];
    for (int i = 1; i < 3; i++) {
        Expr *mine = e_and(c, e_eq(c, turn, stream[i]), e_lt(c, p, e_int(c, 3 * section[i])));
        v = e_sel(c, mine, stream[i], v);
    }
    return v;
}

void lower_MRotaryEmbedding(Lower *L) {
    Cx *c = L->cx;
    Tensor *ids = in(L, 1), *cache[2] = {in(L, 2), in(L, 3)}, *own[2];
    Heads h = read_heads(L, cache[0]);
    int n;
    const int64_t *section = attr_ints(L, "mrope_section", &n);
    if (n != 3) fail(L, "mrope_section must have 3 elements, not %d", n < 0 ? 0 : n);
    for (int i = 0; i < 3; i++)
        if (section[i] < 0 || section[i] > (1 << 28))
            fail(L, "mrope_section[%d] must not be negative, it is %lld", i, (long long)section[i]);
    Expr *half = divided_dim(L, h.rot, e_int(c, 2), "head");
    check_eq(L, half, e_int(c, section[0] + section[1] + section[2]),
             "mrope_section must add up to half of what is rotated");
    Expr *dim[3] = {h.x->dim[0], h.x->dim[h.at], half}, *want[3] = {e_int(c, 3), dim[0], dim[1]};
    check_shape(L, ids, 3, want, "position_ids", "position_ids must be [3, batch, length]");
    for (int i = 0; i < 2; i++) {
        if (cache[i]->rank != 2) fail(L, "a cache has rank %d, not 2", cache[i]->rank);
        check_eq(L, cache[i]->dim[1], half, "a cache does not fit the rotated size");
        Tensor *t = te_begin(L, cache[i]->dtype, 3, dim);
        Expr *b = ax(L, t, 0), *s = ax(L, t, 1), *p = ax(L, t, 2);
        Expr *id = ld(L, ids, (Expr *[]){section_of(L, section, p), b, s});
        id = index_checked(L, id, cache[i]->dim[0], false, "axis 0 of the caches (position_ids)");
        own[i] = te_end(L, t, ld(L, cache[i], (Expr *[]){id, p}));
    }
    out_rotated(L, &h, own, NULL);
}
