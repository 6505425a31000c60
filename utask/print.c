/* print.c: prints expressions and Programs as text.
 *
 * Tensors, symbols and axes are numbered in the order in which they are printed, so the text of a
 * Program does not depend on how many others were created before. A value that a body uses more
 * than once is printed once, as %n.
 */
#include "utask/utask.h"
#include "utask/extern.h"
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

typedef struct Numbers { /* by id: number + 1 */
    int *of, n, next;
} Numbers;

typedef struct Printer {
    Sb *s;
    const Program *p; /* NULL: print ids as numbers and do not share */
    Numbers tensor, sym, axis, func;
    Numbers uses, shared; /* by expression id, for the current body */
    const Tensor **konst; /* constants in order of appearance */
    int nkonst;
    int *touched, ntouched; /* expressions with entries in uses */
    int level;              /* printing statements that are 1: at core level, 2: replicated */
    /* nodes that may still be printed, because sharing is not shown everywhere */
    int left;
} Printer;

enum { MAX_NODES = 4000 };

static int number(Numbers *m, int id) {
    if (!m->of || id >= m->n) return id;
    if (!m->of[id]) m->of[id] = ++m->next;
    return m->of[id] - 1;
}

static void print_const(Sb *s, DType t, double f, int64_t i) {
    if (dtype_is_float(t)) {
        char text[48];
        if (isnan(f))
            snprintf(text, sizeof text, "nan");
        else if (isinf(f))
            snprintf(text, sizeof text, f > 0 ? "inf" : "-inf");
        else
            snprintf(text, sizeof text, t == DT_F64 ? "%.17g" : "%.9g", f);
        sb_puts(s, text);
        if (!strpbrk(text, ".enf")) sb_puts(s, ".0");
    } else if (t == DT_BOOL)
        sb_puts(s, i ? "true" : "false");
    else if (t == DT_U64)
        sb_printf(s, "%" PRIu64, (uint64_t)i);
    else
        sb_printf(s, "%" PRId64, i);
}

static void print_elem(Sb *s, const Const *k, int64_t i) {
    bool f = dtype_is_float(k->dtype);
    print_const(s, k->dtype, f ? elem_get_f(k->dtype, k->data, i) : 0,
                f ? 0 : elem_get_i(k->dtype, k->data, i));
}

static void print_sym(Printer *p, const Sym *s) {
    sb_printf(p->s, "%s.%d", s->name && *s->name ? s->name : "s", number(&p->sym, s->id));
}

static void print_tensor(Printer *p, const Tensor *t) {
    bool first = p->tensor.of && t->id < p->tensor.n && !p->tensor.of[t->id];
    if (first && t->kind == TK_CONST && p->konst) p->konst[p->nkonst++] = t;
    sb_printf(p->s, "t%d", number(&p->tensor, t->id));
}

/* ---- expressions ----------------------------------------------------------------------------- */
static int level_of(const Expr *e) { return expr_row[e->op].level ? expr_row[e->op].level : 5; }

static const char *const reduce_name[] = {"sum", "prod",   "max",    "min",         "all",
                                          "any", "argmax", "argmin", "argmax_last", "argmin_last"};

static void print_expr(Printer *p, const Expr *e, int level);

/* The text of a site, with the values that cond reports as expressions. */
static void print_message(Printer *p, int site, const Expr *cond) {
    sb_puts(p->s, "\"");
    for (const char *t = p->p->cx->site.p[site]; *t; t++) {
        int i = *t - SAID_FIRST;
        if (i < 0 || i >= SAID_MAX)
            sb_write(p->s, t, 1);
        else if (cond && cond->op == E_TELL && i + 1 < cond->n &&
                 !e_is_ival(cond->a[i + 1], UNSAID)) {
            sb_puts(p->s, "{");
            print_expr(p, cond->a[i + 1], 0);
            sb_puts(p->s, "}");
        } else
            sb_puts(p->s, "{?}");
    }
    sb_puts(p->s, "\"");
}

static void print_list(Printer *p, const Expr *e, const char *name) {
    sb_printf(p->s, "%s(", name);
    for (int i = 0; i < e->n; i++) {
        if (i) sb_puts(p->s, ", ");
        print_expr(p, e->a[i], 0);
    }
    if (e->op == E_GUARD) {
        sb_puts(p->s, "; ");
        if (p->p && e->i >= 0 && e->i < p->p->cx->site.n)
            print_message(p, (int)e->i, e->a[0]);
        else
            sb_printf(p->s, "%" PRId64, e->i);
    }
    sb_puts(p->s, ")");
}

