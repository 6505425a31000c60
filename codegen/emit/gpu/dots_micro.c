/* dots_micro.c: how a block of threads copies and multiplies the operands of sums of products. */
#include "codegen/emit/gpu/dots.h"

static const char *columns_text(const Group *g, const DotsPart *q) {
    return q->n > 1 ? arena_printf(g->em->a, "lanes * %d", q->n) : "lanes";
}

static int pitch_of(const DotsPart *q) { return (int)dots_pitch(q, q->chunk); }

/* ---- copies ---------------------------------------------------------------------------------- */
/* Address of buffer `buffer` for copies of sca (vec). */
static const char *buffer_text(const Group *g, const DotsPart *q, bool vec, const char *buffer) {
    long long at = vec ? q->w : q->x, size = part_lines(q, vec) * dots_pitch(q, q->chunk);
    if (strcmp(buffer, "0") == 0) return arena_printf(g->em->a, "block + %lld", at);
    return arena_printf(g->em->a, "block + %lld + %s * %lld", at, buffer, size);
}

/* Binds the axes to `line` and step `at` of sca (vec). */
static void bind_place(Group *g, const DotsKernel *k, const DotsPart *q, bool vec, const char *at) {
    Fn *f = &g->f;
    if (vec) {
        fn_line(f, "const int64_t iv = v0 + line;");
        fn_bind(f, e_axis(f->c, k->v), "iv");
    } else
        dots_bind_rows(g, k, "first + line");
    dots_bind(g, q->nraxis, q->raxis, 'z', "on", q->length >= 0 ? "uint32_t" : "int64_t", at);
}

/* The position of the first of all steps. */
static Expr *first_step(Fn *f, const Product *p, const DotsPart *q) {
    Expr *zero[MAX_RANK * 2];
    for (int d = 0; d < q->nraxis; d++) zero[d] = e_int(f->c, 0);
    return e_subst(f->c, p->sca_flat, q->nraxis, q->raxis, zero, NULL, NULL);
}

/* Declares the line and the step of copy `at` in a chunk. */
static void line_and_step(Fn *f, bool across, int lines, int steps, int width) {
    fn_line(f, "const int line = at %c %d, o = at %c %d%s;", across ? '%' : '/',
            across ? lines : steps, across ? '/' : '%', across ? lines : steps,
            width == 4 ? " * 4" : "");
}

/* Whether all chunks have equally many steps; whether all workers of a team have, too. */
static bool even_chunks(const DotsPart *q) {
    return q->whole || (q->length >= 0 && q->length % q->chunk == 0);
}
static bool even_shares(const DotsPart *q) {
    return even_chunks(q) && q->chunk / q->at_once % q->team == 0;
}

/* Condition: there is an element at `line` and step at + o. */
static const char *inside(Fn *f, const DotsPart *q, bool vec, const char *at) {
    const char *line = arena_printf(f->a, "line < %s", vec ? "lanes" : "rows");
    if (q->length >= 0 && q->length % q->chunk == 0) return line;
    const char *end = q->length >= 0 ? arena_printf(f->a, "%lld", (long long)q->length) : "steps";
    return arena_printf(f->a, "%s && %s + o < %s", line, at, end);
}

/* Whether t may be in a block's own memory, which asynchronous copies cannot read. */
static bool in_block(const Tensor *t) {
    const Mem *m = mem_of(tensor_root(t));
    while (m && m->via) m = mem_of(m->via);
    return m && m->block;
}

