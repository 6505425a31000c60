/* interp_exec.c: runs Code. */
#include "utask/interp.h"
#include "codegen/text/extern/extern.inc"
#include "codegen/text/extern/seq.inc"
#include "codegen/text/memory.inc"
#include <stdlib.h>

void exec_fault(Exec *x, Status st, int site, const char *fmt, ...) {
    x->status = st;
    x->site = site;
    if (fmt) {
        va_list ap;
        int n = x->where ? snprintf(x->text, sizeof x->text, "%.500s: ", x->where) : 0;
        va_start(ap, fmt);
        vsnprintf(x->text + n, sizeof x->text - (size_t)n, fmt, ap);
        va_end(ap);
    }
    longjmp(x->fail, 1);
}

/* ---- buffers --------------------------------------------------------------------------------- */
void exec_take(Exec *x, int64_t bytes) {
    char text[256];
    if (x->most && bytes > x->most - x->taken) {
        bk_limit_text(text, sizeof text, "the run needs", x->taken + bytes, x->most);
        exec_fault(x, ST_MEMORY, -1, "%s", text);
    }
    x->taken += bytes;
}

Buf *buf_new(Exec *x, DType t, int64_t count) {
    int64_t bytes = 0;
    if (!mul_size(count, (int64_t)dtype_size(t), &bytes) || bytes > (int64_t)1 << 40)
        exec_fault(x, ST_MEMORY, -1, "a tensor of %lld elements of %s is too large",
                   (long long)count, dtype_name(t));
    exec_take(x, bytes);
    Buf *b = malloc(sizeof *b);
    void *data = malloc(bytes ? (size_t)bytes : 1);
    if (!b || !data) {
        free(b);
        free(data);
        exec_fault(x, ST_MEMORY, -1, "out of memory: a tensor needs %lld bytes", (long long)bytes);
    }
    *b = (Buf){1, t, count, data, false, &x->taken};
    return b;
}

void buf_unref(Buf *b) {
    if (!b || --b->refs) return;
    if (b->taken) *b->taken -= b->count * (int64_t)dtype_size(b->dtype);
    if (!b->borrowed) free(b->data);
    free(b);
}

/* ---- registers ------------------------------------------------------------------------------- */
static int64_t add(int64_t a, int64_t b) { return (int64_t)((uint64_t)a + (uint64_t)b); }
static int64_t sub(int64_t a, int64_t b) { return (int64_t)((uint64_t)a - (uint64_t)b); }
static int64_t mul(int64_t a, int64_t b) { return (int64_t)((uint64_t)a * (uint64_t)b); }

static void *store_of(const Exec *x, int reg) { return x->store + (size_t)reg * x->stride; }

static void set_uni(Reg *d, RegVal v) {
    d->k = RK_UNI;
    d->v = v;
}
static void set_int(Reg *d, int64_t v) { set_uni(d, (RegVal){.i = v}); }
static void set_bool(Reg *d, bool v) { set_uni(d, (RegVal){.b = v}); }
static void set_lin(Reg *d, int64_t base, int64_t step) {
    d->k = step ? RK_LIN : RK_UNI;
    d->v.i = base;
    d->step = step;
}
static void set_vec(Reg *d, const void *p) {
    d->k = RK_VEC;
    d->mm = false;
    d->v.i = 0;
    d->p = p;
}
static void set_copy(Reg *d, const Reg *a) {
    uint8_t c = d->c;
    *d = *a;
    d->c = c;
}

/* Pointer to the n lanes of r, or to one value with stride 0. */
static const void *operand(Exec *x, const Reg *r, int n, int tmp, int *stride) {
    *stride = r->k != RK_UNI;
    if (r->k == RK_UNI) return &r->v;
    if (r->k == RK_VEC && (r->c != CL_I || !r->v.i)) return r->p;
    int64_t *t = x->tmp[tmp], base = r->v.i, step = r->step;
    if (r->k == RK_LIN) {
        for (int l = 0; l < n; l++) t[l] = (int64_t)((uint64_t)base + (uint64_t)step * (uint64_t)l);
    } else {
        const int64_t *p = r->p;
        for (int l = 0; l < n; l++) t[l] = add(p[l], base);
    }
    return t;
}

