/* contract_pack.c: the tile of a contraction, and its constant operands in the order in which they
 * are read.
 *
 * The layout of a panel: [symbol][outer axes that the operands use][tile][reduction axes, outermost
 * first][product][vector of the tile][lane]. So a tile's micro-kernel reads one stream, and the
 * next tile's follows. */
#include "codegen/emit/cpu/contract.h"
#include "scheduler/cost/cost.h"
#include "scheduler/cost/decide.h"
#include <stdlib.h>

/* Rows that an unknown number of them may well be. */
#define ROWS_MANY 48
#define ROWS_FEW 6
/* Floats of a panel that stay in the innermost cache between two blocks of rows. */
#define L1_FLOATS (6 << 10)
/* Weights that are fewer lie near without being fetched. */
#define FETCHED_FLOATS (16 << 10)
#define AHEAD 1024 /* floats between what is read and what is fetched from the outer caches */

/* The only symbol in e, or NULL; *n counts all. */
static Expr *only_symbol(Expr *e, int *n) {
    if (!(e->flags & EF_SYM)) return NULL;
    if (e->op == E_SYM) {
        (*n)++;
        return e;
    }
    Expr *r = NULL;
    for (int i = 0; i < e->n; i++) {
        Expr *x = only_symbol(e->a[i], n);
        if (x && r && x == r) (*n)--;
        if (x) r = x;
    }
    return r;
}

bool packable(Cx *c, const Group *g, Product *p, const Expr *load, Expr *flat) {
    int64_t v;
    Expr *rest = flat, *k;
    if (load->t->kind != TK_CONST || g->k->s->level == LEVEL_HOST)
        return false; /* a library reads it as it is */
    for (int i = 0; i < g->k->naxis; i++) {
        if (!e_affine(c, rest, g->k->axis[i], &k, &rest) || !e_is_int(k, &v)) return false;
        if (v && !e_is_int(g->k->axis[i]->extent, &v)) return false;
    }
    for (int i = 0; i < p->reduce->naxis; i++) {
        if (!e_affine(c, rest, p->reduce->raxis[i], &k, &rest) || !e_is_int(k, &v)) return false;
        if (!e_is_int(p->reduce->raxis[i]->extent, &v)) return false;
    }
    p->sym = NULL;
    if (e_is_int(rest, &v)) return true;
    int n = 0;
    Expr *s = only_symbol(rest, &n);
    if (!s || n != 1 || s->sym->lo < 0 || s->sym->hi > 1024) return false;
    p->sym = s;
    p->sym_axis = axis_new(c, e_int(c, s->sym->hi + 1));
    return e_affine(c, e_replace(c, rest, s, e_axis(c, p->sym_axis)), p->sym_axis, &k, &rest) &&
           e_is_int(k, &v) && e_is_int(rest, &v);
}

/* ---- the tile -------------------------------------------------------------------------------- */
/* The most tiles that one of n units has, when units own ranges of whole grains. */
static int64_t tiles_of(int64_t lanes, int64_t grain, int64_t tile, int n) {
    int64_t parts = (lanes + grain - 1) / grain, most = 0;
    for (int u = 0; u < n; u++) {
        int64_t from = parts * u / n * grain, to = parts * (u + 1) / n * grain;
        if (to > lanes) to = lanes;
        int64_t count = to > from ? (to + tile - 1) / tile - from / tile : 0;
        if (count > most) most = count;
    }
    return most;
}

static int64_t set_length(const Contraction *k, int set) {
    int64_t n = 1;
    for (int i = 0; i < k->nraxis[set]; i++) n *= axis_size(k->raxis[set][i], 64);
    return n;
}

typedef struct TileModel {
    const Contraction *k;
    int widest, factors;   /* products of the largest set, and their different factors of a row */
    int units;             /* that share the domain */
    int64_t length, grain; /* steps of that set's loop; of the split axis */
} TileModel;

/* Cycles of one step of the inner loop: two vector operations, and two loads a cycle (one of
 * operands that come from the second cache), sums in flight to hide their latency. */
