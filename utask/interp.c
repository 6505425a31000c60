/* interp.c: the interpreter: runs the statements of a prepared Program. */
#include "utask/interp.h"
#include "codegen/text/fault.inc"
#include <pthread.h>
#include <stdlib.h>

/* Reads the dims that push_dims asked for, from result *at on. Returns the rank. */
static int read_dims(const Exec *x, const Code *k, int *at, const Tensor *t, int64_t *dim) {
    if (t->rank >= 0) {
        for (int i = 0; i < t->rank; i++) dim[i] = code_out(x, k, (*at)++).i;
        return t->rank;
    }
    int64_t rank = code_out(x, k, (*at)++).i;
    ASSERT(rank >= 0 && rank <= MAX_RANK);
    for (int i = 0; i < MAX_RANK; i++) {
        int64_t v = code_out(x, k, (*at)++).i;
        if (i < rank) dim[i] = v;
    }
    for (int r = 0; r <= MAX_RANK; r++)
        for (int i = 0; t->alt[r] && i < r; i++) {
            int64_t v = code_out(x, k, (*at)++).i;
            if (r == rank) dim[i] = v;
        }
    return (int)rank;
}

/* ---- values ---------------------------------------------------------------------------------- */
static void set_value(Exec *x, const Tensor *t, Buf *b) {
    Buf *old = x->value[t->id];
    x->value[t->id] = b;
    buf_unref(old);
}

static Buf *borrow(Exec *x, const Tensor *t, int64_t count, void *data) {
    Buf *b = malloc(sizeof *b);
    if (!b) exec_fault(x, ST_MEMORY, -1, "out of memory");
    *b = (Buf){1, t->dtype, count, data, true, NULL};
    x->value[t->id] = b;
    return b;
}

Buf *exec_value(Exec *x, const Tensor *t) {
    if (!x->value) exec_fault(x, ST_RUNTIME, -1, "not constant");
    t = tensor_root(t);
    Buf *b = x->value[t->id];
    if (b) return b;
    if (t->kind == TK_CONST) return borrow(x, t, t->data->count, (void *)(uintptr_t)t->data->data);
    if (t->kind != TK_INPUT)
        die("tensor %d (%s) is used before it is computed", t->id, t->name ? t->name : "");
    const RtValue *v = &x->in[t->index];
    int64_t count = 1;
    if (x->p->in[t->index].kind == VT_OPTIONAL && !v->present)
        count = 0;
    else if (t->blob)
        count = (int64_t)v->bytes;
    else
        for (int i = 0; i < v->rank; i++)
            if (v->dim[i] < 0 || !mul_size(count, v->dim[i], &count))
                exec_fault(x, ST_INPUT, -1, "input '%s' has a bad size", x->p->in[t->index].name);
    return borrow(x, t, v->data ? count : 0, v->data);
}

static Buf *ref(Buf *b) {
    b->refs++;
    return b;
}

static void set_sym(Exec *x, const Sym *s, RegVal v) { x->sym[s->id] = v; }

/* ---- statements ------------------------------------------------------------------------------ */
static void run_seq(Exec *x, const StepSeq *q);

static void release(Exec *x, const StepSeq *q) {
    for (int i = 0; i < q->own.n; i++) set_value(x, q->own.p[i], NULL);
}

/* Allocates memory that is freed if the run ends before the caller frees it. Only one piece at a
 * time. */
static void *hold(Exec *x, size_t n) {
    x->held = calloc(1, n ? n : 1);
    if (!x->held) exec_fault(x, ST_MEMORY, -1, "out of memory: a step needs %zu bytes", n);
    return x->held;
}
static void let_go(Exec *x) {
    free(x->held);
    x->held = NULL;
}

/* Tells the caller the shape of t, which has been computed. */
static void tell(Exec *x, const Tensor *t, int rank, const int64_t *dim) {
    if (x->config && x->config->seen && t->rank >= 0)
        x->config->seen(x->config->user, t, rank, dim);
}

static void run_op(Exec *x, const Step *o) {
    const Stmt *s = o->s;
    for (int k = 0; k < s->op.n; k++) {
        int64_t dim[MAX_RANK];
        if (!o->op[k]) continue;
        set_value(x, s->op.t[k], code_tensor(x, o->op[k], NULL));
        for (int i = 0; i < o->op[k]->rank; i++) dim[i] = code_out(x, o->op[k], i).i;
        tell(x, s->op.t[k], o->op[k]->rank, dim);
    }
}

