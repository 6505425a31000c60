/* sparse.c: see sparse.h; finding such sums, and the lists of their elements. */
#include "scheduler/kernel/sparse.h"
#include "scheduler/cost/cost.h"
#include "scheduler/cost/decide.h"

#define LONGEST (1 << 16) /* elements of a sum */
/* Time of an element that is stored, as a multiple of one of a dense product: by rows, where it
 * costs its own instructions, and of windows of 3 x 3, which dense have fewer products by
 * Winograd's way; by columns, of a slot, where the dense product is bound by reading the constant
 * (few rows), or by multiplying. */
#define ROWS_EACH 2.0
#define WINDOW_EACH 3.4
#define SLOT_FEW 0.036
#define SLOT_MANY 0.055
/* An element of a copy, likewise: alone, or many at once. */
#define COPIED_EACH 16.0
#define TURNED_EACH 4.0
#define FEW_ROWS 4
#define PICKED_LANES 8 /* shorter vectors have no instruction that picks from two */
#define MOST_VECTORS 8 /* of a tile */

double sparse_density(const Const *k) {
    int64_t n = 0;
    if (k->dtype != DT_F32 || !k->count) return 1;
    for (int64_t i = 0; i < k->count; i++) n += ((const float *)k->data)[i] != 0;
    return (double)n / (double)k->count;
}

/* ---- finding --------------------------------------------------------------------------------- */
typedef struct Found { /* a sum while the form is looked for */
    SumProduct p;
    int w; /* the factor that is constant */
    int n;
    int64_t extent[MAX_RANK], stride[MAX_RANK], x_stride[MAX_RANK], along[MAX_RANK], base, length;
    bool plain; /* x moves by constant strides along the sum's axes */
    Expr *x_base;
    double density;
} Found;

typedef struct Finder {
    Kernel *g;
    Found f[SPARSE_SUMS];
    int n;
} Finder;

static bool take(void *user, Expr *e) {
    Finder *k = user;
    Kernel *g = k->g;
    Cx *c = g->c;
    if (k->n == SPARSE_SUMS || e->dtype != DT_F32 || e->naxis > MAX_RANK) return false;
    Found *f = &k->f[k->n];
    *f = (Found){.n = e->naxis, .length = 1};
    if (!product_of(e, &f->p) || !product_plain(&f->p) ||
        !product_affine(c, &f->p, g->naxis, g->axis))
        return false;
    while (f->w < 2 && f->p.load[f->w]->t->kind != TK_CONST) f->w++;
    if (f->w == 2 || f->p.load[!f->w]->t->kind == TK_CONST) return false;
    for (int i = 0; i < g->n; i++)
        if (f->p.load[!f->w]->t == g->t[i]) return false;
    Expr *rest;
    if (!e_strides(c, f->p.flat[f->w], g->naxis, g->axis, f->along, &rest) ||
        !e_strides(c, rest, f->n, e->raxis, f->stride, &rest) || !e_is_int(rest, &f->base))
        return false;
    f->plain = e_strides(c, f->p.flat[!f->w], f->n, e->raxis, f->x_stride, &rest);
    f->x_base = rest;
    for (int i = 0; i < f->n; i++) {
        f->extent[i] = axis_size(e->raxis[i], 0);
        f->length *= f->extent[i];
        if (f->extent[i] < 1 || f->length > LONGEST) return false;
    }
    f->density = sparse_density(f->p.load[f->w]->t->data);
    k->n++;
    return true;
}

static bool find(Finder *k) {
    Map *seen = map_new(k->g->a);
    if (!k->g->naxis) return false;
    for (int i = 0; i < k->g->n; i++)
        if (!all_reductions(seen, k->g->value[i], take, k)) return false;
    return k->n > 0;
}

/* ---- elements -------------------------------------------------------------------------------- */
static float element(const Found *f, int64_t at) {
    const Const *k = f->p.load[f->w]->t->data;
    return at >= 0 && at < k->count ? ((const float *)k->data)[at] : 0;
}

/* The position of the sum's element number i in the constant, and of its place in x. */
static int64_t place(const Found *f, int64_t i, const int64_t *stride) {
    int64_t at = 0;
    for (int d = f->n - 1; d >= 0; d--) {
        at += i % f->extent[d] * stride[d];
        i /= f->extent[d];
    }
    return at;
}

