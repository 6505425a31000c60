/* emit_hoist.c: what is printed before the place where it is used: before loops that it does not
 * depend on, and before choices that need not leave it out, for loops without conditions vectorize
 * better. */
#include "codegen/emit/emit.h"

bool fn_always_there(const Expr *e) {
    int64_t lo, hi, size;
    for (int i = 0; e->op == E_LOAD && i < e->n; i++)
        if (e->kind || e->a[i]->flags & (EF_LOAD | EF_GUARD | EF_SYM) ||
            !e_range(e->a[i], &lo, &hi) || !e_is_int(e->t->dim[i], &size) || lo < 0 || hi >= size)
            return false;
    return e->op == E_LOAD;
}

/* What a condition below e may leave out, but need not: loops without it vectorize better. */
static void hoist_loads(Fn *f, Map *seen, Expr *e, int n, Axis *const *inner) {
    if (!(e->flags & EF_LOAD) || e->op == E_REDUCE || fn_bound(f, e) ||
        map_geti(seen, (uint64_t)e->id + 1))
        return;
    bool inside = false;
    for (int i = 0; i < n; i++) inside |= e_uses_axis(e, inner[i]);
    if (!inside && fn_always_there(e))
        fn_temp(f, e);
    else if (e->op != E_LOAD && e->op != E_GUARD)
        for (int i = 0; i < e->n; i++) hoist_loads(f, seen, e->a[i], n, inner);
}

static void hoist(Fn *f, Map *seen, Expr *e, int n, Axis *const *inner) {
    bool leaf = !e->n && e->op != E_LOAD;
    if (leaf || fn_bound(f, e) || map_geti(seen, (uint64_t)e->id + 1)) return;
    map_seti(seen, (uint64_t)e->id + 1, e);
    bool inside = false;
    for (int i = 0; i < n; i++) inside |= e_uses_axis(e, inner[i]);
    if (!inside) {
        bool ready = true; /* the loops of all axes that it uses are open */
        if (e->flags & EF_AXIS) ready = e->op != E_REDUCE && !(e->flags & EF_REDUCE);
        bool worth = e->flags & (EF_LOAD | EF_GUARD) || e_is_unary(e->op) ||
                     e_work(e->op)->weight > 1 || e->op == E_CAST || e->op == E_SELECT;
        if (ready && worth && !(e->flags & EF_REDUCE)) fn_temp(f, e);
        return;
    }
    if (e->op == E_REDUCE) return;
    int last = e_always(e);
    for (int i = 0; i < last; i++) hoist(f, seen, e->a[i], n, inner);
    for (int i = last; i < e->n && e->op == E_SELECT; i++) hoist_loads(f, seen, e->a[i], n, inner);
}

void fn_hoist(Fn *f, Expr *e, int n, Axis *const *inner) { hoist(f, map_new(f->a), e, n, inner); }

/* ---- before a choice ------------------------------------------------------------------------- */
/* Marks what is evaluated whenever e is. */
static void mark_always(Map *seen, Expr *e) {
    if (!(e->flags & EF_LOAD) || !map_add(seen, (uint64_t)e->id + 1) || e->op == E_REDUCE) return;
    for (int i = 0, last = e_always(e); i < last; i++) mark_always(seen, e->a[i]);
}

/* Loads that are evaluated whenever e is, and are marked: both arms read them. */
static void load_marked(Fn *f, Map *seen, const Map *marked, Expr *e) {
    if (!(e->flags & EF_LOAD) || e->op == E_REDUCE || fn_bound(f, e) ||
        !map_add(seen, (uint64_t)e->id + 1))
        return;
    if (e->op == E_LOAD && map_geti(marked, (uint64_t)e->id + 1)) {
        fn_temp(f, e);
        return;
    }
    for (int i = 0, last = e_always(e); i < last; i++) load_marked(f, seen, marked, e->a[i]);
}

/* Whether e can be evaluated whatever conditions around it say. */
static bool evaluable_below(Fn *f, Map *seen, Expr *e) {
    if (!(e->flags & (EF_LOAD | EF_GUARD)) || !map_add(seen, (uint64_t)e->id + 1) || fn_bound(f, e))
        return true;
    if (e->op == E_REDUCE) return f->load && f->load(f, e);
    if (e->op == E_LOAD && f->own && f->own(f, e->t)) return true;
    if (e->op == E_GUARD || (e->op == E_LOAD && !fn_always_there(e))) return false;
    for (int i = 0; i < e->n; i++)
        if (!evaluable_below(f, seen, e->a[i])) return false;
    return true;
}
static bool evaluable(Fn *f, Expr *e) { return evaluable_below(f, map_new(f->a), e); }

/* Whether cond says that 0 <= at and at < size. */
static bool says(const Expr *cond, const Expr *at, int64_t size, bool low) {
    if (cond->op == E_AND)
        return says(cond->a[0], at, size, low) || says(cond->a[1], at, size, low);
    return low ? cond->op == E_LE && cond->a[1] == at && e_is_ival(cond->a[0], 0)
               : cond->op == E_LT && cond->a[0] == at && e_is_ival(cond->a[1], size);
}

/* A row that a number names, or zeros if there is no such row: its own condition keeps the load
 * inside, whatever conditions around it say. */
static bool is_row_or_zero(Fn *f, const Expr *e) {
    if (e->op != E_SELECT || !evaluable(f, e->a[0]) || e->a[1]->op != E_LOAD || e->a[1]->kind ||
        e->a[2]->op != E_CONST)
        return false;
    const Expr *load = e->a[1];
    for (int d = 0; d < load->n; d++) {
        int64_t lo, hi, size;
        Expr *at = load->a[d];
        if (!e_is_int(load->t->dim[d], &size) || !evaluable(f, at)) return false;
        if (!(at->flags & EF_LOAD) && e_range(at, &lo, &hi) && lo >= 0 && hi < size) continue;
        if (!says(e->a[0], at, size, true) || !says(e->a[0], at, size, false)) return false;
    }
    return true;
}

static void choose_rows(Fn *f, Map *seen, Expr *e) {
    if (!(e->flags & EF_LOAD) || e->op == E_REDUCE || e->op == E_LOAD || fn_bound(f, e) ||
        !map_add(seen, (uint64_t)e->id + 1))
        return;
    if (is_row_or_zero(f, e)) {
        fn_temp(f, e);
        return;
    }
    for (int i = 0, last = e_always(e); i < last; i++) choose_rows(f, seen, e->a[i]);
}

/* Whether there are choices below e, within which gcc does not choose by vectors. */
static bool has_choice(Map *seen, const Expr *e) {
    if (!(e->flags & EF_LOAD) || e->op == E_REDUCE || e->op == E_LOAD ||
        !map_add(seen, (uint64_t)e->id + 1))
        return false;
    bool found = e->op == E_SELECT || e->op == E_MAX || e->op == E_MIN;
    for (int i = 0; i < e->n && !found; i++) found = has_choice(seen, e->a[i]);
    return found;
}

void fn_ahead(Fn *f, Expr *e) {
    if (e->op != E_SELECT || !f->em || f->em->p->schedule->lanes <= 1) return;
    Map *marked = map_new(f->a);
    mark_always(marked, e->a[1]);
    load_marked(f, map_new(f->a), marked, e->a[2]);
    for (int i = 1; i < 3; i++) choose_rows(f, map_new(f->a), e->a[i]);
    for (int i = 1; i < 3 && fn_bound(f, e->a[0]); i++)
        if (has_choice(map_new(f->a), e->a[i]) && evaluable(f, e->a[i])) fn_temp(f, e->a[i]);
}
