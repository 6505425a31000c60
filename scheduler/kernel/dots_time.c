/* dots_time.c: how long a block of threads takes for its sums of products in the shape that was
 * chosen, by the rules of scheduler/cost/latency.c. */
#include "scheduler/cost/decide.h"
#include "scheduler/kernel/dots.h"

#include <math.h>

#define FLIGHT 8 /* loads of an instruction that are on their way together */

typedef struct DotsWaits {
    const Device *d;
    int threads; /* of a block that compute it */
    bool placed;
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

/* The sums' steps of a chunk, from weights in the block's memory (`near`) or not. */
static double steps_ns(const DotsWaits *w, const DotsPart *q, int64_t steps, bool near) {
    const Device *d = w->d;
    const double n = (double)div_up(div_up(steps, q->at_once), q->team), sums = q->tm * q->tc;
    const double load = near ? d->core_load_ns : d->load_ns;
    if (q->matrix)
        return n * ((q->tm + q->tc) * 2 * d->cycle_ns * w->busy + load + sums * d->matrix_ns);
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
    const bool near = !q->packed || !w->placed || (q->own && q->own->near);
    if (q->direct)
        return ceil((double)length * q->tc / FLIGHT) * d->load_ns +
               (double)length * (q->tm + q->tc + q->tm * q->tc) * d->cycle_ns * w->busy;
    if (q->whole && q->packed) return steps_ns(w, q, length, near) + exchange_ns(w, q);
    const double chunks = (double)div_up(length, q->chunk);
    const double copies =
        (q->whole ? 0 : copy_ns(w, q, false)) + (q->packed ? 0 : copy_ns(w, q, true));
    const double sums = steps_ns(w, q, length < q->chunk ? length : q->chunk, near);
    const bool beside =
        q->buffers > 1 && (q->whole || q->async[false]) && (q->packed || q->async[true]);
    const double each = beside ? fmax(copies, sums) : copies + sums;
    return chunks * (each + barrier_ns(w)) + (beside ? copies : 0) + barrier_ns(w) +
           exchange_ns(w, q);
}

double dots_ns(const DotsKernel *k) {
    const Device *d = k->g->p->schedule->device;
    const DotsWaits w = {d, k->g->nthread, k->placed, fmax(d->threads / d->warp / 4.0, 1)};
    double once = barrier_ns(&w), each = 2 * barrier_ns(&w), outer = 1;
    for (int i = 0; i < k->nouter; i++)
        outer *= (double)dots_share(k->g, k->outer[i], ROWS_UNKNOWN);
    for (int i = 0; i < k->npart; i++) {
        if (k->part[i].whole) once += copy_ns(&w, &k->part[i], false);
        each += part_ns(&w, &k->part[i]);
    }
    return outer * (double)div_up(k->rows, k->bm) *
           (once + (double)div_up(k->columns, k->bv) * each);
}