/* Asynchronous copies. */
static void copy_async(Group *g, const DotsKernel *k, const DotsPart *q, bool vec, const char *at,
                       const char *buffer) {
    Fn *f = &g->f;
    const Product *p = &k->p[q->lead];
    Expr *load = vec ? p->vec : p->sca, *padding = vec ? p->vec_inside : p->sca_inside;
    ASSERT(!in_block(load->t));
    bool half = part_size(q) < WORD, across = q->across[vec] && !q->by_four[vec];
    int lines = (int)part_lines(q, vec), width = q->by_four[vec] ? 4 : 1, steps = q->chunk / width;
    const char *type = half ? "uint16_t" : "float", *piece = half         ? "uint2"
                                                             : width == 4 ? "float4"
                                                                          : "float";
    const char *tensor = f->tensor(f, load->t), *aligned = "";
    if (width == 4) {
        aligned = arena_printf(f->a, ", ((uintptr_t)%s & %d) == 0", q->even[vec] ? tensor : "x",
                               half ? 7 : 15);
    }
    const Scope out = fn_open(f, "BK_UNROLL_BY(4) for (int at = %s; at < %d; at += %s) {",
                              g->crew.self, lines * steps, g->crew.size);
    line_and_step(f, across, lines, steps, width);
    fn_line(f, "const %s *x = %s;", type, tensor);
    fn_line(f, "%sbool there = %s;", padding ? "" : "const ", inside(f, q, vec, at));
    fn_open(f, "if (there) {");
    bind_place(g, k, q, vec, arena_printf(f->a, "%s + o", at));
    if (padding) fn_line(f, "there = %s;", fn_expr(f, padding));
    fn_line(f, "%sx = %s + (%s);", padding ? "if (there) " : "", tensor,
            fn_at(f, flat_of(f->c, load)));
    fn_end(f);
    fn_line(f, "bk_copy%d((%s *)((%s *)(%s + line * %d) + o), x, there%s);", width, piece, type,
            buffer_text(g, q, vec, buffer), pitch_of(q), aligned);
    fn_close(f, out);
}

/* Copies a chunk of packed columns. */
static void copy_columns(Group *g, const DotsPart *q, int part, const char *at,
                         const char *buffer) {
    Fn *f = &g->f;
    const int words = q->chunk * part_size(q) / WORD, quads = words / 4;
    const char *from = part_size(q) < WORD ? arena_printf(f->a, "(%s) / 2", at) : at;
    const Scope out = fn_open(f, "BK_UNROLL_BY(4) for (int at = %s; at < %d; at += %s) {",
                              g->crew.self, part_columns(q) * quads, g->crew.size);
    fn_line(f, "const int line = at / %d, o = at %% %d * 4;", quads, quads);
    fn_line(f, "if (line < lanes * %d%s)", q->n,
            q->column % words ? arena_printf(f->a, " && %s + o < %lld", from, (long long)q->column)
                              : "");
    fn_line(f,
            "    bk_move4((float4 *)(%s + line * %d + o), w%d + (v0 - w%d_first) * %lld + line * "
            "%lld + %s + o);",
            buffer_text(g, q, true, buffer), pitch_of(q), part, part, (long long)q->column * q->n,
            (long long)q->column, from);
    fn_close(f, out);
}

/* Declares the place of a thread's copy number u in flight. */
static void copy_place(Group *g, bool across, int lines, int steps, int width) {
    Fn *f = &g->f;
    fn_line(f, "const int at = base + u * %s;", g->crew.size);
    line_and_step(f, across, lines, steps, width);
}

/* Whether all steps of sca are copied as one line of floats. */
static bool is_line(const DotsKernel *k, const DotsPart *q) {
    return q->whole && q->by_four[0] && k->bm == 1 && part_rows(q) == 1 && q->nraxis == 1 &&
           part_size(q) == WORD && !q->matrix && !k->p[q->lead].sca_inside;
}

static const char *crew_type(const Group *g) { return g->k->s->op.team ? "true" : "false"; }

/* Copies `words` of sca from the current rows' first step on, as they lie. */
static void copy_span(Group *g, const DotsKernel *k, const DotsPart *q, int64_t words) {
    Fn *f = &g->f;
    const Product *p = &k->p[q->lead];
    const Scope out = fn_open(f, "{");
    dots_bind_rows(g, k, "first");
    fn_line(f, "bk_copy_span<%s, %s>(room + %lld, %s + (%s), %lld);", crew_type(g),
            q->async[0] ? "true" : "false", (long long)q->x * WORD, f->tensor(f, p->sca->t),
            fn_expr(f, first_step(f, p, q)), (long long)words);
    fn_close(f, out);
}

/* Declares c<d>, the place in the box of its word `at` along each dimension, and binds it. Returns
 * the positions in the tensor in `to`, and where they are inside. */
