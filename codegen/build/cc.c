/* cc.c: the machine's C compiler and processor: commands, options, facts. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "codegen/build/build.h"
#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <cpuid.h>
#define CPUID_AVX_VNNI (1u << 4) /* leaf 7, 1: EAX */
#elif defined(__aarch64__) && defined(__linux__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

const char *build_tool(const char *name, const char *otherwise) {
    const char *tool = getenv(name);
    return tool && *tool ? tool : otherwise;
}
const char *build_cc(const CompileOptions *o) {
    return o->cc && *o->cc ? o->cc : build_tool("CC", "cc");
}

void build_no_cc(Diag *d, const CompileOptions *o) {
    err(d, ST_IO, NULL,
        "the C compiler %s cannot be run: install one (Debian: build-essential), or name another "
        "one ($CC, or the option cc)",
        build_cc(o));
}

/* A name is put into a command. */
static void check_name(Diag *d, const char *cpu) {
    for (const char *p = cpu; *p; p++)
        if (!isalnum((unsigned char)*p) && !strchr("-_.+", *p))
            err(d, ST_USAGE, NULL, "'%s' is not the name of a processor", cpu);
}

const char *build_arch(Diag *d, const CompileOptions *o, char *buf, size_t size) {
#if defined(__aarch64__)
    static const char *const option[] = {"-mcpu", "-march"};
#else
    static const char *const option[] = {"-march", "-mcpu"};
#endif
    const char *cpu = o->cpu ? o->cpu : "native";
    char out[4096];
    check_name(d, cpu);
    for (size_t i = 0; i < 2 * COUNT(option); i++) {
        char *argv[] = {ARG(build_cc(o)), buf, "-Werror", "-E", "-x", "c", "/dev/null", NULL};
        const int n = snprintf(buf, size, "%s=", option[i % COUNT(option)]);
        snprintf(buf + n, size - (size_t)n, "%s", cpu);
        if (!o->cpu) return buf;
        for (char *p = buf + n; i >= COUNT(option) && *p; p++)
            if (*p == '-') *p = '_';
        int status = build_run(d, NULL, argv, out, sizeof out);
        if (status < 0) build_no_cc(d, o);
        if (!status) return buf;
    }
    err(d, ST_IO, NULL, "the C compiler %s does not know the processor %s", build_cc(o), cpu);
}

/* The float lanes of instruction sets that are known without asking a compiler; 0: of another
 * one. */
static int known_lanes(const char *cpu) {
    static const struct {
        const char *name;
        int lanes;
    } set[] = {{"x86-64", 4}, {"x86-64-v2", 4}, {"x86-64-v3", 8}, {"x86-64-v4", 16}};
    for (size_t i = 0; i < COUNT(set); i++)
        if (strcmp(cpu, set[i].name) == 0) return set[i].lanes;
    return strncmp(cpu, "armv8", 5) == 0 || strncmp(cpu, "armv9", 5) == 0 ? 4 : 0; /* NEON */
}

void compile_arch(Diag *d, const CompileOptions *o, char *option, size_t size) {
    if (o->cpu && known_lanes(o->cpu)) {
        check_name(d, o->cpu);
        snprintf(option, size, "-march=%s", o->cpu);
    } else
        build_arch(d, o, option, size);
}

/* Schedule.dots of what known_lanes knows: of Armv8 from 8.4 on, and where the name says so. */
static int known_dots(const char *cpu) {
    if (strncmp(cpu, "x86-64-v", 8) == 0) return 2;
    return strncmp(cpu, "armv9", 5) == 0 || strstr(cpu, "+dotprod") || strstr(cpu, "+i8mm") ||
                   (strncmp(cpu, "armv8.", 6) == 0 && cpu[6] >= '4')
               ? 4
               : 0;
}

/* The float lanes of this machine's processor; 0: a compiler has to be asked. */
static int own_lanes(int *dots) {
#if defined(__x86_64__)
    unsigned a, b, c = 0, d, more = 0;
    __builtin_cpu_init();
    const int lanes = __builtin_cpu_supports("avx512f") ? 16
                      : __builtin_cpu_supports("avx2")  ? 8
                                                        : 4;
    if (__get_cpuid_count(7, 0, &a, &b, &c, &d) && a) __cpuid_count(7, 1, more, b, a, d);
    const bool four = lanes == 16 ? c & bit_AVX512VNNI : lanes == 8 && more & CPUID_AVX_VNNI;
    *dots = four ? 4 : __builtin_cpu_supports("ssse3") ? 2 : 0;
    return lanes;
#elif defined(__aarch64__)
#ifdef __linux__
    *dots = getauxval(AT_HWCAP) & HWCAP_ASIMDDP ? 4 : 0;
#endif
    return 4;
#else
    (void)dots;
    return 0;
#endif
}

