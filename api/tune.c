/* tune.c: makes the scheduler's choices by measurement.
 *
 * First the model is compiled with the choices of the cost model. Then every choice is tried, those
 * about the most expensive constructs first: its alternatives (of a parameter, those that the cost
 * model estimates best) are compiled and timed in turns with the best so far. An alternative is
 * kept if it is faster by more than the noise. A text that is known already is not built again. At
 * the end the result is timed against the first version; if it is not faster, the first choices
 * stay. */
#include <math.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "api/runtime.h"
#include "scheduler/cost/decide.h"

#define NOISE 0.02    /* smaller relative differences do not count */
#define HOPELESS 0.05 /* a candidate that is slower by this much gets no more rounds */
#define ROUNDS 6      /* each times the candidate and the best so far */
#define ROUND_SECONDS 0.04
#define WAYS_TRIED 4 /* alternatives that are tried at most */
#define SMALL 0.01   /* skip constructs that cost less than this part of the most expensive one */
#define WAYS_FACTOR 1.6 /* skip a parameter's ways with estimates above this times the model's */
#define MIN_RUNS 3
#define DEFAULT_SECONDS 60
#define FINAL_ROUNDS 8
#define FINAL_SECONDS 0.06

typedef struct Loaded {
    struct braid_model *m;
    braid_session *s;
    braid_value **in;
} Loaded;

typedef struct Tuner {
    const char *model_path;
    braid_options o;
    char *folder;
    RtChoices *choices;
    uint64_t *known; /* hashes of the texts built so far */
    int nknown, nfile;
    Loaded best;
    double best_ns;     /* its least time of a run */
    Decision *decision; /* the choices to try */
    int ndecision;
    double begin, seconds;
    braid_error *e;
} Tuner;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* ---- timing a library ------------------------------------------------------------------------ */
static void unload(Loaded *l) {
    for (int i = 0; l->in && i < braid_model_input_count(l->m); i++) braid_value_free(l->in[i]);
    free(l->in);
    braid_session_free(l->s);
    braid_model_free(l->m);
    *l = (Loaded){0};
}

/* Makes a value for input i. A given input becomes a view of its data, so that l->in owns all its
 * values. */
static braid_status tune_input(const Tuner *t, const struct braid_model *m, int i, uint64_t *seed,
                               braid_value **v) {
    const braid_io *io = braid_model_input(m, i);
    for (int k = 0; k < t->o.tune_input_count; k++) {
        const braid_value *x = t->o.tune_input[k];
        if (strcmp(t->o.tune_input_name[k], io->name) != 0) continue;
        if (x->kind != BRAID_TENSOR)
            return rt_fail(t->e, BRAID_UNSUPPORTED, "tuning: input '%s' is not a tensor", io->name);
        return braid_value_borrow_tensor(x->dtype, x->rank, x->dim, x->data, v, t->e);
    }
    return rt_value_random(io, seed, v, t->e);
}

static braid_status load(Tuner *t, const char *file, Loaded *l) {
    char *path = rt_text("%s/%s", t->folder, file);
    uint64_t seed = 1;
    braid_session_options so = {.struct_size = sizeof so, .threads = t->o.threads};
    *l = (Loaded){0};
    if (!path) return rt_fail(t->e, BRAID_MEMORY, "out of memory");
    l->m = rt_model_new();
    braid_status st =
        l->m ? rt_model_library(l->m, path, t->e) : rt_fail(t->e, BRAID_MEMORY, "out of memory");
    free(path);
    if (!st) st = braid_session_new(l->m, &so, &l->s, t->e);
    if (!st && !(l->in = calloc((size_t)braid_model_input_count(l->m) + 1, sizeof *l->in)))
        st = rt_fail(t->e, BRAID_MEMORY, "out of memory");
    for (int i = 0; !st && i < braid_model_input_count(l->m); i++)
        st = tune_input(t, l->m, i, &seed, &l->in[i]);
    if (st && l->m) unload(l);
    return st;
}

