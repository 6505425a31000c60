/* explain_tree.c: prints for braid explain, as JSON, the statements of a program.
 *
 * A node is a statement, an arm of a branch, a function of a call, or a place inside of a statement
 * where units synchronize. */
#include <string.h>

#include "cli/explain.h"
#include "scheduler/cost/decide.h"
#include "scheduler/kernel/contraction.h"
#include "scheduler/kernel/attend.h"
#include "scheduler/kernel/convolution.h"
#include "scheduler/kernel/depthwise.h"
#include "scheduler/kernel/dots.h"
#include "scheduler/kernel/integer.h"
#include "scheduler/kernel/planes.h"
#include "scheduler/kernel/threads.h"
#include "scheduler/passes.h"
#include "utask/extern.h"
#include "utask/walk.h"

static const char *const kind_name[S_COUNT] = {
    [S_LET] = "uniform", [S_OP] = "group",        [S_EXTERN] = "body",
    [S_CHECK] = "check", [S_LOOP] = "loop",       [S_BRANCH] = "branch",
    [S_CALL] = "call",   [S_BARRIER] = "barrier", [S_ENTER] = "activation"};

static const char *const kernel_name[KERNEL_KINDS] = {[KERNEL_NONE] = "none",
                                                      [KERNEL_LOOPS] = "loops",
                                                      [KERNEL_LANES] = "lanes",
                                                      [KERNEL_SPARSE] = "sparse",
                                                      [KERNEL_SLIDING] = "sliding",
                                                      [KERNEL_HALVES] = "halves",
                                                      [KERNEL_TRANSPOSE] = "transpose",
                                                      [KERNEL_CONTRACTION] = "contraction",
                                                      [KERNEL_CONVOLUTION] = "convolution",
                                                      [KERNEL_WINOGRAD] = "winograd",
                                                      [KERNEL_INTEGER] = "integer",
                                                      [KERNEL_DEPTHWISE] = "depthwise",
                                                      [KERNEL_PLANES] = "planes",
                                                      [KERNEL_ATTENTION] = "attention",
                                                      [KERNEL_DOTS] = "dots",
                                                      [KERNEL_THREADS] = "threads"};

typedef struct Writer {
    Sb *s;
    Explained *x;
    Map *own;            /* Stmt -> Sb: its lines of the text */
    const Stmt *at;      /* the current statement */
    int *read, *written; /* by tensor id: 1 + the last statement that does */
    VEC(const Tensor *) reads, writes;
    VEC(const Sym *) registers;
    bool comma; /* a node comes before, in the same array */
} Writer;

/* ---- what was printed ------------------------------------------------------------------------ */
static void number_stmt(void *user, Stmt *s) {
    Explained *x = user;
    const bool product = s->kind == S_OP && s->level == LEVEL_HOST;
    vec_push(x->p->cx->a, &x->kind, product ? "product" : kind_name[s->kind]);
    map_seti(x->number, (uint64_t)(uintptr_t)s, (void *)(intptr_t)x->kind.n);
}

Explained explain_program(const Program *p, const Facts *f) {
    Explained x = {.p = p, .f = f, .number = map_new(p->cx->a)};
    utask_print_marked(p->cx->a, p, &x.printed);
    seq_each(p->top, number_stmt, &x);
    return x;
}

int explain_number(const Explained *x, const Stmt *s) {
    return (int)(intptr_t)map_geti(x->number, (uint64_t)(uintptr_t)s) - 1;
}

/* The lines of each statement, those of inner ones left out. */
static Map *own_lines(const Explained *x) {
    Map *own = map_new(x->p->cx->a);
    const Printed *k = &x->printed;
    for (int i = 0; i < k->mark.n; i++) {
        const PrintMark *m = &k->mark.p[i];
        size_t end = i + 1 < k->mark.n ? m[1].at : k->text.n;
        if (!m->s || m->at == end) continue;
        Sb *s = map_geti(own, (uint64_t)(uintptr_t)m->s);
        if (!s) {
            s = NEW(x->p->cx->a, Sb);
            s->a = x->p->cx->a;
            map_seti(own, (uint64_t)(uintptr_t)m->s, s);
        }
        sb_write(s, k->text.p + m->at, end - m->at);
    }
    return own;
}

