/* planes.c: prints sums over windows along rows (scheduler/kernel/planes.h). */
#include "scheduler/kernel/planes.h"
#include "codegen/emit/cpu/contraction.h"
#include "codegen/emit/cpu/convolution.h"

static const char *sum_text(Group *g, Expr *e) {
    const PlanesKernel *w = g->k->planes;
    for (int i = 0; i < w->n; i++)
        if (w->p[i].s.reduce == e) return arena_printf(g->em->a, "sum%d[l]", i);
    return NULL;
}

/* ---- micro-kernels --------------------------------------------------------------------------- */
/* One sum's micro-kernel while it is written. */
typedef struct PlanesMicro {
    Micro u;
    const PlanesSum *p;
    int rows, nv, pad;
} PlanesMicro;

/* Loads what lies `y` rows and tap k of a row on, as x0, x1, … */
static void load_elements(PlanesMicro *t, int64_t y, int64_t k) {
    const PlaneWindow *v = &t->p->s.v;
    const int vec = t->u.g->k->lanes;
    const int64_t at =
        y * t->p->line + k * v->apart % v->stride * t->p->phase + k * v->apart / v->stride;
    for (int i = 0; i < t->nv; i++)
        sb_printf(&t->u.body, "%*sbk_vf x%d = bk_loadv(p + %lld);\n", t->pad, "", i,
                  (long long)(at + i * vec));
    for (int i = 0; i < t->nv; i++) sb_printf(&t->u.body, "%*sBK_PIN(x%d);\n", t->pad, "", i);
}

static void multiply(PlanesMicro *t, int row, int64_t weight) {
    for (int i = 0; i < t->nv; i++)
        sb_printf(&t->u.body, "%*sc%d_%d += x%d * q[%lld];\n", t->pad, "", row, i, i,
                  (long long)weight);
}

/* Whether one of the sums has a tap y rows on. */
static bool reads_row(const PlanesMicro *t, int64_t y) {
    const PlaneWindow *u = &t->p->s.u;
    for (int r = 0; r < t->rows; r++)
        for (int64_t k = 0; k < u->taps; k++)
            if (r * u->stride + k * u->apart == y) return true;
    return false;
}

/* All taps of a plane; each row's elements are loaded once. */
static void unrolled_taps(PlanesMicro *t) {
    const PlaneWindow *u = &t->p->s.u, *v = &t->p->s.v;
    const int64_t last = (t->rows - 1) * u->stride + (u->taps - 1) * u->apart;
    for (int64_t y = 0; y <= last; y++) {
        if (!reads_row(t, y)) continue;
        for (int64_t k = 0; k < v->taps; k++) {
            sb_printf(&t->u.body, "%*s{\n", t->pad, "");
            t->pad += 4;
            load_elements(t, y, k);
            for (int r = 0; r < t->rows; r++)
                for (int64_t j = 0; j < u->taps; j++)
                    if (r * u->stride + j * u->apart == y)
                        multiply(t, r, j * u->weight + k * v->weight);
            t->pad -= 4;
            sb_printf(&t->u.body, "%*s}\n", t->pad, "");
        }
    }
}

/* The same, row by row of the windows. */
static void rolled_taps(PlanesMicro *t) {
    const PlaneWindow *u = &t->p->s.u, *v = &t->p->s.v;
    sb_printf(&t->u.body, "%*sfor (int y = 0; y < %lld; y++, p += %lld, q += %lld) {\n", t->pad, "",
              (long long)u->taps, (long long)(u->apart * t->p->line), (long long)u->weight);
    t->pad += 4;
    for (int64_t k = 0; k < v->taps; k++)
        for (int r = 0; r < t->rows; r++) {
            sb_printf(&t->u.body, "%*s{\n", t->pad, "");
            t->pad += 4;
            load_elements(t, r * u->stride, k);
            multiply(t, r, k * v->weight);
            t->pad -= 4;
            sb_printf(&t->u.body, "%*s}\n", t->pad, "");
        }
    t->pad -= 4;
    sb_printf(&t->u.body, "%*s}\n", t->pad, "");
}

/* Opens the loops over the other axes of the sum; p and q are where a plane's tile and weights
 * begin. */
