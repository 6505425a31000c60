/* dots_shape.c: how a block of threads shares sums of products.
 *
 * All shapes that fit the block's memory are compared by a model of the cycles that a unit takes
 * for its part. */
#include "scheduler/kernel/dots.h"
#include "scheduler/cost/decide.h"

#define SUMS_MOST 64   /* of a thread, in registers */
#define MATRIX_MOST 16 /* products by matrix units of a warp, each of four sums of a thread */
#define CHUNK_MOST 512 /* steps copied at once */
#define CHUNK_LEAST 16
/* Cycles. */
#define MEET 30   /* block barrier */
#define FETCH 600 /* first data of a copy arrive */
#define COPY 24   /* an element of a thread's share of a copy; of four at once: */
#define COPY_BY_FOUR 16
#define ISSUE_BY_FOUR 8 /* … of it for its instructions alone */
#define STEP 30         /* operands from the block's memory arrive */
#define LOOP 4          /* instructions around them */
#define MATRIX 8        /* a product by matrix units, of 32 bytes of each line */
#define MATRIX_LINES 4  /* a warp loads 64 bytes of eight lines */
#define MEMBERS 100     /* the members at a position */
#define FAR 260         /* data that all units share arrive, */
#define FLIGHT 8        /* so many of a thread's loads together */

/* Steps of a thread's sums follow each other without a jump, up to so many, until so many loads
 * are on their way at the same time. More is only more code: a block's other warps fill the time. */
#define UNROLL_MOST 4
#define UNROLL_LOADS 8

static int log2_of(int n) {
    int l = 0;
    while (n > 1) n /= 2, l++;
    return l;
}

static double copy_cycles(const DotsPart *q, bool vec) {
    return q->by_four[vec] ? COPY_BY_FOUR : COPY;
}

typedef struct Model {
    const DotsKernel *k;
    int threads, warp, matrix_rows;
    int64_t budget; /* words of memory */
    bool once;      /* weights are read once in a run, which they begin in memory */
} Model;

/* Cycles of part q for a block of bm x bv when threads load sca themselves, one step after the
 * other, and have tm x tc sums; sets the rest of the shape; 0: it cannot be. */
static double direct_cycles(const Model *m, DotsPart *q, int bm, int bv) {
    q->workers = m->threads;
    q->high = q->wide = 1;
    q->at_once = 4;
    q->nm = (int)div_up(bm, q->tm);
    q->nc = (int)div_up((int64_t)bv * q->n, q->tc);
    if (q->nm * q->nc > m->threads || q->nm % m->warp) return 0;
    q->team = 1;
    q->whole = false;
    q->chunk = 0;
    double warps = (double)div_up((int64_t)q->nm * q->nc, m->warp);
    double math = div_up((int64_t)warps, 4) * q->tm * q->tc * m->warp / 32.0,
           memory = warps * (q->tm + q->tc);
    double step = math > memory ? math : memory;
    return (double)q->length * ((step > STEP / 2.0 ? step : STEP / 2.0) + 4) + FETCH;
}

/* Cycles of a step of the loop over steps for `warps` warps. */
static double step_cycles(const Model *m, const DotsPart *q, int warps) {
    int sums = q->tm * q->tc;
    double math, memory;
    if (q->matrix) {
        math = (double)div_up(warps, 4) * sums * 2 * MATRIX * m->warp / 32;
        memory = MATRIX_LINES * warps * (q->tm + q->tc * (MATRIX_WIDE / 8));
    } else { /* lanes with the same row or column load the same; 128 bytes a cycle */
        int tiles = m->warp / q->team, wide = tiles < q->nc ? tiles : q->nc,
            high = (int)div_up(tiles, q->nc);
        double x = high * q->team / 8.0, w = wide * q->team / 8.0;
        math = (double)div_up(warps, 4) * (4 * sums + q->tm + q->tc + LOOP) * m->warp / 32;
        memory = warps * (q->tm * (x > 1 ? x : 1) + q->tc * (w > 1 ? w : 1));
    }
    double step = math > memory ? math : memory;
    return step > STEP ? step : STEP;
}

