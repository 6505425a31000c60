/* lower_stmt.c: statements that lowerings build (lower.h): hand-written bodies and loops. */
#include "utask/lower_internal.h"

/* ---- hand-written bodies --------------------------------------------------------------------- */
Stmt *ext_begin(Lower *L, const char *name, int nin, Tensor *const *ins, int nparam,
                Expr *const *param) {
    Stmt *s = lower_stmt(L, S_EXTERN);
    s->ext.row = extern_find(name);
    if (!s->ext.row) die("no hand-written body %s", name);
    s->ext.nin = nin;
    s->ext.in = arena_memdup(L->a, ins, sizeof *ins * (size_t)nin);
    s->ext.nparam = nparam;
    s->ext.param = NEWN(L->a, Expr *, nparam ? nparam : 1);
    for (int i = 0; i < nparam; i++)
        s->ext.param[i] = param[i]->pure ? param[i] : let(L, "p", param[i], INT64_MIN);
    s->ext.out = NEWN(L->a, Tensor *, 8);
    s->ext.sym = NEWN(L->a, Sym *, MAX_RANK + 4);
    return s;
}

Expr *ext_sym(Lower *L, Stmt *s, const char *name) {
    ASSERT(s->ext.nsym < MAX_RANK + 4);
    return sym_scoped(L, &s->ext.sym[s->ext.nsym++], DT_I64, name, 0, L->seq);
}

static Tensor *ext_add(Lower *L, Stmt *s, Tensor *t) {
    ASSERT(s->ext.nout < 8);
    t->seq = L->seq;
    t->path = L->node->path;
    s->ext.out[s->ext.nout++] = t;
    return t;
}

Tensor *ext_out(Lower *L, Stmt *s, DType t, int rank, Expr *const *dim) {
    Expr *d[MAX_RANK];
    for (int i = 0; i < rank; i++) d[i] = dim[i]->pure ? dim[i] : let(L, "d", dim[i], 0);
    size_check(L, t, rank, d);
    return ext_add(L, s, tensor_new(L->cx, TK_EXTERN, t, rank, d));
}

Tensor *ext_blob(Lower *L, Stmt *s) {
    Expr *d[1] = {e_int(L->cx, 0)};
    Tensor *t = tensor_new(L->cx, TK_EXTERN, DT_U8, 1, d);
    t->blob = true;
    return ext_add(L, s, t);
}

void ext_end(Lower *L, Stmt *s, const char *fault) {
    s->ext.site = site(L, "%s", fault ? fault : "failed");
    bool fold = s->ext.nin > 0;
    for (int i = 0; i < s->ext.nin; i++)
        fold &=
            s->ext.in[i] && s->ext.in[i]->kind == TK_CONST && s->ext.in[i]->data->count <= 1 << 16;
    for (int i = 0; i < s->ext.nparam; i++) fold &= s->ext.param[i]->op == E_CONST;
    for (int i = 0; i < s->ext.nout; i++) fold &= !s->ext.out[i]->blob && s->ext.out[i]->rank >= 0;
    const Const *k[8];
    int64_t sym[MAX_RANK + 4];
    if (fold && interp_fold_extern(L->cx, s, k, sym)) {
        for (int i = 0; i < s->ext.nout; i++) s->ext.out[i] = const_tensor(L, k[i]);
        for (int i = 0; i < s->ext.nsym; i++) s->ext.sym[i]->lo = s->ext.sym[i]->hi = sym[i];
        return;
    }
    lower_append(L, s);
}

Tensor *ext_result(Lower *L, Stmt *s, int i) {
    (void)L;
    return s->ext.out[i];
}

