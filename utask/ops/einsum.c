/* einsum.c: Einsum, contracted from left to right two operands at a time.
 *
 * Every axis of an operand has a label: its letter, or ELLIPSIS + k for the k-th axis that "..."
 * stands for, numbered so that the last ones agree (broadcasting aligns right).
 */
#include "utask/ops/size.h"

enum { ELLIPSIS = 128, NLABEL = ELLIPSIS + MAX_RANK };

typedef struct EinsumTerm {
    Tensor *t; /* NULL for the output term */
    int n;
    uint8_t label[MAX_RANK];
} EinsumTerm;

typedef struct Einsum {
    Lower *L;
    Expr *dim[NLABEL]; /* size of each label; NULL: unused label */
    int count[NLABEL]; /* occurrences in the operands */
    int ellipsis;      /* axes that "..." stands for */
} Einsum;

static void term_push(Lower *L, EinsumTerm *t, int label) {
    if (t->n == MAX_RANK) fail(L, "a term of the equation has more than %d axes", MAX_RANK);
    t->label[t->n++] = (uint8_t)label;
}

static void skip_spaces(const char **s) {
    while (**s == ' ') (*s)++;
}

/* Reads one term up to ',', "->" or the end. In an operand of rank `rank`, the ellipsis takes the
 * axes without letters; in the output (rank -1), all of e->ellipsis. */
static void parse_term(Einsum *e, const char **s, int rank, EinsumTerm *t) {
    Lower *L = e->L;
    int letters = 0;
    for (const char *p = *s; *p && *p != ',' && *p != '-'; p++) letters += *p != ' ' && *p != '.';
    bool dots = false;
    for (skip_spaces(s); **s && **s != ',' && **s != '-'; skip_spaces(s)) {
        char ch = **s;
        if ((ch >= 'a' && ch <= 'z') || (ch >= 'A' && ch <= 'Z')) {
            term_push(L, t, ch);
            (*s)++;
        } else if (!strncmp(*s, "...", 3) && !dots) {
            int n = rank < 0 ? e->ellipsis : rank - letters;
            dots = true;
            *s += 3;
            for (int i = 0; i < n; i++) term_push(L, t, ELLIPSIS + e->ellipsis - n + i);
        } else {
            fail(L, "the equation has an unexpected \"%c\"", ch);
        }
    }
    if (rank >= 0 && t->n != rank)
        fail(L, "a term of the equation has %d axes, its operand has rank %d", t->n, rank);
}

/* Number of axes that "..." stands for: the largest number that any operand has. */
static int ellipsis_axes(Lower *L, const char *s) {
    int most = 0;
    for (int i = 0; i < L->node->nin && *s && *s != '-'; i++) {
        int letters = 0;
        bool dots = false;
        for (; *s && *s != ',' && *s != '-'; s++) {
            dots |= *s == '.';
            letters += *s != '.' && *s != ' ';
        }
        if (*s == ',') s++;
        int n = dots && in(L, i) ? in(L, i)->rank - letters : 0;
        if (n > most) most = n;
    }
    return most;
}

static bool has_label(const EinsumTerm *t, int label) {
    for (int i = 0; i < t->n; i++)
        if (t->label[i] == label) return true;
    return false;
}

/* Sets o->t to the sum of products of a and b (NULL: only a) over all labels that `o` lacks, with
 * axes in the order of o. An axis of constant size 1 broadcasts. */
static void contract(Einsum *e, const EinsumTerm *a, const EinsumTerm *b, EinsumTerm *o) {
    Lower *L = e->L;
    Cx *c = L->cx;
    const EinsumTerm *term[2] = {a, b};
    Expr *dim[NLABEL] = {0}, *at[NLABEL] = {0}, *odim[MAX_RANK], *body = NULL;
    Axis *sum[2 * MAX_RANK];
    int nsum = 0;
    for (int k = 0; k < 2 && term[k]; k++)
        for (int i = 0; i < term[k]->n; i++) {
            int l = term[k]->label[i];
            if (!e_is_ival(term[k]->t->dim[i], 1))
                dim[l] = e->dim[l];
            else if (!dim[l])
                dim[l] = e_int(c, 1);
        }
    for (int i = 0; i < o->n; i++) odim[i] = dim[o->label[i]];
    o->t = te_begin(L, a->t->dtype, o->n, odim);
    for (int i = 0; i < o->n; i++) at[o->label[i]] = ax(L, o->t, i);
    for (int k = 0; k < 2 && term[k]; k++) {
        Expr *idx[MAX_RANK];
        for (int i = 0; i < term[k]->n; i++) {
            int l = term[k]->label[i];
            if (!at[l] && e_is_ival(dim[l], 1)) at[l] = e_int(c, 0);
            if (!at[l]) at[l] = e_axis(c, sum[nsum++] = axis_new(c, dim[l]));
            idx[i] = e_is_ival(term[k]->t->dim[i], 1) ? e_int(c, 0) : at[l];
        }
        Expr *v = ld(L, term[k]->t, idx);
        body = body ? e_mul(c, body, v) : v;
    }
    if (nsum) body = e_reduce(c, R_SUM, nsum, sum, body);
    o->t = te_end(L, o->t, body);
}

