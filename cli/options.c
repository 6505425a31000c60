/* options.c: parses the command line by one table of options, and prints help from it. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "cli/cli.h"

enum {
    COMPILE = 1,
    RUN = 2,
    TEST = 4,
    BENCH = 8,
    EXPLAIN = 16,
    OPS = 32,
    DEVICE = 64,
    PROFILE = 128,
    HELP = 256,
    VERSION = 512,
    ALL = 1023,
    TIMED = BENCH | PROFILE,
    MODEL = COMPILE | RUN | TEST | TIMED | EXPLAIN
};

typedef enum Action {
    SET_TARGET,
    SET_CPU,
    SET_OUTPUT,
    SET_EMIT,
    SET_EMIT_C,
    SET_WEIGHTS,
    SET_TUNE,
    SET_SCHEDULE,
    SET_COSTS,
    SET_IMPORT,
    SET_DUMP_AFTER,
    SET_TIME_PASSES,
    SET_HTML,
    SET_UNITS,
    SET_PROFILE,
    SET_JSON,
    SET_JSON_FILE,
    SET_TRACE,
    SET_SHAPES,
    SET_RUNS,
    SET_MEASURED,
    SET_VERBOSE,
    SET_HELP,
    SET_VERSION,
    SET_THREADS,
    SET_JOBS,
    SET_MAX_ITERATIONS,
    SET_STACK_DEPTH,
    SET_SEED,
    SET_MAX_MEMORY,
    SET_EVERY,
    SET_RTOL,
    SET_ATOL,
    ADD_INPUT,
    ADD_SIZE,
    ADD_SCAN,
    ADD_CARRY,
    ADD_SHAPE,
    SET_IGNORE_DIM_NAMES,
    SET_TORCH
} Action;

static const struct Option {
    const char *name, *value; /* value NULL: the option takes none */
    int commands;
    Action action;
    const char *doc;
} options[] = {
    {"-o", "FILE", COMPILE, SET_OUTPUT, "the library to write (MODEL.so in the current folder)"},
    {"-o", "DIR", RUN, SET_OUTPUT,
     "write the outputs to DIR/output_N.npy (.pb: sequences, optionals); DIR is made if it is "
     "missing"},
    {"-i", "NAME=FILE", RUN | TIMED, ADD_INPUT,
     "an input from a .npy or .pb file; can be repeated"},
    {"-i", "NAME=FILE", COMPILE, ADD_INPUT, "an input to measure with (--tune)"},
    {"--size", "NAME=N", COMPILE, ADD_SIZE,
     "with --weights, a size of the random inputs that results are compared for"},
    {"--size", "NAME=N", RUN | TIMED, ADD_SIZE,
     "a size of random inputs (INPUT:AXIS=N if it has no name); can be repeated"},
    {"--target", "T", MODEL, SET_TARGET,
     "cpu (default), interp, plain, cuda:sm_90, hip:gfx90a, emulate:cuda, ..."},
    {"--cpu", "NAME", MODEL, SET_CPU,
     "instruction set, as -march names it: x86-64-v3, armv8-a, ... (this machine's)"},
    {"--torch", "NAMESPACE::NAME", COMPILE, SET_TORCH,
     "the library also is this operator of PyTorch, for programs that load it there"},
    {"--emit", "FILE", COMPILE, SET_EMIT, "also write the generated source"},
    {"--emit-c", "FOLDER", COMPILE, SET_EMIT_C,
     "write the library as C files with a Makefile, for another machine (--cpu); no compiler runs"},
    {"--weights", "f16|bf16|int8", MODEL, SET_WEIGHTS,
     "store float32 weights so where that is faster; compile prints how far results differ"},
    {"--tune", NULL, COMPILE, SET_TUNE,
     "measure alternatives while compiling, for at most a minute"},
    {"--schedule", "NAME=on|off|VALUE,...", MODEL, SET_SCHEDULE,
     "force transformations and parameters, for diagnosis (explain shows their names)"},
    {"--costs", "published|FILE", EXPLAIN, SET_COSTS,
     "schedule by the published costs, or by those in FILE (the measured costs)"},
    {"--import", "FILE", DEVICE, SET_IMPORT, "use the measured costs in FILE (JSON) from now on"},
    {"--dump-after", "PASS", COMPILE | EXPLAIN, SET_DUMP_AFTER,
     "print the tree after this pass (explain: print nothing else)"},
    {"--html", "FILE", EXPLAIN, SET_HTML,
     "write a page that shows all of it in a browser, instead of printing it"},
    {"--units", "N,...", EXPLAIN, SET_UNITS,
     "estimate how it shares its work on so many cores, instead of printing it"},
    {"--profile", "FILE", EXPLAIN, SET_PROFILE,
     "with --html: also show the times that braid profile --json measured"},
    {"--time-passes", NULL, COMPILE | EXPLAIN, SET_TIME_PASSES,
     "print to stderr how long each pass takes"},
    {"--scan", "INPUT[:AXIS]", COMPILE | RUN | TIMED | EXPLAIN, ADD_SCAN,
     "run the model in a loop over this axis (0) of INPUT"},
    {"--carry", "INPUT=OUTPUT", COMPILE | RUN | TIMED | EXPLAIN, ADD_CARRY,
     "state: OUTPUT of one iteration (without --scan: of one run) is INPUT of the next"},
    {"--input-shape", "NAME=1,3,?", COMPILE | RUN | TIMED | EXPLAIN, ADD_SHAPE,
     "the shape of an input that the file does not declare; [] is a scalar, ? any size"},
    {"--ignore-dim-names", NULL, MODEL, SET_IGNORE_DIM_NAMES,
     "dimensions with one name may have different sizes"},
    {"--threads", "N", MODEL, SET_THREADS, "number of threads to schedule for and to run with"},
    {"--max-iterations", "N", RUN | TEST | TIMED, SET_MAX_ITERATIONS,
     "stop a loop that needs more (2147483648)"},
    {"--stack-depth", "N", RUN | TEST | TIMED, SET_STACK_DEPTH,
     "stop a recursion that goes deeper (10000)"},
    {"--seed", "N", RUN | TEST | TIMED, SET_SEED,
     "seed of the random numbers (a new one for each run)"},
    {"--max-memory", "BYTES", RUN | TEST | TIMED, SET_MAX_MEMORY,
     "stop a run that needs more; K, M, G, T stand for powers of 1024 (a quarter of the free "
     "memory)"},
    {"--rtol", "R", TEST, SET_RTOL, "relative tolerance (1e-3)"},
    {"--atol", "A", TEST, SET_ATOL, "absolute tolerance (1e-5)"},
    {"--jobs", "N", TEST, SET_JOBS, "number of tests to run at a time (one for each CPU)"},
    {"--verbose", NULL, TEST, SET_VERBOSE, "also print a line for each skipped test"},
    {"--every", "MS", BENCH, SET_EVERY,
     "begin a run every MS milliseconds, and sleep in between, as a stream does"},
    {"--json", NULL, BENCH | EXPLAIN | DEVICE, SET_JSON, "print JSON"},
    {"--json", "FILE|-", PROFILE, SET_JSON_FILE, "write the profile as JSON (-: to stdout)"},
    {"--trace", "FILE", PROFILE, SET_TRACE,
     "write the last run's timeline as a trace (JSON) that ui.perfetto.dev opens"},
    {"--shapes", NULL, PROFILE, SET_SHAPES,
     "also print the shapes that values took; one more run, by the interpreter, finds them"},
    {"--runs", "N", PROFILE, SET_RUNS,
     "number of runs to measure, after one that is not (for half a second)"},
    {"--profile", NULL, COMPILE, SET_MEASURED,
     "make a library that measures itself, for braid profile"},
    {"--help", NULL, ALL, SET_HELP, "print this text (also -h)"},
    {"--version", NULL, ALL, SET_VERSION, "print the version"},
};

