/* emit_stmt.c: prints the kernel: statements as C control flow.
 *
 * Every unit runs all of it and computes uniform values itself; groups split their domains among
 * the units. */
#include "codegen/emit/emit_tree.h"
#include "scheduler/passes.h"
#include "scheduler/plan/beside.h"
#include "scheduler/plan/strips.h"
#include "scheduler/plan/within.h"

static void bx_tensor_init(Tree *x, const char *name, Tensor *t) {
    Fn *f = &x->f;
    if (!t) {
        fn_line(f, "bx_tensor %s = {0};", name);
        fn_line(f, "%s.rank = -1;", name);
        return;
    }
    if (t->blob) {
        fn_line(f, "bx_tensor %s = {(void *)(uintptr_t)%s, 2, 1, {0}};", name, tree_tensor(f, t));
        return;
    }
    fn_line(f, "bx_tensor %s = {(void *)(uintptr_t)%s, %d, (int32_t)%s, {0}};", name,
            tree_tensor(f, t), t->dtype,
            t->rank < 0 ? tree_expr(x, t->rank_e) : arena_printf(f->a, "%d", t->rank));
    for (int i = 0; i < (t->rank < 0 ? MAX_RANK : t->rank); i++)
        if (!e_is_ival(t->dim[i], 0))
            fn_line(f, "%s.dim[%d] = %s;", name, i, tree_expr(x, t->dim[i]));
}

/* `result`: what a body or plan returned; `said`: where it may have put values for the message. */
static void extern_fault(Tree *x, const Stmt *s, const char *result, const char *said) {
    Fn *f = &x->f;
    const int site = s->ext.site;
    if (said) {
        fn_line(f, "if (%s == BX_SAID) {", result);
        fn_line(f, "    const int64_t *said = (const int64_t *)%s;", said);
        fn_line(f, "    bk_fault_said(k, %d, said[0], said[1], said[2], said[3]);", site);
        fn_line(f, "} else if (%s) {", result);
    } else
        fn_line(f, "if (%s) {", result);
    fn_line(f, "    bk_fault(k, %d);", site);
    fn_line(f, "}");
}

/* Declares NAME<id>, an array of n + 1 bx_tensors, and fills in t. */
static void bx_tensors(Tree *x, const char *name, char each, int id, int n, Tensor *const *t) {
    fn_line(&x->f, "bx_tensor %s%d[%d];", name, id, n + 1);
    for (int i = 0; i < n; i++) {
        const char *one = arena_printf(x->em->a, "%c%d_%d", each, id, i);
        bx_tensor_init(x, one, t[i]);
        fn_line(&x->f, "%s%d[%d] = %s;", name, id, i, one);
    }
}