static void run_extern(Exec *x, const Step *o) {
    const Stmt *s = o->s;
    const ExternRow *row = s->ext.row;
    size_t frame = ext_frame_size(s);
    ExtFrame f = ext_frame(s, hold(x, frame));
    int at = 0;
    code_uniform(x, o->pre);
    for (int i = 0; i < s->ext.nparam; i++) f.param[i] = code_out(x, o->pre, at++).i;
    for (int i = 0; i < s->ext.nin; i++) {
        const Tensor *t = s->ext.in[i];
        if (!t) continue;
        int64_t dim[MAX_RANK];
        int rank = t->blob ? 1 : read_dims(x, o->pre, &at, t, dim);
        const Buf *b = exec_value(x, t);
        f.in[i] = bx_of(t, b->data, b->count, rank, dim);
        if (!t->blob && bx_count(&f.in[i]) != b->count)
            die("extern %s: input %d has %lld elements, its dims say %lld", row->name, i,
                (long long)b->count, (long long)bx_count(&f.in[i]));
    }
    int bad = row->plan ? row->plan(f.in, f.param, f.sym, f.bytes) : 0;
    if (bad == BX_SAID) memcpy(x->said, f.sym, sizeof x->said);
    if (bad) exec_fault(x, ST_RUNTIME, s->ext.site, NULL);
    for (int i = 0; i < s->ext.nsym; i++) set_sym(x, s->ext.sym[i], (RegVal){.i = f.sym[i]});
    code_uniform(x, o->post);
    at = 0;
    for (int i = 0; i < s->ext.nout; i++) {
        const Tensor *t = s->ext.out[i];
        int64_t dim[MAX_RANK], count = 1;
        int rank = 1;
        if (t->blob)
            count = f.bytes[i];
        else {
            rank = read_dims(x, o->post, &at, t, dim);
            for (int k = 0; k < rank; k++)
                if (dim[k] < 0 || !mul_size(count, dim[k], &count))
                    exec_fault(x, ST_MEMORY, -1, "a result of %s is too large", row->name);
        }
        Buf *b = buf_new(x, t->dtype, count);
        set_value(x, t, b);
        if (!t->blob) tell(x, t, rank, dim);
        f.out[i] = bx_of(t, b->data, b->count, rank, dim);
    }
    int64_t scratch = f.bytes[s->ext.nout];
    if (scratch < 0) scratch = INT64_MAX;
    const int64_t taken = x->taken;
    exec_take(x, scratch);
    void *mem = scratch < (int64_t)1 << 40 ? malloc(scratch ? (size_t)scratch : 1) : NULL;
    if (!mem)
        exec_fault(x, ST_MEMORY, -1, "out of memory: %s needs %lld bytes", row->name,
                   (long long)scratch);
    bad = row->run(f.in, f.param, f.out, mem);
    if (bad == BX_SAID) memcpy(x->said, mem, sizeof x->said);
    free(mem);
    x->taken = taken;
    if (bad) exec_fault(x, ST_RUNTIME, s->ext.site, NULL);
    let_go(x);
}

/* ---- loops ----------------------------------------------------------------------------------- */
typedef struct ScanState {
    char *data;
    size_t bytes, cap;
    int rank; /* of an element; -1: none seen yet */
    int64_t dim[MAX_RANK];
} ScanState;
typedef struct LoopRun {
    struct LoopRun *up;
    int nscan;
    ScanState *scan;
    RegVal *next;
    Buf **buf;
} LoopRun;

static void loop_state_free(LoopRun *s) {
    for (int i = 0; i < s->nscan; i++) free(s->scan[i].data);
    free(s);
}

static LoopRun *loop_state_new(Exec *x, const Stmt *s) {
    int nscan = s->loop.scan.n, nsym = s->loop.syms.n, ncarry = s->loop.carry.n;
    LoopRun *r = calloc(1, sizeof *r + sizeof(ScanState) * (size_t)nscan +
                               sizeof(RegVal) * (size_t)nsym + sizeof(Buf *) * (size_t)ncarry);
    if (!r) exec_fault(x, ST_MEMORY, -1, "out of memory");
    r->scan = (ScanState *)(void *)(r + 1);
    r->next = (RegVal *)(void *)(r->scan + nscan);
    r->buf = (Buf **)(void *)(r->next + nsym);
    r->nscan = nscan;
    for (int i = 0; i < nscan; i++) r->scan[i].rank = -1;
    r->up = x->loop;
    return x->loop = r;
}