static int command_bit(const Command *c) { return 1 << (c - cli_commands); }

void cli_print_help(const Command *command) {
    if (!command) {
        printf("braid compiles ONNX models to persistent kernels.\n\n"
               "usage: braid COMMAND ... (braid COMMAND --help has the options)\n\n");
        for (int i = 0; i < cli_ncommand; i++)
            printf("  %-8s %-19s %s\n", cli_commands[i].name, cli_commands[i].operands,
                   cli_commands[i].doc);
        printf(
            "\nexit codes: 0 done, 1 the model, an input or a test is at fault, 2 wrong usage\n");
        return;
    }
    printf("usage: braid %s [options] %s\n%s\n\n", command->name, command->operands, command->doc);
    for (size_t i = 0; i < COUNT(options); i++) {
        if (!(options[i].commands & command_bit(command))) continue;
        char left[64];
        snprintf(left, sizeof left, "%s %s", options[i].name,
                 options[i].value ? options[i].value : "");
        printf("  %-24s %s\n", left, options[i].doc);
    }
}

static bool parse_int(const char *s, int64_t lo, int64_t hi, int64_t *v) {
    char *end;
    errno = 0;
    long long n = strtoll(s, &end, 10);
    if (*end || end == s || errno || n < lo || n > hi) return false;
    *v = n;
    return true;
}
/* A number of bytes, or of KiB, MiB, … with a letter K, M, … after it. */
static bool parse_bytes(const char *s, int64_t *v) {
    static const char unit[] = "KkMmGgTt";
    char digits[24];
    const size_t n = strlen(s);
    if (n == 0 || n >= sizeof digits) return false;
    const char *u = strchr(unit, s[n - 1]);
    const int shift = u ? 10 + 10 * (int)((u - unit) / 2) : 0;
    snprintf(digits, sizeof digits, "%.*s", (int)(n - (u != NULL)), s);
    if (!parse_int(digits, 1, INT64_MAX >> shift, v)) return false;
    *v <<= shift;
    return true;
}
static bool parse_real(const char *s, double *v) {
    char *end;
    *v = strtod(s, &end);
    return end != s && !*end && isfinite(*v) && *v >= 0;
}

