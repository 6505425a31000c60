/* integer.c: see integer.h; finding such sums, the order of their axes, the tile. */
#include "scheduler/kernel/integer.h"
#include "scheduler/cost/decide.h"

#define NEAR_BYTES                                                                                 \
    (256 << 10)                 /* of x that stay in the second-level cache while all of w passes  \
                                 */
#define COPIED_BYTES (64 << 10) /* of copied rows of x: they lie on the stack */
#define MADE_BYTES (64 << 10)   /* of what is packed at once while the program runs; likewise */
#define MADE_ROWS 8             /* … and rows that it is multiplied by */
#define SMALL 64                /* 2 * 255 * 64 < 2^15 */
#define BLOCK_MOST 4096         /* positions */
#define WINDOW_MOST 8           /* positions of a window that are written out */
#define ACROSS_MOST 64          /* the same along m, where members are stored across */

/* ---- finding --------------------------------------------------------------------------------- */
/* How many columns of w a step along axis i is; 0: w does not move along it; -1: not by whole
 * vectors. */
static int64_t columns_along(const Integer *k, const int64_t *along, int i) {
    const Kernel *g = k->g;
    const int64_t one = along[g->naxis - 1], n = one ? along[i] / one : 0;
    return !along[i] ? 0 : one && along[i] % one == 0 && n > 0 && n % g->lanes == 0 ? n : -1;
}

/* The zero point of w, as `to` has it: a constant, or one of a constant by column. */
static bool weight_zero(const Integer *k, const IntegerSum *s, Expr *zero, Packed *to) {
    const Kernel *g = k->g;
    int64_t along[MAX_RANK], base;
    if (!zero || e_is_int(zero, &to->zero_is)) return true;
    if (zero->op == E_CAST) zero = zero->a[0];
    if (zero->op != E_LOAD || zero->t->kind != TK_CONST || dtype_size(zero->dtype) != 1)
        return false;
    Expr *rest = flat_of(g->c, zero);
    if (!e_strides(g->c, rest, g->naxis, g->axis, along, &rest) || !e_is_int(rest, &base))
        return false;
    for (int i = 0; i < g->naxis - 1; i++) {
        const int64_t n = columns_along(k, along, i);
        if (n < 0 || (along[g->naxis - 1] && !e_is_ival(e_coef(g->c, s->column, g->axis[i]), n)))
            return false;
    }
    to->zero = (PackSource){.data = zero->t->data, .base = base, .stride = {along[g->naxis - 1]}};
    return true;
}

static void measure_axes(IntegerSum *s) {
    s->length = 1;
    for (int i = 0; i < s->n; i++) {
        s->extent[i] = axis_size(s->axis[i], 0);
        if (i >= s->n - s->run) s->length *= s->extent[i];
    }
}

/* Orders the axes of the sum: the longest run along which x lies together is last. Of neighbours in
 * it one has the stride of the other times its extent. */
static void order_axes(const Integer *k, IntegerSum *s) {
    Cx *c = k->g->c;
    int n = s->n;
    int64_t next = 1, at;
    for (bool found = true; found && !s->channels;) {
        found = false;
        for (int i = n - 1; i >= 0 && !found; i--) {
            if (!e_is_int(e_coef(c, s->x_flat, s->axis[i]), &at) || at != next) continue;
            Axis *x = s->axis[i];
            memmove(s->axis + i, s->axis + i + 1, sizeof x * (size_t)(n - i - 1));
            s->axis[--n] = x;
            next *= axis_size(x, 1);
            found = true;
        }
    }
    s->run = s->n - n;
    s->copied = !s->channels && !s->run && s->n;
    if (s->copied) s->run = s->n;
    if (s->channels && s->n) s->run = 1;
    measure_axes(s);
}

/* Where the elements of w are, in the order in which they are read; false: they cannot be packed.
 */
