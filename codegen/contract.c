/* contract.c: sums of products as register-blocked micro-kernels with a fused epilogue.
 *
 * A group's members may contain several sums  Σ_r A[…] · B[…].  One axis of the domain, v, is laid over
 * vector lanes: along it one operand (the vector operand) is contiguous or constant, and the other does
 * not move. Another axis, m, gives rows that reuse the vectors. A micro-kernel computes rows × vectors
 * sums in registers for all products that share their reduction axes, and leaves them in a scratch
 * tile; the epilogue is the members' own expressions over that tile. Constant vector operands are packed
 * at compile time in the order in which the loops read them. */
#include "codegen/emit.h"
#include <stdlib.h>

#define MAX_PRODUCTS 16
#define MAX_SETS 4
#define ROW_BLOCK 64 /* rows of a job */

typedef struct Product {
    Expr *reduce;
    Expr *vec, *sca;          /* loads */
    Expr *vec_flat, *sca_flat;
    bool packed, both;        /* both: sca moves along v too */
    Expr *sym;                /* packed: a uniform symbol that its position depends on, or NULL */
    Axis *sym_axis;           /* stands for it */
    const char *weights;
    int set, slot;            /* slot: index of its scratch tile */
} Product;

typedef struct Contraction {
    Group *g;
    int n, nset;
    Product p[MAX_PRODUCTS];
    Axis **raxis[MAX_SETS];   /* per set, outermost first */
    int nraxis[MAX_SETS];
    Axis *v, *m;
    int nv, mr, vt;           /* vt: lanes of a tile */
} Contraction;

/* ---- finding ------------------------------------------------------------------------------------------- */
static bool is_product(const Expr *e) {
    if (e->op != E_REDUCE || e->kind != R_SUM || e->dtype != DT_F32) return false;
    const Expr *b = e->a[0];
    return b->op == E_MUL && b->a[0]->op == E_LOAD && b->a[1]->op == E_LOAD;
}

static bool affine_in_all(Cx *c, Expr *flat, const Group *g, const Expr *reduce) {
    Expr *coef, *rest = flat;
    if (flat->flags & (EF_LOAD | EF_GUARD | EF_REDUCE)) {
        /* Positions read from memory must not depend on the loops inside. */
        return false;
    }
    for (int i = 0; i < g->naxis; i++)
        if (!e_affine(c, rest, g->axis[i], &coef, &rest) || (coef->flags & EF_AXIS)) return false;
    for (int i = 0; i < reduce->naxis; i++)
        if (!e_affine(c, rest, reduce->raxis[i], &coef, &rest) || (coef->flags & EF_AXIS)) return false;
    return !(rest->flags & EF_AXIS);
}

static void find(Contraction *k, Map *seen, Expr *e) {
    if (!(e->flags & EF_REDUCE) || map_geti(seen, (uint64_t)e->id + 1)) return;
    map_seti(seen, (uint64_t)e->id + 1, e);
    if (e->op == E_REDUCE) {
        Cx *c = k->g->em->c;
        if (!is_product(e) || k->n == MAX_PRODUCTS) return;
        Expr *fa = flat_of(c, e->a[0]->a[0]), *fb = flat_of(c, e->a[0]->a[1]);
        if (!affine_in_all(c, fa, k->g, e) || !affine_in_all(c, fb, k->g, e)) return;
        for (int i = 0; i < k->g->n; i++)
            if (e->a[0]->a[0]->t == k->g->t[i] || e->a[0]->a[1]->t == k->g->t[i]) return;
        k->p[k->n++] = (Product){.reduce = e, .vec = e->a[0]->a[0], .sca = e->a[0]->a[1], .vec_flat = fa, .sca_flat = fb};
        return;
    }
    int last = e->op == E_SELECT || e->op == E_GUARD ? 1 : e->op == E_LOAD ? 0 : e->n;
    for (int i = 0; i < last; i++) find(k, seen, e->a[i]);
}

static Expr *coef_of(Cx *c, Expr *flat, Axis *x) {
    Expr *coef, *rest;
    return e_affine(c, flat, x, &coef, &rest) ? coef : NULL;
}

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

/* All extents that the operand moves along, and its strides, are constants. It may also depend on one
 * bounded symbol: the layer, say, of a loop over layers. */