/* Cycles in which the workers' sums come together and go to the tile. */
static double exchange_cycles(const DotsPart *q, int warps) {
    int sums = q->tm * q->tc;
    if (q->matrix) return (double)q->team * (MEET + 4.0 * 4 * sums);
    double left = sums > q->team ? (double)sums / q->team : 1;
    return warps * (2 * (sums - left + log2_of(q->team)) + 3 * left);
}

int64_t dots_pitch(const DotsPart *q, int64_t steps) {
    int64_t quads = steps * part_size(q) / 16;
    int together = q->matrix ? 4 : q->team; /* neighbours that read one line; eight read at once */
    if (together < 8)
        while (quads % (2 * together) != together) quads++;
    return quads * 4;
}

int64_t dots_column(const DotsPart *q) {
    const int64_t steps = div_up(q->length, q->at_once) * q->at_once;
    /* Teams smaller than eight read several columns at once, which then lie in different banks. */
    return q->matrix || (q->team < 8 && steps % 8 == 0) ? dots_pitch(q, steps) : steps;
}

/* Sets how many positions of each row axis bm rows have; false: blocks are not all alike. */
static bool block_rows(const DotsKernel *k, int bm, int64_t *rows) {
    int64_t left = bm;
    for (int d = k->nrow - 1; d >= 0; d--) {
        const bool second = k->row[d] == k->g->second;
        const int64_t size = second ? dots_share(k->g, k->row[d], -1) : axis_size(k->row[d], -1);
        if (left > 1 && k->row[d] == k->g->split) return false; /* a unit may have any number */
        if (second && left > size) return false;                /* … or all of them */
        rows[d] = size < left ? size : left;
        if (rows[d] < 1 || left % rows[d] || (rows[d] > 1 && size % rows[d])) return false;
        left /= rows[d];
    }
    return left == 1;
}

/* Words of sca from the first that so many rows need to the last, if most of those between are
 * needed, too; else 0. */
static int64_t span_words(const Model *m, const DotsPart *q, const int64_t *rows) {
    const DotsKernel *k = m->k;
    int64_t stride[MAX_RANK * 3], n[MAX_RANK * 3], span = q->run;
    int axes = 0;
    for (int d = 0; d < k->nrow; d++) {
        stride[axes] = q->row_stride[d];
        n[axes++] = rows[d];
    }
    for (int d = 0; d < q->ntap; d++) {
        stride[axes] = q->tap_stride[d];
        n[axes++] = axis_size(q->raxis[d], -1);
    }
    for (bool more = true; more;) { /* the closest ones first: no gap may be left */
        int next = -1;
        for (int i = 0; i < axes; i++)
            if (n[i] > 1 && stride[i] > 0 && (next < 0 || stride[i] < stride[next])) next = i;
        more = next >= 0;
        if (!more) break;
        if (stride[next] > span) return 0;
        span += (n[next] - 1) * stride[next];
        n[next] = 1;
    }
    return span;
}

/* Words of the copy that outlives a block of columns. */
static int64_t whole_words(const DotsPart *q) {
    return q->span ? q->span : part_rows(q) * dots_pitch(q, q->chunk);
}

/* Words of a block's columns, at most. */
static int64_t columns_words(const DotsPart *q, int bv) {
    return (int64_t)bv * q->n * dots_column(q);
}

/* Cycles in which a worker waits for so many steps of the columns, where they come from memory. */
static double far_cycles(const Model *m, const DotsPart *q, int64_t steps) {
    if (!m->once || !q->packed || q->staged) return 0;
    return (double)div_up(div_up(div_up(steps, q->at_once), q->team) * q->tc, FLIGHT) * FAR;
}

/* Cycles in which a block copies its columns. */
static double staging_cycles(const Model *m, int64_t columns) {
    return (double)columns / m->threads * COPY_BY_FOUR;
}

/* Cycles of part q with sca copied as it lies; 0: it cannot be. */
static double span_cycles(const Model *m, DotsPart *q, int bm, int bv, double step, int64_t words) {
    int64_t each[MAX_RANK];
    if ((!q->run && !q->box) || part_rows(q) != bm || !block_rows(m->k, bm, each)) return 0;
    const int64_t span = q->box ? dots_box_words(m->k, q, each) : span_words(m, q, each),
                  rows = part_rows(q) * q->length, columns = columns_words(q, bv);
    if (span == 0 || span + columns > words || span > rows) return 0;
    q->whole = q->staged = true;
    q->span = span;
    q->chunk = (int)q->run;
    q->buffers = 1;
    return staging_cycles(m, columns) +
           (double)(q->length / q->run) *
               ((double)div_up(q->run / q->at_once, q->team) * step + 2 * LOOP);
}

