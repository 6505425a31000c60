/* dots.c: prints the group's function of sums of products by blocks of threads
 * (scheduler/kernel/dots.h). */
#include "codegen/emit/gpu/dots.h"

static const char *tile_text(Group *g, Expr *e) {
    const DotsKernel *k = g->k->dots;
    for (int j = 0; j < k->n; j++) {
        if (k->p[j].sum.reduce != e) continue;
        const DotsPart *q = &k->part[k->p[j].set];
        return arena_printf(g->em->a, "block[%lld + %s]",
                            (long long)(q->sums + (int64_t)k->p[j].place * k->bm * k->bv),
                            k->by_row ? arena_printf(g->em->a, "l * %d + row", k->bm)
                                      : arena_printf(g->em->a, "row * %d + l", k->bv));
    }
    return NULL;
}

void dots_bind(Group *g, int n, Axis *const *axis, char name, const char *rest, const char *type,
               const char *at) {
    Fn *f = &g->f;
    for (int d = n - 1; d >= 0; d--) {
        Axis *x = axis[d];
        const char *from = group_from(g, x), *size = group_count(g, 1, &x);
        from = strcmp(from, "0") ? arena_printf(f->a, "%s + ", from) : "";
        if (d == 0)
            fn_line(f, "const int64_t %c0 = %s%s;", name, from, at);
        else {
            const bool wide = size[strspn(size, "0123456789")] != 0; /* no number, perhaps wider */
            const char *of = arena_printf(f->a, wide ? "(%s)(%s)" : "%s%s", wide ? type : "", size);
            if (d == n - 1) at = arena_printf(f->a, "(%s)(%s)", type, at);
            fn_line(f, "const int64_t %c%d = %s%s %% %s;", name, d, from, at, of);
            fn_line(f, "const %s %s%d = %s / %s;", type, rest, d, at, of);
            at = arena_printf(f->a, "%s%d", rest, d);
        }
        fn_bind(f, e_axis(f->c, x), arena_printf(f->a, "%c%d", name, d));
    }
}

void dots_bind_rows(Group *g, const DotsKernel *k, const char *at) {
    const char *type = count_is_small(k->nrow, k->row) ? "uint32_t" : "int64_t";
    dots_bind(g, k->nrow, k->row, 'j', "up", type, at);
}

/* Copies a chunk's operands. */
static void copy_chunk(Group *g, const DotsKernel *k, int i, const char *at, const char *buffer) {
    for (int vec = 0; vec < 2; vec++)
        if (part_copies(&k->part[i], vec)) dots_copy(g, k, i, vec, at, buffer);
}

/* Whether the block always copies a chunk first, between two barriers. */
static bool begins_by_chunks(const DotsKernel *k) {
    const DotsPart *q = &k->part[0];
    return !q->when && !q->direct && !(q->whole && q->packed);
}

/* Sums chunk by chunk. */
static void chunks(Group *g, const DotsKernel *k, int i) {
    Fn *f = &g->f;
    const DotsPart *q = &k->part[i];
    if (q->length >= 0)
        fn_line(f, "const int64_t steps = %lld;", (long long)q->length);
    else
        fn_line(f, "const int64_t steps = %s;", group_count(g, q->nraxis, q->raxis));
    if (i || !begins_by_chunks(k))
        fn_line(f, "%s;", g->crew.meet); /* the memory may still be in use */
    const int ahead = q->buffers - 1, begin = ahead * q->chunk;
    if (!ahead) {
        copy_chunk(g, k, i, "0", "0");
        fn_line(f, "bk_copied();");
        fn_line(f, "%s;", g->crew.meet);
        dots_step(g, k, i, "0", "0");
        return;
    }
    /* Number n of the chunks is copied while the one `ahead` before it is multiplied, and the first
     * ones while none is: the copies are one piece of code. */
    fn_open(f, "BK_UNROLL_BY(1) for (int64_t step = -%d; step < steps; step += %d) {", begin,
            q->chunk);
    fn_line(f, "const int n = (int)((step + %d) / %d), next = n %% %d, now = (n + 1) %% %d;", begin,
            q->chunk, q->buffers, q->buffers);
    fn_open(f, "if (step >= 0) {");
    fn_line(f, ahead > 1 ? "bk_copied_but<%d>();" : "bk_copied();", ahead - 1);
    fn_line(f, "%s;", g->crew.meet);
    fn_end(f);
    fn_open(f, "if (step + %d < steps) {", begin);
    copy_chunk(g, k, i, arena_printf(f->a, "step + %d", begin), "next");
    fn_end(f);
    if (ahead > 1) fn_line(f, "bk_commit();");
    fn_open(f, "if (step >= 0) {");
    dots_step(g, k, i, "step", "now");
    fn_end(f);
    fn_end(f);
}

