/* fuse.c: which tensor expressions are computed into memory, and which are substituted into their
 * users; then groups of expressions over one domain.
 *
 * Works from the last statement to the first: when a tensor is reached, every user that remains is
 * computed into memory, so the decision sees all places where the value would be recomputed.
 * Nothing here knows operators; the cost of an expression and the number of evaluations decide. */
#include "scheduler/cost/cost.h"
#include "scheduler/cost/decide.h"
#include "scheduler/kernel/frame.h"
#include "scheduler/passes.h"
#include "utask/product.h"
#include "utask/walk.h"
#include "utask/window_rows.h"

#define BODY_MAX 400  /* distinct nodes of one fused expression */
#define CHEAP 2       /* arithmetic worth repeating rather than storing … */
#define CHEAP_LOADS 3 /* … with that many loads … */
#define CHEAP_CHAIN 4 /* … and in values that are made of each other … */
#define CHEAP_MAX 12  /* … and the most of it that may be */
#define GUARD_CYCLES                                                                               \
    4             /* in which an element's place is compared with bounds; four elements share it */
#define OPENING 4 /* arithmetic of a value that opens a code */

typedef VEC(Tensor *) TensorVec;

typedef struct Fate { /* of a tensor */
    bool pinned;      /* it must be in memory */
    TensorVec users;  /* tensors in memory whose bodies load it */
    int loads;        /* of it, in all bodies as they were */
    int above;        /* arithmetic that is repeated on the way to what loads it */
    const Stmt *stmt; /* what computes it */
} Fate;

typedef struct Fuse {
    Program *p;
    Cx *c;
    Arena *a;
    Fate *of; /* by tensor id */
    TensorVec order;
    Tensor *fused, *user; /* what is substituted; what loads it from now on */
    int along;            /* loads of a value when it is computed elsewhere */
} Fuse;

/* ---- what must be in memory ------------------------------------------------------------------ */
static void pin(Fuse *f, Tensor *t) {
    if (t) f->of[t->id].pinned = true;
    if (t && t->kind == TK_VIEW) pin(f, t->base);
}
static void pin_load(void *user, Expr *e) { pin(user, e->t); }
static void pin_slot(void *user, const Slot *k) {
    Fuse *f = user;
    if (k->kind == SLOT_READ) pin(f, *k->t);
    if (k->kind == SLOT_EXPR) e_each_load(f->c, *k->e, pin_load, f);
}

static void scan(void *user, Stmt *s) {
    Fuse *f = user;
    for (int k = 0; s->kind == S_OP && k < s->op.n; k++) {
        Tensor *t = s->op.t[k];
        vec_push(f->a, &f->order, t);
        f->of[t->id].stmt = s;
        if (s->level != LEVEL_HOST) continue;
        pin(f, t);
        e_each_load(f->c, t->body, pin_load, f);
    }
    stmt_slots(s, pin_slot, f);
}

/* ---- cost ------------------------------------------------------------------------------------ */
typedef struct Cost {
    int arith;                /* weighted operations on elements (not on indices) */
    int index;                /* divisions and the like in indices */
    double simple, expensive; /* the same by what they take (cost.h) */
    int loads, nodes;
    bool reduce, select, guard;
    bool bent; /* reads turn back or stay where they are along an axis: edges, reflections */
} Cost;

static bool bends(const Expr *e) {
    const bool turn = e->op == E_ABS || e->op == E_MIN || e->op == E_MAX || e->op == E_SELECT;
    return turn && !(e->flags & EF_LOAD);
}

static void cost_walk(Map *seen, Expr *e, Cost *k, bool index) {
    if (!map_add(seen, (uint64_t)e->id * 2 + index + 1)) return;
    k->nodes++;
    if (e->pure) return; /* uniform: computed once */
    int w = e_work(e->op)->weight;
    if (index) {
        k->index += w > 1 ? w : 0;
        k->bent |= bends(e);
    } else {
        k->arith += w;
        k->simple += e_work(e->op)->simple;
        k->expensive += e_work(e->op)->expensive;
    }
    k->loads += e->op == E_LOAD;
    k->reduce |= e->op == E_REDUCE;
    k->select |= e->op == E_SELECT;
    k->guard |= e->op == E_GUARD;
    int n = e->op == E_TELL ? 1 : e->n; /* what it tells is not computed */
    for (int i = 0; i < n; i++) cost_walk(seen, e->a[i], k, index || e->op == E_LOAD);
}