/* Finds in *o the labels of a and b (NULL: only a) that the output or another one of other[0..n)
 * needs, and returns whether all are. */
static bool needed(Lower *L, const EinsumTerm *a, const EinsumTerm *b, int n,
                   const EinsumTerm *other, const EinsumTerm *output, EinsumTerm *o) {
    const EinsumTerm *term[2] = {a, b};
    bool all = true;
    *o = (EinsumTerm){0};
    for (int k = 0; k < 2 && term[k]; k++)
        for (int i = 0; i < term[k]->n; i++) {
            int l = term[k]->label[i];
            bool need = has_label(output, l);
            for (int j = 0; j < n && !need; j++) need = &other[j] != a && has_label(&other[j], l);
            all = all && need;
            if (!need || has_label(o, l)) continue;
            if (o->n == MAX_RANK)
                unsupported(L, "an intermediate product has more than %d axes", MAX_RANK);
            o->label[o->n++] = (uint8_t)l;
        }
    return all;
}

void lower_Einsum(Lower *L) {
    Einsum e = {.L = L};
    const char *s = attr_s(L, "equation", NULL);
    int n = L->node->nin;
    EinsumTerm *term = NEWN(L->a, EinsumTerm, n), output = {0}, next = {0};
    if (!s) fail(L, "the attribute equation is missing");
    e.ellipsis = ellipsis_axes(L, s);
    for (int i = 0; i < n; i++) {
        Tensor *t = in_needed(L, i);
        if (i && *s++ != ',') fail(L, "the equation has %d terms for %d operands", i, n);
        term[i].t = t;
        parse_term(&e, &s, t->rank, &term[i]);
        for (int j = 0; j < t->rank; j++) {
            int l = term[i].label[j];
            Expr *d = t->dim[j], *old = e.dim[l];
            e.count[l]++;
            if (!old || e_is_ival(old, 1)) {
                e.dim[l] = d;
            } else if (!e_is_ival(d, 1)) {
                check_eq(L, old, d, "the sizes of axes with one label differ, axis %d of %s", j,
                         in_text(L, i));
                e.dim[l] = better_dim(old, d);
            }
        }
    }
    if (!strncmp(s, "->", 2)) {
        s += 2;
        parse_term(&e, &s, -1, &output);
        for (int i = 0; i < output.n; i++) {
            int l = output.label[i];
            if (!e.dim[l]) fail(L, "the output term has the label \"%c\" that no operand has", l);
            for (int j = 0; j < i; j++)
                if (output.label[j] == l) fail(L, "the output term has a label twice");
        }
    } else {
        for (int i = 0; i < e.ellipsis; i++) term_push(L, &output, ELLIPSIS + i);
        for (int l = 0; l < ELLIPSIS; l++)
            if (e.count[l] == 1) term_push(L, &output, l);
    }
    if (*s) fail(L, "the equation has more terms than operands: \"%s\"", s);
    /* First sum over labels that only one operand has: this makes it smaller. */
    for (int i = 0; i < n && n > 1; i++) {
        if (needed(L, &term[i], NULL, n, term, &output, &next)) continue;
        contract(&e, &term[i], NULL, &next);
        term[i] = next;
    }
    EinsumTerm acc = term[0];
    for (int i = 1; i < n - 1; i++) {
        needed(L, &acc, &term[i], n - i - 1, term + i + 1, &output, &next);
        contract(&e, &acc, &term[i], &next);
        acc = next;
    }
    contract(&e, &acc, n > 1 ? &term[n - 1] : NULL, &output);
    out(L, 0, output.t);
}
