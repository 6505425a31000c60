/* gpu.c: compiles a device text and a host text to a shared library.
 *
 *   cuda:sm_NN    nvcc compiles the device text to a code object; without nvcc, NVRTC does
 *   hip:gfxNN     a hipify tool and hip.c translate it to HIP, which hipcc compiles
 *   emulate:NAME  the C++ compiler compiles it to an object, instrumented for the emulator
 *
 * Then the C compiler compiles the host text, which includes the code object; an emulated kernel is
 * linked with it. The compilers may not contract sums and products: the text writes each fused
 * multiply-add as one. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "codegen/build/build.h"
#include "codegen/embed.h"
#include "scheduler/cost/device.h"
#include <dlfcn.h>
#include <errno.h>
#include <libgen.h>
#include <stdlib.h>
#include <unistd.h>

#define PATH_BYTES 4200
#define LOG_BYTES ((size_t)4 << 20)

/* A build. Its own files are beside the device text, and are removed at its end. */
typedef struct Build {
    Diag *d;
    const CompileOptions *o;                  /* NULL: nothing is compiled, only translated */
    const char *target, *chip;                /* the target, and its part after the colon */
    const char *device, *host_text, *library; /* paths of the two texts and of the result */
    const char *keep;                         /* the one of the files below to keep, or NULL */
    char code[PATH_BYTES], hip[PATH_BYTES], tool[PATH_BYTES], header[PATH_BYTES],
        kernel[PATH_BYTES], host[PATH_BYTES];
    char *log, *text, *image; /* malloc'd */
    Sb out;
    GpuFacts facts;
} Build;

/* ---- files ---- */
static void write_file(Diag *d, const char *path, const char *p, size_t n) {
    FILE *f = fopen(path, "wb");
    bool ok = f && fwrite(p, 1, n, f) == n;
    if (f && fclose(f)) ok = false;
    if (!ok) err(d, ST_IO, NULL, "cannot write %s", path);
}

/* Reads the file at `path` into b->text, which lives until the next call. */
static const char *read_text(Build *b, const char *path) {
    FILE *f = fopen(path, "rb");
    size_t n = 0, cap = 0;
    free(b->text);
    b->text = NULL;
    for (bool more = f != NULL; more;) {
        if (n + 1 >= cap) {
            char *p = realloc(b->text, cap = cap ? 2 * cap : 1 << 16);
            if (!p) {
                fclose(f);
                err(b->d, ST_MEMORY, NULL, "out of memory");
            }
            b->text = p;
        }
        size_t r = fread(b->text + n, 1, cap - n - 1, f);
        n += r;
        more = r > 0;
    }
    bool ok = f && !ferror(f);
    if (f) fclose(f);
    if (!ok) err(b->d, ST_IO, NULL, "cannot read %s", path);
    b->text[n] = 0;
    return b->text;
}

/* ---- compilers ---- */
/* The compilers' options, beside those for the chip and for what Braid reads of their messages. */
static const char *const nvcc_options[] = {"-cubin", "-std=c++17", "-O3", "--fmad=false",
                                           "-w",     "-x",         "cu",  NULL};
static const char *const hipcc_options[] = {"--genco",
                                            "--hipcc-func-supp", /* functions are called */
                                            "-mllvm", /* a block's memory is what is planned */
                                            "-disable-promote-alloca-to-lds=true",
                                            "-std=c++17",
                                            "-O3",
                                            "-ffp-contract=off",
                                            "-fwrapv",
                                            "-fno-strict-aliasing",
                                            "-w",
                                            "-x",
                                            "hip",
                                            NULL};
const char *const compile_host_flags[] = {"-std=gnu11",          "-fwrapv", "-w", "-fPIC",
                                          "-fvisibility=hidden", NULL};
#define OPTIONS_MAX 32 /* words of a command */

static size_t append(char **argv, size_t n, const char *const *word) {
    for (; *word; word++) argv[n++] = ARG(*word);
    return n;
}

void compile_device_command(const char *target, Sb *to) {
    const bool cuda = device_find(target)->backend == BACKEND_CUDA;
    sb_puts(to, cuda ? "nvcc -arch=" : "hipcc --offload-arch=");
    sb_puts(to, strchr(target, ':') + 1);
    for (const char *const *word = cuda ? nvcc_options : hipcc_options; *word; word++)
        sb_printf(to, " %s", *word);
}

static int run(Build *b, char *const *argv) {
    return build_run(b->d, b->device, argv, b->log, LOG_BYTES);
}

/* Raises, with the compiler's messages from the first line with "error" on. */
static _Noreturn void failed(Build *b, const char *tool) {
    const char *p = strstr(b->log, "error");
    while (p && p > b->log && p[-1] != '\n') p--;
    err(b->d, ST_IO, NULL, "%s failed: %.700s", tool, p ? p : b->log);
}

