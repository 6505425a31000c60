/* memory.c: lifetimes by statement numbers, then first-fit offsets, larger tensors first.
 *
 * A value defined outside a loop and used inside lives to the loop's end. A phi keeps its initial
 * value alive (it aliases it until the first iteration ends, or is a copy of it), a join keeps both
 * arms' values, a view its base. The two arms of a branch are numbered one after the other, so
 * their temporaries overlap. What nobody but one cluster touches lives in its blocks' own memory,
 * where there is room. */
#include "scheduler/plan/memory.h"
#include "scheduler/cost/decide.h"
#include "scheduler/plan/strips.h"
#include "scheduler/passes.h"
#include "utask/walk.h"
#include <stdlib.h>

#define PIECE 64 /* bytes that a tensor's memory is a multiple of */
#define OWN_PART                                                                                   \
    16 /* one in so many of a block's bytes, at most, for what its unit has for itself */

typedef struct LoopPos {
    Stmt *s;
    struct LoopPos *up;
    int start, end;
    /* of static temporaries inside, in an outermost loop, and of those that share their memory with
     * no other */
    int64_t bytes, alone;
} LoopPos;

typedef VEC(Tensor *) TensorVec;

typedef struct Span { /* statement numbers of what one cluster runs, or several beside each other */
    int first, last;
} Span;

/* Of a tensor. */
typedef struct Life {
    LoopPos *def_loop; /* the innermost loop around its storage's definition */
    Tensor *arm[2];    /* of a join */
    Tensor *init;      /* of a phi that is it in the first iteration */
    int direct;        /* the last statement that uses it, joins with it apart */
    /* Of a join: up to where its last use, in the loop `passed_in`, has been passed on to its arms.
     */
    int passed;
    LoopPos *passed_in;
    TensorVec joins, alias; /* joins that have it as an arm; what is in its memory */
} Life;

typedef struct Planner {
    Program *p;
    Arena *a;
    Life *of; /* by tensor id */
    LoopPos *cur;
    int pos;
    VEC(int)
    steps; /* by number: groups and hand-written bodies up to it, where branches take their shorter
              arm */
    int step;
    VEC(Tensor *) all;
    Map *loops;         /* Stmt -> LoopPos */
    Func *frame;        /* the function being walked, NULL: none */
    VEC(Func *) frames; /* all of them */
    VEC(Span) clusters; /* in order */
    int64_t own;        /* bytes of a block's memory for what its unit has for itself */
    MemPlan plan;
} Planner;

static int64_t static_bytes(const Tensor *t) {
    int64_t n = (int64_t)dtype_size(t->dtype), v;
    if (t->rank < 0 || t->blob) return -1;
    bool grows = t->kind == TK_PHI && t->grow && t->grow->planned;
    for (int i = 0; i < t->rank; i++) {
        if (grows && i == t->grow->axis)
            v = t->grow->most;
        else if (!e_is_int(t->dim[i], &v))
            return -1;
        if (!mul_size(n, v, &n)) return -1;
    }
    return n > (int64_t)1 << 40 ? -1 : n;
}

static Mem *mem_new(Planner *q, Tensor *t, MemKind k) {
    Mem *m = NEW(q->a, Mem);
    m->kind = k;
    m->frame = q->frame;
    m->bytes = static_bytes(t);
    m->first = m->last = q->pos;
    m->slot[0] = m->slot[1] = -1;
    if (t->kind == TK_TE && t->base) {
        m->kind = M_CARRY;
        m->via = t->grow->phi;
    }
    if (t->table) {
        m->kind = M_ROWS;
        m->via = t->table;
    }
    t->plan = m;
    q->of[t->id].def_loop = q->cur;
    vec_push(q->a, &q->all, t);
    return m;
}

