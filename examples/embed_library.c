/* embed_library.c: compiles and runs an ONNX model in one's own process, with libbraid.
 *
 *     cc examples/embed_library.c -o embed_library $(pkg-config --cflags --libs braid)
 *     ./embed_library MODEL.onnx [INPUT=FILE.npy ...]
 *
 * Inputs come from .npy or .pb files; one without a file is zeros, an empty sequence or an empty
 * optional. Prints all outputs: tensors, sequences and optionals.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <braid.h>

/* The file that the arguments name for this input, or NULL. */
static const char *file_of(const char *input, int argc, char **argv) {
    const size_t n = strlen(input);
    for (int i = 2; i < argc; i++)
        if (strncmp(argv[i], input, n) == 0 && argv[i][n] == '=') return argv[i] + n + 1;
    return NULL;
}

static braid_status make_input(const braid_io *io, const char *file, braid_value **value,
                               braid_error *error) {
    int64_t dim[BRAID_RANK_LIMIT];
    if (file) return braid_value_read(file, io, value, error);
    if (io->kind == BRAID_OPTIONAL) return BRAID_OK; /* NULL: an empty one */
    if (io->kind == BRAID_SEQUENCE) return braid_value_new_sequence(io->dtype, value, error);
    for (int32_t i = 0; i < io->rank; i++) dim[i] = io->dim[i] < 0 ? 1 : io->dim[i];
    return braid_value_new_tensor(io->dtype ? io->dtype : BRAID_FLOAT32,
                                  io->rank < 0 ? 0 : io->rank, dim, NULL, value, error);
}

static void print_elements(const braid_value *value) {
    const void *data = braid_value_data(value);
    for (int64_t i = 0; i < braid_value_count(value) && i < 8; i++)
        switch (braid_value_dtype(value)) {
        case BRAID_FLOAT32: printf(" %g", (double)((const float *)data)[i]); break;
        case BRAID_FLOAT64: printf(" %g", ((const double *)data)[i]); break;
        case BRAID_INT64: printf(" %lld", (long long)((const int64_t *)data)[i]); break;
        case BRAID_INT32: printf(" %ld", (long)((const int32_t *)data)[i]); break;
        case BRAID_BOOL: printf(" %d", ((const uint8_t *)data)[i]); break;
        default: printf(" ?"); break;
        }
    puts(braid_value_count(value) > 8 ? " ..." : "");
}

/* Prints a value, and what it holds one step further to the right. */
static void print_value(const char *name, const braid_value *value, int indent) {
    printf("%*s%s: ", indent, "", name);
    if (braid_value_kind(value) != BRAID_TENSOR) {
        const int64_t n = braid_value_count(value);
        printf("%s of %lld\n", braid_value_kind(value) == BRAID_SEQUENCE ? "sequence" : "optional",
               (long long)n);
        for (int64_t i = 0; i < n; i++) print_value("item", braid_value_item(value, i), indent + 2);
        return;
    }
    printf("%s[", braid_dtype_name(braid_value_dtype(value)));
    for (int32_t i = 0; i < braid_value_rank(value); i++)
        printf("%s%lld", i ? "," : "", (long long)braid_value_dim(value)[i]);
    printf("]");
    print_elements(value);
}

/* Runs the loaded model once. */
static braid_status run(struct braid_model *model, int argc, char **argv, braid_error *error) {
    const int32_t nin = braid_model_input_count(model), nout = braid_model_output_count(model);
    braid_value **in = calloc((size_t)nin + 1, sizeof *in);
    braid_value **out = calloc((size_t)nout + 1, sizeof *out);
    braid_session *session = NULL;
    braid_status status = in && out ? BRAID_OK : BRAID_MEMORY;
    for (int32_t i = 0; i < nin && !status; i++) {
        const braid_io *io = braid_model_input(model, i);
        status = make_input(io, file_of(io->name, argc, argv), &in[i], error);
    }
    if (!status) status = braid_session_new(model, NULL, &session, error);
    if (!status) status = braid_session_run(session, (const braid_value *const *)in, out, error);
    for (int32_t i = 0; i < nout && !status; i++)
        print_value(braid_model_output(model, i)->name, out[i], 0);
    braid_session_free(session);
    for (int32_t i = 0; in && i < nin; i++) braid_value_free(in[i]);
    for (int32_t i = 0; out && i < nout; i++) braid_value_free(out[i]);
    free(in);
    free(out);
    return status;
}

int main(int argc, char **argv) {
    struct braid_model *model = NULL;
    braid_error error = {BRAID_OK, ""};
    if (argc < 2) {
        fprintf(stderr, "usage: embed_library MODEL [INPUT=FILE ...]\n");
        return 2;
    }
    braid_status status = braid_load(argv[1], NULL, &model, &error);
    if (!status) {
        printf("%s for %s, braid %s\n", braid_model_name(model), braid_model_target(model),
               braid_version());
        status = run(model, argc, argv, &error);
        braid_model_free(model);
    }
    if (status) fprintf(stderr, "%s: %s\n", braid_status_text(status), error.message);
    return status ? 1 : 0;
}