static void bound_vec(Reg *r, int n) {
    if (r->mm) return;
    const int64_t *p = r->p;
    int64_t lo = p[0], hi = p[0];
    for (int l = 1; l < n; l++) {
        lo = p[l] < lo ? p[l] : lo;
        hi = p[l] > hi ? p[l] : hi;
    }
    r->lo = lo, r->hi = hi, r->mm = true;
}

/* Bounds of an int64 register where they are known and nothing wraps. */
static bool bounds(const Reg *r, int n, int64_t *lo, int64_t *hi) {
    if (r->k == RK_UNI) {
        *lo = *hi = r->v.i;
        return true;
    }
    if (r->k == RK_LIN) {
        int64_t last;
        if (__builtin_mul_overflow(r->step, (int64_t)(n - 1), &last) ||
            __builtin_add_overflow(r->v.i, last, &last))
            return false;
        *lo = r->step < 0 ? last : r->v.i;
        *hi = r->step < 0 ? r->v.i : last;
        return true;
    }
    return r->mm && !__builtin_add_overflow(r->lo, r->v.i, lo) &&
           !__builtin_add_overflow(r->hi, r->v.i, hi);
}

/* ---- int64 arithmetic on registers that are not arrays --------------------------------------- */
static bool divide(Exec *x, const Inst *i, Reg *a, int64_t by, int n) {
    Reg *d = &x->reg[i->dst];
    int64_t lo, hi;
    bool quot = i->op == E_DIV || i->op == E_FDIV;
    if (a->k == RK_VEC) bound_vec(a, n);
    if (by <= 0 || !bounds(a, n, &lo, &hi) || lo < 0) return false;
    int64_t q = lo / by;
    if (q == hi / by) {
        if (quot)
            set_int(d, q);
        else {
            set_copy(d, a);
            d->v.i = sub(a->v.i, mul(q, by));
        }
        return true;
    }
    int64_t *restrict o = store_of(x, i->dst);
    if (a->k == RK_LIN && a->step > 0 && a->step <= by) {
        int64_t r = lo - q * by;
        for (int l = 0; l < n; l++) {
            o[l] = quot ? q : r;
            r += a->step;
            if (r >= by) r -= by, q++;
        }
    } else if (hi <= UINT32_MAX && by <= UINT32_MAX) {
        int s;
        const int64_t *p = operand(x, a, n, 0, &s);
        uint32_t y = (uint32_t)by;
        if (quot)
            for (int l = 0; l < n; l++) o[l] = (uint32_t)p[l] / y;
        else
            for (int l = 0; l < n; l++) o[l] = (uint32_t)p[l] % y;
    } else
        return false;
    set_vec(d, o);
    return true;
}

static bool int_shortcut(Exec *x, const Inst *i, int n) {
    Reg *d = &x->reg[i->dst], *a = &x->reg[i->a], *b = i->b < 0 ? NULL : &x->reg[i->b];
    int64_t alo, ahi, blo, bhi;
    switch (i->op) {
    case E_NEG:
        if (a->k == RK_VEC) return false;
        set_lin(d, sub(0, a->v.i), a->k == RK_LIN ? sub(0, a->step) : 0);
        return true;
    case E_ADD:
    case E_SUB: {
        int64_t sign = i->op == E_ADD ? 1 : -1;
        if (a->k == RK_UNI && sign > 0) {
            Reg *t = a;
            a = b, b = t;
        }
        if (b->k == RK_VEC || (a->k == RK_VEC && b->k != RK_UNI)) return false;
        int64_t base = add(a->v.i, mul(b->v.i, sign));
        if (a->k != RK_VEC) {
            set_lin(d, base,
                    add(a->k == RK_LIN ? a->step : 0, b->k == RK_LIN ? mul(b->step, sign) : 0));
            return true;
        }
        bound_vec(a, n);
        set_copy(d, a);
        d->v.i = base;
        return true;
    }
    case E_MUL:
        if (a->k == RK_UNI) {
            Reg *t = a;
            a = b, b = t;
        }
        if (b->k != RK_UNI) return false;
        if (a->k != RK_VEC) {
            set_lin(d, mul(a->v.i, b->v.i), a->k == RK_LIN ? mul(a->step, b->v.i) : 0);
            return true;
        }
        if (b->v.i == 0)
            set_int(d, 0);
        else if (b->v.i == 1)
            set_copy(d, a);
        else
            return false;
        return true;
    case E_DIV:
    case E_FDIV:
    case E_MOD:
    case E_FMOD: return a->k != RK_UNI && b->k == RK_UNI && divide(x, i, a, b->v.i, n);
    case E_MIN:
    case E_MAX:
        if (!bounds(a, n, &alo, &ahi) || !bounds(b, n, &blo, &bhi)) return false;
        if (ahi > blo && bhi > alo) return false;
        set_copy(d, (ahi <= blo) == (i->op == E_MIN) ? a : b);
        return true;
    default: return false;
    }
}