/* ---- loops ----------------------------------------------------------------------------------- */
Tensor *copy_tensor(Lower *L, Tensor *t) {
    Expr *n[1], *idx[MAX_RANK];
    if (t->blob) {
        Stmt *s = ext_begin(L, "seq_copy", 1, &t, 0, NULL);
        Tensor *b = ext_blob(L, s);
        ext_end(L, s, NULL);
        return b;
    }
    if (t->rank < 0) n[0] = let(L, "n", count(L, t), 0);
    Tensor *c = te_indexed(L, t->dtype, t->rank < 0 ? 1 : t->rank, t->rank < 0 ? n : t->dim, idx);
    c->body = t->rank < 0 ? e_loadf(L->cx, t, idx[0]) : ld(L, t, idx);
    c->seq = L->seq;
    c->name = t->name;
    op_append(L, c);
    return c;
}

Tensor *own_tensor(Lower *L, Tensor *t) {
    bool own =
        t->seq == L->seq && !t->owned && (t->kind == TK_TE || (t->kind == TK_EXTERN && t->blob));
    if (!own) t = copy_tensor(L, t);
    t->owned = true;
    return t;
}

Stmt *loop_stmt(Lower *L, Expr *trips) {
    Stmt *s = lower_stmt(L, S_LOOP);
    s->loop.trips = trips;
    s->loop.body = seq_new(L->cx, L->seq, s, true);
    sym_scoped(L, &s->loop.iter, DT_I64, "i", 0, L->seq);
    int64_t most;
    if (trips && e_is_int(trips, &most) && most >= 0) s->loop.iter->hi = most > 0 ? most : 1;
    s->loop.cap_site = site(L, "the loop reached the iteration limit of \1 (--max-iterations)");
    return s;
}

struct LoopB {
    Stmt *s;
    Seq *outer;
    Expr *trips, *iter;
};

LoopB *loop_begin(Lower *L, Expr *trips) {
    LoopB *b = NEW(L->a, LoopB);
    b->outer = L->seq;
    b->trips =
        e_max(L->cx, trips->pure ? trips : let(L, "trips", trips, INT64_MIN), e_int(L->cx, 0));
    b->s = loop_stmt(L, b->trips);
    b->iter = e_sym(L->cx, b->s->loop.iter);
    L->seq = b->s->loop.body;
    return b;
}

Expr *loop_iter(LoopB *b) { return b->iter; }

Tensor *loop_carry(Lower *L, LoopB *b, Tensor *init) {
    Tensor *phi = tensor_new(L->cx, TK_PHI, init->dtype, init->rank, init->dim);
    phi->blob = init->blob;
    phi->seq = b->outer;
    phi->name = init->name;
    LoopCarry k = {.phi = phi, .init = init};
    vec_push(L->a, &b->s->loop.carry, k);
    return phi;
}

void loop_next(Lower *L, LoopB *b, Tensor *phi, Tensor *next) {
    ASSERT(next->rank == phi->rank && next->dtype == phi->dtype);
    for (int i = 0; i < b->s->loop.carry.n; i++)
        if (b->s->loop.carry.p[i].phi == phi) {
            b->s->loop.carry.p[i].next = own_tensor(L, next);
            return;
        }
    die("loop_next of a value that is not carried");
}

Tensor *scan_tensor(Lower *L, Stmt *loop, Seq *outer, Tensor *elem, Expr *const *dim) {
    Tensor *t = lower_like(L, TK_SCAN, elem, elem->rank + 1, dim, outer);
    LoopScan k = {.elem = own_tensor(L, elem), .out = t};
    vec_push(L->a, &loop->loop.scan, k);
    return t;
}

Tensor *loop_scan(Lower *L, LoopB *b, Tensor *elem) {
    Expr *dim[MAX_RANK];
    if (elem->rank + 1 > MAX_RANK) unsupported(L, "a scan output of rank %d", elem->rank + 1);
    dim[0] = b->trips;
    for (int i = 0; i < elem->rank; i++) dim[i + 1] = elem->dim[i];
    size_check(L, elem->dtype, elem->rank + 1, dim);
    return scan_tensor(L, b->s, b->outer, elem, dim);
}

void loop_end(Lower *L, LoopB *b) {
    L->seq = b->outer;
    lower_append(L, b->s);
    for (int i = 0; i < b->s->loop.carry.n; i++) ASSERT(b->s->loop.carry.p[i].next);
}
