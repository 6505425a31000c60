/* contract_gpu_micro.c: the text of what a block of threads does with the operands of sums of products. */
#include "codegen/contract_gpu.h"
#include "scheduler/decide.h"

static int threads_of(const Dots *k) { return k->g->em->p->schedule->device->threads; }
static int pitch_of(const Part *q) { return q->chunk + 4; }

/* ---- copies ------------------------------------------------------------------------------------------------- */
/* Gives variables to the reduction's axes: step `at` of all. */
static void bind_steps(Dots *k, const Part *q, const char *at) {
    Fn *f = &k->g->f;
    const char *type = q->length >= 0 ? "uint32_t" : "int64_t";
    for (int d = q->nraxis - 1; d >= 0; d--) {
        const char *size = fn_expr(f, q->raxis[d]->extent);
        if (d == 0) fn_line(f, "const int64_t z0 = (int64_t)(%s);", at);
        else {
            fn_line(f, "const int64_t z%d = (int64_t)((%s)(%s) %% (%s)%s);", d, type, at, type, size);
            fn_line(f, "const %s on%d = (%s)(%s) / (%s)%s;", type, d, type, at, type, size);
            at = arena_printf(f->a, "on%d", d);
        }
        fn_bind(f, e_axis(f->c, q->raxis[d]), arena_printf(f->a, "z%d", d));
    }
}

/* Neighbouring threads take neighbouring rows or columns, for they lie together; else neighbouring steps. */
static bool along_lines(const Dots *k, const Part *q, bool vec) {
    const Product *p = &k->p[q->lead];
    Cx *c = k->g->em->c;
    Expr *flat = vec ? p->vec_flat : p->sca_flat;
    if (q->nraxis && e_is_ival(coef_of(c, flat, q->raxis[q->nraxis - 1]), 1)) return false;
    Axis *x = vec ? k->v : k->nrow ? k->row[k->nrow - 1] : NULL;
    return x && e_is_ival(coef_of(c, flat, x), 1);
}

void dots_copy(Dots *k, int part, bool vec, const char *at) {
    Fn *f = &k->g->f;
    Part *q = &k->part[part];
    const Product *p = &k->p[q->lead];
    int lines = vec ? q->nc * q->tc : q->nm * q->tm, pitch = pitch_of(q), mark = f->bound.n;
    bool across = along_lines(k, q, vec);
    Expr *load = vec ? p->vec : p->sca;
    fn_line(f, "for (int at = bk_thread(); at < %d; at += bk_threads()) {", lines * q->chunk);
    f->indent++;
    fn_line(f, "const int line = at %c %d, o = at %c %d;", across ? '%' : '/', across ? lines : q->chunk, across ? '/' : '%',
            across ? lines : q->chunk);
    fn_line(f, "float x = 0.0f;");
    const char *end = q->length >= 0 ? arena_printf(f->a, "%lld", (long long)q->length) : "steps";
    fn_line(f, "if (line < %s && %s + o < %s) {", vec ? "lanes" : "rows", at, end);
    f->indent++;
    if (vec) {
        fn_line(f, "const int64_t iv = v0 + line;");
        fn_bind(f, e_axis(f->c, k->v), "iv");
    } else dots_bind_rows(k, "first + line");
    bind_steps(k, q, arena_printf(f->a, "%s + o", at));
    fn_line(f, "x = %s;", fn_expr(f, e_cast(f->c, DT_F32, load)));
    f->indent--;
    fn_line(f, "}");
    fn_line(f, "block[%lld + line * %d + o] = x;", (long long)(vec ? q->w : q->x), pitch);
    f->indent--;
    fn_line(f, "}");
    f->bound.n = mark;
}

/* ---- sums ---------------------------------------------------------------------------------------------------------- */
/* This thread's place in its team, and the team's tile. */
static void place_text(Sb *b, const Dots *k, const Part *q) {
    sb_printf(b, "    const int share = bk_thread() %% %d, tile = bk_thread() / %d, tc = tile %% %d, tm = tile / %d;\n", q->team,
              q->team, q->nc, q->nc);
    if (q->nm * q->nc * q->team < threads_of(k)) sb_printf(b, "    const bool idle = tile >= %d;\n", q->nm * q->nc);
    else sb_puts(b, "    const bool idle = false;\n");
}

