/* interp_expr.c: compiles expressions to Code.
 *
 * Every node is placed in the outermost scope where its value exists: uniform nodes run once, and
 * nodes that do not use a reduction's axes run outside of it. A side of a SELECT that contains a
 * GUARD or a REDUCE becomes a conditional block, so that guards know which lanes are active, and
 * expensive work is skipped when no lane needs it.
 */
#include "utask/interp.h"
#include "utask/product.h"

typedef enum { S_DIMS, S_UNI, S_LANE, S_RED, S_COND } ScopeKind;
typedef struct CodeScope {
    struct CodeScope *outer;
    Block *block;
    ScopeKind kind;
    int id;
    uint64_t axes; /* LANE, RED: bits of the axes it binds */
    bool runs;     /* RED: its body runs at least once */
    int mask;      /* COND: register of the active lanes */
} CodeScope;

typedef struct KnownReg {
    struct KnownReg *next;
    int scope, reg;
} KnownReg;
typedef struct Entry { /* what is known about an expression */
    const Expr *e;
    uint64_t axes; /* free axes */
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
    Arena *a, *tmp; /* for the Code, and for what is needed only here */
    Code *k;
    CodeScope *cur;
    int nscope, stamp;
    Map *entry; /* Expr id + 1 -> Entry */
    VEC(AxisReg) bound;
    VEC(RegInfo) reg;
    struct {
        int64_t v;
        int reg;
    } konst[32]; /* int64 constants made here, shared */
    int nconst;
} Compiler;

/* ---- facts about expressions ----------------------------------------------------------------- */
static int bound_index(Compiler *c, const Axis *x) {
    for (int i = c->bound.n - 1; i >= 0; i--)
        if (c->bound.p[i].axis == x) return i;
    AxisReg r = {x, -1};
    vec_push(c->tmp, &c->bound, r);
    return c->bound.n - 1;
}

/* Axes from the 64th on share a bit that is never cleared: nodes using them stay where they are
 * used. */
static uint64_t axis_bit(Compiler *c, const Axis *x) {
    int i = bound_index(c, x);
    return (uint64_t)1 << (i < 63 ? i : 63);
}

static Entry *info(Compiler *c, const Expr *e) {
    Entry *r = map_geti(c->entry, (uint64_t)e->id + 1);
    if (r) return r;
    r = NEW(c->tmp, Entry);
    r->e = e;
    if (e->op == E_AXIS) r->axes = axis_bit(c, e->axis);
    for (int i = 0; i < e->n; i++) r->axes |= info(c, e->a[i])->axes;
    if (e->op == E_REDUCE)
        for (int i = 0; i < e->naxis; i++) r->axes &= ~axis_bit(c, e->raxis[i]) | (uint64_t)1 << 63;
    map_seti(c->entry, (uint64_t)e->id + 1, r);
    return r;
}

/* The scope in which e is computed when scope c->cur needs it. */
static CodeScope *place(Compiler *c, const Entry *e) {
    CodeScope *best = c->cur;
    const bool guard = e->e->flags & EF_GUARD;
    for (CodeScope *s = c->cur; s->outer; s = s->outer) {
        if (s->kind == S_UNI) break;
        if (s->kind == S_COND) {
            if (guard) break;
            if (!(e->e->flags & EF_REDUCE)) best = s->outer;
        } else {
            if (e->axes & s->axes) break;
            if (guard && !s->runs) break;
            best = s->outer;
        }
    }
    return best;
}

/* ---- registers and instructions -------------------------------------------------------------- */
static int reg_new(Compiler *c, DType t) {
    RegInfo r = {.init.c = (uint8_t)lane_class(t)};
    vec_push(c->tmp, &c->reg, r);
    return c->reg.n - 1;
}

static int reg_const(Compiler *c, DType t, RegVal v) {
    int r = reg_new(c, t);
    c->reg.p[r].init.v = v;
    c->reg.p[r].fixed = true;
    return r;
}

