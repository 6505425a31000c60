/* interp_prepare.c: prepares a Program for the interpreter: compiles its expressions and finds the
 * statement after which each tensor is dead.
 *
 * The uniform results of a Code are requested in the order in which interp.c reads them. */
#include "utask/interp.h"
#include "utask/walk.h"
#include <limits.h>

/* A list of uniform expressions, such as those of a tensor's dims: rank_e, dim and all
 * alternatives. */
typedef struct Exprs {
    Arena *a;
    VEC(Expr *) e;
} Exprs;

static void push(Exprs *v, Expr *e) { vec_push(v->a, &v->e, e); }

static void push_dims(Exprs *v, const Tensor *t) {
    if (t->blob) return;
    if (t->rank >= 0) {
        for (int i = 0; i < t->rank; i++) push(v, t->dim[i]);
        return;
    }
    push(v, t->rank_e);
    for (int i = 0; i < MAX_RANK; i++) push(v, t->dim[i]);
    for (int r = 0; r <= MAX_RANK; r++)
        for (int i = 0; t->alt[r] && i < r; i++) push(v, t->alt[r][i]);
}

/* ---- preparation ----------------------------------------------------------------------------- */
typedef struct SeqPlace { /* in a Seq that is being prepared */
    struct SeqPlace *up;
    int id, at;
} SeqPlace;
typedef struct Prep {
    Interp *it;
    Arena *tmp; /* for what is needed only here */
    int nseq;
    int *owner,
        *last; /* by tensor id: Seq that defines it (0: none), last statement that uses it */
    VEC(const Tensor *) own;
} Prep;

static Code *uniform(const Prep *p, int n, Expr *const *e) {
    return code_compile(p->it->a, p->tmp, NULL, n, e);
}
/* Compiles the list, and empties it. */
static Code *uniforms(const Prep *p, Exprs *v) {
    Code *k = uniform(p, v->e.n, v->e.p);
    v->e.n = 0;
    return k;
}

static void use(Prep *p, SeqPlace *l, const Tensor *t) {
    if (!t) return;
    t = tensor_root(t);
    int owner = p->owner[t->id];
    if (!owner) return;
    while (l && l->id != owner) l = l->up;
    if (!l) die("tensor %d is used outside of where it is defined", t->id);
    if (p->last[t->id] != INT_MAX) p->last[t->id] = l->at;
}

/* A use at the end of the Seq of level l (its own tensors are then released with the Seq). */
static void use_end(Prep *p, SeqPlace *l, const Tensor *t) {
    if (!t) return;
    use(p, l, t);
    t = tensor_root(t);
    if (p->owner[t->id] == l->id) p->last[t->id] = INT_MAX;
}

static void use_code(Prep *p, SeqPlace *l, const Code *k) {
    for (int i = 0; k && i < k->slot.n; i++) use(p, l, k->slot.p[i]);
}

static void own(Prep *p, SeqPlace *l, const Tensor *t) {
    if (!t || t->kind == TK_CONST || t->kind == TK_INPUT || t->kind == TK_VIEW) return;
    if (t->id >= p->it->ntensor) die("tensor id %d is out of range", t->id);
    if (p->owner[t->id]) die("tensor %d is defined twice", t->id);
    p->owner[t->id] = l->id;
    p->last[t->id] = l->at;
    vec_push(p->tmp, &p->own, t);
}

static void prepare_seq(Prep *p, SeqPlace *up, const Seq *seq, StepSeq *out, const Step *owner,
                        int arm, const IFunc *fn);

/* What is defined in a function's body, functions that hang on it left out. */
typedef struct Own {
    Arena *a;
    IFunc *f;
} Own;

static void own_tensor_of(void *user, Tensor *t) {
    Own *o = user;
    if (t->kind == TK_CONST || t->kind == TK_INPUT || t->kind == TK_VIEW) return;
    vec_push(o->a, &o->f->t, t);
}
static void own_sym_of(void *user, Sym *s) {
    Own *o = user;
    vec_push(o->a, &o->f->s, s);
}

/* Returns how deep q is nested. */
static int own_values(Own *o, const Seq *q) {
    int deep = 0;
    for (int i = 0; i < q->s.n; i++) {
        const Stmt *s = q->s.p[i];
        stmt_defines(s, own_tensor_of, own_sym_of, o);
        for (int k = 0; s->kind != S_CALL && k < stmt_nseq(s); k++) {
            int d = own_values(o, stmt_seq(s, k));
            if (d > deep) deep = d;
        }
    }
    return deep + 1;
}

