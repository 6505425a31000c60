/* variables.c: what the variables of the kernel and of recursive functions need of memory.
 *
 * Requires the tree as pass_sync leaves it. A variable holds the pointer of each tensor that is
 * defined, each symbol, and what loops and cut calls count by, in the order of definition. From
 * them follows what hands them over: words of the arena through which those who ran something apart
 * tell the others what it came to, and the records of a simulated stack. Leaves nothing of the
 * arena, the slots and a block's memory for code generation to take: it declares these variables,
 * and no others. Sets Stmt.apart, Stmt.call.records, Func.vars, parts and lends, and completes
 * Program.mem.
 */
#include "scheduler/plan/variables.h"
#include "scheduler/cost/decide.h"
#include "scheduler/passes.h"
#include "scheduler/plan/memory.h"
#include "utask/extern.h"

#if BRAID_TINY
#define NEAR_BYTES 256
#else
#define NEAR_BYTES 4096 /* of a block's memory for records */
#endif

typedef struct VariablesWalk {
    Program *p;
    MemPlan *m;
    bool *declared; /* by tensor id */
    bool kernel;    /* not in a function */
    int n;          /* variables of the one or the other */
    bool stack;     /* it is a function that jumps may enter: locals are variables, too */
} VariablesWalk;

static void walk(VariablesWalk *w, const Seq *q);

/* Memory of the arena is taken while the program runs. */
static bool takes(const Mem *m) {
    return m && (m->kind == M_BUMP || (m->kind == M_SLOT && m->frame));
}

static void variable(VariablesWalk *w, const Tensor *t, Sym *s) {
    w->n++;
    if (w->kernel) vec_push(w->p->cx->a, &w->m->variable, ((Variable){t, s}));
}

static void variables(VariablesWalk *w, int n) {
    for (int i = 0; i < n; i++) variable(w, NULL, NULL);
}

static void declare(VariablesWalk *w, const Tensor *t) {
    if (!w->declared[t->id]) variable(w, t, NULL);
    w->declared[t->id] = true;
    w->m->claims |= takes(mem_of(t));
}

/* Of what stays in registers no variable is needed. */
static void declare_within(VariablesWalk *w, const Stmt *s) {
    for (int i = 0; i < s->loop.carry.n; i++) declare(w, s->loop.carry.p[i].next);
    for (int i = 0; i < s->loop.scan.n; i++) declare(w, s->loop.scan.p[i].elem);
}

static void declare_loop(VariablesWalk *w, const Stmt *s) {
    variable(w, NULL, s->loop.iter);
    for (int i = 0; i < s->loop.syms.n; i++) variable(w, NULL, s->loop.syms.p[i].sym);
    for (int i = 0; i < s->loop.carry.n; i++) {
        const Tensor *phi = s->loop.carry.p[i].phi;
        declare(w, phi);
        if (phi->grow && phi->grow->room) variable(w, NULL, phi->grow->room);
        if (!phi->grow && takes(mem_of(phi))) variables(w, 2); /* its buffers */
    }
    for (int i = 0; i < s->loop.scan.n; i++)
        if (!s->loop.scan.p[i].more) declare(w, s->loop.scan.p[i].out);
    if (w->stack) variables(w, (s->loop.trips != NULL) + (s->loop.cond_next != NULL) + 1);
    if (s->loop.within)
        declare_within(w, s);
    else
        walk(w, s->loop.body);
}

static void declare_branch(VariablesWalk *w, const Stmt *s) {
    for (int i = 0; i < s->br.syms.n; i++) variable(w, NULL, s->br.syms.p[i].sym);
    for (int i = 0; i < s->br.joins.n; i++) declare(w, s->br.joins.p[i].out);
    for (int k = 0; k < 2; k++) walk(w, s->br.arm[k]);
}

/* ---- calls ----------------------------------------------------------------------------------- */
/* Whether all that q's statements touch of their frame is touched by one unit alone, and nothing
 * else is taken: there is no barrier. */
static bool all_private(const Seq *q) {
    for (int i = 0; i < q->s.n; i++) {
        const Stmt *s = q->s.p[i];
        switch (s->kind) {
        case S_LET:
        case S_CHECK:
        case S_ENTER: break;
        case S_OP:
            for (int k = 0; k < s->op.n; k++)
                if (mem_of(s->op.t[k])->kind == M_BUMP) return false;
            break;
        case S_BRANCH:
            if (!all_private(s->br.arm[0]) || !all_private(s->br.arm[1])) return false;
            break;
        case S_CALL:
            if (s->call.nfunc || stmt_split(s)) return false;
            for (int k = 0; k < s->call.f->nout; k++)
                if (mem_of(s->call.out[k])->kind == M_BUMP || !s->call.f->room[k]) return false;
            break;
        default: return false;
        }
    }
    return true;
}

