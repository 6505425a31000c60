/* cli.h: the braid command: options, and what its subcommands share.
 *
 * Exit codes: 0 done; 1 the model, an input, or a test is at fault, with one line on stderr
 * `braid: PATH: message`; 2 wrong usage.
 */
#ifndef BRAID_CLI_H
#define BRAID_CLI_H

#include "base/base.h"
#include "include/braid.h"

enum { EXIT_DONE = 0, EXIT_FAULT = 1, EXIT_USAGE = 2 };

/* The command line, taken apart. Strings point into argv or live until the process ends. */
typedef struct Cli {
    const char *command;
    int narg; /* what is left beside options */
    const char **arg;
    const char *target, *cpu, *output, *emit;
    const char *schedule, *costs, *import, *dump_after;
    bool tune, time_passes, json, verbose, help, version;
    int threads, jobs;
    int64_t max_iterations, stack_depth, max_memory, seed;
    bool seeded; /* --seed */
    double rtol, atol;
    int ninput; /* -i NAME=FILE */
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

/* Takes argv apart for the command it names; EXIT_DONE, or EXIT_USAGE after a message. */
int cli_parse(int argc, char **argv, Cli *c, const Command **command);
void cli_print_help(const Command *command); /* NULL: of the whole program */
void cli_free(Cli *c);

/* Starts the thread that ends the process properly at a signal, and shows on a terminal what takes
 * long (watch.c). */
void cli_watch(void);
void cli_watch_clear(void); /* takes what it shows away: something else is about to be printed */

/* `braid: PATH: message` on stderr; PATH NULL: left out. Returns EXIT_FAULT. */
int cli_fail(const char *path, const char *fmt, ...) PRINTF(2, 3);
/* The same for an error from the library: EXIT_USAGE for BRAID_USAGE. */
int cli_error(const char *path, const braid_error *e);
int cli_usage(const char *fmt, ...) PRINTF(1, 2);

/* The library's form of c's options. `fold` is room that the result points to. */
braid_options cli_options(const Cli *c, braid_fold *fold);
/* Loads c's first argument and makes a session; on failure prints and returns an exit code. */
int cli_load(const Cli *c, struct braid_model **m, braid_session **s);
/* Values for the inputs of m from -i files; value[] has an entry for each input. */
int cli_given_inputs(const Cli *c, const struct braid_model *m, braid_value **value);
/* … and the others random when `fill`, of sizes that must be known (missing_inputs.c); else they must be
 * there unless they are optional: then NULL. */
int cli_inputs(const Cli *c, const struct braid_model *m, bool fill, braid_value **value);
int cli_random_inputs(const Cli *c, const struct braid_model *m, braid_value **value);
/* A line for each: name, type, and whether it was made here. */
void cli_print_inputs(Sb *s, const Cli *c, const struct braid_model *m, braid_value *const *value);

/* "float32[2,3]", "sequence of float32", … */
void cli_print_type(Sb *s, const braid_io *io);
void cli_print_value_type(Sb *s, const braid_value *v);
/* A JSON string with its quotes. */
void cli_print_json(Sb *s, const char *text);

/* Compiles c's model as far as its tree for --dump-after and --time-passes, and prints what they
 * ask for. */
int cli_passes(const Cli *c);

int cmd_compile(const Cli *c);
int cmd_run(const Cli *c);
int cmd_test(const Cli *c);
int cmd_bench(const Cli *c);
int cmd_explain(const Cli *c);
int cmd_ops(const Cli *c);
int cmd_device(const Cli *c);
int cmd_help(const Cli *c);
int cmd_version(const Cli *c);

#endif
