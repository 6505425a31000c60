/* emit_folder.c: a library as C files with a Makefile, for machines where Braid does not run. */
#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "api/runtime.h"
#include "codegen/build/build.h"
#include "codegen/embed.h"
#include "scheduler/cost/device.h"

static bool has_device(const RtJob *j) { return j->texts.host.n > 0; }

/* The weights' file: "" where the text holds them. Mapped ones are found beside the library. */
static const char *weights_file(const RtJob *j) {
    const size_t n = j->texts.weights.n;
    return n > WEIGHTS_MAPPED ? "model.so.weights" : n ? "model.weights" : "";
}

/* The Makefile's head: what depends on the model and the processor. */
static void put_makefile(RtJob *j, Sb *s) {
    char arch[128] = "";
    const bool mapped = j->texts.weights.n > WEIGHTS_MAPPED;
    if (!has_device(j)) compile_arch(&j->d, &j->o, arch, sizeof arch);
    sb_printf(s, "# Builds a model that braid compiled for target %s to C.\nARCH = %s\nFLAGS =",
              j->o.target, arch);
    const char *const *flag = has_device(j) ? compile_host_flags : compile_flags;
    for (; *flag; flag++) sb_printf(s, " %s", *flag);
    sb_printf(s, "\nPARTS = %s%s\n", has_device(j) ? "model.code " : "",
              mapped ? "" : weights_file(j));
    sb_printf(s, "LIBRARIES = model.so%s\n", mapped ? "" : " model.a");
    if (has_device(j)) {
        sb_puts(s, "# From the device's text to its code.\nDEVICE = ");
        compile_device_command(j->o.target, s);
        sb_puts(s, "\n");
    }
    sb_puts(s, "\n");
    sb_puts(s, embedded_text("folder/makefile.inc"));
    if (has_device(j)) sb_puts(s, "\nmodel.code: model.cu\n\t$(DEVICE) -o $@ model.cu\n");
}

/* Says which file is taken in, unless the compiler's command does. */
static void put_file(Sb *s, const char *macro, const char *file) {
    sb_printf(s, "#ifndef %s\n#define %s \"%s\"\n#endif\n", macro, macro, file);
}

static void put_model(RtJob *j, Sb *s) {
    const Sb *text = has_device(j) ? &j->texts.host : &j->texts.text;
    if (*weights_file(j)) put_file(s, "BK_WEIGHTS_FILE", weights_file(j));
    if (has_device(j)) put_file(s, "BK_CODE_FILE", "model.code");
    sb_write(s, text->p, text->n);
}

static void put_device(RtJob *j, Sb *s) {
    const bool hip = device_find(j->o.target)->backend == BACKEND_HIP;
    if (hip)
        hip_text(j->texts.text.p, s);
    else
        sb_write(s, j->texts.text.p, j->texts.text.n);
}

static void put_text(Sb *s, const char *name) { sb_puts(s, embedded_text(name)); }
static void put_interface(RtJob *j, Sb *s) { (void)j, put_text(s, "braid_model.h"); }
static void put_main(RtJob *j, Sb *s) { (void)j, put_text(s, "folder/main.inc"); }
static void put_readme(RtJob *j, Sb *s) { (void)j, put_text(s, "folder/readme.inc"); }

static bool print(RtJob *j, void (*put)(RtJob *j, Sb *s), Sb *s) {
    jmp_buf jb;
    j->d.top = &jb;
    s->d = &j->d;
    if (setjmp(jb) == 0) put(j, s);
    j->d.top = NULL;
    s->d = NULL;
    return j->d.status == ST_OK;
}

static braid_status write_in(const char *folder, const char *file, const void *p, size_t n,
                             braid_error *e) {
    char *path = rt_text("%s/%s", folder, file);
    braid_status st =
        path ? rt_write_file(path, p, n, e) : rt_fail(e, BRAID_MEMORY, "out of memory");
    free(path);
    return st;
}

braid_status rt_job_folder(RtJob *j, const char *folder, braid_error *e) {
    static const struct {
        const char *file;
        void (*put)(RtJob *j, Sb *s);
    } rows[] = {{"Makefile", put_makefile},       {"README.md", put_readme},
                {"braid_model.h", put_interface}, {"main.c", put_main},
                {"model.c", put_model},           {"model.cu", put_device}};
    const size_t n = COUNT(rows) - !has_device(j);
    const Sb *weights = &j->texts.weights;
    Sb text[COUNT(rows)] = {0};
    braid_status st = BRAID_OK;
    for (size_t i = 0; i < n && !st; i++)
        if (!print(j, rows[i].put, &text[i])) st = rt_fail_diag(e, &j->d);
    if (!st && mkdir(folder, 0777) != 0 && errno != EEXIST)
        st = rt_fail(e, BRAID_IO, "cannot make the folder '%s': %s", folder, strerror(errno));
    for (size_t i = 0; i < n; i++) {
        if (!st) st = write_in(folder, rows[i].file, text[i].p, text[i].n, e);
        sb_free(&text[i]);
    }
    if (!st && weights->n) st = write_in(folder, weights_file(j), weights->p, weights->n, e);
    return st;
}
