/* packed.c: see packed.h. */
#include "scheduler/kernel/packed.h"

/* All that tells one array from another. */
static char *key_of(Arena *a, const Packed *p) {
    Sb s = {.a = a};
    sb_printf(&s, "%d %d %d %d %lld %d %lld", p->dtype, p->bits, p->ten_bits, p->winograd,
              (long long)p->line, p->tile, (long long)p->limit);
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
    q->count = q->line * q->nsource;
    for (int d = 0; d < q->nouter; d++) q->count *= q->extent[d];
    q->number = p->packed->all.n;
    vec_push(a, &p->packed->all, q);
    map_set(p->packed->known, key, q);
    return q;
}
