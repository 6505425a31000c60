/* integer.c: prints sums of products of 8-bit integers (scheduler/kernel/integer.h). */
#include "codegen/emit/cpu/contraction.h"
#include "scheduler/kernel/integer.h"

/* The suffix of texts for elements of x. */
static const char *sign_of(const IntegerSum *s, bool upper) {
    const bool is_signed = s->x->dtype == DT_I8;
    return upper ? is_signed ? "S8" : "U8" : is_signed ? "s8" : "u8";
}

/* What is added to each element of x before it is multiplied. */
static const char *bias_of(Group *g, const IntegerSum *s) {
    return s->channels || s->pairs ? "0" : arena_printf(g->em->a, "BK_BIAS_%s", sign_of(s, true));
}

/* ---- micro-kernels --------------------------------------------------------------------------- */
/* A micro-kernel while it is written, and how it walks along x. */
typedef struct Dot {
    Micro u;
    const Integer *k;
    const IntegerSum *s;
    int rows;
    bool tail; /* x is read in `lanes` lanes only */
    const char *row, *stream;
    const char *place; /* to the next place in a window */
} Dot;

/* Text of an int64 value: a parameter, so that the kernel serves many sums, unless addresses of
 * many rows need a literal. */
static const char *value(Dot *d, Expr *e) {
    Micro *u = &d->u;
    int64_t x;
    if (e_is_int(e, &x) && (d->rows > 6 || x == 0 || x == 1)) return micro_value(u, e);
    const char *s = arena_printf(u->g->em->a, "n%d", u->nvalue++);
    sb_printf(&u->params, ", int64_t %s", s);
    sb_printf(&u->args, ", %s", fn_expr(&u->g->f, e));
    return s;
}

/* One step: a vector of w's for each of the tile's, times what x has of each row. `left`: elements
 * of the step, where they are fewer than it may have. */
static void step(Dot *d, int in, const char *next, int left) {
    Sb *b = &d->u.body;
    Arena *a = d->u.g->em->a;
    const int nv = d->k->nv, vec = d->u.g->k->lanes;
    const char *flip = arena_printf(a, "BK_FLIP_%s", sign_of(d->s, true));
    for (int v = 0; v < nv; v++)
        sb_printf(b, "%*sconst bk_vi w%d = bk_loadi(b + %d * %s);\n", in, "", v, v, d->stream);
    sb_printf(b, "%*sb += %d;\n", in, "", vec * integer_bytes(d->s));
    for (int m = 0; m < d->rows; m++) {
        const char *at = m ? arena_printf(a, "p + %d * %s", m, d->row) : "p";
        if (!d->s->channels && left)
            sb_printf(b, "%*sconst bk_vi x%d = bk_quadn(%s, %d, %s);\n", in, "", m, at, left, flip);
        else if (!d->s->channels)
            sb_printf(b, "%*sconst bk_vi x%d = bk_quads(%s, %s);\n", in, "", m, at, flip);
        for (int v = 0; v < nv && !d->s->channels; v++)
            sb_printf(b, "%*sc%d_%d = bk_dot4%s(c%d_%d, x%d, w%d);\n", in, "", m, v,
                      d->s->small ? "_small" : "", m, v, m, v);
        for (int v = 0; v < nv && d->s->channels; v++) {
            const char *x = arena_printf(a, "%s + %d", at, v * vec);
            const char *other = left ? "" : arena_printf(a, ", %s + %s", x, next);
            const char *limit = d->tail ? arena_printf(a, ", lanes - %d", v * vec) : "";
            sb_printf(b, "%*sc%d_%d = bk_dot2(c%d_%d, bk_wide_%s_%d%s(%s%s%s), w%d);\n", in, "", m,
                      v, m, v, sign_of(d->s, false), left ? 1 : 2, d->tail ? "n" : "", x, other,
                      limit, v);
        }
    }
}