void dots_step(Dots *k, int part, const char *at) {
    Fn *f = &k->g->f;
    Emit *em = k->g->em;
    Part *q = &k->part[part];
    Sb body = {.a = em->a}, *b = &body;
    long long column = q->packed ? q->column : pitch_of(q);
    place_text(b, k, q);
    sb_puts(b, "    if (idle) return;\n");
    sb_printf(b, "    const float4 *wp[%d], *xp[%d];\n", q->tc, q->tm);
    sb_printf(b, "    BK_UNROLL for (int j = 0; j < %d; j++) {\n", q->tc);
    sb_printf(b, "        const int at = tc + j * %d;\n", q->nc);
    sb_printf(b, "        wp[j] = (const float4 *)(w + (int64_t)(at < columns ? at : columns - 1) * %lld);\n    }\n", column);
    sb_printf(b, "    BK_UNROLL for (int i = 0; i < %d; i++) xp[i] = (const float4 *)(x + (tm + i * %d) * %d);\n", q->tm, q->nm,
              pitch_of(q));
    sb_printf(b, "    for (int s = share; s < quads; s += %d) {\n", q->team);
    sb_printf(b, "        float4 a[%d];\n", q->tm);
    sb_printf(b, "        BK_UNROLL for (int i = 0; i < %d; i++) a[i] = xp[i][s];\n", q->tm);
    sb_printf(b, "        BK_UNROLL for (int j = 0; j < %d; j++) {\n            const float4 b = wp[j][s];\n", q->tc);
    sb_printf(b, "            BK_UNROLL for (int i = 0; i < %d; i++) acc[i * %d + j] = bk_dot4(a[i], b, acc[i * %d + j]);\n", q->tm,
              q->tc, q->tc);
    sb_puts(b, "        }\n    }\n");
    const char *name = emit_function(em, "dot", em->target->kernel,
                                     "float *acc, const float *BK_RESTRICT w, const float *BK_RESTRICT x, int columns, int quads",
                                     b->p);
    const char *w = q->packed ? arena_printf(f->a, "w%d + (v0 - w%d_first) * %lld + %s", part, part, (long long)q->column * q->n, at)
                              : arena_printf(f->a, "block + %lld", (long long)q->w);
    const char *x = q->whole ? arena_printf(f->a, "block + %lld", (long long)q->x)
                             : arena_printf(f->a, "block + %lld", (long long)q->x);
    const char *quads = q->whole ? arena_printf(f->a, "%d", q->chunk / 4)
                                 : arena_printf(f->a, "(int)((bk_mini(steps - %s, %d) + 3) / 4)", at, q->chunk);
    fn_line(f, "%s(acc, %s, %s, %s, %s);", name, w, x, q->n > 1 ? arena_printf(f->a, "lanes * %d", q->n) : "lanes", quads);
    sb_free(&body);
}

void dots_finish(Dots *k, int part) {
    Fn *f = &k->g->f;
    Emit *em = k->g->em;
    Part *q = &k->part[part];
    Sb body = {.a = em->a}, *b = &body;
    place_text(b, k, q);
    if (q->team > 1) {
        sb_printf(b, "    BK_UNROLL for (int i = 0; i < %d; i++) {\n", q->tm * q->tc);
        sb_printf(b, "        BK_UNROLL for (int far = %d; far; far /= 2) acc[i] += __shfl_xor_sync(BK_ALL_LANES, acc[i], far);\n",
                  q->team / 2);
        sb_puts(b, "    }\n");
    }
    sb_puts(b, "    if (idle || share) return;\n");
    sb_printf(b, "    BK_UNROLL for (int i = 0; i < %d; i++) {\n        const int row = tm + i * %d;\n", q->tm, q->nm);
    sb_printf(b, "        BK_UNROLL for (int j = 0; j < %d; j++) {\n            const int at = tc + j * %d;\n", q->tc, q->nc);
    sb_printf(b, "            if (row < rows && at < columns) g[at %% %d * %d + ", q->n, k->bm * k->bv);
    if (k->by_row) sb_printf(b, "at / %d * %d + row", q->n, k->bm);
    else sb_printf(b, "row * %d + at / %d", k->bv, q->n);
    sb_printf(b, "] = acc[i * %d + j];\n        }\n    }\n", q->tc);
    const char *name = emit_function(em, "put", em->target->kernel, "float *acc, float *g, int rows, int columns", b->p);
    fn_line(f, "%s(acc, block + %lld, rows, %s);", name, (long long)q->sums,
            q->n > 1 ? arena_printf(f->a, "lanes * %d", q->n) : "lanes");
    sb_free(&body);
}
