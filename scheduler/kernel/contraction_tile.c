/* contraction_tile.c: the tile of a contraction, by a model of the micro-kernel's time. */
#include "scheduler/cost/cost.h"
#include "scheduler/cost/decide.h"
#include "scheduler/kernel/contraction.h"

#include <limits.h>
#include <math.h>

/* Of the first cache: bytes of all its sets' lines, and lines of a set. */
#define PAGE 4096
#define SET_WAYS 8

/* Of the time that a block computes, while it waits for a panel. */
#define OVERLAP 0.9

/* Rows that an unknown number of them may well be, and what each of these counts. */
static const struct {
    int rows;
    double share;
} unknown[] = {{1, 0.5}, {6, 0.5}, {12, 0.5}, {48, 1}};

/* The most tiles that one of n units has, when units own ranges of whole grains. */
static int64_t tiles_of(int64_t lanes, int64_t grain, int64_t tile, int n) {
    int64_t parts = (lanes + grain - 1) / grain, most = 0;
    for (int u = 0; u < n; u++) {
        int64_t from = parts * u / n * grain, to = parts * (u + 1) / n * grain;
        if (to > lanes) to = lanes;
        int64_t count = to > from ? (to + tile - 1) / tile - from / tile : 0;
        if (count > most) most = count;
    }
    return most;
}

typedef struct TileModel {
    const Contraction *k;
    int widest, factors;   /* products of the largest set, and their different factors of a row */
    int operands;          /* … and their different vectors */
    int units;             /* that share the domain */
    int64_t length, grain; /* steps of that set's loop; of the split axis */
    int64_t near;  /* bytes of a panel that stay in the first cache between two blocks of rows */
    double stream; /* cycles in which a vector of the panels comes from where they lie between two
                      jobs; 0: they are near */
} TileModel;

/* Cycles of one step of the inner loop: two vector operations, and two loads a cycle (one of
 * operands that come from the second cache), sums in flight to hide their latency. */
static double step_cycles(const TileModel *t, int nv, int mr, bool near) {
    int sums = nv * mr * t->widest, vectors = nv * t->operands;
    double loads = vectors * (near ? 0.5 : 1) + mr * t->factors * 0.5,
           busy = sums * 0.5 > loads ? sums * 0.5 : loads;
    return (busy > 4 ? busy : 4) + 0.25 +
           (near ? 0 : 0.25 * vectors); /* the loop itself, and waiting */
}

/* Cycles of a step of blocks of rows. If the first of a job is among them, it waits for the panel,
 * which is near for the others; some of what it computes, it computes meanwhile. */
static double blocks_cycles(const TileModel *t, int nv, int mr, bool near, int64_t blocks,
                            bool first) {
    const double each = step_cycles(t, nv, mr, near), stream = t->stream * nv * t->operands;
    if (!blocks) return 0;
    return (double)blocks * each + (first ? fmax(stream - each * OVERLAP, 0) : 0);
}

/* Time for an element of rows × lanes, alone and in the team; lanes beyond the domain, or of
 * another unit, are lost, and so are rows that do not fill a block. */
static double tile_time(const TileModel *t, int nv, int mr, int64_t rows, int64_t lanes) {
    const Kernel *g = t->k->g;
    int vec = g->lanes;
    bool near = mr < rows && (int64_t)nv * t->operands * vec * t->length * 4 <= t->near,
         by_v = g->split == t->k->v;
    bool by_m = t->k->m && g->split == t->k->m, known = axis_size(t->k->v, -1) >= 0;
    double time = 0;
    for (int u = 1; u <= t->units; u += t->units - 1) {
        int64_t tiles = known ? tiles_of(lanes, by_v ? t->grain : lanes, nv * vec, by_v ? u : 1)
                              : (lanes + nv * vec - 1) / (nv * vec);
        int64_t mine = by_m && rows > 1 ? tiles_of(rows, t->grain, 1, u) : rows;
        double cycles = 0;
        for (int64_t left = mine; left > 0;) {
            int64_t job = left < t->k->job ? left : t->k->job, n = (job + mr - 1) / mr;
            int low = (int)(job / n), high = (int)(job % n);
            cycles += blocks_cycles(t, nv, low + 1, near, high, true) +
                      blocks_cycles(t, nv, low, near, n - high, high == 0);
            left -= job;
        }
        time += cycles * (double)(tiles * u) / (double)(lanes * rows);
        if (t->units == 1) break;
    }
    return time;
}