static Tensor *constant(const Kernel *g, const char *what, DType t, int64_t n, const void *data) {
    Const *k = NEW(g->a, Const);
    *k = (Const){.dtype = t, .rank = 1, .dim = {n}, .count = n, .data = data};
    Tensor *x = tensor_new(g->c, TK_CONST, t, 1, (Expr *[]){e_int(g->c, n)});
    x->name = what;
    x->data = k;
    return x;
}

/* The axes of the domain but v along which the constant moves: the lists' number is a position in
 * them. Sets s->list, and where each list begins in the constant. */
static int64_t *lists_of(const Kernel *g, const Found *f, const Axis *v, SparseSum *s, int64_t *n) {
    s->list = e_int(g->c, 0);
    *n = 1;
    for (int i = 0; i < g->naxis; i++) {
        if (g->axis[i] == v || !f->along[i]) continue;
        s->list =
            e_add(g->c, e_muli(g->c, s->list, axis_size(g->axis[i], 1)), e_axis(g->c, g->axis[i]));
        *n *= axis_size(g->axis[i], 1);
    }
    int64_t *at = NEWN(g->a, int64_t, *n);
    for (int64_t l = 0; l < *n; l++) {
        int64_t left = l;
        at[l] = f->base;
        for (int i = g->naxis - 1; i >= 0; i--) {
            if (g->axis[i] == v || !f->along[i]) continue;
            at[l] += left % axis_size(g->axis[i], 1) * f->along[i];
            left /= axis_size(g->axis[i], 1);
        }
    }
    return at;
}

/* ---- by rows --------------------------------------------------------------------------------- */
static void list_rows(SparseKernel *k, const Found *f, SparseSum *s) {
    const Kernel *g = k->g;
    int64_t n, count = 0;
    const int64_t *from = lists_of(g, f, k->v, s, &n);
    const int64_t inner = f->length / f->extent[0], step = k->chunk * inner;
    for (int64_t l = 0; l < n; l++)
        for (int64_t i = 0; i < f->length; i++)
            count += element(f, from[l] + place(f, i, f->stride)) != 0;
    int32_t *start = NEWN(g->a, int32_t, n * k->blocks + 1), *at = NEWN(g->a, int32_t, count + 1);
    float *value = NEWN(g->a, float, count + 1);
    count = 0;
    for (int64_t l = 0; l < n * k->blocks; l++) {
        const int64_t first = l / n * step;
        start[l] = (int32_t)count;
        for (int64_t i = first; i < first + step && i < f->length; i++) {
            const float w = element(f, from[l % n] + place(f, i, f->stride));
            if (w == 0) continue;
            value[count] = w;
            at[count++] = (int32_t)(s->copy >= 0 ? (i - first) * k->vt : place(f, i, f->x_stride));
        }
    }
    s->lists = n;
    start[n * k->blocks] = (int32_t)count;
    const char *what = f->p.load[f->w]->t->name;
    s->start = constant(g, what, DT_I32, n * k->blocks + 1, start);
    s->value = constant(g, what, DT_F32, count + 1, value);
    s->at = constant(g, what, DT_I32, count + 1, at);
}

/* Whether sums with equal x can share a copy. */
static int copy_of(const SparseKernel *k, const Finder *y, int j) {
    for (int i = 0; i < j; i++) {
        Expr *to[MAX_RANK];
        if (k->s[i].copy < 0 || y->f[i].n != y->f[j].n) continue;
        bool same = true;
        for (int d = 0; d < y->f[i].n; d++) {
            same &= y->f[i].extent[d] == y->f[j].extent[d];
            to[d] = e_axis(k->g->c, y->f[i].p.reduce->raxis[d]);
        }
        if (same && e_subst(k->g->c, k->s[j].x, y->f[j].n, y->f[j].p.reduce->raxis, to, NULL,
                            NULL) == k->s[i].x)
            return k->s[i].copy;
    }
    return -1;
}

/* What lies together along the sum's last axis is turned in registers. */
static Expr *turned(Cx *c, const Found *f, Axis *v) {
    Expr *step = e_coef(c, f->p.flat[!f->w], v);
    int64_t n;
    return f->plain && f->x_stride[f->n - 1] == 1 && step && e_is_int(step, &n) && n > 0 ? step
                                                                                         : NULL;
}

