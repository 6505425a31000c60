/* control.c: lowers If, Loop and Scan.
 *
 * A loop's carried value is constant, of constant shape, or neither; which one is found by
 * iterating to a fixed point. It starts out as "never changes". The body is lowered under that
 * assumption; where its result contradicts it, that part (an element, a dimension, the rank, the
 * contents) is given up and the body is lowered again. The result is remembered for each node, so
 * the number of passes over nested loops is linear in what varies, not exponential in depth. */
#include "utask/expr_internal.h"
#include "utask/lower_internal.h"
#include "utask/ops/size.h"
#include "utask/sequence_val.h"

/* ---- If -------------------------------------------------------------------------------------- */
static const Region *region_attr(Lower *L, const char *name) {
    const Attr *a = node_attr(L->node, name);
    if (!a) fail(L, "the subgraph %s is missing", name);
    return a->g;
}

static Expr *bool_scalar(Lower *L, Tensor *t, const char *what) {
    if (t->dtype != DT_BOOL) fail(L, "%s must be bool, not %s", what, dtype_name(t->dtype));
    if (t->rank >= 0)
        check_eq(L, count(L, t), e_int(L->cx, 1), "%s must have exactly one element", what);
    return uni(L, t, 0);
}

static void if_arm(Lower *L, void *user, int arm, Val **result) {
    const Region **r = user;
    lower_region(L, r[arm], 0, NULL, L->node->nout, result);
}

void lower_If(Lower *L) {
    const Region *r[2] = {region_attr(L, "then_branch"), region_attr(L, "else_branch")};
    Expr *cond = bool_scalar(L, in(L, 0), "the condition");
    Val **res = NEWN(L->a, Val *, L->node->nout + 1);
    int64_t v;
    if (e_is_int(cond, &v))
        lower_region(L, r[!v], 0, NULL, L->node->nout, res);
    else {
        Fork f = fork_begin(L, cond);
        fork_run(L, &f, if_arm, r, L->node->nout, res);
    }
    for (int i = 0; i < L->node->nout; i++) out_val(L, i, res[i]);
}

/* ---- loops ----------------------------------------------------------------------------------- */
/* One carried value during one attempt. */
typedef struct Carried {
    CarryPlan *plan;
    Val *init, *phi; /* phi: the value inside the body */
    bool elems;      /* tracked element by element */
    int64_t n;
    Sym **elem_sym; /* NULL entries: the element does not vary */
    Sym *dim_sym[MAX_RANK], *rank_sym, *len_sym, *has_sym;
    Expr **elem_init;
    struct Carried *inner;
} Carried;

/* The tensor made of the loop's element symbols, in the current Seq. */
static Tensor *elems_tensor(Lower *L, const Carried *k) {
    Expr **e = NEWN(L->a, Expr *, k->n + 1);
    const Tensor *t = k->init->t;
    for (int64_t i = 0; i < k->n; i++)
        e[i] = k->elem_sym[i] ? e_sym(L->cx, k->elem_sym[i]) : k->elem_init[i];
    return t_from_uniform(L, t->dtype, t->rank, t->dim, e);
}

/* Values of up to this many elements may be carried in registers. */
#define ELEMS_MAX 64
static int64_t elem_limit(const Tensor *t) { return dtype_is_float(t->dtype) ? 4 : ELEMS_MAX; }

