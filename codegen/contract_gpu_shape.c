/* contract_gpu_shape.c: how a block of threads shares sums of products.
 *
 * All shapes that fit the block's memory are compared by a model of the cycles that a unit takes for its part. */
#include "codegen/contract_gpu.h"
#include "scheduler/decide.h"

#define SUMS_MOST 32       /* of a thread, in registers */
#define CHUNK_MOST 512     /* steps copied at once */
#define CHUNK_LEAST 16
#define SKEW 4             /* floats between rows in memory, so that neighbouring rows lie in different banks */
/* Cycles. */
#define MEET 30            /* block barrier */
#define FETCH 600          /* first data of a copy arrive */
#define COPY 24            /* an element of a thread's share of a copy; of four at once: */
#define COPY_BY_FOUR 8
#define STEP 30            /* operands from the block's memory arrive */
#define MEMBERS 100        /* the members at a position */

static int64_t round_up(int64_t a, int64_t to) { return dots_div(a, to) * to; }

static int log2_of(int n) {
    int l = 0;
    while (n > 1) n /= 2, l++;
    return l;
}

static double copy_cycles(const Dots *k, const Part *q, bool vec) { return dots_by_four(k, q, vec) ? COPY_BY_FOUR : COPY; }

typedef struct Model {
    const Dots *k;
    int threads, warp;
    int64_t budget; /* floats of memory */
} Model;

/* Steps of part q as far as known. */
static int64_t steps_of(const Part *q) {
    if (q->length >= 0) return q->length;
    int64_t n = 1;
    for (int i = 0; i < q->nraxis; i++) n *= axis_size(q->raxis[i], STEPS_UNKNOWN);
    return n;
}

/* Cycles of part q for a block of bm x bv when threads load sca themselves, one step after the other, and have tm x tc
 * sums; sets the rest of the shape; 0: it cannot be. */
static double direct_cycles(const Model *m, Part *q, int bm, int bv) {
    q->nm = (int)dots_div(bm, q->tm);
    q->nc = (int)dots_div((int64_t)bv * q->n, q->tc);
    if (q->nm * q->nc > m->threads || q->nm % m->warp) return 0;
    q->team = 1;
    q->whole = false;
    q->chunk = 0;
    double warps = (double)dots_div((int64_t)q->nm * q->nc, m->warp);
    double math = dots_div((int64_t)warps, 4) * q->tm * q->tc * m->warp / 32.0, memory = warps * (q->tm + q->tc);
    double step = math > memory ? math : memory;
    return (double)q->length * ((step > STEP / 2.0 ? step : STEP / 2.0) + 4) + FETCH;
}

/* Cycles of part q for a block of bm x bv when a thread has tm x tc sums; sets the rest of the shape; 0: it does not
 * fit. */
static double part_cycles(const Model *m, Part *q, int bm, int bv, int64_t floats) {
    q->nm = (int)dots_div(bm, q->tm);
    q->nc = (int)dots_div((int64_t)bv * q->n, q->tc);
    int tiles = q->nm * q->nc;
    if (tiles > m->threads) return 0;
    int64_t steps = round_up(steps_of(q), 4), quads = steps / 4;
    q->team = 1;
    while (q->team * 2 * tiles <= m->threads && q->team < m->warp && q->team < quads) q->team *= 2;
    int64_t copied = (int64_t)q->nm * q->tm + (q->packed ? 0 : (int64_t)q->nc * q->tc);
    q->chunk = CHUNK_MOST;
    while (q->chunk > CHUNK_LEAST && (copied * (q->chunk + SKEW) > floats || q->chunk / 2 >= steps)) q->chunk /= 2;
    if (copied * (q->chunk + SKEW) > floats) return 0;
    q->whole = q->length >= 0 && copied * (steps + SKEW) <= floats && (q->packed || steps <= CHUNK_MOST);
    if (q->whole) q->chunk = (int)steps;
    int sums = q->tm * q->tc, warps = (int)dots_div((int64_t)tiles * q->team, m->warp);
    double math = (double)dots_div(warps, 4) * 4 * sums * m->warp / 32, memory = 1.5 * warps * (q->tm + q->tc);
    double step = math > memory ? math : memory;
    if (step < STEP) step = STEP;
    double chunks = (double)dots_div(steps, q->chunk);
    double each = (double)(q->nm * q->tm) * copy_cycles(m->k, q, false);
    if (!q->packed) each += (double)(q->nc * q->tc) * copy_cycles(m->k, q, true);
    double copies = chunks * (each * q->chunk / m->threads + FETCH + 2 * MEET);
    double exchange = 2.0 * sums * log2_of(q->team) * (double)dots_div(warps, 4) + 4.0 * sums;
    return (double)dots_div(quads, q->team) * (step + 4) + exchange + (q->whole && q->packed ? 0 : copies);
}