/* The axis of the lists along which all members are stored together, where they are not along v. */
static Axis *columns_of(const SparseKernel *k, const Finder *y) {
    const Kernel *g = k->g;
    for (int i = 0; i < g->n; i++)
        if (e_by_one(g->c, g->position[i], k->v)) return NULL;
    for (int d = 0; d < g->naxis; d++) {
        bool all = g->axis[d] != k->v;
        for (int j = 0; j < y->n; j++) all &= y->f[j].along[d] != 0;
        for (int i = 0; i < g->n; i++) all = all && e_by_one(g->c, g->position[i], g->axis[d]);
        if (all) return g->axis[d];
    }
    return NULL;
}

/* Whether axis number d has no part in the choice of a list. */
static bool along_none(const Finder *y, int d) {
    for (int j = 0; j < y->n; j++)
        if (y->f[j].along[d]) return false;
    return true;
}

/* How many rows along axis u of `vectors` each are a tile: as few as fill the registers with the
 * least waste. */
static int rows_of_tile(int64_t n, int64_t vectors) {
    int best = 1;
    int64_t least = INT64_MAX;
    for (int nu = 1; nu * vectors <= MOST_VECTORS && nu <= n; nu++) {
        const int64_t all = round_up(n, nu);
        if (nu * vectors < SPARSE_CHAINS && nu < n) continue;
        if (all < least) least = all, best = nu;
    }
    return best;
}

/* The tile of axis number v, and of another one where v is short. Sums are copied as k->s says. */
static void choose_tile(SparseKernel *k, const Finder *y, int v) {
    const Kernel *g = k->g;
    const int64_t vectors = div_up(axis_size(g->axis[v], 0), g->lanes);
    bool copied = true;
    for (int j = 0; j < k->n; j++) copied &= k->s[j].copy >= 0 && !k->s[j].turned;
    k->nv = (int)div_up(vectors, div_up(vectors, SPARSE_CHAINS));
    k->nu = 1;
    for (int d = g->naxis - 1; d >= 0 && copied && !k->u && vectors * 2 <= SPARSE_CHAINS; d--) {
        bool used = d != v && axis_size(g->axis[d], 0) > 1 && along_none(y, d) && !k->columns;
        for (int j = 0; j < y->n; j++)
            used = used && e_uses_axis(y->f[j].p.flat[!y->f[j].w], g->axis[d]);
        if (!used) continue;
        k->u = g->axis[d];
        k->nu = rows_of_tile(axis_size(k->u, 0), vectors);
        k->nv = (int)vectors * k->nu;
    }
    k->vt = k->nv * g->lanes;
}

/* An axis of lists inside the loops over tiles: what is copied does not depend on it. */
static bool is_inner(const SparseKernel *k, const Finder *y, int d) {
    bool inner = k->g->axis[d] != k->v && !along_none(y, d);
    for (int j = 0; j < y->n; j++)
        inner =
            inner && (k->s[j].copy < 0 || !e_uses_axis(y->f[j].p.flat[!y->f[j].w], k->g->axis[d]));
    return inner;
}

/* Cuts the sums into blocks. Returns the bytes of the copies. */
static int64_t choose_blocks(SparseKernel *k, const Finder *y) {
    const Kernel *g = k->g;
    int64_t step = 0, copied = 0; /* elements at a step of the first axis */
    bool equal = true;
    k->place = e_int(g->c, 0);
    k->places = k->blocks = 1;
    for (int j = 0; j < k->n; j++) {
        bool first = k->s[j].copy >= 0;
        for (int i = 0; i < j; i++) first &= k->s[i].copy != k->s[j].copy;
        if (first) step += y->f[j].length / y->f[j].extent[0];
        equal &= k->s[j].copy >= 0 && y->f[j].extent[0] == y->f[0].extent[0];
    }
    for (int d = 0; d < g->naxis; d++) {
        const int64_t n = axis_size(g->axis[d], 1);
        if (!is_inner(k, y, d)) continue;
        k->place = e_add(g->c, e_muli(g->c, k->place, n), e_axis(g->c, g->axis[d]));
        k->places *= n;
    }
    k->chunk = y->f[0].extent[0];
    const int64_t bytes = step * k->chunk * k->vt * 4;
    if (equal && bytes > 2 * SPARSE_NEAR && k->places * k->n * k->vt * 4 <= SPARSE_KEPT) {
        const int64_t blocks = div_up(bytes, SPARSE_NEAR);
        k->chunk = div_up(k->chunk, blocks);
        k->blocks = div_up(y->f[0].extent[0], k->chunk);
    }
    for (int j = 0; j < k->n; j++) {
        bool first = k->s[j].copy >= 0;
        for (int i = 0; i < j; i++) first &= k->s[i].copy != k->s[j].copy;
        const Found *f = &y->f[j];
        const int64_t n = equal ? k->chunk : f->extent[0];
        if (first) copied += f->length / f->extent[0] * n * k->vt * 4;
    }
    return copied;
}