static void open_planes(PlanesMicro *t) {
    const Planes *s = &t->p->s;
    Arena *a = t->u.g->em->a;
    const char *p = "a", *q = "b";
    int64_t inner = t->p->lines * t->p->line;
    for (int d = s->n - 1; d >= 0; inner *= s->extent[d--]) {
        p = arena_printf(a, "%s + r%d * %lld", p, d, (long long)inner);
        q = arena_printf(a, "%s + r%d * %lld", q, d, (long long)s->stride[d]);
    }
    for (int d = 0; d < s->n; d++, t->pad += 4)
        sb_printf(&t->u.body, "%*sfor (int64_t r%d = 0; r%d < %lld; r%d++) {\n", t->pad, "", d, d,
                  (long long)s->extent[d], d);
    sb_printf(&t->u.body, "%*sconst float *p = %s, *q = %s;\n", t->pad, "", p, q);
}

/* Emits the call of sum i's micro-kernel for `rows` rows from `pos` on and nv vectors from lane `j`
 * on. */
static void micro(Group *g, int i, int rows, int nv) {
    Fn *f = &g->f;
    const PlanesKernel *w = g->k->planes;
    const PlanesSum *p = &w->p[i];
    const int vec = g->k->lanes, vt = w->k.vt;
    PlanesMicro t = {micro_new(g, NULL, 0), p, rows, nv, 4};
    Sb *b = &t.u.body;
    sb_puts(&t.u.params, "float *restrict g, const float *restrict b, const float *restrict a");
    sb_printf(&t.u.args, "g%d + (pos - u0) * %d + j, %s + (%s), tile%d + (pos - u0) * %lld + j", i,
              vt, f->tensor(f, p->s.w->t), fn_expr(f, p->s.w_at), i,
              (long long)(p->s.u.axis ? p->s.u.stride * p->line : 0));
    sb_puts(b, "    BK_CONTRACT\n    bk_vf");
    for (int m = 0; m < rows; m++)
        for (int v = 0; v < nv; v++) sb_printf(b, "%s c%d_%d = {0}", m + v ? "," : "", m, v);
    sb_puts(b, ";\n");
    open_planes(&t);
    (p->rolled ? rolled_taps : unrolled_taps)(&t);
    for (; t.pad > 4; t.pad -= 4) sb_printf(b, "%*s}\n", t.pad - 4, "");
    for (int m = 0; m < rows; m++)
        for (int v = 0; v < nv; v++)
            sb_printf(b, "    bk_storev(g + %d, c%d_%d);\n", m * vt + v * vec, m, v);
    fn_line(f, "%s", micro_end(&t.u, "planes"));
}

/* The sums of `rows` rows, for all vectors of the tile. */
static void sums(Group *g, int rows, const void *user) {
    (void)user;
    const PlanesKernel *w = g->k->planes;
    const Convolution *k = &w->k;
    Fn *f = &g->f;
    const int vec = g->k->lanes, step = k->nv * vec;
    fn_line(f, "int64_t j = 0;");
    const char *last =
        w->rest ? arena_printf(f->a, "lanes - %d", step - vec) : arena_printf(f->a, "%d", k->vt);
    const Scope out = fn_open(f, "for (; j < %s; j += %d) {", last, step);
    for (int i = 0; i < w->n; i++) micro(g, i, rows, k->nv);
    fn_close(f, out);
    if (!w->rest || k->nv == 1) return;
    fn_open(f, "for (; j < lanes; j += %d) {", vec);
    for (int i = 0; i < w->n; i++) micro(g, i, rows, 1);
    fn_close(f, out);
}

/* ---- the group's function -------------------------------------------------------------------- */
/* Declares `name`, the greatest or least of n bounds, or `none`. */
static void limit(Fn *f, const char *name, const char *how, int n, Expr *const *e, const char *none,
                  const char *less) {
    const char *all = none;
    for (int i = 0; i < n; i++) all = arena_printf(f->a, "%s(%s, %s)", how, all, fn_expr(f, e[i]));
    fn_line(f, "const int64_t %s = %s%s;", name, all, n ? less : "");
}

