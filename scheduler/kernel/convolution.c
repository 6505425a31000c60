/* convolution.c: see convolution.h; finding such sums, the tile, and the blocks. */
#include "scheduler/kernel/convolution.h"
#include "scheduler/cost/cost.h"
#include "scheduler/cost/decide.h"

#define NEAR_KB                                                                                    \
    34 /* of the packed operand, next to the positions' own, in the first-level cache              \
        */
#define FAR_BYTES (512 << 10) /* of the positions' operand in the second-level cache */
#define ACROSS_MOST 64        /* positions along m of members that are stored across */
#define KEPT_BYTES (64 << 10) /* of sums between two blocks of a reduction */

/* ---- finding --------------------------------------------------------------------------------- */
/* Whether s->vec can be the packed operand: a constant that of the domain moves along v, and
 * windows along axes of groups, all of it by known strides. */
static bool read_packed(const Convolution *k, ConvSum *s) {
    const Kernel *g = k->g;
    Expr *rest;
    int64_t along[MAX_RANK];
    if (s->vec->t->kind != TK_CONST || s->vec->t->coded) return false; /* codes stay codes */
    if (!e_strides(g->c, s->vec_flat, g->naxis, g->axis, along, &rest)) return false;
    s->ngroup = 0;
    for (int i = 0; i < g->naxis - 1; i++) {
        if (!along[i]) continue;
        const int64_t n = axis_size(g->axis[i], 0);
        if (i >= g->naxis - 3 || s->n == 1 || n < 1) return false;
        s->group[s->ngroup] = g->axis[i];
        s->groups[s->ngroup] = n;
        s->group_stride[s->ngroup++] = along[i];
    }
    s->v_stride = along[g->naxis - 1];
    if (!s->v_stride || !e_strides(g->c, rest, s->n, s->axis, s->stride, &rest)) return false;
    s->length = 1;
    for (int i = 0; i < s->n; i++) {
        s->extent[i] = axis_size(s->axis[i], 0);
        if (s->extent[i] < 1) return false;
        s->length *= s->extent[i];
    }
    return e_is_int(rest, &s->base);
}

/* Takes a reduction in the wanted form. */
static bool take(void *user, Expr *e) {
    Convolution *k = user;
    const Kernel *g = k->g;
    SumProduct p;
    if (k->n == CONV_SUMS || e->naxis > CONV_REDUCE || e->dtype != DT_F32) return false;
    if (!product_of(e, &p) || !product_plain(&p) || !product_affine(g->c, &p, g->naxis, g->axis))
        return false;
    AxisRole role = product_role(&p, k->v);
    if (role != ROLE_M && role != ROLE_N) return false;
    int side = role == ROLE_N;
    ConvSum *s = &k->s[k->n++];
    *s = (ConvSum){.reduce = e,
                   .vec = p.load[side],
                   .sca = p.load[!side],
                   .vec_flat = p.flat[side],
                   .sca_flat = p.flat[!side],
                   .n = e->naxis,
                   .axis = reduce_order(g->a, e)};
    for (int i = 0; i < g->n; i++)
        if (s->sca->t == g->t[i]) return false;
    return read_packed(k, s);
}

static bool recognize_last(Convolution *k) {
    Kernel *g = k->g;
    if (g->naxis < 2 || g->n > 4) return false;
    k->v = g->axis[g->naxis - 1];
    if (!e_is_int(k->v->extent, &k->nlane) || k->nlane * 2 < g->lanes) return false;
    int64_t grain;
    if (k->v == g->split && (!e_is_int(g->grain, &grain) || grain % g->lanes))
        return false; /* whole vectors */
    k->n = 0;
    Map *seen = map_new(g->a);
    for (int i = 0; i < g->n; i++)
        if (!all_reductions(seen, g->value[i], take, k)) return false;
    return k->n > 0;
}