/* Lays axis number v over lanes. Returns the time as a share of the dense product's; 0: it cannot
 * be. */
static double by_rows(SparseKernel *k, const Finder *y, int v) {
    const Kernel *g = k->g;
    Cx *c = g->c;
    Axis *x = g->axis[v];
    int64_t n = axis_size(x, 0), grain = 0;
    double ratio = 0;
    if (n < g->lanes / 2) return 0;
    if (x == g->split && (!e_is_int(g->grain, &grain) || grain % g->lanes)) return 0;
    *k = (SparseKernel){.g = k->g, .rows = true, .n = y->n, .v = x};
    k->columns = columns_of(k, y);
    for (int j = 0; j < y->n; j++) {
        const Found *f = &y->f[j];
        SparseSum *s = &k->s[j];
        *s = (SparseSum){.reduce = f->p.reduce, .x = f->p.load[!f->w], .copy = -1};
        if (f->along[v] || !e_uses_axis(f->p.flat[!f->w], x)) return 0;
        for (int i = 0; i < g->naxis; i++)
            if (f->along[i] && axis_size(g->axis[i], 0) < 1) return 0;
        s->base = f->x_base;
        double lists = 1;
        for (int i = 0; i < g->naxis; i++)
            if (f->along[i] && !e_uses_axis(f->p.flat[!f->w], g->axis[i]))
                lists *= (double)axis_size(g->axis[i], 1);
        const bool together = e_is_ival(e_coef(c, f->p.flat[!f->w], x), 1);
        if (f->n > 1 || !f->plain || !together) {
            s->copy = copy_of(k, y, j);
            if (s->copy < 0) {
                s->copy = k->ncopy++;
                s->together = together;
                s->turned = together ? NULL : turned(c, f, x);
                ratio += (s->turned || together ? TURNED_EACH : COPIED_EACH) / lists;
            }
            s->base = e_int(c, 0);
        }
        const bool window = f->n == 3 && f->extent[1] == 3 && f->extent[2] == 3;
        ratio += f->density * (window ? WINDOW_EACH : ROWS_EACH);
    }
    for (int d = 0; d < g->naxis; d++)
        if (g->axis[d] == k->columns && !is_inner(k, y, d)) return 0;
    choose_tile(k, y, v);
    if (n < g->lanes) ratio *= (double)g->lanes / (double)n;
    return choose_blocks(k, y) > SPARSE_COPY ? 0 : ratio / y->n;
}

/* ---- by columns ------------------------------------------------------------------------------ */
typedef struct Tiles {
    const Kernel *g;
    const Found *f;
    int v;
    int64_t lists, per; /* tiles of a list's columns */
    const int64_t *from;
} Tiles;

/* What the chunks hold: counted, or filled in too. */
typedef struct ColumnChunks {
    int64_t n;
    float *value; /* NULL: they are counted */
    uint32_t *index;
    int32_t *block;
} ColumnChunks;

/* Where the columns of tile t begin in the constant; -1: beyond the last one. */
static void columns_at(const Tiles *y, int64_t t, int64_t *column) {
    const int lanes = y->g->lanes;
    for (int l = 0; l < lanes; l++) {
        const int64_t at = t % y->per * lanes + l;
        column[l] =
            at < axis_size(y->g->axis[y->v], 0) ? y->from[t / y->per] + at * y->f->along[y->v] : -1;
    }
}

/* The column's next element from i on; at the end the length of the sum. */
static int64_t next_element(const Found *f, int64_t column, int64_t i) {
    while (i < f->length && (column < 0 || element(f, column + i * f->stride[0]) == 0)) i++;
    return i;
}

/* The chunk's slots of lane l: the column's elements from *next on that lie in the block at `at`.
 */
