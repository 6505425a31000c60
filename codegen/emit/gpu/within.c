/* within.c: prints a loop with the time inside of one function (scheduler/plan/within.h). */
#include "codegen/emit/emit_tree.h"
#include "scheduler/cost/cost.h"
#include "scheduler/plan/within.h"

#define TRIPS 65536 /* iterations of a call: between two, a run can be cancelled */

typedef struct WithinText {
    Group g; /* first: its Fn's hooks get a pointer to it */
    const Within *w;
    const Stmt *loop;
    const char *now; /* name of the iteration's number */
    const char *end; /* of the one behind the last that is on chip */
    const char *(*symbol)(Fn *f, Sym *s);
} WithinText;

static const char *inside_symbol(Fn *f, Sym *s) {
    WithinText *x = f->user;
    return s == x->loop->loop.iter ? x->now : x->symbol(f, s);
}

/* What a lane has of the sum, in front of the exchange. */
static const char *lane_term(WithinText *x, const WithinSum *s) {
    Fn *f = &x->g.f;
    int64_t n;
    const char *term = fn_expr(f, s->term);
    if (e_is_int(x->w->lane->extent, &n) && n == x->w->width) return term;
    return arena_printf(f->a, "(lane < %s ? %s : %s)", fn_expr(f, x->w->lane->extent), term,
                        fn_neutral(f, s->e));
}

/* A sum over the lanes' axis, in every lane of the row. */
static const char *lane_sum(Group *g, Expr *e) {
    WithinText *x = (WithinText *)g;
    Fn *f = &g->f;
    int i = 0;
    while (i < x->w->sum.n && x->w->sum.p[i].e != e) i++;
    if (i == x->w->sum.n) return NULL;
    const char *type = c_type(e->dtype), *term = lane_term(x, &x->w->sum.p[i]);
    const char *sum = arena_printf(f->a, "sum%d", f->ntemp++);
    fn_line(f, "%s %s = %s;", type, sum, term);
    fn_open(f, "for (int far = %d; far; far /= 2) {", x->w->width / 2);
    fn_line(f, "const %s other = __shfl_xor_sync(BK_ALL_LANES, %s, far);", type, sum);
    fn_combine(f, e, sum, "other");
    fn_end(f);
    fn_bind(f, e, sum);
    return sum;
}

/* ---- what is copied into the block's memory ---------------------------------------------------
 */
static bool uses_rows(const WithinText *x, const Expr *e) {
    for (int d = 0; d < x->w->k->naxis - (x->w->lane != NULL); d++)
        if (e_uses_axis(e, x->w->k->axis[d])) return true;
    return false;
}

static bool is_staged(const WithinText *x, const Expr *load) {
    return within_stage(x->w, load) != NULL;
}

static bool has_load(const ExprVec *v, const Expr *load) {
    for (int i = 0; i < v->n; i++)
        if (v->p[i] == load) return true;
    return false;
}

/* The values of these loads (NULL: of all) in iteration `now`, from the block's memory. */
static void put_staged(WithinText *x, const ExprVec *v, const char *now) {
    Fn *f = &x->g.f;
    for (int i = 0; i < x->w->stage.n; i++) {
        const WithinStage *s = &x->w->stage.p[i];
        if (v && !has_load(v, s->load)) continue;
        const char *name = arena_printf(f->a, "f%d", i);
        fn_line(f, "const float %s = s%d[(int)(%s - base) * %d];", name, i, now,
                s->rows * s->lanes);
        fn_bind(f, s->load, name);
    }
}

/* Copies what iterations from `ready` to `next` load to buffer `turn`; `outside`: what is bound
 * outside of the loop over rows. */
