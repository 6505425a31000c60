/* depthwise.c: prints sums over windows, of which every lane has its own
 * (scheduler/kernel/depthwise.h). */
#include "codegen/emit/cpu/contraction.h"
#include "codegen/emit/cpu/convolution.h"
#include "scheduler/kernel/depthwise.h"

static const char *sum_text(Group *g, Expr *e) {
    const Depthwise *w = g->k->depthwise;
    for (int i = 0; i < w->n; i++)
        if (w->s[i].reduce == e) return arena_printf(g->em->a, "sum%d[row * %d + l]", i, w->k.vt);
    return NULL;
}

/* ---- micro-kernels --------------------------------------------------------------------------- */
/* One sum's micro-kernel while it is written. */
typedef struct DepthwiseMicro {
    Micro u;
    const Depthwise *w;
    const Windows *s;
    int i, rows, pad; /* the sum; positions; of indentation */
    bool tail;        /* the tile has `lanes` lanes */
} DepthwiseMicro;

/* An element of every lane, and a weight: of vector v, `at` floats on. */
static const char *element(const DepthwiseMicro *t, int v, int64_t at) {
    const int vec = t->u.g->k->lanes;
    Arena *a = t->u.g->em->a;
    if (t->tail)
        return arena_printf(a, "bk_loadn(p + %lld, lanes - %d)", (long long)(at + v * vec),
                            v * vec);
    return arena_printf(a, "bk_loadv(p + %lld)", (long long)(at + v * vec));
}

/* `steps` neighbouring steps of the last axis from p and q on: what positions share is loaded once.
 */
static void taps(DepthwiseMicro *t, int steps) {
    const Windows *s = t->s;
    const int nv = t->w->k.nv, vec = t->u.g->k->lanes, pad = t->pad;
    Sb *b = &t->u.body;
    for (int j = 0; j < steps; j++)
        for (int v = 0; v < nv; v++)
            sb_printf(b, "%*sbk_vf w%d_%d = bk_loadv(q + %d + %d * bs);\n", pad, "", j, v, j * vec,
                      v);
    for (int j = 0; j < steps; j++)
        for (int v = 0; v < nv; v++) sb_printf(b, "%*sBK_PIN(w%d_%d);\n", pad, "", j, v);
    for (int m = 0; m < t->rows; m++)
        for (int j = 0; j < steps; j++) {
            const int64_t at = m * s->m_step + j * s->step;
            bool before = false; /* an earlier position or step is there */
            for (int o = 0; o < m && !before; o++)
                for (int z = 0; z < steps; z++) before |= o * s->m_step + z * s->step == at;
            if (before) continue;
            sb_printf(b, "%*s{\n", pad, "");
            for (int v = 0; v < nv; v++)
                sb_printf(b, "%*sbk_vf x%d = %s;\n", pad + 4, "", v, element(t, v, at));
            for (int v = 0; v < nv; v++) sb_printf(b, "%*sBK_PIN(x%d);\n", pad + 4, "", v);
            for (int o = m; o < t->rows; o++)
                for (int z = 0; z < steps; z++)
                    for (int v = 0; v < nv && o * s->m_step + z * s->step == at; v++)
                        sb_printf(b, "%*sc%d_%d += w%d_%d * x%d;\n", pad + 4, "", o, v, z, v, v);
            sb_printf(b, "%*s}\n", pad, "");
        }
}

static const char *parameter(DepthwiseMicro *t, const char *value) {
    const char *name = arena_printf(t->u.g->em->a, "n%d", t->u.nvalue++);
    sb_printf(&t->u.params, ", int64_t %s", name);
    sb_printf(&t->u.args, ", %s", value);
    return name;
}

/* Opens the loops over all axes but the last one; p and q are where its steps are. */
static void outer_loops(DepthwiseMicro *t) {
    const Windows *s = t->s;
    Group *g = t->u.g;
    Cx *c = g->em->c;
    Arena *a = g->em->a;
    const char *p = "a", *q = "b";
    int64_t inner = s->extent[s->n - 1] * g->k->lanes;
    for (int d = s->n - 2; d >= 0; inner *= s->extent[d--])
        q = arena_printf(a, "%s + r%d * %lld", q, d, (long long)inner);
    for (int d = 0; d < s->n - 1; d++) {
        const char *n = s->first[d] ? parameter(t, arena_printf(a, "c%d_%d", t->i, d))
                                    : arena_printf(a, "%lld", (long long)s->extent[d]);
        p = arena_printf(a, "%s + r%d * %s", p, d,
                         parameter(t, fn_expr(&g->f, e_coef(c, s->x_flat, s->axis[d]))));
        sb_printf(&t->u.body, "%*sfor (int64_t r%d = 0; r%d < %s; r%d++) {\n", t->pad, "", d, d, n,
                  d);
        t->pad += 4;
    }
    sb_printf(&t->u.body, "%*sconst float *p = %s, *q = %s;\n", t->pad, "", p, q);
}

