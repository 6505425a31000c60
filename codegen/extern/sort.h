/* sort.h: order of elements (after extern.h).
 *
 * Elements are compared by a key, an order-preserving map to uint64: equal elements have equal keys
 * (-0 equals 0), NaN is above everything.
 */
#ifndef BX_SORT_H
#define BX_SORT_H

BX_FN uint64_t bx_key_int(int64_t v) { return (uint64_t)v ^ UINT64_C(1) << 63; }
BX_FN uint64_t bx_key_float(float v) {
    uint32_t u;
    if (isnan(v)) return UINT64_MAX;
    if (v == 0) v = 0;
    memcpy(&u, &v, 4);
    return u >> 31 ? ~u : u | UINT32_C(1) << 31;
}
BX_FN uint64_t bx_key_double(double v) {
    uint64_t u;
    if (isnan(v)) return UINT64_MAX;
    if (v == 0) v = 0;
    memcpy(&u, &v, 8);
    return u >> 63 ? ~u : u | UINT64_C(1) << 63;
}

/* key[i] = key of element base + i * stride, complemented when `flip` is all ones. */
BX_FN void bx_keys(const bx_tensor *t, int64_t base, int64_t stride, int64_t n, uint64_t flip,
                   uint64_t *key) {
#define BX_KEYS(TYPE, KEY)                                                                         \
    for (int64_t i = 0; i < n; i++) {                                                              \
        const TYPE v = ((const TYPE *)t->data)[base + i * stride];                                 \
        key[i] = flip ^ (KEY);                                                                     \
    }                                                                                              \
    break;
    switch (t->dtype) {
    case 1: BX_KEYS(float, bx_key_float(v))
    case 2:
    case 9: BX_KEYS(uint8_t, v)
    case 3: BX_KEYS(int8_t, bx_key_int(v))
    case 4: BX_KEYS(uint16_t, v)
    case 5: BX_KEYS(int16_t, bx_key_int(v))
    case 6: BX_KEYS(int32_t, bx_key_int(v))
    case 7: BX_KEYS(int64_t, bx_key_int(v))
    case 10: BX_KEYS(uint16_t, bx_key_float(bx_half(v)))
    case 11: BX_KEYS(double, bx_key_double(v))
    case 12: BX_KEYS(uint32_t, v)
    case 13: BX_KEYS(uint64_t, v)
    case 16: BX_KEYS(uint16_t, bx_key_float(bx_bf16(v)))
    default: break;
    }
#undef BX_KEYS
}

BX_FN void bx_copy_elem(void *dst, int64_t i, const void *src, int64_t j, int size) {
    switch (size) {
    case 1: ((uint8_t *)dst)[i] = ((const uint8_t *)src)[j]; break;
    case 2: ((uint16_t *)dst)[i] = ((const uint16_t *)src)[j]; break;
    case 4: ((uint32_t *)dst)[i] = ((const uint32_t *)src)[j]; break;
    default: ((uint64_t *)dst)[i] = ((const uint64_t *)src)[j]; break;
    }
}

/* Product of the dims [from, to). */
BX_FN int64_t bx_span(const bx_tensor *t, int from, int to) {
    int64_t n = 1;
    for (int i = from; i < to; i++) n *= t->dim[i];
    return n;
}

typedef struct bx_ranked {
    uint64_t key;
    int64_t idx;
} bx_ranked;

BX_FN int bx_before(bx_ranked a, bx_ranked b) {
    return a.key < b.key || (a.key == b.key && a.idx < b.idx);
}

/* Moves h[i] down in a heap of n whose root is the last in order. */
BX_FN void bx_sift(bx_ranked *h, int64_t n, int64_t i) {
    bx_ranked v = h[i];
    for (int64_t c; (c = 2 * i + 1) < n; i = c) {
        if (c + 1 < n && bx_before(h[c], h[c + 1])) c++;
        if (!bx_before(v, h[c])) break;
        h[i] = h[c];
    }
    h[i] = v;
}

/* The first k of n keys in order (ties: lower index first) into h. */
BX_FN void bx_first_k(const uint64_t *key, int64_t n, int64_t k, bx_ranked *h) {
    if (k == 0) return;
    for (int64_t i = 0; i < k; i++) {
        const bx_ranked r = {key[i], i};
        h[i] = r;
    }
    for (int64_t i = k / 2 - 1; i >= 0; i--) bx_sift(h, k, i);
    for (int64_t i = k; i < n; i++) {
        if (key[i] >= h[0].key) continue; /* a later index loses ties */
        h[0].key = key[i];
        h[0].idx = i;
        bx_sift(h, k, 0);
    }
    for (int64_t m = k - 1; m > 0; m--) {
        bx_ranked last = h[0];
        h[0] = h[m];
        h[m] = last;
        bx_sift(h, m, 0);
    }
}