/* joined: by way of a join. */
static void use_tensor(Planner *q, Tensor *t, int pos, bool joined) {
    if (!t) return;
    if (t->kind == TK_VIEW) {
        use_tensor(q, t->base, pos, false);
        return;
    }
    Mem *m = t->plan;
    if (m &&
        (m->kind == M_CARRY || m->kind == M_ELEM || m->kind == M_ROWS)) { /* none is shared yet */
        use_tensor(q, m->via, pos, false);
        return;
    }
    int until = pos;
    /* Out to the outermost loop around the use that does not contain the definition. */
    LoopPos *def = q->of[t->id].def_loop;
    for (LoopPos *l = q->cur; l && l != def; l = l->up)
        if (l->end > until) until = l->end;
    if (!joined && q->of[t->id].direct < until) q->of[t->id].direct = until;
    if (m) {
        if (m->last >= until && t->kind != TK_JOIN) return;
        if (m->last < until) m->last = until;
    }
    if (t->kind == TK_JOIN && (q->of[t->id].passed < until || q->of[t->id].passed_in != q->cur)) {
        q->of[t->id].passed = until;
        q->of[t->id].passed_in = q->cur;
        use_tensor(q, q->of[t->id].arm[0], until, true);
        use_tensor(q, q->of[t->id].arm[1], until, true);
    }
    if (t->kind == TK_PHI) use_tensor(q, q->of[t->id].init, until, false);
}
static void use(Planner *q, Tensor *t, int pos) { use_tensor(q, t, pos, false); }

static void use_load(void *user, Expr *e) { use(user, e->t, ((Planner *)user)->pos); }
static void use_expr(Planner *q, Expr *e) {
    if (e) e_each_load(q->p->cx, e, use_load, q);
}

/* Whether the size is known when the loop starts. */
static bool known_at_entry(const Tensor *t, const Stmt *loop) {
    if (t->blob || t->rank < 0) return false;
    if (t->grow) return t->grow->planned || t->grow->rows;
    for (int i = 0; i < t->rank; i++)
        if (loop_varies(loop, t->dim[i])) return false;
    return true;
}

/* Of what loop s defines. */
static Mem *mem_of_loop(Planner *q, Tensor *t, const Stmt *s) {
    Mem *m = mem_new(q, t,
                     !known_at_entry(t, s)  ? M_SLOT
                     : static_bytes(t) >= 0 ? M_STATIC
                                            : M_BUMP);
    if (m->kind == M_SLOT) m->slot[0] = q->plan.nslot++;
    return m;
}

static LoopPos *loop_new(Planner *q, Stmt *s) {
    LoopPos *l = NEW(q->a, LoopPos);
    *l = (LoopPos){.s = s, .up = q->cur, .start = q->pos};
    map_seti(q->loops, (uint64_t)(uintptr_t)s, l);
    return l;
}

static MemKind made_kind(const Tensor *t) {
    return t->ret ? M_RESULT : static_bytes(t) >= 0 ? M_STATIC : t->placed ? M_SLOT : M_BUMP;
}

/* What every unit computes for itself (scheduler/transform/partial.c) lies in its block's memory,
 * as long as that is little of it; what activations find their way by is part of their frames. */
static bool is_own(Planner *q, const Tensor *t) {
    const Device *d = q->p->schedule->device;
    const int64_t bytes = static_bytes(t);
    if (!device_is_gpu(d) || q->p->nfunc || bytes < 0) return false;
    if (q->own + bytes + 2 * PIECE > d->level[LEVEL_CORE].bytes / OWN_PART) return false;
    q->own += bytes + 2 * PIECE;
    return true;
}

static void number(Planner *q, Seq *seq);

/* The bodies of functions run any number of times during the statement: like a loop. */
static void number_call(Planner *q, Stmt *s) {
    const Func *f = s->call.f;
    for (int k = 0; k < f->nout; k++) {
        Tensor *t = s->call.out[k];
        Mem *m = mem_new(q, t, f->room[k] ? made_kind(t) : M_CALLEE);
        if (t->ret) m->slot[0] = t->ret - 1;
    }
    if (!s->call.nfunc) return;
    LoopPos *l = q->cur = loop_new(q, s);
    Func *up = q->frame;
    for (int k = 0; k < s->call.nfunc; k++) {
        q->frame = s->call.func[k];
        vec_push(q->a, &q->frames, q->frame);
        number(q, q->frame->body);
    }
    q->frame = up;
    q->cur = l->up;
    l->end = ++q->pos;
}

