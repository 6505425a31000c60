/* conv.c: sums of products with constants over domains of two and more dimensions: convolutions,
 * and products of stacked matrices.
 *
 * The last axis of the domain, v, is laid over vector lanes: only the constant operand moves along
 * it, and is packed at compile time in the order in which the kernels read it. The other axes are
 * positions; a micro-kernel computes, in registers, the sums of up to `rows` neighbours along m,
 * the innermost one, for `nv` vectors. Around it the loops are, from the outside: the axes further
 * out; blocks of positions along b and m, whose operands fit the second-level cache; tiles of v;
 * blocks of the reduction, whose part of the packed operand fits the first-level cache; positions.
 * A sum whose reduction is one block goes from a small tile straight into the epilogue, the
 * members' own expressions; with several blocks the sums of all positions of the block are kept in
 * between. */
#include "codegen/emit/cpu/conv.h"
#include "scheduler/cost/cost.h"
#include "scheduler/cost/decide.h"
#include <stdlib.h>

#define NEAR_KB                                                                                    \
    34 /* of the packed operand, next to the positions' own, in the first-level cache              \
        */
#define FAR_BYTES (512 << 10) /* of the positions' operand in the second-level cache */
#define KEPT_BYTES (64 << 10) /* of sums between two blocks of a reduction */

/* ---- finding --------------------------------------------------------------------------------- */
static bool affine_in(Cx *c, Expr *flat, const Group *g, const Expr *reduce) {
    Expr *coef, *rest = flat;
    if (flat->flags & (EF_LOAD | EF_GUARD | EF_REDUCE)) return false;
    for (int i = 0; i < g->k->naxis; i++)
        if (!e_affine(c, rest, g->k->axis[i], &coef, &rest) || (coef->flags & EF_AXIS)) return false;
    for (int i = 0; i < reduce->naxis; i++)
        if (!e_affine(c, rest, reduce->raxis[i], &coef, &rest) || (coef->flags & EF_AXIS))
            return false;
    return !(rest->flags & EF_AXIS);
}

Expr *conv_coef(Cx *c, Expr *flat, Axis *x) {
    Expr *coef, *rest;
    return e_affine(c, flat, x, &coef, &rest) ? coef : NULL;
}

/* Whether `load` can be the packed operand: a constant that of the domain moves along v only, all
 * of it by known strides. */
static bool read_packed(Conv *k, Sum *s, Expr *load) {
    Group *g = k->g;
    Cx *c = g->em->c;
    Expr *rest, *coef;
    int64_t x;
    if (load->t->kind != TK_CONST) return false;
    rest = flat_of(c, load);
    for (int i = 0; i < g->k->naxis; i++) {
        if (!e_affine(c, rest, g->k->axis[i], &coef, &rest) || !e_is_int(coef, &x)) return false;
        if (g->k->axis[i] == k->v)
            s->v_stride = x;
        else if (x)
            return false;
    }
    if (!s->v_stride) return false;
    s->length = 1;
    for (int i = 0; i < s->n; i++) {
        if (!e_affine(c, rest, s->axis[i], &coef, &rest) || !e_is_int(coef, &s->stride[i]) ||
            !e_is_int(s->axis[i]->extent, &s->extent[i]) || s->extent[i] < 1)
            return false;
        s->length *= s->extent[i];
    }
    return e_is_int(rest, &s->base);
}

