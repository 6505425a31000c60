/* dots_pack.c: constant operands in the order in which blocks of threads read them, and
 * which of them stay on chip.
 *
 * The layout: [symbol][outer axes that vec moves along][position of v][product][step]. So a unit's
 * columns are one piece. A column begins at a multiple of 16 bytes. */
#include "codegen/emit/gpu/dots.h"
#include <stdlib.h>

/* How an operand moves: along the symbol, outer axes, v; and along the steps. */
typedef struct Strides {
    int64_t stride[MAX_RANK + 2], extent[MAX_RANK + 2], step[MAX_RANK * 2], size[MAX_RANK * 2],
        base;
    int n;
} Strides;

static void add(Strides *w, Cx *c, Expr **rest, Axis *x) {
    Expr *coef;
    int64_t s = 0;
    e_affine(c, *rest, x, &coef, rest);
    e_is_int(coef, &s);
    w->stride[w->n] = s;
    e_is_int(x->extent, &w->extent[w->n++]);
}

static bool moves(const Dots *k, const Product *p, Axis *x) {
    return !e_is_ival(coef_of(k->g->em->c, p->vec_flat, x), 0);
}

static Strides strides_of(const Dots *k, const Product *p) {
    Cx *c = k->g->em->c;
    const Part *q = &k->part[p->set];
    Strides w = {0};
    Expr *rest = p->vec_flat, *coef;
    if (p->sym) {
        rest = e_replace(c, rest, p->sym, e_axis(c, p->sym_axis));
        add(&w, c, &rest, p->sym_axis);
    }
    for (int i = 0; i < k->nouter; i++)
        if (moves(k, p, k->outer[i])) add(&w, c, &rest, k->outer[i]);
    add(&w, c, &rest, k->v);
    for (int i = 0; i < q->nraxis; i++) {
        e_affine(c, rest, q->raxis[i], &coef, &rest);
        e_is_int(coef, &w.step[i]);
        e_is_int(q->raxis[i]->extent, &w.size[i]);
    }
    e_is_int(rest, &w.base);
    return w;
}

/* x as matrix units take it, in a word: to the nearest of 10 bits. */
static float round_tf32(float x) {
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    if ((u & 0x7f800000u) != 0x7f800000u) u = (u + 0x1000u) & 0xffffe000u;
    memcpy(&x, &u, sizeof u);
    return x;
}

/* One column, from position `at` of the constant. */
static void pack_column(const Part *q, const Strides *w, const Const *src, int64_t at, float *to) {
    int64_t idx[MAX_RANK * 2] = {0};
    for (int64_t i = 0; i < q->column * WORD / part_size(q); i++) {
        float x = i < q->length && at >= 0 && at < src->count
                      ? (float)elem_get_f(src->dtype, src->data, at)
                      : 0;
        if (part_size(q) < WORD)
            elem_set_f(q->matrix, to, i, x);
        else
            to[i] = q->matrix ? round_tf32(x) : x;
        for (int d = q->nraxis - 1; d >= 0; d--) {
            at += w->step[d];
            if (++idx[d] < w->size[d]) break;
            at -= w->step[d] * w->size[d];
            idx[d] = 0;
        }
    }
}

static const char *pack(Dots *k, Part *q) {
    Emit *em = k->g->em;
    Strides w[MAX_PRODUCTS];
    const Const *src[MAX_PRODUCTS];
    Sb key = {.a = em->a};
    sb_printf(&key, "columns %lld %d", (long long)q->column, q->matrix);
    int n = 0;
    for (int j = 0; j < k->n; j++) {
        const Product *p = &k->p[j];
        if (&k->part[p->set] != q) continue;
        w[n] = strides_of(k, p);
        src[n] = p->vec->t->data;
        sb_printf(&key, " %p %lld", (const void *)src[n]->data, (long long)w[n].base);
        for (int i = 0; i < w[n].n; i++)
            sb_printf(&key, " %lld*%lld", (long long)w[n].stride[i], (long long)w[n].extent[i]);
        for (int i = 0; i < q->nraxis; i++)
            sb_printf(&key, " %lld.%lld", (long long)w[n].step[i], (long long)w[n].size[i]);
        n++;
    }
    int64_t places = 1;
    for (int i = 0; i < w[0].n; i++) places *= w[0].extent[i];
    q->all = w[0].extent[w[0].n - 1] * q->n * q->column;
    const char *name = map_get(em->functions, key.p);
    if (!name) {
        float *data = em->held = malloc((size_t)places * (size_t)(q->n * q->column) * 4 + 64),
              *to = data;
        if (!data) err(em->c->d, ST_MEMORY, NULL, "out of memory for packing weights");
        int64_t idx[MAX_RANK + 2] = {0};
        for (int64_t i = 0; i < places; i++) {
            for (int j = 0; j < n; j++, to += q->column) {
                int64_t at = w[j].base;
                for (int d = 0; d < w[j].n; d++) at += idx[d] * w[j].stride[d];
                pack_column(q, &w[j], src[j], at, to);
            }
            for (int d = w[0].n - 1; d >= 0 && ++idx[d] == w[0].extent[d]; d--) idx[d] = 0;
        }
        const Tensor *t = k->p[q->lead].vec->t;
        name = emit_data(em, DT_F32, data, to - data, t->name ? t->name : "packed");
        free(data);
        em->held = NULL;
        map_set(em->functions, key.p, (void *)(uintptr_t)name);
    }
    sb_free(&key);
    return name;
}

