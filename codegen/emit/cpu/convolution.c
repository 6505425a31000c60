/* convolution.c: prints blocked sums of products with constants. */
#include "codegen/emit/cpu/convolution.h"
#include "codegen/emit/cpu/across.h"
#include "codegen/emit/cpu/contraction.h"

/* ---- micro-kernels --------------------------------------------------------------------------- */
/* Text of an int64 value in the micro-kernel: a parameter, or a literal if it is constant and
 * `literal`. Kernels of few rows take strides as parameters, so that they serve many sums; with
 * many rows, addresses need constants. */
static const char *value(Micro *u, Expr *e, bool literal) {
    Group *g = u->g;
    int64_t x;
    if (e_is_int(e, &x) && (literal || x == 1 || x == 0))
        return arena_printf(g->em->a, "%lld", (long long)x);
    const char *s = arena_printf(g->em->a, "n%d", u->nvalue++);
    sb_printf(&u->params, ", int64_t %s", s);
    sb_printf(&u->args, ", %s", fn_expr(&g->f, e));
    return s;
}

void conv_micro(Group *g, const Convolution *k, int rows, const char *out, const char *in,
                const ConvWalk *w) {
    Emit *em = g->em;
    int nv = k->nv, vec = g->k->lanes;
    bool literal = rows > 6;
    Micro u = micro_new(g, NULL, 0);
    Sb *b = &u.body;
    sb_printf(&u.params,
              "float *restrict g, const %s *restrict b, const float *restrict a, int64_t bs",
              c_store(w->packed->dtype));
    sb_printf(&u.args, "%s, %s, %s, %lld", out, in, w->at, (long long)w->stream);
    const char *row = rows > 1 ? value(&u, w->row, literal) : "0";
    sb_puts(b, "    BK_CONTRACT\n    bk_vf");
    for (int m = 0; m < rows; m++)
        for (int v = 0; v < nv; v++) sb_printf(b, "%s c%d_%d = {0}", m + v ? "," : "", m, v);
    sb_puts(b, ";\n");
    if (w->partial) {
        sb_puts(&u.params, ", int more");
        sb_puts(&u.args, ", more");
        sb_puts(b, "    if (more) {\n");
        for (int m = 0; m < rows; m++)
            for (int v = 0; v < nv; v++)
                sb_printf(b, "        c%d_%d = bk_loadv(g + %d);\n", m, v, m * k->vt + v * vec);
        sb_puts(b, "    }\n");
    }
    const char *off = "";
    for (int i = 0; i < w->levels; i++) {
        const char *n;
        if (i == 0 && w->partial) {
            sb_puts(&u.params, ", int64_t count");
            sb_puts(&u.args, ", count");
            n = "count";
        } else
            n = value(&u, w->count[i], literal);
        sb_printf(b, "%*sfor (int64_t r%d = 0; r%d < %s; r%d++) {\n", 4 + 4 * i, "", i, i, n, i);
        if (!e_is_ival(w->stride[i], 0))
            off = arena_printf(em->a, "%s + r%d * %s", off, i, value(&u, w->stride[i], literal));
    }
    int pad = 4 + 4 * w->levels;
    for (int v = 0; v < nv; v++)
        sb_printf(b, "%*sconst bk_vf w%d = %s(b + %d * bs);\n", pad, "", v, packed_load(w->packed),
                  v);
    sb_printf(b, "%*sb += %d;\n", pad, "", vec);
    for (int m = 0; m < rows; m++) {
        sb_printf(b, "%*sconst float x%d = a[0%s", pad, "", m, off);
        if (m) sb_printf(b, " + %d * %s", m, row);
        sb_puts(b, "];\n");
        for (int v = 0; v < nv; v++) sb_printf(b, "%*sc%d_%d += w%d * x%d;\n", pad, "", m, v, v, m);
    }
    for (int i = w->levels - 1; i >= 0; i--) sb_printf(b, "%*s}\n", 4 + 4 * i, "");
    for (int m = 0; m < rows; m++)
        for (int v = 0; v < nv; v++)
            sb_printf(b, "    bk_storev(g + %d, c%d_%d);\n", m * k->vt + v * vec, m, v);
    fn_line(&g->f, "%s", micro_end(&u, "conv"));
}