/* Prints lines without the spaces that all of them begin with. */
static void put_lines(Sb *s, const Sb *lines, Arena *a) {
    size_t indent = SIZE_MAX;
    for (const char *p = lines->p; *p; p = strchr(p, '\n') + 1) {
        size_t n = strspn(p, " ");
        if (n < indent) indent = n;
    }
    Sb text = {.a = a};
    for (const char *p = lines->p, *end; *p; p = end + 1) {
        end = strchr(p, '\n');
        if (text.n) sb_puts(&text, "\n");
        sb_write(&text, p + indent, (size_t)(end - p) - indent);
    }
    sb_json(s, text.p);
}

/* ---- what a statement uses and makes --------------------------------------------------------- */
static bool is_member(const Stmt *s, const Tensor *t) {
    for (int i = 0; s->kind == S_OP && i < s->op.n; i++)
        if (s->op.t[i] == t) return true;
    return false;
}

static void note_read(Writer *w, const Tensor *t) {
    const int n = explain_number(w->x, w->at) + 1;
    if (is_member(w->at, t) || w->read[t->id] == n) return;
    w->read[t->id] = n;
    vec_push(w->x->p->cx->a, &w->reads, t);
}
static void note_load(void *user, Expr *load) { note_read(user, load->t); }

static void note_slot(void *user, const Slot *k) {
    Writer *w = user;
    Cx *c = w->x->p->cx;
    if (slot_is_expr(k))
        e_each_load(c, *k->e, note_load, w);
    else if (k->kind == SLOT_READ)
        note_read(w, *k->t);
    else if (k->kind == SLOT_SYM)
        vec_push(c->a, &w->registers, *k->sym);
    else if (k->kind == SLOT_TENSOR) {
        const Tensor *t = *k->t;
        const int n = explain_number(w->x, w->at) + 1;
        if (t->fused || w->written[t->id] == n) return;
        w->written[t->id] = n;
        vec_push(c->a, &w->writes, t);
    }
}

static int tensor_number(Writer *w, const Tensor *t) {
    return print_number(&w->x->printed.tensor, t->id);
}

static void put_uses(Writer *w, const Stmt *s) {
    w->at = s;
    w->reads.n = w->writes.n = w->registers.n = 0;
    stmt_slots(s, note_slot, w);
    sb_puts(w->s, ", \"reads\": [");
    for (int i = 0; i < w->reads.n; i++)
        sb_printf(w->s, "%s%d", i ? ", " : "", tensor_number(w, w->reads.p[i]));
    sb_puts(w->s, "], \"writes\": [");
    for (int i = 0; i < w->writes.n; i++)
        sb_printf(w->s, "%s%d", i ? ", " : "", tensor_number(w, w->writes.p[i]));
    sb_puts(w->s, "], \"registers\": [");
    for (int i = 0; i < w->registers.n; i++) {
        const Sym *y = w->registers.p[i];
        const char *name = y->name && *y->name ? y->name : "s";
        if (i) sb_puts(w->s, ", ");
        sb_json(w->s, arena_printf(w->x->p->cx->a, "%s.%d", name,
                                   print_number(&w->x->printed.sym, y->id)));
    }
    sb_puts(w->s, "]");
}

/* ---- kernels --------------------------------------------------------------------------------- */
static void put_tile(Sb *s, const Kernel *k) {
    static const char *const team[] = {"thread", "warp", "block"};
    sb_puts(s, ", \"tile\": ");
    switch (k->kind) {
    case KERNEL_CONTRACTION:
        sb_printf(s, "\"%d x %d vectors of %d\"", k->contraction->mr, k->contraction->nv, k->lanes);
        break;
    case KERNEL_CONVOLUTION:
        sb_printf(s, "\"%d x %d vectors of %d, blocks of %lld positions\"", k->convolution->rows,
                  k->convolution->nv, k->lanes, (long long)k->convolution->block);
        break;
    case KERNEL_WINOGRAD:
        sb_printf(s, "\"%d x %d vectors of %d, blocks of %lld tiles\"", k->winograd->k.rows,
                  k->winograd->k.nv, k->lanes, (long long)k->winograd->tiles);
        break;
    case KERNEL_ATTENTION:
        sb_printf(s, "\"%d rows, blocks of %d keys\"", k->attention->tile, k->attention->block);
        break;
    case KERNEL_INTEGER:
        sb_printf(s, "\"%d x %d vectors of %d, blocks of %lld positions\"", k->integer->rows,
                  k->integer->nv, k->lanes, (long long)k->integer->block);
        break;
    case KERNEL_DEPTHWISE:
        sb_printf(s, "\"%d x %d vectors of %d\"", k->depthwise->k.rows, k->depthwise->k.nv,
                  k->lanes);
        break;
    case KERNEL_PLANES:
        sb_printf(s, "\"%d x %d vectors of %d, blocks of %lld rows\"", k->planes->k.rows,
                  k->planes->k.nv, k->lanes, (long long)k->planes->block);
        break;
    case KERNEL_DOTS:
        sb_printf(s, "\"%d x %d%s\"", k->dots->bm, k->dots->bv,
                  k->dots->npart && k->dots->part[0].matrix ? " by matrix units" : "");
        break;
    case KERNEL_THREADS:
        sb_printf(s, "\"a position or row by a %s\"", team[k->threads->team]);
        break;
    default: sb_puts(s, "null");
    }
}

