/* contraction_micro.c: the text of micro-kernels: rows × vectors sums in registers for all products
 * of a set. */
#include "codegen/emit/cpu/contraction.h"

Micro micro_new(Group *g, const Contraction *k, int set) {
    Arena *a = g->em->a;
    return (Micro){.g = g,
                   .k = k,
                   .set = set,
                   .known = map_new(a),
                   .params = {.a = a},
                   .args = {.a = a},
                   .body = {.a = a}};
}

const char *micro_end(Micro *u, const char *stem) {
    Emit *em = u->g->em;
    const char *name =
        emit_shared(em, u->g->k->apart, stem, em->target->kernel, u->params.p, u->body.p);
    return arena_printf(em->a, "%s(%s);", name, u->args.p);
}

const char *micro_value(Micro *u, Expr *e) {
    Group *g = u->g;
    int64_t v;
    if (e_is_int(e, &v)) return arena_printf(g->em->a, "%lld", (long long)v);
    const char *s = map_geti(u->known, (uint64_t)e->id + 1);
    if (s) return s;
    s = arena_printf(g->em->a, "n%d", u->nvalue++);
    sb_printf(&u->params, ", int64_t %s", s);
    sb_printf(&u->args, ", %s", fn_expr(&g->f, e));
    map_seti(u->known, (uint64_t)e->id + 1, (void *)(uintptr_t)s);
    return s;
}

/* " + r0 * s0 + …" of an address along the set's reduction axes. */
static const char *along(Micro *u, Expr *flat) {
    const Contraction *k = u->k;
    const char *s = "";
    for (int i = 0; i < k->nraxis[u->set]; i++) {
        Expr *coef = e_coef(u->g->em->c, flat, k->raxis[u->set][i]);
        if (e_is_ival(coef, 0)) continue;
        if (e_is_ival(coef, 1))
            s = arena_printf(u->g->em->a, "%s + r%d", s, i);
        else
            s = arena_printf(u->g->em->a, "%s + r%d * %s", s, i, micro_value(u, coef));
    }
    return s;
}

const char *micro_base(Micro *u, Expr *load, Expr *flat) {
    Group *g = u->g;
    const Contraction *k = u->k;
    Cx *c = g->em->c;
    Expr *zero[MAX_RANK * 2];
    for (int i = 0; i < k->nraxis[u->set]; i++) zero[i] = e_int(c, 0);
    Expr *at = e_subst(c, flat, k->nraxis[u->set], k->raxis[u->set], zero, NULL, NULL);
    const char *p = fn_around(&g->f, load->t, &at);
    return arena_printf(g->em->a, "%s + (%s)", p, fn_expr(&g->f, at));
}

static bool in_place(const Micro *u, const Product *q) {
    return q->columns && u->k->operand[q->operand].in_place;
}

/* Address of the scalar operand at the tile's first row; or where those of its rows are. */
static const char *scalar_base(Micro *u, const Product *q) {
    const Contraction *k = u->k;
    const Built *o = &k->operand[q->operand];
    if (!q->columns) return micro_base(u, q->sca, q->sca_flat);
    if (o->in_place) return arena_printf(u->g->em->a, "a%d + (m0 - first)", q->operand);
    if (!o->rows) return arena_printf(u->g->em->a, "a%d", q->operand);
    return arena_printf(u->g->em->a, "a%d + (m0 - first) * %lld", q->operand, (long long)o->length);
}

