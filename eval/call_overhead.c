/* call_overhead.c LIBRARY N: nanoseconds of one braid_session_run with two small float32 inputs,
 * the least of 300 rounds of N calls (other programs run, too). Values are made for each call and
 * freed, as a binding has to. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "braid.h"

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static void must(braid_status status, const braid_error *e) {
    if (status == BRAID_OK) return;
    fprintf(stderr, "%s\n", e->message);
    exit(1);
}

int main(int argc, char **argv) {
    struct braid_model *model;
    braid_session *session;
    braid_session_options options = {.struct_size = sizeof options, .threads = 1};
    braid_error e;
    float a[8] = {1}, b[8] = {2};
    int64_t dim[1] = {8};
    if (argc != 3) return 2;
    must(braid_load(argv[1], NULL, &model, &e), &e);
    must(braid_session_new(model, &options, &session, &e), &e);
    long n = atol(argv[2]);
    double best = 1e30;
    for (int round = 0; round < 300; round++) {
        double begin = now();
        for (long i = 0; i < n; i++) {
            braid_value *in[2], *out[1] = {NULL};
            must(braid_value_borrow_tensor(BRAID_FLOAT32, 1, dim, a, &in[0], &e), &e);
            must(braid_value_borrow_tensor(BRAID_FLOAT32, 1, dim, b, &in[1], &e), &e);
            must(braid_session_run(session, (const braid_value *const *)in, out, &e), &e);
            braid_value_free(in[0]);
            braid_value_free(in[1]);
            braid_value_free(out[0]);
        }
        double took = (now() - begin) / (double)n;
        if (took < best) best = took;
    }
    printf("%.0f\n", best);
    braid_session_free(session);
    braid_model_free(model);
    return 0;
}
