/* emit_packed.c: the data of packed constants (scheduler/kernel/packed.h). */
#include "codegen/emit/emit.h"

/* x rounded to 10 bits of mantissa (TF32), as matrix units read it. */
static float to_ten_bits(float x) {
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    if ((u & 0x7f800000u) != 0x7f800000u) u = (u + 0x1000u) & 0xffffe000u;
    memcpy(&x, &u, sizeof u);
    return x;
}

static float element(const Const *data, int64_t at) {
    if (data->dtype == DT_F32)
        return at >= 0 && at < data->count ? ((const float *)data->data)[at] : 0;
    return at >= 0 && at < data->count ? (float)elem_get_f(data->dtype, data->data, at) : 0;
}

/* The next position in dimensions [first, last), the last one fastest. */
static void advance(const Packed *p, int first, int last, int64_t *idx) {
    for (int d = last - 1; d >= first && ++idx[d] == p->extent[d]; d--) idx[d] = 0;
}

static int64_t place_of(const Packed *p, const PackSource *s, const int64_t *idx) {
    int64_t at = s->base;
    for (int d = 0; d < p->nouter + p->ninner; d++) at += idx[d] * s->stride[d];
    return at;
}

static void put(const Packed *p, void *data, int64_t at, float x) {
    if (p->ten_bits) x = to_ten_bits(x);
    if (p->dtype == DT_F32)
        ((float *)data)[at] = x;
    else
        elem_set_f(p->dtype, data, at, x);
}

/* Writes a source's line at idx to data from element `to` on, in runs along the last dimension. */
static void fill_line(const Packed *p, const PackSource *s, int64_t *idx, void *data, int64_t to) {
    const int last = p->nouter + p->ninner - 1;
    const int64_t run = p->extent[last], end = to + p->line;
    const bool copied = p->dtype == DT_F32 && s->data->dtype == DT_F32 && !p->ten_bits;
    int64_t n = run;
    for (int d = p->nouter; d < last; d++) n *= p->extent[d];
    for (n += to; to < n; advance(p, p->nouter, last, idx)) {
        int64_t at = place_of(p, s, idx), left = run;
        if (p->tile >= 0 && p->limit - idx[p->tile] * run < run)
            left = p->limit - idx[p->tile] * run;
        const int64_t step = s->stride[last], end_at = at + (run - 1) * step;
        if (copied && left == run && at >= 0 && end_at >= at && end_at < s->data->count) {
            const float *from = (const float *)s->data->data + at;
            for (int64_t l = 0; l < run; l++) ((float *)data)[to++] = from[l * step];
            continue;
        }
        for (int64_t l = 0; l < run; l++, at += step)
            put(p, data, to++, l < left ? element(s->data, at) : 0);
    }
    while (to < end) put(p, data, to++, 0);
}

/* Of a source of codes: the words of its line at idx. */
static void fill_codes(const Packed *p, const PackSource *s, const int64_t *idx, uint32_t *to) {
    const int last = p->nouter + p->ninner - 1;
    const uint8_t *from = s->data->data;
    int64_t at = place_of(p, s, idx), left = p->limit - idx[p->tile] * p->extent[last];
    int64_t n = 32 / p->bits, behind = p->steps - idx[p->nouter - 1] * n;
    if (n > behind) n = behind;
    memset(to, 0, sizeof *to * (size_t)p->line);
    for (int64_t l = 0; l < p->line && l < left; l++, at += s->stride[last])
        for (int64_t i = 0; i < n; i++) {
            const uint8_t code = from[at + i * s->step];
            if (p->bits == 8)
                ((uint8_t *)to)[i * p->line + l] = code;
            else
                to[l] |= (uint32_t)code << (i * p->bits);
        }
}

static void fill(const Packed *p, void *data) {
    int64_t idx[PACK_DIMS] = {0};
    for (int64_t to = 0; to < p->count; advance(p, 0, p->nouter, idx))
        for (int i = 0; i < p->nsource; i++, to += p->line)
            if (p->bits)
                fill_codes(p, &p->source[i], idx, (uint32_t *)data + to);
            else
                fill_line(p, &p->source[i], idx, data, to);
}

/* Transformed weights G g G' with G 4 x 3. The first two dimensions of p are those of the result;
 * their strides are those of the window. */
