/* main.c: the braid command. */
#include "cli/cli.h"

const Command cli_commands[] = {
    {"compile", cmd_compile, 1, 1, "MODEL.onnx", "compile a model to a shared library"},
    {"run", cmd_run, 1, 1, "MODEL.onnx|FILE.so", "run a model once"},
    {"test", cmd_test, 1, -1, "FOLDER...", "run the ONNX backend tests found under folders"},
    {"bench", cmd_bench, 1, 1, "MODEL.onnx|FILE.so", "time a model"},
    {"explain", cmd_explain, 1, 1, "MODEL.onnx", "show what a model becomes"},
    {"ops", cmd_ops, 0, 0, "", "list the supported operators"},
    {"device", cmd_device, 0, 1, "[TARGET]", "show what is known of devices"},
};
const int cli_ncommand = COUNT(cli_commands);

int main(int argc, char **argv) {
    Cli c = {0};
    const Command *command = NULL;
    int code = cli_parse(argc, argv, &c, &command);
    if (code == EXIT_DONE) {
        if (c.version)
            printf("braid %s\n", braid_version());
        else if (c.help || !command)
            cli_print_help(command);
        else
            code = command->run(&c);
    }
    cli_free(&c);
    if (fflush(stdout) != 0 && code == EXIT_DONE) code = cli_fail(NULL, "cannot write the output");
    return code;
}