static Expr *box_place(Group *g, const DotsPart *q, Expr **first, Expr **to) {
    Fn *f = &g->f;
    Cx *c = f->c;
    const DotsBox *b = q->box;
    Expr *there = e_bool(c, true);
    int64_t words = 1;
    const char *rest = "(uint32_t)at";
    for (int d = b->rank - 1; d >= 0; d--) {
        to[d] = first[d];
        if (q->extent[d] > 1) {
            Axis *x = axis_new(c, e_int(c, q->extent[d]));
            words *= q->extent[d];
            const char *all =
                words == q->span ? "" : arena_printf(f->a, " %% %lldu", (long long)q->extent[d]);
            fn_line(f, "const int64_t c%d = %s%s;", d, rest, all);
            rest = arena_printf(f->a, "(uint32_t)at / %lldu", (long long)words);
            fn_bind(f, e_axis(c, x), arena_printf(f->a, "c%d", d));
            to[d] = e_add(c, first[d], e_axis(c, x));
        }
        if (b->low[d] > INT64_MIN) there = e_and(c, there, e_le(c, e_int(c, b->low[d]), to[d]));
        if (b->high[d] < INT64_MAX) there = e_and(c, there, e_le(c, to[d], e_int(c, b->high[d])));
    }
    return there;
}

/* The same of a padded sca. */
static void copy_box(Group *g, const DotsKernel *k, const DotsPart *q) {
    Fn *f = &g->f;
    Cx *c = f->c;
    Expr *load = k->p[q->lead].sca, *first[MAX_RANK], *to[MAX_RANK], *zero[MAX_RANK * 2];
    const char *tensor = f->tensor(f, load->t), *copy = buffer_text(g, q, false, "0");
    const Scope out = fn_open(f, "{");
    dots_bind_rows(g, k, "first");
    for (int i = 0; i < q->nraxis; i++) zero[i] = e_int(c, 0);
    for (int d = 0; d < q->box->rank; d++)
        first[d] = e_subst(c, load->a[d], q->nraxis, q->raxis, zero, NULL, NULL);
    if (q->async[0]) {
        fn_open(f, "BK_UNROLL_BY(4) for (int at = %s * 4; at < %lld; at += %s * 4) {", g->crew.self,
                (long long)q->span, g->crew.size);
        Expr *there = box_place(g, q, first, to);
        fn_line(f, "const bool there = %s;", fn_expr(f, there));
        fn_line(f, "const float *const x = there ? %s + (%s) : %s;", tensor,
                fn_expr(f, flat_index_of(c, load->t, to)), tensor);
        fn_line(f, "bk_copy4((float4 *)(%s + at), x, there, ((uintptr_t)%s & 15) == 0);", copy,
                q->even[0] ? tensor : "x");
        fn_close(f, out);
        return;
    }
    const int at_once = IN_FLIGHT / 4;
    fn_open(f, "for (int base = %s * 4; base < %lld; base += %d * %s) {", g->crew.self,
            (long long)q->span, at_once * 4, g->crew.size);
    fn_line(f, "float4 x[%d];", at_once);
    const Scope loads = fn_open(f, "BK_UNROLL for (int u = 0; u < %d; u++) {", at_once);
    fn_line(f, "const int at = base + u * %s * 4;", g->crew.size);
    fn_line(f, "x[u] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);");
    Expr *there = box_place(g, q, first, to);
    fn_line(f, "if (at < %lld && %s) x[u] = bk_load4(%s + (%s));", (long long)q->span,
            fn_expr(f, there), tensor, fn_expr(f, flat_index_of(c, load->t, to)));
    fn_close(f, loads);
    fn_open(f, "BK_UNROLL for (int u = 0; u < %d; u++) {", at_once);
    fn_line(f, "const int at = base + u * %s * 4;", g->crew.size);
    fn_line(f, "if (at < %lld) *(float4 *)(%s + at) = x[u];", (long long)q->span, copy);
    fn_close(f, out);
}