/* The same of rows in 16 bits, at step `at` from p and b on. */
static void pair_step(Dot *d, int at) {
    Sb *b = &d->u.body;
    const int nv = d->k->nv, line = d->u.g->k->lanes * integer_bytes(d->s);
    sb_puts(b, "        {\n");
    for (int v = 0; v < nv; v++)
        sb_printf(b, "            const bk_vi w%d = bk_bytes2(b + %d * %s + %d);\n", v, v,
                  d->stream, at * line);
    for (int m = 0; m < d->rows; m++) {
        sb_printf(b, "            const bk_vi x%d = bk_pair(p + %d * %s + %d);\n", m, m, d->row,
                  2 * at);
        for (int v = 0; v < nv; v++)
            sb_printf(b, "            c%d_%d = bk_dot2(c%d_%d, x%d, w%d);\n", m, v, m, v, m, v);
    }
    sb_puts(b, "        }\n");
}

/* The same of channels whose windows share elements: each is widened once for all positions and
 * places in a window that it stands at. */
static void window_step(Dot *d, int in, const char *next, int left) {
    Sb *b = &d->u.body;
    const IntegerSum *s = d->s;
    Arena *a = d->u.g->em->a;
    const int vec = d->u.g->k->lanes, line = vec * integer_bytes(s),
              size = (int)s->extent[s->n - 2];
    for (int v = 0; v < d->k->nv; v++) {
        for (int i = 0; i < size; i++)
            sb_printf(b, "%*sconst bk_vi w%d_%d = bk_loadi(b + %d * %s + %lld);\n", in, "", v, i, v,
                      d->stream, (long long)(i * integer_steps(s) * line));
        for (int j = 0; j < (d->rows - 1) * s->every + size; j++) {
            const char *x = arena_printf(a, "p + %d * %s + %d", j, d->place, v * vec);
            sb_printf(b, "%*sconst bk_vi x%d_%d = bk_wide_%s_%d%s(%s", in, "", v, j,
                      sign_of(s, false), left ? 1 : 2, d->tail ? "n" : "", x);
            if (!left) sb_printf(b, ", %s + %s", x, next);
            if (d->tail) sb_printf(b, ", lanes - %d", v * vec);
            sb_puts(b, ");\n");
            for (int m = 0; m < d->rows; m++) {
                const int i = j - m * s->every;
                if (i >= 0 && i < size)
                    sb_printf(b, "%*sc%d_%d = bk_dot2(c%d_%d, x%d_%d, w%d_%d);\n", in, "", m, v, m,
                              v, v, j, v, i);
            }
        }
    }
    sb_printf(b, "%*sb += %d;\n", in, "", line);
}

/* The loop over a sum of rows in 16 bits, two steps at a time. */
static void pair_loop(Dot *d) {
    Sb *b = &d->u.body;
    const int64_t steps = d->s->row / 2;
    const int line = d->u.g->k->lanes * integer_bytes(d->s);
    sb_puts(b, "    const int16_t *p = a;\n");
    sb_printf(b, "    for (int64_t q = 0; q < %s; q++, p += 4, b += %d) {\n",
              value(d, e_int(d->u.g->em->c, steps / 2)), 2 * line);
    pair_step(d, 0);
    pair_step(d, 1);
    sb_puts(b, "    }\n");
    if (steps % 2) pair_step(d, 0);
}

