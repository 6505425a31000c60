/* quantized.c: products of dequantized values become products of integers.
 *
 *     sum(r: (s * float(x[r] - zx)) * (t * float(w[r] - zw)))
 *   = (s * t) * float(sum(r: (x[r] - zx) * (w[r] - zw)))
 *
 * where x and w are codes of 8 bits, and scales and zero points do not move along the sum. The sum
 * of integers is exact; one of x and w, or both, may be computed. All is seen in expressions: a
 * value is dequantized if it is a scale times what is left of a code without its zero point,
 * whichever operators made it. What only moves such values (transposes, slices, concatenations,
 * gathers, padding by zero, maxima) becomes the same movement of their codes, which stay in memory
 * as bytes; what quantizes dequantized values as they were is the codes themselves. */
#include <math.h>

#include "scheduler/cost/cost.h"
#include "scheduler/cost/decide.h"
#include "scheduler/passes.h"
#include "utask/product.h"
#include "utask/walk.h"

#define DISTANCE 255      /* the largest one of a code and its zero point */
#define PACKED_TERMS 4096 /* of a sum, and positions of each factor of its own, where */
#define PACKED_ROWS 8     /* both factors are computed */

/* A value told by its code: scale * float(code - zero), or code - zero in int32. */
typedef struct Dequant {
    Expr *code;  /* of 8 bits */
    Expr *zero;  /* int32: a constant, or converted from a code of that type; NULL: 0 */
    Expr *scale; /* float32; NULL: an integer */
} Dequant;

typedef struct Quantized {
    Program *p;
    Cx *c;
    Map *form; /* tensor id -> Dequant * over its axes; the code is a load at the tensor's position
                */
    Map *view; /* tensor id -> view of the codes of what it views */
    Map *seen; /* expression id -> its Dequant *, without a code where it has none; of the body at
                * hand
                */
    Tensor *t; /* at hand */
    Expr *by;  /* what a sum becomes */
    bool floats; /* sums of floats become sums of integers */
} Quantized;

static bool form_of(Quantized *k, Expr *e, Dequant *f);

static bool is_code(const Expr *e) { return e->dtype == DT_U8 || e->dtype == DT_I8; }
static double lowest(DType t) { return t == DT_I8 ? -128 : 0; }

static bool is_number(const Expr *e, double v) {
    return e->op == E_CONST && dtype_is_float(e->dtype) && e->f == v;
}

/* ---- zero points and scales ------------------------------------------------------------------ */
/* The form's zero as a code of its own type; NULL: it is none. */
static Expr *zero_code(Cx *c, const Dequant *f) {
    const DType t = f->code->dtype;
    int64_t v = 0;
    if (!f->zero || e_is_int(f->zero, &v))
        return v >= lowest(t) && v <= lowest(t) + 255 ? e_ci(c, t, v) : NULL;
    return f->zero->op == E_CAST && (DType)f->zero->a[0]->dtype == t ? f->zero->a[0] : NULL;
}

/* e, which is subtracted from a code, in int32; NULL: it is no zero point. */
static Expr *zero_of(Quantized *k, Expr *e) {
    Dequant f;
    int64_t v;
    if (e_is_int(e, &v)) return e;
    if (e->op == E_CONST && e->f == rint(e->f) && fabs(e->f) <= DISTANCE)
        return e_ci(k->c, DT_I32, (int64_t)e->f);
    if (!form_of(k, e, &f) || f.zero || (f.scale && !is_number(f.scale, 1))) return NULL;
    return e_cast(k->c, DT_I32, f.code);
}

/* A parameter is one for all elements, or moves along one axis; it is read outside of sums. */
static bool is_parameter(const Quantized *k, const Expr *e) {
    int n = 0;
    if (!e) return true;
    for (int i = 0; i < k->t->rank; i++) n += e_uses_axis(e, k->t->axis[i]);
    return n <= 1 && !(e->flags & (EF_REDUCE | EF_GUARD));
}

/* Whether e is known to be positive, so that codes are in the order of their values. */
static bool is_positive(const Expr *e) {
    if (e->op == E_MUL) return is_positive(e->a[0]) && is_positive(e->a[1]);
    if (e->op == E_CONST) return isnormal(e->f) && e->f > 0;
    if (e->op != E_LOAD || e->t->kind != TK_CONST || e->t->dtype != DT_F32) return false;
    const float *v = e->t->data->data;
    bool positive = true;
    for (int64_t i = 0; i < e->t->data->count; i++) positive &= isnormal(v[i]) && v[i] > 0;
    return positive;
}