/* *ns: the least time of a run, from runs during `seconds`. */
static braid_status time_runs(Tuner *t, Loaded *l, double seconds, double *ns) {
    int nout = braid_model_output_count(l->m);
    braid_value **out = calloc((size_t)nout + 1, sizeof *out);
    if (!out) return rt_fail(t->e, BRAID_MEMORY, "out of memory");
    double begin = now(), least = INFINITY;
    braid_status st = BRAID_OK;
    for (int i = 0; !st && (i < MIN_RUNS || now() - begin < seconds); i++) {
        if (!progress_ask(rt_progress(&t->o))) {
            st = rt_fail(t->e, BRAID_CANCELLED, "cancelled");
            break;
        }
        double a = now();
        st = braid_session_run(l->s, (const braid_value *const *)l->in, out, t->e);
        double b = now();
        if (i > 0 && b - a < least) least = b - a; /* the first run allocates memory */
        for (int k = 0; !st && k < nout; k++) braid_value_free(out[k]);
    }
    free(out);
    *ns = least * 1e9;
    return st;
}

/* ---- candidates ------------------------------------------------------------------------------ */
/* Compiles with t->choices to FILE. If that text was built before, it does not build, and *built is
 * false. `decision` (may be NULL) gets the *n choices that came up, malloc'd. */
static braid_status build(Tuner *t, const char *file, bool *built, Decision **decision, int *n) {
    RtJob j;
    rt_job_begin(&j, &t->o, t->choices);
    braid_status st = rt_job_emit(&j, t->model_path, t->e);
    uint64_t text = st ? 0
                       : hash_bytes(j.texts.text.p, j.texts.text.n,
                                    hash_bytes(j.texts.weights.p, j.texts.weights.n, 1));
    *built = true;
    for (int i = 0; !st && i < t->nknown; i++)
        if (t->known[i] == text) *built = false;
    if (!st && decision) {
        const Schedule *k = j.p->schedule;
        *n = k->decisions.n;
        *decision = malloc(sizeof **decision * (size_t)(*n + 1));
        if (!*decision)
            st = rt_fail(t->e, BRAID_MEMORY, "out of memory");
        else if (*n)
            memcpy(*decision, k->decisions.p, sizeof **decision * (size_t)*n);
    }
    if (!st && *built) {
        uint64_t *more = realloc(t->known, sizeof *more * (size_t)(t->nknown + 1));
        if (!more)
            st = rt_fail(t->e, BRAID_MEMORY, "out of memory");
        else {
            t->known = more;
            t->known[t->nknown++] = text;
            st = rt_job_build(&j, t->folder, file, t->e);
        }
    }
    rt_job_end(&j);
    return st;
}

/* Builds with t->choices and times the result in turns with the best so far, which it replaces if
 * it is faster. *ns: its least time of a run; 0: its text was built before. */
static braid_status candidate(Tuner *t, double *ns, bool *better) {
    char file[40];
    bool built;
    Loaded l;
    snprintf(file, sizeof file, "candidate%d.so", t->nfile++);
    *ns = 0;
    *better = false;
    braid_status st = build(t, file, &built, NULL, NULL);
    if (st || !built) return st;
    if ((st = load(t, file, &l))) return st;
    double best = INFINITY, own = INFINITY, once;
    for (int i = 0; !st && i < ROUNDS && own <= best * (1 + HOPELESS); i++) {
        st = time_runs(t, &l, ROUND_SECONDS, &once);
        own = fmin(own, once);
        if (!st) st = time_runs(t, &t->best, ROUND_SECONDS, &once);
        best = fmin(best, once);
    }
    *ns = own;
    *better = !st && own < best * (1 - NOISE);
    if (*better) {
        unload(&t->best);
        t->best = l;
        t->best_ns = own;
    } else
        unload(&l);
    return st;
}

/* The index of `key` among the choices, or where to insert it. */
static int find(const RtChoices *c, uint64_t key) {
    int i = 0;
    while (i < c->n && c->p[i].key < key) i++;
    return i;
}
static bool is_chosen(const RtChoices *c, uint64_t key) {
    int i = find(c, key);
    return i < c->n && c->p[i].key == key;
}

