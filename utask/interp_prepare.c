/* interp_prepare.c: prepares a Program for the interpreter: compiles its expressions and finds the
 * statement after which each tensor is dead.
 *
 * The uniform results of a Code are requested in the order in which interp.c reads them. */
#include "utask/interp.h"
#include "utask/walk.h"
#include <limits.h>
#include <stdlib.h>

/* A list of uniform expressions, such as those of a tensor's dims: rank_e, dim and all
 * alternatives. */
typedef struct Exprs {
    Pool *pool;
    Expr **p;
    int n, cap;
} Exprs;

static void push(Exprs *v, Expr *e) {
    v->p = pool_grow(v->pool, v->p, v->n, &v->cap, sizeof *v->p);
    v->p[v->n++] = e;
}

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
    int nseq;
    int *owner,
        *last; /* by tensor id: Seq that defines it (0: none), last statement that uses it */
    const Tensor **own;
    int nown, own_cap;
} Prep;

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
    for (int i = 0; k && i < k->nslot; i++) use(p, l, k->slot[i]);
}

static void own(Prep *p, SeqPlace *l, const Tensor *t) {
    if (!t || t->kind == TK_CONST || t->kind == TK_INPUT || t->kind == TK_VIEW) return;
    if (t->id >= p->it->ntensor) die("tensor id %d is out of range", t->id);
    if (p->owner[t->id]) die("tensor %d is defined twice", t->id);
    p->owner[t->id] = l->id;
    p->last[t->id] = l->at;
    p->own = pool_grow(&p->it->pool, (void *)p->own, p->nown, &p->own_cap, sizeof(Tensor *));
    p->own[p->nown++] = t;
}

static void prepare_seq(Prep *p, SeqPlace *up, const Seq *seq, StepSeq *out, const Step *owner,
                        int arm, const IFunc *fn);

/* What is defined in a function's body, functions that hang on it left out. */
typedef struct Own {
    Pool *pool;
    IFunc *f;
    int tensor_cap, sym_cap;
} Own;

static void own_tensor_of(void *user, Tensor *t) {
    Own *o = user;
    IFunc *f = o->f;
    if (t->kind == TK_CONST || t->kind == TK_INPUT || t->kind == TK_VIEW) return;
    f->t = pool_grow(o->pool, (void *)f->t, f->nt, &o->tensor_cap, sizeof(Tensor *));
    f->t[f->nt++] = t;
}
static void own_sym_of(void *user, Sym *s) {
    Own *o = user;
    IFunc *f = o->f;
    f->s = pool_grow(o->pool, (void *)f->s, f->ns, &o->sym_cap, sizeof(Sym *));
    f->s[f->ns++] = s;
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
    Own o = {.pool = &p->it->pool, .f = pool_alloc(&p->it->pool, sizeof *o.f)};
    o.f->f = f;
    for (int i = 0; i < f->narg; i++) own_tensor_of(&o, f->arg[i]);
    for (int i = 0; i < f->nsym; i++) own_sym_of(&o, f->sym[i]);
    int deep = own_values(&o, f->body);
    if (deep > p->it->nesting) p->it->nesting = deep;
    p->it->func[f->id] = o.f;
}

static void prepare_call(Prep *p, SeqPlace *l, const Stmt *s, Step *o) {
    Pool *pool = &p->it->pool;
    const Func *f = s->call.f;
    o->pre = code_compile(pool, NULL, f->nsym, s->call.sym);
    use_code(p, l, o->pre);
    for (int i = 0; i < f->narg; i++) use(p, l, s->call.arg[i]);
    for (int i = 0; i < s->call.nfunc; i++) ifunc_new(p, s->call.func[i]);
    for (int i = 0; i < s->call.nfunc; i++) {
        const Func *g = s->call.func[i];
        IFunc *k = p->it->func[g->id];
        k->ret = code_compile(pool, NULL, g->nret, g->ret);
        prepare_seq(p, l, g->body, &k->body, NULL, 0, k);
    }
    for (int i = 0; i < f->nout; i++) own(p, l, s->call.out[i]);
}