static bool read_sum(Conv *k, Sum *s, Expr *e) {
    Cx *c = k->g->em->c;
    *s = (Sum){.reduce = e, .n = e->naxis};
    if (e->kind != R_SUM || e->dtype != DT_F32 || e->naxis > CONV_REDUCE) return false;
    const Expr *p = e->a[0];
    if (p->op != E_MUL || p->a[0]->op != E_LOAD || p->a[1]->op != E_LOAD) return false;
    for (int i = 0; i < 2; i++)
        if (!affine_in(c, flat_of(c, p->a[i]), k->g, e)) return false;
    /* Short loops outside, the longest one inside. */
    memcpy(s->axis, e->raxis, sizeof *s->axis * (size_t)s->n);
    for (int i = 1; i < s->n; i++)
        for (int j = i; j > 0; j--) {
            int64_t x, y;
            if (!e_is_int(s->axis[j - 1]->extent, &x) || !e_is_int(s->axis[j]->extent, &y))
                return false;
            if (x <= y) break;
            Axis *t = s->axis[j];
            s->axis[j] = s->axis[j - 1];
            s->axis[j - 1] = t;
        }
    for (int side = 0; side < 2; side++) {
        s->vec = p->a[side];
        s->sca = p->a[!side];
        s->vec_flat = flat_of(c, s->vec);
        s->sca_flat = flat_of(c, s->sca);
        s->v_stride = 0;
        if (read_packed(k, s, s->vec) && e_is_ival(conv_coef(c, s->sca_flat, k->v), 0)) return true;
    }
    return false;
}

/* All reductions of the group in the wanted form; false: there is another. */
static bool find(Conv *k, Map *seen, Expr *e) {
    if (!(e->flags & EF_REDUCE) || map_geti(seen, (uint64_t)e->id + 1)) return true;
    map_seti(seen, (uint64_t)e->id + 1, e);
    if (e->op == E_REDUCE) {
        if (k->n == CONV_SUMS || !read_sum(k, &k->s[k->n], e)) return false;
        for (int i = 0; i < k->g->k->n; i++)
            if (k->s[k->n].sca->t == k->g->k->t[i]) return false;
        k->n++;
        return true;
    }
    if (e_always(e) < e->n || e->op == E_LOAD) return false; /* not for every element */
    for (int i = 0; i < e->n; i++)
        if (!find(k, seen, e->a[i])) return false;
    return true;
}

static bool recognize_last(Conv *k) {
    Group *g = k->g;
    if (g->k->naxis < 2 || g->k->n > 4) return false;
    k->v = g->k->axis[g->k->naxis - 1];
    if (!e_is_int(k->v->extent, &k->nlane) || k->nlane * 2 < g->em->vec) return false;
    int64_t grain;
    if (k->v == g->k->split && (!e_is_int(g->k->grain, &grain) || grain % g->em->vec))
        return false; /* whole vectors */
    k->n = 0;
    Map *seen = map_new(g->em->a);
    for (int i = 0; i < g->k->n; i++)
        if (!find(k, seen, g->k->value[i])) return false;
    return k->n > 0;
}

/* Whether an operand of a sum below e lies together along x: then x can be laid over lanes
 * (contract.c). */
static bool together(const Conv *k, Map *seen, Expr *e, Axis *x, bool sum) {
    if (!(e->flags & EF_LOAD) || map_geti(seen, (uint64_t)e->id + 1)) return false;
    map_seti(seen, (uint64_t)e->id + 1, e);
    if (e->op == E_LOAD) {
        Expr *coef = sum ? conv_coef(k->g->em->c, flat_of(k->g->em->c, e), x) : NULL;
        return coef && e_is_ival(coef, 1);
    }
    for (int i = 0; i < e->n; i++)
        if (together(k, seen, e->a[i], x, sum || e->op == E_REDUCE)) return true;
    return false;
}

bool conv_recognize(Conv *k) {
    Group *g = k->g;
    if (recognize_last(k)) return true;
    if (g->k->naxis < 2) return false;
    Axis *kept[MAX_RANK], *last = g->k->axis[g->k->naxis - 1];
    memcpy(kept, g->k->axis, sizeof kept);
    for (int i = 0; i < g->k->n; i++)
        if (together(k, map_new(g->em->a), g->k->value[i], last, false)) return false;
    /* Results that keep the model's order are stored one by one. */
    for (int i = g->k->naxis - 2; i >= 0; i--) {
        memmove(g->k->axis + i, kept + i + 1, sizeof *kept * (size_t)(g->k->naxis - i - 1));
        g->k->axis[g->k->naxis - 1] = kept[i];
        if (recognize_last(k)) return true;
        memcpy(g->k->axis, kept, sizeof kept);
    }
    return false;
}