static void emit_extern(Tree *x, Stmt *s) {
    if (s->ext.structure) {
        emit_linearize(x, s);
        return;
    }
    Fn *f = &x->f;
    Emit *em = x->em;
    extern_text(em, s->ext.row->file);
    fn_open(f, "{ /* %s: %s */", s->ext.row->name, emit_comment(em, s->path));
    int id = x->next_id++;
    bx_tensors(x, "in", 'a', id, s->ext.nin, s->ext.in);
    fn_line(f, "int64_t param%d[%d] = {0};", id, s->ext.nparam + 1);
    for (int i = 0; i < s->ext.nparam; i++)
        fn_line(f, "param%d[%d] = %s;", id, i, tree_expr(x, s->ext.param[i]));
    fn_line(f, "int64_t sym%d[%d] = {0}, bytes%d[%d] = {0};", id, s->ext.nsym + 16, id,
            s->ext.nout + 1);
    if (s->ext.row->plan) {
        /* Every unit runs the plan itself. */
        fn_line(f, "const int planned = bx_%s_plan(in%d, param%d, sym%d, bytes%d);",
                s->ext.row->name, id, id, id, id);
        fn_open(f, "if (planned) {");
        extern_fault(x, s, "planned", arena_printf(em->a, "sym%d", id));
        fn_line(f, "%s", tree_stop(x, "BK_FAULT"));
        fn_end(f);
    }
    if (s->ext.barrier) tree_barrier(x, &s->ext.barrier);
    for (int i = 0; i < s->ext.nsym; i++) {
        tree_declare_symbol(x, s->ext.sym[i]);
        fn_line(f, "%s = sym%d[%d];", tree_symbol(f, s->ext.sym[i]), id, i);
    }
    for (int i = 0; i < s->ext.nout; i++) {
        Tensor *t = s->ext.out[i];
        tree_place(x, t, t->blob ? arena_printf(em->a, "bytes%d[%d]", id, i) : tree_bytes(x, t));
    }
    fn_line(f, "char *scratch%d = NULL;", id);
    if (s->ext.row->plan) /* kept to the end of the iteration: another unit may be late */
        fn_line(f, "if (bytes%d[%d] > 0 && !(scratch%d = bk_claim%s%s&top, bytes%d[%d]%s))) %s", id,
                s->ext.nout, id, s->each ? "_each" : "", tree_arena(x), id, s->ext.nout,
                s->each ? ", unit, nunit" : "", tree_want(x, s->path));
    if (s->ext.row->plan && tree_recursive(x)) fn_line(f, "low = top;");
    const char *unit = s->each ? "0" : "unit";
    fn_open(f, s->ext.row->team ? "if (%s == 0) {" : "if (bk_lead(%s)) {", unit);
    bx_tensors(x, "out", 'b', id, s->ext.nout, s->ext.out);
    fn_line(f, "const int bad = bx_%s(in%d, param%d, out%d, scratch%d);", s->ext.row->name, id, id,
            id, id);
    extern_fault(x, s, "bad", s->ext.row->plan ? arena_printf(em->a, "scratch%d", id) : NULL);
    fn_end(f);
    fn_end(f);
}

/* ---- loops ----------------------------------------------------------------------------------- */
/* Takes a carried value's storage and copies the initial value there. */
static void carry_begin(Tree *x, const Stmt *s, LoopCarry *c) {
    Fn *f = &x->f;
    Arena *a = x->em->a;
    Mem *m = mem_of(c->phi);
    const char *ty = c_store(c->phi->dtype), *name = tree_tensor(f, c->phi);
    tree_declare(x, c->phi, "NULL");
    if (c->phi->grow) {
        tree_grow_begin(x, s, c);
        return;
    }
    if (m->kind == M_BUMP || (m->kind == M_SLOT && m->frame)) {
        for (int k = 0; k < 2; k++)
            tree_var(x, tree_pointer_type(x, c->phi->dtype),
                     arena_printf(a, "%s_%c", name, 'a' + k), "NULL");
        for (int k = 0; k < (m->inplace ? 1 : 2); k++)
            tree_take(x, s->path, arena_printf(a, "%s_%c", name, 'a' + k), ty,
                      m->kind == M_BUMP ? tree_bytes(x, c->phi)
                                        : arena_printf(a, "k->cap[%d]", m->slot[k]));
    }
    if (!c->inplace) {
        fn_line(f, "%s = (%s *)(uintptr_t)%s;", name, ty, tree_tensor(f, c->init));
        return;
    }
    if (m->kind == M_STATIC)
        fn_line(f, "%s = (%s *)(%s + %lld);", name, ty, tree_base(x, m), (long long)m->off[0]);
    else
        fn_line(f, "%s = %s_a;", name, name);
    if (!c->init) return; /* filled row by row */
    fn_line(f, "bk_copy(%s, %s, %s, unit, nunit);", name, tree_tensor(f, c->init),
            tree_bytes(x, c->phi));
}

