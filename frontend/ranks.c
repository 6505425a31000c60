/* ranks.c: finds which ranks the values of a Graph can have.
 *
 * Each value has a set of possible ranks. The operators' rules in ops_ranks.def narrow the sets,
 * forwards and backwards, until nothing changes.
 *
 * The sets are sound for every run that succeeds. So an operator inside an arm of an If narrows
 * only values of that arm, because the arm may never run. A value that is not a tensor has all
 * ranks; an optional has those of its element. */
#include "frontend/ops.h"
#include "frontend/graph.h"

#define ALL_RANKS ((2u << MAX_RANK) - 1)
#define MAX_SWEEPS 64  /* back and forth until nothing changes */
#define MAX_TRIALS 500 /* combinations that are begun */
#define MAX_OPEN 64    /* inputs whose combinations are looked for */
#define UNKNOWN (-1000)

typedef struct Sets {
    Graph *g;
    uint32_t *of;        /* by Value id: bit r is set if the rank can be r */
    int arm;             /* depth of the current arm; 0: none */
    bool changed, empty; /* a set has changed; a set outside of arms is empty */
    bool back;           /* the sweep goes backwards */
    const char **rule;   /* by OpRow.index; NULL: none */
    /* Buffers for `room` inputs and outputs of a node: */
    const Value **slot;
    const char **token;
    uint32_t *support;
    int room;
} Sets;

static void narrow(Sets *s, const Value *v, uint32_t to) {
    if (!v || (v->region ? v->region->depth : 0) < s->arm) return;
    uint32_t *m = &s->of[v->id], now = *m & to;
    s->changed = s->changed || now != *m;
    s->empty = s->empty || (!now && !s->arm);
    *m = now;
}
static uint32_t set_of(const Sets *s, const Value *v) { return v ? s->of[v->id] : ALL_RANKS; }

/* ---- rules ----------------------------------------------------------------------------------- */
static const char *next_token(const char *t) { /* the last one repeats */
    const char *comma = t + strcspn(t, ",>");
    return *comma == ',' ? comma + 1 : t;
}

/* Length of the list in attribute `attr` or constant input i; UNKNOWN: neither is there. */
static int known_count(const Node *n, const char *attr, int i) {
    const Attr *a = attr ? node_attr(n, attr) : NULL;
    if (a && a->kind == AT_INTS) return a->n;
    const Value *v = i < n->nin ? n->in[i] : NULL;
    return v && v->data && v->data->count <= MAX_RANK ? (int)v->data->count : UNKNOWN;
}

/* The value of a rule's letter, as far as the node alone decides it; else UNKNOWN. */
static int bound(const Node *n, char letter) {
    const Attr *a;
    switch (letter) {
    case 'p': return known_count(n, "perm", n->nin);
    case '#': return known_count(n, NULL, n->op->nin_max == 1 ? 0 : 1);
    case 'c': return known_count(n, "axes", 1);
    case 'k':
        a = node_attr(n, "keepdims");
        if (!a || a->kind != AT_INT || a->i) return 0;
        return n->op->nin_max == 1 ? 1 : known_count(n, "axes", 1);
    default: return UNKNOWN;
    }
}

/* Rank of a NumPy matmul of operands of ranks x and y; UNKNOWN: they do not fit. */
static int product_rank(int x, int y) {
    if (x < 1 || y < 1) return UNKNOWN;
    if (x == 1 || y == 1) return x + y - 2;
    return x > y ? x : y;
}

/* Value of a token, a sum of numbers and letters; UNKNOWN if one of them is. */
static int eval(const char *t, const int *letter) {
    int sum = 0, sign = 1;
    for (; *t && *t != ',' && *t != '>'; t++) {
        int v = *t >= '0' && *t <= '9' ? *t - '0' : letter[(unsigned char)*t];
        if (*t == '+' || *t == '-')
            sign = *t == '+' ? 1 : -1;
        else if (v == UNKNOWN)
            return UNKNOWN;
        else
            sum += sign * v;
    }
    return sum;
}

