/* call.c: lowers ai.braid:Invoke: recursive functions.
 *
 * A call of a function that does not recurse is lowered in place. A call from outside into a group
 * of functions that call each other starts a recursion: the functions reached from it are lowered,
 * once each, as Funcs that belong to the call. Their signatures depend on each other, so they are
 * found by iterating to a fixed point, as for loops (utask/control.c). An argument is first assumed
 * to be the same in all calls; if that fails, it becomes a few symbols, or a tensor of the same
 * dims, then one of varying dims. A result starts out unknown: calling such a function is an error,
 * and the surrounding If treats that arm as one without a result, so the base case determines the
 * shape. What was found is then assumed, and the next round must confirm it. */
#include "utask/lower_internal.h"
#include "utask/ops/lowerings.h"

#define ELEMS_MAX 4      /* integers of a tensor that are passed in registers */
#define NODES_MAX 200000 /* nodes lowered, calls in place included */
#define NESTING_MAX 100  /* of calls in place and recursions within each other */
#define ROUNDS_MAX 1000

typedef enum {
    P_SAME,  /* every call passes on what it received: captured */
    P_ELEMS, /* a few integers, in registers */
    P_TENSOR
} ParamHow;

/* Kept for a call from one lowering to the next; assumptions are only ever weakened. */
typedef struct ParamPlan {
    ParamHow how;
    bool dim_vary[MAX_RANK]; /* P_TENSOR: the dim is a parameter too */
} ParamPlan;

typedef struct Result {
    DType dtype;
    int rank;
    int64_t n; /* >= 0: the number of uniform elements; -1: a tensor */
    /* over the parameters and what is visible outside; NULL: the callee reports it */
    Expr *dim[MAX_RANK];
} Result;

/* A function while its group is lowered. */
typedef struct Active {
    const Function *fn;
    Func *f;
    ParamPlan *plan;
    bool reached; /* in this round */
    Val **arg;    /* of the first call of the round */
    Val **param;  /* as the body sees them */
    Sym ***elem;  /* of each parameter; created on demand */
    Sym *(*dim)[MAX_RANK];
    bool known; /* result[] is assumed */
    Result *result;
    Val **res; /* the body's results */
    Expr ***res_elem;
    Sym *place; /* the draw place of the activation; created on demand */
} Active;

typedef struct Recursion {
    struct Recursion *up;
    int group, n, nqueue;
    Active **fn;    /* all functions of the group that were ever reached */
    Active **queue; /* those reached in this round */
    Seq *outer;
    const Node *node;
    Stmt *start;
    ParamPlan **plan; /* by function index */
    bool changed;     /* an assumption about arguments was given up in this round */
    bool draws;       /* random numbers are drawn: every call passes a place for them */
    const char *why;  /* a body has no result yet */
} Recursion;

/* ---- what calls pass ------------------------------------------------------------------------- */
static bool outside(const Recursion *r, const Val *v) {
    if (v->kind == VT_OPTIONAL)
        return expr_visible(v->has, r->outer) && (!v->inner || outside(r, v->inner));
    if (v->kind == VT_SEQUENCE && !expr_visible(v->len, r->outer)) return false;
    const Tensor *t = v->t;
    return t->kind == TK_CONST || t->kind == TK_INPUT || seq_inside(r->outer, t->seq);
}

static bool same(const Val *a, const Val *b) {
    if (a == b) return true;
    if (a->kind != b->kind) return false;
    if (a->kind == VT_OPTIONAL)
        return a->has == b->has &&
               (a->inner == b->inner || (a->inner && b->inner && same(a->inner, b->inner)));
    return a->t == b->t && (a->kind != VT_SEQUENCE || a->len == b->len);
}

static bool tiny(Tensor *t) {
    int64_t n = count_const(t);
    return !t->blob && !dtype_is_float(t->dtype) && n >= 0 && n <= ELEMS_MAX;
}

