/* contract.c: sums of products as register-blocked micro-kernels with a fused epilogue.
 *
 * A group's members may contain several sums  Σ_r A[…] · B[…].  One axis of the domain, v, is laid
 * over vector lanes: along it one operand (the vector operand) is contiguous or constant, and the
 * other does not move. Another axis, m, gives rows that reuse the vectors. A micro-kernel computes
 * rows × vectors sums in registers for all products that share their reduction axes, and leaves
 * them in a scratch tile; the epilogue is the members' own expressions over that tile. Constant
 * vector operands are packed at compile time in the order in which the loops read them
 * (contract_pack.c). */
#include "codegen/emit/cpu/contract.h"

#define TURN_FLOATS (32 << 10) /* of weights that are read forwards and backwards in turn */

/* ---- finding --------------------------------------------------------------------------------- */
Expr *contract_factor(Expr *e) {
    Expr *x =
        e->op == E_CAST && (e->a[0]->dtype == DT_F16 || e->a[0]->dtype == DT_BF16) ? e->a[0] : e;
    return e->dtype == DT_F32 && x->op == E_LOAD ? x : NULL;
}

static bool is_product(const Expr *e) {
    if (e->op != E_REDUCE || e->kind != R_SUM || e->dtype != DT_F32) return false;
    const Expr *b = e->a[0];
    return b->op == E_MUL && contract_factor(b->a[0]) && contract_factor(b->a[1]);
}

static bool affine_in_all(Cx *c, Expr *flat, const Group *g, const Expr *reduce) {
    Expr *coef, *rest = flat;
    if (flat->flags & (EF_LOAD | EF_GUARD | EF_REDUCE)) {
        /* Positions read from memory must not depend on the loops inside. */
        return false;
    }
    for (int i = 0; i < g->k->naxis; i++)
        if (!e_affine(c, rest, g->k->axis[i], &coef, &rest) || (coef->flags & EF_AXIS)) return false;
    for (int i = 0; i < reduce->naxis; i++)
        if (!e_affine(c, rest, reduce->raxis[i], &coef, &rest) || (coef->flags & EF_AXIS))
            return false;
    return !(rest->flags & EF_AXIS);
}

bool contract_product(const Group *g, Expr *e, Product *p) {
    Cx *c = g->em->c;
    if (!is_product(e)) return false;
    Expr *a = contract_factor(e->a[0]->a[0]), *b = contract_factor(e->a[0]->a[1]);
    Expr *fa = flat_of(c, a), *fb = flat_of(c, b);
    if (!affine_in_all(c, fa, g, e) || !affine_in_all(c, fb, g, e)) return false;
    for (int i = 0; i < g->k->n; i++)
        if (a->t == g->k->t[i] || b->t == g->k->t[i]) return false;
    *p = (Product){.reduce = e, .vec = a, .sca = b, .vec_flat = fa, .sca_flat = fb};
    return true;
}

static void find(Contraction *k, Map *seen, Expr *e) {
    if (!(e->flags & EF_REDUCE) || map_geti(seen, (uint64_t)e->id + 1)) return;
    map_seti(seen, (uint64_t)e->id + 1, e);
    if (e->op == E_REDUCE) {
        if (k->n < MAX_PRODUCTS && contract_product(k->g, e, &k->p[k->n])) k->n++;
        return;
    }
    int last = e->op == E_LOAD ? 0 : e_always(e);
    for (int i = 0; i < last; i++) find(k, seen, e->a[i]);
}

Expr *coef_of(Cx *c, Expr *flat, Axis *x) {
    Expr *coef, *rest;
    return e_affine(c, flat, x, &coef, &rest) ? coef : NULL;
}

int64_t axis_size(const Axis *x, int64_t unknown) {
    int64_t v;
    return e_is_int(x->extent, &v) ? v : unknown;
}

