/* sizes.c: refuses tensors that no memory could hold.
 *
 * This includes tensors that fusion leaves without memory: nobody wants to wait for the sum of 2^60
 * elements. Known sizes are checked when a tensor is made (size_check). For others an upper bound
 * is derived from tensors in memory: a tensor with the same dimensions, or fewer, is not much
 * larger. If there is no bound, as for a shape that is data or a product of sizes, a check is put
 * before the tensor (sizes_check). */
#include "utask/lower_internal.h"
#include "utask/walk.h"
#include <math.h>

/* log2 of the bytes of a tensor: less than what processors can address. */
#define BYTES_MAX 47.0
/* The limit for a tensor whose sizes are those of tensors in memory. */
#define BYTES_TRUSTED 62.0

static const char too_large[] = "a tensor would have more than 2^47 bytes";

void size_check(Lower *L, DType t, int rank, Expr *const *dim) {
    double bytes = log2((double)dtype_size(t));
    int64_t v;
    for (int i = 0; i < rank; i++) {
        if (!e_is_int(dim[i], &v)) continue;
        if (v <= 0) return;
        bytes += log2((double)v);
    }
    for (int i = 0; i < rank; i++)
        if (!e_is_int(dim[i], &v)) return;
    check(L, e_bool(L->cx, bytes <= BYTES_MAX), "%s", too_large);
}

/* A tensor's bytes: the unknown sizes, and a factor for the known ones. */
typedef struct Extent {
    int n;
    Expr *size[MAX_RANK]; /* in the order of their ids */
    double factor;        /* log2 */
    double bound;         /* log2 of the largest product of size[] */
} Extent;

typedef struct Sizes {
    Cx *c;
    VEC(Extent) known; /* visible here; for equal sizes, the one with the least bound */
} Sizes;

/* What e grows with, and an upper bound of the factor, as log2. */
static Expr *grows_by(Expr *e, double *factor) {
    int64_t v;
    for (; e->n == 2; e = e->a[0]) {
        if (!e_is_int(e->a[1], &v)) return e;
        double k = log2(1 + fabs((double)v));
        switch (e->op) {
        case E_ADD:
        case E_SUB:
        case E_MUL:
        case E_MAX: *factor += k; break;
        case E_MIN:
        case E_DIV:
        case E_FDIV:
            if (v <= 0) return e;
            break;
        default: return e;
        }
    }
    return e;
}

/* False: the tensor is empty, or its rank is not known. */
static bool extent_of(const Tensor *t, Extent *x) {
    int64_t v;
    *x = (Extent){.factor = log2((double)dtype_size(t->dtype))};
    if (t->rank < 0 || t->blob) return false;
    for (int i = 0; i < t->rank; i++) {
        if (e_is_int(t->dim[i], &v)) {
            if (v <= 0) return false;
            x->factor += log2((double)v);
            continue;
        }
        Expr *e = grows_by(t->dim[i], &x->factor);
        int at = x->n++;
        for (; at > 0 && x->size[at - 1]->id > e->id; at--) x->size[at] = x->size[at - 1];
        x->size[at] = e;
    }
    return true;
}

/* Whether all sizes of x are among those of y. */
static bool within(const Extent *x, const Extent *y) {
    int i = 0;
    for (int k = 0; i < x->n && k < y->n; k++) i += x->size[i] == y->size[k];
    return i == x->n;
}

/* The least known bound for x's sizes. */
static double bound_of(const Sizes *z, const Extent *x) {
    double least = 0;
    int64_t lo, hi;
    for (int i = 0; i < x->n; i++) {
        bool some = e_range(x->size[i], &lo, &hi) && hi < INT64_MAX;
        least += some ? log2((double)(hi > 1 ? hi : 1)) : INFINITY;
    }
    for (int i = 0; i < z->known.n; i++)
        if (z->known.p[i].bound < least && within(x, &z->known.p[i])) least = z->known.p[i].bound;
    return least;
}

static void learn(Sizes *z, Extent *x, double bound) {
    x->bound = bound;
    if (x->n && bound < bound_of(z, x)) vec_push(z->c->a, &z->known, *x);
}

/* Records that t is in memory. */
static void stored(Sizes *z, const Tensor *t) {
    Extent x;
    if (t && extent_of(t, &x)) learn(z, &x, BYTES_MAX - x.factor);
}

/* Records a loaded tensor; a view has as many elements as its base. */
static void loaded(void *user, Expr *load) {
    Sizes *z = user;
    const Tensor *t = load->t, *base = tensor_root(t);
    Extent x, y;
    if (t->kind != TK_VIEW) return;
    if (!extent_of(t, &x) || !x.n) return;
    if (base->kind != TK_TE) {
        learn(z, &x, BYTES_MAX - x.factor);
        return;
    }
    if (extent_of(base, &y)) learn(z, &x, y.factor + bound_of(z, &y) - x.factor);
}

/* The check that t is not too large; NULL: known to hold. */
static Stmt *check_of(Sizes *z, const Tensor *t) {
    Cx *c = z->c;
    Extent x;
    int64_t v;
    if (!extent_of(t, &x) || !x.n) return NULL;
    double bound = bound_of(z, &x);
    if (x.factor + bound <= BYTES_TRUSTED) return NULL;
    double known = log2((double)dtype_size(t->dtype));
    Expr *count = NULL;
    for (int i = 0; i < t->rank; i++) {
        if (e_is_int(t->dim[i], &v)) {
            known += log2((double)v);
            continue;
        }
        Expr *n = e_cast(c, DT_F64, t->dim[i]);
        count = count ? e_mul(c, count, n) : n;
    }
    Stmt *s = stmt_new(c, S_CHECK, t->path);
    s->check.cond = e_le(c, count, e_num(c, DT_F64, exp2(BYTES_MAX - known)));
    s->check.site = cx_site(c, t->path, "%s", too_large);
    learn(z, &x, BYTES_MAX - x.factor);
    return s;
}

static void walk(Sizes *z, Seq *q);

typedef struct Inside {
    Sizes *z;
    int mark; /* `known` is cut to this length after each Seq of the statement */
} Inside;

static void inside(void *user, const Slot *k) {
    Inside *x = user;
    if (k->kind == SLOT_TENSOR) stored(x->z, *k->t);
    if (k->kind == SLOT_TENSOR && !k->in) x->mark = x->z->known.n;
    if (k->kind != SLOT_SEQ) return;
    walk(x->z, *k->q);
    x->z->known.n = x->mark;
}

static void walk(Sizes *z, Seq *q) {
    for (int i = 0; i < q->s.n; i++) {
        Stmt *s = q->s.p[i];
        if (s->kind != S_OP) stmt_slots(s, inside, &(Inside){z, z->known.n});
        for (int k = 0; s->kind == S_OP && k < s->op.n; k++) {
            e_each_load(z->c, s->op.t[k]->body, loaded, z);
            Stmt *check = check_of(z, s->op.t[k]);
            if (check) seq_put_at(z->c, q, i++, check);
        }
    }
}

void sizes_check(Program *p) {
    Sizes z = {.c = p->cx};
    for (int i = 0; i < p->nin; i++) stored(&z, p->in[i].t);
    walk(&z, p->top);
}