/* Parameter i of `a` is a tensor from now on; its dims are those of argument v where known. */
static void as_tensor(Lower *L, const Recursion *r, Active *a, int i, const Val *v) {
    const char *f = a->fn->name;
    if (v->kind != VT_TENSOR)
        unsupported(L, "argument %d of function %s: a sequence or optional that changes", i, f);
    if (v->t->rank < 0)
        unsupported(L, "argument %d of function %s has a rank that is known only at run time", i,
                    f);
    a->plan[i].how = P_TENSOR;
    for (int k = 0; k < v->t->rank; k++)
        if (!expr_visible(v->t->dim[k], r->outer)) a->plan[i].dim_vary[k] = true;
}

/* Records the first call of a round. */
static void reach(Lower *L, Recursion *r, Active *a, Val **arg) {
    a->reached = true;
    a->arg = arg;
    r->queue[r->nqueue++] = a;
    for (int i = 0; i < a->fn->region->nparam; i++) {
        ParamPlan *p = &a->plan[i];
        if (p->how == P_SAME && outside(r, arg[i])) continue;
        if (p->how == P_SAME) a->known = false;
        if (p->how != P_TENSOR && arg[i]->kind == VT_TENSOR && tiny(arg[i]->t))
            p->how = P_ELEMS;
        else
            as_tensor(L, r, a, i, arg[i]);
    }
}

/* Compares a further call with the assumptions and weakens those that it contradicts. */
static void compare_args(Lower *L, Recursion *r, Active *a, Val **arg) {
    for (int i = 0; i < a->fn->region->nparam; i++) {
        ParamPlan *p = &a->plan[i];
        Val *v = arg[i], *w = a->arg[i];
        if (v->kind != w->kind)
            fail(L, "argument %d of function %s is of another kind in another call", i,
                 a->fn->name);
        if (p->how == P_SAME && same(v, w)) continue;
        if (v->kind != VT_TENSOR) as_tensor(L, r, a, i, v); /* raises */
        Tensor *t = v->t, *u = w->t;
        if (t->dtype != u->dtype)
            fail(L, "argument %d of function %s is %s here and %s in another call", i, a->fn->name,
                 dtype_name(t->dtype), dtype_name(u->dtype));
        if (t->rank != u->rank)
            unsupported(L, "argument %d of function %s has rank %d here and %d in another call", i,
                        a->fn->name, t->rank, u->rank);
        if (p->how != P_TENSOR && same_dims(t, u) && tiny(t)) {
            if (p->how == P_SAME) r->changed = true;
            p->how = P_ELEMS;
            continue;
        }
        if (p->how != P_TENSOR) {
            r->changed = true;
            as_tensor(L, r, a, i, w);
        }
        for (int k = 0; k < t->rank; k++)
            if (t->dim[k] != u->dim[k] && !p->dim_vary[k]) p->dim_vary[k] = r->changed = true;
    }
}

/* ---- parameters as the body sees them -------------------------------------------------------- */
static Expr *param_sym(Lower *L, Active *a, Sym **s, DType t, const char *name, int64_t lo) {
    if (!*s) sym_scoped(L, s, t, name, lo, a->f->body);
    return e_sym(L->cx, *s);
}

static Val *param_elems(Lower *L, Active *a, int i) {
    const Tensor *t = a->arg[i]->t;
    Expr *e[ELEMS_MAX];
    int64_t n = count_const(a->arg[i]->t);
    if (!a->elem[i]) a->elem[i] = NEWN(L->a, Sym *, ELEMS_MAX);
    for (int64_t k = 0; k < n; k++)
        e[k] = param_sym(L, a, &a->elem[i][k], t->dtype, a->fn->region->param[i]->name, INT64_MIN);
    return val_tensor(L, t_from_uniform(L, t->dtype, t->rank, t->dim, e));
}

static Val *param_tensor(Lower *L, Active *a, int i) {
    const Tensor *t = a->arg[i]->t;
    Expr *dim[MAX_RANK];
    for (int k = 0; k < t->rank; k++)
        dim[k] =
            a->plan[i].dim_vary[k] ? param_sym(L, a, &a->dim[i][k], DT_I64, "d", 0) : t->dim[k];
    Tensor *p = tensor_new(L->cx, TK_PARAM, t->dtype, t->rank, dim);
    p->seq = a->f->body;
    p->name = a->fn->region->param[i]->name;
    p->path = L->node->path;
    return val_tensor(L, p);
}