int compile_vector_width(Diag *d, const CompileOptions *o, int *dots) {
    int own;
    if (!dots) dots = &own;
    *dots = o->cpu ? known_dots(o->cpu) : 0;
    if (o->cpu && known_lanes(o->cpu)) return known_lanes(o->cpu);
    const int lanes = o->cpu ? 0 : own_lanes(dots);
    if (lanes) return lanes;
    char arch[128], out[65536];
    char *argv[] = {ARG(build_cc(o)),
                    ARG(build_arch(d, o, arch, sizeof arch)),
                    "-dM",
                    "-E",
                    "-x",
                    "c",
                    "/dev/null",
                    NULL};
    int status = build_run(d, NULL, argv, out, sizeof out);
    if (status < 0) build_no_cc(d, o);
    if (status)
        err(d, ST_IO, NULL, "the C compiler %s does not know the processor %s", build_cc(o),
            o->cpu ? o->cpu : "native");
    *dots = strstr(out, "__AVX512VNNI__") || strstr(out, "__AVXVNNI__") ||
                    strstr(out, "__ARM_FEATURE_DOTPROD")
                ? 4
            : strstr(out, "__SSSE3__") ? 2
                                       : 0;
    return strstr(out, "__AVX512F__") ? 16 : strstr(out, "__AVX2__") ? 8 : 4;
}

uint64_t compile_machine(char *model, size_t size) {
    static const char *const keys[] = {"model name",      "flags",    "Features",
                                       "CPU implementer", "CPU part", "isa"};
    char line[8192];
    uint64_t h = 1;
    FILE *f = fopen("/proc/cpuinfo", "re");
    if (size) snprintf(model, size, "processor");
    while (f && fgets(line, sizeof line, f) && *line != '\n') {
        for (size_t i = 0; i < COUNT(keys); i++)
            if (strncmp(line, keys[i], strlen(keys[i])) == 0)
                h = hash_bytes(line, strlen(line) + 1, h);
        const char *name =
            size && strncmp(line, keys[0], strlen(keys[0])) == 0 ? strchr(line, ':') : NULL;
        if (name) snprintf(model, size, "%.*s", (int)strcspn(name + 2, "\n"), name + 2);
    }
    if (f) fclose(f);
    return h;
}

int compile_cpus(void) {
    long n = sysconf(_SC_NPROCESSORS_ONLN);
#ifdef __linux__
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0) n = CPU_COUNT(&set);
#endif
    return n > 0 ? (int)n : 1;
}

void build_path(Diag *d, char *buf, size_t size, const char *path, const char *suffix) {
    if (snprintf(buf, size, "%s%s", path, suffix) >= (int)size || strpbrk(path, "\"\\"))
        err(d, ST_IO, NULL, "%s: the path cannot be used", path);
}

void build_weights(Diag *d, const char *text_path, const char *so_path) {
    char from[4100], to[4100];
    struct stat st;
    build_path(d, from, sizeof from, text_path, ".weights");
    if (stat(from, &st) || (size_t)st.st_size <= WEIGHTS_MAPPED) return;
    build_path(d, to, sizeof to, so_path, ".weights");
    if (rename(from, to)) err(d, ST_IO, NULL, "cannot write %s: %s", to, strerror(errno));
}

/* -fpeel-loops unrolls short loops of known trip count (over the rows and lanes of a tile), so that
 * their values stay in registers. */
const char *const compile_flags[COMPILE_FLAGS + 1] = {"-std=gnu11",
                                                      "-fpeel-loops",
                                                      "-ftree-vectorize",
                                                      "-fopenmp-simd",
                                                      "-ffp-contract=off",
                                                      "-fno-math-errno",
                                                      "-fno-trapping-math",
                                                      "-fwrapv",
                                                      "-w",
                                                      "-fPIC",
                                                      "-fvisibility=hidden"};

/* ---- what a command depends on ----------------------------------------------------------------
 */
uint64_t compile_hash_file(const char *path, uint64_t h) {
    struct stat s;
    h = hash_bytes(path, strlen(path) + 1, h);
    int64_t id[3] = {-1, 0, 0};
    if (stat(path, &s) == 0) {
        id[0] = s.st_size;
        id[1] = (int64_t)s.st_ino;
        id[2] = (int64_t)s.st_mtim.tv_sec * 1000000000 + s.st_mtim.tv_nsec;
    }
    return hash_bytes(id, sizeof id, h);
}

/* Hashes the file of a program of n characters, as PATH finds it. */
static uint64_t hash_program(const char *word, int n, uint64_t h) {
    const char *path = memchr(word, '/', (size_t)n) ? "" : getenv("PATH");
    char file[4096], real[PATH_MAX];
    for (const char *p = path ? path : ""; p; p = strchr(p, ':') ? strchr(p, ':') + 1 : NULL) {
        const size_t k = strcspn(p, ":");
        if (snprintf(file, sizeof file, "%.*s%s%.*s", (int)k, p, k ? "/" : "", n, word) <
                (int)sizeof file &&
            access(file, X_OK) == 0)
            return realpath(file, real) ? compile_hash_file(real, h) : h;
    }
    return h;
}

/* Each word may be a program: "ccache gcc -m64". */
uint64_t compile_hash_command(const char *command, uint64_t h) {
    h = hash_bytes(command, strlen(command) + 1, h);
    for (const char *p = command; *p;) {
        const size_t n = strcspn(p, " ");
        if (n && *p != '-') h = hash_program(p, (int)n, h);
        p += n + strspn(p + n, " ");
    }
    return h;
}