void dots_copy(Group *g, const DotsKernel *k, int part, bool vec, const char *at,
               const char *buffer) {
    Fn *f = &g->f;
    const DotsPart *q = &k->part[part];
    if (vec && q->packed && !q->whole) {
        copy_columns(g, q, part, at, buffer);
        return;
    }
    if (vec && q->packed) {
        const long long columns = (long long)q->column * q->n;
        fn_line(f,
                "bk_copy_span<%s, true>(room + %lld, w%d + (v0 - w%d_first) * %lld, lanes * %lld);",
                crew_type(g), (long long)q->w * WORD, part, part, columns, columns);
        return;
    }
    if (q->span && q->box) {
        copy_box(g, k, q);
        return;
    }
    if (q->span || (!vec && is_line(k, q))) {
        copy_span(g, k, q, q->span ? q->span : q->length);
        return;
    }
    if (q->async[vec]) {
        copy_async(g, k, q, vec, at, buffer);
        return;
    }
    const Product *p = &k->p[q->lead];
    int lines = (int)part_lines(q, vec), width = q->by_four[vec] ? 4 : 1;
    int steps = q->chunk / width, all = lines * steps, at_once = q->flight[vec];
    bool across = width == 1 && q->across[vec], even = all % (g->k->nthread * at_once) == 0;
    bool half = part_size(q) < WORD;
    const char *type = width == 4 ? half ? "uint2" : "float4" : half ? "uint16_t" : "float";
    Expr *load = vec ? p->vec : p->sca, *padding = vec ? p->vec_inside : p->sca_inside;
    const Scope out = fn_open(f, "for (int base = %s; base < %d; base += %d * %s) {", g->crew.self,
                              all, at_once, g->crew.size);
    fn_line(f, "%s x[%d];", type, at_once);
    fn_open(f, "BK_UNROLL for (int u = 0; u < %d; u++) {", at_once);
    copy_place(g, across, lines, steps, width);
    fn_line(f, "x[u] = %s;",
            half         ? width == 4 ? "make_uint2(0, 0)" : "0"
            : width == 4 ? "make_float4(0.0f, 0.0f, 0.0f, 0.0f)"
                         : "0.0f");
    fn_open(f, "if (%s%s) {", even ? "" : arena_printf(f->a, "at < %d && ", all),
            inside(f, q, vec, at));
    bind_place(g, k, q, vec, arena_printf(f->a, "%s + o", at));
    const Scope there = fn_here(f);
    if (padding) fn_open(f, "if (%s) {", fn_expr(f, padding));
    if (width == 4)
        fn_line(f, "x[u] = bk_load4(%s + (%s));", f->tensor(f, load->t),
                fn_at(f, flat_of(f->c, load)));
    else if (half)
        fn_line(f, "x[u] = %s[%s];", f->tensor(f, load->t), fn_at(f, flat_of(f->c, load)));
    else
        fn_line(f, "x[u] = %s;", fn_expr(f, e_cast(f->c, DT_F32, load)));
    fn_close(f, there);
    fn_end(f);
    fn_end(f);
    fn_open(f, "BK_UNROLL for (int u = 0; u < %d; u++) {", at_once);
    copy_place(g, across, lines, steps, width);
    if (q->matrix == DT_F32) fn_line(f, "bk_tf32(&x[u]);");
    fn_line(f, "%s*(%s *)((%s *)(%s + line * %d) + o) = x[u];",
            even ? "" : arena_printf(f->a, "if (at < %d) ", all), type, half ? "uint16_t" : "float",
            buffer_text(g, q, vec, buffer), pitch_of(q));
    fn_close(f, out);
}

/* ---- sums ------------------------------------------------------------------------------------ */
/* The type that says how threads share a part's tile. */
static const char *tile_type(const Group *g, const DotsPart *q) {
    if (q->direct)
        return arena_printf(g->em->a, "bk_direct<%d, %d, %d, %d>", q->nm, q->nc, q->tm, q->tc);
    return arena_printf(g->em->a, "bk_tile<%s, %d, %d, %d, %d, %d>", crew_type(g), q->team, q->nm,
                        q->nc, q->tm, q->tc);
}

/* The function that says where row `row` of the copy at x begins. */
static const char *rows_text(Group *g, const DotsKernel *k, const DotsPart *q, const char *x) {
    Arena *a = g->em->a;
    if (!q->span) return arena_printf(a, "bk_rows<%d>{%s}", pitch_of(q), x);
    const char *at = x;
    int64_t below = 1;
    for (int d = k->nrow - 1; d >= 0; d--) {
        const int64_t size = axis_size(k->row[d], -1);
        if (below == k->bm) break; /* a block has one position of the axes further out */
        if (size == 1) continue;
        at = arena_printf(a, "%s + row / %lld %% %lld * %lld", at, (long long)below,
                          (long long)size, (long long)q->row_stride[d]);
        below *= size;
    }
    return arena_printf(a, "[=](int row) { return %s; }", at);
}