static bool plan_packing(const Integer *k, IntegerSum *s, Packed *p) {
    const Kernel *g = k->g;
    PackSource *q = &p->source[0];
    int64_t along[MAX_RANK];
    Expr *rest;
    if (!e_strides(g->c, s->w_flat, g->naxis, g->axis, along, &rest)) return false;
    s->column = e_int(g->c, 0);
    s->columns = k->nlane;
    for (int i = 0; i < g->naxis - 1; i++) {
        const int64_t n = columns_along(k, along, i), size = axis_size(g->axis[i], 0);
        if (n < 0 || (n > 0 && (size < 1 || s->channels))) return false;
        s->column = e_add(g->c, s->column, e_muli(g->c, e_axis(g->c, g->axis[i]), n));
        s->columns += n * (size - 1);
    }
    *q = (PackSource){.data = s->w->t->data};
    if (!along[g->naxis - 1] || !e_strides(g->c, rest, s->n, s->axis, q->stride + 1, &rest) ||
        !e_is_int(rest, &q->base))
        return false;
    for (int i = 0; i < s->n; i++) p->extent[1 + i] = s->extent[i];
    q->stride[0] = along[g->naxis - 1] * g->lanes;
    q->stride[1 + s->n] = along[g->naxis - 1];
    p->extent[1 + s->n] = g->lanes;
    p->what = s->w->t->name;
    p->nsource = p->ninner = 1;
    p->nouter = 1 + s->n;
    p->tile = 0;
    p->limit = s->columns;
    p->step = integer_step(s);
    p->run = s->run;
    return true;
}

/* Whether the constant w is at most a quarter of what 8 bits can be, as it is packed. */
static bool is_small(const Expr *w) {
    const Const *data = w->t->data;
    const int64_t flip = w->dtype == DT_U8 ? 128 : 0;
    for (int64_t i = 0; i < data->count; i++) {
        const int64_t v = elem_get_i(data->dtype, data->data, i) - flip;
        if (v < -SMALL || v > SMALL) return false;
    }
    return true;
}

/* Takes a reduction in the wanted form. */
static bool take(void *user, Expr *e) {
    Integer *k = user;
    const Kernel *g = k->g;
    SumProduct p;
    Packed packed = {0};
    if (k->n == INTEGER_SUMS || e->naxis > INTEGER_AXES || !product_of_bytes(e, &p) ||
        !product_affine(g->c, &p, g->naxis, g->axis))
        return false;
    bool may[2];
    for (int i = 0; i < 2; i++)
        may[i] = e_uses_axis(p.load[i], k->v) &&
                 (p.load[i]->t->kind == TK_CONST || p.load[!i]->t->kind != TK_CONST);
    const int w = may[1];
    IntegerSum *s = &k->s[k->n++];
    *s = (IntegerSum){.reduce = e,
                      .x = p.load[!w],
                      .w = p.load[w],
                      .x_flat = p.flat[!w],
                      .w_flat = p.flat[w],
                      .x_zero = p.zero[!w],
                      .channels = e_uses_axis(p.load[!w], k->v),
                      .made = p.load[w]->t->kind != TK_CONST,
                      .n = e->naxis};
    if (!may[w] || s->x->t->kind == TK_CONST || (s->made && s->channels) ||
        (s->x_zero && e_uses_axis(s->x_zero, k->v)) ||
        (s->channels && !e_is_ival(e_coef(g->c, s->x_flat, k->v), 1)))
        return false;
    for (int i = 0; i < g->n; i++)
        if (s->x->t == g->t[i] || s->w->t == g->t[i]) return false;
    Axis **order = reduce_order(g->a, e);
    for (int i = 0; i < s->n; i++) {
        s->axis[i] = order[i];
        if (axis_size(order[i], 0) < 1) return false;
    }
    order_axes(k, s);
    const int dots = s->channels ? 4 : g->p->schedule->dots;
    s->small = dots == 2 && !s->made && is_small(s->w);
    s->pairs = dots < 4 && !s->small;
    s->row = s->channels ? s->length : integer_steps(s) * integer_step(s);
    for (int i = 0; i < s->n - s->run; i++) s->row *= s->extent[i];
    if (s->made) {
        s->w_zero = p.zero[w];
        return !s->w_zero || !e_uses_axis(s->w_zero, k->v);
    }
    return plan_packing(k, s, &packed) && weight_zero(k, s, p.zero[w], &packed);
}

static bool is_outermost(const Integer *k, const Axis *x) {
    bool outer = false;
    for (int i = 0; i < k->n; i++) {
        const IntegerSum *s = &k->s[i];
        outer |= s->made ? x != k->v && (e_uses_axis(s->w_flat, x) ||
                                         (s->w_zero && e_uses_axis(s->w_zero, x)))
                         : e_uses_axis(s->column, x);
    }
    return outer;
}

/* Axes that w moves along go to the front. */
static void order_outermost(Integer *k) {
    Kernel *g = k->g;
    for (int i = 1, front = 0; i <= g->naxis - 1; i++) {
        Axis *x = g->axis[i - 1];
        if (!is_outermost(k, x)) continue;
        memmove(g->axis + front + 1, g->axis + front, sizeof x * (size_t)(i - 1 - front));
        g->axis[front++] = x;
    }
}

