/* contraction_panel.c: a contraction's constant operands in the order in which they are read, and
 * what a block of rows fetches for later while its sums are computed: its own epilogue's operands,
 * and the next tile's weights where they come from beyond the nearer caches. */
#include "scheduler/cost/cost.h"
#include "scheduler/cost/decide.h"
#include "scheduler/kernel/contraction.h"
#include "utask/walk.h"

#define AHEAD 1024 /* elements between what is read and what is fetched from the outer caches */
#define SHORT 32   /* steps of a sum that leave no time to fetch anything */

/* What has so many bytes is not expected to be near when it is wanted. */
static int64_t far_bytes(const Contraction *k) {
    return 2 * k->g->p->schedule->device->level[LEVEL_LANE].bytes;
}

/* ---- packing --------------------------------------------------------------------------------- */
/* Adds p's operand, at position `rest` of `data`, with these axes of the sum. */
static void add_source(const Contraction *k, const Product *p, Packed *q, const Const *data,
                       Expr *rest, int nraxis, Axis **raxis) {
    const Kernel *g = k->g;
    Cx *c = g->c;
    PackSource *s = &q->source[q->nsource++];
    int n = 0;
    s->data = data;
    if (p->sym) {
        rest = e_replace(c, rest, p->sym, e_axis(c, p->sym_axis));
        packed_axis(c, q, s, n++, &rest, p->sym_axis);
    }
    for (int i = 0; i < g->naxis; i++)
        if (g->axis[i] != k->v && e_uses_axis(rest, g->axis[i]))
            packed_axis(c, q, s, n++, &rest, g->axis[i]);
    q->tile = n;
    packed_axis(c, q, s, n, &rest, k->v);
    const int64_t lane = s->stride[n];
    s->stride[n] *= k->vt;
    q->extent[n++] = (q->limit + k->vt - 1) / k->vt;
    for (int i = 0; i < nraxis; i++) packed_axis(c, q, s, n++, &rest, raxis[i]);
    if (q->bits) {
        const int word = 32 / q->bits;
        s->step = s->stride[n - 1];
        s->stride[n - 1] *= word;
        q->steps = axis_size(raxis[nraxis - 1], 0);
        q->extent[n - 1] = (q->steps + word - 1) / word;
    }
    s->stride[n] = lane;
    q->extent[n] = k->vt;
    q->nouter = n;
    e_is_int(rest, &s->base);
}

/* a and b read their operands at equal symbols and outer axes. */
static bool same_panel(const Contraction *k, const Product *a, const Product *b) {
    const Kernel *g = k->g;
    if (a->coded || b->coded) return a->set == b->set && a->vec == b->vec;
    if (a->set != b->set || a->sym != b->sym ||
        tensor_values(a->vec->t) != tensor_values(b->vec->t))
        return false;
    for (int i = 0; i < g->naxis; i++) {
        Axis *x = g->axis[i];
        if (x != k->v && e_uses_axis(a->vec_flat, x) != e_uses_axis(b->vec_flat, x)) return false;
    }
    return true;
}

/* Adds the scales or zero points t of p's blocks. */
static void add_blocks(const Contraction *k, const Product *p, Packed *q, Tensor *t, Axis *block) {
    Cx *c = k->g->c;
    Expr *at[MAX_RANK];
    memcpy(at, p->vec->a, sizeof *at * (size_t)p->vec->n);
    at[p->coded->dim] = e_axis(c, block);
    add_source(k, p, q, t->data, flat_index_of(c, t, at), 1, &block);
}

static void pack_scales(Contraction *k, Panel *q) {
    const Product *p = &k->p[q->lead];
    const Coded *x = p->coded;
    Axis *block = axis_new(k->g->c, x->scale->dim[x->dim]);
    Packed like = {.what = p->vec->t->name,
                   .ninner = 1,
                   .line = k->vt,
                   .limit = axis_size(k->v, 0),
                   .dtype = DT_F32};
    add_blocks(k, p, &like, x->scale, block);
    if (x->zero) add_blocks(k, p, &like, x->zero, block);
    q->scales = packed_intern(k->g->p, &like);
    q->scale_tile = like.nsource * k->vt * like.extent[like.tile + 1];
}