static void phi_tensor(Lower *L, Stmt *loop, Carried *k) {
    Tensor *t = k->init->t;
    CarryPlan *p = k->plan;
    Seq *outer = L->seq;
    bool dyn = t->rank < 0 || p->rank_vary;
    int64_t n = dyn ? -1 : count_const(t);
    for (int i = 0; i < t->rank; i++)
        if (p->dim_vary[i]) n = -1;
    if (n >= 0 && n <= elem_limit(t) && !p->no_elem && !t->blob && (!p->nelem || p->nelem == n)) {
        k->elem_init = NEWN(L->a, Expr *, n + 1);
        k->elem_sym = NEWN(L->a, Sym *, n + 1);
        bool ok = true;
        for (int64_t i = 0; i < n && ok; i++)
            ok = (k->elem_init[i] = elem_in(L, outer, t, i, n)) != NULL;
        if (ok) {
            k->elems = true;
            k->n = n;
            p->nelem = n;
            if (!p->elem_vary) p->elem_vary = NEWN(L->a, bool, ELEMS_MAX);
            for (int64_t i = 0; i < n; i++)
                if (p->elem_vary[i])
                    sym_scoped(L, &k->elem_sym[i], t->dtype, "c", INT64_MIN, outer);
            L->seq = loop->loop.body;
            k->phi = val_tensor(L, elems_tensor(L, k));
            L->seq = outer;
            return;
        }
    }
    if (!p->no_elem) { /* first assume that it is loop-invariant */
        k->phi = k->init;
        return;
    }
    Expr *dim[MAX_RANK];
    for (int i = 0; i < MAX_RANK; i++) {
        bool varies = p->dim_vary[i] || dyn;
        dim[i] = varies ? sym_scoped(L, &k->dim_sym[i], DT_I64, "d", 0, outer) : t->dim[i];
    }
    Tensor *phi = lower_like(L, TK_PHI, t, dyn ? -1 : t->rank, dim, outer);
    if (dyn) {
        phi->rank_e = sym_scoped(L, &k->rank_sym, DT_I64, "rank", 0, outer);
        phi->rank_mask = p->rank_mask | rank_set(t);
    }
    k->phi = arena_memdup(L->a, k->init, sizeof *k->init);
    k->phi->item = NULL;
    k->phi->t = phi;
}

static void phi_val(Lower *L, Stmt *loop, Carried *k) {
    Val *v = k->init;
    if (v->kind == VT_TENSOR) {
        phi_tensor(L, loop, k);
        return;
    }
    if (v->kind == VT_OPTIONAL) {
        Val *r = arena_memdup(L->a, v, sizeof *v);
        if (k->plan->has_vary) r->has = sym_scoped(L, &k->has_sym, DT_BOOL, "has", 0, L->seq);
        if (v->inner) {
            k->inner = NEW(L->a, Carried);
            if (!k->plan->inner) k->plan->inner = NEW(L->a, CarryPlan);
            k->inner->plan = k->plan->inner;
            k->inner->init = v->inner;
            phi_val(L, loop, k->inner);
            r->inner = k->inner->phi;
        }
        k->phi = r;
        return;
    }
    if (!k->plan->no_elem) {
        k->phi = v;
        return;
    }
    phi_tensor(L, loop, k);
    if (k->plan->len_vary) k->phi->len = sym_scoped(L, &k->len_sym, DT_I64, "len", 0, L->seq);
    if (!k->plan->elem) k->plan->elem = arena_memdup(L->a, v, sizeof *v);
    seq_join_elems(k->phi, k->plan->elem, k->plan->elem);
}

/* Compares the body's result with the assumption and gives up what does not hold. True: try again.
 * The symbols of this attempt are numbered from nsym on. */
static bool revise(Lower *L, Carried *k, Val *next, int nsym) {
    CarryPlan *p = k->plan;
    Val *phi = k->phi;
    bool again = false;
    if (!next || next->kind != phi->kind) fail(L, "a carried value changes its kind");
    if (next->kind == VT_OPTIONAL) {
        if (!k->has_sym && next->has != phi->has) again = p->has_vary = true;
        if (!phi->inner && next->inner)
            fail(L, "a carried optional starts without an element and without a type");
        if (phi->inner && next->inner && revise(L, k->inner, next->inner, nsym)) again = true;
        return again;
    }
    Tensor *a = phi->t, *b = next->t;
    if (a->dtype != b->dtype)
        fail(L, "a carried value changes its type from %s to %s", dtype_name(a->dtype),
             dtype_name(b->dtype));
    if (next->kind == VT_SEQUENCE) {
        if (b != a && !p->no_elem) again = p->no_elem = true;
        if (!k->len_sym && next->len != phi->len) again = p->len_vary = true;
        if (phi->elem_dtype != next->elem_dtype) fail(L, "a carried sequence changes its type");
        Val known = *phi;
        seq_join_elems(&known, phi, next);
        seq_leave_scope(&known, nsym);
        if (!seq_same_elems(&known, phi)) {
            p->elem = arena_memdup(L->a, &known, sizeof known);
            again = true;
        }
        if (again) p->no_elem = true;
        return again;
    }
    if (a == b) return false;
    uint32_t ranks = rank_set(a) | rank_set(b);
    if (a->rank < 0 || b->rank < 0 || a->rank != b->rank) {
        if (!p->rank_vary || (ranks & ~p->rank_mask)) {
            p->rank_mask |= ranks | rank_set(k->init->t);
            p->rank_vary = p->no_elem = true;
            return true;
        }
        return false;
    }
    for (int i = 0; i < a->rank; i++)
        if (!k->dim_sym[i] && a->dim[i] != b->dim[i]) again = p->dim_vary[i] = p->no_elem = true;
    if (again) return true;
    if (!k->elems) {
        if (p->no_elem) return false;
        return p->no_elem = true;
    }
    for (int64_t i = 0; i < k->n; i++) {
        Expr *e = elem_in(L, L->seq, b, i, k->n);
        if (!e) return p->no_elem = true;
        if (!k->elem_sym[i] && e != k->elem_init[i]) again = p->elem_vary[i] = true;
    }
    return again;
}

