/* placement.c: prints for braid explain, as JSON, where every tensor of a program lives. */
#include "cli/explain.h"
#include "scheduler/cost/decide.h"
#include "scheduler/plan/memory.h"
#include "scheduler/plan/weights.h"
#include "utask/walk.h"

static const char *const where_name[] = {
    [M_NONE] = "none",     [M_STATIC] = "arena",  [M_BUMP] = "arena top", [M_SLOT] = "slot",
    [M_SHARED] = "shared", [M_CARRY] = "carried", [M_ELEM] = "scan part", [M_ROWS] = "rows",
    [M_RESULT] = "result", [M_CALLEE] = "callee"};

typedef struct Walk {
    Sb *s;
    Explained *x;
    const Program *p;
    const Facts *f;
    Map *seen;
    int n;
    const Stmt *at;   /* the current statement; NULL: the end of the program */
    const Stmt *loop; /* innermost loop around it */
    bool resident;    /* a loop around it keeps its constants near the cores */
    Visit loads;
} Walk;

static void put_name(Walk *w, const char *key, const char *name) {
    sb_printf(w->s, ", \"%s\": ", key);
    if (name)
        sb_json(w->s, name);
    else
        sb_puts(w->s, "null");
}

static void put_bytes(Walk *w, int64_t bytes) {
    if (bytes >= 0)
        sb_printf(w->s, ", \"bytes\": %lld", (long long)bytes);
    else
        sb_puts(w->s, ", \"bytes\": null");
}

/* Prints the sizes; null: known only at run time. Returns the bytes, or -1: not known. */
static int64_t put_shape(Walk *w, const Tensor *t) {
    int64_t bytes = (int64_t)dtype_size(t->dtype), v;
    if (t->blob || t->rank < 0) {
        sb_puts(w->s, ", \"shape\": null");
        return -1;
    }
    sb_puts(w->s, ", \"shape\": [");
    for (int i = 0; i < t->rank; i++) {
        bool known = e_is_int(t->dim[i], &v);
        if (known)
            sb_printf(w->s, "%s%lld", i ? ", " : "", (long long)v);
        else
            sb_printf(w->s, "%snull", i ? ", " : "");
        if (!known || (bytes >= 0 && !mul_size(bytes, v, &bytes))) bytes = -1;
    }
    sb_puts(w->s, "]");
    return bytes;
}

/* The array of the weights that holds a constant unchanged, else one that was packed from it (and
 * perhaps from others). NULL: its elements are in the generated text. */
static const WeightArray *constant_of(const Walk *w, const Tensor *t) {
    const WeightArray *plain = weights_find(w->p, t), *all = w->p->weights->array.p;
    for (int i = w->p->weights->array.n - 1; !plain && t->name && i >= 0; i--)
        if (all[i].packed && strcmp(all[i].what, t->name) == 0) return &all[i];
    return plain;
}

/* The tensor in whose memory t lies; NULL: its own. */
static const Tensor *memory_holder(const Tensor *t) {
    const Mem *m = mem_of(t);
    return t->kind == TK_VIEW ? t->base : m ? m->via : NULL;
}

static void put_memory(Walk *w, const Tensor *t, int64_t bytes) {
    const Mem *m = mem_of(t);
    const char *where = t->fused                                          ? "fused"
                        : t->kind == TK_INPUT                             ? "caller"
                        : t->kind == TK_VIEW                              ? "view"
                        : t->kind == TK_PARAM                             ? "parameter"
                        : t->kind == TK_CONST                             ? "inline"
                        : t->kind == TK_JOIN && (!m || m->kind == M_NONE) ? "arms"
                        : m && m->block                                   ? "block"
                        : m                                               ? where_name[m->kind]
                                                                          : "none";
    const WeightArray *k = t->kind == TK_CONST ? constant_of(w, t) : NULL;
    int two = m && t->kind == TK_PHI && !m->inplace ? 2 : 1;
    put_bytes(w, m && m->kind == M_STATIC ? m->bytes : bytes);
    put_name(w, "where", !k ? where : k->packed ? "packed weights" : "weights");
    if (k && !k->packed) sb_printf(w->s, ", \"offset\": %lld", (long long)k->offset);
    if (m && m->block) sb_printf(w->s, ", \"block\": %d", m->block - 1);
    if (m && m->kind == M_STATIC) {
        sb_printf(w->s, ", \"offset\": %lld", (long long)m->off[0]);
        if (two == 2) sb_printf(w->s, ", \"other_offset\": %lld", (long long)m->off[1]);
        if (m->frame) put_name(w, "frame", m->frame->name);
    }
    if (m && m->kind == M_SLOT) sb_printf(w->s, ", \"slot\": %d", m->slot[0]);
    const Tensor *via = memory_holder(t);
    if (via) put_name(w, "in_place_of", via->name);
    if (m && t->kind == TK_PHI)
        sb_printf(w->s, ", \"in_place\": %s", m->inplace ? "true" : "false");
}

/* The number of the statement at a position; at the end of a loop or a call, of the last one before
 * it that memory was planned for (barriers came later). */
static int statement_at(const Walk *w, int position) {
    const MemPlan *m = w->p->mem;
    if (position > m->position.n) return w->x->kind.n - 1;
    while (position > 0 && m->position.p[position - 1].end) position--;
    return position ? explain_number(w->x, m->position.p[position - 1].s) : 0;
}