/* Where a sum is in the tile, as bk_put has it. */
static const char *sums_place(const Group *g, const DotsKernel *k, const DotsPart *q) {
    return arena_printf(g->em->a, "%d, %d, %d, %d", q->n, k->by_row ? 1 : k->bv,
                        k->by_row ? k->bm : 1, k->bm * k->bv);
}

/* Declares this worker's share in its team, and the team's tile. */
static void place_text(Sb *b, const Group *g, const DotsPart *q) {
    const char *self = g->crew.warp;
    sb_printf(
        b,
        "    const int share = (int)%s %% %d, tile = (int)%s / %d, tc = tile %% %d, tm = tile "
        "/ %d;\n",
        self, q->team, self, q->team, q->nc, q->nc);
    if (q->nm * q->nc * q->team < q->workers)
        sb_printf(b, "    const bool idle = tile >= %d;\n", q->nm * q->nc);
    else
        sb_puts(b, "    const bool idle = false;\n");
}

/* A worker is a warp. */
static void warp_step(Sb *b, const DotsKernel *k, const DotsPart *q, long long column) {
    (void)k;
    const char *type = q->matrix == DT_F16 ? "f16" : q->matrix == DT_BF16 ? "bf16" : "tf32";
    sb_printf(b, "    const uint4 *wp[%d * BK_MATRIX_A], *xp[%d];\n", q->tc, q->tm);
    sb_printf(b, "    BK_UNROLL for (int j = 0; j < %d * BK_MATRIX_A; j++) {\n", q->tc);
    sb_printf(b,
              "        const int at = (tc + j / BK_MATRIX_A * %d) * %d + bk_matrix_line() + j %% "
              "BK_MATRIX_A * 8;\n",
              q->nc, q->wide);
    sb_printf(b,
              "        wp[j] = (const uint4 *)(w + (int64_t)(at < columns ? at : columns - 1) * "
              "%lld) + share * 4 + bk_matrix_part();\n    }\n",
              column);
    sb_printf(b, "    BK_UNROLL for (int i = 0; i < %d; i++)\n", q->tm);
    sb_printf(b,
              "        xp[i] = (const uint4 *)(x + ((tm + i * %d) * %d + bk_matrix_line()) * %d) + "
              "share * 4 + bk_matrix_part();\n",
              q->nm, q->high, pitch_of(q));
    sb_printf(b, "    for (int s = 0; s%s < times; s += %d) {\n", even_shares(q) ? "" : " + share",
              q->team);
    sb_printf(b, "        uint4 a[%d * BK_MATRIX_A];\n", q->tc);
    sb_printf(b,
              "        BK_UNROLL for (int j = 0; j < %d * BK_MATRIX_A; j++) a[j] = wp[j][s * 4];\n",
              q->tc);
    sb_printf(b,
              "        BK_UNROLL for (int i = 0; i < %d; i++) {\n            const uint4 b = "
              "xp[i][s * 4];\n",
              q->tm);
    sb_printf(b,
              "            BK_UNROLL for (int j = 0; j < %d; j++) bk_matrix_%s(acc + (i * %d + j) "
              "* 4, a + j * BK_MATRIX_A, b);\n",
              q->tc, type, q->tc);
    sb_puts(b, "        }\n    }\n");
}

/* Text of the call that adds to acc what w, x, columns and times say. */
static void call_dot(Group *g, const DotsKernel *k, const DotsPart *q, const char *before,
                     const char *w, const char *x, const char *columns, const char *times,
                     int unroll) {
    Fn *f = &g->f;
    const long long column = part_copies(q, true) ? pitch_of(q) : q->column;
    if (!q->matrix) {
        fn_line(f, "%sbk_dot<%s, %lld, %s, %d>(acc, %s, %s, %s, %s);", before, tile_type(g, q),
                column, even_shares(q) ? "true" : "false", unroll, w, columns, times,
                rows_text(g, k, q, x));
        return;
    }
    Emit *em = g->em;
    Sb body = {.a = em->a}, *b = &body;
    place_text(b, g, q);
    helper_text(em, "gpu/matrix.inc");
    sb_puts(b, "    if (idle) return;\n");
    warp_step(b, k, q, column);
    const char *name = emit_function(em, "dot", em->target->kernel,
                                     "float *acc, const float *BK_RESTRICT w, const float "
                                     "*BK_RESTRICT x, int columns, int times",
                                     b->p);
    fn_line(f, "%s%s(acc, %s, %s, %s, %s);", before, name, w, x, columns, times);
}