/* in: x. param: k, axis, largest. out: values and indices, dim[axis] = k, in order. */
BX_FN int bx_topk_plan(const bx_tensor *in, const int64_t *param, int64_t *sym, int64_t *bytes) {
    (void)sym;
    if (param[1] < 0 || param[1] >= in[0].rank) return 1;
    int64_t n = in[0].dim[param[1]];
    if (param[0] < 0 || param[0] > n) return 1;
    bytes[2] = n * (int64_t)sizeof(uint64_t) + param[0] * (int64_t)sizeof(bx_ranked);
    return 0;
}
BX_FN int bx_topk(const bx_tensor *in, const int64_t *param, bx_tensor *out, void *scratch) {
    const bx_tensor *x = &in[0];
    int64_t k = param[0];
    int axis = (int)param[1], size = bx_size(x->dtype);
    int64_t n = x->dim[axis], outer = bx_span(x, 0, axis), inner = bx_span(x, axis + 1, x->rank);
    bx_ranked *best = (bx_ranked *)scratch;
    uint64_t *key = (uint64_t *)(best + k);
    if (k == 0) return 0;
    for (int64_t o = 0; o < outer; o++)
        for (int64_t q = 0; q < inner; q++) {
            bx_keys(x, o * n * inner + q, inner, n, param[2] ? UINT64_MAX : 0, key);
            bx_first_k(key, n, k, best);
            for (int64_t i = 0; i < k; i++) {
                int64_t to = (o * k + i) * inner + q;
                bx_copy_elem(out[0].data, to, x->data, (o * n + best[i].idx) * inner + q, size);
                ((int64_t *)out[1].data)[to] = best[i].idx;
            }
        }
    return 0;
}

/* Subtensors x[:, i, :] in lexicographic order; with keys (outer = inner = 1) by those. */
typedef struct bx_slices {
    const bx_tensor *x;
    const uint64_t *key; /* or NULL */
    int64_t outer, n, inner;
} bx_slices;

BX_FN int bx_slice_cmp(const bx_slices *s, int64_t i, int64_t j) {
    if (s->key) return (s->key[i] > s->key[j]) - (s->key[i] < s->key[j]);
    for (int64_t o = 0; o < s->outer; o++)
        for (int64_t q = 0; q < s->inner; q++) {
            int c = bx_cmp(s->x, (o * s->n + i) * s->inner + q, (o * s->n + j) * s->inner + q);
            if (c) return c;
        }
    return 0;
}

/* Stable merge sort of the numbers 0..n-1 in idx; the result is in the array returned, idx or tmp.
 */
BX_FN int64_t *bx_slice_sort(const bx_slices *s, int64_t *idx, int64_t *tmp) {
    for (int64_t i = 0; i < s->n; i++) idx[i] = i;
    for (int64_t w = 1; w < s->n; w *= 2) {
        for (int64_t lo = 0; lo < s->n; lo += 2 * w) {
            int64_t mid = lo + w < s->n ? lo + w : s->n, hi = mid + w < s->n ? mid + w : s->n;
            for (int64_t a = lo, b = mid, to = lo; to < hi; to++) {
                int left = b == hi || (a < mid && bx_slice_cmp(s, idx[a], idx[b]) <= 0);
                tmp[to] = left ? idx[a++] : idx[b++];
            }
        }
        int64_t *swap = idx;
        idx = tmp;
        tmp = swap;
    }
    return idx;
}

/* in: x. param: axis (-1: x flattened), sorted. With m subtensors and u distinct ones, out:
 * inverse [m]; first [m], of which the first u count; counts [m], likewise; u itself [1]. */
BX_FN int64_t bx_unique_items(const bx_tensor *in, const int64_t *param) {
    return param[0] < 0 ? bx_count(&in[0]) : in[0].dim[param[0]];
}
BX_FN int bx_unique_plan(const bx_tensor *in, const int64_t *param, int64_t *sym, int64_t *bytes) {
    (void)sym;
    if (param[0] >= in[0].rank) return 1;
    bytes[4] = 3 * bx_unique_items(in, param) * (int64_t)sizeof(int64_t);
    return 0;
}
BX_FN int bx_unique(const bx_tensor *in, const int64_t *param, bx_tensor *out, void *scratch) {
    int64_t m = bx_unique_items(in, param), u = 0;
    int64_t *inverse = (int64_t *)out[0].data, *first = (int64_t *)out[1].data;
    int64_t *counts = (int64_t *)out[2].data;
    int64_t *idx = (int64_t *)scratch, *tmp = idx + m, *order;
    bx_slices s = {&in[0], NULL, 1, m, 1};
    if (param[0] < 0) {
        uint64_t *key = (uint64_t *)(tmp + m);
        bx_keys(&in[0], 0, 1, m, 0, key);
        s.key = key;
    } else {
        s.outer = bx_span(&in[0], 0, (int)param[0]);
        s.inner = bx_span(&in[0], (int)param[0] + 1, in[0].rank);
    }
    order = bx_slice_sort(&s, idx, tmp);
    for (int64_t i = 0; i < m; i++) {
        int fresh = i == 0 || bx_slice_cmp(&s, order[i - 1], order[i]) != 0;
        if (fresh) first[u++] = order[i];
        inverse[order[i]] = u - 1;
    }
    if (!param[1]) { /* renumber by first occurrence */
        int64_t *name = order == idx ? tmp : idx, seen = 0;
        for (int64_t i = 0; i < m; i++)
            if (first[inverse[i]] == i) name[inverse[i]] = seen++;
        for (int64_t i = 0; i < m; i++) inverse[i] = name[inverse[i]];
    }
    for (int64_t i = 0; i < m; i++) counts[i] = first[i] = 0;
    for (int64_t i = m - 1; i >= 0; i--) {
        counts[inverse[i]]++;
        first[inverse[i]] = i;
    }
    ((int64_t *)out[3].data)[0] = u;
    return 0;
}

#endif