/* The walk of a sum's micro-kernel. v, m and the reduction axes up to s->cut are bound. */
static ConvWalk walk_of(Group *g, const Convolution *k, const ConvSum *s) {
    Cx *c = g->em->c;
    ConvWalk w = {.packed = s->packed,
                  .levels = s->n - s->cut,
                  .partial = k->kept,
                  .row = e_coef(c, s->sca_flat, k->m),
                  .stream = s->length * g->k->lanes};
    Expr *zero[CONV_REDUCE];
    for (int i = 0; i < w.levels; i++) {
        zero[i] = e_int(c, 0);
        w.count[i] = s->axis[s->cut + i]->extent;
        w.stride[i] = e_coef(c, s->sca_flat, s->axis[s->cut + i]);
    }
    int whole = k->kept ? 1 : 0; /* the chunk's axis is bound */
    Expr *at =
        e_subst(c, s->sca_flat, w.levels - whole, s->axis + s->cut + whole, zero, NULL, NULL);
    w.at = arena_printf(g->em->a, "%s + (%s)", g->f.tensor(&g->f, s->sca->t), fn_expr(&g->f, at));
    return w;
}

/* ---- the group's function -------------------------------------------------------------------- */
static const char *sum_text(Group *g, Expr *e) {
    const Convolution *k = g->k->convolution;
    for (int i = 0; i < k->n; i++)
        if (k->s[i].reduce == e) return arena_printf(g->em->a, "sum%d[row * %d + l]", i, k->vt);
    return NULL;
}

static Across across_of(const Convolution *k) {
    return (Across){.members = k->across, .v = k->v, .m = k->m, .vt = k->vt};
}

/* Stores the members in lanes [0, to) of a row, those that are stored across in their tiles. */
static void store_lanes(Group *g, const Convolution *k, const char *to) {
    const Across x = across_of(k);
    if (k->across)
        across_members(g, &x, to);
    else
        group_members_by_lane(g, k->v, "0", to, true);
}

void conv_epilogue(Group *g, const Convolution *k) {
    Fn *f = &g->f;
    Cx *c = g->em->c;
    const Scope mark = fn_open(f, "for (int64_t row = 0; row < rows; row++) {");
    fn_line(f, "const int64_t im = pos + row;");
    fn_bind(f, e_axis(c, k->m), "im");
    for (int i = 0; i < g->k->n; i++) fn_hoist(f, g->k->value[i], 1, &k->v);
    bool one = k->nlane <= k->vt && k->v != g->k->split; /* all tiles are alike */
    const char *whole = arena_printf(f->a, "%d", one ? (int)k->nlane : k->vt);
    const Scope in = fn_here(f);
    for (int i = 0; i < (one ? 1 : 2); i++) {
        if (i)
            fn_else(f, in, "} else {");
        else if (!one)
            fn_open(f, "if (lanes == %d) {", k->vt);
        else
            f->indent++;
        store_lanes(g, k, i == 0 ? whole : "lanes");
    }
    if (one) f->indent--;
    fn_close(f, mark);
}

/* Tiles have two neighbouring sizes, the larger ones first; a short rest is halved. */
void conv_run(Group *g, const Convolution *k, int64_t even, const char *lo, const char *hi,
              ConvTile *tile, const void *user) {
    Fn *f = &g->f;
    int sizes[8], n = conv_sizes(k, even, sizes);
    if (n > 1) fn_line(f, "int64_t left = (%s - %s + %d) / %d;", hi, lo, sizes[0] - 1, sizes[0]);
    fn_open(f, "for (int64_t pos = %s, rows; pos < %s; pos += rows%s) {", lo, hi,
            n > 1 ? ", left--" : "");
    const Scope in = fn_here(f);
    if (n == 1) fn_line(f, "rows = %d;", sizes[0]);
    for (int i = 0; i < n; i++) {
        if (n > 1) {
            if (i == 0)
                fn_open(f, "if (%s - pos > left * %d && %s - pos >= %d) {", hi, sizes[1], hi,
                        sizes[0]);
            else if (i == n - 1)
                fn_else(f, in, "} else {");
            else
                fn_else(f, in, "} else if (%s - pos >= %d) {", hi, sizes[i]);
            fn_line(f, "rows = %d;", sizes[i]);
        }
        if (tile) tile(g, sizes[i], user);
    }
    fn_close(f, in);
}

void conv_fetch(Group *g, const Convolution *k, int64_t stream) {
    Fn *f = &g->f;
    fn_line(f, "for (int64_t z = 0; z < share; z++, next += %d)", g->k->lanes);
    fn_line(f, "    for (int64_t v = 0; v < %d; v++) __builtin_prefetch(next + v * %lld, 0, 2);",
            k->nv, (long long)stream);
}

