/* emit_place.c: storage of values: sizes, pointers into the arena and into slots, and buffers of
 * values that grow in place. */
#include "codegen/emit/emit_tree.h"
#include "scheduler/passes.h"

/* Bytes that dimensions [from, to) span. bk_size does not wrap around: sizes may come from data. */
static const char *span_bytes(Tree *x, const Tensor *t, int from, int to) {
    int64_t known = (int64_t)dtype_size(t->dtype), v;
    for (int i = from; i < to; i++)
        if (e_is_int(t->dim[i], &v) && !mul_size(known, v, &known)) known = -1;
    const char *s = arena_printf(x->em->a, "%lld", (long long)known);
    for (int i = from; i < to; i++)
        if (!e_is_int(t->dim[i], &v))
            s = arena_printf(x->em->a, "bk_size(%s, %s)", tree_expr(x, t->dim[i]), s);
    return s;
}

const char *tree_bytes(Tree *x, Tensor *t) {
    return span_bytes(x, t, 0, t->rank < 0 ? MAX_RANK : t->rank);
}

const char *tree_arena(const Tree *x) { return x->em->p->mem->parts ? "_in(k, span, " : "(k, "; }

/* `each`: every unit takes as much for itself. given: as in Mem. */
static void take_for(Tree *x, const char *path, const char *name, const char *type,
                     const char *bytes, bool each, int given) {
    const char *first =
        given ? arena_printf(x->f.a, "!(%s = (%s *)bk_given(k, %d)) && ", name, type, given - 1)
              : "";
    fn_line(&x->f, "if (%s!(%s = (%s *)bk_claim%s%s&top, %s%s))) %s", first, name, type,
            each ? "_each" : "", tree_arena(x), bytes, each ? ", unit, nunit" : "",
            tree_want(x, path));
    if (tree_recursive(x)) fn_line(&x->f, "low = top;");
}
void tree_take(Tree *x, const char *path, const char *name, const char *type, const char *bytes) {
    take_for(x, path, name, type, bytes, false, 0);
}

const char *tree_base(const Tree *x, const Mem *m) {
    if (m->block == BLOCK_OWN)
        return arena_printf(x->em->a, "bk_shared() + %lld",
                            (long long)(x->em->p->mem->shared - x->em->p->mem->own));
    if (m->block) return arena_printf(x->em->a, "bk_block_memory(%d)", m->block - 1);
    return m->frame ? "frame" : "k->arena";
}

const char *tree_static(const Tree *x, const Mem *m, const char *type) {
    Arena *a = x->em->a;
    const char *at = arena_printf(a, "(%s + %lld)", tree_base(x, m), (long long)m->off[0]);
    if (m->given) at = arena_printf(a, "bk_given_or(k, %d, %s)", m->given - 1, at);
    return arena_printf(a, "(%s *)%s", type, at);
}

/* ---- values that grow ------------------------------------------------------------------------ */
/* Bytes of one row: one position along the growing axis. */
static const char *row_bytes(Tree *x, const Grow *g) {
    const Tensor *t = g->phi;
    const char *s = span_bytes(x, t, g->axis + 1, t->rank);
    for (int i = 0; i < g->axis; i++)
        if (!e_is_ival(t->dim[i], 1))
            s = arena_printf(x->em->a, "bk_size(%s, %s)", tree_expr(x, t->dim[i]), s);
    return s;
}

/* The product of the dimensions before `axis`. */
static const char *outer_of(Tree *x, const Tensor *t, int axis) {
    const char *s = "1";
    for (int i = 0; i < axis; i++)
        if (!e_is_ival(t->dim[i], 1))
            s = arena_printf(x->em->a, "%s * %s", s, tree_expr(x, t->dim[i]));
    return s;
}

static const char *room_of(Tree *x, const Grow *g) {
    return g->room ? x->f.symbol(&x->f, g->room)
                   : arena_printf(x->em->a, "%lld", (long long)g->most);
}

/* Takes growable buffer number `slot`. */
static void take_slot(Tree *x, const char *path, const char *name, const char *type,
                      const char *slot, const char *bytes) {
    fn_line(&x->f, "if (!(%s = (%s *)bk_slot(k, %s, %s))) %s", name, type, slot, bytes,
            tree_want(x, path));
}