/* The loops over the sum's axes. */
static void loops(Dot *d) {
    Micro *u = &d->u;
    const IntegerSum *s = d->s;
    Cx *c = u->g->em->c;
    Sb *b = &u->body;
    Arena *a = u->g->em->a;
    const int outer = s->n - s->run - (s->every > 0), size = integer_step(s);
    const int left = (int)(s->length % size);
    void (*const print)(Dot *, int, const char *, int) = s->every ? window_step : step;
    const char *at = "a", *next = "0";
    int in = 4;
    for (int i = 0; i < outer; i++, in += 4) {
        sb_printf(b, "%*sfor (int64_t r%d = 0; r%d < %s; r%d++) {\n", in, "", i, i,
                  value(d, s->axis[i]->extent), i);
        at = arena_printf(a, "%s + r%d * %s", at, i, value(d, e_coef(c, s->x_flat, s->axis[i])));
    }
    sb_printf(b, "%*sconst %s *p = %s;\n", in, "", c_store(s->x->dtype), at);
    if (s->channels && s->n) next = value(d, e_coef(c, s->x_flat, s->axis[s->n - 1]));
    if (s->every) d->place = value(d, e_coef(c, s->x_flat, s->axis[outer]));
    if (s->length / size) {
        const char *by = s->channels ? arena_printf(a, "2 * %s", next) : "4";
        sb_printf(b, "%*sfor (int64_t q = 0; q < %s; q++, p += %s) {\n", in, "",
                  value(d, e_int(c, s->length / size)), by);
        print(d, in + 4, next, 0);
        sb_printf(b, "%*s}\n", in, "");
    }
    if (left) {
        sb_printf(b, "%*s{\n", in, "");
        print(d, in + 4, next, left);
        sb_printf(b, "%*s}\n", in, "");
    }
    if (s->every && outer) /* behind the other places of the window */
        sb_printf(b, "%*sb += %lld;\n", in, "",
                  (long long)((s->extent[outer] - 1) * integer_steps(s) * u->g->k->lanes *
                              integer_bytes(s)));
    for (int i = outer - 1; i >= 0; i--) sb_printf(b, "%*s}\n", 4 + 4 * i, "");
}

/* Calls the micro-kernel of sum i for `rows` positions, x's first element being at `at`, those of
 * the next position `row` further on. */
static void call_bytes(Group *g, const Integer *k, int i, int rows, const char *at, Expr *row,
                       bool tail) {
    const IntegerSum *s = &k->s[i];
    const int vec = g->k->lanes;
    Dot d = {.u = micro_new(g, NULL, 0), .k = k, .s = s, .rows = rows, .tail = tail};
    Micro *u = &d.u;
    Sb *b = &u->body;
    sb_printf(&u->params, "int32_t *restrict g, const int8_t *restrict b, const %s *restrict a",
              s->pairs ? "int16_t" : c_store(s->x->dtype));
    sb_printf(&u->args, "g%d, w%d, %s", i, i, at);
    if (tail) {
        sb_puts(&u->params, ", int64_t lanes");
        sb_puts(&u->args, ", lanes");
    }
    d.stream = k->nv > 1 ? value(&d, e_int(g->em->c, s->stream)) : "0";
    d.row = rows > 1 && !s->every ? value(&d, row) : "0";
    for (int m = 0; m < rows; m++) {
        sb_puts(b, "    bk_vi");
        for (int v = 0; v < k->nv; v++) sb_printf(b, "%s c%d_%d = {0}", v ? "," : "", m, v);
        sb_puts(b, ";\n");
    }
    if (s->pairs)
        pair_loop(&d);
    else
        loops(&d);
    for (int m = 0; m < rows; m++)
        for (int v = 0; v < k->nv; v++)
            sb_printf(b, "    bk_storei(g + %d, c%d_%d);\n", m * k->vt + v * vec, m, v);
    fn_line(&g->f, "%s", micro_end(u, "bytes"));
}

/* ---- x ----------------------------------------------------------------------------------------
 */
/* Address of x at the bound position, with all axes of the sum at 0. */
static const char *x_address(Group *g, const IntegerSum *s) {
    Expr *zero[INTEGER_AXES];
    for (int i = 0; i < s->n; i++) zero[i] = e_int(g->em->c, 0);
    Expr *at = e_subst(g->em->c, s->x_flat, s->n, s->axis, zero, NULL, NULL);
    return arena_printf(g->em->a, "%s + (%s)", g->f.tensor(&g->f, s->x->t), fn_expr(&g->f, at));
}

/* Opens the loops over the positions of a block, `at` being a position's number. */
static Scope open_positions(Group *g, const Integer *k) {
    Fn *f = &g->f;
    const Scope out = fn_open(f, "for (int64_t at = 0, ib = b0; ib < b1; ib++) {");
    fn_open(f, "for (int64_t pos = mb; pos < me; pos++, at++) {");
    if (k->b) fn_bind(f, e_axis(f->c, k->b), "ib");
    if (k->m) fn_bind(f, e_axis(f->c, k->m), "pos");
    fn_bind(f, e_axis(f->c, k->v), "0");
    return out;
}

