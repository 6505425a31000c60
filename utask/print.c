/* print.c: prints expressions and Programs as text.
 *
 * Tensors, symbols and axes are numbered in the order in which they are printed, so the text of a
 * Program does not depend on how many others were created before. A value that a body uses more
 * than once is printed once, as %n.
 */
#include "utask/print.h"
#include "utask/coded.h"
#include "utask/extern.h"
#include <inttypes.h>
#include <math.h>

typedef struct Printer {
    Sb *s;
    const Program *p;
    Numbers tensor, sym, axis, func;
    Numbers uses, shared; /* by expression id, for the current body */
    const Tensor **konst; /* constants in order of appearance */
    int nkonst;
    int *touched, ntouched; /* expressions with entries in uses */
    const char *level;      /* of what is printed */
    int left;               /* nodes that may still be printed: sharing is not shown everywhere */
    Arena *a;
    Printed *printed; /* or NULL */
} Printer;

enum { MAX_NODES = 4000 };

int print_number(Numbers *m, int id) {
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
    sb_printf(p->s, "%s.%d", s->name && *s->name ? s->name : "s", print_number(&p->sym, s->id));
}

static void print_tensor(Printer *p, const Tensor *t) {
    if (!p->tensor.of[t->id] && t->kind == TK_CONST) p->konst[p->nkonst++] = t;
    sb_printf(p->s, "t%d", print_number(&p->tensor, t->id));
}

static void print_expr(Printer *p, const Expr *e, int level);
static void print_ref(Printer *p, const Tensor *t);
static void print_def(Printer *p, const Tensor *t);

/* %d and %s, and: %> so many spaces; %e an expression, %y a symbol, %a an axis; a tensor as %t its
 * number, %r what reads it, %D what defines it. */
static void say(Printer *p, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    for (; *fmt; fmt++) {
        if (*fmt != '%') {
            sb_write(p->s, fmt, 1);
            continue;
        }
        switch (*++fmt) {
        case 'd': sb_printf(p->s, "%d", va_arg(ap, int)); break;
        case 's': sb_puts(p->s, va_arg(ap, const char *)); break;
        case '>': sb_printf(p->s, "%*s", va_arg(ap, int), ""); break;
        case 'e': print_expr(p, va_arg(ap, const Expr *), 0); break;
        case 'y': print_sym(p, va_arg(ap, const Sym *)); break;
        case 'a':
            sb_printf(p->s, "i%d", print_number(&p->axis, va_arg(ap, const Axis *)->id));
            break;
        case 't': print_tensor(p, va_arg(ap, const Tensor *)); break;
        case 'r': print_ref(p, va_arg(ap, const Tensor *)); break;
        case 'D': print_def(p, va_arg(ap, const Tensor *)); break;
        default: die("say: %%%c", *fmt);
        }
    }
    va_end(ap);
}

/* x[0..n), with `first` in front of the first one and commas between. */
#define LIST(p, first, fmt, n, x)                                                                  \
    for (int i_ = 0; i_ < (n); i_++) {                                                             \
        sb_puts((p)->s, i_ ? ", " : first);                                                        \
        say(p, fmt, (x)[i_]);                                                                      \
    }

/* ---- expressions ----------------------------------------------------------------------------- */
static int level_of(const Expr *e) { return expr_row[e->op].level ? expr_row[e->op].level : 5; }

static const char *const reduce_name[] = {"sum", "prod",   "max",    "min",         "all",
                                          "any", "argmax", "argmin", "argmax_last", "argmin_last"};

/* The text of a site, with the values that cond reports as expressions. */
static void print_message(Printer *p, int site, const Expr *cond) {
    sb_puts(p->s, "\"");
    for (const char *t = p->p->cx->site.p[site]; *t; t++) {
        int i = *t - SAID_FIRST;
        if (i < 0 || i >= SAID_MAX)
            sb_write(p->s, t, 1);
        else if (cond && cond->op == E_TELL && i + 1 < cond->n &&
                 !e_is_ival(cond->a[i + 1], UNSAID))
            say(p, "{%e}", cond->a[i + 1]);
        else
            sb_puts(p->s, "{?}");
    }
    sb_puts(p->s, "\"");
}