/* Fills slot, token and support for the inputs and outputs of n; returns their number. */
static int fill_slots(Sets *s, const Node *n, const char *rule) {
    const char *out = strchr(rule, '>') + 1;
    int m = 0;
    if (n->nin + n->nout > s->room) {
        s->room = 2 * (n->nin + n->nout);
        s->slot = NEWN(s->g->arena, const Value *, s->room);
        s->token = NEWN(s->g->arena, const char *, s->room);
        s->support = NEWN(s->g->arena, uint32_t, s->room);
    }
    for (int i = 0; i < n->nin + n->nout; i++) {
        const Value *v = i < n->nin ? n->in[i] : n->out[i - n->nin];
        const char *t = i < n->nin ? rule : out;
        if (v && *t != '?') {
            s->slot[m] = v;
            s->token[m] = t;
            s->support[m++] = 0;
        }
        *(i < n->nin ? &rule : &out) = next_token(t);
    }
    return m;
}

/* For one choice of the free letters: if all slots can have the ranks that follow, adds each rank
 * to its slot's support. */
static void support(Sets *s, int m, int *letter) {
    letter['z'] = letter['x'] == UNKNOWN ? UNKNOWN : product_rank(letter['x'], letter['y']);
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < m; i++) {
            int r = eval(s->token[i], letter);
            if (s->token[i][0] == 'z' && r == UNKNOWN) return;
            if (r != UNKNOWN && (r < 0 || r > MAX_RANK || !(s->of[s->slot[i]->id] >> r & 1)))
                return;
            if (pass) s->support[i] |= r == UNKNOWN ? ALL_RANKS : 1u << r;
        }
}

static void apply_pattern(Sets *s, const Node *n, const char *rule) {
    static const char letters[] = "nemp#xyck";
    int letter[128], m = fill_slots(s, n, rule);
    char free_letter[4] = "";
    int nfree = 0;
    for (size_t i = 0; i < COUNT(letter); i++) letter[i] = UNKNOWN;
    for (const char *c = letters; *c; c++) {
        letter[(unsigned char)*c] = bound(n, *c);
        if (letter[(unsigned char)*c] != UNKNOWN || *c == 'c' || *c == 'k' || !strchr(rule, *c))
            continue;
        ASSERT(nfree < 2);
        free_letter[nfree++] = *c;
    }
    int na = nfree > 0 ? MAX_RANK : 0, nb = nfree > 1 ? MAX_RANK : 0;
    for (int a = 0; a <= na; a++)
        for (int b = 0; b <= nb; b++) {
            if (nfree > 0) letter[(unsigned char)free_letter[0]] = a;
            if (nfree > 1) letter[(unsigned char)free_letter[1]] = b;
            support(s, m, letter);
        }
    for (int i = 0; i < m; i++) narrow(s, s->slot[i], s->support[i]);
}

static void apply_broadcast(Sets *s, const Node *n) {
    int reach[MAX_RANK + 1] = {0}; /* by rank: number of inputs that can have it */
    uint32_t out = ALL_RANKS, result = 0;
    for (int k = 0; k < n->nout; k++) out &= set_of(s, n->out[k]);
    for (int r = 0; r <= MAX_RANK; r++) {
        bool all = true; /* every input can have rank r or less */
        for (int i = 0; i < n->nin; i++) {
            uint32_t m = set_of(s, n->in[i]);
            reach[r] += m >> r & 1;
            all = all && (m & ((2u << r) - 1));
        }
        if (all && reach[r]) result |= 1u << r;
    }
    for (int k = 0; k < n->nout; k++) narrow(s, n->out[k], result);
    for (int i = 0; i < n->nin; i++) {
        uint32_t m = set_of(s, n->in[i]), keep = 0;
        for (int r = 0; r <= MAX_RANK; r++) {
            if (!(out & result & 1u << r)) continue;
            keep |= 1u << r;
            if (reach[r] > (int)(m >> r & 1))
                keep |= (1u << r) - 1; /* another input can have rank r */
        }
        narrow(s, n->in[i], keep);
    }
}

/* ---- control flow ---------------------------------------------------------------------------- */
static void sweep(Sets *s, const Region *r);

static void apply_if(Sets *s, const Node *n) {
    const char *const name[2] = {"then_branch", "else_branch"};
    const Region *arm[2];
    int up = s->arm;
    for (int k = 0; k < 2; k++) {
        const Attr *a = node_attr(n, name[k]);
        if (!a || !a->g || a->g->nresult != n->nout) return;
        arm[k] = a->g;
        s->arm = a->g->depth;
        sweep(s, a->g);
        s->arm = up;
    }
    for (int i = 0; i < n->nout; i++)
        narrow(s, n->out[i], set_of(s, arm[0]->result[i]) | set_of(s, arm[1]->result[i]));
}