static void scan_append(Exec *x, const Step *o, ScanState *c, int *at, const LoopScan *s) {
    int64_t dim[MAX_RANK];
    const Tensor *t = s->elem;
    int rank = t->blob ? 0 : read_dims(x, o->post, at, t, dim);
    bool same = c->rank == rank;
    for (int i = 0; i < rank && same; i++) same = c->dim[i] == dim[i];
    if (c->rank >= 0 && !same)
        exec_fault(x, ST_RUNTIME, -1,
                   "%s: scan output '%s' has another shape than in the first "
                   "iteration",
                   o->s->path ? o->s->path : "Loop", s->out->name ? s->out->name : "");
    c->rank = rank;
    if (rank) memcpy(c->dim, dim, sizeof *dim * (size_t)rank);
    const Buf *b = exec_value(x, t);
    size_t bytes = (size_t)b->count * dtype_size(b->dtype);
    if (bytes > c->cap - c->bytes) {
        size_t cap = (c->bytes + bytes) * 2;
        x->where = o->s->path && *o->s->path ? o->s->path : NULL;
        exec_take(x, (int64_t)(cap - c->cap));
        char *p = cap <= (size_t)1 << 41 ? realloc(c->data, cap) : NULL;
        if (!p) exec_fault(x, ST_MEMORY, -1, "out of memory: a scan output needs %zu bytes", cap);
        c->data = p;
        c->cap = cap;
    }
    if (bytes) memcpy(c->data + c->bytes, b->data, bytes);
    c->bytes += bytes;
}

/* Called where a run may take long: in each iteration and in each call. */
static void look_cancelled(Exec *x) {
    if (!x->cancelled || !atomic_load_explicit(x->cancelled, memory_order_relaxed)) return;
    x->where = NULL;
    exec_fault(x, ST_CANCELLED, -1, "the run was cancelled");
}

static void run_loop(Exec *x, const Step *o) {
    const Stmt *s = o->s;
    int nsym = s->loop.syms.n, ncarry = s->loop.carry.n, nscan = s->loop.scan.n;
    code_uniform(x, o->pre);
    int64_t trips = s->loop.trips ? code_out(x, o->pre, 0).i : INT64_MAX, iter = 0;
    bool cond = !s->loop.cond0 || code_out(x, o->pre, 1).i;
    for (int i = 0; i < nsym; i++) set_sym(x, s->loop.syms.p[i].sym, code_out(x, o->pre, 2 + i));
    for (int i = 0; i < ncarry; i++)
        set_value(x, s->loop.carry.p[i].phi, ref(exec_value(x, s->loop.carry.p[i].init)));
    LoopRun *st = loop_state_new(x, s);
    for (; cond && iter < trips; iter++) {
        look_cancelled(x);
        if (iter >= x->max_iterations) {
            x->said[0] = x->max_iterations;
            exec_fault(x, ST_RUNTIME, s->loop.cap_site, NULL);
        }
        set_sym(x, s->loop.iter, (RegVal){.i = iter});
        run_seq(x, &o->body[0]);
        code_uniform(x, o->post);
        cond = !s->loop.cond_next || code_out(x, o->post, 0).i;
        for (int i = 0; i < nsym; i++) st->next[i] = code_out(x, o->post, 1 + i);
        int at = 1 + nsym;
        for (int i = 0; i < nscan; i++) scan_append(x, o, &st->scan[i], &at, &s->loop.scan.p[i]);
        for (int i = 0; i < ncarry; i++) exec_value(x, s->loop.carry.p[i].next);
        for (int i = 0; i < ncarry; i++) st->buf[i] = ref(exec_value(x, s->loop.carry.p[i].next));
        for (int i = 0; i < ncarry; i++) set_value(x, s->loop.carry.p[i].phi, st->buf[i]);
        for (int i = 0; i < nsym; i++) set_sym(x, s->loop.syms.p[i].sym, st->next[i]);
    }
    set_sym(x, s->loop.iter, (RegVal){.i = iter});
    release(x, &o->body[0]);
    for (int i = 0; i < nscan; i++) {
        const Tensor *t = s->loop.scan.p[i].out;
        Buf *b = buf_new(x, t->dtype, 0);
        if (st->scan[i].data) {
            x->taken -= (int64_t)(st->scan[i].cap - st->scan[i].bytes);
            free(b->data);
            b->data = st->scan[i].data;
            b->count = (int64_t)(st->scan[i].bytes / dtype_size(t->dtype));
            st->scan[i].data = NULL;
        }
        set_value(x, t, b);
        if (t->rank >= 0 && st->scan[i].rank == t->rank - 1) {
            int64_t dim[MAX_RANK + 1] = {iter};
            memcpy(dim + 1, st->scan[i].dim, sizeof *dim * (size_t)st->scan[i].rank);
            tell(x, t, t->rank, dim);
        }
    }
    x->loop = st->up;
    loop_state_free(st);
}

