/* rnn.c: RNN, GRU and LSTM as loops over time, and com.microsoft's DynamicQuantizeLSTM.
 *
 * The input projection of all time steps is one contraction before the loop. A step is one
 * recurrent contraction of the state with R, for all gates at once, and pointwise tensors that read
 * slices of it. Both directions run in one loop. A single time step needs no loop. Rows shorter
 * than the longest keep their state and write zeros after their end; a row of length 0 returns its
 * initial state. As in ONNX Runtime, `clip` limits the inputs of the gates' activations, not the
 * cell state. 16-bit floats are computed in float32.
 *
 * DynamicQuantizeLSTM has 8-bit weights, [directions, input or hidden, gates * hidden]. Both
 * contractions are int32 sums; their other operand is quantized to uint8 by its range: X over all
 * steps and rows (if a row reaches them), the state for each row. ONNX Runtime uses the range of
 * the rows of each thread, so it computes the same with as many threads as rows.
 */
#include "utask/ops/elementwise.h"
#include "utask/ops/lowerings.h"
#include "utask/ops/quantize.h"

typedef enum { CELL_RNN, CELL_GRU, CELL_LSTM } Cell;

typedef struct ActUse {
    Act act;
    double alpha, beta;
} ActUse;

typedef struct Rnn {
    Lower *L;
    Cx *c;
    Cell cell;
    int gates; /* rows of W and R are gates * H */
    int ndir;
    bool rev[2];           /* direction d runs backwards */
    bool batch_first;      /* layout 1 */
    DType io, w;           /* types of the operands and of the computation */
    Tensor *x, *W, *R, *B; /* B may be NULL */
    Tensor *len;           /* int64 [N], NULL if all rows have full length */
    Tensor *h0, *c0, *P;   /* may be NULL: zero */
    Expr *T, *N, *I, *H;   /* steps, batch, input and hidden size */
    ActUse act[2][3];
    double clip; /* 0: none */
    bool linear_before_reset, couple;
    bool quantized;           /* W and R are of 8 bits, with the last two axes swapped */
    Tensor *W_scale, *W_zero; /* quantized: [directions, gates * hidden] or [directions] */
    Tensor *R_scale, *R_zero;
} Rnn;

typedef struct State {
    Tensor *h, *c; /* [N, H]; NULL: zero */
} State;

/* ---- reading the node ------------------------------------------------------------------------ */
/* Reads the activations. Each takes the next values of activation_alpha and _beta that it needs. */
static void read_activations(Rnn *r) {
    static const char *const dflt[3][3] = {
        [CELL_RNN] = {"tanh"},
        [CELL_GRU] = {"sigmoid", "tanh"},
        [CELL_LSTM] = {"sigmoid", "tanh", "tanh"},
    };
    int per = r->cell == CELL_RNN ? 1 : r->cell == CELL_GRU ? 2 : 3, na, nb, ia = 0, ib = 0;
    const float *alpha = attr_floats(r->L, "activation_alpha", &na);
    const float *beta = attr_floats(r->L, "activation_beta", &nb);
    const Attr *names = node_attr(r->L->node, "activations");
    if (names && names->n < per * r->ndir)
        fail(r->L, "activations must list %d names", per * r->ndir);
    for (int d = 0; d < r->ndir; d++)
        for (int k = 0; k < per; k++) {
            const char *name = names ? names->strings[d * per + k] : dflt[r->cell][k];
            const ActName *a = act_named(name, NAMED_RECURRENT);
            if (!a) fail(r->L, "unknown activation '%s'", name);
            ActUse *u = &r->act[d][k];
            *u = (ActUse){a->act, a->alpha, a->beta};
            if (a->nparam >= 1 && ia < na) u->alpha = alpha[ia++];
            if (a->nparam >= 2 && ib < nb) u->beta = beta[ib++];
        }
}

static void expect(Rnn *r, const char *what, const char *shape, Tensor *t, int rank,
                   Expr *const *dim) {
    if (t->rank != rank) fail(r->L, "%s must have shape %s, not rank %d", what, shape, t->rank);
    for (int i = 0; i < rank; i++)
        check_eq(r->L, t->dim[i], dim[i], "%s must have shape %s: axis %d differs", what, shape, i);
}

/* An optional operand, converted to the type of the computation. */
static Tensor *operand(Rnn *r, int i) {
    return has_in(r->L, i) ? t_cast(r->L, r->w, in(r->L, i)) : NULL;
}