/* One carried value: its initial value, the body's parameter and result, and the loop's output. */
static void apply_carry(Sets *s, const Value *init, const Value *param, const Value *next,
                        const Value *out) {
    uint32_t either = set_of(s, init) | set_of(s, next);
    narrow(s, param, either);
    narrow(s, out, either);
    narrow(s, init, set_of(s, param));
}

static void apply_loop(Sets *s, const Node *n) {
    const Attr *a = node_attr(n, "body");
    const Region *b = a ? a->g : NULL;
    int ncarry = n->nin - 2;
    if (!b || b->nparam != n->nin || b->nresult != 1 + n->nout || n->nout < ncarry) return;
    sweep(s, b);
    for (int i = 0; i < ncarry; i++)
        apply_carry(s, n->in[2 + i], b->param[2 + i], b->result[1 + i], n->out[i]);
    for (int i = ncarry; i < n->nout; i++) narrow(s, n->out[i], set_of(s, b->result[1 + i]) << 1);
}

static void apply_scan(Sets *s, const Node *n) {
    const Attr *a = node_attr(n, "body"), *count = node_attr(n, "num_scan_inputs");
    const Region *b = a ? a->g : NULL;
    if (!b || !count || count->i < 1 || count->i > n->nin || b->nparam != n->nin ||
        b->nresult != n->nout)
        return;
    int nstate = n->nin - (int)count->i;
    if (nstate > n->nout) return;
    sweep(s, b);
    for (int i = 0; i < n->nin; i++) {
        if (i < nstate) {
            apply_carry(s, n->in[i], b->param[i], b->result[i], n->out[i]);
            continue;
        }
        narrow(s, b->param[i], set_of(s, n->in[i]) >> 1);
        narrow(s, n->in[i], set_of(s, b->param[i]) << 1);
    }
    for (int i = nstate; i < n->nout; i++) narrow(s, n->out[i], set_of(s, b->result[i]) << 1);
}

static void apply(Sets *s, const Node *n) {
    const char *rule = s->rule[op_index(n->op)];
    if (!rule) return;
    if (!strcmp(rule, "if"))
        apply_if(s, n);
    else if (!strcmp(rule, "loop"))
        apply_loop(s, n);
    else if (!strcmp(rule, "scan"))
        apply_scan(s, n);
    else if (*rule == 'b')
        apply_broadcast(s, n);
    else
        apply_pattern(s, n, rule);
}

static void sweep(Sets *s, const Region *r) {
    for (int i = 0; i < r->nnode; i++) apply(s, r->node[s->back ? r->nnode - 1 - i : i]);
}

/* Narrows until nothing changes. False: some value can have no rank. */
static bool propagate(Sets *s) {
    s->empty = false;
    for (int i = 0; i < MAX_SWEEPS; i++) {
        s->changed = false;
        for (int back = 0; back < 2 && !s->empty; back++) {
            s->back = back;
            sweep(s, s->g->top);
        }
        if (s->empty) return false;
        if (!s->changed) break;
    }
    return true;
}

/* ---- initial sets ---------------------------------------------------------------------------- */
/* The set of ranks that type t declares. */
static uint32_t declared(const VType *t) {
    if (t && t->kind == VT_OPTIONAL) t = t->elem;
    return t && t->kind == VT_TENSOR && t->has_shape ? 1u << t->rank : ALL_RANKS;
}

static void begin_value(Sets *s, const Value *v, bool trust) {
    if (v) s->of[v->id] = v->data ? 1u << v->data->rank : trust ? declared(v->type) : ALL_RANKS;
}

/* `trust`: believe declared types of inner values, which exporters often get wrong. */
static void begin_region(Sets *s, const Region *r, bool trust) {
    for (int i = 0; i < r->nparam; i++) begin_value(s, r->param[i], trust || !r->depth);
    for (int i = 0; i < r->nnode; i++) {
        const Node *n = r->node[i];
        for (int k = 0; k < n->nin; k++)
            if (n->in[k] && n->in[k]->data) begin_value(s, n->in[k], trust);
        for (int k = 0; k < n->nout; k++) begin_value(s, n->out[k], trust);
        for (int k = 0; k < n->nattr; k++)
            if (n->attr[k].g) begin_region(s, n->attr[k].g, trust);
    }
    for (int i = 0; i < r->nresult; i++) {
        const Value *v = r->result[i];
        if (v->data) begin_value(s, v, trust);
        if (trust && !r->depth) s->of[v->id] &= declared(r->result_type[i]);
    }
}