static void run_branch(Exec *x, const Step *o) {
    const Stmt *s = o->s;
    code_uniform(x, o->pre);
    int k = code_out(x, o->pre, 0).i ? 0 : 1;
    run_seq(x, &o->body[k]);
    code_uniform(x, o->arm[k]);
    for (int i = 0; i < s->br.syms.n; i++)
        set_sym(x, s->br.syms.p[i].sym, code_out(x, o->arm[k], i));
    for (int i = 0; i < s->br.joins.n; i++) {
        const Join *j = &s->br.joins.p[i];
        if (!j->arm[k]) die("an arm without result for tensor %d was left", j->out->id);
        set_value(x, j->out, ref(exec_value(x, j->arm[k])));
    }
    release(x, &o->body[k]);
}

/* ---- calls ----------------------------------------------------------------------------------- */
/* A function's values as they were before a call, and the call's arguments and results. */
typedef struct Frame {
    struct Frame *up;
    const IFunc *fn;
    Buf **value, **arg, **out;
    RegVal *sym, *uni;
} Frame;

static void frame_free(Frame *r) {
    for (int i = 0; i < r->fn->t.n; i++) buf_unref(r->value[i]);
    for (int i = 0; i < r->fn->f->narg; i++) buf_unref(r->arg[i]);
    for (int i = 0; i < r->fn->f->nout; i++) buf_unref(r->out[i]);
    free(r);
}

static Frame *frame_new(Exec *x, const IFunc *g) {
    const Func *f = g->f;
    size_t bufs = (size_t)(g->t.n + f->narg + f->nout);
    size_t regs = (size_t)(g->s.n + f->nsym + f->nret);
    Frame *r = calloc(1, sizeof *r + sizeof(RegVal) * regs + sizeof(Buf *) * bufs);
    if (!r) exec_fault(x, ST_MEMORY, -1, "out of memory");
    r->fn = g;
    r->sym = (RegVal *)(void *)(r + 1);
    r->uni = r->sym + g->s.n;
    r->value = (Buf **)(void *)(r->sym + regs);
    r->arg = r->value + g->t.n;
    r->out = r->arg + f->narg;
    r->up = x->frame;
    return x->frame = r;
}

/* Handles an activation beyond stack_depth: only a run that measures the depth continues. */
static void deeper(Exec *x, const Func *f, bool full) {
    Depth *m = x->measured;
    if (m->site < 0) m->site = f->site;
    if (full || x->depth >= x->depth_cap || x->depth_budget-- <= 0) {
        if (m->deepest < x->depth) m->deepest = x->depth;
        m->capped = true;
        exec_fault(x, ST_RUNTIME, f->site, NULL);
    }
    if (m->deepest <= x->depth) m->deepest = x->depth + 1;
}

/* Gives the call the results r. */
static void return_from(Exec *x, const Stmt *s, Frame *r) {
    const Func *f = s->call.f;
    for (int i = 0; i < f->nret; i++) set_sym(x, s->call.ret[i], r->uni[i]);
    for (int i = 0; i < f->nout; i++) {
        set_value(x, s->call.out[i], r->out[i]);
        r->out[i] = NULL;
    }
    x->depth--;
    x->frame = r->up;
    frame_free(r);
}

