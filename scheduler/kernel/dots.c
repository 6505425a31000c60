/* dots.c: sums of products by blocks of threads: finding them, roles of axes, and parts. */
#include "scheduler/kernel/dots.h"
#include "scheduler/cost/decide.h"

#define STEPS_LEAST 8     /* steps of a sum that is worth sharing */
#define MATRIX_STEPS 16   /* … worth matrix units */
#define STEPS_FEW_ROWS 32 /* … where operands are used once or twice */

/* ---- finding --------------------------------------------------------------------------------- */
static Expr *both(Cx *c, Expr *a, Expr *b) { return a ? e_and(c, a, b) : b; }

static void take(DotsKernel *k, Expr *e, Expr *when) {
    Cx *c = k->g->c;
    for (int j = 0; j < k->n; j++) {
        if (k->p[j].sum.reduce != e) continue;
        if (k->when[j] != when) k->when[j] = k->when[j] && when ? e_or(c, k->when[j], when) : NULL;
        return;
    }
    if (k->n < MAX_PRODUCTS &&
        (kernel_product(k->g, e, &k->p[k->n]) || kernel_padded(k->g, e, &k->p[k->n]) ||
         kernel_built(k->g, e, &k->p[k->n])))
        k->when[k->n++] = when;
}

/* The products below e, which is needed under condition `when`. Conditions must be the same for all
 * positions. */
static void find(DotsKernel *k, Map *seen, Expr *e, Expr *when) {
    Cx *c = k->g->c;
    uint64_t key = (uint64_t)(when ? when->id + 1 : 0) << 32 | (uint64_t)(e->id + 1);
    if (!(e->flags & EF_REDUCE) || !map_add(seen, key)) return;
    if (e->op == E_REDUCE) {
        take(k, e, when);
        return;
    }
    if (e->op == E_LOAD) return;
    if (e->op != E_SELECT && e->op != E_GUARD) {
        for (int i = 0; i < e->n; i++) find(k, seen, e->a[i], when);
        return;
    }
    find(k, seen, e->a[0], when);
    /* A condition inside another one may be valid under that alone when it loads. */
    if (e->a[0]->flags & (EF_AXIS | EF_GUARD | EF_REDUCE) || (when && e->a[0]->flags & EF_LOAD))
        return;
    find(k, seen, e->a[1], both(c, when, e->a[0]));
    if (e->op == E_SELECT) find(k, seen, e->a[2], both(c, when, e_not(c, e->a[0])));
}

/* ---- axes ------------------------------------------------------------------------------------ */
int64_t dots_share(const Kernel *g, const Axis *x, int64_t unknown) {
    int64_t n = axis_size(x, -1), grain = 1;
    if (n < 0) return unknown;
    if (x == g->second) return n / g->s->op.ways;
    if (x != g->split || !e_is_int(g->grain, &grain)) return n;
    int units = schedule_units(g->p->schedule, g->s->level);
    return div_up(div_up(n, grain), units) * grain;
}

/* Sets up p for columns along v, along which one factor alone moves; false: it cannot. */
static bool orient(const DotsKernel *k, Product *p, const Axis *v) {
    AxisRole role = product_role(&p->sum, v);
    if (p->columns) return p->packed = p->columns == v;
    if (role != ROLE_M && role != ROLE_N) return false;
    product_turn(p, role == ROLE_N);
    p->packed = packable(k->g, p, role == ROLE_N);
    if (!p->packed) p->sym = NULL;
    return true;
}

static bool choose_columns(DotsKernel *k) {
    Kernel *g = k->g;
    int best = -1;
    int64_t best_score = 0;
    for (int i = 0; i < g->naxis; i++) {
        int64_t score = 0, n = axis_size(g->axis[i], -1);
        for (int j = 0; j < k->n; j++) {
            Product p = k->p[j];
            if (orient(k, &p, g->axis[i])) score += p.packed ? 1150 : 1000;
        }
        if (!score) continue;
        if (i == g->naxis - 1) score += n < 0 || n >= 8 ? 400 : 50; /* contiguous stores */
        if (n < 0 || n >= 8) score += 200;
        if (score > best_score) best = i, best_score = score;
    }
    if (best < 0) return false;
    k->v = g->axis[best];
    int n = 0;
    for (int j = 0; j < k->n; j++) {
        if (!orient(k, &k->p[j], k->v)) continue;
        k->p[n] = k->p[j];
        k->when[n++] = k->when[j];
    }
    k->n = n;
    return true;
}

/* The other axes: rows where no vec moves, else loops. */
static void sort_axes(DotsKernel *k) {
    Kernel *g = k->g;
    k->rows = 1;
    k->nrow = k->nouter = 0;
    for (int i = 0; i < g->naxis; i++) {
        Axis *x = g->axis[i];
        if (x == k->v) continue;
        bool still = true;
        for (int j = 0; j < k->n; j++) still = still && !e_uses_axis(k->p[j].vec_flat, x);
        if (still) {
            k->row[k->nrow++] = x;
            k->rows *= dots_share(g, x, ROWS_UNKNOWN);
        } else
            k->outer[k->nouter++] = x;
    }
    k->columns = dots_share(g, k->v, COLUMNS_UNKNOWN);
    k->by_row = k->nrow && k->v != g->axis[g->naxis - 1];
}