static void put_kernel(Writer *w, const Stmt *s) {
    const Kernel *k = s->op.kernel;
    int along = -1;
    if (!k) return;
    for (int i = 0; s->op.split && i < s->op.t[0]->rank; i++)
        if (s->op.t[0]->axis[i] == s->op.split) along = i;
    sb_printf(w->s, ", \"kernel\": {\"kind\": \"%s\"", kernel_name[k->kind]);
    put_tile(w->s, k);
    if (along >= 0)
        sb_printf(w->s, ", \"shared_along\": %d, \"grain\": %d", along, s->op.grain);
    else
        sb_printf(w->s, ", \"shared_along\": null, \"grain\": null");
    /* Units meet once in a run of groups strip by strip. */
    if (s->op.meets) sb_puts(w->s, ", \"meets\": true");
    sb_printf(w->s, ", \"scratch_bytes\": %lld}", (long long)k->scratch);
}

/* ---- nodes ----------------------------------------------------------------------------------- */
static void put_seq(Writer *w, const Seq *q);

static void begin_node(Writer *w, const Stmt *s, const char *kind, const char *name) {
    sb_printf(w->s, "%s\n{\"statement\": %d, \"kind\": \"%s\", \"name\": ", w->comma ? "," : "",
              explain_number(w->x, s), kind);
    if (name)
        sb_json(w->s, name);
    else
        sb_puts(w->s, "null");
    sb_puts(w->s, ", \"path\": ");
    sb_json(w->s, s->path ? s->path : "");
    w->comma = false;
}

static void put_level(Writer *w, int level) {
    const Schedule *k = w->x->f ? w->x->p->schedule : NULL;
    if (k && k->device->level[level].name)
        sb_printf(w->s, ", \"level\": \"%s\"", k->device->level[level].name);
    else
        sb_puts(w->s, ", \"level\": null");
}

static void begin_children(Writer *w) {
    sb_puts(w->s, ", \"children\": [");
    w->comma = false;
}
static void end_children(Writer *w) { sb_puts(w->s, "]"); }
static void end_node(Writer *w) {
    sb_puts(w->s, "}");
    w->comma = true;
}

static void put_tensor(Writer *w, const char *key, const Tensor *t) {
    if (t)
        sb_printf(w->s, "\"%s\": %d", key, tensor_number(w, t));
    else
        sb_printf(w->s, "\"%s\": null", key);
}

static void put_why(Writer *w, const Conflict *k) {
    if (!k || !k->before || !k->after) return;
    sb_puts(w->s, ", \"why\": {");
    put_tensor(w, "before", k->before);
    sb_printf(w->s, ", \"wrote\": %s, ", k->wrote ? "true" : "false");
    put_tensor(w, "after", k->after);
    sb_printf(w->s, ", \"writes\": %s}", k->writes ? "true" : "false");
}

/* A place in statement s where units synchronize. */
static void put_barrier(Writer *w, const Stmt *s, const char *name, int level,
                        const Conflict *why) {
    begin_node(w, s, "barrier", name);
    put_level(w, level);
    put_why(w, why);
    end_node(w);
}

