/* nms.h: non-maximum suppression of boxes (after extern.h). */
#ifndef BX_NMS_H
#define BX_NMS_H

typedef struct bx_box {
    float x0, y0, x1, y1;
} bx_box;
typedef struct bx_scored {
    float score;
    int64_t box;
} bx_scored;

BX_FN bx_box bx_box_at(const float *b, int center) {
    if (center) {
        float w = b[2] / 2, h = b[3] / 2;
        const bx_box x = {b[0] - w, b[1] - h, b[0] + w, b[1] + h};
        return x;
    }
    const bx_box x = {fminf(b[1], b[3]), fminf(b[0], b[2]), fmaxf(b[1], b[3]), fmaxf(b[0], b[2])};
    return x;
}

BX_FN int bx_overlaps(bx_box a, bx_box b, float threshold) {
    float w = fminf(a.x1, b.x1) - fmaxf(a.x0, b.x0), h = fminf(a.y1, b.y1) - fmaxf(a.y0, b.y0);
    if (!(w > 0) || !(h > 0)) return 0;
    float common = w * h, area_a = (a.x1 - a.x0) * (a.y1 - a.y0);
    float area_b = (b.x1 - b.x0) * (b.y1 - b.y0), all = area_a + area_b - common;
    if (!(common > 0) || !(area_a > 0) || !(area_b > 0) || !(all > 0)) return 0;
    return common / all > threshold;
}

/* Higher score first, then the lower box. */
BX_FN int bx_scored_before(bx_scored a, bx_scored b) {
    return a.score > b.score || (!(a.score < b.score) && a.box < b.box);
}
/* Moves c[i] down in a heap of n whose root is the first in order. */
BX_FN void bx_scored_sift(bx_scored *c, int64_t n, int64_t i) {
    bx_scored v = c[i];
    for (int64_t k; (k = 2 * i + 1) < n; i = k) {
        if (k + 1 < n && bx_scored_before(c[k + 1], c[k])) k++;
        if (!bx_scored_before(c[k], v)) break;
        c[i] = c[k];
    }
    c[i] = v;
}

/* in: boxes [batches, n, 4], scores [batches, classes, n], float32; iou threshold [1] or absent
 * (0), score threshold [1] or absent (none). param: boxes per class at most, center format. out:
 * selected [rows, 3], enough rows for all; their number [1]. */
BX_FN int bx_nms_plan(const bx_tensor *in, const int64_t *param, int64_t *sym, int64_t *bytes) {
    (void)param, (void)sym;
    bytes[2] = in[0].dim[1] * (int64_t)sizeof(bx_scored);
    return 0;
}
BX_FN int bx_nms(const bx_tensor *in, const int64_t *param, bx_tensor *out, void *scratch) {
    int64_t batches = in[1].dim[0], classes = in[1].dim[1], n = in[1].dim[2], rows = 0;
    int64_t *selected = (int64_t *)out[0].data;
    const float *floor = (const float *)in[3].data;
    float threshold = in[2].data ? ((const float *)in[2].data)[0] : 0;
    int center = param[1] != 0;
    bx_scored *cand = (bx_scored *)scratch;
    for (int64_t b = 0; b < batches; b++)
        for (int64_t c = 0; c < classes; c++) {
            const float *boxes = (const float *)in[0].data + b * n * 4;
            const float *score = (const float *)in[1].data + (b * classes + c) * n;
            int64_t first = rows, left = 0;
            for (int64_t i = 0; i < n; i++)
                if (!isnan(score[i]) && (!floor || score[i] > *floor)) {
                    const bx_scored s = {score[i], i};
                    cand[left++] = s;
                }
            for (int64_t i = left / 2 - 1; i >= 0; i--) bx_scored_sift(cand, left, i);
            while (left > 0 && rows - first < param[0]) {
                int64_t best = cand[0].box, keep = 1;
                cand[0] = cand[--left];
                if (left) bx_scored_sift(cand, left, 0);
                bx_box box = bx_box_at(boxes + best * 4, center);
                for (int64_t r = first; r < rows && keep; r++)
                    keep = !bx_overlaps(box, bx_box_at(boxes + selected[r * 3 + 2] * 4, center),
                                        threshold);
                if (!keep) continue;
                selected[rows * 3] = b;
                selected[rows * 3 + 1] = c;
                selected[rows * 3 + 2] = best;
                rows++;
            }
        }
    for (int64_t i = rows * 3; i < out[0].dim[0] * 3; i++) selected[i] = 0;
    ((int64_t *)out[1].data)[0] = rows;
    return 0;
}

#endif
