/* convolution.c: see convolution.h; finding such sums, the tile, and the blocks. */
#include "scheduler/kernel/convolution.h"
#include "scheduler/cost/cost.h"
#include "scheduler/cost/decide.h"

#define NEAR_KB                                                                                    \
    34 /* of the packed operand, next to the positions' own, in the first-level cache              \
        */
#define FAR_BYTES (512 << 10) /* of the positions' operand in the second-level cache */
#define KEPT_BYTES (64 << 10) /* of sums between two blocks of a reduction */

/* ---- finding --------------------------------------------------------------------------------- */
static bool affine_in(Cx *c, Expr *flat, const Kernel *g, const Expr *reduce) {
    Expr *coef, *rest = flat;
    if (flat->flags & (EF_LOAD | EF_GUARD | EF_REDUCE)) return false;
    for (int i = 0; i < g->naxis; i++)
        if (!e_affine(c, rest, g->axis[i], &coef, &rest) || (coef->flags & EF_AXIS)) return false;
    for (int i = 0; i < reduce->naxis; i++)
        if (!e_affine(c, rest, reduce->raxis[i], &coef, &rest) || (coef->flags & EF_AXIS))
            return false;
    return !(rest->flags & EF_AXIS);
}

Expr *conv_coef(Cx *c, Expr *flat, Axis *x) {
    Expr *coef, *rest;
    return e_affine(c, flat, x, &coef, &rest) ? coef : NULL;
}

/* Whether `load` can be the packed operand: a constant that of the domain moves along v only, all
 * of it by known strides. */
static bool read_packed(Convolution *k, ConvSum *s, Expr *load) {
    Kernel *g = k->g;
    Cx *c = g->c;
    Expr *rest, *coef;
    int64_t x;
    if (load->t->kind != TK_CONST) return false;
    rest = flat_of(c, load);
    for (int i = 0; i < g->naxis; i++) {
        if (!e_affine(c, rest, g->axis[i], &coef, &rest) || !e_is_int(coef, &x)) return false;
        if (g->axis[i] == k->v)
            s->v_stride = x;
        else if (x)
            return false;
    }
    if (!s->v_stride) return false;
    s->length = 1;
    for (int i = 0; i < s->n; i++) {
        if (!e_affine(c, rest, s->axis[i], &coef, &rest) || !e_is_int(coef, &s->stride[i]) ||
            !e_is_int(s->axis[i]->extent, &s->extent[i]) || s->extent[i] < 1)
            return false;
        s->length *= s->extent[i];
    }
    return e_is_int(rest, &s->base);
}

static bool read_sum(Convolution *k, ConvSum *s, Expr *e) {
    Cx *c = k->g->c;
    *s = (ConvSum){.reduce = e, .n = e->naxis};
    if (e->kind != R_SUM || e->dtype != DT_F32 || e->naxis > CONV_REDUCE) return false;
    const Expr *p = e->a[0];
    if (p->op != E_MUL || p->a[0]->op != E_LOAD || p->a[1]->op != E_LOAD) return false;
    for (int i = 0; i < 2; i++)
        if (!affine_in(c, flat_of(c, p->a[i]), k->g, e)) return false;
    /* Short loops outside, the longest one inside. */
    memcpy(s->axis, e->raxis, sizeof *s->axis * (size_t)s->n);
    for (int i = 1; i < s->n; i++)
        for (int j = i; j > 0; j--) {
            int64_t x, y;
            if (!e_is_int(s->axis[j - 1]->extent, &x) || !e_is_int(s->axis[j]->extent, &y))
                return false;
            if (x <= y) break;
            Axis *t = s->axis[j];
            s->axis[j] = s->axis[j - 1];
            s->axis[j - 1] = t;
        }
    for (int side = 0; side < 2; side++) {
        s->vec = p->a[side];
        s->sca = p->a[!side];
        s->vec_flat = flat_of(c, s->vec);
        s->sca_flat = flat_of(c, s->sca);
        s->v_stride = 0;
        if (read_packed(k, s, s->vec) && e_is_ival(conv_coef(c, s->sca_flat, k->v), 0)) return true;
    }
    return false;
}

/* All reductions of the group in the wanted form; false: there is another. */
static bool find(Convolution *k, Map *seen, Expr *e) {
    if (!(e->flags & EF_REDUCE) || map_geti(seen, (uint64_t)e->id + 1)) return true;
    map_seti(seen, (uint64_t)e->id + 1, e);
    if (e->op == E_REDUCE) {
        if (k->n == CONV_SUMS || !read_sum(k, &k->s[k->n], e)) return false;
        for (int i = 0; i < k->g->n; i++)
            if (k->s[k->n].sca->t == k->g->t[i]) return false;
        k->n++;
        return true;
    }
    if (e_always(e) < e->n || e->op == E_LOAD) return false; /* not for every element */
    for (int i = 0; i < e->n; i++)
        if (!find(k, seen, e->a[i])) return false;
    return true;
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
        if (!find(k, seen, g->value[i])) return false;
    return k->n > 0;
}