/* Checks that `name`, which was laid out for what `slot` holds, has so many bytes. */
static void take_piece(Tree *x, const char *path, const char *slot, const char *name,
                       const char *bytes) {
    fn_line(&x->f, "if (!bk_piece(k, %s, (char *)%s, %s)) %s", slot, name, bytes,
            tree_want(x, path));
}

void tree_grow_begin(Tree *x, const Stmt *s, const LoopCarry *c) {
    Fn *f = &x->f;
    Grow *g = c->phi->grow;
    Mem *m = mem_of(c->phi);
    const char *name = f->tensor(f, c->phi), *ty = c_store(c->phi->dtype), *row = row_bytes(x, g);
    const char *first = tree_expr(x, g->first), *room = room_of(x, g);
    if (g->room) tree_declare_symbol(x, g->room);
    if (m->kind == M_STATIC) {
        if (g->room) fn_line(f, "%s = %lld;", room, (long long)g->most);
        fn_line(f, "%s = (%s *)(%s + %lld);", name, ty, tree_base(x, m), (long long)m->off[0]);
    } else if (m->kind == M_BUMP) {
        fn_line(f, "%s = bk_room(%s, bk_mini(%s, k->max_iterations), %s);", room, first,
                tree_expr(x, s->loop.trips), tree_expr(x, g->rows));
        tree_take(x, s->path, name, ty, arena_printf(f->a, "bk_size(%s, %s)", room, row));
    } else {
        const char *bytes = arena_printf(f->a, "bk_size(%s, %s)", room, row);
        fn_line(f, "%s = bk_maxi(%s, (bk_cap(k, %d) - 64) / bk_maxi(%s, 1));", room, first,
                m->slot[0], row);
        if (m->frame) {
            tree_take(x, s->path, name, ty, arena_printf(f->a, "k->cap[%d]", m->slot[0]));
            take_piece(x, s->path, arena_printf(f->a, "%d", m->slot[0]), name, bytes);
        } else
            take_slot(x, s->path, name, ty, arena_printf(f->a, "%d", m->slot[0]), bytes);
    }
    const char *inner = span_bytes(x, c->phi, g->axis + 1, c->phi->rank);
    if (g->front)
        fn_line(f, "%s = (%s *)((char *)%s + (%s - %s) * (%s));", name, ty, name, room, first,
                inner);
    const char *from = f->tensor(f, c->init);
    if (!g->spaced) {
        fn_line(f, "bk_copy(%s, %s, %s, unit, nunit);", name, from, tree_bytes(x, c->phi));
        return;
    }
    const char *outer = outer_of(x, c->phi, g->axis);
    fn_line(f, "bk_copy_rows(%s, %s, %s, %s * (%s), %s * (%s), unit, nunit);", name, from, outer,
            first, inner, room, inner);
}

/* The pointer of a value that grows in place. Its slot grows with it, unless the value lies by what
 * the slot holds: then the run begins again. */
static void grow_step(Tree *x, Tensor *t) {
    Fn *f = &x->f;
    const Grow *g = t->grow;
    const Mem *m = mem_of(g->phi);
    const char *ty = c_store(t->dtype), *name = f->tensor(f, t), *from = f->tensor(f, t->base);
    if (m->kind == M_SLOT) {
        const bool laid = m->frame || g->spaced || g->front;
        fn_line(f, "if (%s > %s && !bk_%s(k, %d, %sbk_size(%s, %s))) %s",
                tree_expr(x, t->dim[g->axis]), room_of(x, g), laid ? "piece" : "slot", m->slot[0],
                laid ? arena_printf(f->a, "(char *)%s, ", from) : "", tree_expr(x, t->dim[g->axis]),
                row_bytes(x, g), tree_want(x, g->phi->path));
    }
    fn_line(f, "%s = (%s *)(uintptr_t)%s;", name, ty, from);
    Expr *rows = e_sub(x->em->c, t->dim[g->axis], t->base->dim[g->axis]);
    if (g->front && !e_is_ival(rows, 0))
        fn_line(f, "%s = (%s *)((char *)%s - %s * (%s));", name, ty, name, tree_expr(x, rows),
                span_bytes(x, t, g->axis + 1, t->rank));
}

