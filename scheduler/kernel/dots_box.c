/* dots_box.c: padded factors that a block copies as a box of their dimensions, zeros where it
 * reaches over the borders. Of an image's windows each pixel is copied once. */
#include "scheduler/kernel/dots.h"
#include "utask/windows.h"

/* Adds the bound  slack <= second - first  if it is one on a dimension. */
static bool bound(Cx *c, void *user, Expr *first, Expr *second, int64_t slack) {
    DotsBox *b = user;
    Expr *room = e_addi(c, e_sub(c, second, first), -slack);
    int64_t v;
    for (int d = 0; d < b->rank; d++) {
        if (e_is_int(e_sub(c, room, b->at[d]), &v)) {
            if (-v > b->low[d]) b->low[d] = -v;
            return true;
        }
        if (e_is_int(e_add(c, room, b->at[d]), &v)) {
            if (v < b->high[d]) b->high[d] = v;
            return true;
        }
    }
    return false;
}

/* How far dimension d moves with x; -1: that is not known, or backwards. */
static int64_t along(Cx *c, const DotsBox *b, int d, Axis *x) {
    int64_t n;
    Expr *coef = e_coef(c, b->at[d], x);
    return coef && e_is_int(coef, &n) && n >= 0 ? n : -1;
}

/* Whether quads of steps lie together along the last dimension, and all of them are inside. */
static bool by_quads(const DotsKernel *k, const DotsPart *q, const DotsBox *b) {
    const int last = b->rank - 1;
    const Axis *x = q->raxis[q->nraxis - 1];
    if (b->low[last] != INT64_MIN || b->high[last] != INT64_MAX || axis_size(x, 1) % 4)
        return false;
    for (int i = 0; i < k->nrow; i++)
        if (b->row[last][i] % 4) return false;
    for (int i = 0; i < q->nraxis; i++)
        if (q->raxis[i] == x ? b->step[last][i] != 1 : b->step[last][i] % 4) return false;
    for (int d = 0; d < last; d++)
        if (b->step[d][q->nraxis - 1]) return false;
    return true;
}

const DotsBox *dots_box(const DotsKernel *k, const DotsPart *q) {
    const Product *p = &k->p[q->lead];
    Cx *c = k->g->c;
    if (!q->packed || q->matrix || p->columns || !p->sca_inside || p->sca->kind || q->length < 0 ||
        !q->by_four[0] || q->nraxis > MAX_RANK * 2)
        return NULL;
    DotsBox *b = NEW(k->g->a, DotsBox);
    b->rank = p->sca->n;
    for (int d = 0; d < b->rank; d++) {
        b->at[d] = p->sca->a[d];
        b->low[d] = INT64_MIN;
        b->high[d] = INT64_MAX;
        for (int i = 0; i < k->nrow; i++)
            if (k->row[i] == k->g->strip || (b->row[d][i] = along(c, b, d, k->row[i])) < 0)
                return NULL;
        for (int i = 0; i < q->nraxis; i++)
            if ((b->step[d][i] = along(c, b, d, q->raxis[i])) < 0) return NULL;
    }
    return b->rank && padding_bounds(c, p->sca_inside, bound, b) && by_quads(k, q, b) ? b : NULL;
}

int64_t dots_box_words(const DotsKernel *k, DotsPart *q, const int64_t *rows) {
    const DotsBox *b = q->box;
    int64_t words = 1;
    memset(q->row_stride, 0, sizeof q->row_stride);
    memset(q->tap_stride, 0, sizeof q->tap_stride);
    for (int d = b->rank - 1; d >= 0; d--) {
        int64_t n = 1;
        for (int i = 0; i < k->nrow; i++) {
            n += (rows[i] - 1) * b->row[d][i];
            q->row_stride[i] += words * b->row[d][i];
        }
        for (int i = 0; i < q->nraxis; i++) {
            n += (axis_size(q->raxis[i], 1) - 1) * b->step[d][i];
            q->tap_stride[i] += words * b->step[d][i];
        }
        if (n > INT32_MAX / words) return 0;
        q->extent[d] = n;
        words *= n;
    }
    q->run = 1;
    for (q->ntap = q->nraxis; q->ntap > 0 && q->tap_stride[q->ntap - 1] == q->run; q->ntap--)
        q->run *= axis_size(q->raxis[q->ntap - 1], 1);
    return words % 4 ? 0 : words;
}
