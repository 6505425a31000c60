/* call_time.c: the time of a call of a library on a session of its own, for operator_check.py. */
#include "braid_model.h"

#include <dlfcn.h>
#include <time.h>

static char room[2][4096];
static void *memory(void *user, int output, const braid_tensor_v1 *t, size_t bytes) {
    (void)user, (void)t;
    return bytes <= sizeof room[0] && output < 2 ? room[output] : NULL;
}

/* Nanoseconds of a call with two float32 inputs of rows x 4; the least of 500 series of n; -1: it
 * failed. */
double call_time(const char *path, int rows, int n) {
    static float data[2][1024];
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL), *session;
    const braid_model_v1 *(*get)(void) = NULL;
    if (library) *(void **)&get = dlsym(library, "braid_model");
    if (!get || rows > 256) return -1;
    const braid_model_v1 *m = get();
    braid_session_config_v1 c = {.struct_size = sizeof c, .threads = 1};
    braid_tensor_v1 in[2], out[2];
    double least = 1e18;
    if (m->ninput != 2 || m->noutput != 2 || m->session_new(&c, &session)) return -1;
    for (int i = 0; i < 2; i++)
        in[i] = (braid_tensor_v1){.data = data[i], .dtype = 1, .rank = 2, .dim = {rows, 4}};
    for (int series = 0; series < 500; series++) {
        struct timespec a, b;
        clock_gettime(CLOCK_MONOTONIC, &a);
        for (int i = 0; i < n; i++)
            if (m->run_into(session, NULL, in, out, memory, NULL, NULL, 0)) return -1;
        clock_gettime(CLOCK_MONOTONIC, &b);
        const double ns =
            ((double)(b.tv_sec - a.tv_sec) * 1e9 + (double)(b.tv_nsec - a.tv_nsec)) / n;
        if (ns < least) least = ns;
    }
    m->session_free(session);
    return least;
}
