/* main.c: the braid command: its table of commands, and main. */
#include <signal.h>

#include "cli/cli.h"

const Command cli_commands[] = {
    {"compile", cmd_compile, 1, 1, "MODEL.onnx", "compile a model to a shared library"},
    {"run", cmd_run, 1, 1, "MODEL.onnx|FILE.so", "run a model once"},
    {"test", cmd_test, 1, -1, "FOLDER...", "run the ONNX backend tests found under folders"},
    {"bench", cmd_bench, 1, 1, "MODEL.onnx|FILE.so", "time a model"},
    {"explain", cmd_explain, 1, 1, "MODEL.onnx", "show how a model is compiled"},
    {"ops", cmd_ops, 0, 0, "", "list the supported operators"},
    {"device", cmd_device, 0, 1, "[TARGET]", "show the known devices and their costs"},
    {"profile", cmd_profile, 1, 1, "MODEL.onnx|FILE.so", "show where a model's time goes"},
    {"help", cmd_help, 0, 1, "[COMMAND]", "show what a command does and its options"},
    {"version", cmd_version, 0, 0, "", "print the version"},
};
const int cli_ncommand = COUNT(cli_commands);

int cmd_version(const Cli *c) {
    (void)c;
    printf("braid %s\n", braid_version());
    return EXIT_DONE;
}

int cmd_help(const Cli *c) {
    const Command *about = NULL;
    for (int i = 0; c->narg && i < cli_ncommand; i++)
        if (strcmp(cli_commands[i].name, c->arg[0]) == 0) about = &cli_commands[i];
    if (c->narg && !about) return cli_usage("unknown command '%s'", c->arg[0]);
    cli_print_help(about);
    return EXIT_DONE;
}

int main(int argc, char **argv) {
    Cli c = {0};
    const Command *command = NULL;
    int code = cli_parse(argc, argv, &c, &command);
    if (code == EXIT_DONE) {
        if (c.version)
            cmd_version(&c);
        else if (c.help || !command)
            cli_print_help(command);
        else {
            signal(SIGXFSZ, SIG_IGN); /* a write above the size limit then fails with a message */
            if (command->run != cmd_test) cli_watch(); /* cmd_test handles signals itself */
            code = command->run(&c);
        }
    }
    cli_free(&c);
    if (fflush(stdout) != 0 && code == EXIT_DONE) code = cli_fail(NULL, "cannot write the output");
    return code;
}