/* Whether an operand of a sum below e lies together along x: then x can be laid over lanes
 * (contract.c). */
static bool together(const Convolution *k, Map *seen, Expr *e, Axis *x, bool sum) {
    if (!(e->flags & EF_LOAD) || !map_add(seen, (uint64_t)e->id + 1)) return false;
    if (e->op == E_LOAD) {
        Expr *coef = sum ? e_coef(k->g->c, flat_of(k->g->c, e), x) : NULL;
        return coef && e_is_ival(coef, 1);
    }
    for (int i = 0; i < e->n; i++)
        if (together(k, seen, e->a[i], x, sum || e->op == E_REDUCE)) return true;
    return false;
}

bool conv_recognize(Convolution *k) {
    Kernel *g = k->g;
    if (recognize_last(k)) return true;
    if (g->naxis < 2) return false;
    Axis *kept[MAX_RANK], *last = g->axis[g->naxis - 1];
    memcpy(kept, g->axis, sizeof kept);
    for (int i = 0; i < g->n; i++)
        if (together(k, map_new(g->a), g->value[i], last, false)) return false;
    /* Results that keep the model's order are stored one by one. */
    for (int i = g->naxis - 2; i >= 0; i--) {
        memmove(g->axis + i, kept + i + 1, sizeof *kept * (size_t)(g->naxis - i - 1));
        g->axis[g->naxis - 1] = kept[i];
        if (recognize_last(k)) return true;
        memcpy(g->axis, kept, sizeof kept);
    }
    return false;
}

/* A product of two matrices. */
static bool is_plain(const Convolution *k) {
    bool plain = k->g->naxis == 2;
    for (int i = 0; i < k->n; i++) plain = plain && k->s[i].n == 1;
    return plain;
}

/* ---- shape ----------------------------------------------------------------------------------- */
void conv_tile(Convolution *k) {
    Kernel *g = k->g;
    int vec = g->lanes, sums = vec >= 16 ? 24 : 12;
    k->m = g->axis[g->naxis - 2];
    k->b = g->naxis >= 3 ? g->axis[g->naxis - 3] : NULL;
    int64_t nvec = div_up(k->nlane, vec), most = vec >= 16 ? 4 : 2;
    k->nv = (int)div_up(nvec, div_up(nvec, most));
    k->vt = k->nv * vec;
    k->rows = sums / k->nv;
}

/* Bytes of the packed operand that stay next to the positions' own. */
static int64_t choose_near(const Convolution *k) {
    const Kernel *g = k->g;
    double ns = cost_group_ns(g->p, g->s, g->p->schedule->units);
    int64_t longest = 0;
    for (int i = 0; i < k->n; i++)
        if (k->s[i].length > longest) longest = k->s[i].length;
    /* Only what does not fit is cut. */
    int64_t near = NEAR_KB;
    if (longest * k->vt * 4 > NEAR_KB / 2 << 10)
        near = decide_value(g->p, X_NEAR, g->s, 3,
                            (Way[]){{NEAR_KB, ns}, {NEAR_KB / 2, ns}, {2 * NEAR_KB, ns}});
    return near << 10;
}