static void put_loop(Writer *w, const Stmt *s, Level around) {
    const Level level = stmt_apart(s, around) ? s->level : around;
    if (s->loop.copies) put_barrier(w, s, "begin", level, NULL);
    put_seq(w, s->loop.body);
    if (s->loop.barrier || s->loop.block_barrier)
        put_barrier(w, s, "iteration", s->loop.barrier ? level : LEVEL_CORE, &s->loop.why);
    for (int i = 0; i < s->loop.carry.n; i++)
        if (s->loop.carry.p[i].closes) {
            put_barrier(w, s, "grown", level, NULL);
            break;
        }
}

static void put_branch(Writer *w, const Stmt *s) {
    for (int i = 0; i < 2; i++) {
        begin_node(w, s, "arm", i ? "else" : "then");
        put_level(w, s->level);
        begin_children(w);
        put_seq(w, s->br.arm[i]);
        end_children(w);
        end_node(w);
    }
}

static void put_functions(Writer *w, const Stmt *s) {
    for (int i = 0; i < s->call.nfunc; i++) {
        begin_node(w, s, "function", s->call.func[i]->name);
        put_level(w, s->level);
        sb_printf(w->s, ", \"frame_bytes\": %lld", (long long)s->call.func[i]->frame);
        begin_children(w);
        put_seq(w, s->call.func[i]->body);
        end_children(w);
        end_node(w);
    }
}

static const char *stmt_name(const Stmt *s) {
    switch (s->kind) {
    case S_OP:
        for (int i = 0; i < s->op.n; i++)
            if (!s->op.t[i]->fused && s->op.t[i]->name) return s->op.t[i]->name;
        return NULL;
    case S_EXTERN: return s->ext.row ? s->ext.row->name : NULL;
    case S_CALL: return s->call.f->name;
    case S_BARRIER:
        return s->meet == MEET_GATHER    ? "gather"
               : s->meet == MEET_RELEASE ? "release"
                                         : "statement";
    default: return NULL;
    }
}

static void put_stmt(Writer *w, const Stmt *s, Level around) {
    begin_node(w, s, w->x->kind.p[explain_number(w->x, s)], stmt_name(s));
    put_level(w, s->level);
    if (s->kind == S_BARRIER ? s->meet != MEET_ALL : s->level < around && s->level > LEVEL_LANE)
        sb_printf(w->s, ", \"unit\": %d", s->unit);
    if (s->beside) sb_puts(w->s, ", \"beside\": true");
    if (s->each) sb_puts(w->s, ", \"each\": true");
    if (s->kind == S_BARRIER) {
        put_why(w, &s->barrier.why);
    } else {
        const Sb *lines = map_geti(w->own, (uint64_t)(uintptr_t)s);
        if (lines) {
            sb_puts(w->s, ", \"text\": ");
            put_lines(w->s, lines, w->x->p->cx->a);
        }
        put_uses(w, s);
        if (s->kind == S_OP) put_kernel(w, s);
    }
    if (stmt_nseq(s) || (s->kind == S_EXTERN && s->ext.barrier)) {
        begin_children(w);
        if (s->kind == S_LOOP) put_loop(w, s, around);
        if (s->kind == S_BRANCH) put_branch(w, s);
        if (s->kind == S_CALL) put_functions(w, s);
        if (s->kind == S_EXTERN) put_barrier(w, s, "body", around, NULL);
        end_children(w);
    }
    end_node(w);
}

static void put_seq(Writer *w, const Seq *q) {
    const Level level = seq_level(q);
    const Stmt *apart = NULL;
    for (int i = 0; i < q->s.n; i++) {
        const Stmt *s = q->s.p[i];
        if (s->apart) apart = s;
        put_stmt(w, s, level);
        if (apart && (i + 1 == q->s.n || !q->s.p[i + 1]->beside)) {
            put_barrier(w, apart, "apart", level, NULL);
            apart = NULL;
        }
    }
}

void explain_tree(Sb *s, Explained *x) {
    const Cx *c = x->p->cx;
    Writer w = {.s = s, .x = x, .own = own_lines(x)};
    w.read = NEWN(c->a, int, c->next_tensor + 1);
    w.written = NEWN(c->a, int, c->next_tensor + 1);
    sb_puts(s, ", \"tree\": [");
    put_seq(&w, x->p->top);
    sb_puts(s, "]");
}
