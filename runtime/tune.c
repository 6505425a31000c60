/* tune.c: the scheduler's choices by measurement.
 *
 * The model is compiled as the cost model would have it. Then, choice by choice, the ones with the most at
 * stake first, the other way is compiled, run and timed, and kept when it is faster by more than the noise.
 * Candidates whose text is known are not built again. At the end the result and the beginning are timed
 * against each other: what is not faster is thrown away. */
#include <math.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "runtime/runtime.h"
#include "scheduler/decide.h"

#define NOISE 0.02         /* a smaller difference is none */
#define RUN_SECONDS 0.12   /* of timing a candidate */
#define MIN_RUNS 3
#define DEFAULT_SECONDS 60
#define FINAL_ROUNDS 5

typedef struct Candidate { /* a way to compile the model that was timed */
    uint64_t text;         /* hash of the generated text */
    double ns;             /* least time of a run; infinite when it fails */
} Candidate;

typedef struct Tuner {
    const char *model_path;
    braid_options o;
    char *folder;
    RtChoices *choices;
    Candidate *known;
    int nknown;
    Decision *decision;    /* of the best so far */
    int ndecision;
    double begin, seconds;
    bool progress;
    braid_error *e;
} Tuner;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* ---- timing a library ------------------------------------------------------------------------------------- */
typedef struct Loaded {
    struct braid_model *m;
    braid_session *s;
    braid_value **in;
} Loaded;

static void unload(Loaded *l) {
    for (int i = 0; l->in && i < braid_model_input_count(l->m); i++) braid_value_free(l->in[i]);
    free(l->in);
    braid_session_free(l->s);
    braid_model_free(l->m);
    *l = (Loaded){0};
}

/* Borrowed inputs get views of their data, so that all of l->in is freed alike. */
static braid_status tune_input(const Tuner *t, const struct braid_model *m, int i, uint64_t *seed, braid_value **v) {
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
    braid_status st = braid_load(path, NULL, &l->m, t->e);
    free(path);
    if (!st) st = braid_session_new(l->m, &so, &l->s, t->e);
    if (!st && !(l->in = calloc((size_t)braid_model_input_count(l->m) + 1, sizeof *l->in)))
        st = rt_fail(t->e, BRAID_MEMORY, "out of memory");
    for (int i = 0; !st && i < braid_model_input_count(l->m); i++) st = tune_input(t, l->m, i, &seed, &l->in[i]);
    if (st && l->m) unload(l);
    return st;
}

/* The least time of a run within `seconds`, in ns. */
static braid_status time_runs(Tuner *t, Loaded *l, double seconds, double *ns) {
    int nout = braid_model_output_count(l->m);
    braid_value **out = calloc((size_t)nout + 1, sizeof *out);
    if (!out) return rt_fail(t->e, BRAID_MEMORY, "out of memory");
    double begin = now(), least = INFINITY;
    braid_status st = BRAID_OK;
    for (int i = 0; !st && (i < MIN_RUNS || now() - begin < seconds); i++) {
        double a = now();
        st = braid_session_run(l->s, (const braid_value *const *)l->in, out, t->e);
        double b = now();
        if (i > 0 && b - a < least) least = b - a; /* the first one takes memory */
        for (int k = 0; !st && k < nout; k++) braid_value_free(out[k]);
    }
    free(out);
    *ns = least * 1e9;
    return st;
}

/* ---- candidates -------------------------------------------------------------------------------------------- */
/* Compiles with t->choices to FILE and times it; *decision (NULL: not wanted) gets the choices that came up. */
static braid_status candidate(Tuner *t, const char *file, double *ns, Decision **decision, int *n) {
    RtJob j;
    Loaded l;
    rt_job_begin(&j, &t->o, t->choices);
    braid_status st = rt_job_emit(&j, t->model_path, t->e);
    uint64_t text = st ? 0 : hash_bytes(j.texts.text.p, j.texts.text.n, hash_bytes(j.texts.weights.p, j.texts.weights.n, 1));
    bool known = false;
    for (int i = 0; !st && i < t->nknown && !known; i++)
        if ((known = t->known[i].text == text)) *ns = t->known[i].ns;
    if (!st && decision) {
        const Schedule *k = j.p->schedule;
        *n = k->decisions.n;
        *decision = malloc(sizeof **decision * (size_t)(*n + 1));
        if (!*decision) st = rt_fail(t->e, BRAID_MEMORY, "out of memory");
        else if (*n) memcpy(*decision, k->decisions.p, sizeof **decision * (size_t)*n);
    }
    if (!st && !known) st = rt_job_build(&j, t->folder, file, t->e);
    rt_job_end(&j);
    if (st || known) return st;
    if ((st = load(t, file, &l))) return st;
    st = time_runs(t, &l, RUN_SECONDS, ns);
    unload(&l);
    Candidate *more = st ? NULL : realloc(t->known, sizeof *more * (size_t)(t->nknown + 1));
    if (!st && !more) st = rt_fail(t->e, BRAID_MEMORY, "out of memory");
    if (st) return st;
    t->known = more;
    t->known[t->nknown++] = (Candidate){text, *ns};
    return BRAID_OK;
}

/* The place of `key` among the choices, or where it belongs. */
static int find(const RtChoices *c, uint64_t key) {
    int i = 0;
    while (i < c->n && c->p[i].key < key) i++;
    return i;
}
static bool is_chosen(const RtChoices *c, uint64_t key) {
    int i = find(c, key);
    return i < c->n && c->p[i].key == key;
}

