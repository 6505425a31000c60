/* threads.c: the function of a group where a unit is a block of threads.
 *
 * All positions of the unit's part are numbered in row-major order and dealt out to the threads, so
 * that neighbouring threads store side by side. Where sums do not move along the last axis (a
 * softmax, a normalization), or where each position is a long sum and there are few of them, a team
 * of threads takes a row or a position instead: it computes the sums together, by a share of each
 * and an exchange between its threads, and then shares the row. A team is a warp, or all of the
 * block where there would be too few rows for its warps. */
#include "codegen/emit/emit.h"
#include "scheduler/cost/decide.h"

#define LONG_SUM 32 /* terms that are worth the exchange */
#define FEW 256     /* positions of a unit below which threads would be idle */
#define FEW_ROWS 3  /* rows of a unit below which warps would be idle */

static const Team warp = {"bk_lane()", "BK_WARP", "bk_team", "bk_warp()", "bk_warps()"};
static const Team block = {"bk_thread()", "BK_THREADS", "bk_all", "0", "1"};

/* ---- what kind of group it is ---------------------------------------------------------------- */
typedef struct Sums {
    const Axis *inner; /* the last axis, or NULL */
    bool outer;        /* a long sum that does not move along it */
    bool every;        /* a long sum at each position */
    int64_t most;      /* terms of the longest of them */
} Sums;

static int64_t terms(const Expr *reduce) {
    int64_t all = 1, n;
    for (int i = 0; i < reduce->naxis; i++)
        if (!e_is_int(reduce->raxis[i]->extent, &n) || !mul_size(all, n, &all)) return INT32_MAX;
    return all;
}

static void find_sums(Sums *k, Map *seen, const Expr *e) {
    if (!(e->flags & EF_REDUCE) || map_geti(seen, (uint64_t)e->id + 1)) return;
    map_seti(seen, (uint64_t)e->id + 1, (void *)(uintptr_t)e);
    if (e->op == E_REDUCE) {
        if (terms(e) < LONG_SUM || e->kind >= R_ARGMAX) return;
        if (terms(e) > k->most) k->most = terms(e);
        if (k->inner && !e_uses_axis(e, k->inner))
            k->outer = true;
        else
            k->every = true;
        return;
    }
    /* What a choice may leave out is left to the thread that chose. */
    int last = e_always(e);
    for (int i = 0; i < last; i++) find_sums(k, seen, e->a[i]);
}

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
    fn_line(f, "for (%s at = %s; at < count; at += %s) {", type, first, step);
    fn_open(f);
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

static void close_loop(Group *g) {
    g->f.indent--;
    fn_line(&g->f, "}");
}

/* How many positions along its first n axes a unit has, as far as known. */
static int64_t positions(const Group *g, int n) {
    int64_t all = 1, size;
    int units = 1;
    for (int d = 0; d < n; d++) {
        if (!e_is_int(g->k->axis[d]->extent, &size) || !mul_size(all, size, &all)) return INT32_MAX;
        if (g->k->axis[d] == g->k->split) units = schedule_units(g->em->p->schedule, g->k->s->level);
    }
    return (all + units - 1) / units;
}

void group_threads(Group *g) {
    Fn *f = &g->f;
    int n = g->k->naxis, mark = f->bound.n;
    Sums k = {.inner = n ? g->k->axis[n - 1] : NULL};
    Map *seen = map_new(g->em->a);
    for (int i = 0; i < g->k->n; i++) find_sums(&k, seen, g->k->value[i]);
    group_range(g);
    for (int i = 0; i < g->k->n && n; i++)
        fn_hoist(f, g->k->value[i], n, g->k->axis); /* without axes, members are read by members */
    bool rows = n && k.outer, teams = rows || (k.every && positions(g, n) < FEW);
    if (!teams) {
        open_positions(g, n, "bk_thread()", "bk_threads()");
        group_members(g);
        close_loop(g);
        f->bound.n = mark;
        return;
    }
    Axis *inner = rows ? g->k->axis[n - 1] : NULL;
    const Device *d = g->em->p->schedule->device;
    const Team *team = positions(g, n - rows) < FEW_ROWS && k.most >= d->threads ? &block : &warp;
    open_positions(g, n - rows, team->at, team->all);
    f->team = team;
    for (int i = 0; i < g->k->n; i++) share_sums(f, g->k->value[i], inner);
    f->team = NULL;
    if (rows) {
        for (int i = 0; i < g->k->n; i++) fn_hoist(f, g->k->value[i], 1, &inner);
        bool split = inner == g->k->split;
        const char *name = arena_printf(f->a, "i%d", n - 1);
        fn_line(f, "for (int64_t %s = %s%s; %s < %s; %s += %s) {", name, split ? "from + " : "",
                team->self, name, split ? "to" : fn_expr(f, inner->extent), name, team->size);
        fn_open(f);
        fn_bind(f, e_axis(f->c, inner), name);
    } else {
        fn_line(f, "if (%s == 0) {", team->self);
        fn_open(f);
    }
    group_members(g);
    close_loop(g);
    close_loop(g);
    f->bound.n = mark;
}
