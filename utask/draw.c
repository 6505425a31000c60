/* draw.c: places of random numbers, which distinguish each execution of a node from all others.
 *
 * A node draws with a key made from a seed (the run's, or its attribute) and from its place: its
 * own number, the iterations of the enclosing loops, the calls that lead to it. Each part is mixed
 * into the key by a draw, so keys are as good as random. Keys are uniform and pure, so
 * transformations may freely move, repeat or share draws. */
#include "utask/lower_internal.h"

static Expr *u64(Lower *L, int64_t v) { return e_ci(L->cx, DT_U64, v); }

static Expr *number_of(Lower *L, const Node *n) {
    LowerState *st = L->st;
    uint64_t key = (uint64_t)(uintptr_t)n;
    if (!st->draw_number) st->draw_number = map_new(L->a);
    intptr_t i = (intptr_t)map_geti(st->draw_number, key);
    if (!i) map_seti(st->draw_number, key, (void *)(i = ++st->ndraw));
    return u64(L, i);
}

/* Extends `place` by the iterations of the loops around seq, outermost first, up to `end`. */
static Expr *in_loops(Lower *L, Expr *place, const Seq *seq, const Seq *end) {
    if (!seq || seq == end) return place;
    place = in_loops(L, place, seq->parent, end);
    const Stmt *s = seq->owner;
    if (!s || s->kind != S_LOOP || s->loop.body != seq) return place;
    return e_draw(L->cx, place, e_cast(L->cx, DT_U64, e_sym(L->cx, s->loop.iter)));
}

static Expr *place_in(Lower *L, DrawFrame *f, const Seq *seq) {
    Expr *place = u64(L, 0);
    if (!f) return in_loops(L, place, seq, NULL);
    if (f->call)
        place = e_draw(L->cx, place_in(L, f->up, f->seq), number_of(L, f->call));
    else if (f->place)
        place = f->place;
    else /* makes the driver lower the function again, with a place */
        *f->asked = true;
    return in_loops(L, place, seq, f->seq);
}

Expr *draw_call_place(Lower *L) { return place_in(L, L->st->frame, L->seq); }

Expr *draw_place(Lower *L) { return e_draw(L->cx, draw_call_place(L), number_of(L, L->node)); }