static bool packable(Cx *c, const Group *g, Product *p, const Expr *load, Expr *flat) {
    int64_t v;
    Expr *rest = flat, *k;
    if (load->t->kind != TK_CONST) return false;
    for (int i = 0; i < g->naxis; i++) {
        if (!e_affine(c, rest, g->axis[i], &k, &rest) || !e_is_int(k, &v)) return false;
        if (v && !e_is_int(g->axis[i]->extent, &v)) return false;
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
    return e_affine(c, e_replace(c, rest, s, e_axis(c, p->sym_axis)), p->sym_axis, &k, &rest) && e_is_int(k, &v) &&
           e_is_int(rest, &v);
}

/* Sets up p for vector axis v; false: it cannot. */
static bool orient(Contraction *k, Product *p, Axis *v) {
    p->sym = NULL;
    Cx *c = k->g->em->c;
    for (int side = 0; side < 2; side++) {
        Expr *x = p->reduce->a[0]->a[side], *y = p->reduce->a[0]->a[!side];
        Expr *fx = flat_of(c, x), *fy = flat_of(c, y);
        Expr *cx = coef_of(c, fx, v), *cy = coef_of(c, fy, v);
        Product other = *p;
        bool pack = !e_is_ival(cx, 0) && packable(c, k->g, p, x, fx);
        if (!pack && !e_is_ival(cx, 1)) continue;
        if (!e_is_ival(cy, 0) && !e_is_ival(cy, 1)) continue;
        if (!e_is_ival(cy, 0) && side == 0 && packable(c, k->g, &other, y, fy)) continue; /* prefer that one packed */
        p->vec = x;
        p->sca = y;
        p->vec_flat = fx;
        p->sca_flat = fy;
        p->packed = pack;
        p->both = !e_is_ival(cy, 0);
        return true;
    }
    return false;
}

static int64_t axis_size(const Axis *x, int64_t unknown) {
    int64_t v;
    return e_is_int(x->extent, &v) ? v : unknown;
}

static bool choose_axes(Contraction *k) {
    Group *g = k->g;
    Cx *c = g->em->c;
    int best = -1;
    int64_t best_score = 0;
    for (int i = 0; i < g->naxis; i++) {
        int64_t score = 0, n = axis_size(g->axis[i], -1);
        if (n >= 0 && n < 4) continue;
        if (g->axis[i] == g->split && e_is_ival(g->grain, 1)) continue; /* tiles start at whole vectors */
        for (int j = 0; j < k->n; j++) {
            Product p = k->p[j];
            if (!orient(k, &p, g->axis[i])) continue;
            score += 1000 + (p.packed ? 150 : 0) - (p.both ? 300 : 0);
        }
        if (score < 1000) continue;
        if (i == g->naxis - 1) score += n < 0 ? 20 : n >= g->em->vec ? 400 : 50; /* contiguous stores */
        if (n >= g->em->vec) score += 200;
        if (score > best_score) best = i, best_score = score;
    }
    if (best < 0) return false;
    k->v = g->axis[best];
    int n = 0;
    for (int j = 0; j < k->n; j++)
        if (orient(k, &k->p[j], k->v)) k->p[n++] = k->p[j];
    k->n = n;
    /* Rows: an axis along which vectors are reused. */
    int64_t most = 1;
    for (int i = 0; i < g->naxis; i++) {
        Axis *x = g->axis[i];
        if (x == k->v) continue;
        bool ok = true, moves = false;
        for (int j = 0; j < k->n; j++) {
            ok = ok && !k->p[j].both && e_is_ival(coef_of(c, k->p[j].vec_flat, x), 0);
            moves |= !e_is_ival(coef_of(c, k->p[j].sca_flat, x), 0);
        }
        int64_t size = axis_size(x, 1 << 20);
        if (ok && moves && size >= most) k->m = x, most = size; /* of unknown ones the inner */
    }
    /* Sets: products over the same reduction axes run in one loop. */
    for (int j = 0; j < k->n; j++) {
        Product *p = &k->p[j];
        p->slot = j;
        for (p->set = 0; p->set < k->nset; p->set++) {
            bool same = k->nraxis[p->set] == p->reduce->naxis;
            for (int i = 0; same && i < p->reduce->naxis; i++) {
                bool in = false;
                for (int z = 0; z < p->reduce->naxis; z++) in |= k->raxis[p->set][z] == p->reduce->raxis[i];
                same = in;
            }
            if (same) break;
        }
        if (p->set < k->nset) continue;
        if (k->nset == MAX_SETS) { /* the rest is reduced in the epilogue */
            k->n = j;
            break;
        }
        /* Short loops outside, the longest one inside. */
        int m = p->reduce->naxis;
        Axis **r = arena_memdup(g->em->a, p->reduce->raxis, sizeof(Axis *) * (size_t)m);
        for (int a = 1; a < m; a++)
            for (int b = a; b > 0 && axis_size(r[b - 1], 1 << 20) > axis_size(r[b], 1 << 20); b--) {
                Axis *t = r[b];
                r[b] = r[b - 1];
                r[b - 1] = t;
            }
        k->raxis[k->nset] = r;
        k->nraxis[k->nset++] = m;
    }
    return k->n > 0;
}

/* Rows × vectors of a micro-kernel: the least time for an element, by a model of one step of its inner
 * loop: two vector operations a cycle, two loads a cycle, sums in flight to hide their latency; lanes and
 * rows beyond the domain are lost. */
static void choose_tile(Contraction *k) {
    Group *g = k->g;
    int budget = g->em->vec >= 16 ? 26 : 12, vec = g->em->vec, widest = 1;
    for (int s = 0; s < k->nset; s++) {
        int q = 0;
        for (int j = 0; j < k->n; j++) q += k->p[j].set == s;
        if (q > widest) widest = q;
    }
    int64_t rows = k->m ? axis_size(k->m, 4) : 1, lanes = axis_size(k->v, 4 * vec);
    static const int row_sizes[] = {1, 2, 3, 4, 6, 8};
    double best = 0;
    for (int nv = 1; nv <= 8; nv++) {
        for (int i = 0; i < (int)COUNT(row_sizes); i++) {
            int mr = row_sizes[i], sums = nv * mr * widest;
            if (mr > rows || (sums > budget && nv * mr > 1)) break;
            int64_t tiles = (lanes + nv * vec - 1) / (nv * vec), blocks = (rows + mr - 1) / mr;
            if (nv > 4 && tiles < 2) continue; /* leave something for other units */
            int loads = nv * widest + mr, busy = sums > loads ? sums : loads;
            double cycles = (busy > 8 ? busy : 8) * 0.5 + 0.5; /* the loop itself */
            double time = cycles * (double)(tiles * blocks) / (double)(lanes * rows);
            if (best == 0 || time < best * 0.999) best = time, k->nv = nv, k->mr = mr;
        }
    }
    k->vt = k->nv * vec;
}

/* ---- packing --------------------------------------------------------------------------------------------- */
/* Layout: [symbol][outer axes that the operand uses][vector][reduction axes, outermost first][lane], with enough
 * vectors behind for a tile to start at any of them. */
/* Vectors of a packed operand: whole tiles, from any grain on. */
static int64_t pack_vectors(const Contraction *k) {
    int vec = k->g->em->vec;
    return (axis_size(k->v, 0) + vec - 1) / vec + k->nv - 1;
}

static const char *pack(Contraction *k, Product *p) {
    Group *g = k->g;
    Emit *em = g->em;
    Cx *c = em->c;
    int vec = em->vec;
    int64_t stride[MAX_RANK * 3], extent[MAX_RANK * 3], base, v_stride = 0, v_size = 0, total = 1;
    int n = 0;
    Expr *rest = p->vec_flat, *coef;
    if (p->sym) {
        rest = e_replace(c, rest, p->sym, e_axis(c, p->sym_axis));
        e_affine(c, rest, p->sym_axis, &coef, &rest);
        e_is_int(coef, &stride[n]);
        e_is_int(p->sym_axis->extent, &extent[n++]);
    }
    for (int i = 0; i < g->naxis; i++) {
        int64_t s = 0;
        e_affine(c, rest, g->axis[i], &coef, &rest);
        e_is_int(coef, &s);
        if (g->axis[i] == k->v) v_stride = s;
        else if (s) {
            stride[n] = s;
            e_is_int(g->axis[i]->extent, &extent[n++]);
        }
    }
    e_is_int(k->v->extent, &v_size);
    stride[n] = v_stride * vec;
    extent[n++] = pack_vectors(k);
    int tile_at = n - 1;
    for (int i = 0; i < k->nraxis[p->set]; i++) {
        e_affine(c, rest, k->raxis[p->set][i], &coef, &rest);
        e_is_int(coef, &stride[n]);
        e_is_int(k->raxis[p->set][i]->extent, &extent[n++]);
    }
    e_is_int(rest, &base);
    for (int i = 0; i < n; i++) total *= extent[i];
    Sb key = {.a = em->a};
    const Const *src = p->vec->t->data;
    sb_printf(&key, "pack %p %lld %lld %lld %d", (const void *)src->data, (long long)base, (long long)v_stride,
              (long long)v_size, vec);
    for (int i = 0; i < n; i++) sb_printf(&key, " %lld*%lld", (long long)stride[i], (long long)extent[i]);
    const char *name = map_get(em->functions, key.p);
    if (!name) {
        float *data = em->held = malloc((size_t)total * (size_t)vec * 4 + 64);
        if (!data) err(em->c->d, ST_MEMORY, NULL, "out of memory for packing weights");
        int64_t idx[MAX_RANK * 3] = {0};
        for (int64_t i = 0; i < total; i++) {
            int64_t at = base;
            for (int d = 0; d < n; d++) at += idx[d] * stride[d];
            for (int l = 0; l < vec; l++) {
                bool in = idx[tile_at] * vec + l < v_size;
                int64_t q = at + l * v_stride;
                data[i * vec + l] = in && q >= 0 && q < src->count ? ((const float *)src->data)[q] : 0;
            }
            for (int d = n - 1; d >= 0 && ++idx[d] == extent[d]; d--) idx[d] = 0;
        }
        name = emit_data(em, DT_F32, data, total * vec, p->vec->t->name ? p->vec->t->name : "packed");
        free(data);
        em->held = NULL;
        map_set(em->functions, key.p, (void *)(uintptr_t)name);
    }
    sb_free(&key);
    return name;
}

/* ---- micro-kernels ------------------------------------------------------------------------------------------ */
typedef struct Micro {
    Contraction *k;
    Sb params, args, body;
    int nvalue;
    Map *known;              /* expression id -> parameter name */
} Micro;

/* An int64 value inside the micro-kernel: a literal, or a parameter. */
static const char *value(Micro *u, Expr *e) {
    Group *g = u->k->g;
    int64_t v;
    if (e_is_int(e, &v)) return arena_printf(g->em->a, "%lld", (long long)v);
    const char *s = map_geti(u->known, (uint64_t)e->id + 1);
    if (s) return s;
    s = arena_printf(g->em->a, "n%d", u->nvalue++);
    sb_printf(&u->params, ", int64_t %s", s);
    sb_printf(&u->args, ", %s", fn_expr(&g->f, e));
    map_seti(u->known, (uint64_t)e->id + 1, (void *)(uintptr_t)s);
    return s;
}

/* " + r0 * s0 + …" of an address along the set's reduction axes. */
static const char *along(Micro *u, int set, Expr *flat) {
    Contraction *k = u->k;
    Cx *c = k->g->em->c;
    const char *s = "";
    for (int i = 0; i < k->nraxis[set]; i++) {
        Expr *coef = coef_of(c, flat, k->raxis[set][i]);
        if (e_is_ival(coef, 0)) continue;
        if (e_is_ival(coef, 1)) s = arena_printf(k->g->em->a, "%s + r%d", s, i);
        else s = arena_printf(k->g->em->a, "%s + r%d * %s", s, i, value(u, coef));
    }
    return s;
}

/* Address of a load with all loop axes of the set, and rows and lanes of the tile, at 0. */
static const char *base_of(Contraction *k, int set, Expr *load, Expr *flat) {
    Group *g = k->g;
    Cx *c = g->em->c;
    Expr *zero[MAX_RANK * 2];
    for (int i = 0; i < k->nraxis[set]; i++) zero[i] = e_int(c, 0);
    Expr *at = e_subst(c, flat, k->nraxis[set], k->raxis[set], zero, NULL, NULL);
    return arena_printf(g->em->a, "%s + (%s)", g->f.tensor(&g->f, load->t), fn_expr(&g->f, at));
}

/* Floats between two vectors of a packed operand: each vector is a stream of its own. */
static int64_t stream_of(const Contraction *k, const Product *p) {
    int64_t n = k->g->em->vec;
    for (int i = 0; i < k->nraxis[p->set]; i++) n *= axis_size(k->raxis[p->set][i], 1);
    return n;
}

/* Emits the call of the micro-kernel of one set for `rows` rows; writes the kernel where it is new. In the
 * group's function the axes v and m are bound to the tile's first lane and row. */
static void call_micro(Contraction *k, int set, int rows, bool tail) {
    Group *g = k->g;
    Emit *em = g->em;
    Cx *c = em->c;
    Micro u = {.k = k, .known = map_new(em->a), .params = {.a = em->a}, .args = {.a = em->a}, .body = {.a = em->a}};
    Sb *b = &u.body;
    const Product *q[MAX_PRODUCTS];
    int nq = 0, na = 0;
    Expr *sca[MAX_PRODUCTS];
    int sca_of[MAX_PRODUCTS];
    for (int j = 0; j < k->n; j++)
        if (k->p[j].set == set) q[nq++] = &k->p[j];
    for (int j = 0; j < nq; j++) {
        sb_printf(&u.params, "%sfloat *restrict g%d", j ? ", " : "", j);
        sb_printf(&u.args, "%sg%d", j ? ", " : "", q[j]->slot);
    }
    for (int j = 0; j < nq; j++) {
        sb_printf(&u.params, ", const float *restrict b%d", j);
        if (q[j]->packed) sb_printf(&u.args, ", w%d", q[j]->slot);
        else sb_printf(&u.args, ", %s", base_of(k, set, q[j]->vec, q[j]->vec_flat));
        for (sca_of[j] = 0; sca_of[j] < na && sca[sca_of[j]] != q[j]->sca; sca_of[j]++) {}
        if (sca_of[j] < na) continue;
        sca[na] = q[j]->sca;
        sb_printf(&u.params, ", const float *restrict a%d", na);
        sb_printf(&u.args, ", %s", base_of(k, set, q[j]->sca, q[j]->sca_flat));
        na++;
    }
    if (tail) {
        sb_puts(&u.params, ", int64_t lanes");
        sb_puts(&u.args, ", lanes");
    }
    sb_printf(b, "    %s\n", em->target->contract);
    for (int j = 0; j < nq; j++)
        for (int m = 0; m < rows; m++) {
            sb_puts(b, "    bk_vf");
            for (int v = 0; v < k->nv; v++) sb_printf(b, "%s c%d_%d_%d = {0}", v ? "," : "", j, m, v);
            sb_puts(b, ";\n");
        }
    int nr = k->nraxis[set];
    for (int i = 0; i < nr; i++)
        sb_printf(b, "%*sfor (int64_t r%d = 0; r%d < %s; r%d++) {\n", 4 + 4 * i, "", i, i,
                  value(&u, k->raxis[set][i]->extent), i);
    int in = 4 + 4 * nr;
    for (int j = 0; j < nq; j++) {
        const char *off = q[j]->packed ? "" : along(&u, set, q[j]->vec_flat);
        for (int v = 0; v < k->nv; v++) {
            const char *at = q[j]->packed ? arena_printf(em->a, "b%d + %lld", j, (long long)v * stream_of(k, q[j]))
                                          : arena_printf(em->a, "b%d%s + %d", j, off, v * em->vec);
            if (tail && !q[j]->packed) sb_printf(b, "%*sconst bk_vf w%d_%d = bk_loadn(%s, lanes - %d);\n", in, "", j, v, at, v * em->vec);
            else sb_printf(b, "%*sconst bk_vf w%d_%d = bk_loadv(%s);\n", in, "", j, v, at);
        }
        if (q[j]->packed) sb_printf(b, "%*sb%d += %d;\n", in, "", j, em->vec);
    }
    for (int s = 0; s < na; s++) {
        const Product *p = NULL;
        for (int j = 0; j < nq && !p; j++)
            if (sca_of[j] == s) p = q[j];
        const char *off = along(&u, set, p->sca_flat);
        Expr *row = k->m ? coef_of(c, p->sca_flat, k->m) : e_int(c, 0);
        for (int m = 0; m < rows; m++) {
            const char *at = m && !e_is_ival(row, 0) ? arena_printf(em->a, "%s + %d * %s", off, m, value(&u, row)) : off;
            if (!p->both) {
                sb_printf(b, "%*sconst float x%d_%d = a%d[0%s];\n", in, "", s, m, s, at);
                for (int j = 0; j < nq; j++)
                    for (int v = 0; v < k->nv && sca_of[j] == s; v++)
                        sb_printf(b, "%*sc%d_%d_%d += w%d_%d * x%d_%d;\n", in, "", j, m, v, j, v, s, m);
                continue;
            }
            for (int v = 0; v < k->nv; v++) {
                const char *src = arena_printf(em->a, "a%d%s + %d", s, at, v * em->vec);
                if (tail) sb_printf(b, "%*sconst bk_vf x%d_%d_%d = bk_loadn(%s, lanes - %d);\n", in, "", s, m, v, src, v * em->vec);
                else sb_printf(b, "%*sconst bk_vf x%d_%d_%d = bk_loadv(%s);\n", in, "", s, m, v, src);
                for (int j = 0; j < nq; j++)
                    if (sca_of[j] == s)
                        sb_printf(b, "%*sc%d_%d_%d += w%d_%d * x%d_%d_%d;\n", in, "", j, m, v, j, v, s, m, v);
            }
        }
    }
    for (int i = nr - 1; i >= 0; i--) sb_printf(b, "%*s}\n", 4 + 4 * i, "");
    for (int j = 0; j < nq; j++)
        for (int m = 0; m < rows; m++)
            for (int v = 0; v < k->nv; v++)
                sb_printf(b, "    bk_storev(g%d + %d, c%d_%d_%d);\n", j, m * k->vt + v * em->vec, j, m, v);
    const char *name = emit_function(em, "dot", em->target->kernel, u.params.p, u.body.p);
    fn_line(&g->f, "%s(%s);", name, u.args.p);
    sb_free(&u.params);
    sb_free(&u.args);
    sb_free(&u.body);
}

/* ---- the group's function ------------------------------------------------------------------------------------- */
static const char *scratch(Group *g, Expr *e) {
    Contraction *k = g->user;
    for (int j = 0; j < k->n; j++)
        if (k->p[j].reduce == e) return arena_printf(g->em->a, "g%d[row * %d + l]", k->p[j].slot, k->vt);
    return NULL;
}

/* Reductions that no micro-kernel computes need loops of their own inside the lane loop. */
static bool unscratched(Group *g, Expr *e) {
    if (!(e->flags & EF_REDUCE)) return false;
    if (e->op == E_REDUCE) return !scratch(g, e);
    for (int i = 0; i < e->n; i++)
        if (unscratched(g, e->a[i])) return true;
    return false;
}
static bool other_reductions(Contraction *k) {
    for (int i = 0; i < k->g->n; i++)
        if (unscratched(k->g, k->g->value[i])) return true;
    return false;
}

static void epilogue(Contraction *k) {
    Group *g = k->g;
    Fn *f = &g->f;
    Cx *c = g->em->c;
    fn_line(f, "for (int64_t row = 0; row < rows; row++) {");
    int mark = fn_open(f);
    if (k->m) {
        fn_line(f, "const int64_t im = m0 + row;");
        fn_bind(f, e_axis(c, k->m), "im");
    }
    for (int i = 0; i < g->n; i++) {
        fn_hoist(f, g->value[i], 1, &k->v);
    }
    bool plain = !other_reductions(k);
    for (int i = 0; i < g->n && plain; i++) plain = !fn_guarded(f, g->value[i]);
    if (plain) fn_line(f, "%s", g->em->target->simd);
    fn_line(f, "for (int64_t l = 0; l < lanes; l++) {");
    int inner = fn_open(f);
    fn_line(f, "const int64_t iv = v0 + l;");
    fn_bind(f, e_axis(c, k->v), "iv");
    group_members(g);
    fn_close(f, inner);
    fn_line(f, "}");
    fn_close(f, mark);
    fn_line(f, "}");
}

bool group_contraction(Group *g) {
    Emit *em = g->em;
    Cx *c = em->c;
    Fn *f = &g->f;
    Contraction k = {.g = g};
    Map *seen = map_new(em->a);
    for (int i = 0; i < g->n; i++) find(&k, seen, g->value[i]);
    if (!k.n || !choose_axes(&k)) return false;
    choose_tile(&k);
    for (int j = 0; j < k.n; j++)
        if (k.p[j].packed) k.p[j].weights = pack(&k, &k.p[j]);
    g->reduce = scratch;
    g->user = &k;
    for (int i = 0; i < g->n; i++) {
        fn_count(f, g->value[i]);
        fn_count(f, g->position[i]);
    }
    group_range(g);
    int indent = f->indent, mark = f->bound.n;
    for (int i = 0; i < g->naxis; i++)
        if (g->axis[i] != k.v && g->axis[i] != k.m) group_loop(g, g->axis[i], arena_printf(em->a, "i%d", i));
    if (k.m) { /* blocks of rows, so that their operands stay in the cache for all tiles */
        bool split = k.m == g->split;
        fn_line(f, "for (int64_t first = %s; first < %s; first += %d) {", split ? "from" : "0",
                split ? "to" : fn_expr(f, k.m->extent), ROW_BLOCK);
        fn_open(f);
        fn_line(f, "const int64_t end = bk_mini(first + %d, %s);", ROW_BLOCK, split ? "to" : fn_expr(f, k.m->extent));
    }
    bool vsplit = k.v == g->split;
    fn_line(f, "for (int64_t v0 = %s; v0 < %s; v0 += %d) {", vsplit ? "from" : "0",
            vsplit ? "to" : fn_expr(f, k.v->extent), k.vt);
    fn_open(f);
    fn_line(f, "const int64_t lanes = bk_mini(%s - v0, %d);", vsplit ? "to" : fn_expr(f, k.v->extent), k.vt);
    /* Packed operands: where the tile starts. */
    for (int j = 0; j < k.n; j++) {
        Product *p = &k.p[j];
        if (!p->packed) continue;
        Expr *at = p->sym ? p->sym : e_int(c, 0);
        for (int i = 0; i < g->naxis; i++)
            if (g->axis[i] != k.v && !e_is_ival(coef_of(c, p->vec_flat, g->axis[i]), 0))
                at = e_add(c, e_mul(c, at, g->axis[i]->extent), e_axis(c, g->axis[i]));
        /* The weights are an argument, so that equal layers share this function. */
        Tensor *w = tensor_new(c, TK_CONST, DT_F32, 0, NULL);
        Const *data = NEW(em->a, Const);
        *data = (Const){.dtype = DT_F32, .count = 1, .data = p->weights};
        w->data = data;
        map_seti(em->const_name, (uint64_t)(uintptr_t)data->data, (void *)(uintptr_t)p->weights);
        fn_line(f, "const float *const w%d = %s + ((%s) * %lld + v0 / %d) * %lld;", p->slot, f->tensor(f, w),
                fn_expr(f, at), (long long)pack_vectors(&k), em->vec, (long long)stream_of(&k, p));
    }
    for (int j = 0; j < k.n; j++)
        fn_line(f, "float g%d[%d] __attribute__((aligned(64)));", k.p[j].slot, k.mr * k.vt);
    bool plain_vec = false; /* an operand that is not padded to whole vectors */
    for (int j = 0; j < k.n; j++) plain_vec |= !k.p[j].packed || k.p[j].both;
    if (k.m) {
        fn_line(f, "for (int64_t m0 = first, rows; m0 < end; m0 += rows) {");
        fn_open(f);
        fn_bind(f, e_axis(c, k.m), "m0");
        fn_line(f, k.mr > 1 ? "rows = end - m0;" : "rows = 1;");
    } else fn_line(f, "const int64_t rows = 1;");
    fn_bind(f, e_axis(c, k.v), "v0");
    for (int rows = k.mr; rows >= 1; rows /= 2) {
        if (k.mr > 1) {
            if (rows == k.mr) fn_line(f, "if (rows >= %d) {", rows);
            else if (rows > 1) fn_line(f, "} else if (rows >= %d) {", rows);
            else fn_line(f, "} else {");
            f->indent++;
            fn_line(f, "rows = %d;", rows);
        }
        int scope = f->bound.n;
        for (int s = 0; s < k.nset; s++) {
            if (plain_vec) {
                fn_line(f, "if (lanes == %d) {", k.vt);
                int a = fn_open(f);
                call_micro(&k, s, rows, false);
                fn_close(f, a);
                fn_line(f, "} else {");
                a = fn_open(f);
                call_micro(&k, s, rows, true);
                fn_close(f, a);
                fn_line(f, "}");
            } else call_micro(&k, s, rows, false);
        }
        f->bound.n = scope;
        if (k.mr > 1) f->indent--;
    }
    if (k.mr > 1) fn_line(f, "}");
    f->bound.n = mark;
    for (int i = g->naxis - 1; i >= 0; i--)
        if (g->axis[i] != k.v && g->axis[i] != k.m) fn_bind(f, e_axis(c, g->axis[i]), arena_printf(em->a, "i%d", i));
    epilogue(&k);
    while (f->indent > indent) {
        f->indent--;
        fn_line(f, "}");
    }
    f->bound.n = mark;
    return true;
}