static Cost cost_of(Fuse *f, Expr *e) {
    Cost k = {0};
    cost_walk(map_new(f->a), e, &k, false);
    return k;
}

static void count_load(void *user, Expr *e) { ((Fuse *)user)->of[e->t->id].loads++; }

/* What only the value loads becomes part of it, but for reductions. */
static void load_along(void *user, Expr *e) {
    Fuse *f = user;
    Expr *body = e->t->body;
    bool part =
        body && f->of[e->t->id].loads == 1 && !f->of[e->t->id].pinned && !cost_of(f, body).reduce;
    if (part)
        e_each_load(f->c, body, load_along, f);
    else
        f->along++;
}

/* ---- places where a tensor is loaded --------------------------------------------------------- */
typedef struct Sites {
    Fuse *f;
    const Tensor *t;
    Map *seen;
    int n;
    bool flat, conditional, operand, in_reduce, in_index, repeated;
    int operands, built; /* products that it is a factor of; of which kernels can compute it */
    int inner, own;      /* loads in other factors that kernels compute; in no product */
    int lazy, inside;    /* conditions around the place, and factors that the kernel computes */
    Expr *evals;         /* evaluations over the user's whole domain, int64 */
    Expr *domain;
    const Tensor *user;
    Expr *extent[MAX_RANK * 4]; /* of enclosing reductions */
    int nextent;
} Sites;

static void site_walk(Sites *s, Expr *e, bool conditional, bool operand, bool index);

/* The load moves along one axis in each dimension: not along windows. */
static bool by_axes(const Expr *load) {
    for (int i = 0; i < load->n; i++)
        if (load->a[i]->op != E_AXIS && load->a[i]->flags & EF_AXIS) return false;
    return true;
}

/* A sum of products. What is in a factor that its kernel computes is evaluated once for each of the
 * factor's elements. */
static void product_walk(Sites *s, Expr *e, bool conditional, bool index) {
    Cx *c = s->f->c;
    Expr *domain = s->domain;
    SumProduct p;
    Axis *columns;
    int built = -1;
    const bool bytes = product_of_bytes(e, &p);
    if (!bytes && product_of(e, &p) && !s->lazy && !index && s->nextent == e->naxis)
        built = product_built(c, &p, s->user->rank, s->user->axis, &columns);
    for (int i = 0; i < 2; i++) {
        Expr *inside_of, *load = padded_load(c, p.factor[i], &inside_of),
                         *x = inside_of && load ? load : p.factor[i];
        if (bytes) x = p.load[i];
        const bool direct = x->op == E_LOAD && x->t == s->t, inside = i == built && !direct;
        s->operands += direct;
        s->built += direct && i == built && by_axes(x);
        for (int d = 0; inside && d < s->user->rank; d++) {
            if (d == 0) s->domain = e_int(c, 1);
            if (e_uses_axis(x, s->user->axis[d])) s->domain = e_mul(c, s->domain, s->user->dim[d]);
        }
        s->inside += inside;
        site_walk(s, x, conditional, true, index);
        if (bytes && p.zero[i]) site_walk(s, p.zero[i], conditional, false, index);
        s->inside -= inside;
        s->domain = domain;
    }
}

static void site_walk(Sites *s, Expr *e, bool conditional, bool operand, bool index) {
    if (!(e->flags & EF_LOAD)) return;
    if (!map_add(s->seen, (uint64_t)e->id + 1)) return;
    Cx *c = s->f->c;
    if (e->op == E_LOAD && e->t == s->t) {
        s->n++;
        s->flat |= e->kind;
        s->conditional |= conditional;
        s->operand |= operand;
        s->in_reduce |= s->nextent > 0;
        s->in_index |= index;
        s->repeated |= s->nextent > 0 && !operand && !s->inside;
        s->inner += !operand && s->inside;
        s->own += !operand && !s->inside;
        Expr *n = s->domain;
        for (int i = 0; i < s->nextent; i++) n = e_mul(c, n, s->extent[i]);
        s->evals = e_add(c, s->evals, n);
    }
    int up = s->nextent;
    if (e->op == E_REDUCE) {
        for (int i = 0; i < e->naxis && s->nextent < (int)COUNT(s->extent); i++)
            s->extent[s->nextent++] = e->raxis[i]->extent;
        if (is_fast_product(e) && !is_sum_of_squares(e)) {
            product_walk(s, e, conditional, index);
            s->nextent = up;
            return;
        }
    }
    for (int i = 0; i < e->n; i++) {
        /* The same choice for all elements is no reason to compute a sum elsewhere. */
        bool choice = e->op == E_GUARD || e->op == E_TELL ||
                      (e->op == E_SELECT && (e->a[0]->flags & (EF_AXIS | EF_LOAD)));
        bool cond = conditional || (choice && i > 0), lazy = i >= e_always(e);
        s->lazy += lazy;
        site_walk(s, e->a[i], cond, false, index || e->op == E_LOAD);
        s->lazy -= lazy;
    }
    s->nextent = up;
}