static void carry_sym(Lower *L, Stmt *loop, Sym *s, Expr *init, Expr *next) {
    LoopSym k = {s, init, next};
    if (s) vec_push(L->a, &loop->loop.syms, k);
}

/* Connects a confirmed carried value to the loop; called in the body's Seq. */
static void carry_finish(Lower *L, Stmt *loop, Carried *k, Val *next) {
    Val *init = k->init;
    if (init->kind == VT_OPTIONAL) {
        carry_sym(L, loop, k->has_sym, init->has, next->has);
        if (k->inner) carry_finish(L, loop, k->inner, next->inner ? next->inner : k->inner->phi);
        return;
    }
    if (init->kind == VT_SEQUENCE) carry_sym(L, loop, k->len_sym, init->len, next->len);
    if (k->elems) {
        for (int64_t i = 0; i < k->n; i++)
            if (k->elem_sym[i])
                carry_sym(L, loop, k->elem_sym[i], k->elem_init[i],
                          elem_in(L, L->seq, next->t, i, k->n));
        return;
    }
    if (k->phi->t == init->t) return; /* loop-invariant */
    carry_sym(L, loop, k->rank_sym, rank_expr(L, init->t), rank_expr(L, next->t));
    for (int i = 0; i < MAX_RANK; i++)
        carry_sym(L, loop, k->dim_sym[i], init->t->dim[i], next->t->dim[i]);
    LoopCarry m = {.phi = k->phi->t, .init = init->t, .next = own_tensor(L, next->t)};
    vec_push(L->a, &loop->loop.carry, m);
}

/* The value after a loop of `made` iterations of a size that each of them changes by the same
 * number; NULL: it is not such a size, or made is NULL. */
static Expr *final_size(Cx *c, const Stmt *loop, const Sym *s, Expr *made) {
    for (int i = 0; s && made && i < loop->loop.syms.n; i++) {
        const LoopSym *k = &loop->loop.syms.p[i];
        int64_t step;
        if (k->sym != s || !k->init->pure || !e_is_int(e_sub(c, k->next, e_sym(c, k->sym)), &step))
            continue;
        return e_add(c, k->init, e_muli(c, made, step));
    }
    return NULL;
}

/* The final value of a carried tensor. One that grows by rows has a number of them that is known.
 */
static Val *grown(Lower *L, const Stmt *loop, const Carried *k, Expr *made) {
    Tensor *phi = k->phi->t;
    Expr *dim[MAX_RANK];
    memcpy(dim, phi->dim, sizeof dim);
    for (int i = 1; i < MAX_RANK; i++)
        if (k->dim_sym[i]) return k->phi;
    Expr *rows = phi->rank > 0 ? final_size(L->cx, loop, k->dim_sym[0], made) : NULL;
    if (!rows) return k->phi;
    dim[0] = rows;
    return val_tensor(L, t_view(L, phi, phi->rank, dim));
}

/* made: the number of iterations of a counted loop, else NULL. */
static Val *carry_result(Lower *L, const Stmt *loop, Carried *k, Expr *made) {
    if (k->init->kind == VT_TENSOR && !k->elems) return grown(L, loop, k, made);
    if (k->elems) return val_tensor(L, elems_tensor(L, k));
    Val *v = arena_memdup(L->a, k->phi, sizeof *k->phi);
    if (k->inner) v->inner = carry_result(L, loop, k->inner, made);
    Expr *len = final_size(L->cx, loop, k->len_sym, made);
    if (len) v->len = len;
    return v;
}