/* Opens loops over the first n axes of the sum. */
static void open_sum(Group *g, const IntegerSum *s, int n) {
    Fn *f = &g->f;
    for (int i = 0; i < n; i++) {
        const char *r = arena_printf(f->a, "r%d", i);
        fn_open(f, "for (int64_t %s = 0; %s < %lld; %s++) {", r, r, (long long)s->extent[i], r);
        fn_bind(f, e_axis(f->c, s->axis[i]), r);
    }
}

/* Copies the rows of x that the positions of a block multiply. */
static void copy_rows(Group *g, const Integer *k, int i) {
    const IntegerSum *s = &k->s[i];
    Fn *f = &g->f;
    const char *at = "0", *x = f->tensor(f, s->x->t);
    const long long row = (long long)s->row;
    const int axes = s->copied ? s->n : s->n - s->run; /* that loops go over */
    fn_line(f, "%s x%d[%lld] __attribute__((aligned(64)));",
            s->pairs ? "int16_t" : c_store(s->x->dtype), i, (long long)k->block * row);
    const Scope out = open_positions(g, k);
    for (int d = 0; d < axes; d++)
        at = arena_printf(f->a, "(%s) * %lld + r%d", at, (long long)s->extent[d], d);
    open_sum(g, s, axes);
    for (int d = axes; d < s->n; d++) fn_bind(f, e_axis(f->c, s->axis[d]), "0");
    const char *from = fn_expr(f, s->x_flat), *to = arena_printf(f->a, "x%d + at * %lld", i, row);
    if (s->copied)
        fn_line(f, "(%s)[%s] = %s[%s];", to, at, x, from);
    else {
        const long long run = (long long)(integer_steps(s) * integer_step(s));
        fn_line(f, "bk_widen_%s(%s + (%s) * %lld, %s + (%s), %lld);", sign_of(s, false), to, at,
                run, x, from, (long long)s->length);
    }
    fn_close(f, out);
}

/* Sums the elements of x for each position of a block: what zero points of w are multiplied by. */
static void sum_rows(Group *g, const Integer *k, int i) {
    const IntegerSum *s = &k->s[i];
    Fn *f = &g->f;
    int64_t all = 1;
    for (int d = 0; d < s->n; d++) all *= s->extent[d];
    fn_line(f, "uint32_t u%d[%lld];", i, (long long)k->block);
    const Scope out = open_positions(g, k);
    fn_line(f, "uint32_t all = (uint32_t)%s * %lldu;", bias_of(g, s), (long long)all);
    const Scope in = fn_here(f);
    open_sum(g, s, s->n);
    fn_line(f, "all += (uint32_t)%s[%s];", f->tensor(f, s->x->t), fn_expr(f, s->x_flat));
    fn_close(f, in);
    fn_line(f, "u%d[at] = all;", i);
    fn_close(f, out);
}

/* ---- w --------------------------------------------------------------------------------------- */
/* Whether the four elements of w that a lane's word takes lie together. */
static bool is_word(Group *g, const IntegerSum *s) {
    return integer_step(s) == 4 && s->run && s->extent[s->n - 1] % 4 == 0 &&
           e_is_ival(e_coef(g->f.c, s->w_flat, s->axis[s->n - 1]), 1);
}