static bool recognize_last(Integer *k) {
    Kernel *g = k->g;
    int64_t grain;
    k->v = g->axis[g->naxis - 1];
    if (!e_is_int(k->v->extent, &k->nlane) || k->nlane * 2 < g->lanes ||
        (k->v == g->split && (!e_is_int(g->grain, &grain) || grain % g->lanes)))
        return false;
    k->n = 0;
    Map *seen = map_new(g->a);
    for (int i = 0; i < g->n; i++)
        if (!all_reductions(seen, g->value[i], take, k)) return false;
    order_outermost(k);
    return k->n > 0;
}

/* Where the last axis cannot be laid over lanes, another one becomes the last: results that keep
 * the model's order are stored one by one. */
static bool recognize(Integer *k) {
    Kernel *g = k->g;
    if (!g->naxis || g->n > 4) return false;
    if (recognize_last(k)) return true;
    Axis *kept[MAX_RANK];
    memcpy(kept, g->axis, sizeof kept);
    for (int i = g->naxis - 2; i >= 0; i--) {
        memmove(g->axis + i, kept + i + 1, sizeof *kept * (size_t)(g->naxis - i - 1));
        g->axis[g->naxis - 1] = kept[i];
        if (recognize_last(k)) return true;
        memcpy(g->axis, kept, sizeof kept);
    }
    return false;
}

/* ---- packing --------------------------------------------------------------------------------- */
/* Whether zero points of w are not 0 as w is packed: less 128 if it has no sign. */
static bool has_zeros(const IntegerSum *s, const Packed *p) {
    const int64_t flip = s->w->dtype == DT_U8 ? 128 : 0;
    if (!p->zero.data) return p->zero_is != flip;
    for (int64_t l = 0; l < s->columns; l++)
        if (elem_get_i(p->zero.data->dtype, p->zero.data->data,
                       p->zero.base + l * p->zero.stride[0]) != flip)
            return true;
    return false;
}

int64_t integer_vectors(const Integer *k, const IntegerSum *s) {
    if (s->made) return k->v_block / k->g->lanes;
    return tile_vectors(k->g, k->v, k->nlane, k->nv) + (s->columns - k->nlane) / k->g->lanes;
}

static int64_t stream_of(const Kernel *g, const IntegerSum *s) {
    int64_t stream = g->lanes * integer_bytes(s) * integer_steps(s);
    for (int i = 0; i < s->n - s->run; i++) stream *= s->extent[i];
    return stream;
}

static void pack(const Integer *k, IntegerSum *s, Expr *zero) {
    const Kernel *g = k->g;
    Packed p = {0};
    s->stream = stream_of(g, s);
    if (s->made) return;
    bool known = plan_packing(k, s, &p) && weight_zero(k, s, zero, &p);
    ASSERT(known);
    p.extent[0] = integer_vectors(k, s);
    p.line = g->lanes * integer_step(s);
    p.form = PACK_STEPS;
    p.dtype = s->channels ? DT_I16 : DT_I8;
    s->packed = packed_intern(g->p, &p);
    p.dtype = DT_I32;
    p.form = PACK_SUMS;
    s->sums = packed_intern(g->p, &p);
    p.form = PACK_ZEROS;
    s->zeros = !s->channels && has_zeros(s, &p) ? packed_intern(g->p, &p) : NULL;
}

/* ---- shape ----------------------------------------------------------------------------------- */
/* A run of positions is cut into as few tiles as possible, of nearly equal heights: of a run of
 * known length there are two, of others any. */
static void choose_heights(Integer *k, int64_t run) {
    k->nheight = 0;
    if (run > 0) {
        const int64_t tiles = div_up(run, k->rows);
        k->rows = (int)div_up(run, tiles);
        k->height[k->nheight++] = k->rows;
        if (run % tiles) k->height[k->nheight++] = k->rows - 1;
        return;
    }
    for (int r = k->rows; r >= 1 && k->nheight<INTEGER_HEIGHTS; r -= r> 8 ? 4 : 1)
        k->height[k->nheight++] = r;
    k->height[k->nheight - 1] = 1;
}