static void put_copies(WithinText *x, int outside, const char *type) {
    Fn *f = &x->g.f;
    const Within *w = x->w;
    const int n = w->k->naxis - (w->lane != NULL);
    const Scope here = fn_here(f);
    const Bound *bound = f->bound.p;
    for (int i = 0; i < w->stage.n; i++) {
        const WithinStage *s = &w->stage.p[i];
        const int all = s->rows * s->lanes;
        f->bound.p = arena_memdup(f->a, bound, (size_t)outside * sizeof *bound);
        f->bound.n = f->bound.cap = outside;
        fn_open(f, "for (int q = bk_thread(); q < (int)(next - ready) * %d; q += bk_threads()) {",
                all);
        fn_line(f, "const int64_t now = ready + q / %d;", all);
        x->now = "now";
        if (s->rows > 1) {
            fn_line(f, "const %s row = first + (%s)(q %% %d / %d);", type, type, all, s->lanes);
            fn_line(f, "const %s at = row < rows ? row : rows - 1;", type);
            group_place(&x->g, n, type, "at");
        } else if (uses_rows(x, s->load))
            group_place(&x->g, n, type, "first");
        if (s->lanes > 1) {
            fn_line(f, "const int64_t i%d = q %% %d;", n, s->lanes);
            fn_bind(f, e_axis(f->c, w->lane), arena_printf(f->a, "i%d", n));
        }
        Expr *flat = flat_of(f->c, s->load);
        const char *from = fn_around(f, s->load->t, &flat);
        const char *to = arena_printf(f->a, "%d + turn * %d + q", s->at, w->chunk * all);
        const char *at = fn_at(f, flat);
        if (w->k->p->schedule->device->async)
            fn_line(f, "bk_copy1(block + %s, %s + %s, true);", to, from, at);
        else
            fn_line(f, "block[%s] = %s[%s];", to, from, at);
        f->indent = here.indent;
        fn_line(f, "}");
    }
    f->bound.p = (Bound *)(uintptr_t)bound;
    f->bound.n = f->bound.cap = here.bound;
}

/* ---- one iteration --------------------------------------------------------------------------- */
static void put_members(WithinText *x, bool late) {
    Fn *f = &x->g.f;
    const Within *w = x->w;
    for (int i = 0; i < w->k->n; i++)
        if (w->m[i].late == late) {
            fn_line(f, "const %s m%d = %s;", c_type(w->k->t[i]->dtype), i,
                    fn_expr(f, w->k->value[i]));
            fn_computed(f, w->k->t[i], w->k->value[i]);
        }
}

/* Whether e contains what the iteration before computed. */
static bool reads_carried(const WithinText *x, Map *seen, const Expr *e) {
    if (!map_add(seen, (uint64_t)e->id + 1)) return false;
    for (int i = 0; i < x->loop->loop.carry.n && e->op == E_LOAD; i++)
        if (x->loop->loop.carry.p[i].phi == e->t) return true;
    for (int i = 0; i < x->w->k->n && e->op == E_LOAD; i++)
        if (x->w->k->t[i] == e->t) return reads_carried(x, seen, x->w->k->value[i]);
    for (int i = 0; i < e->n; i++)
        if (reads_carried(x, seen, e->a[i])) return true;
    return false;
}
static bool function_reads_carried(const WithinText *x, Map *seen, const Expr *e) {
    if (!map_add(seen, (uint64_t)e->id + 1)) return false;
    if (expr_row[e->op].work == WORK_FUNCTION && reads_carried(x, map_new(x->g.f.a), e))
        return true;
    for (int i = 0; i < e->n; i++)
        if (function_reads_carried(x, seen, e->a[i])) return true;
    return false;
}

static void put_carried(WithinText *x) {
    Map *seen = map_new(x->g.f.a);
    bool waits = false;
    for (int i = 0; i < x->w->k->n && !waits; i++)
        waits = function_reads_carried(x, seen, x->w->k->value[i]);
    if (waits) fn_line(&x->g.f, "bk_then_all();");
    for (int i = 0; i < x->loop->loop.carry.n; i++)
        fn_line(&x->g.f, "c%d = m%d;", i, x->w->next[i]);
}