/* The sums of one part for the block of rows and columns at hand. */
static void part(Group *g, const DotsKernel *k, int i) {
    Fn *f = &g->f;
    const DotsPart *q = &k->part[i];
    const Scope out = q->when ? fn_open(f, "if (when%d) {", i) : fn_open(f, "{");
    if (dots_called(q)) {
        dots_call(g, k, i);
        fn_close(f, out);
        return;
    }
    fn_line(f, "float acc[%d] = {0};", q->tm * q->tc * (q->matrix ? 4 : 1));
    if (q->direct)
        dots_direct(g, k, i);
    else if (q->whole && q->packed)
        dots_step(g, k, i, "0", "0");
    else
        chunks(g, k, i);
    dots_finish(g, k, i);
    fn_close(f, out);
}

/* ---- members --------------------------------------------------------------------------------- */
#define AHEAD_MOST 16 /* registers that a thread keeps for what its position loads */

/* What the members load at a position, whatever the sums are. */
typedef struct Ahead {
    Group *g;
    Map *seen;
    int n;
    Expr *load[AHEAD_MOST], *when[AHEAD_MOST];
    /* A thread has few positions, at most so many: it loads before the sums are computed; else 0.
     */
    int early;
} Ahead;

/* Whether e waits for no sum and no member, and records no fault. */
static bool known_ahead(const Kernel *k, const Expr *e) {
    if (e->flags & (EF_GUARD | EF_REDUCE)) return false;
    if (!(e->flags & EF_LOAD)) return true;
    for (int i = 0; i < k->n && e->op == E_LOAD; i++)
        if (k->t[i] == e->t) return false;
    for (int i = 0; i < e->n; i++)
        if (!known_ahead(k, e->a[i])) return false;
    return true;
}

static void add_load(Ahead *a, Expr *e, Expr *when) {
    for (int i = 0; i < a->n; i++) {
        if (a->load[i] != e) continue;
        a->when[i] = when && a->when[i] ? e_or(a->g->f.c, a->when[i], when) : NULL;
        return;
    }
    if (a->n == AHEAD_MOST) return;
    a->load[a->n] = e;
    a->when[a->n++] = when;
}

/* Adds what e loads where `when` is true (NULL: always), unless sums decide that. */
static void collect(Ahead *a, Expr *e, Expr *when) {
    const Kernel *k = a->g->k;
    Cx *c = a->g->f.c;
    const uint64_t key = when ? (uint64_t)when->id + 1 : 0;
    if (!(e->flags & EF_LOAD) || e->op == E_REDUCE ||
        !map_add(a->seen, (uint64_t)e->id << 32 | key))
        return;
    for (int i = 0; i < e_always(e); i++) collect(a, e->a[i], when); /* of a load: its position's */
    if (e->op == E_LOAD && known_ahead(k, e)) add_load(a, e, fn_always_there(e) ? NULL : when);
    if (e->op != E_SELECT || !known_ahead(k, e->a[0])) return;
    Expr *const is = e->a[0];
    collect(a, e->a[1], when ? e_and(c, when, is) : is);
    collect(a, e->a[2], when ? e_and(c, when, e_not(c, is)) : e_not(c, is));
}

/* Binds row, lane and their axes to the position `at` of a block's, where it has one. */
static void bind_position(Group *g, const DotsKernel *k) {
    Fn *f = &g->f;
    if (k->bm == 1)
        fn_line(f, "const int row = 0, l = at;");
    else if (k->by_row)
        fn_line(f, "const int row = at %% %d, l = at / %d;", k->bm, k->bm);
    else
        fn_line(f, "const int row = at / %d, l = at %% %d;", k->bv, k->bv);
    fn_open(f, "if (row < rows && l < lanes) {");
    fn_line(f, "const int64_t iv = v0 + l;");
    fn_bind(f, e_axis(f->c, k->v), "iv");
    dots_bind_rows(g, k, "first + row");
}

