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
    if (o->profile && strcmp(o->target, "interp") == 0)
        return rt_fail(e, BRAID_USAGE,
                       "the interpreter does not measure itself: profile for another target");
    return rt_target(o->target, e);
}

void rt_compile_options(const braid_options *o, FoldSpec *fold, CompileOptions *c) {
    *c = (CompileOptions){.target = o->target,
                          .cpu = o->cpu,
                          .emit_path = o->emit_path,
                          .schedule = o->schedule,
                          .units = o->threads,
                          .profile = o->profile,
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