static void run_call(Exec *x, const IFunc *g, const Step *o) {
    const Func *f = g->f;
    const Stmt *s = o->s;
    const int64_t around = x->below;
    int64_t below;
    bool full = x->stack_low && (const char *)__builtin_frame_address(0) < x->stack_low;
    look_cancelled(x);
    if (x->depth >= x->stack_depth || full) deeper(x, f, full);
    x->depth++;
    Frame *r = frame_new(x, g);
    code_uniform(x, o->pre);
    for (int i = 0; i < f->nsym; i++) r->uni[i] = code_out(x, o->pre, i);
    if (s->call.nfunc && g->repeats) {
        Memo *m = memo_new(x->kept);
        if (!m) exec_fault(x, ST_MEMORY, -1, "out of memory");
        x->kept = m;
    }
    Memo *kept = g->repeats ? x->kept : NULL;
    /* If its own depth is too much, it is computed, to say so as anywhere else. */
    if (kept && memo_find(kept, f, r->uni, &below, r->uni + f->nsym, r->out) &&
        x->depth + below <= x->stack_depth) {
        for (int i = 0; i < f->nret; i++) r->uni[i] = r->uni[f->nsym + i];
        for (int i = 0; i < f->nout; i++) ref(r->out[i]);
        x->below = below + 1 > around ? below + 1 : around;
        return_from(x, s, r);
        return;
    }
    for (int i = 0; i < f->nout; i++) r->out[i] = NULL;
    x->below = 0;
    for (int i = 0; i < f->narg; i++) r->arg[i] = ref(exec_value(x, s->call.arg[i]));
    for (int i = 0; i < g->t.n; i++) {
        r->value[i] = x->value[g->t.p[i]->id];
        x->value[g->t.p[i]->id] = NULL;
    }
    for (int i = 0; i < g->s.n; i++) r->sym[i] = x->sym[g->s.p[i]->id];
    for (int i = 0; i < f->nsym; i++) set_sym(x, f->sym[i], r->uni[i]);
    for (int i = 0; i < f->narg; i++) {
        x->value[f->arg[i]->id] = r->arg[i];
        r->arg[i] = NULL;
    }
    run_seq(x, &g->body);
    code_uniform(x, g->ret);
    for (int i = 0; i < f->nret; i++) r->uni[f->nsym + i] = code_out(x, g->ret, i);
    for (int i = 0; i < f->nout; i++) r->out[i] = ref(exec_value(x, f->out[i]));
    if (kept) memo_keep(kept, f, r->uni, x->below, r->uni + f->nsym, r->out);
    for (int i = 0; i < f->nret; i++) r->uni[i] = r->uni[f->nsym + i];
    x->below = x->below + 1 > around ? x->below + 1 : around;
    for (int i = 0; i < g->t.n; i++) {
        set_value(x, g->t.p[i], r->value[i]);
        r->value[i] = NULL;
    }
    for (int i = 0; i < g->s.n; i++) set_sym(x, g->s.p[i], r->sym[i]);
    return_from(x, s, r);
    if (s->call.nfunc && kept) x->kept = memo_free(kept);
}

static void run_seq(Exec *x, const StepSeq *q) {
    for (int i = 0; i < q->n; i++) {
        const Step *o = &q->p[i];
        const Stmt *s = o->s;
        x->where = s->path && s->path[0] ? s->path : NULL;
        switch (s->kind) {
        case S_LET:
            code_uniform(x, o->pre);
            set_sym(x, s->let.sym, code_out(x, o->pre, 0));
            break;
        case S_CHECK:
            code_uniform(x, o->pre);
            if (code_out(x, o->pre, 0).i) break;
            for (int k = 1; k < o->pre->nout; k++) x->said[k - 1] = code_out(x, o->pre, k).i;
            exec_fault(x, ST_RUNTIME, s->check.site, NULL);
            break;
        case S_OP: run_op(x, o); break;
        case S_EXTERN: run_extern(x, o); break;
        case S_CALL: run_call(x, x->func[s->call.f->id], o); break;
        case S_LOOP: run_loop(x, o); break;
        case S_BRANCH: run_branch(x, o); break;
        case S_BARRIER:
        case S_ENTER:
        case S_COUNT: break; /* one unit and a plain tree need no barrier */
        }
        for (int k = 0; k < o->free.n; k++) set_value(x, o->free.p[k], NULL);
    }
}

