/* barrier.c: measures a team of units: the ns of a barrier, of a call of an empty kernel, and of
 * the same call after the team has gone to sleep.
 *
 *     cc -O2 -I . -I include eval/barrier.c -o build/barrier -lpthread
 *     build/barrier [UNITS [LOAD [RUNS]]]
 *
 * LOAD other processes compute at the same time. The program includes the texts that emitted
 * programs contain. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "include/braid_model.h"
#include "codegen/text/cpu/ctx.inc"

#define BK_NAME "barrier"
#define BK_NIN 1
#define BK_NOUT 0
#define BK_ARENA ((size_t)64)
#define BK_NSLOT 0
#define BK_NSITE 0
static const char *const bk_sites[] = {0};
static const braid_io_v1 bk_inputs[] = {{"count", BRAID_IO_TENSOR, 7, 0, {0}, {0}}};
static const braid_io_v1 bk_outputs[] = {{0}};

static int braid_kernel(bk_ctx *k, int unit, int nunit) {
    (void)nunit;
    int code = BK_OK;
    for (int64_t i = *(const int64_t *)k->in[0].data; i > 0 && code == BK_OK; i--)
        code = bk_barrier(k, unit);
    return code;
}

#include "codegen/text/seed.inc"
#include "codegen/text/memory.inc"
#include "codegen/text/fault.inc"
#include "codegen/text/entry.inc"
#include "codegen/text/cpu/processor.inc"
#include "codegen/text/cpu/session.inc"
#include "codegen/text/cpu/team.inc"
#include "codegen/text/cpu/entry.inc"

static int less(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void measure(const char *what, void *session, int64_t count, int runs, int pause_us) {
    double *t = malloc((size_t)runs * sizeof *t);
    braid_tensor_v1 in = {&count, 7, 0, {0}}, out;
    for (int i = 0; i < runs; i++) {
        if (pause_us) usleep((unsigned)pause_us);
        ((bk_session *)session)->habit.seen = 0; /* by all units, also when they sleep */
        int64_t start = bk_clock();
        braid_model()->run(session, &in, &out, NULL, 0);
        t[i] = (double)(bk_clock() - start) / (double)(count ? count : 1);
    }
    qsort(t, (size_t)runs, sizeof *t, less);
    printf("%-22s min %8.0f  median %8.0f  p90 %8.0f ns\n", what, t[0], t[runs / 2],
           t[runs * 9 / 10]);
    free(t);
}

int main(int argc, char **argv) {
    int units = argc > 1 ? atoi(argv[1]) : 2, load = argc > 2 ? atoi(argv[2]) : 0;
    int runs = argc > 3 ? atoi(argv[3]) : 300;
    for (int i = 0; i < load; i++)
        if (fork() == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            for (volatile unsigned long n = 0;; n++) {}
        }
    braid_session_config_v1 config = {.struct_size = sizeof config, .threads = units};
    void *session;
    if (braid_model()->session_new(&config, &session)) return 1;
    printf("%d units, %d other processes\n", units, load);
    measure("barrier", session, 1000, runs, 0);
    measure("call", session, 0, runs * 10, 0);
    measure("call after 2 ms", session, 0, runs, 2000);
    braid_model()->session_free(session);
    return 0;
}