static void pack(Contraction *k, int panel) {
    const Kernel *g = k->g;
    Cx *c = g->c;
    Panel *q = &k->panel[panel];
    const Product *lead = &k->p[q->lead];
    Packed like = {.what = lead->vec->t->name,
                   .ninner = 1,
                   .line = k->vt,
                   .limit = axis_size(k->v, 0),
                   .dtype = tensor_values(lead->vec->t)};
    if (lead->coded) {
        like.bits = lead->coded->bits;
        like.dtype = DT_U32;
        pack_scales(k, q);
    }
    for (int j = 0; j < k->n; j++) {
        const Product *p = &k->p[j];
        if (!p->packed || p->panel != panel || p->place != like.nsource)
            continue; /* others have the same */
        add_source(k, p, &like, p->coded ? p->coded->codes : p->vec->t->data, p->vec_flat,
                   k->nraxis[p->set], k->raxis[p->set]);
    }
    q->packed = packed_intern(g->p, &like);
    q->tile = (int64_t)q->n * k->vt;
    for (int i = like.tile + 1; i < like.nouter; i++) q->tile *= like.extent[i];
    q->stride = q->tile * like.extent[like.tile];
    q->at = lead->sym ? lead->sym : e_int(c, 0);
    for (int i = 0; i < g->naxis; i++)
        if (g->axis[i] != k->v && e_uses_axis(lead->vec_flat, g->axis[i]))
            q->at = e_add(c, e_mul(c, q->at, g->axis[i]->extent), e_axis(c, g->axis[i]));
}

/* ---- fetching weights ------------------------------------------------------------------------ */
typedef struct Streamed {
    Map *seen, *tensors;
    int64_t bytes;
} Streamed;

/* Counts the bytes of a product's constant factors. */
static bool add_bytes(void *user, Expr *e) {
    Streamed *k = user;
    SumProduct p;
    for (int i = 0; i < 2 && product_of(e, &p); i++) {
        const Tensor *t = p.load[i] ? p.load[i]->t : NULL;
        if (!t || t->kind != TK_CONST || !map_add(k->tensors, (uint64_t)t->id + 1)) continue;
        k->bytes += t->coded ? t->data->count * t->coded->bits / 8
                             : t->data->count * (int64_t)dtype_size(tensor_values(t));
    }
    return false;
}

static void add_stmt(void *user, Stmt *s) {
    Streamed *k = user;
    for (int j = 0; s->kind == S_OP && j < s->op.n; j++)
        find_reduction(k->seen, s->op.t[j]->body, false, add_bytes, k);
}

int64_t contraction_streamed(const Program *p) {
    Streamed k = {map_new(p->cx->a), map_new(p->cx->a), 0};
    seq_each_here(p->top, add_stmt, &k);
    return k.bytes;
}

/* How far ahead the weights are fetched where each is read once. A run of the program reads
 * `streamed` bytes of them around the group: so many that they do not stay near come from the outer
 * caches, at least whenever the loop that reads some of them again begins. */
static void choose_ahead(Contraction *k, int64_t streamed) {
    static const int some[] = {0, 256, AHEAD, 4096};
    const Kernel *g = k->g;
    const Schedule *plan = g->p->schedule;
    const int units = g->split == k->v ? plan->units : 1;
    int64_t all = 0;
    Way way[COUNT(some) + 1];
    int n = 1, ahead = 0;
    for (int i = 0; i < k->npanel; i++) {
        Panel *q = &k->panel[i];
        int64_t own = panel_bytes(q), bytes = own > streamed ? own : streamed;
        all += own;
        if (bytes / units > plan->device->level[LEVEL_CORE].bytes * 3 / 4) q->ahead = ahead = AHEAD;
    }
    if (all < far_bytes(k)) return;
    double ns = cost_group_ns(g->p, g->s, g->split ? plan->units : 1);
    way[0] = (Way){ahead, ns};
    for (size_t i = 0; i < COUNT(some); i++)
        if (some[i] != ahead) way[n++] = (Way){some[i], ns};
    int chosen = decide_value(g->p, X_PREFETCH, g->s, n, way);
    for (int i = 0; i < k->npanel && chosen != ahead; i++) k->panel[i].ahead = chosen;
}

