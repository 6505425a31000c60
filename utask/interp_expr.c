/* interp_expr.c: compiles expressions to Code.
 *
 * Every node is placed in the outermost scope where its value exists: uniform nodes run once, and
 * nodes that do not use a reduction's axes run outside of it. A side of a SELECT that contains a
 * GUARD or a REDUCE becomes a conditional block, so that guards know which lanes are active, and
 * expensive work is skipped when no lane needs it.
 */
#include "utask/interp.h"
#include "utask/product.h"
#include <stdlib.h>

typedef enum { S_DIMS, S_UNI, S_LANE, S_RED, S_COND } ScopeKind;
typedef struct Scope {
    struct Scope *outer;
    Block *block;
    ScopeKind kind;
    int id;
    uint64_t axes; /* LANE, RED: bits of the axes it binds */
    bool runs;     /* RED: its body runs at least once */
    int mask;      /* COND: register of the active lanes */
} Scope;

typedef struct KnownReg {
    struct KnownReg *next;
    int scope, reg;
} KnownReg;
typedef struct Entry { /* what is known about an expression */
    const Expr *e;
    uint64_t axes; /* free axes */
    bool guard, reduce;
    KnownReg *def;
} Entry;

typedef struct AxisReg {
    const Axis *axis;
    int reg; /* -1: none yet */
} AxisReg;
typedef struct RegInfo {
    Reg init;
    bool fixed; /* constant, symbol or input size: set before anything runs */
    int def, use;
} RegInfo;

typedef struct Compiler {
    Pool *pool, tmp;
    Code *k;
    Scope *cur;
    int nscope;
    Entry **tab;
    int ntab, tab_cap;
    AxisReg *bound;
    int nbound, bound_cap;
    RegInfo *reg;
    int reg_cap, stamp;
    int slot_cap, sym_cap, indim_cap;
    struct {
        int64_t v;
        int reg;
    } konst[32]; /* int64 constants made here, shared */
    int nconst;
} Compiler;

#if BRAID_TINY
#define POOL_BLOCK ((size_t)16)
#else
#define POOL_BLOCK ((size_t)4000)
#endif

/* ---- memory ---------------------------------------------------------------------------------- */
struct PoolBlock {
    struct PoolBlock *next;
};

void *pool_alloc(Pool *p, size_t n) {
    n = (n + 15) & ~(size_t)15;
    if ((size_t)(p->end - p->at) < n) {
        size_t size = n > POOL_BLOCK ? n : POOL_BLOCK;
        struct PoolBlock *b = malloc(size + 16);
        if (!b) longjmp(*p->fail, 1);
        b->next = p->block;
        p->block = b;
        p->at = (char *)b + 16;
        p->end = p->at + size;
    }
    void *r = p->at;
    p->at += n;
    return memset(r, 0, n);
}

void pool_free(Pool *p) {
    for (struct PoolBlock *b = p->block, *next; b; b = next) {
        next = b->next;
        free(b);
    }
    p->block = NULL;
    p->at = p->end = NULL;
}

void *pool_grow(Pool *p, void *old, int n, int *cap, size_t elem) {
    if (n < *cap) return old;
    int c = *cap ? *cap * 2 : 8;
    void *r = pool_alloc(p, (size_t)c * elem);
    if (n) memcpy(r, old, (size_t)n * elem);
    *cap = c;
    return r;
}

/* ---- facts about expressions ----------------------------------------------------------------- */
static int bound_index(Compiler *c, const Axis *x) {
    for (int i = c->nbound - 1; i >= 0; i--)
        if (c->bound[i].axis == x) return i;
    c->bound = pool_grow(&c->tmp, c->bound, c->nbound, &c->bound_cap, sizeof *c->bound);
    c->bound[c->nbound] = (AxisReg){x, -1};
    return c->nbound++;
}

/* Axes from the 64th on share a bit that is never cleared: nodes using them stay where they are
 * used. */
static uint64_t axis_bit(Compiler *c, const Axis *x) {
    int i = bound_index(c, x);
    return (uint64_t)1 << (i < 63 ? i : 63);
}

static size_t slot_of(const Compiler *c, const Expr *e) {
    size_t h = (size_t)e->id * 0x9e3779b97f4a7c15u, m = (size_t)c->tab_cap - 1;
    for (h = (h >> 20) & m; c->tab[h] && c->tab[h]->e != e;) h = (h + 1) & m;
    return h;
}