/* Steps [j0, j1) of the last axis, for one position. */
static void edge_taps(DepthwiseMicro *t) {
    const Windows *s = t->s;
    const int vec = t->u.g->k->lanes, pad = t->pad;
    Sb *b = &t->u.body;
    const char *from = parameter(t, arena_printf(t->u.g->em->a, "j%d", t->i)),
               *to = parameter(t, arena_printf(t->u.g->em->a, "e%d", t->i));
    sb_printf(b, "%*sfor (int64_t j = %s; j < %s; j++) {\n", pad, "", from, to);
    for (int v = 0; v < t->w->k.nv; v++) {
        const char *n = t->tail ? arena_printf(t->u.g->em->a, ", lanes - %d", v * vec) : "";
        sb_printf(b,
                  "%*sc0_%d += bk_loadv(q + j * %d + %d * bs) * bk_load%s(p + j * %lld + %d%s);\n",
                  pad + 4, "", v, vec, v, t->tail ? "n" : "v", (long long)s->step, v * vec, n);
    }
    sb_printf(b, "%*s}\n", pad, "");
}

/* All steps of the last axis, a chunk at a time. */
static void whole_taps(DepthwiseMicro *t) {
    const Windows *s = t->s;
    const int chunk = t->w->chunk[t->i], vec = t->u.g->k->lanes;
    const int64_t n = s->extent[s->n - 1], whole = n / chunk, rest = n % chunk;
    Sb *b = &t->u.body;
    if (whole > 1) {
        sb_printf(b, "%*sfor (int j = 0; j < %lld; j++, p += %lld, q += %d) {\n", t->pad, "",
                  (long long)whole, (long long)(chunk * s->step), chunk * vec);
        t->pad += 4;
    }
    taps(t, chunk);
    if (whole > 1) {
        t->pad -= 4;
        sb_printf(b, "%*s}\n", t->pad, "");
    }
    if (rest) {
        sb_printf(b, "%*s{\n", t->pad, "");
        t->pad += 4;
        taps(t, (int)rest);
        t->pad -= 4;
        sb_printf(b, "%*s}\n", t->pad, "");
    }
}

/* Emits the call of sum i's micro-kernel for `rows` positions from pos on, which lie inside; 0: for
 * one that may not. */
static void micro(Group *g, int i, int rows, bool tail) {
    Fn *f = &g->f;
    Cx *c = g->em->c;
    const Depthwise *w = g->k->depthwise;
    const Windows *s = &w->s[i];
    const int nv = w->k.nv, vec = g->k->lanes, n = rows ? rows : 1;
    DepthwiseMicro t = {micro_new(g, NULL, 0), w, s, i, n, 4, tail};
    Expr *first[WINDOW_AXES];
    for (int d = 0; d < s->n; d++)
        first[d] = d < s->n - 1 && s->first[d] ? s->first[d] : e_int(c, 0);
    Expr *at = e_subst(c, s->x_flat, s->n, s->axis, first, NULL, NULL);
    const char *weights = arena_printf(g->em->a, "w%d", i);
    int64_t inner = s->extent[s->n - 1] * vec;
    for (int d = s->n - 2; d >= 0; inner *= s->extent[d--])
        if (s->first[d])
            weights = arena_printf(g->em->a, "%s + f%d_%d * %lld", weights, i, d, (long long)inner);
    sb_puts(&t.u.params,
            "float *restrict g, const float *restrict b, const float *restrict a, int64_t bs");
    sb_printf(&t.u.args, "g%d, %s, %s + (%s), %lld", i, weights, f->tensor(f, s->x->t),
              fn_expr(f, at), (long long)(s->length * vec));
    if (tail) {
        sb_puts(&t.u.params, ", int64_t lanes");
        sb_puts(&t.u.args, ", lanes");
    }
    Sb *b = &t.u.body;
    sb_puts(b, "    BK_CONTRACT\n    bk_vf");
    for (int m = 0; m < n; m++)
        for (int v = 0; v < nv; v++) sb_printf(b, "%s c%d_%d = {0}", m + v ? "," : "", m, v);
    sb_puts(b, ";\n");
    outer_loops(&t);
    if (rows)
        whole_taps(&t);
    else
        edge_taps(&t);
    for (; t.pad > 4; t.pad -= 4) sb_printf(b, "%*s}\n", t.pad - 4, "");
    for (int m = 0; m < n; m++)
        for (int v = 0; v < nv; v++)
            sb_printf(b, "    bk_storev(g + %d, c%d_%d);\n", m * w->k.vt + v * vec, m, v);
    fn_line(f, "%s", micro_end(&t.u, "depthwise"));
}