/* ---- running --------------------------------------------------------------------------------- */
static void check_inputs(Exec *x) {
    const Program *p = x->p;
    for (int i = 0; i < p->nin; i++) {
        const Io *io = &p->in[i];
        const RtValue *v = &x->in[i];
        const Tensor *t = io->t;
        if (!t || t->blob || v->kind == VT_SEQUENCE) continue;
        if (io->kind == VT_OPTIONAL && !v->present) continue;
        if (v->dtype != t->dtype)
            exec_fault(x, ST_INPUT, -1, "input '%s' has type %s, the model takes %s", io->name,
                       dtype_name((int)v->dtype), dtype_name((int)t->dtype));
        if (v->rank < 0 || v->rank > MAX_RANK || (t->rank >= 0 && v->rank != t->rank))
            exec_fault(x, ST_INPUT, -1, "input '%s' has rank %d, the model takes %d", io->name,
                       v->rank, t->rank);
    }
}

static void make_outputs(Exec *x, const Interp *it) {
    const Program *p = it->p;
    x->where = NULL;
    x->out = calloc((size_t)p->nout + 1, sizeof *x->out);
    if (!x->out) exec_fault(x, ST_MEMORY, -1, "out of memory");
    code_uniform(x, it->out);
    int at = 0;
    for (int i = 0; i < p->nout; i++) {
        const Io *io = &p->out[i];
        const Tensor *t = io->t;
        RtValue *o = &x->out[i];
        o->kind = io->kind;
        RegVal has = code_out(x, it->out, at++);
        o->present = !io->has || has.i;
        if (!t) continue;
        o->dtype = t->dtype;
        o->rank = t->blob ? 1 : read_dims(x, it->out, &at, t, o->dim);
        if (!o->present) continue;
        Buf *b = exec_value(x, t);
        int64_t count = 1;
        if (t->blob) o->dim[0] = b->count;
        for (int k = 0; k < o->rank; k++) count *= o->dim[k];
        if (count != b->count)
            die("output '%s' has %lld elements, its dims say %lld", io->name, (long long)b->count,
                (long long)count);
        o->bytes = (size_t)b->count * dtype_size(t->dtype);
        if (b->refs == 1 && !b->borrowed) { /* not shared: no copy */
            o->data = b->data;
            b->borrowed = true;
            continue;
        }
        o->data = malloc(o->bytes ? o->bytes : 1);
        if (!o->data)
            exec_fault(x, ST_MEMORY, -1, "out of memory: an output needs %zu bytes", o->bytes);
        if (o->bytes) memcpy(o->data, b->data, o->bytes);
    }
}

/* False on a fault. */
static bool run_here(Exec *x, const Interp *it) {
    if (setjmp(x->fail)) return false;
    check_inputs(x);
    run_seq(x, &it->top);
    make_outputs(x, it);
    return true;
}

/* The interpreter recurses when the program does, so it runs on a thread with a stack that is large
 * enough. */
typedef struct Deep {
    Exec *x;
    const Interp *it;
    size_t stack;
    bool ok;
} Deep;

#if defined(__SANITIZE_ADDRESS__) || !defined(__OPTIMIZE__)
enum { LEVEL_BYTES = 4096 }; /* of C stack for one nested Seq */
#else
enum { LEVEL_BYTES = 1024 };
#endif
enum { STACK_REST = 1 << 20 }; /* for everything else */
/* How far a recursion that is too deep is followed, to report its depth. */
#define MEASURED_DEPTH ((int64_t)1 << 20)
#define MEASURED_BYTES ((size_t)1 << 28) /* of stack */

static void *run_deep(void *arg) {
    Deep *d = arg;
    d->x->stack_low = (const char *)__builtin_frame_address(0) - d->stack + STACK_REST / 2;
    d->ok = run_here(d->x, d->it);
    return NULL;
}

static bool run_program(Exec *x, const Interp *it) {
    if (!it->nesting) return run_here(x, it);
    Deep d = {.x = x, .it = it};
    size_t level = (size_t)(it->nesting + 2) * LEVEL_BYTES;
    size_t most = ((size_t)1 << 36) / level;
    d.stack = ((size_t)x->stack_depth < most ? (size_t)x->stack_depth : most) * level + STACK_REST;
    if (x->depth_budget) d.stack = MEASURED_BYTES;
    pthread_attr_t attr;
    pthread_t thread;
    bool started = false;
    if (pthread_attr_init(&attr) == 0) {
        /* If the stack cannot be had, try half of it: the possible depth is then less. */
        for (; !started && d.stack > STACK_REST; d.stack /= 2)
            if (pthread_attr_setstacksize(&attr, d.stack) == 0 &&
                pthread_create(&thread, &attr, run_deep, &d) == 0)
                started = true, pthread_join(thread, NULL);
        pthread_attr_destroy(&attr);
    }
    if (started) return d.ok;
    x->status = ST_MEMORY;
    snprintf(x->text, sizeof x->text, "out of memory: no thread can be started");
    return false;
}

