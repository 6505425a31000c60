/* calibrate.c: measures this machine with a program made of codegen/text/cpu/calibrate.inc. */
#include "codegen/build/calibrate.h"
#include "base/cleanup.h"
#include "codegen/embed.h"
#include "include/braid.h"
#include "include/braid_model.h"
#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>

#define NUMBERS 10

char *device_key(const CompileOptions *o) {
    char *key = NULL;
    const Device *row = device_find(o->target);
    if (o->cpu || !row || row->backend != BACKEND_C) return NULL;
    char model[256] = "";
    uint64_t machine = compile_machine(model, sizeof model);
    if (asprintf(&key, "%s, %d CPUs, %016llx, braid %s", model, compile_cpus(),
                 (unsigned long long)machine, BRAID_VERSION) < 0)
        return NULL;
    return key;
}

/* ---- caches ---------------------------------------------------------------------------------- */
static bool read_line(const char *folder, const char *name, char *line, int size) {
    char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "re");
    bool good = f && fgets(line, size, f);
    if (f) fclose(f);
    return good;
}

/* The bytes of this level's data cache, from Linux, else from the C library (which adds up the
 * caches of several sockets or dies). 0: not known, or there is none. */
static int64_t cache_bytes(int level) {
#ifdef __linux__
    for (int i = 0; i < 8; i++) {
        char folder[80], line[64], unit = 0;
        long long n = 0;
        snprintf(folder, sizeof folder, "/sys/devices/system/cpu/cpu0/cache/index%d", i);
        if (!read_line(folder, "level", line, sizeof line) || atoi(line) != level) continue;
        if (!read_line(folder, "type", line, sizeof line) || line[0] == 'I') continue;
        if (!read_line(folder, "size", line, sizeof line) || sscanf(line, "%lld%c", &n, &unit) < 1)
            continue;
        return n * (unit == 'K' ? 1 << 10 : unit == 'M' ? 1 << 20 : 1);
    }
#ifdef _SC_LEVEL1_DCACHE_SIZE
    static const int name[] = {_SC_LEVEL1_DCACHE_SIZE, _SC_LEVEL2_CACHE_SIZE,
                               _SC_LEVEL3_CACHE_SIZE};
    long n = sysconf(name[level - 1]);
    if (n > 0) return n;
#endif
#endif
    return 0;
}

/* ---- the program ----------------------------------------------------------------------------- */
static void program_text(Sb *s, int vec) {
    static const char *const parts[] = {
        "braid_model.h",     "cpu/ctx.inc",     "c.inc",        "cpu/prelude.inc",
        "arena.inc",         "scalar.inc",      "math.inc",     "cpu/calibrate.inc",
        "seed.inc",          "memory.inc",      "fault.inc",    "entry.inc",
        "cpu/processor.inc", "cpu/session.inc", "cpu/team.inc", "cpu/entry.inc"};
    sb_printf(s, "#ifndef _GNU_SOURCE\n#define _GNU_SOURCE\n#endif\n#define BK_VEC %d\n", vec);
    for (size_t i = 0; i < COUNT(parts); i++) sb_puts(s, embedded_text(parts[i]));
}

typedef struct Work { /* what changes between setjmp and longjmp must not be in local variables */
    Diag d;
    Sb text;
} Work;

static bool build(Work *w, const CompileOptions *o, const char *text_path, const char *so_path) {
    jmp_buf jb;
    w->d.top = &jb;
    w->text.d = &w->d;
    if (setjmp(jb) == 0) {
        program_text(&w->text, compile_vector_width(&w->d, o, NULL));
        FILE *f = fopen(text_path, "we");
        bool good = f && fwrite(w->text.p, 1, w->text.n, f) == w->text.n;
        if (f && fclose(f)) good = false;
        if (!good) err(&w->d, ST_IO, NULL, "cannot write %s", text_path);
        compile_build_cpu(&w->d, 0, NULL, text_path, so_path, o);
    }
    w->d.top = NULL;
    w->text.d = NULL;
    sb_free(&w->text);
    return w->d.status == ST_OK;
}