/* Stores `value` as what member i has in the iteration. */
static void put_stacked(WithinText *x, int i, const char *value) {
    Fn *f = &x->g.f;
    const Kernel *k = x->w->k;
    const LoopScan *s = x->w->m[i].scan;
    Expr *at = s->at ? s->at : e_sym(f->c, x->loop->loop.iter);
    Expr *place = e_add(f->c, e_mul(f->c, at, tensor_count(f->c, k->t[i])), k->position[i]);
    fn_line(f, "o%d[%s] = %s;", i, fn_expr(f, place), fn_store(f, k->t[i]->dtype, value));
}

/* The threads that store member i. */
static const char *owner(const WithinText *x, int i) {
    return !x->w->lane ? "live" : x->w->m[i].row ? "live && lane == 0" : "own";
}

/* All members, then those that are stacked, one iteration after the other. */
static void put_rest(WithinText *x) {
    Fn *f = &x->g.f;
    const Scope out = fn_open(f, "for (; step < %s; step++) {", x->end);
    x->now = "step";
    put_staged(x, NULL, "step");
    put_members(x, false);
    put_members(x, true);
    for (int i = 0; i < x->w->k->n; i++)
        if (x->w->m[i].scan) {
            const Scope store = fn_open(f, "if (%s) {", owner(x, i));
            put_stacked(x, i, arena_printf(f->a, "m%d", i));
            fn_close(f, store);
        }
    put_carried(x);
    fn_close(f, out);
}

/* ---- several iterations ---------------------------------------------------------------------- */
static Scope open_steps(WithinText *x) {
    Fn *f = &x->g.f;
    fn_line(f, "BK_UNROLL");
    const Scope out = fn_open(f, "for (int j = 0; j < %d; j++) {", x->w->steps);
    fn_line(f, "const int64_t now = step + j;");
    x->now = "now";
    return out;
}

/* Loads for all of them; a late member's for the lane's own. */
static void put_fetch(WithinText *x) {
    Fn *f = &x->g.f;
    const Within *w = x->w;
    bool any = false;
    for (int i = 0; i < w->fetch.n; i++)
        if (!is_staged(x, w->fetch.p[i])) {
            fn_line(f, "%s l%d[%d];", c_type(w->fetch.p[i]->dtype), i, w->steps);
            any = true;
        }
    if (any) {
        const Scope steps = open_steps(x);
        for (int i = 0; i < w->fetch.n; i++)
            if (!is_staged(x, w->fetch.p[i]))
                fn_line(f, "l%d[j] = %s;", i, fn_expr(f, w->fetch.p[i]));
        fn_close(f, steps);
    }
    for (int i = 0; i < w->ahead.n; i++) {
        if (is_staged(x, w->ahead.p[i])) continue;
        fn_line(f, "%s a%d;", c_type(w->ahead.p[i]->dtype), i);
        const Scope mine = fn_open(f, "{");
        fn_line(f, "const int64_t now = step + lane;");
        x->now = "now";
        fn_line(f, "a%d = %s;", i, fn_expr(f, w->ahead.p[i]));
        fn_close(f, mine);
    }
}

/* Adds up late sum i: each exchange leaves a lane half of the iterations, at last its own. */
static void put_late_sum(WithinText *x, int i) {
    Fn *f = &x->g.f;
    const WithinSum *s = &x->w->sum.p[i];
    const char *type = c_type(s->e->dtype), *to = arena_printf(f->a, "e%d[j]", i);
    for (int half = x->w->width / 2; half; half /= 2) {
        fn_line(f, "BK_UNROLL");
        fn_open(f, "for (int j = 0; j < %d; j++) {", half);
        fn_line(f, "const bool upper = lane & %d;", half);
        fn_line(f,
                "const %s other = __shfl_xor_sync(BK_ALL_LANES, upper ? e%d[j] : e%d[j + %d], %d);",
                type, i, i, half, half);
        fn_line(f, "if (upper) e%d[j] = e%d[j + %d];", i, i, half);
        fn_combine(f, s->e, to, "other");
        fn_end(f);
    }
}