/* measure: follow a recursion beyond its limit. */
static Status run_once(const Interp *it, const InterpConfig *cfg, bool measure, Depth *depth,
                       const RtValue *in, RtValue *out, Diag *d) {
    Exec *x = calloc(1, sizeof *x);
    size_t nval = (size_t)it->ntensor, nsym = (size_t)it->nsym;
    if (x) {
        x->value = calloc(nval + 1, sizeof *x->value);
        x->sym = calloc(nsym + 1, sizeof *x->sym);
    }
    if (!x || !x->value || !x->sym) {
        if (x) free(x->value), free(x->sym);
        free(x);
        snprintf(d->message, sizeof d->message, "out of memory");
        return d->status = ST_MEMORY;
    }
    x->p = it->p;
    x->in = in;
    x->site = -1;
    for (int i = 0; i < SAID_MAX; i++) x->said[i] = UNSAID;
    x->budget = -1;
    x->lanes = LANES;
    x->func = it->func;
    x->stack_depth = cfg && cfg->stack_depth > 0 ? cfg->stack_depth : STACK_DEPTH;
    x->depth_cap = measure && x->stack_depth < MEASURED_DEPTH ? MEASURED_DEPTH : x->stack_depth;
    x->depth_budget = measure ? MEASURED_DEPTH : 0;
    x->measured = depth;
    depth->limit = x->stack_depth;
    x->config = cfg;
    x->seed = cfg ? cfg->seed : 0;
    x->most = cfg ? cfg->max_memory : 0;
    x->cancelled = cfg ? cfg->cancelled : NULL;
    x->max_iterations = cfg && cfg->max_iterations > 0 ? cfg->max_iterations : (int64_t)1 << 31;
    if (run_program(x, it))
        memcpy(out, x->out, sizeof *out * (size_t)it->p->nout);
    else {
        const char *text =
            x->site >= 0 && x->site < it->p->cx->site.n ? it->p->cx->site.p[x->site] : x->text;
        bk_fault_text(d->message, sizeof d->message, text, x->said);
        d->status = x->status;
        for (int i = 0; x->out && i < it->p->nout; i++) free(x->out[i].data);
    }
    Status st = x->status;
    for (Frame *f = x->frame, *up; f; f = up) {
        up = f->up;
        frame_free(f);
    }
    while (x->kept) x->kept = memo_free(x->kept);
    for (LoopRun *l = x->loop, *up; l; l = up) {
        up = l->up;
        loop_state_free(l);
    }
    for (size_t i = 0; i < nval; i++) buf_unref(x->value[i]);
    buf_unref(x->pending);
    free(x->held);
    free(x->out);
    free(x->value);
    free(x->sym);
    free(x->scratch);
    free(x);
    return st;
}

Status interp_run(const Interp *it, const InterpConfig *cfg, const RtValue *in, RtValue *out,
                  Diag *d) {
    Depth first = {.site = -1}, m = {.site = -1};
    Status st = run_once(it, cfg, false, &first, in, out, d);
    if (st != ST_RUNTIME || first.site < 0) return st;
    RtValue *dropped = calloc((size_t)it->p->nout + 1, sizeof *dropped);
    Diag other = {0};
    bool whole = dropped && run_once(it, cfg, true, &m, in, dropped, &other) == ST_OK;
    for (int i = 0; whole && i < it->p->nout; i++) free(dropped[i].data);
    free(dropped);
    if (!whole && !m.capped) m.deepest--; /* another fault ended it there */
    if (m.deepest < first.deepest) m.deepest = first.deepest;
    snprintf(d->message, sizeof d->message, "%s %s%lld; the limit is %lld (--stack-depth)",
             it->p->cx->site.p[first.site], whole ? "" : "more than ", (long long)m.deepest,
             (long long)first.limit);
    return st;
}