static Inst *append(Compiler *c, Block *b, int op) {
    Inst i = {.op = (uint8_t)op, .dst = -1, .a = -1, .b = -1, .c = -1, .m = -1};
    vec_push(c->a, b, i);
    return &b->p[b->n - 1];
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
static int emit_bin(Compiler *c, CodeScope *s, int op, DType t, int a, int b) {
    const Block *k = s->block;
    for (int i = k->n - 1; i >= 0 && i > k->n - 32; i--) {
        const Inst *o = &k->p[i];
        if (o->op == op && o->dt == t && o->a == a && o->b == b) return o->dst;
    }
    return emit(c, s->block, op, t, t, a, b)->dst;
}

static int emit_norm(Compiler *c, CodeScope *s, int a) {
    return emit(c, s->block, I_NORM, DT_BOOL, DT_BOOL, a, -1)->dst;
}

static int slot_for(Compiler *c, const Tensor *t) {
    Code *k = c->k;
    for (int i = k->slot.n - 1; i >= 0; i--)
        if (k->slot.p[i] == t) return i;
    vec_push(c->a, &k->slot, t);
    return k->slot.n - 1;
}

static int gen(Compiler *c, const Expr *e);

/* ---- loads ----------------------------------------------------------------------------------- */
/* A uniform factor: k, times register reg when reg >= 0. */
typedef struct Factor {
    int64_t k;
    int reg;
} Factor;
typedef struct Term {
    CodeScope *s;
    int reg;
} Term;
typedef struct Sum {
    int64_t k;
    VEC(Term) term;
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
static CodeScope *uniform_scope(Compiler *c) {
    CodeScope *s = c->cur;
    while (s->outer && s->kind != S_UNI) s = s->outer;
    return s;
}

static Factor factor_mul(Compiler *c, Factor f, const Expr *e) {
    if (e->op == E_CONST) return (Factor){mul_wrap(f.k, e->i), f.reg};
    int r = gen(c, e);
    return (Factor){f.k, f.reg < 0 ? r : emit_bin(c, uniform_scope(c), E_MUL, DT_I64, f.reg, r)};
}

static bool is_factor(Compiler *c, const Expr *e) {
    return !info(c, e)->axes && !(e->flags & (EF_GUARD | EF_REDUCE));
}

static void sum_add(Compiler *c, Sum *s, CodeScope *at, int reg, Factor f) {
    if (f.k == 0) return;
    if (f.reg >= 0) reg = emit_bin(c, at, E_MUL, DT_I64, reg, f.reg);
    if (f.k != 1) reg = emit_bin(c, at, E_MUL, DT_I64, reg, reg_int(c, f.k));
    Term t = {at, reg};
    vec_push(c->tmp, &s->term, t);
}

/* Adds f * e. Sums are taken apart, so that each part is computed in the outermost scope
 * possible. */
static void sum_collect(Compiler *c, Sum *s, const Expr *e, Factor f) {
    if (e->op == E_CONST && f.reg < 0) {
        s->k = (int64_t)((uint64_t)s->k + (uint64_t)mul_wrap(e->i, f.k));
        return;
    }
    if (s->term.n < MAX_TERMS && info(c, e)->axes) {
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
    int acc = s->k || !s->term.n ? reg_int(c, s->k) : -1;
    VEC(CodeScope *) chain = {0};
    for (CodeScope *x = c->cur; x; x = x->outer) vec_push(c->tmp, &chain, x);
    for (int k = chain.n - 1; k >= 0; k--)
        for (int i = 0; i < s->term.n; i++) {
            const Term *t = &s->term.p[i];
            if (t->s != chain.p[k]) continue;
            acc = acc < 0 ? t->reg : emit_bin(c, t->s, E_ADD, DT_I64, acc, t->reg);
        }
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
static int mask_around(const CodeScope *s) {
    for (; s; s = s->outer)
        if (s->kind == S_COND) return s->mask;
    return -1;
}

/* Generates side e of a SELECT, which is needed on the lanes of register mask. */
static int gen_side(Compiler *c, const Expr *e, int mask) {
    Block *b = NEW(c->a, Block);
    CodeScope s = {.outer = c->cur, .block = b, .kind = S_COND, .id = ++c->nscope, .mask = mask};
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
    for (int k = 0; k < 2; k++) block[k] = e->a[1 + k]->flags & (EF_GUARD | EF_REDUCE);
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
        if (r->ax[i].axis >= 0) c->reg.p[r->ax[i].axis].def = stamp;
        mark_block(c, &r->ax[i].block, stamp);
    }
}
static void mark_block(Compiler *c, const Block *b, int stamp) {
    for (int i = 0; i < b->n; i++) {
        const Inst *k = &b->p[i];
        if (k->dst >= 0) c->reg.p[k->dst].def = stamp;
        if (k->op == I_COND) mark_block(c, k->block, stamp);
        if (k->op == I_REDUCE) {
            c->reg.p[k->red->acc].def = stamp;
            mark_red(c, k->red, 0, stamp);
        }
    }
}

typedef struct Capture {
    VEC(int) reg;
    int stamp;
} Capture;
static void capture_reg(Compiler *c, Capture *k, int r) {
    if (r < 0) return;
    RegInfo *i = &c->reg.p[r];
    if (i->fixed || i->def == k->stamp || i->use == k->stamp) return;
    i->use = k->stamp;
    vec_push(c->a, &k->reg, r);
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
    Red *r = NEW(c->a, Red);
    r->kind = e->kind;
    r->t = body->dtype;
    r->naxis = n;
    r->ax = NEWN(c->a, RedAxis, n);
    r->index = c->k->nred++;
    r->val2 = -1;
    int *saved = NEWN(c->tmp, int, n);
    CodeScope *outer = c->cur, *scope = NEWN(c->tmp, CodeScope, n);
    for (int i = 0; i < n; i++) r->ax[i].extent = gen(c, e->raxis[i]->extent);
    for (int i = 0; i < n; i++) {
        int b = bound_index(c, e->raxis[i]);
        int64_t extent = 0;
        saved[i] = c->bound.p[b].reg;
        r->ax[i].axis = c->bound.p[b].reg = reg_new(c, DT_I64);
        bool runs = e_is_int(e->raxis[i]->extent, &extent) && extent > 0;
        scope[i] = (CodeScope){.outer = c->cur,
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
    for (int i = n - 1; i >= 0; i--) c->bound.p[bound_index(c, e->raxis[i])].reg = saved[i];
    int d = reg_new(c, e->dtype);
    r->acc = r->kind >= R_ARGMAX ? reg_new(c, body->dtype) : d;
    for (int i = 0; i < n; i++) {
        Capture k = {.stamp = ++c->stamp};
        mark_red(c, r, i, k.stamp);
        capture_red(c, &k, r, i);
        r->ax[i].cap = k.reg.p;
        r->ax[i].ncap = k.reg.n;
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
        vec_push(c->a, &k->sym, ((CodeSym){r, e->sym->id}));
        return r;
    case E_INDIM:
    case E_SEED:
    case E_LIMIT:
        r = reg_const(c, e->dtype, v);
        CodeIndim d = {r, -1, e->op == E_SEED};
        if (e->op == E_INDIM) d = (CodeIndim){r, (int)(e->i >> 8), (int8_t)(e->i & 255)};
        vec_push(c->a, &k->indim, d);
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
        told = NEW(c->a, Told);
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
        AxisReg *b = &c->bound.p[bound_index(c, e->axis)];
        if (b->reg < 0) die("an axis is used outside of its tensor or reduction");
        return b->reg;
    }
    bool leaf = e->n == 0 && e->op != E_LOAD;
    CodeScope *at = leaf ? NULL : place(c, i), *cur = c->cur;
    for (const KnownReg *d = i->def; d; d = d->next) {
        if (leaf) return d->reg;
        for (const CodeScope *s = at; s; s = s->outer)
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
    KnownReg *d = NEW(c->tmp, KnownReg);
    *d = (KnownReg){i->def, leaf ? 0 : at->id, r};
    i->def = d;
    return r;
}

static void compile(Compiler *c, const Tensor *t, int n, Expr *const *e) {
    Code *k = c->k;
    CodeScope dims = {.block = &k->d, .kind = S_DIMS, .id = ++c->nscope};
    CodeScope uni = {.outer = &dims, .block = &k->u, .kind = S_UNI, .id = ++c->nscope};
    CodeScope lane = {
        .outer = &uni, .block = &k->l, .kind = S_LANE, .id = ++c->nscope, .runs = true};
    k->result = -1;
    k->rank = t ? tensor_ndim(t) : 0;
    k->nout = k->rank + n;
    k->out = NEWN(c->a, int, k->nout + 1);
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
                c->bound.p[b].reg = reg_new(c, DT_I64);
                lane.axes |= axis_bit(c, t->axis[i]);
            }
        c->cur = &lane;
        k->result = gen(c, t->body);
        bool *used = NEWN(c->tmp, bool, c->reg.n);
        used[k->result] = true;
        Capture all = {.stamp = ++c->stamp};
        capture_block(c, &all, &k->l);
        for (int i = 0; i < all.reg.n; i++) used[all.reg.p[i]] = true;
        for (int i = 0; i < k->rank; i++) {
            int r = t->axis[i] ? c->bound.p[bound_index(c, t->axis[i])].reg : -1;
            k->axis[i] = r >= 0 && used[r] ? r : -1;
        }
    }
    k->nreg = c->reg.n;
    k->init = NEWN(c->a, Reg, k->nreg + 1);
    for (int i = 0; i < k->nreg; i++) k->init[i] = c->reg.p[i].init;
}

Code *code_compile(Arena *a, Arena *tmp, const Tensor *t, int n, Expr *const *e) {
    Compiler c = {.a = a, .tmp = tmp, .k = NEW(a, Code), .entry = map_new(tmp)};
    compile(&c, t, n, e);
    return c.k;
}