/* The number right before `what` in the first line of `line`; 0 if there is none. */
static int number_before(const char *line, const char *what) {
    const char *end = line + strcspn(line, "\n"), *p = strstr(line, what);
    if (!p || p >= end) return 0;
    while (p > line && p[-1] == ' ') p--;
    while (p > line && p[-1] >= '0' && p[-1] <= '9') p--;
    return atoi(p);
}

/* Reads the output of ptxas -v. The kernel's registers include those of the functions it calls;
 * spills are added up over all functions. */
static void ptxas_facts(GpuFacts *f, const char *log) {
    for (const char *line = log; *line; line += strcspn(line, "\n"), line += *line == '\n') {
        f->spill_bytes += number_before(line, "bytes spill stores");
        int stack = number_before(line, "bytes cumulative stack size"),
            frame = number_before(line, "bytes stack frame");
        if (f->stack_bytes < stack) f->stack_bytes = stack;
        if (f->stack_bytes < frame) f->stack_bytes = frame;
        int registers = number_before(line, "registers");
        if (strstr(line, "Used ") && f->registers < registers) f->registers = registers;
        f->shared_bytes += number_before(line, "bytes smem");
    }
}

/* The number after `what` in clang's remarks on the kernel, whose registers include those of the
 * functions that it calls; 0 if there is none. */
static int remark(const char *log, const char *what) {
    const char *p = strstr(log, "Function Name: braid_kernel");
    p = p ? strstr(p, what) : NULL;
    return p ? atoi(p + strlen(what)) : 0;
}

static void clang_facts(GpuFacts *f, const char *log) {
    f->registers = remark(log, " VGPRs: ") + remark(log, " AGPRs: ");
    const char *const spill = "VGPRs Spill: ";
    for (const char *p = log; (p = strstr(p, spill)); p++)
        f->spill_bytes += 4 * atoi(p + strlen(spill));
    f->stack_bytes = remark(log, "ScratchSize [bytes/lane]: ");
    f->shared_bytes = remark(log, "LDS Size [bytes/block]: ");
    f->waves = remark(log, "Occupancy [waves/SIMD]: ");
}

static void build_nvrtc(Build *b) {
    char *log;
    size_t size;
    progress_tick(b->d);
    if (!nvrtc_compile(read_text(b, b->device), b->chip, &b->image, &size, &log))
        err(b->d, ST_IO, NULL,
            "cuda:%s needs nvcc (from NVIDIA's CUDA toolkit; $NVCC names another one) or "
            "libnvrtc.so",
            b->chip);
    snprintf(b->log, LOG_BYTES, "%s", log);
    free(log);
    progress_tick(b->d);
    if (!b->image) failed(b, "NVRTC");
    ptxas_facts(&b->facts, b->log);
    write_file(b->d, b->code, b->image, size);
}

static void build_cuda(Build *b) {
    const char *const nvcc[] = {build_tool("NVCC", "nvcc"), "/usr/local/cuda/bin/nvcc"};
    char arch[64];
    if (!strcmp(nvcc[0], "nvrtc")) {
        build_nvrtc(b);
        return;
    }
    snprintf(arch, sizeof arch, "-arch=%s", b->chip);
    for (size_t i = 0; i < COUNT(nvcc); i++) {
        const char *const own[] = {arch, "-Xptxas", "-v", "-o", b->code, b->device, NULL};
        char *argv[OPTIONS_MAX] = {ARG(nvcc[i])};
        append(argv, append(argv, 1, nvcc_options), own);
        int status = run(b, argv);
        if (status > 0) failed(b, nvcc[i]);
        if (status == 0) {
            ptxas_facts(&b->facts, b->log);
            return;
        }
    }
    build_nvrtc(b);
}

/* ---- HIP ---- */
/* Translates a file in place by torch.utils.hipify, without loading the rest of torch. */
static const char hipify_script[] =
    "import contextlib, importlib.util, io, os, sys\n"
    "spec = importlib.util.find_spec('torch')\n"
    "sys.path.insert(0, os.path.join(os.path.dirname(spec.origin), 'utils'))\n"
    "from hipify import hipify_python as h\n"
    "path = os.path.abspath(sys.argv[1])\n"
    "with contextlib.redirect_stdout(io.StringIO()):\n"
    "    r = h.hipify(project_directory=os.path.dirname(path), "
    "output_directory=os.path.dirname(path),\n"
    "                 includes=[path], extra_files=[path], is_pytorch_extension=True, "
    "hipify_extra_files_only=True)\n"
    "os.replace(r[path].hipified_path, path)\n";