static Tensor *initial(Rnn *r, int i, const char *what) {
    Tensor *t = operand(r, i);
    Expr *D = e_int(r->c, r->ndir);
    if (t && r->batch_first)
        expect(r, what, "[batch, directions, hidden]", t, 3, (Expr *[]){r->N, D, r->H});
    else if (t)
        expect(r, what, "[directions, batch, hidden]", t, 3, (Expr *[]){D, r->N, r->H});
    return t;
}

/* sequence_lens as int64, each checked to be in [0, T]; NULL if no row is shorter than T. */
static Tensor *lengths(Rnn *r, Tensor *given) {
    Cx *c = r->c;
    int64_t steps, v, n = count_const(given), full = 0;
    expect(r, "sequence_lens", "[batch]", given, 1, &r->N);
    if (e_is_int(r->T, &steps))
        while (full < n && const_elem(given, full, &v) && v == steps) full++;
    if (n >= 0 && full == n) return NULL;

    Tensor *len = t_cast(r->L, DT_I64, given);
    Expr *e;
    Tensor *ok = te_like(r->L, DT_BOOL, len, &e);
    ok = te_end(r->L, ok, e_and(c, e_le(c, e_int(c, 0), e), e_le(c, e, r->T)));
    check(r->L, uni(r->L, t_reduce(r->L, R_AND, ok, 1, false), 0),
          "sequence_lens must be between 0 and the number of steps, %s", said(r->L, r->T));
    return len;
}

/* The 8-bit weights in input i, with `rows` rows, their zero points (input at) and scales (input
 * at - 1). */
static Tensor *quantized_weights(Rnn *r, int i, int at, Expr *rows, Tensor **scale, Tensor **zero) {
    Lower *L = r->L;
    Cx *c = r->c;
    Tensor *w = byte_in(L, i), *z = *zero = in_needed(L, at), *s = *scale = in_needed(L, at - 1);
    Expr *D = e_int(c, r->ndir), *cols = e_muli(c, r->H, r->gates);
    expect(r, i == 1 ? "W" : "R", "[directions, rows, gates * hidden]", w, 3,
           (Expr *[]){D, rows, cols});
    Tensor *param[] = {s, z};
    for (int k = 0; k < 2; k++) {
        bool one = param[k]->rank == 1;
        expect(r, k ? "a zero point" : "a scale",
               one ? "[directions]" : "[directions, gates * hidden]", param[k], one ? 1 : 2,
               (Expr *[]){D, cols});
    }
    return w;
}

static void read_node(Rnn *r, Lower *L, Cell cell, bool quantized) {
    Cx *c = L->cx;
    *r = (Rnn){.L = L, .c = c, .cell = cell, .quantized = quantized};
    r->gates = cell == CELL_RNN ? 1 : cell == CELL_GRU ? 3 : 4;
    const char *dir = attr_s(L, "direction", "forward");
    r->ndir = strcmp(dir, "bidirectional") ? 1 : 2;
    r->rev[0] = !strcmp(dir, "reverse");
    r->rev[1] = r->ndir == 2;
    int64_t layout = attr_i(L, "layout", 0);
    if (layout != 0 && layout != 1) fail(L, "layout must be 0 or 1, not %lld", (long long)layout);
    r->batch_first = layout == 1;
    r->linear_before_reset = attr_i(L, "linear_before_reset", 0) != 0;
    r->couple = attr_i(L, "input_forget", 0) != 0;
    r->clip = attr_f(L, "clip", 0);
    if (attr_has(L, "clip") && !(r->clip > 0)) fail(L, "clip must be positive");
    read_activations(r);

    Tensor *x = in_needed(L, 0), *R = in_needed(L, 2);
    check_rank(L, x, 3, "X");
    check_rank(L, R, 3, "R");
    r->io = x->dtype;
    r->w = wide_float(r->io);
    r->x = t_cast(L, r->w, x);
    r->T = x->dim[r->batch_first ? 1 : 0];
    r->N = x->dim[r->batch_first ? 0 : 1];
    r->I = x->dim[2];
    r->H = R->dim[quantized ? 1 : 2];
    if (attr_has(L, "hidden_size")) {
        int64_t h = attr_i(L, "hidden_size", 0);
        if (h <= 0 || h > INT32_MAX)
            fail(L, "hidden_size must be positive and below 2^31, not %lld", (long long)h);
        r->H = e_int(c, h);
    }
    Expr *D = e_int(c, r->ndir), *rows = e_muli(c, r->H, r->gates);
    if (quantized) {
        r->W = quantized_weights(r, 1, 9, r->I, &r->W_scale, &r->W_zero);
        r->R = quantized_weights(r, 2, 11, r->H, &r->R_scale, &r->R_zero);
    } else {
        expect(r, "W", "[directions, gates * hidden, input]", in_needed(L, 1), 3,
               (Expr *[]){D, rows, r->I});
        expect(r, "R", "[directions, gates * hidden, hidden]", R, 3, (Expr *[]){D, rows, r->H});
        r->W = operand(r, 1);
        r->R = operand(r, 2);
    }
    r->B = operand(r, 3);
    if (r->B)
        expect(r, "B", "[directions, 2 * gates * hidden]", r->B, 2,
               (Expr *[]){D, e_muli(c, rows, 2)});
    if (has_in(L, 4)) r->len = lengths(r, in(L, 4));
    r->h0 = initial(r, 5, "initial_h");
    if (cell != CELL_LSTM) return;
    r->c0 = initial(r, 6, "initial_c");
    r->P = operand(r, 7);
    if (r->P)
        expect(r, "P", "[directions, 3 * hidden]", r->P, 2, (Expr *[]){D, e_muli(c, r->H, 3)});
}