/* The iterations that a lane has of late members. */
static void put_late(WithinText *x) {
    Fn *f = &x->g.f;
    const Within *w = x->w;
    for (int i = 0; i < w->sum.n; i++)
        if (w->sum.p[i].late) put_late_sum(x, i);
    const Scope out = fn_open(f, "{");
    fn_line(f, "const int64_t now = step + lane;");
    x->now = "now";
    for (int i = 0; i < w->sum.n; i++)
        if (w->sum.p[i].late) fn_bind(f, w->sum.p[i].e, arena_printf(f->a, "e%d[0]", i));
    for (int i = 0; i < w->ahead.n; i++)
        if (!is_staged(x, w->ahead.p[i])) fn_bind(f, w->ahead.p[i], arena_printf(f->a, "a%d", i));
    put_staged(x, &w->ahead, "now");
    put_members(x, true);
    const Scope store = fn_open(f, "if (live) {");
    for (int i = 0; i < w->k->n; i++)
        if (w->m[i].late && w->m[i].scan) put_stacked(x, i, arena_printf(f->a, "m%d", i));
    fn_close(f, store);
    fn_close(f, out);
}

/* Loads first, stores last. */
static void put_steps(WithinText *x) {
    Fn *f = &x->g.f;
    const Within *w = x->w;
    const Scope out =
        fn_open(f, "for (; step + %d <= %s; step += %d) {", w->steps, x->end, w->steps);
    put_fetch(x);
    for (int i = 0; i < w->sum.n; i++)
        if (w->sum.p[i].late) fn_line(f, "%s e%d[%d];", c_type(w->sum.p[i].e->dtype), i, w->steps);
    for (int i = 0; i < w->k->n; i++)
        if (w->m[i].scan && !w->m[i].late)
            fn_line(f, "%s y%d[%d];", c_type(w->k->t[i]->dtype), i, w->steps);
    const Scope steps = open_steps(x);
    for (int i = 0; i < w->fetch.n; i++)
        if (!is_staged(x, w->fetch.p[i]))
            fn_bind(f, w->fetch.p[i], arena_printf(f->a, "l%d[j]", i));
    put_staged(x, &w->fetch, "now");
    put_members(x, false);
    for (int i = 0; i < w->sum.n; i++)
        if (w->sum.p[i].late) fn_line(f, "e%d[j] = %s;", i, lane_term(x, &w->sum.p[i]));
    for (int i = 0; i < w->k->n; i++)
        if (w->m[i].scan && !w->m[i].late) fn_line(f, "y%d[j] = m%d;", i, i);
    put_carried(x);
    fn_close(f, steps);
    if (w->batch) put_late(x);
    for (int i = 0; i < w->k->n; i++) {
        if (!w->m[i].scan || w->m[i].late) continue;
        const Scope store = fn_open(f, "if (%s) {", owner(x, i));
        open_steps(x);
        put_stacked(x, i, arena_printf(f->a, "y%d[j]", i));
        fn_close(f, store);
    }
    fn_close(f, out);
}

/* ---- the function ---------------------------------------------------------------------------- */
/* Opens the loop over the unit's rows, or positions, and binds the axes. All lanes of a warp make
 * the exchanges: those without a row take the last one, and store nothing. */
