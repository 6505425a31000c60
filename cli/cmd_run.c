/* cmd_run.c: braid run: runs a model once. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "cli/cli.h"

static double element(const braid_value *v, int64_t i) {
    DType t = (DType)braid_value_dtype(v);
    const void *p = braid_value_data(v);
    if (dtype_is_float(t) || dtype_small(t)) return elem_get_f(t, p, i);
    int64_t n = elem_get_i(t, p, i);
    return t == DT_U64 ? (double)(uint64_t)n : (double)n;
}

/* Prints a line with type and smallest, mean and largest element; then one for each item. */
static void print_summary(Sb *s, const braid_value *v) {
    cli_print_value_type(s, v);
    if (braid_value_kind(v) == BRAID_OPTIONAL && braid_value_item(v, 0)) v = braid_value_item(v, 0);
    if (braid_value_kind(v) == BRAID_TENSOR) {
        int64_t n = braid_value_count(v), nan = 0;
        double lo = INFINITY, hi = -INFINITY, sum = 0;
        for (int64_t i = 0; i < n; i++) {
            double x = element(v, i);
            if (isnan(x)) {
                nan++;
                continue;
            }
            if (x < lo) lo = x;
            if (x > hi) hi = x;
            sum += x;
        }
        if (n > nan) sb_printf(s, " min %g mean %g max %g", lo, sum / (double)(n - nan), hi);
        if (nan) sb_printf(s, " nan %lld", (long long)nan);
    }
    sb_puts(s, "\n");
    for (int64_t i = 0; braid_value_kind(v) == BRAID_SEQUENCE && i < braid_value_count(v); i++) {
        sb_printf(s, "  [%lld] ", (long long)i);
        print_summary(s, braid_value_item(v, i));
    }
}

static int write_outputs(const char *dir, int n, braid_value *const *out) {
    braid_error e;
    struct stat st;
    if (mkdir(dir, 0777) != 0) { /* only the last level is made */
        if (errno == ENOENT)
            return cli_fail(dir, "cannot make this folder: its parent folder does not exist");
        if (errno != EEXIST) return cli_fail(dir, "%s", strerror(errno));
        if (stat(dir, &st) != 0 || !S_ISDIR(st.st_mode))
            return cli_fail(dir, "it is a file; outputs go to a folder");
    }
    for (int i = 0; i < n; i++) {
        Sb path = {0};
        sb_printf(&path, "%s/output_%d.%s", dir, i,
                  braid_value_kind(out[i]) == BRAID_TENSOR ? "npy" : "pb");
        int code = braid_value_write(out[i], path.p, &e) ? cli_error(path.p, &e) : EXIT_DONE;
        sb_free(&path);
        if (code) return code;
    }
    return EXIT_DONE;
}

int cmd_run(const Cli *c) {
    struct braid_model *m;
    braid_session *s;
    braid_error e;
    int code = cli_load(c, &m, &s);
    if (code) return code;
    int nin = braid_model_input_count(m), nout = braid_model_output_count(m);
    braid_value **in = calloc((size_t)nin + 1, sizeof *in),
                **out = calloc((size_t)nout + 1, sizeof *out);
    if (!in || !out) die("out of memory");
    const bool fill = !c->ninput && nin; /* without -i, all inputs are random */
    code = cli_inputs(c, m, fill, in);
    cli_watch_step(NULL, "running the model", 0);
    if (!code && braid_session_run(s, (const braid_value *const *)in, out, &e))
        code = cli_error(c->arg[0], &e);
    cli_watch_clear();
    if (!code && c->output)
        code = write_outputs(c->output, nout, out);
    else if (!code) {
        Sb text = {0};
        if (fill) cli_print_inputs(&text, c, m, in);
        for (int i = 0; i < nout; i++) {
            sb_printf(&text, "%s ", braid_model_output(m, i)->name);
            print_summary(&text, out[i]);
        }
        if (text.n) fwrite(text.p, 1, text.n, stdout);
        sb_free(&text);
    }
    for (int i = 0; i < nin; i++) braid_value_free(in[i]);
    for (int i = 0; i < nout; i++) braid_value_free(out[i]);
    free(in);
    free(out);
    braid_session_free(s);
    braid_model_free(m);
    return code;
}