static void begin(Sets *s, bool trust) {
    for (int i = 0; i < s->g->nvalue; i++) s->of[i] = ALL_RANKS;
    begin_region(s, s->g->top, trust);
}

static Sets sets_new(Graph *g) {
    Sets s = {.g = g,
              .of = NEWN(g->arena, uint32_t, g->nvalue + 1),
              .rule = NEWN(g->arena, const char *, op_count())};
    for (int i = 0; i < op_count(); i++) s.rule[i] = op_ranks(op_at(i));
    return s;
}

static bool single(uint32_t set) { return set && !(set & (set - 1)); }

static void find_open(Graph *g, OpenRanks *o) {
    o->input = NEWN(g->arena, int, g->top->nparam + 1);
    for (int i = 0; i < g->top->nparam; i++)
        if (graph_open_type(g->top->param[i]->type)) o->input[o->n++] = i;
}

void graph_settle_ranks(Graph *g, bool leave_lists) {
    static const int64_t any[MAX_RANK] = {-1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1};
    OpenRanks o = {0};
    find_open(g, &o);
    if (!o.n) return;
    Sets s = sets_new(g);
    begin(&s, false);
    if (!propagate(&s)) return; /* the lowering reports what is wrong */
    for (int i = 0; i < o.n; i++) {
        const Value *v = g->top->param[o.input[i]];
        InputShape shape = {v->name, __builtin_ctz(s.of[v->id]), any};
        if (single(s.of[v->id]) && !(leave_lists && shape.rank == 1))
            graph_declare_input(g, &shape);
    }
}

/* ---- combinations ---------------------------------------------------------------------------- */
typedef struct Search {
    Sets *s;
    OpenRanks *o;
    int most, trials;
} Search;

static uint32_t open_set(const Search *c, int i) {
    return c->s->of[c->s->g->top->param[c->o->input[i]]->id];
}

static void record(Search *c) {
    OpenRanks *o = c->o;
    if (o->ncombo == c->most) {
        o->more = true;
        return;
    }
    int8_t *rank = o->combo[o->ncombo++] = NEWN(c->s->g->arena, int8_t, o->n);
    for (int i = 0; i < o->n; i++) rank[i] = (int8_t)__builtin_ctz(open_set(c, i));
}

/* Records all combinations of ranks within the current sets. Requires that they are propagated. */
static void search(Search *c) {
    Sets *s = c->s;
    int at = -1;
    for (int i = 0; i < c->o->n; i++) {
        uint32_t set = open_set(c, i);
        if (!single(set) &&
            (at < 0 || __builtin_popcount(set) < __builtin_popcount(open_set(c, at))))
            at = i;
    }
    if (at < 0) {
        record(c);
        return;
    }
    const Value *v = s->g->top->param[c->o->input[at]];
    size_t bytes = sizeof *s->of * (size_t)s->g->nvalue;
    uint32_t *before = arena_memdup(s->g->arena, s->of, bytes), left = s->of[v->id];
    for (; left && !c->o->more; left &= left - 1) {
        memcpy(s->of, before, bytes);
        s->of[v->id] = left & (0u - left);
        if (c->trials++ == MAX_TRIALS) c->o->more = true;
        if (propagate(s)) search(c);
    }
}

OpenRanks graph_open_ranks(Graph *g, int most) {
    OpenRanks o = {0};
    find_open(g, &o);
    o.combo = NEWN(g->arena, int8_t *, most + 1);
    if (!o.n) return o;
    if (o.n > MAX_OPEN) {
        o.more = true;
        return o;
    }
    Sets s = sets_new(g);
    for (int trust = 1; trust >= 0 && !o.ncombo && !o.more; trust--) {
        Search c = {&s, &o, most, 0};
        begin(&s, trust);
        for (int i = 0; i < o.n; i++)
            s.of[g->top->param[o.input[i]]->id] &= (2u << OPEN_RANK_MAX) - 1;
        if (propagate(&s)) search(&c);
    }
    return o;
}