/* Opens a loop over this thread's positions, of which it has at most so many (0: any number). */
static Scope open_position(Group *g, const DotsKernel *k, int times) {
    Fn *f = &g->f;
    const Scope out = fn_here(f);
    if (times == 0)
        fn_open(f, "for (int at = %s; at < %d; at += %s) {", g->crew.self, k->bm * k->bv,
                g->crew.size);
    else {
        if (times > 1) fn_open(f, "BK_UNROLL for (int u = 0; u < %d; u++) {", times);
        fn_line(f, times > 1 ? "const int at = %s + u * %s;" : "const int at = %s;", g->crew.self,
                g->crew.size);
    }
    bind_position(g, k);
    return out;
}

static const char *ahead_name(Fn *f, const Ahead *a, int i) {
    return arena_printf(f->a, a->early > 1 ? "x%d[u]" : "x%d", i);
}

/* Loads what this thread's position needs, so that it is there when the sums are. */
static Ahead load_ahead(Group *g, const DotsKernel *k) {
    Fn *f = &g->f;
    Ahead a = {.g = g, .seen = map_new(f->a)};
    Axis *inner[MAX_RANK + 1];
    memcpy(inner, k->row, sizeof *inner * (size_t)k->nrow);
    inner[k->nrow] = k->v;
    for (int i = 0; i < g->k->n; i++) fn_hoist(f, g->k->value[i], k->nrow + 1, inner);
    for (int i = 0; i < g->k->n; i++) collect(&a, g->k->value[i], NULL);
    const int64_t times = div_up((int64_t)k->bm * k->bv, g->k->nthread);
    if (!a.n || times * a.n > AHEAD_MOST) return a;
    a.early = (int)times;
    for (int i = 0; i < a.n; i++)
        if (times == 1)
            fn_line(f, "%s x%d = 0;", c_type(a.load[i]->dtype), i);
        else
            fn_line(f, "%s x%d[%d] = {0};", c_type(a.load[i]->dtype), i, a.early);
    const Scope out = open_position(g, k, a.early);
    for (int i = 0; i < a.n; i++) {
        const Scope there = fn_here(f);
        if (a.when[i]) fn_open(f, "if (%s) {", fn_expr(f, a.when[i]));
        fn_line(f, "%s = %s;", ahead_name(f, &a, i), fn_expr(f, a.load[i]));
        fn_close(f, there);
        fn_bind(f, a.load[i], ahead_name(f, &a, i));
    }
    fn_close(f, out);
    return a;
}

static void epilogue(Group *g, const DotsKernel *k, const Ahead *a) {
    Fn *f = &g->f;
    const Scope out = open_position(g, k, a->early > 1 ? a->early : 0);
    for (int i = 0; i < a->n; i++)
        if (a->early)
            fn_bind(f, a->load[i], ahead_name(f, a, i));
        else if (!a->when[i])
            fn_temp(f, a->load[i]);
    group_members(g);
    fn_close(f, out);
}

/* Declares w<part>, the address of the weights at the current position of the outer axes, and
 * w<part>_first, the column that they begin with: the first of this unit's part, or of all. */
static void weights(Group *g, const DotsKernel *k, int part) {
    Emit *em = g->em;
    Fn *f = &g->f;
    const DotsPart *q = &k->part[part];
    const DotsOrder *o = &q->order;
    const Resident *kept = dots_kept(q);
    const char *at =
        group_weights(g, DT_F32, kept ? resident_name(em, kept) : emit_packed(em, q->weights));
    const char *positions = arena_printf(f->a, "%lld", (long long)o->n);
    if (kept && (o->columns || o->outer) && o->pieces > 1) {
        fn_line(f, "const int64_t w%d_positions = bk_on_chip(%s) ? to - from : %s;", part, at,
                positions);
        positions = arena_printf(f->a, "w%d_positions", part);
    }
    const char *piece = fn_expr(f, o->before),
               *words = arena_printf(f->a, "%lld", (long long)o->words);
    const char *first = kept ? "from" : "0";
    if (o->outer) {
        const char *own = arena_printf(f->a, "(%s) * %s + %s - %s", piece, positions,
                                       fn_expr(f, e_axis(f->c, g->k->split)), first);
        fn_line(f, "const float *const w%d = %s + (%s) * %s + (%s) * %lld;", part, at, own, words,
                fn_expr(f, o->behind), (long long)q->all);
    } else if (o->columns)
        fn_line(f, "const float *const w%d = %s + (%s) * %s * %s;", part, at, piece, positions,
                words);
    else
        fn_line(f, "const float *const w%d = %s + (%s) * %s;", part, at, piece, words);
    fn_line(f, "const int64_t w%d_first = %s;", part, o->columns ? first : "0");
}