/* ---- instructions ---------------------------------------------------------------------------- */
static void run_block(Exec *x, const Block *b, int n);

static bool compare_shortcut(Reg *d, const Inst *i, const Reg *a, const Reg *b, int n) {
    int64_t alo, ahi, blo, bhi;
    if (!bounds(a, n, &alo, &ahi) || !bounds(b, n, &blo, &bhi)) return false;
    bool yes, no;
    switch (i->op) {
    case E_LT: yes = ahi < blo, no = alo >= bhi; break;
    case E_LE: yes = ahi <= blo, no = alo > bhi; break;
    default: yes = alo == bhi && ahi == blo, no = ahi < blo || alo > bhi; break;
    }
    if (yes || no) set_bool(d, yes);
    return yes || no;
}

/* A uniform operand either decides the result or leaves the other operand. */
static bool logic_shortcut(Reg *d, const Inst *i, const Reg *a, const Reg *b) {
    if (i->sdt != DT_BOOL || (i->op != E_AND && i->op != E_OR)) return false;
    if (a->k != RK_UNI) {
        const Reg *t = a;
        a = b, b = t;
    }
    if (a->k != RK_UNI) return false;
    if (a->v.b == (i->op == E_OR))
        set_bool(d, a->v.b);
    else
        set_copy(d, b);
    return true;
}

static void scalar(Exec *x, const Inst *i, int n) {
    bool two = e_is_binary(i->op);
    Reg *d = &x->reg[i->dst], *a = &x->reg[i->a], *b = two ? &x->reg[i->b] : a;
    if (i->sdt == DT_I64 &&
        (e_is_compare(i->op) ? compare_shortcut(d, i, a, b, n) : int_shortcut(x, i, n)))
        return;
    if (logic_shortcut(d, i, a, b)) return;
    int sa, sb;
    const void *pa = operand(x, a, n, 0, &sa), *pb = pa;
    sb = sa;
    if (two) pb = operand(x, b, n, 1, &sb);
    RegVal v = {0};
    void *o = sa || sb ? store_of(x, i->dst) : &v;
    lanes_scalar(i->op, i->sdt, sa || sb ? n : 1, o, pa, sa, pb, sb);
    if (sa || sb)
        set_vec(d, o);
    else
        set_uni(d, v);
}

static void convert(Exec *x, const Inst *i, int n) {
    Reg *d = &x->reg[i->dst], *a = &x->reg[i->a];
    if (d->c == CL_I && a->c == CL_I) {
        int64_t lo, hi;
        bool same = i->dt == DT_I64 || i->dt == DT_U64;
        if (i->op == E_BITCAST)
            same = same && i->sdt != DT_BOOL;
        else if (!same && i->sdt == DT_I64 && bounds(a, n, &lo, &hi))
            same = int_wrap(i->dt, lo) == lo && int_wrap(i->dt, hi) == hi;
        if (same) {
            set_copy(d, a);
            return;
        }
    }
    int sa;
    const void *pa = operand(x, a, n, 0, &sa);
    RegVal v = {0};
    void *o = sa ? store_of(x, i->dst) : &v;
    (i->op == E_CAST ? lanes_cast : lanes_bitcast)(i->dt, i->sdt, sa ? n : 1, o, pa);
    if (sa)
        set_vec(d, o);
    else
        set_uni(d, v);
}

static void select_lanes(Exec *x, const Inst *i, int cond, int yes, int no, int n) {
    Reg *d = &x->reg[i->dst], *c = &x->reg[cond], *a = &x->reg[yes], *b = &x->reg[no];
    if (c->k == RK_UNI) {
        set_copy(d, c->v.b ? a : b);
        return;
    }
    int sa, sb;
    const void *pa = operand(x, a, n, 0, &sa), *pb = operand(x, b, n, 1, &sb);
    void *o = store_of(x, i->dst);
    lanes_select(d->c, n, o, c->p, pa, sa, pb, sb);
    set_vec(d, o);
}