static void ifunc_new(Prep *p, const Func *f) {
    Own o = {p->it->a, NEW(p->it->a, IFunc)};
    o.f->f = f;
    for (int i = 0; i < f->narg; i++) own_tensor_of(&o, f->arg[i]);
    for (int i = 0; i < f->nsym; i++) own_sym_of(&o, f->sym[i]);
    int deep = own_values(&o, f->body);
    if (deep > p->it->nesting) p->it->nesting = deep;
    p->it->func[f->id] = o.f;
}

/* Calls of this recursion that one activation makes at most; those in a loop count twice. */
static int calls_of(const Seq *q, int each) {
    int n = 0;
    for (int i = 0; i < q->s.n; i++) {
        const Stmt *s = q->s.p[i];
        if (s->kind == S_CALL && !s->call.nfunc) n += each;
        if (s->kind == S_LOOP) n += calls_of(s->loop.body, 2);
        if (s->kind != S_BRANCH) continue;
        const int a = calls_of(s->br.arm[0], each), b = calls_of(s->br.arm[1], each);
        n += a > b ? a : b;
    }
    return n;
}

static void prepare_call(Prep *p, SeqPlace *l, const Stmt *s, Step *o) {
    const Func *f = s->call.f;
    o->pre = uniform(p, f->nsym, s->call.sym);
    use_code(p, l, o->pre);
    for (int i = 0; i < f->narg; i++) use(p, l, s->call.arg[i]);
    for (int i = 0; i < s->call.nfunc; i++) ifunc_new(p, s->call.func[i]);
    int most = 0, passed = 0;
    for (int i = 0; i < s->call.nfunc; i++) {
        const int n = calls_of(s->call.func[i]->body, 1);
        if (n > most) most = n;
        passed += s->call.func[i]->narg;
    }
    for (int i = 0; i < s->call.nfunc; i++) {
        const Func *g = s->call.func[i];
        p->it->func[g->id]->repeats = most > 1 && !passed;
    }
    for (int i = 0; i < s->call.nfunc; i++) {
        const Func *g = s->call.func[i];
        IFunc *k = p->it->func[g->id];
        k->ret = uniform(p, g->nret, g->ret);
        prepare_seq(p, l, g->body, &k->body, NULL, 0, k);
    }
    for (int i = 0; i < f->nout; i++) own(p, l, s->call.out[i]);
}

static void prepare_step(Prep *p, SeqPlace *l, const Stmt *s, Step *o) {
    Exprs e = {.a = p->tmp};
    o->s = s;
    switch (s->kind) {
    case S_LET: o->pre = uniform(p, 1, &s->let.e); break;
    case S_CHECK: /* the condition, then the values of its message */
        push(&e, e_told(s->check.cond));
        for (int i = 1; s->check.cond->op == E_TELL && i < s->check.cond->n; i++)
            push(&e, s->check.cond->a[i]);
        o->pre = uniforms(p, &e);
        break;
    case S_OP:
        o->op = NEWN(p->it->a, Code *, s->op.n);
        for (int i = 0; i < s->op.n; i++) {
            const Tensor *t = s->op.t[i];
            if (t->fused) continue;
            o->op[i] = code_compile(p->it->a, p->tmp, t, 0, NULL);
            use_code(p, l, o->op[i]);
            own(p, l, t);
        }
        break;
    case S_EXTERN:
        for (int i = 0; i < s->ext.nparam; i++) push(&e, s->ext.param[i]);
        for (int i = 0; i < s->ext.nin; i++)
            if (s->ext.in[i]) push_dims(&e, s->ext.in[i]);
        o->pre = uniforms(p, &e);
        for (int i = 0; i < s->ext.nout; i++) push_dims(&e, s->ext.out[i]);
        o->post = uniforms(p, &e);
        for (int i = 0; i < s->ext.nin; i++) use(p, l, s->ext.in[i]);
        for (int i = 0; i < s->ext.nout; i++) own(p, l, s->ext.out[i]);
        break;
    case S_LOOP:
        push(&e, s->loop.trips);
        push(&e, s->loop.cond0);
        for (int i = 0; i < s->loop.syms.n; i++) push(&e, s->loop.syms.p[i].init);
        o->pre = uniforms(p, &e);
        push(&e, s->loop.cond_next);
        for (int i = 0; i < s->loop.syms.n; i++) push(&e, s->loop.syms.p[i].next);
        for (int i = 0; i < s->loop.scan.n; i++) push_dims(&e, s->loop.scan.p[i].elem);
        o->post = uniforms(p, &e);
        use_code(p, l, o->pre);
        for (int i = 0; i < s->loop.carry.n; i++) {
            use(p, l, s->loop.carry.p[i].init);
            own(p, l, s->loop.carry.p[i].phi);
        }
        prepare_seq(p, l, s->loop.body, &o->body[0], o, 0, NULL);
        for (int i = 0; i < s->loop.scan.n; i++) own(p, l, s->loop.scan.p[i].out);
        return;
    case S_BRANCH:
        o->pre = uniform(p, 1, &s->br.cond);
        use_code(p, l, o->pre);
        for (int k = 0; k < 2; k++) {
            for (int i = 0; i < s->br.syms.n; i++) push(&e, s->br.syms.p[i].arm[k]);
            o->arm[k] = uniforms(p, &e);
            prepare_seq(p, l, s->br.arm[k], &o->body[k], o, k, NULL);
        }
        for (int i = 0; i < s->br.joins.n; i++) own(p, l, s->br.joins.p[i].out);
        return;
    case S_CALL: prepare_call(p, l, s, o); return;
    case S_BARRIER:
    case S_ENTER:
    case S_COUNT: break;
    }
    use_code(p, l, o->pre);
    use_code(p, l, o->post);
}