/* What statements beside each other, or in strips, define lives at the same time: from number
 * `start` to the present. */
static void number_beside(Planner *q, int first, int start) {
    for (int i = first; i < q->all.n; i++) {
        Mem *m = q->all.p[i]->plan;
        m->first = start;
        m->last = q->pos;
    }
}

/* First pass: number statements, give storage its kind. */
static void number(Planner *q, Seq *seq) {
    int first = 0, start = 0;
    const bool inside = seq_level(seq) < LEVEL_TEAM;
    for (int i = 0; i < seq->s.n; i++) {
        Stmt *s = seq->s.p[i];
        const int begin = ++q->pos;
        const bool together = s->beside || (i > 0 && strip_follows(seq->s.p[i - 1], s));
        if (!together) first = q->all.n, start = q->pos;
        switch (s->kind) {
        case S_OP:
            for (int k = 0; k < s->op.n; k++)
                if (!s->op.t[k]->plan) {
                    const bool own = s->each && is_own(q, s->op.t[k]);
                    Mem *m =
                        mem_new(q, s->op.t[k], s->each && !own ? M_BUMP : made_kind(s->op.t[k]));
                    m->each = s->each;
                    if (own) m->block = BLOCK_OWN;
                    if (m->kind == M_RESULT) m->slot[0] = s->op.t[k]->ret - 1;
                    if (m->kind == M_SLOT) m->slot[0] = q->plan.nslot++;
                }
            break;
        case S_CALL: number_call(q, s); break;
        case S_EXTERN:
            for (int k = 0; k < s->ext.nout; k++)
                if (!s->ext.out[k]->plan) {
                    bool fixed = static_bytes(s->ext.out[k]) >= 0 && !s->each;
                    Mem *m = mem_new(q, s->ext.out[k],
                                     s->ext.structure ? M_SLOT
                                     : fixed          ? M_STATIC
                                                      : M_BUMP);
                    m->each = s->each;
                    if (s->ext.structure) m->slot[0] = q->plan.nslot++;
                }
            break;
        case S_BRANCH:
            for (int k = 0; k < s->br.joins.n; k++) {
                Join *j = &s->br.joins.p[k];
                q->of[j->out->id].def_loop = q->cur;
                q->of[j->out->id].arm[0] = j->arm[0];
                q->of[j->out->id].arm[1] = j->arm[1];
                for (int m = 0; m < 2; m++)
                    if (j->arm[m]) vec_push(q->a, &q->of[j->arm[m]->id].joins, j->out);
            }
            number(q, s->br.arm[0]);
            number(q, s->br.arm[1]);
            break;
        case S_LOOP: {
            LoopPos *l = loop_new(q, s);
            for (int k = 0; k < s->loop.carry.n; k++) {
                LoopCarry *c = &s->loop.carry.p[k];
                Mem *m = mem_of_loop(q, c->phi, s);
                if (m->kind == M_SLOT)
                    m->slot[1] = c->inplace || c->push ? m->slot[0] : q->plan.nslot++;
                m->inplace = c->inplace || c->push;
                if (!c->inplace) q->of[c->phi->id].init = c->init; /* else it is copied */
            }
            for (int k = 0; k < s->loop.scan.n; k++)
                if (!s->loop.scan.p[k].more) mem_of_loop(q, s->loop.scan.p[k].out, s);
            q->cur = l;
            for (int k = 0; k < s->loop.carry.n; k++)
                mem_new(q, s->loop.carry.p[k].next, M_CARRY)->via = s->loop.carry.p[k].phi;
            for (int k = 0; k < s->loop.scan.n; k++) {
                Mem *m = mem_new(q, s->loop.scan.p[k].elem, M_ELEM);
                m->via = s->loop.scan.p[k].out;
                m->at = s->loop.scan.p[k].at;
            }
            number(q, s->loop.body);
            q->cur = l->up;
            l->end = ++q->pos;
            break;
        }
        default: break;
        }
        if (together) number_beside(q, first, start);
        const bool control = s->kind == S_LOOP || s->kind == S_BRANCH;
        if (inside || !control || s->level != LEVEL_CLUSTER) continue;
        if (s->beside)
            q->clusters.p[q->clusters.n - 1].last = q->pos;
        else
            vec_push(q->a, &q->clusters, ((Span){begin, q->pos}));
    }
}

