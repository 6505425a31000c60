/* Device texts on their way to machine code: CUDA to HIP, by Braid's own table and through a hipify
 * tool where there is one, what compilers say of a kernel, and what is said where they are missing.
 */
#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "codegen/build/build.h"

static char folder[] = "/tmp/test_gpu_build_XXXXXX";
typedef struct Path {
    char p[300];
} Path;
static Path in_folder(const char *name) {
    Path a;
    snprintf(a.p, sizeof a.p, "%s/%s", folder, name);
    return a;
}

static void put_text(const char *path, const char *text) {
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static char *get_text(const char *path) {
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    char *s = calloc(1, 1 << 20);
    assert_non_null(s);
    size_t n = fread(s, 1, (1 << 20) - 1, f);
    assert_true(n < (1 << 20) - 1);
    fclose(f);
    return s;
}

static void translates(const char *from, const char *to) {
    Sb none = {0}, got = {0};
    hip_text("", &none);
    hip_text(from, &got);
    assert_string_equal(got.p + none.n, to);
    sb_free(&none);
    sb_free(&got);
}

static void table(void **state) {
    (void)state;
    translates("x = __shfl_xor_sync(0xffffffffu, x, 1);", "x = __shfl_xor(x, 1);");
    translates("__shfl_sync(f(a, (b), g(c, d)),\n v, 0)", "__shfl(\n v, 0)");
    translates("__shfl_down_sync(m, __shfl_up_sync(m, x, 1), 2)",
               "__shfl_down(__shfl_up(x, 1), 2)");
    translates("if (__any_sync (ALL, a) && __all_sync(ALL, b))", "if (__any(a) && __all(b))");
    translates("__ballot_sync(__activemask(), p[1, 2])", "__ballot(p[1, 2])");
    translates("m = __activemask();", "m = __ballot(1);");
    translates("__syncwarp(); __syncwarp(m(1)); __nanosleep(20);",
               "bk_hip_sync_warp(); bk_hip_sync_warp(); bk_hip_sleep(20);");
    translates("v = __ldcg(p + 1);", "v = __ldg(p + 1);");
    /* what only looks like it */
    translates("my__shfl_sync(m, x) __shfl_syncs(m, x)", "my__shfl_sync(m, x) __shfl_syncs(m, x)");
    translates("\"__syncwarp(\\\"m)\" '\\'' // __syncwarp(1)\n/* __syncwarp(1) */",
               "\"__syncwarp(\\\"m)\" '\\'' // __syncwarp(1)\n/* __syncwarp(1) */");
    translates("__shfl_sync(\")\" /* ), */, x, 1)", "__shfl(x, 1)");
    translates("#include \"hip/hip_runtime.h\"\n#include <math.h>\n", "\n#include <math.h>\n");
    translates("__syncthreads(); __threadfence(); __popc(x)",
               "__syncthreads(); __threadfence(); __popc(x)");
    translates("__shfl_sync(", "__shfl(");
}

/* ---- tools ---- */
/* Without comments, and one space for any number of them. */
static char *plain(char *s) {
    char *to = s;
    for (const char *p = s; *p;) {
        if (p[0] == '/' && p[1] == '*')
            p = strstr(p, "*/") + 2;
        else if (p[0] == '/' && p[1] == '/')
            p += strcspn(p, "\n");
        else if (strchr(" \t\n", *p)) {
            if (to > s && to[-1] != ' ') *to++ = ' ';
            p++;
        } else
            *to++ = *p++;
    }
    *to = 0;
    return s;
}

static void device_text(const char *model, const char *target, const char *device,
                        const char *host) {
    Diag d = {0};
    jmp_buf jb;
    CompileOptions o = {.target = target};
    Texts t = {0};
    d.top = &jb;
    if (setjmp(jb)) fail_msg("%s: %s", model, d.message);
    Arena *a = arena_new(&d);
    compile_emit(compile_program(a, &d, model, &o), &t);
    put_text(device, t.text.p);
    put_text(host, t.host.p);
    if (t.weights.n) {
        char path[400];
        snprintf(path, sizeof path, "%s.weights", host);
        FILE *f = fopen(path, "wb");
        assert_non_null(f);
        assert_int_equal(fwrite(t.weights.p, 1, t.weights.n, f), t.weights.n);
        fclose(f);
    }
    texts_free(&t);
    d.top = NULL;
    arena_free(a);
}

static char *hip_of(const char *device) {
    Diag d = {0};
    jmp_buf jb;
    const Path to = in_folder("a.hip");
    d.top = &jb;
    if (setjmp(jb)) fail_msg("%s", d.message);
    compile_hip(&d, device, to.p);
    char *s = get_text(to.p);
    unlink(to.p);
    return s;
}

static void hipify(void **state) {
    (void)state;
    DIR *models = opendir(BRAID_GOLDEN);
    const Path device = in_folder("a.cu"), host = in_folder("a.c");
    int compared = 0;
    assert_non_null(models);
    for (struct dirent *e; (e = readdir(models));) {
        char path[600], error[600];
        const char *dot = strstr(e->d_name, ".onnx");
        if (!dot) continue;
        snprintf(path, sizeof path, BRAID_GOLDEN "/%s", e->d_name);
        snprintf(error, sizeof error, BRAID_GOLDEN "/%.*s.error", (int)(dot - e->d_name),
                 e->d_name);
        if (access(error, R_OK) == 0) continue;
        device_text(path, "hip:gfx90a", device.p, host.p);
        setenv("HIPIFY", "own", 1);
        char *own = hip_of(device.p);
        unsetenv("HIPIFY");
        char *tool = hip_of(device.p);
        bool by_tool =
            strstr(tool, "hipify") && !strstr(own, "generated by hipify") && strcmp(tool, own);
        assert_string_equal(plain(own), plain(tool));
        free(own);
        free(tool);
        if (!by_tool) break;
        compared++;
    }
    closedir(models);
    if (!compared)
        print_message("there is no hipify tool: nothing to compare the own table with\n");
    else
        print_message("%d texts are the same through a hipify tool\n", compared);
}

/* ---- compilers ---- */
/* Builds; returns the message of a failure. */
static const char *message_of(const char *target, const char *device, const char *host,
                              GpuFacts *facts) {
    static Diag d;
    jmp_buf jb;
    CompileOptions o = {.target = target};
    const Path so = in_folder("a.so");
    memset(&d, 0, sizeof d);
    d.top = &jb;
    if (!setjmp(jb)) compile_build_gpu(&d, device, host, so.p, &o, facts);
    d.top = NULL;
    return d.status ? d.message : NULL;
}

static bool there_is(const char *tool) {
    char out[4096];
    char *argv[] = {ARG(tool), "--version", NULL};
    return build_run(&(Diag){0}, NULL, argv, out, sizeof out) == 0;
}

static void compilers(void **state) {
    (void)state;
    const Path device_path = in_folder("b.cu"), host_path = in_folder("b.c"),
               so = in_folder("a.so");
    const char *device = device_path.p, *host = host_path.p, *m;
    GpuFacts f;
    struct {
        const char *target, *tool;
    } row[] = {{"cuda:sm_90", "nvcc"}, {"hip:gfx90a", "hipcc"}};
    for (size_t i = 0; i < COUNT(row); i++) {
        if (!there_is(row[i].tool)) {
            print_message("%s is not there\n", row[i].tool);
            continue;
        }
        device_text(BRAID_GOLDEN "/loop.onnx", row[i].target, device, host);
        if ((m = message_of(row[i].target, device, host, &f))) fail_msg("%s", m);
        assert_in_range(f.registers, 8, 255);
        assert_int_equal(f.spill_bytes, 0);
        assert_int_equal(access(so.p, R_OK), 0);
        put_text(device, "int x;\nint y = no_such_name;\n");
        m = message_of(row[i].target, device, host, &f);
        assert_non_null(m);
        if (!strstr(m, "no_such_name")) fail_msg("%s", m);
    }
    DIR *left = opendir(folder);
    assert_non_null(left);
    for (struct dirent *e; (e = readdir(left));)
        if (!strncmp(e->d_name, "b.cu.", 5)) fail_msg("%s is left behind", e->d_name);
    closedir(left);
}

static void missing(void **state) {
    (void)state;
    const Path device_path = in_folder("c.cu"), host_path = in_folder("c.c");
    const char *device = device_path.p, *host = host_path.p, *m;
    put_text(device, "int x;\n");
    put_text(host, "int x;\n");
    setenv("HIPCC", "/nowhere/hipcc", 1);
    m = message_of("hip:gfx90a", device, host, NULL);
    unsetenv("HIPCC");
    assert_non_null(m);
    assert_non_null(strstr(m, "needs hipcc"));
    setenv("CXX", "/nowhere/c++", 1);
    m = message_of("emulate:cuda", device, host, NULL);
    unsetenv("CXX");
    assert_non_null(m);
    assert_non_null(strstr(m, "cannot be run"));
}

static int begin(void **state) {
    (void)state;
    return mkdtemp(folder) ? 0 : 1;
}
static int end(void **state) {
    (void)state;
    char *argv[] = {"rm", "-rf", folder, NULL}, out[100];
    return build_run(&(Diag){0}, NULL, argv, out, sizeof out);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(table), cmocka_unit_test(hipify),
                                       cmocka_unit_test(compilers), cmocka_unit_test(missing)};
    return cmocka_run_group_tests(tests, begin, end);
}