static void fill_winograd(const Packed *p, float *to) {
    static const double G[4][3] = {{1, 0, 0}, {0.5, 0.5, 0.5}, {0.5, -0.5, 0.5}, {0, 0, 1}};
    const PackSource *s = &p->source[0];
    const int last = p->nouter + p->ninner - 1;
    const int64_t product = p->count / 16;
    int64_t idx[PACK_DIMS] = {0};
    for (int64_t n = 0; n < product; n++, advance(p, 2, last + 1, idx)) {
        double g[3][3], t[4][3];
        bool in = idx[p->tile] * p->extent[last] + idx[last] < p->limit;
        int64_t at = place_of(p, s, idx);
        for (int y = 0; y < 3; y++)
            for (int x = 0; x < 3; x++)
                g[y][x] = in ? element(s->data, at + y * s->stride[0] + x * s->stride[1]) : 0;
        for (int i = 0; i < 4; i++)
            for (int x = 0; x < 3; x++)
                t[i][x] = G[i][0] * g[0][x] + G[i][1] * g[1][x] + G[i][2] * g[2][x];
        for (int i = 0; i < 4; i++)
            for (int j = 0; j < 4; j++)
                to[(i * 4 + j) * product + n] =
                    (float)(t[i][0] * G[j][0] + t[i][1] * G[j][1] + t[i][2] * G[j][2]);
    }
}

/* ---- 8-bit integers -------------------------------------------------------------------------- */
/* The zero point of lane l of vector v. */
static int64_t zero_at(const Packed *p, int64_t v, int64_t l) {
    const PackSource *z = &p->zero;
    if (!z->data) return p->zero_is;
    return elem_get_i(z->data->dtype, z->data->data,
                      z->base + (v * p->extent[p->nouter] + l) * z->stride[0]);
}

/* One line of a form of sums: a value for each lane of vector v. */
static void fill_lanes(const Packed *p, int64_t v, int32_t *to) {
    const PackSource *s = &p->source[0];
    const int64_t lanes = p->extent[p->nouter], flip = s->data->dtype == DT_U8 ? 128 : 0;
    for (int64_t l = 0; l < lanes && v * lanes + l < p->limit; l++) {
        const int64_t zero = zero_at(p, v, l);
        int64_t idx[PACK_DIMS] = {v}, n = 1, sum = 0;
        idx[p->nouter] = l;
        for (int d = 1; d < p->nouter; d++) n *= p->extent[d];
        for (; n > 0; n--, advance(p, 1, p->nouter, idx))
            sum += elem_get_i(s->data->dtype, s->data->data, place_of(p, s, idx)) - zero;
        to[l] = (int32_t)(p->form == PACK_SUMS ? sum : zero - flip);
    }
}

/* The lines of vector v: for each step, its elements of each lane. */
static void fill_steps(const Packed *p, int64_t v, void *data) {
    const PackSource *s = &p->source[0];
    const int64_t lanes = p->extent[p->nouter], flip = s->data->dtype == DT_U8 ? 128 : 0;
    int64_t outer = 1, run = 1;
    for (int d = 1; d < p->nouter; d++) *(d < p->nouter - p->run ? &outer : &run) *= p->extent[d];
    const int64_t vector = outer * div_up(run, p->step) * p->line;
    for (int64_t l = 0; l < lanes && v * lanes + l < p->limit; l++) {
        const int64_t less = p->dtype == DT_I16 ? zero_at(p, v, l) : flip;
        int64_t idx[PACK_DIMS] = {v};
        idx[p->nouter] = l;
        for (int64_t o = 0; o < outer; o++)
            for (int64_t r = 0; r < run; r++, advance(p, 1, p->nouter, idx)) {
                const int64_t step = o * div_up(run, p->step) + r / p->step;
                elem_set_i(p->dtype, data, v * vector + step * p->line + l * p->step + r % p->step,
                           elem_get_i(s->data->dtype, s->data->data, place_of(p, s, idx)) - less);
            }
    }
}

static void fill_bytes(const Packed *p, void *data) {
    for (int64_t v = 0; v < p->extent[0]; v++)
        if (p->form == PACK_STEPS)
            fill_steps(p, v, data);
        else
            fill_lanes(p, v, (int32_t *)data + v * p->extent[p->nouter]);
}

void packed_fill(const Packed *p, void *data) {
    if (p->form)
        fill_bytes(p, data);
    else if (p->winograd)
        fill_winograd(p, data);
    else
        fill(p, data);
}

const char *emit_packed(const Emit *em, const Packed *p) {
    const char *name = em->packed_name[p->number];
    ASSERT(name);
    return name;
}

const char *group_weights(Group *g, DType type, const char *name) {
    /* A constant that stands for the name. */
    Emit *em = g->em;
    Tensor *w = tensor_new(em->c, TK_CONST, type, 0, NULL);
    Const *data = NEW(em->a, Const);
    *data = (Const){.dtype = type, .count = 1, .data = name};
    w->data = data;
    map_seti(em->const_name, (uint64_t)(uintptr_t)name, (void *)(uintptr_t)name);
    return g->f.tensor(&g->f, w);
}

const char *group_packed(Group *g, const Packed *p) {
    return group_weights(g, p->dtype, emit_packed(g->em, p));
}

const char *packed_load(const Packed *p) {
    return p->dtype == DT_F16 ? "bk_loadh" : p->dtype == DT_BF16 ? "bk_loadb" : "bk_loadv";
}