/* A product of two matrices. */
static bool is_plain(const Conv *k) {
    bool plain = k->g->k->naxis == 2;
    for (int i = 0; i < k->n; i++) plain = plain && k->s[i].n == 1;
    return plain;
}

/* ---- shape ----------------------------------------------------------------------------------- */
static int64_t cdiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

void conv_tile(Conv *k) {
    Group *g = k->g;
    int vec = g->em->vec, sums = vec >= 16 ? 24 : 12;
    k->m = g->k->axis[g->k->naxis - 2];
    k->b = g->k->naxis >= 3 ? g->k->axis[g->k->naxis - 3] : NULL;
    int64_t nvec = cdiv(k->nlane, vec), most = vec >= 16 ? 4 : 2;
    k->nv = (int)cdiv(nvec, cdiv(nvec, most));
    k->vt = k->nv * vec;
    k->rows = sums / k->nv;
}

static void choose_blocks(Conv *k) {
    Group *g = k->g;
    const Schedule *plan = g->em->p->schedule;
    double ns = plan ? cost_group_ns(g->em->c, plan->device, g->k->s, plan->units) : 0;
    int64_t longest = 0, far = 1;
    for (int i = 0; i < k->n; i++)
        if (k->s[i].length > longest) longest = k->s[i].length;
    /* Only what does not fit is cut. */
    int64_t near = NEAR_KB;
    if (longest * k->vt * 4 > NEAR_KB / 2 << 10)
        near = decide_value(g->em->p, X_NEAR, g->k->s, 3,
                            (Way[]){{NEAR_KB, ns}, {NEAR_KB / 2, ns}, {2 * NEAR_KB, ns}});
    near = (near << 10) / (k->vt * 4);
    for (int i = 0; i < k->n; i++) {
        Sum *s = &k->s[i];
        int64_t inner = s->length;
        s->cut = 0;
        s->chunk = s->extent[0];
        if (s->length > near) {
            while (s->cut < s->n - 1 && inner / s->extent[s->cut] > near)
                inner /= s->extent[s->cut++];
            inner /= s->extent[s->cut];
            int64_t chunks = cdiv(s->extent[s->cut] * inner, near);
            s->chunk = cdiv(s->extent[s->cut], chunks);
            if (inner == 1) s->chunk = cdiv(s->chunk, 16) * 16;
            k->kept = true;
        }
        int64_t row = s->extent[s->n - 1] * 4; /* what a position reads, about */
        if (row > far) far = row;
    }
    k->block = FAR_BYTES / far;
    int64_t kept = KEPT_BYTES / (k->vt * 4 * k->n);
    if (k->block > kept) k->block = kept;
    if (k->block < k->rows) k->block = k->rows;
    int64_t m;
    bool known = e_is_int(k->m->extent, &m);
    k->m_block = known && m < k->block ? m : k->block;
    k->even = known && m <= k->block && k->m != g->k->split ? m : 0;
}

/* ---- packing: [vector][reduction axes, outermost first][lane] -------------------------------- */
/* Vectors, with enough behind for a tile to start at any of them. */
int64_t conv_vectors(const Conv *k) { return cdiv(k->nlane, k->g->em->vec) + k->nv - 1; }

static const char *pack(Conv *k, const Sum *s) {
    Emit *em = k->g->em;
    int vec = em->vec;
    int64_t vectors = conv_vectors(k), total = vectors * s->length;
    const Const *src = s->vec->t->data;
    Sb key = {.a = em->a};
    sb_printf(&key, "conv %p %lld %lld %lld %d %lld", (const void *)src->data, (long long)s->base,
              (long long)s->v_stride, (long long)k->nlane, vec, (long long)vectors);
    for (int i = 0; i < s->n; i++)
        sb_printf(&key, " %lld*%lld", (long long)s->stride[i], (long long)s->extent[i]);
    const char *name = map_get(em->functions, key.p);
    if (!name) {
        float *data = em->held = malloc((size_t)total * (size_t)vec * 4 + 64);
        if (!data) err(em->c->d, ST_MEMORY, NULL, "out of memory for packing weights");
        float *to = data;
        for (int64_t x = 0; x < vectors; x++) {
            int64_t idx[CONV_REDUCE] = {0};
            for (int64_t i = 0; i < s->length; i++) {
                int64_t at = s->base;
                for (int d = 0; d < s->n; d++) at += idx[d] * s->stride[d];
                for (int l = 0; l < vec; l++) {
                    int64_t lane = x * vec + l, q = at + lane * s->v_stride;
                    *to++ = lane < k->nlane && q >= 0 && q < src->count
                                ? ((const float *)src->data)[q]
                                : 0;
                }
                for (int d = s->n - 1; d >= 0 && ++idx[d] == s->extent[d]; d--) idx[d] = 0;
            }
        }
        name =
            emit_data(em, DT_F32, data, total * vec, s->vec->t->name ? s->vec->t->name : "packed");
        free(data);
        em->held = NULL;
        map_set(em->functions, key.p, (void *)(uintptr_t)name);
    }
    sb_free(&key);
    return name;
}