static Entry *info(Compiler *c, const Expr *e) {
    size_t s = slot_of(c, e);
    if (c->tab[s]) return c->tab[s];
    Entry *r = pool_alloc(&c->tmp, sizeof *r);
    r->e = e;
    r->guard = e->op == E_GUARD;
    r->reduce = e->op == E_REDUCE;
    if (e->op == E_AXIS) r->axes = axis_bit(c, e->axis);
    for (int i = 0; i < e->n; i++) {
        const Entry *a = info(c, e->a[i]);
        r->axes |= a->axes;
        r->guard |= a->guard;
        r->reduce |= a->reduce;
    }
    if (e->op == E_REDUCE)
        for (int i = 0; i < e->naxis; i++) r->axes &= ~axis_bit(c, e->raxis[i]) | (uint64_t)1 << 63;
    if (c->ntab * 2 >= c->tab_cap) {
        Entry **old = c->tab;
        int n = c->tab_cap;
        c->tab_cap = n * 2;
        c->tab = pool_alloc(&c->tmp, sizeof *c->tab * (size_t)c->tab_cap);
        for (int i = 0; i < n; i++)
            if (old[i]) c->tab[slot_of(c, old[i]->e)] = old[i];
    }
    c->tab[slot_of(c, e)] = r;
    c->ntab++;
    return r;
}

/* The scope in which e is computed when scope c->cur needs it. */
static Scope *place(Compiler *c, const Entry *e) {
    Scope *best = c->cur;
    for (Scope *s = c->cur; s->outer; s = s->outer) {
        if (s->kind == S_UNI) break;
        if (s->kind == S_COND) {
            if (e->guard) break;
            if (!e->reduce) best = s->outer;
        } else {
            if (e->axes & s->axes) break;
            if (e->guard && !s->runs) break;
            best = s->outer;
        }
    }
    return best;
}

/* ---- registers and instructions -------------------------------------------------------------- */
static int reg_new(Compiler *c, DType t) {
    c->reg = pool_grow(&c->tmp, c->reg, c->k->nreg, &c->reg_cap, sizeof *c->reg);
    memset(&c->reg[c->k->nreg], 0, sizeof *c->reg);
    c->reg[c->k->nreg].init.c = (uint8_t)lane_class(t);
    return c->k->nreg++;
}

static int reg_const(Compiler *c, DType t, RegVal v) {
    int r = reg_new(c, t);
    c->reg[r].init.v = v;
    c->reg[r].fixed = true;
    return r;
}

static Inst *append(Compiler *c, Block *b, int op) {
    b->p = pool_grow(c->pool, b->p, b->n, &b->cap, sizeof *b->p);
    Inst *i = &b->p[b->n++];
    memset(i, 0, sizeof *i);
    i->op = (uint8_t)op;
    i->dst = i->a = i->b = i->c = i->m = -1;
    return i;
}

/* A new register of type t = op of a and b, which are of type from. */
static Inst *emit(Compiler *c, Block *to, int op, DType t, DType from, int a, int b) {
    int d = reg_new(c, t);
    Inst *i = append(c, to, op);
    i->dt = (uint8_t)t;
    i->sdt = (uint8_t)from;
    i->dst = d, i->a = a, i->b = b;
    return i;
}

/* Emits dst = a op b in scope s, unless one of the latest instructions there does the same. */
static int emit_bin(Compiler *c, Scope *s, int op, DType t, int a, int b) {
    const Block *k = s->block;
    for (int i = k->n - 1; i >= 0 && i > k->n - 32; i--) {
        const Inst *o = &k->p[i];
        if (o->op == op && o->dt == t && o->a == a && o->b == b) return o->dst;
    }
    return emit(c, s->block, op, t, t, a, b)->dst;
}

static int emit_norm(Compiler *c, Scope *s, int a) {
    return emit(c, s->block, I_NORM, DT_BOOL, DT_BOOL, a, -1)->dst;
}

static int slot_for(Compiler *c, const Tensor *t) {
    Code *k = c->k;
    for (int i = k->nslot - 1; i >= 0; i--)
        if (k->slot[i] == t) return i;
    k->slot = pool_grow(c->pool, k->slot, k->nslot, &c->slot_cap, sizeof *k->slot);
    k->slot[k->nslot] = t;
    return k->nslot++;
}

static int gen(Compiler *c, const Expr *e);