/* Prints in whose memory t lies, between which statements it is taken, and which outputs it is. */
static void put_life(Walk *w, const Tensor *t) {
    const Mem *m = mem_of(t);
    const Tensor *via = memory_holder(t);
    if (via) sb_printf(w->s, ", \"of\": %d", print_number(&w->x->printed.tensor, via->id));
    if (m)
        sb_printf(w->s, ", \"first\": %d, \"last\": %d", statement_at(w, m->first),
                  statement_at(w, m->last));
    bool any = false;
    for (int i = 0; i < w->p->nout; i++) {
        if (w->p->out[i].t != t) continue;
        sb_puts(w->s, any ? ", " : ", \"outputs\": [");
        sb_json(w->s, w->p->out[i].name);
        any = true;
    }
    if (any) sb_puts(w->s, "]");
}

static void note(void *user, Tensor *t) {
    Walk *w = user;
    if (map_geti(w->seen, (uint64_t)t->id + 1)) return;
    map_seti(w->seen, (uint64_t)t->id + 1, t);
    const DeviceLevel *levels = w->p->schedule->device->level;
    const Mem *m = mem_of(t);
    bool fixed = t->kind == TK_CONST || t->kind == TK_INPUT || !w->at;
    sb_printf(w->s, "%s\n  {\"id\": %d, \"name\": ", w->n++ ? "," : "",
              print_number(&w->x->printed.tensor, t->id));
    if (t->name)
        sb_json(w->s, t->name);
    else
        sb_puts(w->s, "null");
    put_name(w, "path", t->path);
    put_name(w, "type", t->blob ? "sequence" : dtype_name(t->dtype));
    put_memory(w, t, put_shape(w, t));
    bool kept = t->kind == TK_CONST ? w->resident : t->kind == TK_PHI || (m && m->kind == M_CARRY);
    sb_printf(w->s, ", \"resident\": %s", kept ? "true" : "false");
    put_name(w, "level", fixed ? NULL : levels[w->at->level].name);
    put_name(w, "loop", w->loop ? (w->loop->path ? w->loop->path : "") : NULL);
    put_life(w, t);
    sb_puts(w->s, "}");
}

static bool keeps_constants(const Walk *w, const Stmt *loop) {
    for (int i = 0; i < w->f->loops.n; i++)
        if (w->f->loops.p[i].loop == loop) return explain_is_resident(w->p, &w->f->loops.p[i]);
    return false;
}

static void walk(Walk *w, const Seq *q, const Stmt *loop, bool resident) {
    for (int i = 0; q && i < q->s.n; i++) {
        const Stmt *s = q->s.p[i];
        w->at = s;
        w->loop = loop;
        w->resident = resident;
        if (s->kind == S_LOOP) {
            for (int k = 0; k < s->loop.carry.n; k++) {
                if (s->loop.carry.p[k].init) note(w, s->loop.carry.p[k].init);
                note(w, s->loop.carry.p[k].phi);
            }
            for (int k = 0; k < s->loop.scan.n; k++) note(w, s->loop.scan.p[k].out);
            walk(w, s->loop.body, s, resident || keeps_constants(w, s));
        } else if (s->kind == S_BRANCH) {
            for (int k = 0; k < 2; k++) walk(w, s->br.arm[k], loop, resident);
            w->at = s;
            for (int k = 0; k < s->br.joins.n; k++) note(w, s->br.joins.p[k].out);
        } else if (s->kind == S_CALL) {
            for (int k = 0; k < s->call.f->narg; k++) note(w, s->call.arg[k]);
            for (int k = 0; k < s->call.nfunc; k++) {
                const Func *f = s->call.func[k];
                for (int n = 0; n < f->narg; n++) note(w, f->arg[n]);
                walk(w, f->body, loop, resident);
            }
            w->at = s;
            for (int k = 0; k < s->call.f->nout; k++) note(w, s->call.out[k]);
        } else
            visit_stmt(&w->loads, s);
    }
}

void explain_placement(Sb *s, Explained *x) {
    const Program *p = x->p;
    Walk w = {.s = s, .x = x, .p = p, .f = x->f, .seen = map_new(p->cx->a)};
    w.loads = visit_new(p->cx, note, NULL, &w);
    sb_puts(s, ", \"placement\": [");
    walk(&w, p->top, NULL, false);
    w.at = w.loop = NULL;
    for (int i = 0; i < p->nin; i++)
        if (p->in[i].t) visit_tensor(&w.loads, p->in[i].t);
    for (int i = 0; i < p->nout; i++)
        if (p->out[i].t) visit_tensor(&w.loads, p->out[i].t);
    for (int i = 0; i < p->weights->array.n; i++) {
        const WeightArray *k = &p->weights->array.p[i];
        if (!k->packed) continue;
        sb_puts(s, w.n++ ? ",\n  {\"name\": " : "\n  {\"name\": ");
        sb_json(s, k->what);
        put_name(&w, "type", dtype_name(k->dtype));
        sb_printf(s, ", \"shape\": [%lld]", (long long)k->count);
        put_bytes(&w, k->bytes);
        sb_printf(s, ", \"where\": \"packed weights\", \"offset\": %lld}", (long long)k->offset);
    }
    sb_puts(s, "]");
}