/* Sets up p for vector axis v as a dot product; false: it cannot. */
static bool orient_dot(const Contraction *k, Product *p, Axis *v) {
    Cx *c = k->g->em->c;
    int64_t n = axis_size(p->reduce->raxis[0], INT64_MAX);
    if (p->reduce->naxis != 1 || n < k->g->em->vec) return false;
    for (int side = 0; side < 2; side++) {
        Expr *x = contract_factor(p->reduce->a[0]->a[side]),
             *y = contract_factor(p->reduce->a[0]->a[!side]);
        Expr *fx = flat_of(c, x), *fy = flat_of(c, y);
        Axis *r = p->reduce->raxis[0];
        if (x->dtype != DT_F32 || y->dtype != DT_F32) continue;
        if (e_is_ival(coef_of(c, fx, v), 0) || !e_is_ival(coef_of(c, fx, r), 1) ||
            !e_is_ival(coef_of(c, fy, r), 1))
            continue;
        bool moves = !e_is_ival(coef_of(c, fy, v), 0);
        *p = (Product){.reduce = p->reduce,
                       .vec = x,
                       .sca = y,
                       .vec_flat = fx,
                       .sca_flat = fy,
                       .both = moves,
                       .dot = true};
        return true;
    }
    return false;
}

/* Sets up p for vector axis v; false: it cannot. */
static bool orient(Contraction *k, Product *p, Axis *v) {
    p->sym = NULL;
    Cx *c = k->g->em->c;
    for (int side = 0; side < 2; side++) {
        Expr *x = contract_factor(p->reduce->a[0]->a[side]),
             *y = contract_factor(p->reduce->a[0]->a[!side]);
        Expr *fx = flat_of(c, x), *fy = flat_of(c, y);
        Expr *cx = coef_of(c, fx, v), *cy = coef_of(c, fy, v);
        Product other = *p;
        bool pack = !e_is_ival(cx, 0) && packable(c, k->g, p, x, fx);
        if (!pack && (!e_is_ival(cx, 1) || x->dtype != DT_F32)) continue;
        if (!e_is_ival(cy, 0) && (!e_is_ival(cy, 1) || y->dtype != DT_F32)) continue;
        if (!e_is_ival(cy, 0) && side == 0 && packable(c, k->g, &other, y, fy))
            continue; /* prefer that one packed */
        p->vec = x;
        p->sca = y;
        p->vec_flat = fx;
        p->sca_flat = fy;
        p->packed = pack;
        p->both = !e_is_ival(cy, 0);
        p->dot = false;
        return true;
    }
    return orient_dot(k, p, v);
}

bool contract_share_axes(Cx *c, Product *p, int n, Axis *const *axis) {
    Axis *const *from = p->reduce->raxis;
    Expr *to[MAX_RANK * 2];
    uint32_t taken = 0;
    if (p->reduce->naxis != n || n > 2 * MAX_RANK) return false;
    for (int i = 0; i < n; i++) {
        int at = -1;
        for (int z = 0; z < n; z++)
            if (!(taken >> z & 1) && axis[z]->extent == from[i]->extent &&
                (at < 0 || axis[z] == from[i]))
                at = z;
        if (at < 0) return false;
        taken |= 1u << at;
        to[i] = e_axis(c, axis[at]);
    }
    Expr **part[] = {&p->vec, &p->sca, &p->vec_flat, &p->sca_flat};
    for (size_t i = 0; i < COUNT(part); i++)
        *part[i] = e_subst(c, *part[i], n, from, to, NULL, NULL);
    return true;
}

Axis **contract_order(Arena *a, const Expr *reduce) {
    int n = reduce->naxis;
    Axis **r = arena_memdup(a, reduce->raxis, sizeof(Axis *) * (size_t)n);
    for (int i = 1; i < n; i++)
        for (int j = i; j > 0 && axis_size(r[j - 1], 1 << 20) > axis_size(r[j], 1 << 20); j--) {
            Axis *t = r[j];
            r[j] = r[j - 1];
            r[j - 1] = t;
        }
    return r;
}

/* Products with the same factor one after another: those of a set then share it. */
static void by_factor(Contraction *k) {
    for (int j = 0; j < k->n; j++) {
        int to = j + 1;
        for (int i = j + 1; i < k->n; i++) {
            if (k->p[i].sca != k->p[j].sca) continue;
            Product p = k->p[i];
            memmove(k->p + to + 1, k->p + to, sizeof p * (size_t)(i - to));
            k->p[to++] = p;
        }
        j = to - 1;
    }
}