static void print_node(Printer *p, const Expr *e, int level) {
    Sb *s = p->s;
    int mine = level_of(e);
    switch (e->op) {
    case E_TELL: print_expr(p, e->a[0], level); return; /* its values are in the message */
    case E_CONST:
        if (dtype_is_float(e->dtype) || e->dtype == DT_BOOL || e->dtype == DT_I64)
            print_const(s, e->dtype, e->f, e->i);
        else {
            sb_printf(s, "%s ", dtype_name(e->dtype));
            print_const(s, e->dtype, 0, e->i);
        }
        return;
    case E_SYM: print_sym(p, e->sym); return;
    case E_AXIS: sb_printf(s, "i%d", number(&p->axis, e->axis->id)); return;
    case E_LIMIT: sb_puts(s, "limit"); return;
    case E_SEED: sb_puts(s, "seed"); return;
    case E_INDIM: {
        int axis = (int8_t)(e->i & 255), input = (int)(e->i >> 8);
        if (axis == -1)
            sb_printf(s, "rank(in%d)", input);
        else if (axis < 0)
            sb_printf(s, "has(in%d)", input);
        else
            sb_printf(s, "dim(in%d, %d)", input, axis);
        return;
    }
    case E_LOAD:
        print_tensor(p, e->t);
        sb_puts(s, e->kind == 1 ? "[flat " : "[");
        for (int i = 0; i < e->n; i++) {
            if (i) sb_puts(s, ", ");
            print_expr(p, e->a[i], 0);
        }
        sb_puts(s, "]");
        return;
    case E_REDUCE:
        sb_printf(s, "%s(", reduce_name[e->kind]);
        for (int i = 0; i < e->naxis; i++) {
            sb_printf(s, "%si%d < ", i ? ", " : "", number(&p->axis, e->raxis[i]->id));
            print_expr(p, e->raxis[i]->extent, 2);
        }
        sb_puts(s, ": ");
        print_expr(p, e->a[0], 0);
        sb_puts(s, ")");
        return;
    case E_CAST: print_list(p, e, dtype_name(e->dtype)); return;
    case E_BITCAST:
        sb_puts(s, "bits_");
        print_list(p, e, dtype_name(e->dtype));
        return;
    default: break;
    }
    if (mine == 5) {
        print_list(p, e, expr_row[e->op].name);
        return;
    }
    if (mine <= level) sb_puts(s, "(");
    int64_t k = 0;
    const Expr *b = e->op == E_ADD ? e->a[1] : NULL; /* a + -2 and a + -2 * x print as a - … */
    bool times = b && b->op == E_MUL && e_is_int(b->a[0], &k);
    if (e->op == E_NEG) {
        sb_puts(s, "-");
        print_expr(p, e->a[0], mine);
    } else if (b && (times || e_is_int(b, &k)) && k < 0 && k > INT64_MIN &&
               !(times && p->shared.of && p->shared.of[b->id])) {
        print_expr(p, e->a[0], mine - 1);
        sb_puts(s, " - ");
        if (!times || k != -1) sb_printf(s, "%" PRId64 "%s", -k, times ? " * " : "");
        if (times) print_expr(p, b->a[1], k == -1 ? mine : mine + 1);
    } else {
        print_expr(p, e->a[0], mine - 1);
        sb_printf(s, " %s ", expr_row[e->op].name);
        print_expr(p, e->a[1], mine);
    }
    if (mine <= level) sb_puts(s, ")");
}

/* `level`: operators up to this level are put in parentheses. */
static void print_expr(Printer *p, const Expr *e, int level) {
    if (!e)
        sb_puts(p->s, "-");
    else if (p->left-- <= 0)
        sb_puts(p->s, "...");
    else if (p->shared.of && p->shared.of[e->id] > 0)
        sb_printf(p->s, "%%%d", p->shared.of[e->id] - 1);
    else
        print_node(p, e, level);
}

void e_print(Sb *s, const Expr *e) {
    Printer p = {.s = s, .left = MAX_NODES};
    print_expr(&p, e, 0);
}

/* Counts the uses of everything below e. */
static void count_uses(Printer *p, const Expr *e) {
    if (p->uses.of[e->id]++) return;
    p->touched[p->ntouched++] = e->id;
    int n = e->op == E_TELL ? 1 : e->n; /* its values are printed only in the message */
    for (int i = 0; i < n; i++) count_uses(p, e->a[i]);
    if (e->op == E_REDUCE)
        for (int i = 0; i < e->naxis; i++) count_uses(p, e->raxis[i]->extent);
}

