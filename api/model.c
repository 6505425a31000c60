/* model.c: braid_load and what a model says of itself. */
#include <dlfcn.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "api/runtime.h"
#include "scheduler/cost/device.h"

braid_status rt_target(const char *target, braid_error *e) {
    size_t n = strcspn(target, ":");
    char known[600] = "";
    if (strcmp(target, "interp") == 0 || device_find(target)) return BRAID_OK;
    for (int kind = 1; !*known && kind >= 0; kind--) /* those of its kind, or all */
        for (int i = 0; device_at(i); i++) {
            const char *name = device_at(i)->name;
            if (kind && (strncmp(name, target, n) != 0 || name[n] != ':')) continue;
            size_t k = strlen(known);
            snprintf(known + k, sizeof known - k, "%s%s", k ? ", " : kind ? "" : "interp, ", name);
        }
    return rt_fail(e, BRAID_USAGE, "unknown target '%s'; there are %s", target, known);
}

braid_status rt_options(const braid_options *from, braid_options *o, braid_error *e) {
    memset(o, 0, sizeof *o);
    if (from) {
        size_t n = from->struct_size;
        if (n < sizeof from->struct_size)
            return rt_fail(e, BRAID_USAGE, "the options' struct_size is not set");
        memcpy(o, from, n < sizeof *o ? n : sizeof *o);
    }
    if (!o->target) o->target = "cpu";
    if (o->shape_count < 0 || (o->shape_count > 0 && !o->shape))
        return rt_fail(e, BRAID_USAGE, "shape_count is %d, but there are no shapes",
                       (int)o->shape_count);
    for (int i = 0; i < o->shape_count; i++) {
        const braid_shape *s = &o->shape[i];
        bool good = s->input && s->rank >= 0 && s->rank <= MAX_RANK && (s->dim || !s->rank);
        for (int k = 0; good && k < s->rank; k++) good = s->dim[k] >= -1;
        if (!good)
            return rt_fail(
                e, BRAID_USAGE,
                "shape %d: it has no input, a rank outside of 0 to %d or a size below -1", i,
                MAX_RANK);
    }
    return rt_target(o->target, e);
}

void rt_program_io(Arena *a, const Io *from, braid_io *io) {
    const VType *t = from->type;
    bool optional = from->has != NULL || (t && t->kind == VT_OPTIONAL);
    if (t && t->kind == VT_OPTIONAL) t = t->elem;
    bool sequence = from->opt_seq || (t && t->kind == VT_SEQUENCE) || from->kind == VT_SEQUENCE;
    if (t && t->kind == VT_SEQUENCE) t = t->elem;
    io->name = from->name;
    io->element = sequence ? BRAID_SEQUENCE : BRAID_TENSOR;
    io->kind = optional ? BRAID_OPTIONAL : io->element;
    io->dtype = t && t->kind == VT_TENSOR ? (braid_dtype)t->dtype : BRAID_DTYPE_NONE;
    if (io->dtype == BRAID_DTYPE_NONE && !sequence && from->t)
        io->dtype = (braid_dtype)from->t->dtype;
    io->rank = -1;
    if (sequence) return;
    int64_t *dim = NEWN(a, int64_t, MAX_RANK);
    const char **name = NEWN(a, const char *, MAX_RANK);
    if (t && t->kind == VT_TENSOR && t->has_shape) {
        io->rank = t->rank;
        for (int i = 0; i < t->rank; i++) {
            dim[i] = t->dim[i];
            name[i] = t->param[i];
        }
    } else if (from->t && from->t->rank >= 0) {
        io->rank = from->t->rank;
        for (int i = 0; i < io->rank; i++)
            if (!e_is_int(from->t->dim[i], &dim[i])) dim[i] = -1;
    }
    io->dim = dim;
    io->dim_name = name;
}

/* All that needs the Program. */
static void load_program(struct braid_model *m, Program *p) {
    m->program = p;
    m->interp = interp_new(p);
    if (!m->interp) err(&m->diag, ST_MEMORY, NULL, "out of memory");
    m->name = p->name;
    m->target = "interp";
    m->nin = p->nin;
    m->nout = p->nout;
    m->in = NEWN(m->arena, braid_io, p->nin + 1);
    m->out = NEWN(m->arena, braid_io, p->nout + 1);
    for (int i = 0; i < p->nin; i++) rt_program_io(m->arena, &p->in[i], &m->in[i]);
    for (int i = 0; i < p->nout; i++) rt_program_io(m->arena, &p->out[i], &m->out[i]);
}