/* Handles what `o`, the owner of the Seq of level l, reads at its end. */
static void prepare_end(Prep *p, SeqPlace *l, const Step *o, int arm) {
    const Stmt *s = o->s;
    const Code *k = s->kind == S_LOOP ? o->post : o->arm[arm];
    for (int i = 0; i < k->slot.n; i++) use_end(p, l, k->slot.p[i]);
    if (s->kind == S_LOOP) {
        for (int i = 0; i < s->loop.carry.n; i++) use_end(p, l, s->loop.carry.p[i].next);
        for (int i = 0; i < s->loop.scan.n; i++) use_end(p, l, s->loop.scan.p[i].elem);
    } else
        for (int i = 0; i < s->br.joins.n; i++) use_end(p, l, s->br.joins.p[i].arm[arm]);
}

static void prepare_seq(Prep *p, SeqPlace *up, const Seq *seq, StepSeq *out, const Step *owner,
                        int arm, const IFunc *fn) {
    if (!seq) return;
    Arena *a = p->it->a;
    SeqPlace l = {up, ++p->nseq, 0};
    int n = seq->s.n;
    out->p = NEWN(a, Step, n + 1);
    out->n = n;
    for (int i = 0; fn && i < fn->f->narg; i++) own(p, &l, fn->f->arg[i]);
    for (l.at = 0; l.at < n; l.at++) prepare_step(p, &l, seq->s.p[l.at], &out->p[l.at]);
    if (owner)
        prepare_end(p, &l, owner, arm);
    else if (fn) {
        for (int i = 0; i < fn->ret->slot.n; i++) use_end(p, &l, fn->ret->slot.p[i]);
        for (int i = 0; i < fn->f->nout; i++) use_end(p, &l, fn->f->out[i]);
    } else {
        const Program *g = p->it->p;
        for (int i = 0; i < p->it->out->slot.n; i++) use_end(p, &l, p->it->out->slot.p[i]);
        for (int i = 0; i < g->nout; i++) use_end(p, &l, g->out[i].t);
    }
    /* Remove this Seq's tensors from the list, which then holds only those of open Seqs. */
    int kept = 0;
    for (int i = 0; i < p->own.n; i++) {
        const Tensor *t = p->own.p[i];
        int last = p->last[t->id];
        if (p->owner[t->id] != l.id) {
            p->own.p[kept++] = t;
            continue;
        }
        vec_push(a, &out->own, t);
        if (last < n) vec_push(a, &out->p[last].free, t);
    }
    p->own.n = kept;
}

static Interp *prepare(Arena *a, Arena *tmp, const Program *p) {
    Interp *it = NEW(a, Interp);
    it->a = a;
    it->p = p;
    it->nsym = p->cx->next_sym;
    it->ntensor = p->cx->next_tensor;
    it->func = NEWN(a, IFunc *, p->nfunc + 1);
    Prep prep = {.it = it, .tmp = tmp};
    prep.owner = NEWN(tmp, int, it->ntensor + 1);
    prep.last = NEWN(tmp, int, it->ntensor + 1);
    Exprs e = {.a = tmp};
    for (int i = 0; i < p->nout; i++) {
        push(&e, p->out[i].has);
        if (p->out[i].t) push_dims(&e, p->out[i].t);
    }
    it->out = uniforms(&prep, &e);
    prepare_seq(&prep, NULL, p->top, &it->top, NULL, 0, NULL);
    return it;
}

Interp *interp_new(const Program *p) {
    jmp_buf fail;
    Diag d = {.top = &fail};
    Arena *volatile a = NULL, *volatile tmp = NULL;
    Interp *volatile it = NULL;
    if (setjmp(fail) == 0) {
        a = arena_new(&d);
        tmp = arena_new(&d);
        it = prepare(a, tmp, p);
    }
    arena_free(tmp);
    if (!it) arena_free(a);
    return it;
}

void interp_free(Interp *it) {
    if (it) arena_free(it->a);
}