const char *conv_weights(Conv *k, const char *data) {
    /* The weights are an argument, so that equal layers share the function. */
    Emit *em = k->g->em;
    Tensor *w = tensor_new(em->c, TK_CONST, DT_F32, 0, NULL);
    Const *name = NEW(em->a, Const);
    *name = (Const){.dtype = DT_F32, .count = 1, .data = data};
    w->data = name;
    map_seti(em->const_name, (uint64_t)(uintptr_t)data, (void *)(uintptr_t)data);
    return k->g->f.tensor(&k->g->f, w);
}

/* ---- micro-kernels --------------------------------------------------------------------------- */
typedef struct Micro {
    Conv *k;
    Sb params, args, body;
    int nvalue;
} Micro;

/* An int64 value inside the micro-kernel: a parameter, unless it is a constant and `literal`.
 * Kernels of few rows take their strides as parameters and serve many sums; with many rows
 * addresses need constants. */
static const char *value(Micro *u, Expr *e, bool literal) {
    Group *g = u->k->g;
    int64_t x;
    if (e_is_int(e, &x) && (literal || x == 1 || x == 0))
        return arena_printf(g->em->a, "%lld", (long long)x);
    const char *s = arena_printf(g->em->a, "n%d", u->nvalue++);
    sb_printf(&u->params, ", int64_t %s", s);
    sb_printf(&u->args, ", %s", fn_expr(&g->f, e));
    return s;
}

void conv_micro(Conv *k, int rows, const char *out, const char *in, const Walk *w) {
    Group *g = k->g;
    Emit *em = g->em;
    int nv = k->nv, vec = em->vec;
    bool literal = rows > 6;
    Micro u = {.k = k, .params = {.a = em->a}, .args = {.a = em->a}, .body = {.a = em->a}};
    Sb *b = &u.body;
    sb_puts(&u.params,
            "float *restrict g, const float *restrict b, const float *restrict a, int64_t bs");
    sb_printf(&u.args, "%s, %s, %s, %lld", out, in, w->at, (long long)w->stream);
    const char *row = rows > 1 ? value(&u, w->row, literal) : "0";
    sb_printf(b, "    %s\n    bk_vf", em->target->contract);
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
        sb_printf(b, "%*sconst bk_vf w%d = bk_loadv(b + %d * bs);\n", pad, "", v, v);
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
    const char *name = emit_function(em, "conv", em->target->kernel, u.params.p, u.body.p);
    fn_line(&g->f, "%s(%s);", name, u.args.p);
    sb_free(&u.params);
    sb_free(&u.args);
    sb_free(&u.body);
}

/* The walk of a sum's own micro-kernel. v, m and the reduction axes up to s->cut are bound. */
static Walk walk_of(Conv *k, const Sum *s) {
    Group *g = k->g;
    Cx *c = g->em->c;
    Walk w = {.levels = s->n - s->cut,
              .partial = k->kept,
              .row = conv_coef(c, s->sca_flat, k->m),
              .stream = s->length * g->em->vec};
    Expr *zero[CONV_REDUCE];
    for (int i = 0; i < w.levels; i++) {
        zero[i] = e_int(c, 0);
        w.count[i] = s->axis[s->cut + i]->extent;
        w.stride[i] = conv_coef(c, s->sca_flat, s->axis[s->cut + i]);
    }
    int whole = k->kept ? 1 : 0; /* the chunk's axis is bound */
    Expr *at =
        e_subst(c, s->sca_flat, w.levels - whole, s->axis + s->cut + whole, zero, NULL, NULL);
    w.at = arena_printf(g->em->a, "%s + (%s)", g->f.tensor(&g->f, s->sca->t), fn_expr(&g->f, at));
    return w;
}

