/* Compiles models for GPUs that need not be here, and compares what the compilers say of the
 * kernels with what was planned.
 *
 *     gpu_compile [-s SECONDS] TARGET MODEL.onnx...
 *
 * One line a model: registers of a thread, bytes that it spills and of its stack, bytes of a
 * block's memory and how many of them hold weights for the whole run, how many blocks a
 * multiprocessor has room for, the device text's size, and the seconds of the device's compiler.
 * Fails when one
 *   - is not compiled, or takes the device's compiler longer than SECONDS (60),
 *   - spills registers although weights are kept on chip for the whole run, or many,
 *   - has other memory of a block than what was planned, or weights there beyond it,
 *   - has no room on the chip for as many blocks as were scheduled, all at the same time,
 *   - has a text above 250 KB.
 * A text that another model gave already is not compiled again. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "codegen/compile.h"
#include "scheduler/cost/decide.h"
#include "scheduler/cost/device.h"

#define SPILL_LIMIT 256 /* bytes */
#define TEXT_LIMIT (250 << 10)

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void put_file(Diag *d, const char *path, const Sb *s) {
    FILE *f = fopen(path, "wb");
    bool ok = f && fwrite(s->p, 1, s->n, f) == s->n;
    if (f && fclose(f)) ok = false;
    if (!ok) err(d, ST_IO, NULL, "cannot write %s", path);
}

/* Blocks that a multiprocessor of the target holds at the same time: CUDA's has 65,536 registers,
 * which are taken by eights, and up to 2,048 threads; HIP's has 4 SIMDs. */
static int blocks_with_room(const Device *device, const GpuFacts *f, int64_t shared) {
    int blocks = 4 * f->waves / (device->threads / device->warp);
    if (!strncmp(device->name, "cuda:", 5)) {
        blocks = 65536 / ((f->registers + 7) / 8 * 8 * device->threads);
        if (blocks > 2048 / device->threads) blocks = 2048 / device->threads;
    }
    int64_t room = device->level[LEVEL_CORE].bytes;
    if (shared > 0 && blocks > room / shared) blocks = (int)(room / shared);
    return blocks;
}

/* The number that the host's text defines as `name`. */
static int64_t defined(const char *text, const char *name) {
    const char *p = strstr(text, name);
    return p ? atoll(p + strlen(name)) : 0;
}

/* What lies in a block's memory for the whole run. */
static int64_t kept_bytes(const Facts *f) {
    int64_t n = 0;
    for (int i = 0; i < f->residents.n; i++)
        if (f->residents.p[i].kept) n += f->residents.p[i].bytes;
    return n;
}

/* Behind the line with the model's name. */
static uint64_t text_hash(const Sb *text) {
    const char *p = memchr(text->p, '\n', text->n);
    uint64_t h = 14695981039346656037u;
    for (; p < text->p + text->n; p++) h = (h ^ (unsigned char)*p) * 1099511628211u;
    return h;
}

typedef struct Job {
    Diag d;
    Arena *a;
    Texts t;
    const Device *device_row;
    char device[PATH_MAX], host[PATH_MAX], weights[PATH_MAX], so[PATH_MAX], mapped[PATH_MAX];
} Job;

/* Hashes of the texts that were compiled. */
typedef struct Seen {
    uint64_t *hash;
    int n;
} Seen;

static const char *what_is_wrong(const Job *j, const Facts *plan, const GpuFacts *f, int units,
                                 int blocks, double took, double most) {
    const Device *device = j->device_row;
    int64_t room = device->level[LEVEL_CORE].bytes;
    if (f->spill_bytes > (kept_bytes(plan) ? 0 : SPILL_LIMIT)) return ", spills";
    if (f->shared_bytes) return ", memory of a block that is not planned";
    if (defined(j->t.host.p, "#define BK_SHARED_BYTES ") != plan->shared_bytes ||
        plan->shared_bytes > room || kept_bytes(plan) > plan->shared_bytes)
        return ", not the memory of a block that was planned";
    if (blocks < 1 || (int64_t)blocks * device->units < units) return ", no room for the blocks";
    if (j->t.text.n > TEXT_LIMIT) return ", too much text";
    return took > most ? ", too slow" : "";
}

