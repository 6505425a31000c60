/* select.h: which elements are not zero (after extern.h). */
#ifndef BX_SELECT_H
#define BX_SELECT_H

/* Calls HIT for each i in [0, n) whose element is not zero; -0.0 is zero, NaN is not. */
#define BX_EACH_NONZERO(t, n, HIT)                                                                 \
    switch (bx_size((t)->dtype)) {                                                                 \
    case 1: BX_NONZERO_LOOP(uint8_t, UINT8_MAX, t, n, HIT)                                         \
    case 2: BX_NONZERO_LOOP(uint16_t, bx_is_float((t)->dtype) ? 0x7fffu : 0xffffu, t, n, HIT)      \
    case 4: BX_NONZERO_LOOP(uint32_t, UINT32_MAX >> bx_is_float((t)->dtype), t, n, HIT)            \
    default: BX_NONZERO_LOOP(uint64_t, UINT64_MAX >> bx_is_float((t)->dtype), t, n, HIT)           \
    }
#define BX_NONZERO_LOOP(TYPE, MASK, t, n, HIT)                                                     \
    for (int64_t i = 0; i < (n); i++)                                                              \
        if (((const TYPE *)(t)->data)[i] & (MASK)) HIT;                                            \
    break;

/* in: x. sym: the count. out: [rank, count], the indices in row-major order. */
BX_FN int bx_nonzero_plan(const bx_tensor *in, const int64_t *param, int64_t *sym, int64_t *bytes) {
    int64_t n = bx_count(&in[0]), found = 0;
    (void)param, (void)bytes;
    BX_EACH_NONZERO(&in[0], n, found++)
    sym[0] = found;
    return 0;
}
BX_FN int bx_nonzero(const bx_tensor *in, const int64_t *param, bx_tensor *out, void *scratch) {
    const bx_tensor *x = &in[0];
    int64_t n = bx_count(x), found = out[0].dim[1], at = 0, *to = (int64_t *)out[0].data;
    (void)param, (void)scratch;
#define BX_HIT                                                                                     \
    {                                                                                              \
        int64_t rest = i;                                                                          \
        for (int d = x->rank - 1; d > 0; d--) {                                                    \
            to[d * found + at] = rest % x->dim[d];                                                 \
            rest /= x->dim[d];                                                                     \
        }                                                                                          \
        if (x->rank) to[at] = rest;                                                                \
        at++;                                                                                      \
    }
    BX_EACH_NONZERO(x, n, BX_HIT)
#undef BX_HIT
    return 0;
}
#undef BX_EACH_NONZERO
#undef BX_NONZERO_LOOP

/* in: [n] bool. sym: how many are true. out: [n] the positions of the true ones, in order, then
 * those of the others; [n] where each is among its kind. */
BX_FN int bx_partition_plan(const bx_tensor *in, const int64_t *param, int64_t *sym,
                            int64_t *bytes) {
    const uint8_t *x = (const uint8_t *)in[0].data;
    (void)param, (void)bytes;
    for (int64_t i = 0; i < in[0].dim[0]; i++) sym[0] += x[i] != 0;
    return 0;
}
BX_FN int bx_partition(const bx_tensor *in, const int64_t *param, bx_tensor *out, void *scratch) {
    const uint8_t *x = (const uint8_t *)in[0].data;
    int64_t *row = (int64_t *)out[0].data, *place = (int64_t *)out[1].data, all = 0, n[2] = {0, 0};
    (void)param, (void)scratch;
    for (int64_t i = 0; i < in[0].dim[0]; i++) all += x[i] != 0;
    for (int64_t i = 0; i < in[0].dim[0]; i++) {
        int other = x[i] == 0;
        row[other ? all + n[1] : n[0]] = i;
        place[i] = n[other]++;
    }
    return 0;
}

#endif