/* Parameters: sums, panels, operands that are not packed, scalar operands. */
static void parameters(Micro *u) {
    const Contraction *k = u->k;
    Sb *p = &u->params, *a = &u->args;
    for (int j = 0; j < k->n; j++)
        if (k->p[j].set == u->set) u->q[u->nq++] = &k->p[j];
    for (int j = 0; j < u->nq; j++) {
        sb_printf(p, "%sfloat *restrict g%d", j ? ", " : "", j);
        sb_printf(a, "%sg%d", j ? ", " : "", u->q[j]->slot);
    }
    for (int i = 0, n = 0; i < k->npanel; i++) {
        if (k->panel[i].set != u->set) continue;
        const char *type = c_store(k->panel[i].packed->dtype);
        sb_printf(p, ", const %s *restrict w%d", type, n);
        sb_printf(a, ", w%d", i);
        if (k->panel[i].scales) {
            sb_printf(p, ", const float *restrict q%d", n);
            sb_printf(a, ", q%d", i);
        }
        if (u->rows > 1 && k->panel[i].lines) {
            sb_printf(p, ", const %s *restrict f%d, int64_t by%d", type, n, n);
            sb_printf(a, ", next%d, by%d", i, i);
        }
        u->panel_of[i] = n++;
    }
    for (int j = 0; j < u->nq; j++) {
        const Product *q = u->q[j];
        if (!q->packed) {
            sb_printf(p, ", const float *restrict b%d", j);
            sb_printf(a, ", %s", micro_base(u, q->vec, q->vec_flat));
        }
        int *s = &u->sca_of[j];
        while (*s < u->nsca && u->sca[*s]->sca != q->sca) ++*s;
        if (*s < u->nsca) continue;
        u->sca[u->nsca++] = q;
        sb_printf(p, ", const %s *%srestrict a%d", c_store(q->sca->dtype),
                  in_place(u, q) ? "const *" : "", *s);
        sb_printf(a, ", %s", scalar_base(u, q));
    }
    if (u->tail) {
        sb_puts(p, ", int64_t lanes");
        sb_puts(a, ", lanes");
    }
}

/* Loads vector v of the tile from `at`, which ends with the domain. */
static void load_vector(Micro *u, int in, const char *name, const char *at, int v) {
    if (u->tail)
        sb_printf(&u->body, "%*sconst bk_vf %s = bk_loadn(%s, lanes - %d);\n", in, "", name, at,
                  v * u->g->k->lanes);
    else
        sb_printf(&u->body, "%*sconst bk_vf %s = bk_loadv(%s);\n", in, "", name, at);
}

/* Opens codes number i of the words. */
static void open_codes(Micro *u, int in, int i) {
    const Contraction *k = u->k;
    const int vec = u->g->k->lanes;
    for (int j = 0; j < u->nq; j++) {
        const Coded *x = u->q[j]->coded;
        for (int v = 0; v < k->nv; v++) {
            sb_printf(&u->body, "%*sconst bk_vf v%d_%d = ", in, "", j, v);
            if (x->bits == 8)
                sb_printf(&u->body, "bk_open_%s8(w%d, %d", x->codes->dtype == DT_I8 ? "s" : "u",
                          u->panel_of[u->q[j]->panel], i * k->vt + v * vec);
            else if (x->bits == 4 && !x->zero)
                sb_printf(&u->body, "bk_open4(u%d_%d, %d", j, v, i * x->bits);
            else
                sb_printf(&u->body, "bk_open(u%d_%d, %d, %d", j, v, i * x->bits, x->bits);
            if (x->zero)
                sb_printf(&u->body, ", z%d_%d);\n", j, v);
            else
                sb_printf(&u->body, ", z%d);\n", j);
        }
    }
}

static void vectors(Micro *u, int in) {
    const Contraction *k = u->k;
    Arena *a = u->g->em->a;
    int vec = u->g->k->lanes;
    for (int j = 0; j < u->nq; j++) {
        const Product *q = u->q[j];
        const char *off = q->packed ? "" : along(u, q->vec_flat);
        for (int v = 0; v < k->nv; v++) {
            const char *name = arena_printf(a, "v%d_%d", j, v);
            if (q->packed)
                sb_printf(&u->body, "%*sconst bk_vf %s = %s(w%d + %d);\n", in, "", name,
                          packed_load(k->panel[q->panel].packed), u->panel_of[q->panel],
                          (q->place * k->nv + v) * vec);
            else
                load_vector(u, in, name, arena_printf(a, "b%d%s + %d", j, off, v * vec), v);
        }
    }
}

/* Prefetches panels, and moves to their next step. */
static void panels(Micro *u, int in) {
    const Contraction *k = u->k;
    Sb *b = &u->body;
    for (int i = 0; i < k->npanel; i++) {
        const Panel *q = &k->panel[i];
        const int n = u->panel_of[i];
        if (q->set != u->set) continue;
        const int line = CACHE_LINE / (int)dtype_size(q->packed->dtype);
        for (int at = 0; u->rows == 1 && q->ahead && at < q->n * k->vt; at += line)
            sb_printf(b, "%*s__builtin_prefetch(w%d + %d);\n", in, "", n, q->ahead + at);
        for (int line = 0; u->rows > 1 && line < q->lines; line++)
            sb_printf(b, "%*s__builtin_prefetch(f%d, 0, 2);\n%*sf%d += by%d;\n", in, "", n, in, "",
                      n, n);
        sb_printf(b, "%*sw%d += %d;\n", in, "", n, q->n * k->vt);
    }
}