/* Rewrites sizes of a loop's body for use outside of the loop. */
typedef struct Outside {
    Cx *c;
    const Stmt *loop;
    bool entry; /* with the loop's symbols at their initial values */
    Map *memo;  /* Expr id + 1 -> the rewritten expression */
} Outside;

/* The expression that a statement binds to y, or NULL. */
static Expr *definition(Cx *c, const Sym *y) {
    for (int i = 0; i < y->scope->s.n; i++) {
        const Stmt *s = y->scope->s.p[i];
        if (s->kind == S_LET && s->let.sym == y) return s->let.e;
        if (s->kind != S_BRANCH) continue;
        for (int k = 0; k < s->br.syms.n; k++) {
            const JoinSym *j = &s->br.syms.p[k];
            if (j->sym == y) return e_sel(c, s->br.cond, j->arm[0], j->arm[1]);
        }
    }
    return NULL;
}

/* e with the body's symbols replaced by their definitions, where these are pure. */
static Expr *outside(Outside *o, Expr *e) {
    if (!(e->flags & EF_SYM) || !e->pure) return e;
    Expr *r = map_geti(o->memo, (uint64_t)e->id + 1);
    if (r) return r;
    const Stmt *loop = o->loop;
    r = e;
    if (e->op == E_SYM) {
        if (o->entry && e->sym == loop->loop.iter) r = e_int(o->c, 0);
        for (int i = 0; o->entry && i < loop->loop.syms.n; i++)
            if (loop->loop.syms.p[i].sym == e->sym) r = loop->loop.syms.p[i].init;
        if (seq_inside(e->sym->scope, loop->loop.body)) {
            Expr *def = definition(o->c, e->sym);
            if (def && def->pure) r = outside(o, def);
        }
    } else if (e->n <= 3) {
        Expr *a[3];
        for (int i = 0; i < e->n; i++) a[i] = outside(o, e->a[i]);
        r = expr_rebuild(o->c, e, a);
    }
    map_seti(o->memo, (uint64_t)e->id + 1, r);
    return r;
}

/* A size as a uniform value in q. */
static Expr *let_in(Lower *L, Seq *q, Expr *e) {
    Seq *up = L->seq;
    L->seq = q;
    if (!ge_const(e, 0)) e = kmax(L->cx, e, e_int(L->cx, 0)); /* the check is inside the loop */
    if (!is_simple(e)) e = let(L, "d", e, 0);
    L->seq = up;
    return e;
}

/* The size d of the loop's body as an expression valid after the loop. If it is known only inside,
 * the loop carries it out, with a check that it does not change between iterations. none: its value
 * when the loop makes no iteration and it is not known outside. */
static Expr *after_loop(Lower *L, Stmt *loop, Seq *outer, Expr *d, int64_t none) {
    Cx *c = L->cx;
    if (expr_visible(d, outer) && !loop_varies(loop, d)) return d;
    Outside always = {c, loop, false, map_new(L->a)}, entry = {c, loop, true, map_new(L->a)};
    Expr *same = outside(&always, d), *first = outside(&entry, d);
    if (expr_visible(same, outer) && !loop_varies(loop, same)) return let_in(L, outer, same);
    if (!expr_visible(first, outer)) first = e_int(c, none);
    Sym *s;
    Expr *e = sym_scoped(L, &s, DT_I64, "d", 0, outer);
    check(L, e_or(c, e_eq(c, e_sym(c, loop->loop.iter), e_int(c, 0)), e_eq(c, e, d)),
          "a scan output changes its shape between iterations: a size of %s and of %s", said(L, e),
          said(L, d));
    carry_sym(L, loop, s, first, d);
    return e;
}

/* A scan output of elements e whose rank is known only at run time: the iterations stack their
 * elements flattened, and the output is a view of that. Place it after the loop. */