static void choose_blocks(Integer *k) {
    const Kernel *g = k->g;
    int64_t longest = 1, m = 1;
    bool copied = false;
    for (int i = 0; i < k->n; i++) {
        const IntegerSum *s = &k->s[i];
        if (s->row << s->pairs > longest) longest = s->row << s->pairs;
        copied |= s->copied || s->pairs;
    }
    k->block = (copied ? COPIED_BYTES : NEAR_BYTES) / longest;
    if (k->block > BLOCK_MOST) k->block = BLOCK_MOST;
    if (k->across && k->block > ACROSS_MOST) k->block = ACROSS_MOST;
    if (k->block < k->rows) k->block = k->rows;
    const bool known = !k->m || (k->m != g->split && e_is_int(k->m->extent, &m));
    if (known) k->block = m <= k->block ? k->block / m * m : div_up(m, div_up(m, k->block));
    k->m_block = known && m < k->block ? m : k->block;
    k->b_block = k->b ? k->block / k->m_block : 1;
    k->block = k->m_block * k->b_block;
    choose_heights(k, known && m == k->m_block ? m : 0);
}

/* Puts the axis of a short window along m, if s has one, in front of the run, a longer axis. */
static void find_window(const Integer *k, IntegerSum *s) {
    Cx *c = k->g->c;
    int64_t by, by_m;
    if (!s->channels || s->n < 2 || !k->m || !e_is_int(e_coef(c, s->x_flat, k->m), &by_m)) return;
    for (int i = 0; i < s->n && !s->every; i++) {
        if (!e_is_int(e_coef(c, s->x_flat, s->axis[i]), &by) || by < 1 || by_m % by ||
            by_m / by < 1 || by_m / by >= s->extent[i] || s->extent[i] > WINDOW_MOST)
            continue;
        Axis *window = s->axis[i];
        s->every = (int)(by_m / by);
        memmove(s->axis + i, s->axis + i + 1, sizeof window * (size_t)(s->n - i - 1));
        s->axis[s->n - 1] = s->axis[s->n - 2];
        s->axis[s->n - 2] = window;
        measure_axes(s);
    }
}

/* Tiles and blocks along v whose packed factors fit on the stack. */
static void choose_made(Integer *k) {
    int64_t bytes = 0; /* of a vector's */
    for (int i = 0; i < k->n; i++)
        if (k->s[i].made) bytes += stream_of(k->g, &k->s[i]);
    if (!bytes) return;
    while (k->nv > 1 && k->nv * bytes > MADE_BYTES) k->nv--;
    const int64_t most = MADE_BYTES / (k->nv * bytes) * k->nv, all = div_up(k->nlane, k->g->lanes);
    k->v_block = (most < all ? most : round_up(all, k->nv)) * k->g->lanes;
}

/* Vectors of sums that fit into registers, beside those of factors. */
static int sums_most(const Integer *k) {
    int most = k->g->lanes >= 16 ? 24 : 12;
    for (int i = 0; i < k->n && most < 24; i++)
        if (!k->s[i].pairs) most = k->s[i].channels ? 8 : 10;
    return most;
}

static void choose_tile(Integer *k) {
    const Kernel *g = k->g;
    const int64_t nvec = div_up(k->nlane, g->lanes), most = g->lanes >= 16 ? 4 : 2;
    int inner = g->naxis - 1;
    while (inner > 0 && is_outermost(k, g->axis[g->naxis - 1 - inner])) inner--;
    k->m = inner > 0 ? g->axis[g->naxis - 2] : NULL;
    k->b = inner > 1 ? g->axis[g->naxis - 3] : NULL;
    k->nv = (int)div_up(nvec, div_up(nvec, most));
    choose_made(k);
    k->vt = k->nv * g->lanes;
    k->rows = k->m ? sums_most(k) / k->nv : 1;
    for (int i = 0; i < g->n && k->m; i++) {
        Expr *at = g->position[i];
        if (!e_by_one(g->c, at, k->v) && e_by_one(g->c, at, k->m)) k->across |= 1u << i;
    }
    choose_blocks(k);
    for (int i = 0; i < k->n; i++) find_window(k, &k->s[i]);
}

/* Whether enough rows multiply a factor that has to be packed first, on the stack. */
static bool worth_making(const Integer *k, const IntegerSum *s) {
    return !s->made || (k->v_block && k->m && axis_size(k->m, MADE_ROWS) >= MADE_ROWS);
}

bool kernel_integer(Kernel *g) {
    Integer *k = NEW(g->a, Integer);
    SumProduct p;
    k->g = g;
    if (!recognize(k)) return false;
    kernel_collapse(g);
    if (!recognize(k)) return false;
    choose_tile(k);
    for (int i = 0; i < k->n; i++) {
        product_of_bytes(k->s[i].reduce, &p);
        pack(k, &k->s[i], p.zero[p.load[1] == k->s[i].w]);
        if (!worth_making(k, &k->s[i])) return false;
    }
    g->kind = KERNEL_INTEGER;
    g->integer = k;
    return true;
}
