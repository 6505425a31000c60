/* cmd_profile.c: braid profile: runs a model that measures itself, and shows where its time goes.
 */
#include <errno.h>
#include <stdlib.h>

#include "api/runtime.h"
#include "cli/profile.h"

/* How long to measure when the number of runs is not given. */
#define SECONDS 0.5
#define MIN_RUNS 3
#define MAX_RUNS 10000

int profile_run(const Cli *c, braid_session *s, int nout, const braid_value *const *in, int n) {
    braid_error e;
    braid_value **out = calloc((size_t)nout + 1, sizeof *out);
    if (!out) die("out of memory");
    int code = EXIT_DONE;
    const double begin = cli_now();
    for (int i = 0; i < (n ? n : MAX_RUNS) && !code; i++) {
        if (!n && i >= MIN_RUNS && cli_now() - begin > SECONDS) break;
        if (braid_session_run(s, in, out, &e)) code = cli_error(c->arg[0], &e);
        for (int k = 0; k < nout && !code; k++) braid_value_free(out[k]);
    }
    free(out);
    return code;
}

/* The profile of some runs, after one that warms up and that nobody counts. *json: free it with
 * braid_text_free. */
static int measure(const Cli *c, braid_session *s, int nout, const braid_value *const *in,
                   char **json) {
    braid_error e;
    int code = profile_run(c, s, nout, in, 1);
    if (!code && braid_session_profile(s, json, &e)) code = cli_error(c->arg[0], &e);
    if (code) return code;
    braid_text_free(*json);
    *json = NULL;
    code = profile_run(c, s, nout, in, c->runs);
    if (!code && braid_session_profile(s, json, &e)) code = cli_error(c->arg[0], &e);
    return code;
}

static int write_file(const char *path, const char *text) {
    FILE *f = fopen(path, "we");
    bool good = f && fputs(text, f) >= 0;
    if (f && fclose(f) != 0) good = false;
    return good ? EXIT_DONE : cli_fail(path, "%s", strerror(errno));
}

/* A library doesn't say how to compile it without the clocks that its profile needs. */
static bool is_emulated(const Cli *c) {
    return c->target && strncmp(c->target, "emulate:", 8) == 0 && !rt_is_library(c->arg[0]);
}

/* Writes what c asks for. */
static int show(const Cli *c, const struct braid_model *m, const braid_value *const *in,
                const char *text) {
    json_t *profile = json_loads(text, 0, NULL), *counted = NULL;
    if (!profile) die("the profile is not JSON");
    Sb table = {0}, trace = {0};
    char *whole = NULL;
    int code = EXIT_DONE;
    const bool only_json = c->json_file && strcmp(c->json_file, "-") == 0;
    if (is_emulated(c)) {
        counted = counted_path(c, in);
        if (!counted) code = EXIT_FAULT;
        json_object_set_new(profile, "counted", counted);
        whole = json_dumps(profile, JSON_REAL_PRECISION(12));
        if (!whole) die("out of memory");
        text = whole;
    }
    if (!code && c->json_file && !only_json) code = write_file(c->json_file, text);
    if (!code && c->trace) {
        profile_trace(&trace, c->arg[0], profile);
        code = write_file(c->trace, trace.p);
    }
    if (!code && !only_json) {
        cli_print_inputs(&table, c, m, (braid_value *const *)(uintptr_t)in);
        profile_print(&table, c->arg[0], profile);
        if (counted) counted_print(&table, counted);
        if (c->shapes) code = profile_shapes(&table, c, in);
    }
    cli_watch_clear();
    if (!code) fputs(only_json ? text : table.p, stdout);
    free(whole);
    sb_free(&table);
    sb_free(&trace);
    json_decref(profile);
    return code;
}

int cmd_profile(const Cli *given) {
    struct braid_model *m;
    braid_session *s;
    Cli own = *given;
    const Cli *c = &own;
    own.measured = !rt_is_library(c->arg[0]); /* it is settled in a library */
    if (c->shapes && c->json_file && strcmp(c->json_file, "-") == 0)
        return cli_usage("--shapes prints a table, and --json - nothing but JSON");
    if (c->shapes && rt_is_library(c->arg[0]))
        return cli_fail(c->arg[0], "it is a compiled library; --shapes needs the model");
    int code = cli_load(c, &m, &s);
    if (code) return code;
    char *json = NULL;
    int nin = braid_model_input_count(m);
    braid_value **in = calloc((size_t)nin + 1, sizeof *in);
    if (!in) die("out of memory");
    const braid_value *const *const given_in = (const braid_value *const *)in;
    code = cli_inputs(c, m, true, in);
    if (!code) code = measure(c, s, braid_model_output_count(m), given_in, &json);
    if (!code) code = show(c, m, given_in, json);
    braid_text_free(json);
    for (int i = 0; i < nin; i++) braid_value_free(in[i]);
    free(in);
    braid_session_free(s);
    braid_model_free(m);
    return code;
}