static void print_list(Printer *p, const Expr *e, const char *name) {
    say(p, "%s(", name);
    LIST(p, "", "%e", e->n, e->a);
    if (e->op == E_GUARD) {
        say(p, "; ");
        print_message(p, (int)e->i, e->a[0]);
    }
    say(p, ")");
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
            say(p, "%s ", dtype_name(e->dtype));
            print_const(s, e->dtype, 0, e->i);
        }
        return;
    case E_SYM: say(p, "%y", e->sym); return;
    case E_AXIS: say(p, "%a", e->axis); return;
    case E_LIMIT: say(p, "limit"); return;
    case E_SEED: say(p, "seed"); return;
    case E_INDIM: {
        int axis = (int8_t)(e->i & 255), input = (int)(e->i >> 8);
        if (axis < 0)
            say(p, "%s(in%d)", axis == -1 ? "rank" : "has", input);
        else
            say(p, "dim(in%d, %d)", input, axis);
        return;
    }
    case E_LOAD:
        say(p, e->kind == 1 ? "%t[flat " : "%t[", e->t);
        LIST(p, "", "%e", e->n, e->a);
        say(p, "]");
        return;
    case E_REDUCE:
        say(p, "%s(", reduce_name[e->kind]);
        for (int i = 0; i < e->naxis; i++) {
            say(p, i ? ", %a < " : "%a < ", e->raxis[i]);
            print_expr(p, e->raxis[i]->extent, 2);
        }
        say(p, ": %e)", e->a[0]);
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
               !(times && p->shared.of[b->id])) {
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
    else if (p->shared.of[e->id] > 0)
        sb_printf(p->s, "%%%d", p->shared.of[e->id] - 1);
    else
        print_node(p, e, level);
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
    if (t->blob) {
        say(p, "sequence");
        return;
    }
    p->left = MAX_NODES;
    say(p, "%s", dtype_name((int)t->dtype));
    if (t->values) say(p, " of %s", dtype_name((int)t->values));
    if (t->coded) say(p, " of %d bits", t->coded->bits);
    say(p, "[");
    if (t->rank < 0) say(p, "rank %e: ", t->rank_e);
    int n = tensor_ndim(t);
    while (t->rank < 0 && n > 0 && e_is_ival(t->dim[n - 1], 1)) n--;
    LIST(p, "", "%e", n, t->dim);
    say(p, "]");
}

/* A view is followed by its base. */
static void print_ref(Printer *p, const Tensor *t) {
    say(p, t ? "%t" : "-", t);
    if (!t || t->kind != TK_VIEW) return;
    say(p, " ");
    print_dims(p, t);
    say(p, " of %r", t->base);
}

/* "t3 float32[2, 3] "name"" */
static void print_def(Printer *p, const Tensor *t) {
    say(p, "%t ", t);
    print_dims(p, t);
    if (t->name) say(p, " \"%s\"", t->name);
}

static void print_site(Printer *p, int site, const Expr *cond) {
    say(p, " ");
    print_message(p, site, cond);
    say(p, "\n");
}

/* "i0, d.1 + (i1 < 2), i2": the range of elements that are computed. */
static void print_position(Printer *p, const Tensor *t, Expr *const *at) {
    const char *sep = "";
    for (int i = 0; i < tensor_ndim(t); i++) {
        const Axis *x = t->axis[i];
        if (!x) continue;
        sb_puts(p->s, sep);
        sep = ", ";
        if (!at || !at[i])
            say(p, "%a", x);
        else if (e_is_ival(x->extent, 1))
            say(p, "%e", at[i]);
        else
            say(p, "%e + (%a < %e)", at[i], x, x->extent);
    }
}