static double step_cycles(const TileModel *t, int nv, int mr, bool near) {
    int sums = nv * mr * t->widest, vectors = nv * t->widest;
    double loads = vectors * (near ? 0.5 : 1) + mr * t->factors * 0.5,
           busy = sums * 0.5 > loads ? sums * 0.5 : loads;
    return (busy > 4 ? busy : 4) + 0.25 +
           (near ? 0 : 0.25 * vectors); /* the loop itself, and waiting */
}

/* Time for an element of rows × lanes, alone and in the team; lanes beyond the domain, or of
 * another unit, are lost, and so are rows that do not fill a block. */
static double tile_time(const TileModel *t, int nv, int mr, int64_t rows, int64_t lanes) {
    const Group *g = t->k->g;
    int vec = g->em->vec;
    bool near = mr < rows && (int64_t)nv * t->widest * vec * t->length <= L1_FLOATS,
         by_v = g->k->split == t->k->v;
    bool by_m = t->k->m && g->k->split == t->k->m, known = axis_size(t->k->v, -1) >= 0;
    double time = 0;
    for (int u = 1; u <= t->units; u += t->units - 1) {
        int64_t tiles = known ? tiles_of(lanes, by_v ? t->grain : lanes, nv * vec, by_v ? u : 1)
                              : (lanes + nv * vec - 1) / (nv * vec);
        int64_t mine = by_m && rows > 1 ? tiles_of(rows, t->grain, 1, u) : rows;
        double cycles = 0;
        for (int64_t left = mine; left > 0;) {
            int64_t job = left < ROW_BLOCK ? left : ROW_BLOCK, n = (job + mr - 1) / mr;
            int low = (int)(job / n), high = (int)(job % n);
            cycles += (double)(n - high) * step_cycles(t, nv, low, near) +
                      (high ? high * step_cycles(t, nv, low + 1, near) : 0);
            left -= job;
        }
        time += cycles * (double)(tiles * u) / (double)(lanes * rows);
        if (t->units == 1) break;
    }
    return time;
}

static void add_height(Contraction *k, int64_t h) {
    int i = 0;
    while (i < k->nheight && k->height[i] > h) i++;
    if (h < 1 || (i < k->nheight && k->height[i] == h)) return;
    ASSERT(k->nheight < MAX_HEIGHTS);
    memmove(k->height + i + 1, k->height + i, sizeof *k->height * (size_t)(k->nheight - i));
    k->height[i] = (int)h;
    k->nheight++;
}

/* Those that n rows need, in blocks as contract.c makes them. */
static void add_heights(Contraction *k, int64_t n) {
    for (; n > 0; n -= ROW_BLOCK) {
        int64_t job = n < ROW_BLOCK ? n : ROW_BLOCK, blocks = (job + k->mr - 1) / k->mr;
        add_height(k, job / blocks);
        add_height(k, (job + blocks - 1) / blocks);
    }
}

/* Of known rows exactly what is needed; one row, where there may be other counts than expected. */
static void choose_heights(Contraction *k, const TileModel *t, int64_t rows) {
    bool by_m = k->m && k->g->k->split == k->m;
    if (rows <= 0) {
        for (int h = k->mr; h > 1; h = h > 6 ? h / 2 : h - 1) add_height(k, h);
        add_height(k, k->mr - 1);
    }
    for (int u = 1; rows > 0 && u <= (by_m ? t->units : 1); u++) {
        int64_t parts = (rows + t->grain - 1) / t->grain;
        for (int i = 0; i < u; i++) {
            int64_t from = by_m ? parts * i / u * t->grain : 0,
                    to = by_m ? parts * (i + 1) / u * t->grain : rows;
            add_heights(k, (to < rows ? to : rows) - from);
        }
    }
    if (rows <= 0 || by_m) add_height(k, 1);
    k->mr = k->height[0];
}

/* Rows × vectors of a micro-kernel: the least time for an element. Of an unknown number of rows,
 * one, a few and many count. */
