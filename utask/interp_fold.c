/* interp_fold.c: constant folding by the interpreter, and calls of extern bodies. */
#include "utask/interp.h"
#include <stdlib.h>

/* ---- extern bodies --------------------------------------------------------------------------- */
bx_tensor bx_of(const Tensor *t, const void *data, int64_t count, int rank, const int64_t *dim) {
    bx_tensor b = {.data = (void *)(uintptr_t)data, .dtype = t->dtype, .rank = rank};
    if (t->blob) {
        b.rank = 1;
        b.dim[0] = count;
    } else
        for (int i = 0; i < rank; i++) b.dim[i] = dim[i];
    return b;
}

size_t ext_frame_size(const Stmt *s) {
    return sizeof(bx_tensor) * (size_t)(s->ext.nin + s->ext.nout + 2) +
           sizeof(int64_t) * (size_t)(s->ext.nparam + s->ext.nsym + BX_SAYS + s->ext.nout + 2);
}

ExtFrame ext_frame(const Stmt *s, void *mem) {
    ExtFrame f;
    f.in = mem;
    f.out = f.in + s->ext.nin + 1;
    f.param = (int64_t *)(void *)(f.out + s->ext.nout + 1);
    f.sym = f.param + s->ext.nparam + 1;
    f.bytes = f.sym + s->ext.nsym + BX_SAYS;
    for (int i = 0; i < s->ext.nin; i++) f.in[i].rank = -1;
    return f;
}

/* ---- folding --------------------------------------------------------------------------------- */
static void exec_fold_init(Exec *x) {
    memset(x, 0, offsetof(Exec, tmp));
    x->budget = 0x1p28;
    x->lanes = LANES;
}

static Const *const_new(Cx *c, DType t, int rank, const int64_t *dim) {
    int64_t count = 1, bytes;
    for (int i = 0; i < rank; i++)
        if (dim[i] < 0 || !mul_size(count, dim[i], &count)) return NULL;
    if (!mul_size(count, (int64_t)dtype_size(t), &bytes) || count > (int64_t)1 << 28) return NULL;
    Const *k = NEW(c->a, Const);
    k->dtype = t;
    k->rank = rank;
    if (rank) memcpy(k->dim, dim, sizeof *dim * (size_t)rank);
    k->count = count;
    k->data = arena_alloc(c->a, bytes ? (size_t)bytes : 1);
    return k;
}

const Const *interp_fold(Cx *c, const Tensor *t) {
    int64_t dim[MAX_RANK];
    if (t->kind != TK_TE || t->rank < 0) return NULL;
    for (int i = 0; i < t->rank; i++)
        if (!e_is_int(t->dim[i], &dim[i])) return NULL;
    Const *k = const_new(c, t->dtype, t->rank, dim);
    if (!k) return NULL;
    Exec x;
    exec_fold_init(&x);
    if (k->count <= 64 && x.lanes > 64) x.lanes = 64;
    jmp_buf fail;
    Diag d = {.top = &fail};
    Arena *volatile a = NULL;
    volatile bool ok = false;
    if (setjmp(fail) == 0) {
        a = arena_new(&d);
        const Code *code = code_compile(a, a, t, 0, NULL);
        if (setjmp(x.fail) == 0) {
            code_tensor(&x, code, (void *)(uintptr_t)k->data);
            ok = true;
        }
    }
    free(x.scratch);
    arena_free(a);
    return ok ? k : NULL;
}

static void scan_load(void *user, Expr *e) {
    Sources *s = user;
    const Tensor *t = e->t;
    s->loads++;
    if (t->kind == TK_CONST) {
        s->elements += t->data->count;
        s->codes |= t->data->count > 1 && dtype_size(t->dtype) == 1 && t->dtype != DT_BOOL;
    } else {
        s->constant = false;
        if (!t->elem) s->known = false;
    }
}

Sources tensor_sources(Cx *c, const Tensor *t) {
    Sources s = {.constant = true, .known = true};
    e_each_load(c, t->body, scan_load, &s);
    return s;
}

