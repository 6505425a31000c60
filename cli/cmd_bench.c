/* cmd_bench.c: braid bench: times a model. */
#include <stdlib.h>
#include <time.h>

#include "api/runtime.h"
#include "cli/cli.h"

#define WARM_RUNS 3
#define MIN_RUNS 20
#define MAX_RUNS 100000
#define SECONDS 1.0
#define SPACED_RUNS 200 /* with --every */
#define SPACED_SECONDS 5.0
#define NUMBERING_RUNS 50
#define NUMBERING_SECONDS 0.3

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Times a run. False: it failed. */
static bool time_run(braid_session *s, int nout, braid_value *const *in, braid_value **out,
                     double *us, braid_error *e) {
    const double t = cli_now();
    const bool good = braid_session_run(s, (const braid_value *const *)in, out, e) == BRAID_OK;
    *us = (cli_now() - t) * 1e6;
    for (int k = 0; good && k < nout; k++) braid_value_free(out[k]);
    return good;
}

/* What was measured, in us: of the first run of the session, and of n others. */
typedef struct Times {
    double first;
    double *us; /* MAX_RUNS of them; sorted in the end */
    int n;
    int64_t synchronizations; /* of a run by all threads; -1: not known */
} Times;

/* Waits until the clock shows `until`. As a stream does, the thread sleeps. */
static void sleep_until(double until) {
    for (double left; (left = until - cli_now()) > 0;)
        nanosleep(&(struct timespec){.tv_sec = (time_t)left,
                                     .tv_nsec = (long)((left - (double)(time_t)left) * 1e9)},
                  NULL);
}

/* Times runs for about a second, or (every_ms > 0) for some seconds one that begins every so many
 * milliseconds. False: a run failed. */
static bool measure(braid_session *s, int nout, braid_value *const *in, double every_ms, Times *to,
                    braid_error *e) {
    const double seconds = every_ms > 0 ? SPACED_SECONDS : SECONDS;
    const int most = every_ms > 0 ? SPACED_RUNS : MAX_RUNS;
    braid_value **out = calloc((size_t)nout + 1, sizeof *out);
    if (!out) die("out of memory");
    bool good = time_run(s, nout, in, out, &to->first, e);
    to->synchronizations = braid_session_stat(s, BRAID_SYNCHRONIZATIONS);
    double begin = 0;
    for (int i = 1 - WARM_RUNS; good && to->n < most; i++) {
        const double t = cli_now();
        if (i <= 0) begin = t;
        if (i >= MIN_RUNS && t - begin > seconds) break;
        double took;
        good = time_run(s, nout, in, out, &took, e);
        if (i >= 0 && good) to->us[to->n++] = took;
        if (every_ms > 0) sleep_until(t + every_ms / 1e3);
    }
    free(out);
    qsort(to->us, (size_t)to->n, sizeof *to->us, by_size);
    return good;
}

/* The least time that so many hundredths of the runs do not exceed. */
static double percentile(const Times *t, int hundredths) {
    return t->us[(int)((int64_t)(t->n - 1) * hundredths / 100)];
}

/* What numbering the activations of recursions takes when their structure is new: in the runs of
 * measure() it is the same, and nobody numbers it again. */
typedef struct Numbering {
    int64_t nodes, heights; /* nodes 0: there are none */
    double ns, part;        /* of a linearizer; of such a run's time */
} Numbering;

static bool measure_numbering(braid_session *s, int nout, braid_value *const *in, Numbering *to,
                              braid_error *e) {
    double ns[NUMBERING_RUNS], us[NUMBERING_RUNS];
    braid_value **out = calloc((size_t)nout + 1, sizeof *out);
    if (!out) die("out of memory");
    const double begin = cli_now();
    bool good = true;
    int n = 0;
    *to = (Numbering){0};
    while (good && n < NUMBERING_RUNS && (n < 5 || cli_now() - begin < NUMBERING_SECONDS)) {
        if (!rt_renumber(s)) break;
        good = time_run(s, nout, in, out, &us[n], e);
        ns[n++] = (double)rt_stat(s, BRAID_STAT_NUMBERING_NS);
    }
    free(out);
    if (!good || !n) return good;
    qsort(ns, (size_t)n, sizeof *ns, by_size);
    qsort(us, (size_t)n, sizeof *us, by_size);
    to->nodes = rt_stat(s, BRAID_STAT_NODES);
    to->heights = rt_stat(s, BRAID_STAT_HEIGHTS);
    to->ns = ns[n / 2];
    to->part = ns[n / 2] / 1e3 / us[n / 2];
    return true;
}

