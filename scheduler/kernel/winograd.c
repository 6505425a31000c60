/* winograd.c: which convolutions are computed by Winograd's F(2 x 2, 3 x 3) (convolution.h).
 *
 * A window is recognized by its strides: the reduction has an axis of three steps along each of the
 * two innermost axes of positions, and one along channels that lie together. */
#include "scheduler/kernel/convolution.h"
#include "scheduler/cost/cost.h"
#include "scheduler/cost/decide.h"

#define NEAR_WEIGHTS (96 * 96) /* channels x lanes: such weights stay in the cache */
#define FAR_WEIGHTS (384 * 384)
#define FEWEST_TILES 40   /* that are worth reading far weights, of which there are 16 for 9 */
#define TILE_FLOATS 32768 /* of transformed elements, and of products, in a block */
#define SUM_FLOATS 57344  /* of sums of far weights, in a block */
#define UNKNOWN 28        /* a size that only the run knows may well be this */
#define NEAR_FLOATS 8704  /* of weights beside the elements in the first-level cache */

static bool recognize(Winograd *w) {
    Convolution *k = &w->k;
    Kernel *g = k->g;
    Cx *c = g->c;
    if (!conv_recognize(k) || k->n != 1 || k->s[0].n != 3 || k->s[0].ngroup || g->naxis < 3)
        return false;
    const ConvSum *s = &k->s[0];
    conv_tile(k);
    const int64_t nb = axis_size(k->b, UNKNOWN), nm = axis_size(k->m, UNKNOWN);
    if (nb < 4 || nm < 4) return false;
    if (e_coef(c, s->sca_flat, k->b) == e_coef(c, s->sca_flat, k->m)) return false;
    Axis *position[] = {k->b, k->m};
    w->y = w->x = w->c = -1;
    for (int i = 0; i < 3; i++) {
        Axis *r = s->axis[i], *over = product_window(c, s->sca_flat, r, 2, position);
        if (s->extent[i] == 3 && over)
            *(over == k->b ? &w->y : &w->x) = i;
        else if (e_is_ival(e_coef(c, s->sca_flat, r), 1))
            w->c = i;
    }
    if (w->y < 0 || w->x < 0 || w->c < 0) return false;
    w->channels = s->extent[w->c];
    if (w->channels % g->lanes || w->channels * k->nlane > FAR_WEIGHTS) return false;
    if (w->channels * k->nlane > NEAR_WEIGHTS) {
        int64_t all = (nb + 1) / 2 * ((nm + 1) / 2), most = SUM_FLOATS / (4 * winograd_lanes(k));
        if (most < FEWEST_TILES || all < FEWEST_TILES) return false;
        int64_t blocks = (all + most - 1) / most, near = NEAR_FLOATS / k->vt,
                chunks = (w->channels + near - 1) / near;
        w->tiles = (all + blocks - 1) / blocks;
        w->chunk = (w->channels + chunks - 1) / chunks;
        w->far = true;
        return w->tiles >= FEWEST_TILES;
    }
    int64_t wide = w->channels > k->vt ? w->channels : k->vt;
    w->tiles = TILE_FLOATS / 16 / wide;
    w->element_step = w->tiles * w->channels + 16;
    w->sum_step = w->tiles * k->vt + 16;
    return w->tiles >= k->rows;
}

/* As [product][vector][channel][lane]. */
static const Packed *pack(const Winograd *w) {
    const Convolution *k = &w->k;
    const ConvSum *s = &k->s[0];
    const Tensor *t = s->vec->t;
    const int64_t vec = k->g->lanes;
    Packed p = {.what = t->name,
                .nsource = 1,
                .nouter = 4,
                .ninner = 1,
                .extent = {4, 4, conv_vectors(k), w->channels, vec},
                .line = vec,
                .tile = 2,
                .limit = k->nlane,
                .dtype = DT_F32,
                .winograd = true};
    p.source[0] = (PackSource){.data = t->data,
                               .base = s->base,
                               .stride = {s->stride[w->y], s->stride[w->x], vec * s->v_stride,
                                          s->stride[w->c], s->v_stride}};
    return packed_intern(k->g->p, &p);
}

bool kernel_winograd(Kernel *g) {
    Winograd *w = NEW(g->a, Winograd);
    w->k.g = g;
    if (!recognize(w)) return false;
    double ns = cost_group_ns(g->p, g->s, g->p->schedule->units);
    if (!decide_value(g->p, X_WINOGRAD, g->s, 2, (Way[]){{1, ns}, {0, ns}})) return false;
    w->k.s[0].packed = pack(w);
    g->kind = KERNEL_WINOGRAD;
    g->winograd = w;
    return true;
}
