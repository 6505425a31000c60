/* cmd_compile.c: braid compile: makes a library from a model. */
#include <stdlib.h>
#include <unistd.h>

#include "cli/rounding.h"

#define TUNING_BYTES 120

/* Reads the inputs for --tune. Their types are declared in the model, so it is loaded here. */
static int tune_inputs(const Cli *c, const char *model, braid_options *o, braid_value ***value) {
    struct braid_model *m;
    braid_error e;
    braid_options plain = {.struct_size = sizeof plain,
                           .target = "interp",
                           .fold = o->fold,
                           .shape_count = o->shape_count,
                           .shape = o->shape,
                           .ignore_dim_names = o->ignore_dim_names};
    if (!c->tune) return cli_usage("-i needs --tune: its inputs are for measuring");
    if (braid_load(model, &plain, &m, &e)) return cli_error(model, &e);
    int n = braid_model_input_count(m);
    braid_value **all = calloc((size_t)n + 1, sizeof *all);
    *value = calloc((size_t)c->ninput + 1, sizeof **value);
    if (!all || !*value) die("out of memory");
    int code = cli_given_inputs(c, m, all);
    for (int i = 0; i < c->ninput && !code; i++) { /* in the order of the -i options */
        int k = braid_model_find_input(m, c->input_name[i]);
        (*value)[i] = all[k];
        all[k] = NULL;
    }
    for (int i = 0; i < n; i++) braid_value_free(all[i]);
    free(all);
    braid_model_free(m);
    o->tune_input_count = code ? 0 : c->ninput;
    o->tune_input_name = c->input_name;
    o->tune_input = (const braid_value *const *)*value;
    return code;
}

/* Keeps what tuning said last, to be printed at the end. */
static bool note_tuning(void *last, const char *step, double seconds) {
    if (strncmp(step, "tuning", 6) == 0) snprintf(last, TUNING_BYTES, "%s", step);
    return cli_watch_step(NULL, step, seconds);
}

int cmd_compile(const Cli *c) {
    braid_error e;
    braid_fold fold;
    braid_options o = cli_options(c, &fold);
    braid_value **value = NULL;
    char tuning[TUNING_BYTES] = "";
    const char *model = c->arg[0], *slash = strrchr(model, '/');
    const char *stem = slash ? slash + 1 : model, *dot = strrchr(stem, '.');
    Sb so = {0};
    if (c->emit_folder && (c->output || c->emit))
        return cli_usage("--emit-c writes no library and no other text: without -o and --emit");
    if (c->output)
        sb_puts(&so, c->output);
    else {
        sb_write(&so, stem, dot ? (size_t)(dot - stem) : strlen(stem));
        sb_puts(&so, ".so");
    }
    if (c->tune && isatty(STDERR_FILENO)) {
        o.progress = note_tuning;
        o.progress_user = tuning;
    }
    int code = c->dump_after || c->time_passes ? cli_passes(c) : EXIT_DONE;
    if (!code && c->ninput) code = tune_inputs(c, model, &o, &value);
    /* Where the library runs here, its results are compared. */
    const bool compared =
        c->weights && !c->cpu && !c->emit_folder && (!c->target || strcmp(c->target, "cpu") == 0);
    Rounding rounding = {0};
    if (!code && compared) code = rounding_begin(c, &rounding);
    if (!code && braid_compile(model, &o, c->emit_folder ? NULL : so.p, &e))
        code = cli_error(model, &e);
    cli_watch_clear();
    if (!code && compared) code = rounding_end(c, so.p, &rounding);
    rounding_free(&rounding);
    if (*tuning) fprintf(stderr, "%s\n", tuning);
    for (int i = 0; i < o.tune_input_count; i++) braid_value_free(value[i]);
    free(value);
    sb_free(&so);
    return code;
}
