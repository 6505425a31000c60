/* emit_frame.c: prints what lies around the values of a group (scheduler/kernel/frame.h). */
#include "codegen/emit/emit.h"
#include "scheduler/kernel/frame.h"

/* Whether the unit has a range of x, an axis of the whole. */
static bool has_range(const Group *g, const Axis *x) {
    const Framing *w = g->k->frame;
    return x == w->split || (g->k->s->op.strip && x == w->strip);
}

/* Opens a loop over the unit's positions of axis number d of the whole. */
static void open_whole(Group *g, int d) {
    Fn *f = &g->f;
    Axis *x = g->k->frame->axis[d];
    const char *at = arena_printf(f->a, "w%d", d);
    const bool range = has_range(g, x);
    const char *to = range ? "whole_to" : fn_expr(f, x->extent);
    if (d == g->k->frame->n - 1) fn_line(f, "BK_SIMD");
    fn_open(f, "for (int64_t %s = %s; %s < %s; %s++) {", at, range ? "whole_from" : "0", at, to,
            at);
    fn_bind(f, e_axis(f->c, x), at);
}

/* Fills the positions along the axes from number d on. */
static void fill(Group *g, int d) {
    Fn *f = &g->f;
    const Framing *w = g->k->frame;
    const Scope out = fn_here(f);
    for (; d < w->n; d++) open_whole(g, d);
    group_store_at(g, 0, w->around, w->position);
    fn_close(f, out);
}

/* The frame of the axes from number d on, of which `last` is the last one that has bounds. */
static void around(Group *g, int d, int last) {
    Fn *f = &g->f;
    const Framing *w = g->k->frame;
    const Scope out = fn_here(f);
    const bool range = has_range(g, w->axis[d]);
    const char *at = arena_printf(f->a, "w%d", d);
    const char *to = range ? "whole_to" : fn_expr(f, w->axis[d]->extent);
    fn_open(f, "for (int64_t %s = %s; %s < %s; %s++) {", at, range ? "whole_from" : "0", at, to,
            at);
    fn_bind(f, e_axis(f->c, w->axis[d]), at);
    if (w->low[d]) {
        const char *low = fn_expr(f, w->low[d]), *high = fn_expr(f, w->high[d]);
        const Scope in = fn_open(f, "if (%s < %s || %s >= %s) {", at, low, at, high);
        fill(g, d + 1);
        if (d < last) {
            fn_else(f, in, "} else {");
            around(g, d + 1, last);
        } else {
            fn_else(f, in, "} else {");
            fn_line(f, "%s = %s - 1;", at, high);
        }
    } else
        around(g, d + 1, last);
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