static bool choose_axes(Contraction *k) {
    Group *g = k->g;
    Cx *c = g->em->c;
    int best = -1;
    int64_t best_score = 0;
    for (int i = 0; i < g->k->naxis; i++) {
        int64_t score = 0, n = axis_size(g->k->axis[i], -1);
        bool dots = false;
        if (n >= 0 && n < 4) continue;
        if (g->k->axis[i] == g->k->split && e_is_ival(g->k->grain, 1))
            continue; /* tiles start at whole vectors */
        for (int j = 0; j < k->n; j++) {
            Product p = k->p[j];
            if (!orient(k, &p, g->k->axis[i])) continue;
            dots |= p.dot;
            score += 1000 + (p.packed ? 150 : 0) - (p.dot ? 600 : p.both ? 300 : 0);
        }
        if (score < 1000 && !dots) continue; /* nothing is used twice */
        if (i == g->k->naxis - 1)
            score += n < 0 ? 20 : n >= g->em->vec ? 400 : 50; /* contiguous stores */
        if (n >= g->em->vec) score += 200;
        if (score > best_score) best = i, best_score = score;
    }
    if (best < 0) return false;
    k->v = g->k->axis[best];
    int n = 0;
    for (int j = 0; j < k->n; j++)
        if (orient(k, &k->p[j], k->v)) k->p[n++] = k->p[j];
    k->n = n;
    /* Rows: an axis along which vectors are reused. */
    int64_t most = 1;
    for (int i = 0; i < g->k->naxis; i++) {
        Axis *x = g->k->axis[i];
        if (x == k->v) continue;
        bool ok = true, moves = false;
        for (int j = 0; j < k->n; j++) {
            ok = ok && !k->p[j].both && e_is_ival(coef_of(c, k->p[j].vec_flat, x), 0);
            moves |= !e_is_ival(coef_of(c, k->p[j].sca_flat, x), 0);
        }
        int64_t size = axis_size(x, 1 << 20);
        if (ok && moves && size >= most) k->m = x, most = size; /* of unknown ones the inner */
    }
    /* Sets: products over equal reduction axes run in one loop; not so many that few rows share a
     * vector. */
    int most_products = k->m && axis_size(k->m, ROW_BLOCK) >= 6 ? 4 : MAX_PRODUCTS;
    if (k->n > most_products) by_factor(k);
    for (int j = 0; j < k->n; j++) {
        Product *p = &k->p[j];
        p->slot = j;
        for (p->set = 0; p->set < k->nset; p->set++) {
            int members = 0;
            for (int i = 0; i < j; i++) members += k->p[i].set == p->set;
            if (members == most_products) continue;
            if (k->dot[p->set] == p->dot &&
                contract_share_axes(c, p, k->nraxis[p->set], k->raxis[p->set]))
                break;
        }
        if (p->set < k->nset) continue;
        if (k->nset == MAX_SETS) { /* the rest is reduced in the epilogue */
            k->n = j;
            break;
        }
        k->dot[k->nset] = p->dot;
        k->raxis[k->nset] = contract_order(g->em->a, p->reduce);
        k->nraxis[k->nset++] = p->reduce->naxis;
    }
    return k->n > 0;
}

/* ---- the group's function -------------------------------------------------------------------- */
static const char *scratch(Group *g, Expr *e) {
    Contraction *k = g->user;
    for (int j = 0; j < k->n; j++)
        if (k->p[j].reduce == e)
            return arena_printf(g->em->a, "g%d[row * %d + l]", k->p[j].slot, k->vt);
    return NULL;
}

/* Reductions that no micro-kernel computes need loops of their own inside the lane loop. */
static bool unscratched(Group *g, Expr *e) {
    if (!(e->flags & EF_REDUCE)) return false;
    if (e->op == E_REDUCE) return !scratch(g, e);
    for (int i = 0; i < e->n; i++)
        if (unscratched(g, e->a[i])) return true;
    return false;
}
static bool other_reductions(Contraction *k) {
    for (int i = 0; i < k->g->k->n; i++)
        if (unscratched(k->g, k->g->k->value[i])) return true;
    return false;
}

static void epilogue(Contraction *k) {
    Group *g = k->g;
    Fn *f = &g->f;
    Cx *c = g->em->c;
    fn_line(f, "for (int64_t row = 0; row < rows; row++) {");
    int mark = fn_open(f);
    if (k->m) {
        fn_line(f, "const int64_t im = m0 + row;");
        fn_bind(f, e_axis(c, k->m), "im");
    }
    for (int i = 0; i < g->k->n; i++) { fn_hoist(f, g->k->value[i], 1, &k->v); }
    bool plain = !other_reductions(k);
    for (int i = 0; i < g->k->n && plain; i++) plain = !fn_guarded(f, g->k->value[i]);
    if (plain) fn_line(f, "%s", g->em->target->simd);
    group_members_by_lane(g, k->v, k->v == g->k->split ? "lo" : "0", "hi");
    fn_close(f, mark);
    fn_line(f, "}");
}

