/* contract_micro.c: the text of micro-kernels: rows × vectors sums in registers for all products of
 * a set. */
#include "codegen/emit/cpu/contract.h"

const char *micro_value(Micro *u, Expr *e) {
    Group *g = u->k->g;
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
static const char *along(Micro *u, int set, Expr *flat) {
    Contraction *k = u->k;
    Cx *c = k->g->em->c;
    const char *s = "";
    for (int i = 0; i < k->nraxis[set]; i++) {
        Expr *coef = coef_of(c, flat, k->raxis[set][i]);
        if (e_is_ival(coef, 0)) continue;
        if (e_is_ival(coef, 1))
            s = arena_printf(k->g->em->a, "%s + r%d", s, i);
        else
            s = arena_printf(k->g->em->a, "%s + r%d * %s", s, i, micro_value(u, coef));
    }
    return s;
}

const char *micro_base(Contraction *k, int set, Expr *load, Expr *flat) {
    Group *g = k->g;
    Cx *c = g->em->c;
    Expr *zero[MAX_RANK * 2];
    for (int i = 0; i < k->nraxis[set]; i++) zero[i] = e_int(c, 0);
    Expr *at = e_subst(c, flat, k->nraxis[set], k->raxis[set], zero, NULL, NULL);
    return arena_printf(g->em->a, "%s + (%s)", g->f.tensor(&g->f, load->t), fn_expr(&g->f, at));
}

void call_micro(Contraction *k, int set, int rows, bool tail) {
    Group *g = k->g;
    Emit *em = g->em;
    Cx *c = em->c;
    Micro u = {.k = k,
               .known = map_new(em->a),
               .params = {.a = em->a},
               .args = {.a = em->a},
               .body = {.a = em->a}};
    Sb *b = &u.body;
    const Product *q[MAX_PRODUCTS];
    int nq = 0, na = 0, npanel = 0;
    Expr *sca[MAX_PRODUCTS];
    int sca_of[MAX_PRODUCTS], panel_of[MAX_PRODUCTS]; /* panel_of: number within the kernel */
    for (int j = 0; j < k->n; j++)
        if (k->p[j].set == set) q[nq++] = &k->p[j];
    for (int j = 0; j < nq; j++) {
        sb_printf(&u.params, "%sfloat *restrict g%d", j ? ", " : "", j);
        sb_printf(&u.args, "%sg%d", j ? ", " : "", q[j]->slot);
    }
    for (int i = 0; i < k->npanel; i++) {
        if (k->panel[i].set != set) continue;
        panel_of[i] = npanel++;
        sb_printf(&u.params, ", const float *restrict w%d", panel_of[i]);
        sb_printf(&u.args, ", w%d", i);
        if (!contract_fetches(k, i, rows)) continue;
        sb_printf(&u.params, ", const float *restrict f%d, int64_t by%d", panel_of[i], panel_of[i]);
        sb_printf(&u.args, ", next%d, by%d", i, i);
    }
    for (int j = 0; j < nq; j++) {
        if (!q[j]->packed) {
            sb_printf(&u.params, ", const float *restrict b%d", j);
            sb_printf(&u.args, ", %s", micro_base(k, set, q[j]->vec, q[j]->vec_flat));
        }
        for (sca_of[j] = 0; sca_of[j] < na && sca[sca_of[j]] != q[j]->sca; sca_of[j]++) {}
        if (sca_of[j] < na) continue;
        sca[na] = q[j]->sca;
        sb_printf(&u.params, ", const %s *restrict a%d", c_store(q[j]->sca->dtype), na);
        sb_printf(&u.args, ", %s", micro_base(k, set, q[j]->sca, q[j]->sca_flat));
        na++;
    }
    if (tail) {
        sb_puts(&u.params, ", int64_t lanes");
        sb_puts(&u.args, ", lanes");
    }
    sb_printf(b, "    %s\n", em->target->contract);
    for (int j = 0; j < nq; j++)
        for (int m = 0; m < rows; m++) {
            sb_puts(b, "    bk_vf");
            for (int v = 0; v < k->nv; v++)
                sb_printf(b, "%s c%d_%d_%d = {0}", v ? "," : "", j, m, v);
            sb_puts(b, ";\n");
        }
    int nr = k->nraxis[set];
    for (int i = 0; i < nr; i++)
        sb_printf(b, "%*sfor (int64_t r%d = 0; r%d < %s; r%d++) {\n", 4 + 4 * i, "", i, i,
                  micro_value(&u, k->raxis[set][i]->extent), i);
    int in = 4 + 4 * nr;
    for (int j = 0; j < nq; j++) {
        const char *off = q[j]->packed ? "" : along(&u, set, q[j]->vec_flat);
        for (int v = 0; v < k->nv; v++) {
            const char *at = q[j]->packed ? arena_printf(em->a, "w%d + %d", panel_of[q[j]->panel],
                                                         (q[j]->place * k->nv + v) * em->vec)
                                          : arena_printf(em->a, "b%d%s + %d", j, off, v * em->vec);
            if (tail && !q[j]->packed)
                sb_printf(b, "%*sconst bk_vf v%d_%d = bk_loadn(%s, lanes - %d);\n", in, "", j, v,
                          at, v * em->vec);
            else
                sb_printf(b, "%*sconst bk_vf v%d_%d = bk_loadv(%s);\n", in, "", j, v, at);
        }
    }
    for (int i = 0; i < k->npanel; i++)
        if (k->panel[i].set == set) {
            for (int v = 0; rows == 1 && k->panel[i].ahead && v < k->panel[i].n * k->nv; v++)
                sb_printf(b, "%*s__builtin_prefetch(w%d + %d);\n", in, "", panel_of[i],
                          k->panel[i].ahead + v * em->vec);
            for (int n = contract_fetches(k, i, rows); n > 0; n--)
                sb_printf(b, "%*s__builtin_prefetch(f%d, 0, 2);\n%*sf%d += by%d;\n", in, "",
                          panel_of[i], in, "", panel_of[i], panel_of[i]);
            sb_printf(b, "%*sw%d += %d;\n", in, "", panel_of[i], k->panel[i].n * k->vt);
        }
    for (int s = 0; s < na; s++) {
        const Product *p = NULL;
        for (int j = 0; j < nq && !p; j++)
            if (sca_of[j] == s) p = q[j];
        const char *off = along(&u, set, p->sca_flat);
        Expr *row = k->m ? coef_of(c, p->sca_flat, k->m) : e_int(c, 0);
        for (int m = 0; m < rows; m++) {
            const char *at = m && !e_is_ival(row, 0)
                                 ? arena_printf(em->a, "%s + %d * %s", off, m, micro_value(&u, row))
                                 : off;
            if (!p->both) {
                const char *convert = p->sca->dtype == DT_F16    ? "bk_h2f1"
                                      : p->sca->dtype == DT_BF16 ? "bk_b2f"
                                                                 : "";
                sb_printf(b, "%*sconst float x%d_%d = %s(a%d[0%s]);\n", in, "", s, m, convert, s,
                          at);
                for (int j = 0; j < nq; j++)
                    for (int v = 0; v < k->nv && sca_of[j] == s; v++)
                        sb_printf(b, "%*sc%d_%d_%d += v%d_%d * x%d_%d;\n", in, "", j, m, v, j, v, s,
                                  m);
                continue;
            }
            for (int v = 0; v < k->nv; v++) {
                const char *src = arena_printf(em->a, "a%d%s + %d", s, at, v * em->vec);
                if (tail)
                    sb_printf(b, "%*sconst bk_vf x%d_%d_%d = bk_loadn(%s, lanes - %d);\n", in, "",
                              s, m, v, src, v * em->vec);
                else
                    sb_printf(b, "%*sconst bk_vf x%d_%d_%d = bk_loadv(%s);\n", in, "", s, m, v,
                              src);
                for (int j = 0; j < nq; j++)
                    if (sca_of[j] == s)
                        sb_printf(b, "%*sc%d_%d_%d += v%d_%d * x%d_%d_%d;\n", in, "", j, m, v, j, v,
                                  s, m, v);
            }
        }
    }
    for (int i = nr - 1; i >= 0; i--) sb_printf(b, "%*s}\n", 4 + 4 * i, "");
    for (int j = 0; j < nq; j++)
        for (int m = 0; m < rows; m++)
            for (int v = 0; v < k->nv; v++)
                sb_printf(b, "    bk_storev(g%d + %d, c%d_%d_%d);\n", j, m * k->vt + v * em->vec, j,
                          m, v);
    const char *name = emit_function(em, "dot", em->target->kernel, u.params.p, u.body.p);
    fn_line(&g->f, "%s(%s);", name, u.args.p);
    sb_free(&u.params);
    sb_free(&u.args);
    sb_free(&u.body);
}