/* The device text after a hipify tool, or unchanged if there is no tool. $HIPIFY names the tool: a
 * program such as hipify-perl, "torch", or "own" for none. If it is not set, the first tool that
 * works is used. */
static const char *hipified(Build *b) {
    const char *wanted = build_tool("HIPIFY", NULL);
    const char *const tool[] = {wanted, "hipify-perl", "hipify-clang"};
    bool torch = wanted && !strcmp(wanted, "torch");
    char to[PATH_BYTES + 4];
    if (wanted && !strcmp(wanted, "own")) return read_text(b, b->device);
    snprintf(to, sizeof to, "-o=%s", b->tool);
    for (size_t i = torch ? COUNT(tool) : 0; i < COUNT(tool); i++) {
        char *argv[] = {ARG(tool[i]), to, ARG(b->device), NULL};
        if (tool[i] && run(b, argv) == 0 && access(b->tool, R_OK) == 0)
            return read_text(b, b->tool);
        if (wanted) err(b->d, ST_IO, NULL, "%s cannot translate a CUDA text", wanted);
    }
    const char *text = read_text(b, b->device);
    write_file(b->d, b->tool, text, strlen(text));
    char *python[] = {"python3", "-c", ARG(hipify_script), b->tool, NULL};
    bool done = run(b, python) == 0;
    if (torch && !done)
        err(b->d, ST_IO, NULL, "python3 has no torch.utils.hipify that can translate a CUDA text");
    return read_text(b, done ? b->tool : b->device);
}

static void write_hip(Build *b) {
    hip_text(hipified(b), &b->out);
    write_file(b->d, b->hip, b->out.p, b->out.n);
}

static void build_hip(Build *b) {
    const char *hipcc = build_tool("HIPCC", "hipcc");
    char arch[64];
    write_hip(b);
    snprintf(arch, sizeof arch, "--offload-arch=%s", b->chip);
    const char *const own[] = {arch, "-Rpass-analysis=kernel-resource-usage", "-o", b->code, b->hip,
                               NULL};
    char *argv[OPTIONS_MAX] = {ARG(hipcc)};
    append(argv, append(argv, 1, hipcc_options), own);
    int status = run(b, argv);
    if (status < 0)
        err(b->d, ST_IO, NULL,
            "hip:%s needs hipcc (Debian: hipcc, libamdhip64-dev, rocm-device-libs; $HIPCC names "
            "another one)",
            b->chip);
    if (status) failed(b, hipcc);
    clang_facts(&b->facts, b->log);
}

/* ---- the emulator ---- */
#define EMULATOR "libbraid_emulate.a"

static bool in_folder_of(char *buf, const char *file, const char *below) {
    char copy[PATH_BYTES];
    snprintf(copy, sizeof copy, "%s", file);
    return snprintf(buf, PATH_BYTES, "%s%s/" EMULATOR, dirname(copy), below) < PATH_BYTES &&
           access(buf, R_OK) == 0;
}

/* Finds the emulator's library: $BRAID_EMULATE, or near the program or library of this code
 * (BRAID_FROM_BIN: from the folder of installed programs to that of the library). */
static void find_emulator(Build *b, char *path) {
    static const char *const below[] = {"", "/braid", BRAID_FROM_BIN};
    char self[PATH_BYTES];
    const char *given = build_tool("BRAID_EMULATE", NULL);
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    Dl_info info;
    self[n > 0 ? n : 0] = 0;
    snprintf(path, PATH_BYTES, "%s", given ? given : "");
    if (given && access(path, R_OK) == 0) return;
    for (size_t i = 0; i < COUNT(below); i++) {
        if (n > 0 && in_folder_of(path, self, below[i])) return;
        if (dladdr(embedded_texts, &info) && info.dli_fname &&
            in_folder_of(path, info.dli_fname, below[i]))
            return;
    }
    err(b->d, ST_IO, NULL,
        "emulate:%s needs " EMULATOR " beside braid ($BRAID_EMULATE names another one)", b->chip);
}

static void build_emulated(Build *b) {
    const char *cxx = build_tool("CXX", "c++"), *text = b->device,
               *header = embedded_text("emulate/emulate.h");
    write_file(b->d, b->header, header, strlen(header));
    if (!strcmp(b->chip, "hip") || !strncmp(b->chip, "gfx", 3)) {
        write_hip(b);
        text = b->hip;
    }
    char *version[] = {ARG(cxx), "--version", NULL};
    if (run(b, version)) err(b->d, ST_IO, NULL, "the C++ compiler %s cannot be run", cxx);
    bool clang = strstr(b->log, "clang") != NULL;
    char *argv[] = {ARG(cxx),
                    "-std=gnu++17",
                    "-O0",
                    "-g",
                    "-fsanitize=thread",
                    clang ? "-mllvm" : "--param",
                    clang ? "-tsan-distinguish-volatile" : "tsan-distinguish-volatile=1",
                    "-ffp-contract=off",
                    "-fwrapv",
                    "-fno-math-errno",
                    "-fno-strict-aliasing",
                    "-fno-exceptions",
                    "-fPIC",
                    "-w",
                    "-include",
                    b->header,
                    "-x",
                    "c++",
                    "-c",
                    "-o",
                    b->kernel,
                    ARG(text),
                    NULL};
    if (run(b, argv)) failed(b, cxx);
}

