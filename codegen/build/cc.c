/* cc.c: compiles an emitted text to a shared library with the machine's C compiler. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "codegen/build/build.h"
#include "base/cleanup.h"
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

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

/* A copy of argv whose first entry, such as "ccache gcc -m64", is split into words, unless it is a
 * path with spaces. The caller frees the array and its [0], which holds the text of all words.
 * NULL: no memory. */
static char **with_words(char *const *argv) {
    size_t n = 1, words = 1;
    while (argv[n]) n++;
    for (const char *p = argv[0]; *p; p++) words += *p == ' ';
    char **v = calloc(n + words + 1, sizeof *v), *text = v ? strdup(argv[0]) : NULL;
    if (!text) {
        free((void *)v);
        return NULL;
    }
    size_t k = 0;
    bool whole = access(argv[0], X_OK) == 0; /* a path with spaces */
    char *from = text;
    for (char *p = text; !whole && *p == ' '; p++) from = p + 1;
    memmove(text, from, strlen(from) + 1);
    v[k++] = text;
    for (char *p = text; !whole && *p; p++) {
        if (*p != ' ') continue;
        *p = 0;
        if (p[1] && p[1] != ' ') v[k++] = p + 1;
    }
    for (size_t i = 1; i < n; i++) v[k++] = argv[i];
    return v;
}

/* Reads what the child writes to `fd` until its end. False: the caller gives up. */
static bool read_output(Progress *p, int fd, char *out, size_t size) {
    struct pollfd to_read = {fd, POLLIN, 0};
    size_t n = 0;
    char drop[4096];
    bool go = true;
    for (ssize_t r = 1; r > 0 && go; go = progress_ask(p)) {
        if (p && poll(&to_read, 1, 100) == 0) continue;
        bool room = n + 1 < size;
        r = read(fd, room ? out + n : drop, room ? size - n - 1 : sizeof drop);
        if (r < 0 && errno == EINTR)
            r = 1;
        else if (r > 0 && room)
            n += (size_t)r;
    }
    out[n] = 0;
    return go;
}

/* Waits, but not for long, until no process has the other end of the pipe: what was killed makes no
 * file after that. */
static void wait_end(int fd) {
    struct pollfd to_read = {fd, POLLIN, 0};
    char drop[4096];
    while (poll(&to_read, 1, 1000) > 0 && read(fd, drop, sizeof drop) > 0) {}
}

/* A copy of the environment where TMPDIR is the folder of the file `beside`. The caller frees the
 * array and its [0], the new entry. NULL: no memory. */
static char **with_tmpdir(const char *beside) {
    size_t n = 0, k = 1;
    while (environ[n]) n++;
    char **env = calloc(n + 2, sizeof *env);
    const char *slash = strrchr(beside, '/');
    if (!env || asprintf(&env[0], "TMPDIR=%.*s", slash ? (int)(slash - beside + 1) : 1,
                         slash ? beside : ".") < 0) {
        free((void *)env);
        return NULL;
    }
    for (size_t i = 0; i < n; i++)
        if (strncmp(environ[i], "TMPDIR=", 7) != 0) env[k++] = environ[i];
    return env;
}

int build_run(Diag *d, const char *beside, char *const *argv, char *out, size_t size) {
    int fd[2];
    pid_t pid;
    posix_spawn_file_actions_t fa;
    out[0] = 0;
    if (pipe2(fd, O_CLOEXEC)) return -1;
    posix_spawn_file_actions_init(&fa);
    posix_spawn_file_actions_addopen(&fa, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&fa, fd[1], 1);
    posix_spawn_file_actions_adddup2(&fa, fd[1], 2);
    char **split = with_words(argv);
    char **env = beside ? with_tmpdir(beside) : environ;
    int e = split && env ? cleanup_spawn(&pid, &fa, split, env, d->progress != NULL) : ENOMEM;
    if (beside && env) free(env[0]);
    if (beside) free((void *)env);
    if (split) free(split[0]);
    free((void *)split);
    posix_spawn_file_actions_destroy(&fa);
    close(fd[1]);
    const bool go = e || read_output(d->progress, fd[0], out, size);
    if (!go) {
        cleanup_kill(pid);
        wait_end(fd[0]);
    }
    close(fd[0]);
    if (e) return -1;
    int status = cleanup_wait(pid);
    if (!go) progress_tick(d); /* raises */
    if (status == -1) return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 127;
}

/* A name is put into a command. */
static void check_name(Diag *d, const char *cpu) {
    for (const char *p = cpu; *p; p++)
        if (!isalnum((unsigned char)*p) && !strchr("-_.+", *p))
            err(d, ST_USAGE, NULL, "'%s' is not the name of a processor", cpu);
}

/* "-march=…" or "-mcpu=…" for the processor that o names. Which option knows the name depends on
 * the compiler's target (clang only warns of one that its target lacks); zig writes '_' for '-' in
 * names. */
static const char *march(Diag *d, const CompileOptions *o, char *buf, size_t size) {
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
        march(d, o, option, size);
}

int compile_vector_width(Diag *d, const CompileOptions *o) {
    if (o->cpu && known_lanes(o->cpu)) return known_lanes(o->cpu);
#if defined(__x86_64__)
    if (!o->cpu) {
        __builtin_cpu_init();
        return __builtin_cpu_supports("avx512f") ? 16 : __builtin_cpu_supports("avx2") ? 8 : 4;
    }
#elif defined(__aarch64__)
    if (!o->cpu) return 4;
#endif
    char arch[128], out[65536];
    char *argv[] = {ARG(build_cc(o)),
                    ARG(march(d, o, arch, sizeof arch)),
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

static void copy_file(Diag *d, const char *from, const char *to) {
    char buf[1 << 16];
    FILE *in = fopen(from, "rb"), *out = in ? fopen(to, "wb") : NULL;
    bool ok = in && out;
    for (size_t n; ok && (n = fread(buf, 1, sizeof buf, in)) > 0;) ok = fwrite(buf, 1, n, out) == n;
    ok = ok && !ferror(in);
    if (in) fclose(in);
    if (out && fclose(out)) ok = false;
    if (!ok) err(d, ST_IO, NULL, "cannot write %s: %s", to, strerror(errno));
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
    copy_file(d, from, to);
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

void compile_build_cpu(Diag *d, const char *text_path, const char *so_path,
                       const CompileOptions *o) {
    char arch[128], define[4200], weights[4100], out[2048];
    build_path(d, weights, sizeof weights, text_path, ".weights");
    snprintf(define, sizeof define, "-DBK_WEIGHTS_FILE=\"%s\"", weights);
    char *own[] = {"-O2",          "-shared", ARG(march(d, o, arch, sizeof arch)),
                   define,         "-o",      ARG(so_path),
                   ARG(text_path), "-lm",     "-ldl",
                   "-lpthread"};
    char *argv[1 + COUNT(compile_flags) + COUNT(own)];
    size_t n = 0;
    argv[n++] = ARG(build_cc(o));
    for (const char *const *flag = compile_flags; *flag; flag++) argv[n++] = ARG(*flag);
    for (size_t i = 0; i < COUNT(own); i++) argv[n++] = own[i];
    argv[n] = NULL;
    int status = build_run(d, so_path, argv, out, sizeof out);
    if (status < 0) build_no_cc(d, o);
    if (status) err(d, ST_IO, NULL, "the C compiler %s failed: %s", build_cc(o), out);
    build_weights(d, text_path, so_path);
}
