/* planes.c: see planes.h. */
#include "scheduler/kernel/planes.h"

#define LANES_MOST 128 /* of a tile */
#define BLOCK_BYTES                                                                                \
    (24 << 10)       /* of the tiles of a block, in the first-level cache with its sums            \
                      */
#define UNROLLED 800 /* products that are written out */

static bool take(void *user, Expr *e) {
    PlanesKernel *w = user;
    const Kernel *g = w->k.g;
    if (w->n == CONV_SUMS) return false;
    Planes *s = &w->p[w->n++].s;
    if (!planes_of(g->c, e, g->naxis, g->axis, g->lanes, s)) return false;
    for (int i = 0; i < g->n; i++)
        if (s->x->t == g->t[i]) return false;
    return s->v.axis == w->p[0].s.v.axis && s->u.axis == w->p[0].s.u.axis;
}

/* Rows and vectors of a micro-kernel, and lanes of a tile. */
static void choose_tile(PlanesKernel *w) {
    Convolution *k = &w->k;
    const int vec = k->g->lanes;
    int64_t n, most = LANES_MOST / vec, nvec = most;
    const bool known = k->v != k->g->split && e_is_int(k->v->extent, &n);
    if (known) {
        nvec = div_up(n, vec);
        nvec = div_up(nvec, div_up(nvec, most));
    }
    k->nv = nvec == 1 ? 1 : 2;
    for (int nv = 3; nv <= 4 && vec >= 16; nv++)
        if (nvec % nv == 0) k->nv = nv;
    k->vt = (int)(nvec * vec);
    w->rest = !known || nvec % k->nv || div_up(n, vec) % nvec;
    k->rows = !k->m ? 1 : k->nv > 1 ? 4 : 8;
}

static void choose_lines(PlanesKernel *w) {
    const Convolution *k = &w->k;
    for (int i = 0; i < w->n; i++) {
        PlanesSum *p = &w->p[i];
        const PlaneWindow *v = &p->s.v, *u = &p->s.u;
        p->need = k->vt + (v->taps - 1) * v->apart / v->stride;
        p->phase = round_up(p->need + k->g->lanes, 16);
        p->line = p->phase * v->stride;
        p->rolled = k->rows * k->nv * v->taps * (u->axis ? u->taps : 1) > UNROLLED;
    }
}

/* Rows of each sum's tile for a block of `rows`; returns the bytes of all. */
static int64_t set_lines(PlanesKernel *w, int64_t rows) {
    int64_t bytes = 0;
    for (int i = 0; i < w->n; i++) {
        PlanesSum *p = &w->p[i];
        const PlaneWindow *u = &p->s.u;
        p->lines = u->axis ? (rows - 1) * u->stride + (u->taps - 1) * u->apart + 1 : 1;
        bytes += p->s.outer * p->lines * p->line * 4;
    }
    return bytes;
}

/* Whether what is inside does not depend on where the window is in other dimensions. */
static bool same_zeros(const Planes *s) {
    const PlaneWindow *both[] = {&s->v, &s->u};
    int flags = 0;
    for (int i = 0; i < 2; i++) {
        for (int j = 0; j < both[i]->nlow; j++) flags |= both[i]->low[j]->flags;
        for (int j = 0; j < both[i]->nhigh; j++) flags |= both[i]->high[j]->flags;
    }
    return !(flags & EF_AXIS) && e_is_ival(s->inside, 1);
}

static void choose_block(PlanesKernel *w) {
    const Convolution *k = &w->k;
    int64_t n = 0, most = k->rows;
    const bool known = !k->m || (k->m != k->g->split && e_is_int(k->m->extent, &n));
    if (!k->m) n = 1;
    while (k->m && (!known || most < n) && set_lines(w, most + k->rows) <= BLOCK_BYTES)
        most += k->rows;
    w->block = known && n < most ? n : most;
    /* Blocks of one size, of whole micro-kernels if there is one. */
    for (int64_t b = w->block; known && 2 * b > w->block; b--)
        if (n % b == 0 && (b == n || !w->even || b % k->rows == 0)) {
            w->even = b;
            if (b == n || b % k->rows == 0) break;
        }
    if (w->even) w->block = w->even;
    int64_t lanes;
    const bool one = known && (!k->m || w->block == n) && k->v != k->g->split &&
                     e_is_int(k->v->extent, &lanes) && lanes <= k->vt;
    for (int i = 0; i < w->n; i++) w->p[i].clean = one && same_zeros(&w->p[i].s);
    set_lines(w, w->block);
}

bool kernel_planes(Kernel *g) {
    PlanesKernel *w = NEW(g->a, PlanesKernel);
    Convolution *k = &w->k;
    k->g = g;
    if (g->n > 4) return false;
    Map *seen = map_new(g->a);
    for (int i = 0; i < g->n; i++)
        if (!all_reductions(seen, g->value[i], take, w)) return false;
    if (!w->n) return false;
    k->v = w->p[0].s.v.axis;
    k->m = w->p[0].s.u.axis;
    choose_tile(w);
    choose_lines(w);
    choose_block(w);
    g->kind = KERNEL_PLANES;
    g->planes = w;
    return true;
}
