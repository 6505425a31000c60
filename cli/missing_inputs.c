/* missing_inputs.c: makes random inputs for those that are not given.
 *
 * Their sizes come from the model, the given inputs, or --size. If a size is still not known, the
 * message says which --size options to add. */
#include <stdlib.h>

#include "cli/cli.h"
#include "api/runtime.h"

typedef struct SizeOf {
    const braid_io *io;
    int axis;
} SizeOf;

static const char *name_of(const braid_io *io, int axis) {
    return io->dim_name && io->dim_name[axis] && *io->dim_name[axis] ? io->dim_name[axis] : NULL;
}

/* Prints the axis as --size names it. */
static void put_name(Sb *s, const braid_io *io, int axis) {
    const char *name = name_of(io, axis);
    if (name)
        sb_puts(s, name);
    else
        sb_printf(s, "%s:%d", io->name, axis);
}

static bool is_called(const braid_io *io, int axis, const char *text) {
    Sb s = {0};
    const char *name = name_of(io, axis);
    sb_printf(&s, "%s:%d", io->name, axis);
    bool same = (name && strcmp(text, name) == 0) || strcmp(text, s.p) == 0;
    sb_free(&s);
    return same;
}

/* Whether x and y must have equal sizes: they have one name, or are one axis. */
static bool same_size(SizeOf x, SizeOf y) {
    const char *a = name_of(x.io, x.axis), *b = name_of(y.io, y.axis);
    return a && b ? strcmp(a, b) == 0 : x.io == y.io && x.axis == y.axis;
}

/* The size that --size gives for x; -1: none. */
static int64_t asked(const Cli *c, const struct braid_model *m, SizeOf x) {
    for (int i = 0; i < braid_model_input_count(m); i++) {
        const braid_io *io = braid_model_input(m, i);
        for (int k = 0; k < io->rank; k++)
            for (int j = 0; same_size(x, (SizeOf){io, k}) && j < c->nsize; j++)
                if (is_called(io, k, c->size_name[j])) return c->size_value[j];
    }
    return -1;
}

/* The size that a given input has for x; -1: none. */
static int64_t given(const struct braid_model *m, braid_value *const *value, SizeOf x) {
    for (int i = 0; i < braid_model_input_count(m); i++) {
        const braid_io *io = braid_model_input(m, i);
        if (!value[i] || braid_value_kind(value[i]) != BRAID_TENSOR ||
            braid_value_rank(value[i]) != io->rank)
            continue;
        for (int k = 0; k < io->rank; k++)
            if (same_size(x, (SizeOf){io, k})) return braid_value_dim(value[i])[k];
    }
    return -1;
}

/* Checks that every --size names an axis whose size is not fixed. */
static int check_sizes(const Cli *c, const struct braid_model *m, braid_value *const *value) {
    for (int j = 0; j < c->nsize; j++) {
        Sb open = {0};
        bool found = false;
        for (int i = 0; i < braid_model_input_count(m); i++) {
            const braid_io *io = braid_model_input(m, i);
            for (int k = 0; k < io->rank; k++) {
                if (io->dim[k] >= 0) continue;
                sb_puts(&open, open.n ? ", " : "");
                put_name(&open, io, k);
                if (!is_called(io, k, c->size_name[j])) continue;
                found = true;
                int64_t have = given(m, value, (SizeOf){io, k});
                if (have < 0 || have == c->size_value[j]) continue;
                sb_free(&open);
                return cli_usage("--size %s=%lld, but a given input has %lld", c->size_name[j],
                                 (long long)c->size_value[j], (long long)have);
            }
        }
        int code = found ? EXIT_DONE
                         : cli_usage("--size %s: no input has such a size; sizes to set are: %s",
                                     c->size_name[j], open.n ? open.p : "none");
        sb_free(&open);
        if (code) return code;
    }
    return EXIT_DONE;
}

/* Fills dim with io's sizes. False: some are not known; their --size options go to `want`, each
 * once. */
static bool sizes_of(const Cli *c, const struct braid_model *m, braid_value *const *value,
                     const braid_io *io, int64_t *dim, Sb *want) {
    bool known = true;
    for (int k = 0; k < io->rank; k++) {
        dim[k] = io->dim[k] >= 0 ? io->dim[k] : given(m, value, (SizeOf){io, k});
        if (dim[k] < 0) dim[k] = asked(c, m, (SizeOf){io, k});
        if (dim[k] >= 0) continue;
        known = false;
        Sb one = {0};
        sb_puts(&one, "--size ");
        put_name(&one, io, k);
        sb_puts(&one, "=N");
        char *there = want->n ? strstr(want->p, one.p) : NULL;
        if (!there) sb_printf(want, "%s%s", want->n ? " " : "", one.p);
        sb_free(&one);
    }
    return known;
}

int cli_random_inputs(const Cli *c, const struct braid_model *m, braid_value **value) {
    braid_error e;
    uint64_t seed = 1;
    Sb want = {0};
    int n = braid_model_input_count(m), code = check_sizes(c, m, value);
    bool *make = calloc((size_t)n + 1, sizeof *make);
    int64_t(*dim)[MAX_RANK] = calloc((size_t)n + 1, sizeof *dim);
    if (!make || !dim) die("out of memory");
    for (int i = 0; !code && i < n; i++) {
        const braid_io *io = braid_model_input(m, i);
        make[i] = !value[i] && io->kind != BRAID_OPTIONAL;
        if (!make[i] || io->kind == BRAID_SEQUENCE) continue;
        if (io->rank < 0)
            code = cli_usage("input '%s' has no declared shape, so it must be given (-i %s=FILE)",
                             io->name, io->name);
        else
            sizes_of(c, m, value, io, dim[i], &want);
    }
    if (!code && want.n)
        code = cli_usage(
            "sizes of the inputs are not known: set them with %s, or give the inputs (-i)", want.p);
    for (int i = 0; !code && i < n; i++) {
        if (!make[i]) continue;
        braid_io own = *braid_model_input(m, i);
        own.dim = dim[i];
        if (rt_value_random(&own, &seed, &value[i], &e)) code = cli_error(c->arg[0], &e);
    }
    sb_free(&want);
    free(make);
    free(dim);
    return code;
}

void cli_print_inputs(Sb *s, const Cli *c, const struct braid_model *m, braid_value *const *value) {
    for (int i = 0; i < braid_model_input_count(m); i++) {
        const char *name = braid_model_input(m, i)->name;
        bool own = false;
        for (int k = 0; k < c->ninput; k++) own |= strcmp(c->input_name[k], name) == 0;
        if (!value[i]) continue;
        sb_printf(s, "input %s ", name);
        cli_print_value_type(s, value[i]);
        sb_puts(s, own                                          ? "\n"
                   : braid_value_kind(value[i]) == BRAID_TENSOR ? ", random\n"
                                                                : ", empty\n");
    }
}