static void open_rows(WithinText *x, int n, const char *type) {
    Fn *f = &x->g.f;
    const Within *w = x->w;
    fn_line(f, "const %s rows = (%s)(%s);", type, type, group_count(&x->g, n, w->k->axis));
    if (w->lane) {
        fn_line(f, "const int lane = bk_thread() %% %d;", w->width);
        fn_line(f, "const int64_t i%d = bk_mini(lane, %s - 1);", n, fn_expr(f, w->lane->extent));
        fn_bind(f, e_axis(f->c, w->lane), arena_printf(f->a, "i%d", n));
    }
    if (w->chunk) fn_line(f, "float *const block = (float *)(bk_shared() + BK_SCRATCH);");
    fn_open(f, "for (%s first = 0; first < rows; first += %d) {", type, w->rows);
    if (w->chunk) fn_line(f, "bk_block();"); /* within_meets */
    fn_line(f, "const int place = bk_thread() / %d, warp = bk_warp() * (BK_WARP / %d);", w->width,
            w->width);
    fn_line(f, "const bool busy = warp < %d && first + (%s)warp < rows;", w->rows, type);
    if (!w->chunk) fn_line(f, "if (!busy) break;");
    fn_line(f, "const %s mine = first + (%s)place;", type, type);
    fn_line(f, "const bool live = busy && mine < rows;");
    if (w->lane) fn_line(f, "const bool own = live && lane < %s;", fn_expr(f, w->lane->extent));
    fn_line(f, "const %s at = mine < rows ? mine : rows - 1;", type);
    group_place(&x->g, n, type, "at");
}

/* The carried values' first ones: the initial ones, or what the last call left. */
static void put_first(WithinText *x) {
    Fn *f = &x->g.f;
    const Within *w = x->w;
    for (int i = 0; i < x->loop->loop.carry.n; i++) {
        Tensor *phi = x->loop->loop.carry.p[i].phi;
        const int m = w->next[i];
        Expr *first = e_loadf(f->c, phi, w->k->position[m]);
        const char *type = c_type(phi->dtype);
        fn_line(f, "%s c%d;", type, i);
        const Scope either = fn_open(f, "if (begin == 0) {");
        fn_line(f, "c%d = %s;", i, fn_expr(f, first));
        fn_else(f, either, "} else {");
        fn_line(f, "c%d = %s;", i,
                fn_loaded(f, phi->dtype,
                          arena_printf(f->a, "o%d[%s]", m, fn_expr(f, w->k->position[m]))));
        fn_close(f, either);
    }
    for (int i = 0; i < w->own.n; i++)
        fn_bind(f, w->own.p[i].load, arena_printf(f->a, "c%d", w->own.p[i].carry));
}

static void put_iterations(WithinText *x) {
    x->end = x->w->chunk ? "ready" : "end";
    if (x->w->steps > 1) put_steps(x);
    put_rest(x);
}

/* Iterations from `step` to `ready` while the next ones are copied to the other buffer. */
static void put_chunks(WithinText *x, int outside, const char *type) {
    Fn *f = &x->g.f;
    const Within *w = x->w;
    fn_line(f, "int64_t ready = begin;");
    const Scope out = fn_open(f, "for (int turn = 0;; turn ^= 1) {");
    fn_line(f, "const int64_t next = bk_mini(ready + %d, end);", w->chunk);
    put_copies(x, outside, type);
    const Scope busy = fn_open(f, "if (busy) {");
    fn_line(f, "const int64_t base = step;");
    for (int i = 0; i < w->stage.n; i++) {
        const WithinStage *s = &w->stage.p[i];
        const char *row = s->rows > 1 ? arena_printf(f->a, " + place * %d", s->lanes) : "";
        fn_line(f, "const float *const s%d = block + %d + (turn ^ 1) * %d%s%s;", i, s->at,
                w->chunk * s->rows * s->lanes, row,
                s->lanes > 1 ? arena_printf(f->a, " + i%d", w->k->naxis - 1) : "");
    }
    put_iterations(x);
    fn_close(f, busy);
    fn_line(f, "if (ready == end) break;");
    fn_line(f, "bk_copied();");
    fn_line(f, "bk_block();");
    fn_line(f, "step = ready;");
    fn_line(f, "ready = next;");
    fn_close(f, out);
}

