/* contraction_dot.c: sums along an axis on which both operands are contiguous. A vector of partial
 * sums for each of as many lanes as a vector has; then the partial sums of each are added up. */
#include "codegen/emit/cpu/contraction.h"

/* "sum = x · y" for step r of lane l, or for the remaining n - r ones. */
static void step(Sb *b, int in, int l, const char *sx, const char *sy, bool rest, bool moving) {
    const char *load = rest ? "bk_loadn" : "bk_loadv", *left = rest ? ", n - r" : "";
    char y[80];
    if (moving)
        snprintf(y, sizeof y, "%s(yl + %d * %s + r%s)", load, l, sy, left);
    else
        snprintf(y, sizeof y, "w");
    sb_printf(b, "%*sc%d += %s(xl + %d * %s + r%s) * %s;\n", in, "", l, load, l, sx, left, y);
}

/* The sums of `lanes` lanes at xl, yl, into c0, c1, …. */
static void sums(Sb *b, int in, int lanes, const char *n, bool whole, const char *sx,
                 const char *sy, int vec) {
    bool moving = strcmp(sy, "0") != 0;
    sb_printf(b, "%*sbk_vf c0 = {0}", in, "");
    for (int l = 1; l < lanes; l++) sb_printf(b, ", c%d = {0}", l);
    sb_printf(b, ";\n%*sconst int64_t n = %s;\n%*sint64_t r = 0;\n", in, "", n, in, "");
    for (int rest = 0; rest < (whole ? 1 : 2); rest++) {
        sb_printf(b, rest ? "%*sif (r < n) {\n" : "%*sfor (; r + %d <= n; r += %d) {\n", in, "",
                  vec, vec);
        if (!moving)
            sb_printf(b, "%*sconst bk_vf w = %s;\n", in + 4, "",
                      rest ? "bk_loadn(yl + r, n - r)" : "bk_loadv(yl + r)");
        for (int l = 0; l < lanes; l++) step(b, in + 4, l, sx, sy, rest, moving);
        sb_printf(b, "%*s}\n", in, "");
    }
}

/* Adds up the elements of each of c0, c1, … and stores the results as a vector. */
static void add_across(Sb *b, Arena *a, int vec) {
    const char *from = "c";
    for (int run = 1; run < vec; run *= 2) {
        const char *to = arena_printf(a, "s%d_", run);
        sb_puts(b, "        const bk_vf ");
        for (int i = 0; i < vec / run / 2; i++)
            sb_printf(b, "%s%s%d = BK_PAIR%d(%s%d, %s%d)", i ? ", " : "", to, i, run, from, 2 * i,
                      from, 2 * i + 1);
        sb_puts(b, ";\n");
        from = to;
    }
    sb_printf(b, "        bk_storev(g + l, %s0);\n    }\n", from);
}

static void call_product(Group *g, const Contraction *k, const Product *p) {
    Emit *em = g->em;
    Cx *c = em->c;
    const int vec = g->k->lanes;
    const Axis *r = k->raxis[p->set][0];
    Micro u = micro_new(g, k, p->set);
    Sb *b = &u.body;
    Expr *row = k->m ? e_coef(c, p->sca_flat, k->m) : e_int(c, 0);
    int64_t size = axis_size(r, -1);
    sb_puts(&u.params,
            "float *restrict g, const float *restrict x, const float *restrict y, int64_t lanes");
    sb_printf(&u.args, "g%d + row * %d, %s", p->slot, k->vt, micro_base(&u, p->vec, p->vec_flat));
    sb_printf(&u.args, ", %s", micro_base(&u, p->sca, p->sca_flat));
    if (!e_is_ival(row, 0)) sb_printf(&u.args, " + row * (%s)", fn_expr(&g->f, row));
    sb_puts(&u.args, ", hi");
    const char *sx = micro_value(&u, e_coef(c, p->vec_flat, k->v)),
               *sy = micro_value(&u, e_coef(c, p->sca_flat, k->v));
    const char *n = micro_value(&u, r->extent);
    bool whole = size >= 0 && size % vec == 0;
    sb_puts(b, "    BK_CONTRACT\n    int64_t l = 0;\n");
    /* The last vector overlaps the one before it, if there are enough lanes for one. */
    sb_printf(b, "    for (; l < lanes && lanes >= %d; l += %d) {\n", vec, vec);
    sb_printf(b, "        if (l + %d > lanes) l = lanes - %d;\n", vec, vec);
    sb_printf(b, "        const float *const xl = x + l * %s, *const yl = y + l * %s;\n", sx, sy);
    sums(b, 8, vec, n, whole, sx, sy, vec);
    add_across(b, em->a, vec);
    sb_puts(b, "    for (; l < lanes; l++) {\n");
    sb_printf(b, "        const float *const xl = x + l * %s, *const yl = y + l * %s;\n", sx, sy);
    sums(b, 8, 1, n, whole, sx, sy, vec);
    sb_puts(b, "        float s = 0;\n");
    sb_printf(b, "        for (int i = 0; i < %d; i++) s += c0[i];\n        g[l] = s;\n    }\n",
              vec);
    fn_line(&g->f, "for (int64_t row = 0; row < rows; row++) %s", micro_end(&u, "dot"));
}

void call_dot(Group *g, const Contraction *k, int set) {
    for (int j = 0; j < k->n; j++)
        if (k->p[j].set == set) call_product(g, k, &k->p[j]);
}