static bool uses_any(const Expr *e, int n, Axis *const *x) {
    bool uses = false;
    for (int i = 0; e && i < n; i++) uses |= e_uses_axis(e, x[i]);
    return uses;
}

/* Neither the scale nor the zero point moves along the axes. */
static bool stays(const Dequant *f, int n, Axis *const *x) {
    return !uses_any(f->zero, n, x) && !uses_any(f->scale, n, x);
}

static Expr *integer_of(Cx *c, const Dequant *f) {
    Expr *e = e_cast(c, DT_I32, f->code);
    return f->zero ? e_sub(c, e, f->zero) : e;
}

static Expr *value_of(Cx *c, const Dequant *f) {
    Expr *e = integer_of(c, f);
    return f->scale ? e_mul(c, e_cast(c, DT_F32, e), f->scale) : e;
}

/* ---- forms ----------------------------------------------------------------------------------- */
/* The codes of what t views, in the shape of t. */
static Tensor *viewed(Quantized *k, const Tensor *t, Tensor *codes) {
    Tensor *v = map_geti(k->view, (uint64_t)t->id + 1);
    if (v) return v;
    v = tensor_like(k->c, TK_VIEW, t, t->rank, t->dim, t->seq);
    v->dtype = codes->dtype;
    v->base = tensor_root(codes);
    map_seti(k->view, (uint64_t)t->id + 1, v);
    return v;
}

static bool form_of_load(Quantized *k, Expr *e, Dequant *f) {
    Cx *c = k->c;
    const Tensor *t = tensor_root(e->t);
    const Dequant *own = map_geti(k->form, (uint64_t)t->id + 1);
    if (!own || e->t->rank < 0) return false;
    *f = *own;
    if (e->t == t && !e->kind) {
        f->code = e_load(c, own->code->t, e->a);
        if (f->zero) f->zero = e_subst(c, f->zero, t->rank, t->axis, e->a, NULL, NULL);
        if (f->scale) f->scale = e_subst(c, f->scale, t->rank, t->axis, e->a, NULL, NULL);
        return true;
    }
    /* In another shape, or by a position alone: parameters are those of all elements. */
    if (!stays(f, t->rank, t->axis)) return false;
    Tensor *codes = e->t == t ? own->code->t : viewed(k, e->t, own->code->t);
    f->code = e->kind ? e_loadf(c, codes, e->a[0]) : e_load(c, codes, e->a);
    return true;
}

/* cond ? x : y; one of them may be the number 0, or `low`, below all values of a maximum. */
static bool form_of_choice(Quantized *k, Expr *e, Dequant *f, bool maximum) {
    Cx *c = k->c;
    Dequant arm[2];
    Expr *code[2] = {NULL, NULL};
    const Dequant *lead = NULL;
    for (int i = 0; i < 2; i++) {
        if (!form_of(k, e->a[i + 1], &arm[i])) continue;
        if (lead && (arm[i].zero != lead->zero || arm[i].scale != lead->scale ||
                     arm[i].code->dtype != lead->code->dtype))
            return false;
        lead = &arm[i];
        code[i] = lead->code;
    }
    if (!lead) return false;
    const DType t = lead->code->dtype;
    for (int i = 0; i < 2; i++) {
        const Expr *x = e->a[i + 1];
        if (code[i]) continue;
        if (e_is_ival(x, 0) || is_number(x, 0)) code[i] = zero_code(c, lead);
        if (maximum && is_number(x, -(double)INFINITY) && !(e->a[0]->flags & EF_LOAD))
            code[i] = e_ci(c, t, (int64_t)lowest(t));
        if (!code[i]) return false;
    }
    /* Parameters are read whatever is chosen. */
    for (int i = 0; i < k->t->rank; i++)
        if (e_uses_axis(e->a[0], k->t->axis[i]) && !stays(lead, 1, &k->t->axis[i])) return false;
    *f = *lead;
    f->code = e_sel(c, e->a[0], code[0], code[1]);
    return true;
}

