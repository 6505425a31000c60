/* run_model.c: runs a library made by `braid compile`; needs only one header of Braid.
 *
 *     braid compile model.onnx -o model.so
 *     cc -I include examples/run_model.c -o run_model -ldl
 *     ./run_model ./model.so
 *
 * Fills every tensor input with ones (a dimension that is not fixed becomes 1) and prints the first
 * elements of each output.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "braid_model.h"

static size_t element_size(int dtype) {
    switch (dtype) {
    case 2:
    case 3:
    case 9: return 1;
    case 4:
    case 5:
    case 10:
    case 16: return 2;
    case 7:
    case 11:
    case 13: return 8;
    default: return 4;
    }
}

static void fill_with_ones(braid_tensor_v1 *t, size_t count) {
    for (size_t i = 0; i < count; i++) switch (t->dtype) {
        case 1: ((float *)t->data)[i] = 1; break;
        case 11: ((double *)t->data)[i] = 1; break;
        case 10: ((uint16_t *)t->data)[i] = 0x3c00; break; /* one as float16 */
        case 16: ((uint16_t *)t->data)[i] = 0x3f80; break; /* one as bfloat16 */
        case 7:
        case 13: ((int64_t *)t->data)[i] = 1; break;
        case 6:
        case 12: ((int32_t *)t->data)[i] = 1; break;
        case 4:
        case 5: ((int16_t *)t->data)[i] = 1; break;
        default: ((int8_t *)t->data)[i] = 1; break;
        }
}

static int make_input(const braid_io_v1 *io, braid_tensor_v1 *t) {
    size_t count = 1;
    if (io->kind == BRAID_IO_OPTIONAL_TENSOR || io->kind == BRAID_IO_OPTIONAL_SEQUENCE) {
        t->rank = -1; /* an empty optional */
        return 1;
    }
    if (io->kind != BRAID_IO_TENSOR) {
        fprintf(stderr, "input %s is a sequence, which this example does not make\n", io->name);
        return 0;
    }
    t->dtype = io->dtype ? io->dtype : 1;
    t->rank = io->rank < 0 ? 0 : io->rank;
    for (int i = 0; i < t->rank; i++) {
        t->dim[i] = io->dim[i] < 0 ? 1 : io->dim[i];
        count *= (size_t)t->dim[i];
    }
    t->data = malloc(count ? count * element_size(t->dtype) : 1);
    if (!t->data) return 0;
    fill_with_ones(t, count);
    return 1;
}

static void print_output(const braid_io_v1 *io, const braid_tensor_v1 *t) {
    int64_t count = 1;
    printf("%s", io->name);
    if (t->rank < 0 || io->kind == BRAID_IO_SEQUENCE || io->kind == BRAID_IO_OPTIONAL_SEQUENCE) {
        puts(t->rank < 0 ? ": nothing" : ": a sequence");
        return;
    }
    for (int i = 0; i < t->rank; i++) {
        printf("[%lld]", (long long)t->dim[i]);
        count *= t->dim[i];
    }
    printf(":");
    for (int64_t i = 0; i < count && i < 8; i++) {
        if (t->dtype == 1)
            printf(" %g", (double)((float *)t->data)[i]);
        else if (t->dtype == 11)
            printf(" %g", ((double *)t->data)[i]);
        else if (t->dtype == 7)
            printf(" %lld", (long long)((int64_t *)t->data)[i]);
        else if (t->dtype == 6)
            printf(" %d", (int)((int32_t *)t->data)[i]);
        else if (element_size(t->dtype) == 1)
            printf(" %d", ((uint8_t *)t->data)[i]);
        else
            printf(" ?");
    }
    puts(count > 8 ? " ..." : "");
}

int main(int argc, char **argv) {
    if (argc != 2) {
        fprintf(stderr, "usage: run_model ./MODEL.so\n");
        return 2;
    }
    void *lib = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    const braid_model_v1 *(*get)(void) = NULL;
    if (lib) *(void **)&get = dlsym(lib, "braid_model");
    if (!get) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    const braid_model_v1 *model = get();
    if (model->abi_version != BRAID_ABI_VERSION) {
        fprintf(stderr, "%s: interface version %u\n", argv[1], (unsigned)model->abi_version);
        return 1;
    }
    braid_tensor_v1 *in = calloc((size_t)model->ninput + 1, sizeof *in);
    braid_tensor_v1 *out = calloc((size_t)model->noutput + 1, sizeof *out);
    char why[512] = "out of memory";
    braid_session_config_v1 config = {
        .struct_size = sizeof config, .threads = 2, .message = why, .message_size = sizeof why};
    void *session = NULL;
    int ok = in && out && model->session_new(&config, &session) == 0;
    if (!ok) fprintf(stderr, "%s: no session: %s\n", argv[1], why);
    for (int i = 0; ok && i < model->ninput; i++) ok = make_input(&model->input[i], &in[i]);
    if (ok) {
        char message[512];
        ok = model->run(session, in, out, message, sizeof message) == 0;
        if (!ok) fprintf(stderr, "%s: %s\n", model->name, message);
    }
    for (int i = 0; ok && i < model->noutput; i++) print_output(&model->output[i], &out[i]);
    model->session_free(session);
    for (int i = 0; in && i < model->ninput; i++) free(in[i].data);
    free(in);
    free(out);
    dlclose(lib);
    return ok ? 0 : 1;
}
