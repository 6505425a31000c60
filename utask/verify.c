/* verify.c: checks the invariants of a Program (utask.h): every field of every statement, tensor
 * and symbol, at every stage. A violation is the compiler's own fault. The work is linear in the
 * size of the tree. */
#include "utask/level.h"
#include "utask/walk.h"

/* When an expression was checked last. */
typedef struct ExprInfo {
    int stamp; /* with axes in it: the body */
    union {
        uint64_t axes;  /* … and its free axes, by their number there; bit 63: any further one */
        const Seq *seq; /* without: what it used there is still visible */
    };
} ExprInfo;

typedef struct Verifier {
    const Program *p;
    ExprInfo *expr;
    int nexpr;
    int stamp; /* of the current body */
    int *axis_stamp, *axis_bit, naxis;
    int nbit;
    const Seq **tensor_in; /* by tensor id: where it is defined; NULL: not yet */
    const Seq **sym_in;
    const Tensor **defined; /* by tensor id */
    int *moved; /* by tensor id: uses as next or elem of a loop, or as a function's result */
    int ntensor, nsym;
    const char *where;
} Verifier;

#define REQUIRE(v, c, ...)                                                                         \
    do {                                                                                           \
        if (!(c)) fail_at(v, __VA_ARGS__);                                                         \
    } while (0)

