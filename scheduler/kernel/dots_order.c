/* dots_order.c: constant operands in the order in which blocks of threads read them, and what of
 * them each unit reads.
 *
 * The layout: [symbol][outer axes that vec moves along][position of v][product][step]. So a unit's
 * columns are one piece. A column begins at a multiple of 16 bytes. */
#include "scheduler/kernel/dots.h"

/* Appends p's operand to the sources of its part's array. */
static void add_source(const DotsKernel *k, const Product *p, Packed *to) {
    Cx *c = k->g->c;
    const DotsPart *q = &k->part[p->set];
    PackSource *s = &to->source[to->nsource++];
    Expr *rest = p->vec_flat;
    int d = 0;
    s->data = p->vec->t->data;
    if (p->sym) {
        rest = e_replace(c, rest, p->sym, e_axis(c, p->sym_axis));
        packed_axis(c, to, s, d++, &rest, p->sym_axis);
    }
    for (int i = 0; i < k->nouter; i++)
        if (e_uses_axis(p->vec_flat, k->outer[i])) packed_axis(c, to, s, d++, &rest, k->outer[i]);
    packed_axis(c, to, s, d++, &rest, k->v);
    to->nouter = d;
    to->ninner = q->nraxis;
    for (int i = 0; i < q->nraxis; i++) packed_axis(c, to, s, d++, &rest, q->raxis[i]);
    e_is_int(rest, &s->base);
}

static void pack(DotsKernel *k, DotsPart *q) {
    const Tensor *t = k->p[q->lead].vec->t;
    Packed *to = NEW(k->g->a, Packed);
    *to = (Packed){.what = t->name,
                   .line = q->column * WORD / part_size(q),
                   .tile = -1,
                   .dtype = part_size(q) < WORD ? q->matrix : DT_F32,
                   .ten_bits = q->matrix == DT_F32};
    for (int j = 0; j < k->n; j++)
        if (&k->part[k->p[j].set] == q) add_source(k, &k->p[j], to);
    q->all = to->extent[to->nouter - 1] * q->n * q->column;
    q->weights = packed_intern(k->g->p, to);
}

static DotsOrder order_of(const DotsKernel *k, const DotsPart *q) {
    const Product *p = &k->p[q->lead];
    Cx *c = k->g->c;
    DotsOrder o = {.columns = k->v == k->g->split,
                   .pieces = 1,
                   .words = q->n * q->column,
                   .n = axis_size(k->v, 1),
                   .before = p->sym ? p->sym : e_int(c, 0),
                   .behind = e_int(c, 0)};
    if (p->sym) o.pieces = axis_size(p->sym_axis, 1);
    if (!o.columns) o.words = q->all;
    for (int i = 0; i < k->nouter; i++) {
        Axis *x = k->outer[i];
        if (!e_uses_axis(p->vec_flat, x)) continue;
        if (x == k->g->split)
            o.outer = true, o.n = axis_size(x, 1);
        else if (o.outer) {
            o.words *= axis_size(x, 1);
            o.behind = e_add(c, e_mul(c, o.behind, x->extent), e_axis(c, x));
        } else {
            o.pieces *= axis_size(x, 1);
            o.before = e_add(c, e_mul(c, o.before, x->extent), e_axis(c, x));
        }
    }
    return o;
}

/* What a unit reads of q's array, where that is known. */
static void own(DotsKernel *k, DotsPart *q) {
    Kernel *g = k->g;
    const Product *p = &k->p[q->lead];
    const DotsOrder *o = &q->order;
    OwnPart r = {.packed = q->weights,
                 .whole = !o->columns && !o->outer,
                 .pieces = o->pieces,
                 .choice = p->sym ? axis_size(p->sym_axis, 1) : 1,
                 .n = o->n,
                 .grain = 1,
                 .words = o->words};
    if (r.whole) r.n = 1;
    if (!g->split || g->second || (!r.whole && !e_is_int(g->grain, &r.grain))) return;
    q->own = &g->own[g->nown];
    g->own[g->nown++] = r;
}

void dots_order(DotsKernel *k) {
    k->g->own = NEWN(k->g->a, OwnPart, k->npart);
    for (int i = 0; i < k->npart; i++) {
        DotsPart *q = &k->part[i];
        if (!q->packed) continue;
        q->column = dots_column(q);
        pack(k, q);
        q->order = order_of(k, q);
        own(k, q);
    }
}