static void prepare_step(Prep *p, SeqPlace *l, const Stmt *s, Step *o) {
    Pool *pool = &p->it->pool;
    Exprs e = {.pool = pool};
    o->s = s;
    switch (s->kind) {
    case S_LET: o->pre = code_compile(pool, NULL, 1, &s->let.e); break;
    case S_CHECK: /* the condition, then the values of its message */
        push(&e, e_told(s->check.cond));
        for (int i = 1; s->check.cond->op == E_TELL && i < s->check.cond->n; i++)
            push(&e, s->check.cond->a[i]);
        o->pre = code_compile(pool, NULL, e.n, e.p);
        break;
    case S_OP:
        o->op = pool_alloc(pool, sizeof *o->op * (size_t)s->op.n);
        for (int i = 0; i < s->op.n; i++) {
            const Tensor *t = s->op.t[i];
            if (t->fused) continue;
            o->op[i] = code_compile(pool, t, 0, NULL);
            use_code(p, l, o->op[i]);
            own(p, l, t);
        }
        break;
    case S_EXTERN:
        for (int i = 0; i < s->ext.nparam; i++) push(&e, s->ext.param[i]);
        for (int i = 0; i < s->ext.nin; i++)
            if (s->ext.in[i]) push_dims(&e, s->ext.in[i]);
        o->pre = code_compile(pool, NULL, e.n, e.p);
        e.n = 0;
        for (int i = 0; i < s->ext.nout; i++) push_dims(&e, s->ext.out[i]);
        o->post = code_compile(pool, NULL, e.n, e.p);
        for (int i = 0; i < s->ext.nin; i++) use(p, l, s->ext.in[i]);
        for (int i = 0; i < s->ext.nout; i++) own(p, l, s->ext.out[i]);
        break;
    case S_LOOP:
        push(&e, s->loop.trips);
        push(&e, s->loop.cond0);
        for (int i = 0; i < s->loop.syms.n; i++) push(&e, s->loop.syms.p[i].init);
        o->pre = code_compile(pool, NULL, e.n, e.p);
        e.n = 0;
        push(&e, s->loop.cond_next);
        for (int i = 0; i < s->loop.syms.n; i++) push(&e, s->loop.syms.p[i].next);
        for (int i = 0; i < s->loop.scan.n; i++) push_dims(&e, s->loop.scan.p[i].elem);
        o->post = code_compile(pool, NULL, e.n, e.p);
        use_code(p, l, o->pre);
        for (int i = 0; i < s->loop.carry.n; i++) {
            use(p, l, s->loop.carry.p[i].init);
            own(p, l, s->loop.carry.p[i].phi);
        }
        prepare_seq(p, l, s->loop.body, &o->body[0], o, 0, NULL);
        for (int i = 0; i < s->loop.scan.n; i++) own(p, l, s->loop.scan.p[i].out);
        return;
    case S_BRANCH:
        o->pre = code_compile(pool, NULL, 1, &s->br.cond);
        use_code(p, l, o->pre);
        for (int k = 0; k < 2; k++) {
            e.n = 0;
            for (int i = 0; i < s->br.syms.n; i++) push(&e, s->br.syms.p[i].arm[k]);
            o->arm[k] = code_compile(pool, NULL, e.n, e.p);
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
    for (int i = 0; i < k->nslot; i++) use_end(p, l, k->slot[i]);
    if (s->kind == S_LOOP) {
        for (int i = 0; i < s->loop.carry.n; i++) use_end(p, l, s->loop.carry.p[i].next);
        for (int i = 0; i < s->loop.scan.n; i++) use_end(p, l, s->loop.scan.p[i].elem);
    } else
        for (int i = 0; i < s->br.joins.n; i++) use_end(p, l, s->br.joins.p[i].arm[arm]);
}

static void prepare_seq(Prep *p, SeqPlace *up, const Seq *seq, StepSeq *out, const Step *owner,
                        int arm, const IFunc *fn) {
    if (!seq) return;
    Pool *pool = &p->it->pool;
    SeqPlace l = {up, ++p->nseq, 0};
    int n = seq->s.n;
    out->p = pool_alloc(pool, sizeof *out->p * (size_t)(n + 1));
    out->n = n;
    for (int i = 0; fn && i < fn->f->narg; i++) own(p, &l, fn->f->arg[i]);
    for (l.at = 0; l.at < n; l.at++) prepare_step(p, &l, seq->s.p[l.at], &out->p[l.at]);
    if (owner)
        prepare_end(p, &l, owner, arm);
    else if (fn) {
        for (int i = 0; i < fn->ret->nslot; i++) use_end(p, &l, fn->ret->slot[i]);
        for (int i = 0; i < fn->f->nout; i++) use_end(p, &l, fn->f->out[i]);
    } else {
        const Program *g = p->it->p;
        for (int i = 0; i < p->it->out->nslot; i++) use_end(p, &l, p->it->out->slot[i]);
        for (int i = 0; i < g->nout; i++) use_end(p, &l, g->out[i].t);
    }
    int mine = 0;
    for (int i = 0; i < p->nown; i++) mine += p->owner[p->own[i]->id] == l.id;
    out->own = pool_alloc(pool, sizeof *out->own * (size_t)(mine + 1));
    /* Remove this Seq's tensors from the list, which then holds only those of open Seqs. */
    int kept = 0;
    for (int i = 0; i < p->nown; i++) {
        const Tensor *t = p->own[i];
        int last = p->last[t->id];
        if (p->owner[t->id] != l.id) {
            p->own[kept++] = t;
            continue;
        }
        out->own[out->nown++] = t;
        if (last < n) out->p[last].nfree++;
    }
    p->nown = kept;
    for (int i = 0; i < n; i++) {
        Step *s = &out->p[i];
        s->free = pool_alloc(pool, sizeof *s->free * (size_t)(s->nfree + 1));
        s->nfree = 0;
    }
    for (int i = 0; i < out->nown; i++) {
        int last = p->last[out->own[i]->id];
        if (last < n) out->p[last].free[out->p[last].nfree++] = out->own[i];
    }
}

static void prepare(Interp *it) {
    const Program *p = it->p;
    it->nsym = p->cx->next_sym;
    it->ntensor = p->cx->next_tensor;
    Exprs e = {.pool = &it->pool};
    for (int i = 0; i < p->nout; i++) {
        push(&e, p->out[i].has);
        if (p->out[i].t) push_dims(&e, p->out[i].t);
    }
    it->out = code_compile(&it->pool, NULL, e.n, e.p);
    Prep prep = {.it = it};
    prep.owner = pool_alloc(&it->pool, sizeof(int) * (size_t)(it->ntensor + 1));
    prep.last = pool_alloc(&it->pool, sizeof(int) * (size_t)(it->ntensor + 1));
    it->func = pool_alloc(&it->pool, sizeof *it->func * (size_t)(p->nfunc + 1));
    prepare_seq(&prep, NULL, p->top, &it->top, NULL, 0, NULL);
}

Interp *interp_new(const Program *p) {
    Interp *volatile it = calloc(1, sizeof *it);
    jmp_buf fail;
    if (!it) return NULL;
    it->p = p;
    it->pool.fail = &fail;
    if (setjmp(fail)) {
        interp_free(it);
        return NULL;
    }
    prepare(it);
    return it;
}

void interp_free(Interp *it) {
    if (!it) return;
    pool_free(&it->pool);
    free(it);
}