/* ---- calls ----------------------------------------------------------------------------------- */
/* What a call with arguments arg passes, in the order of the function's parameters. */
typedef struct Passed {
    Expr **sym;
    Tensor **arg;
    int nsym, narg;
} Passed;

static Passed passed(Lower *L, const Active *a, Expr *place, Val **arg) {
    int n = a->fn->region->nparam;
    Passed x = {NEWN(L->a, Expr *, n * MAX_RANK + 1), NEWN(L->a, Tensor *, n + 1), 0, 0};
    if (place) x.sym[x.nsym++] = place;
    for (int i = 0; i < n; i++) {
        Tensor *t = arg[i]->t;
        if (a->plan[i].how == P_ELEMS)
            for (int64_t k = 0, m = count_const(t); k < m; k++)
                x.sym[x.nsym++] = elem_in(L, L->seq, t, k, m);
        if (a->plan[i].how != P_TENSOR) continue;
        for (int k = 0; k < t->rank; k++)
            if (a->plan[i].dim_vary[k]) x.sym[x.nsym++] = t->dim[k];
        x.arg[x.narg++] = t;
    }
    return x;
}

static void list_params(Lower *L, const Active *a) {
    Func *f = a->f;
    const Passed x = passed(L, a, a->place ? e_sym(L->cx, a->place) : NULL, a->param);
    f->sym = NEWN(L->a, Sym *, x.nsym + 1);
    for (int i = 0; i < x.nsym; i++) f->sym[i] = x.sym[i]->sym;
    f->arg = x.arg;
    f->nsym = x.nsym;
    f->narg = x.narg;
}

/* Whether a caller can compute e before the call. */
static bool over_params(const Recursion *r, const Active *a, const Expr *e) {
    if (!(e->flags & EF_SYM)) return !(e->flags & EF_GUARD);
    if (e->op == E_SYM) {
        if (expr_visible(e, r->outer)) return true;
        for (int i = 0; i < a->f->nsym; i++)
            if (a->f->sym[i] == e->sym) return true;
        return false;
    }
    if (!e_is_unary(e->op) && !e_is_binary(e->op) && e->op != E_CAST && e->op != E_SELECT)
        return false;
    for (int i = 0; i < e->n; i++)
        if (!over_params(r, a, e->a[i])) return false;
    return true;
}

/* Such an expression with the call's arguments in place of the parameters. */
static Expr *with_args(Lower *L, const Func *f, Expr *const *arg, Expr *e) {
    Expr *a[3];
    if (!(e->flags & EF_SYM)) return e;
    if (e->op == E_SYM) {
        for (int i = 0; i < f->nsym; i++)
            if (f->sym[i] == e->sym) return arg[i];
        return e;
    }
    for (int i = 0; i < e->n; i++) a[i] = with_args(L, f, arg, e->a[i]);
    if (e->op == E_CAST) return e_cast(L->cx, e->dtype, a[0]);
    if (e->op == E_SELECT) return e_sel(L->cx, a[0], a[1], a[2]);
    return e_is_unary(e->op) ? e_un(L->cx, e->op, a[0]) : e_bin(L->cx, e->op, a[0], a[1]);
}

