/* build.c: compiles a model to a library, with the measured numbers of device and choices. */
#include <stdlib.h>

#include "codegen/build/calibrate.h"
#include "api/runtime.h"
#include "scheduler/cost/decide.h"

/* Writes the caller's copy of the text: for GPUs the device code, and beside it the host code. */
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
    if (o->emit_path) { /* fail before the work, not after it */
        char *real;
        braid_status bad = rt_output_path(o->emit_path, &real, e);
        free(real);
        if (bad) return bad;
    }
    if (by_run && o->tune) { /* an open model is not tuned here */
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
    /* Measuring would run the C compiler. */
    choices.calibrated = device_calibrated(&j.o, s, !o->emit_folder, &choices.device);
    if (key) choices.p = store_measured(s, key, units, &choices.n);
    braid_status st = o->tune ? rt_tune(model_path, o, s, key, &choices, e) : BRAID_OK;
    store_close(s);
    free(key);
    rt_job_begin(&j, o, &choices);
    j.o.by_run = by_run;
    if (!st) st = rt_step(o, "reading and scheduling the model", e);
    if (!st) st = rt_job_emit(&j, model_path, e);
    const bool gpu = j.texts.host.n > 0;
    if (!st) st = rt_step(o, gpu ? "compiling for the device" : "running the C compiler", e);
    if (!st && o->emit_path) st = write_copy(&j, o->emit_path, e);
    if (!st && o->emit_folder)
        st = rt_job_folder(&j, o->emit_folder, e);
    else if (!st)
        st = rt_job_build(&j, folder, file, e);
    rt_job_end(&j);
    free(choices.p);
    return st;
}
