/* threads.c: the function of a group whose positions are dealt out to threads or teams of them
 * (scheduler/kernel/threads.h). */
#include "codegen/emit/emit.h"
#include "scheduler/kernel/threads.h"

static const Team warp = {"bk_lane()", "BK_WARP", "bk_team", "bk_warp()", "bk_warps()"};
static const Team block = {"bk_thread()", "BK_THREADS", "bk_all", "0", "1"};

/* Gives variables to the sums below e that do not move along axis x, all of them when x is NULL. */
static void share_sums(Fn *f, Expr *e, const Axis *x) {
    if (!(e->flags & EF_REDUCE)) return;
    if (e->op == E_REDUCE) {
        if (!x || !e_uses_axis(e, x)) fn_temp(f, e);
        return;
    }
    int last = e_always(e);
    for (int i = 0; i < last; i++) share_sums(f, e->a[i], x);
}

/* ---- positions ------------------------------------------------------------------------------- */
/* Positions of the unit's part along the first n axes, as text; *small: their number fits 32 bits
 * for certain. */
static const char *count_text(Group *g, int n, bool *small) {
    Fn *f = &g->f;
    const char *s = NULL;
    int64_t all = 1, size;
    *small = true;
    for (int d = 0; d < n; d++) {
        Axis *x = g->k->axis[d];
        if (!e_is_int(x->extent, &size) || !mul_size(all, size, &all)) *small = false;
        const char *part = x == g->k->split ? "(to - from)" : fn_expr(f, x->extent);
        s = s ? arena_printf(f->a, "%s * %s", s, part) : part;
    }
    *small = *small && all < INT32_MAX;
    return s ? s : "1";
}

/* Opens the loop over positions along the first n axes, dealt out by `first` and `step`, and binds
 * the axes. */
static void open_positions(Group *g, int n, const char *first, const char *step) {
    Fn *f = &g->f;
    bool small;
    const char *count = count_text(g, n, &small), *type = small ? "uint32_t" : "int64_t";
    fn_line(f, "const %s count = (%s)(%s);", type, type, count);
    fn_open(f, "for (%s at = %s; at < count; at += %s) {", type, first, step);
    const char *rest = "at";
    for (int d = n - 1; d >= 0; d--) {
        Axis *x = g->k->axis[d];
        const char *name = arena_printf(f->a, "i%d", d), *from = x == g->k->split ? "from + " : "";
        const char *size = x == g->k->split ? "(to - from)" : fn_expr(f, x->extent);
        if (d == 0)
            fn_line(f, "const int64_t %s = %s(int64_t)%s;", name, from, rest);
        else {
            fn_line(f, "const int64_t %s = %s(int64_t)(%s %% (%s)%s);", name, from, rest, type,
                    size);
            fn_line(f, "const %s rest%d = %s / (%s)%s;", type, d, rest, type, size);
            rest = arena_printf(f->a, "rest%d", d);
        }
        fn_bind(f, e_axis(f->c, x), name);
    }
}

void group_threads(Group *g) {
    const ThreadsKernel *k = g->k->threads;
    Fn *f = &g->f;
    int n = g->k->naxis;
    const Scope out = fn_here(f);
    group_range(g);
    for (int i = 0; i < g->k->n && n; i++)
        fn_hoist(f, g->k->value[i], n, g->k->axis); /* without axes, members are read by members */
    if (k->team == TEAM_THREAD) {
        open_positions(g, n, "bk_thread()", "bk_threads()");
        group_members(g);
        fn_close(f, out);
        return;
    }
    Axis *inner = k->row;
    const Team *team = k->team == TEAM_BLOCK ? &block : &warp;
    open_positions(g, n - (inner != NULL), team->at, team->all);
    f->team = team;
    for (int i = 0; i < g->k->n; i++) share_sums(f, g->k->value[i], inner);
    f->team = NULL;
    if (inner) {
        for (int i = 0; i < g->k->n; i++) fn_hoist(f, g->k->value[i], 1, &inner);
        bool split = inner == g->k->split;
        const char *name = arena_printf(f->a, "i%d", n - 1);
        fn_open(f, "for (int64_t %s = %s%s; %s < %s; %s += %s) {", name, split ? "from + " : "",
                team->self, name, split ? "to" : fn_expr(f, inner->extent), name, team->size);
        fn_bind(f, e_axis(f->c, inner), name);
    } else {
        fn_open(f, "if (%s == 0) {", team->self);
    }
    group_members(g);
    fn_close(f, out);
}
