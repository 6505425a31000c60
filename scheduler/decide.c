/* decide.c: see decide.h. */
#include "scheduler/decide.h"

static const char *const names[X_COUNT] = {"split-sum",   "fold-product", "hoist",       "reuse",     "unroll",
                                           "interchange", "wavefront",   "recluster", "parallel",
                                           "append",      "batch",     "replicate",   "core",
                                           "team"};

const char *transform_name(Transform x) { return names[x]; }

Schedule *schedule_new(Cx *c, const Device *device, int units, const char *forced) {
    Schedule *k = NEW(c->a, Schedule);
    k->device = device;
    k->units = units;
    for (const char *p = forced; p && *p;) {
        size_t n = strcspn(p, ","), name = strcspn(p, "=");
        int x = 0;
        while (x < X_COUNT && !(strlen(names[x]) == name && strncmp(names[x], p, name) == 0)) x++;
        bool on = n == name + 3 && strncmp(p + name, "=on", 3) == 0,
             off = n == name + 4 && strncmp(p + name, "=off", 4) == 0;
        if (x == X_COUNT || !(on || off)) {
            Sb all = {.a = c->a};
            for (int i = 0; i < X_COUNT; i++) sb_printf(&all, "%s%s", i ? ", " : "", names[i]);
            err(c->d, ST_USAGE, NULL, "'%.*s' is not NAME=on or NAME=off of a transformation: %s",
                (int)n, p, all.p);
        }
        k->force[x] = on ? FORCE_ON : FORCE_OFF;
        p += n + (p[n] == ',');
    }
    return k;
}

/* ---- keys: structure without names and numbers of tensors
 * ------------------------------------------------- */
static uint64_t mix(uint64_t h, uint64_t v) { return hash_bytes(&v, sizeof v, h); }

static uint64_t size_key(uint64_t h, const Expr *e) {
    int64_t v;
    return mix(h, e && e_is_int(e, &v) ? (uint64_t)v : UINT64_MAX);
}

static uint64_t expr_key(Map *seen, uint64_t h, const Expr *e) {
    h = mix(h, (uint64_t)e->op << 16 | (uint64_t)e->dtype << 8 | e->kind);
    if (map_geti(seen, (uint64_t)e->id + 1)) return h;
    map_seti(seen, (uint64_t)e->id + 1, (void *)(uintptr_t)e);
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
    case S_LOOP: h = seq_key(c, size_key(h, s->loop.trips), s->loop.body); break;
    case S_BRANCH: h = seq_key(c, seq_key(c, h, s->br.arm[0]), s->br.arm[1]); break;
    case S_CALL:
        for (int i = 0; i < s->call.nfunc; i++) h = seq_key(c, h, s->call.func[i]->body);
        break;
    default: break;
    }
    return h;
}

static uint64_t seq_key(Cx *c, uint64_t h, const Seq *q) {
    for (int i = 0; i < q->s.n; i++) h = stmt_key(c, h, q->s.p[i]);
    return mix(h, (uint64_t)q->s.n);
}

uint64_t decision_key(Program *p, Transform x, const Stmt *s) {
    return stmt_key(p->cx, mix(0, (uint64_t)x), s);
}

/* ---- deciding
 * ---------------------------------------------------------------------------------------------- */
static const Measured *measured(const Schedule *k, uint64_t key) {
    int lo = 0, hi = k->nmeasured;
    while (lo < hi) {
        int mid = (lo + hi) / 2;
        if (k->measured[mid].key < key)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < k->nmeasured && k->measured[lo].key == key ? &k->measured[lo] : NULL;
}

bool decide(Program *p, Transform x, const Stmt *s, double plain_ns, double changed_ns) {
    Schedule *k = p->schedule;
    Decision d = {
        x, s->path, decision_key(p, x, s), plain_ns, changed_ns, changed_ns < plain_ns, BY_MODEL};
    const Measured *m = measured(k, d.key);
    if (m) {
        d.plain_ns = m->plain_ns;
        d.changed_ns = m->changed_ns;
        d.taken = m->changed_ns < m->plain_ns;
        d.by = BY_MEASUREMENT;
    }
    if (k->force[x]) {
        d.taken = k->force[x] == FORCE_ON;
        d.by = BY_FORCE;
    }
    vec_push(p->cx->a, &k->decisions, d);
    return d.taken;
}