/* Prints and numbers values used twice below e, operands first. */
static void print_shared(Printer *p, const Expr *e, int indent) {
    if (p->uses.of[e->id] < 0) return;
    bool twice = p->uses.of[e->id] > 1 && e->n > 0 && e->op != E_NEG;
    p->uses.of[e->id] = -1;
    int n = e->op == E_TELL ? 1 : e->n;
    for (int i = 0; i < n; i++) print_shared(p, e->a[i], indent);
    if (!twice) return;
    sb_printf(p->s, "%*s%%%d = ", indent, "", p->shared.next);
    p->left = MAX_NODES;
    print_node(p, e, 0);
    sb_puts(p->s, "\n");
    p->shared.of[e->id] = ++p->shared.next;
}

/* Prints, before a line, the values that its expressions use more than once. Call forget_shared
 * after the line.
 */
static void share(Printer *p, int indent, int n, Expr *const *e) {
    for (int i = 0; i < n; i++)
        if (e[i]) count_uses(p, e[i]);
    for (int i = 0; i < n; i++)
        if (e[i]) print_shared(p, e[i], indent);
    p->left = MAX_NODES;
}

static void forget_shared(Printer *p) {
    for (int i = 0; i < p->ntouched; i++)
        p->uses.of[p->touched[i]] = p->shared.of[p->touched[i]] = 0;
    p->ntouched = 0;
    p->shared.next = 0;
}

/* ---- statements ------------------------------------------------------------------------------ */
static void print_dims(Printer *p, const Tensor *t) {
    Sb *s = p->s;
    if (t->blob) {
        sb_puts(s, "sequence");
        return;
    }
    p->left = MAX_NODES;
    sb_printf(s, "%s[", dtype_name((int)t->dtype));
    if (t->rank < 0) {
        sb_puts(s, "rank ");
        print_expr(p, t->rank_e, 0);
        sb_puts(s, ": ");
    }
    int n = t->rank < 0 ? MAX_RANK : t->rank;
    while (t->rank < 0 && n > 0 && (!t->dim[n - 1] || e_is_ival(t->dim[n - 1], 1))) n--;
    for (int i = 0; i < n; i++) {
        if (i) sb_puts(s, ", ");
        print_expr(p, t->dim[i], 0);
    }
    sb_puts(s, "]");
}

/* "t3 float32[2, 3] "name"", followed by the base of a view. */
static void print_ref(Printer *p, const Tensor *t) {
    if (!t) {
        sb_puts(p->s, "-");
        return;
    }
    print_tensor(p, t);
    if (t->kind == TK_VIEW) {
        sb_puts(p->s, " ");
        print_dims(p, t);
        sb_puts(p->s, " of ");
        print_ref(p, t->base);
    }
}

static void print_def(Printer *p, const Tensor *t) {
    print_tensor(p, t);
    sb_puts(p->s, " ");
    print_dims(p, t);
    if (t->name) sb_printf(p->s, " \"%s\"", t->name);
}

static void print_site(Printer *p, int site, const Expr *cond) {
    if (site < 0 || site >= p->p->cx->site.n) return;
    sb_puts(p->s, " ");
    print_message(p, site, cond);
}

/* "i0, d.1 + (i1 < 2), i2": the range of elements that are computed. */
static void print_position(Printer *p, const Tensor *t, Expr *const *at) {
    int rank = t->rank < 0 ? MAX_RANK : t->rank;
    bool some = false;
    for (int i = 0; i < rank; i++) {
        if (!t->axis[i]) continue;
        sb_puts(p->s, some ? ", " : "");
        some = true;
        if (at && at[i]) {
            print_expr(p, at[i], 0);
            if (e_is_ival(t->axis[i]->extent, 1)) continue;
            sb_puts(p->s, " + (");
        }
        sb_printf(p->s, "i%d", number(&p->axis, t->axis[i]->id));
        if (!at || !at[i]) continue;
        sb_puts(p->s, " < ");
        print_expr(p, t->axis[i]->extent, 0);
        sb_puts(p->s, ")");
    }
}