/* How many buffers chunks of so many steps may have: from *least on. */
static int most_buffers(const DotsPart *q, int64_t steps, int *least) {
    *least = q->length >= 0 && steps <= q->chunk ? 1 : 2;
    return *least > 1 && steps > 2 * q->chunk ? 3 : *least;
}

/* Cycles of part q by chunks of so many steps, or with sca copied whole; 0: they do not fit. */
static double chunk_cycles(const Model *m, DotsPart *q, int64_t steps, double step, int64_t words) {
    int64_t copied = 0, pitch = dots_pitch(q, q->chunk);
    for (int vec = 0; vec < 2; vec++) copied += part_copies(q, vec) ? part_lines(q, vec) : 0;
    if (copied * pitch * q->buffers + (q->whole ? part_rows(q) * pitch : 0) > words) return 0;
    double sums = (double)div_up(q->chunk / q->at_once, q->team) * step, copies = 0, issue = 0;
    sums += far_cycles(m, q, q->chunk);
    if (q->whole && q->packed) return sums;
    bool async = true;
    for (int vec = 0; vec < 2; vec++) {
        if (!part_copies(q, vec)) continue;
        double each = (double)part_lines(q, vec) * q->chunk / m->threads;
        copies += each * copy_cycles(q, vec);
        issue += each * (q->by_four[vec] ? ISSUE_BY_FOUR : COPY);
        async = async && q->async[vec];
    }
    double chunks = (double)div_up(steps, q->chunk);
    if (!async) return q->buffers > 2 ? 0 : chunks * (copies + FETCH + sums + 2 * MEET);
    /* The next chunks are on their way while one is multiplied, and no longer. */
    double ahead = FETCH + copies, behind = sums + issue, each = q->buffers > 2 ? ahead / 2 : ahead;
    return ahead + (chunks - 1) * (each > behind ? each : behind) + sums + chunks * 2 * MEET;
}

/* Cycles of part q for a block of bm x bv when a worker has tm x tc pieces; sets the rest of the
 * shape; 0: it does not fit. */
static double part_cycles(const Model *m, DotsPart *q, int bm, int bv, int64_t words, bool whole) {
    q->workers = q->matrix ? m->threads / m->warp : m->threads;
    q->high = q->matrix ? m->matrix_rows : 1;
    q->wide = q->matrix ? MATRIX_WIDE : 1;
    q->at_once = q->matrix ? MATRIX_BYTES / part_size(q) : 4;
    q->nm = (int)div_up(bm, q->tm * q->high);
    q->nc = (int)div_up((int64_t)bv * q->n, q->tc * q->wide);
    int tiles = q->nm * q->nc;
    if (tiles > q->workers) return 0;
    int64_t length = q->length >= 0 ? q->length : axes_size(q->nraxis, q->raxis, STEPS_UNKNOWN),
            steps = round_up(length, q->at_once), times = steps / q->at_once;
    q->team = 1;
    while (q->team * 2 * tiles <= q->workers && (q->matrix || q->team < m->warp) && q->team < times)
        q->team *= 2;
    int warps = (int)div_up((int64_t)tiles * q->team * (q->matrix ? m->warp : 1), m->warp);
    double step = step_cycles(m, q, warps), best = 0;
    q->span = 0;
    q->staged = false;
    DotsPart kept = *q;
    for (q->chunk = CHUNK_MOST; q->chunk >= CHUNK_LEAST; q->chunk /= 2) {
        q->whole = false;
        if (q->chunk % q->at_once || (q->chunk > CHUNK_LEAST && q->chunk / 2 >= steps)) continue;
        for (int staged = 0; staged <= (q->packed && m->once); staged++) {
            const int most = most_buffers(q, steps, &q->buffers);
            q->staged = staged;
            for (; q->buffers <= most; q->buffers++) {
                double cycles = chunk_cycles(m, q, steps, step, words);
                if (cycles > 0 && (best == 0 || cycles < best)) best = cycles, kept = *q;
            }
        }
    }
    double span = whole ? span_cycles(m, q, bm, bv, step, words) : 0;
    if (span > 0) {
        if (best == 0 || span < best) best = span, kept = *q;
    } else if (whole && q->length >= 0 && (q->packed || steps <= CHUNK_MOST)) {
        const int64_t columns = columns_words(q, bv);
        q->whole = true;
        q->chunk = (int)steps;
        q->buffers = 1;
        for (int staged = 0; staged <= (q->packed && m->once); staged++) {
            q->staged = staged;
            double cycles = chunk_cycles(m, q, steps, step, words - staged * columns);
            if (cycles == 0) continue;
            cycles += staged * staging_cycles(m, columns);
            if (best == 0 || cycles < best) best = cycles, kept = *q;
        }
    }
    *q = kept;
    return best == 0 ? 0 : best + exchange_cycles(q, warps);
}