static void print_op(Printer *p, const Stmt *op, const Tensor *t, int indent) {
    if (t->fused) return;
    say(p, "%>%D", indent, t);
    if (op_is_empty(op)) {
        say(p, " is %r\n", t->base);
        return;
    }
    say(p, " (");
    print_position(p, t, op->op.at);
    say(p, ")\n");
    if (!t->body) return;
    share(p, indent + 4, 1, &t->body);
    say(p, "%>= %e\n", indent + 4, t->body);
    forget_shared(p);
}

static void print_seq(Printer *p, const Seq *q, int indent);

/* Prints "what e", with shared values of e on lines before it. */
static void print_line(Printer *p, int indent, const char *what, Expr *e) {
    share(p, indent + 2, 1, &e);
    say(p, "%>%s%e\n", indent, what, e);
    forget_shared(p);
}
/* "what s = e" */
static void print_binding(Printer *p, int indent, const char *what, const Sym *s, const char *is,
                          Expr *e) {
    share(p, indent + 2, 1, &e);
    say(p, "%>%s%y%s%e\n", indent, what, s, is, e);
    forget_shared(p);
}

static void print_loop(Printer *p, const Stmt *s, int indent) {
    share(p, indent + 2, 2, (Expr *[]){s->loop.trips, s->loop.cond0});
    say(p, "%>loop %y", indent, s->loop.iter);
    if (s->loop.trips) {
        say(p, " < ");
        print_expr(p, s->loop.trips, 2);
    }
    if (s->loop.cond0) say(p, " if %e", s->loop.cond0);
    if (s->loop.parts > 1) say(p, " in %d parts", s->loop.parts);
    if (s->loop.within) say(p, " within a thread");
    say(p, "\n");
    forget_shared(p);
    indent += 2;
    for (int i = 0; i < s->loop.syms.n; i++) {
        const LoopSym *k = &s->loop.syms.p[i];
        print_binding(p, indent, "carry ", k->sym, " from ", k->init);
    }
    for (int i = 0; i < s->loop.carry.n; i++) {
        const LoopCarry *k = &s->loop.carry.p[i];
        say(p, k->init ? "%>carry %D from %r" : "%>carry %D", indent, k->phi, k->init);
        if (k->phi->grow)
            say(p, ", grows along axis %d", k->phi->grow->axis);
        else if (k->inplace)
            say(p, k->rows ? ", row by row" : ", in place");
        say(p, "\n");
    }
    print_seq(p, s->loop.body, indent + 2);
    for (int i = 0; i < s->loop.syms.n; i++)
        print_binding(p, indent, "next ", s->loop.syms.p[i].sym, " = ", s->loop.syms.p[i].next);
    for (int i = 0; i < s->loop.carry.n; i++)
        say(p, "%>next %t = %r\n", indent, s->loop.carry.p[i].phi, s->loop.carry.p[i].next);
    for (int i = 0; i < s->loop.scan.n; i++) {
        const LoopScan *k = &s->loop.scan.p[i];
        say(p, k->more ? "%>scan %r" : "%>scan %D", indent, k->out);
        if (k->at) say(p, " at %e", k->at);
        say(p, " of %r\n", k->elem);
    }
    if (s->loop.cond_next) print_line(p, indent, "while ", s->loop.cond_next);
    if (s->loop.barrier) say(p, "%>barrier\n", indent);
}

static void print_branch(Printer *p, const Stmt *s, int indent) {
    print_line(p, indent, "if ", s->br.cond);
    print_seq(p, s->br.arm[0], indent + 4);
    say(p, "%>else\n", indent);
    print_seq(p, s->br.arm[1], indent + 4);
    for (int i = 0; i < s->br.syms.n; i++) {
        const JoinSym *k = &s->br.syms.p[i];
        share(p, indent + 4, 2, k->arm);
        say(p, "%>join %y = %e | %e\n", indent + 2, k->sym, k->arm[0], k->arm[1]);
        forget_shared(p);
    }
    for (int i = 0; i < s->br.joins.n; i++) {
        const Join *k = &s->br.joins.p[i];
        say(p, "%>join %D = %r | %r\n", indent + 2, k->out, k->arm[0], k->arm[1]);
    }
}