/* ---- loads ----------------------------------------------------------------------------------- */
/* A uniform factor: k, times register reg when reg >= 0. */
typedef struct Factor {
    int64_t k;
    int reg;
} Factor;
typedef struct Sum {
    int64_t k;
    struct {
        Scope *s;
        int reg;
    } * term;
    int n, cap;
} Sum;
enum { MAX_TERMS = 64 };

static int reg_int(Compiler *c, int64_t v) {
    for (int i = 0; i < c->nconst; i++)
        if (c->konst[i].v == v) return c->konst[i].reg;
    int r = reg_const(c, DT_I64, (RegVal){.i = v});
    if (c->nconst < (int)COUNT(c->konst)) {
        c->konst[c->nconst].v = v;
        c->konst[c->nconst++].reg = r;
    }
    return r;
}

static int64_t mul_wrap(int64_t a, int64_t b) { return (int64_t)((uint64_t)a * (uint64_t)b); }

/* The outermost scope for uniform values. */
static Scope *uniform_scope(Compiler *c) {
    Scope *s = c->cur;
    while (s->outer && s->kind != S_UNI) s = s->outer;
    return s;
}

static Factor factor_mul(Compiler *c, Factor f, const Expr *e) {
    if (e->op == E_CONST) return (Factor){mul_wrap(f.k, e->i), f.reg};
    int r = gen(c, e);
    return (Factor){f.k, f.reg < 0 ? r : emit_bin(c, uniform_scope(c), E_MUL, DT_I64, f.reg, r)};
}

static bool is_factor(Compiler *c, const Expr *e) {
    const Entry *i = info(c, e);
    return !i->axes && !i->guard && !i->reduce;
}

static void sum_add(Compiler *c, Sum *s, Scope *at, int reg, Factor f) {
    if (f.k == 0) return;
    if (f.reg >= 0) reg = emit_bin(c, at, E_MUL, DT_I64, reg, f.reg);
    if (f.k != 1) reg = emit_bin(c, at, E_MUL, DT_I64, reg, reg_int(c, f.k));
    s->term = pool_grow(&c->tmp, s->term, s->n, &s->cap, sizeof *s->term);
    s->term[s->n].s = at;
    s->term[s->n++].reg = reg;
}

/* Adds f * e. Sums are taken apart, so that each part is computed in the outermost scope
 * possible. */
static void sum_collect(Compiler *c, Sum *s, const Expr *e, Factor f) {
    if (e->op == E_CONST && f.reg < 0) {
        s->k = (int64_t)((uint64_t)s->k + (uint64_t)mul_wrap(e->i, f.k));
        return;
    }
    if (s->n < MAX_TERMS && info(c, e)->axes) {
        Factor minus = {mul_wrap(f.k, -1), f.reg};
        switch (e->op) {
        case E_ADD:
        case E_SUB:
            sum_collect(c, s, e->a[0], f);
            sum_collect(c, s, e->a[1], e->op == E_ADD ? f : minus);
            return;
        case E_NEG: sum_collect(c, s, e->a[0], minus); return;
        case E_MUL:
            for (int i = 0; i < 2; i++)
                if (is_factor(c, e->a[i])) {
                    sum_collect(c, s, e->a[1 - i], factor_mul(c, f, e->a[i]));
                    return;
                }
            break;
        default: break;
        }
    }
    int r = gen(c, e);
    sum_add(c, s, place(c, info(c, e)), r, f);
}

static int sum_total(Compiler *c, Sum *s) {
    int acc = s->k || !s->n ? reg_int(c, s->k) : -1, nchain = 0, cap = 0;
    Scope **chain = NULL;
    for (Scope *x = c->cur; x; x = x->outer) {
        chain = pool_grow(&c->tmp, chain, nchain, &cap, sizeof(Scope *));
        chain[nchain++] = x;
    }
    for (int k = nchain - 1; k >= 0; k--)
        for (int i = 0; i < s->n; i++)
            if (s->term[i].s == chain[k])
                acc = acc < 0 ? s->term[i].reg
                              : emit_bin(c, chain[k], E_ADD, DT_I64, acc, s->term[i].reg);
    return acc;
}

static int gen_load(Compiler *c, const Expr *e) {
    const Tensor *t = e->t;
    Sum s = {0};
    Factor stride = {1, -1};
    if (e->kind == 1)
        sum_collect(c, &s, e->a[0], stride);
    else
        for (int d = e->n - 1; d >= 0; d--) {
            sum_collect(c, &s, e->a[d], stride);
            if (d && t->dim[d]) stride = factor_mul(c, stride, t->dim[d]);
        }
    int flat = sum_total(c, &s);
    Inst *i = emit(c, c->cur->block, E_LOAD, t->dtype, t->dtype, flat, -1);
    i->imm = slot_for(c, t);
    return i->dst;
}

