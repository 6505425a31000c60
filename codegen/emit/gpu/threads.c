/* threads.c: prints a group whose positions are distributed over threads or teams of threads
 * (scheduler/kernel/threads.h). */
#include "codegen/emit/emit.h"
#include "scheduler/kernel/threads.h"

static const Team block = {"bk_thread()", "BK_THREADS", "bk_all", "0", "1"};

/* Computes into variables the sums in e that do not depend on axis x; all of them if x is NULL. */
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
void group_place(Group *g, int n, const char *type, const char *at) {
    Fn *f = &g->f;
    const char *rest = at;
    for (int d = n - 1; d >= 0; d--) {
        Axis *x = g->k->axis[d];
        const char *name = arena_printf(f->a, "i%d", d), *from = x == g->k->split ? "from + " : "";
        const char *size = group_count(g, 1, &x);
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

/* Opens the loop over positions along the first n axes, from `first` on by `step`, and binds the
 * axes. */
static void open_positions(Group *g, int n, const char *first, const char *step) {
    Fn *f = &g->f;
    const char *count = group_count(g, n, g->k->axis);
    const char *type = count_is_small(n, g->k->axis) ? "uint32_t" : "int64_t";
    fn_line(f, "const %s count = (%s)(%s);", type, type, count);
    fn_open(f, "for (%s at = %s; at < count; at += %s) {", type, first, step);
    group_place(g, n, type, "at");
}

void group_threads(Group *g) {
    const ThreadsKernel *k = g->k->threads;
    Fn *f = &g->f;
    int n = g->k->naxis;
    const Scope out = fn_here(f);
    group_range(g);
    for (int i = 0; i < g->k->n && n; i++)
        fn_hoist(f, g->k->value[i], n, g->k->axis); /* not without axes: members read members */
    if (k->team == TEAM_THREAD) {
        open_positions(g, n, g->crew.self, g->crew.size);
        group_members(g);
        fn_close(f, out);
        return;
    }
    Axis *inner = k->row;
    const Team warp = {"bk_lane()", "BK_WARP", "bk_team", g->crew.warp, g->crew.warps};
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
                team->self, name, group_to(g, inner), name, team->size);
        fn_bind(f, e_axis(f->c, inner), name);
    } else {
        fn_open(f, "if (%s == 0) {", team->self);
    }
    group_members(g);
    fn_close(f, out);
}