static char *copy_text(const char *s, size_t n) {
    char *p = malloc(n + 1);
    if (!p) die("out of memory");
    memcpy(p, s, n);
    p[n] = 0;
    return p;
}
static void *grow(void *p, int n, size_t size) {
    p = realloc(p, ((size_t)n + 1) * size);
    if (!p) die("out of memory");
    return p;
}
static void push(const char ***list, int n, const char *s) {
    *list = grow((void *)*list, n, sizeof **list);
    (*list)[n] = s;
}

/* Adds NAME=VALUE to two lists. */
static bool push_pair(const char ***a, const char ***b, int *n, const char *s) {
    const char *eq = strchr(s, '=');
    if (!eq || eq == s || !eq[1]) return false;
    push(a, *n, copy_text(s, (size_t)(eq - s)));
    push(b, (*n)++, copy_text(eq + 1, strlen(eq + 1)));
    return true;
}

/* NAME=N; the name may contain '='. */
static bool push_size(Cli *c, const char *s) {
    const char *eq = strrchr(s, '=');
    int64_t n;
    if (!eq || eq == s || !parse_int(eq + 1, 0, (int64_t)1 << 40, &n)) return false;
    c->size_value = grow(c->size_value, c->nsize, sizeof *c->size_value);
    c->size_value[c->nsize] = n;
    push(&c->size_name, c->nsize++, copy_text(s, (size_t)(eq - s)));
    return true;
}

/* INPUT[:AXIS]: what follows the last colon is the axis when it is a number. */
static bool push_scan(Cli *c, const char *s) {
    const char *colon = strrchr(s, ':');
    int64_t axis = 0;
    if (colon && !parse_int(colon + 1, -MAX_RANK, MAX_RANK - 1, &axis)) colon = NULL;
    size_t n = colon ? (size_t)(colon - s) : strlen(s);
    if (n == 0) return false;
    c->scan_axis = grow(c->scan_axis, c->nscan, sizeof *c->scan_axis);
    c->scan_axis[c->nscan] = (int32_t)axis;
    push(&c->scan_input, c->nscan++, copy_text(s, n));
    return true;
}