/* ---- the group's function -------------------------------------------------------------------- */
static const char *sum_text(Group *g, Expr *e) {
    Conv *k = g->user;
    for (int i = 0; i < k->n; i++)
        if (k->s[i].reduce == e) return arena_printf(g->em->a, "sum%d[row * %d + l]", i, k->vt);
    return NULL;
}

/* The members of `rows` positions from pos on, whose sums lie at s0, s1, …. */
void conv_epilogue(Conv *k) {
    Group *g = k->g;
    Fn *f = &g->f;
    Cx *c = g->em->c;
    fn_line(f, "for (int64_t row = 0; row < rows; row++) {");
    int mark = fn_open(f);
    fn_line(f, "const int64_t im = pos + row;");
    fn_bind(f, e_axis(c, k->m), "im");
    for (int i = 0; i < g->k->n; i++) fn_hoist(f, g->k->value[i], 1, &k->v);
    bool plain = true;
    for (int i = 0; i < g->k->n && plain; i++) plain = !fn_guarded(f, g->k->value[i]);
    bool one = k->nlane <= k->vt && k->v != g->k->split; /* all tiles are alike */
    int lanes[2] = {one ? (int)k->nlane : k->vt, 0};
    for (int i = 0; i < (one ? 1 : 2); i++) {
        if (!one) fn_line(f, i ? "} else {" : "if (lanes == %d) {", k->vt);
        int outer = fn_open(f);
        if (plain) fn_line(f, "%s", g->em->target->simd);
        group_members_by_lane(g, k->v, "0", i == 0 ? arena_printf(f->a, "%d", lanes[0]) : "lanes");
        fn_close(f, outer);
    }
    if (!one) fn_line(f, "}");
    fn_close(f, mark);
    fn_line(f, "}");
}

int conv_sizes(const Conv *k, int64_t even, int *sizes) {
    int64_t tiles = even ? cdiv(even, k->rows) : 0;
    int n = 0;
    sizes[n++] = tiles ? (int)cdiv(even, tiles) : k->rows;
    if (tiles ? even % tiles : k->rows > 1) sizes[n++] = sizes[0] - 1;
    for (int r = 16; r >= 1 && !tiles; r /= 2)
        if (r < k->rows - 1) sizes[n++] = r;
    return n;
}

/* Runs are cut into tiles of two neighbouring sizes, the larger ones first; short rests by halves.
 */
void conv_run(Conv *k, int64_t even, const char *lo, const char *hi,
              void (*tile)(Conv *, int, void *), void *user) {
    Fn *f = &k->g->f;
    int sizes[8], n = conv_sizes(k, even, sizes);
    if (n > 1) fn_line(f, "int64_t left = (%s - %s + %d) / %d;", hi, lo, sizes[0] - 1, sizes[0]);
    fn_line(f, "for (int64_t pos = %s, rows; pos < %s; pos += rows%s) {", lo, hi,
            n > 1 ? ", left--" : "");
    fn_open(f);
    int mark = f->bound.n;
    if (n == 1) fn_line(f, "rows = %d;", sizes[0]);
    for (int i = 0; i < n; i++) {
        if (n > 1) {
            if (i == 0)
                fn_line(f, "if (%s - pos > left * %d && %s - pos >= %d) {", hi, sizes[1], hi,
                        sizes[0]);
            else if (i == n - 1)
                fn_line(f, "} else {");
            else
                fn_line(f, "} else if (%s - pos >= %d) {", hi, sizes[i]);
            f->indent++;
            fn_line(f, "rows = %d;", sizes[i]);
        }
        if (tile) tile(k, sizes[i], user);
        f->bound.n = mark;
        if (n > 1) f->indent--;
    }
    if (n > 1) fn_line(f, "}");
}