static void add_height(Contraction *k, int64_t h) {
    int i = 0;
    while (i < k->nheight && k->height[i] > h) i++;
    if (h < 1 || (i < k->nheight && k->height[i] == h)) return;
    ASSERT(k->nheight < MAX_HEIGHTS);
    memmove(k->height + i + 1, k->height + i, sizeof *k->height * (size_t)(k->nheight - i));
    k->height[i] = (int)h;
    k->nheight++;
}

/* Those that n rows need, in blocks as they are made of them. */
static void add_heights(Contraction *k, int64_t n) {
    for (; n > 0; n -= k->job) {
        int64_t job = n < k->job ? n : k->job, blocks = (job + k->mr - 1) / k->mr;
        add_height(k, job / blocks);
        add_height(k, (job + blocks - 1) / blocks);
    }
}

/* Of known rows exactly what is needed; of an unknown number every rest; one row, where there may
 * be other counts than expected. */
static void choose_heights(Contraction *k, const TileModel *t, int64_t rows) {
    bool by_m = k->m && k->g->split == k->m;
    if (k->m && k->m == k->g->strip) rows = 0; /* the first strip has more */
    for (int h = rows <= 0 ? k->mr : 0; h > 1; h--) add_height(k, h);
    for (int u = 1; rows > 0 && u <= (by_m ? t->units : 1); u++) {
        int64_t parts = (rows + t->grain - 1) / t->grain;
        for (int i = 0; i < u; i++) {
            int64_t from = by_m ? parts * i / u * t->grain : 0,
                    to = by_m ? parts * (i + 1) / u * t->grain : rows;
            add_heights(k, (to < rows ? to : rows) - from);
        }
    }
    if (rows <= 0 || by_m) add_height(k, 1);
    k->mr = k->height[0];
}

/* Bytes of the largest constant operand, or the `streamed` ones around the group, if these do not
 * stay in the caches of a core; else 0. */
static double far_bytes(const TileModel *t, int64_t streamed) {
    const Contraction *k = t->k;
    const Schedule *plan = k->g->p->schedule;
    const int units = k->g->split == k->v ? plan->units : 1;
    int64_t most = 0;
    for (int j = 0; j < k->n; j++) {
        const Product *p = &k->p[j];
        if (!p->packed || p->coded) continue;
        const int64_t bytes = axis_size(k->v, 0) * t->length * t->operands *
                              (int64_t)dtype_size(tensor_values(p->vec->t));
        if (bytes > most) most = bytes;
    }
    if (!most) return 0;
    if (streamed > most) most = streamed;
    return most / units > plan->device->level[LEVEL_CORE].bytes * 3 / 4 ? (double)most : 0;
}

static TileModel model_of(const Contraction *k, int64_t streamed) {
    const Kernel *g = k->g;
    const Schedule *plan = g->p->schedule;
    TileModel t = {.k = k,
                   .units = g->split ? plan->units : 1,
                   .grain = 1,
                   .near = plan->device->level[LEVEL_LANE].bytes * 3 / 4};
    int wide = 0;
    for (int s = 0; s < k->nset; s++) {
        int q = 0;
        for (int j = 0; j < k->n; j++) q += k->p[j].set == s && !k->dot[s];
        if (q > t.widest) t.widest = q, wide = s;
    }
    for (int j = 0; j < k->n; j++) {
        bool known = k->p[j].set != wide, vec = known;
        for (int i = 0; i < j; i++) {
            known |= k->p[i].set == wide && k->p[i].sca == k->p[j].sca;
            vec |= k->p[i].set == wide && k->p[i].vec == k->p[j].vec;
        }
        t.factors += !known;
        t.operands += !vec;
    }
    t.length = axes_size(k->nraxis[wide], k->raxis[wide], 64);
    if (g->grain) e_is_int(g->grain, &t.grain);
    /* A core computes with 4 lanes' floats in a cycle: two multiplications and additions of a
     * vector. */
    const double far = far_bytes(&t, streamed);
    if (far > 0) t.stream = plan->device->gflops / device_gbps(plan->device, far / t.units);
    return t;
}