/* NAME=D,D,... or NAME=[D,D,...], each D a size or '?'. */
static bool push_shape(Cli *c, const char *s) {
    const char *eq = strrchr(s, '='), *p = eq ? eq + 1 : s;
    int64_t dim[MAX_RANK];
    int rank = 0;
    bool bracket = *p == '[';
    if (!eq || eq == s || !*p) return false;
    p += bracket;
    while (*p && *p != ']') {
        char text[24] = "";
        size_t n = strcspn(p, ",]");
        if (rank == MAX_RANK || n == 0 || n >= sizeof text) return false;
        memcpy(text, p, n);
        if (strcmp(text, "?") == 0)
            dim[rank] = -1;
        else if (!parse_int(text, 0, INT64_MAX, &dim[rank]))
            return false;
        rank++;
        p += n;
        if (*p == ',' && (!*++p || *p == ']')) return false;
    }
    if (bracket ? *p != ']' || p[1] : *p != 0) return false;
    c->shape = grow(c->shape, c->nshape, sizeof *c->shape);
    c->shape[c->nshape++] =
        (braid_shape){copy_text(s, (size_t)(eq - s)), rank,
                      (int64_t *)(void *)copy_text((char *)dim, sizeof *dim * (size_t)rank)};
    return true;
}

static bool apply(Cli *c, Action action, const char *v) {
    int64_t n = 0;
    bool good = true;
    switch (action) {
    case SET_TARGET: c->target = v; break;
    case SET_CPU: c->cpu = v; break;
    case SET_OUTPUT: c->output = v; break;
    case SET_EMIT: c->emit = v; break;
    case SET_EMIT_C: c->emit_folder = v; break;
    case SET_WEIGHTS: c->weights = v; break;
    case SET_TUNE: c->tune = true; break;
    case SET_SCHEDULE: c->schedule = v; break;
    case SET_COSTS: c->costs = v; break;
    case SET_IMPORT: c->import = v; break;
    case SET_DUMP_AFTER: c->dump_after = v; break;
    case SET_TIME_PASSES: c->time_passes = true; break;
    case SET_HTML: c->html = v; break;
    case SET_UNITS: c->units = v; break;
    case SET_PROFILE: c->profile = v; break;
    case SET_JSON: c->json = true; break;
    case SET_JSON_FILE: c->json_file = v; break;
    case SET_TRACE: c->trace = v; break;
    case SET_SHAPES: c->shapes = true; break;
    case SET_RUNS:
        good = parse_int(v, 1, 1000000, &n);
        c->runs = (int)n;
        break;
    case SET_MEASURED: c->measured = true; break;
    case SET_VERBOSE: c->verbose = true; break;
    case SET_HELP: c->help = true; break;
    case SET_VERSION: c->version = true; break;
    case SET_THREADS:
        good = parse_int(v, 1, 256, &n);
        c->threads = (int)n;
        break;
    case SET_JOBS:
        good = parse_int(v, 1, 1024, &n);
        c->jobs = (int)n;
        break;
    case SET_STACK_DEPTH: good = parse_int(v, 1, 1000000000, &c->stack_depth); break;
    case SET_MAX_ITERATIONS: good = parse_int(v, 1, INT64_MAX, &c->max_iterations); break;
    case SET_SEED: c->seeded = good = parse_int(v, 0, INT64_MAX, &c->seed); break;
    case SET_MAX_MEMORY: good = parse_bytes(v, &c->max_memory); break;
    case SET_EVERY: good = parse_real(v, &c->every_ms) && c->every_ms > 0; break;
    case SET_RTOL: good = parse_real(v, &c->rtol); break;
    case SET_ATOL: good = parse_real(v, &c->atol); break;
    case ADD_INPUT: good = push_pair(&c->input_name, &c->input_file, &c->ninput, v); break;
    case ADD_CARRY: good = push_pair(&c->carry_input, &c->carry_output, &c->ncarry, v); break;
    case ADD_SCAN: good = push_scan(c, v); break;
    case ADD_SHAPE: good = push_shape(c, v); break;
    case SET_IGNORE_DIM_NAMES: c->ignore_dim_names = true; break;
    case SET_TORCH: c->torch_name = v; break;
    case ADD_SIZE: good = push_size(c, v); break;
    }
    return good;
}