typedef struct SumRange {
    const Convolution *k;
    int from, to;
} SumRange;

static void kernels(Group *g, int rows, const void *user) {
    const SumRange *s = user;
    const Convolution *k = s->k;
    Fn *f = &g->f;
    fn_bind(f, e_axis(g->em->c, k->m), "pos");
    fn_bind(f, e_axis(g->em->c, k->v), "v0");
    for (int i = s->from; i < s->to; i++) {
        const ConvWalk w = walk_of(g, k, &k->s[i]);
        if (!k->kept)
            conv_micro(g, k, rows, arena_printf(g->em->a, "g%d", i),
                       arena_printf(g->em->a, "w%d", i), &w);
        else
            conv_micro(g, k, rows, arena_printf(g->em->a, "g%d + at", i), "part", &w);
    }
}

/* A loop over the positions of a block: the micro-kernels of sums [from, to); then, if `last`, the
 * epilogue. */
static void positions(Group *g, const Convolution *k, int from, int to, bool last) {
    Fn *f = &g->f;
    Cx *c = g->em->c;
    const Scope out = fn_here(f);
    const Across x = across_of(k);
    if (k->kept) fn_line(f, "at = 0;");
    if (k->b) {
        fn_open(f, "for (int64_t ib = b0; ib < b1; ib++) {");
        fn_bind(f, e_axis(c, k->b), "ib");
    }
    conv_run(g, k, k->even, "mb", "me", to > from ? kernels : NULL, &(SumRange){k, from, to});
    if (!last) conv_fetch(g, k, k->s[from].length * g->k->lanes);
    if (last) {
        for (int i = 0; i < k->n; i++)
            fn_line(f, "const float *const sum%d = g%d%s;", i, i, k->kept ? " + at" : "");
        conv_epilogue(g, k);
    }
    if (k->kept) fn_line(f, "at += rows * %d;", k->vt);
    fn_end(f);
    if (last && k->across) across_store(g, &x);
    fn_close(f, out);
}

/* One sum of a block of positions, in blocks of the reduction. Each prefetches the next one's part
 * of the packed operand. */
static void reduction_blocks(Group *g, const Convolution *k, int i) {
    Fn *f = &g->f;
    Cx *c = g->em->c;
    const ConvSum *s = &k->s[i];
    const Scope out = fn_here(f);
    const int vec = g->k->lanes;
    int64_t inner = 1;
    const char *type = c_store(s->packed->dtype);
    fn_line(f, "const %s *part = w%d;", type, i);
    fn_line(f, "int more = 0;");
    for (int d = 0; d <= s->cut; d++) {
        const char *q = arena_printf(g->em->a, "q%d", d);
        fn_open(f, "for (int64_t %s = 0; %s < %lld; %s += %lld) {", q, q, (long long)s->extent[d],
                q, (long long)(d == s->cut ? s->chunk : 1));
        fn_bind(f, e_axis(c, s->axis[d]), q);
    }
    for (int d = s->cut + 1; d < s->n; d++) inner *= s->extent[d];
    fn_line(f, "const int64_t count = bk_mini(%lld - q%d, %lld);", (long long)s->extent[s->cut],
            s->cut, (long long)s->chunk);
    fn_line(f, "const bool done = part + count * %lld == w%d + %lld;", (long long)(inner * vec), i,
            (long long)(s->length * vec));
    fn_line(f, "const %s *next = done ? w%d + %lld : part + count * %lld;", type, i,
            (long long)(k->nv * s->length * vec), (long long)(inner * vec));
    fn_line(f, "const int64_t share = count * %lld / tiles + 1;", (long long)inner);
    positions(g, k, i, i + 1, false);
    fn_line(f, "part += count * %lld;", (long long)(inner * vec));
    fn_line(f, "more = 1;");
    fn_close(f, out);
}

/* Opens blocks of about equal size, at most `most`, an int64 expression, of multiples of unit. */
static void open_blocks(Group *g, const Axis *x, const char *name, const char *from, const char *to,
                        const char *most, int64_t unit) {
    Fn *f = &g->f;
    const char *lo = group_from(g, x), *hi = group_to(g, x);
    fn_line(f, "const int64_t %sn = bk_maxi((%s - %s + %s - 1) / (%s), 1);", name, hi, lo, most,
            most);
    fn_line(f, "const int64_t %ss = ((%s - %s + %sn - 1) / %sn + %lld) / %lld * %lld;", name, hi,
            lo, name, name, (long long)(unit - 1), (long long)unit, (long long)unit);
    fn_open(f, "for (int64_t %s = %s; %s < %s; %s += %ss) {", from, lo, from, hi, from, name);
    fn_line(f, "const int64_t %s = bk_mini(%s + %ss, %s);", to, from, name, hi);
}