/* ---- conditions ------------------------------------------------------------------------------ */
static int mask_around(const Scope *s) {
    for (; s; s = s->outer)
        if (s->kind == S_COND) return s->mask;
    return -1;
}

/* Generates side e of a SELECT, which is needed on the lanes of register mask. */
static int gen_side(Compiler *c, const Expr *e, int mask) {
    Block *b = pool_alloc(c->pool, sizeof *b);
    Scope s = {.outer = c->cur, .block = b, .kind = S_COND, .id = ++c->nscope, .mask = mask};
    c->cur = &s;
    int r = gen(c, e);
    c->cur = s.outer;
    if (!b->n) return r;
    Inst *i = append(c, c->cur->block, I_COND);
    i->a = mask;
    i->block = b;
    for (int k = 0; k < b->n; k++)
        if (b->p[k].dst == r) i->dst = r;
    return r;
}

static int gen_select(Compiler *c, const Expr *e) {
    int cond = gen(c, e->a[0]), side[2];
    bool block[2];
    for (int k = 0; k < 2; k++) {
        const Entry *i = info(c, e->a[1 + k]);
        block[k] = i->guard || i->reduce;
    }
    if (block[0] || block[1]) cond = emit_norm(c, c->cur, cond);
    int around = mask_around(c->cur);
    for (int k = 0; k < 2; k++) {
        if (!block[k]) {
            side[k] = gen(c, e->a[1 + k]);
            continue;
        }
        int m =
            k ? emit_bin(c, c->cur, E_XOR, DT_BOOL, cond, reg_const(c, DT_BOOL, (RegVal){.b = 1}))
              : cond;
        if (around >= 0) m = emit_bin(c, c->cur, E_AND, DT_BOOL, around, m);
        side[k] = gen_side(c, e->a[1 + k], emit_norm(c, c->cur, m));
    }
    Inst *i = emit(c, c->cur->block, E_SELECT, e->dtype, e->dtype, cond, side[0]);
    i->c = side[1];
    return i->dst;
}

/* ---- reductions ------------------------------------------------------------------------------ */
static void mark_block(Compiler *c, const Block *b, int stamp);
static void mark_red(Compiler *c, const Red *r, int from, int stamp) {
    for (int i = from; i < r->naxis; i++) {
        if (r->ax[i].axis >= 0) c->reg[r->ax[i].axis].def = stamp;
        mark_block(c, &r->ax[i].block, stamp);
    }
}
static void mark_block(Compiler *c, const Block *b, int stamp) {
    for (int i = 0; i < b->n; i++) {
        const Inst *k = &b->p[i];
        if (k->dst >= 0) c->reg[k->dst].def = stamp;
        if (k->op == I_COND) mark_block(c, k->block, stamp);
        if (k->op == I_REDUCE) {
            c->reg[k->red->acc].def = stamp;
            mark_red(c, k->red, 0, stamp);
        }
    }
}

typedef struct Capture {
    int *p, n, cap, stamp;
} Capture;
static void capture_reg(Compiler *c, Capture *k, int r) {
    if (r < 0) return;
    RegInfo *i = &c->reg[r];
    if (i->fixed || i->def == k->stamp || i->use == k->stamp) return;
    i->use = k->stamp;
    k->p = pool_grow(c->pool, k->p, k->n, &k->cap, sizeof *k->p);
    k->p[k->n++] = r;
}
static void capture_block(Compiler *c, Capture *k, const Block *b);
static void capture_red(Compiler *c, Capture *k, const Red *r, int from) {
    for (int i = from; i < r->naxis; i++) {
        capture_reg(c, k, r->ax[i].extent);
        capture_block(c, k, &r->ax[i].block);
    }
    capture_reg(c, k, r->val);
    capture_reg(c, k, r->val2);
}
static void capture_block(Compiler *c, Capture *k, const Block *b) {
    for (int i = 0; i < b->n; i++) {
        const Inst *x = &b->p[i];
        capture_reg(c, k, x->a);
        capture_reg(c, k, x->b);
        capture_reg(c, k, x->c);
        capture_reg(c, k, x->m);
        if (x->op == I_COND) capture_block(c, k, x->block);
        if (x->op == I_REDUCE) capture_red(c, k, x->red, 0);
        for (int j = 0; x->op == E_GUARD && x->told && j < x->told->n; j++)
            capture_reg(c, k, x->told->reg[j]);
    }
}