static void print_extern(Printer *p, const Stmt *s, int indent) {
    share(p, indent + 2, s->ext.nparam, s->ext.param);
    say(p, "%>extern %s(", indent, s->ext.row ? s->ext.row->name : "?");
    LIST(p, "", "%r", s->ext.nin, s->ext.in);
    LIST(p, "; ", "%e", s->ext.nparam, s->ext.param);
    say(p, ") ->");
    LIST(p, " ", "%y", s->ext.nsym, s->ext.sym);
    LIST(p, s->ext.nsym ? ", " : " ", "%D", s->ext.nout, s->ext.out);
    say(p, "%s\n", s->ext.host ? ", by the host" : "");
    forget_shared(p);
}

static void print_func(Printer *p, const Func *f, int indent) {
    say(p, "%>function %s.%d(", indent, f->name, print_number(&p->func, f->id));
    LIST(p, "", "%y", f->nsym, f->sym);
    LIST(p, f->nsym ? ", " : "", "%D", f->narg, f->arg);
    say(p, ")");
    if (f->inside) say(p, " calls %d below", f->inside + 1);
    say(p, "\n");
    print_seq(p, f->body, indent + 4);
    share(p, indent + 4, f->nret, f->ret);
    say(p, "%>return", indent + 4);
    LIST(p, " ", "%e", f->nret, f->ret);
    LIST(p, f->nret ? ", " : " ", "%r", f->nout, f->out);
    say(p, "\n");
    forget_shared(p);
}

static void print_call(Printer *p, const Stmt *s, int indent) {
    const Func *f = s->call.f;
    share(p, indent + 2, f->nsym, s->call.sym);
    say(p, "%>call %s%s.%d(", indent, s->beside ? "beside " : "", f->name,
        print_number(&p->func, f->id));
    LIST(p, "", "%e", f->nsym, s->call.sym);
    LIST(p, f->nsym ? ", " : "", "%r", f->narg, s->call.arg);
    say(p, ") ->");
    LIST(p, " ", "%y", f->nret, s->call.ret);
    LIST(p, f->nret ? ", " : " ", "%D", f->nout, s->call.out);
    say(p, "\n");
    forget_shared(p);
    for (int i = 0; i < s->call.nfunc; i++) print_func(p, s->call.func[i], indent + 2);
}

static const char *level_name(const Stmt *s) {
    if (s->each) return "core, each";
    return s->level == LEVEL_HOST      ? "host"
           : s->level == LEVEL_CORE    ? "core"
           : s->level == LEVEL_CLUSTER ? "cluster"
                                       : "team";
}

static void print_barrier(Printer *p, const Stmt *s, int indent) {
    if (s->meet)
        say(p, "%>%s unit %d\n", indent, s->meet == MEET_GATHER ? "flags to" : "flag of", s->unit);
    else
        say(p, "%>%sbarrier\n", indent,
            s->level == LEVEL_CORE      ? "block "
            : s->level == LEVEL_CLUSTER ? "cluster "
                                        : "");
}

static void print_stmt(Printer *p, const Stmt *s, int indent) {
    int live = 0;
    switch (s->kind) {
    case S_OP:
        for (int k = 0; k < s->op.n; k++) live += !s->op.t[k]->fused;
        if (s->op.team && !s->beside)
            say(p, "%>side by side, %d threads each\n", indent, s->op.team);
        if (s->op.team) indent += 2;
        if (live > 1) say(p, "%>group\n", indent);
        for (int k = 0; k < s->op.n; k++)
            print_op(p, s, s->op.t[k], live > 1 ? indent + 2 : indent);
        break;
    case S_LET: print_binding(p, indent, "let ", s->let.sym, " = ", s->let.e); break;
    case S_CHECK:
        share(p, indent + 2, 1, &s->check.cond);
        say(p, "%>check %e", indent, s->check.cond);
        forget_shared(p);
        print_site(p, s->check.site, s->check.cond);
        break;
    case S_EXTERN: print_extern(p, s, indent); break;
    case S_LOOP: print_loop(p, s, indent); break;
    case S_BRANCH: print_branch(p, s, indent); break;
    case S_BARRIER: print_barrier(p, s, indent); break;
    case S_CALL: print_call(p, s, indent); break;
    case S_ENTER:
        say(p, "%>enter %d below", indent, s->enter.below);
        print_site(p, s->enter.site, NULL);
        break;
    case S_COUNT: break;
    }
}