/* Whether an operand of a sum below e lies together along x: then x can be laid over lanes
 * (contract.c). */
static bool together(const Convolution *k, Map *seen, Expr *e, Axis *x, bool sum) {
    if (!(e->flags & EF_LOAD) || map_geti(seen, (uint64_t)e->id + 1)) return false;
    map_seti(seen, (uint64_t)e->id + 1, e);
    if (e->op == E_LOAD) {
        Expr *coef = sum ? conv_coef(k->g->c, flat_of(k->g->c, e), x) : NULL;
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
static int64_t cdiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

void conv_tile(Convolution *k) {
    Kernel *g = k->g;
    int vec = g->lanes, sums = vec >= 16 ? 24 : 12;
    k->m = g->axis[g->naxis - 2];
    k->b = g->naxis >= 3 ? g->axis[g->naxis - 3] : NULL;
    int64_t nvec = cdiv(k->nlane, vec), most = vec >= 16 ? 4 : 2;
    k->nv = (int)cdiv(nvec, cdiv(nvec, most));
    k->vt = k->nv * vec;
    k->rows = sums / k->nv;
}

static void choose_blocks(Convolution *k) {
    Kernel *g = k->g;
    const Schedule *plan = g->p->schedule;
    double ns = cost_group_ns(g->c, plan->device, g->s, plan->units);
    int64_t longest = 0, far = 1;
    for (int i = 0; i < k->n; i++)
        if (k->s[i].length > longest) longest = k->s[i].length;
    /* Only what does not fit is cut. */
    int64_t near = NEAR_KB;
    if (longest * k->vt * 4 > NEAR_KB / 2 << 10)
        near = decide_value(g->p, X_NEAR, g->s, 3,
                            (Way[]){{NEAR_KB, ns}, {NEAR_KB / 2, ns}, {2 * NEAR_KB, ns}});
    near = (near << 10) / (k->vt * 4);
    for (int i = 0; i < k->n; i++) {
        ConvSum *s = &k->s[i];
        int64_t inner = s->length;
        s->cut = 0;
        s->chunk = s->extent[0];
        if (s->length > near) {
            while (s->cut < s->n - 1 && inner / s->extent[s->cut] > near)
                inner /= s->extent[s->cut++];
            inner /= s->extent[s->cut];
            int64_t chunks = cdiv(s->extent[s->cut] * inner, near);
            s->chunk = cdiv(s->extent[s->cut], chunks);
            if (inner == 1) s->chunk = cdiv(s->chunk, 16) * 16;
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
    k->m_block = known && m < k->block ? m : k->block;
    k->even = known && m <= k->block && k->m != g->split ? m : 0;
}

/* ---- packing --------------------------------------------------------------------------------- */
int64_t conv_vectors(const Convolution *k) { return cdiv(k->nlane, k->g->lanes) + k->nv - 1; }

static const Packed *pack(const Convolution *k, const ConvSum *s) {
    const Tensor *t = s->vec->t;
    Packed p = {.what = t->name ? t->name : "packed",
                .nsource = 1,
                .nouter = 1 + s->n,
                .ninner = 1,
                .line = k->g->lanes,
                .tile = 0,
                .limit = k->nlane,
                .dtype = DT_F32};
    PackSource *q = &p.source[0];
    *q = (PackSource){.data = t->data, .base = s->base};
    p.extent[0] = conv_vectors(k);
    q->stride[0] = k->g->lanes * s->v_stride;
    for (int i = 0; i < s->n; i++) {
        p.extent[1 + i] = s->extent[i];
        q->stride[1 + i] = s->stride[i];
    }
    p.extent[1 + s->n] = k->g->lanes;
    q->stride[1 + s->n] = s->v_stride;
    return packed_intern(k->g->p, &p);
}

int conv_sizes(const Convolution *k, int64_t even, int *sizes) {
    int64_t tiles = even ? cdiv(even, k->rows) : 0;
    int n = 0;
    sizes[n++] = tiles ? (int)cdiv(even, tiles) : k->rows;
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
    if (!conv_recognize(k)) return false;
    conv_tile(k);
    choose_blocks(k);
    for (int i = 0; i < k->n; i++) k->s[i].packed = pack(k, &k->s[i]);
    g->kind = KERNEL_CONVOLUTION;
    g->convolution = k;
    return true;
}
