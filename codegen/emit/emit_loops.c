/* emit_loops.c: prints a group as loops over its domain. With vectors, the last axis is the lane
 * loop; what does not depend on it is computed before it. */
#include "codegen/emit/emit.h"

/* ---- the lane loop --------------------------------------------------------------------------- */
/* A condition as a range of lanes: an invariant part, and bounds. */
typedef struct LaneCond {
    Axis *x;
    Expr *invariant;        /* bool */
    Expr *low[4], *high[4]; /* low <= lane < high */
    int nlow, nhigh;
} LaneCond;

/* Adds the bound second - first >= slack; false: it is none. */
static bool lane_bound(Cx *c, LaneCond *k, Expr *first, Expr *second, int64_t slack) {
    Expr *coef, *rest;
    if (first->dtype != DT_I64 || !e_affine(c, e_sub(c, second, first), k->x, &coef, &rest) ||
        e_uses_axis(rest, k->x))
        return false;
    if (e_is_ival(coef, 1) && k->nlow < 4)
        k->low[k->nlow++] = e_sub(c, e_int(c, slack), rest);
    else if (e_is_ival(coef, -1) && k->nhigh < 4)
        k->high[k->nhigh++] = e_addi(c, rest, 1 - slack);
    else
        return false;
    return true;
}

static bool lane_cond(Cx *c, LaneCond *k, Expr *e) {
    if (!e_uses_axis(e, k->x)) {
        k->invariant = e_and(c, k->invariant, e);
        return true;
    }
    switch (e->op) {
    case E_AND: return lane_cond(c, k, e->a[0]) && lane_cond(c, k, e->a[1]);
    case E_LE: return lane_bound(c, k, e->a[0], e->a[1], 0);
    case E_LT: return lane_bound(c, k, e->a[0], e->a[1], 1);
    case E_EQ:
        return lane_bound(c, k, e->a[0], e->a[1], 0) && lane_bound(c, k, e->a[1], e->a[0], 0);
    default: return false;
    }
}

/* Stores `value` of the only member for lanes [lo, hi). A select by position becomes separate
 * loops, so that padding and concatenation are plain copies. */
static void lane_loop(Group *g, Expr *value, const char *lo, const char *hi, int depth) {
    Fn *f = &g->f;
    Axis *x = g->k->axis[g->k->naxis - 1];
    if (value->op == E_SELECT && depth < 4) {
        LaneCond k = {.x = x, .invariant = e_bool(f->c, true)};
        if (lane_cond(f->c, &k, value->a[0])) {
            int id = f->ntemp++;
            Scope whole = fn_here(f);
            const char *a = arena_printf(f->a, "a%d", id), *b = arena_printf(f->a, "b%d", id);
            uint8_t flags = k.invariant->flags;
            for (int i = 0; i < k.nlow; i++) flags |= k.low[i]->flags;
            for (int i = 0; i < k.nhigh; i++) flags |= k.high[i]->flags;
            const bool inner = flags & (EF_LOAD | EF_GUARD); /* for these lanes only */
            if (inner) fn_open(f, "if (%s < %s) {", lo, hi);
            fn_hoist(f, k.invariant, 0, NULL);
            const char *inv = fn_expr(f, k.invariant);
            fn_line(f, "int64_t %s = %s, %s = %s;", a, lo, b, hi);
            for (int i = 0; i < k.nlow; i++)
                fn_line(f, "%s = bk_maxi(%s, %s);", a, a, fn_expr(f, k.low[i]));
            for (int i = 0; i < k.nhigh; i++)
                fn_line(f, "%s = bk_mini(%s, %s);", b, b, fn_expr(f, k.high[i]));
            fn_line(f, "%s = %s ? bk_mini(%s, %s) : %s;", a, inv, a, hi, hi);
            fn_line(f, "%s = bk_maxi(%s, %s);", b, a, b);
            /* Without a bound there is nothing on that side; what is printed twice has a limit. */
            const bool all = k.invariant->op == E_CONST && k.invariant->i, below = k.nlow || !all,
                       twice = below && k.nhigh;
            if (below) lane_loop(g, value->a[2], lo, a, depth + twice);
            lane_loop(g, value->a[1], a, b, depth + 1);
            if (k.nhigh) lane_loop(g, value->a[2], b, hi, depth + twice);
            if (inner) fn_close(f, whole);
            return;
        }
    }
    const Scope out = fn_open(f, "if (%s < %s) {", lo, hi);
    fn_hoist(f, value, 1, &x);
    if (g->k->lanes > 1 && !(value->flags & EF_REDUCE) && !fn_guarded(f, value))
        fn_line(f, "BK_SIMD");
    fn_open(f, "for (int64_t i = %s; i < %s; i++) {", lo, hi);
    fn_bind(f, e_axis(f->c, x), "i");
    group_store_member(g, 0, value);
    fn_close(f, out);
}

/* Stores all members at g->k->step positions of the last axis, number `at` of those. */
static void side_by_side(Group *g, const char *at) {
    Fn *f = &g->f;
    Cx *c = f->c;
    Axis *x = g->k->axis[g->k->naxis - 1];
    const Kernel *k = g->k;
    Axis *few = axis_new(c, e_bin(c, E_FDIV, x->extent, e_int(c, k->step)));
    fn_bind(f, e_axis(c, few), at);
    for (int j = 0; j < k->step; j++) {
        Expr *to = e_addi(c, e_muli(c, e_axis(c, few), k->step), j);
        const Scope one = fn_open(f, "{");
        for (int i = 0; i < k->n; i++) {
            Expr *value = e_subst(c, k->value[i], 1, &x, &to, NULL, NULL);
            Expr *position = e_subst(c, k->position[i], 1, &x, &to, NULL, NULL);
            group_store_at(g, i, value, position);
        }
        fn_close(f, one);
    }
}

void group_loops(Group *g) {
    Fn *f = &g->f;
    int n = g->k->naxis;
    const Scope out = fn_here(f);
    uint8_t flags = 0;
    for (int i = 0; i < g->k->n; i++) flags |= g->k->value[i]->flags;
    group_range(g);
    bool by_lanes = n > 0 && g->k->n == 1 && g->k->value[0]->op == E_SELECT;
    for (int d = 0; d < n - by_lanes; d++) {
        for (int i = 0; i < g->k->n; i++) fn_hoist(f, g->k->value[i], n - d, g->k->axis + d);
        bool lanes = g->k->lanes > 1 && d == n - 1 && !(flags & EF_REDUCE);
        for (int i = 0; i < g->k->n && lanes; i++) lanes = !fn_guarded(f, g->k->value[i]);
        if (g->k->axis[d] != g->k->split)
            fn_expr(f, g->k->axis[d]->extent); /* its statements must precede the directive */
        if (lanes) fn_line(f, "BK_SIMD");
        const char *name = arena_printf(f->a, "i%d", d);
        if (g->k->step > 1 && d == n - 1)
            fn_open(f, "for (int64_t %s = %s / %d; %s < %s / %d; %s++) {", name,
                    group_from(g, g->k->axis[d]), g->k->step, name, group_to(g, g->k->axis[d]),
                    g->k->step, name);
        else
            group_loop(g, g->k->axis[d], name);
    }
    if (g->k->step > 1)
        side_by_side(g, arena_printf(f->a, "i%d", n - 1));
    else if (by_lanes)
        lane_loop(g, g->k->value[0], group_from(g, g->k->axis[n - 1]),
                  group_to(g, g->k->axis[n - 1]), 0);
    else
        group_members(g);
    fn_close(f, out);
}
