/* rounding.c: see rounding.h. */
#include <math.h>
#include <stdlib.h>

#include "cli/rounding.h"

/* Runs a model or library; out[] gets the results. */
static int run(const Cli *c, const char *path, const braid_options *o, Rounding *r, bool first,
               braid_value ***out) {
    struct braid_model *m;
    braid_session *s = NULL;
    braid_error e;
    if (braid_load(path, o, &m, &e)) return cli_error(path, &e);
    int code = EXIT_DONE;
    if (first) {
        r->nin = braid_model_input_count(m);
        r->nout = braid_model_output_count(m);
        r->in = calloc((size_t)r->nin + 1, sizeof *r->in);
        if (!r->in) die("out of memory");
        code = cli_inputs(c, m, true, r->in);
    }
    *out = calloc((size_t)r->nout + 1, sizeof **out);
    if (!*out) die("out of memory");
    const braid_session_options so = {.struct_size = sizeof so, .threads = c->threads};
    if (!code && (braid_session_new(m, &so, &s, &e) || braid_session_set_seed(s, 1, &e) ||
                  braid_session_run(s, (const braid_value *const *)r->in, *out, &e)))
        code = cli_error(path, &e);
    braid_session_free(s);
    braid_model_free(m);
    return code;
}

int rounding_begin(const Cli *c, Rounding *r) {
    braid_fold fold;
    braid_options o = cli_options(c, &fold);
    *r = (Rounding){0};
    o.weights = NULL;
    o.tune = o.profile = false;
    o.torch_name = o.emit_path = NULL;
    return run(c, c->arg[0], &o, r, true, &r->out);
}

typedef struct Difference {
    double most, largest; /* of a result from its counterpart; of all results */
    int64_t others;       /* results that are no floats and differ, or are of another shape */
} Difference;

static void compare(const braid_value *got, const braid_value *want, Difference *d) {
    const DType t = (DType)braid_value_dtype(want);
    const int64_t n = braid_value_count(want);
    if (braid_value_kind(want) != BRAID_TENSOR) {
        bool same = braid_value_count(got) == n;
        for (int64_t i = 0; i < n && same; i++)
            compare(braid_value_item(got, i), braid_value_item(want, i), d);
        d->others += !same;
        return;
    }
    bool same = braid_value_rank(got) == braid_value_rank(want);
    for (int k = 0; same && k < braid_value_rank(want); k++)
        same = braid_value_dim(got)[k] == braid_value_dim(want)[k];
    if (!same) {
        d->others++;
        return;
    }
    const void *a = braid_value_data(got), *b = braid_value_data(want);
    for (int64_t i = 0; i < n; i++) {
        if (!dtype_is_float(t)) {
            d->others += elem_get_i(t, a, i) != elem_get_i(t, b, i);
            continue;
        }
        const double x = elem_get_f(t, a, i), y = elem_get_f(t, b, i);
        if (isfinite(y)) d->largest = fmax(d->largest, fabs(y));
        if (isfinite(x) && isfinite(y))
            d->most = fmax(d->most, fabs(x - y));
        else
            d->others += !(x == y || (isnan(x) && isnan(y)));
    }
}

int rounding_end(const Cli *c, const char *library, const Rounding *r) {
    braid_value **out = NULL;
    Difference d = {0};
    Rounding own = *r;
    int code = run(c, library, NULL, &own, false, &out);
    for (int i = 0; !code && i < r->nout; i++) compare(out[i], r->out[i], &d);
    if (!code && d.most == 0 && !d.others)
        fprintf(stderr,
                "weights in %s: results for random inputs are those of float32 weights: none are "
                "stored so, or none lose by it (explain --weights %s shows the choices)\n",
                c->weights, c->weights);
    else if (!code) {
        fprintf(stderr, "weights in %s: results for random inputs differ by at most %.3g",
                c->weights, d.most);
        if (d.largest > 0)
            fprintf(stderr, ", %.2g of the largest one, from those of float32 weights\n",
                    d.most / d.largest);
        else
            fputs(" from those of float32 weights\n", stderr);
        if (d.others)
            fprintf(stderr, "%lld results that are no numbers of a float type differ\n",
                    (long long)d.others);
    }
    for (int i = 0; out && i < r->nout; i++) braid_value_free(out[i]);
    free(out);
    return code;
}

void rounding_free(Rounding *r) {
    for (int i = 0; r->in && i < r->nin; i++) braid_value_free(r->in[i]);
    for (int i = 0; r->out && i < r->nout; i++) braid_value_free(r->out[i]);
    free(r->in);
    free(r->out);
}