/* ---- pieces of a step ------------------------------------------------------------------------ */
static Expr *activate(const Rnn *r, int d, int k, Expr *x) {
    if (r->clip > 0) {
        Expr *hi = e_num(r->c, r->w, r->clip), *lo = e_num(r->c, r->w, -r->clip);
        x = e_min(r->c, e_max(r->c, x, lo), hi);
    }
    const ActUse *u = &r->act[d][k];
    return act_expr(r->c, u->act, x, u->alpha, u->beta);
}

/* Column k * H + j: unit j of gate k. */
static Expr *gate(const Rnn *r, int k, Expr *j) { return e_add(r->c, e_muli(r->c, r->H, k), j); }

/* Element [n, j] of a state; zero when it is absent. */
static Expr *state_at(const Rnn *r, Tensor *t, Expr *n, Expr *j) {
    return t ? ld(r->L, t, (Expr *[]){n, j}) : e_num(r->c, r->w, 0);
}

/* Begins a tensor [N, gates * H]; n and q become its axes. */
static Tensor *rows_begin(const Rnn *r, int gates, Expr **n, Expr **q) {
    Tensor *t = te_begin(r->L, r->w, 2, (Expr *[]){r->N, e_muli(r->c, r->H, gates)});
    *n = ax(r->L, t, 0);
    *q = ax(r->L, t, 1);
    return t;
}

/* One operand of a contraction. */
typedef struct Left {
    Tensor *t;            /* quantized: of 8 bits */
    Tensor *scale, *zero; /* rank 0, or rank 1 with one per row; NULL: not quantized */
} Left;

static Left left_operand(const Rnn *r, Tensor *t) {
    Left x = {.t = t};
    if (r->quantized && t) x.t = t_dynamic_quantize(r->L, t, t->rank == 2, &x.scale, &x.zero);
    return x;
}

/* An 8-bit integer less its zero point, in int32. */
static Expr *centred(const Rnn *r, Expr *x, Expr *zero) {
    return e_sub(r->c, e_cast(r->c, DT_I32, x), e_cast(r->c, DT_I32, zero));
}

/* sum over k of x[idx…] * w[d, q, k], where k is the last of the `rank` indices of x. */
static Expr *contract(const Rnn *r, int d, Left x, int rank, Expr **idx, Expr *extent, Tensor *w,
                      Tensor *w_scale, Tensor *w_zero, Expr *q) {
    Cx *c = r->c;
    Axis *axis = axis_new(c, extent);
    Expr *k = idx[rank - 1] = e_axis(c, axis), *dir = e_int(c, d), *a = ld(r->L, x.t, idx);
    if (!r->quantized) {
        Expr *b = ld(r->L, w, (Expr *[]){dir, q, k});
        return e_reduce(c, R_SUM, 1, &axis, e_mul(c, a, b));
    }
    Expr *column[] = {dir, q}, *b = ld(r->L, w, (Expr *[]){dir, k, q});
    Expr *term =
        e_mul(c, centred(r, a, ld(r->L, x.zero, idx)), centred(r, b, ld(r->L, w_zero, column)));
    Expr *scale = e_mul(c, ld(r->L, x.scale, idx), ld(r->L, w_scale, column));
    return e_mul(c, e_cast(c, r->w, e_reduce(c, R_SUM, 1, &axis, term)), scale);
}