static bool bool_lane(const Reg *r, int lane) {
    return r->k == RK_VEC ? ((const int32_t *)r->p)[lane] : r->v.b;
}

/* Reports the values of the first active lane that fails. */
static _Noreturn void guard_failed(Exec *x, const Inst *i, int n) {
    const Reg *c = &x->reg[i->a], *m = i->m >= 0 ? &x->reg[i->m] : NULL;
    int lane = 0;
    while (lane + 1 < n && (bool_lane(c, lane) || (m && !bool_lane(m, lane)))) lane++;
    for (int k = 0; i->told && k < i->told->n; k++) {
        int stride;
        const int64_t *p = operand(x, &x->reg[i->told->reg[k]], n, 0, &stride);
        x->said[k] = p[stride * lane];
    }
    exec_fault(x, ST_RUNTIME, i->imm, NULL);
}

static void guard(Exec *x, const Inst *i, int n) {
    const Reg *c = &x->reg[i->a], *m = i->m >= 0 ? &x->reg[i->m] : NULL;
    static const int32_t active = 1;
    const int32_t *pc = NULL, *pm = &active;
    int sc, sm = 0, any = 0;
    if (c->k != RK_UNI || !c->v.b) pc = operand(x, c, n, 0, &sc);
    if (m) pm = operand(x, m, n, 1, &sm);
    for (int l = 0; pc && l < n; l++) any |= pm[l * sm] & (pc[l * sc] ^ 1);
    if (any) guard_failed(x, i, n);
    select_lanes(x, i, i->a, i->b, i->c, n);
}

static void normalize(Exec *x, const Inst *i, int n) {
    Reg *d = &x->reg[i->dst];
    const Reg *a = &x->reg[i->a];
    set_copy(d, a);
    if (a->k != RK_VEC) return;
    const int32_t *p = a->p;
    int32_t any = 0, all = 1;
    for (int l = 0; l < n; l++) any |= p[l], all &= p[l];
    if (any == all) set_bool(d, any);
}

static bool in_place(DType t) { return t == DT_F32 || t == DT_F64 || t == DT_I64 || t == DT_U64; }

static void load(Exec *x, const Inst *i, int n) {
    Reg *d = &x->reg[i->dst], *a = &x->reg[i->a];
    const char *data = x->slot[i->imm].data;
    int64_t count = x->slot[i->imm].count, lo, hi;
    DType t = x->slot[i->imm].t;
    if (a->k == RK_UNI) {
        RegVal v = {0};
        if ((uint64_t)a->v.i < (uint64_t)count) lanes_load(t, 1, &v, data, a->v.i, 1);
        set_uni(d, v);
        return;
    }
    void *o = store_of(x, i->dst);
    bool inside = bounds(a, n, &lo, &hi) && lo >= 0 && hi < count;
    if (a->k == RK_LIN && inside) {
        if (a->step == 1 && in_place(t)) {
            set_vec(d, data + (size_t)a->v.i * dtype_size(t));
            return;
        }
        lanes_load(t, n, o, data, a->v.i, a->step);
    } else if (a->k == RK_LIN) {
        int s;
        const int64_t *idx = operand(x, a, n, 0, &s);
        lanes_gather(t, n, o, data, 0, idx, count);
    } else
        lanes_gather(t, n, o, data, a->v.i, a->p, inside ? -1 : count);
    set_vec(d, o);
}

/* ---- reductions ------------------------------------------------------------------------------ */
static void accumulate(Exec *x, const Red *r, int n, bool fold, int lane, int64_t k) {
    const Reg *v = &x->reg[r->val];
    AccStep s = {.kind = r->kind, .cls = v->c, .t = r->t, .k = k};
    s.acc = (char *)store_of(x, r->acc) + (size_t)lane * lane_size(v->c);
    s.v = operand(x, v, n, 0, &s.sv);
    if (r->val2 >= 0) s.w = operand(x, &x->reg[r->val2], n, 1, &s.sw);
    if (r->kind >= R_ARGMAX) s.idx = (int64_t *)store_of(x, x->memo[r->index].dst) + lane;
    lanes_acc(&s, n, fold);
}