/* Result i of the call s; appends the result's symbols and tensors to s. */
static Val *call_result(Lower *L, const Active *a, Stmt *s, int i, int *nret, int *nout) {
    const Result *x = &a->result[i];
    Expr *dim[MAX_RANK], *e[ELEMS_MAX];
    if (x->n >= 0) {
        for (int64_t k = 0; k < x->n; k++)
            e[k] = sym_scoped(L, &s->call.ret[(*nret)++], x->dtype, "r", INT64_MIN, L->seq);
        return val_tensor(L, t_from_uniform(L, x->dtype, x->rank, x->dim, e));
    }
    for (int k = 0; k < x->rank; k++)
        dim[k] = x->dim[k] ? with_args(L, a->f, s->call.sym, x->dim[k])
                           : sym_scoped(L, &s->call.ret[(*nret)++], DT_I64, "d", 0, L->seq);
    Tensor *t = tensor_new(L->cx, TK_CALL, x->dtype, x->rank, dim);
    t->seq = L->seq;
    t->name = a->fn->region->result_name[i];
    t->path = L->node->path;
    s->call.out[(*nout)++] = t;
    return val_tensor(L, t);
}

/* Appends the call with arguments arg as statement s. */
static void make_call(Lower *L, Active *a, Val **arg, Stmt *s, Val **result) {
    int n = a->fn->region->nresult, nret = 0, nout = 0;
    s->call.f = a->f;
    const Passed x = passed(L, a, a->place ? draw_place(L) : NULL, arg);
    s->call.sym = x.sym;
    s->call.arg = x.arg;
    s->call.ret = NEWN(L->a, Sym *, n * MAX_RANK + 1);
    s->call.out = NEWN(L->a, Tensor *, n + 1);
    vec_push(L->a, &L->seq->s, s);
    for (int i = 0; i < n; i++) result[i] = call_result(L, a, s, i, &nret, &nout);
}

static Active *active(Lower *L, Recursion *r, const Function *fn) {
    for (int i = 0; i < r->n; i++)
        if (r->fn[i]->fn == fn) return r->fn[i];
    Active *a = NEW(L->a, Active);
    int n = fn->region->nparam, m = fn->region->nresult;
    a->fn = fn;
    if (!r->plan[fn->index]) r->plan[fn->index] = NEWN(L->a, ParamPlan, n + 1);
    a->plan = r->plan[fn->index];
    a->param = NEWN(L->a, Val *, n + 1);
    a->elem = NEWN(L->a, Sym **, n + 1);
    a->dim = arena_alloc(L->a, sizeof *a->dim * (size_t)(n + 1));
    a->result = NEWN(L->a, Result, m + 1);
    a->res = NEWN(L->a, Val *, m + 1);
    a->res_elem = NEWN(L->a, Expr **, m + 1);
    Func *f = a->f = NEW(L->a, Func);
    f->id = L->p->nfunc++;
    f->name = fn->name;
    f->start = r->start;
    f->body = seq_new(L->cx, r->outer, r->start, true);
    f->site = cx_site(L->cx, r->node->path, "function %.200s needs a depth of", fn->name);
    return r->fn[r->n++] = a;
}

static void inner_call(Lower *L, Recursion *r, const Function *fn, Val **arg, Val **result) {
    Active *a = active(L, r, fn);
    if (a->reached)
        compare_args(L, r, a, arg);
    else
        reach(L, r, a, arg);
    if (!a->known || r->changed) {
        L->st->trap = true;
        fail(L, "function %.200s never returns: every way through it calls it again", fn->name);
    }
    make_call(L, a, arg, stmt_new(L->cx, S_CALL, L->node->path), result);
}

/* ---- bodies ---------------------------------------------------------------------------------- */
static void run_body(Lower *L, void *user) {
    const Active *a = user;
    const Region *r = a->fn->region;
    lower_region(L, r, r->nparam, a->param, r->nresult, a->res);
}

/* Lowers a's body; false: it has no result yet. */
static bool lower_body(Lower *L, Recursion *r, Active *a) {
    LowerState *st = L->st;
    Seq *up = L->seq, *body = a->f->body;
    DrawFrame *outer = st->frame;
    const Region *region = a->fn->region;
    bool asked = false;
    if (r->draws) param_sym(L, a, &a->place, DT_U64, "place", INT64_MIN);
    DrawFrame frame = {outer, body, NULL, a->place ? e_sym(L->cx, a->place) : NULL, &asked};
    body->s.n = 0;
    L->seq = body;
    st->frame = &frame;
    for (int i = 0; i < region->nparam; i++) {
        a->param[i] = a->plan[i].how == P_SAME    ? a->arg[i]
                      : a->plan[i].how == P_ELEMS ? param_elems(L, a, i)
                                                  : param_tensor(L, a, i);
    }
    list_params(L, a);
    bool ok = attempt(L, run_body, a);
    if (asked) r->draws = r->changed = true;
    if (!ok && !st->trap) err_again(L->d);
    if (!ok) r->why = forgive(L);
    L->seq = up;
    st->frame = outer;
    return ok;
}