/* sum over k of h[n, k] * R[d, q, k], NULL if h is. */
static Expr *recur(const Rnn *r, int d, Left h, Expr *n, Expr *q) {
    if (!h.t) return NULL;
    return contract(r, d, h, 2, (Expr *[]){n, NULL}, r->H, r->R, r->R_scale, r->R_zero, q);
}

/* Whether the recurrent part's bias is multiplied by the reset gate, too. */
static bool separate_bias(const Rnn *r) { return r->cell == CELL_GRU && r->linear_before_reset; }

/* gx[t, n, q] = sum over i of X[t, n, i] * W[d, q, i], plus the biases. */
static Tensor *project(const Rnn *r, int d, Left x) {
    Lower *L = r->L;
    Cx *c = r->c;
    Expr *rows = e_muli(c, r->H, r->gates), *dir = e_int(c, d);
    Tensor *bias = NULL;
    if (r->B) {
        bias = te_begin(L, r->w, 1, &rows);
        Expr *q = ax(L, bias, 0);
        Expr *wb = ld(L, r->B, (Expr *[]){dir, q});
        Expr *rb = ld(L, r->B, (Expr *[]){dir, e_add(c, rows, q)});
        bias = te_end(L, bias, separate_bias(r) ? wb : e_add(c, wb, rb));
    }
    Tensor *gx = te_begin(L, r->w, 3, (Expr *[]){r->T, r->N, rows});
    Expr *t = ax(L, gx, 0), *n = ax(L, gx, 1), *q = ax(L, gx, 2);
    Expr **at = r->batch_first ? (Expr *[]){n, t, NULL} : (Expr *[]){t, n, NULL};
    Expr *sum = contract(r, d, x, 3, at, r->I, r->W, r->W_scale, r->W_zero, q);
    return te_end(L, gx, bias ? e_add(c, sum, ld(L, bias, &q)) : sum);
}

/* The projection for row n at the time of its step s. */
static Expr *projected(const Rnn *r, int d, Tensor *gx, Expr *s, Expr *n, Expr *q) {
    Cx *c = r->c;
    Expr *t = s;
    if (r->rev[d]) {
        t = e_addi(c, e_sub(c, r->len ? ld(r->L, r->len, &n) : r->T, s), -1);
        if (r->len) t = e_max(c, t, e_int(c, 0)); /* rows that have ended may read anything */
    }
    return ld(r->L, gx, (Expr *[]){t, n, q});
}

/* g[n, q] for gates [0, gates): projection plus recurrence. */
static Tensor *preactivation(const Rnn *r, int d, Tensor *gx, Expr *s, Tensor *state, int gates) {
    Expr *n, *q;
    Left h = left_operand(r, state);
    Tensor *g = rows_begin(r, gates, &n, &q);
    Expr *v = projected(r, d, gx, s, n, q), *sum = recur(r, d, h, n, q);
    return te_end(r->L, g, sum ? e_add(r->c, v, sum) : v);
}

/* ---- cells: the state after a step ----------------------------------------------------------- */
static State step_rnn(const Rnn *r, int d, Tensor *gx, Expr *s, State old) {
    Expr *n, *j;
    Tensor *g = preactivation(r, d, gx, s, old.h, 1), *h = rows_begin(r, 1, &n, &j);
    h = te_end(r->L, h, activate(r, d, 0, ld(r->L, g, (Expr *[]){n, j})));
    return (State){h, NULL};
}

/* (1 - z) * hh + z * h */
static Expr *gru_mix(const Rnn *r, Expr *z, Expr *hh, Expr *h) {
    Cx *c = r->c;
    Expr *fresh = e_mul(c, e_sub(c, e_num(c, r->w, 1), z), hh);
    return e_add(c, fresh, e_mul(c, z, h));
}

