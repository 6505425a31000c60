/* run.c: runs the kernels of one text and compares what the emulator reports with what the text
 * says.
 *
 * usage: run FILE.cu [NAME], linked with FILE.cu's object and the emulator. In FILE.cu a comment
 *     // test NAME BLOCKS THREADS SHARED [cluster=N] [waves] [seeds]: ok [sum=N] [path=LOW-HIGH]
 *     [alone=N] | KIND
 * stands for each kernel (waves: not a cooperative launch), and the line that is to be reported, or
 * one that called it, ends with `// <- NAME`; where several do any will do. Every test runs by all
 * schedules; with `seeds` a fault need be found by one of them only. sum: of out[] afterwards.
 * path: the counted path in ns. alone: the most iterations that few threads make while others wait.
 */
#include "codegen/emulate/driver.inc"
#include "tests/emulate/data.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_LINES = 2000, MAX_LINE = 400, SEEDS = 4 };
static char text[MAX_LINES][MAX_LINE];
static int lines;

static void must(int error, const char *what) {
    if (!error) return;
    fprintf(stderr, "%s: error %d\n", what, error);
    exit(2);
}

typedef struct Test {
    char name[64], kind[64];
    int blocks, threads, shared, cluster, waves, seeds;
    long sum, low, high, alone;
    int has_sum, has_path, has_alone;
} Test;

static char counts[] = "/tmp/braid-emulate-XXXXXX"; /* what is counted, of one launch */

static int parse(const char *line, Test *t) {
    memset(t, 0, sizeof *t);
    t->cluster = 1;
    int n = 0;
    if (sscanf(line, "// test %63s %d %d %d%n", t->name, &t->blocks, &t->threads, &t->shared, &n) <
        4)
        return 0;
    const char *colon = strchr(line + n, ':'), *p;
    if (!colon || sscanf(colon, ": %63[a-z_ ]", t->kind) < 1) return 0;
    if ((p = strstr(line + n, "cluster="))) t->cluster = atoi(p + 8);
    t->waves = (p = strstr(line + n, "waves")) && p < colon;
    t->seeds = (p = strstr(line + n, "seeds")) && p < colon;
    if ((p = strstr(colon, "sum="))) t->sum = atol(p + 4), t->has_sum = 1;
    if ((p = strstr(colon, "path=")))
        t->has_path = sscanf(p + 5, "%ld-%ld", &t->low, &t->high) == 2;
    if ((p = strstr(colon, "alone="))) t->alone = atol(p + 6), t->has_alone = 1;
    size_t k = strlen(t->kind);
    if (!strncmp(t->kind, "ok", 2)) k = 2;
    while (k && t->kind[k - 1] == ' ') k--;
    t->kind[k] = 0;
    return 1;
}

/* Whether a line that the report begins with, or its callers, is marked for the test. */
static int marked(const char *report, const char *kind, const char *name) {
    size_t n = strlen(name);
    for (const char *at = report; (at = strstr(at, ".cu:")) && at < kind; at += 4) {
        int line = atoi(at + 4);
        if (line < 1 || line > lines) continue;
        const char *mark = strstr(text[line - 1], "// <-");
        while (mark && (mark = strstr(mark, name))) {
            if (mark[-1] == ' ' && strchr(" \n", mark[n])) return 1;
            mark += n;
        }
    }
    return 0;
}

static uint64_t alloc(size_t bytes) {
    uint64_t p = 0;
    must(emu_mem_alloc(&p, bytes), "alloc");
    return p;
}

/* Whether the counted path is as the test says. */
static int path_is(const Test *t) {
    char line[1 << 14] = "";
    FILE *f = fopen(counts, "r+");
    if (!f || !fgets(line, sizeof line, f)) line[0] = 0;
    if (f && ftruncate(fileno(f), 0)) exit(2);
    if (f) fclose(f);
    double ns = -1;
    long iterations = 0;
    sscanf(line, "{\"ns\": %lf", &ns);
    const char *alone = strstr(line, "\"alone\": [{");
    const char *p = alone ? strstr(alone, "\"iterations\": ") : NULL;
    if (p) iterations = atol(p + 14);
    if (t->has_path && (ns < (double)t->low || ns > (double)t->high))
        printf("%s: the path is %.1f ns, expected %ld to %ld\n%s", t->name, ns, t->low, t->high,
               line);
    else if (t->has_alone && iterations != t->alone)
        printf("%s: %ld iterations alone, expected %ld\n%s", t->name, iterations, t->alone, line);
    else
        return 1;
    return 0;
}

