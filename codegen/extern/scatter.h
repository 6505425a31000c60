/* scatter.h: updates at computed places (after extern.h).
 *
 * Both operators first turn every index into an offset, checking it, and then apply the updates in
 * order, so that duplicates act one after the other.
 */
#ifndef BX_SCATTER_H
#define BX_SCATTER_H

enum { BX_PUT, BX_PUT_ADD, BX_PUT_MUL, BX_PUT_MAX, BX_PUT_MIN };

/* out[off[u] + i] takes upd[u * slice + i], for u < n, i < slice. */
BX_FN void bx_scatter_apply(bx_tensor *out, const bx_tensor *upd, const int64_t *off, int64_t n,
                            int64_t slice, int64_t how) {
#define BX_PUTS(TYPE, NEW)                                                                         \
    for (int64_t u = 0; u < n; u++) {                                                              \
        TYPE *to = (TYPE *)out->data + off[u];                                                     \
        const TYPE *from = (const TYPE *)upd->data + u * slice;                                    \
        for (int64_t i = 0; i < slice; i++) {                                                      \
            const TYPE a = to[i], b = from[i];                                                     \
            to[i] = (TYPE)(NEW);                                                                   \
        }                                                                                          \
    }                                                                                              \
    break;
/* WIDE: an unsigned type in which + and * cannot overflow, or the floating type. A NaN in b wins by
 * b != b, one in a because comparisons with it are false. */
#define BX_PUTS_HOW(TYPE, WIDE)                                                                    \
    switch (how) {                                                                                 \
    case BX_PUT_ADD: BX_PUTS(TYPE, (WIDE)a + (WIDE)b)                                              \
    case BX_PUT_MUL: BX_PUTS(TYPE, (WIDE)a *(WIDE)b)                                               \
    case BX_PUT_MAX: BX_PUTS(TYPE, b > a || b != b ? b : a)                                        \
    case BX_PUT_MIN: BX_PUTS(TYPE, b < a || b != b ? b : a)                                        \
    default: break;                                                                                \
    }                                                                                              \
    break;
    if (how == BX_PUT) {
        switch (bx_size(out->dtype)) {
        case 1: BX_PUTS(uint8_t, ((void)a, b))
        case 2: BX_PUTS(uint16_t, ((void)a, b))
        case 4: BX_PUTS(uint32_t, ((void)a, b))
        default: BX_PUTS(uint64_t, ((void)a, b))
        }
        return;
    }
    switch (out->dtype) {
    case 1: BX_PUTS_HOW(float, float)
    case 2: BX_PUTS_HOW(uint8_t, uint32_t)
    case 3: BX_PUTS_HOW(int8_t, uint32_t)
    case 4: BX_PUTS_HOW(uint16_t, uint32_t)
    case 5: BX_PUTS_HOW(int16_t, uint32_t)
    case 6: BX_PUTS_HOW(int32_t, uint32_t)
    case 7: BX_PUTS_HOW(int64_t, uint64_t)
    case 9: /* or, and */
        switch (how) {
        case BX_PUT_ADD:
        case BX_PUT_MAX: BX_PUTS(uint8_t, a | b)
        default: BX_PUTS(uint8_t, a & b)
        }
        break;
    case 11: BX_PUTS_HOW(double, double)
    case 12: BX_PUTS_HOW(uint32_t, uint32_t)
    case 13: BX_PUTS_HOW(uint64_t, uint64_t)
    default: /* float16, bfloat16 */
        for (int64_t u = 0; u < n; u++)
            for (int64_t i = 0; i < slice; i++) {
                double a = bx_getf(out, off[u] + i), b = bx_getf(upd, u * slice + i);
                int take = b != b || (how == BX_PUT_MAX ? b > a : b < a);
                double v = how == BX_PUT_ADD ? a + b : how == BX_PUT_MUL ? a * b : take ? b : a;
                bx_setf(out, off[u] + i, v);
            }
    }
#undef BX_PUTS
#undef BX_PUTS_HOW
}

