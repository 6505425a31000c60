/* emit_folder.c: a library as C files with a Makefile, for machines where Braid does not run. */
#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "api/runtime.h"
#include "codegen/embed.h"

/* The Makefile's head: what depends on the model and the processor. */
static void put_makefile(RtJob *j, Sb *s) {
    char arch[128];
    compile_arch(&j->d, &j->o, arch, sizeof arch);
    const size_t weights = j->texts.weights.n;
    sb_printf(s, "# Builds a model that braid compiled for target %s to C.\nARCH = %s\nFLAGS =",
              j->o.target, arch);
    for (const char *const *flag = compile_flags; *flag; flag++) sb_printf(s, " %s", *flag);
    sb_printf(s, "\nWEIGHTS = %s\n",
              weights > WEIGHTS_MAPPED ? ""
              : weights                ? "model.weights"
                                       : "");
    /* Mapped weights are found beside the library. */
    sb_printf(s, "LIBRARIES = model.so%s\n\n", weights > WEIGHTS_MAPPED ? "" : " model.a");
    sb_puts(s, embedded_text("folder/makefile.inc"));
}

static void put_model(RtJob *j, Sb *s) {
    const size_t weights = j->texts.weights.n;
    if (weights && weights <= WEIGHTS_MAPPED)
        sb_puts(s, "#ifndef BK_WEIGHTS_FILE\n#define BK_WEIGHTS_FILE \"model.weights\"\n#endif\n");
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
    } rows[] = {{"Makefile", put_makefile},
                {"README.md", put_readme},
                {"braid_model.h", put_interface},
                {"main.c", put_main},
                {"model.c", put_model}};
    const Sb *weights = &j->texts.weights;
    Sb text[COUNT(rows)] = {0};
    braid_status st = BRAID_OK;
    for (size_t i = 0; i < COUNT(rows) && !st; i++)
        if (!print(j, rows[i].put, &text[i])) st = rt_fail_diag(e, &j->d);
    if (!st && mkdir(folder, 0777) != 0 && errno != EEXIST)
        st = rt_fail(e, BRAID_IO, "cannot make the folder '%s': %s", folder, strerror(errno));
    for (size_t i = 0; i < COUNT(rows); i++) {
        if (!st) st = write_in(folder, rows[i].file, text[i].p, text[i].n, e);
        sb_free(&text[i]);
    }
    if (!st && weights->n)
        st = write_in(folder, weights->n > WEIGHTS_MAPPED ? "model.so.weights" : "model.weights",
                      weights->p, weights->n, e);
    return st;
}
