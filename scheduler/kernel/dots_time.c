/* dots_time.c: how long a block of threads takes for its sums of products in the shape that was
 * chosen, by the rules of scheduler/cost/latency.c. */
#include "scheduler/cost/decide.h"
#include "scheduler/kernel/dots.h"

#include <math.h>

#define FLIGHT 8      /* loads of an instruction that are on their way together */
#define SPAN_FLIGHT 4 /* pieces of a copy as it lies */

typedef struct DotsWaits {
    const Device *d;
    int threads; /* of a block that compute it */
    bool placed;
    double busy; /* warps that share a scheduler */
} DotsWaits;

static double barrier_ns(const DotsWaits *w) { return w->d->level[LEVEL_CORE].barrier_ns; }

/* What is copied to the block's memory before threads meet. */
typedef struct DotsCopies {
    double trips, issue; /* round trips one behind the other; ns of the instructions */
    bool async;          /* all of it */
} DotsCopies;

/* Adds so many pieces of 1 or 4 words of one operand. Copies that threads do not wait for are on
 * their way together. */
static void add_copies(const DotsWaits *w, DotsCopies *c, double pieces, bool async, int flight) {
    const double times = ceil(pieces / w->threads);
    c->trips = async ? fmax(c->trips, 1) : c->trips + ceil(times / flight);
    c->issue += times * 2 * w->d->cycle_ns * w->busy;
    c->async &= async;
}

/* A chunk's of one operand. */
static void add_chunk(const DotsWaits *w, DotsCopies *c, const DotsPart *q, bool vec) {
    const double words = (double)part_lines(q, vec) * q->chunk;
    add_copies(w, c, words / (q->by_four[vec] ? 4 : 1), q->async[vec], q->flight[vec]);
}

static double copies_ns(const DotsWaits *w, const DotsCopies *c) {
    return c->trips * w->d->load_ns + c->issue;
}

/* Whether the part's constants stay in the block's memory. */
static bool is_kept(const DotsWaits *w, const DotsPart *q) {
    return !w->placed || (q->own && q->own->near);
}

/* The sums' steps of a chunk, from weights in the block's memory (`near`) or not. */
static double steps_ns(const DotsWaits *w, const DotsPart *q, int64_t steps, bool near) {
    const Device *d = w->d;
    const int64_t run = q->span ? q->run : steps; /* of a call */
    const double calls = (double)(steps / run), sums = q->tm * q->tc,
                 n = calls * (double)div_up(div_up(run, q->at_once), q->team);
    const double load = near ? d->core_load_ns : d->load_ns;
    if (q->matrix)
        return n * ((q->tm + q->tc) * 2 * d->cycle_ns * w->busy + load + sums * d->matrix_ns);
    const double issue = n * (2 * (q->tm + q->tc) + 4 * sums) * d->cycle_ns;
    return ceil(n * fmax(q->tm, q->tc) / FLIGHT) * load + issue * w->busy;
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
    const bool near = !q->packed || q->staged || is_kept(w, q);
    if (q->direct)
        return ceil((double)length * fmax(q->tm, q->tc) / FLIGHT) * d->load_ns +
               (double)length * (q->tm + q->tc + q->tm * q->tc) * d->cycle_ns * w->busy;
    if (q->whole && q->packed) return steps_ns(w, q, length, near) + exchange_ns(w, q);
    const double chunks = (double)div_up(length, q->chunk);
    DotsCopies c = {.async = true};
    for (int vec = 0; vec < 2; vec++)
        if (part_copies(q, vec)) add_chunk(w, &c, q, vec);
    const double copies = copies_ns(w, &c),
                 sums = steps_ns(w, q, length < q->chunk ? length : q->chunk, near);
    const bool beside = q->buffers > 1 && c.async;
    const double each = beside ? fmax(copies / (q->buffers - 1), sums) : copies + sums;
    return chunks * (each + barrier_ns(w)) + (beside ? copies : 0) + barrier_ns(w) +
           exchange_ns(w, q);
}

double dots_ns(const DotsKernel *k) {
    const Device *d = k->g->p->schedule->device;
    const DotsWaits w = {d, k->g->nthread, k->placed, fmax(d->threads / d->warp / 4.0, 1)};
    double each = 2 * barrier_ns(&w), outer = 1;
    DotsCopies rows = {.async = true}, columns = {.async = true};
    for (int i = 0; i < k->nouter; i++)
        outer *= (double)dots_share(k->g, k->outer[i], ROWS_UNKNOWN);
    for (int i = 0; i < k->npart; i++) {
        const DotsPart *q = &k->part[i];
        each += part_ns(&w, q);
        if (q->staged && q->whole && !is_kept(&w, q))
            add_copies(&w, &columns, (double)k->bv * q->n * (double)q->column / 4, q->async[0],
                       SPAN_FLIGHT);
        if (!q->whole) continue;
        if (q->span)
            add_copies(&w, &rows, (double)q->span / 4, q->async[0], SPAN_FLIGHT);
        else
            add_chunk(&w, &rows, q, false);
    }
    if (columns.trips && columns.async && rows.async) rows.trips = 0; /* with the first columns */
    const double once = barrier_ns(&w) + copies_ns(&w, &rows);
    each += copies_ns(&w, &columns);
    return outer * (double)div_up(k->rows, k->bm) *
           (once + (double)div_up(k->columns, k->bv) * each);
}