/* The reset gate scales the output of R: one contraction for all three gates. */
static State step_gru_linear(const Rnn *r, int d, Tensor *gx, Expr *s, State old) {
    Lower *L = r->L;
    Cx *c = r->c;
    Expr *n, *j, *pre[3], *rec[3];
    Tensor *hr = NULL;
    if (old.h || r->B) {
        hr = rows_begin(r, 3, &n, &j);
        Expr *v = recur(r, d, left_operand(r, old.h), n, j);
        if (r->B) {
            Expr *col = e_add(c, e_muli(c, r->H, 3), j);
            Expr *rb = ld(L, r->B, (Expr *[]){e_int(c, d), col});
            v = v ? e_add(c, v, rb) : rb;
        }
        hr = te_end(L, hr, v);
    }
    Tensor *h = rows_begin(r, 1, &n, &j);
    for (int k = 0; k < 3; k++) {
        pre[k] = projected(r, d, gx, s, n, gate(r, k, j));
        rec[k] = state_at(r, hr, n, gate(r, k, j));
    }
    Expr *z = activate(r, d, 0, hr ? e_add(c, pre[0], rec[0]) : pre[0]);
    Expr *reset = activate(r, d, 0, hr ? e_add(c, pre[1], rec[1]) : pre[1]);
    Expr *cand = hr ? e_add(c, pre[2], e_mul(c, reset, rec[2])) : pre[2];
    cand = activate(r, d, 1, cand);
    return (State){te_end(L, h, gru_mix(r, z, cand, state_at(r, old.h, n, j))), NULL};
}

/* The reset gate scales the input of R, which needs a second contraction. */
static State step_gru(const Rnn *r, int d, Tensor *gx, Expr *s, State old) {
    Lower *L = r->L;
    Expr *n, *j;
    if (r->linear_before_reset) return step_gru_linear(r, d, gx, s, old);
    Tensor *g = preactivation(r, d, gx, s, old.h, 2), *reset = NULL;
    if (old.h) {
        reset = rows_begin(r, 1, &n, &j);
        Expr *v = activate(r, d, 0, ld(L, g, (Expr *[]){n, gate(r, 1, j)}));
        reset = te_end(L, reset, e_mul(r->c, v, state_at(r, old.h, n, j)));
    }
    Tensor *hh = rows_begin(r, 1, &n, &j);
    Expr *q = gate(r, 2, j), *v = projected(r, d, gx, s, n, q);
    Expr *sum = recur(r, d, left_operand(r, reset), n, q);
    hh = te_end(L, hh, sum ? e_add(r->c, v, sum) : v);

    Tensor *h = rows_begin(r, 1, &n, &j);
    Expr *z = activate(r, d, 0, ld(L, g, (Expr *[]){n, j}));
    Expr *cand = activate(r, d, 1, ld(L, hh, (Expr *[]){n, j}));
    return (State){te_end(L, h, gru_mix(r, z, cand, state_at(r, old.h, n, j))), NULL};
}

/* Gate k (0 input, 1 output, 2 forget) with its peephole to cell value `cell`. */
static Expr *lstm_gate(const Rnn *r, int d, Tensor *g, int k, Expr *cell, Expr *n, Expr *j) {
    Expr *v = ld(r->L, g, (Expr *[]){n, gate(r, k, j)});
    if (r->P) {
        Expr *p = ld(r->L, r->P, (Expr *[]){e_int(r->c, d), gate(r, k, j)});
        v = e_add(r->c, v, e_mul(r->c, p, cell));
    }
    return activate(r, d, 0, v);
}

static State step_lstm(const Rnn *r, int d, Tensor *gx, Expr *s, State old) {
    Lower *L = r->L;
    Cx *c = r->c;
    Expr *n, *j;
    Tensor *g = preactivation(r, d, gx, s, old.h, 4);

    Tensor *cell = rows_begin(r, 1, &n, &j);
    Expr *prev = state_at(r, old.c, n, j);
    Expr *i = lstm_gate(r, d, g, 0, prev, n, j);
    Expr *f = r->couple ? e_sub(c, e_num(c, r->w, 1), i) : lstm_gate(r, d, g, 2, prev, n, j);
    Expr *cand = activate(r, d, 1, ld(L, g, (Expr *[]){n, gate(r, 3, j)}));
    Expr *now = e_mul(c, i, cand);
    cell = te_end(L, cell, old.c ? e_add(c, e_mul(c, f, prev), now) : now);

    Tensor *h = rows_begin(r, 1, &n, &j);
    now = ld(L, cell, (Expr *[]){n, j});
    const ActUse *u = &r->act[d][2];
    Expr *o = lstm_gate(r, d, g, 1, now, n, j);
    Expr *v = e_mul(c, o, act_expr(c, u->act, now, u->alpha, u->beta));
    return (State){te_end(L, h, v), cell};
}