static Tensor *scan_ranked(Lower *L, Stmt *loop, Seq *outer, Expr *trips, Tensor *e) {
    Cx *c = L->cx;
    Expr *n = let(L, "n", count(L, e), 0), *dim[MAX_RANK], *row[2] = {trips};
    int least = __builtin_ctz(e->rank_mask);
    check(L, e_lt(c, e->rank_e, e_int(c, MAX_RANK)), "a scan output of a rank above %d", MAX_RANK);
    row[1] = after_loop(L, loop, outer, n, 0);
    dim[0] = trips;
    for (int i = 0; i < MAX_RANK - 1; i++)
        dim[i + 1] = after_loop(L, loop, outer, e->dim[i], i >= least);
    Expr *rank = after_loop(L, loop, outer, e->rank_e, least);
    Tensor *flat = rank_view(L, e, 1);
    flat->dim[0] = n;
    Tensor *t = lower_like(L, TK_VIEW, e, -1, dim, outer);
    t->base = scan_tensor(L, loop, outer, flat, row);
    t->rank_e = e_addi(c, rank, 1);
    t->rank_mask = e->rank_mask << 1 & ((2u << MAX_RANK) - 1);
    return t;
}

/* Scan output `at` of the loop, whose elements are v: called in the body, result valid after the
 * loop. ty: the declared type of the elements, or NULL. */
static Tensor *scan_output(Lower *L, Stmt *loop, Seq *outer, Expr *trips, Val *v, const VType *ty) {
    if (v->kind != VT_TENSOR) fail(L, "a scan output must be a tensor");
    Tensor *e = v->t;
    if (ty && (ty->kind != VT_TENSOR || !ty->has_shape)) ty = NULL;
    if (e->rank < 0) return scan_ranked(L, loop, outer, trips, e);
    if (e->rank + 1 > MAX_RANK) unsupported(L, "a scan output of rank %d", e->rank + 1);
    Expr *dim[MAX_RANK];
    dim[0] = trips;
    for (int i = 0; i < e->rank; i++) {
        bool known = ty && ty->rank == e->rank && ty->dim[i] >= 0;
        dim[i + 1] = after_loop(L, loop, outer, e->dim[i], known ? ty->dim[i] : 0);
    }
    size_check(L, e->dtype, e->rank + 1, dim);
    return scan_tensor(L, loop, outer, e, dim);
}

/* An optional with element v. */
static Val *some(Lower *L, Val *v) {
    Val *o = NEW(L->a, Val);
    o->kind = VT_OPTIONAL;
    o->has = e_bool(L->cx, true);
    o->inner = v;
    return o;
}

