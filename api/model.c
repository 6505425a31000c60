/* model.c: models: recognizing a library, the properties of a model, and freeing it. */
#include <dlfcn.h>
#include <stdlib.h>

#include "api/runtime.h"

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

struct braid_model *rt_model_new(void) {
    struct braid_model *m = calloc(1, sizeof *m);
    if (m) atomic_store(&m->refs, 1);
    return m;
}

braid_status rt_model_library(struct braid_model *m, const char *path, braid_error *e) {
    braid_status st = rt_open_library(path, m, e);
    if (st && m->handle) {
        dlclose(m->handle);
        m->handle = NULL;
    }
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
int32_t braid_model_carry_count(const struct braid_model *m) { return m->ncarry; }
braid_status braid_model_carry(const struct braid_model *m, int32_t i, int32_t *input,
                               int32_t *output, braid_error *e) {
    if (!input || !output) return rt_fail(e, BRAID_USAGE, "a null pointer was given");
    if (i < 0 || i >= m->ncarry)
        return rt_fail(e, BRAID_USAGE, "there is no state %d; the model has %d", (int)i, m->ncarry);
    *input = m->carry_input[i];
    *output = m->carry_output[i];
    return BRAID_OK;
}