static braid_status choose(Tuner *t, Measured m) {
    RtChoices *c = t->choices;
    int i = find(c, m.key);
    if (!is_chosen(c, m.key)) {
        Measured *more = realloc(c->p, sizeof *more * (size_t)(c->n + 1));
        if (!more) return rt_fail(t->e, BRAID_MEMORY, "out of memory");
        c->p = more;
        memmove(c->p + i + 1, c->p + i, sizeof *c->p * (size_t)(c->n++ - i));
    }
    c->p[i] = m;
    return BRAID_OK;
}

static braid_status show(const Tuner *t, int done, int all, double first_ns) {
    char bar[31], line[120];
    int full = all ? done * 30 / all : 30;
    for (int i = 0; i < 30; i++) bar[i] = i < full ? '#' : '.';
    bar[30] = 0;
    snprintf(line, sizeof line, "tuning [%s] %d of %d, %.2f us (%+.1f %%)", bar, done, all,
             t->best_ns * 1e-3, 100 * (t->best_ns / first_ns - 1));
    return rt_step(&t->o, line, t->e);
}

/* The time that a run of the model spends on the construct, by the worst estimate. */
static double stake(const Decision *d) {
    double most = 0;
    for (int i = 0; i < d->n; i++) most = fmax(most, d->way[i].ns);
    return most * d->runs;
}
static int by_stake(const void *x, const void *y) {
    double p = stake(x), q = stake(y);
    return (p < q) - (p > q);
}

/* Tries the alternatives of d, in the order of the cost model's estimates. */
static braid_status try_ways(Tuner *t, const Decision *d) {
    Measured m = {d->key, d->way[d->taken].value, -1, t->best_ns, INFINITY};
    bool tried[WAYS_MAX] = {false};
    braid_status st = BRAID_OK;
    tried[d->taken] = true;
    for (int k = 0; k < WAYS_TRIED && !st; k++) {
        int at = -1;
        double ns;
        bool better;
        for (int i = 0; i < d->n; i++)
            if (!tried[i] && (at < 0 || d->way[i].ns < d->way[at].ns)) at = i;
        if (at < 0 || (d->x >= X_TRANSFORMS && d->way[at].ns > d->way[d->taken].ns * WAYS_FACTOR))
            break;
        tried[at] = true;
        if ((st = choose(t, (Measured){d->key, d->way[at].value, m.value, 0, 0}))) break;
        if ((st = candidate(t, &ns, &better))) break;
        if (better)
            m = (Measured){d->key, d->way[at].value, m.value, ns, m.ns};
        else if (ns > 0 && ns < m.other_ns)
            m.other = d->way[at].value, m.other_ns = ns;
    }
    if (m.other < 0) m.other = m.value, m.other_ns = m.ns; /* no alternative gave another text */
    return st ? st : choose(t, m);
}

/* Tries every choice once, until time runs out. */
static braid_status try_all(Tuner *t) {
    double first_ns = t->best_ns;
    if (t->ndecision) qsort(t->decision, (size_t)t->ndecision, sizeof *t->decision, by_stake);
    for (int i = 0; i < t->ndecision && now() - t->begin < t->seconds; i++) {
        const Decision *d = &t->decision[i];
        braid_status st = show(t, i, t->ndecision, first_ns);
        if (st) return st;
        if (d->by != BY_MODEL || is_chosen(t->choices, d->key) ||
            stake(d) < SMALL * stake(&t->decision[0]))
            continue;
        if ((st = try_ways(t, d))) return st;
    }
    return show(t, t->ndecision, t->ndecision, first_ns);
}

/* Adds choices that come up only after those made so far. *any: whether there are some. */
static braid_status find_more(Tuner *t, bool *any) {
    Decision *d = NULL;
    int n = 0;
    bool built;
    *any = false;
    braid_status st = build(t, "again.so", &built, &d, &n);
    Decision *more =
        st ? NULL : realloc(t->decision, sizeof *more * (size_t)(t->ndecision + n + 1));
    if (!st && !more) st = rt_fail(t->e, BRAID_MEMORY, "out of memory");
    if (more) t->decision = more;
    for (int i = 0; more && i < n; i++) {
        int k = 0;
        while (k < t->ndecision && more[k].key != d[i].key) k++;
        if (d[i].by != BY_MODEL || k < t->ndecision) continue;
        more[t->ndecision++] = d[i];
        *any = true;
    }
    free(d);
    return st;
}

