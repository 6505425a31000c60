/* emit_frame.c: prints what lies around the values of a group (scheduler/kernel/frame.h). */
#include "codegen/emit/emit.h"
#include "scheduler/kernel/frame.h"

/* Text of the unit's range of axis number d of the whole. */
static const char *whole_from(const Group *g, int d) {
    const Framing *w = g->k->frame;
    const Axis *x = w->axis[d];
    return x == w->split || (g->k->s->op.strip && x == w->strip) ? "whole_from" : "0";
}
static const char *whole_to(Group *g, int d) {
    const Framing *w = g->k->frame;
    return *whole_from(g, d) == '0' ? fn_expr(&g->f, w->axis[d]->extent) : "whole_to";
}

/* Opens a loop over positions of axis number d. */
static void open_range(Group *g, int d, const char *from, const char *to) {
    Fn *f = &g->f;
    const char *at = arena_printf(f->a, "w%d", d);
    if (d == g->k->frame->n - 1) fn_line(f, "BK_SIMD");
    fn_open(f, "for (int64_t %s = %s; %s < %s; %s++) {", at, from, at, to, at);
    fn_bind(f, e_axis(f->c, g->k->frame->axis[d]), at);
}

/* Fills [from, to) of axis number d, and all positions along those after it. */
static void fill(Group *g, int d, const char *from, const char *to) {
    const Framing *w = g->k->frame;
    const Scope out = fn_here(&g->f);
    open_range(g, d, from, to);
    while (++d < w->n) open_range(g, d, whole_from(g, d), whole_to(g, d));
    group_store_at(g, 0, w->around, w->position);
    fn_close(&g->f, out);
}

/* The frame along the axes from number d on, of which `last` is the last one that has bounds. */
static void around(Group *g, int d, int last) {
    Fn *f = &g->f;
    const Framing *w = g->k->frame;
    const Scope out = fn_here(f);
    const char *from = whole_from(g, d), *to = whole_to(g, d);
    if (w->low[d]) {
        const char *low = fn_expr(f, w->low[d]), *high = fn_expr(f, w->high[d]);
        if (!e_is_ival(w->low[d], 0))
            fill(g, d, from, arena_printf(f->a, "bk_mini(%s, %s)", low, to));
        if (w->high[d] != w->axis[d]->extent)
            fill(g, d, arena_printf(f->a, "bk_maxi(%s, %s)", high, from), to);
        from = arena_printf(f->a, "bk_maxi(%s, %s)", low, from);
        to = arena_printf(f->a, "bk_mini(%s, %s)", high, to);
    }
    if (d < last) {
        open_range(g, d, from, to);
        around(g, d + 1, last);
    }
    fn_close(f, out);
}

void group_frame(Group *g) {
    Fn *f = &g->f;
    const Framing *w = g->k->frame;
    int last = 0;
    for (int d = 0; d < w->n; d++)
        if (w->low[d]) last = d;
    around(g, 0, last);
    const Axis *shared = g->k->s->op.strip ? w->strip : w->split;
    if (!shared) return;
    const int d = frame_axis(w, shared);
    const char *each = fn_expr(f, w->each);
    if (d < 0) {
        fn_line(f, "const int64_t from = whole_from * %s, to = whole_to * %s;", each, each);
        return;
    }
    const char *low = fn_expr(f, w->low[d]), *size = fn_expr(f, e_sub(f->c, w->high[d], w->low[d]));
    fn_line(f, "const int64_t from = bk_mini(bk_maxi(whole_from - %s, 0), %s) * %s;", low, size,
            each);
    fn_line(f, "const int64_t to = bk_mini(bk_maxi(whole_to - %s, 0), %s) * %s;", low, size, each);
}