/* ---- the group's function -------------------------------------------------------------------- */
/* The sums of a tile: rows as for micro. */
static void sums(Group *g, int rows) {
    const Depthwise *w = g->k->depthwise;
    const Convolution *k = &w->k;
    Fn *f = &g->f;
    const bool whole = k->nlane % k->vt == 0 && k->v != g->k->split;
    for (int i = 0; i < w->n; i++) {
        if (whole) {
            micro(g, i, rows, false);
            continue;
        }
        const Scope in = fn_open(f, "if (lanes == %d) {", k->vt);
        micro(g, i, rows, false);
        fn_else(f, in, "} else {");
        micro(g, i, rows, true);
        fn_close(f, in);
    }
}

/* What a position that may not lie inside has of the last axis: steps [j, e). */
static void edge(Group *g) {
    const Depthwise *w = g->k->depthwise;
    Fn *f = &g->f;
    fn_line(f, "rows = 1;");
    for (int i = 0; i < w->n; i++) {
        const Windows *s = &w->s[i];
        const int d = s->n - 1;
        const char *from = s->first[d] ? fn_expr(f, s->first[d]) : "0",
                   *to = s->first[d] ? fn_expr(f, s->end[d])
                                     : arena_printf(f->a, "%lld", (long long)s->extent[d]);
        fn_line(f, "const int64_t j%d = %s, e%d = %s;", i, from, i, to);
    }
    sums(g, 0);
}

/* The steps of the axes around the last one that lie inside: their first, and how many. */
static void outer_bounds(Group *g) {
    const Depthwise *w = g->k->depthwise;
    Fn *f = &g->f;
    for (int i = 0; i < w->n; i++) {
        const Windows *s = &w->s[i];
        for (int d = 0; d < s->n - 1; d++) {
            if (!s->first[d]) continue;
            const char *from = fn_expr(f, s->first[d]), *to = fn_expr(f, s->end[d]);
            fn_line(f, "const int64_t f%d_%d = %s, c%d_%d = %s - f%d_%d;", i, d, from, i, d, to, i,
                    d);
            fn_bind(f, s->first[d], arena_printf(f->a, "f%d_%d", i, d));
        }
    }
}

static void positions(Group *g) {
    const Depthwise *w = g->k->depthwise;
    const Convolution *k = &w->k;
    Fn *f = &g->f;
    fn_open(f, "for (int64_t pos = %s, rows; pos < %s; pos += rows) {", group_from(g, k->m),
            group_to(g, k->m));
    fn_bind(f, e_axis(f->c, k->m), "pos");
    fn_bind(f, e_axis(f->c, k->v), "v0");
    const Scope in = fn_here(f);
    for (int i = 0; i < w->nsize; i++) {
        const int rows = w->size[i];
        const char *here = i == 0 && w->first
                               ? arena_printf(f->a, " && pos < inner + %lld", (long long)w->first)
                               : "";
        fn_line(f, "%sif (pos >= inner && pos + %d <= outer%s) {", i ? "} else " : "", rows, here);
        f->indent++;
        fn_line(f, "rows = %d;", rows);
        sums(g, rows);
        f->indent--;
        f->bound.n = in.bound;
    }
    if (w->nsize) {
        fn_line(f, "} else {");
        f->indent++;
    }
    edge(g);
    if (w->nsize) {
        f->indent--;
        fn_line(f, "}");
    }
    f->bound.n = in.bound;
    for (int i = 0; i < w->n; i++) fn_line(f, "const float *const sum%d = g%d;", i, i);
    conv_epilogue(g, k);
}

void group_depthwise(Group *g) {
    Fn *f = &g->f;
    const Depthwise *w = g->k->depthwise;
    const Convolution *k = &w->k;
    g->reduce = sum_text;
    group_range(g);
    const Scope out = fn_here(f);
    for (int i = 0; i < w->n; i++)
        fn_line(f, "float g%d[%d] __attribute__((aligned(64)));", i, k->rows * k->vt);
    for (int i = 0; i < g->k->naxis - 1; i++)
        if (g->k->axis[i] != k->m) group_loop(g, g->k->axis[i], arena_printf(f->a, "i%d", i));
    outer_bounds(g);
    const char *from = fn_expr(f, w->from), *to = fn_expr(f, w->to);
    fn_line(f, "const int64_t inner = bk_maxi(%s, %s), outer = bk_mini(%s, %s);", from,
            group_from(g, k->m), to, group_to(g, k->m));
    fn_open(f, "for (int64_t v0 = %s; v0 < %s; v0 += %d) {", group_from(g, k->v), group_to(g, k->v),
            k->vt);
    fn_line(f, "const int64_t lanes = bk_mini(%s - v0, %d);", group_to(g, k->v), k->vt);
    if (k->nlane <= k->vt && k->v != g->k->split) fn_line(f, "(void)lanes;");
    for (int i = 0; i < w->n; i++)
        fn_line(f, "const float *const w%d = %s + v0 / %d * %lld;", i,
                group_packed(g, w->packed[i]), g->k->lanes,
                (long long)(w->s[i].length * g->k->lanes));
    positions(g);
    fn_close(f, out);
}
