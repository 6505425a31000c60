/* dots_time.c: how long a block of threads takes for its sums of products in the shape that was
 * chosen, by the rules of scheduler/cost/latency.c. */
#include "scheduler/cost/decide.h"
#include "scheduler/kernel/dots.h"

#include <math.h>

#define FLIGHT 8         /* loads of an instruction that are on their way together */
#define MATRIX_CYCLES 33 /* a product of the matrix units */

typedef struct DotsWaits {
    const Device *d;
    int threads; /* of a block that compute it */
    double busy; /* warps that share a scheduler */
} DotsWaits;

static double barrier_ns(const DotsWaits *w) { return w->d->level[LEVEL_CORE].barrier_ns; }

/* A copy of one operand of a chunk. */
static double copy_ns(const DotsWaits *w, const DotsPart *q, bool vec) {
    const double times =
        (double)div_up(part_lines(q, vec) * (q->chunk / (q->by_four[vec] ? 4 : 1)), w->threads);
    const double rounds = q->async[vec] ? 1 : (double)div_up((int64_t)times, q->flight[vec]);
    return rounds * w->d->load_ns + times * 2 * w->d->cycle_ns * w->busy;
}

/* A copy of all of sca that a block of rows needs; and of a block's columns, on its way together
 * with it. */
static double whole_ns(const DotsWaits *w, const DotsPart *q) {
    if (!q->span) return copy_ns(w, q, false);
    return w->d->load_ns + (double)div_up(q->span / 4, w->threads) * 2 * w->d->cycle_ns * w->busy;
}
static double staged_ns(const DotsWaits *w, const DotsPart *q, int64_t columns) {
    if (!q->staged || !q->whole || (q->own && q->own->near)) return 0;
    return (double)div_up(columns * q->n * q->column / 4, w->threads) * 2 * w->d->cycle_ns *
           w->busy;
}

/* The sums' steps of a chunk, from weights in the block's memory (`near`) or not. */
static double steps_ns(const DotsWaits *w, const DotsPart *q, int64_t steps, bool near) {
    const Device *d = w->d;
    const double n = (double)div_up(div_up(steps, q->at_once), q->team), sums = q->tm * q->tc;
    const double load = near ? d->core_load_ns : d->load_ns;
    if (q->matrix)
        return n * ((q->tm + q->tc) * 2 * d->cycle_ns * w->busy + load +
                    sums * MATRIX_CYCLES * d->cycle_ns);
    const double issue = n * (2 * (q->tm + q->tc) + 4 * sums) * d->cycle_ns;
    return ceil(n * q->tc / FLIGHT) * load + issue * w->busy;
}

static double exchange_ns(const DotsWaits *w, const DotsPart *q) {
    double ns = 0, sums = q->tm * q->tc;
    if (q->matrix) return q->team * (barrier_ns(w) + 4 * sums * w->d->cycle_ns);
    for (int far = q->team / 2; far; far /= 2) {
        sums = fmax(sums / 2, 1);
        ns += sums * w->d->shuffle_ns;
    }
    return ns + w->d->core_load_ns;
}

static double part_ns(const DotsWaits *w, const DotsPart *q) {
    const Device *d = w->d;
    const int64_t length = q->length < 0 ? STEPS_UNKNOWN : q->length;
    const bool near = !q->packed || q->staged || (q->own && q->own->near);
    if (q->direct)
        return ceil((double)length * q->tc / FLIGHT) * d->load_ns +
               (double)length * (q->tm + q->tc + q->tm * q->tc) * d->cycle_ns * w->busy;
    if (q->whole && q->packed) return steps_ns(w, q, length, near) + exchange_ns(w, q);
    const double chunks = (double)div_up(length, q->chunk);
    const bool x = part_copies(q, false), columns = part_copies(q, true);
    const double copies = (x ? copy_ns(w, q, false) : 0) + (columns ? copy_ns(w, q, true) : 0);
    const double sums = steps_ns(w, q, length < q->chunk ? length : q->chunk, near);
    const bool beside = q->buffers > 1 && (!x || q->async[false]) && (!columns || q->async[true]);
    const double each = beside ? fmax(copies / (q->buffers - 1), sums) : copies + sums;
    return chunks * (each + barrier_ns(w)) + (beside ? copies : 0) + barrier_ns(w) +
           exchange_ns(w, q);
}

double dots_ns(const DotsKernel *k) {
    const Device *d = k->g->p->schedule->device;
    const DotsWaits w = {d, k->g->nthread, fmax(d->threads / d->warp / 4.0, 1)};
    double once = barrier_ns(&w), each = 2 * barrier_ns(&w), outer = 1;
    for (int i = 0; i < k->nouter; i++)
        outer *= (double)dots_share(k->g, k->outer[i], ROWS_UNKNOWN);
    for (int i = 0; i < k->npart; i++) {
        if (k->part[i].whole) once += whole_ns(&w, &k->part[i]);
        each += part_ns(&w, &k->part[i]) + staged_ns(&w, &k->part[i], k->bv);
    }
    return outer * (double)div_up(k->rows, k->bm) *
           (once + (double)div_up(k->columns, k->bv) * each);
}
