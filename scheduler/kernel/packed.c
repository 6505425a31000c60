/* packed.c: see packed.h. */
#include "scheduler/kernel/packed.h"

/* All that tells one array from another. */
static char *key_of(Arena *a, const Packed *p) {
    Sb s = {.a = a};
    sb_printf(&s, "%d %d %d %d %lld %d %lld", p->dtype, p->bits, p->ten_bits, p->winograd,
              (long long)p->line, p->tile, (long long)p->limit);
    sb_printf(&s, " %d %d %d %p %lld %lld %lld", p->form, p->step, p->run,
              p->zero.data ? p->zero.data->data : NULL, (long long)p->zero.base,
              (long long)p->zero.stride[0], (long long)p->zero_is);
    for (int d = 0; d < p->nouter + p->ninner; d++)
        sb_printf(&s, "%s%lld", d == p->nouter ? " | " : " ", (long long)p->extent[d]);
    for (int i = 0; i < p->nsource; i++) {
        const PackSource *q = &p->source[i];
        sb_printf(&s, ", %p %lld", (const void *)q->data->data, (long long)q->base);
        for (int d = 0; d < p->nouter + p->ninner; d++)
            sb_printf(&s, " %lld", (long long)q->stride[d]);
    }
    return s.p;
}

void packed_axis(Cx *c, Packed *p, PackSource *s, int d, Expr **rest, Axis *x) {
    bool known =
        e_strides(c, *rest, 1, &x, &s->stride[d], rest) && e_is_int(x->extent, &p->extent[d]);
    ASSERT(known);
}

/* Elements of the array. */
static int64_t count_of(const Packed *p) {
    int64_t n = p->line * p->nsource, run = 1;
    if (p->form == PACK_SUMS || p->form == PACK_ZEROS) return p->extent[0] * p->extent[p->nouter];
    for (int d = 0; d < p->nouter; d++)
        *(p->form == PACK_STEPS && d >= p->nouter - p->run ? &run : &n) *= p->extent[d];
    return p->form == PACK_STEPS ? n * div_up(run, p->step) : n;
}

const Packed *packed_intern(Program *p, const Packed *like) {
    Arena *a = p->cx->a;
    if (!p->packed) {
        p->packed = NEW(a, PackedSet);
        p->packed->known = map_new(a);
    }
    char *key = key_of(a, like);
    Packed *q = map_get(p->packed->known, key);
    if (q) return q;
    q = arena_memdup(a, like, sizeof *like);
    if (!q->what) q->what = "packed";
    q->count = count_of(q);
    q->number = p->packed->all.n;
    vec_push(a, &p->packed->all, q);
    map_set(p->packed->known, key, q);
    return q;
}
