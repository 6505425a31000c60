/* depthwise.c: see depthwise.h. */
#include "scheduler/kernel/depthwise.h"

static bool take(void *user, Expr *e) {
    Depthwise *w = user;
    const Kernel *g = w->k.g;
    if (w->n == CONV_SUMS) return false;
    Windows *s = &w->s[w->n++];
    if (!windows_of(g->c, e, g->naxis, g->axis, g->lanes, s)) return false;
    for (int i = 0; i < g->n; i++)
        if (s->x->t == g->t[i]) return false;
    return s->v == w->s[0].v && s->m == w->s[0].m;
}

/* Vectors and positions of a tile: sums, the weights of a row of windows and elements in registers.
 */
static void choose_tile(Depthwise *w) {
    Convolution *k = &w->k;
    const int vec = k->g->lanes, registers = vec >= 16 ? 32 : 16;
    const int64_t nvec = div_up(k->nlane, vec);
    int widest = 1;
    for (int i = 0; i < w->n; i++) {
        const int64_t n = w->s[i].extent[w->s[i].n - 1];
        int chunk = n <= 7 ? (int)n : 4;
        for (int j = 7; n > 7 && j > 4; j--)
            if (n % j == 0 && chunk == 4) chunk = j;
        w->chunk[i] = chunk;
        if (chunk > widest) widest = chunk;
    }
    k->nv = 1;
    for (int nv = 2; nv <= (vec >= 16 ? 3 : 1) && nv <= nvec; nv++)
        if (nv * (widest + 5) < registers && round_up(nvec, nv) <= round_up(nvec, k->nv))
            k->nv = nv;
    k->vt = k->nv * vec;
    k->rows = (registers - 1) / k->nv - widest - 1;
    if (k->rows * k->nv > 14) k->rows = 14 / k->nv;
    if (k->rows > 8) k->rows = 8;
}

/* Tiles of two neighbouring sizes where the number of positions is known. */
static void choose_sizes(Depthwise *w) {
    const Convolution *k = &w->k;
    int64_t n = -1;
    if (k->m != k->g->split && k->m != k->g->strip) e_is_int(e_sub(k->g->c, w->to, w->from), &n);
    if (n > 0) {
        const int64_t tiles = div_up(n, k->rows);
        w->size[w->nsize++] = (int)div_up(n, tiles);
        w->first = n - tiles * (w->size[0] - 1);
        w->first *= w->size[0];
        if (w->first < n && w->size[0] > 1) w->size[w->nsize++] = w->size[0] - 1;
        return;
    }
    for (int r = k->rows; r > 1 && w->nsize < (int)COUNT(w->size); r /= 2) w->size[w->nsize++] = r;
}

static const Packed *pack(const Depthwise *w, const Windows *s) {
    const Convolution *k = &w->k;
    const int64_t vec = k->g->lanes;
    const Tensor *t = s->w->t;
    Packed p = {.what = t->name,
                .nsource = 1,
                .nouter = 1 + s->n,
                .ninner = 1,
                .line = vec,
                .tile = 0,
                .limit = k->nlane,
                .dtype = DT_F32};
    PackSource *q = &p.source[0];
    *q = (PackSource){.data = t->data, .base = s->base};
    p.extent[0] = conv_vectors(k);
    q->stride[0] = vec * s->v_stride;
    for (int i = 0; i < s->n; i++) {
        p.extent[1 + i] = s->extent[i];
        q->stride[1 + i] = s->stride[i];
    }
    p.extent[1 + s->n] = vec;
    q->stride[1 + s->n] = s->v_stride;
    return packed_intern(k->g->p, &p);
}

bool kernel_depthwise(Kernel *g) {
    Depthwise *w = NEW(g->a, Depthwise);
    Convolution *k = &w->k;
    k->g = g;
    if (g->naxis < 2 || g->n > 4) return false;
    Map *seen = map_new(g->a);
    for (int i = 0; i < g->n; i++)
        if (!all_reductions(seen, g->value[i], take, w)) return false;
    if (!w->n) return false;
    k->v = w->s[0].v;
    k->m = w->s[0].m;
    k->nlane = axis_size(k->v, 0);
    choose_tile(w);
    int64_t grain;
    if (k->v == g->split && (!e_is_int(g->grain, &grain) || grain % g->lanes)) return false;
    w->from = w->s[0].from;
    w->to = w->s[0].to;
    for (int i = 1; i < w->n; i++) {
        w->from = e_max(g->c, w->from, w->s[i].from);
        w->to = e_min(g->c, w->to, w->s[i].to);
    }
    choose_sizes(w);
    for (int i = 0; i < w->n; i++) w->packed[i] = pack(w, &w->s[i]);
    /* The lanes go last. */
    int at = 0;
    while (g->axis[at] != k->v) at++;
    memmove(g->axis + at, g->axis + at + 1, sizeof *g->axis * (size_t)(g->naxis - at - 1));
    g->axis[g->naxis - 1] = k->v;
    g->kind = KERNEL_DEPTHWISE;
    g->depthwise = w;
    return true;
}