/* Goes back to the cost model's choice for d. */
static braid_status stands(Tuner *t, const Decision *d) {
    Measured m = t->choices->p[find(t->choices, d->key)];
    int model = d->way[d->taken].value;
    if (m.value != model) m = (Measured){d->key, model, m.value, m.ns, m.ns};
    return choose(t, m);
}

/* *good: whether the best is faster than the first version; times them in turns. */
static braid_status is_faster(Tuner *t, bool *good) {
    Loaded a;
    double x = INFINITY, y = INFINITY, ns;
    braid_status st = load(t, "first.so", &a);
    if (st) return st;
    for (int i = 0; !st && i < FINAL_ROUNDS; i++) {
        st = time_runs(t, &a, FINAL_SECONDS, &ns);
        x = fmin(x, ns);
        if (!st) st = time_runs(t, &t->best, FINAL_SECONDS, &ns);
        y = fmin(y, ns);
    }
    unload(&a);
    *good = y < x * (1 - NOISE);
    return st;
}

static void keep(const Tuner *t, Store *s, const char *key, const RtChoices *own) {
    int units = t->o.threads ? t->o.threads : compile_cpus();
    bool begun = store_begin(s);
    for (int i = 0; i < t->ndecision && begun; i++) {
        const Decision *d = &t->decision[i];
        if (!is_chosen(own, d->key) && is_chosen(t->choices, d->key))
            store_keep_measured(s, key, units, d->x, &t->choices->p[find(t->choices, d->key)]);
    }
    if (begun) store_commit(s);
}

static braid_status tune(Tuner *t, Store *s, const char *key) {
    RtChoices own = *t->choices; /* the choices of earlier tunings */
    bool good = true, built;
    if (!(own.p = malloc(sizeof *own.p * (size_t)(own.n + 1))))
        return rt_fail(t->e, BRAID_MEMORY, "out of memory");
    if (own.n) memcpy(own.p, t->choices->p, sizeof *own.p * (size_t)own.n);
    braid_status st = build(t, "first.so", &built, &t->decision, &t->ndecision);
    if (!st) st = load(t, "first.so", &t->best);
    if (!st) st = time_runs(t, &t->best, ROUND_SECONDS, &t->best_ns);
    for (bool any = true; !st && any && now() - t->begin < t->seconds;)
        if (!(st = try_all(t))) st = find_more(t, &any);
    if (!st && t->choices->n > own.n) {
        st = is_faster(t, &good);
        for (int i = 0; i < t->ndecision && !st && !good; i++) { /* go back to the first choices */
            const Decision *d = &t->decision[i];
            if (is_chosen(t->choices, d->key) && !is_chosen(&own, d->key)) st = stands(t, d);
        }
        if (!st) keep(t, s, key, &own);
    }
    if (t->best.m) unload(&t->best);
    free(own.p);
    return st;
}

braid_status rt_tune(const char *model_path, const braid_options *o, Store *s, const char *key,
                     RtChoices *choices, braid_error *e) {
    Tuner t = {.model_path = model_path, .o = *o, .choices = choices, .e = e, .begin = now()};
    t.o.profile = false; /* measuring parts takes time */
    const char *tmp = getenv("TMPDIR");
    if (!key)
        return rt_fail(e, BRAID_USAGE, "candidates for another processor cannot be measured here");
    t.seconds = o->tune_seconds ? o->tune_seconds : DEFAULT_SECONDS;
    char *prefix = rt_text("%s/braid-tune", tmp && *tmp ? tmp : "/tmp");
    braid_status st =
        prefix ? rt_temp_folder(prefix, &t.folder, e) : rt_fail(e, BRAID_MEMORY, "out of memory");
    if (!st) st = rt_step(o, "tuning", e);
    if (!st) st = tune(&t, s, key);
    if (t.folder) rt_remove_folder(t.folder);
    free(prefix);
    free(t.folder);
    free(t.known);
    free(t.decision);
    return st;
}