static void choose_blocks(Convolution *k, int64_t near) {
    Kernel *g = k->g;
    int64_t far = 1;
    near /= k->vt * 4;
    for (int i = 0; i < k->n; i++) {
        ConvSum *s = &k->s[i];
        int64_t inner = s->length;
        s->cut = 0;
        s->chunk = s->extent[0];
        if (s->length > near) {
            while (s->cut < s->n - 1 && inner / s->extent[s->cut] > near)
                inner /= s->extent[s->cut++];
            inner /= s->extent[s->cut];
            int64_t chunks = div_up(s->extent[s->cut] * inner, near);
            s->chunk = div_up(s->extent[s->cut], chunks);
            if (inner == 1) s->chunk = div_up(s->chunk, 16) * 16;
            k->kept = true;
        }
        int64_t row = s->extent[s->n - 1] * 4; /* what a position reads, about */
        if (row > far) far = row;
    }
    k->block = FAR_BYTES / far;
    int64_t kept = KEPT_BYTES / (k->vt * 4 * k->n);
    if (k->block > kept) k->block = kept;
    if (k->block < k->rows) k->block = k->rows;
    int64_t m;
    bool known = e_is_int(k->m->extent, &m);
    for (int i = 0; i < g->n; i++)
        if (!e_by_one(g->c, g->position[i], k->v) && e_by_one(g->c, g->position[i], k->m))
            k->across |= 1u << i;
    k->m_block = known && m < k->block ? m : k->block;
    if (k->across && k->m_block > ACROSS_MOST) k->m_block = ACROSS_MOST;
    k->even = known && m <= k->m_block && k->m != g->split && k->m != g->strip ? m : 0;
}

/* If nothing is known of two axes of positions, the longer one is m: that is seen when it runs. Of
 * windows both are an image's, and about as long. */
static void choose_turned(Convolution *k, int64_t near) {
    if (!k->b || axis_size(k->b, -1) >= 0 || axis_size(k->m, -1) >= 0) return;
    for (int i = 0; i < k->n; i++)
        if (k->s[i].n > 1) return;
    Convolution *turned = arena_memdup(k->g->a, k, sizeof *k);
    turned->m = k->b;
    turned->b = k->m;
    turned->across = 0;
    choose_blocks(turned, near);
    k->turned = turned;
}

/* ---- packing --------------------------------------------------------------------------------- */
int64_t conv_vectors(const Convolution *k) { return tile_vectors(k->g, k->v, k->nlane, k->nv); }

static const Packed *pack(const Convolution *k, const ConvSum *s) {
    const Tensor *t = s->vec->t;
    Packed p = {.what = t->name,
                .nsource = 1,
                .nouter = s->ngroup + 1 + s->n,
                .ninner = 1,
                .line = k->g->lanes,
                .tile = s->ngroup,
                .limit = k->nlane,
                .dtype = tensor_values(t)};
    PackSource *q = &p.source[0];
    *q = (PackSource){.data = t->data, .base = s->base};
    int d = 0;
    for (; d < s->ngroup; d++) {
        p.extent[d] = s->groups[d];
        q->stride[d] = s->group_stride[d];
    }
    p.extent[d] = conv_vectors(k);
    q->stride[d++] = k->g->lanes * s->v_stride;
    for (int i = 0; i < s->n; i++) {
        p.extent[d] = s->extent[i];
        q->stride[d++] = s->stride[i];
    }
    p.extent[d] = k->g->lanes;
    q->stride[d] = s->v_stride;
    return packed_intern(k->g->p, &p);
}

int conv_sizes(const Convolution *k, int64_t even, int *sizes) {
    int64_t tiles = even ? div_up(even, k->rows) : 0;
    int n = 0;
    sizes[n++] = tiles ? (int)div_up(even, tiles) : k->rows;
    if (tiles ? even % tiles : k->rows > 1) sizes[n++] = sizes[0] - 1;
    for (int r = 16; r >= 1 && !tiles; r /= 2)
        if (r < k->rows - 1) sizes[n++] = r;
    return n;
}

bool kernel_convolution(Kernel *g) {
    Convolution *k = NEW(g->a, Convolution);
    k->g = g;
    if (!conv_recognize(k) || is_plain(k)) return false;
    kernel_collapse(g);
    if (!conv_recognize(k) || is_plain(k)) return false;
    conv_tile(k);
    const int64_t near = choose_near(k);
    choose_blocks(k, near);
    for (int i = 0; i < k->n; i++) k->s[i].packed = pack(k, &k->s[i]);
    choose_turned(k, near);
    g->kind = KERNEL_CONVOLUTION;
    g->convolution = k;
    return true;
}