void choose_tile(Contraction *k) {
    Group *g = k->g;
    /* Sums in registers; with them the vectors that all rows use, and a row's factor. */
    int budget = g->em->vec >= 16 ? 28 : 12, registers = g->em->vec >= 16 ? 32 : 16;
    int vec = g->em->vec, wide = 0;
    TileModel t = {.k = k,
                   .units = g->em->p->schedule && g->k->split ? g->em->p->schedule->units : 1,
                   .grain = 1};
    for (int s = 0; s < k->nset; s++) {
        int q = 0;
        for (int j = 0; j < k->n; j++) q += k->p[j].set == s && !k->dot[s];
        if (q > t.widest) t.widest = q, wide = s;
    }
    for (int j = 0; j < k->n; j++) {
        bool known = k->p[j].set != wide;
        for (int i = 0; i < j && !known; i++)
            known = k->p[i].set == wide && k->p[i].sca == k->p[j].sca;
        t.factors += !known;
    }
    t.length = set_length(k, wide);
    if (g->k->grain) e_is_int(g->k->grain, &t.grain);
    int64_t rows = k->m && t.widest ? axis_size(k->m, 0) : 1, lanes = axis_size(k->v, 4 * vec);
    if (!t.widest) t.widest = 1; /* dot products only: rows share nothing in registers */
    static const int row_sizes[] = {1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14};
    double best = 0;
    Way way[WAYS_MAX + 1];
    int n = 0;
    for (int nv = 1; nv <= 8; nv++) {
        for (int i = 0; i < (int)COUNT(row_sizes); i++) {
            int mr = row_sizes[i];
            int sums = nv * mr * t.widest;
            if ((rows && mr > rows) || (sums > budget && nv * mr > 1)) break;
            if (mr > 1 && sums + nv * t.widest + 1 > registers) break;
            double time = rows ? tile_time(&t, nv, mr, rows, lanes)
                               : 0.5 * tile_time(&t, nv, mr, 1, lanes) +
                                     0.5 * tile_time(&t, nv, mr, ROWS_FEW, lanes) +
                                     tile_time(&t, nv, mr, ROWS_MANY, lanes);
            /* The best first, which of about equal ones is the smallest; then the others in order.
             */
            bool first = best == 0 || time < best * 0.999;
            int at = first ? 0 : 1;
            while (at > 0 && at < n && way[at].ns <= time) at++;
            if (first) best = time;
            memmove(way + at + 1, way + at, sizeof *way * (size_t)(n - at));
            way[at] = (Way){16 * mr + nv, time};
            if (n < WAYS_MAX) n++;
        }
    }
    const Schedule *plan = g->em->p->schedule;
    double all = plan ? cost_group_ns(g->em->c, plan->device, g->k->s, t.units) : 0;
    for (int i = 0; i < n; i++) way[i].ns *= all / best;
    int tile = decide_value(g->em->p, X_TILE, g->k->s, n, way);
    k->nv = tile % 16;
    k->mr = tile / 16;
    k->vt = k->nv * vec;
    choose_heights(k, &t, rows);
}

/* ---- packing --------------------------------------------------------------------------------- */
/* How an operand moves: along the symbol, outer axes, lanes, reduction axes. */
typedef struct Walk {
    int64_t stride[MAX_RANK * 3], extent[MAX_RANK * 3], base, lane;
    int n, nouter; /* those before the tiles: symbol and outer axes */
} Walk;

static Walk walk_of(const Contraction *k, const Product *p) {
    Group *g = k->g;
    Cx *c = g->em->c;
    Walk w = {0};
    Expr *rest = p->vec_flat, *coef;
    if (p->sym) {
        rest = e_replace(c, rest, p->sym, e_axis(c, p->sym_axis));
        e_affine(c, rest, p->sym_axis, &coef, &rest);
        e_is_int(coef, &w.stride[w.n]);
        e_is_int(p->sym_axis->extent, &w.extent[w.n++]);
    }
    for (int i = 0; i < g->k->naxis; i++) {
        int64_t s = 0;
        e_affine(c, rest, g->k->axis[i], &coef, &rest);
        e_is_int(coef, &s);
        if (g->k->axis[i] == k->v)
            w.lane = s;
        else if (s) {
            w.stride[w.n] = s;
            e_is_int(g->k->axis[i]->extent, &w.extent[w.n++]);
        }
    }
    w.nouter = w.n;
    w.stride[w.n] = w.lane * k->vt;
    w.extent[w.n++] = (axis_size(k->v, 0) + k->vt - 1) / k->vt;
    for (int i = 0; i < k->nraxis[p->set]; i++) {
        e_affine(c, rest, k->raxis[p->set][i], &coef, &rest);
        e_is_int(coef, &w.stride[w.n]);
        e_is_int(k->raxis[p->set][i]->extent, &w.extent[w.n++]);
    }
    e_is_int(rest, &w.base);
    return w;
}