/* Takes the storage of a scan output. */
static void scan_begin(Tree *x, const Stmt *s, Tensor *t) {
    Fn *f = &x->f;
    Mem *m = mem_of(t);
    if (m->kind == M_SLOT && m->frame) {
        tree_declare(x, t, "NULL");
        tree_take(x, s->path, tree_tensor(f, t), c_store(t->dtype),
                  arena_printf(f->a, "k->cap[%d]", m->slot[0]));
    } else if (m->kind == M_SLOT) {
        tree_declare(x, t, "NULL");
        fn_line(f, "%s = (%s *)k->slot[%d];", tree_tensor(f, t), c_store(t->dtype), m->slot[0]);
    } else
        tree_place(x, t, tree_bytes(x, t));
}

/* The head of loop `id`, and the beginning of its body. */
static void loop_open(Tree *x, Stmt *s, int id, const char *counter) {
    Fn *f = &x->f;
    Arena *a = x->em->a;
    const char *trips = s->loop.trips ? arena_printf(a, "n%d", id) : NULL;
    if (trips) tree_local(x, "const int64_t", trips, tree_expr(x, s->loop.trips));
    if (s->loop.cond_next)
        tree_local(x, "bool", arena_printf(a, "go%d", id),
                   s->loop.cond0 ? tree_expr(x, s->loop.cond0) : "true");
    tree_local(x, "const size_t", arena_printf(a, "top%d", id), "top");
    fn_open(f, "for (%s = 0; %s%s%s; %s++) {", counter,
            trips ? arena_printf(a, "%s < %s", counter, trips) : "",
            trips && s->loop.cond_next ? " && " : "",
            s->loop.cond_next ? arena_printf(a, "go%d", id) : "", counter);
    fn_line(f, "if (%s >= k->max_iterations) {",
            s->loop.made ? tree_expr(x, s->loop.made) : counter);
    fn_line(f, "    bk_fault_said(k, %d, k->max_iterations, BK_UNSAID, BK_UNSAID, BK_UNSAID);",
            s->loop.cap_site);
    fn_line(f, "    %s", tree_stop(x, "BK_FAULT"));
    fn_line(f, "}");
    fn_line(f, "top = top%d;", id);
    if (tree_recursive(x)) fn_line(f, "low = top;");
}

/* The end of an iteration: all carried values are assigned at once. */
static void loop_next(Tree *x, Stmt *s, int id) {
    Fn *f = &x->f;
    for (int i = 0; i < s->loop.syms.n; i++) {
        LoopSym *y = &s->loop.syms.p[i];
        fn_line(f, "const %s next%d_%d = %s;", c_type(y->sym->dtype), id, i, tree_expr(x, y->next));
    }
    if (s->loop.cond_next) fn_line(f, "go%d = %s;", id, tree_expr(x, s->loop.cond_next));
    for (int i = 0; i < s->loop.syms.n; i++)
        fn_line(f, "%s = next%d_%d;", tree_symbol(f, s->loop.syms.p[i].sym), id, i);
    for (int i = 0; i < s->loop.carry.n; i++) {
        LoopCarry *c = &s->loop.carry.p[i];
        fn_line(f, "%s = %s;", tree_tensor(f, c->phi), tree_tensor(f, c->next));
    }
    if (s->loop.barrier)
        tree_barrier(x, &s->loop.barrier);
    else {
        if (s->loop.block_barrier) fn_line(f, "bk_block();");
        fn_line(f, "if ((st = bk_loop_state(k, %s)) != BK_OK) %s",
                x->team ? x->team : "unit, nunit", tree_stop(x, "st"));
    }
}

/* Opens the loop over the parts of loop `id`'s rows: in each, this unit is one of several times as
 * many. Each part begins with what the loop begins with. */