static void put_function(WithinText *x) {
    Fn *f = &x->g.f;
    const Within *w = x->w;
    const Scope out = fn_here(f);
    for (int i = 0; i < w->sum.n; i++) fn_count(f, w->sum.p[i].term);
    for (int i = 0; i < w->stage.n; i++) fn_count(f, flat_of(f->c, w->stage.p[i].load));
    group_range(&x->g);
    const int n = w->k->naxis - (w->lane != NULL);
    const char *type = count_is_small(n, w->k->axis) ? "uint32_t" : "int64_t";
    const int outside = f->bound.n;
    open_rows(x, n, type);
    for (int i = 0; i < w->fixed.n; i++) fn_temp(f, w->fixed.p[i]);
    put_first(x);
    fn_line(f, "int64_t step = begin;");
    if (w->chunk)
        put_chunks(x, outside, type);
    else
        put_iterations(x);
    for (int i = 0; i < x->loop->loop.carry.n; i++) {
        const int m = w->next[i];
        const Scope store = fn_open(f, "if (%s) {", owner(x, m));
        fn_line(f, "o%d[%s] = %s;", m, fn_expr(f, w->k->position[m]),
                fn_store(f, w->k->t[m]->dtype, arena_printf(f->a, "c%d", i)));
        fn_close(f, store);
    }
    fn_close(f, out);
}

void emit_within(Tree *x, Stmt *s, int id) {
    Fn *f = &x->f;
    Arena *a = x->em->a;
    const Within *w = s->loop.within;
    const char *iter = tree_symbol(f, s->loop.iter), *counter = x->loop->counter;
    bool *unstored = NEWN(a, bool, w->k->n);
    WithinText in = {.w = w, .loop = s};
    for (int i = 0; i < w->k->n; i++) unstored[i] = w->m[i].carry < 0 && !w->m[i].scan;
    group_begin(&in.g, x->em, w->k);
    in.g.unstored = unstored;
    in.g.ns = cost_stmt_ns(x->em->p, s, schedule_units(x->em->p->schedule, w->k->s->level));
    in.g.reduce = lane_sum;
    in.symbol = in.g.f.symbol;
    in.g.f.symbol = inside_symbol;
    put_function(&in);
    tree_local(x, "const int64_t", arena_printf(a, "n%d", id), tree_expr(x, s->loop.trips));
    const Scope most = fn_open(f, "if (n%d > k->max_iterations) {", id);
    fn_line(f, "bk_fault_said(k, %d, k->max_iterations, BK_UNSAID, BK_UNSAID, BK_UNSAID);",
            s->loop.cap_site);
    fn_line(f, "%s", tree_stop(x, "BK_FAULT"));
    fn_close(f, most);
    x->loop->counter = "0"; /* the first of two buffers */
    for (int i = 0; i < s->loop.carry.n; i++)
        tree_place(x, s->loop.carry.p[i].next, tree_bytes(x, s->loop.carry.p[i].next));
    x->loop->counter = counter;
    for (int i = 0; i < s->loop.scan.n; i++) {
        tree_declare(x, s->loop.scan.p[i].elem, "NULL");
        fn_line(f, "%s = %s;", tree_tensor(f, s->loop.scan.p[i].elem),
                tree_tensor(f, s->loop.scan.p[i].out));
    }
    probe_loop_begin(x, s);
    fn_line(f, "%s = 0;", iter);
    const Scope calls = fn_open(f, "while (%s < n%d) {", iter, id);
    fn_line(f, "const int64_t end%d = bk_mini(n%d, %s + %d);", id, id, iter, TRIPS);
    group_end(&in.g, f, &x->decl, ", int64_t begin, int64_t end",
              arena_printf(a, ", %s, end%d", iter, id));
    fn_line(f, "%s = end%d;", iter, id);
    fn_line(f, "if ((st = bk_loop_state(k, %s)) != BK_OK) %s", x->team ? x->team : "unit, nunit",
            tree_stop(x, "st"));
    fn_close(f, calls);
    const Scope made = fn_open(f, "if (n%d > 0) {", id);
    for (int i = 0; i < s->loop.carry.n; i++)
        fn_line(f, "%s = %s;", tree_tensor(f, s->loop.carry.p[i].phi),
                tree_tensor(f, s->loop.carry.p[i].next));
    fn_close(f, made);
    probe_loop_end(x, s, counter);
}