/* ---- operands of products -------------------------------------------------------------------- */
/* Whether a load below e, or in what may become part of e, is of rows that only the run knows: its
 * position is loaded, or counted from a symbol. */
typedef struct Indirect {
    Fuse *f;
    bool found;
} Indirect;
static void indirect_load(void *user, Expr *e) {
    Indirect *k = user;
    const Fate *of = &k->f->of[e->t->id];
    for (int i = 0; i < e->n; i++) k->found |= (e->a[i]->flags & (EF_LOAD | EF_SYM)) != 0;
    if (k->found || !e->t->body || of->pinned) return;
    const Cost cost = cost_of(k->f, e->t->body);
    if (!cost.reduce && (of->loads == 1 || !cost.arith))
        e_each_load(k->f->c, e->t->body, indirect_load, k);
}

typedef struct OperandWays {
    const Fuse *f;
    const Tensor *t;
    const Cost *k;
    int groups, loads; /* that have products with it; loads beside them */
    bool inner;        /* it is a part of factors that products compute */
    bool once;         /* each element is read once */
    bool built;
} OperandWays;

/* Computed by all units together, who then wait for each other; or by each of them for itself. */
static double operand_ns(void *user, double unknown) {
    const OperandWays *o = user;
    const Schedule *plan = o->f->p->schedule;
    const Device *d = plan->device;
    const Work w = cost_work(o->f->c, o->f->of[o->t->id].stmt, unknown);
    const double n = w.written / (double)dtype_size(o->t->dtype), bytes = w.read + w.written;
    double ns = n * (o->k->simple * d->element_ns + o->k->expensive * d->function_ns);
    if (ns < bytes / device_gbps(d, bytes)) ns = bytes / device_gbps(d, bytes);
    const double wait = plan->units > 1 ? d->level[LEVEL_TEAM].barrier_ns : 0;
    if (!o->built) return ns / plan->units + d->group_ns + wait;
    if (o->once) return ns / plan->units;
    /* Rows that are only read are read where they are. */
    const int times = (o->t->body->op == E_LOAD ? 0 : o->groups) + o->inner;
    return times * ns + o->loads * ns / plan->units;
}

/* A load of 16-bit floats as float32. */
static bool is_widened(const Expr *e) {
    return e->op == E_CAST && e->dtype == DT_F32 && e->a[0]->op == E_LOAD && !e->a[0]->kind &&
           (e->a[0]->dtype == DT_F16 || e->a[0]->dtype == DT_BF16);
}

/* Whether the products with t compute it for themselves, rows by rows: what is read through an
 * index, so that it is not copied first, and sums and the like of such; what is only widened. */

static bool operand_pays(Fuse *f, const Tensor *t, const Sites *s, const Cost *k) {
    const TensorVec *u = &f->of[t->id].users;
    OperandWays o = {.f = f, .t = t, .k = k, .inner = s->inner > 0, .loads = s->own};
    Indirect indirect = {f, false};
    const bool gpu = device_is_gpu(f->p->schedule->device);
    o.once = gpu && e_at_most(f->c, s->evals, tensor_count(f->c, t)); /* as of a vector's product */
    if ((f->p->schedule->lanes <= 1 && !gpu) || (s->operands != s->built && !o.once) ||
        s->conditional || s->in_index || s->repeated)
        return false;
    e_each_load(f->c, t->body, indirect_load, &indirect);
    if (!indirect.found && !is_widened(t->body)) return false;
    for (int i = 0; i < u->n; i++) { /* those over one domain become one group */
        int j = 0;
        while (j < i && !(u->p[j]->seq == u->p[i]->seq && same_dims(u->p[j], u->p[i]))) j++;
        o.groups += j == i;
    }
    double shared = cost_over_sizes(operand_ns, &o);
    o.built = true;
    return decide(f->p, X_OPERAND, f->of[t->id].stmt, shared, cost_over_sizes(operand_ns, &o));
}