/* The blocks of positions, along b and m. */
static void open_positions(Group *g, const Convolution *k) {
    Fn *f = &g->f;
    int64_t m, most = k->m_block;
    if (k->b) {
        const char *few = "1";
        if (e_is_int(k->m->extent, &m))
            few = arena_printf(f->a, "%lld", m < k->block ? (long long)(k->block / m) : 1LL);
        else if (!k->across)
            few = arena_printf(f->a, "bk_maxi(%lld / bk_maxi(%s, 1), 1)", (long long)k->block,
                               fn_expr(f, k->m->extent));
        open_blocks(g, k->b, "nb", "b0", "b1", few, 1);
    }
    const int64_t unit = k->even ? 1 : k->rows;
    if (most > unit) most -= most % unit;
    open_blocks(g, k->m, "nm", "mb", "me", arena_printf(f->a, "%lld", (long long)most), unit);
}

/* Where the packed operand of a sum's group of channels begins. */
static const char *group_of(Group *g, const Convolution *k, const ConvSum *s) {
    Cx *c = g->em->c;
    Expr *at = e_int(c, 0);
    for (int i = 0; i < s->ngroup; i++)
        at = e_add(c, e_muli(c, at, s->groups[i]), e_axis(c, s->group[i]));
    if (!s->ngroup) return "";
    at = e_muli(c, at, conv_vectors(k) * s->length * g->k->lanes);
    return arena_printf(g->em->a, " + (%s)", fn_expr(&g->f, at));
}

/* All of the group's positions below the axes further out. */
static void blocks(Group *g, const Convolution *k) {
    Fn *f = &g->f;
    const Scope out = fn_here(f);
    const char *weights[CONV_SUMS];
    for (int i = 0; i < k->n; i++) {
        weights[i] = group_packed(g, k->s[i].packed);
        fn_line(f, "float g%d[%lld] __attribute__((aligned(64)));", i,
                (long long)((k->kept ? k->block : k->rows) * k->vt));
    }
    const Across x = across_of(k);
    across_tiles(g, &x, k->m_block);
    open_positions(g, k);
    fn_open(f, "for (int64_t v0 = %s; v0 < %s; v0 += %d) {", group_from(g, k->v), group_to(g, k->v),
            k->vt);
    fn_line(f, "const int64_t lanes = bk_mini(%s - v0, %d);", group_to(g, k->v), k->vt);
    if (k->nlane <= k->vt && k->v != g->k->split) fn_line(f, "(void)lanes;");
    for (int i = 0; i < k->n; i++)
        fn_line(f, "const %s *const w%d = %s%s + v0 / %d * %lld;", c_store(k->s[i].packed->dtype),
                i, weights[i], group_of(g, k, &k->s[i]), g->k->lanes,
                (long long)(k->s[i].length * g->k->lanes));
    if (k->kept) {
        fn_line(f, "int64_t at;");
        fn_line(f, "const int64_t tiles = (me - mb + %d) / %d%s;", k->rows - 1, k->rows,
                k->b ? " * (b1 - b0)" : "");
        for (int i = 0; i < k->n; i++) {
            fn_open(f, "{");
            reduction_blocks(g, k, i);
            fn_end(f);
        }
        positions(g, k, 0, 0, true);
    } else
        positions(g, k, 0, k->n, true);
    fn_close(f, out);
}

void group_convolution(Group *g) {
    Emit *em = g->em;
    Fn *f = &g->f;
    const Convolution *k = g->k->convolution;
    g->reduce = sum_text;
    group_range(g);
    const Scope out = fn_here(f);
    for (int i = 0; i < g->k->naxis - (k->b ? 3 : 2); i++)
        group_loop(g, g->k->axis[i], arena_printf(em->a, "i%d", i));
    if (k->turned) {
        const Scope mark =
            fn_open(f, "if (%s > %s) {", fn_expr(f, k->b->extent), fn_expr(f, k->m->extent));
        blocks(g, k->turned);
        fn_else(f, mark, "} else {");
        blocks(g, k);
    } else
        blocks(g, k);
    fn_close(f, out);
}