/* For few output lanes and a long axis: lanes run along the axis instead, one output at a time. */
static void run_along(Exec *x, const Red *r, const RedAxis *ax, int64_t extent, int n) {
    Reg saved[32];
    ASSERT(ax->ncap <= (int)COUNT(saved));
    for (int i = 0; i < ax->ncap; i++) saved[i] = x->reg[ax->cap[i]];
    for (int lane = 0; lane < n; lane++) {
        for (int i = 0; i < ax->ncap; i++) {
            Reg *d = &x->reg[ax->cap[i]];
            const Reg *s = &saved[i];
            *d = *s;
            if (s->k == RK_UNI) continue;
            d->k = RK_UNI;
            if (s->k == RK_LIN)
                d->v.i = add(s->v.i, mul(s->step, lane));
            else
                switch (s->c) {
                case CL_F: d->v.f = ((const float *)s->p)[lane]; break;
                case CL_D: d->v.d = ((const double *)s->p)[lane]; break;
                case CL_I: d->v.i = add(((const int64_t *)s->p)[lane], s->v.i); break;
                case CL_B: d->v.b = ((const int32_t *)s->p)[lane]; break;
                }
        }
        for (int64_t k = 0; k < extent; k += x->lanes) {
            int m = (int)(extent - k < x->lanes ? extent - k : x->lanes);
            if (ax->axis >= 0) set_lin(&x->reg[ax->axis], k, 1);
            run_block(x, &ax->block, m);
            accumulate(x, r, m, true, lane, k);
        }
    }
    for (int i = 0; i < ax->ncap; i++) x->reg[ax->cap[i]] = saved[i];
}

static void run_axis(Exec *x, const Red *r, int level, int n) {
    const RedAxis *ax = &r->ax[level];
    int64_t extent = x->reg[ax->extent].v.i;
    bool last = level == r->naxis - 1;
    if (last && n <= 16 && extent >= 4 && extent >= 2 * n && ax->ncap <= 32) {
        run_along(x, r, ax, extent, n);
        return;
    }
    for (int64_t k = 0; k < extent; k++) {
        if (ax->axis >= 0) set_int(&x->reg[ax->axis], k);
        run_block(x, &ax->block, n);
        if (last)
            accumulate(x, r, n, false, 0, k);
        else
            run_axis(x, r, level + 1, n);
    }
}

static void reduce(Exec *x, const Inst *i, int n) {
    const Red *r = i->red;
    const RedAxis *ax = r->ax;
    struct RedMemo *memo = &x->memo[r->index];
    Reg *d = &x->reg[i->dst];
    bool uniform = true, same = memo->valid;
    for (int k = 0; k < ax->ncap && uniform; k++) {
        const Reg *c = &x->reg[ax->cap[k]];
        uniform = c->k == RK_UNI;
        same = same && k < RED_MEMO && memo->v[k] == c->v.i;
    }
    if (uniform && same) {
        set_uni(d, memo->r);
        return;
    }
    if (uniform) n = 1;
    memo->dst = i->dst;
    void *acc = store_of(x, r->acc), *o = store_of(x, i->dst);
    lanes_acc_init(r->kind, r->t, n, acc, r->kind >= R_ARGMAX ? o : NULL);
    run_axis(x, r, 0, n);
    if (d->c == CL_F && (r->kind == R_SUM || r->kind == R_PROD)) lanes_round(i->dt, n, acc);
    set_vec(d, o);
    if (n > 1) return;
    RegVal v = {0};
    memcpy(&v, o, lane_size(d->c));
    set_uni(d, v);
    memo->valid = uniform && ax->ncap <= RED_MEMO;
    memo->r = v;
    for (int k = 0; k < ax->ncap && memo->valid; k++) memo->v[k] = x->reg[ax->cap[k]].v.i;
}

static void run_block(Exec *x, const Block *b, int n) {
    for (const Inst *i = b->p, *end = b->n ? i + b->n : i; i != end; i++) {
        switch (i->op) {
        case E_LOAD: load(x, i, n); break;
        case E_CAST:
        case E_BITCAST: convert(x, i, n); break;
        case E_SELECT: select_lanes(x, i, i->a, i->b, i->c, n); break;
        case E_GUARD: guard(x, i, n); break;
        case I_NORM: normalize(x, i, n); break;
        case I_COND: {
            const Reg *m = &x->reg[i->a];
            if (m->k != RK_UNI || m->v.b)
                run_block(x, i->block, n);
            else if (i->dst >= 0)
                set_int(&x->reg[i->dst], 0);
            break;
        }
        case I_REDUCE: reduce(x, i, n); break;
        default: scalar(x, i, n);
        }
    }
}