static bool compile(Job *j, const char *model, const char *target, const char *folder, double most,
                    Seen *seen) {
    CompileOptions o = {.target = target};
    Facts plan;
    GpuFacts f;
    jmp_buf jb;
    j->d.top = &jb;
    if (setjmp(jb)) {
        printf("FAIL %s %s: %s\n", target, model, j->d.message);
        return false;
    }
    j->device_row = device_find(target);
    if (!j->device_row || !j->device_row->threads)
        err(&j->d, ST_USAGE, NULL, "%s is no GPU", target);
    snprintf(j->device, sizeof j->device, "%s/kernel.cu", folder);
    snprintf(j->host, sizeof j->host, "%s/host.c", folder);
    snprintf(j->weights, sizeof j->weights, "%s/host.c.weights", folder);
    snprintf(j->so, sizeof j->so, "%s/model.so", folder);
    snprintf(j->mapped, sizeof j->mapped, "%s/model.so.weights", folder);
    j->a = arena_new(&j->d);
    Program *p = compile_program(j->a, &j->d, model, &o);
    plan = plan_facts(p);
    compile_emit(p, &j->t);
    uint64_t hash = text_hash(&j->t.text);
    for (int i = 0; i < seen->n; i++)
        if (seen->hash[i] == hash) {
            printf("same %-10s %s: the text of a model above\n", target, model);
            return true;
        }
    seen->hash[seen->n++] = hash;
    put_file(&j->d, j->device, &j->t.text);
    put_file(&j->d, j->host, &j->t.host);
    if (j->t.weights.n) put_file(&j->d, j->weights, &j->t.weights);
    double start = now();
    compile_build_gpu(&j->d, j->device, j->host, j->so, &o, &f);
    double took = now() - start;
    int64_t shared = f.shared_bytes + plan.shared_bytes;
    int blocks = blocks_with_room(j->device_row, &f, shared);
    const char *wrong = what_is_wrong(j, &plan, &f, p->schedule->team, blocks, took, most);
    printf("%s %-10s %s: %d registers, %d spilled, %d of stack, %lld of shared memory with %lld of "
           "weights, "
           "%d blocks, %zu KB of text, %.1f s%s\n",
           *wrong ? "FAIL" : "ok  ", target, model, f.registers, f.spill_bytes, f.stack_bytes,
           (long long)shared, (long long)kept_bytes(&plan), blocks, j->t.text.n >> 10, took, wrong);
    return !*wrong;
}

int main(int argc, char **argv) {
    double most = 60;
    int first = 1, failed = 0;
    char folder[] = "/tmp/gpu_compile_XXXXXX";
    if (argc > 2 && !strcmp(argv[1], "-s")) {
        most = atof(argv[2]);
        first = 3;
    }
    if (argc < first + 2 || !mkdtemp(folder)) {
        fprintf(stderr, "usage: gpu_compile [-s SECONDS] TARGET MODEL.onnx...\n");
        return 2;
    }
    Seen seen = {calloc((size_t)argc, sizeof *seen.hash), 0};
    if (!seen.hash) return 2;
    for (int i = first + 1; i < argc; i++) {
        Job *j = calloc(1, sizeof *j);
        if (!j) return 2;
        failed += !compile(j, argv[i], argv[first], folder, most, &seen);
        fflush(stdout);
        const char *const files[] = {j->device, j->host, j->weights, j->so, j->mapped};
        for (size_t k = 0; k < COUNT(files); k++)
            if (*files[k]) unlink(files[k]);
        texts_free(&j->t);
        if (j->a) arena_free(j->a);
        free(j);
    }
    free(seen.hash);
    rmdir(folder);
    return failed ? 1 : 0;
}