/* Packs the elements q and those behind it of all lanes. */
static void make_step(Group *g, const IntegerSum *s) {
    Fn *f = &g->f;
    const int flip = s->w->dtype == DT_U8 ? 128 : 0, words = is_word(g, s), n = integer_step(s);
    const char *by = fn_expr(f, e_coef(f->c, s->w_flat, g->k->integer->v));
    const char *w = f->tensor(f, s->w->t);
    for (int j = 0; j < (words ? 1 : n); j++) {
        const int bound = f->bound.n;
        int64_t inner = 1;
        fn_line(f, "const int64_t q%d = bk_mini(q + %d, %lld);", j, j, (long long)s->length - 1);
        for (int d = s->n - 1; d >= s->n - s->run; d--) {
            fn_bind(f, e_axis(f->c, s->axis[d]),
                    arena_printf(f->a, "(q%d / %lld %% %lld)", j, (long long)inner,
                                 (long long)s->extent[d]));
            inner *= s->extent[d];
        }
        fn_line(f, "const %s *const b%d = %s + (%s);", c_store(s->w->dtype), j, w,
                fn_expr(f, s->w_flat));
        f->bound.n = bound;
    }
    for (int j = 0; j < n && !words; j++)
        fn_line(f, "const uint32_t on%d = q + %d < %lld ? 255 : 0;", j, j, (long long)s->length);
    fn_line(f, "BK_SIMD");
    fn_open(f, "for (int64_t l = 0; l < lanes; l++) {");
    if (words) {
        fn_line(f, "const uint32_t x = *(const bk_quad *)(b0 + l * %s) ^ %du * 0x01010101u;", by,
                flip);
        for (int j = 0; j < n; j++) fn_line(f, "const uint32_t x%d = x >> %d;", j, 8 * j);
        fn_line(f, "word[l] = x;");
    } else {
        for (int j = 0; j < n; j++)
            fn_line(f, "const uint32_t x%d = ((uint32_t)b%d[l * %s] ^ %d) & on%d;", j, j, by, flip,
                    j);
        fn_line(f, "word[l] = %s;",
                n == 2 ? "(uint16_t)(x0 | x1 << 8)" : "x0 | x1 << 8 | x2 << 16 | x3 << 24");
    }
    fn_line(f, "sum[l] += (uint32_t)((int8_t)x0 + (int8_t)x1%s);",
            n == 2 ? "" : " + (int8_t)x2 + (int8_t)x3");
    fn_end(f);
}

/* Packs w, which is no constant, as constants are packed, for the unit's lanes. */
static void make_weights(Group *g, const Integer *k, int i) {
    const IntegerSum *s = &k->s[i];
    Fn *f = &g->f;
    Cx *c = f->c;
    const int vec = g->k->lanes, flip = s->w->dtype == DT_U8 ? 128 : 0;
    const long long words = (long long)(s->stream / integer_bytes(s)),
                    length = (long long)s->length;
    const long long vectors = (long long)integer_vectors(k, s);
    int64_t all = 1;
    for (int d = 0; d < s->n; d++) all *= s->extent[d];
    const char *type = integer_bytes(s) == 2 ? "uint16_t" : "uint32_t";
    fn_line(f, "%s made%d[%lld] __attribute__((aligned(64)));", type, i, vectors * words);
    fn_line(f, "uint32_t sums%d[%lld];", i, vectors * vec);
    fn_line(f, "const uint32_t zero%d = (uint32_t)(%s - %d);", i,
            s->w_zero ? fn_expr(f, s->w_zero) : "0", flip);
    fn_line(f, "const int8_t *const all%d = (const int8_t *)made%d;", i, i);
    const Scope out = fn_open(f, "for (int64_t v0 = vb; v0 < ve; v0 += %d) {", vec);
    fn_bind(f, e_axis(c, k->v), "v0");
    fn_line(f, "const int64_t lanes = bk_mini(ve - v0, %d);", vec);
    fn_line(f, "%s *word = made%d + (v0 - vb) / %d * %lld;", type, i, vec, words);
    fn_line(f, "uint32_t *const sum = sums%d + v0 - vb;", i);
    fn_line(f, "for (int64_t l = 0; l < %d; l++) sum[l] = (uint32_t)-%lld * zero%d;", vec,
            (long long)all, i);
    const int outer = s->n - s->run;
    for (int d = 0; d < outer; d++) {
        const char *r = arena_printf(f->a, "r%d", d);
        fn_open(f, "for (int64_t %s = 0; %s < %lld; %s++) {", r, r, (long long)s->extent[d], r);
        fn_bind(f, e_axis(c, s->axis[d]), r);
    }
    fn_open(f, "for (int64_t q = 0; q < %lld; q += %d, word += %d) {", length, integer_step(s),
            vec);
    make_step(g, s);
    fn_line(f, "for (int64_t l = lanes; l < %d; l++) word[l] = 0;", vec);
    fn_close(f, out);
}

