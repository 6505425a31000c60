/* model_options.c: checks the options of braid_load and braid_compile, fills in defaults, and puts
 * them into the compiler's form. */
#include "api/runtime.h"
#include "scheduler/cost/device.h"

_Static_assert(sizeof(braid_shape) == sizeof(InputShape), "shape layouts differ");
_Static_assert(offsetof(braid_shape, dim) == offsetof(InputShape, dim), "shape layouts differ");

braid_status rt_target(const char *target, braid_error *e) {
    size_t n = strcspn(target, ":");
    char known[600] = "";
    if (strcmp(target, "interp") == 0 || device_find(target)) return BRAID_OK;
    for (int kind = 1; !*known && kind >= 0; kind--) /* the targets of its kind, else all */
        for (int i = 0; device_at(i); i++) {
            const char *name = device_at(i)->name;
            if (kind && (strncmp(name, target, n) != 0 || name[n] != ':')) continue;
            size_t k = strlen(known);
            snprintf(known + k, sizeof known - k, "%s%s", k ? ", " : kind ? "" : "interp, ", name);
        }
    return rt_fail(e, BRAID_USAGE, "unknown target '%s'; there are %s", target, known);
}

/* The end of the C identifier that begins at p; p itself if none does. */
static const char *past_identifier(const char *p) {
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789";
    return *p >= '0' && *p <= '9' ? p : p + strspn(p, letters);
}

/* Whether s is NAMESPACE::NAME, of two identifiers. */
static bool is_torch_name(const char *s) {
    const char *colon = past_identifier(s);
    if (colon == s || strncmp(colon, "::", 2) != 0) return false;
    const char *end = past_identifier(colon + 2);
    return end > colon + 2 && !*end;
}

/* The type that `weights` names; DT_NONE: none. */
static DType weights_type(const char *s) {
    if (!s) return DT_NONE;
    return strcmp(s, "f16") == 0    ? DT_F16
           : strcmp(s, "bf16") == 0 ? DT_BF16
           : strcmp(s, "int8") == 0 ? DT_I8
                                    : DT_NONE;
}

Progress *rt_progress(const braid_options *o) { return o->progress ? o->progress_user : NULL; }

braid_status rt_step(const braid_options *o, const char *step, braid_error *e) {
    return progress_step(rt_progress(o), "%s", step) ? BRAID_OK
                                                     : rt_fail(e, BRAID_CANCELLED, "cancelled");
}

braid_status rt_options(const braid_options *from, braid_options *o, Progress *p, braid_error *e) {
    memset(o, 0, sizeof *o);
    if (from) {
        size_t n = from->struct_size;
        if (n < sizeof from->struct_size)
            return rt_fail(e, BRAID_USAGE, "the options' struct_size is not set");
        memcpy(o, from, n < sizeof *o ? n : sizeof *o);
    }
    if (!o->target) o->target = "cpu";
    if (o->progress) {
        progress_begin(p, o->progress, o->progress_user);
        o->progress_user = p;
    }
    if (!o->model_data && o->model_size)
        return rt_fail(e, BRAID_USAGE, "model_size is %zu, but model_data is NULL", o->model_size);
    if (o->model_data && o->model_size >= 4 && memcmp(o->model_data, "\177ELF", 4) == 0)
        return rt_fail(e, BRAID_MODEL,
                       "model_data is a compiled library, not an ONNX model: a library is loaded "
                       "from its file");
    if (o->threads < 0 || o->tune_seconds < 0)
        return rt_fail(e, BRAID_USAGE, "threads and tune_seconds cannot be negative");
    if (o->shape_count < 0 || (o->shape_count > 0 && !o->shape))
        return rt_fail(e, BRAID_USAGE, "shape_count is %d, but there are no shapes",
                       (int)o->shape_count);
    if (o->torch_name && !is_torch_name(o->torch_name))
        return rt_fail(e, BRAID_USAGE, "'%s' is not the name of an operator, NAMESPACE::NAME",
                       o->torch_name);
    if (o->weights && !weights_type(o->weights))
        return rt_fail(e, BRAID_USAGE, "weights are f16, bf16 or int8, not '%s'", o->weights);
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
    if (o->profile && strcmp(o->target, "interp") == 0)
        return rt_fail(e, BRAID_USAGE,
                       "the interpreter does not measure itself: profile for another target");
    braid_status st = rt_target(o->target, e);
    const Device *device = st ? NULL : device_find(o->target);
    if (!device || !o->emit_folder || device->backend != BACKEND_EMULATED) return st;
    return rt_fail(e, BRAID_USAGE, "emulated programs are not written as C files");
}

void rt_compile_options(const braid_options *o, FoldSpec *fold, CompileOptions *c) {
    *c = (CompileOptions){.model = o->model_data,
                          .model_size = o->model_size,
                          .progress = rt_progress(o),
                          .target = o->target,
                          .cpu = o->cpu,
                          .emit_path = o->emit_path,
                          .schedule = o->schedule,
                          .weights = weights_type(o->weights),
                          .units = o->threads,
                          .cc = o->cc,
                          .profile = o->profile,
                          .torch_name = o->torch_name,
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