/* The best shape of part q for a block; 0: there is none. */
static double best_part(const Model *m, DotsPart *q, int bm, int bv, int64_t words, bool whole) {
    double best = 0;
    const Product *p = &m->k->p[q->lead];
    bool loads =
        q->packed && !q->matrix && p->sca->dtype == DT_F32 && !p->sca_inside && q->across[0];
    DotsPart kept = *q;
    int most = q->matrix ? MATRIX_MOST : SUMS_MOST;
    for (int tm = 1; tm <= 8 && tm < 2 * bm; tm *= 2)
        for (int tc = 1; tc <= 8 && tm * tc <= most; tc *= 2) {
            q->tm = tm;
            q->tc = tc;
            for (int direct = 0; direct <= loads; direct++) {
                q->direct = direct;
                double cycles =
                    direct ? direct_cycles(m, q, bm, bv) : part_cycles(m, q, bm, bv, words, whole);
                if (cycles > 0 && (best == 0 || cycles < best)) best = cycles, kept = *q;
            }
        }
    *q = kept;
    return best;
}

/* Cycles of a unit's part by blocks of bm x bv; 0: they do not fit. `whole`: each part has its own
 * share of the memory, where sca may be copied whole; else one after the other has all of it. */
static double block_cycles(const Model *m, DotsPart *part, int bm, int bv, bool whole) {
    const DotsKernel *k = m->k;
    int64_t tile = (int64_t)bm * bv * k->n, left = m->budget - tile;
    double cycles = 2 * MEET + (double)div_up((int64_t)bm * bv, m->threads) * MEMBERS, once = MEET;
    if (left <= 0) return 0;
    for (int i = 0; i < k->npart; i++) {
        DotsPart *q = &part[i];
        double c = best_part(m, q, bm, bv, whole ? left / k->npart : left, whole);
        if (c == 0) return 0;
        cycles += c;
        if (q->whole)
            once += (double)(q->span ? q->span : part_rows(q) * q->chunk) / m->threads *
                        copy_cycles(q, false) +
                    (i ? 0 : FETCH);
    }
    return (double)div_up(k->rows, bm) * (once + (double)div_up(k->columns, bv) * cycles);
}

/* Places in the block's memory: copies that outlive a block of columns, the others' common room,
 * tiles. */
static void place(DotsKernel *k) {
    int64_t at = 0, most = 0;
    for (int i = 0; i < k->npart; i++) {
        DotsPart *q = &k->part[i];
        if (q->direct || !q->whole) continue;
        q->x = at;
        at += whole_words(q);
        if (!q->staged) continue; /* columns of all these parts are copied at the same time */
        q->w = at;
        at += columns_words(q, k->bv);
    }
    for (int i = 0; i < k->npart; i++) {
        DotsPart *q = &k->part[i];
        if (q->direct || (q->whole && q->staged)) continue;
        int64_t buffers = dots_pitch(q, q->chunk) * q->buffers,
                x = q->whole ? 0 : part_rows(q) * buffers;
        if (!q->whole) q->x = at;
        q->w = at + x;
        if (part_copies(q, true)) x += part_columns(q) * buffers;
        if (x > most) most = x;
    }
    at = round_up(at + most, 4);
    for (int i = 0; i < k->npart; i++) {
        k->part[i].sums = at;
        at += (int64_t)k->part[i].n * k->bm * k->bv;
    }
    k->g->scratch = round_up(at, 32) * WORD;
}

