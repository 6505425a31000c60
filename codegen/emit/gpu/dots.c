/* dots.c: sums of products by blocks of threads: finding them, and the group's function.
 *
 * A block of rows and columns at a time: the block's threads compute all sums of it into tiles in
 * the block's memory; then the positions are dealt out to the threads for the members' own
 * expressions over these tiles. */
#include "codegen/emit/gpu/dots.h"
#include "scheduler/cost/decide.h"

#define STEPS_LEAST 8     /* steps of a sum that is worth sharing */
#define MATRIX_STEPS 16   /* … worth matrix units */
#define STEPS_FEW_ROWS 32 /* … where operands are used once or twice */

/* ---- finding --------------------------------------------------------------------------------- */
static Expr *both(Cx *c, Expr *a, Expr *b) { return a ? e_and(c, a, b) : b; }

static void take(Dots *k, Expr *e, Expr *when) {
    Cx *c = k->g->em->c;
    for (int j = 0; j < k->n; j++) {
        if (k->p[j].reduce != e) continue;
        if (k->when[j] != when) k->when[j] = k->when[j] && when ? e_or(c, k->when[j], when) : NULL;
        return;
    }
    if (k->n < MAX_PRODUCTS && contract_product(k->g->k, e, &k->p[k->n])) k->when[k->n++] = when;
}

/* The products below e, which is needed under condition `when`. Conditions must be the same for all
 * positions. */
static void find(Dots *k, Map *seen, Expr *e, Expr *when) {
    Cx *c = k->g->em->c;
    uint64_t key = (uint64_t)(when ? when->id + 1 : 0) << 32 | (uint64_t)(e->id + 1);
    if (!(e->flags & EF_REDUCE) || map_geti(seen, key)) return;
    map_seti(seen, key, e);
    if (e->op == E_REDUCE) {
        take(k, e, when);
        return;
    }
    if (e->op == E_LOAD) return;
    if (e->op != E_SELECT && e->op != E_GUARD) {
        for (int i = 0; i < e->n; i++) find(k, seen, e->a[i], when);
        return;
    }
    find(k, seen, e->a[0], when);
    /* A condition inside another one may be valid under that alone when it loads. */
    if (e->a[0]->flags & (EF_AXIS | EF_GUARD | EF_REDUCE) || (when && e->a[0]->flags & EF_LOAD))
        return;
    find(k, seen, e->a[1], both(c, when, e->a[0]));
    if (e->op == E_SELECT) find(k, seen, e->a[2], both(c, when, e_not(c, e->a[0])));
}

/* ---- axes ------------------------------------------------------------------------------------ */
int64_t dots_share(const Group *g, const Axis *x, int64_t unknown) {
    int64_t n = axis_size(x, -1), grain = 1;
    if (n < 0) return unknown;
    if (x != g->k->split || !e_is_int(g->k->grain, &grain)) return n;
    int units = schedule_units(g->em->p->schedule, g->k->s->level);
    return dots_div(dots_div(n, grain), units) * grain;
}

/* Sets up p for columns along v; false: it cannot. */
static bool orient(const Dots *k, Product *p, Axis *v) {
    Cx *c = k->g->em->c;
    for (int side = 0; side < 2; side++) {
        Expr *x = contract_factor(p->reduce->a[0]->a[side]),
             *y = contract_factor(p->reduce->a[0]->a[!side]);
        Expr *fx = flat_of(c, x), *fy = flat_of(c, y);
        if (e_is_ival(coef_of(c, fx, v), 0) || !e_is_ival(coef_of(c, fy, v), 0)) continue;
        p->packed = packable(k->g->k, p, x, fx);
        if (!p->packed) p->sym = NULL;
        p->vec = x;
        p->sca = y;
        p->vec_flat = fx;
        p->sca_flat = fy;
        return true;
    }
    return false;
}

static bool choose_columns(Dots *k) {
    Group *g = k->g;
    int best = -1;
    int64_t best_score = 0;
    for (int i = 0; i < g->k->naxis; i++) {
        int64_t score = 0, n = axis_size(g->k->axis[i], -1);
        for (int j = 0; j < k->n; j++) {
            Product p = k->p[j];
            if (orient(k, &p, g->k->axis[i])) score += p.packed ? 1150 : 1000;
        }
        if (!score) continue;
        if (i == g->k->naxis - 1) score += n < 0 || n >= 8 ? 400 : 50; /* contiguous stores */
        if (n < 0 || n >= 8) score += 200;
        if (score > best_score) best = i, best_score = score;
    }
    if (best < 0) return false;
    k->v = g->k->axis[best];
    int n = 0;
    for (int j = 0; j < k->n; j++) {
        if (!orient(k, &k->p[j], k->v)) continue;
        k->p[n] = k->p[j];
        k->when[n++] = k->when[j];
    }
    k->n = n;
    return true;
}

