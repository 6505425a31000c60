/* scan.h: cumulative sums and products (after extern.h). */
#ifndef BX_SCAN_H
#define BX_SCAN_H

/* in: x. param: axis (negative from the end), exclusive, reverse, product. out: like x. float16 and
 * bfloat16 are rounded at each step. */
BX_FN int bx_cumulate(const bx_tensor *in, const int64_t *param, bx_tensor *out, void *scratch) {
    const bx_tensor *x = &in[0];
    int64_t axis = param[0] < 0 ? param[0] + x->rank : param[0], outer = 1, inner = 1;
    int exclusive = param[1] != 0, product = param[3] != 0;
    (void)scratch;
    if (axis < 0 || axis >= x->rank) return 1;
    for (int d = 0; d < axis; d++) outer *= x->dim[d];
    for (int d = (int)axis + 1; d < x->rank; d++) inner *= x->dim[d];
    int64_t n = x->dim[axis], step = param[2] ? -inner : inner;
    if (n == 0 || inner == 0) return 0;
/* Row i of a lane: inclusive takes row i - 1 of the result and row i of x, exclusive row i - 1 of
 * both; OP sees them as a and b. */
#define BX_ROWS(TYPE, OP, ONE)                                                                     \
    for (int64_t o = 0; o < outer; o++) {                                                          \
        int64_t first = (o * n + (param[2] ? n - 1 : 0)) * inner;                                  \
        const TYPE *from = (const TYPE *)x->data + first;                                          \
        TYPE *to = (TYPE *)out[0].data + first;                                                    \
        for (int64_t q = 0; q < inner; q++) to[q] = exclusive ? (TYPE)(ONE) : from[q];             \
        if (inner == 1) {                                                                          \
            TYPE a = to[0];                                                                        \
            for (int64_t i = 1; i < n; i++) {                                                      \
                const TYPE b = from[(i - exclusive) * step];                                       \
                to[i * step] = a = (TYPE)(OP);                                                     \
            }                                                                                      \
            continue;                                                                              \
        }                                                                                          \
        for (int64_t i = 1; i < n; i++)                                                            \
            for (int64_t q = 0; q < inner; q++) {                                                  \
                const TYPE a = to[(i - 1) * step + q], b = from[(i - exclusive) * step + q];       \
                to[i * step + q] = (TYPE)(OP);                                                     \
            }                                                                                      \
    }                                                                                              \
    return 0;
/* WIDE: an unsigned type in which + and * cannot overflow, or the floating type. */
#define BX_SCAN(TYPE, WIDE)                                                                        \
    if (product) {                                                                                 \
        BX_ROWS(TYPE, (WIDE)a *(WIDE)b, 1)                                                         \
    } else {                                                                                       \
        BX_ROWS(TYPE, (WIDE)a + (WIDE)b, 0)                                                        \
    }
#define BX_SCAN16(GET, PUT)                                                                        \
    if (product) {                                                                                 \
        BX_ROWS(uint16_t, PUT(GET(a) * GET(b)), PUT(1.0f))                                         \
    } else {                                                                                       \
        BX_ROWS(uint16_t, PUT(GET(a) + GET(b)), 0)                                                 \
    }
    switch (x->dtype) {
    case 1: BX_SCAN(float, float)
    case 10: BX_SCAN16(bx_half, bx_to_half)
    case 11: BX_SCAN(double, double)
    case 16: BX_SCAN16(bx_bf16, bx_to_bf16)
    default: break;
    }
    switch (bx_size(x->dtype)) { /* integers wrap, so their sign does not matter */
    case 1: BX_SCAN(uint8_t, uint32_t)
    case 2: BX_SCAN(uint16_t, uint32_t)
    case 4: BX_SCAN(uint32_t, uint32_t)
    default: BX_SCAN(uint64_t, uint64_t)
    }
#undef BX_ROWS
#undef BX_SCAN
#undef BX_SCAN16
}

#endif