/* The best shape of part q for a block; 0: there is none. */
static double best_part(const Model *m, Part *q, int bm, int bv, int64_t floats) {
    double best = 0;
    bool loads = q->packed && m->k->p[q->lead].sca->dtype == DT_F32 && dots_lines_together(m->k, q, false);
    Part kept = *q;
    for (int tm = 1; tm <= 8 && tm < 2 * bm; tm *= 2)
        for (int tc = 1; tc <= 8 && tm * tc <= SUMS_MOST; tc *= 2) {
            q->tm = tm;
            q->tc = tc;
            for (int direct = 0; direct <= loads; direct++) {
                q->direct = direct;
                double cycles = direct ? direct_cycles(m, q, bm, bv) : part_cycles(m, q, bm, bv, floats);
                if (cycles > 0 && (best == 0 || cycles < best)) best = cycles, kept = *q;
            }
        }
    *q = kept;
    return best;
}

/* Cycles of a unit's part by blocks of bm x bv; 0: they do not fit. */
static double block_cycles(const Model *m, Part *part, int bm, int bv) {
    const Dots *k = m->k;
    int64_t tile = (int64_t)bm * bv * k->n, left = m->budget - tile;
    double cycles = 2 * MEET + (double)dots_div((int64_t)bm * bv, m->threads) * MEMBERS, once = MEET;
    if (left <= 0) return 0;
    for (int i = 0; i < k->npart; i++) {
        Part *q = &part[i];
        double c = best_part(m, q, bm, bv, left / k->npart);
        if (c == 0) return 0;
        cycles += c;
        if (q->whole) once += (double)(q->nm * q->tm * q->chunk) / m->threads * copy_cycles(k, q, false) + (i ? 0 : FETCH);
    }
    return (double)dots_div(k->rows, bm) * (once + (double)dots_div(k->columns, bv) * cycles);
}

/* Places in the block's memory: copies that outlive a block of columns, the others' common room, tiles. */
static void place(Dots *k) {
    int64_t at = 0, most = 0;
    for (int i = 0; i < k->npart; i++) {
        Part *q = &k->part[i];
        if (q->direct) continue;
        int64_t pitch = q->chunk + SKEW, x = (int64_t)q->nm * q->tm * pitch, w = q->packed ? 0 : (int64_t)q->nc * q->tc * pitch;
        if (q->whole) {
            q->x = at;
            at += x;
            x = 0;
        }
        if (x + w > most) most = x + w;
    }
    for (int i = 0; i < k->npart; i++) {
        Part *q = &k->part[i];
        if (!q->whole) q->x = at;
        q->w = at + (q->whole ? 0 : (int64_t)q->nm * q->tm * (q->chunk + SKEW));
    }
    at = round_up(at + most, 4);
    for (int i = 0; i < k->npart; i++) {
        k->part[i].sums = at;
        at += (int64_t)k->part[i].n * k->bm * k->bv;
    }
    k->floats = round_up(at, 32);
}

bool dots_shape(Dots *k) {
    static const int sizes[] = {1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 32, 48, 64, 96, 128, 256, 512, 1024};
    const Device *d = k->g->em->p->schedule->device;
    /* On-chip weights want the memory, too. */
    int64_t bytes = d->level[LEVEL_CORE].bytes, share = bytes / 4 > 16 << 10 ? bytes / 4 : 16 << 10;
    Model m = {k, d->threads, d->warp, (share < bytes - SHARED_OWN ? share : bytes - SHARED_OWN) / 4};
    Part part[MAX_PRODUCTS];
    double best = 0;
    for (size_t i = 0; i < COUNT(sizes) && (i == 0 || sizes[i - 1] < k->rows); i++)
        for (size_t j = 0; j < COUNT(sizes) && (j == 0 || sizes[j - 1] < k->columns); j++) {
            memcpy(part, k->part, sizeof part);
            double cycles = block_cycles(&m, part, sizes[i], sizes[j]);
            if (cycles == 0 || (best > 0 && cycles >= best)) continue;
            best = cycles;
            k->bm = sizes[i];
            k->bv = sizes[j];
        }
    if (best == 0) return false;
    block_cycles(&m, k->part, k->bm, k->bv);
    place(k);
    return true;
}