static int gen_reduce(Compiler *c, const Expr *e) {
    const Expr *body = e->a[0];
    int n = e->naxis;
    if (n == 0) return gen(c, body);
    Red *r = pool_alloc(c->pool, sizeof *r);
    r->kind = e->kind;
    r->t = body->dtype;
    r->naxis = n;
    r->ax = pool_alloc(c->pool, sizeof *r->ax * (size_t)n);
    r->index = c->k->nred++;
    r->val2 = -1;
    int *saved = pool_alloc(&c->tmp, sizeof *saved * (size_t)n);
    Scope *outer = c->cur, *scope = pool_alloc(&c->tmp, sizeof *scope * (size_t)n);
    for (int i = 0; i < n; i++) r->ax[i].extent = gen(c, e->raxis[i]->extent);
    for (int i = 0; i < n; i++) {
        int b = bound_index(c, e->raxis[i]);
        int64_t extent = 0;
        saved[i] = c->bound[b].reg;
        r->ax[i].axis = c->bound[b].reg = reg_new(c, DT_I64);
        bool runs = e_is_int(e->raxis[i]->extent, &extent) && extent > 0;
        scope[i] = (Scope){.outer = c->cur,
                           .block = &r->ax[i].block,
                           .kind = S_RED,
                           .id = ++c->nscope,
                           .axes = axis_bit(c, e->raxis[i]),
                           .runs = runs};
        c->cur = &scope[i];
    }
    bool muladd = is_sum_of_products(e) && (body->dtype == DT_F32 || body->dtype == DT_F64) &&
                  (info(c, body)->axes & scope[n - 1].axes);
    r->val = gen(c, muladd ? body->a[0] : body);
    if (muladd) r->val2 = gen(c, body->a[1]);
    c->cur = outer;
    for (int i = n - 1; i >= 0; i--) c->bound[bound_index(c, e->raxis[i])].reg = saved[i];
    int d = reg_new(c, e->dtype);
    r->acc = r->kind >= R_ARGMAX ? reg_new(c, body->dtype) : d;
    for (int i = 0; i < n; i++) {
        Capture k = {.stamp = ++c->stamp};
        mark_red(c, r, i, k.stamp);
        capture_red(c, &k, r, i);
        r->ax[i].cap = k.p;
        r->ax[i].ncap = k.n;
    }
    Inst *i = append(c, c->cur->block, I_REDUCE);
    i->dt = e->dtype;
    i->sdt = body->dtype;
    i->dst = d;
    i->red = r;
    return d;
}

/* ---- everything else ------------------------------------------------------------------------- */
static int gen_leaf(Compiler *c, const Expr *e) {
    Code *k = c->k;
    RegVal v = {0};
    int r;
    switch (e->op) {
    case E_CONST: return reg_const(c, e->dtype, lane_of(e->dtype, e));
    case E_SYM:
        r = reg_const(c, e->dtype, v);
        k->sym = pool_grow(c->pool, k->sym, k->nsym, &c->sym_cap, sizeof *k->sym);
        k->sym[k->nsym++] = (struct CodeSym){r, e->sym->id};
        return r;
    case E_INDIM:
    case E_SEED:
    case E_LIMIT:
        r = reg_const(c, e->dtype, v);
        k->indim = pool_grow(c->pool, k->indim, k->nindim, &c->indim_cap, sizeof *k->indim);
        k->indim[k->nindim++] = e->op != E_INDIM
                                    ? (struct CodeIndim){r, -1, e->op == E_SEED}
                                    : (struct CodeIndim){r, (int)(e->i >> 8), (int8_t)(e->i & 255)};
        return r;
    default: die("not a leaf: %s", expr_row[e->op].name);
    }
}

static int gen_node(Compiler *c, const Expr *e) {
    if (e->op == E_LOAD) return gen_load(c, e);
    if (e->op == E_REDUCE) return gen_reduce(c, e);
    if (e->op == E_SELECT) return gen_select(c, e);
    if (e->op == E_TELL) return gen(c, e->a[0]);
    int a[3] = {-1, -1, -1};
    ASSERT(e->n <= 3);
    for (int i = 0; i < e->n; i++) a[i] = gen(c, e->a[i]);
    Told *told = NULL;
    if (e->op == E_GUARD && e->a[0]->op == E_TELL) {
        told = pool_alloc(c->pool, sizeof *told);
        told->n = e->a[0]->n - 1;
        for (int i = 0; i < told->n; i++) told->reg[i] = gen(c, e->a[0]->a[1 + i]);
    }
    if (e_is_binary(e->op) && !e_is_compare(e->op))
        return emit_bin(c, c->cur, e->op, e->dtype, a[0], a[1]);
    Inst *i = emit(c, c->cur->block, e->op, e->dtype, e->a[0]->dtype, a[0], a[1]);
    i->c = a[2];
    if (e->op == E_GUARD) {
        i->imm = (int)e->i;
        i->told = told;
        i->m = mask_around(c->cur);
    }
    return i->dst;
}