static void use_slot(void *user, const Slot *k) {
    Planner *q = user;
    if (slot_is_expr(k)) use_expr(q, *k->e);
    if (k->kind == SLOT_READ || k->kind == SLOT_TENSOR) use(q, *k->t, q->pos);
}

static void next_number(Planner *q, const Stmt *s, bool end) {
    q->pos++;
    q->step += !end && (s->kind == S_OP || s->kind == S_EXTERN);
    vec_push(q->a, &q->plan.position, ((Position){s, end}));
    vec_push(q->a, &q->steps, q->step);
}

/* Second pass, over the same numbers: uses. */
static void uses(Planner *q, Seq *seq) {
    for (int i = 0; i < seq->s.n; i++) {
        Stmt *s = seq->s.p[i];
        next_number(q, s, false);
        switch (s->kind) {
        case S_BRANCH: {
            use_expr(q, s->br.cond);
            int before = q->step;
            uses(q, s->br.arm[0]);
            int other = q->step;
            q->step = before;
            uses(q, s->br.arm[1]);
            q->step = other < q->step ? other : q->step;
            for (int k = 0; k < s->br.joins.n; k++) use(q, s->br.joins.p[k].out, q->pos);
            break;
        }
        case S_CALL: {
            const Func *f = s->call.f;
            for (int k = 0; k < f->narg; k++) use(q, s->call.arg[k], q->pos);
            if (s->call.nfunc) {
                LoopPos *l = map_geti(q->loops, (uint64_t)(uintptr_t)s);
                q->cur = l;
                for (int m = 0; m < s->call.nfunc; m++) {
                    const Func *g = s->call.func[m];
                    uses(q, g->body);
                    for (int k = 0; k < g->nout; k++) use(q, g->out[k], l->end);
                }
                q->cur = l->up;
                next_number(q, s, true);
                for (int k = 0; k < f->narg; k++) use(q, s->call.arg[k], l->end);
                for (int k = 0; k < f->nout; k++) use(q, s->call.out[k], l->end);
            }
            break;
        }
        case S_LOOP: {
            LoopPos *l = map_geti(q->loops, (uint64_t)(uintptr_t)s);
            for (int k = 0; k < s->loop.carry.n; k++)
                if (s->loop.carry.p[k].inplace) use(q, s->loop.carry.p[k].init, l->start);
            use_expr(q, s->loop.cond0);
            q->cur = l;
            uses(q, s->loop.body);
            use_expr(q, s->loop.cond_next);
            q->cur = l->up;
            next_number(q, s, true);
            for (int k = 0; k < s->loop.carry.n; k++) use(q, s->loop.carry.p[k].phi, l->end);
            for (int k = 0; k < s->loop.scan.n; k++) use(q, s->loop.scan.p[k].out, l->end);
            break;
        }
        default: stmt_slots(s, use_slot, q);
        }
    }
}

/* ---- results of branches in place ------------------------------------------------------------ */
/* A branch that passes a value on, or changes it element by element, gives one or the other memory.
 * Where the old value is not used any more, the changed one takes its place. So a chain
 * of such branches needs memory for one value, not for as many as there are branches. */