static State step(const Rnn *r, int d, Tensor *gx, Expr *s, State old) {
    switch (r->cell) {
    case CELL_RNN: return step_rnn(r, d, gx, s, old);
    case CELL_GRU: return step_gru(r, d, gx, s, old);
    case CELL_LSTM: return step_lstm(r, d, gx, s, old);
    }
    die("cell %d", (int)r->cell);
}

/* `now` where row n still runs at step s, else `old` (NULL: zero), in type t. */
static Tensor *masked(const Rnn *r, DType t, Expr *s, Tensor *now, Tensor *old) {
    Tensor *y = te_begin(r->L, t, 2, (Expr *[]){r->N, r->H});
    Expr *n = ax(r->L, y, 0), *j = ax(r->L, y, 1);
    Expr *v = state_at(r, now, n, j);
    if (r->len) v = e_sel(r->c, e_lt(r->c, s, ld(r->L, r->len, &n)), v, state_at(r, old, n, j));
    return te_end(r->L, y, e_cast(r->c, t, v));
}

/* One step; short rows keep their state. *y becomes its part of output Y, in the operands' type. */
static State advance(const Rnn *r, int d, Tensor *gx, Expr *s, State old, Tensor **y) {
    State now = step(r, d, gx, s, old);
    *y = r->len || r->io != r->w ? masked(r, r->io, s, now.h, NULL) : now.h;
    if (!r->len) return now;
    now.h = masked(r, r->w, s, now.h, old.h);
    if (now.c) now.c = masked(r, r->w, s, now.c, old.c);
    return now;
}

/* ---- outputs --------------------------------------------------------------------------------- */
/* Direction d of an initial state; NULL stays NULL. */
static Tensor *initial_dir(const Rnn *r, Tensor *all, int d) {
    if (!all) return NULL;
    Expr *n, *j, *dir = e_int(r->c, d);
    Tensor *t = rows_begin(r, 1, &n, &j);
    Expr *v = ld(r->L, all, r->batch_first ? (Expr *[]){n, dir, j} : (Expr *[]){dir, n, j});
    return te_end(r->L, t, v);
}

static Tensor *zero_state(const Rnn *r) {
    Expr *n, *j;
    Tensor *t = rows_begin(r, 1, &n, &j);
    return te_end(r->L, t, e_num(r->c, r->w, 0));
}

static Expr *by_direction(const Rnn *r, Expr *dir, Expr *const *v) {
    return r->ndir == 1 ? v[0] : e_sel(r->c, e_eq(r->c, dir, e_int(r->c, 0)), v[0], v[1]);
}

/* Y_h or Y_c from the last states t of the directions. */
static void out_state(const Rnn *r, int i, Tensor *const *t) {
    Lower *L = r->L;
    if (!wants_out(L, i)) return;
    if (r->ndir == 1) {
        out(L, i, t_unsqueeze(L, t_cast(L, r->io, t[0]), r->batch_first ? 1 : 0));
        return;
    }
    Expr *D = e_int(r->c, r->ndir), *v[2];
    Tensor *y = te_begin(L, r->io, 3,
                         r->batch_first ? (Expr *[]){r->N, D, r->H} : (Expr *[]){D, r->N, r->H});
    Expr *dir = ax(L, y, r->batch_first ? 1 : 0), *n = ax(L, y, r->batch_first ? 0 : 1);
    Expr *j = ax(L, y, 2);
    for (int d = 0; d < r->ndir; d++) v[d] = e_cast(r->c, r->io, ld(L, t[d], (Expr *[]){n, j}));
    out(L, i, te_end(L, y, by_direction(r, dir, v)));
}

