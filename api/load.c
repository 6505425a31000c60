/* load.c: braid_load: opens a library, or compiles a model, or prepares it for the interpreter. */
#include <stdlib.h>

#include "api/runtime.h"

/* Fills the parts of m that come from the Program. */
static void load_program(struct braid_model *m, Program *p) {
    m->program = p;
    m->interp = interp_new(p);
    if (!m->interp) err(&m->diag, ST_MEMORY, NULL, "out of memory");
    m->name = p->name;
    m->target = "interp";
    m->nin = p->nin;
    m->nout = p->nout;
    m->ncarry = p->ncarry;
    m->carry_input = p->carry_input;
    m->carry_output = p->carry_output;
    m->in = NEWN(m->arena, braid_io, p->nin + 1);
    m->out = NEWN(m->arena, braid_io, p->nout + 1);
    for (int i = 0; i < p->nin; i++) rt_program_io(m->arena, &p->in[i], &m->in[i]);
    for (int i = 0; i < p->nout; i++) rt_program_io(m->arena, &p->out[i], &m->out[i]);
}

static braid_status load_interp(struct braid_model *m, const char *path,
                                const braid_options *options, braid_error *e) {
    jmp_buf jb;
    braid_status st = rt_step(options, "reading the model", e);
    if (st) return st;
    m->diag.top = &jb;
    if (setjmp(jb) == 0) {
        FoldSpec fold;
        CompileOptions o;
        m->arena = arena_new(&m->diag);
        rt_compile_options(options, &fold, &o);
        o.by_run = true;
        m->diag.progress = o.progress;
        Program *p = compile_program(m->arena, &m->diag, path, &o);
        if (p) load_program(m, p);
    }
    m->diag.top = NULL;
    m->diag.progress = NULL;
    if (m->diag.status) return rt_fail_diag(e, &m->diag);
    if (m->program) return BRAID_OK;
    arena_free(m->arena);
    m->arena = NULL;
    return rt_open_ranks(m, path, options, braid_load, e);
}

static braid_status load_compiled(struct braid_model *m, const char *model_path,
                                  const braid_options *o, braid_error *e) {
    braid_status st = BRAID_OK;
    /* If a cached library cannot be opened (its file is damaged), build it again once. */
    for (int fresh = 0; fresh < 2; fresh++) {
        char *path;
        st = rt_cached_library(model_path, o, fresh, &path, &m->folder, e);
        if (st == RT_OPEN) return rt_open_ranks(m, model_path, o, braid_load, e);
        if (st) return st;
        st = rt_model_library(m, path, e);
        free(path);
        if (!st || m->folder) break;
    }
    return st;
}

braid_status braid_load(const char *path, const braid_options *options, struct braid_model **model,
                        braid_error *e) {
    braid_options o;
    Progress progress;
    braid_status st = rt_options(options, &o, &progress, e);
    if (st) return st;
    if ((!path && !o.model_data) || !model)
        return rt_fail(e, BRAID_USAGE, "a null pointer was given");
    if (o.emit_folder) return rt_fail(e, BRAID_USAGE, "C files in a folder are braid_compile's");
    bool library = !o.model_data && rt_is_library(path);
    if (library && o.fold)
        return rt_fail(e, BRAID_USAGE, "a loop can be folded into a model, not into a library");
    if (library && (o.profile || o.torch_name || o.weights))
        return rt_fail(e, BRAID_USAGE,
                       "whether a library profiles, its PyTorch operator and the type of its "
                       "weights are settled already");
    if (library && (o.shape_count || o.ignore_dim_names))
        return rt_fail(e, BRAID_USAGE,
                       "shapes and dim names of inputs are settled in a library already");
    struct braid_model *m = rt_model_new();
    if (!m) return rt_fail(e, BRAID_MEMORY, "out of memory");
    if (library) {
        st = rt_model_library(m, path, e);
        if (!st && options && options->target && strcmp(o.target, m->target) != 0)
            st = rt_fail(e, BRAID_USAGE, "the library is for target '%s'", m->target);
    } else if (strcmp(o.target, "interp") == 0)
        st = load_interp(m, path, &o, e);
    else
        st = load_compiled(m, path, &o, e);
    if (!st && !progress_ask(rt_progress(&o))) st = rt_fail(e, BRAID_CANCELLED, "cancelled");
    if (st)
        braid_model_free(m);
    else
        *model = m;
    return st;
}