/* The block's memory, conditions, and the loops around a block of rows. */
static void head(Group *g, const DotsKernel *k) {
    Fn *f = &g->f;
    fn_line(f, "const int room = (int)(%s);", g->crew.room);
    fn_line(f, "float *const block = (float *)(bk_shared() + room);");
    for (int i = 0; i < k->npart; i++)
        if (k->part[i].when) {
            fn_count(f, k->part[i].when);
            fn_line(f, "const bool when%d = %s;", i, fn_expr(f, k->part[i].when));
        }
    for (int i = 0; i < k->nouter; i++) group_loop(g, k->outer[i], arena_printf(f->a, "i%d", i));
    for (int i = 0; i < k->npart; i++)
        if (k->part[i].packed) weights(g, k, i);
    fn_line(f, "const int64_t all_rows = %s;", group_count(g, k->nrow, k->row));
    fn_open(f, "for (int64_t first = 0; first < all_rows; first += %d) {", k->bm);
    fn_line(f, "const int rows = (int)bk_mini(all_rows - first, %d);", k->bm);
}

static void copy_under_condition(Group *g, const DotsKernel *k, int i, bool vec) {
    const DotsPart *q = &k->part[i];
    if (q->when) fn_open(&g->f, "if (when%d) {", i);
    dots_copy(g, k, i, vec, "0", "0");
    if (q->when) fn_end(&g->f);
}

/* Copies what is copied once for a block of rows, and what of its columns at once. */
static void copy_whole(Group *g, const DotsKernel *k) {
    Fn *f = &g->f;
    const Scope out = fn_here(f);
    for (int i = 0, n = 0; i < k->npart; i++) {
        if (!k->part[i].whole) continue;
        if (!n++) fn_open(f, "if (v0 == %s) {", group_from(g, k->v));
        copy_under_condition(g, k, i, false);
    }
    fn_close(f, out);
    for (int i = 0; i < k->npart; i++)
        if (k->part[i].whole && k->part[i].staged && !dots_kept(&k->part[i]))
            copy_under_condition(g, k, i, true);
}

/* Whether copies pass through registers: then threads wait for them, and what else they load has to
 * be on its way before. */
static bool loads_first(const DotsKernel *k) {
    for (int i = 0; i < k->npart; i++)
        if (k->part[i].whole && !k->part[i].async[0]) return true;
    return false;
}

void group_dots(Group *g) {
    const DotsKernel *k = g->k->dots;
    Fn *f = &g->f;
    g->reduce = tile_text;
    g->meets = !g->body.n;
    fn_line(f, "%s;", g->crew.meet); /* the memory may still be in use */
    group_range(g);
    const Scope out = fn_here(f);
    head(g, k);
    const char *end = group_to(g, k->v);
    const char *from = group_from(g, k->v);
    if (g->parts && k->v == g->k->split)
        fn_open(f, "for (int v0 = (int)from; v0 < (int)to; v0 += %d) {", k->bv);
    else
        fn_open(f, "for (int64_t v0 = %s; v0 < %s; v0 += %d) {", from, end, k->bv);
    if (g->parts && k->v == g->k->split)
        fn_line(f, "const int lanes = (int)to - v0 < %d ? (int)to - v0 : %d;", k->bv, k->bv);
    else
        fn_line(f, "const int lanes = (int)bk_mini(%s - v0, %d);", end, k->bv);
    const bool first = loads_first(k);
    Ahead ahead;
    if (first) ahead = load_ahead(g, k);
    copy_whole(g, k);
    if (begins_by_chunks(k)) fn_line(f, "%s;", g->crew.meet); /* the memory may still be in use */
    if (!first) ahead = load_ahead(g, k);
    if (!begins_by_chunks(k)) {
        fn_line(f, "bk_copied();");
        fn_line(f, "%s;", g->crew.meet);
    }
    for (int i = 0; i < k->npart; i++) part(g, k, i);
    fn_line(f, "%s;", g->crew.meet);
    epilogue(g, k, &ahead);
    fn_close(f, out);
}