static braid_status load_interp(struct braid_model *m, const char *path,
                                const braid_options *options, braid_error *e) {
    jmp_buf jb;
    m->diag.top = &jb;
    stage_set("reading the model");
    if (setjmp(jb) == 0) {
        FoldSpec fold;
        CompileOptions o;
        m->arena = arena_new(&m->diag);
        rt_compile_options(options, &fold, &o);
        o.by_run = true;
        Program *p = compile_program(m->arena, &m->diag, path, &o);
        if (p) load_program(m, p);
    }
    m->diag.top = NULL;
    stage_set(NULL);
    if (m->diag.status) return rt_fail_diag(e, &m->diag);
    if (m->program) return BRAID_OK;
    arena_free(m->arena);
    m->arena = NULL;
    return rt_open_ranks(m, path, options, e);
}

static braid_status load_library(struct braid_model *m, const char *path, braid_error *e) {
    braid_status st = rt_open_library(path, m, e);
    if (st && m->handle) {
        dlclose(m->handle);
        m->handle = NULL;
    }
    return st;
}

static braid_status load_compiled(struct braid_model *m, const char *model_path,
                                  const braid_options *o, braid_error *e) {
    braid_status st = BRAID_OK;
    /* A cached library that cannot be opened (a damaged file) is made again once. */
    for (int fresh = 0; fresh < 2; fresh++) {
        char *path;
        st = rt_cached_library(model_path, o, fresh, &path, &m->folder, e);
        if (st == RT_OPEN) return rt_open_ranks(m, model_path, o, e);
        if (st) return st;
        st = load_library(m, path, e);
        free(path);
        if (!st || m->folder) break;
    }
    return st;
}

bool rt_is_library(const char *path) {
    static const char elf[4] = {0x7f, 'E', 'L', 'F'};
    char magic[4] = "";
    FILE *f = fopen(path, "rbe");
    bool library = f && fread(magic, 1, 4, f) == 4 && memcmp(magic, elf, 4) == 0;
    if (f) fclose(f);
    return library;
}

braid_status braid_load(const char *path, const braid_options *options, struct braid_model **model,
                        braid_error *e) {
    braid_options o;
    if (!path || !model) return rt_fail(e, BRAID_USAGE, "a null pointer was given");
    braid_status st = rt_options(options, &o, e);
    if (st) return st;
    bool library = rt_is_library(path);
    if (library && o.fold)
        return rt_fail(e, BRAID_USAGE, "a loop can be folded into a model, not into a library");
    if (library && (o.shape_count || o.ignore_dim_names))
        return rt_fail(e, BRAID_USAGE,
                       "shapes and dim names of inputs are settled in a library already");
    struct braid_model *m = calloc(1, sizeof *m);
    if (!m) return rt_fail(e, BRAID_MEMORY, "out of memory");
    atomic_store(&m->refs, 1);
    if (library) {
        st = load_library(m, path, e);
        if (!st && options && options->target && strcmp(o.target, m->target) != 0)
            st = rt_fail(e, BRAID_USAGE, "the library is for target '%s'", m->target);
    } else if (strcmp(o.target, "interp") == 0)
        st = load_interp(m, path, &o, e);
    else
        st = load_compiled(m, path, &o, e);
    if (st)
        braid_model_free(m);
    else
        *model = m;
    return st;
}

void rt_model_retain(struct braid_model *m) { atomic_fetch_add(&m->refs, 1); }

void braid_model_free(struct braid_model *m) {
    if (!m || atomic_fetch_sub(&m->refs, 1) != 1) return;
    if (!m->arena) {
        free(m->in);
        free(m->out);
    }
    if (m->handle) dlclose(m->handle);
    if (m->folder) rt_remove_folder(m->folder);
    free(m->folder);
    interp_free(m->interp);
    rt_open_free(m->open);
    arena_free(m->arena);
    free(m);
}

const char *braid_model_name(const struct braid_model *m) { return m->name ? m->name : ""; }
const char *braid_model_target(const struct braid_model *m) { return m->target; }
int32_t braid_model_input_count(const struct braid_model *m) { return m->nin; }
int32_t braid_model_output_count(const struct braid_model *m) { return m->nout; }
const braid_io *braid_model_input(const struct braid_model *m, int32_t i) {
    return i >= 0 && i < m->nin ? &m->in[i] : NULL;
}
const braid_io *braid_model_output(const struct braid_model *m, int32_t i) {
    return i >= 0 && i < m->nout ? &m->out[i] : NULL;
}
bool braid_model_draws(const struct braid_model *m) {
    if (m->open) return rt_open_draws(m);
    return m->lib ? m->lib->draws != 0 : m->program->draws;
}
int32_t braid_model_find_input(const struct braid_model *m, const char *name) {
    for (int i = 0; name && i < m->nin; i++)
        if (strcmp(m->in[i].name, name) == 0) return i;
    return -1;
}