/* The other axes: rows where no vec moves, else loops. */
static void sort_axes(Dots *k) {
    Group *g = k->g;
    Cx *c = g->em->c;
    k->rows = 1;
    k->nrow = k->nouter = 0;
    for (int i = 0; i < g->k->naxis; i++) {
        Axis *x = g->k->axis[i];
        if (x == k->v) continue;
        bool still = true;
        for (int j = 0; j < k->n; j++)
            still = still && e_is_ival(coef_of(c, k->p[j].vec_flat, x), 0);
        if (still) {
            k->row[k->nrow++] = x;
            k->rows *= dots_share(g, x, ROWS_UNKNOWN);
        } else
            k->outer[k->nouter++] = x;
    }
    k->columns = dots_share(g, k->v, COLUMNS_UNKNOWN);
    k->by_row = k->nrow && k->v != g->k->axis[g->k->naxis - 1];
}

/* ---- parts ----------------------------------------------------------------------------------- */
/* vec of a and b moves along the same outer axes. */
static bool same_outer(const Dots *k, const Product *a, const Product *b) {
    Cx *c = k->g->em->c;
    for (int i = 0; i < k->nouter; i++)
        if (e_is_ival(coef_of(c, a->vec_flat, k->outer[i]), 0) !=
            e_is_ival(coef_of(c, b->vec_flat, k->outer[i]), 0))
            return false;
    return true;
}

/* The type of p's operands when matrix units are to multiply them, else DT_NONE. Products of
 * float32 are rounded there: only on request. */
static DType matrix_type(const Dots *k, const Product *p) {
    const Schedule *plan = k->g->em->p->schedule;
    DType t = p->vec->dtype;
    if (t != p->sca->dtype || !(plan->device->matrix >> t & 1)) return DT_NONE;
    return t == DT_F32 && plan->force[X_TF32] != 1 ? DT_NONE : t;
}

static bool join(Dots *k, int j, Part *q) {
    Product p = k->p[j];
    const Product *lead = &k->p[q->lead];
    if (!p.packed || !q->packed || k->when[j] != q->when || p.sym != lead->sym) return false;
    if (matrix_type(k, &p) != q->matrix) return false;
    if (!contract_share_axes(k->g->em->c, &p, q->nraxis, q->raxis)) return false;
    if (p.sca != lead->sca || !same_outer(k, &p, lead)) return false;
    p.place = q->n++;
    k->p[j] = p;
    return true;
}

static void make_parts(Dots *k) {
    for (int j = 0; j < k->n; j++) {
        Product *p = &k->p[j];
        for (p->set = 0; p->set < k->npart; p->set++)
            if (join(k, j, &k->part[p->set])) break;
        if (p->set < k->npart) continue;
        Part *q = &k->part[k->npart++];
        *q = (Part){.n = 1,
                    .lead = j,
                    .nraxis = p->reduce->naxis,
                    .when = k->when[j],
                    .packed = p->packed,
                    .raxis = contract_order(k->g->em->a, p->reduce),
                    .length = 1,
                    .matrix = matrix_type(k, p)};
        for (int i = 0; i < q->nraxis; i++) {
            int64_t n = axis_size(q->raxis[i], -1);
            if (n < 0 || !mul_size(q->length, n, &q->length) || q->length > INT32_MAX / 2) {
                q->length = -1;
                break;
            }
        }
        if (q->length >= 0 && q->length < MATRIX_STEPS) q->matrix = DT_NONE;
        dots_ways(k, q);
    }
}

/* Drops products that a thread by itself does better; false: all of them. */
static bool worth(Dots *k) {
    int n = 0;
    for (int j = 0; j < k->n; j++) {
        int64_t length = 1, size;
        for (int i = 0; i < k->p[j].reduce->naxis; i++)
            if (!mul_size(length, size = axis_size(k->p[j].reduce->raxis[i], STEPS_UNKNOWN),
                          &length))
                length = INT32_MAX;
        if (length < STEPS_LEAST || (length < STEPS_FEW_ROWS && k->rows < 4 && !k->p[j].packed))
            continue;
        k->p[n] = k->p[j];
        k->when[n++] = k->when[j];
    }
    k->n = n;
    return n > 0;
}