/* Time for an element; of an unknown number of rows (0), one, a few and many count. */
static double expected_time(const TileModel *t, int nv, int mr, int64_t rows, int64_t lanes) {
    double time = 0;
    if (rows) return tile_time(t, nv, mr, rows, lanes);
    for (size_t i = 0; i < COUNT(unknown); i++)
        time += unknown[i].share * tile_time(t, nv, mr, unknown[i].rows, lanes);
    return time;
}

/* The most rows whose factors stay side by side in the first cache: if they are a multiple of a
 * page apart, they share the lines of one set. */
static int most_rows(const Contraction *k) {
    int64_t stride;
    for (int j = 0; k->m && j < k->n; j++) {
        const Product *p = &k->p[j];
        if (p->dot || p->columns || !p->sca->t) continue;
        if (e_is_int(e_coef(k->g->c, p->sca_flat, k->m), &stride) && stride &&
            stride * (int64_t)dtype_size(p->sca->dtype) % PAGE == 0)
            return SET_WAYS;
    }
    return INT_MAX;
}

/* Rows × vectors of a micro-kernel: the least time for an element. */
void contraction_tile(Contraction *k, int64_t streamed) {
    const Kernel *g = k->g;
    /* Sums in registers; with them the vectors that all rows use, and a row's factor. */
    int vec = g->lanes, budget = vec >= 16 ? 28 : 12, registers = vec >= 16 ? 32 : 16;
    TileModel t = model_of(k, streamed);
    int64_t rows = k->m && t.widest ? axis_size(k->m, 0) : 1, lanes = axis_size(k->v, 4 * vec);
    int64_t apiece;
    if (k->m && k->m == g->strip && t.widest && e_is_int(g->apiece, &apiece))
        rows = g->s->op.rows * apiece;
    if (!t.widest)
        t.widest = t.operands = 1; /* dot products only: rows share nothing in registers */
    static const int row_sizes[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14};
    const int most = most_rows(k);
    double best = 0;
    Way way[WAYS_MAX + 1];
    int n = 0;
    for (int nv = 1; nv <= 8; nv++) {
        for (int i = 0; i < (int)COUNT(row_sizes); i++) {
            int mr = row_sizes[i];
            int sums = nv * mr * t.widest;
            if ((rows && mr > rows) || mr > most || (sums > budget && nv * mr > 1)) break;
            if (mr > 1 && sums + nv * t.operands + 1 > registers) break;
            double time = expected_time(&t, nv, mr, rows, lanes);
            /* The best first, which of about equal ones is the smallest; then the others in order.
             */
            bool first = best == 0 || time < best * 0.999;
            int at = first ? 0 : 1;
            while (at > 0 && at < n && way[at].ns <= time) at++;
            if (first) best = time;
            memmove(way + at + 1, way + at, sizeof *way * (size_t)(n - at));
            way[at] = (Way){16 * mr + nv, time};
            if (n < WAYS_MAX) n++;
        }
    }
    double all = cost_group_ns(g->p, g->s, t.units);
    for (int i = 0; i < n; i++) way[i].ns *= all / best;
    int tile = decide_value(g->p, X_TILE, g->s, n, way);
    k->nv = tile % 16;
    k->mr = tile / 16;
    k->vt = k->nv * vec;
    choose_heights(k, &t, rows);
}
