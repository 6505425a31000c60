/* common.c: messages, loading, inputs and texts that the commands share. */
#include <time.h>
#include <stdlib.h>

#include "cli/cli.h"
#include "api/runtime.h"

/* Prints one line, whatever names and messages contain. */
static void say(const char *path, const char *fmt, va_list ap) {
    char text[2048];
    int n = path ? snprintf(text, sizeof text, "%s: ", path) : 0;
    if (n < 0 || n >= (int)sizeof text) n = 0;
    vsnprintf(text + n, sizeof text - (size_t)n, fmt, ap);
    for (char *p = text; *p; p++)
        if ((unsigned char)*p < ' ') *p = ' ';
    fflush(stdout);
    cli_watch_clear();
    fprintf(stderr, "braid: %s\n", text);
}

int cli_fail(const char *path, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    say(path, fmt, ap);
    va_end(ap);
    return EXIT_FAULT;
}

int cli_usage(const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    say(NULL, fmt, ap);
    va_end(ap);
    fprintf(stderr, "try: braid --help\n");
    return EXIT_USAGE;
}

int cli_error(const char *path, const braid_error *e) {
    if (e->status == BRAID_USAGE) return cli_usage("%s", e->message);
    /* If the message begins with the file's name, do not print the name twice. */
    size_t n = strlen(path);
    bool named = strncmp(e->message, path, n) == 0 && strncmp(e->message + n, ": ", 2) == 0;
    return cli_fail(path, "%s", e->message + (named ? n + 2 : 0));
}

double cli_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

braid_options cli_options(const Cli *c, braid_fold *fold) {
    *fold = (braid_fold){.scan_count = c->nscan,
                         .scan_input = c->scan_input,
                         .scan_axis = c->scan_axis,
                         .carry_count = c->ncarry,
                         .carry_input = c->carry_input,
                         .carry_output = c->carry_output};
    return (braid_options){.struct_size = sizeof(braid_options),
                           .target = c->target,
                           .cpu = c->cpu,
                           .fold = c->nscan || c->ncarry ? fold : NULL,
                           .emit_path = c->emit,
                           .emit_folder = c->emit_folder,
                           .tune = c->tune,
                           .schedule = c->schedule,
                           .weights = c->weights,
                           .threads = c->threads,
                           .shape_count = c->nshape,
                           .shape = c->shape,
                           .ignore_dim_names = c->ignore_dim_names,
                           .progress = cli_watch_step,
                           .torch_name = c->torch_name,
                           .profile = c->measured};
}

int cli_load(const Cli *c, struct braid_model **m, braid_session **s) {
    braid_error e;
    if (c->ncarry && !c->nscan)
        return cli_usage("%s --carry needs --scan: one run is one step, and its state ends with it",
                         c->command);
    braid_fold fold;
    braid_options o = cli_options(c, &fold);
    braid_session_options so = {.struct_size = sizeof so,
                                .threads = c->threads,
                                .max_iterations = c->max_iterations,
                                .stack_depth = c->stack_depth,
                                .max_memory = c->max_memory};
    if (braid_load(c->arg[0], &o, m, &e)) return cli_error(c->arg[0], &e);
    cli_watch_clear();
    if (!braid_session_new(*m, &so, s, &e)) {
        if (!c->seeded || !braid_session_set_seed(*s, (uint64_t)c->seed, &e)) return EXIT_DONE;
        braid_session_free(*s);
    }
    braid_model_free(*m);
    return cli_error(c->arg[0], &e);
}

/* ---- inputs ---- */
int cli_given_inputs(const Cli *c, const struct braid_model *m, braid_value **value) {
    braid_error e;
    for (int i = 0; i < c->ninput; i++) {
        int k = braid_model_find_input(m, c->input_name[i]);
        if (k < 0) {
            Sb names = {0};
            for (int j = 0; j < braid_model_input_count(m); j++)
                sb_printf(&names, "%s'%s'", j ? ", " : "", braid_model_input(m, j)->name);
            int code = cli_fail(c->arg[0], "the model has no input '%s'; its inputs are: %s",
                                c->input_name[i], names.n ? names.p : "none");
            sb_free(&names);
            return code;
        }
        if (value[k]) return cli_usage("input '%s' is given twice", c->input_name[i]);
        if (braid_value_read(c->input_file[i], braid_model_input(m, k), &value[k], &e))
            return cli_error(c->input_file[i], &e);
    }
    return EXIT_DONE;
}

int cli_inputs(const Cli *c, const struct braid_model *m, bool fill, braid_value **value) {
    int code = cli_given_inputs(c, m, value), n = braid_model_input_count(m);
    if (!code && fill) code = cli_random_inputs(c, m, value);
    for (int i = 0; !code && i < n; i++) {
        const braid_io *io = braid_model_input(m, i);
        if (!value[i] && io->kind != BRAID_OPTIONAL)
            code = cli_fail(c->arg[0], "input '%s' is missing (-i %s=FILE)", io->name, io->name);
    }
    for (int i = 0; code && i < n; i++) {
        braid_value_free(value[i]);
        value[i] = NULL;
    }
    return code;
}

/* ---- texts ---- */
static void print_dims(Sb *s, int rank, const int64_t *dim, const char *const *name) {
    sb_puts(s, "[");
    for (int i = 0; i < rank; i++) {
        if (i) sb_puts(s, ",");
        if (dim[i] >= 0)
            sb_printf(s, "%lld", (long long)dim[i]);
        else
            sb_puts(s, name && name[i] ? name[i] : "?");
    }
    sb_puts(s, "]");
}

void cli_print_type(Sb *s, const braid_io *io) {
    if (io->kind == BRAID_OPTIONAL) sb_puts(s, "optional ");
    if (io->element == BRAID_SEQUENCE) sb_puts(s, "sequence of ");
    sb_puts(s, io->dtype ? braid_dtype_name(io->dtype) : "any type");
    if (io->element == BRAID_TENSOR && io->rank >= 0)
        print_dims(s, io->rank, io->dim, io->dim_name);
}

void cli_print_value_type(Sb *s, const braid_value *v) {
    const char *dtype = braid_dtype_name(braid_value_dtype(v));
    const braid_value *item = braid_value_item(v, 0);
    switch (braid_value_kind(v)) {
    case BRAID_TENSOR:
        sb_puts(s, dtype);
        print_dims(s, braid_value_rank(v), braid_value_dim(v), NULL);
        break;
    case BRAID_SEQUENCE:
        sb_printf(s, "sequence of %lld %s", (long long)braid_value_count(v), dtype);
        break;
    case BRAID_OPTIONAL:
        sb_puts(s, item ? "optional " : "optional, empty");
        if (item) cli_print_value_type(s, item);
        break;
    }
}