void conv_fetch(Conv *k, int64_t stream) {
    Fn *f = &k->g->f;
    fn_line(f, "for (int64_t z = 0; z < share; z++, next += %d)", k->g->em->vec);
    fn_line(f, "    for (int64_t v = 0; v < %d; v++) __builtin_prefetch(next + v * %lld, 0, 2);",
            k->nv, (long long)stream);
}

static void kernels(Conv *k, int rows, void *user) {
    const int *range = user;
    Group *g = k->g;
    Fn *f = &g->f;
    fn_bind(f, e_axis(g->em->c, k->m), "pos");
    fn_bind(f, e_axis(g->em->c, k->v), "v0");
    for (int i = range[0]; i < range[1]; i++) {
        Walk w = walk_of(k, &k->s[i]);
        if (!k->kept)
            conv_micro(k, rows, arena_printf(g->em->a, "g%d", i), arena_printf(g->em->a, "w%d", i),
                       &w);
        else
            conv_micro(k, rows, arena_printf(g->em->a, "g%d + at", i), "part", &w);
    }
}

/* Loops over the positions of a block. With sums [from, to) their micro-kernels run; then, if
 * `last`, the epilogue. */
static void positions(Conv *k, int from, int to, bool last) {
    Group *g = k->g;
    Fn *f = &g->f;
    Cx *c = g->em->c;
    int indent = f->indent, mark = f->bound.n;
    if (k->kept) fn_line(f, "at = 0;");
    if (k->b) {
        fn_line(f, "for (int64_t ib = b0; ib < b1; ib++) {");
        fn_open(f);
        fn_bind(f, e_axis(c, k->b), "ib");
    }
    int range[2] = {from, to};
    conv_run(k, k->even, "mb", "me", to > from ? kernels : NULL, range);
    if (!last) conv_fetch(k, k->s[from].length * g->em->vec);
    if (last) {
        for (int i = 0; i < k->n; i++)
            fn_line(f, "const float *const sum%d = g%d%s;", i, i, k->kept ? " + at" : "");
        conv_epilogue(k);
    }
    if (k->kept) fn_line(f, "at += rows * %d;", k->vt);
    while (f->indent > indent) {
        f->indent--;
        fn_line(f, "}");
    }
    f->bound.n = mark;
}

/* One sum of a block of positions, in blocks of its reduction. While one is computed the next one's
 * part of the packed operand is fetched. */
static void reduction_blocks(Conv *k, int i) {
    Group *g = k->g;
    Fn *f = &g->f;
    Cx *c = g->em->c;
    Sum *s = &k->s[i];
    int indent = f->indent, mark = f->bound.n, vec = g->em->vec;
    int64_t inner = 1;
    fn_line(f, "const float *part = w%d;", i);
    fn_line(f, "int more = 0;");
    for (int d = 0; d <= s->cut; d++) {
        const char *q = arena_printf(g->em->a, "q%d", d);
        fn_line(f, "for (int64_t %s = 0; %s < %lld; %s += %lld) {", q, q, (long long)s->extent[d],
                q, (long long)(d == s->cut ? s->chunk : 1));
        fn_open(f);
        fn_bind(f, e_axis(c, s->axis[d]), q);
    }
    for (int d = s->cut + 1; d < s->n; d++) inner *= s->extent[d];
    fn_line(f, "const int64_t count = bk_mini(%lld - q%d, %lld);", (long long)s->extent[s->cut],
            s->cut, (long long)s->chunk);
    fn_line(f, "const bool done = part + count * %lld == w%d + %lld;", (long long)(inner * vec), i,
            (long long)(s->length * vec));
    fn_line(f, "const float *next = done ? w%d + %lld : part + count * %lld;", i,
            (long long)(k->nv * s->length * vec), (long long)(inner * vec));
    fn_line(f, "const int64_t share = count * %lld / tiles + 1;", (long long)inner);
    positions(k, i, i + 1, false);
    fn_line(f, "part += count * %lld;", (long long)(inner * vec));
    fn_line(f, "more = 1;");
    while (f->indent > indent) {
        f->indent--;
        fn_line(f, "}");
    }
    f->bound.n = mark;
}