/* What is printed from here on is about s; NULL: about no statement. */
static void mark(Printer *p, const Stmt *s) {
    if (p->printed) vec_push(p->a, &p->printed->mark, ((PrintMark){s, p->s->n}));
}

static void print_seq(Printer *p, const Seq *q, int indent) {
    const char *level = p->level;
    for (int i = 0; q && i < q->s.n; i++) {
        const Stmt *s = q->s.p[i];
        const char *own = level_name(s);
        mark(p, NULL);
        if (s->kind != S_BARRIER && strcmp(own, p->level) != 0) {
            p->level = own;
            say(p, "%>level %s\n", indent, own);
        }
        mark(p, s);
        print_stmt(p, s, indent);
    }
    mark(p, q ? q->owner : NULL);
    p->level = level;
}

/* ---- programs -------------------------------------------------------------------------------- */
static void print_io(Printer *p, const char *what, const Io *io) {
    static const char *const kind[] = {"", "sequence ", "optional "};
    say(p, "%s %s\"%s\"", what, kind[io->kind], io->name);
    if (io->t) {
        say(p, " %r ", io->t);
        print_dims(p, io->t);
    }
    p->left = MAX_NODES;
    if (io->has) say(p, " if %e", io->has);
    say(p, "\n");
}

static void print_data(Printer *p, const Tensor *t) {
    enum { SHOWN = 8 };
    say(p, "const %D = {", t);
    for (int64_t i = 0; i < t->data->count && i < SHOWN; i++) {
        if (i) say(p, ", ");
        print_elem(p->s, t->data, i);
    }
    say(p, t->data->count > SHOWN ? ", ...}\n" : "}\n");
}

static Numbers numbers(Arena *a, int n) { return (Numbers){NEWN(a, int, n + 1), 0}; }

static Printer print_program(Arena *a, Sb *s, const Program *p, Printed *printed) {
    const Cx *c = p->cx;
    Printer r = {.s = s, .p = p, .level = "team", .left = MAX_NODES, .a = a, .printed = printed};
    r.tensor = numbers(a, c->next_tensor);
    r.sym = numbers(a, c->next_sym);
    r.axis = numbers(a, c->next_axis);
    r.func = numbers(a, p->nfunc);
    r.uses = numbers(a, c->next_expr);
    r.shared = numbers(a, c->next_expr);
    r.konst = NEWN(a, const Tensor *, c->next_tensor + 1);
    r.touched = NEWN(a, int, c->next_expr + 1);
    sb_printf(s, "program %s\n", p->name ? p->name : "");
    for (int i = 0; i < p->nin; i++) print_io(&r, "in", &p->in[i]);
    print_seq(&r, p->top, 0);
    for (int i = 0; i < p->nout; i++) print_io(&r, "out", &p->out[i]);
    for (int i = 0; i < r.nkonst; i++) print_data(&r, r.konst[i]);
    return r;
}

void utask_print(Sb *s, const Program *p) {
    Arena *a = arena_new(p->cx->d);
    print_program(a, s, p, NULL);
    arena_free(a);
}

void utask_print_marked(Arena *a, const Program *p, Printed *printed) {
    *printed = (Printed){.text = {.a = a}};
    Printer r = print_program(a, &printed->text, p, printed);
    printed->tensor = r.tensor;
    printed->sym = r.sym;
}