/* The functions that hang on s, and the records of their activations. */
static void declare_functions(VariablesWalk *w, Stmt *s) {
    const bool parts = w->m->parts;
    int most = 0;
    Records *r = NULL;
    if (device_is_gpu(w->p->schedule->device)) {
        r = s->call.records = NEW(w->p->cx->a, Records);
        r->slot = w->m->nslot++;
    }
    w->m->parts = false;
    for (int i = 0; i < s->call.nfunc; i++) {
        Func *g = s->call.func[i];
        VariablesWalk in = *w;
        in.n = 0;
        in.kernel = false;
        in.stack = r != NULL;
        walk(&in, g->body);
        g->vars = in.n;
        g->lends = s->call.nfunc == 1 && all_private(g->body);
        w->m->frames += g->frame + 128;
        const int kept = g->vars + RECORD_OWN + g->nsym + g->narg;
        if (kept > most) most = kept;
    }
    for (int i = 0; i < s->call.nfunc; i++) s->call.func[i]->parts = w->m->parts;
    w->m->parts |= parts;
    if (!r) return;
    r->bytes = round_up(8 * (most + 1), 16);
    r->near = NEAR_BYTES / r->bytes;
    r->at = w->m->shared;
    w->m->shared += r->near * r->bytes;
}

/* `times`: that it stands in the text. */
static void declare_call(VariablesWalk *w, Stmt *s, int times) {
    const Func *f = s->call.f;
    for (int i = 0; i < f->nout; i++) declare(w, s->call.out[i]);
    for (int i = 0; i < f->nret; i++) variable(w, NULL, s->call.ret[i]);
    if (f->rows) variables(w, times * (w->stack ? 3 : 1));
}

/* ---- apart ----------------------------------------------------------------------------------- */
/* Values that are defined after a loop or branch. */
static int results_of(const Stmt *s) {
    if (s->kind == S_BRANCH) return s->br.syms.n + s->br.joins.n;
    int n = 1 + s->loop.syms.n + s->loop.carry.n + s->loop.scan.n;
    for (int i = 0; i < s->loop.carry.n; i++) {
        const Grow *g = s->loop.carry.p[i].phi->grow;
        n += g && g->room;
    }
    return n;
}

/* Words for statements from number `at` of q on. Of calls these are taken when they are needed:
 * they may be below one another. Others have two turns of them: the others read one while a unit
 * may be writing the other already. The first word is the arena's top. */
static void plan_apart(VariablesWalk *w, const Seq *q, int at) {
    const Stmt *s = q->s.p[at];
    Apart *k = s->apart;
    do k->words += q->s.p[at]->kind == S_CALL ? q->s.p[at]->call.f->nret : results_of(q->s.p[at]);
    while (++at < q->s.n && q->s.p[at]->beside);
    if (s->kind == S_CALL) {
        w->m->parts = true;
        return;
    }
    k->words++;
    k->bytes = round_up(8 * k->words, 64);
    k->at = round_up(w->m->arena, 64);
    w->m->arena = k->at + 2 * k->bytes;
    w->m->clusters |= s->level == LEVEL_CLUSTER;
    variables(w, 1); /* whose turn it is */
}

static void walk(VariablesWalk *w, const Seq *q) {
    for (int i = 0; i < q->s.n; i++) {
        Stmt *s = q->s.p[i];
        if (s->apart) plan_apart(w, q, i);
        switch (s->kind) {
        case S_LET: variable(w, NULL, s->let.sym); break;
        case S_OP:
            for (int k = 0; k < s->op.n; k++) declare(w, s->op.t[k]);
            break;
        case S_EXTERN:
            for (int k = 0; k < s->ext.nsym; k++) variable(w, NULL, s->ext.sym[k]);
            for (int k = 0; k < s->ext.nout; k++) declare(w, s->ext.out[k]);
            w->m->claims |= s->ext.row->plan != NULL;
            break;
        case S_LOOP: declare_loop(w, s); break;
        case S_BRANCH: declare_branch(w, s); break;
        case S_CALL:
            if (s->call.nfunc) declare_functions(w, s);
            declare_call(w, s, stmt_split(s) ? 2 : 1);
            break;
        default: break;
        }
    }
}

void pass_variables(Program *p) {
    VariablesWalk w = {.p = p, .m = p->mem, .kernel = true};
    w.declared = NEWN(p->cx->a, bool, p->cx->next_tensor + 1);
    walk(&w, p->top);
}