static void fill_lane(const Tiles *y, int l, int64_t column, int64_t *next, int64_t at,
                      const ColumnChunks *k) {
    const int lanes = y->g->lanes;
    uint32_t place = 0, places = 0;
    for (int i = 0; i < SPARSE_SLOTS; i++) {
        const int64_t from = *next;
        const bool stored = from < at + 2 * lanes;
        /* A slot without an element takes the last one again, times zero. */
        if (stored) place = (uint32_t)(from - at);
        places |= place << i * 8;
        if (k->value)
            k->value[(k->n * SPARSE_SLOTS + i) * lanes + l] =
                stored ? element(y->f, column + from * y->f->stride[0]) : 0;
        if (stored) *next = next_element(y->f, column, from + 1);
    }
    if (k->value) k->index[k->n * lanes + l] = places;
}

/* The chunks of tile t. A block begins where the first column goes on: columns of few elements go
 * ahead while others catch up. */
static void chunks_of(const Tiles *y, int64_t t, ColumnChunks *k) {
    const int64_t lanes = y->g->lanes, length = y->f->length;
    int64_t column[64], next[64];
    columns_at(y, t, column);
    for (int l = 0; l < lanes; l++) next[l] = next_element(y->f, column[l], 0);
    for (;; k->n++) {
        int64_t at = length;
        for (int l = 0; l < lanes; l++)
            if (next[l] < at) at = next[l];
        if (at == length) return;
        if (at > length - 2 * lanes) at = length - 2 * lanes;
        for (int l = 0; l < lanes; l++) fill_lane(y, l, column[l], &next[l], at, k);
        if (k->value) k->block[k->n] = (int32_t)at;
    }
}

static int64_t count_chunks(const Tiles *y) {
    ColumnChunks k = {0};
    for (int64_t t = 0; t < y->lists * y->per; t++) chunks_of(y, t, &k);
    return k.n;
}

static void list_columns(SparseKernel *k, const Tiles *y, SparseSum *s) {
    const Kernel *g = k->g;
    const int64_t tiles = y->lists * y->per, n = count_chunks(y), lanes = g->lanes;
    int32_t *start = NEWN(g->a, int32_t, tiles + 1);
    ColumnChunks c = {.value = NEWN(g->a, float, n *SPARSE_SLOTS *lanes + 1),
                      .index = NEWN(g->a, uint32_t, n * lanes + 1),
                      .block = NEWN(g->a, int32_t, n + 1)};
    for (int64_t t = 0; t < tiles; t++) {
        start[t] = (int32_t)c.n;
        chunks_of(y, t, &c);
    }
    start[tiles] = (int32_t)c.n;
    const char *what = y->f->p.load[y->f->w]->t->name;
    s->start = constant(g, what, DT_I32, tiles + 1, start);
    s->block = constant(g, what, DT_I32, n + 1, c.block);
    s->value = constant(g, what, DT_F32, n * SPARSE_SLOTS * lanes + 1, c.value);
    s->at = constant(g, what, DT_I32, n * lanes + 1, c.index);
}

static Tiles tiles_of(const SparseKernel *k, const Found *f, int v, SparseSum *s) {
    Tiles y = {.g = k->g, .f = f, .v = v, .per = div_up(axis_size(k->v, 0), k->g->lanes)};
    y.from = lists_of(k->g, f, k->v, s, &y.lists);
    return y;
}

/* A few rows share what is read of the constant: the innermost axis of rows, along which x moves by
 * constant steps. */
static void choose_rows(SparseKernel *k, const Finder *y) {
    const Kernel *g = k->g;
    for (int d = g->naxis - 1; d >= 0 && !k->u; d--) {
        const int64_t n = axis_size(g->axis[d], FEW_ROWS);
        bool used = g->axis[d] != k->v && along_none(y, d) && n > 1;
        for (int j = 0; j < y->n; j++) {
            Expr *step = e_coef(g->c, y->f[j].p.flat[!y->f[j].w], g->axis[d]);
            used = used && step && !(step->flags & EF_AXIS);
        }
        if (!used) continue;
        k->u = g->axis[d];
        k->nu = n < FEW_ROWS ? (int)n : FEW_ROWS;
        k->vt = k->nu * g->lanes;
        for (int j = 0; j < y->n; j++)
            k->s[j].step = e_coef(g->c, y->f[j].p.flat[!y->f[j].w], k->u);
    }
}