/* One launch; says what is wrong with it, or returns 1. found: the fault was. */
static int run_once(const Test *t, void *module, int *found) {
    void *function = NULL;
    must(emu_module_get_function(&function, module, t->name), t->name);
    if (t->shared) must(emu_func_set_attribute(function, 8, t->shared), "shared memory");
    uint64_t at = alloc(sizeof(Data));
    int in[DATA_WORDS], out[DATA_WORDS];
    for (int i = 0; i < DATA_WORDS; i++) in[i] = i;
    Data d = {.flag = (unsigned *)alloc(sizeof in), /* addresses are the process's too */
              .in = (int *)alloc(sizeof in),
              .out = (int *)alloc(sizeof in),
              .raw = (int *)alloc(sizeof in),
              .byte = (unsigned char *)alloc(DATA_WORDS)};
    must(emu_memset_d8((uint64_t)d.flag, 0, sizeof in), "set");
    must(emu_memset_d8((uint64_t)d.out, 0, sizeof in), "set");
    must(emu_memset_d8((uint64_t)d.byte, 0, DATA_WORDS), "set");
    must(emu_memcpy_htod((uint64_t)d.in, in, sizeof in), "copy");
    must(emu_memcpy_htod(at, &d, sizeof d), "copy");
    void *params[] = {&at};
    emu_launch_attribute attribute[2] = {
        {.id = EMU_LAUNCH_COOPERATIVE, .value.cooperative = !t->waves},
        {.id = EMU_LAUNCH_CLUSTER_DIMENSION}};
    attribute[1].value.cluster.x = (unsigned)t->cluster;
    attribute[1].value.cluster.y = attribute[1].value.cluster.z = 1;
    emu_launch_config c = {
        (unsigned)t->blocks, 1, 1, (unsigned)t->threads, 1, 1, (unsigned)t->shared, NULL,
        attribute,           2};
    const int counted = t->has_path || t->has_alone;
    if (counted) setenv("BRAID_EMULATE_COUNT", counts, 1);
    int error = emu_launch_kernel_ex(&c, function, params, NULL);
    unsetenv("BRAID_EMULATE_COUNT");
    const char *report = emu_last_report();
    int good = 1;
    if (!strcmp(t->kind, "ok")) {
        if (error) {
            printf("%s: error %d: %s\n", t->name, error, report);
            good = 0;
        }
        must(emu_memcpy_dtoh(out, (uint64_t)d.out, sizeof out), "copy");
        long sum = 0;
        for (int i = 0; i < DATA_WORDS; i++) sum += out[i];
        if (good && t->has_sum && sum != t->sum) {
            printf("%s: the sum is %ld, expected %ld\n", t->name, sum, t->sum);
            good = 0;
        }
        if (good && counted) good = path_is(t);
    } else if (!strcmp(t->kind, "refused")) {
        *found |= error == EMU_COOPERATIVE_TOO_LARGE;
    } else if (error) {
        char kind[80];
        snprintf(kind, sizeof kind, ": %s: ", t->kind);
        const char *at = strstr(report, kind);
        if (!at || !marked(report, at, t->name)) {
            printf("%s: expected '%s' at a marked line, got %s\n", t->name, t->kind, report);
            good = 0;
        }
        *found = 1;
    }
    uint64_t all[] = {
        at, (uint64_t)d.flag, (uint64_t)d.in, (uint64_t)d.out, (uint64_t)d.raw, (uint64_t)d.byte};
    for (int i = 0; i < 6; i++) must(emu_mem_free(all[i]), "free");
    return good;
}

int main(int argc, char **argv) {
    FILE *f = argc > 1 ? fopen(argv[1], "r") : NULL;
    if (!f) return 2;
    while (lines < MAX_LINES && fgets(text[lines], MAX_LINE, f)) lines++;
    fclose(f);
    void *context, *module;
    must(emu_init(0), "init");
    must(emu_device_primary_ctx_retain(&context, 0), "context");
    must(emu_ctx_set_current(context), "context");
    must(emu_module_load_data(&module, NULL), "module");
    const int fd = mkstemp(counts);
    if (fd < 0) return 2;
    close(fd);
    static const char *const schedule[] = {"fair", "random", "adversarial"};
    int tests = 0, bad = 0;
    for (int i = 0; i < lines; i++) {
        Test t;
        if (!parse(text[i], &t) || (argc > 2 && strcmp(argv[2], t.name))) continue;
        tests++;
        int good = 1, found = 0;
        for (int s = 0; s < 3; s++) {
            setenv("BRAID_EMULATE_SCHEDULE", schedule[s], 1);
            for (int seed = 0; seed < (s ? 2 * SEEDS : 1); seed++) {
                char number[16];
                snprintf(number, sizeof number, "%d", seed);
                setenv("BRAID_EMULATE_SEED", number, 1);
                int once = 0, ok = run_once(&t, module, &once);
                if (ok && strcmp(t.kind, "ok") && !once && !t.seeds) {
                    printf("%s: not found\n", t.name);
                    ok = 0;
                }
                if (!ok) printf("%s: schedule %s, seed %d\n", t.name, schedule[s], seed);
                good &= ok;
                found |= once;
                if (!ok) s = 3, seed = 2 * SEEDS;
            }
        }
        if (good && strcmp(t.kind, "ok") && !found) {
            printf("%s: not found by any schedule\n", t.name);
            good = 0;
        }
        bad += !good;
    }
    unlink(counts);
    must(emu_module_unload(module), "module");
    must(emu_device_primary_ctx_release(0), "context");
    printf("%s: %d tests, %d failed\n", argv[1], tests, bad);
    return bad || !tests;
}