static Scope parts_open(Tree *x, const Stmt *s, int id) {
    Fn *f = &x->f;
    const Scope out = fn_open(f, "{ /* each part of this unit's rows for itself */");
    fn_line(f, "const int unit%d = unit, nunit%d = nunit;", id, id);
    fn_line(f, "const size_t begin%d = top;", id);
    for (int i = 0; i < s->loop.carry.n; i++)
        fn_line(f, "%s const begin%d_%d = %s;", tree_pointer_type(x, s->loop.carry.p[i].phi->dtype),
                id, i, tree_tensor(f, s->loop.carry.p[i].phi));
    for (int i = 0; i < s->loop.syms.n; i++)
        fn_line(f, "const %s first%d_%d = %s;", c_type(s->loop.syms.p[i].sym->dtype), id, i,
                tree_symbol(f, s->loop.syms.p[i].sym));
    fn_open(f, "for (int part%d = 0; part%d < %d; part%d++) {", id, id, s->loop.parts, id);
    fn_line(f, "const int unit = unit%d * %d + part%d, nunit = nunit%d * %d;", id, s->loop.parts,
            id, id, s->loop.parts);
    fn_line(f, "top = begin%d;", id);
    for (int i = 0; i < s->loop.carry.n; i++)
        fn_line(f, "%s = begin%d_%d;", tree_tensor(f, s->loop.carry.p[i].phi), id, i);
    for (int i = 0; i < s->loop.syms.n; i++)
        fn_line(f, "%s = first%d_%d;", tree_symbol(f, s->loop.syms.p[i].sym), id, i);
    x->team = arena_printf(x->em->a, "unit%d, nunit%d", id, id);
    x->em->other_units = true;
    return out;
}

static void emit_loop(Tree *x, Stmt *s) {
    Fn *f = &x->f;
    Loop l = {x->loop, tree_symbol(f, s->loop.iter), s};
    const bool other = x->em->other_units;
    int id = x->next_id++;
    tree_declare_symbol(x, s->loop.iter);
    fn_line(f, "/* loop %s */", emit_comment(x->em, s->path));
    for (int i = 0; i < s->loop.syms.n; i++) {
        LoopSym *y = &s->loop.syms.p[i];
        tree_declare_symbol(x, y->sym);
        fn_line(f, "%s = %s;", tree_symbol(f, y->sym), tree_expr(x, y->init));
    }
    for (int i = 0; i < s->loop.carry.n; i++) carry_begin(x, s, &s->loop.carry.p[i]);
    if (s->loop.copies) tree_barrier(x, &s->loop.copies);
    for (int i = 0; i < s->loop.scan.n; i++)
        if (!s->loop.scan.p[i].more) scan_begin(x, s, s->loop.scan.p[i].out);
    if (s->loop.within) {
        x->loop = &l;
        emit_within(x, s, id);
        x->loop = l.up;
        return;
    }
    const Scope out = s->loop.parts > 1 ? parts_open(x, s, id) : fn_here(f);
    probe_loop_begin(x, s);
    loop_open(x, s, id, l.counter);
    probe_loop_body(x, s, l.counter);
    x->loop = &l;
    emit_seq(x, s->loop.body);
    loop_next(x, s, id);
    x->loop = l.up;
    fn_end(f);
    probe_loop_end(x, s, l.counter);
    if (s->loop.parts > 1) {
        fn_close(f, out);
        x->team = NULL;
        x->em->other_units = other;
    }
    for (int i = 0; i < s->loop.carry.n; i++)
        if (s->loop.carry.p[i].closes) tree_grow_end(x, &s->loop.carry.p[i]);
    if (!s->loop.barrier) return; /* another unit may still be in the last iteration */
    fn_line(f, "top = top%d;", id);
    if (tree_recursive(x)) fn_line(f, "low = top;");
}