static bool form_of_extreme(Quantized *k, Expr *e, Dequant *f) {
    Expr *x = e->a[0];
    const bool maximum = e->kind == R_MAX;
    if (!maximum && e->kind != R_MIN) return false;
    if (x->op == E_SELECT ? !form_of_choice(k, x, f, maximum) : !form_of(k, x, f)) return false;
    if (!stays(f, e->naxis, e->raxis) || (f->scale && !is_positive(f->scale))) return false;
    f->code = e_reduce(k->c, e->kind, e->naxis, e->raxis, f->code);
    return true;
}

static bool form_of_product(Quantized *k, Expr *e, Dequant *f) {
    for (int i = 0; i < 2; i++) {
        if (!form_of(k, e->a[i], f) || !f->scale || !is_parameter(k, e->a[!i])) continue;
        f->scale = e_mul(k->c, f->scale, e->a[!i]);
        return is_parameter(k, f->scale);
    }
    return false;
}

static bool form_of_operator(Quantized *k, Expr *e, Dequant *f) {
    Cx *c = k->c;
    Expr *z;
    switch (e->op) {
    case E_LOAD: return form_of_load(k, e, f);
    case E_CAST:
        if (is_code(e->a[0]))
            *f = (Dequant){.code = e->a[0]};
        else if (e->a[0]->dtype != DT_I32 || !form_of(k, e->a[0], f))
            return false;
        if (e->dtype == DT_F32) f->scale = e_num(c, DT_F32, 1);
        return true;
    case E_SUB:
        if (!form_of(k, e->a[0], f) || f->zero || (f->scale && !is_number(f->scale, 1)) ||
            !(z = zero_of(k, e->a[1])) || !is_parameter(k, z))
            return false;
        if (!e_is_ival(z, 0)) f->zero = z;
        return zero_code(c, f) != NULL;
    case E_MUL: return e->dtype == DT_F32 && form_of_product(k, e, f);
    case E_MAX: /* with 0: the positive part */
        if (!form_of(k, e->a[0], f) || !(e_is_ival(e->a[1], 0) || is_number(e->a[1], 0)) ||
            (f->scale && !is_positive(f->scale)) || !(z = zero_code(c, f)))
            return false;
        f->code = e_max(c, f->code, z);
        return true;
    case E_SELECT: return form_of_choice(k, e, f, false);
    case E_REDUCE: return form_of_extreme(k, e, f);
    default: return false;
    }
}

/* The form of e, an expression over the axes of the tensor at hand. */
static bool form_of(Quantized *k, Expr *e, Dequant *f) {
    if ((e->dtype != DT_F32 && e->dtype != DT_I32) || !(e->flags & EF_LOAD)) return false;
    Dequant *known = map_geti(k->seen, (uint64_t)e->id + 1);
    if (!known) {
        known = NEW(k->c->a, Dequant);
        if (!form_of_operator(k, e, known)) known->code = NULL;
        map_seti(k->seen, (uint64_t)e->id + 1, known);
    }
    *f = *known;
    return f->code != NULL;
}

/* ---- sums ------------------------------------------------------------------------------------ */
/* Whether units can multiply codes of r that are no constants: they pack one factor as they run,
 * for so many positions of the other one that it pays. */
static bool may_be_packed(const Quantized *k, Expr *r) {
    SumProduct p;
    double own[2] = {1, 1};
    const int64_t terms = axes_size(r->naxis, r->raxis, -1);
    if (terms < 1 || terms > PACKED_TERMS || !product_of(r, &p)) return false;
    for (int i = 0; i < k->t->rank; i++) {
        const Axis *x = k->t->axis[i];
        const AxisRole role = product_role(&p, x);
        const int64_t size = axis_size(x, 0);
        if (size < 1) return false;
        if (role == ROLE_M || role == ROLE_N) own[role == ROLE_N] *= (double)size;
    }
    return own[0] >= PACKED_ROWS && own[1] >= PACKED_ROWS;
}

/* Whether r is a sum of products of such values; if so, it becomes one of integers. */
static bool is_integer_sum(void *user, Expr *r) {
    Quantized *k = user;
    Cx *c = k->c;
    Dequant f[2];
    bool constant = false;
    if (!is_sum_of_products(r) || (r->dtype != DT_F32 && r->dtype != DT_I32)) return false;
    for (int i = 0; i < 2; i++) {
        if (!form_of(k, r->a[0]->a[i], &f[i]) || f[i].code->op != E_LOAD ||
            !stays(&f[i], r->naxis, r->raxis))
            return false;
        constant |= tensor_root(f[i].code->t)->kind == TK_CONST;
    }
    Expr *product = e_mul(c, integer_of(c, &f[0]), integer_of(c, &f[1]));
    k->by = e_reduce(c, r->kind, r->naxis, r->raxis, product);
    if (r->dtype == DT_I32) return k->by != r;
    if (axes_size(r->naxis, r->raxis, -1) > INT32_MAX / (DISTANCE * DISTANCE) ||
        (!constant && !may_be_packed(k, r)))
        return false;
    k->by = e_mul(c, e_cast(c, DT_F32, k->by), e_mul(c, f[0].scale, f[1].scale));
    k->floats = true;
    return true;
}