BX_FN void bx_scatter_start(const bx_tensor *data, bx_tensor *out) {
    size_t size = (size_t)(bx_count(data) * bx_size(data->dtype));
    if (size && out->data != data->data) memcpy(out->data, data->data, size);
}

/* in: data, indices, updates, of one rank; indices and updates have the same dims, which outside
 * `axis` are at most those of data. param: axis, how. out: like data. */
BX_FN int bx_scatter_elements_plan(const bx_tensor *in, const int64_t *param, int64_t *sym,
                                   int64_t *bytes) {
    (void)param, (void)sym;
    bytes[1] = bx_count(&in[1]) * (int64_t)sizeof(int64_t);
    if (bytes[1] < BX_SAY_BYTES) bytes[1] = BX_SAY_BYTES;
    return 0;
}
BX_FN int bx_scatter_elements(const bx_tensor *in, const int64_t *param, bx_tensor *out,
                              void *scratch) {
    const bx_tensor *data = &in[0], *index = &in[1];
    int64_t n = bx_count(index), *off = (int64_t *)scratch, stride[BX_RANK], at[BX_RANK] = {0},
            s = 1;
    int axis = (int)param[0], last = index->rank - 1;
    for (int d = last; d >= 0; s *= data->dim[d--]) stride[d] = s;
    int64_t extent = data->dim[axis], row = n ? index->dim[last] : 0;
    for (int64_t u = 0; u < n; u += row) {
        int64_t base = 0, step = axis == last ? 0 : 1;
        for (int d = 0; d < last; d++) base += d == axis ? 0 : at[d] * stride[d];
        for (int64_t i = 0; i < row; i++) {
            int64_t k = bx_geti(index, u + i);
            if (k < -extent || k >= extent) return bx_said(off, k, -extent, extent, axis);
            off[u + i] = base + i * step + (k < 0 ? k + extent : k) * stride[axis];
        }
        for (int d = last - 1; d >= 0 && ++at[d] == index->dim[d]; d--) at[d] = 0;
    }
    bx_scatter_start(data, &out[0]);
    bx_scatter_apply(&out[0], &in[2], off, n, 1, param[1]);
    return 0;
}

/* in: data, indices [.., k] with k at most the rank of data, updates [.., dims of data from k].
 * param: how. out: like data. */
BX_FN int64_t bx_scatter_nd_updates(const bx_tensor *index) {
    int64_t n = 1;
    for (int d = 0; d < index->rank - 1; d++) n *= index->dim[d];
    return n;
}
BX_FN int bx_scatter_nd_plan(const bx_tensor *in, const int64_t *param, int64_t *sym,
                             int64_t *bytes) {
    (void)param, (void)sym;
    bytes[1] = bx_scatter_nd_updates(&in[1]) * (int64_t)sizeof(int64_t);
    if (bytes[1] < BX_SAY_BYTES) bytes[1] = BX_SAY_BYTES;
    return 0;
}
BX_FN int bx_scatter_nd(const bx_tensor *in, const int64_t *param, bx_tensor *out, void *scratch) {
    const bx_tensor *data = &in[0], *index = &in[1];
    int64_t n = bx_scatter_nd_updates(index), *off = (int64_t *)scratch;
    int64_t k = index->dim[index->rank - 1], slice = 1;
    if (k > data->rank) return 1;
    for (int d = (int)k; d < data->rank; d++) slice *= data->dim[d];
    for (int64_t u = 0; u < n; u++) {
        off[u] = 0;
        for (int64_t d = 0; d < k; d++) {
            int64_t i = bx_geti(index, u * k + d), extent = data->dim[d];
            if (i < -extent || i >= extent) return bx_said(off, i, -extent, extent, d);
            off[u] = off[u] * extent + (i < 0 ? i + extent : i);
        }
        off[u] *= slice;
    }
    bx_scatter_start(data, &out[0]);
    bx_scatter_apply(&out[0], &in[2], off, n, slice, param[0]);
    return 0;
}

#endif