/* The register that holds e in the scope c->cur. */
static int gen(Compiler *c, const Expr *e) {
    Entry *i = info(c, e);
    if (e->op == E_AXIS) {
        AxisReg *b = &c->bound[bound_index(c, e->axis)];
        if (b->reg < 0) die("an axis is used outside of its tensor or reduction");
        return b->reg;
    }
    bool leaf = e->n == 0 && e->op != E_LOAD;
    Scope *at = leaf ? NULL : place(c, i), *cur = c->cur;
    for (const KnownReg *d = i->def; d; d = d->next) {
        if (leaf) return d->reg;
        for (const Scope *s = at; s; s = s->outer)
            if (d->scope == s->id) return d->reg;
    }
    int r;
    if (leaf)
        r = gen_leaf(c, e);
    else {
        c->cur = at;
        r = gen_node(c, e);
        c->cur = cur;
    }
    KnownReg *d = pool_alloc(&c->tmp, sizeof *d);
    *d = (KnownReg){i->def, leaf ? 0 : at->id, r};
    i->def = d;
    return r;
}

static void compile(Compiler *c, const Tensor *t, int n, Expr *const *e) {
    Code *k = c->k;
    Scope dims = {.block = &k->d, .kind = S_DIMS, .id = ++c->nscope};
    Scope uni = {.outer = &dims, .block = &k->u, .kind = S_UNI, .id = ++c->nscope};
    Scope lane = {.outer = &uni, .block = &k->l, .kind = S_LANE, .id = ++c->nscope, .runs = true};
    c->tab_cap = 64;
    c->tab = pool_alloc(&c->tmp, sizeof *c->tab * (size_t)c->tab_cap);
    k->result = -1;
    k->rank = t ? tensor_ndim(t) : 0;
    k->nout = k->rank + n;
    k->out = pool_alloc(c->pool, sizeof *k->out * (size_t)(k->nout + 1));
    c->cur = &dims;
    for (int i = 0; i < k->nout; i++) {
        const Expr *x = i >= k->rank ? e[i - k->rank] : t->dim[i];
        k->out[i] = x ? gen(c, x) : reg_int(c, i < k->rank);
    }
    if (t) {
        k->t = t->dtype;
        for (int i = 0; i < k->rank; i++)
            if (t->axis[i]) {
                int b = bound_index(c, t->axis[i]);
                c->bound[b].reg = reg_new(c, DT_I64);
                lane.axes |= axis_bit(c, t->axis[i]);
            }
        c->cur = &lane;
        k->result = gen(c, t->body);
        bool *used = pool_alloc(&c->tmp, sizeof *used * (size_t)k->nreg);
        used[k->result] = true;
        Capture all = {.stamp = ++c->stamp};
        capture_block(c, &all, &k->l);
        for (int i = 0; i < all.n; i++) used[all.p[i]] = true;
        for (int i = 0; i < k->rank; i++) {
            int r = t->axis[i] ? c->bound[bound_index(c, t->axis[i])].reg : -1;
            k->axis[i] = r >= 0 && used[r] ? r : -1;
        }
    }
    k->init = pool_alloc(c->pool, sizeof *k->init * (size_t)(k->nreg + 1));
    for (int i = 0; i < k->nreg; i++) k->init[i] = c->reg[i].init;
}

Code *code_compile(Pool *pool, const Tensor *t, int n, Expr *const *e) {
    jmp_buf here, *up = pool->fail;
    Compiler c = {.pool = pool, .tmp = {.fail = &here}};
    Compiler *volatile vc = &c;
    c.k = pool_alloc(pool, sizeof *c.k);
    pool->fail = &here;
    if (setjmp(here)) {
        pool_free(&vc->tmp);
        pool->fail = up;
        longjmp(*up, 1);
    }
    compile(&c, t, n, e);
    pool->fail = up;
    pool_free(&c.tmp);
    return c.k;
}
