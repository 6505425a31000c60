/* job.c: from a model to a library: text, weights, and the C compiler, with errors caught. */
#include <stdlib.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "codegen/build/calibrate.h"
#include "api/runtime.h"
#include "scheduler/cost/decide.h"

_Static_assert(sizeof(braid_shape) == sizeof(InputShape), "shape layouts differ");
_Static_assert(offsetof(braid_shape, dim) == offsetof(InputShape, dim), "shape layouts differ");

void rt_compile_options(const braid_options *o, FoldSpec *fold, CompileOptions *c) {
    *c = (CompileOptions){.target = o->target,
                          .cpu = o->cpu,
                          .emit_path = o->emit_path,
                          .schedule = o->schedule,
                          .units = o->threads,
                          .nshape = o->shape_count,
                          .shape = (const InputShape *)o->shape,
                          .ignore_dim_names = o->ignore_dim_names};
    if (!o->fold) return;
    *fold = (FoldSpec){.nscan = o->fold->scan_count,
                       .ncarry = o->fold->carry_count,
                       .scan_input = (const char **)(uintptr_t)o->fold->scan_input,
                       .scan_axis = o->fold->scan_axis,
                       .carry_input = (const char **)(uintptr_t)o->fold->carry_input,
                       .carry_output = (const char **)(uintptr_t)o->fold->carry_output};
    c->fold = fold;
}

void rt_job_begin(RtJob *j, const braid_options *o, const RtChoices *choices) {
    *j = (RtJob){0};
    rt_compile_options(o, &j->fold, &j->o);
    if (!choices) return;
    j->o.measured = choices->p;
    j->o.nmeasured = choices->n;
    if (choices->calibrated) j->o.device = &choices->device;
}

void rt_job_end(RtJob *j) {
    texts_free(&j->texts);
    arena_free(j->arena);
}

/* All that changes is behind `j`. */
braid_status rt_job_emit(RtJob *j, const char *model_path, braid_error *e) {
    jmp_buf jb;
    j->d.top = &jb;
    if (setjmp(jb) == 0) {
        j->arena = arena_new(&j->d);
        j->p = compile_program(j->arena, &j->d, model_path, &j->o);
        if (j->p) compile_emit(j->p, &j->o, &j->texts);
    }
    j->d.top = NULL;
    if (j->d.status) return rt_fail_diag(e, &j->d);
    return j->p ? BRAID_OK : RT_OPEN;
}

/* The library from the texts that lie at `text` and, for GPUs, `host`. */
static bool run_compilers(RtJob *j, const char *text, const char *host, const char *so_path) {
    jmp_buf jb;
    j->d.top = &jb;
    if (setjmp(jb) == 0) {
        if (host)
            compile_build_gpu(&j->d, text, host, so_path, &j->o, NULL);
        else
            compile_build_cpu(&j->d, text, so_path, &j->o);
    }
    j->d.top = NULL;
    return j->d.status == ST_OK;
}

braid_status rt_job_build(RtJob *j, const char *folder, const char *file, braid_error *e) {
    /* What belongs to a text lies beside it under its name. */
    const bool gpu = j->texts.host.n > 0;
    char *text = rt_text("%s/%s.%s", folder, file, gpu ? "cu" : "c"),
         *so = rt_text("%s/%s", folder, file);
    char *host = gpu ? rt_text("%s/%s.c", folder, file) : NULL;
    char *weights = rt_text("%s/%s.c.weights", folder, file);
    braid_status st = !text || !so || !weights || (gpu && !host)
                          ? rt_fail(e, BRAID_MEMORY, "out of memory")
                          : BRAID_OK;
    if (!st) st = rt_write_file(text, j->texts.text.p, j->texts.text.n, e);
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

/* The caller's copy of the text; of GPUs that is the device's part, and the host's lies beside it.
 */
static braid_status write_copy(const RtJob *j, const char *path, braid_error *e) {
    char *host = rt_text("%s.host.c", path);
    if (!host) return rt_fail(e, BRAID_MEMORY, "out of memory");
    braid_status st = rt_write_file(path, j->texts.text.p, j->texts.text.n, e);
    if (!st && j->texts.host.n) st = rt_write_file(host, j->texts.host.p, j->texts.host.n, e);
    free(host);
    return st;
}

braid_status rt_build(const char *model_path, const braid_options *o, bool by_run,
                      const char *folder, const char *file, braid_error *e) {
    RtChoices choices = {0};
    RtJob j;
    if (o->emit_path) { /* known before the work, not after it */
        char *real;
        braid_status bad = rt_output_path(o->emit_path, &real, e);
        free(real);
        if (bad) return bad;
    }
    if (by_run && o->tune) { /* whether there is something to measure */
        rt_job_begin(&j, o, NULL);
        j.o.by_run = true;
        braid_status open = rt_job_emit(&j, model_path, e);
        rt_job_end(&j);
        if (open) return open;
    }
    rt_compile_options(o, &j.fold, &j.o);
    Store *s = rt_store(o, true);
    char *key = device_key(&j.o);
    int units = o->threads ? o->threads : compile_cpus();
    choices.calibrated = device_calibrated(&j.o, s, true, &choices.device);
    if (key) choices.p = store_measured(s, key, units, &choices.n);
    stage_set(NULL); /* tuning shows its own progress */
    braid_status st = o->tune ? rt_tune(model_path, o, s, key, &choices, e) : BRAID_OK;
    store_close(s);
    free(key);
    rt_job_begin(&j, o, &choices);
    j.o.by_run = by_run;
    stage_set("reading and scheduling the model");
    if (!st) st = rt_job_emit(&j, model_path, e);
    stage_set(j.texts.host.n ? "compiling for the device" : "running the C compiler");
    if (!st && o->emit_path) st = write_copy(&j, o->emit_path, e);
    if (!st) st = rt_job_build(&j, folder, file, e);
    stage_set(NULL);
    rt_job_end(&j);
    free(choices.p);
    return st;
}