/* ---- whole codes ----------------------------------------------------------------------------- */
static size_t round64(size_t n) { return (n + 63) & ~(size_t)63; }

/* Allocates scratch for code k, with `lanes` lanes for each register. */
static void set_up(Exec *x, const Code *k) {
    size_t regs = round64(sizeof(Reg) * (size_t)(k->nreg + 1));
    size_t slots = round64(sizeof *x->slot * (size_t)(k->slot.n + 1));
    size_t memos = round64(sizeof *x->memo * (size_t)(k->nred + 1));
    x->stride = k->result < 0 && !k->nred ? 8 : (size_t)x->lanes * 8;
    size_t need = regs + slots + memos + x->stride * (size_t)k->nreg + 64;
    if (need > x->scratch_size) {
        free(x->scratch);
        x->scratch_size = 0;
        need += need / 2;
        x->scratch = malloc(need);
        if (!x->scratch)
            exec_fault(x, ST_MEMORY, -1, "out of memory: scratch needs %zu bytes", need);
        x->scratch_size = need;
    }
    char *at = (char *)round64((size_t)(uintptr_t)x->scratch);
    x->reg = (Reg *)(void *)at;
    x->slot = (void *)(at += regs);
    x->memo = (void *)(at += slots);
    x->store = at + memos;
    memcpy(x->reg, k->init, sizeof(Reg) * (size_t)k->nreg);
    memset(x->memo, 0, sizeof *x->memo * (size_t)k->nred);
    for (int i = 0; i < k->sym.n; i++) {
        if (!x->sym) exec_fault(x, ST_RUNTIME, -1, "not constant");
        RegVal v = x->sym[k->sym.p[i].sym];
        Reg *r = &x->reg[k->sym.p[i].reg];
        switch (r->c) {
        case CL_F: r->v.f = (float)v.d; break;
        case CL_B: r->v.b = v.i != 0; break;
        default: r->v = v; break;
        }
    }
    for (int i = 0; i < k->indim.n; i++) {
        if (!x->in) exec_fault(x, ST_RUNTIME, -1, "not constant");
        const RtValue *v = k->indim.p[i].input < 0 ? NULL : &x->in[k->indim.p[i].input];
        int axis = k->indim.p[i].axis;
        int64_t r;
        if (!v)
            r = axis ? (int64_t)x->seed : x->max_iterations;
        else if (axis == -1)
            r = v->rank;
        else if (axis < 0)
            r = v->present;
        else if (v->kind == VT_SEQUENCE)
            r = axis == 0 ? bx_seq_count(v->data) : 1; /* its items */
        else
            r = axis < v->rank ? v->dim[axis] : 1;
        Reg *d = &x->reg[k->indim.p[i].reg];
        if (d->c == CL_B)
            d->v.b = r != 0;
        else
            d->v.i = r;
    }
    for (int i = 0; i < k->slot.n; i++) {
        const Tensor *t = tensor_root(k->slot.p[i]);
        x->slot[i].t = t->dtype;
        if (t->kind == TK_CONST) {
            x->slot[i].data = t->data->data;
            x->slot[i].count = t->data->count;
        } else {
            const Buf *b = exec_value(x, t);
            x->slot[i].data = b->data;
            x->slot[i].count = b->count;
        }
    }
}

void code_uniform(Exec *x, const Code *k) {
    set_up(x, k);
    run_block(x, &k->d, 1);
}

RegVal code_out(const Exec *x, const Code *k, int i) {
    const Reg *r = &x->reg[k->out[i]];
    RegVal v = r->v;
    if (r->c == CL_F) v.d = r->v.f;
    if (r->c == CL_B) v.i = r->v.b;
    return v;
}