void dots_step(Group *g, const DotsKernel *k, int part, const char *at, const char *buffer) {
    Fn *f = &g->f;
    const DotsPart *q = &k->part[part];
    const char *words = part_size(q) < WORD ? arena_printf(f->a, "%s / 2", at) : at;
    const char *times = even_chunks(q)
                            ? arena_printf(f->a, "%d", q->chunk / q->at_once)
                            : arena_printf(f->a, "(int)((bk_mini(steps - %s, %d) + %d) / %d)", at,
                                           q->chunk, q->at_once - 1, q->at_once);
    const char *copy = buffer_text(g, q, false, q->whole ? "0" : buffer),
               *columns = columns_text(g, q);
    const Scope out = fn_here(f);
    for (int d = 0; q->span && d < q->ntap; d++) {
        const int64_t size = axis_size(q->raxis[d], -1);
        fn_open(f, "for (int z%d = 0; z%d < %lld; z%d++) {", d, d, (long long)size, d);
        copy = arena_printf(f->a, "%s + z%d * %lld", copy, d, (long long)q->tap_stride[d]);
        words = d ? arena_printf(f->a, "(%s) * %lld + z%d", words, (long long)size, d) : "z0";
    }
    if (q->span && q->ntap) words = arena_printf(f->a, "(%s) * %lld", words, (long long)q->run);
    if (q->staged && q->whole && !dots_kept(q))
        call_dot(g, k, q, "", arena_printf(f->a, "block + %lld + %s", (long long)q->w, words), copy,
                 columns, times, q->unroll);
    else if (q->packed && !part_copies(q, true)) {
        const char *place = arena_printf(f->a, "(v0 - w%d_first) * %lld + %s", part,
                                         (long long)q->column * q->n, words);
        const char *w = arena_printf(f->a, "w%d + %s", part, place);
        if (dots_kept(q))
            call_dot(g, k, q, arena_printf(f->a, "if (bk_on_chip(w%d)) ", part),
                     arena_printf(f->a, "bk_near(w%d) + %s", part, place), copy, columns, times,
                     q->unroll);
        call_dot(g, k, q, dots_kept(q) ? "else " : "", w, copy, columns, times,
                 dots_kept(q) ? 1 : q->unroll);
    } else
        call_dot(g, k, q, "", buffer_text(g, q, true, buffer), copy, columns, times, q->unroll);
    fn_close(f, out);
}

bool dots_called(const DotsPart *q) {
    return q->whole && q->packed && !q->span && !q->matrix && !q->direct && dots_kept(q);
}

void dots_call(Group *g, const DotsKernel *k, int part) {
    Fn *f = &g->f;
    const DotsPart *q = &k->part[part];
    fn_line(f,
            "bk_sums<%s, %lld, %s, %d, %d, %d, %s>(w%d + (v0 - w%d_first) * %lld, room + "
            "%lld, room + %lld, rows, %s);",
            tile_type(g, q), (long long)q->column, even_shares(q) ? "true" : "false", q->unroll,
            q->chunk / q->at_once, pitch_of(q), sums_place(g, k, q), part, part,
            (long long)q->column * q->n, (long long)q->x * WORD, (long long)q->sums * WORD,
            columns_text(g, q));
}

/* Opens a loop for each reduction axis. Returns the offset of sca's current step. */
static const char *step_loops(Group *g, const DotsKernel *k, const DotsPart *q) {
    Fn *f = &g->f;
    Cx *c = f->c;
    const Product *p = &k->p[q->lead];
    const char *at = "0";
    for (int d = 0; d < q->nraxis; d++) {
        Expr *stride = e_coef(c, p->sca_flat, q->raxis[d]);
        fn_open(f, "for (int z%d = 0; z%d < %s; z%d++) {", d, d, fn_expr(f, q->raxis[d]->extent),
                d);
        if (!e_is_ival(stride, 0))
            at = arena_printf(f->a, "%s + z%d * %s", at, d, fn_expr(f, stride));
    }
    return at;
}