static void widest_load(void *user, Expr *e) {
    size_t *bytes = user;
    if (e->flags & EF_AXIS && dtype_size(e->t->dtype) > *bytes) *bytes = dtype_size(e->t->dtype);
}

/* Bytes of the widest elements that t is made of. */
static size_t widest(const Fuse *f, const Tensor *t) {
    size_t bytes = 0;
    e_each_load(f->c, t->body, widest_load, &bytes);
    return bytes;
}

/* Whether t opens codes: what is read again is less than what would be stored. */
static bool opens_codes(const Fuse *f, const Tensor *t, const Cost *k) {
    return widest(f, t) == 1 && dtype_size(t->dtype) >= 4 && !k->reduce && !k->select &&
           !k->index && k->arith <= OPENING;
}

/* Whether t makes codes: what it is made of had better not be stored instead. */
static bool makes_codes(const Fuse *f, const Tensor *t) {
    return dtype_size(t->dtype) == 1 && widest(f, t) >= 4;
}

/* ---- sums over windows ----------------------------------------------------------------------- */
static bool is_windows(Fuse *f, const Tensor *u, Expr *e) {
    const int lanes = f->p->schedule->lanes;
    Windows w;
    Planes p;
    return windows_of(f->c, e, u->rank, u->axis, lanes, &w) ||
           planes_of(f->c, e, u->rank, u->axis, lanes, &p);
}

/* Whether sums over windows below e, which is part of u, stay such when what they load of f->fused
 * is computed there; `all`: and all products that load it are such. */
static bool stay_windows(Fuse *f, Map *seen, const Tensor *u, Expr *e, bool all) {
    if (!(e->flags & EF_REDUCE) || !map_add(seen, (uint64_t)e->id + 1)) return true;
    SumProduct p;
    bool loads = false;
    for (int i = 0; i < 2 && product_of(e, &p); i++) {
        Expr *inside, *x = padded_load(f->c, p.factor[i], &inside);
        loads |= x && x->t == f->fused;
    }
    if (loads && (all || is_windows(f, u, e)) && !is_windows(f, u, expr_inlined(f->c, e, f->fused)))
        return false;
    for (int i = 0; i < e->n; i++)
        if (!stay_windows(f, seen, u, e->a[i], all)) return false;
    return true;
}

/* Whether t may become part of the products that load it as far as sums over windows go: padding
 * does where all of them are such, whose kernel needs none in memory. */
static bool windows_take(Fuse *f, Tensor *t, bool all) {
    const TensorVec *u = &f->of[t->id].users;
    if (f->p->schedule->lanes <= 1) return !all;
    f->fused = t;
    for (int i = 0; i < u->n; i++)
        if (!stay_windows(f, map_new(f->a), u->p[i], u->p[i]->body, all)) return false;
    return true;
}

/* How many elements of t the products that load it copy, an element for each step. */
typedef struct PaddedCopies {
    const Tensor *t, *user;
    double elements;
} PaddedCopies;
static bool padded_copies(void *user, Expr *e) {
    PaddedCopies *k = user;
    SumProduct p;
    for (int i = 0; product_of(e, &p) && i < 2; i++) {
        if (!p.load[i] || p.load[i]->t != k->t) continue;
        double n = 1;
        for (int d = 0; d < k->user->rank; d++)
            if (e_uses_axis(p.load[i], k->user->axis[d])) n *= cost_size(k->user->dim[d]);
        for (int d = 0; d < e->naxis; d++) n *= cost_size(e->raxis[d]->extent);
        k->elements += n;
    }
    return false; /* all of them */
}

/* On a GPU the products' kernels copy their operands: that each copied element asks whether it is
 * inside, or a pass over all of them by all units, who then wait for each other. */
static bool guards_pay(Fuse *f, const Tensor *t) {
    const TensorVec *u = &f->of[t->id].users;
    const Stmt *at = f->of[t->id].stmt;
    const Schedule *plan = f->p->schedule;
    PaddedCopies k = {.t = t};
    for (int i = 0; i < u->n; i++) {
        k.user = u->p[i];
        find_reduction(map_new(f->a), u->p[i]->body, false, padded_copies, &k);
    }
    const double guards =
        k.elements / plan->units / plan->device->threads * GUARD_CYCLES * plan->device->cycle_ns;
    const double wait = plan->units > 1 ? plan->device->level[LEVEL_TEAM].barrier_ns : 0;
    return decide(f->p, X_OPERAND, at, cost_group_ns(f->p, at, plan->units) + wait, guards);
}

