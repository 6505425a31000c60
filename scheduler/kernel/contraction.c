/* contraction.c: finds sums of products, and what each axis is for them. */
#include "scheduler/kernel/contraction.h"
#include "scheduler/cost/decide.h"

#define NEAR 4 /* results at most so many elements apart are neighbours */
#define TURN 4 /* first caches full of weights that are read forwards and backwards in turn */

/* ---- finding --------------------------------------------------------------------------------- */
static bool take(void *user, Expr *e) {
    Contraction *k = user;
    Product *p = &k->p[k->n];
    if (k->n == MAX_PRODUCTS || is_sum_of_squares(e)) return false;
    /* Factors of 16 bits are converted once for all columns, where the kernel can do that. */
    const bool plain = kernel_product(k->g, e, p), narrow = plain && !product_plain(&p->sum);
    Product built;
    if ((!plain || narrow) && kernel_built(k->g, e, &built)) {
        *p = built;
        k->n++;
    } else
        k->n += plain;
    return false;
}

/* Sets up p for vector axis v as a dot product; false: it cannot. */
static bool orient_dot(const Contraction *k, Product *p, Axis *v) {
    Cx *c = k->g->c;
    const SumProduct s = p->sum;
    Axis *r = s.reduce->raxis[0];
    if (s.reduce->naxis != 1 || axis_size(r, INT64_MAX) < k->g->lanes || !product_plain(&s))
        return false;
    for (int i = 0; i < 2; i++)
        if (!e_is_ival(e_coef(c, s.flat[i], r), 1)) return false;
    AxisRole role = product_role(&s, v);
    if (role == ROLE_NONE) return false;
    *p = (Product){.sum = s, .both = role == ROLE_BATCH, .dot = true};
    product_turn(p, role == ROLE_N);
    return true;
}

/* Whether the packed operand can stay in codes. */
static bool stays_coded(const Product *p) {
    const Coded *k = p->vec->t->coded;
    const Expr *sum = p->sum.reduce;
    if (!k || !p->packed || p->both || p->vec->kind || sum->naxis != 1) return false;
    const Expr *at = p->vec->a[k->dim];
    return at->op == E_AXIS && at->axis == sum->raxis[0];
}

/* Sets up p for vector axis v; false: it cannot. */
static bool orient(const Contraction *k, Product *p, Axis *v) {
    Cx *c = k->g->c;
    const SumProduct *s = &p->sum;
    if (p->columns) return p->packed = p->columns == v;
    p->sym = NULL;
    for (int vec = 0; vec < 2; vec++) {
        Expr *x = e_coef(c, s->flat[vec], v), *y = e_coef(c, s->flat[!vec], v);
        bool both = !e_is_ival(y, 0), pack = !e_is_ival(x, 0) && packable(k->g, p, vec);
        Product other = *p;
        if (!pack && (!e_is_ival(x, 1) || s->load[vec]->dtype != DT_F32)) continue;
        if (both && (!e_is_ival(y, 1) || s->load[!vec]->dtype != DT_F32)) continue;
        if (both && vec == 0 && packable(k->g, &other, 1)) continue; /* prefer that one packed */
        product_turn(p, vec);
        p->packed = pack;
        p->both = both;
        p->dot = false;
        return true;
    }
    return orient_dot(k, p, v);
}

/* Products with the same factor one after another: those of a set then share it. */
static void by_factor(Contraction *k) {
    for (int j = 0; j < k->n; j++) {
        int to = j + 1;
        for (int i = j + 1; i < k->n; i++) {
            if (k->p[i].sca != k->p[j].sca) continue;
            Product p = k->p[i];
            memmove(k->p + to + 1, k->p + to, sizeof p * (size_t)(i - to));
            k->p[to++] = p;
        }
        j = to - 1;
    }
}

/* The axis that is laid over lanes, if one is worth it, and the products that can use it. */
static bool choose_lanes(Contraction *k) {
    const Kernel *g = k->g;
    int best = -1;
    int64_t best_score = 0;
    for (int i = 0; i < g->naxis; i++) {
        int64_t score = 0, n = axis_size(g->axis[i], -1);
        bool dots = false;
        if (n >= 0 && n < 4) continue;
        if (g->axis[i] == g->split && e_is_ival(g->grain, 1))
            continue; /* tiles start at whole vectors */
        for (int j = 0; j < k->n; j++) {
            Product p = k->p[j];
            if (!orient(k, &p, g->axis[i])) continue;
            dots |= p.dot;
            score += 1000 + (p.packed ? 150 : 0) - (p.dot ? 600 : p.both ? 300 : 0);
        }
        if (score < 1000 && !dots) continue; /* nothing is used twice */
        if (i == g->naxis - 1)
            score += n < 0 ? 200 : n >= g->lanes ? 400 : 50; /* contiguous stores */
        if (n >= g->lanes) score += 200;
        if (score > best_score) best = i, best_score = score;
    }
    if (best < 0) return false;
    k->v = g->axis[best];
    int n = 0;
    for (int j = 0; j < k->n; j++) {
        if (!orient(k, &k->p[j], k->v)) continue;
        k->p[j].coded = stays_coded(&k->p[j]) ? k->p[j].vec->t->coded : NULL;
        k->p[n++] = k->p[j];
    }
    k->n = n;
    return true;
}