static double block_cost(const Exec *x, const Block *b) {
    double s = b->n;
    for (int i = 0; i < b->n; i++) {
        const Inst *k = &b->p[i];
        if (k->op == I_COND) s += block_cost(x, k->block);
        if (k->op != I_REDUCE) continue;
        double r = 1;
        for (int a = k->red->naxis - 1; a >= 0; a--)
            r = (r + block_cost(x, &k->red->ax[a].block)) *
                (double)x->reg[k->red->ax[a].extent].v.i;
        s += r;
    }
    return s;
}

/* How the elements are split into chunks. A chunk runs along axis `row`: a part of one row when
 * inner is 1, else `rows` whole blocks of `inner` elements. Axes before it are uniform in a
 * chunk. */
typedef struct Chunks {
    int row;
    int64_t inner, rows;
} Chunks;

static Chunks cut(const int64_t *dim, int rank, int lanes) {
    Chunks c = {0, 1, lanes};
    c.row = rank - 1;
    while (c.row > 0 && dim[c.row] == 1) c.row--;
    while (c.row > 0 && dim[c.row] * c.inner < 32 && dim[c.row] * c.inner <= lanes)
        c.inner *= dim[c.row--];
    if (c.row > 0 && c.inner > 1 && c.inner * dim[c.row] <= lanes)
        while (c.row > 0 && dim[c.row] * c.inner * dim[c.row - 1] <= lanes) c.inner *= dim[c.row--];
    c.rows = lanes / c.inner;
    return c;
}

/* Sets the axes of the dims after c->row, and the pattern of c->row, once for all chunks. */
static void set_patterns(Exec *x, const Code *k, const Chunks *c, const int64_t *dim) {
    int64_t after = 1;
    for (int i = k->rank - 1; i >= c->row && i >= 0; i--) {
        int r = k->axis[i];
        if (r >= 0 && (i > c->row || c->inner > 1)) {
            if (dim[i] == 1 && i > c->row)
                set_int(&x->reg[r], 0);
            else {
                int64_t *p = store_of(x, r), wrap = i > c->row ? dim[i] : x->lanes;
                for (int l = 0; l < x->lanes; l++) p[l] = l / after % wrap;
                set_vec(&x->reg[r], p);
                bound_vec(&x->reg[r], x->lanes);
            }
        }
        after *= dim[i];
    }
}

Buf *code_tensor(Exec *x, const Code *k, void *out) {
    set_up(x, k);
    run_block(x, &k->d, 1);
    int64_t dim[MAX_RANK], count = 1;
    for (int i = 0; i < k->rank; i++) {
        dim[i] = x->reg[k->out[i]].v.i;
        if (dim[i] < 0 || !mul_size(count, dim[i], &count))
            exec_fault(x, ST_RUNTIME, -1, "a dimension of %lld at axis %d", (long long)dim[i], i);
    }
    if (x->budget >= 0) {
        double cost = block_cost(x, &k->u) + block_cost(x, &k->l) * (double)count;
        if (cost > x->budget) exec_fault(x, ST_RUNTIME, -1, "too long to fold");
    }
    Buf *buf = out ? NULL : buf_new(x, k->t, count);
    if (count == 0) return buf;
    x->pending = buf;
    char *to = out ? out : buf->data;
    run_block(x, &k->u, 1);
    size_t size = dtype_size(k->t);
    Chunks c = cut(dim, k->rank, x->lanes);
    set_patterns(x, k, &c, dim);
    int64_t at[MAX_RANK] = {0}, extent = k->rank ? dim[c.row] : 1;
    for (int64_t done = 0; done < count;) {
        for (int64_t row = 0; row < extent; row += c.rows) {
            int64_t rows = extent - row < c.rows ? extent - row : c.rows;
            int n = (int)(rows * c.inner), s, r = k->rank ? k->axis[c.row] : -1;
            if (r >= 0) {
                if (c.inner > 1)
                    x->reg[r].v.i = row;
                else
                    set_lin(&x->reg[r], row, n > 1);
            }
            run_block(x, &k->l, n);
            const void *p = operand(x, &x->reg[k->result], n, 0, &s);
            lanes_store(k->t, n, to, p, s);
            to += (size_t)n * size;
            done += n;
        }
        for (int i = c.row - 1; i >= 0; i--) {
            bool carry = ++at[i] == dim[i];
            if (carry) at[i] = 0;
            if (k->axis[i] >= 0) set_int(&x->reg[k->axis[i]], at[i]);
            if (!carry) break;
        }
    }
    x->pending = NULL;
    return buf;
}