static bool in_loop(const Group *g) {
    for (const Seq *q = g->k->t[0]->seq; q && q->owner && q->owner->kind != S_CALL; q = q->parent)
        if (q->owner->kind == S_LOOP) return true;
    return false;
}

/* Opens the loop over tiles of this unit's range of lanes. Weights that are much for the nearer
 * caches are read forwards and backwards in turn: what was read last is still there when the next
 * round begins with it. Returns the condition of a round backwards, or NULL. */
static const char *open_tiles(Contraction *k) {
    Group *g = k->g;
    Fn *f = &g->f;
    bool split = k->v == g->k->split;
    const char *from = split ? "from" : "0", *to = split ? "to" : fn_expr(f, k->v->extent);
    int64_t floats = 0;
    for (int i = 0; i < k->npanel; i++) floats += k->panel[i].stride;
    const char *back = NULL;
    if (floats >= TURN_FLOATS) {
        g->turns = in_loop(g);
        const char *block = arena_printf(f->a, "first / %d", ROW_BLOCK);
        if (g->turns)
            back = k->m ? arena_printf(f->a, "(turn + %s) & 1", block) : "turn & 1";
        else if (k->m)
            back = arena_printf(f->a, "%s & 1", block);
    }
    /* Tiles of packed operands begin where these do; of others at the unit's own lanes, so that
     * nothing is read that another unit may be writing. */
    bool own = split && !k->npanel;
    fn_line(f, "const int64_t tile0 = %s / %d, tile1 = (%s%s%s + %d) / %d;", own ? "0" : from,
            k->vt, to, own ? " - " : "", own ? from : "", k->vt - 1, k->vt);
    fn_line(f, "for (int64_t step = tile0; step < tile1; step++) {");
    fn_open(f);
    if (back)
        fn_line(f, "const int64_t tile = (%s) ? tile0 + tile1 - 1 - step : step;", back);
    else
        fn_line(f, "const int64_t tile = step;");
    const char *begin = own ? "from + " : "";
    int64_t n = axis_size(k->v, -1), grain = 0;
    if (split && !e_is_int(g->k->grain, &grain)) grain = 1;
    k->whole = n >= 0 && n % k->vt == 0 && grain % k->vt == 0 && !(split && g->k->s->op.inner);
    if (k->whole) { /* then the compiler sees how many lanes there are */
        fn_line(f, "const int64_t v0 = %stile * %d, hi = %d;", begin, k->vt, k->vt);
        if (split) fn_line(f, "const int64_t lo = 0;");
        return back;
    }
    fn_line(f, "const int64_t v0 = %stile * %d, hi = bk_mini(%s - v0, %d);", begin, k->vt, to,
            k->vt);
    if (split) fn_line(f, "const int64_t lo = bk_maxi(from - v0, 0);");
    return back;
}

/* The rows that are left in as few blocks as go, of nearly equal heights: no short one is left
 * over. */
static void row_block(const Contraction *k) {
    Fn *f = &k->g->f;
    if (k->nheight == 1) {
        fn_line(f, "rows = %d;", k->mr);
        return;
    }
    fn_line(f, "const int64_t left = end - m0, blocks = (left + %d) / %d;", k->mr - 1, k->mr);
    fn_line(f, "rows = (left + blocks - 1) / blocks;");
}

/* Where the tile's part of a panel starts. */
static void panel_pointer(Contraction *k, int i) {
    Group *g = k->g;
    Cx *c = g->em->c;
    Fn *f = &g->f;
    const Panel *q = &k->panel[i];
    const Product *p = &k->p[q->lead];
    Expr *at = p->sym ? p->sym : e_int(c, 0);
    for (int a = 0; a < g->k->naxis; a++)
        if (g->k->axis[a] != k->v && !e_is_ival(coef_of(c, p->vec_flat, g->k->axis[a]), 0))
            at = e_add(c, e_mul(c, at, g->k->axis[a]->extent), e_axis(c, g->k->axis[a]));
    /* The weights are an argument, so that equal layers share this function. */
    Tensor *w = tensor_new(c, TK_CONST, DT_F32, 0, NULL);
    Const *data = NEW(g->em->a, Const);
    *data = (Const){.dtype = DT_F32, .count = 1, .data = q->weights};
    w->data = data;
    map_seti(g->em->const_name, (uint64_t)(uintptr_t)data->data, (void *)(uintptr_t)q->weights);
    fn_line(f, "const float *const w%d = %s + (%s) * %lld + tile * %lld;", i, f->tensor(f, w),
            fn_expr(f, at), (long long)q->stride, (long long)q->tile);
}

