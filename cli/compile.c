/* compile.c: braid compile. */
#include <stdlib.h>

#include "cli/cli.h"

int cmd_compile(const Cli *c) {
    braid_error e;
    braid_fold fold;
    braid_options o = cli_options(c, &fold);
    const char *model = c->arg[0], *slash = strrchr(model, '/');
    const char *stem = slash ? slash + 1 : model, *dot = strrchr(stem, '.');
    Sb so = {0};
    if (c->output)
        sb_puts(&so, c->output);
    else {
        sb_write(&so, stem, dot ? (size_t)(dot - stem) : strlen(stem));
        sb_puts(&so, ".so");
    }
    int code = braid_compile(model, &o, so.p, &e) ? cli_error(model, &e) : EXIT_DONE;
    sb_free(&so);
    return code;
}