static void print_op(Printer *p, const Stmt *op, const Tensor *t, int indent) {
    Sb *s = p->s;
    if (t->fused) return;
    sb_printf(s, "%*s", indent, "");
    print_def(p, t);
    if (op_is_empty(op)) {
        sb_puts(s, " is ");
        print_ref(p, t->base);
        sb_puts(s, "\n");
        return;
    }
    sb_puts(s, " (");
    print_position(p, t, op->op.at);
    sb_puts(s, ")\n");
    if (!t->body) return;
    share(p, indent + 4, 1, &t->body);
    sb_printf(s, "%*s= ", indent + 4, "");
    print_expr(p, t->body, 0);
    sb_puts(s, "\n");
    forget_shared(p);
}

static void print_seq(Printer *p, const Seq *q, int indent);

/* Prints "what e", with shared values of e on lines before it. */
static void print_line(Printer *p, int indent, const char *what, const Sym *s, Expr *e) {
    share(p, indent + 2, 1, &e);
    sb_printf(p->s, "%*s%s", indent, "", what);
    if (s) {
        print_sym(p, s);
        sb_puts(p->s, *what == 'c' ? " from " : " = ");
    }
    print_expr(p, e, 0);
    forget_shared(p);
}

static void print_loop(Printer *p, const Stmt *s, int indent) {
    Sb *o = p->s;
    share(p, indent + 2, 2, (Expr *[]){s->loop.trips, s->loop.cond0});
    sb_printf(o, "%*sloop", indent, "");
    if (s->loop.iter) {
        sb_puts(o, " ");
        print_sym(p, s->loop.iter);
    }
    if (s->loop.trips) {
        sb_puts(o, " < ");
        print_expr(p, s->loop.trips, 2);
    }
    if (s->loop.cond0) {
        sb_puts(o, " if ");
        print_expr(p, s->loop.cond0, 0);
    }
    sb_puts(o, "\n");
    forget_shared(p);
    for (int i = 0; i < s->loop.syms.n; i++) {
        print_line(p, indent + 2, "carry ", s->loop.syms.p[i].sym, s->loop.syms.p[i].init);
        sb_puts(o, "\n");
    }
    for (int i = 0; i < s->loop.carry.n; i++) {
        sb_printf(o, "%*scarry ", indent + 2, "");
        print_def(p, s->loop.carry.p[i].phi);
        sb_puts(o, " from ");
        print_ref(p, s->loop.carry.p[i].init);
        const Grow *g = s->loop.carry.p[i].phi->grow;
        if (g) sb_printf(o, ", grows along axis %d", g->axis);
        sb_puts(o, g ? "\n" : s->loop.carry.p[i].inplace ? ", in place\n" : "\n");
    }
    print_seq(p, s->loop.body, indent + 4);
    for (int i = 0; i < s->loop.syms.n; i++) {
        print_line(p, indent + 2, "next ", s->loop.syms.p[i].sym, s->loop.syms.p[i].next);
        sb_puts(o, "\n");
    }
    for (int i = 0; i < s->loop.carry.n; i++) {
        sb_printf(o, "%*snext ", indent + 2, "");
        print_tensor(p, s->loop.carry.p[i].phi);
        sb_puts(o, " = ");
        print_ref(p, s->loop.carry.p[i].next);
        sb_puts(o, "\n");
    }
    for (int i = 0; i < s->loop.scan.n; i++) {
        const LoopScan *k = &s->loop.scan.p[i];
        sb_printf(o, "%*sscan ", indent + 2, "");
        if (k->more)
            print_ref(p, k->out);
        else
            print_def(p, k->out);
        if (k->at) {
            sb_puts(o, " at ");
            print_expr(p, k->at, 0);
        }
        sb_puts(o, " of ");
        print_ref(p, k->elem);
        sb_puts(o, "\n");
    }
    if (s->loop.cond_next) {
        print_line(p, indent + 2, "while ", NULL, s->loop.cond_next);
        sb_puts(o, "\n");
    }
    if (s->loop.barrier) sb_printf(o, "%*sbarrier\n", indent + 2, "");
}

static void print_branch(Printer *p, const Stmt *s, int indent) {
    Sb *o = p->s;
    print_line(p, indent, "if ", NULL, s->br.cond);
    sb_puts(o, "\n");
    print_seq(p, s->br.arm[0], indent + 4);
    sb_printf(o, "%*selse\n", indent, "");
    print_seq(p, s->br.arm[1], indent + 4);
    for (int i = 0; i < s->br.syms.n; i++) {
        share(p, indent + 4, 2, s->br.syms.p[i].arm);
        sb_printf(o, "%*sjoin ", indent + 2, "");
        print_sym(p, s->br.syms.p[i].sym);
        sb_puts(o, " = ");
        print_expr(p, s->br.syms.p[i].arm[0], 0);
        sb_puts(o, " | ");
        print_expr(p, s->br.syms.p[i].arm[1], 0);
        sb_puts(o, "\n");
        forget_shared(p);
    }
    for (int i = 0; i < s->br.joins.n; i++) {
        sb_printf(o, "%*sjoin ", indent + 2, "");
        print_def(p, s->br.joins.p[i].out);
        sb_puts(o, " = ");
        print_ref(p, s->br.joins.p[i].arm[0]);
        sb_puts(o, " | ");
        print_ref(p, s->br.joins.p[i].arm[1]);
        sb_puts(o, "\n");
    }
}

