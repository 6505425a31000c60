/* counted.c: the critical path of a run on an emulated GPU, as its emulator counts it. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "api/runtime.h"
#include "cli/profile.h"

#define VARIABLE "BRAID_EMULATE_COUNT"
/* What one thread may do while the others of its block wait. */
#define ALONE_LOADS 64
#define ALONE_ITERATIONS 128

/* A launch for each line of the file. */
static json_t *read_launches(FILE *f) {
    json_t *all = json_array();
    json_error_t where;
    json_t *launch;
    while ((launch = json_loadf(f, JSON_DISABLE_EOF_CHECK, &where)))
        json_array_append_new(all, launch);
    return all;
}

json_t *counted_path(const Cli *given, const braid_value *const *in) {
    struct braid_model *m;
    braid_session *s;
    Cli own = *given;
    char name[] = "/tmp/braid-count-XXXXXX";
    const int fd = mkstemp(name);
    if (fd < 0) {
        cli_fail(name, "%s", strerror(errno));
        return NULL;
    }
    own.measured = false; /* its clocks would be counted, too */
    json_t *all = NULL;
    FILE *f = fdopen(fd, "r");
    if (f && cli_load(&own, &m, &s) == EXIT_DONE) {
        setenv(VARIABLE, name, 1);
        if (profile_run(&own, s, braid_model_output_count(m), in, 1) == EXIT_DONE)
            all = read_launches(f);
        unsetenv(VARIABLE);
        braid_session_free(s);
        braid_model_free(m);
    }
    if (f) fclose(f);
    unlink(name);
    return all;
}

static double number(const json_t *o, const char *key) {
    return json_number_value(json_object_get(o, key));
}

/* "device memory 446, block barriers 36", each divided by `times`. */
static void put_kinds(Sb *s, const json_t *by, double times) {
    const char *kind, *between = "";
    json_t *ns;
    json_object_foreach((json_t *)(uintptr_t)by, kind, ns) {
        if (json_number_value(ns) < 0.5 * times) continue;
        sb_printf(s, "%s%s %.0f", between, kind, json_number_value(ns) / times);
        between = ", ";
    }
    sb_puts(s, "\n");
}

static void print_launch(Sb *s, const json_t *launch) {
    const double ns = number(launch, "ns");
    size_t i;
    json_t *f;
    sb_printf(s, "counted path: %.1f us on %.0f blocks of %.0f threads: ", ns / 1e3,
              number(launch, "blocks"), number(launch, "threads"));
    put_kinds(s, json_object_get(launch, "by"), 1);
    sb_printf(s, "%10s %6s %8s %9s %9s %6s  %s\n", "us", "share", "times", "ns each", "estimate",
              "busy", "function, ns each by what it waits for");
    json_array_foreach(json_object_get(launch, "functions"), i, f) {
        const double all = number(f, "ns"), times = fmax(number(f, "times"), 1);
        sb_printf(s, "%10.2f %5.1f%% %8.0f %9.0f ", all / 1e3, 100 * all / ns, times, all / times);
        if (json_object_get(f, "estimate"))
            sb_printf(s, "%9.0f ", number(f, "estimate"));
        else
            sb_printf(s, "%9s ", "");
        sb_printf(s, "%5.0f%%  %s: ", 100 * number(f, "busy"),
                  json_string_value(json_object_get(f, "name")));
        put_kinds(s, json_object_get(f, "by"), times);
    }
    json_array_foreach(json_object_get(launch, "alone"), i, f) {
        const double loads = number(f, "loads"), iterations = number(f, "iterations");
        if (loads <= ALONE_LOADS && iterations <= ALONE_ITERATIONS) continue;
        sb_printf(s,
                  "alone: in %s %.0f threads make %.0f dependent loads, %.0f iterations while "
                  "the others of the block wait\n",
                  json_string_value(json_object_get(f, "name")), number(f, "threads"), loads,
                  iterations);
    }
}

void counted_print(Sb *s, const json_t *launches) {
    size_t i;
    json_t *launch;
    sb_puts(s, "\ncounted by published latencies, not measured (codegen/emulate/count.cc):\n");
    json_array_foreach((json_t *)(uintptr_t)launches, i, launch) print_launch(s, launch);
}
