/* cold_ort.c LIBONNXRUNTIME MODEL THREADS EVERY_MS OUTPUT,… NAME TYPE DIM,… FILE …: what a run
 * takes from C in ONNX Runtime, as `braid bench --every` measures it: prints the microseconds of
 * the first run, and the least, median and 95th percentile of 200 others, in order, one of which
 * begins every so many milliseconds (0: runs back to back for a second). An input is a name, the
 * number of its element type in ONNX, its dimensions, and a file of its bytes.
 *
 * The wheel has no header: functions are called by their positions in the table of the C API, which
 * stay the same from version to version. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MOST 100000
#define MANY 16

enum { /* positions in the table */
       ERROR_MESSAGE = 2,
       CREATE_ENV = 3,
       CREATE_SESSION = 7,
       RUN = 9,
       CREATE_OPTIONS = 10,
       SET_INTRA_THREADS = 24,
       CREATE_TENSOR = 49,
       CREATE_CPU_INFO = 69,
       RELEASE_VALUE = 96
};
typedef struct Base {
    void *const *(*table)(uint32_t version);
    const char *(*version)(void);
} Base;
static void *const *table;
#define CALL(at, ...) ((void *(*)())table[at])(__VA_ARGS__)

static void must(void *status) {
    if (!status) return;
    fprintf(stderr, "%s\n", ((const char *(*)(void *))table[ERROR_MESSAGE])(status));
    exit(1);
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static int less(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void *read_all(const char *path, size_t *bytes) {
    FILE *f = fopen(path, "rb");
    if (!f || fseek(f, 0, SEEK_END)) exit(1);
    *bytes = (size_t)ftell(f);
    rewind(f);
    void *p = malloc(*bytes + 1);
    if (!p || fread(p, 1, *bytes, f) != *bytes) exit(1);
    fclose(f);
    return p;
}

int main(int argc, char **argv) {
    if (argc < 10 || (argc - 6) % 4) return 2;
    void *so = dlopen(argv[1], RTLD_NOW);
    const Base *(*base)(void) = NULL;
    if (so) *(void **)&base = dlsym(so, "OrtGetApiBase");
    if (!base || !(table = base()->table(17))) return 2;
    void *env, *options, *session, *info, *value[MANY];
    const char *name[MANY], *output[MANY];
    int nin = 0, nout = 0;
    must(CALL(CREATE_ENV, 3, "cold", &env));
    must(CALL(CREATE_OPTIONS, &options));
    must(CALL(SET_INTRA_THREADS, options, atoi(argv[3])));
    must(CALL(CREATE_SESSION, env, argv[2], options, &session));
    must(CALL(CREATE_CPU_INFO, 0, 0, &info));
    for (char *s = strtok(argv[5], ","); s && nout < MANY; s = strtok(NULL, ","))
        output[nout++] = s;
    for (char **a = argv + 6; *a && nin < MANY; a += 4) {
        int64_t dim[MANY];
        size_t rank = 0, bytes;
        name[nin] = a[0];
        for (char *s = strtok(a[2], ","); s && rank < MANY; s = strtok(NULL, ","))
            dim[rank++] = atoll(s);
        void *data = read_all(a[3], &bytes);
        must(CALL(CREATE_TENSOR, info, data, bytes, dim, rank, atoi(a[1]), &value[nin++]));
    }
    const double every = atof(argv[4]) * 1e3;
    double *us = malloc(MOST * sizeof *us), first = 0, begin = now();
    int n = 0;
    for (int i = -3; n < (every > 0 ? 200 : MOST); i++) {
        void *out[MANY] = {NULL};
        const double t = now();
        if (i <= 0) begin = t;
        if (n >= 20 && t - begin > (every > 0 ? 5e6 : 1e6)) break;
        must(CALL(RUN, session, NULL, name, (void *const *)value, (size_t)nin, output, (size_t)nout,
                  out));
        const double took = now() - t;
        for (int k = 0; k < nout; k++) ((void (*)(void *))table[RELEASE_VALUE])(out[k]);
        if (i == -3) first = took;
        if (i >= 0) us[n++] = took;
        for (double left; every > 0 && (left = t + every - now()) > 0;)
            nanosleep(&(struct timespec){.tv_sec = (time_t)(left / 1e6),
                                         .tv_nsec = (long)(left * 1e3) % 1000000000},
                      NULL);
    }
    qsort(us, (size_t)n, sizeof *us, less);
    printf("%.2f %.2f %.2f %.2f\n", first, us[0], us[n / 2], us[(n - 1) * 95 / 100]);
    return 0;
}