static void open_blocks(Conv *k, Axis *x, const char *name, const char *from, const char *to,
                        int64_t most, int64_t unit) {
    Group *g = k->g;
    Fn *f = &g->f;
    bool split = x == g->k->split;
    const char *lo = split ? "from" : "0", *hi = split ? "to" : fn_expr(f, x->extent);
    /* Blocks of about equal size, whole units of it. */
    if (most > unit) most -= most % unit;
    fn_line(f, "const int64_t %sn = bk_maxi((%s - %s + %lld) / %lld, 1);", name, hi, lo,
            (long long)(most - 1), (long long)most);
    fn_line(f, "const int64_t %ss = ((%s - %s + %sn - 1) / %sn + %lld) / %lld * %lld;", name, hi,
            lo, name, name, (long long)(unit - 1), (long long)unit, (long long)unit);
    fn_line(f, "for (int64_t %s = %s; %s < %s; %s += %ss) {", from, lo, from, hi, from, name);
    fn_open(f);
    fn_line(f, "const int64_t %s = bk_mini(%s + %ss, %s);", to, from, name, hi);
}

bool group_conv(Group *g) {
    Emit *em = g->em;
    Fn *f = &g->f;
    Conv k = {.g = g};
    if (!conv_recognize(&k) || is_plain(&k)) return false;
    kernel_collapse(g->k);
    if (!conv_recognize(&k)) return false;
    conv_tile(&k);
    choose_blocks(&k);
    g->reduce = sum_text;
    g->user = &k;
    group_range(g);
    int indent = f->indent, mark = f->bound.n;
    for (int i = 0; i < g->k->naxis - (k.b ? 3 : 2); i++)
        group_loop(g, g->k->axis[i], arena_printf(em->a, "i%d", i));
    for (int i = 0; i < k.n; i++) {
        Sum *s = &k.s[i];
        s->weights = conv_weights(&k, pack(&k, s));
        fn_line(f, "float g%d[%lld] __attribute__((aligned(64)));", i,
                (long long)((k.kept ? k.block : k.rows) * k.vt));
    }
    int64_t m;
    if (k.b)
        open_blocks(&k, k.b, "nb", "b0", "b1",
                    e_is_int(k.m->extent, &m) && m < k.block ? k.block / m : 1, 1);
    open_blocks(&k, k.m, "nm", "mb", "me", k.m_block, k.even ? 1 : k.rows);
    bool vsplit = k.v == g->k->split;
    fn_line(f, "for (int64_t v0 = %s; v0 < %s; v0 += %d) {", vsplit ? "from" : "0",
            vsplit ? "to" : fn_expr(f, k.v->extent), k.vt);
    fn_open(f);
    fn_line(f, "const int64_t lanes = bk_mini(%s - v0, %d);",
            vsplit ? "to" : fn_expr(f, k.v->extent), k.vt);
    if (k.nlane <= k.vt && !vsplit) fn_line(f, "(void)lanes;");
    for (int i = 0; i < k.n; i++)
        fn_line(f, "const float *const w%d = %s + v0 / %d * %lld;", i, k.s[i].weights, em->vec,
                (long long)(k.s[i].length * em->vec));
    if (k.kept) {
        fn_line(f, "int64_t at;");
        fn_line(f, "const int64_t tiles = (me - mb + %d) / %d%s;", k.rows - 1, k.rows,
                k.b ? " * (b1 - b0)" : "");
        for (int i = 0; i < k.n; i++) {
            fn_line(f, "{");
            fn_open(f);
            reduction_blocks(&k, i);
            f->indent--;
            fn_line(f, "}");
        }
        positions(&k, 0, 0, true);
    } else
        positions(&k, 0, k.n, true);
    while (f->indent > indent) {
        f->indent--;
        fn_line(f, "}");
    }
    f->bound.n = mark;
    return true;
}