static Tensor *memory_of(const Tensor *t) {
    Mem *m = mem_of(t);
    if (!m) return NULL;
    return m->via && (m->kind == M_SHARED || t->kind == TK_JOIN) ? m->via
           : t->kind == TK_TE && m->kind == M_STATIC             ? (Tensor *)(uintptr_t)t
                                                                 : NULL;
}

bool memory_changes(const Tensor *m, const Tensor *t) {
    return mem_of(m) && mem_of(m)->kind == M_SHARED && t != m && memory_of(t) == mem_of(m)->via;
}

/* Last statement that needs t in its memory, by joins other than `but` and those in `root`'s
 * memory, too. */
static int last_use(const Planner *q, const Tensor *t, const Tensor *but, const Tensor *root,
                    int depth) {
    int last = depth > 100 ? INT32_MAX : q->of[t->id].direct;
    for (int i = 0; i < q->of[t->id].joins.n && last != INT32_MAX; i++) {
        const Tensor *j = q->of[t->id].joins.p[i];
        if (j == but || memory_of(j) == root) continue;
        int k = last_use(q, j, but, root, depth + 1);
        if (k > last) last = k;
    }
    return last;
}

/* Every load of root's memory below e is at the own position of t, outside of reductions. */
static bool reads_own_only(const Expr *e, const Tensor *t, const Tensor *root, bool reduced) {
    if (!(e->flags & EF_LOAD)) return true;
    if (e->op == E_LOAD) {
        const Tensor *x = tensor_root(e->t);
        if (memory_of(x) == root && (reduced || !load_is_own(e, x, t))) return false;
    }
    for (int i = 0; i < e->n; i++)
        if (!reads_own_only(e->a[i], t, root, reduced || e->op == E_REDUCE)) return false;
    return true;
}

/* `changed` is made in an arm, `kept` comes from outside of the branch. */
static void share_join(Planner *q, const Join *j, const Seq *arm, Tensor *changed, Tensor *kept) {
    Tensor *root = kept ? memory_of(kept) : NULL;
    Mem *m = changed ? mem_of(changed) : NULL;
    if (!root || !m || changed->kind != TK_TE || m->kind != M_STATIC || changed->owned ||
        changed->ret || changed == root)
        return;
    const Mem *r = mem_of(root);
    const Stmt *g = changed->seq == arm ? tensor_group(changed) : NULL;
    if (!g || g->op.at || g->op.band || g->op.team || m->frame != r->frame ||
        q->of[changed->id].def_loop != q->of[root->id].def_loop)
        return;
    if (changed->dtype != root->dtype || !same_dims(changed, root) ||
        q->of[changed->id].joins.n != 1)
        return;
    bool after = false;
    for (int i = 0; i < g->op.n; i++) {
        if (!reads_own_only(g->op.t[i]->body, g->op.t[i], root, after)) return;
        after |= g->op.t[i] == changed; /* what follows would read the changed value */
    }
    TensorVec *all = &q->of[root->id].alias;
    if (!all->n) vec_push(q->a, all, root);
    for (int i = 0; i < all->n; i++)
        if (last_use(q, all->p[i], j->out, root, 0) > m->first) return;
    Mem *of_join = NEW(q->a, Mem);
    of_join->via = root;
    j->out->plan = of_join;
    m->kind = M_SHARED;
    m->via = root;
    mem_of(root)->shared = true;
    if (mem_of(root)->last < m->last) mem_of(root)->last = m->last;
    vec_push(q->a, all, changed);
    vec_push(q->a, all, j->out);
}

static void share(Planner *q, const Seq *seq) {
    for (int i = 0; i < seq->s.n; i++) {
        const Stmt *s = seq->s.p[i];
        bool alone = !s->beside && (i + 1 == seq->s.n || !seq->s.p[i + 1]->beside);
        for (int k = 0; k < stmt_nseq(s); k++) share(q, stmt_seq(s, k));
        for (int k = 0; s->kind == S_BRANCH && alone && k < s->br.joins.n; k++) {
            const Join *j = &s->br.joins.p[k];
            for (int m = 0; m < 2; m++)
                if (j->arm[m] && j->arm[!m] && !j->out->plan &&
                    mem_of(j->arm[!m]) != mem_of(j->arm[m]) && !(j->arm[!m]->seq == s->br.arm[!m]))
                    share_join(q, j, s->br.arm[m], j->arm[m], j->arm[!m]);
        }
    }
}