static double by_columns(SparseKernel *k, const Finder *y, int v) {
    const Kernel *g = k->g;
    Axis *x = g->axis[v];
    int64_t n = axis_size(x, 0), grain = 0, rows = 1;
    double ratio = 0;
    if (n < g->lanes || g->lanes < PICKED_LANES ||
        (x == g->split && (!e_is_int(g->grain, &grain) || grain % g->lanes)))
        return 0;
    *k =
        (SparseKernel){.g = k->g, .n = y->n, .v = x, .nv = 1, .nu = 1, .vt = g->lanes, .blocks = 1};
    for (int i = 0; i < g->naxis; i++)
        if (i != v && !y->f[0].along[i]) rows *= axis_size(g->axis[i], FEW_ROWS);
    for (int j = 0; j < y->n; j++) {
        const Found *f = &y->f[j];
        SparseSum *s = &k->s[j];
        *s = (SparseSum){.reduce = f->p.reduce, .x = f->p.load[!f->w], .copy = -1};
        if (!f->along[v] || e_uses_axis(f->p.flat[!f->w], x) || f->n != 1 || !f->plain ||
            f->x_stride[0] != 1 || f->length < 2 * g->lanes)
            return 0;
        for (int i = 0; i < g->naxis; i++)
            if (f->along[i] && axis_size(g->axis[i], 0) < 1) return 0;
        s->base = f->x_base;
        const Tiles t = tiles_of(k, f, v, s);
        const double slots = (double)count_chunks(&t) * SPARSE_SLOTS /
                             ((double)(t.lists * t.per) * (double)f->length / (2 * g->lanes));
        ratio += slots * (rows >= FEW_ROWS ? SLOT_MANY : SLOT_FEW) * 16 / g->lanes;
    }
    choose_rows(k, y);
    return ratio / y->n;
}

/* ---- the kernel ------------------------------------------------------------------------------ */
/* Around the tiles of u and v: axes that no list is chosen by, or by which x moves too; by columns
 * all others are inside. */
static void order_axes(SparseKernel *k, const Finder *y) {
    Kernel *g = k->g;
    Axis *outer[MAX_RANK], *inner[MAX_RANK];
    int n = 0, m = 0;
    for (int i = 0; i < g->naxis; i++) {
        if (g->axis[i] == k->v || (k->u && g->axis[i] == k->u)) continue;
        if (k->rows ? !is_inner(k, y, i) : !along_none(y, i))
            outer[n++] = g->axis[i];
        else
            inner[m++] = g->axis[i];
    }
    k->nouter = n;
    memcpy(g->axis, outer, sizeof *outer * (size_t)n);
    if (k->u && k->rows) g->axis[n++] = k->u;
    g->axis[n++] = k->v;
    if (k->u && !k->rows) g->axis[n++] = k->u;
    memcpy(g->axis + n, inner, sizeof *inner * (size_t)m);
}

bool kernel_sparse(Kernel *g) {
    Finder y = {.g = g};
    SparseKernel try = {.g = g}, best = {.g = g};
    double least = 0;
    int at = -1;
    if (!find(&y)) return false;
    for (int j = 0; j < y.n; j++)
        if (y.f[j].density > 0.5) return false;
    for (int v = g->naxis - 1; v >= 0; v--) {
        for (int rows = 0; rows < 2; rows++) {
            const double ratio = rows ? by_rows(&try, &y, v) : by_columns(&try, &y, v);
            if (ratio > 0 && (at < 0 || ratio < least)) least = ratio, best = try, at = v;
        }
    }
    const double ns = cost_group_ns(g->p, g->s, g->p->schedule->units);
    if (at < 0 || !decide(g->p, X_SPARSE, g->s, ns, ns * least)) return false;
    SparseKernel *k = arena_memdup(g->a, &best, sizeof best);
    for (int j = 0; j < y.n; j++) {
        if (k->rows) {
            list_rows(k, &y.f[j], &k->s[j]);
            continue;
        }
        const Tiles t = tiles_of(k, &y.f[j], at, &k->s[j]);
        list_columns(k, &t, &k->s[j]);
    }
    order_axes(k, &y);
    g->kind = KERNEL_SPARSE;
    g->sparse = k;
    return true;
}