static void print_json(const Cli *c, const struct braid_model *m, braid_session *s,
                       braid_value *const *in, const Times *times, const Numbering *numbering) {
    Sb t = {0};
    sb_puts(&t, "{\"model\": ");
    sb_json(&t, c->arg[0]);
    sb_puts(&t, ", \"target\": ");
    sb_json(&t, braid_model_target(m));
    sb_printf(&t,
              ", \"threads\": %lld, \"runs\": %d, \"min_us\": %.3f, \"median_us\": %.3f, "
              "\"p95_us\": %.3f, \"max_us\": %.3f, \"first_us\": %.3f",
              (long long)braid_session_stat(s, BRAID_THREADS), times->n, times->us[0],
              times->us[times->n / 2], percentile(times, 95), times->us[times->n - 1],
              times->first);
    if (c->every_ms > 0) sb_printf(&t, ", \"every_ms\": %g", c->every_ms);
    int64_t sync = times->synchronizations;
    int64_t bytes = braid_session_stat(s, BRAID_WORKING_BYTES);
    if (sync >= 0) sb_printf(&t, ", \"synchronizations\": %lld", (long long)sync);
    if (bytes >= 0) sb_printf(&t, ", \"bytes\": %lld", (long long)bytes);
    if (numbering->nodes)
        sb_printf(&t,
                  ", \"linearizer\": {\"nodes\": %lld, \"heights\": %lld, \"ns\": %.0f, "
                  "\"ns_per_node\": %.2f, \"part_of_run\": %.5f}",
                  (long long)numbering->nodes, (long long)numbering->heights, numbering->ns,
                  numbering->ns / (double)numbering->nodes, numbering->part);
    sb_puts(&t, ", \"inputs\": {");
    for (int i = 0, some = 0; i < braid_model_input_count(m); i++) {
        if (!in[i]) continue;
        Sb type = {0};
        cli_print_value_type(&type, in[i]);
        sb_puts(&t, some++ ? ", " : "");
        sb_json(&t, braid_model_input(m, i)->name);
        sb_puts(&t, ": ");
        sb_json(&t, type.p);
        sb_free(&type);
    }
    sb_puts(&t, "}}");
    puts(t.p);
    sb_free(&t);
}

int cmd_bench(const Cli *c) {
    struct braid_model *m;
    braid_session *s;
    braid_error e;
    int code = cli_load(c, &m, &s);
    if (code) return code;
    int nin = braid_model_input_count(m), nout = braid_model_output_count(m);
    braid_value **in = calloc((size_t)nin + 1, sizeof *in);
    Times times = {.us = calloc(MAX_RUNS, sizeof *times.us)};
    if (!in || !times.us) die("out of memory");
    code = cli_inputs(c, m, true, in);
    Numbering numbering;
    if (!code && (!measure(s, nout, in, c->every_ms, &times, &e) ||
                  !measure_numbering(s, nout, in, &numbering, &e)))
        code = cli_error(c->arg[0], &e);
    if (!code) {
        if (c->json)
            print_json(c, m, s, in, &times, &numbering);
        else {
            printf("%s: %s, threads %lld\n", c->arg[0], braid_model_target(m),
                   (long long)braid_session_stat(s, BRAID_THREADS));
            Sb text = {0};
            cli_print_inputs(&text, c, m, in);
            if (text.n) fputs(text.p, stdout);
            sb_free(&text);
            const int n = times.n;
            printf("min %.2f us, median %.2f us, max %.2f us, %d runs\n", times.us[0],
                   times.us[n / 2], times.us[n - 1], n);
            if (c->every_ms > 0)
                printf("95 %% within %.2f us, one run every %g ms\n", percentile(&times, 95),
                       c->every_ms);
            printf("the first run %.2f us\n", times.first);
            int64_t sync = times.synchronizations;
            int64_t bytes = braid_session_stat(s, BRAID_WORKING_BYTES);
            if (sync >= 0)
                printf("%lld synchronizations per run, %lld bytes of working memory\n",
                       (long long)sync, (long long)bytes);
            if (numbering.nodes)
                printf("linearizer: %lld nodes of %lld heights in %.2f us, %.1f ns a node, %.1f %% "
                       "of a run; none while the structure stays the same\n",
                       (long long)numbering.nodes, (long long)numbering.heights, numbering.ns / 1e3,
                       numbering.ns / (double)numbering.nodes, numbering.part * 100);
        }
    }
    for (int i = 0; i < nin; i++) braid_value_free(in[i]);
    free(in);
    free(times.us);
    braid_session_free(s);
    braid_model_free(m);
    return code;
}