bool group_contraction(Group *g) {
    Emit *em = g->em;
    Cx *c = em->c;
    Fn *f = &g->f;
    Contraction k = {.g = g};
    Map *seen = map_new(em->a);
    for (int i = 0; i < g->k->n; i++) find(&k, seen, g->k->value[i]);
    if (!k.n || !choose_axes(&k)) return false;
    choose_tile(&k);
    pack_panels(&k);
    g->reduce = scratch;
    g->user = &k;
    group_range(g);
    int indent = f->indent, mark = f->bound.n;
    for (int i = 0; i < g->k->naxis; i++)
        if (g->k->axis[i] != k.v && g->k->axis[i] != k.m)
            group_loop(g, g->k->axis[i], arena_printf(em->a, "i%d", i));
    if (k.m) { /* blocks of rows, so that their operands stay in the cache for all tiles */
        bool split = k.m == g->k->split;
        fn_line(f, "for (int64_t first = %s; first < %s; first += %d) {", split ? "from" : "0",
                split ? "to" : fn_expr(f, k.m->extent), ROW_BLOCK);
        fn_open(f);
        fn_line(f, "const int64_t end = bk_mini(first + %d, %s);", ROW_BLOCK,
                split ? "to" : fn_expr(f, k.m->extent));
    }
    bool plain_vec = false; /* an operand that is not padded to whole vectors */
    const char *back = open_tiles(&k);
    for (int j = 0; j < k.n && !k.whole; j++) plain_vec |= !k.p[j].packed || k.p[j].both;
    if (plain_vec)
        fn_line(f, "const int64_t lanes = bk_mini(%s - v0, %d);",
                k.v == g->k->split && !k.npanel ? "to" : fn_expr(f, k.v->extent), k.vt);
    for (int i = 0; i < k.npanel; i++) panel_pointer(&k, i);
    fetch_tile(&k, back);
    for (int j = 0; j < k.n; j++)
        fn_line(f, "float g%d[%d] __attribute__((aligned(64)));", k.p[j].slot, k.mr * k.vt);
    if (k.m) {
        fn_line(f, "for (int64_t m0 = first, rows; m0 < end; m0 += rows) {");
        fn_open(f);
        fn_bind(f, e_axis(c, k.m), "m0");
        row_block(&k);
    } else
        fn_line(f, "const int64_t rows = 1;");
    fn_bind(f, e_axis(c, k.v), "v0");
    fetch_begin(&k);
    for (int i = 0; i < k.nheight; i++) {
        int rows = k.height[i];
        if (k.nheight > 1) {
            if (i == 0)
                fn_line(f, "if (rows >= %d) {", rows);
            else if (i < k.nheight - 1)
                fn_line(f, "} else if (rows >= %d) {", rows);
            else
                fn_line(f, "} else {");
            f->indent++;
            fn_line(f, "rows = %d;", rows);
        }
        int scope = f->bound.n;
        for (int s = 0; s < k.nset; s++) {
            if (k.dot[s]) continue;
            if (plain_vec) {
                fn_line(f, "if (lanes == %d) {", k.vt);
                int a = fn_open(f);
                call_micro(&k, s, rows, false);
                fn_close(f, a);
                fn_line(f, "} else {");
                a = fn_open(f);
                call_micro(&k, s, rows, true);
                fn_close(f, a);
                fn_line(f, "}");
            } else
                call_micro(&k, s, rows, false);
        }
        f->bound.n = scope;
        if (k.nheight > 1) f->indent--;
    }
    if (k.nheight > 1) fn_line(f, "}");
    for (int s = 0; s < k.nset; s++)
        if (k.dot[s]) call_dot(&k, s);
    fetch_end(&k);
    f->bound.n = mark;
    for (int i = g->k->naxis - 1; i >= 0; i--)
        if (g->k->axis[i] != k.v && g->k->axis[i] != k.m)
            fn_bind(f, e_axis(c, g->k->axis[i]), arena_printf(em->a, "i%d", i));
    epilogue(&k);
    while (f->indent > indent) {
        f->indent--;
        fn_line(f, "}");
    }
    f->bound.n = mark;
    return true;
}