/* ---- offsets --------------------------------------------------------------------------------- */
typedef struct Piece {
    Mem *m;
    int64_t bytes;
    int64_t *off;
} Piece;

static int by_size(const void *x, const void *y) {
    const Piece *a = x, *b = y;
    if (a->bytes != b->bytes) return a->bytes < b->bytes ? 1 : -1;
    return a->m->first - b->m->first;
}

static int by_offset(const void *x, const void *y) {
    const Piece *a = *(Piece *const *)x, *b = *(Piece *const *)y;
    return *a->off < *b->off ? -1 : *a->off > *b->off;
}

/* Temporaries of a loop that are small together do not share memory: reuse would need a barrier
 * between the last reader and the next writer. Of a function's, there is a copy for each
 * activation. */
#define UNSHARED_BYTES ((int64_t)1 << 18)
#define UNSHARED_FRAME ((int64_t)1 << 14)
#define UNSHARED_PART 8 /* of what is alive at once */

static LoopPos *outermost(const Planner *q, const Tensor *t) {
    LoopPos *l = q->of[t->id].def_loop;
    while (l && l->up && l->s->kind != S_CALL) l = l->up;
    return l;
}

static int buffers(const Tensor *t) { return t->kind == TK_PHI && !mem_of(t)->inplace ? 2 : 1; }

/* The most that is alive at once, of what is planned outside of functions; `end` is the last
 * statement number. */
static int64_t live_max(Planner *q, int end) {
    int64_t *change = NEWN(q->a, int64_t, end + 2), live = 0, most = 0;
    for (int i = 0; i < q->all.n; i++) {
        const Mem *m = q->all.p[i]->plan;
        if (m->kind != M_STATIC || m->frame || m->block) continue;
        change[m->first] += m->bytes * buffers(q->all.p[i]);
        change[m->last + 1] -= m->bytes * buffers(q->all.p[i]);
    }
    for (int i = 0; i <= end; i++) {
        live += change[i];
        if (live > most) most = live;
    }
    return most;
}

static int smaller(const void *x, const void *y) {
    const Tensor *const *a = x, *const *b = y;
    const int64_t n = mem_of(*a)->bytes, m = mem_of(*b)->bytes;
    return n != m ? (n < m ? -1 : 1) : (*a)->id - (*b)->id;
}

/* What the temporaries of l may have for themselves: where units share the work, a part of what is
 * alive in any case. */
static int64_t unshared(const Planner *q, const LoopPos *l) {
    if (l->s->kind == S_CALL) return l->bytes > UNSHARED_FRAME ? 0 : UNSHARED_FRAME;
    if (q->p->schedule->units == 1 && l->s->loop.parts <= 1)
        return l->bytes > UNSHARED_BYTES ? 0 : UNSHARED_BYTES;
    const int64_t part = q->plan.live_max / UNSHARED_PART;
    return part > UNSHARED_BYTES ? part : UNSHARED_BYTES;
}

static void unshare(Planner *q) {
    Tensor **t = NEWN(q->a, Tensor *, q->all.n + 1);
    int n = 0;
    for (int i = 0; i < q->all.n; i++) {
        LoopPos *l = outermost(q, q->all.p[i]);
        const Mem *m = q->all.p[i]->plan;
        if (!l || m->kind != M_STATIC || m->block == BLOCK_OWN) continue;
        l->bytes += m->bytes;
        t[n++] = q->all.p[i];
    }
    if (n) qsort(t, (size_t)n, sizeof(Tensor *), smaller);
    for (int i = 0; i < n; i++) {
        LoopPos *l = outermost(q, t[i]);
        Mem *m = t[i]->plan;
        l->alone += m->bytes;
        if (l->alone > unshared(q, l)) continue;
        m->first = l->start;
        if (m->last < l->end) m->last = l->end;
    }
}