static void print_extern(Printer *p, const Stmt *s, int indent) {
    Sb *o = p->s;
    share(p, indent + 2, s->ext.nparam, s->ext.param);
    sb_printf(o, "%*sextern %s(", indent, "", s->ext.row ? s->ext.row->name : "?");
    for (int i = 0; i < s->ext.nin; i++) {
        if (i) sb_puts(o, ", ");
        print_ref(p, s->ext.in[i]);
    }
    for (int i = 0; i < s->ext.nparam; i++) {
        sb_puts(o, i ? ", " : "; ");
        print_expr(p, s->ext.param[i], 0);
    }
    sb_puts(o, ") ->");
    for (int i = 0; i < s->ext.nsym; i++) {
        sb_puts(o, i ? ", " : " ");
        print_sym(p, s->ext.sym[i]);
    }
    for (int i = 0; i < s->ext.nout; i++) {
        sb_puts(o, i + s->ext.nsym ? ", " : " ");
        print_def(p, s->ext.out[i]);
    }
    sb_puts(o, "\n");
    forget_shared(p);
}

static void print_func(Printer *p, const Func *f, int indent) {
    Sb *o = p->s;
    sb_printf(o, "%*sfunction %s.%d(", indent, "", f->name, number(&p->func, f->id));
    for (int i = 0; i < f->nsym + f->narg; i++) {
        if (i) sb_puts(o, ", ");
        if (i < f->nsym)
            print_sym(p, f->sym[i]);
        else
            print_def(p, f->arg[i - f->nsym]);
    }
    sb_puts(o, ")");
    if (f->inside) sb_printf(o, " calls %d below", f->inside + 1);
    sb_puts(o, "\n");
    print_seq(p, f->body, indent + 4);
    share(p, indent + 4, f->nret, f->ret);
    sb_printf(o, "%*sreturn", indent + 4, "");
    for (int i = 0; i < f->nret; i++) {
        sb_puts(o, i ? ", " : " ");
        print_expr(p, f->ret[i], 0);
    }
    for (int i = 0; i < f->nout; i++) {
        sb_puts(o, i + f->nret ? ", " : " ");
        print_ref(p, f->out[i]);
    }
    sb_puts(o, "\n");
    forget_shared(p);
}

static void print_call(Printer *p, const Stmt *s, int indent) {
    Sb *o = p->s;
    const Func *f = s->call.f;
    share(p, indent + 2, f->nsym, s->call.sym);
    sb_printf(o, "%*scall %s%s.%d(", indent, "", s->beside ? "beside " : "", f->name,
              number(&p->func, f->id));
    for (int i = 0; i < f->nsym + f->narg; i++) {
        if (i) sb_puts(o, ", ");
        if (i < f->nsym)
            print_expr(p, s->call.sym[i], 0);
        else
            print_ref(p, s->call.arg[i - f->nsym]);
    }
    sb_puts(o, ") ->");
    for (int i = 0; i < f->nret; i++) {
        sb_puts(o, i ? ", " : " ");
        print_sym(p, s->call.ret[i]);
    }
    for (int i = 0; i < f->nout; i++) {
        sb_puts(o, i + f->nret ? ", " : " ");
        print_def(p, s->call.out[i]);
    }
    sb_puts(o, "\n");
    forget_shared(p);
    for (int i = 0; i < s->call.nfunc; i++) print_func(p, s->call.func[i], indent + 2);
}