/* ---- the library ---- */
static void build_host(Build *b, bool emulated) {
    char code[PATH_BYTES + 32], weights[PATH_BYTES + 32], path[PATH_BYTES], emulator[PATH_BYTES];
    const char *cc = build_cc(b->o), *cxx = build_tool("CXX", "c++");
    build_path(b->d, path, sizeof path, b->host_text, ".weights");
    snprintf(weights, sizeof weights, "-DBK_WEIGHTS_FILE=\"%s\"", path);
    snprintf(code, sizeof code, emulated ? "-DBK_EMULATE" : "-DBK_CODE_FILE=\"%s\"", b->code);
    const char *const own[] = {emulated ? "-O0" : "-O2",
                               "-fno-sanitize=undefined", /* zig's default without -O */
                               weights,
                               code,
                               "-c",
                               "-o",
                               b->host,
                               "-x",
                               "c",
                               b->host_text,
                               NULL};
    char *argv[OPTIONS_MAX] = {ARG(cc)};
    append(argv, append(argv, 1, compile_host_flags), own);
    int status = run(b, argv);
    if (status < 0) build_no_cc(b->d, b->o);
    if (status) failed(b, cc);
    char *library[] = {ARG(cc),     "-shared", "-o", ARG(b->library), b->host, "-ldl",
                       "-lpthread", "-lm",     NULL};
    char *linked[] = {ARG(cxx), "-shared", "-o",        ARG(b->library), b->host, b->kernel,
                      emulator, "-ldl",    "-lpthread", "-lm",           NULL};
    if (emulated) find_emulator(b, emulator);
    if (run(b, emulated ? linked : library)) failed(b, emulated ? cxx : cc);
    build_weights(b->d, b->host_text, b->library);
}

/* ---- the whole ---- */
static void build_library(Build *b) {
    const Backend to = device_find(b->target)->backend;
    const bool emulated = to == BACKEND_EMULATED;
    build_path(b->d, b->code, sizeof b->code, b->device, ".code");
    build_path(b->d, b->hip, sizeof b->hip, b->device, ".hip.cu");
    build_path(b->d, b->header, sizeof b->header, b->device, ".emulate.h");
    build_path(b->d, b->kernel, sizeof b->kernel, b->device, ".kernel.o");
    build_path(b->d, b->host, sizeof b->host, b->device, ".host.o");
    if (emulated)
        build_emulated(b);
    else if (to == BACKEND_CUDA)
        build_cuda(b);
    else
        build_hip(b);
    build_host(b, emulated);
}

/* Runs `step` and then removes its files and memory, also if it raises. */
static void guarded(Build *b, void (*step)(Build *b)) {
    Diag *d = b->d;
    jmp_buf jb, *up = d->top;
    d->top = &jb;
    bool ok = setjmp(jb) == 0;
    if (ok) {
        if (!(b->log = malloc(LOG_BYTES))) err(d, ST_MEMORY, NULL, "out of memory");
        b->out.d = d;
        build_path(d, b->tool, sizeof b->tool, b->device, ".tool.cu");
        step(b);
    }
    d->top = up;
    const char *const files[] = {b->code, b->hip, b->tool, b->header, b->kernel, b->host};
    for (size_t i = 0; i < COUNT(files); i++)
        if (*files[i] && files[i] != b->keep) unlink(files[i]);
    free(b->log);
    free(b->text);
    free(b->image);
    b->out.d = NULL;
    sb_free(&b->out);
    if (!ok) err_again(d);
}

void compile_build_gpu(Diag *d, const char *device_path, const char *host_path, const char *so_path,
                       const CompileOptions *o, GpuFacts *facts) {
    Build b = {.d = d,
               .o = o,
               .device = device_path,
               .host_text = host_path,
               .library = so_path,
               .target = o->target};
    const char *colon = strchr(o->target, ':');
    ASSERT(colon);
    b.chip = colon + 1;
    guarded(&b, build_library);
    if (facts) *facts = b.facts;
}

void compile_hip(Diag *d, const char *device_path, const char *hip_path) {
    Build b = {.d = d, .device = device_path};
    build_path(d, b.hip, sizeof b.hip, hip_path, "");
    b.keep = b.hip;
    guarded(&b, write_hip);
}