static void emit_branch(Tree *x, Stmt *s) {
    Fn *f = &x->f;
    Emit *em = x->em;
    for (int i = 0; i < s->br.syms.n; i++) tree_declare_symbol(x, s->br.syms.p[i].sym);
    for (int i = 0; i < s->br.joins.n; i++) tree_declare(x, s->br.joins.p[i].out, "NULL");
    const Scope out =
        fn_open(f, "if (%s) { /* %s */", tree_expr(x, s->br.cond), emit_comment(em, s->path));
    for (int k = 0; k < 2; k++) {
        if (k) fn_else(f, out, "} else {");
        probe_seq_begin(x, s->br.arm[k]);
        emit_seq(x, s->br.arm[k]);
        for (int i = 0; i < s->br.syms.n; i++)
            fn_line(f, "%s = %s;", tree_symbol(f, s->br.syms.p[i].sym),
                    tree_expr(x, s->br.syms.p[i].arm[k]));
        for (int i = 0; i < s->br.joins.n; i++) {
            Join *j = &s->br.joins.p[i];
            if (!j->arm[k]) continue;
            fn_line(f, "%s = (%s *)(uintptr_t)%s;", tree_tensor(f, j->out), c_store(j->out->dtype),
                    tree_tensor(f, j->arm[k]));
        }
    }
    fn_close(f, out);
}

static void emit_op(Tree *x, Stmt *s, bool block) {
    for (int i = 0; i < s->op.n; i++) tree_place(x, s->op.t[i], tree_bytes(x, s->op.t[i]));
    if (!op_is_empty(s)) {
        probe_begin(x, s);
        emit_group(x->em, &x->f, &x->decl, s, block);
        probe_end(x, s);
    } else if (block)
        fn_line(&x->f, "bk_block();");
}

/* A group's positions in front of which those lie that it has when the last group of its run has
 * position r. */
static const char *strip_bound(Tree *x, const Stmt *s, const char *r, const char *own) {
    const Band *b = s->op.band;
    if (!b) return r;
    return arena_printf(x->em->a, "bk_strip_bound(%s, %s, %s, %lld, %lld, %lld, %s)", r, own,
                        tree_expr(x, b->of->extent), (long long)b->step, (long long)b->first,
                        (long long)b->last, tree_expr(x, s->op.strip->extent));
}

/* Declares as low<id> and high<id> the positions of the last group that a unit has. */
static void strip_part(Tree *x, const Stmt *last, int id) {
    Fn *f = &x->f;
    const char *all = tree_expr(x, last->op.strip->extent);
    const char *share = last->op.band ? "bk_strip_band" : "bk_strip_part";
    const long long grain = last->op.band ? last->op.band->least : last->op.grain;
    if (last->op.split)
        fn_line(f,
                "const int64_t low%d = %s(%s, %lld, unit, nunit), high%d = %s(%s, %lld, unit + 1, "
                "nunit);",
                id, share, all, grain, id, share, all, grain);
    else
        fn_line(f, "const int64_t low%d = 0, high%d = unit == 0 ? %s : 0;", id, id, all);
}

/* Groups strip by strip: as many of those from q->s.p[*i] on as belong together. */
static void emit_strips(Tree *x, const Seq *q, int *i) {
    Fn *f = &x->f;
    Emit *em = x->em;
    const Stmt *s = q->s.p[*i];
    const int n = strip_run(q, *i), id = x->next_id++;
    helper_text(em, "extern/strips.inc");
    for (int k = 0; k < n; k++) {
        const Stmt *g = q->s.p[*i + k];
        for (int j = 0; j < g->op.n; j++) tree_place(x, g->op.t[j], tree_bytes(x, g->op.t[j]));
    }
    const Scope out = fn_open(f, "{ /* strip by strip */");
    strip_part(x, q->s.p[*i + n - 1], id);
    const char *r = arena_printf(f->a, "r%d", id), *e = arena_printf(f->a, "e%d", id),
               *own = arena_printf(f->a, "low%d, high%d", id, id);
    /* All units pass the meeting after their first strips, those without a part as well. */
    fn_open(f, "for (int64_t %s = low%d, %s; %s == low%d || %s < high%d; %s = %s) {", r, id, e, r,
            id, r, id, r, e);
    fn_line(f, "%s = bk_mini(%s + %lld, high%d);", e, r, (long long)s->op.rows, id);
    for (int k = 0; k < n; k++) {
        Stmt *g = q->s.p[*i + k];
        em->strip_from = strip_bound(x, g, r, own);
        em->strip_to = strip_bound(x, g, e, own);
        emit_group(em, f, &x->decl, g, false);
    }
    if (s->op.meets) {
        fn_open(f, "if (%s == low%d) {", r, id);
        tree_barrier(x, &s->op.meets);
        fn_end(f);
    }
    fn_line(f, "if (%s >= high%d) break;", e, id);
    fn_close(f, out);
    *i += n - 1;
}

