/* cli.h: the braid command: its options, and helpers that its commands share.
 *
 * Exit codes: 0 done; 1 the model, an input or a test is at fault, with one line on stderr,
 * `braid: PATH: message`; 2 wrong usage.
 */
#ifndef BRAID_CLI_H
#define BRAID_CLI_H

#include "base/base.h"
#include "include/braid.h"

enum { EXIT_DONE = 0, EXIT_FAULT = 1, EXIT_USAGE = 2 };

/* The parsed command line. Strings point into argv, or cli_free frees them. */
typedef struct Cli {
    const char *command;
    int narg; /* arguments other than options */
    const char **arg;
    const char *target, *cpu, *output, *emit, *emit_folder;
    const char *weights, *schedule, *costs, *import, *dump_after, *torch_name, *html, *profile,
        *units;
    const char *json_file, *trace;
    bool tune, time_passes, json, verbose, help, version, measured, shapes;
    int runs;
    int threads, jobs;
    int64_t max_iterations, stack_depth, max_memory, seed;
    bool seeded; /* --seed */
    double rtol, atol;
    double every_ms; /* 0: not given */
    int ninput;      /* -i NAME=FILE */
    const char **input_name, **input_file;
    int nscan, ncarry;
    const char **scan_input, **carry_input, **carry_output;
    int32_t *scan_axis;
    int nshape;
    braid_shape *shape; /* strings and dims are malloc'd */
    bool ignore_dim_names;
    int nsize; /* --size */
    const char **size_name;
    int64_t *size_value;
} Cli;

typedef struct Command {
    const char *name;
    int (*run)(const Cli *c);
    int min_args, max_args; /* max -1: any */
    const char *operands, *doc;
} Command;

extern const Command cli_commands[];
extern const int cli_ncommand;

/* Parses argv. Returns EXIT_DONE, or EXIT_USAGE after a message. Free c with cli_free. */
int cli_parse(int argc, char **argv, Cli *c, const Command **command);
void cli_print_help(const Command *command); /* NULL: for the whole program */
void cli_free(Cli *c);

/* Starts a thread (watch.c) that cleans up when a signal ends the process, and that shows long
 * steps on a terminal. */
void cli_watch(void);
void cli_watch_clear(void); /* clears that line and ends the step; call it before printing */
/* braid_options.progress: a step begins. */
bool cli_watch_step(void *unused, const char *step, double seconds);

/* Prints `braid: PATH: message` on stderr, without PATH if it is NULL. Returns EXIT_FAULT. */
int cli_fail(const char *path, const char *fmt, ...) PRINTF(2, 3);
/* The same for an error from the library. BRAID_USAGE gives EXIT_USAGE. */
int cli_error(const char *path, const braid_error *e);
int cli_usage(const char *fmt, ...) PRINTF(1, 2);

double cli_now(void); /* seconds of the monotonic clock */
/* Puts c's options into the library's form. The result points to *fold. */
braid_options cli_options(const Cli *c, braid_fold *fold);
/* Loads c's first argument and makes a session. Returns an exit code; prints messages. */
int cli_load(const Cli *c, struct braid_model **m, braid_session **s);
/* Reads the -i files into value[], which has an entry for each input of m. */
int cli_given_inputs(const Cli *c, const struct braid_model *m, braid_value **value);
/* The same. Other inputs are random with `fill` (their sizes must be known: missing_inputs.c).
 * Without it only optional inputs may be missing: they become NULL. */
int cli_inputs(const Cli *c, const struct braid_model *m, bool fill, braid_value **value);
int cli_random_inputs(const Cli *c, const struct braid_model *m, braid_value **value);
/* Prints a line for each input: name, type, and whether it is random. */
void cli_print_inputs(Sb *s, const Cli *c, const struct braid_model *m, braid_value *const *value);

/* "float32[2,3]", "sequence of float32", … */
void cli_print_type(Sb *s, const braid_io *io);
void cli_print_value_type(Sb *s, const braid_value *v);

/* For --dump-after and --time-passes: compiles c's model up to its scheduled tree and prints what
 * they ask for. */
int cli_passes(const Cli *c);

int cmd_compile(const Cli *c);
int cmd_run(const Cli *c);
int cmd_test(const Cli *c);
int cmd_bench(const Cli *c);
int cmd_explain(const Cli *c);
int cmd_profile(const Cli *c);
int cmd_ops(const Cli *c);
int cmd_device(const Cli *c);
int cmd_help(const Cli *c);
int cmd_version(const Cli *c);

#endif