static bool run(const char *so_path, const int64_t *bytes, double *number) {
    void *so = dlopen(so_path, RTLD_NOW | RTLD_LOCAL), *session = NULL;
    if (!so) return false;
    const braid_model_v1 *(*get)(void) = NULL;
    *(void **)&get = dlsym(so, "braid_model");
    const braid_model_v1 *m = get ? get() : NULL;
    braid_session_config_v1 config = {.struct_size = sizeof config, .threads = compile_cpus()};
    braid_tensor_v1 in = {.data = (void *)(uintptr_t)bytes, .dtype = DT_I64, .rank = 1, .dim = {4}},
                    out;
    bool good =
        m && m->session_new(&config, &session) == 0 && m->run(session, &in, &out, NULL, 0) == 0;
    if (good) memcpy(number, out.data, NUMBERS * sizeof *number);
    if (m) m->session_free(session);
    dlclose(so);
    return good;
}

/* ---- the row --------------------------------------------------------------------------------- */
static double sane(double measured, double row) {
    if (!(measured > 0) || measured > 1e15) return row;
    return measured < row / DEVICE_FACTOR   ? row / DEVICE_FACTOR
           : measured > row * DEVICE_FACTOR ? row * DEVICE_FACTOR
                                            : measured;
}

static bool measure_now(const CompileOptions *o, Device *d) {
    const char *tmp = getenv("TMPDIR");
    char folder[4000], text[4096], so[4096];
    double r[NUMBERS] = {0};
    Device row = *d;
    DeviceLevel *l1 = &d->level[LEVEL_LANE], *l2 = &d->level[LEVEL_CORE],
                *l3 = &d->level[LEVEL_TEAM];
    int64_t size[3];
    for (int i = 0; i < 3; i++) size[i] = cache_bytes(i + 1);
    if (size[0] > 0) l1->bytes = size[0];
    if (size[1] > 0) l2->bytes = size[1];
    if (size[2] > 0) l3->bytes = size[2];
    /* Half of L1 and of L2, because they also hold other data. A part of the last cache, which
     * other cores share, but more than fits in L2. For DRAM twice that cache, at most 128 MiB. */
    int64_t part = 4 * l2->bytes < l3->bytes / 2 ? 4 * l2->bytes : l3->bytes / 2,
            most = (int64_t)128 << 20;
    int64_t bytes[4] = {l1->bytes / 2, l2->bytes / 2, part,
                        2 * l3->bytes < most ? 2 * l3->bytes : most};

    if (snprintf(folder, sizeof folder, "%s/braid-calibrate.XXXXXX", tmp && *tmp ? tmp : "/tmp") >=
            (int)sizeof folder ||
        !mkdtemp(folder))
        return false;
    cleanup_add(folder);
    snprintf(text, sizeof text, "%s/calibrate.c", folder);
    snprintf(so, sizeof so, "%s/calibrate.so", folder);
    Work w = {.d.progress = o->progress};
    bool good = build(&w, o, text, so) && run(so, bytes, r);
    cleanup_folder(folder);
    cleanup_drop(folder);
    if (!good) return false;

    d->gflops = sane(r[0], row.gflops);
    l1->read_gbps = sane(r[1], row.level[LEVEL_LANE].read_gbps);
    l2->read_gbps = sane(r[2], row.level[LEVEL_CORE].read_gbps);
    l3->read_gbps = sane(r[3], row.level[LEVEL_TEAM].read_gbps);
    d->dram_gbps = sane(r[4], row.dram_gbps);
    l3->barrier_ns = sane(r[5], row.level[LEVEL_TEAM].barrier_ns);
    d->element_ns = sane(r[6], row.element_ns);
    d->function_ns = sane(r[7], row.function_ns);
    d->scalar_ns = sane(r[8], row.scalar_ns);
    d->group_ns = sane(r[9], row.group_ns);
    d->measured = true;
    return true;
}

bool device_calibrated(const CompileOptions *o, Store *s, bool measure, Device *device) {
    const Device *row = device_find(o->target);
    if (!row) return false;
    *device = *row;
    if (device_is_gpu(row)) {
        store_device(s, row->name, device);
        return true;
    }
    char *key = device_key(o);
    /* Of several processes only one measures; the others wait, so that they do not disturb it. */
    if (key && !store_device(s, key, device) && measure && store_begin(s)) {
        if (!store_device(s, key, device)) {
            /* If the caller gives up, the compilation that this is for ends at its next tick. */
            if (progress_step(o->progress, "measuring this machine, once") &&
                measure_now(o, device))
                store_keep_device(s, key, device);
            else
                *device = *row;
        }
        store_commit(s);
    }
    free(key);
    return true;
}