const Const *tensor_fold(Cx *c, const Tensor *t, const Sources *s) {
    int64_t n;
    if (!s->loads || !s->constant || t->body->flags & (EF_SYM | EF_INDIM) ||
        !e_is_int(tensor_count(c, t), &n) || (n > 4096 && n > 4 * s->elements))
        return NULL;
    return interp_fold(c, t);
}

/* The constant that an input of an extern has, or NULL. */
static const Const *const_of(const Tensor *t) {
    t = tensor_root(t);
    return t->kind == TK_CONST ? t->data : NULL;
}

/* Finds the dims of output i, which may use the symbols of s. False when they use anything else. */
static bool fold_out_dims(Arena *a, const Stmt *s, int i, const int64_t *sym, int *rank,
                          int64_t *dim) {
    const Tensor *t = s->ext.out[i];
    Exec x;
    bool ok = false;
    if (t->rank < 0) return false;
    Code *k = code_compile(a, a, NULL, t->rank, t->dim);
    exec_fold_init(&x);
    int top = 0;
    for (int j = 0; j < k->sym.n; j++) {
        bool found = false;
        for (int q = 0; q < s->ext.nsym; q++) found |= s->ext.sym[q]->id == k->sym.p[j].sym;
        if (!found) return false;
        if (k->sym.p[j].sym > top) top = k->sym.p[j].sym;
    }
    x.sym = NEWN(a, RegVal, top + 1);
    for (int q = 0; q < s->ext.nsym; q++)
        if (s->ext.sym[q]->id <= top) x.sym[s->ext.sym[q]->id].i = sym[q];
    if (setjmp(x.fail) == 0) {
        code_uniform(&x, k);
        for (int d = 0; d < t->rank; d++) dim[d] = code_out(&x, k, d).i;
        *rank = t->rank;
        ok = true;
    }
    free(x.scratch);
    return ok;
}

static bool fold_extern(Cx *c, Arena *a, const Stmt *s, const Const **out, int64_t *sym) {
    const ExternRow *row = s->ext.row;
    ExtFrame f = ext_frame(s, arena_alloc(a, ext_frame_size(s)));
    for (int i = 0; i < s->ext.nparam; i++)
        if (!e_is_int(s->ext.param[i], &f.param[i])) return false;
    for (int i = 0; i < s->ext.nin; i++) {
        const Tensor *t = s->ext.in[i];
        int64_t dim[MAX_RANK];
        if (!t) continue;
        const Const *k = const_of(t);
        if (!k || t->rank < 0) return false;
        for (int d = 0; d < t->rank && !t->blob; d++)
            if (!e_is_int(t->dim[d], &dim[d])) return false;
        f.in[i] = bx_of(t, k->data, k->count, t->rank, dim);
    }
    if (row->plan && row->plan(f.in, f.param, f.sym, f.bytes)) return false;
    for (int i = 0; i < s->ext.nout; i++) {
        const Tensor *t = s->ext.out[i];
        int64_t dim[MAX_RANK] = {f.bytes[i]};
        int rank = 1;
        if (!t->blob && !fold_out_dims(a, s, i, f.sym, &rank, dim)) return false;
        Const *k = const_new(c, t->dtype, rank, dim);
        if (!k) return false;
        out[i] = k;
        f.out[i] = bx_of(t, k->data, k->count, rank, dim);
    }
    int64_t scratch = f.bytes[s->ext.nout];
    if (scratch < 0 || scratch > (int64_t)1 << 31) return false;
    if (row->run(f.in, f.param, f.out, arena_alloc(a, (size_t)scratch))) return false;
    for (int i = 0; i < s->ext.nsym; i++) sym[i] = f.sym[i];
    return true;
}

bool interp_fold_extern(Cx *c, const Stmt *s, const Const **out, int64_t *sym) {
    jmp_buf fail;
    Diag d = {.top = &fail};
    Arena *volatile a = NULL;
    volatile bool ok = false;
    if (setjmp(fail) == 0) {
        a = arena_new(&d);
        ok = fold_extern(c, a, s, out, sym);
    }
    arena_free(a);
    return ok;
}