static braid_status choose(Tuner *t, uint64_t key, double plain_ns, double changed_ns) {
    RtChoices *c = t->choices;
    int i = find(c, key);
    if (!is_chosen(c, key)) {
        Measured *more = realloc(c->p, sizeof *more * (size_t)(c->n + 1));
        if (!more) return rt_fail(t->e, BRAID_MEMORY, "out of memory");
        c->p = more;
        memmove(c->p + i + 1, c->p + i, sizeof *c->p * (size_t)(c->n++ - i));
    }
    c->p[i] = (Measured){key, plain_ns, changed_ns};
    return BRAID_OK;
}

static void show(const Tuner *t, int done, int all, double first_ns, double best_ns) {
    if (!t->progress) return;
    char bar[31];
    int full = all ? done * 30 / all : 30;
    for (int i = 0; i < 30; i++) bar[i] = i < full ? '#' : '.';
    bar[30] = 0;
    fprintf(stderr, "\rtuning [%s] %d of %d, %.0f s, %.2f us (%+.1f %%) ", bar, done, all, now() - t->begin, best_ns * 1e-3,
            100 * (best_ns / first_ns - 1));
}

static int by_stake(const void *x, const void *y) {
    const Decision *a = x, *b = y;
    double p = fabs(a->plain_ns - a->changed_ns), q = fabs(b->plain_ns - b->changed_ns);
    return (p < q) - (p > q);
}

/* Tries the other way of every choice, once each, as long as there is time. */
static braid_status try_all(Tuner *t, double first_ns, double *best_ns) {
    if (t->ndecision) qsort(t->decision, (size_t)t->ndecision, sizeof *t->decision, by_stake);
    for (int i = 0; i < t->ndecision && now() - t->begin < t->seconds; i++) {
        const Decision *d = &t->decision[i];
        double ns;
        show(t, i, t->ndecision, first_ns, *best_ns);
        if (d->by != BY_MODEL || is_chosen(t->choices, d->key)) continue;
        braid_status st = choose(t, d->key, d->taken, !d->taken);
        if (!st) st = candidate(t, "candidate.so", &ns, NULL, NULL);
        if (st) return st;
        bool better = ns < *best_ns * (1 - NOISE);
        double with = d->taken ? *best_ns : ns, without = d->taken ? ns : *best_ns;
        /* What is no better is remembered as worse, so that the choice stands. */
        if (!better && d->taken && without <= with) without = with * (1 + NOISE);
        if (!better && !d->taken && with <= without) with = without * (1 + NOISE);
        if ((st = choose(t, d->key, without, with))) return st;
        if (better) *best_ns = ns;
    }
    show(t, t->ndecision, t->ndecision, first_ns, *best_ns);
    return BRAID_OK;
}

/* Whether the library LAST is no slower than FIRST, run in turns. */
static braid_status no_slower(Tuner *t, bool *good) {
    Loaded a, b;
    double x = INFINITY, y = INFINITY, ns;
    braid_status st = load(t, "first.so", &a);
    if (st) return st;
    if ((st = load(t, "last.so", &b))) {
        unload(&a);
        return st;
    }
    for (int i = 0; !st && i < FINAL_ROUNDS; i++) {
        st = time_runs(t, &a, RUN_SECONDS / 2, &ns);
        if (!st && ns < x) x = ns;
        if (!st) st = time_runs(t, &b, RUN_SECONDS / 2, &ns);
        if (!st && ns < y) y = ns;
    }
    unload(&a);
    unload(&b);
    *good = y <= x * (1 + NOISE / 2);
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
    RtChoices own = *t->choices; /* what was found before */
    double first, best, ns;
    bool good = true;
    if (!(own.p = malloc(sizeof *own.p * (size_t)(own.n + 1)))) return rt_fail(t->e, BRAID_MEMORY, "out of memory");
    if (own.n) memcpy(own.p, t->choices->p, sizeof *own.p * (size_t)own.n);
    braid_status st = candidate(t, "first.so", &first, &t->decision, &t->ndecision);
    best = first;
    if (!st) st = try_all(t, first, &best);
    if (!st && t->choices->n > own.n) {
        t->nknown = 0; /* so that it is built under its own name */
        st = candidate(t, "last.so", &ns, NULL, NULL);
        if (!st) st = no_slower(t, &good);
        if (!st && good) keep(t, s, key, &own);
    }
    if (!st && !good) { /* as it was */
        if (own.n) memcpy(t->choices->p, own.p, sizeof *own.p * (size_t)own.n);
        t->choices->n = own.n;
    }
    free(own.p);
    return st;
}

braid_status rt_tune(const char *model_path, const braid_options *o, Store *s, const char *key, RtChoices *choices,
                     braid_error *e) {
    Tuner t = {.model_path = model_path, .o = *o, .choices = choices, .e = e, .begin = now()};
    const char *tmp = getenv("TMPDIR");
    if (!key) return rt_fail(e, BRAID_USAGE, "candidates for another processor cannot be measured here");
    t.seconds = o->tune_seconds ? o->tune_seconds : DEFAULT_SECONDS;
    t.progress = isatty(STDERR_FILENO);
    char *prefix = rt_text("%s/braid-tune", tmp && *tmp ? tmp : "/tmp");
    braid_status st = prefix ? rt_temp_folder(prefix, &t.folder, e) : rt_fail(e, BRAID_MEMORY, "out of memory");
    if (!st) st = tune(&t, s, key);
    if (t.progress) fputc('\n', stderr);
    if (t.folder) rt_remove_folder(t.folder);
    free(prefix);
    free(t.folder);
    free(t.known);
    free(t.decision);
    return st;
}