static bool is_block_barrier(const Stmt *s) {
    return s->kind == S_BARRIER && s->level == LEVEL_CORE;
}

/* What the units do to synchronize that need not all wait, or a block's threads. */
static void emit_barrier(Tree *x, const Stmt *s) {
    Fn *f = &x->f;
    if (is_block_barrier(s)) {
        fn_line(f, "bk_block();");
        return;
    }
    if (s->meet == MEET_ALL) {
        if (s->barrier.ahead) emit_ahead(f, s->barrier.ahead);
        tree_barrier(x, s);
        return;
    }
    probe_begin(x, s);
    if (s->meet == MEET_GATHER)
        fn_line(f, "bk_gather(k, unit, %d %% nunit);", s->unit);
    else
        fn_line(f, "if ((st = bk_release(k, unit, %d %% nunit)) != BK_OK) return st;", s->unit);
    probe_end(x, s);
}

static void emit_enter(Tree *x, const Stmt *s) {
    fn_line(&x->f, "if (depth + %d > k->stack_depth && !bk_deeper(k, depth + %d, %d)) %s",
            s->enter.below, s->enter.below, s->enter.site, tree_stop(x, "BK_FAULT"));
    probe_activation(x, s, arena_printf(x->em->a, "depth + %d", s->enter.below));
}

static void emit_check(Tree *x, const Stmt *s) {
    Fn *f = &x->f;
    const Scope out = fn_open(f, "if (!%s) { /* %s */", tree_expr(x, s->check.cond),
                              emit_comment(x->em, s->path));
    fn_line(f, "%s;", fn_fault(f, s->check.site, s->check.cond));
    fn_line(f, "%s", tree_stop(x, "BK_FAULT"));
    fn_close(f, out);
}

/* Constructs and hand-written bodies. */
static void emit_measured(Tree *x, Stmt *s, void (*print)(Tree *x, Stmt *s)) {
    probe_begin(x, s);
    print(x, s);
    probe_end(x, s);
}

void emit_stmt(Tree *x, Stmt *s) {
    switch (s->kind) {
    case S_LET:
        tree_declare_symbol(x, s->let.sym);
        fn_line(&x->f, "%s = %s;", tree_symbol(&x->f, s->let.sym),
                emit_uniform(x, s->let.sym->name, s->let.e));
        break;
    case S_CHECK: emit_check(x, s); break;
    case S_OP: emit_op(x, s, false); break;
    case S_EXTERN: emit_measured(x, s, emit_extern); break;
    case S_LOOP: emit_measured(x, s, emit_loop); break;
    case S_BRANCH: emit_measured(x, s, emit_branch); break;
    case S_BARRIER: emit_barrier(x, s); break;
    case S_CALL: emit_measured(x, s, emit_call); break;
    case S_ENTER: emit_enter(x, s); break;
    default: die("statement kind %d", s->kind);
    }
}