/* Multiplies scalar operand s of row m, at `at`, by the vectors of its products. */
static void multiply(Micro *u, int in, int s, int m, const char *at) {
    Sb *b = &u->body;
    const Expr *sca = u->sca[s]->sca;
    const char *convert = sca->dtype == DT_F16 ? "bk_h2f1" : sca->dtype == DT_BF16 ? "bk_b2f" : "";
    const char *row = in_place(u, u->sca[s]) ? arena_printf(u->g->em->a, "_%d", m) : "";
    sb_printf(b, "%*sconst float x%d_%d = %s(a%d%s[0%s]);\n", in, "", s, m, convert, s, row, at);
    for (int j = 0; j < u->nq; j++)
        for (int v = 0; v < u->k->nv && u->sca_of[j] == s; v++)
            sb_printf(b, "%*s%s%d_%d_%d += v%d_%d * x%d_%d;\n", in, "",
                      u->k->coded[u->set] ? "s" : "c", j, m, v, j, v, s, m);
}

/* The same for an operand that moves along the lanes. */
static void multiply_both(Micro *u, int in, int s, int m, const char *at) {
    Arena *a = u->g->em->a;
    for (int v = 0; v < u->k->nv; v++) {
        const char *x = arena_printf(a, "x%d_%d_%d", s, m, v);
        load_vector(u, in, x, arena_printf(a, "a%d%s + %d", s, at, v * u->g->k->lanes), v);
        for (int j = 0; j < u->nq; j++)
            if (u->sca_of[j] == s)
                sb_printf(&u->body, "%*sc%d_%d_%d += v%d_%d * %s;\n", in, "", j, m, v, j, v, x);
    }
}

static void rows(Micro *u, int in) {
    const Contraction *k = u->k;
    Cx *c = u->g->em->c;
    for (int s = 0; s < u->nsca; s++) {
        const Product *p = u->sca[s];
        const char *off = along(u, p->sca_flat);
        Expr *row = k->m ? e_coef(c, p->sca_flat, k->m) : e_int(c, 0);
        for (int m = 0; m < u->rows; m++) {
            const char *at = m && !e_is_ival(row, 0) ? arena_printf(u->g->em->a, "%s + %d * %s",
                                                                    off, m, micro_value(u, row))
                                                     : off;
            (p->both ? multiply_both : multiply)(u, in, s, m, at);
        }
    }
}

static void declare_sums(Micro *u, int in, const char *name) {
    for (int j = 0; j < u->nq; j++)
        for (int m = 0; m < u->rows; m++) {
            sb_printf(&u->body, "%*sbk_vf", in, "");
            for (int v = 0; v < u->k->nv; v++)
                sb_printf(&u->body, "%s %s%d_%d_%d = {0}", v ? "," : "", name, j, m, v);
            sb_puts(&u->body, ";\n");
        }
}

/* What is taken from the opened codes of a block: zero points, or the middle of all codes. */
static void zeros(Micro *u, int in, bool each) {
    const Contraction *k = u->k;
    for (int j = 0; j < u->nq; j++) {
        const Coded *x = u->q[j]->coded;
        if ((x->zero != NULL) != each) continue;
        if (!each)
            sb_printf(&u->body, "%*sconst bk_vf z%d = bk_middle%s(%.1ff);\n", in, "", j,
                      x->bits == 4 ? "4" : "", (double)x->middle);
        for (int v = 0; v < k->nv && each; v++)
            sb_printf(&u->body, "%*sconst bk_vf z%d_%d = bk_loadv(q%d + %d);\n", in, "", j, v,
                      u->panel_of[u->q[j]->panel], k->vt + v * u->g->k->lanes);
    }
}