/* a and b read their operands at equal symbols and outer axes. */
static bool same_panel(const Contraction *k, const Product *a, const Product *b) {
    Cx *c = k->g->em->c;
    if (a->set != b->set || a->sym != b->sym) return false;
    for (int i = 0; i < k->g->k->naxis; i++) {
        Axis *x = k->g->k->axis[i];
        if (x != k->v &&
            e_is_ival(coef_of(c, a->vec_flat, x), 0) != e_is_ival(coef_of(c, b->vec_flat, x), 0))
            return false;
    }
    return true;
}

/* Bytes of the constant factors in e's products. */
static int64_t factor_bytes(Map *seen, const Expr *e) {
    if (!(e->flags & EF_REDUCE) || map_geti(seen, (uint64_t)e->id + 1)) return 0;
    map_seti(seen, (uint64_t)e->id + 1, (void *)(uintptr_t)e);
    int64_t bytes = 0;
    for (int i = 0; i < e->n; i++) bytes += factor_bytes(seen, e->a[i]);
    const Expr *b = e->a[0];
    for (int i = 0; e->op == E_REDUCE && b->op == E_MUL && i < 2; i++) {
        const Expr *x = b->a[i]->op == E_CAST ? b->a[i]->a[0] : b->a[i];
        if (x->op != E_LOAD || x->t->kind != TK_CONST || map_geti(seen, (uint64_t)(uintptr_t)x->t))
            continue;
        map_seti(seen, (uint64_t)(uintptr_t)x->t, x->t);
        bytes += x->t->data->count * (int64_t)dtype_size(x->t->dtype);
    }
    return bytes;
}

static int64_t seq_bytes(Map *seen, const Seq *q) {
    int64_t bytes = 0;
    for (int i = 0; i < q->s.n; i++) {
        const Stmt *s = q->s.p[i];
        for (int j = 0; s->kind == S_OP && j < s->op.n; j++)
            bytes += factor_bytes(seen, s->op.t[j]->body);
        for (int j = 0; s->kind == S_BRANCH && j < 2; j++) bytes += seq_bytes(seen, s->br.arm[j]);
        if (s->kind == S_LOOP) bytes += seq_bytes(seen, s->loop.body);
    }
    return bytes;
}

/* Bytes of weights that a run of the program, or a call of the function, reads around the group: so
 * many that they do not stay near come from the outer caches, at least whenever the loop that reads
 * some of them again begins. */
static int64_t between(const Contraction *k, int64_t own) {
    Emit *em = k->g->em;
    const Seq *q = k->g->k->t[0]->seq;
    while (q->parent) q = q->parent;
    int64_t *bytes = map_geti(em->streams, (uint64_t)(uintptr_t)q);
    if (!bytes) {
        bytes = NEW(em->a, int64_t);
        *bytes = seq_bytes(map_new(em->a), q);
        map_seti(em->streams, (uint64_t)(uintptr_t)q, bytes);
    }
    return *bytes > own ? *bytes : own;
}