/* Describes result i of the body. */
static Result found(Lower *L, const Recursion *r, Active *a, int i) {
    const Val *v = a->res[i];
    Seq *body = a->f->body;
    Result x = {.n = -1};
    if (!v) fail(L, "output %d of function %s has no value", i, a->fn->name);
    if (v->kind != VT_TENSOR)
        unsupported(L, "output %d of function %s is not a tensor", i, a->fn->name);
    Tensor *t = v->t;
    if (t->rank < 0)
        unsupported(L, "output %d of function %s has a rank that is known only at run time", i,
                    a->fn->name);
    x.dtype = t->dtype;
    x.rank = t->rank;
    if (tiny(t)) {
        x.n = count_const(t);
        a->res_elem[i] = NEWN(L->a, Expr *, ELEMS_MAX);
        for (int64_t k = 0; k < x.n; k++)
            if (!(a->res_elem[i][k] = elem_in(L, body, t, k, x.n))) x.n = -1;
    }
    for (int k = 0; k < t->rank; k++) x.dim[k] = over_params(r, a, t->dim[k]) ? t->dim[k] : NULL;
    return x;
}

/* Compares the body's results with the assumption; true if something new is known. */
static bool compare_results(Lower *L, const Recursion *r, Active *a) {
    bool news = !a->known;
    for (int i = 0; i < a->fn->region->nresult; i++) {
        Result x = found(L, r, a, i), *y = &a->result[i];
        if (!a->known) {
            *y = x;
            continue;
        }
        if (x.dtype != y->dtype)
            fail(L, "output %d of function %s is %s or %s", i, a->fn->name, dtype_name(x.dtype),
                 dtype_name(y->dtype));
        if (x.rank != y->rank)
            unsupported(L, "output %d of function %s has rank %d or %d", i, a->fn->name, x.rank,
                        y->rank);
        if (y->n != x.n && y->n >= 0) {
            y->n = -1;
            news = true;
        }
        for (int k = 0; k < x.rank; k++)
            if (y->dim[k] && x.dim[k] != y->dim[k]) {
                y->dim[k] = NULL;
                news = true;
            }
    }
    a->known = true;
    return news;
}

/* Result t of a function as a tensor of its own, made in Seq q where possible. */
static Tensor *settle(Lower *L, Seq *q, Tensor *t, int ret) {
    if (t->seq == q && !t->owned && (t->kind == TK_TE || t->kind == TK_CALL)) {
        t->owned = true;
        t->ret = ret;
        return t;
    }
    for (int i = 0; t->kind == TK_JOIN && t->seq == q && !t->owned && i < q->s.n; i++) {
        Stmt *s = q->s.p[i];
        if (s->kind != S_BRANCH) continue;
        for (int k = 0; k < s->br.joins.n; k++) {
            Join *j = &s->br.joins.p[k];
            if (j->out != t) continue;
            for (int m = 0; m < 2; m++)
                if (j->arm[m]) j->arm[m] = settle(L, s->br.arm[m], j->arm[m], ret);
            t->owned = true;
            t->ret = ret;
            return t;
        }
    }
    Seq *up = L->seq;
    L->seq = q;
    t = copy_tensor(L, t);
    L->seq = up;
    t->owned = true;
    t->ret = ret;
    return t;
}