/* ---- the group's function -------------------------------------------------------------------- */
static const char *sum_text(Group *g, Expr *e) {
    const Integer *k = g->k->integer;
    Arena *a = g->em->a;
    int i = 0;
    while (i < k->n && k->s[i].reduce != e) i++;
    if (i == k->n) return NULL;
    const IntegerSum *s = &k->s[i];
    const char *t = arena_printf(a, "(uint32_t)g%d[row * %d + l]", i, k->vt);
    if (!s->channels || s->x_zero)
        t = arena_printf(a, "%s - z%d * sums%d[iv%s]", t, i, i, s->made ? " - vb" : "");
    if (s->zeros) t = arena_printf(a, "%s - u%d[at + row] * zeros%d[iv]", t, i, i);
    if (s->made) t = arena_printf(a, "%s - u%d[at + row] * zero%d", t, i, i);
    return arena_printf(a, "(int32_t)(%s)", t);
}

/* Whether member i is computed in 32 bits and then narrowed: loops whose values all have as many
 * bits make the best vectors. */
static bool is_narrowed(Group *g, const Integer *k, int i) {
    return g->k->t[i]->dtype != DT_BOOL && dtype_size(g->k->t[i]->dtype) == 1 &&
           (k->across >> i & 1 || e_by_one(g->f.c, g->k->position[i], k->v));
}

/* Computes member i in lane l and stores it: in memory, in the block's tile, or in `wide`. */
static void store_member(Group *g, const Integer *k, int i) {
    Fn *f = &g->f;
    const DType type = g->k->t[i]->dtype;
    Expr *e = g->k->value[i];
    const char *m = arena_printf(f->a, "m%d", i);
    if (is_narrowed(g, k, i)) {
        const char *clipped = fn_clipped(f, e);
        fn_line(f, "const int32_t w%s = %s;", m, clipped ? clipped : fn_expr(f, e));
        fn_line(f, "const %s %s = (%s)w%s;", c_type(type), m, c_type(type), m);
        fn_line(f, "wide%d[l] = w%s;", i, m);
        fn_bind(f, e, m);
    } else if (k->across >> i & 1) {
        fn_line(f, "const %s %s = %s;", c_type(type), m, fn_expr(f, e));
        fn_line(f, "tile%d[(im - mb) * %d + l] = %s;", i, k->vt, fn_store(f, type, m));
    } else
        group_store_member(g, i, e);
}

/* Stores the members in lanes [0, to) of a row. */
static void store_lanes(Group *g, const Integer *k, const char *to) {
    Fn *f = &g->f;
    bool simd = true;
    for (int i = 0; i < g->k->n; i++) {
        simd = simd && !fn_guarded(f, g->k->value[i]);
        if (is_narrowed(g, k, i))
            fn_line(f, "int32_t wide%d[%d] __attribute__((aligned(64)));", i, k->vt);
    }
    if (simd) fn_line(f, "BK_SIMD");
    const Scope out = fn_open(f, "for (int64_t l = 0; l < %s; l++) {", to);
    fn_line(f, "const int64_t iv = v0 + l;");
    fn_bind(f, e_axis(f->c, k->v), "iv");
    for (int i = 0; i < g->k->n; i++) store_member(g, k, i);
    fn_close(f, out);
    fn_bind(f, e_axis(f->c, k->v), "v0");
    for (int i = 0; i < g->k->n; i++) {
        if (!is_narrowed(g, k, i)) continue;
        if (k->across >> i & 1)
            fn_line(f, "bk_narrow(tile%d + (im - mb) * %d, wide%d, %s);", i, k->vt, i, to);
        else
            fn_line(f, "bk_narrow(o%d + (%s), wide%d, %s);", i, fn_expr(f, g->k->position[i]), i,
                    to);
    }
    f->bound.n = out.bound;
}