static void lower_iterations(Lower *L, LoopSpec *s) {
    Cx *c = L->cx;
    const Region *r = s->body;
    int first = s->has_cond, nres = first + s->ncarry + s->nscan;
    CarryPlan *plan = map_geti(L->st->loop_plan, (uint64_t)(uintptr_t)L->node);
    if (!plan) {
        plan = NEWN(L->a, CarryPlan, s->ncarry + 1);
        map_seti(L->st->loop_plan, (uint64_t)(uintptr_t)L->node, plan);
    }
    if (nres != r->nresult)
        fail(L, "the body gives %d outputs where %d are needed", r->nresult, nres);
    Seq *outer = L->seq;
    int mark = outer->s.n;
    Val **param = NEWN(L->a, Val *, r->nparam + 1), **res = NEWN(L->a, Val *, nres + 1);
    Carried *k = NEWN(L->a, Carried, s->ncarry + 1);
    bool *plain = NEWN(L->a, bool, s->ncarry + 1);
    Stmt *loop;
    int64_t most;
    for (bool again = true; again;) {
        outer->s.n = mark;
        L->seq = outer;
        int nsym = c->next_sym;
        loop = loop_stmt(L, s->trips);
        /* Without a condition nobody reads the number behind the last iteration. */
        if (!s->cond0 && s->trips && e_is_int(s->trips, &most) && most > 1)
            loop->loop.iter->hi = most - 1;
        memset(k, 0, sizeof *k * (size_t)s->ncarry);
        for (int i = 0; i < s->ncarry; i++) {
            k[i].plan = &plan[i];
            k[i].init = s->init[i];
            phi_val(L, loop, &k[i]);
            param[s->first_param + i] = k[i].phi;
        }
        L->seq = loop->loop.body;
        s->params(L, s, e_sym(c, loop->loop.iter), param);
        lower_region(L, r, r->nparam, param, nres, res);
        L->seq = loop->loop.body;
        again = false;
        for (int i = 0; i < s->ncarry; i++) {
            Val *next = res[first + i];
            /* A plain value may replace a carried optional. */
            plain[i] = k[i].phi->kind == VT_OPTIONAL && next && next->kind != VT_OPTIONAL;
            if (plain[i]) next = res[first + i] = some(L, next);
            again |= revise(L, &k[i], next, nsym);
        }
    }
    /* Confirmed. We are still in the body's Seq. */
    if (s->cond0) {
        loop->loop.cond0 = s->cond0;
        if (res[0]->kind != VT_TENSOR) fail(L, "the body's condition must be a tensor");
        loop->loop.cond_next = bool_scalar(L, res[0]->t, "the body's condition");
        if (e_is_ival(s->cond0, 1) && e_is_ival(loop->loop.cond_next, 1))
            loop->loop.cond0 = loop->loop.cond_next = NULL;
    }
    for (int i = 0; i < s->ncarry; i++) carry_finish(L, loop, &k[i], res[first + i]);
    bool counted = loop->loop.trips && !loop->loop.cond0;
    Expr *made = counted ? e_max(c, s->trips, e_int(c, 0)) : e_sym(c, loop->loop.iter);
    for (int i = 0; i < s->nscan; i++) {
        int at = first + s->ncarry + i;
        s->result[s->ncarry + i] =
            val_tensor(L, scan_output(L, loop, outer, made, res[at], r->result_type[at]));
    }
    L->seq = outer;
    lower_append(L, loop);
    for (int i = 0; i < s->ncarry; i++) {
        Val *v = carry_result(L, loop, &k[i], counted ? made : NULL);
        if (plain[i]) {
            check(L, v->has, "a carried optional has no element after the loop");
            v = v->inner;
        }
        s->result[i] = v;
    }
}

/* Makes the results of a loop without iterations. Returns -1, or the scan output that needs a
 * declared rank and has none. */
static int no_iterations(Lower *L, LoopSpec *s) {
    Expr *dim[MAX_RANK];
    for (int i = 0; i < s->ncarry; i++) s->result[i] = s->init[i];
    for (int i = 0; i < s->nscan; i++) {
        const VType *t = s->body->result_type[s->has_cond + s->ncarry + i];
        if (!t || t->kind != VT_TENSOR || !dtype_supported(t->dtype) || !t->has_shape ||
            t->rank >= MAX_RANK)
            return i;
        dim[0] = e_int(L->cx, 0);
        for (int d = 0; d < t->rank; d++) dim[d + 1] = e_int(L->cx, t->dim[d] > 0 ? t->dim[d] : 0);
        s->result[s->ncarry + i] = val_tensor(L, t_zeros(L, t->dtype, t->rank + 1, dim));
    }
    return -1;
}

static void attempt_iterations(Lower *L, void *user) { lower_iterations(L, user); }

/* A body that always fails a check, or calls a function whose result is not known yet, is an error
 * only if the loop makes an iteration. So such a loop becomes one without iterations. */
static void lower_loop(Lower *L, LoopSpec *s) {
    Cx *c = L->cx;
    LowerState *st = L->st;
    int64_t trips;
    if (loop_of_values(L, s)) return;
    bool counts = !s->trips || (e_is_int(s->trips, &trips) && trips > 0);
    if (counts && (!s->cond0 || e_is_ival(s->cond0, 1))) {
        lower_iterations(L, s);
        return;
    }
    const int mark = L->seq->s.n;
    if (attempt(L, attempt_iterations, s)) return;
    L->seq->s.n = mark;
    const Status status = L->d->status;
    bool unmet = st->unmet, trap = st->trap;
    if (status != ST_MODEL || (!unmet && !trap)) err_again(L->d);
    const char *message = forgive(L);
    const int unknown = no_iterations(L, s);
    if (unknown >= 0) {
        st->unmet = unmet;
        st->trap = trap;
        if (trap)
            fail(L,
                 "a function calls itself in the body: type and rank of scan output %d must be "
                 "declared there",
                 unknown);
        err(L->d, status, NULL, "%s", message);
    }
    Expr *none = s->trips ? e_le(c, s->trips, e_int(c, 0)) : e_bool(c, false);
    fault_unless(L, s->cond0 ? e_or(c, none, e_not(c, s->cond0)) : none, message);
}