/* ---- parts ----------------------------------------------------------------------------------- */
/* vec of a and b moves along the same outer axes. */
static bool same_outer(const DotsKernel *k, const Product *a, const Product *b) {
    for (int i = 0; i < k->nouter; i++)
        if (e_uses_axis(a->vec_flat, k->outer[i]) != e_uses_axis(b->vec_flat, k->outer[i]))
            return false;
    return true;
}

/* The type of p's operands when matrix units are to multiply them, else DT_NONE. Products of
 * float32 are rounded there: only on request. */
static DType matrix_type(const DotsKernel *k, const Product *p) {
    const Schedule *plan = k->g->p->schedule;
    DType t = p->vec->dtype;
    if (!k->units || t != p->sca->dtype || !(plan->device->matrix >> t & 1)) return DT_NONE;
    return t == DT_F32 && plan->force[X_TF32] != 1 ? DT_NONE : t;
}

/* e is a multiple of four wherever axis x is. */
static bool by_fours(const Expr *e, const Axis *x) {
    int64_t n;
    if (e_is_int(e, &n)) return n % 4 == 0;
    if (e->op == E_ADD || e->op == E_SUB) return by_fours(e->a[0], x) && by_fours(e->a[1], x);
    if (e->op == E_MUL) return by_fours(e->a[0], x) || by_fours(e->a[1], x);
    return e->op == E_AXIS && e->axis == x;
}

/* Steps that lie together in sca (vec). */
static int64_t run_of_steps(const DotsKernel *k, const DotsPart *q, bool vec) {
    const Product *p = &k->p[q->lead];
    if (!q->nraxis || (!vec && p->columns && p->sca->op != E_LOAD)) return 1;
    Axis *x = q->raxis[q->nraxis - 1];
    if (!e_is_ival(e_coef(k->g->c, vec ? p->vec_flat : p->sca_flat, x), 1)) return 1;
    return axis_size(x, INT32_MAX);
}

/* Whether t is certain to be in global memory, from which alone asynchronous copies read. What a
 * cluster computes, or every unit for itself, may live in blocks' own memory
 * (scheduler/plan/memory.h). */
static bool is_global(const Kernel *g, const Tensor *t) {
    const Tensor *root = tensor_root(t);
    const Stmt *maker = root->kind == TK_TE ? tensor_group(root) : NULL;
    if (maker && maker->each) return false;
    if (root->kind == TK_INPUT || root->kind == TK_CONST || !device_cluster(g->p->schedule->device))
        return true;
    for (const Seq *q = g->s->op.t[0]->seq; q && q->owner; q = q->parent)
        if (q->owner->kind == S_CALL || q->owner->level == LEVEL_CLUSTER) return false;
    return g->s->level != LEVEL_CLUSTER;
}

/* Sets how operands can be copied. */
static void set_ways(const DotsKernel *k, DotsPart *q) {
    const Product *p = &k->p[q->lead];
    for (int vec = 0; vec < 2; vec++) {
        if (vec && q->packed) { /* as it is packed */
            q->by_four[vec] = q->even[vec] = true;
            q->async[vec] = k->g->p->schedule->device->async;
            break;
        }
        int64_t run = run_of_steps(k, q, vec);
        const Expr *inside = vec ? p->vec_inside : p->sca_inside;
        const bool together =
            !inside || !q->nraxis || !e_uses_axis(inside, q->raxis[q->nraxis - 1]);
        Axis *x = vec ? k->v : k->nrow && !p->columns ? k->row[k->nrow - 1] : NULL;
        q->across[vec] =
            run < 8 && x && e_is_ival(e_coef(k->g->c, vec ? p->vec_flat : p->sca_flat, x), 1);
        q->by_four[vec] = q->length >= 0 && run > 1 && run % 4 == 0 && together &&
                          (vec ? p->vec : p->sca)->dtype == (q->matrix ? q->matrix : DT_F32);
        const Expr *e = vec ? p->vec : p->sca;
        q->async[vec] = k->g->p->schedule->device->async && q->matrix != DT_F32 &&
                        (q->by_four[vec] || e->dtype == DT_F32) && e->op == E_LOAD &&
                        is_global(k->g, e->t);
        q->even[vec] =
            q->by_four[vec] && by_fours(vec ? p->vec_flat : p->sca_flat, q->raxis[q->nraxis - 1]);
    }
}

/* The distance of neighbours along x, if it is known and quads stay quads; -1: it is not. */
static int64_t quad_stride(const DotsKernel *k, Expr *flat, const Axis *x, bool inside) {
    int64_t stride;
    Expr *e = axis_size(x, -1) < 1 ? NULL : e_coef(k->g->c, flat, (Axis *)x);
    return e && e_is_int(e, &stride) && stride >= 0 && (inside || stride % 4 == 0) ? stride : -1;
}