/* ---- the group's function -------------------------------------------------------------------- */
static const char *tile_text(Group *g, Expr *e) {
    Dots *k = g->user;
    for (int j = 0; j < k->n; j++) {
        if (k->p[j].reduce != e) continue;
        const Part *q = &k->part[k->p[j].set];
        return arena_printf(g->em->a, "block[%lld + %s]",
                            (long long)(q->sums + (int64_t)k->p[j].place * k->bm * k->bv),
                            k->by_row ? arena_printf(g->em->a, "l * %d + row", k->bm)
                                      : arena_printf(g->em->a, "row * %d + l", k->bv));
    }
    return NULL;
}

static const char *extent_text(Dots *k, Axis *x) {
    return x == k->g->k->split ? "(to - from)" : fn_expr(&k->g->f, x->extent);
}

void dots_bind_rows(Dots *k, const char *at) {
    Fn *f = &k->g->f;
    int64_t all = 1, n;
    bool small = true; /* 32 bits do */
    for (int d = 0; d < k->nrow; d++)
        small =
            small && e_is_int(k->row[d]->extent, &n) && mul_size(all, n, &all) && all < INT32_MAX;
    const char *type = small ? "uint32_t" : "int64_t";
    for (int d = k->nrow - 1; d >= 0; d--) {
        Axis *x = k->row[d];
        const char *from = x == k->g->k->split ? "from + " : "", *size = extent_text(k, x);
        if (d == 0)
            fn_line(f, "const int64_t j0 = %s(int64_t)(%s);", from, at);
        else {
            fn_line(f, "const int64_t j%d = %s(int64_t)((%s)(%s) %% (%s)%s);", d, from, type, at,
                    type, size);
            fn_line(f, "const %s up%d = (%s)(%s) / (%s)%s;", type, d, type, at, type, size);
            at = arena_printf(f->a, "up%d", d);
        }
        fn_bind(f, e_axis(f->c, x), arena_printf(f->a, "j%d", d));
    }
}

static void open(Fn *f, const char *text) {
    fn_line(f, "%s {", text);
    f->indent++;
}
static void close(Fn *f) {
    f->indent--;
    fn_line(f, "}");
}

/* Copies a chunk's operands. */
static void copy_chunk(Dots *k, int i, const char *at, const char *buffer) {
    if (!k->part[i].whole) dots_copy(k, i, false, at, buffer);
    if (!k->part[i].packed) dots_copy(k, i, true, at, buffer);
}

/* Sums chunk by chunk. */
static void chunks(Dots *k, int i) {
    Fn *f = &k->g->f;
    const Part *q = &k->part[i];
    const char *all = "1";
    if (q->length >= 0)
        all = arena_printf(f->a, "%lld", (long long)q->length);
    else
        for (int d = 0; d < q->nraxis; d++) {
            const char *n = fn_expr(f, q->raxis[d]->extent);
            all = d ? arena_printf(f->a, "%s * %s", all, n) : n;
        }
    fn_line(f, "const int64_t steps = %s;", all);
    fn_line(f, "bk_block();"); /* the memory may still be in use */
    copy_chunk(k, i, "0", "0");
    if (q->buffers > 1) {
        open(f, arena_printf(f->a, "for (int64_t step = 0; step < steps; step += %d)", q->chunk));
        fn_line(f, "const int now = (int)(step / %d %% 2), next = 1 - now;", q->chunk);
    }
    fn_line(f, "bk_copied();");
    fn_line(f, "bk_block();");
    if (q->buffers > 1) {
        open(f, arena_printf(f->a, "if (step + %d < steps)", q->chunk));
        copy_chunk(k, i, arena_printf(f->a, "step + %d", q->chunk), "next");
        close(f);
    }
    dots_step(k, i, q->buffers > 1 ? "step" : "0", q->buffers > 1 ? "now" : "0");
    if (q->buffers > 1) close(f);
}

/* The sums of one part for the block of rows and columns at hand. */
static void part(Dots *k, int i) {
    Fn *f = &k->g->f;
    Part *q = &k->part[i];
    int mark = f->bound.n;
    open(f, q->when ? arena_printf(f->a, "if (when%d)", i) : "");
    fn_line(f, "float acc[%d] = {0};", q->tm * q->tc * (q->matrix ? 4 : 1));
    if (q->direct)
        dots_direct(k, i);
    else if (q->whole && q->packed)
        dots_step(k, i, "0", "0");
    else
        chunks(k, i);
    dots_finish(k, i);
    close(f);
    f->bound.n = mark;
}