/* A uniform scalar as a tensor of the parameter's declared shape: [] or [1]. */
static Val *scalar_param(Lower *L, const Value *param, Expr *e) {
    Expr *one = e_int(L->cx, 1);
    int rank = param->type && param->type->kind == VT_TENSOR && param->type->has_shape &&
               param->type->rank == 1;
    return val_tensor(L, t_from_uniform(L, (DType)e->dtype, rank, &one, &e));
}

static void loop_params(Lower *L, LoopSpec *s, Expr *iter, Val **param) {
    param[0] = scalar_param(L, s->body->param[0], iter);
    param[1] = scalar_param(L, s->body->param[1], e_bool(L->cx, true));
}

/* A carried optional that starts empty takes its type from the body's declaration. */
static Val *typed_none(Lower *L, Val *v, const VType *ty) {
    if (v->kind != VT_OPTIONAL || v->inner || !ty || ty->kind != VT_OPTIONAL || !ty->elem) return v;
    Val *r = arena_memdup(L->a, v, sizeof *v), *in;
    if (ty->elem->kind == VT_SEQUENCE && ty->elem->elem && ty->elem->elem->kind == VT_TENSOR) {
        if (!dtype_supported(ty->elem->elem->dtype)) return v;
        in = seq_empty(L, ty->elem->elem->dtype);
    } else if (ty->elem->kind == VT_TENSOR && ty->elem->dtype != DT_NONE) {
        int64_t dim[MAX_RANK] = {0}, n = 1;
        for (int i = 0; i < ty->elem->rank; i++) {
            dim[i] = ty->elem->dim[i] > 0 ? ty->elem->dim[i] : 0;
            n *= dim[i];
        }
        if (n > 1 << 20) return v;
        void *zeros = arena_alloc(L->a, (size_t)n * dtype_size(ty->elem->dtype) + 8);
        in = val_tensor(L, t_const(L, ty->elem->dtype, ty->elem->rank, dim, zeros));
    } else
        return v;
    r->inner = in;
    return r;
}

void lower_Loop(Lower *L) {
    const Node *n = L->node;
    LoopSpec s = {
        .body = region_attr(L, "body"), .has_cond = true, .first_param = 2, .params = loop_params};
    Tensor *m = in(L, 0), *cond = in(L, 1);
    if (m && m->dtype != DT_I64) fail(L, "the trip count must be int64");
    if (m && m->rank >= 0)
        check_eq(L, count(L, m), e_int(L->cx, 1), "the trip count must have exactly one element");
    if (!m && !cond) fail(L, "without a trip count and without a condition the loop never ends");
    s.trips = m ? uni_i64(L, m, 0) : NULL;
    s.cond0 = cond ? bool_scalar(L, cond, "the condition") : NULL;
    s.ncarry = n->nin > 2 ? n->nin - 2 : 0;
    if (s.body->nparam != s.ncarry + 2)
        fail(L, "the body takes %d inputs; with %d carried values it needs %d", s.body->nparam,
             s.ncarry, s.ncarry + 2);
    s.nscan = s.body->nresult - 1 - s.ncarry;
    if (s.nscan < 0 || n->nout > s.ncarry + s.nscan) fail(L, "the body has too few outputs");
    s.init = NEWN(L->a, Val *, s.ncarry + 1);
    for (int i = 0; i < s.ncarry; i++) {
        s.init[i] = in_val(L, i + 2);
        if (!s.init[i]) fail(L, "carried input %d is missing", i);
        s.init[i] = typed_none(L, s.init[i], s.body->param[i + 2]->type);
        /* A body may declare optional where the initial value is given plain. */
        const VType *ty = s.body->param[i + 2]->type;
        if (ty && ty->kind == VT_OPTIONAL && s.init[i]->kind != VT_OPTIONAL)
            s.init[i] = some(L, s.init[i]);
    }
    s.result = NEWN(L->a, Val *, s.ncarry + s.nscan + 1);
    lower_loop(L, &s);
    for (int i = 0; i < s.ncarry + s.nscan; i++) out_val(L, i, s.result[i]);
}