_Noreturn static void fail_at(const Verifier *v, const char *fmt, ...) PRINTF(2, 3);
static void fail_at(const Verifier *v, const char *fmt, ...) {
    char text[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    die("invalid uTask tree: %s: %s", v->where ? v->where : "?", text);
}

static const char *tensor_name(const Tensor *t) { return t->name ? t->name : "unnamed"; }

#define REQUIRE_OF(v, t, c, what) REQUIRE(v, c, "tensor %d (%s) %s", (t)->id, tensor_name(t), what)

/* Checks that tensor t may be read in Seq `at`. */
static void check_use(Verifier *v, const Tensor *t, const Seq *at) {
    REQUIRE(v, t != NULL, "a tensor is missing");
    REQUIRE(v, t->id >= 0 && t->id < v->ntensor, "tensor id %d is out of range", t->id);
    for (int depth = 0; t->kind == TK_VIEW; t = t->base, depth++) {
        REQUIRE(v, t->base && depth < 1000, "view %d has no base", t->id);
        REQUIRE(v, t->dtype == t->base->dtype, "view %d has another dtype than its base", t->id);
    }
    if (t->kind == TK_CONST) {
        REQUIRE(v, t->data && t->data->dtype == t->dtype, "constant %d has no fitting data", t->id);
        return;
    }
    if (t->kind == TK_INPUT) {
        REQUIRE(v, t->index >= 0 && t->index < v->p->nin, "input %d is out of range", t->index);
        return;
    }
    REQUIRE_OF(v, t, !t->fused, "is fused, yet read");
    const Seq *in = v->tensor_in[t->id];
    REQUIRE_OF(v, t, in, "is read before it is defined");
    REQUIRE_OF(v, t, seq_inside(at, in), "is read outside of where it is defined");
}

static void check_leaf(Verifier *v, const Expr *e, const Seq *at) {
    if (e->op == E_SYM) {
        const Sym *s = e->sym;
        REQUIRE(v, s->id >= 0 && s->id < v->nsym, "symbol id %d is out of range", s->id);
        REQUIRE(v, v->sym_in[s->id], "symbol %d (%s) is used before it is bound", s->id, s->name);
        REQUIRE(v, seq_inside(at, v->sym_in[s->id]), "symbol %d (%s) is used outside of its scope",
                s->id, s->name);
    }
    if (e->op == E_INDIM)
        REQUIRE(v, (e->i >> 8) >= 0 && (e->i >> 8) < v->p->nin, "size of input %d",
                (int)(e->i >> 8));
}

static uint64_t axis_bit(Verifier *v, const Axis *x) {
    REQUIRE(v, x->id >= 0 && x->id < v->naxis, "axis id %d is out of range", x->id);
    if (v->axis_stamp[x->id] != v->stamp) {
        v->axis_stamp[x->id] = v->stamp;
        v->axis_bit[x->id] = v->nbit < 63 ? v->nbit++ : 63;
    }
    return (uint64_t)1 << v->axis_bit[x->id];
}

/* Checks e and returns its free axes. */
static uint64_t check_expr(Verifier *v, const Expr *e, const Seq *at) {
    REQUIRE(v, e->id >= 0 && e->id < v->nexpr, "expression id %d is out of range", e->id);
    if (e->op == E_CONST) return 0; /* most dims are */
    ExprInfo *k = &v->expr[e->id];
    const bool plain = !(e->flags & EF_AXIS);
    if (plain && k->seq == at) return 0;
    if (!plain && k->stamp == v->stamp) return k->axes;
    uint64_t axes = 0;
    for (int i = 0; i < e->n; i++) {
        REQUIRE(v, e->a[i]->id < e->id, "an operand is younger than its user");
        axes |= check_expr(v, e->a[i], at);
    }
    switch (e->op) {
    case E_AXIS: axes = axis_bit(v, e->axis); break;
    case E_SYM:
    case E_INDIM: check_leaf(v, e, at); break;
    case E_LOAD:
        check_use(v, e->t, at);
        REQUIRE(v, e->dtype == e->t->dtype, "a load has another dtype than tensor %d", e->t->id);
        REQUIRE(v, e->kind == 1 ? e->n == 1 : e->n == tensor_ndim(e->t),
                "a load of tensor %d has %d indices", e->t->id, e->n);
        for (int i = 0; i < e->n; i++) {
            REQUIRE(v, e->a[i]->dtype == DT_I64, "an index of tensor %d is not int64", e->t->id);
            if (e->kind == 1 || !e->t->dim[i]) continue;
            REQUIRE(v, e->t->dim[i]->pure, "a dim of tensor %d is not pure", e->t->id);
            check_expr(v, e->t->dim[i], at);
        }
        break;
    case E_REDUCE:
        for (int i = 0; i < e->naxis; i++) {
            axes &= ~(axis_bit(v, e->raxis[i]) & ~((uint64_t)1 << 63));
            REQUIRE(v, e->raxis[i]->extent->pure, "the extent of a reduction is not pure");
            check_expr(v, e->raxis[i]->extent, at);
        }
        break;
    case E_TELL:
        for (int i = 0; i < e->n; i++)
            REQUIRE(v, e->a[i]->dtype == (i ? DT_I64 : DT_BOOL), "operand %d of tell has type %s",
                    i, dtype_name(e->a[i]->dtype));
        break;
    case E_GUARD: REQUIRE(v, e->i >= 0 && e->i < v->p->cx->site.n, "a guard has no message"); break;
    default:
        if (e_is_binary(e->op))
            REQUIRE(v, e->a[0]->dtype == e->a[1]->dtype, "operands of %s differ in dtype",
                    expr_row[e->op].name);
    }
    k->stamp = v->stamp;
    if (plain)
        k->seq = at;
    else
        k->axes = axes;
    return axes;
}

static void begin_body(Verifier *v) {
    v->stamp++;
    v->nbit = 0;
}

/* Checks a uniform expression; `loads`: it may load at uniform indices. */
static void check_uniform(Verifier *v, const Expr *e, DType t, bool loads, const Seq *at) {
    if (!e) return;
    begin_body(v);
    uint64_t axes = check_expr(v, e, at);
    REQUIRE(v, !(axes & ~((uint64_t)1 << 63)), "a uniform value depends on an axis");
    REQUIRE(v, loads || e->pure, "a uniform value is not pure");
    REQUIRE(v, t == DT_NONE || e->dtype == t, "a uniform value has type %s instead of %s",
            dtype_name(e->dtype), dtype_name((int)t));
}

static void check_dims(Verifier *v, const Tensor *t, const Seq *at) {
    REQUIRE_OF(v, t, dtype_supported((int)t->dtype), "has no dtype");
    if (t->blob) return;
    REQUIRE(v, t->rank >= -1 && t->rank <= MAX_RANK, "tensor %d has rank %d", t->id, t->rank);
    for (int i = 0; i < tensor_ndim(t); i++) {
        REQUIRE(v, t->dim[i] || t->rank < 0, "tensor %d (%s) has no dim %d", t->id, tensor_name(t),
                i);
        check_uniform(v, t->dim[i], DT_I64, false, at);
    }
    if (t->rank >= 0) return;
    REQUIRE_OF(v, t, t->rank_e && t->rank_mask && t->rank_mask < 2u << MAX_RANK, "has no rank");
    check_uniform(v, t->rank_e, DT_I64, false, at);
    for (int r = 0; r <= MAX_RANK; r++)
        for (int i = 0; t->alt[r] && i < r; i++) check_uniform(v, t->alt[r][i], DT_I64, false, at);
}

/* A growing buffer belongs to a carried value and to the values between it and next. */
static void check_grow(const Verifier *v, const Tensor *t) {
    const Grow *g = t->grow;
    REQUIRE_OF(v, t, v->p->stage >= STAGE_GROUPED, "grows too early");
    REQUIRE_OF(v, t, g->phi && g->phi->grow == g && g->axis >= 0 && g->axis < t->rank,
               "grows in another one's buffer");
    REQUIRE_OF(v, t, g->first && (g->room || g->planned) && (!g->planned || g->most >= 0),
               "grows without room");
    REQUIRE_OF(v, t, g->spaced == (g->extent != NULL), "grows without an extent");
}

/* Checks the definition of t, a tensor of this program, in `at`. */
static void define(Verifier *v, Tensor *t, TensorKind kind, const Seq *at) {
    const Stage stage = v->p->stage;
    REQUIRE(v, t && t->id >= 0 && t->id < v->ntensor, "a tensor id is out of range");
    REQUIRE_OF(v, t, t->kind == kind, "has the wrong kind");
    REQUIRE_OF(v, t, !v->tensor_in[t->id], "is defined twice");
    REQUIRE_OF(v, t, t->seq == at, "is said to be defined elsewhere");
    REQUIRE_OF(v, t, !t->fused, "is fused, yet defined");
    REQUIRE_OF(v, t, t->ret >= 0 && (!t->ret || t->owned), "is no result");
    REQUIRE(v, !t->placed || (kind != TK_PARAM && kind != TK_CALL),
            "the host cannot place tensor %d (%s)", t->id, tensor_name(t));
    REQUIRE_OF(v, t, !t->base || (kind == TK_TE && t->grow), "is in place of nothing");
    REQUIRE_OF(v, t, kind == TK_TE || !t->body, "has a body, but is not computed");
    if (t->grow) check_grow(v, t);
    REQUIRE_OF(v, t, !t->table == !t->row, "is part of a table, but nowhere");
    REQUIRE_OF(v, t, !t->table || (kind == TK_TE && t->owned && t->table->kind == TK_PHI),
               "is part of no table");
    const bool stored = kind != TK_JOIN && kind != TK_PARAM;
    REQUIRE_OF(v, t, stage >= STAGE_PLACED || !t->plan, "has a place too early");
    REQUIRE_OF(v, t, stage < STAGE_PLACED || !stored || t->plan, "has no place");
    v->tensor_in[t->id] = at;
    v->defined[t->id] = t;
}

static void bind(Verifier *v, const Sym *s, const Seq *at) {
    REQUIRE(v, s->id >= 0 && s->id < v->nsym, "symbol id %d is out of range", s->id);
    REQUIRE(v, !v->sym_in[s->id], "symbol %d (%s) is bound twice", s->id, s->name);
    REQUIRE(v, s->scope == at, "symbol %d (%s) has another scope", s->id, s->name);
    REQUIRE(v, s->lo <= s->hi, "symbol %d (%s) has no possible value", s->id, s->name);
    v->sym_in[s->id] = at;
}

static void check_site(const Verifier *v, int site) {
    REQUIRE(v, site >= 0 && site < v->p->cx->site.n, "a check has no message");
}

/* Checks which unit computes which part of the group. */
static void check_share(const Verifier *v, const Stmt *s) {
    const Stage stage = v->p->stage;
    const Tensor *lead = s->op.t[0];
    bool own = false;
    for (int d = 0; d < lead->rank; d++) own |= s->op.split && lead->axis[d] == s->op.split;
    REQUIRE(v, !s->op.split || (stage >= STAGE_SHARED && own && s->op.grain > 0 && !s->each),
            "a group is shared along no axis of its own");
    REQUIRE(v, !s->op.second || (s->op.split && !s->op.inner && s->op.ways > 1),
            "a group is shared along a second axis, but not along a first one");
    REQUIRE(v, s->op.split || !s->op.inner, "a part of a group is shared that is not");
    REQUIRE(v, s->op.edge >= 0 && (s->op.inner || !s->op.edge), "a group has an edge of nothing");
    REQUIRE(v, (stage >= STAGE_CHOSEN) == (s->op.kernel != NULL),
            stage >= STAGE_CHOSEN ? "a group has no kernel" : "a group has a kernel too early");
    REQUIRE(v, s->level != LEVEL_HOST || (s->op.n == 1 && !s->op.at),
            "a group of the host's is no single product");
    REQUIRE(v, !s->op.at || stage >= STAGE_GROUPED, "a group computes a part too early");
}

static void check_op(Verifier *v, const Stmt *s, const Seq *at) {
    const Tensor *lead = s->op.t[0];
    REQUIRE(v, s->op.n > 0 && (s->op.n == 1 || v->p->stage >= STAGE_GROUPED),
            "an OP has %d tensors", s->op.n);
    for (int i = 0; i < s->op.n; i++) {
        Tensor *t = s->op.t[i];
        check_dims(v, t, at);
        REQUIRE_OF(v, t, t->body && t->body->dtype == t->dtype, "has no fitting body");
        REQUIRE(v, i == 0 || same_dims(lead, t),
                "tensors %d and %d of one group have different dims", lead->id, t->id);
        REQUIRE_OF(v, t, !t->base || s->op.at, "is behind another, but whole");
        if (t->base) check_use(v, t->base, at);
        begin_body(v);
        uint64_t own = (uint64_t)1 << 63;
        for (int k = 0; k < tensor_ndim(t); k++) {
            const Axis *x = t->axis[k];
            REQUIRE(v, x || t->rank < 0, "tensor %d (%s) has no axis %d", t->id, tensor_name(t), k);
            if (!x) continue;
            REQUIRE(v, t->rank < 0 || s->op.at || x->extent == t->dim[k],
                    "axis %d of tensor %d (%s) is not as long as its dim", k, t->id,
                    tensor_name(t));
            own |= axis_bit(v, x);
        }
        REQUIRE(v, !(check_expr(v, t->body, at) & ~own),
                "the body of tensor %d (%s) uses an axis that is not bound", t->id, tensor_name(t));
        define(v, t, TK_TE, at);
    }
    check_share(v, s);
}

/* Checks a value made for one owner, in the Seq `in` or, below a join there, in the arms, so that
 * buffers are never shared by accident. */
static void check_fresh(Verifier *v, const Tensor *t, const Seq *in, bool result) {
    const char *what = result ? "a function's result" : "carried by a loop";
    check_use(v, t, in);
    REQUIRE(v, v->tensor_in[t->id] == in, "tensor %d (%s) is %s but made elsewhere", t->id,
            tensor_name(t), what);
    REQUIRE(v, !v->moved[t->id]++, "tensor %d (%s) is %s twice", t->id, tensor_name(t), what);
    const Join *j = result && t->kind == TK_JOIN ? tensor_join(t) : NULL;
    REQUIRE(v, j || t->kind == TK_TE || t->kind == (result ? TK_CALL : TK_EXTERN),
            "tensor %d (%s) is %s but no fresh value", t->id, tensor_name(t), what);
    for (int k = 0; j && k < 2; k++)
        if (j->arm[k]) check_fresh(v, j->arm[k], j->arm[k]->seq, true);
}

/* ---- checks by kind of statement ------------------------------------------------------------- */
static void check_carry(const Verifier *v, const LoopCarry *k) {
    REQUIRE(v, k->phi && k->next && !k->init == (k->rows && k->inplace),
            "a carried value has no beginning or no end");
    REQUIRE(v, k->next->dtype == k->phi->dtype && (!k->init || k->init->dtype == k->phi->dtype),
            "a carried value changes its dtype");
    REQUIRE(v, k->phi->grow == k->next->grow && (!k->phi->grow || k->phi->grow->phi == k->phi),
            "a value grows in another one's buffer");
    REQUIRE(v, !(k->inplace || k->push) || v->p->stage >= STAGE_GROUPED,
            "a carried value changes in place too early");
    const Stmt *group = k->inplace ? tensor_group(k->next) : NULL;
    REQUIRE(v, !k->inplace || k->phi->grow || (group && group->op.at),
            "a carried value that is computed whole changes in place");
    REQUIRE(v, !k->push || (k->phi->blob && !k->inplace), "what is pushed to is no sequence");
}

static void check_loop(const Verifier *v, const Stmt *s) {
    check_site(v, s->loop.cap_site);
    REQUIRE(v, s->loop.iter && s->loop.iter->dtype == DT_I64, "a loop has no counter");
    bool inplace = false;
    for (int i = 0; i < s->loop.carry.n; i++) {
        check_carry(v, &s->loop.carry.p[i]);
        inplace |= s->loop.carry.p[i].inplace && s->loop.carry.p[i].init;
    }
    for (int i = 0; i < s->loop.scan.n; i++) {
        const LoopScan *k = &s->loop.scan.p[i];
        REQUIRE(v, k->elem && k->elem->dtype == k->out->dtype, "a scan output has no elements");
        REQUIRE(v, !k->more || k->at, "a further part of a scan output has no place");
    }
    const bool meet = s->loop.barrier || s->loop.block_barrier || s->loop.copies;
    REQUIRE(v, !meet || v->p->stage >= STAGE_SYNCED, "units meet in a loop too early");
    REQUIRE(v, !(s->loop.barrier && s->loop.block_barrier), "a block meets where all units do");
    REQUIRE(v, v->p->stage < STAGE_SYNCED || s->loop.copies == inplace,
            "units do not meet for what changes in place");
}

/* Whether control never reaches the end of q. */
static bool ends_in_fault(const Seq *q) {
    for (int i = 0; i < q->s.n; i++) {
        const Stmt *s = q->s.p[i];
        if (s->kind == S_CHECK && e_is_ival(s->check.cond, 0)) return true;
    }
    return false;
}

static void check_branch(const Verifier *v, const Stmt *s) {
    REQUIRE(v, s->br.cond, "a branch has no condition");
    for (int i = 0; i < s->br.joins.n; i++) {
        const Join *j = &s->br.joins.p[i];
        REQUIRE(v, !j->half || v->p->stage >= STAGE_GROUPED, "a result is left out too early");
        for (int k = 0; k < 2; k++) {
            REQUIRE(v, j->arm[k] || j->half || ends_in_fault(s->br.arm[k]),
                    "an arm gives nothing for tensor %d (%s)", j->out->id, tensor_name(j->out));
            REQUIRE(v, !j->arm[k] || j->arm[k]->dtype == j->out->dtype,
                    "a joined value changes its dtype");
            /* The other way round it may be: lowering tries what it takes back. */
            REQUIRE(v, !j->arm[k] || !j->out->owned || j->arm[k]->owned || j->arm[k]->kind != TK_TE,
                    "an arm gives a value that is not its own");
        }
    }
    for (int i = 0; i < s->br.syms.n; i++)
        REQUIRE(v, s->br.syms.p[i].arm[0] && s->br.syms.p[i].arm[1],
                "an arm gives nothing for a symbol");
}

static void check_func(const Verifier *v, const Func *f, const Stmt *start) {
    const Stage stage = v->p->stage;
    REQUIRE(v, f->start == start, "a function hangs in the wrong place");
    REQUIRE(v, f->id >= 0 && f->id < v->p->nfunc && f->name, "function %d is out of range", f->id);
    REQUIRE(v, !f->rows || (f->nsym > 0 && f->rows == f->sym[0]),
            "rows of function %s are not its first parameter", f->name);
    REQUIRE(v, f->inside >= 0, "function %s has %d levels in it", f->name, f->inside);
    REQUIRE(v, stage >= STAGE_PLACED ? f->frame >= 0 : !f->frame,
            "function %s has a frame of %lld bytes", f->name, (long long)f->frame);
    for (int i = 0; i < f->nout; i++)
        REQUIRE(v, f->out[i] && f->out[i]->ret == (f->room[i] ? i + 1 : 0),
                "result %d of function %s goes elsewhere", i, f->name);
    check_site(v, f->site);
}

static void check_call(const Verifier *v, const Stmt *s, const Seq *at) {
    const Func *f = s->call.f;
    REQUIRE(v, f && f->body && f->start, "a call of nothing");
    for (int i = 0; i < f->narg; i++)
        REQUIRE(v, s->call.arg[i] && s->call.arg[i]->dtype == f->arg[i]->dtype,
                "argument %d has another dtype", i);
    for (int i = 0; i < f->nout; i++)
        REQUIRE(v, s->call.out[i] && s->call.out[i]->dtype == f->out[i]->dtype,
                "result %d has another dtype", i);
    for (int i = 0; i < f->nret; i++)
        REQUIRE(v, s->call.ret[i]->dtype == (DType)f->ret[i]->dtype, "result %d has another dtype",
                i);
    if (!s->call.nfunc)
        REQUIRE(v, seq_inside(at, f->start->call.func[0]->body->parent), "a call from elsewhere");
    for (int i = 0; i < s->call.nfunc; i++) check_func(v, s->call.func[i], s);
}

static void check_enter(const Verifier *v, const Stmt *s, const Seq *at) {
    check_site(v, s->enter.site);
    while (at && !(at->owner && at->owner->kind == S_CALL)) at = at->parent;
    const Func *f = NULL;
    for (int i = 0; at && i < at->owner->call.nfunc; i++)
        if (at->owner->call.func[i]->body == at) f = at->owner->call.func[i];
    REQUIRE(v, f && s->enter.below > 0 && s->enter.below <= f->inside,
            "an activation begins %d levels below its function", s->enter.below);
}

/* ---- who runs a statement -------------------------------------------------------------------- */
/* Checks statement i of q, whose statements run at most at level `around`. */
static void check_units(const Verifier *v, const Seq *q, int i, uint8_t around) {
    const Stmt *s = q->s.p[i], *before = i ? q->s.p[i - 1] : NULL;
    const Stage stage = v->p->stage;
    const bool host = s->level == LEVEL_HOST && s->kind == S_OP;
    const bool control = stmt_nseq(s) > 0 || s->kind == S_CALL;
    const bool barrier = s->kind == S_BARRIER;
    if (stage < STAGE_LEVELLED)
        REQUIRE(v, !s->level || host, "a statement has level %d too early", s->level);
    else
        REQUIRE(v, host || (s->level >= LEVEL_CORE && s->level <= (barrier ? LEVEL_TEAM : around)),
                "a statement of level %d is in one of level %d", s->level, around);
    REQUIRE(v, !s->unit || (control && s->level < around) || (barrier && s->meet),
            "a statement is run by unit %d, where all units run it", s->unit);
    REQUIRE(
        v,
        !s->beside ||
            (before && before->level == s->level &&
             (s->kind == S_OP ? before->kind == S_OP && s->op.team && before->op.team == s->op.team
                              : control && s->level < around &&
                                    (stmt_nseq(before) > 0 || before->kind == S_CALL))),
        "a statement is beside nothing");
    REQUIRE(v, !s->each || (stage >= STAGE_GROUPED && (s->kind == S_OP || s->kind == S_EXTERN)),
            "what every unit computes is no tensor");
    REQUIRE(v, !barrier || stage >= STAGE_SYNCED, "units meet too early");
    REQUIRE(v,
            s->meet == MEET_ALL || (barrier && s->level == LEVEL_TEAM && s->meet <= MEET_RELEASE),
            "units meet in no way that there is");
    REQUIRE(v, s->path, "a statement has no path");
}

/* ---- statements ------------------------------------------------------------------------------ */
typedef struct At {
    Verifier *v;
    const Stmt *s;
    const Seq *q; /* the Seq that contains s */
} At;

static void check_seq(Verifier *v, const Seq *q);

static void check_slot(void *user, const Slot *k) {
    const At *x = user;
    Verifier *v = x->v;
    const Seq *at = k->in ? k->in : x->q;
    switch (k->kind) {
    case SLOT_EXPR: check_uniform(v, *k->e, k->dtype, k->loads, at); break;
    case SLOT_BODY: break;
    case SLOT_READ:
        if (k->fresh)
            check_fresh(v, *k->t, at, x->s->kind == S_CALL);
        else
            check_use(v, *k->t, at);
        check_dims(v, *k->t, at);
        break;
    case SLOT_TENSOR:
        if (x->s->kind == S_OP) break;
        check_dims(v, *k->t, at);
        if (k->more)
            check_use(v, *k->t, at);
        else
            define(v, *k->t, k->made, at);
        break;
    case SLOT_SYM: bind(v, *k->sym, at); break;
    case SLOT_SEQ:
        REQUIRE(v, *k->q && (*k->q)->parent == at && (*k->q)->owner == x->s,
                "a body or an arm hangs in the wrong place");
        REQUIRE(v, (*k->q)->depth == at->depth + (x->s->kind != S_BRANCH),
                "a body or an arm is at the wrong depth");
        check_seq(v, *k->q);
        v->where = x->s->path;
        break;
    }
}

static void check_stmt(Verifier *v, const Stmt *s, const Seq *at) {
    switch (s->kind) {
    case S_LET:
    case S_BARRIER: break;
    case S_OP: check_op(v, s, at); break;
    case S_EXTERN:
        REQUIRE(v, s->ext.row, "an extern has no body");
        REQUIRE(v, !s->ext.structure || (s->ext.nout == 1 && s->ext.nsym == 1),
                "a linearizer has no plan");
        check_site(v, s->ext.site);
        break;
    case S_CHECK: check_site(v, s->check.site); break;
    case S_LOOP: check_loop(v, s); break;
    case S_BRANCH: check_branch(v, s); break;
    case S_ENTER: check_enter(v, s, at); break;
    case S_CALL: check_call(v, s, at); break;
    default: fail_at(v, "a statement of unknown kind");
    }
}

static void check_seq(Verifier *v, const Seq *q) {
    const uint8_t around = q->owner && q->owner->level ? q->owner->level : LEVEL_TEAM;
    for (int i = 0; i < q->s.n; i++) {
        const Stmt *s = q->s.p[i];
        v->where = s->path;
        check_units(v, q, i, around);
        check_stmt(v, s, q);
        stmt_slots(s, check_slot, &(At){v, s, q});
    }
}

/* A value made for an owner is marked as owned. (It stays marked when dead code elimination removes
 * the owner.) */
static void check_owned(Verifier *v) {
    v->where = v->p->name;
    for (int i = 0; i < v->ntensor; i++)
        REQUIRE(v, !v->moved[i] || v->defined[i]->owned, "tensor %d (%s) is not owned", i,
                tensor_name(v->defined[i]));
}

static void check_io(Verifier *v) {
    const Program *p = v->p;
    for (int i = 0; i < p->nin; i++)
        REQUIRE(v, !p->in[i].t || p->in[i].t->kind == TK_INPUT, "input %d is none", i);
    for (int i = 0; i < p->nout; i++) {
        v->where = p->out[i].name;
        check_uniform(v, p->out[i].has, DT_BOOL, true, p->top);
        if (!p->out[i].t) continue;
        check_use(v, p->out[i].t, p->top);
        check_dims(v, p->out[i].t, p->top);
    }
}

static void check_program(Verifier *v, Arena *a) {
    const Program *p = v->p;
    v->expr = NEWN(a, ExprInfo, v->nexpr + 1);
    v->axis_stamp = NEWN(a, int, v->naxis + 1);
    v->axis_bit = NEWN(a, int, v->naxis + 1);
    v->tensor_in = NEWN(a, const Seq *, v->ntensor + 1);
    v->defined = NEWN(a, const Tensor *, v->ntensor + 1);
    v->sym_in = NEWN(a, const Seq *, v->nsym + 1);
    v->moved = NEWN(a, int, v->ntensor + 1);
    REQUIRE(v, p->stage < STAGE_COUNT && (p->stage == STAGE_PLAIN || p->schedule),
            "stage %d without a schedule", (int)p->stage);
    REQUIRE(v, (p->stage >= STAGE_PLACED) == (p->mem != NULL), "memory is planned or not");
    REQUIRE(v, p->top && !p->top->owner && !p->top->parent, "the program is part of another");
    check_seq(v, p->top);
    check_io(v);
    check_owned(v);
}

void utask_verify(const Program *p) {
    const Cx *c = p->cx;
    Diag *d = c->d;
    Verifier v = {.p = p,
                  .where = p->name,
                  .nexpr = c->next_expr,
                  .naxis = c->next_axis,
                  .ntensor = c->next_tensor,
                  .nsym = c->next_sym};
    /* An arena of its own, freed also when memory runs out. */
    Arena *a = arena_new(d);
    jmp_buf jb, *up = d->top;
    d->top = &jb;
    const bool ok = setjmp(jb) == 0;
    if (ok) check_program(&v, a);
    d->top = up;
    arena_free(a);
    if (!ok) err_again(d);
}