static bool padding_pays(Fuse *f, Tensor *t, const Sites *s) {
    Expr *inside;
    if (!padded_load(f->c, t->body, &inside) || !inside || s->operands != s->n || s->conditional ||
        s->in_index)
        return false;
    if (device_is_gpu(f->p->schedule->device)) return guards_pay(f, t);
    if (!windows_take(f, t, true)) return false;
    const Stmt *at = f->of[t->id].stmt;
    const double ns = cost_group_ns(f->p, at, f->p->schedule->units);
    return decide_value(f->p, X_RECOMPUTE, at, 2, (Way[]){{1, ns}, {0, ns}});
}

/* ---- frames ---------------------------------------------------------------------------------- */
typedef struct OnlyLoad {
    const Tensor *t;
    Expr *e; /* the load of it */
    int n;
} OnlyLoad;
static void find_load(void *user, Expr *e) {
    OnlyLoad *k = user;
    if (e->t != k->t) return;
    k->e = e;
    k->n++;
}

/* Whether u has each element of t at most once, in order, inside of a frame of constants. */
static bool frames(Fuse *f, Tensor *t, Tensor *u, Framing *w) {
    Cx *c = f->c;
    OnlyLoad only = {.t = t};
    Sites s = {.f = f,
               .t = t,
               .seen = map_new(f->a),
               .evals = e_int(c, 0),
               .domain = e_int(c, 1),
               .user = u};
    if (f->p->schedule->lanes <= 1 || u->seq != t->seq || u->rank != t->rank || u->rank < 1 ||
        !frame_of(c, u->body, u->rank, u->axis, w))
        return false;
    e_each_load(c, u->body, find_load, &only);
    if (only.n != 1 || only.e->kind) return false;
    for (int d = 0; d < u->rank; d++) {
        Expr *at = e_axis(c, u->axis[d]);
        if (only.e->a[d] != (w->low[d] ? e_sub(c, at, w->low[d]) : at) && !e_is_ival(t->dim[d], 1))
            return false;
    }
    site_walk(&s, w->inside, false, false, false);
    return !s.conditional && !s.in_reduce && !s.in_index;
}

/* Whether storing u's elements inside of frame w where they are computed pays: else they are copied
 * there, and the frame has to be filled in any case. */
static bool frame_pays(Fuse *f, const Tensor *u, const Framing *w) {
    const Stmt *s = f->of[u->id].stmt;
    const double ns = cost_group_ns(f->p, s, f->p->schedule->units);
    double part = 1;
    for (int d = 0; d < w->n; d++)
        if (w->low[d]) part *= cost_size(e_sub(f->c, w->high[d], w->low[d])) / cost_size(u->dim[d]);
    return decide(f->p, X_FRAME, s, ns, ns * (1 - part));
}

/* Whether t becomes part of its only user, which stores it in a frame: its kernel stays the same.
 */
static bool framed(Fuse *f, Tensor *t, const Cost *k) {
    const TensorVec *u = &f->of[t->id].users;
    Framing w;
    return u->n == 1 && !k->guard && frames(f, t, u->p[0], &w) && frame_pays(f, u->p[0], &w);
}

typedef struct Moved {
    Cx *c;
    const Tensor *t;
    Tensor *to;
    const Framing *w;
} Moved;
static Expr *moved_load(void *user, Expr *e) {
    const Moved *m = user;
    Expr *at[MAX_RANK];
    if (e->t != m->t) return NULL;
    for (int d = 0; d < e->n; d++)
        at[d] = m->w->low[d] ? e_add(m->c, e->a[d], m->w->low[d]) : e->a[d];
    return e_load(m->c, m->to, at);
}

/* Puts the statement of u, which loads t alone, right behind that of t; false: it cannot. */
static bool moves_up(const Fuse *f, const Tensor *t, const Tensor *u) {
    const Stmt *from = f->of[u->id].stmt, *behind = f->of[t->id].stmt;
    Seq *q = t->seq;
    int i = 0, j;
    while (q->s.p[i] != behind) i++;
    for (j = ++i; q->s.p[j] != from; j++)
        if (q->s.p[j]->kind != S_OP) return false;
    Stmt *s = q->s.p[j];
    memmove(q->s.p + i + 1, q->s.p + i, sizeof s * (size_t)(j - i));
    q->s.p[i] = s;
    return true;
}