/* Copies what sum i reads for the rows from u0 to u1 into its tile. */
static void fill(Group *g, int i) {
    Fn *f = &g->f;
    const PlanesSum *p = &g->k->planes->p[i];
    const Planes *s = &p->s;
    const PlaneWindow *v = &s->v, *u = &s->u;
    const char *n = u->axis
                        ? arena_printf(f->a, "(u1 - u0 - 1) * %lld + %lld", (long long)u->stride,
                                       (long long)((u->taps - 1) * u->apart + 1))
                        : "1",
               *row = s->row ? fn_expr(f, s->row) : "0",
               *above = arena_printf(f->a, " - u0 * %lld", (long long)u->stride),
               *before = arena_printf(f->a, " - v0 * %lld", (long long)v->stride);
    const Scope out = fn_open(f, "{");
    fn_line(f, "float *to = tile%d;", i);
    limit(f, "first", "bk_maxi", u->nlow, u->low, "0", above);
    limit(f, "last", "bk_mini", u->nhigh, u->high, "INT64_MAX", above);
    limit(f, "low", "bk_maxi", v->nlow, v->low, "INT64_MIN", before);
    limit(f, "high", "bk_mini", v->nhigh, v->high, "INT64_MAX", before);
    for (int d = 0; d < s->n; d++) {
        const char *r = arena_printf(f->a, "r%d", d);
        fn_open(f, "for (int64_t %s = 0; %s < %lld; %s++) {", r, r, (long long)s->extent[d], r);
        fn_bind(f, e_axis(f->c, s->axis[d]), r);
    }
    const char *last = e_is_ival(s->inside, 1)
                           ? "last"
                           : arena_printf(f->a, "%s ? last : 0", fn_expr(f, s->inside));
    fn_line(f, "bx_planes(to, %s + (%s) + u0 * %lld * (%s) + v0 * %lld, %s, %s, first, %s,",
            f->tensor(f, s->x->t), fn_expr(f, s->x_at), (long long)u->stride, row,
            (long long)v->stride, row, n, last);
    fn_line(f, "          low, high, %lld, %lld, %lld, %d);", (long long)v->stride,
            (long long)p->need, (long long)p->phase, p->clean);
    fn_line(f, "to += %lld;", (long long)(p->lines * p->line));
    fn_close(f, out);
}

void group_planes(Group *g) {
    Fn *f = &g->f;
    const PlanesKernel *w = g->k->planes;
    const Convolution *k = &w->k;
    helper_text(g->em, "extern/planes.inc");
    g->reduce = sum_text;
    group_range(g);
    const Scope out = fn_here(f);
    for (int i = 0; i < w->n; i++) {
        const PlanesSum *p = &w->p[i];
        fn_line(f, "float g%d[%lld] __attribute__((aligned(64)));", i,
                (long long)(w->block * k->vt));
        fn_line(f, "float tile%d[%lld] __attribute__((aligned(64)))%s;", i,
                (long long)(p->s.outer * p->lines * p->line), p->clean ? " = {0}" : "");
    }
    for (int i = 0; i < g->k->naxis; i++)
        if (g->k->axis[i] != k->m && g->k->axis[i] != k->v)
            group_loop(g, g->k->axis[i], arena_printf(f->a, "i%d", i));
    group_lane_tiles(g, k->v, k->vt);
    if (k->m) {
        const char *to = group_to(g, k->m);
        fn_open(f, "for (int64_t u0 = %s; u0 < %s; u0 += %lld) {", group_from(g, k->m), to,
                (long long)w->block);
        fn_line(f, "const int64_t u1 = bk_mini(u0 + %lld, %s);", (long long)w->block, to);
    } else
        fn_line(f, "enum { u0 = 0, u1 = 1 };");
    const Scope block = fn_here(f);
    for (int i = 0; i < w->n; i++) fill(g, i);
    conv_run(g, k, w->even, "u0", "u1", sums, NULL);
    fn_close(f, block);
    fn_open(f, "for (int64_t iu = u0; iu < u1; iu++) {");
    if (k->m) fn_bind(f, e_axis(f->c, k->m), "iu");
    for (int i = 0; i < w->n; i++)
        fn_line(f, "const float *const sum%d = g%d + (iu - u0) * %d;", i, i, k->vt);
    for (int i = 0; i < g->k->n; i++) fn_hoist(f, g->k->value[i], 1, &k->v);
    group_members_by_lane(g, k->v, "0", "lanes", true);
    fn_close(f, out);
}