/* ---- Scan ------------------------------------------------------------------------------------ */
typedef struct ScanIn {
    Tensor *t;
    int axis;
    bool reverse;
} ScanIn;

static void scan_params(Lower *L, LoopSpec *s, Expr *iter, Val **param) {
    Cx *c = L->cx;
    const ScanIn *x = s->user;
    for (int i = 0; i < s->body->nparam - s->ncarry; i++) {
        Tensor *t = x[i].t;
        Expr *at = iter;
        if (x[i].reverse) at = e_sub(c, e_addi(c, t->dim[x[i].axis], -1), at);
        Tensor *e = t_at(L, t, x[i].axis, at);
        if (e->kind == TK_TE) e->name = s->body->param[s->ncarry + i]->name;
        param[s->ncarry + i] = val_tensor(L, e);
    }
}

static int64_t list_at(Lower *L, const char *name, int i, int count) {
    int n;
    const int64_t *p = attr_ints(L, name, &n);
    if (n < 0) return 0;
    if (n != count) fail(L, "%s must have %d entries", name, count);
    return p[i];
}

/* A scan output as the attributes ask for it: reversed, or with the iterations along `axis`. */
typedef struct Placed {
    Tensor *t;
    int64_t axis;
    bool reverse;
} Placed;

static Tensor *placed(Lower *L, void *user, int rank) {
    const Placed *k = user;
    Tensor *t = k->t->rank < 0 ? rank_view(L, k->t, rank) : k->t;
    int axis = norm_axis(L, k->axis, rank), perm[MAX_RANK];
    if (k->reverse) t = t_flip(L, t, 0);
    for (int i = 0, j = 1; i < rank; i++) perm[i] = i == axis ? 0 : j++;
    return t_transpose(L, t, perm);
}

void lower_Scan(Lower *L) {
    const Node *n = L->node;
    LoopSpec s = {.body = region_attr(L, "body"), .params = scan_params};
    int64_t m = attr_i(L, "num_scan_inputs", 0);
    if (m < 1 || m > n->nin) fail(L, "num_scan_inputs is %lld for %d inputs", (long long)m, n->nin);
    s.ncarry = n->nin - (int)m;
    s.nscan = s.body->nresult - s.ncarry;
    if (s.body->nparam != n->nin || s.nscan < 0 || n->nout > s.ncarry + s.nscan)
        fail(L, "the body does not match the inputs and outputs");
    s.init = NEWN(L->a, Val *, s.ncarry + 1);
    for (int i = 0; i < s.ncarry; i++)
        if (!(s.init[i] = in_val(L, i))) fail(L, "state input %d is missing", i);
    ScanIn *x = NEWN(L->a, ScanIn, m);
    s.user = x;
    for (int i = 0; i < m; i++) {
        x[i].t = in(L, s.ncarry + i);
        if (!x[i].t || x[i].t->rank < 1)
            fail(L, "scan input %d must be a tensor of rank 1 or more", i);
        x[i].axis = norm_axis(L, list_at(L, "scan_input_axes", i, (int)m), x[i].t->rank);
        x[i].reverse = list_at(L, "scan_input_directions", i, (int)m) != 0;
        Expr *len = x[i].t->dim[x[i].axis];
        if (s.trips)
            check_eq(L, len, s.trips, "the scan inputs differ in length");
        else
            s.trips = len;
    }
    s.result = NEWN(L->a, Val *, s.ncarry + s.nscan + 1);
    lower_loop(L, &s);
    for (int i = 0; i < s.ncarry; i++) out_val(L, i, s.result[i]);
    for (int i = 0; i < s.nscan; i++) {
        Placed k = {s.result[s.ncarry + i]->t, list_at(L, "scan_output_axes", i, s.nscan),
                    list_at(L, "scan_output_directions", i, s.nscan) != 0};
        Tensor *t = k.t;
        if (t->rank >= 0) t = placed(L, &k, t->rank);
        /* a negative axis counts from the end, which depends on the rank */
        else if (k.axis || k.reverse)
            t = for_each_size(L, t->rank_e, __builtin_ctz(t->rank_mask),
                              31 - __builtin_clz(t->rank_mask), placed, &k, "the rank");
        out(L, s.ncarry + i, t);
    }
}
