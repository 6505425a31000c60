/* text.h: n-gram counts (after extern.h). */
#ifndef BX_TEXT_H
#define BX_TEXT_H

/* Number of the n-gram x[at], x[at + step], … in `pool`, which holds `count` n-grams in ascending
 * order; -1 when it is not there. */
BX_FN int64_t bx_gram_find(const bx_tensor *x, int64_t at, int64_t step, int64_t n,
                           const int64_t *pool, int64_t count) {
    int64_t lo = 0, hi = count;
    while (lo < hi) {
        int64_t mid = lo + (hi - lo) / 2, i = 0, v = 0;
        while (i < n && (v = bx_geti(x, at + i * step)) == pool[mid * n + i]) i++;
        if (i == n) return mid;
        if (v < pool[mid * n + i])
            hi = mid;
        else
            lo = mid + 1;
    }
    return -1;
}

/* in: x [C] or [B, C], integers; pool, int64: sorted n-grams of each length, one length after the
 * other; column, int64: the output column of each n-gram; table [lengths, 3], int64, for length
 * n = row + 1: first n-gram, its place in pool, number of n-grams; weight of each n-gram, float32,
 * or absent. param: mode 0 TF, 1 IDF, 2 TFIDF; most skips; shortest length; longest length. out:
 * float32 [columns] or [B, columns]. */
BX_FN int bx_tfidf(const bx_tensor *in, const int64_t *param, bx_tensor *out, void *scratch) {
    const bx_tensor *x = &in[0];
    const int64_t *pool = (const int64_t *)in[1].data, *column = (const int64_t *)in[2].data;
    const int64_t *table = (const int64_t *)in[3].data;
    const float *weight = (const float *)in[4].data;
    int64_t len = x->rank ? x->dim[x->rank - 1] : 1, rows = x->rank == 2 ? x->dim[0] : 1;
    int64_t width = out[0].dim[out[0].rank - 1];
    (void)scratch;
    for (int64_t r = 0; r < rows; r++) {
        float *y = (float *)out[0].data + r * width;
        for (int64_t i = 0; i < width; i++) y[i] = 0;
        int64_t shortest = param[2];
        for (int64_t step = 1; step <= param[1] + 1 && step <= len; step++) {
            for (int64_t at = 0; at < len; at++)
                for (int64_t n = shortest; n <= param[3]; n++) {
                    if (n > 1 && (len - 1 - at) / (n - 1) < step) break;
                    const int64_t *t = table + (n - 1) * 3;
                    int64_t g = bx_gram_find(x, r * len + at, step, n, pool + t[1], t[2]);
                    if (g < 0) continue;
                    int64_t c = column[t[0] + g];
                    float w = weight && param[0] != 0 ? weight[t[0] + g] : 1;
                    y[c] = param[0] == 1 ? w : y[c] + w;
                }
            if (shortest == 1) shortest = 2; /* skips make no difference to single items */
            if (shortest > param[3]) break;
        }
    }
    return 0;
}

#endif