/* Puts what lives inside of a cluster's construct into the blocks' own memory, in turn, as long as
 * there is room: an eighth of it, for weights that stay there do more. */
static void distribute(Planner *q) {
    const Device *d = q->p->schedule->device;
    const int blocks = device_cluster(d);
    int64_t *used = NEWN(q->a, int64_t, blocks + 1);
    int next = 0;
    for (int i = 0; i < q->all.n; i++) {
        const Tensor *t = q->all.p[i];
        Mem *m = t->plan;
        bool inside = false;
        for (int k = 0; k < q->clusters.n && !inside; k++)
            inside = m->first >= q->clusters.p[k].first && m->last <= q->clusters.p[k].last;
        if (!inside || m->kind != M_STATIC || m->frame) continue;
        const int64_t bytes = (m->bytes + 2 * PIECE) * buffers(t);
        if (used[next] + bytes > d->level[LEVEL_CORE].bytes / 8) continue;
        used[next] += bytes;
        m->block = next + 1;
        next = (next + 1) % blocks;
    }
}

/* Returns the bytes of the frame, or (block not 0) of what is in that block's memory. */
static int64_t place(Planner *q, const Func *frame, int block) {
    VEC(Piece) v = {0};
    int64_t all = 0;
    for (int i = 0; i < q->all.n; i++) {
        Tensor *t = q->all.p[i];
        Mem *m = t->plan;
        if (m->kind != M_STATIC || m->frame != frame || m->block != block) continue;
        int64_t bytes = round_up(m->bytes + PIECE, PIECE); /* with room for whole-vector reads */
        for (int k = 0; k < buffers(t); k++) vec_push(q->a, &v, ((Piece){m, bytes, &m->off[k]}));
    }
    if (v.n) qsort(v.p, (size_t)v.n, sizeof *v.p, by_size);
    Piece **near = NEWN(q->a, Piece *, v.n + 1);
    for (int i = 0; i < v.n; i++) {
        int n = 0;
        for (int j = 0; j < i; j++)
            if (v.p[j].m->first <= v.p[i].m->last && v.p[i].m->first <= v.p[j].m->last)
                near[n++] = &v.p[j];
        if (n) qsort(near, (size_t)n, sizeof *near, by_offset);
        int64_t at = 0;
        for (int j = 0; j < n; j++) {
            if (at + v.p[i].bytes <= *near[j]->off) break;
            int64_t end = *near[j]->off + near[j]->bytes;
            if (end > at) at = end;
        }
        *v.p[i].off = at;
        if (at + v.p[i].bytes > all) all = at + v.p[i].bytes;
    }
    return all;
}

/* ---- constants ------------------------------------------------------------------------------- */
typedef struct Constants {
    Cx *c;
    const Stmt *s; /* the group that is read */
    Map *seen;     /* tensor id -> read by all, or shared among the units */
    int units;
    int64_t all, share;
} Constants;

static void constant_load(void *user, Expr *e) {
    Constants *k = user;
    int64_t bytes = static_bytes(e->t);
    if (e->t->kind != TK_CONST || bytes < 0 || !map_add(k->seen, (uint64_t)e->t->id + 1)) return;
    bool split = false;
    for (int i = 0; i < e->n && k->s->op.split; i++) split |= e_uses_axis(e->a[i], k->s->op.split);
    k->all += bytes;
    k->share += split ? (bytes + k->units - 1) / k->units : bytes;
}

static void constants(void *user, Stmt *s) {
    Constants *k = user;
    k->s = s;
    if (s->kind == S_OP) stmt_loads(k->c, s, constant_load, k);
}