/* Whether all of t, which is in frame w of u, is there: padding with less than nothing cuts. */
static bool is_whole(Cx *c, const Tensor *t, const Tensor *u, const Framing *w) {
    for (int d = 0; d < u->rank; d++) {
        Expr *n = w->low[d] ? e_sub(c, w->high[d], w->low[d]) : u->dim[d];
        if (!e_is_ival(e_sub(c, n, t->dim[d]), 0)) return false;
    }
    return true;
}

/* Where t is copied into a frame, lets all others read it there, so that it need not be in memory
 * twice: but for products, which read it best without rows in between. */
static void share_frame(Fuse *f, Tensor *t) {
    TensorVec *u = &f->of[t->id].users;
    Sites s = {.f = f, .t = t, .evals = e_int(f->c, 0), .domain = e_int(f->c, 1)};
    Moved m = {.c = f->c, .t = t};
    Framing w, one;
    if (f->of[t->id].pinned || t->owned || u->n < 2) return;
    for (int i = 0; i < u->n; i++) {
        Tensor *x = u->p[i];
        if (frames(f, t, x, &one) && one.inside->op == E_LOAD && is_whole(f->c, t, x, &one)) {
            if (m.to) return;
            m.to = x;
            w = one;
            continue;
        }
        s.seen = map_new(f->a);
        s.user = x;
        site_walk(&s, x->body, false, false, false);
    }
    if (!m.to || s.flat || s.operand || !frame_pays(f, m.to, &w) || !moves_up(f, t, m.to)) return;
    m.w = &w;
    for (int i = 0; i < u->n; i++) {
        Tensor *x = u->p[i];
        if (x == m.to) continue;
        x->body = e_subst(f->c, x->body, 0, NULL, NULL, moved_load, &m);
        vec_push(f->a, &f->of[m.to->id].users, x);
    }
    u->p[0] = m.to;
    u->n = 1;
    f->of[t->id].loads = 1;
}

/* A sum of products with a constant: of layers, not of attention, which computes scores again. */
static bool is_layer(void *user, Expr *e) {
    SumProduct p;
    (void)user;
    return product_of(e, &p) && p.load[0] && p.load[1] &&
           (p.load[0]->t->kind == TK_CONST) != (p.load[1]->t->kind == TK_CONST);
}

static void only_load(void *user, Expr *e) { *(Expr **)user = e; }

/* Whether t can take the place in memory of a layer's result that nothing else reads: then it is
 * computed once for no more memory. */
static bool is_finish(Fuse *f, const Tensor *t, const Cost *k) {
    Expr *e = NULL;
    if (k->loads != 1 || k->reduce || k->guard) return false;
    e_each_load(f->c, t->body, only_load, &e);
    const Tensor *x = e->t;
    return x->kind == TK_TE && f->of[x->id].loads == 1 && !f->of[x->id].pinned && !x->owned &&
           x->seq == t->seq && same_dims(x, t) && load_is_own(e, x, t) &&
           find_reduction(map_new(f->a), x->body, false, is_layer, NULL);
}

/* Whether t is a table of positions: indices and weights along an axis or two of a size that only
 * the run knows, which others read for each of their elements. On a GPU computing it again is
 * cheaper than waiting for each other. */
static bool is_table(const Fuse *f, const Tensor *t, const Cost *k, Expr *evals, Expr *have) {
    return f->p->schedule->lanes > 1 && t->rank <= 2 && !e_is_int(have, &(int64_t){0}) &&
           k->arith + k->index > CHEAP_CHAIN && !e_at_most(f->c, evals, have);
}