/* A tile's lines are fetched while the blocks of rows before it are computed. */
static void choose_lines(Contraction *k) {
    int64_t all = axis_size(k->m, k->job), job = all < k->job ? all : k->job,
            blocks = (job + k->mr - 1) / k->mr;
    k->few = axis_size(k->m, 0) > 0 ? 0 : 2 * k->mr;
    for (int i = 0; i < k->npanel; i++) {
        Panel *q = &k->panel[i];
        int64_t line = CACHE_LINE / (int64_t)dtype_size(q->packed->dtype),
                step = (q->n * k->vt + line - 1) / line; /* lines that a step reads */
        if (q->ahead) q->lines = (int)((step + blocks - 1) / blocks);
    }
}

/* ---- the epilogue's operands ----------------------------------------------------------------- */
static bool far_away(const Contraction *k, const Tensor *t) {
    int64_t bytes = (int64_t)dtype_size(t->dtype), far = far_bytes(k), v;
    for (int i = 0; i < t->rank && bytes < far; i++)
        bytes = e_is_int(t->dim[i], &v) ? bytes * v : far;
    return bytes >= far;
}

/* Loads that the epilogue makes in any case, of another row's each, contiguous along the lanes. */
static void find_far(Contraction *k, Map *seen, Expr *e) {
    const Kernel *g = k->g;
    Cx *c = g->c;
    if (!(e->flags & EF_LOAD) || e->op == E_REDUCE || !map_add(seen, (uint64_t)e->id + 1)) return;
    if (e->op == E_LOAD) {
        Expr *flat = flat_of(c, e);
        bool own = false;
        for (int i = 0; i < g->n; i++) own |= g->t[i] == e->t;
        if (own || k->nfar == MAX_FAR || !far_away(k, e->t) ||
            (flat->flags & (EF_LOAD | EF_GUARD | EF_REDUCE)))
            return;
        Expr *row = e_coef(c, flat, k->m);
        if (row && !e_is_ival(row, 0) && e_is_ival(e_coef(c, flat, k->v), 1)) k->far[k->nfar++] = e;
        return;
    }
    int last = e_always(e);
    for (int i = 0; i < last; i++) find_far(k, seen, e->a[i]);
}

void contraction_panels(Contraction *k, int64_t streamed) {
    for (int j = 0; j < k->n; j++) {
        Product *p = &k->p[j];
        if (!p->packed) continue;
        int i = 0;
        while (i < k->npanel && !same_panel(k, &k->p[k->panel[i].lead], p)) i++;
        if (i == k->npanel) k->panel[k->npanel++] = (Panel){.set = p->set, .lead = j};
        p->panel = i;
        p->place = -1;
        for (int o = 0; o < j; o++) /* rows of several operands by one constant */
            if (k->p[o].packed && k->p[o].panel == i && k->p[o].vec == p->vec)
                p->place = k->p[o].place;
        if (p->place < 0) p->place = k->panel[i].n++;
    }
    for (int i = 0; i < k->npanel; i++) pack(k, i);
    choose_ahead(k, streamed);
    if (!k->m || k->mr == 1) return;
    choose_lines(k);
    Map *seen = map_new(k->g->a);
    if (axes_size(k->nraxis[0], k->raxis[0], SHORT) < SHORT) return;
    for (int i = 0; i < k->g->n; i++) find_far(k, seen, k->g->value[i]);
}