static void print_seq(Printer *p, const Seq *q, int indent) {
    Sb *o = p->s;
    int level = p->level;
    for (int i = 0; q && i < q->s.n; i++) {
        const Stmt *s = q->s.p[i];
        int live = 0;
        int own = s->each                     ? 3
                  : s->level == LEVEL_HOST    ? 4
                  : s->level == LEVEL_CORE    ? 1
                  : s->level == LEVEL_CLUSTER ? 2
                                              : 0;
        if (s->kind != S_BARRIER && own != p->level) {
            static const char *const names[] = {"team", "core", "cluster", "core, each", "host"};
            p->level = own;
            sb_printf(o, "%*slevel %s\n", indent, "", names[own]);
        }
        switch (s->kind) {
        case S_OP:
            for (int k = 0; k < s->op.n; k++) live += !s->op.t[k]->fused;
            if (live > 1) sb_printf(o, "%*sgroup\n", indent, "");
            for (int k = 0; k < s->op.n; k++)
                print_op(p, s, s->op.t[k], live > 1 ? indent + 2 : indent);
            break;
        case S_LET:
            print_line(p, indent, "let ", s->let.sym, s->let.e);
            sb_puts(o, "\n");
            break;
        case S_CHECK:
            print_line(p, indent, "check ", NULL, s->check.cond);
            print_site(p, s->check.site, s->check.cond);
            sb_puts(o, "\n");
            break;
        case S_EXTERN: print_extern(p, s, indent); break;
        case S_LOOP: print_loop(p, s, indent); break;
        case S_BRANCH: print_branch(p, s, indent); break;
        case S_BARRIER:
            if (s->meet)
                sb_printf(o, "%*s%s unit %d\n", indent, "",
                          s->meet == MEET_GATHER ? "flags to" : "flag of", s->unit);
            else
                sb_printf(o, "%*s%sbarrier\n", indent, "",
                          s->level == LEVEL_CORE      ? "block "
                          : s->level == LEVEL_CLUSTER ? "cluster "
                                                      : "");
            break;
        case S_CALL: print_call(p, s, indent); break;
        case S_ENTER:
            sb_printf(o, "%*senter %d below", indent, "", s->enter.below);
            print_site(p, s->enter.site, NULL);
            sb_puts(o, "\n");
            break;
        case S_COUNT: break;
        }
    }
    p->level = level;
}

/* ---- programs -------------------------------------------------------------------------------- */
static void print_io(Printer *p, const char *what, const Io *io) {
    static const char *const kind[] = {"", "sequence ", "optional "};
    sb_printf(p->s, "%s %s\"%s\"", what, kind[io->kind], io->name);
    if (io->t) {
        sb_puts(p->s, " ");
        print_ref(p, io->t);
        sb_puts(p->s, " ");
        print_dims(p, io->t);
    }
    if (io->has) {
        p->left = MAX_NODES;
        sb_puts(p->s, " if ");
        print_expr(p, io->has, 0);
    }
    sb_puts(p->s, "\n");
}

static void print_data(Printer *p, const Tensor *t) {
    enum { SHOWN = 8 };
    sb_puts(p->s, "const ");
    print_def(p, t);
    sb_puts(p->s, " = {");
    for (int64_t i = 0; i < t->data->count && i < SHOWN; i++) {
        if (i) sb_puts(p->s, ", ");
        print_elem(p->s, t->data, i);
    }
    sb_puts(p->s, t->data->count > SHOWN ? ", ...}\n" : "}\n");
}

static Numbers numbers(int n) { return (Numbers){calloc((size_t)n + 1, sizeof(int)), n, 0}; }

void utask_print(Sb *s, const Program *p) {
    const Cx *c = p->cx;
    Printer r = {.s = s, .p = p, .left = MAX_NODES};
    r.tensor = numbers(c->next_tensor);
    r.sym = numbers(c->next_sym);
    r.axis = numbers(c->next_axis);
    r.func = numbers(p->nfunc);
    r.uses = numbers(c->next_expr);
    r.shared = numbers(c->next_expr);
    r.konst = calloc((size_t)c->next_tensor + 1, sizeof *r.konst);
    r.touched = calloc((size_t)c->next_expr + 1, sizeof(int));
    if (r.tensor.of && r.sym.of && r.axis.of && r.func.of && r.uses.of && r.shared.of && r.konst &&
        r.touched) {
        sb_printf(s, "program %s\n", p->name ? p->name : "");
        for (int i = 0; i < p->nin; i++) print_io(&r, "in", &p->in[i]);
        print_seq(&r, p->top, 0);
        for (int i = 0; i < p->nout; i++) print_io(&r, "out", &p->out[i]);
        for (int i = 0; i < r.nkonst; i++) print_data(&r, r.konst[i]);
    } else
        sb_puts(s, "out of memory\n");
    free(r.tensor.of);
    free(r.sym.of);
    free(r.axis.of);
    free(r.func.of);
    free(r.uses.of);
    free(r.shared.of);
    free((void *)r.konst);
    free(r.touched);
}