/* Y from ys[d]: [T, N, H] in step order, or [N, H] for a single step. */
static void out_sequence(const Rnn *r, Tensor *const *ys) {
    Lower *L = r->L;
    Cx *c = r->c;
    bool single = ys[0]->rank == 2;
    if (r->ndir == 1 && !r->batch_first && (single || !r->rev[0])) {
        Tensor *y = t_unsqueeze(L, ys[0], single ? 0 : 1);
        out(L, 0, single ? t_unsqueeze(L, y, 0) : y);
        return;
    }
    Expr *D = e_int(c, r->ndir), *v[2];
    Tensor *y = te_begin(L, r->io, 4,
                         r->batch_first ? (Expr *[]){r->N, r->T, D, r->H}
                                        : (Expr *[]){r->T, D, r->N, r->H});
    Expr *t = ax(L, y, r->batch_first ? 1 : 0), *dir = ax(L, y, r->batch_first ? 2 : 1);
    Expr *n = ax(L, y, r->batch_first ? 0 : 2), *j = ax(L, y, 3);
    for (int d = 0; d < r->ndir; d++) {
        v[d] = ld(L, ys[d], single ? (Expr *[]){n, j} : (Expr *[]){t, n, j});
        if (single || !r->rev[d]) continue;
        Expr *last = e_addi(c, r->len ? ld(L, r->len, &n) : r->T, -1);
        v[d] = ld(L, ys[d], (Expr *[]){e_sub(c, last, t), n, j});
        if (r->len) v[d] = e_sel(c, e_le(c, t, last), v[d], e_num(c, r->io, 0));
    }
    out(L, 0, te_end(L, y, by_direction(r, dir, v)));
}

/* X, set to zero at steps that no row reaches, if that matters. */
static Tensor *reached(const Rnn *r) {
    if (!r->quantized || !r->len) return r->x;
    Expr *v;
    Tensor *longest = t_reduce(r->L, R_MAX, r->len, 1, false), *y = te_like(r->L, r->w, r->x, &v);
    Expr *step = ax(r->L, y, r->batch_first ? 1 : 0);
    Expr *runs = e_lt(r->c, step, ld(r->L, longest, NULL));
    return te_end(r->L, y, e_sel(r->c, runs, v, e_num(r->c, r->w, 0)));
}

static void recurrent(Lower *L, Cell cell, bool quantized) {
    Rnn rnn, *r = &rnn;
    read_node(r, L, cell, quantized);
    Left x = left_operand(r, reached(r));
    Tensor *gx[2], *y[2], *ys[2] = {NULL, NULL}, *h[2], *cs[2] = {NULL, NULL};
    State st[2];
    int64_t steps;
    for (int d = 0; d < r->ndir; d++) {
        gx[d] = project(r, d, x);
        st[d] = (State){initial_dir(r, r->h0, d), initial_dir(r, r->c0, d)};
    }
    if (e_is_int(r->T, &steps) && steps == 1) {
        for (int d = 0; d < r->ndir; d++) {
            State last = advance(r, d, gx[d], e_int(r->c, 0), st[d], &ys[d]);
            h[d] = last.h;
            cs[d] = last.c;
        }
    } else {
        for (int d = 0; d < r->ndir; d++) {
            if (!st[d].h) st[d].h = zero_state(r);
            if (!st[d].c && cell == CELL_LSTM) st[d].c = zero_state(r);
        }
        LoopB *b = loop_begin(L, r->T);
        for (int d = 0; d < r->ndir; d++) {
            st[d].h = h[d] = loop_carry(L, b, st[d].h);
            if (st[d].c) st[d].c = cs[d] = loop_carry(L, b, st[d].c);
        }
        for (int d = 0; d < r->ndir; d++) {
            State next = advance(r, d, gx[d], loop_iter(b), st[d], &y[d]);
            loop_next(L, b, h[d], next.h);
            if (cs[d]) loop_next(L, b, cs[d], next.c);
            if (wants_out(L, 0)) ys[d] = loop_scan(L, b, y[d]);
        }
        loop_end(L, b);
    }
    if (wants_out(L, 0)) out_sequence(r, ys);
    out_state(r, 1, h);
    if (cell == CELL_LSTM) out_state(r, 2, cs);
}

void lower_RNN(Lower *L) { recurrent(L, CELL_RNN, false); }
void lower_GRU(Lower *L) { recurrent(L, CELL_GRU, false); }
void lower_LSTM(Lower *L) { recurrent(L, CELL_LSTM, false); }
void lower_DynamicQuantizeLSTM(Lower *L) { recurrent(L, CELL_LSTM, true); }