static void pack(Contraction *k, int panel) {
    Emit *em = k->g->em;
    Panel *q = &k->panel[panel];
    Walk w[MAX_PRODUCTS];
    const Const *src[MAX_PRODUCTS];
    Sb key = {.a = em->a};
    sb_printf(&key, "pack %d %d", em->vec, k->nv);
    int n = 0;
    for (int j = 0; j < k->n; j++) {
        const Product *p = &k->p[j];
        if (!p->packed || p->panel != panel) continue;
        w[n] = walk_of(k, p);
        src[n] = p->vec->t->data;
        sb_printf(&key, " %p %lld %lld", (const void *)src[n]->data, (long long)w[n].base,
                  (long long)w[n].lane);
        for (int i = 0; i < w[n].n; i++)
            sb_printf(&key, " %lld*%lld", (long long)w[n].stride[i], (long long)w[n].extent[i]);
        n++;
    }
    int64_t total = 1, v_size = axis_size(k->v, 0);
    for (int i = 0; i < w[0].n; i++) total *= w[0].extent[i];
    q->tile = (int64_t)q->n * k->vt;
    for (int i = w[0].nouter + 1; i < w[0].n; i++) q->tile *= w[0].extent[i];
    q->stride = q->tile * w[0].extent[w[0].nouter];
    const Schedule *plan = em->p->schedule;
    if (plan) {
        int units = k->g->k->split == k->v ? plan->units : 1;
        if (between(k, q->stride * 4) / units > plan->device->level[LEVEL_CORE].bytes * 3 / 4)
            q->ahead = AHEAD;
    }
    q->weights = map_get(em->functions, key.p);
    if (!q->weights) {
        float *data = em->held = malloc((size_t)total * (size_t)(q->n * k->vt) * 4 + 64),
              *to = data;
        if (!data) err(em->c->d, ST_MEMORY, NULL, "out of memory for packing weights");
        int64_t idx[MAX_RANK * 3] = {0};
        for (int64_t i = 0; i < total; i++) {
            for (int j = 0; j < n; j++) {
                int64_t at = w[j].base;
                for (int d = 0; d < w[j].n; d++) at += idx[d] * w[j].stride[d];
                for (int l = 0; l < k->vt; l++) {
                    bool in = idx[w[j].nouter] * k->vt + l < v_size;
                    int64_t e = at + l * w[j].lane;
                    *to++ = in && e >= 0 && e < src[j]->count
                                ? (float)elem_get_f(src[j]->dtype, src[j]->data, e)
                                : 0;
                }
            }
            for (int d = w[0].n - 1; d >= 0 && ++idx[d] == w[0].extent[d]; d--) idx[d] = 0;
        }
        const Tensor *t = k->p[q->lead].vec->t;
        q->weights = emit_data(em, DT_F32, data, to - data, t->name ? t->name : "packed");
        free(data);
        em->held = NULL;
        map_set(em->functions, key.p, (void *)(uintptr_t)q->weights);
    }
    sb_free(&key);
}

/* How far ahead the weights are fetched where each is read once. */
static void choose_ahead(Contraction *k) {
    static const int some[] = {0, 256, AHEAD, 4096};
    Group *g = k->g;
    int64_t floats = 0;
    Way way[COUNT(some) + 1];
    int n = 1, ahead = 0;
    for (int i = 0; i < k->npanel; i++) {
        floats += k->panel[i].stride;
        if (k->panel[i].ahead > ahead) ahead = k->panel[i].ahead;
    }
    if (floats < FETCHED_FLOATS) return;
    const Schedule *plan = g->em->p->schedule;
    double ns = plan ? cost_group_ns(g->em->c, plan->device, g->k->s, g->k->split ? plan->units : 1) : 0;
    way[0] = (Way){ahead, ns};
    for (size_t i = 0; i < COUNT(some); i++)
        if (some[i] != ahead) way[n++] = (Way){some[i], ns};
    int chosen = decide_value(g->em->p, X_PREFETCH, g->k->s, n, way);
    for (int i = 0; i < k->npanel && chosen != ahead; i++) k->panel[i].ahead = chosen;
}

void pack_panels(Contraction *k) {
    for (int j = 0; j < k->n; j++) {
        Product *p = &k->p[j];
        if (!p->packed) continue;
        int i = 0;
        while (i < k->npanel && !same_panel(k, &k->p[k->panel[i].lead], p)) i++;
        if (i == k->npanel) k->panel[k->npanel++] = (Panel){.set = p->set, .lead = j};
        p->panel = i;
        p->place = k->panel[i].n++;
    }
    for (int i = 0; i < k->npanel; i++) pack(k, i);
    choose_ahead(k);
}