static bool should_fuse(Fuse *f, Tensor *t) {
    Cx *c = f->c;
    TensorVec *u = &f->of[t->id].users;
    if (f->of[t->id].pinned || t->owned || !u->n) return false;
    Cost k = cost_of(f, t->body);
    Expr *have = tensor_count(c, t);
    Sites s = {.f = f, .t = t, .evals = e_int(c, 0)};
    bool one_seq = true, deeper = false;
    for (int i = 0; i < u->n; i++) {
        Tensor *x = u->p[i];
        int before = s.n;
        s.seen = map_new(f->a);
        s.domain = tensor_count(c, x);
        s.user = x;
        site_walk(&s, x->body, false, false, false);
        if (s.flat) return false;
        one_seq &= x->seq == t->seq;
        deeper |= x->seq->depth > t->seq->depth;
        if (cost_of(f, x->body).nodes + k.nodes * (s.n - before) > BODY_MAX) return false;
    }
    if (framed(f, t, &k)) return true;
    if (k.reduce) {
        /* A product or reduction: only where each of its elements is computed once,
         * unconditionally. */
        return one_seq && !s.conditional && !s.in_reduce && !s.in_index &&
               e_at_most(c, s.evals, have);
    }
    if (s.operand && !deeper && padding_pays(f, t, &s)) return true;
    if (s.operand &&
        (t->body->op != E_LOAD || k.index || k.bent || k.loads > 1 || !windows_take(f, t, false)))
        return !deeper && operand_pays(f, t, &s, &k); /* it does not stay a plain load */
    if (k.loads == 0 && is_table(f, t, &k, s.evals, have)) {
        const double ns = cost_group_ns(f->p, f->of[t->id].stmt, f->p->schedule->units);
        return decide_value(f->p, X_RECOMPUTE, f->of[t->id].stmt, 2, (Way[]){{0, ns}, {1, ns}});
    }
    if (k.loads == 0) return k.arith + k.index <= 24 || s.n == 1;
    if (deeper) return k.arith == 0 && k.index == 0 && k.loads == 1;
    if (e_at_most(c, s.evals, have)) {
        if (!s.in_reduce || !makes_codes(f, t)) return true;
        const double ns = cost_group_ns(f->p, f->of[t->id].stmt, f->p->schedule->units);
        return decide_value(f->p, X_RECOMPUTE, f->of[t->id].stmt, 2, (Way[]){{0, ns}, {1, ns}});
    }
    if (s.in_index) return false;
    if (k.arith + k.index > CHEAP_MAX || k.loads > 2) return false;
    int again = opens_codes(f, t, &k) ? 0 : k.arith + k.index;
    f->along = 0;
    e_each_load(c, t->body, load_along, f);
    bool cheap = !again || (again <= CHEAP && f->of[t->id].above + again <= CHEAP_CHAIN &&
                            f->along <= CHEAP_LOADS && !is_finish(f, t, &k));
    double ns = cost_group_ns(f->p, f->of[t->id].stmt, f->p->schedule->units);
    if (!decide_value(f->p, X_RECOMPUTE, f->of[t->id].stmt, 2, (Way[]){{cheap, ns}, {!cheap, ns}}))
        return false;
    f->of[t->id].above += again;
    return true;
}

/* ---- substitution ---------------------------------------------------------------------------- */
/* What is repeated above a value stands above what it is made of, too. */
static void add_above(void *user, Expr *e) {
    const Fuse *f = user;
    int above = f->of[f->fused->id].above;
    if (f->of[e->t->id].above < above) f->of[e->t->id].above = above;
}

static void add_user(void *user, Expr *e) {
    Fuse *f = user;
    TensorVec *v = &f->of[e->t->id].users;
    if (e->t->kind == TK_VIEW) pin(f, e->t); /* reads its base, which stays in memory */
    for (int i = 0; i < v->n; i++)
        if (v->p[i] == f->user) return;
    vec_push(f->a, v, f->user);
}

/* ---- groups ---------------------------------------------------------------------------------- */
typedef struct GroupCheck {
    Stmt *g;
    bool bad, related;
    const Tensor *t;
} GroupCheck;

static void reads_group(void *user, Expr *e) {
    GroupCheck *k = user;
    for (int i = 0; i < k->g->op.n; i++)
        if (tensor_root(e->t) == k->g->op.t[i]) k->bad = true;
}

/* Loads of the group's tensors must be at the reader's own position. */
static void reads_own(void *user, Expr *e) {
    GroupCheck *k = user;
    for (int i = 0; i < k->g->op.n; i++) {
        if (tensor_root(e->t) != k->g->op.t[i]) continue;
        k->related = true;
        if (!load_is_own(e, k->g->op.t[i], k->t)) k->bad = true; /* a view of it never is */
    }
}

static int count_reduces(Fuse *f, Stmt *g) {
    int n = 0;
    for (int i = 0; i < g->op.n; i++) n += cost_of(f, g->op.t[i]->body).reduce;
    return n;
}