static void find_sums(Quantized *k, Stmt *s) {
    const Schedule *plan = k->p->schedule;
    Tensor *t = k->t;
    Expr *from, *body = t->body;
    k->floats = false;
    while ((from = find_reduction(map_new(k->c->a), body, false, is_integer_sum, k)))
        body = e_replace(k->c, body, from, k->by);
    if (body == t->body) return;
    /* Sums of integers as the model has them are only told in another way. */
    const double ns = cost_group_ns(k->p, s, 1);
    Expr *plain = t->body;
    t->body = body;
    if (!k->floats) return;
    if (plan->lanes <= 1 || device_is_gpu(plan->device) ||
        !decide(k->p, X_QUANTIZED, s, ns, cost_group_ns(k->p, s, 1)))
        t->body = plain;
}

/* ---- tensors --------------------------------------------------------------------------------- */
/* clamp(round(x / scale) + zero) of values with that scale and zero: their codes. */
static Expr *same_codes(Quantized *k, Expr *e) {
    Dequant f;
    if (!is_code(e) || e->op != E_CAST || e->a[0]->op != E_MIN) return NULL;
    const double low = lowest(e->dtype);
    e = e->a[0];
    if (!is_number(e->a[1], low + 255) || e->a[0]->op != E_MAX || !is_number(e->a[0]->a[1], low))
        return NULL;
    e = e->a[0]->a[0];
    if (e->op != E_ADD || e->a[0]->op != E_ROUND || e->a[0]->a[0]->op != E_DIV) return NULL;
    const Expr *quotient = e->a[0]->a[0];
    if (!form_of(k, quotient->a[0], &f) || f.scale != quotient->a[1] || !is_positive(f.scale) ||
        lowest(f.code->dtype) != low)
        return NULL;
    Expr *zero = zero_of(k, e->a[1]);
    return zero && zero == (f.zero ? f.zero : e_ci(k->c, DT_I32, 0)) ? f.code : NULL;
}

/* The codes of t in a tensor of their own. */
static Tensor *codes_of(Quantized *k, const Dequant *f, Seq *q, int *at) {
    Cx *c = k->c;
    Tensor *t = k->t, *codes = tensor_like(c, TK_TE, t, t->rank, t->dim, q);
    codes->dtype = f->code->dtype;
    codes->body = expr_over(c, f->code, t, codes, 0);
    const Sources from = tensor_sources(c, codes);
    codes->data = tensor_fold(c, codes, &from);
    if (codes->data) {
        codes->kind = TK_CONST;
        codes->seq = k->p->top;
    } else
        seq_put_at(c, q, (*at)++, stmt_op(c, codes, t->path));
    return codes;
}

static void visit(void *user, Seq *q, int *at) {
    Quantized *k = user;
    Cx *c = k->c;
    Stmt *s = q->s.p[*at];
    Dequant f;
    if (s->kind != S_OP || s->level == LEVEL_HOST) return;
    Tensor *t = k->t = s->op.t[0];
    if (t->rank < 0 || t->elem) return;
    k->seen = map_new(c->a);
    Expr *codes = same_codes(k, t->body);
    if (codes) t->body = codes;
    if (form_of(k, t->body, &f)) {
        if (f.code->op != E_LOAD || !same_dims(f.code->t, t) ||
            !load_is_own(f.code, f.code->t, t)) {
            f.code = load_own(c, codes_of(k, &f, q, at), t);
            t->body = value_of(c, &f);
        }
        map_seti(k->form, (uint64_t)t->id + 1, arena_memdup(c->a, &f, sizeof f));
    } else
        find_sums(k, s);
}

void pass_quantized(Program *p) {
    Arena *a = p->cx->a;
    Quantized k = {.p = p, .c = p->cx, .form = map_new(a), .view = map_new(a)};
    seq_rewrite(p->top, visit, &k);
}
