/* decide.c: see decide.h. */
#include "scheduler/cost/decide.h"

#include <stdlib.h>

#include "scheduler/cost/cost.h"
#include "utask/walk.h"

static const char *const names[X_COUNT] = {
#define TRANSFORM(id, name) name,
#define PARAMETER(id, name) name,
#include "scheduler/cost/choices.def"
};

const char *transform_name(Transform x) { return names[x]; }

const char *way_name(Transform x, int value, char buf[24]) {
    if (x < X_TRANSFORMS)
        snprintf(buf, 24, "%s", value ? "on" : "off");
    else if (x == X_TILE)
        snprintf(buf, 24, "%dx%d", value / 16, value % 16);
    else
        snprintf(buf, 24, "%d", value);
    return buf;
}

/* A value that an option names, or FORCE_NONE. */
static int read_way(int x, const char *s, size_t n) {
    char text[24], name[24], *end = text;
    if (!n || n >= sizeof text) return FORCE_NONE;
    memcpy(text, s, n);
    text[n] = 0;
    for (int v = 0; v < 2 && x < X_TRANSFORMS; v++)
        if (strcmp(text, way_name((Transform)x, v, name)) == 0) return v;
    if (x < X_TRANSFORMS || *text < '0' || *text > '9') return FORCE_NONE;
    long v = strtol(text, &end, 10);
    if (x == X_TILE && *end == 'x' && v < 16) v = v * 16 + strtol(end + 1, &end, 10);
    return *end || v > INT32_MAX || (x == X_TILE && v < 17) ? FORCE_NONE : (int)v;
}

Schedule *schedule_new(Cx *c, const Device *device, int units, const char *forced) {
    Schedule *k = NEW(c->a, Schedule);
    k->device = device;
    k->units = units;
    k->weights_bytes = -1;
    for (int x = 0; x < X_COUNT; x++) k->force[x] = FORCE_NONE;
    for (const char *p = forced; p && *p;) {
        size_t n = strcspn(p, ","), name = strcspn(p, "=");
        int x = 0, value = FORCE_NONE;
        while (x < X_COUNT && !(strlen(names[x]) == name && strncmp(names[x], p, name) == 0)) x++;
        if (x < X_COUNT && name < n) value = read_way(x, p + name + 1, n - name - 1);
        if (value == FORCE_NONE) {
            Sb all = {.a = c->a};
            for (int i = 0; i < X_COUNT; i++)
                sb_printf(&all, "%s%s",
                          i == X_TRANSFORMS ? ", or NAME=VALUE of a parameter: "
                          : i               ? ", "
                                            : "",
                          names[i]);
            err(c->d, ST_USAGE, NULL, "'%.*s' is not NAME=on or NAME=off of a transformation: %s",
                (int)n, p, all.p);
        }
        k->force[x] = value;
        p += n + (p[n] == ',');
    }
    return k;
}

/* ---- keys ----
 * A hash of what a statement computes and of its domains, without names and numbers of tensors:
 * equal in different models. Sizes that are not known at compile time are one class. */
static uint64_t mix(uint64_t h, uint64_t v) { return hash_bytes(&v, sizeof v, h); }

static uint64_t size_key(uint64_t h, const Expr *e) {
    int64_t v;
    return mix(h, e && e_is_int(e, &v) ? (uint64_t)v : UINT64_MAX);
}

static uint64_t expr_key(Map *seen, uint64_t h, const Expr *e) {
    h = mix(h, (uint64_t)e->op << 16 | (uint64_t)e->dtype << 8 | e->kind);
    if (!map_add(seen, (uint64_t)e->id + 1)) return h;
    if (e->op == E_LOAD)
        for (int i = 0; i < e->t->rank; i++) h = size_key(h, e->t->dim[i]);
    if (e->op == E_REDUCE)
        for (int i = 0; i < e->naxis; i++) h = size_key(h, e->raxis[i]->extent);
    for (int i = 0; i < e->n; i++) h = expr_key(seen, h, e->a[i]);
    return h;
}

static uint64_t seq_key(Cx *c, uint64_t h, const Seq *q);

static uint64_t stmt_key(Cx *c, uint64_t h, const Stmt *s) {
    h = mix(h, s->kind);
    switch (s->kind) {
    case S_OP:
        for (int i = 0; i < s->op.n; i++) {
            for (int d = 0; d < s->op.t[i]->rank; d++) h = size_key(h, s->op.t[i]->dim[d]);
            h = expr_key(map_new(c->a), h, s->op.t[i]->body);
        }
        break;
    case S_EXTERN: h = mix(h, (uint64_t)s->ext.nin << 8 | (uint64_t)s->ext.nout); break;
    case S_LOOP: h = size_key(h, s->loop.trips); break;
    default: break;
    }
    for (int i = 0; i < stmt_nseq(s); i++) h = seq_key(c, h, stmt_seq(s, i));
    return h;
}

static uint64_t seq_key(Cx *c, uint64_t h, const Seq *q) {
    for (int i = 0; i < q->s.n; i++) h = stmt_key(c, h, q->s.p[i]);
    return mix(h, (uint64_t)q->s.n);
}

/* ---- deciding ---- */
static int by_key(const void *a, const void *b) {
    const Measured *x = a, *y = b;
    return x->key < y->key ? -1 : x->key > y->key;
}

/* How often a run of the model runs what is in q, about: calls of functions are not counted. */
static double runs_of(const Seq *q) {
    double n = 1;
    for (; q && q->owner; q = q->parent) {
        if (q->owner->kind == S_LOOP)
            n *= cost_size(q->owner->loop.trips);
        else if (q->owner->kind == S_BRANCH)
            n *= 0.5;
    }
    return n;
}

static int way_of(const Decision *d, int value) {
    int i = 0;
    while (i < d->n && d->way[i].value != value) i++;
    return i;
}

static int settle(Program *p, Decision *d, const Stmt *s) {
    Schedule *k = p->schedule;
    d->path = s->path;
    d->key = stmt_key(p->cx, mix(0, (uint64_t)d->x), s);
    d->runs = s->kind == S_OP     ? runs_of(s->op.t[0]->seq)
              : s->kind == S_LOOP ? runs_of(s->loop.body->parent)
                                  : 1;
    const Measured *m = NULL, like = {.key = d->key};
    if (k->nmeasured) m = bsearch(&like, k->measured, (size_t)k->nmeasured, sizeof *m, by_key);
    if (m && way_of(d, m->value) < d->n) {
        d->measured = *m;
        d->taken = way_of(d, m->value);
        d->by = BY_MEASUREMENT;
    }
    if (k->force[d->x] != FORCE_NONE && way_of(d, k->force[d->x]) < d->n) {
        d->taken = way_of(d, k->force[d->x]);
        d->by = BY_FORCE;
    }
    vec_push(p->cx->a, &k->decisions, *d);
    return d->way[d->taken].value;
}

bool decide(Program *p, Transform x, const Stmt *s, double plain_ns, double changed_ns) {
    Decision d = {
        .x = x, .n = 2, .taken = changed_ns < plain_ns, .way = {{0, plain_ns}, {1, changed_ns}}};
    return settle(p, &d, s);
}

int decide_value(Program *p, Transform x, const Stmt *s, int n, const Way *way) {
    Decision d = {.x = x, .n = n};
    ASSERT(n >= 1 && n <= WAYS_MAX);
    if (n == 1) return way[0].value;
    memcpy(d.way, way, sizeof *way * (size_t)n);
    return settle(p, &d, s);
}