/* Stores the tiles of a run of positions. */
static void store_tiles(Group *g, const Integer *k) {
    Fn *f = &g->f;
    const Scope out = fn_here(f);
    if (!k->across) return;
    fn_bind(f, e_axis(f->c, k->m), "mb");
    fn_bind(f, e_axis(f->c, k->v), "v0");
    for (int i = 0; i < g->k->n; i++) {
        Expr *at = g->k->position[i];
        if (k->across >> i & 1)
            fn_line(f, "bx_transpose_%d(o%d + (%s), %s, tile%d, %d, lanes, me - mb);",
                    (int)dtype_size(g->k->t[i]->dtype), i, fn_expr(f, at),
                    fn_expr(f, e_coef(f->c, at, k->v)), i, k->vt);
    }
    fn_close(f, out);
}

static void epilogue(Group *g, const Integer *k) {
    Fn *f = &g->f;
    const Scope mark = fn_open(f, "for (int64_t row = 0; row < rows; row++) {");
    if (k->m) {
        fn_line(f, "const int64_t im = pos + row;");
        fn_bind(f, e_axis(f->c, k->m), "im");
    }
    for (int i = 0; i < k->n; i++) {
        const IntegerSum *s = &k->s[i];
        if (s->channels && !s->x_zero) continue;
        fn_line(f, "const uint32_t z%d = (uint32_t)(%s + %s);", i,
                s->x_zero ? fn_expr(f, s->x_zero) : "0", bias_of(g, s));
    }
    for (int i = 0; i < g->k->n; i++) fn_hoist(f, g->k->value[i], 1, &k->v);
    const bool one = k->nlane % k->vt == 0 && k->v != g->k->split; /* all tiles are alike */
    const char *whole = arena_printf(f->a, "%d", k->vt);
    if (one)
        store_lanes(g, k, whole);
    else {
        const Scope in = fn_open(f, "if (lanes == %d) {", k->vt);
        store_lanes(g, k, whole);
        fn_else(f, in, "} else {");
        store_lanes(g, k, "lanes");
        fn_close(f, in);
    }
    fn_close(f, mark);
}

/* The micro-kernels of all sums for `rows` positions from `pos` on. */
static void kernels(Group *g, const Integer *k, int rows) {
    Fn *f = &g->f;
    if (k->m) fn_bind(f, e_axis(f->c, k->m), "pos");
    fn_bind(f, e_axis(f->c, k->v), "v0");
    for (int i = 0; i < k->n; i++) {
        const IntegerSum *s = &k->s[i];
        const bool copied = s->copied || s->pairs;
        Expr *row = copied ? e_int(f->c, s->row) : k->m ? e_coef(f->c, s->x_flat, k->m) : NULL;
        const char *at =
            copied ? arena_printf(f->a, "x%d + at * %lld", i, (long long)s->row) : x_address(g, s);
        if (!s->channels || (k->nlane % k->vt == 0 && k->v != g->k->split)) {
            call_bytes(g, k, i, rows, at, row, false);
            continue;
        }
        const Scope mark = fn_open(f, "if (lanes == %d) {", k->vt);
        call_bytes(g, k, i, rows, at, row, false);
        fn_else(f, mark, "} else {");
        call_bytes(g, k, i, rows, at, row, true);
        fn_close(f, mark);
    }
}

/* A loop over the positions of a block, as few tiles as possible, of nearly equal heights. */
static void positions(Group *g, const Integer *k) {
    Fn *f = &g->f;
    fn_line(f, "int64_t at = 0;");
    const Scope out = fn_open(f, "for (int64_t ib = b0; ib < b1; ib++) {");
    if (k->b) fn_bind(f, e_axis(f->c, k->b), "ib");
    fn_open(f, "for (int64_t pos = mb, rows; pos < me; pos += rows, at += rows) {");
    if (k->nheight > 1) {
        fn_line(f, "const int64_t left = me - pos, tiles = (left + %d) / %d;", k->rows - 1,
                k->rows);
        fn_line(f, "rows = (left + tiles - 1) / tiles;");
    }
    const Scope in = fn_here(f);
    for (int i = 0; i < k->nheight; i++) {
        if (k->nheight > 1 && i == 0) fn_open(f, "if (rows >= %d) {", k->height[i]);
        if (i && i < k->nheight - 1) fn_else(f, in, "} else if (rows >= %d) {", k->height[i]);
        if (i && i == k->nheight - 1) fn_else(f, in, "} else {");
        fn_line(f, "rows = %d;", k->height[i]);
        kernels(g, k, k->height[i]);
    }
    fn_close(f, in);
    epilogue(g, k);
    fn_end(f);
    store_tiles(g, k);
    fn_close(f, out);
}