/* How many copies a thread begins before it waits for the first. */
static void set_flight(const Model *m, DotsPart *q) {
    for (int vec = 0; vec < 2; vec++) {
        int width = q->by_four[vec] ? 4 : 1;
        int64_t times = div_up(part_lines(q, vec) * (q->chunk / width), m->threads);
        q->flight[vec] = times < IN_FLIGHT / width ? (int)times : IN_FLIGHT / width;
    }
}

/* How many of a thread's steps follow each other without a jump. */
static void set_unroll(DotsPart *q) {
    const int steps = q->direct ? 1 : (int)div_up(q->chunk / q->at_once, q->team);
    q->unroll = UNROLL_LOADS / (q->tm * q->tc);
    if (q->unroll > UNROLL_MOST) q->unroll = UNROLL_MOST;
    if (q->unroll > steps) q->unroll = steps;
    if (q->unroll < 1) q->unroll = 1;
}

static const int sizes[] = {1,  2,  3,  4,  5,  6,  7,  8,   10,  12,  14,
                            16, 20, 24, 32, 48, 64, 96, 128, 256, 512, 1024};
#define HEIGHTS_MOST 64

/* Whether no loop runs the group again and again, so that nothing of it stays on chip. */
static bool runs_once(const Stmt *s) {
    for (const Seq *q = s->op.t[0]->seq; q && q->owner; q = q->parent)
        if (q->owner->kind == S_LOOP) return false;
    return true;
}

/* The numbers of rows that a block may have; returns how many. Where sca could be copied as it
 * lies, whole lines of its last row axis are among them. */
static int heights(const DotsKernel *k, int *out) {
    int n = 0;
    bool span = false;
    for (size_t i = 0; i < COUNT(sizes) && (i == 0 || sizes[i - 1] < k->rows); i++)
        out[n++] = sizes[i];
    for (int i = 0; i < k->npart; i++) span |= (k->part[i].run || k->part[i].box) && k->nrow;
    int64_t line = span ? axis_size(k->row[k->nrow - 1], 1) : INT32_MAX;
    for (; line < k->rows && line <= sizes[COUNT(sizes) - 1]; line *= 2) out[n++] = (int)line;
    if (span && k->rows <= sizes[COUNT(sizes) - 1]) out[n++] = (int)k->rows;
    return n;
}

bool dots_shape(DotsKernel *k) {
    const Device *d = k->g->p->schedule->device;
    /* On-chip weights want the memory, too. */
    int64_t bytes = d->level[LEVEL_CORE].bytes, share = bytes / 4 > 16 << 10 ? bytes / 4 : 16 << 10;
    if (bytes - SHARED_OWN < share) share = bytes - SHARED_OWN;
    const int threads = k->g->nthread;
    Model m = {
        k, threads, d->warp, d->matrix_rows, share * threads / d->threads / 4, runs_once(k->g->s)};
    DotsPart part[MAX_PRODUCTS], chosen[MAX_PRODUCTS];
    double best = 0;
    int height[HEIGHTS_MOST];
    const int nheight = heights(k, height);
    for (int i = 0; i < nheight; i++)
        for (size_t j = 0; j < 2 * COUNT(sizes) && (j < 2 || sizes[j / 2 - 1] < k->columns); j++) {
            memcpy(part, k->part, sizeof part);
            double cycles = block_cycles(&m, part, height[i], sizes[j / 2], j % 2);
            if (cycles == 0 || (best > 0 && cycles >= best)) continue;
            best = cycles;
            k->bm = height[i];
            k->bv = sizes[j / 2];
            memcpy(chosen, part, sizeof part);
        }
    if (best == 0) return false;
    memcpy(k->part, chosen, sizeof chosen);
    place(k);
    for (int i = 0; i < k->npart; i++) {
        set_flight(&m, &k->part[i]);
        set_unroll(&k->part[i]);
    }
    return true;
}