/* Rows: an axis along which vectors are reused. */
static void choose_rows(Contraction *k) {
    const Kernel *g = k->g;
    int64_t most = 1;
    for (int i = 0; i < g->naxis; i++) {
        Axis *x = g->axis[i];
        if (x == k->v) continue;
        bool ok = true, moves = false;
        for (int j = 0; j < k->n; j++) {
            ok = ok && !k->p[j].both && !e_uses_axis(k->p[j].vec_flat, x);
            moves |= e_uses_axis(k->p[j].sca_flat, x);
        }
        int64_t size = axis_size(x, 1 << 20);
        if (ok && moves && size >= most) k->m = x, most = size; /* of unknown ones the inner */
    }
}

static bool like_codes(const Coded *a, const Coded *b) {
    return a && b ? a->bits == b->bits && a->block == b->block : a == b;
}

/* Sets: products over equal reduction axes run in one loop; not so many that few rows share a
 * vector, and then in each set about as many. */
static void choose_sets(Contraction *k) {
    int most = k->m && axis_size(k->m, ROW_BLOCK) >= 6 ? 4 : MAX_PRODUCTS;
    if (k->n > most) {
        by_factor(k);
        const int sets = (k->n + most - 1) / most;
        most = (k->n + sets - 1) / sets;
    }
    for (int j = 0; j < k->n; j++) {
        Product *p = &k->p[j];
        p->slot = j;
        for (p->set = 0; p->set < k->nset; p->set++) {
            int members = 0;
            for (int i = 0; i < j; i++) members += k->p[i].set == p->set;
            if (members == most) continue;
            if (k->dot[p->set] == p->dot && like_codes(k->coded[p->set], p->coded) &&
                product_share_axes(k->g->c, p, k->nraxis[p->set], k->raxis[p->set]))
                break;
        }
        if (p->set < k->nset) continue;
        if (k->nset == MAX_SETS) { /* the rest is reduced in the epilogue */
            k->n = j;
            break;
        }
        k->dot[k->nset] = p->dot;
        k->coded[k->nset] = p->coded;
        k->raxis[k->nset] = reduce_order(k->g->a, p->sum.reduce);
        k->nraxis[k->nset++] = p->sum.reduce->naxis;
    }
}

/* A reduction that no set computes. */
static bool is_other(void *user, Expr *e) {
    const Contraction *k = user;
    for (int j = 0; j < k->n; j++)
        if (k->p[j].sum.reduce == e) return false;
    return e->op == E_REDUCE;
}

/* ---- the order of tiles ---------------------------------------------------------------------- */
static bool in_loop(const Kernel *g) {
    for (const Seq *q = g->t[0]->seq; q && q->owner && q->owner->kind != S_CALL; q = q->parent)
        if (q->owner->kind == S_LOOP) return true;
    return false;
}

/* Where tiles begin and end. Those of packed operands begin where these do; of others at the unit's
 * own lanes, so that nothing is read that another unit may be writing. Weights that are much for
 * the first cache are read forwards and backwards in turn: what was read last is still there when
 * the next round begins with it. */
static void choose_order(Contraction *k) {
    const Kernel *g = k->g;
    bool split = k->v == g->split;
    int64_t n = axis_size(k->v, -1), grain = 0, bytes = 0;
    if (split && !e_is_int(g->grain, &grain)) grain = 1;
    k->own = split && !k->npanel;
    k->whole = n >= 0 && n % k->vt == 0 && grain % k->vt == 0 && !(split && g->s->op.inner);
    for (int j = 0; j < k->n && !k->whole; j++) k->tails |= !k->p[j].packed || k->p[j].both;
    for (int i = 0; i < k->npanel; i++) bytes += panel_bytes(&k->panel[i]);
    if (bytes >= TURN * g->p->schedule->device->level[LEVEL_LANE].bytes) {
        k->turn_calls = in_loop(g);
        k->turn_blocks = k->m;
    }
}

/* Which members are turned: neighbours along m, whose lanes lie far from each other. */
static void choose_across(Contraction *k) {
    const Kernel *g = k->g;
    int64_t m, v;
    if (!k->m || k->v == g->split || k->others || k->mr < NEAR) return;
    for (int i = 0; i < g->n; i++) {
        Expr *rows = e_coef(g->c, g->position[i], k->m),
             *lanes = e_coef(g->c, g->position[i], k->v);
        if (!rows || !e_is_int(rows, &m) || m < 1 || m > NEAR || !lanes || lanes->flags & EF_AXIS)
            continue;
        if (!e_is_int(lanes, &v) || v > NEAR) k->across |= 1u << i;
    }
}

bool kernel_contraction(Kernel *g, int64_t streamed) {
    Contraction k = {.g = g};
    Map *seen = map_new(g->a);
    for (int i = 0; i < g->n; i++) find_reduction(seen, g->value[i], true, take, &k);
    if (!k.n || !choose_lanes(&k)) return false;
    choose_rows(&k);
    choose_sets(&k);
    if (!k.n) return false;
    seen = map_new(g->a);
    for (int i = 0; i < g->n; i++)
        k.others |= find_reduction(seen, g->value[i], false, is_other, &k) != NULL;
    contraction_operands(&k);
    contraction_tile(&k, streamed);
    contraction_panels(&k, streamed);
    choose_order(&k);
    choose_across(&k);
    g->kind = KERNEL_CONTRACTION;
    g->contraction = arena_memdup(g->a, &k, sizeof k);
    return true;
}