/* Opens a loop over blocks [from, to) of axis x; of one position where there is no axis. */
static void open_blocks(Group *g, const Axis *x, int64_t block, const char *from, const char *to) {
    Fn *f = &g->f;
    if (!x) {
        fn_line(f, "const int64_t %s = 0, %s = 1;", from, to);
        return;
    }
    const char *end = group_to(g, x);
    fn_open(f, "for (int64_t %s = %s; %s < %s; %s += %lld) {", from, group_from(g, x), from, end,
            from, (long long)block);
    fn_line(f, "const int64_t %s = bk_mini(%s + %lld, %s);", to, from, (long long)block, end);
}

void group_integer(Group *g) {
    Emit *em = g->em;
    Fn *f = &g->f;
    const Integer *k = g->k->integer;
    g->reduce = sum_text;
    helper_text(em, "cpu/integer.inc");
    if (k->across) helper_text(em, "extern/transpose.inc");
    group_range(g);
    const Scope out = fn_here(f);
    for (int i = 0; i < g->k->naxis - 1 - (k->m != NULL) - (k->b != NULL); i++)
        group_loop(g, g->k->axis[i], arena_printf(em->a, "i%d", i));
    for (int i = 0; i < k->n; i++) {
        const IntegerSum *s = &k->s[i];
        fn_line(f, "int32_t g%d[%d] __attribute__((aligned(64)));", i, k->rows * k->vt);
        if (s->made) continue;
        const char *column = fn_expr(f, s->column);
        fn_line(f, "const int8_t *const all%d = (const int8_t *)%s + (%s) / %d * %lld;", i,
                group_packed(g, s->packed), column, g->k->lanes, (long long)s->stream);
        if (!s->channels || s->x_zero)
            fn_line(f, "const uint32_t *const sums%d = (const uint32_t *)%s + (%s);", i,
                    group_packed(g, s->sums), column);
        if (s->zeros)
            fn_line(f, "const uint32_t *const zeros%d = (const uint32_t *)%s + (%s);", i,
                    group_packed(g, s->zeros), column);
    }
    for (int i = 0; i < g->k->n; i++)
        if (k->across >> i & 1)
            fn_line(f, "%s tile%d[%lld] __attribute__((aligned(64)));", c_store(g->k->t[i]->dtype),
                    i, (long long)(k->m_block * k->vt));
    if (k->v_block) open_blocks(g, k->v, k->v_block, "vb", "ve");
    for (int i = 0; i < k->n; i++)
        if (k->s[i].made) make_weights(g, k, i);
    open_blocks(g, k->b, k->b_block, "b0", "b1");
    open_blocks(g, k->m, k->m_block, "mb", "me");
    for (int i = 0; i < k->n; i++) {
        if (k->s[i].zeros || k->s[i].made) sum_rows(g, k, i);
        if (k->s[i].copied || k->s[i].pairs) copy_rows(g, k, i);
    }
    const char *from = k->v_block ? "vb" : group_from(g, k->v);
    const char *to = k->v_block ? "ve" : group_to(g, k->v);
    fn_open(f, "for (int64_t v0 = %s; v0 < %s; v0 += %d) {", from, to, k->vt);
    fn_line(f, "const int64_t lanes = bk_mini(%s - v0, %d);", to, k->vt);
    fn_line(f, "(void)lanes;");
    for (int i = 0; i < k->n; i++)
        fn_line(f, "const int8_t *const w%d = all%d + %s / %d * %lld;", i, i,
                k->s[i].made ? "(v0 - vb)" : "v0", g->k->lanes, (long long)k->s[i].stream);
    positions(g, k);
    fn_close(f, out);
}