/* Sums in a frame (framed): the group is the frame's alone. */
static bool has_frame(const Fuse *f, const Tensor *t) {
    return f->p->schedule->lanes > 1 && t->body->op == E_SELECT && t->body->a[2]->pure &&
           t->body->a[1]->flags & EF_REDUCE;
}

/* Whether `s` may join group g; in-between statements are checked by the caller. */
static bool joins(Fuse *f, Stmt *g, Stmt *s) {
    Tensor *a = g->op.t[0], *b = s->op.t[0];
    if (has_frame(f, a) || has_frame(f, b)) return false;
    if (!same_dims(a, b) || g->op.n >= 8 || g->level == LEVEL_HOST || s->level == LEVEL_HOST)
        return false;
    GroupCheck k = {.g = g, .t = b};
    e_each_load(f->c, b->body, reads_own, &k);
    if (k.bad || !k.related) return false;
    /* Under a reduction the own position would be read before it is final. */
    if (cost_of(f, b->body).reduce) {
        for (int i = 0; i < g->op.n; i++) {
            Sites st = {.f = f,
                        .t = g->op.t[i],
                        .seen = map_new(f->a),
                        .evals = e_int(f->c, 0),
                        .domain = e_int(f->c, 1),
                        .user = b};
            site_walk(&st, b->body, false, false, false);
            if (st.in_reduce) return false;
        }
    }
    return count_reduces(f, g) + count_reduces(f, s) <= 8;
}

static void merge(Fuse *f, Stmt *g, Stmt *s) {
    /* s takes over g's members, before its own, over g's axes. */
    Tensor *lead = g->op.t[0];
    int n = g->op.n + s->op.n;
    Tensor **t = NEWN(f->a, Tensor *, n);
    memcpy(t, g->op.t, sizeof *t * (size_t)g->op.n);
    for (int i = 0; i < s->op.n; i++) {
        Tensor *x = s->op.t[i];
        x->body = expr_over(f->c, x->body, x, lead, 0);
        memcpy(x->axis, lead->axis, sizeof x->axis);
        t[g->op.n + i] = x;
    }
    s->op.t = t;
    s->op.n = n;
}

static void drop(Seq *q, int at) {
    memmove(q->s.p + at, q->s.p + at + 1, sizeof *q->s.p * (size_t)(--q->s.n - at));
}

/* Merges statement *at with those before it that it may join; what was substituted goes. */
static void group(void *user, Seq *q, int *at) {
    Fuse *f = user;
    Stmt *s = q->s.p[*at];
    if (s->kind != S_OP) return;
    if (s->op.t[0]->fused) {
        drop(q, (*at)--);
        return;
    }
    /* The nearest earlier group, over statements that do not read it. */
    for (int j = *at - 1; j >= 0 && j >= *at - 12; j--) {
        Stmt *g = q->s.p[j];
        if (g->kind != S_OP && g->kind != S_LET && g->kind != S_CHECK) break;
        if (g->kind != S_OP || !joins(f, g, s)) continue;
        GroupCheck k = {.g = g};
        for (int m = j + 1; m < *at; m++) {
            Stmt *b = q->s.p[m];
            if (b->kind != S_CHECK) stmt_loads(f->c, b, reads_group, &k);
        }
        if (k.bad) break;
        merge(f, g, s);
        drop(q, j);
        j = --*at;
    }
}

void pass_fuse(Program *p) {
    Fuse f = {.p = p, .c = p->cx, .a = p->cx->a};
    f.of = NEWN(f.a, Fate, p->cx->next_tensor + 1);
    for (int i = 0; i < p->nout; i++) pin(&f, p->out[i].t);
    seq_each(p->top, scan, &f);
    for (int i = 0; i < f.order.n; i++) e_each_load(f.c, f.order.p[i]->body, count_load, &f);
    for (int i = f.order.n - 1; i >= 0; i--) {
        Tensor *t = f.user = f.order.p[i];
        share_frame(&f, t);
        if (!should_fuse(&f, t)) {
            e_each_load(f.c, t->body, add_user, &f);
            continue;
        }
        f.fused = t;
        t->fused = true;
        p->nfused++;
        e_each_load(f.c, t->body, add_above, &f);
        for (int k = 0; k < f.of[t->id].users.n; k++) {
            f.user = f.of[t->id].users.p[k];
            f.user->body = expr_inlined(f.c, f.user->body, t);
            e_each_load(f.c, t->body, add_user, &f);
        }
    }
    seq_rewrite(p->top, group, &f);
}