void emit_seq(Tree *x, Seq *q) {
    for (int i = 0; i < q->s.n; i++)
        if (q->s.p[i]->level == LEVEL_HOST)
            phases_product(x, q->s.p[i]);
        else if (q->s.p[i]->apart && q->s.p[i]->kind == S_CALL)
            emit_split(x, q, &i);
        else if (q->s.p[i]->apart)
            emit_apart(x, q, &i);
        else if (is_block_barrier(q->s.p[i]) && i + 1 < q->s.n && q->s.p[i + 1]->kind == S_OP &&
                 !q->s.p[i + 1]->op.team)
            emit_op(x, q->s.p[++i], true);
        else if (is_block_barrier(q->s.p[i]) && i + 1 < q->s.n && within_meets(q->s.p[i + 1]))
            emit_stmt(x, q->s.p[++i]);
        else if (i + 1 < q->s.n && strip_follows(q->s.p[i], q->s.p[i + 1]))
            emit_strips(x, q, &i);
        else if (beside_run(q, i) > 1)
            emit_beside(x, q, &i);
        else
            emit_stmt(x, q->s.p[i]);
}

/* ---- outputs --------------------------------------------------------------------------------- */
static void emit_output(Tree *x, int i) {
    Fn *f = &x->f;
    const Io *io = &x->em->p->out[i];
    Tensor *t = io->t;
    const Scope out = fn_here(f);
    if (io->has) {
        fn_open(f, "if (!%s) {", tree_expr(x, io->has));
        fn_line(f, "bk_output(k, %d, NULL, 0, -1);", i);
        fn_else(f, out, "} else {");
    }
    if (!t)
        fn_line(f, "bk_output(k, %d, NULL, 0, -1);", i);
    else if (t->blob) {
        extern_text(x->em, "seq");
        fn_line(f, "bk_output(k, %d, %s, 2, 1);", i, tree_tensor(f, t));
        fn_line(f, "k->out[%d].dim[0] = bx_seq_used(%s);", i, tree_tensor(f, t));
    } else {
        fn_line(f, "bk_output(k, %d, %s, %d, (int32_t)%s);", i, tree_tensor(f, t), t->dtype,
                t->rank < 0 ? tree_expr(x, t->rank_e) : arena_printf(f->a, "%d", t->rank));
        for (int d = 0; d < (t->rank < 0 ? MAX_RANK : t->rank); d++)
            fn_line(f, "k->out[%d].dim[%d] = %s;", i, d, tree_expr(x, t->dim[d]));
    }
    fn_close(f, out);
}

void emit_body(Emit *em) {
    Tree x = {.em = em, .level = LEVEL_TEAM, .decl = {.a = em->a}};
    Sb body = {.a = em->a};
    x.f = tree_fn(&x, &body);
    phases_begin(&x);
    emit_seq(&x, em->p->top);
    ASSERT(x.var.n == em->p->mem->variable.n);
    for (int i = 0; i < em->p->nin; i++)
        if (em->p->in[i].t && em->p->in[i].t->blob) extern_text(em, "seq");
    fn_open(&x.f, "if (bk_lead(unit)) {");
    for (int i = 0; i < em->p->nout; i++) emit_output(&x, i);
    fn_end(&x.f);
    fn_line(&x.f, "return BK_OK;");
    const char *text = em->phases ? phases_join(&x, body.p) : body.p;
    if (em->p->probes) sb_puts(&em->body, "    bk_profile *const prof = bk_profile_of(k, unit);\n");
    sb_printf(&em->body, "    int st;\n    size_t top = %lld;\n    (void)top;\n",
              (long long)em->p->mem->arena);
    if (em->p->nfunc)
        sb_puts(
            &em->body,
            "    size_t low = top;\n    const int64_t depth = 0;\n    (void)low, (void)depth;\n");
    if (em->p->mem->parts)
        sb_puts(&em->body, "    const bk_span span = {0, 0, k->arena_size, 1};\n    (void)span;\n");
    tree_print_vars(&x, &em->body);
    if (x.decl.n) sb_puts(&em->body, x.decl.p);
    residents_declare(em, &em->body);
    sb_puts(&em->body, text);
}