/* How the axes that an operand is packed by lie around the one that units share. */
typedef struct Order {
    bool columns, outer;   /* units share columns; the positions of an outer axis */
    int64_t pieces, words; /* before it; of one of its positions */
    int64_t n;
    Expr *before, *behind; /* numbers of the piece, and of the place along outer axes behind it */
} Order;

static Order order_of(const Dots *k, const Part *q) {
    const Product *p = &k->p[q->lead];
    Cx *c = k->g->em->c;
    Order o = {.columns = k->v == k->g->k->split,
               .pieces = 1,
               .words = q->n * q->column,
               .n = axis_size(k->v, 1),
               .before = p->sym ? p->sym : e_int(c, 0),
               .behind = e_int(c, 0)};
    if (p->sym) o.pieces = axis_size(p->sym_axis, 1);
    if (!o.columns) o.words = q->all;
    for (int i = 0; i < k->nouter; i++) {
        Axis *x = k->outer[i];
        if (!moves(k, p, x)) continue;
        if (x == k->g->k->split)
            o.outer = true, o.n = axis_size(x, 1);
        else if (o.outer) {
            o.words *= axis_size(x, 1);
            o.behind = e_add(c, e_mul(c, o.behind, x->extent), e_axis(c, x));
        } else {
            o.pieces *= axis_size(x, 1);
            o.before = e_add(c, e_mul(c, o.before, x->extent), e_axis(c, x));
        }
    }
    return o;
}

/* Asks for the unit's part to be kept on chip. */
static void keep(Dots *k, Part *q) {
    const Product *p = &k->p[q->lead];
    if (!k->g->k->split) return;
    Order o = order_of(k, q);
    Resident r = {.weights = q->weights,
                  .what = p->vec->t->name ? p->vec->t->name : "packed",
                  .whole = !o.columns && !o.outer,
                  .pieces = o.pieces,
                  .n = o.n,
                  .words = o.words};
    if (r.whole) r.n = 1;
    const char *name = resident(k->g->em, k->g, r, p->sym ? axis_size(p->sym_axis, 1) : 1);
    if (!p->sym) ahead(k->g->em, k->g, r, name);
    if (name) q->weights = name, q->kept = true;
}

void dots_pack(Dots *k) {
    for (int i = 0; i < k->npart; i++) {
        Part *q = &k->part[i];
        if (!q->packed) continue;
        int64_t steps = dots_div(q->length, q->at_once) * q->at_once;
        /* Teams smaller than eight read several columns at once, which then lie in different banks.
         */
        q->column = q->matrix || (q->team < 8 && steps % 8 == 0) ? dots_pitch(q, steps) : steps;
        q->weights = pack(k, q);
        keep(k, q);
    }
}

void dots_weights(Dots *k, int part) {
    Group *g = k->g;
    Emit *em = g->em;
    Fn *f = &g->f;
    Cx *c = em->c;
    const Part *q = &k->part[part];
    Order o = order_of(k, q);
    /* The weights are an argument, so that equal layers share this function. */
    Tensor *w = tensor_new(c, TK_CONST, DT_F32, 0, NULL);
    Const *data = NEW(em->a, Const);
    *data = (Const){.dtype = DT_F32, .count = 1, .data = q->weights};
    w->data = data;
    map_seti(em->const_name, (uint64_t)(uintptr_t)data->data, (void *)(uintptr_t)q->weights);
    const char *at = f->tensor(f, w), *positions = arena_printf(f->a, "%lld", (long long)o.n);
    if (q->kept && (o.columns || o.outer) && o.pieces > 1) {
        fn_line(f, "const int64_t w%d_positions = bk_on_chip(%s) ? to - from : %s;", part, at,
                positions);
        positions = arena_printf(f->a, "w%d_positions", part);
    }
    const char *piece = fn_expr(f, o.before),
               *words = arena_printf(f->a, "%lld", (long long)o.words);
    const char *first = q->kept ? "from" : "0";
    if (o.outer) {
        const char *own = arena_printf(f->a, "(%s) * %s + %s - %s", piece, positions,
                                       fn_expr(f, e_axis(c, g->k->split)), first);
        fn_line(f, "const float *const w%d = %s + (%s) * %s + (%s) * %lld;", part, at, own, words,
                fn_expr(f, o.behind), (long long)q->all);
    } else if (o.columns)
        fn_line(f, "const float *const w%d = %s + (%s) * %s * %s;", part, at, piece, positions,
                words);
    else
        fn_line(f, "const float *const w%d = %s + (%s) * %s;", part, at, piece, words);
    fn_line(f, "const int64_t w%d_first = %s;", part, o.columns ? first : "0");
}
