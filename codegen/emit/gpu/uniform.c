/* uniform.c: prints long uniform values as calls of functions. Equal values of other tensors, such
 * as the gates of equal layers, call the same function. */
#include "codegen/emit/emit_tree.h"

#define LONG 24 /* nodes of an expression */

typedef struct Uniform {
    VEC(Tensor *) t;
    VEC(Sym *) s;
} Uniform;

static const char *uniform_tensor(Fn *f, Tensor *t) {
    Uniform *u = f->user;
    int i = 0;
    while (i < u->t.n && u->t.p[i] != t) i++;
    if (i == u->t.n) vec_push(f->a, &u->t, t);
    return arena_printf(f->a, "p%d", i);
}

static const char *uniform_symbol(Fn *f, Sym *s) {
    Uniform *u = f->user;
    int i = 0;
    while (i < u->s.n && u->s.p[i] != s) i++;
    if (i == u->s.n) vec_push(f->a, &u->s, s);
    return arena_printf(f->a, "s%d", i);
}

/* The nodes of e, no more than LONG are counted; 0: e needs more than tensors and symbols. */
static int nodes_of(const Expr *e, int n) {
    if (e->op == E_DRAW || e->op == E_REDUCE) return 0;
    n++;
    for (int i = 0; i < e->n && n && n < LONG; i++) n = nodes_of(e->a[i], n);
    return n;
}

const char *emit_uniform(Tree *x, const char *name, Expr *e) {
    Emit *em = x->em;
    if (!emit_is_gpu(em) || !(e->flags & EF_LOAD) || e->flags & (EF_GUARD | EF_REDUCE | EF_INDIM) ||
        nodes_of(e, 0) < LONG)
        return tree_expr(x, e);
    Uniform u = {0};
    Sb body = {.a = em->a}, params = {.a = em->a}, args = {.a = em->a};
    Fn f = {.em = em,
            .c = em->c,
            .a = em->a,
            .out = &body,
            .indent = 1,
            .uses = map_new(em->a),
            .tensor = uniform_tensor,
            .symbol = uniform_symbol,
            .user = &u};
    fn_count(&f, e);
    fn_line(&f, "return %s;", fn_expr(&f, e));
    for (int i = 0; i < u.t.n; i++) {
        const char *comma = i ? ", " : "";
        sb_printf(&params, "%sconst %s *BK_RESTRICT p%d", comma, c_store(u.t.p[i]->dtype), i);
        sb_printf(&args, "%s%s", comma, x->f.tensor(&x->f, u.t.p[i]));
    }
    for (int i = 0; i < u.s.n; i++) {
        sb_printf(&params, ", %s s%d", c_type(u.s.p[i]->dtype), i);
        sb_printf(&args, ", %s", x->f.symbol(&x->f, u.s.p[i]));
    }
    const char *type = arena_printf(em->a, "%s %s", em->target->inside, c_type(e->dtype));
    return arena_printf(em->a, "%s(%s)", emit_function(em, name, type, params.p, body.p), args.p);
}