static void finish(Lower *L, Active *a) {
    Func *f = a->f;
    int n = a->fn->region->nresult;
    f->out = NEWN(L->a, Tensor *, n + 1);
    f->room = NEWN(L->a, bool, n + 1);
    f->ret = NEWN(L->a, Expr *, n * MAX_RANK + 1);
    for (int i = 0; i < n; i++) {
        const Result *x = &a->result[i];
        for (int64_t k = 0; k < x->n; k++) f->ret[f->nret++] = a->res_elem[i][k];
        if (x->n >= 0) continue;
        Tensor *t = a->res[i]->t;
        bool room = true;
        for (int k = 0; k < x->rank; k++)
            if (!x->dim[k]) {
                f->ret[f->nret++] = t->dim[k];
                room = false;
            }
        f->room[f->nout] = room;
        f->out[f->nout] = settle(L, f->body, t, room ? f->nout + 1 : 0);
        f->nout++;
    }
}

/* A call from outside: lowers every function of the group that it reaches. */
static void start(Lower *L, const Function *fn, Val **arg, Val **result) {
    LowerState *st = L->st;
    int nfunction = st->nfunction;
    Recursion *r = NEW(L->a, Recursion);
    *r = (Recursion){.up = st->recursion, .group = fn->group, .outer = L->seq, .node = L->node};
    r->start = stmt_new(L->cx, S_CALL, L->node->path);
    r->fn = NEWN(L->a, Active *, nfunction);
    r->queue = NEWN(L->a, Active *, nfunction);
    r->plan = map_geti(st->call_plan, (uint64_t)(uintptr_t)L->node);
    if (!r->plan) {
        r->plan = NEWN(L->a, ParamPlan *, nfunction);
        map_seti(st->call_plan, (uint64_t)(uintptr_t)L->node, r->plan);
    }
    st->recursion = r;
    Active *entry = active(L, r, fn);
    for (int round = 0;; round++) {
        if (round == ROUNDS_MAX)
            unsupported(L, "the shapes of recursive function %.200s", fn->name);
        bool all = true, news = false;
        r->changed = false;
        r->nqueue = 0;
        for (int i = 0; i < r->n; i++) r->fn[i]->reached = false;
        reach(L, r, entry, arg);
        for (int i = 0; i < r->nqueue; i++) { /* grows */
            Active *a = r->queue[i];
            bool ok = lower_body(L, r, a);
            all &= ok;
            if (ok) news |= compare_results(L, r, a);
        }
        if (r->changed)
            for (int i = 0; i < r->n; i++) r->fn[i]->known = false;
        else if (!news && all)
            break;
        else if (!news)
            err(L->d, ST_MODEL, NULL, "%s", r->why);
    }
    r->start->call.func = NEWN(L->a, Func *, r->nqueue);
    for (int i = 0; i < r->nqueue; i++) {
        finish(L, r->queue[i]);
        r->start->call.func[r->start->call.nfunc++] = r->queue[i]->f;
    }
    st->recursion = r->up;
    make_call(L, entry, arg, r->start, result);
}

void lower_Invoke(Lower *L) {
    const Node *n = L->node;
    const Function *fn = n->callee;
    Val **arg = NEWN(L->a, Val *, n->nin + 1), **res = NEWN(L->a, Val *, n->nout + 1);
    for (int i = 0; i < n->nin; i++) arg[i] = in_val(L, i);
    Recursion *r = L->st->recursion;
    if (fn->recursive && r && r->group == fn->group)
        inner_call(L, r, fn, arg, res);
    else {
        if (L->st->nodes > NODES_MAX)
            unsupported(L, "the model is too large with all calls in place");
        if (L->st->call_depth == NESTING_MAX)
            unsupported(L, "calls are nested deeper than %d", NESTING_MAX);
        L->st->call_depth++;
        if (fn->recursive)
            start(L, fn, arg, res);
        else {
            DrawFrame frame = {L->st->frame, L->seq, n, NULL, NULL};
            L->st->frame = &frame;
            lower_region(L, fn->region, n->nin, arg, n->nout, res);
            L->st->frame = frame.up;
        }
        L->st->call_depth--;
    }
    for (int i = 0; i < n->nout; i++) out_val(L, i, res[i]);
}