/* Sets run and what belongs to it. */
static void set_span(const DotsKernel *k, DotsPart *q) {
    const Product *p = &k->p[q->lead];
    int64_t run = 1;
    q->run = 0;
    if (!q->packed || q->matrix || p->columns || p->sca->op != E_LOAD || p->sca_inside ||
        !q->even[0] || q->nraxis > MAX_RANK * 2)
        return;
    for (int i = 0; i < k->nrow; i++) {
        q->row_stride[i] = quad_stride(k, p->sca_flat, k->row[i], false);
        if (q->row_stride[i] < 0 || k->row[i] == k->g->strip) return;
    }
    for (q->ntap = q->nraxis; q->ntap > 0; q->ntap--) {
        const Axis *x = q->raxis[q->ntap - 1];
        if (quad_stride(k, p->sca_flat, x, true) != run) break;
        run *= axis_size(x, -1);
    }
    for (int i = 0; i < q->ntap; i++) {
        q->tap_stride[i] = quad_stride(k, p->sca_flat, q->raxis[i], false);
        if (q->tap_stride[i] < 0) return;
    }
    if (run % 4 == 0 && run <= INT32_MAX) q->run = run;
}

static bool join(DotsKernel *k, int j, DotsPart *q) {
    Product p = k->p[j];
    const Product *lead = &k->p[q->lead];
    if (!p.packed || !q->packed || k->when[j] != q->when || p.sym != lead->sym) return false;
    if (matrix_type(k, &p) != q->matrix) return false;
    if (!product_share_axes(k->g->c, &p, q->nraxis, q->raxis)) return false;
    if (p.sca != lead->sca || p.sca_inside != lead->sca_inside || !same_outer(k, &p, lead))
        return false;
    p.place = q->n++;
    k->p[j] = p;
    return true;
}

static void make_parts(DotsKernel *k) {
    for (int j = 0; j < k->n; j++) {
        Product *p = &k->p[j];
        for (p->set = 0; p->set < k->npart; p->set++)
            if (join(k, j, &k->part[p->set])) break;
        if (p->set < k->npart) continue;
        DotsPart *q = &k->part[k->npart++];
        *q = (DotsPart){.n = 1,
                        .lead = j,
                        .nraxis = p->sum.reduce->naxis,
                        .when = k->when[j],
                        .packed = p->packed,
                        .raxis = reduce_order(k->g->a, p->sum.reduce),
                        .matrix = matrix_type(k, p)};
        q->length = axes_size(q->nraxis, q->raxis, -1);
        if (q->length > INT32_MAX / 2) q->length = -1;
        if (q->length >= 0 && q->length < MATRIX_STEPS) q->matrix = DT_NONE;
        set_ways(k, q);
        set_span(k, q);
        q->box = dots_box(k, q);
    }
}

/* Drops products that a thread by itself does better; false: all of them. */
static bool worth(DotsKernel *k) {
    int n = 0;
    for (int j = 0; j < k->n; j++) {
        const Expr *sum = k->p[j].sum.reduce;
        int64_t length = axes_size(sum->naxis, sum->raxis, STEPS_UNKNOWN);
        if (length < STEPS_LEAST || (length < STEPS_FEW_ROWS && k->rows < 4 && !k->p[j].packed))
            continue;
        k->p[n] = k->p[j];
        k->when[n++] = k->when[j];
    }
    k->n = n;
    return n > 0;
}

static bool shape(DotsKernel *k, bool units) {
    k->units = units;
    make_parts(k);
    return dots_shape(k);
}

/* Parts and their shapes, by matrix units or by threads. */
static bool choose_units(DotsKernel *k) {
    Kernel *g = k->g;
    DotsKernel units = *k;
    bool can = shape(&units, true), half = false;
    for (int i = 0; i < units.npart; i++)
        half |= units.part[i].matrix && units.part[i].matrix != DT_F32;
    const int64_t scratch = g->scratch;
    if (!half || !can) {
        *k = units;
        return can;
    }
    can = shape(k, false);
    if (can && !decide(g->p, X_MATRIX, g->s, dots_ns(k), dots_ns(&units))) return true;
    *k = units;
    g->scratch = scratch;
    return true;
}

bool kernel_dots(Kernel *g) {
    DotsKernel *k = NEW(g->a, DotsKernel);
    k->g = g;
    Map *seen = map_new(g->a);
    for (int i = 0; i < g->n; i++) find(k, seen, g->value[i], NULL);
    if (!k->n || !choose_columns(k)) return false;
    sort_axes(k);
    if (!worth(k)) return false;
    sort_axes(k);
    if (!choose_units(k)) return false;
    dots_order(k);
    k->placed = true;
    for (int i = 0; i < g->nown; i++) g->own[i].near = true;
    g->s->op.sums_ns = dots_ns(k);
    g->kind = KERNEL_DOTS;
    g->dots = k;
    return true;
}
