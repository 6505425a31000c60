/* frame.c: see frame.h. */
#include "scheduler/kernel/frame.h"
#include "utask/windows.h"

/* Adds the bound second - first >= slack; false: it is none of a single axis. */
static bool bound(Cx *c, void *user, Expr *first, Expr *second, int64_t slack) {
    Framing *w = user;
    Expr *room = e_addi(c, e_sub(c, second, first), -slack), *step, *rest;
    for (int d = 0; d < w->n; d++) {
        if (!e_uses_axis(room, w->axis[d])) continue;
        if (!e_affine(c, room, w->axis[d], &step, &rest) || !rest->pure) return false;
        if (e_is_ival(step, 1) && !w->low[d])
            w->low[d] = e_sub(c, e_int(c, 0), rest);
        else if (e_is_ival(step, -1) && !w->high[d])
            w->high[d] = e_addi(c, rest, 1);
        else
            return false;
        return true;
    }
    return false;
}

bool frame_of(Cx *c, const Expr *body, int n, Axis *const *axis, Framing *w) {
    if (body->op != E_SELECT || !body->a[2]->pure || n > MAX_RANK) return false;
    *w = (Framing){.n = n, .inside = body->a[1], .around = body->a[2]};
    memcpy(w->axis, axis, sizeof *axis * (size_t)n);
    if (!padding_bounds(c, body->a[0], bound, w)) return false;
    for (int d = 0; d < n; d++) {
        if (!w->low[d] && !w->high[d]) continue;
        if (!w->low[d]) w->low[d] = e_int(c, 0);
        if (!w->high[d]) w->high[d] = axis[d]->extent;
        if (!e_at_most(c, e_int(c, 0), w->low[d]) || !e_at_most(c, w->low[d], w->high[d]) ||
            !e_at_most(c, w->high[d], axis[d]->extent))
            return false;
    }
    return true;
}

int frame_axis(const Framing *w, const Axis *x) {
    for (int d = 0; d < w->n; d++)
        if (w->axis[d] == x && w->low[d]) return d;
    return -1;
}

void kernel_frame(Kernel *k) {
    Cx *c = k->c;
    Framing w;
    if (k->n != 1 || k->s->op.at || !frame_of(c, k->value[0], k->naxis, k->axis, &w)) return;
    w.position = k->position[0];
    w.split = k->split;
    w.strip = k->strip;
    w.each = e_int(c, 1);
    k->value[0] = w.inside;
    for (int d = 0; d < k->naxis; d++) {
        Axis *x = k->axis[d];
        if (!w.low[d]) continue;
        Axis *inner = axis_new(c, e_sub(c, w.high[d], w.low[d]));
        Expr *to = e_add(c, e_axis(c, inner), w.low[d]);
        k->value[0] = e_subst(c, k->value[0], 1, &x, &to, NULL, NULL);
        k->position[0] = e_subst(c, k->position[0], 1, &x, &to, NULL, NULL);
        k->axis[d] = inner;
        if (k->strip == x) k->strip = inner;
        if (k->split != x) continue;
        k->split = inner;
        k->grain = e_int(c, 1); /* units begin where the whole's do */
    }
    k->frame = arena_memdup(k->a, &w, sizeof w);
}