/* The steps of a word of codes, of which it has n. */
static void coded_word(Micro *u, int in, int n) {
    const Contraction *k = u->k;
    const bool words = k->coded[u->set]->bits < 8;
    Sb *b = &u->body;
    for (int j = 0; j < u->nq && words; j++)
        for (int v = 0; v < k->nv; v++)
            sb_printf(b, "%*sconst bk_vu u%d_%d = bk_loadu(w%d + %d);\n", in, "", j, v,
                      u->panel_of[u->q[j]->panel], v * u->g->k->lanes);
    if (words) panels(u, in);
    for (int i = 0; i < n; i++) {
        sb_printf(b, "%*s{\n%*sconst int64_t r0 = step + %d;\n", in, "", in + 4, "", i);
        open_codes(u, in + 4, i);
        rows(u, in + 4);
        sb_printf(b, "%*s}\n", in, "");
    }
    if (!words) panels(u, in);
}

/* The loop over blocks of codes: of each, sums without the scale, by which they are multiplied at
 * its end. */
static void coded_loop(Micro *u) {
    const Contraction *k = u->k;
    const Coded *x = k->coded[u->set];
    Sb *b = &u->body;
    const int word = 32 / x->bits, rest = (int)(x->block % word);
    const long long block = x->block, whole = block - rest;
    zeros(u, 4, false);
    sb_printf(b, "    for (int64_t block = 0; block < %s; block += %lld) {\n",
              micro_value(u, k->raxis[u->set][0]->extent), block);
    declare_sums(u, 8, "s");
    zeros(u, 8, true);
    if (whole) {
        sb_printf(b, "        for (int64_t step = block; step < block + %lld; step += %d) {\n",
                  whole, word);
        coded_word(u, 12, word);
        sb_puts(b, "        }\n");
    }
    if (rest) {
        sb_printf(b, "        const int64_t step = block + %lld;\n", whole);
        coded_word(u, 8, rest);
    }
    for (int j = 0; j < u->nq; j++)
        for (int v = 0; v < k->nv; v++) {
            sb_printf(b, "        const bk_vf q%d_%d = bk_loadv(q%d + %d);\n", j, v,
                      u->panel_of[u->q[j]->panel], v * u->g->k->lanes);
            for (int m = 0; m < u->rows; m++)
                sb_printf(b, "        c%d_%d_%d += s%d_%d_%d * q%d_%d;\n", j, m, v, j, m, v, j, v);
        }
    for (int i = 0; i < k->npanel; i++)
        if (k->panel[i].set == u->set)
            sb_printf(b, "        q%d += %d;\n", u->panel_of[i],
                      k->panel[i].scales->nsource * k->vt);
    sb_puts(b, "    }\n");
}

void call_micro(Group *g, const Contraction *k, int set, int height, bool tail) {
    Micro u = micro_new(g, k, set);
    Sb *b = &u.body;
    const int nr = k->nraxis[set], in = 4 + 4 * nr;
    u.rows = height;
    u.tail = tail;
    parameters(&u);
    sb_puts(b, "    BK_CONTRACT\n");
    declare_sums(&u, 4, "c");
    for (int s = 0; s < u.nsca; s++)
        for (int m = 0; m < height && in_place(&u, u.sca[s]); m++)
            sb_printf(b, "    const float *const a%d_%d = a%d[%d];\n", s, m, s, m);
    if (k->coded[set]) coded_loop(&u);
    for (int i = 0; i < nr && !k->coded[set]; i++)
        sb_printf(b, "%*sfor (int64_t r%d = 0; r%d < %s; r%d++) {\n", 4 + 4 * i, "", i, i,
                  micro_value(&u, k->raxis[set][i]->extent), i);
    if (!k->coded[set]) {
        vectors(&u, in);
        panels(&u, in);
        rows(&u, in);
    }
    for (int i = nr - 1; i >= 0 && !k->coded[set]; i--) sb_printf(b, "%*s}\n", 4 + 4 * i, "");
    for (int j = 0; j < u.nq; j++)
        for (int m = 0; m < height; m++)
            for (int v = 0; v < k->nv; v++)
                sb_printf(b, "    bk_storev(g%d + %d, c%d_%d_%d);\n", j,
                          m * k->vt + v * g->k->lanes, j, m, v);
    fn_line(&g->f, "%s", micro_end(&u, "dot"));
}