/* ---- the pass -------------------------------------------------------------------------------- */
/* Memory that was read a few statements ago is not reused yet if the arena stays small: a unit that
 * overwrites it would have to wait until all units have read it. On GPUs, memory costs the same
 * everywhere while the arena is a small part of L2. */
#define REST_STEPS 2
#define REST 4 /* statements, when there is no room for those that a run may skip */
static bool rest(Planner *q, const int *until, int64_t most) {
    int *last = NEWN(q->a, int, q->all.n + 1);
    for (int i = 0; i < q->all.n; i++) {
        Mem *m = q->all.p[i]->plan;
        last[i] = m->last;
        if (m->kind == M_STATIC && !m->frame && until[m->last] > m->last) m->last = until[m->last];
    }
    q->plan.arena = place(q, NULL, 0);
    if (q->plan.arena <= most) return true;
    for (int i = 0; i < q->all.n; i++) ((Mem *)q->all.p[i]->plan)->last = last[i];
    q->plan.arena = place(q, NULL, 0);
    return false;
}

static void rest_all(Planner *q, int end) {
    const Device *d = q->p->schedule->device;
    Constants k = {.c = q->p->cx, .seen = map_new(q->a), .units = 1};
    seq_each_here(q->p->top, constants, &k);
    int64_t most = q->plan.arena + (q->plan.arena + k.all) / 8;
    if (device_is_gpu(d) && d->level[LEVEL_TEAM].bytes / 8 > most)
        most = d->level[LEVEL_TEAM].bytes / 8;
    /* The last number that is reached in so many steps. */
    int *reached = NEWN(q->a, int, end + REST_STEPS + 2), *until = NEWN(q->a, int, end + 1);
    for (int i = 0; i < q->steps.n; i++) reached[q->steps.p[i]] = i + 1;
    for (int i = 1; i < end + REST_STEPS + 1; i++)
        if (reached[i] < reached[i - 1]) reached[i] = reached[i - 1];
    for (int i = 0; i <= end; i++) {
        int at = i < q->steps.n ? i : q->steps.n;
        int step = at ? q->steps.p[at - 1] : 0;
        until[i] = reached[step + REST_STEPS - 1];
    }
    if (rest(q, until, most)) return;
    for (int i = 0; i <= end; i++) until[i] = i + REST < end ? i + REST : end;
    rest(q, until, most);
}

void pass_memory(Program *p) {
    Arena *a = p->cx->a;
    Planner q = {.p = p, .a = a};
    q.of = NEWN(a, Life, p->cx->next_tensor + 1);
    q.loops = map_new(a);
    number(&q, p->top);
    int end = q.pos + 1;
    q.pos = 0;
    q.cur = NULL;
    uses(&q, p->top);
    for (int i = 0; i < p->nout; i++) use(&q, p->out[i].t, end);
    share(&q, p->top);
    distribute(&q);
    q.plan.live_max = live_max(&q, end);
    unshare(&q);
    for (int i = 0; q.clusters.n && i < device_cluster(p->schedule->device); i++) {
        int64_t bytes = place(&q, NULL, i + 1);
        if (bytes > q.plan.distributed) q.plan.distributed = bytes;
    }
    q.plan.own = place(&q, NULL, BLOCK_OWN);
    q.plan.arena = place(&q, NULL, 0);
    rest_all(&q, end);
    for (int i = 0; i < q.frames.n; i++) q.frames.p[i]->frame = place(&q, q.frames.p[i], 0);
    if (device_is_gpu(p->schedule->device))
        q.plan.shared = SHARED_OWN + q.plan.distributed + q.plan.own;
    p->mem = arena_memdup(a, &q.plan, sizeof q.plan);
}

void memory_constants(Cx *c, const Stmt *loop, int units, int64_t *all, int64_t *share) {
    Constants k = {.c = c, .seen = map_new(c->a), .units = units};
    seq_each_here(loop->loop.body, constants, &k);
    *all = k.all;
    *share = k.share;
}
