/* contract_fetch.c: what a block of rows fetches for later while its sums are computed: its own
 * epilogue's operands, and the next tile's weights where they come from beyond the nearer caches.
 * An address past the end is fetched without harm. */
#include "codegen/emit/cpu/contract.h"

#define LINE 64              /* bytes of a cache line */
#define FAR_BYTES (64 << 10) /* a tensor from this size on is not expected near */
#define SHORT 32             /* steps of a sum that leave no time to fetch anything */
#define MAX_FETCHED 8

/* ---- the next tile's weights ----------------------------------------------------------------- */
int contract_fetches(const Contraction *k, int panel, int rows) {
    const Panel *q = &k->panel[panel];
    if (!k->m || rows == 1 || !q->ahead) return 0;
    int64_t all = axis_size(k->m, ROW_BLOCK), job = all < ROW_BLOCK ? all : ROW_BLOCK,
            blocks = (job + k->mr - 1) / k->mr,
            lines = (int64_t)q->n * k->vt * 4 / LINE; /* that a step reads */
    return (int)((lines + blocks - 1) / blocks);
}

void fetch_tile(const Contraction *k, const char *back) {
    Fn *f = &k->g->f;
    for (int i = 0; i < k->npanel; i++) {
        if (!contract_fetches(k, i, k->mr)) continue;
        long long tile = k->panel[i].tile;
        if (back)
            fn_line(f, "const float *next%d = w%d + ((%s) ? -%lldLL : %lldLL);", i, i, back, tile,
                    tile);
        else
            fn_line(f, "const float *next%d = w%d + %lld;", i, i, tile);
        fn_line(f, "const float *const last%d = next%d + %lld;", i, i, tile);
    }
}

/* ---- the epilogue's operands ----------------------------------------------------------------- */
typedef struct Far {
    Expr *load[MAX_FETCHED];
    int n;
    Map *seen;
} Far;

static bool far_away(const Tensor *t) {
    int64_t bytes = (int64_t)dtype_size(t->dtype), v;
    for (int i = 0; i < t->rank && bytes < FAR_BYTES; i++)
        bytes = e_is_int(t->dim[i], &v) ? bytes * v : FAR_BYTES;
    return bytes >= FAR_BYTES;
}

/* Loads that the epilogue makes in any case, of another row's each, contiguous along the lanes. */
static void find_far(const Contraction *k, Far *far, Expr *e) {
    const Group *g = k->g;
    Cx *c = g->em->c;
    if (!(e->flags & EF_LOAD) || e->op == E_REDUCE || map_geti(far->seen, (uint64_t)e->id + 1))
        return;
    map_seti(far->seen, (uint64_t)e->id + 1, e);
    if (e->op == E_LOAD) {
        Expr *flat = flat_of(c, e);
        bool own = false;
        for (int i = 0; i < g->k->n; i++) own |= g->k->t[i] == e->t;
        if (own || far->n == MAX_FETCHED || !far_away(e->t) ||
            (flat->flags & (EF_LOAD | EF_GUARD | EF_REDUCE)))
            return;
        Expr *row = coef_of(c, flat, k->m);
        if (row && !e_is_ival(row, 0) && e_is_ival(coef_of(c, flat, k->v), 1))
            far->load[far->n++] = e;
        return;
    }
    int last = e_always(e);
    for (int i = 0; i < last; i++) find_far(k, far, e->a[i]);
}

static void fetch_operands(const Contraction *k) {
    Group *g = k->g;
    Fn *f = &g->f;
    Cx *c = g->em->c;
    Far far = {.seen = map_new(g->em->a)};
    int64_t steps = 1;
    for (int i = 0; i < k->nraxis[0]; i++) steps *= axis_size(k->raxis[0][i], SHORT);
    for (int i = 0; i < g->k->n && steps >= SHORT; i++) find_far(k, &far, g->k->value[i]);
    if (!far.n) return;
    fn_line(f,
            "for (int64_t row = 0; rows > 1 && row < rows; row++) {"); /* one is read as it comes */
    int mark = fn_open(f);
    fn_line(f, "const int64_t im = m0 + row;");
    fn_bind(f, e_axis(c, k->m), "im");
    for (int i = 0; i < far.n; i++) {
        const char *base = f->tensor(f, far.load[i]->t), *at = fn_expr(f, flat_of(c, far.load[i]));
        int64_t size = (int64_t)dtype_size(far.load[i]->dtype);
        for (int64_t l = 0; l < k->vt; l += LINE / size)
            fn_line(f, "__builtin_prefetch(%s + (%s) + %lld);", base, at, (long long)l);
    }
    fn_close(f, mark);
    fn_line(f, "}");
}

/* ---- a block of rows ------------------------------------------------------------------------- */
void fetch_begin(const Contraction *k) {
    Fn *f = &k->g->f;
    if (!k->m || k->mr == 1) return;
    fetch_operands(k);
    /* While a few rows are computed there is no time to fetch a tile. */
    bool known = axis_size(k->m, 0) > 0;
    const char *few = known ? "" : arena_printf(f->a, " && end - first > %d", 2 * k->mr);
    for (int i = 0; i < k->npanel; i++)
        if (contract_fetches(k, i, k->mr))
            fn_line(f, "const int64_t by%d = next%d < last%d%s ? %d : 0;", i, i, i, few, LINE / 4);
}

void fetch_end(const Contraction *k) {
    Fn *f = &k->g->f;
    for (int i = 0; i < k->npanel; i++) {
        int n = contract_fetches(k, i, k->mr);
        const Panel *q = &k->panel[i];
        if (n)
            fn_line(f, "next%d += by%d * %lld;", i, i, (long long)(n * q->tile / (q->n * k->vt)));
    }
}