void dots_direct(Group *g, const DotsKernel *k, int part) {
    Fn *f = &g->f;
    const DotsPart *q = &k->part[part];
    const Product *p = &k->p[q->lead];
    const Scope out = fn_here(f);
    Expr *first = first_step(f, p, q);
    fn_line(f, "const int tm = %s %% %d, tc = %s / %d, columns = lanes * %d;", g->crew.self, q->nm,
            g->crew.self, q->nm, q->n);
    fn_line(f, "const float *xp[%d], *wp[%d];", q->tm, q->tc);
    const Scope rows = fn_open(f, "BK_UNROLL for (int i = 0; i < %d; i++) {", q->tm);
    fn_line(f, "const int line = tm + i * %d < rows ? tm + i * %d : rows - 1;", q->nm, q->nm);
    dots_bind_rows(g, k, "first + line");
    fn_line(f, "xp[i] = %s + (%s);", f->tensor(f, p->sca->t), fn_expr(f, first));
    fn_close(f, rows);
    fn_line(f, "BK_UNROLL for (int j = 0; j < %d; j++) {", q->tc);
    fn_line(f, "    const int at = tc + j * %d < columns ? tc + j * %d : columns - 1;", q->nc,
            q->nc);
    fn_line(f, "    wp[j] = w%d + (v0 - w%d_first) * %lld + at * %lld;", part, part,
            (long long)q->column * q->n, (long long)q->column);
    fn_line(f, "}");
    fn_line(f, "int r = 0;");
    const char *at = step_loops(g, k, q);
    fn_line(f, "float b[%d];", q->tc);
    fn_line(f, "BK_UNROLL for (int j = 0; j < %d; j++) b[j] = wp[j][r];", q->tc);
    fn_line(f, "BK_UNROLL for (int i = 0; i < %d; i++) {", q->tm);
    fn_line(f, "    const float a = xp[i][%s];", at);
    fn_line(f,
            "    BK_UNROLL for (int j = 0; j < %d; j++) acc[i * %d + j] = BK_FMA(a, b[j], acc[i * "
            "%d + j]);",
            q->tc, q->tc, q->tc);
    fn_line(f, "}");
    fn_line(f, "r++;");
    fn_close(f, out);
}

/* The warps of a team add to the tile one after the other. */
static void warp_finish(Sb *b, Group *g, const DotsKernel *k, const DotsPart *q) {
    sb_printf(b, "    for (int turn = 0; turn < %d; turn++) {\n", q->team);
    sb_printf(b, "        if (turn) %s;\n        if (idle || share != turn) continue;\n",
              g->crew.meet);
    sb_printf(b, "        BK_UNROLL for (int i = 0; i < %d; i++) {\n", 4 * q->tm * q->tc);
    sb_printf(b, "            const int row = (tm + i / %d * %d) * %d + bk_matrix_row(i %% 4);\n",
              4 * q->tc, q->nm, q->high);
    sb_printf(
        b, "            const int at = (tc + i / 4 %% %d * %d) * %d + bk_matrix_column(i %% 4);\n",
        q->tc, q->nc, q->wide);
    const char *in = k->by_row ? arena_printf(g->em->a, "at / %d * %d + row", q->n, k->bm)
                               : arena_printf(g->em->a, "row * %d + at / %d", k->bv, q->n);
    const char *sum = arena_printf(g->em->a, "g[at %% %d * %d + %s]", q->n, k->bm * k->bv, in);
    sb_printf(b,
              "            if (row < rows && at < columns) %s = turn ? %s + acc[i] : acc[i];\n     "
              "   }\n    }\n",
              sum, sum);
}

void dots_finish(Group *g, const DotsKernel *k, int part) {
    Fn *f = &g->f;
    Emit *em = g->em;
    const DotsPart *q = &k->part[part];
    const char *name;
    if (!q->matrix)
        name = arena_printf(f->a, "bk_put<%s, %s>", tile_type(g, q), sums_place(g, k, q));
    else {
        Sb body = {.a = em->a}, *b = &body;
        place_text(b, g, q);
        warp_finish(b, g, k, q);
        name = emit_function(em, "put", em->target->kernel,
                             "float *acc, float *g, int rows, int columns", b->p);
    }
    fn_line(f, "%s(acc, block + %lld, rows, %s);", name, (long long)q->sums, columns_text(g, q));
}