void tree_grow_end(Tree *x, const LoopCarry *c) {
    Fn *f = &x->f;
    const Tensor *phi = c->phi;
    const char *place = (const char *)&c->closes;
    const Grow *g = phi->grow;
    const char *name = f->tensor(f, (Tensor *)(uintptr_t)phi), *room = room_of(x, g);
    const char *inner = span_bytes(x, phi, g->axis + 1, phi->rank),
               *outer = outer_of(x, phi, g->axis), *size = tree_expr(x, phi->dim[g->axis]);
    fn_open(f, "if (%s != %s) {", room, size);
    tree_barrier(x, place);
    fn_line(f, "if (bk_lead(unit)) bk_close_rows(%s, %s, %s * (%s), %s * (%s));", name, outer, size,
            inner, room, inner);
    tree_barrier(x, place + 1);
    fn_line(f, "%s = %s;", room, size);
    fn_end(f);
}

void tree_place(Tree *x, Tensor *t, const char *bytes) {
    Mem *m = mem_of(t), *via = m->via ? mem_of(m->via) : NULL;
    Fn *f = &x->f;
    const char *name = f->tensor(f, t), *ty = c_store(t->dtype);
    switch (m->kind) {
    case M_STATIC: {
        const char *at = tree_static(x, m, ty);
        /* Strict compilers keep it in a register from here on: set it late, registers are few. */
        tree_declare(x, t, x->em->target->strict ? "NULL" : at);
        if (x->em->target->strict) fn_line(f, "%s = %s;", name, at);
        break;
    }
    case M_BUMP:
        tree_declare(x, t, "NULL");
        take_for(x, t->path, name, ty, bytes, m->each, m->given);
        break;
    case M_CARRY: {
        tree_declare(x, t, "NULL");
        if (t->grow) {
            grow_step(x, t);
            break;
        }
        const char *base = f->tensor(f, m->via), *path = m->via->path;
        const char *turn = via->inplace ? "0" : arena_printf(f->a, "(%s & 1)", x->loop->counter);
        const char *slot = arena_printf(f->a, "%s ? %d : %d", turn, via->slot[1], via->slot[0]);
        if (via->kind == M_STATIC)
            fn_line(f, "%s = (%s *)(%s + (%s ? %lld : %lld));", name, ty, tree_base(x, via), turn,
                    (long long)via->off[1], (long long)via->off[0]);
        else if (via->kind == M_BUMP)
            fn_line(f, "%s = %s ? %s_b : %s_a;", name, turn, base, base);
        else if (via->frame)
            fn_line(f, "if (!(%s = (%s *)bk_piece(k, %s, (char *)(%s ? %s_b : %s_a), %s))) %s",
                    name, ty, slot, turn, base, base, bytes, tree_want(x, path));
        else
            take_slot(x, path, name, ty, slot, bytes);
        break;
    }
    case M_ROWS: {
        Expr *row = t->row;
        for (int i = 1; i < t->rank; i++) row = e_mul(x->em->c, row, t->dim[i]);
        tree_declare(x, t, "NULL");
        fn_line(f, "%s = %s + %s;", name, f->tensor(f, m->via), tree_expr(x, row));
        break;
    }
    case M_ELEM: {
        const char *counter =
            m->at ? arena_printf(f->a, "(%s)", tree_expr(x, m->at)) : x->loop->counter;
        tree_declare(x, t, "NULL");
        const char *base = f->tensor(f, m->via), *path = m->via->path;
        const char *slot = arena_printf(f->a, "%d", via->slot[0]);
        const char *all = arena_printf(f->a, "bk_size(%s + 1, %s)", counter, bytes);
        if (via->kind == M_SLOT && via->frame)
            take_piece(x, path, slot, base, all);
        else if (via->kind == M_SLOT) /* grows with each iteration and keeps its content */
            take_slot(x, path, base, ty, slot, all);
        fn_line(f, "%s = (%s *)((char *)%s + %s * (%s));", name, ty, base, counter, bytes);
        break;
    }
    case M_SHARED:
        tree_declare(
            x, t,
            arena_printf(f->a, "(%s *)(%s + %lld)", ty, tree_base(x, via), (long long)via->off[0]));
        break;
    case M_RESULT: tree_declare(x, t, call_result(x, x->func, m->slot[0])); break;
    case M_SLOT:
        tree_declare(x, t, "NULL");
        take_slot(x, t->path, name, ty, arena_printf(f->a, "%d", m->slot[0]), bytes);
        break;
    default: tree_declare(x, t, "NULL"); break;
    }
}