static void epilogue(Dots *k) {
    Group *g = k->g;
    Fn *f = &g->f;
    int mark = f->bound.n;
    Axis *inner[MAX_RANK + 1];
    memcpy(inner, k->row, sizeof *inner * (size_t)k->nrow);
    inner[k->nrow] = k->v;
    open(f, "");
    for (int i = 0; i < g->k->n; i++) fn_hoist(f, g->k->value[i], k->nrow + 1, inner);
    open(f, "for (int at = bk_thread(); at < rows * lanes; at += bk_threads())");
    const char *row = k->by_row ? "at % rows" : "at / lanes",
               *lane = k->by_row ? "at / rows" : "at % lanes";
    fn_line(f, "const int row = %s, l = %s;", k->bm == 1 ? "0" : row, k->bm == 1 ? "at" : lane);
    fn_line(f, "const int64_t iv = v0 + l;");
    fn_bind(f, e_axis(f->c, k->v), "iv");
    dots_bind_rows(k, "first + row");
    fn_line(f, "(void)row, (void)l;");
    group_members(g);
    close(f);
    close(f);
    f->bound.n = mark;
}

/* Conditions, the block's memory, and the loops around a block of rows. */
static void head(Dots *k) {
    Group *g = k->g;
    Fn *f = &g->f;
    fn_line(f, "float *const block = (float *)(bk_shared() + BK_SCRATCH);");
    for (int i = 0; i < k->npart; i++)
        if (k->part[i].when) {
            fn_count(f, k->part[i].when);
            fn_line(f, "const bool when%d = %s;", i, fn_expr(f, k->part[i].when));
        }
    for (int i = 0; i < k->nouter; i++) group_loop(g, k->outer[i], arena_printf(f->a, "i%d", i));
    for (int i = 0; i < k->npart; i++)
        if (k->part[i].packed) dots_weights(k, i);
    const char *all = "1";
    for (int d = 0; d < k->nrow; d++)
        all = d ? arena_printf(f->a, "%s * %s", all, extent_text(k, k->row[d]))
                : extent_text(k, k->row[d]);
    fn_line(f, "const int64_t all_rows = %s;", all);
    open(f, arena_printf(f->a, "for (int64_t first = 0; first < all_rows; first += %d)", k->bm));
    fn_line(f, "const int rows = (int)bk_mini(all_rows - first, %d);", k->bm);
    for (int i = 0; i < k->npart; i++) {
        Part *q = &k->part[i];
        if (!q->whole) continue;
        if (q->when) open(f, arena_printf(f->a, "if (when%d)", i));
        dots_copy(k, i, false, "0", "0");
        if (q->when) close(f);
    }
    fn_line(f, "bk_copied();");
}

bool group_contraction_gpu(Group *g) {
    Emit *em = g->em;
    Fn *f = &g->f;
    Dots *k = NEW(em->a, Dots);
    k->g = g;
    Map *seen = map_new(em->a);
    for (int i = 0; i < g->k->n; i++) find(k, seen, g->k->value[i], NULL);
    if (!k->n || !choose_columns(k)) return false;
    sort_axes(k);
    if (!worth(k)) return false;
    sort_axes(k);
    make_parts(k);
    if (!dots_shape(k)) return false;
    dots_pack(k);
    if (k->words * WORD > em->scratch_bytes) em->scratch_bytes = k->words * WORD;
    g->reduce = tile_text;
    g->user = k;
    g->meets = !g->body.n;
    fn_line(f, "bk_block();"); /* the memory may still be in use */
    group_range(g);
    int indent = f->indent, mark = f->bound.n;
    head(k);
    bool split = k->v == g->k->split;
    const char *end = split ? "to" : fn_expr(f, k->v->extent);
    open(f, arena_printf(f->a, "for (int64_t v0 = %s; v0 < %s; v0 += %d)", split ? "from" : "0",
                         end, k->bv));
    fn_line(f, "const int lanes = (int)bk_mini(%s - v0, %d);", end, k->bv);
    fn_line(f, "bk_block();");
    for (int i = 0; i < k->npart; i++) part(k, i);
    fn_line(f, "bk_block();");
    epilogue(k);
    while (f->indent > indent) close(f);
    f->bound.n = mark;
    return true;
}