/* The option that argument `s` names, if this command takes it. *value: the text after '=', or
 * NULL. */
static const struct Option *find_option(const char *s, const Command *command, const char **value) {
    size_t n = strcspn(s, "=");
    bool is_long = strncmp(s, "--", 2) == 0;
    *value = NULL;
    for (size_t i = 0; i < COUNT(options); i++) {
        const struct Option *o = &options[i];
        if (command && !(o->commands & command_bit(command))) continue;
        if (!command && o->action != SET_HELP && o->action != SET_VERSION) continue;
        if (o->action == SET_HELP && strcmp(s, "-h") == 0) return o;
        if (is_long ? strlen(o->name) == n && strncmp(o->name, s, n) == 0
                    : strcmp(o->name, s) == 0) {
            if (is_long && s[n]) *value = s + n + 1;
            return o;
        }
    }
    return NULL;
}

int cli_parse(int argc, char **argv, Cli *c, const Command **command) {
    bool plain = false; /* after "--" */
    *command = NULL;
    c->rtol = 1e-3;
    c->atol = 1e-5;
    for (int i = 1; i < argc; i++) {
        const char *s = argv[i], *value;
        if (plain || s[0] != '-' || !s[1]) {
            if (*command) {
                push(&c->arg, c->narg++, s);
                continue;
            }
            for (int k = 0; k < cli_ncommand; k++)
                if (strcmp(cli_commands[k].name, s) == 0) *command = &cli_commands[k];
            if (!*command) return cli_usage("unknown command '%s'", s);
            c->command = s;
            continue;
        }
        if (strcmp(s, "--") == 0) {
            plain = true;
            continue;
        }
        const struct Option *o = find_option(s, *command, &value);
        if (!o) return cli_usage("unknown option '%s'", s);
        if (!o->value && value) return cli_usage("option %s takes no value", o->name);
        if (o->value && !value) {
            if (i + 1 == argc) return cli_usage("option %s needs a value", o->name);
            value = argv[++i];
        }
        if (!apply(c, o->action, value))
            return cli_usage("option %s: '%s' is not a valid %s", o->name, value, o->value);
    }
    if (c->help || c->version) return EXIT_DONE;
    if (!*command) return cli_usage("no command is given");
    if (c->narg < (*command)->min_args)
        return cli_usage("%s needs %s", c->command, (*command)->operands);
    if ((*command)->max_args >= 0 && c->narg > (*command)->max_args)
        return cli_usage("%s: unexpected argument '%s'", c->command, c->arg[(*command)->max_args]);
    return EXIT_DONE;
}

static void free_list(const char **list, int n) {
    for (int i = 0; i < n; i++) free((void *)(uintptr_t)list[i]);
    free((void *)list);
}
void cli_free(Cli *c) {
    free_list(c->input_name, c->ninput);
    free_list(c->input_file, c->ninput);
    free_list(c->scan_input, c->nscan);
    free_list(c->carry_input, c->ncarry);
    free_list(c->carry_output, c->ncarry);
    free_list(c->size_name, c->nsize);
    free(c->size_value);
    free(c->scan_axis);
    for (int i = 0; i < c->nshape; i++) {
        free((void *)(uintptr_t)c->shape[i].input);
        free((void *)(uintptr_t)c->shape[i].dim);
    }
    free(c->shape);
    free((void *)c->arg);
}
