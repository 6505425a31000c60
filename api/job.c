/* job.c: one compilation (text, weights, C compiler), with errors caught. */
#include <stdlib.h>
#include <unistd.h>

#include "api/runtime.h"

void rt_job_begin(RtJob *j, const braid_options *o, const RtChoices *choices) {
    *j = (RtJob){0};
    rt_compile_options(o, &j->fold, &j->o);
    j->d.progress = j->o.progress;
    j->kept = rt_kept_folder(o);
    j->o.kept = j->kept;
    if (!choices) return;
    j->o.measured = choices->p;
    j->o.nmeasured = choices->n;
    if (choices->calibrated) j->o.device = &choices->device;
}

void rt_job_end(RtJob *j) {
    texts_free(&j->texts);
    arena_free(j->arena);
    free(j->kept);
}

/* Everything that changes is in *j: longjmp leaves changed local variables undefined. */
braid_status rt_job_emit(RtJob *j, const char *model_path, braid_error *e) {
    jmp_buf jb;
    j->d.top = &jb;
    if (setjmp(jb) == 0) {
        j->arena = arena_new(&j->d);
        j->p = compile_program(j->arena, &j->d, model_path, &j->o);
        if (j->p) compile_emit(j->p, &j->texts);
    }
    j->d.top = NULL;
    if (j->d.status) return rt_fail_diag(e, &j->d);
    return j->p ? BRAID_OK : RT_OPEN;
}

/* Builds the library from the text in the file `text` and, for GPUs, in `host`. */
static bool run_compilers(RtJob *j, const char *text, const char *host, const char *so_path) {
    jmp_buf jb;
    j->d.top = &jb;
    if (setjmp(jb) == 0) {
        if (host)
            compile_build_gpu(&j->d, text, host, so_path, &j->o, NULL);
        else
            compile_build_cpu(&j->d, j->texts.nunit, j->texts.unit, text, so_path, &j->o);
    }
    j->d.top = NULL;
    return j->d.status == ST_OK;
}

braid_status rt_job_build(RtJob *j, const char *folder, const char *file, braid_error *e) {
    /* All files of a compilation lie in `folder`; their names begin with `file`. */
    const bool gpu = j->texts.host.n > 0;
    char *text = rt_text("%s/%s.%s", folder, file, gpu ? "cu" : "c"),
         *so = rt_text("%s/%s", folder, file);
    char *host = gpu ? rt_text("%s/%s.c", folder, file) : NULL;
    char *weights = rt_text("%s/%s.c.weights", folder, file);
    braid_status st = !text || !so || !weights || (gpu && !host)
                          ? rt_fail(e, BRAID_MEMORY, "out of memory")
                          : BRAID_OK;
    if (!st && gpu) st = rt_write_file(text, j->texts.text.p, j->texts.text.n, e);
    if (!st && gpu) st = rt_write_file(host, j->texts.host.p, j->texts.host.n, e);
    if (!st && j->texts.weights.n)
        st = rt_write_file(weights, j->texts.weights.p, j->texts.weights.n, e);
    if (!st && !run_compilers(j, text, host, so)) st = rt_fail_diag(e, &j->d);
    if (text) unlink(text);
    if (host) unlink(host);
    if (weights) unlink(weights);
    free(text);
    free(host);
    free(weights);
    free(so);
    return st;
}
