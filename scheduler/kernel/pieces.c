/* pieces.c: see pieces.h. */
#include "scheduler/kernel/pieces.h"

#define PIECES_DEEP 3  /* choices inside each other: what they print grows with each */
#define NODES_MOST 60  /* of a member that is worth printing several times */
#define LANES_LEAST 16 /* positions of the axis that are worth loops of their own */
#define PERIOD_LEAST 9 /* shorter ones are computed side by side (kernel.c) */

/* ---- choices by position --------------------------------------------------------------------- */
typedef struct Bend {
    Expr *cond, *yes, *no;
} Bend;

/* Whether second - first moves with v by one in each step, and is affine otherwise. */
static bool by_one(Cx *c, Expr *first, Expr *second, Axis *v) {
    const Expr *step = e_coef(c, e_sub(c, second, first), v);
    return step && (e_is_ival(step, 1) || e_is_ival(step, -1));
}

/* Whether e, a position, is one of two by a bound on v. */
static bool bend_of(Cx *c, Expr *e, Axis *v, Bend *b) {
    Expr *zero = e_int(c, 0), *x = e->a[0], *y = e->n > 1 ? e->a[1] : zero;
    switch (e->op) {
    case E_ABS: *b = (Bend){e_le(c, zero, x), x, e_sub(c, zero, x)}; return by_one(c, zero, x, v);
    case E_MIN: *b = (Bend){e_le(c, x, y), x, y}; return by_one(c, x, y, v);
    case E_MAX: *b = (Bend){e_le(c, y, x), x, y}; return by_one(c, x, y, v);
    case E_SELECT:
        *b = (Bend){x, y, e->a[2]};
        return (x->op == E_LE || x->op == E_LT) && x->a[0]->dtype == DT_I64 &&
               by_one(c, x->a[0], x->a[1], v);
    default: return false;
    }
}

/* Finds such a position below e; `index`: e is part of one. Also counts nodes. */
static Expr *find_bend(Cx *c, Map *seen, Expr *e, Axis *v, bool index, Bend *b, int *nodes) {
    if (!map_add(seen, (uint64_t)e->id * 2 + index + 1)) return NULL;
    ++*nodes;
    if (!e_uses_axis(e, v)) return NULL;
    for (int i = 0; i < e->n; i++) {
        Expr *found = find_bend(c, seen, e->a[i], v, index || e->op == E_LOAD, b, nodes);
        if (found) return found;
    }
    return index && e->dtype == DT_I64 && e->n && bend_of(c, e, v, b) ? e : NULL;
}

static Expr *straighten(const Kernel *k, Expr *value, int deep) {
    Cx *c = k->c;
    Bend b;
    int nodes = 0;
    if (deep == PIECES_DEEP) return value;
    Expr *e = find_bend(c, map_new(k->a), value, k->axis[k->naxis - 1], false, &b, &nodes);
    if (!e || nodes > NODES_MOST) return value;
    return e_sel(c, b.cond, straighten(k, e_replace(c, value, e, b.yes), deep + 1),
                 straighten(k, e_replace(c, value, e, b.no), deep + 1));
}

/* ---- periods --------------------------------------------------------------------------------- */
/* The least period of remainders by v below e that divides `extent`; `best` where there is none. */
static int64_t period_of(Map *seen, const Expr *e, const Axis *v, int64_t extent, int64_t best) {
    int64_t n;
    if (!e_uses_axis(e, v) || !map_add(seen, (uint64_t)e->id + 1)) return best;
    if (e->op == E_MOD && e->dtype == DT_I64 && e_is_int(e->a[1], &n) && n >= PERIOD_LEAST &&
        extent % n == 0 && n < best)
        best = n;
    for (int i = 0; i < e->n; i++) best = period_of(seen, e->a[i], v, extent, best);
    return best;
}

static bool has_remainder(Map *seen, const Expr *e, const Axis *v) {
    if (!e_uses_axis(e, v) || !map_add(seen, (uint64_t)e->id + 1)) return false;
    bool found = e->op == E_MOD || e->op == E_FDIV;
    for (int i = 0; i < e->n && !found; i++) found = has_remainder(seen, e->a[i], v);
    return found;
}

static void by_periods(Kernel *k) {
    Cx *c = k->c;
    Axis *v = k->axis[k->naxis - 1];
    int64_t extent, period;
    if (v == k->split || v == k->strip || k->naxis == MAX_RANK || !e_is_int(v->extent, &extent))
        return;
    period = extent;
    Map *seen = map_new(k->a);
    for (int i = 0; i < k->n; i++) period = period_of(seen, k->value[i], v, extent, period);
    if (period == extent) return;
    Axis *outer = axis_new(c, e_int(c, extent / period)), *inner = axis_new(c, e_int(c, period));
    Expr *at = e_add(c, e_muli(c, e_axis(c, outer), period), e_axis(c, inner));
    Expr **value = NEWN(k->a, Expr *, k->n), **position = NEWN(k->a, Expr *, k->n);
    for (int i = 0; i < k->n; i++) {
        value[i] = e_subst(c, k->value[i], 1, &v, &at, NULL, NULL);
        position[i] = e_subst(c, k->position[i], 1, &v, &at, NULL, NULL);
        if (has_remainder(map_new(k->a), value[i], inner)) return;
    }
    k->value = value;
    k->position = position;
    k->axis[k->naxis - 1] = outer;
    k->axis[k->naxis++] = inner;
}

void kernel_pieces(Kernel *k) {
    if (!k->naxis || axis_size(k->axis[k->naxis - 1], LANES_LEAST) < LANES_LEAST) return;
    for (int i = 0; i < k->n; i++)
        if (k->value[i]->flags & (EF_REDUCE | EF_GUARD)) return;
    by_periods(k);
    if (k->n == 1) k->value[0] = straighten(k, k->value[0], 0);
}
